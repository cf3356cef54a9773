//! A NIC: processing units that work through their queues.
//!
//! On the path: steps 3 to 4 of a verb. This is where one-sided protocols collapse: an atomic whose
//! address is locked blocks its unit, and with it what is queued behind, such as the release that
//! would end the contention.
//!
//! The rules, at time `t` of a unit that is free:
//!  1. A READ, WRITE or SEND occupies the unit for `[t, t + unit_ns)`, whether its address is locked
//!     or not. Its lines are touched in `(t, t + unit_ns]`, the last at the end.
//!  2. An atomic asks for its address. If that is locked it is put aside, if fewer than `aside` of this unit are, and otherwise
//!     the unit is *blocked* until it is granted.
//!  3. Granted at `g`, an atomic locks the address for `[g, g + address_ns)`, or for `unit_ns` only if the address is in the
//!     memory of the NIC itself, and occupies its unit as long, unless it was put aside.
//!     Memory is read, compared and written in one step at the end.
//!  4. At the end of an operation, in this order and in one instant: memory is touched, the response
//!     leaves, the address is free, the atomic that has waited longest for it is granted it, and the
//!     unit goes on. (The response of a masked or 16-byte atomic leaves `extended_late_ns` later.)
//!  5. While a unit is blocked it serves, one at a time, the oldest operation among the first
//!     `window` of its queue that is no atomic and behind no operation of its own queue pair.†
//!
//! † A grant in the middle of that starts the atomic at once; the unit takes new work when both are
//! done. The window, and what is put aside, are this model's additions to head-of-line blocking: see docs/simulator.md.
//!
//! Invariants:
//! - a unit executes one operation at a time, except for the overlap of † and for what was put aside;
//! - a unit without a current operation has an empty queue, unless a bypass is still being served, or what it has queued is
//!   behind operations of its own queue pairs that were put aside;
//! - operations of one queue pair take effect in the order in which they arrived.

use super::LullAim;
use super::address_lock::AddressLocks;
use super::link::Port;
use super::operation::{NONE, Operations, Work};
use super::operation_queue::OperationQueue;
use super::profile::{ASIDE_MAX, Profile};
use super::queue::Event;
use super::statistics::NodeStatistics;
use super::trace::Step;
use super::world::World;
use crate::addr::{NodeId, RemoteAddr};
use crate::error::FabricError;
use crate::verb::VerbKind;

/// A processing unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    queue: OperationQueue,
    /// What it executes, or the atomic that waits for its address; `NONE` if it is free.
    pub(super) current: u32,
    /// What it serves although its current atomic waits, or did when that began; else `NONE`.
    pub(super) bypass: u32,
    /// Whether its current atomic waits for its address.
    is_blocked: bool,
    /// Atomics that were put aside until they have their address, and have been executed.
    aside: [u32; ASIDE_MAX as usize],
    aside_count: u32,
}

impl Unit {
    const FREE: Self = Self {
        queue: OperationQueue::EMPTY,
        current: NONE,
        bypass: NONE,
        is_blocked: false,
        aside: [NONE; ASIDE_MAX as usize],
        aside_count: 0,
    };

    #[inline]
    fn aside(&self) -> &[u32] {
        &self.aside[..self.aside_count as usize]
    }

    fn put_aside(&mut self, index: u32) {
        self.aside[self.aside_count as usize] = index;
        self.aside_count += 1;
    }

    /// What was put aside has been executed, or is gone.
    #[inline]
    fn forget_aside(&mut self, index: u32) {
        let at = self.aside().iter().position(|&other| other == index);
        self.aside_count -= 1;
        self.aside[at.expect("it was put aside")] = self.aside[self.aside_count as usize];
    }

    /// Takes the operation that a free unit is to execute next, if there is one.
    #[inline]
    fn take_next(&mut self, window: u32, operations: &mut Operations) -> Option<u32> {
        if self.aside_count == 0 {
            return self.queue.pop(operations);
        }
        self.take_out(window.max(1), true, operations)
    }

    /// Takes the operation that may be served past the current atomic, if there is one.
    #[inline]
    fn take_bypass(&mut self, window: u32, operations: &mut Operations) -> Option<u32> {
        self.take_out(window, false, operations)
    }

