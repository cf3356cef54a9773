//! Measurements as equalities: what an operation costs in verbs, that a seed decides a run, and that
//! every program runs on every fabric.

use std::sync::Arc;

use farside_fabric::rdma::DeviceOptions;
use farside_fabric::sim::{Profile, Sim, SimOptions};
use farside_fabric::{OpContext, VerbKind};
use farside_index::{Budget, IndexKind, TreeKind};
use farside_lab::lock::LockProgram;
use farside_lab::program::{Client, Program};
use farside_lab::progress::Progress;
use farside_lab::stage::{Conditions, FabricKind, Setting};
use farside_lab::store::StoreProgram;
use farside_lab::tree::{self, TreeProgram};
use farside_lab::workload::{Population, WORKLOADS, Workload};
use farside_lab::{BenchError, Report, measure_lock, measure_store, measure_tree};
use farside_lock::{LockKind, LockOptions};
use farside_sync::{CreditOptions, Scheme};
use serde_json::Value;

/// So long that no housekeeping happens while a simulation is measured.
const NEVER_NS: u64 = 1_000_000_000;

fn setting(fabric: FabricKind, clients: u64) -> Setting {
    Setting {
        fabric,
        profile: Profile::cx6(),
        clients,
        compute_nodes: clients.div_ceil(4),
        warm_up_ns: None,
        // In real time long enough for an operation of everybody, however busy the machine is.
        duration_ns: if fabric == FabricKind::Sim {
            400_000
        } else {
            100_000_000
        },
        conditions: Conditions::default(),
        device: DeviceOptions::default(),
        seed: 1,
    }
}

fn store(workload: &str, items: u64, setting: &Setting) -> StoreProgram {
    store_on(IndexKind::PointerArray, workload, items, setting)
}

fn store_on(index: IndexKind, workload: &str, items: u64, setting: &Setting) -> StoreProgram {
    let workload = Workload::by_name(workload).expect("a workload");
    StoreProgram {
        index,
        scheme: Scheme::Optimistic,
        local_wc: false,
        in_place: false,
        credits: CreditOptions::default(),
        population: Population::new(items, workload, 0.99, setting.seed),
        key_bytes: 8,
        value_bytes: 8,
        budget: Budget::default(),
        compute_nodes: setting.compute_nodes,
        tick_ns: NEVER_NS,
        seen: Arc::default(),
    }
}

fn tree_of(kind: TreeKind, workload: &str, items: u64, setting: &Setting) -> TreeProgram {
    let workload = Workload::by_name(workload).expect("a workload");
    let population = Population::new(items, workload, 0.99, setting.seed);
    TreeProgram {
        tick_ns: NEVER_NS,
        ..TreeProgram::published(kind, population, setting.compute_nodes)
    }
}

fn measure_a_tree(program: &TreeProgram, setting: &Setting) -> Report {
    measure_tree(program, setting, &mut None, &Progress::hidden()).expect("a measurement")
}

fn lock(kind: LockKind, locks: u64, seed: u64) -> LockProgram {
    LockProgram {
        kind,
        options: LockOptions::default(),
        locks,
        transactions: None,
        theta: 0.99,
        read_ratio: 0.2,
        section_verbs: 0,
        failure_rate: 0.0,
        is_timed: false,
        noted: Arc::default(),
        seed,
    }
}

fn measure(program: &StoreProgram, setting: &Setting) -> Report {
    measure_store(program, setting, &mut None, &Progress::hidden()).expect("a measurement")
}

/// READs, WRITEs, atomics, SENDs.
type Cost = [u64; 4];

/// What each of a client's first operations posts, nobody else being there; checked against what the memory node
/// executed, so that nothing of it came from anybody else.
fn costs_alone(workload: &str, operations: usize) -> Vec<Cost> {
    costs_alone_of(store(workload, 1000, &setting(FabricKind::Sim, 1)), operations)
}

