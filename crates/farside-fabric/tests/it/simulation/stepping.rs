//! Choosing every order of requests.

use std::collections::BTreeSet;

use farside_fabric::VerbKind;
use farside_fabric::sim::{Candidate, Choices, Explored, Request, explore, replay};

use super::*;

/// A simulation whose steps are chosen.
fn chosen(choices: &Choices, options: SimOptions) -> Small {
    let small = Small::new(options);
    small.sim.set_chooser(Some(choices.chooser()));
    small
}

/// All runs of so many clients that each add to a counter, twice by `verbs` verbs; what it is then.
fn counters(
    clients: usize,
    add: impl AsyncFn(&mut OpContext, RemoteAddr) + Clone + 'static,
) -> (Explored, BTreeSet<u64>) {
    let mut sums = BTreeSet::new();
    let explored = explore(10_000, |choices| {
        let small = chosen(&choices, seeded(1));
        for _ in 0..clients {
            let (mut op, addr, add) = (small.op(), small.at(0), add.clone());
            op.endpoint().clone().spawn(async move { add(&mut op, addr).await });
        }
        small.sim.run_until_idle();
        assert_eq!(small.sim.operations_in_flight(), 0);
        sums.insert(small.word(0));
    });
    (explored, sums)
}

async fn read_then_write(op: &mut OpContext, addr: RemoteAddr) {
    let seen = op.read_word(addr).await.expect("the node is there");
    op.write_word(addr, seen + 1).await.expect("the node is there");
}

async fn swap_until_it_succeeds(op: &mut OpContext, addr: RemoteAddr) {
    let mut seen = op.read_word(addr).await.expect("the node is there");
    loop {
        let before = op.compare_swap(addr, seen, seen + 1).await.expect("the node is there");
        if before == seen {
            return;
        }
        seen = before;
    }
}

#[test]
fn clients_of_two_verbs_have_as_many_runs_as_interleavings() {
    let whole = |runs| Explored {
        runs,
        is_complete: true,
    };
    let (explored, sums) = counters(2, read_then_write);
    assert_eq!(explored, whole(6));
    assert_eq!(sums, BTreeSet::from([1, 2]), "the lost update is among them");
    let (explored, sums) = counters(3, read_then_write);
    assert_eq!(explored, whole(90));
    assert_eq!(sums, BTreeSet::from([1, 2, 3]));
    // The choices play no part in time: jitter and delays make no difference.
    let jittered = explore(1_000, |choices| {
        let small = chosen(
            &choices,
            SimOptions {
                jitter_ns: 5_000,
                ..seeded(3)
            },
        );
        small.sim.delay(small.compute_node, small.node, 700);
        for _ in 0..3 {
            let (mut op, addr) = (small.op(), small.at(0));
            op.endpoint()
                .clone()
                .spawn(async move { read_then_write(&mut op, addr).await });
        }
        small.sim.run_until_idle();
        assert_eq!(small.sim.now_ns(), 0, "steps take no time");
    });
    assert_eq!(jittered, whole(90));
}

#[test]
fn a_compare_and_swap_never_loses_an_update() {
    let (explored, sums) = counters(2, swap_until_it_succeeds);
    assert!(explored.is_complete);
    assert_eq!(sums, BTreeSet::from([2]));
    let (explored, sums) = counters(3, swap_until_it_succeeds);
    assert!(explored.is_complete && explored.runs > 90, "{explored:?}");
    assert_eq!(sums, BTreeSet::from([3]));
}

#[test]
fn a_limit_ends_an_exploration_early() {
    let mut runs = 0;
    let explored = explore(5, |choices| {
        runs += 1;
        let _ = (choices.flip(), choices.flip(), choices.pick(3));
    });
    assert_eq!((runs, explored.runs, explored.is_complete), (5, 5, false));
    let mut seen = BTreeSet::new();
    let explored = explore(100, |choices| {
        let first = choices.flip();
        // The second choice is there only after the first.
        let second = if first { choices.pick(3) } else { 9 };
        assert!(seen.insert((first, second)), "each sequence once");
    });
    assert_eq!((explored.runs, explored.is_complete), (4, true));
}

#[test]
fn a_run_is_replayed_by_its_choices() {
    let lost = |choices: &Choices| {
        let small = chosen(choices, seeded(1));
        for _ in 0..2 {
            let (mut op, addr) = (small.op(), small.at(0));
            op.endpoint()
                .clone()
                .spawn(async move { read_then_write(&mut op, addr).await });
        }
        small.sim.run_until_idle();
        (small.word(0) == 1, small.sim.trace_hash())
    };
    let mut found = None;
    explore(100, |choices| {
        let (is_lost, hash) = lost(&choices);
        if is_lost {
            found.get_or_insert((choices.taken(), hash));
        }
    });
    let (taken, hash) = found.expect("the lost update is found");
    let mut runs = 0;
    replay(&taken, |choices| {
        runs += 1;
        assert_eq!(lost(&choices), (true, hash));
    });
    assert_eq!(runs, 1);
}

