//! The lock service: an agent beside the locks, for what clients cannot do one-sidedly.
//!
//! On the path: nowhere, as long as nobody dies. Clients of ShiftLock ask the agent to take a lock from
//! whoever stopped in it (ShiftLock, section 3.6, *two-sided recovery*); the lock `rpc` is the agent's alone.
//!
//! The agent is a task of some endpoint, best of the memory node's own; it needs no thread. Clients find
//! it through the service's *block* in far memory, whose address is a setting
//! ([`LockOptions::service`](crate::LockOptions)):
//!
//! ```text
//! block:  | agent: its endpoint | (nothing) | era 0 | era 1 | ... | era 63 |
//!         0                     8           64                             576
//! ```
//!
//! Recovery of a lock, when a client says that its release count has stood still for too long:
//!  1. compare-and-swap the era of the lock from the client's number to the next. If that fails somebody
//!     was quicker, and the client has to look again;
//!  2. reset the entry with one masked compare-and-swap that compares the release count the client saw.
//!
//! Both go through the agent's endpoint: where a NIC executes the atomics of others, the processor's own
//! would not be atomic with them. Each lock has one of 64 eras, by its address, so that recoveries of
//! different locks rarely refuse each other.
//!
//! An agent may die at any point: another takes its place with [`Agent::start`], and clients ask
//! again. Two agents at once do no harm to ShiftLock; the locks that an agent grants itself (`rpc`)
//! end with it.

use farside_fabric::mutant::is_planted;
use farside_fabric::{Deadline, Endpoint, EndpointId, FabricError, LocalFuture, RemoteAddr, Verb};

use crate::atomics::{compare_swap, execute};
use crate::error::LockError;
use crate::inbox::{Arrived, Inbox, Seat};
use crate::letter::{AGENT_SEAT, ANY_STAMP, Letter, LetterKind, NO_SEAT};
use crate::rpc::Table;
use crate::shiftlock::word::{Entry, Releases};
use crate::site::Site;

/// Bytes of the service's block; its address is a multiple of 8.
pub const BLOCK_BYTES: u64 = ERAS_AT + 8 * ERA_COUNT;
const AGENT_AT: u64 = 0;
const ERAS_AT: u64 = 64;
const ERA_COUNT: u64 = 64;

/// Where the era of a lock is.
fn era_of(block: RemoteAddr, entry: RemoteAddr) -> RemoteAddr {
    // Fibonacci hashing: neighbouring locks have different eras.
    let index = (entry.to_bits() >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
    block.plus(ERAS_AT + 8 * (index % ERA_COUNT))
}

/// A lock, as a client saw it stand still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Standstill {
    /// Which lock.
    pub(crate) entry: RemoteAddr,
    /// The era in which it was seen.
    pub(crate) era: u64,
    /// Its release count all the time.
    pub(crate) releases: Releases,
}

/// The era of a lock.
pub(crate) async fn read_era(endpoint: &Endpoint, block: RemoteAddr, entry: RemoteAddr) -> Result<u64, FabricError> {
    let source = era_of(block, entry);
    Ok(execute(endpoint, Verb::ReadWord { source }).await? as u64)
}

/// Who the agent is, if there is one.
pub(crate) async fn read_agent(endpoint: &Endpoint, block: RemoteAddr) -> Result<Option<EndpointId>, FabricError> {
    let source = block.plus(AGENT_AT);
    let id = execute(endpoint, Verb::ReadWord { source }).await? as u64;
    Ok((id != 0).then_some(EndpointId(id)))
}

/// Asks the agent to recover a lock. There is no answer: the release count leaps, or the client has to ask
/// again a lease later.
pub(crate) async fn ask_recovery(
    endpoint: &Endpoint,
    block: RemoteAddr,
    inbox: &Inbox,
    still: Standstill,
) -> Result<(), FabricError> {
    let Some(agent) = read_agent(endpoint, block).await? else {
        return Ok(());
    };
    let letter = Letter {
        kind: LetterKind::Recover,
        seat: AGENT_SEAT,
        reply: NO_SEAT,
        stamp: ANY_STAMP,
        entry: still.entry,
        words: [still.era, still.releases.bits(), 0],
    };
    match inbox.send(endpoint, agent, letter).await {
        // It has died. The next one will have written its name when we ask again.
        Err(FabricError::PeerUnknown { .. }) => Ok(()),
        sent => sent,
    }
}

/// The agent of a lock service.
#[derive(Debug)]
pub struct Agent {
    endpoint: Endpoint,
    block: RemoteAddr,
    seat: Seat,
    table: Table,
}

