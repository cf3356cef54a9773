//! Draws plans from seeds.
//!
//! Swarm testing (Groce et al., 2012): each seed switches a subset of the features on, so that
//! features that hide each other also run alone; and draws all sizes and rates anew. Some seeds have a
//! flavour: what goes wrong rarely by chance alone, such as a slow way to one node while all else is
//! quick, or deaths one upon the other.

mod tree;

use farside_index::IndexKind;
use farside_kv::EvictionPolicy;
use farside_lock::{Leases, LockKind};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::history::Call;
use crate::nics;
use crate::plan::{Actor, Aim, At, Disturbance, Eviction, Fault, Plan, Setup, TreeSetup, Work};
use crate::scenario::named;
use crate::target::Target;

/// How many pieces of work an actor does when the faults have ended: enough to notice what they have left behind. Most of
/// the time is for work among faults.
const LAST_PIECES: u32 = 10;

/// How often clients look around whose epochs pass fast: they take about as long.
const HASTY_TICK_NS: u64 = 4_000;

/// Chance, from a seed.
struct Dice(Xoshiro256PlusPlus);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// What a seed dwells on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    /// Nothing.
    Mixed,
    /// The ways to all nodes but the first are slow or cut for longer than epochs last, while leases are
    /// renewed at the first; and few keys are written all the time.
    FarNode,
    /// Many clients of a store or tree die, and others take their place.
    Storm,
    /// A few keys of a store or tree are written by everybody, all the time.
    Hot,
    /// Clients are stopped again and again, for longer than their leases, and then go on.
    Stopped,
    /// Clients of a store die while many keys are written, each seldom: what a takeover does wrong is not made good by the
    /// next write.
    Scattered,
}

/// Draws a plan for one of the targets.
///
/// # Panics
/// If there are no targets.
#[must_use]
pub fn plan(seed: u64, targets: &[Target]) -> Plan {
    draw(seed, targets, None)
}

/// Draws a plan of a certain flavour.
///
/// # Panics
/// If there are no targets.
#[must_use]
pub fn plan_of(flavour: Flavour, seed: u64, targets: &[Target]) -> Plan {
    draw(seed, targets, Some(flavour))
}

