//! Hashes against a vector of fields, with a clock.

use farside_value::format::{self, element_hash};
use farside_value::packed::hash::{self, ExpiryCondition, ExpiryOutcome, FieldExpiry};
use farside_value::{Draw, Text, ValueError};
use proptest::prelude::*;

use crate::{Value, chance, slices, text, texts};

#[derive(Clone, Debug)]
enum Operation {
    Set(Vec<(Vec<u8>, Vec<u8>)>),
    SetIfAbsent(Vec<u8>, Vec<u8>),
    Remove(Vec<Vec<u8>>),
    Increment(Vec<u8>, i64),
    IncrementFloat(Vec<u8>),
    Expire(Vec<Vec<u8>>, u64, ExpiryCondition),
    Persist(Vec<Vec<u8>>),
    Sweep,
    Tick(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let condition = prop::sample::select(vec![
        ExpiryCondition::Always,
        ExpiryCondition::Always,
        ExpiryCondition::Unset,
        ExpiryCondition::Set,
        ExpiryCondition::Later,
        ExpiryCondition::Earlier,
    ]);
    prop_oneof![
        6 => prop::collection::vec((text(), text()), 1..6).prop_map(Operation::Set),
        1 => (text(), text()).prop_map(|(field, text)| Operation::SetIfAbsent(field, text)),
        1 => texts().prop_map(Operation::Remove),
        1 => (text(), -3..3_i64).prop_map(|(field, by)| Operation::Increment(field, by)),
        1 => text().prop_map(Operation::IncrementFloat),
        3 => (texts(), 95..130_u64, condition).prop_map(|(fields, at, condition)| Operation::Expire(fields, at, condition)),
        1 => texts().prop_map(Operation::Persist),
        1 => Just(Operation::Sweep),
        1 => (1..8_u64).prop_map(Operation::Tick),
    ]
}

#[derive(Clone, PartialEq, Debug)]
struct Field {
    name: Vec<u8>,
    text: Vec<u8>,
    expiry_ms: u64,
}

struct Model {
    /// With those that are past their time, until something changes.
    fields: Vec<Field>,
    now_ms: u64,
}

impl Model {
    fn live(&self) -> Vec<Field> {
        let is_live = |field: &&Field| field.expiry_ms == 0 || field.expiry_ms > self.now_ms;
        self.fields.iter().filter(is_live).cloned().collect()
    }
}

fn find<'a>(fields: &'a mut [Field], name: &[u8]) -> Option<&'a mut Field> {
    fields.iter_mut().find(|field| field.name == name)
}

/// Sets a field; answers whether it is new.
fn put(fields: &mut Vec<Field>, name: &[u8], text: &[u8], keeps_expiry: bool) -> bool {
    if let Some(field) = find(fields, name) {
        field.text = text.to_vec();
        if !keeps_expiry {
            field.expiry_ms = 0;
        }
        return false;
    }
    fields.push(Field {
        name: name.to_vec(),
        text: text.to_vec(),
        expiry_ms: 0,
    });
    true
}

fn expire(fields: &mut Vec<Field>, name: &[u8], at_ms: u64, condition: ExpiryCondition, now_ms: u64) -> ExpiryOutcome {
    let Some(field) = find(fields, name) else {
        return ExpiryOutcome::NoField;
    };
    // Never is later than everything; but GT and XX want a time.
    let old = if field.expiry_ms == 0 {
        u64::MAX
    } else {
        field.expiry_ms
    };
    let holds = match condition {
        ExpiryCondition::Always => true,
        ExpiryCondition::Unset => field.expiry_ms == 0,
        ExpiryCondition::Set => field.expiry_ms != 0,
        ExpiryCondition::Later => at_ms > old,
        ExpiryCondition::Earlier => at_ms < old,
    };
    if !holds {
        return ExpiryOutcome::Refused;
    }
    if at_ms <= now_ms {
        fields.retain(|field| field.name != name);
        return ExpiryOutcome::Removed;
    }
    field.expiry_ms = at_ms;
    ExpiryOutcome::Set
}

