//! Commands: how one is found, checked and executed.
//!
//! On the path: between a connection and the store. [`table`] says what there is; the other files
//! hold one function per command, in groups.
//!
//! Order of the checks, as in Redis: the command exists, and its subcommand; the number of arguments is right; the client
//! has given the password; its user may do that. What a function refuses comes back as a [`Refusal`] and becomes an error
//! line.

mod acl;
mod bits;
pub(crate) mod category;
mod clients;
mod cluster;
mod config;
mod connection;
mod counters;
mod draws;
mod dump;
mod element_scan;
mod expiry;
mod farside;
mod field_expiry;
pub(crate) mod group;
mod hashes;
mod held_locks;
mod hyperloglog;
mod info;
mod introspection;
pub(crate) mod key_spec;
mod keys;
mod keyspace;
mod lcs;
mod lists;
mod object;
mod observe;
mod ranges;
mod scan;
pub(crate) mod scripts;
mod server;
pub(crate) mod set;
mod set_algebra;
mod sets;
mod sorted_sets;
pub(crate) mod strings;
pub(crate) mod table;
mod transactions;
mod transfer;
mod unions;
mod values;

use std::borrow::Cow;
use std::io;

use farside_kv::KvError;

use self::group::Group;
use self::key_spec::KeySpec;
pub(crate) use self::keyspace::Keys;
use crate::acl::permit::permit;
use crate::client::{Client, Replies};
use crate::context::{Closing, Context};
use crate::monitor;
use crate::reply::Reply;
use crate::request::Request;
use crate::stream::Stream;

pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(crate) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(crate) const SYNTAX: &str = "ERR syntax error";

/// One command under execution.
pub(crate) struct Call<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) client: &'a mut Client,
    pub(crate) reply: &'a mut Reply,
    pub(crate) keys: Keys<'a>,
    pub(crate) stream: &'a mut Stream,
    pub(crate) context: &'a Context,
}

/// Why a command was not executed.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// This error line says why.
    Text(Cow<'static, str>),
    /// The store failed.
    Store(KvError),
    /// The connection broke while the reply was written.
    Connection(io::Error),
}

impl From<&'static str> for Refusal {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<KvError> for Refusal {
    fn from(error: KvError) -> Self {
        Self::Store(error)
    }
}

