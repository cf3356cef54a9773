//! What one operation carries along: endpoint, buffer, deadline, retries.
//!
//! On the path: first argument of every call from a session down to the fabric. It holds the one
//! registered buffer that the operation's verbs work on, so that the way of a request allocates
//! nothing.

use core::cell::Cell;
use std::rc::Rc;

use crate::addr::RemoteAddr;
use crate::batch::Batch;
use crate::buffer::Buffer;
use crate::clock::Deadline;
use crate::endpoint::Endpoint;
use crate::error::FabricError;
use crate::spawn::{Pipeline, Turn};
use crate::verb::{MaskedAdd, MaskedCas, Slice, Verb};

/// Bytes of buffer that a context starts with: an item of the largest hint, and room to build one.
/// Five lines more than a power of two: the buffers of operations in flight together, which the
/// allocator puts side by side, would else all start in the same set of the first-level cache.
const BUFFER_BYTES: usize = 16 * 1024 + 5 * 64;

/// The state of one operation in flight. One context serves one operation at a time.
#[derive(Debug)]
pub struct OpContext<E> {
    endpoint: E,
    buffer: Buffer,
    deadline: Deadline,
    pipeline: Option<Pipeline>,
    retries: Rc<Cell<u64>>,
}

impl<E: Endpoint> OpContext<E> {
    /// A context without a deadline.
    #[must_use]
    pub fn new(endpoint: E) -> Self {
        let buffer = endpoint.buffer(BUFFER_BYTES);
        Self {
            endpoint,
            buffer,
            deadline: Deadline::NEVER,
            pipeline: None,
            retries: Rc::default(),
        }
    }

    /// A context whose READs let the other operations of `pipeline` run while memory is fetched.
    #[must_use]
    pub fn pipelined(endpoint: E, pipeline: Pipeline) -> Self {
        Self {
            pipeline: Some(pipeline),
            ..Self::new(endpoint)
        }
    }

    /// The endpoint.
    #[inline]
    pub fn endpoint(&self) -> &E {
        &self.endpoint
    }

    /// Sets when the verbs of the operation give up.
    pub fn set_deadline(&mut self, deadline: Deadline) {
        self.deadline = deadline;
    }

    /// When the verbs of the operation give up.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Counts one retry: another client was quicker and part of the work is done again.
    #[inline]
    pub fn count_retry(&mut self) {
        self.retries.set(self.retries.get() + 1);
    }

    /// How many retries the operations of this context have made so far.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries.get()
    }

    /// The count of retries, to be watched while an operation is under way.
    #[must_use]
    pub fn retry_meter(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.retries)
    }

    /// The buffer.
    #[inline]
    #[must_use]
    pub fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    /// The buffer, to build what will be written.
    #[inline]
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// Makes the buffer at least `bytes` long. Its contents are kept.
    pub fn reserve(&mut self, bytes: usize) {
        if self.buffer.len() < bytes {
            let mut larger = self.endpoint.buffer(bytes.next_power_of_two());
            larger[..self.buffer.len()].copy_from_slice(&self.buffer);
            self.buffer = larger;
        }
    }

    /// Gives a large buffer back, after an operation on a large value.
    pub fn shrink(&mut self) {
        if self.buffer.len() > 64 * BUFFER_BYTES {
            self.buffer = self.endpoint.buffer(BUFFER_BYTES);
        }
    }

    /// No `async fn`: a future around the endpoint's would copy the verb once more. Always inlined:
    /// the callers name the verb, so that a backend that executes it in place drops the other arms.
    #[inline(always)]
    fn execute(&mut self, verb: Verb) -> impl Future<Output = Result<u128, FabricError>> {
        self.endpoint.execute(verb, &mut self.buffer, self.deadline)
    }

    /// In a pipeline: asks for the memory and lets the others run until it is there.
    #[inline]
    fn await_memory(&self, addr: RemoteAddr, bytes: u32) -> Turn<'_> {
        match &self.pipeline {
            Some(pipeline) if self.endpoint.prefetch(addr, bytes) => pipeline.turn(),
            _ => Turn::none(),
        }
    }

    /// READ into a slice of the buffer.
    ///
    /// # Errors
    /// See [`FabricError`]; likewise for all verbs below.
    #[inline]
    pub async fn read(&mut self, source: RemoteAddr, target: Slice) -> Result<&[u8], FabricError> {
        self.await_memory(source, target.bytes).await;
        self.execute(Verb::Read { source, target }).await?;
        Ok(&self.buffer[target.range()])
    }

    /// READ of an aligned word.
    #[inline]
    pub async fn read_word(&mut self, source: RemoteAddr) -> Result<u64, FabricError> {
        self.await_memory(source, 8).await;
        Ok(self.execute(Verb::ReadWord { source }).await? as u64)
    }

    /// WRITE of a slice of the buffer.
    #[inline]
    pub async fn write(&mut self, source: Slice, target: RemoteAddr) -> Result<(), FabricError> {
        self.execute(Verb::Write { source, target }).await.map(drop)
    }

    /// WRITE of an aligned word.
    #[inline]
    pub async fn write_word(&mut self, target: RemoteAddr, value: u64) -> Result<(), FabricError> {
        self.execute(Verb::WriteWord { target, value }).await.map(drop)
    }

    /// Compare-and-swap; returns the word before.
    #[inline]
    pub async fn compare_swap(&mut self, target: RemoteAddr, compare: u64, swap: u64) -> Result<u64, FabricError> {
        Ok(self.execute(Verb::CompareSwap { target, compare, swap }).await? as u64)
    }

    /// Fetch-and-add; returns the word before.
    #[inline]
    pub async fn fetch_add(&mut self, target: RemoteAddr, add: u64) -> Result<u64, FabricError> {
        Ok(self.execute(Verb::FetchAdd { target, add }).await? as u64)
    }

    /// Masked compare-and-swap of 8 bytes; returns the word before.
    #[inline]
    pub async fn masked_compare_swap(
        &mut self,
        target: RemoteAddr,
        operands: MaskedCas<u64>,
    ) -> Result<u64, FabricError> {
        Ok(self.execute(Verb::MaskedCompareSwap { target, operands }).await? as u64)
    }

    /// Masked fetch-and-add of 8 bytes; returns the word before.
    #[inline]
    pub async fn masked_fetch_add(&mut self, target: RemoteAddr, operands: MaskedAdd<u64>) -> Result<u64, FabricError> {
        Ok(self.execute(Verb::MaskedFetchAdd { target, operands }).await? as u64)
    }

    /// Masked compare-and-swap of 16 bytes; returns the word before.
    #[inline]
    pub async fn wide_compare_swap(
        &mut self,
        target: RemoteAddr,
        operands: MaskedCas<u128>,
    ) -> Result<u128, FabricError> {
        self.execute(Verb::WideCompareSwap { target, operands }).await
    }

    /// Masked fetch-and-add of 16 bytes; returns the word before.
    #[inline]
    pub async fn wide_fetch_add(&mut self, target: RemoteAddr, operands: MaskedAdd<u128>) -> Result<u128, FabricError> {
        self.execute(Verb::WideFetchAdd { target, operands }).await
    }

    /// Posts a batch with one doorbell.
    #[inline]
    pub async fn post(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        self.endpoint.post(batch, &mut self.buffer, self.deadline).await
    }
}
