//! ACL: users, what each may do, and what was refused. See [`crate::acl`].

use std::path::Path;

use farside_value::integer;

use super::table::{Id, find, number, numbered};
use super::{Call, Handled, NOT_AN_INTEGER, Refusal, category, excerpt, help, wrong_arity};
use crate::acl::log::{Entry, Reason};
use crate::acl::permit::{Denial, permit};
use crate::acl::selector::{Selector, is_word, members};
use crate::acl::user::{DEFAULT, Wrong};
use crate::acl::{Refused, Users, random_hex};
use crate::client::Client;
use crate::context::Context;
use crate::live::lock;
use crate::reply::Reply;
use crate::request::Request;
use crate::roster::Notices;

/// How many refusals ACL LOG shows if nobody says how many.
const LOGGED: usize = 10;
/// The longest password that ACL GENPASS makes, in bits, and the usual one.
const GENPASS_BITS_MAX: i64 = 4096;
const GENPASS_BITS: i64 = 256;
const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. Start the gateway with --acl-file PATH \
                       to keep users.";
const HELP: &[&str] = &[
    "CAT [<category>]",
    "    List all commands that belong to <category>, or all command categories",
    "    when no category is specified.",
    "DELUSER <username> [<username> ...]",
    "    Delete a list of users.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Returns whether the user can execute the given command without executing the command.",
    "GETUSER <username>",
    "    Get the user's details.",
    "GENPASS [<bits>]",
    "    Generate a secure 256-bit user password. The optional `bits` argument can",
    "    be used to specify a different size.",
    "LIST",
    "    Show users details in config file format.",
    "LOAD",
    "    Reload users from the ACL file.",
    "LOG [<count> | RESET]",
    "    Show the ACL log entries.",
    "SAVE",
    "    Save the current config to the ACL file.",
    "SETUSER <username> <attribute> [<attribute> ...]",
    "    Create or modify a user with the specified attributes.",
    "USERS",
    "    List all the registered usernames.",
    "WHOAMI",
    "    Return the current connection username.",
];

pub(crate) async fn acl(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let users = &*call.context.shared.users;
    let is = |name: &str| request.arg_is(1, name);
    if is("whoami") {
        call.reply.bulk(&call.client.user().name);
    } else if is("setuser") {
        set_user(call)?;
    } else if is("getuser") {
        get_user(call.reply, users, request.arg(2));
    } else if is("deluser") {
        delete_users(call)?;
    } else if is("list") {
        let all = users.all();
        call.reply.array(all.len());
        all.iter().for_each(|user| call.reply.bulk(&user.text()));
    } else if is("users") {
        let all = users.all();
        call.reply.array(all.len());
        all.iter().for_each(|user| call.reply.bulk(&user.name));
    } else if is("cat") {
        list_categories(call)?;
    } else if is("genpass") {
        make_password(call)?;
    } else if is("log") {
        show_log(call)?;
    } else if is("dryrun") {
        try_out(call)?;
    } else if is("load") {
        let file = users.file().ok_or(NO_FILE)?;
        load(call.context, call.client, users, file)?;
        call.reply.ok();
    } else if is("save") {
        let file = users.file().ok_or(NO_FILE)?;
        users
            .save(file)
            .map_err(|error| format!("ERR There was an error trying to save the ACLs: {error}"))?;
        tracing::info!(file = %file.display(), "users were written to their file");
        call.reply.ok();
    } else {
        help(call.reply, "ACL", HELP);
    }
    Ok(())
}

/// Notes that a user was refused something.
pub(super) fn note_denied(client: &Client, context: &Context, denial: Denial, is_in_multi: bool) {
    let (reason, object) = match denial {
        Denial::Command(name) => (Reason::Command, name.as_bytes().to_vec()),
        Denial::Key(key) => (Reason::Key, key),
    };
    let refused = Refused {
        reason,
        is_in_multi,
        object,
        user: client.user().name.clone(),
    };
    client.note_refused(refused, context.store.endpoint().unix_ms());
}

fn set_user(call: &mut Call<'_>) -> Handled {
    let name = call.request.arg(2);
    if !is_word(name) {
        return Err("ERR Usernames can't contain spaces or null characters".into());
    }
    let shared = &call.context.shared;
    (shared.users.change(name, call.request.args(3))).map_err(|wrong| match wrong {
        Wrong::Rule(rule, error) => format!("ERR Error in ACL SETUSER modifier '{}': {error}", excerpt(&rule)),
        Wrong::Unmatched(rule) => {
            let word = rule.split(|&byte| byte == b' ').next().unwrap_or_default();
            format!(
                "ERR Unmatched parenthesis in acl selector starting at '{}'.",
                excerpt(word)
            )
        }
    })?;
    // Whoever has this user asks for it anew before the next command.
    shared.live.roster.notify_all(Notices::USERS);
    call.reply.ok();
    Ok(())
}

fn delete_users(call: &mut Call<'_>) -> Handled {
    let mut count = 0;
    for name in call.request.args(2) {
        if name == DEFAULT {
            return Err("ERR The 'default' user cannot be removed".into());
        }
        if call.context.shared.users.delete(name) {
            count += 1;
            hang_up(call.context, call.client, |user| user == name);
        }
    }
    call.reply.integer(count);
    Ok(())
}

/// Ends the connections of such users; of `own` after its replies.
fn hang_up(context: &Context, own: &mut Client, is_such: impl Fn(&[u8]) -> bool) {
    let roster = &context.shared.live.roster;
    // Also those that are about to become one of them: they look for their user, and do not find it.
    roster.notify_all(Notices::USERS);
    for card in roster.cards() {
        if card.id != own.card.id && is_such(&card.labels().user) {
            card.kill();
        }
    }
    own.is_leaving |= is_such(&own.user().name);
}

