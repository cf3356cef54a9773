//! A NIC: processing units that work through their queues, and the locks of atomics.
//!
//! On the path: steps 3 to 4 of a verb. This is where one-sided protocols collapse: an atomic whose
//! address is locked blocks its unit, and with it everything queued behind, such as the release that
//! would end the contention.
//!
//! Invariants:
//! - a unit executes one operation at a time, in the order of arrival;
//! - an address is granted to one atomic at a time, and not again for `address_ns`;
//! - while a unit is blocked it is in the waiting list of exactly one address.

use std::collections::{HashMap, VecDeque};

use super::hash::MixState;
use super::link::Port;
use super::operation::{NONE, Operations, Work};
use super::profile::Profile;
use super::queue::Event;
use super::statistics::NodeStatistics;
use super::trace::Step;
use super::world::World;
use crate::addr::NodeId;
use crate::error::FabricError;
use crate::verb::{Verb, VerbKind};

/// The decisions that published figures, not data sheets, have to settle: each in one place.
pub(super) mod policy {
    use super::super::operation::Operations;
    use super::super::profile::Profile;
    use super::OperationQueue;

    /// Which unit a new queue pair belongs to: round robin.
    #[inline]
    pub(in crate::sim) fn unit_of_queue_pair(number: u32, units: u32) -> u32 {
        number % units
    }

    /// How long an atomic occupies its unit once its address is granted. It takes effect at the
    /// grant, and its reply leaves when the unit is free again.
    #[inline]
    pub(in crate::sim) fn unit_hold_of_atomic(profile: &Profile, is_extended: bool) -> u64 {
        profile.unit_ns + if is_extended { profile.extended_extra_ns } else { 0 }
    }

    /// How long a granted address stays locked.
    #[inline]
    pub(in crate::sim) fn address_hold(profile: &Profile, is_extended: bool) -> u64 {
        profile.address_ns + if is_extended { profile.extended_extra_ns } else { 0 }
    }

    /// Who is granted an address next: the unit that has been blocked longest.
    #[inline]
    pub(in crate::sim) fn next_granted(waiting: &mut OperationQueue, operations: &Operations) -> Option<u32> {
        waiting.pop(operations)
    }
}

/// Operations in order, linked through their slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperationQueue {
    head: u32,
    tail: u32,
}

impl OperationQueue {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE };

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.head == NONE
    }

    #[inline]
    pub(super) fn push(&mut self, operations: &mut Operations, index: u32) {
        operations[index].next = NONE;
        if self.head == NONE {
            self.head = index;
        } else {
            operations[self.tail].next = index;
        }
        self.tail = index;
    }

    #[inline]
    pub(super) fn pop(&mut self, operations: &Operations) -> Option<u32> {
        if self.head == NONE {
            return None;
        }
        let index = self.head;
        self.head = operations[index].next;
        Some(index)
    }
}

/// A processing unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    queue: OperationQueue,
    busy_until: u64,
    /// Whether its current atomic waits for its address; `busy_until` says nothing then.
    is_blocked: bool,
    /// Time of the one event that counts.
    wake_at: u64,
}

/// The lock of an address.
#[derive(Clone, Copy, Debug)]
struct AddressLock {
    offset: u64,
    locked_until: u64,
    waiting: OperationQueue,
}

/// A port with its processing units.
#[derive(Debug)]
pub(super) struct Nic {
    /// The memory node that it belongs to, or `None` at a compute node.
    pub(super) node: Option<u16>,
    pub(super) first_unit: u32,
    pub(super) unit_count: u32,
    /// How many queue pairs it has been given.
    pub(super) queue_pairs: u32,
    pub(super) sending: Port,
    pub(super) receiving: Port,
    pub(super) statistics: NodeStatistics,
    locks: Vec<AddressLock>,
    locks_free: Vec<u16>,
    /// Never iterated: its order is nobody's business.
    lock_of: HashMap<u64, u16, MixState>,
    /// Locks in about the order in which they end, so that ended ones are forgotten without an event.
    ending: VecDeque<u16>,
}

