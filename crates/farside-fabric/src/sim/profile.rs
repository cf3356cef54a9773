//! Constants of the NIC model, by NIC generation.
//!
//! On the path: chosen once when a simulation starts. The base is `plain`, a NIC of this model and nothing else, which tests
//! use; a profile with the name of a NIC is that NIC in the testbed of the papers that measured with it. Each constant
//! follows from a published measurement, or from a rate or a latency that one implies. Nothing here is tuned per figure.

use serde::{Deserialize, Serialize};

/// How many atomics a unit can put aside.
pub(super) const ASIDE_MAX: u32 = 16;

/// What a NIC, its wire and its clients' cores cost. Times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// Name in reports.
    pub name: String,
    /// Processing units of a NIC; each queue pair belongs to one.
    pub units: u32,
    /// How long a READ, WRITE or SEND occupies its unit (`t_rw`). `units / unit_ns` is the peak rate.
    pub unit_ns: u64,
    /// How long an atomic occupies its unit and locks its address (`t_same`). `1 / address_ns` is the rate on one address.
    pub address_ns: u64,
    /// What a masked or 16-byte atomic adds to that.
    pub extended_extra_ns: u64,
    /// How much later its response leaves, without occupying anything.
    pub extended_late_ns: u64,
    /// How many atomics that wait for a locked address a unit puts aside, to go on with other queue pairs.
    pub aside: u32,
    /// Among how many operations at the front of its queue a unit whose atomic waits for a locked
    /// address looks for one that it can serve meanwhile. 0 is strict head-of-line blocking.
    pub window: u32,
    /// One-way delay of the wire and switch (`owd`).
    pub wire_ns: u64,
    /// Bandwidth of a port, each direction, in bytes per microsecond.
    pub bytes_per_us: u64,
    /// What a doorbell costs the client's core (`cpu`).
    pub post_ns: u64,
    /// What each further verb of a doorbell batch costs the client's core.
    pub post_extra_ns: u64,
    /// What it costs the client's core to find that a batch is done, and to go on with what has waited for it.
    pub take_ns: u64,
    /// How much later a message leaves, since its sender has to connect to the receiver first.
    pub connect_ns: u64,
    /// How much later than it was written a message is seen by whoever it is for: polling, receive queue, dispatch.
    pub message_ns: u64,
    /// Bytes of each memory node that are on its NIC, behind the others. An atomic there needs no round trip to the node's
    /// memory: it occupies its unit, and locks its address, as long as a READ does.
    pub chip_bytes: u64,
    /// Whether the NIC has masked atomics of 8 bytes.
    pub has_masked_atomics: bool,
    /// Whether the NIC has atomics of 16 bytes.
    pub has_wide_atomics: bool,
}

impl Profile {
    /// A NIC with one 100 Gbit/s port. What a client's core does beside posting costs nothing, and a message is seen at once.
    #[must_use]
    pub fn plain() -> Self {
        Self {
            name: "plain".to_owned(),
            // 80 M verbs/s per node, the order of a ConnectX-5's published message rate.
            units: 16,
            unit_ns: 200,
            // The order of a ConnectX-5's: 2.58 M CAS/s on one address.
            address_ns: 388,
            // ShiftLock: 16-byte atomics take 2.03-2.05 us unloaded; plain ones take 1.91 here.
            extended_extra_ns: 150,
            extended_late_ns: 0,
            aside: 0,
            // Chosen once, for all profiles: docs/simulator.md.
            window: 3,
            // A CAS and a WRITE take 4 * 700 + 388 + 200 + 2 * 100 ns = 3.59 us.
            wire_ns: 700,
            bytes_per_us: 12_500,
            post_ns: 100,
            // A work request of a batch is one more 64-byte line for the core to write.
            post_extra_ns: 20,
            take_ns: 0,
            connect_ns: 0,
            message_ns: 0,
            // Off: only Sherman's lock table wants it (`with_chip`).
            chip_bytes: 0,
            has_masked_atomics: true,
            has_wide_atomics: true,
        }
    }

    /// ConnectX-5, 100 Gbit/s, as in ShiftLock's testbed, whose clients talk over dynamic connections (section 3.2).
    #[must_use]
    pub fn cx5() -> Self {
        Self {
            name: "cx5".to_owned(),
            // 240 clients that retry CAS on 10 M locks, Zipf 0.99, wait 38.5 us for each, also when they release a lock (CAS-NB in
            // Table 4): 6.2 M/s, most of them on the hottest lock.
            address_ns: 226,
            // Some pass those that wait for the hottest one.
            aside: 4,
            // With 95 % readers 240 clients make 14.7 M cycles/s of two atomics (Table 3).
            units: 7,
            // Assumed: half of an atomic, as in `plain`.
            unit_ns: 113,
            // What a 16-byte atomic takes longer unloaded (2.05 us, Table 3) does not lower that rate.
            extended_extra_ns: 0,
            extended_late_ns: 240,
            // Section 2.3: a client alone takes and releases a CAS lock in 3.59 us, by two CAS: 4 * 735 + 2 * 226 + 2 * 100 ns.
            wire_ns: 735,
            // Section 3.2: up to 1 us to connect to the receiver of a message.
            connect_ns: 1000,
            // MCS makes 5.2 M cycles/s (8.55 / 1.65, Figure 4), of which the hottest lock, which hands over by messages, has
            // 5.5 %: a message takes 3.5 us from post to post, 2.1 of which the rest of the path does.
            message_ns: 1400,
            ..Self::plain()
        }
    }

