//! `farside export`: the store as it is at one instant, while clients go on writing.

use std::io::Write;
use std::process::ExitCode;
use std::thread::JoinHandle;

use clap::Args;
use farside_fabric::Endpoint;
use farside_fabric::tcp::{NodeLocation, Secret};
use farside_kv::{Item, KvError, Store, StoreConfig, stack};
use farside_rdb::Writer;
use serde::Serialize;
use tokio::sync::mpsc;

use super::place::Place;
use super::schedule::{self, Schedule};
use super::{PIECE_BYTES, PIECES_MAX, Progress, failure, show_key};
use crate::gateway::PoolArgs;
use farside_cli::{Failure, chain, scalar};

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// Where to: a file, file:///PATH, s3://BUCKET/NAME (gs://, az://), or - for standard output; with --every a folder
    #[arg(long, value_name = "PLACE")]
    to: Place,
    /// Export again and again after this time, such as 15min, 1h or 1d, to names with the time in UTC
    #[arg(long, value_name = "TIME", value_parser = schedule::every)]
    every: Option<u64>,
    /// How many of these backups to keep; older ones are removed
    #[arg(long, value_name = "N", requires = "every", value_parser = clap::value_parser!(u64).range(1..))]
    keep: Option<u64>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What was exported; the names are those of the JSON.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    kind: &'static str,
    pub(super) to: String,
    items: u64,
    bytes: u64,
    seconds: f64,
    items_s: f64,
    /// When the instant was that it shows.
    instant_unix_ms: u64,
    crc64: String,
}

impl Summary {
    fn text(&self) -> String {
        format!(
            "{} keys, {} to {} in {:.2} s ({:.0}/s), checksum {}",
            self.items,
            scalar::show_size(self.bytes),
            self.to,
            self.seconds,
            self.items_s,
            self.crc64
        )
    }

    pub(super) fn print(&self, is_json: bool, to_standard_output: bool) -> Result<(), Failure> {
        let line = match is_json {
            true => serde_json::to_string(self).map_err(Failure::runtime)?,
            false => self.text(),
        };
        // A closed pipe is the reader's choice.
        let _ = match to_standard_output {
            true => writeln!(std::io::stdout(), "{line}"),
            false => writeln!(std::io::stderr(), "{line}"),
        };
        Ok(())
    }
}

pub(crate) fn run(args: ExportArgs) -> Result<ExitCode, Failure> {
    if let Some(every_s) = args.every {
        let schedule = Schedule {
            folder: args.to,
            every_s,
            keep: args.keep,
            is_json: args.json,
        };
        return schedule.run(|place| export(args.pool.locate()?, place));
    }
    let summary = export(args.pool.locate()?, &args.to)?;
    // What is piped is the export and nothing else.
    summary.print(args.json, args.to != Place::Standard)?;
    Ok(ExitCode::SUCCESS)
}

fn export((nodes, secret): (Vec<NodeLocation>, Option<Secret>), to: &Place) -> Result<Summary, Failure> {
    let sink = to.write()?;
    let (pieces, written) = mpsc::channel::<Vec<u8>>(PIECES_MAX);
    let write = move || write(sink, written);
    let writer = std::thread::Builder::new()
        .name("farside-writer".to_owned())
        .spawn(write);
    let writer = writer.map_err(|error| Failure::runtime(format!("cannot start a thread: {error}")))?;
    let exported = stack::run(nodes, secret, async |endpoint| Box::pin(read(endpoint, pieces)).await);
    let exported = exported
        .map_err(|error| Failure::usage(chain(&error)))
        .and_then(|read| match read {
            Ok(read) => Ok(Some(read)),
            // Why, the writer says.
            Err(Ended::Closed) => Ok(None),
            Err(Ended::Failed(error)) => Err(failure(error)),
            Err(Ended::Damaged(what)) => Err(Failure::runtime(what)),
        });
    let finished = join(writer);
    let Some(read) = exported? else {
        finished?;
        return Err(Failure::runtime("the export was not written"));
    };
    finished?;
    Ok(Summary {
        kind: "export",
        to: to.to_string(),
        items: read.items,
        bytes: read.bytes,
        seconds: read.seconds,
        items_s: read.items as f64 / read.seconds,
        instant_unix_ms: read.instant_unix_ms,
        crc64: format!("{:016x}", read.checksum),
    })
}

