//! Packed lists: strings from head to tail.
//!
//! LPUSHX and RPUSHX are [`push`] for a value that is there. LMOVE takes a [`pop`] and a [`push`], or [`rotate`] if both keys
//! are one.

use super::{check_text, span};
use crate::format::{INTEGERS, Packed, Texts};
use crate::string::Text;
use crate::{Edit, Edited, ValueError};

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The left one, where element 0 is.
    Head,
    /// The right one.
    Tail,
}

/// A side of an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Towards the head.
    Before,
    /// Towards the tail.
    After,
}

/// LPUSH, RPUSH: adds elements at an end, one after the other. Answers how many there are then.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn push(old: Option<&[u8]>, end: End, elements: &[&[u8]]) -> Edited<u64> {
    let packed = Packed::of(old)?;
    if elements.is_empty() {
        return Ok((Edit::Keep, packed.count.into()));
    }
    let bytes: usize = elements.iter().map(|element| 9 + element.len()).sum();
    let mut writer = packed.writer(0, bytes);
    if end == End::Head {
        elements
            .iter()
            .rev()
            .for_each(|element| writer.text(Text::new(element)));
    }
    writer.copy(packed.body, packed.count as usize);
    if end == End::Tail {
        elements.iter().for_each(|element| writer.text(Text::new(element)));
    }
    Ok((writer.finish(0), u64::from(packed.count) + elements.len() as u64))
}

/// LPOP, RPOP: removes `count` elements from an end, or all. Answers them, from that end on.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn pop(old: Option<&[u8]>, end: End, count: u64) -> Edited<Vec<Text<'_>>> {
    let packed = Packed::of(old)?;
    let count = u32::try_from(count).unwrap_or(u32::MAX).min(packed.count);
    let mut popped = Vec::with_capacity(count as usize);
    let mut texts = packed.texts();
    if end == End::Tail {
        texts.skip(packed.count - count)?;
    }
    let start = texts.at;
    for _ in 0..count {
        popped.extend(texts.next()?);
    }
    if end == End::Tail {
        popped.reverse();
    }
    if count == 0 {
        return Ok((Edit::Keep, popped));
    }
    let rest = match end {
        End::Head => &packed.body[texts.at..],
        End::Tail => &packed.body[..start],
    };
    let mut writer = packed.writer(0, 0);
    writer.copy(rest, (packed.count - count) as usize);
    Ok((writer.finish(0), popped))
}

/// LMOVE within one list: moves an element from an end to an end. Answers it; `None` if the list is absent.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn rotate(old: Option<&[u8]>, from: End, to: End) -> Edited<Option<Text<'_>>> {
    let packed = Packed::of(old)?;
    let mut texts = packed.texts();
    let Some(last) = packed.count.checked_sub(1) else {
        return Ok((Edit::Keep, None));
    };
    if from == End::Tail {
        texts.skip(last)?;
    }
    let at = texts.at;
    let moved = texts.next()?;
    if from == to || last == 0 {
        return Ok((Edit::Keep, moved));
    }
    let mut writer = packed.writer(0, 0);
    // Between the two pieces is the seam at which head and tail meet.
    let seam = if from == End::Head { texts.at } else { at };
    writer.copy(&packed.body[seam..], 0);
    writer.copy(&packed.body[..seam], packed.count as usize);
    Ok((writer.finish(0), moved))
}

/// The place that an index names, which is counted from behind the tail if it is negative.
fn place(index: i64, count: u32) -> Option<u32> {
    let place = if index < 0 {
        index.checked_add(count.into())?
    } else {
        index
    };
    u32::try_from(place).ok().filter(|place| *place < count)
}

/// LINDEX: the element at an index; a negative one counts from behind the tail.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn index(value: Option<&[u8]>, index: i64) -> Result<Option<Text<'_>>, ValueError> {
    let packed = Packed::of(value)?;
    let Some(place) = place(index, packed.count) else {
        return Ok(None);
    };
    let mut texts = packed.texts();
    texts.skip(place)?;
    texts.next()
}

/// LRANGE: the elements from `start` to `stop`; negative ones count from behind the tail.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn range(value: Option<&[u8]>, start: i64, stop: i64) -> Result<Vec<Text<'_>>, ValueError> {
    let packed = Packed::of(value)?;
    let span = span(start, stop, packed.count);
    let mut found = Vec::with_capacity(span.len());
    let mut texts = packed.texts();
    if !span.is_empty() {
        texts.skip(span.start)?;
    }
    for _ in span {
        found.extend(texts.next()?);
    }
    Ok(found)
}

