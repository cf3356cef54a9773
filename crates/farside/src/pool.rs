//! `farside pool`: the memory nodes of a pool, while it is used.
//!
//! What each command has to do is in `farside_pool::grow` and `drain`, and in `farside_kv::drain`; here they are given words.

use std::io::Write;
use std::path::{Path, absolute};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use farside_cli::scalar::{self, show_size};
use farside_cli::{Failure, chain};
use farside_fabric::host::on_this_thread;
use farside_fabric::shm::{Segment, SegmentOptions};
use farside_fabric::{Endpoint, NodeId, OpContext};
use farside_gateway::{MemberReport, mirrors};
use farside_index::IndexError;
use farside_kv::{DrainStep, Drained, IndexKind, KvError, PoolSpec, Store, StoreConfig, stack};
use farside_pool::{
    GrowStep, Member, NodeState, Pool, PoolError, PoolOptions, Usage, identity, lagging_clients, members_of, open,
    usage_of_node,
};
use serde::Serialize;

use crate::gateway::PoolArgs;
use crate::group;

/// How long running clients are waited for.
const PATIENCE_NS: u64 = 15_000_000_000;
/// How often progress is printed.
const PROGRESS_NS: u64 = 1_000_000_000;

#[derive(Debug, Args)]
pub(crate) struct PoolCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the memory nodes of a pool: where they are, how full, and whether all clients know them
    Status {
        #[command(flatten)]
        pool: PoolArgs,
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Add a memory node, which running clients begin to use; may be repeated if it was stopped
    AddNode {
        #[command(flatten)]
        pool: PoolArgs,
        /// Make the segment of this size, if there is no file at PATH yet
        #[arg(long, value_name = "SIZE", value_parser = scalar::size)]
        memory: Option<u64>,
        /// Where the node is, for every client: shm:PATH, tcp:HOST:PORT, or both, separated by a comma
        #[arg(value_name = "ADDRESS", value_parser = place)]
        address: String,
    },
    /// Make a node that was started with --backup-of or --standby a backup of a mirrored one, and wait until it has caught up
    AddBackup(group::NewBackup),
    /// Put a new node into the place of a member of a mirrored node, which is told to stop being one
    Replace(group::Replacement),
    /// Make a backup the primary of its mirrored node
    Promote(group::OfBackup),
    /// Let a mirrored node go on without one of its backups
    RemoveBackup(group::OfBackup),
    /// Move everything off a memory node and remove it, while clients work; may be repeated if it was stopped
    Drain {
        #[command(flatten)]
        pool: PoolArgs,
        /// The number of the node, as `farside pool status` shows it
        #[arg(value_name = "NODE", value_parser = clap::value_parser!(u16).range(0..512))]
        node: u16,
    },
}

/// The address of a node as other processes understand it.
fn place(text: &str) -> Result<String, String> {
    let wrong = || format!("`{text}` is no place of a node that can be added: write shm:PATH or tcp:HOST:PORT");
    let spec: PoolSpec = text.parse().map_err(|_| wrong())?;
    if spec.has_rdma() {
        return Err(wrong());
    }
    let places = text.split(',').map(|place| match place.trim().strip_prefix("shm:") {
        Some(path) => absolute(path).map_or_else(|_| wrong(), |path| format!("shm:{}", path.display())),
        None => place.trim().to_owned(),
    });
    Ok(places.collect::<Vec<_>>().join(","))
}

pub(crate) fn run(command: PoolCommand) -> Result<ExitCode, Failure> {
    match command.action {
        Action::Status { pool, json } => status(&pool, json),
        Action::AddNode { pool, memory, address } => add_node(&pool, memory, &address),
        Action::AddBackup(args) => group::add_backup(&args),
        Action::Replace(args) => group::replace(&args),
        Action::Promote(args) => group::promote(&args),
        Action::RemoveBackup(args) => group::remove_backup(&args),
        Action::Drain { pool, node } => drain(&pool, NodeId::new(node)),
    }
}

