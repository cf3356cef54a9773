//! INSERT, UPDATE and DELETE, and new layers.
//!
//! On the path: one attempt is pinned from its first READ to the end. What stands in its way (a frozen entry, a full leaf, no
//! block at hand, another client that was quicker) it waits for unpinned, and starts again.

use core::cell::RefCell;
use std::rc::Rc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{OpContext, at_once};
use farside_pool::{Pin, Purpose};
use farside_sync::{Pointer, SizeHint, Target};

use super::part::{PART_BYTES, Part, pointer_to};
use super::{Ordered, Place};
use crate::blocks::{DRAFT_BYTES_MAX, Draft, New, Updated};
use crate::error::IndexError;
use crate::item::{Item, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::operation::{Change, Decide, Decision, Likely};
use crate::tree::change::{Step as TreeStep, Wish};
use crate::tree::slot::{Slot, in_place_of};
use crate::tree::task::Name;

/// How an attempt ended.
enum Step {
    /// As it should.
    Done(Change),
    /// Another client was quicker.
    Lost,
    /// This client has no block left.
    Short { bytes: u64, purpose: Purpose },
    /// The entry is frozen.
    Frozen(Slot),
    /// Something is in the way of a part in its leaf.
    InTheWay(Part, TreeStep),
}

/// What an attempt has found of a key.
struct Here {
    /// Its part in the layer where the search ended, and where that part starts.
    part: (Part, usize),
    slot: Option<Slot>,
    /// Whether the slot has the key's own item, and for how many bytes its block was allocated.
    is_there: bool,
    old_bytes: u64,
    /// What will probably be stored, if it was written.
    draft: Option<Draft>,
}

impl Ordered {
    /// Reads what is stored under a key and changes it as `decide` says, atomically; see [`crate::Index::change`].
    ///
    /// # Errors
    /// See [`IndexError`]; nothing was changed unless the fabric failed while publishing.
    pub async fn change<'v>(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        likely: Option<Likely<'_>>,
        decide: Decide<'_, 'v>,
    ) -> Result<Change, IndexError> {
        if key.len() > KEY_BYTES_MAX {
            return Err(IndexError::KeyTooLong { bytes: key.len() });
        }
        let mut round = 0;
        // Ends when nobody is in the way; each failure means that another client has made progress, or is waited for until
        // it has.
        loop {
            self.blocks.pool.wait_at_gate(1).await?;
            let pin = self.tree.pin();
            // Only the first time: whoever has been overtaken may decide otherwise.
            let likely = likely.filter(|_| round == 0);
            let step = self.attempt(cx, key, likely, decide, &pin).await?;
            if let Step::Frozen(slot) = step {
                self.tree.await_thaw(cx, slot, round, &pin).await?;
            }
            drop(pin);
            match step {
                Step::Done(change) => return Ok(change),
                Step::Lost => cx.count_retry(),
                Step::Frozen(_) => {}
                Step::Short { bytes, purpose } => self.blocks.pool.restock(bytes, 1, purpose).await?,
                Step::InTheWay(part, step) => self.tree.prepare(cx, part.0, step).await?,
            }
            round += 1;
        }
    }

    /// An UPDATE over mapped memory, in a plain call; `None` if it is another change, or something is in the way, and nothing
    /// was changed. (What comes and goes takes the lock of a leaf, or claims an entry of it, and may wait.)
    pub(crate) fn change_now<'v>(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        decide: Decide<'_, 'v>,
    ) -> Option<Result<Change, IndexError>> {
        if key.len() > KEY_BYTES_MAX {
            return None;
        }
        let pin = self.tree.pin();
        let (here, decision) = match at_once(self.find_and_decide(cx, key, None, decide, &pin))? {
            Ok(decided) => decided,
            Err(error) => return Some(Err(error)),
        };
        let waits = match decision {
            Decision::Keep => false,
            Decision::Put { .. } => !here.is_there || here.slot.is_none_or(|slot| slot.pointer.is_frozen()),
            Decision::Delete { .. } => true,
        };
        if waits {
            return None;
        }
        let made = at_once(self.carry_out(cx, key, here, decision, &pin));
        match made.expect("nothing in an update waits where memory is mapped") {
            Ok(Step::Done(change)) => Some(Ok(change)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    }

    async fn attempt<'v>(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        likely: Option<Likely<'_>>,
        decide: Decide<'_, 'v>,
        pin: &Pin,
    ) -> Result<Step, IndexError> {
        let (here, decision) = self.find_and_decide(cx, key, likely, decide, pin).await?;
        self.carry_out(cx, key, here, decision, pin).await
    }

    /// What is there, and what becomes of it.
    async fn find_and_decide<'v>(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        likely: Option<Likely<'_>>,
        decide: Decide<'_, 'v>,
        pin: &Pin,
    ) -> Result<(Here, Decision<'v>), IndexError> {
        let (part, place) = self.find_settled(cx, key, likely, pin).await?;
        let (slot, stored, mut draft) = match &place {
            Place::Item {
                slot,
                header,
                is_own,
                draft,
            } => (Some(*slot), is_own.then(|| header.item(cx.buffer())), *draft),
            Place::Absent => (None, None, None),
        };
        let old_bytes = stored.map_or(0, |item| item.bytes());
        let is_there = stored.is_some();
        let decision = decide(stored);
        let is_meant = is_there && likely.is_some_and(|likely| likely.is_meant_by(&decision));
        if let Some(draft) = draft.take_if(|_| !is_meant)
            && !is_planted("ordered: a draft that is not given back")
        {
            self.blocks.pool.give_back(draft.block, draft.bytes);
        }
        let here = Here {
            part,
            slot,
            is_there,
            old_bytes,
            draft,
        };
        Ok((here, decision))
    }

    async fn carry_out(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        here: Here,
        decision: Decision<'_>,
        pin: &Pin,
    ) -> Result<Step, IndexError> {
        let Here {
            part: (part, depth),
            slot,
            is_there,
            old_bytes,
            draft,
        } = here;
        match decision {
            Decision::Keep => Ok(Step::Done(Change::Kept)),
            Decision::Put {
                value,
                expiry_ms,
                tag,
                regardless,
            } => {
                if value.len() > VALUE_BYTES_MAX {
                    return Err(IndexError::ValueTooLong { bytes: value.len() });
                }
                let item = Item {
                    key,
                    value: &value,
                    expiry_ms,
                    tag,
                };
                match slot {
                    Some(slot) if slot.pointer.is_frozen() => Ok(Step::Frozen(slot)),
                    None => self.insert(cx, part, item, pin).await,
                    Some(slot) if is_there => {
                        let new = New {
                            item,
                            regardless,
                            draft,
                        };
                        self.replace(cx, part, (slot, old_bytes), new, pin).await
                    }
                    Some(slot) => self.make_layer(cx, (part, depth), slot, pin).await,
                }
            }
            Decision::Delete { regardless } => match slot {
                Some(slot) if is_there && slot.pointer.is_frozen() => Ok(Step::Frozen(slot)),
                Some(slot) if is_there => self.remove(cx, part, (slot, old_bytes), regardless, pin).await,
                _ => Ok(Step::Done(Change::Kept)),
            },
        }
    }

    /// Another item under a key that is there.
    async fn replace(
        &self,
        cx: &mut OpContext,
        part: Part,
        (slot, old_bytes): (Slot, u64),
        new: New<'_>,
        pin: &Pin,
    ) -> Result<Step, IndexError> {
        let target = Target {
            slot: slot.at,
            lock: slot.lock,
            name: part.name(),
        };
        let purpose = Purpose::Overwrite;
        let updated = self.blocks.update(cx, target, (slot.pointer, old_bytes), new, pin);
        Ok(match updated.await? {
            Updated::Done(_) | Updated::Combined => Step::Done(Change::Updated),
            Updated::Lost => Step::Lost,
            Updated::Short { bytes } => Step::Short { bytes, purpose },
        })
    }

    /// An item under a part that has none.
    async fn insert(&self, cx: &mut OpContext, part: Part, item: Item<'_>, pin: &Pin) -> Result<Step, IndexError> {
        let (bytes, pool) = (item.bytes(), &self.blocks.pool);
        let Some(block) = pool.allocate(bytes) else {
            let purpose = Purpose::Insert;
            return Ok(Step::Short { bytes, purpose });
        };
        let draft = Draft { block, bytes };
        let wish = Wish::Insert(draft.pointer(0).to_word());
        if pool.notes_changes() {
            self.blocks.note_written(cx, draft).await?;
        }
        // Nobody waits for a leaf until a long item is written.
        let later = match bytes > DRAFT_BYTES_MAX {
            true => {
                self.blocks.write_to(cx, item, block, 0).await?;
                None
            }
            false => Some((item, block)),
        };
        let linked = Box::pin(self.tree.attempt(cx, part.0, wish, later, pin)).await;
        // On an error nobody knows whether it is linked.
        let step = linked.inspect_err(|_| pool.doubt())?;
        if let TreeStep::Done(Change::Inserted, _) = step {
            return Ok(Step::Done(Change::Inserted));
        }
        pool.give_back(block, bytes);
        Ok(match step {
            // Somebody else was quicker.
            TreeStep::Done(..) => Step::Lost,
            step => Step::InTheWay(part, step),
        })
    }

    async fn remove(
        &self,
        cx: &mut OpContext,
        part: Part,
        (slot, bytes): (Slot, u64),
        regardless: bool,
        pin: &Pin,
    ) -> Result<Step, IndexError> {
        // A key that shares its part with longer ones must not be taken for them.
        let expected = (!regardless || part.is_longer()).then_some(slot.pointer.to_word());
        if self.blocks.pool.notes_changes() && self.blocks.note_replaced(cx, slot.at).await? != slot.pointer {
            return Ok(Step::Lost);
        }
        let unlinked = Box::pin(self.tree.unlink_key(cx, part.0, (Some(slot), expected), pin)).await;
        let step = unlinked.inspect_err(|_| self.blocks.pool.doubt())?;
        match step {
            TreeStep::Done(Change::Deleted, old) => {
                let retired = self
                    .blocks
                    .retire_removed(cx, Pointer::from_word(old), (slot.pointer, bytes));
                Ok(Step::Done(retired.await?))
            }
            TreeStep::Done(..) => Ok(Step::Lost),
            step => Ok(Step::InTheWay(part, step)),
        }
    }

    /// Makes a layer for the keys that share a part, of which one has the entry. Whatever comes of it, the attempt starts again.
    async fn make_layer(
        &self,
        cx: &mut OpContext,
        (part, depth): (Part, usize),
        slot: Slot,
        pin: &Pin,
    ) -> Result<Step, IndexError> {
        let outcome = Rc::new(RefCell::new(Step::Lost));
        // The same pin: whoever waits for those that pinned before some instant waits for the task, too.
        let (ordered, ended, pin) = (self.clone(), Rc::clone(&outcome), pin.clone());
        // In a task: whoever gave up in between would leave a copy in a layer that nothing leads to.
        let task = self.tree.start(Name::Layer(part.0), |_| async move {
            let mut cx = OpContext::new(ordered.blocks.pool.endpoint().clone());
            *ended.borrow_mut() = ordered.link_layer(&mut cx, (part, depth), slot, &pin).await?;
            Ok(())
        });
        self.tree.wait_for(cx, &task).await?;
        Ok(outcome.replace(Step::Lost))
    }

    /// The steps stand in [`super`].
    async fn link_layer(
        &self,
        cx: &mut OpContext,
        (part, depth): (Part, usize),
        slot: Slot,
        pin: &Pin,
    ) -> Result<Step, IndexError> {
        let header = self.blocks.read_item(cx, slot.at, slot.pointer, 0).await?;
        let other = header.item(cx.buffer());
        let (key, value, expiry_ms, tag) = (other.key.to_vec(), other.value.to_vec(), other.expiry_ms, other.tag);
        let other = Item {
            key: &key,
            value: &value,
            expiry_ms,
            tag,
        };
        let bytes = other.bytes();
        let layer = self.tree.take_layer(cx).await?;
        let own = Part::of(layer, &key, depth + PART_BYTES);
        let step = if is_planted("ordered: a layer that begins without the other key") {
            Step::Done(Change::Inserted)
        } else {
            self.insert(cx, own, other, pin).await?
        };
        if !matches!(step, Step::Done(_)) {
            return Ok(step);
        }
        let new = in_place_of(pointer_to(layer), slot.pointer);
        if self.blocks.pool.notes_changes() {
            // If it is another item by now, the swap fails.
            self.blocks.note_replaced(cx, slot.at).await?;
        }
        let swapped = cx.compare_swap(slot.at, slot.pointer.to_word(), new.to_word()).await;
        let mut before = swapped.inspect_err(|_| self.blocks.pool.doubt())?;
        if is_planted("ordered: an entry that leads to a layer whatever it was") && before != slot.pointer.to_word() {
            cx.write_word(slot.at, new.to_word()).await?;
            before = slot.pointer.to_word();
        }
        if before == slot.pointer.to_word() {
            self.remember(part, layer);
            self.blocks.pool.retire(slot.pointer.block(), Some(bytes));
            return Ok(Step::Lost);
        }
        // The other key was changed meanwhile, or frozen. Nobody has seen the copy.
        // Ends: each round has waited for what was in the way.
        loop {
            let unlinked = Box::pin(self.tree.unlink_key(cx, own.0, (None, None), pin)).await;
            match unlinked.inspect_err(|_| self.blocks.pool.doubt())? {
                TreeStep::Done(_, old) => {
                    let old = Pointer::from_word(old);
                    if !old.is_null() && old.hint() != SizeHint::Bucket {
                        self.blocks.pool.retire(old.block(), Some(bytes));
                    }
                    return Ok(Step::Lost);
                }
                step => self.tree.prepare(cx, own.0, step).await?,
            }
        }
    }
}