fn costs_alone_of<P: Program>(program: P, operations: usize) -> Vec<Cost> {
    let sim = Sim::new(SimOptions::default());
    let node = sim.add_memory_node(program.memory_bytes());
    let endpoint = || sim.endpoint(sim.add_compute_node());
    sim.block_on(program.prepare(endpoint(), &sim.region(node)))
        .expect("room");
    let joined = sim.block_on(program.join(endpoint(), None)).expect("room");
    let own = endpoint();
    let mut client = program.client(&joined, &own, 0);
    let mut cx = OpContext::new(own.clone());
    let one = |_| {
        let (posted, executed) = (own.counters().snapshot(), sim.statistics(node).verbs.total());
        sim.block_on(client.step(&mut cx))
            .expect("a step")
            .expect("there is something to do");
        let posted = own.counters().snapshot().since(&posted);
        assert_eq!(posted.verbs.total(), sim.statistics(node).verbs.total() - executed);
        [
            posted.verbs.of(VerbKind::Read),
            posted.verbs.of(VerbKind::Write),
            posted.verbs.atomics(),
            posted.verbs.of(VerbKind::Send),
        ]
    };
    (0..operations).map(one).collect()
}

#[test]
fn operations_cost_what_the_model_says_and_nothing_else() {
    // CIDER, section 2.2: SEARCH is 2 READs, UPDATE is READ, WRITE and CAS.
    assert_eq!(costs_alone("ycsb-c", 50), [[2, 0, 0, 0]; 50]);
    assert_eq!(costs_alone("write-only", 50), [[1, 1, 1, 0]; 50]);
    // INSERT looks at its slot and finds nothing.
    assert_eq!(costs_alone("load", 50), [[1, 1, 1, 0]; 50]);
    let mixed = costs_alone("write-intensive", 50);
    assert!(
        mixed.iter().all(|cost| [[2, 0, 0, 0], [1, 1, 1, 0]].contains(cost)),
        "{mixed:?}"
    );
    // A read-modify-write looks at the item before it replaces it.
    let mixed = costs_alone("ycsb-f", 50);
    assert!(
        mixed.iter().all(|cost| [[2, 0, 0, 0], [2, 1, 1, 0]].contains(cost)),
        "{mixed:?}"
    );
}

/// What the first operations of clients post together, all on one key; and how many of them went with another one of their
/// compute node, or of any.
fn costs_together(program: &StoreProgram, clients: u64, compute_nodes: u64) -> (Cost, [u64; 2]) {
    let sim = Sim::new(SimOptions::default());
    let node = sim.add_memory_node(program.memory_bytes());
    let endpoint = || sim.endpoint(sim.add_compute_node());
    sim.block_on(program.prepare(endpoint(), &sim.region(node)))
        .expect("room");
    let nodes: Vec<_> = (0..compute_nodes)
        .map(|_| {
            (
                sim.add_compute_node(),
                sim.block_on(program.join(endpoint(), None)).expect("room"),
            )
        })
        .collect();
    let node_of = |number: u64| &nodes[(number % compute_nodes) as usize];
    let endpoints: Vec<_> = (0..clients).map(|number| sim.endpoint(node_of(number).0)).collect();
    for (number, endpoint) in (0..).zip(&endpoints) {
        let mut client = program.client(&node_of(number).1, endpoint, number);
        let mut cx = OpContext::new(endpoint.clone());
        endpoint.spawn(async move {
            client.step(&mut cx).await.expect("a step");
        });
    }
    sim.run_until(sim.now_ns() + 1_000_000);
    let posted = endpoints.iter().map(|endpoint| endpoint.counters().snapshot());
    let posted = posted
        .reduce(|sum, one| sum.plus(&one))
        .expect("there are clients")
        .verbs;
    let kinds = [VerbKind::Read, VerbKind::Write];
    let [reads, writes] = kinds.map(|kind| posted.of(kind));
    let local = nodes.iter().map(|(_, index)| index.shared());
    let global = nodes.iter().map(|(_, index)| index.combined().combined);
    (
        [reads, writes, posted.atomics(), posted.of(VerbKind::Send)],
        [
            local.map(|shared| shared.writes.combined + shared.reads.combined).sum(),
            global.sum(),
        ],
    )
}

/// The first one goes at once, the last of those who wait goes for the others.
#[test]
fn a_compute_node_posts_two_operations_for_many() {
    for index in [IndexKind::PointerArray, IndexKind::Race] {
        for (workload, alone) in [("ycsb-c", 0), ("write-only", 1)] {
            let one = setting(FabricKind::Sim, 1);
            let mut program = store_on(index, workload, 1, &one);
            let one = costs_alone_of(program.clone(), 1)[0];
            program.local_wc = true;
            assert_eq!(costs_alone_of(program.clone(), 1)[0], one);
            for clients in [2, 3, 8] {
                let (cost, [shared, _]) = costs_together(&program, clients, 1);
                assert_eq!(
                    cost,
                    one.map(|verbs| 2 * verbs),
                    "{index:?} {workload}: {clients} clients"
                );
                assert_eq!(shared, clients - 2);
                assert_eq!(cost[2], 2 * alone);
            }
        }
    }
}

