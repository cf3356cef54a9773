//! Closing a leaf whose entries are claimed one by one: before whoever holds its lock writes it as a whole; the rules stand in
//! [`super::claim`].
//!
//! On the path: nowhere, until a leaf is split, merged or settled.

use core::mem;

use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_sync::Pointer;

use super::Tree;
use super::layout::Shape;
use super::leaf::set_word;
use super::lock::{Held, LOOK_ATTEMPTS};
use super::slot::{frozen, is_layer, succeeding, thawed};
use super::words::{Meta, Vacancy};
use crate::error::IndexError;

/// Words of a leaf, by their offsets.
pub(super) type Words = Vec<(u64, u64)>;

/// An entry that is neither closed nor frozen yet, as far as its image says.
struct Open {
    entry: usize,
    /// Whether the image says what the entry was.
    is_stale: bool,
    /// What it was when it was found not to belong together last.
    torn: Option<Vec<u8>>,
}

/// What may have been left of a leaf that is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing: it was settled.
    Nothing,
    /// A part of a node write: entries whose words do not belong together, and never will.
    NodeWrite,
}

/// What is to be done with an open entry.
#[derive(Clone, Copy)]
enum Act {
    /// READ it again.
    Look,
    /// READ it again; it was claimed.
    Wait,
    /// Swap this meta word for one that says that it is closed.
    Close(Meta),
    /// Swap its pointer for a frozen one.
    Freeze(Pointer),
}

impl Tree {
    /// Closes a leaf whose lock is held and which was read to `at` in the buffer. There it is then what it is, but that pointers are
    /// what a node write makes of those that are frozen. Returns the words to write if there will be none.
    pub(super) async fn close(
        &self,
        cx: &mut OpContext,
        leaf: RemoteAddr,
        at: u32,
        was_left: Left,
    ) -> Result<Words, IndexError> {
        let shape = self.shape();
        let mut before = Words::new();
        let entries = 0..shape.span();
        let mut left: Vec<Open> = entries
            .map(|entry| Open {
                entry,
                is_stale: false,
                torn: None,
            })
            .collect();
        let mut rounds = 0;
        // Ends: each round closes or freezes an entry, or another client has changed one, or is waited for until it has or is gone.
        loop {
            for open in &mut left {
                self.settle_open(cx, (leaf, at), open).await?;
            }
            let image = &mut cx.buffer_mut()[at as usize..];
            let acts: Vec<(Open, Act)> = mem::take(&mut left)
                .into_iter()
                .filter_map(|mut open| {
                    let act = shape.next_act(image, &mut open, was_left, &mut before)?;
                    Some((open, act))
                })
                .collect();
            if acts.is_empty() {
                return Ok(before);
            }
            let is_waiting = acts.iter().all(|(_, act)| matches!(act, Act::Wait));
            let asks = rounds % LOOK_ATTEMPTS == LOOK_ATTEMPTS - 1;
            let mut acts = acts.into_iter().peekable();
            while acts.peek().is_some() {
                let some: Vec<(Open, Act)> = acts.by_ref().take(BATCH_VERBS_MAX).collect();
                self.act(cx, (leaf, at), some, &mut before, &mut left).await?;
            }
            if is_waiting {
                if asks {
                    self.open_those_of_gone(cx, leaf, at).await?;
                }
                self.pool().check_reachable()?;
                self.shared.backoff.wait(cx.endpoint(), rounds).await;
            }
            rounds += 1;
        }
    }

    /// Settles an open entry if it is marked.
    async fn settle_open(
        &self,
        cx: &mut OpContext,
        (leaf, at): (RemoteAddr, u32),
        open: &mut Open,
    ) -> Result<(), IndexError> {
        let (shape, entry) = (self.shape(), open.entry);
        let image = &cx.buffer()[at as usize..];
        if open.is_stale || shape.taken(image, entry).is_none() {
            return Ok(());
        }
        let marked = shape.pointer(image, entry);
        let now = self.settle_entry(cx, leaf, (entry, marked)).await?;
        if now != marked {
            set_word(
                &mut cx.buffer_mut()[at as usize..],
                shape.value_at(entry),
                now.to_word(),
            );
            open.is_stale = now.identity() | 1 != marked.identity();
        }
        Ok(())
    }