#[test]
fn candidates_say_what_they_are_and_a_queue_pair_keeps_its_order() {
    let small = Small::new(seeded(1));
    let seen = Rc::new(RefCell::new(Vec::<Vec<Candidate>>::new()));
    let log = Rc::clone(&seen);
    small.sim.set_chooser(Some(Box::new(move |candidates| {
        log.borrow_mut().push(candidates.to_vec());
        candidates.len() - 1
    })));
    let (mut op, peer) = (small.op(), small.endpoint());
    let (words, to) = (small.at(0), peer.id());
    let from = op.endpoint().clone();
    from.clone().spawn(async move {
        from.send(to, &Message::from_iter([1, 2]), Deadline::NEVER)
            .await
            .expect("sent");
    });
    let from = op.endpoint().id();
    op.endpoint().clone().spawn(async move {
        let mut batch = Batch::new();
        batch.write_word(words, 1);
        batch.fetch_add(words, 1);
        batch.read(words, Slice::first(200));
        op.post(&mut batch).await.expect("the node is there");
        assert_eq!(op.buffer()[0], 2);
    });
    small.sim.run_until_idle();
    assert!(small.sim.block_on(peer.receive(Deadline::NEVER)).is_ok());
    let candidate = |request| Candidate {
        client: from,
        request,
        line: None,
        is_lost: false,
    };
    let verb = |kind, bytes| {
        candidate(Request::Verb {
            kind,
            addr: words,
            bytes,
        })
    };
    let send = candidate(Request::Send { peer: to, bytes: 2 });
    let expected = vec![
        vec![send, verb(VerbKind::Write, 8)],
        vec![send, verb(VerbKind::FetchAdd, 8)],
        vec![send, verb(VerbKind::Read, 200)],
        vec![send],
    ];
    assert_eq!(*seen.borrow(), expected);
}

/// What a READ of three lines may see of a WRITE, and whether it is noticed.
fn sightings(steps_by_line: bool) -> (Explored, BTreeSet<[u8; 3]>) {
    let mut sights = BTreeSet::new();
    let explored = explore(10_000, |choices| {
        let small = chosen(
            &choices,
            SimOptions {
                steps_by_line,
                ..seeded(1)
            },
        );
        let (mut reader, mut writer) = (small.op(), small.op());
        let data = small.at(64);
        writer.endpoint().clone().spawn(async move {
            writer.buffer_mut()[..192].fill(1);
            writer.write(Slice::first(192), data).await.expect("the node is there");
        });
        let bytes = small
            .sim
            .block_on(reader.read(data, Slice::first(192)))
            .expect("the node is there");
        let sight = [bytes[0], bytes[64], bytes[128]];
        sights.insert(sight);
        let settled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| reader.assert_settled()));
        if sight[0] != sight[1] || sight[1] != sight[2] {
            assert!(settled.is_err(), "{sight:?} is torn");
        }
    });
    (explored, sights)
}

#[test]
fn lines_are_steps_if_asked_for() {
    let (explored, sights) = sightings(false);
    assert_eq!((explored.runs, explored.is_complete), (2, true));
    assert_eq!(sights, BTreeSet::from([[0; 3], [1; 3]]));
    let (explored, sights) = sightings(true);
    assert!(explored.is_complete);
    assert_eq!(sights.len(), 8, "every combination of old and new lines");
}

#[test]
fn every_prefix_of_what_a_crashed_client_posted_is_explored() {
    let mut outcomes = BTreeSet::new();
    let explored = explore(10_000, |choices| {
        let small = chosen(
            &choices,
            SimOptions {
                steps_by_line: true,
                ..seeded(1)
            },
        );
        let mut op = small.op();
        let id = op.endpoint().id();
        let at = small.at(64);
        op.endpoint().clone().spawn(async move {
            op.buffer_mut()[..128].fill(1);
            let mut batch = Batch::new();
            batch.write(Slice::first(128), at);
            batch.write_word(at.plus(128), 1);
            let _ = op.post(&mut batch).await;
        });
        let (sim, asks) = (small.sim.clone(), choices.clone());
        small.sim.set_chooser(Some(Box::new(move |candidates| {
            if !sim.is_crashed(id) && asks.flip() {
                sim.crash_client(id);
            }
            asks.pick(candidates.len())
        })));
        small.sim.run_until_idle();
        // The chooser keeps the simulation, and would keep it for good.
        small.sim.set_chooser(None);
        outcomes.insert([small.word(64) & 1, small.word(128) & 1, small.word(192) & 1]);
        assert_eq!(small.sim.operations_in_flight(), 0);
    });
    assert!(explored.is_complete);
    let expected = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]];
    assert_eq!(outcomes, BTreeSet::from(expected));
}

