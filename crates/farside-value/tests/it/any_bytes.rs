//! Every operation takes any bytes, and answers or refuses. What a check has passed, every operation takes, and makes into
//! what a check passes.

use farside_value::format::Tag;
use farside_value::packed::algebra::{self, Aggregate, Operation, Source};
use farside_value::packed::hash::ExpiryCondition;
use farside_value::packed::list::{End, Search, Side};
use farside_value::packed::sorted::{AddOptions, Direction, LexBound, Limit, Range, ScoreBound};
use farside_value::packed::{hash, list, set, sorted};
use farside_value::{Draw, Edit, ValueError};
use proptest::prelude::*;

use crate::{chance, slices, texts};

type Outcome = Result<Edit, ValueError>;

fn of_hash(value: &[u8], texts: &[&[u8]]) -> Vec<Outcome> {
    let old = Some(value);
    let field = texts[0];
    let pairs: Vec<_> = texts.iter().map(|text| (*text, field)).collect();
    let keep = |_| Edit::Keep;
    vec![
        hash::set(old, &pairs, 100).map(|answer| answer.0),
        hash::set_if_absent(old, field, field, 100).map(|answer| answer.0),
        hash::remove(old, texts, 100).map(|answer| answer.0),
        hash::increment(old, field, 1, 100).map(|answer| answer.0),
        hash::increment_float(old, field, b"0.5", 100).map(|answer| answer.0),
        hash::expire(old, texts, 200, ExpiryCondition::Always, 100).map(|answer| answer.0),
        hash::persist(old, texts, 100).map(|answer| answer.0),
        hash::sweep(old, 100).map(|answer| answer.0),
        hash::get(old, field, 100).map(|_| Edit::Keep),
        hash::get_many(old, texts, 100).map(|_| Edit::Keep),
        hash::expiries(old, texts, 100).map(|_| Edit::Keep),
        hash::live_count(old, 100).map(|_| Edit::Keep),
        hash::each(old, 100, &mut |_, _| {}).map(|()| Edit::Keep),
        hash::scan(old, 5, 7, 100, &mut |_, _| {}).map(|_| Edit::Keep),
        hash::random(old, Draw::Distinct(2), 100, &mut chance(1), &mut |_, _| {}).map(|()| Edit::Keep),
        hash::random(old, Draw::Repeated(2), 100, &mut chance(1), &mut |_, _| {}).map(|()| Edit::Keep),
        hash::earliest_expiry(old).map(keep),
    ]
}

fn of_set(value: &[u8], texts: &[&[u8]]) -> Vec<Outcome> {
    let old = Some(value);
    vec![
        set::add(old, texts).map(|answer| answer.0),
        set::add(old, &[b"5", b"-300"]).map(|answer| answer.0),
        set::remove(old, texts).map(|answer| answer.0),
        set::pop(old, 1, &mut chance(1)).map(|answer| answer.0),
        set::pop(old, u64::MAX, &mut chance(1)).map(|answer| answer.0),
        set::contains(old, texts[0]).map(|_| Edit::Keep),
        set::contains_many(old, texts).map(|_| Edit::Keep),
        set::each(old, &mut |_| {}).map(|()| Edit::Keep),
        set::scan(old, 5, 7, &mut |_| {}).map(|_| Edit::Keep),
        set::random(old, Draw::Repeated(2), &mut chance(1), &mut |_| {}).map(|()| Edit::Keep),
        set::is_of_integers(value).map(|_| Edit::Keep),
        algebra::members(Operation::Union, &[Source::Set(value), Source::Set(value)]).map(|_| Edit::Keep),
    ]
}

fn of_sorted_set(value: &[u8], texts: &[&[u8]]) -> Vec<Outcome> {
    let old = Some(value);
    let entries: Vec<_> = texts.iter().map(|text| (1.5, *text)).collect();
    let increment = AddOptions {
        is_increment: true,
        ..AddOptions::default()
    };
    let bound = ScoreBound {
        score: 1.0,
        is_exclusive: true,
    };
    let ranges = [
        Range::Index { start: 0, stop: -2 },
        Range::Score { min: bound, max: bound },
        Range::Lex {
            min: LexBound::Inclusive(texts[0]),
            max: LexBound::Highest,
        },
    ];
    let mut outcomes = vec![
        sorted::add(old, &entries, AddOptions::default()).map(|answer| answer.0),
        sorted::add(old, &entries, increment).map(|answer| answer.0),
        sorted::remove(old, texts).map(|answer| answer.0),
        sorted::pop(old, Direction::Ascending, 1).map(|answer| answer.0),
        sorted::pop(old, Direction::Descending, u64::MAX).map(|answer| answer.0),
        sorted::score(old, texts[0]).map(|_| Edit::Keep),
        sorted::scores(old, texts).map(|_| Edit::Keep),
        sorted::rank(old, texts[0], Direction::Descending).map(|_| Edit::Keep),
        sorted::each(old, &mut |_, _| {}).map(|()| Edit::Keep),
        sorted::scan(old, 5, 7, &mut |_, _| {}).map(|_| Edit::Keep),
        sorted::random(old, Draw::Distinct(1), &mut chance(1), &mut |_, _| {}).map(|()| Edit::Keep),
        algebra::entries(
            Operation::Intersection,
            Aggregate::Sum,
            &[Source::SortedSet(value), Source::SortedSet(value)],
            &[0.0, 1e300],
        )
        .map(sorted::build)
        .map(|_| Edit::Keep),
    ];
    for range in &ranges {
        outcomes.push(sorted::remove_range(old, range).map(|answer| answer.0));
        outcomes.push(sorted::count(old, range).map(|_| Edit::Keep));
        outcomes
            .push(sorted::range(old, range, Direction::Descending, Limit { offset: 1, count: 2 }).map(|_| Edit::Keep));
    }
    outcomes
}

