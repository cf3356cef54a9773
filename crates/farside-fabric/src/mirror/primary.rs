//! The primary: it executes, logs, sends the log, lets answers go, and decides whom it needs.

use std::collections::{BTreeMap, BTreeSet};

use super::clients::MAILBOX_MESSAGES_MAX;
use super::entry::{Entry, Kind};
use super::follower::Follower;
use super::history::Position;
use super::member::{Executed, Member, Output, Refusal, Role, Status};
use super::note::Note;
use super::view::{MemberId, Peer, View};
use crate::message::{EndpointId, Message};
use crate::mutant::is_planted;
use crate::verb::Verb;

/// How many bytes of memory go into one note.
const COPY_BYTES: usize = 64 << 10;
/// How many bytes of memory may be under way to a follower.
const COPY_WINDOW_BYTES: u64 = 1 << 20;
/// How much memory is looked at in one go: clients and the other members wait meanwhile.
const SCAN_BYTES_MAX: usize = 4 << 20;
/// While clients are served, the copy rests for so many times as long as a part of it takes: most of the time is theirs.
const RESTS: u64 = 2;
/// How many bytes of entries go into one note.
const APPEND_BYTES: usize = 256 << 10;
/// How many bytes of entries may be under way to a follower.
const APPEND_WINDOW_BYTES: u64 = 8 << 20;
/// A follower that is so far behind, and is none of the view, is copied anew.
const BEHIND_BYTES_MAX: u64 = 256 << 20;

/// What only a primary knows.
#[derive(Debug)]
pub(super) struct Primary {
    /// Members that are connected and follow.
    followers: BTreeMap<MemberId, Stream>,
    /// What is known of members that answers wait for, connected or not.
    needed: BTreeMap<MemberId, Needed>,
    /// Whoever is needed although no view has it yet: with that it comes to have all that is committed.
    joining: Option<MemberId>,
    committed: u64,
    proposed: Option<(View, u64)>,
    /// A backup that the next view is to be without.
    unwanted: Option<MemberId>,
    /// Processes that an operator wanted out, and that do not come back.
    dismissed: BTreeSet<MemberId>,
    /// Whoever has asked to be let in, and waits for the view that is proposed.
    asks: Option<MemberId>,
    beat_ns: Option<u64>,
}

/// What a member says that wants to follow.
pub(super) struct Joiner {
    pub(super) peer: Peer,
    pub(super) stream: u64,
    pub(super) position: Option<Position>,
    pub(super) memory_bytes: u64,
    pub(super) is_blank: bool,
}

/// The stream to a follower.
#[derive(Debug)]
struct Stream {
    peer: Peer,
    /// The follower's name for it.
    stream: u64,
    /// The last entry that was sent, and the last that the follower has applied.
    sent: u64,
    applied: u64,
    copy: Option<Copying>,
    /// Until when it has granted, needed or not.
    granted_until_ns: u64,
}

/// Memory that is being copied.
#[derive(Debug)]
struct Copying {
    /// What comes next.
    next: u64,
    /// How many bytes were sent, and how many of them have come. (Zeros may be left out.)
    sent: u64,
    copied: u64,
    /// Zeros need not be sent.
    is_blank: bool,
    /// The end has been sent.
    is_sent: bool,
    /// When the part that is under way was begun, and how many requests had been executed by then.
    begun_ns: u64,
    requests: u64,
    /// When the next part may begin.
    resumes_ns: u64,
}

/// A member that answers wait for.
#[derive(Debug)]
struct Needed {
    /// The last entry that it has.
    applied: u64,
    /// Until when it has granted.
    granted_until_ns: u64,
    /// When something last came from it.
    heard_ns: u64,
}

impl Primary {
    fn new() -> Self {
        Self {
            followers: BTreeMap::new(),
            needed: BTreeMap::new(),
            joining: None,
            committed: 0,
            proposed: None,
            unwanted: None,
            dismissed: BTreeSet::new(),
            asks: None,
            beat_ns: None,
        }
    }

    pub(super) fn committed(&self) -> u64 {
        self.committed
    }

    /// The connection to a member broke. `last` is where the log ends.
    pub(super) fn unlink(&mut self, to: MemberId, last: u64) {
        self.followers.remove(&to);
        if self.joining == Some(to) {
            self.drop_joining(last);
        }
    }

