//! Packed sorted sets: members and scores, by score, then by the bytes of the member. `range.rs` has their ranges.
//!
//! ZINCRBY is [`add`] with an increment. ZRANGESTORE is [`range()`] and [`build`].

mod range;

pub use self::range::{Direction, LexBound, Limit, Range, ScoreBound};

use super::{check_different, check_text, is_scanned};
use crate::format::{self, INTEGERS, Packed};
use crate::needles::Needles;
use crate::score;
use crate::string::{self, Digits, Text};
use crate::{Draw, Edit, Edited, ValueError};

/// A member and its score.
pub type Entry<'a> = (Text<'a>, f64);

/// Members and scores, from the first on.
struct Entries<'a> {
    body: &'a [u8],
    at: usize,
    left: u32,
    /// Where the score of the member is that was returned last.
    score_at: usize,
}

impl<'a> Entries<'a> {
    fn new(packed: &Packed<'a>) -> Self {
        Self {
            body: packed.body,
            at: 0,
            left: packed.count,
            score_at: 0,
        }
    }

    /// The next member; its score is not read unless it is asked for.
    #[inline]
    fn next_member(&mut self) -> Result<Option<Text<'a>>, ValueError> {
        if self.left == 0 {
            format::check_end(self.body, self.at)?;
            return Ok(None);
        }
        self.left -= 1;
        let member = string::read(self.body, &mut self.at)?;
        self.score_at = self.at;
        score::skip(self.body, &mut self.at)?;
        Ok(Some(member))
    }

    fn score(&self) -> Result<f64, ValueError> {
        let mut at = self.score_at;
        score::read(self.body, &mut at)
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Entry<'a>>, ValueError> {
        match self.next_member()? {
            None => Ok(None),
            Some(member) => Ok(Some((member, self.score()?))),
        }
    }
}

/// The order of a sorted set. No score is NaN, and -0.0 is equal to 0.0.
fn order(one: &Entry<'_>, other: &Entry<'_>) -> core::cmp::Ordering {
    let by_score = one.1.partial_cmp(&other.1).expect("no score is NaN");
    by_score.then_with(|| one.0.cmp(&other.0))
}

/// Which members ZADD touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Existence {
    /// All.
    #[default]
    Any,
    /// NX: those that are not there.
    New,
    /// XX: those that are.
    Old,
}

/// Which scores ZADD replaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Comparison {
    /// All.
    #[default]
    Any,
    /// GT: those that are less than the new one.
    Greater,
    /// LT: those that are greater.
    Less,
}

/// Options of ZADD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AddOptions {
    /// NX, XX.
    pub existence: Existence,
    /// GT, LT.
    pub comparison: Comparison,
    /// INCR: scores are added to those that are there.
    pub is_increment: bool,
}

/// What ZADD did.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Added {
    /// New members.
    pub added: u32,
    /// Members that got another score.
    pub updated: u32,
    /// The score of the last member by now; `None` if an option kept it from being touched. What INCR answers.
    pub score: Option<f64>,
}

