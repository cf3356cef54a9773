//! One member of a group: what it knows, and which role it has.

use std::collections::{BTreeSet, VecDeque};

use super::clients::Clients;
use super::entry::EntryWriter;
use super::follower::Follower;
use super::history::{History, Position, is_newer};
use super::log::Log;
use super::note::{Note, NoteError, Reader, put, put_peer, put_view};
use super::primary::{Joiner, Primary};
use super::view::{BACKUPS_MAX, MemberId, Peer, View};
use crate::message::{EndpointId, Message};
use crate::region::Region;

/// How a member behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How long a backup's grant counts, in nanoseconds.
    pub lease_ns: u64,
    /// Whether members propose on their own that a silent backup is left out, and that a backup takes over from a silent
    /// primary. Needs a membership service; without one an operator decides.
    pub is_automatic: bool,
    /// How many backups a primary takes.
    pub backups_max: usize,
}

impl Settings {
    /// Members of a group whose membership service decides.
    #[must_use]
    pub fn automatic(lease_ns: u64) -> Self {
        Self {
            lease_ns,
            is_automatic: true,
            backups_max: BACKUPS_MAX,
        }
    }

    /// Members of a group that an operator looks after.
    #[must_use]
    pub fn by_hand(lease_ns: u64) -> Self {
        Self {
            lease_ns,
            is_automatic: false,
            backups_max: BACKUPS_MAX,
        }
    }

    /// How long a backup waits after the last sign of a primary before it takes over: a lease, and an eighth for clocks
    /// that run differently.
    #[must_use]
    pub fn patience_ns(&self) -> u64 {
        self.lease_ns + self.lease_ns / 8
    }
}

/// What a member's memory holds when its process starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Nothing: all of it is zero.
    Blank,
    /// What an earlier process over the same segment has left, every change up to its end.
    Inherited,
}

/// How a member begins.
#[derive(Clone, Debug)]
pub struct Start {
    /// Who it is.
    pub me: Peer,
    /// How it behaves.
    pub settings: Settings,
    /// Its memory, which nobody else changes.
    pub memory: Region,
    /// What is in it.
    pub contents: Contents,
    /// Identities of clients count from here, should the group's life begin with this member: larger than any of a life before.
    pub first_sequence: u64,
}

/// What whoever drives a member has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Send a note over the connection to that member; drop it if there is none.
    Tell(MemberId, Note),
    /// Ask the membership for this view; the answer comes by [`Member::decided`], as the view that was taken.
    Propose(View),
    /// The view or the role has changed: clients of a member that is not primary are to be sent away.
    Changed,
}

/// Why a request was not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Somebody else is primary.
    NotPrimary,
    /// The client was cut off.
    Fenced,
    /// The group does not know the client.
    Stranger,
}

/// What became of a SEND.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// It is in the mailbox.
    Done = 0,
    /// Nobody has this identity.
    PeerUnknown = 1,
    /// The peer takes no messages out.
    MailboxFull = 2,
}

impl Status {
    pub(super) fn from_answer(answer: &[u8]) -> Self {
        match answer.first() {
            Some(1) => Self::PeerUnknown,
            Some(2) => Self::MailboxFull,
            _ => Self::Done,
        }
    }
}

/// A request was executed: its answer may leave when [`Member::released`] has come to `hold`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Executed<T = ()> {
    /// The answer, if it is not bytes.
    pub answer: T,
    /// The last entry that it depends on.
    pub hold: u64,
}

/// What a member is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoleName {
    /// It executes verbs.
    Primary,
    /// It has all that is acknowledged.
    Backup,
    /// It follows, and is not yet one of the group.
    Joining,
    /// It follows nobody.
    Idle,
}

impl core::fmt::Display for RoleName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Primary => "primary",
            Self::Backup => "backup",
            Self::Joining => "catching up",
            Self::Idle => "idle",
        })
    }
}

/// What a member says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// What it is.
    pub role: RoleName,
    /// The newest view that it knows.
    pub view: Option<View>,
    /// Its last entry.
    pub last: u64,
    /// The last entry that all backups have, as far as it knows.
    pub committed: u64,
    /// For a primary: how far each follower is, in entries, and how many bytes of memory are still to be copied.
    pub followers: Vec<(Peer, u64, u64)>,
    /// How many clients are known.
    pub clients: usize,
}

