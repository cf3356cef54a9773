//! `farside import`: keys of an RDB file, Farside's own or that of a Redis server.
//!
//! A file is read twice: first to see that it is whole, so that nothing of a damaged one is stored. What cannot be read twice is
//! checked at its end.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::Args;
use farside_fabric::host::HostClock;
use farside_fabric::{Endpoint, join_all};
use farside_kv::{
    Condition, Expiry, KEY_BYTES_MAX, KvError, Session, SetOptions, Store, StoreConfig, Tag, VALUE_BYTES_MAX, stack,
};
use farside_rdb::{Reader, Record};
use serde::Serialize;
use tokio::sync::mpsc;

use super::place::Place;
use super::state::{AHEAD, StateFile};
use super::{PIECES_MAX, Progress, failure, show_key};
use crate::gateway::PoolArgs;
use farside_cli::{Failure, chain, scalar};

/// How many records go through the threads together, and about how many bytes.
const RECORDS_AT_ONCE: usize = 1024;
const BYTES_AT_ONCE: usize = 4 << 20;
/// How many operations a thread has in flight over a network.
const SESSIONS: usize = 16;
/// How many threads store, unless told otherwise.
const THREADS_MAX: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// Where from: a file, file:///PATH, s3://BUCKET/NAME (gs://, az://), or - for standard input
    #[arg(long, value_name = "PLACE")]
    from: Place,
    /// Overwrite keys that are there [default: stop at the first]
    #[arg(long, conflicts_with = "keep_existing")]
    replace: bool,
    /// Keep keys that are there as they are
    #[arg(long)]
    keep_existing: bool,
    /// Go on with an import from this place that was interrupted
    #[arg(long)]
    resume: bool,
    /// Threads that store, each with a connection of its own [default: one per core, 8 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Skip streams and values of modules, which are not kept here, and count them
    #[arg(long)]
    skip_other_types: bool,
    /// Take the keys of this database and leave out the others [default: 0, and others are refused]
    #[arg(long, value_name = "N")]
    database: Option<u64>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What is done about keys that are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Existing {
    Refuse,
    Replace,
    Keep,
}

/// A key to be stored.
struct Entry {
    key: Vec<u8>,
    tag: Tag,
    value: Vec<u8>,
    expiry_ms: u64,
}

impl Entry {
    /// Whether it is a string that never expires.
    fn is_plain(&self) -> bool {
        self.tag == Tag::String && self.expiry_ms == 0
    }
}

/// Some of them, and the number of the first.
struct Piece {
    first: u64,
    entries: Vec<Entry>,
    /// How many bytes of the file were read.
    position: u64,
}

/// What was imported; the names are those of the JSON.
#[derive(Default, Debug, Serialize)]
struct Summary {
    kind: &'static str,
    from: String,
    items: u64,
    /// Keys that were there and stay as they were.
    kept: u64,
    expired: u64,
    /// Records that an import before has stored.
    resumed: u64,
    skipped_types: u64,
    skipped_databases: u64,
    bytes: u64,
    seconds: f64,
    items_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    crc64: Option<String>,
}

impl Summary {
    fn text(&self) -> String {
        let mut text = format!(
            "{} keys of {} from {} in {:.2} s ({:.0}/s)",
            self.items,
            scalar::show_size(self.bytes),
            self.from,
            self.seconds,
            self.items_s
        );
        for (count, what) in [
            (self.kept, "were there and stay"),
            (self.expired, "had expired"),
            (self.resumed, "were stored before"),
            (self.skipped_types, "are of types that are not kept"),
            (self.skipped_databases, "are of other databases"),
        ] {
            if count > 0 {
                text.push_str(&format!(", {count} {what}"));
            }
        }
        text
    }
}

/// What the reader has found at the end.
#[derive(Default)]
struct Whole {
    bytes: u64,
    checksum: Option<u64>,
    skipped_types: u64,
    skipped_databases: u64,
    resumed: u64,
}

