//! What the clients of a compute node have learned about contention (CIDER, section 4.3, algorithm 1).
//!
//! On the path: before an update it is asked whether the data pointer has credit; afterwards it is told how the update went.
//! `cider` lets updates with credit queue up, `farside` lets them swap under the identity at once.
//!
//! # Memory
//! Only data pointers with credit, or whose last update was retried, are remembered, 16 bytes and a place in a tree each.
//! They are in one of two *generations*: who is noted anew is in the young one; when that is full, the old one is forgotten
//! and the young one becomes old. So at least the 32 768 data pointers that were noted last are known, and at most
//! twice as many. Who is forgotten is taken for cold, and has to show again that it is hot: two updates.

use std::collections::BTreeMap;

/// What is added when several went together (algorithm 1, line 14).
const BATCH_CREDIT: u32 = 2;
/// What credit is divided by when somebody was alone (section 4.3).
const AIMD_FACTOR: u32 = 2;
/// More credit says nothing more.
const CREDIT_MAX: u32 = 1 << 16;
/// How many data pointers a generation has.
pub(crate) const GENERATION: usize = 1 << 15;

/// What makes a data pointer hot (CIDER, section 5.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreditOptions {
    /// So many retries, twice in a row, make it hot (`HOTNESS_THRESHOLD`). With 0 every data pointer always is.
    pub hotness: u32,
    /// The credit that it then gets (`INITIAL_CREDIT`).
    pub initial: u32,
}

impl Default for CreditOptions {
    fn default() -> Self {
        Self {
            hotness: 2,
            initial: 36,
        }
    }
}

/// What is known of a data pointer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Heat {
    credit: u32,
    /// How often its last optimistic update was retried.
    retries: u32,
}

/// What a compute node has learned; data pointers are known by a name.
#[derive(Default, Debug)]
pub(crate) struct Contention {
    options: CreditOptions,
    young: BTreeMap<u64, Heat>,
    old: BTreeMap<u64, Heat>,
}

