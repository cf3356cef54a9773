//! The table of commands. A new one is a line here and a function.
//!
//! A line: the name, which is also the function's; the file it is in; how many arguments, the name
//! included, or the least number if negative; flags; where its keys stand (see [`KeySpec`]); what is done to each of these
//! keys, if the flags do not say it; the group; its categories, if the group does not say them; what it does; its
//! subcommands, each with its arguments (the name of the command included), its flags and its keys.
//!
//! Commands and subcommands have numbers, those of the commands first: by their number, users are allowed them, and CLIENT
//! LIST shows them.

mod find;
mod numbers;

pub(crate) use self::find::find;
pub(crate) use self::numbers::{COUNT, Numbered, find_subcommand, number, numbered, subcommands};
use super::category::{self, Access};
use super::key_spec::KeySpec;
use super::{
    Call, Group, Handled, acl, bits, clients, cluster, config, connection, counters, dump, expiry, farside,
    field_expiry, hashes, hyperloglog, info, introspection, keys, lcs, lists, object, observe, ranges, scan, scripts,
    server, set, set_algebra, sets, sorted_sets, strings, transactions, transfer, unions,
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
    pub(crate) keys: KeySpec,
    /// What is done to these keys, one after the other; to those that are left, what is done to the last one.
    pub(crate) access: &'static [Access],
    /// Group in the documentation.
    pub(crate) group: &'static str,
    /// The categories of users' rules that it is in, a bit for each.
    pub(crate) categories: u32,
    /// With which commands its latency is counted.
    pub(crate) latency: Group,
    /// One line for people.
    pub(crate) summary: &'static str,
    /// Whether it may take long enough to be noted as slow; two looks at the clock would slow others down.
    pub(crate) is_timed: bool,
    /// In the order of their names.
    pub(crate) subcommands: &'static [Subcommand],
}

/// A subcommand, likewise.
#[derive(Debug)]
pub(crate) struct Subcommand {
    pub(crate) name: &'static str,
    /// With that of the command and a bar: `config|get`.
    pub(crate) full_name: &'static str,
    pub(crate) arity: i64,
    pub(crate) flags: &'static [&'static str],
    pub(crate) keys: KeySpec,
    pub(crate) access: &'static [Access],
    pub(crate) categories: u32,
}

impl Command {
    /// Whether so many arguments, the name included, are right.
    #[inline]
    pub(crate) fn takes(&self, count: usize) -> bool {
        takes(self.arity, count)
    }
}

#[inline]
fn takes(arity: i64, count: usize) -> bool {
    let count = count as i64;
    if arity < 0 { count >= -arity } else { count == arity }
}

