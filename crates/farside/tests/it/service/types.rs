//! Every command on keys of every type: what it answers, and what is there afterwards, is what `redis-server` says.

use super::process::Server;
use super::redis::Redis;

/// How a key of each type is made, and how it is shown. In the order in which both keep elements.
const TYPES: [[&str; 2]; 6] = [
    ["DEL k", "EXISTS k"],
    ["SET k 12", "GET k"],
    ["RPUSH k 1 2 3", "LRANGE k 0 -1"],
    ["SADD k 1 2 3", "SMISMEMBER k 1 2 3 4 9"],
    ["ZADD k 1 a 2 b 3 1", "ZRANGE k 0 -1 WITHSCORES"],
    ["HSET k f 1 1 2", "HGETALL k"],
];

/// Commands that meet a key of any type; what they answer does not depend on chance. `o` is a key that is not there, `s`, `z`
/// and `l` are a set, a sorted set and a list.
const COMMANDS: &str = "
    GET k|SET k v|SET k v GET|SET k v NX|SET k v XX GET|SETNX k v|GETSET k v|GETDEL k|GETEX k PERSIST|APPEND k x|STRLEN k
    GETRANGE k 0 1|SETRANGE k 1 x|INCR k|INCRBYFLOAT k 1|MGET k o k|MSET k 1|MSETNX k 1 o 2|SETEX k 100 v|LCS k o
    SETBIT k 1 1|GETBIT k 1|BITCOUNT k|BITPOS k 1|BITOP NOT o k|BITOP AND k k o|BITFIELD k GET u8 0|BITFIELD_RO k GET u8 0
    PFADD k a|PFCOUNT k|PFMERGE o k|PFMERGE k o
    HSET k g 1|HSETNX k g 1|HGET k f|HMGET k f g|HDEL k f|HLEN k|HEXISTS k f|HSTRLEN k f|HKEYS k|HVALS k|HGETALL k
    HINCRBY k f 1|HINCRBYFLOAT k f 1|HSCAN k 0|HRANDFIELD k 0
    SADD k 7|SREM k 1|SISMEMBER k 1|SMISMEMBER k 1 9|SCARD k|SPOP k 0|SRANDMEMBER k 0|SSCAN k 0|SMOVE k o 1
    SMOVE s k 1|SMOVE k s 9|SINTERCARD 2 k s|SINTER s k|SDIFF o k|SINTERSTORE k s s|SUNIONSTORE o k|SDIFFSTORE k o o
    ZADD k 1 x|ZADD k INCR 1 a|ZINCRBY k 1 a|ZREM k a|ZSCORE k a|ZMSCORE k a c|ZCARD k|ZRANK k a|ZREVRANK k a|ZCOUNT k 0 5
    ZLEXCOUNT k - +|ZRANGE k 0 -1|ZRANGE k 0 5 BYSCORE|ZREVRANGE k 0 -1|ZRANGEBYSCORE k 0 5|ZRANGEBYLEX k - +
    ZPOPMIN k|ZPOPMAX k 2|ZREMRANGEBYRANK k 0 0|ZREMRANGEBYSCORE k 0 1|ZREMRANGEBYLEX k - +|ZSCAN k 0|ZRANDMEMBER k 0
    ZUNION 2 k z WITHSCORES|ZINTER 2 k z|ZDIFF 2 k z|ZINTERCARD 2 k z|ZUNIONSTORE k 1 z|ZUNIONSTORE o 2 k z|ZDIFFSTORE k 1 o
    ZRANGESTORE k z 0 -1|ZRANGESTORE o k 0 -1|ZMPOP 2 o k MIN
    LPUSH k x|RPUSH k x y|LPUSHX k x|RPUSHX k x|LPOP k|RPOP k 2|LLEN k|LINDEX k 0|LRANGE k 0 -1|LSET k 0 x|LINSERT k BEFORE 2 x
    LREM k 0 1|LPOS k 2|LTRIM k 1 1|LMOVE k o LEFT RIGHT|LMOVE l k LEFT RIGHT|RPOPLPUSH k k|LMPOP 2 o k LEFT
    TYPE k|EXISTS k|TOUCH k|DEL k|UNLINK k|EXPIRE k 100|EXPIREAT k 4102444800|EXPIREAT k 1|TTL k|PERSIST k|COPY k o|COPY s k REPLACE
    COPY s k|RENAME k o|RENAME s k|RENAMENX s k|RENAMENX k o
";

#[test]
fn every_command_meets_every_type() {
    let folder = tempfile::tempdir().expect("a folder");
    let (redis, server) = (Redis::start(folder.path()), Server::serve(&["--memory", "64MiB"]));
    let (mut theirs, mut ours) = (redis.client(), server.client());
    let (mut refused, mut wrong) = (0, Vec::new());
    for command in COMMANDS
        .split(['|', '\n'])
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        for [make, show] in TYPES {
            for multi in [false, true] {
                let mut lines = vec!["DEL k o s z l", "SADD s 1 9", "ZADD z 1 a 2 b", "RPUSH l x y", make];
                match multi {
                    true => lines.extend(["MULTI", command, "EXEC"]),
                    false => lines.push(command),
                }
                lines.extend([
                    show,
                    "TYPE k",
                    "TYPE o",
                    "TTL k",
                    "SCARD s",
                    "ZCARD z",
                    "LLEN l",
                    "EXISTS o s z l",
                ]);
                for line in lines {
                    let (expected, got) = (theirs.ask(line), ours.ask(line));
                    if got != expected {
                        wrong.push(format!(
                            "{line}, in: {make}; {command} (MULTI: {multi}): {got:?}, not {expected:?}"
                        ));
                    }
                    refused += u32::from(got.starts_with("-WRONGTYPE"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // As many as there are commands of one type, for most of the other four, and more.
    assert!(refused > 300, "{refused} were refused");
}