impl Nic {
    fn new(node: Option<u16>, first_unit: u32, profile: &Profile) -> Self {
        Self {
            node,
            first_unit,
            unit_count: profile.units,
            queue_pairs: 0,
            sending: Port::new(profile.bytes_per_us),
            receiving: Port::new(profile.bytes_per_us),
            statistics: NodeStatistics::default(),
            locks: Vec::new(),
            locks_free: Vec::new(),
            lock_of: HashMap::default(),
            ending: VecDeque::new(),
        }
    }

    /// Forgets locks that have ended and that nobody waits for.
    #[inline]
    fn forget_ended_locks(&mut self, now: u64) {
        while let Some(&index) = self.ending.front() {
            let lock = &self.locks[index as usize];
            if lock.locked_until > now {
                return;
            }
            self.ending.pop_front();
            if lock.waiting.is_empty() {
                self.lock_of.remove(&lock.offset);
                self.locks_free.push(index);
            } else {
                // Its event is due in this very nanosecond, and locks it again.
                self.ending.push_back(index);
                return;
            }
        }
    }
}

impl World {
    /// Adds a NIC with its units.
    pub(super) fn add_nic(&mut self, node: Option<u16>) -> u16 {
        let first_unit = self.units.len() as u32;
        let unit = Unit {
            queue: OperationQueue::EMPTY,
            busy_until: 0,
            is_blocked: false,
            wake_at: 0,
        };
        self.units
            .extend(core::iter::repeat_n(unit, self.options.profile.units as usize));
        self.nics.push(Nic::new(node, first_unit, &self.options.profile));
        u16::try_from(self.nics.len() - 1).expect("nodes are named by 12 bits, compute nodes by 15")
    }

    /// Step 3: the operation queues at its unit, or is executed at once.
    #[inline]
    pub(super) fn enqueue(&mut self, index: u32) {
        let operation = &mut self.operations[index];
        operation.queued_at = self.now;
        let unit_index = operation.unit;
        let unit = &mut self.units[unit_index as usize];
        if !unit.is_blocked && unit.queue.is_empty() && unit.busy_until <= self.now {
            self.take_up(index);
            return;
        }
        unit.queue.push(&mut self.operations, index);
        self.wake_unit(unit_index);
    }

    /// Makes sure that a unit with a queue goes on when it is free.
    #[inline]
    fn wake_unit(&mut self, index: u32) {
        let unit = &mut self.units[index as usize];
        if !unit.is_blocked && !unit.queue.is_empty() && unit.wake_at <= self.now {
            let at = unit.busy_until.max(self.now);
            // An event of this nanosecond may already have fired: one more finds nothing to do.
            unit.wake_at = at;
            self.queue.push(at, Event::UnitFree(index));
        }
    }

    #[inline]
    pub(super) fn unit_free(&mut self, index: u32) {
        let unit = &mut self.units[index as usize];
        if unit.wake_at == self.now {
            unit.wake_at = 0;
        }
        // Operations that are dropped take no time: go on until the unit has work.
        loop {
            let unit = &mut self.units[index as usize];
            if unit.is_blocked || unit.busy_until > self.now {
                break;
            }
            let Some(next) = unit.queue.pop(&self.operations) else {
                return;
            };
            self.take_up(next);
        }
        self.wake_unit(index);
    }

