//! Bitmaps, HyperLogLog and LCS: every reply is that of `redis-server` 7.0, byte by byte. (Later versions look at the arguments
//! of BITCOUNT and BITPOS before they look for the key.)

use core::ops::Range;

use super::client::Client;
use super::commands::{NOT_AN_INTEGER, check};
use super::differential::{Author, Pair, Words};
use super::process::Server;
use super::unordered::{Type, compare_all};

/// What these commands are made of beside that.
impl Author {
    /// Any key; few of them are of the other kind.
    fn bitmap(&mut self) -> &'static str {
        match self.chance(4) {
            true => self.log(),
            false => self.pick(&["a", "b", "c", "d", "none"]),
        }
    }

    fn log(&mut self) -> &'static str {
        self.pick(&["log:a", "log:b", "log:c", "log:d", "log:none"])
    }

    /// A log, or a key whose value is none.
    fn counted(&mut self) -> &'static str {
        match self.chance(3) {
            true => "text",
            false => self.log(),
        }
    }

    /// A number, or what is none.
    fn bit_number(&mut self) -> String {
        match self.dice.roll(20) {
            0 => self.pick(&["x", "", "1.5", "01", "-0", "+1", " 1", "#1"]).to_owned(),
            1 => self
                .pick(&["9223372036854775807", "-9223372036854775808", "9223372036854775808"])
                .to_owned(),
            2..=5 => format!("-{}", self.dice.between(1, 40)),
            6..=9 => format!("{}", self.dice.roll(2000)),
            10..=12 => format!("{}", 8 * self.dice.roll(30)),
            _ => format!("{}", self.dice.roll(20)),
        }
    }

    /// A place in a bitmap that is not too long to be compared.
    fn offset(&mut self) -> String {
        match self.dice.roll(30) {
            0 => self.bit_number(),
            1 => self.pick(&["134217728", "4294967296", "-1", "#0", "##1"]).to_owned(),
            2..=5 => format!("{}", self.dice.roll(15_000)),
            _ => format!("{}", self.dice.roll(200)),
        }
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let length = self.dice.roll(most + 1);
        let filler = self.pick(&["", "\0", "\u{7f}"]).as_bytes().first().copied();
        (0..length)
            .map(|_| filler.unwrap_or_else(|| self.dice.word() as u8))
            .collect()
    }

    fn steps(&mut self, words: &mut Words) {
        for _ in 0..self.dice.roll(4) {
            if self.chance(30) {
                let kind = self.pick(&["WRAP", "SAT", "FAIL"]);
                words.extend([self.option("OVERFLOW"), self.option(kind)]);
            }
            let name = self.pick(&["GET", "GET", "SET", "INCRBY"]);
            let mut kind = format!("{}{}", self.pick(&["i", "u"]), self.dice.between(1, 64));
            if self.chance(10) {
                kind = self
                    .pick(&["i64", "u63", "u64", "i65", "u0", "i", "", "8", "I8", "u 8", "u-1"])
                    .to_owned();
            }
            let offset = match self.chance(30) {
                true => format!("#{}", self.dice.roll(20)),
                false => self.offset(),
            };
            words.extend([self.option(name), kind.into_bytes(), offset.into_bytes()]);
            if name != "GET" {
                let number = match self.chance(30) {
                    // Such that some fit and some do not.
                    true => (self.dice.word() as i64 >> self.dice.roll(64)).to_string(),
                    false => self.bit_number(),
                };
                words.push(number.into_bytes());
            }
        }
    }

    /// The ends of a range, or some of them, and perhaps their unit.
    fn range(&mut self, words: &mut Words) {
        let ends = self.dice.roll(3);
        words.extend((0..ends).map(|_| self.bit_number().into_bytes()));
        if self.chance(if ends == 2 { 60 } else { 5 }) {
            let unit = self.pick(&["BIT", "BYTE"]);
            words.push(self.option(unit));
        }
    }

    fn command(&mut self) -> Words {
        let names = [
            "SET",
            "SETRANGE",
            "SETBIT",
            "SETBIT",
            "SETBIT",
            "GETBIT",
            "BITCOUNT",
            "BITCOUNT",
            "BITPOS",
            "BITPOS",
            "BITOP",
            "BITFIELD",
            "BITFIELD",
            "BITFIELD",
            "BITFIELD_RO",
            "LCS",
            "LCS",
            "PFADD",
            "PFADD",
            "PFADD",
            "PFCOUNT",
            "PFCOUNT",
            "PFMERGE",
            "PFDEBUG",
            "DEL",
            "GET",
            "EXPIREAT",
            "EXPIRETIME",
        ];
        let name = self.pick(&names);
        let mut words: Words = vec![name.into()];
        match name {
            // Only these two store what is no bitmap under the keys of bitmaps, and nothing else under those of the others.
            "SET" => {
                let bytes = self.bytes(120);
                words.extend([self.pick(&["a", "b", "c", "d"]).into(), bytes]);
            }
            "SETRANGE" => {
                let offset = self.dice.roll(200).to_string();
                let bytes = self.bytes(20);
                words.extend([self.pick(&["a", "b", "c", "d"]).into(), offset.into(), bytes]);
            }
            "SETBIT" => {
                let key = self.pick(&["a", "b", "c", "d", "e"]);
                let bit = match self.chance(95) {
                    true => self.pick(&["0", "1"]).to_owned(),
                    false => self.bit_number(),
                };
                words.extend([key.into(), self.offset().into_bytes(), bit.into_bytes()]);
            }
            "GETBIT" => words.extend([self.bitmap().into(), self.offset().into_bytes()]),
            "BITCOUNT" => {
                words.push(self.bitmap().into());
                self.range(&mut words);
            }
            "BITPOS" => {
                let bit = match self.chance(95) {
                    true => self.pick(&["0", "1"]).to_owned(),
                    false => self.bit_number(),
                };
                words.extend([self.bitmap().into(), bit.into_bytes()]);
                self.range(&mut words);
            }
            "BITOP" => {
                let operation = self.pick(&["AND", "OR", "XOR", "NOT"]);
                words.push(self.option(operation));
                for _ in 0..self.dice.between(2, 5) {
                    words.push(self.pick(&["a", "b", "c", "d", "e", "none"]).into());
                }
                if operation == "NOT" && self.chance(80) {
                    words.truncate(4);
                }
            }
            "BITFIELD" => {
                words.push(self.pick(&["a", "b", "c", "d", "e"]).into());
                self.steps(&mut words);
            }
            "BITFIELD_RO" => {
                words.push(self.bitmap().into());
                self.steps(&mut words);
            }
            "LCS" => {
                words.extend((0..2).map(|_| self.pick(&["a", "b", "c", "d", "none"]).into()));
                for _ in 0..self.dice.roll(4) {
                    let option = self.pick(&["LEN", "IDX", "IDX", "WITHMATCHLEN", "MINMATCHLEN"]);
                    words.push(self.option(option));
                    if option == "MINMATCHLEN" {
                        words.push(self.bit_number().into_bytes());
                    }
                }
            }
            "PFADD" => {
                words.push(self.counted().into());
                let elements = [0, 1, 3, 300][self.dice.roll(4) as usize];
                for _ in 0..elements {
                    let element = match self.chance(20) {
                        true => self.bytes(40),
                        false => self.dice.roll(20_000).to_string().into(),
                    };
                    words.push(element);
                }
            }
            "PFCOUNT" | "PFMERGE" => {
                for _ in 0..self.dice.between(1, 4) {
                    words.push(self.counted().into());
                }
            }
            "PFDEBUG" => {
                // Few of them make it dense.
                let name = match self.chance(10) {
                    true => self.pick(&["GETREG", "TODENSE"]),
                    false => self.pick(&["ENCODING", "DECODE"]),
                };
                words.extend([self.option(name), self.counted().into()]);
            }
            "EXPIREAT" => {
                let key = if self.chance(50) { self.bitmap() } else { self.log() };
                words.extend([key.into(), b"4102444800".to_vec()]);
            }
            _ => {
                // Few logs are removed, so that some become dense.
                let key = if self.chance(80) { self.bitmap() } else { self.log() };
                words.push(key.into());
            }
        }
        match self.dice.roll(100) {
            0 => drop(words.pop()),
            1 => words.push(b"more".to_vec()),
            _ => {}
        }
        words
    }
}

