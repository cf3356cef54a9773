//! LMDB as a contender: two processes on one file, which is written back whenever the system likes.
//!
//! The fastest way there is: keys are integers, the map is writable, nothing is synchronised with the disk,
//! a reader renews the transaction that it has. Every UPDATE is a transaction of its own, as every PUT of
//! Farside takes effect by itself.

use std::path::Path;

use farside_fabric::host::HostClock;
use lmdb::{
    Cursor, Database, DatabaseFlags, Environment, EnvironmentFlags, InactiveTransaction, Transaction, WriteFlags,
};

use super::WorkerOptions;
use super::draws::Draws;
use super::scans::{Scans, Seen};
use super::worker::{Engine, GETS, OPERATIONS_PER_TURN, SCANS, per_second};
use crate::error::BenchError;
use crate::tree::key_of;
use crate::workload::{client_random, zipf::below};

/// How many items a transaction of the loader has.
const ITEMS_AT_ONCE: usize = 100_000;
/// Addresses for each item and beside them; the file grows as it is used.
const BYTES_PER_ITEM: u64 = 256;
const SPARE_BYTES: u64 = 1 << 30;

/// One of the processes.
pub(super) struct Lmdb {
    environment: Environment,
    database: Database,
    options: WorkerOptions,
    scans: Option<Scans>,
}

fn failed(action: &'static str) -> impl FnOnce(lmdb::Error) -> BenchError {
    move |error| BenchError::system(action)(std::io::Error::other(error))
}

fn open_environment(path: &Path, items: u64) -> Result<Environment, lmdb::Error> {
    let flags = EnvironmentFlags::NO_SYNC | EnvironmentFlags::WRITE_MAP | EnvironmentFlags::NO_READAHEAD;
    Environment::new()
        .set_flags(flags)
        .set_map_size((items * BYTES_PER_ITEM + SPARE_BYTES) as usize)
        .open(path)
}

impl Lmdb {
    /// Opens the file in a folder, or makes it.
    pub(super) fn open(options: &WorkerOptions) -> Result<Self, BenchError> {
        let environment = open_environment(&options.path, options.items).map_err(failed("open LMDB's file"))?;
        let database = environment.create_db(None, DatabaseFlags::INTEGER_KEY);
        Ok(Self {
            database: database.map_err(failed("open LMDB's database"))?,
            environment,
            options: options.clone(),
            scans: options.is_ordered.then(|| Scans::new(options.items)),
        })
    }

    fn reader(&self) -> Result<Reader<'_>, lmdb::Error> {
        Ok(Reader {
            database: self.database,
            transaction: Some(self.environment.begin_ro_txn()?.reset()),
        })
    }

    /// The key of a number: spread over all there are, if keys are to have an order.
    #[inline]
    fn key(&self, number: u64) -> u64 {
        if self.options.is_ordered {
            key_of(number)
        } else {
            number
        }
    }

    fn put(&self, number: u64) -> Result<(), lmdb::Error> {
        let mut transaction = self.environment.begin_rw_txn()?;
        let (key, value) = (self.key(number).to_ne_bytes(), number.to_le_bytes());
        transaction.put(self.database, &key, &value, WriteFlags::empty())?;
        transaction.commit()
    }

    fn insert_all(&self) -> Result<(), lmdb::Error> {
        let mut items: Vec<(u64, u64)> = (0..self.options.items)
            .map(|number| (self.key(number), number))
            .collect();
        // In order, so that pages are full: the least memory that LMDB can do with.
        items.sort_unstable();
        for items in items.chunks(ITEMS_AT_ONCE) {
            let mut transaction = self.environment.begin_rw_txn()?;
            for (key, number) in items {
                let (key, value) = (key.to_ne_bytes(), number.to_le_bytes());
                transaction.put(self.database, &key, &value, WriteFlags::APPEND)?;
            }
            transaction.commit()?;
        }
        Ok(())
    }

    fn used_bytes(&self) -> Result<u64, lmdb::Error> {
        let stat = self.environment.stat()?;
        let pages = stat.branch_pages() + stat.leaf_pages() + stat.overflow_pages();
        Ok(pages as u64 * u64::from(stat.page_size()))
    }

    fn work(&self, draws: &mut Draws, duration_ns: u64) -> Result<f64, lmdb::Error> {
        let mut reader = self.reader()?;
        let start_ns = HostClock.now_ns();
        let mut done = 0;
        while HostClock.now_ns() - start_ns < duration_ns {
            for _ in 0..OPERATIONS_PER_TURN {
                let draw = draws.next();
                if draw.is_update {
                    self.put(draw.number)?;
                } else {
                    reader.get(self.key(draw.number))?;
                }
            }
            done += OPERATIONS_PER_TURN;
        }
        Ok(per_second(done, start_ns))
    }
}