    /// The oldest operation among the first `window` that is behind none of its own queue pair.
    fn take_out(&mut self, window: u32, may_be_atomic: bool, operations: &mut Operations) -> Option<u32> {
        let (mut previous, mut index) = (NONE, self.queue.head());
        for _ in 0..window {
            if index == NONE {
                return None;
            }
            if (may_be_atomic || !operations[index].is_atomic) && !self.is_behind_own(index, operations) {
                return self.queue.remove_behind(previous, operations);
            }
            (previous, index) = (index, operations[index].next);
        }
        None
    }

    /// Whether an operation of the same queue pair is at the head or before it in the queue: queue
    /// pairs keep their order.
    #[inline]
    fn is_behind_own(&self, index: u32, operations: &Operations) -> bool {
        let pair = operations[index].pair;
        let mut other = self.queue.head();
        while other != index {
            if operations[other].pair == pair {
                return true;
            }
            other = operations[other].next;
        }
        let is_own = |&other: &u32| other != NONE && operations[other].pair == pair;
        is_own(&self.current) || self.aside().iter().any(is_own)
    }
}

/// Ports with the processing units behind them.
#[derive(Debug)]
pub(super) struct Nic {
    /// The memory node that it belongs to, or `None` at a compute node.
    pub(super) node: Option<u16>,
    pub(super) first_unit: u32,
    pub(super) unit_count: u32,
    /// How many queue pairs it has been given.
    queue_pairs: u32,
    pub(super) sending: Port,
    pub(super) receiving: Port,
    pub(super) statistics: NodeStatistics,
    locks: AddressLocks,
}

impl Nic {
    /// The unit of a new queue pair: round robin.
    pub(super) fn next_unit(&mut self) -> u32 {
        let unit = self.first_unit + self.queue_pairs % self.unit_count;
        self.queue_pairs += 1;
        unit
    }
}

/// Whether this is a masked or 16-byte atomic, which takes the NIC longer.
#[inline]
fn is_extended(kind: VerbKind) -> bool {
    matches!(kind, VerbKind::MaskedCompareSwap | VerbKind::MaskedFetchAdd)
}

impl World {
    /// Adds a NIC with its units.
    pub(super) fn add_nic(&mut self, node: Option<u16>) -> u16 {
        let profile: &Profile = &self.options.profile;
        let first_unit = self.units.len() as u32;
        self.units
            .extend(core::iter::repeat_n(Unit::FREE, profile.units as usize));
        self.nics.push(Nic {
            node,
            first_unit,
            unit_count: profile.units,
            queue_pairs: 0,
            sending: Port::new(profile.bytes_per_us),
            receiving: Port::new(profile.bytes_per_us),
            statistics: NodeStatistics::default(),
            locks: AddressLocks::default(),
        });
        u16::try_from(self.nics.len() - 1).expect("nodes are named by 12 bits, compute nodes by 15")
    }

    /// Step 3: the operation has arrived at its unit.
    #[inline]
    pub(super) fn enqueue(&mut self, index: u32) {
        let operation = &mut self.operations[index];
        operation.queued_at = self.now;
        let unit_index = operation.unit;
        let unit = &mut self.units[unit_index as usize];
        let is_idle = unit.current == NONE && unit.bypass == NONE;
        if is_idle && unit.aside_count == 0 {
            return self.take_up(index);
        }
        unit.queue.push(&mut self.operations, index);
        if (is_idle || unit.is_blocked) && unit.queue.count() <= self.options.profile.window.max(1) {
            self.go_on(unit_index);
        }
    }

    /// A unit takes what it may take now.
    #[inline]
    fn go_on(&mut self, unit_index: u32) {
        // Operations that are dropped take no time: again, until there is work or nothing left.
        loop {
            let unit = &mut self.units[unit_index as usize];
            if unit.bypass != NONE {
                return;
            }
            if unit.is_blocked {
                let window = self.options.profile.window;
                let Some(index) = unit.take_bypass(window, &mut self.operations) else {
                    return;
                };
                if self.accept(index) {
                    self.units[unit_index as usize].bypass = index;
                    self.begin(index);
                }
                continue;
            }
            if unit.current != NONE {
                return;
            }
            let window = self.options.profile.window;
            let Some(index) = unit.take_next(window, &mut self.operations) else {
                return;
            };
            self.take_up(index);
        }
    }

    /// A free unit takes an operation up.
    #[inline]
    fn take_up(&mut self, index: u32) {
        if !self.accept(index) {
            return;
        }
        let operation = &self.operations[index];
        self.units[operation.unit as usize].current = index;
        if operation.is_atomic && !operation.is_executed {
            self.request_address(index);
        } else {
            self.begin(index);
        }
    }

