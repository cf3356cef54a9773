//! The bank in Redis: under locks (Redlock, or any others), under WATCH, and as a function of the server.
//!
//! Each client has a connection, and one for each server of its locks. Commands that need not wait for each other's replies
//! travel together, and two balances are one MGET or MSET: what the protocol allows is made use of.

use core::time::Duration;
use std::io::Error;

use farside_lock::Mode;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::account::{OPENING_BALANCE, Pair, after_transfer, balance_of, key_of, lock_name, text_of};
use super::client::Teller;
use crate::error::BenchError;
use crate::redis::{Connection, LocalServer, RedisLock};
use crate::stage::machine::on_this_thread;
use crate::workload::client_random;
use crate::workload::zipf::below;

/// How many accounts one command names where all are named.
const ACCOUNTS_AT_ONCE: u64 = 1000;
/// Who is refused a lock asks again after up to so many microseconds.
const PAUSE_US: u64 = 2_000;
/// A transfer in the server; answers whether there was enough.
const TRANSFER: &str = "local source = tonumber(redis.call('GET', KEYS[1])) \
     local target = tonumber(redis.call('GET', KEYS[2])) \
     local amount = tonumber(ARGV[1]) \
     if source < amount then return 0 end \
     redis.call('SET', KEYS[1], string.format('%d', source - amount)) \
     redis.call('SET', KEYS[2], string.format('%d', target + amount)) \
     return 1";

/// Servers: the first has the accounts, and all of them the locks of Redlock.
pub(super) struct Redis {
    servers: Vec<LocalServer>,
    accounts: u64,
    function: Function,
}

/// How a transfer in the server is called.
#[derive(Clone, Debug)]
enum Function {
    /// FCALL, from Redis 7 on.
    Named,
    /// EVALSHA, with the digest of the script.
    Script(String),
}

/// What the contenders from Redis need, and is not there.
fn missing() -> BenchError {
    BenchError::argument(
        "there is no redis-server in PATH: install it (Debian: apt-get install redis-server); `bench bank` can do without it: \
         --only farside-locks,farside-transactions",
    )
}

fn talk<T>(result: std::io::Result<T>) -> Result<T, BenchError> {
    result.map_err(BenchError::system("talk to redis-server"))
}

impl Redis {
    /// Starts so many servers and fills the first one with accounts.
    ///
    /// # Errors
    /// [`BenchError::Argument`] if there is no `redis-server`.
    pub(super) fn start(accounts: u64, servers: u64) -> Result<Self, BenchError> {
        on_this_thread(async {
            let mut started = Vec::new();
            for _ in 0..servers {
                started.push(LocalServer::start().await?.ok_or_else(missing)?);
            }
            let mut connection = talk(Connection::open(started[0].address()).await)?;
            talk(fill(&mut connection, accounts).await)?;
            let function = talk(load(&mut connection).await)?;
            Ok(Self {
                servers: started,
                accounts,
                function,
            })
        })?
    }

    /// What all accounts hold together.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn sum(&self) -> Result<u64, BenchError> {
        on_this_thread(async {
            let mut connection = self.connect().await?;
            let mut sum = 0;
            for first in (0..self.accounts).step_by(ACCOUNTS_AT_ONCE as usize) {
                let keys = keys_from(first, self.accounts);
                for balance in balances(&mut connection, &keys).await? {
                    sum += balance;
                }
            }
            Ok(sum)
        })?
    }

    async fn connect(&self) -> Result<Connection, BenchError> {
        talk(Connection::open(self.servers[0].address()).await)
    }

    /// A client that uses Redlock; the seed decides its pauses.
    pub(super) async fn with_redlock(&self, seed: u64, client: u64) -> Result<Locked<Redlock>, BenchError> {
        let addresses: Vec<String> = self.servers.iter().map(|server| server.address().to_owned()).collect();
        self.with_locks(Redlock {
            lock: RedisLock::connect(&addresses, client).await?,
            accounts: self.accounts,
            random: client_random(!seed, client),
            refusals: 0,
        })
        .await
    }

    /// A client that uses these locks.
    pub(super) async fn with_locks<L: AccountLocks>(&self, locks: L) -> Result<Locked<L>, BenchError> {
        let connection = self.connect().await?;
        Ok(Locked { connection, locks })
    }

    /// A client that uses WATCH.
    pub(super) async fn with_watch(&self) -> Result<Watched, BenchError> {
        Ok(Watched {
            connection: self.connect().await?,
            conflicts: 0,
        })
    }

    /// A client that calls the function.
    pub(super) async fn with_function(&self) -> Result<Called, BenchError> {
        Ok(Called {
            connection: self.connect().await?,
            function: self.function.clone(),
        })
    }
}

