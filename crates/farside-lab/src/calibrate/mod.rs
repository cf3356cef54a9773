//! What the profile of a NIC follows from, computed: `farside-lab calibrate`.
//!
//! A file says of each testbed which few published latencies and rates ([`mod@file`]) its constants are fitted to ([`mod@fit`]).
//! What comes out stands beside the profile, whose constants are what was fitted once, rounded. Then each headline claim is
//! measured again with every constant a fifth smaller and larger: what rests on what.

pub mod file;
pub mod fit;

use farside_fabric::sim::Profile;
use serde::Serialize;

use crate::error::BenchError;
use crate::figure::claim::{self, Verdict, short};
use crate::figure::file::Figure;
use crate::figure::sweep;
use crate::figure::variation::{Variation, constant_of};
use crate::side_by_side::on_all_cores;
use crate::stage::Prepared;
use file::Testbed;

/// Every testbed by its profile: the text of its file.
const TESTBEDS: [(&str, &str); 3] = [
    ("cx4", include_str!("../../../../figures/testbed_cx4.toml")),
    ("cx5", include_str!("../../../../figures/testbed_cx5.toml")),
    ("cx6", include_str!("../../../../figures/testbed_cx6.toml")),
];

/// By what share constants are changed.
const CHANGES: [f64; 2] = [-0.2, 0.2];

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// Name of the profile.
    pub profile: String,
    /// Whose machines they are.
    pub testbed: String,
    /// Rounds of the fit.
    pub rounds: usize,
    /// Constants that were fitted.
    pub fitted: Vec<Constant>,
    /// Those that were not.
    pub given: Vec<Constant>,
    /// What they were fitted to.
    pub anchors: Vec<Residual>,
    /// What the headlines rest on.
    pub sensitivity: Vec<Sensitivity>,
}

