//! What the connections of a gateway share and change while it runs: who is there, what was slow, who
//! watches, which scripts were loaded, and the settings that CONFIG SET changes.
//!
//! On the path: commands look here; the way of a GET reads two relaxed words of it at most.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside_kv::{Cursors, ExpiryMark, Quota};

use crate::acl;
use crate::command::scripts::Loaded;
use crate::monitor::Monitors;
use crate::pause::Pause;
use crate::roster::Roster;
use crate::slow_log::{self, SlowLog};

/// How many kinds of errors are counted apart.
const ERROR_KINDS_MAX: usize = 64;

/// State of a running gateway. Nothing in it outlives the process.
#[derive(Default, Debug)]
pub(crate) struct Live {
    pub(crate) roster: Roster,
    pub(crate) monitors: Monitors,
    pub(crate) settings: Settings,
    pub(crate) pause: Pause,
    /// What CONFIG SET has changed, by its names. Locked while it changes settings, and while CONFIG REWRITE writes them.
    pub(crate) changed: Mutex<BTreeSet<&'static str>>,
    pub(crate) slow_log: Mutex<SlowLog>,
    pub(crate) scripts: Mutex<Loaded>,
    pub(crate) expiry_mark: ExpiryMark,
    pub(crate) quota: Arc<Quota>,
    /// Where scans are, in an index in the order of keys: a SCAN may go on on another connection.
    pub(crate) cursors: Arc<Cursors>,
    /// How often each first word of an error line was sent.
    errors: Mutex<BTreeMap<String, u64>>,
    /// What was counted before CONFIG RESETSTAT.
    pub(crate) before_reset: Mutex<Totals>,
    /// The calls of each command before it, in the order of the table.
    pub(crate) calls_before_reset: Mutex<Vec<u64>>,
}

/// Counts over all workers.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Totals {
    pub(crate) connections: u64,
    pub(crate) commands: u64,
    pub(crate) errors: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
}

impl Totals {
    /// What was counted since an earlier count.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            connections: self.connections.saturating_sub(before.connections),
            commands: self.commands.saturating_sub(before.commands),
            errors: self.errors.saturating_sub(before.errors),
            bytes_in: self.bytes_in.saturating_sub(before.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(before.bytes_out),
            hits: self.hits.saturating_sub(before.hits),
            misses: self.misses.saturating_sub(before.misses),
            expired: self.expired.saturating_sub(before.expired),
            evicted: self.evicted.saturating_sub(before.evicted),
        }
    }
}

/// Settings that CONFIG SET changes, as they are when a gateway starts.
#[derive(Clone, Debug)]
pub struct LiveSettings {
    /// Connections at once.
    pub clients_max: u64,
    /// A client that sends nothing for so many seconds is hung up on; 0: never.
    pub timeout_s: u64,
    /// Commands that took longer, in microseconds, are noted in SLOWLOG; negative: none.
    pub slow_us: i64,
    /// How many of them are kept.
    pub slow_entries_max: usize,
    /// How many refusals ACL LOG keeps.
    pub refusals_max: usize,
    /// Whether MONITOR is allowed.
    pub allows_monitor: bool,
}

impl Default for LiveSettings {
    fn default() -> Self {
        Self {
            clients_max: 10_000,
            timeout_s: 0,
            slow_us: 10_000,
            slow_entries_max: slow_log::ENTRIES_MAX,
            refusals_max: acl::log::ENTRIES_MAX,
            allows_monitor: false,
        }
    }
}

/// The same where all threads read and change them.
#[derive(Default, Debug)]
pub(crate) struct Settings {
    pub(crate) clients_max: AtomicU64,
    pub(crate) timeout_s: AtomicU64,
    pub(crate) slow_us: AtomicI64,
    pub(crate) allows_monitor: AtomicBool,
}

impl Settings {
    /// How many connections may be open.
    pub(crate) fn clients_max(&self) -> u64 {
        self.clients_max.load(Ordering::Relaxed)
    }
}

/// The contents of a lock; a panic of another holder leaves nothing half done in what is kept here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    /// The state at the start. `chance` is a random number.
    pub(crate) fn new(quota: Arc<Quota>, start: &LiveSettings, chance: u64) -> Self {
        let mut slow_log = SlowLog::default();
        slow_log.set_entries_max(start.slow_entries_max);
        Self {
            quota,
            settings: Settings {
                clients_max: start.clients_max.into(),
                timeout_s: start.timeout_s.into(),
                slow_us: start.slow_us.into(),
                allows_monitor: start.allows_monitor.into(),
            },
            slow_log: Mutex::new(slow_log),
            // 48 bits: programs that count in doubles have cursors, too.
            cursors: Arc::new(Cursors::after(chance >> 16)),
            ..Self::default()
        }
    }

    /// Counts an error line by its first word, as long as there are not too many of them.
    pub(crate) fn count_error(&self, line: &str) {
        let kind = line.split(' ').next().unwrap_or_default();
        let mut errors = lock(&self.errors);
        if let Some(count) = errors.get_mut(kind) {
            *count += 1;
        } else if errors.len() < ERROR_KINDS_MAX {
            errors.insert(kind.to_owned(), 1);
        }
    }

    /// Each kind of error with its count.
    pub(crate) fn errors(&self) -> Vec<(String, u64)> {
        lock(&self.errors).clone().into_iter().collect()
    }

    /// Begins to count anew: `now` is what was counted until now.
    pub(crate) fn reset_counts(&self, now: Totals, calls: Vec<u64>) {
        *lock(&self.before_reset) = now;
        *lock(&self.calls_before_reset) = calls;
        lock(&self.errors).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_their_first_word_within_bounds() {
        let live = Live::default();
        for line in ["ERR a", "ERR b", "OOM full", "WRONGPASS"] {
            live.count_error(line);
        }
        let expected = [("ERR", 2), ("OOM", 1), ("WRONGPASS", 1)];
        assert_eq!(live.errors(), expected.map(|(kind, count)| (kind.to_owned(), count)));
        (0..1000).for_each(|number| live.count_error(&format!("E{number}")));
        assert_eq!(live.errors().len(), ERROR_KINDS_MAX);
        live.reset_counts(Totals::default(), Vec::new());
        assert_eq!(live.errors(), []);
    }
}
