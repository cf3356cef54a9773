//! When keys were last used, or how often: as much of it as fits into a bounded table in local memory.
//!
//! On the path: beside a lookup that found its key, if the policy asks for it. Far memory is not touched: a reader
//! that noted its read there would turn every GET into a write. So a process knows the uses that went through
//! itself, and no others.
//!
//! The table has lines of eight words. The hash of a key chooses a line and a tag; the word with that tag is the
//! key's. A key without one takes the place of the least valuable of its line: the one that was used longest ago,
//! or least often. So what is forgotten is what would be evicted first, and a key that is not in the table counts
//! as one that was never used. Two keys with the same tag in one line share a word, one in some million.
//!
//! ```text
//! recency    bits 0..40   when the key was last used, in milliseconds since the table was made
//!            bits 40..64  tag, never 0
//! frequency  bits 0..8    a logarithmic count
//!            bits 8..40   when it was last halved or begun, in milliseconds / 256
//!            bits 40..64  tag
//! ```
//!
//! The count is the one of Redis: a new key starts at 5, a use of a key with count c raises it with probability
//! 1 / (10 (c - 5) + 1), so that 255 stand for a million uses; it falls by one for each minute without.
//! (R. Morris, Counting large numbers of events in small registers, CACM 1978.)
//!
//! Threads write the words without asking each other. Of two uses at the same moment one may be forgotten.

use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64;

use crate::policy::Tracking;

/// Words of a line: those of a cache line.
const WAYS: usize = 8;
/// Memory of the store for each word of the table.
const BYTES_PER_WORD: u64 = 512;
/// How many words there are at least and at most.
const WORDS: (u64, u64) = (1 << 12, 1 << 22);

const TIME_BITS: u32 = 40;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// A step of the time beside a count, in milliseconds.
const STEP_MS: u64 = 256;
/// The count of a key that was used once.
const COUNT_FIRST: u64 = 5;
const COUNT_MAX: u64 = 255;
/// How much harder each further use counts.
const COUNT_FACTOR: u64 = 10;
/// A count falls by one in this time.
const DECAY_MS: u64 = 60_000;

/// What is known of the uses of keys.
#[derive(Debug)]
pub(crate) struct Uses {
    lines: Box<[Line]>,
    started_ms: u64,
}

#[derive(Default, Debug)]
#[repr(align(64))]
struct Line([AtomicU64; WAYS]);

