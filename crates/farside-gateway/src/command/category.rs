//! Categories of commands, as users' rules name them, and what commands do to their keys.
//!
//! A category follows from the flags of a command, as in Redis, or from its group; the table has the others.

/// Every category of Redis 7, in its order. No command here is in those of data types that do not exist, but rules that
/// were written for Redis may name them.
pub(crate) const ALL: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// The bit of the category with this name, in any case.
pub(crate) fn find(name: &[u8]) -> Option<u32> {
    let index = ALL
        .iter()
        .position(|known| known.as_bytes().eq_ignore_ascii_case(name))?;
    Some(1 << index)
}

/// The names of the categories whose bits are set.
pub(crate) fn names(categories: u32) -> impl Iterator<Item = &'static str> + Clone {
    (ALL.into_iter().enumerate()).filter_map(move |(index, name)| (categories >> index & 1 == 1).then_some(name))
}

/// The bit of a category that exists.
const fn bit(name: &str) -> u32 {
    let mut index = 0;
    while index < ALL.len() {
        if is_equal(ALL[index], name) {
            return 1 << index;
        }
        index += 1;
    }
    panic!("there is no such category")
}

const fn is_equal(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    one.len() == other.len() && index == one.len()
}

const fn has(flags: &[&str], wanted: &str) -> bool {
    let mut index = 0;
    while index < flags.len() {
        if is_equal(flags[index], wanted) {
            return true;
        }
        index += 1;
    }
    false
}

/// The categories of a command with these flags, in this group; those that the table names stand in place of the group's.
pub(crate) const fn of(flags: &[&str], group: &str, named: &[&str]) -> u32 {
    let mut categories = bit(if has(flags, "fast") { "fast" } else { "slow" });
    if has(flags, "write") {
        categories |= bit("write");
    }
    if has(flags, "readonly") {
        categories |= bit("read");
    }
    if has(flags, "admin") {
        categories |= bit("admin") | bit("dangerous");
    }
    let mut index = 0;
    while index < named.len() {
        categories |= bit(named[index]);
        index += 1;
    }
    if named.is_empty() {
        categories |= match group.as_bytes() {
            b"string" => bit("string"),
            b"bitmap" => bit("bitmap"),
            b"hyperloglog" => bit("hyperloglog"),
            b"hash" => bit("hash"),
            b"set" => bit("set"),
            b"list" => bit("list"),
            b"sorted-set" => bit("sortedset"),
            b"generic" => bit("keyspace"),
            b"connection" => bit("connection"),
            b"transactions" => bit("transaction"),
            b"scripting" => bit("scripting"),
            _ => 0,
        };
    }
    categories
}

/// What a command does to a key: what a user must be allowed to do with it, and what COMMAND GETKEYSANDFLAGS tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Access(u8);

/// What it does, a bit each; the first two are what users are allowed. The names are Redis's.
const ACCESS: u8 = 1;
const WRITE: u8 = 1 << 1;
const UPDATE: u8 = 1 << 2;
const INSERT: u8 = 1 << 3;
const DELETE: u8 = 1 << 4;
/// It does not depend on what was there (`OW`), or removes the key whatever it has (`RM`).
const OVERWRITE: u8 = 1 << 5;
const REMOVE: u8 = 1 << 6;
/// It may store what it has found out, which is no change.
const CACHE: u8 = 1 << 7;
const RIGHTS: u8 = ACCESS | WRITE;

impl Access {
    /// Looks whether it is there, and the like: it is enough to have something to do with the key.
    pub(crate) const ANY: Self = Self(0);
    /// Tells its value.
    pub(crate) const R: Self = Self(ACCESS);
    /// Changes it.
    pub(crate) const W: Self = Self(WRITE | UPDATE);
    /// Both.
    pub(crate) const RW: Self = Self(ACCESS | WRITE | UPDATE);
    /// Adds to it.
    pub(crate) const ADD: Self = Self(WRITE | INSERT);
    /// Tells what it has, and adds to it.
    pub(crate) const MERGE: Self = Self(ACCESS | WRITE | INSERT);
    /// Takes out of it what the command names.
    pub(crate) const DROP: Self = Self(WRITE | DELETE);
    /// Takes out of it what it tells.
    pub(crate) const TAKE: Self = Self(ACCESS | WRITE | DELETE);
    /// Puts something in its place.
    pub(crate) const PUT: Self = Self(WRITE | UPDATE | OVERWRITE);
    /// Makes it.
    pub(crate) const NEW: Self = Self(WRITE | INSERT | OVERWRITE);
    /// Removes it.
    pub(crate) const RM: Self = Self(WRITE | DELETE | REMOVE);
    /// Tells something of its value that is kept beside it.
    pub(crate) const COUNT: Self = Self(ACCESS | CACHE);

