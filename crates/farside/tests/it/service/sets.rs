//! Sets: every reply is that of `redis-server`, byte by byte; but for the order of members, which is Redis's own.

use super::commands::{arity, check};
use super::differential::{Author, Pair, Reply, Words, shown};
use super::process::Server;
use super::unordered::{Likeness, Type, compare_all};

const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "none"];

struct Sets;

/// A key under which something is stored.
fn stored(author: &mut Author) -> Vec<u8> {
    author.pick(&KEYS[..5]).into()
}

fn key(author: &mut Author) -> Vec<u8> {
    author.pick(&KEYS).into()
}

fn member(author: &mut Author) -> Vec<u8> {
    match author.chance(50) {
        true => author.dice.roll(20).to_string().into(),
        false => author.element(),
    }
}

impl Type for Sets {
    fn write(author: &mut Author, is_in_multi: bool) -> Words {
        let names = [
            "SADD",
            "SADD",
            "SADD",
            "SADD",
            "SADD",
            "SREM",
            "SREM",
            "SISMEMBER",
            "SMISMEMBER",
            "SCARD",
            "SMEMBERS",
            "SPOP",
            "SPOP",
            "SRANDMEMBER",
            "SSCAN",
            "SMOVE",
            "SMOVE",
            "SINTER",
            "SINTERCARD",
            "SUNION",
            "SDIFF",
            "SINTERSTORE",
            "SUNIONSTORE",
            "SDIFFSTORE",
            "DEL",
            "EXISTS",
            "EXPIREAT",
            "EXPIRETIME",
        ];
        let name = author.pick(&names);
        let mut words: Words = vec![name.into()];
        match name {
            "SADD" => {
                words.push(stored(author));
                let count = if author.chance(2) {
                    200
                } else {
                    author.dice.between(1, 5)
                };
                words.extend((0..count).map(|_| member(author)));
            }
            "SREM" | "SMISMEMBER" => {
                words.push(key(author));
                words.extend((0..author.dice.between(1, 5)).map(|_| member(author)));
            }
            "SISMEMBER" => words.extend([key(author), member(author)]),
            // Within MULTI, nothing depends on chance: all members or none.
            "SPOP" if is_in_multi => {
                words.extend([key(author), author.pick(&["0", "1000", "-1", "x"]).into()]);
            }
            "SPOP" => {
                words.push(key(author));
                if author.chance(60) {
                    words.push(author.number());
                }
            }
            "SRANDMEMBER" => {
                words.push(key(author));
                if author.chance(80) {
                    words.push(match author.number() {
                        // Redis would go on for years.
                        number if number.len() > 4 && number[0] == b'-' => b"-9223372036854775808".to_vec(),
                        number => number,
                    });
                }
            }
            "SSCAN" => {
                words.push(key(author));
                words.push(author.pick(&["0", "0", "0", "0", "x", "18446744073709551616"]).into());
                words.extend([b"COUNT".to_vec(), b"10000".to_vec()]);
                if author.chance(40) {
                    let pattern = author.pick(&["*", "1*", "a", "[a-f]*", "?", ""]);
                    words.extend([author.option("MATCH"), pattern.into()]);
                }
                if author.chance(5) {
                    words.extend([author.option("COUNT"), author.pick(&["0", "-1", "x", "10000"]).into()]);
                }
            }
            "SMOVE" => words.extend([key(author), stored(author), member(author)]),
            "SINTER" | "SUNION" | "SDIFF" => words.extend((0..author.dice.between(1, 4)).map(|_| key(author))),
            "SINTERSTORE" | "SUNIONSTORE" | "SDIFFSTORE" => {
                words.push(stored(author));
                words.extend((0..author.dice.between(1, 4)).map(|_| key(author)));
            }
            "SINTERCARD" => {
                let count = author.dice.between(1, 4);
                words.push(match author.chance(90) {
                    true => count.to_string().into(),
                    false => author.number(),
                });
                words.extend((0..count).map(|_| key(author)));
                for _ in 0..author.dice.roll(3) {
                    words.extend([author.option("LIMIT"), author.number()]);
                }
            }
            "EXPIREAT" => words.extend([key(author), b"4102444800".to_vec()]),
            _ => words.push(key(author)),
        }
        // What Redis would do by chance is not made of another command.
        if !matches!(name, "SSCAN" | "SPOP" | "SRANDMEMBER") {
            author.spoil(&mut words);
        }
        words
    }

    fn likeness(words: &Words) -> Likeness {
        match words[0].as_slice() {
            b"SMEMBERS" | b"SINTER" | b"SUNION" | b"SDIFF" => Likeness::AnyOrder(1),
            b"SSCAN" => Likeness::Scan(1),
            b"SPOP" | b"SRANDMEMBER" => Likeness::Form,
            _ => Likeness::Equal,
        }
    }

