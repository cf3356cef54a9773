//! Optimistic synchronisation (O-SYNC): one compare-and-swap decides.
//!
//! On the path: UPDATE, INSERT and DELETE have written their item out of place and swap the pointer
//! (CIDER, section 2.2). Of n clients that replace the same pointer at once one succeeds per round,
//! so they need up to n (n - 1) / 2 retries: the collapse that CIDER's Figure 1 shows.
//!
//! The same address cannot come back while this operation runs: blocks are not reused before every
//! operation that may know them has ended, so equal pointers mean an untouched slot (no ABA).

use farside_fabric::mutant::is_planted;
use farside_fabric::{FabricError, OpContext, RemoteAddr};

use crate::{Pointer, Publish};

/// Replaces `old` by `new` unless another client has replaced it first.
///
/// # Errors
/// What the fabric reports.
#[inline]
pub async fn publish(cx: &mut OpContext, slot: RemoteAddr, old: Pointer, new: Pointer) -> Result<Publish, FabricError> {
    if is_planted("optimistic: published without a comparison") {
        cx.write_word(slot, new.to_word()).await?;
        return Ok(Publish::Replaced { old });
    }
    let seen = cx.compare_swap(slot, old.to_word(), new.to_word()).await?;
    if seen == old.to_word() {
        return Ok(Publish::Replaced { old });
    }
    cx.count_retry();
    Ok(Publish::Lost {
        current: Pointer::from_word(seen),
    })
}

/// Replaces whatever the slot holds by `new`, if it still has the identity of `old`: who loses to another update need not
/// read anything again, but tries once more with the pointer that it saw, one round trip for each time.
///
/// # Errors
/// What the fabric reports.
pub async fn overwrite_by_turns(
    cx: &mut OpContext,
    slot: RemoteAddr,
    old: Pointer,
    new: Pointer,
) -> Result<Publish, FabricError> {
    let mut expected = old;
    // Ends: each turn that fails means that another client has made progress.
    loop {
        let seen = Pointer::from_word(cx.compare_swap(slot, expected.to_word(), new.to_word()).await?);
        if seen == expected {
            return Ok(Publish::Replaced { old: seen });
        }
        cx.count_retry();
        if !seen.has_identity_of(old) {
            return Ok(Publish::Lost { current: seen });
        }
        expected = seen;
    }
}
