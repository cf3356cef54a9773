//! What the words of a tree's nodes mean: locks, entries, siblings, intents.

use farside_fabric::{MaskedCas, RemoteAddr};
use farside_lock::bit_fields;
use farside_pool::layout::Owner;

bit_fields! {
    /// The lock of a node. While it is free, its other bits say which entries of a leaf are vacant.
    pub(crate) struct LockWord {
        /// Tells the acquisitions of one client apart.
        ticket, with_ticket: 0..31;
        /// Which life of its entry the client is in.
        life, with_life: 31..47;
        /// The client's entry in the table.
        client, with_client: 47..63;
        /// Whether somebody holds it.
        is_held, with_is_held: 63..64;
    }
}

impl LockWord {
    /// The bit that says that it is held: all that an acquisition compares.
    const HELD: u64 = 1 << 63;

    /// What swaps this word in if the lock is free.
    pub(super) fn swap_if_free(self) -> MaskedCas<u64> {
        MaskedCas {
            compare: 0,
            compare_mask: Self::HELD,
            swap: self.0,
            swap_mask: u64::MAX,
        }
    }

    pub(crate) fn held_by(owner: Owner, ticket: u64) -> Self {
        Self(0)
            .with_is_held(1)
            .with_client(owner.client.into())
            .with_life(owner.life.into())
            .with_ticket(ticket & ((1 << 31) - 1))
    }

    /// Who holds it; `None` while it is free.
    pub(crate) fn owner(self) -> Option<Owner> {
        (self.is_held() == 1).then(|| Owner {
            client: self.client() as u16,
            life: self.life() as u16,
        })
    }
}

bit_fields! {
    /// What is known of an entry beside key and value.
    pub(super) struct Meta {
        /// Tells whether key and value were written together.
        check, with_check: 0..32;
        /// Which entries from this one on have a key whose home it is.
        bitmap, with_bitmap: 32..48;
        /// Which keys those are: a digest.
        digest, with_digest: 48..59;
        /// The version of the leaf (CHIME, section 4.1.1: NV).
        version, with_version: 59..63;
        /// Whether there is a key.
        is_taken, with_is_taken: 63..64;
    }
}

bit_fields! {
    /// What takes the place of [`Meta`] while an entry has no key, in a leaf of which entries are claimed one by one (`claim`). Who
    /// reads the leaf sees a vacant entry.
    pub(super) struct Vacancy {
        /// The entry in the table of the client that has claimed it.
        client, with_client: 0..16;
        /// Which life of its entry that client is in.
        life, with_life: 16..32;
        /// Which key it is for: some bits of its hash.
        mark, with_mark: 32..44;
        /// Tells the claims of one client apart.
        ticket, with_ticket: 44..57;
        /// Whether somebody has claimed it.
        is_claimed, with_is_claimed: 57..58;
        /// Whether it is closed: whoever holds the lock of the leaf is about to write the leaf.
        is_closed, with_is_closed: 58..59;
        /// As in [`Meta`].
        version, with_version: 59..63;
    }
}

impl Vacancy {
    /// An entry that anybody may claim, in a leaf of this version.
    pub(super) fn open(version: u64) -> Self {
        Self(0).with_version(version)
    }

    /// The same entry, open.
    pub(super) fn opened(self) -> Self {
        Self::open(self.version())
    }

    /// The same entry, claimed for a key with this hash.
    pub(super) fn claimed_by(self, owner: Owner, key_hash: u64, ticket: u64) -> Self {
        self.opened()
            .with_is_claimed(1)
            .with_client(owner.client.into())
            .with_life(owner.life.into())
            .with_mark(key_hash >> 52)
            .with_ticket(ticket & ((1 << 13) - 1))
    }

    /// Who has claimed it; `None` if nobody has.
    pub(super) fn owner(self) -> Option<Owner> {
        (self.is_claimed() == 1).then(|| Owner {
            client: self.client() as u16,
            life: self.life() as u16,
        })
    }

    /// Whether it is claimed for a key with this hash, or one that looks the same.
    pub(super) fn is_for(self, key_hash: u64) -> bool {
        self.is_claimed() == 1 && self.mark() == key_hash >> 52
    }
}

impl Meta {
    /// What takes its place when the entry is closed.
    pub(super) fn closed(self) -> Self {
        Self(Vacancy::open(self.version()).with_is_closed(1).0)
    }

    /// Whether the entry is closed.
    pub(super) fn is_closed(self) -> bool {
        self.is_taken() == 0 && Vacancy(self.0).is_closed() == 1
    }
}

/// How many versions a leaf goes through before the first one comes again.
pub(super) const VERSIONS: u64 = 16;

/// A leaf's sibling as each replica has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sibling(pub(super) u64);

