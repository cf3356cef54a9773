//! The lock server: clients ask the agent of the lock service, which keeps the locks in its own memory
//! (ShiftLock, section 4.1: *RPC relies on server-side CPUs to serve lock acquisition and release RPCs in a
//! retry-on-fail manner*).
//!
//! The entry is 8 bytes that nobody touches: its address is the name of the lock.
//!
//! Acquire:
//!  1. write `Acquire` to the agent, and wait for its answer. `Done`: the lock is ours;
//!  2. `Refused`: somebody has it. Wait ([`Backoff`]), and ask again.
//!
//! Release: write `Release`, and wait for `Done`.
//!
//! Readers share the lock. There is no order, and readers that come all the time keep a writer out. Whoever dies
//! holds its locks for ever; all locks are free when another agent takes over.
//!
//! Cost without contention: one SEND, and one SEND, each answered by one of the agent's. The first acquire
//! of a client also READs who the agent is.

use core::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Deadline, Endpoint, EndpointId, FabricError, OpContext, RemoteAddr};

use crate::backoff::Backoff;
use crate::grant::Held;
use crate::inbox::{Arrived, Inbox, Seat};
use crate::letter::{AGENT_SEAT, ANY_STAMP, Letter, LetterKind, Place};
use crate::patience::{self, until};
use crate::service::read_agent;
use crate::site::Site;
use crate::{Grant, Lock, LockError, LockOptions, Mode};

/// What a request costs the agent's core in the simulator. With what the answer costs a core serves five
/// million requests per second: eRPC (NSDI 2019) reports twice that for requests that do nothing.
const REQUEST_NS: u64 = 100;

/// How long a client waits at first before it looks again for an agent that is not there; twice as long each time, up to
/// a lease in all.
const AGENT_PAUSE_NS: u64 = 10_000;

/// Who asked: what `Release` has to say again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Asker {
    place: Place,
    stamp: u32,
}

/// A lock, in the agent's memory.
#[derive(PartialEq, Eq, Debug)]
enum Taken {
    Exclusive(Asker),
    Shared(Vec<Asker>),
}

/// All locks that are held, by their addresses.
#[derive(Default, Debug)]
pub(crate) struct Table {
    taken: RefCell<HashMap<u64, Taken>>,
}

impl Table {
    /// Grants a lock or refuses it.
    fn acquire(&self, entry: RemoteAddr, mode: Mode, asker: Asker) -> bool {
        let mut taken = self.taken.borrow_mut();
        match (taken.get_mut(&entry.to_bits()), mode) {
            (None, Mode::Exclusive) => {
                taken.insert(entry.to_bits(), Taken::Exclusive(asker));
                true
            }
            (None, Mode::Shared) => {
                taken.insert(entry.to_bits(), Taken::Shared(vec![asker]));
                true
            }
            (Some(Taken::Shared(readers)), Mode::Shared) => {
                readers.push(asker);
                true
            }
            (Some(_), _) => is_planted("rpc: a lock granted that is held") && mode == Mode::Exclusive,
        }
    }

    /// Takes a lock back from whoever was granted it; from others nothing.
    fn release(&self, entry: RemoteAddr, asker: Asker) {
        let mut taken = self.taken.borrow_mut();
        let is_free = match taken.get_mut(&entry.to_bits()) {
            None => false,
            Some(Taken::Exclusive(holder)) => *holder == asker,
            Some(Taken::Shared(readers)) => {
                readers.retain(|reader| *reader != asker);
                readers.is_empty() || is_planted("rpc: the first reader frees the lock")
            }
        };
        if is_free {
            taken.remove(&entry.to_bits());
        }
    }

