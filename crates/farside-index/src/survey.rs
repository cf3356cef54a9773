//! What a snapshot reads: the pointers of all slots, some at a time, and the items that pointers lead to.
//!
//! On the path: an export goes through the slots, looks what was noted meanwhile (`farside_pool::snapshot`), and reads
//! those items that belong to it. Blocks stay what they are while the snapshot is taken, so the items may be read long after the
//! slots.
//!
//! Invariant: the pointer to an item that is there from the beginning of a survey until its end is visited.

use std::collections::BTreeSet;

use farside_fabric::{LocalFuture, OpContext, RemoteAddr};
use farside_sync::{Pointer, SizeHint};

use crate::descriptor::{Descriptor, entries_of};
use crate::error::IndexError;
use crate::index::Index;
use crate::item::{Header, Item};
use crate::ordered::Layer;
use crate::tree::Key;

/// How many entries of a tree are read together.
pub(crate) const ENTRIES_AT_ONCE: usize = 256;

/// How far a survey has come.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Survey {
    /// Nowhere yet.
    #[default]
    Begin,
    /// A cursor of slots.
    Slots(u64),
    /// In a tree: the key to go on with, and the layers that entries before it lead to.
    Part(Key, BTreeSet<Layer>),
    /// A key.
    Key(Vec<u8>),
    /// It is done.
    End,
}

/// A slot, and the pointer that it held; the slot may be unknown.
pub type Surveyed = (RemoteAddr, Pointer);

/// Says whether the item in a block is wanted.
pub type Wants<'w> = &'w mut dyn FnMut(RemoteAddr) -> bool;

/// The pointer that was noted as replaced: without its identity, so that nobody takes it for marked.
#[must_use]
pub fn noted_pointer(word: u64) -> Pointer {
    Pointer::from_word(word & !Pointer::IDENTITY)
}

impl Index {
    /// Adds the pointers of the next slots to `entries`, and goes on in `survey`.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub fn survey<'f>(
        &'f self,
        cx: &'f mut OpContext,
        survey: &'f mut Survey,
        entries: &'f mut Vec<Surveyed>,
    ) -> LocalFuture<'f, Result<(), IndexError>> {
        Box::pin(async move {
            let cursor = match survey {
                Survey::Slots(cursor) => *cursor,
                _ => 0,
            };
            let slots = |next| match next {
                0 => Survey::End,
                next => Survey::Slots(next),
            };
            *survey = match self {
                Self::Race(race) => slots(race.survey(cx, cursor, entries).await?),
                Self::PointerArray(array) => slots(array.survey(cx, cursor, entries).await?),
                Self::Ordered(ordered) => {
                    let (part, mut layers) = match core::mem::take(survey) {
                        Survey::Part(part, layers) => (part, layers),
                        _ => (0, BTreeSet::new()),
                    };
                    let _pin = ordered.pin();
                    match ordered.survey(cx, part, &mut layers, entries).await? {
                        Some(next) => Survey::Part(next, layers),
                        None => Survey::End,
                    }
                }
                Self::Smart(smart) => {
                    let from = match survey {
                        Survey::Key(key) => core::mem::take(key),
                        _ => Vec::new(),
                    };
                    let _pin = smart.pin();
                    let (found, is_end) = smart.entries_from(cx, &from, ENTRIES_AT_ONCE).await?;
                    let last = found.last().copied().filter(|_| !is_end);
                    entries.extend(found);
                    match last {
                        Some(last) => Survey::Key(smart.key_behind(cx, last).await?),
                        None => Survey::End,
                    }
                }
            };
            Ok(())
        })
    }

    /// Visits the items that pointers lead to, if they are `wanted`: asked by the address of their block. Under a descriptor
    /// it is the item in force.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub fn visit_surveyed<'f>(
        &'f self,
        cx: &'f mut OpContext,
        entries: &'f [Surveyed],
        (wanted, visit): (Wants<'f>, &'f mut dyn FnMut(Item<'_>)),
    ) -> LocalFuture<'f, Result<(), IndexError>> {
        Box::pin(async move {
            let blocks = self.blocks();
            let mut items = Vec::with_capacity(entries.len());
            for &(slot, mut pointer) in entries {
                if blocks.is_marked(pointer) {
                    // For an owner that is gone nobody else decides.
                    let _pin = self.pool().pin();
                    pointer = Descriptor::read(cx, slot, pointer).await?.seen(cx, slot).await?;
                }
                if pointer.is_null() {
                    continue;
                }
                if pointer.hint() == SizeHint::Bucket {
                    let found = entries_of(cx, pointer).await?;
                    items.extend(found.into_iter().map(|pointer| (slot, pointer)));
                } else {
                    items.push((slot, pointer));
                }
            }
            items.retain(|(_, pointer)| wanted(pointer.block()));
            let visit = &mut |_: RemoteAddr, _: Pointer, header: Header, at: u32, buffer: &[u8]| {
                visit(header.item(&buffer[at as usize..]));
                true
            };
            blocks.read_items(cx, 0, &items, visit).await
        })
    }
}
