//! What shows keys and people: hot keys, slow commands, clients and locks. Each is asked for by itself, so that a user who may see
//! one of them sees that one.

use redis_protocol::resp2::types::OwnedFrame;
use serde_json::{Map, Value, json};

use super::link::Link;
use super::reply::Refusal;

/// All of it, as JSON: lists, or where there is none the reason.
pub(super) async fn tell(link: &mut Link) -> Result<Value, Refusal> {
    let hot = link.ask(&[b"FARSIDE", b"HOTKEYS", b"32"]).await?;
    let slow = link.ask(&[b"SLOWLOG", b"GET", b"64"]).await?;
    let locks = link.ask(&[b"FARSIDE", b"LOCKS", b"500"]).await?;
    let clients = link.ask(&[b"CLIENT", b"LIST"]).await?;
    Ok(json!({
        "hot_keys": rows(hot, &["key", "share"]),
        "slow": rows(slow, &["id", "unix_s", "took_us", "arguments", "address", "name"]),
        "locks": rows(locks, &["name", "owner", "mode", "since_ms", "in_queue"]),
        "clients": match clients {
            OwnedFrame::BulkString(text) => clients_of(&String::from_utf8_lossy(&text)),
            other => refused(other),
        },
    }))
}

fn refused(reply: OwnedFrame) -> Value {
    let line = match reply {
        OwnedFrame::Error(line) => line,
        _ => "the gateway gave no list".to_owned(),
    };
    json!({ "refused": line })
}

/// A list of lists as a list of objects.
fn rows(reply: OwnedFrame, names: &[&str]) -> Value {
    let OwnedFrame::Array(rows) = reply else {
        return refused(reply);
    };
    let rows = rows.into_iter().filter_map(|row| match row {
        OwnedFrame::Array(cells) => {
            let cells = names
                .iter()
                .map(|&name| name.to_owned())
                .zip(cells.into_iter().map(cell));
            Some(Value::Object(cells.collect::<Map<_, _>>()))
        }
        _ => None,
    });
    rows.collect()
}

/// Text is for people here: what is no UTF-8 is replaced.
fn cell(reply: OwnedFrame) -> Value {
    match reply {
        OwnedFrame::Integer(number) => number.into(),
        OwnedFrame::BulkString(text) | OwnedFrame::SimpleString(text) => String::from_utf8_lossy(&text).into(),
        OwnedFrame::Array(cells) => cells.into_iter().map(cell).collect(),
        OwnedFrame::Error(_) | OwnedFrame::Null => Value::Null,
    }
}

/// CLIENT LIST, whose values have no spaces.
fn clients_of(text: &str) -> Value {
    let client = |line: &str| {
        let pairs = line.split(' ').filter_map(|pair| pair.split_once('='));
        let pairs = pairs.map(|(name, value)| (name.to_owned(), Value::from(value)));
        Value::Object(pairs.collect())
    };
    text.lines().filter(|line| !line.is_empty()).map(client).collect()
}
