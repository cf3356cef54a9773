//! What a figure claims, and whether we found the same.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::file::Figure;
use super::sweep::Point;
use crate::error::BenchError;

/// A claim of a published figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// What is claimed, with its unit.
    pub text: String,
    /// The published value, if there is a number.
    pub paper: Option<f64>,
    /// How ours is found.
    pub measure: Measure,
    /// What counts as the same.
    pub accept: Accept,
    /// Why ours differs, if that is known.
    pub known: Option<String>,
}

/// How a number is found in the points of a sweep.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Measure {
    /// A key of one point, times `scale`, over the key `per` of the same point if there is one.
    Value {
        /// Name of the series.
        series: String,
        /// Which point.
        x: f64,
        /// A key of the report.
        key: String,
        /// Changes the unit.
        #[serde(default = "one")]
        scale: f64,
        /// Another key, below the line.
        per: Option<String>,
    },
    /// Where the largest value of a series is.
    PeakAt {
        /// Name of the series.
        series: String,
        /// A key of the report.
        key: String,
    },
    /// How far a series falls behind its largest value: that over the smallest one after it.
    Fall {
        /// Name of the series.
        series: String,
        /// A key of the report.
        key: String,
    },
    /// The value at `x` over the value at `over`.
    Quotient {
        /// Name of the series.
        series: String,
        /// A key of the report.
        key: String,
        /// The point above the line.
        x: f64,
        /// The point below the line.
        over: f64,
    },
    /// The largest value of a series, at each point over the key `per` of that point if there is one.
    Highest {
        /// Name of the series.
        series: String,
        /// A key of the report.
        key: String,
        /// Changes the unit.
        #[serde(default = "one")]
        scale: f64,
        /// Points behind this one do not count.
        #[serde(default = "everywhere")]
        to: f64,
        /// Another key, below the line.
        per: Option<String>,
    },
    /// By how many times a series is better than others, where that is most: at any point, than any of them.
    UpTo {
        /// Name of the series.
        series: String,
        /// Names of the others.
        others: Vec<String>,
        /// Where else it may be most: a series and another one, say in another sweep.
        #[serde(default)]
        also: Vec<[String; 2]>,
        /// A key of the report.
        key: String,
        /// Whether less is better.
        #[serde(default)]
        lowest: bool,
    },
    /// How long after `after` a series over time takes until it is as good as it will be: the first of several points in a
    /// row that reach `share` of the mean of the last quarter. With `over`, how many times as long as that series.
    Recovery {
        /// Name of the series.
        series: String,
        /// Another one, below the line.
        over: Option<String>,
        /// A key of the report.
        key: String,
        /// When it was disturbed.
        #[serde(default)]
        after: f64,
        /// What is as good.
        share: f64,
    },
    /// The value of a series at `x` over the best of others.
    Against {
        /// Name of the series.
        series: String,
        /// Names of the others; the one with the largest value counts, or with `lowest` the one with the smallest.
        others: Vec<String>,
        /// A key of the report.
        key: String,
        /// Which point.
        x: f64,
        /// Whether less is better.
        #[serde(default)]
        lowest: bool,
    },
}

fn one() -> f64 {
    1.0
}

fn everywhere() -> f64 {
    f64::INFINITY
}

/// What counts as the same.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Accept {
    /// Ours over the paper's is in this range.
    Ratio([f64; 2]),
    /// Ours differs from the paper's by no more than this.
    Within(f64),
    /// Ours is in this range.
    Range([f64; 2]),
    /// Ours is at least this.
    AtLeast(f64),
    /// Ours is at most this.
    AtMost(f64),
}

/// What became of a claim.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The figure.
    pub figure: String,
    /// What is claimed.
    pub claim: String,
    /// The published value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper: Option<f64>,
    /// Ours.
    pub ours: f64,
    /// Ours over the paper's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Whether it holds.
    pub is_ok: bool,
    /// Why not, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<String>,
}

impl Measure {
    /// Series and points that are named: `None` stands for the whole sweep.
    #[must_use]
    pub fn points(&self) -> Vec<(&str, Option<f64>)> {
        match self {
            Self::Value { series, x, .. } => vec![(series, Some(*x))],
            Self::PeakAt { series, .. } | Self::Fall { series, .. } | Self::Highest { series, .. } => {
                vec![(series, None)]
            }
            Self::UpTo {
                series, others, also, ..
            } => {
                let all = core::iter::once(series).chain(others).chain(also.as_flattened());
                all.map(|series| (series.as_str(), None)).collect()
            }
            Self::Quotient { series, x, over, .. } => vec![(series, Some(*x)), (series, Some(*over))],
            Self::Recovery { series, over, .. } => core::iter::once(series)
                .chain(over)
                .map(|series| (series.as_str(), None))
                .collect(),
            Self::Against { series, others, x, .. } => {
                let all = core::iter::once(series).chain(others);
                all.map(|series| (series.as_str(), Some(*x))).collect()
            }
        }
    }

