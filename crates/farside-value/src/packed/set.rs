//! Packed sets: strings in the order in which they came; ascending while all of them are integers, which is a flag.
//!
//! A set that has once had another member does not become one of integers again, even if that member goes, as in Redis.

use super::{check_different, check_text, is_scanned};
use crate::format::{INTEGERS, Packed};
use crate::needles::Needles;
use crate::ranks;
use crate::string::{Digits, Text};
use crate::{Draw, Edit, Edited, ValueError};

const UNSORTED: ValueError = ValueError::Damaged("a set of integers has another member, or is not in order");

/// SADD: adds members. Answers how many are new.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn add(old: Option<&[u8]>, members: &[&[u8]]) -> Edited<u32> {
    let packed = Packed::of(old)?;
    let needles = Needles::new(members);
    let mut is_seen = vec![false; needles.len()];
    let mut texts = packed.texts();
    while let Some(text) = texts.next()? {
        if let Some(place) = needles.find(&text) {
            is_seen[place] = true;
        }
    }
    let new = (0..needles.len()).filter(|&place| !is_seen[place] && needles.first(place) == place);
    let new: Vec<_> = new.map(|place| needles.text(place)).collect();
    Ok((insert(&packed, &new)?, new.len() as u32))
}

/// Adds members that are different, and not there.
fn insert(packed: &Packed<'_>, new: &[Text<'_>]) -> Result<Edit, ValueError> {
    if new.is_empty() {
        return Ok(Edit::Keep);
    }
    let bytes = new
        .iter()
        .map(|text| 9 + if let Text::Bytes(bytes) = text { bytes.len() } else { 0 });
    let more_bytes = bytes.sum();
    let mut integers = Vec::new();
    if packed.flags & INTEGERS != 0 {
        let numbers = new.iter().map_while(|text| integer(*text));
        integers.extend(numbers);
    }
    if integers.len() < new.len() {
        let mut writer = packed.writer(0, more_bytes);
        writer.copy(packed.body, packed.count as usize);
        new.iter().for_each(|text| writer.text(*text));
        return Ok(writer.finish(0));
    }
    integers.sort_unstable();
    let mut writer = packed.writer(INTEGERS, more_bytes);
    let mut integers = integers.into_iter().peekable();
    let mut texts = packed.texts();
    let mut last = None;
    while let Some(text) = texts.next()? {
        let number = integer(text).filter(|number| last < Some(*number)).ok_or(UNSORTED)?;
        last = Some(number);
        while let Some(smaller) = integers.next_if(|new| *new < number) {
            writer.text(Text::Integer(smaller));
        }
        writer.text(text);
    }
    integers.for_each(|number| writer.text(Text::Integer(number)));
    Ok(writer.finish(0))
}

fn integer(text: Text<'_>) -> Option<i64> {
    match text {
        Text::Integer(number) => Some(number),
        Text::Bytes(_) => None,
    }
}

/// A set of these members, which are different: for SINTERSTORE and its like. The key is deleted if there are none.
#[must_use]
pub fn build(members: &[Text<'_>]) -> Edit {
    let nothing = Packed::of(None).and_then(|packed| insert(&packed, members));
    match nothing.expect("an absent value is not damaged") {
        Edit::Keep => Edit::Delete,
        edit => edit,
    }
}

/// SREM: removes members. Answers how many were there.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn remove(old: Option<&[u8]>, members: &[&[u8]]) -> Edited<u32> {
    let needles = Needles::new(members);
    let mut removed = 0;
    let edit = retain(&Packed::of(old)?, &mut |text| {
        let is_found = needles.find(&text).is_some();
        removed += u32::from(is_found);
        !is_found
    })?;
    Ok((edit, removed))
}

