//! What each operation of a tree costs, in round trips and verbs: equalities, on the simulated fabric (CHIME, table 1).

use core::pin::Pin;

use farside_fabric::Endpoint;
use farside_fabric::sim::{Profile, Sim, SimOptions};
use farside_fabric::{CounterSnapshot, OpContext, Pipeline, VerbKind, interleave};
use farside_index::tree::{NodeLock, TurnOptions, Without};
use farside_index::{Budget, IndexError, Shape, Tree, TreeOptions, chime, rolex, sherman};
use farside_pool::{FormatOptions, Pool, PoolOptions, open_or_format};

/// READs, WRITEs, atomics, round trips.
type Cost = [u64; 4];

fn cost(counted: &CounterSnapshot) -> Cost {
    let verbs = &counted.verbs;
    [
        verbs.of(VerbKind::Read),
        verbs.of(VerbKind::Write),
        verbs.atomics(),
        counted.doorbells,
    ]
}

/// Boxed: the operations of a tree are large futures.
fn cost_of<T>(endpoint: &Endpoint, operation: impl Future<Output = T>) -> Pin<Box<impl Future<Output = Cost>>> {
    Box::pin(async move {
        let before = endpoint.counters().snapshot();
        operation.await;
        cost(&endpoint.counters().snapshot().since(&before))
    })
}

/// A tree of so many keys, multiples of 16, and a client whose housekeeping sleeps.
fn with_tree(leaf: (Shape, usize), keys: u64, test: impl AsyncFnOnce(Endpoint, Tree, OpContext)) {
    with_tree_in(SimOptions::default(), leaf, keys, test);
}

/// An empty tree whose client may remember all nodes.
async fn make_tree(endpoint: &Endpoint, shape: Shape, hotspot_bytes: usize) -> (Tree, OpContext) {
    let mut cx = OpContext::new(endpoint.clone());
    let geometry = open_or_format(&mut cx, FormatOptions::default()).await.expect("a pool");
    let times = PoolOptions {
        tick_ns: 1 << 40,
        lease_ns: 1 << 50,
    };
    let pool = Pool::join(&mut cx, geometry, times).await.expect("a client");
    let budget = Budget {
        cache_bytes: usize::MAX,
        hotspot_bytes,
    };
    let options = TreeOptions { shape, budget };
    (Tree::create(&mut cx, pool, options).await.expect("a tree"), cx)
}

fn with_tree_in(
    options: SimOptions,
    (shape, hotspot_bytes): (Shape, usize),
    keys: u64,
    test: impl AsyncFnOnce(Endpoint, Tree, OpContext),
) {
    let sim = Sim::new(options);
    let _ = sim.add_memory_node(64 << 20);
    let endpoint = sim.endpoint(sim.add_compute_node());
    sim.block_on(async {
        let (tree, mut cx) = make_tree(&endpoint, shape, hotspot_bytes).await;
        for number in 0..keys {
            // In no order, each once.
            let key = number * 7919 % keys * 16;
            tree.put(&mut cx, key, number).await.expect("a put");
        }
        test(endpoint, tree, cx).await;
    });
}

/// The round trips of each operation when `h` internal nodes have to be read, and `guess` more to find out which leaf it is that
/// is changed.
async fn round_trips(endpoint: &Endpoint, tree: &Tree, cx: &mut OpContext, h: u64, guess: u64) {
    let (there, absent) = (16 * 100_u64, 16 * 100 + 1_u64);
    let forget = || {
        if h > 0 {
            tree.forget_all();
        }
    };
    // Once, so that the path is remembered, and how many keys a leaf has; a cold cache forgets the path again.
    tree.search(cx, there).await.expect("a search");
    tree.scan(cx, there, 1000, &mut |_, _| ()).await.expect("a scan");
    forget();
    assert_eq!(cost_of(endpoint, tree.search(cx, there)).await[3], h + 1, "search");
    forget();
    assert_eq!(
        cost_of(endpoint, tree.search(cx, absent)).await[3],
        h + 1,
        "search for nothing"
    );
    forget();
    assert_eq!(
        cost_of(endpoint, tree.update(cx, there, 5)).await[3],
        h + guess + 3,
        "update"
    );
    forget();
    let inserted = cost_of(endpoint, tree.insert(cx, absent, 5)).await;
    assert_eq!((inserted[2], inserted[3]), (1, h + guess + 3), "insert");
    forget();
    assert_eq!(
        cost_of(endpoint, tree.delete(cx, absent)).await[3],
        h + guess + 3,
        "delete"
    );
    forget();
    let mut seen = 0;
    let scanned = cost_of(endpoint, tree.scan(cx, there, 100, &mut |_, _| seen += 1)).await;
    assert_eq!((scanned[3], seen), (h + 1, 100), "scan");
}

