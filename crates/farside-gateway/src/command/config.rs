//! CONFIG GET: what clients and tools ask for before they start.
//!
//! Settings are flags of the command line and cannot be changed from a connection.

use farside_fabric::Endpoint;

use super::{Call, Handled, unknown_subcommand, wrong_arity};
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
        let pattern = request.args(2).find(|pattern| matches(pattern, name.as_bytes()))?;
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

/// Whether a pattern with `*` and `?` matches a name, in any case.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // Where to go on if what follows the last star does not match.
    let mut retry = None;
    let (mut at, mut name_at) = (0, 0);
    while name_at < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                retry = Some((at, name_at));
            }
            Some(&wanted) if wanted == b'?' || wanted.eq_ignore_ascii_case(&name[name_at]) => {
                at += 1;
                name_at += 1;
            }
            _ => {
                let Some((after_star, from)) = retry else {
                    return false;
                };
                (at, name_at) = (after_star, from + 1);
                retry = Some((after_star, from + 1));
            }
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_names() {
        for (pattern, name) in [
            ("save", "save"),
            ("*", ""),
            ("*", "save"),
            ("s*e", "save"),
            ("S?VE", "save"),
            ("*a*", "save"),
        ] {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("sav", "save"),
            ("save?", "save"),
            ("", "save"),
            ("*x*", "save"),
            ("a*", "save"),
        ] {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }
}
