//! When a key expires: EXPIRE and its like, PERSIST, TTL and its like, GETEX. And how a time is written.
//!
//! A key that is to expire in the past is deleted at once.

use farside_kv::Expiry;
use farside_value::integer;

use super::keyspace::Of;
use super::{Call, Handled, NOT_AN_INTEGER, Refusal, SYNTAX, strings};
use crate::context::Context;
use crate::request::Request;

/// How an expiry is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unit {
    ms: i64,
    is_absolute: bool,
}

impl Unit {
    /// Seconds from now.
    pub(crate) const SECONDS: Self = Self {
        ms: 1000,
        is_absolute: false,
    };
    /// Milliseconds from now.
    pub(crate) const MILLISECONDS: Self = Self {
        ms: 1,
        is_absolute: false,
    };
    pub(super) const UNIX_SECONDS: Self = Self {
        ms: 1000,
        is_absolute: true,
    };
    pub(super) const UNIX_MILLISECONDS: Self = Self {
        ms: 1,
        is_absolute: true,
    };

    /// The unit that an option of SET and GETEX stands for.
    pub(crate) fn named(is: impl Fn(&'static str) -> bool) -> Option<Self> {
        let units = [
            ("ex", Self::SECONDS),
            ("px", Self::MILLISECONDS),
            ("exat", Self::UNIX_SECONDS),
            ("pxat", Self::UNIX_MILLISECONDS),
        ];
        units.into_iter().find(|&(name, _)| is(name)).map(|(_, unit)| unit)
    }

    /// The time in milliseconds since the Unix epoch, for commands that want a positive number.
    pub(crate) fn at_ms(self, command: &str, number: &[u8], now_ms: impl FnOnce() -> u64) -> Result<u64, Refusal> {
        let number = integer::parse(number).ok_or(NOT_AN_INTEGER)?;
        let at_ms = Some(number).filter(|&number| number > 0);
        let at_ms = at_ms.and_then(|number| self.resolve(number, now_ms));
        Ok(at_ms.ok_or_else(|| invalid(command))?.unsigned_abs())
    }

    /// The same for commands that want any number.
    pub(crate) fn any_at_ms(self, command: &str, number: &[u8], now_ms: u64) -> Result<i64, Refusal> {
        let number = integer::parse(number).ok_or(NOT_AN_INTEGER)?;
        Ok(self.resolve(number, || now_ms).ok_or_else(|| invalid(command))?)
    }

    /// The time in milliseconds since the Unix epoch; `None` if it does not fit.
    pub(super) fn resolve(self, number: i64, now_ms: impl FnOnce() -> u64) -> Option<i64> {
        let since = if self.is_absolute { 0 } else { now_ms() as i64 };
        number.checked_mul(self.ms)?.checked_add(since)
    }
}

/// The clock by which keys expire, in milliseconds since the Unix epoch.
pub(crate) fn now(context: &Context) -> impl Fn() -> u64 {
    || context.store.endpoint().unix_ms()
}

/// The error line for a time that does not fit.
pub(super) fn invalid(command: &str) -> String {
    format!("ERR invalid expire time in '{command}' command")
}

pub(crate) async fn expire(call: &mut Call<'_>) -> Handled {
    set_expiry(call, "expire", Unit::SECONDS).await
}

pub(crate) async fn pexpire(call: &mut Call<'_>) -> Handled {
    set_expiry(call, "pexpire", Unit::MILLISECONDS).await
}

pub(crate) async fn expireat(call: &mut Call<'_>) -> Handled {
    set_expiry(call, "expireat", Unit::UNIX_SECONDS).await
}

pub(crate) async fn pexpireat(call: &mut Call<'_>) -> Handled {
    set_expiry(call, "pexpireat", Unit::UNIX_MILLISECONDS).await
}

async fn set_expiry(call: &mut Call<'_>, command: &str, unit: Unit) -> Handled {
    let now_ms = || call.context.store.endpoint().unix_ms();
    let (at_ms, when) = time_and_condition(call.request, command, unit, now_ms)?;
    let is_set = call
        .keys
        .expire((call.request.arg(1), Of::AnyType), now(call.context), |_, before_ms| {
            if when.holds(at_ms, before_ms) {
                // What is before 1970 is past like its first millisecond.
                (Expiry::AtMs(at_ms.max(0).unsigned_abs()), true)
            } else {
                (Expiry::Keep, false)
            }
        });
    let is_set = is_set.await?.unwrap_or(false);
    call.reply.integer(is_set.into());
    Ok(())
}

/// Under which conditions EXPIRE changes anything; several must all hold.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct When {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl When {
    /// Whether `at_ms` may replace the expiry `before_ms`, of which 0 is "never", later than any time.
    fn holds(self, at_ms: i64, before_ms: u64) -> bool {
        let before_ms = Some(before_ms).filter(|&before_ms| before_ms != 0);
        let before_ms = before_ms.map(|before_ms| i64::try_from(before_ms).unwrap_or(i64::MAX));
        let is_later = before_ms.is_some_and(|before_ms| at_ms > before_ms);
        let is_sooner = before_ms.is_none_or(|before_ms| at_ms < before_ms);
        !(self.nx && before_ms.is_some()
            || self.xx && before_ms.is_none()
            || self.gt && !is_later
            || self.lt && !is_sooner)
    }
}

