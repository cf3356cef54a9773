//! The rules of `nic`, each as an equation of simulated times.
//!
//! In the profile of these tests a post costs nothing and a packet one nanosecond. So a verb that is
//! posted at `s` arrives at `s + 501`, and one that its unit is done with at `e` completes at
//! `e + 501`. Queue pairs are dealt to two units: even clients to unit 0, odd ones to unit 1.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::batch::Batch;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::message::Message;
use crate::op::OpContext;
use crate::sim::{MemoryAfterCrash, Profile, Sim, SimOptions, Step, TraceEntry};
use crate::verb::VerbKind;
use crate::{Endpoint, NodeId, RemoteAddr};

/// From the post to the arrival, and from the end of the service to the completion.
const WAY: u64 = 501;
/// The address that everybody wants.
const HOT: u64 = 0;

fn profile(window: u32) -> Profile {
    Profile {
        name: "exact".to_owned(),
        units: 2,
        unit_ns: 100,
        address_ns: 1000,
        extended_extra_ns: 150,
        window,
        wire_ns: 500,
        bytes_per_us: 1_000_000,
        post_ns: 0,
        post_extra_ns: 0,
        ..Profile::plain()
    }
}

/// What a client of a [`Stage`] posts.
#[derive(Clone, Copy)]
enum Post {
    /// A compare-and-swap of the word at this offset, from 0 to 1.
    Swap(u64),
    /// A READ of the word at this offset.
    Read(u64),
}

/// One memory node, and clients that post at fixed times.
struct Stage {
    sim: Sim,
    node: NodeId,
    ends: Rc<RefCell<BTreeMap<u32, Vec<u64>>>>,
}

impl Stage {
    fn new(profile: Profile) -> Self {
        let sim = Sim::new(SimOptions {
            profile,
            trace_entries: 100,
            ..SimOptions::default()
        });
        let node = sim.add_memory_node(4096);
        Self {
            sim,
            node,
            ends: Rc::default(),
        }
    }

    /// Clients that each post a batch so that it arrives at the given time; client `n` is the `n`-th.
    /// Returns when the unit was done with each verb, by client.
    fn run(profile: Profile, clients: &[(u64, &[Post])]) -> Vec<Vec<u64>> {
        let stage = Self::new(profile);
        for &(arrival, posts) in clients {
            stage.post(arrival, posts);
        }
        stage.sim.run_until_idle();
        let mut ends = vec![Vec::new(); clients.len()];
        for entry in stage.sim.trace_tail() {
            if entry.step == Step::Executed {
                ends[entry.endpoint as usize].push(entry.time_ns);
            }
        }
        for (number, completed) in stage.ends.borrow().iter() {
            let last = ends[*number as usize].last().map(|end| end + WAY);
            assert_eq!(last, completed.last().copied(), "the response leaves at the end");
        }
        ends
    }

    fn post(&self, arrival: u64, posts: &[Post]) {
        let endpoint = self.sim.endpoint(self.sim.add_compute_node());
        let number = self.ends.borrow().len() as u32;
        self.ends.borrow_mut().insert(number, Vec::new());
        let (node, posts, ends) = (self.node, posts.to_vec(), Rc::clone(&self.ends));
        endpoint.clone().spawn(async move {
            endpoint.sleep(arrival - WAY).await;
            let mut batch = Batch::new();
            for post in posts {
                match post {
                    Post::Swap(offset) => batch.compare_swap(RemoteAddr::new(node, offset), 0, 1),
                    Post::Read(offset) => batch.read_word(RemoteAddr::new(node, offset)),
                };
            }
            let mut op = OpContext::new(endpoint.clone());
            op.post(&mut batch).await.expect("the node is there");
            let mut ends = ends.borrow_mut();
            ends.entry(number).or_default().push(endpoint.now_ns());
        });
    }
}

