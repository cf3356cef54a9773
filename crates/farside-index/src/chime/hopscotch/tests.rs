//! Keys stay within reach, and a READ that saw half of an INSERT notices.

use proptest::prelude::*;

use super::*;

/// The homes of who stands in each entry.
#[derive(Clone, PartialEq, Debug)]
struct Homes(Vec<Option<usize>>);

impl Homes {
    fn empty(leaf: Leaf) -> Self {
        Self(vec![None; leaf.span()])
    }

    fn count(&self) -> usize {
        self.0.iter().flatten().count()
    }

    fn insert(&mut self, leaf: Leaf, home: usize) -> Result<Room, Stuck> {
        let room = leaf.make_room(home, |entry| self.0[entry])?;
        for hop in &room.hops {
            assert_eq!(self.0[hop.to], None);
            self.0[hop.to] = self.0[hop.from].take();
        }
        assert_eq!(self.0[room.at].replace(home), None);
        Ok(room)
    }
}

/// Mean share of the entries that are taken when the first key finds no room.
fn load_factor(leaf: Leaf) -> f64 {
    const TABLES: u64 = 4_000;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = || {
        // xorshift64* (Vigna).
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        (random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % leaf.span()
    };
    let taken: usize = (0..TABLES)
        .map(|_| {
            let mut homes = Homes::empty(leaf);
            while homes.insert(leaf, draw()).is_ok() {}
            homes.count()
        })
        .sum();
    taken as f64 / (TABLES as f64 * leaf.span() as f64)
}

#[test]
fn leaves_are_as_full_as_published_or_fuller() {
    let percent = |neighbourhood| 100.0 * load_factor(Leaf::new(64, neighbourhood));
    assert!((percent(2) - 37.7).abs() < 1.0);
    assert!((percent(16) - 99.8).abs() < 1.0);
    // The paper has 88.1 with the same rule.
    assert!((percent(8) - 93.9).abs() < 1.0);
}

#[test]
fn a_leaf_without_a_vacant_entry_is_full() {
    let leaf = Leaf::new(4, 4);
    let mut homes = Homes::empty(leaf);
    for entry in [3, 0, 1, 2] {
        let room = homes.insert(leaf, 3).expect("there is room");
        assert_eq!((room.at, room.hops.len()), (entry, 0));
    }
    assert_eq!(homes.insert(leaf, 0), Err(Stuck::Full));
}

#[test]
fn the_farthest_hops_first() {
    let leaf = Leaf::new(8, 4);
    // Vacant are 5 to 7; 2 and 3 may hop to 5, and 1 may not.
    let mut homes = Homes(vec![Some(0), Some(0), Some(2), Some(2), Some(1), None, None, None]);
    let room = homes.insert(leaf, 0).expect("there is room");
    assert_eq!((room.hops, room.at, room.range), (vec![Hop { from: 2, to: 5 }], 2, 6));
    assert_eq!(
        homes.0,
        [Some(0), Some(0), Some(0), Some(2), Some(1), Some(2), None, None]
    );
}

/// Whether a key with this home has room if all others may stand anywhere in their neighbourhoods: a path to a vacant entry on
/// which everybody moves on.
fn has_room_in_some_order(leaf: Leaf, homes: &Homes, home: usize) -> bool {
    let (mut reached, mut next) = (vec![false; leaf.span()], vec![home]);
    while let Some(home) = next.pop() {
        for entry in leaf.neighbours(home) {
            if !std::mem::replace(&mut reached[entry], true) {
                match homes.0[entry] {
                    None => return true,
                    Some(other) => next.push(other),
                }
            }
        }
    }
    false
}

/// A leaf, the homes of keys that come, and which of the entries go in between.
fn histories() -> impl Strategy<Value = (Leaf, Vec<(usize, bool)>, usize)> {
    (2_usize..=24)
        .prop_flat_map(|span| (Just(span), 1..=span.min(NEIGHBOURHOOD_MAX)))
        .prop_flat_map(|(span, neighbourhood)| {
            (
                Just(Leaf::new(span, neighbourhood)),
                proptest::collection::vec((0..span, proptest::bool::weighted(0.2)), 0..3 * span),
                0..span,
            )
        })
}

/// The homes after a history of INSERTs and DELETEs.
fn lived(leaf: Leaf, history: &[(usize, bool)]) -> Homes {
    let mut homes = Homes::empty(leaf);
    for &(number, is_delete) in history {
        if is_delete {
            homes.0[number] = None;
        } else {
            // Who finds no room stays out.
            let _ = homes.insert(leaf, number);
        }
    }
    homes
}

proptest! {
    #[test]
    fn everybody_stays_within_reach_and_in_the_hop_range((leaf, history, home) in histories()) {
        let before = lived(leaf, &history);
        let mut after = before.clone();
        let Ok(room) = after.insert(leaf, home) else {
            prop_assert!(before.count() + 1 > leaf.neighbourhood());
            return Ok(());
        };
        prop_assert_eq!(after.count(), before.count() + 1);
        for (entry, stands) in after.0.iter().enumerate() {
            prop_assert!(stands.is_none_or(|home| leaf.reaches(home, entry)));
        }
        // Nothing outside of the range changes, neither who stands there nor a bitmap.
        for steps in room.range..leaf.span() {
            let entry = leaf.after(home, steps);
            prop_assert_eq!(before.0[entry], after.0[entry]);
            let bitmap = |homes: &Homes| leaf.bitmap(entry, |at| homes.0[at]);
            prop_assert_eq!(bitmap(&before), bitmap(&after));
        }
    }

    /// So no other rule would fill a leaf further that keys only come to.
    #[test]
    fn hops_find_room_wherever_an_order_of_the_keys_has_it((leaf, history, home) in histories()) {
        let history: Vec<_> = history.into_iter().map(|(number, _)| (number, false)).collect();
        let mut homes = lived(leaf, &history);
        let has_room = has_room_in_some_order(leaf, &homes, home);
        prop_assert_eq!(homes.insert(leaf, home).is_ok(), has_room);
    }

    /// Section 4.1.2: a bitmap that matches says that nobody was missed.
    #[test]
    fn a_read_of_some_entries_before_and_some_after_notices((leaf, history, home) in histories(), mix: u32) {
        let before = lived(leaf, &history);
        let mut after = before.clone();
        if after.insert(leaf, home).is_err() {
            return Ok(());
        }
        let read_after = |entry: usize| mix >> entry & 1 == 1;
        let read = |entry: usize| if read_after(entry) { after.0[entry] } else { before.0[entry] };
        for reader in 0..leaf.span() {
            let source = if read_after(reader) { &after } else { &before };
            let bitmap_read = leaf.bitmap(reader, |entry| source.0[entry]);
            if leaf.bitmap(reader, read) == bitmap_read {
                // Those of this home are found: as many as there were before, or one more.
                let found = bitmap_read.count_ones();
                let there = leaf.bitmap(reader, |entry| before.0[entry]).count_ones();
                prop_assert!(found == there || (reader == home && found == there + 1));
            }
        }
    }
}
