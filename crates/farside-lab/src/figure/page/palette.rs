//! Which colour and mark each line has: one name, one colour, on the whole page.
//!
//! The names that most figures have come first. A lock keeps its colour from figure to figure as long as no two lines of
//! one figure would share it; then the later one takes the next colour that is free there.

use std::collections::BTreeMap;

use crate::figure::file::Figure;

/// How many colours the style sheet has (`--series-0` and so on).
pub(super) const COLORS: usize = 10;

/// The colours of every figure's lines.
pub(super) struct Palette {
    /// By figure and label.
    slots: BTreeMap<(String, String), usize>,
}

impl Palette {
    pub(super) fn for_figures(figures: &[&Figure]) -> Self {
        let known = by_frequency(figures);
        let mut slots = BTreeMap::new();
        for figure in figures {
            // A colour comes twice: as a plain line and, once all are taken, as a dashed one.
            let mut taken = [false; 2 * COLORS];
            for label in labels(figure) {
                let position = known.iter().position(|other| *other == label).unwrap_or_default();
                let from = |start: usize| (0..COLORS).map(move |step| start + (position + step) % COLORS);
                let slot = from(0).chain(from(COLORS)).find(|&slot| !taken[slot]);
                // With more than two lines for each colour some look the same.
                let slot = slot.unwrap_or(position % COLORS);
                taken[slot] = true;
                slots.insert((figure.id.clone(), label.to_owned()), slot);
            }
        }
        Self { slots }
    }

    /// The colour of a line of a figure; from [`COLORS`] on, the same colours again for dashed lines.
    pub(super) fn slot(&self, figure: &Figure, label: &str) -> usize {
        let key = (figure.id.clone(), label.to_owned());
        self.slots.get(&key).copied().unwrap_or_default()
    }
}

/// Every label; first those of many figures, then those that come first.
fn by_frequency<'a>(figures: &[&'a Figure]) -> Vec<&'a str> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for label in figures.iter().flat_map(|figure| labels(figure)) {
        match counts.iter_mut().find(|(known, _)| *known == label) {
            Some((_, count)) => *count += 1,
            None => counts.push((label, 1)),
        }
    }
    counts.sort_by_key(|&(_, count)| core::cmp::Reverse(count));
    counts.into_iter().map(|(label, _)| label).collect()
}

/// The labels of a figure, each once.
fn labels(figure: &Figure) -> Vec<&str> {
    let mut labels: Vec<&str> = Vec::new();
    for series in &figure.series {
        if !labels.contains(&series.label.as_str()) {
            labels.push(&series.label);
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{by_id, list};

    #[test]
    fn lines_of_one_figure_differ_and_names_keep_their_colour() {
        let figures: Vec<Figure> = list().iter().map(|(id, _)| by_id(id).expect("a figure")).collect();
        let palette = Palette::for_figures(&figures.iter().collect::<Vec<_>>());
        for figure in &figures {
            let labels = labels(figure);
            let mut slots: Vec<usize> = labels.iter().map(|label| palette.slot(figure, label)).collect();
            slots.sort_unstable();
            slots.dedup();
            assert_eq!(slots.len(), labels.len().min(2 * COLORS), "{}", figure.id);
        }
        let [four, six] = ["shiftlock-4", "shiftlock-6"].map(|id| by_id(id).expect("a figure"));
        for label in ["ShiftLock", "MCS"] {
            assert_eq!(palette.slot(&four, label), palette.slot(&six, label), "{label}");
        }
    }
}
