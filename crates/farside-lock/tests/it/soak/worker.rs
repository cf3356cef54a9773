//! A process of a run: some clients that take locks, or the agent.
//!
//! It ends by itself when it is told to by a word in the memory, and dies with the driver.

use std::io::Read;

use farside_fabric::shm::{self, Segment};
use farside_fabric::{Endpoint, OpContext, RemoteAddr};
use farside_lock::backoff::give_way;
use farside_lock::service::Agent;
use farside_lock::{Grant, LockError, LockKind, Locker, Mode};

use super::memory::{self, CLIENTS, LOCKS};
use crate::on_this_thread;

/// Tells a child what to do.
pub(crate) const ORDER: &str = "FARSIDE_LOCK_SOAK_ORDER";
/// What an agent says when clients can find it.
pub(crate) const READY: &str = "the agent is there";
/// How many times a client gives way while it is inside, at most.
const TURNS_MAX: u64 = 4;

/// What a child does.
pub(crate) enum Role {
    /// Takes locks of this kind, if it asks at all; it is the worker with this number.
    Worker {
        kind: LockKind,
        is_asking: bool,
        number: u64,
    },
    /// Serves.
    Agent,
}

impl Role {
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Worker {
                kind,
                is_asking,
                number,
            } => format!("{} {is_asking} {number}", kind.name()),
            Self::Agent => "agent".to_owned(),
        }
    }

    fn of_text(text: &str) -> Option<Self> {
        if text == "agent" {
            return Some(Self::Agent);
        }
        let mut words = text.split(' ');
        Some(Self::Worker {
            kind: LockKind::by_name(words.next()?)?,
            is_asking: words.next()?.parse().ok()?,
            number: words.next()?.parse().ok()?,
        })
    }
}

pub(crate) fn work_if_ordered() {
    let Ok(order) = std::env::var(ORDER) else { return };
    // The driver holds the other end: when that is gone, so are we.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
    let (path, role) = order.split_once('\n').expect("a path and a role");
    let segment = Segment::open(path).expect("the driver's segment");
    let endpoint = shm::Fabric::new(vec![segment]).endpoint();
    let endpoint = endpoint.expect("an endpoint");
    match Role::of_text(role).expect("a role") {
        Role::Agent => on_this_thread(serve(endpoint)),
        Role::Worker {
            kind,
            is_asking,
            number,
        } => on_this_thread(work(endpoint, kind, is_asking, number)),
    }
}

async fn serve(endpoint: Endpoint) {
    let agent = Agent::start(endpoint, &memory::site()).await;
    println!("{READY}");
    let end = agent.expect("the segment is there").serve().await;
    panic!("the agent has ended: {end}");
}

async fn work(endpoint: Endpoint, kind: LockKind, is_asking: bool, number: u64) {
    let site = memory::site();
    let mut tasks = Vec::new();
    for client in number * CLIENTS..(number + 1) * CLIENTS {
        let locker = is_asking.then(|| Locker::new(kind, &endpoint, &site).expect("it has all atomics"));
        let mut client = Client {
            cx: OpContext::new(endpoint.clone()),
            locker,
            number: client,
        };
        #[expect(clippy::disallowed_methods, reason = "a test on real threads waits for its tasks")]
        tasks.push(tokio::task::spawn_local(async move { client.work().await }));
    }
    for task in tasks {
        task.await.expect("no client panicked");
    }
}

struct Client {
    cx: OpContext,
    /// `None`: it does not ask.
    locker: Option<Locker>,
    number: u64,
}

impl Client {
    async fn work(&mut self) {
        while self.read(memory::stop()).await == 0 {
            let random = self.cx.endpoint().random();
            let lock = if random & 1 == 0 { 0 } else { random >> 1 & 0xff };
            self.take(lock % LOCKS, random >> 9 & 3 == 0).await;
            self.count(memory::acquired(self.number)).await;
        }
    }

    async fn take(&mut self, lock: u64, is_reader: bool) {
        let mode = if is_reader { Mode::Shared } else { Mode::Exclusive };
        let grant = match &self.locker {
            Some(locker) => Some(locker.acquire(&mut self.cx, memory::entry(lock), mode).await),
            None => None,
        };
        let grant = grant.map(|grant| grant.expect("no deadline, and nobody cuts off who maps the memory"));
        if is_reader {
            self.look(lock, grant.as_ref()).await;
        } else {
            self.change(lock, grant.as_ref()).await;
        }
        if let (Some(locker), Some(grant)) = (&self.locker, grant) {
            match locker.release(&mut self.cx, grant).await {
                Ok(()) | Err(LockError::LeaseLost { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Who reads finds the same twice.
    async fn look(&mut self, lock: u64, grant: Option<&Grant>) {
        let first = (
            self.read(memory::owner(lock)).await,
            self.read(memory::count(lock)).await,
        );
        self.linger().await;
        let again = (
            self.read(memory::owner(lock)).await,
            self.read(memory::count(lock)).await,
        );
        assert!(
            again == first || self.is_over(grant),
            "lock {lock}: somebody else was inside: {first:?}, then {again:?}"
        );
    }

    /// Who writes finds what it has written.
    async fn change(&mut self, lock: u64, grant: Option<&Grant>) {
        let me = 1 + self.number;
        let (owner, count) = (memory::owner(lock), memory::count(lock));
        self.write(owner, me).await;
        let seen = self.read(count).await;
        self.linger().await;
        if self.is_over(grant) {
            return;
        }
        let swapped = self.cx.compare_swap(count, seen, seen + 1).await;
        let found = swapped.expect("the segment is there");
        if found == seen {
            self.count(memory::counted(self.number, lock)).await;
        }
        let stays = self.read(owner).await;
        assert!(
            (found, stays) == (seen, me) || self.is_over(grant),
            "lock {lock}: somebody else was inside: the count was {seen}, then {found}, the owner {me}, then {stays}"
        );
    }

    async fn linger(&self) {
        for _ in 0..self.cx.endpoint().random_below(TURNS_MAX) {
            give_way().await;
        }
    }

    fn is_over(&self, grant: Option<&Grant>) -> bool {
        grant.is_some_and(|grant| grant.is_over(self.cx.endpoint().now_ns()))
    }

    async fn read(&mut self, at: RemoteAddr) -> u64 {
        self.cx.read_word(at).await.expect("the segment is there")
    }

    async fn write(&mut self, at: RemoteAddr, word: u64) {
        self.cx.write_word(at, word).await.expect("the segment is there");
    }

    /// One more in a word of our own.
    async fn count(&mut self, at: RemoteAddr) {
        self.cx.fetch_add(at, 1).await.expect("the segment is there");
    }
}
