//! Whose turn it is to lock a leaf: what clients do instead of trying all at once.
//!
//! On the path: INSERT, UPDATE and DELETE, before the lock word of the leaf is swapped. Whatever is done here decides who
//! tries, and nothing else: the leaf is locked by its lock word alone (`lock`), by whoever dies as well. So a
//! turn that is lost, or given twice, costs somebody a retry; and who has waited for one in vain goes without.
//!
//! | `--node-lock` | before the swap |
//! |---|---|
//! | `cas` | nothing; after a failure a client waits, longer each time |
//! | `spin` | nothing; a client tries again at once (*Sherman-NH* of DecLock, section 6.3) |
//! | `hierarchical` | one client of each compute node tries at a time, again and again. Who has the lock hands it over, as it is, to the next of its node, up to [`HANDOVERS_MAX`] times in a row: that saves the unlock, the swap, and the others' retries (Sherman, section 4.3) |
//! | `on-chip` | as `hierarchical`, and between compute nodes a word in the memory of the NIC, of which there is a table: its first place tries again and again there, where atomics are cheap, and then swaps the lock word with the READ (Sherman, section 4.3). The word is given back with the lock |
//! | a lock of `farside-lock` | a grant of that lock, of which there is a table beside the leaves; the swap then comes with the READ, and finds the word free (DecLock, section 6.3) |
//!
//! Work on the structure swaps lock words without a turn: it holds several at a time, in an order of its own.

use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::pin::pin;
use core::task::{Poll, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, Deadline, Endpoint, FabricError, NodeId, OpContext, RemoteAddr};
use farside_lock::declock::leave;
use farside_lock::declock::roster::ROSTER_BYTES;
use farside_lock::{LockKind, LockOptions, Site};
use farside_pool::{Geometry, Pin, make_root};
use farside_sync::pessimistic::{self, Lockers};
use farside_sync::{Entered, Turn};
use xxhash_rust::xxh3::xxh3_64;

use super::Tree;
use super::lock::{Held, LOOK_ATTEMPTS};
use super::words::LockWord;
use crate::error::IndexError;
use crate::local::late;

/// How often a lock is handed over within a compute node before others may have it (Sherman, section 4.3).
pub(super) const HANDOVERS_MAX: u32 = 4;

/// The root of a table. The roster of the clients of DecLock is in front of it.
const TABLE_ROOT: u8 = 5;

/// What clients do before they swap the lock word of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum NodeLock {
    /// Nothing: all try, and wait a while after each failure.
    #[default]
    Cas,
    /// Nothing, and who fails tries again at once.
    Spin,
    /// The clients of a compute node hand over to each other.
    Hierarchical,
    /// Likewise, and compute nodes try in the memory of the NIC.
    OnChip,
    /// They ask for a lock of this kind.
    Queue(LockKind),
}

impl NodeLock {
    const CAS: &'static str = "cas";
    const SPIN: &'static str = "spin";
    const HIERARCHICAL: &'static str = "hierarchical";
    const ON_CHIP: &'static str = "on-chip";

    /// Those that go on when somebody dies.
    fn queues() -> impl Iterator<Item = (LockKind, &'static str)> {
        LockKind::named().filter(|(kind, _)| kind.survives_crashes())
    }

    /// Every name.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let queues = Self::queues().map(|(_, name)| name);
        [Self::CAS, Self::SPIN, Self::HIERARCHICAL, Self::ON_CHIP]
            .into_iter()
            .chain(queues)
    }

    /// The node lock with this name: `cas`, `spin`, `hierarchical`, `on-chip`, or that of a lock that goes on when somebody dies.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            Self::CAS => Some(Self::Cas),
            Self::SPIN => Some(Self::Spin),
            Self::HIERARCHICAL => Some(Self::Hierarchical),
            Self::ON_CHIP => Some(Self::OnChip),
            name => Self::queues()
                .find(|&(_, known)| known == name)
                .map(|(kind, _)| Self::Queue(kind)),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cas => Self::CAS,
            Self::Spin => Self::SPIN,
            Self::Hierarchical => Self::HIERARCHICAL,
            Self::OnChip => Self::ON_CHIP,
            Self::Queue(kind) => kind.name(),
        }
    }
}

