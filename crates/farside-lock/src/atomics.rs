//! Atomics of work that may outlive its operation, and the fetch-and-store that no NIC has.
//!
//! On the path: queue locks. Their verbs have no deadline of their own, since a verb of unknown outcome
//! would leave a queue of unknown shape: it is the caller that stops waiting (see
//! [`patience`](crate::patience)). Words travel in the verbs themselves, so no buffer is needed.

use core::cell::Cell;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use farside_fabric::{Buffer, Deadline, Endpoint, FabricError, MaskedCas, OpContext, RemoteAddr, Verb};

/// Executes a verb on words.
pub(crate) async fn execute(endpoint: &Endpoint, verb: Verb) -> Result<u128, FabricError> {
    endpoint.execute(verb, &mut Buffer::default(), Deadline::NEVER).await
}

/// Both results, once both are there. The first one is posted first.
pub(crate) async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut first, mut second) = (None, None);
    poll_fn(|context| {
        if first.is_none()
            && let Poll::Ready(result) = one.as_mut().poll(context)
        {
            first = Some(result);
        }
        if second.is_none()
            && let Poll::Ready(result) = other.as_mut().poll(context)
        {
            second = Some(result);
        }
        match (first.take(), second.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

/// Compare-and-swap; returns the word before.
pub(crate) async fn compare_swap(
    endpoint: &Endpoint,
    target: RemoteAddr,
    compare: u64,
    swap: u64,
) -> Result<u64, FabricError> {
    Ok(execute(endpoint, Verb::CompareSwap { target, compare, swap }).await? as u64)
}

/// Compare-and-swap over mapped memory, in a plain call; returns whether the word was what it should be, and is the other one
/// now. If it fails nothing has happened.
pub(crate) fn swap_now(cx: &mut OpContext, target: RemoteAddr, compare: u64, swap: u64) -> bool {
    cx.compare_swap_now(target, compare, swap) == Some(Ok(compare))
}

/// The same for both words of an entry of 16 bytes; returns them as they were before, if they were what they should be.
pub(crate) fn wide_swap_now(cx: &mut OpContext, target: RemoteAddr, operands: MaskedCas<u128>) -> Option<u128> {
    let found = cx.execute_now(&Verb::WideCompareSwap { target, operands })?.ok()?;
    operands.matches(found).then_some(found)
}

/// After a swap for `mine` that met its deadline and may take the lock all the same: gives the lock back if it
/// does. Posted at once, so that it stays between that swap and the next one of this client, and waited
/// for by a task of its own.
pub(crate) fn withdraw(endpoint: &Endpoint, entry: RemoteAddr, mine: u64) {
    let client = endpoint.clone();
    let mut swap_back = Box::pin(async move {
        // If that fails the connection is gone, and the swap with it, or the node.
        let _ = compare_swap(&client, entry, mine, 0).await;
    });
    let posted = swap_back.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    if posted.is_pending() {
        endpoint.spawn(swap_back);
    }
}

/// Stores a word; returns the word before.
///
/// A masked compare-and-swap that compares nothing always swaps (ShiftLock, section 3.3): one atomic. A
/// fabric without masked atomics takes compare-and-swaps until one succeeds, each a retry: one when
/// nobody is in the way, and up to one more for each client that stores at the same time.
pub(crate) async fn swap(
    endpoint: &Endpoint,
    target: RemoteAddr,
    value: u64,
    retries: &Cell<u64>,
) -> Result<u64, FabricError> {
    if endpoint.capabilities().masked_atomics {
        let operands = MaskedCas {
            compare: 0,
            compare_mask: 0,
            swap: value,
            swap_mask: u64::MAX,
        };
        return Ok(execute(endpoint, Verb::MaskedCompareSwap { target, operands }).await? as u64);
    }
    let mut expected = 0;
    // Ends, since each turn means that another client has stored its word meanwhile, and a client
    // stores one for each place in the queue.
    loop {
        let found = compare_swap(endpoint, target, expected, value).await?;
        if found == expected {
            return Ok(found);
        }
        expected = found;
        retries.set(retries.get() + 1);
    }
}

#[cfg(test)]
mod tests {
    use farside_fabric::sim::{Profile, SimOptions};

    use super::*;
    use crate::testing::{LOCK, Stage};

    /// Without masked atomics it takes one turn more for a word that is not expected, which counts as a retry.
    #[test]
    fn a_store_takes_one_atomic_or_one_retry() {
        for (has_masked_atomics, before, retry_count) in [(true, 0, 0), (true, 7, 0), (false, 0, 0), (false, 7, 1)] {
            let stage = Stage::with(SimOptions {
                profile: Profile {
                    has_masked_atomics,
                    ..Profile::plain()
                },
                ..SimOptions::default()
            });
            let machine = stage.machine();
            let retries = Cell::new(5);
            stage.set_word(LOCK, before);
            let start = machine.costs();
            let found = stage.sim.try_block_on(swap(&machine.endpoint, LOCK, 9, &retries));
            assert_eq!(found, Some(Ok(before)));
            assert_eq!((stage.word(LOCK), retries.get()), (9, 5 + retry_count));
            assert_eq!(machine.cost_since(&start), [0, 0, 1 + retry_count, 0]);
        }
    }

    #[test]
    fn both_are_under_way_at_once_and_keep_their_order() {
        let stage = Stage::new();
        let machine = stage.machine();
        let add = |endpoint| execute(endpoint, Verb::FetchAdd { target: LOCK, add: 1 });
        let one_ns = {
            let start_ns = stage.sim.now_ns();
            let _ = stage.sim.block_on(add(&machine.endpoint));
            stage.sim.now_ns() - start_ns
        };
        let start_ns = stage.sim.now_ns();
        let found = stage.sim.block_on(both(add(&machine.endpoint), add(&machine.endpoint)));
        assert_eq!(found, (Ok(1), Ok(2)));
        assert!(stage.sim.now_ns() - start_ns < 2 * one_ns);
        // Whichever is done first.
        let endpoint = &machine.endpoint;
        for (one_ns, other_ns) in [(10, 20), (20, 10)] {
            let after = async |wait_ns: u64| {
                endpoint.sleep(wait_ns).await;
                wait_ns
            };
            assert_eq!(
                stage.sim.block_on(both(after(one_ns), after(other_ns))),
                (one_ns, other_ns)
            );
        }
    }
}
