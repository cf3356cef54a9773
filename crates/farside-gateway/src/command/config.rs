//! CONFIG: the settings, of which some can be changed while the gateway runs.
//!
//! The others are options of the program. What is changed here holds for this gateway until it ends, and longer if CONFIG
//! REWRITE writes it to the file that the gateway was started with.

use core::sync::atomic::Ordering;

use farside_kv::{EvictionPolicy, SAMPLES_MAX};
use farside_value::integer;

use super::{Call, Handled, SYNTAX, help};
use crate::glob::{self, Case};
use crate::guard::BULK_BYTES_MAX;
use crate::live::lock;

/// The most connections that CONFIG SET allows, as in Redis.
const CLIENTS_MAX: i64 = u32::MAX as i64;
/// The longest time that a client may be idle, likewise.
const TIMEOUT_S_MAX: i64 = i32::MAX as i64;

pub(crate) async fn config(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    if request.arg_is(1, "get") {
        get(call);
    } else if request.arg_is(1, "set") {
        set(call)?;
    } else if request.arg_is(1, "resetstat") {
        let shared = &call.context.shared;
        shared.live.reset_counts(shared.totals(), shared.calls());
        call.reply.ok();
    } else if request.arg_is(1, "rewrite") {
        rewrite(call)?;
    } else {
        help(
            call.reply,
            "CONFIG",
            &[
                "GET <pattern> [<pattern> ...]",
                "    Return parameters matching the glob-like <pattern> and their values.",
                "SET <directive> <value> [<directive> <value> ...]",
                "    Set the configuration <directive> to <value>.",
                "RESETSTAT",
                "    Reset statistics reported by the INFO command.",
                "REWRITE",
                "    Write what CONFIG SET has changed to the file of settings that the gateway was started with.",
            ],
        );
    }
    Ok(())
}

/// Every setting with its value, in the order of their names.
fn settings(call: &Call<'_>) -> Vec<(&'static str, String)> {
    let shared = &call.context.shared;
    let settings = &shared.live.settings;
    let quota = &shared.live.quota;
    let yes_or_no = |is: bool| if is { "yes" } else { "no" }.to_owned();
    vec![
        // There are no channels: a new user has none, whatever it is called.
        ("acl-pubsub-default", "resetchannels".to_owned()),
        (
            "aclfile",
            shared
                .users
                .file()
                .map_or_else(String::new, |path| path.display().to_string()),
        ),
        ("acllog-max-len", lock(&shared.users.log).entries_max().to_string()),
        ("appendonly", "no".to_owned()),
        ("databases", "1".to_owned()),
        ("enable-debug-command", "yes".to_owned()),
        (
            "enable-monitor-command",
            yes_or_no(settings.allows_monitor.load(Ordering::Relaxed)),
        ),
        ("io-threads", shared.statistics.len().to_string()),
        ("maxclients", settings.clients_max().to_string()),
        (
            "maxmemory",
            // Without a limit, the memory itself is one.
            (quota
                .bytes_max()
                .unwrap_or_else(|| super::info::memory_bytes(&call.context.store)))
            .to_string(),
        ),
        ("maxmemory-policy", quota.policy().name().to_owned()),
        ("maxmemory-samples", quota.samples().to_string()),
        ("port", shared.address.port().to_string()),
        ("proto-max-bulk-len", BULK_BYTES_MAX.to_string()),
        ("save", String::new()),
        (
            "slowlog-log-slower-than",
            settings.slow_us.load(Ordering::Relaxed).to_string(),
        ),
        ("slowlog-max-len", lock(&shared.live.slow_log).entries_max().to_string()),
        ("timeout", settings.timeout_s.load(Ordering::Relaxed).to_string()),
    ]
}

fn get(call: &mut Call<'_>) {
    let request = call.request;
    // Like Redis: a name that is asked for without a pattern comes back as it was spelled.
    let spelling = |name: &'static str| {
        let pattern = request
            .args(2)
            .find(|pattern| glob::matches(pattern, name.as_bytes(), Case::Ignored))?;
        Some(if pattern.eq_ignore_ascii_case(name.as_bytes()) {
            pattern
        } else {
            name.as_bytes()
        })
    };
    let wanted: Vec<_> = (settings(call).into_iter())
        .filter_map(|(name, value)| Some((spelling(name)?, value)))
        .collect();
    call.reply.map(wanted.len());
    for (name, value) in wanted {
        call.reply.bulk(name);
        call.reply.bulk(value.as_bytes());
    }
}