/// How a table of locks is made and used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TurnOptions {
    /// How many locks a memory node has at least; leaves with the same hash share one. A table that is there keeps its
    /// size.
    pub locks: u64,
    /// See [`LockOptions::lease_ns`].
    pub lease_ns: u64,
    /// See [`LockOptions::declock_capacity`].
    pub capacity: u64,
}

impl Default for TurnOptions {
    fn default() -> Self {
        Self {
            locks: 1 << 14,
            lease_ns: LockOptions::default().lease_ns,
            capacity: LockOptions::default().declock_capacity,
        }
    }
}

impl TurnOptions {
    /// Bytes that the locks take on a memory node.
    #[must_use]
    pub fn memory_bytes(self, how: NodeLock) -> u64 {
        match how {
            NodeLock::Cas | NodeLock::Spin | NodeLock::Hierarchical | NodeLock::OnChip => 0,
            NodeLock::Queue(kind) => ROSTER_BYTES + self.locks * stride(kind, &self.of_locks()),
        }
    }

    fn of_locks(self) -> LockOptions {
        LockOptions {
            lease_ns: self.lease_ns,
            declock_capacity: self.capacity,
            recovers_alone: true,
            ..LockOptions::default()
        }
    }
}

/// Bytes from one lock to the next.
fn stride(kind: LockKind, options: &LockOptions) -> u64 {
    kind.entry_bytes(options).next_multiple_of(16)
}

/// How the clients of a compute node take turns.
#[derive(Debug)]
pub(super) enum Turns {
    Spin,
    Hierarchical(Rc<Lines>),
    OnChip(Rc<Lines>, Chip),
    Queue(Queue),
}

/// The table of words in the memory of each node's NIC.
#[derive(Debug)]
pub(super) struct Chip {
    /// The first word of each node.
    tables: Vec<RemoteAddr>,
    /// How many words there are.
    words: u64,
}

impl Chip {
    /// The word of a leaf, on the NIC of the leaf's memory node if the pool was made with that.
    fn word_of(&self, leaf: RemoteAddr) -> RemoteAddr {
        self.tables[leaf.node().index() % self.tables.len()].plus(hash_of(leaf) % self.words * 8)
    }
}

/// A word in the memory of a NIC that this client has, or may have: a swap for it was posted. Given back by a task when dropped.
#[derive(Debug)]
pub(super) struct OnChip {
    endpoint: Endpoint,
    at: RemoteAddr,
    mine: LockWord,
    is_mine: bool,
}

impl OnChip {
    /// Adds to a batch what gives the word back; it is given back when that was posted, and this has [ended](Self::end).
    pub(super) fn give_back(&self, batch: &mut Batch) {
        batch.write_word(self.at, 0);
    }

    /// Notes that the word was given back, or was never ours.
    pub(super) fn end(mut self) {
        self.is_mine = false;
    }
}

impl Drop for OnChip {
    fn drop(&mut self) {
        if !self.is_mine {
            return;
        }
        let (endpoint, at, mine) = (self.endpoint.clone(), self.at, self.mine.0);
        self.endpoint.spawn(async move {
            // If that fails the connection is gone, and others take the word over.
            let _ = OpContext::new(endpoint).compare_swap(at, mine, 0).await;
        });
    }
}

fn hash_of(leaf: RemoteAddr) -> u64 {
    xxh3_64(&leaf.offset().to_le_bytes())
}

/// A table of locks.
#[derive(Debug)]
pub(super) struct Queue {
    kind: LockKind,
    site: Site,
    lockers: Lockers,
    /// The first lock of each memory node, and how many it has.
    tables: Vec<(RemoteAddr, u64)>,
}

