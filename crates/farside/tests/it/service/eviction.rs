//! The limit of memory and the policies of eviction, as people meet them who come from Redis.

use std::process::Command;

use super::client::{Client, encode};
use super::observability::{metrics_of, sample, scrape};
use super::process::Server;

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";

/// A line of INFO as a number.
fn info(client: &mut Client, name: &str) -> u64 {
    let info = client.ask("INFO");
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = line.unwrap_or_else(|| panic!("{name} is not in {info}"));
    value.parse().expect("a number")
}

/// Stores keys `first..last` with values of so many bytes, and returns the replies that are no OK.
fn store(client: &mut Client, keys: core::ops::Range<u32>, bytes: usize) -> Vec<String> {
    let value = vec![b'v'; bytes];
    let mut refused = Vec::new();
    for start in keys.clone().step_by(64) {
        let burst = start..(start + 64).min(keys.end);
        let key = |number: u32| format!("key:{number}");
        let sent: Vec<u8> = burst
            .clone()
            .flat_map(|number| encode(&[b"SET", key(number).as_bytes(), &value]))
            .collect();
        client.send(&sent);
        for _ in burst {
            let reply = client.receive();
            if reply != b"+OK\r\n" {
                refused.push(String::from_utf8_lossy(&reply).into_owned());
            }
        }
    }
    refused
}

#[test]
fn memory_stays_at_its_limit_and_what_is_used_stays() {
    let server = Server::serve(&[
        "--memory",
        "64MiB",
        "--maxmemory",
        "8MiB",
        "--maxmemory-policy",
        "allkeys-lru",
        "--metrics",
        "127.0.0.1:0",
    ]);
    assert_eq!(server.line_with("when "), "when 8 MiB are in use: allkeys-lru");
    let mut client = server.client();
    // The two connections are served by different threads.
    let mut other = server.client();
    assert_eq!(client.ask("SET hot 1"), "+OK\r\n");
    for round in 0..40 {
        assert_eq!(store(&mut client, round * 2000..(round + 1) * 2000, 150), [""; 0]);
        assert_eq!(
            other.ask("GET hot"),
            "$1\r\n1\r\n",
            "round {round}: it was used just before"
        );
    }
    let limit = 8_u64 << 20;
    let used = info(&mut client, "used_memory");
    assert!(
        (limit * 90 / 100..limit * 102 / 100).contains(&used),
        "{used} bytes are in use"
    );
    assert!(info(&mut client, "used_memory_rss") > used);
    assert_eq!(info(&mut client, "maxmemory"), limit);
    assert_eq!(info(&mut client, "farside_memory_limit"), limit);
    let evicted = info(&mut client, "evicted_keys");
    let left = client.ask("DBSIZE");
    assert_eq!(
        left,
        format!(":{}\r\n", 80_001 - evicted),
        "each key is there or was evicted"
    );
    let text = scrape(metrics_of(&server));
    assert_eq!(sample(&text, "farside_evicted_keys_total"), evicted as f64);
    assert_eq!(sample(&text, "farside_memory_limit_bytes"), limit as f64);
    assert_eq!(sample(&text, "farside_eviction_info{policy=\"allkeys-lru\"}"), 1.0);
    assert!(sample(&text, "farside_pool_held_bytes") > limit as f64 * 0.9);
}

#[test]
fn limit_and_policy_change_while_it_runs() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    assert_eq!(info(&mut client, "maxmemory"), 64 << 20, "the memory itself");
    assert_eq!(store(&mut client, 0..10_000, 150), [""; 0]);
    let used = info(&mut client, "used_memory");
    // 16 bytes of header, the key, the value, in blocks of a multiple of 32 bytes; and the index.
    assert!((10_000 * 192..10_000 * 224).contains(&used), "{used} bytes are in use");
    assert_eq!(client.ask("PFADD seen x"), ":1\r\n");
    assert_eq!(client.ask("CONFIG SET maxmemory 1mb"), "+OK\r\n");
    for command in [
        "SET new 1",
        "APPEND key:1 x",
        "INCR counter",
        "MSET a 1 b 2",
        "SETRANGE key:1 0 x",
        "SETBIT key:1 0 1",
        "BITFIELD key:1 SET u8 0 1",
        "BITOP NOT new key:3",
        "PFADD log x",
        "PFMERGE log other",
    ] {
        assert_eq!(client.ask(command), OOM, "{command}");
    }
    // What needs none goes on.
    assert_eq!(client.ask("STRLEN key:1"), ":150\r\n");
    assert_eq!(client.ask("GETBIT key:1 2"), ":1\r\n");
    assert_eq!(client.ask("BITCOUNT none"), ":0\r\n");
    assert_eq!(client.ask("PFCOUNT seen"), ":1\r\n");
    assert_eq!(client.ask("EXPIRE key:1 100"), ":1\r\n");
    assert_eq!(client.ask("DEL key:2"), ":1\r\n");
    assert_eq!(info(&mut client, "evicted_keys"), 0);
    // Only one key may go; then it is an error again.
    assert_eq!(client.ask("CONFIG SET maxmemory-policy volatile-ttl"), "+OK\r\n");
    while info(&mut client, "evicted_keys") == 0 {
        client.ask("SET new 1");
    }
    let replies: Vec<String> = (0..3).map(|_| client.ask("SET new 1")).collect();
    assert_eq!(replies.last().map(String::as_str), Some(OOM));
    assert_eq!(info(&mut client, "evicted_keys"), 1);
    assert_eq!(client.ask("EXISTS key:1"), ":0\r\n");
    // All may go, and as many as are too many do, though nobody writes.
    assert_eq!(
        client.ask("CONFIG SET maxmemory-policy allkeys-random maxmemory-samples 10"),
        "+OK\r\n"
    );
    while info(&mut client, "used_memory") > 1 << 20 {
        std::thread::yield_now();
    }
    assert_eq!(client.ask("SET new 1"), "+OK\r\n");
    assert!(info(&mut client, "used_memory") > (1 << 20) * 85 / 100);
    assert_eq!(
        client.ask("CONFIG GET maxmemory*"),
        "*6\r\n$9\r\nmaxmemory\r\n$7\r\n1048576\r\n$16\r\nmaxmemory-policy\r\n$14\r\nallkeys-random\r\n\
         $17\r\nmaxmemory-samples\r\n$2\r\n10\r\n"
    );
    assert!(
        client
            .ask("INFO memory")
            .contains("maxmemory_human:1.00M\r\nmaxmemory_policy:allkeys-random\r\n")
    );
    assert_eq!(client.ask("CONFIG RESETSTAT"), "+OK\r\n");
    assert_eq!(info(&mut client, "evicted_keys"), 0);
    // No limit.
    assert_eq!(
        client.ask("CONFIG SET maxmemory 0 maxmemory-policy noeviction"),
        "+OK\r\n"
    );
    assert_eq!(store(&mut client, 0..10_000, 150), [""; 0]);
}