impl Sibling {
    const GONE: u64 = 1;
    const ADDR: u64 = (1 << 60) - 1 - 31;

    pub(super) fn new(next: RemoteAddr, version: u64, is_gone: bool) -> Self {
        Self(next.to_bits() | version << 60 | u64::from(is_gone))
    }

    /// The next leaf; of one that is gone, the leaf that has taken its keys.
    pub(super) fn next(self) -> RemoteAddr {
        address(self.0 & Self::ADDR)
    }

    pub(super) fn version(self) -> u64 {
        self.0 >> 60
    }

    /// Whether the leaf was taken out of the tree.
    pub(super) fn is_gone(self) -> bool {
        self.0 & Self::GONE != 0
    }
}

/// An address out of sixty bits.
pub(super) fn address(bits: u64) -> RemoteAddr {
    RemoteAddr::from_bits(bits & ((1 << 60) - 1)).expect("sixty bits are an address")
}

/// What a node write is about to do. Whoever takes the lock over from a client that died in the middle does it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Intent {
    /// Nothing.
    None,
    /// The keys from the split key on are in this new leaf.
    Split { right: RemoteAddr, version: u64 },
    /// What is in this node, the sibling, comes here, or is here.
    Absorb { right: RemoteAddr },
    /// What is here goes to that node, whose intent says so.
    AbsorbedBy { left: RemoteAddr },
    /// Of an internal node: it becomes what its second image is.
    Copy,
    /// Of an internal node: of its children this one absorbs the next.
    Below { left: RemoteAddr },
    /// Of the root: its only child takes its place.
    GiveWay,
}

impl Intent {
    pub(super) fn to_word(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Split { right, version } => right.to_bits() | version << 60 | 1,
            Self::Absorb { right } => right.to_bits() | 2,
            Self::AbsorbedBy { left } => left.to_bits() | 3,
            Self::Copy => 1,
            Self::Below { left } => left.to_bits() | 4,
            Self::GiveWay => 5,
        }
    }

    /// `None` for a word that says nothing known.
    pub(super) fn from_word(word: u64) -> Option<Self> {
        let (other, version) = (address(word & Sibling::ADDR), word >> 60);
        match word & 31 {
            0 => (word == 0).then_some(Self::None),
            1 if word == 1 => Some(Self::Copy),
            1 => Some(Self::Split { right: other, version }),
            2 => Some(Self::Absorb { right: other }),
            3 => Some(Self::AbsorbedBy { left: other }),
            4 => Some(Self::Below { left: other }),
            5 => (word == 5).then_some(Self::GiveWay),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_fabric::NodeId;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn intents_survive_encoding(offset in 1_u64..1 << 40, version in 0..VERSIONS) {
            let other = RemoteAddr::new(NodeId::new(3), offset * 32);
            let intents = [
                Intent::None,
                Intent::Split { right: other, version },
                Intent::Absorb { right: other },
                Intent::AbsorbedBy { left: other },
                Intent::Copy,
                Intent::Below { left: other },
                Intent::GiveWay,
            ];
            for intent in intents {
                prop_assert_eq!(Intent::from_word(intent.to_word()), Some(intent));
            }
            let sibling = Sibling::new(other, version, true);
            prop_assert_eq!((sibling.next(), sibling.version(), sibling.is_gone()), (other, version, true));
        }

        #[test]
        fn words_of_holders_are_held(client: u16, life: u16, ticket in 0_u64..1 << 31) {
            let owner = Owner { client, life };
            let word = LockWord::held_by(owner, ticket);
            prop_assert_eq!(word.owner(), Some(owner));
            prop_assert_ne!(word.0 & LockWord::HELD, 0);
        }

        #[test]
        fn an_entry_without_a_key_looks_vacant(
            client: u16, life: u16, hash: u64, ticket: u64, version in 0..VERSIONS,
        ) {
            let owner = Owner { client, life };
            let open = Vacancy::open(version);
            let claimed = open.claimed_by(owner, hash, ticket);
            let closed = Vacancy(Meta(open.0).closed().0);
            for vacancy in [open, claimed, closed] {
                prop_assert_eq!((Meta(vacancy.0).is_taken(), Meta(vacancy.0).version()), (0, version));
                prop_assert_eq!(vacancy.opened(), open);
            }
            prop_assert_eq!((open.owner(), claimed.owner(), closed.owner()), (None, Some(owner), None));
            let are_closed = [open, claimed, closed].map(|vacancy| Meta(vacancy.0).is_closed());
            prop_assert_eq!(are_closed, [false, false, true]);
            prop_assert!(claimed.is_for(hash) && !claimed.is_for(!hash) && !open.is_for(0));
            prop_assert_ne!(claimed, open.claimed_by(owner, hash, ticket.wrapping_add(1)));
        }
    }
}
