//! One figure on the page: what it shows, what was run, its claims, its numbers as tables.

use farside_lock::LockKind;

use super::chart;
use super::gauge::Gauge;
use super::glossary::{Glossary, Term};
use crate::figure::claim::Claim;
use crate::figure::file::{AxisKey, Figure, Panel, Series};
use crate::figure::outcome::Outcome;
use crate::figure::report::Entry;
use crate::quantity::with_prefix;
use crate::workload::{ObjectWorkload, TransactionWorkload};

/// A figure as the template shows it.
pub(super) struct Section<'a> {
    pub(super) id: &'a str,
    pub(super) title: &'a str,
    pub(super) source: &'a str,
    pub(super) setup: &'a str,
    /// The command that runs it again.
    pub(super) command: String,
    /// Why there is nothing else.
    pub(super) failure: Option<&'a str>,
    pub(super) claims: Vec<Row<'a>>,
    pub(super) panels: Vec<Table<'a>>,
    pub(super) runs: Vec<Run<'a>>,
    pub(super) words: Vec<&'a Term>,
}

/// A claim and its verdict.
pub(super) struct Row<'a> {
    pub(super) text: &'a str,
    pub(super) paper: Option<String>,
    pub(super) ours: String,
    pub(super) ratio: Option<String>,
    pub(super) accepted: String,
    pub(super) is_ok: bool,
    pub(super) known: Option<&'a str>,
    pub(super) gauge: Option<Gauge>,
}

/// The numbers of a panel.
pub(super) struct Table<'a> {
    pub(super) label: &'a str,
    pub(super) x_label: &'a str,
    pub(super) columns: Vec<&'a str>,
    /// The value that is swept, and a cell for each column.
    pub(super) rows: Vec<(String, Vec<String>)>,
}

/// A series in words.
pub(super) struct Run<'a> {
    pub(super) label: &'a str,
    pub(super) name: &'a str,
    /// What its clients do.
    pub(super) about: String,
    /// With how many of what.
    pub(super) facts: String,
}

impl<'a> Section<'a> {
    pub(super) fn new(entry: &'a Entry, is_quick: bool, glossary: &'a Glossary) -> Self {
        let figure = &entry.figure;
        let outcome = entry.result.as_ref();
        Self {
            id: &figure.id,
            title: &figure.title,
            source: &figure.source,
            setup: figure.setup.trim(),
            command: format!(
                "farside-lab figure {}{}",
                figure.id,
                if is_quick { " --quick" } else { "" }
            ),
            failure: entry.result.as_ref().err().map(String::as_str),
            claims: outcome.map_or_else(|_| Vec::new(), |outcome| rows(figure, outcome)),
            panels: outcome.map_or_else(|_| Vec::new(), |outcome| tables(figure, outcome)),
            runs: figure
                .series
                .iter()
                .map(|series| run(figure, series, is_quick))
                .collect(),
            words: glossary.used_in(&texts(figure)),
        }
    }

    /// How many claims hold.
    pub(super) fn held(&self) -> usize {
        self.claims.iter().filter(|claim| claim.is_ok).count()
    }

    /// How many do not.
    pub(super) fn missed(&self) -> usize {
        self.claims.len() - self.held()
    }
}

/// Everything that is said about a figure.
fn texts(figure: &Figure) -> Vec<&str> {
    let mut texts = vec![figure.title.as_str(), &figure.setup];
    texts.extend(
        figure
            .panels
            .iter()
            .flat_map(|panel| [figure.x_of(panel).0, panel.label.as_str()]),
    );
    texts.extend(figure.series.iter().map(|series| series.label.as_str()));
    texts.extend(figure.claims.iter().map(|claim| claim.text.as_str()));
    texts.extend(figure.claims.iter().filter_map(|claim| claim.known.as_deref()));
    texts
}