    /// The number; `None` if a point or a key is missing.
    #[must_use]
    pub fn of(&self, points: &[Point]) -> Option<f64> {
        let sweep = |series: &str, key: &str| -> Option<Vec<(f64, f64)>> {
            let points = points.iter().filter(|point| point.series == series);
            points.map(|point| Some((point.x, point.number(key)?))).collect()
        };
        // The same number, written twice in one file.
        let at = |values: &[(f64, f64)], x: f64| {
            values
                .iter()
                .find(|value| value.0.total_cmp(&x).is_eq())
                .map(|value| value.1)
        };
        let peak = |values: &[(f64, f64)]| values.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        match self {
            Self::Value {
                series,
                x,
                key,
                scale,
                per,
            } => {
                let per = per.as_ref().map_or(Some(1.0), |per| at(&sweep(series, per)?, *x))?;
                Some(at(&sweep(series, key)?, *x)? * scale / per)
            }
            Self::PeakAt { series, key } => Some(peak(&sweep(series, key)?)?.0),
            Self::Fall { series, key } => {
                let values = sweep(series, key)?;
                let (peak_x, peak) = peak(&values)?;
                let behind = values.iter().filter(|value| value.0 >= peak_x).map(|value| value.1);
                Some(peak / behind.min_by(f64::total_cmp)?)
            }
            Self::Highest {
                series,
                key,
                scale,
                to,
                per,
            } => {
                let mut values = sweep(series, key)?;
                if let Some(per) = per {
                    let below = sweep(series, per)?;
                    values
                        .iter_mut()
                        .zip(below)
                        .for_each(|(value, below)| value.1 /= below.1);
                }
                values.retain(|value| value.0 <= *to);
                Some(peak(&values)?.1 * scale)
            }
            Self::UpTo {
                series,
                others,
                also,
                key,
                lowest,
            } => {
                let mut best: Option<f64> = None;
                let pairs = others.iter().map(|other| (series, other));
                for (series, other) in pairs.chain(also.iter().map(|[series, other]| (series, other))) {
                    let theirs = sweep(other, key)?;
                    for (x, value) in sweep(series, key)? {
                        let other = at(&theirs, x)?;
                        let times = if *lowest { other / value } else { value / other };
                        best = Some(best.map_or(times, |best| best.max(times)));
                    }
                }
                best
            }
            Self::Quotient { series, key, x, over } => {
                let values = sweep(series, key)?;
                Some(at(&values, *x)? / at(&values, *over)?)
            }
            Self::Recovery {
                series,
                over,
                key,
                after,
                share,
            } => {
                let took = |series: &str| recovery(&sweep(series, key)?, *after, *share);
                let over = over.as_ref().map_or(Some(1.0), |over| took(over))?;
                Some(took(series)? / over)
            }
            Self::Against {
                series,
                others,
                key,
                x,
                lowest,
            } => {
                let others: Option<Vec<f64>> = others.iter().map(|other| at(&sweep(other, key)?, *x)).collect();
                let others = others?.into_iter();
                let best = if *lowest {
                    others.min_by(f64::total_cmp)
                } else {
                    others.max_by(f64::total_cmp)
                };
                Some(at(&sweep(series, key)?, *x)? / best?)
            }
        }
    }
}

/// How many points in a row have to be good until it counts.
const GOOD_IN_A_ROW: usize = 5;

/// See [`Measure::Recovery`]. No less than the length of one part, which is all that can be told.
fn recovery(values: &[(f64, f64)], after: f64, share: f64) -> Option<f64> {
    let last = &values[values.len() * 3 / 4..];
    let good = share * last.iter().map(|value| value.1).sum::<f64>() / last.len().max(1) as f64;
    let behind: Vec<_> = values.iter().filter(|value| value.0 > after).collect();
    let mut windows = behind.windows(GOOD_IN_A_ROW.min(behind.len()));
    let found = windows.find(|window| !window.is_empty() && window.iter().all(|value| value.1 >= good))?;
    Some(found[0].0 - after)
}