/// What an UPDATE reads: the slot; two buckets, or where in its leaf the key may be, and the item that says whose slot it is.
const READS_OF_UPDATES: [(IndexKind, u64); 4] = [
    (IndexKind::PointerArray, 1),
    (IndexKind::Race, 3),
    (IndexKind::Chime, 2),
    (IndexKind::Sherman, 2),
];

/// CIDER, section 3.2: a lock adds two round trips. Its own scheme adds none where there is no contention.
#[test]
fn updates_with_locks_cost_what_the_papers_say() {
    for (name, [writes, atomics]) in [
        ("cas-backoff", [2, 2]),
        ("cas", [2, 2]),
        ("shiftlock-mutex", [1, 3]),
        ("shiftlock", [1, 3]),
        ("cider", [1, 1]),
        ("cider-no-wc", [1, 1]),
        ("cider-no-ca", [1, 3]),
    ] {
        for (index, reads) in READS_OF_UPDATES {
            let mut program = store_on(index, "write-only", 1, &setting(FabricKind::Sim, 1));
            program.scheme = Scheme::by_name(name).expect("a scheme");
            let costs = costs_alone_of(program, 20);
            assert_eq!(costs, [[reads, writes, atomics, 0]; 20], "{name} on {index:?}");
        }
    }
}

/// SMART: a lock in the leaf is swapped in; then the value is written, and the lock behind it.
#[test]
fn an_update_in_place_takes_a_lock() {
    let one = setting(FabricKind::Sim, 1);
    let mut program = store_on(IndexKind::Smart, "write-only", 1000, &one);
    program.in_place = true;
    assert_eq!(costs_alone_of(program.clone(), 20), [[2, 2, 1, 0]; 20]);
    // Clients that change one key take turns, and those of a compute node go together.
    program.population = Population::new(1, program.population.workload, 0.99, one.seed);
    let (cost, _) = costs_together(&program, 4, 4);
    assert_eq!((cost[1], cost[3]), (8, 0), "each has written: {cost:?}");
    assert!(cost[2] > 4, "somebody has waited: {cost:?}");
    program.local_wc = true;
    let (cost, [shared, _]) = costs_together(&program, 8, 1);
    assert_eq!((cost, shared), ([4, 4, 2, 0], 6));
}

/// CIDER, section 4.2.1: one item is written and one pointer swapped for a whole batch, whoever many are in it. The first
/// update finds nobody behind it and goes alone; the other ones are a batch. All but the coordinator's READ, that of the
/// executor, who looks at the slot again, the two WRITEs and the two swaps is what the queue takes.
#[test]
fn a_batch_writes_once() {
    for (index, reads) in READS_OF_UPDATES {
        for clients in [3, 4, 8] {
            let mut program = store_on(index, "write-only", 1, &setting(FabricKind::Sim, 4 * clients));
            program.scheme = Scheme::by_name("cider-no-ca").expect("a scheme");
            let (cost, [local, global]) = costs_together(&program, clients, clients);
            let queue = clients + 1 + (clients - 1);
            assert_eq!(
                cost,
                [clients * reads + 2, 2, 2 + queue, 2 * clients],
                "{index:?}: {clients} clients"
            );
            assert_eq!((local, global), (0, clients - 2));
            // The clients of a compute node are combined before.
            program.local_wc = true;
            let (cost, [local, global]) = costs_together(&program, clients, 1);
            let alone = [reads, 1, 3, 0].map(|verbs| 2 * verbs);
            assert_eq!((cost, local, global), (alone, clients - 2, 0));
        }
    }
}

#[test]
fn race_costs_what_its_table_says() {
    let costs = |workload| {
        let program = store_on(IndexKind::Race, workload, 1000, &setting(FabricKind::Sim, 1));
        costs_alone_of(program, 200)
    };
    // Both buckets and the item, and one more for each other key with the same fingerprint.
    let searches = costs("ycsb-c");
    assert!(
        searches.iter().all(|cost| cost[0] >= 3 && cost[1..] == [0, 0, 0]),
        "{searches:?}"
    );
    let usual = searches.iter().filter(|cost| cost[0] == 3).count();
    assert!(usual > 150, "{usual} of 200 SEARCHes are 3 READs");
    // The same, the new item, and the swap.
    let updates = costs("write-only");
    assert!(
        updates.iter().all(|cost| cost[0] >= 3 && cost[1..] == [1, 1, 0]),
        "{updates:?}"
    );
    let mixed = costs("ycsb-f");
    let is_either = |cost: &Cost| cost[0] >= 3 && ([0, 0, 0] == cost[1..] || [1, 1, 0] == cost[1..]);
    assert!(mixed.iter().all(is_either), "{mixed:?}");
}

