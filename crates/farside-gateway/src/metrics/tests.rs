//! The metrics' text, and the page that describes them.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::statistics::Counts;

fn report() -> Report {
    Report {
        uptime_ms: 1500,
        counts: Counts {
            hits: 7,
            clients: 2,
            bytes_in: 99,
            ..Counts::default()
        },
        commands: BTreeMap::from([("get".to_owned(), 7), ("set".to_owned(), 1)]),
        latencies: BTreeMap::from([(
            "read".to_owned(),
            Latencies {
                sum_ns: 3_000,
                buckets: vec![(1024, 2), (u64::MAX, 1)],
            },
        )]),
        memory_limit: Some(1 << 20),
        eviction_policy: "allkeys-lru".to_owned(),
        verbs: BTreeMap::from([("compare-swap".to_owned(), 4)]),
        pool: Some(PoolReport {
            bytes: 1 << 20,
            bytes_free: 1 << 19,
            bytes_by_block: BTreeMap::from([(64, 1 << 16), (128, 1 << 17)]),
            epoch: Some(12),
            deaths: Some(1),
            clients_live: Some(3),
            clients_dead: Some(0),
            clients_max: Some(1024),
            bytes_held: Some(4096),
            ..PoolReport::default()
        }),
        nodes: vec![crate::NodeReport {
            mirror: Some(MirrorReport {
                epoch: 3,
                primary: "b:2".to_owned(),
                has_primary: true,
                committed: 40,
                members: [("b:2", "primary", 0), ("a:1", "silent", 10)]
                    .map(|(address, role, lag_entries)| crate::MemberReport {
                        address: address.to_owned(),
                        role: role.to_owned(),
                        lag_entries,
                        ..crate::MemberReport::default()
                    })
                    .into(),
            }),
            ..crate::NodeReport::default()
        }],
        ..Report::default()
    }
}

/// The name under which a sample is found, as the page has it.
fn full_name(family: &Family) -> String {
    let unit = family.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
    let suffix = match family.samples {
        Samples::Counters(_) => "_total",
        Samples::Info(_) => "_info",
        Samples::Gauges(_) | Samples::Histograms(_) => "",
    };
    format!("{PREFIX}_{}{unit}{suffix}", family.name)
}

fn row(family: &Family) -> String {
    fn names<T>(samples: &[(Labels, T)]) -> BTreeSet<&'static str> {
        let labels = samples.iter().flat_map(|(labels, _)| labels.iter());
        labels.map(|&(name, _)| name).collect()
    }
    let labels = match &family.samples {
        Samples::Counters(samples) => names(samples),
        Samples::Gauges(samples) => names(samples),
        Samples::Histograms(samples) => names(samples),
        Samples::Info(labels) => labels.iter().map(|&(name, _)| name).collect(),
    };
    let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
    format!(
        "| `{}` | {} | {} | {} |",
        full_name(family),
        family.metric_type().as_str(),
        labels.join(", "),
        family.help
    )
}

#[test]
fn page_has_a_row_for_each_metric_and_no_other() {
    let page = include_str!("../../../../docs/metrics.md");
    let documented: BTreeSet<String> = (page.lines())
        .filter(|line| line.starts_with("| `farside_"))
        .map(str::to_owned)
        .collect();
    let there_are: BTreeSet<String> = gateway(&report()).iter().map(row).collect();
    let missing: Vec<_> = there_are.difference(&documented).collect();
    let outdated: Vec<_> = documented.difference(&there_are).collect();
    assert!(
        missing.is_empty() && outdated.is_empty(),
        "docs/metrics.md lacks {missing:#?} and should not have {outdated:#?}"
    );
}

#[test]
fn every_family_has_a_sample_under_its_name() {
    let families = gateway(&report());
    let text = encode(families.clone()).expect("plain data");
    for family in &families {
        let name = full_name(family);
        let sample = match family.samples {
            Samples::Histograms(_) => format!("{name}_bucket{{"),
            _ => name,
        };
        assert!(
            text.lines().any(|line| line.starts_with(&sample)),
            "{sample} is not in\n{text}"
        );
    }
}

#[test]
fn text_is_that_of_openmetrics() {
    let text = encode(gateway(&report())).expect("plain data");
    for line in [
        "# TYPE farside_lookup_hits counter",
        "farside_lookup_hits_total 7",
        "farside_connections 2.0",
        "# UNIT farside_received_bytes bytes",
        "farside_received_bytes_total 99",
        "farside_uptime_seconds 1.5",
        "farside_commands_total{command=\"get\"} 7",
        "# TYPE farside_command_latency_seconds histogram",
        "farside_command_latency_seconds_count{group=\"read\"} 3",
        "farside_command_latency_seconds_sum{group=\"read\"} 0.000003",
        "farside_command_latency_seconds_bucket{le=\"0.000001024\",group=\"read\"} 2",
        "farside_command_latency_seconds_bucket{le=\"+Inf\",group=\"read\"} 3",
        "farside_verbs_total{kind=\"compare-swap\"} 4",
        "farside_pool_up 1.0",
        "farside_pool_memory_bytes{use=\"free\"} 524288.0",
        "farside_pool_class_memory_bytes{block_bytes=\"128\"} 131072.0",
        "farside_pool_clients{state=\"live\"} 3.0",
        "farside_pool_epochs_total 12",
        "farside_mirror_up{node=\"0\"} 1.0",
        "farside_mirror_epoch{node=\"0\"} 3.0",
        "farside_mirror_members{node=\"0\",role=\"silent\"} 1.0",
        "farside_mirror_members{node=\"0\",role=\"backup\"} 0.0",
        "farside_mirror_lag_entries{node=\"0\",member=\"a:1\"} 10.0",
        "farside_mirror_lag_bytes{node=\"0\",member=\"b:2\"} 0.0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn pools_without_mirrored_nodes_have_no_metrics_of_them() {
    let mut report = report();
    report.nodes.clear();
    let names: Vec<String> = gateway(&report).iter().map(full_name).collect();
    assert!(!names.iter().any(|name| name.contains("mirror")), "{names:?}");
}

#[test]
fn pool_that_cannot_be_reached_is_down_and_nothing_else_is_said_of_it() {
    let families = pool(None);
    assert_eq!(families.iter().map(full_name).collect::<Vec<_>>(), ["farside_pool_up"]);
    let text = encode(families).expect("plain data");
    assert!(text.contains("\nfarside_pool_up 0.0\n"), "{text}");
}

/// Every word of a text that could be the name of a metric.
fn names_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("farside_")).collect()
}

/// Alerts and the dashboard name metrics as Prometheus has them: a histogram as its buckets, sum and count.
#[test]
fn alerts_and_dashboard_are_about_metrics_that_there_are() {
    let there_are: BTreeSet<String> = (gateway(&report()).iter())
        .flat_map(|family| {
            let suffixes: &[&str] = match family.samples {
                Samples::Histograms(_) => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            suffixes.iter().map(|suffix| full_name(family) + suffix)
        })
        .collect();
    for (file, text) in [
        (
            "farside.rules.yml",
            include_str!("../../../../packaging/prometheus/farside.rules.yml"),
        ),
        (
            "farside.rules.test.yml",
            include_str!("../../../../packaging/prometheus/farside.rules.test.yml"),
        ),
        (
            "farside.json",
            include_str!("../../../../packaging/grafana/farside.json"),
        ),
    ] {
        let names = names_in(text);
        assert!(names.len() > 10, "{file} has hardly any: {names:?}");
        let unknown: Vec<_> = names.iter().filter(|&&name| !there_are.contains(name)).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}, which nobody exports");
    }
}
