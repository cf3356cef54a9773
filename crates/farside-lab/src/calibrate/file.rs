//! The file of a testbed: what its profile follows from.
//!
//! ```toml
//! profile = "cx5"
//! testbed = "..."                     # whose machines they are
//!
//! [[fitted]]                          # a constant that is fitted, from this value on
//! name = "address_ns"
//! start = 200
//!
//! [[given]]                           # one that is not: why it is what it is
//! name = "connect_ns"
//! why = "stated in section 3.2"
//!
//! [[headline]]                        # a claim whose sensitivity is of interest
//! figure = "shiftlock-4"
//! claim = "..."                       # its text
//!
//! [[anchor]]                          # what is published: a latency or a rate, and no quotient of two systems
//! text = "compare-and-swaps on one address, M/s"
//! source = "section 2.3"
//! published = 2.58
//! measure = { value = { series = "cas", x = 240, key = "nodes.0.atomics_s", scale = 1e-6 } }
//!
//! [[series]]                          # what is run for them, as in the file of a figure
//! ```

use farside_fabric::sim::Profile;
use serde::Deserialize;

use crate::figure::by_id;
use crate::figure::claim::{Claim, Measure};
use crate::figure::file::{Figure, Quick, Series};
use crate::figure::variation::{Variation, constant_of};

/// How many anchors a testbed may have.
pub const ANCHORS_MAX: usize = 5;

/// What a profile follows from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Testbed {
    /// Name of the profile.
    pub profile: String,
    /// Whose machines they are.
    pub testbed: String,
    /// Constants that are fitted.
    pub fitted: Vec<Fitted>,
    /// Constants that are not.
    #[serde(default)]
    pub given: Vec<Given>,
    /// What is published.
    #[serde(rename = "anchor")]
    pub anchors: Vec<Anchor>,
    /// What is run for the anchors.
    pub series: Vec<Series>,
    /// Claims whose sensitivity is of interest.
    #[serde(default, rename = "headline")]
    pub headlines: Vec<Headline>,
}

/// A constant that is fitted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// A field of [`Profile`].
    pub name: String,
    /// Where the search begins.
    pub start: f64,
}

/// A constant that is not fitted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// A field of [`Profile`].
    pub name: String,
    /// Why it is what it is.
    pub why: String,
}

/// What is published.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// What it is, with its unit.
    pub text: String,
    /// Where it stands.
    pub source: String,
    /// The published value.
    pub published: f64,
    /// How ours is found.
    pub measure: Measure,
}

/// A claim of a figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headline {
    /// The figure's name.
    pub figure: String,
    /// The claim's text.
    pub claim: String,
}

impl Testbed {
    /// Reads a file, and checks what can be checked without running it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let testbed: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let profile = testbed.of_profile()?;
        for name in testbed.constants() {
            constant_of(&profile, name).ok_or_else(|| format!("`{name}` is not a numeric constant"))?;
        }
        if testbed.anchors.len() > ANCHORS_MAX {
            return Err(format!("{} anchors are more than {ANCHORS_MAX}", testbed.anchors.len()));
        }
        if testbed.fitted.len() > testbed.anchors.len() {
            return Err("more constants are fitted than there are anchors".to_owned());
        }
        testbed.figure().check()?;
        for headline in &testbed.headlines {
            testbed.narrowed(headline, false)?;
        }
        Ok(testbed)
    }

    /// The profile as it is.
    ///
    /// # Errors
    /// That there is none.
    pub fn of_profile(&self) -> Result<Profile, String> {
        Profile::named(&self.profile).ok_or_else(|| format!("there is no profile `{}`", self.profile))
    }

    /// Names of the constants, those that are fitted first.
    pub fn constants(&self) -> impl Iterator<Item = &str> {
        let fitted = self.fitted.iter().map(|constant| constant.name.as_str());
        fitted.chain(self.given.iter().map(|constant| constant.name.as_str()))
    }

    /// What is run for the anchors.
    #[must_use]
    pub fn figure(&self) -> Figure {
        let series = self.series.iter().map(|series| Series {
            profile: self.profile.clone(),
            ..series.clone()
        });
        Figure {
            id: format!("anchors of {}", self.profile),
            also: Vec::new(),
            title: self.testbed.clone(),
            source: String::new(),
            setup: String::new(),
            x: None,
            sweeps: Vec::new(),
            panels: Vec::new(),
            series: series.collect(),
            quick: Quick::default(),
            claims: Vec::new(),
            variation: Variation::default(),
        }
    }

    /// A figure with nothing in it but a claim and what it is found from.
    ///
    /// # Errors
    /// If there is no such figure or claim.
    pub fn narrowed(&self, headline: &Headline, is_quick: bool) -> Result<Figure, String> {
        let figure = by_id(&headline.figure).map_err(|error| error.to_string())?;
        let is_meant = |claim: &&Claim| claim.text == headline.claim;
        let claim = figure.claims.iter().find(is_meant).cloned();
        let claim = claim.ok_or_else(|| format!("{} claims nothing like `{}`", headline.figure, headline.claim))?;
        Ok(figure.narrowed(claim, is_quick))
    }
}
