//! `cider` (CIDER, section 4): updates of cold keys compare and swap, those of hot keys queue up, and the last in the queue
//! writes for all.
//!
//! On the path: UPDATE and DELETE that do not depend on what they replace. An update asks whether its data pointer has credit
//! on this compute node (`contention`). If not it writes its item and swaps the pointer, again and again. If it has, it enters
//! the queue of the data pointer ([`farside_lock::cider`]) before it writes anything: it either gets its turn and does the
//! same, or is told that the last one in the queue has, in its stead. A DELETE always enters the queue. An INSERT never does:
//! it swaps an empty pointer, like the changes that depend on what they replace.
//!
//! # What decides
//! The compare-and-swap of the pointer, in either way: a client retries it as long as the slot has the same identity, in the
//! queue, too, where it may lose to one that goes the optimistic way. The queue decides who need not try at all. So nothing
//! is lost when a lock is reset while its holder is only slow, and clients of other schemes may work on the same memory.
//!
//! # Versions
//! The version of the lock entry has four bits, as in the paper. It counts deletions: a pointer's version grows by one with an
//! INSERT and by one with a DELETE, so half of it is that count; in a tree by two with each key that comes, from two on. Wherever the two do not fit (a DELETE has died in between, or
//! lost; an operation that depends on the value has deleted the key; the pointer's version rests and starts anew), updates are
//! rejected. Who is rejected and finds the data pointer as it was sets the version of an empty queue right, or goes the
//! optimistic way if the queue is not empty: that costs a batch, and nothing else.
//!
//! # Parts
//! `cider-no-wc` does not combine: who has credit waits for its turn, and writes. Batches being always of one, credit is then
//! measured by whether somebody else was in the queue. `cider-no-ca` does not switch: all updates queue up (section 5.4).

use farside_fabric::{FabricError, OpContext, Task};
use farside_lock::LockError;
use farside_lock::cider::{Client, Entered as Queued, Outcome, Request, Version};
use farside_lock::patience::carry;
use farside_pool::Pin;

use crate::Pointer;
use crate::synchroniser::{Entered, Intent, Synchroniser, Target};
use crate::turn::{Held, Turn};

/// How often a version is set right before an update goes the optimistic way.
const REPAIRS_MAX: u32 = 2;

/// The way of an update or a DELETE that is about to write.
pub(crate) async fn enter(
    sync: &Synchroniser,
    cx: &mut OpContext,
    target: Target,
    old: Pointer,
    intent: Intent,
    pin: &Pin,
) -> Result<Entered, FabricError> {
    let parts = sync.parts();
    let is_pessimistic =
        intent == Intent::Delete || !parts.switches || sync.contention().borrow_mut().take_credit(target.name);
    if !is_pessimistic {
        return Ok(Entered::Turn(Turn::noted()));
    }
    sync.count(|counts| counts.pessimistic += 1);
    let request = Request {
        entry: target.lock,
        version: version(old),
        identity: old.identity(),
        is_delete: intent == Intent::Delete,
        combines: parts.combines,
    };
    let client = Client::new(cx.endpoint().clone(), sync.site(), cx.retry_meter());
    for _ in 0..=REPAIRS_MAX {
        match queue_up(cx, &client, request, pin).await {
            Ok(Queued::Turn(place)) => {
                return Ok(Entered::Turn(Turn::holding(Held::Place {
                    client,
                    place,
                    pin: pin.clone(),
                })));
            }
            Ok(Queued::Combined(Outcome::Replaced)) => {
                sync.count(|counts| {
                    counts.combined += 1;
                    counts.contended += 1;
                });
                note(sync, target, true);
                return Ok(Entered::Combined);
            }
            Ok(Queued::Combined(_)) => {
                let current = Pointer::from_word(cx.read_word(target.slot).await?);
                if !current.has_identity_of(old) {
                    return Ok(Entered::Lost { current });
                }
            }
            Ok(Queued::Rejected(seen)) => {
                cx.count_retry();
                let current = Pointer::from_word(cx.read_word(target.slot).await?);
                if !current.has_identity_of(old) {
                    return Ok(Entered::Lost { current });
                }
                if seen.tail().place().is_some() {
                    break;
                }
                client.repair(&request, seen).await?;
            }
            Err(LockError::Fabric(error)) => return Err(error),
            // No seat: too many wait at this endpoint.
            Err(_) => break,
        }
    }
    Ok(Entered::Turn(Turn::free()))
}

/// Enters the queue; what goes on without this client gives its turn away.
async fn queue_up(cx: &OpContext, client: &Client, request: Request, pin: &Pin) -> Result<Queued, LockError> {
    let (pin, later) = (pin.clone(), client.clone());
    let work = client.clone().enter(request);
    let give_up = |entered| -> Task {
        Box::pin(async move {
            if let Ok(Queued::Turn(place)) = entered {
                // If that fails the lock is reset.
                let _ = later.leave(place, Outcome::Refused).await;
            }
            drop(pin);
        })
    };
    match carry(cx.endpoint(), cx.deadline(), work, Box::new(give_up)).await {
        Some(entered) => entered,
        None => Err(FabricError::DeadlineExceeded {
            node: request.entry.node(),
        }
        .into()),
    }
}

/// A pessimistic update has ended (algorithm 1, lines 13 to 16).
pub(crate) fn note(sync: &Synchroniser, target: Target, went_together: bool) {
    if sync.parts().switches {
        let mut contention = sync.contention().borrow_mut();
        contention.note_with_credit(target.name, went_together);
    }
}

/// How often a key of the slot was deleted.
fn version(pointer: Pointer) -> Version {
    Version::of(u64::from(pointer.version().saturating_sub(1)) / 2)
}
