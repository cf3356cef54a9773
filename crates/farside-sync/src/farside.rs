//! `farside`: an update that has lost to another one swaps the pointer under the identity of its slot, and so never loses
//! twice.
//!
//! On the path: UPDATE and DELETE that do not depend on what they replace. Every scheme of the field compares the whole
//! pointer, so of n clients that replace one key's item at once n - 1 try again. But an update does not care *which*
//! item it replaces, only that the slot still belongs to *its key*. The word of a slot says so itself: its upper
//! 16 bits, fingerprint and version, are its *identity* ([`Pointer`]), and change whenever the slot gets another set of
//! keys or is about to move.
//!
//!  1. If the data pointer has no credit on this compute node ([`contention`](crate::contention)): compare and swap the whole
//!     word. If nobody was quicker, that is all. If the identity is another one, look for the key again. If only another
//!     update was quicker, the data pointer gets credit, and step 2 follows.
//!  2. One masked compare-and-swap: **compare the identity, swap the word**. Updates of one key all succeed, one after the
//!     other, in the order in which they reach the memory; the last one wins.
//!  3. Who came with credit says what it found: others' pointers (more credit) or the one it had seen (half of it).
//!
//! So an update is two atomics at most, and one if its key is cold or known to be hot. Step 1 is there because cards take
//! longer for masked atomics than for plain ones; where they did not, step 2 alone would do. `docs/farside-scheme.md` tells it
//! at length.
//!
//! # Why that is right
//! - *No update is lost to a move*: whoever moves an entry freezes it first, which changes its identity, and copies what
//!   it finds then. An update comes before that, and is copied, or fails, and looks for the key again.
//! - *No update hits another key*: keys come and go with a change of the version. It has 7 bits, so an operation must not
//!   live through 128 changes; a slot whose version has come round is therefore not used again before all operations
//!   have ended that may have seen it before ([`Pointer::emptied`]).
//! - *No block is retired twice, or never*: the swap returns the pointer that it replaced. Each pointer is replaced by
//!   exactly one swap, and whoever made it retires the block.
//! - *Linearizable*: an update takes effect at its swap. A change that depends on the value (INCR, a condition) compares the
//!   whole word, as `optimistic` does, and notices any update in between.
//! - *Credit decides nothing*: it chooses between two swaps, either of which is right.
//!
//! # Where masked atomics are missing
//! A compare-and-swap of the whole word. Who loses to another update need not read anything again: as long as the
//! identity is the same it tries once more with the pointer that it saw, one round trip for each time.

use core::cell::RefCell;

use farside_fabric::mutant::is_planted;
use farside_fabric::{FabricError, MaskedCas, OpContext};

use crate::contention::Contention;
use crate::optimistic::overwrite_by_turns;
use crate::{Pointer, Publish, Target};

/// Replaces whatever the slot holds by `new`, if it still has the identity of `old`.
///
/// # Errors
/// What the fabric reports.
#[inline]
pub(crate) async fn overwrite(
    cx: &mut OpContext,
    contention: &RefCell<Contention>,
    target: Target,
    old: Pointer,
    new: Pointer,
) -> Result<Publish, FabricError> {
    let slot = target.slot;
    if !cx.endpoint().capabilities().masked_atomics {
        return overwrite_by_turns(cx, slot, old, new).await;
    }
    let is_blind = is_planted("farside: a swap that compares nothing");
    let is_hot = contention.borrow_mut().take_credit(target.name);
    if !is_hot && !is_blind {
        let seen = Pointer::from_word(cx.compare_swap(slot, old.to_word(), new.to_word()).await?);
        if seen == old {
            return Ok(Publish::Replaced { old });
        }
        cx.count_retry();
        if !seen.has_identity_of(old) {
            return Ok(Publish::Lost { current: seen });
        }
        contention.borrow_mut().note_lost(target.name);
    }
    let operands = MaskedCas {
        compare: old.to_word(),
        compare_mask: if is_blind { 0 } else { Pointer::IDENTITY },
        swap: new.to_word(),
        swap_mask: u64::MAX,
    };
    let seen = Pointer::from_word(cx.masked_compare_swap(slot, operands).await?);
    if is_hot {
        contention.borrow_mut().note_with_credit(target.name, seen != old);
    }
    if seen.has_identity_of(old) || is_blind {
        return Ok(Publish::Replaced { old: seen });
    }
    cx.count_retry();
    Ok(Publish::Lost { current: seen })
}
