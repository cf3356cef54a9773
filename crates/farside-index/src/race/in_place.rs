//! SEARCH over mapped memory: the lines of the buckets are looked at where they are.
//!
//! On the path: every operation on mapped memory comes here first, and goes the way with verbs (`mod.rs`,
//! `search_many.rs`) where something is unusual: a subtable that is being split, an item longer than its
//! hint, damage. There what counts is not round trips but lines, and instructions: the overflow buckets
//! are looked at only if the main ones have nothing that fits, and nothing but the item is copied.
//!
//! # Why line after line is right
//! The words of the two buckets are loaded at different instants, as the words of a READ may be. A key that
//! is there throughout is found: it changes neither its slot nor its fingerprint unless its subtable is
//! split, and a split leaves the old entry where it was. To come to a slot that was looked at before, a
//! key has to be removed first, and at that instant it was absent.

use arrayvec::ArrayVec;
use farside_fabric::{Endpoint, OpContext, RemoteAddr};
use farside_pool::Pin;
use farside_sync::{Pointer, SizeHint};

use super::layout::{Combined, LINE_BYTES, Line, LockWord};
use super::search_many::{ITEMS_END, Steps};
use super::{ITEMS_AT, Match, Place, Race};
use crate::item::KEY_BYTES_MAX;
use crate::operation::{Found, KEYS_AT_ONCE, Searched, SearchedKeys, Wanted};

/// What looking in place came to.
pub(super) enum InPlace {
    /// The key is there, and its item in the buffer.
    Found(Match),
    /// It is not.
    Absent,
    /// Verbs have to find out: memory is not mapped, or something is unusual.
    Unknown,
}

/// What the lines of a place came to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Looked {
    /// This slot may have the key.
    Fitting(RemoteAddr, Pointer),
    /// A header or an empty slot looks like one that may: those behind it were not looked at.
    Unsure,
    /// Nothing has it.
    Nothing,
    /// See [`InPlace::Unknown`].
    Unknown,
}

/// The slots of one line of a bucket whose fingerprint fits, as they were when they were looked at.
struct Fitting {
    words: [u64; 8],
    /// Of the byte that stands for a slot the highest bit.
    left: u64,
    line: RemoteAddr,
}

impl Fitting {
    /// Looks at a line of a bucket; `None` if it is closed, or not mapped.
    #[inline(always)]
    fn look(endpoint: &Endpoint, bucket: Combined, line: Line, fingerprint: u8) -> Option<Self> {
        let at = bucket.line(line);
        let words = endpoint.view(at, LINE_BYTES)?.line();
        if line == Line::Main && words[bucket.header_word() % 8] == LockWord::CLOSED.0 {
            return None;
        }
        let left = fitting_bytes(fingerprints(&words), fingerprint) & bucket.slots_of(line);
        Some(Self { words, left, line: at })
    }
}

impl Iterator for Fitting {
    type Item = (RemoteAddr, Pointer);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        // Ends: each turn takes a bit away.
        while self.left != 0 {
            let at = self.left.trailing_zeros() / 8;
            self.left &= self.left - 1;
            let pointer = Pointer::from_word(self.words[at as usize]);
            if !pointer.is_null() {
                return Some((self.line.plus(u64::from(at) * 8), pointer));
            }
        }
        None
    }
}

/// The fingerprints of eight pointers, a byte for each.
#[inline]
fn fingerprints(words: &[u64; 8]) -> u64 {
    let parts = words.iter().enumerate().map(|(at, word)| (word >> 56) << (8 * at));
    parts.fold(0, |bytes, part| bytes | part)
}

/// The highest bit of each byte that is equal to `byte`.
#[inline]
fn fitting_bytes(bytes: u64, byte: u8) -> u64 {
    const LOW: u64 = u64::from_ne_bytes([0x7f; 8]);
    let differing = bytes ^ u64::from_ne_bytes([byte; 8]);
    // The sum carries into the highest bit of a byte unless the seven bits below are 0.
    !((differing & LOW).wrapping_add(LOW) | differing | LOW)
}

/// How far the memory of a key has been approached, in steps.
#[derive(Debug)]
pub struct Approach {
    step: Step,
    /// What was seen stays what it is.
    pin: Pin,
}

