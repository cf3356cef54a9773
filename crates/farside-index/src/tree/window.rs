//! The leaves that a model leaves, and which of them has a key: the first step of every operation in a learned tree.
//!
//! On the path: READs all leaves of the window in one round trip, as much of each as a SEARCH needs ([`crate::rolex`]). Over mapped
//! memory the fences say which leaf it is, if otherwise whole leaves would be loaded.
//!
//! # Absent
//! A model is a remembered parent without its keys, so the leaves of the window are some that follow each other, and it is known
//! what the sibling of each has to be. If each of them has that sibling, and is not gone, then the one that the key belongs to has
//! as many keys as it had when the parent was read, whichever it is: if none of them has the key, it is not there. Otherwise the
//! parent is read again, which says exactly where to look.

use arrayvec::ArrayVec;
use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};

use super::Tree;
use super::descend::Place;
use super::layout::{Key, Shape};
use super::leaf::word;
use super::model::WINDOW_MAX;
use super::search::{Seen, seen_in};
use super::words::Sibling;
use crate::error::IndexError;

/// The leaves that a key may be in, as a parent says that this client remembers: one, unless it is a model.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// The leaves, and behind them what the sibling of the last one has to be.
    leaves: ArrayVec<RemoteAddr, { WINDOW_MAX + 1 }>,
}

impl Window {
    fn len(&self) -> usize {
        self.leaves.len() - 1
    }

    #[inline]
    fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.leaves.windows(2).map(|two| Place {
            leaf: two[0],
            next: two[1],
            is_remembered: true,
        })
    }

    /// The leaf, if there is no other.
    #[inline]
    pub(super) fn only(&self) -> Option<Place> {
        self.places().next().filter(|_| self.len() == 1)
    }
}

/// Whose leaf was found. Only those may use it who have pinned before it was: who pins later makes this client forget it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrowed {
    key: Key,
    place: Place,
}

impl Shape {
    /// The parts of a leaf that a SEARCH READs: of those that are looked through as a whole also the fences, where it is not known
    /// which leaf it is.
    fn parts(self, key: Key, with_header: bool) -> ArrayVec<Slice, 3> {
        if self.is_learned() && !self.is_hashed() {
            return ArrayVec::from_iter([self.body(0)]);
        }
        let header = with_header.then(|| self.fence_slice());
        let segments = self.segments(self.home(key), self.circle().neighbourhood());
        header.into_iter().chain(segments).collect()
    }

    /// Whether a leaf of which the header was read is the one for a key, as the parent means it. Fences alone do not say so: those of
    /// a leaf that is taking its neighbour in have that one's keys already, and have not if the merge is undone.
    #[inline]
    fn has_key(self, image: &[u8], place: Place, key: Key) -> bool {
        let fences = self.fences_at(image);
        let sibling = Sibling(word(image, self.replica_at(0)));
        let is_meant = sibling.next() == place.next && !sibling.is_gone();
        is_meant && fences.contains(key) && self.fences(image, sibling).is_ok()
    }

    /// Where the image of a leaf of a window stands in a buffer.
    fn image_of(self, buffer: &[u8], index: usize) -> &[u8] {
        let bytes = self.leaf_bytes() as usize;
        &buffer[index * bytes..][..bytes]
    }
}

impl Tree {
    /// The leaves that may have a key, if this client remembers their parent, or the leaf that is the root.
    #[inline]
    pub(super) fn remembered_window(&self, key: Key) -> Option<Window> {
        let mut leaves = ArrayVec::new();
        if self.height() == 0 {
            let root = self.remembered_place(key)?;
            leaves.extend([root.leaf, root.next]);
            return Some(Window { leaves });
        }
        let cache = self.shared.cache.borrow();
        let parent = cache.covering(1, key)?;
        let window = parent.window(self.shape(), key);
        let last = window.end - 1;
        leaves.extend(window.map(|index| parent.child(index).addr));
        leaves.push(parent.child(last).next);
        Some(Window { leaves })
    }

