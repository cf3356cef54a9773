//! How full a hash table is when the first key finds no room, by what is done about collisions (CHIME, Figure 3d).
//!
//! On the path: nowhere; arithmetic. How many entries a reader of a key has to read is the *amplification*: what a table
//! gains by being read more of.

use farside_index::chime::hopscotch::Leaf;
use rand_core::Rng;
use serde::Deserialize;

use crate::workload::client_random;
use crate::workload::zipf::below;

/// How a table deals with collisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hashing {
    /// Keys hop until the new one can be near its home: the leaf of CHIME.
    Hopscotch,
    /// A bucket for each key, and no other place.
    Associative,
    /// RACE: two choices, each a bucket and one that it shares with its neighbour.
    Race,
    /// FaRM: a bucket or the next one, and keys hop from one into the next. Without chains.
    Farm,
}

/// Over so many tables is averaged.
const TABLES: u64 = 2_000;

impl Hashing {
    /// The share of `entries` entries that are taken when the first key finds no room, of which a reader reads
    /// `amplification`.
    ///
    /// # Errors
    /// If there is no such table.
    pub fn load_factor(self, entries: usize, amplification: usize, seed: u64) -> Result<f64, String> {
        let bucket = amplification / self.buckets_read();
        let least = if self == Self::Race { 3 * bucket } else { amplification };
        let fits = bucket * self.buckets_read() == amplification && bucket > 0 && entries >= least;
        let fits = fits && (self != Self::Hopscotch || amplification <= 16);
        if !fits {
            return Err(format!(
                "{self:?} of {entries} entries cannot read {amplification} for a key"
            ));
        }
        let (mut taken, mut size) = (0, 0);
        for number in 0..TABLES {
            let mut random = client_random(seed, number);
            let (stored, of) = match self {
                Self::Hopscotch => hopscotch(&mut random, Leaf::new(entries, amplification)),
                Self::Associative => associative(&mut random, entries / bucket, bucket),
                Self::Race => race(&mut random, entries / (3 * bucket), bucket),
                Self::Farm => farm(&mut random, entries / bucket, bucket),
            };
            taken += stored;
            size += of;
        }
        Ok(taken as f64 / size as f64)
    }

    /// How many buckets a reader of a key reads.
    fn buckets_read(self) -> usize {
        match self {
            Self::Hopscotch | Self::Associative => 1,
            Self::Farm => 2,
            Self::Race => 4,
        }
    }
}

/// A number below `bound`.
fn draw(random: &mut impl Rng, bound: usize) -> usize {
    below(random, bound as u64) as usize
}

/// Returns the keys stored and the entries there are; likewise below.
fn hopscotch(random: &mut impl Rng, leaf: Leaf) -> (usize, usize) {
    let mut homes = vec![None; leaf.span()];
    let mut stored = 0;
    loop {
        let home = draw(random, leaf.span());
        let Ok(room) = leaf.make_room(home, |entry| homes[entry]) else {
            return (stored, leaf.span());
        };
        for hop in &room.hops {
            homes[hop.to] = homes[hop.from].take();
        }
        homes[room.at] = Some(home);
        stored += 1;
    }
}

fn associative(random: &mut impl Rng, buckets: usize, bucket: usize) -> (usize, usize) {
    let mut counts = vec![0; buckets];
    let mut stored = 0;
    loop {
        let at = draw(random, buckets);
        if counts[at] == bucket {
            return (stored, buckets * bucket);
        }
        counts[at] += 1;
        stored += 1;
    }
}

/// Groups of three buckets, the middle one of which both others overflow into.
fn race(random: &mut impl Rng, groups: usize, bucket: usize) -> (usize, usize) {
    let mut counts = vec![[0_usize; 3]; groups];
    let mut stored = 0;
    loop {
        let choices = [(); 2].map(|()| (draw(random, groups), 2 * draw(random, 2)));
        let load = |&(group, own): &(usize, usize)| counts[group][own] + counts[group][1];
        let [first, second] = choices;
        let order = if load(&first) <= load(&second) {
            [first, second]
        } else {
            [second, first]
        };
        let places = order.into_iter().flat_map(|(group, own)| [(group, own), (group, 1)]);
        let mut free = places.filter(|&(group, place)| counts[group][place] < bucket);
        let Some((group, place)) = free.next() else {
            return (stored, groups * 3 * bucket);
        };
        counts[group][place] += 1;
        stored += 1;
    }
}

/// Of the keys in a bucket only those that are at home can hop into the next one.
fn farm(random: &mut impl Rng, buckets: usize, bucket: usize) -> (usize, usize) {
    // Keys at home, and those of the bucket before.
    let mut counts = vec![[0_usize; 2]; buckets];
    let mut stored = 0;
    loop {
        let home = draw(random, buckets);
        let after = |at: usize, steps: usize| (at + steps) % buckets;
        let has_room = |steps: &usize| counts[after(home, *steps)].iter().sum::<usize>() < bucket;
        let Some(mut steps) = (0..buckets).find(has_room) else {
            return (stored, buckets * bucket);
        };
        // Ends: each hop brings the room nearer to the home.
        while steps > 1 {
            let (from, to) = (after(home, steps - 1), after(home, steps));
            if counts[from][0] == 0 {
                return (stored, buckets * bucket);
            }
            counts[from][0] -= 1;
            counts[to][1] += 1;
            steps -= 1;
        }
        counts[after(home, steps)][steps] += 1;
        stored += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_as_full_as_they_can_be() {
        let of = |hashing: Hashing, amplification| 100.0 * hashing.load_factor(128, amplification, 1).expect("a table");
        // One place for each key: a birthday problem. The first of n to meet another one is the sqrt(pi * n / 2)th.
        let expected = 100.0 * ((core::f64::consts::PI * 128.0 / 2.0).sqrt() - 1.0 / 3.0) / 128.0;
        assert!((of(Hashing::Associative, 1) - expected).abs() < 0.5);
        assert!((of(Hashing::Hopscotch, 1) - expected).abs() < 0.5);
        for amplification in [4, 8, 16] {
            let hopscotch = of(Hashing::Hopscotch, amplification);
            for other in [Hashing::Associative, Hashing::Race, Hashing::Farm] {
                assert!(of(other, amplification) < hopscotch, "{other:?} of {amplification}");
            }
        }
    }

    #[test]
    fn tables_that_cannot_be_are_refused() {
        for (hashing, amplification) in [(Hashing::Race, 6), (Hashing::Farm, 3), (Hashing::Hopscotch, 17)] {
            assert!(hashing.load_factor(128, amplification, 1).is_err(), "{hashing:?}");
        }
    }
}
