//! Bitmaps: SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP, BITFIELD.
//!
//! They are strings, and a change rewrites the string. Arguments are checked in the order of Redis 7.0.

use core::ops::Range;

use farside_kv::{Decision, Item, VALUE_BYTES_MAX};
use farside_value::integer;

use super::keyspace::replaced;
use super::strings::TOO_LONG;
use super::{Call, Handled, NOT_AN_INTEGER, Refusal, SYNTAX};
use crate::bits::{self, Action, Combination, Field, Operation, Overflow};
use crate::request::Request;

const NO_OFFSET: &str = "ERR bit offset is not an integer or out of range";
const NO_BIT: &str = "ERR bit is not an integer or out of range";
const NO_TYPE: &str =
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";

/// The number of a bit that a string may have. `#n` is the bit behind `n` fields of so many bits, if there are fields.
fn offset(text: &[u8], field_bits: Option<u32>) -> Result<u64, Refusal> {
    let number = match (text, field_bits) {
        ([b'#', text @ ..], Some(bits)) => integer::parse(text).and_then(|number| number.checked_mul(bits.into())),
        _ => integer::parse(text),
    };
    let number = number.and_then(|number| u64::try_from(number).ok());
    let bit = number.filter(|&number| number < 8 * VALUE_BYTES_MAX as u64);
    bit.ok_or_else(|| NO_OFFSET.into())
}

/// A value that has this bit: the one that is there, or a longer one.
fn lengthened(value: &[u8], bit: u64) -> Vec<u8> {
    let bytes = value.len().max(bits::bytes_with(bit));
    let mut longer = Vec::with_capacity(bytes);
    longer.extend_from_slice(value);
    longer.resize(bytes, 0);
    longer
}

pub(crate) async fn setbit(call: &mut Call<'_>) -> Handled {
    let bit = offset(call.request.arg(2), None)?;
    let is_on = match integer::parse(call.request.arg(3)) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(NO_BIT.into()),
    };
    let mut was_on = false;
    let decide = &mut |stored: Option<Item<'_>>| {
        let value = stored.map_or(&[][..], |item| item.value);
        was_on = bits::get(value, bit);
        if was_on == is_on && bits::bytes_with(bit) <= value.len() {
            return Decision::Keep;
        }
        let mut value = lengthened(value, bit);
        bits::set(&mut value, bit, is_on);
        replaced(stored, value)
    };
    call.keys.grow(call.request.arg(1), decide).await?;
    call.reply.integer(was_on.into());
    Ok(())
}

pub(crate) async fn getbit(call: &mut Call<'_>) -> Handled {
    let bit = offset(call.request.arg(2), None)?;
    let value = call.keys.get(call.request.arg(1)).await?;
    call.context.count_lookup(value.is_some());
    let is_on = bits::get(value.unwrap_or_default(), bit);
    call.reply.integer(is_on.into());
    Ok(())
}

/// How many bits the unit has, in which a range is counted.
fn unit_bits(text: &[u8]) -> Result<i64, Refusal> {
    if text.eq_ignore_ascii_case(b"bit") {
        Ok(1)
    } else if text.eq_ignore_ascii_case(b"byte") {
        Ok(8)
    } else {
        Err(SYNTAX.into())
    }
}

/// Which bits of so many bytes stand from the first to the last unit, both included; negative: from the end. It is empty or
/// within the string.
fn range(bytes: usize, first: i64, last: i64, unit_bits: i64) -> Range<u64> {
    let units = 8 / unit_bits * bytes as i64;
    let from_start = |unit: i64| if unit < 0 { (unit + units).max(0) } else { unit };
    let (first, last) = (from_start(first), from_start(last).min(units - 1));
    if first > last {
        return 0..0;
    }
    (first * unit_bits) as u64..((last + 1) * unit_bits) as u64
}

pub(crate) async fn bitcount(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let value = call.keys.get(request.arg(1)).await?;
    call.context.count_lookup(value.is_some());
    // As in Redis 7.0, nobody looks at the range of a key that is not there.
    let count = match value {
        Some(value) => bits::count(value, counted(request, value.len())?),
        None => 0,
    };
    call.reply.count(count);
    Ok(())
}

