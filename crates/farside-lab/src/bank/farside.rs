//! The bank in Farside: a memory node over TCP, or mapped memory, and clients of the store that use its transactions, or named locks.

use farside_fabric::shm::Segment;
use farside_fabric::{LocalFuture, join_all};
use farside_kv::locks::{Guard, Mode};
use farside_kv::{Locks, LocksOptions, Session, Store, StoreConfig, stack};

use super::account::{OPENING_BALANCE, Pair, after_transfer, balance_of, key_of, lock_name, text_of};
use super::client::Teller;
use crate::error::BenchError;
use crate::stage::FabricKind;
use crate::stage::machine::{Memory, mapped, on_this_thread};

/// The memory of the node. What is not used takes none; a part of it that grows with the whole is for named locks.
const MEMORY_BYTES: u64 = 8 << 30;
/// A store has room for so many accounts in that.
const ACCOUNTS_MAX: u64 = 20_000_000;
/// Of all places for names of locks one in so many is used, so that each name keeps its own.
const PLACES_PER_NAME: u64 = 4;

/// Memory with a bank. Its node, if it has one, ends when [`Farside::stop`] says so.
pub(super) struct Farside {
    memory: Memory,
    accounts: u64,
    /// How many locks the accounts share.
    lock_names: u64,
}

impl Farside {
    /// Fills a store with accounts and gives every lock its place, over mapped memory, and serves it if clients use TCP. `lock_names` is how many
    /// locks the accounts share, if not a quarter of those that there is room for; at most one each.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn start(fabric: FabricKind, accounts: u64, lock_names: Option<u64>) -> Result<Self, BenchError> {
        if accounts > ACCOUNTS_MAX {
            return Err(BenchError::Argument(format!(
                "--accounts is at most {ACCOUNTS_MAX} with Farside among the contenders"
            )));
        }
        let segment = Segment::anonymous(MEMORY_BYTES)?;
        let lock_names = on_this_thread(async {
            let store = Store::open(mapped(&segment)?, StoreConfig::default()).await?;
            let (mut session, balance) = (store.session(), text_of(OPENING_BALANCE));
            for account in 0..accounts {
                session.put(key_of(account).as_bytes(), balance.as_bytes()).await?;
            }
            drop(session);
            store.close().await?;
            let locks = Locks::open(mapped(&segment)?, LocksOptions::default()).await?;
            let lock_names = lock_names
                .unwrap_or((locks.capacity() / PLACES_PER_NAME).max(1))
                .min(accounts);
            for number in 0..lock_names {
                let guard = locks.acquire(lock_name(number).as_bytes(), Mode::Exclusive).await?;
                guard.release().await?;
            }
            locks.close().await?;
            Ok::<_, BenchError>(lock_names)
        })??;
        Ok(Self {
            memory: Memory::open(fabric, segment)?,
            accounts,
            lock_names,
        })
    }

    /// What all accounts hold together.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn sum(&self) -> Result<u64, BenchError> {
        on_this_thread(async {
            let store = Store::open(self.memory.map()?, StoreConfig::default()).await?;
            let (mut session, mut sum) = (store.session(), 0);
            for account in 0..self.accounts {
                sum += balance_of(session.get(key_of(account).as_bytes()).await?)?;
            }
            drop(session);
            store.close().await?;
            Ok(sum)
        })?
    }

    /// A thread's opening of the store.
    pub(super) async fn open(&self) -> Result<Store, BenchError> {
        let endpoint = self.memory.connect().await?;
        let config = StoreConfig {
            timeout_ns: stack::timeout_ns(&endpoint),
            ..StoreConfig::default()
        };
        Ok(Store::open(endpoint, config).await?)
    }

    /// The same with a client of the named locks, which has a connection of its own.
    pub(super) async fn open_with_locks(&self) -> Result<(Store, Locks), BenchError> {
        let store = self.open().await?;
        let locks = Locks::open(self.memory.connect().await?, LocksOptions::default()).await?;
        Ok((store, locks))
    }

    /// A client that uses transactions.
    pub(super) fn with_transactions(store: &Store) -> Transactions {
        Transactions {
            session: store.session(),
        }
    }

    /// A client that uses named locks.
    pub(super) fn with_locks(&self, store: &Store, locks: &Locks) -> LockedAccounts {
        LockedAccounts {
            names: self.lock_names,
            locks: locks.clone(),
            sessions: [store.session(), store.session()],
        }
    }

    /// Ends the memory node.
    pub(super) fn stop(self) {
        self.memory.stop();
    }
}

