//! Properties of the simulated fabric beyond the contract: determinism, the NIC model in exact
//! numbers, torn lines, faults.
//!
//! Latencies and rates are equalities: the model is a definition, so a change of it must be seen.

mod forgotten;
mod pauses;
mod queue_pairs;
mod stepping;
mod tears;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use farside_fabric::Endpoint;
use farside_fabric::sim::{
    ComputeNodeId, CrashPoint, MemoryAfterCrash, PACKET_HEADER_BYTES, Profile, Sim, SimOptions, Step,
};
use farside_fabric::{
    Batch, Deadline, EndpointId, FabricError, Fence, MaskedCas, Message, NodeId, OpContext, RemoteAddr, Slice,
};

fn environment(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")),
        Err(_) => default,
    }
}

/// Runs `property` for each seed, and says how to replay the one that fails.
fn for_seeds(property: impl Fn(u64)) {
    struct Replay(u64);
    impl Drop for Replay {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("replay: cargo xtask sim --seed {} --seeds 1", self.0);
            }
        }
    }
    let base = environment("FARSIDE_SEED", 1);
    for seed in base..base + environment("FARSIDE_SEEDS", 20) {
        let _replay = Replay(seed);
        property(seed);
    }
}

struct Small {
    sim: Sim,
    node: NodeId,
    compute_node: ComputeNodeId,
}

impl Small {
    fn new(options: SimOptions) -> Self {
        let sim = Sim::new(options);
        let node = sim.add_memory_node(1 << 20);
        let compute_node = sim.add_compute_node();
        Self {
            sim,
            node,
            compute_node,
        }
    }

    fn endpoint(&self) -> Endpoint {
        self.sim.endpoint(self.compute_node)
    }

    fn op(&self) -> OpContext {
        OpContext::new(self.endpoint())
    }

    fn at(&self, offset: u64) -> RemoteAddr {
        RemoteAddr::new(self.node, offset)
    }

    fn reconnect(&self, endpoint: &Endpoint, node: NodeId) -> Result<(), FabricError> {
        let endpoint = endpoint.simulated().expect("a simulated endpoint");
        self.sim.block_on(endpoint.reconnect(node))
    }

    fn word(&self, offset: u64) -> u64 {
        self.sim.region(self.node).word(offset).load(Ordering::Relaxed)
    }
}

fn seeded(seed: u64) -> SimOptions {
    SimOptions {
        seed,
        ..SimOptions::default()
    }
}

/// Nanoseconds that a packet with this payload takes to leave a port.
fn emission_ns(profile: &Profile, payload: u64) -> u64 {
    ((PACKET_HEADER_BYTES + payload) * (1_000_000 / profile.bytes_per_us)).div_ceil(1000)
}

