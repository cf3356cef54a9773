//! The endpoint table of a segment: who is connected, and to whom a process number belongs.
//!
//! On the path: joining, leaving and fencing; the mailbox of each endpoint lies in its entry.
//!
//! ```text
//! entry:  | owner id kind boot namespace waiter locked | fenced busy sleeping doorbell | mailbox     |
//!         0                                            64                              128           ENTRY_BYTES
//! ```
//!
//! The owner word says in one atomic word who has the entry and what became of it:
//! `start tick << 24 | process number << 2 | state`. It is claimed with one compare-and-swap, so
//! that a claimer may die at any instruction and the entry can still be told to be ownerless.
//!
//! An endpoint is cut off by writing its identity into the fenced word of its entry. Since no
//! identity is used twice, a fence that comes late never hits the entry's next owner.
//!
//! Invariants:
//! - id, kind, boot, namespace, locked are written by the owner only, between `CLAIMED` and `LIVE`;
//! - `locked` says of an owner, by its id, that it has the lock of the entry ([`liveness`](super::liveness)) for as long as the
//!   entry is its own. Where there are locks nobody claims an entry without, or gives it back later than the entry;
//! - an entry changes hands only when its owner freed it or the owner's process is gone;
//! - `id` is not 0 and belongs to nobody else while the state is `LIVE`.

use std::sync::Arc;

use super::header::{HEADER_BYTES, SEQUENCE_AT};
use super::liveness::{Locks, Taken};
use super::mailbox::{MAILBOX_BYTES, Mailbox};
use super::process::{PID_BITS, ProcessIdentity, START_BITS};
use super::segment::pause;
use crate::message::EndpointId;
use crate::primitive::{AtomicU64, Ordering};
use crate::region::Region;

/// How many endpoints one segment has room for at most: an identity keeps 16 bits for the entry.
pub(super) const ENDPOINTS_MAX: u64 = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 16;

/// Bytes of one entry.
pub(super) const ENTRY_BYTES: u64 = MAILBOX_AT + MAILBOX_BYTES;
const OWNER_AT: u64 = 0;
const ID_AT: u64 = 8;
const KIND_AT: u64 = 16;
const BOOT_AT: u64 = 24;
const NAMESPACE_AT: u64 = 32;
const WAITER_AT: u64 = 40;
const LOCKED_AT: u64 = 48;
const FENCED_AT: u64 = 64;
const BUSY_AT: u64 = 72;
const SLEEPING_AT: u64 = 80;
const DOORBELL_AT: u64 = 88;
const MAILBOX_AT: u64 = 128;
const _: () = assert!(ENTRY_BYTES.is_multiple_of(64));
const _: () = assert!(PID_BITS + START_BITS + 2 == 64);

/// How often to look for an entry while others are being claimed or given back.
const CLAIM_ATTEMPTS: u32 = 100;

/// Whether an entry has an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    /// Its new owner is filling it in.
    Claimed,
    Live,
}

/// How an entry has come to have no owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    ByOwner,
    /// The owner's process is gone.
    ByDeath,
}

/// Through whom the verbs of an endpoint reach the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Kind {
    /// Its own process maps the segment.
    Mapped = 1,
    /// The memory node's process executes its verbs.
    Connected = 2,
    /// No endpoint: the place where a process sleeps until a message comes for one of its own.
    Waiter = 3,
}

fn pack(process: &ProcessIdentity, state: State) -> u64 {
    process.start << (PID_BITS + 2) | u64::from(process.pid) << 2 | state as u64
}

fn state_of(owner: u64) -> State {
    match owner & 3 {
        0 => State::Free,
        1 => State::Claimed,
        _ => State::Live,
    }
}

/// The table of one segment, seen through the part of its mapping before the memory.
#[derive(Clone, Debug)]
pub(super) struct Table {
    control: Region,
    endpoints_max: u64,
    /// `None` in a model, where there is no file.
    locks: Option<Arc<Locks>>,
}

