//! When fields of hashes expire, as in Redis 7.4: HEXPIRE, HPEXPIRE, HEXPIREAT, HPEXPIREAT, HPERSIST, HTTL, HPTTL,
//! HEXPIRETIME, HPEXPIRETIME.
//!
//! As in Redis, the type of the value is looked at before the arguments.

use farside_kv::Tag;
use farside_value::integer;
use farside_value::packed::hash::{self, ExpiryCondition, FieldExpiry};

use super::expiry::{Unit, invalid};
use super::values::{at_least, change, read};
use super::{Call, Handled, NOT_AN_INTEGER, Refusal};
use crate::reply::Reply;
use crate::request::Request;

/// The latest time, in milliseconds since 1970: Redis has 46 bits for it.
const LATEST_MS: i64 = (1 << 46) - 1;

pub(crate) async fn hexpire(call: &mut Call<'_>) -> Handled {
    set_expiry(call, "hexpire", Unit::SECONDS).await
}

pub(crate) async fn hpexpire(call: &mut Call<'_>) -> Handled {
    set_expiry(call, "hpexpire", Unit::MILLISECONDS).await
}

pub(crate) async fn hexpireat(call: &mut Call<'_>) -> Handled {
    set_expiry(call, "hexpireat", Unit::UNIX_SECONDS).await
}

pub(crate) async fn hpexpireat(call: &mut Call<'_>) -> Handled {
    set_expiry(call, "hpexpireat", Unit::UNIX_MILLISECONDS).await
}

async fn set_expiry(call: &mut Call<'_>, command: &str, unit: Unit) -> Handled {
    let request = call.request;
    let now_ms = call.context.store.endpoint().unix_ms();
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let (at_ms, condition, fields) = time_and_fields(request, command, unit, now_ms)?;
        let (edit, outcomes) = hash::expire(old, &fields, at_ms, condition, now_ms)?;
        reply.array(outcomes.len());
        outcomes.iter().for_each(|&outcome| reply.integer(outcome as i64));
        Ok(edit)
    };
    change(call, Tag::Hash, body).await
}

/// What stands behind the key: a time, perhaps a condition, and the fields.
fn time_and_fields<'a>(
    request: &Request<'a>,
    command: &str,
    unit: Unit,
    now_ms: u64,
) -> Result<(u64, ExpiryCondition, Vec<&'a [u8]>), Refusal> {
    let number = integer::parse(request.arg(2)).ok_or(NOT_AN_INTEGER)?;
    if number < 0 {
        return Err("ERR invalid expire time, must be >= 0".into());
    }
    let at_ms = unit.resolve(number, || now_ms).filter(|&at_ms| at_ms <= LATEST_MS);
    let at_ms = at_ms.ok_or_else(|| invalid(command))?.unsigned_abs();
    let conditions = [
        ("nx", ExpiryCondition::Unset),
        ("xx", ExpiryCondition::Set),
        ("gt", ExpiryCondition::Later),
        ("lt", ExpiryCondition::Earlier),
    ];
    let condition = conditions.into_iter().find(|(word, _)| request.arg_is(3, word));
    let fields = fields(
        request,
        3 + usize::from(condition.is_some()),
        "ERR Parameter `numFields` should be greater than 0",
    )?;
    let condition = condition.map_or(ExpiryCondition::Always, |(_, condition)| condition);
    Ok((at_ms, condition, fields))
}

/// The fields that stand behind the word FIELDS, at `at`, and their number; `message` says what is wrong with that.
fn fields<'a>(request: &Request<'a>, at: usize, message: &'static str) -> Result<Vec<&'a [u8]>, Refusal> {
    if !request.arg_is(at, "fields") {
        return Err("ERR Mandatory argument FIELDS is missing or not at the right position".into());
    }
    let count = at_least(1, request.arg(at + 1), message)?;
    let fields: Vec<&[u8]> = request.args(at + 2).collect();
    match count.unsigned_abs() == fields.len() as u64 {
        true => Ok(fields),
        false => Err("ERR The `numfields` parameter must match the number of arguments".into()),
    }
}

const NO_NUMBER: &str = "ERR Number of fields must be a positive integer";
/// What is answered of a field that is not there, and of one that never expires.
const NO_FIELD: i64 = -2;
const NEVER: i64 = -1;

pub(crate) async fn hpersist(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let now_ms = call.context.store.endpoint().unix_ms();
    let body = &mut |old: Option<&[u8]>, reply: &mut Reply| {
        let fields = fields(request, 2, NO_NUMBER)?;
        let (edit, expiries) = hash::persist(old, &fields, now_ms)?;
        reply.array(expiries.len());
        for expiry in expiries {
            reply.integer(match expiry {
                FieldExpiry::NoField => NO_FIELD,
                FieldExpiry::Never => NEVER,
                FieldExpiry::At(_) => 1,
            });
        }
        Ok(edit)
    };
    change(call, Tag::Hash, body).await
}

pub(crate) async fn httl(call: &mut Call<'_>) -> Handled {
    show(call, |at_ms, now_ms| in_seconds(at_ms - now_ms)).await
}

pub(crate) async fn hpttl(call: &mut Call<'_>) -> Handled {
    show(call, |at_ms, now_ms| at_ms - now_ms).await
}

pub(crate) async fn hexpiretime(call: &mut Call<'_>) -> Handled {
    show(call, |at_ms, _| in_seconds(at_ms)).await
}

