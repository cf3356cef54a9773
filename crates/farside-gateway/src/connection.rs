//! One client's connection: read a burst, execute its commands in order, write the replies once.
//!
//! On the path: between the socket and the commands. All connections of a worker that have input
//! execute it before the first of them writes: what wakes a client, or the core it runs on, is paid
//! for once.
//!
//! What a peer can make us keep is bounded: input by the guard, output by [`REPLY_BYTES_MAX`] and
//! one reply more. Whoever does not read its replies is not read from either.

#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;

use core::future::Future;
use core::pin::pin;
use core::sync::atomic::Ordering;
use core::task::Poll;
use std::io;

use farside_kv::Session;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::Client;
use crate::command::{self, Call, Keys};
use crate::context::{Closing, Context};
use crate::guard::{Framed, Guard};
use crate::large;
use crate::latency::Stopwatch;
use crate::listener::Arrival;
use crate::lookahead;
use crate::reply::{Protocol, Reply};
use crate::request::{Request, Scratch};
use crate::roster::Card;
use crate::stream::{Socket, Stream};

/// Replies are written out when they are longer than this, even in the middle of a burst.
pub(crate) const REPLY_BYTES_MAX: usize = 1 << 20;
/// How much to read at once, at least and at most.
const READ_BYTES_MIN: usize = 16 << 10;
const READ_BYTES_MAX: usize = 1 << 20;
/// Behind a command of so many bytes nothing is read that would have to be moved when it is done.
const LONG_BYTES: usize = 256 << 10;
/// How long a handshake may take.
const HANDSHAKE_NS: u64 = 10_000_000_000;
/// How long the last replies of a connection may take to be read.
const FAREWELL_NS: u64 = 2_000_000_000;
/// How long to wait after them for the client to hang up.
const LINGER_NS: u64 = 100_000_000;

/// A connection within a worker's runtime, or parked while its worker opens the store anew.
pub(crate) struct Connection {
    stream: Stream,
    state: State,
}

/// What a connection is apart from its socket.
struct State {
    input: Vec<u8>,
    guard: Guard,
    reply: Reply,
    client: Client,
    scratch: Scratch,
}

/// How a connection ended.
pub(crate) enum Ended {
    /// For good.
    Closed,
    /// It waits for another store.
    Parked(Box<Connection>),
}

/// What to do after a burst.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Read,
    Close,
}

impl Connection {
    /// Starts to serve a client, after a handshake if there must be one. `None` if the worker closed
    /// before it was done.
    pub(crate) async fn open(arrival: Arrival, context: &Context) -> io::Result<Option<Self>> {
        let ends = arrival.socket.ends();
        let socket = Socket::open(arrival.socket)?;
        let stream = match arrival.tls {
            None => Stream::Plain(socket),
            // Boxed: it is large, and rare.
            Some(tls) => {
                let handshake = Box::pin(unless_closing(context, tls.accept(socket)));
                match within(context, HANDSHAKE_NS, handshake).await {
                    Some(Some(stream)) => Stream::Tls(Box::new(stream?)),
                    Some(None) => return Ok(None),
                    None => return Err(io::ErrorKind::TimedOut.into()),
                }
            }
        };
        let state = State {
            input: Vec::new(),
            guard: Guard::default(),
            reply: Reply::default(),
            client: Client::enter(&context.shared, ends, context.store.endpoint().unix_ms()),
            scratch: Scratch::default(),
        };
        Ok(Some(Self { stream, state }))
    }

    /// Goes on with a parked connection in the runtime of the caller.
    pub(crate) fn unpark(mut self) -> io::Result<Self> {
        self.stream.unpark()?;
        Ok(self)
    }

    fn park(mut self) -> io::Result<Ended> {
        self.stream.park()?;
        Ok(Ended::Parked(Box::new(self)))
    }

    /// Serves the client until it leaves, or the worker closes.
    pub(crate) async fn serve(mut self, context: &Context) -> io::Result<Ended> {
        loop {
            let mut session = context.take_session();
            let stopwatch = Stopwatch::start(context, &session);
            let next = self.burst(context, &mut session).await?;
            stopwatch.stop(context, &session, &mut self.state.client.tally);
            context.give_session(session);
            let State { reply, client, .. } = &mut self.state;
            let may_go_on = client.attend(reply);
            if !reply.is_empty() {
                // A client that sleeps is woken by its first reply; it should find the others on their heels.
                last_in_line().await;
            }
            let is_written = flush(&mut self.stream, reply, client, context).await?;
            if next == Next::Close || !may_go_on || client.card.is_killed() {
                return self.leave(context).await;
            }
            match context.closing() {
                Some(Closing::CutOff) => return self.park(),
                Some(Closing::Stop) => return self.leave(context).await,
                None => {}
            }
            if is_written && !self.read(context).await? {
                return Ok(Ended::Closed);
            }
        }
    }