#[test]
fn round_trips_are_those_of_the_paper() {
    for (shape, guess) in [(chime::LEAF, 0), (sherman::LEAF, 0), (rolex::LEAF, 1)] {
        with_tree((shape, 0), 20_000, async |endpoint, tree, mut cx| {
            let h = u64::from(tree.height());
            assert_eq!(h, 2);
            tree.remember_all(&mut cx).await.expect("nodes");
            round_trips(&endpoint, &tree, &mut cx, 0, guess).await;
            round_trips(&endpoint, &tree, &mut cx, h, 0).await;
        });
    }
}

/// The leaves that a model leaves are read together: whole ones of ROLEX, three as a rule; neighbourhoods of CHIME-Learned,
/// whose leaves are four times as large, of one leaf or two. To change a key takes one round trip more, unless there is
/// one leaf.
#[test]
fn a_model_costs_what_it_leaves_open() {
    let learned = chime::LEAF.learned();
    for (shape, usual) in [(rolex::LEAF, 3), (learned, 1)] {
        with_tree((shape, 0), 20_000, async |endpoint, tree, mut cx| {
            tree.remember_all(&mut cx).await.expect("nodes");
            let mut windows = [0_u64; 5];
            for number in 0..2000_u64 {
                let key = number * 160;
                let before = endpoint.counters().snapshot();
                assert!(tree.search(&mut cx, key).await.expect("a search").is_some());
                let counted = endpoint.counters().snapshot().since(&before);
                let [reads, .., round_trips] = cost(&counted);
                assert_eq!(round_trips, 1);
                if shape == rolex::LEAF {
                    // Fences, sibling and entries; not the lock word and the intent.
                    assert_eq!(counted.bytes_read, reads * (shape.leaf_bytes() - 24));
                    windows[reads as usize] += 1;
                    let expected = if reads == 1 { [2, 2, 1, 3] } else { [reads + 1, 2, 1, 4] };
                    let update = cost_of(&endpoint, tree.update(&mut cx, key, 1)).await;
                    assert_eq!(update, expected);
                } else {
                    // Where the circle closes a neighbourhood is two.
                    windows[(counted.bytes_read / (8 * 24 + 8)).min(4) as usize] += 1;
                }
            }
            println!("{windows:?}");
            let all: u64 = windows.iter().sum();
            assert!(windows[usual] > all / 2 && windows[usual..=usual + 1].iter().sum::<u64>() > all * 4 / 5);
        });
    }
}

#[test]
fn a_neighbourhood_is_one_read_and_two_where_the_circle_closes() {
    with_tree((chime::LEAF, 0), 2_000, async |endpoint, tree, mut cx| {
        let mut reads = [0; 3];
        for number in 0..500_u64 {
            let key = number * 16;
            tree.search(&mut cx, key).await.expect("a search");
            let cost = cost_of(&endpoint, tree.search(&mut cx, key)).await;
            assert_eq!(cost[1..], [0, 0, 1]);
            reads[cost[0] as usize] += 1;
            assert_eq!(cost_of(&endpoint, tree.update(&mut cx, key, 1)).await[1..], [2, 1, 3]);
        }
        // 7 of 64 homes are so near the end.
        assert!(reads[1] > 400 && reads[2] > 20, "{reads:?}");
    });
}

/// READs, the bytes that they and atomics have brought, round trips.
fn reads_of<T>(endpoint: &Endpoint, operation: impl Future<Output = T>) -> Pin<Box<impl Future<Output = [u64; 3]>>> {
    Box::pin(async move {
        let before = endpoint.counters().snapshot();
        operation.await;
        let counted = endpoint.counters().snapshot().since(&before);
        [counted.verbs.of(VerbKind::Read), counted.bytes_read, counted.doorbells]
    })
}

