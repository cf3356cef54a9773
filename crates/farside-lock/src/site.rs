//! What the clients of one compute node share: settings, inboxes, and what locks keep there.
//!
//! On the path: made once per compute node, before the first [`Locker`](crate::Locker). A compute node is a
//! thread with its clients (Farside shares nothing between threads); in the simulator it is all clients
//! of a simulated machine.

use core::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::{EndpointId, RemoteAddr};

use crate::declock::{Node, Resets};
use crate::dslr::TURN_NS;
use crate::inbox::Inbox;
use crate::phases::{Phases, Stopwatch};

/// How locks behave; the same for all clients of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockOptions {
    /// For how long a client may hold a lock whose paper has leases, in nanoseconds (ShiftLock, section 3.6). How soon
    /// a lock becomes available after its holder has died depends on this.
    pub lease_ns: u64,
    /// How long a client of `dslr` assumes that each client ahead needs, in nanoseconds; it decides after how long to
    /// look again.
    pub dslr_turn_ns: u64,
    /// Whether a CAS lock is released by a compare-and-swap rather than by a WRITE.
    pub cas_swaps_back: bool,
    /// How many consecutive writers hand a ShiftLock over before readers get it: `N` of ShiftLock's section 3.5.2.
    pub handovers_max: u64,
    /// The block of the lock service in far memory, if there is one. Recovery, and the lock `rpc`, need it.
    pub service: Option<RemoteAddr>,
    /// Whether a client that finds a ShiftLock without progress resets it by itself, with the atomic that the agent of
    /// the lock service would post; for memory without such an agent.
    pub recovers_alone: bool,
    /// Where the clients of DecLock list themselves: [`ROSTER_BYTES`](crate::declock::roster::ROSTER_BYTES)
    /// of far memory, zeros at first.
    pub roster: Option<RemoteAddr>,
    /// How many entries the queue of a DecLock has: a power of two from 2 to
    /// [`CAPACITY_MAX`](crate::declock::header::CAPACITY_MAX). That many compute nodes may wait for a lock at a time,
    /// or that many clients without local locks. With more the lock still works, but is reset whenever the queue is
    /// full, and waiting clients lose their places. This is part of the layout of the memory: all clients of a lock
    /// must use the same.
    pub declock_capacity: u64,
    /// How long before it is cut off an endpoint is warned in the roster of DecLock, in nanoseconds; 0 means no
    /// warning. For at least that long it may rely on the answer of [`vouch`](crate::declock::vouch); and it takes that
    /// much longer until a lock whose holder has died becomes available.
    pub declock_notice_ns: u64,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            // The default of ShiftLock's artifact. The evaluation's 10 ms (section 4.1) are what a process
            // that shares its core with others may well be away for.
            lease_ns: 1_000_000_000,
            dslr_turn_ns: TURN_NS,
            cas_swaps_back: false,
            handovers_max: 16,
            service: None,
            recovers_alone: false,
            roster: None,
            declock_capacity: 16,
            declock_notice_ns: 0,
        }
    }
}

/// What the clients of one compute node share. Clones share the same site.
#[derive(Clone, Debug)]
pub struct Site {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: LockOptions,
    /// One for each endpoint that has clients here, or had; an endpoint costs some hundred bytes.
    inboxes: RefCell<BTreeMap<EndpointId, Inbox>>,
    /// Where clients note what they spend their time on.
    phases: Option<Rc<Phases>>,
    /// What DecLock keeps here.
    declock: Node,
}

impl Site {
    /// A compute node without clients.
    #[must_use]
    pub fn new(options: LockOptions) -> Self {
        Self::with(options, None)
    }

    /// The same, but its clients record what they spend their time on: [`Site::phases`].
    #[must_use]
    pub fn timed(options: LockOptions) -> Self {
        Self::with(options, Some(Rc::default()))
    }

    fn with(options: LockOptions, phases: Option<Rc<Phases>>) -> Self {
        Self {
            shared: Rc::new(Shared {
                options,
                phases,
                inboxes: RefCell::default(),
                declock: Node::new(&options),
            }),
        }
    }

    /// How locks behave here.
    #[must_use]
    pub fn options(&self) -> &LockOptions {
        &self.shared.options
    }

    /// What the clients of a [timed](Site::timed) site have spent their time on.
    #[must_use]
    pub fn phases(&self) -> Option<&Phases> {
        self.shared.phases.as_deref()
    }

    /// How often clients of this site have reset a DecLock.
    #[must_use]
    pub fn resets(&self) -> Resets {
        self.shared.declock.resets()
    }

    pub(crate) fn stopwatch(&self) -> Stopwatch {
        Stopwatch::new(self.shared.phases.clone())
    }

    pub(crate) fn declock(&self) -> &Node {
        &self.shared.declock
    }

    /// The inbox of an endpoint. An endpoint belongs to one site.
    #[must_use]
    pub fn inbox(&self, endpoint: EndpointId) -> Inbox {
        let mut inboxes = self.shared.inboxes.borrow_mut();
        let inbox = inboxes.entry(endpoint).or_insert_with(|| Inbox::new(endpoint));
        inbox.clone()
    }
}

impl Default for Site {
    fn default() -> Self {
        Self::new(LockOptions::default())
    }
}