impl Accept {
    /// Whether `ours` is as good as `paper`.
    #[must_use]
    pub fn holds(self, ours: f64, paper: Option<f64>) -> bool {
        match self {
            Self::Ratio([low, high]) => paper.is_some_and(|paper| (low..=high).contains(&(ours / paper))),
            Self::Within(distance) => paper.is_some_and(|paper| (ours - paper).abs() <= distance),
            Self::Range([low, high]) => (low..=high).contains(&ours),
            Self::AtLeast(low) => ours >= low,
            Self::AtMost(high) => ours <= high,
        }
    }

    /// What the accepted values are multiples of the paper's: the least and the largest.
    #[must_use]
    pub fn ratios(self, paper: f64) -> [f64; 2] {
        match self {
            Self::Ratio(ratios) => ratios,
            Self::Within(distance) => [(paper - distance) / paper, (paper + distance) / paper],
            Self::Range([low, high]) => [low / paper, high / paper],
            Self::AtLeast(low) => [low / paper, f64::INFINITY],
            Self::AtMost(high) => [0.0, high / paper],
        }
    }
}

impl fmt::Display for Accept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ratio([low, high]) => write!(f, "{low} to {high} times the paper's"),
            Self::Within(distance) => write!(f, "the paper's, give or take {distance}"),
            Self::Range([low, high]) => write!(f, "{low} to {high}"),
            Self::AtLeast(low) => write!(f, "at least {low}"),
            Self::AtMost(high) => write!(f, "at most {high}"),
        }
    }
}

/// Judges every claim of a figure.
///
/// # Errors
/// [`BenchError::Figure`] if a claim names what there is not.
pub fn judge(figure: &Figure, points: &[Point]) -> Result<Vec<Verdict>, BenchError> {
    let judged = figure.claims.iter().map(|claim| {
        let ours = claim.measure.of(points).ok_or_else(|| BenchError::Figure {
            id: figure.id.clone(),
            reason: format!("`{}` names a point or key that there is not", claim.text),
        })?;
        let is_ok = claim.accept.holds(ours, claim.paper);
        Ok(Verdict {
            figure: figure.id.clone(),
            claim: claim.text.clone(),
            paper: claim.paper,
            ours,
            ratio: claim.paper.map(|paper| ours / paper),
            is_ok,
            known: claim.known.clone().filter(|_| !is_ok),
        })
    });
    judged.collect()
}

