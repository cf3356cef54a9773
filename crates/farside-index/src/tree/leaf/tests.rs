//! What a reader takes for whole was so at one instant, and what a client leaves that dies is mended without a loss.

use farside_fabric::NodeId;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::collections::BTreeMap;

use super::*;

const CHIME: Shape = Shape::hopscotch(32, 8);
const SHERMAN: Shape = Shape::unsorted(16);

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(CHIME),
        Just(SHERMAN),
        Just(Shape::hopscotch(64, 16)),
        Just(Shape::hopscotch(12, 2)),
        Just(Shape::hopscotch(16, 4).repeating(24))
    ]
}

fn addr(number: u64) -> RemoteAddr {
    RemoteAddr::new(NodeId::new(1), number * 64)
}

/// A leaf with as many of the items as find room without a hop.
fn leaf_of(shape: Shape, items: &BTreeMap<Key, u64>) -> Vec<u8> {
    let mut image = vec![0; shape.leaf_bytes() as usize];
    shape.clear(&mut image, shape.all(), sibling(addr(7), 3));
    for (&key, &value) in items {
        let mut neighbours = shape.circle().neighbours(shape.home(key));
        if let Some(vacant) = neighbours.find(|&entry| shape.taken(&image, entry).is_none()) {
            shape.put(&mut image, vacant, key, value);
            shape.flip(&mut image, vacant, key);
        }
    }
    image
}

fn items_of(shape: Shape, image: &[u8]) -> BTreeMap<Key, u64> {
    shape
        .entries(image)
        .map(|(entry, key)| (key, shape.value(image, entry)))
        .collect()
}

proptest! {
    #[test]
    fn leaf_that_is_filled_one_by_one_is_one_that_is_sealed(
        shape in shapes(), items in btree_map(any::<u64>().prop_map(Key::from), any::<u64>(), 0..40)
    ) {
        let image = leaf_of(shape, &items);
        prop_assert_eq!(shape.examine_all(&image), Ok((shape.all(), sibling(addr(7), 3))));
        let mut sealed = image.clone();
        shape.seal(&mut sealed, shape.all(), sibling(addr(7), 3));
        set_word(&mut sealed, LOCK_AT, word(&image, LOCK_AT));
        prop_assert_eq!(&sealed, &image);
        for (entry, key) in shape.entries(&image) {
            prop_assert_eq!(shape.find(&image, key), Some(entry));
        }
    }

    #[test]
    fn segments_hold_the_neighbourhood_and_a_replica(shape in shapes(), items in btree_map(any::<u64>().prop_map(Key::from), any::<u64>(), 0..40)) {
        let image = leaf_of(shape, &items);
        for home in 0..if shape.is_hashed() { shape.span() } else { 1 } {
            let mut read = vec![0xee; image.len()];
            for segment in shape.segments(home, shape.circle().neighbourhood()) {
                read[segment.range()].copy_from_slice(&image[segment.range()]);
            }
            prop_assert_eq!(shape.examine(&read, home), Ok(sibling(addr(7), 3)));
        }
    }

    #[test]
    fn any_word_that_is_wrong_is_noticed_or_not_used(
        items in btree_map(any::<u64>().prop_map(Key::from), any::<u64>(), 1..20), at in any::<prop::sample::Index>(), wrong: u64
    ) {
        let shape = CHIME;
        let image = leaf_of(shape, &items);
        let mut torn = image.clone();
        let at = shape.low_at() + at.index((image.len() - shape.low_at() as usize) / 8) as u64 * 8;
        set_word(&mut torn, at, word(&image, at) ^ wrong.max(1));
        if shape.examine_all(&torn).is_ok() {
            prop_assert_eq!(items_of(shape, &torn), items_of(shape, &image));
        }
    }

    #[test]
    fn leaf_is_whole_if_each_neighbourhood_is(
        shape in shapes(), items in btree_map(any::<u64>().prop_map(Key::from), any::<u64>(), 1..40),
        wrong in vec((any::<prop::sample::Index>(), 0_u32..64), 0..3)
    ) {
        let mut image = leaf_of(shape, &items);
        for (at, bit) in wrong {
            let at = shape.low_at() + at.index((image.len() - shape.low_at() as usize) / 8) as u64 * 8;
            let flipped = word(&image, at) ^ 1 << bit;
            set_word(&mut image, at, flipped);
        }
        let homes = if shape.is_hashed() { shape.span() } else { 1 };
        let is_whole = (0..homes).all(|home| shape.examine(&image, home).is_ok());
        let sibling = Sibling(word(&image, shape.replica_at(0)));
        let replicas = (0..shape.replicas()).map(|group| word(&image, shape.replica_at(group)));
        let agree = replicas.into_iter().all(|replica| replica == sibling.0);
        let expected = shape.fences(&image, sibling).ok().filter(|_| is_whole && agree);
        prop_assert_eq!(shape.examine_all(&image).ok(), expected.map(|fences| (fences, sibling)));
    }

    /// A split beside a READ: each word is of before or of after.
    #[test]
    fn half_of_a_split_is_noticed(
        items in btree_map(any::<u64>().prop_map(Key::from), any::<u64>(), 2..30), is_after in vec(any::<bool>(), 240)
    ) {
        let shape = CHIME;
        let before = leaf_of(shape, &items);
        let mut keys: Vec<Key> = shape.entries(&before).map(|(_, key)| key).collect();
        keys.sort_unstable();
        let split_key = keys[keys.len() / 2];
        prop_assume!(split_key > 0);
        let mut after = before.clone();
        shape.keep(&mut after, |key| key < split_key);
        shape.seal(&mut after, Fences { low: 0, high: split_key - 1 }, sibling(addr(9), 4));
        let mut read = before.clone();
        for (index, at) in (shape.low_at()..shape.leaf_bytes()).step_by(8).enumerate() {
            if is_after[index] {
                set_word(&mut read, at, word(&after, at));
            }
        }
        for &key in &keys {
            // That it is there is enough, whatever else was read.
            let home = shape.home(key);
            let found = shape.find(&read, key);
            if let (Ok(_), Some(entry)) = (shape.examine_for(&read, home, found), found) {
                prop_assert_eq!(shape.value(&read, entry), items[&key]);
            }
        }
        for home in 0..shape.span() {
            let Ok(seen) = shape.examine(&read, home) else { continue };
            let whole = if seen.version() == 3 { &before } else { &after };
            for key in keys.iter().filter(|&&key| shape.home(key) == home) {
                prop_assert_eq!(shape.find(&read, *key), shape.find(whole, *key));
            }
        }
    }

    #[test]
    fn mending_keeps_every_key_and_either_value(
        shape in shapes(), items in btree_map(any::<u64>().prop_map(Key::from), any::<u64>(), 1..20), which in any::<prop::sample::Index>(),
        new: u64, is_value_new: bool
    ) {
        let before = leaf_of(shape, &items);
        let entries: Vec<(usize, Key)> = shape.entries(&before).collect();
        let (entry, key) = entries[which.index(entries.len())];
        let mut after = before.clone();
        shape.put(&mut after, entry, key, new);
        // Half of the update: value or meta word.
        let mut torn = before.clone();
        let at = shape.entry_at(entry) + if is_value_new { shape.entry_bytes() - 8 } else { 0 };
        set_word(&mut torn, at, word(&after, at));
        shape.mend(&mut torn, shape.all(), sibling(addr(7), 3));
        prop_assert!(shape.examine_all(&torn).is_ok());
        prop_assert!([items_of(shape, &before), items_of(shape, &after)].contains(&items_of(shape, &torn)));
    }
}