pub(crate) fn run(args: ImportArgs) -> Result<ExitCode, Failure> {
    let (nodes, secret) = args.pool.locate()?;
    let database = args.database.map(|database| format!(", database {database}"));
    let into = format!(
        "{}{}{}",
        args.pool.name(),
        database.unwrap_or_default(),
        if args.skip_other_types {
            ", without other types"
        } else {
            ""
        }
    );
    let state = StateFile::open(&args.from, into, args.resume)?;
    let existing = match (args.replace, args.keep_existing) {
        (true, _) => Existing::Replace,
        (_, true) => Existing::Keep,
        _ => Existing::Refuse,
    };
    let filter = Filter {
        from: args.from.to_string(),
        skips_types: args.skip_other_types,
        database: args.database,
        done: state.state().done,
    };
    if args.from != Place::Standard {
        filter.read(args.from.read()?, &mut |_| true)?;
    }
    let source = args.from.read()?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(THREADS_MAX));
    let count = args.threads.map_or(cores, usize::from);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::channel::<Piece>(PIECES_MAX)).unzip();
    let under_way = Arc::new(UnderWay::new(state));
    let noted = Arc::clone(&under_way);
    let reader = move || {
        let mut turns = senders.iter().cycle();
        filter.read(source, &mut |piece| {
            noted.begin(piece.first);
            turns.next().is_some_and(|turn| turn.blocking_send(piece).is_ok())
        })
    };
    let reader = std::thread::Builder::new()
        .name("farside-reader".to_owned())
        .spawn(reader);
    let reader = reader.map_err(|error| Failure::runtime(format!("cannot start a thread: {error}")))?;
    let begun_ns = HostClock.now_ns();
    let stored = std::thread::scope(|scope| {
        let each = receivers.into_iter().enumerate().map(|(number, read)| {
            let import = Import {
                read,
                under_way: &under_way,
                existing,
                progress: (number == 0).then(|| Progress::new("imported", begun_ns)),
            };
            let (nodes, secret) = (nodes.clone(), secret.clone());
            scope.spawn(move || stack::run(nodes, secret, async |endpoint| Box::pin(import.run(endpoint)).await))
        });
        // All are started before the first is waited for.
        let each: Vec<_> = each.collect();
        let ended = each
            .into_iter()
            .map(|thread| thread.join().expect("a thread that stores does not panic"));
        ended.collect::<Vec<_>>()
    });
    let whole = reader.join().expect("the reader does not panic");
    let stored = stored
        .into_iter()
        .try_for_each(|ended| ended.map_err(|error| Failure::usage(chain(&error)))?);
    let under_way = Arc::into_inner(under_way).expect("all threads have ended");
    let (state, mut summary) = under_way.finish();
    summary.seconds = ((HostClock.now_ns() - begun_ns) as f64 / 1e9).max(1e-9);
    stored?;
    let stored = summary.items;
    let whole = whole.map_err(|failed| match stored {
        0 => failed,
        _ => failed.after(&format!("{stored} keys were stored before; ")),
    })?;
    state.remove();
    summary.kind = "import";
    summary.from = args.from.to_string();
    summary.bytes = whole.bytes;
    summary.skipped_types = whole.skipped_types;
    summary.skipped_databases = whole.skipped_databases;
    summary.resumed = whole.resumed;
    summary.crc64 = whole.checksum.map(|checksum| format!("{checksum:016x}"));
    summary.items_s = summary.items as f64 / summary.seconds;
    let line = match args.json {
        true => serde_json::to_string(&summary).map_err(Failure::runtime)?,
        false => summary.text(),
    };
    // A closed pipe is the reader's choice.
    let _ = writeln!(std::io::stdout(), "{line}");
    Ok(ExitCode::SUCCESS)
}

/// Which records of a file are wanted.
struct Filter {
    from: String,
    skips_types: bool,
    database: Option<u64>,
    /// So many are stored already.
    done: u64,
}

