//! The event queue: what happens next in simulated time.
//!
//! On the path: every step of a verb is one event here, so this is the hottest structure of the
//! simulator. Almost all events lie within a few microseconds (wire, service, address lock); those
//! go to a ring with one slot per nanosecond. Later ones (sleeps, deadlines, delays) wait in a heap
//! until the ring reaches their time.
//!
//! Two events of the same nanosecond happen in the order in which they were pushed; that order is
//! part of the determinism of a run.
//!
//! Invariants:
//! - every event in the ring is at `now <= time < now + SLOT_COUNT`, every one in the heap later;
//! - a bit of `occupied` is set iff its slot is not empty, a bit of `summary` iff its word is not 0.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds that the ring covers. Two levels of 64 bits index it.
const SLOT_COUNT: usize = 64 * 64;
const SLOT_MASK: u64 = SLOT_COUNT as u64 - 1;
const NONE: u32 = u32::MAX;

/// What happens, and to whom: an index into the table that the kind implies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// The client's core has reached this post: its operations leave the compute node.
    Depart(u32),
    /// The operation arrives at the NIC that executes it.
    Arrive(u32),
    /// The operation's processing unit is done with it.
    Served(u32),
    /// Lines of a long READ or WRITE are due.
    Lines(u32),
    /// The reply arrives at the client.
    Complete(u32),
    /// The operation ends without any network: sleep, computation.
    Finish(u32),
    /// The earliest deadline of a client.
    Deadline(u32),
    /// A client sees a message.
    Seen(u32),
}

#[derive(Clone, Copy)]
struct Node {
    event: Event,
    next: u32,
}

#[derive(Clone, Copy)]
struct Slot {
    head: u32,
    tail: u32,
}

const EMPTY: Slot = Slot { head: NONE, tail: NONE };

/// Events in the order of their time.
pub(super) struct EventQueue {
    now: u64,
    slots: Box<[Slot]>,
    occupied: [u64; 64],
    summary: u64,
    nodes: Vec<Node>,
    free: u32,
    far: BinaryHeap<Reverse<(u64, u64, Event)>>,
    far_pushed: u64,
    far_next: u64,
}

impl EventQueue {
    pub(super) fn new() -> Self {
        Self {
            now: 0,
            slots: vec![EMPTY; SLOT_COUNT].into_boxed_slice(),
            occupied: [0; 64],
            summary: 0,
            nodes: Vec::new(),
            free: NONE,
            far: BinaryHeap::new(),
            far_pushed: 0,
            far_next: u64::MAX,
        }
    }

    /// Adds an event; a time that is already past means now, the end of time never.
    #[inline]
    pub(super) fn push(&mut self, time: u64, event: Event) {
        let time = time.max(self.now);
        if time == u64::MAX {
            return;
        }
        if time - self.now < SLOT_COUNT as u64 {
            self.push_near(time, event);
        } else {
            self.far_pushed += 1;
            self.far.push(Reverse((time, self.far_pushed, event)));
            self.far_next = self.far_next.min(time);
        }
    }

    #[inline]
    fn push_near(&mut self, time: u64, event: Event) {
        let node = Node { event, next: NONE };
        let index = if self.free == NONE {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let index = self.free;
            self.free = self.nodes[index as usize].next;
            self.nodes[index as usize] = node;
            index
        };
        let slot_index = (time & SLOT_MASK) as usize;
        let slot = &mut self.slots[slot_index];
        if slot.head == NONE {
            slot.head = index;
            self.occupied[slot_index / 64] |= 1 << (slot_index % 64);
            self.summary |= 1 << (slot_index / 64);
        } else {
            self.nodes[slot.tail as usize].next = index;
        }
        slot.tail = index;
    }

