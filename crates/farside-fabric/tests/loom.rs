//! Protocols between threads of one segment, under every order that the memory model allows: run by
//! `cargo xtask loom`, empty otherwise.
//!
//! Each model is as small as the property lets it be, and bounded in its preemptions where it says
//! so; almost every race shows with two of them. What blocks for ever is reported by loom itself.

#![cfg(loom)]

use std::sync::Arc as StdArc;
use std::task::{Wake, Waker};

use farside_fabric::primitive::AtomicU64;
use farside_fabric::region::Region;
use farside_fabric::shm::model::{Mail, ModelSegment, Seat};
use farside_fabric::{EndpointId, MaskedAdd, MaskedCas, NodeId, RemoteAddr, Slice, Verb};
use loom::sync::atomic::Ordering::Relaxed;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// Checks `model` with at most so many preemptions, unless the environment names another number.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    // Creating the memory of a model counts as well.
    builder.max_branches = 100_000;
    builder.check(model);
}

fn at(offset: u64) -> RemoteAddr {
    RemoteAddr::new(NodeId::new(0), offset)
}

const ALICE: EndpointId = EndpointId(1 << 16 | 7);
const BOB: EndpointId = EndpointId(2 << 16 | 8);

// --- regions

#[test]
fn masked_atomics_lose_nothing() {
    check(3, || {
        let region = Arc::new(Region::anonymous(64).expect("memory"));
        let execute = |region: &Region, verb: Verb| region.execute(&verb, &mut []);
        let adder = {
            let region = region.clone();
            thread::spawn(move || {
                let add = MaskedAdd {
                    add: 1 | 1 << 32,
                    boundary: 1 << 31,
                };
                let verb = Verb::MaskedFetchAdd {
                    target: at(8),
                    operands: add,
                };
                execute(&region, verb);
                execute(&region, verb);
            })
        };
        // The upper byte is ours alone; the fields below are the adder's.
        let swap = MaskedCas {
            compare: 0,
            compare_mask: 0xff << 56,
            swap: 5 << 56,
            swap_mask: 0xff << 56,
        };
        let verb = Verb::MaskedCompareSwap {
            target: at(8),
            operands: swap,
        };
        assert_eq!(execute(&region, verb) >> 56, 0);
        assert_eq!(execute(&region, verb) >> 56, 5, "the second swap finds the first");
        adder.join().expect("no panic");
        assert_eq!(
            execute(&region, Verb::ReadWord { source: at(8) }),
            5 << 56 | 2 << 32 | 2
        );
    });
}

#[test]
fn who_sees_the_word_sees_the_bytes_written_before() {
    published_bytes_are_seen(|region| region.execute(&Verb::ReadWord { source: at(0) }, &mut []) as u64);
}

#[test]
fn who_reads_the_word_among_others_sees_the_bytes_written_before() {
    published_bytes_are_seen(|region| {
        let mut words = [0; 16];
        let read = Verb::Read {
            source: at(0),
            target: Slice::first(16),
        };
        region.execute(&read, &mut words);
        u64::from_le_bytes(*words.first_chunk().expect("two words"))
    });
}

/// One client writes bytes and then a pointer to them; another one follows what `read_pointer` finds.
fn published_bytes_are_seen(read_pointer: fn(&Region) -> u64) {
    check(3, move || {
        let region = Arc::new(Region::anonymous(128).expect("memory"));
        let writer = {
            let region = region.clone();
            thread::spawn(move || {
                let write = Verb::Write {
                    source: Slice::first(24),
                    target: at(64),
                };
                region.execute(&write, &mut [7; 24]);
                let publish = Verb::CompareSwap {
                    target: at(0),
                    compare: 0,
                    swap: 64,
                };
                region.execute(&publish, &mut []);
            })
        };
        let pointer = read_pointer(&region);
        if pointer != 0 {
            let mut bytes = [0; 24];
            let read = Verb::Read {
                source: at(pointer),
                target: Slice::first(24),
            };
            region.execute(&read, &mut bytes);
            assert_eq!(bytes, [7; 24]);
        }
        writer.join().expect("no panic");
    });
}

#[test]
fn verbs_of_one_client_keep_their_order() {
    // Each writes its own bytes and then reads the other's: at least one sees the other.
    check(3, || {
        let region = Arc::new(Region::anonymous(64).expect("memory"));
        let turn = |region: &Region, own: u64, other: u64| {
            let write = Verb::Write {
                source: Slice::first(8),
                target: at(own),
            };
            region.execute(&write, &mut [1; 8]);
            region.execute(&Verb::ReadWord { source: at(other) }, &mut []) != 0
        };
        let peer = {
            let region = region.clone();
            thread::spawn(move || turn(&region, 0, 8))
        };
        let has_seen = turn(&region, 8, 0);
        assert!(peer.join().expect("no panic") || has_seen);
    });
}

// --- mailboxes

/// A table in which one endpoint receives.
fn with_receiver(endpoints_max: u64) -> (ModelSegment, Seat) {
    let segment = ModelSegment::new(endpoints_max);
    let seat = segment.claim().expect("a free entry");
    (segment, seat)
}

#[test]
fn messages_of_two_senders_arrive_once_and_whole() {
    check(2, || {
        let (segment, seat) = with_receiver(1);
        let senders = [ALICE, BOB].map(|sender| {
            let segment = segment.clone();
            thread::spawn(move || assert!(segment.send(sender, seat, sender.0 + 1)))
        });
        let mut found = Vec::new();
        let mut look = |segment: &ModelSegment| {
            if let Mail::Number(number, from) = segment.take(seat, None) {
                assert_eq!(number, from.0 + 1);
                found.push(from);
            }
        };
        look(&segment);
        for sender in senders {
            sender.join().expect("no panic");
        }
        look(&segment);
        look(&segment);
        found.sort();
        assert_eq!(found, [ALICE, BOB]);
        assert_eq!(segment.take(seat, None), Mail::Empty);
    });
}

