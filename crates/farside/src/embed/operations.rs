//! What both interfaces do and a session of `farside-kv` does not offer as such.
//!
//! On the path: called with the session of whichever fabric.

use core::ops::Range;
use core::pin::Pin;

use arrayvec::ArrayVec;
use farside_kv::{KEYS_AT_ONCE, KvError, Session, Transaction};

use super::error::Error;

/// The values of many keys, each given to `visit` with its number.
pub(crate) async fn visit_many<K: AsRef<[u8]>>(
    session: &mut Session,
    keys: &[K],
    mut visit: impl FnMut(usize, Option<&[u8]>),
) -> Result<(), KvError> {
    let mut number = 0;
    for group in keys.chunks(KEYS_AT_ONCE) {
        let slices: ArrayVec<&[u8], KEYS_AT_ONCE> = group.iter().map(AsRef::as_ref).collect();
        let mut values = session.get_many(&slices);
        for _ in group {
            match values.next_now() {
                Some(value) => visit(number, value),
                None => visit(number, values.next().await?),
            }
            number += 1;
        }
    }
    Ok(())
}

/// The values of many keys, one behind the other in `values`, and where each stands; what was there goes.
pub(crate) async fn get_many_into<K: AsRef<[u8]>>(
    session: &mut Session,
    keys: &[K],
    values: &mut Vec<u8>,
    places: &mut Vec<Option<Range<usize>>>,
) -> Result<(), KvError> {
    values.clear();
    places.clear();
    let visit = |_, value: Option<&[u8]>| {
        let start = values.len();
        values.extend_from_slice(value.unwrap_or_default());
        places.push(value.map(|value| start..start + value.len()));
    };
    let visited = visit_many(session, keys, visit).await;
    if visited.is_err() {
        values.clear();
        places.clear();
    }
    visited
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

/// Stores many items; returns how many were stored before the first group in which an item was not.
pub(crate) async fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    session: &mut Session,
    mut items: impl Iterator<Item = (K, V)>,
) -> (u64, Result<(), KvError>) {
    let mut stored = 0;
    loop {
        let group: ArrayVec<(K, V), KEYS_AT_ONCE> = items.by_ref().take(KEYS_AT_ONCE).collect();
        if group.is_empty() {
            return (stored, Ok(()));
        }
        let slices: ArrayVec<(&[u8], &[u8]), KEYS_AT_ONCE> = group
            .iter()
            .map(|(key, value)| (key.as_ref(), value.as_ref()))
            .collect();
        let mut result = Ok(());
        let note = |put: Result<(), KvError>| match put {
            Ok(()) => stored += 1,
            Err(error) if result.is_ok() => result = Err(error),
            Err(_) => {}
        };
        session.put_many(&slices, note).await;
        if result.is_err() {
            return (stored, result);
        }
    }
}

/// Removes many keys; returns how many were there.
pub(crate) async fn delete_many<K: AsRef<[u8]>>(session: &mut Session, keys: &[K]) -> Result<u64, KvError> {
    let (mut count, mut result) = (0, Ok(()));
    for group in keys.chunks(KEYS_AT_ONCE) {
        let slices: ArrayVec<&[u8], KEYS_AT_ONCE> = group.iter().map(AsRef::as_ref).collect();
        let note = |deleted: Result<bool, KvError>| match deleted {
            Ok(was_there) => count += u64::from(was_there),
            Err(error) if result.is_ok() => result = Err(error),
            Err(_) => {}
        };
        session.delete_many(&slices, note).await;
        core::mem::replace(&mut result, Ok(()))?;
    }
    Ok(count)
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
