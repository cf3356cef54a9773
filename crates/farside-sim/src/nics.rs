//! The NICs that plans run on: three of different kinds.
//!
//! They are none of the testbeds of the figures, whose constants change with what is known of them: a seed and a plan that was
//! kept mean the same as long as these stay as they are.

use farside_fabric::sim::Profile;

/// The NIC of this name.
#[must_use]
pub fn named(name: &str) -> Option<Profile> {
    all().into_iter().find(|nic| nic.name == name)
}

/// All of them.
#[must_use]
pub fn all() -> [Profile; 3] {
    [narrow(), late(), wide()]
}

/// One unit, so that verbs are executed one after the other and none of them tears; clients take long to see results.
fn narrow() -> Profile {
    Profile {
        name: "narrow".to_owned(),
        units: 1,
        unit_ns: 27,
        address_ns: 131,
        extended_extra_ns: 65,
        wire_ns: 980,
        post_ns: 200,
        take_ns: 800,
        message_ns: 1000,
        ..Profile::plain()
    }
}

/// Messages take twice as long as verbs, and atomics pass one that waits.
fn late() -> Profile {
    Profile {
        name: "late".to_owned(),
        units: 13,
        unit_ns: 388,
        extended_extra_ns: 0,
        extended_late_ns: 240,
        aside: 4,
        wire_ns: 653,
        connect_ns: 1000,
        message_ns: 1400,
        ..Profile::plain()
    }
}

/// Many units that are quick.
fn wide() -> Profile {
    Profile {
        name: "wide".to_owned(),
        unit_ns: 144,
        wire_ns: 850,
        bytes_per_us: 25_000,
        ..Profile::plain()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nics_are_found_by_name_and_can_be() {
        for nic in all() {
            assert_eq!(nic.check(), Ok(()));
            assert_eq!(named(&nic.name), Some(nic));
        }
        assert_eq!(named("cx5"), None);
    }
}
