//! Published figures: what to sweep and what is claimed, as data, and the verdicts.
//!
//! A figure is a file `figures/fig_<paper>_<n>.toml` ([`mod@file`]), built into the program so that it
//! works from anywhere. Running one sweeps its series ([`sweep`]), judges its claims ([`claim`]) and
//! writes `<id>.csv`, `<id>.json` and `<id>.svg` ([`output`], [`plot`]). All of them on one page are a
//! [`report`], which takes up what earlier runs have found ([`outcome`]); a document has them as [`tables`].

pub mod claim;
pub mod file;
pub mod load_factor;
pub mod outcome;
pub mod output;
pub mod page;
pub mod plot;
pub mod report;
pub mod round_trips;
pub mod sweep;
pub mod tables;
pub mod variation;

use std::path::Path;

use crate::error::BenchError;
use crate::stage::Prepared;
use file::Figure;
use outcome::Outcome;
use variation::Variation;

/// Every figure by its name: the text of its file.
const FIGURES: [(&str, &str); 58] = [
    (
        "shiftlock-retry",
        include_str!("../../../../figures/fig_shiftlock_retry.toml"),
    ),
    ("shiftlock-4", include_str!("../../../../figures/fig_shiftlock_4.toml")),
    ("shiftlock-6", include_str!("../../../../figures/fig_shiftlock_6.toml")),
    ("shiftlock-7", include_str!("../../../../figures/fig_shiftlock_7.toml")),
    ("shiftlock-8", include_str!("../../../../figures/fig_shiftlock_8.toml")),
    ("shiftlock-9", include_str!("../../../../figures/fig_shiftlock_9.toml")),
    (
        "shiftlock-10",
        include_str!("../../../../figures/fig_shiftlock_10.toml"),
    ),
    (
        "shiftlock-11",
        include_str!("../../../../figures/fig_shiftlock_11.toml"),
    ),
    ("declock-3", include_str!("../../../../figures/fig_declock_3.toml")),
    ("declock-12", include_str!("../../../../figures/fig_declock_12.toml")),
    ("declock-13", include_str!("../../../../figures/fig_declock_13.toml")),
    ("declock-14", include_str!("../../../../figures/fig_declock_14.toml")),
    ("declock-15", include_str!("../../../../figures/fig_declock_15.toml")),
    ("declock-16", include_str!("../../../../figures/fig_declock_16.toml")),
    ("declock-18", include_str!("../../../../figures/fig_declock_18.toml")),
    (
        "shiftlock-12",
        include_str!("../../../../figures/fig_shiftlock_12.toml"),
    ),
    (
        "shiftlock-13",
        include_str!("../../../../figures/fig_shiftlock_13.toml"),
    ),
    (
        "shiftlock-t3",
        include_str!("../../../../figures/fig_shiftlock_t3.toml"),
    ),
    (
        "shiftlock-t4",
        include_str!("../../../../figures/fig_shiftlock_t4.toml"),
    ),
    ("declock-1", include_str!("../../../../figures/fig_declock_1.toml")),
    ("declock-17a", include_str!("../../../../figures/fig_declock_17a.toml")),
    ("declock-17b", include_str!("../../../../figures/fig_declock_17b.toml")),
    ("cider-1", include_str!("../../../../figures/fig_cider_1.toml")),
    ("cider-2", include_str!("../../../../figures/fig_cider_2.toml")),
    ("cider-3", include_str!("../../../../figures/fig_cider_3.toml")),
    ("cider-4", include_str!("../../../../figures/fig_cider_4.toml")),
    ("cider-5", include_str!("../../../../figures/fig_cider_5.toml")),
    ("cider-11", include_str!("../../../../figures/fig_cider_11.toml")),
    ("cider-13", include_str!("../../../../figures/fig_cider_13.toml")),
    ("cider-14", include_str!("../../../../figures/fig_cider_14.toml")),
    ("cider-15", include_str!("../../../../figures/fig_cider_15.toml")),
    ("cider-16", include_str!("../../../../figures/fig_cider_16.toml")),
    ("cider-18", include_str!("../../../../figures/fig_cider_18.toml")),
    ("cider-20", include_str!("../../../../figures/fig_cider_20.toml")),
    ("cider-21", include_str!("../../../../figures/fig_cider_21.toml")),
    ("cider-22", include_str!("../../../../figures/fig_cider_22.toml")),
    ("cider-25", include_str!("../../../../figures/fig_cider_25.toml")),
    ("cider-26", include_str!("../../../../figures/fig_cider_26.toml")),
    ("chime-t1", include_str!("../../../../figures/fig_chime_t1.toml")),
    ("chime-3a", include_str!("../../../../figures/fig_chime_3a.toml")),
    ("chime-3b", include_str!("../../../../figures/fig_chime_3b.toml")),
    ("chime-3c", include_str!("../../../../figures/fig_chime_3c.toml")),
    ("chime-3d", include_str!("../../../../figures/fig_chime_3d.toml")),
    ("chime-4", include_str!("../../../../figures/fig_chime_4.toml")),
    ("chime-12", include_str!("../../../../figures/fig_chime_12.toml")),
    ("chime-13", include_str!("../../../../figures/fig_chime_13.toml")),
    ("chime-14", include_str!("../../../../figures/fig_chime_14.toml")),
    ("chime-15", include_str!("../../../../figures/fig_chime_15.toml")),
    ("chime-15b", include_str!("../../../../figures/fig_chime_15b.toml")),
    ("chime-16", include_str!("../../../../figures/fig_chime_16.toml")),
    ("chime-17", include_str!("../../../../figures/fig_chime_17.toml")),
    ("chime-18", include_str!("../../../../figures/fig_chime_18.toml")),
    ("chime-18c", include_str!("../../../../figures/fig_chime_18c.toml")),
    ("smart-1", include_str!("../../../../figures/fig_smart_1.toml")),
    ("smart-2", include_str!("../../../../figures/fig_smart_2.toml")),
    ("smart-3", include_str!("../../../../figures/fig_smart_3.toml")),
    ("farside-1", include_str!("../../../../figures/fig_farside_1.toml")),
    ("farside-2", include_str!("../../../../figures/fig_farside_2.toml")),
];