#[test]
fn full_memory_evicts_values_of_any_size() {
    for (policy, bytes) in [
        ("allkeys-lru", 100),
        ("allkeys-lfu", 10_000),
        ("allkeys-random", 300_000),
    ] {
        let server = Server::serve(&["--memory", "16MiB", "--maxmemory-policy", policy]);
        assert_eq!(server.line_with("when "), format!("when memory runs out: {policy}"));
        let mut client = server.client();
        let count = 3 * (16 << 20) / bytes as u32;
        assert_eq!(
            store(&mut client, 0..count, bytes),
            [""; 0],
            "{policy}: values of {bytes} bytes"
        );
        let (used, limit) = (
            info(&mut client, "used_memory"),
            info(&mut client, "farside_memory_limit"),
        );
        assert!(
            used <= limit && used > limit * 80 / 100,
            "{policy}: {used} of {limit} bytes are in use"
        );
        assert!(info(&mut client, "evicted_keys") > u64::from(count) / 3);
    }
}

#[test]
fn object_tells_what_the_policy_knows() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    client.ask("SET key value");
    let not_recency = "-ERR An LRU maxmemory policy is not selected, idle time not tracked.\r\n";
    let not_frequency = "-ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
                         switching between policies at runtime LRU and LFU data will take some time to adjust.\r\n";
    assert_eq!(client.ask("OBJECT IDLETIME key"), not_recency);
    assert_eq!(client.ask("OBJECT FREQ key"), not_frequency);
    assert_eq!(client.ask("CONFIG SET maxmemory-policy allkeys-lru"), "+OK\r\n");
    assert_eq!(client.ask("TOUCH key none"), ":1\r\n");
    let idle = client.ask("OBJECT IDLETIME key");
    assert!(idle.starts_with(':'), "{idle}");
    assert_eq!(client.ask("OBJECT FREQ key"), not_frequency);
    assert_eq!(client.ask("CONFIG SET maxmemory-policy volatile-lfu"), "+OK\r\n");
    assert_eq!(client.ask("OBJECT FREQ key"), ":0\r\n");
    client.ask("GET key");
    assert_eq!(client.ask("OBJECT FREQ key"), ":5\r\n");
    (0..200).for_each(|_| drop(client.ask("GET key")));
    let count = client.ask("OBJECT FREQ key");
    let count: u64 = count.trim_start_matches(':').trim_end().parse().expect("a number");
    assert!((7..=30).contains(&count), "{count}");
    assert!(
        client
            .ask("OBJECT IDLETIME key")
            .starts_with("-ERR An LFU maxmemory policy is selected")
    );
    assert_eq!(client.ask("OBJECT FREQ none"), "$-1\r\n");
}

#[test]
fn redis_cli_is_told_what_would_be_right() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let port = server.address.port().to_string();
    let cli = |arguments: &[&str]| {
        let output = Command::new("redis-cli").args(["-p", &port]).args(arguments).output();
        let output = output.expect("redis-cli is installed (./test does that)");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    for (value, expected) in [
        ("100mb", "104857600"),
        ("1gb", "1073741824"),
        ("500k", "500000"),
        ("0", "67108864"),
    ] {
        assert_eq!(cli(&["CONFIG", "SET", "maxmemory", value]), "OK");
        assert_eq!(cli(&["CONFIG", "GET", "maxmemory"]), format!("maxmemory\n{expected}"));
    }
    for (name, value, why) in [
        ("maxmemory", "lots", "argument must be a memory value"),
        ("maxmemory", "-1", "argument must be a memory value"),
        (
            "maxmemory-policy",
            "lru",
            "argument(s) must be one of the following: volatile-lru, volatile-lfu, volatile-random, volatile-ttl, \
             allkeys-lru, allkeys-lfu, allkeys-random, noeviction",
        ),
        ("maxmemory-samples", "0", "argument must be between 1 and 64 inclusive"),
        (
            "maxmemory-samples",
            "many",
            "argument couldn't be parsed into an integer",
        ),
    ] {
        let expected = format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}");
        assert_eq!(cli(&["CONFIG", "SET", name, value]), expected);
    }
    // All or none of them.
    cli(&["CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "lru"]);
    assert_eq!(cli(&["CONFIG", "GET", "maxmemory"]), "maxmemory\n67108864");
    assert_eq!(cli(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    assert_eq!(
        cli(&["SET", "key", "value"]),
        "OOM command not allowed when used memory > 'maxmemory'."
    );
}
