//! The table of named locks: where it is, and where in it a name may stand.
//!
//! ```text
//! table:   | roster | bucket 0 | bucket 1 | ... |
//!          0        8192
//!
//! bucket:  | tokens | directory lock | head 0 | ... | head 7 | lock 0 | ... | lock 7 |
//!          0        64               640                      2688                     6848
//!
//! head:    | name length | since | mode, owner length | check | owner | name |
//!          0             8       16                   24      32      128    256
//! ```
//!
//! A name stands in one of the eight places of the bucket that its hash chooses. A *place* is a lock and a head
//! that says whose lock it is. The name of a head is written under the directory lock of its bucket, and replaces
//! another one only under the lock of its place. So whoever holds a lock can rely on the name above it, and who
//! does not may find it torn, or gone a moment later, and has to look again when it holds the lock.
//!
//! `tokens` counts the grants of all locks of a bucket. A name never leaves its bucket, so what its holders are
//! given grows whatever place it has.
//!
//! The other half of a head says who was granted the lock last; its holders write it, and it is for people.

use farside_fabric::{NodeId, OpContext, RemoteAddr};
use farside_lock::declock::entry_bytes;
use farside_lock::declock::roster::ROSTER_BYTES;
use farside_pool::{Geometry, PoolError, make_root, root};

/// The longest name of a lock, in bytes.
pub const LOCK_NAME_BYTES_MAX: usize = 128;
/// The longest name of an owner, in bytes; of a longer one the beginning is kept.
pub const OWNER_BYTES_MAX: usize = 96;
/// How many names a bucket has room for.
pub(super) const PLACES: u64 = 8;
/// How many compute nodes may wait for a lock at a time before it has to be reset.
pub(super) const QUEUE_CAPACITY: u64 = 64;

/// Which of the pool's roots it is.
const ROOT: u8 = 2;
/// A table takes one part in so many of the memory of node 0...
const MEMORY_SHARE: u64 = 128;
/// ... and no more than this.
const TABLE_BYTES_MAX: u64 = 64 << 20;

const DIRECTORY_AT: u64 = 64;
const HEADS_AT: u64 = 640;
const LOCKS_AT: u64 = HEADS_AT + PLACES * HEAD_BYTES;
const BUCKET_BYTES: u64 = (LOCKS_AT + PLACES * ENTRY_BYTES).next_multiple_of(64);
const ENTRY_BYTES: u64 = entry_bytes(QUEUE_CAPACITY);
/// Bytes of a head.
pub(super) const HEAD_BYTES: u64 = NAME_AT + LOCK_NAME_BYTES_MAX as u64;
/// Where in a head the note of its holder stands.
pub(super) const NOTE_AT: u64 = 8;
/// Where in a head the name stands.
pub(super) const NAME_AT: u64 = 128;

const _: () = assert!(DIRECTORY_AT + ENTRY_BYTES <= HEADS_AT);

/// Makes the table of a pool that nobody uses yet, if its memory is worth one.
///
/// # Errors
/// What the fabric reports, and if the node is too small after all.
pub(crate) async fn make(cx: &mut OpContext, geometry: &Geometry) -> Result<(), PoolError> {
    let bytes = (geometry.node_bytes / MEMORY_SHARE).min(TABLE_BYTES_MAX) / geometry.chunk_bytes * geometry.chunk_bytes;
    if bytes >= ROSTER_BYTES + BUCKET_BYTES {
        make_root(cx, geometry, ROOT, bytes).await?;
    }
    Ok(())
}

/// Where the table is, and how large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Table {
    at: RemoteAddr,
    buckets: u64,
}

impl Table {
    /// The table of a pool, if it has one.
    pub(super) async fn find(cx: &mut OpContext) -> Result<Option<Self>, PoolError> {
        let found = root(cx, NodeId::new(0), ROOT).await?;
        Ok(found.map(|root| Self {
            at: root.addr,
            buckets: (root.bytes - ROSTER_BYTES) / BUCKET_BYTES,
        }))
    }

    /// Where the endpoints list themselves.
    pub(super) fn roster(self) -> RemoteAddr {
        self.at
    }

    /// The bucket of a name.
    pub(super) fn bucket(self, name: &[u8]) -> Bucket {
        self.bucket_at(xxhash_rust::xxh3::xxh3_64(name) % self.buckets)
    }

    /// How many buckets there are.
    pub(super) fn buckets(self) -> u64 {
        self.buckets
    }

    /// One of them.
    pub(super) fn bucket_at(self, index: u64) -> Bucket {
        Bucket(self.at.plus(ROSTER_BYTES + index * BUCKET_BYTES))
    }

    /// How many names it has room for, at best.
    pub(super) fn places(self) -> u64 {
        self.buckets * PLACES
    }
}

/// The places in which a name may stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bucket(RemoteAddr);

impl Bucket {
    /// The counter of grants.
    pub(super) fn tokens(self) -> RemoteAddr {
        self.0
    }

    /// The lock under which names are written.
    pub(super) fn directory(self) -> RemoteAddr {
        self.0.plus(DIRECTORY_AT)
    }

    /// The heads of all places, one behind the other.
    pub(super) fn heads(self) -> RemoteAddr {
        self.0.plus(HEADS_AT)
    }

    /// One of the places.
    pub(super) fn place(self, index: u64) -> Place {
        Place {
            bucket: self,
            head: self.0.plus(HEADS_AT + index * HEAD_BYTES),
            lock: self.0.plus(LOCKS_AT + index * ENTRY_BYTES),
        }
    }
}

/// A lock and its head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) bucket: Bucket,
    pub(super) head: RemoteAddr,
    pub(super) lock: RemoteAddr,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn table(buckets: u64) -> Table {
        let at = RemoteAddr::new(NodeId::new(0), 1 << 20);
        Table { at, buckets }
    }

    #[test]
    fn buckets_lie_behind_the_roster_one_after_the_other() {
        for buckets in [1, 3, 8] {
            let table = table(buckets);
            let names = (0..1000_u32).map(|number| table.bucket(&number.to_le_bytes()).0);
            let first = table.roster().plus(ROSTER_BYTES);
            let expected = (0..buckets).map(|index| first.plus(index * BUCKET_BYTES));
            assert_eq!(names.collect::<BTreeSet<_>>(), expected.collect());
            assert_eq!(table.places(), buckets * PLACES);
        }
    }

    #[test]
    fn nothing_in_a_bucket_overlaps() {
        let bucket = table(1).bucket(b"name");
        let mut ranges = vec![(bucket.tokens(), 8), (bucket.directory(), ENTRY_BYTES)];
        for index in 0..PLACES {
            let place = bucket.place(index);
            assert_eq!(place.bucket, bucket);
            assert_eq!(place.head, bucket.heads().plus(index * HEAD_BYTES));
            ranges.extend([(place.head, HEAD_BYTES), (place.lock, ENTRY_BYTES)]);
        }
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            assert!(pair[0].0.plus(pair[0].1) <= pair[1].0, "{pair:?}");
        }
        let (last, bytes) = ranges[ranges.len() - 1];
        assert!(last.plus(bytes) <= bucket.tokens().plus(BUCKET_BYTES));
    }
}
