//! Which keys may be evicted when memory runs out, and in which order: Redis's policies, by their names.

/// Which keys may be evicted, and which of them first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum EvictionPolicy {
    /// None: an operation that needs memory fails.
    #[default]
    NoEviction,
    /// Any key, least recently used first.
    AllKeysLru,
    /// Any key, least frequently used first.
    AllKeysLfu,
    /// Any key, at random.
    AllKeysRandom,
    /// Keys with an expiry, least recently used first.
    VolatileLru,
    /// Keys with an expiry, least frequently used first.
    VolatileLfu,
    /// Keys with an expiry, at random.
    VolatileRandom,
    /// Keys with an expiry, the soonest first.
    VolatileTtl,
}

/// What is remembered of a key's uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tracking {
    /// The time of the last one.
    Recency,
    /// How many there were lately.
    Frequency,
}

impl EvictionPolicy {
    /// Every policy with its name, in the order in which Redis lists them.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::VolatileLru, "volatile-lru"),
        (Self::VolatileLfu, "volatile-lfu"),
        (Self::VolatileRandom, "volatile-random"),
        (Self::VolatileTtl, "volatile-ttl"),
        (Self::AllKeysLru, "allkeys-lru"),
        (Self::AllKeysLfu, "allkeys-lfu"),
        (Self::AllKeysRandom, "allkeys-random"),
        (Self::NoEviction, "noeviction"),
    ];

    /// The policy with this name, in upper or lower case.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let known = Self::ALL.iter().find(|&&(_, known)| known == name);
        known.map(|&(policy, _)| policy)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let (_, name) = Self::ALL
            .iter()
            .find(|(policy, _)| *policy == self)
            .expect("all are listed");
        name
    }

    /// Whether any key may be evicted.
    #[must_use]
    pub fn evicts(self) -> bool {
        self != Self::NoEviction
    }

    /// Whether only keys with an expiry are evicted.
    #[must_use]
    pub fn is_volatile(self) -> bool {
        matches!(
            self,
            Self::VolatileLru | Self::VolatileLfu | Self::VolatileRandom | Self::VolatileTtl
        )
    }

    /// What has to be remembered for it.
    pub(crate) fn tracking(self) -> Option<Tracking> {
        match self {
            Self::AllKeysLru | Self::VolatileLru => Some(Tracking::Recency),
            Self::AllKeysLfu | Self::VolatileLfu => Some(Tracking::Frequency),
            _ => None,
        }
    }

    pub(crate) fn from_number(number: u8) -> Self {
        const BY_NUMBER: [EvictionPolicy; 8] = [
            EvictionPolicy::NoEviction,
            EvictionPolicy::AllKeysLru,
            EvictionPolicy::AllKeysLfu,
            EvictionPolicy::AllKeysRandom,
            EvictionPolicy::VolatileLru,
            EvictionPolicy::VolatileLfu,
            EvictionPolicy::VolatileRandom,
            EvictionPolicy::VolatileTtl,
        ];
        BY_NUMBER[usize::from(number) % BY_NUMBER.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back() {
        for (policy, name) in EvictionPolicy::ALL {
            assert_eq!((policy.name(), EvictionPolicy::by_name(name)), (name, Some(policy)));
            assert_eq!(EvictionPolicy::by_name(&name.to_uppercase()), Some(policy));
            assert_eq!(EvictionPolicy::from_number(policy as u8), policy);
            assert_eq!(policy.is_volatile(), name.starts_with("volatile"));
            assert_eq!(policy.evicts(), name != "noeviction");
        }
        assert_eq!(EvictionPolicy::by_name("lru"), None);
    }
}
