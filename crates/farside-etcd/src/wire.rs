//! Requests to etcd's JSON gateway and its answers: base64 for keys and values, strings for 64-bit numbers, and fields that are zero left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
    /// At which revision of etcd's data it was written last.
    pub(crate) revision: u64,
}

/// What keys there are, and at which revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) entries: Vec<Entry>,
    pub(crate) revision: u64,
}

/// What became of a transaction that writes a key if it is as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Swap {
    /// It is written, at this revision.
    Done(u64),
    /// It was not as it was: this is there; `None` if there is no such key.
    Lost(Option<Entry>),
}

/// One message of a watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Put(Entry),
    Delete(String),
}

pub(crate) fn encode(text: impl AsRef<[u8]>) -> String {
    STANDARD.encode(text)
}

/// One key.
pub(crate) fn range(key: &str) -> Value {
    json!({ "key": encode(key) })
}

/// All keys that begin like this.
pub(crate) fn prefix(prefix: &str) -> Value {
    json!({ "key": encode(prefix), "range_end": encode(after(prefix)) })
}

/// The first key behind all that begin like this.
fn after(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // Prefixes are ASCII and end with a slash.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// Writes the key if it was written last at this revision; 0: if it is not there.
pub(crate) fn swap(key: &str, revision: u64, value: &[u8]) -> Value {
    let key = encode(key);
    json!({
        "compare": [{ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string() }],
        "success": [{ "request_put": { "key": key, "value": encode(value) } }],
        "failure": [{ "request_range": { "key": key } }],
    })
}

/// Writes a key that goes with its lease.
pub(crate) fn put(key: &str, value: &[u8], lease: u64) -> Value {
    json!({ "key": encode(key), "value": encode(value), "lease": lease.to_string() })
}

pub(crate) fn grant(ttl_s: u64) -> Value {
    json!({ "TTL": ttl_s.to_string() })
}

pub(crate) fn keep_alive(lease: u64) -> Value {
    json!({ "ID": lease.to_string() })
}

/// Everything that happens to a key from this revision on.
pub(crate) fn watch(key: &str, revision: u64) -> Value {
    json!({ "create_request": { "key": encode(key), "start_revision": revision.to_string() } })
}

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    revision: Number,
}

/// etcd writes 64-bit numbers as strings.
#[derive(Deserialize, Default)]
#[serde(untagged)]
enum Number {
    Text(String),
    Plain(u64),
    #[default]
    Absent,
}

impl Number {
    fn get(&self) -> Result<u64, String> {
        match self {
            Self::Text(text) => text.parse().map_err(|_| format!("`{text}` is no number")),
            Self::Plain(number) => Ok(*number),
            Self::Absent => Ok(0),
        }
    }
}

#[derive(Deserialize)]
struct RawEntry {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    mod_revision: Number,
}

impl RawEntry {
    fn read(&self) -> Result<Entry, String> {
        let bytes = |text: &str| STANDARD.decode(text).map_err(|_| format!("`{text}` is no base64"));
        Ok(Entry {
            key: String::from_utf8(bytes(&self.key)?).map_err(|_| "a key that is no text".to_owned())?,
            value: bytes(&self.value)?,
            revision: self.mod_revision.get()?,
        })
    }
}

#[derive(Deserialize)]
struct RawRange {
    #[serde(default)]
    kvs: Vec<RawEntry>,
}

impl RawRange {
    fn read(&self) -> Result<Vec<Entry>, String> {
        self.kvs.iter().map(RawEntry::read).collect()
    }
}

fn parse<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// The answer to [`range`] and [`prefix`].
pub(crate) fn read_range(body: &[u8]) -> Result<Range, String> {
    #[derive(Deserialize)]
    struct Answer {
        header: Header,
        #[serde(flatten)]
        range: RawRange,
    }
    let answer: Answer = parse(body)?;
    Ok(Range {
        entries: answer.range.read()?,
        revision: answer.header.revision.get()?,
    })
}

/// The answer to [`swap`].
pub(crate) fn read_swap(body: &[u8]) -> Result<Swap, String> {
    #[derive(Deserialize)]
    struct Answer {
        header: Header,
        #[serde(default)]
        succeeded: bool,
        #[serde(default)]
        responses: Vec<Response>,
    }
    #[derive(Deserialize)]
    struct Response {
        response_range: Option<RawRange>,
    }
    let answer: Answer = parse(body)?;
    if answer.succeeded {
        return Ok(Swap::Done(answer.header.revision.get()?));
    }
    let range = answer
        .responses
        .into_iter()
        .find_map(|response| response.response_range);
    let range = range.ok_or("a transaction without an answer")?;
    Ok(Swap::Lost(range.read()?.pop()))
}

/// The lease of an answer to [`grant`].
pub(crate) fn read_grant(body: &[u8]) -> Result<u64, String> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(rename = "ID")]
        id: Number,
    }
    parse::<Answer>(body)?.id.get()
}

/// Whether the lease of a [`keep_alive`] lives on.
pub(crate) fn read_keep_alive(body: &[u8]) -> Result<bool, String> {
    #[derive(Deserialize)]
    struct Answer {
        result: Kept,
    }
    #[derive(Deserialize)]
    struct Kept {
        #[serde(rename = "TTL", default)]
        ttl: Number,
    }
    Ok(parse::<Answer>(body)?.result.ttl.get()? > 0)
}

