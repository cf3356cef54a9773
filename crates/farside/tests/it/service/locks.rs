//! Locks as a service: the scripts of lock libraries, as raw commands.

use super::client::Client;
use super::commands::{NOT_AN_INTEGER, arity, check};
use super::process::Server;

const RELEASE: &str = "if redis.call(\"get\",KEYS[1]) == ARGV[1] then\n  return redis.call(\"del\",KEYS[1])\nelse\n  \
                       return 0\nend";
const EXTEND: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) \
                      else return 0 end -- longer";
const TOUCH_OR_SET: &str = "
    if redis.call(\"GET\", KEYS[1]) == ARGV[1] then
        return redis.call(\"PEXPIRE\", KEYS[1], ARGV[2])
    elseif redis.call(\"SET\", KEYS[1], ARGV[1], \"PX\", ARGV[2], \"NX\") then
        return 1
    else
        return 0
    end
";
const ACQUIRE_ALL: &str = "
  for i, key in ipairs(KEYS) do
    if redis.call(\"exists\", key) == 1 then
      return 0
    end
  end
  for i, key in ipairs(KEYS) do
    redis.call(\"set\", key, ARGV[1], \"PX\", ARGV[2])
  end
  return #KEYS
";
const RELEASE_ALL: &str = "
  local count = 0
  for i, key in ipairs(KEYS) do
    if redis.call(\"get\", key) == ARGV[1] then
      redis.pcall(\"del\", key)
      count = count + 1
    end
  end
  return count
";

fn eval(client: &mut Client, script: &str, rest: &str) -> String {
    let words = rest.split(' ').map(str::as_bytes);
    let arguments: Vec<&[u8]> = [&b"EVAL"[..], script.as_bytes()].into_iter().chain(words).collect();
    String::from_utf8_lossy(&client.call(&arguments)).into_owned()
}

#[test]
fn only_the_holder_releases_and_extends() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("SET lock mine NX PX 100000", "+OK\r\n"),
            ("SET lock other NX PX 100000", "$-1\r\n"),
        ],
    );
    assert_eq!(eval(&mut client, EXTEND, "1 lock other 500000"), ":0\r\n");
    assert_eq!(client.ask("TTL lock"), ":100\r\n");
    assert_eq!(eval(&mut client, EXTEND, "1 lock mine 500000"), ":1\r\n");
    assert_eq!(client.ask("TTL lock"), ":500\r\n");
    assert_eq!(eval(&mut client, RELEASE, "1 lock other"), ":0\r\n");
    assert_eq!(client.ask("GET lock"), "$4\r\nmine\r\n");
    assert_eq!(eval(&mut client, RELEASE, "1 lock mine"), ":1\r\n");
    assert_eq!(eval(&mut client, RELEASE, "1 lock mine"), ":0\r\n");
    assert_eq!(eval(&mut client, EXTEND, "1 lock mine 500000"), ":0\r\n");
    // What is no time is an error only for the holder, who comes as far as that.
    assert_eq!(eval(&mut client, EXTEND, "1 lock mine x"), ":0\r\n");
    assert_eq!(eval(&mut client, TOUCH_OR_SET, "1 lock mine 100000"), ":1\r\n");
    assert_eq!(eval(&mut client, TOUCH_OR_SET, "1 lock other 100000"), ":0\r\n");
    let refused = eval(&mut client, EXTEND, "1 lock mine x");
    assert!(
        refused.starts_with("-ERR value is not an integer or out of range script: "),
        "{refused}"
    );
    assert_eq!(eval(&mut client, EXTEND, "1 lock mine -1"), ":1\r\n");
    assert_eq!(client.ask("EXISTS lock"), ":0\r\n");
}

#[test]
fn a_lock_over_several_keys_is_whole_or_not_at_all() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    assert_eq!(eval(&mut client, ACQUIRE_ALL, "3 a b c one 100000"), ":3\r\n");
    assert_eq!(eval(&mut client, ACQUIRE_ALL, "3 x b z two 100000"), ":0\r\n");
    check(
        &mut client,
        &[
            ("EXISTS x z", ":0\r\n"),
            ("MGET a b", "*2\r\n$3\r\none\r\n$3\r\none\r\n"),
        ],
    );
    assert_eq!(eval(&mut client, RELEASE_ALL, "4 a b none c two"), ":0\r\n");
    assert_eq!(eval(&mut client, RELEASE_ALL, "4 a b none c one"), ":3\r\n");
    assert_eq!(client.ask("DBSIZE"), ":0\r\n");
}

/// Many clients, each of which holds two of three locks at a time: nobody meets another one inside.
#[test]
fn locks_exclude() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let inside = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (server, inside) = (&server, &inside);
            scope.spawn(move || {
                let mut client = server.client();
                for _ in 0..50 {
                    // Any two of three keys share one with any other two.
                    let (one, other) = [("a", "b"), ("b", "c"), ("c", "a"), ("a", "c")][number];
                    let lock = format!("2 {one} {other} token{number}");
                    while eval(&mut client, ACQUIRE_ALL, &format!("{lock} 600000")) != ":2\r\n" {}
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    assert_eq!(eval(&mut client, RELEASE_ALL, &lock), ":2\r\n");
                }
            });
        }
    });
}

