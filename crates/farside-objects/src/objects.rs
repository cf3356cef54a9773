//! One client's side: [`Objects`].

use core::ops::Range;
use std::sync::Arc;

use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::{Batch, CounterSnapshot, OpContext};
use farside_lock::{Grant, LockError, Locker, Mode};

use crate::ObjectError;
use crate::places::{
    HEADER_BYTES, Header, PAGE_BYTES, PAYLOAD_BYTES, Place, Places, extent, page, page_count, payload,
};

/// How often in a row a lease may run out while an object is read, before its client is told. Once is a pause of the client;
/// so often the lease is too short for the object.
const READS_MAX: u32 = 8;

/// One client's side of a store of objects.
#[derive(Debug)]
pub struct Objects {
    places: Arc<Places>,
    /// None: nobody keeps anybody out.
    locker: Option<Locker>,
    batch: Box<Batch>,
}

/// How the lock of an object was held.
#[derive(Clone, Copy, Debug)]
pub struct Locking {
    /// When it was granted, in nanoseconds on the endpoint's clock.
    pub granted_ns: u64,
    /// When the client began to give it back.
    pub release_ns: u64,
    /// What the endpoint posted until it was granted; of use only if the client has the endpoint for itself.
    pub acquire: CounterSnapshot,
}

/// What a get has found.
#[derive(Clone, Copy, Debug)]
pub struct Got {
    /// Bytes of the object.
    pub bytes: u32,
    /// Which set it is of, 0 if nobody has set it yet; `None` if its pages are of several, as they are when they are read while
    /// they are written.
    pub stamp: Option<u64>,
    /// How the lock was held meanwhile.
    pub lock: Locking,
}

/// Whether pages are read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Read,
    Write,
}

impl Objects {
    /// A client of objects at `places`, whose locks `locker` takes. Without a locker nobody keeps anybody out: what the fabric
    /// alone does.
    #[must_use]
    pub fn new(places: Arc<Places>, locker: Option<Locker>) -> Self {
        Self {
            places,
            locker,
            batch: Box::default(),
        }
    }

    /// Gets an object into `value`, in place of what was there; whether somebody has set it. One round trip between those of the
    /// lock, or two if the object has more than one page; who knows how long it is saves the second by [`Objects::get_with`].
    ///
    /// # Errors
    /// See [`Objects::get_with`]; [`ObjectError::Torn`] if a client has died while it set the object. Whoever sets it again
    /// makes it whole.
    ///
    /// # Panics
    /// If there is no such object.
    pub async fn get(&mut self, cx: &mut OpContext, object: u64, value: &mut Vec<u8>) -> Result<bool, ObjectError> {
        value.clear();
        let mut look = |_, bytes: &[u8]| value.extend_from_slice(bytes);
        let got = self.get_with(cx, object, PAYLOAD_BYTES, &mut look).await?;
        match got.stamp {
            None => Err(ObjectError::Torn { object }),
            Some(0) => {
                value.clear();
                Ok(false)
            }
            Some(_) => Ok(true),
        }
    }

    /// Replaces an object.
    ///
    /// # Errors
    /// See [`Objects::set_with`].
    ///
    /// # Panics
    /// If there is no such object.
    pub async fn set(&mut self, cx: &mut OpContext, object: u64, value: &[u8]) -> Result<(), ObjectError> {
        let bytes = u32::try_from(value.len()).unwrap_or(u32::MAX);
        let mut rest = value;
        let mut fill = |_, page: &mut [u8]| {
            let (first, others) = rest.split_at(page.len());
            page.copy_from_slice(first);
            rest = others;
        };
        self.set_with(cx, object, bytes, &mut fill).await.map(drop)
    }