fn draw(seed: u64, targets: &[Target], flavour: Option<Flavour>) -> Plan {
    let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(seed));
    let target = target(&mut dice, seed, targets);
    let is_store = target.keeps_keys();
    let flavour = flavour.unwrap_or(match dice.below(6) {
        3 if matches!(target, Target::Tree { .. }) => Flavour::Hot,
        0 if is_store => Flavour::FarNode,
        1 if is_store => Flavour::Storm,
        2 if is_store => Flavour::Stopped,
        0 | 1 if has_leases(target) => Flavour::Stopped,
        _ => Flavour::Mixed,
    });
    // Not by the dice, whose other decisions would all change.
    let flavour = match flavour {
        Flavour::Mixed if waits_for_locks(target) && seed.is_multiple_of(2) => Flavour::Hot,
        Flavour::Storm if seed.is_multiple_of(3) && matches!(target, Target::Store { .. }) => Flavour::Scattered,
        flavour => flavour,
    };
    let lease_ns = match flavour {
        Flavour::FarNode | Flavour::Storm | Flavour::Stopped | Flavour::Hot | Flavour::Scattered => 150_000,
        Flavour::Mixed => *dice.pick(&[150_000, 300_000, 600_000]),
    };
    let horizon_ns = dice.within(300_000, 3_000_000);
    let is_small = flavour == Flavour::Mixed && dice.one_in(6);
    let (lull_one_in, lull_ns, lull_aim) = lulls(seed);
    let setup = Setup {
        profile: dice.pick(&nics::all()).name.clone(),
        tear_bytes: *dice.pick(&[8, 64]),
        jitter_ns: *dice.pick(&[0, 50, 500, 3000]),
        lull_one_in,
        lull_ns,
        lull_aim,
        is_mapped: matches!(target, Target::Store { .. }) && flavour != Flavour::FarNode && is_mapped(seed),
        memory_nodes: {
            let drawn = dice.within(if flavour == Flavour::FarNode { 2 } else { 1 }, 2) as u16;
            // Named locks are on the first one alone, and what happens at others is nothing to them.
            if target == Target::Named { 1 } else { drawn }
        },
        node_bytes: match target {
            Target::Named => named::NODE_BYTES,
            _ if is_small => 512 << 10,
            _ => 8 << 20,
        },
        compute_nodes: dice.within(1, 4) as u32,
        slots: *dice.pick(&[1, 4, 16, 96, 1000]),
        // Not by the dice, whose other decisions would all change.
        bucket_slots: [1, 1, 2, 15][seed as usize % 4],
        // Nor this.
        sessions: match target {
            Target::Tree { .. } => tree::sessions(&mut dice),
            _ => [1, 1, 4, 2, 1][seed as usize % 5],
        },
        chunk_bytes: *dice.pick(&[4 << 10, 16 << 10]),
        lease_ns,
        tick_ns: match flavour {
            Flavour::FarNode => 10_000,
            _ => {
                let drawn = *dice.pick(&[10_000, 20_000, 50_000]);
                if is_hasty(seed) { HASTY_TICK_NS } else { drawn }
            }
        },
        timeout_ns: (flavour != Flavour::FarNode && !dice.one_in(3)).then(|| dice.within(20_000, 400_000)),
        eviction: match target {
            Target::Store { .. } => eviction(seed, is_small),
            _ => None,
        },
        tree: match target {
            Target::Tree { kind, .. } => tree::setup(&mut dice, kind, seed),
            _ => TreeSetup::default(),
        },
        horizon_ns,
        last_pieces: Some(LAST_PIECES),
        is_swept: matches!(target, Target::Store { .. }) && is_swept(seed),
        is_worn: target != Target::Named && is_worn(seed),
    };
    let actor_count = match flavour {
        Flavour::Mixed => dice.within(1, 6) as usize,
        _ => dice.within(3, 8) as usize,
    };
    let works: Vec<Vec<Work>> = match target {
        Target::Store { index, .. } => {
            // What goes wrong between claims takes many operations on single keys to show.
            let goes_together = index != IndexKind::Marlin;
            store_work(&mut dice, actor_count, &setup, is_small, (flavour, goes_together))
        }
        Target::Tree { .. } => tree::work(&mut dice, actor_count, &setup, flavour),
        Target::Lock(_) | Target::Named => lock_work(&mut dice, actor_count, horizon_ns, flavour),
    };
    let actors = works.into_iter().map(|work| Actor {
        compute_node: dice.below(setup.compute_nodes.into()) as u32,
        work,
    });
    let actors = actors.collect();
    // The agent of the lock service, or the sweeper, is one actor more.
    let has_agent =
        matches!(flavour, Flavour::Mixed | Flavour::Hot) && target.lock().is_some_and(LockKind::asks_service);
    let helpers = setup.is_swept || has_agent;
    let actor_count = actor_count + usize::from(helpers);
    let mut faults = match flavour {
        Flavour::Mixed | Flavour::Hot => faults(&mut dice, &setup, actor_count, target),
        Flavour::FarNode => far_node_faults(&mut dice, &setup, actor_count),
        Flavour::Storm | Flavour::Scattered => (0..dice.within(3, 20))
            .map(|_| crash(&mut dice, &setup, actor_count))
            .collect(),
        Flavour::Stopped => stopped_faults(&mut dice, &setup, actor_count),
    };
    aim(seed, target, &mut faults);
    faults.sort_by_key(|fault| fault.at_ns);
    Plan {
        seed,
        target: target.name(),
        setup,
        actors,
        faults,
    }
}

/// Draws what is tested.
fn target(dice: &mut Dice, seed: u64, targets: &[Target]) -> Target {
    /// One seed in so many is one for trees.
    const TREE_SEEDS: u64 = 5;
    let (trees, others): (Vec<Target>, Vec<Target>) = targets.iter().partition(|target| target.is_tree());
    // Not by the dice, whose other decisions would all change.
    if others.is_empty() || (!trees.is_empty() && seed.is_multiple_of(TREE_SEEDS)) {
        return *dice.pick(&trees);
    }
    // Stores can break in more ways: three quarters of the seeds are theirs.
    let (stores, locks): (Vec<Target>, Vec<Target>) = others.iter().partition(|target| target.keeps_keys());
    let is_store = locks.is_empty() || (!stores.is_empty() && !dice.one_in(4));
    *dice.pick(if is_store { &stores } else { &locks })
}

