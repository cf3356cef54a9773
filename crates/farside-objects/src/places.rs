//! Where objects and their locks stand in the memory of a memory node.
//!
//! On the path: made once, before the memory; every operation asks it where its object is. All clients of a memory have the same.
//!
//! ```text
//! | locks, one entry each | objects, each from a line on | lock service | roster of DecLock |
//! an object:  | page of 4096 bytes | .. | page, as long as it has to be |
//! a page:     | stamp, 8 | bytes of the object, 4 | checksum, 4 | up to 4080 bytes of it |
//! ```
//!
//! Numbers are little-endian. An object's *stamp* says which set it is of. All pages of a whole object carry the same stamp
//! and the same number of bytes. A page that nobody has written has the stamp 0. The *checksum* is that of the page's bytes of the
//! object: a client that dies within a WRITE leaves the start of a page with the rest of another one.
//!
//! Invariant: an object's place is as large as its capacity needs, and does not change.

use farside_fabric::{NodeId, RemoteAddr, Slice};
use farside_lock::declock::roster::ROSTER_BYTES;
use farside_lock::service::BLOCK_BYTES;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a page, all but the last one of an object: what one READ or WRITE moves.
pub(crate) const PAGE_BYTES: u32 = 4096;
/// Bytes at the start of each page that are not of the object: the stamp, how many bytes the object has, and the checksum.
pub(crate) const HEADER_BYTES: u32 = 16;
/// Bytes of the object in a page.
pub(crate) const PAYLOAD_BYTES: u32 = PAGE_BYTES - HEADER_BYTES;

/// Where the locks start.
const LOCKS_AT: u64 = 64;
const LINE_BYTES: u64 = 64;

/// What a page begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// Which set the page is of; 0 if it is of none.
    pub(crate) stamp: u64,
    /// Bytes of the object.
    pub(crate) bytes: u32,
    /// See the module.
    pub(crate) checksum: u32,
}

impl Header {
    /// That of a page with these bytes of an object of `bytes` bytes.
    #[must_use]
    pub(crate) fn new(stamp: u64, bytes: u32, payload: &[u8]) -> Self {
        Self {
            stamp,
            bytes,
            checksum: xxh3_64_with_seed(payload, stamp) as u32,
        }
    }

    /// As it stands in memory.
    #[must_use]
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES as usize] {
        let lengths = u64::from(self.checksum) << 32 | u64::from(self.bytes);
        (u128::from(lengths) << 64 | u128::from(self.stamp)).to_le_bytes()
    }

    /// What stands in memory.
    #[must_use]
    pub(crate) fn of_bytes(bytes: [u8; HEADER_BYTES as usize]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self {
            stamp: both as u64,
            bytes: (both >> 64) as u32,
            checksum: (both >> 96) as u32,
        }
    }

    /// That of a page in a buffer.
    ///
    /// # Panics
    /// If the page is not there.
    #[must_use]
    pub(crate) fn of_page(page: &[u8]) -> Self {
        let first = page.first_chunk().expect("a page has a header");
        Self::of_bytes(*first)
    }
}

/// How many pages an object of so many bytes has. One of no bytes has one, too.
#[must_use]
pub(crate) fn page_count(bytes: u32) -> u32 {
    bytes.div_ceil(PAYLOAD_BYTES).max(1)
}

/// Page `index` of an object of so many bytes, in a buffer that begins with the object: whole words of it.
#[must_use]
pub(crate) fn page(index: u32, bytes: u32) -> Slice {
    let rest = bytes.saturating_sub(index * PAYLOAD_BYTES).min(PAYLOAD_BYTES);
    Slice::new(index * PAGE_BYTES, HEADER_BYTES + rest.next_multiple_of(8))
}

/// What of a page in a buffer is of an object of so many bytes.
#[must_use]
pub(crate) fn payload(index: u32, bytes: u32) -> Slice {
    let rest = bytes.saturating_sub(index * PAYLOAD_BYTES).min(PAYLOAD_BYTES);
    Slice::new(index * PAGE_BYTES + HEADER_BYTES, rest)
}

/// All pages of an object of so many bytes, in a buffer that begins with it.
#[must_use]
pub(crate) fn extent(bytes: u32) -> Slice {
    let last = page(page_count(bytes) - 1, bytes);
    Slice::first(last.at + last.bytes)
}

/// Where an object stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Its first page.
    pub(crate) addr: RemoteAddr,
    /// The most bytes that it can have.
    pub(crate) capacity: u32,
    /// Its lock.
    pub(crate) lock: RemoteAddr,
}

