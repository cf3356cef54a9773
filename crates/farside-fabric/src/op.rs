//! What one operation carries along: endpoint, buffer, deadline, retries.
//!
//! On the path: first argument of every call from a session down to the fabric. It holds the one registered buffer that
//! the operation's verbs work on, so that a request allocates nothing on its path.
//!
//! READs longer than a word may tear. Code that uses their bytes says why it may: it *relies* on them, since nobody may
//! be writing them, or it has *validated* them, or it uses each word by itself. Where the fabric knows which bytes are
//! torn (the simulator), this is checked; elsewhere it costs nothing.

use core::cell::Cell;
use core::ops::Range;
use std::rc::Rc;

use crate::addr::RemoteAddr;
use crate::batch::Batch;
use crate::buffer::Buffer;
use crate::clock::Deadline;
use crate::endpoint::Endpoint;
use crate::error::FabricError;
use crate::posted::Posted;
use crate::spawn::{Pipeline, Turn};
use crate::verb::{MaskedAdd, MaskedCas, Slice, Verb};

/// Bytes of buffer that a context starts with: an item of the largest hint, and room to build one.
/// Five lines more than a power of two: the buffers of operations in flight together, which the
/// allocator puts side by side, would else all start in the same set of the first-level cache.
const BUFFER_BYTES: usize = 16 * 1024 + 5 * 64;

/// A longer buffer is given back some time. (A power of two, as buffers are that have grown.)
const KEEP_BYTES_MAX: usize = 1 << 20;
/// After so many operations in a row that did not need it: who works with large values needs it again, and new memory for each
/// would cost more than the value's copy.
const KEEP_OPERATIONS: u8 = 64;

/// The state of one operation in flight. One context serves one operation at a time.
#[derive(Debug)]
pub struct OpContext {
    endpoint: Endpoint,
    buffer: Buffer,
    deadline: Deadline,
    pipeline: Option<Pipeline>,
    retries: Rc<Cell<u64>>,
    /// For how many operations more a large buffer is kept; above 0 as long as there is one.
    keep_large: u8,
}

