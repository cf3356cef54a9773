//! The words of a radix tree: what stands in a node, and what an entry says.
//!
//! On the path: every operation. Pure.
//!
//! ```text
//! node     0        header
//!          8        the entry of the key that ends here
//!          16..     256 entries, each of one byte of a key, in the order in which they came
//!          2064..   a lock entry for each of the 257, if the scheme has locks
//!
//! header   0..17    how many bytes of a key stand before the one that chooses an entry
//!          17..19   how many entries may be in use: 4, 16, 48, 256
//!          19..22   how many of the bytes before are repeated here
//!          24..64   those bytes, the last ones
//!
//! entry    a data pointer to an item whose fingerprint is the byte; or
//!          the same to a node: with the hint `Bucket`, and in the last bits of the offset how much of the node to read, and
//!          whether the entry is frozen; or
//!          gone: no block, but a byte, a version, and the hint `Pair`; or
//!          0: never used.
//! ```
//!
//! Every node has room for 256 entries wherever it is, as in the paper, so that none moves when its kind changes: the kind says how
//! much has to be read.

use core::cmp::min;

use farside_fabric::RemoteAddr;
use farside_fabric::mutant::is_planted;
use farside_sync::{LOCK_BYTES, Pointer, SizeHint};

/// The number of the root area.
pub(super) const ROOT: u8 = 6;
/// The root area: the format, the entry of the first node, and how often a node has gone.
pub(super) const FORMAT_AT: u64 = 0;
pub(super) const ROOT_AT: u64 = 8;
pub(super) const VERSION_AT: u64 = 16;
pub(super) const ROOT_BYTES: u64 = 64;

/// Formats: without and with lock entries.
pub(super) const FORMAT: u64 = 0x5a27_0001;
pub(super) const FORMAT_WITH_LOCKS: u64 = 0x5a27_0002;

/// How many entries a node has: that of the key that ends in it, and one for each byte.
pub(super) const PLACES: usize = 257;
/// The place of the key that ends in a node.
pub(super) const END: usize = 0;
/// Bytes of a node without lock entries.
pub(super) const NODE_BYTES: u64 = 8 + 8 * PLACES as u64;
/// How many bytes of its prefix a node repeats at most.
pub(super) const PREFIX_MAX: usize = 5;

/// Nodes start at multiples of this, which leaves three bits of an offset.
const ALIGNMENT: u64 = 256;
const UNIT: u64 = 32;
const FROZEN_BIT: u64 = 4;
/// From this version on an entry is not used for another key: the node is renewed first.
const VERSION_MAX: u8 = 122;
/// The hint of an entry whose key is gone.
const GONE: SizeHint = SizeHint::Pair;

/// How many entries of a node may be in use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Kind(u8);

impl Kind {
    pub(super) const SMALLEST: Self = Self(0);
    const CAPACITIES: [usize; 4] = [4, 16, 48, 256];

    /// The smallest with room for so many entries.
    pub(super) fn for_count(count: usize) -> Self {
        let found = Self::CAPACITIES.iter().position(|&capacity| capacity >= count);
        Self(found.expect("a byte has 256 values") as u8)
    }

    pub(super) fn capacity(self) -> usize {
        Self::CAPACITIES[usize::from(self.0)]
    }

    /// How many entries a node of this kind has at least, unless some are gone.
    pub(super) fn least(self) -> usize {
        match self.0 {
            0 => 1,
            larger => 1 + Self::CAPACITIES[usize::from(larger) - 1],
        }
    }

    /// How much of a node of this kind is read.
    pub(super) fn bytes(self) -> u32 {
        place_at(1 + self.capacity()) as u32
    }
}

/// Where an entry is in its node.
pub(super) fn place_at(place: usize) -> u64 {
    8 + 8 * place as u64
}

/// Where the lock entry of a place is in its node.
pub(super) fn lock_at(place: usize) -> u64 {
    NODE_BYTES.next_multiple_of(LOCK_BYTES) + LOCK_BYTES * place as u64
}

/// Bytes of a node's block.
pub(super) fn block_bytes(has_locks: bool) -> u64 {
    if has_locks { lock_at(PLACES) } else { NODE_BYTES }
}

/// The first word of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header(pub(super) u64);

/// How a key goes on where a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Course {
    /// As the node says.
    Same,
    /// It ends before, or has another byte: at this position, where the node has that byte.
    Differs { at: usize, byte: u8 },
    /// It ends within bytes that the node does not repeat.
    Ends,
}

