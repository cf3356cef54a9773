//! The scripts that are known, and what each does. A new one is an entry of [`SCRIPTS`].
//!
//! On the path: EVAL looks a script up here. No Lua is run: an entry says in our own terms what the
//! script does with the value of its key, and the session does that atomically.

use std::sync::OnceLock;

use super::normal;

/// The longest script that is compared; the known ones are far shorter.
const SCRIPT_BYTES_MAX: usize = 4096;

/// What a script answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Number(i64),
    Nil,
    Ok,
    /// An error line.
    Error(&'static str),
}

/// What a script does in one case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Nothing; it answers.
    Answer(Answer),
    /// DEL: it answers 1.
    Delete,
    /// PEXPIRE, with the milliseconds of an argument: it answers 1.
    Expire,
    /// The same; the time that is left is added if the third argument is "0". Without a time to live, it answers 0.
    ExpireOrAdd,
    /// SET with the first argument and PX: it answers this.
    Set(Answer),
    /// PTTL.
    LeftMs,
    /// PTTL, 0 if the key does not expire.
    LeftMsOrZero,
    /// TTL.
    LeftS,
}

/// How the value of the key is held against the first argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compare {
    Whole,
    /// Only as many bytes as the second argument says.
    Prefix,
}

/// What a script does with its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Script {
    /// One key.
    One(One),
    /// SET with PX of all keys, of which none may be there: it answers how many there are, or 0.
    AcquireAll,
    /// The same if all are there with the first argument as their value.
    ExtendAll,
    /// DEL of those that have the first argument as their value: it answers how many.
    ReleaseAll,
}

/// What a script does with one key, by what is stored there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct One {
    pub(crate) absent: Step,
    /// The value is the first argument.
    pub(crate) equal: Step,
    pub(crate) different: Step,
    pub(crate) compare: Compare,
    /// Which argument has the milliseconds, from 0; all before it must be given.
    pub(crate) ms_at: usize,
}

/// A script that holds the whole value against the first argument, and has milliseconds, if any, in the second.
const fn one_key(absent: Step, equal: Step, different: Step) -> Script {
    Script::One(One {
        absent,
        equal,
        different,
        compare: Compare::Whole,
        ms_at: 1,
    })
}

const ZERO: Step = Step::Answer(Answer::Number(0));
const NIL: Step = Step::Answer(Answer::Nil);
const ERROR: Step = Step::Answer(Answer::Error("ERROR"));

