//! A node that is a member of a mirrored group: the [`Member`]'s sockets, clock and tasks.
//!
//! On the path: between a client's frames and the memory. All on one thread, like every server:
//! - each client has a [`session`]: what it executes goes through the member, and its answers leave when the member lets them go;
//! - each connection to another member has a [`link`]; a backup dials its primary, and a primary dials backups that do not;
//! - a task ticks, one takes in what the membership decides. Without a membership an operator does ([`control`]).

use core::cell::{Cell, RefCell};
use core::task::Waker;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use tokio::sync::{Notify, mpsc};

use super::secret::Secret;
use crate::host::{HostClock, spawn_local};
use crate::message::EndpointId;
use crate::mirror::{Contents, Member, MemberId, Note, Output, Peer, Settings, Start, View};
use crate::shm::{MirrorUse, Segment};

pub(super) mod accept;
pub(super) mod control;
pub(super) mod link;
pub(super) mod record;
pub(super) mod session;

use session::SessionHandle;

/// How often a member looks at its clock, in parts of a lease.
const TICKS_PER_LEASE: u64 = 8;

/// Decides on views: the two ends of whatever asks a service like etcd.
#[derive(Debug)]
pub struct Membership {
    /// Who the member is to whoever decides: drawn for this run of the process, and never 0.
    pub member: MemberId,
    /// Takes what members propose.
    pub proposals: mpsc::UnboundedSender<View>,
    /// Brings what was decided, and whatever is in force when somebody asked in vain.
    pub decisions: mpsc::UnboundedReceiver<View>,
}

/// How a node is mirrored.
#[derive(Debug)]
pub struct MirrorOptions {
    /// Leases, and who decides.
    pub settings: Settings,
    /// Where clients and members reach this one: `host:port`.
    pub address: String,
    /// Without a membership: the primary whose backup this is to be. Without either this member begins as primary.
    pub backup_of: Option<String>,
    /// Wait for an operator to say whose backup this is to be.
    pub is_standby: bool,
    /// What the memory holds.
    pub contents: Contents,
    /// Who decides, if not an operator.
    pub membership: Option<Membership>,
    /// Where to write down who is in the group, for the next process over this segment. Without a membership it begins with that.
    pub record: Option<PathBuf>,
}

/// What sessions, links and tasks of a member share.
pub(super) struct Group {
    member: RefCell<Member>,
    secret: Option<Secret>,
    /// Where the primary is, as far as only the operator knows.
    backup_of: RefCell<Option<String>>,
    record: Option<PathBuf>,
    proposals: Option<mpsc::UnboundedSender<View>>,
    sessions: RefCell<BTreeMap<EndpointId, Rc<SessionHandle>>>,
    /// Clients that have no session, the oldest first.
    departed: RefCell<VecDeque<EndpointId>>,
    /// Clients that the group knows from before this member was primary and that have not come back, and when it became primary.
    absent: RefCell<(u64, BTreeSet<EndpointId>)>,
    was_primary: Cell<bool>,
    links: RefCell<BTreeMap<MemberId, Rc<LinkQueue>>>,
    /// Rings when roles, views or what may leave has changed.
    changed: Notify,
    /// What was released when sessions were woken last.
    released: Cell<Option<u64>>,
    /// Someone is to look for a link.
    dials: Notify,
    _use: MirrorUse,
}

/// What waits to go to another member.
#[derive(Default)]
pub(super) struct LinkQueue {
    /// Where the other member listens, as far as that is known.
    address: RefCell<Option<String>>,
    output: RefCell<Vec<u8>>,
    ready: Notify,
    is_over: Cell<bool>,
}

/// How many bytes may wait for a member: more than a backup may be behind while answers wait for it.
const WAITING_BYTES_MAX: usize = 256 << 20;
/// How many clients that have gone are remembered, in case they come back.
const DEPARTED_MAX: usize = 1024;
/// How long a new primary waits for clients of the one before: longer than any client looks for a primary.
const ABSENT_NS_MAX: u64 = 3600 * 1_000_000_000;

