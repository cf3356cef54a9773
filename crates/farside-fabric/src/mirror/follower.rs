//! A member that follows: it joins, is copied, applies entries, grants time, and takes over.

use super::clients::Clients;
use super::entry::{Entry, Kind};
use super::log::Log;
use super::member::{Contents, Member, Output, Role};
use super::note::{Note, NoteError};
use super::view::{MemberId, View};
use crate::mutant::is_planted;

/// How many times as long as a backup, a process that is started anew waits for others of the view, who know more.
const INHERIT_PATIENCES: u64 = 3;

/// What a follower knows of whom it follows.
#[derive(Debug)]
pub(super) struct Follower {
    /// Whom it has asked, or follows.
    primary: Option<MemberId>,
    /// Names the stream that it has asked for last; 0 if it has asked nobody. No two streams of a member have the same name.
    stream: u64,
    state: State,
    /// What the memory has held since the process began; `None` once a copy has begun.
    contents: Option<Contents>,
    /// When the primary was last heard, or the follower began to wait for it.
    heard_ns: u64,
    /// When it was last granted time.
    granted_ns: u64,
    asked_ns: u64,
    /// How many bytes of memory this copy has brought.
    copied: u64,
    /// Nothing is granted any more, since this member wants to be primary.
    is_pledged: bool,
    /// What it has proposed, and when.
    proposed: Option<(View, u64)>,
    /// An operator wants it to be primary.
    is_wanted: bool,
    /// An operator wants it out of the group.
    is_dismissed: bool,
}

/// How right memory, log and clients are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not at all.
    Void,
    /// A copy is under way.
    Copying,
    /// A prefix of the primary's; connected to it.
    Following,
    /// A prefix of some primary's; not connected.
    Parted,
}

impl Follower {
    pub(super) fn new(contents: Contents, now_ns: u64) -> Self {
        Self {
            primary: None,
            stream: 0,
            state: State::Void,
            contents: Some(contents),
            heard_ns: now_ns,
            granted_ns: now_ns,
            asked_ns: 0,
            copied: 0,
            is_pledged: false,
            proposed: None,
            is_wanted: false,
            is_dismissed: false,
        }
    }

    /// One that was primary: its log is the prefix of some log.
    pub(super) fn deposed(now_ns: u64) -> Self {
        Self {
            state: State::Parted,
            contents: None,
            ..Self::new(Contents::Inherited, now_ns)
        }
    }

    pub(super) fn follows(&self) -> bool {
        self.primary.is_some()
    }

    /// Whether it could take over: all of its memory is a prefix of the primary's.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.state, State::Following | State::Parted)
    }

    pub(super) fn unlink(&mut self, to: MemberId) {
        if self.primary == Some(to) {
            self.primary = None;
            self.state = match self.state {
                State::Void | State::Copying => State::Void,
                State::Following | State::Parted => State::Parted,
            };
        }
    }

    /// Somebody says that a view is in force that is no news. If it is not the one proposed, the proposal has lost.
    pub(super) fn lost(&mut self, view: &View, known: Option<&View>) {
        if known == Some(view) && self.proposed.as_ref().is_some_and(|(own, _)| own.epoch <= view.epoch) {
            self.proposed = None;
            self.is_pledged = false;
        }
    }
}

impl Member {
    fn follower(&mut self) -> Option<&mut Follower> {
        match &mut self.role {
            Role::Follower(follower) => Some(follower),
            Role::Primary(_) => None,
        }
    }

    /// A view has come after `former` in which somebody else is primary.
    pub(super) fn follow_view(&mut self, now_ns: u64, former: Option<&View>) {
        let Some(view) = self.view.as_ref() else { return };
        let (primary, me) = (view.primary.id, self.me.id);
        // Without a membership only an operator has its primary go on without a process that runs.
        let is_dismissed = !self.settings.is_automatic
            && !view.includes(me)
            && former.is_some_and(|former| former.primary.id == primary && former.has_backup(me));
        let Some(follower) = self.follower() else { return };
        follower.is_dismissed |= is_dismissed;
        if follower.is_dismissed {
            follower.unlink(primary);
            follower.is_wanted = false;
            return;
        }
        follower.is_pledged = false;
        follower.proposed = None;
        follower.is_wanted = false;
        follower.heard_ns = now_ns;
        if follower.primary != Some(primary) {
            if let Some(former) = follower.primary {
                follower.unlink(former);
            }
            self.ask_to_join(now_ns, primary);
        }
    }

    /// Asks the primary to be let in. Only the primary of the newest view counts; without any view, whoever is there.
    pub(super) fn ask_to_join(&mut self, now_ns: u64, to: MemberId) {
        if self.view.as_ref().is_some_and(|view| view.primary.id != to) {
            return;
        }
        let position = self.position();
        let memory_bytes = self.memory.bytes();
        let member = self.me.clone();
        let stream = self.streams + 1;
        let Some(follower) = self.follower() else { return };
        if follower.is_dismissed {
            return;
        }
        follower.primary = Some(to);
        follower.stream = stream;
        follower.copied = 0;
        follower.asked_ns = now_ns;
        let position = follower.is_whole().then_some(position);
        let is_blank = follower.contents == Some(Contents::Blank);
        if follower.state == State::Copying {
            follower.state = State::Void;
        }
        self.streams = stream;
        let note = Note::Join {
            member,
            stream,
            position,
            memory_bytes,
            is_blank,
        };
        self.tell(to, note);
    }

