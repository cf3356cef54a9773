//! Finds where the next command ends, before anything is decoded or kept.
//!
//! On the path: the connection asks after each READ of the socket. What a peer announces is checked
//! against limits at once, so it never makes us wait for, or keep, more than [`COMMAND_BYTES_MAX`].
//! Inside a command the guard remembers how far it has come and how many bytes are needed to come
//! further: a large command that arrives in many pieces is looked at once, not once per piece.
//!
//! A command is `*COUNT\r\n` and COUNT times `$LENGTH\r\nBYTES\r\n`, or a line of text ("inline"). Where the arguments of
//! an array stand is noted on the way, so nobody has to take it apart once more.

use farside_kv::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use farside_value::integer;

/// The longest argument.
pub(crate) const BULK_BYTES_MAX: usize = VALUE_BYTES_MAX + KEY_BYTES_MAX;
/// The most arguments of a command.
pub(crate) const BULK_COUNT_MAX: usize = 1 << 20;
/// The longest command.
pub(crate) const COMMAND_BYTES_MAX: usize = 64 << 20;
/// The longest line: an inline command, or the head of an array or argument.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;
/// What a client may send before it has given the password.
const STRANGER_BULK_BYTES_MAX: usize = 16 << 10;
const STRANGER_BULK_COUNT_MAX: usize = 10;

/// The peer broke the protocol; the connection ends after this text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("ERR Protocol error: too big inline request")]
    InlineTooLong,
    #[error("ERR Protocol error: unbalanced quotes in request")]
    Quotes,
    #[error("ERR Protocol error: too big mbulk count string")]
    CountTooLong,
    #[error("ERR Protocol error: invalid multibulk length")]
    Count,
    #[error("ERR Protocol error: unauthenticated multibulk length")]
    StrangerCount,
    #[error("ERR Protocol error: expected '$', got '{}'", char::from(*got))]
    Dollar { got: u8 },
    #[error("ERR Protocol error: too big bulk count string")]
    LengthTooLong,
    #[error("ERR Protocol error: invalid bulk length")]
    Length,
    #[error("ERR Protocol error: unauthenticated bulk length")]
    StrangerLength,
    #[error("ERR Protocol error: an argument does not end where its length says")]
    Unended,
}

/// Where an argument starts and ends within its command.
pub(crate) type Place = (u32, u32);
/// Room for so many of them is kept while a client is silent.
pub(crate) const KEEP_PLACES_MAX: usize = 1 << 10;

/// What stands at the start of the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Framed {
    /// Not yet a whole command.
    Incomplete,
    /// So many bytes that ask for nothing.
    Nothing { bytes: usize },
    /// An array of strings; see [`Guard::places`].
    Array { bytes: usize },
    /// A line of `line` bytes; `bytes` with its end.
    Line { line: usize, bytes: usize },
}

/// Where the guard is within the command at the start of the input.
#[derive(Default, Debug)]
pub(crate) struct Guard {
    /// Everything before this has been looked at.
    at: usize,
    /// Nothing new is to be seen before the input is this long.
    wanted: usize,
    /// How many arguments are still to come; 0 before the head of the array was read.
    left: usize,
    /// The arguments before that.
    places: Vec<Place>,
}

impl Guard {
    /// What stands at the start of `input`. After [`Framed::Incomplete`] the same input is expected
    /// again, with more at its end; after anything else, what follows the bytes that were named.
    pub(crate) fn next(&mut self, input: &[u8], is_stranger: bool) -> Result<Framed, ProtocolError> {
        if input.is_empty() || input.len() < self.wanted {
            return Ok(Framed::Incomplete);
        }
        let framed = if self.left == 0 && input[0] != b'*' {
            self.line(input)
        } else {
            self.array(input, is_stranger)
        }?;
        if framed != Framed::Incomplete {
            self.pass();
        }
        Ok(framed)
    }

    /// What stood at the start of the input was taken, whatever had been seen of it.
    #[inline]
    pub(crate) fn pass(&mut self) {
        (self.at, self.wanted, self.left) = (0, 0, 0);
    }

    /// How long the input has to be before there is more to see of the command at its start; 0 if that is not known.
    pub(crate) fn wanted(&self) -> usize {
        self.wanted
    }

    /// Gives back what a command of many arguments needed. No command is under way.
    pub(crate) fn shrink(&mut self) {
        self.places.clear();
        self.places.shrink_to(KEEP_PLACES_MAX);
    }