/// Keeps the members that `is_kept` is for.
fn retain<'a>(packed: &Packed<'a>, is_kept: &mut dyn FnMut(Text<'a>) -> bool) -> Result<Edit, ValueError> {
    let mut writer = packed.writer(packed.flags & INTEGERS, 0);
    let mut texts = packed.texts();
    // Members that stay are copied in runs: the current one began there, and has so many.
    let mut start = 0;
    let mut run = 0;
    loop {
        let at = texts.at;
        let text = texts.next()?;
        if let Some(text) = text
            && is_kept(text)
        {
            run += 1;
            continue;
        }
        if text.is_none() && run == packed.count {
            return Ok(Edit::Keep);
        }
        writer.copy(&packed.body[start..at], run as usize);
        (start, run) = (texts.at, 0);
        if text.is_none() {
            return Ok(writer.finish(0));
        }
    }
}

/// SISMEMBER.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn contains(value: Option<&[u8]>, member: &[u8]) -> Result<bool, ValueError> {
    let member = Text::new(member);
    let mut texts = Packed::of(value)?.texts();
    while let Some(text) = texts.next()? {
        if text == member {
            return Ok(true);
        }
    }
    Ok(false)
}

/// SMISMEMBER: for each of these, whether it is a member.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn contains_many(value: Option<&[u8]>, members: &[&[u8]]) -> Result<Vec<bool>, ValueError> {
    let needles = Needles::new(members);
    let mut found = vec![false; members.len()];
    let mut texts = Packed::of(value)?.texts();
    while let Some(text) = texts.next()? {
        if let Some(place) = needles.find(&text) {
            found[place] = true;
        }
    }
    for place in 0..found.len() {
        found[place] = found[needles.first(place)];
    }
    Ok(found)
}

/// SMEMBERS: every member.
///
/// # Errors
///
/// [`ValueError::Damaged`], when some may have been shown.
pub fn each<'a>(value: Option<&'a [u8]>, show: &mut dyn FnMut(Text<'a>)) -> Result<(), ValueError> {
    let mut texts = Packed::of(value)?.texts();
    while let Some(text) = texts.next()? {
        show(text);
    }
    Ok(())
}

/// SPOP: removes `count` members by chance, or all. Answers them.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn pop<'a>(old: Option<&'a [u8]>, count: u64, random: &mut dyn FnMut(u64) -> u64) -> Edited<Vec<Text<'a>>> {
    let packed = Packed::of(old)?;
    let members = u64::from(packed.count);
    let mut popped = Vec::new();
    if count >= members {
        each(old, &mut |text| popped.push(text))?;
        let edit = if members == 0 { Edit::Keep } else { Edit::Delete };
        return Ok((edit, popped));
    }
    let mut ranks = ranks::distinct(members, count, random).into_iter().peekable();
    let mut rank = 0;
    let edit = retain(&packed, &mut |text| {
        let is_drawn = ranks.next_if_eq(&rank).is_some();
        rank += 1;
        if is_drawn {
            popped.push(text);
        }
        !is_drawn
    })?;
    Ok((edit, popped))
}

/// SRANDMEMBER: members by chance.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn random(
    value: Option<&[u8]>,
    draw: Draw,
    random: &mut dyn FnMut(u64) -> u64,
    show: &mut dyn FnMut(Text<'_>),
) -> Result<(), ValueError> {
    let mut members = Vec::new();
    each(value, &mut |text| members.push(text))?;
    if !members.is_empty() {
        draw.ranks(members.len() as u64, random, &mut |rank| show(members[rank as usize]));
    }
    Ok(())
}

/// SSCAN: see [`packed`](super).
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn scan(value: Option<&[u8]>, cursor: u64, seed: u64, show: &mut dyn FnMut(Text<'_>)) -> Result<u64, ValueError> {
    each(value, &mut |text| {
        if is_scanned(cursor, seed, text.bytes(&mut Digits::new())) {
            show(text);
        }
    })?;
    Ok(0)
}

/// Whether all members are integers, and always were.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn is_of_integers(value: &[u8]) -> Result<bool, ValueError> {
    Ok(Packed::of(Some(value))?.flags & INTEGERS != 0)
}

