//! What a connection is to the commands: a client with a name, a user and rights.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::acl::{Refused, User};
use crate::command::table::{Numbered, numbered};
use crate::context::Shared;
use crate::latency::Tally;
use crate::live::lock;
use crate::queue::Queue;
use crate::reply::Reply;
use crate::roster::{Card, Ends, Notices};

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
    /// Whose rights it has.
    user: Arc<User>,
    /// Whether it still owes a password.
    is_stranger: bool,
    /// Whether it may do everything: it is known, and so is its user.
    is_free: bool,
    /// Whether its connection ends when its replies have been written.
    pub(crate) is_leaving: bool,
    /// The commands of its present burst.
    pub(crate) tally: Tally,
    pub(crate) replies: Replies,
    pub(crate) queue: Queue,
    /// Number of the command or subcommand that it gave last.
    pub(crate) command: usize,
}

impl Client {
    /// The client of a connection that has just been opened.
    pub(crate) fn enter(shared: &Arc<Shared>, ends: Ends, now_ms: u64) -> Self {
        // Relaxed: only that it is unique matters.
        let id = shared.client_next.fetch_add(1, Ordering::Relaxed);
        // First the card, then what it shall say: whoever changes users, or pauses, does it the other way round.
        let card = shared.live.roster.enter(id, ends, now_ms);
        if shared.live.pause.is_on() {
            card.notify(Notices::PAUSE);
        }
        let user = shared.users.default();
        let mut client = Self {
            card,
            shared: Arc::clone(shared),
            is_stranger: !user.is_open(),
            user,
            is_free: false,
            is_leaving: false,
            tally: Tally::default(),
            replies: Replies::On,
            queue: Queue::default(),
            command: usize::MAX,
        };
        client.settle();
        client
    }

    /// Whose rights it has.
    pub(crate) fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// Whether it still owes a password.
    #[inline]
    pub(crate) fn is_stranger(&self) -> bool {
        self.is_stranger
    }

    /// Whether it may give every command, with any key.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.is_free
    }

    /// It has given the password of this user.
    pub(crate) fn become_user(&mut self, user: Arc<User>) {
        self.card.label(|labels| labels.user.clone_from(&user.name));
        (self.user, self.is_stranger) = (user, false);
        self.settle();
    }

    fn settle(&mut self) {
        self.is_free = !self.is_stranger && self.user.may_everything();
    }

    /// Heeds what others have noted on its card. Returns whether the connection may go on.
    #[cold]
    pub(crate) fn heed(&mut self) -> bool {
        if self.card.take_notice(Notices::USERS) {
            let Some(user) = self.shared.users.find(&self.user.name) else {
                return false;
            };
            self.is_stranger &= !user.is_open();
            self.user = user;
            self.settle();
        }
        // Taken first, and left again: a pause that begins meanwhile leaves another.
        if self.card.take_notice(Notices::PAUSE) && self.shared.live.pause.is_on() {
            self.card.notify(Notices::PAUSE);
        }
        !self.card.is_killed()
    }

    /// Notes that it was refused something.
    #[cold]
    pub(crate) fn note_refused(&self, refused: Refused, now_ms: u64) {
        self.card.note_command(self.command);
        let line = (self.card).describe(now_ms, |number| numbered(number).map(Numbered::full_name));
        lock(&self.shared.users.log).note(refused, line, now_ms);
    }

    /// Whether GETs or SETs of this client may be executed together, past the table of commands: it may do everything, nobody
    /// watches, it wants replies, and nothing waits for EXEC.
    #[inline]
    pub(crate) fn may_go_together(&self) -> bool {
        self.is_free && self.replies == Replies::On && !self.queue.is_open() && !self.shared.live.monitors.are_there()
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
        let user = self.shared.users.default();
        let is_open = user.is_open();
        self.become_user(user);
        self.is_stranger = !is_open;
        self.settle();
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
