//! The metrics: a report in the form that Prometheus reads.
//!
//! On the path: a scrape. [`gateway`] and [`pool`] make families of samples, plain data that tests can
//! look at; [`encode`] writes them. `docs/metrics.md` has a row for each family, and a test holds the two
//! together.
//!
//! Names: `farside_`, what is measured, the unit if it is not a number of things; counters end in `_total`.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::latency::Latencies;
use crate::mirrors::{MirrorReport, ROLES};
use crate::report::{PoolReport, Report};
use crate::statistics::{DESCRIBED, Nature};

/// How the text is announced to whoever asked.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PREFIX: &str = "farside";

/// Metrics of one name.
#[derive(Clone, PartialEq, Debug)]
pub struct Family {
    name: &'static str,
    unit: Option<&'static str>,
    help: &'static str,
    samples: Samples,
}

type Labels = Vec<(&'static str, String)>;

#[derive(Clone, PartialEq, Debug)]
enum Samples {
    Counters(Vec<(Labels, u64)>),
    Gauges(Vec<(Labels, f64)>),
    Histograms(Vec<(Labels, Latencies)>),
    Info(Labels),
}

impl Family {
    fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self {
            name,
            unit: None,
            help,
            samples: Samples::Counters(vec![(Vec::new(), value)]),
        }
    }

    fn gauge(name: &'static str, unit: Option<&'static str>, help: &'static str, value: f64) -> Self {
        Self {
            name,
            unit,
            help,
            samples: Samples::Gauges(vec![(Vec::new(), value)]),
        }
    }

    fn metric_type(&self) -> MetricType {
        match self.samples {
            Samples::Counters(_) => MetricType::Counter,
            Samples::Gauges(_) => MetricType::Gauge,
            Samples::Histograms(_) => MetricType::Histogram,
            Samples::Info(_) => MetricType::Info,
        }
    }
}

/// What program this is; for every kind of process.
#[must_use]
pub fn build() -> Family {
    Family {
        name: "build",
        unit: None,
        help: "The program that answers.",
        samples: Samples::Info(vec![("version", env!("CARGO_PKG_VERSION").to_owned())]),
    }
}

/// How long a process has been running, in seconds.
#[must_use]
pub fn uptime(seconds: f64) -> Family {
    Family::gauge(
        "uptime",
        Some("seconds"),
        "How long the process has been serving.",
        seconds,
    )
}

/// The metrics of a gateway and of the pool that it sees.
#[must_use]
pub fn gateway(report: &Report) -> Vec<Family> {
    let mut families = vec![
        build(),
        uptime(report.uptime_ms as f64 / 1000.0),
        Family::gauge("threads", None, "Threads that serve clients.", report.threads as f64),
        Family::gauge(
            "connections_limit",
            None,
            "How many connections there can be at once.",
            report.connections_max as f64,
        ),
    ];
    if let Some(bytes) = report.memory_limit {
        families.push(Family::gauge(
            "memory_limit",
            Some("bytes"),
            "How many bytes may be in use (`maxmemory`); absent if only the memory limits it.",
            bytes as f64,
        ));
    }
    families.push(Family {
        name: "eviction",
        unit: None,
        help: "What happens when no more memory may be used (`maxmemory-policy`).",
        samples: Samples::Info(vec![("policy", report.eviction_policy.clone())]),
    });
    families.extend(DESCRIBED.iter().map(|described| {
        let value = (described.value)(&report.counts);
        Family {
            name: described.metric,
            unit: described.unit,
            help: described.help,
            samples: match described.nature {
                Nature::Counter => Samples::Counters(vec![(Vec::new(), value)]),
                Nature::Gauge => Samples::Gauges(vec![(Vec::new(), value as f64)]),
            },
        }
    }));
    let labelled = |label: &'static str, counts: &std::collections::BTreeMap<String, u64>| {
        let counts = counts.iter();
        Samples::Counters(
            counts
                .map(|(name, &count)| (vec![(label, name.clone())], count))
                .collect(),
        )
    };
    families.push(Family {
        name: "commands",
        unit: None,
        help: "Commands that were executed, by name; one that never was is absent.",
        samples: labelled("command", &report.commands),
    });
    families.push(Family {
        name: "command_latency",
        unit: Some("seconds"),
        help: "From the arrival of a command to its reply being ready; commands of one burst share its time.",
        samples: Samples::Histograms(
            report
                .latencies
                .iter()
                .map(|(group, latencies)| (vec![("group", group.clone())], latencies.clone()))
                .collect(),
        ),
    });
    families.push(Family {
        name: "verbs",
        unit: None,
        help: "Verbs that were posted to memory nodes, by kind, housekeeping included.",
        samples: labelled("kind", &report.verbs),
    });
    families.extend(pool(report.pool.as_ref()));
    let mirrors = report.nodes.iter().enumerate();
    families.extend(mirrored(
        mirrors.filter_map(|(node, report)| Some((node.to_string(), report.mirror.as_ref()?))),
    ));
    families
}