fn rows<'a>(figure: &'a Figure, outcome: &'a Outcome) -> Vec<Row<'a>> {
    let row = |(claim, verdict): (&'a Claim, &'a crate::figure::claim::Verdict)| Row {
        text: &claim.text,
        paper: verdict.paper.map(readable),
        ours: readable(verdict.ours),
        ratio: verdict.ratio.map(|ratio| format!("{ratio:.2}")),
        accepted: claim.accept.to_string(),
        is_ok: verdict.is_ok,
        known: verdict.known.as_deref(),
        gauge: Gauge::of(claim, verdict.ours),
    };
    figure.claims.iter().zip(&outcome.verdicts).map(row).collect()
}

fn tables<'a>(figure: &'a Figure, outcome: &Outcome) -> Vec<Table<'a>> {
    figure
        .panels
        .iter()
        .map(|panel| table(figure, panel, outcome))
        .collect()
}

fn table<'a>(figure: &'a Figure, panel: &'a Panel, outcome: &Outcome) -> Table<'a> {
    let lines = chart::lines(figure, panel, &outcome.points);
    let cell = |line: &chart::Line<'_>, x: f64| {
        let point = line.points.iter().find(|point| point.0.total_cmp(&x).is_eq());
        point.map_or_else(String::new, |point| readable(point.1))
    };
    Table {
        label: &panel.label,
        x_label: figure.x_of(panel).0,
        columns: lines.iter().map(|line| line.series.label.as_str()).collect(),
        rows: chart::xs(&lines)
            .into_iter()
            .map(|x| (readable(x), lines.iter().map(|line| cell(line, x)).collect()))
            .collect(),
    }
}

fn run<'a>(figure: &'a Figure, series: &'a Series, is_quick: bool) -> Run<'a> {
    let swept = figure.axis_of(series).map(|axis| axis.key);
    let is_fixed = |key: AxisKey| swept != Some(key);
    if let Some(probe) = &series.probe {
        return Run {
            label: &series.label,
            name: &series.name,
            about: probe.about(),
            facts: "no clients, no time".to_owned(),
        };
    }
    let mut facts = Vec::new();
    let clients = if is_fixed(AxisKey::Clients) {
        figure.clients_of(series, is_quick).to_vec()
    } else {
        figure
            .xs_of(series, is_quick)
            .iter()
            .map(|&clients| clients as u64)
            .collect()
    };
    facts.push(match clients[..] {
        [clients] => format!("{clients} clients"),
        ref several => format!(
            "{} to {} clients",
            several.iter().min().unwrap_or(&0),
            several.iter().max().unwrap_or(&0)
        ),
    });
    if let Some(bank) = &series.bank {
        facts.push(format!(
            "{} accounts",
            readable(figure.accounts_of(bank, is_quick) as f64)
        ));
        facts.push(format!("{} on this machine", figure.duration_of(series, is_quick)));
        return Run {
            label: &series.label,
            name: &series.name,
            about: format!("bank, {}", bank.contender.name()),
            facts: facts.join(" · "),
        };
    }
    facts.push(match series.cns {
        Some(cns) => format!("{cns} compute nodes"),
        None => format!("{} on each compute node", series.clients_per_cn),
    });
    let skew = |theta: f64| {
        if theta > 0.0 {
            format!("Zipf {theta}")
        } else {
            "uniform".to_owned()
        }
    };
    let mut about = String::new();
    if let Some(lock) = &series.lock {
        about = format!("lock {}: {}", lock.name, about_lock(&lock.name));
        let workload = lock.workload.as_deref().map(TransactionWorkload::by_name);
        let workload = workload.and_then(Result::ok);
        if let Some(workload) = workload {
            let locks = readable(workload.locks as f64);
            facts.push(format!("transactions {}, {locks} locks", workload.name));
        }
        let is_fixed = |key| workload.is_none() && is_fixed(key);
        if is_fixed(AxisKey::Locks) {
            facts.push(format!("{} locks", readable(lock.locks as f64)));
        }
        if is_fixed(AxisKey::Theta) {
            facts.push(skew(lock.theta));
        }
        if is_fixed(AxisKey::ReadRatio) {
            facts.push(format!("{} % shared", readable(100.0 * lock.read_ratio)));
        }
        if is_fixed(AxisKey::SectionVerbs) && lock.section_verbs > 0 {
            facts.push(format!("{} READs inside", lock.section_verbs));
        }
    }
    if let Some(store) = &series.store {
        about = match &store.sync {
            Some(sync) => format!("store, synchronisation {sync}, workload {}", store.workload),
            None => format!("{}, workload {}", store.index, store.workload),
        };
        let quick = figure.quick.items.filter(|_| is_quick);
        if is_fixed(AxisKey::Items) {
            let items = quick.map_or(store.items, |items| items.min(store.items));
            facts.push(format!("{} keys", readable(items as f64)));
        }
        facts.push(skew(store.theta));
    }
    if let Some(objects) = &series.objects {
        about = format!("objects under lock {}: {}", objects.lock, about_lock(&objects.lock));
        facts.push(format!("{} objects", readable(objects.objects as f64)));
        if let Ok(workload) = ObjectWorkload::by_name(&objects.workload) {
            facts.push(workload.name.to_owned());
            if is_fixed(AxisKey::Theta) {
                facts.push(skew(objects.theta.unwrap_or(workload.theta)));
            }
        }
    }
    facts.push(format!("{} simulated", figure.duration_of(series, is_quick)));
    facts.push(format!("NIC {}", series.profile));
    if series.memory_nodes > 1 {
        facts.push(format!("{} memory nodes as one", series.memory_nodes));
    }
    Run {
        label: &series.label,
        name: &series.name,
        about,
        facts: facts.join(" · "),
    }
}

