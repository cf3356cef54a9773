//! What is printed: what each contender did, and the ratios that Farside aims at.

use serde::Serialize;

use super::EmbeddedOptions;
use crate::quantity::with_prefix;

/// What contenders do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Test {
    /// GETs on one thread.
    Get,
    /// Reads of keys in order, on one thread.
    Scan,
    /// Half reads, half updates, in all processes or threads.
    YcsbA,
    /// The same in one process while the others wait.
    #[serde(rename = "ycsb-a-alone")]
    YcsbAAlone,
    /// Reads alone.
    YcsbC,
    /// Bytes per item.
    Memory,
}

/// What a number means.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) enum Unit {
    /// Nanoseconds per operation.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Operations per second.
    #[serde(rename = "ops_s")]
    PerSecond,
    /// Bytes.
    #[serde(rename = "bytes_per_item")]
    BytesPerItem,
}

impl Test {
    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Scan => "scan",
            Self::YcsbA => "ycsb-a",
            Self::YcsbAAlone => "ycsb-a-alone",
            Self::YcsbC => "ycsb-c",
            Self::Memory => "memory",
        }
    }

    /// What a worker knows it by.
    pub(super) fn command(self) -> &'static str {
        match self {
            Self::YcsbAAlone => Self::YcsbA.name(),
            test => test.name(),
        }
    }

    /// Whether one process alone does it.
    pub(super) fn is_alone(self) -> bool {
        matches!(self, Self::Get | Self::Scan | Self::YcsbAAlone)
    }

    /// What comes out.
    pub(super) fn unit(self) -> Unit {
        match self {
            Self::Get | Self::Scan => Unit::Nanoseconds,
            Self::YcsbA | Self::YcsbAAlone | Self::YcsbC => Unit::PerSecond,
            Self::Memory => Unit::BytesPerItem,
        }
    }
}

/// The median of what a contender did.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measurement {
    /// What it did.
    pub(super) test: Test,
    /// Who.
    pub(super) contender: &'static str,
    /// How many operations each process or thread had in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) in_flight: Option<u64>,
    /// The number.
    pub(super) value: f64,
    /// What it means.
    pub(super) unit: Unit,
}

/// Farside against the best of some others.
#[derive(Clone, Debug, Serialize)]
struct Comparison {
    test: Test,
    /// Which of Farside's.
    own: &'static str,
    /// How many operations Farside had in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<u64>,
    /// The best of them.
    against: &'static str,
    /// How many times better Farside was.
    ratio: f64,
    /// What it should be at least.
    target: f64,
}

/// Everything that came out.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    kind: &'static str,
    items: u64,
    rounds: u64,
    cores: u64,
    seed: u64,
    measurements: Vec<Measurement>,
    comparisons: Vec<Comparison>,
}

const MAPS: &[&str] = &["scc", "papaya", "dashmap"];
const TREES: &[&str] = &["scc-tree", "skiplist", "congee"];
/// Test, operations in flight, against whom, ratio.
type Target = (Test, Option<u64>, &'static [&'static str], f64);
/// What the store aims at.
const TARGETS: [Target; 8] = [
    (Test::Get, Some(16), MAPS, 1.6),
    (Test::YcsbA, Some(1), MAPS, 0.5),
    (Test::YcsbA, Some(16), MAPS, 0.5),
    (Test::YcsbA, Some(1), &["lmdb"], 20.0),
    (Test::YcsbA, Some(16), &["lmdb"], 20.0),
    (Test::YcsbC, Some(1), &["lmdb"], 8.0),
    (Test::YcsbC, Some(16), &["lmdb"], 8.0),
    (Test::Memory, None, &["redis"], 2.0),
];

/// What the range index aims at, with either kind of leaf.
const ORDERED_TARGETS: [Target; 5] = [
    (Test::Get, Some(1), TREES, 1.0),
    (Test::Get, Some(16), TREES, 2.0),
    (Test::Get, Some(1), &["lmdb"], 3.0),
    (Test::Scan, Some(1), TREES, 1.0),
    (Test::Scan, Some(1), &["lmdb"], 3.0),
];

