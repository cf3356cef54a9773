//! Packed hashes: `fields.rs` has their form, `expiry.rs` what concerns the times of fields.
//!
//! A field that is past its time is absent for everything but [`count`](crate::format::count), until a change of the value
//! drops it.
//!
//! HEXISTS and HSTRLEN are [`get`] and what is known of its answer.

mod expiry;
mod fields;

pub use self::expiry::{
    ExpiryCondition, ExpiryOutcome, FieldExpiry, earliest_expiry, expire, expiries, persist, sweep,
};

use self::fields::{FieldWriter, Fields, Value};
use super::{check_different, check_text, is_scanned};
use crate::decimal::{self, Sum};
use crate::format::{EXPIRES, Packed};
use crate::needles::Needles;
use crate::string::{Digits, Text};
use crate::{Draw, Edit, Edited, ValueError};

/// What becomes of a field.
enum Fate<'a> {
    Keep,
    Put(Value<'a>),
    Remove,
}

/// Asks `decide` about each field that is named, by its first place among `needles`: first about those that are there, in
/// their order, then about the others. Fields that are past their time go with any change. `may_expire` if one may get an
/// expiry.
fn edit<'a>(
    old: Option<&'a [u8]>,
    needles: &Needles<'_>,
    now_ms: u64,
    may_expire: bool,
    decide: &mut dyn FnMut(usize, Option<Value<'a>>) -> Fate<'a>,
) -> Result<Edit, ValueError> {
    let packed = Packed::of(old)?;
    let expire = may_expire || packed.flags & EXPIRES != 0;
    let mut writer = FieldWriter::new(&packed, expire, 32 * needles.len());
    let mut fields = Fields::new(&packed);
    let mut is_seen = vec![false; needles.len()];
    let mut is_changed = false;
    // Fields that stay, behind one that is written last as it is before them here, are copied in runs: the current one began
    // there, and has so many.
    let has_form = expire == (packed.flags & EXPIRES != 0);
    let mut follows = has_form;
    let mut start = 0;
    let mut run = 0;
    loop {
        let (at, head_before) = (fields.at, fields.name.head());
        let value = fields.next()?;
        let name = fields.name.bytes();
        let mut new = value.filter(|value| !value.is_past(now_ms));
        if let (Some(found), Some(place)) = (new, needles.find(&Text::Bytes(name))) {
            is_seen[place] = true;
            new = match decide(place, Some(found)) {
                Fate::Keep => new,
                Fate::Put(other) => Some(other),
                Fate::Remove => None,
            };
            is_changed |= new != value;
        }
        if let Some(new) = new
            && follows
            && Some(new) == value
        {
            run += 1;
            writer.note_expiry(new.expiry_ms);
            continue;
        }
        if run > 0 {
            writer.copy(&packed.body[start..at], run, head_before);
            run = 0;
        }
        follows = false;
        if let Some(new) = new {
            writer.put(name, new);
            follows = has_form;
            start = fields.at;
        }
        if value.is_none() {
            break;
        }
    }
    for (place, is_seen) in is_seen.into_iter().enumerate() {
        if !is_seen
            && needles.first(place) == place
            && let Fate::Put(new) = decide(place, None)
        {
            is_changed = true;
            writer.put(needles.text(place).bytes(&mut Digits::new()), new);
        }
    }
    if is_changed { writer.finish() } else { Ok(Edit::Keep) }
}

/// HGET: the value of a field.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn get<'a>(value: Option<&'a [u8]>, field: &[u8], now_ms: u64) -> Result<Option<Text<'a>>, ValueError> {
    Ok(find(value, field, now_ms)?.map(|value| value.text))
}

fn find<'a>(value: Option<&'a [u8]>, field: &[u8], now_ms: u64) -> Result<Option<Value<'a>>, ValueError> {
    let found = fields::find(&Packed::of(value)?, field)?;
    Ok(found.filter(|value| !value.is_past(now_ms)))
}

/// HMGET: the values of fields, in the order of the arguments.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn get_many<'a>(
    value: Option<&'a [u8]>,
    fields: &[&[u8]],
    now_ms: u64,
) -> Result<Vec<Option<Text<'a>>>, ValueError> {
    let found = find_many(value, fields, now_ms)?;
    Ok(found.into_iter().map(|value| value.map(|value| value.text)).collect())
}

fn find_many<'a>(value: Option<&'a [u8]>, fields: &[&[u8]], now_ms: u64) -> Result<Vec<Option<Value<'a>>>, ValueError> {
    let needles = Needles::fields(fields);
    let mut found = vec![None; fields.len()];
    let mut left = needles.different();
    let mut fields = Fields::of(value)?;
    while left > 0
        && let Some(value) = fields.next()?
    {
        if let Some(place) = needles.find(&Text::Bytes(fields.name.bytes())) {
            left -= 1;
            found[place] = (!value.is_past(now_ms)).then_some(value);
        }
    }
    for place in 0..found.len() {
        found[place] = found[needles.first(place)];
    }
    Ok(found)
}

