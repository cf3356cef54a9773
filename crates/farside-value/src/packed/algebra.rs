//! Unions, intersections and differences of sets and sorted sets, all of which have been read.
//!
//! A set counts as a sorted set whose scores are 1, as in Redis.

use std::collections::HashMap;

use super::{set, sorted};
use crate::ValueError;
use crate::format;
use crate::packed::sorted::Entry;
use crate::string::Text;

/// What is made of several values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Members of any.
    Union,
    /// Members of all.
    Intersection,
    /// Members of the first that none of the others has.
    Difference,
}

/// What is made of several scores of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Aggregate {
    /// Their sum; 0 where that is not a number.
    #[default]
    Sum,
    /// The least.
    Min,
    /// The greatest.
    Max,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            // Infinities of both signs.
            Self::Sum if (one + other).is_nan() => 0.0,
            Self::Sum => one + other,
            Self::Min if other < one => other,
            Self::Max if other > one => other,
            Self::Min | Self::Max => one,
        }
    }
}

/// A value that takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source<'a> {
    /// The key is absent: a value without members.
    Absent,
    /// A set.
    Set(&'a [u8]),
    /// A sorted set.
    SortedSet(&'a [u8]),
}

impl<'a> Source<'a> {
    fn count(&self) -> Result<u32, ValueError> {
        match *self {
            Self::Absent => Ok(0),
            Self::Set(value) | Self::SortedSet(value) => format::count(Some(value)),
        }
    }

    fn each(&self, show: &mut dyn FnMut(Text<'a>, f64)) -> Result<(), ValueError> {
        match *self {
            Self::Absent => Ok(()),
            Self::Set(value) => set::each(Some(value), &mut |member| show(member, 1.0)),
            Self::SortedSet(value) => sorted::each(Some(value), show),
        }
    }
}

/// SINTER, SUNION, SDIFF: the members, which are different, in no order that means something.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn members<'a>(operation: Operation, sources: &[Source<'a>]) -> Result<Vec<Text<'a>>, ValueError> {
    let entries = combine(operation, Aggregate::Min, sources, &[])?;
    Ok(entries.into_iter().map(|entry| entry.0).collect())
}

/// ZUNION, ZINTER, ZDIFF: the members and their scores, as they are in a sorted set. A source's scores are multiplied by its
/// weight, which is not NaN, and 1 if there are fewer weights; differences have no weights.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn entries<'a>(
    operation: Operation,
    aggregate: Aggregate,
    sources: &[Source<'a>],
    weights: &[f64],
) -> Result<Vec<Entry<'a>>, ValueError> {
    let mut entries = combine(operation, aggregate, sources, weights)?;
    sorted::sort(&mut entries);
    Ok(entries)
}

/// SINTERCARD, ZINTERCARD: how many members are in all sources, at most `limit`; 0: no limit.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn intersection_count(sources: &[Source<'_>], limit: u64) -> Result<u64, ValueError> {
    let count = members(Operation::Intersection, sources)?.len() as u64;
    Ok(if limit == 0 { count } else { count.min(limit) })
}

struct Member<'a> {
    entry: Entry<'a>,
    /// How many sources had it, up to the first that had not.
    sources: usize,
}

