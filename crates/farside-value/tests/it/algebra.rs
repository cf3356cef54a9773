//! Unions, intersections and differences against maps.

use std::collections::BTreeMap;

use farside_value::Text;
use farside_value::packed::algebra::{self, Aggregate, Operation, Source};
use farside_value::packed::{set, sorted};
use proptest::prelude::*;

use crate::{Value, text};

/// Members and scores, which are whole, so that the order of sums does not matter; or a set.
#[derive(Clone, Debug)]
struct Operand {
    members: BTreeMap<Vec<u8>, i32>,
    is_set: bool,
    weight: i32,
}

impl Operand {
    fn score(&self, member: &[u8]) -> Option<f64> {
        let score = *self.members.get(member)?;
        Some(f64::from(self.weight * if self.is_set { 1 } else { score }))
    }

    fn value(&self) -> Value {
        let mut value = Value::default();
        if self.members.is_empty() {
            return value;
        }
        let entries = self
            .members
            .iter()
            .map(|(member, score)| (Text::new(member), f64::from(*score)));
        value.publish(if self.is_set {
            set::build(&entries.map(|entry| entry.0).collect::<Vec<_>>())
        } else {
            sorted::build(entries.collect())
        });
        value
    }
}

fn operands() -> impl Strategy<Value = Vec<Operand>> {
    let members = prop::collection::btree_map(text(), -3..3_i32, 0..12);
    let operand = (members, any::<bool>(), -2..3_i32).prop_map(|(members, is_set, weight)| Operand {
        members,
        is_set,
        weight,
    });
    prop::collection::vec(operand, 1..4)
}

fn model(operation: Operation, aggregate: Aggregate, operands: &[Operand]) -> BTreeMap<Vec<u8>, f64> {
    let all = operands.iter().flat_map(|operand| operand.members.keys());
    let mut result = BTreeMap::new();
    for member in all {
        let scores: Vec<_> = operands.iter().filter_map(|operand| operand.score(member)).collect();
        let is_within = match operation {
            Operation::Union => true,
            Operation::Intersection => scores.len() == operands.len(),
            Operation::Difference => scores.len() == 1 && operands[0].members.contains_key(member),
        };
        let score = match aggregate {
            Aggregate::Sum => scores.iter().sum(),
            Aggregate::Min => scores.iter().copied().fold(f64::INFINITY, f64::min),
            Aggregate::Max => scores.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        };
        if is_within {
            result.insert(member.clone(), score);
        }
    }
    result
}

proptest! {
    #[test]
    fn results_are_those_of_maps(operands in operands()) {
        let values: Vec<_> = operands.iter().map(Operand::value).collect();
        let sources: Vec<_> = operands
            .iter()
            .zip(&values)
            .map(|(operand, value)| match value.bytes() {
                None => Source::Absent,
                Some(bytes) if operand.is_set => Source::Set(bytes),
                Some(bytes) => Source::SortedSet(bytes),
            })
            .collect();
        let weights: Vec<_> = operands.iter().map(|operand| f64::from(operand.weight)).collect();
        for operation in [Operation::Union, Operation::Intersection, Operation::Difference] {
            for aggregate in [Aggregate::Sum, Aggregate::Min, Aggregate::Max] {
                let expected = model(operation, aggregate, &operands);
                let found = algebra::entries(operation, aggregate, &sources, &weights).expect("values");
                let as_map: BTreeMap<_, _> = found.iter().map(|(member, score)| (member.to_vec(), *score)).collect();
                prop_assert_eq!(as_map.len(), found.len(), "members are different");
                prop_assert_eq!(&as_map, &expected);
                let mut stored = Value::default();
                if !found.is_empty() {
                    stored.publish(sorted::build(found.clone()));
                    let bytes = stored.bytes().expect("a sorted set");
                    prop_assert_eq!(sorted::check(bytes), Ok(()));
                    let mut all = Vec::new();
                    sorted::each(Some(bytes), &mut |member, score| all.push((member, score))).expect("a sorted set");
                    prop_assert_eq!(all, found, "they are in order");
                }
            }
            let expected = model(operation, Aggregate::Sum, &operands);
            let mut found = algebra::members(operation, &sources).expect("values");
            found.sort();
            let expected: Vec<_> = expected.keys().map(|member| Text::new(member)).collect();
            prop_assert_eq!(found, expected);
        }
        let count = model(Operation::Intersection, Aggregate::Sum, &operands).len() as u64;
        prop_assert_eq!(algebra::intersection_count(&sources, 0), Ok(count));
        prop_assert_eq!(algebra::intersection_count(&sources, 2), Ok(count.min(2)));
    }
}
