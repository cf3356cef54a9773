//! Time, as the fabric tells it: real on real backends, simulated in the simulator.

/// A point in time on an endpoint's clock after which waiting ends, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deadline(pub u64);

impl Deadline {
    /// Waiting never ends by itself.
    pub const NEVER: Self = Self(u64::MAX);
}
