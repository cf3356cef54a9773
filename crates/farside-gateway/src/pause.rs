//! CLIENT PAUSE: commands of all clients of this gateway wait for a while.
//!
//! On the path: nowhere but while there is a pause: then each connection has a notice on its card, and asks here before it
//! executes a command.

use std::sync::Mutex;
use std::time::Duration;

use farside_fabric::host::HostClock;

use crate::client::Client;
use crate::command::table::{Id, TABLE, find};
use crate::live::lock;
use crate::request::Request;

/// What waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Held {
    /// What may change keys.
    Writes,
    /// Everything but CLIENT PAUSE and CLIENT UNPAUSE.
    All,
}

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Pause(Mutex<Option<State>>);

#[derive(Clone, Copy, Debug)]
struct State {
    until_ns: u64,
    held: Held,
}

impl Pause {
    /// Begins a pause; one that is there is made longer, and stricter, and never the contrary. Connections have to be told.
    pub(crate) fn begin(&self, time: Duration, held: Held) {
        self.begin_at(HostClock.now_ns(), time, held);
    }

    fn begin_at(&self, now_ns: u64, time: Duration, held: Held) {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = now_ns.saturating_add(time_ns);
        let mut state = lock(&self.0);
        let before = state.filter(|state| state.until_ns > now_ns);
        *state = Some(before.map_or(State { until_ns, held }, |before| State {
            until_ns: before.until_ns.max(until_ns),
            held: before.held.max(held),
        }));
    }

    /// Ends the pause. Connections have to be called.
    pub(crate) fn end(&self) {
        *lock(&self.0) = None;
    }

    /// Whether there is a pause.
    pub(crate) fn is_on(&self) -> bool {
        self.at(HostClock.now_ns()).is_some()
    }

    fn at(&self, now_ns: u64) -> Option<State> {
        lock(&self.0).filter(|state| state.until_ns > now_ns)
    }

    /// For how many nanoseconds more this command of this client has to wait, unless the pause is ended before.
    pub(crate) fn holds(&self, client: &Client, request: &Request<'_>) -> Option<u64> {
        let now_ns = HostClock.now_ns();
        let state = self.at(now_ns)?;
        let (id, command) = find(request.arg(0))?;
        let is_held = match (state.held, id) {
            (Held::All, Id::client) => !request.arg_is(1, "pause") && !request.arg_is(1, "unpause"),
            (Held::All, _) | (Held::Writes, Id::eval | Id::evalsha) => true,
            (Held::Writes, Id::exec) => client
                .queue
                .has(|id| is_write(id) || matches!(id, Id::eval | Id::evalsha)),
            (Held::Writes, _) => command.flags.contains(&"write"),
        };
        is_held.then(|| state.until_ns - now_ns)
    }
}

fn is_write(id: Id) -> bool {
    TABLE[id as usize].flags.contains(&"write")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_gets_longer_and_stricter_and_ends() {
        let pause = Pause::default();
        let state = |now_ns| pause.at(now_ns).map(|state| (state.until_ns, state.held));
        pause.begin_at(100, Duration::from_nanos(50), Held::All);
        assert_eq!((state(149), state(150)), (Some((150, Held::All)), None));
        pause.begin_at(110, Duration::from_nanos(10), Held::Writes);
        assert_eq!(state(110), Some((150, Held::All)));
        pause.begin_at(120, Duration::from_nanos(100), Held::Writes);
        assert_eq!(state(120), Some((220, Held::All)));
        // One that is over does not count.
        pause.begin_at(220, Duration::MAX, Held::Writes);
        assert_eq!(state(220), Some((u64::MAX, Held::Writes)));
        pause.end();
        assert_eq!(state(220), None);
    }
}