    /// ConnectX-4, 100 Gbit/s, as in DecLock's testbed, whose clients are coroutines, two on each core.
    #[must_use]
    pub fn cx4() -> Self {
        Self {
            name: "cx4".to_owned(),
            // All verbs go through one place. 256 clients that retry CAS make 0.20 M acquires/s of 37.8 retries (section 2.2), which are
            // 8 M atomics/s on whatever address; public measurements of one address alone on this NIC have 7.6 M.
            units: 1,
            address_ns: 131,
            // 37 M READ/s: assumed. A READ must cost much less than a CAS (section 6.2), and READs fill the NIC when 256 clients of
            // DSLR+ retry 27.4 times.
            unit_ns: 27,
            // Assumed: half as much again for two words.
            extended_extra_ns: 65,
            // 24 clients of one compute node make 1.61 M acquires/s (section 2.2), 15 us each; a READ takes less than 3 us (section
            // 5.3): 200 + 2 * 980 + 27 + 800 ns.
            wire_ns: 980,
            post_ns: 200,
            take_ns: 800,
            // Assumed: unconnected messages need no connection, but somebody who polls for them.
            message_ns: 1000,
            ..Self::plain()
        }
    }

    /// ConnectX-6, 100 Gbit/s, as in CIDER's and CHIME's testbeds.
    #[must_use]
    pub fn cx6() -> Self {
        Self {
            name: "cx6".to_owned(),
            // CHIME's Figure 4c: one entry is read 1.3 times as often as eight, which fill the port: 65 M READ/s.
            unit_ns: 246,
            // CIDER's Figure 5: without contention a lock leaves 0.7 of the throughput. It adds one verb to the 2.5 of an operation, in
            // the mean, so its 16-byte atomics occupy the NIC no longer than other verbs.
            extended_extra_ns: 0,
            // As the ConnectX-5, both.
            extended_late_ns: 240,
            aside: 4,
            // SMART (ASPLOS 2024), its measurements: an unloaded READ takes 2.35 us, and 128 clients of RACE make 0.53 M UPDATEs/s
            // without back-off.
            wire_ns: 992,
            address_ns: 347,
            ..Self::plain()
        }
    }

    /// The same NIC with 256 KiB of its own in use, for a table of locks as Sherman has it (SIGMOD 2022). How long an atomic
    /// takes there is an assumption, not a measurement: what it is spared is the round trip over PCIe.
    #[must_use]
    pub fn with_chip(self) -> Self {
        Self {
            chip_bytes: 256 << 10,
            ..self
        }
    }

    /// Whether there can be such a NIC.
    ///
    /// # Errors
    /// In words, what is wrong.
    pub fn check(&self) -> Result<(), String> {
        match () {
            () if self.units == 0 => Err("a NIC has at least one unit".to_owned()),
            () if self.bytes_per_us == 0 => Err("a port transmits something".to_owned()),
            () if self.aside > ASIDE_MAX => Err(format!("a unit puts at most {ASIDE_MAX} atomics aside")),
            () => Ok(()),
        }
    }

    /// The profile of this name, or `None`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|profile| profile.name == name)
    }

    /// Every profile, oldest NIC first.
    #[must_use]
    pub fn all() -> [Self; 3] {
        [Self::cx4(), Self::cx5(), Self::cx6()]
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::plain()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_found_by_name() {
        for profile in Profile::all() {
            assert_eq!(Profile::named(&profile.name), Some(profile));
        }
        assert_eq!(Profile::named("cx3"), None);
    }

    #[test]
    fn what_can_be_no_nic_is_said() {
        let plain = Profile::plain;
        assert!(Profile::all().iter().all(|profile| profile.check().is_ok()));
        assert!(
            Profile {
                aside: ASIDE_MAX,
                ..plain()
            }
            .check()
            .is_ok()
        );
        for (profile, reason) in [
            (Profile { units: 0, ..plain() }, "at least one unit"),
            (
                Profile {
                    bytes_per_us: 0,
                    ..plain()
                },
                "transmits something",
            ),
            (
                Profile {
                    aside: ASIDE_MAX + 1,
                    ..plain()
                },
                "at most 16 atomics",
            ),
        ] {
            let error = profile.check().expect_err(reason);
            assert!(error.contains(reason), "{error}");
        }
    }
}