/// A number with about four digits.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => format!("{value:.0}"),
        large if large >= 10.0 => format!("{value:.1}"),
        small if small > 0.0 && small < 0.1 => format!("{value:.4}"),
        _ => format!("{value:.2}"),
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_ok { "ok" } else { "missed" };
        write!(f, "{:16} {verdict:7} {}: ", self.figure, self.claim)?;
        if let (Some(paper), Some(ratio)) = (self.paper, self.ratio) {
            write!(f, "paper {}, ours {}, ratio {ratio:.2}", short(paper), short(self.ours))?;
        } else {
            write!(f, "ours {}", short(self.ours))?;
        }
        if let Some(known) = &self.known {
            write!(f, " ({known})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn points() -> Vec<Point> {
        let values = [(1.0, 2.0), (8.0, 10.0), (64.0, 8.0), (512.0, 2.5)];
        let of = |name: &str, factor: f64| values.map(|(x, rate)| (name.to_owned(), x, factor * rate));
        let point = |(series, x, rate): (String, f64, f64)| Point {
            series,
            x,
            report: json!({"rate": rate, "per_op": {"retries": x}}),
        };
        of("a", 1.0)
            .into_iter()
            .chain(of("b", 2.0))
            .chain(of("c", 4.0))
            .map(point)
            .collect()
    }

    fn measured(text: &str) -> Option<f64> {
        let measure: Measure = toml::from_str(text).expect("a measure");
        measure.of(&points())
    }

    #[test]
    fn numbers_are_found_in_a_sweep() {
        assert_eq!(measured("value = { series = 'a', x = 64, key = 'rate' }"), Some(8.0));
        assert_eq!(
            measured("value = { series = 'a', x = 64, key = 'per_op.retries', scale = 0.5 }"),
            Some(32.0)
        );
        assert_eq!(
            measured("value = { series = 'a', x = 64, key = 'rate', per = 'per_op.retries' }"),
            Some(0.125)
        );
        assert_eq!(measured("peak_at = { series = 'a', key = 'rate' }"), Some(8.0));
        assert_eq!(measured("fall = { series = 'a', key = 'rate' }"), Some(4.0));
        assert_eq!(
            measured("quotient = { series = 'a', key = 'rate', x = 8, over = 1 }"),
            Some(5.0)
        );
        assert_eq!(measured("value = { series = 'a', x = 65, key = 'rate' }"), None);
        let against = |lowest| {
            measured(&format!(
                "against = {{ series = 'a', others = ['b', 'c'], x = 64, key = 'rate', lowest = {lowest} }}"
            ))
        };
        assert_eq!((against(false), against(true)), (Some(0.25), Some(0.5)));
        assert_eq!(
            measured("highest = { series = 'a', key = 'rate', scale = 2 }"),
            Some(20.0)
        );
        assert_eq!(measured("highest = { series = 'a', key = 'rate', to = 1 }"), Some(2.0));
        let up_to = |lowest| {
            measured(&format!(
                "up_to = {{ series = 'b', others = ['a', 'c'], key = 'rate', lowest = {lowest} }}"
            ))
        };
        assert_eq!((up_to(false), up_to(true)), (Some(2.0), Some(2.0)));
        let elsewhere = "up_to = { series = 'b', others = ['a'], also = [['c', 'a']], key = 'rate' }";
        assert_eq!(measured(elsewhere), Some(4.0));
        assert_eq!(measured("value = { series = 'd', x = 64, key = 'rate' }"), None);
        assert_eq!(measured("fall = { series = 'a', key = 'speed' }"), None);
    }

    #[test]
    fn a_series_over_time_recovers_when_it_stays_good() {
        let values = |rates: &[f64]| -> Vec<(f64, f64)> {
            (1..).zip(rates).map(|(time, &rate)| (f64::from(time), rate)).collect()
        };
        let mut rates = vec![10.0; 24];
        assert_eq!(recovery(&values(&rates), 0.0, 0.9), Some(1.0), "it was never bad");
        rates[..6].copy_from_slice(&[1.0, 2.0, 3.0, 10.0, 10.0, 3.0]);
        assert_eq!(
            recovery(&values(&rates), 0.0, 0.9),
            Some(7.0),
            "two good ones are chance"
        );
        assert_eq!(recovery(&values(&rates), 10.0, 0.9), Some(1.0));
        rates.iter_mut().step_by(2).for_each(|rate| *rate = 0.0);
        assert_eq!(recovery(&values(&rates), 0.0, 0.9), None, "it never stays good");
    }

    #[test]
    fn what_is_too_far_off_is_missed() {
        assert!(Accept::Ratio([0.75, 1.25]).holds(12.0, Some(10.0)));
        assert!(!Accept::Ratio([0.75, 1.25]).holds(13.0, Some(10.0)));
        assert!(!Accept::Ratio([0.75, 1.25]).holds(10.0, None));
        assert!(Accept::Within(0.5).holds(99.0, Some(99.4)));
        assert!(!Accept::Within(0.5).holds(98.8, Some(99.4)));
        assert!(Accept::Range([48.0, 64.0]).holds(64.0, None));
        assert!(!Accept::Range([48.0, 64.0]).holds(96.0, None));
        assert!(!Accept::AtLeast(10.0).holds(9.9, None));
        assert!(Accept::AtMost(10.0).holds(9.9, None) && !Accept::AtMost(9.0).holds(9.9, None));
        // In multiples of the paper's value, the same.
        for accept in [
            Accept::Ratio([0.75, 1.25]),
            Accept::Within(2.5),
            Accept::Range([7.5, 12.5]),
            Accept::AtLeast(7.5),
            Accept::AtMost(12.5),
        ] {
            let [low, high] = accept.ratios(10.0);
            for ours in [5.0, 7.6, 10.0, 12.4, 15.0] {
                let is_within = (low..=high).contains(&(ours / 10.0));
                assert_eq!(accept.holds(ours, Some(10.0)), is_within, "{accept}, {ours}");
            }
        }
    }

    #[test]
    fn a_verdict_says_why_only_if_it_is_missed() {
        let verdict = Verdict {
            figure: "f".to_owned(),
            claim: "goodput, ops/s".to_owned(),
            paper: Some(15_500.0),
            ours: 14_600.0,
            ratio: Some(0.942),
            is_ok: false,
            known: Some("a reason".to_owned()),
        };
        let line = verdict.to_string();
        assert!(
            line.ends_with("missed  goodput, ops/s: paper 15500, ours 14600, ratio 0.94 (a reason)"),
            "{line}"
        );
    }
}
