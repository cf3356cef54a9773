//! FARSIDE: what this gateway has to say about itself, beyond INFO; and keys in order, for which Redis has no command.
//!
//! On the path: nowhere but RANGE, which reads the index from key to key and lets others run in between.

use farside_fabric::host::HostClock;
use farside_value::integer;
use tokio::task::yield_now;

use super::{Call, Handled, NOT_AN_INTEGER, Refusal, SYNTAX, wrong_arity};
use crate::hotkeys::hottest;
use crate::observer;
use crate::report::Report;
use crate::request::Request;

/// How many hot keys there are if nobody says.
const HOT_KEYS: usize = 10;
/// How many keys RANGE reads at a time.
const KEYS_AT_ONCE: usize = 256;
/// The error line for an end of a range that is none.
const NOT_AN_END: &str =
    "ERR an end of a range is [key (with it), (key (without it), - (the first key) or + (the last)";
/// What FARSIDE HELP says.
const HELP: [&str; 13] = [
    "FARSIDE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "HOTKEYS [<count>]",
    "    The keys that are used most, each with its part of all uses (0 to 1).",
    "LOCKS [<count>]",
    "    Named locks that are held: name, owner, mode, since when (ms, Unix time), clients in the queue.",
    "RANGE <from> <to> [LIMIT <count>] [VALUES]",
    "    The keys between two ends, in order, with VALUES pairs of key and value. An end is",
    "    [key (with it), (key (without it), - (the first key) or + (the last). Needs an index",
    "    in the order of keys: serve --index chime.",
    "STATS",
    "    Everything this gateway counts, as one JSON object.",
    "HELP",
    "    Print this help.",
];

pub(crate) async fn farside(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    if request.arg_is(1, "stats") {
        observer::look(call.context).await;
        let report = Report::take(&call.context.shared, HostClock.now_ns());
        let text = serde_json::to_string(&report).map_err(|error| format!("ERR no report: {error}"))?;
        call.reply.bulk(text.as_bytes());
    } else if request.arg_is(1, "hotkeys") {
        let most = match request.len() {
            2 => HOT_KEYS,
            4.. => return Err(wrong_arity("farside|hotkeys").into()),
            _ => {
                let most = integer::parse(request.arg(2)).ok_or(NOT_AN_INTEGER)?;
                usize::try_from(most).map_err(|_| "ERR count must not be negative")?
            }
        };
        let workers = call.context.shared.statistics.iter();
        let hot = hottest(workers.map(|worker| &worker.hot_keys), most);
        call.reply.array(hot.len());
        for hot in hot {
            call.reply.array(2);
            call.reply.bulk(hot.key.as_bytes());
            call.reply.bulk(format!("{:.4}", hot.share).as_bytes());
        }
    } else if request.arg_is(1, "locks") {
        if request.len() > 3 {
            return Err(wrong_arity("farside|locks").into());
        }
        super::held_locks::held_locks(call).await?;
    } else if request.arg_is(1, "range") {
        range(call, Wanted::parse(request)?).await?;
    } else {
        call.reply.array(HELP.len());
        HELP.iter().for_each(|line| call.reply.simple(line));
    }
    Ok(())
}

/// What RANGE is to do.
#[derive(PartialEq, Eq, Debug)]
struct Wanted {
    /// The first key; `None` if there can be none.
    from: Option<Vec<u8>>,
    to: To,
    limit: usize,
    has_values: bool,
}

/// Where a range ends.
#[derive(PartialEq, Eq, Debug)]
enum To {
    Last,
    Before(Vec<u8>),
}

impl Wanted {
    fn parse(request: &Request<'_>) -> Result<Self, Refusal> {
        let from = match request.arg(2) {
            b"-" => Some(Vec::new()),
            b"+" => None,
            [b'[', key @ ..] => Some(key.to_vec()),
            [b'(', key @ ..] => Some(behind(key)),
            _ => return Err(NOT_AN_END.into()),
        };
        let to = match request.arg(3) {
            b"-" => To::Before(Vec::new()),
            b"+" => To::Last,
            [b'[', key @ ..] => To::Before(behind(key)),
            [b'(', key @ ..] => To::Before(key.to_vec()),
            _ => return Err(NOT_AN_END.into()),
        };
        let (mut limit, mut has_values) = (usize::MAX, false);
        let mut index = 4;
        while index < request.len() {
            if request.arg_is(index, "values") {
                has_values = true;
                index += 1;
            } else if request.arg_is(index, "limit") && index + 1 < request.len() {
                let count = integer::parse(request.arg(index + 1)).ok_or(NOT_AN_INTEGER)?;
                limit = usize::try_from(count).map_err(|_| "ERR count must not be negative")?;
                index += 2;
            } else {
                return Err(SYNTAX.into());
            }
        }
        Ok(Self {
            from,
            to,
            limit,
            has_values,
        })
    }
}