impl Table {
    /// # Panics
    /// If `control` is shorter than the header and that many entries.
    pub(super) fn new(control: Region, endpoints_max: u64) -> Self {
        assert!(HEADER_BYTES + endpoints_max * ENTRY_BYTES <= control.bytes());
        Self {
            control,
            endpoints_max,
            locks: None,
        }
    }

    /// The same with the locks of its file.
    pub(super) fn with_locks(self, locks: Locks) -> Self {
        Self {
            locks: Some(Arc::new(locks)),
            ..self
        }
    }

    pub(super) fn entry(&self, index: u64) -> Entry<'_> {
        assert!(index < self.endpoints_max, "an entry of this table");
        Entry {
            control: &self.control,
            locks: self.locks.as_deref(),
            base: HEADER_BYTES + index * ENTRY_BYTES,
        }
    }

    /// The entry of that index, if the table has one.
    pub(super) fn get(&self, index: u64) -> Option<Entry<'_>> {
        (index < self.endpoints_max).then(|| self.entry(index))
    }

    /// Whether an endpoint of a process that is there uses the memory.
    pub(super) fn is_in_use(&self) -> bool {
        let is_endpoint = |entry: &Entry<'_>| entry.word(KIND_AT).load(Ordering::Acquire) != Kind::Waiter as u64;
        let mut taken = self
            .entries()
            .map(|(_, entry)| entry)
            .filter(|entry| entry.state() != State::Free);
        taken.any(|entry| is_endpoint(&entry) && !entry.owner_is_gone())
    }

    fn entries(&self) -> impl Iterator<Item = (u64, Entry<'_>)> {
        (0..self.endpoints_max).map(|index| (index, self.entry(index)))
    }

    /// Takes an entry for this process, under a fresh identity or a given one. `None` if all are
    /// taken by processes that are still there.
    pub(super) fn claim(&self, own: &ProcessIdentity, kind: Kind, identity: Option<EndpointId>) -> Option<Claim> {
        for _ in 0..CLAIM_ATTEMPTS {
            let mut is_passing = false;
            // Asking after a process is slow: first look for an entry that its owner left.
            for left in [Left::ByOwner, Left::ByDeath] {
                let claimed = self.claim_left(own, kind, identity, (left, &mut is_passing));
                if claimed.is_some() {
                    return claimed;
                }
            }
            if !is_passing {
                break;
            }
            pause();
        }
        None
    }

    fn claim_left(
        &self,
        own: &ProcessIdentity,
        kind: Kind,
        identity: Option<EndpointId>,
        (left, is_passing): (Left, &mut bool),
    ) -> Option<Claim> {
        self.entries().find_map(|(index, entry)| {
            let joining = self.locks.as_deref().map(|locks| (locks, locks.joining()));
            let owner = entry.word(OWNER_AT).load(Ordering::Acquire);
            let is_available = match left {
                Left::ByOwner => state_of(owner) == State::Free,
                Left::ByDeath => entry.owner_is_gone(),
            };
            if !is_available {
                return None;
            }
            let locks = joining.as_ref().map(|(locks, _)| *locks);
            let locked = match locks.map(|locks| locks.try_lock(index)) {
                Some(Taken::Ours) => locks,
                // Somebody is claiming it, or giving it back: there are others.
                Some(Taken::Others) => {
                    *is_passing = true;
                    return None;
                }
                Some(Taken::Unsupported) | None => None,
            };
            let unlock = || {
                locked.inspect(|locks| locks.unlock(index));
            };
            let claimed = pack(own, State::Claimed);
            if entry.replace_owner(owner, claimed).is_err() {
                // Lost to another claimer: this entry has an owner now, look at the next one.
                unlock();
                return None;
            }
            let id = identity.unwrap_or_else(|| self.fresh_id(index));
            entry.word(KIND_AT).store(kind as u64, Ordering::Relaxed);
            entry.word(BOOT_AT).store(own.boot, Ordering::Relaxed);
            entry.word(NAMESPACE_AT).store(own.namespace, Ordering::Relaxed);
            entry.word(WAITER_AT).store(0, Ordering::Relaxed);
            entry.word(BUSY_AT).store(0, Ordering::Relaxed);
            entry.word(SLEEPING_AT).store(0, Ordering::Relaxed);
            entry
                .word(LOCKED_AT)
                .store(locked.map_or(0, |locks| locks.mark_of(id.0)), Ordering::Relaxed);
            entry.word(ID_AT).store(id.0, Ordering::Release);
            // Fails only if a process of another namespace took us for dead; then the entry is theirs.
            if entry.replace_owner(claimed, pack(own, State::Live)).is_err() {
                unlock();
                return None;
            }
            Some(Claim { index, id })
        })
    }

    /// An identity that was never used: the entry's index keeps messages away from a search.
    fn fresh_id(&self, index: u64) -> EndpointId {
        let sequence = self.control.word(SEQUENCE_AT).fetch_add(1, Ordering::SeqCst);
        // It comes to an end only in a file that is damaged; 0 is no identity even there.
        let sequence = (sequence.wrapping_add(1) << INDEX_BITS).max(1 << INDEX_BITS);
        EndpointId(sequence | index)
    }

    /// Gives an entry of this process back.
    pub(super) fn release(&self, claim: Claim) {
        let joining = self.locks.as_deref().map(|locks| (locks, locks.joining()));
        let entry = self.entry(claim.index);
        if entry.id() != Some(claim.id) {
            // Somebody took us for dead; the entry is another's, and so is its lock.
            return;
        }
        entry.word(ID_AT).store(0, Ordering::Release);
        entry.word(OWNER_AT).store(0, Ordering::SeqCst);
        // Afterwards: an entry that has an owner and no lock has lost its owner.
        joining.inspect(|(locks, _)| locks.unlock(claim.index));
    }

    /// The live endpoint of that name, if it joined this segment first (its home).
    pub(super) fn at_home(&self, id: EndpointId) -> Option<Entry<'_>> {
        let index = id.0 & (ENDPOINTS_MAX - 1);
        self.get(index)
            .filter(|entry| entry.id() == Some(id) && entry.state() == State::Live && !entry.is_fenced(id))
    }

    /// Whose entry a message's sender claimed to be, by the low bits of its identity.
    pub(super) fn at_tag(&self, tag: u64) -> Option<Entry<'_>> {
        self.get(tag & (ENDPOINTS_MAX - 1))
    }

    /// The entry of that endpoint, wherever in the table it is.
    pub(super) fn find(&self, id: EndpointId) -> Option<Entry<'_>> {
        self.entries()
            .map(|(_, entry)| entry)
            .find(|entry| entry.id() == Some(id) && entry.state() != State::Free)
    }
}