    /// Answers no longer wait for whoever was about to join.
    fn drop_joining(&mut self, last: u64) {
        if let Some(joining) = self.joining.take() {
            self.needed.remove(&joining);
            self.commit(last);
        }
    }

    /// The last entry that all who are needed have.
    fn commit(&mut self, last: u64) {
        let least = self.needed.values().map(|needed| needed.applied).min().unwrap_or(last);
        self.committed = self.committed.max(least);
    }

    fn is_granted(&self, now_ns: u64) -> bool {
        self.needed.values().all(|needed| now_ns < needed.granted_until_ns)
            || is_planted("mirror: a primary answers without its grants")
    }
}

impl Member {
    fn primary(&mut self) -> Option<&mut Primary> {
        match &mut self.role {
            Role::Primary(primary) => Some(primary),
            Role::Follower(_) => None,
        }
    }

    pub(super) fn lags(&self, primary: &Primary) -> Vec<(Peer, u64, u64)> {
        let last = self.log.last();
        let lag = |stream: &Stream| {
            let bytes = stream
                .copy
                .as_ref()
                .map_or(0, |copy| self.memory.bytes() - copy.next + copy.sent - copy.copied);
            (stream.peer.clone(), last.saturating_sub(stream.applied), bytes)
        };
        primary.followers.values().map(lag).collect()
    }

    /// The view says that this member leads, which it did not before.
    pub(super) fn become_primary(&mut self, now_ns: u64) {
        let epoch = self.epoch();
        if self.begins_anew() {
            // Nobody else draws this number.
            self.group = self.me.id.0;
        }
        let last = self.log.last();
        self.history.enter(epoch, last);
        let mut primary = Primary::new();
        // All entries of the view before are here, and nobody else is needed.
        primary.committed = last;
        self.role = Role::Primary(primary);
        self.need_backups(now_ns);
    }

    pub(super) fn go_on_as_primary(&mut self, now_ns: u64) {
        let epoch = self.epoch();
        let last = self.log.last();
        self.history.enter(epoch, last);
        let (view, mut asks, mut left) = (self.view.clone(), None, Vec::new());
        if let Some(primary) = self.primary()
            && let Some(view) = &view
        {
            primary.proposed = None;
            primary.unwanted = primary.unwanted.filter(|unwanted| view.has_backup(*unwanted));
            asks = primary.asks.take();
            let is_out = |id: &MemberId| primary.dismissed.contains(id) && !view.has_backup(*id);
            left.extend(primary.followers.keys().copied().filter(is_out));
            left.iter().for_each(|id| drop(primary.followers.remove(id)));
        }
        // They are not followers, who learn of it with the next beat.
        left.extend(asks);
        left.into_iter().for_each(|other| self.refuse_outdated(other));
        self.need_backups(now_ns);
        self.beat_all(now_ns);
        self.settle(now_ns);
    }

    /// Whoever is in the view is needed, and nobody else.
    fn need_backups(&mut self, now_ns: u64) {
        let Some(view) = self.view.clone() else { return };
        let Some(primary) = self.primary() else { return };
        primary.needed.retain(|id, _| view.has_backup(*id));
        primary.joining = None;
        for backup in &view.backups {
            primary.need(now_ns, backup.id);
        }
        let last = self.log.last();
        if let Some(primary) = self.primary() {
            primary.commit(last);
        }
    }

    /// Somebody else leads now. Answers that have not left never will.
    pub(super) fn step_down(&mut self, now_ns: u64) {
        self.role = Role::Follower(Follower::deposed(now_ns));
        if let Some(primary) = self.view.as_ref().map(|view| view.primary.id) {
            self.ask_to_join(now_ns, primary);
        }
    }

    /// Whether what was executed may be answered: everything up to the entry that is returned.
    #[inline]
    #[must_use]
    pub fn released(&self, now_ns: u64) -> Option<u64> {
        match &self.role {
            Role::Primary(primary) if primary.is_granted(now_ns) => {
                if is_planted("mirror: answers leave before backups have them") {
                    return Some(self.log.last());
                }
                Some(primary.committed)
            }
            _ => None,
        }
    }