    /// Looks for a key where this client remembers that it may be; `None` if it does not, or something is unusual. Then
    /// the parent is forgotten, which will say which leaf it is.
    pub(super) async fn seek_around(&self, cx: &mut OpContext, key: Key) -> Result<Option<Seen>, IndexError> {
        if cx.is_pipelined() && self.shared.cache.borrow().approach(1, key).is_some() {
            cx.turn().await;
        }
        let Some(window) = self.remembered_window(key) else {
            return Ok(None);
        };
        let is_hashed = self.shape().is_hashed();
        let is_mapped = if is_hashed {
            self.approach_window(cx, &window, key)
        } else {
            self.approach_headers(cx, &window)
        };
        if is_mapped {
            if cx.is_pipelined() {
                cx.turn().await;
            }
            let seen = if is_hashed {
                self.glance_around(cx, &window, key)
            } else if let Some(place) = self.glance_owner(cx, &window, key) {
                if cx.is_pipelined() && self.approach_neighbourhood(cx, place.leaf, key) {
                    cx.turn().await;
                }
                self.glance(cx, place, key)
                    .filter(|seen| !matches!(seen, Seen::Elsewhere))
            } else {
                None
            };
            if seen.is_some() {
                return Ok(seen);
            }
        }
        // As rare as it takes long, where memory is mapped.
        Box::pin(self.look_around(cx, &window, key)).await
    }

    /// The same over mapped memory, as [`Tree::glance`].
    #[inline]
    fn glance_around(&self, cx: &mut OpContext, window: &Window, key: Key) -> Option<Seen> {
        let mut seen = Some(Seen::Absent);
        for place in window.places() {
            match self.glance(cx, place, key) {
                Some(Seen::Absent) => {}
                found @ Some(Seen::Found(..)) => return found,
                Some(Seen::Elsewhere) | None => seen = None,
            }
        }
        seen
    }

    /// Over mapped memory: asks for what says which keys the leaves of a window have; returns whether it is mapped.
    #[inline]
    fn approach_headers(&self, cx: &OpContext, window: &Window) -> bool {
        let claim = self.shape().claim_slice();
        window
            .places()
            .all(|place| cx.approach(place.leaf.plus(claim.at.into()), claim.bytes))
    }

    /// Over mapped memory: which leaf of a window has a key, so that the others need not be looked at. As [`Tree::glance`].
    #[inline]
    fn glance_owner(&self, cx: &mut OpContext, window: &Window, key: Key) -> Option<Place> {
        let (shape, claim) = (self.shape(), self.shape().claim_slice());
        cx.reserve(shape.leaf_bytes() as usize);
        window.places().find(|place| {
            let is_loaded = cx.load(place.leaf.plus(claim.at.into()), claim);
            is_loaded && shape.has_key(cx.buffer(), *place, key)
        })
    }

    async fn look_around(&self, cx: &mut OpContext, window: &Window, key: Key) -> Result<Option<Seen>, IndexError> {
        let shape = self.shape();
        for place in window.places() {
            if let Some((entry, value)) = self.speculate(cx, place.leaf, key).await? {
                let at = place.leaf.plus(shape.value_at(entry));
                return Ok(Some(Seen::Found(place.leaf, at, value)));
            }
        }
        let parts = shape.parts(key, self.shared.without.get().replicas);
        let version = self.pool().watched();
        self.read_window(cx, window, &parts).await?;
        let seen = self.seen_around(cx.buffer(), window, key);
        let owner = match seen {
            Some(Seen::Absent) if !shape.is_hashed() => self.owner_in(cx.buffer(), window, key),
            _ => None,
        };
        // By checks and versions; or it is not used.
        cx.validated();
        match seen {
            Some(Seen::Found(leaf, at, _)) if shape.is_hashed() => {
                let entry = (0..shape.span()).find(|&entry| leaf.plus(shape.value_at(entry)) == at);
                let mut hotspots = self.shared.hotspots.borrow_mut();
                entry.into_iter().for_each(|entry| hotspots.note(leaf, entry, key));
            }
            // So that an INSERT need not look for it. Nobody may have pinned after a leaf went and before this was known.
            Some(Seen::Absent) if self.pool().watched() == version => {
                self.shared.narrowed.set(owner.map(|place| Narrowed { key, place }));
            }
            Some(_) => {}
            None => self.forget_parent(cx, key).await?,
        }
        Ok(seen)
    }

    /// READs the same parts of all leaves of a window, one image behind the other in the buffer.
    async fn read_window(&self, cx: &mut OpContext, window: &Window, parts: &[Slice]) -> Result<(), IndexError> {
        cx.reserve(self.shape().leaf_bytes() as usize * window.len());
        let mut batch = Batch::new();
        self.add_reads(&mut batch, window, parts, 0);
        Ok(cx.post(&mut batch).await?)
    }

