//! Who formats a pool, what that costs, and whom the others wait for, over the simulated fabric.

use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{NodeId, OpContext, RemoteAddr, VerbKind};
use farside_pool::layout::{CREATOR_AT, ChunkState, POOL_ID_AT, ROOTS_AT, SUPERBLOCK_BYTES};
use farside_pool::{FormatOptions, Geometry, PoolError, Root, make_root, open, open_or_format, root};

const PATIENCE_NS: u64 = 20_000_000;

fn options() -> FormatOptions {
    FormatOptions {
        clients_max: 8,
        chunk_bytes: Some(4096),
        patience_ns: PATIENCE_NS,
    }
}

fn sim(nodes: &[u64]) -> Sim {
    let sim = Sim::new(SimOptions::default());
    for &bytes in nodes {
        let _: NodeId = sim.add_memory_node(bytes);
    }
    sim
}

fn context(sim: &Sim) -> OpContext {
    OpContext::new(sim.endpoint(sim.add_compute_node()))
}

/// READs, WRITEs, and compare-and-swaps that the client has posted.
fn verbs(cx: &OpContext) -> [u64; 3] {
    let verbs = cx.endpoint().counters().snapshot().verbs;
    [VerbKind::Read, VerbKind::Write, VerbKind::CompareSwap].map(|kind| verbs.of(kind))
}

fn word(sim: &Sim, node: u16, at: u64) -> u64 {
    let region = sim.region(NodeId::new(node));
    region.word(at).load(core::sync::atomic::Ordering::SeqCst)
}

fn set(sim: &Sim, node: u16, at: u64, value: u64) {
    let region = sim.region(NodeId::new(node));
    region.word(at).store(value, core::sync::atomic::Ordering::SeqCst);
}

#[test]
fn a_lone_client_formats_at_once() {
    let sim = sim(&[1 << 20]);
    let mut cx = context(&sim);
    let geometry = sim.block_on(open_or_format(&mut cx, options())).expect("memory");
    // The magic twice, the 12 words of the superblock, and how often the nodes have changed; all of these; who formats, and the
    // pool's number.
    assert_eq!(verbs(&cx), [2 + 12 + 1, 12, 2]);
    assert_eq!(geometry.len(), 1);
    assert_eq!(word(&sim, 0, CREATOR_AT), cx.endpoint().id().0);
    assert!(sim.now_ns() < 1_000_000, "it waited for somebody: {} ns", sim.now_ns());
    // Whoever comes later opens it.
    let mut later = context(&sim);
    assert_eq!(sim.block_on(open_or_format(&mut later, options())), Ok(geometry));
    assert_eq!(verbs(&later), [1 + 12 + 1, 0, 0]);
}

#[test]
fn nodes_of_a_pool_share_a_number_of_its_own() {
    let pools = [1, 2].map(|seed| {
        let sim = Sim::new(SimOptions {
            seed,
            ..SimOptions::default()
        });
        for _ in 0..3 {
            let _: NodeId = sim.add_memory_node(1 << 20);
        }
        let mut cx = context(&sim);
        let geometry = sim.block_on(open_or_format(&mut cx, options())).expect("memory");
        assert_eq!(geometry.len(), 3);
        for (index, of_node) in (0..).zip(&geometry) {
            assert_eq!(of_node.pool_id, geometry[0].pool_id);
            assert_eq!((of_node.node, of_node.node_count), (NodeId::new(index), 3));
            assert_eq!(word(&sim, index, POOL_ID_AT), geometry[0].pool_id);
        }
        geometry[0].pool_id
    });
    assert_ne!(pools[0], pools[1]);
    assert!(pools.iter().all(|&number| number != 0));
}

#[test]
fn a_claimant_that_does_nothing_is_cut_off_when_patience_ends() {
    let sim = sim(&[1 << 20]);
    let idle = context(&sim);
    // It has claimed, and chosen a number.
    set(&sim, 0, CREATOR_AT, idle.endpoint().id().0);
    set(&sim, 0, POOL_ID_AT, 77);
    // Far more than the patience after the beginning of time: it is counted from when somebody waits.
    sim.run_until(10 * PATIENCE_NS);
    let mut cx = context(&sim);
    let start_ns = sim.now_ns();
    let geometry = sim.block_on(open_or_format(&mut cx, options())).expect("memory");
    assert!(sim.is_fenced(idle.endpoint().id()), "it may still write");
    assert!(sim.now_ns() - start_ns >= PATIENCE_NS);
    assert_eq!(word(&sim, 0, CREATOR_AT), cx.endpoint().id().0);
    assert_eq!(geometry[0].pool_id, 77, "its number is kept");
}

#[test]
fn each_claimant_is_given_the_whole_patience() {
    let sim = sim(&[1 << 20]);
    let [first, second] = [(); 2].map(|()| context(&sim));
    set(&sim, 0, CREATOR_AT, first.endpoint().id().0);
    let mut cx = context(&sim);
    let formatted = std::rc::Rc::new(core::cell::Cell::new(false));
    let is_formatted = std::rc::Rc::clone(&formatted);
    sim.spawn(async move {
        let opened = open_or_format(&mut cx, options()).await;
        is_formatted.set(opened.is_ok());
    });
    sim.run_until(PATIENCE_NS / 2);
    set(&sim, 0, CREATOR_AT, second.endpoint().id().0);
    sim.run_until(PATIENCE_NS * 5 / 4);
    assert!(!sim.is_fenced(first.endpoint().id()), "nobody waits for it any more");
    assert!(!sim.is_fenced(second.endpoint().id()), "it has had three quarters");
    assert!(!formatted.get());
    sim.run_until(PATIENCE_NS * 2);
    assert!(sim.is_fenced(second.endpoint().id()));
    assert!(formatted.get());
}

