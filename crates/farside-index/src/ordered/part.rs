//! Keys of any bytes as keys of a tree, part by part.
//!
//! On the path: first thing of every operation. Pure.
//!
//! A part of a key is eight of its bytes, or fewer at its end, and stands in the tree in the order of the bytes:
//!
//! ```text
//! | layer, 56 bits | eight bytes of the key, then zeros | how many of them are the key's, 8 bits |
//! ```
//!
//! Keys that go on behind their eight bytes come after those that end with them: they have nine there. All keys whose first
//! eight bytes are the same and that go on share one entry; once they are two, it leads to a *layer* of their own, in
//! which they have the parts that follow. So the keys of one layer stand together, and in their order (Masstree: Mao et
//! al., EuroSys 2012, section 4.1, where each layer is a tree of its own; here a layer of two keys costs two entries).

use std::cmp::min;

use farside_fabric::{NodeId, RemoteAddr};
use farside_sync::{Pointer, SizeHint};

use crate::tree::Key;

/// Bytes of a key in a part.
pub(super) const PART_BYTES: usize = 8;
/// What a part says of a key that goes on.
const LONGER: u8 = 9;

const LAYER_AT: u32 = 72;
const BYTES_AT: u32 = 8;
/// How many bits of a layer's number a data pointer has room for: those of the offset, then those of the node.
const OFFSET_BITS: u32 = 36;

/// The numbers of layers; the first one is 0.
pub(crate) type Layer = u64;

/// A part of a key within a layer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Part(pub(crate) Key);

impl Part {
    /// The part of a key that starts at `depth`.
    pub(crate) fn of(layer: Layer, key: &[u8], depth: usize) -> Self {
        let rest = key.get(depth..).unwrap_or_default();
        let mut bytes = [0; PART_BYTES];
        let count = min(rest.len(), PART_BYTES);
        bytes[..count].copy_from_slice(&rest[..count]);
        let code = if rest.len() > PART_BYTES { LONGER } else { count as u8 };
        Self(Key::from(layer) << LAYER_AT | Key::from(u64::from_be_bytes(bytes)) << BYTES_AT | Key::from(code))
    }

    /// The first part of a layer.
    pub(super) fn first_of(layer: Layer) -> Self {
        Self(Key::from(layer) << LAYER_AT)
    }

    /// Its eight bytes.
    pub(crate) fn bytes(self) -> [u8; PART_BYTES] {
        ((self.0 >> BYTES_AT) as u64).to_be_bytes()
    }

    pub(crate) fn layer(self) -> Layer {
        (self.0 >> LAYER_AT) as u64
    }

    /// What synchronisation schemes know it by.
    pub(super) fn name(self) -> u64 {
        self.0 as u64 ^ (self.0 >> 64) as u64
    }

    /// Whether keys go on behind this part.
    pub(super) fn is_longer(self) -> bool {
        self.0 as u8 == LONGER
    }
}

/// The pointer that leads to a layer instead of an item.
pub(super) fn pointer_to(layer: Layer) -> Pointer {
    let node = NodeId::new((layer >> OFFSET_BITS) as u16);
    let offset = (layer & ((1 << OFFSET_BITS) - 1)) * 32;
    Pointer::new(RemoteAddr::new(node, offset), SizeHint::Bucket, 0)
}

/// The layer that a pointer leads to.
pub(crate) fn layer_of(pointer: Pointer) -> Layer {
    let block = pointer.block();
    ((block.node().index() as u64) << OFFSET_BITS) | (block.offset() / 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::slot::is_layer;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// The parts of a key, as if each went on in a layer of the same number.
    fn parts(key: &[u8]) -> Vec<Part> {
        let mut parts = vec![Part::of(0, key, 0)];
        while parts.last().is_some_and(|part| part.is_longer()) {
            parts.push(Part::of(0, key, parts.len() * PART_BYTES));
        }
        parts
    }

    proptest! {
        #[test]
        fn parts_are_in_the_order_of_keys(
            a in vec(prop::sample::select(vec![0, 1, 255]), 0..30), b in vec(prop::sample::select(vec![0, 1, 255]), 0..30)
        ) {
            prop_assert_eq!(parts(&a).cmp(&parts(&b)), a.cmp(&b));
        }

        #[test]
        fn parts_are_within_their_layer(layer in 0_u64..1 << 45, key: Vec<u8>, depth in 0_usize..20) {
            let part = Part::of(layer, &key, depth);
            prop_assert_eq!(part.layer(), layer);
            prop_assert!(Part::first_of(layer) <= part && part < Part::first_of(layer + 1));
        }

        #[test]
        fn pointers_lead_to_their_layer(layer in 1_u64..1 << 45, identity: u16) {
            let pointer = pointer_to(layer).with_identity(identity);
            prop_assert!(is_layer(pointer) && !pointer.is_null());
            prop_assert_eq!(layer_of(pointer), layer);
        }
    }
}
