//! What `farside top` and the console show: the last report of a gateway, and what changed from the one before to it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use farside_gateway::{Latencies, Report};

/// How many intervals are remembered: more than a screen is wide.
const INTERVALS_MAX: usize = 512;

/// Everything that is shown.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) address: SocketAddr,
    /// The last report.
    pub(crate) report: Option<Report>,
    /// What happened between the last two.
    pub(crate) change: Option<Change>,
    /// Commands per second, oldest first.
    pub(crate) throughput: VecDeque<u64>,
    /// Why there is no newer report.
    pub(crate) trouble: Option<String>,
}

/// What happened between two reports.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Change {
    seconds: f64,
    /// Per second.
    pub(crate) commands: f64,
    pub(crate) errors: f64,
    pub(crate) retries: f64,
    pub(crate) bytes_in: f64,
    pub(crate) bytes_out: f64,
    /// Of all lookups, the part that found a key; `None` without lookups.
    pub(crate) hit_rate: Option<f64>,
    /// What a command costs; `None` if there are so few that housekeeping is most of it.
    pub(crate) per_command: Option<Cost>,
    pub(crate) epochs: f64,
    pub(crate) latencies: BTreeMap<String, Latencies>,
    /// Commands per second by name, most first.
    pub(crate) by_name: Vec<(String, f64)>,
}

/// What a command costs on average, housekeeping included.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Cost {
    /// Verbs by kind, most first.
    pub(crate) verbs: Vec<(String, f64)>,
    pub(crate) bytes_read: f64,
    pub(crate) bytes_written: f64,
}

/// With fewer commands per second the verbs of the housekeeping, thousands per second, tell nothing about them.
const BUSY_MIN: f64 = 5_000.0;

/// What there is most of first, by name where that is the same.
fn most_first(mut amounts: Vec<(String, f64)>) -> Vec<(String, f64)> {
    amounts.sort_by(|one, next| next.1.total_cmp(&one.1).then_with(|| one.0.cmp(&next.0)));
    amounts
}

impl Change {
    /// What happened from one report to a later one; `None` if they are of different runs.
    fn between(earlier: &Report, later: &Report) -> Option<Self> {
        let seconds = later.clock_ns.checked_sub(earlier.clock_ns)? as f64 / 1e9;
        if later.run != earlier.run || seconds == 0.0 {
            return None;
        }
        let (before, after) = (&earlier.counts, &later.counts);
        // A count that went back is of another run; it shows as nothing.
        let more = |earlier: u64, later: u64| later.saturating_sub(earlier) as f64;
        let rate = |earlier, later| more(earlier, later) / seconds;
        let commands = more(before.commands, after.commands);
        let (hits, misses) = (more(before.hits, after.hits), more(before.misses, after.misses));
        let of = |counts: &BTreeMap<String, u64>, name| counts.get(name).copied().unwrap_or(0);
        let per_command = (commands / seconds >= BUSY_MIN).then(|| {
            let verbs = later.verbs.iter().map(|(kind, &count)| {
                let posted = more(of(&earlier.verbs, kind), count);
                (kind.clone(), posted / commands)
            });
            Cost {
                verbs: most_first(verbs.collect()),
                bytes_read: more(before.bytes_read, after.bytes_read) / commands,
                bytes_written: more(before.bytes_written, after.bytes_written) / commands,
            }
        });
        let by_name = later.commands.iter().map(|(name, &count)| {
            let executed = rate(of(&earlier.commands, name), count);
            (name.clone(), executed)
        });
        let by_name = by_name.filter(|&(_, executed)| executed > 0.0);
        let nothing = Latencies::default();
        let latencies = later.latencies.iter().map(|(group, latencies)| {
            let before = earlier.latencies.get(group).unwrap_or(&nothing);
            (group.clone(), latencies.since(before))
        });
        let epoch = |report: &Report| report.pool.as_ref().and_then(|pool| pool.epoch);
        Some(Self {
            seconds,
            commands: commands / seconds,
            errors: rate(before.errors, after.errors),
            retries: rate(before.retries, after.retries),
            bytes_in: rate(before.bytes_in, after.bytes_in),
            bytes_out: rate(before.bytes_out, after.bytes_out),
            hit_rate: (hits + misses > 0.0).then(|| hits / (hits + misses)),
            per_command,
            epochs: epoch(earlier)
                .zip(epoch(later))
                .map_or(0.0, |(before, after)| rate(before, after)),
            latencies: latencies.collect(),
            by_name: most_first(by_name.collect()),
        })
    }

    /// Commands of a group per second.
    pub(crate) fn rate_of(&self, latencies: &Latencies) -> f64 {
        latencies.count() as f64 / self.seconds
    }
}