/// Reads what stands behind the key: the options first, as in Redis.
fn time_and_condition(
    request: &Request<'_>,
    command: &str,
    unit: Unit,
    now_ms: impl FnOnce() -> u64,
) -> Result<(i64, When), Refusal> {
    let mut when = When::default();
    for index in 3..request.len() {
        let options = [
            ("nx", &mut when.nx),
            ("xx", &mut when.xx),
            ("gt", &mut when.gt),
            ("lt", &mut when.lt),
        ];
        match options.into_iter().find(|(name, _)| request.arg_is(index, name)) {
            Some((_, option)) => *option = true,
            None => return Err(format!("ERR Unsupported option {}", super::excerpt(request.arg(index))).into()),
        }
    }
    if when.nx && (when.xx || when.gt || when.lt) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    if when.gt && when.lt {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    let number = integer::parse(request.arg(2)).ok_or(NOT_AN_INTEGER)?;
    let at_ms = unit.resolve(number, now_ms).ok_or_else(|| invalid(command))?;
    Ok((at_ms, when))
}

pub(crate) async fn persist(call: &mut Call<'_>) -> Handled {
    let expire = call
        .keys
        .expire((call.request.arg(1), Of::AnyType), now(call.context), |_, before_ms| {
            (Expiry::Never, before_ms != 0)
        });
    let did_expire = expire.await?.unwrap_or(false);
    call.reply.integer(did_expire.into());
    Ok(())
}

/// What GETEX does to the expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change<'a> {
    /// It only reads.
    Nothing,
    /// The key stays for good.
    Persist,
    /// It is gone from this time on.
    Until(Unit, &'a [u8]),
}

pub(crate) async fn getex(call: &mut Call<'_>) -> Handled {
    let expiry = match change(call.request)? {
        Change::Nothing => return strings::get(call).await,
        Change::Persist => Ok(Expiry::Never),
        Change::Until(unit, number) => unit
            .at_ms("getex", number, || call.context.store.endpoint().unix_ms())
            .map(Expiry::AtMs),
    };
    // As in Redis, a time that is none is an error only if the key is there.
    let kept_or_set = *expiry.as_ref().unwrap_or(&Expiry::Keep);
    let value = call
        .keys
        .expire((call.request.arg(1), Of::Strings), now(call.context), |value, _| {
            (kept_or_set, value.to_vec())
        });
    let value = value.await?;
    call.context.count_lookup(value.is_some());
    if value.is_some() {
        expiry?;
    }
    call.reply.bulk_or_null(value.as_deref());
    Ok(())
}

/// Reads the options of GETEX.
fn change<'a>(request: &Request<'a>) -> Result<Change<'a>, Refusal> {
    let mut change = Change::Nothing;
    let mut index = 2;
    while index < request.len() {
        let is = |word| request.arg_is(index, word);
        change = match (Unit::named(is), change) {
            (None, Change::Nothing | Change::Persist) if is("persist") => Change::Persist,
            (Some(unit), Change::Nothing) if index + 1 < request.len() => Change::Until(unit, request.arg(index + 1)),
            // Twice the same option is allowed: the last one counts.
            (Some(unit), Change::Until(before, _)) if unit == before && index + 1 < request.len() => {
                Change::Until(unit, request.arg(index + 1))
            }
            _ => return Err(SYNTAX.into()),
        };
        index += if let Change::Until(..) = change { 2 } else { 1 };
    }
    Ok(change)
}