/// A constant of the profile.
#[derive(Clone, Debug, Serialize)]
pub struct Constant {
    /// Its name in [`Profile`].
    pub name: String,
    /// What the profile has.
    pub profile: f64,
    /// What was fitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fitted: Option<f64>,
    /// Why it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// An anchor, and what is left between it and the model.
#[derive(Clone, Debug, Serialize)]
pub struct Residual {
    /// What it is, with its unit.
    pub text: String,
    /// Where it stands.
    pub source: String,
    /// The published value.
    pub published: f64,
    /// Ours with the fitted constants.
    pub fitted: f64,
    /// Ours with the profile's.
    pub profile: f64,
}

/// What a headline claim rests on.
#[derive(Clone, Debug, Serialize)]
pub struct Sensitivity {
    /// With the profile as it is.
    pub verdict: Verdict,
    /// With one constant changed.
    pub moves: Vec<Move>,
}

/// A claim with one constant changed.
#[derive(Clone, Debug, Serialize)]
pub struct Move {
    /// Its name.
    pub constant: String,
    /// By what share.
    pub change: f64,
    /// Ours then.
    pub ours: f64,
    /// Whether the claim holds then.
    pub is_ok: bool,
}

/// The file of a profile's testbed.
///
/// # Errors
/// Says which there are.
pub fn testbed(profile: &str) -> Result<Testbed, BenchError> {
    let Some((_, text)) = TESTBEDS.iter().find(|(known, _)| *known == profile) else {
        let names: Vec<&str> = TESTBEDS.iter().map(|&(name, _)| name).collect();
        return Err(BenchError::Argument(format!(
            "`{profile}` is not a testbed: choose from {}",
            names.join(", ")
        )));
    };
    Testbed::parse(text).map_err(|reason| wrong(profile, reason))
}

fn wrong(id: &str, reason: String) -> BenchError {
    BenchError::Figure {
        id: id.to_owned(),
        reason,
    }
}

/// Fits a testbed's constants, and varies them. `is_quick` runs the headlines in a smaller set-up.
///
/// # Errors
/// See [`BenchError`].
pub fn run(testbed: &Testbed, is_quick: bool) -> Result<Calibration, BenchError> {
    let profile = testbed.of_profile().map_err(|reason| wrong(&testbed.profile, reason))?;
    let (rounds, fitted, anchors) = fitted(testbed, &profile)?;
    let value = |name: &str| constant_of(&profile, name).unwrap_or_default();
    let given = testbed.given.iter().map(|given| Constant {
        name: given.name.clone(),
        profile: value(&given.name),
        fitted: None,
        why: Some(given.why.clone()),
    });
    Ok(Calibration {
        profile: testbed.profile.clone(),
        testbed: testbed.testbed.clone(),
        rounds,
        fitted,
        given: given.collect(),
        anchors,
        sensitivity: sensitivity(testbed, &profile, is_quick)?,
    })
}

/// The fit: how many rounds, the constants, and what is left.
///
/// # Errors
/// See [`BenchError`].
pub fn fitted(testbed: &Testbed, profile: &Profile) -> Result<(usize, Vec<Constant>, Vec<Residual>), BenchError> {
    let names = || testbed.fitted.iter().map(|constant| constant.name.as_str());
    let measure = |sets: &[Vec<f64>]| {
        let jobs = sets
            .iter()
            .map(|set| Variation::of_numbers(names().zip(set.iter().copied())));
        let found = on_all_cores(jobs.collect(), |job, memory| measured(testbed, job, memory), |_| ());
        found.into_iter().collect::<Result<Vec<_>, _>>()
    };
    let start: Vec<f64> = testbed.fitted.iter().map(|constant| constant.start).collect();
    let published: Vec<f64> = testbed.anchors.iter().map(|anchor| anchor.published).collect();
    let fit = fit::fit(&start, &published, measure)?;
    let as_it_is = measured(testbed, Variation::default(), &mut None)?;
    let constants = testbed
        .fitted
        .iter()
        .zip(&fit.constants)
        .map(|(constant, &fitted)| Constant {
            name: constant.name.clone(),
            profile: constant_of(profile, &constant.name).unwrap_or_default(),
            fitted: Some(fitted),
            why: None,
        });
    let anchors = testbed.anchors.iter().zip(fit.measured.iter().zip(&as_it_is));
    let residuals = anchors.map(|(anchor, (&fitted, &profile))| Residual {
        text: anchor.text.clone(),
        source: anchor.source.clone(),
        published: anchor.published,
        fitted,
        profile,
    });
    Ok((fit.rounds, constants.collect(), residuals.collect()))
}

/// What stands against the anchors, in their order, with some constants otherwise.
///
/// # Errors
/// See [`BenchError`]; that nothing was measured for an anchor.
pub fn measured(
    testbed: &Testbed,
    variation: Variation,
    memory: &mut Option<Prepared>,
) -> Result<Vec<f64>, BenchError> {
    let mut figure = testbed.figure();
    figure.variation = variation;
    let points = sweep::run(&figure, false, memory)?;
    let ours = testbed.anchors.iter().map(|anchor| {
        let ours = anchor.measure.of(&points).filter(|&ours| ours > 0.0);
        ours.ok_or_else(|| wrong(&figure.id, format!("nothing was measured for `{}`", anchor.text)))
    });
    ours.collect()
}

/// Every headline with the profile as it is, and with each constant changed.
fn sensitivity(testbed: &Testbed, profile: &Profile, is_quick: bool) -> Result<Vec<Sensitivity>, BenchError> {
    let changes: Vec<(&str, f64)> = testbed
        .constants()
        .flat_map(|name| CHANGES.map(|change| (name, change)))
        .collect();
    let variation = |&(name, change): &(&str, f64)| {
        let value = constant_of(profile, name).unwrap_or_default() * (1.0 + change);
        Variation::of_numbers([(name, value)])
    };
    let variations = || core::iter::once(Variation::default()).chain(changes.iter().map(variation));
    let mut jobs = Vec::new();
    for headline in &testbed.headlines {
        let figure = testbed.narrowed(headline, is_quick);
        let figure = figure.map_err(|reason| wrong(&headline.figure, reason))?;
        jobs.extend(variations().map(|variation| Figure {
            variation,
            ..figure.clone()
        }));
    }
    let judge = |figure: Figure, memory: &mut Option<Prepared>| -> Result<Verdict, BenchError> {
        let points = sweep::run(&figure, is_quick, memory)?;
        Ok(claim::judge(&figure, &points)?.remove(0))
    };
    let verdicts = on_all_cores(jobs, judge, |_| ());
    let verdicts = verdicts.into_iter().collect::<Result<Vec<_>, _>>()?;
    let rows = verdicts.chunks(1 + changes.len()).map(|verdicts| Sensitivity {
        verdict: verdicts[0].clone(),
        moves: changes
            .iter()
            .zip(&verdicts[1..])
            .map(|(&(name, change), verdict)| Move {
                constant: name.to_owned(),
                change,
                ours: verdict.ours,
                is_ok: verdict.is_ok,
            })
            .collect(),
    });
    Ok(rows.collect())
}

impl Calibration {
    /// As JSON, on one line.
    ///
    /// # Panics
    /// Never: it is plain data.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it is plain data")
    }

