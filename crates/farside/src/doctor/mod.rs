//! `farside doctor`: looks at this machine and at a pool, and says what to do next.
//!
//! Looking and judging are apart: [`machine`] and [`pool`] collect facts, and pure functions make findings of them, a line
//! each. Nothing is changed. A node has [`PATIENCE_NS`] to answer, all of them at once, so that one that is stopped delays
//! nothing but its own line.

mod finding;
mod judge;
mod machine;
mod pool;

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use farside_cli::Failure;
use farside_fabric::host::on_this_thread;
use farside_fabric::tcp::PROTOCOL_VERSION;
use farside_pool::layout::LAYOUT_VERSION;

use self::finding::{Finding, Report};
use crate::gateway::MaybePoolArgs;

/// How long a node may take to answer, for whatever it is asked.
const PATIENCE_NS: u64 = 5_000_000_000;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pool: MaybePoolArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: DoctorArgs) -> Result<ExitCode, Failure> {
    let mut findings = vec![program()];
    let mut segments = Vec::new();
    if let Some(pool) = args.pool.get() {
        let secret = pool.secret()?;
        // What etcd knows, if the pool is named as a cluster.
        let places = pool.spec()?;
        let facts = on_this_thread(pool::look(&pool, &places, secret.as_ref())).map_err(Failure::runtime)?;
        findings.extend(judge::pool(&facts));
        segments = facts.segments();
    }
    findings.extend(machine::judge(&machine::look(&segments)));
    let report = Report::new(findings);
    let text = match args.json {
        true => serde_json::to_string(&report).map_err(Failure::runtime)? + "\n",
        false => report.text(),
    };
    // A closed pipe is the reader's choice.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(match report.is_well {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn program() -> Finding {
    let version = env!("CARGO_PKG_VERSION");
    Finding::ok(
        "program",
        format!(
            "farside {version}: version {PROTOCOL_VERSION} of the protocol, {LAYOUT_VERSION} of the memory's layout"
        ),
    )
}

#[cfg(test)]
mod tests;
