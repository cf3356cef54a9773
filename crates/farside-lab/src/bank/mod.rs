//! A bank: transfers between accounts, by Farside's transactions and locks, and by what people do with Redis.
//!
//! On the path: the application of ShiftLock's section 4.5, a bank after SmallBank under two-phase locking. A
//! million accounts with one balance each, of which 15 % of the transactions read two, and the others move an amount
//! from one to another. (SmallBank's customers have two accounts each; here whoever is paid is another customer.)
//!
//! Contenders take turns in every round:
//!  - `farside-locks`: both named locks in their order, shared to read; two gets and two puts; both are given back;
//!  - `farside-transactions`: one transaction of the store;
//!  - `redlock`: the same as `farside-locks` with Redlock, MGET and MSET;
//!  - `shiftlock`: the same as `redlock` with a ShiftLock in far memory for each account, as in the paper;
//!  - `watch`: WATCH, MGET, MULTI, MSET, EXEC, until it is not in vain; MGET to read;
//!  - `function`: one call of a function in the server; MGET to read.
//!
//! Servers are a memory node over TCP, in a thread of its own, and `redis-server` processes, which this program starts
//! and ends. Over mapped memory Farside's clients need no server. Clients are tasks on as many threads as there are cores. Those of Redis have a connection each; Farside's
//! share one for each thread, which is how the library works, and one more for its locks.
//!
//! Invariant: when a run has ended, all accounts together hold what they held before it. A run that leaves another sum
//! fails; and so does one whose transaction has seen both accounts of a bank of two, and not all of the money.

mod account;
mod client;
mod draws;
mod farside;
mod redis;
mod report;
mod shiftlock;

use self::account::{ACCOUNTS_MAX, check_sum};
use self::client::{Tally, measure};
use self::draws::Draws;
use self::farside::Farside;
use self::redis::Redis;
use self::report::{Report, Row};
use self::shiftlock::LockMemory;
use crate::crowd::{Crowd, client_threads};
use crate::error::BenchError;
use crate::progress::Progress;
use crate::stage::FabricKind;

/// How many clients there may be: each has a connection, or several.
const CLIENTS_MAX: u64 = 1_000;
/// How many servers may vote on a lock.
const REDLOCK_SERVERS_MAX: u64 = 15;

/// What to measure.
#[derive(Clone, Debug)]
pub struct BankOptions {
    /// How Farside's clients reach the memory: [`FabricKind::Tcp`] or [`FabricKind::Shm`].
    pub fabric: FabricKind,
    /// How many clients there are.
    pub clients: u64,
    /// How many accounts there are.
    pub accounts: u64,
    /// How much more popular some accounts are than others; 0 is uniform.
    pub theta: f64,
    /// How long one run takes, in nanoseconds; half as much goes before.
    pub duration_ns: u64,
    /// Of how many rounds the medians are taken.
    pub rounds: u64,
    /// Who takes part, without repetition.
    pub contenders: Vec<Contender>,
    /// How many Redis servers vote on a lock of Redlock; the first one has the accounts as well.
    pub redlock_servers: u64,
    /// How many named locks the accounts share; `None` is a quarter of those that the memory has room for, or one each.
    pub lock_names: Option<u64>,
    /// Whether Farside's clients have a thread and connections each.
    pub is_alone: bool,
    /// Decides who pays whom.
    pub seed: u64,
    /// Print JSON and nothing else.
    pub is_json: bool,
}

/// Who is measured; see the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// Two-phase locking with named locks.
    FarsideLocks,
    /// Transactions of the store.
    FarsideTransactions,
    /// Two-phase locking with Redlock.
    Redlock,
    /// Two-phase locking with ShiftLocks in far memory, of balances in Redis.
    Shiftlock,
    /// Optimistic transactions of Redis.
    Watch,
    /// A function in Redis.
    Function,
}

impl Contender {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::FarsideLocks,
        Self::FarsideTransactions,
        Self::Redlock,
        Self::Shiftlock,
        Self::Watch,
        Self::Function,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FarsideLocks => "farside-locks",
            Self::FarsideTransactions => "farside-transactions",
            Self::Redlock => "redlock",
            Self::Shiftlock => "shiftlock",
            Self::Watch => "watch",
            Self::Function => "function",
        }
    }

    /// Whether the accounts are in the store; otherwise they are in Redis.
    fn is_in_store(self) -> bool {
        matches!(self, Self::FarsideLocks | Self::FarsideTransactions)
    }

    /// Whether its clients use far memory.
    fn is_far(self) -> bool {
        self.is_in_store() || self == Self::Shiftlock
    }
}

impl BankOptions {
    fn check(&self) -> Result<(), BenchError> {
        let refuse = |text: String| Err(BenchError::Argument(text));
        if !matches!(self.fabric, FabricKind::Shm | FabricKind::Tcp) {
            return refuse("--fabric: the bank is open over shm or tcp".to_owned());
        }
        if self.rounds == 0 {
            return refuse("--rounds is at least 1".to_owned());
        }
        if !(2..=ACCOUNTS_MAX).contains(&self.accounts) {
            return refuse(format!("--accounts is a number from 2 to {ACCOUNTS_MAX}"));
        }
        if !(1..=CLIENTS_MAX).contains(&self.clients) {
            return refuse(format!("--clients is a number from 1 to {CLIENTS_MAX}"));
        }
        if !(1..=REDLOCK_SERVERS_MAX).contains(&self.redlock_servers) {
            return refuse(format!("--redlock-servers is a number from 1 to {REDLOCK_SERVERS_MAX}"));
        }
        if !(0.0..=10.0).contains(&self.theta) {
            return refuse("--theta is a number from 0 to 10".to_owned());
        }
        if self.lock_names == Some(0) {
            return refuse("--lock-names is at least 1".to_owned());
        }
        Ok(())
    }