impl Filter {
    /// Reads a file to its end, and hands over what is wanted of it; until nobody takes it.
    fn read(&self, source: Box<dyn Read + Send>, take: &mut dyn FnMut(Piece) -> bool) -> Result<Whole, Failure> {
        let failed = |error| Failure::usage(format!("{}: {error}", self.from));
        let mut reader = Reader::new(source).map_err(failed)?;
        let (mut whole, mut number) = (Whole::default(), 0);
        let mut entries = Vec::with_capacity(RECORDS_AT_ONCE);
        let mut bytes = 0;
        loop {
            let record = reader.next_record().map_err(failed)?;
            let is_end = record.is_none();
            if let Some(entry) = record
                .map(|record| self.wanted(record, &mut whole))
                .transpose()?
                .flatten()
            {
                number += 1;
                if number <= self.done {
                    whole.resumed += 1;
                    continue;
                }
                bytes += entry.key.len() + entry.value.len();
                entries.push(entry);
            }
            if entries.len() >= RECORDS_AT_ONCE || bytes >= BYTES_AT_ONCE || is_end && !entries.is_empty() {
                let piece = Piece {
                    first: number - entries.len() as u64,
                    entries: core::mem::replace(&mut entries, Vec::with_capacity(RECORDS_AT_ONCE)),
                    position: reader.position(),
                };
                bytes = 0;
                if !take(piece) {
                    return Ok(whole);
                }
            }
            if is_end {
                whole.bytes = reader.position();
                whole.checksum = reader.checksum();
                return Ok(whole);
            }
        }
    }

    fn wanted(&self, record: Record, whole: &mut Whole) -> Result<Option<Entry>, Failure> {
        let (Record::Value { database, key, .. } | Record::Other { database, key, .. }) = &record;
        if *database != self.database.unwrap_or(0) {
            if self.database.is_none() {
                return Err(Failure::usage(format!(
                    "{}: key {} is in database {database}; Farside has one: choose it with --database N",
                    self.from,
                    show_key(key)
                )));
            }
            whole.skipped_databases += 1;
            return Ok(None);
        }
        match record {
            Record::Other { key, kind, .. } if !self.skips_types => Err(Failure::usage(format!(
                "{}: key {} is {kind}, which is not kept here: --skip-other-types leaves such keys out",
                self.from,
                show_key(&key)
            ))),
            Record::Other { .. } => {
                whole.skipped_types += 1;
                Ok(None)
            }
            Record::Value {
                key,
                tag,
                value,
                expiry_ms,
                ..
            } => {
                let what = match (key.len(), value.len()) {
                    (0..=KEY_BYTES_MAX, 0..=VALUE_BYTES_MAX) => {
                        return Ok(Some(Entry {
                            key,
                            tag,
                            value,
                            expiry_ms,
                        }));
                    }
                    (0..=KEY_BYTES_MAX, bytes) => {
                        format!("has a value of {bytes} bytes, at most {VALUE_BYTES_MAX} are kept")
                    }
                    (bytes, _) => format!("has {bytes} bytes, at most {KEY_BYTES_MAX} are kept"),
                };
                Err(Failure::usage(format!("{}: key {} {what}", self.from, show_key(&key))))
            }
        }
    }
}

/// What the threads have in common: which records are being stored, and what was.
struct UnderWay(Mutex<(StateFile, BTreeSet<u64>, Summary)>);

impl UnderWay {
    fn new(state: StateFile) -> Self {
        Self(Mutex::new((state, BTreeSet::new(), Summary::default())))
    }

    fn lock(&self) -> MutexGuard<'_, (StateFile, BTreeSet<u64>, Summary)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Some records are about to be stored, in their order: what begins before all of them is stored, or on its way.
    fn begin(&self, first: u64) {
        self.lock().1.insert(first);
    }

    /// Before records are stored it is written down that they may be.
    fn note(&self, first: u64, count: u64) -> Result<(), Failure> {
        let (state, pieces, _) = &mut *self.lock();
        let done = pieces.first().copied().unwrap_or(first);
        if first + count > state.state().begun || done >= state.state().done + AHEAD / 2 {
            state.note(done)?;
        }
        Ok(())
    }

    /// They are; returns how many keys are so far.
    fn end(&self, first: u64, (stored, kept, expired): (u64, u64, u64)) -> u64 {
        let (_, pieces, summary) = &mut *self.lock();
        pieces.remove(&first);
        summary.items += stored;
        summary.kept += kept;
        summary.expired += expired;
        summary.items
    }

    fn finish(self) -> (StateFile, Summary) {
        let (state, _, summary) = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        (state, summary)
    }
}

