//! What client and node tell each other so that their queue pairs find each other.
//!
//! On the path: once per connection, over the TCP connection that has let the client in. The client sends its
//! [`Address`], the node makes a queue pair for it and answers with its own and with where its memory is.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Where a queue pair is, and what it can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Address {
    /// The port's address.
    pub(crate) gid: [u8; 16],
    /// The number of the queue pair.
    pub(crate) number: U32,
    /// The number of its first packet; 24 bits.
    pub(crate) packet: U32,
    /// The port's local identifier, on InfiniBand; 0 on Ethernet.
    pub(crate) lid: U16,
    /// The code of the largest packet that the port takes.
    pub(crate) mtu: u8,
    /// How many READs and atomics of the other side it answers at once.
    pub(crate) reads: u8,
    /// The address of the node's first byte; 0 from a client.
    pub(crate) base: U64,
    /// The key of the node's memory; 0 from a client.
    pub(crate) key: U32,
    /// The address of a word of this client's own to try verbs on, and its key; 0 from a client.
    pub(crate) scratch: U64,
    pub(crate) scratch_key: U32,
}

/// Bytes of an [`Address`].
pub(crate) const ADDRESS_BYTES: usize = size_of::<Address>();

impl Address {
    /// The address in the body of a frame, if it is one that a queue pair can have.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let address = Self::read_from_bytes(body).ok()?;
        let is_sound = (super::ffi::MTU_MIN..=super::ffi::MTU_MAX).contains(&address.mtu.into())
            && address.reads > 0
            && address.packet.get() < 1 << 24
            && address.number.get() < 1 << 24;
        is_sound.then_some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn address_survives_the_wire(gid: [u8; 16], numbers in [0_u32..1 << 24, 0_u32..1 << 24], lid: u16,
            mtu in 1_u8..=5, reads in 1_u8.., memory: (u64, u32), scratch: (u64, u32)) {
            let address = Address {
                gid,
                number: U32::new(numbers[0]),
                packet: U32::new(numbers[1]),
                lid: U16::new(lid),
                mtu,
                reads,
                base: U64::new(memory.0),
                key: U32::new(memory.1),
                scratch: U64::new(scratch.0),
                scratch_key: U32::new(scratch.1),
            };
            prop_assert_eq!(Address::decode(address.as_bytes()), Some(address));
            for wrong in [Address { mtu: 0, ..address }, Address { mtu: 6, ..address }, Address { reads: 0, ..address }] {
                prop_assert_eq!(Address::decode(wrong.as_bytes()), None);
            }
        }

        #[test]
        fn whatever_comes_is_decoded_or_refused(body in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(address) = Address::decode(&body) {
                prop_assert_eq!(address.as_bytes(), &body[..]);
            }
        }
    }
}