/// ZADD, ZINCRBY: sets the scores of members, one after the other.
///
/// # Errors
///
/// [`ValueError::NotANumber`]: a score is, or would be. [`ValueError::Damaged`].
pub fn add(old: Option<&[u8]>, entries: &[(f64, &[u8])], options: AddOptions) -> Edited<Added> {
    let packed = Packed::of(old)?;
    let members: Vec<_> = entries.iter().map(|entry| entry.1).collect();
    let needles = Needles::new(&members);
    // For each member that is named, what it had and has: place in the value, score.
    let mut found: Vec<Option<(u32, f64)>> = vec![None; entries.len()];
    let mut reader = Entries::new(&packed);
    let mut place = 0;
    while let Some(member) = reader.next_member()? {
        if let Some(first) = needles.find(&member) {
            found[first] = Some((place, reader.score()?));
        }
        place += 1;
    }
    let mut scores: Vec<_> = found.iter().map(|found| found.map(|(_, score)| score)).collect();
    let mut answer = Added::default();
    for (place, (score, _)) in entries.iter().enumerate() {
        if score.is_nan() {
            return Err(ValueError::NotANumber);
        }
        let current = &mut scores[needles.first(place)];
        answer.score = apply(*current, *score, options)?;
        match (*current, answer.score) {
            (_, None) => {}
            (None, Some(_)) => {
                answer.added += 1;
                *current = answer.score;
            }
            (Some(old), Some(new)) if old != new => {
                answer.updated += 1;
                *current = answer.score;
            }
            _ => {}
        }
    }
    let mut removed = Vec::new();
    let mut inserted = Vec::new();
    for (place, (found, score)) in found.into_iter().zip(scores).enumerate() {
        let Some(score) = score else { continue };
        match found {
            Some((_, old)) if old == score => continue,
            Some((at, _)) => removed.push(at),
            None => {}
        }
        inserted.push((needles.text(place), score));
    }
    Ok((merge(&packed, removed, inserted)?, answer))
}

/// The score that a member gets; `None` if it is not touched.
fn apply(current: Option<f64>, score: f64, options: AddOptions) -> Result<Option<f64>, ValueError> {
    let Some(current) = current else {
        return Ok((options.existence != Existence::Old).then_some(score));
    };
    if options.existence == Existence::New {
        return Ok(None);
    }
    let new = if options.is_increment { current + score } else { score };
    if new.is_nan() {
        return Err(ValueError::NotANumber);
    }
    let is_touched = match options.comparison {
        Comparison::Any => true,
        Comparison::Greater => new > current,
        Comparison::Less => new < current,
    };
    Ok(is_touched.then_some(new))
}

/// Removes the entries at these places, and inserts others.
fn merge(packed: &Packed<'_>, mut removed: Vec<u32>, mut inserted: Vec<Entry<'_>>) -> Result<Edit, ValueError> {
    if removed.is_empty() && inserted.is_empty() {
        return Ok(Edit::Keep);
    }
    removed.sort_unstable();
    inserted.sort_by(order);
    let bytes = inserted.iter().map(|(member, _)| {
        18 + if let Text::Bytes(bytes) = member {
            bytes.len()
        } else {
            0
        }
    });
    let mut writer = packed.writer(0, bytes.sum());
    let mut put = |bytes: &[u8], entry: Option<Entry<'_>>| {
        writer.copy(bytes, 0);
        if let Some((member, score)) = entry {
            writer.text(member);
            score::put(score, writer.elements(0));
        }
    };
    let mut removed = removed.into_iter().peekable();
    let mut inserted = inserted.into_iter().peekable();
    let mut entries = Entries::new(packed);
    // Entries that stay are copied in runs: the current one began there.
    let mut start = 0;
    let mut kept = packed.count as usize;
    for place in 0.. {
        // Behind the last change everything stays.
        if removed.peek().is_none() && inserted.peek().is_none() {
            break;
        }
        let at = entries.at;
        let Some(member) = entries.next_member()? else { break };
        if removed.next_if_eq(&place).is_some() {
            put(&packed.body[start..at], None);
            start = entries.at;
            kept -= 1;
            continue;
        }
        if inserted.peek().is_some() {
            let entry = (member, entries.score()?);
            while let Some(smaller) = inserted.next_if(|new| order(new, &entry).is_lt()) {
                put(&packed.body[start..at], Some(smaller));
                start = at;
            }
        }
    }
    put(&packed.body[start..], None);
    inserted.for_each(|entry| put(&[], Some(entry)));
    writer.elements(kept);
    Ok(writer.finish(0))
}

/// A sorted set of these entries, whose members are different: for ZRANGESTORE, ZUNIONSTORE and their like. The key is
/// deleted if there are none.
///
/// # Panics
///
/// A score is NaN.
#[must_use]
pub fn build(entries: Vec<Entry<'_>>) -> Edit {
    let edit = Packed::of(None).and_then(|packed| merge(&packed, Vec::new(), entries));
    match edit.expect("an absent value is not damaged") {
        Edit::Keep => Edit::Delete,
        edit => edit,
    }
}

