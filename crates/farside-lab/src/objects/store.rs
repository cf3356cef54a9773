//! Objects that clients get and set, each under a reader-writer lock of its own (DecLock, section 6.6).
//!
//! On the path: one client's side; `bench objects` draws what it does.
//!
//! A get:
//!  1. acquire the object's lock in shared mode;
//!  2. READ all of its pages, with as few doorbells as they fit into. If the object is longer than its client thought, READ the
//!     rest;
//!  3. look at them, and compare what they begin with;
//!  4. release the lock.
//!
//! A set acquires the lock in exclusive mode, WRITEs all pages of the object with a new stamp, and releases it.
//!
//! Who holds a lock with a lease that is over by the end of step 2 may have read what somebody else was writing, and begins anew.
//! Who has written by then has not kept others out: that is an error.
//!
//! Where objects stand is known to every client ([`Places`]): the paper does not say how its clients find them.

use core::ops::Range;
use std::sync::Arc;

use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::{Batch, OpContext};
use farside_lock::{Grant, LockError, Locker, Mode};

use super::places::{Header, PAGE_BYTES, Place, Places, extent, page, page_count, payload};
use crate::error::BenchError;
use crate::program::LockStep;

/// How many sets of a client have stamps of their own.
const STAMPS_PER_CLIENT_BITS: u32 = 40;

/// One client's side of a store of objects.
#[derive(Debug)]
pub struct Objects {
    places: Arc<Places>,
    /// None: nobody keeps anybody out.
    locker: Option<Locker>,
    batch: Box<Batch>,
    /// Of the last set.
    stamp: u64,
}

/// What a get has found.
#[derive(Clone, Copy, Debug)]
pub struct Got {
    /// Bytes of the object.
    pub bytes: u32,
    /// Which set it is of, 0 if nobody has set it yet; `None` if its pages are of several, as they are when they are read while
    /// they are written.
    pub stamp: Option<u64>,
    /// When it was read.
    pub lock: LockStep,
}

/// Whether pages are read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Read,
    Write,
}

impl Objects {
    /// The side of client `number`. Without a locker nobody keeps anybody out: what the fabric alone does.
    #[must_use]
    pub fn new(places: Arc<Places>, locker: Option<Locker>, number: u64) -> Self {
        Self {
            places,
            locker,
            batch: Box::default(),
            stamp: (number + 1) << STAMPS_PER_CLIENT_BITS,
        }
    }

