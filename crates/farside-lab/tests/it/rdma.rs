//! Measurements over RDMA, beside those of the model. `cargo xtask vm-tests` runs this where there is a device.

use std::process::{Command, Output};

fn output(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside-lab"));
    command.args(arguments).env_remove("RUST_LOG");
    command.output().expect("the binary is built")
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]]
        .map(String::from_utf8_lossy)
        .concat()
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn locks_are_measured_over_rdma() {
    let measured = output(&[
        "bench",
        "lock",
        "--fabric",
        "rdma",
        "--lock",
        "cas",
        "--clients",
        "4",
        "--duration",
        "100ms",
        "--json",
    ]);
    let line = text(&measured);
    assert!(
        measured.status.success() && line.contains(r#""fabric":"rdma""#),
        "{line}"
    );
}

/// What three clients of `farside-lab bench` needed for an operation, by the name of the count.
fn counts_per_operation(bench: &[&str], fabric: &[&str]) -> serde_json::Map<String, serde_json::Value> {
    let arguments = [&["bench"], bench, fabric, &["--clients", "3", "--json"]].concat();
    let measured = output(&arguments);
    assert!(measured.status.success(), "{arguments:?}: {}", text(&measured));
    let line: serde_json::Value = serde_json::from_slice(&measured.stdout).expect("one line of JSON");
    assert!(line["operations"].as_u64() > Some(50), "{line}");
    let counts = line["per_op"].as_object().expect("counts");
    counts.clone()
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_clients_need_what_clients_of_the_model_need() {
    let everything = &["reads", "writes", "atomics", "bytes_read", "bytes_written", "sends"][..];
    // Signs of life of a store are READs, whose number goes by time.
    let changes = &["writes", "atomics", "sends"][..];
    let far_apart = ["--locks", "100000", "--theta", "0"];
    for (bench, compared) in [
        ([&["lock", "--lock", "cas"], &far_apart[..]].concat(), everything),
        (
            [&["lock", "--lock", "declock-cql"], &far_apart[..]].concat(),
            everything,
        ),
        (
            [
                "store",
                "--index",
                "race",
                "--items",
                "2000",
                "--workload",
                "write-only",
                "--theta",
                "0",
            ]
            .to_vec(),
            changes,
        ),
    ] {
        let real = counts_per_operation(&bench, &["--fabric", "rdma", "--duration", "3s"]);
        let model = counts_per_operation(&bench, &["--fabric", "sim", "--duration", "2ms"]);
        for count in compared {
            // An operation may be cut by the beginning or the end of what is measured.
            let rounded = |counts: &serde_json::Map<_, serde_json::Value>| counts[*count].as_f64().map(f64::round);
            assert_eq!(rounded(&real), rounded(&model), "{bench:?} {count}: {real:?} {model:?}");
        }
    }
}