    /// Gets an object, which has `likely_bytes` as far as its client knows: as many it has until somebody sets it, all zeros.
    /// `look` is shown the bytes of each page, in order and with their stamp, while the lock is held, if all pages are of the same set.
    ///
    /// # Errors
    /// What the lock reports, or the fabric; [`ObjectError::LeaseTooShort`].
    ///
    /// # Panics
    /// If there is no such object.
    pub async fn get_with(
        &mut self,
        cx: &mut OpContext,
        object: u64,
        likely_bytes: u32,
        look: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<Got, ObjectError> {
        let place = self.places.of(object);
        let likely_bytes = likely_bytes.min(place.capacity);
        let before = cx.endpoint().counters().snapshot();
        for _ in 0..READS_MAX {
            let grant = self.acquire(cx, place, Mode::Shared).await?;
            let granted_ns = cx.endpoint().now_ns();
            let acquire = cx.endpoint().counters().snapshot().since(&before);
            let found = self.read(cx, place, likely_bytes).await?;
            let is_over = grant
                .as_ref()
                .is_some_and(|grant| grant.is_over(cx.endpoint().now_ns()));
            match found {
                // Nobody writes it while it is locked.
                Some(header) if !is_over && self.locker.is_some() => cx.rely_on(extent(header.bytes)),
                // It is not used, or its stamps are compared.
                _ => cx.validated(),
            }
            let stamp = found.filter(|_| !is_over).map(|header| {
                for index in 0..page_count(header.bytes) {
                    look(header.stamp, &cx.buffer()[payload(index, header.bytes).range()]);
                }
                header.stamp
            });
            cx.shrink();
            let release_ns = cx.endpoint().now_ns();
            match self.release(cx, grant).await {
                // It was read before the lease ran out, or it will be read again.
                Err(ObjectError::Lock(LockError::LeaseLost { .. })) => {}
                released => released?,
            }
            if is_over {
                cx.count_retry();
                continue;
            }
            return Ok(Got {
                bytes: found.map_or(0, |header| header.bytes),
                stamp,
                lock: Locking {
                    granted_ns,
                    release_ns,
                    acquire,
                },
            });
        }
        Err(ObjectError::LeaseTooShort { object })
    }

    /// Replaces an object by so many bytes. `fill` is given the room of each page, in order, with the object's new stamp.
    ///
    /// # Errors
    /// [`ObjectError::TooLarge`]; what the lock reports, or the fabric; among these [`LockError::LeaseLost`] if others may have come
    /// in before it was written.
    ///
    /// # Panics
    /// If there is no such object.
    pub async fn set_with(
        &mut self,
        cx: &mut OpContext,
        object: u64,
        bytes: u32,
        fill: &mut dyn FnMut(u64, &mut [u8]),
    ) -> Result<Locking, ObjectError> {
        let place = self.places.of(object);
        if bytes > place.capacity {
            return Err(ObjectError::TooLarge {
                object,
                bytes,
                capacity: place.capacity,
            });
        }
        let before = cx.endpoint().counters().snapshot();
        let grant = self.acquire(cx, place, Mode::Exclusive).await?;
        let granted_ns = cx.endpoint().now_ns();
        let acquire = cx.endpoint().counters().snapshot().since(&before);
        // By chance, so that no set has that of another, also after a restart; 0 is of none.
        let stamp = cx.endpoint().random() | 1;
        let pages = 0..page_count(bytes);
        // After the acquire, which may need the buffer itself.
        cx.reserve((pages.end * PAGE_BYTES) as usize);
        for index in pages.clone() {
            let target = &mut cx.buffer_mut()[page(index, bytes).range()];
            let (start, rest) = target.split_at_mut(HEADER_BYTES as usize);
            let own = &mut rest[..payload(index, bytes).bytes as usize];
            fill(stamp, own);
            start.copy_from_slice(&Header::new(stamp, bytes, own).to_bytes());
        }
        self.transfer(cx, place, (pages, bytes), Direction::Write).await?;
        cx.shrink();
        let release_ns = cx.endpoint().now_ns();
        let is_over = grant.as_ref().is_some_and(|grant| grant.is_over(release_ns));
        match self.release(cx, grant).await {
            // It was written before the lease ran out.
            Err(ObjectError::Lock(LockError::LeaseLost { .. })) if !is_over => {}
            released => released?,
        }
        Ok(Locking {
            granted_ns,
            release_ns,
            acquire,
        })
    }

    async fn acquire(&self, cx: &mut OpContext, place: Place, mode: Mode) -> Result<Option<Grant>, ObjectError> {
        match &self.locker {
            Some(locker) => Ok(Some(locker.acquire(cx, place.lock, mode).await?)),
            None => Ok(None),
        }
    }

    async fn release(&self, cx: &mut OpContext, grant: Option<Grant>) -> Result<(), ObjectError> {
        match (&self.locker, grant) {
            (Some(locker), Some(grant)) => Ok(locker.release(cx, grant).await?),
            _ => Ok(()),
        }
    }

    /// READs an object into the buffer; what its first page begins with, if all of them are whole and of the same set.
    async fn read(
        &mut self,
        cx: &mut OpContext,
        place: Place,
        likely_bytes: u32,
    ) -> Result<Option<Header>, ObjectError> {
        let all = 0..page_count(likely_bytes);
        cx.reserve((all.end * PAGE_BYTES) as usize);
        self.transfer(cx, place, (all, likely_bytes), Direction::Read).await?;
        let mut header = Header::of_page(cx.buffer());
        if header.stamp == 0 {
            // Nobody has set it.
            header.bytes = likely_bytes;
            let is_untouched = |index| Header::of_page(&cx.buffer()[page(index, likely_bytes).range()]).stamp == 0;
            return Ok((0..page_count(likely_bytes)).all(is_untouched).then_some(header));
        }
        let bytes = header.bytes;
        if bytes > place.capacity {
            return Ok(None);
        }
        let pages = 0..page_count(bytes);
        if bytes > likely_bytes {
            // The last page that was read may go on.
            let rest = page_count(likely_bytes) - 1..pages.end;
            cx.reserve((pages.end * PAGE_BYTES) as usize);
            self.transfer(cx, place, (rest, bytes), Direction::Read).await?;
        }
        let is_whole = |index| {
            let own = &cx.buffer()[payload(index, bytes).range()];
            Header::of_page(&cx.buffer()[page(index, bytes).range()]) == Header::new(header.stamp, bytes, own)
        };
        Ok(pages.into_iter().all(is_whole).then_some(header))
    }

    /// READs or WRITEs some pages of an object of so many bytes.
    async fn transfer(
        &mut self,
        cx: &mut OpContext,
        place: Place,
        (pages, bytes): (Range<u32>, u32),
        direction: Direction,
    ) -> Result<(), ObjectError> {
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