/// An entry that this process owns. Plain data: whoever has it releases it once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    pub(super) index: u64,
    pub(super) id: EndpointId,
}

/// One entry of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    control: &'a Region,
    locks: Option<&'a Locks>,
    base: u64,
}

impl<'a> Entry<'a> {
    fn word(&self, at: u64) -> &'a AtomicU64 {
        self.control.word(self.base + at)
    }

    fn replace_owner(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.word(OWNER_AT)
            .compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
    }

    pub(super) fn id(&self) -> Option<EndpointId> {
        let id = self.word(ID_AT).load(Ordering::Acquire);
        (id != 0).then_some(EndpointId(id))
    }

    fn state(&self) -> State {
        state_of(self.word(OWNER_AT).load(Ordering::SeqCst))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.word(KIND_AT).load(Ordering::Acquire) == Kind::Connected as u64
    }

    /// The process that owns the entry. While the entry is being claimed, its boot and namespace are
    /// not known yet and taken to be ours.
    pub(super) fn process(&self, own: &ProcessIdentity) -> ProcessIdentity {
        let owner = self.word(OWNER_AT).load(Ordering::SeqCst);
        let is_complete = state_of(owner) != State::Claimed;
        let or_own = |at, own| {
            if is_complete {
                self.word(at).load(Ordering::Acquire)
            } else {
                own
            }
        };
        ProcessIdentity {
            pid: (owner >> 2) as u32 & ((1 << PID_BITS) - 1),
            start: owner >> (PID_BITS + 2),
            boot: or_own(BOOT_AT, own.boot),
            namespace: or_own(NAMESPACE_AT, own.namespace),
        }
    }

    /// Whether the entry has an owner whose process is gone.
    #[inline(never)]
    pub(super) fn owner_is_gone(&self) -> bool {
        let Ok(own) = ProcessIdentity::own() else {
            return false;
        };
        let owner = self.word(OWNER_AT).load(Ordering::SeqCst);
        let process = self.process(&own);
        match state_of(owner) {
            State::Free => false,
            // In which namespace its number counts is not known yet; but it has taken the lock before.
            State::Claimed => process.is_gone() && self.lock_is_free() != Some(false),
            State::Live if process.has_number_of_namespace(&own) => process.is_gone(),
            State::Live if self.has_locked() => self.lock_is_left(owner),
            State::Live => process.is_gone(),
        }
    }

    /// A cheaper question, of one system call, which is answered with no where it would take longer: whether the owner is gone.
    pub(super) fn is_plainly_gone(&self, own: &ProcessIdentity) -> bool {
        let process = self.process(own);
        if process.has_number_of_namespace(own) {
            return process.number_is_free();
        }
        let owner = self.word(OWNER_AT).load(Ordering::SeqCst);
        matches!(state_of(owner), State::Live) && self.has_locked() && self.lock_is_left(owner)
    }

    /// Whether the owner has written down that it has the lock of the entry.
    fn has_locked(&self) -> bool {
        let locked = self.word(LOCKED_AT).load(Ordering::Acquire);
        let mark = |locks: &Locks| self.id().map(|id| locks.mark_of(id.0));
        self.locks.is_some_and(|locks| mark(locks) == Some(locked))
    }

    fn lock_is_free(&self) -> Option<bool> {
        self.locks.and_then(|locks| locks.is_free(self.index()))
    }

    /// Whether this owner, which had the lock of the entry, has it no more.
    fn lock_is_left(&self, owner: u64) -> bool {
        let id = self.id();
        // Whoever leaves gives the entry back before the lock: it has to be the same owner still.
        self.lock_is_free() == Some(true) && self.word(OWNER_AT).load(Ordering::SeqCst) == owner && self.id() == id
    }

    fn index(&self) -> u64 {
        (self.base - HEADER_BYTES) / ENTRY_BYTES
    }

    /// Whether the endpoint of that name, which has or had this entry, was cut off.
    pub(super) fn is_fenced(&self, id: EndpointId) -> bool {
        self.word(FENCED_AT).load(Ordering::SeqCst) == id.0
    }

    /// Cuts an endpoint off, unless it has left the entry.
    pub(super) fn fence(&self, id: EndpointId) {
        // Ends: each further turn means that another client fenced an owner of this entry.
        while self.id() == Some(id) {
            let fenced = self.word(FENCED_AT).load(Ordering::SeqCst);
            let swap = self
                .word(FENCED_AT)
                .compare_exchange(fenced, id.0, Ordering::SeqCst, Ordering::SeqCst);
            if swap.is_ok() {
                return;
            }
        }
    }

    /// Not 0 while the memory node executes a verb of this endpoint.
    pub(super) fn busy(&self) -> &'a AtomicU64 {
        self.word(BUSY_AT)
    }

    /// Not 0 while the endpoint waits for the doorbell.
    pub(super) fn sleeping(&self) -> &'a AtomicU64 {
        self.word(SLEEPING_AT)
    }

    /// The entry whose doorbell wakes the endpoint's process, plus 1; 0 if there is none.
    pub(super) fn waiter(&self) -> &'a AtomicU64 {
        self.word(WAITER_AT)
    }

    /// The word on which the process sleeps.
    pub(super) fn doorbell(&self) -> super::futex::Doorbell<'a> {
        super::futex::Doorbell::new(self.word(DOORBELL_AT))
    }

    pub(super) fn mailbox(&self) -> Mailbox<'a> {
        Mailbox::new(self.control, self.base + MAILBOX_AT)
    }
}
