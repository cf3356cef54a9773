//! Nodes that are replaced: by a new one, by their only entry, or by nothing. The steps stand in [`super`].
//!
//! On the path: behind a DELETE that leaves a node with little, before an INSERT into an entry whose versions are used up, and
//! wherever somebody finds a frozen entry.

use arrayvec::ArrayVec;
use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_pool::Purpose;
use farside_sync::Pointer;

use super::Smart;
use super::descend::{Entry, Image, read_node, read_root};
use super::layout::{
    Course, END, Kind, PLACES, VERSION_AT, frozen, gone, in_place_of, is_frozen, is_item, is_node, is_worn, kind_of,
    node_of, place_at, thawed, to_node,
};
use super::link::{count, encode_node};
use crate::descriptor::settle;
use crate::error::IndexError;

/// A node on the way of a key.
pub(super) struct Stop {
    /// What leads to it.
    pub(super) entry: Entry,
    /// How many bytes of the key that tells.
    pub(super) known: usize,
    pub(super) image: Image,
}

/// Which node of a key's way is to be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    /// The first that somebody has begun to replace.
    Frozen,
    /// That, or the last that is larger than need be.
    Untidy,
    /// That, or the last one.
    Last,
    /// That, or below the last one the first that is larger than need be.
    Below,
}

enum Renewed {
    /// There is none.
    None,
    /// It was replaced, or somebody else has been quicker.
    Done,
    /// This client has no block left.
    Short,
}

/// Whether a node has less in it than its size is for.
pub(super) fn is_untidy(image: &Image, is_first: bool) -> bool {
    const USED_MIN: usize = 8;
    let (live, used) = (image.live().count(), image.used());
    (live <= 1 && !is_first) || (used >= USED_MIN && 4 * live <= used)
}

impl Smart {
    /// Replaces nodes on the way of a key as long as one is larger than need be.
    pub(super) async fn tidy(&self, cx: &mut OpContext, key: &[u8]) -> Result<(), IndexError> {
        // Ends: each round makes the tree smaller, or another client has changed it.
        while self.replace_node(cx, key, Which::Untidy).await? {}
        Ok(())
    }