/// The first key behind this one.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

async fn range(call: &mut Call<'_>, wanted: Wanted) -> Handled {
    let to = match &wanted.to {
        To::Last => None,
        To::Before(key) => Some(key.as_slice()),
    };
    // Also asked for nothing: whether there is an order.
    let (mut next, mut left) = match wanted.from {
        Some(from) => (from, wanted.limit),
        None => (Vec::new(), 0),
    };
    let (mut items, mut keys) = (Vec::new(), Vec::new());
    loop {
        let count = left.min(KEYS_AT_ONCE);
        let (found, behind) = if wanted.has_values {
            let (mut page, behind) = call.keys.session()?.range(&next, to, count).await?;
            let found = page.len();
            items.append(&mut page);
            (found, behind)
        } else {
            let (mut page, behind) = call.keys.session()?.range_keys(&next, to, count).await?;
            let found = page.len();
            keys.append(&mut page);
            (found, behind)
        };
        left -= found;
        match behind {
            Some(key) if left > 0 => next = key,
            _ => break,
        }
        yield_now().await;
    }
    call.reply.array(keys.len() + items.len());
    keys.iter().for_each(|key| call.reply.bulk(key));
    for (key, value) in &items {
        call.reply.array(2);
        call.reply.bulk(key);
        call.reply.bulk(value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Scratch;

    fn parse(line: &str) -> Result<Wanted, String> {
        let mut scratch = Scratch::default();
        let request = Request::split(line.as_bytes(), &mut scratch).expect("no quotes");
        Wanted::parse(&request).map_err(|refusal| match refusal {
            Refusal::Text(text) => text.into_owned(),
            other => format!("{other:?}"),
        })
    }

    fn wanted(from: &[u8], to: To) -> Wanted {
        Wanted {
            from: Some(from.to_vec()),
            to,
            limit: usize::MAX,
            has_values: false,
        }
    }

    #[test]
    fn ends_are_those_of_redis() {
        let before = |key: &[u8]| To::Before(key.to_vec());
        for (line, expected) in [
            ("FARSIDE RANGE - +", wanted(b"", To::Last)),
            ("FARSIDE RANGE [a [b", wanted(b"a", before(b"b\0"))),
            ("FARSIDE RANGE (a (b", wanted(b"a\0", before(b"b"))),
            ("FARSIDE RANGE [ (", wanted(b"", before(b""))),
            ("FARSIDE RANGE [[ [+", wanted(b"[", before(b"+\0"))),
            ("FARSIDE RANGE - -", wanted(b"", before(b""))),
        ] {
            assert_eq!(parse(line), Ok(expected), "{line}");
        }
        assert_eq!(parse("FARSIDE RANGE + -").map(|wanted| wanted.from), Ok(None));
        let wanted = parse("FARSIDE RANGE - + values limit 3").expect("it is right");
        assert_eq!((wanted.limit, wanted.has_values), (3, true));
    }

    #[test]
    fn nonsense_is_refused() {
        for (line, error) in [
            ("FARSIDE RANGE a +", NOT_AN_END),
            ("FARSIDE RANGE - b", NOT_AN_END),
            ("FARSIDE RANGE -- +", NOT_AN_END),
            ("FARSIDE RANGE - + LIMIT", SYNTAX),
            ("FARSIDE RANGE - + 3", SYNTAX),
            ("FARSIDE RANGE - + LIMIT VALUES", NOT_AN_INTEGER),
            ("FARSIDE RANGE - + LIMIT -1", "ERR count must not be negative"),
        ] {
            assert_eq!(parse(line), Err(error.to_owned()), "{line}");
        }
    }
}
