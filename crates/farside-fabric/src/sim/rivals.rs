//! Requests that are held back ([`Lulls`]), and who is in whose way.
//!
//! On the path: each request asks here how much longer it takes, if any are held back.

use super::world::World;
use super::{LullAim, Lulls};
use crate::verb::Verb;

/// So many lines are remembered, each where its address says.
const LINES: usize = 1024;
/// Bytes of a line.
const LINE_BYTES: u64 = 64;
/// No more lines of one verb than this are looked at.
const LINES_OF_A_VERB: u64 = 16;
/// Who has read within so many nanoseconds what another one has written acts on it.
const SOON_NS: u64 = 20_000;
/// A pace lasts so many times as many requests as there are for one that is held back.
const REQUESTS_OF_A_PACE: u64 = 16;

/// Who is in whose way.
#[derive(Default, Debug)]
pub(super) struct Rivals {
    /// Who has written a line last: the line, the client, the time.
    written: Vec<(u64, u32, u64)>,
    /// By client: how much longer its next request takes, or each of them.
    behind_ns: Vec<u64>,
}

impl Rivals {
    fn behind_ns(&mut self, client: u32) -> &mut u64 {
        let at = client as usize;
        if self.behind_ns.len() <= at {
            self.behind_ns.resize(at + 1, 0);
        }
        &mut self.behind_ns[at]
    }
}

impl World {
    /// How much longer the next request of a client takes.
    #[cold]
    pub(super) fn lull(&mut self, client: u32) -> u64 {
        let Lulls { one_in, ns_max, aim } = self.options.lulls;
        match aim {
            LullAim::Anybody if self.random_below(one_in) == 0 => self.random_below(ns_max + 1),
            LullAim::Anybody | LullAim::Lines => 0,
            LullAim::Writers => core::mem::take(self.rivals.behind_ns(client)),
            LullAim::Paces => {
                if self.random_below(one_in * REQUESTS_OF_A_PACE) == 0 {
                    // Half of them are quick.
                    let pace_ns = match self.random_below(6) {
                        pace @ 0..3 => ns_max >> (3 + 2 * pace),
                        _ => 0,
                    };
                    *self.rivals.behind_ns(client) = pace_ns;
                }
                *self.rivals.behind_ns(client)
            }
        }
    }

    /// How much longer a READ or WRITE of several lines takes.
    #[cold]
    pub(super) fn lull_within(&mut self) -> u64 {
        let Lulls { one_in, ns_max, aim } = self.options.lulls;
        match aim {
            LullAim::Lines if self.random_below(one_in) == 0 => self.random_below(ns_max / 4 + 1),
            _ => 0,
        }
    }

    /// A verb of a client has taken effect: whoever has written what it read is held back with its next request, by chance.
    #[cold]
    pub(super) fn note_rivals(&mut self, client: u32, verb: &Verb) {
        let (addr, bytes) = verb.target();
        let (changes, reads) = match verb {
            Verb::Read { .. } | Verb::ReadWord { .. } => (false, true),
            Verb::Write { .. } | Verb::WriteWord { .. } => (true, false),
            _ => (true, true),
        };
        if self.rivals.written.is_empty() {
            self.rivals.written.resize(LINES, (u64::MAX, 0, 0));
        }
        let first = addr.to_bits() / LINE_BYTES;
        let last = (addr.to_bits() + bytes.saturating_sub(1)) / LINE_BYTES;
        for line in first..=last.min(first + LINES_OF_A_VERB) {
            let slot = line as usize % LINES;
            let (known, writer, at_ns) = self.rivals.written[slot];
            if reads && known == line && writer != client && self.now - at_ns < SOON_NS {
                self.hold_back(writer);
            }
            if changes {
                self.rivals.written[slot] = (line, client, self.now);
            }
        }
    }

    fn hold_back(&mut self, client: u32) {
        let Lulls { one_in, ns_max, .. } = self.options.lulls;
        if self.random_below(one_in) == 0 {
            let behind_ns = self.random_below(ns_max + 1);
            *self.rivals.behind_ns(client) = behind_ns;
        }
    }
}
