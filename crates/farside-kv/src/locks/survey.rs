//! Which locks are held: a look at the whole table, for people.
//!
//! On the path: nowhere; monitors ask. Whoever looks is no client of the locks: it reads, and takes part in nothing.
//!
//! 1. The header of every lock of a bucket is read, in one batch. In nearly all buckets nobody is in a queue.
//! 2. Where somebody is, the heads of the bucket are read: names and notes.
//!
//! Locks change hands meanwhile, so each line is true of one moment, and all of them together of none. A lock whose
//! holder died is shown until somebody waits for it and finds out.

use farside_fabric::{Batch, Deadline, OpContext};
use farside_lock::declock::header::Header;

use super::Holder;
use super::head::{Note, name_of};
use super::place::read_heads;
use super::table::{PLACES, Table};
use crate::error::{KvError, Pending};
use crate::store::Store;

/// After so many buckets other tasks have their turn.
const BUCKETS_AT_ONCE: u64 = 64;

/// A lock that somebody holds or waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldLock {
    /// Its name.
    pub name: Vec<u8>,
    /// Who was granted it last; `None` if that is being written.
    pub holder: Option<Holder>,
    /// How many clients hold it or wait for it.
    pub in_queue: u64,
}

impl Store {
    /// The named locks that somebody holds or waits for, at most `most` of them, in no order. Reads eight words per bucket of
    /// the table.
    ///
    /// # Errors
    /// What the fabric reports. A pool without a table has no locks.
    pub fn held_locks(&self, most: usize) -> Pending<'_, Vec<HeldLock>> {
        Box::pin(async move {
            let mut cx = OpContext::new(self.endpoint().clone());
            let until = || {
                let timeout_ns = self.timeout_ns;
                timeout_ns.map_or(Deadline::NEVER, |timeout_ns| self.endpoint().deadline_in(timeout_ns))
            };
            cx.set_deadline(until());
            let mut held = Vec::new();
            let Some(table) = Table::find(&mut cx).await? else {
                return Ok(held);
            };
            for index in 0..table.buckets() {
                let bucket = table.bucket_at(index);
                let mut batch = Batch::new();
                let headers = core::array::from_fn::<_, { PLACES as usize }, _>(|place| {
                    batch.read_word(bucket.place(place as u64).lock)
                });
                cx.post(&mut batch).await.map_err(KvError::from)?;
                let headers = headers.map(|header| Header(batch.result(header)).size());
                if headers.iter().any(|&in_queue| in_queue > 0) {
                    let heads = read_heads(&mut cx, bucket).await.map_err(KvError::from)?;
                    let queues = headers.iter().zip(&heads).filter(|&(&in_queue, _)| in_queue > 0);
                    // A place without a name is being given one.
                    held.extend(queues.filter_map(|(&in_queue, head)| {
                        Some(HeldLock {
                            name: name_of(head)?.to_vec(),
                            holder: Note::decode(head).map(|note| Holder {
                                owner: note.owner,
                                since_ms: note.since_ms,
                                mode: note.mode,
                                in_queue,
                            }),
                            in_queue,
                        })
                    }));
                    if held.len() >= most {
                        held.truncate(most);
                        break;
                    }
                }
                if index % BUCKETS_AT_ONCE == BUCKETS_AT_ONCE - 1 {
                    self.endpoint().sleep(0).await;
                    cx.set_deadline(until());
                }
            }
            Ok(held)
        })
    }
}
