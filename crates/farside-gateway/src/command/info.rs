//! INFO: what a monitor wants to know. Every number is measured; what does not exist is not named.

use core::fmt::Write;

use farside_fabric::OpContext;
use farside_fabric::host::HostClock;
use farside_kv::Store;

use super::table::TABLE;
use super::{Call, Handled, Refusal};
use crate::REDIS_VERSION;
use crate::acl::log::Reason;
use crate::context::Census;
use crate::live::lock;
use crate::mirrors::MirrorReport;
use crate::observer::look_at_mirrors;

/// How long the number of keys is believed: counting them walks the index.
const CENSUS_MS_MAX: u64 = 1000;

const SECTIONS: [&str; 11] = [
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
    "commandstats",
    "errorstats",
    "cluster",
    "keyspace",
];
/// What is shown only to those who ask for it, or for everything.
const EXTRA: &str = "commandstats";

pub(crate) async fn info(call: &mut Call<'_>) -> Handled {
    let mut text = String::new();
    for section in SECTIONS {
        let is_asked_for = |names: &[&str]| {
            call.request.args(1).any(|argument| {
                let mut names = names.iter();
                names.any(|name| argument.eq_ignore_ascii_case(name.as_bytes()))
            })
        };
        let is_default = section != EXTRA && (call.request.len() == 1 || is_asked_for(&["default"]));
        if !is_default && !is_asked_for(&[section, "all", "everything"]) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        match section {
            "server" => server(call, &mut text),
            "clients" => clients(call, &mut text),
            "memory" => memory(call, &mut text).await?,
            "persistence" => persistence(&mut text),
            "stats" => stats(call, &mut text),
            "replication" => replication(call, &mut text).await,
            "cpu" => cpu(&mut text),
            "commandstats" => commands(call, &mut text),
            "errorstats" => errors(call, &mut text),
            "cluster" => cluster(&mut text),
            _ => keyspace(call, &mut text).await?,
        }
    }
    call.reply.text(&text);
    Ok(())
}

/// Adds a headline and lines of `name:value`.
fn section(text: &mut String, headline: &str, lines: &[(&str, &dyn core::fmt::Display)]) {
    let _ = write!(text, "# {headline}\r\n");
    for (name, value) in lines {
        // Writing to a string cannot fail.
        let _ = write!(text, "{name}:{value}\r\n");
    }
}

/// Clients and exporters ask for it before they ask for slots.
fn cluster(text: &mut String) {
    section(text, "Cluster", &[("cluster_enabled", &0)]);
}

fn server(call: &Call<'_>, text: &mut String) {
    let shared = &call.context.shared;
    let uptime_s = call
        .context
        .store
        .endpoint()
        .unix_ms()
        .saturating_sub(shared.started_ms)
        / 1000;
    section(
        text,
        "Server",
        &[
            ("redis_version", &REDIS_VERSION),
            ("farside_version", &env!("CARGO_PKG_VERSION")),
            ("redis_mode", &"standalone"),
            ("os", &std::env::consts::OS),
            ("arch_bits", &usize::BITS),
            ("process_id", &std::process::id()),
            (
                "run_id",
                &format_args!("{0:016x}{0:016x}{1:08x}", shared.run, shared.run as u32),
            ),
            ("tcp_port", &shared.address.port()),
            ("uptime_in_seconds", &uptime_s),
            ("uptime_in_days", &(uptime_s / 86400)),
            ("io_threads_active", &shared.statistics.len()),
            ("farside_index", &call.context.store.index().kind().name()),
        ],
    );
}

fn clients(call: &Call<'_>, text: &mut String) {
    let shared = &call.context.shared;
    section(
        text,
        "Clients",
        &[
            ("connected_clients", &shared.total(|worker| worker.clients.get())),
            ("maxclients", &shared.live.settings.clients_max()),
            // What waits: no command does.
            ("blocked_clients", &0),
        ],
    );
}