impl Queue {
    /// The lock of a leaf, on the leaf's memory node.
    fn lock_of(&self, leaf: RemoteAddr) -> RemoteAddr {
        // A node that the pool was not made with has no table of its own.
        let (table, locks) = self.tables[leaf.node().index() % self.tables.len()];
        table.plus(hash_of(leaf) % locks * stride(self.kind, self.site.options()))
    }
}

/// The leaves whose lock clients of this compute node hold or ask for, with those who wait behind.
#[derive(Debug, Default)]
pub(super) struct Lines {
    leaves: RefCell<BTreeMap<RemoteAddr, VecDeque<Rc<Seat>>>>,
    handovers: Cell<u64>,
}

/// Somebody who waits.
#[derive(Debug)]
struct Seat {
    given: RefCell<Option<Given>>,
    waker: RefCell<Option<Waker>>,
    has_left: Cell<bool>,
}

/// What somebody gets who has waited.
#[derive(Debug)]
enum Given {
    /// Leave to try.
    Place(Place),
    /// The lock.
    Lock(Box<Held>),
}

impl Seat {
    fn give(&self, given: Given) {
        *self.given.borrow_mut() = Some(given);
        self.waker.take().inspect(Waker::wake_by_ref);
    }
}

/// The first place in a line. Who drops it lets the next one try.
#[derive(Debug)]
pub(super) struct Place {
    lines: Rc<Lines>,
    leaf: RemoteAddr,
    /// How often the lock was handed over in a row.
    handed: u32,
    /// Who gets the lock when what is under way has ended.
    heir: Option<Rc<Seat>>,
}

impl Place {
    /// Whether somebody of this compute node waits who may get the lock as it is; it is then promised.
    pub(super) fn promise(&mut self) -> bool {
        if self.handed < HANDOVERS_MAX {
            self.heir = self.lines.next(self.leaf);
        }
        self.heir.is_some()
    }

    /// Whether the lock was promised to somebody.
    pub(super) fn is_promised(&self) -> bool {
        self.heir.is_some()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if is_planted("tree: a turn that is not passed on") {
            return;
        }
        let next = self.heir.take().filter(|seat| !seat.has_left.get());
        match next.or_else(|| self.lines.next(self.leaf)) {
            Some(seat) => seat.give(Given::Place(Self {
                lines: Rc::clone(&self.lines),
                leaf: self.leaf,
                handed: 0,
                heir: None,
            })),
            None => {
                self.lines.leaves.borrow_mut().remove(&self.leaf);
            }
        }
    }
}

/// Hands a lock over to whom it was promised. If that one has left meanwhile, a task gives it back.
pub(super) fn hand_over(mut held: Held) {
    if let Some(place) = &mut held.place
        && let Some(seat) = place.heir.take_if(|seat| !seat.has_left.get())
    {
        place.handed += 1;
        place.lines.handovers.update(|count| count + 1);
        seat.give(Given::Lock(Box::new(held)));
    }
}

/// Somebody in a line, not the first.
struct Waiting<'l> {
    lines: &'l Lines,
    leaf: RemoteAddr,
    seat: Rc<Seat>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.seat.has_left.set(true);
        if let Some(line) = self.lines.leaves.borrow_mut().get_mut(&self.leaf) {
            line.retain(|seat| !Rc::ptr_eq(seat, &self.seat));
        }
        // What was given and not taken goes to the next one.
        let given = self.seat.given.take();
        drop(given);
    }
}

impl Lines {
    fn next(&self, leaf: RemoteAddr) -> Option<Rc<Seat>> {
        self.leaves.borrow_mut().get_mut(&leaf).and_then(VecDeque::pop_front)
    }

