//! Latencies: histograms that one thread fills and others read.
//!
//! On the path: twice per burst of commands the clock is read. The replies of a burst are written
//! together, so each of its commands has taken as long as all of them: from when their bytes had
//! arrived to when their replies were ready to be written. A client that sends one command at a time
//! sees bursts of one.
//!
//! Buckets: eight to a doubling, so a percentile is at most an eighth too large. Bucket `i` counts
//! latencies above the bound of bucket `i - 1` and up to its own.

use farside_kv::Session;
use serde::{Deserialize, Serialize};

use crate::command::group::{GROUP_COUNT, Group};
use crate::context::Context;
use crate::statistics::Count;

/// Buckets to a doubling, as a power of two.
const STEPS_LOG: u32 = 3;
/// The first bucket ends here: 256 ns.
const FIRST_LOG: u32 = 8;
/// The last but one bucket ends here: 17 s. The last has no end.
const LAST_LOG: u32 = 34;
/// How many buckets there are.
const BUCKET_COUNT: usize = (((LAST_LOG - FIRST_LOG) << STEPS_LOG) + 2) as usize;

/// The bucket that counts a latency.
#[inline]
fn bucket_of(latency_ns: u64) -> usize {
    // Bounds belong to the bucket that they end.
    let below = latency_ns.saturating_sub(1);
    if below >> FIRST_LOG == 0 {
        return 0;
    }
    let log = below.ilog2();
    let step = below >> (log - STEPS_LOG) & ((1 << STEPS_LOG) - 1);
    let bucket = u64::from((log - FIRST_LOG) << STEPS_LOG) + step + 1;
    (bucket as usize).min(BUCKET_COUNT - 1)
}

/// Where a bucket ends, in nanoseconds; the last one has no end.
fn bound_of(bucket: usize) -> u64 {
    if bucket >= BUCKET_COUNT - 1 {
        return u64::MAX;
    }
    let (log, step) = (bucket as u32 >> STEPS_LOG, bucket as u64 & ((1 << STEPS_LOG) - 1));
    ((1 << STEPS_LOG) + step) << (FIRST_LOG + log - STEPS_LOG)
}

/// The latencies of one group of commands on one worker.
#[derive(Debug)]
pub(crate) struct Histogram {
    sum_ns: Count,
    buckets: [Count; BUCKET_COUNT],
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            sum_ns: Count::default(),
            buckets: core::array::from_fn(|_| Count::default()),
        }
    }
}

impl Histogram {
    /// Counts so many commands that took so long.
    #[inline]
    pub(crate) fn record(&self, latency_ns: u64, commands: u64) {
        self.sum_ns.add(latency_ns.wrapping_mul(commands));
        self.buckets[bucket_of(latency_ns)].add(commands);
    }
}

/// Measures a burst: its time, and the retries of its commands.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    started_ns: u64,
    retries: u64,
}

impl Stopwatch {
    #[inline]
    pub(crate) fn start(context: &Context, session: &Session) -> Self {
        Self {
            started_ns: context.store.endpoint().now_ns(),
            retries: session.retries(),
        }
    }

    /// The burst of commands that `tally` counts is over.
    #[inline]
    pub(crate) fn stop(self, context: &Context, session: &Session, tally: &mut Tally) {
        let statistics = context.statistics();
        statistics.retries.add(session.retries() - self.retries);
        let latency_ns = context.store.endpoint().now_ns().saturating_sub(self.started_ns);
        tally.settle(&statistics.latencies, latency_ns);
    }
}

/// How many commands of each group a burst has had so far.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally([u32; GROUP_COUNT]);

impl Tally {
    #[inline]
    pub(crate) fn add(&mut self, group: Group, commands: usize) {
        self.0[group as usize] += commands as u32;
    }

    /// The burst took so long: its commands are recorded, and the tally starts anew.
    #[inline]
    pub(crate) fn settle(&mut self, histograms: &[Histogram; GROUP_COUNT], latency_ns: u64) {
        for (commands, histogram) in self.0.iter_mut().zip(histograms) {
            if *commands > 0 {
                histogram.record(latency_ns, u64::from(*commands));
                *commands = 0;
            }
        }
    }
}

/// The latencies of a group of commands at one moment.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Latencies {
    /// Nanoseconds of all commands together.
    pub sum_ns: u64,
    /// Buckets that are not empty: where each ends, in nanoseconds, and how many commands it counts.
    /// The last possible one ends at the largest number.
    pub buckets: Vec<(u64, u64)>,
}

