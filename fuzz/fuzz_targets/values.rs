//! Packed values that stand in far memory: every operation takes any bytes. What a check has passed is what a writer has
//! written, and every operation makes of it what a check passes.
//!
//! Input: type, length of the value, the value; then strings, each behind its length, that the operations name.

#![no_main]

use farside_value::format::{Tag, count};
use farside_value::packed::algebra::{self, Aggregate, Operation, Source};
use farside_value::packed::hash::ExpiryCondition;
use farside_value::packed::list::{End, Search, Side};
use farside_value::packed::sorted::{AddOptions, Direction, LexBound, Limit, Range, ScoreBound};
use farside_value::packed::{hash, list, set, sorted};
use farside_value::{Draw, Edit, Edited, Text, ValueError, parse_score, write_score};
use libfuzzer_sys::fuzz_target;

/// Fields expire before and after it.
const NOW_MS: u64 = 1000;

fuzz_target!(|input: &[u8]| {
    let [kind, bytes, rest @ ..] = input else { return };
    let (value, mut rest) = rest.split_at(rest.len().min((*bytes).into()));
    let mut texts = Vec::new();
    while let [bytes, more @ ..] = rest {
        let (text, more) = more.split_at(more.len().min((*bytes).into()));
        texts.push(text);
        rest = more;
    }
    if texts.is_empty() {
        texts.push(b"a");
    }
    texts.iter().for_each(|text| number(text));
    match kind % 4 {
        0 => Run::new(Tag::Hash, value).hash(&texts),
        1 => Run::new(Tag::Set, value).set(&texts),
        2 => Run::new(Tag::SortedSet, value).sorted_set(&texts),
        _ => Run::new(Tag::List, value).list(&texts),
    }
});

fn number(text: &[u8]) {
    let Some(score) = parse_score(text) else { return };
    let mut written = Vec::new();
    write_score(score, &mut written);
    assert_eq!(parse_score(&written), Some(score));
}

/// Every operation on one value.
struct Run<'a> {
    value: &'a [u8],
    check: fn(&[u8]) -> Result<(), ValueError>,
    is_sound: bool,
}

impl<'a> Run<'a> {
    fn new(tag: Tag, value: &'a [u8]) -> Self {
        let check = match tag {
            Tag::Hash => hash::check,
            Tag::Set => set::check,
            Tag::SortedSet => sorted::check,
            _ => list::check,
        };
        Self {
            value,
            check,
            is_sound: check(value).is_ok(),
        }
    }

    /// Looks at an answer.
    fn read<T>(&self, answer: Result<T, ValueError>) -> Option<T> {
        let is_damaged = matches!(answer, Err(ValueError::Damaged(_)));
        assert!(!(is_damaged && self.is_sound), "refused though it is sound");
        answer.ok()
    }

    /// Looks at an edit, and at what it makes of the value; answers the new value.
    fn edit<T>(&self, edited: Edited<T>) -> Option<Vec<u8>> {
        let (edit, _) = self.read(edited)?;
        let Edit::Put(new) = edit else { return None };
        if self.is_sound {
            assert_ne!(new, self.value, "what stays as it is is kept");
            assert_eq!((self.check)(&new), Ok(()));
        }
        Some(new)
    }

    /// A value that was written anew, element by element, is the same. (Flags but the type's own are not written.)
    fn again(&self, edit: Edit, own_flags: u8) {
        if self.is_sound {
            let Edit::Put(new) = edit else { panic!("{edit:?}") };
            assert_eq!(new[0], self.value[0] & own_flags);
            assert_eq!(new[1..], self.value[1..], "a value has one form");
        }
    }

    fn hash(&self, texts: &[&[u8]]) {
        let old = Some(self.value);
        let field = texts[0];
        let pairs: Vec<_> = texts.windows(2).map(|pair| (pair[0], pair[1])).collect();
        self.edit(hash::set(old, &pairs, NOW_MS));
        self.edit(hash::set_if_absent(old, field, field, NOW_MS));
        self.edit(hash::remove(old, texts, NOW_MS));
        self.edit(hash::increment(old, field, 1, NOW_MS));
        self.edit(hash::increment_float(old, field, b"0.5", NOW_MS));
        for condition in [ExpiryCondition::Always, ExpiryCondition::Unset, ExpiryCondition::Later] {
            self.edit(hash::expire(old, texts, 2 * NOW_MS, condition, NOW_MS));
        }
        self.edit(hash::expire(old, texts, 0, ExpiryCondition::Always, NOW_MS));
        self.edit(hash::persist(old, texts, NOW_MS));
        self.edit(hash::sweep(old, NOW_MS));
        self.read(hash::get(old, field, NOW_MS));
        self.read(hash::get_many(old, texts, NOW_MS));
        self.read(hash::expiries(old, texts, NOW_MS));
        self.read(hash::scan(old, 1 << 63, 7, NOW_MS, &mut |_, _| {}));
        for draw in [Draw::Distinct(2), Draw::Repeated(2)] {
            self.read(hash::random(old, draw, NOW_MS, &mut |bound| bound - 1, &mut |_, _| {}));
        }
        let mut all = Vec::new();
        self.read(hash::each(old, 0, &mut |name, text| {
            all.push((name.to_vec(), text.to_vec()))
        }));
        if self.is_sound && hash::earliest_expiry(old) == Ok(0) {
            let pairs: Vec<_> = all
                .iter()
                .map(|(name, text)| (name.as_slice(), text.as_slice()))
                .collect();
            self.again(hash::set(None, &pairs, 0).expect("a hash").0, 0);
            for (name, text) in pairs {
                assert_eq!(hash::get(old, name, 0), Ok(Some(Text::new(text))));
            }
        }
    }

