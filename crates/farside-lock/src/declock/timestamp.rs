//! When somebody asked, in the 16 bits that an entry has for it (DecLock, section 5.3).

/// Microseconds since the clocks of the compute nodes were set, modulo 2^16: about 65 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timestamp(pub u16);

impl Timestamp {
    /// The timestamp of a time on the clock that all compute nodes share.
    #[must_use]
    pub const fn of_ns(time_ns: u64) -> Self {
        Self((time_ns / 1_000) as u16)
    }

    /// Whether it is earlier. If two are more than half of the range apart, the one with the larger
    /// value is: it is from before the clock wrapped.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        let distance = other.0.wrapping_sub(self.0);
        distance != 0 && distance < 1 << 15
    }

    /// The earliest of several.
    #[must_use]
    pub fn earliest(all: impl Iterator<Item = Self>) -> Option<Self> {
        all.reduce(|one, other| if other.is_before(one) { other } else { one })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn order_is_that_of_times_less_than_32_ms_apart(time_ns in 0_u64..1 << 50, apart_us in 1_u64..1 << 15) {
            let [one, other] = [time_ns, time_ns + apart_us * 1_000].map(Timestamp::of_ns);
            prop_assert!(one.is_before(other) && !other.is_before(one));
            prop_assert!(!one.is_before(one));
            prop_assert_eq!(Timestamp::earliest([other, one].into_iter()), Some(one));
        }
    }

    #[test]
    fn nobody_is_earliest_of_none() {
        assert_eq!(Timestamp::earliest(core::iter::empty()), None);
    }
}