struct Import<'i> {
    read: mpsc::Receiver<Piece>,
    under_way: &'i UnderWay,
    existing: Existing,
    /// One of them shows it.
    progress: Option<Progress>,
}

impl Import<'_> {
    async fn run(mut self, endpoint: Endpoint) -> Result<(), Failure> {
        let config = StoreConfig {
            timeout_ns: stack::timeout_ns(&endpoint),
            ..StoreConfig::default()
        };
        let store = Store::open(endpoint.clone(), config).await.map_err(failure)?;
        let stored = self.store_all(&store, &endpoint).await;
        self.read.close();
        if let Some(progress) = &self.progress {
            progress.clear();
        }
        let closed = store.close().await;
        stored?;
        closed.map_err(failure)
    }

    async fn store_all(&mut self, store: &Store, endpoint: &Endpoint) -> Result<(), Failure> {
        let count = if endpoint.is_mapped() { 1 } else { SESSIONS };
        let mut sessions: Vec<Session> = (0..count).map(|_| store.session()).collect();
        // What was begun before this import may be there from the last one.
        let before = self.under_way.lock().0.begun_before();
        while let Some(Piece {
            first,
            mut entries,
            position,
        }) = self.read.recv().await
        {
            let all = entries.len();
            self.under_way.note(first, all as u64)?;
            let existing = match self.existing {
                Existing::Refuse if first < before => Existing::Keep,
                existing => existing,
            };
            let now_ms = endpoint.unix_ms();
            entries.retain(|entry| entry.expiry_ms == 0 || entry.expiry_ms > now_ms);
            let mut counts = (0, 0, (all - entries.len()) as u64);
            let each = entries.len().div_ceil(count).max(1);
            let parts = sessions.iter_mut().zip(entries.chunks_mut(each));
            let stored = parts.map(|(session, entries)| Box::pin(store_some(session, entries, existing)) as _);
            for stored in join_all(stored.collect()).await {
                let (stored, kept) = stored?;
                (counts.0, counts.1) = (counts.0 + stored, counts.1 + kept);
            }
            let items = self.under_way.end(first, counts);
            if let Some(progress) = &mut self.progress {
                progress.show(endpoint.now_ns(), items, position);
            }
            // Over mapped memory nothing waits, so this would keep the lease from being renewed.
            endpoint.sleep(0).await;
        }
        Ok(())
    }
}

/// Stores some keys; how many it stored, and how many were there and stay.
async fn store_some(session: &mut Session, entries: &mut [Entry], existing: Existing) -> Result<(u64, u64), Failure> {
    let (mut stored, mut kept) = (0, 0);
    let mut failed: Option<KvError> = None;
    if existing == Existing::Replace {
        let plain: Vec<_> = entries.iter().filter(|entry| entry.is_plain()).collect();
        let plain: Vec<(&[u8], &[u8])> = plain.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
        let put = session.put_many(&plain, |result| match result {
            Ok(()) => stored += 1,
            Err(error) => failed = Some(error),
        });
        put.await;
    }
    if let Some(error) = failed {
        return Err(failure(error));
    }
    let (condition, others) = match existing {
        Existing::Replace => (Condition::Always, true),
        Existing::Refuse | Existing::Keep => (Condition::IfAbsent, false),
    };
    for entry in entries.iter_mut().filter(|entry| !others || !entry.is_plain()) {
        let options = SetOptions {
            condition,
            expiry: match entry.expiry_ms {
                0 => Expiry::Never,
                at_ms => Expiry::AtMs(at_ms),
            },
            ..SetOptions::default()
        };
        let value = core::mem::take(&mut entry.value);
        let stored_now = session.set_value(&entry.key, entry.tag, value, options).await;
        match stored_now.map_err(failure)? {
            true => stored += 1,
            false if existing == Existing::Refuse => {
                return Err(Failure::runtime(format!(
                    "key {} is there already: --replace overwrites such keys, --keep-existing keeps them; with --resume it goes on \
                     from here",
                    show_key(&entry.key)
                )));
            }
            false => kept += 1,
        }
    }
    Ok((stored, kept))
}