    /// One round trip for some entries. Those that are still open are added to `left`.
    async fn act(
        &self,
        cx: &mut OpContext,
        (leaf, at): (RemoteAddr, u32),
        acts: Vec<(Open, Act)>,
        before: &mut Words,
        left: &mut Vec<Open>,
    ) -> Result<(), IndexError> {
        let shape = self.shape();
        let mut batch = Batch::new();
        let posted: Vec<_> = acts
            .into_iter()
            .map(|(open, act)| {
                let entry_at = shape.entry_at(open.entry);
                let verb = match act {
                    Act::Look | Act::Wait => {
                        let own = Slice::new(at + entry_at as u32, shape.entry_bytes() as u32);
                        batch.read(leaf.plus(entry_at), own)
                    }
                    Act::Close(meta) => batch.compare_swap(leaf.plus(entry_at), meta.0, meta.closed().0),
                    Act::Freeze(pointer) => {
                        let target = leaf.plus(shape.value_at(open.entry));
                        batch.compare_swap(target, pointer.to_word(), frozen(pointer).to_word())
                    }
                };
                (open, act, verb)
            })
            .collect();
        cx.post(&mut batch).await?;
        // By the swaps that follow; or it is not used.
        cx.validated();
        let image = &mut cx.buffer_mut()[at as usize..];
        for (mut open, act, verb) in posted {
            let entry = open.entry;
            match act {
                Act::Look | Act::Wait => {
                    open.is_stale = false;
                    left.push(open);
                }
                Act::Close(meta) if batch.result(verb) == meta.0 => {
                    shape.set_meta(image, entry, meta.closed());
                    left.push(open);
                }
                Act::Close(_) => {
                    open.is_stale = true;
                    left.push(open);
                }
                Act::Freeze(pointer) => {
                    let seen = Pointer::from_word(batch.result(verb));
                    if seen == pointer {
                        before.push((shape.value_at(entry), pointer.to_word()));
                        shape.renew(image, entry, pointer);
                    } else {
                        set_word(image, shape.value_at(entry), seen.to_word());
                        open.is_stale = !seen.has_identity_of(pointer);
                        left.push(open);
                    }
                }
            }
        }
        Ok(())
    }

    /// Opens the claimed entries of a leaf whose clients are gone. The lock is held, and the leaf was read to `at` in the buffer.
    async fn open_those_of_gone(&self, cx: &mut OpContext, leaf: RemoteAddr, at: u32) -> Result<(), IndexError> {
        let shape = self.shape();
        for entry in 0..shape.span() {
            let meta = shape.meta(&cx.buffer()[at as usize..], entry);
            if meta.is_taken() == 0 {
                let target = leaf.plus(shape.entry_at(entry));
                self.open_if_gone(cx, target, Vacancy(meta.0)).await?;
            }
        }
        Ok(())
    }

    /// Opens a leaf as it was before it was closed, and gives its lock back.
    pub(super) async fn reopen(&self, cx: &mut OpContext, held: Held, before: &Words) -> Result<(), IndexError> {
        if !before.is_empty() {
            let mut batch = Batch::new();
            self.write_words(cx, &mut batch, held.node, before).await?;
            cx.post(&mut batch).await?;
        }
        self.unlock(cx, held).await
    }

    /// Makes entries of a leaf vacant that were left by clients which are gone: claimed, or with a key that is no more. The lock
    /// is held, and the leaf was read to the start of the buffer.
    pub(super) async fn tidy(&self, cx: &mut OpContext, leaf: RemoteAddr) -> Result<(), IndexError> {
        self.open_those_of_gone(cx, leaf, 0).await?;
        for entry in 0..self.shape().span() {
            let image = cx.buffer();
            if self.shape().taken(image, entry).is_some() && self.shape().pointer(image, entry).is_null() {
                self.open_deleted(cx, leaf, entry).await?;
            }
        }
        Ok(())
    }
}

impl Shape {
    /// What to do with an entry; `None` if it is closed or frozen. Then `before` gets what it was.
    fn next_act(self, image: &mut [u8], open: &mut Open, was_left: Left, before: &mut Words) -> Option<Act> {
        if open.is_stale {
            return Some(Act::Look);
        }
        let (entry, meta) = (open.entry, self.meta(image, open.entry));
        if meta.is_closed() {
            before.push((self.entry_at(entry), Vacancy(meta.0).opened().0));
            return None;
        }
        if meta.is_taken() == 0 {
            return match Vacancy(meta.0).owner() {
                Some(_) if is_planted("marlin: a leaf closed with a claim in it") => None,
                Some(_) => Some(Act::Wait),
                None => Some(Act::Close(meta)),
            };
        }
        let pointer = self.pointer(image, entry);
        let own = if pointer.is_frozen() { thawed(pointer) } else { pointer };
        if !self.fits(image, entry, own.to_word()) {
            // Whoever has stored the key wrote its meta word last, so a second READ has all of it, or what came after it.
            let words = Slice::new(self.entry_at(entry) as u32, self.entry_bytes() as u32);
            let torn = image[words.range()].to_vec();
            if was_left == Left::Nothing || open.torn.as_ref() != Some(&torn) {
                open.torn = Some(torn);
                return Some(Act::Look);
            }
        }
        if pointer.is_null() {
            return Some(Act::Close(meta));
        }
        if is_layer(pointer) {
            return None;
        }
        if pointer.is_frozen() {
            before.push((self.value_at(entry), own.to_word()));
            self.renew(image, entry, own);
            return None;
        }
        Some(Act::Freeze(pointer))
    }

    /// Gives an entry of an image the next identity, with a check that fits if the one that it had did, or one of a node write before.
    fn renew(self, image: &mut [u8], entry: usize, pointer: Pointer) {
        set_word(image, self.value_at(entry), pointer.to_word());
        let is_right = self.fits(image, entry, pointer.to_word()) || self.is_renewed(image, entry);
        let renewed = succeeding(pointer, pointer);
        set_word(image, self.value_at(entry), renewed.to_word());
        if is_right {
            let (version, key) = (self.meta(image, entry).version(), self.key(image, entry));
            self.set_meta(image, entry, self.meta_of(version, key, renewed.to_word()));
        }
    }
}