/// How long to wait between two pieces of work so that they spread over the time of the faults.
fn think(dice: &mut Dice, horizon_ns: u64, pieces: u64) -> u64 {
    let mean = horizon_ns / pieces.max(1);
    dice.below(2 * mean.max(1))
}

/// How often requests are held back, and for how long: shorter than leases, and longer than whole operations of others. In half
/// of the plans never. Like `eviction` not by the dice of the plan.
fn lulls(seed: u64) -> (u64, u64, Aim) {
    let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(seed.rotate_left(16)));
    if dice.one_in(2) {
        return (0, 0, Aim::Anybody);
    }
    let (one_in, ns_max) = (*dice.pick(&[4, 20, 100]), *dice.pick(&[5_000, 20_000, 60_000]));
    match dice.below(5) {
        // Readers are there more often than not.
        0 => (one_in.min(20), ns_max, Aim::Writers),
        1 => (one_in, ns_max, Aim::Paces),
        2 => (one_in.min(20), ns_max, Aim::Lines),
        _ => (one_in, ns_max, Aim::Anybody),
    }
}

/// In half of the plans half of the deaths and pauses wait for somebody to come past a place of the protocols; like `eviction`
/// not by the dice of the plan.
fn aim(seed: u64, target: Target, faults: &mut [Fault]) {
    let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(seed.rotate_left(8)));
    if dice.one_in(2) {
        return;
    }
    let parts = parts(target);
    for fault in faults {
        let at = At {
            part: dice.pick(parts).to_string(),
            salt: dice.below(1 << 32),
            // Of up to thirty places of a part all, or some, or one.
            one_in: *dice.pick(&[1, 4, 16]),
            passes: *dice.pick(&[1, 2, 5, 30]),
        };
        let verbs_max = *dice.pick(&[2, 4, 12]);
        let verbs = dice.within(1, verbs_max);
        if dice.one_in(2) {
            continue;
        }
        match fault.what {
            Disturbance::Crash {
                verbs: Some(_),
                lines,
                is_replaced,
                ..
            } => {
                fault.what = Disturbance::CrashAtPlace {
                    at,
                    verbs,
                    lines,
                    is_replaced,
                };
            }
            Disturbance::Pause { for_ns, .. } => fault.what = Disturbance::PauseAtPlace { at, for_ns },
            _ => {}
        }
    }
}

/// How the names of places begin that somebody comes past who uses this target; of what only some use more often than others.
fn parts(target: Target) -> &'static [&'static str] {
    match target {
        Target::Tree { .. } => &["tree: ", "tree: ", "tree: ", "pool: ", ""],
        Target::Store {
            index: IndexKind::Smart,
            ..
        } => &["smart: ", "smart: ", "index: ", "pool: ", "cider: ", ""],
        Target::Store { index, .. } if index.is_ordered() => {
            &["tree: ", "tree: ", "ordered: ", "pool: ", "cider: ", ""]
        }
        Target::Store {
            index: IndexKind::Race, ..
        } => &["race: ", "race: ", "index: ", "pool: ", "cider: ", ""],
        Target::Store { .. } => &["index: ", "pool: ", "pool: ", "cider: ", ""],
        Target::Named => &["locks: ", "declock: "],
        Target::Lock(_) => &[""],
    }
}

/// Whether a store is in memory that its clients map, one in four; like `eviction` not by the dice of the plan.
fn is_mapped(seed: u64) -> bool {
    Dice(Xoshiro256PlusPlus::seed_from_u64(seed.rotate_left(48))).one_in(4)
}

/// Whether expired keys are swept away, in one store of six; like `eviction` not by the dice of the plan.
fn is_swept(seed: u64) -> bool {
    Dice(Xoshiro256PlusPlus::seed_from_u64(seed.rotate_left(32))).one_in(6)
}

/// Whether what is counted is about to overflow, in one plan of four; like `eviction` not by the dice of the plan.
fn is_worn(seed: u64) -> bool {
    Dice(Xoshiro256PlusPlus::seed_from_u64(seed.rotate_left(24))).one_in(4)
}

