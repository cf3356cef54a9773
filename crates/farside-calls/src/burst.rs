//! Commands through a gateway, sixteen at a time. The kernel's part is not counted, and the client does next to nothing.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use farside_fabric::tcp::NodeLocation;
use farside_gateway::{Gateway, GatewayOptions, Listener, LiveSettings};
use farside_kv::{Quota, StoreConfig};

use super::{KEYS, memory};

const BURST: u64 = 16;
const TICK_NS: u64 = 2_000_000_000;
const VALUE: &str = "a value of sixty-four bytes, as long as those of the other calls";

type Made<T> = Result<T, Box<dyn core::error::Error>>;

/// Makes so many bursts of a command; returns whether there is such a command here.
pub(super) fn make(command: &str, count: u64) -> Made<bool> {
    let (request, reply): (fn(u64) -> String, _) = match command {
        "get" => (get, format!("$64\r\n{VALUE}\r\n")),
        "set" => (set, "+OK\r\n".to_owned()),
        _ => return Ok(false),
    };
    let path = std::env::temp_dir().join(format!("farside-calls-{}", std::process::id()));
    let listener = UnixListener::bind(&path)?;
    let client = UnixStream::connect(&path);
    std::fs::remove_file(&path)?;
    // A count must not depend on how long it takes, so housekeeping nearly stands still here, too. It must not quite: who needs
    // a block waits for it.
    let mut store = StoreConfig::default();
    (store.pool.tick_ns, store.pool.lease_ns) = (TICK_NS, 100 * TICK_NS);
    let options = GatewayOptions {
        threads: 1,
        users: Arc::default(),
        secret: None,
        store,
        quota: Arc::new(Quota::default()),
        settings: LiveSettings::default(),
        settings_file: None,
    };
    let memory = NodeLocation::Mapped(memory()?);
    let gateway = Gateway::start(vec![Listener::Unix(listener)], &[memory], &options)?;
    let mut client = client?;
    // It is not waited for: who leaves sends home what it has retired, which is nothing that a command does.
    std::thread::spawn(|| gateway.serve(core::future::pending()));
    talk(&mut client, set, "+OK\r\n", KEYS / BURST)?;
    talk(&mut client, request, &reply, count)?;
    Ok(true)
}

fn get(number: u64) -> String {
    format!("*2\r\n$3\r\nGET\r\n$8\r\n{number:08}\r\n")
}

fn set(number: u64) -> String {
    format!("*3\r\n$3\r\nSET\r\n$8\r\n{number:08}\r\n$64\r\n{VALUE}\r\n")
}

/// Sends so many bursts of requests, and looks at the replies.
fn talk(client: &mut UnixStream, request: fn(u64) -> String, reply: &str, count: u64) -> io::Result<()> {
    // Made before, so that they are not counted.
    let bursts = (0..KEYS / BURST).map(|burst| (burst * BURST..(burst + 1) * BURST).map(request).collect());
    let bursts: Vec<String> = bursts.collect();
    let wanted = reply.repeat(BURST as usize);
    let mut replies = vec![0; wanted.len()];
    for burst in bursts.iter().cycle().take(count as usize) {
        client.write_all(burst.as_bytes())?;
        client.read_exact(&mut replies)?;
        assert!(replies == wanted.as_bytes(), "{}", String::from_utf8_lossy(&replies));
    }
    Ok(())
}
