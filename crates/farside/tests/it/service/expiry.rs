//! When keys expire: the commands that say so and that ask. Times are far off or long past.

use super::commands::{NOT_AN_INTEGER, check};
use super::process::Server;

/// Some day in the year 5138, in seconds.
const FAR: &str = "100000000000";

#[test]
fn expiry_is_set_and_taken_away() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("EXPIRE a 100", ":0\r\n"),
            ("PERSIST a", ":0\r\n"),
            ("EXPIRETIME a", ":-2\r\n"),
            ("PEXPIRETIME a", ":-2\r\n"),
            ("SET a 1", "+OK\r\n"),
            ("EXPIRETIME a", ":-1\r\n"),
            ("PEXPIRETIME a", ":-1\r\n"),
            ("PERSIST a", ":0\r\n"),
            ("EXPIRE a 1000", ":1\r\n"),
            ("TTL a", ":1000\r\n"),
            ("PEXPIRE a 2000000", ":1\r\n"),
            ("TTL a", ":2000\r\n"),
            (&format!("EXPIREAT a {FAR}"), ":1\r\n"),
            ("EXPIRETIME a", &format!(":{FAR}\r\n")),
            ("PEXPIRETIME a", &format!(":{FAR}000\r\n")),
            (&format!("PEXPIREAT a {FAR}499"), ":1\r\n"),
            ("EXPIRETIME a", &format!(":{FAR}\r\n")),
            ("PEXPIRETIME a", &format!(":{FAR}499\r\n")),
            ("GET a", "$1\r\n1\r\n"),
            ("INCR a", ":2\r\n"),
            ("SETRANGE a 1 x", ":2\r\n"),
            ("PEXPIRETIME a", &format!(":{FAR}499\r\n")),
            ("PERSIST a", ":1\r\n"),
            ("TTL a", ":-1\r\n"),
            ("GET a", "$2\r\n2x\r\n"),
        ],
    );
}

#[test]
fn the_past_deletes() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    for line in [
        "EXPIREAT a 1",
        "PEXPIREAT a 1",
        "EXPIREAT a 0",
        "EXPIREAT a -5",
        "EXPIRE a 0",
        "EXPIRE a -1",
        "PEXPIRE a -9223372036854775808",
        "EXPIREAT a 1 LT",
    ] {
        assert_eq!(client.ask("SET a 1"), "+OK\r\n");
        assert_eq!(client.ask(line), ":1\r\n", "{line}");
        // Gone, not only unseen.
        check(
            &mut client,
            &[("TTL a", ":-2\r\n"), ("GET a", "$-1\r\n"), ("DBSIZE", ":0\r\n")],
        );
        assert_eq!(client.ask(line), ":0\r\n", "{line}");
    }
}

#[test]
fn expiry_is_set_under_conditions() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("SET a 1", "+OK\r\n"),
            (&format!("EXPIREAT a {FAR} XX"), ":0\r\n"),
            (&format!("EXPIREAT a {FAR} GT"), ":0\r\n"),
            ("TTL a", ":-1\r\n"),
            (&format!("EXPIREAT a {FAR} NX"), ":1\r\n"),
            (&format!("EXPIREAT a {FAR}0 NX"), ":0\r\n"),
            (&format!("EXPIREAT a {FAR} gt"), ":0\r\n"),
            (&format!("EXPIREAT a {FAR} LT"), ":0\r\n"),
            (&format!("EXPIREAT a {FAR}0 XX GT"), ":1\r\n"),
            (&format!("EXPIREAT a {FAR}0 LT"), ":0\r\n"),
            ("EXPIRETIME a", &format!(":{FAR}0\r\n")),
            ("PEXPIREAT a 1 GT", ":0\r\n"),
            (&format!("EXPIREAT a {FAR} XX LT"), ":1\r\n"),
            ("EXPIRETIME a", &format!(":{FAR}\r\n")),
            ("EXPIRE a 1 what", "-ERR Unsupported option what\r\n"),
            (
                "EXPIRE a 1 NX GT",
                "-ERR NX and XX, GT or LT options at the same time are not compatible\r\n",
            ),
            (
                "EXPIRE a 1 GT LT",
                "-ERR GT and LT options at the same time are not compatible\r\n",
            ),
            ("EXPIRE a x", NOT_AN_INTEGER),
            (
                "EXPIRE a 9223372036854775807",
                "-ERR invalid expire time in 'expire' command\r\n",
            ),
            (
                "PEXPIRE a 9223372036854775807",
                "-ERR invalid expire time in 'pexpire' command\r\n",
            ),
            (
                "EXPIREAT a 9223372036854775807",
                "-ERR invalid expire time in 'expireat' command\r\n",
            ),
            ("PEXPIREAT a 9223372036854775807", ":1\r\n"),
            ("PEXPIRETIME a", ":9223372036854775807\r\n"),
        ],
    );
}

#[test]
fn values_are_read_and_stored_with_an_expiry() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("SETEX a 1000 x", "+OK\r\n"),
            ("TTL a", ":1000\r\n"),
            ("PSETEX a 2000000 y", "+OK\r\n"),
            ("TTL a", ":2000\r\n"),
            ("SETEX a 0 x", "-ERR invalid expire time in 'setex' command\r\n"),
            ("PSETEX a -1 x", "-ERR invalid expire time in 'psetex' command\r\n"),
            ("SETEX a x x", NOT_AN_INTEGER),
            ("GETEX a", "$1\r\ny\r\n"),
            ("TTL a", ":2000\r\n"),
            ("GETEX a PERSIST", "$1\r\ny\r\n"),
            ("TTL a", ":-1\r\n"),
            ("GETEX a EX 500", "$1\r\ny\r\n"),
            ("TTL a", ":500\r\n"),
            (&format!("GETEX a EXAT {FAR}"), "$1\r\ny\r\n"),
            ("EXPIRETIME a", &format!(":{FAR}\r\n")),
            ("GETEX a EX 0", "-ERR invalid expire time in 'getex' command\r\n"),
            ("GETEX a EX x", NOT_AN_INTEGER),
            ("GETEX a EX 1 PX 1", "-ERR syntax error\r\n"),
            ("EXPIRETIME a", &format!(":{FAR}\r\n")),
            ("GETEX a PXAT 1", "$1\r\ny\r\n"),
            ("DBSIZE", ":0\r\n"),
            ("GETEX a", "$-1\r\n"),
            ("GETEX a EX 0", "$-1\r\n"),
            ("GETEX a what", "-ERR syntax error\r\n"),
            ("SET a z", "+OK\r\n"),
            ("GETDEL a", "$1\r\nz\r\n"),
            ("GETDEL a", "$-1\r\n"),
            ("DBSIZE", ":0\r\n"),
        ],
    );
}