/// Which bits of so many bytes BITCOUNT counts.
fn counted(request: &Request<'_>, bytes: usize) -> Result<Range<u64>, Refusal> {
    let (first, last) = match request.len() {
        2 => (0, -1),
        4 | 5 => (
            integer::parse(request.arg(2)).ok_or(NOT_AN_INTEGER)?,
            integer::parse(request.arg(3)).ok_or(NOT_AN_INTEGER)?,
        ),
        _ => return Err(SYNTAX.into()),
    };
    // As in Redis, it is empty even if both ends are before the first byte.
    if first < 0 && last < 0 && first > last {
        return Ok(0..0);
    }
    let unit_bits = match request.len() {
        5 => unit_bits(request.arg(4))?,
        _ => 8,
    };
    Ok(range(bytes, first, last, unit_bits))
}

pub(crate) async fn bitpos(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let is_on = match integer::parse(request.arg(2)).ok_or(NOT_AN_INTEGER)? {
        0 => false,
        1 => true,
        _ => return Err("ERR The bit argument must be 1 or 0.".into()),
    };
    let value = call.keys.get(request.arg(1)).await?;
    call.context.count_lookup(value.is_some());
    let Some(value) = value else {
        call.reply.integer(if is_on { -1 } else { 0 });
        return Ok(());
    };
    let first = match request.len() {
        3 => 0,
        4..=6 => integer::parse(request.arg(3)).ok_or(NOT_AN_INTEGER)?,
        _ => return Err(SYNTAX.into()),
    };
    let unit_bits = match request.len() {
        6 => unit_bits(request.arg(5))?,
        _ => 8,
    };
    let last = match request.len() {
        5 | 6 => Some(integer::parse(request.arg(4)).ok_or(NOT_AN_INTEGER)?),
        _ => None,
    };
    let range = range(value.len(), first, last.unwrap_or(-1), unit_bits);
    let place = bits::find(value, range.clone(), is_on);
    // Zeros go on behind a string, unless somebody has said where it ends.
    let goes_on = !is_on && last.is_none() && !range.is_empty();
    match place.or_else(|| goes_on.then_some(range.end)) {
        Some(bit) => call.reply.count(bit),
        None => call.reply.integer(-1),
    }
    Ok(())
}

pub(crate) async fn bitop(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let operation = if request.arg_is(1, "and") {
        Operation::And
    } else if request.arg_is(1, "or") {
        Operation::Or
    } else if request.arg_is(1, "xor") {
        Operation::Xor
    } else if request.arg_is(1, "not") {
        Operation::Not
    } else {
        return Err(SYNTAX.into());
    };
    if operation == Operation::Not && request.len() != 4 {
        return Err("ERR BITOP NOT must be called with a single source key.".into());
    }
    let keys: Vec<&[u8]> = request.args(2).collect();
    let combined = call.keys.together(&keys, |transaction| {
        let mut combination = Combination::new(operation);
        for key in &keys[1..] {
            combination.add(transaction.get(key)?.unwrap_or_default());
        }
        let result = combination.finish();
        if !result.is_empty() {
            transaction.put(keys[0], &result)?;
        } else if transaction.item(keys[0])?.is_some() {
            // One that is not there is not made for it.
            transaction.delete(keys[0])?;
        }
        Ok(result.len())
    });
    let bytes = combined.await?;
    call.reply.count(bytes as u64);
    Ok(())
}

/// One step of BITFIELD.
#[derive(Clone, Copy)]
struct Step {
    field: Field,
    action: Action,
    overflow: Overflow,
}

pub(crate) async fn bitfield(call: &mut Call<'_>) -> Handled {
    let steps = steps(call.request)?;
    match last_written(&steps) {
        None => read_fields(call, &steps).await,
        Some(bit) => write_fields(call, &steps, bit).await,
    }
}

pub(crate) async fn bitfield_ro(call: &mut Call<'_>) -> Handled {
    let steps = steps(call.request)?;
    if last_written(&steps).is_some() {
        return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
    }
    read_fields(call, &steps).await
}

/// The last bit that is written.
fn last_written(steps: &[Step]) -> Option<u64> {
    let written = steps.iter().filter(|step| step.action != Action::Get);
    written.map(|step| step.field.last_bit()).max()
}