/// Looks at every byte.
///
/// # Errors
///
/// [`ValueError::Damaged`]: the value is not what a writer has written.
pub fn check(value: &[u8]) -> Result<(), ValueError> {
    let packed = Packed::of(Some(value))?;
    if packed.earliest != 0 {
        return Err(ValueError::Damaged("a set with expiries"));
    }
    let mut members = Vec::with_capacity(packed.count as usize);
    let mut texts = packed.texts();
    while let Some(text) = texts.next()? {
        check_text(text)?;
        members.push(text);
    }
    if packed.flags & INTEGERS != 0 {
        let numbers: Option<Vec<_>> = members.iter().map(|text| integer(*text)).collect();
        if !numbers.ok_or(UNSORTED)?.is_sorted() {
            return Err(UNSORTED);
        }
    }
    check_different(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(edit: Edit) -> Vec<u8> {
        match edit {
            Edit::Put(value) => value,
            other => panic!("{other:?}"),
        }
    }

    fn set(members: &[&str]) -> Vec<u8> {
        let members: Vec<_> = members.iter().map(|member| member.as_bytes()).collect();
        bytes(add(None, &members).expect("a set").0)
    }

    #[test]
    fn integers_are_in_order_until_another_member_comes() {
        let value = set(&["30", "-1", "200", "30"]);
        assert_eq!(value, [INTEGERS, 3, 0xc0, 0xff, 0xc0, 30, 0xc1, 200, 0]);
        let (edit, added) = add(Some(&value), &[b"5", b"30"]).expect("a set");
        let value = bytes(edit);
        assert_eq!(
            (added, &value[..]),
            (1, &[INTEGERS, 4, 0xc0, 0xff, 0xc0, 5, 0xc0, 30, 0xc1, 200, 0][..])
        );
        let (edit, added) = add(Some(&value), &[b"1", b"a"]).expect("a set");
        let value = bytes(edit);
        let expected = [0, 6, 0xc0, 0xff, 0xc0, 5, 0xc0, 30, 0xc1, 200, 0, 0xc0, 1, 1, b'a'];
        assert_eq!((added, &value[..]), (2, &expected[..]));
        let value = bytes(remove(Some(&value), &[b"a"]).expect("a set").0);
        assert_eq!(is_of_integers(&value), Ok(false));
        assert_eq!(check(&value), Ok(()));
    }

    #[test]
    fn nothing_changes_where_nothing_is_to_change() {
        let value = set(&["a", "b"]);
        assert_eq!(add(Some(&value), &[b"b", b"a"]), Ok((Edit::Keep, 0)));
        assert_eq!(remove(Some(&value), &[b"c"]), Ok((Edit::Keep, 0)));
        assert_eq!(remove(None, &[b"c"]), Ok((Edit::Keep, 0)));
        assert_eq!(pop(None, 3, &mut |_| 0), Ok((Edit::Keep, vec![])));
        assert_eq!(pop(Some(&value), 0, &mut |_| 0), Ok((Edit::Keep, vec![])));
        assert_eq!(remove(Some(&value), &[b"b", b"a", b"a"]), Ok((Edit::Delete, 2)));
        assert_eq!(build(&[]), Edit::Delete);
    }

    #[test]
    fn what_is_not_the_form_of_a_set_is_damage() {
        for value in [
            &[0, 2, 1, b'a', 1, b'a'][..],
            &[0, 1, 1, b'7'],
            &[0, 1, 1, b'a', 0],
            &[INTEGERS, 1, 1, b'a'],
            &[INTEGERS, 2, 0xc0, 2, 0xc0, 1],
            &[2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert!(matches!(check(value), Err(ValueError::Damaged(_))), "{value:?}");
        }
        assert_eq!(add(Some(&[INTEGERS, 1, 1, b'a']), &[b"1"]), Err(UNSORTED));
        assert_eq!(add(Some(&[INTEGERS, 2, 0xc0, 2, 0xc0, 1]), &[b"5"]), Err(UNSORTED));
    }
}
