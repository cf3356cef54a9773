//! What a connection is to the commands: a client with a name and rights.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::context::Shared;
use crate::latency::Tally;
use crate::queue::Queue;
use crate::reply::Reply;
use crate::roster::{Card, Ends};

/// Whether a client gets replies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Replies {
    #[default]
    On,
    /// None until they are switched on again.
    Off,
    /// Not to the command that asked for it; to be skipped from the next one on.
    SkipNext,
    /// Not to this command.
    Skip,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    /// What others may know about it; its number stands there.
    pub(crate) card: Arc<Card>,
    shared: Arc<Shared>,
    /// Whether it still owes a password.
    pub(crate) is_stranger: bool,
    /// Whether its connection ends when its replies have been written.
    pub(crate) is_leaving: bool,
    /// The commands of its present burst.
    pub(crate) tally: Tally,
    pub(crate) replies: Replies,
    pub(crate) queue: Queue,
    /// Index in the table of the command that it gave last.
    pub(crate) command: usize,
}

impl Client {
    /// The client of a connection that has just been opened.
    pub(crate) fn enter(shared: &Arc<Shared>, ends: Ends, now_ms: u64) -> Self {
        // Relaxed: only that it is unique matters.
        let id = shared.client_next.fetch_add(1, Ordering::Relaxed);
        Self {
            card: shared.live.roster.enter(id, ends, now_ms),
            shared: Arc::clone(shared),
            is_stranger: shared.password.is_some(),
            is_leaving: false,
            tally: Tally::default(),
            replies: Replies::On,
            queue: Queue::default(),
            command: usize::MAX,
        }
    }

    /// Whether GETs or SETs of this client may be executed together, past the table of commands: it is known, nobody
    /// watches, it wants replies, and nothing waits for EXEC.
    #[inline]
    pub(crate) fn may_go_together(&self) -> bool {
        !self.is_stranger
            && self.replies == Replies::On
            && !self.queue.is_open()
            && !self.shared.live.monitors.are_there()
    }

    /// Does what others called the connection for, after a burst: hands out what its monitor saw. Returns
    /// whether the connection may go on.
    #[inline]
    pub(crate) fn attend(&self, reply: &mut Reply) -> bool {
        if self.card.is_monitor.load(Ordering::Relaxed) {
            reply.append(&self.shared.live.monitors.take(&self.card));
        }
        !self.card.is_killed()
    }

    /// Everything as at the beginning, as RESET wants it.
    pub(crate) fn reset(&mut self) {
        self.shared.live.monitors.leave(&self.card);
        self.card.label(|labels| labels.name.clear());
        self.is_stranger = self.shared.password.is_some();
        self.replies = Replies::On;
        self.queue = Queue::default();
    }

    /// Sets the name.
    ///
    /// # Errors
    /// The error line, if the name would break lists of clients.
    pub(crate) fn set_name(&mut self, name: &[u8]) -> Result<(), &'static str> {
        if !is_plain(name) {
            return Err("ERR Client names cannot contain spaces, newlines or special characters.");
        }
        self.card.label(|labels| labels.name = name.to_vec());
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.live.monitors.leave(&self.card);
        self.shared.live.roster.leave(self.card.id);
    }
}

/// Whether a text can stand in a list of clients.
pub(crate) fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}