    /// Answers a request of a client.
    pub(crate) async fn answer(&self, endpoint: &Endpoint, seat: &Seat, arrived: &Arrived) -> Result<(), FabricError> {
        endpoint.compute(REQUEST_NS).await;
        let Letter { entry, kind, words, .. } = arrived.letter;
        let asker = Asker {
            place: arrived.sender(),
            stamp: words[0] as u32,
        };
        let answer = if kind == LetterKind::Acquire {
            let mode = if words[1] == 1 { Mode::Shared } else { Mode::Exclusive };
            if self.acquire(entry, mode, asker) {
                LetterKind::Done
            } else {
                LetterKind::Refused
            }
        } else {
            self.release(entry, asker);
            LetterKind::Done
        };
        let letter = Letter {
            kind: answer,
            seat: asker.place.seat,
            reply: AGENT_SEAT,
            stamp: asker.stamp,
            entry,
            words: [0; 3],
        };
        match seat.inbox().send(endpoint, asker.place.endpoint, letter).await {
            // Dead clients want no answer.
            Err(FabricError::PeerUnknown { .. }) => Ok(()),
            sent => sent,
        }
    }
}

/// A client's side of the lock server.
#[derive(Debug)]
pub struct RpcLock {
    inbox: Inbox,
    block: RemoteAddr,
    lease_ns: u64,
    agent: Rc<Cell<Option<EndpointId>>>,
    backoff: Rc<Backoff>,
}

/// A request under way; it may outlive its caller.
struct Request {
    endpoint: Endpoint,
    entry: RemoteAddr,
    block: RemoteAddr,
    lease_ns: u64,
    agent: Rc<Cell<Option<EndpointId>>>,
    retries: Rc<Cell<u64>>,
}

impl RpcLock {
    /// A client of an endpoint.
    ///
    /// # Errors
    /// [`LockError::NoService`] if the site's options name no lock service.
    pub fn new(inbox: Inbox, site: &Site) -> Result<Self, LockError> {
        Ok(Self {
            inbox,
            block: site.options().service.ok_or(LockError::NoService)?,
            lease_ns: site.options().lease_ns,
            agent: Rc::default(),
            backoff: Rc::default(),
        })
    }

    fn request(&self, cx: &OpContext, entry: RemoteAddr) -> Request {
        Request {
            endpoint: cx.endpoint().clone(),
            entry,
            block: self.block,
            lease_ns: self.lease_ns,
            agent: Rc::clone(&self.agent),
            retries: cx.retry_meter(),
        }
    }
}

impl Lock for RpcLock {
    fn entry_bytes(_: &LockOptions) -> u64 {
        8
    }

    async fn acquire(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Result<Grant, LockError> {
        let seat = self.inbox.take_seat(entry)?;
        let give_back = self.request(cx, entry);
        let work = self
            .request(cx, entry)
            .acquire(seat, mode, Rc::clone(&self.backoff), cx.deadline());
        let later = async move |granted: Result<Seat, LockError>| {
            if let Ok(seat) = granted {
                // If that fails the agent is gone, and the lock with it.
                let _ = give_back.release(seat).await;
            }
        };
        match until(cx.endpoint(), cx.deadline(), work, later).await {
            Some(seat) => Ok(Grant::new(entry, mode, Held::Rpc(seat?))),
            None => Err(LockError::Timeout { entry }),
        }
    }

    async fn release(&self, cx: &mut OpContext, grant: Grant) -> Result<(), LockError> {
        let entry = grant.entry();
        let Held::Rpc(seat) = grant.into_held() else {
            unreachable!("a grant goes back to the lock that gave it");
        };
        let work = self.request(cx, entry).release(seat);
        patience::release(cx, entry, work).await
    }
}

impl Request {
    async fn acquire(
        self,
        seat: Seat,
        mode: Mode,
        backoff: Rc<Backoff>,
        deadline: Deadline,
    ) -> Result<Seat, LockError> {
        // Ends when the lock is free as we ask, at the latest at the deadline.
        let mut retry = 0_u32;
        loop {
            let is_granted = self.ask(&seat, LetterKind::Acquire, mode).await? == LetterKind::Done;
            backoff.note(!is_granted);
            if is_granted {
                return Ok(seat);
            }
            self.retries.set(self.retries.get() + 1);
            if deadline != Deadline::NEVER && self.endpoint.now_ns() >= deadline.0 {
                return Err(LockError::Timeout { entry: self.entry });
            }
            backoff.wait(&self.endpoint, retry).await;
            retry = retry.saturating_add(1);
        }
    }