impl History {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            report: None,
            change: None,
            throughput: VecDeque::new(),
            trouble: None,
        }
    }

    /// A new report, or why there is none. What was known stays to be seen.
    pub(crate) fn take(&mut self, update: Result<Report, String>) {
        let report = match update {
            Ok(report) => report,
            Err(line) => {
                self.trouble = Some(line);
                self.push(0);
                return;
            }
        };
        self.trouble = None;
        self.change = self.report.as_ref().and_then(|last| Change::between(last, &report));
        if let Some(change) = &self.change {
            self.push(change.commands.round() as u64);
        }
        self.report = Some(report);
    }

    fn push(&mut self, commands: u64) {
        if self.throughput.len() == INTERVALS_MAX {
            self.throughput.pop_front();
        }
        self.throughput.push_back(commands);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use farside_gateway::{Counts, HotKey, PoolReport};

    /// A gateway under load, `seconds` after it started.
    pub(crate) fn report(seconds: u64) -> Report {
        let counts = Counts {
            clients: 50,
            connections: 52,
            commands: 1_000_000 * seconds,
            errors: 2 * seconds,
            hits: 700_000 * seconds,
            misses: 100_000 * seconds,
            bytes_in: 40_000_000 * seconds,
            bytes_out: 20_000_000 * seconds,
            retries: 30 * seconds,
            bytes_read: 90_000_000 * seconds,
            bytes_written: 20_000_000 * seconds,
            ..Counts::default()
        };
        let latencies = |us: u64, share: u64| Latencies {
            sum_ns: us * 1000 * share * seconds,
            buckets: vec![
                (us * 1000, share * seconds * 99 / 100),
                (us * 8000, share * seconds / 100),
            ],
        };
        Report {
            version: "0.1.0".to_owned(),
            process_id: 4242,
            address: "127.0.0.1:6380".to_owned(),
            clock_ns: 5_000_000_000 + seconds * 1_000_000_000,
            uptime_ms: seconds * 1000,
            run: "7".to_owned(),
            threads: 2,
            connections_max: 10_000,
            counts,
            commands: BTreeMap::from([
                ("get".to_owned(), 800_000 * seconds),
                ("set".to_owned(), 200_000 * seconds),
            ]),
            latencies: BTreeMap::from([
                ("read".to_owned(), latencies(12, 800_000)),
                ("write".to_owned(), latencies(20, 200_000)),
                ("whole".to_owned(), Latencies::default()),
            ]),
            verbs: BTreeMap::from([
                ("read".to_owned(), 1_800_000 * seconds),
                ("write".to_owned(), 200_000 * seconds),
                ("compare-swap".to_owned(), 200_000 * seconds),
            ]),
            memory_limit: None,
            eviction_policy: "noeviction".to_owned(),
            hot_keys: [("user:1", 0.25), ("user:2", 0.125), ("line\nbreak", 0.01)]
                .map(|(key, share)| HotKey {
                    key: key.to_owned(),
                    share,
                })
                .into(),
            pool: Some(PoolReport {
                bytes: 1 << 30,
                bytes_tables: 4 << 20,
                bytes_free: 700 << 20,
                bytes_index: 120 << 20,
                bytes_large: 0,
                bytes_by_block: BTreeMap::from([(64, 150 << 20), (128, 50 << 20)]),
                epoch: Some(400 * seconds),
                deaths: Some(0),
                clients_live: Some(2),
                clients_dead: Some(0),
                clients_max: Some(1024),
                bytes_held: Some(150 << 20),
            }),
            ..Report::default()
        }
    }

    #[test]
    fn change_is_what_happened_per_second() {
        let change = Change::between(&report(10), &report(12)).expect("one run");
        assert_eq!(
            (change.commands, change.errors, change.hit_rate, change.epochs),
            (1e6, 2.0, Some(0.875), 400.0)
        );
        let cost = change.per_command.as_ref().expect("it is busy");
        assert_eq!((cost.verbs[0].0.as_str(), cost.verbs[0].1), ("read", 1.8));
        assert_eq!((cost.bytes_read, cost.bytes_written), (90.0, 20.0));
        assert_eq!(change.by_name[0], ("get".to_owned(), 800_000.0));
        assert_eq!(change.rate_of(&change.latencies["write"]), 200_000.0);
    }

    #[test]
    fn nothing_is_concluded_from_two_runs_or_one_moment() {
        assert_eq!(Change::between(&report(10), &report(10)), None);
        assert_eq!(Change::between(&report(11), &report(10)), None);
        let other = Report {
            run: "8".to_owned(),
            ..report(12)
        };
        assert_eq!(Change::between(&report(10), &other), None);
    }

    #[test]
    fn idle_gateway_has_no_rates_per_command() {
        let later = Report {
            clock_ns: report(10).clock_ns + 1_000_000_000,
            ..report(10)
        };
        let change = Change::between(&report(10), &later).expect("one run");
        assert_eq!((change.commands, change.hit_rate), (0.0, None));
        assert!(change.per_command.is_none() && change.by_name.is_empty());
    }

    #[test]
    fn trouble_is_remembered_until_the_gateway_is_back() {
        let mut history = History::new(([127, 0, 0, 1], 6380).into());
        history.take(Ok(report(1)));
        history.take(Ok(report(2)));
        history.take(Err("it hung up".to_owned()));
        assert_eq!(history.trouble.as_deref(), Some("it hung up"));
        assert!(history.report.is_some());
        history.take(Ok(report(3)));
        assert_eq!(history.trouble, None);
        assert_eq!(history.throughput, [1_000_000, 0, 1_000_000]);
        (0..2 * INTERVALS_MAX).for_each(|_| history.take(Err(String::new())));
        assert_eq!(history.throughput.len(), INTERVALS_MAX);
    }
}
