//! Hashes: every reply is that of `redis-server`, byte by byte; but for what Redis 7.4 added, which is written here.

use std::collections::BTreeMap;

use super::client::Client;
use super::commands::{NOT_AN_INTEGER, arity, check};
use super::differential::{Author, Pair, Reply, Words, shown};
use super::process::Server;
use super::unordered::{Likeness, Type, compare_all};

/// Keys of hashes that stay small, so that their fields stand in one order; one that grows, and one that never is.
const KEYS: [&str; 5] = ["a", "b", "c", "large", "none"];

struct Hashes;

fn field(author: &mut Author) -> Vec<u8> {
    let fields = [
        "f", "g", "field0", "field1", "field11", "", "0", "1", "-1", "01", "number", "decimal",
    ];
    author.pick(&fields).into()
}

/// What fits into a hash that stays small.
fn text(author: &mut Author) -> Vec<u8> {
    match author.element() {
        text if text.len() <= 64 => text,
        _ => b"short".to_vec(),
    }
}

fn decimal(author: &mut Author) -> Vec<u8> {
    let decimals = [
        "1", "-2", "0.5", "-0.25", "3.75", "1e1", "0.1", "0.2", "-0.3", "0", "-0", "x", "", " 1", "1 ", "inf", "-inf",
        "nan",
    ];
    author.pick(&decimals).into()
}

impl Type for Hashes {
    fn write(author: &mut Author, _: bool) -> Words {
        let names = [
            "HSET",
            "HSET",
            "HSET",
            "HMSET",
            "HSETNX",
            "HGET",
            "HMGET",
            "HDEL",
            "HDEL",
            "HLEN",
            "HEXISTS",
            "HSTRLEN",
            "HKEYS",
            "HVALS",
            "HGETALL",
            "HINCRBY",
            "HINCRBY",
            "HINCRBYFLOAT",
            "HINCRBYFLOAT",
            "HRANDFIELD",
            "HSCAN",
            "DEL",
            "EXISTS",
            "EXPIREAT",
            "EXPIRETIME",
        ];
        let name = author.pick(&names);
        let key = match name {
            // Nothing is stored under the last one.
            "HSET" | "HMSET" | "HSETNX" | "HINCRBY" | "HINCRBYFLOAT" => author.pick(&KEYS[..4]),
            _ => author.pick(&KEYS),
        };
        let is_large = key == "large";
        let mut words: Words = vec![name.into(), key.into()];
        match name {
            "HSET" | "HMSET" => {
                let many = is_large && author.chance(10);
                let count = if many { 200 } else { author.dice.between(1, 4) };
                for number in 0..count {
                    let name = if many {
                        format!("field{number}").into()
                    } else {
                        field(author)
                    };
                    let value = match (name.as_slice(), is_large) {
                        (b"decimal", _) => decimal(author),
                        (_, true) => author.element(),
                        _ => text(author),
                    };
                    words.extend([name, value]);
                }
            }
            "HSETNX" => {
                words.push(field(author));
                words.push(if words[2] == b"decimal" {
                    decimal(author)
                } else {
                    text(author)
                });
            }
            "HGET" | "HEXISTS" | "HSTRLEN" => words.push(field(author)),
            "HMGET" | "HDEL" => words.extend((0..author.dice.between(1, 4)).map(|_| field(author))),
            "HINCRBY" => {
                let name = field(author);
                words.push(if name == b"decimal" { b"number".to_vec() } else { name });
                words.push(author.number());
            }
            "HINCRBYFLOAT" => words.extend([b"decimal".to_vec(), decimal(author)]),
            "HRANDFIELD" if author.chance(80) => {
                words.push(match author.number() {
                    // Redis would go on for years.
                    number if number.len() > 4 && number[0] == b'-' => b"-9223372036854775808".to_vec(),
                    number => number,
                });
                if author.chance(50) {
                    words.push(author.option("WITHVALUES"));
                }
            }
            "HSCAN" => {
                words.push(author.pick(&["0", "0", "0", "0", "x", "18446744073709551616"]).into());
                words.extend([b"COUNT".to_vec(), b"10000".to_vec()]);
                if author.chance(40) {
                    let pattern = author.pick(&["*", "field*", "f", "[a-f]*", "?", ""]);
                    words.extend([author.option("MATCH"), pattern.into()]);
                }
                if author.chance(5) {
                    words.extend([author.option("COUNT"), author.pick(&["0", "-1", "x", "10000"]).into()]);
                }
            }
            "EXPIREAT" => words.push(b"4102444800".to_vec()),
            _ => {}
        }
        // What Redis would do by chance is not made of another command.
        if name != "HSCAN" && name != "HRANDFIELD" {
            author.spoil(&mut words);
        }
        words
    }