#[test]
fn a_part_of_the_leaf_that_is_left_out_costs_a_read_or_bytes_and_no_round_trip() {
    with_tree((chime::LEAF, 0), 400, async |endpoint, tree, mut cx| {
        let without = |vacancy, replicas| tree.do_without(Without { vacancy, replicas });
        // The first key whose neighbourhood is one READ with the replica beside it.
        let mut there = 0_u64;
        while reads_of(&endpoint, tree.search(&mut cx, there)).await != [1, 200, 1] {
            there += 16;
        }
        assert_eq!(reads_of(&endpoint, tree.update(&mut cx, there, 1)).await, [1, 208, 3]);
        // The fences and their check.
        without(false, true);
        assert_eq!(reads_of(&endpoint, tree.search(&mut cx, there)).await, [2, 224, 1]);
        assert_eq!(reads_of(&endpoint, tree.update(&mut cx, there, 2)).await, [2, 232, 3]);
        assert_eq!(tree.search(&mut cx, there).await.expect("a search"), Some(2));

        let absent = there + 1;
        let mut inserts = Vec::new();
        for (vacancy, replicas) in [(false, false), (true, false), (true, true)] {
            without(vacancy, replicas);
            inserts.push(reads_of(&endpoint, tree.insert(&mut cx, absent, 1)).await);
            assert!(tree.delete(&mut cx, absent).await.expect("a delete"));
        }
        let whole = chime::LEAF.leaf_bytes() - 48;
        let [_, bytes, round_trips] = inserts[0];
        assert!(bytes < whole / 2 && round_trips == 3, "a hop range: {bytes} bytes");
        // From the home on, as the circle closes: two READs, unless it begins with the leaf.
        let [reads, bytes, round_trips] = inserts[1];
        assert_eq!([bytes, round_trips], [whole + 8, 3]);
        assert_eq!(inserts[2], [reads + 1, whole + 8 + 24, 3]);
        assert_eq!(tree.check(&mut cx).await.expect("a census").faults, [""; 0]);
    });
}

#[test]
fn a_scan_of_keys_without_gaps_reads_where_they_may_be() {
    with_tree((chime::LEAF, 0), 0, async |endpoint, tree, mut cx| {
        for number in 0..2_000_u64 {
            let key = number * 7919 % 2_000;
            tree.put(&mut cx, key, key).await.expect("a put");
        }
        tree.scan(&mut cx, 0_u64, usize::MAX, &mut |_, _| ())
            .await
            .expect("a scan");
        // With and without reading parts of leaves.
        let mut bytes_of_ten = [0; 2];
        for from in 0..1_800 {
            tree.do_without(Without::default());
            let search = reads_of(&endpoint, tree.search(&mut cx, from)).await;
            let one = reads_of(&endpoint, tree.scan(&mut cx, from, 1, &mut |_, _| ())).await;
            assert_eq!(one, search, "a scan of one key is a SEARCH");
            for (replicas, bytes) in [false, true].into_iter().zip(&mut bytes_of_ten) {
                tree.do_without(Without {
                    vacancy: false,
                    replicas,
                });
                let mut seen = Vec::new();
                let visit = &mut |key, value| seen.push((key as u64, value));
                let [_, ten, round_trips] = reads_of(&endpoint, tree.scan(&mut cx, from, 10, visit)).await;
                assert_eq!(round_trips, 1);
                assert!(seen.into_iter().eq((from..from + 10).map(|key| (key, key))));
                *bytes += ten;
            }
        }
        let [parts, whole] = bytes_of_ten;
        assert!(10 * parts < 8 * whole, "{parts} bytes instead of {whole}");
        // Gaps: the scan goes on behind.
        tree.do_without(Without::default());
        for key in (1_000..1_100_u64).filter(|key| key % 3 > 0) {
            assert_eq!(tree.delete(&mut cx, key).await, Ok(true));
        }
        let mut seen = Vec::new();
        let visit = &mut |key, _| seen.push(key as u64);
        tree.scan(&mut cx, 1_010_u64, 20, visit).await.expect("a scan");
        assert!(seen.into_iter().eq((1_011..1_070).step_by(3)));
    });
}

