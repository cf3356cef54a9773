//! The table of commands. A new one is a line here and a function.
//!
//! A line: the name, which is also the function's; the file it is in; how many arguments, the name
//! included, or the least number if negative; flags; the first key, the last (negative: from the
//! end) and the step between them; the group; what it does.

use super::{
    Call, Group, Handled, clients, config, connection, counters, expiry, farside, info, introspection, keys, object,
    observe, scan, scripts, server, set, strings, transactions, transfer,
};

/// A command as the table has it.
#[derive(Debug)]
pub(crate) struct Command {
    /// In lower case.
    pub(crate) name: &'static str,
    /// Arguments with the name; negative for at least so many.
    pub(crate) arity: i64,
    /// As COMMAND shows them.
    pub(crate) flags: &'static [&'static str],
    /// First key, last key, step.
    pub(crate) keys: [i64; 3],
    /// Group in the documentation.
    pub(crate) group: &'static str,
    /// With which commands its latency is counted.
    pub(crate) latency: Group,
    /// One line for people.
    pub(crate) summary: &'static str,
    /// Whether it may take long enough to be noted as slow; two looks at the clock would slow others down.
    pub(crate) is_timed: bool,
}

impl Command {
    /// Whether so many arguments, the name included, are right.
    #[inline]
    pub(crate) fn takes(&self, count: usize) -> bool {
        let count = count as i64;
        if self.arity < 0 {
            count >= -self.arity
        } else {
            count == self.arity
        }
    }

    /// Which of so many arguments are keys.
    pub(crate) fn key_places(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let [first, last, step] = self.keys;
        // A last key that is negative is counted from the end; no key at all is an empty range.
        let last = if last < 0 { count as i64 + last } else { last };
        let end = if first == 0 { first } else { last + 1 };
        (first..end).step_by(step.max(1) as usize).map(|place| place as usize)
    }
}

macro_rules! commands {
    ($($name:ident in $file:ident, $arity:literal, [$($flag:literal)*], $keys:expr, $group:literal, $summary:literal;)*) => {
        /// Every command, in the order of their names.
        pub(crate) static TABLE: &[Command] = &[$(Command {
            name: plain(stringify!($name)),
            arity: $arity,
            flags: &[$($flag),*],
            keys: $keys,
            group: $group,
            latency: Group::of(&[$($flag),*], $keys),
            summary: $summary,
            is_timed: may_take_long(plain(stringify!($name)), &[$($flag),*]),
        }),*];

        /// Which command.
        #[expect(non_camel_case_types, reason = "named like the functions, so that a line of the table is enough")]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Id {
            $($name),*
        }

        const IDS: &[Id] = &[$(Id::$name),*];

        /// Executes a command that was found.
        #[inline]
        pub(crate) async fn run(id: Id, call: &mut Call<'_>) -> Handled {
            match id {
                $(Id::$name => $file::$name(call).await),*
            }
        }
    };
}