impl Group {
    pub(super) fn new(
        segment: &Segment,
        secret: Option<Secret>,
        options: MirrorOptions,
    ) -> io::Result<(Rc<Self>, Option<mpsc::UnboundedReceiver<View>>)> {
        let is_used = segment.use_by_mirror().map_err(io::Error::other)?;
        let now_ns = HostClock.now_ns();
        let id = options.membership.as_ref().map(|membership| membership.member);
        let me = Peer {
            id: id.unwrap_or_else(MemberId::draw),
            segment: segment.segment_id() as u64,
            address: options.address,
        };
        let mut member = Member::new(
            Start {
                me,
                settings: options.settings,
                memory: segment.region().clone(),
                contents: options.contents,
                first_sequence: HostClock.unix_ms(),
            },
            now_ns,
        );
        let record = options.record.as_deref().map(record::read).transpose()?.flatten();
        let (proposals, decisions) = match options.membership {
            Some(membership) => (Some(membership.proposals), Some(membership.decisions)),
            None => (None, None),
        };
        if proposals.is_some() {
            // What it knew before counts from the first moment: a primary of an earlier view must not copy over what it holds.
            // What lies beside a segment that is new is of another one.
            if let Some(view) = record.filter(|_| options.contents == Contents::Inherited) {
                member.decided(now_ns, view);
            }
        } else {
            begin_by_hand(
                &mut member,
                now_ns,
                record,
                options.is_standby || options.backup_of.is_some(),
            );
        }
        let group = Self {
            member: RefCell::new(member),
            secret,
            backup_of: RefCell::new(options.backup_of),
            record: options.record,
            proposals,
            sessions: RefCell::default(),
            departed: RefCell::default(),
            absent: RefCell::default(),
            was_primary: Cell::new(false),
            links: RefCell::default(),
            changed: Notify::new(),
            released: Cell::new(None),
            dials: Notify::new(),
            _use: is_used,
        };
        Ok((Rc::new(group), decisions))
    }

    /// Starts what runs beside sessions and links.
    pub(super) fn start(self: &Rc<Self>, decisions: Option<mpsc::UnboundedReceiver<View>>) {
        spawn_local(Box::pin(tick(self.clone())));
        spawn_local(Box::pin(link::dial(self.clone())));
        if let Some(decisions) = decisions {
            spawn_local(Box::pin(take_decisions(self.clone(), decisions)));
        }
    }

    /// Works on the member, and carries out what follows.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Member, u64) -> T) -> T {
        let now_ns = HostClock.now_ns();
        let result = work(&mut self.member.borrow_mut(), now_ns);
        self.carry_out(now_ns);
        result
    }

    /// Executes for a client. What is to be sent to backups goes out with the next turn of the links, for many clients at once.
    pub(super) fn execute<T>(&self, work: impl FnOnce(&mut Member) -> T) -> T {
        work(&mut self.member.borrow_mut())
    }

    /// Wakes the links, which send what was executed.
    pub(super) fn executed(&self) {
        for link in self.links.borrow().values() {
            link.ready.notify_one();
        }
    }

    /// Does what the member asks for, and wakes sessions whose answers may leave now.
    fn carry_out(&self, now_ns: u64) {
        let mut member = self.member.borrow_mut();
        member.flush(now_ns);
        let mut has_changed = false;
        while let Some(output) = member.next_output() {
            match output {
                Output::Tell(to, note) => {
                    if let Some(link) = self.links.borrow().get(&to) {
                        link.push(&note);
                    }
                }
                Output::Propose(view) => match &self.proposals {
                    // The other end lives as long as the process.
                    Some(proposals) => drop(proposals.send(view)),
                    None => member.decided(now_ns, view),
                },
                Output::Changed => {
                    if let Some(view) = member.view() {
                        tracing::info!(%view, role = %member.standing().role, "another view");
                        // Before anything is answered in this view.
                        if let Some(record) = &self.record
                            && let Err(error) = record::write(record, view)
                        {
                            let record = record.display();
                            tracing::error!(
                                "cannot write {record}: {error}; a restart of this node will not know the group"
                            );
                        }
                    }
                    has_changed = true;
                }
            }
        }
        let released = member.released(now_ns);
        drop(member);
        if has_changed {
            for (id, link) in self.links.borrow().iter() {
                if let Some(address) = self.address_of(*id) {
                    link.address.replace(Some(address));
                }
            }
            self.dials.notify_one();
        }
        if has_changed || released != self.released.replace(released) {
            for session in self.sessions.borrow().values() {
                if has_changed || session.waits() {
                    session.wake();
                }
            }
            self.changed.notify_waiters();
        }
    }

    /// Waits until an answer that holds at this entry may leave. Returns whether it may: not if somebody else is primary.
    pub(super) async fn release(&self, hold: u64) -> bool {
        loop {
            let changed = self.changed.notified();
            match self.released_now() {
                Some(released) if released >= hold => return true,
                _ => {}
            }
            if !self.member.borrow().is_primary() {
                return false;
            }
            changed.await;
        }
    }

    /// Up to which entry answers may leave now. Whoever waits for what it says is woken when it says more.
    pub(super) fn released_now(&self) -> Option<u64> {
        let released = self.member.borrow().released(HostClock.now_ns());
        if released.is_none() {
            // Grants have run out without anybody's doing: that they are there again is a change.
            self.released.set(None);
        }
        released
    }

    fn insert(&self, id: EndpointId, handle: Rc<SessionHandle>) {
        self.departed.borrow_mut().retain(|departed| *departed != id);
        self.absent.borrow_mut().1.remove(&id);
        if let Some(before) = self.sessions.borrow_mut().insert(id, handle) {
            before.end();
        }
    }

    /// A client's connection has ended. It may come back, but not for ever.
    fn depart(&self, id: EndpointId, handle: &Rc<SessionHandle>) {
        let mut sessions = self.sessions.borrow_mut();
        if !sessions.get(&id).is_some_and(|current| Rc::ptr_eq(current, handle)) {
            return;
        }
        sessions.remove(&id);
        drop(sessions);
        self.has_no_session(id);
    }

    /// A client has no session. It may get one, but is not waited for for ever.
    fn has_no_session(&self, id: EndpointId) {
        let mut departed = self.departed.borrow_mut();
        departed.push_back(id);
        if departed.len() > DEPARTED_MAX
            && let Some(oldest) = departed.pop_front()
        {
            // Only a primary forgets; others learn of it.
            let _ = self.member.borrow_mut().forget(oldest);
        }
    }

    /// Notes whom a new primary should see again, and gives up those who have not come.
    fn look_for_absent(&self, now_ns: u64) {
        let is_primary = self.member.borrow().is_primary();
        if is_primary && !self.was_primary.replace(is_primary) {
            let mut known = self.member.borrow().client_ids();
            known.retain(|id| !self.sessions.borrow().contains_key(id));
            self.absent.replace((now_ns, known));
        }
        self.was_primary.set(is_primary);
        let (since_ns, absent) = &mut *self.absent.borrow_mut();
        if now_ns > since_ns.saturating_add(ABSENT_NS_MAX) {
            core::mem::take(absent)
                .into_iter()
                .for_each(|id| self.has_no_session(id));
        }
    }

    /// Ends the session of a client that was cut off.
    fn cut_off(&self, id: EndpointId) {
        if let Some(handle) = self.sessions.borrow_mut().remove(&id) {
            handle.end();
        }
    }

    /// Where a member of the view listens.
    fn address_of(&self, member: MemberId) -> Option<String> {
        let known = self.member.borrow();
        let peer = known.view()?.peers().find(|peer| peer.id == member)?;
        Some(peer.address.clone())
    }

    /// An operator says whose backup this member is to be.
    fn follow(&self, primary: String) -> Result<(), &'static str> {
        if self.proposals.is_some() {
            return Err("etcd decides on its group, which it joins by itself");
        }
        let member = self.member.borrow();
        let me = member.me();
        if member.view().is_some_and(|view| view.includes(me.id)) {
            return Err("it is in a group already");
        }
        if member.is_dismissed() {
            return Err("it was removed from its group: start its process anew");
        }
        if member.view().is_some_and(|view| view.primary.segment == me.segment) {
            return Err("its segment was primary: if what it holds may be replaced, stop it and remove its .view file");
        }
        self.backup_of.replace(Some(primary));
        self.dials.notify_one();
        Ok(())
    }

    pub(super) fn wake_all(&self) {
        for session in self.sessions.borrow().values() {
            session.wake();
        }
    }
}

