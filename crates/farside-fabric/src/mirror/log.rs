//! The entries that members may still need, in one piece of memory.

use std::collections::VecDeque;

/// How many bytes of entries that all have are kept for members that were away for a moment.
const KEPT_BYTES: usize = 16 << 20;

/// A part of the log: entries `first..` up to `last()`.
#[derive(Debug)]
pub(super) struct Log {
    /// The number of the entry that `ends[0]` ends.
    first: u64,
    /// Where each entry ends, counted from the beginning of time.
    ends: VecDeque<u64>,
    /// Where `bytes` begins, counted in the same way.
    start: u64,
    bytes: VecDeque<u8>,
}

impl Log {
    /// A log whose next entry has number `last + 1`.
    pub(super) fn after(last: u64) -> Self {
        Self {
            first: last + 1,
            ends: VecDeque::new(),
            start: 0,
            bytes: VecDeque::new(),
        }
    }

    /// The number of the last entry.
    #[inline]
    pub(super) fn last(&self) -> u64 {
        self.first + self.ends.len() as u64 - 1
    }

    /// Appends an entry and returns its number.
    #[inline]
    pub(super) fn push(&mut self, entry: &[u8]) -> u64 {
        self.bytes.extend(entry);
        self.ends.push_back(self.start + self.bytes.len() as u64);
        self.last()
    }

    /// Whether all entries after `last` are here.
    pub(super) fn reaches_back_to(&self, last: u64) -> bool {
        last + 1 >= self.first
    }

    /// Where an entry ends.
    fn end_of(&self, number: u64) -> u64 {
        if number < self.first {
            return self.start;
        }
        self.ends[(number - self.first) as usize]
    }

    /// How many bytes the entries have that come after the first and up to the second.
    pub(super) fn bytes_between(&self, from: u64, to: u64) -> u64 {
        self.end_of(to).saturating_sub(self.end_of(from))
    }

    /// Entries after `last`: at least one, if there is one, and no more than about `bytes_max` bytes. Returns the last one's number.
    pub(super) fn after_to(&self, last: u64, bytes_max: usize, output: &mut Vec<u8>) -> u64 {
        assert!(self.reaches_back_to(last), "entries somebody needs are kept");
        let from = self.end_of(last);
        let skipped = (last + 1 - self.first) as usize;
        let limit = from + bytes_max as u64;
        // All ends up to the limit, and the first in any case.
        let within = self.ends.range(skipped..).take_while(|&&end| end <= limit).count();
        let count = within.max(1).min(self.ends.len() - skipped);
        if count == 0 {
            return last;
        }
        let to = self.ends[skipped + count - 1];
        let (range_start, range_end) = ((from - self.start) as usize, (to - self.start) as usize);
        let (front, back) = self.bytes.as_slices();
        let split = front.len();
        output.extend_from_slice(&front[range_start.min(split)..range_end.min(split)]);
        output.extend_from_slice(&back[range_start.max(split) - split..range_end.max(split) - split]);
        last + count as u64
    }

    /// Forgets entries that nobody needs: up to `number`, except for the last [`KEPT_BYTES`].
    pub(super) fn trim(&mut self, number: u64) {
        while self.first <= number
            && let Some(&end) = self.ends.front()
            && self.bytes.len() > KEPT_BYTES
        {
            self.bytes.drain(..(end - self.start) as usize);
            self.start = end;
            self.first += 1;
            self.ends.pop_front();
        }
    }
}