#[derive(Debug)]
enum Step {
    Start,
    /// These lines of its buckets are on their way.
    Lines(Place, Line),
    /// The first item that fits is, to which this slot points.
    Item(Place, RemoteAddr, Pointer),
    /// Nothing more is worth it.
    End,
}

/// How far the memory of several keys has been approached.
pub type Approaches = ArrayVec<Approach, KEYS_AT_ONCE>;

impl Approach {
    /// Nothing was done yet.
    pub(crate) fn new(pin: Pin) -> Self {
        Self { step: Step::Start, pin }
    }

    /// The next step; returns whether it is worth waiting for.
    #[inline]
    fn go(&mut self, endpoint: &Endpoint, step: Step) -> bool {
        let is_coming = match &step {
            Step::Start | Step::End => false,
            Step::Lines(place, line) => approach(endpoint, place, *line),
            Step::Item(_, _, pointer) => endpoint.prefetch(pointer.block(), LINE_BYTES),
        };
        self.step = step;
        is_coming
    }

    /// Where the key is looked for, if that is known.
    #[inline]
    pub(super) fn place(&self) -> Option<Place> {
        match self.step {
            Step::Lines(place, _) | Step::Item(place, ..) => Some(place),
            Step::Start | Step::End => None,
        }
    }

    #[inline]
    pub(super) fn pin(&self) -> &Pin {
        &self.pin
    }
}

/// Asks for one line of each bucket; returns whether they are mapped.
#[inline]
fn approach(endpoint: &Endpoint, place: &Place, line: Line) -> bool {
    let [first, second] = place.buckets;
    endpoint.prefetch(first.line(line), LINE_BYTES) & endpoint.prefetch(second.line(line), LINE_BYTES)
}

impl Race {
    /// Looks for a key. The caller has pinned.
    // Always: a GET is little more than this, and what it returns would go through memory.
    #[inline(always)]
    pub(super) fn look(&self, cx: &mut OpContext, place: &Place, key: &[u8], wanted: Wanted) -> InPlace {
        // The second bucket is on its way while the first is looked at.
        let _ = cx.approach(place.buckets[1].line(Line::Main), LINE_BYTES);
        for line in [Line::Main, Line::Overflow] {
            match self.first_fitting(cx.endpoint(), place, line) {
                Looked::Nothing => {}
                Looked::Fitting(slot, pointer) => match self.load_match(cx, key, (slot, pointer), (ITEMS_AT, wanted)) {
                    InPlace::Found(found) => return InPlace::Found(found),
                    InPlace::Absent | InPlace::Unknown => return self.look_further(cx, place, key, ITEMS_AT),
                },
                Looked::Unsure => return self.look_further(cx, place, key, ITEMS_AT),
                Looked::Unknown => return InPlace::Unknown,
            }
        }
        InPlace::Absent
    }

    /// The same for whoever has more to do than to look: one copy of it.
    #[inline(never)]
    pub(super) fn look_apart(&self, cx: &mut OpContext, place: &Place, key: &[u8], wanted: Wanted) -> InPlace {
        self.look(cx, place, key, wanted)
    }

    /// Likewise.
    #[inline(never)]
    fn first_fitting_apart(&self, endpoint: &Endpoint, place: &Place, line: Line) -> Looked {
        self.first_fitting(endpoint, place, line)
    }

    /// The first slot of these lines of a place that may have the key: mostly it has, and nothing else was loaded.
    #[inline(always)]
    fn first_fitting(&self, endpoint: &Endpoint, place: &Place, line: Line) -> Looked {
        let bytes = self.directory.format.image_bytes(place.hash.hash);
        let Some(lines) = endpoint.lines(place.subtable, bytes) else {
            return Looked::Unknown;
        };
        for bucket in &place.buckets {
            let at = bucket.line(line);
            let Some(words) = lines.at((at.offset() - place.subtable.offset()) as usize / 8) else {
                return Looked::Unknown;
            };
            let header = bucket.header_word() % 8;
            if line == Line::Main && words.word(header) == LockWord::CLOSED.0 {
                return Looked::Unknown;
            }
            if let Some((index, word)) = words.first_with(place.hash.fingerprint()) {
                let pointer = Pointer::from_word(word);
                let is_slot = line == Line::Overflow || index != header;
                if !is_slot || pointer.is_null() {
                    return Looked::Unsure;
                }
                return Looked::Fitting(at.plus(index as u64 * 8), pointer);
            }
        }
        Looked::Nothing
    }