    fn likeness(words: &Words) -> Likeness {
        let is_large = words.get(1).is_some_and(|key| key == b"large");
        match words[0].as_slice() {
            b"HRANDFIELD" => Likeness::Form,
            b"HGETALL" if is_large => Likeness::AnyOrder(2),
            b"HKEYS" | b"HVALS" if is_large => Likeness::AnyOrder(1),
            b"HSCAN" if is_large => Likeness::Scan(2),
            _ => Likeness::Equal,
        }
    }

    fn compare(pair: &mut Pair, words: &Words) {
        let (ours, _) = pair.compare_as(words, Self::likeness(words));
        if words[0] == b"HRANDFIELD" {
            check_drawn(pair, words, &ours);
        }
    }
}

/// What was drawn is in the hash, and no field twice unless that was allowed.
fn check_drawn(pair: &mut Pair, words: &Words, drawn: &Reply) {
    let (all, _) = pair.ask(&vec![b"HGETALL".to_vec(), words[1].clone()]);
    let all = Reply::parse(&all);
    let fields: BTreeMap<Vec<u8>, &Reply> = (all.elements().chunks(2))
        .map(|pair| (bytes(&pair[0]).to_vec(), &pair[1]))
        .collect();
    let elements = match drawn {
        Reply::Bulk(_) => core::slice::from_ref(drawn),
        _ => drawn.elements(),
    };
    let mut seen = Vec::new();
    let has_values = words.len() == 4;
    let are_pairs = elements.iter().any(|element| !element.elements().is_empty());
    let pairs = elements.chunks(if has_values && !are_pairs { 2 } else { 1 });
    for pair in pairs {
        let pair = if are_pairs { pair[0].elements() } else { pair };
        let name = bytes(&pair[0]);
        let value = fields
            .get(name)
            .unwrap_or_else(|| panic!("{}: {drawn:?}", shown(words)));
        assert!(pair.len() == 1 || pair[1] == **value, "{}: {drawn:?}", shown(words));
        seen.push(name);
    }
    if words.get(2).is_some_and(|count| !count.starts_with(b"-")) {
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count, "{}: {drawn:?}", shown(words));
    }
}