    /// Both what this and what another one does.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether whoever may do this may do that.
    pub(crate) const fn allows(self, wanted: Self) -> bool {
        let wanted = wanted.0 & RIGHTS;
        self.0 & wanted == wanted
    }

    /// What COMMAND GETKEYSANDFLAGS tells of it.
    pub(crate) fn flags(self) -> impl Iterator<Item = &'static str> + Clone {
        let has = move |bits: u8| self.0 & bits != 0;
        let kind = match () {
            () if has(OVERWRITE) => "OW",
            () if has(REMOVE) => "RM",
            () if has(WRITE | CACHE) => "RW",
            () => "RO",
        };
        let deeds = [
            (ACCESS, "access"),
            (UPDATE, "update"),
            (INSERT, "insert"),
            (DELETE, "delete"),
        ];
        let deeds = deeds.into_iter().filter(move |&(bit, _)| has(bit));
        core::iter::once(kind).chain(deeds.map(|(_, name)| name))
    }
}

/// What a command with these flags does to its keys, if the table does not say it.
pub(crate) const fn access(flags: &[&str]) -> &'static [Access] {
    if has(flags, "write") {
        &[Access::RW]
    } else if has(flags, "readonly") {
        &[Access::R]
    } else {
        &[Access::ANY]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::table::{COUNT, numbered};

    /// Some of what `COMMAND INFO` of Redis 7 says.
    #[test]
    fn categories_are_those_of_redis() {
        let shown = |wanted: &str| {
            let mut all = (0..COUNT).filter_map(numbered);
            let found = all
                .find(|numbered| numbered.full_name() == wanted)
                .expect("it is in the table");
            names(found.categories()).collect::<Vec<_>>().join(" ")
        };
        for (name, expected) in [
            ("get", "read string fast"),
            ("set", "write string slow"),
            ("setbit", "write bitmap slow"),
            ("getbit", "read bitmap fast"),
            ("bitop", "write bitmap slow"),
            ("bitfield_ro", "read bitmap fast"),
            ("lcs", "read string slow"),
            ("pfadd", "write hyperloglog fast"),
            ("pfcount", "read hyperloglog slow"),
            ("pfmerge", "write hyperloglog slow"),
            ("del", "keyspace write slow"),
            ("keys", "keyspace read slow dangerous"),
            ("flushall", "keyspace write slow dangerous"),
            ("dbsize", "keyspace read fast"),
            ("wait", "slow connection"),
            ("info", "slow dangerous"),
            ("eval", "slow scripting"),
            ("multi", "fast transaction"),
            ("client", "slow"),
            ("client|id", "slow connection"),
            ("client|kill", "admin slow dangerous connection"),
            ("command", "slow connection"),
            ("config", "slow"),
            ("config|get", "admin slow dangerous"),
            ("config|help", "slow"),
            ("object|encoding", "keyspace read slow"),
            ("memory|usage", "read slow"),
            ("acl|setuser", "admin slow dangerous"),
            ("acl|whoami", "slow"),
            ("module|list", "admin slow dangerous"),
            ("cluster|info", "slow"),
        ] {
            assert_eq!(shown(name), expected, "{name}");
        }
        assert_eq!((find(b"STRING"), find(b"all"), find(b"")), (Some(1 << 7), None, None));
    }

    #[test]
    fn rights_contain_each_other() {
        let rights = [Access::ANY, Access::R, Access::W, Access::RW];
        for one in rights {
            assert!(one.allows(one) && one.allows(Access::ANY) && Access::RW.allows(one));
            assert_eq!(one.with(Access::RW), Access::RW);
        }
        for (access, rights) in [
            (Access::ADD, Access::W),
            (Access::MERGE, Access::RW),
            (Access::DROP, Access::W),
            (Access::TAKE, Access::RW),
            (Access::PUT, Access::W),
            (Access::NEW, Access::W),
            (Access::RM, Access::W),
            (Access::COUNT, Access::R),
        ] {
            let allowing = rights.allows(access) && access.allows(rights);
            assert!(allowing, "{access:?}");
        }
        assert!(!Access::R.allows(Access::W) && !Access::W.allows(Access::RW) && !Access::ANY.allows(Access::R));
    }
}