/// How many fields are not past their time: as many as [`each`] has.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn live_count(value: Option<&[u8]>, now_ms: u64) -> Result<u32, ValueError> {
    let packed = Packed::of(value)?;
    if packed.earliest == 0 || packed.earliest > now_ms {
        return Ok(packed.count);
    }
    let mut fields = Fields::new(&packed);
    let mut count = 0;
    while fields.next_live(now_ms)?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// HGETALL, HKEYS, HVALS: every field and its value.
///
/// # Errors
///
/// [`ValueError::Damaged`], when some may have been shown.
pub fn each(value: Option<&[u8]>, now_ms: u64, each: &mut dyn FnMut(&[u8], Text<'_>)) -> Result<(), ValueError> {
    let mut fields = Fields::of(value)?;
    while let Some(value) = fields.next_live(now_ms)? {
        each(fields.name.bytes(), value.text);
    }
    Ok(())
}

/// Every field, its value, and when it expires, in milliseconds since 1970 (0: never); also those that are past their time.
///
/// # Errors
///
/// [`ValueError::Damaged`], when some may have been shown.
pub fn each_with_expiry(value: Option<&[u8]>, each: &mut dyn FnMut(&[u8], Text<'_>, u64)) -> Result<(), ValueError> {
    let mut fields = Fields::of(value)?;
    while let Some(value) = fields.next()? {
        each(fields.name.bytes(), value.text, value.expiry_ms);
    }
    Ok(())
}

/// A hash of these fields, each a name, a value and when it expires, likewise: for values that come from elsewhere. The key is
/// deleted if there are none.
///
/// # Errors
///
/// [`ValueError::Damaged`]: two fields have one name.
pub fn build(fields: &[(&[u8], &[u8], u64)]) -> Result<Edit, ValueError> {
    let names: Vec<_> = fields.iter().map(|field| field.0).collect();
    let needles = Needles::fields(&names);
    if (0..needles.len()).any(|place| needles.first(place) != place) {
        return Err(ValueError::Damaged("a field stands there twice"));
    }
    let expire = fields.iter().any(|field| field.2 != 0);
    let bytes = fields.iter().map(|field| 8 + field.0.len() + field.1.len());
    let mut writer = FieldWriter::new(&Packed::of(None)?, expire, bytes.sum());
    for &(name, text, expiry_ms) in fields {
        let text = Text::new(text);
        writer.put(name, Value { text, expiry_ms });
    }
    writer.finish()
}

/// HRANDFIELD: fields by chance, and their values.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn random(
    value: Option<&[u8]>,
    draw: Draw,
    now_ms: u64,
    random: &mut dyn FnMut(u64) -> u64,
    each: &mut dyn FnMut(&[u8], Text<'_>),
) -> Result<(), ValueError> {
    let count = live_count(value, now_ms)?;
    if count == 0 {
        return Ok(());
    }
    let mut fields = Fields::of(value)?;
    if let Draw::Repeated(_) = draw {
        // Names that share bytes have to be read from the first on: once, and kept.
        let mut names = Vec::new();
        let mut found = Vec::with_capacity(count as usize);
        while let Some(value) = fields.next_live(now_ms)? {
            let start = names.len();
            names.extend_from_slice(fields.name.bytes());
            found.push((start..names.len(), value.text));
        }
        // Of a damaged value there may be fewer than its head promises.
        if !found.is_empty() {
            draw.ranks(found.len() as u64, random, &mut |rank| {
                let (name, text) = &found[rank as usize];
                each(&names[name.clone()], *text);
            });
        }
        return Ok(());
    }
    let mut ranks = Vec::new();
    draw.ranks(count.into(), random, &mut |rank| ranks.push(rank));
    let mut next = 0;
    for rank in ranks {
        while let Some(value) = fields.next_live(now_ms)? {
            next += 1;
            if next > rank {
                each(fields.name.bytes(), value.text);
                break;
            }
        }
    }
    Ok(())
}

/// HSCAN: see [`packed`](super).
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn scan(
    value: Option<&[u8]>,
    cursor: u64,
    seed: u64,
    now_ms: u64,
    show: &mut dyn FnMut(&[u8], Text<'_>),
) -> Result<u64, ValueError> {
    each(value, now_ms, &mut |name, text| {
        if is_scanned(cursor, seed, name) {
            show(name, text);
        }
    })?;
    Ok(0)
}

/// HSET: sets fields, each a name and a value; of two with one name, the last one counts. A field that is set does not expire
/// any more. Answers how many are new.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn set<'a>(old: Option<&'a [u8]>, pairs: &[(&'a [u8], &'a [u8])], now_ms: u64) -> Edited<u32> {
    let names: Vec<_> = pairs.iter().map(|pair| pair.0).collect();
    let needles = Needles::fields(&names);
    let lasts = needles.lasts();
    let mut added = 0;
    let edit = edit(old, &needles, now_ms, false, &mut |place, found| {
        added += u32::from(found.is_none());
        Fate::Put(Value {
            text: Text::new(pairs[lasts[place]].1),
            expiry_ms: 0,
        })
    })?;
    Ok((edit, added))
}

/// HSETNX: sets a field if it is absent. Answers whether it was.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn set_if_absent<'a>(old: Option<&'a [u8]>, field: &'a [u8], text: &'a [u8], now_ms: u64) -> Edited<bool> {
    if find(old, field, now_ms)?.is_some() {
        return Ok((Edit::Keep, false));
    }
    let (edit, added) = set(old, &[(field, text)], now_ms)?;
    Ok((edit, added == 1))
}

/// HDEL: removes fields. Answers how many were there.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn remove(old: Option<&[u8]>, fields: &[&[u8]], now_ms: u64) -> Edited<u32> {
    let mut removed = 0;
    let edit = edit(old, &Needles::fields(fields), now_ms, false, &mut |_, found| {
        removed += u32::from(found.is_some());
        Fate::Remove
    })?;
    Ok((edit, removed))
}