fn bytes(reply: &Reply) -> &[u8] {
    match reply {
        Reply::Bulk(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn random_commands_have_the_replies_of_redis() {
    compare_all::<Hashes>(1, 8000, "HELLO 2");
}

#[test]
fn random_commands_have_the_replies_of_redis_in_resp3() {
    compare_all::<Hashes>(2, 4000, "HELLO 3");
}

#[test]
fn descriptions_and_rights_are_those_of_redis() {
    let mut pair = Pair::start("HELLO 2");
    let names = [
        "hset",
        "hmset",
        "hsetnx",
        "hget",
        "hmget",
        "hdel",
        "hlen",
        "hexists",
        "hstrlen",
        "hkeys",
        "hvals",
        "hgetall",
        "hincrby",
        "hincrbyfloat",
        "hrandfield",
        "hscan",
    ];
    names.iter().for_each(|name| pair.compare_description(name));
    pair.compare_rights(
        &[
            "ACL SETUSER keys on nopass %R~r* %W~w* %RW~x* +@all",
            "ACL SETUSER hashes on nopass ~* -@all +@hash",
            "ACL SETUSER others on nopass ~* +@all -@hash",
        ],
        &["keys", "hashes", "others"],
        &[
            "HSET r f 1",
            "HSET w f 1",
            "HMSET r f 1",
            "HMSET w f 1",
            "HSETNX r f 1",
            "HSETNX w f 1",
            "HGET r f",
            "HGET w f",
            "HMGET r f",
            "HMGET w f",
            "HDEL r f",
            "HDEL w f",
            "HLEN r",
            "HLEN w",
            "HLEN z",
            "HEXISTS r f",
            "HEXISTS w f",
            "HSTRLEN r f",
            "HSTRLEN w f",
            "HKEYS r",
            "HKEYS w",
            "HVALS r",
            "HVALS w",
            "HGETALL r",
            "HGETALL w",
            "HINCRBY r f 1",
            "HINCRBY w f 1",
            "HINCRBY x f 1",
            "HINCRBYFLOAT r f 1",
            "HINCRBYFLOAT w f 1",
            "HINCRBYFLOAT x f 1",
            "HRANDFIELD r",
            "HRANDFIELD w",
            "HSCAN r 0",
            "HSCAN w 0",
        ],
    );
}

fn client(server: &Server, hello: &str) -> Client {
    let mut client = server.client();
    client.ask(hello);
    client
}

#[test]
fn a_profile_is_kept_in_a_hash() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = client(&server, "HELLO 3");
    check(
        &mut client,
        &[
            ("HSET user:1 name anna visits 1", ":2\r\n"),
            (
                "HGETALL user:1",
                "%2\r\n$4\r\nname\r\n$4\r\nanna\r\n$6\r\nvisits\r\n$1\r\n1\r\n",
            ),
            ("HINCRBY user:1 visits 41", ":42\r\n"),
            ("HINCRBYFLOAT user:1 balance 0.1", "$3\r\n0.1\r\n"),
            ("HINCRBYFLOAT user:1 balance 0.2", "$3\r\n0.3\r\n"),
            ("HMGET user:1 visits none name", "*3\r\n$2\r\n42\r\n_\r\n$4\r\nanna\r\n"),
            ("HSETNX user:1 name ben", ":0\r\n"),
            ("HSET user:1 name", &arity("hset")),
            ("HMSET user:1 name ben city", &arity("hmset")),
            ("PEXPIREAT user:1 4102444800000", ":1\r\n"),
            ("HDEL user:1 balance visits none", ":2\r\n"),
            ("PEXPIRETIME user:1", ":4102444800000\r\n"),
            ("HDEL user:1 name", ":1\r\n"),
            ("EXISTS user:1", ":0\r\n"),
            ("HGETALL user:1", "%0\r\n"),
            ("HRANDFIELD user:1 3", "*0\r\n"),
            ("HSCAN user:1 0", "*2\r\n$1\r\n0\r\n*0\r\n"),
        ],
    );
}

#[test]
fn a_scan_may_leave_values_out() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = client(&server, "HELLO 2");
    check(
        &mut client,
        &[
            ("HSET h a 1 b 2 ab 3", ":3\r\n"),
            (
                "HSCAN h 0 NOVALUES",
                "*2\r\n$1\r\n0\r\n*3\r\n$1\r\na\r\n$1\r\nb\r\n$2\r\nab\r\n",
            ),
            (
                "HSCAN h 0 MATCH a* novalues COUNT 1",
                "*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$2\r\nab\r\n",
            ),
            ("HSCAN h 0 NOVALUES MATCH", "-ERR syntax error\r\n"),
            ("HSCAN h 0 NOVALUES 1", "-ERR syntax error\r\n"),
        ],
    );
}

/// As the tests of Redis 7.4 have it.
#[test]
fn fields_expire() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = client(&server, "HELLO 2");
    let far = "4102444800000";
    check(
        &mut client,
        &[
            ("HEXPIRE none 10 FIELDS 2 a b", "*2\r\n:-2\r\n:-2\r\n"),
            ("HTTL none FIELDS 1 a", "*1\r\n:-2\r\n"),
            ("HPERSIST none FIELDS 1 a", "*1\r\n:-2\r\n"),
            ("EXISTS none", ":0\r\n"),
            ("HSET h a 1 b 2 c 3 d 4", ":4\r\n"),
            ("HTTL h FIELDS 2 a x", "*2\r\n:-1\r\n:-2\r\n"),
            ("HPEXPIREAT h 4102444800000 NX FIELDS 2 a x", "*2\r\n:1\r\n:-2\r\n"),
            ("HPEXPIREAT h 4102444800000 NX FIELDS 2 a b", "*2\r\n:0\r\n:1\r\n"),
            ("HEXPIREAT h 4102444801 GT FIELDS 2 a c", "*2\r\n:1\r\n:0\r\n"),
            ("HEXPIREAT h 4102444800 LT FIELDS 2 a c", "*2\r\n:1\r\n:1\r\n"),
            ("HEXPIREAT h 4102444802 XX FIELDS 2 d c", "*2\r\n:0\r\n:1\r\n"),
            (
                "HPEXPIRETIME h FIELDS 3 a d c",
                &format!("*3\r\n:{far}\r\n:-1\r\n:4102444802000\r\n"),
            ),
            ("HEXPIRETIME h FIELDS 2 a c", "*2\r\n:4102444800\r\n:4102444802\r\n"),
            ("HPERSIST h FIELDS 3 a d x", "*3\r\n:1\r\n:-1\r\n:-2\r\n"),
            ("HEXPIRETIME h FIELDS 1 a", "*1\r\n:-1\r\n"),
            // What is set anew does not expire; what is added to keeps its time.
            ("HSET h c 1", ":0\r\n"),
            ("HINCRBY h b 1", ":3\r\n"),
            ("HPEXPIRETIME h FIELDS 2 b c", &format!("*2\r\n:{far}\r\n:-1\r\n")),
            // A time that is over removes; the last field takes the key with it.
            ("HEXPIREAT h 1 FIELDS 2 a b", "*2\r\n:2\r\n:2\r\n"),
            ("HEXPIRE h 0 FIELDS 1 c", "*1\r\n:2\r\n"),
            ("HKEYS h", "*1\r\n$1\r\nd\r\n"),
            ("HPEXPIRE h 0 FIELDS 1 d", "*1\r\n:2\r\n"),
            ("EXISTS h", ":0\r\n"),
            ("HEXPIRE h x FIELDS 1 a", NOT_AN_INTEGER),
            (
                "HEXPIRE h 1 1 a b",
                "-ERR Mandatory argument FIELDS is missing or not at the right position\r\n",
            ),
            (
                "HTTL h FIELDS 2 a",
                "-ERR The `numfields` parameter must match the number of arguments\r\n",
            ),
            ("HEXPIRE h 1 FIELDS 1", &arity("hexpire")),
            ("HTTL h FIELDS 1", &arity("httl")),
        ],
    );
}

