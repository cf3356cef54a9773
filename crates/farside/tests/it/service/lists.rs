//! Lists: every reply is that of `redis-server`, byte by byte.

use super::client::Client;
use super::commands::{NOT_AN_INTEGER, check};
use super::differential::{Author, Pair, Words};
use super::process::Server;
use super::unordered::{Type, compare_all};

const KEYS: [&str; 5] = ["a", "b", "c", "d", "none"];

fn numkeys(author: &mut Author, words: &mut Words) {
    let count = author.dice.between(1, 4);
    words.push(match author.chance(90) {
        true => count.to_string().into_bytes(),
        false => author.number(),
    });
    words.extend((0..count).map(|_| author.pick(&KEYS).into()));
}

fn end(author: &mut Author) -> Vec<u8> {
    let end = author.pick(&["LEFT", "RIGHT"]);
    author.option(end)
}

fn write(author: &mut Author) -> Words {
    let names = [
        "LPUSH",
        "LPUSH",
        "LPUSH",
        "RPUSH",
        "RPUSH",
        "RPUSH",
        "LPUSHX",
        "RPUSHX",
        "LPOP",
        "RPOP",
        "LLEN",
        "LINDEX",
        "LINDEX",
        "LRANGE",
        "LRANGE",
        "LSET",
        "LSET",
        "LINSERT",
        "LINSERT",
        "LREM",
        "LREM",
        "LPOS",
        "LPOS",
        "LTRIM",
        "LMOVE",
        "LMOVE",
        "RPOPLPUSH",
        "LMPOP",
        "DEL",
        "EXISTS",
        "EXPIREAT",
        "EXPIRETIME",
    ];
    let name = author.pick(&names);
    let mut words: Words = vec![name.into()];
    if name == "LMPOP" {
        numkeys(author, &mut words);
        words.push(end(author));
        if author.chance(50) {
            words.extend([author.option("COUNT"), author.count()]);
        }
        author.spoil(&mut words);
        return words;
    }
    words.push(author.pick(&KEYS).into());
    match name {
        "LPUSH" | "RPUSH" | "LPUSHX" | "RPUSHX" => {
            let count = if author.chance(1) {
                200
            } else {
                author.dice.between(1, 5)
            };
            words.extend((0..count).map(|_| author.element()));
        }
        "LPOP" | "RPOP" if author.chance(50) => words.push(author.count()),
        "LINDEX" => words.push(author.number()),
        "LRANGE" | "LTRIM" => words.extend([author.number(), author.number()]),
        "LSET" | "LREM" => words.extend([author.number(), author.element()]),
        "LINSERT" => {
            let side = author.pick(&["BEFORE", "AFTER"]);
            words.extend([author.option(side), author.element(), author.element()]);
        }
        "LPOS" => {
            words.push(author.element());
            for _ in 0..author.dice.roll(4) {
                let option = author.pick(&["RANK", "COUNT", "MAXLEN"]);
                words.extend([author.option(option), author.number()]);
            }
            // Since 7.2 such a rank is refused.
            words.retain(|word| word != b"-9223372036854775808");
        }
        "LMOVE" => words.extend([author.pick(&KEYS).into(), end(author), end(author)]),
        "RPOPLPUSH" => words.push(author.pick(&KEYS).into()),
        "EXPIREAT" => words.push(b"4102444800".to_vec()),
        _ => {}
    }
    author.spoil(&mut words);
    words
}

struct Lists;

impl Type for Lists {
    fn write(author: &mut Author, _is_in_multi: bool) -> Words {
        write(author)
    }
}

#[test]
fn random_commands_have_the_replies_of_redis() {
    compare_all::<Lists>(1, 8000, "HELLO 2");
}

#[test]
fn random_commands_have_the_replies_of_redis_in_resp3() {
    compare_all::<Lists>(2, 4000, "HELLO 3");
}

#[test]
fn descriptions_are_those_of_redis() {
    let mut pair = Pair::start("HELLO 2");
    for name in [
        "lindex",
        "linsert",
        "llen",
        "lmove",
        "lmpop",
        "lpop",
        "lpos",
        "lpush",
        "lpushx",
        "lrange",
        "lrem",
        "lset",
        "ltrim",
        "rpop",
        "rpoplpush",
        "rpush",
        "rpushx",
    ] {
        pair.compare_description(name);
    }
    for line in [
        "COMMAND GETKEYS LMPOP 2 a b LEFT",
        "COMMAND GETKEYS LMOVE a b LEFT LEFT",
        "COMMAND GETKEYS RPOPLPUSH a b",
        "COMMAND GETKEYS LPUSH a b c",
        "COMMAND GETKEYSANDFLAGS LPUSH a b c",
        "COMMAND GETKEYSANDFLAGS LPOP a",
        "COMMAND GETKEYSANDFLAGS LLEN a",
        "COMMAND GETKEYSANDFLAGS LSET a 0 b",
        "COMMAND GETKEYSANDFLAGS LINSERT a BEFORE b c",
        "COMMAND GETKEYSANDFLAGS LREM a 0 b",
        "COMMAND GETKEYSANDFLAGS LTRIM a 0 1",
        "COMMAND GETKEYSANDFLAGS LMOVE a b LEFT LEFT",
        "COMMAND GETKEYSANDFLAGS LMPOP 2 a b LEFT",
    ] {
        pair.compare_line(line);
    }
}

