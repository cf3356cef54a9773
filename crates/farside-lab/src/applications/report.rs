//! What is printed: a row for all transactions and one for each type, and what the audit has verified.

use std::collections::BTreeMap;

use serde::Serialize;

use super::client::{KindTally, Tally};
use super::{ApplicationKind, ApplicationOptions};
use crate::latency::median;
use crate::quantity::with_prefix;

/// What came out for some transactions, in all rounds.
#[derive(Clone, Debug, Serialize)]
struct Row {
    /// The type; `all`.
    transaction: &'static str,
    /// Transactions that have done what they are for, per second: the median of the rounds.
    committed_s: f64,
    /// How many they were, in all rounds.
    committed: u64,
    /// Transactions that have changed nothing, as their specification says for what they have found.
    refused: u64,
    /// Attempts for each transaction that came to its end.
    attempts: f64,
    /// Median latency with all attempts, in microseconds: the median of the rounds'.
    latency_us_p50: f64,
    /// Latency that one of a hundred exceeds, likewise.
    latency_us_p99: f64,
    /// Verbs of one, and how often it posted some: known if each client had a thread to itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    verbs: Option<f64>,
    /// See there.
    #[serde(skip_serializing_if = "Option::is_none")]
    posts: Option<f64>,
}

impl Row {
    /// Of rounds that took so many nanoseconds each.
    fn new(transaction: &'static str, rounds: &[(KindTally, u64)]) -> Self {
        let medians = |of: &dyn Fn(&KindTally, f64) -> f64| {
            let values = rounds.iter().map(|(tally, elapsed_ns)| of(tally, *elapsed_ns as f64));
            median(values.collect())
        };
        let sum = |of: fn(&KindTally) -> u64| rounds.iter().map(|(tally, _)| of(tally)).sum::<u64>();
        let us = |quantile: f64| medians(&|tally, _| tally.latency.value_at_quantile(quantile) as f64 / 1e3);
        let (committed, refused) = (sum(|tally| tally.committed), sum(|tally| tally.refused));
        let ended = (committed + refused).max(1) as f64;
        let counted = sum(|tally| tally.posted.1);
        let each = |count: u64| (counted > 0).then(|| count as f64 / counted as f64);
        Self {
            transaction,
            committed_s: medians(&|tally, elapsed_ns| tally.committed as f64 * 1e9 / elapsed_ns.max(1.0)),
            committed,
            refused,
            attempts: 1.0 + sum(|tally| tally.retries) as f64 / ended,
            latency_us_p50: us(0.5),
            latency_us_p99: us(0.99),
            verbs: each(sum(|tally| tally.posted.0.verbs.total())),
            posts: each(sum(|tally| tally.posted.0.doorbells)),
        }
    }
}

/// Everything that came out.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    kind: &'static str,
    workload: ApplicationKind,
    /// Subscribers, warehouses or customers.
    scale: u64,
    fabric: &'static str,
    index: &'static str,
    clients: u64,
    rounds: u64,
    cores: u64,
    seed: u64,
    /// All transactions first, then each type.
    measurements: Vec<Row>,
    /// What the audit has verified after every round.
    verified: Vec<&'static str>,
    /// How many rows it has read at the end.
    rows: u64,
}

impl Report {
    /// Of one round or more.
    pub(super) fn new(
        options: &ApplicationOptions,
        scale: u64,
        rounds: &[Tally],
        (verified, rows): (Vec<&'static str>, u64),
    ) -> Self {
        let mut kinds: BTreeMap<_, Vec<(KindTally, u64)>> = BTreeMap::new();
        let mut all = Vec::new();
        for round in rounds {
            let mut sum = KindTally::new();
            for (&kind, tally) in &round.kinds {
                sum.absorb(tally);
                kinds.entry(kind).or_default().push((tally.clone(), round.elapsed_ns));
            }
            all.push((sum, round.elapsed_ns));
        }
        let mut measurements = vec![Row::new("all", &all)];
        measurements.extend(kinds.iter().map(|(kind, rounds)| Row::new(kind.name(), rounds)));
        Self {
            kind: "transactions",
            workload: options.application,
            scale,
            fabric: options.site.fabric.name(),
            index: options.site.index.name(),
            clients: options.clients,
            rounds: options.rounds,
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            seed: options.seed,
            measurements,
            verified,
            rows,
        }
    }

    /// One line of JSON.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a report is plain data")
    }

