//! Which keys a client works on, as numbers: what a key looks like is a matter of the index.
//!
//! On the path: drawn before each operation.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use rand_xoshiro::Xoshiro256PlusPlus;

use super::zipf::below;
use super::{Operation, Popularity, SCAN_ITEMS_MAX, Scatter, Workload, Zipf, client_random};

/// What the clients of a run have in common.
#[derive(Clone, Debug)]
pub struct Population {
    /// How many keys there are at the start; how many will be, if the workload loads them.
    pub items: u64,
    /// What is done with them.
    pub workload: Workload,
    /// How much more popular some keys are than others.
    pub theta: f64,
    /// Decides who does what with which key.
    pub seed: u64,
    /// How many keys have been given out so far, those at the start included.
    pub given_out: Arc<AtomicU64>,
    /// How often the popular keys have become others.
    pub moves: Arc<AtomicU64>,
    /// Whether a LOAD goes on with what is there, for as long as is measured, rather than beginning with nothing.
    pub is_filled: bool,
}

impl Population {
    /// Keys at the start of a run.
    #[must_use]
    pub fn new(items: u64, workload: Workload, theta: f64, seed: u64) -> Self {
        let given_out = if workload.is_load() { 0 } else { items };
        Self {
            items,
            workload,
            theta,
            seed,
            given_out: Arc::new(AtomicU64::new(given_out)),
            moves: Arc::default(),
            is_filled: !workload.is_load(),
        }
    }

    /// The same, where a LOAD goes on with so many keys.
    #[must_use]
    pub fn filled(self) -> Self {
        self.given_out.store(self.items, Ordering::Relaxed);
        Self {
            is_filled: true,
            ..self
        }
    }

    /// How many keys there are before the clients come.
    #[must_use]
    pub fn items_at_start(&self) -> u64 {
        if self.is_filled { self.items } else { 0 }
    }

    /// Whether a run ends with the last key, rather than with the time it is given.
    #[must_use]
    pub fn is_finite(&self) -> bool {
        self.workload.is_load() && !self.is_filled
    }
}

/// The keys of one client.
#[derive(Debug)]
pub struct Keys {
    population: Population,
    random: Xoshiro256PlusPlus,
    zipf: Zipf,
    scatter: Scatter,
}

impl Keys {
    /// Those of client `number`.
    #[must_use]
    pub fn new(population: &Population, number: u64) -> Self {
        Self {
            population: population.clone(),
            random: client_random(population.seed, number),
            zipf: Zipf::new(population.items, population.theta),
            scatter: Scatter::new(population.items),
        }
    }

    /// What is done next.
    #[inline]
    pub fn operation(&mut self) -> Operation {
        self.population.workload.operation(&mut self.random)
    }

    /// A key as popular as it is. With [`Popularity::Latest`] its INSERT may still be under way.
    #[inline]
    pub fn known(&mut self) -> u64 {
        let rank = self.zipf.rank(&mut self.random);
        self.of_rank(rank)
    }

    /// The key that is more popular than all but `rank` others.
    #[inline]
    #[must_use]
    pub fn of_rank(&self, rank: u64) -> u64 {
        let population = &self.population;
        match population.workload.popularity {
            Popularity::Fixed => {
                // With each move the keys change their places by a third of all.
                let (items, moves) = (self.zipf.items(), population.moves.load(Ordering::Relaxed));
                (self.scatter.key(rank) + moves % 3 * (items / 3)) % items
            }
            Popularity::Latest => population.given_out.load(Ordering::Relaxed).saturating_sub(rank + 1),
        }
    }

    /// A key that nobody has used.
    #[inline]
    pub fn unused(&mut self) -> u64 {
        self.population.given_out.fetch_add(1, Ordering::Relaxed)
    }

    /// How many items a scan reads.
    #[inline]
    pub fn scan_items(&mut self) -> u64 {
        1 + below(&mut self.random, SCAN_ITEMS_MAX)
    }
}