/// Whether epochs pass as fast as their clients can follow, in one plan of four, so that each block is used again as soon as
/// it may be; like `eviction` not by the dice of the plan.
fn is_hasty(seed: u64) -> bool {
    Dice(Xoshiro256PlusPlus::seed_from_u64(seed.rotate_left(40))).one_in(4)
}

/// Whether and when keys are evicted, in one store of four. Not by the dice of the plan, whose other decisions would all
/// change.
fn eviction(seed: u64, is_small: bool) -> Option<Eviction> {
    let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(!seed));
    if !dice.one_in(4) {
        return None;
    }
    let (policy, name) = *dice.pick(&EvictionPolicy::ALL);
    // A limit that a few keys reach, or one that many do, or that of a small memory.
    let bytes_max = match policy.evicts() && is_small && dice.one_in(2) {
        true => 0,
        false => *dice.pick(&[1 << 10, 4 << 10, 32 << 10]),
    };
    Some(Eviction {
        policy: name.to_owned(),
        bytes_max,
        is_in_background: dice.one_in(2),
    })
}

fn store_work(
    dice: &mut Dice,
    actors: usize,
    setup: &Setup,
    is_small: bool,
    (flavour, goes_together): (Flavour, bool),
) -> Vec<Vec<Work>> {
    let horizon_ns = setup.horizon_ns;
    let keys = match flavour {
        _ if is_small => 400,
        Flavour::FarNode => dice.within(1, 4),
        Flavour::Hot => dice.within(1, 2),
        Flavour::Scattered => dice.within(100, 400),
        _ => *dice.pick(&[1, 2, 5, 12, 40]),
    };
    let is_busy = match flavour {
        Flavour::Mixed => dice.one_in(2),
        Flavour::FarNode => dice.one_in(4),
        Flavour::Hot => true,
        Flavour::Scattered => dice.one_in(2),
        Flavour::Storm | Flavour::Stopped => false,
    };
    // Weights of GET, PUT, INSERT, UPDATE, DELETE, ADD, of reading several keys, and of reading all.
    let mut weights: [u64; 8] = core::array::from_fn(|_| if dice.one_in(3) { 0 } else { dice.within(1, 10) });
    // It is long, and counts as a read of every key.
    weights[7] /= 5;
    if flavour == Flavour::Hot {
        weights[1] += 40;
    }
    if flavour == Flavour::Scattered {
        weights[2] += 20;
    }
    let all: u64 = weights.iter().sum();
    // One for all: sums of open additions of many sizes make a history too hard to decide.
    let more = dice.within(1, 9);
    let mut stamp = 0;
    (0..actors as u64)
        .map(|actor| {
            let pieces = match flavour {
                Flavour::Mixed | Flavour::Hot => dice.within(10, 80),
                _ => dice.within(40, 200),
            };
            let mut work = Vec::new();
            for _ in 0..pieces {
                if !is_busy {
                    work.push(Work::Think(think(dice, horizon_ns, pieces)));
                }
                let key = dice.below(keys);
                stamp += 1;
                let value = (actor << 48) | (stamp << 24) | dice.below(1 << 20);
                let mut choice = if all == 0 { 0 } else { dice.below(all) };
                let kind = weights.iter().position(|&weight| {
                    let is_it = choice < weight;
                    choice = choice.wrapping_sub(weight);
                    is_it
                });
                let call = match kind {
                    None | Some(0) => Call::Get,
                    Some(1) => Call::Put(value),
                    Some(2) => Call::Insert(value),
                    Some(3) => Call::Update(value),
                    Some(4) => Call::Delete,
                    // What expires keeps its time when something is added, and the value is known by its time.
                    Some(5) if setup.expires() => Call::Take,
                    Some(5) => Call::Add(more),
                    Some(7) => {
                        work.push(Work::Scan);
                        continue;
                    }
                    Some(_) => {
                        let count = dice.within(1, 20);
                        let many = (0..count).map(|_| dice.below(keys)).collect();
                        work.push(at_once(setup, many, value, &mut stamp));
                        continue;
                    }
                };
                let others = match goes_together {
                    true => others(setup, (key, value), keys, &mut stamp),
                    false => Vec::new(),
                };
                work.push(match others.is_empty() {
                    true => Work::Call { key, call },
                    false => Work::Together(core::iter::once((key, call)).chain(others).collect()),
                });
            }
            work
        })
        .collect()
}