impl Agent {
    /// Takes over: from now on clients ask this one.
    ///
    /// # Errors
    /// [`LockError::NoService`] if the site's options name no block, or what the fabric reports.
    ///
    /// # Panics
    /// If the endpoint is an agent already.
    pub fn start<'f>(endpoint: Endpoint, site: &'f Site) -> LocalFuture<'f, Result<Self, LockError>> {
        Box::pin(async move {
            let block = site.options().service.ok_or(LockError::NoService)?;
            let seat = site.inbox(endpoint.id()).take_agent_seat();
            let agent = Self {
                endpoint,
                block,
                seat,
                table: Table::default(),
            };
            // By compare-and-swap: the name of an agent that died over it may be on its way, and a WRITE would be
            // overwritten by it. Ends, since each turn means that another agent has started.
            let (at, mine) = (block.plus(AGENT_AT), agent.endpoint.id().0);
            let mut previous = 0;
            loop {
                if is_planted("service: an agent that overwrites the name of the next") {
                    let verb = Verb::WriteWord {
                        target: at,
                        value: mine,
                    };
                    execute(&agent.endpoint, verb).await?;
                    return Ok(agent);
                }
                let found = compare_swap(&agent.endpoint, at, previous, mine).await?;
                if found == previous {
                    return Ok(agent);
                }
                previous = found;
            }
        })
    }

    /// Answers clients until the fabric fails.
    ///
    /// # Errors
    /// Always: why it cannot go on.
    pub fn serve(self) -> LocalFuture<'static, LockError> {
        Box::pin(async move {
            loop {
                match self.serve_one().await {
                    // What a letter says is data from outside.
                    Ok(()) | Err(FabricError::OutOfBounds { .. } | FabricError::Misaligned { .. }) => {}
                    Err(error) => return error.into(),
                }
            }
        })
    }

    async fn serve_one(&self) -> Result<(), FabricError> {
        let Some(arrived) = self.seat.receive(&self.endpoint, Deadline::NEVER).await? else {
            return Ok(());
        };
        match arrived.letter.kind {
            LetterKind::Recover => self.recover(&arrived).await,
            LetterKind::Acquire | LetterKind::Release => self.table.answer(&self.endpoint, &self.seat, &arrived).await,
            _ => Ok(()),
        }
    }

    async fn recover(&self, arrived: &Arrived) -> Result<(), FabricError> {
        let Letter { entry, words, .. } = arrived.letter;
        let (era, releases) = (words[0], Releases::of_bits(words[1]));
        let at = era_of(self.block, entry);
        // Section 3.6: once per era.
        if compare_swap(&self.endpoint, at, era, era.wrapping_add(1)).await? != era {
            return Ok(());
        }
        let verb = Verb::WideCompareSwap {
            target: entry,
            operands: Entry::reset(releases),
        };
        execute(&self.endpoint, verb).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::testing::{LOCK, NODE, Stage};

    /// Neighbouring locks have different eras, all of them are used, and they stand where the block has them.
    #[test]
    fn every_lock_has_one_of_all_eras() {
        let block = RemoteAddr::new(NODE, 1024);
        let eras: Vec<u64> = (0..2_000)
            .map(|index| era_of(block, RemoteAddr::new(NODE, 16 * index)).offset() - block.offset())
            .collect();
        let all: BTreeSet<u64> = eras.iter().copied().collect();
        let places: BTreeSet<u64> = (0..ERA_COUNT).map(|era| ERAS_AT + 8 * era).collect();
        assert_eq!(all, places);
        assert_eq!(places.last(), Some(&(BLOCK_BYTES - 8)));
        assert!(eras.windows(2).all(|pair| pair[0] != pair[1]));
    }

    /// The last that starts is the agent, and each takes one swap more for each that has started before.
    #[test]
    fn the_last_agent_that_starts_is_the_one() {
        let stage = Stage::new();
        let asking = stage.machine();
        let block = asking.site.options().service.expect("there is one");
        assert_eq!(stage.sim.block_on(read_agent(&asking.endpoint, block)), Ok(None));
        for swaps in [1, 2, 2] {
            let machine = stage.machine();
            let start = machine.costs();
            let agent = stage
                .sim
                .block_on(Agent::start(machine.endpoint.clone(), &machine.site));
            assert!(agent.is_ok());
            assert_eq!(machine.cost_since(&start), [0, 0, swaps, 0]);
            let found = stage.sim.block_on(read_agent(&asking.endpoint, block));
            assert_eq!(found, Ok(Some(machine.endpoint.id())));
        }
    }

    /// A lock is reset once per era, if its count is still the same.
    #[test]
    fn a_lock_is_recovered_once_per_era() {
        let stage = Stage::new();
        let machine = stage.machine();
        let agent = stage
            .sim
            .block_on(Agent::start(machine.endpoint.clone(), &machine.site));
        let _served = machine.spawn(agent.expect("the node is there").serve());
        let asking = stage.machine();
        let block = asking.site.options().service.expect("there is one");
        let inbox = asking.site.inbox(asking.endpoint.id());
        let releases = || crate::shiftlock::word::Counts(stage.word(LOCK.plus(8))).releases();
        stage.set_word(LOCK.plus(8), 5);
        for (era, count, is_recovered, next) in [
            // Of another era, of another count, and as it is: that takes the era anyway.
            (1, 5, false, 0),
            (0, 4, false, 1),
            (1, 5, true, 2),
        ] {
            let still = Standstill {
                entry: LOCK,
                era,
                releases: Releases::new(count),
            };
            let asked = ask_recovery(&asking.endpoint, block, &inbox, still);
            stage.sim.block_on(asked).expect("the agent is there");
            stage.run_for(20_000);
            assert_eq!(releases() != 5, is_recovered);
            assert_eq!(stage.sim.block_on(read_era(&asking.endpoint, block, LOCK)), Ok(next));
        }
        assert_eq!(releases(), Releases::new(5).plus(crate::shiftlock::word::LEAP).bits());
        // Nobody is there any more: that is no error.
        stage.sim.crash_client(machine.endpoint.id());
        let still = Standstill {
            entry: LOCK,
            era: 2,
            releases: Releases::new(0),
        };
        let asked = ask_recovery(&asking.endpoint, block, &inbox, still);
        assert_eq!(stage.sim.block_on(asked), Ok(()));
    }
}