#[test]
fn bytes_of_leaves_and_of_reads() {
    // A neighbourhood: eight entries of 24 bytes and a replica. The published one takes about 165 (section 3.2.2).
    assert_eq!(chime::LEAF.leaf_bytes(), 48 + 8 * (8 + 8 * 24));
    assert_eq!(sherman::LEAF.leaf_bytes(), 48 + 8 + 64 * 24);
    assert_eq!(chime::LEAF.repeating(512).leaf_bytes(), 48 + 8 * (8 + 8 * 528));
    assert_eq!(chime::LEAF.inner_bytes(), 16 + 2 * (48 + 64 * 16));
}

#[test]
fn a_speculation_is_one_read_of_one_entry_and_one_that_is_wrong_costs_a_round_trip() {
    with_tree((chime::LEAF, 1 << 16), 2_000, async |endpoint, tree, mut cx| {
        let key = 16 * 100_u64;
        tree.search(&mut cx, key).await.expect("a search");
        let before = endpoint.counters().snapshot();
        assert!(tree.search(&mut cx, key).await.expect("a search").is_some());
        let counted = endpoint.counters().snapshot().since(&before);
        assert_eq!(cost(&counted), [1, 0, 0, 1]);
        assert_eq!(cost_of(&endpoint, tree.update(&mut cx, key, 5)).await, [1, 2, 1, 3]);
        // Deleted: it is not where it was.
        assert_eq!(tree.delete(&mut cx, key).await, Ok(true));
        assert_eq!(cost_of(&endpoint, tree.search(&mut cx, key)).await[3], 2);
        assert_eq!(cost_of(&endpoint, tree.update(&mut cx, key, 5)).await[3], 4);
        let speculations = tree.speculations();
        assert_eq!((speculations.right, speculations.wrong), (2, 2));
    });
}

/// Six updates of one leaf: the first, four that get the lock from the one before, and one for which it was given back.
#[test]
fn a_lock_that_is_handed_over_costs_neither_a_swap_nor_an_unlock() {
    with_tree((sherman::LEAF, 0), 1600, async |endpoint, tree, mut cx| {
        let turns = TurnOptions::default();
        let taken = tree.take_turns(&mut cx, NodeLock::Hierarchical, turns).await;
        taken.expect("nothing is needed");
        tree.update(&mut cx, 1600_u64, 0).await.expect("an update");
        let updates = (0..6).map(|value| {
            let (tree, mut cx) = (&tree, OpContext::new(endpoint.clone()));
            async move { assert!(tree.update(&mut cx, 1600_u64, value).await.expect("an update")) }
        });
        let pipeline = Pipeline::default();
        let updates = interleave(&pipeline, updates.collect());
        let [reads, writes, atomics, _] = cost_of(&endpoint, updates).await;
        assert_eq!([reads, writes, atomics], [6, 6 + 2, 2]);
        assert_eq!(tree.handovers(), 4);
        assert_eq!(tree.search(&mut cx, 1600_u64).await.expect("a search"), Some(5));
    });
}

/// Two atomics and a READ of the queue more than without, but no round trip of the operation more than one: the swap brings
/// the leaf, and the turn goes back behind the WRITEs.
#[test]
fn a_turn_of_a_lock_costs_what_the_lock_costs() {
    with_tree((sherman::LEAF, 0), 1600, async |endpoint, tree, mut cx| {
        let declock = NodeLock::by_name("declock").expect("it is a lock");
        let taken = tree.take_turns(&mut cx, declock, TurnOptions::default()).await;
        taken.expect("there is room");
        // Joins the roster.
        tree.update(&mut cx, 1600_u64, 0).await.expect("an update");
        endpoint.sleep(100_000).await;
        let update = async {
            tree.update(&mut cx, 1600_u64, 1).await.expect("an update");
            endpoint.sleep(100_000).await;
        };
        assert_eq!(cost_of(&endpoint, update).await, [1 + 1, 2, 1 + 2, 4]);
        assert!(!tree.is_restructuring());
        tree.end_turns().await.expect("the roster can be left");
    });
}