    fn compare(pair: &mut Pair, words: &Words) {
        let is_drawn = matches!(words[0].as_slice(), b"SPOP" | b"SRANDMEMBER");
        let before = is_drawn.then(|| pair.ask(&vec![b"SMEMBERS".to_vec(), words[1].clone()]).0);
        let (ours, theirs) = pair.compare_as(words, Self::likeness(words));
        let Some(before) = before else { return };
        let before = Reply::parse(&before);
        let drawn = elements(&ours);
        assert!(
            drawn.iter().all(|member| before.elements().contains(member)),
            "{}: {ours:?}",
            shown(words)
        );
        let may_repeat = words[0] == b"SRANDMEMBER" && words.get(2).is_some_and(|count| count.starts_with(b"-"));
        if !may_repeat {
            let mut different = drawn.to_vec();
            different.sort_by(|one, other| one.partial_cmp(other).expect("bytes"));
            different.dedup();
            assert_eq!(different.len(), drawn.len(), "{}: {ours:?}", shown(words));
        }
        if words[0] == b"SPOP" {
            make_even(pair, &words[1], drawn, elements(&theirs), before.elements().len());
        }
    }
}

/// What was drawn: one, or several.
fn elements(reply: &Reply) -> &[Reply] {
    match reply {
        Reply::Bulk(_) => core::slice::from_ref(reply),
        _ => reply.elements(),
    }
}

/// Puts back into the set of Redis what it has popped, and takes out of it what Farside has.
fn make_even(pair: &mut Pair, key: &[u8], ours: &[Reply], theirs: &[Reply], members: usize) {
    if ours.is_empty() || ours.len() == members {
        // Nothing went, or everything.
        return;
    }
    for (name, popped) in [(b"SADD", theirs), (b"SREM", ours)] {
        let mut words: Vec<&[u8]> = vec![name, key];
        words.extend(popped.iter().map(|member| match member {
            Reply::Bulk(bytes) => bytes.as_slice(),
            other => panic!("{other:?}"),
        }));
        pair.theirs.call(&words);
    }
}

#[test]
fn random_commands_have_the_replies_of_redis() {
    compare_all::<Sets>(1, 8000, "HELLO 2");
}

#[test]
fn random_commands_have_the_replies_of_redis_in_resp3() {
    compare_all::<Sets>(2, 4000, "HELLO 3");
}

#[test]
fn descriptions_and_rights_are_those_of_redis() {
    let mut pair = Pair::start("HELLO 2");
    let names = [
        "sadd",
        "srem",
        "sismember",
        "smismember",
        "scard",
        "smembers",
        "spop",
        "srandmember",
        "sscan",
        "smove",
        "sinter",
        "sintercard",
        "sunion",
        "sdiff",
        "sinterstore",
        "sunionstore",
        "sdiffstore",
    ];
    names.iter().for_each(|name| pair.compare_description(name));
    for line in [
        "COMMAND GETKEYS SINTERCARD 2 a b LIMIT 3",
        "COMMAND GETKEYS SINTERCARD 3 a b",
        "COMMAND GETKEYS SINTERCARD 0 a",
        "COMMAND GETKEYS SINTERCARD x a",
        "COMMAND GETKEYS SMOVE a b c",
        "COMMAND GETKEYS SINTERSTORE a b c",
        "COMMAND GETKEYS EVAL script 2 a b c",
        "COMMAND GETKEYS EVAL script 0 a",
        "COMMAND GETKEYS EVAL script x",
    ] {
        pair.compare_line(line);
    }
    pair.compare_rights(
        &[
            "ACL SETUSER keys on nopass %R~r* %W~w* %RW~x* +@all",
            "ACL SETUSER sets on nopass ~* -@all +@set",
            "ACL SETUSER others on nopass ~* +@all -@set",
        ],
        &["keys", "sets", "others"],
        &[
            "SADD r m",
            "SADD w m",
            "SREM r m",
            "SREM w m",
            "SISMEMBER r m",
            "SISMEMBER w m",
            "SISMEMBER z m",
            "SMISMEMBER r m",
            "SMISMEMBER w m",
            "SCARD r",
            "SCARD w",
            "SCARD z",
            "SMEMBERS r",
            "SMEMBERS w",
            "SPOP r",
            "SPOP w",
            "SPOP x",
            "SRANDMEMBER r",
            "SRANDMEMBER w",
            "SSCAN r 0",
            "SSCAN w 0",
            "SMOVE r w m",
            "SMOVE x w m",
            "SMOVE x r m",
            "SINTER r x",
            "SINTER r w",
            "SUNION r r",
            "SDIFF w r",
            "SINTERCARD 2 r x",
            "SINTERCARD 2 r w",
            "SINTERCARD 1 r w",
            "SINTERCARD 3 r w",
            "SINTERSTORE w r x",
            "SINTERSTORE r r",
            "SINTERSTORE w w",
            "SUNIONSTORE w r",
            "SDIFFSTORE w r w",
            "EVAL s 1 x w",
            "EVAL s 1 r",
            "EVAL s 1 w",
            "EVAL s 9 r",
        ],
    );
}