/// Every transaction is one of the store.
pub(super) struct Transactions {
    session: Session,
}

impl Teller for Transactions {
    async fn look(&mut self, pair: Pair) -> Result<[u64; 2], BenchError> {
        let [one, other] = pair.keys();
        let keys @ [one, other] = [one.as_bytes(), other.as_bytes()];
        let read = self.session.transaction_on(&keys, |transaction| {
            let texts = [
                transaction.get(one)?.map(<[u8]>::to_vec),
                transaction.get(other)?.map(<[u8]>::to_vec),
            ];
            Ok(texts)
        });
        let [one, other] = read.await?;
        Ok([balance_of(one.as_deref())?, balance_of(other.as_deref())?])
    }

    async fn transfer(&mut self, pair: Pair, amount: u64) -> Result<bool, BenchError> {
        let [source, target] = pair.keys();
        let keys @ [source, target] = [source.as_bytes(), target.as_bytes()];
        let moved = self.session.transaction_on(&keys, |transaction| {
            let before = (
                balance_of(transaction.get(source)?),
                balance_of(transaction.get(target)?),
            );
            let before = match before {
                (Ok(one), Ok(other)) => [one, other],
                (Err(error), _) | (_, Err(error)) => return Ok(Err(error)),
            };
            let Some(after) = after_transfer(before, amount) else {
                return Ok(Ok(false));
            };
            transaction.put(source, text_of(after[0]).as_bytes())?;
            transaction.put(target, text_of(after[1]).as_bytes())?;
            Ok(Ok(true))
        });
        moved.await?
    }

    fn retries(&self) -> u64 {
        self.session.retries()
    }
}

/// Two-phase locking: the locks of both accounts are taken in their order, then both balances are read and written, each for
/// itself, and both locks are given back.
pub(super) struct LockedAccounts {
    locks: Locks,
    names: u64,
    /// An operation of each may be under way.
    sessions: [Session; 2],
}

impl LockedAccounts {
    async fn lock(&self, pair: Pair, mode: Mode) -> Result<Vec<Guard>, BenchError> {
        let mut guards = Vec::new();
        for number in pair.locks(self.names) {
            guards.push(self.locks.acquire(lock_name(number).as_bytes(), mode).await?);
        }
        Ok(guards)
    }

    async fn balances(&mut self, keys: &[String; 2]) -> Result<[u64; 2], BenchError> {
        let keys = [keys[0].as_bytes(), keys[1].as_bytes()];
        let mut values = self.sessions[0].get_many(&keys);
        let one = balance_of(values.next().await?)?;
        Ok([one, balance_of(values.next().await?)?])
    }
}

/// Gives the locks back, at the same time.
async fn unlock(guards: Vec<Guard>) -> Result<(), BenchError> {
    let released = guards
        .into_iter()
        .map(|guard| -> LocalFuture<'_, _> { Box::pin(guard.release()) });
    Ok(join_all(released.collect())
        .await
        .into_iter()
        .collect::<Result<_, _>>()?)
}

impl Teller for LockedAccounts {
    async fn look(&mut self, pair: Pair) -> Result<[u64; 2], BenchError> {
        let guards = self.lock(pair, Mode::Shared).await?;
        let balances = self.balances(&pair.keys()).await?;
        unlock(guards).await?;
        Ok(balances)
    }

    async fn transfer(&mut self, pair: Pair, amount: u64) -> Result<bool, BenchError> {
        let guards = self.lock(pair, Mode::Exclusive).await?;
        let keys = pair.keys();
        let after = after_transfer(self.balances(&keys).await?, amount);
        if let Some(after) = after {
            let texts = after.map(text_of);
            let [source, target] = &mut self.sessions;
            let (one, other) = tokio::join!(
                source.put(keys[0].as_bytes(), texts[0].as_bytes()),
                target.put(keys[1].as_bytes(), texts[1].as_bytes())
            );
            one.and(other)?;
        }
        unlock(guards).await?;
        Ok(after.is_some())
    }

    /// Who has to wait queues up.
    fn retries(&self) -> u64 {
        0
    }
}
