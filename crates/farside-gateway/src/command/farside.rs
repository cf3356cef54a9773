//! FARSIDE: what this gateway has to say about itself, beyond INFO.

use farside_fabric::Endpoint;
use farside_fabric::host::HostClock;

use super::{Call, Handled, NOT_AN_INTEGER, unknown_subcommand, wrong_arity};
use crate::hotkeys::hottest;
use crate::report::Report;
use crate::{integer, observer};

/// How many hot keys there are if nobody says.
const HOT_KEYS: usize = 10;
/// What FARSIDE HELP says.
const HELP: [&str; 7] = [
    "FARSIDE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "HOTKEYS [<count>]",
    "    The keys that are used most, each with its part of all uses (0 to 1).",
    "STATS",
    "    Everything this gateway counts, as one JSON object.",
    "HELP",
    "    Print this help.",
];

pub(crate) async fn farside<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let request = call.request;
    if request.arg_is(1, "stats") {
        require(request.len() == 2, "farside|stats")?;
        observer::look(call.context).await;
        let report = Report::take(&call.context.shared, HostClock.now_ns());
        let text = serde_json::to_string(&report).map_err(|error| format!("ERR no report: {error}"))?;
        call.reply.bulk(text.as_bytes());
    } else if request.arg_is(1, "hotkeys") {
        require(request.len() <= 3, "farside|hotkeys")?;
        let most = match request.len() {
            2 => HOT_KEYS,
            _ => {
                let most = integer::parse(request.arg(2)).ok_or(NOT_AN_INTEGER)?;
                usize::try_from(most).map_err(|_| "ERR count must not be negative")?
            }
        };
        let workers = call.context.shared.statistics.iter();
        let hot = hottest(workers.map(|worker| &worker.hot_keys), most);
        call.reply.array(hot.len());
        for hot in hot {
            call.reply.array(2);
            call.reply.bulk(hot.key.as_bytes());
            call.reply.bulk(format!("{:.4}", hot.share).as_bytes());
        }
    } else if request.arg_is(1, "help") {
        require(request.len() == 2, "farside|help")?;
        call.reply.array(HELP.len());
        HELP.iter().for_each(|line| call.reply.simple(line));
    } else {
        return Err(unknown_subcommand(request).into());
    }
    Ok(())
}

fn require(is_right: bool, command: &str) -> Handled {
    match is_right {
        true => Ok(()),
        false => Err(wrong_arity(command).into()),
    }
}