impl Contention {
    /// Nothing is known yet.
    pub(crate) fn new(options: CreditOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    fn heat(&self, name: u64) -> Heat {
        let known = self.young.get(&name).or_else(|| self.old.get(&name));
        known.copied().unwrap_or_default()
    }

    fn set(&mut self, name: u64, heat: Heat) {
        self.old.remove(&name);
        if heat == Heat::default() {
            self.young.remove(&name);
            return;
        }
        if self.young.len() == GENERATION && !self.young.contains_key(&name) {
            self.old = core::mem::take(&mut self.young);
        }
        self.young.insert(name, heat);
    }

    /// Whether a data pointer has credit.
    pub(crate) fn has_credit(&self, name: u64) -> bool {
        self.options.hotness == 0 || self.heat(name).credit > 0
    }

    /// Takes one credit; returns whether there was any (lines 2 and 3).
    pub(crate) fn take_credit(&mut self, name: u64) -> bool {
        if self.options.hotness == 0 {
            return true;
        }
        let heat = self.heat(name);
        let Some(credit) = heat.credit.checked_sub(1) else {
            return false;
        };
        self.set(name, Heat { credit, ..heat });
        true
    }

    /// An update with credit has ended, with others beside it or alone (lines 13 to 16).
    pub(crate) fn note_with_credit(&mut self, name: u64, has_company: bool) {
        let heat = self.heat(name);
        let credit = if has_company {
            (heat.credit + BATCH_CREDIT).min(CREDIT_MAX)
        } else {
            heat.credit / AIMD_FACTOR
        };
        self.set(name, Heat { credit, ..heat });
    }

    /// An update has lost to another one: the data pointer is hot.
    pub(crate) fn note_lost(&mut self, name: u64) {
        let heat = self.heat(name);
        let credit = (heat.credit + self.options.initial).min(CREDIT_MAX);
        self.set(name, Heat { credit, ..heat });
    }

    /// An optimistic update has ended (lines 20 to 22).
    pub(crate) fn note_optimistic(&mut self, name: u64, retries: u32) {
        let before = self.heat(name);
        let CreditOptions { hotness, initial } = self.options;
        let is_hot = retries >= hotness && before.retries >= hotness;
        let more = if is_hot { initial } else { 0 };
        let heat = Heat {
            credit: (before.credit + more).min(CREDIT_MAX),
            retries,
        };
        if heat != before {
            self.set(name, heat);
        }
    }

    /// Bytes of what is remembered: names and their heat, without what the trees add.
    pub(crate) fn bytes(&self) -> usize {
        self.known() * size_of::<(u64, Heat)>()
    }

    /// How many data pointers are remembered.
    fn known(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_updates_with_two_retries_make_a_pointer_hot() {
        let mut contention = Contention::default();
        for (retries, is_hot) in [(2, false), (1, false), (5, false), (2, true)] {
            contention.note_optimistic(7, retries);
            assert_eq!(contention.has_credit(7), is_hot, "{retries}");
        }
        assert!(!contention.has_credit(8));
        assert_eq!(contention.heat(7).credit, 36);
    }

    #[test]
    fn credit_grows_by_batches_and_halves_alone() {
        let mut contention = Contention::default();
        (0..2).for_each(|_| contention.note_optimistic(7, 2));
        assert!(contention.take_credit(7));
        contention.note_with_credit(7, true);
        assert_eq!(contention.heat(7).credit, 37);
        for left in [18, 8, 3, 1, 0] {
            assert!(contention.take_credit(7));
            contention.note_with_credit(7, false);
            assert_eq!(contention.heat(7).credit, left);
        }
        assert!(!contention.take_credit(7));
        contention.note_optimistic(7, 0);
        assert_eq!(contention.known(), 0, "what is cold is forgotten");
    }

    #[test]
    fn credit_has_a_limit() {
        let options = CreditOptions {
            hotness: 1,
            initial: 3 * CREDIT_MAX / 4,
        };
        let mut contention = Contention::new(options);
        let credit = |contention: &Contention| contention.heat(7).credit;
        contention.note_lost(7);
        assert_eq!(credit(&contention), 3 * CREDIT_MAX / 4);
        contention.note_lost(7);
        assert_eq!(credit(&contention), CREDIT_MAX);
        contention.note_with_credit(7, true);
        assert_eq!(credit(&contention), CREDIT_MAX);
        contention.note_with_credit(7, false);
        (0..3).for_each(|_| contention.note_optimistic(7, 1));
        assert_eq!(credit(&contention), CREDIT_MAX);
    }

    #[test]
    fn a_name_is_remembered_once() {
        let mut contention = Contention::default();
        let fill = |contention: &mut Contention, names: core::ops::Range<u64>| {
            for name in names {
                contention.note_optimistic(name, 1);
            }
        };
        fill(&mut contention, 0..GENERATION as u64);
        assert_eq!((contention.young.len(), contention.old.len()), (GENERATION, 0));
        contention.note_optimistic(7, 2);
        assert_eq!(
            (contention.young.len(), contention.old.len()),
            (GENERATION, 0),
            "it is known"
        );
        fill(&mut contention, 1_000_000..1_000_001);
        assert_eq!((contention.young.len(), contention.old.len()), (1, GENERATION));
        // From the old generation into the young one; and forgotten.
        contention.note_optimistic(7, 1);
        assert_eq!((contention.young.len(), contention.old.len()), (2, GENERATION - 1));
        contention.note_optimistic(8, 0);
        contention.note_optimistic(1_000_000, 0);
        assert_eq!((contention.young.len(), contention.old.len()), (1, GENERATION - 2));
        assert_eq!(contention.bytes(), 16 * (GENERATION - 1));
    }

    /// Several clients of a compute node share the credit: each takes one, and none is taken twice.
    #[test]
    fn clients_share_their_credit() {
        let mut contention = Contention::default();
        (0..2).for_each(|_| contention.note_optimistic(7, 3));
        let taken = (0..100).filter(|_| contention.take_credit(7)).count();
        assert_eq!(taken, 36);
    }

    #[test]
    fn memory_is_bounded_and_the_last_are_known() {
        let mut contention = Contention::default();
        let names = (0..5 * GENERATION as u64 / 2).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for name in names.clone() {
            contention.note_optimistic(name, 1);
            assert!(contention.known() <= 2 * GENERATION);
            assert!(contention.bytes() <= 1 << 20, "16 bytes each");
        }
        for name in names.rev().take(GENERATION) {
            assert_eq!(contention.heat(name).retries, 1);
        }
    }
}