/// Some keys, of this account and those after it.
fn keys_from(first: u64, accounts: u64) -> Vec<String> {
    (first..(first + ACCOUNTS_AT_ONCE).min(accounts)).map(key_of).collect()
}

async fn fill(connection: &mut Connection, accounts: u64) -> std::io::Result<()> {
    let balance = text_of(OPENING_BALANCE);
    for first in (0..accounts).step_by(ACCOUNTS_AT_ONCE as usize) {
        let keys = keys_from(first, accounts);
        let mut words = vec!["MSET"];
        keys.iter().for_each(|key| words.extend([key.as_str(), &balance]));
        connection.ask(&words).await?;
    }
    Ok(())
}

/// Leaves the transfer with the server.
async fn load(connection: &mut Connection) -> std::io::Result<Function> {
    let library = format!("#!lua name=bank\nredis.register_function('transfer', function(KEYS, ARGV) {TRANSFER} end)");
    if connection.ask(&["FUNCTION", "LOAD", &library]).await.is_ok() {
        return Ok(Function::Named);
    }
    Ok(Function::Script(connection.ask(&["SCRIPT", "LOAD", TRANSFER]).await?))
}

/// Balances as one MGET finds them, which is at one instant.
async fn balances(connection: &mut Connection, keys: &[String]) -> Result<Vec<u64>, BenchError> {
    push_mget(connection, keys);
    talk(connection.send().await)?;
    receive_balances(connection).await
}

async fn both_balances(connection: &mut Connection, keys: &[String; 2]) -> Result<[u64; 2], BenchError> {
    both(balances(connection, keys).await?)
}

fn push_mget(connection: &mut Connection, keys: &[String]) {
    let mut words = vec!["MGET"];
    words.extend(keys.iter().map(String::as_str));
    connection.push(&words);
}

async fn receive_balances(connection: &mut Connection) -> Result<Vec<u64>, BenchError> {
    let texts = talk(connection.receive_array().await)?.unwrap_or_default();
    texts.iter().map(|text| balance_of(Some(text.as_bytes()))).collect()
}

fn both(balances: Vec<u64>) -> Result<[u64; 2], BenchError> {
    let both = balances.try_into();
    both.map_err(|found| BenchError::Unsound(format!("MGET of two accounts has found {found:?}")))
}

/// Adds the command that stores both balances.
fn push_mset(connection: &mut Connection, keys: &[String; 2], balances: [u64; 2]) {
    let texts = balances.map(text_of);
    connection.push(&["MSET", &keys[0], &texts[0], &keys[1], &texts[1]]);
}

/// Locks of accounts, one for each or for several.
pub(super) trait AccountLocks {
    /// What gives them back.
    type Held;

    /// Takes those of both accounts, in the order in which everybody does.
    async fn lock(&mut self, pair: Pair, mode: Mode) -> Result<Self::Held, BenchError>;
    /// Gives them back.
    async fn unlock(&mut self, held: Self::Held) -> Result<(), BenchError>;
    /// How often one was refused so far.
    fn refusals(&self) -> u64;
}

/// Two-phase locking: both locks in their order, MGET, MSET, and both locks are given back together.
pub(super) struct Locked<L> {
    connection: Connection,
    locks: L,
}

impl<L: AccountLocks> Teller for Locked<L> {
    async fn look(&mut self, pair: Pair) -> Result<[u64; 2], BenchError> {
        let held = self.locks.lock(pair, Mode::Shared).await?;
        let balances = both_balances(&mut self.connection, &pair.keys()).await?;
        self.locks.unlock(held).await?;
        Ok(balances)
    }

