//! A client of the bank: one transaction after the other, each timed from its first attempt to its end.

use core::cell::RefCell;
use core::ops::Range;
use std::rc::Rc;

use farside_fabric::host::HostClock;
use hdrhistogram::Histogram;

use super::account::{Pair, check_seen};
use super::draws::{Draws, Transaction};
use crate::crowd::{Crowd, all_of};
use crate::driver::take_turns;
use crate::error::BenchError;
use crate::recorder::histogram;

/// Somebody who keeps accounts.
///
/// - Both methods are transactions: they take effect at one instant, and try again until they do.
/// - One is under way at a time.
pub(super) trait Teller {
    /// The balances of two accounts.
    async fn look(&mut self, pair: Pair) -> Result<[u64; 2], BenchError>;
    /// Moves an amount from the first account to the second if it is there; whether it was.
    async fn transfer(&mut self, pair: Pair, amount: u64) -> Result<bool, BenchError>;
    /// How many attempts have come to nothing so far because of somebody else.
    fn retries(&self) -> u64;
}

/// What clients did in the time that counts.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// Transactions that only read.
    pub(super) looks: u64,
    /// Transfers that moved money.
    pub(super) transfers: u64,
    /// Transfers for which there was not enough money: they end without a change.
    pub(super) refused: u64,
    /// Attempts that were begun anew.
    pub(super) retries: u64,
    /// Nanoseconds of a transaction, with all its attempts.
    pub(super) latency: Histogram<u64>,
}

impl Tally {
    fn new() -> Self {
        Self {
            looks: 0,
            transfers: 0,
            refused: 0,
            retries: 0,
            latency: histogram(),
        }
    }

    /// Adds what others did.
    fn absorb(&mut self, other: &Self) {
        self.looks += other.looks;
        self.transfers += other.transfers;
        self.refused += other.refused;
        self.retries += other.retries;
        self.latency.add(&other.latency).expect("the bounds are the same");
    }

    /// How many transactions came to an end.
    pub(super) fn transactions(&self) -> u64 {
        self.looks + self.transfers + self.refused
    }
}

/// Runs a crowd of clients. `open` makes ready what the clients of a thread share, `teller` a client of it, and `close` takes
/// leave when all of them have ended.
///
/// # Errors
/// The first one of anybody.
pub(super) fn measure<O, S: Teller + 'static>(
    crowd: Crowd,
    draws: impl Fn(u64) -> Draws + Sync,
    open: impl AsyncFn() -> Result<O, BenchError> + Sync,
    teller: impl AsyncFn(&O, u64) -> Result<S, BenchError> + Sync,
    close: impl AsyncFn(O) -> Result<(), BenchError> + Sync,
) -> Result<Tally, BenchError> {
    let tallies = crowd.run(
        async |numbers| {
            let opened = open().await?;
            let mut clients = Vec::new();
            for number in numbers {
                clients.push((teller(&opened, number).await?, draws(number)));
            }
            Ok((opened, clients))
        },
        async |(opened, clients): (O, Vec<(S, Draws)>), window| {
            let tally = Rc::new(RefCell::new(Tally::new()));
            let served = clients
                .into_iter()
                .map(|(teller, draws)| serve(teller, draws, window.clone(), Rc::clone(&tally)));
            all_of(served).await?;
            close(opened).await?;
            let tally = tally.borrow().clone();
            Ok(tally)
        },
    )?;
    let mut sum = Tally::new();
    tallies.iter().for_each(|tally| sum.absorb(tally));
    Ok(sum)
}

