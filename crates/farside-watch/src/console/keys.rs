//! The key browser: keys page by page, one value, and changes. Keys and values travel as hexadecimal digits, since they are any bytes.

use farside_fabric::host::HostClock;
use hyper::StatusCode;
use redis_protocol::resp2::types::OwnedFrame;
use serde::Deserialize;
use serde_json::{Value, json};

use super::link::Link;
use super::reply::Refusal;

/// So much of a value is shown; only what is shown as a whole can be edited.
pub(super) const VALUE_BYTES_SHOWN: usize = 256 << 10;
/// A page has as many keys, or some more.
const PAGE_KEYS: usize = 50;
/// A page also ends when it has taken so long: few keys may fit a pattern.
const PAGE_NS: u64 = 500_000_000;

const GONE: &str = "there is no such key any more";

/// What a change may say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    key: String,
    value: Option<String>,
    ttl_ms: Option<u64>,
}

impl Change {
    pub(super) const LIKE: &str =
        "{\"key\": \"6869\", \"value\": \"00ff\", \"ttl_ms\": 60000}, with hexadecimal digits";
}

pub(super) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|&[high, low]| Some((digit(high)? << 4 | digit(low)?) as u8));
    bytes.collect::<Option<_>>().filter(|_| rest.is_empty())
}

fn bytes_of(name: &str, text: &str) -> Result<Vec<u8>, Refusal> {
    from_hex(text).ok_or_else(|| Refusal::bad(format!("`{name}` should be pairs of hexadecimal digits, such as 6869")))
}

/// A value of a query such as `key=6869&cursor=0`.
pub(super) fn value_in<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|&(other, _)| other == name).map(|(_, value)| value).next()
}

/// A page of keys that fit a pattern.
pub(super) async fn list(link: &mut Link, query: &str) -> Result<Value, Refusal> {
    let pattern = bytes_of("match", value_in(query, "match").unwrap_or("2a"))?;
    let mut cursor = value_in(query, "cursor").unwrap_or("0").to_owned();
    if !cursor.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(Refusal::bad(
            "`cursor` should be a number that a page before has given, or 0",
        ));
    }
    let mut keys = Vec::new();
    let until_ns = HostClock.now_ns().saturating_add(PAGE_NS);
    loop {
        let page = link
            .list(&[b"SCAN", cursor.as_bytes(), b"MATCH", &pattern, b"COUNT", b"250"])
            .await?;
        let Ok([OwnedFrame::BulkString(next), OwnedFrame::Array(found)]) = <[_; 2]>::try_from(page) else {
            return Err(Refusal::new(
                StatusCode::BAD_GATEWAY,
                "the gateway gave no page of keys",
            ));
        };
        cursor = String::from_utf8_lossy(&next).into_owned();
        keys.extend(found.into_iter().filter_map(|key| match key {
            OwnedFrame::BulkString(key) => Some(to_hex(&key)),
            _ => None,
        }));
        if cursor == "0" || keys.len() >= PAGE_KEYS || HostClock.now_ns() >= until_ns {
            // A cursor as text: it may be larger than what a script counts with.
            return Ok(json!({ "keys": keys, "cursor": cursor }));
        }
    }
}

/// A key: how long it is, when it expires, and its first bytes.
pub(super) async fn show(link: &mut Link, query: &str) -> Result<Value, Refusal> {
    let key = bytes_of("key", value_in(query, "key").unwrap_or_default())?;
    let last = (VALUE_BYTES_SHOWN - 1).to_string();
    let value = link.bytes(&[b"GETRANGE", &key, b"0", last.as_bytes()]).await?;
    let bytes = link.number(&[b"STRLEN", &key]).await?;
    // Last: if it is there now, it was.
    let ttl_ms = link.number(&[b"PTTL", &key]).await?;
    if ttl_ms == -2 {
        return Err(Refusal::new(StatusCode::NOT_FOUND, GONE));
    }
    Ok(json!({
        "bytes": bytes,
        "ttl_ms": (ttl_ms >= 0).then_some(ttl_ms),
        "value": to_hex(&value),
        "is_whole": usize::try_from(bytes) == Ok(value.len()),
    }))
}

/// Carries out a change; the path says which.
pub(super) async fn change(link: &mut Link, path: &str, change: &Change) -> Result<Value, Refusal> {
    let key = bytes_of("key", &change.key)?;
    let value = change
        .value
        .as_deref()
        .map(|value| bytes_of("value", value))
        .transpose()?;
    let ttl = change.ttl_ms.map(|ttl_ms| ttl_ms.to_string());
    let missing = || {
        Refusal::bad(format!(
            "`value` is missing: the body should be JSON like {}",
            Change::LIKE
        ))
    };
    let is_done = match path {
        "/api/create" => {
            let value = value.ok_or_else(missing)?;
            let mut words: Vec<&[u8]> = vec![b"SET", &key, &value, b"NX"];
            if let Some(ttl) = &ttl {
                words.extend([b"PX", ttl.as_bytes()]);
            }
            if link.value(&words).await? == OwnedFrame::Null {
                return Err(Refusal::new(StatusCode::CONFLICT, "there is such a key already"));
            }
            true
        }
        "/api/replace" => {
            let value = value.ok_or_else(missing)?;
            link.value(&[b"SET", &key, &value, b"XX", b"KEEPTTL"]).await? != OwnedFrame::Null
        }
        "/api/expire" => match &ttl {
            Some(ttl) => link.number(&[b"PEXPIRE", &key, ttl.as_bytes()]).await? == 1,
            // It answers 0 as well where nothing would have expired.
            None => link.number(&[b"PERSIST", &key]).await? == 1 || link.number(&[b"EXISTS", &key]).await? == 1,
        },
        _ => link.number(&[b"DEL", &key]).await? == 1,
    };
    match is_done {
        true => Ok(json!({})),
        false => Err(Refusal::new(StatusCode::NOT_FOUND, GONE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_survive_as_digits(bytes: Vec<u8>) {
            prop_assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        }

        #[test]
        fn what_is_no_digit_is_refused(text in "\\PC{0,9}") {
            let is_hex = text.len() % 2 == 0 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            prop_assert_eq!(from_hex(&text).is_some(), is_hex);
        }
    }

    #[test]
    fn queries_are_read() {
        assert_eq!(value_in("key=6869&cursor=12", "cursor"), Some("12"));
        assert_eq!(value_in("key=&xkey=1", "key"), Some(""));
        assert_eq!(value_in("cursor", "cursor"), None);
    }
}
