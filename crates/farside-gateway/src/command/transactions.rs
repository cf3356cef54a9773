//! Several commands as one: MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! On the path: after MULTI, commands are checked and put into the client's [queue](crate::queue). EXEC makes one transaction of those
//! that name keys, over all of these keys and those that are watched; then it runs the others, in their places among the replies.
//! So the transaction may be tried several times, and nothing else is.
//!
//! As in Redis, a command that fails within a transaction has its error among the replies and the others count; what is wrong
//! before EXEC refuses all of them.

use farside_fabric::at_once;
use farside_kv::{KEY_BYTES_MAX, KvError, Transaction};

use super::keyspace::Keys;
use super::table::{Id, TABLE};
use super::{Call, Handled, Refusal, acl, line, table};
use crate::acl::permit::{Denial, permit};
use crate::client::Replies;
use crate::connection::{REPLY_BYTES_MAX, flush};
use crate::queue::{Batch, Queue, has_keys};
use crate::reply::Reply;
use crate::request::Request;

/// Commands that look at more keys than they name cannot be part of a transaction.
pub(crate) const NOT_INSIDE: &str =
    "ERR Command not allowed inside a transaction: it looks at more keys than those that it names";
/// Replies are kept until it is known that they count: so many bytes of them.
pub(super) const ANSWERS_BYTES_MAX: usize = 256 << 20;
const TOO_LONG: &str = "ERR the replies are longer than 256 MiB";
pub(super) const EXEC_WITH_ARGUMENTS: &str =
    "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
pub(super) const DISCARDED: &str = "EXECABORT Transaction discarded because of:";
const RULES_CHANGED: &str = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC \
                             call. This command is no longer allowed for the following reason: ";
const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";

pub(crate) async fn multi(call: &mut Call<'_>) -> Handled {
    if !call.client.queue.open() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    call.reply.ok();
    Ok(())
}

pub(crate) async fn discard(call: &mut Call<'_>) -> Handled {
    if call.client.queue.take().is_none() {
        return Err("ERR DISCARD without MULTI".into());
    }
    call.reply.ok();
    Ok(())
}

/// Each key is seen for itself.
pub(crate) async fn watch(call: &mut Call<'_>) -> Handled {
    if call.client.queue.is_open() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    for key in call.request.args(1) {
        if !call.client.queue.watches(key) {
            let watched = call.keys.together(&[key], |transaction| transaction.watch(key)).await?;
            call.client.queue.watch(watched)?;
        }
    }
    call.reply.ok();
    Ok(())
}

pub(crate) async fn unwatch(call: &mut Call<'_>) -> Handled {
    call.client.queue.unwatch();
    call.reply.ok();
    Ok(())
}

/// Whether a command is executed at once between MULTI and EXEC.
pub(super) fn is_immediate(id: Id) -> bool {
    matches!(
        id,
        Id::multi | Id::exec | Id::discard | Id::watch | Id::quit | Id::reset
    )
}

/// A command was refused before it was executed or queued.
#[cold]
pub(super) fn refused(call: &mut Call<'_>) {
    let queue = &mut call.client.queue;
    if call.request.arg_is(0, "exec") {
        // With arguments, it has ended the transaction all the same.
        *queue = Queue::default();
    } else if queue.is_open() {
        queue.spoil();
    }
}

/// Puts a command into the queue.
pub(super) fn queue(id: Id, call: &mut Call<'_>) -> Handled {
    let flags = TABLE[id as usize].flags;
    if flags.contains(&"no_multi") {
        return Err(NOT_INSIDE.into());
    }
    let places = TABLE[id as usize].keys.places(call.request);
    let long = places
        .map(|place| call.request.arg(place).len())
        .find(|&bytes| bytes > KEY_BYTES_MAX);
    if let Some(bytes) = long {
        return Err(format!("ERR the key has {bytes} bytes, at most {KEY_BYTES_MAX} are allowed").into());
    }
    call.client.queue.push(id, call.request)?;
    call.reply.append(b"+QUEUED\r\n");
    Ok(())
}

pub(crate) async fn exec(call: &mut Call<'_>) -> Handled {
    let batch = call.client.queue.take().ok_or("ERR EXEC without MULTI")?;
    if batch.is_broken {
        return Err(ABORTED.into());
    }
    let denied = denied(call, &batch);
    let done = run_all(call, &batch, &denied).await;
    call.client.queue.give_back(batch.commands);
    done
}

/// For each command, in which words it is refused, if its client may not do it any more; nothing for one that may do
/// everything.
fn denied(call: &Call<'_>, batch: &Batch) -> Vec<Option<String>> {
    let client = &*call.client;
    if client.is_free() {
        return Vec::new();
    }
    let judge = |(id, request): (Id, Request<'_>)| {
        let number = table::number(id, &request)?;
        let denial = permit(client.user(), id, number, &request).err()?;
        let why = match denial {
            Denial::Command(_) => "no permission to execute the command or subcommand",
            Denial::Key(_) => "no permission to touch the specified keys",
        };
        acl::note_denied(client, call.context, denial, true);
        Some(format!("{RULES_CHANGED}{why}"))
    };
    batch.commands.each().map(judge).collect()
}

