//! Lists against a vector.

use farside_value::Text;
use farside_value::packed::list::{self, End, Search, Side};
use proptest::prelude::*;

use crate::{Value, owned, slices, text, texts};

#[derive(Clone, Debug)]
enum Operation {
    Push(End, Vec<Vec<u8>>),
    Pop(End, u64),
    Rotate(End, End),
    Set(i64, Vec<u8>),
    Insert(Side, Vec<u8>, Vec<u8>),
    Remove(i64, Vec<u8>),
    Trim(i64, i64),
}

fn end() -> impl Strategy<Value = End> {
    prop::sample::select(vec![End::Head, End::Tail])
}

fn operation() -> impl Strategy<Value = Operation> {
    let side = prop::sample::select(vec![Side::Before, Side::After]);
    prop_oneof![
        4 => (end(), texts()).prop_map(|(end, texts)| Operation::Push(end, texts)),
        1 => (end(), 0..4_u64).prop_map(|(end, count)| Operation::Pop(end, count)),
        1 => (end(), end()).prop_map(|(from, to)| Operation::Rotate(from, to)),
        1 => (-8..8_i64, text()).prop_map(|(index, text)| Operation::Set(index, text)),
        1 => (side, text(), text()).prop_map(|(side, pivot, text)| Operation::Insert(side, pivot, text)),
        1 => (-3..3_i64, text()).prop_map(|(count, text)| Operation::Remove(count, text)),
        1 => (-3..2_i64, -3..20_i64).prop_map(|(start, stop)| Operation::Trim(start, stop)),
    ]
}

/// The elements of a range, one by one.
fn model_range(model: &[Vec<u8>], start: i64, stop: i64) -> Vec<Vec<u8>> {
    let count = model.len() as i64;
    let from_end = |place: i64| if place < 0 { place + count } else { place };
    let (start, stop) = (from_end(start), from_end(stop));
    let within = (0..count).filter(|place| (start..=stop).contains(place));
    within.map(|place| model[place as usize].clone()).collect()
}

fn model_place(model: &[Vec<u8>], index: i64) -> Option<usize> {
    let place = if index < 0 { index + model.len() as i64 } else { index };
    usize::try_from(place).ok().filter(|place| *place < model.len())
}

fn run(value: &mut Value, model: &mut Vec<Vec<u8>>, operation: &Operation) {
    let before = model.clone();
    let edit = match operation {
        Operation::Push(end, texts) => {
            for text in texts {
                match end {
                    End::Head => model.insert(0, text.clone()),
                    End::Tail => model.push(text.clone()),
                }
            }
            let (edit, count) = list::push(value.bytes(), *end, &slices(texts)).expect("a list");
            assert_eq!(count, model.len() as u64);
            edit
        }
        Operation::Pop(end, count) => {
            let mut expected = Vec::new();
            while (expected.len() as u64) < *count && !model.is_empty() {
                expected.push(match end {
                    End::Head => model.remove(0),
                    End::Tail => model.pop().expect("an element"),
                });
            }
            let (edit, popped) = list::pop(value.bytes(), *end, *count).expect("a list");
            assert_eq!(owned(&popped), expected);
            edit
        }
        Operation::Rotate(from, to) => {
            let moved = match from {
                _ if model.is_empty() => None,
                End::Head => Some(model.remove(0)),
                End::Tail => model.pop(),
            };
            if let Some(moved) = &moved {
                match to {
                    End::Head => model.insert(0, moved.clone()),
                    End::Tail => model.push(moved.clone()),
                }
            }
            let (edit, answer) = list::rotate(value.bytes(), *from, *to).expect("a list");
            assert_eq!(answer.map(|text| text.to_vec()), moved);
            // One that looks the same afterwards may have been written.
            if *model == before {
                value.0 = match edit {
                    farside_value::Edit::Put(bytes) => Some(bytes),
                    _ => value.0.take(),
                };
                return;
            }
            edit
        }
        Operation::Set(index, text) => {
            let place = model_place(model, *index);
            let Ok((edit, ())) = list::set(value.bytes(), *index, text) else {
                assert_eq!(place, None);
                return;
            };
            model[place.expect("a place")] = text.clone();
            edit
        }
        Operation::Insert(side, pivot, text) => {
            let at = model.iter().position(|element| element == pivot);
            if let Some(at) = at {
                model.insert(at + usize::from(*side == Side::After), text.clone());
            }
            let (edit, count) = list::insert(value.bytes(), *side, pivot, text).expect("a list");
            assert_eq!(count, at.map(|_| model.len() as u64));
            edit
        }
        Operation::Remove(count, text) => {
            let mut left = if *count == 0 {
                usize::MAX
            } else {
                count.unsigned_abs() as usize
            };
            let mut keep = |element: &Vec<u8>| {
                let is_removed = element == text && left > 0;
                left -= usize::from(is_removed);
                !is_removed
            };
            if *count < 0 {
                model.reverse();
                model.retain(&mut keep);
                model.reverse();
            } else {
                model.retain(&mut keep);
            }
            let (edit, removed) = list::remove(value.bytes(), *count, text).expect("a list");
            assert_eq!(removed as usize, before.len() - model.len());
            edit
        }
        Operation::Trim(start, stop) => {
            *model = model_range(model, *start, *stop);
            list::trim(value.bytes(), *start, *stop).expect("a list").0
        }
    };
    assert_eq!(value.publish(edit), *model != before);
}