    fn set(&self, texts: &[&[u8]]) {
        const INTEGERS: u8 = 8;
        let old = Some(self.value);
        if let Some(new) = self.edit(set::add(old, texts)) {
            assert_eq!(set::contains_many(Some(&new), texts), Ok(vec![true; texts.len()]));
        }
        self.edit(set::add(old, &[b"5", b"-300"]));
        if let Some(new) = self.edit(set::remove(old, texts)) {
            assert_eq!(set::contains_many(Some(&new), texts), Ok(vec![false; texts.len()]));
        }
        for drawn in [1, 3] {
            self.edit(set::pop(old, drawn, &mut |bound| bound / 2));
        }
        self.read(set::contains(old, texts[0]));
        self.read(set::scan(old, 1 << 63, 7, &mut |_| {}));
        self.read(set::random(old, Draw::Repeated(2), &mut |bound| bound - 1, &mut |_| {}));
        let other = Source::Set(self.value);
        self.read(algebra::intersection_count(&[other, other, Source::Absent], 0));
        self.read(algebra::members(Operation::Union, &[other, other]));
        let mut all = Vec::new();
        self.read(set::each(old, &mut |text| all.push(text)));
        if self.is_sound {
            let is_mixed = set::is_of_integers(self.value) == Ok(false);
            // One of integers that had another member once is not written again as it is.
            if !is_mixed || all.iter().any(|text| matches!(text, Text::Bytes(_))) {
                self.again(set::build(&all), INTEGERS);
            }
        }
    }

    fn sorted_set(&self, texts: &[&[u8]]) {
        let old = Some(self.value);
        let score = parse_score(texts[0]).unwrap_or(1.5);
        let entries: Vec<_> = texts.iter().map(|text| (score, *text)).collect();
        let increment = AddOptions {
            is_increment: true,
            ..AddOptions::default()
        };
        if let Some(new) = self.edit(sorted::add(old, &entries, AddOptions::default())) {
            assert!(!self.is_sound || sorted::scores(Some(&new), texts) == Ok(vec![Some(score); texts.len()]));
        }
        self.edit(sorted::add(old, &entries, increment));
        self.edit(sorted::remove(old, texts));
        self.read(sorted::rank(old, texts[0], Direction::Descending));
        self.read(sorted::scan(old, 1 << 63, 7, &mut |_, _| {}));
        self.read(sorted::random(
            old,
            Draw::Distinct(2),
            &mut |bound| bound - 1,
            &mut |_, _| {},
        ));
        let bound = |text: &[u8]| {
            ScoreBound::parse(text).unwrap_or(ScoreBound {
                score: 1.0,
                is_exclusive: true,
            })
        };
        let last = texts[texts.len() - 1];
        for range in [
            Range::Index { start: 1, stop: -2 },
            Range::Score {
                min: bound(texts[0]),
                max: bound(last),
            },
            Range::Lex {
                min: LexBound::parse(texts[0]).unwrap_or(LexBound::Lowest),
                max: LexBound::parse(last).unwrap_or(LexBound::Highest),
            },
        ] {
            self.edit(sorted::remove_range(old, &range));
            let counted = self.read(sorted::count(old, &range));
            let limit = Limit { offset: 1, count: 2 };
            for direction in [Direction::Ascending, Direction::Descending] {
                self.edit(sorted::pop(old, direction, 2));
                self.read(sorted::range(old, &range, direction, limit));
                let found = self.read(sorted::range(old, &range, direction, Limit::NONE));
                if let (true, Some(found), Some(counted)) = (self.is_sound, found, counted) {
                    assert_eq!(found.len(), counted as usize);
                }
            }
        }
        let other = Source::SortedSet(self.value);
        for operation in [Operation::Union, Operation::Intersection] {
            let result = self.read(algebra::entries(
                operation,
                Aggregate::Sum,
                &[other, other],
                &[0.0, 1e300],
            ));
            if let (true, Some(Edit::Put(new))) = (self.is_sound, result.map(sorted::build)) {
                assert_eq!((sorted::check(&new), count(Some(&new))), (Ok(()), count(old)));
            }
        }
        let mut all = Vec::new();
        self.read(sorted::each(old, &mut |member, score| all.push((member, score))));
        if self.is_sound {
            all.reverse();
            self.again(sorted::build(all), 0);
        }
    }

    fn list(&self, texts: &[&[u8]]) {
        let old = Some(self.value);
        self.edit(list::set(old, -1, texts[0]));
        self.edit(list::insert(old, Side::After, texts[0], b"x"));
        for removed in [0, 1, -1] {
            self.edit(list::remove(old, removed, texts[0]));
        }
        self.edit(list::trim(old, 1, -2));
        self.read(list::index(old, -2));
        self.read(list::positions(old, texts[0], Search::default()));
        for (end, other) in [(End::Head, End::Tail), (End::Tail, End::Head)] {
            self.edit(list::push(old, end, texts));
            self.edit(list::pop(old, end, 2));
            // One whose elements are equal is the same afterwards.
            self.read(list::rotate(old, end, other));
        }
        let all = self.read(list::range(old, 0, -1));
        if let (true, Some(all)) = (self.is_sound, all) {
            let all: Vec<_> = all.iter().map(Text::to_vec).collect();
            let all: Vec<_> = all.iter().map(Vec::as_slice).collect();
            self.again(list::push(None, End::Tail, &all).expect("a list").0, 0);
        }
    }
}