async fn run_all(call: &mut Call<'_>, batch: &Batch, denied: &[Option<String>]) -> Handled {
    let mut answers = Answers::new(call.reply, batch.commands.with_keys().count());
    match transact(call, batch, denied, &mut answers).await {
        Ok(Outcome::Done) => {}
        Ok(Outcome::Overtaken) => {
            call.reply.null_array();
            return Ok(());
        }
        Ok(Outcome::TooLong) => return Err(discarded(TOO_LONG.into(), call)),
        // Nothing was changed.
        Err(error @ KvError::Transaction(_)) => return Err(discarded(Refusal::Store(error), call)),
        Err(error) if error.is_out_of_memory() => return Err(discarded(Refusal::Store(error), call)),
        Err(error) => return Err(error.into()),
    }
    call.reply.array(batch.commands.len());
    let mut answered = answers.each();
    for (index, (id, request)) in batch.commands.each().enumerate() {
        match (has_keys(id, &request), denial(denied, index)) {
            (true, _) => call.reply.append(answered.next().expect("one for each")),
            (false, None) => run_apart(call, id, request).await?,
            (false, Some(why)) => super::refuse(call.context, call.reply, why.into()),
        }
        if call.reply.len() > REPLY_BYTES_MAX && call.client.replies == Replies::On {
            flush(call.stream, call.reply, call.client, call.context).await?;
        }
    }
    Ok(())
}

fn discarded(why: Refusal, call: &Call<'_>) -> Refusal {
    let why = line(call.context, why);
    format!("{DISCARDED} {why}").into()
}

/// Why a command is refused by EXEC, if it is.
fn denial(denied: &[Option<String>], index: usize) -> Option<String> {
    denied.get(index).cloned().flatten()
}

/// What has become of the commands that have keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// A watched key has changed; nothing was done.
    Overtaken,
    /// The replies are longer than what is kept; nothing was done.
    TooLong,
}

/// Runs the commands that have keys as one transaction.
async fn transact(
    call: &mut Call<'_>,
    batch: &Batch,
    denied: &[Option<String>],
    answers: &mut Answers,
) -> Result<Outcome, KvError> {
    let mut keys: Vec<&[u8]> = batch.commands.keys().collect();
    keys.extend(batch.watched.keys().map(Vec::as_slice));
    if keys.is_empty() {
        return Ok(Outcome::Done);
    }
    let Call {
        client,
        stream,
        context,
        keys: Keys::Apart(session),
        ..
    } = call
    else {
        unreachable!("EXEC is not queued");
    };
    let body = |transaction: &mut Transaction| {
        answers.clear();
        for watched in batch.watched.values() {
            if !transaction.is_as_watched(watched)? {
                return Ok(Outcome::Overtaken);
            }
        }
        for (index, (id, request)) in batch.commands.each().enumerate() {
            if !has_keys(id, &request) {
                continue;
            }
            if let Some(why) = denial(denied, index) {
                answers.end(Err(why.into()), context);
                continue;
            }
            let mut call = Call {
                request: &request,
                client,
                reply: &mut answers.reply,
                keys: Keys::Together(transaction),
                stream,
                context,
            };
            let handled = at_once(table::run(id, &mut call)).expect("nothing in a transaction is waited for");
            answers.end(handled, context);
            if answers.reply.len() > ANSWERS_BYTES_MAX {
                transaction.give_up();
                return Ok(Outcome::TooLong);
            }
        }
        Ok(Outcome::Done)
    };
    let outcome = session.transaction_on(&keys, body).await?;
    if outcome == Outcome::Done {
        for (id, request) in batch.commands.with_keys() {
            super::count(id, &request, client, context);
        }
    }
    Ok(outcome)
}

/// Runs a command without keys.
async fn run_apart(call: &mut Call<'_>, id: Id, request: Request<'_>) -> Handled {
    let mark = call.reply.mark();
    let keys = Keys::Apart(call.keys.session()?);
    let mut inner = Call {
        request: &request,
        client: call.client,
        reply: call.reply,
        keys,
        stream: call.stream,
        context: call.context,
    };
    // Boxed: this is called by one of the commands that it may call.
    let handled = Box::pin(super::run(id, &mut inner)).await;
    match handled {
        Ok(()) => Ok(()),
        Err(refusal) => Ok(super::answer(call, mark, refusal)?),
    }
}

/// The replies of the commands of a transaction, until it is known that they count.
struct Answers {
    reply: Reply,
    ends: Vec<usize>,
}

impl Answers {
    fn new(as_in: &Reply, count: usize) -> Self {
        Self {
            reply: Reply::for_several(as_in, count),
            ends: Vec::with_capacity(count),
        }
    }

    fn clear(&mut self) {
        self.reply.take_back(0);
        self.ends.clear();
    }

    /// Ends the reply of one command, with an error line in its place if it was refused.
    fn end(&mut self, handled: Handled, context: &super::Context) {
        if let Err(refusal) = handled {
            self.reply.take_back(self.ends.last().copied().unwrap_or(0) as u64);
            super::refuse(context, &mut self.reply, refusal);
        }
        self.ends.push(self.reply.len());
    }

    fn each(&self) -> impl Iterator<Item = &[u8]> {
        let starts = core::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, &end)| &self.reply.bytes()[start..end])
    }
}