fn combine<'a>(
    operation: Operation,
    aggregate: Aggregate,
    sources: &[Source<'a>],
    weights: &[f64],
) -> Result<Vec<Entry<'a>>, ValueError> {
    let mut ordered = Vec::with_capacity(sources.len());
    for (place, source) in sources.iter().enumerate() {
        let weight = weights.get(place).copied().unwrap_or(1.0);
        ordered.push((source.count()?, *source, weight));
    }
    if operation != Operation::Difference {
        // The smallest first: an intersection has no other members. Sums depend on the order, and this is Redis's.
        ordered.sort_by_key(|source| source.0);
    }
    let mut members: Vec<Member<'a>> = Vec::new();
    let mut places: HashMap<Text<'a>, usize> = HashMap::new();
    for (place, (_, source, weight)) in ordered.iter().enumerate() {
        if place > 0 && operation != Operation::Union && members.is_empty() {
            break;
        }
        let takes_new = place == 0 || operation == Operation::Union;
        source.each(&mut |text, score| {
            let product = score * weight;
            // An infinity by a weight of 0. Within an intersection Redis lets it go on to be aggregated.
            let is_first = operation == Operation::Union || place == 0;
            let product = if product.is_nan() && is_first { 0.0 } else { product };
            if let Some(&at) = places.get(&text) {
                let member = &mut members[at];
                match operation {
                    Operation::Intersection if member.sources != place => return,
                    Operation::Difference => member.sources = usize::MAX,
                    _ => member.sources = place + 1,
                }
                if operation != Operation::Difference {
                    member.entry.1 = aggregate.of(member.entry.1, product);
                }
            } else if takes_new {
                places.insert(text, members.len());
                members.push(Member {
                    entry: (text, product),
                    sources: place + 1,
                });
            }
        })?;
    }
    let is_result = |member: &Member<'_>| match operation {
        Operation::Union => true,
        Operation::Intersection => member.sources == sources.len(),
        Operation::Difference => member.sources == 1,
    };
    Ok(members
        .into_iter()
        .filter(is_result)
        .map(|member| member.entry)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Edit;

    fn bytes(edit: Edit) -> Vec<u8> {
        match edit {
            Edit::Put(value) => value,
            other => panic!("{other:?}"),
        }
    }

    fn sorted(entries: &[(&'static str, f64)]) -> Vec<u8> {
        let entries = entries
            .iter()
            .map(|(member, score)| (Text::new(member.as_bytes()), *score));
        bytes(sorted::build(entries.collect()))
    }

    fn set(members: &[&'static str]) -> Vec<u8> {
        let members: Vec<_> = members.iter().map(|member| Text::new(member.as_bytes())).collect();
        bytes(set::build(&members))
    }

    fn shown(entries: &[Entry<'_>]) -> String {
        let entries = entries
            .iter()
            .map(|(member, score)| format!("{}={score}", String::from_utf8_lossy(&member.to_vec())));
        entries.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn scores_are_weighted_and_aggregated() {
        let one = sorted(&[("a", 1.0), ("b", 2.0), ("c", 3.0)]);
        let two = sorted(&[("b", 10.0), ("c", -20.0)]);
        let three = set(&["c", "d", "7"]);
        let sources = [Source::SortedSet(&one), Source::SortedSet(&two), Source::Set(&three)];
        for (operation, aggregate, weights, expected) in [
            (Operation::Union, Aggregate::Sum, &[][..], "c=-16 7=1 a=1 d=1 b=12"),
            (
                Operation::Union,
                Aggregate::Sum,
                &[2.0, 1.0, 10.0],
                "c=-4 a=2 7=10 d=10 b=14",
            ),
            (Operation::Union, Aggregate::Min, &[], "c=-20 7=1 a=1 d=1 b=2"),
            (Operation::Union, Aggregate::Max, &[], "7=1 a=1 d=1 c=3 b=10"),
            (Operation::Intersection, Aggregate::Sum, &[1.0, 0.5, 2.0], "c=-5"),
            (Operation::Intersection, Aggregate::Max, &[], "c=3"),
            (Operation::Difference, Aggregate::Sum, &[], "a=1"),
        ] {
            let found = entries(operation, aggregate, &sources, weights).expect("sets");
            assert_eq!(shown(&found), expected, "{operation:?} {aggregate:?} {weights:?}");
        }
    }

    #[test]
    fn infinities_of_both_signs_are_nothing() {
        let one = sorted(&[("a", f64::INFINITY), ("b", f64::INFINITY)]);
        let two = sorted(&[("a", f64::NEG_INFINITY)]);
        let sources = [Source::SortedSet(&one), Source::SortedSet(&two)];
        let found = entries(Operation::Union, Aggregate::Sum, &sources, &[]).expect("sets");
        assert_eq!(shown(&found), "a=0 b=inf");
        let found = entries(Operation::Union, Aggregate::Sum, &sources, &[0.0, 1.0]).expect("sets");
        assert_eq!(shown(&found), "a=-inf b=0");
        let found = entries(Operation::Intersection, Aggregate::Sum, &sources, &[0.0, 1.0]).expect("sets");
        assert_eq!(shown(&found), "a=0", "not a number, and so nothing");
        let found = entries(Operation::Intersection, Aggregate::Max, &sources, &[0.0, 1.0]).expect("sets");
        assert_eq!(shown(&found), "a=-inf");
    }

    #[test]
    fn sums_begin_with_the_smallest_value() {
        let large = sorted(&[("a", 0.1), ("b", 0.0), ("c", 0.0)]);
        let middle = sorted(&[("a", 0.2), ("b", 0.0)]);
        let small = sorted(&[("a", 0.3)]);
        let sources = [
            Source::SortedSet(&large),
            Source::SortedSet(&middle),
            Source::SortedSet(&small),
        ];
        for operation in [Operation::Union, Operation::Intersection] {
            let found = entries(operation, Aggregate::Sum, &sources, &[]).expect("sets");
            assert_eq!(found.last(), Some(&(Text::Bytes(b"a"), 0.3 + 0.2 + 0.1)));
        }
        assert_ne!(0.3 + 0.2 + 0.1, 0.1 + 0.2 + 0.3, "the order matters");
    }

    #[test]
    fn absent_values_have_no_members() {
        let one = set(&["a", "b"]);
        let sources = [Source::Set(&one), Source::Absent];
        assert_eq!(members(Operation::Intersection, &sources), Ok(vec![]));
        assert_eq!(members(Operation::Union, &sources).map(|members| members.len()), Ok(2));
        assert_eq!(
            members(Operation::Difference, &sources).map(|members| members.len()),
            Ok(2)
        );
        let sources = [Source::Absent, Source::Set(&one)];
        assert_eq!(members(Operation::Difference, &sources), Ok(vec![]));
        assert_eq!(members(Operation::Union, &[]), Ok(vec![]));
    }

    #[test]
    fn intersections_are_counted_up_to_a_limit() {
        let one = set(&["a", "b", "c"]);
        let two = set(&["c", "a", "b", "d"]);
        let sources = [Source::Set(&one), Source::Set(&two), Source::Set(&one)];
        assert_eq!(intersection_count(&sources, 0), Ok(3));
        assert_eq!(intersection_count(&sources, 2), Ok(2));
        assert_eq!(intersection_count(&sources, 9), Ok(3));
    }
}
