//! Counts of verbs and bytes, kept by each endpoint.

use core::cell::Cell;

use crate::verb::VerbKind;

/// How many verbs there were of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VerbCounts([u64; VerbKind::ALL.len()]);

impl VerbCounts {
    /// Verbs of one kind.
    #[must_use]
    pub fn of(&self, kind: VerbKind) -> u64 {
        self.0[kind as usize]
    }

    /// Compare-and-swaps and fetch-and-adds of every form.
    #[must_use]
    pub fn atomics(&self) -> u64 {
        VerbKind::ALL
            .iter()
            .filter(|kind| kind.is_atomic())
            .map(|&kind| self.of(kind))
            .sum()
    }

    /// All verbs.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Counts one verb.
    #[inline]
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn count(&mut self, kind: VerbKind) {
        self.0[kind as usize] += 1;
    }

    fn combine(&self, other: &Self, operation: impl Fn(u64, u64) -> u64) -> Self {
        Self(core::array::from_fn(|index| operation(self.0[index], other.0[index])))
    }
}

/// How many verbs of each kind an endpoint has posted, and how many payload bytes they moved.
#[derive(Default, Debug)]
pub struct Counters {
    verbs: [Cell<u64>; VerbKind::ALL.len()],
    bytes_read: Cell<u64>,
    bytes_written: Cell<u64>,
    doorbells: Cell<u64>,
}

/// The values of [`Counters`] at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CounterSnapshot {
    /// Verbs by kind.
    pub verbs: VerbCounts,
    /// Bytes that READs and atomics returned.
    pub bytes_read: u64,
    /// Bytes that WRITEs, atomics and SENDs carried.
    pub bytes_written: u64,
    /// Posts: a batch counts once.
    pub doorbells: u64,
}

fn bump(cell: &Cell<u64>, by: u64) {
    cell.set(cell.get().wrapping_add(by));
}

impl Counters {
    /// Counts one verb with its payload; for backends.
    #[inline]
    pub fn count(&self, kind: VerbKind, bytes: u64) {
        bump(&self.verbs[kind as usize], 1);
        match kind {
            VerbKind::Read => bump(&self.bytes_read, bytes),
            VerbKind::Write | VerbKind::Send => bump(&self.bytes_written, bytes),
            _ => {
                bump(&self.bytes_read, bytes);
                bump(&self.bytes_written, bytes);
            }
        }
    }

    /// Counts one doorbell; for backends.
    #[inline]
    pub fn count_doorbell(&self) {
        bump(&self.doorbells, 1);
    }

    /// The values now.
    #[must_use]
    pub fn snapshot(&self) -> CounterSnapshot {
        CounterSnapshot {
            verbs: VerbCounts(core::array::from_fn(|index| self.verbs[index].get())),
            bytes_read: self.bytes_read.get(),
            bytes_written: self.bytes_written.get(),
            doorbells: self.doorbells.get(),
        }
    }
}

impl CounterSnapshot {
    /// What happened since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            verbs: self.verbs.combine(&earlier.verbs, core::ops::Sub::sub),
            bytes_read: self.bytes_read - earlier.bytes_read,
            bytes_written: self.bytes_written - earlier.bytes_written,
            doorbells: self.doorbells - earlier.doorbells,
        }
    }

    /// The sum of two snapshots.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            verbs: self.verbs.combine(&other.verbs, core::ops::Add::add),
            bytes_read: self.bytes_read + other.bytes_read,
            bytes_written: self.bytes_written + other.bytes_written,
            doorbells: self.doorbells + other.doorbells,
        }
    }
}