impl LinkQueue {
    fn push(&self, note: &Note) {
        let mut output = self.output.borrow_mut();
        let start = output.len();
        output.extend_from_slice(&[0; 4]);
        note.encode(&mut output);
        let bytes = (output.len() - start - 4) as u32;
        output[start..start + 4].copy_from_slice(&bytes.to_le_bytes());
        if output.len() > WAITING_BYTES_MAX {
            // It takes nothing in. When it does again it goes on from what it has, or is copied anew.
            self.is_over.set(true);
            output.clear();
        }
        drop(output);
        self.ready.notify_one();
    }

    fn end(&self) {
        self.is_over.set(true);
        self.ready.notify_one();
    }
}

/// What a member is at first that no membership tells. A segment that was alone in its group goes on; of a group with
/// several members an operator says who does, since another may have become primary meanwhile.
fn begin_by_hand(member: &mut Member, now_ns: u64, record: Option<View>, is_backup: bool) {
    match record {
        None if is_backup => {}
        None => {
            let first = member.first_view();
            member.decided(now_ns, first);
        }
        Some(view) => {
            let is_alone = view.backups.is_empty() && view.primary.segment == member.me().segment;
            let next = (is_alone && !is_backup).then(|| view.taken_over_by(member.me().clone()));
            // Whatever the command line says: a segment that was primary is copied over only by somebody who knows a later view.
            member.decided(now_ns, view);
            if let Some(next) = next {
                member.decided(now_ns, next);
            }
        }
    }
}

async fn tick(group: Rc<Group>) {
    let lease_ns = group.member.borrow().settings().lease_ns;
    loop {
        HostClock.sleep(lease_ns / TICKS_PER_LEASE).await;
        group.with(Member::tick);
        group.look_for_absent(HostClock.now_ns());
    }
}

async fn take_decisions(group: Rc<Group>, mut decisions: mpsc::UnboundedReceiver<View>) {
    while let Some(view) = decisions.recv().await {
        group.with(|member, now_ns| member.decided(now_ns, view));
    }
}

/// A place for a waker.
#[derive(Default)]
pub(super) struct Wake(RefCell<Option<Waker>>);

impl Wake {
    fn register(&self, waker: &Waker) {
        match &mut *self.0.borrow_mut() {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.0.borrow() {
            waker.wake_by_ref();
        }
    }
}