/// A line about a lock, which stands for itself: in the list, "the same" is the lock above.
fn about_lock(name: &str) -> String {
    let mut above = String::new();
    for &(_, known, line) in LockKind::ALL.iter().chain(&LockKind::VARIANTS) {
        let whole = match line.strip_prefix("the same") {
            Some(difference) => format!("{above}, but {}", difference.trim_start_matches([',', ' '])),
            None => line.to_owned(),
        };
        if known == name {
            return whole;
        }
        above = whole;
    }
    String::new()
}

/// A number with three or four digits: `2.01`, `99.4`, `1000`, `15.5 k`.
pub(super) fn readable(value: f64) -> String {
    let text = match value.abs() {
        large if large >= 10_000.0 => with_prefix(value),
        large if large >= 100.0 => format!("{value:.0}"),
        large if large >= 10.0 => format!("{value:.1}"),
        large if large >= 0.1 => format!("{value:.2}"),
        small if small > 0.0 => format!("{value:.4}"),
        _ => "0".to_owned(),
    };
    let (digits, prefix) = text.split_once(' ').unwrap_or((&text, ""));
    let digits = if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    };
    format!("{digits} {prefix}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_about_a_lock_stands_for_itself() {
        for (_, name, _) in LockKind::ALL.iter().chain(&LockKind::VARIANTS) {
            let about = about_lock(name);
            assert!(!about.is_empty() && !about.starts_with("the same"), "{name}: {about}");
        }
        let about = about_lock("cas-backoff");
        assert!(
            about.starts_with("compare-and-swap") && about.contains("but with"),
            "{about}"
        );
    }

    #[test]
    fn numbers_are_as_long_as_they_need_to_be() {
        for (value, text) in [
            (0.0, "0"),
            (0.0123, "0.0123"),
            (0.5, "0.5"),
            (2.01, "2.01"),
            (48.0, "48"),
            (99.44, "99.4"),
            (512.0, "512"),
            (1000.0, "1000"),
            (15_480.0, "15.5 k"),
            (10_000_000.0, "10 M"),
            (-3.25, "-3.25"),
        ] {
            assert_eq!(readable(value), text);
        }
    }
}
