//! Chance, as the fabric deals it: from the seed in the simulator, so that a run can be replayed.

/// Random numbers of an endpoint.
pub trait Random {
    /// A uniformly distributed word.
    fn random(&self) -> u64;

    /// A uniformly distributed number below `bound`, or 0 if `bound` is 0.
    fn random_below(&self, bound: u64) -> u64 {
        ((u128::from(self.random()) * u128::from(bound)) >> 64) as u64
    }
}