    /// A table, and what was verified.
    pub(super) fn to_table(&self) -> String {
        let mut text = format!(
            "{}, {} {}, {} over {}, {} clients, medians of {} rounds, {} cores\n",
            self.workload.name(),
            self.scale,
            self.workload.scaled(),
            self.index,
            self.fabric,
            self.clients,
            self.rounds,
            self.cores
        );
        text += &format!(
            "{:24} {:>12} {:>11} {:>9} {:>9} {:>10} {:>10} {:>7} {:>7}\n",
            "", "committed/s", "committed", "refused", "attempts", "p50, us", "p99, us", "verbs", "posts"
        );
        for row in &self.measurements {
            text += &format!(
                "{:24} {:>12} {:>11} {:>9} {:>9.3} {:>10.1} {:>10.1} {:>7} {:>7}\n",
                row.transaction,
                with_prefix(row.committed_s).trim_end(),
                row.committed,
                row.refused,
                row.attempts,
                row.latency_us_p50,
                row.latency_us_p99,
                known(row.verbs),
                known(row.posts)
            );
        }
        text += &format!("verified after every round, of {} rows in the end:\n", self.rows);
        for condition in &self.verified {
            text += &format!("  {condition}\n");
        }
        text.trim_end().to_owned()
    }
}

/// A number with one digit behind the point, if it is known.
fn known(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.1}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::applications::{Limit, SiteOptions};
    use crate::stage::FabricKind;
    use crate::workload::TransactionKind;

    fn tally(committed: u64, refused: u64, latency_ns: u64) -> Tally {
        let mut kind = KindTally::new();
        (kind.committed, kind.refused, kind.retries) = (committed, refused, 5);
        let recorded = kind.latency.record_n(latency_ns, committed + refused);
        recorded.expect("in its bounds");
        Tally {
            kinds: [
                (TransactionKind::Balance, kind.clone()),
                (TransactionKind::WriteCheck, kind),
            ]
            .into(),
            elapsed_ns: 500_000_000,
            ..Tally::default()
        }
    }

    #[test]
    fn a_row_has_medians_of_rates_and_latencies_and_sums_of_counts() {
        let options = ApplicationOptions {
            application: ApplicationKind::Smallbank,
            scale: None,
            items: None,
            customers: None,
            clients: 4,
            limit: Limit::Duration(500_000_000),
            rounds: 3,
            site: SiteOptions {
                fabric: FabricKind::Tcp,
                index: farside_kv::IndexKind::Race,
            },
            seed: 1,
            is_json: false,
        };
        let rounds = [tally(90, 10, 2_000), tally(300, 0, 9_000), tally(195, 5, 4_000)];
        let report = Report::new(&options, 100, &rounds, (vec!["the sum"], 200));
        let [all, balance, _] = &report.measurements[..] else {
            panic!("all and two types");
        };
        assert_eq!((all.transaction, balance.transaction), ("all", "balance"));
        assert_eq!((balance.committed_s, all.committed_s), (390.0, 780.0));
        assert_eq!((balance.committed, balance.refused), (585, 15));
        assert_eq!(balance.attempts, 1.025);
        assert_eq!((balance.verbs, balance.posts), (None, None), "no client was alone");
        assert!((all.latency_us_p50 - 4.0).abs() < 0.01, "{all:?}");
        assert!(
            report
                .to_json()
                .starts_with(r#"{"kind":"transactions","workload":"smallbank""#)
        );
        let text = report.to_table();
        assert!(text.contains("smallbank, 100 customers, race over tcp"), "{text}");
        assert!(text.ends_with("of 200 rows in the end:\n  the sum"), "{text}");
    }
}