struct Bits;

impl Type for Bits {
    fn write(author: &mut Author, _is_in_multi: bool) -> Words {
        author.command()
    }

    fn begin(pair: &mut Pair) {
        pair.compare(&["SET", "text", "no log"].map(Into::into).into());
    }

    fn end(pair: &mut Pair) {
        for key in [
            "a", "b", "c", "d", "e", "log:a", "log:b", "log:c", "log:d", "log:none", "none",
        ] {
            for name in ["GET", "EXPIRETIME"] {
                pair.compare_line(&format!("{name} {key}"));
            }
        }
    }
}

#[test]
fn random_commands_have_the_replies_of_redis() {
    compare_all::<Bits>(1, 6000, "HELLO 2");
}

#[test]
fn random_commands_have_the_replies_of_redis_in_resp3() {
    compare_all::<Bits>(2, 3000, "HELLO 3");
}

#[test]
fn descriptions_are_those_of_redis() {
    let mut pair = Pair::start("HELLO 2");
    for name in [
        "setbit",
        "getbit",
        "bitcount",
        "bitpos",
        "bitop",
        "bitfield",
        "bitfield_ro",
        "lcs",
        "pfadd",
        "pfcount",
        "pfdebug",
        "pfmerge",
    ] {
        pair.compare_description(name);
    }
    for line in [
        "COMMAND GETKEYS BITOP AND a b c d",
        "COMMAND GETKEYS PFMERGE a b c",
        "COMMAND GETKEYS PFCOUNT a b",
        "COMMAND GETKEYS LCS a b LEN",
        "COMMAND GETKEYS BITFIELD a GET u8 0",
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
            "ACL SETUSER bits on nopass ~* -@all +@bitmap",
            "ACL SETUSER logs on nopass ~* +@all -@hyperloglog",
        ],
        &["keys", "bits", "logs"],
        &[
            "SETBIT w 1 1",
            "SETBIT r 1 1",
            "SETBIT x 1 1",
            "GETBIT r 1",
            "GETBIT w 1",
            "BITCOUNT r",
            "BITCOUNT w",
            "BITPOS r 1",
            "BITPOS w 1",
            "BITOP NOT w r",
            "BITOP NOT w w",
            "BITOP NOT r r",
            "BITOP AND w r x r",
            "BITOP AND w r w r",
            "BITFIELD r GET u8 0",
            "BITFIELD w GET u8 0",
            "BITFIELD r",
            "BITFIELD w SET u8 0 1",
            "BITFIELD x SET u8 0 1",
            "BITFIELD r OVERFLOW SAT GET u8 0",
            "BITFIELD r GET u8 0 SET u8 0 1",
            "BITFIELD r GET u8",
            "BITFIELD r what",
            "BITFIELD_RO r GET u8 0",
            "BITFIELD_RO w GET u8 0",
            "LCS r r",
            "LCS r w",
            "PFADD w a",
            "PFADD r a",
            "PFCOUNT r r",
            "PFCOUNT w",
            "PFCOUNT r w",
            "PFDEBUG ENCODING r",
            "PFDEBUG ENCODING w",
            "PFMERGE x r",
            "PFMERGE w r",
            "PFMERGE x w",
            "PFMERGE x r w",
        ],
    );
}

