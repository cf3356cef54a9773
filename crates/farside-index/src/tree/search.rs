//! SEARCH.
//!
//! On the path: READs the neighbourhood of a key in one round trip, if its parent is remembered, and takes no lock. Over mapped
//! memory the same words are loaded without a verb (`glance`).

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_pool::Pin;
use farside_sync::Pointer;

use super::Tree;
use super::descend::{Place, TORN_READS};
use super::layout::{Key, Shape, with_known_shape};
use super::leaf::{Fences, Torn};
use super::lock::Kind;
use super::slot::Slot;
use super::window::Window;
use super::words::Sibling;
use crate::error::IndexError;

/// What a leaf says of a key.
pub(super) enum Seen {
    /// In this leaf, with its value there.
    Found(RemoteAddr, RemoteAddr, u64),
    Absent,
    /// Its parent has to be asked again.
    Elsewhere,
}

impl Tree {
    /// SEARCH: the value of a key.
    ///
    /// # Errors
    /// See [`IndexError`]; likewise for all operations below.
    pub async fn search(&self, cx: &mut OpContext, key: impl Into<Key>) -> Result<Option<u64>, IndexError> {
        let key = key.into();
        match self.shared.local.get() {
            None => self.search_alone(cx, key).await,
            Some(local) => Box::pin(self.search_shared(cx, key, local)).await,
        }
    }

    pub(super) async fn search_alone(&self, cx: &mut OpContext, key: Key) -> Result<Option<u64>, IndexError> {
        let pin = self.pin();
        Ok(self.seek(cx, key, &pin).await?.map(|(.., value)| value))
    }

    /// The leaf of a key, where in it the value is, and what it is.
    pub(super) async fn seek(
        &self,
        cx: &mut OpContext,
        key: Key,
        pin: &Pin,
    ) -> Result<Option<(RemoteAddr, RemoteAddr, u64)>, IndexError> {
        if self.shape().is_learned() {
            match self.seek_around(cx, key).await? {
                Some(Seen::Found(leaf, at, value)) if !self.is_deleted(value) => return Ok(Some((leaf, at, value))),
                Some(Seen::Found(..) | Seen::Absent) => return Ok(None),
                Some(Seen::Elsewhere) | None => {}
            }
        } else if let Some(place) = self.known_place(cx, key).await {
            if cx.is_pipelined() && self.approach_neighbourhood(cx, place.leaf, key) {
                cx.turn().await;
            }
            match self.glance(cx, place, key) {
                Some(Seen::Found(.., value)) if self.is_deleted(value) => return Ok(None),
                Some(Seen::Found(leaf, at, value)) => return Ok(Some((leaf, at, value))),
                Some(Seen::Absent) => {
                    self.note_vacant(cx.buffer(), place.leaf);
                    return Ok(None);
                }
                Some(Seen::Elsewhere) | None => {}
            }
        }
        // Ends: whoever was in the way has made progress.
        loop {
            let place = self.locate(cx, key, pin).await?;
            match self.look(cx, place, key, pin).await? {
                Seen::Found(.., value) if self.is_deleted(value) => return Ok(None),
                Seen::Found(leaf, at, value) => return Ok(Some((leaf, at, value))),
                Seen::Absent => return Ok(None),
                Seen::Elsewhere => cx.count_retry(),
            }
        }
    }

    /// Whether a value is that of a key which is being deleted.
    #[inline]
    fn is_deleted(&self, value: u64) -> bool {
        self.shape().has_pointers() && Pointer::from_word(value).is_null()
    }