    async fn release(self, seat: Seat) -> Result<(), LockError> {
        self.ask(&seat, LetterKind::Release, Mode::Exclusive).await.map(drop)
    }

    /// Asks the agent, and waits for its answer.
    async fn ask(&self, seat: &Seat, kind: LetterKind, mode: Mode) -> Result<LetterKind, LockError> {
        let letter = Letter {
            kind,
            seat: AGENT_SEAT,
            reply: seat.number(),
            stamp: ANY_STAMP,
            entry: self.entry,
            words: [u64::from(seat.stamp()), u64::from(mode == Mode::Shared), 0],
        };
        // Ends with an answer, or when there is no agent.
        loop {
            let agent = self.agent().await?;
            match seat.inbox().send(&self.endpoint, agent, letter).await {
                Err(FabricError::PeerUnknown { .. }) => {
                    self.require_another(agent).await?;
                    continue;
                }
                sent => sent?,
            }
            // An agent that has died answers nothing; then ask the next one.
            loop {
                let deadline = self.endpoint.deadline_in(self.lease_ns);
                match seat.receive(&self.endpoint, deadline).await? {
                    Some(arrived) => return Ok(arrived.letter.kind),
                    None if read_agent(&self.endpoint, self.block).await? != Some(agent) => break,
                    None => {}
                }
            }
            self.agent.set(None);
        }
    }

    async fn agent(&self) -> Result<EndpointId, LockError> {
        if let Some(agent) = self.agent.get() {
            return Ok(agent);
        }
        // One that is about to start, or to take over, may take a moment.
        let mut pause_ns = AGENT_PAUSE_NS;
        while pause_ns < self.lease_ns {
            if let Some(agent) = read_agent(&self.endpoint, self.block).await? {
                self.agent.set(Some(agent));
                return Ok(agent);
            }
            self.endpoint.sleep(pause_ns).await;
            pause_ns *= 2;
        }
        Err(LockError::NoAgent { block: self.block })
    }

