//! What clients of a lock spend their time on (ShiftLock, section 4.6, table 2).
//!
//! On the path: beside it, and only at a [`Site::timed`](crate::Site::timed) site; elsewhere a clock is not even
//! read. `cas`, `cas-backoff`, `dslr` and its variants, and `shiftlock` note their phases, other locks none.

use core::cell::Cell;

use farside_fabric::Endpoint;
use std::rc::Rc;

use crate::Mode;

/// What a client does. The abbreviations are those of table 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The atomic that tries to acquire the lock, or enters its queue (IA).
    Enter,
    /// Trying again, back-off included (RT).
    Retry,
    /// Telling the writer in front (NP).
    Introduce,
    /// Waiting for the writer in front (WP).
    AwaitWriter,
    /// Waiting, as a writer, for readers (WR).
    AwaitReaders,
    /// Waiting, as a reader, for writers (WW).
    AwaitTurn,
    /// The atomic, or the WRITE, that gives the lock back (IA).
    Leave,
    /// Waiting for the writer behind, and telling it (NS).
    Pass,
}

impl Phase {
    /// How many there are.
    pub const COUNT: usize = 8;
}

/// The time that clients have spent, summed up.
#[derive(Clone, Default, Debug)]
pub struct Phases {
    spent_ns: [[Cell<u64>; Phase::COUNT]; 2],
    acquires: [Cell<u64>; 2],
}

impl Phases {
    /// Nanoseconds in a phase, of all clients that wanted the lock in this mode.
    #[must_use]
    pub fn spent_ns(&self, mode: Mode, phase: Phase) -> u64 {
        self.spent_ns[mode as usize][phase as usize].get()
    }

    /// How many acquires have begun in this mode.
    #[must_use]
    pub fn acquires(&self, mode: Mode) -> u64 {
        self.acquires[mode as usize].get()
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let cells = self.spent_ns.iter().flatten().chain(&self.acquires);
        cells.for_each(|cell| cell.set(0));
    }
}

/// Notes phases, if anybody wants to know.
#[derive(Clone, Default, Debug)]
pub(crate) struct Stopwatch(Option<Rc<Phases>>);

impl Stopwatch {
    pub(crate) fn new(phases: Option<Rc<Phases>>) -> Self {
        Self(phases)
    }

    /// Whether anybody wants to know.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.0.is_some()
    }

    /// What time it is; 0 if nobody wants to know.
    #[inline]
    pub(crate) fn start(&self, endpoint: &Endpoint) -> u64 {
        if self.0.is_some() { endpoint.now_ns() } else { 0 }
    }

    /// A phase that began at `start_ns` is over. Returns what time it is, for the next.
    #[inline]
    pub(crate) fn stop(&self, endpoint: &Endpoint, mode: Mode, phase: Phase, start_ns: u64) -> u64 {
        let Some(phases) = &self.0 else { return 0 };
        let now_ns = endpoint.now_ns();
        let spent = &phases.spent_ns[mode as usize][phase as usize];
        spent.set(spent.get() + (now_ns - start_ns));
        now_ns
    }

    /// An acquire begins.
    #[inline]
    pub(crate) fn begin(&self, mode: Mode) {
        if let Some(phases) = &self.0 {
            let acquires = &phases.acquires[mode as usize];
            acquires.set(acquires.get() + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_fabric::sim::{Sim, SimOptions};

    #[test]
    fn phases_follow_each_other_without_a_gap() {
        let sim = Sim::new(SimOptions::default());
        let endpoint = sim.endpoint(sim.add_compute_node());
        let phases = Rc::new(Phases::default());
        let (watch, blind) = (Stopwatch::new(Some(Rc::clone(&phases))), Stopwatch::default());
        sim.block_on(async {
            let begun = endpoint.now_ns();
            watch.begin(Mode::Shared);
            let start = watch.start(&endpoint);
            endpoint.sleep(300).await;
            let next = watch.stop(&endpoint, Mode::Shared, Phase::Enter, start);
            endpoint.sleep(40).await;
            watch.stop(&endpoint, Mode::Shared, Phase::AwaitTurn, next);
            let spent = [Phase::Enter, Phase::AwaitTurn].map(|phase| phases.spent_ns(Mode::Shared, phase));
            assert_eq!(spent.iter().sum::<u64>(), endpoint.now_ns() - begun);
            assert_eq!(spent[1], 40);
        });
        assert_eq!(
            (phases.acquires(Mode::Shared), phases.acquires(Mode::Exclusive)),
            (1, 0)
        );
        assert_eq!(
            blind.stop(&endpoint, Mode::Shared, Phase::Enter, blind.start(&endpoint)),
            0
        );
        phases.clear();
        assert_eq!(phases.spent_ns(Mode::Shared, Phase::Enter), 0);
    }
}