fn compare(value: &Value, model: &[Vec<u8>]) {
    assert_eq!(value.bytes().is_none(), model.is_empty());
    if let Some(bytes) = value.bytes() {
        assert_eq!(list::check(bytes), Ok(()));
    }
    for start in -4..4 {
        let element = list::index(value.bytes(), start).expect("a list");
        let expected = model_place(model, start).map(|place| model[place].clone());
        assert_eq!(element.map(|text| text.to_vec()), expected);
        for stop in -4..4 {
            let found = list::range(value.bytes(), start, stop).expect("a list");
            assert_eq!(owned(&found), model_range(model, start, stop));
        }
    }
    let Some(wanted) = model.first() else { return };
    for rank in [1_i64, 2, -1, -2] {
        for (count, compared_max) in [(0, 0), (1, 0), (2, 3), (0, 1)] {
            let mut places: Vec<_> = (0..model.len() as u32).collect();
            if rank < 0 {
                places.reverse();
            }
            let compared = if compared_max == 0 {
                model.len()
            } else {
                compared_max as usize
            };
            let matches = places
                .into_iter()
                .take(compared)
                .filter(|place| model[*place as usize] == *wanted);
            let expected: Vec<_> = matches
                .skip(rank.unsigned_abs() as usize - 1)
                .take(if count == 0 { usize::MAX } else { count as usize })
                .collect();
            let search = Search {
                rank,
                count,
                compared_max,
            };
            assert_eq!(list::positions(value.bytes(), wanted, search), Ok(expected));
        }
    }
}

proptest! {
    #[test]
    fn a_list_is_a_vector(operations in prop::collection::vec(operation(), 1..24)) {
        let (mut value, mut model) = (Value::default(), Vec::new());
        for operation in &operations {
            run(&mut value, &mut model, operation);
            compare(&value, &model);
        }
    }

    #[test]
    fn a_list_has_one_form(elements in texts(), more in texts()) {
        let all: Vec<_> = elements.iter().chain(&more).cloned().collect();
        let mut one = Value::default();
        one.publish(list::push(None, End::Tail, &slices(&all)).expect("a list").0);
        let mut other = Value::default();
        other.publish(list::push(None, End::Tail, &slices(&more)).expect("a list").0);
        let reversed: Vec<_> = elements.iter().rev().map(Vec::as_slice).collect();
        let edit = list::push(other.bytes(), End::Head, &reversed).expect("a list").0;
        other.publish(edit);
        prop_assert_eq!(&one.0, &other.0);
        let popped = list::range(one.bytes(), 0, -1).expect("a list");
        prop_assert_eq!(popped, all.iter().map(|text| Text::new(text)).collect::<Vec<_>>());
    }
}