/// Sets the value of a field, which keeps its expiry.
fn put_number(old: Option<&[u8]>, field: &[u8], text: Text<'_>, now_ms: u64) -> Result<Edit, ValueError> {
    edit(old, &Needles::fields(&[field]), now_ms, false, &mut |_, found| {
        Fate::Put(Value {
            text,
            expiry_ms: found.map_or(0, |value| value.expiry_ms),
        })
    })
}

/// HINCRBY: adds to a field, which is 0 if it is absent, and keeps its expiry. Answers the sum.
///
/// # Errors
///
/// [`ValueError::NotAnInteger`], [`ValueError::Overflow`], [`ValueError::Damaged`].
pub fn increment(old: Option<&[u8]>, field: &[u8], by: i64, now_ms: u64) -> Edited<i64> {
    let number = match get(old, field, now_ms)? {
        None => 0,
        Some(Text::Integer(number)) => number,
        Some(Text::Bytes(_)) => return Err(ValueError::NotAnInteger),
    };
    let sum = number.checked_add(by).ok_or(ValueError::Overflow)?;
    Ok((put_number(old, field, Text::Integer(sum), now_ms)?, sum))
}

/// HINCRBYFLOAT: adds a decimal number to a field, which is 0 if it is absent, and keeps its expiry. Answers the sum, in
/// decimal: 0.1 and 0.2 are 0.3.
///
/// # Errors
///
/// [`ValueError::InvalidFloat`] and [`ValueError::InfiniteIncrement`] of what is added, [`ValueError::NotAFloat`] of the
/// field; [`ValueError::Infinite`], [`ValueError::Damaged`].
pub fn increment_float(old: Option<&[u8]>, field: &[u8], by: &[u8], now_ms: u64) -> Edited<String> {
    if decimal::float(by).ok_or(ValueError::InvalidFloat)?.is_infinite() {
        return Err(ValueError::InfiniteIncrement);
    }
    let number = get(old, field, now_ms)?.unwrap_or(Text::Integer(0));
    let sum = match decimal::add(number.bytes(&mut Digits::new()), by) {
        Sum::Number(sum) => sum,
        Sum::NotANumber => return Err(ValueError::NotAFloat),
        Sum::Infinite => return Err(ValueError::Infinite),
    };
    Ok((put_number(old, field, Text::new(sum.as_bytes()), now_ms)?, sum))
}

