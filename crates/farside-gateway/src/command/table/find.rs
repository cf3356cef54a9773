//! Commands by their names.
//!
//! On the path: for every command.

use super::{Command, IDS, Id, TABLE};

/// So many bytes of a name say where to look for it.
const HASHED_BYTES: usize = 16;

/// Slots of the table of names, of which few are taken: a power of two.
const SLOTS: usize = (TABLE.len() * 4).next_power_of_two();
// A hash has 16 bits.
const _: () = assert!(SLOTS <= 1 << 16);

/// What is found at the first look, whatever else is in the table.
const QUICK: [Id; 2] = [Id::get, Id::set];

/// Each command in the first slot that was free, from that of its name on.
static SLOTS_BY_NAME: [Option<Id>; SLOTS] = {
    let mut slots = [None; SLOTS];
    let mut index = 0;
    while index < QUICK.len() {
        let slot = home(QUICK[index]);
        assert!(slots[slot].is_none());
        slots[slot] = Some(QUICK[index]);
        index += 1;
    }
    index = 0;
    while index < TABLE.len() {
        let mut slot = home(IDS[index]);
        // One of the quick commands stands at its home already, and is put there again.
        while let Some(id) = slots[slot]
            && id as usize != index
        {
            slot = (slot + 1) % SLOTS;
        }
        slots[slot] = Some(IDS[index]);
        index += 1;
    }
    slots
};

/// The slot from which on a command is looked for.
const fn home(id: Id) -> usize {
    let name = TABLE[id as usize].name.as_bytes();
    let mut bytes = [0; HASHED_BYTES];
    let mut at = 0;
    while at < name.len() && at < HASHED_BYTES {
        bytes[at] = name[at];
        at += 1;
    }
    slot_of(bytes)
}

const fn slot_of(name: [u8; HASHED_BYTES]) -> usize {
    let name = u128::from_le_bytes(name);
    let mixed = (name as u64 ^ ((name >> 64) as u64).rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 48) as usize % SLOTS
}

/// The command with this name, in any case.
#[inline]
pub(crate) fn find(name: &[u8]) -> Option<(Id, &'static Command)> {
    let mut lower = [0; HASHED_BYTES];
    let Some(start) = lower.get_mut(..name.len()) else {
        return find_long(name);
    };
    start.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let mut slot = slot_of(lower);
    // Ends: most slots are free.
    while let Some(id) = SLOTS_BY_NAME[slot] {
        let command = &TABLE[id as usize];
        if command.name.as_bytes() == &lower[..name.len()] {
            return Some((id, command));
        }
        slot = (slot + 1) % SLOTS;
    }
    None
}

/// The command with a name of more than [`HASHED_BYTES`]. A function of its own, so that short names do not pay for it.
#[cold]
fn find_long(name: &[u8]) -> Option<(Id, &'static Command)> {
    let mut start = *name.first_chunk::<HASHED_BYTES>()?;
    start.make_ascii_lowercase();
    let mut slot = slot_of(start);
    while let Some(id) = SLOTS_BY_NAME[slot] {
        let command = &TABLE[id as usize];
        if command.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some((id, command));
        }
        slot = (slot + 1) % SLOTS;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_commands_are_found_at_the_first_look() {
        for id in QUICK {
            assert_eq!(SLOTS_BY_NAME[home(id)], Some(id));
        }
    }
}