    /// Replaces a node on the way of a key; returns whether there was one to replace.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub(super) async fn replace_node(&self, cx: &mut OpContext, key: &[u8], which: Which) -> Result<bool, IndexError> {
        // Ends: there is memory, or the pool says that there is none.
        loop {
            let pin = self.pin();
            let renewed = self.renew(cx, key, which).await?;
            drop(pin);
            match renewed {
                Renewed::None => return Ok(false),
                Renewed::Done => {
                    cx.count_retry();
                    return Ok(true);
                }
                Renewed::Short => {
                    let restocked = self.blocks.pool.restock(self.node_bytes(), 1, Purpose::Overwrite);
                    restocked.await?;
                }
            }
        }
    }

    /// The nodes on the way of a key, each READ.
    pub(super) async fn fresh_way(&self, cx: &mut OpContext, key: &[u8]) -> Result<Vec<Stop>, IndexError> {
        let version = self.shared.version.get();
        let mut entry = read_root(cx, self.shared.area, version).await?;
        self.note_entry(entry);
        let (mut known, mut stops) = (0, Vec::new());
        // Ends: each round goes to a node that is deeper.
        loop {
            let addr = node_of(entry.word);
            let image = read_node(cx, addr, kind_of(entry.word), (0, known)).await?;
            if image.is_frozen() {
                self.shared.cache.borrow_mut().forget(addr);
            } else {
                self.remember_node(version, addr, &image, image.header.has_gap(known));
            }
            let depth = image.header.depth();
            let goes_on = image.header.course(key, known) == Course::Same;
            let place = image.place(key.get(depth).copied()).filter(|_| goes_on);
            let below = place.map(|place| Entry {
                node: addr,
                place,
                at: addr.plus(place_at(place)),
                word: image.entries[place],
                version,
            });
            stops.push(Stop { entry, known, image });
            match below.filter(|below| is_node(below.word)) {
                None => return Ok(stops),
                Some(below) => (entry, known) = (below, depth + 1),
            }
        }
    }

    /// Goes on to the first node below that leads to no other.
    async fn go_down(&self, cx: &mut OpContext, stops: &mut Vec<Stop>) -> Result<(), IndexError> {
        // Ends: each round goes to a node that is deeper.
        loop {
            let last = stops.last().expect("there is a first node");
            let (node, known) = (node_of(last.entry.word), last.image.header.depth() + 1);
            let version = last.entry.version;
            let Some((place, word)) = last.image.live().find(|&(_, entry)| is_node(entry)) else {
                return Ok(());
            };
            let at = node.plus(place_at(place));
            let image = read_node(cx, node_of(word), kind_of(word), (0, known)).await?;
            let entry = Entry {
                node,
                place,
                at,
                word,
                version,
            };
            stops.push(Stop { entry, known, image });
        }
    }

    async fn renew(&self, cx: &mut OpContext, key: &[u8], which: Which) -> Result<Renewed, IndexError> {
        let mut stops = self.fresh_way(cx, key).await?;
        if which == Which::Below {
            self.go_down(cx, &mut stops).await?;
        }
        let first = stops.iter().position(|stop| stop.image.is_frozen());
        let is_untidy = |index: &usize| is_untidy(&stops[*index].image, *index == 0);
        let chosen = first.or_else(|| match which {
            Which::Frozen => None,
            Which::Untidy | Which::Below => (0..stops.len()).rev().find(is_untidy),
            Which::Last => Some(stops.len() - 1),
        });
        let Some(mut chosen) = chosen else {
            return Ok(Renewed::None);
        };
        let is_begun = first.is_some();
        if !is_begun && chosen > 0 && is_worn(stops[chosen].entry.word) {
            // What leads to the node cannot lead to anything else before the one above is replaced.
            chosen -= 1;
        }
        let is_first = chosen == 0;
        let Stop { entry, mut image, .. } = stops.swap_remove(chosen);
        let (pool, bytes, node) = (&self.blocks.pool, self.node_bytes(), node_of(entry.word));
        // Before anything is frozen: who cannot end it does not begin.
        let mut spare = None;
        if !is_begun || image.live().count() > 1 || is_first {
            spare = pool.allocate(bytes);
            if spare.is_none() {
                return Ok(Renewed::Short);
            }
        }
        let give_back = |spare: Option<RemoteAddr>| spare.into_iter().for_each(|spare| pool.give_back(spare, bytes));
        let left = match self.freeze(cx, node, &mut image).await {
            Ok(left) => left,
            Err(error) => {
                give_back(spare);
                return Err(error);
            }
        };
        let only = match left[..] {
            _ if is_first || is_worn(entry.word) => None,
            [] => Some(gone(entry.word)),
            [(_, item)] if is_item(item) => Some(in_place_of(item, entry.word)),
            [(_, below)] => Some(to_node(
                node_of(below),
                kind_of(below),
                entry.word.fingerprint(),
                entry.word.version(),
            )),
            _ => None,
        };
        let new = match only {
            Some(only) => {
                give_back(spare.take());
                only
            }
            None => {
                let Some(block) = spare else {
                    return Ok(Renewed::Short);
                };
                let kind = Kind::for_count(left.iter().filter(|(byte, _)| byte.is_some()).count());
                cx.reserve(bytes as usize);
                let target = &mut cx.buffer_mut()[..bytes as usize];
                encode_node(target, image.header.with_kind(kind), left);
                if let Err(error) = cx.write(Slice::first(bytes as u32), block).await {
                    pool.retire(block, Some(bytes));
                    return Err(error.into());
                }
                to_node(block, kind, entry.word.fingerprint(), entry.word.version())
            }
        };
        let swapped = cx.compare_swap(entry.at, entry.word.to_word(), new.to_word()).await;
        let seen = Pointer::from_word(swapped.inspect_err(|_| pool.doubt())?);
        if seen != entry.word {
            give_back(spare);
            self.forget_entry(entry);
            return Ok(Renewed::Done);
        }
        self.note_entry(Entry { word: new, ..entry });
        self.shared.cache.borrow_mut().forget(node);
        let statistics = &self.shared.statistics;
        count(if only.is_some() {
            &statistics.gone
        } else {
            &statistics.renewed
        });
        // Others may remember the node: they are told before its memory is used again.
        if !is_planted("smart: a node that goes and nobody is told") {
            let told = cx.fetch_add(self.shared.area.plus(VERSION_AT), 1).await;
            told.inspect_err(|_| pool.doubt())?;
        }
        pool.retire(node, Some(bytes));
        Ok(Renewed::Done)
    }

    /// Freezes every entry of a node, and the next one that is free; returns what leads somewhere, as it is in another node.
    async fn freeze(
        &self,
        cx: &mut OpContext,
        node: RemoteAddr,
        image: &mut Image,
    ) -> Result<Vec<(Option<u8>, Pointer)>, IndexError> {
        image.entries.resize(PLACES, Pointer::NULL);
        let mut before = image.entries.clone();
        // Ends: each round freezes an entry, or another client has changed it.
        loop {
            let marked = |image: &Image| {
                let in_use = &image.entries[..image.used()];
                let is_marked = |&entry: &Pointer| !is_node(entry) && self.blocks.is_marked(entry);
                in_use.iter().position(is_marked)
            };
            // Ends: each round has settled one, and a frozen entry gets no other.
            while let Some(place) = marked(image) {
                let slot = (node.plus(place_at(place)), image.entries[place]);
                image.entries[place] = Box::pin(settle(cx, (&self.blocks.pool, self.blocks.marking), slot, 0)).await?;
                before[place] = image.entries[place];
            }
            let used = image.used();
            let free = (used < PLACES && !is_planted("smart: a free entry that is not frozen")).then_some(used);
            let wanted = (0..used).chain(free);
            let wanted: ArrayVec<usize, BATCH_VERBS_MAX> = wanted
                .filter(|&place| !is_frozen(image.entries[place]))
                .take(BATCH_VERBS_MAX)
                .collect();
            if wanted.is_empty() {
                break;
            }
            let mut batch = Batch::new();
            let swap = |&place: &usize| {
                let word = image.entries[place];
                batch.compare_swap(node.plus(place_at(place)), word.to_word(), frozen(word).to_word())
            };
            let swaps: ArrayVec<_, BATCH_VERBS_MAX> = wanted.iter().map(swap).collect();
            cx.post(&mut batch).await?;
            for (&place, swap) in wanted.iter().zip(swaps) {
                let (expected, seen) = (image.entries[place], Pointer::from_word(batch.result(swap)));
                if seen == expected {
                    before[place] = expected;
                    image.entries[place] = frozen(expected);
                } else {
                    before[place] = seen;
                    image.entries[place] = seen;
                }
            }
        }
        // What this client has frozen it knows the size of.
        let left = image.live().map(|(place, _)| {
            let byte = (place != END).then(|| image.entries[place].fingerprint());
            (byte, thawed(before[place]))
        });
        Ok(left.collect())
    }
}
