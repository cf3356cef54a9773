//! The object store: what gets and sets cost, that nobody sees half a set under a lock, and traces.

use std::process::{Command, Output};
use std::sync::atomic::Ordering;

use farside_fabric::rdma::DeviceOptions;
use farside_fabric::sim::{Profile, Sim, SimOptions};
use farside_fabric::{Endpoint, OpContext, VerbKind};
use farside_lab::objects::{ObjectProgram, Requests};
use farside_lab::program::{Client, Program};
use farside_lab::progress::Progress;
use farside_lab::stage::{Conditions, FabricKind, Setting};
use farside_lab::workload::{ObjectWorkload, Trace};
use farside_lab::{Report, measure_objects};
use farside_lock::LockKind;
use serde_json::Value;

/// READs, WRITEs, atomics, SENDs.
type Cost = [u64; 4];

fn setting(fabric: FabricKind, clients: u64) -> Setting {
    Setting {
        fabric,
        // Several units: a NIC that executes one verb at a time shows nobody half an object.
        profile: Profile::plain(),
        clients,
        compute_nodes: clients.div_ceil(4),
        warm_up_ns: None,
        // In real time long enough for an operation of everybody, however busy the machine is.
        duration_ns: if fabric == FabricKind::Sim {
            1_000_000
        } else {
            100_000_000
        },
        conditions: Conditions::default(),
        device: DeviceOptions::default(),
        seed: 1,
    }
}

/// Objects of so many bytes on average, of which the most popular has exactly as many.
fn requests(objects: u64, object_bytes: u64, get_percent: u64) -> Requests {
    Requests::Drawn {
        workload: ObjectWorkload {
            name: "test",
            about: "",
            object_bytes,
            get_percent,
            theta: 1.0,
        },
        objects,
        theta: 1.0,
    }
}

fn lock(name: &str) -> Option<LockKind> {
    Some(LockKind::by_name(name).expect("a registered lock"))
}

fn measure(program: &ObjectProgram, setting: &Setting) -> Report {
    let report = measure_objects(program, setting, &mut None, &Progress::hidden());
    report.unwrap_or_else(|error| panic!("{:?}: {error}", program.kind))
}

fn posted_by(endpoint: &Endpoint) -> Cost {
    let posted = endpoint.counters().snapshot().verbs;
    let [reads, writes, sends] = [VerbKind::Read, VerbKind::Write, VerbKind::Send].map(|kind| posted.of(kind));
    [reads, writes, posted.atomics(), sends]
}

fn minus(after: Cost, before: Cost) -> Cost {
    core::array::from_fn(|kind| after[kind] - before[kind])
}

/// What each operation of a client posts after the first, nobody else being there.
fn costs_alone(lock: Option<LockKind>, requests: Requests) -> Vec<Cost> {
    let program = ObjectProgram::new(lock, requests, &setting(FabricKind::Sim, 1)).expect("it makes sense");
    let sim = Sim::new(SimOptions::default());
    let node = sim.add_memory_node(program.memory_bytes());
    let endpoint = || sim.endpoint(sim.add_compute_node());
    if program.has_agent() {
        let (agent, task) = (endpoint(), program.clone());
        agent.clone().spawn(async move {
            let _ = task.serve(agent).await;
        });
    }
    let joined = sim.block_on(program.join(endpoint(), None)).expect("there is room");
    let own = endpoint();
    let (mut client, mut cx) = (program.client(&joined, &own, 0), OpContext::new(own.clone()));
    let mut step = || {
        let (before, executed) = (posted_by(&own), sim.statistics(node).verbs.total());
        sim.block_on(client.step(&mut cx))
            .expect("a step")
            .expect("there is something to do");
        let cost = minus(posted_by(&own), before);
        (cost, sim.statistics(node).verbs.total() - executed)
    };
    // What the first one does for all: a DecLock's client lists itself in the roster.
    step();
    let costs = (0..20).map(|_| {
        let (cost, executed) = step();
        assert_eq!(
            cost[..3].iter().sum::<u64>(),
            executed,
            "all was executed by the memory node"
        );
        cost
    });
    costs.collect()
}

/// DecLock, section 6.6: a get READs the object and a set WRITEs it, a page each; the lock comes before and behind.
#[test]
fn a_get_and_a_set_cost_their_pages_and_their_lock() {
    for (name, shared, exclusive) in [
        (None, [0; 4], [0; 4]),
        (Some("cas-rw"), [0, 0, 2, 0], [0, 0, 2, 0]),
        (Some("dslr-plus"), [0, 0, 2, 0], [0, 0, 2, 0]),
        (Some("shiftlock"), [0, 0, 2, 0], [0, 0, 2, 0]),
        (Some("declock"), [1, 0, 2, 0], [1, 0, 2, 0]),
        (Some("declock-ts-pf"), [1, 0, 2, 0], [1, 0, 2, 0]),
    ] {
        for (bytes, pages) in [(414, 1), (4080, 1), (4081, 2), (9213, 3), (200_000, 50)] {
            let kind = name.and_then(lock);
            let [reads, writes, atomics, sends] = shared;
            let get = [reads + pages, writes, atomics, sends];
            assert_eq!(
                costs_alone(kind, requests(1, bytes, 100)),
                [get; 20],
                "{name:?}, {bytes} bytes"
            );
            let [reads, writes, atomics, sends] = exclusive;
            let set = [reads, writes + pages, atomics, sends];
            assert_eq!(
                costs_alone(kind, requests(1, bytes, 0)),
                [set; 20],
                "{name:?}, {bytes} bytes"
            );
        }
    }
}