    /// Gets an object, which has `likely_bytes` as far as its client knows: as many it has until somebody sets it, all zeros.
    /// `look` is shown the bytes of each page, with their stamp, while the lock is held, if all pages are of the same set.
    ///
    /// # Errors
    /// What the lock or the fabric reports.
    pub async fn get(
        &mut self,
        cx: &mut OpContext,
        object: u64,
        likely_bytes: u32,
        look: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<Got, BenchError> {
        let place = self.places.of(object);
        let likely_bytes = likely_bytes.min(place.capacity);
        let before = cx.endpoint().counters().snapshot();
        // Ends: as soon as the pages are read within a lease.
        loop {
            let grant = self.acquire(cx, place, Mode::Shared).await?;
            let granted_ns = cx.endpoint().now_ns();
            let acquire = cx.endpoint().counters().snapshot().since(&before);
            let found = self.read(cx, place, likely_bytes).await?;
            let is_over = grant
                .as_ref()
                .is_some_and(|grant| grant.is_over(cx.endpoint().now_ns()));
            match found {
                // Nobody writes it while it is locked.
                Some(header) if !is_over && self.locker.is_some() => cx.rely_on(extent(header.bytes as u32)),
                // It is not used, or its stamps are compared.
                _ => cx.validated(),
            }
            let stamp = found.filter(|_| !is_over).map(|header| {
                for index in 0..page_count(header.bytes as u32) {
                    look(header.stamp, &cx.buffer()[payload(index, header.bytes as u32).range()]);
                }
                header.stamp
            });
            cx.shrink();
            let release_ns = cx.endpoint().now_ns();
            match self.release(cx, grant).await {
                // It was read before the lease ran out, or it will be read again.
                Err(BenchError::Lock(LockError::LeaseLost { .. })) => {}
                released => released?,
            }
            if is_over {
                cx.count_retry();
                continue;
            }
            return Ok(Got {
                bytes: found.map_or(0, |header| header.bytes as u32),
                stamp,
                lock: LockStep {
                    granted_ns,
                    release_ns,
                    acquire,
                    is_hottest: false,
                },
            });
        }
    }

    /// Replaces an object by so many bytes, and returns when. `fill` is given the bytes of each page, with the object's new
    /// stamp.
    ///
    /// # Errors
    /// What the lock or the fabric reports; [`LockError::LeaseLost`] if others may have come in before it was written.
    ///
    /// # Panics
    /// If the object cannot have so many.
    pub async fn set(
        &mut self,
        cx: &mut OpContext,
        object: u64,
        bytes: u32,
        fill: &mut dyn FnMut(u64, &mut [u8]),
    ) -> Result<LockStep, BenchError> {
        let place = self.places.of(object);
        assert!(
            bytes <= place.capacity,
            "object {object} has at most {} bytes",
            place.capacity
        );
        let before = cx.endpoint().counters().snapshot();
        let grant = self.acquire(cx, place, Mode::Exclusive).await?;
        let granted_ns = cx.endpoint().now_ns();
        let acquire = cx.endpoint().counters().snapshot().since(&before);
        self.stamp += 1;
        let header = Header {
            stamp: self.stamp,
            bytes: u64::from(bytes),
        };
        let pages = 0..page_count(bytes);
        // After the acquire, which may need the buffer itself.
        cx.reserve((pages.end * PAGE_BYTES) as usize);
        for index in pages.clone() {
            let target = &mut cx.buffer_mut()[page(index, bytes).range()];
            let (start, rest) = target.split_at_mut(header.to_bytes().len());
            start.copy_from_slice(&header.to_bytes());
            fill(header.stamp, &mut rest[..payload(index, bytes).bytes as usize]);
        }
        self.transfer(cx, place, (pages, bytes), Direction::Write).await?;
        cx.shrink();
        let release_ns = cx.endpoint().now_ns();
        let is_over = grant.as_ref().is_some_and(|grant| grant.is_over(release_ns));
        match self.release(cx, grant).await {
            // It was written before the lease ran out.
            Err(BenchError::Lock(LockError::LeaseLost { .. })) if !is_over => {}
            released => released?,
        }
        Ok(LockStep {
            granted_ns,
            release_ns,
            acquire,
            is_hottest: false,
        })
    }

    async fn acquire(&self, cx: &mut OpContext, place: Place, mode: Mode) -> Result<Option<Grant>, BenchError> {
        match &self.locker {
            Some(locker) => Ok(Some(locker.acquire(cx, place.lock, mode).await?)),
            None => Ok(None),
        }
    }

    async fn release(&self, cx: &mut OpContext, grant: Option<Grant>) -> Result<(), BenchError> {
        match (&self.locker, grant) {
            (Some(locker), Some(grant)) => Ok(locker.release(cx, grant).await?),
            _ => Ok(()),
        }
    }

    /// READs an object into the buffer; what its pages begin with, if that is the same in all of them.
    async fn read(
        &mut self,
        cx: &mut OpContext,
        place: Place,
        likely_bytes: u32,
    ) -> Result<Option<Header>, BenchError> {
        let all = 0..page_count(likely_bytes);
        cx.reserve((all.end * PAGE_BYTES) as usize);
        self.transfer(cx, place, (all, likely_bytes), Direction::Read).await?;
        let mut header = Header::of_page(cx.buffer());
        if header.stamp == 0 {
            // Nobody has set it.
            header.bytes = u64::from(likely_bytes);
            let is_untouched = |index| Header::of_page(&cx.buffer()[page(index, likely_bytes).range()]).stamp == 0;
            return Ok((0..page_count(likely_bytes)).all(is_untouched).then_some(header));
        }
        let Some(bytes) = u32::try_from(header.bytes)
            .ok()
            .filter(|&bytes| bytes <= place.capacity)
        else {
            return Ok(None);
        };
        let pages = 0..page_count(bytes);
        if bytes > likely_bytes {
            // The last page that was read may go on.
            let rest = page_count(likely_bytes) - 1..pages.end;
            cx.reserve((pages.end * PAGE_BYTES) as usize);
            self.transfer(cx, place, (rest, bytes), Direction::Read).await?;
        }
        let is_same = |index| Header::of_page(&cx.buffer()[page(index, bytes).range()]) == header;
        Ok(pages.into_iter().all(is_same).then_some(header))
    }

    /// READs or WRITEs some pages of an object of so many bytes.
    async fn transfer(
        &mut self,
        cx: &mut OpContext,
        place: Place,
        (pages, bytes): (Range<u32>, u32),
        direction: Direction,
    ) -> Result<(), BenchError> {
        let addr = |index: u32| place.addr.plus(u64::from(index * PAGE_BYTES));
        if pages.len() == 1 {
            let slice = page(pages.start, bytes);
            match direction {
                Direction::Read => cx.read(addr(pages.start), slice).await.map(drop)?,
                Direction::Write => cx.write(slice, addr(pages.start)).await?,
            }
            return Ok(());
        }
        for first in pages.clone().step_by(BATCH_VERBS_MAX) {
            self.batch.clear();
            for index in first..pages.end.min(first + BATCH_VERBS_MAX as u32) {
                match direction {
                    Direction::Read => self.batch.read(addr(index), page(index, bytes)),
                    Direction::Write => self.batch.write(page(index, bytes), addr(index)),
                };
            }
            cx.post(&mut self.batch).await?;
        }
        Ok(())
    }
}
