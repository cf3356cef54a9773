//! Sorted sets: every reply is that of `redis-server`, byte by byte but for the digits of doubles, which Redis writes in another
//! form since 7.2.

use super::commands::{arity, check};
use super::differential::{Author, Pair, Reply, Words, shown};
use super::process::Server;
use super::unordered::{Likeness, Type, compare_all};

const KEYS: [&str; 5] = ["a", "b", "c", "d", "none"];
/// Sets, which may be sources of what is made of several keys.
const SETS: [&str; 2] = ["set:a", "set:b"];
/// Sorted sets in which all scores are 0: of others, Redis does not say what a range of members is.
const EQUAL: [&str; 2] = ["equal:a", "equal:b"];

fn score(author: &mut Author) -> Vec<u8> {
    let text = match author.dice.roll(40) {
        0 => author.pick(&["nan", "x", "", "1e400", " 1", "1 ", "0x"]).to_owned(),
        1..=3 => author
            .pick(&["inf", "-inf", "+inf", "-0", "0x10", "1e-320", ".5", "+5"])
            .to_owned(),
        4 => author
            .pick(&["1e17", "1e20", "-1e18", "9223372036854775807", "4611686018427387904"])
            .to_owned(),
        5..=9 => format!("{}.{}", author.dice.roll(4), author.dice.roll(1000)),
        10 => f64::from_bits(author.dice.word() >> 2).to_string(),
        11..=15 => format!("-{}", author.dice.roll(5)),
        16 => format!("{}e-{}", author.dice.roll(30), author.dice.roll(12)),
        _ => author.dice.roll(5).to_string(),
    };
    text.into_bytes()
}

fn score_bound(author: &mut Author) -> Vec<u8> {
    let mut bound = if author.chance(20) { b"(".to_vec() } else { Vec::new() };
    bound.extend(match author.dice.roll(8) {
        0 => b"-inf".to_vec(),
        1 => b"+inf".to_vec(),
        _ => score(author),
    });
    bound
}

fn member_bound(author: &mut Author) -> Vec<u8> {
    match author.dice.roll(20) {
        0 => author.pick(&["", "a", "-x", "+x", "5"]).into(),
        1..=4 => b"-".to_vec(),
        5..=8 => b"+".to_vec(),
        9..=12 => [b"(".to_vec(), author.element()].concat(),
        _ => [b"[".to_vec(), author.element()].concat(),
    }
}

fn limit(author: &mut Author, words: &mut Words) {
    words.extend([author.option("LIMIT"), author.number(), author.number()]);
}

fn with_scores(author: &mut Author, words: &mut Words) {
    if author.chance(40) {
        words.push(author.option("WITHSCORES"));
    }
}

/// The bounds of ZRANGE and options, for a sorted set in which all scores are equal or not.
fn range(author: &mut Author, words: &mut Words, is_equal: bool) {
    let mut options = Words::new();
    match (is_equal, author.dice.roll(2)) {
        (false, 0) => words.extend([author.number(), author.number()]),
        (false, _) => {
            words.extend([score_bound(author), score_bound(author)]);
            options.push(author.option("BYSCORE"));
        }
        (true, _) => {
            words.extend([member_bound(author), member_bound(author)]);
            options.push(author.option("BYLEX"));
        }
    }
    if author.chance(40) {
        options.push(author.option("REV"));
    }
    if author.chance(30) {
        limit(author, &mut options);
    }
    words.append(&mut options);
}

/// So many keys, their number in front of them; a few of them are sets.
fn numkeys(author: &mut Author, words: &mut Words, sets_percent: u64) -> u64 {
    let count = author.dice.between(1, 4);
    words.push(match author.chance(95) {
        true => count.to_string().into_bytes(),
        false => author.number(),
    });
    for _ in 0..count {
        let is_set = author.chance(sets_percent);
        words.push(author.pick(if is_set { &SETS } else { &KEYS }).into());
    }
    count
}

fn combination(author: &mut Author, name: &str, words: &mut Words) {
    let count = numkeys(author, words, 20);
    let is_weighted = author.chance(if name.contains("DIFF") || name == "ZINTERCARD" {
        3
    } else {
        40
    });
    if is_weighted {
        words.push(author.option("WEIGHTS"));
        words.extend((0..count).map(|_| score(author)));
    }
    if is_weighted && author.chance(50) {
        let aggregate = author.pick(&["SUM", "MIN", "MAX"]);
        words.extend([author.option("AGGREGATE"), author.option(aggregate)]);
    }
    if author.chance(if name == "ZINTERCARD" { 50 } else { 2 }) {
        words.extend([author.option("LIMIT"), author.number()]);
    }
    if author.chance(if name.ends_with("STORE") { 2 } else { 40 }) {
        words.push(author.option("WITHSCORES"));
    }
}

