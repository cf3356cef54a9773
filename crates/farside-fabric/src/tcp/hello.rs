//! The first bytes of each side of a connection.
//!
//! On the path: a client opens a connection with [`Hello`] and its secret; the node answers with
//! [`Welcome`], or with the reason why not, and closes. Frames follow ([`frame`](super::frame)).
//! The fields down to `version` keep their place in every version of the protocol, so that two
//! versions can tell each other apart.
//!
//! Who is who: node 0 gives a client its identity (`endpoint` is 0 in the hello), the other nodes are
//! told it. A node remembers whom it has cut off for as long as it runs; the number of its run
//! (`run`) tells a returning client's node that has forgotten from one that has not.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::frame::FrameError;
use crate::capabilities::Capabilities;

/// The first eight bytes, both ways.
pub(super) const MAGIC: [u8; 8] = *b"FARSIDE\n";
/// The version of hello and frames.
pub const VERSION: u32 = 2;

/// What a client opens a connection with. `secret_bytes` bytes of secret follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Hello {
    pub(super) magic: [u8; 8],
    pub(super) version: U32,
    pub(super) secret_bytes: U16,
    /// At a mirrored node: how many messages the client was sent and has not taken out.
    pub(super) ungranted: U16,
    /// Who the client is; 0 asks for an identity.
    pub(super) endpoint: U64,
    /// The node's `run` as this client knows it from before, or 0.
    pub(super) run: U64,
    /// At a mirrored node: how many messages the client was sent in its life.
    pub(super) messages: U64,
    /// At a mirrored node: the first request that the client has no answer to.
    pub(super) answered: U32,
    pub(super) reserved: U32,
}

/// What a node answers.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Welcome {
    pub(super) magic: [u8; 8],
    pub(super) version: U32,
    /// A [`Verdict`].
    pub(super) verdict: u8,
    /// Bits of [`MASKED_ATOMICS`], [`WIDE_ATOMICS`] and [`RDMA`].
    pub(super) capabilities: u8,
    /// How many bytes of view follow: 0 unless the node is mirrored.
    pub(super) view_bytes: U16,
    pub(super) node_bytes: U64,
    /// Who the client is from now on.
    pub(super) endpoint: U64,
    /// Drawn by the node when it started; never 0. At a mirrored node: names the life of its group.
    pub(super) run: U64,
    /// At a mirrored node: after how many nanoseconds without a sign of it another one may be primary.
    pub(super) lease_ns: U64,
}

const MASKED_ATOMICS: u8 = 1;
const WIDE_ATOMICS: u8 = 2;
const RDMA: u8 = 4;

/// Whether a connection is accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Verdict {
    Accepted = 0,
    /// The node speaks another version, which its welcome names.
    VersionUnknown = 1,
    SecretMissing = 2,
    SecretWrong = 3,
    /// The client was cut off.
    Fenced = 4,
    /// No more clients can be registered.
    Full = 5,
    /// The node was started anew since the client knew it.
    Restarted = 6,
    /// Another member of the node's group is primary, perhaps one that the view names.
    NotPrimary = 7,
}

impl Verdict {
    pub(super) fn from_code(code: u8) -> Result<Self, FrameError> {
        Ok(match code {
            0 => Self::Accepted,
            1 => Self::VersionUnknown,
            2 => Self::SecretMissing,
            3 => Self::SecretWrong,
            4 => Self::Fenced,
            5 => Self::Full,
            6 => Self::Restarted,
            7 => Self::NotPrimary,
            _ => return Err(FrameError::Unknown { what: "verdict", code }),
        })
    }
}

impl Welcome {
    /// The node's capabilities as one byte, with whether its memory is reached over RDMA, and not otherwise.
    pub(super) fn pack(capabilities: Capabilities, is_rdma: bool) -> u8 {
        let bit = |has: bool, bit: u8| if has { bit } else { 0 };
        bit(capabilities.masked_atomics, MASKED_ATOMICS)
            | bit(capabilities.wide_atomics, WIDE_ATOMICS)
            | bit(is_rdma, RDMA)
    }

    /// Whether the node's memory is reached over RDMA, and not otherwise.
    pub(super) fn is_rdma(&self) -> bool {
        self.capabilities & RDMA != 0
    }

    /// The node's capabilities.
    pub(super) fn unpack(self) -> Capabilities {
        Capabilities {
            masked_atomics: self.capabilities & MASKED_ATOMICS != 0,
            wide_atomics: self.capabilities & WIDE_ATOMICS != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::FromZeros;

    proptest! {
        #[test]
        fn hello_survives_the_wire(version: u32, secret_bytes: u16, endpoint: u64, run: u64) {
            let hello = Hello {
                magic: MAGIC,
                version: U32::new(version),
                secret_bytes: U16::new(secret_bytes),
                ungranted: U16::ZERO,
                endpoint: U64::new(endpoint),
                run: U64::new(run),
                ..Hello::new_zeroed()
            };
            let seen = Hello::read_from_bytes(hello.as_bytes()).expect("as long as a hello");
            prop_assert_eq!(seen.magic, MAGIC);
            prop_assert_eq!(seen.version.get(), version);
            prop_assert_eq!(seen.secret_bytes.get(), secret_bytes);
            prop_assert_eq!(seen.endpoint.get(), endpoint);
            prop_assert_eq!(seen.run.get(), run);
        }

        #[test]
        fn welcome_survives_the_wire(masked_atomics: bool, wide_atomics: bool, is_rdma: bool, numbers: [u64; 3]) {
            let capabilities = Capabilities { masked_atomics, wide_atomics };
            let welcome = Welcome {
                magic: MAGIC,
                version: U32::new(VERSION),
                verdict: Verdict::Accepted as u8,
                capabilities: Welcome::pack(capabilities, is_rdma),
                node_bytes: U64::new(numbers[0]),
                endpoint: U64::new(numbers[1]),
                run: U64::new(numbers[2]),
                ..Welcome::new_zeroed()
            };
            let seen = Welcome::read_from_bytes(welcome.as_bytes()).expect("as long as a welcome");
            prop_assert_eq!(seen.unpack(), capabilities);
            prop_assert_eq!(seen.is_rdma(), is_rdma);
            prop_assert_eq!(Verdict::from_code(seen.verdict), Ok(Verdict::Accepted));
            prop_assert_eq!([seen.node_bytes.get(), seen.endpoint.get(), seen.run.get()], numbers);
        }
    }
}