    /// A unit takes an operation up.
    #[inline]
    fn take_up(&mut self, index: u32) {
        let operation = &self.operations[index];
        let nic = &mut self.nics[operation.nic as usize];
        nic.statistics.queueing_ns += self.now - operation.queued_at;
        if operation.is_dropped {
            return self.lose(index);
        }
        if let Some(node) = nic.node
            && self.nodes[node as usize].fenced.contains(&operation.client)
        {
            return self.refuse(index, node);
        }
        self.executed += 1;
        match operation.work {
            Work::Verb(verb) if verb.kind().is_atomic() => self.lock_address(index, &verb),
            Work::Verb(verb) => {
                let kind = verb.kind();
                let span = self.begin_transfer(index, &verb);
                let service = self.options.profile.unit_ns.max(span);
                self.occupy_unit(index, kind, service);
                self.reply_after(index, service);
            }
            Work::Send { .. } => {
                let service = self.options.profile.unit_ns;
                self.occupy_unit(index, VerbKind::Send, service);
                self.queue.push(self.now + service, Event::Deliver(index));
                self.after_effect(index);
            }
            Work::Fence { peer } => {
                let node = self.nics[operation.nic as usize]
                    .node
                    .expect("fences go to memory nodes");
                self.cut_off(peer, node);
                let service = self.options.profile.unit_ns;
                self.occupy_unit(index, VerbKind::Send, service);
                self.operations[index].is_executed = true;
                self.reply_after(index, service);
                self.after_effect(index);
            }
            Work::Receive | Work::Sleep => unreachable!("waiting does not reach a NIC"),
        }
    }

    #[inline]
    fn occupy_unit(&mut self, index: u32, kind: VerbKind, service: u64) {
        let operation = &self.operations[index];
        self.units[operation.unit as usize].busy_until = self.now + service;
        let statistics = &mut self.nics[operation.nic as usize].statistics;
        statistics.verbs[kind as usize] += 1;
        statistics.busy_ns += service;
    }

    /// The reply leaves when the unit is done with the operation.
    #[inline]
    pub(super) fn reply_after(&mut self, index: u32, service: u64) {
        let lead = self.options.profile.unit_ns;
        if service > lead {
            // The sending port is reserved `lead` ahead by everybody, so that reservations come in
            // the order of their times.
            self.queue.push(self.now + service - lead, Event::Reply(index));
        } else {
            self.reply(index, service);
        }
    }

    pub(super) fn reply_due(&mut self, index: u32) {
        self.reply(index, self.options.profile.unit_ns);
    }

    #[inline]
    fn reply(&mut self, index: u32, ahead: u64) {
        let operation = &self.operations[index];
        let bytes = u64::from(operation.reply_bytes);
        let nic = &mut self.nics[operation.nic as usize];
        nic.statistics.bytes_out += bytes;
        let left = nic.sending.transmit(self.now + ahead, bytes);
        self.send_reply(index, left);
    }

    /// The node does not execute the operation of a client that was cut off.
    fn refuse(&mut self, index: u32, node: u16) {
        let operation = &mut self.operations[index];
        operation.error = Some(FabricError::Fenced {
            node: NodeId::new(node),
        });
        operation.is_executed = true;
        let unit = operation.unit as usize;
        let service = self.options.profile.unit_ns;
        self.units[unit].busy_until = self.now + service;
        self.reply_after(index, service);
    }

    /// The atomic locks its address, or blocks its unit until it can.
    #[inline]
    fn lock_address(&mut self, index: u32, verb: &Verb) {
        let now = self.now;
        let operation = &self.operations[index];
        let (nic_index, unit) = (operation.nic, operation.unit);
        let nic = &mut self.nics[nic_index as usize];
        nic.forget_ended_locks(now);
        let offset = verb.target().0.offset();
        let Nic {
            locks,
            locks_free,
            lock_of,
            ending,
            ..
        } = nic;
        let lock_index = *lock_of.entry(offset).or_insert_with(|| {
            let lock = AddressLock {
                offset,
                locked_until: 0,
                waiting: OperationQueue::EMPTY,
            };
            let index = locks_free.pop().unwrap_or_else(|| {
                locks.push(lock);
                u16::try_from(locks.len() - 1).expect("few addresses are locked at a time: each needs a unit")
            });
            locks[index as usize] = lock;
            ending.push_back(index);
            index
        });
        let lock = &mut locks[lock_index as usize];
        if lock.locked_until <= now && lock.waiting.is_empty() {
            return self.grant(index, lock_index);
        }
        if lock.waiting.is_empty() {
            let event = Event::AddressFree {
                nic: nic_index,
                lock: lock_index,
            };
            self.queue.push(lock.locked_until, event);
        }
        lock.waiting.push(&mut self.operations, index);
        // Head-of-line blocking: the unit stands still, and so does all that is queued at it.
        self.operations[index].queued_at = now;
        self.units[unit as usize].is_blocked = true;
    }

