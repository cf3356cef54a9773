//! Expiry of fields: HEXPIRE and its like, as in Redis 7.4.
//!
//! The head of a hash knows the earliest time, so whoever looks after hashes need not read their fields.

use super::fields::{FieldWriter, Fields, Value};
use super::{Fate, edit, find_many, live_count};
use crate::format::Packed;
use crate::needles::Needles;
use crate::{Edit, Edited, ValueError};

/// When HEXPIRE and its like set an expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpiryCondition {
    /// Always.
    Always,
    /// NX: the field has none.
    Unset,
    /// XX: it has one.
    Set,
    /// GT: it has one, and that is earlier.
    Later,
    /// LT: it has none, or that is later.
    Earlier,
}

impl ExpiryCondition {
    fn holds(self, old_ms: u64, new_ms: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Unset => old_ms == 0,
            Self::Set => old_ms != 0,
            Self::Later => old_ms != 0 && new_ms > old_ms,
            Self::Earlier => old_ms == 0 || new_ms < old_ms,
        }
    }
}

/// What HEXPIRE and its like did with a field. As a number it is what they answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i8)]
pub enum ExpiryOutcome {
    /// There is no such field.
    NoField = -2,
    /// The condition does not hold.
    Refused = 0,
    /// It expires then.
    Set = 1,
    /// That time is over: the field was removed.
    Removed = 2,
}

/// When a field expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldExpiry {
    /// There is no such field.
    NoField,
    /// Never.
    Never,
    /// Then, in milliseconds since 1970.
    At(u64),
}

impl FieldExpiry {
    fn of(found: Option<Value<'_>>) -> Self {
        match found {
            None => Self::NoField,
            Some(Value { expiry_ms: 0, .. }) => Self::Never,
            Some(Value { expiry_ms, .. }) => Self::At(expiry_ms),
        }
    }
}

/// HPEXPIREAT and its like: fields expire `at_ms`, in milliseconds since 1970. Answers what became of each.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn expire(
    old: Option<&[u8]>,
    fields: &[&[u8]],
    at_ms: u64,
    condition: ExpiryCondition,
    now_ms: u64,
) -> Edited<Vec<ExpiryOutcome>> {
    let needles = Needles::fields(fields);
    let mut outcomes = vec![ExpiryOutcome::NoField; fields.len()];
    let edit = edit(old, &needles, now_ms, true, &mut |place, found| {
        let Some(value) = found else { return Fate::Keep };
        let (outcome, fate) = if !condition.holds(value.expiry_ms, at_ms) {
            (ExpiryOutcome::Refused, Fate::Keep)
        } else if at_ms <= now_ms {
            (ExpiryOutcome::Removed, Fate::Remove)
        } else {
            let text = value.text;
            (ExpiryOutcome::Set, Fate::Put(Value { text, expiry_ms: at_ms }))
        };
        outcomes[place] = outcome;
        fate
    })?;
    for place in 0..outcomes.len() {
        let first = needles.first(place);
        if first != place {
            // Named again, the field is as the first time has left it.
            outcomes[place] = match outcomes[first] {
                ExpiryOutcome::Set if condition.holds(at_ms, at_ms) => ExpiryOutcome::Set,
                ExpiryOutcome::Set | ExpiryOutcome::Refused => ExpiryOutcome::Refused,
                ExpiryOutcome::Removed | ExpiryOutcome::NoField => ExpiryOutcome::NoField,
            };
        }
    }
    Ok((edit, outcomes))
}

/// HPERSIST: fields do not expire any more. Answers what the expiry of each was.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn persist(old: Option<&[u8]>, fields: &[&[u8]], now_ms: u64) -> Edited<Vec<FieldExpiry>> {
    let needles = Needles::fields(fields);
    let mut expiries = vec![FieldExpiry::NoField; fields.len()];
    let edit = edit(old, &needles, now_ms, false, &mut |place, found| {
        expiries[place] = FieldExpiry::of(found);
        match found {
            Some(Value { text, .. }) => Fate::Put(Value { text, expiry_ms: 0 }),
            None => Fate::Keep,
        }
    })?;
    for place in 0..expiries.len() {
        let first = needles.first(place);
        if first != place {
            expiries[place] = match expiries[first] {
                FieldExpiry::NoField => FieldExpiry::NoField,
                FieldExpiry::Never | FieldExpiry::At(_) => FieldExpiry::Never,
            };
        }
    }
    Ok((edit, expiries))
}