#[test]
fn a_broken_queue_pair_loses_any_suffix() {
    let mut outcomes = BTreeSet::new();
    let explored = explore(10_000, |choices| {
        let small = chosen(&choices, seeded(1));
        let mut op = small.op();
        let endpoint = op.endpoint().clone();
        let words = small.at(0);
        let node = small.node;
        endpoint.clone().spawn(async move {
            let mut batch = Batch::new();
            for index in 0..3 {
                batch.write_word(words.plus(8 * index), 1);
            }
            let done = op.post(&mut batch).await;
            assert_eq!(done, Err(FabricError::NodeGone { node }));
            op.endpoint()
                .simulated()
                .expect("a simulated endpoint")
                .reconnect(node)
                .await
                .expect("the node is there");
            op.write_word(words.plus(24), 1).await.expect("connected anew");
        });
        let sim = small.sim.clone();
        let breaker = endpoint.id();
        small.sim.spawn(async move { sim.break_queue_pair(breaker, node) });
        small.sim.run_until_idle();
        outcomes.insert([small.word(0), small.word(8), small.word(16), small.word(24)]);
        assert_eq!(small.sim.operations_in_flight(), 0);
    });
    assert!(explored.is_complete);
    let expected = [[0, 0, 0, 1], [1, 0, 0, 1], [1, 1, 0, 1], [1, 1, 1, 1]];
    assert_eq!(outcomes, BTreeSet::from(expected));
}

#[test]
fn time_moves_only_when_no_request_waits() {
    let explored = explore(1_000, |choices| {
        let small = chosen(&choices, seeded(1));
        let (sleeper, mut op) = (small.endpoint(), small.op());
        let addr = small.at(0);
        op.endpoint().clone().spawn(async move {
            for _ in 0..5 {
                op.fetch_add(addr, 1).await.expect("the node is there");
            }
        });
        small.sim.block_on(sleeper.sleep(1));
        assert_eq!(small.word(0), 5);
        // A cut link lets nothing arrive, so time moves, and the deadline passes.
        small.sim.partition(small.compute_node, small.node);
        let mut late = small.op();
        late.set_deadline(late.endpoint().deadline_in(100));
        let done = small.sim.block_on(late.fetch_add(addr, 1));
        assert_eq!(done, Err(FabricError::DeadlineExceeded { node: small.node }));
        small.sim.heal(small.compute_node, small.node);
        small.sim.crash_node(small.node);
        assert_eq!(small.word(0), 5, "the node crashed before it was executed");
        late.set_deadline(Deadline::NEVER);
        let gone = Err(FabricError::NodeGone { node: small.node });
        assert_eq!(small.sim.block_on(late.fetch_add(addr, 1)), gone);
        small.sim.run_until_idle();
        assert_eq!(small.sim.operations_in_flight(), 0);
    });
    assert_eq!((explored.runs, explored.is_complete), (1, true));
}

#[test]
fn without_a_chooser_time_decides_again() {
    let small = Small::new(seeded(1));
    small.sim.set_chooser(Some(Box::new(|_| 0)));
    let mut op = small.op();
    small.sim.block_on(op.fetch_add(small.at(0), 1)).unwrap();
    assert_eq!(small.sim.now_ns(), 0);
    small.sim.set_chooser(None);
    small.sim.block_on(op.fetch_add(small.at(0), 1)).unwrap();
    assert!(small.sim.now_ns() > 1_000);
}

/// Fences and messages are steps, too: after the fence has been answered nothing of the peer happens.
#[test]
fn a_fence_is_exact_in_every_order() {
    let mut cuts = BTreeSet::new();
    let explored = explore(10_000, |choices| {
        let small = chosen(&choices, seeded(1));
        let (mut victim, survivor) = (small.op(), small.endpoint());
        let id = victim.endpoint().id();
        let addr = small.at(0);
        victim.endpoint().clone().spawn(async move {
            for _ in 0..3 {
                if victim.fetch_add(addr, 1).await.is_err() {
                    return;
                }
            }
        });
        small.sim.block_on(survivor.fence(id, Deadline::NEVER)).unwrap();
        let before = small.word(0);
        small.sim.run_until_idle();
        assert_eq!(small.word(0), before);
        cuts.insert(before);
    });
    assert!(explored.is_complete);
    assert_eq!(cuts, BTreeSet::from([0, 1, 2, 3]));
}