/// Name and title of every figure.
///
/// # Panics
/// If a file in `figures/` is damaged; a test looks.
#[must_use]
pub fn list() -> Vec<(&'static str, String)> {
    let title = |text| Figure::parse(text).expect("the figures were tested").title;
    FIGURES.iter().map(|&(id, text)| (id, title(text))).collect()
}

/// The figure of this name.
///
/// # Errors
/// Says which names there are.
pub fn by_id(id: &str) -> Result<Figure, BenchError> {
    let Some(text) = text_of(id) else {
        let others = |text| Figure::parse(text).map_or_else(|_| Vec::new(), |figure| figure.also);
        let names: Vec<String> = FIGURES
            .iter()
            .map(|&(known, text)| match others(text).as_slice() {
                [] => known.to_owned(),
                others => format!("{known} (or {})", others.join(", ")),
            })
            .collect();
        return Err(BenchError::Argument(format!(
            "`{id}` is not a figure: choose from {}",
            names.join(", ")
        )));
    };
    Figure::parse(text).map_err(|reason| BenchError::Figure {
        id: id.to_owned(),
        reason,
    })
}

/// The text of a figure's file.
fn text_of(id: &str) -> Option<&'static str> {
    let is_meant = |text| Figure::parse(text).is_ok_and(|figure| figure.also.iter().any(|known| known == id));
    let own = FIGURES.iter().find(|(known, _)| *known == id);
    let found = own.or_else(|| FIGURES.iter().find(|&&(_, text)| is_meant(text)));
    found.map(|&(_, text)| text)
}

/// Runs figures one after the other, and prints a line for each claim.
///
/// # Errors
/// See [`BenchError`]. A claim that is missed is no error.
pub fn run_all(ids: &[String], is_quick: bool, variation: &Variation, folder: &Path) -> Result<(), BenchError> {
    let mut figures = ids.iter().map(|id| by_id(id)).collect::<Result<Vec<_>, _>>()?;
    for figure in &mut figures {
        figure.variation = variation.clone();
    }
    output::make_folder(folder)?;
    let mut memory = None;
    for figure in figures {
        let outcome = measure(&figure, is_quick, &mut memory, folder)?;
        // Fewer keys mean more contention: what a quick run misses the full one may find.
        let remark = if is_quick { " [quick: a smaller set-up]" } else { "" };
        for verdict in &outcome.verdicts {
            println!("{verdict}{remark}");
        }
    }
    Ok(())
}

/// Runs one figure, judges it, and writes down what came out. `memory` is kept from one run to the next.
fn measure(
    figure: &Figure,
    is_quick: bool,
    memory: &mut Option<Prepared>,
    folder: &Path,
) -> Result<Outcome, BenchError> {
    let points = sweep::run(figure, is_quick, memory)?;
    let outcome = Outcome {
        verdicts: claim::judge(figure, &points)?,
        points,
    };
    output::write(figure, is_quick, &outcome, folder)?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_readable_and_carries_its_name() {
        for (id, _) in FIGURES {
            let figure = by_id(id).expect("a figure");
            assert_eq!(figure.id, id);
            assert!(!figure.claims.is_empty(), "{id} claims something");
            for claim in &figure.claims {
                for (series, x) in claim.measure.points() {
                    let series = figure.series.iter().find(|known| known.name == series);
                    let series = series.unwrap_or_else(|| panic!("{id}: `{}` names an unknown series", claim.text));
                    for is_quick in [false, true] {
                        let xs = figure.xs_of(series, is_quick);
                        assert!(
                            x.is_none_or(|x| xs.contains(&x)),
                            "{id}: `{}` names an unknown x",
                            claim.text
                        );
                    }
                }
            }
        }
        assert_eq!(list().len(), FIGURES.len());
    }

    #[test]
    fn a_file_may_stand_for_several_figures() {
        assert_eq!(by_id("cider-12").expect("a figure").id, "cider-11");
        assert_eq!(by_id("cider-24").expect("a figure").id, "cider-13");
    }

    #[test]
    fn unknown_figures_are_refused_with_the_names() {
        let error = by_id("cider-99").expect_err("no such figure");
        assert!(error.to_string().contains("shiftlock-retry"));
    }
}