fn add(author: &mut Author, words: &mut Words, is_equal: bool) {
    for _ in 0..author.dice.roll(3) {
        let option = author.pick(&["NX", "XX", "GT", "LT", "CH", "CH", "INCR"]);
        if author.chance(60) && !(is_equal && option == "INCR") {
            words.push(author.option(option));
        }
    }
    let count = if author.chance(1) && !is_equal {
        60
    } else {
        author.dice.between(1, 5)
    };
    for _ in 0..count {
        let score = if is_equal { b"0".to_vec() } else { score(author) };
        words.extend([score, author.element()]);
    }
}

const NAMES: [&str; 61] = [
    "SADD",
    "SADD",
    "SREM",
    "ZADD",
    "ZADD",
    "ZADD",
    "ZADD",
    "ZADD",
    "ZADD",
    "ZADD",
    "ZINCRBY",
    "ZINCRBY",
    "ZREM",
    "ZSCORE",
    "ZMSCORE",
    "ZCARD",
    "ZRANK",
    "ZREVRANK",
    "ZCOUNT",
    "ZCOUNT",
    "ZRANGE",
    "ZRANGE",
    "ZRANGE",
    "ZREVRANGE",
    "ZRANGEBYSCORE",
    "ZREVRANGEBYSCORE",
    "ZRANGESTORE",
    "ZRANGESTORE",
    "ZPOPMIN",
    "ZPOPMAX",
    "ZREMRANGEBYRANK",
    "ZREMRANGEBYSCORE",
    "ZRANDMEMBER",
    "ZRANDMEMBER",
    "ZSCAN",
    "ZSCAN",
    "ZUNION",
    "ZUNION",
    "ZINTER",
    "ZDIFF",
    "ZINTERCARD",
    "ZUNIONSTORE",
    "ZINTERSTORE",
    "ZDIFFSTORE",
    "ZMPOP",
    "DEL",
    "EXISTS",
    "EXPIREAT",
    "EXPIRETIME",
    "equal ZADD",
    "equal ZADD",
    "equal ZADD",
    "equal ZREM",
    "equal ZLEXCOUNT",
    "equal ZLEXCOUNT",
    "equal ZRANGE",
    "equal ZRANGEBYLEX",
    "equal ZRANGEBYLEX",
    "equal ZREVRANGEBYLEX",
    "equal ZREMRANGEBYLEX",
    "equal ZRANGESTORE",
];

fn write(author: &mut Author, is_within_multi: bool) -> Words {
    let mut name = author.pick(&NAMES);
    // Of what comes by chance, or in any order, the replies are compared one by one.
    while is_within_multi && matches!(name, "ZRANDMEMBER" | "ZSCAN") {
        name = author.pick(&NAMES);
    }
    let (is_equal, name) = match name.strip_prefix("equal ") {
        Some(name) => (true, name),
        None => (false, name),
    };
    let key = author.pick(if is_equal { &EQUAL } else { &KEYS });
    let mut words: Words = vec![name.into()];
    match name {
        "ZUNION" | "ZINTER" | "ZDIFF" | "ZINTERCARD" => combination(author, name, &mut words),
        "ZUNIONSTORE" | "ZINTERSTORE" | "ZDIFFSTORE" => {
            words.push(key.into());
            combination(author, name, &mut words);
        }
        "SADD" | "SREM" => {
            words.push(author.pick(&SETS).into());
            words.extend((0..author.dice.between(1, 5)).map(|_| author.element()));
        }
        "ZMPOP" => {
            numkeys(author, &mut words, 0);
            let end = author.pick(&["MIN", "MAX"]);
            words.push(author.option(end));
            if author.chance(50) {
                words.extend([author.option("COUNT"), author.count()]);
            }
        }
        "ZRANGESTORE" => {
            let to = author.pick(if is_equal { &EQUAL } else { &KEYS });
            words.extend([to.into(), key.into()]);
            range(author, &mut words, is_equal);
        }
        _ => {
            words.push(key.into());
            further(author, name, is_equal, &mut words);
        }
    }
    // WITHSCORE of these came with 7.2.
    if !matches!(name, "ZRANK" | "ZREVRANK") {
        author.spoil(&mut words);
    }
    words
}