/// The string of a reply.
fn string(reply: &[u8]) -> &[u8] {
    let start = reply.iter().position(|&byte| byte == b'\n').expect("a head") + 1;
    &reply[start..reply.len() - 2]
}

#[test]
fn logs_go_both_ways() {
    let mut pair = Pair::start("HELLO 2");
    let (ours, theirs) = (&mut pair.ours, &mut pair.theirs);
    let add = |client: &mut Client, numbers: Range<usize>| {
        let elements: Vec<String> = numbers.map(|number| format!("element{number}")).collect();
        client.ask(&["PFADD log", &elements.join(" ")].join(" "));
    };
    for count in [1, 10, 500, 5000] {
        for is_ours_first in [true, false] {
            let (one, other) = match is_ours_first {
                true => (&mut *ours, &mut *theirs),
                false => (&mut *theirs, &mut *ours),
            };
            one.ask("DEL log");
            add(one, 0..count);
            let counted = one.ask("PFCOUNT log");
            let payload = one.call(&[b"DUMP", b"log"]);
            let restored = other.call(&[b"RESTORE", b"log", b"0", string(&payload), b"REPLACE"]);
            assert_eq!(restored, b"+OK\r\n");
            assert_eq!(other.ask("PFCOUNT log"), counted);
            add(other, count..2 * count);
            let value = other.call(&[b"GET", b"log"]);
            assert_eq!(one.call(&[b"SET", b"log", string(&value)]), b"+OK\r\n");
            for client in [&mut *one, &mut *other] {
                add(client, 2 * count..3 * count);
            }
            assert_eq!(one.ask("PFCOUNT log"), other.ask("PFCOUNT log"));
            assert!(one.call(&[b"GET", b"log"]) == other.call(&[b"GET", b"log"]), "{count}");
        }
    }
}