/// A mixed workload with contention, long verbs, messages, faults and deadlines; the hash of its
/// trace.
fn torture(seed: u64) -> u64 {
    let options = SimOptions {
        jitter_ns: 300,
        ..seeded(seed)
    };
    let sim = Sim::new(options);
    let nodes = [sim.add_memory_node(1 << 16), sim.add_memory_node(1 << 16)];
    let compute_nodes = [sim.add_compute_node(), sim.add_compute_node_with_cores(2)];
    let endpoints: Vec<Endpoint> = (0..12).map(|index| sim.endpoint(compute_nodes[index % 2])).collect();
    for (index, endpoint) in endpoints.iter().enumerate() {
        let endpoint = endpoint.clone();
        let peer = endpoints[(index + 1) % endpoints.len()].id();
        endpoint.clone().spawn(async move {
            let mut op = OpContext::new(endpoint.clone());
            for _ in 0..200 {
                op.set_deadline(endpoint.deadline_in(20_000));
                let node = nodes[endpoint.random_below(2) as usize];
                let addr = RemoteAddr::new(node, endpoint.random_below(16) * 64);
                // Errors are part of the workload: links are cut, a node crashes, queue pairs break.
                let done = match endpoint.random_below(6) {
                    0 => op.read(addr, Slice::first(512)).await.map(drop),
                    1 => op.write(Slice::first(300), addr).await,
                    2 => op.compare_swap(addr, 0, endpoint.random()).await.map(drop),
                    3 => op.fetch_add(addr, 1).await.map(drop),
                    4 => {
                        let message = Message::try_from(&b"hello"[..]).expect("short");
                        endpoint.send(peer, &message, endpoint.deadline_in(9_000)).await
                    }
                    _ => endpoint.receive(endpoint.deadline_in(3_000)).await.map(drop),
                };
                if let Err(FabricError::NodeGone { node }) = done {
                    let _ = endpoint
                        .simulated()
                        .expect("a simulated endpoint")
                        .reconnect(node)
                        .await;
                }
                op.validated();
            }
        });
    }
    sim.crash_client_at(
        endpoints[3].id(),
        CrashPoint {
            verb: 40,
            lines: Some(2),
        },
    );
    sim.run_until(50_000);
    sim.partition(compute_nodes[0], nodes[1]);
    sim.delay_peers(compute_nodes[0], compute_nodes[1], 5_000);
    sim.run_until(120_000);
    sim.pause_client(endpoints[7].id());
    sim.break_queue_pair(endpoints[8].id(), nodes[0]);
    sim.break_queue_pair(endpoints[8].id(), nodes[1]);
    sim.heal(compute_nodes[0], nodes[1]);
    sim.run_until(140_000);
    sim.resume_client(endpoints[7].id());
    sim.crash_client(endpoints[5].id());
    sim.crash_node(nodes[0]);
    sim.run_until(200_000);
    sim.restart_node(nodes[0], MemoryAfterCrash::Kept);
    sim.set_clock(compute_nodes[1], 7_000, 50_000);
    sim.run_until_idle();
    assert!(sim.is_crashed(endpoints[3].id()), "the crash point was reached");
    assert_eq!(sim.operations_in_flight(), 0, "every slot came back");
    sim.trace_hash()
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for_seeds(|seed| {
        let first = torture(seed);
        assert_eq!(first, torture(seed), "seed {seed} is not deterministic");
        assert_ne!(first, torture(seed + 1), "seeds {seed} and {} give one trace", seed + 1);
    });
}

#[test]
fn unloaded_latencies_are_exact() {
    for profile in Profile::all().into_iter().chain([Profile::plain()]) {
        let small = Small::new(SimOptions {
            profile: profile.clone(),
            ..seeded(1)
        });
        let mut op = small.op();
        let fixed = profile.post_ns + 2 * profile.wire_ns + profile.take_ns;
        let check = |service: u64, request: u64, reply: u64, took: u64, verb: &str| {
            let bytes = emission_ns(&profile, request) + emission_ns(&profile, reply);
            assert_eq!(took, fixed + service + bytes, "{verb} on {}", profile.name);
        };
        let expect = |request, reply, took, verb: &str| check(profile.unit_ns, request, reply, took, verb);
        let sim = &small.sim;
        let took = |before: u64| sim.now_ns() - before;

        let before = sim.now_ns();
        sim.block_on(op.read_word(small.at(0))).unwrap();
        expect(16, 12, took(before), "READ of 8 bytes");

        let before = sim.now_ns();
        sim.block_on(op.write_word(small.at(0), 1)).unwrap();
        expect(24, 4, took(before), "WRITE of 8 bytes");

        let before = sim.now_ns();
        sim.block_on(op.compare_swap(small.at(8), 0, 1)).unwrap();
        check(profile.address_ns, 28, 12, took(before), "compare-and-swap");

        let before = sim.now_ns();
        sim.block_on(op.masked_compare_swap(small.at(8), MaskedCas::whole(1, 2)))
            .unwrap();
        let service = profile.address_ns + profile.extended_extra_ns + profile.extended_late_ns;
        check(service, 44, 12, took(before), "masked compare-and-swap");

        let before = sim.now_ns();
        sim.block_on(op.read(small.at(0), Slice::first(512))).map(drop).unwrap();
        expect(16, 516, took(before), "READ of 512 bytes");
    }
}