    async fn look(&self, cx: &mut OpContext, place: Place, key: Key, pin: &Pin) -> Result<Seen, IndexError> {
        let shape = self.shape();
        let (mut leaf, mut is_fenced) = (place.leaf, shape.is_hashed() && self.shared.without.get().replicas);
        if let Some((entry, value)) = self.speculate(cx, leaf, key).await? {
            return Ok(Seen::Found(leaf, leaf.plus(shape.value_at(entry)), value));
        }
        // Ends: each round goes to the right, or is the last.
        loop {
            let (sibling, fences) = self.read_neighbourhood(cx, leaf, key, is_fenced, pin).await?;
            if sibling.is_gone() {
                self.go_elsewhere(cx, place, key).await?;
                return Ok(Seen::Elsewhere);
            }
            let is_current = sibling.next() == place.next || is_planted("tree: a sibling that nobody compares");
            if !is_current && place.is_remembered {
                self.forget_parent(cx, key).await?;
            }
            if let Some(entry) = shape.find(cx.buffer(), key) {
                if shape.is_hashed() {
                    self.shared.hotspots.borrow_mut().note(leaf, entry, key);
                }
                let value = shape.value(cx.buffer(), entry);
                return Ok(Seen::Found(leaf, leaf.plus(shape.value_at(entry)), value));
            }
            self.note_vacant(cx.buffer(), leaf);
            match fences {
                _ if is_current => return Ok(Seen::Absent),
                _ if place.is_remembered => return Ok(Seen::Elsewhere),
                // Not even a parent that was read just now knows: the fences do.
                None => is_fenced = true,
                Some(fences) if fences.contains(key) => return Ok(Seen::Absent),
                Some(fences) if key < fences.low => return Ok(Seen::Elsewhere),
                Some(fences) => {
                    self.complete_later(Some(leaf), sibling.next(), (0, fences.high + 1), pin);
                    leaf = sibling.next();
                }
            }
        }
    }

    /// Asks for the neighbourhood of a key, where memory is mapped; returns whether it is.
    #[inline]
    pub(super) fn approach_neighbourhood(&self, cx: &OpContext, leaf: RemoteAddr, key: Key) -> bool {
        let shape = self.shape();
        with_known_shape!(shape => {
            let segments = shape.segments(shape.home(key), shape.circle().neighbourhood());
            let approach = |segment: &Slice| cx.approach(leaf.plus(segment.at.into()), segment.bytes);
            segments.iter().all(approach)
        })
    }

    /// Over mapped memory: looks at the neighbourhood of a key without verbs and batches, which take longer than the loads.
    /// `None` where memory is not mapped, or something is unusual: verbs have to find out. Hotspots save nothing here.
    #[inline]
    pub(super) fn glance(&self, cx: &mut OpContext, place: Place, key: Key) -> Option<Seen> {
        let (shape, leaf) = (self.shape(), place.leaf);
        if self.shared.without.get().replicas {
            return None;
        }
        cx.reserve(shape.leaf_bytes() as usize);
        with_known_shape!(shape => {
            let segments = shape.segments(shape.home(key), shape.circle().neighbourhood());
            let mut loads = segments.iter();
            let is_loaded = loads.all(|&segment| cx.load(leaf.plus(segment.at.into()), segment));
            if is_loaded { seen_in(shape, cx.buffer(), place, key) } else { None }
        })
    }

    /// What has come of [`Tree::ask`]: the slot of the key, if it is there. `None` if something is unusual: then it has to be
    /// looked for by itself. Nothing of the image is used but what its checks and versions say is whole.
    pub(crate) fn answer(&self, images: &[u8], window: &Window, key: Key) -> Option<Option<Slot>> {
        let shape = self.shape();
        let seen = match window.only() {
            Some(place) => with_known_shape!(shape => seen_in(shape, images, place, key)),
            None => self.seen_around(images, window, key),
        };
        if seen.is_none() && is_planted("ordered: a key of another leaf taken for absent") {
            return Some(None);
        }
        match seen? {
            Seen::Found(.., value) if self.is_deleted(value) => Some(None),
            Seen::Found(leaf, at, value) => Some(Some(self.slot(leaf, at, value))),
            Seen::Absent => Some(None),
            Seen::Elsewhere => None,
        }
    }

    /// READs the one entry that a key was found in most often, if this client remembers one; returns entry and value if the key
    /// is there (CHIME, section 4.3). Neither sibling nor version is looked at: a key that has moved to another leaf, or whose
    /// leaf has gone, is taken here no more before anybody can change it there.
    pub(super) async fn speculate(
        &self,
        cx: &mut OpContext,
        leaf: RemoteAddr,
        key: Key,
    ) -> Result<Option<(usize, u64)>, IndexError> {
        let shape = self.shape();
        let neighbours = shape.circle().neighbours(shape.home(key));
        let Some(entry) = self.shared.hotspots.borrow().hottest(leaf, neighbours, key) else {
            return Ok(None);
        };
        let at = shape.entry_at(entry);
        cx.reserve(shape.leaf_bytes() as usize);
        cx.read(leaf.plus(at), Slice::new(at as u32, shape.entry_bytes() as u32))
            .await?;
        let image = cx.buffer();
        // What is frozen or gone may be elsewhere by now.
        let is_current = !shape.has_pointers() || {
            let pointer = shape.pointer(image, entry);
            !pointer.is_frozen() && !pointer.is_null()
        };
        let is_there = shape.taken(image, entry) == Some(key) && shape.is_whole(image, entry) && is_current;
        let found = is_there.then(|| (entry, shape.value(image, entry)));
        // By the check; or it is not used.
        cx.validated();
        let mut speculations = self.shared.statistics.speculations.get();
        if is_there {
            speculations.right += 1;
            self.shared.hotspots.borrow_mut().note(leaf, entry, key);
        } else {
            speculations.wrong += 1;
        }
        self.shared.statistics.speculations.set(speculations);
        Ok(found)
    }