    async fn transfer(&mut self, pair: Pair, amount: u64) -> Result<bool, BenchError> {
        let (held, keys) = (self.locks.lock(pair, Mode::Exclusive).await?, pair.keys());
        let after = after_transfer(both_balances(&mut self.connection, &keys).await?, amount);
        if let Some(after) = after {
            push_mset(&mut self.connection, &keys, after);
            talk(self.connection.send().await)?;
            talk(self.connection.receive().await)?;
        }
        self.locks.unlock(held).await?;
        Ok(after.is_some())
    }

    fn retries(&self) -> u64 {
        self.locks.refusals()
    }
}

/// Those of Redlock, which are exclusive.
pub(super) struct Redlock {
    lock: RedisLock,
    accounts: u64,
    random: Xoshiro256PlusPlus,
    refusals: u64,
}

impl AccountLocks for Redlock {
    type Held = Vec<String>;

    async fn lock(&mut self, pair: Pair, _: Mode) -> Result<Vec<String>, BenchError> {
        let names: Vec<String> = pair.locks(self.accounts).into_iter().map(lock_name).collect();
        for name in &names {
            // Ends: whoever holds a lock of a higher order waits for nobody with a lower one, and gives all back.
            while !self.lock.try_lock(name).await? {
                self.refusals += 1;
                let pause = Duration::from_micros(below(&mut self.random, PAUSE_US));
                #[expect(clippy::disallowed_methods, reason = "what is measured here is no fabric")]
                tokio::time::sleep(pause).await;
            }
        }
        Ok(names)
    }

    async fn unlock(&mut self, names: Vec<String>) -> Result<(), BenchError> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.lock.unlock(&names).await
    }

    fn refusals(&self) -> u64 {
        self.refusals
    }
}

/// WATCH and MGET together, then MULTI, MSET and EXEC together, which answers nothing if somebody else was quicker.
pub(super) struct Watched {
    connection: Connection,
    conflicts: u64,
}

impl Teller for Watched {
    async fn look(&mut self, pair: Pair) -> Result<[u64; 2], BenchError> {
        both_balances(&mut self.connection, &pair.keys()).await
    }

    async fn transfer(&mut self, pair: Pair, amount: u64) -> Result<bool, BenchError> {
        let (keys, connection) = (pair.keys(), &mut self.connection);
        // Ends: of those that are in each other's way one comes through.
        loop {
            connection.push(&["WATCH", &keys[0], &keys[1]]);
            push_mget(connection, &keys);
            talk(connection.send().await)?;
            talk(connection.receive().await)?;
            let before = both(receive_balances(connection).await?)?;
            let Some(after) = after_transfer(before, amount) else {
                talk(connection.ask(&["UNWATCH"]).await)?;
                return Ok(false);
            };
            connection.push(&["MULTI"]);
            push_mset(connection, &keys, after);
            talk(connection.push(&["EXEC"]).send().await)?;
            for _ in ["MULTI", "MSET"] {
                talk(connection.receive().await)?;
            }
            if talk(connection.receive_array().await)?.is_some() {
                return Ok(true);
            }
            self.conflicts += 1;
        }
    }

    fn retries(&self) -> u64 {
        self.conflicts
    }
}

/// One call of the server for each transfer.
pub(super) struct Called {
    connection: Connection,
    function: Function,
}

impl Teller for Called {
    async fn look(&mut self, pair: Pair) -> Result<[u64; 2], BenchError> {
        both_balances(&mut self.connection, &pair.keys()).await
    }

    async fn transfer(&mut self, pair: Pair, amount: u64) -> Result<bool, BenchError> {
        let (keys, amount) = (pair.keys(), amount.to_string());
        let (command, function) = match &self.function {
            Function::Named => ("FCALL", "transfer"),
            Function::Script(digest) => ("EVALSHA", digest.as_str()),
        };
        let words = [command, function, "2", &keys[0], &keys[1], &amount];
        match talk(self.connection.ask(&words).await)?.as_str() {
            ":1" => Ok(true),
            ":0" => Ok(false),
            other => talk(Err(Error::other(other.to_owned()))),
        }
    }

    /// The server does one thing at a time.
    fn retries(&self) -> u64 {
        0
    }
}
