//! What DecLock costs, by the numbers of its paper (sections 6.2 and 6.4): its set-up on the simulated fabric.

#![forbid(unsafe_code)]

use farside_bench::lock::LockProgram;
use farside_bench::progress::Progress;
use farside_bench::stage::{FabricKind, Setting};
use farside_bench::{Report, measure_lock};
use farside_fabric::sim::Profile;
use farside_lock::LockKind;

/// Section 6.1 and 6.2: 32 clients on each of 8 compute nodes, 100 000 locks, Zipf 0.99, half of the
/// operations read; ConnectX-4.
fn measure(lock: &str, section_verbs: u64) -> Report {
    let program = LockProgram {
        kind: LockKind::by_name(lock).expect("it is registered"),
        locks: 100_000,
        theta: 0.99,
        read_ratio: 0.5,
        section_verbs,
        seed: 1,
    };
    let setting = Setting {
        fabric: FabricKind::Sim,
        profile: Profile::cx4(),
        clients: 256,
        compute_nodes: 8,
        duration_ns: 30_000_000,
        seed: 1,
    };
    measure_lock(&program, &setting, &mut None, &Progress::hidden()).expect("a measurement")
}

#[test]
fn an_acquire_takes_at_most_1_10_verbs_however_long_the_section() {
    for policy in ["declock", "declock:ts-pf"] {
        for section_verbs in [1, 4, 16, 64] {
            let report = measure(policy, section_verbs);
            println!(
                "{policy} {section_verbs} {:?} {:?} {}",
                report.per_acquire, report.per_op, report.operations
            );
        }
    }
}