/// One round trip for the word on the NIC, one that locks and reads the leaf, one that writes and gives both back.
#[test]
fn a_word_on_the_nic_comes_before_the_lock_and_goes_with_it() {
    let profile = Profile::default().with_chip();
    let options = SimOptions {
        profile,
        ..SimOptions::default()
    };
    with_tree_in(options, (sherman::LEAF, 0), 1600, async |endpoint, tree, mut cx| {
        let taken = tree.take_turns(&mut cx, NodeLock::OnChip, TurnOptions::default()).await;
        taken.expect("the NIC has memory");
        tree.update(&mut cx, 1600_u64, 0).await.expect("an update");
        for value in 1..4 {
            let update = async { tree.update(&mut cx, 1600_u64, value).await.expect("an update") };
            assert_eq!(cost_of(&endpoint, update).await, [1, 2 + 1, 2, 3]);
        }
        assert_eq!(tree.search(&mut cx, 1600_u64).await.expect("a search"), Some(3));
    });
    with_tree((sherman::LEAF, 0), 1, async |_, tree, mut cx| {
        let refused = tree.take_turns(&mut cx, NodeLock::OnChip, TurnOptions::default()).await;
        assert_eq!(refused, Err(IndexError::NoChip));
    });
}

/// Keys in no order: xorshift64 (Marsaglia).
fn random_keys() -> impl Iterator<Item = u64> {
    let mut key = 0x853c_49e6_748f_ea9b_u64;
    core::iter::repeat_with(move || {
        key ^= key << 13;
        key ^= key >> 7;
        key ^= key << 17;
        key
    })
}

/// Random keys, scaled to the 60 million of CHIME, section 5.2: what a client remembers of all internal nodes, in MB.
fn cache_megabytes(shape: Shape) -> f64 {
    const ITEMS: u64 = 200_000;
    let mut megabytes = 0.0;
    with_tree((shape, 0), 0, async |_, tree, mut cx| {
        for (number, key) in (0..ITEMS).zip(random_keys()) {
            tree.put(&mut cx, key, number).await.expect("a put");
        }
        let census = tree.check(&mut cx).await.expect("a census");
        assert_eq!(census.faults, [""; 0]);
        assert_eq!(census.items.len() as u64, ITEMS);
        println!(
            "{} leaves, {} internal nodes, {} bytes remembered, {} held",
            census.leaves,
            census.inner,
            tree.cache_bytes(),
            tree.pool().held_here()
        );
        megabytes = tree.cache_bytes() as f64 * 60e6 / ITEMS as f64 / 1e6;
    });
    megabytes
}

/// The same of ROLEX, trained over keys that are there: leaves are full.
fn model_megabytes() -> f64 {
    const ITEMS: u64 = 200_000;
    const GOLDEN_SECTION: f64 = 0.618_033_988_749_895;
    let sim = Sim::new(SimOptions::default());
    let node = sim.add_memory_node(64 << 20);
    let endpoint = sim.endpoint(sim.add_compute_node());
    sim.block_on(async {
        let (tree, mut cx) = make_tree(&endpoint, rolex::LEAF, 0).await;
        let mut keys: Vec<u64> = random_keys().take(ITEMS as usize).collect();
        keys.sort_unstable();
        let mut fill = 0.5;
        let mut unit = || {
            fill = (fill + GOLDEN_SECTION) % 1.0;
            fill
        };
        let laid = tree.lay_out(
            &sim.region(node),
            &mut keys.iter().map(|&key| (key.into(), key)),
            &mut unit,
        );
        assert_eq!(laid.expect("room"), ITEMS / 16);
        tree.remember_all(&mut cx).await.expect("nodes");
        println!("{} bytes remembered", tree.cache_bytes());
        tree.cache_bytes() as f64 * 60e6 / ITEMS as f64 / 1e6
    })
}

/// Trees of nodes remember what the paper says, within a tenth. Models take less here than published, since addresses of leaves
/// that lie together are packed.
#[test]
fn cache_for_sixty_million_items_is_that_of_the_paper() {
    let [chime, sherman] = [chime::LEAF, sherman::LEAF].map(cache_megabytes);
    let rolex = model_megabytes();
    println!("{chime:.1} MB, {sherman:.1} MB, {rolex:.1} MB");
    assert!((0.9..1.1).contains(&(chime / 27.6)), "{chime:.1} MB");
    assert!((0.9..1.1).contains(&(sherman / 23.6)), "{sherman:.1} MB");
    assert!((0.7..1.0).contains(&(rolex / 31.2)), "{rolex:.1} MB");
}
