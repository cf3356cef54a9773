//! What is printed: a row for each lock.

use serde::Serialize;

use crate::quantity::with_prefix;

/// Times in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct HandOver {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// Several who take one lock as often as they can.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Share {
    /// How many.
    pub(super) members: u64,
    /// How often they had it together, per second.
    pub(super) acquires_s: f64,
    /// What the one that had it least often got of its fair share.
    pub(super) least_share: f64,
    /// How long somebody waited.
    pub(super) longest_wait_ms: f64,
}

/// The medians of one lock.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) kind: &'static str,
    pub(super) lock: &'static str,
    pub(super) rounds: u64,
    pub(super) cores: u64,
    /// Nanoseconds per acquire and release of a lock that nobody else wants.
    pub(super) exclusive_ns: f64,
    /// The same for readers, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shared_ns: Option<f64>,
    /// The other has waited for a microsecond.
    pub(super) hand_over_short_us: HandOver,
    /// The other has waited for 300 microseconds.
    pub(super) hand_over_long_us: HandOver,
    pub(super) shares: Vec<Share>,
}

impl Row {
    /// One line of JSON.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a row is plain data")
    }
}

/// A table of all rows.
pub(super) fn to_table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:22} {:>9} {:>9} {:>17} {:>17}  members: acquires, least of a fair share, longest wait\n",
        "lock", "exclusive", "shared", "hand-over, short", "hand-over, long"
    );
    for row in rows {
        let shared = row.shared_ns.map_or("-".to_owned(), |ns| format!("{ns:.0} ns"));
        let hand_over = |times: HandOver| format!("{:.1} ({:.0}) us", times.p50, times.p99);
        let shares: Vec<String> = (row.shares.iter())
            .map(|share| {
                format!(
                    "{}: {}/s, {:.2}, {:.1} ms",
                    share.members,
                    with_prefix(share.acquires_s),
                    share.least_share,
                    share.longest_wait_ms
                )
            })
            .collect();
        text += &format!(
            "{:22} {:>9} {:>9} {:>17} {:>17}  {}\n",
            row.lock,
            format!("{:.0} ns", row.exclusive_ns),
            shared,
            hand_over(row.hand_over_short_us),
            hand_over(row.hand_over_long_us),
            shares.join("; ")
        );
    }
    text + "hand-over: median (99th percentile)"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_was_measured() {
        let times = HandOver { p50: 1.5, p99: 20.0 };
        let row = Row {
            kind: "lock-peers",
            lock: "mcs",
            rounds: 5,
            cores: 2,
            exclusive_ns: 60.4,
            shared_ns: None,
            hand_over_short_us: times,
            hand_over_long_us: times,
            shares: vec![Share {
                members: 2,
                acquires_s: 20_000.0,
                least_share: 0.96,
                longest_wait_ms: 1.0,
            }],
        };
        let text = to_table(std::slice::from_ref(&row));
        assert!(
            text.contains("2: 20.0 k/s, 0.96, 1.0 ms") && text.contains("60 ns"),
            "{text}"
        );
        assert!(row.to_json().starts_with("{\"kind\":\"lock-peers\",\"lock\":\"mcs\""));
        assert!(!row.to_json().contains("shared_ns"));
    }
}
