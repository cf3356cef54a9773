//! Transactions under two-phase locking: that their locks are held together while they work, that every lock can be measured
//! so, and what is reported of it.

use core::sync::atomic::Ordering;
use std::process::Command;
use std::sync::Arc;

use farside_fabric::OpContext;
use farside_fabric::rdma::DeviceOptions;
use farside_fabric::sim::{Profile, Sim, SimOptions};
use farside_lab::figure::file::Figure;
use farside_lab::figure::sweep;
use farside_lab::lock::LockProgram;
use farside_lab::program::{Client, Program};
use farside_lab::progress::Progress;
use farside_lab::stage::{Conditions, FabricKind, Setting};
use farside_lab::workload::{LOCKS_MAX, TRANSACTIONS, TransactionWorkload, client_random};
use farside_lab::{BenchError, Report, measure_lock};
use farside_lock::rma_rw::Marks;
use farside_lock::{Leases, LockKind, LockOptions};
use serde_json::Value;

const SEED: u64 = 3;
/// Where the first lock is.
const FIRST_AT: u64 = 64;

fn program(kind: LockKind, workload: TransactionWorkload) -> LockProgram {
    LockProgram {
        kind,
        options: LockOptions::default(),
        locks: workload.locks,
        transactions: Some(workload),
        theta: 0.0,
        read_ratio: 0.0,
        section_verbs: 0,
        failure_rate: 0.0,
        is_timed: false,
        noted: Arc::default(),
        seed: SEED,
    }
}

fn setting(fabric: FabricKind, clients: u64, duration_ns: u64) -> Setting {
    Setting {
        fabric,
        profile: Profile::cx5(),
        clients,
        compute_nodes: clients.div_ceil(48),
        duration_ns,
        warm_up_ns: None,
        conditions: Conditions::default(),
        device: DeviceOptions::default(),
        seed: SEED,
    }
}

fn measure(program: &LockProgram, setting: &Setting) -> Report {
    measure_lock(program, setting, &mut None, &Progress::hidden()).expect("a measurement")
}

/// A word of zeros is a free CAS lock; so whoever looks at the memory sees how many are held.
#[test]
fn a_transaction_holds_all_of_its_locks_while_it_works_and_posts_nothing() {
    for workload in TRANSACTIONS {
        let program = program(LockKind::Cas, workload);
        let sim = Sim::new(SimOptions::default());
        let node = sim.add_memory_node(program.memory_bytes());
        let region = sim.region(node);
        let endpoint = || sim.endpoint(sim.add_compute_node());
        let joined = sim.block_on(program.join(endpoint(), None)).expect("room");
        let own = endpoint();
        let mut client = program.client(&joined, &own, 0);
        let mut random = client_random(SEED, 0);
        for _ in 0..20 {
            let drawn = workload.draw(&mut random);
            let locks: Vec<u64> = drawn.requests().iter().map(|request| request.0).collect();
            let wanted = locks.len();
            let (before, mut cx) = (own.counters().snapshot(), OpContext::new(own.clone()));
            let step = async move {
                client.step(&mut cx).await.expect("a step");
                client
            };
            let (sender, receiver) = std::sync::mpsc::channel();
            own.spawn(async move { drop(sender.send(step.await)) });
            let (mut most, mut together_ns, mut posted) = (0, 0, Vec::new());
            client = loop {
                sim.run_until(sim.now_ns() + 50);
                let is_held = |lock: &&u64| region.word(FIRST_AT + **lock * 8).load(Ordering::Relaxed) != 0;
                let held = locks.iter().filter(is_held).count();
                most = most.max(held);
                if held == wanted {
                    together_ns += 50;
                    posted.push(own.counters().snapshot().verbs.total());
                }
                if let Ok(client) = receiver.try_recv() {
                    break client;
                }
            };
            assert_eq!(most, wanted, "{}: all are held together", workload.name);
            assert!(
                together_ns >= workload.execution_ns,
                "{}: for {together_ns} ns",
                workload.name
            );
            // The acquires at first, at the end the first release; none in between.
            let counted = own.counters().snapshot().since(&before).verbs.total();
            assert_eq!(counted, 2 * wanted as u64, "a swap and a WRITE for each lock");
            posted.dedup();
            assert!(posted.len() <= 2, "{}: {posted:?}", workload.name);
        }
    }
}

#[test]
fn every_lock_takes_the_locks_of_transactions() {
    for (kind, name) in LockKind::named() {
        for workload in TRANSACTIONS {
            let report = measure(&program(kind, workload), &setting(FabricKind::Sim, 12, 5_000_000));
            let transactions = report.transactions.as_ref().expect("they are counted");
            assert!(
                report.operations > 100,
                "{name}: {} {}",
                report.operations,
                workload.name
            );
            let counted: u64 = transactions.types.values().map(|times| times.count).sum();
            assert_eq!(counted, report.operations, "{name}");
            // Of those that ended: the report's latency counts those that had not as well.
            let ended = transactions.types.values();
            let ended_us: f64 = ended.map(|times| times.count as f64 * times.latency_us.mean).sum();
            // What crosses an end of the time that counts was acquired before it or is released after.
            let work_us = ended_us / counted as f64
                - report.acquire_us.expect("a lock").mean
                - report.release_us.expect("a lock").mean;
            let expected_us = workload.execution_ns as f64 / 1e3;
            assert!((work_us / expected_us - 1.0).abs() < 0.02, "{name}: {work_us} us");
        }
        for fabric in [FabricKind::Shm, FabricKind::Tcp] {
            let setting = Setting {
                compute_nodes: 2,
                ..setting(fabric, 6, 20_000_000)
            };
            // Again, if the machine had no time for anybody meanwhile.
            let has_worked = (0..100).any(|_| {
                let report = measure(&program(kind, TRANSACTIONS[1]), &setting);
                // Over TCP the lease of a DrTM's reader may be over before all other locks are there, again and again.
                let aborts = report.transactions.map_or(0.0, |transactions| transactions.aborts);
                let gave_up = kind.leases() == Leases::Readers && aborts > 0.0;
                report.operations > 0 || gave_up
            });
            assert!(has_worked, "{name} on {}", fabric.name());
        }
    }
}