/// Bytes of the memory nodes.
pub(crate) fn memory_bytes(store: &Store) -> u64 {
    store.pool().geometry().iter().map(|geometry| geometry.node_bytes).sum()
}

/// Bytes that the pool uses itself or that a client of it has taken, used or not.
pub(crate) async fn taken_bytes(store: &Store) -> Result<u64, Refusal> {
    let mut cx = OpContext::new(store.endpoint().clone());
    let mut used = 0;
    for geometry in store.pool().geometry() {
        // What stands before the chunks is in use by the pool itself.
        used += geometry.chunks_at;
        for index in 0..geometry.chunk_count {
            let word = cx.read_word(geometry.chunk_word(index)).await;
            let word = word.map_err(farside_kv::KvError::from)?;
            used += if word == 0 { 0 } else { geometry.chunk_bytes };
        }
    }
    Ok(used)
}

async fn memory(call: &Call<'_>, text: &mut String) -> Result<(), Refusal> {
    let store = &call.context.store;
    let (used, taken) = (store.held().await?, taken_bytes(store).await?);
    let most = memory_bytes(store);
    let asked = store.quota().bytes_max().unwrap_or(most);
    section(
        text,
        "Memory",
        &[
            ("used_memory", &used),
            ("used_memory_human", &Human(used)),
            ("used_memory_rss", &taken),
            ("used_memory_rss_human", &Human(taken)),
            ("total_system_memory", &most),
            ("total_system_memory_human", &Human(most)),
            ("maxmemory", &asked),
            ("maxmemory_human", &Human(asked)),
            ("maxmemory_policy", &store.quota().policy().name()),
            // What holds: less, if the policy keeps some of the memory free.
            ("farside_memory_limit", &store.bytes_max().unwrap_or(most).min(most)),
        ],
    );
    Ok(())
}

/// Bytes as Redis shows them to people.
struct Human(u64);

impl core::fmt::Display for Human {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let units = [("G", 1_u64 << 30), ("M", 1 << 20), ("K", 1 << 10)];
        match units.into_iter().find(|&(_, factor)| self.0 >= factor) {
            Some((unit, factor)) => write!(f, "{:.2}{unit}", self.0 as f64 / factor as f64),
            None => write!(f, "{}B", self.0),
        }
    }
}

/// Nothing is loaded or saved: the memory of the nodes is the store.
fn persistence(text: &mut String) {
    let numbers: &[(&str, &dyn core::fmt::Display)] = &[
        ("loading", &0),
        ("rdb_bgsave_in_progress", &0),
        ("aof_enabled", &0),
        ("aof_rewrite_in_progress", &0),
    ];
    section(text, "Persistence", numbers);
}

fn stats(call: &Call<'_>, text: &mut String) {
    let shared = &call.context.shared;
    let before = *lock(&shared.live.before_reset);
    let totals = shared.totals().since(before);
    let refused = lock(&shared.users.log).counts();
    section(
        text,
        "Stats",
        &[
            ("total_connections_received", &totals.connections),
            ("total_commands_processed", &totals.commands),
            ("total_error_replies", &totals.errors),
            ("total_net_input_bytes", &totals.bytes_in),
            ("total_net_output_bytes", &totals.bytes_out),
            ("expired_keys", &totals.expired),
            ("evicted_keys", &totals.evicted),
            ("keyspace_hits", &totals.hits),
            ("keyspace_misses", &totals.misses),
            ("acl_access_denied_auth", &refused[Reason::Auth as usize]),
            ("acl_access_denied_cmd", &refused[Reason::Command as usize]),
            ("acl_access_denied_key", &refused[Reason::Key as usize]),
            // There are no channels.
            ("acl_access_denied_channel", &0),
        ],
    );
}