    /// As tables.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{}: {}\n\n", self.profile, self.testbed);
        text.push_str(&format!("{:<20} {:>9} {:>9}\n", "constant", "profile", "fitted"));
        for constant in &self.fitted {
            let fitted = constant.fitted.map(short).unwrap_or_default();
            text.push_str(&format!("{:<20} {:>9} {fitted:>9}\n", constant.name, constant.profile));
        }
        for constant in &self.given {
            let why = constant.why.as_deref().unwrap_or_default();
            text.push_str(&format!(
                "{:<20} {:>9} {:>9}  {why}\n",
                constant.name, constant.profile, ""
            ));
        }
        text.push_str(&format!(
            "\nfitted in {} rounds to\n{:<76} {:>9} {:>9} {:>6} {:>9} {:>6}\n",
            self.rounds, "", "published", "fitted", "", "profile", ""
        ));
        for anchor in &self.anchors {
            let off = |ours: f64| format!("{:+.0} %", (ours / anchor.published - 1.0) * 100.0);
            text.push_str(&format!(
                "{:<76} {:>9} {:>9} {:>6} {:>9} {:>6}\n",
                format!("{} ({})", anchor.text, anchor.source),
                short(anchor.published),
                short(anchor.fitted),
                off(anchor.fitted),
                short(anchor.profile),
                off(anchor.profile),
            ));
        }
        for row in &self.sensitivity {
            text.push_str(&format!("\n{}\n", row.verdict));
            for moves in row.moves.chunks(CHANGES.len()) {
                text.push_str(&format!("  {:<20}", moves[0].constant));
                for one in moves {
                    let remark = if one.is_ok { "" } else { " missed" };
                    text.push_str(&format!(
                        "  {:+.0} %: {:<14}",
                        one.change * 100.0,
                        short(one.ours) + remark
                    ));
                }
                text.truncate(text.trim_end().len());
                text.push('\n');
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::claim::{Claim, Measure};
    use crate::figure::{by_id, list};

    #[test]
    fn every_testbed_is_readable_and_that_of_its_profile() {
        for (name, _) in TESTBEDS {
            let testbed = testbed(name).expect("a testbed");
            assert_eq!(testbed.profile, name);
            assert!(!testbed.headlines.is_empty(), "{name} has headlines");
        }
        let all = Profile::all();
        assert_eq!(all.len(), TESTBEDS.len(), "each profile has a testbed");
        let error = testbed("cx3").expect_err("no such testbed");
        assert!(error.to_string().contains("choose from cx4"), "{error}");
    }

    /// What is measured of a point, and the number that was published of it, whatever the unit.
    fn quantity(measure: &Measure, published: f64) -> Option<(&str, f64)> {
        match measure {
            Measure::Value {
                key, scale, per: None, ..
            } => Some((key, published / scale)),
            _ => None,
        }
    }

    /// No anchor is a claim as well: what a profile is fitted to shows nothing.
    #[test]
    fn what_is_fitted_to_is_not_claimed() {
        for (name, _) in TESTBEDS {
            for anchor in &testbed(name).expect("a testbed").anchors {
                let (key, published) = quantity(&anchor.measure, anchor.published).expect("a value");
                for (id, _) in list() {
                    let is_it = |claim: &&Claim| {
                        let claimed = claim.paper.and_then(|paper| quantity(&claim.measure, paper));
                        claimed.is_some_and(|(other, paper)| other == key && (paper / published - 1.0).abs() < 1e-3)
                    };
                    let figure = by_id(id).expect("a figure");
                    let claim = figure.claims.iter().find(is_it).map(|claim| &claim.text);
                    assert_eq!(claim, None, "{name}: {id} claims `{}`", anchor.text);
                }
            }
        }
    }
}
