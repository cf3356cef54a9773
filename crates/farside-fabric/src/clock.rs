//! Time, as the fabric tells it: real on real backends, simulated in the simulator.

/// A point in time on an endpoint's clock after which waiting ends, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deadline(pub u64);

impl Deadline {
    /// Waiting never ends by itself.
    pub const NEVER: Self = Self(u64::MAX);
}

/// The clock of an endpoint. Clocks of different endpoints may differ by the fabric's skew.
pub trait Clock {
    /// Nanoseconds since some fixed point; never goes back.
    fn now_ns(&self) -> u64;

    /// Milliseconds since the Unix epoch, for what outlives a process (expiry times). Simulated
    /// clocks start at a fixed date.
    fn unix_ms(&self) -> u64;

    /// Waits for `duration_ns` nanoseconds of this clock; with 0, lets the other tasks run.
    async fn sleep(&self, duration_ns: u64);

    /// Charges `duration_ns` of computation to the client's core. Only simulated time needs to be
    /// told; elsewhere computing takes the time it takes.
    async fn compute(&self, duration_ns: u64) {
        let _ = duration_ns;
    }

    /// The deadline that is `duration_ns` away.
    fn deadline_in(&self, duration_ns: u64) -> Deadline {
        Deadline(self.now_ns().saturating_add(duration_ns))
    }
}
