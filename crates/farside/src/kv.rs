//! `farside kv`: keys, straight in the memory.

mod scan;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use farside_fabric::Endpoint;
use farside_kv::stack;
use farside_kv::{KvError, Store, StoreConfig};

use crate::gateway::PoolArgs;
use farside_cli::{Failure, chain};

#[derive(Debug, Args)]
pub(crate) struct KvArgs {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the value of a key; exit status 1 if there is none
    Get {
        /// The key
        key: OsString,
    },
    /// Store a value under a key
    Put {
        /// The key
        key: OsString,
        /// The value; `-`, or no value, reads it from standard input
        value: Option<OsString>,
    },
    /// Remove a key; exit status 1 if there is none
    Del {
        /// The key
        key: OsString,
    },
    /// List keys in order, one per line; needs memory that was made with an ordered index, such as chime
    Scan(scan::ScanArgs),
}

/// What to do, with the bytes to do it with.
enum Step {
    Get(Vec<u8>),
    Put(Vec<u8>, Vec<u8>),
    Del(Vec<u8>),
}

/// What came of it.
enum Answer {
    Done,
    Value(Vec<u8>),
    Absent,
}

pub(crate) fn run(args: KvArgs) -> Result<ExitCode, Failure> {
    let bytes = |text: OsString| text.as_bytes().to_vec();
    let step = match args.action {
        Action::Get { key } => Step::Get(bytes(key)),
        Action::Del { key } => Step::Del(bytes(key)),
        Action::Put { key, value } => {
            let value = match value.filter(|value| value != "-") {
                Some(value) => bytes(value),
                None => read_value()?,
            };
            Step::Put(bytes(key), value)
        }
        Action::Scan(scan) => return scan::run(&args.pool, scan),
    };
    let (nodes, secret) = args.pool.locate()?;
    let answer = stack::run(nodes, secret, async |endpoint| {
        Box::pin(carry_out(endpoint, &step)).await
    })
    .map_err(|error| Failure::usage(chain(&error)))?;
    match answer.map_err(failure)? {
        Answer::Done => Ok(ExitCode::SUCCESS),
        Answer::Absent => Ok(ExitCode::FAILURE),
        Answer::Value(mut value) => {
            value.push(b'\n');
            // A closed pipe is the reader's choice.
            let _ = std::io::stdout().write_all(&value);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn failure(error: KvError) -> Failure {
    if error.is_out_of_memory() {
        Failure::runtime(error)
    } else {
        Failure::usage(error)
    }
}

fn read_value() -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    // One byte more than allowed is enough to be refused.
    let most = farside_kv::VALUE_BYTES_MAX as u64 + 1;
    let read = std::io::stdin().take(most).read_to_end(&mut value);
    read.map_err(|error| Failure::usage(format!("cannot read the value from standard input: {error}")))?;
    Ok(value)
}

async fn carry_out(endpoint: Endpoint, step: &Step) -> Result<Answer, KvError> {
    let config = StoreConfig {
        timeout_ns: stack::timeout_ns(&endpoint),
        ..StoreConfig::default()
    };
    let store = Store::open(endpoint, config).await?;
    let mut session = store.session();
    let answer = match step {
        Step::Get(key) => match session.get(key).await? {
            Some(value) => Answer::Value(value.to_vec()),
            None => Answer::Absent,
        },
        Step::Put(key, value) => {
            session.put(key, value).await?;
            Answer::Done
        }
        Step::Del(key) => match session.delete(key).await? {
            true => Answer::Done,
            false => Answer::Absent,
        },
    };
    drop(session);
    store.close().await?;
    Ok(answer)
}
