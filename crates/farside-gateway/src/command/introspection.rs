//! COMMAND: the table, as client libraries and redis-cli want to see it.

use super::category::Access;
use super::key_spec::KeySpec;
use super::table::{Command, Id, TABLE, find, number, numbered};
use super::{Call, Handled, Refusal, SYNTAX, category, help};
use crate::acl::permit;
use crate::glob::{self, Case};
use crate::reply::Reply;
use crate::request::Request;

pub(crate) async fn command(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let reply = &mut *call.reply;
    if request.len() == 1 {
        reply.array(TABLE.len());
        TABLE.iter().for_each(|command| describe(reply, command));
    } else if request.arg_is(1, "count") {
        reply.count(TABLE.len() as u64);
    } else if request.arg_is(1, "list") {
        let named = listed(request)?;
        reply.array(named.len());
        named.iter().for_each(|command| reply.bulk(command.name.as_bytes()));
    } else if request.arg_is(1, "getkeys") {
        let keys = keys_of(request)?;
        reply.array(keys.len());
        keys.iter().for_each(|(key, _)| reply.bulk(key));
    } else if request.arg_is(1, "getkeysandflags") {
        let keys = keys_of(request)?;
        reply.array(keys.len());
        for (key, access) in keys {
            reply.array(2);
            reply.bulk(key);
            reply.set(access.flags().count());
            access.flags().for_each(|flag| reply.simple(flag));
        }
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
                "GETKEYSANDFLAGS <full-command>",
                "    Return the keys and the access flags from a full command.",
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
            // As in Redis, nothing is in a category that does not exist.
            &|command| category::find(value).is_some_and(|category| command.categories & category != 0)
        }
        5 if request.arg_is(2, "filterby") && request.arg_is(3, "module") => &|_| false,
        _ => return Err(SYNTAX.into()),
    };
    Ok(TABLE.iter().filter(|command| wants(command)).collect())
}

/// The keys of the command that stands from argument 2 on, and what it does to them.
fn keys_of<'a>(request: &Request<'a>) -> Result<Vec<(&'a [u8], Access)>, Refusal> {
    let whole = request.behind(2);
    let count = whole.len();
    let (id, _) = find(whole.arg(0)).ok_or("ERR Invalid command specified")?;
    let what = number(id, &whole)
        .and_then(numbered)
        .ok_or("ERR Invalid command specified")?;
    if !what.takes(count) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let keys = permit::keys(id, what, &whole);
    let keys: Vec<_> = keys.map(|(place, access)| (whole.arg(place), access)).collect();
    if keys.is_empty() {
        match what.key_spec() {
            KeySpec::NoKeys => return Err("ERR The command has no key arguments".into()),
            // A script may do without.
            _ if matches!(id, Id::eval | Id::evalsha) => {}
            _ => return Err("ERR Invalid arguments specified for command".into()),
        }
    }
    Ok(keys)
}

fn describe(reply: &mut Reply, command: &Command) {
    describe_one(
        reply,
        command.name,
        command.arity,
        command.flags,
        command.keys,
        command.categories,
    );
    reply.array(command.subcommands.len());
    for sub in command.subcommands {
        describe_one(reply, sub.full_name, sub.arity, sub.flags, sub.keys, sub.categories);
        reply.array(0);
    }
}

/// Everything but the subcommands.
fn describe_one(reply: &mut Reply, name: &str, arity: i64, flags: &[&str], keys: KeySpec, categories: u32) {
    reply.array(10);
    reply.bulk(name.as_bytes());
    reply.integer(arity);
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    keys.shown().into_iter().for_each(|key| reply.integer(key));
    let categories = category::names(categories);
    reply.set(categories.clone().count());
    categories.for_each(|name| reply.simple(&format!("@{name}")));
    // Tips, key specifications.
    reply.array(0);
    reply.array(0);
}

fn document(reply: &mut Reply, command: &Command) {
    reply.bulk(command.name.as_bytes());
    reply.map(2);
    for (key, value) in [("summary", command.summary), ("group", command.group)] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
}
