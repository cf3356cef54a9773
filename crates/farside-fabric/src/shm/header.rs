//! The segment header: the first 4 KiB of a segment file.
//!
//! On the path: read once when a segment is opened; its state word is looked at by every verb.
//!
//! ```text
//! segment:  | header 4 KiB | endpoint table | pad to 2 MiB | memory ...        | pad to 2 MiB |
//!           0              4096                            memory_offset                       total_bytes
//! ```
//!
//! The memory starts at a multiple of 2 MiB, so that huge pages can hold it. Everything is
//! little-endian. The magic is written last: a file whose creator died half-way has none and is
//! refused.
//!
//! Invariants, checked on open: `memory_offset` is what `endpoints_max` makes it, `total_bytes` is
//! what `memory_offset` and `memory_bytes` make it, and the file is exactly that long.

use std::path::Path;

use zerocopy::little_endian::{U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::error::SegmentError;
use super::table::{ENDPOINTS_MAX, ENTRY_BYTES};
use crate::addr::NODE_BYTES_MAX;

/// Bytes in front of the endpoint table.
pub(super) const HEADER_BYTES: u64 = 4096;
/// The size of a huge page: what the memory and the whole file are multiples of.
pub(super) const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// The first eight bytes of a segment.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"farside\x01");
/// Changes with every change of this header, the endpoint table or the mailboxes.
pub(super) const LAYOUT_VERSION: u64 = 1;

/// Where the words are that change while the segment is in use; each on its own cache line, since
/// every verb reads the first.
pub(super) const STATE_AT: u64 = 1024;
pub(super) const SEQUENCE_AT: u64 = 1088;
pub(super) const HOLDER_AT: u64 = 1152;
/// Where a file that outlives the machine says since which start of it it is in use; 0: it was left in order, and all of it is
/// on the disk.
pub(super) const BOOT_AT: u64 = 1216;

/// Values of the state word. Zero is none of them. In the last, network cards work on the memory, and no processor.
pub(super) const STATE_OPEN: u64 = 1;
pub(super) const STATE_CLOSED: u64 = 2;
pub(super) const STATE_NIC: u64 = 3;
pub(super) const STATE_MIRROR: u64 = 4;

/// Where the magic is.
pub(super) const MAGIC_AT: u64 = 0;

// Words that several processes change are stored as the processor stores them.
const _: () = assert!(cfg!(target_endian = "little"), "segments are little-endian");
const _: () = assert!(size_of::<Header>() as u64 <= STATE_AT);
const _: () = assert!(BOOT_AT + 8 <= HEADER_BYTES);

/// The fields that never change once the segment is complete.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Header {
    pub(super) magic: U64,
    pub(super) layout_version: U64,
    pub(super) total_bytes: U64,
    pub(super) memory_offset: U64,
    pub(super) memory_bytes: U64,
    pub(super) endpoints_max: U64,
    pub(super) segment_id: U128,
}

/// How large the parts of a segment are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Geometry {
    pub(super) endpoints_max: u64,
    pub(super) memory_offset: u64,
    pub(super) memory_bytes: u64,
    pub(super) total_bytes: u64,
}

impl Geometry {
    /// The segment with that much memory and that many endpoints.
    pub(super) fn new(memory_bytes: u64, endpoints_max: u64) -> Result<Self, SegmentError> {
        let within = |field, value, min, max| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(SegmentError::Options { field, value, min, max })
            }
        };
        within("memory_bytes", memory_bytes, 1, NODE_BYTES_MAX)?;
        within("endpoints_max", endpoints_max, 1, ENDPOINTS_MAX)?;
        let memory_offset = (HEADER_BYTES + endpoints_max * ENTRY_BYTES).next_multiple_of(HUGE_PAGE_BYTES);
        Ok(Self {
            endpoints_max,
            memory_offset,
            memory_bytes,
            total_bytes: (memory_offset + memory_bytes).next_multiple_of(HUGE_PAGE_BYTES),
        })
    }
}

impl Header {
    /// The header of a new segment.
    pub(super) fn new(geometry: Geometry, segment_id: u128) -> Self {
        Self {
            magic: MAGIC.into(),
            layout_version: LAYOUT_VERSION.into(),
            total_bytes: geometry.total_bytes.into(),
            memory_offset: geometry.memory_offset.into(),
            memory_bytes: geometry.memory_bytes.into(),
            endpoints_max: geometry.endpoints_max.into(),
            segment_id: segment_id.into(),
        }
    }

    /// Checks every field; `file_bytes` is how long the file is.
    pub(super) fn check(&self, path: &Path, file_bytes: u64) -> Result<Geometry, SegmentError> {
        let path = || path.to_path_buf();
        let damaged = |field, value: U64| SegmentError::Damaged {
            path: path(),
            field,
            value: value.get(),
        };
        if self.magic != MAGIC {
            return Err(SegmentError::Foreign { path: path() });
        }
        if self.layout_version != LAYOUT_VERSION {
            return Err(SegmentError::Version {
                path: path(),
                found: self.layout_version.get(),
                expected: LAYOUT_VERSION,
            });
        }
        let (memory_bytes, endpoints_max) = (self.memory_bytes.get(), self.endpoints_max.get());
        let geometry = Geometry::new(memory_bytes, endpoints_max).map_err(|error| match error {
            SegmentError::Options { field, value, .. } => damaged(field, value.into()),
            other => other,
        })?;
        if self.memory_offset != geometry.memory_offset {
            return Err(damaged("memory_offset", self.memory_offset));
        }
        if self.total_bytes != geometry.total_bytes {
            return Err(damaged("total_bytes", self.total_bytes));
        }
        if file_bytes != geometry.total_bytes {
            return Err(SegmentError::Length {
                path: path(),
                found: file_bytes,
                expected: geometry.total_bytes,
            });
        }
        Ok(geometry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn header_survives_encoding(memory_bytes in 1..NODE_BYTES_MAX, endpoints_max in 1..ENDPOINTS_MAX, id: u128) {
            let geometry = Geometry::new(memory_bytes, endpoints_max).expect("options in range");
            let header = Header::new(geometry, id);
            let decoded = Header::read_from_bytes(header.as_bytes()).expect("as long as a header");
            prop_assert_eq!(decoded.check(Path::new("x"), geometry.total_bytes).expect("a good header"), geometry);
            prop_assert_eq!(decoded.segment_id.get(), id);
        }

        #[test]
        fn any_changed_byte_but_the_id_is_noticed(at in 0_usize..48, flip in 1_u8..) {
            let geometry = Geometry::new(1 << 30, 1024).expect("options in range");
            let mut bytes = Header::new(geometry, 7).as_bytes().to_vec();
            bytes[at] ^= flip;
            let changed = Header::read_from_bytes(&bytes[..]).expect("as long as a header");
            // The low bits of the memory's size can change without moving anything else.
            if let Ok(seen) = changed.check(Path::new("x"), geometry.total_bytes) {
                prop_assert!((32..48).contains(&at));
                prop_assert_eq!(seen.total_bytes, geometry.total_bytes);
            }
        }
    }
}