/// The gateway itself has no replicas that clients could read from. Memory nodes may be mirrored: a line for each.
async fn replication(call: &Call<'_>, text: &mut String) {
    let shared = &call.context.shared;
    look_at_mirrors(call.context).await;
    let mirrors = shared.survey.mirrors(HostClock.now_ns());
    let run = shared.run;
    section(
        text,
        "Replication",
        &[
            ("role", &"master"),
            ("connected_slaves", &0),
            ("master_replid", &format_args!("{run:016x}{run:016x}{:08x}", run as u32)),
            ("master_repl_offset", &0),
            ("farside_mirrored_nodes", &mirrors.iter().flatten().count()),
        ],
    );
    for (node, mirror) in mirrors.iter().enumerate() {
        if let Some(mirror) = mirror {
            mirrored(node, mirror, text);
        }
    }
}

/// A line about a mirrored node, and one for each of its members.
fn mirrored(node: usize, mirror: &MirrorReport, text: &mut String) {
    let role = if mirror.has_primary { "primary" } else { "none" };
    let (entries, bytes) = mirror.lag();
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "node{node}:role={role},address={},epoch={},backups={},offset={},lag_entries={entries},lag_bytes={bytes}\r\n",
        mirror.primary,
        mirror.epoch,
        mirror.count("backup"),
        mirror.committed,
    );
    for (number, member) in mirror.members.iter().enumerate() {
        let _ = write!(
            text,
            "node{node}_member{number}:role={},address={},epoch={},lag_entries={},lag_bytes={}\r\n",
            member.role, member.address, member.epoch, member.lag_entries, member.lag_bytes
        );
    }
}

/// Seconds that this process has computed; nothing if the system does not say.
fn cpu(text: &mut String) {
    let ticks_per_second = procfs::ticks_per_second() as f64;
    let times = procfs::process::Process::myself().and_then(|process| process.stat());
    let times = times.map(|stat| {
        (
            stat.stime as f64 / ticks_per_second,
            stat.utime as f64 / ticks_per_second,
        )
    });
    match times {
        Ok((system_s, user_s)) => section(
            text,
            "CPU",
            &[
                ("used_cpu_sys", &format_args!("{system_s:.6}")),
                ("used_cpu_user", &format_args!("{user_s:.6}")),
            ],
        ),
        Err(_) => section(text, "CPU", &[]),
    }
}

/// How often each command was executed. How long it took is known by group of commands: see `FARSIDE STATS`.
fn commands(call: &Call<'_>, text: &mut String) {
    section(text, "Commandstats", &[]);
    let shared = &call.context.shared;
    let before = lock(&shared.live.calls_before_reset).clone();
    for (index, calls) in shared.calls().into_iter().enumerate() {
        let calls = calls.saturating_sub(before.get(index).copied().unwrap_or(0));
        if calls > 0 {
            // Writing to a string cannot fail.
            let _ = write!(text, "cmdstat_{}:calls={calls}\r\n", TABLE[index].name);
        }
    }
}

fn errors(call: &Call<'_>, text: &mut String) {
    section(text, "Errorstats", &[]);
    for (kind, count) in call.context.shared.live.errors() {
        // Writing to a string cannot fail.
        let _ = write!(text, "errorstat_{kind}:count={count}\r\n");
    }
}

/// The number of keys, as counted within the last second.
pub(crate) async fn key_count(call: &mut Call<'_>) -> Result<u64, Refusal> {
    let now_ms = call.context.store.endpoint().unix_ms();
    let known = *lock(&call.context.shared.census);
    if now_ms.saturating_sub(known.taken_ms) < CENSUS_MS_MAX {
        return Ok(known.keys);
    }
    let keys = call.keys.session()?.count().await?;
    *lock(&call.context.shared.census) = Census { taken_ms: now_ms, keys };
    Ok(keys)
}

async fn keyspace(call: &mut Call<'_>, text: &mut String) -> Result<(), Refusal> {
    match key_count(call).await? {
        0 => section(text, "Keyspace", &[]),
        keys => section(
            text,
            "Keyspace",
            &[("db0", &format_args!("keys={keys},expires=0,avg_ttl=0"))],
        ),
    }
    Ok(())
}