#[test]
fn users_may_do_what_they_may_in_redis() {
    let mut pair = Pair::start("HELLO 2");
    pair.compare_rights(
        &[
            "ACL SETUSER keys on nopass %R~r* %W~w* %RW~x* +@all",
            "ACL SETUSER lists on nopass ~* -@all +@list",
            "ACL SETUSER others on nopass ~* +@all -@list",
        ],
        &["keys", "lists", "others"],
        &[
            "LPUSH w a",
            "LPUSH r a",
            "RPUSHX w a",
            "LPOP w",
            "LPOP r",
            "LPOP x",
            "LLEN w",
            "LLEN r",
            "LLEN other",
            "LINDEX w 0",
            "LINDEX r 0",
            "LRANGE r 0 1",
            "LRANGE w 0 1",
            "LSET w 0 a",
            "LSET r 0 a",
            "LINSERT w BEFORE a b",
            "LREM w 0 a",
            "LREM r 0 a",
            "LPOS r a",
            "LPOS w a",
            "LTRIM w 0 1",
            "LTRIM r 0 1",
            "LMOVE x w LEFT LEFT",
            "LMOVE w x LEFT LEFT",
            "LMOVE x r LEFT LEFT",
            "RPOPLPUSH x w",
            "RPOPLPUSH r w",
            "LMPOP 1 x LEFT",
            "LMPOP 2 x r LEFT",
            "LMPOP 2 x x LEFT",
            "GET r",
        ],
    );
}

#[test]
fn a_list_is_a_queue_and_a_stack() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("RPUSH jobs one two three", ":3\r\n"),
            ("LPUSH jobs zero", ":4\r\n"),
            (
                "LRANGE jobs 0 -1",
                "*4\r\n$4\r\nzero\r\n$3\r\none\r\n$3\r\ntwo\r\n$5\r\nthree\r\n",
            ),
            ("EXPIRE jobs 1000", ":1\r\n"),
            ("LMOVE jobs running LEFT RIGHT", "$4\r\nzero\r\n"),
            ("TTL jobs", ":1000\r\n"),
            ("TTL running", ":-1\r\n"),
            ("LPOS jobs three", ":2\r\n"),
            ("LPOS jobs nothing", "$-1\r\n"),
            ("LPOP jobs 2", "*2\r\n$3\r\none\r\n$3\r\ntwo\r\n"),
            ("RPOPLPUSH jobs running", "$5\r\nthree\r\n"),
            ("EXISTS jobs", ":0\r\n"),
            ("LPOP jobs", "$-1\r\n"),
            ("LPOP jobs 1", "*-1\r\n"),
            ("LSET jobs 0 a", "-ERR no such key\r\n"),
            ("LSET running 2 a", "-ERR index out of range\r\n"),
            ("LINDEX running x", NOT_AN_INTEGER),
            ("LINDEX jobs x", "$-1\r\n"),
            (
                "LMPOP 2 jobs running RIGHT COUNT 5",
                "*2\r\n$7\r\nrunning\r\n*2\r\n$4\r\nzero\r\n$5\r\nthree\r\n",
            ),
            ("LMPOP 2 jobs running RIGHT", "*-1\r\n"),
            ("DBSIZE", ":0\r\n"),
        ],
    );
}

/// An element that has no room where it is to go is not lost.
#[test]
fn a_list_that_gets_too_long_is_refused_and_stays() {
    let server = Server::serve(&["--memory", "256MiB"]);
    let mut client = server.client();
    let megabyte = vec![b'x'; 1 << 20];
    for _ in 0..15 {
        client.call(&[b"RPUSH", b"long", &megabyte]);
    }
    client.call(&[b"RPUSH", b"from", &megabyte, &megabyte]);
    let refused = |client: &mut Client, words: &[&[u8]]| {
        let reply = client.call(words);
        assert!(reply.starts_with(b"-ERR"), "{}", reply.escape_ascii());
    };
    refused(&mut client, &[b"RPUSH", b"long", &megabyte]);
    refused(&mut client, &[b"LMOVE", b"from", b"long", b"LEFT", b"LEFT"]);
    check(
        &mut client,
        &[("MULTI", "+OK\r\n"), ("RPOPLPUSH from long", "+QUEUED\r\n")],
    );
    let reply = client.call(&[b"EXEC"]);
    assert!(reply.starts_with(b"*1\r\n-ERR"), "{}", reply.escape_ascii());
    check(&mut client, &[("LLEN from", ":2\r\n"), ("LLEN long", ":15\r\n")]);
}

/// Those who lose against each other try again, and reply once.
#[test]
fn each_element_is_popped_by_one_client() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    let all: Vec<String> = (0..400).map(|number| format!("job{number}")).collect();
    client.ask(&format!("RPUSH jobs {}", all.join(" ")));
    let worker = &|name: usize| {
        let mut client = server.client();
        let mut popped = Vec::new();
        loop {
            let line = match name {
                0 => "LPOP jobs",
                1 => "RPOP jobs",
                2 => "LMOVE jobs moved LEFT RIGHT",
                _ => "LMOVE jobs moved RIGHT LEFT",
            };
            let reply = client.ask(line);
            if reply == "$-1\r\n" {
                return popped;
            }
            let element = reply.split("\r\n").nth(1).expect("an element").to_owned();
            assert_eq!(reply, format!("${}\r\n{element}\r\n", element.len()));
            popped.push(element);
        }
    };
    let mut popped: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|name| scope.spawn(move || worker(name))).collect();
        let popped = workers.into_iter().flat_map(|worker| worker.join().expect("it ends"));
        popped.collect()
    });
    popped.sort_by_key(|element| element[3..].parse::<usize>().expect("a number"));
    assert_eq!(popped, all);
}