    /// The leaf was taken out of the tree: forgets the parent, or sees to it that it forgets the leaf.
    pub(super) async fn go_elsewhere(&self, cx: &mut OpContext, place: Place, key: Key) -> Result<(), IndexError> {
        self.forget_parent(cx, key).await?;
        if !place.is_remembered {
            let task = self.clean_later(key);
            self.wait_for(cx, &task).await?;
        }
        Ok(())
    }

    /// READs the neighbourhood of a key, with the fences of the leaf if they are wanted, until what was read is whole.
    async fn read_neighbourhood(
        &self,
        cx: &mut OpContext,
        leaf: RemoteAddr,
        key: Key,
        with_fences: bool,
        pin: &Pin,
    ) -> Result<(Sibling, Option<Fences>), IndexError> {
        let shape = self.shape();
        let home = shape.home(key);
        cx.reserve(shape.leaf_bytes() as usize);
        let mut torn = 0;
        // Ends as `read_inner` does.
        loop {
            let segments = shape.segments(home, shape.circle().neighbourhood());
            match segments[..] {
                // As a rule, and without a batch: to make one takes as long as the READ over mapped memory.
                [segment] if !with_fences => drop(cx.read(leaf.plus(segment.at.into()), segment).await?),
                _ => {
                    let mut batch = Batch::new();
                    if with_fences {
                        let fences = shape.fence_slice();
                        batch.read(leaf.plus(fences.at.into()), fences);
                    }
                    for segment in segments {
                        batch.read(leaf.plus(segment.at.into()), segment);
                    }
                    cx.post(&mut batch).await?;
                }
            }
            let image = cx.buffer();
            let judged = shape.examine(image, home).and_then(|sibling| {
                let fences = if with_fences {
                    Some(shape.fences(image, sibling)?)
                } else {
                    None
                };
                Ok((sibling, fences))
            });
            // By checks and versions; or it is not used.
            cx.validated();
            match judged {
                Ok(read) => return Ok(read),
                Err(Torn) => torn += 1,
            }
            self.read_torn(cx, leaf, torn, pin).await?;
        }
    }

    /// What a READ of a leaf does that has come out torn so many times.
    pub(super) async fn read_torn(
        &self,
        cx: &mut OpContext,
        leaf: RemoteAddr,
        torn: u32,
        pin: &Pin,
    ) -> Result<(), IndexError> {
        cx.count_retry();
        if torn.is_multiple_of(TORN_READS) {
            self.help(cx, leaf, Kind::Leaf, pin).await?;
            if torn / TORN_READS >= TORN_READS {
                let shape = self.shape();
                let is_whole = |image: &[u8]| shape.examine_all(image).is_ok();
                if self.stays_torn(cx, leaf, (0, shape.leaf_bytes()), is_whole).await? {
                    return Err(IndexError::NodeDamaged { at: leaf });
                }
            }
            self.shared.backoff.wait(cx.endpoint(), torn / TORN_READS).await;
        }
        Ok(())
    }
}

/// What the neighbourhood of a key says that was read, if its leaf is the one that the parent means and nothing is unusual.
#[inline(always)]
pub(super) fn seen_in(shape: Shape, image: &[u8], place: Place, key: Key) -> Option<Seen> {
    let (leaf, home) = (place.leaf, shape.home(key));
    let found = shape.find_from(image, home, key);
    shape
        .examine_for(image, home, found)
        .ok()
        .filter(|sibling| !sibling.is_gone() && sibling.next() == place.next)?;
    Some(match found {
        Some(entry) => Seen::Found(leaf, leaf.plus(shape.value_at(entry)), shape.value(image, entry)),
        None => Seen::Absent,
    })
}