impl Report {
    /// Compares.
    pub(super) fn new(options: &EmbeddedOptions, measurements: Vec<Measurement>) -> Self {
        let (names, targets): (&[&'static str], &[Target]) = if options.is_ordered {
            (&["chime", "sherman", "rolex", "smart"], &ORDERED_TARGETS)
        } else {
            (&["farside"], &TARGETS)
        };
        let aims = names
            .iter()
            .flat_map(|&name| targets.iter().map(move |target| (name, target)));
        let comparisons = aims.filter_map(|(name, &(test, in_flight, others, target))| {
            let own = measurements.iter().find(|measurement| {
                (measurement.test, measurement.contender, measurement.in_flight) == (test, name, in_flight)
            })?;
            let ratio_to = |other: f64| match test.unit() {
                Unit::PerSecond => own.value / other,
                Unit::Nanoseconds | Unit::BytesPerItem => other / own.value,
            };
            let rivals = measurements
                .iter()
                .filter(|measurement| measurement.test == test && others.contains(&measurement.contender));
            let ratios = rivals.map(|rival| (rival.contender, ratio_to(rival.value)));
            // The best of the others leaves Farside the smallest ratio.
            let (against, ratio) = ratios.min_by(|one, other| one.1.total_cmp(&other.1))?;
            Some(Comparison {
                test,
                own: name,
                in_flight,
                against,
                ratio,
                target,
            })
        });
        Self {
            kind: "embedded",
            items: options.items,
            rounds: options.rounds,
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            seed: options.seed,
            comparisons: comparisons.collect(),
            measurements,
        }
    }

    /// One line of JSON.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a report is plain data")
    }

    /// Two tables.
    pub(super) fn to_table(&self) -> String {
        let mut text = format!(
            "{} items of 8 B/8 B, medians of {} rounds, {} cores\n",
            self.items, self.rounds, self.cores
        );
        for measurement in &self.measurements {
            let value = match measurement.unit {
                Unit::Nanoseconds => format!("{:.1} ns", measurement.value),
                Unit::PerSecond => format!("{}ops/s", with_prefix(measurement.value)),
                Unit::BytesPerItem => format!("{:.1} B per item", measurement.value),
            };
            let name = in_flight_text(measurement.test, measurement.in_flight);
            text += &format!("{name:24} {:10} {value:>18}\n", measurement.contender);
        }
        for comparison in &self.comparisons {
            let name = in_flight_text(comparison.test, comparison.in_flight);
            let verdict = if comparison.ratio >= comparison.target {
                "met"
            } else {
                "missed"
            };
            text += &format!(
                "{name:24} {:10} {:.2} times {}; target at least {}: {verdict}\n",
                comparison.own, comparison.ratio, comparison.against, comparison.target
            );
        }
        text.trim_end().to_owned()
    }
}

fn in_flight_text(test: Test, in_flight: Option<u64>) -> String {
    match in_flight {
        Some(in_flight) => format!("{}, {in_flight} in flight", test.name()),
        None => test.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> EmbeddedOptions {
        EmbeddedOptions {
            is_ordered: false,
            items: 1,
            rounds: 5,
            duration_ns: 1,
            folder: "/".into(),
            seed: 1,
            is_json: false,
        }
    }

    fn measured(test: Test, contender: &'static str, in_flight: Option<u64>, value: f64) -> Measurement {
        Measurement {
            test,
            contender,
            in_flight,
            value,
            unit: test.unit(),
        }
    }

    #[test]
    fn the_best_of_the_others_counts() {
        let report = Report::new(
            &options(),
            vec![
                measured(Test::Get, "farside", Some(16), 100.0),
                measured(Test::Get, "scc", Some(1), 90.0),
                measured(Test::Get, "papaya", Some(1), 50.0),
                measured(Test::YcsbA, "farside", Some(16), 6e6),
                measured(Test::YcsbA, "scc", Some(1), 2e6),
                measured(Test::YcsbA, "dashmap", Some(1), 3e6),
                measured(Test::YcsbA, "lmdb", Some(1), 1e5),
                measured(Test::Memory, "farside", None, 50.0),
                measured(Test::Memory, "redis", None, 90.0),
            ],
        );
        let found: Vec<_> = report.comparisons.iter().map(|one| (one.against, one.ratio)).collect();
        assert_eq!(
            found,
            [("papaya", 0.5), ("dashmap", 2.0), ("lmdb", 60.0), ("redis", 1.8)]
        );
        let text = report.to_table();
        assert_eq!(text.matches("missed").count(), 2, "{text}");
        assert_eq!(text.matches(": met").count(), 2, "{text}");
        assert!(report.to_json().starts_with("{\"kind\":\"embedded\""));
    }
}
