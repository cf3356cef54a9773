//! The connections of a gateway, over all its workers: what CLIENT LIST shows and CLIENT KILL ends.
//!
//! On the path: a connection has a [`Card`] here as long as it is open, and notes on it once per burst
//! what it did last. Another thread reads the card, leaves a notice on it, which the connection looks for before each
//! command, or *calls* its owner: to hang up, or to fetch what a monitor shall see.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::acl::user::DEFAULT;
use crate::live::lock;

/// All open connections by their numbers.
#[derive(Default, Debug)]
pub(crate) struct Roster(Mutex<BTreeMap<u64, Arc<Card>>>);

/// What others may know about one connection.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) id: u64,
    /// Of the peer; `?:0` if the system does not know it any more.
    pub(crate) address: String,
    /// Of this side.
    pub(crate) local_address: String,
    descriptor: i32,
    pub(crate) started_ms: u64,
    active_ms: AtomicU64,
    /// Number of the command or subcommand in the table; a larger one for none yet.
    command: AtomicUsize,
    /// See [`Notices`].
    notices: AtomicU8,
    pub(crate) is_monitor: AtomicBool,
    speaks_resp3: AtomicBool,
    /// Commands that wait for EXEC; -1 if none would.
    queued: AtomicI64,
    labels: Mutex<Labels>,
    called: Notify,
    killed: Notify,
}

/// What the client says about itself.
#[derive(Clone, Default, Debug)]
pub(crate) struct Labels {
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
    /// Name of its user.
    pub(crate) user: Vec<u8>,
}

/// What one connection shall know before its next command, a bit for each.
pub(crate) struct Notices;

impl Notices {
    /// It shall end.
    const END: u8 = 1;
    /// Somebody has changed users.
    pub(crate) const USERS: u8 = 2;
    /// Commands may have to wait.
    pub(crate) const PAUSE: u8 = 4;
}

/// Where a connection goes from and to.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) address: String,
    pub(crate) local_address: String,
    /// The number of the socket in this process.
    pub(crate) descriptor: i32,
}

impl Roster {
    /// Adds a connection that has just been opened.
    pub(crate) fn enter(&self, id: u64, ends: Ends, now_ms: u64) -> Arc<Card> {
        let card = Arc::new(Card {
            id,
            address: ends.address,
            local_address: ends.local_address,
            descriptor: ends.descriptor,
            started_ms: now_ms,
            active_ms: AtomicU64::new(now_ms),
            command: AtomicUsize::new(usize::MAX),
            notices: AtomicU8::new(0),
            is_monitor: AtomicBool::new(false),
            speaks_resp3: AtomicBool::new(false),
            queued: AtomicI64::new(-1),
            labels: Mutex::new(Labels {
                user: DEFAULT.to_vec(),
                ..Labels::default()
            }),
            called: Notify::new(),
            killed: Notify::new(),
        });
        lock(&self.0).insert(id, Arc::clone(&card));
        card
    }

    /// Forgets a connection that has ended.
    pub(crate) fn leave(&self, id: u64) {
        lock(&self.0).remove(&id);
    }

    /// Leaves a notice on every card. Calls nobody: who waits looks before the next command.
    pub(crate) fn notify_all(&self, notice: u8) {
        lock(&self.0).values().for_each(|card| card.notify(notice));
    }

    /// Those that are open now, in the order of their numbers.
    pub(crate) fn cards(&self) -> Vec<Arc<Card>> {
        lock(&self.0).values().cloned().collect()
    }
}

impl Card {
    /// Notes what the client did last. Relaxed, like all here: nothing is concluded from it.
    #[inline]
    pub(crate) fn note(&self, command: usize, now_ms: u64, speaks_resp3: bool) {
        self.command.store(command, Ordering::Relaxed);
        self.active_ms.store(now_ms, Ordering::Relaxed);
        self.speaks_resp3.store(speaks_resp3, Ordering::Relaxed);
    }

    /// Notes what the client does now.
    pub(crate) fn note_command(&self, command: usize) {
        self.command.store(command, Ordering::Relaxed);
    }

    /// Notes how many commands wait for EXEC, `None` if none would.
    #[inline]
    pub(crate) fn note_queued(&self, count: Option<usize>) {
        let count = count.map_or(-1, |count| i64::try_from(count).unwrap_or(i64::MAX));
        self.queued.store(count, Ordering::Relaxed);
    }

    pub(crate) fn labels(&self) -> Labels {
        lock(&self.labels).clone()
    }

    pub(crate) fn label(&self, change: impl FnOnce(&mut Labels)) {
        change(&mut lock(&self.labels));
    }

