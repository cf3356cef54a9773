//! INFO: what a monitor wants to know. Every number is measured; what does not exist is not named.

use core::fmt::Write;

use farside_fabric::{Endpoint, OpContext};
use farside_kv::Store;

use super::{Call, Handled, Refusal};
use crate::REDIS_VERSION;
use crate::context::Census;

/// How long the number of keys is believed: counting them walks the index.
const CENSUS_MS_MAX: u64 = 1000;

const SECTIONS: [&str; 5] = ["server", "clients", "memory", "stats", "keyspace"];

pub(crate) async fn info<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let mut text = String::new();
    for section in SECTIONS {
        let is_named = call.request.args(1).any(|argument| {
            [section, "default", "all", "everything"]
                .iter()
                .any(|name| argument.eq_ignore_ascii_case(name.as_bytes()))
        });
        if call.request.len() > 1 && !is_named {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        match section {
            "server" => server(call, &mut text),
            "clients" => clients(call, &mut text),
            "memory" => memory(call, &mut text).await?,
            "stats" => stats(call, &mut text),
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

fn server<E: Endpoint>(call: &Call<'_, E>, text: &mut String) {
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
        ],
    );
}

fn clients<E: Endpoint>(call: &Call<'_, E>, text: &mut String) {
    let shared = &call.context.shared;
    section(
        text,
        "Clients",
        &[
            ("connected_clients", &shared.total(|worker| worker.clients.get())),
            ("maxclients", &shared.clients_max),
        ],
    );
}

/// Bytes of the memory nodes.
pub(crate) fn memory_bytes<E: Endpoint>(store: &Store<E>) -> u64 {
    store.pool().geometry().iter().map(|geometry| geometry.node_bytes).sum()
}

async fn memory<E: Endpoint>(call: &Call<'_, E>, text: &mut String) -> Result<(), Refusal> {
    let store = &call.context.store;
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
    let most = memory_bytes(store);
    section(
        text,
        "Memory",
        &[
            ("used_memory", &used),
            (
                "used_memory_human",
                &format_args!("{:.2}M", used as f64 / f64::from(1 << 20)),
            ),
            ("maxmemory", &most),
            (
                "maxmemory_human",
                &format_args!("{:.2}M", most as f64 / f64::from(1 << 20)),
            ),
            ("maxmemory_policy", &"noeviction"),
        ],
    );
    Ok(())
}

fn stats<E: Endpoint>(call: &Call<'_, E>, text: &mut String) {
    let shared = &call.context.shared;
    section(
        text,
        "Stats",
        &[
            (
                "total_connections_received",
                &shared.total(|worker| worker.connections.get()),
            ),
            (
                "total_commands_processed",
                &shared.total(|worker| worker.commands.get()),
            ),
            ("total_error_replies", &shared.total(|worker| worker.errors.get())),
            ("total_net_input_bytes", &shared.total(|worker| worker.bytes_in.get())),
            ("total_net_output_bytes", &shared.total(|worker| worker.bytes_out.get())),
            ("keyspace_hits", &shared.total(|worker| worker.hits.get())),
            ("keyspace_misses", &shared.total(|worker| worker.misses.get())),
        ],
    );
}

async fn keyspace<E: Endpoint>(call: &mut Call<'_, E>, text: &mut String) -> Result<(), Refusal> {
    let now_ms = call.context.store.endpoint().unix_ms();
    let known = *call
        .context
        .shared
        .census
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let keys = if now_ms.saturating_sub(known.taken_ms) < CENSUS_MS_MAX {
        known.keys
    } else {
        let keys = call.session.count().await?;
        let mut census = call
            .context
            .shared
            .census
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *census = Census { taken_ms: now_ms, keys };
        keys
    };
    match keys {
        0 => section(text, "Keyspace", &[]),
        keys => section(
            text,
            "Keyspace",
            &[("db0", &format_args!("keys={keys},expires=0,avg_ttl=0"))],
        ),
    }
    Ok(())
}