impl Latencies {
    /// The sum of one histogram of each worker.
    pub(crate) fn of<'h>(histograms: impl Iterator<Item = &'h Histogram>) -> Self {
        let (mut sum_ns, mut counts) = (0_u64, [0; BUCKET_COUNT]);
        for histogram in histograms {
            sum_ns = sum_ns.wrapping_add(histogram.sum_ns.get());
            for (count, bucket) in counts.iter_mut().zip(&histogram.buckets) {
                *count += bucket.get();
            }
        }
        let buckets = (0..).zip(counts).filter(|&(_, count)| count > 0);
        Self {
            sum_ns,
            buckets: buckets.map(|(index, count)| (bound_of(index), count)).collect(),
        }
    }

    /// How many commands there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// The latency in nanoseconds that this part (0 to 1) of the commands did not exceed, rounded up
    /// to the end of its bucket; `None` without commands.
    #[must_use]
    pub fn quantile_ns(&self, part: f64) -> Option<u64> {
        let count = self.count();
        // At least one, at most all.
        let rank = ((count as f64 * part).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let bucket = self.buckets.iter().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        bucket.map(|&(bound_ns, _)| bound_ns)
    }

    /// What was added since `earlier`, which is of the same gateway.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |bound| {
            let found = earlier.buckets.binary_search_by_key(&bound, |&(bound, _)| bound);
            found.map_or(0, |index| earlier.buckets[index].1)
        };
        let buckets = self.buckets.iter();
        Self {
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
            buckets: buckets
                .map(|&(bound, count)| (bound, count.saturating_sub(before(bound))))
                .filter(|&(_, count)| count > 0)
                .collect(),
        }
    }

    /// Commands in wider buckets that end at powers of two from about a microsecond on, as bounds in
    /// seconds; the last one is infinite.
    pub(crate) fn coarse(&self) -> Vec<(f64, u64)> {
        const COARSE_FIRST_LOG: u32 = 10;
        let bounds = (COARSE_FIRST_LOG..=LAST_LOG).map(|log| 1_u64 << log).chain([u64::MAX]);
        let mut rest = self.buckets.as_slice();
        bounds
            .map(|bound| {
                let (within, beyond) = rest.split_at(rest.partition_point(|&(ends, _)| ends <= bound));
                rest = beyond;
                let bound_s = if bound == u64::MAX {
                    f64::INFINITY
                } else {
                    bound as f64 / 1e9
                };
                (bound_s, within.iter().map(|(_, count)| count).sum())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn latency_lies_in_its_bucket(log in 0_u32..64, bits: u64) {
            let latency_ns = bits >> log;
            let bucket = bucket_of(latency_ns);
            prop_assert!(latency_ns <= bound_of(bucket));
            if bucket > 0 {
                prop_assert!(latency_ns > bound_of(bucket - 1));
            }
        }

        #[test]
        fn quantile_is_at_most_an_eighth_too_large(mut values in prop::collection::vec(257_u64..1 << 33, 1..50), part in 0.0_f64..=1.0) {
            let histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.record(value, 1));
            values.sort_unstable();
            let rank = ((values.len() as f64 * part).ceil() as usize).max(1);
            let exact = values[rank - 1];
            let found = Latencies::of([&histogram].into_iter()).quantile_ns(part).expect("there are some");
            prop_assert!(found >= exact && found <= exact + exact / 8 + 1, "{found} for {exact}");
        }
    }

    #[test]
    fn bounds_grow_and_the_last_is_endless() {
        let bounds: Vec<u64> = (0..BUCKET_COUNT).map(bound_of).collect();
        assert!(bounds.is_sorted_by(|one, next| one < next));
        assert_eq!(
            (bounds[0], bounds[8], bounds[BUCKET_COUNT - 2]),
            (256, 512, 1 << LAST_LOG)
        );
        assert_eq!(bucket_of(u64::MAX), BUCKET_COUNT - 1);
    }

    #[test]
    fn coarse_buckets_count_every_command_once() {
        let histogram = Histogram::default();
        for latency_ns in [1, 1024, 1025, 5000, 1 << 33, u64::MAX] {
            histogram.record(latency_ns, 2);
        }
        let coarse = Latencies::of([&histogram].into_iter()).coarse();
        assert_eq!(coarse.iter().map(|(_, count)| count).sum::<u64>(), 12);
        assert_eq!((coarse[0], coarse[1]), ((1.024e-6, 4), (2.048e-6, 2)));
        assert_eq!(coarse.last(), Some(&(f64::INFINITY, 2)));
    }

    #[test]
    fn what_was_added_since_is_the_difference() {
        let histogram = Histogram::default();
        histogram.record(1000, 3);
        let earlier = Latencies::of([&histogram].into_iter());
        histogram.record(1000, 2);
        histogram.record(9000, 1);
        let later = Latencies::of([&histogram].into_iter()).since(&earlier);
        assert_eq!((later.count(), later.sum_ns), (3, 11_000));
        assert_eq!(later.quantile_ns(1.0), Some(bound_of(bucket_of(9000))));
        assert_eq!(Latencies::default().quantile_ns(0.5), None);
    }

    #[test]
    fn burst_is_recorded_once_for_each_of_its_commands() {
        let histograms: [Histogram; GROUP_COUNT] = core::array::from_fn(|_| Histogram::default());
        let mut tally = Tally::default();
        tally.add(Group::Read, 3);
        tally.add(Group::Write, 1);
        tally.settle(&histograms, 700);
        tally.settle(&histograms, 900);
        let count = |group: Group| Latencies::of([&histograms[group as usize]].into_iter()).count();
        assert_eq!([Group::Read, Group::Write, Group::Other].map(count), [3, 1, 0]);
    }
}