/// Looks at every byte.
///
/// # Errors
///
/// [`ValueError::Damaged`]: the value is not what a writer has written.
pub fn check(value: &[u8]) -> Result<(), ValueError> {
    let packed = Packed::of(Some(value))?;
    let mut again = FieldWriter::new(&packed, packed.flags & EXPIRES != 0, 0);
    let mut fields = Fields::new(&packed);
    let mut names = Vec::new();
    while let Some(value) = fields.next()? {
        check_text(value.text)?;
        names.push(fields.name.bytes().to_vec());
        again.put(fields.name.bytes(), value);
    }
    // Shares, the earliest expiry, and flags of other types.
    if again.finish()? != Edit::Put(value.to_vec()) {
        return Err(ValueError::Damaged("a hash has not its form"));
    }
    check_different(names.iter().map(|name| Text::Bytes(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format;

    pub(super) fn bytes(edit: Edit) -> Vec<u8> {
        match edit {
            Edit::Put(value) => value,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn hash(pairs: &[(&str, &str)]) -> Vec<u8> {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(name, text)| (name.as_bytes(), text.as_bytes()))
            .collect();
        bytes(set(None, &pairs, 0).expect("a hash").0)
    }

    #[test]
    fn the_last_of_two_values_counts() {
        let (edit, added) = set(None, &[(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], 0).expect("a hash");
        assert_eq!(added, 2);
        let value = bytes(edit);
        let found = get_many(Some(&value), &[b"a", b"x", b"b", b"a"], 0);
        let three = Some(Text::Integer(3));
        assert_eq!(found, Ok(vec![three, None, Some(Text::Integer(2)), three]));
    }

    #[test]
    fn numbers_are_added_as_by_redis() {
        let value = hash(&[
            ("max", "9223372036854775807"),
            ("float", "10.50"),
            ("text", "1 "),
            ("", "-0"),
        ]);
        let value = Some(&value[..]);
        assert_eq!(increment(value, b"max", 1, 0), Err(ValueError::Overflow));
        for field in [&b"float"[..], b"text", b""] {
            assert_eq!(increment(value, field, 1, 0), Err(ValueError::NotAnInteger));
        }
        assert_eq!(increment(value, b"new", -3, 0).map(|(_, sum)| sum), Ok(-3));
        assert_eq!(increment(value, b"max", 0, 0), Ok((Edit::Keep, i64::MAX)));
        assert_eq!(
            increment_float(value, b"float", b"0.1", 0).map(|(_, sum)| sum),
            Ok("10.6".to_owned())
        );
        assert_eq!(
            increment_float(value, b"new", b"5e-1", 0).map(|(_, sum)| sum),
            Ok("0.5".to_owned())
        );
        assert_eq!(increment_float(value, b"text", b"1", 0), Err(ValueError::NotAFloat));
        assert_eq!(increment_float(value, b"float", b"x", 0), Err(ValueError::InvalidFloat));
        assert_eq!(
            increment_float(value, b"float", b"-inf", 0),
            Err(ValueError::InfiniteIncrement)
        );
        let large = hash(&[("a", "1.7e308")]);
        assert_eq!(
            increment_float(Some(&large), b"a", b"1.7e308", 0),
            Err(ValueError::Infinite)
        );
    }

    #[test]
    fn a_field_that_is_past_its_time_before_the_earliest_is_not_drawn() {
        // The head says 1000, the field 1: whoever believed the head drew from a hash without fields.
        let mut value = hash(&[("a", "1")]);
        value = bytes(
            expire(Some(&value), &[b"a"], 1, ExpiryCondition::Always, 0)
                .expect("a hash")
                .0,
        );
        value[2..10].copy_from_slice(&1000_u64.to_le_bytes());
        for draw in [Draw::Repeated(3), Draw::Distinct(3)] {
            let drawn = random(Some(&value), draw, 10, &mut |bound| bound - 1, &mut |_, _| {
                panic!("a field")
            });
            assert_eq!(drawn, Ok(()));
        }
    }

    #[test]
    fn flags_that_last_stay() {
        let mut value = hash(&[("a", "1"), ("b", "2")]);
        format::set_awaited(&mut value, true);
        value[0] |= format::LARGE;
        let (edit, _) = remove(Some(&value), &[b"a"], 0).expect("a hash");
        assert_eq!(bytes(edit)[0], value[0]);
    }

    #[test]
    fn a_field_shares_what_there_is() {
        for value in [
            &[0, 1, 0x10, 0][..],
            &[0, 2, 1, b'a', 0, 0x21, b'b', 0],
            &[0, 2, 0xff, 1, b'a', 0, 0x21, b'b', 0],
        ] {
            assert!(
                matches!(get(Some(value), b"x", 0), Err(ValueError::Damaged(_))),
                "{value:?}"
            );
        }
        assert_eq!(
            get(Some(&[0, 2, 1, b'a', 0, 0x11, b'b', 0]), b"ab", 0),
            Ok(Some(Text::Bytes(b"")))
        );
    }

    #[test]
    fn what_is_not_the_form_of_a_hash_is_damage() {
        for value in [
            &[0, 1, 0x10, 0][..],
            &[0, 1, 0x0f, 0],
            &[0, 1, 0xf0, 0],
            &[0, 2, 1, b'a', 0, 1, b'a', 0],
            &[0, 2, 1, b'a', 0, 0x10, 0],
            &[0, 1, 0xff, 1, b'a', 0],
            &[0, 1, 1, b'a', 1, b'7'],
            &[0, 1, 1, b'a', 0, 0],
            &[8, 1, 1, b'a', 0],
            &[2, 1, 5, 0, 0, 0, 0, 0, 0, 0, 1, b'a', 0, 6, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert!(matches!(check(value), Err(ValueError::Damaged(_))), "{value:?}");
        }
    }
}
