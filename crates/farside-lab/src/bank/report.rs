//! What is printed: a row for each contender, and Farside's against those from Redis.

use serde::Serialize;

use super::client::Tally;
use super::{BankOptions, Contender};
use crate::latency::median;
use crate::quantity::with_prefix;

/// Who should be how many times as fast as whom.
const TARGETS: [(Contender, Contender, f64); 5] = [
    (Contender::FarsideTransactions, Contender::Redlock, 20.0),
    (Contender::FarsideTransactions, Contender::Watch, 2.0),
    (Contender::FarsideTransactions, Contender::Function, 1.0),
    (Contender::FarsideLocks, Contender::Redlock, 20.0),
    // What the paper has found.
    (Contender::Shiftlock, Contender::Redlock, 6.57),
];

/// What one contender did in all rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    contender: Contender,
    /// Transactions per second, the median.
    transactions_s: f64,
    /// Median latency of a transaction, in microseconds: the median of the rounds'.
    latency_us_p50: f64,
    /// Latency that one of a hundred exceeds, likewise.
    latency_us_p99: f64,
    /// Transactions that only read, of all rounds.
    looks: u64,
    /// Transfers that moved money.
    transfers: u64,
    /// Transfers for which there was not enough.
    refused: u64,
    /// Attempts that came to nothing because of somebody else.
    retries: u64,
}

impl Row {
    /// Of one or more rounds that took so long each.
    pub(super) fn new(contender: Contender, rounds: &[Tally], duration_ns: u64) -> Self {
        let medians = |of: &dyn Fn(&Tally) -> f64| median(rounds.iter().map(of).collect());
        let sum = |of: &dyn Fn(&Tally) -> u64| rounds.iter().map(of).sum();
        let us = |quantile: f64| medians(&|tally| tally.latency.value_at_quantile(quantile) as f64 / 1e3);
        Self {
            contender,
            transactions_s: medians(&|tally| tally.transactions() as f64 * 1e9 / duration_ns as f64),
            latency_us_p50: us(0.5),
            latency_us_p99: us(0.99),
            looks: sum(&|tally| tally.looks),
            transfers: sum(&|tally| tally.transfers),
            refused: sum(&|tally| tally.refused),
            retries: sum(&|tally| tally.retries),
        }
    }

    /// Attempts in vain per thousand transactions.
    fn retries_per_thousand(&self) -> f64 {
        let transactions = self.looks + self.transfers + self.refused;
        self.retries as f64 * 1e3 / transactions.max(1) as f64
    }
}

/// One of Farside's against one from Redis, by transactions per second.
#[derive(Clone, Debug, Serialize)]
struct Comparison {
    ours: Contender,
    against: Contender,
    ratio: f64,
    /// What it should be at least.
    target: f64,
}

/// Everything that came out.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    kind: &'static str,
    fabric: &'static str,
    duration_s: f64,
    /// How many, if somebody said so.
    lock_names: Option<u64>,
    clients: u64,
    accounts: u64,
    theta: f64,
    redlock_servers: u64,
    /// Whether Farside's clients shared no connection.
    is_alone: bool,
    rounds: u64,
    cores: u64,
    seed: u64,
    measurements: Vec<Row>,
    comparisons: Vec<Comparison>,
}

impl Report {
    /// Compares those that took part.
    pub(super) fn new(options: &BankOptions, rows: Vec<Row>) -> Self {
        let rate = |contender| {
            let row = rows.iter().find(|row| row.contender == contender)?;
            // Of who has come to none there is no ratio.
            Some(row.transactions_s).filter(|&rate| rate > 0.0)
        };
        let comparisons = TARGETS.iter().filter_map(|&(ours, against, target)| {
            Some(Comparison {
                ours,
                against,
                ratio: rate(ours)? / rate(against)?,
                target,
            })
        });
        Self {
            kind: "bank",
            fabric: options.fabric.name(),
            duration_s: options.duration_ns as f64 / 1e9,
            lock_names: options.lock_names,
            clients: options.clients,
            accounts: options.accounts,
            theta: options.theta,
            redlock_servers: options.redlock_servers,
            is_alone: options.is_alone,
            rounds: options.rounds,
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            seed: options.seed,
            comparisons: comparisons.collect(),
            measurements: rows,
        }
    }