#[test]
fn what_is_no_log_is_refused() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    let wrong = "-WRONGTYPE Key is not a valid HyperLogLog string value.\r\n";
    let corrupt = "-INVALIDOBJ Corrupted HLL object detected\r\n";
    // Half of the registers, and more than all of them.
    for opcodes in [&[0x5f, 0xff][..], &[0x7f, 0xff, 0]] {
        let value = [&b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80"[..], opcodes].concat();
        client.call(&[b"SET", b"bad", &value]);
        check(
            &mut client,
            &[
                ("PFCOUNT bad", corrupt),
                ("PFCOUNT log bad", corrupt),
                ("PFMERGE log bad", corrupt),
                ("PFMERGE bad log", corrupt),
                ("EXISTS log", ":0\r\n"),
            ],
        );
        assert_eq!(string(&client.call(&[b"GET", b"bad"])), value);
    }
    check(
        &mut client,
        &[
            ("SET text HYLL", "+OK\r\n"),
            ("PFADD text a", wrong),
            ("PFADD text", wrong),
            ("PFCOUNT text", wrong),
            ("PFCOUNT log text", wrong),
            ("PFMERGE text log", wrong),
            ("PFMERGE log text", wrong),
            ("EXISTS log", ":0\r\n"),
            ("GET text", "$4\r\nHYLL\r\n"),
        ],
    );
}

#[test]
fn values_do_not_get_too_long() {
    let server = Server::serve(&["--memory", "256MiB"]);
    let mut client = server.client();
    let no_offset = "-ERR bit offset is not an integer or out of range\r\n";
    let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n";
    check(
        &mut client,
        &[
            ("SETBIT long 134217727 1", ":0\r\n"),
            ("SETBIT long 134217728 1", no_offset),
            ("GETBIT long 134217727", ":1\r\n"),
            ("GETBIT long 134217728", no_offset),
            ("STRLEN long", ":16777216\r\n"),
            ("BITCOUNT long", ":1\r\n"),
            ("BITPOS long 1", ":134217727\r\n"),
            (
                "BITFIELD long GET u8 134217724 INCRBY u4 134217724 2",
                "*2\r\n:16\r\n:3\r\n",
            ),
            ("BITFIELD other SET u8 134217724 1", too_long),
            ("BITFIELD other SET u8 #16777216 1", no_offset),
            ("EXISTS other", ":0\r\n"),
            ("BITOP NOT other long", ":16777216\r\n"),
            ("BITCOUNT other", ":134217726\r\n"),
            ("BITPOS other 0", ":134217726\r\n"),
            ("BITCOUNT other x 1", NOT_AN_INTEGER),
            ("SET short abc", "+OK\r\n"),
            (
                "LCS long short LEN",
                "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len\r\n",
            ),
        ],
    );
}
