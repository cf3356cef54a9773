//! Queue pairs that break, and connecting anew.

use super::*;

#[test]
fn a_broken_queue_pair_leaves_a_prefix_and_fails_at_once() {
    let mut prefixes = [0; 5];
    let mut parts = 0;
    for seed in 1..=80 {
        let small = Small::new(seeded(seed));
        let mut op = small.op();
        let id = op.endpoint().id();
        let (words, long) = (small.at(0), small.at(4096));
        let failed = Rc::new(Cell::new(None));
        let seen = Rc::clone(&failed);
        op.endpoint().clone().spawn(async move {
            op.buffer_mut()[..256].fill(7);
            let mut batch = Batch::new();
            for index in 0..3 {
                batch.write_word(words.plus(8 * index), 1);
            }
            batch.write(Slice::first(256), long);
            let done = op.post(&mut batch).await;
            assert_eq!(op.buffer()[..256], [7; 256], "the buffer came back");
            op.buffer_mut().fill(9);
            seen.set(Some((op.endpoint().now_ns(), done)));
        });
        small.sim.run_until(500);
        small.sim.break_queue_pair(id, small.node);
        small.sim.run_until_idle();
        let gone = FabricError::NodeGone { node: small.node };
        assert_eq!(failed.get(), Some((500, Err(gone))));
        let written: Vec<u64> = (0..3).map(|index| small.word(8 * index)).collect();
        let count = written.iter().sum::<u64>() as usize;
        assert!(
            written[..count].iter().all(|&word| word == 1),
            "{written:?} is no prefix"
        );
        let mut bytes = [0; 256];
        small.sim.region(small.node).read(4096, &mut bytes);
        let lines = bytes.chunks(64).filter(|line| **line == [7; 64]).count();
        let empty = bytes.chunks(64).filter(|line| **line == [0; 64]).count();
        assert_eq!(lines + empty, 4, "whole lines, of what was posted");
        assert!(lines == 0 || count == 3);
        parts += usize::from(lines > 0 && lines < 4);
        prefixes[count + usize::from(lines == 4)] += 1;
        assert_eq!(small.sim.operations_in_flight(), 0);
    }
    assert!(
        prefixes.iter().all(|&count| count > 0),
        "every prefix happens: {prefixes:?}"
    );
    assert!(parts > 0, "no WRITE took effect in part");
}

#[test]
fn later_verbs_fail_until_the_client_connects_anew() {
    let small = Small::new(seeded(1));
    let other_node = small.sim.add_memory_node(4096);
    let (mut op, mut other) = (small.op(), small.op());
    let endpoint = op.endpoint().clone();
    small.sim.break_queue_pair(endpoint.id(), small.node);
    let gone = Err(FabricError::NodeGone { node: small.node });
    let before = small.sim.now_ns();
    for _ in 0..3 {
        assert_eq!(small.sim.block_on(op.fetch_add(small.at(0), 1)), gone);
    }
    assert!(
        small.sim.now_ns() - before < 100_000,
        "the client's own NIC flushes them, without retries"
    );
    let elsewhere = RemoteAddr::new(other_node, 0);
    assert_eq!(small.sim.block_on(op.fetch_add(elsewhere, 1)), Ok(0), "another node");
    assert_eq!(
        small.sim.block_on(other.fetch_add(small.at(0), 1)),
        Ok(0),
        "another client"
    );
    small.sim.partition(small.compute_node, small.node);
    assert_eq!(
        small.sim.block_on(op.fetch_add(small.at(0), 1)),
        gone,
        "link or no link"
    );
    small.sim.heal(small.compute_node, small.node);
    assert_eq!(small.reconnect(&endpoint, small.node), Ok(()));
    assert_eq!(small.sim.block_on(op.fetch_add(small.at(0), 1)), Ok(1));
    let before = small.sim.now_ns();
    assert_eq!(small.reconnect(&endpoint, small.node), Ok(()));
    assert_eq!(small.sim.now_ns(), before, "it is connected: nothing to do");
    let unknown = NodeId::new(9);
    assert_eq!(
        small.reconnect(&endpoint, unknown),
        Err(FabricError::NodeUnknown { node: unknown })
    );
}