/// Clients that repeat `verb` without pause; verbs executed at the node per simulated millisecond.
fn rate(profile: &Profile, clients: usize, is_atomic: bool, addresses: u64) -> u64 {
    let small = Small::new(SimOptions {
        profile: profile.clone(),
        ..seeded(7)
    });
    for _ in 0..clients {
        let mut op = small.op();
        let at = small.at(0);
        op.endpoint().clone().spawn(async move {
            loop {
                let addr = at.plus(op.endpoint().random_below(addresses) * 8);
                let done = match is_atomic {
                    true => op.fetch_add(addr, 1).await,
                    false => op.read_word(addr).await,
                };
                done.expect("the node is there");
            }
        });
    }
    small.sim.run_until(1_000_000);
    let before = small.sim.statistics(small.node).verbs.total();
    small.sim.run_until(2_000_000);
    small.sim.statistics(small.node).verbs.total() - before
}

#[test]
fn peak_rate_is_units_by_service_time() {
    for profile in Profile::all() {
        let peak = u64::from(profile.units) * 1_000_000 / profile.unit_ns;
        let seen = rate(&profile, 512, false, 1024);
        assert!(
            seen.abs_diff(peak) <= u64::from(profile.units),
            "{seen} of {peak} on {}",
            profile.name
        );
    }
}

#[test]
fn one_address_takes_one_atomic_per_lock_time() {
    for profile in Profile::all() {
        let seen = rate(&profile, 64, true, 1);
        assert!(
            seen.abs_diff(1_000_000 / profile.address_ns) <= 1,
            "{seen} on {}",
            profile.name
        );
    }
}

/// How long a WRITE takes to another word, by a client that nobody else disturbs, while others retry
/// on one lock word: three of them for each unit, so that every unit is blocked all the time.
fn release_among_retries(window: u32) -> u64 {
    let profile = Profile {
        window,
        ..Profile::plain()
    };
    let units = profile.units;
    let small = Small::new(SimOptions { profile, ..seeded(3) });
    for _ in 0..3 * units {
        let mut op = small.op();
        let lock = small.at(0);
        op.endpoint().clone().spawn(async move {
            loop {
                op.compare_swap(lock, 0, 1).await.expect("the node is there");
            }
        });
    }
    let mut holder = small.op();
    small.sim.run_until(100_000);
    let before = small.sim.now_ns();
    let released = small.sim.block_on(holder.write_word(small.at(64), 1));
    assert_eq!(released, Ok(()));
    assert!(small.sim.statistics(small.node).blocked_ns > 0);
    small.sim.now_ns() - before
}

#[test]
fn a_release_waits_behind_the_retries_of_others() {
    let profile = Profile::plain();
    let strict = release_among_retries(0);
    // Each unit gets its turn on the address once a round.
    let round = u64::from(profile.units) * profile.address_ns;
    assert!(strict > round, "{strict} ns: no head-of-line blocking");
    let windowed = release_among_retries(profile.window);
    assert!(windowed < strict, "{windowed} ns: the window lets nothing through");
}

#[test]
fn verbs_of_one_endpoint_take_effect_in_posting_order() {
    for_seeds(|seed| {
        let small = Small::new(SimOptions {
            jitter_ns: 2_000,
            ..seeded(seed)
        });
        let mut writer = small.op();
        let mut reader = small.op();
        let (flag, data) = (small.at(0), small.at(4096));
        let writer_endpoint = writer.endpoint().clone();
        writer_endpoint.spawn(async move {
            for round in 1..=40_u8 {
                writer.buffer_mut()[..1024].fill(round);
                let mut batch = Batch::new();
                // The long WRITE first: the flag may not overtake any of its lines.
                batch.write(Slice::first(1024), data);
                batch.write_word(flag, u64::from(round));
                writer.post(&mut batch).await.expect("the node is there");
            }
        });
        small.sim.block_on(async {
            loop {
                let round = reader.read_word(flag).await.unwrap();
                let bytes = reader.read(data, Slice::first(1024)).await.unwrap();
                let least = *bytes.iter().min().expect("1024 bytes");
                assert!(
                    u64::from(least) >= round,
                    "the flag said {round}, a byte is of round {least}"
                );
                if round == 40 {
                    return;
                }
            }
        });
    });
}

