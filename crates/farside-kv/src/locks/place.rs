//! Finding the place of a name, and making one.
//!
//! On the path: before the first acquire of a name, and whenever a place turns out to be another name's.
//!
//! Invariant: no two places of a bucket have the same name. Names are written under the directory lock of
//! the bucket, after a look at all its places.
//!
//! A name is written in three steps, in the order of the verbs: its length becomes 0, then come its bytes, then its
//! length. A client that dies in between leaves a place without a name, and perhaps its lock taken, which goes on as
//! any lock whose holder died.

use std::rc::Rc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, FabricError, OpContext, Slice};
use farside_lock::declock::header::Header;
use farside_lock::{Grant, LockError, Mode};

use super::error::readable;
use super::head::{Note, name_of};
use super::table::{Bucket, HEAD_BYTES, NAME_AT, PLACES, Place};
use super::{LocksError, Shared};

impl Shared {
    /// The place of a name, as far as this client knows: to be looked at again under its lock.
    pub(super) async fn place_of(&self, cx: &mut OpContext, name: &Rc<[u8]>) -> Result<Place, LocksError> {
        let known = self.known.borrow().get(name).copied();
        if let Some(place) = known {
            return Ok(place);
        }
        let found = self.find(cx, name).await;
        let place = match found.map_err(|error| self.failed(name, error.into()))? {
            Some((place, _)) => place,
            None => self.settle(cx, name).await?,
        };
        self.remember(name, place);
        Ok(place)
    }

    /// Looks for a name in its bucket.
    pub(super) async fn find(
        &self,
        cx: &mut OpContext,
        name: &[u8],
    ) -> Result<Option<(Place, Option<Note>)>, FabricError> {
        let bucket = self.table.bucket(name);
        let heads = read_heads(cx, bucket).await?;
        let index = heads.iter().position(|head| name_of(head) == Some(name));
        Ok(index.map(|index| (bucket.place(index as u64), Note::decode(&heads[index]))))
    }

    /// Gives a name a place, under the directory lock.
    async fn settle(&self, cx: &mut OpContext, name: &[u8]) -> Result<Place, LocksError> {
        let bucket = self.table.bucket(name);
        let failed = |source| self.failed(name, source);
        let directory = self.locker.acquire(cx, bucket.directory(), Mode::Exclusive).await;
        let directory = directory.map_err(failed)?;
        let settled = self.settle_alone(cx, bucket, name).await;
        let released = self.locker.release(cx, directory).await;
        let place = settled
            .map_err(failed)?
            .ok_or_else(|| LocksError::TableFull { name: readable(name) });
        released.map_err(failed)?;
        place
    }

    async fn settle_alone(&self, cx: &mut OpContext, bucket: Bucket, name: &[u8]) -> Result<Option<Place>, LockError> {
        let found = self.find(cx, name).await?;
        if let Some((place, _)) = found.filter(|_| !is_planted("locks: a name written twice")) {
            return Ok(Some(place));
        }
        for place in self.idle_places(cx, bucket).await? {
            if let Some(grant) = self.take_if_free(cx, place).await? {
                let written = write_name(cx, place, name).await;
                self.locker.release(cx, grant).await?;
                written?;
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// The places of a bucket whose locks nobody has: those without a name first, then the one that was used least
    /// recently.
    async fn idle_places(&self, cx: &mut OpContext, bucket: Bucket) -> Result<Vec<Place>, FabricError> {
        let mut batch = Batch::new();
        let headers: Vec<_> = (0..PLACES)
            .map(|index| batch.read_word(bucket.place(index).lock))
            .collect();
        cx.post(&mut batch).await?;
        let heads = read_heads(cx, bucket).await?;
        let mut idle: Vec<(u64, Place)> = (0..PLACES)
            .zip(headers)
            .filter(|(_, header)| Header(batch.result(*header)).size() == 0)
            .map(|(index, _)| {
                let head = &heads[index as usize];
                let used_ms = Note::decode(head).map_or(1, |note| note.since_ms);
                (name_of(head).map_or(0, |_| used_ms), bucket.place(index))
            })
            .collect();
        idle.sort_by_key(|(used_ms, _)| *used_ms);
        Ok(idle.into_iter().map(|(_, place)| place).collect())
    }

    async fn take_if_free(&self, cx: &mut OpContext, place: Place) -> Result<Option<Grant>, LockError> {
        // It looked free; if another client was quicker, it may be ours before long.
        cx.set_deadline(self.endpoint.deadline_in(self.site.options().lease_ns / 4));
        let taken = self.locker.acquire(cx, place.lock, Mode::Exclusive).await;
        cx.set_deadline(farside_fabric::Deadline::NEVER);
        match taken {
            Ok(grant) => Ok(Some(grant)),
            Err(LockError::Timeout { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The heads of a bucket, each word of which may be of another time.
pub(super) async fn read_heads(
    cx: &mut OpContext,
    bucket: Bucket,
) -> Result<Vec<[u8; HEAD_BYTES as usize]>, FabricError> {
    let all = Slice::first((PLACES * HEAD_BYTES) as u32);
    cx.read(bucket.heads(), all).await?;
    // A name is looked at again under its lock, and a note has a checksum.
    cx.validated();
    let (heads, _) = cx.buffer()[all.range()].as_chunks();
    Ok(heads.to_vec())
}

async fn write_name(cx: &mut OpContext, place: Place, name: &[u8]) -> Result<(), FabricError> {
    cx.buffer_mut()[..name.len()].copy_from_slice(name);
    let mut batch = Batch::new();
    batch.write_word(place.head, 0);
    batch.write(Slice::first(name.len() as u32), place.head.plus(NAME_AT));
    batch.write_word(place.head, name.len() as u64);
    cx.post(&mut batch).await
}

#[cfg(test)]
mod tests;
