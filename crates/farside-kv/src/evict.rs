//! Eviction: removes keys that are worth little when more memory would be used than allowed.
//!
//! On the path: before a change that stores something, once the limit is near. What is in use is what all clients
//! hold ([`held`](mod@farside_pool::held)): this client knows its own part exactly, and looks at the others' with a READ of
//! the client table, once a tick when the limit is near.
//!
//! # How a key is chosen
//! As Redis does it, by approximation:
//!  1. sample: some items of a random group of slots ([`Index::sample`](farside_index::Index::sample)); what the
//!     policy allows to go is ranked: by the time since its last use, by how seldom it is used, by when it expires;
//!  2. those that rank highest are kept as *candidates*, sixteen at most, beside those of samples before;
//!  3. the first of them goes, unless it was used since then: removed by a compare-and-swap of its slot, which fails
//!     if the key was stored anew meanwhile.
//!
//! Keys that may go can be rare (volatile policies). When random groups have none, the search goes on group by group
//! where it ended the last time; so it comes to every key, and says that there is nothing to evict only after
//! some hundred groups in vain, or all there are.
//!
//! # How much a command does
//! It makes room for what it stores, and for as much again if the limit has been passed; then it goes on. The rest
//! is done in the background, by one task of each process. So several clients at the limit do not all remove what
//! one of them has brought.
//!
//! # When memory itself is full
//! A policy that evicts keeps a tenth of the memory free, for blocks that wait for their grace period and for
//! those of other sizes. If a block of some size is missing all the same, items whose blocks have that size go. The
//! last free chunks are for sizes of which there is no item to evict: those of the index, and new ones.
//!
//! Invariant: nothing is removed that the policy does not allow to go; an expired item is no exception to that, it
//! is gone for everybody.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Deadline, LocalFuture, OpContext};
use farside_index::{Change, Decision, IndexError, Sampled};
use farside_pool::PoolError;

use crate::error::{KvError, Pending};
use crate::expiry;
use crate::policy::{EvictionPolicy, Tracking};
use crate::removal::{Removal, RemovalWitness};
use crate::store::Store;
use crate::uses::Uses;
use farside_index::GONE_MS;

/// How many candidates are kept.
const CANDIDATES_MAX: usize = 16;
/// How many random groups are sampled for one eviction, until one has a candidate.
const RANDOM_GROUPS_MAX: usize = 4;
/// How many further groups are looked at before there is nothing to evict.
const GROUPS_MAX: usize = 256;
/// For so many ticks after that, only random groups are.
const BARREN_TICKS: u64 = 16;
/// One part in this many of the memory is kept free by a policy that evicts.
const FREE_SHARE: u64 = 10;
/// Within one part in this many of the limit, what others hold is looked at every tick.
const NEAR_SHARE: u64 = 16;
/// So many ticks old it may be otherwise.
const FAR_TICKS: u64 = 32;
/// How many blocks are freed together when one is missing, and how many bytes at most.
const BLOCKS_TOGETHER: u64 = 32;
const BYTES_TOGETHER: u64 = 1 << 20;
/// How many items are looked at for each of them.
const SAMPLES_FOR_BLOCK: u32 = 16;

/// Times of the task that evicts in the background.
#[derive(Clone, Copy, Debug)]
pub struct EvictionPace {
    /// How long it works at once, in nanoseconds.
    pub step_ns: u64,
    /// How long it pauses when there is more to do.
    pub busy_pause_ns: u64,
    /// How long it pauses when there is not.
    pub pause_ns: u64,
}

impl Default for EvictionPace {
    fn default() -> Self {
        Self {
            step_ns: 2_000_000,
            busy_pause_ns: 1_000_000,
            pause_ns: 20_000_000,
        }
    }
}

/// A key that may go.
#[derive(Debug)]
struct Candidate {
    rank: u64,
    key: Vec<u8>,
    expiry_ms: u64,
    mark: u64,
    /// Of the item.
    bytes: u64,
    /// Of its block.
    block_bytes: u64,
}

