//! Random commands, the same ones to `redis-server` and to Farside, whose replies are compared byte by byte.
//!
//! `FARSIDE_DIFFERENTIAL` is how many commands each of these tests sends, if it is set; `FARSIDE_DIFFERENTIAL_SEED` another seed.

use super::client::Client;
use super::process::Server;
use super::redis::Redis;
use crate::soak::dice::Dice;

pub(crate) type Words = Vec<Vec<u8>>;

/// What commands are made of; everything follows from a seed.
pub(crate) struct Author {
    pub(crate) dice: Dice,
}

impl Author {
    pub(crate) fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.dice.roll(of.len() as u64) as usize]
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.dice.roll(100) < percent
    }

    /// A word in any case, and sometimes another word.
    pub(crate) fn option(&mut self, word: &str) -> Vec<u8> {
        match self.dice.roll(40) {
            0 => b"what".to_vec(),
            1..=10 => word.to_lowercase().into_bytes(),
            _ => word.to_owned().into_bytes(),
        }
    }

    /// A small number, seldom a very large one or what is none.
    pub(crate) fn number(&mut self) -> Vec<u8> {
        let text = match self.dice.roll(40) {
            0 => self.pick(&["x", "", "1.5", "01", "-0", "+1", " 1"]).to_owned(),
            1 => {
                let large = [
                    "9223372036854775807",
                    "-9223372036854775807",
                    "-9223372036854775808",
                    "9223372036854775808",
                    "4611686018427387904",
                ];
                self.pick(&large).to_owned()
            }
            2..=12 => format!("-{}", self.dice.between(1, 12)),
            _ => self.dice.roll(12).to_string(),
        };
        text.into_bytes()
    }

    /// How many of something: mostly more than 0, and not many.
    pub(crate) fn count(&mut self) -> Vec<u8> {
        match self.chance(70) {
            true => self.dice.between(1, 6).to_string().into_bytes(),
            false => self.number(),
        }
    }

    /// One of few strings, so that some are equal.
    pub(crate) fn element(&mut self) -> Vec<u8> {
        match self.dice.roll(50) {
            0 => b"long".repeat(40),
            1 => (0..self.dice.roll(20)).map(|_| self.dice.word() as u8).collect(),
            2 => self
                .pick(&["9223372036854775807", "9223372036854775808", "-1000000"])
                .into(),
            3..=14 => self.dice.roll(12).to_string().into_bytes(),
            _ => self
                .pick(&["a", "b", "c", "d", "e", "f", "ab", "abc", "", "-1", "01", "x y"])
                .into(),
        }
    }

    /// Seldom there are fewer words, or one more.
    pub(crate) fn spoil(&mut self, words: &mut Words) {
        match self.dice.roll(150) {
            0 => drop(words.pop()),
            1 => words.push(b"more".to_vec()),
            _ => {}
        }
    }
}

/// A reply as a tree.
#[derive(Clone, PartialEq, PartialOrd, Debug)]
pub(crate) enum Reply {
    /// A line of a kind: simple string, error, number, double, nothing.
    Line(u8, Vec<u8>),
    Bulk(Vec<u8>),
    /// Of a kind: array, set, map.
    Several(u8, Vec<Self>),
}

impl Reply {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let mut at = 0;
        let reply = Self::parse_at(bytes, &mut at);
        assert_eq!(at, bytes.len(), "more than one reply: {}", bytes.escape_ascii());
        reply
    }

    fn parse_at(bytes: &[u8], at: &mut usize) -> Self {
        let end = *at
            + bytes[*at..]
                .windows(2)
                .position(|two| two == b"\r\n")
                .expect("an end of a line");
        let (kind, line) = (bytes[*at], &bytes[*at + 1..end]);
        *at = end + 2;
        let count = || {
            str::from_utf8(line)
                .ok()
                .and_then(|text| text.parse().ok())
                .expect("a length")
        };
        match kind {
            b'$' if line != b"-1" => {
                let start = *at;
                *at = start + count() + 2;
                Self::Bulk(bytes[start..*at - 2].to_vec())
            }
            b'*' | b'~' | b'%' if line != b"-1" => {
                let several = if kind == b'%' { 2 * count() } else { count() };
                Self::Several(kind, (0..several).map(|_| Self::parse_at(bytes, at)).collect())
            }
            _ => Self::Line(kind, line.to_vec()),
        }
    }

    /// Its elements; none if it has no such.
    pub(crate) fn elements(&self) -> &[Self] {
        match self {
            Self::Several(_, elements) => elements,
            _ => &[],
        }
    }

    /// Whether both are one reply, but for the digits of doubles: Redis 7.0 writes 17 of them.
    pub(crate) fn is_like(&self, theirs: &Self) -> bool {
        match (self, theirs) {
            (Self::Bulk(ours), Self::Bulk(theirs)) => ours == theirs || is_same_double(ours, theirs),
            (Self::Line(b',', ours), Self::Line(b',', theirs)) => ours == theirs || is_same_double(ours, theirs),
            (Self::Several(kind, ours), Self::Several(other, theirs)) => {
                let mut pairs = ours.iter().zip(theirs);
                kind == other && ours.len() == theirs.len() && pairs.all(|(ours, theirs)| ours.is_like(theirs))
            }
            _ => self == theirs,
        }
    }
}