impl Standing {
    pub(crate) fn encode(&self, output: &mut Vec<u8>) {
        put(output, self.role as u64);
        put(output, self.view.is_some().into());
        if let Some(view) = &self.view {
            put_view(output, view);
        }
        put(output, self.last);
        put(output, self.committed);
        put(output, self.followers.len() as u64);
        for (peer, entries, bytes) in &self.followers {
            put_peer(output, peer);
            put(output, *entries);
            put(output, *bytes);
        }
        put(output, self.clients as u64);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, NoteError> {
        let mut reader = Reader::new(bytes);
        let role = match reader.number()? {
            0 => RoleName::Primary,
            1 => RoleName::Backup,
            2 => RoleName::Joining,
            3 => RoleName::Idle,
            _ => return Err(NoteError::Entry),
        };
        let view = if reader.number()? == 0 {
            None
        } else {
            Some(reader.view()?)
        };
        let (last, committed) = (reader.number()?, reader.number()?);
        let mut followers = Vec::new();
        for _ in 0..reader.number()? {
            followers.push((reader.peer()?, reader.number()?, reader.number()?));
        }
        let clients = reader.number()? as usize;
        reader.end()?;
        Ok(Self {
            role,
            view,
            last,
            committed,
            followers,
            clients,
        })
    }
}

pub(super) enum Role {
    Primary(Primary),
    Follower(Follower),
}

/// One member of a group.
pub struct Member {
    pub(super) me: Peer,
    pub(super) settings: Settings,
    pub(super) memory: Region,
    pub(super) view: Option<View>,
    pub(super) role: Role,
    pub(super) log: Log,
    pub(super) writer: EntryWriter,
    pub(super) history: History,
    pub(super) clients: Clients,
    /// Names the group's life; 0 in a member that has not been primary or copied.
    pub(super) group: u64,
    /// How many streams it has asked for.
    pub(super) streams: u64,
    /// How many requests it has executed for clients.
    pub(super) requests: u64,
    pub(super) outputs: VecDeque<Output>,
}

impl Member {
    /// A member that follows nobody yet.
    #[must_use]
    pub fn new(start: Start, now_ns: u64) -> Self {
        Self {
            me: start.me,
            settings: start.settings,
            memory: start.memory,
            view: None,
            role: Role::Follower(Follower::new(start.contents, now_ns)),
            log: Log::after(0),
            writer: EntryWriter::default(),
            history: History::default(),
            clients: Clients::new(start.first_sequence),
            group: 0,
            streams: 0,
            requests: 0,
            outputs: VecDeque::new(),
        }
    }

    /// The first view of a new group, which consists of this member. Whoever asks has to propose it.
    #[must_use]
    pub fn first_view(&self) -> View {
        View {
            epoch: 1,
            primary: self.me.clone(),
            backups: Vec::new(),
        }
    }

    /// How it behaves.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Appends the bytes of the newest view; none if there is no view.
    pub(crate) fn put_view(&self, output: &mut Vec<u8>) {
        if let Some(view) = &self.view {
            put_view(output, view);
        }
    }

    /// The view after this one, if this member takes over.
    pub(super) fn led_by_me(&self, view: &View) -> View {
        if self.settings.is_automatic {
            view.led_by(self.me.clone())
        } else {
            view.taken_over_by(self.me.clone())
        }
    }

    /// Who this is.
    #[must_use]
    pub fn me(&self) -> &Peer {
        &self.me
    }

    /// The newest view that it knows.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// The newest epoch that it knows.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.view.as_ref().map_or(0, |view| view.epoch)
    }

    /// Whether it is primary, as far as it knows.
    #[inline]
    #[must_use]
    pub fn is_primary(&self) -> bool {
        matches!(self.role, Role::Primary(_))
    }

    /// Names the group's life, in which clients are known.
    #[must_use]
    pub fn group(&self) -> u64 {
        self.group
    }

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &Region {
        &self.memory
    }

    /// The next thing to do.
    pub fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The clients that are known.
    pub(crate) fn client_ids(&self) -> BTreeSet<EndpointId> {
        self.clients.ids()
    }