/// What stands behind the key.
fn further(author: &mut Author, name: &str, is_equal: bool, words: &mut Words) {
    match name {
        "ZADD" => add(author, words, is_equal),
        "ZINCRBY" => {
            let increment = match author.chance(3) {
                true => author.option("NX"),
                false => score(author),
            };
            words.extend([increment, author.element()]);
        }
        "ZREM" | "ZMSCORE" => words.extend((0..author.dice.between(1, 5)).map(|_| author.element())),
        "ZSCORE" | "ZRANK" | "ZREVRANK" => words.push(author.element()),
        "ZCOUNT" | "ZREMRANGEBYSCORE" => words.extend([score_bound(author), score_bound(author)]),
        "ZLEXCOUNT" | "ZREMRANGEBYLEX" => words.extend([member_bound(author), member_bound(author)]),
        "ZREMRANGEBYRANK" => words.extend([author.number(), author.number()]),
        "ZRANGE" => {
            range(author, words, is_equal);
            if !is_equal || author.chance(5) {
                with_scores(author, words);
            }
        }
        "ZREVRANGE" => {
            words.extend([author.number(), author.number()]);
            with_scores(author, words);
            if author.chance(5) {
                limit(author, words);
            }
        }
        "ZRANGEBYSCORE" | "ZREVRANGEBYSCORE" => {
            words.extend([score_bound(author), score_bound(author)]);
            with_scores(author, words);
            if author.chance(30) {
                limit(author, words);
            }
        }
        "ZRANGEBYLEX" | "ZREVRANGEBYLEX" => {
            words.extend([member_bound(author), member_bound(author)]);
            if author.chance(30) {
                limit(author, words);
            }
        }
        "ZPOPMIN" | "ZPOPMAX" if author.chance(50) => words.push(author.count()),
        "ZRANDMEMBER" if author.chance(80) => {
            let count = match author.dice.roll(20) {
                0 => author
                    .pick(&["x", "-9223372036854775808", "9223372036854775807"])
                    .into(),
                1 => b"4611686018427387904".to_vec(),
                2..=9 => format!("-{}", author.dice.roll(9)).into_bytes(),
                _ => author.dice.roll(9).to_string().into_bytes(),
            };
            words.push(count);
            with_scores(author, words);
        }
        "ZSCAN" => {
            let cursor = author.pick(&["0", "0", "0", "0", "0", "0", "0", "x", " 0", "0x"]);
            words.push(cursor.into());
            for _ in 0..author.dice.roll(3) {
                match author.dice.roll(3) {
                    0 => words.extend([author.option("COUNT"), author.count()]),
                    _ => words.extend([
                        author.option("MATCH"),
                        author.pick(&["*", "a*", "?", "[0-5]*", "b"]).into(),
                    ]),
                }
            }
        }
        "EXPIREAT" => words.push(b"4102444800".to_vec()),
        _ => {}
    }
}

struct SortedSets;

impl Type for SortedSets {
    fn write(author: &mut Author, is_in_multi: bool) -> Words {
        write(author, is_in_multi)
    }

    fn likeness(_words: &Words) -> Likeness {
        Likeness::Doubles
    }

    fn compare(pair: &mut Pair, words: &Words) {
        match words[0].as_slice() {
            b"ZRANDMEMBER" => compare_drawn(pair, words),
            b"ZSCAN" => compare_scan(pair, words),
            _ => pair.compare(words),
        }
    }
}

/// The members of a reply, each with its score if there are scores.
fn entries(reply: &Reply, has_scores: bool) -> Vec<Vec<Reply>> {
    let elements = reply.elements();
    match elements.first() {
        Some(Reply::Several(..)) => elements.iter().map(|pair| pair.elements().to_vec()).collect(),
        _ => elements
            .chunks(1 + usize::from(has_scores))
            .map(<[Reply]>::to_vec)
            .collect(),
    }
}

