//! COMMAND: the table, as client libraries and redis-cli want to see it.

use farside_fabric::Endpoint;

use super::table::{Command, TABLE, find};
use super::{Call, Handled, unknown_subcommand, wrong_arity};
use crate::reply::Reply;

pub(crate) async fn command<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
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
        reply.array(TABLE.len());
        TABLE.iter().for_each(|command| reply.bulk(command.name.as_bytes()));
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