/// Sorts entries as they are in a sorted set.
///
/// # Panics
///
/// A score is NaN.
pub fn sort(entries: &mut [Entry<'_>]) {
    entries.sort_by(order);
}

/// ZREM: removes members. Answers how many were there.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn remove(old: Option<&[u8]>, members: &[&[u8]]) -> Edited<u32> {
    let packed = Packed::of(old)?;
    let needles = Needles::new(members);
    let mut entries = Entries::new(&packed);
    let mut removed = Vec::new();
    let mut place = 0;
    while let Some(member) = entries.next_member()? {
        if needles.find(&member).is_some() {
            removed.push(place);
        }
        place += 1;
    }
    let count = removed.len() as u32;
    Ok((merge(&packed, removed, Vec::new())?, count))
}

/// ZSCORE.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn score(value: Option<&[u8]>, member: &[u8]) -> Result<Option<f64>, ValueError> {
    Ok(find(value, member)?.map(|(_, score)| score))
}

/// The place and the score of a member.
fn find(value: Option<&[u8]>, member: &[u8]) -> Result<Option<(u32, f64)>, ValueError> {
    let wanted = Text::new(member);
    let mut entries = Entries::new(&Packed::of(value)?);
    let mut place = 0;
    while let Some(member) = entries.next_member()? {
        if member == wanted {
            return Ok(Some((place, entries.score()?)));
        }
        place += 1;
    }
    Ok(None)
}

/// ZMSCORE: the scores of members, in the order of the arguments.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn scores(value: Option<&[u8]>, members: &[&[u8]]) -> Result<Vec<Option<f64>>, ValueError> {
    let needles = Needles::new(members);
    let mut scores = vec![None; members.len()];
    let mut entries = Entries::new(&Packed::of(value)?);
    while let Some(member) = entries.next_member()? {
        if let Some(place) = needles.find(&member) {
            scores[place] = Some(entries.score()?);
        }
    }
    for place in 0..scores.len() {
        scores[place] = scores[needles.first(place)];
    }
    Ok(scores)
}

/// ZRANK, ZREVRANK: how many members come before one, and its score.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn rank(value: Option<&[u8]>, member: &[u8], direction: Direction) -> Result<Option<(u32, f64)>, ValueError> {
    let Some((place, score)) = find(value, member)? else {
        return Ok(None);
    };
    let rank = match direction {
        Direction::Ascending => place,
        Direction::Descending => format::count(value)? - 1 - place,
    };
    Ok(Some((rank, score)))
}

/// ZRANGE and its like: the entries of a range, in a direction.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn range<'a>(
    value: Option<&'a [u8]>,
    range: &Range<'_>,
    direction: Direction,
    limit: Limit,
) -> Result<Vec<Entry<'a>>, ValueError> {
    let packed = Packed::of(value)?;
    let mut places = range.places(&packed, direction)?;
    let all = places.len() as u32;
    // What is negative is larger than everything.
    let offset = u32::try_from(limit.offset).unwrap_or(u32::MAX).min(all);
    let count = u32::try_from(limit.count).unwrap_or(u32::MAX).min(all - offset);
    match direction {
        Direction::Ascending => places = places.start + offset..places.start + offset + count,
        Direction::Descending => places = places.end - offset - count..places.end - offset,
    }
    let (mut found, _) = read(&packed, places)?;
    if direction == Direction::Descending {
        found.reverse();
    }
    Ok(found)
}

/// The entries at these places, and where their bytes are.
fn read<'a>(
    packed: &Packed<'a>,
    places: core::ops::Range<u32>,
) -> Result<(Vec<Entry<'a>>, core::ops::Range<usize>), ValueError> {
    let mut entries = Entries::new(packed);
    let mut found = Vec::with_capacity(places.len());
    if places.is_empty() {
        return Ok((found, 0..0));
    }
    for _ in 0..places.start {
        entries.next()?;
    }
    let start = entries.at;
    for _ in places {
        found.extend(entries.next()?);
    }
    Ok((found, start..entries.at))
}

