//! COMMAND: the table, as client libraries and redis-cli want to see it.

use super::table::{Command, TABLE, find};
use super::{Call, Handled, Refusal, SYNTAX, help, unknown_subcommand, wrong_arity};
use crate::glob::{self, Case};
use crate::integer;
use crate::reply::Reply;
use crate::request::Request;

pub(crate) async fn command(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let reply = &mut *call.reply;
    if request.len() == 1 {
        reply.array(TABLE.len());
        TABLE.iter().for_each(|command| describe(reply, command));
    } else if request.arg_is(1, "count") {
        if request.len() != 2 {
            return Err(wrong_arity("command|count").into());
        }
        reply.count(TABLE.len() as u64);
    } else if request.arg_is(1, "list") {
        let named = listed(request)?;
        reply.array(named.len());
        named.iter().for_each(|command| reply.bulk(command.name.as_bytes()));
    } else if request.arg_is(1, "getkeys") {
        if request.len() < 4 {
            return Err(wrong_arity("command|getkeys").into());
        }
        let keys = keys_of(request)?;
        reply.array(keys.len());
        keys.iter().for_each(|key| reply.bulk(key));
    } else if request.arg_is(1, "help") {
        help(
            reply,
            "COMMAND",
            &[
                "(no subcommand)",
                "    Return details about all commands.",
                "COUNT",
                "    Return the total number of commands.",
                "LIST [FILTERBY ACLCAT <category>|PATTERN <pattern>|MODULE <name>]",
                "    Return a list of all commands.",
                "INFO [<command-name> ...]",
                "    Return details about multiple commands.",
                "DOCS [<command-name> ...]",
                "    Return documentation details about multiple commands.",
                "GETKEYS <full-command>",
                "    Return the keys from a full command.",
            ],
        );
    } else if request.arg_is(1, "info") {
        let named = request.args(2).map(|name| find(name).map(|(_, command)| command));
        if request.len() == 2 {
            reply.array(TABLE.len());
            TABLE.iter().for_each(|command| describe(reply, command));
        } else {
            reply.array(request.len() - 2);
            for command in named {
                match command {
                    Some(command) => describe(reply, command),
                    None => reply.null(),
                }
            }
        }
    } else if request.arg_is(1, "docs") {
        let named: Vec<&Command> = match request.len() {
            2 => TABLE.iter().collect(),
            _ => request.args(2).filter_map(find).map(|(_, command)| command).collect(),
        };
        reply.map(named.len());
        named.into_iter().for_each(|command| document(reply, command));
    } else {
        return Err(unknown_subcommand(request).into());
    }
    Ok(())
}

/// The commands that COMMAND LIST is asked for.
fn listed(request: &Request<'_>) -> Result<Vec<&'static Command>, Refusal> {
    let value = request.arg(4);
    let wants: &dyn Fn(&Command) -> bool = match request.len() {
        2 => &|_| true,
        5 if request.arg_is(2, "filterby") && request.arg_is(3, "pattern") => {
            &|command| glob::matches(value, command.name.as_bytes(), Case::Ignored)
        }
        5 if request.arg_is(2, "filterby") && request.arg_is(3, "aclcat") => {
            &|command| command.group.as_bytes().eq_ignore_ascii_case(value)
        }
        5 if request.arg_is(2, "filterby") && request.arg_is(3, "module") => &|_| false,
        _ => return Err(SYNTAX.into()),
    };
    Ok(TABLE.iter().filter(|command| wants(command)).collect())
}

/// The keys of the command that stands from argument 2 on.
fn keys_of<'a>(request: &Request<'a>) -> Result<Vec<&'a [u8]>, Refusal> {
    let (_, command) = find(request.arg(2)).ok_or("ERR Invalid command specified")?;
    let count = request.len() - 2;
    if !command.takes(count) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    if command.flags.contains(&"movablekeys") {
        // EVAL and EVALSHA: the third argument says how many keys follow it.
        let keys = integer::parse(request.arg(4)).and_then(|keys| usize::try_from(keys).ok());
        // As in Redis, a number that cannot be right is none.
        let keys = keys.filter(|&keys| keys <= count - 3).unwrap_or(0);
        return Ok(request.args(5).take(keys).collect());
    }
    if command.keys[0] == 0 {
        return Err("ERR The command has no key arguments".into());
    }
    Ok(command.key_places(count).map(|place| request.arg(2 + place)).collect())
}

fn describe(reply: &mut Reply, command: &Command) {
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(command.arity);
    reply.set(command.flags.len());
    command.flags.iter().for_each(|flag| reply.simple(flag));
    command.keys.iter().for_each(|&key| reply.integer(key));
    let category = format!("@{}", command.group);
    reply.set(1);
    reply.simple(&category);
    // Tips, key specifications, subcommands.
    for _ in 0..3 {
        reply.array(0);
    }
}

fn document(reply: &mut Reply, command: &Command) {
    reply.bulk(command.name.as_bytes());
    reply.map(2);
    for (key, value) in [("summary", command.summary), ("group", command.group)] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
}