    /// Says goodbye: writes what is left to be said, and waits for a moment until the client hangs up.
    /// If it were not waited for, what it has sent meanwhile would make the system reset the connection,
    /// and the client might never see the last replies.
    async fn leave(self, context: &Context) -> io::Result<Ended> {
        let Self { mut stream, state } = self;
        let State { reply, client, .. } = state;
        if client.card.is_killed() && !reply.is_empty() {
            // It does not read what it was sent already.
            return Ok(Ended::Closed);
        }
        let farewell = async {
            stream.write_all(reply.bytes()).await?;
            // Whoever sees that the connection has ended does not find it among the others any more.
            drop(client);
            stream.shutdown().await
        };
        match within(context, FAREWELL_NS, farewell).await {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(error),
            None => return Err(io::ErrorKind::TimedOut.into()),
        }
        let mut ignored = Vec::with_capacity(READ_BYTES_MIN);
        let hang_up = async {
            while matches!(stream.read_buf(&mut ignored).await, Ok(1..)) {
                ignored.clear();
            }
        };
        within(context, LINGER_NS, hang_up).await;
        Ok(Ended::Closed)
    }

    /// Executes all whole commands that have arrived.
    async fn burst(&mut self, context: &Context, session: &mut Session) -> io::Result<Next> {
        let State {
            input,
            guard,
            reply,
            client,
            scratch,
        } = &mut self.state;
        let mut at = 0;
        let next = loop {
            if context.closing().is_some() {
                break Next::Read;
            }
            let is_noted = client.card.has_notice();
            if is_noted && !client.heed() {
                break Next::Close;
            }
            let (start, rest) = (at, &input[at..]);
            if client.may_go_together() && !is_noted {
                if let Some((keys, bytes)) = lookahead::gets(rest) {
                    guard.pass();
                    at += bytes;
                    client.command = command::table::Id::get as usize;
                    command::strings::get_all(context, &mut self.stream, reply, client, session, &keys).await?;
                    continue;
                }
                if let Some((items, bytes)) = lookahead::sets(rest) {
                    guard.pass();
                    at += bytes;
                    client.command = command::table::Id::set as usize;
                    command::set::set_all(context, &mut self.stream, reply, client, session, &items).await?;
                    continue;
                }
            }
            let request = match guard.next(rest, client.is_stranger()) {
                Ok(Framed::Incomplete) => break Next::Read,
                Ok(Framed::Nothing { bytes }) => {
                    at += bytes;
                    continue;
                }
                Ok(Framed::Array { bytes }) => {
                    at += bytes;
                    Ok(Request::new(&rest[..bytes], guard.places()))
                }
                Ok(Framed::Line { line, bytes }) => {
                    at += bytes;
                    Request::split(&rest[..line], scratch)
                }
                Err(error) => Err(error),
            };
            let request = match request {
                Ok(request) => request,
                Err(error) => {
                    reply.error(&error.to_string());
                    break Next::Close;
                }
            };
            if is_noted && !wait_for_pause(&mut self.stream, reply, client, context, &request).await? {
                at = start;
                continue;
            }
            if request.len() > 0 {
                let mut call = Call {
                    request: &request,
                    client: &mut *client,
                    reply: &mut *reply,
                    keys: Keys::Apart(&mut *session),
                    stream: &mut self.stream,
                    context,
                };
                command::execute(&mut call).await?;
            }
            if client.is_leaving {
                break Next::Close;
            }
            if reply.len() > REPLY_BYTES_MAX {
                flush(&mut self.stream, reply, client, context).await?;
            }
        };
        input.drain(..at);
        if at > 0 {
            let speaks_resp3 = reply.protocol() == Protocol::Resp3;
            client
                .card
                .note(client.command, context.store.endpoint().unix_ms(), speaks_resp3);
            client.card.note_queued(client.queue.len());
        }
        Ok(next)
    }

    /// Waits for more input; returns whether to go on. Also returns when the worker closes, when somebody calls the
    /// connection, or when the client has been idle for as long as it may be.
    async fn read(&mut self, context: &Context) -> io::Result<bool> {
        let State {
            input,
            guard,
            scratch,
            client,
            ..
        } = &mut self.state;
        if input.is_empty() {
            guard.shrink();
            scratch.shrink();
            large::clear(input);
        }
        let wanted = guard.wanted();
        let limit = if wanted > LONG_BYTES && wanted > input.len() {
            wanted - input.len()
        } else {
            usize::MAX
        };
        // No more than three times as much again as has arrived: what a peer announces costs us little yet, and what has arrived of
        // a long value is seldom moved.
        let more = (3 * input.len()).clamp(READ_BYTES_MIN, READ_BYTES_MAX).min(limit);
        large::reserve(input, more, wanted);
        let card = &client.card;
        let mut source = (&mut self.stream).take(limit as u64);
        let read = async {
            tokio::select! {
                biased;
                read = source.read_buf(input) => Some(read),
                () = card.until_called() => None,
                () = idle_too_long(context, card) => Some(Ok(0)),
            }
        };
        match unless_closing(context, read).await.flatten() {
            Some(Ok(0)) => Ok(false),
            Some(Ok(bytes)) => {
                context.statistics().bytes_in.add(bytes as u64);
                Ok(true)
            }
            Some(Err(error)) => Err(error),
            None => Ok(true),
        }
    }
}