impl Uses {
    /// An empty table for a store of `bytes` bytes, made at `now_ms`.
    pub(crate) fn new(bytes: u64, now_ms: u64) -> Self {
        let words = (bytes / BYTES_PER_WORD).clamp(WORDS.0, WORDS.1).next_power_of_two();
        let mut lines = Vec::new();
        lines.resize_with(words as usize / WAYS, Line::default);
        Self {
            lines: lines.into(),
            started_ms: now_ms,
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        for word in self.lines.iter().flat_map(|line| &line.0) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The line and the tag of a key.
    fn find(&self, key: &[u8]) -> (&Line, u64) {
        let hash = xxh3_64(key);
        let line = &self.lines[hash as usize & (self.lines.len() - 1)];
        // The high bits: the low ones chose the line.
        (line, (hash >> TIME_BITS).max(1) << TIME_BITS)
    }

    /// The word of a key, if it has one.
    fn word(&self, key: &[u8]) -> Option<u64> {
        let (line, tag) = self.find(key);
        let words = line.0.iter().map(|word| word.load(Ordering::Relaxed));
        words.into_iter().find(|word| word & !TIME_MASK == tag)
    }

    fn since_start(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.started_ms) & TIME_MASK
    }

    /// A key is used. `random_below` is asked for a number below its argument.
    pub(crate) fn note(&self, tracking: Tracking, key: &[u8], now_ms: u64, random_below: impl FnOnce(u64) -> u64) {
        let (line, tag) = self.find(key);
        let now = self.since_start(now_ms);
        let mut place = (u64::MAX, &line.0[0]);
        for word in &line.0 {
            let value = word.load(Ordering::Relaxed);
            if value & !TIME_MASK == tag {
                let next = match tracking {
                    Tracking::Recency => now,
                    Tracking::Frequency => next_count(value & TIME_MASK, now, random_below),
                };
                // A key that everybody uses is not written by everybody.
                if next != value & TIME_MASK {
                    word.store(tag | next, Ordering::Relaxed);
                }
                return;
            }
            let worth = match (value, tracking) {
                (0, _) => 0,
                (_, Tracking::Recency) => 1 + (value & TIME_MASK),
                (_, Tracking::Frequency) => 1 + count(value & TIME_MASK, now),
            };
            if worth < place.0 {
                place = (worth, word);
            }
        }
        let first = match tracking {
            Tracking::Recency => now,
            Tracking::Frequency => (now / STEP_MS) << 8 | COUNT_FIRST,
        };
        place.1.store(tag | first, Ordering::Relaxed);
    }

    /// A key is gone.
    pub(crate) fn forget(&self, key: &[u8]) {
        let (line, tag) = self.find(key);
        for word in &line.0 {
            if word.load(Ordering::Relaxed) & !TIME_MASK == tag {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    /// How long a key has not been used; `None` if nothing is known of it. For a table of recency.
    pub(crate) fn idle_ms(&self, key: &[u8], now_ms: u64) -> Option<u64> {
        let word = self.word(key)?;
        Some(self.since_start(now_ms).saturating_sub(word & TIME_MASK))
    }

    /// How long uses have been noted.
    pub(crate) fn age_ms(&self, now_ms: u64) -> u64 {
        self.since_start(now_ms)
    }

    /// The count of a key; `None` if nothing is known of it. For a table of frequency.
    pub(crate) fn frequency(&self, key: &[u8], now_ms: u64) -> Option<u64> {
        let word = self.word(key)?;
        Some(count(word & TIME_MASK, self.since_start(now_ms)))
    }
}

/// A count as it is now.
fn count(body: u64, now: u64) -> u64 {
    let idle_ms = now.saturating_sub((body >> 8) * STEP_MS);
    (body & COUNT_MAX).saturating_sub(idle_ms / DECAY_MS)
}

/// A count after a use.
fn next_count(body: u64, now: u64, random_below: impl FnOnce(u64) -> u64) -> u64 {
    let before = count(body, now);
    let odds = before.saturating_sub(COUNT_FIRST) * COUNT_FACTOR + 1;
    let grows = before < COUNT_MAX && random_below(odds) == 0;
    let has_decayed = before != body & COUNT_MAX;
    if !grows && !has_decayed && now.saturating_sub((body >> 8) * STEP_MS) < DECAY_MS / 2 {
        return body;
    }
    (now / STEP_MS) << 8 | (before + u64::from(grows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses() -> Uses {
        Uses::new(0, 1_000)
    }

    #[test]
    fn there_is_a_word_for_each_512_bytes_within_limits() {
        let words = |bytes| Uses::new(bytes, 0).lines.len() * WAYS;
        assert_eq!([0, 2 << 20].map(words), [1 << 12; 2]);
        assert_eq!(words((2 << 20) + 512), 1 << 13);
        assert_eq!(words(64 << 20), 1 << 17);
        assert_eq!([1 << 31, 1 << 40].map(words), [1 << 22; 2]);
    }

    #[test]
    fn the_last_use_is_remembered() {
        let uses = uses();
        assert_eq!(uses.idle_ms(b"a", 1_000), None);
        uses.note(Tracking::Recency, b"a", 1_500, |_| 0);
        uses.note(Tracking::Recency, b"b", 1_700, |_| 0);
        assert_eq!(
            (uses.idle_ms(b"a", 2_000), uses.idle_ms(b"b", 2_000)),
            (Some(500), Some(300))
        );
        uses.note(Tracking::Recency, b"a", 1_900, |_| 0);
        assert_eq!(uses.idle_ms(b"a", 2_000), Some(100));
        uses.forget(b"a");
        assert_eq!((uses.idle_ms(b"a", 2_000), uses.age_ms(2_000)), (None, 1_000));
    }

    #[test]
    fn counts_are_logarithmic_and_decay() {
        let uses = uses();
        let mut state = 7_u64;
        let mut random_below = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let mut seen = Vec::new();
        for round in 0..1_000_000_u64 {
            uses.note(Tracking::Frequency, b"hot", 1_000, &mut random_below);
            if [1, 100, 1_000, 100_000, 999_999].contains(&round) {
                seen.push(uses.frequency(b"hot", 1_000).expect("it was noted"));
            }
        }
        // As Redis documents them for a factor of 10: about 10, 18, 142 and 255 after 100, 1,000, 100,000 and 1,000,000.
        for (seen, expected) in seen.iter().zip([5..=6, 8..=13, 16..=24, 120..=165, 255..=255]) {
            assert!(expected.contains(seen), "{seen} is not in {expected:?}");
        }
        let later_ms = 1_000 + 10 * DECAY_MS;
        assert_eq!(uses.frequency(b"hot", later_ms), Some(245));
        uses.note(Tracking::Frequency, b"hot", later_ms, |_| 1);
        assert_eq!(uses.frequency(b"hot", later_ms), Some(245));
        assert_eq!(uses.frequency(b"hot", later_ms + DECAY_MS), Some(244));
    }

    #[test]
    fn a_count_is_written_anew_only_if_it_says_something_else() {
        let uses = uses();
        let note = |now_ms| uses.note(Tracking::Frequency, b"key", now_ms, |_| 1);
        let at = |now_ms: u64| uses.frequency(b"key", 1_000 + now_ms);
        note(1_000);
        assert_eq!(at(0), Some(COUNT_FIRST));
        // It does not grow, and half of its time is not over: what was written stays, and decays from there on.
        note(1_000 + DECAY_MS / 2 - STEP_MS);
        assert_eq!(at(DECAY_MS - 1), Some(COUNT_FIRST));
        assert_eq!(at(DECAY_MS), Some(COUNT_FIRST - 1));
        // Half of it is over: it is written with its new time.
        note(1_000 + DECAY_MS / 2);
        assert_eq!(at(DECAY_MS), Some(COUNT_FIRST));
        assert_eq!(at(DECAY_MS + DECAY_MS / 2), Some(COUNT_FIRST - 1));
    }

    #[test]
    fn a_count_decays_from_its_first_use_on() {
        let uses = uses();
        let first_ms = 1_000 + 20 * DECAY_MS;
        uses.note(Tracking::Frequency, b"key", first_ms, |_| 1);
        assert_eq!(uses.frequency(b"key", first_ms), Some(COUNT_FIRST));
        assert_eq!(uses.frequency(b"key", first_ms + DECAY_MS), Some(COUNT_FIRST - 1));
    }

    #[test]
    fn a_count_is_as_old_as_its_steps() {
        // So late that a step that is shorter by a millisecond would be a decay.
        let steps = 1 << 20;
        let (body, now) = (steps << 8 | COUNT_FIRST, steps * STEP_MS);
        assert_eq!(count(body, now), COUNT_FIRST);
        assert_eq!(count(body, now + DECAY_MS - 1), COUNT_FIRST);
        assert_eq!(count(body, now + DECAY_MS), COUNT_FIRST - 1);
    }

    #[test]
    fn a_count_ends_at_its_largest() {
        let body = |count: u64| count;
        assert_eq!(next_count(body(COUNT_MAX), 0, |_| 0), COUNT_MAX);
        assert_eq!(next_count(body(COUNT_MAX - 1), 0, |_| 0), COUNT_MAX);
        assert_eq!(count(body(COUNT_MAX), 0), COUNT_MAX);
        let asked = core::cell::Cell::new(0);
        let _ = next_count(body(COUNT_FIRST + 2), 0, |odds| {
            asked.set(odds);
            1
        });
        assert_eq!(asked.get(), 2 * COUNT_FACTOR + 1);
    }

    #[test]
    fn what_is_used_often_is_not_displaced() {
        let uses = uses();
        for tracking in [Tracking::Recency, Tracking::Frequency] {
            uses.clear();
            for number in 0..200_000_u64 {
                uses.note(tracking, &number.to_le_bytes(), 1_000 + number / 100, |_| 0);
                uses.note(tracking, b"hot", 1_000 + number / 100, |_| 0);
            }
            let is_known = match tracking {
                Tracking::Recency => uses.idle_ms(b"hot", 3_000) == Some(1),
                Tracking::Frequency => uses.frequency(b"hot", 3_000) == Some(COUNT_MAX),
            };
            assert!(is_known, "{tracking:?}");
        }
    }
}