/// Lines of mixed rounds, and torn words, that a reader of a block under constant rewriting saw.
fn tears(seed: u64, tear_bytes: u64) -> (usize, usize, usize) {
    let small = Small::new(SimOptions {
        tear_bytes,
        jitter_ns: 400,
        ..seeded(seed)
    });
    let mut writer = small.op();
    let mut reader = small.op();
    let data = small.at(4096);
    writer.endpoint().clone().spawn(async move {
        for round in 1..=60_u8 {
            writer.buffer_mut()[..256].fill(round);
            writer.write(Slice::first(256), data).await.expect("the node is there");
        }
    });
    let (mut blocks, mut lines, mut words) = (0, 0, 0);
    small.sim.block_on(async {
        for _ in 0..60 {
            let bytes = reader.read(data, Slice::first(256)).await.expect("the node is there");
            let is_mixed = |part: &[u8]| part.iter().any(|&byte| byte != part[0]);
            blocks += usize::from(is_mixed(bytes));
            lines += bytes.chunks(64).filter(|line| is_mixed(line)).count();
            words += bytes.chunks(8).filter(|word| is_mixed(word)).count();
        }
    });
    (blocks, lines, words)
}

#[test]
fn long_verbs_tear_at_lines_and_never_at_words() {
    let (mut blocks_torn, mut lines_torn) = (0, 0);
    for_seeds(|seed| {
        let (_, lines, words) = tears(seed, 64);
        assert_eq!((lines, words), (0, 0), "NICs touch whole lines");
        let (_, _, words) = tears(seed, 8);
        assert_eq!(words, 0, "words never tear");
    });
    for seed in 1..=20 {
        blocks_torn += tears(seed, 64).0;
        lines_torn += tears(seed, 8).1;
    }
    assert!(blocks_torn > 0, "no seed tore a block");
    assert!(lines_torn > 0, "no seed tore a line");
}

#[test]
fn a_crash_point_leaves_exactly_its_lines() {
    for_seeds(|seed| {
        for lines in 0..=4 {
            let small = Small::new(seeded(seed));
            let mut op = small.op();
            let id = op.endpoint().id();
            let (data, after) = (small.at(4096), small.at(0));
            let point = CrashPoint {
                verb: 2,
                lines: Some(lines),
            };
            small.sim.crash_client_at(id, point);
            let went_on = Rc::new(Cell::new(false));
            let goes_on = Rc::clone(&went_on);
            op.endpoint().clone().spawn(async move {
                op.write_word(after, 1).await.expect("the node is there");
                op.buffer_mut()[..256].fill(9);
                let mut batch = Batch::new();
                batch.write(Slice::first(256), data);
                batch.write_word(after, 2);
                let _ = op.post(&mut batch).await;
                goes_on.set(true);
            });
            small.sim.run_until_idle();
            assert!(small.sim.is_crashed(id));
            assert!(!went_on.get(), "a crashed client sees no completion");
            let region = small.sim.region(small.node);
            let mut bytes = [0; 256];
            region.read(4096, &mut bytes);
            let whole = bytes
                .chunks(64)
                .filter(|line| line.iter().all(|&byte| byte == 9))
                .count();
            let empty = bytes
                .chunks(64)
                .filter(|line| line.iter().all(|&byte| byte == 0))
                .count();
            assert_eq!((whole, empty), (lines as usize, 4 - lines as usize));
            assert_eq!(small.word(0), 1, "what was posted later has no effect");
            assert_eq!(small.sim.operations_in_flight(), 0);
        }
    });
}