/// HPEXPIRETIME and its like: when fields expire.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn expiries(value: Option<&[u8]>, fields: &[&[u8]], now_ms: u64) -> Result<Vec<FieldExpiry>, ValueError> {
    let found = find_many(value, fields, now_ms)?;
    Ok(found.into_iter().map(FieldExpiry::of).collect())
}

/// The earliest time at which a field expires, in milliseconds since 1970; 0: none does.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn earliest_expiry(value: Option<&[u8]>) -> Result<u64, ValueError> {
    Ok(Packed::of(value)?.earliest)
}

/// Removes the fields that are past their time. Answers how many there were.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn sweep(old: Option<&[u8]>, now_ms: u64) -> Edited<u32> {
    let packed = Packed::of(old)?;
    let past = packed.count - live_count(old, now_ms)?;
    if past == 0 {
        return Ok((Edit::Keep, 0));
    }
    let mut writer = FieldWriter::new(&packed, true, 0);
    let mut fields = Fields::new(&packed);
    while let Some(value) = fields.next_live(now_ms)? {
        writer.put(fields.name.bytes(), value);
    }
    Ok((writer.finish()?, past))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{self, EXPIRES};
    use crate::packed::hash::tests::{bytes, hash};
    use crate::packed::hash::{get, increment, remove, set};
    use crate::string::Text;

    #[test]
    fn expiries_follow_redis_7_4() {
        use ExpiryOutcome::{NoField, Refused, Removed, Set};
        let value = hash(&[("a", "1"), ("b", "2")]);
        let (edit, outcomes) =
            expire(Some(&value), &[b"a", b"x", b"a"], 100, ExpiryCondition::Unset, 10).expect("a hash");
        assert_eq!(outcomes, [Set, NoField, Refused]);
        let value = bytes(edit);
        assert_eq!((value[0], earliest_expiry(Some(&value))), (EXPIRES, Ok(100)));
        for (condition, at_ms, expected) in [
            (ExpiryCondition::Later, 100, [Refused, Refused]),
            (ExpiryCondition::Later, 101, [Set, Refused]),
            (ExpiryCondition::Earlier, 100, [Refused, Set]),
            (ExpiryCondition::Earlier, 99, [Set, Set]),
            (ExpiryCondition::Set, 5, [Removed, Refused]),
            (ExpiryCondition::Unset, 5, [Refused, Removed]),
            (ExpiryCondition::Always, 10, [Removed, Removed]),
        ] {
            let (_, outcomes) = expire(Some(&value), &[b"a", b"b"], at_ms, condition, 10).expect("a hash");
            assert_eq!(outcomes, expected, "{condition:?} {at_ms}");
        }
        // A field that is set anew does not expire; an increment changes nothing of that.
        let (edit, sum) = increment(Some(&value), b"a", 1, 10).expect("a hash");
        assert_eq!((sum, earliest_expiry(Some(&bytes(edit)))), (2, Ok(100)));
        let (edit, _) = set(Some(&value), &[(b"a", b"1")], 10).expect("a hash");
        assert_eq!(bytes(edit), hash(&[("a", "1"), ("b", "2")]));
        // From its time on it is absent, and counted until somebody changes the hash.
        assert_eq!(get(Some(&value), b"a", 99), Ok(Some(Text::Integer(1))));
        assert_eq!(get(Some(&value), b"a", 100), Ok(None));
        assert_eq!(
            (format::count(Some(&value)), live_count(Some(&value), 100)),
            (Ok(2), Ok(1))
        );
        let (edit, removed) = remove(Some(&value), &[b"a"], 100).expect("a hash");
        assert_eq!((edit, removed), (Edit::Keep, 0));
        let (edit, added) = set(Some(&value), &[(b"a", b"3")], 100).expect("a hash");
        assert_eq!((bytes(edit), added), (hash(&[("b", "2"), ("a", "3")]), 1));
        assert_eq!(
            sweep(Some(&value), 100).map(|(edit, past)| (bytes(edit), past)),
            Ok((hash(&[("b", "2")]), 1))
        );
        let (edit, expiries) = persist(Some(&value), &[b"a", b"b", b"x", b"a"], 10).expect("a hash");
        assert_eq!(bytes(edit), hash(&[("a", "1"), ("b", "2")]));
        let expected = [
            FieldExpiry::At(100),
            FieldExpiry::Never,
            FieldExpiry::NoField,
            FieldExpiry::Never,
        ];
        assert_eq!(expiries, expected);
    }
}
