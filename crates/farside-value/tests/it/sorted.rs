//! Sorted sets against a map from member to score.

use std::collections::BTreeMap;

use farside_value::format::element_hash;
use farside_value::packed::sorted::{
    self, AddOptions, Comparison, Direction, Entry, Existence, LexBound, Limit, Range, ScoreBound,
};
use farside_value::{Draw, ValueError};
use proptest::prelude::*;

use crate::{Value, chance, slices, text, texts};

type Scored = Vec<(Vec<u8>, f64)>;

#[derive(Clone, Debug)]
enum AnyRange {
    Index(i64, i64),
    Score(ScoreBound, ScoreBound),
    Lex(Vec<u8>, Vec<u8>),
}

impl AnyRange {
    fn range(&self) -> Range<'_> {
        match self {
            &Self::Index(start, stop) => Range::Index { start, stop },
            &Self::Score(min, max) => Range::Score { min, max },
            Self::Lex(min, max) => Range::Lex {
                min: LexBound::parse(min).expect("a bound"),
                max: LexBound::parse(max).expect("a bound"),
            },
        }
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Add(Vec<(f64, Vec<u8>)>, AddOptions),
    Remove(Vec<Vec<u8>>),
    RemoveRange(AnyRange),
    Pop(Direction, u64),
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-3..4_i32).prop_map(f64::from),
        2 => (-3..4_i32).prop_map(|number| f64::from(number) / 4.0),
        1 => prop::sample::select(vec![f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e300, 9.2e18, i64::MIN as f64]),
    ]
}

fn bound() -> impl Strategy<Value = ScoreBound> {
    (score(), any::<bool>()).prop_map(|(score, is_exclusive)| ScoreBound { score, is_exclusive })
}

fn lex() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => prop::sample::select(vec![b"-".to_vec(), b"+".to_vec()]),
        4 => (prop::sample::select(vec![b'[', b'(']), text()).prop_map(|(sign, text)| [&[sign][..], &text].concat()),
    ]
}

fn range() -> impl Strategy<Value = AnyRange> {
    prop_oneof![
        (-6..6_i64, -6..6_i64).prop_map(|(start, stop)| AnyRange::Index(start, stop)),
        (bound(), bound()).prop_map(|(min, max)| AnyRange::Score(min, max)),
        (lex(), lex()).prop_map(|(min, max)| AnyRange::Lex(min, max)),
    ]
}

fn options() -> impl Strategy<Value = AddOptions> {
    let existence = prop::sample::select(vec![Existence::Any, Existence::Any, Existence::New, Existence::Old]);
    let comparison = prop::sample::select(vec![
        Comparison::Any,
        Comparison::Any,
        Comparison::Greater,
        Comparison::Less,
    ]);
    (existence, comparison, any::<bool>()).prop_map(|(existence, comparison, is_increment)| AddOptions {
        existence,
        comparison,
        is_increment,
    })
}

fn operation(score: impl Strategy<Value = f64>) -> impl Strategy<Value = Operation> {
    let entries = prop::collection::vec((score, text()), 1..5);
    let direction = prop::sample::select(vec![Direction::Ascending, Direction::Descending]);
    prop_oneof![
        5 => (entries, options()).prop_map(|(entries, options)| Operation::Add(entries, options)),
        1 => texts().prop_map(Operation::Remove),
        1 => range().prop_map(Operation::RemoveRange),
        1 => (direction, 0..3_u64).prop_map(|(direction, count)| Operation::Pop(direction, count)),
    ]
}

/// In the order of a sorted set.
fn ordered(model: &BTreeMap<Vec<u8>, f64>) -> Scored {
    let mut entries: Scored = model.iter().map(|(member, score)| (member.clone(), *score)).collect();
    // The sort is stable, and the map is in the order of members.
    entries.sort_by(|one, other| one.1.partial_cmp(&other.1).expect("no NaN"));
    entries
}

fn in_direction(mut entries: Scored, direction: Direction) -> Scored {
    if direction == Direction::Descending {
        entries.reverse();
    }
    entries
}

