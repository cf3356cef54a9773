//! The head of a place: whose lock it is, and who was granted it last.

use farside_lock::Mode;
use xxhash_rust::xxh3::xxh3_64;

use super::table::{HEAD_BYTES, LOCK_NAME_BYTES_MAX, NAME_AT, NOTE_AT, OWNER_BYTES_MAX};

/// Bytes of a note.
pub(super) const NOTE_BYTES: usize = (NAME_AT - NOTE_AT) as usize;
const OWNER_IN_NOTE: usize = 24;

/// The name in a head; `None` where there is none, or what is there is none.
pub(super) fn name_of(head: &[u8]) -> Option<&[u8]> {
    let length = word(head, 0) as usize;
    let names = &head[NAME_AT as usize..HEAD_BYTES as usize];
    (1..=LOCK_NAME_BYTES_MAX).contains(&length).then(|| &names[..length])
}

/// Who was granted a lock last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Note {
    pub(super) since_ms: u64,
    pub(super) mode: Mode,
    pub(super) owner: String,
}

impl Note {
    /// Writes a note to the start of `target`.
    pub(super) fn encode(since_ms: u64, mode: Mode, owner: &str, target: &mut [u8]) {
        let target = &mut target[..NOTE_BYTES];
        let ends = owner.char_indices().map(|(at, letter)| at + letter.len_utf8());
        let end = ends.take_while(|end| *end <= OWNER_BYTES_MAX).last().unwrap_or(0);
        let owner = &owner.as_bytes()[..end];
        let mode = u64::from(mode == Mode::Exclusive);
        target[OWNER_IN_NOTE..].fill(0);
        target[OWNER_IN_NOTE..][..owner.len()].copy_from_slice(owner);
        target[..8].copy_from_slice(&since_ms.to_le_bytes());
        target[8..16].copy_from_slice(&(owner.len() as u64 | mode << 8).to_le_bytes());
        let check = Self::check(target);
        target[16..24].copy_from_slice(&check.to_le_bytes());
    }

    /// The note in a head; `None` if nobody has written one yet, or it is being written.
    pub(super) fn decode(head: &[u8]) -> Option<Self> {
        let note = &head[NOTE_AT as usize..NAME_AT as usize];
        let length = usize::from(note[8]);
        if word(note, 16) != Self::check(note) || length > OWNER_BYTES_MAX {
            return None;
        }
        let owner = core::str::from_utf8(&note[OWNER_IN_NOTE..][..length]).ok()?;
        Some(Self {
            since_ms: word(note, 0),
            mode: if note[9] == 1 { Mode::Exclusive } else { Mode::Shared },
            owner: owner.to_owned(),
        })
    }

    /// Tells a whole note from one that is torn.
    fn check(note: &[u8]) -> u64 {
        xxh3_64(&note[..16]) ^ xxh3_64(&note[OWNER_IN_NOTE..]).rotate_left(1)
    }
}

/// The aligned word at `at`.
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(since_ms: u64, mode: Mode, owner: &str) -> Vec<u8> {
        let mut head = vec![0; HEAD_BYTES as usize];
        Note::encode(since_ms, mode, owner, &mut head[NOTE_AT as usize..]);
        head
    }

    proptest! {
        #[test]
        fn notes_survive_encoding(since_ms: u64, is_exclusive: bool, owner in "\\PC{0,24}") {
            let mode = if is_exclusive { Mode::Exclusive } else { Mode::Shared };
            let note = Note::decode(&written(since_ms, mode, &owner)).expect("whole");
            prop_assert_eq!(note, Note { since_ms, mode, owner });
        }

        #[test]
        fn long_owners_are_cut_between_letters(owner in "\\PC{90,120}") {
            let note = Note::decode(&written(1, Mode::Shared, &owner)).expect("whole");
            prop_assert!(owner.starts_with(&note.owner) && note.owner.len() > OWNER_BYTES_MAX - 4);
        }

        /// Any mixture of the words of two notes is recognised.
        #[test]
        fn torn_notes_are_none(one in "[a-z]{1,96}", other in "[a-z]{1,96}", since_ms: u64, from_other: u16) {
            let (one, other) = (written(since_ms, Mode::Shared, &one), written(!since_ms, Mode::Exclusive, &other));
            let mut torn = one.clone();
            for (index, bytes) in torn.chunks_exact_mut(8).enumerate().take(16) {
                if from_other >> index & 1 == 1 {
                    bytes.copy_from_slice(&other[8 * index..8 * index + 8]);
                }
            }
            let decoded = Note::decode(&torn);
            prop_assert!(decoded.is_none() || torn[..128] == one[..128] || torn[..128] == other[..128]);
        }
    }

    #[test]
    fn nothing_is_left_of_the_note_before() {
        let mut head = written(1, Mode::Exclusive, "somebody with a long name");
        Note::encode(2, Mode::Shared, "me", &mut head[NOTE_AT as usize..]);
        assert_eq!(head, written(2, Mode::Shared, "me"));
    }

    /// Clients of several releases read each other's notes.
    #[test]
    fn the_check_of_a_note_stays_what_it_is() {
        let head = written(7, Mode::Exclusive, "somebody");
        assert_eq!(word(&head, NOTE_AT as usize + 16), 0x8514_2773_b43d_0961);
    }

    #[test]
    fn blank_heads_have_neither_name_nor_note() {
        let blank = [0; HEAD_BYTES as usize];
        assert_eq!(name_of(&blank), None);
        assert_eq!(Note::decode(&blank), None);
    }
}
