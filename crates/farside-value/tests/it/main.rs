//! Operations on packed values against plain models, and on any bytes.

mod algebra;
mod any_bytes;
mod hash;
mod list;
mod set;
mod sorted;

use farside_value::{Edit, Text};
use proptest::prelude::*;

/// A value that changes.
#[derive(Clone, Default, Debug)]
struct Value(Option<Vec<u8>>);

impl Value {
    fn bytes(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }

    /// Publishes an edit; answers whether it was one.
    fn publish(&mut self, edit: Edit) -> bool {
        match edit {
            Edit::Keep => return false,
            Edit::Put(value) => {
                assert_ne!(self.bytes(), Some(&value[..]), "what stays as it is is kept");
                self.0 = Some(value);
            }
            Edit::Delete => {
                assert!(self.0.is_some(), "what is absent is kept");
                self.0 = None;
            }
        }
        true
    }
}

/// A source of chance that is the same in every run.
fn chance(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |bound| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % bound
    }
}

/// Strings of every form, few enough to meet.
fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => "[ab]{0,2}".prop_map(String::into_bytes),
        3 => "field[0-9]{1,2}".prop_map(String::into_bytes),
        3 => "-?[0-3]{1,2}".prop_map(String::into_bytes),
        1 => "100000000000[0-3]".prop_map(String::into_bytes),
        1 => "a field that is very long, of which much is shared[ab]{0,2}".prop_map(String::into_bytes),
        1 => (190..194_usize).prop_map(|bytes| vec![b'x'; bytes]),
        1 => prop::sample::select(vec![i64::MAX.to_string(), i64::MIN.to_string(), "-0".into(), "9223372036854775808".into()])
            .prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..3),
    ]
}

fn texts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(text(), 1..6)
}

fn slices(texts: &[Vec<u8>]) -> Vec<&[u8]> {
    texts.iter().map(Vec::as_slice).collect()
}

fn owned(texts: &[Text<'_>]) -> Vec<Vec<u8>> {
    texts.iter().map(Text::to_vec).collect()
}