/// The metrics of mirrored nodes, by their names; none if no node is mirrored.
#[must_use]
pub fn mirrored<'r>(nodes: impl Iterator<Item = (String, &'r MirrorReport)>) -> Vec<Family> {
    let nodes: Vec<(String, &MirrorReport)> = nodes.collect();
    if nodes.is_empty() {
        return Vec::new();
    }
    let of_nodes = |value: fn(&MirrorReport) -> f64| {
        let samples = nodes.iter();
        let samples = samples.map(|(node, mirror)| (vec![("node", node.clone())], value(mirror)));
        Samples::Gauges(samples.collect())
    };
    let of_members = |value: fn(&crate::MemberReport) -> f64| {
        let members = (nodes.iter()).flat_map(|(node, mirror)| mirror.members.iter().map(move |member| (node, member)));
        let samples = members.map(|(node, member)| {
            let labels = vec![("node", node.clone()), ("member", member.address.clone())];
            (labels, value(member))
        });
        Samples::Gauges(samples.collect())
    };
    let by_role = nodes.iter().flat_map(|(node, mirror)| {
        ROLES.map(|role| {
            let labels = vec![("node", node.clone()), ("role", role.to_owned())];
            (labels, mirror.count(role) as f64)
        })
    });
    let family = |name, unit, help, samples| Family {
        name,
        unit,
        help,
        samples,
    };
    vec![
        family(
            "mirror_up",
            None,
            "1 if the primary of a mirrored node answers, 0 if not; nothing is served of the node then.",
            of_nodes(|mirror| if mirror.has_primary { 1.0 } else { 0.0 }),
        ),
        family(
            "mirror_epoch",
            None,
            "The epoch of a mirrored node: one more with each change of its members; 0 if none answers.",
            of_nodes(|mirror| mirror.epoch as f64),
        ),
        family(
            "mirror_members",
            None,
            "Members of a mirrored node by role: `primary`, `backup`, `joining`, `standby`, `idle`, `silent` if it does not answer.",
            Samples::Gauges(by_role.collect()),
        ),
        family(
            "mirror_lag_entries",
            None,
            "Changes that a member of a mirrored node is behind the primary.",
            of_members(|member| member.lag_entries as f64),
        ),
        family(
            "mirror_lag",
            Some("bytes"),
            "Memory that is still to be copied to a member of a mirrored node.",
            of_members(|member| member.lag_bytes as f64),
        ),
    ]
}