/// What the sessions of a store share to evict.
#[derive(Debug)]
pub(crate) struct Evictor {
    /// The first to go last.
    candidates: RefCell<Vec<Candidate>>,
    /// The policy that has ranked them.
    policy: Cell<EvictionPolicy>,
    /// Where the search goes on that finds every key.
    cursor: Cell<u64>,
    /// Until which tick nobody needs to search further than some random groups.
    barren_until: Cell<u64>,
    /// What the other clients hold, and at which tick this was seen.
    others: Cell<(i64, Option<u64>)>,
    /// The tick at which the clock was last read, and what it said, in milliseconds.
    clock: Cell<(u64, u64)>,
    /// Contexts that nobody uses.
    contexts: RefCell<Vec<OpContext>>,
    witness: RefCell<Option<Rc<dyn RemovalWitness>>>,
}

impl Default for Evictor {
    fn default() -> Self {
        Self {
            candidates: RefCell::default(),
            policy: Cell::default(),
            cursor: Cell::new(0),
            barren_until: Cell::new(0),
            others: Cell::new((0, None)),
            clock: Cell::new((u64::MAX, 0)),
            contexts: RefCell::default(),
            witness: RefCell::default(),
        }
    }
}

/// What is known of the uses of a key; see [`Store::key_use`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyUse {
    /// How long it was not used, in milliseconds; at least so long if it was not used since it is noted.
    Idle(u64),
    /// The logarithmic count of its uses, 0 to 255.
    Frequency(u64),
}

impl Store {
    /// The same store; its clones and sessions tell `witness` of every key that they evict or sweep away.
    #[must_use]
    pub fn with_removal_witness(self, witness: Rc<dyn RemovalWitness>) -> Self {
        *self.evictor.witness.borrow_mut() = Some(witness);
        self
    }

    /// How much may be in use: what the quota says, and no more than a policy that evicts leaves of the memory.
    /// `None` if there is no limit but the memory itself.
    #[must_use]
    pub fn bytes_max(&self) -> Option<u64> {
        let asked = self.quota.bytes_max();
        if !self.quota.policy().evicts() {
            return asked;
        }
        let all = self.pool().chunk_bytes();
        let most = all - all / FREE_SHARE;
        Some(asked.map_or(most, |asked| asked.min(most)))
    }

