//! The locks of addresses: how a NIC makes an atomic atomic.
//!
//! On the path: an atomic that its unit has taken up asks for its address here, and holds it while the NIC reads, compares
//! and writes over PCIe. Each is held by one atomic that is being executed, so there are never many: a lock is found by
//! looking at all of them.
//!
//! Invariants:
//! - no two atomics that are being executed have one address;
//! - operations wait only for an address that is held, and get it in the order in which they asked.

use super::operation::Operations;
use super::operation_queue::OperationQueue;

/// An address that an atomic holds, and who waits for it.
#[derive(Clone, Copy, Debug)]
struct Held {
    address: u64,
    waiting: OperationQueue,
}

/// The locks of one NIC.
#[derive(Default, Debug)]
pub(super) struct AddressLocks {
    held: Vec<Held>,
}

impl AddressLocks {
    /// Locks `address` for the atomic `index`, or lets it wait. Returns whether it was granted.
    #[inline]
    pub(super) fn request(&mut self, address: u64, index: u32, operations: &mut Operations) -> bool {
        if let Some(held) = self.held.iter_mut().find(|held| held.address == address) {
            held.waiting.push(operations, index);
            return false;
        }
        self.held.push(Held {
            address,
            waiting: OperationQueue::EMPTY,
        });
        true
    }

    /// Frees an address that is held. Returns the atomic that is granted it now, of those that wait the one that asked first.
    #[inline]
    pub(super) fn free(&mut self, address: u64, operations: &Operations) -> Option<u32> {
        let at = self.held.iter().position(|held| held.address == address);
        let at = at.expect("whoever frees an address holds it");
        let next = self.held[at].waiting.pop(operations);
        if next.is_none() {
            self.held.swap_remove(at);
        }
        next
    }

    /// Nobody waits any more. What is being executed keeps its address until it is done.
    pub(super) fn forget_waiting(&mut self) {
        for held in &mut self.held {
            held.waiting = OperationQueue::EMPTY;
        }
    }
}