    /// An address is free, and somebody waits for it.
    pub(super) fn address_free(&mut self, nic_index: u16, lock_index: u16) {
        loop {
            let lock = &mut self.nics[nic_index as usize].locks[lock_index as usize];
            let Some(index) = policy::next_granted(&mut lock.waiting, &self.operations) else {
                return;
            };
            let others_wait = !lock.waiting.is_empty();
            let operation = &self.operations[index];
            let (unit, client) = (operation.unit, operation.client);
            let nic = &mut self.nics[nic_index as usize];
            nic.statistics.blocked_ns += self.now - operation.queued_at;
            self.units[unit as usize].is_blocked = false;
            self.units[unit as usize].busy_until = self.now;
            let fenced_by = nic
                .node
                .filter(|&node| self.nodes[node as usize].fenced.contains(&client));
            let is_granted = !operation.is_dropped && fenced_by.is_none();
            if operation.is_dropped {
                self.lose(index);
            } else if let Some(node) = fenced_by {
                self.refuse(index, node);
            } else {
                self.grant(index, lock_index);
            }
            self.wake_unit(unit);
            if is_granted {
                if others_wait {
                    let lock = &self.nics[nic_index as usize].locks[lock_index as usize];
                    let event = Event::AddressFree {
                        nic: nic_index,
                        lock: lock_index,
                    };
                    self.queue.push(lock.locked_until, event);
                }
                return;
            }
        }
    }

    /// The atomic has its address: it takes effect now.
    #[inline]
    fn grant(&mut self, index: u32, lock_index: u16) {
        let operation = &self.operations[index];
        let Work::Verb(verb) = operation.work else {
            unreachable!("only atomics lock addresses")
        };
        let kind = verb.kind();
        let is_extended = matches!(kind, VerbKind::MaskedCompareSwap | VerbKind::MaskedFetchAdd);
        let locked_until = self.now + policy::address_hold(&self.options.profile, is_extended);
        self.nics[operation.nic as usize].locks[lock_index as usize].locked_until = locked_until;
        self.apply_word_verb(index, &verb);
        let service = policy::unit_hold_of_atomic(&self.options.profile, is_extended);
        self.occupy_unit(index, kind, service);
        self.reply_after(index, service);
        self.after_effect(index);
    }

    /// What follows once an operation has taken effect.
    #[inline]
    pub(super) fn after_effect(&mut self, index: u32) {
        let result = self.operations[index].result as u64;
        self.record(Step::Executed, index, result);
        if self.operations[index].is_fatal {
            self.crash_client_now(self.operations[index].client);
        }
    }

    /// Removes every operation that waits at the units of a memory node that is gone.
    pub(super) fn drain_units(&mut self, nic_index: u16, node: NodeId) {
        let nic = &mut self.nics[nic_index as usize];
        let mut waiting = Vec::new();
        for lock in &mut nic.locks {
            while let Some(index) = lock.waiting.pop(&self.operations) {
                waiting.push(index);
            }
        }
        let (first, count) = (nic.first_unit as usize, nic.unit_count as usize);
        for unit in &mut self.units[first..first + count] {
            unit.is_blocked = false;
            unit.busy_until = self.now;
            unit.wake_at = 0;
            while let Some(index) = unit.queue.pop(&self.operations) {
                waiting.push(index);
            }
        }
        for index in waiting {
            if self.operations[index].is_dropped {
                self.lose(index);
            } else {
                self.fail_gone(index, node);
            }
        }
    }
}