impl Header {
    /// The header of a node whose entries are chosen by the byte at `depth` of a key, for keys that are like this one so far.
    /// `known` bytes of it are told by the entry that leads there.
    pub(super) fn new(key: &[u8], known: usize, depth: usize, kind: Kind) -> Self {
        let count = min(depth - known, PREFIX_MAX);
        let mut bytes = [0; 8];
        bytes[3..3 + count].copy_from_slice(&key[depth - count..depth]);
        Self(u64::from_le_bytes(bytes) & !0xff_ffff | depth as u64 | u64::from(kind.0) << 17 | (count as u64) << 19)
    }

    /// How many bytes of a key stand before the one that chooses an entry.
    pub(super) fn depth(self) -> usize {
        (self.0 & 0x1_ffff) as usize
    }

    pub(super) fn kind(self) -> Kind {
        Kind((self.0 >> 17) as u8 & 3)
    }

    pub(super) fn with_kind(self, kind: Kind) -> Self {
        Self(self.0 & !(3 << 17) | u64::from(kind.0) << 17)
    }

    /// From which byte on the prefix is repeated.
    pub(super) fn repeats_from(self) -> usize {
        self.depth().saturating_sub((self.0 >> 19) as usize & 7)
    }

    /// Whether it can be the header of a node below an entry that is chosen by the byte before `known`.
    pub(super) fn is_sound(self, known: usize) -> bool {
        self.depth() >= known && (self.0 >> 19) as usize & 7 <= min(PREFIX_MAX, self.depth()) && self.0 >> 22 & 3 == 0
    }

    /// A byte of the prefix that is repeated.
    pub(super) fn byte(self, position: usize) -> u8 {
        self.0.to_le_bytes()[3 + position - self.repeats_from()]
    }

    /// How a key goes on, of which `known` bytes are told by the entry that leads here.
    pub(super) fn course(self, key: &[u8], known: usize) -> Course {
        for at in self.repeats_from().max(known)..self.depth() {
            let byte = self.byte(at);
            if key.get(at) != Some(&byte) {
                return match at > key.len() {
                    true => Course::Ends,
                    false => Course::Differs { at, byte },
                };
            }
        }
        if key.len() < self.depth() {
            Course::Ends
        } else {
            Course::Same
        }
    }

    /// Whether some bytes of the prefix are neither told by the entry that leads here nor repeated.
    pub(super) fn has_gap(self, known: usize) -> bool {
        self.repeats_from() > known
    }
}

/// The entry that leads to a node.
pub(super) fn to_node(node: RemoteAddr, kind: Kind, byte: u8, version: u8) -> Pointer {
    assert!(
        node.offset().is_multiple_of(ALIGNMENT),
        "the class of a node's block is a multiple of it"
    );
    Pointer::new(node.plus(u64::from(kind.0) * UNIT), SizeHint::Bucket, version).with_fingerprint(byte)
}

/// Whether an entry leads to a node.
pub(super) fn is_node(entry: Pointer) -> bool {
    entry.hint() == SizeHint::Bucket
}

/// The node that an entry leads to.
pub(super) fn node_of(entry: Pointer) -> RemoteAddr {
    let block = entry.block();
    RemoteAddr::new(block.node(), block.offset() & !(ALIGNMENT - 1))
}

/// How much of its node an entry says there is.
pub(super) fn kind_of(entry: Pointer) -> Kind {
    Kind((entry.block().offset() / UNIT) as u8 & 3)
}

/// The entry that leads to the same node, with another kind.
pub(super) fn with_kind(entry: Pointer, kind: Kind) -> Pointer {
    to_node(node_of(entry), kind, entry.fingerprint(), entry.version())
}

/// Whether an entry leads to an item.
pub(super) fn is_item(entry: Pointer) -> bool {
    !is_node(entry) && !entry.is_null()
}

/// Whether an entry is what it is for good, since its node is about to be replaced.
pub(super) fn is_frozen(entry: Pointer) -> bool {
    match is_node(entry) {
        true => (entry.block().offset() / UNIT) & FROZEN_BIT != 0,
        false => entry.is_frozen(),
    }
}

/// The same entry, frozen. Whoever compares identity or word fails then.
pub(super) fn frozen(entry: Pointer) -> Pointer {
    if is_node(entry) {
        return Pointer::from_word(entry.to_word() | FROZEN_BIT);
    }
    if entry.is_null() {
        return entry.with_hint(SizeHint::Frozen);
    }
    entry.frozen()
}

/// A frozen entry for another node, where nobody has seen it.
pub(super) fn thawed(entry: Pointer) -> Pointer {
    if is_node(entry) {
        return to_node(node_of(entry), kind_of(entry), entry.fingerprint(), 0);
    }
    let hint = match entry.is_frozen() {
        // What it was is known no more.
        true => SizeHint::Large,
        false => entry.hint(),
    };
    entry.with_hint(hint).with_version(0)
}