    /// Whether a note belongs to the stream that was asked for last. Whoever believes to be primary and is none is told so.
    pub(super) fn heeds(&mut self, from: MemberId, stream: u64, epoch: u64) -> bool {
        let leads = self.view.as_ref().is_none_or(|view| view.primary.id == from);
        if !leads && epoch < self.epoch() {
            self.refuse_outdated(from);
        }
        self.follower().is_some_and(|follower| {
            let is_current = follower.primary == Some(from) && follower.stream == stream;
            is_current || is_planted("mirror: a stream of an old epoch is heeded")
        })
    }

    pub(super) fn refuse_outdated(&mut self, from: MemberId) {
        if let Some(view) = self.view.clone() {
            self.tell(from, Note::Outdated { view });
        }
    }

    /// Takes in a part of the stream.
    pub(super) fn take_in(&mut self, now_ns: u64, from: MemberId, note: Note) -> Result<(), NoteError> {
        let state = self.follower().map_or(State::Void, |follower| follower.state);
        match (note, state) {
            (Note::CopyBegins { .. }, _) => {
                if let Some(follower) = self.follower() {
                    follower.state = State::Copying;
                    follower.contents = None;
                    follower.copied = 0;
                }
            }
            (Note::Memory { offset, bytes, .. }, State::Copying) => self.copy_memory(offset, &bytes)?,
            (
                Note::CopyEnds {
                    epoch,
                    last,
                    clients,
                    group,
                    ..
                },
                State::Copying,
            ) => {
                self.clients = Clients::decode(&clients)?;
                self.log = Log::after(last);
                self.history.restart(epoch);
                self.group = group;
                if let Some(follower) = self.follower() {
                    follower.state = State::Following;
                }
            }
            // Changes of memory that was copied before; what is still to come is overwritten.
            (Note::Append { entries, .. }, State::Copying) => {
                let mut rest = &entries[..];
                while !rest.is_empty() {
                    self.apply_to_memory(&Entry::decode(&mut rest)?)?;
                }
            }
            (
                Note::Append {
                    epoch, first, entries, ..
                },
                State::Following | State::Parted,
            ) => self.append(epoch, first, &entries)?,
            _ => return Ok(()),
        }
        if let Some(follower) = self.follower() {
            follower.heard_ns = now_ns.max(follower.heard_ns);
        }
        self.acknowledge(from);
        Ok(())
    }