impl OpContext {
    /// A context without a deadline.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        let buffer = endpoint.buffer(BUFFER_BYTES);
        Self {
            endpoint,
            buffer,
            deadline: Deadline::NEVER,
            pipeline: None,
            retries: Rc::default(),
            keep_large: 0,
        }
    }

    /// A context whose READs let the other operations of `pipeline` run while memory is being fetched.
    #[must_use]
    pub fn pipelined(endpoint: Endpoint, pipeline: Pipeline) -> Self {
        Self {
            pipeline: Some(pipeline),
            ..Self::new(endpoint)
        }
    }

    /// The endpoint.
    #[inline]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sets the deadline of the operation's verbs.
    pub fn set_deadline(&mut self, deadline: Deadline) {
        self.deadline = deadline;
    }

    /// The deadline of the operation's verbs.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Counts one retry: another client was faster, and part of the work is done again.
    #[inline]
    pub fn count_retry(&mut self) {
        self.retries.set(self.retries.get() + 1);
    }

    /// How many retries the operations of this context have made so far.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries.get()
    }

    /// The count of retries, for watching an operation under way.
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
        if bytes > KEEP_BYTES_MAX {
            self.keep_large = KEEP_OPERATIONS;
        }
        if self.buffer.len() < bytes {
            let larger = self.endpoint.buffer(bytes.next_power_of_two());
            let smaller = core::mem::replace(&mut self.buffer, larger);
            self.buffer.replace(smaller);
        }
    }

    /// To be called between two operations: frees a large buffer that the last ones did not need.
    #[inline]
    pub fn shrink(&mut self) {
        if self.buffer.len() > KEEP_BYTES_MAX {
            self.keep_large -= 1;
            if self.keep_large == 0 {
                self.begin_small();
            }
        }
    }

    #[cold]
    fn begin_small(&mut self) {
        let smaller = self.endpoint.buffer(BUFFER_BYTES);
        let larger = core::mem::replace(&mut self.buffer, smaller);
        self.buffer.replace(larger);
    }

    /// From here on the operation uses these bytes of the buffer as they are, because nobody writes them while they can
    /// be found. It does not use anything else that was read.
    ///
    /// # Panics
    /// In the simulator, if one of them is torn.
    #[inline]
    #[track_caller]
    pub fn rely_on(&mut self, bytes: Slice) {
        if self.buffer.memory().is_torn() {
            self.check_torn(0..usize::MAX, bytes);
        }
    }

    /// The same where several things were read side by side: of the bytes in `area` the operation uses only `bytes`;
    /// this says nothing about bytes outside `area`.
    ///
    /// # Panics
    /// In the simulator, if one of `bytes` is torn.
    #[inline]
    #[track_caller]
    pub fn rely_on_within(&mut self, area: Slice, bytes: Slice) {
        if self.buffer.memory().is_torn() {
            self.check_torn(area.range(), bytes);
        }
    }

    #[cold]
    #[track_caller]
    fn check_torn(&mut self, area: Range<usize>, bytes: Slice) {
        if let Some(torn) = self.buffer.memory().torn_within(bytes.range()) {
            panic!(
                "the operation relies on bytes {:?} of its buffer, of which {torn:?} are torn: a WRITE was being \
                 executed while they were read",
                bytes.range(),
            );
        }
        self.buffer.memory_mut().clear_torn(area);
    }

    /// A version or a checksum has shown that what was read is not torn.
    #[inline]
    pub fn validated(&mut self) {
        self.buffer.memory_mut().clear_torn(0..usize::MAX);
    }

    /// The operation uses each aligned word that was read by itself: it concludes nothing from two of them together,
    /// and a word does not tear.
    #[inline]
    pub fn rely_on_words(&mut self) {
        self.buffer.memory_mut().clear_torn(0..usize::MAX);
    }

    /// The operation has ended: every READ that may be torn was relied on, validated, or repeated.
    ///
    /// # Panics
    /// In the simulator, if torn bytes were read and none of these was declared.
    #[inline]
    #[track_caller]
    pub fn assert_settled(&self) {
        if let Some(torn) = self.buffer.memory().torn_within(0..usize::MAX) {
            panic!("an operation has ended; bytes {torn:?} of its buffer are torn, and nobody validated them");
        }
    }

    /// No `async fn`: a future around the endpoint's would copy the verb once more. Always inlined:
    /// the callers name the verb, so that a backend that executes it in place drops the other arms.
    #[inline(always)]
    fn execute(&mut self, verb: Verb) -> Posted<'_> {
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

    /// Prefetches memory that will be read next; returns whether it is mapped. The next [`OpContext::turn`] gives the
    /// prefetch time.
    #[inline]
    #[must_use]
    pub fn approach(&self, addr: RemoteAddr, bytes: u32) -> bool {
        self.endpoint.prefetch(addr, bytes)
    }

    /// Whether other operations run while this one waits for memory.
    #[inline]
    #[must_use]
    pub fn is_pipelined(&self) -> bool {
        self.pipeline.is_some()
    }

    /// Does `work` without letting the others of a pipeline run: its memory was prefetched before.
    #[inline]
    pub fn in_one_turn<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let pipeline = self.pipeline.take();
        let result = work(self);
        self.pipeline = pipeline;
        result
    }

    /// In a pipeline: lets the other operations run once.
    #[inline]
    pub fn turn(&self) -> Turn<'_> {
        self.pipeline.as_ref().map_or_else(Turn::none, Pipeline::turn)
    }

    /// READ of aligned words into a slice of the buffer, at once, if the memory is mapped. Returns whether it was done;
    /// if not, a READ reports why.
    #[inline]
    pub fn load(&mut self, source: RemoteAddr, target: Slice) -> bool {
        match self.endpoint.view(source, target.bytes) {
            Some(view) => {
                view.copy_to(&mut self.buffer[target.at as usize..]);
                true
            }
            None => false,
        }
    }

    /// The endpoint and the buffer, borrowed together.
    #[inline]
    pub fn endpoint_and_buffer(&mut self) -> (&Endpoint, &mut [u8]) {
        (&self.endpoint, &mut self.buffer)
    }

    /// WRITE of a slice of the buffer in a plain call, over mapped memory; elsewhere `None`, and nothing is written.
    ///
    /// # Errors
    /// See [`FabricError`]; likewise for all verbs below.
    #[inline]
    pub fn write_now(&mut self, source: Slice, target: RemoteAddr) -> Option<Result<(), FabricError>> {
        let verb = Verb::Write { source, target };
        let written = self.endpoint.execute_now(&verb, &mut self.buffer)?;
        Some(written.map(drop))
    }

    /// Executes a verb in a plain call, likewise; returns the previous word of an atomic, or the word that was read.
    /// Always inlined, as its callers know which verb it is.
    #[inline(always)]
    pub fn execute_now(&mut self, verb: &Verb) -> Option<Result<u128, FabricError>> {
        self.endpoint.execute_now(verb, &mut self.buffer)
    }

    /// Compare-and-swap in a plain call, likewise; returns the previous word.
    #[inline]
    pub fn compare_swap_now(
        &mut self,
        target: RemoteAddr,
        compare: u64,
        swap: u64,
    ) -> Option<Result<u64, FabricError>> {
        let swapped = self.execute_now(&Verb::CompareSwap { target, compare, swap })?;
        Some(swapped.map(|word| word as u64))
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

    /// Compare-and-swap; returns the previous word.
    #[inline]
    pub async fn compare_swap(&mut self, target: RemoteAddr, compare: u64, swap: u64) -> Result<u64, FabricError> {
        Ok(self.execute(Verb::CompareSwap { target, compare, swap }).await? as u64)
    }

    /// Fetch-and-add; returns the previous word.
    #[inline]
    pub async fn fetch_add(&mut self, target: RemoteAddr, add: u64) -> Result<u64, FabricError> {
        Ok(self.execute(Verb::FetchAdd { target, add }).await? as u64)
    }

    /// Masked compare-and-swap of 8 bytes; returns the previous word.
    #[inline]
    pub async fn masked_compare_swap(
        &mut self,
        target: RemoteAddr,
        operands: MaskedCas<u64>,
    ) -> Result<u64, FabricError> {
        Ok(self.execute(Verb::MaskedCompareSwap { target, operands }).await? as u64)
    }

    /// Masked fetch-and-add of 8 bytes; returns the previous word.
    #[inline]
    pub async fn masked_fetch_add(&mut self, target: RemoteAddr, operands: MaskedAdd<u64>) -> Result<u64, FabricError> {
        Ok(self.execute(Verb::MaskedFetchAdd { target, operands }).await? as u64)
    }

    /// Masked compare-and-swap of 16 bytes; returns the previous word.
    #[inline]
    pub async fn wide_compare_swap(
        &mut self,
        target: RemoteAddr,
        operands: MaskedCas<u128>,
    ) -> Result<u128, FabricError> {
        self.execute(Verb::WideCompareSwap { target, operands }).await
    }

    /// Masked fetch-and-add of 16 bytes; returns the previous word.
    #[inline]
    pub async fn wide_fetch_add(&mut self, target: RemoteAddr, operands: MaskedAdd<u128>) -> Result<u128, FabricError> {
        self.execute(Verb::WideFetchAdd { target, operands }).await
    }

    /// Posts a batch with one doorbell.
    #[inline]
    pub async fn post(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        self.endpoint
            .post(batch, &mut self.buffer, self.deadline)
            .await
            .map(drop)
    }
}
