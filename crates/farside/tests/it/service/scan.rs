//! SCAN, KEYS and RANDOMKEY: all keys, some, one.

use std::collections::BTreeSet;

use super::client::Client;
use super::commands::{NOT_AN_INTEGER, check};
use super::process::Server;

/// The strings of a reply; keys here have no line ends in them.
pub(crate) fn strings(reply: &str) -> Vec<String> {
    let lines = reply.split("\r\n").filter(|line| !line.is_empty());
    let strings = lines.filter(|line| !line.starts_with(['*', '$']));
    strings.map(str::to_owned).collect()
}

/// One call: the next cursor, and keys.
pub(crate) fn scan(client: &mut Client, cursor: &str, options: &str) -> (String, Vec<String>) {
    let reply = client.ask(&format!("SCAN {cursor}{options}"));
    assert!(reply.starts_with("*2\r\n$"), "{reply}");
    let mut strings = strings(&reply);
    let keys = strings.split_off(1);
    assert!(reply.contains(&format!("\r\n*{}\r\n", keys.len())), "{reply}");
    (strings.remove(0), keys)
}

/// All calls.
fn scan_all(client: &mut Client, options: &str) -> Vec<String> {
    let (mut cursor, mut all) = ("0".to_owned(), Vec::new());
    loop {
        let (next, keys) = scan(client, &cursor, options);
        all.extend(keys);
        if next == "0" {
            return all;
        }
        cursor = next;
    }
}

fn names(numbers: impl Iterator<Item = u32>) -> BTreeSet<String> {
    numbers.map(|number| format!("key{number}")).collect()
}

fn store(client: &mut Client, names: &BTreeSet<String>) {
    for name in names {
        assert_eq!(client.ask(&format!("SET {name} {name}")), "+OK\r\n");
    }
}

#[test]
fn scan_sees_each_of_many_keys_once() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    let names = names(0..5000);
    store(&mut client, &names);
    for options in ["", " COUNT 1", " COUNT 1000", " MATCH key* COUNT 9223372036854775807"] {
        let seen = scan_all(&mut client, options);
        assert_eq!(seen.len(), 5000, "no key twice:{options}");
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), names, "{options}");
    }
    let seen = strings(&client.ask("KEYS *"));
    assert_eq!(seen.len(), 5000);
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), names);
}

#[test]
fn scan_sees_what_stays_while_other_keys_come_and_go() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let (mut client, mut other) = (server.client(), server.client());
    let stay = names(0..1000);
    store(&mut client, &stay);
    let (mut cursor, mut seen, mut round) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let (next, keys) = scan(&mut client, &cursor, " COUNT 10");
        seen.extend(keys);
        if next == "0" {
            break;
        }
        cursor = next;
        other.ask(&format!("SET other{round} x"));
        other.ask(&format!("DEL other{}", round / 2));
        // A new value is no other key.
        other.ask(&format!("APPEND key{} x", round % 1000));
        round += 1;
    }
    assert!(round > 10, "the scan has many steps");
    let once: BTreeSet<String> = seen.iter().cloned().collect();
    assert_eq!(once.len(), seen.len(), "no key twice");
    assert!(once.is_superset(&stay));
}

#[test]
fn keys_are_chosen_by_pattern_and_type() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    let hello = ["hello", "hallo", "hxllo", "hllo", "heello", "h*llo"];
    store(&mut client, &hello.map(str::to_owned).into());
    client.ask("SET gone x PXAT 1");
    for (pattern, expected) in [
        ("h?llo", vec!["h*llo", "hallo", "hello", "hxllo"]),
        ("h*llo", vec!["h*llo", "hallo", "heello", "hello", "hllo", "hxllo"]),
        ("h[ae]llo", vec!["hallo", "hello"]),
        ("h[^e]llo", vec!["h*llo", "hallo", "hxllo"]),
        ("h[a-b]llo", vec!["hallo"]),
        ("h\\*llo", vec!["h*llo"]),
        ("HELLO", vec![]),
        ("gone", vec![]),
    ] {
        for mut found in [
            strings(&client.ask(&format!("KEYS {pattern}"))),
            scan_all(&mut client, &format!(" MATCH {pattern} TYPE string")),
        ] {
            found.sort();
            assert_eq!(found, expected, "{pattern}");
        }
    }
    assert!(scan_all(&mut client, " TYPE hash").is_empty());
    check(
        &mut client,
        &[
            ("SCAN x", "-ERR invalid cursor\r\n"),
            ("SCAN 0 COUNT 0", "-ERR syntax error\r\n"),
            ("SCAN 0 COUNT x", NOT_AN_INTEGER),
            ("SCAN 0 WHAT 1", "-ERR syntax error\r\n"),
            ("SCAN 0 MATCH", "-ERR syntax error\r\n"),
            // Past the end there is nothing.
            ("SCAN 18446744073709551615", "*2\r\n$1\r\n0\r\n*0\r\n"),
        ],
    );
}

#[test]
fn a_random_key_is_any_key() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    assert_eq!(client.ask("RANDOMKEY"), "$-1\r\n");
    client.ask("SET gone x PXAT 1");
    assert_eq!(client.ask("RANDOMKEY"), "$-1\r\n");
    let names = names(0..4);
    store(&mut client, &names);
    let mut seen = BTreeSet::new();
    // Four keys are spread over so many slots that none is left out for long.
    while seen.len() < names.len() {
        seen.extend(strings(&client.ask("RANDOMKEY")));
        assert!(seen.is_subset(&names), "{seen:?}");
    }
}
