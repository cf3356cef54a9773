//! `farside kv scan`: keys in order, one per line.
//!
//! A thread of its own writes them, so that a reader who takes his time (a pager) does not keep this client from renewing its
//! lease. It is never more than a few pages behind, so memory stays bounded.

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::Args;
use farside_fabric::Endpoint;
use farside_kv::stack;
use farside_kv::{KeyValue, KvError, Session, Store, StoreConfig};
use tokio::sync::mpsc;

use crate::gateway::PoolArgs;
use farside_cli::{Failure, chain};

/// How many keys are read together.
const KEYS_AT_ONCE: usize = 256;
/// And how many values, which may be large.
const VALUES_AT_ONCE: usize = 16;
/// How many pages wait to be written.
const PAGES_MAX: usize = 2;

#[derive(Debug, Args)]
pub(super) struct ScanArgs {
    /// The key to start from
    from: Option<OsString>,
    /// The key before which to stop
    to: Option<OsString>,
    /// How many keys at most
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print a tab and the value after each key
    #[arg(long)]
    values: bool,
}

pub(super) fn run(pool: &PoolArgs, args: ScanArgs) -> Result<ExitCode, Failure> {
    let (nodes, secret) = pool.locate()?;
    let (pages, written) = mpsc::channel(PAGES_MAX);
    let writer = std::thread::Builder::new().name("farside-writer".to_owned());
    let writer = writer.spawn(move || write(written));
    let writer = writer.map_err(|error| Failure::runtime(format!("cannot start a thread: {error}")))?;
    let scan = Scan { args, pages };
    let ended = stack::run(nodes, secret, async |endpoint| Box::pin(scan.run(endpoint)).await);
    // What was read before an error is printed before it. A closed pipe is the reader's choice.
    let _ = writer.join().expect("the writer does not panic");
    let ended = ended.map_err(|error| Failure::usage(chain(&error)))?;
    ended.map(|()| ExitCode::SUCCESS).map_err(super::failure)
}

/// Until there are no more pages, or nobody reads what is written.
fn write(mut pages: mpsc::Receiver<Page>) -> std::io::Result<()> {
    let mut out = BufWriter::new(std::io::stdout());
    let mut line = Vec::new();
    while let Some(page) = pages.blocking_recv() {
        for (key, value) in page {
            line.clear();
            escape(&mut line, &key);
            if let Some(value) = value {
                line.push(b'\t');
                escape(&mut line, &value);
            }
            line.push(b'\n');
            out.write_all(&line)?;
        }
        // Whoever reads sees what there is.
        out.flush()?;
    }
    Ok(())
}

/// Appends a key or a value on one line: text as it is, but for the backslash, control characters and bytes that are no UTF-8,
/// which become `\\`, `\t`, `\n`, `\r` or `\xNN`.
fn escape(line: &mut Vec<u8>, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut bytes = [0; 4];
            let bytes = character.encode_utf8(&mut bytes).as_bytes();
            if character.is_control() || character == '\\' {
                line.extend(bytes.escape_ascii());
            } else {
                line.extend_from_slice(bytes);
            }
        }
        line.extend(chunk.invalid().escape_ascii());
    }
}

/// Keys, with their values if they are wanted.
type Page = Vec<(Vec<u8>, Option<Vec<u8>>)>;

struct Scan {
    args: ScanArgs,
    pages: mpsc::Sender<Page>,
}

impl Scan {
    async fn run(self, endpoint: Endpoint) -> Result<(), KvError> {
        let config = StoreConfig {
            timeout_ns: stack::timeout_ns(&endpoint),
            ..StoreConfig::default()
        };
        let store = Store::open(endpoint, config).await?;
        let mut session = store.session();
        let read = self.read(&mut session).await;
        drop(session);
        // An error of the scan says more than one of leaving after it.
        let closed = store.close().await;
        read.and(closed)
    }
}

impl Scan {
    async fn read(&self, session: &mut Session) -> Result<(), KvError> {
        let to = self.args.to.as_ref().map(|to| to.as_bytes());
        let mut next = self
            .args
            .from
            .as_ref()
            .map_or(Vec::new(), |from| from.as_bytes().to_vec());
        let limit = self.args.limit.unwrap_or(u64::MAX);
        let mut left = usize::try_from(limit).unwrap_or(usize::MAX);
        loop {
            let (page, behind) = if self.args.values {
                let read = session.range(&next, to, left.min(VALUES_AT_ONCE)).await?;
                let with_value = |(key, value): KeyValue| (key, Some(value));
                (read.0.into_iter().map(with_value).collect::<Page>(), read.1)
            } else {
                let read = session.range_keys(&next, to, left.min(KEYS_AT_ONCE)).await?;
                (read.0.into_iter().map(|key| (key, None)).collect(), read.1)
            };
            left -= page.len();
            if self.pages.send(page).await.is_err() {
                return Ok(());
            }
            match behind {
                Some(key) if left > 0 => next = key,
                _ => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stays_on_its_line() {
        for (text, expected) in [
            (&b"user:1"[..], "user:1"),
            (b"", ""),
            (
                "gr\u{fc}n \u{1f600} 'x' \"y\"".as_bytes(),
                "gr\u{fc}n \u{1f600} 'x' \"y\"",
            ),
            (b"a\nb\tc\rd", "a\\nb\\tc\\rd"),
            (b"a\\nb", "a\\\\nb"),
            (b"\x00\x1b[2J\x7f", "\\x00\\x1b[2J\\x7f"),
            (b"\xff\xc3x", "\\xff\\xc3x"),
            ("\u{85}".as_bytes(), "\\xc2\\x85"),
        ] {
            let mut line = Vec::new();
            escape(&mut line, text);
            assert_eq!(line, expected.as_bytes(), "{text:?}");
        }
    }
}
