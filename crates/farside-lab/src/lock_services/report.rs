//! What is printed: a row for each contender, and our best over TCP against the best of the others.

use serde::Serialize;

use crate::quantity::with_prefix;

/// What our best over TCP should be, in times of the best of the others.
const TARGET: f64 = 5.0;

/// The median of one contender.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) contender: String,
    /// Ours have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fabric: Option<&'static str>,
    pub(super) clients: u64,
    pub(super) locks: u64,
    /// Acquires and releases per second.
    pub(super) cycles_s: f64,
}

/// Our best over TCP against the best of the others.
#[derive(Clone, Debug, Serialize)]
struct Comparison {
    clients: u64,
    locks: u64,
    ours: String,
    against: String,
    ratio: f64,
    target: f64,
}

/// Everything that came out.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    kind: &'static str,
    rounds: u64,
    cores: u64,
    measurements: Vec<Row>,
    comparisons: Vec<Comparison>,
}

impl Report {
    /// Compares.
    pub(super) fn new(rounds: u64, rows: Vec<Row>) -> Self {
        let mut settings: Vec<_> = rows.iter().map(|row| (row.clients, row.locks)).collect();
        settings.dedup();
        let best = |(clients, locks), fabric: Option<&str>| {
            let rows = rows
                .iter()
                .filter(move |row| (row.clients, row.locks) == (clients, locks) && row.fabric == fabric);
            rows.max_by(|one, other| one.cycles_s.total_cmp(&other.cycles_s))
        };
        let mut comparisons = Vec::new();
        let mut compared = Vec::new();
        for setting in settings {
            if compared.contains(&setting) {
                continue;
            }
            compared.push(setting);
            if let (Some(ours), Some(others)) = (best(setting, Some("tcp")), best(setting, None)) {
                comparisons.push(Comparison {
                    clients: setting.0,
                    locks: setting.1,
                    ours: ours.contender.clone(),
                    against: others.contender.clone(),
                    ratio: ours.cycles_s / others.cycles_s,
                    target: TARGET,
                });
            }
        }
        Self {
            kind: "lock-services",
            rounds,
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            comparisons,
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
            "acquires and releases per second, medians of {} rounds, {} cores\n",
            self.rounds, self.cores
        );
        for row in &self.measurements {
            text += &format!(
                "{:>6} locks {:>3} clients  {:4} {:20} {:>12}/s\n",
                row.locks,
                row.clients,
                row.fabric.unwrap_or(""),
                row.contender,
                with_prefix(row.cycles_s)
            );
        }
        for one in &self.comparisons {
            let verdict = if one.ratio >= one.target { "met" } else { "missed" };
            text += &format!(
                "{:>6} locks {:>3} clients  {} over tcp is {:.2} times {}; target at least {}: {verdict}\n",
                one.locks, one.clients, one.ours, one.ratio, one.against, one.target
            );
        }
        if self.comparisons.is_empty() {
            text += "nobody to compare with: --redis, --redlock and --etcd name servers; scripts/compare-locks starts them\n";
        }
        text.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(contender: &str, fabric: Option<&'static str>, locks: u64, cycles_s: f64) -> Row {
        Row {
            contender: contender.to_owned(),
            fabric,
            clients: 16,
            locks,
            cycles_s,
        }
    }

    #[test]
    fn the_best_of_the_others_counts() {
        let report = Report::new(
            5,
            vec![
                row("declock", Some("tcp"), 1, 600.0),
                row("declock", Some("shm"), 1, 9_000.0),
                row("redis", None, 1, 100.0),
                row("etcd", None, 1, 10.0),
                row("declock", Some("tcp"), 10_000, 300.0),
                row("redis", None, 10_000, 100.0),
            ],
        );
        let ratios: Vec<_> = (report.comparisons.iter())
            .map(|one| (one.locks, one.against.as_str(), one.ratio))
            .collect();
        assert_eq!(ratios, [(1, "redis", 6.0), (10_000, "redis", 3.0)]);
        let text = report.to_table();
        assert_eq!(
            (text.matches(": met").count(), text.matches("missed").count()),
            (1, 1),
            "{text}"
        );
        let alone = Report::new(5, vec![row("declock", Some("tcp"), 1, 600.0)]).to_table();
        assert!(alone.contains("--redis"), "{alone}");
    }
}
