//! What runs have covered: faults that really happened, operations, answers, errors.

use std::collections::BTreeMap;

/// Counts by what was counted, in groups.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Coverage {
    counts: BTreeMap<(&'static str, String), u64>,
    /// By target and place: in how many runs somebody came past.
    places: BTreeMap<String, BTreeMap<&'static str, u64>>,
}

impl Coverage {
    /// Counts one more.
    pub fn count(&mut self, group: &'static str, what: impl Into<String>) {
        self.add(group, what, 1);
    }

    /// Counts several more.
    pub fn add(&mut self, group: &'static str, what: impl Into<String>, count: u64) {
        *self.counts.entry((group, what.into())).or_default() += count;
    }

    /// Adds what another run has covered.
    pub fn merge(&mut self, other: Self) {
        for ((group, what), count) in other.counts {
            self.add(group, what, count);
        }
        for (target, places) in other.places {
            let known = self.places.entry(target).or_default();
            for (place, runs) in places {
                *known.entry(place).or_default() += runs;
            }
        }
    }

    /// A run of a target came past these places.
    pub(crate) fn pass(&mut self, target: &str, places: Vec<(&'static str, u64)>) {
        // The compiler may keep a name in several copies.
        let places: BTreeMap<&str, u64> = places.into_iter().map(|(place, _)| (place, 1)).collect();
        let known = self.places.entry(target.to_owned()).or_default();
        for (place, run) in places {
            *known.entry(place).or_default() += run;
        }
    }

    /// In how many of its runs a target came past a place of the protocols.
    #[must_use]
    pub fn passed(&self, target: &str, place: &str) -> u64 {
        let places = self.places.get(target);
        places.and_then(|places| places.get(place)).copied().unwrap_or(0)
    }

    /// How often.
    #[must_use]
    pub fn of(&self, group: &'static str, what: &str) -> u64 {
        self.counts.get(&(group, what.to_owned())).copied().unwrap_or(0)
    }

    /// The sum of a group.
    #[must_use]
    pub fn sum(&self, group: &str) -> u64 {
        self.counts
            .iter()
            .filter(|((name, _), _)| *name == group)
            .map(|(_, count)| count)
            .sum()
    }
}

impl core::fmt::Display for Coverage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut last = "";
        for ((group, what), count) in &self.counts {
            if *group != last {
                writeln!(f, "{group}")?;
                last = group;
            }
            writeln!(f, "  {what:<48} {count:>12}")?;
        }
        Ok(())
    }
}
