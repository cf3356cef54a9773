//! A small picture of a ratio: where ours is on a logarithmic scale around the paper's value, and what is accepted.

use crate::figure::claim::Claim;

/// The ends of the scale are a fifth of the paper's value and five times it.
const END: f64 = 5.0;
/// How wide the scale is, in units of the picture; there is room for a mark at both ends.
const WIDTH: f64 = 100.0;

/// Where the parts of the picture are, from 0 to [`WIDTH`].
#[derive(Debug)]
pub(super) struct Gauge {
    /// Where the accepted part begins.
    pub(super) low: f64,
    /// How wide it is.
    pub(super) width: f64,
    /// Where ours is.
    pub(super) ours: f64,
}

impl Gauge {
    /// None if the paper has no number, or a ratio to it has no logarithm.
    pub(super) fn of(claim: &Claim, ours: f64) -> Option<Self> {
        let paper = claim.paper?;
        let ratio = ours / paper;
        if !(ratio.is_finite() && ratio > 0.0) {
            return None;
        }
        let [low, high] = claim.accept.ratios(paper).map(place);
        Some(Self {
            low,
            width: high - low,
            ours: place(ratio),
        })
    }
}

/// What is beyond an end is at the end.
fn place(ratio: f64) -> f64 {
    let place = ratio.clamp(1.0 / END, END).log(END);
    (place + 1.0) / 2.0 * WIDTH
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(accept: &str, ours: f64) -> Option<Gauge> {
        let text = format!(
            "text = 'x'\npaper = 10.0\nmeasure = {{ peak_at = {{ series = 'a', key = 'k' }} }}\naccept = {accept}\n"
        );
        Gauge::of(&toml::from_str(&text).expect("a claim"), ours)
    }

    #[test]
    fn the_paper_is_in_the_middle_and_a_factor_of_five_is_the_end() {
        let places = |ours| gauge("{ ratio = [0.1, 10.0] }", ours).map(|gauge| gauge.ours);
        assert_eq!(places(10.0), Some(50.0));
        assert_eq!(places(50.0), Some(100.0));
        assert_eq!(places(1e9), Some(100.0));
        assert_eq!(places(0.001), Some(0.0));
        assert_eq!(places(0.0), None);
        assert_eq!(places(f64::NAN), None);
        let wide = gauge("{ at_least = 10.0 }", 10.0).expect("a ratio");
        assert_eq!((wide.low, wide.width), (50.0, 50.0));
        let wide = gauge("{ at_most = 10.0 }", 10.0).expect("a ratio");
        assert_eq!((wide.low, wide.width), (0.0, 50.0));
    }
}
