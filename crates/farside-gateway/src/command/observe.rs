//! What was slow: SLOWLOG, and LATENCY, which keeps nothing.
//!
//! Only commands whose duration depends on what is stored, or on how many keys they name, are timed: the
//! others (GET, SET, INCR and what else Redis calls fast) would be slowed down by two looks at the clock.

use farside_value::integer;

use super::{Call, Handled, excerpt, help};
use crate::live::lock;
use crate::slow_log::{self, Entry};

/// Notes a command that took longer than the limit.
pub(super) fn note(call: &Call<'_>, took_ns: u64) {
    let live = &call.context.shared.live;
    let limit_us = live.settings.slow_us.load(core::sync::atomic::Ordering::Relaxed);
    let took_us = took_ns / 1000;
    if u64::try_from(limit_us).is_ok_and(|limit_us| took_us >= limit_us) {
        let entry = Entry {
            id: 0,
            unix_s: call.context.store.endpoint().unix_ms() / 1000,
            took_us,
            arguments: slow_log::excerpt(call.request),
            address: call.client.card.address.clone(),
            name: call.client.card.labels().name,
        };
        lock(&live.slow_log).note(entry);
    }
}

pub(crate) async fn slowlog(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let log = &call.context.shared.live.slow_log;
    if request.arg_is(1, "get") && request.len() <= 3 {
        let count = match request.len() {
            2 => 10,
            _ => integer::parse(request.arg(2))
                .filter(|&count| count >= -1)
                .ok_or("ERR count should be greater than or equal to -1")?,
        };
        // -1: all of them.
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let entries: Vec<Entry> = lock(log).entries().take(count).cloned().collect();
        call.reply.array(entries.len());
        for entry in entries {
            call.reply.array(6);
            for number in [entry.id, entry.unix_s, entry.took_us] {
                call.reply.count(number);
            }
            call.reply.array(entry.arguments.len());
            entry.arguments.iter().for_each(|argument| call.reply.bulk(argument));
            call.reply.bulk(entry.address.as_bytes());
            call.reply.bulk(&entry.name);
        }
    } else if request.arg_is(1, "len") {
        call.reply.count(lock(log).entries().len() as u64);
    } else if request.arg_is(1, "reset") {
        lock(log).clear();
        call.reply.ok();
    } else if request.arg_is(1, "get") {
        let name = excerpt(request.arg(1));
        return Err(
            format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try SLOWLOG HELP.").into(),
        );
    } else {
        help(
            call.reply,
            "SLOWLOG",
            &[
                "GET [<count>]",
                "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
                "    Entries are made of:",
                "    id, timestamp, time in microseconds, arguments array, client IP and port,",
                "    client name",
                "LEN",
                "    Return the length of the slowlog.",
                "RESET",
                "    Reset the slowlog.",
            ],
        );
    }
    Ok(())
}

/// No event is ever sampled, and it says so, as Redis does while its threshold is 0.
pub(crate) async fn latency(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    if request.arg_is(1, "latest") || request.arg_is(1, "history") {
        call.reply.array(0);
    } else if request.arg_is(1, "reset") {
        call.reply.integer(0);
    } else if request.arg_is(1, "histogram") {
        call.reply.map(0);
    } else if request.arg_is(1, "doctor") {
        call.reply
            .text("Latency events are not sampled. SLOWLOG has the commands that took long.");
    } else {
        help(
            call.reply,
            "LATENCY",
            &[
                "DOCTOR, HISTOGRAM, HISTORY <event>, LATEST",
                "    Return nothing: latency events are not sampled.",
                "RESET [<event> ...]",
                "    Return 0: there is nothing to reset.",
            ],
        );
    }
    Ok(())
}