/// A transaction that is renewed for each read, so that each sees what is current.
struct Reader<'a> {
    database: Database,
    transaction: Option<InactiveTransaction<'a>>,
}

impl Reader<'_> {
    /// Reads a value that is there.
    #[inline]
    fn get(&mut self, key: u64) -> Result<[u8; 8], lmdb::Error> {
        let transaction = self.transaction.take().expect("it is put back").renew()?;
        let value = transaction.get(self.database, &key.to_ne_bytes());
        let value = value.map(|value| <[u8; 8]>::try_from(value).expect("values have 8 bytes"));
        self.transaction = Some(transaction.reset());
        value
    }

    /// Reads so many keys from one on.
    fn scan(&mut self, from: u64, count: u64) -> Result<Seen, lmdb::Error> {
        let word = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).expect("keys and values have 8 bytes");
        let transaction = self.transaction.take().expect("it is put back").renew()?;
        let mut cursor = transaction.open_ro_cursor(self.database)?;
        let items = cursor.iter_from(from.to_ne_bytes()).take(count as usize);
        let item = |(key, value)| (u64::from_ne_bytes(word(key)), u64::from_le_bytes(word(value)));
        let seen = items.map(|read| read.map(item)).collect();
        drop(cursor);
        self.transaction = Some(transaction.reset());
        seen
    }
}

impl Engine for Lmdb {
    async fn load(&mut self) -> Result<u64, BenchError> {
        self.insert_all().map_err(failed("load LMDB"))?;
        self.used_bytes().map_err(failed("ask LMDB for its size"))
    }

    async fn get(&mut self, _: u64) -> Result<f64, BenchError> {
        let mut random = client_random(self.options.seed, self.options.member);
        let mut reader = self.reader().map_err(failed("read from LMDB"))?;
        let start_ns = HostClock.now_ns();
        for _ in 0..GETS {
            let number = below(&mut random, self.options.items);
            let value = reader.get(self.key(number)).map_err(failed("read from LMDB"))?;
            assert_eq!(value, number.to_le_bytes(), "what was stored is there");
        }
        Ok((HostClock.now_ns() - start_ns) as f64 / GETS as f64)
    }

    async fn scan(&mut self) -> Result<f64, BenchError> {
        let scans = self
            .scans
            .as_ref()
            .ok_or(BenchError::argument("LMDB was not told to be ordered"))?;
        let mut random = client_random(self.options.seed, self.options.member);
        let mut reader = self.reader().map_err(failed("read from LMDB"))?;
        let start_ns = HostClock.now_ns();
        for _ in 0..SCANS {
            let from = scans.draw(&mut random);
            let seen = reader.scan(from, scans.keys()).map_err(failed("read from LMDB"))?;
            scans.check(from, seen);
        }
        Ok((HostClock.now_ns() - start_ns) as f64 / SCANS as f64)
    }

    async fn ycsb(&mut self, draws: &mut [Draws], _: u64, duration_ns: u64) -> Result<f64, BenchError> {
        self.work(&mut draws[0], duration_ns).map_err(failed("work on LMDB"))
    }
}