/// Client 0 holds the hot address in `[1000, 2000)`. Client 1 asks at 1010, so unit 1 is blocked
/// until 2000 and executes until 3000. `queued` arrive at unit 1 from 1020 on, ten nanoseconds apart;
/// returns when it was done with their verbs.
fn behind_a_blocked_atomic(window: u32, queued: &[&[Post]]) -> Vec<Vec<u64>> {
    let idle: &[Post] = &[Post::Read(2048)];
    let mut clients: Vec<(u64, &[Post])> = vec![(1000, &[Post::Swap(HOT)]), (1010, &[Post::Swap(HOT)])];
    for (position, &posts) in queued.iter().enumerate() {
        clients.push((100_000, idle)); // It is of unit 0, and comes when all is over.
        clients.push((1020 + 10 * position as u64, posts));
    }
    let ends = Stage::run(profile(window), &clients);
    assert_eq!((&ends[0], &ends[1]), (&vec![2000], &vec![3000]));
    ends.into_iter().skip(3).step_by(2).collect()
}

/// The last bytes of the node are the NIC's: there an atomic takes as long as a READ, one after the other on one address.
#[test]
fn atomics_in_the_memory_of_the_nic_take_as_long_as_reads() {
    let chip = Profile {
        chip_bytes: 64,
        ..profile(0)
    };
    let on_chip = Post::Swap(4096);
    let ends = Stage::run(
        chip,
        &[(1000, &[on_chip]), (1000, &[on_chip]), (5000, &[Post::Swap(4088)])],
    );
    assert_eq!(ends, [[1100], [1200], [6000]]);
}

#[test]
fn atomics_on_one_address_are_executed_back_to_back_in_the_order_of_asking() {
    let clients: Vec<(u64, &[Post])> = (0..2).map(|n| (1000 + n, &[Post::Swap(HOT)][..])).collect();
    assert_eq!(Stage::run(profile(3), &clients), [[2000], [3000]]);
    let many = Profile { units: 5, ..profile(3) };
    let clients: Vec<(u64, &[Post])> = [3, 0, 4, 1, 2]
        .iter()
        .map(|n| (1000 + n, &[Post::Swap(HOT)][..]))
        .collect();
    assert_eq!(Stage::run(many, &clients), [[5000], [2000], [6000], [3000], [4000]]);
}

#[test]
fn atomics_on_different_addresses_do_not_meet() {
    let ends = Stage::run(profile(3), &[(1000, &[Post::Swap(0)]), (1001, &[Post::Swap(8)])]);
    assert_eq!(ends, [[2000], [2001]]);
}

#[test]
fn a_read_does_not_wait_for_a_locked_address_and_sees_the_atomic_at_its_end() {
    for (arrival, seen) in [(1899, 0), (1901, 1)] {
        let stage = Stage::new(profile(3));
        stage.post(1000, &[Post::Swap(HOT)]);
        let mut op = OpContext::new(stage.sim.endpoint(stage.sim.add_compute_node()));
        stage.sim.run_until(arrival - WAY);
        let word = stage.sim.block_on(op.read_word(RemoteAddr::new(stage.node, HOT)));
        assert_eq!(word, Ok(seen));
        assert_eq!(stage.sim.now_ns(), arrival + 100 + WAY);
    }
}

#[test]
fn an_atomic_occupies_its_unit_as_long_as_its_address() {
    let ends = Stage::run(
        profile(3),
        &[
            (1000, &[Post::Swap(0), Post::Read(8)]),
            (1010, &[Post::Read(8), Post::Swap(16)]),
        ],
    );
    assert_eq!(ends, [[2000, 2100], [1110, 2110]]);
}

#[test]
fn window_zero_is_strict_head_of_line_blocking() {
    assert_eq!(behind_a_blocked_atomic(0, &[&[Post::Read(64)]]), [[3100]]);
}