    /// Takes the next event that is due at `limit` or before, and moves the clock to it.
    #[inline]
    pub(super) fn pop(&mut self, limit: u64) -> Option<(u64, Event)> {
        let time = match self.next_near() {
            Some(time) => time,
            None if self.far.is_empty() => return None,
            None => self.far_next,
        };
        if time > limit {
            return None;
        }
        self.advance(time);
        let slot_index = (time & SLOT_MASK) as usize;
        let index = self.slots[slot_index].head;
        let node = self.nodes[index as usize];
        self.slots[slot_index].head = node.next;
        if node.next == NONE {
            self.occupied[slot_index / 64] &= !(1 << (slot_index % 64));
            if self.occupied[slot_index / 64] == 0 {
                self.summary &= !(1 << (slot_index / 64));
            }
        }
        self.nodes[index as usize].next = self.free;
        self.free = index;
        Some((time, node.event))
    }

    /// Moves the clock on. Nothing may be due before `time`.
    #[inline]
    pub(super) fn advance(&mut self, time: u64) {
        debug_assert!(time >= self.now, "simulated time does not go back");
        self.now = time;
        // At once, before anybody can push into the slots that came into reach: so events of one
        // nanosecond keep the order in which they were pushed.
        while self.far_next.saturating_sub(time) < SLOT_COUNT as u64 {
            let Some(Reverse((due, _, event))) = self.far.pop() else {
                break;
            };
            self.push_near(due, event);
            self.far_next = self.far.peek().map_or(u64::MAX, |Reverse((next, ..))| *next);
        }
    }

    /// The time of the first event in the ring.
    #[inline]
    fn next_near(&self) -> Option<u64> {
        let start = self.now & SLOT_MASK;
        let word = (start / 64) as usize;
        let ahead = self.occupied[word] >> (start % 64);
        if ahead != 0 {
            return Some(self.now + u64::from(ahead.trailing_zeros()));
        }
        // The words after this one, and at last the slots of this word that lie a whole turn ahead.
        let words = self.summary.rotate_right((word as u32 + 1) % 64);
        if words == 0 {
            return None;
        }
        let found = (word + 1 + words.trailing_zeros() as usize) % 64;
        let slot = found as u64 * 64 + u64::from(self.occupied[found].trailing_zeros());
        Some(self.now + (slot.wrapping_sub(start) & SLOT_MASK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_come_in_the_order_of_time_then_of_pushing(
            delays in proptest::collection::vec(prop_oneof![0_u64..5, 0_u64..5000, 0_u64..100_000], 1..300),
        ) {
            let mut queue = EventQueue::new();
            let mut model: Vec<(u64, u32)> = Vec::new();
            let mut now = 0;
            for (number, delay) in delays.iter().enumerate() {
                queue.push(now + delay, Event::Depart(number as u32));
                model.push((now + delay, number as u32));
                if number % 3 == 2 {
                    let first = (0..model.len()).min_by_key(|&at| model[at]).expect("one was pushed");
                    let (time, number) = model.remove(first);
                    prop_assert_eq!(queue.pop(u64::MAX), Some((time, Event::Depart(number))));
                    now = time;
                }
            }
            model.sort_unstable();
            for (time, number) in model {
                prop_assert_eq!(queue.pop(u64::MAX), Some((time, Event::Depart(number))));
            }
            prop_assert_eq!(queue.pop(u64::MAX), None);
        }
    }

    #[test]
    fn the_end_of_time_never_comes() {
        let mut queue = EventQueue::new();
        queue.push(u64::MAX, Event::Depart(0));
        assert_eq!(queue.pop(u64::MAX), None);
    }

    #[test]
    fn nothing_beyond_the_limit_is_taken() {
        let mut queue = EventQueue::new();
        queue.push(10, Event::Depart(0));
        queue.push(1_000_000, Event::Depart(1));
        assert_eq!(queue.pop(9), None);
        assert_eq!(queue.pop(10), Some((10, Event::Depart(0))));
        assert_eq!(queue.pop(999_999), None);
        queue.advance(999_999);
        assert_eq!(queue.pop(1_000_000), Some((1_000_000, Event::Depart(1))));
    }
}