    /// Lets a client in, under a new identity or the one that another group has given it.
    ///
    /// # Errors
    /// If it was cut off, or this is not the primary.
    pub fn admit(&mut self, client: Option<EndpointId>) -> Result<Executed<EndpointId>, Refusal> {
        let id = client.unwrap_or_else(|| self.clients.next_identity());
        self.require_primary()?;
        if self.clients.is_fenced(id) {
            return Err(Refusal::Fenced);
        }
        let hold = self.log_change(Entry::head(Kind::Admit, id.0, 0, 0, 0), &[], &[]);
        Ok(Executed { answer: id, hold })
    }

    /// Lets a client in again that has the answers to all requests before `answered`, and was sent `taken` messages.
    ///
    /// # Errors
    /// If it was cut off or forgotten, or this is not the primary.
    pub fn resume(&mut self, client: EndpointId, answered: u32, taken: u64) -> Result<Executed, Refusal> {
        self.require_client(client)?;
        if let Some(known) = self.clients.get(client) {
            known.read_up_to(answered);
        }
        let hold = self.took(client, taken)?;
        Ok(Executed { answer: (), hold })
    }

    /// The client has been sent `taken` messages in all, and needs none of them again.
    ///
    /// # Errors
    /// As [`Member::resume`].
    pub fn took(&mut self, client: EndpointId, taken: u64) -> Result<u64, Refusal> {
        self.require_client(client)?;
        if self.clients.get(client).is_some_and(|known| known.taken >= taken) {
            return Ok(self.log.last());
        }
        Ok(self.log_change(Entry::head(Kind::Taken, client.0, 0, 0, taken), &[], &[]))
    }

    /// The client will not come back. Its identity is not used again.
    ///
    /// # Errors
    /// If this is not the primary.
    pub fn forget(&mut self, client: EndpointId) -> Result<(), Refusal> {
        self.require_primary()?;
        if self.clients.knows(client) {
            self.log_change(Entry::head(Kind::Forget, client.0, 0, 0, 0), &[], &[]);
        }
        Ok(())
    }

    /// Executes the checked verbs of a request and appends the answer's bytes to `output`. `body` is what the slices of
    /// WRITEs refer to; READs go to the output one after the other.
    ///
    /// # Errors
    /// If the client is unknown or cut off, or this is not the primary; then nothing is executed.
    pub fn execute(
        &mut self,
        client: EndpointId,
        request: u32,
        answered: u32,
        verbs: &[Verb],
        body: &mut [u8],
        output: &mut Vec<u8>,
    ) -> Result<Executed, Refusal> {
        self.require_client(client)?;
        if let Some(known) = self.clients.get(client)
            && let Some(answer) = known.answer(request)
        {
            output.extend_from_slice(answer);
            return Ok(self.executed(()));
        }
        self.requests += 1;
        let start = output.len();
        self.writer.begin();
        for verb in verbs {
            match *verb {
                Verb::Read { source, target } => {
                    let at = output.len();
                    output.resize(at + target.bytes as usize, 0);
                    self.memory.read(source.offset(), &mut output[at..]);
                }
                _ => {
                    let old = self.memory.execute(verb, body);
                    self.writer.verb(verb, old, body);
                    output.extend_from_slice(&old.to_le_bytes()[..verb.result_bytes()]);
                }
            }
        }
        if self.writer.has_effects() {
            let head = Entry::head(Kind::Batch, client.0, request, answered, 0);
            self.log_written(head, &output[start..]);
        } else if is_planted("mirror: a read does not wait for what it has seen") {
            return Ok(Executed { answer: (), hold: 0 });
        }
        // What changed nothing may be executed again by another primary, as if it had come later.
        Ok(self.executed(()))
    }

    fn executed<T>(&self, answer: T) -> Executed<T> {
        Executed {
            answer,
            hold: self.log.last(),
        }
    }

