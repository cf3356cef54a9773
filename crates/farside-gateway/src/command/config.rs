//! CONFIG GET: what clients and tools ask for before they start.
//!
//! Settings are flags of the command line and cannot be changed from a connection.

use farside_fabric::Endpoint;

use super::{Call, Handled, unknown_subcommand, wrong_arity};
use crate::glob::{self, Case};
use crate::guard::BULK_BYTES_MAX;

pub(crate) async fn config<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let request = call.request;
    if request.arg_is(1, "set") {
        return Err("ERR CONFIG SET is not supported: settings are flags of `farside serve`".into());
    }
    if !request.arg_is(1, "get") {
        return Err(unknown_subcommand(request).into());
    }
    if request.len() < 3 {
        return Err(wrong_arity("config|get").into());
    }
    let settings = [
        ("appendonly", "no".to_owned()),
        ("databases", "1".to_owned()),
        ("io-threads", call.context.shared.statistics.len().to_string()),
        ("maxclients", call.context.shared.clients_max.to_string()),
        ("maxmemory", super::info::memory_bytes(&call.context.store).to_string()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("port", call.context.shared.address.port().to_string()),
        ("proto-max-bulk-len", BULK_BYTES_MAX.to_string()),
        ("save", String::new()),
        ("timeout", "0".to_owned()),
    ];
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
    let wanted: Vec<_> = (settings.iter())
        .filter_map(|(name, value)| Some((spelling(name)?, value)))
        .collect();
    call.reply.map(wanted.len());
    for (name, value) in wanted {
        call.reply.bulk(name);
        call.reply.bulk(value.as_bytes());
    }
    Ok(())
}