    /// Waits for the first place in the line of a leaf, or for the lock.
    async fn come(self: &Rc<Self>, cx: &OpContext, leaf: RemoteAddr) -> Result<Given, IndexError> {
        let waiting = {
            let mut leaves = self.leaves.borrow_mut();
            let Some(line) = leaves.get_mut(&leaf) else {
                leaves.insert(leaf, VecDeque::new());
                return Ok(Given::Place(Place {
                    lines: Rc::clone(self),
                    leaf,
                    handed: 0,
                    heir: None,
                }));
            };
            let seat = Rc::new(Seat {
                given: RefCell::default(),
                waker: RefCell::default(),
                has_left: Cell::default(),
            });
            line.push_back(Rc::clone(&seat));
            Waiting {
                lines: self,
                leaf,
                seat,
            }
        };
        let endpoint = cx.endpoint();
        let mut alarm = pin!(async {
            match cx.deadline() {
                Deadline::NEVER => core::future::pending().await,
                deadline => endpoint.sleep(deadline.0.saturating_sub(endpoint.now_ns())).await,
            }
        });
        let given = poll_fn(|context| {
            if let Some(given) = waiting.seat.given.take() {
                return Poll::Ready(Some(given));
            }
            *waiting.seat.waker.borrow_mut() = Some(context.waker().clone());
            alarm.as_mut().poll(context).map(|()| None)
        });
        given.await.ok_or_else(late)
    }
}

/// The turn of an operation.
pub(super) enum Come {
    /// Nobody waits for turns.
    Any,
    /// The first of a line tries, who may have the leaf's word on the NIC.
    Place(Place, Option<OnChip>),
    /// The lock was handed over.
    Lock(Box<Held>),
    /// A lock of the table is held, and given back when this is dropped.
    Granted(Turn),
}

impl Tree {
    /// Lets this compute node's INSERTs, UPDATEs and DELETEs of a tree of values take turns in this way from now on. All
    /// compute nodes should do the same; those that do not only wait longer.
    ///
    /// # Errors
    /// If there is no room for a table of locks; if the fabric lacks what the lock cannot do without; what it reports.
    pub async fn take_turns(&self, cx: &mut OpContext, how: NodeLock, options: TurnOptions) -> Result<(), IndexError> {
        let turns = match how {
            NodeLock::Cas => return Ok(()),
            NodeLock::Spin => Turns::Spin,
            NodeLock::Hierarchical => Turns::Hierarchical(Rc::default()),
            NodeLock::OnChip => Turns::OnChip(Rc::default(), self.find_chip(cx)?),
            NodeLock::Queue(kind) => Turns::Queue(self.open_tables(cx, kind, options).await?),
        };
        self.shared.turns.get_or_init(|| turns);
        Ok(())
    }

    /// How often a client of this compute node has got the lock of a leaf from another one.
    #[must_use]
    pub fn handovers(&self) -> u64 {
        match self.shared.turns.get() {
            Some(Turns::Hierarchical(lines) | Turns::OnChip(lines, _)) => lines.handovers.get(),
            _ => 0,
        }
    }

    /// Whether a client that has failed at a leaf tries again at once.
    pub(super) fn spins(&self) -> bool {
        matches!(
            self.shared.turns.get(),
            Some(Turns::Spin | Turns::Hierarchical(_) | Turns::OnChip(..))
        )
    }

    /// Whether a lock of the table is held, asked for or given back.
    pub(super) fn is_in_turn(&self) -> bool {
        match self.shared.turns.get() {
            Some(Turns::Queue(queue)) => !queue.lockers.are_idle(),
            _ => false,
        }
    }

    /// Leaves the roster of those who take turns, so that nobody asks this client any more. Others find out by themselves that
    /// a client is gone, but take longer.
    ///
    /// # Errors
    /// What the fabric reports.
    pub async fn end_turns(&self) -> Result<(), IndexError> {
        if let Some(Turns::Queue(queue)) = self.shared.turns.get() {
            leave(self.pool().endpoint(), &queue.site).await?;
        }
        Ok(())
    }

    fn find_chip(&self, cx: &OpContext) -> Result<Chip, IndexError> {
        let endpoint = cx.endpoint();
        let words = endpoint.chip_bytes() / 8;
        if words == 0 {
            return Err(IndexError::NoChip);
        }
        let founders = self.pool().geometry()[0].node_count;
        let nodes = (0..founders).map(NodeId::new);
        let tables = nodes.map(|node| Ok(RemoteAddr::new(node, endpoint.node_bytes(node)?)));
        Ok(Chip {
            tables: tables.collect::<Result<_, FabricError>>()?,
            words,
        })
    }

