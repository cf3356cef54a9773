//! The sweeper: removes keys that have expired and that nobody asks for any more.
//!
//! On the path: nowhere. To every reader an expired key is gone; only its memory is still held, until
//! somebody changes the key. The sweeper is that somebody. A gateway runs one beside its clients.
//!
//! A *pass* walks the whole index with the cursors of a scan, a *step* of some pages at a time
//! with a pause after each:
//!  1. read a page and note the keys whose time is over;
//!  2. remove each by a change of its own, which looks at the item again: a key that was stored anew
//!     in between stays;
//!  3. let the other tasks run; after the last page of the step, pause.
//!
//! It is off while nothing expires: when a pass has seen no item that ever expires, and none was stored
//! through this process since ([`ExpiryMark`]), the next pass waits for the mark, or for
//! [`SweepPace::rest_ns`], as a gateway that ended may have left such items. Several sweepers on one
//! pool are harmless: each key is removed by one of them, the others find it gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::KvError;
use crate::session::Session;
use crate::store::Store;
use farside_index::GONE_MS;

/// How often a resting sweeper looks at its mark.
const LOOK_NS: u64 = 1_000_000_000;

/// How fast a sweeper goes.
#[derive(Clone, Copy, Debug)]
pub struct SweepPace {
    /// Pages of a scan that are read between two pauses.
    pub step_pages: u32,
    /// A step also ends with the page at which so much time has passed, in nanoseconds: far away, pages take long.
    pub step_ns: u64,
    /// How long it pauses after a step, in nanoseconds.
    pub pause_ns: u64,
    /// The same after a step in which a quarter of the expiring items had expired: memory waits to be freed.
    pub busy_pause_ns: u64,
    /// How long it rests at most when nothing expires.
    pub rest_ns: u64,
}

impl Default for SweepPace {
    /// At most 640 pages a second and a fiftieth of the time; several times that when much has expired.
    fn default() -> Self {
        Self {
            step_pages: 64,
            step_ns: 2_000_000,
            pause_ns: 100_000_000,
            busy_pause_ns: 10_000_000,
            rest_ns: 600_000_000_000,
        }
    }
}

/// Notes that an item was stored that expires some day. The stores of one process share it.
#[derive(Clone, Default, Debug)]
pub struct ExpiryMark(Arc<AtomicBool>);

impl ExpiryMark {
    #[inline]
    pub(crate) fn set(&self) {
        // Relaxed: it says when to look, not what is there. The load keeps the line shared between cores.
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether it is that one.
    #[cfg(test)]
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// For how long a key that a transaction has stored as gone is left to it, in nanoseconds: as long as one is tried.
const GONE_GRACE_NS: u64 = 10_000_000_000;
/// How many such keys the sweeper remembers.
const LEFT_MAX: usize = 1 << 16;

/// What a page of the index has that expires.
pub(crate) struct Expired {
    /// The keys that are past their time, and when that was, in milliseconds since the Unix epoch.
    pub(crate) keys: Vec<(Vec<u8>, u64)>,
    /// How many items expire at some time.
    pub(crate) expiring: u64,
    /// The next cursor, as [`Session::scan`] has it.
    pub(crate) next: u64,
}

/// What a step did.
struct Step {
    cursor: u64,
    expiring: u64,
    removed: u64,
}

impl Store {
    /// Sweeps until the store is closed or abandoned. `removed` is told how many keys were removed, after
    /// every step that removed any.
    pub async fn sweep(self, pace: SweepPace, mut removed: impl FnMut(u64)) {
        let mut session = self.session();
        let (mut cursor, mut expiring) = (0, 0);
        let mut left = HashMap::new();
        while !self.pool().has_ended() {
            if cursor == 0 {
                // What is stored from now on may be behind the cursor.
                self.expiry_mark.clear();
            }
            let mut pause_ns = pace.pause_ns;
            let Some(turn) = self.background.begin() else { return };
            match self.sweep_step(&mut session, cursor, pace, &mut left).await {
                Ok(step) => {
                    cursor = step.cursor;
                    expiring += step.expiring;
                    if step.removed > 0 {
                        removed(step.removed);
                    }
                    if step.removed * 4 > step.expiring {
                        pause_ns = pace.busy_pause_ns;
                    }
                }
                Err(error) => {
                    tracing::debug!("the sweeper tries again: {error}");
                    if error.is_lost_cursor() {
                        cursor = 0;
                    }
                }
            }
            drop(turn);
            if cursor == 0 && core::mem::take(&mut expiring) == 0 {
                self.rest(pace.rest_ns).await;
            } else {
                self.endpoint().sleep(pause_ns).await;
            }
        }
    }

    /// `left` has the keys that transactions have left as gone, and when each was seen first.
    async fn sweep_step(
        &self,
        session: &mut Session,
        cursor: u64,
        pace: SweepPace,
        left: &mut HashMap<Vec<u8>, u64>,
    ) -> Result<Step, KvError> {
        let mut step = Step {
            cursor,
            expiring: 0,
            removed: 0,
        };
        let end_ns = self.endpoint().now_ns().saturating_add(pace.step_ns);
        for _ in 0..pace.step_pages {
            let page = session.scan_expired(step.cursor).await?;
            step.expiring += page.expiring;
            for (key, expiry_ms) in page.keys {
                if expiry_ms == GONE_MS {
                    self.sweep_left(session, key, left).await;
                    continue;
                }
                let removed = self.witnessed(&key, expiry_ms, session.delete_expired(&key)).await?;
                step.removed += u64::from(removed.is_some());
            }
            step.cursor = page.next;
            if page.next == 0 || self.pool().has_ended() {
                break;
            }
            self.endpoint().sleep(0).await;
            if self.endpoint().now_ns() >= end_ns {
                break;
            }
        }
        Ok(step)
    }

    /// Removes a key that a transaction has left as gone, unless one may be about to replace it.
    async fn sweep_left(&self, session: &mut Session, key: Vec<u8>, left: &mut HashMap<Vec<u8>, u64>) {
        let now_ns = self.endpoint().now_ns();
        match left.get(&key) {
            Some(&seen_ns) if now_ns - seen_ns >= GONE_GRACE_NS => {
                self.remove_gone(&mut session.cx, &key).await;
                left.remove(&key);
            }
            Some(_) => {}
            None if left.len() < LEFT_MAX => drop(left.insert(key, now_ns)),
            // Of those that are gone by now, nobody has said so.
            None => left.retain(|_, &mut seen_ns| now_ns - seen_ns < 2 * GONE_GRACE_NS),
        }
    }

    /// Waits until something that expires is stored, or the time is over.
    async fn rest(&self, rest_ns: u64) {
        let until_ns = self.endpoint().now_ns().saturating_add(rest_ns);
        while !self.expiry_mark.is_set() && !self.pool().has_ended() && self.endpoint().now_ns() < until_ns {
            self.endpoint().sleep(LOOK_NS.min(rest_ns)).await;
        }
    }
}
