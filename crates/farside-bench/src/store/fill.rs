//! Filling an index before the clients come.

use core::sync::atomic::Ordering;
use std::borrow::Cow;

use farside_fabric::region::Region;
use farside_fabric::{Endpoint, OpContext};
use farside_index::{Decision, Index, Likely, PointerArray};
use farside_lock::backoff::give_way;
use farside_pool::BulkLoader;
use farside_sync::{Pointer, SizeHint};

use super::{KEY_BYTES_MIN, StoreProgram};
use crate::error::BenchError;

/// After how many INSERTs housekeeping gets a turn, where verbs complete at once.
const INSERTS_PER_TURN: u64 = 64;

/// Lays out every item of a pointer array and its slot, without verbs ([`BulkLoader`]).
pub(super) fn lay_out<E: Endpoint>(
    program: &StoreProgram,
    array: &PointerArray<E>,
    region: &Region,
) -> Result<(), BenchError> {
    let geometry = array.pool().geometry()[0];
    let count = program.population.items_at_start();
    let bytes = program.item_bytes();
    let mut loader = BulkLoader::new(geometry, region, bytes);
    let (mut key, value) = (vec![0; program.key_bytes], program.first_value());
    let mut block = vec![0; bytes as usize];
    for number in 0..count {
        key[..KEY_BYTES_MIN].copy_from_slice(&number.to_le_bytes());
        program.item(&key, &value).encode(&mut block);
        let pointer = Pointer::new(loader.block(&block)?, SizeHint::for_item(bytes), 1);
        let slot = region.word(array.slot_addr(number).offset());
        slot.store(pointer.to_word(), Ordering::Relaxed);
    }
    if count > 0 {
        loader.finish();
    }
    Ok(())
}

/// INSERTs every item, one after the other.
pub(super) async fn insert<E: Endpoint>(
    program: &StoreProgram,
    index: &Index<E>,
    cx: &mut OpContext<E>,
) -> Result<(), BenchError> {
    let (mut key, value) = (vec![0; program.key_bytes], program.first_value());
    let likely = Likely {
        value: &value,
        expiry_ms: 0,
        regardless: false,
    };
    for number in 0..program.population.items_at_start() {
        key[..KEY_BYTES_MIN].copy_from_slice(&number.to_le_bytes());
        let change = index.change(cx, &key, Some(likely), |_| Decision::Put {
            regardless: false,
            value: Cow::Borrowed(&value[..]),
            expiry_ms: 0,
        });
        change.await?;
        if number.is_multiple_of(INSERTS_PER_TURN) {
            give_way().await;
        }
    }
    Ok(())
}