/// ZCOUNT, ZLEXCOUNT: how many entries a range has.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn count(value: Option<&[u8]>, range: &Range<'_>) -> Result<u32, ValueError> {
    let places = range.places(&Packed::of(value)?, Direction::Ascending)?;
    Ok(places.len() as u32)
}

/// ZREMRANGEBYRANK and its like: removes the entries of a range, seen from the lowest score up. Answers how many there were.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn remove_range(old: Option<&[u8]>, range: &Range<'_>) -> Edited<u32> {
    let packed = Packed::of(old)?;
    let (edit, removed) = cut(&packed, range.places(&packed, Direction::Ascending)?)?;
    Ok((edit, removed.len() as u32))
}

/// Removes the entries at these places. Answers them.
fn cut<'a>(packed: &Packed<'a>, places: core::ops::Range<u32>) -> Edited<Vec<Entry<'a>>> {
    let (removed, bytes) = read(packed, places)?;
    if removed.is_empty() {
        return Ok((Edit::Keep, removed));
    }
    let mut writer = packed.writer(0, 0);
    writer.copy(&packed.body[..bytes.start], 0);
    writer.copy(&packed.body[bytes.end..], packed.count as usize - removed.len());
    Ok((writer.finish(0), removed))
}

/// ZPOPMIN (ascending) and ZPOPMAX (descending): removes the first `count` entries, or all. Answers them.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn pop(old: Option<&[u8]>, direction: Direction, count: u64) -> Edited<Vec<Entry<'_>>> {
    let packed = Packed::of(old)?;
    let count = u32::try_from(count).unwrap_or(u32::MAX).min(packed.count);
    match direction {
        Direction::Ascending => cut(&packed, 0..count),
        Direction::Descending => {
            let (edit, mut popped) = cut(&packed, packed.count - count..packed.count)?;
            popped.reverse();
            Ok((edit, popped))
        }
    }
}

/// Every entry, from the lowest score up.
///
/// # Errors
///
/// [`ValueError::Damaged`], when some may have been shown.
pub fn each<'a>(value: Option<&'a [u8]>, show: &mut dyn FnMut(Text<'a>, f64)) -> Result<(), ValueError> {
    let mut entries = Entries::new(&Packed::of(value)?);
    while let Some((member, score)) = entries.next()? {
        show(member, score);
    }
    Ok(())
}

/// ZRANDMEMBER: entries by chance.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn random(
    value: Option<&[u8]>,
    draw: Draw,
    random: &mut dyn FnMut(u64) -> u64,
    show: &mut dyn FnMut(Text<'_>, f64),
) -> Result<(), ValueError> {
    let mut entries = Vec::new();
    each(value, &mut |member, score| entries.push((member, score)))?;
    if !entries.is_empty() {
        draw.ranks(entries.len() as u64, random, &mut |rank| {
            let (member, score) = entries[rank as usize];
            show(member, score);
        });
    }
    Ok(())
}

/// ZSCAN: see [`packed`](super).
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn scan<'a>(
    value: Option<&'a [u8]>,
    cursor: u64,
    seed: u64,
    show: &mut dyn FnMut(Text<'a>, f64),
) -> Result<u64, ValueError> {
    each(value, &mut |member, score| {
        if is_scanned(cursor, seed, member.bytes(&mut Digits::new())) {
            show(member, score);
        }
    })?;
    Ok(0)
}

