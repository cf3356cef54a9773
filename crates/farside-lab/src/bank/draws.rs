//! What the clients of the bank ask for.

use rand_xoshiro::Xoshiro256PlusPlus;

use super::account::{AMOUNT_MAX, Pair};
use crate::workload::zipf::below;
use crate::workload::{Scatter, Zipf, client_random};

/// Of a hundred transactions so many only read.
const READS_PERCENT: u64 = 15;

/// One transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Transaction {
    /// Reads two balances.
    Look(Pair),
    /// Moves an amount from the first account to the second, if it is there.
    Transfer(Pair, u64),
}

/// The transactions of one client, which its number and the seed decide.
#[derive(Clone, Debug)]
pub(super) struct Draws {
    random: Xoshiro256PlusPlus,
    popularity: Zipf,
    scatter: Scatter,
}

impl Draws {
    /// Of a bank of at least two accounts, some of which are more popular than others: 0 is uniform.
    pub(super) fn new(accounts: u64, theta: f64, seed: u64, client: u64) -> Self {
        Self {
            random: client_random(seed, client),
            popularity: Zipf::new(accounts, theta),
            scatter: Scatter::new(accounts),
        }
    }

    /// How many accounts there are.
    pub(super) fn accounts(&self) -> u64 {
        self.popularity.items()
    }

    /// The next transaction.
    pub(super) fn next(&mut self) -> Transaction {
        let is_look = below(&mut self.random, 100) < READS_PERCENT;
        let first = self.popularity.rank(&mut self.random);
        let mut second = first;
        // Ends: every rank has its probability.
        while second == first {
            second = self.popularity.rank(&mut self.random);
        }
        let pair = Pair([first, second].map(|rank| self.scatter.key(rank)));
        match is_look {
            true => Transaction::Look(pair),
            false => Transaction::Transfer(pair, 1 + below(&mut self.random, AMOUNT_MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_workload_and_accounts_differ() {
        const DRAWS: u64 = 100_000;
        for (accounts, theta) in [(2, 0.0), (1_000, 0.0), (1_000, 0.99)] {
            let mut draws = Draws::new(accounts, theta, 1, 7);
            let mut looks = 0_u64;
            for _ in 0..DRAWS {
                let Pair([one, other]) = match draws.next() {
                    Transaction::Look(pair) => {
                        looks += 1;
                        pair
                    }
                    Transaction::Transfer(pair, amount) => {
                        assert!((1..=AMOUNT_MAX).contains(&amount));
                        pair
                    }
                };
                assert!(one != other && one.max(other) < accounts, "{one} {other}");
            }
            let percent = looks as f64 * 100.0 / DRAWS as f64;
            // Three standard deviations are a third of a percent.
            assert!(
                (percent - READS_PERCENT as f64).abs() < 0.5,
                "{percent} % of {accounts} accounts"
            );
        }
    }

    #[test]
    fn a_client_and_a_seed_decide_what_is_asked() {
        let asked = |seed, client| {
            let mut draws = Draws::new(1_000, 0.0, seed, client);
            (0..10).map(|_| draws.next()).collect::<Vec<_>>()
        };
        assert_eq!(asked(1, 2), asked(1, 2));
        assert_ne!(asked(1, 2), asked(1, 3));
        assert_ne!(asked(1, 2), asked(2, 2));
    }
}
