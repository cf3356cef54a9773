//! Keys that are not named: SCAN, KEYS, RANDOMKEY.
//!
//! On the path: they walk the index, some slots at a time, and let others run in between. A cursor is
//! the number of a slot. No key ever leaves its slot, so the guarantees of Redis hold: a key that is
//! there from the beginning of a SCAN to its end is returned, and no key twice.
//!
//! An index in the order of keys is walked in that order, from key to key. A cursor stands for a key there, which this process
//! remembers. What a pattern begins with says where to begin and where to end.

use farside_kv::{Key, KeyTag, Session, Tag, prefix_end};
use farside_value::integer;
use tokio::task::yield_now;

use super::{Call, Handled, NOT_AN_INTEGER, Refusal, SYNTAX};
use crate::glob::{self, Case};
use crate::request::Request;

/// How many keys SCAN looks for if nobody says.
const COUNT: i64 = 10;
/// How many keys are read at a time where they are in order.
const KEYS_AT_ONCE: usize = 256;
/// How many pages SCAN reads for each key it looks for, as the pages may be empty.
const PAGES_PER_KEY: i64 = 10;

pub(crate) async fn scan(call: &mut Call<'_>) -> Handled {
    let options = options(call.request)?;
    let (cursor, wanted) = match first_key(call.keys.session()?, options.cursor)? {
        Some(first) => scan_in_order(call.keys.session()?, &options, first).await?,
        None => scan_slots(call.keys.session()?, &options).await?,
    };
    call.reply.array(2);
    call.reply.bulk(cursor.to_string().as_bytes());
    call.reply.array(wanted.len());
    wanted.iter().for_each(|key| call.reply.bulk(key));
    Ok(())
}

/// The key with which a scan goes on, if the keys of the index are in order.
fn first_key(session: &Session, cursor: u64) -> Result<Option<Vec<u8>>, Refusal> {
    if !session.store().index().kind().is_ordered() {
        return Ok(None);
    }
    Ok(session.key_at(cursor)?.map(Vec::from))
}

/// One call of SCAN where a cursor stands for a slot: the next cursor, and keys.
async fn scan_slots(session: &mut Session, options: &Options<'_>) -> Result<(u64, Vec<Vec<u8>>), Refusal> {
    let mut cursor = options.cursor;
    let mut pages_left = options.count.saturating_mul(PAGES_PER_KEY);
    let mut seen = 0;
    let mut wanted = Vec::new();
    loop {
        let (keys, next) = session.scan_tags(cursor).await?;
        seen += keys.len() as u64;
        wanted.extend(options.wanted(keys));
        cursor = next;
        pages_left -= 1;
        if cursor == 0 || pages_left == 0 || seen >= options.count.unsigned_abs() {
            break;
        }
        yield_now().await;
    }
    Ok((cursor, wanted))
}

/// One call of SCAN where it stands for a key, from the key `first` on.
async fn scan_in_order(
    session: &mut Session,
    options: &Options<'_>,
    first: Vec<u8>,
) -> Result<(u64, Vec<Vec<u8>>), Refusal> {
    let prefix = options.pattern.map(glob::prefix).unwrap_or_default();
    let end = prefix_end(&prefix);
    let mut next = Some(first.max(prefix));
    let mut left = usize::try_from(options.count).unwrap_or(usize::MAX);
    let mut wanted = Vec::new();
    // Ends: each round looks at some of as many items as were asked for.
    while left > 0
        && let Some(first) = next.take()
    {
        let count = left.min(KEYS_AT_ONCE);
        let (keys, behind) = session.range_tags(&first, end.as_deref(), count).await?;
        wanted.extend(options.wanted(keys));
        left -= count;
        next = behind;
        yield_now().await;
    }
    Ok((next.map_or(0, |key| session.cursor_at(&key)), wanted))
}

/// What SCAN is to do.
#[derive(PartialEq, Eq, Debug)]
struct Options<'a> {
    cursor: u64,
    pattern: Option<&'a [u8]>,
    count: i64,
    /// As TYPE shows it, in any case.
    type_name: Option<&'a [u8]>,
}

impl Options<'_> {
    fn wants(&self, key: &[u8], tag: Tag) -> bool {
        let matches = |pattern| glob::matches(pattern, key, Case::Exact);
        let is_of_type = |name: &[u8]| tag.name().as_bytes().eq_ignore_ascii_case(name);
        self.type_name.is_none_or(is_of_type) && self.pattern.is_none_or(matches)
    }

    /// Those of these keys that were asked for.
    fn wanted(&self, keys: Vec<KeyTag>) -> impl Iterator<Item = Key> {
        let keys = keys.into_iter();
        keys.filter_map(|(key, tag)| self.wants(&key, tag).then_some(key))
    }
}