fn expiry_of(field: Option<&mut Field>) -> FieldExpiry {
    match field {
        None => FieldExpiry::NoField,
        Some(field) if field.expiry_ms == 0 => FieldExpiry::Never,
        Some(field) => FieldExpiry::At(field.expiry_ms),
    }
}

fn run(value: &mut Value, model: &mut Model, operation: &Operation) {
    let now_ms = model.now_ms;
    let before = model.live();
    let mut fields = before.clone();
    let edit = match operation {
        Operation::Set(pairs) => {
            let mut expected = 0;
            for (name, text) in pairs {
                expected += u32::from(put(&mut fields, name, text, false));
            }
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(name, text)| (name.as_slice(), text.as_slice()))
                .collect();
            let (edit, added) = hash::set(value.bytes(), &pairs, now_ms).expect("a hash");
            assert_eq!(added, expected);
            edit
        }
        Operation::SetIfAbsent(name, text) => {
            let is_absent = find(&mut fields, name).is_none();
            if is_absent {
                put(&mut fields, name, text, false);
            }
            let (edit, was_absent) = hash::set_if_absent(value.bytes(), name, text, now_ms).expect("a hash");
            assert_eq!(was_absent, is_absent);
            edit
        }
        Operation::Remove(names) => {
            fields.retain(|field| !names.contains(&field.name));
            let (edit, removed) = hash::remove(value.bytes(), &slices(names), now_ms).expect("a hash");
            assert_eq!(removed as usize, before.len() - fields.len());
            edit
        }
        Operation::Increment(name, by) => {
            let text = find(&mut fields, name).map_or(b"0".to_vec(), |field| field.text.clone());
            let answer = hash::increment(value.bytes(), name, *by, now_ms);
            let Text::Integer(number) = Text::new(&text) else {
                assert_eq!(answer, Err(ValueError::NotAnInteger));
                return;
            };
            let Some(sum) = number.checked_add(*by) else {
                assert_eq!(answer, Err(ValueError::Overflow));
                return;
            };
            put(&mut fields, name, sum.to_string().as_bytes(), true);
            let (edit, answer) = answer.expect("a hash");
            assert_eq!(answer, sum);
            edit
        }
        Operation::IncrementFloat(name) => {
            let text = find(&mut fields, name).map_or(b"0".to_vec(), |field| field.text.clone());
            let answer = hash::increment_float(value.bytes(), name, b"0.25", now_ms);
            let Some(number) = String::from_utf8(text).ok().and_then(|text| text.parse::<i128>().ok()) else {
                // Other numbers than whole ones are for the tests of sums.
                let is_number = !matches!(answer, Err(ValueError::NotAFloat));
                if let (true, Ok((edit, sum))) = (is_number, answer) {
                    put(&mut fields, name, sum.as_bytes(), true);
                    value.publish(edit);
                    model.fields = fields;
                }
                return;
            };
            let quarters = 4 * number + 1;
            let sign = if quarters < 0 { "-" } else { "" };
            let (whole, part) = (quarters.unsigned_abs() / 4, quarters.unsigned_abs() % 4);
            let part = ["", ".25", ".5", ".75"][part as usize];
            let sum = format!("{sign}{whole}{part}");
            put(&mut fields, name, sum.as_bytes(), true);
            let (edit, answer) = answer.expect("a hash");
            assert_eq!(answer, sum);
            edit
        }
        Operation::Expire(names, at_ms, condition) => {
            let expected: Vec<_> = names
                .iter()
                .map(|name| expire(&mut fields, name, *at_ms, *condition, now_ms))
                .collect();
            let (edit, outcomes) =
                hash::expire(value.bytes(), &slices(names), *at_ms, *condition, now_ms).expect("a hash");
            assert_eq!(outcomes, expected);
            edit
        }
        Operation::Persist(names) => {
            let mut expected = Vec::new();
            for name in names {
                let mut field = find(&mut fields, name);
                expected.push(expiry_of(field.as_deref_mut()));
                if let Some(field) = field {
                    field.expiry_ms = 0;
                }
            }
            let (edit, expiries) = hash::persist(value.bytes(), &slices(names), now_ms).expect("a hash");
            assert_eq!(expiries, expected);
            edit
        }
        Operation::Sweep => {
            let (edit, past) = hash::sweep(value.bytes(), now_ms).expect("a hash");
            assert_eq!(past as usize, model.fields.len() - before.len());
            model.fields = before;
            assert_eq!(value.publish(edit), past > 0);
            return;
        }
        Operation::Tick(time_ms) => {
            model.now_ms += time_ms;
            return;
        }
    };
    let is_changed = fields != before;
    if is_changed {
        model.fields = fields;
    }
    assert_eq!(value.publish(edit), is_changed);
}

