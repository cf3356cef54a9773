//! A command and its arguments, where they stand.
//!
//! On the path: the guard has found a whole command and where its arguments are; nothing is copied. Only the arguments of
//! an inline command, which may be quoted, are copied to a buffer of the connection.

use crate::guard::{KEEP_PLACES_MAX, Place, ProtocolError};

/// Room for so many bytes of a line is kept while a client is silent.
const KEEP_BYTES_MAX: usize = 4 << 10;

/// A command: its name is argument 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    bytes: &'a [u8],
    places: &'a [Place],
}

/// Where the arguments of an inline command are copied to.
#[derive(Default, Debug)]
pub(crate) struct Scratch {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl Scratch {
    /// Gives back what a long line needed. Nobody uses a request that was made with it.
    pub(crate) fn shrink(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_BYTES_MAX);
        self.places.clear();
        self.places.shrink_to(KEEP_PLACES_MAX);
    }
}

impl<'a> Request<'a> {
    /// A command whose arguments stand at `places` of `bytes`.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], places: &'a [Place]) -> Self {
        Self { bytes, places }
    }

    /// Takes a line apart; `scratch` receives the arguments. No argument at all is possible.
    pub(crate) fn split(line: &[u8], scratch: &'a mut Scratch) -> Result<Self, ProtocolError> {
        let Scratch { bytes, places } = scratch;
        bytes.clear();
        places.clear();
        let mut rest = line.trim_ascii_start();
        while !rest.is_empty() {
            let start = bytes.len() as u32;
            rest = split_one(rest, bytes)?.trim_ascii_start();
            places.push((start, bytes.len() as u32));
        }
        Ok(Self { bytes, places })
    }

    /// How many arguments there are, the name included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// An argument; empty if there is none with this index.
    #[inline]
    pub(crate) fn arg(&self, index: usize) -> &'a [u8] {
        match self.places.get(index) {
            Some(&(start, end)) => &self.bytes[start as usize..end as usize],
            None => &[],
        }
    }

    /// The arguments from an index on.
    pub(crate) fn args(&self, first: usize) -> impl Iterator<Item = &'a [u8]> + Clone + '_ {
        (first..self.len()).map(|index| self.arg(index))
    }

    /// The command that stands from an argument on.
    pub(crate) fn behind(&self, first: usize) -> Self {
        Self {
            bytes: self.bytes,
            places: self.places.get(first..).unwrap_or_default(),
        }
    }

    /// Whether an argument is this word, in any case.
    #[inline]
    pub(crate) fn arg_is(&self, index: usize, word: &str) -> bool {
        self.arg(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// An argument as others may see it: of a password, only that there is one.
    pub(crate) fn visible_arg(&self, index: usize) -> &'a [u8] {
        const REDACTED: &[u8] = b"(redacted)";
        let is_password = if self.arg_is(0, "auth") {
            index >= 1
        } else if self.arg_is(0, "hello") {
            // HELLO version AUTH user password: nobody is harmed if more than the password is hidden.
            index >= 3 && (2..index).any(|before| index - before <= 2 && self.arg_is(before, "auth"))
        } else if self.arg_is(0, "acl") {
            // Passwords stand among the rules of ACL SETUSER; a rule may be any of its words.
            index >= 2 && self.arg_is(1, "setuser")
        } else if self.arg_is(0, "config") {
            index >= 3 && self.arg_is(index - 1, "requirepass")
        } else {
            false
        };
        if is_password { REDACTED } else { self.arg(index) }
    }
}

/// Copies the first argument of a line to `target`, without its quotes; returns what follows.
fn split_one<'l>(line: &'l [u8], target: &mut Vec<u8>) -> Result<&'l [u8], ProtocolError> {
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        match byte {
            _ if byte.is_ascii_whitespace() || byte == 0 => return Ok(&line[at + 1..]),
            b'"' | b'\'' => {
                at = unquote(line, at, target)?;
                // A quote ends its argument.
                return match line.get(at) {
                    Some(next) if !next.is_ascii_whitespace() => Err(ProtocolError::Quotes),
                    _ => Ok(&line[at..]),
                };
            }
            _ => target.push(byte),
        }
        at += 1;
    }
    Ok(&[])
}

/// Copies what the quotes that open at `at` hold; returns where they end.
fn unquote(line: &[u8], at: usize, target: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    let quote = line[at];
    let mut at = at + 1;
    loop {
        match (&line[at.min(line.len())..], quote) {
            ([], _) => return Err(ProtocolError::Quotes),
            ([byte, ..], _) if *byte == quote => return Ok(at + 1),
            ([b'\\', b'x', high, low, ..], b'"') if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                target.push(hex(*high) << 4 | hex(*low));
                at += 4;
            }
            ([b'\\', escaped, ..], b'"') => {
                target.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                at += 2;
            }
            ([b'\\', b'\'', ..], b'\'') => {
                target.push(b'\'');
                at += 2;
            }
            ([byte, ..], _) => {
                target.push(*byte);
                at += 1;
            }
        }
    }
}

fn hex(digit: u8) -> u8 {
    char::from(digit).to_digit(16).map_or(0, |value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::{Framed, Guard};
    use proptest::prelude::*;

    fn split(line: &str) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let mut scratch = Scratch::default();
        let request = Request::split(line.as_bytes(), &mut scratch)?;
        Ok(request.args(0).map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn lines_are_split_like_a_shell_does() {
        assert_eq!(
            split("  SET  a\t1 "),
            Ok(vec![b"SET".to_vec(), b"a".to_vec(), b"1".to_vec()])
        );
        assert_eq!(
            split(r#"ECHO "a b\n\x41\"" 'c\'d' "#),
            Ok(vec![b"ECHO".to_vec(), b"a b\nA\"".to_vec(), b"c'd".to_vec()])
        );
        assert_eq!(split(""), Ok(vec![]));
        assert_eq!(split("GET \"\""), Ok(vec![b"GET".to_vec(), vec![]]));
        for line in ["GET \"a", "GET 'a", "GET \"a\"b", "GET \"a\\"] {
            assert_eq!(split(line), Err(ProtocolError::Quotes), "{line}");
        }
    }

    #[test]
    fn arguments_stand_where_they_arrived() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n";
        let mut guard = Guard::default();
        let framed = guard.next(bytes, false);
        assert_eq!(framed, Ok(Framed::Array { bytes: bytes.len() }));
        let request = Request::new(bytes, guard.places());
        assert_eq!(
            (request.len(), request.arg(0), request.arg(1), request.arg(2)),
            (2, &b"GET"[..], &b"\r\n"[..], &b""[..])
        );
    }

    proptest! {
        #[test]
        fn any_line_is_split_or_refused(line in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut scratch = Scratch::default();
            let _ = Request::split(&line, &mut scratch);
            prop_assert!(scratch.bytes.len() <= line.len());
        }
    }
}
