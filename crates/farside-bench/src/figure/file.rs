//! The file of a figure.
//!
//! ```toml
//! id = "cider-1"                  # its name on the command line
//! title = "..."                   # what it shows
//! source = "CIDER, Figure 1"      # where it was published
//! setup = "..."                   # what ours has in common with the original, and what not
//!
//! [x]                             # what is swept, if it is not the number of clients
//! key = "locks"                   # `locks`, `theta`, `read_ratio` or `section_verbs`
//! label = "locks"
//! values = [1000, 10000000]
//! log = true                      # whether equal factors are equally far apart in the plot
//!
//! [[panel]]                       # what is plotted over it
//! key = "throughput_ops_s"        # a key of the report; parts are joined with dots
//! label = "throughput, ops/s"
//! series = ["optimistic"]         # which series are in it; all, if it does not say
//!
//! [[series]]
//! name = "optimistic"             # how claims call it
//! label = "O-SYNC"
//! clients = [1, 8, 16]            # the sweep; one number if something else is swept
//! clients_per_cn = 4
//! profile = "cx6"
//! duration = "20ms"
//! store = { sync = "optimistic", items = 60000000, workload = "write-intensive", theta = 0.99 }
//!
//! [quick]                         # what --quick changes, in every series
//! items = 2000000
//!
//! [[claim]]
//! text = "clients at the peak"
//! paper = 48.0                    # the published value, if there is one
//! measure = { peak_at = { series = "optimistic", key = "throughput_ops_s" } }
//! accept = { range = [48.0, 64.0] }
//! known = "..."                   # why it is missed, if it is and the reason is known
//! ```

use serde::Deserialize;

use super::claim::Claim;
use crate::quantity::parse_duration;
use crate::workload::Workload;

/// A published figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its name on the command line.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// What ours has in common with the original, and what not.
    pub setup: String,
    /// What is swept, if it is not the number of clients.
    pub x: Option<Axis>,
    /// What is plotted.
    #[serde(rename = "panel")]
    pub panels: Vec<Panel>,
    /// What is run.
    pub series: Vec<Series>,
    /// What `--quick` changes.
    #[serde(default)]
    pub quick: Quick,
    /// What is claimed.
    #[serde(rename = "claim")]
    pub claims: Vec<Claim>,
}

/// One plot.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Panel {
    /// A key of the report.
    pub key: String,
    /// What stands at the axis.
    pub label: String,
    /// Names of the series that are in it; none stands for all.
    #[serde(default)]
    pub series: Vec<String>,
}

impl Panel {
    /// Whether a series is in it.
    #[must_use]
    pub fn shows(&self, series: &Series) -> bool {
        self.series.is_empty() || self.series.contains(&series.name)
    }
}

/// What is swept.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Which part of a series it stands for.
    pub key: AxisKey,
    /// What stands at the axis.
    pub label: String,
    /// Its values.
    pub values: Vec<f64>,
    /// Whether equal factors are equally far apart in the plot.
    #[serde(default)]
    pub log: bool,
}

/// A part of a series that can be swept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AxisKey {
    /// How many locks there are.
    Locks,
    /// Skew.
    Theta,
    /// The share of acquires in shared mode.
    ReadRatio,
    /// How many words are read while a lock is held.
    SectionVerbs,
}

/// One line of the plot.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// How claims call it.
    pub name: String,
    /// What stands beside the line.
    pub label: String,
    /// The sweep.
    pub clients: Vec<u64>,
    /// How many clients share a compute node.
    pub clients_per_cn: u64,
    /// Name of the NIC profile.
    pub profile: String,
    /// How long is measured.
    pub duration: String,
    /// What the clients do: one of the two.
    pub lock: Option<LockSeries>,
    /// See `lock`.
    pub store: Option<StoreSeries>,
}

/// A series that takes locks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockSeries {
    /// Name of the lock.
    pub name: String,
    /// How many there are.
    pub locks: u64,
    /// Skew.
    #[serde(default)]
    pub theta: f64,
    /// The share of acquires in shared mode.
    #[serde(default)]
    pub read_ratio: f64,
    /// How many words are read while a lock is held.
    #[serde(default)]
    pub section_verbs: u64,
}

/// A series that works on an index.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSeries {
    /// Name of the scheme.
    pub sync: String,
    /// How many keys there are.
    pub items: u64,
    /// Name of the workload.
    pub workload: String,
    /// Skew.
    pub theta: f64,
}

/// What `--quick` changes.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Another sweep of clients.
    pub clients: Option<Vec<u64>>,
    /// Other values of what is swept instead.
    pub values: Option<Vec<f64>>,
    /// Fewer keys.
    pub items: Option<u64>,
    /// A shorter time.
    pub duration: Option<String>,
}

impl Figure {
    /// Reads a file, and checks what can be checked without running it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let figure: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        for series in &figure.series {
            let name = &series.name;
            if series.lock.is_some() == series.store.is_some() {
                return Err(format!("series {name} must have one of `lock` and `store`"));
            }
            for is_quick in [false, true] {
                parse_duration(figure.duration_of(series, is_quick))?;
                if figure.xs_of(series, is_quick).is_empty() {
                    return Err(format!("series {name} sweeps nothing"));
                }
            }
            if figure.x.is_some() && (series.clients.len() != 1 || series.lock.is_none()) {
                return Err(format!(
                    "series {name} takes locks with one number of clients, since [x] is swept"
                ));
            }
            if let Some(store) = &series.store {
                Workload::by_name(&store.workload)?;
            }
        }
        let unknown = |name: &&String| figure.series.iter().all(|series| series.name != **name);
        if let Some(name) = figure.panels.iter().flat_map(|panel| &panel.series).find(unknown) {
            return Err(format!("a panel names a series {name} that there is not"));
        }
        Ok(figure)
    }

    /// What stands at the axis of what is swept.
    #[must_use]
    pub fn x_label(&self) -> &str {
        self.x.as_ref().map_or("clients", |axis| &axis.label)
    }

    /// The values that are swept in a series.
    #[must_use]
    pub fn xs_of(&self, series: &Series, is_quick: bool) -> Vec<f64> {
        match &self.x {
            Some(axis) => self
                .quick
                .values
                .as_ref()
                .filter(|_| is_quick)
                .unwrap_or(&axis.values)
                .clone(),
            None => self
                .clients_of(series, is_quick)
                .iter()
                .map(|&clients| clients as f64)
                .collect(),
        }
    }

    /// How many clients a series has, one after the other.
    #[must_use]
    pub fn clients_of<'a>(&'a self, series: &'a Series, is_quick: bool) -> &'a [u64] {
        self.quick
            .clients
            .as_ref()
            .filter(|_| is_quick)
            .unwrap_or(&series.clients)
    }

    /// How long a series is measured.
    #[must_use]
    pub fn duration_of<'a>(&'a self, series: &'a Series, is_quick: bool) -> &'a str {
        self.quick
            .duration
            .as_ref()
            .filter(|_| is_quick)
            .unwrap_or(&series.duration)
    }
}