#[test]
fn a_field_that_is_past_its_time_is_absent() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = client(&server, "HELLO 2");
    check(
        &mut client,
        &[
            ("HSET h a 1 b 2", ":2\r\n"),
            ("HPEXPIRE h 1 FIELDS 1 a", "*1\r\n:1\r\n"),
        ],
    );
    // Ends: it expires in a millisecond.
    while client.ask("HGET h a") != "$-1\r\n" {
        std::thread::yield_now();
    }
    check(
        &mut client,
        &[
            ("HLEN h", ":1\r\n"),
            ("HGETALL h", "*2\r\n$1\r\nb\r\n$1\r\n2\r\n"),
            ("HRANDFIELD h 5", "*1\r\n$1\r\nb\r\n"),
            ("HSCAN h 0 NOVALUES", "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nb\r\n"),
            ("HPTTL h FIELDS 2 a b", "*2\r\n:-2\r\n:-1\r\n"),
            ("HDEL h a", ":0\r\n"),
            ("HINCRBY h a 5", ":5\r\n"),
            ("HPTTL h FIELDS 1 a", "*1\r\n:-1\r\n"),
        ],
    );
}

#[test]
fn hashes_change_together() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = client(&server, "HELLO 2");
    check(
        &mut client,
        &[
            ("MULTI", "+OK\r\n"),
            ("HSET h a 1", "+QUEUED\r\n"),
            ("HPEXPIREAT h 4102444800000 FIELDS 1 a", "+QUEUED\r\n"),
            ("HSCAN h 0", "+QUEUED\r\n"),
            ("HRANDFIELD h -3", "+QUEUED\r\n"),
            ("HDEL h a", "+QUEUED\r\n"),
            ("HGETALL h", "+QUEUED\r\n"),
            (
                "EXEC",
                "*6\r\n:1\r\n*1\r\n:1\r\n*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n*3\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n\
                 :1\r\n*0\r\n",
            ),
            ("EXISTS h", ":0\r\n"),
        ],
    );
}

#[test]
fn a_draw_may_be_longer_than_what_is_kept() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = client(&server, "HELLO 2");
    let long = vec![b'x'; 1 << 16];
    client.call(&[b"HSET", b"h", b"f", &long]);
    client.call(&[b"SADD", b"s", &long]);
    let before = server.private_bytes();
    for (line, field) in [("HRANDFIELD h -2000 WITHVALUES", 1), ("SRANDMEMBER s -2000", 0)] {
        let reply = Reply::parse(&client.call(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()));
        assert_eq!(reply.elements().len(), 2000 * (1 + field));
        assert!(
            reply
                .elements()
                .iter()
                .skip(field)
                .step_by(1 + field)
                .all(|element| bytes(element) == long)
        );
    }
    // Each of them has 128 MB.
    assert!(server.private_bytes() < before + (64 << 20));
    // The next command is answered as ever.
    assert_eq!(client.ask("HLEN h"), ":1\r\n");
}
