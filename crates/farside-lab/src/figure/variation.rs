//! What a run of a figure has otherwise than its file says: another seed, other constants of the NIC model, fewer clients and keys.
//!
//! To find out what a claim depends on: whether it holds with others, and which constant moves it.

use core::str::FromStr;
use std::collections::BTreeMap;

use farside_fabric::sim::Profile;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::file::Series;

/// Decides workload and simulation, if nothing else is said.
const SEED: u64 = 1;

/// What is varied; nothing, if it is the default.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Variation {
    /// Decides workload and simulation.
    pub seed: u64,
    /// Fields of [`Profile`], by name.
    pub model: BTreeMap<String, Value>,
    /// How many percent of the clients there are.
    #[serde(default = "all", skip_serializing_if = "is_all")]
    pub clients_percent: u64,
    /// How many percent of the keys, locks or objects.
    #[serde(default = "all", skip_serializing_if = "is_all")]
    pub keys_percent: u64,
}

fn all() -> u64 {
    100
}

fn is_all(percent: &u64) -> bool {
    *percent == all()
}

impl Default for Variation {
    fn default() -> Self {
        Self {
            seed: SEED,
            model: BTreeMap::new(),
            clients_percent: all(),
            keys_percent: all(),
        }
    }
}

impl Variation {
    /// Another seed, if one is named, and these constants.
    #[must_use]
    pub fn new(seed: Option<u64>, constants: &[Constant]) -> Self {
        Self {
            seed: seed.unwrap_or(SEED),
            model: constants
                .iter()
                .cloned()
                .map(|Constant(name, value)| (name, value))
                .collect(),
            ..Self::default()
        }
    }

    /// The default, with these constants, which are rounded to whole numbers; names as in [`Profile`].
    #[must_use]
    pub fn of_numbers<'a>(constants: impl IntoIterator<Item = (&'a str, f64)>) -> Self {
        let numbers = constants.into_iter();
        Self {
            model: numbers
                .map(|(name, value)| (name.to_owned(), Value::from(value.round() as u64)))
                .collect(),
            ..Self::default()
        }
    }

    /// Numbers that nothing was chosen by: another seed, nine tenths of the clients, four fifths of the keys.
    #[must_use]
    pub fn held_out() -> Self {
        Self {
            seed: SEED + 1,
            clients_percent: 90,
            keys_percent: 80,
            ..Self::default()
        }
    }

    /// Lets one run of a series have as many clients and keys as is said. What there is one of stays.
    pub(super) fn of_series(&self, series: &mut Series) {
        let part = |count: u64, percent: u64| (count * percent).div_ceil(100);
        for clients in &mut series.clients {
            *clients = part(*clients, self.clients_percent);
        }
        series.cns = series.cns.map(|cns| cns.min(series.clients[0]));
        let keys = [
            series.store.as_mut().map(|store| &mut store.items),
            series.lock.as_mut().map(|lock| &mut lock.locks),
            series.objects.as_mut().map(|objects| &mut objects.objects),
        ];
        for count in keys.into_iter().flatten() {
            *count = part(*count, self.keys_percent);
        }
    }

    /// The profile with what is varied in it.
    ///
    /// # Panics
    /// If a constant is none of a profile's: a [`Constant`] was looked at when it was parsed.
    #[must_use]
    pub fn of_profile(&self, profile: Profile) -> Profile {
        if self.model.is_empty() {
            return profile;
        }
        varied(
            profile,
            self.model.iter().map(|(name, value)| (name.as_str(), value.clone())),
        )
        .expect("it was parsed")
    }
}

/// A constant of a profile that is a number, by its name.
#[must_use]
pub fn constant_of(profile: &Profile, name: &str) -> Option<f64> {
    let fields = serde_json::to_value(profile).ok()?;
    fields.get(name)?.as_f64()
}

fn varied<'a>(profile: Profile, constants: impl Iterator<Item = (&'a str, Value)>) -> Result<Profile, String> {
    let mut fields = serde_json::to_value(profile).map_err(|error| error.to_string())?;
    for (name, value) in constants {
        fields[name] = value;
    }
    let profile: Profile = serde_json::from_value(fields).map_err(|error| error.to_string())?;
    profile.check().map(|()| profile)
}

/// A constant of the NIC model and its value, as `NAME=VALUE`.
#[derive(Clone, PartialEq, Debug)]
pub struct Constant(String, Value);

impl FromStr for Constant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or("this takes NAME=VALUE, like `address_ns=500`")?;
        let value =
            serde_json::from_str(value).map_err(|_| format!("`{value}` is neither a number nor true or false"))?;
        let constant = Self(name.to_owned(), value);
        let known = serde_json::to_value(Profile::default()).map_err(|error| error.to_string())?;
        let names = || {
            let fields = known.as_object().into_iter().flatten();
            let names = fields
                .filter(|(_, value)| !value.is_string())
                .map(|(name, _)| name.as_str());
            names.collect::<Vec<_>>().join(", ")
        };
        if known.get(name).is_none_or(Value::is_string) {
            return Err(format!(
                "`{name}` is not a constant of the NIC model: choose from {}",
                names()
            ));
        }
        varied(Profile::default(), [(name, constant.1.clone())].into_iter())
            .map_err(|reason| format!("`{text}`: {reason}"))?;
        Ok(constant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_takes_the_place_of_the_profiles() {
        let constants: Vec<Constant> = ["address_ns=500", "has_wide_atomics=false"]
            .map(|text| text.parse().expect("a constant"))
            .into();
        let varied = Variation::new(None, &constants).of_profile(Profile::cx6());
        let expected = Profile {
            address_ns: 500,
            has_wide_atomics: false,
            ..Profile::cx6()
        };
        assert_eq!(varied, expected);
        assert_eq!(Variation::default().of_profile(Profile::cx4()), Profile::cx4());
    }

    #[test]
    fn held_out_runs_have_fewer_clients_and_keys() {
        let figure = crate::figure::by_id("declock-1").expect("a figure");
        let mut series = figure.series[0].clone();
        let items = series.store.as_ref().expect("it has an index").items;
        (series.clients, series.cns) = (vec![8], Some(8));
        Variation::default().of_series(&mut series);
        assert_eq!((&series.clients[..], series.cns), (&[8][..], Some(8)));
        Variation::held_out().of_series(&mut series);
        // Nobody is alone on two compute nodes.
        assert_eq!((&series.clients[..], series.cns), (&[8][..], Some(8)));
        series.clients = vec![1];
        Variation::held_out().of_series(&mut series);
        assert_eq!((&series.clients[..], series.cns), (&[1][..], Some(1)));
        let store = series.store.expect("it has an index");
        assert!(
            store.items < items * 65 / 100 && store.items > items * 63 / 100,
            "{}",
            store.items
        );
    }

    #[test]
    fn what_is_no_constant_is_refused_in_words() {
        for (text, reason) in [
            ("address_ns", "NAME=VALUE"),
            ("adress_ns=5", "choose from"),
            ("name=5", "choose from"),
            ("address_ns=five", "neither a number"),
            ("address_ns=-5", "invalid value"),
            ("units=true", "invalid type"),
            ("units=0", "at least one unit"),
        ] {
            let error = text.parse::<Constant>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