/// Alone a CAS lock costs one atomic, in whatever mode it is asked for; one of RMA-RW costs two in shared and four in exclusive
/// mode.
#[test]
fn locks_are_taken_in_the_modes_that_transactions_ask_for() {
    for workload in TRANSACTIONS {
        for (kind, shared, exclusive) in [(LockKind::Cas, 1.0, 1.0), (LockKind::RmaRw(Marks::Compared), 2.0, 4.0)] {
            let report = measure(&program(kind, workload), &setting(FabricKind::Sim, 1, 20_000_000));
            let transactions = report.transactions.as_ref().expect("they are counted");
            let rate = transactions.shared_rate;
            let atomics = report.per_op.verbs.atomics;
            let expected = transactions.locks_mean * (shared * rate + exclusive * (1.0 - rate));
            // Of the transactions at either end of the time that counts a part is seen.
            let edge = 2.0 * exclusive * LOCKS_MAX as f64 / report.operations as f64;
            assert!(
                (atomics - expected).abs() <= edge,
                "{}, {}: {atomics} of {expected}",
                kind.name(),
                workload.name
            );
        }
    }
}

#[test]
fn the_report_says_what_transactions_there_were() {
    let report = measure(
        &program(LockKind::ShiftLock, TRANSACTIONS[0]),
        &setting(FabricKind::Sim, 48, 5_000_000),
    );
    let report: Value = serde_json::from_str(&report.to_json()).expect("one object");
    assert_eq!(
        (report["workload"].as_str(), report["locks"].as_u64()),
        (Some("tatp"), Some(680_236))
    );
    for absent in ["theta", "read_ratio", "acquire_hottest_us", "mix"] {
        assert!(report.get(absent).is_none(), "{absent}");
    }
    let transactions = &report["transactions"];
    let near = |key: &str, value: f64| {
        let found = transactions[key].as_f64().expect("a number");
        assert!((found - value).abs() < 0.02, "{key}: {found}");
    };
    near("locks_mean", 1.14);
    near("shared_rate", 0.807);
    near("aborts", 0.0);
    let types = transactions["types"].as_object().expect("an object");
    assert_eq!(types.len(), 7);
    let p50 = |kind: &str| types[kind]["latency_us"]["p50"].as_f64().expect("a number");
    assert!(
        p50("get_new_destination") > p50("get_access_data"),
        "two locks take longer than one"
    );
}

#[test]
fn what_transactions_decide_is_not_chosen() {
    let transactions = program(LockKind::Cas, TRANSACTIONS[0]);
    let chosen = [
        LockProgram {
            theta: 0.5,
            ..transactions.clone()
        },
        LockProgram {
            locks: 3,
            ..transactions.clone()
        },
        LockProgram {
            read_ratio: 0.5,
            ..transactions.clone()
        },
        LockProgram {
            failure_rate: 0.1,
            ..transactions
        },
    ];
    for program in chosen {
        let setting = setting(FabricKind::Sim, 1, 100_000);
        let refused = measure_lock(&program, &setting, &mut None, &Progress::hidden());
        assert!(matches!(refused, Err(BenchError::Argument(_))), "{refused:?}");
    }
    let refused = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farside-lab"));
        command.args(["bench", "lock", "--lock", "cas"]).args(more);
        let output = command.output().expect("the binary is built");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        said
    };
    for option in ["--locks", "--theta", "--read-ratio", "--section-verbs"] {
        let said = refused(&["--workload", "tatp", option, "1"]);
        assert!(said.contains(option), "{said}");
    }
    let said = refused(&["--workload", "ycsb-a"]);
    assert!(said.contains("tatp, tpc-c"), "{said}");
}

#[test]
fn figures_have_transactions() {
    let text = |workload: &str| {
        format!(
            "id = 'f'\ntitle = ''\nsource = ''\nsetup = ''\nclaim = []\npanel = []\n\
             [[series]]\nname = 'a'\nlabel = ''\nclients = [4]\nclients_per_cn = 4\nprofile = 'cx5'\n\
             duration = '1ms'\nlock = {{ name = 'mcs', workload = '{workload}' }}\n"
        )
    };
    let figure = Figure::parse(&text("tpc-c")).expect("a figure");
    let points = sweep::run(&figure, false, &mut None).expect("a figure that runs");
    let latency = points[0].number("transactions.types.payment.latency_us.p50");
    // Four swaps, 7 us of work, four releases.
    assert!(latency > Some(15.0), "{latency:?}");
    let reason = Figure::parse(&text("tpc-h")).expect_err("no such workload");
    assert!(reason.contains("tatp, tpc-c"), "{reason}");
}
