//! Makes a failing plan small: fewer faults, fewer actors, less work, as long as it still fails.
//!
//! Greedy removal of ever smaller parts (delta debugging, Zeller and Hildebrandt 2002). Taking a part
//! away changes every interleaving after it, so a smaller plan is tried with a few seeds of the
//! simulator. It must break the same check.

use crate::plan::{Plan, Work};
use crate::run::{Failure, execute};

/// With how many seeds a smaller plan is tried.
const SEEDS_PER_PLAN: u64 = 3;

/// A small plan, and how it fails.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The plan.
    pub plan: Plan,
    /// How it fails.
    pub failure: Failure,
    /// How many runs it took.
    pub runs: u64,
}

/// Makes `plan`, which fails as `failure` says, as small as `runs_max` runs can.
#[must_use]
pub fn shrink(plan: &Plan, failure: Failure, runs_max: u64) -> Shrunk {
    let mut shrinker = Shrinker {
        best: Shrunk {
            plan: plan.clone(),
            failure,
            runs: 0,
        },
        runs_max,
    };
    loop {
        let before = shrinker.best.plan.size();
        shrinker.remove_parts(|plan| plan.faults.len(), |plan, range| drop(plan.faults.drain(range)));
        shrinker.remove_parts(
            |plan| plan.actors.len(),
            // An actor without work keeps the numbers of the others.
            |plan, range| plan.actors[range].iter_mut().for_each(|actor| actor.work.clear()),
        );
        for actor in 0..shrinker.best.plan.actors.len() {
            shrinker.remove_parts(
                |plan| plan.actors[actor].work.len(),
                |plan, range| drop(plan.actors[actor].work.drain(range)),
            );
        }
        shrinker.simplify();
        if shrinker.best.plan.size() == before || shrinker.is_spent() {
            return shrinker.best;
        }
    }
}

struct Shrinker {
    best: Shrunk,
    runs_max: u64,
}

impl Shrinker {
    fn is_spent(&self) -> bool {
        self.best.runs >= self.runs_max
    }

    /// Takes a smaller plan if it fails.
    fn try_plan(&mut self, plan: Plan) -> bool {
        if plan == self.best.plan {
            return false;
        }
        for turn in 0..SEEDS_PER_PLAN {
            if self.is_spent() {
                return false;
            }
            self.best.runs += 1;
            let seed = plan.seed.wrapping_add(turn);
            let candidate = Plan { seed, ..plan.clone() };
            let failure = execute(&candidate).failure;
            if let Some(failure) = failure.filter(|failure| failure.kind == self.best.failure.kind) {
                self.best.plan = candidate;
                self.best.failure = failure;
                return true;
            }
        }
        false
    }

    /// Removes halves, quarters and so on, down to single elements.
    fn remove_parts(&mut self, count: impl Fn(&Plan) -> usize, remove: impl Fn(&mut Plan, core::ops::Range<usize>)) {
        let mut part = count(&self.best.plan).div_ceil(2);
        while part > 0 {
            let mut at = 0;
            while at < count(&self.best.plan) {
                let mut plan = self.best.plan.clone();
                let end = (at + part).min(count(&plan));
                remove(&mut plan, at..end);
                // After a success the following elements stand at the same place, unless they were emptied.
                let shorter = count(&plan) < count(&self.best.plan);
                if !(self.try_plan(plan) && shorter) {
                    at += part;
                }
            }
            part /= 2;
        }
    }

    /// Removes what makes a failure hard to read: waiting, jitter, a second node.
    fn simplify(&mut self) {
        let simpler: [fn(&mut Plan); 6] = [
            |plan| plan.setup.lull_one_in = 0,
            |plan| plan.setup.jitter_ns = 0,
            |plan| plan.setup.memory_nodes = 1,
            |plan| plan.setup.timeout_ns = None,
            |plan| plan.setup.tear_bytes = 64,
            |plan| {
                for actor in &mut plan.actors {
                    actor.work.retain(|work| !matches!(work, Work::Think(_)));
                }
            },
        ];
        for simplify in simpler {
            let mut plan = self.best.plan.clone();
            simplify(&mut plan);
            self.try_plan(plan);
        }
    }
}