fn of_list(value: &[u8], texts: &[&[u8]]) -> Vec<Outcome> {
    let old = Some(value);
    let mut outcomes = vec![
        list::set(old, -1, texts[0]).map(|answer| answer.0),
        list::insert(old, Side::After, texts[0], b"x").map(|answer| answer.0),
        list::remove(old, 0, texts[0]).map(|answer| answer.0),
        list::trim(old, 1, -2).map(|answer| answer.0),
        list::index(old, -2).map(|_| Edit::Keep),
        list::range(old, 0, -1).map(|_| Edit::Keep),
        list::positions(old, texts[0], Search::default()).map(|_| Edit::Keep),
    ];
    for (end, other) in [(End::Head, End::Tail), (End::Tail, End::Head)] {
        outcomes.push(list::push(old, end, texts).map(|answer| answer.0));
        outcomes.push(list::pop(old, end, 2).map(|answer| answer.0));
        outcomes.push(list::rotate(old, end, other).map(|answer| answer.0));
    }
    outcomes
}

fn try_everything(tag: Tag, value: &[u8], texts: &[&[u8]]) {
    let check = match tag {
        Tag::Hash => hash::check,
        Tag::Set => set::check,
        Tag::SortedSet => sorted::check,
        _ => list::check,
    };
    let outcomes = match tag {
        Tag::Hash => of_hash(value, texts),
        Tag::Set => of_set(value, texts),
        Tag::SortedSet => of_sorted_set(value, texts),
        _ => of_list(value, texts),
    };
    if check(value).is_err() {
        return;
    }
    for (place, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(Edit::Put(new)) => assert_eq!(check(&new), Ok(()), "{tag:?}, operation {place}: {value:?} -> {new:?}"),
            Ok(Edit::Keep | Edit::Delete) => {}
            Err(error) => assert!(
                !matches!(error, ValueError::Damaged(_)),
                "{tag:?}, operation {place}: {error}"
            ),
        }
    }
}

fn tag() -> impl Strategy<Value = Tag> {
    prop::sample::select(vec![Tag::Hash, Tag::Set, Tag::SortedSet, Tag::List])
}

/// A value that was written.
fn written(tag: Tag, texts: &[&[u8]]) -> Vec<u8> {
    let edit = match tag {
        Tag::Hash => {
            let pairs: Vec<_> = texts.iter().map(|text| (*text, texts[0])).collect();
            let edit = hash::set(None, &pairs, 0).expect("a hash").0;
            match (&edit, texts.len() % 2) {
                (Edit::Put(value), 0) => {
                    hash::expire(Some(value), &texts[..1], 200, ExpiryCondition::Always, 100)
                        .expect("a hash")
                        .0
                }
                _ => edit,
            }
        }
        Tag::Set => set::add(None, texts).expect("a set").0,
        Tag::SortedSet => {
            let entries: Vec<_> = texts
                .iter()
                .enumerate()
                .map(|(place, text)| (place as f64 / 2.0, *text))
                .collect();
            sorted::add(None, &entries, AddOptions::default())
                .expect("a sorted set")
                .0
        }
        _ => list::push(None, End::Tail, texts).expect("a list").0,
    };
    match edit {
        Edit::Put(value) => value,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn damage_is_refused(
        tag in tag(),
        content in texts(),
        texts in texts(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut value = written(tag, &slices(&content));
        for (at, byte) in changes {
            let at = at.index(value.len());
            value[at] = byte;
        }
        if let Some(cut) = cut {
            value.truncate(cut.index(value.len()));
        }
        try_everything(tag, &value, &slices(&texts));
    }

    #[test]
    fn any_bytes_are_taken(
        tag in tag(),
        flags in 0..16_u8,
        count in 1..5_u8,
        body in prop::collection::vec(prop_oneof![0..4_u8, 0xc0..=0xc9_u8, any::<u8>()], 0..40),
        texts in texts(),
    ) {
        let value = [&[flags, count][..], &body].concat();
        try_everything(tag, &value, &slices(&texts));
        try_everything(tag, &body, &slices(&texts));
    }
}