#[test]
fn a_run_says_how_the_table_grew() {
    for fabric in [FabricKind::Sim, FabricKind::Shm, FabricKind::Tcp] {
        let setting = setting(fabric, 4);
        for workload in ["ycsb-c", "load"] {
            let report = measure(&store_on(IndexKind::Race, workload, 30_000, &setting), &setting);
            let growth = report.growth.expect("RACE grows");
            // 30 000 keys in four tables of some thousand slots each.
            assert!(growth.splits >= 4, "{growth:?}");
            let load = growth.first_split_load.expect("it was split");
            assert!((0.5..1.0).contains(&load), "{growth:?}");
            assert!(report.cache_bytes.expect("a store says") > 0);
            assert!(report.memory_bytes.expect("a store says") > 30_000 * 32);
        }
        let report = measure(&store("ycsb-c", 1000, &setting), &setting);
        assert_eq!((report.growth, report.cache_bytes), (None, Some(0)));
    }
}

/// The core workloads as published with YCSB, in percent: read, update, insert, scan, read-modify-write.
/// (Cooper and others, SoCC 2010, table 2; F from the workload files of the release.)
const PUBLISHED: [(&str, [u64; 5]); 6] = [
    ("ycsb-a", [50, 50, 0, 0, 0]),
    ("ycsb-b", [95, 5, 0, 0, 0]),
    ("ycsb-c", [100, 0, 0, 0, 0]),
    ("ycsb-d", [95, 0, 5, 0, 0]),
    ("ycsb-e", [0, 0, 5, 95, 0]),
    ("ycsb-f", [50, 0, 0, 0, 50]),
];

/// Operations that were done, not those that were asked for. How many there are depends on the machine where
/// time is real; so far from the mean (ten standard deviations, and what was under way at either end) no run
/// gets by chance.
#[test]
fn mixes_are_those_that_were_published() {
    for (name, shares) in PUBLISHED {
        for fabric in [FabricKind::Sim, FabricKind::Shm, FabricKind::Tcp] {
            for (index, ..) in IndexKind::ALL {
                let mut setting = setting(fabric, 4);
                // A scan is fifty reads, a client's first INSERT may take a chunk over, and what is simulated is short.
                let is_longer = shares[2] + shares[3] > 0 && fabric == FabricKind::Sim;
                setting.duration_ns *= if is_longer { 20 } else { 1 };
                let program = StoreProgram {
                    tick_ns: 1_000_000,
                    ..store_on(index, name, 2000, &setting)
                };
                let mut report = measure(&program, &setting);
                // Ends when the machine has had time for an operation.
                while fabric != FabricKind::Sim && report.operations == 0 {
                    setting.duration_ns *= 4;
                    report = measure(&program, &setting);
                }
                let mix = report.mix.expect("a store has one");
                let done = [mix.search, mix.update, mix.insert, mix.scan, mix.read_modify_write];
                assert_eq!(done.iter().sum::<u64>(), report.operations);
                // How many there are in real time is the machine's affair.
                assert!(
                    fabric != FabricKind::Sim || report.operations > 100,
                    "{name} on {}, {index:?}: {} operations",
                    fabric.name(),
                    report.operations
                );
                for (count, share) in done.into_iter().zip(shares) {
                    if share == 0 {
                        assert_eq!(count, 0, "{name}: {mix:?}");
                    }
                    let (all, share) = (report.operations as f64, share as f64 / 100.0);
                    let bound = 10.0 * (all * share * (1.0 - share)).sqrt() + 2.0 * setting.clients as f64;
                    assert!(
                        (count as f64 - all * share).abs() <= bound,
                        "{name} on {}: {mix:?}",
                        fabric.name()
                    );
                }
            }
        }
    }
}

