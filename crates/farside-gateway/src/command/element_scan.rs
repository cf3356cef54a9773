//! What SSCAN, HSCAN and ZSCAN have in common: a cursor and options.

use farside_value::{Digits, Text, integer};

use super::{NOT_AN_INTEGER, Refusal, SYNTAX};
use crate::glob::{self, Case};
use crate::reply::Reply;
use crate::request::Request;

/// The cursor, which is argument 2.
pub(super) fn cursor(request: &Request<'_>) -> Result<u64, Refusal> {
    let cursor = str::from_utf8(request.arg(2)).ok().and_then(|text| text.parse().ok());
    cursor.ok_or_else(|| "ERR invalid cursor".into())
}

/// Which elements are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted<'a> {
    pattern: Option<&'a [u8]>,
}

impl<'a> Wanted<'a> {
    /// What the options say, from argument 3 on. How many elements are looked for decides nothing: see
    /// [`packed`](farside_value::packed).
    pub(super) fn parse(request: &Request<'a>) -> Result<Self, Refusal> {
        Self::parse_each(request, &mut || Err(SYNTAX.into()))
    }

    /// The same of HSCAN, and whether values are wanted beside fields.
    pub(super) fn parse_fields(request: &Request<'a>) -> Result<(Self, bool), Refusal> {
        let mut has_values = true;
        let wanted = Self::parse_each(request, &mut || {
            has_values = false;
            Ok(())
        })?;
        Ok((wanted, has_values))
    }

    fn parse_each(request: &Request<'a>, no_values: &mut dyn FnMut() -> Result<(), Refusal>) -> Result<Self, Refusal> {
        let mut pattern = None;
        let mut index = 3;
        while index < request.len() {
            let value = request.arg(index + 1);
            let has_value = index + 1 < request.len();
            if has_value && request.arg_is(index, "match") {
                pattern = Some(value);
            } else if has_value && request.arg_is(index, "count") {
                if integer::parse(value).ok_or(NOT_AN_INTEGER)? < 1 {
                    return Err(SYNTAX.into());
                }
            } else if request.arg_is(index, "novalues") {
                no_values()?;
                index += 1;
                continue;
            } else {
                return Err(SYNTAX.into());
            }
            index += 2;
        }
        Ok(Self { pattern })
    }

    /// Whether it is one.
    pub(super) fn has(&self, element: &Text<'_>) -> bool {
        let matches = |pattern| glob::matches(pattern, element.bytes(&mut Digits::new()), Case::Exact);
        self.pattern.is_none_or(matches)
    }
}

/// The head of a reply: the cursor with which to go on, and how many elements follow.
pub(super) fn head(reply: &mut Reply, cursor: u64, elements: usize) {
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(cursor).as_bytes());
    reply.array(elements);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Scratch;

    fn parsed<R>(line: &str, parse: impl FnOnce(&Request<'_>) -> Result<R, Refusal>) -> Result<R, String> {
        let mut scratch = Scratch::default();
        let request = Request::split(line.as_bytes(), &mut scratch).expect("quotes match");
        parse(&request).map_err(|refusal| match refusal {
            Refusal::Text(text) => text.into_owned(),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn options_combine() {
        let wants = |line: &str| {
            parsed(line, |request| {
                let (wanted, has_values) = Wanted::parse_fields(request)?;
                Ok((wanted.has(&Text::Bytes(b"field")), has_values))
            })
        };
        assert_eq!(wants("HSCAN k 0"), Ok((true, true)));
        assert_eq!(wants("HSCAN k 0 MATCH f* count 3"), Ok((true, true)));
        assert_eq!(wants("HSCAN k 0 NoValues MATCH F*"), Ok((false, false)));
        assert_eq!(wants("HSCAN k 0 MATCH novalues NOVALUES"), Ok((false, false)));
        let number = parsed("SSCAN k 0 MATCH 1?", |request| {
            Ok(Wanted::parse(request)?.has(&Text::Integer(12)))
        });
        assert_eq!(number, Ok(true));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (line, error) in [
            ("SSCAN k 0 MATCH", SYNTAX),
            ("SSCAN k 0 COUNT", SYNTAX),
            ("SSCAN k 0 COUNT 0", SYNTAX),
            ("SSCAN k 0 COUNT x", NOT_AN_INTEGER),
            ("SSCAN k 0 NOVALUES", SYNTAX),
            ("SSCAN k 0 TYPE set", SYNTAX),
        ] {
            let refused = parsed(line, |request| Wanted::parse(request).map(drop));
            assert_eq!(refused, Err(error.to_owned()), "{line}");
        }
        for line in ["SSCAN k x", "SSCAN k -1", "SSCAN k 18446744073709551616"] {
            assert_eq!(parsed(line, cursor), Err("ERR invalid cursor".to_owned()), "{line}");
        }
        assert_eq!(parsed("SSCAN k 18446744073709551615", cursor), Ok(u64::MAX));
    }
}