    /// One line of JSON.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a report is plain data")
    }

    /// Two tables.
    pub(super) fn to_table(&self) -> String {
        let mut text = format!(
            "{} accounts, {} clients, medians of {} rounds, {} cores; all money was there after every run\n",
            self.accounts, self.clients, self.rounds, self.cores
        );
        text += &format!(
            "{:22} {:>16} {:>10} {:>10} {:>18}\n",
            "", "transactions/s", "p50, us", "p99, us", "retries per 1000"
        );
        for row in &self.measurements {
            text += &format!(
                "{:22} {:>16} {:>10.0} {:>10.0} {:>18.2}\n",
                row.contender.name(),
                with_prefix(row.transactions_s).trim_end(),
                row.latency_us_p50,
                row.latency_us_p99,
                row.retries_per_thousand()
            );
        }
        for one in &self.comparisons {
            let verdict = if one.ratio >= one.target { "met" } else { "missed" };
            text += &format!(
                "{:22} {:.2} times {}; target at least {}: {verdict}\n",
                one.ours.name(),
                one.ratio,
                one.against.name(),
                one.target
            );
        }
        text.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::histogram;
    use crate::stage::FabricKind;

    fn tally(looks: u64, transfers: u64, latency_ns: u64) -> Tally {
        let mut latency = histogram();
        latency.record_n(latency_ns, looks + transfers).expect("in its bounds");
        Tally {
            looks,
            transfers,
            refused: 0,
            retries: 1,
            latency,
        }
    }

    fn row(contender: Contender, transactions: u64) -> Row {
        Row::new(contender, &[tally(0, transactions, 1_000)], 1_000_000_000)
    }

    fn report(rows: Vec<Row>) -> Report {
        let options = BankOptions {
            fabric: FabricKind::Tcp,
            clients: 64,
            accounts: 100,
            theta: 0.0,
            duration_ns: 1,
            rounds: 3,
            contenders: Contender::ALL.to_vec(),
            redlock_servers: 1,
            lock_names: None,
            is_alone: false,
            seed: 1,
            is_json: false,
        };
        Report::new(&options, rows)
    }

    #[test]
    fn a_row_has_medians_of_rates_and_latencies_and_sums_of_counts() {
        let rounds = [tally(15, 85, 2_000), tally(0, 300, 9_000), tally(0, 200, 4_000)];
        let row = Row::new(Contender::Watch, &rounds, 500_000_000);
        assert_eq!(row.transactions_s, 400.0);
        assert!((row.latency_us_p50 - 4.0).abs() < 0.01, "{row:?}");
        assert_eq!((row.looks, row.transfers, row.retries), (15, 585, 3));
        assert_eq!(row.retries_per_thousand(), 5.0);
    }

    #[test]
    fn targets_are_compared_if_both_have_taken_part() {
        let all = report(vec![
            row(Contender::FarsideLocks, 500),
            row(Contender::FarsideTransactions, 600),
            row(Contender::Redlock, 30),
            row(Contender::Watch, 400),
            row(Contender::Function, 600),
        ]);
        let ratios: Vec<_> = (all.comparisons.iter()).map(|one| (one.ratio, one.target)).collect();
        assert_eq!(ratios, [(20.0, 20.0), (1.5, 2.0), (1.0, 1.0), (500.0 / 30.0, 20.0)]);
        let text = all.to_table();
        assert_eq!(text.matches("missed").count(), 2, "{text}");
        assert_eq!(text.matches(": met").count(), 2, "{text}");
        assert!(
            text.contains("farside-transactions   1.50 times watch; target at least 2: missed"),
            "{text}"
        );
        assert!(all.to_json().starts_with(r#"{"kind":"bank","#));
        let alone = report(vec![row(Contender::FarsideLocks, 500), row(Contender::Watch, 400)]);
        assert!(alone.comparisons.is_empty());
    }
}