    /// What it is and how far.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let last = self.last();
        let (role, committed, followers) = match &self.role {
            Role::Primary(primary) => (RoleName::Primary, primary.committed(), self.lags(primary)),
            Role::Follower(follower) => {
                let is_backup = self.view.as_ref().is_some_and(|view| view.has_backup(self.me.id));
                let role = match (is_backup && follower.is_whole(), follower.follows()) {
                    (true, _) => RoleName::Backup,
                    (false, true) => RoleName::Joining,
                    (false, false) => RoleName::Idle,
                };
                (role, last, Vec::new())
            }
        };
        Standing {
            role,
            view: self.view.clone(),
            last,
            committed,
            followers,
            clients: self.clients.count(),
        }
    }

    /// The number of the last entry.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.log.last()
    }

    pub(super) fn tell(&mut self, to: MemberId, note: Note) {
        self.outputs.push_back(Output::Tell(to, note));
    }

    /// The membership has decided on a view, or an operator has.
    pub fn decided(&mut self, now_ns: u64, view: View) {
        if !is_newer(&view, self.view.as_ref()) {
            if let Role::Follower(follower) = &mut self.role {
                // A proposal of ours came too late.
                follower.lost(&view, self.view.as_ref());
            }
            return;
        }
        let leads = view.primary.id == self.me.id;
        let former = self.view.replace(view);
        match (&mut self.role, leads) {
            (Role::Primary(_), true) => self.go_on_as_primary(now_ns),
            (Role::Primary(_), false) => self.step_down(now_ns),
            (Role::Follower(_), true) => self.become_primary(now_ns),
            (Role::Follower(_), false) => self.follow_view(now_ns, former.as_ref()),
        }
        self.outputs.push_back(Output::Changed);
    }

    /// A connection to another member is there. What came over an earlier one counts no more.
    pub fn linked(&mut self, now_ns: u64, to: MemberId) {
        match &mut self.role {
            Role::Primary(primary) => {
                primary.unlink(to, self.log.last());
                // It may know only an earlier primary, perhaps an earlier process of this one.
                self.refuse_outdated(to);
            }
            Role::Follower(_) => self.ask_to_join(now_ns, to),
        }
    }

    /// The connection to another member broke.
    pub fn unlinked(&mut self, to: MemberId) {
        match &mut self.role {
            Role::Primary(primary) => primary.unlink(to, self.log.last()),
            Role::Follower(follower) => follower.unlink(to),
        }
    }

    /// A note has come from another member.
    ///
    /// # Errors
    /// If it breaks the protocol; then the connection is to be closed.
    pub fn told(&mut self, now_ns: u64, from: MemberId, note: Note) -> Result<(), NoteError> {
        match note {
            Note::Join {
                member,
                stream,
                position,
                memory_bytes,
                is_blank,
            } => {
                let joiner = Joiner {
                    peer: member,
                    stream,
                    position,
                    memory_bytes,
                    is_blank,
                };
                self.let_join(now_ns, from, joiner);
            }
            Note::Applied { stream, last, copied } => self.has_applied(now_ns, from, (stream, last, copied)),
            Note::Grant { sent_ns } => self.granted(now_ns, from, sent_ns),
            Note::Outdated { view } => self.decided(now_ns, view),
            Note::Beat { view, sent_ns } => self.hear_beat(now_ns, from, view, sent_ns),
            Note::CopyBegins { stream, epoch }
            | Note::Memory { stream, epoch, .. }
            | Note::CopyEnds { stream, epoch, .. }
            | Note::Append { stream, epoch, .. } => {
                if self.heeds(from, stream, epoch) {
                    return self.take_in(now_ns, from, note);
                }
            }
        }
        Ok(())
    }

    /// Time has passed. To be called several times in each lease.
    pub fn tick(&mut self, now_ns: u64) {
        match &self.role {
            Role::Primary(_) => self.tick_primary(now_ns),
            Role::Follower(_) => self.tick_follower(now_ns),
        }
    }

    /// Where this member's log ends.
    pub(super) fn position(&self) -> Position {
        self.history.position(self.log.last())
    }

    /// Whether messages wait for a client that was sent `taken`, even if none may leave yet.
    #[must_use]
    pub fn has_letters(&self, client: EndpointId, taken: u64) -> bool {
        self.clients.letters_of(client) > taken
    }

    /// The next message for a client, if it may leave: the `taken`-th that the client has been sent, counted from 0.
    pub fn letter(&mut self, now_ns: u64, client: EndpointId, taken: u64) -> Option<(EndpointId, Message)> {
        let released = self.released(now_ns)?;
        let client = self.clients.get(client)?;
        let ahead = usize::try_from(taken.checked_sub(client.taken)?).ok()?;
        let letter = client.mailbox.get(ahead)?;
        if letter.entry > released && !crate::mutant::is_planted("mirror: a message leaves before backups have it") {
            return None;
        }
        Some((letter.from, letter.message.clone()))
    }
}

impl core::fmt::Debug for Member {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Member")
            .field("standing", &self.standing())
            .finish_non_exhaustive()
    }
}