/// What is done with several keys at once by a client that would store this value otherwise.
fn at_once(setup: &Setup, keys: Vec<u64>, value: u64, stamp: &mut u64) -> Work {
    match value % 4 {
        0 => Work::DeleteMany(keys),
        // What expires is known by its time, which several that are stored at once do not have.
        1 if !setup.expires() => {
            let value_of = |(number, key)| {
                *stamp += 1;
                (key, (value >> 48) << 48 | *stamp << 24 | number)
            };
            Work::PutMany((0..).zip(keys).map(value_of).collect())
        }
        _ => Work::GetMany(keys),
    }
}

/// What goes together with an operation that stores this value, or would: mostly nothing.
fn others(setup: &Setup, (key, value): (u64, u64), keys: u64, stamp: &mut u64) -> Vec<(u64, Call)> {
    let spread = value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let count = match spread % 8 {
        0 | 1 => 1 + (spread >> 8) % 3,
        _ => 0,
    };
    let other = |number: u64| {
        *stamp += 1;
        let value = (value >> 48) << 48 | *stamp << 24 | number;
        let call = match spread >> (12 + 4 * number) & 15 {
            0..6 => Call::Get,
            6..11 => Call::Put(value),
            11 => Call::Insert(value),
            12 => Call::Update(value),
            13 if !setup.expires() => Call::Add(1),
            13 => Call::Take,
            _ => Call::Delete,
        };
        ((key + number) % keys, call)
    };
    (1..=count.min(keys - 1)).map(other).collect()
}

/// Whether clients of a store wait for locks, which they take away from who has them for too long.
fn waits_for_locks(target: Target) -> bool {
    matches!(target, Target::Store { scheme, .. } if scheme.needs_locks())
}

/// Whether every grant of the target ends by itself, or its holder knows when it may have.
fn has_leases(target: Target) -> bool {
    target == Target::Named || target.lock().is_some_and(|lock| lock.leases() == Leases::All)
}

fn lock_work(dice: &mut Dice, actors: usize, horizon_ns: u64, flavour: Flavour) -> Vec<Vec<Work>> {
    let is_stopped = flavour == Flavour::Stopped;
    let locks = if is_stopped { 1 } else { *dice.pick(&[1, 1, 2, 5]) };
    let is_busy = is_stopped || dice.one_in(2);
    let gives_up = dice.one_in(2);
    let inside_max = *dice.pick(&[1, 2_000, 30_000]);
    (0..actors)
        .map(|_| {
            let pieces = if is_stopped {
                dice.within(40, 200)
            } else {
                dice.within(5, 40)
            };
            let mut work = Vec::new();
            for _ in 0..pieces {
                if !is_busy {
                    work.push(Work::Think(think(dice, horizon_ns, pieces)));
                }
                work.push(Work::Critical {
                    lock: dice.below(locks),
                    is_shared: dice.one_in(2),
                    inside_ns: dice.below(inside_max),
                    patience_ns: (gives_up && dice.one_in(3)).then(|| dice.within(500, 60_000)),
                });
            }
            work
        })
        .collect()
}