/// The entries of a range, in its direction, one by one.
fn model_range(model: &BTreeMap<Vec<u8>, f64>, range: &AnyRange, direction: Direction) -> Scored {
    let entries = ordered(model);
    let within: Scored = match range {
        AnyRange::Index(start, stop) => {
            let count = entries.len() as i64;
            let from_end = |place: i64| if place < 0 { place + count } else { place };
            let places = from_end(*start)..=from_end(*stop);
            let placed = (0..count).zip(in_direction(entries, direction));
            return placed
                .filter(|(place, _)| places.contains(place))
                .map(|(_, entry)| entry)
                .collect();
        }
        AnyRange::Score(min, max) => {
            let is_within = |score: f64| {
                (min.score < score || min.score == score && !min.is_exclusive)
                    && (score < max.score || max.score == score && !max.is_exclusive)
            };
            entries.into_iter().filter(|entry| is_within(entry.1)).collect()
        }
        AnyRange::Lex(min, max) => {
            let is_above = |member: &[u8]| match min[0] {
                b'-' => true,
                b'+' => false,
                b'[' => member >= &min[1..],
                _ => member > &min[1..],
            };
            let is_below = |member: &[u8]| match max[0] {
                b'-' => false,
                b'+' => true,
                b'[' => member <= &max[1..],
                _ => member < &max[1..],
            };
            let from_first = entries.into_iter().skip_while(|entry| !is_above(&entry.0));
            from_first.take_while(|entry| is_below(&entry.0)).collect()
        }
    };
    in_direction(within, direction)
}

