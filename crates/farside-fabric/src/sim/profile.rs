//! Constants of the NIC model, by NIC generation.
//!
//! On the path: chosen once when a simulation starts. The base is `CX5`, whose constants follow from
//! published measurements of single mechanisms (rate on one address, unloaded latency); the other
//! profiles differ only where a measurement of that NIC says so. Nothing here is tuned per figure.

use serde::{Deserialize, Serialize};

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
    /// Bytes of each memory node that are on its NIC, behind the others. An atomic there needs no round trip to the node's
    /// memory: it occupies its unit, and locks its address, as long as a READ does.
    pub chip_bytes: u64,
    /// Whether the NIC has masked atomics of 8 bytes.
    pub has_masked_atomics: bool,
    /// Whether the NIC has atomics of 16 bytes.
    pub has_wide_atomics: bool,
}

impl Profile {
    /// ConnectX-5, 100 Gbit/s: the base.
    #[must_use]
    pub fn cx5() -> Self {
        Self {
            name: "cx5".to_owned(),
            // 80 M verbs/s per node, the order of a ConnectX-5's published message rate.
            units: 16,
            unit_ns: 200,
            // ShiftLock section 2.3: 15.5 K acquisitions/s of which 0.6 % of CAS succeed, hence
            // 2.58 M CAS/s on one address.
            address_ns: 388,
            // ShiftLock: 16-byte atomics take 2.03-2.05 us unloaded; plain ones take 1.91 here.
            extended_extra_ns: 150,
            // Chosen once, from ShiftLock section 2.3, for all profiles: docs/simulator.md.
            window: 3,
            // ShiftLock section 2.3: a client alone takes a lock 278.3 K times a second. Its turn, a
            // CAS and a WRITE, is 4 * 700 + 388 + 200 + 2 * 100 ns = 3.59 us.
            wire_ns: 700,
            bytes_per_us: 12_500,
            post_ns: 100,
            // A work request of a batch is one more 64-byte line for the core to write.
            post_extra_ns: 20,
            // Off: only Sherman's lock table wants it (`with_chip`).
            chip_bytes: 0,
            has_masked_atomics: true,
            has_wide_atomics: true,
        }
    }

    /// ConnectX-4, 100 Gbit/s: half the units, and slower ones.
    #[must_use]
    pub fn cx4() -> Self {
        Self {
            name: "cx4".to_owned(),
            // Constants with which a first model of this design came near DecLock's CAS lock, which
            // falls from 1.61 to 0.20 M ops/s on this NIC. No source gives them one by one.
            units: 8,
            unit_ns: 300,
            address_ns: 500,
            ..Self::cx5()
        }
    }

    /// ConnectX-6, 200 Gbit/s.
    #[must_use]
    pub fn cx6() -> Self {
        Self {
            name: "cx6".to_owned(),
            // SMART's raw reference: at most 111 M READ/s per node, which are 16 units of 144 ns.
            unit_ns: 144,
            // CIDER's Figures 1 and 2: the optimistic scheme is best near 64 clients, at about 12 M
            // ops/s. That is their latency: 1049 ns (SMART's 2.35 us for an unloaded READ) would make
            // it 10 M, the ConnectX-5's 700 ns 13.6 M.
            wire_ns: 850,
            bytes_per_us: 25_000,
            // No published rate on one address: the ConnectX-5's.
            ..Self::cx5()
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
        Self::cx5()
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
}
