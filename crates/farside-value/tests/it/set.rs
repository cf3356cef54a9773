//! Sets against a vector of different strings.

use std::collections::BTreeSet;

use farside_value::format::{self, element_hash};
use farside_value::packed::set;
use farside_value::{Draw, Text};
use proptest::prelude::*;

use crate::{Value, chance, owned, slices, text, texts};

#[derive(Clone, Debug)]
enum Operation {
    Add(Vec<Vec<u8>>),
    Remove(Vec<Vec<u8>>),
    Pop(u64, u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let numbers = prop::collection::vec((-300..300_i32).prop_map(|number| number.to_string().into_bytes()), 1..6);
    prop_oneof![
        3 => numbers.prop_map(Operation::Add),
        1 => texts().prop_map(Operation::Add),
        1 => texts().prop_map(Operation::Remove),
        1 => (0..4_u64, any::<u64>()).prop_map(|(count, seed)| Operation::Pop(count, seed)),
    ]
}

#[derive(Default)]
struct Model {
    /// In the order in which they stand.
    members: Vec<Vec<u8>>,
    /// A member that is no integer has been there.
    is_mixed: bool,
}

impl Model {
    fn sort(&mut self) {
        self.is_mixed &= !self.members.is_empty();
        let numbers = self.members.iter().map(|member| match Text::new(member) {
            Text::Integer(number) => Some(number),
            Text::Bytes(_) => None,
        });
        let numbers: Option<Vec<_>> = numbers.collect();
        self.is_mixed |= numbers.is_none();
        if !self.is_mixed {
            let mut numbers = numbers.unwrap_or_default();
            numbers.sort_unstable();
            self.members = numbers.iter().map(|number| number.to_string().into_bytes()).collect();
        }
    }
}

fn run(value: &mut Value, model: &mut Model, operation: &Operation) {
    let before = model.members.clone();
    let edit = match operation {
        Operation::Add(members) => {
            for member in members {
                if !model.members.contains(member) {
                    model.members.push(member.clone());
                }
            }
            let (edit, added) = set::add(value.bytes(), &slices(members)).expect("a set");
            assert_eq!(added as usize, model.members.len() - before.len());
            edit
        }
        Operation::Remove(members) => {
            model.members.retain(|member| !members.contains(member));
            let (edit, removed) = set::remove(value.bytes(), &slices(members)).expect("a set");
            assert_eq!(removed as usize, before.len() - model.members.len());
            edit
        }
        Operation::Pop(count, seed) => {
            let (edit, popped) = set::pop(value.bytes(), *count, &mut chance(*seed)).expect("a set");
            let popped = owned(&popped);
            assert_eq!(popped.len(), before.len().min(*count as usize));
            model.members.retain(|member| !popped.contains(member));
            assert_eq!(
                model.members.len(),
                before.len() - popped.len(),
                "different members are popped"
            );
            edit
        }
    };
    model.sort();
    assert_eq!(value.publish(edit), model.members.len() != before.len());
}

fn shown(value: &Value) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    set::each(value.bytes(), &mut |text| found.push(text.to_vec())).expect("a set");
    found
}

fn compare(value: &Value, model: &Model, other: &[u8]) {
    assert_eq!(value.bytes().is_none(), model.members.is_empty());
    if let Some(bytes) = value.bytes() {
        assert_eq!(set::check(bytes), Ok(()));
        assert_eq!(set::is_of_integers(bytes), Ok(!model.is_mixed));
    }
    assert_eq!(shown(value), model.members);
    assert_eq!(format::count(value.bytes()), Ok(model.members.len() as u32));
    let mut asked = slices(&model.members);
    asked.extend([other, other]);
    let expected: Vec<_> = asked
        .iter()
        .map(|member| model.members.iter().any(|known| known == member))
        .collect();
    assert_eq!(set::contains_many(value.bytes(), &asked), Ok(expected.clone()));
    for (member, expected) in asked.iter().zip(expected) {
        assert_eq!(set::contains(value.bytes(), member), Ok(expected));
    }
    for draw in [Draw::Distinct(2), Draw::Distinct(u64::MAX), Draw::Repeated(7)] {
        let mut drawn = Vec::new();
        set::random(value.bytes(), draw, &mut chance(1), &mut |text| {
            drawn.push(text.to_vec());
        })
        .expect("a set");
        assert!(drawn.iter().all(|member| model.members.contains(member)));
        let different: BTreeSet<_> = drawn.iter().collect();
        match draw {
            Draw::Repeated(count) => assert_eq!(drawn.len() as u64, if model.members.is_empty() { 0 } else { count }),
            Draw::Distinct(count) => {
                assert_eq!(drawn.len(), different.len());
                assert_eq!(drawn.len() as u64, count.min(model.members.len() as u64));
            }
        }
    }
    // From a cursor on come those whose hash is not below it; from 0 on, all.
    for cursor in [0, 1 << 63] {
        let mut scanned = Vec::new();
        let next = set::scan(value.bytes(), cursor, 7, &mut |text| scanned.push(text.to_vec()));
        assert_eq!(next, Ok(0));
        let expected = model.members.iter().filter(|member| element_hash(7, member) >= cursor);
        assert_eq!(scanned, expected.cloned().collect::<Vec<_>>());
    }
}

proptest! {
    #[test]
    fn a_set_is_a_vector_of_different_strings(
        operations in prop::collection::vec(operation(), 1..24),
        other in text(),
    ) {
        let (mut value, mut model) = (Value::default(), Model::default());
        for operation in &operations {
            run(&mut value, &mut model, operation);
            compare(&value, &model, &other);
        }
    }

    #[test]
    fn a_result_is_built_as_by_adding(members in texts()) {
        let mut value = Value::default();
        value.publish(set::add(None, &slices(&members)).expect("a set").0);
        let shown = shown(&value);
        let mut built = Value::default();
        built.publish(set::build(&shown.iter().map(|member| Text::new(member)).collect::<Vec<_>>()));
        prop_assert_eq!(value.0, built.0);
    }
}