/// Wrong addresses and nodes are for the user to put right; the rest failed under way.
fn failure(error: &KvError) -> Failure {
    let is_usage = matches!(
        error,
        KvError::Index(IndexError::Pool(
            PoolError::Foreign { .. }
                | PoolError::Membership { .. }
                | PoolError::TooSmall { .. }
                | PoolError::Unreachable(_)
        ))
    );
    match is_usage {
        true => Failure::usage(chain(error)),
        false => Failure::runtime(chain(error)),
    }
}

fn with_endpoint<T>(pool: &PoolArgs, task: impl AsyncFnOnce(Endpoint) -> Result<T, KvError>) -> Result<T, Failure> {
    let (nodes, secret) = pool.locate()?;
    let done = stack::run(nodes, secret, task).map_err(|error| Failure::usage(chain(&error)))?;
    done.map_err(|error| failure(&error))
}

fn status(pool: &PoolArgs, is_json: bool) -> Result<ExitCode, Failure> {
    let named: Vec<String> = pool.spec()?.to_string().split(',').map(str::to_owned).collect();
    let groups = groups(pool, &named)?;
    let looked = with_endpoint(pool, async |endpoint| Box::pin(look(endpoint, &named)).await);
    let mut report = match looked {
        Ok(report) => report,
        Err(failure) => {
            // Without a primary nothing can be read; who is in the group says why.
            for members in groups.iter().flatten().filter(|_| !is_json) {
                let _ = std::io::stdout().write_all(group::text(members).as_bytes());
            }
            return Err(failure);
        }
    };
    for (line, members) in report.nodes.iter_mut().zip(groups) {
        line.members = members;
    }
    let text = match is_json {
        true => serde_json::to_string(&report).map_err(Failure::runtime)? + "\n",
        false => report.text(),
    };
    // A closed pipe is the reader's choice.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// What is printed; the names are those of the JSON. A node is an object, so that a mirrored one may say more.
#[derive(Debug, Serialize)]
struct Report {
    kind: &'static str,
    pool: String,
    epoch: u64,
    deaths: u64,
    clients: Clients,
    nodes: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Clients {
    live: u64,
    dead: u64,
    max: u64,
    lagging: Vec<u16>,
}

#[derive(Debug, Serialize)]
struct Line {
    node: usize,
    state: &'static str,
    address: String,
    bytes: u64,
    bytes_used: u64,
    bytes_free: u64,
    /// Of a mirrored node.
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<Vec<MemberReport>>,
}

/// The members of those nodes that are mirrored.
fn groups(pool: &PoolArgs, named: &[String]) -> Result<Vec<Option<Vec<MemberReport>>>, Failure> {
    let secret = pool.secret()?;
    let cluster = pool.cluster()?;
    let asked = on_this_thread(async {
        let mut groups = Vec::new();
        for (index, node) in named.iter().enumerate() {
            let waiting = cluster.iter().filter_map(|cluster| cluster.nodes.get(index));
            let waiting = waiting
                .flat_map(|node| &node.members)
                .map(|member| member.address.clone());
            let report = match node.strip_prefix("tcp:") {
                Some(names) => {
                    let names = names.split('+').map(str::to_owned).chain(waiting);
                    mirrors::ask(names, secret.as_ref(), group::ATTEMPTS).await
                }
                None => None,
            };
            groups.push(report.map(|report| report.members));
        }
        groups
    });
    asked.map_err(Failure::runtime)
}

async fn look(endpoint: Endpoint, named: &[String]) -> Result<Report, KvError> {
    let mut cx = OpContext::new(endpoint);
    let geometry = open(&mut cx).await?;
    let members = members_of(&mut cx, &geometry[0]).await?;
    let mut nodes = Vec::new();
    let mut all = Usage::default();
    for member in &members {
        let geometry = geometry.get(member.node.index());
        let usage = match geometry.filter(|geometry| !geometry.is_absent()) {
            Some(geometry) => usage_of_node(&mut cx, geometry).await?,
            None => Usage::default(),
        };
        nodes.push(line(member, &usage, named));
        all.add(&usage);
    }
    let lagging = lagging_clients(&mut cx, &geometry[0]).await?;
    let known = all.members.unwrap_or_default();
    Ok(Report {
        kind: "pool",
        pool: format!("{:016x}", geometry[0].pool_id),
        epoch: known.epoch,
        deaths: known.deaths,
        clients: Clients {
            live: known.clients_live,
            dead: known.clients_dead,
            max: known.clients_max,
            lagging,
        },
        nodes,
    })
}

fn line(member: &Member, usage: &Usage, named: &[String]) -> Line {
    let node = member.node.index();
    let is_there = member.state != NodeState::Removed;
    let named = named.get(node).filter(|_| is_there);
    let address = member.place.as_ref().or(named).cloned();
    Line {
        node,
        state: member.state.name(),
        address: address.unwrap_or_default(),
        bytes: usage.bytes,
        bytes_used: usage.bytes - usage.bytes_tables - usage.bytes_free,
        bytes_free: usage.bytes_free,
        members: None,
    }
}

impl Report {
    fn text(&self) -> String {
        let mut rows = vec![["node", "state", "memory", "used", "free", "address"].map(str::to_owned)];
        rows.extend(self.nodes.iter().map(|line| {
            let size = |bytes| match line.bytes {
                0 => "-".to_owned(),
                _ => show_size(bytes),
            };
            [
                line.node.to_string(),
                line.state.to_owned(),
                size(line.bytes),
                size(line.bytes_used),
                size(line.bytes_free),
                line.address.clone(),
            ]
        }));
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..5).map(width).collect();
        let mut lines: Vec<String> = rows
            .iter()
            .map(|row| {
                let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}  "));
                (cells.collect::<String>() + &row[5]).trim_end().to_owned()
            })
            .collect();
        for line in &self.nodes {
            if let Some(members) = &line.members {
                lines.push(format!("node {} is mirrored:", line.node));
                lines.extend(group::text(members).lines().map(str::to_owned));
            }
        }
        lines.push(format!(
            "clients: {} live, {} dead, {} at most; epoch {}",
            self.clients.live, self.clients.dead, self.clients.max, self.epoch
        ));
        if !self.clients.lagging.is_empty() {
            lines.push(format!("not up to date: {}", clients_text(&self.clients.lagging)));
        }
        lines.join("\n") + "\n"
    }
}

