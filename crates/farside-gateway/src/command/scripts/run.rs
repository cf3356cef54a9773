//! What a known script does, in the session's terms.
//!
//! On the path: after a script was found. One key is changed by one atomic change, several keys by a transaction.

use farside_kv::{Alteration, Expiry, SetOptions};
use farside_value::integer;

use super::known::{Answer, Compare, One, Script, Step};
use super::{Call, Handled, NOT_AN_INTEGER, Refusal, Sha, to_hex};
use crate::command::expiry::{Unit, now};

const MISSING_ARGUMENT: &str = "ERR Lua redis lib command arguments must be strings or integers";

/// The arguments behind the keys.
struct Arguments<'a>(Vec<&'a [u8]>);

impl<'a> Arguments<'a> {
    fn get(&self, index: usize) -> &'a [u8] {
        self.0.get(index).copied().unwrap_or_default()
    }
}

pub(super) async fn run(call: &mut Call<'_>, sha: Sha, script: Script, key_count: usize) -> Handled {
    let keys: Vec<&[u8]> = call.request.args(3).take(key_count).collect();
    let arguments = Arguments(call.request.args(3 + key_count).collect());
    let answer = match script {
        Script::One(one) => match keys.first() {
            Some(key) => run_one(call, one, key, &arguments).await,
            None => Err(MISSING_ARGUMENT.into()),
        },
        Script::AcquireAll => acquire_all(call, &keys, &arguments).await,
        Script::ExtendAll => extend_all(call, &keys, &arguments).await,
        Script::ReleaseAll => release_all(call, &keys, &arguments).await,
    };
    // What goes wrong inside a script names the script, as in Redis.
    let answer = answer.map_err(|refusal| match refusal {
        Refusal::Text(text) => Refusal::from(format!("{text} script: {}", to_hex(sha))),
        other => other,
    })?;
    match answer {
        Answer::Number(number) => call.reply.integer(number),
        Answer::Nil => call.reply.null(),
        Answer::Ok => call.reply.ok(),
        Answer::Error(text) => return Err(format!("ERR {text}").into()),
    }
    Ok(())
}

/// The changes of one attempt: what becomes of the key, and what is answered.
type Outcome<'v> = (Alteration<'v>, Result<Answer, Refusal>);

async fn run_one(call: &mut Call<'_>, one: One, key: &[u8], arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let uses_ms = |step| matches!(step, Step::Expire | Step::ExpireOrAdd | Step::Set(_));
    let needed = match uses_ms(one.equal) || uses_ms(one.absent) {
        true => one.ms_at + 1,
        // A token that is not given is equal to nothing.
        false => 0,
    };
    if arguments.0.len() < needed {
        return Err(MISSING_ARGUMENT.into());
    }
    let prefix_bytes = match one.compare {
        Compare::Whole => None,
        Compare::Prefix => {
            let bytes = integer::parse(arguments.get(1)).and_then(|bytes| usize::try_from(bytes).ok());
            Some(bytes.ok_or(NOT_AN_INTEGER)?)
        }
    };
    let now_ms = call.context.store.endpoint().unix_ms();
    let token = arguments.0.first().copied();
    let mut answer = Ok(Answer::Nil);
    let altered = call.keys.alter(key, now(call.context), |stored| {
        let step = match stored {
            None => one.absent,
            Some((value, _)) if is_equal(value, token, prefix_bytes) => one.equal,
            Some(_) => one.different,
        };
        let expiry_ms = stored.map_or(0, |(_, expiry_ms)| expiry_ms);
        let (alteration, reply) = take_step(step, expiry_ms, now_ms, arguments, one.ms_at);
        answer = reply;
        alteration
    });
    altered.await?;
    answer
}

fn is_equal(value: &[u8], token: Option<&[u8]>, prefix_bytes: Option<usize>) -> bool {
    let Some(token) = token else {
        return false;
    };
    match prefix_bytes {
        // No byte is the whole value for GETRANGE and nothing for string.sub.
        Some(0) => value.is_empty(),
        Some(bytes) => value[..bytes.min(value.len())] == token[..bytes.min(token.len())],
        None => value == token,
    }
}

