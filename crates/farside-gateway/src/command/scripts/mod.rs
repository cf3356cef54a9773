//! EVAL, EVALSHA and SCRIPT, for the scripts of lock libraries.
//!
//! On the path: between a client library and the session's atomic changes. [`known`] is the table of
//! scripts, [`normal`] makes their writing irrelevant, [`run`] does what they say. No Lua is run; a
//! script that is not known is refused.
//!
//! A script that was given to EVAL or SCRIPT LOAD can be named by its SHA-1 at this gateway until it
//! ends, or until [`LOADED_MAX`] others came; then clients are told NOSCRIPT, and send it again.

mod known;
mod normal;
mod run;

use std::collections::BTreeMap;

use farside_value::integer;
use sha1::{Digest, Sha1};

use self::known::Script;
use super::{Call, Handled, NOT_AN_INTEGER, Refusal, help};
use crate::live::lock;
use crate::request::Request;

/// How many scripts are remembered; there are few texts, but many ways to write them.
const LOADED_MAX: usize = 1024;

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
const UNKNOWN: &str = "ERR this script is not supported: only the scripts of well-known lock libraries are, \
                       see the list in docs/redis-commands.md";

type Sha = [u8; 20];

/// Scripts by the SHA-1 of their text.
#[derive(Default, Debug)]
pub(crate) struct Loaded(BTreeMap<Sha, Script>);

impl Loaded {
    fn insert(&mut self, sha: Sha, script: Script) {
        if self.0.len() >= LOADED_MAX && !self.0.contains_key(&sha) {
            self.0.clear();
        }
        self.0.insert(sha, script);
    }
}

fn sha(text: &[u8]) -> Sha {
    Sha1::digest(text).into()
}

fn to_hex(sha: Sha) -> String {
    sha.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &[u8]) -> Option<Sha> {
    let digits: &[u8; 40] = text.try_into().ok()?;
    let mut sha = [0; 20];
    for (byte, pair) in sha.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16);
        *byte = (value(pair[0])? * 16 + value(pair[1])?) as u8;
    }
    Some(sha)
}

/// Finds a script by its text, and remembers it.
fn load(call: &Call<'_>, text: &[u8]) -> Option<(Sha, Script)> {
    let sha = sha(text);
    let mut loaded = lock(&call.context.shared.live.scripts);
    if let Some(script) = loaded.0.get(&sha) {
        return Some((sha, *script));
    }
    let script = known::find(text)?;
    loaded.insert(sha, script);
    Some((sha, script))
}

/// How many of the arguments after the script and the number are keys.
fn key_count(request: &Request<'_>) -> Result<usize, Refusal> {
    let number = integer::parse(request.arg(2)).ok_or(NOT_AN_INTEGER)?;
    let count = usize::try_from(number).map_err(|_| "ERR Number of keys can't be negative")?;
    if count > request.len() - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    Ok(count)
}

pub(crate) async fn eval(call: &mut Call<'_>) -> Handled {
    let keys = key_count(call.request)?;
    let (sha, script) = load(call, call.request.arg(1)).ok_or(UNKNOWN)?;
    run::run(call, sha, script, keys).await
}

pub(crate) async fn evalsha(call: &mut Call<'_>) -> Handled {
    let keys = key_count(call.request)?;
    let sha = from_hex(call.request.arg(1)).ok_or(NO_SCRIPT)?;
    let script = lock(&call.context.shared.live.scripts).0.get(&sha).copied();
    run::run(call, sha, script.ok_or(NO_SCRIPT)?, keys).await
}

pub(crate) async fn script(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let scripts = &call.context.shared.live.scripts;
    if request.arg_is(1, "load") {
        let (sha, _) = load(call, request.arg(2)).ok_or(UNKNOWN)?;
        call.reply.bulk(to_hex(sha).as_bytes());
    } else if request.arg_is(1, "exists") {
        let loaded = lock(scripts);
        call.reply.array(request.len() - 2);
        for text in request.args(2) {
            let is_loaded = from_hex(text).is_some_and(|sha| loaded.0.contains_key(&sha));
            call.reply.integer(is_loaded.into());
        }
    } else if request.arg_is(1, "flush") {
        let is_plain = match request.len() {
            2 => true,
            3 => request.arg_is(2, "sync") || request.arg_is(2, "async"),
            _ => false,
        };
        if !is_plain {
            return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
        }
        lock(scripts).0.clear();
        call.reply.ok();
    } else if request.arg_is(1, "kill") {
        return Err("NOTBUSY No scripts in execution right now.".into());
    } else {
        help(
            call.reply,
            "SCRIPT",
            &[
                "EXISTS <sha1> [<sha1> ...]",
                "    Return information about the existence of the scripts in the script cache.",
                "FLUSH [ASYNC|SYNC]",
                "    Flush the script cache.",
                "KILL",
                "    Nothing: no script runs long.",
                "LOAD <script>",
                "    Load a known script into the script cache without executing it.",
            ],
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_redis() {
        assert_eq!(to_hex(sha(b"return 1")), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!(
            from_hex(b"E0E1F9FABFC9D4800C877A703B823AC0578FF8DB"),
            Some(sha(b"return 1"))
        );
        for text in ["", "e0", "x0e1f9fabfc9d4800c877a703b823ac0578ff8db"] {
            assert_eq!(from_hex(text.as_bytes()), None);
        }
    }

    #[test]
    fn the_memory_of_scripts_is_bounded() {
        let mut loaded = Loaded::default();
        for number in 0..10_000_u32 {
            loaded.insert(sha(&number.to_le_bytes()), Script::ReleaseAll);
            assert!(loaded.0.len() <= LOADED_MAX);
        }
    }
}