fn join(writer: JoinHandle<Result<(), Failure>>) -> Result<(), Failure> {
    writer.join().expect("the writer does not panic")
}

/// Writes pieces; an empty one says that there are no more, and that it is whole.
fn write(mut sink: Box<dyn super::place::Sink>, mut pieces: mpsc::Receiver<Vec<u8>>) -> Result<(), Failure> {
    while let Some(piece) = pieces.blocking_recv() {
        if piece.is_empty() {
            return sink.finish();
        }
        sink.write(piece)?;
    }
    // The reader has failed.
    Ok(())
}

struct Read {
    items: u64,
    bytes: u64,
    seconds: f64,
    instant_unix_ms: u64,
    checksum: u64,
}

/// Why nothing is read any more.
enum Ended {
    /// Nobody writes it.
    Closed,
    Failed(KvError),
    /// What is stored under a key is no value; says which and why.
    Damaged(String),
}

impl<E: Into<KvError>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

async fn read(endpoint: Endpoint, pieces: mpsc::Sender<Vec<u8>>) -> Result<Read, Ended> {
    let config = StoreConfig {
        timeout_ns: stack::timeout_ns(&endpoint),
        ..StoreConfig::default()
    };
    let store = Store::open(endpoint.clone(), config).await?;
    let read = read_all(&store, &endpoint, &pieces).await;
    let closed = store.close().await;
    let read = read?;
    closed?;
    Ok(read)
}

async fn read_all(store: &Store, endpoint: &Endpoint, pieces: &mpsc::Sender<Vec<u8>>) -> Result<Read, Ended> {
    let mut progress = Progress::new("exported", endpoint.now_ns());
    let mut export = store.export().await?;
    let instant_unix_ms = export.unix_ms();
    let mut writer = Writer::new();
    writer.aux("farside-ver", env!("CARGO_PKG_VERSION"));
    writer.aux("ctime", &(instant_unix_ms / 1000).to_string());
    writer.database(0);
    let (mut items, mut bytes) = (0, 0);
    let ended = loop {
        let mut damaged = None;
        let write = &mut |item: Item<'_>| {
            if let Err(error) = writer.value(item.key, (item.tag, item.value), item.expiry_ms) {
                damaged = Some(format!("key {}: {error}", show_key(item.key)));
            }
            items += 1;
        };
        let is_more = match export.next(write).await {
            Ok(more) => more,
            Err(error) => break Err(Ended::from(error)),
        };
        if let Some(damaged) = damaged {
            break Err(Ended::Damaged(damaged));
        }
        if writer.pending() >= PIECE_BYTES {
            let piece = writer.take();
            bytes += piece.len() as u64;
            if pieces.send(piece).await.is_err() {
                break Err(Ended::Closed);
            }
        }
        if !is_more {
            break Ok(());
        }
        progress.show(endpoint.now_ns(), items, bytes);
        // Over mapped memory nothing waits, so this would keep the lease from being renewed.
        endpoint.sleep(0).await;
    };
    // Ended in any case: others wait for it.
    let counts = export.end().await;
    progress.clear();
    ended?;
    counts?;
    let (last, checksum) = writer.finish();
    bytes += last.len() as u64;
    // Only now is it known to be good.
    for piece in [last, Vec::new()] {
        if pieces.send(piece).await.is_err() {
            return Err(Ended::Closed);
        }
    }
    Ok(Read {
        items,
        bytes,
        seconds: progress.seconds(endpoint.now_ns()),
        instant_unix_ms,
        checksum,
    })
}