    /// Puts a message into a client's mailbox.
    ///
    /// # Errors
    /// As [`Member::execute`].
    pub fn send(
        &mut self,
        client: EndpointId,
        request: u32,
        answered: u32,
        peer: EndpointId,
        message: &Message,
    ) -> Result<Executed<Status>, Refusal> {
        self.require_client(client)?;
        if let Some(known) = self.clients.get(client)
            && let Some(answer) = known.answer(request)
        {
            let status = Status::from_answer(answer);
            return Ok(self.executed(status));
        }
        let status = match self.clients.get(peer) {
            None => Status::PeerUnknown,
            Some(peer) if peer.mailbox.len() >= MAILBOX_MESSAGES_MAX => Status::MailboxFull,
            Some(_) => Status::Done,
        };
        let head = Entry::head(Kind::Send, client.0, request, answered, peer.0);
        let delivered = (status == Status::Done).then_some(&message[..]);
        self.log_change(head, delivered.as_slice(), &[status as u8]);
        Ok(self.executed(status))
    }

    /// Cuts a client off: none of its requests is executed after this, by any primary.
    ///
    /// # Errors
    /// As [`Member::execute`].
    pub fn fence(
        &mut self,
        client: EndpointId,
        request: u32,
        answered: u32,
        peer: EndpointId,
    ) -> Result<Executed, Refusal> {
        self.require_client(client)?;
        if self
            .clients
            .get(client)
            .is_some_and(|known| known.answer(request).is_some())
        {
            return Ok(self.executed(()));
        }
        self.log_change(Entry::head(Kind::Fence, client.0, request, answered, peer.0), &[], &[0]);
        Ok(self.executed(()))
    }

    /// A request that changes nothing: its answer waits for what was executed before.
    ///
    /// # Errors
    /// As [`Member::execute`].
    pub fn ping(&self, client: EndpointId) -> Result<Executed, Refusal> {
        self.require_client(client)?;
        Ok(self.executed(()))
    }

    fn require_primary(&self) -> Result<(), Refusal> {
        if self.is_primary() {
            Ok(())
        } else {
            Err(Refusal::NotPrimary)
        }
    }

    #[inline]
    fn require_client(&self, client: EndpointId) -> Result<(), Refusal> {
        self.require_primary()?;
        if self.clients.knows(client) {
            return Ok(());
        }
        Err(if self.clients.is_fenced(client) {
            Refusal::Fenced
        } else {
            Refusal::Stranger
        })
    }

    /// Logs what the writer has begun, and does what it says of clients.
    fn log_written(&mut self, head: super::entry::EntryHead, answer: &[u8]) -> u64 {
        let bytes = self.writer.end(head, answer);
        let number = self.log.push(bytes);
        let entry = Entry::decode(&mut &*bytes).expect("made here");
        self.clients.apply(&entry, number);
        if let Some(primary) = self.primary() {
            primary.commit(number);
        }
        number
    }

    fn log_change(&mut self, head: super::entry::EntryHead, effects: &[&[u8]], answer: &[u8]) -> u64 {
        self.writer.begin();
        for bytes in effects {
            self.writer.effect(0, bytes);
        }
        if is_planted("mirror: a fence is not logged") && head.kind == Kind::Fence as u8 {
            let bytes = self.writer.end(head, answer).to_vec();
            let entry = Entry::decode(&mut &*bytes).expect("made here");
            let last = self.log.last();
            self.clients.apply(&entry, last);
            return last;
        }
        self.log_written(head, answer)
    }

    /// A member wants to follow.
    pub(super) fn let_join(&mut self, now_ns: u64, from: MemberId, joiner: Joiner) {
        let Joiner {
            peer,
            stream,
            position,
            memory_bytes,
            is_blank,
        } = joiner;
        let last = self.log.last();
        let is_dismissed = self
            .primary()
            .is_some_and(|primary| primary.dismissed.contains(&peer.id));
        if !self.is_primary() || memory_bytes != self.memory.bytes() || is_dismissed {
            self.refuse_outdated(from);
            return;
        }
        let epoch = self.epoch();
        let continues = position.filter(|&position| {
            let fits =
                self.history.continues(position, last) || is_planted("mirror: a log of another epoch is continued");
            fits && position.last <= last && self.log.reaches_back_to(position.last)
        });
        if continues.is_none() && self.is_named(&peer) {
            // Its memory is to be copied over: first nobody may think any more that it is of use.
            let former = self
                .view
                .as_ref()
                .and_then(|view| view.backups.iter().find(|backup| backup.segment == peer.segment));
            let former = former.map(|backup| backup.id);
            if let Some(primary) = self.primary() {
                primary.unwanted = primary.unwanted.or(former);
                primary.asks = Some(from);
            }
            self.settle(now_ns);
            return;
        }
        let stream = match continues {
            Some(Position { last, .. }) => Stream {
                peer,
                stream,
                sent: last,
                applied: last,
                copy: None,
                granted_until_ns: 0,
            },
            None => {
                self.tell(from, Note::CopyBegins { stream, epoch });
                Stream {
                    peer,
                    stream,
                    sent: last,
                    applied: 0,
                    copy: Some(Copying {
                        next: 0,
                        sent: 0,
                        copied: 0,
                        is_blank,
                        is_sent: false,
                        begun_ns: now_ns,
                        requests: 0,
                        resumes_ns: now_ns,
                    }),
                    granted_until_ns: 0,
                }
            }
        };
        let applied = stream.applied;
        let is_whole = stream.copy.is_none();
        if let Some(primary) = self.primary() {
            primary.followers.insert(from, stream);
            if is_whole && let Some(needed) = primary.needed.get_mut(&from) {
                needed.applied = needed.applied.max(applied);
            }
            primary.commit(last);
        }
        self.beat(now_ns, from);
        self.settle(now_ns);
        self.flush(now_ns);
    }