#[test]
fn a_crashed_client_leaves_a_prefix_of_what_it_posted() {
    let mut prefixes = [0; 5];
    for seed in 1..=60 {
        let small = Small::new(seeded(seed));
        let mut op = small.op();
        let id = op.endpoint().id();
        let words = small.at(0);
        op.endpoint().clone().spawn(async move {
            let mut batch = Batch::new();
            for index in 0..4 {
                batch.write_word(words.plus(8 * index), 1);
            }
            let _ = op.post(&mut batch).await;
        });
        small.sim.run_until(500);
        small.sim.crash_client(id);
        small.sim.run_until_idle();
        let written: Vec<u64> = (0..4).map(|index| small.word(8 * index)).collect();
        let count = written.iter().sum::<u64>() as usize;
        assert!(
            written[..count].iter().all(|&word| word == 1),
            "{written:?} is no prefix"
        );
        prefixes[count] += 1;
        assert_eq!(small.sim.operations_in_flight(), 0);
    }
    assert!(
        prefixes.iter().all(|&count| count > 0),
        "every prefix happens: {prefixes:?}"
    );
}

#[test]
fn a_deadline_ends_waiting_at_its_nanosecond_and_the_buffer_comes_back() {
    let small = Small::new(seeded(1));
    let mut op = small.op();
    small.sim.partition(small.compute_node, small.node);
    op.set_deadline(Deadline(12_345));
    op.buffer_mut()[..8].fill(7);
    let done = small.sim.block_on(op.write(Slice::first(8), small.at(0)));
    assert_eq!(done, Err(FabricError::DeadlineExceeded { node: small.node }));
    assert_eq!(small.sim.now_ns(), 12_345);
    assert_eq!(op.buffer()[..8], [7; 8]);
    // What the caller writes now is not what was posted.
    op.buffer_mut()[..8].fill(1);
    assert_eq!(small.word(0), 0);
    small.sim.heal(small.compute_node, small.node);
    small.sim.run_until_idle();
    assert_eq!(
        small.word(0),
        0x0707_0707_0707_0707,
        "the effect came late, with the bytes posted"
    );
    assert_eq!(small.sim.operations_in_flight(), 0);
}

#[test]
fn a_deadline_that_is_met_costs_nothing_later() {
    let small = Small::new(seeded(1));
    let mut op = small.op();
    op.set_deadline(Deadline(1_000_000));
    for _ in 0..50 {
        small.sim.block_on(op.read_word(small.at(0))).unwrap();
    }
    small.sim.run_until_idle();
    assert_eq!(small.sim.operations_in_flight(), 0);
    assert!(small.sim.now_ns() <= 1_000_000);
}

#[test]
fn a_node_that_is_gone_says_so_and_a_restart_serves_again() {
    let small = Small::new(seeded(1));
    let mut op = small.op();
    let gone = Err(FabricError::NodeGone { node: small.node });
    small.sim.block_on(op.write_word(small.at(0), 5)).unwrap();
    small.sim.crash_node(small.node);
    assert_eq!(
        small.sim.block_on(op.read_word(small.at(0))),
        gone,
        "without a deadline, too"
    );
    op.set_deadline(Deadline(small.sim.now_ns() + 5_000));
    assert_eq!(small.sim.block_on(op.read_word(small.at(0))), gone);
    op.set_deadline(Deadline::NEVER);
    let endpoint = op.endpoint().clone();
    small.sim.restart_node(small.node, MemoryAfterCrash::Kept);
    assert_eq!(
        small.sim.block_on(op.read_word(small.at(0))),
        gone,
        "it was another run"
    );
    small.reconnect(&endpoint, small.node).unwrap();
    assert_eq!(small.sim.block_on(op.read_word(small.at(0))), Ok(5));
    small.sim.crash_node(small.node);
    small.sim.restart_node(small.node, MemoryAfterCrash::Lost);
    small.reconnect(&endpoint, small.node).unwrap();
    assert_eq!(small.sim.block_on(op.read_word(small.at(0))), Ok(0));
}