/// A change that was read and found good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    ClientsMax(u64),
    TimeoutS(u64),
    SlowUs(i64),
    SlowEntriesMax(usize),
    RefusalsMax(usize),
    AllowsMonitor(bool),
    BytesMax(u64),
    Policy(EvictionPolicy),
    Samples(u32),
}

fn number(value: &[u8], low: i64, high: i64) -> Result<i64, String> {
    let number = integer::parse(value).ok_or("argument couldn't be parsed into an integer")?;
    match (low..=high).contains(&number) {
        true => Ok(number),
        false => Err(format!("argument must be between {low} and {high} inclusive")),
    }
}

/// A number of bytes, in the units of Redis: `1k` is 1000, `1kb` is 1024.
fn memory(value: &[u8]) -> Option<u64> {
    let text = str::from_utf8(value).ok()?;
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let units = [
        ("", 1),
        ("b", 1),
        ("k", 1000),
        ("kb", 1 << 10),
        ("m", 1_000_000),
        ("mb", 1 << 20),
        ("g", 1_000_000_000),
        ("gb", 1 << 30),
    ];
    let (_, factor) = units.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn policy(value: &[u8]) -> Result<EvictionPolicy, String> {
    let named = str::from_utf8(value).ok().and_then(EvictionPolicy::by_name);
    named.ok_or_else(|| {
        let names = EvictionPolicy::ALL.map(|(_, name)| name);
        format!("argument(s) must be one of the following: {}", names.join(", "))
    })
}

/// Reads a change. `Ok(None)`: the setting cannot be changed.
fn change(name: &str, value: &[u8]) -> Result<Option<Change>, String> {
    Ok(Some(match name {
        "maxclients" => Change::ClientsMax(number(value, 1, CLIENTS_MAX)?.unsigned_abs()),
        "timeout" => Change::TimeoutS(number(value, 0, TIMEOUT_S_MAX)?.unsigned_abs()),
        "slowlog-log-slower-than" => Change::SlowUs(number(value, -1, i64::MAX)?),
        "slowlog-max-len" | "acllog-max-len" => {
            let count = usize::try_from(number(value, 0, i64::MAX)?).unwrap_or(usize::MAX);
            match name {
                "slowlog-max-len" => Change::SlowEntriesMax(count),
                _ => Change::RefusalsMax(count),
            }
        }
        "maxmemory" => Change::BytesMax(memory(value).ok_or("argument must be a memory value")?),
        "maxmemory-policy" => Change::Policy(policy(value)?),
        "maxmemory-samples" => Change::Samples(number(value, 1, SAMPLES_MAX.into())? as u32),
        "enable-monitor-command" if value.eq_ignore_ascii_case(b"yes") => Change::AllowsMonitor(true),
        "enable-monitor-command" if value.eq_ignore_ascii_case(b"no") => Change::AllowsMonitor(false),
        "enable-monitor-command" => return Err("argument must be 'yes' or 'no'".to_owned()),
        _ => return Ok(None),
    }))
}

/// All of the changes, or none.
fn set(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    if !request.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let known = settings(call);
    let mut changes: Vec<(&'static str, Change)> = Vec::new();
    for index in (2..request.len()).step_by(2) {
        let name = String::from_utf8_lossy(request.arg(index)).to_ascii_lowercase();
        let failed = |why: &str| format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}");
        // Redis has it, and answers to it with the password's owner in mind; here it is a file.
        let Some(known) = (known.iter().map(|&(known, _)| known).chain(["requirepass"])).find(|known| *known == name)
        else {
            let name = super::excerpt(request.arg(index));
            return Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'").into());
        };
        if changes.iter().any(|&(before, _)| before == known) {
            return Err(failed("duplicate parameter").into());
        }
        let change = change(&name, request.arg(index + 1)).map_err(|why| failed(&why))?;
        let change = change.ok_or_else(|| failed("can't set immutable config"))?;
        changes.push((known, change));
    }
    let live = &call.context.shared.live;
    let mut changed = lock(&live.changed);
    for (name, change) in changes {
        changed.insert(name);
        // Relaxed: whoever reads a setting a moment later may see the one before.
        match change {
            Change::ClientsMax(count) => live.settings.clients_max.store(count, Ordering::Relaxed),
            Change::TimeoutS(seconds) => {
                live.settings.timeout_s.store(seconds, Ordering::Relaxed);
                // Those who wait for input wait anew, for so long.
                live.roster.cards().iter().for_each(|card| card.call());
            }
            Change::SlowUs(us) => live.settings.slow_us.store(us, Ordering::Relaxed),
            Change::SlowEntriesMax(count) => lock(&live.slow_log).set_entries_max(count),
            Change::RefusalsMax(count) => lock(&call.context.shared.users.log).set_entries_max(count),
            Change::BytesMax(bytes) => live.quota.set_bytes_max(bytes),
            Change::Policy(policy) => live.quota.set_policy(policy),
            Change::Samples(count) => live.quota.set_samples(count),
            Change::AllowsMonitor(is_allowed) => live.settings.allows_monitor.store(is_allowed, Ordering::Relaxed),
        }
    }
    call.reply.ok();
    Ok(())
}

/// Writes what was changed to the file of the start.
fn rewrite(call: &mut Call<'_>) -> Handled {
    let shared = &call.context.shared;
    let file = (shared.settings_file.as_ref()).ok_or("ERR The server is running without a config file")?;
    let changed = lock(&shared.live.changed);
    let mut values = settings(call);
    values.retain(|(name, _)| changed.contains(name));
    for (name, value) in &mut values {
        if *name == "maxmemory" {
            // As it was set: what CONFIG GET shows without a limit is the memory itself.
            *value = shared.live.quota.bytes_max().unwrap_or(0).to_string();
        }
    }
    file.rewrite(&values)
        .map_err(|why| format!("ERR Rewriting config file: {why}"))?;
    drop(changed);
    tracing::info!(count = values.len(), "settings were written to their file");
    call.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        assert_eq!(change("maxclients", b"7"), Ok(Some(Change::ClientsMax(7))));
        assert_eq!(change("slowlog-log-slower-than", b"-1"), Ok(Some(Change::SlowUs(-1))));
        assert_eq!(
            change("enable-monitor-command", b"YES"),
            Ok(Some(Change::AllowsMonitor(true)))
        );
        assert_eq!(change("timeout", b"60"), Ok(Some(Change::TimeoutS(60))));
        assert_eq!(change("port", b"7"), Ok(None));
        for (text, bytes) in [
            ("0", 0),
            ("7", 7),
            ("100b", 100),
            ("2k", 2000),
            ("2KB", 2048),
            ("3m", 3_000_000),
            ("3Mb", 3 << 20),
            ("1g", 1_000_000_000),
            ("1gb", 1 << 30),
        ] {
            let expected = Ok(Some(Change::BytesMax(bytes)));
            assert_eq!(change("maxmemory", text.as_bytes()), expected, "{text}");
        }
        for (policy, name) in EvictionPolicy::ALL {
            let name = name.to_uppercase();
            assert_eq!(
                change("maxmemory-policy", name.as_bytes()),
                Ok(Some(Change::Policy(policy)))
            );
        }
        assert_eq!(change("maxmemory-samples", b"64"), Ok(Some(Change::Samples(64))));
        for (name, value) in [
            ("maxclients", "0"),
            ("maxclients", "x"),
            ("maxclients", "4294967296"),
            ("timeout", "-1"),
            ("timeout", "2147483648"),
            ("slowlog-max-len", "-1"),
            ("acllog-max-len", "-1"),
            ("slowlog-log-slower-than", "-2"),
            ("enable-monitor-command", "maybe"),
            ("maxmemory", "-1"),
            ("maxmemory", "1.5gb"),
            ("maxmemory", "mb"),
            ("maxmemory", "1tb"),
            ("maxmemory", "18446744073709551615kb"),
            ("maxmemory-policy", "lru"),
            ("maxmemory-policy", ""),
            ("maxmemory-samples", "0"),
            ("maxmemory-samples", "65"),
        ] {
            assert!(change(name, value.as_bytes()).is_err(), "{name} {value}");
        }
    }
}
