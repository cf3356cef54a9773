//! `farside list`: what can be named on the command line.

use std::io::Write;
use std::process::ExitCode;

use farside_index::IndexKind;
use farside_lock::LockKind;
use farside_sync::Scheme;

use farside_cli::Failure;

const FABRICS: [(&str, &str); 4] = [
    ("shm", "a segment file that the processes of one machine map"),
    ("tcp", "a memory node at the end of a connection"),
    (
        "rdma",
        "a memory node that network cards reach; rdma-check says what is native on this machine, what emulated",
    ),
    (
        "sim",
        "a deterministic simulation of network cards and links, for tests and figures",
    ),
];

const RDMA_VERBS: [(&str, &str); 4] = [
    (
        "plain",
        "READ, WRITE, compare-and-swap and fetch-and-add of 8 bytes: native on every card",
    ),
    (
        "masked atomics",
        "native on ConnectX cards that pass the trial of each connection, elsewhere emulated by compare-and-swaps",
    ),
    ("WRITE of a word", "likewise, if atomics may share the word"),
    (
        "16-byte atomics",
        "native on such cards, elsewhere missing: the locks shiftlock and shiftlock-mutex are refused there",
    ),
];

pub(crate) fn run() -> Result<ExitCode, Failure> {
    let mut text = String::new();
    let mut section = |name: &str, lines: &mut dyn Iterator<Item = (&'static str, &'static str)>| {
        text.push_str(name);
        text.push('\n');
        for (name, about) in lines {
            text.push_str(&format!("  {name:<22} {about}\n"));
        }
    };
    section("fabrics", &mut FABRICS.into_iter());
    section("verbs of rdma", &mut RDMA_VERBS.into_iter());
    section(
        "indexes",
        &mut IndexKind::ALL.into_iter().map(|(_, name, about)| (name, about)),
    );
    section(
        "schemes",
        &mut Scheme::ALL
            .into_iter()
            .chain(Scheme::VARIANTS)
            .map(|(_, name, about)| (name, about)),
    );
    section(
        "locks",
        &mut LockKind::ALL
            .into_iter()
            .chain(LockKind::VARIANTS)
            .map(|(_, name, about)| (name, about)),
    );
    section("commands of the gateway", &mut farside_gateway::commands());
    // A closed pipe is the reader's choice.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}