#[test]
fn scripts_are_named_by_their_hash() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    check(
        &mut client,
        &[
            (
                &format!("EVALSHA {sha} 0"),
                "-NOSCRIPT No matching script. Please use EVAL.\r\n",
            ),
            ("EVALSHA x 0", "-NOSCRIPT No matching script. Please use EVAL.\r\n"),
            (&format!("SCRIPT EXISTS {sha} x"), "*2\r\n:0\r\n:0\r\n"),
        ],
    );
    let loaded = client.call(&[b"SCRIPT", b"LOAD", RELEASE.as_bytes()]);
    let loaded = String::from_utf8(loaded).expect("hex");
    let sha = loaded.strip_prefix("$40\r\n").expect("a hash").trim_end();
    check(
        &mut client,
        &[
            (
                &format!("SCRIPT EXISTS {sha} {}", sha.to_uppercase()),
                "*2\r\n:1\r\n:1\r\n",
            ),
            ("SET lock mine", "+OK\r\n"),
            (&format!("EVALSHA {sha} 1 lock other"), ":0\r\n"),
            (&format!("evalsha {} 1 lock mine", sha.to_uppercase()), ":1\r\n"),
            ("SCRIPT FLUSH ASYNC", "+OK\r\n"),
            (&format!("SCRIPT EXISTS {sha}"), "*1\r\n:0\r\n"),
            (
                &format!("EVALSHA {sha} 1 lock mine"),
                "-NOSCRIPT No matching script. Please use EVAL.\r\n",
            ),
        ],
    );
    assert_eq!(eval(&mut client, RELEASE, "1 lock mine"), ":0\r\n");
    assert_eq!(client.ask(&format!("SCRIPT EXISTS {sha}")), "*1\r\n:1\r\n");
}

#[test]
fn what_is_no_known_script_is_refused() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    for script in ["return 1", "", "if", &RELEASE.replace("del", "get")] {
        let refused = eval(&mut client, script, "1 lock mine");
        assert!(
            refused.starts_with("-ERR this script is not supported: "),
            "{script}: {refused}"
        );
    }
    let refused = eval(&mut client, RELEASE, "0");
    assert!(
        refused.starts_with("-ERR Lua redis lib command arguments must be"),
        "{refused}"
    );
    let refused = eval(&mut client, EXTEND, "1 lock");
    assert!(
        refused.starts_with("-ERR Lua redis lib command arguments must be"),
        "{refused}"
    );
    client.ask("SET lock mine");
    assert_eq!(eval(&mut client, RELEASE, "1 lock"), ":0\r\n");
    check(
        &mut client,
        &[
            ("EVAL x", &arity("eval")),
            ("EVAL x y", NOT_AN_INTEGER),
            ("EVAL x -1", "-ERR Number of keys can't be negative\r\n"),
            (
                "EVAL x 3 a",
                "-ERR Number of keys can't be greater than number of args\r\n",
            ),
            (
                "EVALSHA x 3 a",
                "-ERR Number of keys can't be greater than number of args\r\n",
            ),
            ("SCRIPT LOAD", &arity("script|load")),
            ("SCRIPT EXISTS", &arity("script|exists")),
            ("SCRIPT FLUSH x", "-ERR SCRIPT FLUSH only support SYNC|ASYNC option\r\n"),
            ("SCRIPT KILL", "-NOTBUSY No scripts in execution right now.\r\n"),
            ("SCRIPT x", "-ERR unknown subcommand 'x'. Try SCRIPT HELP.\r\n"),
        ],
    );
}