impl From<farside_value::ValueError> for Refusal {
    fn from(error: farside_value::ValueError) -> Self {
        Self::Text(Cow::Owned(format!("ERR {error}")))
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

/// What a command function returns, its reply being appended.
pub(crate) type Handled = Result<(), Refusal>;

/// Finds, checks and executes a command.
///
/// # Errors
/// If the connection broke; whatever else is wrong is told to the client.
pub(crate) async fn execute(call: &mut Call<'_>) -> io::Result<()> {
    let statistics = call.context.statistics();
    let mark = call.reply.mark();
    let replies = call.client.replies;
    let outcome = match check(call) {
        Ok((id, number)) => {
            call.client.command = number;
            if call.context.shared.live.monitors.are_there() {
                show(call);
            }
            if call.client.queue.is_open() && !transactions::is_immediate(id) {
                transactions::queue(id, call).inspect_err(|_| transactions::refused(call))
            } else if table::TABLE[id as usize].is_timed {
                run_timed(id, call).await
            } else {
                run(id, call).await
            }
        }
        Err(refusal) => {
            transactions::refused(call);
            Err(refusal)
        }
    };
    statistics.commands.add(1);
    let handled = match outcome {
        Ok(()) => Ok(()),
        Err(refusal) => answer(call, mark, refusal),
    };
    if replies != Replies::On || call.client.replies != Replies::On {
        hush(call, mark, replies);
    }
    handled
}

/// Executes a command that may take long, and notes it if it did.
async fn run_timed(id: table::Id, call: &mut Call<'_>) -> Handled {
    let start_ns = call.context.store.endpoint().now_ns();
    let handled = run(id, call).await;
    observe::note(call, call.context.store.endpoint().now_ns().saturating_sub(start_ns));
    handled
}

/// Shows the command to whoever watches. What an administrator does is not shown, as in Redis.
#[cold]
fn show(call: &Call<'_>) {
    let command = table::numbered(call.client.command);
    if command.is_some_and(|command| !command.flags().contains(&"admin")) {
        let now_ms = call.context.store.endpoint().unix_ms();
        let line = monitor::line(call.request, &call.client.card.address, now_ms);
        call.context.shared.live.monitors.show(&line);
    }
}

/// Takes the reply back if the client wanted none: `before` is what it wanted when the command came.
#[cold]
fn hush(call: &mut Call<'_>, mark: u64, before: Replies) {
    let asked_for_replies = call.client.replies == Replies::On && before != Replies::On;
    if !asked_for_replies {
        call.reply.take_back(mark);
    }
    call.client.replies = match (before, call.client.replies) {
        // The command after CLIENT REPLY SKIP has come and gone.
        (Replies::Skip, Replies::Skip) => Replies::On,
        (_, Replies::SkipNext) => Replies::Skip,
        (_, now) => now,
    };
}

/// Appends the error line for a command that was refused, in place of what it has replied.
fn answer(call: &mut Call<'_>, mark: u64, refusal: Refusal) -> io::Result<()> {
    if !call.reply.take_back(mark) {
        // Half of a reply has been written out; an error line in its middle would be read as data.
        return Err(io::Error::other("a reply could not be finished"));
    }
    if let Refusal::Connection(error) = refusal {
        return Err(error);
    }
    refuse(call.context, call.reply, refusal);
    Ok(())
}

/// Counts and executes a command.
#[inline]
async fn run(id: table::Id, call: &mut Call<'_>) -> Handled {
    count(id, call.request, call.client, call.context);
    table::run(id, call).await
}

/// Counts a command, and notices its keys.
#[inline]
fn count(id: table::Id, request: &Request<'_>, client: &mut Client, context: &Context) {
    let command = &table::TABLE[id as usize];
    context.statistics().calls[id as usize].add(1);
    client.tally.add(command.latency, 1);
    // Most commands have one key: that is asked first.
    if let KeySpec::One(place) = command.keys {
        context.notice(request.arg(place.into()));
    } else if command.keys.has_keys() {
        let places = command.keys.places(request);
        places.for_each(|place| context.notice(request.arg(place)));
    }
}

/// Counts several commands of one kind that were executed together, and notices their keys.
fn count_several<'k>(
    id: table::Id,
    keys: impl ExactSizeIterator<Item = &'k [u8]>,
    client: &mut Client,
    context: &Context,
) {
    let several = keys.len();
    context.statistics().commands.add(several as u64);
    context.statistics().calls[id as usize].add(several as u64);
    client.tally.add(table::TABLE[id as usize].latency, several);
    keys.for_each(|key| context.notice(key));
}

/// Appends the error line for a refusal.
fn refuse(context: &Context, reply: &mut Reply, refusal: Refusal) {
    context.statistics().errors.add(1);
    let line = line(context, refusal);
    context.shared.live.count_error(&line);
    reply.error(&line);
}

/// The error line for a refusal.
fn line(context: &Context, refusal: Refusal) -> Cow<'static, str> {
    match refusal {
        Refusal::Text(text) => text,
        Refusal::Store(error) if error.is_out_of_memory() => {
            Cow::Borrowed("OOM command not allowed when used memory > 'maxmemory'.")
        }
        Refusal::Store(KvError::WrongType { .. }) => Cow::Borrowed(WRONG_TYPE),
        Refusal::Store(error) => {
            if error.is_cut_off() {
                context.close(Closing::CutOff);
            }
            Cow::Owned(format!("ERR {error}"))
        }
        Refusal::Connection(error) => Cow::Owned(format!("ERR {error}")),
    }
}