fn clients_text(clients: &[u16]) -> String {
    let numbers: Vec<String> = clients.iter().map(u16::to_string).collect();
    let word = if clients.len() == 1 { "client" } else { "clients" };
    format!("{word} {}", numbers.join(", "))
}

/// Prints what a command has come to: lines on standard error, not too many.
struct Progress {
    endpoint: Endpoint,
    printed_ns: u64,
    waited_for: Vec<u16>,
}

impl Progress {
    fn new(endpoint: Endpoint) -> Self {
        Self {
            printed_ns: endpoint.now_ns(),
            waited_for: Vec::new(),
            endpoint,
        }
    }

    fn is_due(&mut self) -> bool {
        let now = self.endpoint.now_ns();
        let is_due = now - self.printed_ns >= PROGRESS_NS;
        if is_due {
            self.printed_ns = now;
        }
        is_due
    }

    fn wait_for(&mut self, clients: &[u16]) {
        if self.waited_for != clients && self.is_due() {
            clients.clone_into(&mut self.waited_for);
            eprintln!("waiting for {}", clients_text(clients));
        }
    }

    fn grow(&mut self, step: GrowStep) {
        match step {
            GrowStep::Numbered(node) => eprintln!("{node}: it has this number"),
            GrowStep::Formatted => eprintln!("its memory is ready; clients connect"),
            GrowStep::Waiting(clients) => self.wait_for(&clients),
            GrowStep::Active => {}
        }
    }

    fn drain(&mut self, step: DrainStep) {
        match step {
            DrainStep::Waiting(clients) => self.wait_for(&clients),
            DrainStep::Moving(moved, draining) if self.is_due() => {
                let left = show_size(draining.bytes_used);
                eprintln!("{}; {left} of chunks left", moved_text(moved));
            }
            DrainStep::Moving(..) => {}
        }
    }
}