fn owned(entries: &[Entry<'_>]) -> Scored {
    entries
        .iter()
        .map(|(member, score)| (member.to_vec(), *score))
        .collect()
}

/// What ZADD does with one member.
fn model_add(model: &mut BTreeMap<Vec<u8>, f64>, score: f64, member: &[u8], options: AddOptions) -> Option<f64> {
    let old = model.get(member).copied();
    let new = match old {
        Some(old) if options.is_increment => old + score,
        _ => score,
    };
    let is_refused = match (old, options.existence, options.comparison) {
        (Some(_), Existence::New, _) | (None, Existence::Old, _) => true,
        (Some(old), _, Comparison::Greater) => new <= old,
        (Some(old), _, Comparison::Less) => new >= old,
        _ => false,
    };
    // Equal scores do not replace each other: -0 stays -0.
    if !is_refused && old != Some(new) {
        model.insert(member.to_vec(), new);
    }
    (!is_refused).then_some(new)
}

fn run(value: &mut Value, model: &mut BTreeMap<Vec<u8>, f64>, operation: &Operation) {
    let before = model.clone();
    let edit = match operation {
        Operation::Add(entries, options) => {
            let arguments: Vec<_> = entries
                .iter()
                .map(|(score, member)| (*score, member.as_slice()))
                .collect();
            let answer = sorted::add(value.bytes(), &arguments, *options);
            let mut last = None;
            let mut touched = (0, 0);
            for (score, member) in entries {
                let old = model.get(member).copied();
                last = model_add(model, *score, member, *options);
                if model.get(member).is_some_and(|score| score.is_nan()) || last.is_some_and(f64::is_nan) {
                    assert_eq!(answer, Err(ValueError::NotANumber));
                    *model = before;
                    return;
                }
                touched.0 += u32::from(old.is_none() && last.is_some());
                touched.1 += u32::from(old.is_some() && last.is_some() && last != old);
            }
            let (edit, answer) = answer.expect("a sorted set");
            assert_eq!((answer.added, answer.updated), touched);
            assert_eq!(answer.score, last);
            edit
        }
        Operation::Remove(members) => {
            model.retain(|member, _| !members.contains(member));
            let (edit, removed) = sorted::remove(value.bytes(), &slices(members)).expect("a sorted set");
            assert_eq!(removed as usize, before.len() - model.len());
            edit
        }
        Operation::RemoveRange(range) => {
            let gone = model_range(model, range, Direction::Ascending);
            for (member, _) in &gone {
                model.remove(member);
            }
            let (edit, removed) = sorted::remove_range(value.bytes(), &range.range()).expect("a sorted set");
            assert_eq!(removed as usize, gone.len());
            edit
        }
        Operation::Pop(direction, count) => {
            let mut gone = in_direction(ordered(model), *direction);
            gone.truncate(*count as usize);
            for (member, _) in &gone {
                model.remove(member);
            }
            let (edit, popped) = sorted::pop(value.bytes(), *direction, *count).expect("a sorted set");
            assert_eq!(owned(&popped), gone);
            edit
        }
    };
    // A member that has got another score and then its own again was changed, but the value was not.
    assert_eq!(value.publish(edit), *model != before);
}

fn compare(value: &Value, model: &BTreeMap<Vec<u8>, f64>, range: &AnyRange, limit: Limit, other: &[u8]) {
    assert_eq!(value.bytes().is_none(), model.is_empty());
    if let Some(bytes) = value.bytes() {
        assert_eq!(sorted::check(bytes), Ok(()));
    }
    let entries = ordered(model);
    let mut found = Vec::new();
    sorted::each(value.bytes(), &mut |member, score| found.push((member, score))).expect("a sorted set");
    assert_eq!(owned(&found), entries);
    if let Some(bytes) = value.bytes() {
        let edit = sorted::build(found.iter().rev().copied().collect());
        assert_eq!(
            edit,
            farside_value::Edit::Put(bytes.to_vec()),
            "a sorted set has one form"
        );
    }
    for (place, (member, score)) in entries.iter().enumerate() {
        let (place, last) = (place as u32, entries.len() as u32 - 1);
        assert_eq!(sorted::score(value.bytes(), member), Ok(Some(*score)));
        for (direction, rank) in [(Direction::Ascending, place), (Direction::Descending, last - place)] {
            assert_eq!(sorted::rank(value.bytes(), member, direction), Ok(Some((rank, *score))));
        }
    }
    let members: Vec<_> = entries
        .iter()
        .map(|entry| entry.0.as_slice())
        .chain([other, other])
        .collect();
    let scores: Vec<_> = members.iter().map(|member| model.get(*member).copied()).collect();
    assert_eq!(sorted::scores(value.bytes(), &members), Ok(scores));
    for direction in [Direction::Ascending, Direction::Descending] {
        let within = model_range(model, range, direction);
        let found = sorted::range(value.bytes(), &range.range(), direction, Limit::NONE).expect("a sorted set");
        assert_eq!(owned(&found), within);
        let offset = usize::try_from(limit.offset).unwrap_or(usize::MAX);
        let count = usize::try_from(limit.count).unwrap_or(usize::MAX);
        let expected: Scored = within.into_iter().skip(offset).take(count).collect();
        let found = sorted::range(value.bytes(), &range.range(), direction, limit).expect("a sorted set");
        assert_eq!(owned(&found), expected);
    }
    let within = model_range(model, range, Direction::Ascending).len();
    assert_eq!(sorted::count(value.bytes(), &range.range()), Ok(within as u32));
    let mut drawn = Vec::new();
    let draw = Draw::from_count(2);
    sorted::random(value.bytes(), draw, &mut chance(1), &mut |member, score| {
        drawn.push((member.to_vec(), score));
    })
    .expect("a sorted set");
    assert_eq!(drawn.len(), model.len().min(2));
    assert!(drawn.iter().all(|(member, score)| model[member] == *score));
    for cursor in [0, 1 << 63] {
        let mut scanned = Vec::new();
        let next = sorted::scan(value.bytes(), cursor, 7, &mut |member, score| {
            scanned.push((member.to_vec(), score));
        });
        assert_eq!(next, Ok(0));
        let expected = entries.iter().filter(|entry| element_hash(7, &entry.0) >= cursor);
        assert_eq!(scanned, expected.cloned().collect::<Scored>());
    }
}

proptest! {
    #[test]
    fn a_sorted_set_is_a_map(
        operations in prop::collection::vec(operation(score()), 1..20),
        range in range(),
        limit in (-1..4_i64, -1..4_i64),
        other in text(),
    ) {
        let (mut value, mut model) = (Value::default(), BTreeMap::new());
        let limit = Limit { offset: limit.0, count: limit.1 };
        for operation in &operations {
            run(&mut value, &mut model, operation);
            compare(&value, &model, &range, limit, &other);
        }
    }

    #[test]
    fn members_of_one_score_are_in_the_order_of_bytes(
        operations in prop::collection::vec(operation(Just(0.0)), 1..12),
        min in lex(),
        max in lex(),
    ) {
        let (mut value, mut model) = (Value::default(), BTreeMap::new());
        for operation in &operations {
            run(&mut value, &mut model, operation);
            compare(&value, &model, &AnyRange::Lex(min.clone(), max.clone()), Limit::NONE, b"a");
        }
    }
}