/// Whether an entry may get no other key any more.
pub(super) fn is_worn(entry: Pointer) -> bool {
    entry.version() >= VERSION_MAX
}

/// What an entry says when its key goes: with the next version, so that whoever has seen an item there fails.
pub(super) fn gone(entry: Pointer) -> Pointer {
    let version = match is_planted("smart: an entry that gets another key under the same version") {
        true => entry.version(),
        false => entry.version() + 1,
    };
    Pointer::NULL
        .with_hint(GONE)
        .with_fingerprint(entry.fingerprint())
        .with_version(version)
}

/// An item in an entry that has led to a node or is gone: under its version, which no item had there.
pub(super) fn in_place_of(item: Pointer, before: Pointer) -> Pointer {
    item.with_fingerprint(before.fingerprint())
        .with_version(before.version())
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_fabric::NodeId;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn pointer(number: u64, hint: SizeHint) -> Pointer {
        Pointer::new(RemoteAddr::new(NodeId::new(3), number * UNIT), hint, 9).with_fingerprint(77)
    }

    proptest! {
        #[test]
        fn headers_say_how_keys_go_on(
            key in vec(any::<u8>(), 0..20), other in vec(any::<u8>(), 0..20), known in 0_usize..20, depth in 0_usize..20
        ) {
            let (depth, known) = (depth.min(key.len()), known.min(depth).min(key.len()));
            let header = Header::new(&key, known, depth, Kind(2)).with_kind(Kind(1));
            prop_assert!(header.is_sound(known) && header.depth() == depth && header.kind() == Kind(1));
            prop_assert_eq!(header.course(&key, known), Course::Same);
            prop_assert_eq!(header.has_gap(known), depth - known > PREFIX_MAX);
            // A key that is the same as far as the entry tells.
            let other: Vec<u8> = key[..known].iter().chain(&other).copied().collect();
            let first = (header.repeats_from()..depth).find(|&at| other.get(at) != key.get(at));
            let expected = match first {
                Some(at) if at <= other.len() => Course::Differs { at, byte: key[at] },
                None if other.len() >= depth => Course::Same,
                _ => Course::Ends,
            };
            prop_assert_eq!(header.course(&other, known), expected);
        }

        #[test]
        fn entries_say_what_they_are(number in 1_u64..1 << 30, kind in 0_u8..4, byte: u8, version in 0_u8..VERSION_MAX) {
            let node = RemoteAddr::new(NodeId::new(5), number * ALIGNMENT);
            let entry = to_node(node, Kind(kind), byte, version);
            prop_assert!(is_node(entry) && !is_item(entry) && !is_frozen(entry) && is_frozen(frozen(entry)));
            for entry in [entry, frozen(entry)] {
                prop_assert_eq!((node_of(entry), kind_of(entry)), (node, Kind(kind)));
                prop_assert_eq!((entry.fingerprint(), entry.version()), (byte, version));
            }
            prop_assert_eq!(thawed(frozen(entry)), to_node(node, Kind(kind), byte, 0));
            prop_assert_eq!(with_kind(entry, Kind(3)), to_node(node, Kind(3), byte, version));
        }
    }

    #[test]
    fn what_takes_a_place_has_another_identity() {
        let item = pointer(8, SizeHint::Small);
        let (gone, frozen) = (gone(item), frozen(item));
        assert!(is_item(item) && is_item(frozen) && is_frozen(frozen) && !is_item(gone) && !is_node(gone));
        assert_ne!(gone.to_word(), 0);
        assert_eq!(gone.fingerprint(), item.fingerprint());
        let again = in_place_of(pointer(9, SizeHint::Line), gone);
        for other in [gone, frozen, again] {
            assert!(!other.has_identity_of(item));
        }
        assert!(is_item(again) && again.fingerprint() == item.fingerprint());
        assert_eq!(thawed(frozen), item.with_version(0).with_hint(SizeHint::Large));
        assert!(is_frozen(super::frozen(gone)) && is_frozen(super::frozen(Pointer::NULL)));
    }

    #[test]
    fn kinds_have_room() {
        assert_eq!(
            [0, 4, 5, 16, 17, 48, 49, 256].map(|count| Kind::for_count(count).0),
            [0, 0, 1, 1, 2, 2, 3, 3]
        );
        assert_eq!(Kind(3).bytes(), NODE_BYTES as u32);
        assert!(lock_at(0) >= NODE_BYTES && block_bytes(true) == lock_at(0) + 257 * LOCK_BYTES);
    }
}