#[test]
fn a_read_of_another_queue_pair_passes_a_blocked_atomic() {
    assert_eq!(behind_a_blocked_atomic(1, &[&[Post::Read(64)]]), [[1120]]);
    // One at a time, the oldest first.
    let queued: [&[Post]; 3] = [&[Post::Read(64)]; 3];
    assert_eq!(behind_a_blocked_atomic(3, &queued), [[1120], [1220], [1320]]);
}

#[test]
fn atomics_never_pass() {
    let queued: [&[Post]; 2] = [&[Post::Swap(64)], &[Post::Read(64)]];
    assert_eq!(behind_a_blocked_atomic(3, &queued), [[4000], [1130]]);
}

#[test]
fn the_window_ends_at_its_position() {
    let queued: [&[Post]; 4] = [
        &[Post::Swap(64)],
        &[Post::Swap(72)],
        &[Post::Swap(80)],
        &[Post::Read(64)],
    ];
    assert_eq!(behind_a_blocked_atomic(4, &queued), [[4000], [5000], [6000], [1150]]);
    assert_eq!(behind_a_blocked_atomic(3, &queued), [[4000], [5000], [6000], [6100]]);
    // What is behind the window moves up when something of it was served.
    let queued: [&[Post]; 3] = [&[Post::Swap(64)], &[Post::Read(64)], &[Post::Read(64)]];
    assert_eq!(behind_a_blocked_atomic(2, &queued), [[4000], [1130], [1230]]);
}

#[test]
fn nothing_passes_an_earlier_verb_of_its_own_queue_pair() {
    // The READ that follows the blocked atomic itself.
    let clients: [(u64, &[Post]); 4] = [
        (1000, &[Post::Swap(HOT)]),
        (1010, &[Post::Swap(HOT), Post::Read(8)]),
        (100_000, &[Post::Read(8)]),
        (1020, &[Post::Read(64)]),
    ];
    let ends = Stage::run(profile(3), &clients);
    assert_eq!((&ends[1], &ends[3]), (&vec![3000, 3100], &vec![1120]));
    // The READ that follows an atomic in the queue, and READs of one queue pair among themselves.
    let queued: [&[Post]; 2] = [&[Post::Swap(64), Post::Read(8)], &[Post::Read(64)]];
    assert_eq!(behind_a_blocked_atomic(3, &queued), [vec![4000, 4100], vec![1130]]);
    assert_eq!(
        behind_a_blocked_atomic(3, &[&[Post::Read(8), Post::Read(16)]]),
        [[1120, 1220]]
    );
}

#[test]
fn a_grant_does_not_wait_for_a_bypass_and_new_work_waits_for_both() {
    let late: [(u64, &[Post]); 6] = [
        (1000, &[Post::Swap(HOT)]),
        (1010, &[Post::Swap(HOT)]),
        (100_000, &[Post::Read(8)]),
        (1950, &[Post::Read(64)]),
        (100_000, &[Post::Read(8)]),
        (2010, &[Post::Read(64)]),
    ];
    let ends = Stage::run(profile(3), &late);
    assert_eq!(
        (&ends[1], &ends[3], &ends[5]),
        (&vec![3000], &vec![2050], &vec![3100]),
        "the bypass ends first, and a unit that executes its atomic serves nothing else"
    );
    let slow = Profile {
        unit_ns: 2000,
        ..profile(3)
    };
    let ends = Stage::run(slow, &late);
    assert_eq!(
        (&ends[1], &ends[3], &ends[5]),
        (&vec![3000], &vec![3950], &vec![5950]),
        "the atomic ends first"
    );
}