fn moved_text(moved: Drained) -> String {
    format!("{} items and {} parts of the index moved", moved.items, moved.parts)
}

fn add_node(pool: &PoolArgs, memory: Option<u64>, address: &str) -> Result<ExitCode, Failure> {
    if let Some(bytes) = memory {
        make_segment(address, bytes)?;
    }
    let found = look_at(pool, address)?;
    let node = with_endpoint(pool, async |endpoint| Box::pin(add(endpoint, address, found)).await)?;
    println!("{node} is active: {address}");
    Ok(ExitCode::SUCCESS)
}

/// Makes the segment of a node, unless there is one.
fn make_segment(address: &str, bytes: u64) -> Result<(), Failure> {
    let path = address.split(',').find_map(|place| place.strip_prefix("shm:"));
    let path = path.ok_or_else(|| {
        Failure::usage("--memory makes a segment file, and the address names none: write shm:PATH, or leave it out")
    })?;
    let made = Segment::open_or_create(Path::new(path), SegmentOptions::with_memory(bytes));
    let segment = made.map_err(|error| Failure::usage(chain(&error)))?;
    match segment.memory_bytes() {
        found if found == bytes => Ok(()),
        found => Err(Failure::usage(format!(
            "{path} has {} of memory, not {}: leave --memory out to add it as it is",
            show_size(found),
            show_size(bytes)
        ))),
    }
}

/// What the memory at an address says that it is, through a connection of its own.
fn look_at(pool: &PoolArgs, address: &str) -> Result<Option<(u64, u16)>, Failure> {
    let (_, secret) = pool.locate()?;
    for place in address.split(',') {
        let nodes = place.parse::<PoolSpec>().and_then(|spec| spec.locate());
        // Why it cannot be reached is said when it is to be added.
        let Ok(nodes) = nodes else { continue };
        let looked = stack::run(nodes, secret.clone(), async |endpoint| {
            identity(&mut OpContext::new(endpoint)).await
        });
        if let Ok(Ok(found)) = looked {
            return Ok(found);
        }
    }
    Ok(None)
}

async fn add(endpoint: Endpoint, address: &str, identity: Option<(u64, u16)>) -> Result<NodeId, KvError> {
    let mut cx = OpContext::new(endpoint.clone());
    let geometry = open(&mut cx).await?;
    let mut progress = Progress::new(endpoint.clone());
    let mut step = |step| progress.grow(step);
    if IndexKind::of_pool(&mut cx).await?.is_none() {
        // A store would make one.
        let pool = Pool::join(&mut cx, geometry, PoolOptions::default()).await?;
        let added = pool.add_node(&mut cx, address, identity, PATIENCE_NS, &mut step).await;
        let left = pool.leave().await;
        let node = added?;
        return Ok(left.map(|()| node)?);
    }
    let store = Store::open(endpoint.clone(), config(&endpoint)).await?;
    let added = store
        .pool()
        .add_node(&mut cx, address, identity, PATIENCE_NS, &mut step)
        .await;
    let left = store.close().await;
    let node = added?;
    left.map(|()| node)
}

/// Of a store that is there.
fn config(endpoint: &Endpoint) -> StoreConfig {
    StoreConfig {
        timeout_ns: stack::timeout_ns(endpoint),
        ..StoreConfig::default()
    }
}

fn drain(pool: &PoolArgs, node: NodeId) -> Result<ExitCode, Failure> {
    let moved = with_endpoint(pool, async |endpoint| Box::pin(empty(endpoint, node)).await)?;
    println!("{node} is removed: {}", moved_text(moved));
    Ok(ExitCode::SUCCESS)
}

async fn empty(endpoint: Endpoint, node: NodeId) -> Result<Drained, KvError> {
    // A pool that nobody has made is not made here.
    open(&mut OpContext::new(endpoint.clone())).await?;
    let mut progress = Progress::new(endpoint.clone());
    let config = config(&endpoint);
    let store = Store::open(endpoint, config).await?;
    let drained = store.drain(node, PATIENCE_NS, &mut |step| progress.drain(step)).await;
    let left = store.close().await;
    let moved = drained?;
    left?;
    Ok(moved)
}
