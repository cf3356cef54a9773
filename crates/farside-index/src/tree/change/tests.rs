//! A SEARCH beside INSERTs and DELETEs, word by word, and a death between any two words.

use std::collections::{BTreeMap, BTreeSet};

use farside_fabric::NodeId;
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::leaf::{self, set_word, word};
use super::*;

const SHAPES: [Shape; 6] = [
    Shape::hopscotch(8, 4),
    Shape::hopscotch(8, 4).repeating(24),
    Shape::hopscotch(12, 4),
    Shape::hopscotch(16, 8),
    Shape::hopscotch(8, 4).of_pointers(),
    Shape::hopscotch(12, 4).of_pointers(),
];
const LEAF: RemoteAddr = RemoteAddr::new(NodeId::new(0), 4096);

/// One word that is written, and the keys that are there for good from then on.
struct Moment {
    at: u64,
    value: u64,
}

/// The words that a change writes, in one of the orders that it may; the image is what it leaves.
fn words_of(verbs: &[Verb], image: &[u8], draw: &mut impl FnMut(usize) -> usize) -> Vec<Moment> {
    let mut moments = Vec::new();
    for verb in verbs {
        match *verb {
            Verb::WriteWord { target, value } => moments.push(Moment {
                at: target.offset() - LEAF.offset(),
                value,
            }),
            Verb::Write { source, target } => {
                let mut words: Vec<u64> = (0..u64::from(source.bytes)).step_by(8).collect();
                while !words.is_empty() {
                    let offset = words.swap_remove(draw(words.len()));
                    moments.push(Moment {
                        at: target.offset() - LEAF.offset() + offset,
                        value: word(image, u64::from(source.at) + offset),
                    });
                }
            }
            _ => panic!("a change writes"),
        }
    }
    moments
}

/// What a change does to a leaf; `None` if there is no room.
fn change(shape: Shape, image: &mut [u8], key: Key, value: u64) -> Option<Vec<Verb>> {
    if let Some(entry) = shape.find(image, key) {
        shape.flip(image, entry, key);
        let vacated = shape.vacated(image, entry);
        shape.set_meta(image, entry, vacated);
        let home = shape.home(key);
        let metas = [entry, home].map(|entry| Verb::WriteWord {
            target: LEAF.plus(shape.entry_at(entry)),
            value: shape.meta(image, entry).0,
        });
        return Some(metas.to_vec());
    }
    let home = shape.home(key);
    let room = shape
        .circle()
        .make_room(home, |entry| shape.home_at(image, entry))
        .ok()?;
    Some(plan(shape, image, &room, (key, value), LEAF))
}

/// The value of an entry; of a pointer what it points to, as its identity is another one wherever its key goes.
fn value_of(shape: Shape, image: &[u8], entry: usize) -> u64 {
    let value = shape.value(image, entry);
    if shape.has_pointers() {
        Pointer::from_word(value).with_identity(0).to_word()
    } else {
        value
    }
}

fn keys_of(shape: Shape, image: &[u8]) -> BTreeMap<Key, u64> {
    shape
        .entries(image)
        .map(|(entry, key)| (key, value_of(shape, image, entry)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_a_reader_takes_for_whole_was_so(
        shape in prop::sample::select(&SHAPES[..]), first in vec(0_u128..40, 4..16), then in vec(0_u128..40, 1..6),
        mut draws in vec(any::<u32>(), 600)
    ) {
        let mut draw = |below: usize| draws.pop().map_or(0, |drawn| drawn as usize % below);
        let mut image = vec![0; shape.leaf_bytes() as usize];
        shape.clear(&mut image, shape.all(), leaf::sibling(RemoteAddr::NULL, 5));
        for key in first {
            let _ = change(shape, &mut image, key, key as u64 + 100);
        }
        // The words of a leaf through time, and its keys between the changes.
        let mut memory = image.clone();
        let mut history: BTreeMap<u64, Vec<(usize, u64)>> = BTreeMap::new();
        let (mut time, mut states) = (0, vec![keys_of(shape, &image)]);
        let initial = memory.clone();
        for (number, key) in (1..).zip(then) {
            let Some(verbs) = change(shape, &mut image, key, key as u64 + 100 * number) else { continue };
            for moment in words_of(&verbs, &image, &mut draw) {
                time += 1;
                set_word(&mut memory, moment.at, moment.value);
                history.entry(moment.at).or_default().push((time, moment.value));
            }
            prop_assert_eq!(&memory[shape.body(0).range()], &image[shape.body(0).range()], "all that has changed was written");
            states.push(keys_of(shape, &image));
        }
        for home in 0..shape.span() {
            let mut read = initial.clone();
            for (&at, values) in &history {
                let when = draw(time + 1);
                if let Some(&(_, value)) = values.iter().rfind(|&&(written, _)| written <= when) {
                    set_word(&mut read, at, value);
                }
            }
            if shape.examine(&read, home).is_err() {
                continue;
            }
            let keys: BTreeSet<Key> = states.iter().flat_map(BTreeMap::keys).copied().collect();
            for key in keys.into_iter().filter(|&key| shape.home(key) == home) {
                let found = shape.find(&read, key).map(|entry| value_of(shape, &read, entry));
                let was = states.iter().any(|state| state.get(&key).copied() == found);
                prop_assert!(was, "key {} was never {:?}: {:?}", key, found, states);
            }
        }
    }

    #[test]
    fn who_dies_between_two_words_loses_no_key(
        shape in prop::sample::select(&SHAPES[..]), first in vec(0_u128..40, 4..16), key in 0_u128..40,
        mut draws in vec(any::<u32>(), 100), end in any::<prop::sample::Index>()
    ) {
        let mut draw = |below: usize| draws.pop().map_or(0, |drawn| drawn as usize % below);
        let mut image = vec![0; shape.leaf_bytes() as usize];
        let sibling = leaf::sibling(RemoteAddr::NULL, 5);
        shape.clear(&mut image, shape.all(), sibling);
        for key in first {
            let _ = change(shape, &mut image, key, key as u64 + 100);
        }
        let mut memory = image.clone();
        let before = keys_of(shape, &image);
        let Some(verbs) = change(shape, &mut image, key, 7) else { return Ok(()) };
        let moments = words_of(&verbs, &image, &mut draw);
        for moment in &moments[..end.index(moments.len() + 1)] {
            set_word(&mut memory, moment.at, moment.value);
        }
        shape.mend(&mut memory, shape.all(), sibling);
        prop_assert!(shape.examine_all(&memory).is_ok());
        let mended = keys_of(shape, &memory);
        prop_assert!([&before, &keys_of(shape, &image)].contains(&&mended), "{:?} became {:?}", before, mended);
    }
}