fn steps(request: &Request<'_>) -> Result<Vec<Step>, Refusal> {
    let mut steps = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut index = 2;
    while index < request.len() {
        let arguments = request.len() - index - 1;
        let is = |name: &str, least: usize| arguments >= least && request.arg_is(index, name);
        if is("overflow", 1) {
            overflow = if request.arg_is(index + 1, "wrap") {
                Overflow::Wrap
            } else if request.arg_is(index + 1, "sat") {
                Overflow::Saturate
            } else if request.arg_is(index + 1, "fail") {
                Overflow::Fail
            } else {
                return Err("ERR Invalid OVERFLOW type specified".into());
            };
            index += 2;
            continue;
        }
        let (is_get, is_set) = (is("get", 2), is("set", 3));
        if !is_get && !is_set && !is("incrby", 3) {
            return Err(SYNTAX.into());
        }
        let field = field(request.arg(index + 1), request.arg(index + 2))?;
        let mut action = Action::Get;
        if !is_get {
            let number = integer::parse(request.arg(index + 3)).ok_or(NOT_AN_INTEGER)?;
            action = if is_set {
                Action::Set(number)
            } else {
                Action::Add(number)
            };
        }
        steps.push(Step {
            field,
            action,
            overflow,
        });
        index += if is_get { 3 } else { 4 };
    }
    Ok(steps)
}

/// A field by its type, like `u8`, and its place.
fn field(kind: &[u8], place: &[u8]) -> Result<Field, Refusal> {
    let (is_signed, bits) = match kind {
        [b'i', bits @ ..] => (true, bits),
        [b'u', bits @ ..] => (false, bits),
        _ => return Err(NO_TYPE.into()),
    };
    let most = i64::from(bits::FIELD_BITS_MAX) - i64::from(!is_signed);
    let bits = integer::parse(bits).filter(|bits| (1..=most).contains(bits));
    let bits = bits.ok_or(NO_TYPE)? as u32;
    Ok(Field {
        bit: offset(place, Some(bits))?,
        bits,
        is_signed,
    })
}

async fn read_fields(call: &mut Call<'_>, steps: &[Step]) -> Handled {
    let value = call.keys.get(call.request.arg(1)).await?;
    call.context.count_lookup(value.is_some());
    let value = value.unwrap_or_default();
    call.reply.array(steps.len());
    steps.iter().for_each(|step| call.reply.integer(step.field.get(value)));
    Ok(())
}

/// The string gets as long as `last_bit` needs, even if no step succeeds.
async fn write_fields(call: &mut Call<'_>, steps: &[Step], last_bit: u64) -> Handled {
    if bits::bytes_with(last_bit) > VALUE_BYTES_MAX {
        return Err(TOO_LONG.into());
    }
    let mut answers = Vec::with_capacity(steps.len());
    let decide = &mut |stored: Option<Item<'_>>| {
        answers.clear();
        let before = stored.map_or(&[][..], |item| item.value);
        let mut value = lengthened(before, last_bit);
        for step in steps {
            answers.push(step.field.apply(&mut value, step.action, step.overflow));
        }
        match value == before {
            true => Decision::Keep,
            false => replaced(stored, value),
        }
    };
    call.keys.grow(call.request.arg(1), decide).await?;
    call.reply.array(answers.len());
    for answer in answers {
        match answer {
            Some(number) => call.reply.integer(number),
            None => call.reply.null(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_redis() {
        for (bytes, first, last, unit, expected) in [
            (3, 0, -1, 8, 0..24),
            (3, 1, 1, 8, 8..16),
            (3, -2, 100, 8, 8..24),
            (3, -100, -100, 8, 0..8),
            (3, 2, 1, 8, 0..0),
            (3, 3, 5, 8, 0..0),
            (3, 5, 30, 1, 5..24),
            (3, -1, -1, 1, 23..24),
            (0, 0, -1, 8, 0..0),
            (0, 0, 0, 1, 0..0),
            (3, i64::MIN, i64::MAX, 1, 0..24),
        ] {
            assert_eq!(
                range(bytes, first, last, unit),
                expected,
                "{bytes} {first} {last} {unit}"
            );
        }
    }

    #[test]
    fn offsets_end_with_the_longest_string() {
        let last = 8 * VALUE_BYTES_MAX as u64 - 1;
        assert_eq!(offset(last.to_string().as_bytes(), None).ok(), Some(last));
        assert_eq!(offset(b"#3", Some(5)).ok(), Some(15));
        let behind = (last + 1).to_string();
        for (text, field_bits) in [
            (behind.as_bytes(), None),
            (b"-1", None),
            (b"#1", None),
            (b"#", Some(8)),
            (b"#-1", Some(8)),
            (b"#9223372036854775807", Some(8)),
            (b"", None),
        ] {
            assert!(offset(text, field_bits).is_err(), "{text:?}");
        }
    }
}