/// Where all objects stand.
#[derive(Clone, Debug)]
pub struct Places {
    lock_bytes: u64,
    /// By object: where it begins, and how large it can be.
    objects: Vec<(u64, u32)>,
    end: u64,
}

impl Places {
    /// Places for objects of up to so many bytes each, whose locks have entries of `lock_bytes`.
    #[must_use]
    pub fn new(lock_bytes: u64, capacities: impl ExactSizeIterator<Item = u32>) -> Self {
        let mut end = LOCKS_AT + capacities.len() as u64 * lock_bytes;
        let objects = capacities.map(|capacity| {
            let start = end.next_multiple_of(LINE_BYTES);
            end = start + u64::from(extent(capacity).bytes);
            (start, capacity)
        });
        Self {
            lock_bytes,
            objects: objects.collect(),
            end,
        }
    }

    /// How many objects there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.objects.len() as u64
    }

    /// The most bytes of an object, on average.
    #[must_use]
    pub fn capacity_mean(&self) -> f64 {
        let sum: u64 = self.objects.iter().map(|object| u64::from(object.1)).sum();
        sum as f64 / self.count().max(1) as f64
    }

    /// Where an object is.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    #[must_use]
    pub(crate) fn of(&self, object: u64) -> Place {
        let (start, capacity) = self.objects[object as usize];
        Place {
            addr: RemoteAddr::new(NodeId::new(0), start),
            capacity,
            lock: RemoteAddr::new(NodeId::new(0), LOCKS_AT + object * self.lock_bytes),
        }
    }

    /// Where the lock service has its block.
    #[must_use]
    pub fn service(&self) -> RemoteAddr {
        RemoteAddr::new(NodeId::new(0), self.end.next_multiple_of(LINE_BYTES))
    }

    /// Where the clients of a lock that asks everybody list themselves.
    #[must_use]
    pub fn roster(&self) -> RemoteAddr {
        let behind = self.service().offset() + BLOCK_BYTES;
        RemoteAddr::new(NodeId::new(0), behind.next_multiple_of(LINE_BYTES))
    }

    /// Bytes of memory for all of it.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        (self.roster().offset() + ROSTER_BYTES).next_multiple_of(4096)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_comes_back() {
        let header = Header {
            stamp: 0x1234_5678_9abc_def0,
            bytes: 9213,
            checksum: 0x9876_5432,
        };
        assert_eq!(Header::of_bytes(header.to_bytes()), header);
        assert_eq!(header.to_bytes()[..8], header.stamp.to_le_bytes());
        assert_eq!(Header::of_page(&[0; 24]).stamp, 0);
        let [one, other] = [b"one", b"two"].map(|bytes| Header::new(7, 3, bytes).checksum);
        assert_ne!(one, other);
    }

    #[test]
    fn an_object_is_cut_into_pages() {
        let pages = |bytes| {
            (0..page_count(bytes))
                .map(|index| page(index, bytes).bytes)
                .collect::<Vec<_>>()
        };
        assert_eq!(pages(0), [16]);
        assert_eq!(pages(1), [24]);
        assert_eq!(pages(414), [432]);
        assert_eq!(pages(4080), [4096]);
        assert_eq!(pages(4081), [4096, 24]);
        assert_eq!(pages(9213), [4096, 4096, 16 + 1056]);
        assert_eq!(payload(2, 9213), Slice::new(2 * 4096 + 16, 1053));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn nothing_stands_where_something_else_is(
            capacities in prop::collection::vec(0_u32..20_000, 1..50),
            lock_bytes in prop::sample::select(vec![8_u64, 16, 80, 272]),
        ) {
            let places = Places::new(lock_bytes, capacities.iter().copied());
            let mut taken = vec![(places.service().offset(), BLOCK_BYTES), (places.roster().offset(), ROSTER_BYTES)];
            for (object, &capacity) in (0..).zip(&capacities) {
                let place = places.of(object);
                prop_assert_eq!(place.capacity, capacity);
                prop_assert!(place.addr.offset().is_multiple_of(64) && place.lock.offset().is_multiple_of(8));
                taken.push((place.lock.offset(), lock_bytes));
                let pages: u32 = (0..page_count(capacity)).map(|index| payload(index, capacity).bytes).sum();
                prop_assert_eq!(pages, capacity);
                for index in 0..page_count(capacity) {
                    let page = page(index, capacity);
                    taken.push((place.addr.offset() + u64::from(page.at), u64::from(page.bytes)));
                }
            }
            taken.sort_unstable();
            prop_assert!(taken.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            let (last, bytes) = taken[taken.len() - 1];
            prop_assert!(last + bytes <= places.memory_bytes());
        }
    }
}