#[test]
fn a_retry_costs_one_swap_and_nothing_else() {
    let setting = setting(FabricKind::Sim, 32);
    let report = measure(&store("write-only", 1, &setting), &setting);
    let verbs = report.per_op.verbs;
    assert!(report.per_op.retries > 5.0, "{} retries", report.per_op.retries);
    // Updates that are under way at either end: at most one of each client.
    let edge = 2.0 * setting.clients as f64 / report.operations as f64;
    assert!(
        (verbs.reads - 1.0).abs() <= edge && (verbs.writes - 1.0).abs() <= edge,
        "{verbs:?}"
    );
    assert!((verbs.atomics - report.per_op.retries - 1.0).abs() <= edge, "{verbs:?}");
}

#[test]
fn a_cas_lock_costs_one_swap_and_one_write_and_retries_swap() {
    let setting = setting(FabricKind::Sim, 40);
    for kind in [LockKind::Cas, LockKind::CasBackoff] {
        let report = measure_lock(&lock(kind, 1, 1), &setting, &mut None, &Progress::hidden()).expect("a measurement");
        let acquire = report.per_acquire.expect("a lock has one").verbs;
        assert_eq!((acquire.reads, acquire.writes, acquire.sends), (0.0, 0.0, 0.0));
        assert!(report.per_op.retries > 1.0 && report.retry_rate.expect("a CAS lock") > 0.5);
        let edge = 2.0 * setting.clients as f64 / report.operations as f64;
        assert!((report.per_op.verbs.writes - 1.0).abs() <= edge);
        assert!((report.per_op.verbs.atomics - report.per_op.retries - 1.0).abs() <= edge);
    }
}

/// ShiftLock, section 4.2, Figure 6: 240 clients on 5 machines, 10 million locks, Zipf 0.99: an acquire with its release
/// takes 2.01 atomics, and 0.36 READs if half of them are shared. If 95 % are shared the paper has 0.20 READs and we have
/// less: its clients wait for longer under that load (Table 3) than ours.
#[test]
fn a_shiftlock_costs_two_atomics_and_a_fraction_of_a_read() {
    let setting = Setting {
        profile: Profile::cx5(),
        compute_nodes: 5,
        duration_ns: 3_000_000,
        ..setting(FabricKind::Sim, 240)
    };
    for (read_ratio, reads) in [(0.5, 0.324..0.396), (0.95, 0.1..0.22)] {
        let program = LockProgram {
            read_ratio,
            ..lock(LockKind::ShiftLock, 10_000_000, 1)
        };
        let report = measure_lock(&program, &setting, &mut None, &Progress::hidden()).expect("a measurement");
        let verbs = report.per_op.verbs;
        assert!((verbs.atomics - 2.01).abs() < 0.02, "{verbs:?}");
        assert!(reads.contains(&verbs.reads), "{verbs:?}");
        assert_eq!(verbs.writes, 0.0);
        assert!(
            verbs.sends < 2.0 * (1.0 - read_ratio),
            "two at most, of writers that meet: {verbs:?}"
        );
    }
}

fn hash_and_operations(report: &Report) -> (String, u64) {
    (report.sim.clone().expect("a simulation").trace_hash, report.operations)
}

#[test]
fn the_seed_decides_a_run() {
    let run_store = |seed| {
        let setting = Setting {
            seed,
            ..setting(FabricKind::Sim, 12)
        };
        IndexKind::ALL
            .map(|(index, ..)| hash_and_operations(&measure(&store_on(index, "ycsb-a", 500, &setting), &setting)))
    };
    let run_lock = |seed| {
        let setting = Setting {
            seed,
            ..setting(FabricKind::Sim, 12)
        };
        let program = lock(LockKind::CasBackoff, 5, seed);
        hash_and_operations(&measure_lock(&program, &setting, &mut None, &Progress::hidden()).expect("a run"))
    };
    assert_eq!(run_store(1), run_store(1));
    assert_eq!(run_lock(1), run_lock(1));
    assert_ne!(run_store(1), run_store(2));
    assert_ne!(run_lock(1), run_lock(2));
}

#[test]
fn memory_of_an_earlier_run_changes_nothing() {
    let setting = setting(FabricKind::Sim, 8);
    let mut memory = None;
    let mut run = |index, workload| {
        let program = store_on(index, workload, 3000, &setting);
        let report = measure_store(&program, &setting, &mut memory, &Progress::hidden());
        hash_and_operations(&report.expect("a measurement"))
    };
    for (index, ..) in IndexKind::ALL {
        let first = run(index, "write-only");
        assert_ne!(run(index, "ycsb-a"), first);
        assert_eq!(run(index, "write-only"), first);
    }
}