/// So many as Redis has drawn, each of which is there; all different if they must be.
fn compare_drawn(pair: &mut Pair, words: &Words) {
    let (found, expected) = pair.ask(words);
    if found == expected {
        return;
    }
    let (found, expected) = (Reply::parse(&found), Reply::parse(&expected));
    let what = format!("{}: {found:?} instead of {expected:?}", shown(words));
    let key = words[1].clone();
    let all = pair.ask(&vec![
        "ZRANGE".into(),
        key,
        "0".into(),
        "-1".into(),
        "WITHSCORES".into(),
    ]);
    let all = entries(&Reply::parse(&all.0), true);
    if words.len() == 2 {
        assert!(all.iter().any(|entry| entry[0] == found), "{what}");
        return;
    }
    let has_scores = words.len() == 4;
    let (ours, theirs) = (entries(&found, has_scores), entries(&expected, has_scores));
    assert_eq!(
        (found.elements().len(), ours.len()),
        (expected.elements().len(), theirs.len()),
        "{what}"
    );
    let is_there = |drawn: &Vec<Reply>| all.iter().any(|entry| entry[..drawn.len()] == drawn[..]);
    assert!(ours.iter().all(is_there), "{what}");
    if !words[2].starts_with(b"-") {
        let is_first = |at: usize| !ours[..at].contains(&ours[at]);
        assert!((0..ours.len()).all(is_first), "{what}");
    }
}

/// A small sorted set is returned at once and in order. Of others, which Redis returns in parts, all parts are compared.
fn compare_scan(pair: &mut Pair, words: &Words) {
    let (found, expected) = pair.ask(words);
    let (found, mut expected) = (Reply::parse(&found), Reply::parse(&expected));
    if found.is_like(&expected) {
        return;
    }
    let what = format!("{}: {found:?} instead of {expected:?}", shown(words));
    let mut theirs = Vec::new();
    loop {
        let [Reply::Bulk(cursor), part] = expected.elements() else {
            panic!("{what}")
        };
        theirs.extend(entries(part, true));
        if cursor == b"0" {
            break;
        }
        let mut words = words.clone();
        words[2] = cursor.clone();
        expected = Reply::parse(&pair.ask(&words).1);
    }
    let [Reply::Bulk(cursor), found] = found.elements() else {
        panic!("{what}")
    };
    let mut ours = entries(found, true);
    let by_member = |one: &Vec<Reply>, other: &Vec<Reply>| one[0].partial_cmp(&other[0]).expect("two strings");
    ours.sort_by(by_member);
    theirs.sort_by(by_member);
    let is_like = |(ours, theirs): (&Vec<Reply>, &Vec<Reply>)| ours[0] == theirs[0] && ours[1].is_like(&theirs[1]);
    assert_eq!((cursor.as_slice(), ours.len()), (&b"0"[..], theirs.len()), "{what}");
    assert!(ours.iter().zip(&theirs).all(is_like), "{what}");
}

#[test]
fn random_commands_have_the_replies_of_redis() {
    compare_all::<SortedSets>(1, 10_000, "HELLO 2");
}

#[test]
fn random_commands_have_the_replies_of_redis_in_resp3() {
    compare_all::<SortedSets>(2, 5000, "HELLO 3");
}

