//! Parts of strings, decimal numbers, and small commands about keys.

use super::commands::{NOT_AN_INTEGER, check};
use super::process::Server;

#[test]
fn parts_of_strings_are_read_and_written() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("GETRANGE a 0 -1", "$0\r\n\r\n"),
            ("SETRANGE a 5 ", ":0\r\n"),
            ("EXISTS a", ":0\r\n"),
            ("SETRANGE a 2 hello", ":7\r\n"),
            ("GET a", "$7\r\n\0\0hello\r\n"),
            ("SETRANGE a 0 XY", ":7\r\n"),
            ("SETRANGE a 3 ", ":7\r\n"),
            ("GET a", "$7\r\nXYhello\r\n"),
            ("SETRANGE a 6 0123", ":10\r\n"),
            ("GETRANGE a 2 5", "$4\r\nhell\r\n"),
            ("GETRANGE a -4 -1", "$4\r\n0123\r\n"),
            ("GETRANGE a 0 100", "$10\r\nXYhell0123\r\n"),
            ("GETRANGE a 0 -100", "$1\r\nX\r\n"),
            ("GETRANGE a 5 2", "$0\r\n\r\n"),
            ("GETRANGE a -1 -2", "$0\r\n\r\n"),
            ("SUBSTR a 0 1", "$2\r\nXY\r\n"),
            ("GETRANGE a x 1", NOT_AN_INTEGER),
            ("GETRANGE a 1 x", NOT_AN_INTEGER),
            ("SETRANGE a x y", NOT_AN_INTEGER),
            ("SETRANGE a -1 y", "-ERR offset is out of range\r\n"),
            (
                "SETRANGE a 16777216 y",
                "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n",
            ),
            (
                "SETRANGE none 9223372036854775807 y",
                "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n",
            ),
            ("STRLEN a", ":10\r\n"),
            ("SETRANGE b 16777215 y", ":16777216\r\n"),
        ],
    );
}

#[test]
fn decimal_numbers_count() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("INCRBYFLOAT n 10.50", "$4\r\n10.5\r\n"),
            ("INCRBYFLOAT n 0.1", "$4\r\n10.6\r\n"),
            ("INCRBYFLOAT n -5", "$3\r\n5.6\r\n"),
            ("GET n", "$3\r\n5.6\r\n"),
            ("SET n 5.0e3", "+OK\r\n"),
            ("INCRBYFLOAT n 2.0e2", "$4\r\n5200\r\n"),
            ("INCR n", ":5201\r\n"),
            ("INCRBYFLOAT n -5201", "$1\r\n0\r\n"),
            ("INCRBYFLOAT n x", "-ERR value is not a valid float\r\n"),
            ("INCRBYFLOAT n nan", "-ERR value is not a valid float\r\n"),
            ("INCRBYFLOAT n inf", "-ERR increment would produce NaN or Infinity\r\n"),
            ("SET n text", "+OK\r\n"),
            ("INCRBYFLOAT n 1", "-ERR value is not a valid float\r\n"),
            ("GET n", "$4\r\ntext\r\n"),
        ],
    );
}

#[test]
fn keys_have_a_type_and_can_be_touched() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("TYPE a", "+none\r\n"),
            ("MSET a 1 b 2", "+OK\r\n"),
            ("type a", "+string\r\n"),
            ("TOUCH a none a", ":2\r\n"),
            ("UNLINK a none a", ":1\r\n"),
            ("TYPE a", "+none\r\n"),
            (
                "COMMAND INFO type",
                "*1\r\n*10\r\n$4\r\ntype\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n\
                 :1\r\n:1\r\n:1\r\n*3\r\n+@keyspace\r\n+@read\r\n+@fast\r\n*0\r\n*0\r\n*0\r\n",
            ),
        ],
    );
}

#[test]
fn time_is_seconds_and_microseconds() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let reply = server.client().ask("TIME");
    let lines: Vec<&str> = reply.split("\r\n").collect();
    let ["*2", _, seconds, _, microseconds, ""] = lines[..] else {
        panic!("two strings: {reply}");
    };
    let (seconds, microseconds): (u64, u64) = (
        seconds.parse().expect("a number"),
        microseconds.parse().expect("a number"),
    );
    // The year 2020 is over.
    assert!(seconds > 1_600_000_000 && microseconds < 1_000_000, "{reply}");
}