/// Compute nodes begin with what one has learned, perhaps before an earlier run: the same as if each had learned it.
#[test]
fn what_was_learned_for_an_earlier_run_changes_nothing() {
    let setting = setting(FabricKind::Sim, 8);
    let mut memory = None;
    let mut run = |kind, (workload, cache_bytes)| {
        let program = TreeProgram {
            cache_bytes,
            hotspot_bytes: cache_bytes / 4,
            ..tree_of(kind, workload, 3000, &setting)
        };
        let report = measure_tree(&program, &setting, &mut memory, &Progress::hidden()).expect("a measurement");
        (
            hash_and_operations(&report),
            report.cache_bytes,
            report.per_op.verbs.reads,
        )
    };
    for kind in [TreeKind::Chime, TreeKind::Sherman, TreeKind::Rolex] {
        let (roomy, tight) = (("ycsb-c", 100_000), ("ycsb-c", 1000));
        let first = run(kind, roomy);
        let cold = run(kind, tight);
        assert!(
            cold.1 < first.1 && cold.2 != first.2,
            "{kind:?}: {cold:?} and {first:?}"
        );
        assert_eq!(run(kind, roomy), first);
        assert_eq!(run(kind, tight), cold);
        assert_ne!(run(kind, ("ycsb-b", 100_000)).0, first.0);
        assert_eq!(run(kind, roomy), first);
    }
}

#[test]
fn operations_on_trees_cost_a_lookup_or_a_lock_a_read_and_a_write_with_the_unlock() {
    let setting = setting(FabricKind::Sim, 1);
    for kind in [TreeKind::Chime, TreeKind::Sherman] {
        let program = |workload| tree_of(kind, workload, 3000, &setting);
        // Everything is remembered: the one entry of CHIME that a key is in, the one leaf of Sherman.
        assert_eq!(costs_alone_of(program("ycsb-c"), 50), [[1, 0, 0, 0]; 50]);
        assert_eq!(costs_alone_of(program("write-only"), 50), [[1, 2, 1, 0]; 50]);
    }
    let learned = |kind, workload| costs_alone_of(tree_of(kind, workload, 3000, &setting), 50);
    // A model leaves three leaves as a rule, and an UPDATE asks which of them it is; or the one entry is known.
    let searches = learned(TreeKind::Rolex, "ycsb-c");
    let threes = searches.iter().filter(|cost| **cost == [3, 0, 0, 0]).count();
    let is_fewer = |cost: &[u64; 4]| (1..=3).contains(&cost[0]) && cost[1..] == [0; 3];
    assert!(threes > 40 && searches.iter().all(is_fewer), "{searches:?}");
    let updates = learned(TreeKind::Rolex, "write-only");
    let threes = updates.iter().filter(|cost| **cost == [4, 2, 1, 0]).count();
    let is_fewer = |cost: &[u64; 4]| (1..=4).contains(&cost[0]) && cost[1..] == [2, 1, 0];
    assert!(threes > 40 && updates.iter().all(is_fewer), "{updates:?}");
    assert_eq!(learned(TreeKind::ChimeLearned, "ycsb-c"), [[1, 0, 0, 0]; 50]);
    let cold = TreeProgram {
        cache_bytes: 0,
        hotspot_bytes: 0,
        ..tree_of(TreeKind::Sherman, "ycsb-c", 3000, &setting)
    };
    // Two levels: 3000 keys are more than 64 leaves hold that are two thirds full.
    assert_eq!(costs_alone_of(cold, 50), [[3, 0, 0, 0]; 50]);
    // Behind data pointers: the leaf, and the item; an UPDATE swaps the pointer and takes no lock.
    let indirect = |workload| store_on(IndexKind::Sherman, workload, 3000, &setting);
    assert_eq!(costs_alone_of(indirect("ycsb-c"), 50), [[2, 0, 0, 0]; 50]);
    assert_eq!(costs_alone_of(indirect("write-only"), 50), [[2, 1, 1, 0]; 50]);
}

