//! Whether all went well: the history, what is stored at the end, and what the structures look like.
//!
//! On the path: the last step of a run, when no worker is left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use farside_fabric::host::HostClock;
use farside_fabric::{Endpoint, OpContext};
use farside_index::IndexKind;
use farside_kv::stack;
use farside_kv::{KvError, PoolSpec, Store};
use farside_pool::account;
use farside_sim::checkers::linearizability;
use farside_sim::history::{Answer, Call, Operation};
use farside_sync::Scheme;

use super::folder::Folder;
use super::log::{self, History, Writer};
use super::value::{key_bytes, number_of};
use super::worker::{KEYS, POOL, config, generation};

/// How many faults and operations are printed; the folder has them all.
const LINES_MAX: usize = 40;

/// Reads every key after what the dead held has been taken over, into a log. Returns how many keys are stored.
pub(crate) fn read_everything(pool: &str, made_of: (IndexKind, Scheme), start_ns: u64, log: &Path) -> u64 {
    let spec: PoolSpec = pool.parse().expect("it is a list of nodes");
    let task = ReadEverything {
        log: Writer::create(log),
        made_of,
        start_ns,
    };
    let read = stack::run(spec.locate().expect("they are there"), None, async |endpoint| {
        Box::pin(task.run(endpoint)).await
    });
    read.expect("all nodes are back")
        .expect("the store works when nothing happens")
}

struct ReadEverything {
    log: Writer,
    made_of: (IndexKind, Scheme),
    start_ns: u64,
}

impl ReadEverything {
    async fn run(mut self, endpoint: Endpoint) -> Result<u64, KvError> {
        let store = Store::open(endpoint, config(self.made_of)).await?;
        // A dead client is noticed when its lease has run out; then what it held is searched for.
        let mut cx = OpContext::new(store.endpoint().clone());
        let patience = store.endpoint().deadline_in(60_000_000_000);
        loop {
            let table = account(&mut cx, store.pool().geometry(), &[]).await?;
            if table.clients_live + table.clients_dead == 1 && !store.pool().needs_recovery() {
                break;
            }
            assert!(
                store.endpoint().now_ns() < patience.0,
                "waited for a minute, and the dead are not taken over"
            );
            store.endpoint().sleep(POOL.lease_ns / 10).await;
        }
        let mut session = store.session();
        let mut count = 0;
        let generations = generation(self.start_ns, HostClock.now_ns()) + 1;
        for key in 0..generations * KEYS {
            let index = self.log.asks(HostClock.now_ns(), 0, &[(key, Call::Get)]);
            let value = session.get(&key_bytes(key)).await?;
            let number = value.map(|value| number_of(key, value).expect("values are never torn"));
            self.log.answered(index, HostClock.now_ns(), Answer::Value(number));
            count += u64::from(number.is_some());
        }
        drop(session);
        store.close().await?;
        Ok(count)
    }
}

/// What the built binary says about the pool.
pub(crate) fn fsck(pool: &str) -> serde_json::Value {
    let checked = Command::new(env!("CARGO_BIN_EXE_farside"))
        .args(["fsck", "--json", "--pool", pool])
        .output()
        .expect("it is built");
    serde_json::from_slice(&checked.stdout)
        .unwrap_or_else(|_| panic!("fsck says: {}", String::from_utf8_lossy(&checked.stderr)))
}

/// Passes judgement on the logs and the reports of fsck; returns the history.
///
/// # Panics
/// With everything that is wrong.
pub(crate) fn judge(logs: &[PathBuf], reports: &[serde_json::Value], keys: u64, folder: &Folder) -> History {
    let mut history = History::default();
    for path in logs.iter().filter(|path| path.exists()) {
        log::read(path, &mut history);
    }
    println!(
        "{} operations answered, {} left open, {} refused for want of memory",
        history.answered, history.open, history.refused
    );
    for (remark, count) in &history.remarks {
        println!("{count:6} x {remark}");
    }

    let mut faults = Vec::new();
    match linearizability::check(&history.operations, &BTreeMap::new()) {
        Ok(statistics) => {
            let (keys, steps_max) = (statistics.keys, statistics.steps_max);
            println!("linearizable: {keys} keys, at most {steps_max} steps for one");
            // Neither right nor wrong, and that is not what a run is for.
            for key in statistics.undecided {
                faults.push(format!("the search for a linearization of key {key} was given up"));
            }
        }
        Err(violation) => {
            let path = write_operations(&history, violation.key, folder);
            faults.push(format!(
                "not linearizable: {violation}\nall operations on this key: {}",
                path.display()
            ));
        }
    }
    for report in reports {
        for fault in report["faults"].as_array().expect("fsck lists faults") {
            faults.push(format!("fsck: {fault}"));
        }
        // Everybody has left or was taken over; what is not stored is free.
        for name in ["clients_live", "clients_dead", "blocks_held", "blocks_unrecovered"] {
            if report[name] != 0 {
                faults.push(format!("fsck: {name} is {}", report[name]));
            }
        }
        if report["items"] != keys {
            faults.push(format!("fsck: {} items, but {keys} keys can be read", report["items"]));
        }
    }
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults[..faults.len().min(LINES_MAX)].join("\n")
    );
    history
}

/// Writes all operations on a key to a file in the folder, by their start.
fn write_operations(history: &History, key: u64, folder: &Folder) -> PathBuf {
    let mut operations: Vec<&Operation> = (history.operations.iter())
        .filter(|operation| operation.key == key)
        .collect();
    operations.sort_by_key(|operation| operation.start_ns);
    let lines: Vec<String> = operations.iter().map(|operation| format!("{operation:?}\n")).collect();
    let path = folder.file(&format!("key-{key}.history"));
    std::fs::write(&path, lines.concat()).expect("there is room for one key");
    path
}