#[test]
fn descriptions_are_those_of_redis() {
    let mut pair = Pair::start("HELLO 2");
    // Those of ZRANK and ZREVRANK are other ones since 7.2.
    for name in [
        "zadd",
        "zcard",
        "zcount",
        "zdiff",
        "zdiffstore",
        "zincrby",
        "zinter",
        "zintercard",
        "zinterstore",
        "zlexcount",
        "zmpop",
        "zmscore",
        "zpopmax",
        "zpopmin",
        "zrandmember",
        "zrange",
        "zrangebylex",
        "zrangebyscore",
        "zrangestore",
        "zrem",
        "zremrangebylex",
        "zremrangebyrank",
        "zremrangebyscore",
        "zrevrange",
        "zrevrangebylex",
        "zrevrangebyscore",
        "zscan",
        "zscore",
        "zunion",
        "zunionstore",
    ] {
        pair.compare_description(name);
    }
    for line in [
        "COMMAND GETKEYS ZADD a 1 b",
        "COMMAND GETKEYS ZUNION 2 a b",
        "COMMAND GETKEYS ZINTERCARD 1 a LIMIT 3",
        "COMMAND GETKEYS ZUNIONSTORE a 2 b c WEIGHTS 1 2",
        "COMMAND GETKEYS ZRANGESTORE a b 0 1",
        "COMMAND GETKEYS ZMPOP 2 a b MIN",
        "COMMAND GETKEYSANDFLAGS ZADD a 1 b",
        "COMMAND GETKEYSANDFLAGS ZINCRBY a 1 b",
        "COMMAND GETKEYSANDFLAGS ZREM a b",
        "COMMAND GETKEYSANDFLAGS ZCARD a",
        "COMMAND GETKEYSANDFLAGS ZRANGE a 0 1",
        "COMMAND GETKEYSANDFLAGS ZRANGESTORE a b 0 1",
        "COMMAND GETKEYSANDFLAGS ZPOPMIN a",
        "COMMAND GETKEYSANDFLAGS ZREMRANGEBYSCORE a 0 1",
        "COMMAND GETKEYSANDFLAGS ZUNIONSTORE a 2 b c",
        "COMMAND GETKEYSANDFLAGS ZMPOP 2 a b MIN",
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
            "ACL SETUSER sorted on nopass ~* -@all +@sortedset",
            "ACL SETUSER others on nopass ~* +@all -@sortedset",
        ],
        &["keys", "sorted", "others"],
        &[
            "ZADD w 1 a",
            "ZADD r 1 a",
            "ZINCRBY w 1 a",
            "ZINCRBY x 1 a",
            "ZREM w a",
            "ZREM r a",
            "ZSCORE r a",
            "ZSCORE w a",
            "ZMSCORE r a",
            "ZCARD r",
            "ZCARD w",
            "ZCARD other",
            "ZRANK r a",
            "ZRANK w a",
            "ZCOUNT r 0 1",
            "ZCOUNT w 0 1",
            "ZLEXCOUNT w - +",
            "ZRANGE r 0 1",
            "ZRANGE w 0 1",
            "ZRANGESTORE w r 0 1",
            "ZRANGESTORE r w 0 1",
            "ZRANGESTORE w w 0 1",
            "ZPOPMIN x",
            "ZPOPMIN w",
            "ZREMRANGEBYRANK w 0 1",
            "ZREMRANGEBYSCORE r 0 1",
            "ZREMRANGEBYLEX w - +",
            "ZRANDMEMBER r",
            "ZRANDMEMBER w",
            "ZSCAN r 0",
            "ZSCAN w 0",
            "ZUNION 2 r x",
            "ZUNION 2 r w",
            "ZINTERCARD 1 w",
            "ZUNIONSTORE w 2 r x",
            "ZUNIONSTORE r 2 r x",
            "ZUNIONSTORE w 2 r w",
            "ZMPOP 1 x MIN",
            "ZMPOP 2 x r MIN",
            "GET r",
        ],
    );
}

#[test]
fn scores_are_written_as_since_redis_7_2() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            (
                "ZADD board 3.3 anna 0.1 ben 1e20 carla -inf dora 12345.6789 emil",
                ":5\r\n",
            ),
            ("ZSCORE board anna", "$3\r\n3.3\r\n"),
            ("ZINCRBY board 0.2 ben", "$19\r\n0.30000000000000004\r\n"),
            (
                "ZMSCORE board carla dora nobody",
                "*3\r\n$5\r\n1e+20\r\n$4\r\n-inf\r\n$-1\r\n",
            ),
            ("ZRANK board anna", ":2\r\n"),
            ("ZRANK board anna WITHSCORE", "*2\r\n:2\r\n$3\r\n3.3\r\n"),
            ("ZREVRANK board carla withscore", "*2\r\n:0\r\n$5\r\n1e+20\r\n"),
            ("ZRANK board nobody WITHSCORE", "*-1\r\n"),
            ("ZRANK nothing anna WITHSCORE", "*-1\r\n"),
            ("ZRANK board anna WITHSCORES", "-ERR syntax error\r\n"),
            ("ZRANK board anna WITHSCORE more", &arity("zrank")),
            ("ZREVRANK board anna WITHSCORE more", &arity("zrevrank")),
            ("ZRANK board", &arity("zrank")),
            (
                "ZSCAN board 0 MATCH e*",
                "*2\r\n$1\r\n0\r\n*2\r\n$4\r\nemil\r\n$10\r\n12345.6789\r\n",
            ),
        ],
    );
    client.ask("HELLO 3");
    check(
        &mut client,
        &[
            ("ZRANK board anna WITHSCORE", "*2\r\n:2\r\n,3.3\r\n"),
            ("ZRANK board nobody WITHSCORE", "_\r\n"),
            (
                "ZMPOP 2 nothing board MAX",
                "*2\r\n$5\r\nboard\r\n*1\r\n*2\r\n$5\r\ncarla\r\n,1e+20\r\n",
            ),
            (
                "ZSCAN board 0 MATCH a*",
                "*2\r\n$1\r\n0\r\n*2\r\n$4\r\nanna\r\n$3\r\n3.3\r\n",
            ),
        ],
    );
}