/// Looks at every byte.
///
/// # Errors
///
/// [`ValueError::Damaged`]: the value is not what a writer has written.
pub fn check(value: &[u8]) -> Result<(), ValueError> {
    let packed = Packed::of(Some(value))?;
    if packed.earliest != 0 || packed.flags & INTEGERS != 0 {
        return Err(ValueError::Damaged("a sorted set with flags of another type"));
    }
    let mut all = Vec::with_capacity(packed.count as usize);
    let mut entries = Entries::new(&packed);
    while let Some(entry) = entries.next()? {
        check_text(entry.0)?;
        if all.last().is_some_and(|last| order(last, &entry).is_ge()) {
            return Err(ValueError::Damaged("a sorted set is not in order"));
        }
        all.push(entry);
    }
    check_different(all.iter().map(|entry| entry.0).collect())
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

    fn sorted(entries: &[(f64, &str)]) -> Vec<u8> {
        let entries: Vec<_> = entries
            .iter()
            .map(|(score, member)| (*score, member.as_bytes()))
            .collect();
        bytes(add(None, &entries, AddOptions::default()).expect("a sorted set").0)
    }

    fn shown(entries: &[Entry<'_>]) -> String {
        let mut text = String::new();
        for (member, score) in entries {
            text.push_str(&format!("{}={score} ", String::from_utf8_lossy(&member.to_vec())));
        }
        text.trim_end().to_owned()
    }

    #[test]
    fn entries_are_by_score_and_then_by_bytes() {
        let value = sorted(&[(1.5, "b"), (-1.0, "x"), (1.5, "10"), (1.5, "9"), (0.0, "")]);
        let all = range(
            Some(&value),
            &Range::Index { start: 0, stop: -1 },
            Direction::Ascending,
            Limit::NONE,
        );
        assert_eq!(shown(&all.expect("all")), "x=-1 =0 10=1.5 9=1.5 b=1.5");
        assert_eq!(&value[..9], [0, 5, 1, b'x', 0xc0, 0xff, 0, 0xc0, 0]);
        assert_eq!(check(&value), Ok(()));
    }

    #[test]
    fn options_decide_what_is_touched() {
        let value = sorted(&[(1.0, "a"), (2.0, "b")]);
        let options = |existence, comparison, is_increment| AddOptions {
            existence,
            comparison,
            is_increment,
        };
        use Comparison::{Greater, Less};
        use Existence::{Any, New, Old};
        for (entry, options, added, updated, score) in [
            ((5.0, "a"), options(New, Comparison::Any, false), 0, 0, None),
            ((5.0, "c"), options(New, Comparison::Any, false), 1, 0, Some(5.0)),
            ((5.0, "c"), options(Old, Comparison::Any, false), 0, 0, None),
            ((5.0, "a"), options(Old, Comparison::Any, false), 0, 1, Some(5.0)),
            ((0.5, "a"), options(Any, Greater, false), 0, 0, None),
            ((1.0, "a"), options(Any, Greater, false), 0, 0, None),
            ((1.5, "a"), options(Any, Greater, false), 0, 1, Some(1.5)),
            ((1.5, "a"), options(Any, Less, false), 0, 0, None),
            ((0.5, "c"), options(Any, Less, false), 1, 0, Some(0.5)),
            ((0.5, "c"), options(Old, Less, false), 0, 0, None),
            ((3.0, "a"), options(Any, Comparison::Any, true), 0, 1, Some(4.0)),
            ((0.0, "a"), options(Any, Comparison::Any, true), 0, 0, Some(1.0)),
            ((-3.0, "a"), options(Any, Greater, true), 0, 0, None),
            ((-3.0, "a"), options(Any, Less, true), 0, 1, Some(-2.0)),
            ((2.0, "c"), options(Any, Comparison::Any, true), 1, 0, Some(2.0)),
        ] {
            let (edit, answer) = add(Some(&value), &[(entry.0, entry.1.as_bytes())], options).expect("a sorted set");
            assert_eq!(answer, Added { added, updated, score }, "{entry:?} {options:?}");
            assert_eq!(edit == Edit::Keep, added + updated == 0);
        }
    }

    #[test]
    fn a_member_that_is_named_twice_is_added_once() {
        let entries: [(f64, &[u8]); 3] = [(1.0, b"a"), (2.0, b"a"), (1.0, b"a")];
        let (edit, answer) = add(None, &entries, AddOptions::default()).expect("a sorted set");
        assert_eq!((answer.added, answer.updated), (1, 2));
        assert_eq!(bytes(edit), sorted(&[(1.0, "a")]));
        let value = sorted(&[(1.0, "a")]);
        let (edit, answer) = add(Some(&value), &entries, AddOptions::default()).expect("a sorted set");
        assert_eq!((edit, answer.updated), (Edit::Keep, 2));
    }

    #[test]
    fn no_score_is_nan() {
        let value = sorted(&[(f64::INFINITY, "a")]);
        let increment = AddOptions {
            is_increment: true,
            ..AddOptions::default()
        };
        let added = add(Some(&value), &[(f64::NEG_INFINITY, b"a")], increment);
        assert_eq!(added, Err(ValueError::NotANumber));
        let added = add(Some(&value), &[(f64::NAN, b"a")], AddOptions::default());
        assert_eq!(added, Err(ValueError::NotANumber));
    }

    #[test]
    fn zero_has_two_signs_and_one_place() {
        let value = sorted(&[(0.0, "b"), (-0.0, "a"), (-0.0, "c")]);
        let all = range(
            Some(&value),
            &Range::Index { start: 0, stop: -1 },
            Direction::Ascending,
            Limit::NONE,
        );
        assert_eq!(shown(&all.expect("all")), "a=-0 b=0 c=-0");
        let added = add(Some(&value), &[(-0.0, b"b")], AddOptions::default()).expect("a sorted set");
        assert_eq!(added.0, Edit::Keep);
    }

    #[test]
    fn limits_count_in_the_direction_of_the_range() {
        let value = sorted(&[(1.0, "a"), (2.0, "b"), (3.0, "c"), (4.0, "d"), (5.0, "e")]);
        let bound = |text: &str| ScoreBound::parse(text.as_bytes()).expect("a bound");
        let scores = Range::Score {
            min: bound("(1"),
            max: bound("5"),
        };
        for (direction, offset, count, expected) in [
            (Direction::Ascending, 0, -1, "b=2 c=3 d=4 e=5"),
            (Direction::Ascending, 1, 2, "c=3 d=4"),
            (Direction::Descending, 1, 2, "d=4 c=3"),
            (Direction::Descending, 3, 9, "b=2"),
            (Direction::Ascending, 4, -1, ""),
            (Direction::Ascending, -1, 5, ""),
            (Direction::Ascending, 0, 0, ""),
            (Direction::Descending, i64::MAX, i64::MAX, ""),
        ] {
            let found = range(Some(&value), &scores, direction, Limit { offset, count });
            assert_eq!(
                shown(&found.expect("a range")),
                expected,
                "{direction:?} {offset} {count}"
            );
        }
        let index = Range::Index { start: 1, stop: -2 };
        let found = range(Some(&value), &index, Direction::Descending, Limit::NONE);
        assert_eq!(shown(&found.expect("a range")), "d=4 c=3 b=2");
        let none = Range::Score {
            min: bound("4"),
            max: bound("(2"),
        };
        assert_eq!(count(Some(&value), &none), Ok(0));
        assert_eq!(remove_range(Some(&value), &none), Ok((Edit::Keep, 0)));
    }

    #[test]
    fn what_is_not_the_form_of_a_sorted_set_is_damage() {
        for value in [
            &[0, 2, 1, b'b', 0xc0, 1, 1, b'a', 0xc0, 1][..],
            &[0, 2, 1, b'a', 0xc0, 1, 1, b'a', 0xc0, 2],
            &[0, 2, 1, b'a', 0xc0, 1, 1, b'a', 0xc0, 1],
            &[0, 1, 1, b'7', 0xc0, 1],
            &[0, 1, 1, b'a', 1, b'b'],
            &[8, 1, 1, b'a', 0xc0, 1],
            &[0, 1, 1, b'a', 0xc0, 1, 0],
        ] {
            assert!(matches!(check(value), Err(ValueError::Damaged(_))), "{value:?}");
        }
    }
}
