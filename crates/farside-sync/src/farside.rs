//! `farside`: an update swaps the pointer under the identity of its slot, and never loses to another update.
//!
//! On the path: UPDATE and DELETE that do not depend on what they replace. Every scheme of the field compares the whole
//! pointer, so of n clients that replace one key's item at once n - 1 try again. But an update does not care *which*
//! item it replaces, only that the slot still belongs to *its key*. The word of a slot says so itself: its upper
//! 16 bits, fingerprint and version, are its *identity* ([`Pointer`]), and change whenever the slot gets another set of
//! keys or is about to move. So one masked compare-and-swap decides: **compare the identity, swap the word**. Updates
//! of one key all succeed, one after the other, in the order in which they reach the memory; the last one wins.
//!
//! # Why that is right
//! - *No update is lost to a move*: whoever moves an entry freezes it first, which changes its identity, and copies what
//!   it finds then. An update comes before that, and is copied, or fails, and looks for the key again.
//! - *No update hits another key*: keys come and go with a change of the version. It has 8 bits, so an operation must not
//!   live through 256 changes; a slot whose version has come round is therefore not used again before all operations
//!   have ended that may have seen it before ([`Pointer::emptied`]).
//! - *No block is retired twice, or never*: the swap returns the pointer that it replaced. Each pointer is replaced by
//!   exactly one swap, and whoever made it retires the block.
//! - *Linearizable*: an update takes effect at its swap. A change that depends on the value (INCR, a condition) compares the
//!   whole word, as `optimistic` does, and notices any update in between.
//!
//! # Where masked atomics are missing
//! A compare-and-swap of the whole word. Who loses to another update need not read anything again: as long as the
//! identity is the same it tries once more with the pointer that it saw, one round trip for each time.

use farside_fabric::mutant::is_planted;
use farside_fabric::{Endpoint, FabricError, MaskedCas, OpContext, RemoteAddr};

use crate::optimistic::overwrite_by_turns;
use crate::{Pointer, Publish};

/// Replaces whatever the slot holds by `new`, if it still has the identity of `old`.
///
/// # Errors
/// What the fabric reports.
#[inline]
pub async fn overwrite<E: Endpoint>(
    cx: &mut OpContext<E>,
    slot: RemoteAddr,
    old: Pointer,
    new: Pointer,
) -> Result<Publish, FabricError> {
    if !cx.endpoint().capabilities().masked_atomics {
        return overwrite_by_turns(cx, slot, old, new).await;
    }
    let is_blind = is_planted("farside: a swap that compares nothing");
    let operands = MaskedCas {
        compare: old.to_word(),
        compare_mask: if is_blind { 0 } else { Pointer::IDENTITY },
        swap: new.to_word(),
        swap_mask: u64::MAX,
    };
    let seen = Pointer::from_word(cx.masked_compare_swap(slot, operands).await?);
    if seen.has_identity_of(old) || is_blind {
        return Ok(Publish::Replaced { old: seen });
    }
    cx.count_retry();
    Ok(Publish::Lost { current: seen })
}