fn compare(value: &Value, model: &Model, other: &[u8]) {
    let now_ms = model.now_ms;
    assert_eq!(value.bytes().is_none(), model.fields.is_empty());
    if let Some(bytes) = value.bytes() {
        assert_eq!(hash::check(bytes), Ok(()));
    }
    let mut live = model.live();
    let mut found = Vec::new();
    hash::each(value.bytes(), now_ms, &mut |name, text| {
        found.push((name.to_vec(), text.to_vec()));
    })
    .expect("a hash");
    let expected: Vec<_> = live
        .iter()
        .map(|field| (field.name.clone(), field.text.clone()))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(format::count(value.bytes()), Ok(model.fields.len() as u32));
    assert_eq!(hash::live_count(value.bytes(), now_ms), Ok(live.len() as u32));
    let earliest = model
        .fields
        .iter()
        .map(|field| field.expiry_ms)
        .filter(|expiry| *expiry != 0)
        .min();
    assert_eq!(hash::earliest_expiry(value.bytes()), Ok(earliest.unwrap_or(0)));

    // Those past their time, too.
    let mut names: Vec<_> = model.fields.iter().map(|field| field.name.as_slice()).collect();
    names.extend([other, other]);
    let texts = hash::get_many(value.bytes(), &names, now_ms).expect("a hash");
    let expiries = hash::expiries(value.bytes(), &names, now_ms).expect("a hash");
    for (place, name) in names.iter().enumerate() {
        let field = find(&mut live, name);
        let text = field.as_ref().map(|field| Text::new(&field.text));
        assert_eq!(texts[place], text);
        assert_eq!(hash::get(value.bytes(), name, now_ms), Ok(text));
        assert_eq!(
            texts[place].map_or(0, |text| text.len()),
            field.as_ref().map_or(0, |field| field.text.len())
        );
        assert_eq!(expiries[place], expiry_of(field));
    }
    for draw in [Draw::Distinct(2), Draw::Distinct(u64::MAX), Draw::Repeated(5)] {
        let mut drawn = Vec::new();
        let mut show = |name: &[u8], text: Text<'_>| drawn.push((name.to_vec(), text.to_vec()));
        hash::random(value.bytes(), draw, now_ms, &mut chance(1), &mut show).expect("a hash");
        assert!(drawn.iter().all(|pair| expected.contains(pair)));
        match draw {
            Draw::Repeated(count) => assert_eq!(drawn.len() as u64, if live.is_empty() { 0 } else { count }),
            Draw::Distinct(count) => {
                assert_eq!(drawn.len() as u64, count.min(live.len() as u64));
                drawn.dedup();
                assert_eq!(
                    drawn.len() as u64,
                    count.min(live.len() as u64),
                    "ascending, so different"
                );
            }
        }
    }
    for cursor in [0, 1 << 63] {
        let mut scanned = Vec::new();
        let mut show = |name: &[u8], text: Text<'_>| scanned.push((name.to_vec(), text.to_vec()));
        assert_eq!(hash::scan(value.bytes(), cursor, 7, now_ms, &mut show), Ok(0));
        let within = expected.iter().filter(|pair| element_hash(7, &pair.0) >= cursor);
        assert_eq!(scanned, within.cloned().collect::<Vec<_>>());
    }
}

proptest! {
    #[test]
    fn a_hash_is_a_vector_of_fields(operations in prop::collection::vec(operation(), 1..24), other in text()) {
        let mut value = Value::default();
        let mut model = Model { fields: Vec::new(), now_ms: 100 };
        for operation in &operations {
            run(&mut value, &mut model, operation);
            compare(&value, &model, &other);
        }
    }
}