    /// Bytes that all clients hold; see [`Pool::held`](farside_pool::Pool::held).
    ///
    /// # Errors
    /// What the fabric reports.
    pub fn held<'f>(&'f self) -> Pending<'f, u64> {
        Box::pin(async move {
            let mut cx = self.take_context();
            let held = self.pool().held(&mut cx).await;
            self.give_context(cx);
            let held = held?;
            let others = held.cast_signed().wrapping_sub(self.pool().held_here());
            self.evictor.others.set((others, Some(self.pool().ticks())));
            Ok(held)
        })
    }

    /// The same as far as this client knows; no verb.
    fn held_lately(&self) -> u64 {
        let (others, _) = self.evictor.others.get();
        others.wrapping_add(self.pool().held_here()).max(0).cast_unsigned()
    }

    /// Whether so many bytes more can be stored, as far as this client knows, and it knows enough.
    #[inline]
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        !self.quota.is_on() || self.has_room_within_limit(bytes)
    }

    fn has_room_within_limit(&self, bytes: u64) -> bool {
        let Some(most) = self.bytes_max() else { return true };
        let would_be = self.held_lately().saturating_add(self.pool().block_bytes(bytes));
        would_be <= most && self.knows_enough(would_be, most)
    }

    /// Whether what this client knows of the others is new enough, if so much would be in use.
    fn knows_enough(&self, would_be: u64, most: u64) -> bool {
        let (_, Some(looked)) = self.evictor.others.get() else {
            return false;
        };
        let is_near = would_be > most - most / NEAR_SHARE;
        self.pool().ticks().wrapping_sub(looked) < if is_near { 1 } else { FAR_TICKS }
    }

    /// Makes room for an item of so many bytes, if the policy allows it.
    ///
    /// # Errors
    /// [`PoolError::OutOfMemory`] if more is in use than allowed, and nothing can go; what the fabric reports.
    pub(crate) fn make_room<'f>(&'f self, bytes: u64) -> Pending<'f, ()> {
        Box::pin(async move {
            if !self.knows_enough(u64::MAX, 0) {
                self.held().await?;
            }
            let need = self.pool().block_bytes(bytes);
            let policy = self.quota.policy();
            let mut freed = 0;
            // Ends: each turn frees a block, or finds nothing.
            while let Some(most) = self.bytes_max()
                && self.held_lately().saturating_add(need) > most
            {
                if freed >= 2 * need {
                    // The rest is for others: whoever stores something else, or the task in the background.
                    break;
                }
                let gone = if policy.evicts() { self.evict_one().await? } else { None };
                match gone {
                    Some(bytes) => freed += bytes,
                    // Like Redis: who is at the limit may pass it once.
                    None if self.held_lately() > most => return Err(PoolError::OutOfMemory { bytes }.into()),
                    None => break,
                }
            }
            Ok(())
        })
    }

    /// Frees blocks that hold `bytes` bytes, of which this client finds none; returns whether there are any now.
    ///
    /// # Errors
    /// What the fabric reports.
    pub(crate) fn evict_blocks_for<'f>(&'f self, bytes: u64) -> Pending<'f, bool> {
        Box::pin(async move {
            let wanted = self.pool().block_bytes(bytes);
            let count = (BYTES_TOGETHER / wanted).clamp(1, BLOCKS_TOGETHER);
            let mut freed = 0;
            for _ in 0..4 * count {
                let cursor = self.upkeep.random_cursor(&self.endpoint);
                let mut found = Vec::new();
                let samples = self.quota.samples().max(SAMPLES_FOR_BLOCK);
                self.sample(cursor, samples, &mut found).await?;
                let fits = found.into_iter().filter(|candidate| candidate.block_bytes == wanted);
                if let Some(candidate) = fits.max_by_key(|candidate| candidate.rank)
                    && self.remove(&candidate).await?
                {
                    freed += 1;
                }
                if freed == count {
                    break;
                }
            }
            Ok(freed > 0)
        })
    }

    /// Removes the best candidate; returns the bytes of its block, or `None` if nothing was found that may go.
    async fn evict_one(&self) -> Result<Option<u64>, KvError> {
        let is_barren = self.pool().ticks() < self.evictor.barren_until.get();
        let groups = if is_barren { 0 } else { GROUPS_MAX };
        // Whoever has come round a small index has seen every key.
        let mut ends_left = if self.evictor.cursor.get() == 0 { 1 } else { 2 };
        for turn in 0..RANDOM_GROUPS_MAX + groups {
            let (cursor, samples) = if turn < RANDOM_GROUPS_MAX {
                (self.upkeep.random_cursor(&self.endpoint), self.quota.samples())
            } else {
                (self.evictor.cursor.get(), u32::MAX)
            };
            let mut found = Vec::new();
            let next = match self.sample(cursor, samples, &mut found).await {
                // Many random ones have come since.
                Err(error) if error.is_lost_cursor() => 0,
                next => next?,
            };
            if turn >= RANDOM_GROUPS_MAX {
                self.evictor.cursor.set(next);
                ends_left -= i32::from(next == 0);
            }
            self.consider(found);
            while let Some(candidate) = self.next_candidate() {
                if self.remove(&candidate).await? {
                    return Ok(Some(candidate.block_bytes));
                }
            }
            if ends_left == 0 {
                break;
            }
        }
        if !is_barren {
            self.evictor.barren_until.set(self.pool().ticks() + BARREN_TICKS);
        }
        Ok(None)
    }

    /// Looks at some items at `cursor`, and adds those that may go; returns the next cursor.
    async fn sample(&self, cursor: u64, samples: u32, found: &mut Vec<Candidate>) -> Result<u64, KvError> {
        let policy = self.quota.policy();
        let mut visit = |item: Sampled<'_>| {
            let rank = self.rank(policy, item.key, item.expiry_ms);
            found.extend(rank.map(|rank| Candidate {
                rank,
                key: item.key.to_vec(),
                expiry_ms: item.expiry_ms,
                mark: item.mark,
                bytes: item.bytes,
                block_bytes: self.pool().block_bytes(item.bytes),
            }));
        };
        let mut cx = self.take_context();
        let next = self.upkeep.sample(&mut cx, cursor, samples as usize, &mut visit).await;
        self.give_context(cx);
        Ok(next?)
    }

    /// How willingly a key goes; `None` if it must stay.
    fn rank(&self, policy: EvictionPolicy, key: &[u8], expiry_ms: u64) -> Option<u64> {
        let must_stay = policy.is_volatile() && expiry_ms == 0 && !is_planted("evict: a key chosen that never expires");
        // A transaction is about to replace it, or the sweeper to remove it.
        if must_stay || expiry_ms == GONE_MS || !policy.evicts() {
            return None;
        }
        if !expiry::is_there(expiry_ms, || self.endpoint.unix_ms()) {
            return Some(u64::MAX);
        }
        // What is not known was not used for long, or not often.
        Some(match policy {
            EvictionPolicy::VolatileTtl => u64::MAX - expiry_ms,
            EvictionPolicy::AllKeysRandom | EvictionPolicy::VolatileRandom => self.endpoint.random_below(u64::MAX),
            EvictionPolicy::AllKeysLru | EvictionPolicy::VolatileLru => {
                self.uses().idle_ms(key, self.now_ms()).unwrap_or(u64::MAX - 1)
            }
            _ => u64::MAX - 1 - self.uses().frequency(key, self.now_ms()).unwrap_or(0),
        })
    }

    /// Keeps the best of the candidates, and of those found now.
    fn consider(&self, found: Vec<Candidate>) {
        let mut candidates = self.evictor.candidates.borrow_mut();
        let policy = self.quota.policy();
        // What chance has chosen once must not be chosen for ever.
        let is_random = matches!(policy, EvictionPolicy::AllKeysRandom | EvictionPolicy::VolatileRandom);
        if self.evictor.policy.replace(policy) != policy || is_random {
            candidates.clear();
        }
        for candidate in found {
            candidates.retain(|known| known.key != candidate.key);
            candidates.push(candidate);
        }
        candidates.sort_unstable_by_key(|candidate| candidate.rank);
        let surplus = candidates.len().saturating_sub(CANDIDATES_MAX);
        candidates.drain(..surplus);
    }

    /// The best candidate, if it still is one: what was used since it was found is let go.
    fn next_candidate(&self) -> Option<Candidate> {
        let policy = self.quota.policy();
        loop {
            let candidate = self.evictor.candidates.borrow_mut().pop()?;
            let has_rank = |rank| policy.tracking().is_none() || rank >= candidate.rank;
            if self
                .rank(policy, &candidate.key, candidate.expiry_ms)
                .is_some_and(has_rank)
            {
                return Some(candidate);
            }
        }
    }

    async fn remove(&self, candidate: &Candidate) -> Result<bool, KvError> {
        let expiry_ms = candidate.expiry_ms;
        let work = async {
            let is_removed = self.remove_if_unchanged(candidate).await?;
            Ok(is_removed.then_some(expiry_ms))
        };
        let removed = self.witnessed(&candidate.key, expiry_ms, work).await?;
        Ok(removed.is_some())
    }

    /// Removes a key, and tells the witness; `work` says when the value expires that has gone.
    pub(crate) async fn witnessed(
        &self,
        key: &[u8],
        expiry_ms: u64,
        work: impl Future<Output = Result<Option<u64>, KvError>>,
    ) -> Result<Option<u64>, KvError> {
        let witness = self.evictor.witness.borrow().clone();
        let begun = witness.map(|witness| (witness.begins(key, expiry_ms), witness));
        let removed = work.await;
        if let Some((begun, witness)) = begun {
            witness.ended(
                begun,
                match removed {
                    Ok(Some(expiry_ms)) => Removal::Done { expiry_ms },
                    Ok(None) => Removal::NotDone,
                    Err(_) => Removal::Unknown,
                },
            );
        }
        removed
    }

    async fn remove_if_unchanged(&self, candidate: &Candidate) -> Result<bool, KvError> {
        let mut cx = self.take_context();
        let sampled = Sampled {
            key: &candidate.key,
            bytes: candidate.bytes,
            expiry_ms: candidate.expiry_ms,
            mark: candidate.mark,
        };
        let removed = if is_planted("evict: whatever is stored by then removed") {
            let mut decide = |_: Option<farside_index::Item<'_>>| Decision::Delete { regardless: false };
            let change = self.index.change(&mut cx, &candidate.key, None, &mut decide).await;
            change.map(|change| change == Change::Deleted)
        } else {
            self.index.remove_sampled(&mut cx, sampled).await
        };
        self.give_context(cx);
        match removed {
            Ok(true) => {
                self.forget_use(&candidate.key);
                self.quota.count_evicted();
                Ok(true)
            }
            Ok(false) => Ok(false),
            // A pointer array writes the items that share the slot anew. Another one, then.
            Err(error) if missing_block(&error).is_some() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn take_context(&self) -> OpContext {
        let kept = self.evictor.contexts.borrow_mut().pop();
        let mut cx = kept.unwrap_or_else(|| OpContext::new(self.endpoint.clone()));
        cx.shrink();
        let timeout_ns = self.timeout_ns.unwrap_or(u64::MAX);
        cx.set_deadline(Deadline(self.endpoint.now_ns().saturating_add(timeout_ns)));
        cx
    }

    fn give_context(&self, cx: OpContext) {
        const KEPT_MAX: usize = 8;
        let mut contexts = self.evictor.contexts.borrow_mut();
        if contexts.len() < KEPT_MAX {
            contexts.push(cx);
        }
    }

    /// Keeps what is in use below the limit, until the store is closed or abandoned. One task of a process is enough.
    pub fn keep_within_quota(self, pace: EvictionPace) -> LocalFuture<'static, ()> {
        Box::pin(async move {
            while !self.pool().has_ended() {
                let mut pause_ns = pace.pause_ns;
                if self.quota.policy().evicts() {
                    let Some(_turn) = self.background.begin() else { return };
                    match self.evict_step(pace.step_ns).await {
                        Ok(true) => pause_ns = pace.busy_pause_ns,
                        Ok(false) => {}
                        Err(error) => tracing::debug!("cannot evict, trying again: {error}"),
                    }
                }
                self.endpoint.sleep(pause_ns).await;
            }
        })
    }

    /// Evicts for a while; returns whether there is more to do.
    async fn evict_step(&self, step_ns: u64) -> Result<bool, KvError> {
        let end_ns = self.endpoint.now_ns().saturating_add(step_ns);
        self.held().await?;
        while let Some(most) = self.bytes_max()
            && self.held_lately() > most
        {
            if self.evict_one().await?.is_none() {
                return Ok(false);
            }
            if self.endpoint.now_ns() >= end_ns {
                return Ok(true);
            }
            // Over mapped memory nothing waits, so this would keep the thread's other tasks from running.
            self.endpoint.sleep(0).await;
        }
        Ok(false)
    }

    /// What is known of the uses of a key through this process; `None` if the policy needs none of it.
    #[must_use]
    pub fn key_use(&self, key: &[u8]) -> Option<KeyUse> {
        let (uses, now_ms) = (|| self.uses(), self.now_ms());
        Some(match self.quota.tracking()? {
            Tracking::Recency => {
                let idle_ms = uses().idle_ms(key, now_ms);
                KeyUse::Idle(idle_ms.unwrap_or_else(|| uses().age_ms(now_ms)))
            }
            Tracking::Frequency => KeyUse::Frequency(uses().frequency(key, now_ms).unwrap_or(0)),
        })
    }

    /// A key was found or stored.
    #[inline]
    pub(crate) fn note_use(&self, key: &[u8]) {
        if self.quota.is_tracking() {
            self.note(key);
        }
    }

    #[inline(never)]
    fn note(&self, key: &[u8]) {
        if let Some(tracking) = self.quota.tracking() {
            let random_below = |bound| self.endpoint.random_below(bound);
            self.uses().note(tracking, key, self.now_ms(), random_below);
        }
    }

    /// A key is gone.
    #[inline]
    pub(crate) fn forget_use(&self, key: &[u8]) {
        if self.quota.is_tracking() {
            self.uses().forget(key);
        }
    }

    fn uses(&self) -> &Uses {
        self.quota.uses(|| {
            let nodes = self.pool().geometry().iter();
            Uses::new(nodes.map(|node| node.node_bytes).sum(), self.now_ms())
        })
    }

    /// The time as of the last tick: one look at the clock for many lookups.
    fn now_ms(&self) -> u64 {
        let ticks = self.pool().ticks();
        let (seen, now_ms) = self.evictor.clock.get();
        if seen == ticks {
            return now_ms;
        }
        let now_ms = self.endpoint.now_ns() / 1_000_000;
        self.evictor.clock.set((ticks, now_ms));
        now_ms
    }
}

/// The size of the block that was missing, if that was what an operation has failed for.
pub(crate) fn missing_block(error: &IndexError) -> Option<u64> {
    match error {
        IndexError::Pool(PoolError::OutOfMemory { bytes }) => Some(*bytes),
        _ => None,
    }
}