#[test]
fn a_fence_stops_what_is_still_on_its_way() {
    for_seeds(|seed| {
        let small = Small::new(SimOptions {
            jitter_ns: 1_000,
            ..seeded(seed)
        });
        let victim = small.endpoint();
        let survivor = small.endpoint();
        let id = victim.id();
        let fenced = Rc::new(RefCell::new(Vec::new()));
        for task in 0..4_u64 {
            let mut op = OpContext::new(victim.clone());
            let (addr, fenced) = (small.at(task * 8), Rc::clone(&fenced));
            victim.spawn(async move {
                let error = loop {
                    if let Err(error) = op.fetch_add(addr, 1).await {
                        break error;
                    }
                };
                fenced.borrow_mut().push(error);
            });
        }
        small.sim.run_until(20_000);
        let node = small.node;
        let cut = small.sim.block_on(survivor.fence(id, Deadline::NEVER));
        assert_eq!(cut, Ok(Fence::CutOff));
        let before: Vec<u64> = (0..4).map(|task| small.word(task * 8)).collect();
        small.sim.run_until_idle();
        let after: Vec<u64> = (0..4).map(|task| small.word(task * 8)).collect();
        assert_eq!(before, after);
        assert_eq!(*fenced.borrow(), vec![FabricError::Fenced { node }; 4]);
    });
}

#[test]
fn clocks_differ_by_skew_and_drift_and_deadlines_follow_them() {
    let small = Small::new(seeded(1));
    let ahead = small.sim.add_compute_node();
    let (here, there) = (small.endpoint(), small.sim.endpoint(ahead));
    small.sim.set_clock(ahead, 1_000_000, 100_000);
    small.sim.run_until(10_000_000);
    assert_eq!(here.now_ns(), 10_000_000);
    assert_eq!(there.now_ns(), 11_001_000, "a millisecond ahead, and 100 ppm of ten");
    let before = small.sim.now_ns();
    small.sim.block_on(there.sleep(1_000_100));
    assert_eq!(small.sim.now_ns() - before, 1_000_000, "a fast clock sleeps shorter");
    let deadline = there.deadline_in(2_000_200);
    let before = small.sim.now_ns();
    assert_eq!(small.sim.block_on(there.receive(deadline)), Err(FabricError::NoMessage));
    assert_eq!(small.sim.now_ns() - before, 2_000_000);
}

#[test]
fn messages_wait_for_room_and_a_deadline_takes_them_back() {
    let small = Small::new(SimOptions {
        mailbox_messages: 2,
        ..seeded(1)
    });
    let (sender, receiver) = (small.endpoint(), small.endpoint());
    let text = |number: u8| Message::from_iter([number]);
    for number in 0..2 {
        small
            .sim
            .block_on(sender.send(receiver.id(), &text(number), Deadline::NEVER))
            .unwrap();
    }
    let deadline = sender.deadline_in(50_000);
    let third = small.sim.block_on(sender.send(receiver.id(), &text(2), deadline));
    assert_eq!(third, Err(FabricError::MailboxFull { peer: receiver.id() }));
    let patient = sender.clone();
    let peer = receiver.id();
    let sent = Rc::new(Cell::new(false));
    let is_sent = Rc::clone(&sent);
    sender.spawn(async move {
        patient
            .send(peer, &Message::from_iter([3]), Deadline::NEVER)
            .await
            .expect("room is made");
        is_sent.set(true);
    });
    small.sim.run_until_idle();
    assert!(!sent.get(), "no room yet");
    let seen: Vec<u8> = (0..3)
        .map(|_| {
            small
                .sim
                .block_on(receiver.receive(Deadline::NEVER))
                .expect("sent")
                .message[0]
        })
        .collect();
    assert_eq!(seen, [0, 1, 3], "in order, and the one taken back is not among them");
    small.sim.run_until_idle();
    assert!(sent.get());
    drop((sender, receiver));
    assert_eq!(small.sim.operations_in_flight(), 0);
}

#[test]
fn messages_to_nobody_fail() {
    let small = Small::new(seeded(1));
    let (sender, receiver, crashed) = (small.endpoint(), small.endpoint(), small.endpoint());
    let ids = [receiver.id(), crashed.id(), EndpointId(77), EndpointId(0)];
    drop(receiver);
    small.sim.crash_client(crashed.id());
    for peer in ids {
        let sent = small.sim.block_on(sender.send(peer, &Message::new(), Deadline::NEVER));
        assert_eq!(sent, Err(FabricError::PeerUnknown { peer }));
    }
}