    /// Swaps a word on a NIC until it was free, or its holder gone.
    async fn take_word(&self, cx: &mut OpContext, at: RemoteAddr) -> Result<OnChip, IndexError> {
        let (endpoint, mine) = (cx.endpoint().clone(), self.ticket());
        let (mut expected, mut attempt) = (0, 0_u32);
        // Ends: the holder gives the word back, or goes; the deadline is met by a verb.
        loop {
            let word = OnChip {
                endpoint: endpoint.clone(),
                at,
                mine,
                is_mine: true,
            };
            let seen = cx.compare_swap(at, expected, mine.0).await?;
            if seen == expected {
                return Ok(word);
            }
            word.end();
            cx.count_retry();
            expected = 0;
            attempt += 1;
            if let Some(owner) = LockWord(seen).owner()
                && attempt.is_multiple_of(LOOK_ATTEMPTS)
                && !is_planted("tree: a word on the NIC that the dead keep")
                && self.pool().is_gone(cx, owner).await?
            {
                expected = seen;
            }
            self.pool().check_reachable()?;
            // Others of this thread may run.
            endpoint.sleep(0).await;
        }
    }

    async fn open_tables(&self, cx: &mut OpContext, kind: LockKind, turns: TurnOptions) -> Result<Queue, IndexError> {
        let mut options = turns.of_locks();
        let stride = stride(kind, &options);
        let mut tables = Vec::new();
        for geometry in Geometry::founders(self.pool().geometry()) {
            let area = make_root(cx, geometry, TABLE_ROOT, turns.memory_bytes(NodeLock::Queue(kind))).await?;
            options.roster.get_or_insert(area.addr);
            tables.push((area.addr.plus(ROSTER_BYTES), (area.bytes - ROSTER_BYTES) / stride));
        }
        let queue = Queue {
            kind,
            site: Site::new(options),
            lockers: Lockers::default(),
            tables,
        };
        queue.lockers.check(cx.endpoint(), kind, &queue.site)?;
        Ok(queue)
    }

    /// Waits for the turn to lock a leaf.
    pub(super) async fn come(&self, cx: &mut OpContext, leaf: RemoteAddr, pin: &Pin) -> Result<Come, IndexError> {
        match self.shared.turns.get() {
            None | Some(Turns::Spin) => Ok(Come::Any),
            Some(Turns::Hierarchical(lines)) => Ok(match lines.come(cx, leaf).await? {
                Given::Place(place) => Come::Place(place, None),
                Given::Lock(held) => Come::Lock(held),
            }),
            Some(Turns::OnChip(lines, chip)) => Ok(match lines.come(cx, leaf).await? {
                Given::Place(place) => Come::Place(place, Some(self.take_word(cx, chip.word_of(leaf)).await?)),
                Given::Lock(held) => Come::Lock(held),
            }),
            Some(Turns::Queue(queue)) => {
                let which = (queue.kind, &queue.site);
                // Whoever has the turn may have died, or this client its way to the queue. It takes leases to find out, and the
                // leaf needs none of that: part of the time is left for going without.
                let (deadline, now_ns) = (cx.deadline(), cx.endpoint().now_ns());
                let patience_ns = queue.site.options().lease_ns.min(deadline.0.saturating_sub(now_ns) / 2);
                cx.set_deadline(Deadline(now_ns.saturating_add(patience_ns)));
                let entered = pessimistic::enter(cx, &queue.lockers, which, queue.lock_of(leaf), pin).await;
                cx.set_deadline(deadline);
                match entered {
                    Ok(Entered::Turn(turn)) => Ok(Come::Granted(turn)),
                    Ok(_) => Ok(Come::Any),
                    Err(FabricError::DeadlineExceeded { .. }) if cx.endpoint().now_ns() < deadline.0 => Ok(Come::Any),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }
}
