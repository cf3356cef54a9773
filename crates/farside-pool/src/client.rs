//! The client table: who uses the pool, how far each has come, who died.
//!
//! ```text
//! word 0  state: life << 8 | tag         0 free (keeps the life of the last user), 1 live, 2 dying, 3 dead
//! word 1  endpoint identity, 0 = entry not taken; taken by compare-and-swap
//! word 2  lease: grows with every renewal
//! word 3  published epoch: every running operation pinned this one or a later one
//! word 4  drained: no block tagged with a smaller epoch is in this client's limbo, and no operation
//!         that pinned a smaller epoch is running
//! word 5  parked: how many deaths this client had seen when it last stopped reusing foreign blocks
//! word 6  audited: how many deaths' lost blocks this client has searched its chunks for, in bits 0..48; in the upper 16 the
//!         version of the table of nodes that it has taken into account
//! word 7  held: bytes that were allocated less those that were retired, by all who ever had this entry; signed
//! ```
//!
//! Words 2 to 7 are written by the client alone, in one WRITE each tick.

use farside_fabric::{EndpointId, NodeId, RemoteAddr};

use crate::layout::{CLIENT_BYTES, CLIENTS_AT, Owner};

/// Index of the first word that the client itself rewrites.
pub(crate) const PROGRESS_AT: u64 = 2 * 8;
/// Bytes of those words.
pub(crate) const PROGRESS_BYTES: u32 = 6 * 8;

/// Bits of word 6 that count deaths.
const AUDITED_BITS: u32 = 48;
const AUDITED_MASK: u64 = (1 << AUDITED_BITS) - 1;

/// Word 6 of an entry.
pub(crate) fn audited_word(audited: u64, members: u16) -> u64 {
    (audited & AUDITED_MASK) | u64::from(members) << AUDITED_BITS
}

/// What word 6 of an entry says.
pub(crate) fn read_audited(word: u64) -> (u64, u16) {
    (word & AUDITED_MASK, (word >> AUDITED_BITS) as u16)
}

/// In which part of its life an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liveness {
    /// Not taken, or taken by a client that has not finished joining.
    Free,
    /// In use.
    Live,
    /// Cut off, but its death is not counted yet: nobody is bound to search for what it held.
    Dying,
    /// Cut off and counted; its chunks and blocks are being taken over.
    Dead,
}

impl Liveness {
    /// Whether the client was cut off, counted or not.
    #[must_use]
    pub fn is_cut_off(self) -> bool {
        matches!(self, Self::Dying | Self::Dead)
    }
}

/// One entry of the client table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientEntry {
    /// Free, live or dead.
    pub liveness: Liveness,
    /// How often the entry has been used.
    pub life: u16,
    /// The endpoint that took the entry.
    pub endpoint: Option<EndpointId>,
    /// Grows with every renewal of the lease.
    pub lease: u64,
    /// See the module.
    pub published: u64,
    /// See the module.
    pub drained: u64,
    /// See the module.
    pub parked: u64,
    /// See the module.
    pub audited: u64,
    /// Of the version of [`members`](crate::members) that the client has taken into account, the lowest 16 bits.
    pub members: u16,
    /// See [`held`](mod@crate::held).
    pub held: i64,
}

impl ClientEntry {
    /// Reads an entry; a state that does not exist counts as dead, so that nobody trusts it.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let word = |index: usize| {
            let word: [u8; 8] = bytes[index * 8..][..8].try_into().expect("eight bytes");
            u64::from_le_bytes(word)
        };
        Self {
            liveness: match word(0) as u8 {
                0 => Liveness::Free,
                1 => Liveness::Live,
                2 => Liveness::Dying,
                _ => Liveness::Dead,
            },
            life: (word(0) >> 8) as u16,
            endpoint: (word(1) != 0).then_some(EndpointId(word(1))),
            lease: word(2),
            published: word(3),
            drained: word(4),
            parked: word(5),
            audited: read_audited(word(6)).0,
            members: read_audited(word(6)).1,
            held: word(7).cast_signed(),
        }
    }

    /// The words that the client itself rewrites, as bytes.
    #[must_use]
    pub fn progress(&self) -> [u8; PROGRESS_BYTES as usize] {
        let mut bytes = [0; PROGRESS_BYTES as usize];
        let held = self.held.cast_unsigned();
        let words = [
            self.lease,
            self.published,
            self.drained,
            self.parked,
            audited_word(self.audited, self.members),
            held,
        ];
        for (target, word) in bytes.chunks_exact_mut(8).zip(words) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Who this is as the owner of chunks, given the index of the entry.
    #[must_use]
    pub fn owner(&self, client: u16) -> Owner {
        Owner {
            client,
            life: self.life,
        }
    }

    /// Whether blocks or progress of this client matter to the others.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.liveness == Liveness::Live && self.endpoint.is_some()
    }
}

/// The state word of an entry.
#[must_use]
pub fn state_word(liveness: Liveness, life: u16) -> u64 {
    u64::from(life) << 8 | liveness as u64
}

/// Where the entry of a client starts, on node 0.
#[must_use]
pub fn entry_addr(client: u16) -> RemoteAddr {
    RemoteAddr::new(NodeId::new(0), CLIENTS_AT + u64::from(client) * CLIENT_BYTES)
}

/// Where the state word of an owner's entry is, and what it holds while the owner is in `liveness`.
#[must_use]
pub fn owner_state(owner: Owner, liveness: Liveness) -> (RemoteAddr, u64) {
    (entry_addr(owner.client), state_word(liveness, owner.life))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_lands_in_its_words() {
        let entry = ClientEntry {
            liveness: Liveness::Live,
            life: 3,
            endpoint: Some(EndpointId(9)),
            lease: 10,
            published: 11,
            drained: 12,
            parked: 13,
            audited: 14,
            members: 0x8001,
            held: -15,
        };
        let mut bytes = [0; 8 * 8];
        bytes[..8].copy_from_slice(&state_word(Liveness::Live, 3).to_le_bytes());
        bytes[8..16].copy_from_slice(&9_u64.to_le_bytes());
        bytes[PROGRESS_AT as usize..].copy_from_slice(&entry.progress());
        assert_eq!(ClientEntry::from_bytes(&bytes), entry);
    }
}
