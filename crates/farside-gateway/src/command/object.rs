//! What tools ask about one key, or about the process: OBJECT, MEMORY, DEBUG.
//!
//! Answers say what is so here. When a key was last used, or how often, is kept only if the `maxmemory-policy` needs
//! it, and only of this gateway; otherwise it is refused.

use farside_kv::{Item, KeyUse, Tag};
use farside_value::{encoding, integer};

use super::{Call, Handled, NOT_AN_INTEGER, Refusal, SYNTAX, help};

/// How a string is stored: as its bytes, whatever they are.
const STRING: &str = "raw";
const NO_IDLE_TIME: &str = "ERR An LRU maxmemory policy is not selected, idle time not tracked.";
const FREQUENCY_INSTEAD: &str = "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that \
    when switching between policies at runtime LRU and LFU data will take some time to adjust.";
const NO_FREQUENCY: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
    when switching between policies at runtime LRU and LFU data will take some time to adjust.";
/// The longest DEBUG SLEEP.
const SLEEP_S_MAX: f64 = 3600.0;

pub(crate) async fn object(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let is = |name: &str| request.arg_is(1, name);
    if is("help") {
        help(
            call.reply,
            "OBJECT",
            &[
                "ENCODING <key>",
                "    Return \"raw\" for a string, and for another value what Redis would say of one as large.",
                "FREQ <key>",
                "    Return the access frequency index of the key: a logarithmic count, under an LFU maxmemory policy.",
                "IDLETIME <key>",
                "    Return for how many seconds this gateway has not used the key, under an LRU maxmemory policy.",
                "REFCOUNT <key>",
                "    Return 1: no two keys share a value.",
            ],
        );
        return Ok(());
    }
    let Some(item) = call.keys.session()?.peek(request.arg(2)).await? else {
        call.reply.null();
        return Ok(());
    };
    if is("encoding") {
        call.reply.bulk(encoding(item)?.as_bytes());
    } else if is("refcount") {
        call.reply.integer(1);
    } else {
        let count = match (is("idletime"), call.context.store.key_use(request.arg(2))) {
            (true, Some(KeyUse::Idle(idle_ms))) => idle_ms / 1000,
            (true, None) => return Err(NO_IDLE_TIME.into()),
            (true, Some(KeyUse::Frequency(_))) => return Err(FREQUENCY_INSTEAD.into()),
            (false, Some(KeyUse::Frequency(count))) => count,
            (false, _) => return Err(NO_FREQUENCY.into()),
        };
        call.reply.count(count);
    }
    Ok(())
}

/// What Redis would say of a value as large, however it is stored.
fn encoding(item: Item<'_>) -> Result<&'static str, Refusal> {
    match item.tag {
        Tag::String => Ok(STRING),
        tag => Ok(encoding::encoding(tag, item.value)?),
    }
}

pub(crate) async fn memory(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    if request.arg_is(1, "usage") {
        usage(call).await?;
    } else if request.arg_is(1, "stats") {
        let store = &call.context.store;
        let (used, most) = (store.held().await?, super::info::memory_bytes(store));
        let taken = super::info::taken_bytes(store).await?;
        let keys = super::info::key_count(call).await?;
        let numbers = [
            ("total.allocated", used),
            ("total.taken", taken),
            ("total.memory", most),
            ("keys.count", keys),
            ("keys.bytes-per-key", used.checked_div(keys).unwrap_or(0)),
        ];
        call.reply.map(numbers.len());
        for (name, number) in numbers {
            call.reply.bulk(name.as_bytes());
            call.reply.count(number);
        }
    } else if request.arg_is(1, "doctor") {
        let store = &call.context.store;
        let (used, most) = (super::info::taken_bytes(store).await?, super::info::memory_bytes(store));
        let text = match used >= most / 10 * 9 && !store.quota().policy().evicts() {
            true => "More than nine tenths of the memory are in use: soon writes will be answered with OOM.",
            false => "There is memory left, and nothing else is looked at.",
        };
        call.reply.text(text);
    } else if request.arg_is(1, "malloc-stats") {
        call.reply
            .text("Keys and values are not in this process: INFO memory counts the memory nodes.");
    } else if request.arg_is(1, "purge") {
        call.reply.ok();
    } else {
        help(
            call.reply,
            "MEMORY",
            &[
                "DOCTOR",
                "    Return memory problems reports.",
                "MALLOC-STATS",
                "    Return where the memory is counted.",
                "PURGE",
                "    Nothing: free memory is reused.",
                "STATS",
                "    Return information about the memory usage of the store.",
                "USAGE <key> [SAMPLES <count>]",
                "    Return memory in bytes used by <key> and its value.",
            ],
        );
    }
    Ok(())
}

/// The bytes of the item and of the word that points to it.
async fn usage(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    for index in (3..request.len()).step_by(2) {
        if !request.arg_is(index, "samples") || index + 1 == request.len() {
            return Err(SYNTAX.into());
        }
        let count = integer::parse(request.arg(index + 1)).ok_or(NOT_AN_INTEGER)?;
        if count < 0 {
            return Err(SYNTAX.into());
        }
    }
    let key = request.arg(2);
    match call.keys.session()?.stored_bytes(key).await? {
        Some(bytes) => call.reply.count(bytes),
        None => call.reply.null(),
    }
    Ok(())
}

pub(crate) async fn debug(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    if request.arg_is(1, "sleep") && request.len() == 3 {
        sleep(call).await?;
    } else if request.arg_is(1, "object") && request.len() == 3 {
        let item = call.keys.session()?.peek(request.arg(2)).await?;
        let item = item.ok_or("ERR no such key")?;
        let text = format!(
            "Value at:0x0 refcount:1 encoding:{} serializedlength:{} lru:0 lru_seconds_idle:0",
            encoding(item)?,
            item.value.len()
        );
        call.reply.simple(&text);
    } else if request.arg_is(1, "error") && request.len() == 3 {
        // Tests of clients ask for the errors of a server that loads, is out of memory, or may not be written to.
        return Err(String::from_utf8_lossy(request.arg(2)).into_owned().into());
    } else if request.arg_is(1, "help") {
        help(
            call.reply,
            "DEBUG",
            &[
                "ERROR <string>",
                "    Return an error with <string> as its message.",
                "OBJECT <key>",
                "    Show low level info about `key` and associated value.",
                "SLEEP <seconds>",
                "    Let this connection wait for <seconds>. Decimals allowed. Others are served meanwhile.",
            ],
        );
    } else {
        let name = super::excerpt(request.arg(1));
        return Err(
            format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try DEBUG HELP.").into(),
        );
    }
    Ok(())
}

/// Like Redis, what is no number is no time at all.
async fn sleep(call: &mut Call<'_>) -> Handled {
    let text = str::from_utf8(call.request.arg(2)).unwrap_or_default();
    let seconds = text.parse::<f64>().unwrap_or(0.0);
    let seconds = if seconds.is_nan() {
        0.0
    } else {
        seconds.clamp(0.0, SLEEP_S_MAX)
    };
    let sleep = call.context.store.endpoint().sleep((seconds * 1e9) as u64);
    tokio::select! {
        biased;
        () = sleep => {}
        () = call.context.until_closing() => {}
        () = call.client.card.until_killed() => {}
    }
    call.reply.ok();
    Ok(())
}