    /// Whether the operation takes any of the unit's time. The verbs of a client that was cut off do,
    /// but they are refused.
    #[inline]
    pub(super) fn accept(&mut self, index: u32) -> bool {
        let operation = &mut self.operations[index];
        let nic = &mut self.nics[operation.nic as usize];
        nic.statistics.queueing_ns += self.now - operation.queued_at;
        if operation.is_dropped {
            self.lose(index);
            return false;
        }
        match nic.node {
            Some(node) if self.nodes[node as usize].fenced.contains(&operation.client) => {
                let node = NodeId::new(node);
                operation.error = Some(FabricError::Fenced { node });
                operation.is_executed = true;
            }
            _ => self.executed += 1,
        }
        true
    }

    /// A unit begins an operation that is no atomic, or that it refuses.
    #[inline]
    fn begin(&mut self, index: u32) {
        let unit_ns = self.options.profile.unit_ns;
        let operation = &self.operations[index];
        if operation.is_executed {
            return self.queue.push(self.now + unit_ns, Event::Served(index));
        }
        match &operation.work {
            Work::Verb(verb) => {
                let (kind, is_one_piece) = (verb.kind(), self.is_one_piece(verb));
                if self.may_tear(verb) {
                    self.watch_tears(index);
                }
                let service = if is_one_piece {
                    unit_ns
                } else {
                    self.begin_transfer(index)
                };
                self.occupy_unit(index, kind, service);
            }
            _ => self.occupy_unit(index, VerbKind::Send, unit_ns),
        }
    }

    #[inline]
    fn occupy_unit(&mut self, index: u32, kind: VerbKind, service: u64) {
        let statistics = &mut self.nics[self.operations[index].nic as usize].statistics;
        statistics.verbs.count(kind);
        statistics.busy_ns += service;
        self.queue.push(self.now + service, Event::Served(index));
    }

    /// The atomic locks its address, or blocks its unit until it can.
    #[inline]
    fn request_address(&mut self, index: u32) {
        let operation = &self.operations[index];
        let (unit, address) = (operation.unit, operation.target);
        let nic = &mut self.nics[operation.nic as usize];
        if nic.locks.request(address, index, &mut self.operations) {
            return self.grant(index);
        }
        let operation = &mut self.operations[index];
        (operation.queued_at, operation.is_waiting) = (self.now, true);
        let unit = &mut self.units[unit as usize];
        if unit.aside_count < self.options.profile.aside {
            unit.put_aside(index);
            unit.current = NONE;
        } else {
            // Head-of-line blocking: the unit stands still, and so does what is queued at it.
            unit.is_blocked = true;
        }
    }

    /// The atomic has its address.
    #[inline]
    fn grant(&mut self, index: u32) {
        self.operations[index].has_address = true;
        let Work::Verb(verb) = &self.operations[index].work else {
            unreachable!("only atomics lock addresses")
        };
        let kind = verb.kind();
        let profile = &self.options.profile;
        let service = match kind {
            _ if profile.chip_bytes > 0 && self.is_on_chip(verb.target().0) => profile.unit_ns,
            kind if is_extended(kind) => profile.address_ns + profile.extended_extra_ns,
            _ => profile.address_ns,
        };
        self.occupy_unit(index, kind, service);
    }

    /// Whether an address is in the memory of the NIC itself.
    fn is_on_chip(&self, addr: RemoteAddr) -> bool {
        let bytes = self.nodes[addr.node().index()].region.bytes();
        addr.offset() >= bytes - self.options.profile.chip_bytes
    }

    /// The address that a unit's atomic held is free.
    #[inline]
    fn free_address(&mut self, nic_index: u16, address: u64) {
        let nic = &mut self.nics[nic_index as usize];
        if let Some(index) = nic.locks.free(address, &self.operations) {
            let operation = &mut self.operations[index];
            operation.is_waiting = false;
            let unit = &mut self.units[operation.unit as usize];
            if unit.current == index {
                nic.statistics.blocked_ns += self.now - operation.queued_at;
                unit.is_blocked = false;
            }
            self.grant(index);
        }
    }

    /// Step 4: a unit is done with an operation.
    #[inline]
    pub(super) fn served(&mut self, index: u32) {
        let operation = &self.operations[index];
        let (unit_index, nic, address) = (operation.unit, operation.nic, operation.target);
        // One that was refused has asked for no address, unless it was refused after that.
        let has_address = operation.has_address;
        if operation.is_listed {
            self.end_long_write(index);
        }
        self.take_effect(index);
        let unit = &mut self.units[unit_index as usize];
        if unit.bypass == index {
            unit.bypass = NONE;
        } else if unit.current == index {
            unit.current = NONE;
        } else {
            unit.forget_aside(index);
        }
        if has_address {
            self.free_address(nic, address);
        }
        self.go_on(unit_index);
    }