/// A name without the mark of one that is a word of Rust.
const fn plain(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

/// Whether a command's duration depends on more than the length of one value: what Redis does not call fast, but
/// for SET and its like.
const fn may_take_long(name: &str, flags: &[&str]) -> bool {
    let is_set = matches!(name.as_bytes(), [b's', b'e', b't', ..] | [b'p', b's', b'e', b't', ..]);
    let mut index = 0;
    while index < flags.len() {
        if matches!(flags[index].as_bytes(), b"fast") {
            return false;
        }
        index += 1;
    }
    !is_set
}

const NO_KEYS: [i64; 3] = [0, 0, 0];
const ONE_KEY: [i64; 3] = [1, 1, 1];
const ALL_KEYS: [i64; 3] = [1, -1, 1];

commands! {
    append in strings, 3, ["write" "denyoom" "fast"], ONE_KEY, "string",
        "Appends a string to the value of a key. Creates the key if it does not exist.";
    auth in connection, -2, ["noscript" "loading" "stale" "fast" "no_auth"], NO_KEYS, "connection",
        "Authenticates the connection.";
    client in clients, -2, ["noscript" "loading" "stale"], NO_KEYS, "connection",
        "Names, describes and ends connections.";
    command in introspection, -1, ["loading" "stale"], NO_KEYS, "server",
        "Returns information about all commands.";
    config in config, -2, ["admin" "noscript" "loading" "stale"], NO_KEYS, "server",
        "Returns configuration parameters, and changes some.";
    copy in transfer, -3, ["write" "denyoom"], [1, 2, 1], "generic",
        "Copies the value of a key to a new key.";
    dbsize in keys, 1, ["readonly" "fast" "no_multi"], NO_KEYS, "server",
        "Returns the number of keys in the database.";
    debug in object, -2, ["admin" "noscript" "loading" "stale"], NO_KEYS, "server",
        "Waits, or describes a value.";
    decr in counters, 2, ["write" "denyoom" "fast"], ONE_KEY, "string",
        "Decrements the integer value of a key by one. Uses 0 as initial value if the key doesn't exist.";
    decrby in counters, 3, ["write" "denyoom" "fast"], ONE_KEY, "string",
        "Decrements a number from the integer value of a key. Uses 0 as initial value if the key doesn't exist.";
    del in keys, -2, ["write"], ALL_KEYS, "generic",
        "Deletes one or more keys.";
    discard in transactions, 1, ["noscript" "loading" "stale" "fast"], NO_KEYS, "transactions",
        "Discards a transaction.";
    echo in connection, 2, ["loading" "stale" "fast"], NO_KEYS, "connection",
        "Returns the given string.";
    eval in scripts, -3, ["noscript" "stale" "movablekeys" "no_multi"], NO_KEYS, "scripting",
        "Executes one of the known scripts of lock libraries.";
    evalsha in scripts, -3, ["noscript" "stale" "movablekeys" "no_multi"], NO_KEYS, "scripting",
        "Executes one of the known scripts, given its SHA1 digest.";
    exec in transactions, 1, ["noscript" "loading" "stale"], NO_KEYS, "transactions",
        "Executes all commands in a transaction.";
    exists in keys, -2, ["readonly" "fast"], ALL_KEYS, "generic",
        "Determines whether one or more keys exist.";
    expire in expiry, -3, ["write" "fast"], ONE_KEY, "generic",
        "Sets the expiration time of a key in seconds.";
    expireat in expiry, -3, ["write" "fast"], ONE_KEY, "generic",
        "Sets the expiration time of a key to a Unix timestamp.";
    expiretime in expiry, 2, ["readonly" "fast"], ONE_KEY, "generic",
        "Returns the expiration time of a key as a Unix timestamp.";
    farside in farside, -2, ["admin" "noscript" "loading" "stale" "no_multi"], NO_KEYS, "server",
        "Tells what this gateway counts and which keys are used most, and reads keys in order.";
    flushall in keys, -1, ["write" "no_multi"], NO_KEYS, "server",
        "Removes all keys from all databases.";
    flushdb in keys, -1, ["write" "no_multi"], NO_KEYS, "server",
        "Removes all keys from the current database.";
    get in strings, 2, ["readonly" "fast"], ONE_KEY, "string",
        "Returns the string value of a key.";
    getdel in strings, 2, ["write" "fast"], ONE_KEY, "string",
        "Returns the string value of a key after deleting the key.";
    getex in expiry, -2, ["write" "fast"], ONE_KEY, "string",
        "Returns the string value of a key after setting its expiration time.";
    getrange in strings, 4, ["readonly"], ONE_KEY, "string",
        "Returns a substring of the string stored at a key.";
    getset in strings, 3, ["write" "denyoom" "fast"], ONE_KEY, "string",
        "Returns the previous string value of a key after setting it to a new value.";
    hello in connection, -1, ["noscript" "loading" "stale" "fast" "no_auth"], NO_KEYS, "connection",
        "Handshakes with the server.";
    incr in counters, 2, ["write" "denyoom" "fast"], ONE_KEY, "string",
        "Increments the integer value of a key by one. Uses 0 as initial value if the key doesn't exist.";
    incrby in counters, 3, ["write" "denyoom" "fast"], ONE_KEY, "string",
        "Increments the integer value of a key by a number. Uses 0 as initial value if the key doesn't exist.";
    incrbyfloat in counters, 3, ["write" "denyoom" "fast"], ONE_KEY, "string",
        "Increments the number of a key by a decimal number. Uses 0 as initial value if the key doesn't exist.";
    info in info, -1, ["loading" "stale"], NO_KEYS, "server",
        "Returns information and statistics about the server.";
    keys in scan, 2, ["readonly" "no_multi"], NO_KEYS, "generic",
        "Returns all key names that match a pattern.";
    latency in observe, -2, ["admin" "noscript" "loading" "stale"], NO_KEYS, "server",
        "Returns no latency events: none are sampled.";
    memory in object, -2, ["readonly"], NO_KEYS, "server",
        "Tells how much memory a key and the store take.";
    mget in strings, -2, ["readonly" "fast"], ALL_KEYS, "string",
        "Returns the string values of one or more keys; each is read for itself.";
    monitor in clients, 1, ["admin" "noscript" "loading" "stale"], NO_KEYS, "server",
        "Shows every command of every client, if CONFIG SET enable-monitor-command allows it.";
    mset in strings, -3, ["write" "denyoom"], [1, -1, 2], "string",
        "Sets the string values of one or more keys; each is set for itself.";
    msetnx in strings, -3, ["write" "denyoom"], [1, -1, 2], "string",
        "Sets the string values of one or more keys only when none of them exists.";
    multi in transactions, 1, ["noscript" "loading" "stale" "fast"], NO_KEYS, "transactions",
        "Starts a transaction.";
    object in object, -2, ["readonly"], NO_KEYS, "generic",
        "Describes how a value is stored.";
    persist in expiry, 2, ["write" "fast"], ONE_KEY, "generic",
        "Removes the expiration time of a key.";
    pexpire in expiry, -3, ["write" "fast"], ONE_KEY, "generic",
        "Sets the expiration time of a key in milliseconds.";
    pexpireat in expiry, -3, ["write" "fast"], ONE_KEY, "generic",
        "Sets the expiration time of a key to a Unix milliseconds timestamp.";
    pexpiretime in expiry, 2, ["readonly" "fast"], ONE_KEY, "generic",
        "Returns the expiration time of a key as a Unix milliseconds timestamp.";
    ping in connection, -1, ["fast"], NO_KEYS, "connection",
        "Returns the server's liveliness response.";
    psetex in set, 4, ["write" "denyoom"], ONE_KEY, "string",
        "Sets both string value and expiration time in milliseconds of a key. The key is created if it doesn't exist.";
    pttl in expiry, 2, ["readonly" "fast"], ONE_KEY, "generic",
        "Returns the expiration time in milliseconds of a key.";
    quit in connection, -1, ["noscript" "loading" "stale" "fast" "no_auth"], NO_KEYS, "connection",
        "Closes the connection.";
    randomkey in scan, 1, ["readonly" "no_multi"], NO_KEYS, "generic",
        "Returns a random key name from the database.";
    rename in transfer, 3, ["write"], [1, 2, 1], "generic",
        "Renames a key and overwrites the destination.";
    renamenx in transfer, 3, ["write" "fast"], [1, 2, 1], "generic",
        "Renames a key only when the destination doesn't exist.";
    reset in clients, 1, ["noscript" "loading" "stale" "fast" "no_auth"], NO_KEYS, "connection",
        "Resets the connection.";
    scan in scan, -2, ["readonly" "no_multi"], NO_KEYS, "generic",
        "Iterates over the key names in the database.";
    script in scripts, -2, ["noscript"], NO_KEYS, "scripting",
        "Loads, looks for and forgets scripts.";
    select in server, 2, ["loading" "stale" "fast"], NO_KEYS, "connection",
        "Changes the selected database; there is one.";
    set in set, -3, ["write" "denyoom"], ONE_KEY, "string",
        "Sets the string value of a key, ignoring its type. The key is created if it doesn't exist.";
    setex in set, 4, ["write" "denyoom"], ONE_KEY, "string",
        "Sets the string value and expiration time of a key. Creates the key if it doesn't exist.";
    setnx in strings, 3, ["write" "denyoom" "fast"], ONE_KEY, "string",
        "Sets the string value of a key only when the key doesn't exist.";
    setrange in strings, 4, ["write" "denyoom"], ONE_KEY, "string",
        "Overwrites a part of a string value with another by an offset. Creates the key if it doesn't exist.";
    slowlog in observe, -2, ["admin" "loading" "stale"], NO_KEYS, "server",
        "Returns the commands that took long.";
    strlen in strings, 2, ["readonly" "fast"], ONE_KEY, "string",
        "Returns the length of a string value.";
    substr in strings, 4, ["readonly"], ONE_KEY, "string",
        "Returns a substring from a string value.";
    time in server, 1, ["loading" "stale" "fast"], NO_KEYS, "server",
        "Returns the server time.";
    touch in keys, -2, ["readonly" "fast"], ALL_KEYS, "generic",
        "Returns the number of existing keys out of those specified.";
    ttl in expiry, 2, ["readonly" "fast"], ONE_KEY, "generic",
        "Returns the expiration time in seconds of a key.";
    r#type in keys, 2, ["readonly" "fast"], ONE_KEY, "generic",
        "Determines the type of value stored at a key.";
    unlink in keys, -2, ["write" "fast"], ALL_KEYS, "generic",
        "Deletes one or more keys.";
    unwatch in transactions, 1, ["noscript" "loading" "stale" "fast"], NO_KEYS, "transactions",
        "Forgets about watched keys of a transaction.";
    wait in server, 3, ["noscript"], NO_KEYS, "generic",
        "Returns 0: there are no replicas.";
    watch in transactions, -2, ["noscript" "loading" "stale" "fast"], ALL_KEYS, "transactions",
        "Monitors changes to keys to determine the execution of a transaction.";
}

/// The longest name of a command.
const NAME_BYTES_MAX: usize = 16;

/// Slots of the table of names, of which few are taken: a power of two.
const SLOTS: usize = 1 << 10;
/// A slot that is free.
const NONE: u8 = u8::MAX;
const _: () = assert!(TABLE.len() * 4 < SLOTS && TABLE.len() < NONE as usize);

/// Each command in the first slot that was free, from that of its name on.
static SLOT_OF_NAME: [u8; SLOTS] = {
    let mut slots = [NONE; SLOTS];
    let mut index = 0;
    while index < TABLE.len() {
        let name = TABLE[index].name.as_bytes();
        let mut bytes = [0; NAME_BYTES_MAX];
        let mut at = 0;
        while at < name.len() {
            bytes[at] = name[at];
            at += 1;
        }
        let mut slot = slot_of(bytes);
        while slots[slot] != NONE {
            slot = (slot + 1) % SLOTS;
        }
        slots[slot] = index as u8;
        index += 1;
    }
    slots
};

const fn slot_of(name: [u8; NAME_BYTES_MAX]) -> usize {
    let name = u128::from_le_bytes(name);
    let mixed = (name as u64 ^ ((name >> 64) as u64).rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 48) as usize % SLOTS
}

/// The command with this name, in any case.
#[inline]
pub(crate) fn find(name: &[u8]) -> Option<(Id, &'static Command)> {
    let mut lower = [0; NAME_BYTES_MAX];
    lower.get_mut(..name.len())?.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let mut slot = slot_of(lower);
    // Ends: most slots are free.
    while SLOT_OF_NAME[slot] != NONE {
        let index = SLOT_OF_NAME[slot] as usize;
        if TABLE[index].name.as_bytes() == &lower[..name.len()] {
            return Some((IDS[index], &TABLE[index]));
        }
        slot = (slot + 1) % SLOTS;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_short() {
        assert!(TABLE.is_sorted_by(|one, next| one.name < next.name));
        assert!(TABLE.iter().all(|command| command.name.len() <= NAME_BYTES_MAX));
    }

    #[test]
    fn every_command_is_found_in_any_case() {
        for (index, command) in TABLE.iter().enumerate() {
            let upper = command.name.to_uppercase();
            for name in [command.name, upper.as_str()] {
                let (id, found) = find(name.as_bytes()).expect("it is in the table");
                assert_eq!((id as usize, found.name), (index, command.name));
            }
        }
        for name in [
            "",
            "ge",
            "gett",
            "a name that is far longer than any command",
            "\u{0}",
            "get\u{0}",
        ] {
            assert!(find(name.as_bytes()).is_none());
        }
    }

    #[test]
    fn arity_counts_the_name() {
        let takes = |name: &str, count| find(name.as_bytes()).expect("it is in the table").1.takes(count);
        assert!(takes("get", 2) && !takes("get", 1) && !takes("get", 3));
        assert!(takes("del", 2) && takes("del", 200) && !takes("del", 1));
    }

    #[test]
    fn write_commands_name_their_keys() {
        for command in TABLE {
            let is_whole = command.name.starts_with("flush");
            let writes = command.flags.contains(&"write");
            assert_eq!(writes && command.keys == NO_KEYS, is_whole, "{}", command.name);
        }
    }
}