pub(crate) async fn ttl(call: &mut Call<'_>) -> Handled {
    let left_ms = time_left_ms(call).await?;
    call.reply.integer(in_seconds(left_ms));
    Ok(())
}

pub(crate) async fn pttl(call: &mut Call<'_>) -> Handled {
    let left_ms = time_left_ms(call).await?;
    call.reply.integer(left_ms);
    Ok(())
}

pub(crate) async fn expiretime(call: &mut Call<'_>) -> Handled {
    let at_ms = time_ms(call).await?;
    call.reply.integer(in_seconds(at_ms));
    Ok(())
}

pub(crate) async fn pexpiretime(call: &mut Call<'_>) -> Handled {
    let at_ms = time_ms(call).await?;
    call.reply.integer(at_ms);
    Ok(())
}

/// Rounds; what is negative means something else.
fn in_seconds(ms: i64) -> i64 {
    if ms < 0 { ms } else { ms.saturating_add(500) / 1000 }
}

/// -2: no such key. -1: it never expires.
async fn time_ms(call: &mut Call<'_>) -> Result<i64, Refusal> {
    Ok(match call.keys.expiry_ms(call.request.arg(1)).await? {
        None => -2,
        Some(0) => -1,
        Some(at_ms) => i64::try_from(at_ms).unwrap_or(i64::MAX),
    })
}