#[test]
fn reports_of_trees_say_what_was_remembered_and_guessed() {
    let setting = setting(FabricKind::Sim, 8);
    let program = |cache_bytes| TreeProgram {
        cache_bytes,
        hotspot_bytes: tree::usual_hotspot_bytes(TreeKind::Chime, cache_bytes),
        ..tree_of(TreeKind::Chime, "ycsb-c", 20_000, &setting)
    };
    let [roomy, tight] = [100_000_000, 100_000].map(|cache_bytes| measure_a_tree(&program(cache_bytes), &setting));
    let [all, some] = [&roomy, &tight].map(|report| report.structure.expect("it is a tree"));
    // What is under way when the time that counts begins and ends makes a difference of a few operations.
    assert!(all.hit_rate > 0.98, "{all:?}");
    assert_eq!((all.right_rate, all.height), (1.0, 2));
    assert_eq!(roomy.cache_bytes, tight.cache_bytes, "internal nodes fit both times");
    assert!(
        some.hotspot_bytes <= 30_000 && (0.1..0.9).contains(&some.hit_rate),
        "{some:?}"
    );
    assert_eq!((all.splits, some.splits), (0, 0));
    let loaded = measure_a_tree(&tree_of(TreeKind::Sherman, "load", 20_000, &setting), &setting);
    let structure = loaded.structure.expect("it is a tree");
    assert!(
        (300..700).contains(&structure.splits) && loaded.operations == 20_000,
        "{structure:?}"
    );
    let again = measure_a_tree(&tree_of(TreeKind::Sherman, "load", 20_000, &setting), &setting);
    let hash = |report: &Report| report.sim.as_ref().map(|sim| sim.trace_hash.clone());
    assert_eq!(hash(&loaded), hash(&again));
    for absent in ["sync", "growth", "pointer_bytes", "credit_bytes"] {
        let report: Value = serde_json::from_str(&loaded.to_json()).expect("one object");
        assert!(report.get(absent).is_none(), "{absent}");
    }
}

/// A measurement; on a real fabric again, for longer, while the machine had no time for anybody.
fn worked(setting: &Setting, measure: impl Fn(&Setting) -> Report) -> Report {
    let mut setting = setting.clone();
    let mut report = measure(&setting);
    while report.operations == 0 && setting.fabric != FabricKind::Sim && setting.duration_ns < 10_000_000_000 {
        setting.duration_ns *= 2;
        report = measure(&setting);
    }
    report
}

/// What one client stores, the backup has as well; nobody reads it there.
#[test]
fn a_mirrored_node_is_a_fabric_too() {
    let setting = setting(FabricKind::Mirrored, 6);
    let program = StoreProgram {
        tick_ns: 1_000_000,
        ..store_on(IndexKind::Race, "read-intensive", 2000, &setting)
    };
    let report = worked(&setting, |setting| measure(&program, setting));
    assert!(report.operations > 0);
}

#[test]
fn every_workload_runs_on_every_fabric() {
    for fabric in [FabricKind::Sim, FabricKind::Shm, FabricKind::Tcp] {
        let mut setting = setting(fabric, 6);
        // There are hundreds of runs: a few turns of each thread are enough to have worked.
        setting.duration_ns = setting.duration_ns.min(20_000_000);
        for (index, ..) in IndexKind::ALL {
            for workload in WORKLOADS {
                let program = StoreProgram {
                    tick_ns: 1_000_000,
                    ..store_on(index, workload.name, 2000, &setting)
                };
                let report = worked(&setting, |setting| measure(&program, setting));
                assert!(report.operations > 0, "{} on {}", workload.name, fabric.name());
                if workload.is_load() {
                    assert_eq!(report.operations, 2000);
                }
            }
        }
        for kind in TreeKind::of_values() {
            for workload in WORKLOADS {
                let program = TreeProgram {
                    tick_ns: 1_000_000,
                    local_wc: true,
                    ..tree_of(kind, workload.name, 2000, &setting)
                };
                let report = worked(&setting, |setting| measure_a_tree(&program, setting));
                assert!(report.operations > 0, "{} on {}", workload.name, fabric.name());
                if workload.is_load() {
                    assert_eq!(report.operations, 2000);
                }
            }
        }
        // Longer than the lease of a reader, which a writer may have to wait for.
        setting.duration_ns = setting.duration_ns.max(5_000_000);
        for (kind, _) in LockKind::named() {
            let report = worked(&setting, |setting| {
                let report = measure_lock(&lock(kind, 3, 1), setting, &mut None, &Progress::hidden());
                report.expect("a measurement")
            });
            assert!(report.operations > 0, "{} on {}", kind.name(), fabric.name());
        }
    }
}

