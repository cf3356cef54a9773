//! How many bytes are in use: blocks that somebody has allocated and nobody has retired.
//!
//! On the path: an allocation adds to a number in local memory, a retirement takes away from it. Every tick
//! writes the number into the client's entry, in the WRITE that renews the lease, so that counting costs no
//! verb. A block that one client has allocated and another one retired leaves the first number too large and
//! the second too small by as much: a single one may be negative, and only the sum says something.
//!
//! The number belongs to the entry of the client table, not to the client: whoever takes an entry over goes on
//! counting from there, so that nothing is lost when clients come and go.
//!
//! # What counts
//! The whole block, with what rounding up to its class adds: items, and the tables of an index that are blocks.
//! What waits for its grace period does not count, nor do free blocks in lists: they are reused. So the sum falls
//! as soon as an item is unlinked, and who removes items until it is small enough does not remove too many.
//!
//! # How exact it is
//! While nobody dies: exact, as far as it has been published. A client that dies takes with it what it did since its
//! last tick, and the blocks that it had allocated and not linked; an operation whose outcome the fabric leaves in
//! doubt may shift the sum by its block. Blocks that were laid out without a client ([`BulkLoader`](crate::BulkLoader))
//! do not count.

use farside_fabric::{LocalFuture, NodeId, OpContext, RemoteAddr, Slice};

use crate::client::{self, ClientEntry};
use crate::error::PoolError;
use crate::layout::{CLIENT_BYTES, CLIENTS_HIGH_AT};
use crate::pool::Pool;
use crate::size_class::SizeClass;

/// How many entries of the client table are read together.
const ENTRIES_AT_ONCE: u64 = 128;

impl Pool {
    /// Bytes that are in use, of all clients: what the others have last published and what this client knows of
    /// itself. Reads the client table, as far as it was ever used.
    ///
    /// # Errors
    /// What the fabric reports.
    pub fn held<'f>(&'f self, cx: &'f mut OpContext) -> LocalFuture<'f, Result<u64, PoolError>> {
        Box::pin(async move {
            let others = sum(cx, self.geometry()[0].clients_max, Some(self.shared.owner.client)).await?;
            Ok(others.wrapping_add(self.held_here()).max(0).cast_unsigned())
        })
    }

    /// The number of this client: it grows by what the client allocates and falls by what it retires, and may be
    /// negative. Only differences mean something by themselves.
    #[inline]
    #[must_use]
    pub fn held_here(&self) -> i64 {
        self.shared.held.get()
    }

    /// Bytes of memory that a block for `bytes` bytes takes.
    #[inline]
    #[must_use]
    pub fn block_bytes(&self, bytes: u64) -> u64 {
        match self.class_for(bytes) {
            SizeClass::RUN => bytes.next_multiple_of(self.shared.geometry[0].chunk_bytes),
            class => class.bytes(),
        }
    }

    #[inline]
    pub(crate) fn hold(&self, bytes: u64) {
        let held = &self.shared.held;
        held.set(held.get().wrapping_add(self.block_bytes(bytes).cast_signed()));
    }

    #[inline]
    pub(crate) fn let_go(&self, bytes: u64) {
        let held = &self.shared.held;
        held.set(held.get().wrapping_sub(self.block_bytes(bytes).cast_signed()));
    }
}

/// Bytes that are in use on a pool's nodes, as last published.
///
/// # Errors
/// What the fabric reports.
pub fn held<'f>(cx: &'f mut OpContext, clients_max: u64) -> LocalFuture<'f, Result<u64, PoolError>> {
    Box::pin(async move { Ok(sum(cx, clients_max, None).await?.max(0).cast_unsigned()) })
}

/// The sum over all entries but one, used or not.
async fn sum(cx: &mut OpContext, clients_max: u64, without: Option<u16>) -> Result<i64, PoolError> {
    let high = RemoteAddr::new(NodeId::new(0), CLIENTS_HIGH_AT);
    let high = cx.read_word(high).await?.min(clients_max);
    let mut sum = 0_i64;
    for first in (0..high).step_by(ENTRIES_AT_ONCE as usize) {
        let count = ENTRIES_AT_ONCE.min(high - first);
        let target = Slice::first((count * CLIENT_BYTES) as u32);
        let bytes = cx.read(client::entry_addr(first as u16), target).await?;
        for (index, bytes) in (first..).zip(bytes.chunks_exact(CLIENT_BYTES as usize)) {
            if without.map(u64::from) != Some(index) {
                sum = sum.wrapping_add(ClientEntry::from_bytes(bytes).held);
            }
        }
    }
    // Each number is one word.
    cx.rely_on_words();
    Ok(sum)
}