#[inline]
fn check(call: &mut Call<'_>) -> Result<(table::Id, usize), Refusal> {
    let Some((id, command)) = table::find(call.request.arg(0)) else {
        return Err(unknown(call.request).into());
    };
    let count = call.request.len();
    let number = match command.subcommands.is_empty() || count < 2 {
        true => id as usize,
        false => check_subcommand(id, call.request)?,
    };
    if !command.takes(count) {
        return Err(match id {
            table::Id::exec => transactions::EXEC_WITH_ARGUMENTS.into(),
            _ => wrong_arity(command.name).into(),
        });
    }
    // The only place where rights are asked for, but for EXEC, which asks again.
    if !call.client.is_free() {
        check_rights(id, number, call)?;
    }
    Ok((id, number))
}

/// The number of the subcommand that is asked for.
fn check_subcommand(id: table::Id, request: &Request<'_>) -> Result<usize, Refusal> {
    let number = table::find_subcommand(id, request.arg(1)).ok_or_else(|| unknown_subcommand(request))?;
    match table::numbered(number) {
        Some(what) if !what.takes(request.len()) => Err(wrong_arity(what.full_name()).into()),
        _ => Ok(number),
    }
}

/// Whether a client that may not do everything may do this.
#[cold]
fn check_rights(id: table::Id, number: usize, call: &mut Call<'_>) -> Handled {
    let command = &table::TABLE[id as usize];
    if call.client.is_stranger() {
        return match command.flags.contains(&"no_auth") {
            true => Ok(()),
            false => Err("NOAUTH Authentication required.".into()),
        };
    }
    permit(call.client.user(), id, number, call.request).map_err(|denial| {
        // So that the list of clients has it, as in Redis.
        call.client.command = number;
        let text = denial.text(call.client.user(), false);
        let is_in_multi = call.client.queue.is_open();
        acl::note_denied(call.client, call.context, denial, is_in_multi);
        match id {
            table::Id::exec => format!("{} NOPERM {text}", transactions::DISCARDED).into(),
            _ => format!("NOPERM {text}").into(),
        }
    })
}

/// The error line for a wrong number of arguments.
pub(crate) fn wrong_arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// The error line for a subcommand that does not exist.
fn unknown_subcommand(request: &Request<'_>) -> String {
    let command = String::from_utf8_lossy(request.arg(0)).to_uppercase();
    format!(
        "ERR unknown subcommand '{}'. Try {command} HELP.",
        excerpt(request.arg(1))
    )
}

/// The answer to HELP: a headline, lines for people, and the line about HELP itself.
pub(crate) fn help(reply: &mut Reply, command: &str, lines: &[&str]) {
    reply.array(lines.len() + 3);
    reply.simple(&format!(
        "{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    ));
    lines.iter().for_each(|line| reply.simple(line));
    reply.simple("HELP");
    reply.simple("    Prints this help.");
}

/// How much of what a client sent is repeated in an error line.
const EXCERPT_BYTES_MAX: usize = 128;

fn excerpt(text: &[u8]) -> Cow<'_, str> {
    excerpt_of(text, EXCERPT_BYTES_MAX)
}

fn excerpt_of(text: &[u8], bytes_max: usize) -> Cow<'_, str> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(&text[..text.len().min(bytes_max)])
}

fn unknown(request: &Request<'_>) -> String {
    let mut arguments = String::new();
    for argument in request.args(1) {
        if arguments.len() >= EXCERPT_BYTES_MAX {
            break;
        }
        let excerpt = excerpt_of(argument, EXCERPT_BYTES_MAX - arguments.len());
        arguments.push_str(&format!("'{excerpt}' "));
    }
    let name = excerpt(request.arg(0));
    format!("ERR unknown command '{name}', with args beginning with: {arguments}")
}

#[cfg(test)]
mod tests;