    /// `agent` is gone. Another one may have taken over.
    async fn require_another(&self, agent: EndpointId) -> Result<(), LockError> {
        self.agent.set(None);
        if self.agent().await? == agent {
            self.agent.set(None);
            return Err(LockError::NoAgent { block: self.block });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::WINDOW_ATTEMPTS;
    use crate::service::Agent;
    use crate::testing::{LEASE_NS, LOCK, Machine, Stage};

    fn asker(stamp: u32) -> Asker {
        Asker {
            place: Place {
                endpoint: EndpointId(7),
                seat: 3,
            },
            stamp,
        }
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        let table = Table::default();
        assert!(table.acquire(LOCK, Mode::Shared, asker(1)));
        assert!(table.acquire(LOCK, Mode::Shared, asker(2)));
        assert!(!table.acquire(LOCK, Mode::Exclusive, asker(3)));
        table.release(LOCK, asker(1));
        assert!(!table.acquire(LOCK, Mode::Exclusive, asker(3)));
        table.release(LOCK, asker(2));
        assert!(table.acquire(LOCK, Mode::Exclusive, asker(3)));
        assert!(!table.acquire(LOCK, Mode::Shared, asker(4)));
        table.release(LOCK, asker(3));
        assert!(table.taken.borrow().is_empty(), "what nobody holds takes no memory");
    }

    #[test]
    fn nobody_releases_for_others() {
        let table = Table::default();
        assert!(table.acquire(LOCK, Mode::Exclusive, asker(1)));
        table.release(LOCK, asker(2));
        assert!(!table.acquire(LOCK, Mode::Exclusive, asker(2)));
        table.release(LOCK, asker(1));
        table.release(LOCK, asker(1));
        assert!(table.acquire(LOCK, Mode::Shared, asker(2)));
        table.release(LOCK, asker(1));
        assert!(!table.acquire(LOCK, Mode::Exclusive, asker(1)));
    }
    fn start(stage: &Stage, serves: bool) -> Machine {
        let machine = stage.machine();
        let agent = stage
            .sim
            .block_on(Agent::start(machine.endpoint.clone(), &machine.site));
        let agent = agent.expect("the node is there");
        machine.endpoint.spawn(async move {
            if serves {
                agent.serve().await;
            } else {
                // It is there, and does nothing.
                core::future::pending::<()>().await;
                drop(agent);
            }
        });
        machine
    }

    fn lock(machine: &Machine) -> RpcLock {
        RpcLock::new(machine.site.inbox(machine.endpoint.id()), &machine.site).expect("there is a service")
    }

    /// Each refusal is a retry, after a wait that becomes longer.
    #[test]
    fn who_is_refused_waits_before_it_asks_again() {
        let stage = Stage::new();
        let _agent = start(&stage, true);
        let (holding, waiting) = (stage.machine(), stage.machine());
        let (holder, waiter) = (lock(&holding), lock(&waiting));
        let grant = stage
            .sim
            .block_on(holder.acquire(&mut holding.cx(), LOCK, Mode::Exclusive))
            .expect("it is free");
        let mut cx = waiting.cx();
        let mut ask_for = |patience_ns: u64| {
            let (start, before) = (waiting.costs(), cx.retries());
            cx.set_deadline(waiting.endpoint.deadline_in(patience_ns));
            let refused = stage.sim.block_on(waiter.acquire(&mut cx, LOCK, Mode::Exclusive));
            assert_eq!(refused, Err(LockError::Timeout { entry: LOCK }));
            (cx.retries() - before, waiting.cost_since(&start))
        };
        let (retries, [reads, writes, atomics, questions]) = ask_for(100_000);
        assert_eq!((reads, writes, atomics), (1, 0, 0), "the agent is looked up once");
        // The last one may be under way when the deadline passes.
        assert!(questions - retries <= 1, "{questions} questions, {retries} retries");
        // A wait of 1.7 to 3.4 us, and a question and its answer.
        assert!((10..30).contains(&retries), "{retries}");
        // Several windows later a wait lasts for up to 16 times as long.
        (0..4 * WINDOW_ATTEMPTS).for_each(|_| waiter.backoff.note(true));
        let (fewer, cost) = ask_for(100_000);
        assert_eq!(cost[..3], [0; 3]);
        assert!(fewer < 10, "{fewer}");
        stage
            .sim
            .block_on(holder.release(&mut holding.cx(), grant))
            .expect("the agent is there");
    }

    /// The agent takes the letter and does not answer. After a lease the client finds that another one has taken over.
    #[test]
    fn a_client_asks_the_next_agent_when_the_first_is_silent() {
        let stage = Stage::new();
        let _silent = start(&stage, false);
        let machine = stage.machine();
        let lock = lock(&machine);
        let mut cx = machine.cx();
        let start_costs = machine.costs();
        let acquired = machine.spawn(async move { lock.acquire(&mut cx, LOCK, Mode::Shared).await.is_ok() });
        stage.run_for(LEASE_NS + LEASE_NS / 2);
        assert!(acquired.take().is_none());
        // Looked up at first, and after a lease.
        assert_eq!(machine.cost_since(&start_costs), [2, 0, 0, 1]);
        let _agent = start(&stage, true);
        stage.run_for(LEASE_NS);
        assert_eq!(acquired.take(), Some(true));
        assert_eq!(machine.cost_since(&start_costs), [4, 0, 0, 2]);
    }

    #[test]
    fn without_an_agent_there_is_no_lock() {
        let stage = Stage::new();
        let machine = stage.machine();
        let lock = lock(&machine);
        let start_costs = machine.costs();
        let refused = stage.sim.block_on(lock.acquire(&mut machine.cx(), LOCK, Mode::Shared));
        let block = Stage::options().service.expect("there is one");
        assert_eq!(refused, Err(LockError::NoAgent { block }));
        // 10, 20, ... 640 us: less than a lease each.
        assert_eq!(machine.cost_since(&start_costs), [7, 0, 0, 0]);
        // The agent has died, and no other one comes.
        let agent = start(&stage, true);
        stage.sim.crash_client(agent.endpoint.id());
        let refused = stage.sim.block_on(lock.acquire(&mut machine.cx(), LOCK, Mode::Shared));
        assert_eq!(refused, Err(LockError::NoAgent { block }));
    }
}