#[test]
fn peers_that_are_cut_off_from_each_other_hear_nothing_until_the_link_heals() {
    let small = Small::new(seeded(1));
    let far = small.sim.add_compute_node();
    let (sender, receiver) = (small.endpoint(), small.sim.endpoint(far));
    small.sim.partition_peers(small.compute_node, far);
    let (from, peer) = (sender.clone(), receiver.id());
    sender.spawn(async move {
        from.send(peer, &Message::from_iter([1]), Deadline::NEVER)
            .await
            .expect("sent at last");
    });
    let deadline = receiver.deadline_in(100_000);
    assert_eq!(
        small.sim.block_on(receiver.receive(deadline)),
        Err(FabricError::NoMessage)
    );
    small.sim.heal_peers(small.compute_node, far);
    assert!(small.sim.block_on(receiver.receive(Deadline::NEVER)).is_ok());
}

#[test]
fn coroutines_of_one_core_post_one_after_the_other() {
    let profile = Profile::plain();
    let sim = Sim::new(seeded(1));
    let node = sim.add_memory_node(4096);
    let shared = sim.add_compute_node_with_cores(1);
    let ended = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..4 {
        let mut op = OpContext::new(sim.endpoint(shared));
        let ended = Rc::clone(&ended);
        op.endpoint().clone().spawn(async move {
            op.read_word(RemoteAddr::new(node, 0)).await.expect("the node is there");
            ended.borrow_mut().push(op.endpoint().now_ns());
        });
    }
    sim.run_until_idle();
    let ended = ended.borrow();
    for pair in ended.windows(2) {
        assert_eq!(pair[1] - pair[0], profile.post_ns);
    }
}

#[test]
fn a_dropped_future_takes_its_memory_along() {
    let small = Small::new(seeded(1));
    let endpoint = small.endpoint();
    let mut buffer = endpoint.buffer(64);
    buffer.fill(3);
    {
        let verb = farside_fabric::Verb::Write {
            source: Slice::first(64),
            target: small.at(0),
        };
        let mut write = std::pin::pin!(endpoint.execute(verb, &mut buffer, Deadline::NEVER));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(write.as_mut().poll(&mut context).is_pending());
    }
    assert!(buffer.is_empty(), "the operation in flight has the memory");
    // The same, polled by no task at all and kept: a foreign waker is woken, not a task.
    let mut kept = Box::pin(async { endpoint.sleep(10).await });
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(kept.as_mut().poll(&mut context).is_pending());
    small.sim.run_until_idle();
    assert!(kept.as_mut().poll(&mut context).is_ready());
    drop(kept);
    assert_eq!(small.word(56), 0x0303_0303_0303_0303);
    assert_eq!(small.sim.operations_in_flight(), 0);
}

#[test]
fn sixty_million_items_need_only_what_is_touched() {
    let sim = Sim::new(seeded(1));
    let node = sim.add_memory_node(60_000_000 * 80);
    let mut op = OpContext::new(sim.endpoint(sim.add_compute_node()));
    let last = RemoteAddr::new(node, 60_000_000 * 80 - 8);
    sim.block_on(op.write_word(last, 1)).unwrap();
    assert_eq!(sim.block_on(op.read_word(last)), Ok(1));
}

#[test]
fn the_trace_keeps_the_last_steps() {
    let small = Small::new(SimOptions {
        trace_entries: 3,
        ..seeded(1)
    });
    let mut op = small.op();
    small.sim.block_on(op.fetch_add(small.at(8), 2)).unwrap();
    small.sim.block_on(op.fetch_add(small.at(8), 2)).unwrap();
    let tail = small.sim.trace_tail();
    let steps: Vec<Step> = tail.iter().map(|entry| entry.step).collect();
    assert_eq!(steps, [Step::Posted, Step::Executed, Step::Completed]);
    assert_eq!(tail[1].result, 2, "the word before");
}