/// LSET: replaces the element at an index.
///
/// # Errors
///
/// [`ValueError::NoSuchKey`], [`ValueError::OutOfRange`], [`ValueError::Damaged`].
pub fn set(old: Option<&[u8]>, index: i64, element: &[u8]) -> Edited<()> {
    if old.is_none() {
        return Err(ValueError::NoSuchKey);
    }
    let packed = Packed::of(old)?;
    let place = place(index, packed.count).ok_or(ValueError::OutOfRange)?;
    let mut texts = packed.texts();
    texts.skip(place)?;
    let start = texts.at;
    let element = Text::new(element);
    if texts.next()? == Some(element) {
        return Ok((Edit::Keep, ()));
    }
    Ok((splice(&packed, start, texts.at, element, 0), ()))
}

/// Puts an element in the place of bytes, whereby there are so many elements more.
fn splice(packed: &Packed<'_>, start: usize, end: usize, element: Text<'_>, more: usize) -> Edit {
    let bytes = if let Text::Bytes(bytes) = element {
        bytes.len()
    } else {
        0
    };
    let mut writer = packed.writer(0, 9 + bytes);
    writer.copy(&packed.body[..start], packed.count as usize - 1 + more);
    writer.text(element);
    writer.copy(&packed.body[end..], 0);
    writer.finish(0)
}

/// LINSERT: inserts an element beside the first that is equal to `pivot`. Answers how many there are then; `None` if there is
/// no such element, or no list.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn insert(old: Option<&[u8]>, side: Side, pivot: &[u8], element: &[u8]) -> Edited<Option<u64>> {
    let packed = Packed::of(old)?;
    let pivot = Text::new(pivot);
    let mut texts = packed.texts();
    loop {
        let start = texts.at;
        match texts.next()? {
            None => return Ok((Edit::Keep, None)),
            Some(text) if text == pivot => {
                let at = if side == Side::Before { start } else { texts.at };
                let edit = splice(&packed, at, at, Text::new(element), 1);
                return Ok((edit, Some(u64::from(packed.count) + 1)));
            }
            Some(_) => {}
        }
    }
}

/// Every element that is equal to one: its place, and where its bytes are.
fn matches(mut texts: Texts<'_>, element: Text<'_>) -> Result<Vec<Match>, ValueError> {
    let mut found = Vec::new();
    let mut place = 0;
    loop {
        let start = texts.at;
        match texts.next()? {
            None => return Ok(found),
            Some(text) if text == element => found.push(Match {
                place,
                start,
                end: texts.at,
            }),
            Some(_) => {}
        }
        place += 1;
    }
}

struct Match {
    place: u32,
    start: usize,
    end: usize,
}

/// LREM: removes elements that are equal to one: the first `count`, the last `-count`, or all if it is 0. Answers how many.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn remove(old: Option<&[u8]>, count: i64, element: &[u8]) -> Edited<u32> {
    let packed = Packed::of(old)?;
    let found = matches(packed.texts(), Text::new(element))?;
    let most = match count.unsigned_abs() {
        0 => found.len(),
        most => usize::try_from(most).unwrap_or(usize::MAX).min(found.len()),
    };
    let removed = if count < 0 {
        &found[found.len() - most..]
    } else {
        &found[..most]
    };
    if removed.is_empty() {
        return Ok((Edit::Keep, 0));
    }
    let mut writer = packed.writer(0, 0);
    let mut start = 0;
    for Match { start: at, end, .. } in removed {
        writer.copy(&packed.body[start..*at], 0);
        start = *end;
    }
    writer.copy(&packed.body[start..], packed.count as usize - removed.len());
    Ok((writer.finish(0), removed.len() as u32))
}

/// LTRIM: keeps the elements from `start` to `stop`; negative ones count from behind the tail.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn trim(old: Option<&[u8]>, start: i64, stop: i64) -> Edited<()> {
    let packed = Packed::of(old)?;
    let span = span(start, stop, packed.count);
    if span.len() == packed.count as usize {
        return Ok((Edit::Keep, ()));
    }
    if span.is_empty() {
        return Ok((Edit::Delete, ()));
    }
    let mut texts = packed.texts();
    texts.skip(span.start)?;
    let start = texts.at;
    texts.skip(span.len() as u32)?;
    let mut writer = packed.writer(0, 0);
    writer.copy(&packed.body[start..texts.at], span.len());
    Ok((writer.finish(0), ()))
}