/// The same, from now on.
async fn time_left_ms(call: &mut Call<'_>) -> Result<i64, Refusal> {
    let at_ms = time_ms(call).await?;
    let now_ms = call.context.store.endpoint().unix_ms() as i64;
    Ok(if at_ms < 0 {
        at_ms
    } else {
        at_ms.saturating_sub(now_ms).max(0)
    })
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

    fn expire(line: &str, unit: Unit) -> Result<(i64, When), String> {
        parsed(line, |request| time_and_condition(request, "expire", unit, || NOW_MS))
    }

    #[test]
    fn times_are_counted_from_now_or_from_1970() {
        for (unit, expected) in [
            (Unit::SECONDS, 1_005_000),
            (Unit::MILLISECONDS, 1_000_005),
            (Unit::UNIX_SECONDS, 5000),
            (Unit::UNIX_MILLISECONDS, 5),
        ] {
            assert_eq!(expire("EXPIRE k 5", unit), Ok((expected, When::default())));
        }
        let past = expire("EXPIRE k -2000", Unit::SECONDS).expect("a time");
        assert_eq!(past.0, -1_000_000);
    }

    #[test]
    fn times_that_do_not_fit_are_refused() {
        let invalid = Err("ERR invalid expire time in 'expire' command".to_owned());
        for (line, unit) in [
            ("EXPIRE k 9223372036854775807", Unit::SECONDS),
            ("EXPIRE k 9223372036854775", Unit::SECONDS),
            ("EXPIRE k -9223372036854775808", Unit::SECONDS),
            ("EXPIRE k 9223372036854775807", Unit::MILLISECONDS),
            ("EXPIRE k 9223372036854776", Unit::UNIX_SECONDS),
        ] {
            assert_eq!(expire(line, unit), invalid, "{line}");
        }
        for (line, unit) in [
            ("EXPIRE k 9223372036854775", Unit::UNIX_SECONDS),
            ("EXPIRE k 9223372036854775807", Unit::UNIX_MILLISECONDS),
            ("EXPIRE k -9223372036854775808", Unit::MILLISECONDS),
        ] {
            assert!(expire(line, unit).is_ok(), "{line}");
        }
        for line in [
            "EXPIRE k x",
            "EXPIRE k 1.5",
            "EXPIRE k 9223372036854775808",
            "EXPIRE k x XX",
        ] {
            assert_eq!(expire(line, Unit::SECONDS), Err(NOT_AN_INTEGER.to_owned()), "{line}");
        }
    }

    #[test]
    fn options_of_expire_are_checked_before_the_time() {
        let with_nx = "ERR NX and XX, GT or LT options at the same time are not compatible";
        for (line, error) in [
            ("EXPIRE k x what", "ERR Unsupported option what"),
            ("EXPIRE k 1 NX GT LT what", "ERR Unsupported option what"),
            ("EXPIRE k x NX XX", with_nx),
            ("EXPIRE k 1 gt nx", with_nx),
            ("EXPIRE k 1 NX LT", with_nx),
            (
                "EXPIRE k 1 GT LT",
                "ERR GT and LT options at the same time are not compatible",
            ),
        ] {
            assert_eq!(expire(line, Unit::SECONDS), Err(error.to_owned()), "{line}");
        }
        let (_, when) = expire("EXPIRE k 1 xx Gt xx", Unit::SECONDS).expect("they fit");
        assert_eq!(
            when,
            When {
                xx: true,
                gt: true,
                ..When::default()
            }
        );
    }

    #[test]
    fn conditions_take_no_expiry_for_the_latest() {
        let when = |line: &str| expire(line, Unit::SECONDS).expect("they fit").1;
        for (options, never, sooner, same, later) in [
            ("", true, true, true, true),
            ("NX", true, false, false, false),
            ("XX", false, true, true, true),
            ("GT", false, false, false, true),
            ("LT", true, true, false, false),
            ("XX LT", false, true, false, false),
        ] {
            let when = when(&format!("EXPIRE k 1 {options}"));
            assert_eq!(when.holds(10, 0), never, "{options}");
            assert_eq!(when.holds(10, 20), sooner, "{options}");
            assert_eq!(when.holds(10, 10), same, "{options}");
            assert_eq!(when.holds(10, 5), later, "{options}");
        }
        assert!(
            !When {
                gt: true,
                ..When::default()
            }
            .holds(i64::MAX, u64::MAX)
        );
    }

    #[test]
    fn getex_takes_one_change() {
        let getex = |line: &str| parsed(line, |request| change(request).map(|change| format!("{change:?}")));
        let same = |change: Change<'_>| Ok(format!("{change:?}"));
        assert_eq!(getex("GETEX k"), same(Change::Nothing));
        assert_eq!(getex("GETEX k persist"), same(Change::Persist));
        assert_eq!(getex("GETEX k EX 1"), same(Change::Until(Unit::SECONDS, b"1")));
        assert_eq!(
            getex("GETEX k PXAT 1 PXAT 2"),
            same(Change::Until(Unit::UNIX_MILLISECONDS, b"2"))
        );
        for line in [
            "GETEX k EX",
            "GETEX k what",
            "GETEX k EX 1 PX 1",
            "GETEX k EX 1 PERSIST",
            "GETEX k PERSIST EX 1",
            "GETEX k KEEPTTL",
            "GETEX k NX",
        ] {
            assert_eq!(getex(line), Err(SYNTAX.to_owned()), "{line}");
        }
    }
}