macro_rules! commands {
    ($(
        $name:ident in $file:ident, $arity:literal, [$($flag:literal)*], $keys:expr $(=> [$($access:ident)*])?,
        $group:literal $(= [$($category:literal)*])?, $summary:literal
        $(, $subcommands:tt)?;
    )*) => {
        /// Every command, in the order of their names.
        pub(crate) static TABLE: &[Command] = &[$(Command {
            name: plain(stringify!($name)),
            arity: $arity,
            flags: &[$($flag),*],
            keys: $keys,
            access: commands!(@access [$($flag)*] $([$($access)*])?),
            group: $group,
            categories: match commands!(@is_container $($subcommands)?) && $arity == -2 {
                // It is nothing by itself.
                true => category::of(&[], "", &[]),
                false => category::of(&[$($flag),*], $group, &[$($($category),*)?]),
            },
            latency: Group::of(&[$($flag),*], $keys),
            summary: $summary,
            is_timed: may_take_long(plain(stringify!($name)), &[$($flag),*]),
            subcommands: commands!(@subcommands $name $group [$($($category)*)?] $($subcommands)?),
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
    (@access [$($flag:literal)*]) => { category::access(&[$($flag),*]) };
    (@access [$($flag:literal)*] [$($access:ident)*]) => { &[$(Access::$access),*] };
    (@is_container) => { false };
    (@is_container $subcommands:tt) => { true };
    (@subcommands $name:ident $group:literal $categories:tt) => { &[] };
    (@subcommands $name:ident $group:literal $categories:tt {
        $($sub:literal $arity:literal [$($flag:literal)*] $(at $keys:expr)?;)*
    }) => {
        &[$(Subcommand {
            name: $sub,
            full_name: concat!(stringify!($name), "|", $sub),
            arity: $arity,
            flags: &[$($flag),*],
            keys: commands!(@keys $($keys)?),
            // What OBJECT and MEMORY tell about a key is told to whoever may do anything with it.
            access: &[Access::ANY],
            categories: category::of(&[$($flag),*], $group, commands!(@categories $categories)),
        }),*]
    };
    (@categories [$($category:literal)*]) => { &[$($category),*] };
    (@keys) => { NO_KEYS };
    (@keys $keys:expr) => { $keys };
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

const NO_KEYS: KeySpec = KeySpec::NoKeys;
const ONE_KEY: KeySpec = KeySpec::One(1);
const ALL_KEYS: KeySpec = KeySpec::Range(1, -1, 1);
const TWO_KEYS: KeySpec = KeySpec::Range(1, 2, 1);
/// A key and a value, again and again.
const PAIRS: KeySpec = KeySpec::Range(1, -1, 2);
/// The key behind the name of a subcommand.
const SECOND: KeySpec = KeySpec::One(2);

commands! {
    acl in acl, -2, [], NO_KEYS, "server",
        "Says who may do what, and changes it.", {
            "cat" -2 ["noscript" "loading" "stale"];
            "deluser" -3 ["admin" "noscript" "loading" "stale"];
            "dryrun" -4 ["admin" "noscript" "loading" "stale"];
            "genpass" -2 ["noscript" "loading" "stale"];
            "getuser" 3 ["admin" "noscript" "loading" "stale"];
            "help" 2 ["loading" "stale"];
            "list" 2 ["admin" "noscript" "loading" "stale"];
            "load" 2 ["admin" "noscript" "loading" "stale"];
            "log" -2 ["admin" "noscript" "loading" "stale"];
            "save" 2 ["admin" "noscript" "loading" "stale"];
            "setuser" -3 ["admin" "noscript" "loading" "stale"];
            "users" 2 ["admin" "noscript" "loading" "stale"];
            "whoami" 2 ["noscript" "loading" "stale"];
        };
    append in strings, 3, ["write" "denyoom" "fast"], ONE_KEY => [ADD], "string",
        "Appends a string to the value of a key. Creates the key if it does not exist.";
    auth in connection, -2, ["noscript" "loading" "stale" "fast" "no_auth"], NO_KEYS, "connection",
        "Authenticates the connection.";
    bitcount in bits, -2, ["readonly"], ONE_KEY, "bitmap",
        "Counts the number of set bits in a string.";
    bitfield in bits, -2, ["write" "denyoom"], ONE_KEY, "bitmap",
        "Performs arbitrary bitfield integer operations on a string.";
    bitfield_ro in bits, -2, ["readonly" "fast"], ONE_KEY, "bitmap",
        "Performs arbitrary read-only bitfield integer operations on a string.";
    bitop in bits, -4, ["write" "denyoom"], KeySpec::Range(2, -1, 1) => [PUT R], "bitmap",
        "Performs bitwise operations on multiple strings, and stores the result.";
    bitpos in bits, -3, ["readonly"], ONE_KEY, "bitmap",
        "Finds the first set (1) or clear (0) bit in a string.";
    client in clients, -2, [], NO_KEYS, "connection",
        "Names, describes and ends connections.", {
            "getname" 2 ["noscript" "loading" "stale"];
            "getredir" 2 ["noscript" "loading" "stale"];
            "help" 2 ["loading" "stale"];
            "id" 2 ["noscript" "loading" "stale"];
            "info" 2 ["noscript" "loading" "stale"];
            "kill" -3 ["admin" "noscript" "loading" "stale"];
            "list" -2 ["admin" "noscript" "loading" "stale"];
            "no-evict" 3 ["admin" "noscript" "loading" "stale"];
            "no-touch" 3 ["noscript" "loading" "stale"];
            "pause" -3 ["admin" "noscript" "loading" "stale"];
            "reply" 3 ["noscript" "loading" "stale"];
            "setinfo" 4 ["noscript" "loading" "stale"];
            "setname" 3 ["noscript" "loading" "stale"];
            "trackinginfo" 2 ["noscript" "loading" "stale"];
            "unblock" -3 ["admin" "noscript" "loading" "stale"];
            "unpause" 2 ["admin" "noscript" "loading" "stale"];
        };
    cluster in cluster, -2, [], NO_KEYS, "cluster",
        "Says that there is no cluster.", {
            "countkeysinslot" 3 ["stale"];
            "getkeysinslot" 4 ["stale"];
            "help" 2 ["stale"];
            "info" 2 ["stale"];
            "keyslot" 3 ["stale"];
            "links" 2 ["stale"];
            "myid" 2 ["stale"];
            "nodes" 2 ["stale"];
            "shards" 2 ["stale"];
            "slots" 2 ["stale"];
        };
    command in introspection, -1, ["loading" "stale"], NO_KEYS, "server" = ["connection"],
        "Returns information about all commands.", {
            "count" 2 ["loading" "stale"];
            "docs" -2 ["loading" "stale"];
            "getkeys" -4 ["loading" "stale"];
            "getkeysandflags" -4 ["loading" "stale"];
            "help" 2 ["loading" "stale"];
            "info" -2 ["loading" "stale"];
            "list" -2 ["loading" "stale"];
        };
    config in config, -2, [], NO_KEYS, "server",
        "Returns configuration parameters, and changes some.", {
            "get" -3 ["admin" "noscript" "loading" "stale"];
            "help" 2 ["loading" "stale"];
            "resetstat" 2 ["admin" "noscript" "loading" "stale"];
            "rewrite" 2 ["admin" "noscript" "loading" "stale"];
            "set" -4 ["admin" "noscript" "loading" "stale"];
        };
    copy in transfer, -3, ["write" "denyoom"], TWO_KEYS => [R PUT], "generic",
        "Copies the value of a key to a new key.";
    dbsize in keys, 1, ["readonly" "fast" "no_multi"], NO_KEYS, "server" = ["keyspace"],
        "Returns the number of keys in the database.";
    debug in object, -2, ["admin" "noscript" "loading" "stale"], NO_KEYS, "server",
        "Waits, or describes a value.";
    decr in counters, 2, ["write" "denyoom" "fast"], ONE_KEY, "string",
        "Decrements the integer value of a key by one. Uses 0 as initial value if the key doesn't exist.";
    decrby in counters, 3, ["write" "denyoom" "fast"], ONE_KEY, "string",
        "Decrements a number from the integer value of a key. Uses 0 as initial value if the key doesn't exist.";
    del in keys, -2, ["write"], ALL_KEYS => [RM], "generic",
        "Deletes one or more keys.";
    discard in transactions, 1, ["noscript" "loading" "stale" "fast"], NO_KEYS, "transactions",
        "Discards a transaction.";
    dump in dump, 2, ["readonly"], ONE_KEY, "generic",
        "Returns a serialized representation of the value stored at a key.";
    echo in connection, 2, ["loading" "stale" "fast"], NO_KEYS, "connection",
        "Returns the given string.";
    eval in scripts, -3, ["noscript" "stale" "movablekeys" "no_multi"], KeySpec::Numkeys(2) => [RW], "scripting",
        "Executes one of the known scripts of lock libraries.";
    evalsha in scripts, -3, ["noscript" "stale" "movablekeys" "no_multi"], KeySpec::Numkeys(2) => [RW], "scripting",
        "Executes one of the known scripts, given its SHA1 digest.";
    exec in transactions, 1, ["noscript" "loading" "stale"], NO_KEYS, "transactions",
        "Executes all commands in a transaction.";
    exists in keys, -2, ["readonly" "fast"], ALL_KEYS => [ANY], "generic",
        "Determines whether one or more keys exist.";
    expire in expiry, -3, ["write" "fast"], ONE_KEY => [W], "generic",
        "Sets the expiration time of a key in seconds.";
    expireat in expiry, -3, ["write" "fast"], ONE_KEY => [W], "generic",
        "Sets the expiration time of a key to a Unix timestamp.";
    expiretime in expiry, 2, ["readonly" "fast"], ONE_KEY, "generic",
        "Returns the expiration time of a key as a Unix timestamp.";
    farside in farside, -2, ["no_multi"], NO_KEYS, "server",
        "Tells what this gateway counts, which keys are used most and which locks are held, and reads keys in order.", {
            "help" 2 ["loading" "stale"];
            "hotkeys" -2 ["admin" "noscript" "loading" "stale"];
            "locks" -2 ["admin" "noscript" "loading" "stale"];
            "range" -4 ["readonly"];
            "stats" 2 ["admin" "noscript" "loading" "stale"];
        };
    flushall in keys, -1, ["write" "no_multi"], NO_KEYS, "server" = ["keyspace" "dangerous"],
        "Removes all keys from all databases.";
    flushdb in keys, -1, ["write" "no_multi"], NO_KEYS, "server" = ["keyspace" "dangerous"],
        "Removes all keys from the current database.";
    get in strings, 2, ["readonly" "fast"], ONE_KEY, "string",
        "Returns the string value of a key.";
    getbit in bits, 3, ["readonly" "fast"], ONE_KEY, "bitmap",
        "Returns a bit value by offset.";
    getdel in strings, 2, ["write" "fast"], ONE_KEY => [TAKE], "string",
        "Returns the string value of a key after deleting the key.";
    getex in expiry, -2, ["write" "fast"], ONE_KEY, "string",
        "Returns the string value of a key after setting its expiration time.";
    getrange in strings, 4, ["readonly"], ONE_KEY, "string",
        "Returns a substring of the string stored at a key.";
    getset in strings, 3, ["write" "denyoom" "fast"], ONE_KEY, "string",
        "Returns the previous string value of a key after setting it to a new value.";
    hdel in hashes, -3, ["write" "fast"], ONE_KEY => [DROP], "hash",
        "Deletes one or more fields and their values from a hash. Deletes the hash if no fields remain.";
    hello in connection, -1, ["noscript" "loading" "stale" "fast" "no_auth"], NO_KEYS, "connection",
        "Handshakes with the server.";
    hexists in hashes, 3, ["readonly" "fast"], ONE_KEY => [ANY], "hash",
        "Determines whether a field exists in a hash.";
    hexpire in field_expiry, -6, ["write" "denyoom" "fast"], ONE_KEY => [W], "hash",
        "Sets the expiration time of fields of a hash in seconds.";
    hexpireat in field_expiry, -6, ["write" "denyoom" "fast"], ONE_KEY => [W], "hash",
        "Sets the expiration time of fields of a hash to a Unix timestamp.";
    hexpiretime in field_expiry, -5, ["readonly" "fast"], ONE_KEY, "hash",
        "Returns the expiration time of fields of a hash as a Unix timestamp.";
    hget in hashes, 3, ["readonly" "fast"], ONE_KEY, "hash",
        "Returns the value of a field in a hash.";
    hgetall in hashes, 2, ["readonly"], ONE_KEY, "hash",
        "Returns all fields and values in a hash.";
    hincrby in hashes, 4, ["write" "denyoom" "fast"], ONE_KEY, "hash",
        "Increments the integer value of a field in a hash by a number. Uses 0 as initial value if the field doesn't exist.";
    hincrbyfloat in hashes, 4, ["write" "denyoom" "fast"], ONE_KEY, "hash",
        "Increments the number in a field by a decimal number. Uses 0 as initial value if the field doesn't exist.";
    hkeys in hashes, 2, ["readonly"], ONE_KEY, "hash",
        "Returns all fields in a hash.";
    hlen in hashes, 2, ["readonly" "fast"], ONE_KEY => [ANY], "hash",
        "Returns the number of fields in a hash.";
    hmget in hashes, -3, ["readonly" "fast"], ONE_KEY, "hash",
        "Returns the values of several fields in a hash.";
    hmset in hashes, -4, ["write" "denyoom" "fast"], ONE_KEY => [W], "hash",
        "Sets the values of multiple fields.";
    hpersist in field_expiry, -5, ["write" "fast"], ONE_KEY => [W], "hash",
        "Removes the expiration time of fields of a hash.";
    hpexpire in field_expiry, -6, ["write" "denyoom" "fast"], ONE_KEY => [W], "hash",
        "Sets the expiration time of fields of a hash in milliseconds.";
    hpexpireat in field_expiry, -6, ["write" "denyoom" "fast"], ONE_KEY => [W], "hash",
        "Sets the expiration time of fields of a hash to a Unix milliseconds timestamp.";
    hpexpiretime in field_expiry, -5, ["readonly" "fast"], ONE_KEY, "hash",
        "Returns the expiration time of fields of a hash as a Unix milliseconds timestamp.";
    hpttl in field_expiry, -5, ["readonly" "fast"], ONE_KEY, "hash",
        "Returns the expiration time in milliseconds of fields of a hash.";
    hrandfield in hashes, -2, ["readonly"], ONE_KEY, "hash",
        "Returns one or more random fields from a hash.";
    hscan in hashes, -3, ["readonly"], ONE_KEY, "hash",
        "Iterates over fields and values of a hash.";
    hset in hashes, -4, ["write" "denyoom" "fast"], ONE_KEY => [W], "hash",
        "Creates or modifies the value of a field in a hash.";
    hsetnx in hashes, 4, ["write" "denyoom" "fast"], ONE_KEY => [ADD], "hash",
        "Sets the value of a field in a hash only when the field doesn't exist.";
    hstrlen in hashes, 3, ["readonly" "fast"], ONE_KEY => [ANY], "hash",
        "Returns the length of the value of a field.";
    httl in field_expiry, -5, ["readonly" "fast"], ONE_KEY, "hash",
        "Returns the expiration time in seconds of fields of a hash.";
    hvals in hashes, 2, ["readonly"], ONE_KEY, "hash",
        "Returns all values in a hash.";
    incr in counters, 2, ["write" "denyoom" "fast"], ONE_KEY, "string",
        "Increments the integer value of a key by one. Uses 0 as initial value if the key doesn't exist.";
    incrby in counters, 3, ["write" "denyoom" "fast"], ONE_KEY, "string",
        "Increments the integer value of a key by a number. Uses 0 as initial value if the key doesn't exist.";
    incrbyfloat in counters, 3, ["write" "denyoom" "fast"], ONE_KEY, "string",
        "Increments the number of a key by a decimal number. Uses 0 as initial value if the key doesn't exist.";
    info in info, -1, ["loading" "stale"], NO_KEYS, "server" = ["dangerous"],
        "Returns information and statistics about the server.";
    keys in scan, 2, ["readonly" "no_multi"], NO_KEYS, "generic" = ["keyspace" "dangerous"],
        "Returns all key names that match a pattern.";
    latency in observe, -2, [], NO_KEYS, "server",
        "Returns no latency events: none are sampled.", {
            "doctor" 2 ["admin" "noscript" "loading" "stale"];
            "help" 2 ["loading" "stale"];
            "histogram" -2 ["admin" "noscript" "loading" "stale"];
            "history" 3 ["admin" "noscript" "loading" "stale"];
            "latest" 2 ["admin" "noscript" "loading" "stale"];
            "reset" -2 ["admin" "noscript" "loading" "stale"];
        };
    lcs in lcs, -3, ["readonly"], TWO_KEYS, "string",
        "Finds the longest common subsequence of two strings.";
    lindex in lists, 3, ["readonly"], ONE_KEY, "list",
        "Returns an element from a list by its index.";
    linsert in lists, 5, ["write" "denyoom"], ONE_KEY => [ADD], "list",
        "Inserts an element before or after another element in a list.";
    llen in lists, 2, ["readonly" "fast"], ONE_KEY => [ANY], "list",
        "Returns the length of a list.";
    lmove in lists, 5, ["write" "denyoom"], TWO_KEYS => [TAKE ADD], "list",
        "Returns an element after popping it from one list and pushing it to another.";
    lmpop in lists, -4, ["write" "movablekeys"], KeySpec::Numkeys(1) => [TAKE], "list",
        "Returns multiple elements from a list after removing them. Deletes the list if the last element was popped.";
    lpop in lists, -2, ["write" "fast"], ONE_KEY => [TAKE], "list",
        "Returns the first elements in a list after removing it. Deletes the list if the last element was popped.";
    lpos in lists, -3, ["readonly"], ONE_KEY, "list",
        "Returns the index of matching elements in a list.";
    lpush in lists, -3, ["write" "denyoom" "fast"], ONE_KEY => [ADD], "list",
        "Prepends one or more elements to a list. Creates the key if it doesn't exist.";
    lpushx in lists, -3, ["write" "denyoom" "fast"], ONE_KEY => [ADD], "list",
        "Prepends one or more elements to a list only when the list exists.";
    lrange in lists, 4, ["readonly"], ONE_KEY, "list",
        "Returns a range of elements from a list.";
    lrem in lists, 4, ["write"], ONE_KEY => [DROP], "list",
        "Removes elements from a list. Deletes the list if the last element was removed.";
    lset in lists, 4, ["write" "denyoom"], ONE_KEY => [W], "list",
        "Sets the value of an element in a list by its index.";
    ltrim in lists, 4, ["write"], ONE_KEY => [DROP], "list",
        "Removes elements from both ends a list. Deletes the list if all elements were trimmed.";
    memory in object, -2, [], NO_KEYS, "server",
        "Tells how much memory a key and the store take.", {
            "doctor" 2 [];
            "help" 2 ["loading" "stale"];
            "malloc-stats" 2 [];
            "purge" 2 [];
            "stats" 2 [];
            "usage" -3 ["readonly"] at SECOND;
        };
    mget in strings, -2, ["readonly" "fast"], ALL_KEYS, "string",
        "Returns the string values of one or more keys; each is read for itself.";
    module in server, -2, [], NO_KEYS, "server",
        "Lists no modules: there are none.", {
            "help" 2 ["loading" "stale"];
            "list" 2 ["admin" "noscript"];
        };
    monitor in clients, 1, ["admin" "noscript" "loading" "stale"], NO_KEYS, "server",
        "Shows every command of every client, if CONFIG SET enable-monitor-command allows it.";
    mset in strings, -3, ["write" "denyoom"], PAIRS => [PUT], "string",
        "Sets the string values of one or more keys; each is set for itself.";
    msetnx in strings, -3, ["write" "denyoom"], PAIRS => [NEW], "string",
        "Sets the string values of one or more keys only when none of them exists.";
    multi in transactions, 1, ["noscript" "loading" "stale" "fast"], NO_KEYS, "transactions",
        "Starts a transaction.";
    object in object, -2, [], NO_KEYS, "generic",
        "Describes how a value is stored.", {
            "encoding" 3 ["readonly"] at SECOND;
            "freq" 3 ["readonly"] at SECOND;
            "help" 2 ["loading" "stale"];
            "idletime" 3 ["readonly"] at SECOND;
            "refcount" 3 ["readonly"] at SECOND;
        };
    persist in expiry, 2, ["write" "fast"], ONE_KEY => [W], "generic",
        "Removes the expiration time of a key.";
    pexpire in expiry, -3, ["write" "fast"], ONE_KEY => [W], "generic",
        "Sets the expiration time of a key in milliseconds.";
    pexpireat in expiry, -3, ["write" "fast"], ONE_KEY => [W], "generic",
        "Sets the expiration time of a key to a Unix milliseconds timestamp.";
    pexpiretime in expiry, 2, ["readonly" "fast"], ONE_KEY, "generic",
        "Returns the expiration time of a key as a Unix milliseconds timestamp.";
    pfadd in hyperloglog, -2, ["write" "denyoom" "fast"], ONE_KEY => [ADD], "hyperloglog",
        "Adds elements to a HyperLogLog key. Creates the key if it doesn't exist.";
    pfcount in hyperloglog, -2, ["readonly"], ALL_KEYS => [COUNT], "hyperloglog",
        "Returns the approximated number of different elements of one or more HyperLogLog keys together.";
    pfdebug in hyperloglog, 3, ["write" "denyoom" "admin"], SECOND => [COUNT], "hyperloglog",
        "Shows the encoding and the registers of a HyperLogLog value, for tests.";
    pfmerge in hyperloglog, -2, ["write" "denyoom"], ALL_KEYS => [MERGE R], "hyperloglog",
        "Merges one or more HyperLogLog values into a single key.";
    ping in connection, -1, ["fast"], NO_KEYS, "connection",
        "Returns the server's liveliness response.";
    psetex in set, 4, ["write" "denyoom"], ONE_KEY => [PUT], "string",
        "Sets both string value and expiration time in milliseconds of a key. The key is created if it doesn't exist.";
    pttl in expiry, 2, ["readonly" "fast"], ONE_KEY, "generic",
        "Returns the expiration time in milliseconds of a key.";
    quit in connection, -1, ["noscript" "loading" "stale" "fast" "no_auth"], NO_KEYS, "connection",
        "Closes the connection.";
    randomkey in scan, 1, ["readonly" "no_multi"], NO_KEYS, "generic",
        "Returns a random key name from the database.";
    rename in transfer, 3, ["write"], TWO_KEYS => [TAKE PUT], "generic",
        "Renames a key and overwrites the destination.";
    renamenx in transfer, 3, ["write" "fast"], TWO_KEYS => [TAKE NEW], "generic",
        "Renames a key only when the destination doesn't exist.";
    reset in clients, 1, ["noscript" "loading" "stale" "fast" "no_auth"], NO_KEYS, "connection",
        "Resets the connection.";
    restore in dump, -4, ["write" "denyoom"], ONE_KEY => [PUT], "generic" = ["keyspace" "dangerous"],
        "Creates a key from the serialized representation of a value.";
    rpop in lists, -2, ["write" "fast"], ONE_KEY => [TAKE], "list",
        "Returns and removes the last elements of a list. Deletes the list if the last element was popped.";
    rpoplpush in lists, 3, ["write" "denyoom"], TWO_KEYS => [TAKE ADD], "list",
        "Returns the last element of a list after removing and pushing it to another list.";
    rpush in lists, -3, ["write" "denyoom" "fast"], ONE_KEY => [ADD], "list",
        "Appends one or more elements to a list. Creates the key if it doesn't exist.";
    rpushx in lists, -3, ["write" "denyoom" "fast"], ONE_KEY => [ADD], "list",
        "Appends one or more elements to a list only when the list exists.";
    sadd in sets, -3, ["write" "denyoom" "fast"], ONE_KEY => [ADD], "set",
        "Adds one or more members to a set. Creates the key if it doesn't exist.";
    scan in scan, -2, ["readonly" "no_multi"], NO_KEYS, "generic",
        "Iterates over the key names in the database.";
    scard in sets, 2, ["readonly" "fast"], ONE_KEY => [ANY], "set",
        "Returns the number of members in a set.";
    script in scripts, -2, [], NO_KEYS, "scripting",
        "Loads, looks for and forgets scripts.", {
            "exists" -3 ["noscript"];
            "flush" -2 ["noscript"];
            "help" 2 ["loading" "stale"];
            "kill" 2 ["noscript"];
            "load" 3 ["noscript" "stale"];
        };
    sdiff in set_algebra, -2, ["readonly"], ALL_KEYS, "set",
        "Returns the difference of multiple sets.";
    sdiffstore in set_algebra, -3, ["write" "denyoom"], ALL_KEYS => [PUT R], "set",
        "Stores the difference of multiple sets in a key.";
    select in server, 2, ["loading" "stale" "fast"], NO_KEYS, "connection",
        "Changes the selected database; there is one.";
    set in set, -3, ["write" "denyoom"], ONE_KEY => [PUT], "string",
        "Sets the string value of a key, ignoring its type. The key is created if it doesn't exist.";
    setbit in bits, 4, ["write" "denyoom"], ONE_KEY, "bitmap",
        "Sets or clears the bit at offset of the string value. Creates the key if it doesn't exist.";
    setex in set, 4, ["write" "denyoom"], ONE_KEY => [PUT], "string",
        "Sets the string value and expiration time of a key. Creates the key if it doesn't exist.";
    setnx in strings, 3, ["write" "denyoom" "fast"], ONE_KEY => [NEW], "string",
        "Sets the string value of a key only when the key doesn't exist.";
    setrange in strings, 4, ["write" "denyoom"], ONE_KEY => [W], "string",
        "Overwrites a part of a string value with another by an offset. Creates the key if it doesn't exist.";
    sinter in set_algebra, -2, ["readonly"], ALL_KEYS, "set",
        "Returns the intersect of multiple sets.";
    sintercard in set_algebra, -3, ["readonly" "movablekeys"], KeySpec::Numkeys(1), "set",
        "Returns the number of members of the intersect of multiple sets.";
    sinterstore in set_algebra, -3, ["write" "denyoom"], ALL_KEYS => [W R], "set",
        "Stores the intersect of multiple sets in a key.";
    sismember in sets, 3, ["readonly" "fast"], ONE_KEY => [ANY], "set",
        "Determines whether a member belongs to a set.";
    slowlog in observe, -2, [], NO_KEYS, "server",
        "Returns the commands that took long.", {
            "get" -2 ["admin" "loading" "stale"];
            "help" 2 ["loading" "stale"];
            "len" 2 ["admin" "loading" "stale"];
            "reset" 2 ["admin" "loading" "stale"];
        };
    smembers in sets, 2, ["readonly"], ONE_KEY, "set",
        "Returns all members of a set.";
    smismember in sets, -3, ["readonly" "fast"], ONE_KEY, "set",
        "Determines whether multiple members belong to a set.";
    smove in sets, 4, ["write" "fast"], TWO_KEYS => [TAKE ADD], "set",
        "Moves a member from one set to another.";
    spop in sets, -2, ["write" "fast"], ONE_KEY => [TAKE], "set",
        "Returns one or more random members from a set after removing them. Deletes the set if the last member was popped.";
    srandmember in sets, -2, ["readonly"], ONE_KEY, "set",
        "Returns one or more random members from a set.";
    srem in sets, -3, ["write" "fast"], ONE_KEY => [DROP], "set",
        "Removes one or more members from a set. Deletes the set if the last member was removed.";
    sscan in sets, -3, ["readonly"], ONE_KEY, "set",
        "Iterates over members of a set.";
    strlen in strings, 2, ["readonly" "fast"], ONE_KEY => [ANY], "string",
        "Returns the length of a string value.";
    substr in strings, 4, ["readonly"], ONE_KEY, "string",
        "Returns a substring from a string value.";
    sunion in set_algebra, -2, ["readonly"], ALL_KEYS, "set",
        "Returns the union of multiple sets.";
    sunionstore in set_algebra, -3, ["write" "denyoom"], ALL_KEYS => [PUT R], "set",
        "Stores the union of multiple sets in a key.";
    time in server, 1, ["loading" "stale" "fast"], NO_KEYS, "server",
        "Returns the server time.";
    touch in keys, -2, ["readonly" "fast"], ALL_KEYS => [ANY], "generic",
        "Returns the number of existing keys out of those specified.";
    ttl in expiry, 2, ["readonly" "fast"], ONE_KEY, "generic",
        "Returns the expiration time in seconds of a key.";
    r#type in keys, 2, ["readonly" "fast"], ONE_KEY => [ANY], "generic",
        "Determines the type of value stored at a key.";
    unlink in keys, -2, ["write" "fast"], ALL_KEYS => [RM], "generic",
        "Deletes one or more keys.";
    unwatch in transactions, 1, ["noscript" "loading" "stale" "fast"], NO_KEYS, "transactions",
        "Forgets about watched keys of a transaction.";
    wait in server, 3, ["noscript"], NO_KEYS, "generic" = ["connection"],
        "Returns 0: there are no replicas.";
    watch in transactions, -2, ["noscript" "loading" "stale" "fast"], ALL_KEYS => [ANY], "transactions",
        "Monitors changes to keys to determine the execution of a transaction.";
    zadd in sorted_sets, -4, ["write" "denyoom" "fast"], ONE_KEY => [W], "sorted-set",
        "Adds one or more members to a sorted set, or updates their scores. Creates the key if it doesn't exist.";
    zcard in sorted_sets, 2, ["readonly" "fast"], ONE_KEY => [ANY], "sorted-set",
        "Returns the number of members in a sorted set.";
    zcount in ranges, 4, ["readonly" "fast"], ONE_KEY, "sorted-set",
        "Returns the count of members in a sorted set that have scores within a range.";
    zdiff in unions, -3, ["readonly" "movablekeys"], KeySpec::Numkeys(1), "sorted-set",
        "Returns the difference between multiple sorted sets.";
    zdiffstore in unions, -4, ["write" "denyoom" "movablekeys"], KeySpec::OneAndNumkeys(2) => [PUT R], "sorted-set",
        "Stores the difference of multiple sorted sets in a key.";
    zincrby in sorted_sets, 4, ["write" "denyoom" "fast"], ONE_KEY, "sorted-set",
        "Increments the score of a member in a sorted set.";
    zinter in unions, -3, ["readonly" "movablekeys"], KeySpec::Numkeys(1), "sorted-set",
        "Returns the intersect of multiple sorted sets.";
    zintercard in unions, -3, ["readonly" "movablekeys"], KeySpec::Numkeys(1), "sorted-set",
        "Returns the number of members of the intersect of multiple sorted sets.";
    zinterstore in unions, -4, ["write" "denyoom" "movablekeys"], KeySpec::OneAndNumkeys(2) => [PUT R], "sorted-set",
        "Stores the intersect of multiple sorted sets in a key.";
    zlexcount in ranges, 4, ["readonly" "fast"], ONE_KEY, "sorted-set",
        "Returns the number of members in a sorted set within a lexicographical range.";
    zmpop in sorted_sets, -4, ["write" "movablekeys"], KeySpec::Numkeys(1) => [TAKE], "sorted-set",
        "Returns the highest- or lowest-scoring members from one or more sorted sets after removing them.";
    zmscore in sorted_sets, -3, ["readonly" "fast"], ONE_KEY, "sorted-set",
        "Returns the score of one or more members in a sorted set.";
    zpopmax in sorted_sets, -2, ["write" "fast"], ONE_KEY => [TAKE], "sorted-set",
        "Returns the highest-scoring members from a sorted set after removing them.";
    zpopmin in sorted_sets, -2, ["write" "fast"], ONE_KEY => [TAKE], "sorted-set",
        "Returns the lowest-scoring members from a sorted set after removing them.";
    zrandmember in sorted_sets, -2, ["readonly"], ONE_KEY, "sorted-set",
        "Returns one or more random members from a sorted set.";
    zrange in ranges, -4, ["readonly"], ONE_KEY, "sorted-set",
        "Returns members in a sorted set within a range of indexes.";
    zrangebylex in ranges, -4, ["readonly"], ONE_KEY, "sorted-set",
        "Returns members in a sorted set within a lexicographical range.";
    zrangebyscore in ranges, -4, ["readonly"], ONE_KEY, "sorted-set",
        "Returns members in a sorted set within a range of scores.";
    zrangestore in ranges, -5, ["write" "denyoom"], TWO_KEYS => [PUT R], "sorted-set",
        "Stores a range of members from sorted set in a key.";
    zrank in sorted_sets, -3, ["readonly" "fast"], ONE_KEY, "sorted-set",
        "Returns the index of a member in a sorted set ordered by ascending scores.";
    zrem in sorted_sets, -3, ["write" "fast"], ONE_KEY => [DROP], "sorted-set",
        "Removes one or more members from a sorted set. Deletes the sorted set if all members were removed.";
    zremrangebylex in ranges, 4, ["write"], ONE_KEY => [DROP], "sorted-set",
        "Removes members in a sorted set within a lexicographical range.";
    zremrangebyrank in ranges, 4, ["write"], ONE_KEY => [DROP], "sorted-set",
        "Removes members in a sorted set within a range of indexes.";
    zremrangebyscore in ranges, 4, ["write"], ONE_KEY => [DROP], "sorted-set",
        "Removes members in a sorted set within a range of scores.";
    zrevrange in ranges, -4, ["readonly"], ONE_KEY, "sorted-set",
        "Returns members in a sorted set within a range of indexes in reverse order.";
    zrevrangebylex in ranges, -4, ["readonly"], ONE_KEY, "sorted-set",
        "Returns members in a sorted set within a lexicographical range in reverse order.";
    zrevrangebyscore in ranges, -4, ["readonly"], ONE_KEY, "sorted-set",
        "Returns members in a sorted set within a range of scores in reverse order.";
    zrevrank in sorted_sets, -3, ["readonly" "fast"], ONE_KEY, "sorted-set",
        "Returns the index of a member in a sorted set ordered by descending scores.";
    zscan in sorted_sets, -3, ["readonly"], ONE_KEY, "sorted-set",
        "Iterates over members and scores of a sorted set.";
    zscore in sorted_sets, 3, ["readonly" "fast"], ONE_KEY, "sorted-set",
        "Returns the score of a member in a sorted set.";
    zunion in unions, -3, ["readonly" "movablekeys"], KeySpec::Numkeys(1), "sorted-set",
        "Returns the union of multiple sorted sets.";
    zunionstore in unions, -4, ["write" "denyoom" "movablekeys"], KeySpec::OneAndNumkeys(2) => [PUT R], "sorted-set",
        "Stores the union of multiple sorted sets in a key.";
}

#[cfg(test)]
mod tests;