/// What LPOS looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Search {
    /// The first match that counts: 1 is the first from the head, -1 the first from the tail. Not 0.
    pub rank: i64,
    /// How many matches are answered; 0: all.
    pub count: u64,
    /// How many elements are compared, from the end at which the search begins; 0: all. (`MAXLEN`)
    pub compared_max: u64,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            rank: 1,
            count: 1,
            compared_max: 0,
        }
    }
}

/// LPOS: the places of elements that are equal to one, in the order in which the search finds them.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn positions(value: Option<&[u8]>, element: &[u8], search: Search) -> Result<Vec<u32>, ValueError> {
    let packed = Packed::of(value)?;
    let mut found = matches(packed.texts(), Text::new(element))?;
    let is_backward = search.rank < 0;
    if is_backward {
        found.reverse();
    }
    let unlimited = |limit: u64| if limit == 0 { u64::MAX } else { limit };
    let compared_max = unlimited(search.compared_max);
    let is_compared = |found: &Match| {
        let distance = if is_backward {
            packed.count - 1 - found.place
        } else {
            found.place
        };
        u64::from(distance) < compared_max
    };
    let skipped = search.rank.unsigned_abs().saturating_sub(1);
    let count = unlimited(search.count);
    let places = found.into_iter().take_while(is_compared).map(|found| found.place);
    let as_count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Ok(places.skip(as_count(skipped)).take(as_count(count)).collect())
}

/// Looks at every byte.
///
/// # Errors
///
/// [`ValueError::Damaged`]: the value is not what a writer has written.
pub fn check(value: &[u8]) -> Result<(), ValueError> {
    let packed = Packed::of(Some(value))?;
    if packed.earliest != 0 || packed.flags & INTEGERS != 0 {
        return Err(ValueError::Damaged("a list with flags of another type"));
    }
    let mut texts = packed.texts();
    while let Some(text) = texts.next()? {
        check_text(text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(elements: &[&str]) -> Vec<u8> {
        let elements: Vec<_> = elements.iter().map(|element| element.as_bytes()).collect();
        match push(None, End::Tail, &elements).expect("a list").0 {
            Edit::Put(value) => value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn elements_stand_one_behind_the_other() {
        assert_eq!(list(&["a", "-300", "a"]), [0, 3, 1, b'a', 0xc1, 0xd4, 0xfe, 1, b'a']);
        assert_eq!(
            push(None, End::Head, &[b"a", b"b"]),
            Ok((Edit::Put(list(&["b", "a"])), 2))
        );
    }

    #[test]
    fn searches_begin_at_either_end() {
        let value = list(&["a", "b", "c", "d", "1", "2", "3", "4", "3", "3", "3"]);
        for (rank, count, compared_max, expected) in [
            (1, 1, 0, &[6][..]),
            (-1, 1, 0, &[10]),
            (2, 0, 0, &[8, 9, 10]),
            (-2, 2, 0, &[9, 8]),
            (1, 0, 7, &[6]),
            (1, 0, 6, &[]),
            (-1, 0, 2, &[10, 9]),
            (5, 1, 0, &[]),
            (i64::MIN, 0, 0, &[]),
            (i64::MAX, 0, u64::MAX, &[]),
        ] {
            let search = Search {
                rank,
                count,
                compared_max,
            };
            assert_eq!(
                positions(Some(&value), b"3", search),
                Ok(expected.to_vec()),
                "{search:?}"
            );
        }
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let value = list(&["a"]);
        assert_eq!(set(None, 0, b"b"), Err(ValueError::NoSuchKey));
        assert_eq!(set(Some(&value), 1, b"b"), Err(ValueError::OutOfRange));
        assert_eq!(set(Some(&value), -2, b"b"), Err(ValueError::OutOfRange));
        assert_eq!(set(Some(&value), i64::MIN, b"b"), Err(ValueError::OutOfRange));
        assert_eq!(set(Some(&value), -1, b"a"), Ok((Edit::Keep, ())));
        assert_eq!(insert(Some(&value), Side::Before, b"x", b"b"), Ok((Edit::Keep, None)));
        assert_eq!(trim(Some(&value), 1, 0), Ok((Edit::Delete, ())));
        assert_eq!(trim(None, 1, 0), Ok((Edit::Keep, ())));
    }

    #[test]
    fn what_is_not_the_form_of_a_list_is_damage() {
        for value in [
            &[0, 1, 1, b'7'][..],
            &[8, 1, 0],
            &[0, 2, 0],
            &[0, 1, 0, 0],
            &[2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert!(matches!(check(value), Err(ValueError::Damaged(_))), "{value:?}");
        }
    }
}