/// Without a lock clients see objects that others are writing; that is noticed.
#[test]
fn torn_objects_are_counted_without_a_lock() {
    for bytes in [414, 9213] {
        let setting = setting(FabricKind::Sim, 16);
        let program = ObjectProgram::new(None, requests(2, bytes, 50), &setting).expect("it makes sense");
        let report = measure(&program, &setting);
        assert!(report.operations > 100);
        assert!(program.torn.load(Ordering::Relaxed) > 0, "{bytes} bytes");
    }
}

#[test]
fn under_every_lock_objects_are_whole() {
    for (kind, name) in LockKind::named() {
        for bytes in [414, 9213] {
            let mut setting = setting(FabricKind::Sim, 16);
            if kind == LockKind::Drtm {
                // A writer waits until readers have not come for the length of a lease: a millisecond.
                setting.duration_ns *= 8;
            }
            let program = ObjectProgram::new(Some(kind), requests(3, bytes, 50), &setting).expect("it makes sense");
            let report = measure(&program, &setting);
            assert_eq!(program.torn.load(Ordering::Relaxed), 0, "{name}");
            assert!(report.operations > 50, "{name}: {} operations", report.operations);
            let mix = report.mix.expect("it is counted");
            assert_eq!(mix.search + mix.update, report.operations);
            assert!(mix.search > 0 && mix.update > 0, "{name}: {mix:?}");
        }
    }
}

#[test]
fn objects_are_whole_on_every_fabric() {
    for fabric in [FabricKind::Shm, FabricKind::Tcp] {
        for name in ["cas-rw", "dslr-plus", "declock", "declock-ts-pf", "rpc"] {
            let setting = setting(fabric, 8);
            let program = ObjectProgram::new(lock(name), requests(3, 9213, 50), &setting).expect("it makes sense");
            // Again, if the machine had no time for anybody meanwhile.
            let mut counts = (0..20).map(|_| measure(&program, &setting).operations);
            assert!(counts.any(|operations| operations > 0), "{name} on {fabric:?}");
        }
    }
}

#[test]
fn a_seed_decides_a_run() {
    let run = |seed| {
        let setting = Setting {
            seed,
            ..setting(FabricKind::Sim, 32)
        };
        let program = ObjectProgram::new(lock("declock-ts-pf"), requests(1000, 414, 65), &setting);
        let report = measure(&program.expect("it makes sense"), &setting);
        report.sim.expect("it is simulated").trace_hash
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

fn program(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside-lab"));
    command.args(arguments).env_remove("RUST_LOG");
    command.output().expect("the binary is built")
}

#[test]
fn a_generated_trace_is_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("requests.csv");
    let file = path.to_str().expect("plain");
    let generate = |file| {
        let what = [
            "trace",
            "generate",
            "--workload",
            "twitter-large",
            "--objects",
            "50",
            "--operations",
            "3000",
        ];
        program(&[&what[..], &["--out", file]].concat())
    };
    assert_eq!(generate(file).status.code(), Some(0));
    let trace = Trace::read(&path, u64::MAX).expect("it can be read");
    assert_eq!(trace.requests.len(), 3000);

    let measure = |more: &[&str]| {
        let what = [
            "bench",
            "objects",
            "--lock",
            "cas-rw,declock",
            "--clients",
            "8",
            "--cns",
            "2",
        ];
        program(&[&what[..], &["--duration", "1ms", "--json"], more].concat())
    };
    for (more, workload) in [
        (&["--trace", file][..], file),
        (&["--workload", "twitter-small"], "twitter-small"),
    ] {
        let output = measure(more);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout).expect("text");
        let reports: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(reports.len(), 2);
        for (report, lock) in reports.iter().zip(["cas-rw", "declock"]) {
            assert_eq!((&report["kind"], &report["lock"]), (&"objects".into(), &lock.into()));
            assert_eq!((&report["workload"], &report["cns"]), (&workload.into(), &2.into()));
            assert!(report["operations"].as_u64() > Some(0) && report["latency_us"]["p99"].as_f64() > Some(0.0));
            assert!(report["acquire_us"]["p50"].is_f64() && report["mix"]["search"].as_u64() > Some(0));
            let is_trace = workload == file;
            assert_eq!(report["theta"].is_f64(), !is_trace, "a trace has no exponent");
            assert_eq!(
                report["objects"].as_u64(),
                Some(if is_trace {
                    trace.capacities.len() as u64
                } else {
                    100_000
                })
            );
        }
    }
    std::fs::write(&path, "0,key,3,8,1,get,0\n0,key,3,8,1,peek,0\n").expect("writable");
    let refused = measure(&["--trace", file]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.starts_with(&format!("farside-lab: {file}, line 2: `peek` is not an operation")),
        "{said}"
    );
    for wrong in [
        &["--objects", "0"][..],
        &["--theta", "-1"],
        &["--trace", file, "--objects", "5"],
        &["--lines", "5"],
    ] {
        assert_eq!(measure(wrong).status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(generate("/nowhere/at/all").status.code(), Some(1));
}