/// What a unit has put aside does not stop it: atomics of other queue pairs pass as well, and the one that was put aside is
/// executed beside them as soon as it has its address.
#[test]
fn what_is_put_aside_does_not_stop_its_unit() {
    let one = |window| Profile {
        aside: 1,
        ..profile(window)
    };
    let idle: (u64, &[Post]) = (100_000, &[Post::Read(2048)]);
    let clients: [(u64, &[Post]); 8] = [
        (1000, &[Post::Swap(HOT)]),
        (1010, &[Post::Swap(HOT), Post::Read(8)]),
        idle,
        (1020, &[Post::Read(64)]),
        idle,
        (1030, &[Post::Swap(64)]),
        idle,
        (2500, &[Post::Read(72)]),
    ];
    let ends = Stage::run(one(3), &clients);
    assert_eq!((&ends[3], &ends[5]), (&vec![1120], &vec![2120]), "they pass");
    assert_eq!(ends[1], [3000, 3100], "its own queue pair keeps its order");
    assert_eq!(ends[7], [2600]);
    // The second one to be put aside finds no room: the unit stands still until it is granted.
    let clients: [(u64, &[Post]); 6] = [
        (1000, &[Post::Swap(HOT)]),
        (1010, &[Post::Swap(HOT)]),
        idle,
        (1020, &[Post::Swap(HOT)]),
        idle,
        (1030, &[Post::Read(64)]),
    ];
    let ends = Stage::run(one(0), &clients);
    assert_eq!((&ends[1], &ends[3], &ends[5]), (&vec![3000], &vec![4000], &vec![4100]));
}

#[test]
fn extended_atomics_take_longer() {
    let swap_ns = |profile: Profile| {
        let stage = Stage::new(profile);
        let mut op = OpContext::new(stage.sim.endpoint(stage.sim.add_compute_node()));
        let operands = crate::MaskedCas::whole(0, 1);
        let swap = op.masked_compare_swap(RemoteAddr::new(stage.node, HOT), operands);
        stage.sim.block_on(swap).expect("the node is there");
        stage.sim.now_ns()
    };
    assert_eq!(swap_ns(profile(3)), 1000 + 150 + 2 * WAY);
    let late = Profile {
        extended_late_ns: 70,
        ..profile(3)
    };
    assert_eq!(swap_ns(late), 1000 + 150 + 70 + 2 * WAY);
}

/// A client's core takes one result after the other, and a result that it has not taken is none.
#[test]
fn a_core_takes_one_result_after_the_other() {
    let sim = Sim::new(SimOptions {
        profile: Profile {
            take_ns: 300,
            units: 4,
            ..profile(0)
        },
        ..SimOptions::default()
    });
    let node = sim.add_memory_node(4096);
    let machine = sim.add_compute_node_with_cores(1);
    let ends: Rc<RefCell<Vec<u64>>> = Rc::default();
    for client in 0..3 {
        let (endpoint, ends) = (sim.endpoint(machine), Rc::clone(&ends));
        endpoint.clone().spawn(async move {
            let mut op = OpContext::new(endpoint.clone());
            op.read_word(RemoteAddr::new(node, 64 * client))
                .await
                .expect("the node is there");
            ends.borrow_mut().push(endpoint.now_ns());
        });
    }
    sim.run_until_idle();
    let first = 2 * WAY + 100 + 300;
    // Requests leave a nanosecond apart.
    assert_eq!(*ends.borrow(), [first, first + 300, first + 600]);
    assert_eq!(sim.operations_in_flight(), 0);
}

/// A message is seen later than it is acknowledged, by `message_ns`.
#[test]
fn a_message_is_seen_when_its_receiver_has_polled_for_it() {
    let sim = Sim::new(SimOptions {
        profile: Profile {
            message_ns: 2000,
            ..profile(0)
        },
        ..SimOptions::default()
    });
    let [from, to] = [(); 2].map(|()| sim.endpoint(sim.add_compute_node()));
    let (id, seen) = (to.id(), Rc::new(Cell::new(0)));
    let noted = Rc::clone(&seen);
    to.clone().spawn(async move {
        to.receive(Deadline::NEVER).await.expect("it is sent");
        noted.set(to.now_ns());
    });
    let message = Message::try_from(b"now".as_slice()).expect("it is short");
    let sent = sim.block_on(from.send(id, &message, Deadline::NEVER));
    assert_eq!((sent, sim.now_ns()), (Ok(()), 2 * WAY + 100));
    sim.run_until_idle();
    assert_eq!(seen.get(), WAY + 100 + 2000);
}