    /// Memory is touched, and the response leaves.
    #[inline]
    fn take_effect(&mut self, index: u32) {
        let operation = &mut self.operations[index];
        if operation.is_executed {
            // It was refused, or cut short in the middle.
            return match operation.error {
                Some(FabricError::NodeGone { node }) => self.fail_gone(index, node),
                _ => self.reply(index),
            };
        }
        if operation.is_dropped {
            return self.lose(index);
        }
        match operation.work {
            Work::Verb(verb) => {
                let client = operation.client;
                self.end_verb(index);
                if self.options.lulls.aim == LullAim::Writers {
                    self.note_rivals(client, &verb);
                }
                self.after_effect(index);
                self.reply(index);
            }
            Work::Send { .. } => {
                self.deliver(index);
                self.after_effect(index);
            }
            Work::Fence { peer } => {
                operation.is_executed = true;
                let node = self.nics[operation.nic as usize]
                    .node
                    .expect("fences go to memory nodes");
                self.cut_off(peer, node);
                self.after_effect(index);
                self.reply(index);
            }
            Work::Connect => {
                operation.is_executed = true;
                self.after_effect(index);
                self.reply(index);
            }
            Work::Receive | Work::Sleep => unreachable!("waiting does not reach a NIC"),
        }
    }

    #[inline]
    fn reply(&mut self, index: u32) {
        let operation = &self.operations[index];
        let bytes = u64::from(operation.reply_bytes);
        let nic = &mut self.nics[operation.nic as usize];
        nic.statistics.bytes_out += bytes;
        let left = nic.sending.transmit(self.now, bytes);
        let late_ns = match &operation.work {
            Work::Verb(verb) if is_extended(verb.kind()) => self.options.profile.extended_late_ns,
            _ => 0,
        };
        self.send_reply(index, left + late_ns);
    }

    /// What follows once an operation has taken effect.
    #[inline]
    pub(super) fn after_effect(&mut self, index: u32) {
        let operation = &self.operations[index];
        let (result, is_fatal, client) = (operation.result as u64, operation.is_fatal, operation.client);
        self.record(Step::Executed, index, result);
        if is_fatal {
            self.crash_client_now(client);
        }
    }

    /// What the units of a NIC are executing takes no further effect and fails: all of it, or what is
    /// of one client.
    pub(super) fn interrupt(&mut self, nic_index: u16, client: Option<u32>, error: FabricError) {
        let nic = &self.nics[nic_index as usize];
        for unit in nic.first_unit..nic.first_unit + nic.unit_count {
            let unit = self.units[unit as usize];
            let executing = [unit.current, unit.bypass]
                .into_iter()
                .chain(unit.aside().iter().copied());
            for index in executing.filter(|&index| index != NONE) {
                let operation = &self.operations[index];
                if operation.is_executed || client.is_some_and(|client| client != operation.client) {
                    continue;
                }
                if operation.transfer.pieces != 0 {
                    self.cut_transfer(index);
                }
                let operation = &mut self.operations[index];
                operation.is_executed = true;
                operation.error = Some(error);
            }
        }
    }

    /// Removes every operation that waits at the units of a memory node that is gone. What they
    /// execute has been interrupted, and ends at its time.
    pub(super) fn drain_units(&mut self, nic_index: u16, node: NodeId) {
        let nic = &mut self.nics[nic_index as usize];
        nic.locks.forget_waiting();
        let (first, count) = (nic.first_unit as usize, nic.unit_count as usize);
        let mut waiting = Vec::new();
        for unit in &mut self.units[first..first + count] {
            if unit.is_blocked {
                waiting.push(unit.current);
                unit.current = NONE;
                unit.is_blocked = false;
            }
            for index in unit.aside().to_vec() {
                if self.operations[index].is_waiting {
                    unit.forget_aside(index);
                    waiting.push(index);
                }
            }
            while let Some(index) = unit.queue.pop(&self.operations) {
                waiting.push(index);
            }
        }
        for index in waiting {
            self.operations[index].is_waiting = false;
            if self.operations[index].is_dropped {
                self.lose(index);
            } else {
                self.fail_gone(index, node);
            }
        }
    }
}

#[cfg(test)]
mod tests;