/// The keys of an object, in order.
fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn the_json_has_the_promised_keys() {
    let simulated = setting(FabricKind::Sim, 4);
    let report = measure(&store("ycsb-a", 100, &simulated), &simulated).to_json();
    let report: Value = serde_json::from_str(&report).expect("one object");
    let promised = [
        "kind",
        "fabric",
        "profile",
        "index",
        "sync",
        "local_wc",
        "clients",
        "cns",
        "items",
        "workload",
        "theta",
        "seed",
        "operations",
        "throughput_ops_s",
        "latency_us",
        "per_op",
        "nodes",
        "cache_bytes",
        "memory_bytes",
        "sim",
    ];
    for key in promised {
        assert!(report.get(key).is_some(), "{key}");
    }
    let mut combining = store("ycsb-a", 100, &simulated);
    combining.local_wc = true;
    let combining: Value = serde_json::from_str(&measure(&combining, &simulated).to_json()).expect("one object");
    assert!(combining["combine"]["local_rate"].as_f64() > Some(0.0));
    for absent in ["combine", "lock", "acquire_us", "per_acquire", "retry_rate"] {
        assert!(report.get(absent).is_none(), "{absent}");
    }
    let mut latency = keys(&report["latency_us"]);
    latency.sort_unstable();
    assert_eq!(latency, ["max", "mean", "p50", "p99", "p999"]);
    let mut per_op = keys(&report["per_op"]);
    per_op.sort_unstable();
    assert_eq!(
        per_op,
        [
            "atomics",
            "bytes_read",
            "bytes_written",
            "reads",
            "retries",
            "sends",
            "writes"
        ]
    );

    let real = setting(FabricKind::Shm, 1);
    let report = measure_lock(&lock(LockKind::Cas, 1, 1), &real, &mut None, &Progress::hidden());
    let report: Value = serde_json::from_str(&report.expect("a measurement").to_json()).expect("one object");
    for key in ["lock", "locks", "read_ratio", "acquire_us", "per_acquire"] {
        assert!(report.get(key).is_some(), "{key}");
    }
    for absent in ["profile", "sim", "index", "memory_bytes", "cache_bytes"] {
        assert!(report.get(absent).is_none(), "{absent}");
    }
}

#[test]
fn arguments_without_a_meaning_are_refused() {
    let refused = |program: &StoreProgram, setting: &Setting| {
        let result = measure_store(program, setting, &mut None, &Progress::hidden());
        assert!(matches!(result, Err(BenchError::Argument(_))), "{result:?}");
    };
    let good = setting(FabricKind::Sim, 1);
    refused(&store("ycsb-a", 0, &good), &good);
    for (key_bytes, value_bytes, theta) in [(7, 8, 0.99), (8, 1 << 20, 0.99), (8, 8, -1.0), (8, 8, f64::NAN)] {
        let mut program = StoreProgram {
            key_bytes,
            value_bytes,
            ..store("ycsb-a", 10, &good)
        };
        program.population.theta = theta;
        refused(&program, &good);
    }
    for (index, workload, value_bytes) in [
        (IndexKind::Race, "ycsb-a", 8),
        (IndexKind::Smart, "ycsb-a", 16),
        (IndexKind::Smart, "ycsb-f", 8),
    ] {
        let program = StoreProgram {
            value_bytes,
            in_place: true,
            ..store_on(index, workload, 10, &good)
        };
        refused(&program, &good);
    }
    let published = tree_of(TreeKind::Chime, "ycsb-a", 10, &good);
    for (span, neighbourhood, hotspot_bytes) in [(0, 8, 0), (513, 8, 0), (64, 17, 0), (60, 8, 0), (64, 8, 1 << 40)] {
        let program = TreeProgram {
            span,
            neighbourhood,
            hotspot_bytes,
            ..published.clone()
        };
        let result = measure_tree(&program, &good, &mut None, &Progress::hidden());
        assert!(matches!(result, Err(BenchError::Argument(_))), "{result:?}");
    }
    for (span, value_bytes) in [(64, 0), (64, 12), (64, 4104), (512, 512)] {
        let program = TreeProgram {
            span,
            value_bytes,
            ..published.clone()
        };
        let result = measure_tree(&program, &good, &mut None, &Progress::hidden());
        assert!(matches!(result, Err(BenchError::Argument(_))), "{result:?}");
    }
    let program = store("ycsb-a", 10, &good);
    refused(
        &program,
        &Setting {
            clients: 0,
            ..good.clone()
        },
    );
    refused(
        &program,
        &Setting {
            compute_nodes: 2,
            ..good.clone()
        },
    );
}
