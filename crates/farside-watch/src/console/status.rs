//! What is shown to everybody who sees the metrics: rates, latencies, memory, nodes, index. No keys, nobody's address.
//!
//! A report is taken when somebody asks, at most once a second, so whoever looks costs the same as `farside top`; the
//! last minutes are kept for whoever comes next.

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;

use farside_fabric::host::HostClock;
use farside_gateway::{Latencies, Report};
use serde_json::{Value, json};

use super::keys::value_in;
use crate::history::{Change, History};
use crate::metrics::Source;

/// A report is good for so long.
const FRESH_NS: u64 = 900_000_000;
/// After so long without a look a new history begins: one number for the whole of that time would say little.
const GAP_NS: u64 = 10_000_000_000;
/// How many seconds are kept.
const POINTS_MAX: usize = 300;

/// A second: when it ended, commands per second, and latencies of half and of nearly all reads and writes.
#[derive(Clone, Copy)]
struct Point {
    at_ms: u64,
    commands: f64,
    quantiles_ns: [Option<u64>; 4],
}

/// What was seen lately.
pub(super) struct Status {
    address: SocketAddr,
    history: RefCell<History>,
    points: RefCell<VecDeque<Point>>,
    looked_ns: Cell<u64>,
}

impl Status {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            history: RefCell::new(History::new(address)),
            points: RefCell::default(),
            looked_ns: Cell::default(),
        }
    }

    /// Everything as JSON; the points after `since`, which the query may name.
    pub(super) async fn tell(
        &self,
        query: &str,
        source: &dyn Source,
        access: &'static str,
        user: Option<String>,
    ) -> Value {
        let now_ns = HostClock.now_ns();
        let age_ns = now_ns.saturating_sub(self.looked_ns.get());
        if age_ns >= FRESH_NS {
            self.looked_ns.set(now_ns);
            let mut report = source.report().await;
            report.hot_keys.clear();
            self.take(report, age_ns >= GAP_NS);
        }
        let since_ms = value_in(query, "since")
            .and_then(|since| since.parse().ok())
            .unwrap_or(0_u64);
        let points = self.points.borrow();
        let points = points.iter().filter(|point| point.at_ms > since_ms);
        let points: Value = points
            .map(|point| {
                let mut numbers = vec![json!(point.at_ms), json!(point.commands)];
                numbers.extend(point.quantiles_ns.map(|quantile| json!(quantile)));
                Value::from(numbers)
            })
            .collect();
        let history = self.history.borrow();
        let mut report = history.report.clone().unwrap_or_default();
        // The rates have what is to be seen of them.
        report.latencies.clear();
        json!({
            "now_ms": HostClock.unix_ms(),
            "kind": if source.serves_clients() { "gateway" } else { "node" },
            "access": access,
            "user": user,
            "report": report,
            "rates": history.change.as_ref().map(rates),
            "points": points,
        })
    }

    fn take(&self, report: Report, is_gap: bool) {
        let mut history = self.history.borrow_mut();
        let mut points = self.points.borrow_mut();
        let is_other_run = history.report.as_ref().is_some_and(|last| last.run != report.run);
        if is_gap || is_other_run {
            *history = History::new(self.address);
            points.clear();
        }
        history.take(Ok(report));
        let Some(change) = &history.change else { return };
        let quantile = |group, part| change.latencies.get(group)?.quantile_ns(part);
        if points.len() == POINTS_MAX {
            points.pop_front();
        }
        points.push_back(Point {
            at_ms: HostClock.unix_ms(),
            commands: change.commands,
            quantiles_ns: [
                quantile("read", 0.5),
                quantile("read", 0.99),
                quantile("write", 0.5),
                quantile("write", 0.99),
            ],
        });
    }
}

fn rates(change: &Change) -> Value {
    let group = |(name, latencies): (&String, &Latencies)| {
        let quantiles = [0.5, 0.99, 0.999].map(|part| latencies.quantile_ns(part));
        json!({ "name": name, "rate": change.rate_of(latencies), "quantiles_ns": quantiles })
    };
    json!({
        "commands": change.commands,
        "errors": change.errors,
        "retries": change.retries,
        "bytes_in": change.bytes_in,
        "bytes_out": change.bytes_out,
        "hit_rate": change.hit_rate,
        "epochs": change.epochs,
        "by_name": change.by_name.iter().take(12).collect::<Vec<_>>(),
        "groups": change.latencies.iter().map(group).collect::<Vec<_>>(),
        "verbs": change.per_command.as_ref().map(|cost| &cost.verbs),
    })
}