/// What a step does to a key that expires at `expiry_ms` (0: never, or not there).
fn take_step<'v>(step: Step, expiry_ms: u64, now_ms: u64, arguments: &Arguments<'v>, ms_at: usize) -> Outcome<'v> {
    let one = Ok(Answer::Number(1));
    let left_ms = expiry_ms.saturating_sub(now_ms).min(i64::MAX as u64) as i64;
    let expire_at = |at_ms: Result<i64, Refusal>| match at_ms {
        // What is before 1970 is past like its first millisecond.
        Ok(at_ms) => (
            Alteration::Expire(Expiry::AtMs(at_ms.max(0).unsigned_abs())),
            Ok(Answer::Number(1)),
        ),
        Err(refusal) => (Alteration::Keep, Err(refusal)),
    };
    match step {
        Step::Answer(answer) => (Alteration::Keep, Ok(answer)),
        Step::Delete => (Alteration::Delete, one),
        Step::Expire => expire_at(Unit::MILLISECONDS.any_at_ms("pexpire", arguments.get(ms_at), now_ms)),
        Step::ExpireOrAdd if expiry_ms == 0 => (Alteration::Keep, Ok(Answer::Number(0))),
        Step::ExpireOrAdd if arguments.get(2) == b"0" => {
            let from_ms = expiry_ms.max(now_ms);
            expire_at(Unit::MILLISECONDS.any_at_ms("pexpire", arguments.get(ms_at), from_ms))
        }
        Step::ExpireOrAdd => expire_at(Unit::MILLISECONDS.any_at_ms("pexpire", arguments.get(ms_at), now_ms)),
        Step::Set(answer) => match Unit::MILLISECONDS.at_ms("set", arguments.get(ms_at), || now_ms) {
            Ok(at_ms) => {
                let put = Alteration::Put {
                    value: arguments.get(0),
                    expiry: Expiry::AtMs(at_ms),
                };
                (put, Ok(answer))
            }
            Err(refusal) => (Alteration::Keep, Err(refusal)),
        },
        Step::LeftMs if expiry_ms == 0 => (Alteration::Keep, Ok(Answer::Number(-1))),
        Step::LeftS if expiry_ms == 0 => (Alteration::Keep, Ok(Answer::Number(-1))),
        Step::LeftMs | Step::LeftMsOrZero => (Alteration::Keep, Ok(Answer::Number(left_ms))),
        Step::LeftS => (Alteration::Keep, Ok(Answer::Number((left_ms + 500) / 1000))),
    }
}

/// When the locks of a script over several keys expire; checks that its two arguments are there.
fn all_expire_at_ms(call: &Call<'_>, arguments: &Arguments<'_>) -> Result<u64, Refusal> {
    if arguments.0.len() < 2 {
        return Err(MISSING_ARGUMENT.into());
    }
    let now_ms = call.context.store.endpoint().unix_ms();
    Unit::MILLISECONDS.at_ms("set", arguments.get(1), || now_ms)
}

async fn acquire_all(call: &mut Call<'_>, keys: &[&[u8]], arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let at_ms = all_expire_at_ms(call, arguments)?;
    let options = SetOptions {
        expiry: Expiry::AtMs(at_ms),
        ..SetOptions::default()
    };
    let acquired = call.keys.together(keys, |transaction| {
        for key in keys {
            if transaction.item(key)?.is_some() {
                return Ok(0);
            }
        }
        for key in keys {
            transaction.set(key, arguments.get(0), options)?;
        }
        Ok(keys.len())
    });
    Ok(Answer::Number(acquired.await? as i64))
}

async fn extend_all(call: &mut Call<'_>, keys: &[&[u8]], arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let at_ms = all_expire_at_ms(call, arguments)?;
    let extended = call.keys.together(keys, |transaction| {
        for key in keys {
            if transaction.get(key)? != Some(arguments.get(0)) {
                return Ok(0);
            }
        }
        for key in keys {
            transaction.expire(key, |_, _| (Expiry::AtMs(at_ms), ()))?;
        }
        Ok(keys.len())
    });
    Ok(Answer::Number(extended.await? as i64))
}

async fn release_all(call: &mut Call<'_>, keys: &[&[u8]], arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    if arguments.0.is_empty() {
        return Err(MISSING_ARGUMENT.into());
    }
    let released = call.keys.together(keys, |transaction| {
        let mut count = 0;
        for key in keys {
            if transaction.get(key)? == Some(arguments.get(0)) {
                transaction.delete(key)?;
                count += 1;
            }
        }
        Ok(count)
    });
    Ok(Answer::Number(released.await?))
}