#[test]
fn what_was_posted_before_takes_no_effect_after_the_client_is_connected_anew() {
    for_seeds(|seed| {
        let small = Small::new(SimOptions {
            jitter_ns: 3_000,
            ..seeded(seed)
        });
        let endpoint = small.endpoint();
        for task in 0..6 {
            let mut op = OpContext::new(endpoint.clone());
            let addr = small.at(task * 8);
            endpoint.spawn(async move {
                let _ = op.write_word(addr, 1).await;
            });
        }
        small.sim.run_until(800);
        small.sim.break_queue_pair(endpoint.id(), small.node);
        let words = |small: &Small| (0..6).map(|task| small.word(task * 8)).collect::<Vec<u64>>();
        small.reconnect(&endpoint, small.node).unwrap();
        let at_reconnect = words(&small);
        small.sim.run_until_idle();
        assert_eq!(words(&small), at_reconnect);
    });
}

#[test]
fn connecting_anew_waits_for_a_link_and_fails_without_a_node() {
    let small = Small::new(seeded(1));
    let endpoint = small.endpoint();
    let gone = Err(FabricError::NodeGone { node: small.node });
    small.sim.break_queue_pair(endpoint.id(), small.node);
    small.sim.partition(small.compute_node, small.node);
    let before = small.sim.now_ns();
    assert_eq!(small.reconnect(&endpoint, small.node), gone);
    assert_eq!(small.sim.now_ns() - before, 1_000_000, "as long as a NIC tries");
    let (sim, compute_node, node) = (small.sim.clone(), small.compute_node, small.node);
    let healer = small.endpoint();
    small.sim.spawn(async move {
        healer.sleep(500_000).await;
        sim.heal(compute_node, node);
    });
    assert_eq!(small.reconnect(&endpoint, small.node), Ok(()));
    small.sim.crash_node(small.node);
    assert_eq!(small.reconnect(&endpoint, small.node), gone);
    small.sim.restart_node(small.node, MemoryAfterCrash::Kept);
    assert_eq!(small.reconnect(&endpoint, small.node), Ok(()));
    small.sim.run_until_idle();
    assert_eq!(small.sim.operations_in_flight(), 0);
}

#[test]
fn a_client_that_was_cut_off_is_not_let_in_again() {
    let small = Small::new(seeded(1));
    let (victim, survivor) = (small.endpoint(), small.endpoint());
    small
        .sim
        .block_on(survivor.fence(victim.id(), Deadline::NEVER))
        .unwrap();
    small.sim.break_queue_pair(victim.id(), small.node);
    let refused = Err(FabricError::Fenced { node: small.node });
    assert_eq!(small.reconnect(&victim, small.node), refused);
    let mut op = OpContext::new(victim);
    let gone = Err(FabricError::NodeGone { node: small.node });
    assert_eq!(small.sim.block_on(op.read_word(small.at(0))), gone);
}

#[test]
fn a_restart_breaks_the_queue_pairs_of_before_and_no_others() {
    let small = Small::new(seeded(1));
    let mut before = small.op();
    small.sim.crash_node(small.node);
    let mut meanwhile = small.op();
    small.sim.restart_node(small.node, MemoryAfterCrash::Kept);
    let mut after = small.op();
    let gone = Err(FabricError::NodeGone { node: small.node });
    assert_eq!(small.sim.block_on(before.read_word(small.at(0))), gone);
    assert_eq!(small.sim.block_on(meanwhile.read_word(small.at(0))), gone);
    assert_eq!(small.sim.block_on(after.read_word(small.at(0))), Ok(0));
    small.reconnect(before.endpoint(), small.node).unwrap();
    assert_eq!(small.sim.block_on(before.read_word(small.at(0))), Ok(0));
}
