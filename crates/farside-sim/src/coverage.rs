//! What runs have covered: faults that really happened, operations, answers, errors.

use std::collections::BTreeMap;

/// Counts by what was counted, in groups.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Coverage {
    counts: BTreeMap<(&'static str, String), u64>,
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
