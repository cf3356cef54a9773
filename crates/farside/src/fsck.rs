//! `farside fsck`: walks every structure of a pool and says what is wrong.
//!
//! It does not join the pool, so nothing is changed but the entry of its own connection. On a pool
//! that clients are changing, what moves during the walk can look like a fault.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use farside_fabric::{Endpoint, OpContext};
use farside_kv::stack;
use farside_pool::{Account, Geometry, PoolError, account, open};
use serde::Serialize;

use crate::gateway::PoolArgs;
use farside_cli::scalar::show_size;
use farside_cli::{Failure, chain};
use farside_index::check::{self, Census};

#[derive(Debug, Args)]
pub(crate) struct FsckArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &FsckArgs) -> Result<ExitCode, Failure> {
    let (nodes, secret) = args.pool.locate()?;
    let checked = stack::run(nodes, secret, check_pool).map_err(|error| Failure::usage(chain(&error)))?;
    let report = checked.map_err(Failure::usage)?;
    let text = match args.json {
        true => serde_json::to_string(&report).map_err(Failure::runtime)? + "\n",
        false => report.text(),
    };
    // A closed pipe is the reader's choice.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(match report.is_clean {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

async fn check_pool(endpoint: Endpoint) -> Result<Report, PoolError> {
    let mut cx = OpContext::new(endpoint);
    let geometry = open(&mut cx).await?;
    let census = check::take(&mut cx, &geometry).await?;
    let account = account(&mut cx, &geometry, &census.blocks).await?;
    Ok(Report::new(&geometry, census, account))
}

/// What is printed; the names are those of the JSON.
#[derive(Debug, Serialize)]
struct Report {
    kind: &'static str,
    is_clean: bool,
    nodes: usize,
    node_bytes: u64,
    chunk_bytes: u64,
    chunks_free: u64,
    chunks_used: u64,
    chunks_root: u64,
    blocks_reachable: u64,
    blocks_free: u64,
    blocks_held: u64,
    blocks_unrecovered: u64,
    bytes_reachable: u64,
    clients_live: u64,
    clients_dead: u64,
    slots: u64,
    buckets: u64,
    items: u64,
    items_expiring: u64,
    key_bytes: u64,
    value_bytes: u64,
    faults: Vec<String>,
}

impl Report {
    fn new(geometry: &[Geometry], census: Census, account: Account) -> Self {
        let faults = [census.faults, account.faults].concat();
        Self {
            kind: "fsck",
            is_clean: faults.is_empty(),
            nodes: geometry.iter().filter(|node| !node.is_absent()).count(),
            node_bytes: geometry.iter().map(|node| node.node_bytes).sum(),
            chunk_bytes: geometry[0].chunk_bytes,
            chunks_free: account.chunks_free,
            chunks_used: account.chunks_used,
            chunks_root: account.chunks_root,
            blocks_reachable: account.blocks_reachable,
            blocks_free: account.blocks_free,
            blocks_held: account.blocks_held,
            blocks_unrecovered: account.blocks_unrecovered,
            bytes_reachable: account.bytes_reachable,
            clients_live: account.clients_live,
            clients_dead: account.clients_dead,
            slots: census.slots,
            buckets: census.buckets,
            items: census.items,
            items_expiring: census.expiring,
            key_bytes: census.key_bytes,
            value_bytes: census.value_bytes,
            faults,
        }
    }

    fn text(&self) -> String {
        let mut lines = vec![
            format!("nodes    {}, {}", self.nodes, show_size(self.node_bytes)),
            format!(
                "chunks   {} of {}: {} with blocks, {} of the index, {} free",
                self.chunks_used + self.chunks_root + self.chunks_free,
                show_size(self.chunk_bytes),
                self.chunks_used,
                self.chunks_root,
                self.chunks_free
            ),
            format!(
                "blocks   {} linked ({}), {} free, {} held by clients, {} of dead clients",
                self.blocks_reachable,
                show_size(self.bytes_reachable),
                self.blocks_free,
                self.blocks_held,
                self.blocks_unrecovered
            ),
            format!(
                "clients  {} in the table, {} dead",
                self.clients_live, self.clients_dead
            ),
            format!(
                "items    {} ({} expiring): keys {}, values {}; {} slots, {} shared",
                self.items,
                self.items_expiring,
                show_size(self.key_bytes),
                show_size(self.value_bytes),
                self.slots,
                self.buckets
            ),
        ];
        lines.extend(self.faults.iter().map(|fault| format!("FAULT    {fault}")));
        if self.is_clean {
            lines.push("clean".to_owned());
        } else {
            let count = self.faults.len();
            lines.push(format!("{count} fault{}", if count == 1 { "" } else { "s" }));
            if self.clients_live > 0 {
                lines.push(
                    "clients are in the table: what they change during the check can look like a fault".to_owned(),
                );
            }
        }
        lines.join("\n") + "\n"
    }
}