fn options<'a>(request: &Request<'a>) -> Result<Options<'a>, Refusal> {
    let cursor = str::from_utf8(request.arg(1)).ok().and_then(|text| text.parse().ok());
    let mut options = Options {
        cursor: cursor.ok_or("ERR invalid cursor")?,
        pattern: None,
        count: COUNT,
        type_name: None,
    };
    for index in (2..request.len()).step_by(2) {
        let value = request.arg(index + 1);
        if index + 1 == request.len() {
            return Err(SYNTAX.into());
        } else if request.arg_is(index, "match") {
            options.pattern = Some(value);
        } else if request.arg_is(index, "count") {
            options.count = integer::parse(value).ok_or(NOT_AN_INTEGER)?;
            if options.count < 1 {
                return Err(SYNTAX.into());
            }
        } else if request.arg_is(index, "type") {
            options.type_name = Some(value);
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(options)
}

pub(crate) async fn keys(call: &mut Call<'_>) -> Handled {
    let options = Options {
        cursor: 0,
        pattern: Some(call.request.arg(1)),
        count: i64::MAX,
        type_name: None,
    };
    let (_, wanted) = match first_key(call.keys.session()?, 0)? {
        Some(first) => scan_in_order(call.keys.session()?, &options, first).await?,
        None => scan_slots(call.keys.session()?, &options).await?,
    };
    call.reply.array(wanted.len());
    wanted.iter().for_each(|key| call.reply.bulk(key));
    Ok(())
}

/// One of the keys of the first page that has any, from a random slot on.
pub(crate) async fn randomkey(call: &mut Call<'_>) -> Handled {
    let is_ordered = call.context.store.index().kind().is_ordered();
    let first = call.keys.session()?.random_cursor();
    let mut cursor = first;
    let mut ends = 0;
    loop {
        let (keys, next) = call.keys.session()?.random_keys(cursor).await?;
        let choice = call.context.store.endpoint().random_below(keys.len() as u64);
        if let Some(key) = keys.get(choice as usize) {
            call.reply.bulk(key);
            return Ok(());
        }
        cursor = next;
        ends += u32::from(cursor == 0);
        // All round: back at the slot where it began, or past it on the last page. Of cursors that are no slots nobody can say
        // which is past which.
        if ends == 2 || ends == 1 && cursor >= first && !is_ordered {
            call.reply.null();
            return Ok(());
        }
        yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Scratch;

    fn with_options<R>(line: &str, look: impl FnOnce(Options<'_>) -> R) -> Result<R, String> {
        let mut scratch = Scratch::default();
        let request = Request::split(line.as_bytes(), &mut scratch).expect("no quotes");
        options(&request).map(look).map_err(|refusal| match refusal {
            Refusal::Text(text) => text.into_owned(),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn options_combine() {
        let wants = |options: &Options<'_>| options.wants(b"key1", Tag::String);
        let wanted = |line: &str| with_options(line, |options| (options.cursor, options.count, wants(&options)));
        assert_eq!(wanted("SCAN 0"), Ok((0, 10, true)));
        assert_eq!(wanted("SCAN 18446744073709551615 count 3"), Ok((u64::MAX, 3, true)));
        assert_eq!(wanted("SCAN 0 MATCH k* TYPE String"), Ok((0, 10, true)));
        assert_eq!(wanted("SCAN 0 MATCH K*"), Ok((0, 10, false)));
        assert_eq!(wanted("SCAN 0 MATCH k* MATCH x"), Ok((0, 10, false)));
        assert_eq!(wanted("SCAN 0 TYPE hash"), Ok((0, 10, false)));
        let wants_hashes = |line| with_options(line, |options| options.wants(b"key1", Tag::Hash));
        assert_eq!(wants_hashes("SCAN 0 TYPE HASH"), Ok(true));
        assert_eq!(wants_hashes("SCAN 0"), Ok(true));
        assert_eq!(wants_hashes("SCAN 0 TYPE zset"), Ok(false));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (line, error) in [
            ("SCAN x", "ERR invalid cursor"),
            ("SCAN 18446744073709551616", "ERR invalid cursor"),
            ("SCAN x what", "ERR invalid cursor"),
            ("SCAN 0 what", SYNTAX),
            ("SCAN 0 what 1", SYNTAX),
            ("SCAN 0 MATCH", SYNTAX),
            ("SCAN 0 COUNT 0", SYNTAX),
            ("SCAN 0 COUNT -1", SYNTAX),
            ("SCAN 0 COUNT x", NOT_AN_INTEGER),
        ] {
            assert_eq!(with_options(line, |_| ()), Err(error.to_owned()), "{line}");
        }
    }
}
