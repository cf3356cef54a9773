//! The locks of a table: words in buckets, subtables and the directory, held for a few round trips.
//!
//! On the path: INSERT locks the key's first bucket, so that of two clients that insert the same key one
//! sees what the other did; a split locks its subtable and, at the end, the directory. SEARCH, UPDATE
//! and DELETE take no lock.
//!
//! A lock names its holder. Whoever finds one held by a client that has left or was declared dead takes
//! it over: a dead client was cut off before, so nothing of it arrives any more. Everything that is done
//! under a lock is in order at each step, or is done again by whoever takes the lock over.

use core::task::{Context, Waker};

use farside_fabric::{Endpoint, OpContext, RemoteAddr};

use super::layout::LockWord;

/// A lock that this client holds, or may hold: a swap for it was posted. Given back when dropped, so that
/// an operation that is cancelled or meets its deadline leaves nothing locked.
pub(super) struct Held {
    endpoint: Endpoint,
    at: RemoteAddr,
    word: LockWord,
    may_be_held: bool,
}

impl Held {
    /// To be made before the swap is posted.
    pub(super) fn expect(endpoint: &Endpoint, at: RemoteAddr, word: LockWord) -> Self {
        Self {
            endpoint: endpoint.clone(),
            at,
            word,
            may_be_held: true,
        }
    }

    /// Notes that the lock was given back, or was never ours.
    pub(super) fn end(mut self) {
        self.may_be_held = false;
    }
}

impl Drop for Held {
    /// Posts the swap back at once, so that it comes after the swap for the lock and before whatever this
    /// client posts next; a task waits for it.
    fn drop(&mut self) {
        if !self.may_be_held || farside_fabric::mutant::is_planted("race: a lock kept by whoever gives up") {
            return;
        }
        let (endpoint, at, mine) = (self.endpoint.clone(), self.at, self.word.0);
        let mut swap_back = Box::pin(async move {
            // If that fails the connection is gone, and the lock is taken over with this client's death.
            let _ = OpContext::new(endpoint).compare_swap(at, mine, LockWord::FREE.0).await;
        });
        let posted = swap_back.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if posted.is_pending() {
            self.endpoint.spawn(swap_back);
        }
    }
}