    /// The arguments of the array that was found last.
    #[inline]
    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    fn line(&mut self, input: &[u8]) -> Result<Framed, ProtocolError> {
        let Some(end) = input[self.at..].iter().position(|&byte| byte == b'\n') else {
            if input.len() > LINE_BYTES_MAX {
                return Err(ProtocolError::InlineTooLong);
            }
            self.at = input.len();
            return Ok(Framed::Incomplete);
        };
        let line = self.at + end;
        if line > LINE_BYTES_MAX {
            return Err(ProtocolError::InlineTooLong);
        }
        let bytes = line + 1;
        let line = line - usize::from(input[..line].ends_with(b"\r"));
        Ok(Framed::Line { line, bytes })
    }

    fn array(&mut self, input: &[u8], is_stranger: bool) -> Result<Framed, ProtocolError> {
        if self.left == 0 {
            let Some((number, end)) = head(input, 0, ProtocolError::CountTooLong, ProtocolError::Count)? else {
                return Ok(Framed::Incomplete);
            };
            let Ok(count) = usize::try_from(number) else {
                return Ok(Framed::Nothing { bytes: end });
            };
            if count == 0 {
                return Ok(Framed::Nothing { bytes: end });
            }
            if count > BULK_COUNT_MAX {
                return Err(ProtocolError::Count);
            }
            if is_stranger && count > STRANGER_BULK_COUNT_MAX {
                return Err(ProtocolError::StrangerCount);
            }
            (self.at, self.left) = (end, count);
            self.places.clear();
        }
        while self.left > 0 {
            match input.get(self.at) {
                None => return Ok(Framed::Incomplete),
                Some(b'$') => {}
                Some(&got) => return Err(ProtocolError::Dollar { got }),
            }
            let head = head(input, self.at, ProtocolError::LengthTooLong, ProtocolError::Length)?;
            let Some((number, start)) = head else {
                return Ok(Framed::Incomplete);
            };
            let length = usize::try_from(number).map_err(|_| ProtocolError::Length)?;
            if is_stranger && length > STRANGER_BULK_BYTES_MAX {
                return Err(ProtocolError::StrangerLength);
            }
            if length > BULK_BYTES_MAX || start + length + 2 > COMMAND_BYTES_MAX {
                return Err(ProtocolError::Length);
            }
            let end = start + length + 2;
            if input.len() < end {
                self.wanted = end;
                return Ok(Framed::Incomplete);
            }
            if input[end - 2..end] != *b"\r\n" {
                return Err(ProtocolError::Unended);
            }
            self.places.push((start as u32, (end - 2) as u32));
            self.at = end;
            self.left -= 1;
        }
        Ok(Framed::Array { bytes: self.at })
    }
}

/// The same as [`head`] of a short number that is not negative, with its line's end; otherwise `None`.
#[inline]
fn short_head(input: &[u8], at: usize) -> Option<(i64, usize)> {
    const DIGITS_MAX: usize = 9;
    let line = input.get(at + 1..)?;
    let mut number = 0;
    for (digits, &byte) in line.iter().take(DIGITS_MAX + 1).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let is_number = digits == 1 || digits > 1 && line[0] != b'0';
            let ends = byte == b'\r' && line.get(digits + 1) == Some(&b'\n');
            return (is_number && ends).then_some((number, at + 1 + digits + 2));
        }
        number = number * 10 + i64::from(digit);
    }
    None
}

/// The number behind the kind byte at `at`, and where the next line starts; `None` if the line has no
/// end yet.
#[inline]
pub(crate) fn head(
    input: &[u8],
    at: usize,
    too_long: ProtocolError,
    wrong: ProtocolError,
) -> Result<Option<(i64, usize)>, ProtocolError> {
    match short_head(input, at) {
        Some(head) => Ok(Some(head)),
        None => any_head(input, at, too_long, wrong),
    }
}

#[cold]
fn any_head(
    input: &[u8],
    at: usize,
    too_long: ProtocolError,
    wrong: ProtocolError,
) -> Result<Option<(i64, usize)>, ProtocolError> {
    let rest = &input[at + 1..];
    let Some(digits) = rest.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\r') else {
        return if rest.len() >= LINE_BYTES_MAX {
            Err(too_long)
        } else {
            Ok(None)
        };
    };
    match rest.get(digits + 1) {
        None => Ok(None),
        Some(b'\n') => {
            let number = integer::parse(&rest[..digits]).ok_or(wrong)?;
            Ok(Some((number, at + 1 + digits + 2)))
        }
        Some(_) => Err(wrong),
    }
}

#[cfg(test)]
#[path = "guard/tests.rs"]
mod tests;
