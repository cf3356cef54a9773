//! Groups of commands whose latencies are told apart.

use super::key_spec::KeySpec;

/// How many groups there are.
pub(crate) const GROUP_COUNT: usize = Group::ALL.len();

/// What a command does with the store, which decides how long it should take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Group {
    /// Looks keys up.
    Read,
    /// Changes keys.
    Write,
    /// Walks over all keys.
    Whole,
    /// Touches no key.
    Other,
}

impl Group {
    /// Every group, in the order of its number.
    pub(crate) const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Whole, Self::Other];

    /// The name used in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Whole => "whole",
            Self::Other => "other",
        }
    }

    /// The group of a command with these flags and keys, as the table has them.
    pub(crate) const fn of(flags: &[&str], keys: KeySpec) -> Self {
        let has_keys = keys.has_keys();
        if has(flags, b"write") {
            if has_keys { Self::Write } else { Self::Whole }
        } else if has(flags, b"readonly") {
            if has_keys { Self::Read } else { Self::Whole }
        } else if has(flags, b"movablekeys") {
            // The scripts of locks: each changes the keys that it names.
            Self::Write
        } else {
            Self::Other
        }
    }
}

/// Whether a flag is among them, at compile time.
const fn has(flags: &[&str], wanted: &[u8]) -> bool {
    let mut index = 0;
    while index < flags.len() {
        if is_equal(flags[index].as_bytes(), wanted) {
            return true;
        }
        index += 1;
    }
    false
}

const fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    one.len() == other.len() && index == one.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::table;

    #[test]
    fn flags_and_keys_decide_the_group() {
        let group = |name: &str| table::find(name.as_bytes()).expect("it is in the table").1.latency;
        for (name, expected) in [
            ("get", Group::Read),
            ("mget", Group::Read),
            ("set", Group::Write),
            ("del", Group::Write),
            ("scan", Group::Whole),
            ("eval", Group::Write),
            ("flushall", Group::Whole),
            ("ping", Group::Other),
            ("info", Group::Other),
        ] {
            assert_eq!(group(name), expected, "{name}");
        }
    }
}