#[test]
fn a_board_of_scores_has_an_order() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("ZADD today 10 anna 20 ben 20 carla", ":3\r\n"),
            ("ZADD today GT CH 15 anna 5 ben", ":1\r\n"),
            ("EXPIRE today 1000", ":1\r\n"),
            ("ZRANGE today 0 0 REV WITHSCORES", "*2\r\n$5\r\ncarla\r\n$2\r\n20\r\n"),
            ("ZRANGE today (15 +inf BYSCORE", "*2\r\n$3\r\nben\r\n$5\r\ncarla\r\n"),
            ("ZADD yesterday 7 anna 50 emil", ":2\r\n"),
            ("ZUNIONSTORE both 2 today yesterday WEIGHTS 1 0.5", ":4\r\n"),
            (
                "ZREVRANGE both 0 1 WITHSCORES",
                "*4\r\n$4\r\nemil\r\n$2\r\n25\r\n$5\r\ncarla\r\n$2\r\n20\r\n",
            ),
            ("ZINTERCARD 2 today yesterday", ":1\r\n"),
            ("ZRANGESTORE today both 0 1", ":2\r\n"),
            ("TTL today", ":-1\r\n"),
            (
                "ZPOPMAX today 5",
                "*4\r\n$3\r\nben\r\n$2\r\n20\r\n$4\r\nanna\r\n$4\r\n18.5\r\n",
            ),
            ("EXISTS today", ":0\r\n"),
            ("ZDIFFSTORE both 1 today", ":0\r\n"),
            ("EXISTS both", ":0\r\n"),
            ("ZADD today INCR inf anna", "$3\r\ninf\r\n"),
            (
                "ZINCRBY today -inf anna",
                "-ERR resulting score is not a number (NaN)\r\n",
            ),
            (
                "ZMPOP 2 nothing today MIN COUNT 2",
                "*2\r\n$5\r\ntoday\r\n*1\r\n*2\r\n$4\r\nanna\r\n$3\r\ninf\r\n",
            ),
            ("ZMPOP 2 nothing today MIN", "*-1\r\n"),
        ],
    );
}

/// More replies than anybody keeps: they are written out while they are made.
#[test]
fn many_members_are_drawn_while_the_client_reads() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    client.ask("ZADD short 1 a 2 b");
    let reply = Reply::parse(&client.ask("ZRANDMEMBER short -500000 WITHSCORES").into_bytes());
    let entries = entries(&reply, true);
    assert_eq!(entries.len(), 500_000);
    let pair = |member: &[u8], score: &[u8]| vec![Reply::Bulk(member.to_vec()), Reply::Bulk(score.to_vec())];
    let count = |wanted: Vec<Reply>| entries.iter().filter(|entry| **entry == wanted).count();
    let (a, b) = (count(pair(b"a", b"1")), count(pair(b"b", b"2")));
    // Each is as likely as the other: it would be off by so much once in more tests than there will ever be.
    assert!(a + b == 500_000 && a.abs_diff(b) < 20_000, "{a} {b}");
    // One that nobody wants is not made, whatever it is drawn from.
    client.ask("SADD set a b");
    client.ask("HSET hash a 1 b 2");
    for command in ["ZRANDMEMBER short", "SRANDMEMBER set", "HRANDFIELD hash"] {
        client.send(format!("CLIENT REPLY OFF\r\n{command} -9223372036854775807\r\nCLIENT REPLY ON\r\n").as_bytes());
        assert_eq!(client.receive(), b"+OK\r\n", "{command}");
    }
    client.send(b"PING\r\n");
    assert_eq!(client.receive(), b"+PONG\r\n");
    client.call(&[b"ZADD", b"long", b"1", &vec![b'x'; 1 << 20]]);
    check(
        &mut client,
        &[
            ("MULTI", "+OK\r\n"),
            ("ZRANDMEMBER long -9223372036854775807", "+QUEUED\r\n"),
            (
                "EXEC",
                "-EXECABORT Transaction discarded because of: ERR the replies are longer than 256 MiB\r\n",
            ),
        ],
    );
}