#[test]
fn a_node_that_crashes_takes_what_its_units_hold_along() {
    let sim = Sim::new(SimOptions {
        profile: profile(0),
        ..SimOptions::default()
    });
    let node = sim.add_memory_node(4096);
    let failures = Rc::new(Cell::new(0));
    // Unit 0 executes, unit 1 is blocked, and a READ is queued behind it.
    for number in 0..4 {
        let endpoint = sim.endpoint(sim.add_compute_node());
        let failures = Rc::clone(&failures);
        endpoint.clone().spawn(async move {
            let mut op = OpContext::new(endpoint.clone());
            endpoint.sleep(1000 + 10 * number - WAY).await;
            let hot = RemoteAddr::new(node, HOT);
            let done = if number < 2 {
                op.compare_swap(hot, 0, 1).await
            } else {
                op.read_word(hot).await
            };
            assert_eq!(done, Err(FabricError::NodeGone { node }));
            failures.set(failures.get() + 1);
        });
    }
    sim.run_until(1500);
    sim.crash_node(node);
    sim.restart_node(node, MemoryAfterCrash::Kept);
    let mut op = OpContext::new(sim.endpoint(sim.add_compute_node()));
    // It is of unit 0, which ends in peace what it executes.
    let swapped = sim.block_on(op.compare_swap(RemoteAddr::new(node, HOT), 0, 2));
    assert_eq!(swapped, Ok(0), "the interrupted atomic took no effect");
    assert_eq!(sim.now_ns(), 1500 + WAY + 1000 + WAY);
    sim.run_until_idle();
    assert_eq!(failures.get(), 4);
    assert_eq!(sim.operations_in_flight(), 0);
}

/// Twelve clients post random batches over a few hot words; the trace.
fn crowd(seed: u64, window: u32, aside: u32) -> Vec<TraceEntry> {
    let sim = Sim::new(SimOptions {
        seed,
        profile: Profile {
            aside,
            ..profile(window)
        },
        jitter_ns: 700,
        trace_entries: 20_000,
        ..SimOptions::default()
    });
    let node = sim.add_memory_node(1 << 20);
    let compute_node = sim.add_compute_node();
    for client in 0..12 {
        let endpoint = sim.endpoint(compute_node);
        endpoint.clone().spawn(async move {
            let mut op = OpContext::new(endpoint.clone());
            let mut own = 4096 + client * 4096;
            for _ in 0..40 {
                let mut batch = Batch::new();
                for _ in 0..1 + endpoint.random_below(4) {
                    own += 8; // Each verb beside the hot ones has its own word, and so its name.
                    match endpoint.random_below(3) {
                        0 => batch.fetch_add(RemoteAddr::new(node, 8 * endpoint.random_below(3)), 1),
                        1 => batch.write_word(RemoteAddr::new(node, own), 1),
                        _ => batch.read_word(RemoteAddr::new(node, own)),
                    };
                }
                op.post(&mut batch).await.expect("the node is there");
            }
        });
    }
    sim.run_until_idle();
    sim.trace_tail()
}

