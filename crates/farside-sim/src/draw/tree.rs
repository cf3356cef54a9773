//! What is drawn for trees: leaves, what clients remember, and what they do.

use farside_index::TreeKind;

use super::{Dice, Flavour, think};
use crate::history::Call;
use crate::plan::{Setup, TreeSetup, Work};
use crate::scenario::tree::KEYS_MAX;

/// Hashed leaves: small ones, of which a few keys make a tree, and the published one.
const HASHED: [(usize, usize); 5] = [(4, 2), (8, 4), (8, 4), (12, 6), (64, 8)];
/// Leaves in no order.
const UNSORTED: [usize; 4] = [2, 6, 6, 64];
/// With so few entries to a leaf the most keys that there can be make a tree of three levels.
const SPAN_TALL: usize = 4;

/// How a tree is made and used.
pub(super) fn setup(dice: &mut Dice, kind: TreeKind, seed: u64) -> TreeSetup {
    let (span, neighbourhood) = if kind.is_hashed() {
        *dice.pick(&HASHED)
    } else {
        let span = *dice.pick(&UNSORTED);
        (span, span)
    };
    TreeSetup {
        span,
        neighbourhood,
        // Nothing, one node or two, everything.
        cache_bytes: *dice.pick(&[0, 1500, 1 << 20, 1 << 20]),
        // Nothing, some of those that are used, everything.
        hotspot_bytes: *dice.pick(&[0, 500, 1 << 16]),
        shares: dice.one_in(2),
        // Not by the dice, whose other decisions would all change.
        is_dense: seed.is_multiple_of(4),
    }
}

/// How many sessions a client has.
pub(super) fn sessions(dice: &mut Dice) -> u32 {
    *dice.pick(&[1, 1, 2, 4])
}

/// What the actors do.
pub(super) fn work(dice: &mut Dice, actors: usize, setup: &Setup, flavour: Flavour) -> Vec<Vec<Work>> {
    let span = setup.tree.span as u64;
    let keys = match flavour {
        Flavour::Hot => dice.within(1, 2 * span.min(8)),
        _ if setup.tree.span <= SPAN_TALL && dice.one_in(2) => KEYS_MAX,
        _ => *dice.pick(&[2, 8, 24, 60, 3 * span, 6 * span]),
    };
    let keys = keys.min(KEYS_MAX);
    let is_filled = dice.one_in(2);
    let is_busy = matches!(flavour, Flavour::Mixed | Flavour::Hot) && !dice.one_in(4);
    // Where much is deleted in the end, leaves are merged.
    let is_emptied = dice.one_in(2);
    // Weights of SEARCH, put, INSERT, UPDATE, DELETE, of reading some keys in order, and of reading all.
    let mut weights: [u64; 7] = core::array::from_fn(|_| if dice.one_in(3) { 0 } else { dice.within(1, 10) });
    // They are long, and count as a read of every key.
    weights[5] /= 4;
    weights[6] /= 8;
    let mut stamp = 0;
    (0..actors as u64)
        .map(|actor| {
            let mut value = |dice: &mut Dice| {
                stamp += 1;
                (actor << 48) | (stamp << 24) | dice.below(1 << 20)
            };
            let mut work = Vec::new();
            if is_filled {
                // Each its share, in no order.
                let share = (0..keys).filter(|key| key % actors as u64 == actor);
                let mut share: Vec<(u64, u64)> = share.map(|key| (dice.below(1 << 32), key)).collect();
                share.sort_unstable();
                for (_, key) in share {
                    let call = Call::Put(value(dice));
                    work.push(Work::Call { key, call });
                }
            }
            let pieces = match flavour {
                Flavour::Mixed | Flavour::Hot => dice.within(10, 100),
                _ => dice.within(40, 200),
            };
            for piece in 0..pieces {
                if !is_busy {
                    work.push(Work::Think(think(dice, setup.horizon_ns, pieces)));
                }
                let mut weights = weights;
                if is_emptied && piece > pieces / 2 {
                    weights[4] += 30;
                }
                work.push(piece_of_work(dice, weights, keys, &mut value));
            }
            if is_emptied && keys == KEYS_MAX {
                // Nearly all of them, so that internal nodes merge.
                let share = (0..keys).filter(|key| key % actors as u64 == actor && key % 16 > 0);
                work.extend(share.map(|key| Work::Call {
                    key,
                    call: Call::Delete,
                }));
            }
            work
        })
        .collect()
}

fn piece_of_work(dice: &mut Dice, weights: [u64; 7], keys: u64, value: &mut impl FnMut(&mut Dice) -> u64) -> Work {
    let key = dice.below(keys);
    let all: u64 = weights.iter().sum();
    let mut choice = dice.below(all.max(1));
    let kind = weights.iter().position(|&weight| {
        let is_it = choice < weight;
        choice = choice.wrapping_sub(weight);
        is_it
    });
    let call = match kind {
        None | Some(0) => Call::Get,
        Some(1) => Call::Put(value(dice)),
        Some(2) => Call::Insert(value(dice)),
        Some(3) => Call::Update(value(dice)),
        Some(4) => Call::Delete,
        Some(5) => {
            let count = dice.within(1, 20);
            return Work::Range { from: key, count };
        }
        Some(_) => return Work::Scan,
    };
    Work::Call { key, call }
}
