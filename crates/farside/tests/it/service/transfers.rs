//! COPY and RENAME.

use super::commands::{NOT_AN_INTEGER, arity, check};
use super::process::Server;

#[test]
fn values_are_copied_and_renamed_with_their_expiry() {
    let server = Server::serve(&["--memory", "64MiB"]);
    check(
        &mut server.client(),
        &[
            ("SET a 1 EX 1000", "+OK\r\n"),
            ("COPY a b", ":1\r\n"),
            ("TTL b", ":1000\r\n"),
            ("SET a 2", "+OK\r\n"),
            ("COPY a b", ":0\r\n"),
            ("GET b", "$1\r\n1\r\n"),
            ("COPY a b replace DB 0", ":1\r\n"),
            ("GET b", "$1\r\n2\r\n"),
            ("TTL b", ":-1\r\n"),
            ("COPY none b REPLACE", ":0\r\n"),
            ("EXISTS b", ":1\r\n"),
            ("RENAME b c", "+OK\r\n"),
            ("MGET b c", "*2\r\n$-1\r\n$1\r\n2\r\n"),
            ("EXPIRE a 500", ":1\r\n"),
            ("RENAME a c", "+OK\r\n"),
            ("TTL c", ":500\r\n"),
            ("RENAME c c", "+OK\r\n"),
            ("DBSIZE", ":1\r\n"),
        ],
    );
}

#[test]
fn what_does_not_fit_is_refused() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("SET a 1", "+OK\r\n"),
            ("COPY a", &arity("copy")),
            ("COPY a a", "-ERR source and destination objects are the same\r\n"),
            ("COPY a b DB 1", "-ERR DB index is out of range\r\n"),
            ("COPY a b DB x", NOT_AN_INTEGER),
            ("COPY a b DB", "-ERR syntax error\r\n"),
            ("COPY a b what", "-ERR syntax error\r\n"),
            ("RENAME a", &arity("rename")),
            ("RENAME none b", "-ERR no such key\r\n"),
            ("RENAME none none", "-ERR no such key\r\n"),
            ("EXISTS b", ":0\r\n"),
        ],
    );
}

/// An increment that was acknowledged is never lost.
#[test]
fn a_rename_loses_no_change_of_its_source() {
    let server = Server::serve(&["--memory", "64MiB"]);
    std::thread::scope(|scope| {
        let counter = scope.spawn(|| {
            let mut client = server.client();
            (0..2000).for_each(|_| drop(client.ask("INCR count")));
        });
        let collector = scope.spawn(|| {
            let mut client = server.client();
            let mut sum = 0;
            loop {
                let is_last = counter_is_done(&mut client);
                if client.ask("RENAME count taken") == "+OK\r\n" {
                    let taken = client.ask("GETDEL taken");
                    sum += taken
                        .lines()
                        .nth(1)
                        .expect("a number")
                        .parse::<u64>()
                        .expect("a number");
                } else if is_last {
                    return sum;
                }
            }
        });
        counter.join().expect("no panic");
        server.client().ask("SET done 1");
        assert_eq!(collector.join().expect("no panic"), 2000);
    });
}

fn counter_is_done(client: &mut super::client::Client) -> bool {
    client.ask("EXISTS done") == ":1\r\n"
}