#[test]
fn a_full_mailbox_refuses_and_loses_nothing() {
    check(2, || {
        let (segment, seat) = with_receiver(1);
        for number in 0..ModelSegment::mailbox_room() {
            assert!(segment.send(ALICE, seat, number));
        }
        let sender = {
            let segment = segment.clone();
            thread::spawn(move || segment.send(BOB, seat, 99))
        };
        let mut numbers = Vec::new();
        for _ in 0..ModelSegment::mailbox_room() {
            match segment.take(seat, None) {
                Mail::Number(number, _) => numbers.push(number),
                other => panic!("{other:?} where a message is"),
            }
        }
        let is_sent = sender.join().expect("no panic");
        if is_sent {
            assert_eq!(segment.take(seat, None), Mail::Number(99, BOB));
        }
        assert_eq!(segment.take(seat, None), Mail::Empty);
        assert!(numbers.iter().copied().eq(0..ModelSegment::mailbox_room()));
    });
}

#[test]
fn a_killed_sender_stops_nobody() {
    check(2, || {
        let (segment, seat) = with_receiver(1);
        let dying = {
            let segment = segment.clone();
            thread::spawn(move || segment.send_half(ALICE, seat))
        };
        let sender = {
            let segment = segment.clone();
            thread::spawn(move || assert!(segment.send(BOB, seat, 5)))
        };
        dying.join().expect("no panic");
        sender.join().expect("no panic");
        assert_eq!(segment.take(seat, Some(ALICE)), Mail::Number(5, BOB));
        assert_eq!(segment.take(seat, Some(ALICE)), Mail::Empty);
    });
}

// --- waking

/// A task that a thread runs: it waits where loom sees it.
struct Task {
    is_woken: Mutex<bool>,
    changed: Condvar,
}

impl Task {
    fn new() -> StdArc<Self> {
        StdArc::new(Self {
            is_woken: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    fn sleep(&self) {
        let mut is_woken = self.is_woken.lock().expect("no panic");
        while !*is_woken {
            is_woken = self.changed.wait(is_woken).expect("no panic");
        }
    }
}

impl Wake for Task {
    fn wake(self: StdArc<Self>) {
        *self.is_woken.lock().expect("no panic") = true;
        self.changed.notify_one();
    }
}

#[test]
fn no_wake_up_is_lost() {
    check(2, || {
        let (segment, seat) = with_receiver(2);
        let waiter = segment.waiter();
        let sender = {
            let segment = segment.clone();
            thread::spawn(move || assert!(segment.send(ALICE, seat, 5)))
        };
        let task = Task::new();
        if !waiter.lie_down(1, seat, &Waker::from(task.clone())) {
            // If nobody wakes us, loom reports that all threads are blocked.
            task.sleep();
        }
        waiter.get_up(1);
        loop {
            match segment.take(seat, None) {
                Mail::Number(number, from) => break assert_eq!((number, from), (5, ALICE)),
                // The slot is taken and not yet filled: there is mail, and it is waited for.
                Mail::Unfinished => thread::yield_now(),
                Mail::Empty => panic!("woken for nothing"),
            }
        }
        sender.join().expect("no panic");
    });
}

// --- the endpoint table

#[test]
fn an_entry_has_one_owner() {
    check(2, || {
        let segment = ModelSegment::new(2);
        // One entry is free, the other was left by a process that is gone.
        segment.claim_and_die().expect("a free entry");
        let claimers = [(); 2].map(|()| {
            let segment = segment.clone();
            thread::spawn(move || segment.claim().expect("there are two entries"))
        });
        let [one, other] = claimers.map(|claimer| claimer.join().expect("no panic"));
        assert_ne!(one.index(), other.index());
        assert_ne!(one.id(), other.id());
        assert!(segment.is_at_home(one.id()) && segment.is_at_home(other.id()));
        assert_eq!(segment.claim(), None);
    });
}

#[test]
fn an_entry_that_is_left_can_be_had_again() {
    check(3, || {
        let segment = ModelSegment::new(1);
        let first = segment.claim().expect("a free entry");
        let claimer = {
            let segment = segment.clone();
            thread::spawn(move || segment.claim())
        };
        segment.release(first);
        assert!(!segment.is_at_home(first.id()));
        match claimer.join().expect("no panic") {
            Some(second) => {
                assert_ne!(second.id(), first.id());
                assert!(segment.is_at_home(second.id()));
                // A late release of the former owner takes nothing away.
                segment.release(first);
                assert!(segment.is_at_home(second.id()));
            }
            None => assert!(segment.claim().is_some()),
        }
    });
}

#[test]
fn nothing_is_executed_after_the_cut() {
    check(3, || {
        let (segment, seat) = with_receiver(1);
        let memory = Arc::new(AtomicU64::new(0));
        let executor = {
            let (segment, memory) = (segment.clone(), memory.clone());
            thread::spawn(move || segment.execute(seat, || memory.store(1, Relaxed)))
        };
        if segment.fence(seat.id()) {
            let seen = memory.load(Relaxed);
            executor.join().expect("no panic");
            assert_eq!(
                memory.load(Relaxed),
                seen,
                "a verb took effect after the endpoint was cut off"
            );
        } else {
            executor.join().expect("no panic");
        }
    });
}
