//! Where a byte of far memory is: a node and an offset, in 60 bits.
//!
//! On the path: every verb names its target by a [`RemoteAddr`]; the four remaining bits of a 64-bit word are free for
//! the code that stores the address (CIDER, Figure 8, keeps a version there).
//!
//! Layout of the 60 bits: `node << 48 | offset`.

use core::fmt;

/// How many bits of an address name the node.
pub const NODE_BITS: u32 = 12;
/// How many bits of an address name the byte within the node.
pub const OFFSET_BITS: u32 = 48;
/// How many memory nodes can be named.
pub const NODE_COUNT_MAX: u16 = 1 << NODE_BITS;
/// How many bytes of one memory node can be named.
pub const NODE_BYTES_MAX: u64 = 1 << OFFSET_BITS;

/// The memory node that holds a byte. Smaller than [`NODE_COUNT_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u16);

impl NodeId {
    /// The node with this index.
    ///
    /// # Panics
    /// If `index` does not fit into [`NODE_BITS`] bits.
    #[inline]
    #[must_use]
    pub const fn new(index: u16) -> Self {
        assert!(index < NODE_COUNT_MAX, "a node index has 12 bits");
        Self(index)
    }

    /// The node's index, counted from 0.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A byte of far memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RemoteAddr(u64);

impl RemoteAddr {
    /// The first byte of node 0. A pool keeps its superblock there, so no block has this address.
    pub const NULL: Self = Self(0);

    /// The byte at `offset` of `node`.
    ///
    /// # Panics
    /// If `offset` does not fit into [`OFFSET_BITS`] bits.
    #[inline]
    #[must_use]
    pub const fn new(node: NodeId, offset: u64) -> Self {
        assert!(offset < NODE_BYTES_MAX, "an offset has 48 bits");
        Self((node.0 as u64) << OFFSET_BITS | offset)
    }

    /// The address with these 60 bits, or `None` if one of the upper four bits is set.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits >> (NODE_BITS + OFFSET_BITS) == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// The address as a number below `2^60`.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The node that holds the byte.
    #[inline]
    #[must_use]
    pub const fn node(self) -> NodeId {
        NodeId((self.0 >> OFFSET_BITS) as u16)
    }

    /// The byte's offset within its node.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.0 & (NODE_BYTES_MAX - 1)
    }

    /// Whether this is [`RemoteAddr::NULL`].
    #[inline]
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `bytes` further on in the same node.
    ///
    /// # Panics
    /// If the offset would exceed 48 bits.
    #[inline]
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        debug_assert!(bytes < NODE_BYTES_MAX, "an offset has 48 bits");
        let sum = self.0.wrapping_add(bytes);
        // Whatever leaves the offset changes the node.
        assert!((sum ^ self.0) >> OFFSET_BITS == 0, "an offset has 48 bits");
        Self(sum)
    }
}

impl fmt::Display for RemoteAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} offset {:#x}", self.node(), self.offset())
    }
}

impl fmt::Debug for RemoteAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_survive_packing(node in 0..NODE_COUNT_MAX, offset in 0..NODE_BYTES_MAX) {
            let addr = RemoteAddr::new(NodeId::new(node), offset);
            prop_assert_eq!(addr.node(), NodeId::new(node));
            prop_assert_eq!(addr.offset(), offset);
            prop_assert_eq!(RemoteAddr::from_bits(addr.to_bits()), Some(addr));
        }

        #[test]
        fn bits_above_sixty_are_refused(bits in (1_u64 << 60)..) {
            prop_assert_eq!(RemoteAddr::from_bits(bits), None);
        }
    }
}