    /// Whether the view, or the one that is proposed, has a backup over this peer's segment.
    fn is_named(&mut self, peer: &Peer) -> bool {
        let names = |view: &View| view.backups.iter().any(|backup| backup.segment == peer.segment);
        let is_in_view = self.view.as_ref().is_some_and(names);
        let is_proposed = self
            .primary()
            .and_then(|primary| primary.proposed.as_ref())
            .is_some_and(|(view, _)| names(view));
        is_in_view || is_proposed
    }

    /// A follower says how far it is.
    ///
    /// It may say so before it has taken in anything of its stream: then its log is what it asked with, and nothing is copied.
    pub(super) fn has_applied(&mut self, now_ns: u64, from: MemberId, (name, last, copied): (u64, Option<u64>, u64)) {
        let (own_last, requests) = (self.log.last(), self.requests);
        let Some(primary) = self.primary() else { return };
        let Some(stream) = primary.followers.get_mut(&from).filter(|stream| stream.stream == name) else {
            return;
        };
        if let Some(copy) = &mut stream.copy {
            let was_under_way = copy.copied < copy.sent;
            copy.copied = copy.copied.max(copied).min(copy.sent);
            if was_under_way && copy.copied == copy.sent && copy.requests != requests {
                copy.resumes_ns = now_ns + RESTS * now_ns.saturating_sub(copy.begun_ns);
            }
            if copy.is_sent && copy.copied == copy.sent && last.is_some() {
                stream.copy = None;
            }
        }
        if let (None, Some(last)) = (&stream.copy, last) {
            stream.applied = stream.applied.max(last.min(stream.sent));
        }
        let applied = stream.applied;
        if let Some(needed) = primary.needed.get_mut(&from) {
            needed.applied = needed.applied.max(applied);
            needed.heard_ns = now_ns;
        }
        primary.commit(own_last);
        self.settle(now_ns);
        self.flush(now_ns);
    }

    /// A follower grants time.
    ///
    /// Whatever the view: it is a promise about time to this member, which only asks for it as primary.
    pub(super) fn granted(&mut self, now_ns: u64, from: MemberId, sent_ns: u64) {
        let until_ns = sent_ns.saturating_add(self.settings.lease_ns);
        let Some(primary) = self.primary() else { return };
        if let Some(stream) = primary.followers.get_mut(&from) {
            stream.granted_until_ns = stream.granted_until_ns.max(until_ns);
        }
        if let Some(needed) = primary.needed.get_mut(&from) {
            needed.granted_until_ns = needed.granted_until_ns.max(until_ns);
            needed.heard_ns = now_ns;
        }
        self.settle(now_ns);
    }