    /// Looks at every slot whose fingerprint fits, where the first that does has another key, or none. The item comes to `at` in
    /// the buffer.
    #[cold]
    fn look_further(&self, cx: &mut OpContext, place: &Place, key: &[u8], at: u32) -> InPlace {
        let fingerprint = place.hash.fingerprint();
        for line in [Line::Main, Line::Overflow] {
            for bucket in place.buckets {
                let Some(fitting) = Fitting::look(cx.endpoint(), bucket, line, fingerprint) else {
                    return InPlace::Unknown;
                };
                for (slot, pointer) in fitting {
                    match self.load_match(cx, key, (slot, pointer), (at, Wanted::Items)) {
                        InPlace::Absent => {}
                        other => return other,
                    }
                }
            }
        }
        InPlace::Absent
    }

    /// Asks for what a look for the key will see next: the lines of its buckets, then the first item that fits. Returns
    /// whether that is worth waiting for.
    pub(crate) fn approach_next(&self, endpoint: &Endpoint, key: &[u8], approach: &mut Approach) -> bool {
        let (place, line) = match approach.step {
            Step::Start if key.len() <= KEY_BYTES_MAX => {
                let next = self.known_place(self.hash(key));
                let next = next.map_or(Step::End, |place| Step::Lines(place, Line::Main));
                return approach.go(endpoint, next);
            }
            Step::Lines(place, line) => (place, line),
            Step::Start | Step::Item(..) | Step::End => return false,
        };
        let next = match (self.first_fitting_apart(endpoint, &place, line), line) {
            (Looked::Fitting(slot, pointer), _) => Step::Item(place, slot, pointer),
            (Looked::Nothing, Line::Main) => Step::Lines(place, Line::Overflow),
            (Looked::Nothing, Line::Overflow) | (Looked::Unsure | Looked::Unknown, _) => Step::End,
        };
        approach.go(endpoint, next)
    }

    /// What is there of a key, if the item that was approached has it: its slot pointed to it during this operation, and the
    /// block is what it was, since the approach has pinned. Otherwise a look from the start says more.
    #[inline]
    pub(crate) fn approached(&self, cx: &mut OpContext, key: &[u8], approach: &Approach) -> Option<Found> {
        self.approached_match(cx, key, approach, Wanted::Items)
            .map(|found| found.value())
    }

    /// The same, with its slot.
    #[inline(always)]
    pub(super) fn approached_match(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        approach: &Approach,
        wanted: Wanted,
    ) -> Option<Match> {
        let Step::Item(_, slot, pointer) = approach.step else {
            return None;
        };
        match self.load_match(cx, key, (slot, pointer), (ITEMS_AT, wanted)) {
            InPlace::Found(found) => Some(found),
            InPlace::Absent | InPlace::Unknown => None,
        }
    }

    /// Looks at the item that a slot points to.
    #[inline(always)]
    fn load_match(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        (slot, pointer): (RemoteAddr, Pointer),
        (at, wanted): (u32, Wanted),
    ) -> InPlace {
        let bytes = self.blocks.readable(pointer);
        let Some(header) = self.blocks.load_item(cx, pointer, (at, bytes), wanted) else {
            return InPlace::Unknown;
        };
        if !self.is_match(cx, header, at, key) {
            return InPlace::Absent;
        }
        InPlace::Found(Match {
            slot,
            pointer,
            header,
            at,
        })
    }

