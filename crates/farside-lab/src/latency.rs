//! How long a GET takes over mapped memory, against what the memory itself takes.
//!
//! Three things in turn, several rounds of each, so that they meet the same machine:
//!  1. *chase*: dependent READs of a word, each telling where the next one is, over as much memory
//!     as the store has, on the same kind of pages. Two of them are the least that a GET can cost
//!     whose slot and item are out of cache;
//!  2. *get*: GETs of random keys, one after the other;
//!  3. *pipelined*: the same with many in flight on one thread.
//!
//! The medians of the rounds are reported.

use core::cell::Cell;
use std::path::PathBuf;

use farside_fabric::host::HostClock;
use farside_fabric::region::Region;
use farside_fabric::shm::{self, Segment, SegmentOptions};
use farside_fabric::{Pipeline, interleave};
use farside_index::{Index, IndexKind};
use farside_kv::{Session, Store, StoreConfig};
use farside_pool::PoolOptions;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use crate::error::BenchError;
use crate::progress::Progress;
use crate::stage::machine::on_this_thread;
use crate::workload::{client_random, zipf::below};

/// Bytes of memory for each item beside the slots: a block of 64, and what the buckets of shared
/// slots take.
const BYTES_PER_ITEM: u64 = 104;
const LINE_BYTES: u64 = 64;
/// How many operations a round does.
const CHASE_HOPS: u64 = 1_000_000;
const GETS: u64 = 500_000;
const PIPELINED_GETS: u64 = 2_000_000;
/// How long the housekeeping of the pool may wait for a round.
const LEASE_NS: u64 = 600_000_000_000;

/// What to measure.
#[derive(Clone, Debug)]
pub struct LatencyOptions {
    /// How many keys the store holds.
    pub items: u64,
    /// Which index.
    pub index: IndexKind,
    /// How many slots a pointer array has. Keys that share one cost a READ more.
    pub slots: u64,
    /// How many GETs are in flight in the third part.
    pub in_flight: u64,
    /// How many rounds.
    pub rounds: u64,
    /// A new file for the segment, which is removed afterwards; anonymous memory if `None`.
    pub segment: Option<PathBuf>,
    /// Decides the keys.
    pub seed: u64,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyReport {
    /// `latency`.
    pub kind: &'static str,
    /// How many keys the store held.
    pub items: u64,
    /// Name of the index.
    pub index: &'static str,
    /// How many slots a pointer array had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u64>,
    /// How the table grew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<Growth>,
    /// Bytes that the client uses to remember where things are.
    pub cache_bytes: u64,
    /// How many GETs were in flight.
    pub in_flight: u64,
    /// Nanoseconds of two dependent READs of memory.
    pub two_reads_ns: f64,
    /// Nanoseconds of a GET.
    pub get_ns: f64,
    /// `get_ns / two_reads_ns`.
    pub get_ratio: f64,
    /// Nanoseconds per GET with many in flight.
    pub pipelined_ns: f64,
    /// `get_ns / pipelined_ns`.
    pub pipelined_gain: f64,
    /// Heap allocations per GET, if the program counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocations_per_get: Option<f64>,
    /// Bytes of the store for each item, tables included.
    pub bytes_per_item: f64,
    /// Whether the kernel says that the segment stands on huge pages.
    pub huge_pages: bool,
}

/// How a RACE table grew while it was filled.
#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    /// How often a subtable was split.
    pub splits: u64,
    /// Entries and slots of the first one that was, at that moment.
    pub first_split_load: f64,
    /// How long it took to store the items one by one, splits included, in nanoseconds per item.
    pub insert_ns: f64,
}

impl LatencyReport {
    /// Several lines.
    #[must_use]
    pub fn to_table(&self) -> String {
        let allocations = self
            .allocations_per_get
            .map_or_else(|| "not counted here".to_owned(), |count| format!("{count}"));
        format!(
            "two dependent READs of memory  {:8.1} ns   ({} pages)\n\
             GET, one in flight             {:8.1} ns   {:.2} times that; target at most 1.5\n\
             GET, {:3} in flight             {:8.1} ns   {:.2} times the rate; target at least 4\n\
             allocations per GET            {allocations}\n\
             memory                         {:8.1} bytes per item, {} items, {}",
            self.two_reads_ns,
            if self.huge_pages { "huge" } else { "4 KiB" },
            self.get_ns,
            self.get_ratio,
            self.in_flight,
            self.pipelined_ns,
            self.pipelined_gain,
            self.bytes_per_item,
            self.items,
            self.index_text(),
        )
    }
}

impl LatencyReport {
    fn index_text(&self) -> String {
        match (&self.slots, &self.growth) {
            (Some(slots), _) => format!("{} of {slots} slots", self.index),
            (None, Some(growth)) => format!(
                "{} split {} times, first at a load of {:.1} %; its directory takes {} bytes of a client; {:.0} ns per INSERT",
                self.index,
                growth.splits,
                growth.first_split_load * 100.0,
                self.cache_bytes,
                growth.insert_ns,
            ),
            (None, None) => self.index.to_owned(),
        }
    }
}