fn faults(dice: &mut Dice, setup: &Setup, actors: usize, target: Target) -> Vec<Fault> {
    let Setup {
        compute_nodes,
        memory_nodes,
        lease_ns,
        horizon_ns,
        ..
    } = *setup;
    let mut kinds: Vec<u32> = (0..11).collect();
    kinds.retain(|kind| match (target.lock(), kind) {
        // A client of a lock that has lost its way to a memory node starts again with another endpoint; one of a tree does not.
        (Some(_), 4 | 9) if target.is_tree() => false,
        // A lock without recovery stays locked when its holder dies or loses its way to the node.
        (Some(lock), 0..=2 | 4 | 9) => lock.survives_crashes(),
        // Verbs that arrive after the lease of who posted them are more than leases can keep apart.
        (Some(lock), 5) => lock.leases() != Leases::All,
        // And clocks that are set are not what leases are measured by.
        (Some(lock), 10) => lock.leases() == Leases::None && target != Target::Named,
        // Mapped memory has no network, and one clock.
        (_, 4..) if setup.is_mapped => false,
        (None, 10) => !waits_for_locks(target),
        _ => true,
    });
    kinds.retain(|_| dice.one_in(2));
    if kinds.is_empty() || dice.one_in(10) {
        return Vec::new();
    }
    let count = dice.within(1, 12);
    (0..count)
        .map(|_| {
            let actor = dice.below(actors as u64) as usize;
            let compute_node = dice.below(compute_nodes.into()) as u32;
            let other = dice.below(compute_nodes.into()) as u32;
            let node = dice.below(memory_nodes.into()) as u16;
            // Shorter and longer than a lease.
            let for_ns = dice.within(lease_ns / 10, 3 * lease_ns);
            let delay_ns = dice.within(1_000, lease_ns / 8);
            let what = match *dice.pick(&kinds) {
                0..=2 => return crash(dice, setup, actors),
                3 => Disturbance::Pause { actor, for_ns },
                4 => Disturbance::BreakQueuePair { actor, node },
                5 => Disturbance::Partition {
                    compute_node,
                    node,
                    for_ns,
                },
                6 => Disturbance::PartitionPeers {
                    a: compute_node,
                    b: other,
                    for_ns,
                },
                7 => Disturbance::Delay {
                    compute_node,
                    node,
                    delay_ns,
                    for_ns,
                },
                8 => Disturbance::DelayPeers {
                    a: compute_node,
                    b: other,
                    delay_ns,
                    for_ns,
                },
                9 => Disturbance::Restart {
                    node,
                    down_ns: for_ns,
                    // What several nodes hold together is worth nothing without one of them.
                    // And a lock whose word is lost is free, whoever holds it.
                    is_blank: memory_nodes == 1 && dice.one_in(4) && target.keeps_keys(),
                },
                _ => Disturbance::Clock {
                    compute_node,
                    skew_ns: dice.below(2_000_000_000) as i64 - 1_000_000_000,
                    // 200 ppm: worse than any clock that is still in service.
                    drift_ppb: dice.below(400_000) as i64 - 200_000,
                },
            };
            Fault {
                at_ns: dice.below(horizon_ns),
                what,
            }
        })
        .collect()
}

/// A client dies somewhere.
fn crash(dice: &mut Dice, setup: &Setup, actors: usize) -> Fault {
    let verbs = (!dice.one_in(3)).then(|| dice.within(1, 40));
    let what = Disturbance::Crash {
        actor: dice.below(actors as u64) as usize,
        verbs,
        lines: (verbs.is_some() && dice.one_in(2)).then(|| dice.below(20) as u32),
        is_replaced: !dice.one_in(4),
    };
    Fault {
        at_ns: dice.below(setup.horizon_ns),
        what,
    }
}

/// Clients are stopped for longer than their leases, and now and then one dies.
fn stopped_faults(dice: &mut Dice, setup: &Setup, actors: usize) -> Vec<Fault> {
    (0..dice.within(3, 15))
        .map(|_| {
            if dice.one_in(8) {
                return crash(dice, setup, actors);
            }
            Fault {
                at_ns: dice.below(setup.horizon_ns),
                what: Disturbance::Pause {
                    actor: dice.below(actors as u64) as usize,
                    for_ns: dice.within(setup.lease_ns / 2, 8 * setup.lease_ns),
                },
            }
        })
        .collect()
}

fn far_node_faults(dice: &mut Dice, setup: &Setup, actors: usize) -> Vec<Fault> {
    // Often all from one place: the others go on, and search for what the dead held.
    let is_one_place = dice.one_in(2);
    (0..dice.within(3, 15))
        .map(|_| {
            if dice.one_in(3) {
                return crash(dice, setup, actors);
            }
            let compute_node = if is_one_place {
                0
            } else {
                dice.below(setup.compute_nodes.into()) as u32
            };
            let node = dice.within(1, u64::from(setup.memory_nodes) - 1) as u16;
            let for_ns = dice.within(setup.lease_ns / 4, 8 * setup.lease_ns);
            let what = if dice.one_in(2) {
                Disturbance::Partition {
                    compute_node,
                    node,
                    for_ns,
                }
            } else {
                Disturbance::Delay {
                    compute_node,
                    node,
                    delay_ns: dice.within(setup.tick_ns, setup.lease_ns),
                    for_ns,
                }
            };
            Fault {
                at_ns: dice.below(setup.horizon_ns),
                what,
            }
        })
        .collect()
}