#[test]
fn queue_pairs_keep_their_order_and_addresses_their_locks() {
    let mut overtook = [false; 2];
    for seed in 1..=40 {
        let aside = seed as u32 % 4;
        let trace = crowd(seed, 3, aside);
        for endpoint in 0..12 {
            let order = |step| {
                let of = trace
                    .iter()
                    .filter(move |entry| entry.endpoint == endpoint && entry.step == step);
                of.map(|entry| (entry.kind, entry.target)).collect::<Vec<_>>()
            };
            assert_eq!(
                order(Step::Posted),
                order(Step::Executed),
                "seed {seed}, client {endpoint}"
            );
            assert_eq!(
                order(Step::Posted),
                order(Step::Completed),
                "seed {seed}, client {endpoint}"
            );
        }
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for entry in trace.iter().filter(|entry| entry.step == Step::Executed) {
            if entry.kind == VerbKind::FetchAdd as u8
                && let Some(before) = last.insert(entry.target, entry.time_ns)
            {
                assert!(entry.time_ns >= before + 1000, "seed {seed}: two atomics at once");
            }
        }
        overtook[0] |= aside == 0 && trace != crowd(seed, 0, 0);
        overtook[1] |= aside != 0 && trace != crowd(seed, 3, 0);
    }
    assert_eq!(overtook, [true; 2], "no verb ever passed an atomic that waits");
}

/// Clients that take one lock without any back-off, and release it by a WRITE or a compare-and-swap: acquisitions per second, and the
/// share of attempts that failed.
fn plain_lock(clients: u64, profile: Profile, swaps_back: bool) -> (f64, f64) {
    const MEASURED_NS: u64 = 40_000_000;
    let sim = Sim::new(SimOptions {
        profile,
        ..SimOptions::default()
    });
    let lock = RemoteAddr::new(sim.add_memory_node(4096), 0);
    let (taken, tried) = (Rc::new(Cell::new(0_u32)), Rc::new(Cell::new(0_u32)));
    for _ in 0..clients {
        let endpoint: Endpoint = sim.endpoint(sim.add_compute_node());
        let (taken, tried) = (Rc::clone(&taken), Rc::clone(&tried));
        endpoint.clone().spawn(async move {
            let mut op = OpContext::new(endpoint.clone());
            endpoint.sleep(endpoint.random_below(3000)).await;
            loop {
                let old = op.compare_swap(lock, 0, 1).await.expect("the node is there");
                tried.set(tried.get() + 1);
                if old == 0 {
                    taken.set(taken.get() + 1);
                    if swaps_back {
                        op.compare_swap(lock, 1, 0).await.map(drop)
                    } else {
                        op.write_word(lock, 0).await
                    }
                    .expect("the node is there");
                }
            }
        });
    }
    sim.run_until(10_000_000);
    let before = (taken.get(), tried.get());
    sim.run_until(10_000_000 + MEASURED_NS);
    let taken = f64::from(taken.get() - before.0);
    let tried = f64::from(tried.get() - before.1);
    (taken * 1e9 / MEASURED_NS as f64, 1.0 - taken / tried)
}

/// ShiftLock section 2.3: 240 clients take 15.5 K locks a second, and 99.4 % of their
/// compare-and-swaps are retries; one client alone takes 278.3 K.
#[test]
fn one_plain_lock_collapses_as_published() {
    for (profile, swaps_back) in [(Profile::plain(), false), (Profile::cx5(), true)] {
        let (rate, retries) = plain_lock(240, profile.clone(), swaps_back);
        assert!((11_600.0..19_400.0).contains(&rate), "{rate} locks/s");
        assert!((0.989..0.999).contains(&retries), "{retries} of the swaps fail");
        let strict = Profile {
            window: 0,
            aside: 0,
            ..profile.clone()
        };
        let (strict_rate, _) = plain_lock(240, strict, swaps_back);
        assert!(
            swaps_back || strict_rate < rate,
            "the window is what lets a WRITE through"
        );
        let (alone, retries) = plain_lock(1, profile.clone(), swaps_back);
        assert!((alone / 278_300.0 - 1.0).abs() < 0.01, "{alone} locks/s");
        assert!(retries.abs() < f64::EPSILON, "nobody is in the way");
        println!(
            "{}: {rate} locks/s, {strict_rate} without window; {alone} of one client",
            profile.name
        );
    }
}
