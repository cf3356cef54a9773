//! The locks of addresses: how a NIC makes an atomic atomic.
//!
//! On the path: an atomic at the head of its unit asks for its address here, and holds it while the
//! NIC reads, compares and writes over PCIe. An address is held by the one atomic that its unit is
//! executing, so there are never more locks than units: a lock is found by looking at all of them.
//!
//! Invariants:
//! - no two units hold one address;
//! - operations wait only for an address that is held, in the order in which they asked.

use super::operation::Operations;
use super::operation_queue::OperationQueue;

/// No address: those have 60 bits.
const NOTHING: u64 = u64::MAX;

/// The locks of one NIC, by the unit that holds them.
#[derive(Debug)]
pub(super) struct AddressLocks {
    held: Vec<u64>,
    waiting: Vec<OperationQueue>,
}

impl AddressLocks {
    pub(super) fn new(units: u32) -> Self {
        Self {
            held: vec![NOTHING; units as usize],
            waiting: vec![OperationQueue::EMPTY; units as usize],
        }
    }

    /// Locks `address` for the atomic `index` that `unit` (counted within the NIC) has at its head, or
    /// lets it wait. Returns whether it was granted.
    #[inline]
    pub(super) fn request(&mut self, unit: u32, address: u64, index: u32, operations: &mut Operations) -> bool {
        match self.held.iter().position(|&held| held == address) {
            Some(holder) => {
                self.waiting[holder].push(operations, index);
                false
            }
            None => {
                debug_assert!(self.held[unit as usize] == NOTHING, "a unit executes one atomic");
                self.held[unit as usize] = address;
                true
            }
        }
    }

    /// Frees what `unit` holds, if it holds anything. Returns the atomic that is granted it now, of
    /// the unit that has been blocked longest; `local_unit` names an operation's unit.
    #[inline]
    pub(super) fn free(&mut self, unit: u32, operations: &Operations, local_unit: impl Fn(u32) -> u32) -> Option<u32> {
        let address = core::mem::replace(&mut self.held[unit as usize], NOTHING);
        if address == NOTHING {
            return None;
        }
        let index = self.waiting[unit as usize].pop(operations)?;
        let waiting = core::mem::replace(&mut self.waiting[unit as usize], OperationQueue::EMPTY);
        let holder = local_unit(index) as usize;
        self.held[holder] = address;
        self.waiting[holder] = waiting;
        Some(index)
    }

    /// Nobody waits any more. What is being executed keeps its address until it is done.
    pub(super) fn forget_waiting(&mut self) {
        self.waiting.fill(OperationQueue::EMPTY);
    }
}