#[test]
fn who_waits_takes_over_what_another_one_has_formatted() {
    let sim = sim(&[1 << 20, 1 << 20]);
    let [mut first, mut second] = [(); 2].map(|()| context(&sim));
    let (one, other) = sim.block_on(async {
        tokio::join!(
            open_or_format(&mut first, options()),
            open_or_format(&mut second, options())
        )
    });
    assert!(one.is_ok());
    assert_eq!(one, other);
    let mut writes = [verbs(&first)[1], verbs(&second)[1]];
    writes.sort_unstable();
    assert_eq!(writes, [0, 24], "one of them writes");
    assert!(!sim.is_fenced(first.endpoint().id()) && !sim.is_fenced(second.endpoint().id()));
}

#[test]
fn nothing_is_written_to_a_node_that_is_too_small_for_a_superblock() {
    for bytes in [512, SUPERBLOCK_BYTES - 1] {
        let sim = sim(&[1 << 20, bytes]);
        let mut cx = context(&sim);
        let opened = sim.block_on(open_or_format(&mut cx, options()));
        let error = PoolError::TooSmall {
            node: NodeId::new(1),
            bytes,
            bytes_min: 10 * 4096,
        };
        assert_eq!(opened, Err(error));
        assert_eq!(verbs(&cx), [0; 3]);
    }
}

#[test]
fn a_node_that_is_too_small_for_eight_chunks_says_what_it_needs() {
    let bytes = 10 * 4096 - 8;
    let sim = sim(&[bytes]);
    let error = PoolError::TooSmall {
        node: NodeId::new(0),
        bytes,
        bytes_min: 10 * 4096,
    };
    assert_eq!(sim.block_on(open_or_format(&mut context(&sim), options())), Err(error));
    let sim = self::sim(&[10 * 4096]);
    let geometry = sim.block_on(open_or_format(&mut context(&sim), options()));
    assert_eq!(geometry.expect("it is as large as that").len(), 1);
}

#[test]
fn a_node_of_another_pool_is_not_formatted() {
    let sim = sim(&[1 << 20, 1 << 20]);
    let other = Geometry::divide(99, NodeId::new(1), 2, 1 << 20, 4096, 8).expect("large enough");
    for (at, value) in (0..).step_by(8).zip(other.to_words()) {
        set(&sim, 1, at, value);
    }
    let error = PoolError::Foreign {
        node: NodeId::new(1),
        reason: "it already belongs to another pool".to_owned(),
    };
    assert_eq!(sim.block_on(open_or_format(&mut context(&sim), options())), Err(error));
    let blank = PoolError::Foreign {
        node: NodeId::new(0),
        reason: "it is blank".to_owned(),
    };
    assert_eq!(sim.block_on(open(&mut context(&sim))), Err(blank));
}

#[test]
fn roots_are_two_words_each() {
    let sim = sim(&[1 << 20, 1 << 20]);
    let mut cx = context(&sim);
    let geometry = sim.block_on(open_or_format(&mut cx, options())).expect("memory");
    let second = geometry[1];
    for number in [0, 3, 7] {
        let at = ROOTS_AT + u64::from(number) * 16;
        assert_eq!(sim.block_on(root(&mut cx, second.node, number)), Ok(None));
        let made = sim.block_on(make_root(&mut cx, &second, number, 5000)).expect("memory");
        assert_eq!(made.bytes, 2 * 4096);
        assert_eq!(word(&sim, 1, at), made.addr.to_bits());
        assert_eq!(word(&sim, 1, at + 8), made.bytes);
        assert_eq!(sim.block_on(root(&mut cx, second.node, number)), Ok(Some(made)));
        assert_eq!(sim.block_on(make_root(&mut cx, &second, number, 1)), Ok(made));
    }
    let addr = RemoteAddr::new(NodeId::new(1), 5 << 16);
    set(&sim, 1, ROOTS_AT + 5 * 16, addr.to_bits());
    set(&sim, 1, ROOTS_AT + 5 * 16 + 8, 123);
    let root = sim.block_on(root(&mut cx, second.node, 5));
    assert_eq!(root, Ok(Some(Root { addr, bytes: 123 })));
}

#[test]
fn chunks_of_a_root_that_its_maker_has_not_finished_are_taken_for_it() {
    let sim = sim(&[1 << 20]);
    let mut cx = context(&sim);
    let geometry = sim.block_on(open_or_format(&mut cx, options())).expect("memory")[0];
    let [mine, other] = [3, 4].map(|number| ChunkState::Root { number }.to_word());
    for (index, state) in [(0, mine), (1, other), (2, mine)] {
        set(&sim, 0, geometry.chunk_word(index).offset(), state);
    }
    let made = sim.block_on(make_root(&mut cx, &geometry, 3, 2 * 4096));
    let root = Root {
        addr: geometry.chunk(2),
        bytes: 2 * 4096,
    };
    assert_eq!(made, Ok(root));
    let words = [0, 1, 2, 3, 4].map(|index| word(&sim, 0, geometry.chunk_word(index).offset()));
    assert_eq!(words, [mine, other, mine, mine, 0]);
    let bytes = geometry.chunk_count * 4096;
    let made = sim.block_on(make_root(&mut cx, &geometry, 5, bytes));
    assert_eq!(made, Err(PoolError::OutOfMemory { bytes }));
}