/// Runs something and says how many heap allocations that took.
pub type CountAllocations<'a> = &'a dyn Fn(&mut dyn FnMut()) -> u64;

/// Measures. `count_allocations` is for programs whose allocator counts.
///
/// # Errors
/// See [`BenchError`].
pub fn run(
    options: &LatencyOptions,
    count_allocations: Option<CountAllocations<'_>>,
    progress: &Progress,
) -> Result<LatencyReport, BenchError> {
    if options.items == 0 || options.slots == 0 || options.in_flight == 0 || options.rounds == 0 {
        return Err(BenchError::argument(
            "--items, --slots, --in-flight and --rounds are at least 1",
        ));
    }
    let bytes = (options.items * BYTES_PER_ITEM + options.slots * 8 + (64 << 20)).next_multiple_of(2 << 20);
    let store_memory = Memory::new(options, "", bytes)?;
    let chase_memory = Memory::new(options, ".chase", bytes)?;
    progress.label("linking the chase");
    let mut chase = Chase::link(chase_memory.segment.region(), options.seed);
    let huge_pages = has_huge_pages();
    on_this_thread(async {
        let endpoint = shm::Fabric::new(vec![store_memory.segment.clone()]).endpoint()?;
        let config = StoreConfig {
            index: Some(options.index),
            slots: Some(options.slots),
            pool: PoolOptions {
                lease_ns: LEASE_NS,
                ..PoolOptions::default()
            },
            ..StoreConfig::default()
        };
        let store = Store::open(endpoint, config).await?;
        progress.label("loading");
        let loading_ns = HostClock.now_ns();
        load(&store, options.items, progress).await?;
        let insert_ns = (HostClock.now_ns() - loading_ns) as f64 / options.items as f64;
        let growth = match store.index() {
            Index::PointerArray(_) | Index::Ordered(_) | Index::Smart(_) => None,
            Index::Race(race) => {
                let (splits, first) = race.splits();
                let (entries, slots) = first.unwrap_or((0, 1));
                Some(Growth {
                    splits,
                    first_split_load: entries as f64 / slots as f64,
                    insert_ns,
                })
            }
        };
        let cache_bytes = store.index().cache_bytes() as u64;
        progress.label("measuring");
        let mut random = client_random(options.seed, 0);
        let mut session = store.session();
        let (mut chases, mut gets, mut pipelined) = (Vec::new(), Vec::new(), Vec::new());
        // One more round than counts: the first one warms up.
        for round in 0..=options.rounds {
            let times = [
                chase.hop(CHASE_HOPS),
                get_one_by_one(&mut session, options.items, GETS, &mut random).await?,
                get_together(
                    &mut session,
                    options.items,
                    options.in_flight,
                    PIPELINED_GETS,
                    &mut random,
                )
                .await?,
            ];
            if round > 0 {
                chases.push(times[0] * 2.0);
                gets.push(times[1]);
                pipelined.push(times[2]);
            }
            progress.set(round * 100 / options.rounds);
        }
        let allocations = count_allocations.map(|count| {
            const SAMPLE: u64 = 10_000;
            let gets = core::cell::RefCell::new(Box::pin(get_one_by_one(
                &mut session,
                options.items,
                SAMPLE,
                &mut random,
            )));
            let allocated = count(&mut || poll_to_end(&gets));
            allocated as f64 / SAMPLE as f64
        });
        let used = crate::store::memory_used(store_memory.segment.region()).unwrap_or(0);
        let (chase_ns, get_ns, pipelined_ns) = (median(chases), median(gets), median(pipelined));
        store.close().await?;
        Ok(LatencyReport {
            kind: "latency",
            items: options.items,
            index: options.index.name(),
            slots: growth.is_none().then_some(options.slots),
            growth,
            cache_bytes,
            in_flight: options.in_flight,
            two_reads_ns: chase_ns,
            get_ns,
            get_ratio: get_ns / chase_ns,
            pipelined_ns,
            pipelined_gain: get_ns / pipelined_ns,
            allocations_per_get: allocations,
            bytes_per_item: used as f64 / options.items as f64,
            huge_pages,
        })
    })?
}

/// Polls work that completes at once: GETs over mapped memory.
fn poll_to_end<T>(work: &core::cell::RefCell<core::pin::Pin<Box<impl Future<Output = T>>>>) {
    let mut context = core::task::Context::from_waker(core::task::Waker::noop());
    let polled = work.borrow_mut().as_mut().poll(&mut context);
    assert!(polled.is_ready(), "verbs over mapped memory complete at once");
}

/// A segment, and its file, which goes when this does.
struct Memory {
    segment: Segment,
    path: Option<PathBuf>,
}