    /// Adds READs of parts of all leaves of a window to a batch, whose images stand from `at` on in the buffer.
    fn add_reads(&self, batch: &mut Batch, window: &Window, parts: &[Slice], at: u32) {
        let bytes = self.shape().leaf_bytes() as u32;
        for (index, place) in (0..).zip(window.places()) {
            for part in parts {
                let target = Slice::new(at + index * bytes + part.at, part.bytes);
                batch.read(place.leaf.plus(part.at.into()), target);
            }
        }
    }

    /// What the leaves of a window say of a key that were read; `None` if something is unusual.
    pub(super) fn seen_around(&self, buffer: &[u8], window: &Window, key: Key) -> Option<Seen> {
        let mut seen = Some(Seen::Absent);
        for (index, place) in window.places().enumerate() {
            match seen_in(self.shape(), self.shape().image_of(buffer, index), place, key) {
                Some(Seen::Absent) => {}
                found @ Some(Seen::Found(..)) => return found,
                _ if is_planted("rolex: absent from a leaf that is another one by now") => {}
                Some(Seen::Elsewhere) | None => seen = None,
            }
        }
        seen
    }

    /// Which leaf of a window that was read has the key between its fences.
    fn owner_in(&self, buffer: &[u8], window: &Window, key: Key) -> Option<Place> {
        let shape = self.shape();
        let mut leaves = window.places().enumerate();
        let found = leaves.find(|&(index, place)| shape.has_key(shape.image_of(buffer, index), place, key));
        found.map(|(_, place)| place)
    }

    /// The leaf of a key that is to be changed, as this client remembers it; `None` if it does not, or all of them are others by
    /// now. Then the parent is forgotten.
    pub(super) async fn locate_around(&self, cx: &mut OpContext, key: Key) -> Result<Option<Place>, IndexError> {
        if let Some(narrowed) = self.shared.narrowed.get().filter(|narrowed| narrowed.key == key) {
            self.shared.narrowed.set(None);
            return Ok(Some(narrowed.place));
        }
        let Some(window) = self.remembered_window(key) else {
            return Ok(None);
        };
        if let Some(place) = window.only() {
            return Ok(Some(place));
        }
        let shape = self.shape();
        let part = if shape.is_hashed() {
            shape.claim_slice()
        } else {
            shape.body(0)
        };
        self.read_window(cx, &window, &[part]).await?;
        let owner = self.owner_in(cx.buffer(), &window, key);
        // By the check of the fences; or it is not used.
        cx.validated();
        if owner.is_none() {
            self.forget_parent(cx, key).await?;
        }
        Ok(owner)
    }

    /// Over mapped memory: asks for the neighbourhood of a key that will be looked for.
    pub(crate) fn approach(&self, cx: &OpContext, key: Key) {
        if let Some(window) = self.remembered_window(key) {
            self.approach_window(cx, &window, key);
        }
    }

    /// Asks for where a key may be in the leaves of a window, where memory is mapped; returns whether it is.
    #[inline]
    fn approach_window(&self, cx: &OpContext, window: &Window, key: Key) -> bool {
        window
            .places()
            .all(|place| self.approach_neighbourhood(cx, place.leaf, key))
    }

    /// How much of a buffer the leaves of a key take in which it is looked for together with others.
    pub(crate) fn window_bytes(&self) -> u64 {
        let leaves = if self.shape().is_learned() { WINDOW_MAX } else { 1 };
        leaves as u64 * self.shape().leaf_bytes()
    }

    /// Adds READs of where a key may be to a batch, as images of the leaves would have it if they stood from `at` on in the buffer.
    /// `None` if this client does not remember the leaves, or the batch has no room.
    pub(crate) fn ask(&self, batch: &mut Batch, key: Key, at: u32) -> Option<Window> {
        if self.shared.without.get().replicas {
            return None;
        }
        let window = self.remembered_window(key)?;
        let parts = self.shape().parts(key, false);
        if batch.verbs().len() + window.len() * parts.len() > BATCH_VERBS_MAX {
            return None;
        }
        self.add_reads(batch, &window, &parts, at);
        Some(window)
    }
}