/// Runs one client until time is up; counts what ends in the window.
async fn serve(
    mut teller: impl Teller,
    mut draws: Draws,
    window: Range<u64>,
    tally: Rc<RefCell<Tally>>,
) -> Result<(), BenchError> {
    let accounts = draws.accounts();
    for done in 1_u64.. {
        take_turns(done).await;
        let transaction = draws.next();
        let (begun_ns, retries) = (HostClock.now_ns(), teller.retries());
        // Whether money was moved, if it should have been.
        let moved = match transaction {
            Transaction::Look(pair) => {
                check_seen(accounts, teller.look(pair).await?)?;
                None
            }
            Transaction::Transfer(pair, amount) => Some(teller.transfer(pair, amount).await?),
        };
        let ended_ns = HostClock.now_ns();
        if ended_ns >= window.end {
            return Ok(());
        }
        if ended_ns < window.start {
            continue;
        }
        let mut tally = tally.borrow_mut();
        match moved {
            None => tally.looks += 1,
            Some(true) => tally.transfers += 1,
            Some(false) => tally.refused += 1,
        }
        tally.retries += teller.retries() - retries;
        tally.latency.saturating_record(ended_ns - begun_ns);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Mutex, MutexGuard};

    use super::*;
    use crate::bank::account::{OPENING_BALANCE, after_transfer, check_sum};

    /// The books of a bank in the memory of a thread. Everybody puts the pen down before each balance that is written, with or
    /// without the door locked.
    struct Books {
        balances: Rc<RefCell<Vec<u64>>>,
        door: Option<Rc<Mutex<()>>>,
        attempts: u64,
    }

    async fn lock(door: Option<&Rc<Mutex<()>>>) -> Option<MutexGuard<'_, ()>> {
        match door {
            Some(door) => Some(door.lock().await),
            None => None,
        }
    }

    impl Books {
        fn read(&self, pair: Pair) -> [u64; 2] {
            let balances = self.balances.borrow();
            pair.0.map(|account| balances[account as usize])
        }
    }

    impl Teller for Books {
        async fn look(&mut self, pair: Pair) -> Result<[u64; 2], BenchError> {
            let _locked = lock(self.door.as_ref()).await;
            Ok(self.read(pair))
        }

        async fn transfer(&mut self, pair: Pair, amount: u64) -> Result<bool, BenchError> {
            let _locked = lock(self.door.as_ref()).await;
            self.attempts += 1;
            let Some(after) = after_transfer(self.read(pair), amount) else {
                return Ok(false);
            };
            for (account, balance) in pair.0.into_iter().zip(after) {
                tokio::task::yield_now().await;
                self.balances.borrow_mut()[account as usize] = balance;
            }
            Ok(true)
        }

        fn retries(&self) -> u64 {
            self.attempts
        }
    }

    fn run(accounts: u64, is_locked: bool) -> (Result<Tally, BenchError>, u64) {
        let crowd = Crowd {
            clients: 8,
            threads: 1,
            duration_ns: 100_000_000,
        };
        let sum = core::sync::atomic::AtomicU64::new(0);
        let tally = measure(
            crowd,
            |client| Draws::new(accounts, 0.0, 1, client),
            async || {
                let balances = vec![OPENING_BALANCE; accounts as usize];
                let door = is_locked.then(|| Rc::new(Mutex::new(())));
                Ok((Rc::new(RefCell::new(balances)), door))
            },
            async |(balances, door), _| {
                Ok(Books {
                    balances: Rc::clone(balances),
                    door: door.clone(),
                    attempts: 0,
                })
            },
            async |(balances, _)| {
                let total = balances.borrow().iter().sum();
                sum.store(total, core::sync::atomic::Ordering::Relaxed);
                Ok(())
            },
        );
        (tally, sum.into_inner())
    }

    #[test]
    fn what_ends_is_counted_by_kind_and_timed() {
        for accounts in [2, 5] {
            let (tally, sum) = run(accounts, true);
            let tally = tally.expect("nobody sees half of a transfer");
            check_sum("books", accounts, sum).expect("a door that is locked is enough");
            assert!(tally.transfers > 0 && tally.looks > 0, "{tally:?}");
            assert_eq!(tally.latency.len(), tally.transactions());
            assert_eq!(tally.retries, tally.transfers + tally.refused);
        }
    }

    #[test]
    fn a_bank_that_locks_nothing_is_found_out() {
        let (tally, sum) = run(5, false);
        tally.expect("nobody sees it from inside");
        check_sum("books", 5, sum).expect_err("transfers between the same accounts were lost");
        let (tally, _) = run(2, false);
        let error = tally.expect_err("a look sees the whole bank");
        assert!(matches!(error, BenchError::Unsound(_)), "{error}");
    }
}