/// Every known script: whose it is, its text in any writing, what it does.
pub(super) const SCRIPTS: &[(&str, &str, Script)] = &[
    (
        "the release of the Redlock description; redlock-py, pottery, redislock, go-redsync up to 4.6, node-redlock 3",
        r#"if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end"#,
        one_key(ZERO, Step::Delete, ZERO),
    ),
    (
        "the same without an else",
        r#"if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end"#,
        one_key(NIL, Step::Delete, NIL),
    ),
    (
        "the extension by the same; go-redsync, pottery, redislock, node-redlock 3",
        r#"if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2])
           else return 0 end"#,
        one_key(ZERO, Step::Expire, ZERO),
    ),
    (
        "redis-py: release",
        r#"local token = redis.call("get", KEYS[1])
           if not token or token ~= ARGV[1] then return 0 end
           redis.call("del", KEYS[1])
           return 1"#,
        one_key(ZERO, Step::Delete, ZERO),
    ),
    (
        "redis-py: extend",
        r#"local token = redis.call("get", KEYS[1])
           if not token or token ~= ARGV[1] then return 0 end
           local expiration = redis.call("pttl", KEYS[1])
           if not expiration then expiration = 0 end
           if expiration < 0 then return 0 end
           local newttl = ARGV[2]
           if ARGV[3] == "0" then newttl = ARGV[2] + expiration end
           redis.call("pexpire", KEYS[1], newttl)
           return 1"#,
        one_key(ZERO, Step::ExpireOrAdd, ZERO),
    ),
    (
        "redis-py: reacquire",
        r#"local token = redis.call("get", KEYS[1])
           if not token or token ~= ARGV[1] then return 0 end
           redis.call("pexpire", KEYS[1], ARGV[2])
           return 1"#,
        one_key(ZERO, Step::Expire, ZERO),
    ),
    (
        "go-redsync from 4.7 on: release",
        r#"local val = redis.call("GET", KEYS[1])
           if val == ARGV[1] then return redis.call("DEL", KEYS[1])
           elseif val == false then return -1
           else return 0 end"#,
        one_key(Step::Answer(Answer::Number(-1)), Step::Delete, ZERO),
    ),
    (
        "go-redsync: extension that acquires",
        r#"if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("PEXPIRE", KEYS[1], ARGV[2])
           elseif redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2], "NX") then return 1
           else return 0 end"#,
        one_key(Step::Set(Answer::Number(1)), Step::Expire, ZERO),
    ),
    (
        "node-redlock 4 and 5: acquire",
        r#"for i, key in ipairs(KEYS) do if redis.call("exists", key) == 1 then return 0 end end
           for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end
           return #KEYS"#,
        Script::AcquireAll,
    ),
    (
        "node-redlock 4 and 5: extend",
        r#"for i, key in ipairs(KEYS) do if redis.call("get", key) ~= ARGV[1] then return 0 end end
           for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end
           return #KEYS"#,
        Script::ExtendAll,
    ),
    (
        "node-redlock 4 and 5: release",
        r#"local count = 0
           for i, key in ipairs(KEYS) do
             if redis.call("get", key) == ARGV[1] then redis.pcall("del", key) count = count + 1 end
           end
           return count"#,
        Script::ReleaseAll,
    ),
    (
        "pottery: time that is left",
        r#"if redis.call("get", KEYS[1]) == ARGV[1] then
             local pttl = redis.call("pttl", KEYS[1])
             return (pttl > 0) and pttl or 0
           else return 0 end"#,
        one_key(ZERO, Step::LeftMsOrZero, ZERO),
    ),
    (
        "redislock: time that is left",
        r#"if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pttl", KEYS[1]) else return -3 end"#,
        one_key(
            Step::Answer(Answer::Number(-3)),
            Step::LeftMs,
            Step::Answer(Answer::Number(-3)),
        ),
    ),
    (
        "redislock: obtain",
        r#"if redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[3]) then return redis.status_reply("OK") end
           local offset = tonumber(ARGV[2])
           if redis.call("getrange", KEYS[1], 0, offset-1) == string.sub(ARGV[1], 1, offset) then
             return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[3])
           end"#,
        Script::One(One {
            absent: Step::Set(Answer::Ok),
            equal: Step::Set(Answer::Ok),
            different: NIL,
            compare: Compare::Prefix,
            ms_at: 2,
        }),
    ),
    (
        "aioredlock: set",
        r#"local identifier = redis.call("get", KEYS[1])
           if not identifier or identifier == ARGV[1] then return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])
           else return redis.error_reply("ERROR") end"#,
        one_key(Step::Set(Answer::Ok), Step::Set(Answer::Ok), ERROR),
    ),
    (
        "aioredlock: unset",
        r#"local identifier = redis.call("get", KEYS[1])
           if not identifier then return redis.status_reply("OK")
           elseif identifier == ARGV[1] then return redis.call("del", KEYS[1])
           else return redis.error_reply("ERROR") end"#,
        one_key(Step::Answer(Answer::Ok), Step::Delete, ERROR),
    ),
    (
        "aioredlock: time that is left",
        r#"local identifier = redis.call("get", KEYS[1])
           if not identifier then return redis.error_reply("ERROR")
           elseif identifier == ARGV[1] then return redis.call("TTL", KEYS[1])
           else return redis.error_reply("ERROR") end"#,
        one_key(ERROR, Step::LeftS, ERROR),
    ),
];

/// The known script with this text, whatever the writing.
pub(super) fn find(text: &[u8]) -> Option<Script> {
    static FORMS: OnceLock<Vec<(String, Script)>> = OnceLock::new();
    let forms = FORMS.get_or_init(|| {
        let form = |text: &str| normal::form(text.as_bytes()).expect("a known script has a normal form");
        SCRIPTS.iter().map(|(_, text, script)| (form(text), *script)).collect()
    });
    if text.len() > SCRIPT_BYTES_MAX {
        return None;
    }
    let wanted = normal::form(text)?;
    forms
        .iter()
        .find(|(form, _)| *form == wanted)
        .map(|(_, script)| *script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_script_is_found_and_no_two_are_the_same() {
        for (whose, text, script) in SCRIPTS {
            assert_eq!(find(text.as_bytes()), Some(*script), "{whose}");
        }
    }

    #[test]
    fn other_scripts_are_not() {
        for text in ["", "return 1", "return redis.call('get', KEYS[1])"] {
            assert_eq!(find(text.as_bytes()), None, "{text}");
        }
        let release = SCRIPTS[0].1;
        assert_eq!(find(release.replace("del", "get").as_bytes()), None);
        assert_eq!(find(release.replace("ARGV[1]", "ARGV[2]").as_bytes()), None);
        assert_eq!(find(release.replace("==", "~=").as_bytes()), None);
        assert_eq!(
            find(format!("{release}{}", " ".repeat(5000)).as_bytes()),
            None,
            "too long"
        );
    }
}
