//! Operations on many keys, sixteen of which travel together.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use crate::border::{OutSlices, Slice, Slices, allocated, given};
use crate::fault::{Status, answer};
use crate::store::OpenStore;

/// The values of `count` keys, in their order; they are not one snapshot. `values` has room for as many; `data` is NULL where
/// there is no such key. All stand in `memory`, which one call of farside_free() gives back.
#[unsafe(no_mangle)]
pub extern "C" fn farside_get_many(
    store: Option<&OpenStore>,
    keys: Slices,
    count: usize,
    mut values: OutSlices,
    memory: Option<&mut MaybeUninit<*mut c_void>>,
) -> Status {
    answer(|| {
        let (keys, memory) = (keys.pieces(count, "keys")?, given(memory, "memory")?);
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        given(store, "store")?
            .opened
            .with(|session| session.get_many_into(&keys, &mut bytes, &mut places))?;
        let start = allocated(&bytes)?;
        memory.write(start);
        values.fill(places.into_iter().map(|place| Slice::behind(start, place)))
    })
}

/// Stores `count` values for good. Of several with one key the last one stays. After an error some of them are stored.
#[unsafe(no_mangle)]
pub extern "C" fn farside_set_many(store: Option<&OpenStore>, keys: Slices, values: Slices, count: usize) -> Status {
    answer(|| {
        let (keys, values) = (keys.pieces(count, "keys")?, values.pieces(count, "values")?);
        let items = keys.into_iter().zip(values);
        given(store, "store")?
            .opened
            .with(|session| session.put_many(items))
            .map(drop)
    })
}

/// Removes `count` keys; `removed`, which may be NULL, becomes how many were there. After an error some of them are removed.
#[unsafe(no_mangle)]
pub extern "C" fn farside_delete_many(
    store: Option<&OpenStore>,
    keys: Slices,
    count: usize,
    removed: Option<&mut MaybeUninit<u64>>,
) -> Status {
    answer(|| {
        let keys = keys.pieces(count, "keys")?;
        let was_there = given(store, "store")?
            .opened
            .with(|session| session.delete_many(&keys))?;
        if let Some(removed) = removed {
            removed.write(was_there);
        }
        Ok(())
    })
}
