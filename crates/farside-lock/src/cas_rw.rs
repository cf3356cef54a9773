//! The CAS lock with shared mode: a writer's mark and a count of readers in one word (Chung and Zamanian,
//! *Using RDMA for Lock Management*, 2015; the CASLock of DecLock's section 6.1).
//!
//! The word is 0 while the lock is free ([`SharedWord`]).
//!
//! Acquire, as a writer: compare-and-swap 0 for the mark, again and again.
//!
//! Acquire, as a reader: add 1 by fetch-and-add. A writer was there: READ the word until it is not. Readers count while they
//! wait, so that they never retry an atomic, and no writer gets past them: the next one has to find no reader at all.
//!
//! Release: a writer takes its mark away by compare-and-swap, again if the count has changed; a reader subtracts 1 by
//! fetch-and-add.
//!
//! There is no order among writers: any of them may be next, and readers that come one after the other keep writers out for as
//! long as they do. Two writers cannot keep a reader out: who comes second finds its count.
//!
//! Cost without contention: one atomic, and one atomic.

use core::cell::Cell;
use std::rc::Rc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Endpoint, OpContext, RemoteAddr, Verb};

use crate::atomics::execute;
use crate::backoff::give_way;
use crate::grant::Held;
use crate::inbox::Seat;
use crate::patience::{self, until};
use crate::{Grant, Lock, LockError, LockOptions, Mode};

crate::bit_fields! {
    /// The lock word; all zeros are a free lock.
    pub struct SharedWord {
        /// How many readers are inside, or wait for the writer.
        readers, with_readers: 0..32;
        /// Whether a writer holds the lock.
        writer, with_writer: 32..33;
    }
}

impl SharedWord {
    /// Nobody holds the lock.
    pub const FREE: Self = Self(0);

    /// A writer holds the lock, and no reader waits.
    pub const WRITTEN: Self = Self::FREE.with_writer(1);
}

/// A client's side of the CAS lock with shared mode.
#[derive(Debug)]
pub struct CasRwLock {
    /// Nobody writes to it: it keeps the client's place.
    _seat: Seat,
}

impl CasRwLock {
    /// A client that has this seat.
    #[must_use]
    pub fn new(seat: Seat) -> Self {
        Self { _seat: seat }
    }
}

impl Lock for CasRwLock {
    fn entry_bytes(_: &LockOptions) -> u64 {
        8
    }

    async fn acquire(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Result<Grant, LockError> {
        let endpoint = cx.endpoint().clone();
        // The word does not tell whose atomic took effect late: so they have no deadline of their own, and what is granted late
        // is given back.
        let later = {
            let endpoint = endpoint.clone();
            async move |acquired: Result<(), LockError>| {
                if acquired.is_ok() {
                    // If that fails the connection is gone, or the node.
                    let _ = release(endpoint, entry, mode).await;
                }
            }
        };
        let work = acquire(endpoint, entry, mode, cx.retry_meter());
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

async fn acquire(endpoint: Endpoint, entry: RemoteAddr, mode: Mode, retries: Rc<Cell<u64>>) -> Result<(), LockError> {
    let mut is_counted = false;
    // Ends when nobody is in the way at our turn.
    loop {
        let verb = match mode {
            Mode::Exclusive => Verb::CompareSwap {
                target: entry,
                compare: SharedWord::FREE.0,
                swap: SharedWord::WRITTEN.0,
            },
            Mode::Shared if is_counted => Verb::ReadWord { source: entry },
            Mode::Shared => Verb::FetchAdd { target: entry, add: 1 },
        };
        let seen = SharedWord(execute(&endpoint, verb).await? as u64);
        is_counted = true;
        let is_ours = match mode {
            Mode::Exclusive => seen == SharedWord::FREE,
            Mode::Shared => seen.writer() == 0 || is_planted("cas-rw: readers beside a writer"),
        };
        if is_ours {
            return Ok(());
        }
        retries.set(retries.get() + 1);
        give_way().await;
    }
}

async fn release(endpoint: Endpoint, entry: RemoteAddr, mode: Mode) -> Result<(), LockError> {
    let mut expected = SharedWord::WRITTEN;
    // Ends at once for a reader; for a writer when no reader has come or gone in between: each does so once.
    loop {
        let verb = match mode {
            Mode::Exclusive => Verb::CompareSwap {
                target: entry,
                compare: expected.0,
                swap: expected.with_writer(0).0,
            },
            Mode::Shared => Verb::FetchAdd {
                target: entry,
                add: u64::MAX,
            },
        };
        let seen = SharedWord(execute(&endpoint, verb).await? as u64);
        if mode == Mode::Shared || seen == expected {
            return Ok(());
        }
        expected = seen;
    }
}

#[cfg(test)]
mod tests {
    use super::SharedWord;

    #[test]
    fn readers_count_beside_a_mark_and_the_last_one_leaves_the_word_free() {
        let written = SharedWord::WRITTEN;
        let waiting = SharedWord(written.0 + 2);
        assert_eq!((waiting.writer(), waiting.readers()), (1, 2));
        let inside = waiting.with_writer(0);
        assert_eq!((inside.writer(), inside.readers()), (0, 2));
        let left = SharedWord(inside.0.wrapping_add(u64::MAX).wrapping_add(u64::MAX));
        assert_eq!(left, SharedWord::FREE);
    }
}