/// A line of a [`watch`].
pub(crate) fn read_watch(line: &[u8]) -> Result<Vec<Change>, String> {
    #[derive(Deserialize)]
    struct Answer {
        result: Option<Watched>,
        error: Option<Value>,
    }
    #[derive(Deserialize)]
    struct Watched {
        #[serde(default)]
        canceled: bool,
        #[serde(default)]
        events: Vec<Event>,
    }
    #[derive(Deserialize)]
    struct Event {
        #[serde(rename = "type", default)]
        kind: String,
        kv: RawEntry,
    }
    let answer: Answer = parse(line)?;
    let Some(watched) = answer.result else {
        let error = answer.error.unwrap_or_default();
        return Err(format!("it ended the watch: {error}"));
    };
    if watched.canceled {
        return Err("it ended the watch".to_owned());
    }
    let change = |event: &Event| {
        let entry = event.kv.read()?;
        Ok(match event.kind.as_str() {
            "DELETE" => Change::Delete(entry.key),
            _ => Change::Put(entry),
        })
    };
    watched.events.iter().map(change).collect()
}

/// Why a request failed, in the words of etcd.
pub(crate) fn read_error(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Answer {
        message: Option<String>,
        error: Option<String>,
    }
    // Trailers of the gateway may stand behind the object.
    let mut objects = serde_json::Deserializer::from_slice(body).into_iter::<Answer>();
    let message = match objects.next() {
        Some(Ok(answer)) => answer.message.or(answer.error),
        _ => None,
    };
    message.unwrap_or_else(|| String::from_utf8_lossy(body).trim().chars().take(100).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_with_what_etcd_leaves_out() {
        let none = br#"{"header":{"cluster_id":"3","member_id":"4","revision":"7","raft_term":"2"}}"#;
        let range = read_range(none).expect("as etcd 3.4 says it");
        assert_eq!((range.entries.len(), range.revision), (0, 7));
        let one = br#"{"header":{"revision":"9"},"kvs":[{"key":"YWJj","create_revision":"2","mod_revision":"8","version":"1","value":"eA=="}],"count":"1"}"#;
        let entry = Entry {
            key: "abc".to_owned(),
            value: b"x".to_vec(),
            revision: 8,
        };
        assert_eq!(read_range(one).expect("one key").entries, [entry]);
        for bad in [
            &b"{}"[..],
            br#"{"header":{"revision":"x"}}"#,
            br#"{"header":{},"kvs":[{"key":"?"}]}"#,
            b"<html>",
        ] {
            read_range(bad).expect_err("no answer of etcd's");
        }
    }

    #[test]
    fn a_swap_that_is_lost_brings_what_is_there() {
        let done = br#"{"header":{"revision":"2"},"succeeded":true,"responses":[{"response_put":{"header":{"revision":"2"}}}]}"#;
        assert_eq!(read_swap(done), Ok(Swap::Done(2)));
        let lost = br#"{"header":{"revision":"5"},"responses":[{"response_range":{"header":{"revision":"5"},"kvs":[{"key":"YQ==","mod_revision":"4","value":"Yg=="}],"count":"1"}}]}"#;
        let there = Entry {
            key: "a".to_owned(),
            value: b"b".to_vec(),
            revision: 4,
        };
        assert_eq!(read_swap(lost), Ok(Swap::Lost(Some(there))));
        let gone = br#"{"header":{"revision":"5"},"responses":[{"response_range":{"header":{"revision":"5"}}}]}"#;
        assert_eq!(read_swap(gone), Ok(Swap::Lost(None)));
        read_swap(br#"{"header":{"revision":"5"}}"#).expect_err("nothing was answered");
    }

    #[test]
    fn leases_end_when_no_time_is_left() {
        assert_eq!(
            read_grant(br#"{"header":{},"ID":"2324035725202825224","TTL":"5"}"#),
            Ok(2_324_035_725_202_825_224)
        );
        assert_eq!(
            read_keep_alive(br#"{"result":{"header":{},"ID":"12","TTL":"5"}}"#),
            Ok(true)
        );
        assert_eq!(read_keep_alive(br#"{"result":{"header":{},"ID":"12"}}"#), Ok(false));
        read_keep_alive(br#"{"error":{"message":"no leader"}}"#).expect_err("no result");
    }

    #[test]
    fn a_watch_brings_what_is_written_and_deleted_and_says_when_it_ends() {
        assert_eq!(read_watch(br#"{"result":{"header":{},"created":true}}"#), Ok(vec![]));
        let events = br#"{"result":{"header":{},"events":[{"kv":{"key":"YQ==","mod_revision":"3","value":"Yg=="}},{"type":"DELETE","kv":{"key":"YQ==","mod_revision":"4"}}]}}"#;
        let written = Entry {
            key: "a".to_owned(),
            value: b"b".to_vec(),
            revision: 3,
        };
        assert_eq!(
            read_watch(events),
            Ok(vec![Change::Put(written), Change::Delete("a".to_owned())])
        );
        read_watch(br#"{"result":{"header":{},"canceled":true,"compact_revision":"9"}}"#).expect_err("it is over");
        read_watch(br#"{"error":{"grpc_code":14,"message":"etcdserver: no leader"}}"#).expect_err("it is over");
    }

    #[test]
    fn errors_are_given_in_words() {
        let not_found = br#"{"error":"etcdserver: requested lease not found","message":"etcdserver: requested lease not found","code":5}Grpc-Trailer-Content-Type: application/grpc"#;
        assert_eq!(read_error(not_found), "etcdserver: requested lease not found");
        assert_eq!(read_error(b"Not Found\n"), "Not Found");
        assert_eq!(read_error(b""), "");
    }

    #[test]
    fn a_prefix_ends_before_what_follows_the_slash() {
        assert_eq!(after("/a/"), b"/a0");
    }
}