pub(crate) async fn hpexpiretime(call: &mut Call<'_>) -> Handled {
    show(call, |at_ms, _| at_ms).await
}

/// A second that has begun counts.
fn in_seconds(ms: u64) -> u64 {
    ms.div_ceil(1000)
}

/// Shows when fields expire; `shown` is asked for the number, given that time, which is to come, and the present one.
async fn show(call: &mut Call<'_>, shown: fn(u64, u64) -> u64) -> Handled {
    let request = call.request;
    let (value, reply, context) = read(call, Tag::Hash).await?;
    let fields = fields(request, 2, NO_NUMBER)?;
    let now_ms = context.store.endpoint().unix_ms();
    let expiries = hash::expiries(value, &fields, now_ms)?;
    reply.array(expiries.len());
    for expiry in expiries {
        match expiry {
            FieldExpiry::NoField => reply.integer(NO_FIELD),
            FieldExpiry::Never => reply.integer(NEVER),
            FieldExpiry::At(at_ms) => reply.count(shown(at_ms, now_ms)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Scratch;

    const NOW_MS: u64 = 1_000_000;

    fn parsed<R>(line: &str, parse: impl FnOnce(&Request<'_>) -> Result<R, Refusal>) -> Result<R, String> {
        let mut scratch = Scratch::default();
        let request = Request::split(line.as_bytes(), &mut scratch).expect("no quotes");
        parse(&request).map_err(|refusal| match refusal {
            Refusal::Text(text) => text.into_owned(),
            other => format!("{other:?}"),
        })
    }

    fn expire(line: &str, unit: Unit) -> Result<(u64, ExpiryCondition, usize), String> {
        parsed(line, |request| {
            let (at_ms, condition, fields) = time_and_fields(request, "hexpire", unit, NOW_MS)?;
            Ok((at_ms, condition, fields.len()))
        })
    }

    #[test]
    fn a_time_a_condition_and_fields_are_read() {
        let always = ExpiryCondition::Always;
        assert_eq!(
            expire("HEXPIRE k 5 FIELDS 1 f", Unit::SECONDS),
            Ok((1_005_000, always, 1))
        );
        assert_eq!(
            expire("HEXPIRE k 0 fields 2 f g", Unit::MILLISECONDS),
            Ok((NOW_MS, always, 2))
        );
        for (word, condition) in [
            ("NX", ExpiryCondition::Unset),
            ("xx", ExpiryCondition::Set),
            ("Gt", ExpiryCondition::Later),
            ("LT", ExpiryCondition::Earlier),
        ] {
            let line = format!("HEXPIREAT k 7 {word} FIELDS 1 f");
            assert_eq!(expire(&line, Unit::UNIX_SECONDS), Ok((7000, condition, 1)));
        }
    }

    /// As the tests of Redis 7.4 have it.
    #[test]
    fn what_does_not_fit_is_refused() {
        let place = "ERR Mandatory argument FIELDS is missing or not at the right position";
        let number = "ERR Parameter `numFields` should be greater than 0";
        let count = "ERR The `numfields` parameter must match the number of arguments";
        let invalid = "ERR invalid expire time in 'hexpire' command";
        for (line, error) in [
            ("HEXPIRE k x FIELDS 1 f", NOT_AN_INTEGER),
            ("HEXPIRE k -1 FIELDS 1 f", "ERR invalid expire time, must be >= 0"),
            ("HEXPIRE k 9223372036854775807 FIELDS 1 f", invalid),
            ("HEXPIRE k 70368744177 FIELDS 1 f", invalid),
            ("HEXPIRE k x what", NOT_AN_INTEGER),
            ("HEXPIRE k 1 FIELD 1 f", place),
            ("HEXPIRE k 1 1 FIELDS f", place),
            ("HEXPIRE k 1 NX XX FIELDS 1 f", place),
            ("HEXPIRE k 1 what FIELDS 1 f", place),
            ("HEXPIRE k 1 FIELDS x f", number),
            ("HEXPIRE k 1 FIELDS 0 f", number),
            ("HEXPIRE k 1 NX FIELDS -1 f", number),
            ("HEXPIRE k 1 FIELDS 2 f", count),
            ("HEXPIRE k 1 NX FIELDS 1 f g", count),
        ] {
            assert_eq!(expire(line, Unit::SECONDS), Err(error.to_owned()), "{line}");
        }
        assert!(expire("HEXPIREAT k 70368744177 FIELDS 1 f", Unit::UNIX_SECONDS).is_ok());
        assert!(expire("HPEXPIREAT k 70368744177663 FIELDS 1 f", Unit::UNIX_MILLISECONDS).is_ok());
        for line in [
            "HPEXPIREAT k 70368744177664 FIELDS 1 f",
            "HPEXPIREAT k 9223372036854775807 FIELDS 1 f",
        ] {
            assert_eq!(expire(line, Unit::UNIX_MILLISECONDS), Err(invalid.to_owned()), "{line}");
        }
        for (line, error) in [
            ("HTTL k FIELD 1 f", place),
            ("HTTL k FIELDS 0 f", NO_NUMBER),
            ("HTTL k FIELDS x f", NO_NUMBER),
            ("HTTL k FIELDS 2 f", count),
            ("HTTL k FIELDS 1 f g", count),
        ] {
            let found = parsed(line, |request| fields(request, 2, NO_NUMBER).map(|fields| fields.len()));
            assert_eq!(found, Err(error.to_owned()), "{line}");
        }
    }
}