    fn crowd(&self, contender: Contender) -> Crowd {
        let usual = client_threads(self.clients);
        Crowd {
            clients: self.clients,
            threads: if self.is_alone && contender.is_far() {
                self.clients
            } else {
                usual
            },
            duration_ns: self.duration_ns,
        }
    }
}

/// The banks, of those who take part.
struct Banks<'a> {
    options: &'a BankOptions,
    farside: Option<Farside>,
    redis: Option<Redis>,
    locks: Option<LockMemory>,
}

impl<'a> Banks<'a> {
    fn start(options: &'a BankOptions, progress: &Progress) -> Result<Self, BenchError> {
        progress.label("opening accounts");
        let needs = |is_in_store| options.contenders.iter().any(|one| one.is_in_store() == is_in_store);
        // First, since it may not be installed.
        let redis = needs(false).then(|| Redis::start(options.accounts, options.redlock_servers));
        let redis = redis.transpose()?;
        let farside = needs(true).then(|| Farside::start(options.fabric, options.accounts, options.lock_names));
        let farside = farside.transpose()?;
        let has_locks = options.contenders.contains(&Contender::Shiftlock);
        let locks = has_locks.then(|| LockMemory::start(options.fabric, options.accounts));
        Ok(Self {
            options,
            farside,
            redis,
            locks: locks.transpose()?,
        })
    }

    fn farside(&self) -> &Farside {
        self.farside.as_ref().expect("started, since it takes part")
    }

    fn redis(&self) -> &Redis {
        self.redis.as_ref().expect("started, since it takes part")
    }

    fn locks(&self) -> &LockMemory {
        self.locks.as_ref().expect("laid out, since they take part")
    }

    /// One run of a contender, and a look whether all of the money is there.
    fn measure(&self, contender: Contender) -> Result<Tally, BenchError> {
        let BankOptions {
            accounts, theta, seed, ..
        } = *self.options;
        let crowd = self.options.crowd(contender);
        let draws = |client| Draws::new(accounts, theta, seed, client);
        let (nothing, no_leave) = (async || Ok(()), async |()| Ok(()));
        let tally = match contender {
            Contender::FarsideLocks => measure(
                crowd,
                draws,
                async || self.farside().open_with_locks().await,
                async |(store, locks), _| Ok(self.farside().with_locks(store, locks)),
                async |(store, locks)| {
                    locks.close().await?;
                    Ok(store.close().await?)
                },
            ),
            Contender::FarsideTransactions => measure(
                crowd,
                draws,
                async || self.farside().open().await,
                async |store, _| Ok(Farside::with_transactions(store)),
                async |store| Ok(store.close().await?),
            ),
            Contender::Redlock => measure(
                crowd,
                draws,
                nothing,
                async |(), client| self.redis().with_redlock(seed, client).await,
                no_leave,
            ),
            Contender::Shiftlock => measure(
                crowd,
                draws,
                async || self.locks().open().await,
                async |thread, _| self.redis().with_locks(self.locks().client(thread)?).await,
                async |_| Ok(()),
            ),
            Contender::Watch => measure(
                crowd,
                draws,
                nothing,
                async |(), _| self.redis().with_watch().await,
                no_leave,
            ),
            Contender::Function => measure(
                crowd,
                draws,
                nothing,
                async |(), _| self.redis().with_function().await,
                no_leave,
            ),
        }?;
        let sum = match contender.is_in_store() {
            true => self.farside().sum()?,
            false => self.redis().sum()?,
        };
        check_sum(contender.name(), accounts, sum)?;
        Ok(tally)
    }

    fn stop(self) {
        if let Some(farside) = self.farside {
            farside.stop();
        }
        if let Some(locks) = self.locks {
            locks.stop();
        }
    }
}

/// Measures, and returns what to print.
///
/// # Errors
/// See [`BenchError`]; [`BenchError::Unsound`] if money was lost or made.
pub fn run(options: &BankOptions, progress: &Progress) -> Result<String, BenchError> {
    let report = Report::new(options, measured(options, progress)?);
    Ok(if options.is_json {
        report.to_json()
    } else {
        report.to_table()
    })
}

/// Measures one contender, and returns what it did: a row of the report.
///
/// # Errors
/// Likewise.
///
/// # Panics
/// If several take part.
pub fn run_one(options: &BankOptions) -> Result<serde_json::Value, BenchError> {
    let rows = measured(options, &Progress::hidden())?;
    let [row] = rows.as_slice() else {
        panic!("one takes part, not {}", rows.len());
    };
    Ok(serde_json::to_value(row).expect("a row is plain data"))
}

/// A row for each who takes part.
fn measured(options: &BankOptions, progress: &Progress) -> Result<Vec<Row>, BenchError> {
    options.check()?;
    let banks = Banks::start(options, progress)?;
    let mut tallies: Vec<(Contender, Vec<Tally>)> = options.contenders.iter().map(|&one| (one, Vec::new())).collect();
    let total = options.rounds * tallies.len() as u64;
    for round in 0..options.rounds {
        for (step, (contender, rounds)) in (0..).zip(&mut tallies) {
            progress.label(contender.name());
            progress.set((round * (total / options.rounds) + step) * 100 / total);
            rounds.push(banks.measure(*contender)?);
        }
    }
    banks.stop();
    let rows = tallies
        .iter()
        .map(|(contender, rounds)| Row::new(*contender, rounds, options.duration_ns));
    Ok(rows.collect())
}