#[test]
fn tags_are_kept_in_sets() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    client.ask("HELLO 3");
    check(
        &mut client,
        &[
            ("SADD post:1 red blue red", ":2\r\n"),
            ("SADD post:2 blue green", ":2\r\n"),
            ("SINTER post:1 post:2", "~1\r\n$4\r\nblue\r\n"),
            ("SINTERCARD 2 post:1 post:2 LIMIT 1", ":1\r\n"),
            ("SDIFFSTORE only post:1 post:2", ":1\r\n"),
            ("SMEMBERS only", "~1\r\n$3\r\nred\r\n"),
            ("SMOVE only post:2 red", ":1\r\n"),
            ("EXISTS only", ":0\r\n"),
            ("SMISMEMBER post:2 red black", "*2\r\n:1\r\n:0\r\n"),
            ("PEXPIREAT post:1 4102444800000", ":1\r\n"),
            ("SADD post:1 white", ":1\r\n"),
            ("PEXPIRETIME post:1", ":4102444800000\r\n"),
            ("SUNIONSTORE post:1 post:1 post:2", ":4\r\n"),
            ("PEXPIRETIME post:1", ":-1\r\n"),
            ("SINTERSTORE post:1 post:1 none", ":0\r\n"),
            ("EXISTS post:1", ":0\r\n"),
            ("SPOP post:1", "_\r\n"),
            ("SPOP post:1 2", "~0\r\n"),
            ("SRANDMEMBER post:1 2", "*0\r\n"),
            ("SADD numbers 10 9 -1 8", ":4\r\n"),
            (
                "SMEMBERS numbers",
                "~4\r\n$2\r\n-1\r\n$1\r\n8\r\n$1\r\n9\r\n$2\r\n10\r\n",
            ),
            ("SADD post:1", &arity("sadd")),
        ],
    );
}

/// What has a number of keys that cannot be right names none, and is refused in its place.
#[test]
fn keys_that_are_counted_are_part_of_a_transaction() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("SADD a 1 2", ":2\r\n"),
            ("MULTI", "+OK\r\n"),
            ("SINTERCARD 0 a", "+QUEUED\r\n"),
            ("SADD b 2", "+QUEUED\r\n"),
            ("SINTERCARD 2 a b", "+QUEUED\r\n"),
            ("SINTERCARD 3 a b", "+QUEUED\r\n"),
            (
                "EXEC",
                "*4\r\n-ERR numkeys should be greater than 0\r\n:1\r\n:1\r\n\
                 -ERR Number of keys can't be greater than number of args\r\n",
            ),
            ("MULTI", "+OK\r\n"),
            ("SINTERCARD x a", "+QUEUED\r\n"),
            ("EXEC", "*1\r\n-ERR numkeys should be greater than 0\r\n"),
        ],
    );
}

/// Of every command that both have.
#[test]
fn what_is_done_to_keys_is_told_as_by_redis() {
    for hello in ["HELLO 2", "HELLO 3"] {
        let mut pair = Pair::start(hello);
        for line in [
            "APPEND a 1",
            "BITCOUNT a",
            "BITFIELD a GET u8 0",
            "BITFIELD a SET u8 0 1",
            "BITFIELD_RO a GET u8 0",
            "BITOP AND d a b",
            "BITPOS a 1",
            "COPY a b",
            "DECR a",
            "DEL a b",
            "DUMP a",
            "EVAL script 2 a b c",
            "EVAL script 0",
            "EXISTS a b",
            "EXPIRE a 1",
            "GET a",
            "GETDEL a",
            "GETEX a",
            "GETSET a 1",
            "HDEL a f",
            "HEXISTS a f",
            "HGETALL a",
            "HINCRBY a f 1",
            "HRANDFIELD a",
            "HSET a f 1",
            "HSETNX a f 1",
            "LCS a b",
            "MGET a b",
            "MSET a 1 b 2",
            "MSETNX a 1 b 2",
            "PERSIST a",
            "PFADD a b",
            "PFCOUNT a b",
            "PFDEBUG GETREG a",
            "PFMERGE d a b",
            "PING a",
            "RENAME a b",
            "RENAMENX a b",
            "RESTORE a 0 x",
            "SADD a m",
            "SDIFFSTORE d a b",
            "SET a 1",
            "SET a 1 GET",
            "SETBIT a 1 1",
            "SETEX a 1 1",
            "SETNX a 1",
            "SETRANGE a 1 1",
            "SINTERCARD 2 a b",
            "SINTERCARD 0 a",
            "SMEMBERS a",
            "SMOVE a b m",
            "SPOP a",
            "SREM a m",
            "STRLEN a",
            "SUNIONSTORE d a b",
            "TOUCH a b",
            "TTL a",
            "TYPE a",
            "UNLINK a b",
            "WATCH a b",
            "what a b",
            "GET a b",
        ] {
            pair.compare_line(&format!("COMMAND GETKEYSANDFLAGS {line}"));
        }
    }
}