/// The metrics of a pool, or of the one node that a process serves; only that it is not there if it
/// cannot be looked at.
#[must_use]
pub fn pool(pool: Option<&PoolReport>) -> Vec<Family> {
    let mut families = vec![Family::gauge(
        "pool_up",
        None,
        "1 if the pool could be looked at in the last seconds, 0 if not; what is said of it is absent then.",
        if pool.is_some() { 1.0 } else { 0.0 },
    )];
    let Some(pool) = pool else { return families };
    let uses = [
        ("tables", pool.bytes_tables),
        ("index", pool.bytes_index),
        ("blocks", pool.bytes_by_block.values().sum()),
        ("large", pool.bytes_large),
        ("free", pool.bytes_free),
    ];
    families.push(Family {
        name: "pool_memory",
        unit: Some("bytes"),
        help: "Memory by use: tables, the index, chunks cut into blocks, larger blocks, free chunks.",
        samples: Samples::Gauges(
            uses.map(|(name, bytes)| (vec![("use", name.to_owned())], bytes as f64))
                .into(),
        ),
    });
    let classes = pool.bytes_by_block.iter();
    families.push(Family {
        name: "pool_class_memory",
        unit: Some("bytes"),
        help: "Memory of chunks that are cut into blocks, used or not, by the bytes of a block.",
        samples: Samples::Gauges(
            classes
                .map(|(block, &bytes)| (vec![("block_bytes", block.to_string())], bytes as f64))
                .collect(),
        ),
    });
    if let (Some(epoch), Some(deaths)) = (pool.epoch, pool.deaths) {
        families.push(Family::counter(
            "pool_epochs",
            "Epochs that the pool has been through; blocks are reclaimed three later.",
            epoch,
        ));
        families.push(Family::counter(
            "pool_deaths",
            "Clients of the pool whose lease ran out and that were declared dead.",
            deaths,
        ));
    }
    if let Some(bytes) = pool.bytes_held {
        families.push(Family::gauge(
            "pool_held",
            Some("bytes"),
            "Memory of blocks in use, as clients have last published: items and tables of the index.",
            bytes as f64,
        ));
    }
    if let (Some(live), Some(dead), Some(most)) = (pool.clients_live, pool.clients_dead, pool.clients_max) {
        families.push(Family {
            name: "pool_clients",
            unit: None,
            help: "Clients of the pool: live ones hold a lease, what dead ones held is being taken over.",
            samples: Samples::Gauges(
                [("live", live), ("dead", dead)]
                    .map(|(state, count)| (vec![("state", state.to_owned())], count as f64))
                    .into(),
            ),
        });
        families.push(Family::gauge(
            "pool_clients_limit",
            None,
            "How many clients the pool has room for.",
            most as f64,
        ));
    }
    families
}

/// The text of these families.
///
/// # Errors
/// If something cannot be written as text, which is a bug.
pub fn encode(families: Vec<Family>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Families(families)));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            let unit = family.unit.map(|unit| Unit::Other(unit.to_owned()));
            let encoder = encoder.encode_descriptor(family.name, family.help, unit.as_ref(), family.metric_type())?;
            family.samples.encode(encoder)?;
        }
        Ok(())
    }
}

impl Samples {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Counters(samples) => {
                for (labels, value) in samples {
                    labelled(&mut encoder, labels, |encoder| {
                        encoder.encode_counter::<NoLabelSet, u64, f64>(value, None)
                    })?;
                }
            }
            Self::Gauges(samples) => {
                for (labels, value) in samples {
                    labelled(&mut encoder, labels, |encoder| encoder.encode_gauge(value))?;
                }
            }
            Self::Histograms(samples) => {
                for (labels, latencies) in samples {
                    encoder.encode_family(labels)?.encode_histogram::<NoLabelSet>(
                        latencies.sum_ns as f64 / 1e9,
                        latencies.count(),
                        &latencies.coarse(),
                        None,
                    )?;
                }
            }
            Self::Info(labels) => encoder.encode_info(labels)?,
        }
        Ok(())
    }
}

/// A sample with its labels; one without any has no braces either.
fn labelled(
    encoder: &mut MetricEncoder<'_>,
    labels: &Labels,
    encode: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    match labels.as_slice() {
        [] => encode(encoder),
        _ => encode(&mut encoder.encode_family(labels)?),
    }
}

#[cfg(test)]
mod tests;
