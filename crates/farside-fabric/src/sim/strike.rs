//! Faults that wait for somebody to come past a place of a protocol, and hit whoever does.
//!
//! On the path: tests only, with the feature `mutants`, whose bugs mark the places (`crate::mutant`); without it nobody is hit.
//! Whoever posts next after a place was passed has passed it, or else the task that ran then.

use super::Sim;
use super::fault::CrashPoint;
use super::world::{World, endpoint_id};
use crate::message::EndpointId;
use crate::mutant::{self, Places};

/// What happens to whoever comes past.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blow {
    /// It dies so many verbs later, at least one, in the middle of the last one if `lines` says so.
    Crash {
        /// After how many verbs.
        verbs: u64,
        /// How many lines of the last verb take effect; all if `None`.
        lines: Option<u32>,
    },
    /// It stands still until [`Sim::resume_client`].
    Pause,
}

/// The blows that wait, and those that were struck.
#[derive(Default, Debug)]
pub(super) struct Strikes {
    waiting: Vec<Blow>,
    struck: Vec<(usize, u32)>,
}

impl World {
    /// Strikes a client that has just come past some places.
    #[cold]
    pub(super) fn strike(&mut self, client: u32) {
        for number in mutant::met() {
            let posted = self.clients[client as usize].verbs_posted;
            match self.strikes.waiting[number] {
                Blow::Crash { verbs, lines } => {
                    let verb = posted + verbs.max(1);
                    self.clients[client as usize].crash_point = Some(CrashPoint { verb, lines });
                }
                Blow::Pause => self.set_paused(client, true),
            }
            self.strikes.struck.push((number, client));
        }
    }
}

impl Sim {
    /// Lets a blow strike whoever comes past some places, once; returns its number. The thread has to note places
    /// ([`mutant::begin_noting`]), and to run no other simulation meanwhile.
    pub fn strike_at(&self, places: Places, blow: Blow) -> usize {
        let strikes = &mut self.shared.world().strikes;
        strikes.waiting.push(blow);
        mutant::aim(strikes.waiting.len() - 1, places);
        strikes.waiting.len() - 1
    }

    /// The blows that were struck since the last call, by their numbers, and whom they struck.
    #[must_use]
    pub fn struck(&self) -> Vec<(usize, EndpointId)> {
        let struck = core::mem::take(&mut self.shared.world().strikes.struck);
        let by_endpoint = struck.into_iter().map(|(number, client)| (number, endpoint_id(client)));
        by_endpoint.collect()
    }

    /// From now on nobody is struck.
    pub fn end_strikes(&self) {
        mutant::forget_aims();
    }
}