/// Whether digits stand for one double. (A small sorted set of Redis forgets the sign of 0.)
fn is_same_double(ours: &[u8], theirs: &[u8]) -> bool {
    let is_digits = theirs.iter().any(|byte| matches!(byte, b'.' | b'e')) || ours == b"-0" || theirs == b"-0";
    let number = |text| str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    is_digits && number(ours).is_some() && number(ours) == number(theirs)
}

pub(crate) fn shown(words: &Words) -> String {
    let words: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
    words.join(" ")
}

/// A client of each server.
pub(crate) struct Pair {
    pub(crate) ours: Client,
    pub(crate) theirs: Client,
    /// How many commands Redis has refused.
    pub(crate) refused: u64,
    _server: Server,
    _redis: Redis,
    _folder: tempfile::TempDir,
}

impl Pair {
    /// Two servers without keys, whose clients have said this.
    pub(crate) fn start(hello: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Server::serve(&["--memory", "64MiB"]);
        // The longest value of Farside is the longest one of this server, too.
        let redis = Redis::start_with(folder.path(), &["--proto-max-bulk-len", "16777216"]);
        let mut pair = Self {
            ours: server.client(),
            theirs: redis.client(),
            refused: 0,
            _server: server,
            _redis: redis,
            _folder: folder,
        };
        for client in [&mut pair.ours, &mut pair.theirs] {
            client.ask(hello);
        }
        pair
    }

    /// Sends a command to both, and returns the replies of Farside and of Redis.
    pub(crate) fn ask(&mut self, words: &Words) -> (Vec<u8>, Vec<u8>) {
        let arguments: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let replies = (self.ours.call(&arguments), self.theirs.call(&arguments));
        self.refused += u64::from(replies.1.starts_with(b"-"));
        replies
    }

    /// Sends a command to both; the replies are the same.
    pub(crate) fn compare(&mut self, words: &Words) {
        let (found, expected) = self.ask(words);
        if found != expected && !Reply::parse(&found).is_like(&Reply::parse(&expected)) {
            let (found, expected) = (found.escape_ascii(), expected.escape_ascii());
            panic!("{}: {found} instead of {expected}", shown(words));
        }
    }

    /// The same with a command as a line.
    pub(crate) fn compare_line(&mut self, line: &str) {
        self.compare(&line.split(' ').map(Into::into).collect());
    }
}

/// What is known of a command without executing it.
impl Pair {
    /// Name, arity, flags, places of keys, and categories; tips and key specifications are not told here.
    pub(crate) fn compare_description(&mut self, name: &str) {
        let line = format!("COMMAND INFO {name}");
        let (found, expected) = (self.ours.ask(&line), self.theirs.ask(&line));
        let shown = |reply: &str| {
            let last = reply.rfind("+@").expect("a category");
            reply[..last + 6].to_owned()
        };
        assert_eq!(shown(&found), shown(&expected), "{name}");
    }

    /// Whether each of these users, whom `rules` have made, may do each of these commands.
    pub(crate) fn compare_rights(&mut self, rules: &[&str], users: &[&str], commands: &[&str]) {
        for rule in rules {
            assert_eq!(self.ours.ask(rule), "+OK\r\n", "{rule}");
            assert_eq!(self.theirs.ask(rule), "+OK\r\n", "{rule}");
        }
        for command in commands {
            for user in users {
                let line = format!("ACL DRYRUN {user} {command}");
                let (found, expected) = (self.ours.ask(&line), self.theirs.ask(&line));
                let is_allowed = |reply: &str| reply.starts_with("+OK");
                assert_eq!(
                    is_allowed(&found),
                    is_allowed(&expected),
                    "{line}: {found} instead of {expected}"
                );
            }
        }
    }
}

/// What the variable says, or this.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name} is a number, and not {text}")),
        Err(_) => default,
    }
}