/// Writes all replies out; returns whether that was possible before the worker closed or the client was ended.
pub(crate) async fn flush(
    stream: &mut Stream,
    reply: &mut Reply,
    client: &Client,
    context: &Context,
) -> io::Result<bool> {
    while !reply.is_empty() {
        match write(stream, reply.bytes(), client, context).await? {
            Some(written) => reply.consume(written),
            None => return Ok(false),
        }
    }
    if stream.needs_flush() {
        let flush = unless_killed(client, stream.flush());
        return match unless_closing(context, flush).await.flatten() {
            Some(flushed) => flushed.map(|()| true),
            None => Ok(false),
        };
    }
    Ok(true)
}

/// Writes all replies out, and a long value behind them, from where it stands. What could not be written before the worker closed
/// or the client was ended waits with the replies.
pub(crate) async fn flush_with(
    stream: &mut Stream,
    reply: &mut Reply,
    client: &Client,
    context: &Context,
    value: &[u8],
) -> io::Result<()> {
    let mut rest = value;
    if flush(stream, reply, client, context).await? {
        while !rest.is_empty()
            && let Some(written) = write(stream, rest, client, context).await?
        {
            rest = &rest[written..];
        }
    }
    reply.append(rest);
    Ok(())
}

/// Waits as long as a pause holds this command up; what was replied before is written out first. Returns whether the command
/// may be executed; if not, the worker closes, or the client shall end.
#[cold]
async fn wait_for_pause(
    stream: &mut Stream,
    reply: &mut Reply,
    client: &Client,
    context: &Context,
    request: &Request<'_>,
) -> io::Result<bool> {
    while let Some(left_ns) = context.shared.live.pause.holds(client, request) {
        if !flush(stream, reply, client, context).await? {
            return Ok(false);
        }
        tokio::select! {
            biased;
            () = context.until_closing() => return Ok(false),
            () = client.card.until_killed() => return Ok(false),
            () = client.card.until_called() => {}
            () = context.store.endpoint().sleep(left_ns) => {}
        }
    }
    Ok(true)
}

/// Writes some bytes out; returns how many, or `None` if the worker closed or the client was ended before that.
#[inline]
async fn write(stream: &mut Stream, bytes: &[u8], client: &Client, context: &Context) -> io::Result<Option<usize>> {
    let write = unless_killed(client, stream.write(bytes));
    let Some(written) = unless_closing(context, write).await.flatten() else {
        return Ok(None);
    };
    let written = written?;
    if written == 0 {
        return Err(io::ErrorKind::WriteZero.into());
    }
    context.statistics().bytes_out.add(written as u64);
    Ok(Some(written))
}

/// The result of `action`, or `None` if the client was ended before it was done. What can be done at
/// once is done, even then.
#[inline]
async fn unless_killed<T>(client: &Client, action: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        result = action => Some(result),
        () = client.card.until_killed() => None,
    }
}

/// Returns when every other task that can go on has had its turn.
async fn last_in_line() {
    let mut is_first = true;
    core::future::poll_fn(|cx| {
        if !core::mem::take(&mut is_first) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Returns when a client that has sent nothing meanwhile shall be hung up on: never, unless there is such a limit.
/// Whoever changes it calls all connections.
async fn idle_too_long(context: &Context, card: &Card) {
    // Relaxed: a call follows. Monitors have nothing to say.
    match context.shared.live.settings.timeout_s.load(Ordering::Relaxed) {
        limit_s @ 1.. if !card.is_monitor.load(Ordering::Relaxed) => {
            context
                .store
                .endpoint()
                .sleep(limit_s.saturating_mul(1_000_000_000))
                .await;
        }
        _ => core::future::pending().await,
    }
}

/// The result of `action`, or `None` if it takes longer.
async fn within<T>(context: &Context, limit_ns: u64, action: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        result = action => Some(result),
        () = context.store.endpoint().sleep(limit_ns) => None,
    }
}

/// The result of `action`, or `None` if the worker closed before it was done. What can be done at
/// once is done, even then.
#[inline]
async fn unless_closing<T>(context: &Context, action: impl Future<Output = T>) -> Option<T> {
    let mut action = pin!(action);
    let mut closing = pin!(context.until_closing());
    core::future::poll_fn(|cx| {
        if let Poll::Ready(result) = action.as_mut().poll(cx) {
            return Poll::Ready(Some(result));
        }
        closing.as_mut().poll(cx).map(|()| None)
    })
    .await
}