    /// Ends the connection as soon as its worker comes to it.
    pub(crate) fn kill(&self) {
        self.notify(Notices::END);
        self.call();
        self.killed.notify_one();
    }

    #[inline]
    pub(crate) fn is_killed(&self) -> bool {
        self.has(Notices::END)
    }

    /// Leaves a notice.
    pub(crate) fn notify(&self, notice: u8) {
        // Release, with the acquire of those who look: what led to the notice is done when it is seen.
        self.notices.fetch_or(notice, Ordering::Release);
    }

    /// Whether there is anything to heed before the next command.
    #[inline]
    pub(crate) fn has_notice(&self) -> bool {
        self.notices.load(Ordering::Acquire) != 0
    }

    /// Whether there is such a notice.
    pub(crate) fn has(&self, notice: u8) -> bool {
        self.notices.load(Ordering::Acquire) & notice != 0
    }

    /// Takes a notice away; returns whether there was one.
    pub(crate) fn take_notice(&self, notice: u8) -> bool {
        self.notices.fetch_and(!notice, Ordering::Acquire) & notice != 0
    }

    /// Wakes the connection where it waits; if it does not wait, the next time it wants to.
    pub(crate) fn call(&self) {
        self.called.notify_one();
    }

    /// Returns when the connection is called.
    #[inline]
    pub(crate) async fn until_called(&self) {
        self.called.notified().await;
    }

    /// Returns when the connection shall end.
    pub(crate) async fn until_killed(&self) {
        // Not `called`: a call that is taken here would be missed where it is waited for.
        while !self.is_killed() {
            self.killed.notified().await;
        }
    }

    /// A line of CLIENT LIST. What a gateway has none of (databases, subscriptions) is said to be so.
    /// Sizes of buffers, which only the connection's own thread knows, are 0: client libraries want to see them.
    pub(crate) fn describe(&self, now_ms: u64, command_name: impl Fn(usize) -> Option<&'static str>) -> String {
        let labels = self.labels();
        let queued = self.queued.load(Ordering::Relaxed);
        let seconds_since = |then_ms: u64| now_ms.saturating_sub(then_ms) / 1000;
        let mut line = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            line,
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db=0 sub=0 psub=0 ssub=0 multi={} qbuf=0 \
             qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd={} user={} redir=-1 \
             resp={} lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local_address,
            self.descriptor,
            String::from_utf8_lossy(&labels.name),
            seconds_since(self.started_ms),
            seconds_since(self.active_ms.load(Ordering::Relaxed)),
            match (self.is_monitor.load(Ordering::Relaxed), queued) {
                (true, _) => "O",
                (false, 0..) => "x",
                (false, _) => "N",
            },
            queued,
            command_name(self.command.load(Ordering::Relaxed)).unwrap_or("NULL"),
            String::from_utf8_lossy(&labels.user),
            if self.speaks_resp3.load(Ordering::Relaxed) {
                3
            } else {
                2
            },
            String::from_utf8_lossy(&labels.library),
            String::from_utf8_lossy(&labels.library_version),
        );
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> Ends {
        Ends {
            address: "127.0.0.1:5".to_owned(),
            local_address: "127.0.0.1:6".to_owned(),
            descriptor: 7,
        }
    }

    #[test]
    fn who_is_there_is_listed_in_order() {
        let roster = Roster::default();
        for id in [3, 1, 2] {
            roster.enter(id, ends(), 1000);
        }
        roster.leave(1);
        let ids: Vec<u64> = roster.cards().iter().map(|card| card.id).collect();
        assert_eq!(ids, [2, 3]);
        let card = &roster.cards()[0];
        card.label(|labels| labels.name = b"me".to_vec());
        card.note(0, 3500, true);
        let line = |card: &Card| card.describe(9000, |index| (index == 0).then_some("get"));
        card.note_queued(Some(2));
        assert!(line(card).contains(" flags=x ") && line(card).contains(" multi=2 "));
        card.note_queued(None);
        assert_eq!(
            line(card),
            "id=2 addr=127.0.0.1:5 laddr=127.0.0.1:6 fd=7 name=me age=8 idle=5 flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 \
             qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=get \
             user=default redir=-1 resp=3 lib-name= lib-ver="
        );
    }

    #[test]
    fn a_call_is_not_lost_when_nobody_waits_yet() {
        let roster = Roster::default();
        let card = roster.enter(1, ends(), 0);
        card.kill();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(card.until_called());
        runtime.block_on(card.until_killed());
        assert!(card.is_killed());
    }
}