    fn copy_memory(&mut self, offset: u64, bytes: &[u8]) -> Result<(), NoteError> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.memory.bytes()) {
            return Err(NoteError::Truncated);
        }
        self.memory.write(offset, bytes);
        if let Some(follower) = self.follower() {
            follower.copied += bytes.len() as u64;
        }
        Ok(())
    }

    fn append(&mut self, epoch: u64, first: u64, entries: &[u8]) -> Result<(), NoteError> {
        if first > self.log.last() + 1 {
            return Err(NoteError::Entry);
        }
        self.history
            .enter(epoch.max(self.history.position(0).epoch), self.log.last());
        let mut rest = entries;
        let mut number = first;
        while !rest.is_empty() {
            let before = rest;
            let entry = Entry::decode(&mut rest)?;
            if number > self.log.last() {
                self.apply_to_memory(&entry)?;
                let number = self.log.push(&before[..before.len() - rest.len()]);
                self.clients.apply(&entry, number);
            }
            number += 1;
        }
        let last = self.log.last();
        self.log.trim(last);
        if let Some(follower) = self.follower() {
            follower.state = State::Following;
        }
        Ok(())
    }

    fn apply_to_memory(&self, entry: &Entry<'_>) -> Result<(), NoteError> {
        if entry.kind != Kind::Batch {
            return Ok(());
        }
        let effects = entry.effects();
        let take = if is_planted("mirror: half a batch is applied") {
            1
        } else {
            usize::MAX
        };
        if is_planted("mirror: effects are applied backwards") {
            let effects: Vec<_> = effects.collect();
            for (offset, bytes) in effects.into_iter().rev() {
                self.memory.write(offset, bytes);
            }
            return Ok(());
        }
        for (offset, bytes) in effects.take(take) {
            let end = offset.checked_add(bytes.len() as u64);
            if end.is_none_or(|end| end > self.memory.bytes()) {
                return Err(NoteError::Entry);
            }
            self.memory.write(offset, bytes);
        }
        Ok(())
    }

    fn acknowledge(&mut self, to: MemberId) {
        let last = self.log.last();
        let Some(follower) = self.follower() else { return };
        let (stream, copied) = (follower.stream, follower.copied);
        let last = follower.is_whole().then_some(last);
        self.tell(to, Note::Applied { stream, last, copied });
    }

    pub(super) fn hear_beat(&mut self, now_ns: u64, from: MemberId, view: View, sent_ns: u64) {
        if self.view.as_ref().is_none_or(|known| view.epoch > known.epoch) {
            self.decided(now_ns, view);
        }
        if self.view.as_ref().is_some_and(|view| view.primary.id != from) {
            self.refuse_outdated(from);
            return;
        }
        let Some(follower) = self.follower() else { return };
        if follower.is_pledged {
            return;
        }
        follower.heard_ns = now_ns;
        follower.granted_ns = now_ns;
        self.tell(from, Note::Grant { sent_ns });
    }

    /// An operator wants this backup to be primary.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn promote(&mut self) -> Result<(), &'static str> {
        let is_backup = self.view.as_ref().is_some_and(|view| view.has_backup(self.me.id));
        let is_heir = self.is_heir();
        let Some(follower) = self.follower() else {
            return Err("it is primary already");
        };
        let inherits = is_heir && follower.contents == Some(Contents::Inherited) && follower.state == State::Void;
        if !inherits && (!is_backup || !follower.is_whole()) {
            return Err("it is no backup that has everything: wait until it has caught up, or name another");
        }
        follower.is_wanted = true;
        Ok(())
    }

    pub(super) fn tick_follower(&mut self, now_ns: u64) {
        let settings = self.settings;
        let is_backup = self.view.as_ref().is_some_and(|view| view.has_backup(self.me.id));
        let waits_long = settings.lease_ns / 2;
        let Some(follower) = self.follower() else { return };
        if let Some(primary) = follower.primary
            && now_ns >= follower.asked_ns + waits_long
            && now_ns >= follower.heard_ns + waits_long
        {
            // The primary did not know that it is one, or has let the stream go.
            self.ask_to_join(now_ns, primary);
        }
        let Some(follower) = self.follower() else { return };
        if !is_backup || !follower.is_whole() {
            self.inherit(now_ns);
            return;
        }
        let is_silent = settings.is_automatic && now_ns > follower.heard_ns + settings.patience_ns();
        if !is_silent && !follower.is_wanted {
            return;
        }
        follower.is_pledged = true;
        if let Some(primary) = follower.primary
            && follower.is_wanted
        {
            // It grants no more, and is not silent: the primary is not to go on without it.
            self.acknowledge(primary);
        }
        let Some(follower) = self.follower() else { return };
        // The last grant runs out by the primary's clock a lease after the beat was sent, which was before it came here.
        let is_over = now_ns > follower.granted_ns + settings.patience_ns();
        if !is_over && !is_planted("mirror: a backup does not wait until its grant is over") {
            return;
        }
        if follower
            .proposed
            .as_ref()
            .is_some_and(|(_, when)| now_ns < when + waits_long)
        {
            return;
        }
        let Some(view) = self.view.as_ref().map(|view| self.led_by_me(view)) else {
            return;
        };
        if let Some(follower) = self.follower() {
            follower.proposed = Some((view.clone(), now_ns));
        }
        self.outputs.push_back(Output::Propose(view));
    }
}

impl Member {
    /// Proposes to go on with what an earlier process has left in this segment, if everybody else of the view has been silent for long.
    fn inherit(&mut self, now_ns: u64) {
        let settings = self.settings;
        let Some(view) = self.view.clone().filter(|_| self.is_heir()) else {
            return;
        };
        let Some(follower) = self.follower() else { return };
        let is_silent = now_ns > follower.heard_ns + INHERIT_PATIENCES * settings.patience_ns();
        let asked = follower
            .proposed
            .as_ref()
            .is_some_and(|(_, when)| now_ns < when + settings.lease_ns / 2);
        let may = follower.contents == Some(Contents::Inherited) && follower.state == State::Void;
        if !may || asked || !is_silent || !(settings.is_automatic || follower.is_wanted) {
            return;
        }
        let next = self.led_by_me(&view);
        if let Some(follower) = self.follower() {
            follower.proposed = Some((next.clone(), now_ns));
        }
        self.outputs.push_back(Output::Propose(next));
    }

    /// Whether it was a backup of its group until an operator wanted it out.
    #[must_use]
    pub fn is_dismissed(&self) -> bool {
        matches!(&self.role, Role::Follower(follower) if follower.is_dismissed)
    }

    /// Whether the view names this segment under an earlier process.
    fn is_heir(&self) -> bool {
        let is_earlier = |view: &View| {
            view.peers()
                .any(|peer| peer.segment == self.me.segment && peer.id != self.me.id)
        };
        self.view.as_ref().is_some_and(is_earlier)
    }

    /// Whether this member begins a new life of the group, when it becomes primary.
    pub(super) fn begins_anew(&self) -> bool {
        matches!(&self.role, Role::Follower(follower) if follower.state == State::Void)
    }
}