fn load(context: &Context, own: &mut Client, users: &Users, file: &Path) -> Handled {
    (users.load(file)).map_err(|error| {
        format!("ERR {error} WARNING: ACL errors detected, no change to the previously active ACL rules was performed")
    })?;
    hang_up(context, own, |user| users.find(user).is_none());
    Ok(())
}

fn get_user(reply: &mut Reply, users: &Users, name: &[u8]) {
    let Some(user) = users.find(name) else {
        reply.null_array();
        return;
    };
    let (root, selectors) = user.root();
    reply.map(6);
    reply.bulk(b"flags");
    reply.set(user.flags().count());
    user.flags().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.passwords().len());
    user.passwords().for_each(|digits| reply.bulk(digits.as_bytes()));
    describe(reply, root);
    reply.bulk(b"selectors");
    reply.array(selectors.len());
    for selector in selectors {
        reply.map(3);
        describe(reply, selector);
    }
}

fn describe(reply: &mut Reply, selector: &Selector) {
    let parts = [
        ("commands", selector.commands_text().into_bytes()),
        ("keys", selector.keys_text()),
        ("channels", selector.channels_text()),
    ];
    for (name, text) in parts {
        reply.bulk(name.as_bytes());
        reply.bulk(&text);
    }
}

fn list_categories(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    match request.len() {
        2 => {
            call.reply.array(category::ALL.len());
            category::ALL.iter().for_each(|name| call.reply.bulk(name.as_bytes()));
        }
        3 => {
            let category = category::find(request.arg(2))
                .ok_or_else(|| format!("ERR Unknown category '{}'", excerpt(request.arg(2))))?;
            call.reply.array(members(category).count());
            members(category).for_each(|name| call.reply.bulk(name.as_bytes()));
        }
        _ => return Err(too_many(call.request)),
    }
    Ok(())
}

fn make_password(call: &mut Call<'_>) -> Handled {
    let bits = match call.request.len() {
        2 => GENPASS_BITS,
        3 => integer::parse(call.request.arg(2)).ok_or(NOT_AN_INTEGER)?,
        _ => return Err(too_many(call.request)),
    };
    if !(1..=GENPASS_BITS_MAX).contains(&bits) {
        return Err(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
             {GENPASS_BITS_MAX}"
        )
        .into());
    }
    let digits = (bits.unsigned_abs() as usize).div_ceil(4);
    let password = random_hex(digits).ok_or("ERR the system gives no random numbers")?;
    call.reply.bulk(password.as_bytes());
    Ok(())
}

fn show_log(call: &mut Call<'_>) -> Handled {
    let log = &call.context.shared.users.log;
    let count = match call.request.len() {
        2 => LOGGED,
        3 if call.request.arg_is(2, "reset") => {
            lock(log).clear();
            call.reply.ok();
            return Ok(());
        }
        3 => {
            let count = integer::parse(call.request.arg(2)).ok_or(NOT_AN_INTEGER)?;
            usize::try_from(count).unwrap_or(0)
        }
        _ => return Err(too_many(call.request)),
    };
    let now_ms = call.context.store.endpoint().unix_ms();
    let entries: Vec<Entry> = lock(log).entries().take(count).cloned().collect();
    call.reply.array(entries.len());
    for entry in entries {
        show(call.reply, &entry, now_ms);
    }
    Ok(())
}

fn show(reply: &mut Reply, entry: &Entry, now_ms: u64) {
    let age_ms = now_ms.saturating_sub(entry.updated_ms);
    let context = if entry.refused.is_in_multi { "multi" } else { "toplevel" };
    reply.map(10);
    reply.bulk(b"count");
    reply.count(entry.count);
    for (name, text) in [
        ("reason", entry.refused.reason.name().as_bytes()),
        ("context", context.as_bytes()),
        ("object", &entry.refused.object),
        ("username", &entry.refused.user),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(text);
    }
    reply.bulk(b"age-seconds");
    reply.double(age_ms as f64 / 1000.0);
    reply.bulk(b"client-info");
    reply.bulk(entry.client.as_bytes());
    for (name, number) in [
        ("entry-id", entry.id),
        ("timestamp-created", entry.created_ms),
        ("timestamp-last-updated", entry.updated_ms),
    ] {
        reply.bulk(name.as_bytes());
        reply.count(number);
    }
}

/// Says what would become of a command of a user.
fn try_out(call: &mut Call<'_>) -> Handled {
    let name = call.request.arg(2);
    let user =
        (call.context.shared.users.find(name)).ok_or_else(|| format!("ERR User '{}' not found", excerpt(name)))?;
    let request = call.request.behind(3);
    let (id, number) = named(&request)?;
    match permit(&user, id, number, &request) {
        Ok(()) => call.reply.ok(),
        Err(denial) => call.reply.bulk(denial.text(&user, true).as_bytes()),
    }
    Ok(())
}

/// The error line for a subcommand with more arguments than it takes.
fn too_many(request: &Request<'_>) -> Refusal {
    let name = excerpt(request.arg(1));
    format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try ACL HELP.").into()
}

/// The command that a request asks for, if its arguments are as many as they should be.
fn named(request: &Request<'_>) -> Result<(Id, usize), Refusal> {
    let not_found = || format!("ERR Command '{}' not found", excerpt(request.arg(0)));
    let (id, _) = find(request.arg(0)).ok_or_else(not_found)?;
    let number = number(id, request).ok_or_else(not_found)?;
    let what = numbered(number).ok_or_else(not_found)?;
    match what.takes(request.len()) {
        true => Ok((id, number)),
        false => Err(wrong_arity(what.full_name()).into()),
    }
}