    /// An operator wants a backup out of the group: with a membership it is proposed, without one the view is decided by whoever asked.
    ///
    /// # Errors
    /// Why that is impossible.
    pub fn remove_backup(&mut self, now_ns: u64, address: &str) -> Result<(), &'static str> {
        let view = self.view.clone();
        let Some(primary) = self.primary() else {
            return Err("it is not the primary");
        };
        let backup = view.and_then(|view| view.backups.into_iter().find(|backup| backup.address == address));
        let Some(backup) = backup else {
            return Err("it has no such backup");
        };
        primary.unwanted = Some(backup.id);
        primary.dismissed.insert(backup.id);
        self.settle(now_ns);
        Ok(())
    }

    /// Proposes another view if one is due.
    fn settle(&mut self, now_ns: u64) {
        let Some(view) = self.view.clone() else { return };
        let settings = self.settings;
        let me = self.me.id;
        let last = self.log.last();
        let Role::Primary(primary) = &mut self.role else { return };
        if primary.proposed.is_some() {
            return;
        }
        let committed = primary.committed;
        let next = if let Some(unwanted) = primary.unwanted {
            Some(view.without_backup(unwanted))
        } else if view.backups.len() < settings.backups_max {
            let counts_early = is_planted("mirror: a joining member counts before it is whole");
            let is_new = |stream: &&Stream| {
                let is_other = stream.peer.id != me && !view.includes(stream.peer.id);
                is_other && !primary.dismissed.contains(&stream.peer.id)
            };
            let has_copied =
                |stream: &&Stream| stream.copy.is_none() && now_ns < stream.granted_until_ns || counts_early;
            let candidates = || primary.followers.values().filter(is_new).filter(has_copied);
            let ready = candidates().find(|stream| stream.applied >= committed || counts_early);
            let next = ready.map(|stream| view.with_backup(stream.peer.clone()));
            if next.is_none() && primary.joining.is_none() {
                // While clients work without a pause, it would always be an entry behind. So answers wait for it from now on,
                // and it has all that is committed after one round trip.
                let close =
                    candidates().find(|stream| self.log.bytes_between(stream.applied, last) <= APPEND_WINDOW_BYTES);
                if let Some(id) = close.map(|stream| stream.peer.id) {
                    primary.joining = Some(id);
                    primary.need(now_ns, id);
                }
            }
            next
        } else {
            None
        };
        if let Some(next) = next {
            self.propose(now_ns, next);
        }
    }

    fn propose(&mut self, now_ns: u64, next: View) {
        let Some(primary) = self.primary() else { return };
        primary.proposed = Some((next.clone(), now_ns));
        // It is more than about to join now: only an answer of the membership can leave it out.
        primary.joining = primary.joining.filter(|id| !next.has_backup(*id));
        // From now on whoever may be in the next view is needed.
        for backup in &next.backups {
            primary.need(now_ns, backup.id);
        }
        self.outputs.push_back(Output::Propose(next));
    }

    /// Sends followers what they have room for. To be called after requests, once for many.
    pub fn flush(&mut self, now_ns: u64) {
        let epoch = self.epoch();
        let requests = self.requests;
        let Role::Primary(primary) = &mut self.role else { return };
        let mut fallen_behind = Vec::new();
        for (&to, stream) in &mut primary.followers {
            if !self.log.reaches_back_to(stream.sent) {
                fallen_behind.push(to);
                continue;
            }
            // Entries first: memory that is read below has their changes.
            while stream.sent < self.log.last() {
                let is_copying = stream.copy.is_some();
                let under_way = self.log.bytes_between(stream.applied, stream.sent);
                if !is_copying && under_way > APPEND_WINDOW_BYTES {
                    break;
                }
                let mut entries = Vec::new();
                let first = stream.sent + 1;
                stream.sent = self.log.after_to(stream.sent, APPEND_BYTES, &mut entries);
                self.outputs.push_back(Output::Tell(
                    to,
                    Note::Append {
                        stream: stream.stream,
                        epoch,
                        first,
                        entries,
                    },
                ));
            }
            let Some(copy) = &mut stream.copy else { continue };
            if copy.copied < copy.sent {
                if copy.requests != requests {
                    // Clients are served: what is under way comes first.
                    continue;
                }
            } else if now_ns < copy.resumes_ns {
                continue;
            } else {
                copy.begun_ns = now_ns;
                copy.requests = requests;
            }
            let end = self.memory.bytes();
            let mut seen = 0;
            while copy.next < end && copy.sent - copy.copied < COPY_WINDOW_BYTES && seen < SCAN_BYTES_MAX {
                let count = (end - copy.next).min(COPY_BYTES as u64) as usize;
                seen += count;
                let mut bytes = vec![0; count];
                self.memory.read(copy.next, &mut bytes);
                let offset = copy.next;
                copy.next += count as u64;
                let is_last = copy.next == end;
                // Zeros that are sent all the same bring an answer, with which the copy goes on.
                if copy.is_blank && !is_last && seen < SCAN_BYTES_MAX && bytes.iter().all(|&byte| byte == 0) {
                    continue;
                }
                copy.sent += count as u64;
                if is_planted("mirror: a copy skips a part") && offset == COPY_BYTES as u64 {
                    copy.sent -= count as u64;
                    continue;
                }
                self.outputs.push_back(Output::Tell(
                    to,
                    Note::Memory {
                        stream: stream.stream,
                        epoch,
                        offset,
                        bytes,
                    },
                ));
            }
            if copy.next == end && !copy.is_sent {
                copy.is_sent = true;
                let mut clients = Vec::new();
                self.clients.encode(&mut clients);
                let note = Note::CopyEnds {
                    stream: stream.stream,
                    epoch,
                    last: stream.sent,
                    clients,
                    group: self.group,
                };
                self.outputs.push_back(Output::Tell(to, note));
            }
        }
        for id in fallen_behind {
            primary.followers.remove(&id);
        }
        self.trim();
    }

    /// Forgets entries that nobody needs.
    fn trim(&mut self) {
        let Role::Primary(primary) = &self.role else { return };
        let mut least = self.log.last();
        for needed in primary.needed.values() {
            least = least.min(needed.applied);
        }
        for stream in primary.followers.values() {
            if self.log.bytes_between(stream.sent, self.log.last()) < BEHIND_BYTES_MAX {
                least = least.min(stream.sent);
            }
        }
        self.log.trim(least);
    }

    fn beat(&mut self, now_ns: u64, to: MemberId) {
        if let Some(view) = self.view.clone() {
            self.tell(to, Note::Beat { view, sent_ns: now_ns });
        }
    }

    /// Tells all followers of the view, and asks for time.
    fn beat_all(&mut self, now_ns: u64) {
        let Some(primary) = self.primary() else { return };
        primary.beat_ns = Some(now_ns);
        let followers: Vec<_> = primary.followers.keys().copied().collect();
        for to in followers {
            self.beat(now_ns, to);
        }
    }

    pub(super) fn tick_primary(&mut self, now_ns: u64) {
        let settings = self.settings;
        let view = self.view.clone();
        let last = self.log.last();
        let Some(primary) = self.primary() else { return };
        let is_due = primary
            .beat_ns
            .is_none_or(|beat_ns| now_ns >= beat_ns + settings.lease_ns / 4);
        // Whoever is in no view can be left out without asking anybody.
        let is_silent = |needed: &Needed| now_ns > needed.heard_ns + settings.lease_ns / 2;
        if primary
            .joining
            .is_some_and(|id| primary.needed.get(&id).is_some_and(is_silent))
        {
            primary.drop_joining(last);
        }
        let mut silent = None;
        if let Some((next, when)) = &mut primary.proposed {
            if now_ns >= *when + settings.lease_ns / 2 {
                // No answer: the membership may not have heard of it.
                *when = now_ns;
                let next = next.clone();
                self.outputs.push_back(Output::Propose(next));
            }
        } else if settings.is_automatic
            && let Some(view) = &view
        {
            let of_view = primary.needed.iter().filter(|(id, _)| view.has_backup(**id));
            let mut of_view = of_view.map(|(id, needed)| (*id, needed.heard_ns));
            silent = of_view
                .find(|(_, heard_ns)| now_ns > heard_ns + settings.lease_ns / 2)
                .map(|(id, _)| id);
        }
        if let (Some(silent), Some(view)) = (silent, &view) {
            self.propose(now_ns, view.without_backup(silent));
        }
        if is_due {
            self.beat_all(now_ns);
        }
        self.settle(now_ns);
        self.flush(now_ns);
    }
}

impl Primary {
    fn need(&mut self, now_ns: u64, id: MemberId) {
        let stream = self.followers.get(&id);
        self.needed.entry(id).or_insert(Needed {
            applied: stream.map_or(0, |stream| stream.applied),
            granted_until_ns: stream.map_or(0, |stream| stream.granted_until_ns),
            heard_ns: now_ns,
        });
    }
}
