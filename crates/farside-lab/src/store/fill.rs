//! Filling an index before the clients come.

use core::sync::atomic::Ordering;
use std::borrow::Cow;

use farside_fabric::OpContext;
use farside_fabric::region::Region;
use farside_index::{Decision, Index, Item, Likely, Ordered, PointerArray, Race, Smart, Tag};
use farside_lock::backoff::give_way;
use farside_pool::BulkLoader;
use farside_sync::{Pointer, SizeHint};

use super::{KEY_BYTES_MIN, StoreProgram, key_start};
use crate::error::BenchError;
use crate::workload::client_random;
use crate::workload::zipf::unit;

/// After how many INSERTs housekeeping gets a turn, where verbs complete at once.
const INSERTS_PER_TURN: u64 = 64;

/// Lays out every item of a pointer array and its slot, without verbs ([`BulkLoader`]).
pub(super) fn lay_out(program: &StoreProgram, array: &PointerArray, region: &Region) -> Result<(), BenchError> {
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

/// Lays out every item of a RACE table and the table that INSERTs would have made, without verbs.
pub(super) fn lay_out_table(program: &StoreProgram, race: &Race, region: &Region) -> Result<(), BenchError> {
    let mut write_key = |number, key: &mut Vec<u8>| {
        key.resize(program.key_bytes, 0);
        key[..KEY_BYTES_MIN].copy_from_slice(&key_start(program.index, &program.population, number));
    };
    let count = program.population.items_at_start();
    Ok(race.lay_out(region, count, &mut write_key, &program.first_value())?)
}

/// Lays out every item of an ordered index with keys of eight bytes, without verbs, as full as INSERTs leave it.
pub(super) fn lay_out_ordered(program: &StoreProgram, index: &Ordered, region: &Region) -> Result<(), BenchError> {
    let numbers = 0..program.population.items_at_start();
    let mut keys: Vec<_> = numbers
        .map(|number| key_start(program.index, &program.population, number))
        .collect();
    keys.sort_unstable();
    let mut random = client_random(program.population.seed, u64::MAX - 1);
    let mut keys = keys.into_iter();
    Ok(index.lay_out(region, &mut keys, &program.first_value(), &mut || unit(&mut random))?)
}

/// The same for a radix tree.
pub(super) fn lay_out_radix(program: &StoreProgram, index: &Smart, region: &Region) -> Result<(), BenchError> {
    let numbers = 0..program.population.items_at_start();
    let keys: Vec<_> = numbers
        .map(|number| key_start(program.index, &program.population, number))
        .collect();
    Ok(index.lay_out(region, &keys, &program.first_value())?)
}

/// INSERTs every item, one after the other: for keys that are not laid out.
pub(super) async fn insert(program: &StoreProgram, index: &Index, cx: &mut OpContext) -> Result<(), BenchError> {
    let (mut key, value) = (vec![0; program.key_bytes], program.first_value());
    let likely = Likely {
        value: &value,
        expiry_ms: 0,
        regardless: false,
    };
    for number in 0..program.population.items_at_start() {
        key[..KEY_BYTES_MIN].copy_from_slice(&key_start(program.index, &program.population, number));
        let mut decide = |_: Option<Item<'_>>| Decision::Put {
            regardless: false,
            value: Cow::Borrowed(&value[..]),
            expiry_ms: 0,
            tag: Tag::String,
        };
        index.change(cx, &key, Some(likely), &mut decide).await?;
        if number.is_multiple_of(INSERTS_PER_TURN) {
            give_way().await;
        }
    }
    Ok(())
}
