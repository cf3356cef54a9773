//! INSERT, UPDATE and DELETE.
//!
//! On the path: one attempt is pinned from its first READ to the end. What stands in its way (a node that is being replaced, no
//! block at hand, another client that was quicker) it sees to unpinned, and starts again.

use farside_fabric::{OpContext, at_once};
use farside_pool::{Pin, Purpose};

use super::descend::{End, Slot, read_node};
use super::layout::{Kind, gone};
use super::renew::{Which, is_untidy};
use super::{Place, Smart};
use crate::blocks::{Draft, New, Updated};
use crate::error::IndexError;
use crate::item::{Item, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::operation::{Change, Decide, Decision, Likely, Sampled};

/// How an attempt ended.
pub(super) enum Step {
    /// As it should.
    Done(Change),
    /// Likewise: the key is gone, by this change. Says whether its node is larger than need be now.
    Gone { is_untidy: bool, change: Change },
    /// Another client was quicker.
    Lost,
    /// This client has no block left.
    Short { bytes: u64, purpose: Purpose },
    /// A node is being replaced.
    Frozen,
    /// The versions of the entry are used up.
    Worn,
    /// There are nodes without an item.
    Untidy,
}

/// What an attempt has found of a key.
struct Here {
    /// Where its way ends, if it has no entry.
    end: Option<End>,
    /// Its entry.
    slot: Option<Slot>,
    /// The key in that entry, if it is another one.
    other: Option<Box<[u8]>>,
    old_bytes: u64,
    /// What will probably be stored, if it was written.
    draft: Option<Draft>,
}

impl Smart {
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
        // Ends when nobody is in the way; each failure means that another client has made progress, or that this one has helped.
        loop {
            self.blocks.pool.wait_at_gate(1).await?;
            let pin = self.pin();
            // Only the first time: whoever has been overtaken may decide otherwise. In place nothing is written beforehand.
            let likely = likely.filter(|_| round == 0 && !self.shared.is_in_place.get());
            let step = self.attempt(cx, key, likely, decide, &pin).await?;
            drop(pin);
            match step {
                Step::Gone { is_untidy, change } => {
                    if is_untidy {
                        self.tidy_or_leave(cx, key).await;
                    }
                    return Ok(change);
                }
                Step::Done(change) => return Ok(change),
                Step::Lost => cx.count_retry(),
                Step::Short { bytes, purpose } => {
                    if let Err(error) = self.blocks.pool.restock(bytes, 1, purpose).await {
                        // A node may have been made for the key that is not stored now.
                        self.tidy_or_leave(cx, key).await;
                        return Err(error.into());
                    }
                }
                Step::Frozen => drop(Box::pin(self.replace_node(cx, key, Which::Frozen)).await?),
                Step::Worn => drop(Box::pin(self.replace_node(cx, key, Which::Last)).await?),
                Step::Untidy => drop(Box::pin(self.replace_node(cx, key, Which::Below)).await?),
            }
            round += 1;
        }
    }

    /// A change over mapped memory, in a plain call; `None` if something is in the way, and nothing was changed. (A DELETE may
    /// have to see to nodes.)
    pub(crate) fn change_now<'v>(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        decide: Decide<'_, 'v>,
    ) -> Option<Result<Change, IndexError>> {
        if key.len() > KEY_BYTES_MAX || self.shared.is_in_place.get() {
            return None;
        }
        let pin = self.pin();
        let (here, decision) = match at_once(self.find_and_decide(cx, key, None, decide))? {
            Ok(Some(decided)) => decided,
            Ok(None) => return None,
            Err(error) => return Some(Err(error)),
        };
        if let Decision::Delete { .. } = decision {
            return None;
        }
        let made = at_once(self.carry_out(cx, key, here, decision, &pin));
        match made.expect("nothing waits where memory is mapped") {
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
        match self.find_and_decide(cx, key, likely, decide).await? {
            Some((here, decision)) => self.carry_out(cx, key, here, decision, pin).await,
            None => Ok(Step::Frozen),
        }
    }

    /// What is there, and what becomes of it; `None` if a node is being replaced.
    async fn find_and_decide<'v>(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        likely: Option<Likely<'_>>,
        decide: Decide<'_, 'v>,
    ) -> Result<Option<(Here, Decision<'v>)>, IndexError> {
        let mut here = Here {
            end: None,
            slot: None,
            other: None,
            old_bytes: 0,
            draft: None,
        };
        let mut stored = None;
        match self.find_settled(cx, key, likely).await? {
            Place::Frozen => return Ok(None),
            Place::Absent(end) => here.end = Some(end),
            Place::Item {
                slot,
                header,
                is_own,
                draft,
            } => {
                let item = header.item(cx.buffer());
                (here.slot, here.draft) = (Some(slot), draft);
                if is_own {
                    here.old_bytes = item.bytes();
                    stored = Some(item);
                } else {
                    here.other = Some(item.key.into());
                }
            }
        }
        let is_there = stored.is_some();
        let decision = decide(stored);
        let is_meant = is_there && likely.is_some_and(|likely| likely.is_meant_by(&decision));
        if let Some(draft) = here.draft.take_if(|_| !is_meant) {
            self.blocks.pool.give_back(draft.block, draft.bytes);
        }
        Ok(Some((here, decision)))
    }

    async fn carry_out(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        here: Here,
        decision: Decision<'_>,
        pin: &Pin,
    ) -> Result<Step, IndexError> {
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
                match (here.slot, here.other, here.end) {
                    (Some(slot), Some(other), _) => Box::pin(self.insert_beside(cx, item, (slot, &other))).await,
                    (Some(slot), None, _) => {
                        let new = New {
                            item,
                            regardless,
                            draft: here.draft,
                        };
                        self.replace_item(cx, key, (slot, here.old_bytes), new, pin).await
                    }
                    (None, _, Some(end)) => Box::pin(self.insert(cx, item, end)).await,
                    (None, _, None) => unreachable!("a key has an entry, or its way ends somewhere"),
                }
            }
            Decision::Delete { regardless } => match (here.slot, here.other) {
                (Some(slot), None) => Box::pin(self.remove(cx, key, (slot, here.old_bytes), regardless, pin)).await,
                _ => Ok(Step::Done(Change::Kept)),
            },
        }
    }

    /// Another item under a key that is there.
    async fn replace_item(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        (slot, old_bytes): (Slot, u64),
        new: New<'_>,
        pin: &Pin,
    ) -> Result<Step, IndexError> {
        if new.regardless && self.fits_in_place(&new.item, old_bytes) {
            Box::pin(self.write_in_place(cx, &slot, new.item, pin)).await?;
            return Ok(Step::Done(Change::Updated));
        }
        let (target, purpose) = (self.target(key, &slot), Purpose::Overwrite);
        let updated = self.blocks.update(cx, target, (slot.word, old_bytes), new, pin);
        Ok(match updated.await? {
            Updated::Done(new) => {
                self.remember(slot.version, |cache| cache.note(slot.node, slot.place, new));
                Step::Done(Change::Updated)
            }
            Updated::Combined => Step::Done(Change::Updated),
            Updated::Lost => Step::Lost,
            Updated::Short { bytes } => Step::Short { bytes, purpose },
        })
    }

    async fn remove(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        (slot, bytes): (Slot, u64),
        regardless: bool,
        pin: &Pin,
    ) -> Result<Step, IndexError> {
        let (target, empty) = (self.target(key, &slot), gone(slot.word));
        let removed = self
            .blocks
            .remove(cx, target, (slot.word, bytes), (empty, regardless), pin);
        let Some(change) = removed.await? else {
            return Ok(Step::Lost);
        };
        self.remember(slot.version, |cache| cache.note(slot.node, slot.place, empty));
        // The key is gone, whatever comes of this.
        let read = read_node(cx, slot.node, Kind::SMALLEST, (0, 0)).await;
        // The first node stays, and no other one decides on the first byte.
        let is_untidy = read.is_ok_and(|image| is_untidy(&image, slot.depth == 0));
        Ok(Step::Gone { is_untidy, change })
    }

    /// Replaces nodes that are not worth their size. If that fails they stay, and the operation has not failed.
    async fn tidy_or_leave(&self, cx: &mut OpContext, key: &[u8]) {
        if let Err(error) = Box::pin(self.tidy(cx, key)).await {
            tracing::debug!("nodes that are larger than need be stay: {error}");
        }
    }

    /// Removes a key if its entry still holds what a sample has found there; returns whether it did.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn remove_sampled(&self, cx: &mut OpContext, wanted: Sampled<'_>) -> Result<bool, IndexError> {
        self.blocks.pool.wait_at_gate(1).await?;
        let pin = self.pin();
        let Place::Item {
            slot,
            header,
            is_own: true,
            ..
        } = self.find(cx, wanted.key, None).await?
        else {
            return Ok(false);
        };
        let expiry_ms = header.item(cx.buffer()).expiry_ms;
        let is_same = slot.word.to_word() == wanted.mark && expiry_ms == wanted.expiry_ms;
        if !is_same || self.blocks.is_marked(slot.word) {
            return Ok(false);
        }
        let removed = self
            .remove(cx, wanted.key, (slot, header.block_bytes()), false, &pin)
            .await?;
        drop(pin);
        let Step::Gone { is_untidy, .. } = removed else {
            return Ok(false);
        };
        if is_untidy {
            self.tidy_or_leave(cx, wanted.key).await;
        }
        Ok(true)
    }
}