    /// Looks for several keys whose places are known; false if memory is not mapped. All main lines are
    /// asked for before the first is looked at, then all items that fit, and the overflow lines of keys
    /// for which nothing does; so the misses overlap. The caller has pinned.
    pub(super) fn find_many_in_place(
        &self,
        cx: &mut OpContext,
        keys: &[&[u8]],
        state: &mut Steps,
        results: &mut SearchedKeys,
    ) -> bool {
        if !state
            .places
            .iter()
            .all(|place| approach(cx.endpoint(), place, Line::Main))
        {
            return false;
        }
        for place in &state.places {
            let looked = self.first_fitting(cx.endpoint(), place, Line::Main);
            match looked {
                Looked::Nothing => drop(approach(cx.endpoint(), place, Line::Overflow)),
                _ => self.approach_item(cx.endpoint(), &looked),
            }
            state.looked.push(looked);
        }
        results.extend(core::iter::repeat_n(Searched::Absent, keys.len()));
        let mut left = 0_u32;
        for (index, key) in keys.iter().enumerate() {
            let place = &state.places[index];
            let looked = match state.looked[index] {
                Looked::Nothing => {
                    left |= 1 << index;
                    let looked = self.first_fitting_apart(cx.endpoint(), place, Line::Overflow);
                    self.approach_item(cx.endpoint(), &looked);
                    state.looked[index] = looked;
                    Looked::Nothing
                }
                looked => looked,
            };
            self.load_looked(cx, key, (place, looked), &mut state.end, &mut results[index]);
        }
        // Ends: each turn takes a bit away.
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            left &= left - 1;
            let of = (&state.places[index], state.looked[index]);
            self.load_looked(cx, keys[index], of, &mut state.end, &mut results[index]);
        }
        true
    }

    #[inline]
    fn approach_item(&self, endpoint: &Endpoint, looked: &Looked) {
        if let Looked::Fitting(_, pointer) = looked {
            endpoint.prefetch(pointer.block(), self.blocks.readable(*pointer));
        }
    }

    /// Approaches the memory of keys that will be used next, as far as their subtables are remembered: first the main lines of
    /// their buckets, then for each the first item that fits there. The cache misses of all of them overlap. Returns nothing
    /// where memory is not mapped.
    pub(crate) fn approach_each(&self, endpoint: &Endpoint, keys: &[&[u8]]) -> Approaches {
        let mut approaches = Approaches::new();
        let pin = self.blocks.pool.pin();
        for key in keys {
            let mut approach = Approach::new(pin.clone());
            if let Some(place) = self.known_place(self.hash(key)) {
                approach.go(endpoint, Step::Lines(place, Line::Main));
            }
            approaches.push(approach);
        }
        for approach in &mut approaches {
            let Step::Lines(place, line) = approach.step else {
                continue;
            };
            if let Looked::Fitting(slot, pointer) = self.first_fitting_apart(endpoint, &place, line) {
                approach.go(endpoint, Step::Item(place, slot, pointer));
            }
        }
        approaches
    }

    /// Loads the item that was asked for, if one was, to `end` in the buffer, and looks whether it has the key. What finds no room,
    /// or verbs have to find out, is left to a SEARCH of its own.
    // What it comes to is written where it stays: a copy would have to wait for the parts of it that are still on their way to memory.
    #[inline(never)]
    fn load_looked(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        (place, looked): (&Place, Looked),
        end: &mut u32,
        searched: &mut Searched,
    ) {
        let at = *end;
        let is_full = at + SizeHint::Large.bytes() > ITEMS_END;
        let loaded = match looked {
            Looked::Nothing => InPlace::Absent,
            Looked::Unknown => InPlace::Unknown,
            _ if is_full => InPlace::Unknown,
            Looked::Unsure => self.look_further(cx, place, key, at),
            Looked::Fitting(slot, pointer) => {
                match self.load_match(cx, key, (slot, pointer), (at, Wanted::Items)) {
                    // What was looked at first hides what is behind it.
                    InPlace::Absent => self.look_further(cx, place, key, at),
                    other => other,
                }
            }
        };
        match loaded {
            InPlace::Found(found) => {
                *end = at + (found.header.block_bytes() as u32).next_multiple_of(8);
                *searched = Searched::Found(found.value());
            }
            InPlace::Absent => *searched = Searched::Absent,
            InPlace::Unknown => *searched = Searched::Apart,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fitting_bytes_are_those_that_are_equal(words: [u64; 8], fingerprint: u8, same in 0_usize..8) {
            let mut words = words;
            words[same] = words[same] << 8 >> 8 | u64::from(fingerprint) << 56;
            let fitting = fitting_bytes(fingerprints(&words), fingerprint);
            for (at, word) in words.into_iter().enumerate() {
                let fits = (word >> 56) as u8 == fingerprint;
                prop_assert_eq!(fitting >> (8 * at) & 0xff, if fits { 0x80 } else { 0 });
            }
        }
    }
}
