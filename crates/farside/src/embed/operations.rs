//! What both interfaces do and a session of `farside-kv` does not offer as such.
//!
//! On the path: called with the session of whichever fabric.

use core::pin::Pin;

use farside_fabric::{Pipeline, interleave};
use farside_kv::{KvError, Session, Store, Transaction};

use super::error::Error;

/// How many changes [`put_many`] keeps in flight.
const IN_FLIGHT: usize = 16;

/// The values of many keys, each given to `visit` with its number.
pub(crate) async fn visit_many<K: AsRef<[u8]>>(
    session: &mut Session,
    keys: &[K],
    mut visit: impl FnMut(usize, Option<&[u8]>),
) -> Result<(), KvError> {
    const KEYS_AT_ONCE: usize = 1024;
    let mut number = 0;
    let mut slices = Vec::with_capacity(keys.len().min(KEYS_AT_ONCE));
    for part in keys.chunks(KEYS_AT_ONCE) {
        slices.clear();
        slices.extend(part.iter().map(AsRef::as_ref));
        let mut values = session.get_many(&slices);
        for _ in part {
            visit(number, values.next().await?);
            number += 1;
        }
    }
    Ok(())
}

/// A transaction over some keys; the inner result is that of its body.
pub(crate) async fn transaction<R, K: AsRef<[u8]>>(
    session: &mut Session,
    keys: &[K],
    mut body: impl FnMut(&mut Transaction) -> Result<R, Error>,
) -> Result<Result<R, Error>, KvError> {
    let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
    let answered = session.transaction_on(&keys, |transaction| {
        let answer = body(transaction);
        if answer.is_err() {
            transaction.give_up();
        }
        Ok(answer)
    });
    answered.await
}

/// Stores many items with several changes in flight; returns how many were stored before the first error.
pub(crate) async fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    store: &Store,
    items: impl Iterator<Item = (K, V)>,
) -> (u64, Result<(), KvError>) {
    let pipeline = Pipeline::default();
    let (items, stored) = (core::cell::RefCell::new(items), core::cell::Cell::new(0));
    let failed = core::cell::RefCell::new(None);
    let workers = (0..IN_FLIGHT).map(|_| {
        let mut session = store.pipelined_session(&pipeline);
        let (items, stored, failed) = (&items, &stored, &failed);
        async move {
            loop {
                let next = items.borrow_mut().next();
                let Some((key, value)) = next.filter(|_| failed.borrow().is_none()) else {
                    return;
                };
                match session.put(key.as_ref(), value.as_ref()).await {
                    Ok(()) => stored.set(stored.get() + 1),
                    Err(error) => {
                        failed.borrow_mut().get_or_insert(error);
                    }
                }
            }
        }
    });
    interleave(&pipeline, workers.collect()).await;
    (stored.get(), failed.into_inner().map_or(Ok(()), Err))
}

/// Bytes of the pool that hold something or are reserved for it, tables included.
pub(crate) async fn memory_used(session: &Session) -> Result<u64, KvError> {
    let pool = session.store().pool();
    let mut cx = farside_fabric::OpContext::new(pool.endpoint().clone());
    let mut used = 0;
    for geometry in pool.geometry() {
        used += geometry.chunks_at;
        for chunk in 0..geometry.chunk_count {
            if cx.read_word(geometry.chunk_word(chunk)).await? != 0 {
                used += geometry.chunk_bytes;
            }
        }
    }
    Ok(used)
}

/// A future on the heap, for those that are large and rare.
pub(crate) fn boxed<F: Future>(future: F) -> Pin<Box<F>> {
    Box::pin(future)
}