impl Memory {
    fn new(options: &LatencyOptions, suffix: &str, bytes: u64) -> Result<Self, BenchError> {
        let Some(path) = &options.segment else {
            let segment = Segment::anonymous(bytes)?;
            return Ok(Self { segment, path: None });
        };
        let mut path = path.clone().into_os_string();
        path.push(suffix);
        let path = PathBuf::from(path);
        let segment = Segment::create(&path, SegmentOptions::with_memory(bytes))?;
        Ok(Self {
            segment,
            path: Some(path),
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // If it is gone already, that is as well.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Words that tell, each on a line of its own, where the next one is: one circle through all lines.
struct Chase<'a> {
    region: &'a Region,
    at: u64,
}

impl<'a> Chase<'a> {
    fn link(region: &'a Region, seed: u64) -> Self {
        let lines = region.bytes() / LINE_BYTES;
        let mut random = client_random(seed, 1);
        let mut order: Vec<u32> = (0..u32::try_from(lines).unwrap_or(u32::MAX)).collect();
        for index in (1..order.len()).rev() {
            order.swap(index, below(&mut random, index as u64 + 1) as usize);
        }
        let next = order.iter().cycle().skip(1);
        for (&line, &next) in order.iter().zip(next) {
            let word = region.word(u64::from(line) * LINE_BYTES);
            word.store(u64::from(next) * LINE_BYTES, core::sync::atomic::Ordering::Relaxed);
        }
        Self { region, at: 0 }
    }

    /// Nanoseconds per READ.
    fn hop(&mut self, hops: u64) -> f64 {
        let start_ns = HostClock.now_ns();
        for _ in 0..hops {
            self.at = self.region.word(self.at).load(core::sync::atomic::Ordering::Acquire);
        }
        (HostClock.now_ns() - start_ns) as f64 / hops as f64
    }
}

/// Stores numbered items, several at a time.
pub(crate) async fn load(store: &Store, items: u64, progress: &Progress) -> Result<(), BenchError> {
    let pipeline = Pipeline::default();
    let (next, failure) = (Cell::new(0), Cell::new(None));
    let puts = (0..16).map(|_| {
        let mut session = store.pipelined_session(&pipeline);
        let (next, failure) = (&next, &failure);
        async move {
            while next.get() < items {
                let number: u64 = next.replace(next.get() + 1);
                if let Err(error) = session.put(&number.to_le_bytes(), &number.to_le_bytes()).await {
                    return failure.set(Some(error));
                }
                if number.is_multiple_of(1 << 16) {
                    progress.set(number * 100 / items);
                }
            }
        }
    });
    interleave(&pipeline, puts.collect()).await;
    failure.take().map_or(Ok(()), |error| Err(error.into()))
}

async fn get(session: &mut Session, number: u64) -> Result<(), BenchError> {
    let value = session.get(&number.to_le_bytes()).await?;
    assert_eq!(value, Some(&number.to_le_bytes()[..]), "what was stored is there");
    Ok(())
}

/// Nanoseconds per GET.
pub(crate) async fn get_one_by_one(
    session: &mut Session,
    items: u64,
    gets: u64,
    random: &mut Xoshiro256PlusPlus,
) -> Result<f64, BenchError> {
    let start_ns = HostClock.now_ns();
    for _ in 0..gets {
        get(session, below(random, items)).await?;
    }
    Ok((HostClock.now_ns() - start_ns) as f64 / gets as f64)
}

/// Nanoseconds per GET with many in flight.
pub(crate) async fn get_together(
    session: &mut Session,
    items: u64,
    in_flight: u64,
    gets: u64,
    random: &mut Xoshiro256PlusPlus,
) -> Result<f64, BenchError> {
    let rounds = gets / in_flight;
    let mut numbers = vec![[0; 8]; in_flight as usize];
    let start_ns = HostClock.now_ns();
    for _ in 0..rounds {
        numbers.fill_with(|| below(random, items).to_le_bytes());
        let keys: Vec<&[u8]> = numbers.iter().map(|number| &number[..]).collect();
        let mut values = session.get_many(&keys);
        for number in &numbers {
            assert_eq!(values.next().await?, Some(&number[..]), "what was stored is there");
        }
    }
    Ok((HostClock.now_ns() - start_ns) as f64 / (rounds * in_flight) as f64)
}

/// The one in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Whether the kernel counts huge pages among the mapped memory of this process, and more than
/// other allocations could explain.
fn has_huge_pages() -> bool {
    let summary = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let kib = |name: &str| -> u64 {
        let line = summary.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
            .unwrap_or(0)
    };
    let huge = kib("AnonHugePages:")
        + kib("ShmemPmdMapped:")
        + kib("FilePmdMapped:")
        + kib("Shared_Hugetlb:")
        + kib("Private_Hugetlb:");
    huge * 2 > kib("Rss:")
}
