//! The CAS lock with shared mode: a writer's name or a count of readers in one word (Chung and Zamanian,
//! *Using RDMA for Lock Management*, 2015; the CASLock of DecLock's section 6.1).
//!
//! The word is 0 while the lock is free ([`SharedWord`]).
//!
//! Acquire:
//!  1. compare-and-swap 0 for the own word, or to read for one reader more than were there when we last saw it.
//!  2. It found something else: try again at once.
//!
//! Release: a writer WRITEs 0, a reader subtracts 1 by fetch-and-add.
//!
//! There is no order: any waiting client may be next, and readers that come one after the other keep
//! writers out for as long as they do.
//!
//! Cost without contention: one atomic; one WRITE, or to read one atomic.

use core::cell::Cell;
use std::rc::Rc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Endpoint, OpContext, RemoteAddr, Verb};

use crate::atomics::{compare_swap, execute};
use crate::backoff::give_way;
use crate::grant::Held;
use crate::inbox::Seat;
use crate::patience::{self, until};
use crate::word::Holder;
use crate::{Grant, Lock, LockError, LockOptions, Mode};

crate::bit_fields! {
    /// The lock word; all zeros are a free lock.
    pub struct SharedWord {
        /// Without a writer: how many readers are inside. With one: who it is.
        body, with_body: 0..63;
        /// Whether a writer holds the lock.
        writer, with_writer: 63..64;
    }
}

impl SharedWord {
    /// Nobody holds the lock.
    pub const FREE: Self = Self(0);

    /// The word of a lock that `holder` writes under.
    ///
    /// # Panics
    /// If the endpoint's identity is 0 or has more than 47 bits.
    #[must_use]
    pub const fn written_by(holder: Holder) -> Self {
        assert!(
            holder.endpoint != 0 && holder.endpoint < 1 << 47,
            "an endpoint's identity is not 0"
        );
        let body = (holder.client as u64) << 47 | holder.endpoint;
        Self::FREE.with_writer(1).with_body(body)
    }

    /// What to compare with, and what to swap in, after this word was seen.
    #[inline]
    #[must_use]
    pub fn next(self, mode: Mode, mine: Self) -> (Self, Self) {
        let is_read = self.writer() == 0 || is_planted("cas-rw: readers beside a writer");
        match mode {
            Mode::Exclusive => (Self::FREE, mine),
            Mode::Shared if is_read => (self, Self(self.0 + 1)),
            Mode::Shared => (Self::FREE, Self(1)),
        }
    }
}

/// A client's side of the CAS lock with shared mode.
#[derive(Debug)]
pub struct CasRwLock {
    /// Nobody writes to it; its number is the client's.
    _seat: Seat,
    mine: SharedWord,
}

impl CasRwLock {
    /// A client that has this seat.
    #[must_use]
    pub fn new(seat: Seat) -> Self {
        let holder = Holder {
            endpoint: seat.place().endpoint.0,
            client: seat.number(),
        };
        Self {
            _seat: seat,
            mine: SharedWord::written_by(holder),
        }
    }
}

impl Lock for CasRwLock {
    fn entry_bytes(_: &LockOptions) -> u64 {
        8
    }

    async fn acquire(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Result<Grant, LockError> {
        let endpoint = cx.endpoint().clone();
        // The count does not tell whose swap took effect late: so swaps have no deadline of their own, and what
        // is granted late is given back.
        let later = {
            let endpoint = endpoint.clone();
            async move |acquired: Result<(), LockError>| {
                if acquired.is_ok() {
                    // If that fails the connection is gone, or the node.
                    let _ = release(endpoint, entry, mode).await;
                }
            }
        };
        let work = acquire(endpoint, entry, mode, self.mine, cx.retry_meter());
        match until(cx.endpoint(), cx.deadline(), work, later).await {
            Some(acquired) => acquired.map(|()| Grant::new(entry, mode, Held::Plain)),
            None => Err(LockError::Timeout { entry }),
        }
    }

    async fn release(&self, cx: &mut OpContext, grant: Grant) -> Result<(), LockError> {
        let entry = grant.entry();
        patience::release(cx, entry, release(cx.endpoint().clone(), entry, grant.mode())).await
    }
}

async fn acquire(
    endpoint: Endpoint,
    entry: RemoteAddr,
    mode: Mode,
    mine: SharedWord,
    retries: Rc<Cell<u64>>,
) -> Result<(), LockError> {
    let mut seen = SharedWord::FREE;
    // Ends when the lock is free at our turn.
    loop {
        let (expected, wanted) = seen.next(mode, mine);
        seen = SharedWord(compare_swap(&endpoint, entry, expected.0, wanted.0).await?);
        if seen == expected {
            return Ok(());
        }
        retries.set(retries.get() + 1);
        give_way().await;
    }
}

async fn release(endpoint: Endpoint, entry: RemoteAddr, mode: Mode) -> Result<(), LockError> {
    let verb = match mode {
        Mode::Exclusive => Verb::WriteWord {
            target: entry,
            value: SharedWord::FREE.0,
        },
        Mode::Shared => Verb::FetchAdd {
            target: entry,
            add: u64::MAX,
        },
    };
    execute(&endpoint, verb).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn writers() -> impl Strategy<Value = SharedWord> {
        (1_u64..1 << 47, any::<u16>())
            .prop_map(|(endpoint, client)| SharedWord::written_by(Holder { endpoint, client }))
    }

    proptest! {
        /// Whatever was seen last, a swap that succeeds lets in a writer alone, or one reader more.
        #[test]
        fn a_swap_that_succeeds_is_a_legal_step(mine in writers(), other in writers(), readers in 0_u64..1 << 20) {
            for seen in [other, SharedWord(readers)] {
                let (expected, wanted) = seen.next(Mode::Exclusive, mine);
                prop_assert_eq!((expected, wanted), (SharedWord::FREE, mine));
                let (expected, wanted) = seen.next(Mode::Shared, mine);
                prop_assert_eq!(expected.writer(), 0);
                prop_assert_eq!((wanted.writer(), wanted.body()), (0, expected.body() + 1));
                prop_assert_eq!(wanted.0.wrapping_add(u64::MAX), expected.0);
            }
        }
    }
}
