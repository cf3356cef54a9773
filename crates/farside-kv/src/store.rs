//! A client's opening of a store: the pool it joined and the index it uses.
//!
//! A store belongs to one thread. Its sessions share the membership of the pool, its lists of free
//! blocks and its endpoint.

use std::rc::Rc;
use std::sync::Arc;

use farside_fabric::{Endpoint, LocalFuture, OpContext, Pipeline};
use farside_index::{Approach, Change, Cursors, Decide, Decision, Found, Index, IndexError, IndexKind, Item, Likely};
use farside_pool::{Pool, Usage, open_or_format, usage_of_node};

use crate::background::Background;
use crate::config::StoreConfig;
use crate::error::{KvError, Pending};
use crate::evict::{Evictor, missing_block};
use crate::expiry;
use crate::locks;
use crate::quota::Quota;
use crate::session::Session;
use crate::sweep::ExpiryMark;
use crate::turns::Turns;

/// How often a change that finds no block makes room for itself before it fails.
const EVICTION_ROUNDS_MAX: u32 = 16;

/// In so many of these rounds it may take the last free memory, if there is nothing to evict.
const DIG_ROUNDS_MAX: u32 = 3;

/// How often a client that leaves looks whether its index is in order.
const RESTRUCTURING_POLL_NS: u64 = 100_000;

/// An open store.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) index: Index,
    /// The same index with cursors of its own: a sweep or an eviction uses up thousands of them.
    pub(crate) upkeep: Index,
    pub(crate) endpoint: Endpoint,
    pub(crate) timeout_ns: Option<u64>,
    pub(crate) expiry_mark: ExpiryMark,
    pub(crate) quota: Arc<Quota>,
    pub(crate) evictor: Rc<Evictor>,
    pub(crate) background: Rc<Background>,
    pub(crate) turns: Rc<Turns>,
}

impl Store {
    /// Opens the store on the nodes that `endpoint` reaches; creates it if they are blank. Starts the tasks that renew
    /// the lease and take over what dead clients held.
    ///
    /// # Errors
    /// If a node is too small, damaged or not a node of Farside, or the fabric fails.
    pub fn open(endpoint: Endpoint, config: StoreConfig) -> Pending<'static, Self> {
        Box::pin(async move {
            let mut cx = OpContext::new(endpoint.clone());
            let geometry = open_or_format(&mut cx, config.format).await?;
            let bytes = geometry.iter().map(|geometry| geometry.node_bytes).sum();
            // Before there is an index nobody takes memory, and all of it is zeros.
            if IndexKind::of_pool(&mut cx).await?.is_none() {
                locks::table::make(&mut cx, &geometry[0]).await?;
            }
            let pool = Pool::join(&mut cx, geometry, config.pool).await?;
            let options = config.index_options(bytes);
            let opened =
                Index::open_or_create(&mut cx, pool.clone(), config.index, config.sync_options(), options).await;
            // A membership that nobody uses would renew its lease for ever.
            let index = opened.inspect_err(|_| pool.abandon())?;
            let store = Self {
                upkeep: index.clone().with_cursors(Arc::default()),
                index,
                endpoint: endpoint.clone(),
                timeout_ns: config.timeout_ns,
                expiry_mark: ExpiryMark::default(),
                quota: Arc::default(),
                evictor: Rc::default(),
                background: Rc::default(),
                turns: Rc::default(),
            };
            let keeper = store.clone();
            endpoint.spawn(async move { keeper.take_over_from_the_dead(config.pool.tick_ns).await });
            Ok(store)
        })
    }

    /// The same store with an expiry mark shared with other stores of this process, so that one sweeper serves them
    /// all.
    #[must_use]
    pub fn with_expiry_mark(mut self, mark: ExpiryMark) -> Self {
        self.expiry_mark = mark;
        self
    }

    /// The same store with a quota shared with other stores of this process.
    #[must_use]
    pub fn with_quota(mut self, quota: Arc<Quota>) -> Self {
        self.quota = quota;
        self
    }

    /// The same store with cursors shared with other stores of this process, so that one of them can continue a scan
    /// that another has begun. Only an index that keeps keys in order has cursors.
    #[must_use]
    pub fn with_cursors(mut self, cursors: Arc<Cursors>) -> Self {
        self.index = self.index.with_cursors(cursors);
        self
    }

    /// How much memory may be used, and what happens when it is.
    #[must_use]
    pub fn quota(&self) -> &Arc<Quota> {
        &self.quota
    }

    /// A session; it has one operation in flight at a time.
    #[must_use]
    pub fn session(&self) -> Session {
        Session::new(self.clone(), OpContext::new(self.endpoint.clone()))
    }

    /// A session whose reads let the other sessions of `pipeline` run while memory is fetched.
    #[must_use]
    pub fn pipelined_session(&self, pipeline: &Pipeline) -> Session {
        Session::new(
            self.clone(),
            OpContext::pipelined(self.endpoint.clone(), pipeline.clone()),
        )
    }

    /// The pool that the store allocates from.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.index.pool()
    }

    /// The seed with which elements of values are hashed: all clients of the pool have it, and nobody else knows it.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.pool().geometry()[0].pool_id
    }

    /// The index of the store.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// What the memory of each node is used for, and for node 0 also the clients of the pool; or why that node cannot
    /// be inspected. Reads a word per chunk. Each node gets its share of `patience_ns`, so that a silent one does not
    /// hide the others.
    pub fn usage(&self, patience_ns: u64) -> LocalFuture<'_, Vec<Result<Usage, KvError>>> {
        Box::pin(async move {
            let geometry = self.pool().geometry();
            let share_ns = patience_ns / geometry.len().max(1) as u64;
            let mut usages = Vec::new();
            for geometry in geometry {
                let mut cx = OpContext::new(self.endpoint.clone());
                cx.set_deadline(self.endpoint.deadline_in(share_ns));
                usages.push(usage_of_node(&mut cx, geometry).await.map_err(KvError::from));
            }
            usages
        })
    }

    /// The endpoint underneath, with its clock and counters.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Leaves the pool once the operations under way in other sessions of this store have ended; later operations fail.
    ///
    /// # Errors
    /// Errors of the fabric, or that such an operation lasts for several leases; the other clients clean up then.
    pub fn close(self) -> Pending<'static, ()> {
        Box::pin(async move {
            self.background.close();
            // Ends: such a task goes on until it is done, or this client is cut off, and a turn is short.
            while self.index.is_restructuring() || !self.background.is_idle() {
                self.endpoint.sleep(RESTRUCTURING_POLL_NS).await;
            }
            Ok(self.index.pool().clone().leave().await?)
        })
    }

    /// Gives up the store without leaving the pool, after an error for which [`is_cut_off`](crate::KvError::is_cut_off)
    /// is true: housekeeping ends, and when the lease has expired, the other clients take over what this one held.
    /// (Merely dropping a store does not end its housekeeping, which runs on the endpoint's runtime.)
    pub fn abandon(self) {
        self.index.pool().abandon();
    }

    /// Waits until nothing of a dead client is left to take over, as far as this client knows.
    ///
    /// # Errors
    /// What the fabric reports.
    pub fn settle<'f>(&'f self) -> Pending<'f, ()> {
        Box::pin(async move {
            while self.pool().needs_recovery() {
                self.pool().tick().await?;
                self.endpoint.sleep(1_000_000).await;
            }
            Ok(())
        })
    }

    /// An item that has expired is not there.
    #[inline]
    pub(crate) fn unless_expired(&self, found: Option<Found>) -> Option<Found> {
        found.filter(|found| self.is_there(found.expiry_ms))
    }

    /// Whether an item of this expiry has not expired.
    #[inline]
    pub(crate) fn is_there(&self, expiry_ms: u64) -> bool {
        expiry::is_there(expiry_ms, || self.endpoint.unix_ms())
    }

    /// What was found of a key, unless it has expired; it was used.
    #[inline]
    pub(crate) fn seen(&self, key: &[u8], found: Option<Found>) -> Option<Found> {
        let found = self.unless_expired(found);
        if found.is_some() {
            self.note_use(key);
        }
        found
    }

    /// Changes a key in a plain call, if nothing has to be waited for; otherwise nothing was changed. `decide` does not see an
    /// item that has expired.
    #[inline]
    pub(crate) fn change_now(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        approach: Option<&Approach>,
        likely: Option<Likely<'_>>,
        decide: Decide<'_, '_>,
    ) -> Option<Result<Change, KvError>> {
        // Nobody may be asked.
        let mut expires = likely.is_some_and(|likely| likely.expiry_ms > 0);
        let changed = self.index.change_now(cx, key, approach, likely, &mut |stored| {
            let decision = decide(stored.filter(|item| self.is_there(item.expiry_ms)));
            expires = matches!(decision, Decision::Put { expiry_ms: 1.., .. });
            decision
        })?;
        match changed {
            Ok(change) => {
                self.note_change(key, change, expires);
                Some(Ok(change))
            }
            // Nothing was changed if that lacks a block: some may be made free.
            Err(error) => missing_block(&error).is_none().then(|| Err(error.into())),
        }
    }

    /// Changes a key, and evicts others if memory is lacking; the caller has asked whether there is room under the limit.
    /// `decide` does not see an item that has expired.
    pub(crate) fn change_later<'c, 'v: 'c>(
        &'c self,
        cx: &'c mut OpContext,
        key: &'c [u8],
        likely: Option<Likely<'c>>,
        decide: Decide<'c, 'v>,
    ) -> Pending<'c, Change> {
        Box::pin(async move {
            let mut expires = false;
            let mut decide = |stored: Option<Item<'_>>| {
                let decision = decide(stored.filter(|item| self.is_there(item.expiry_ms)));
                expires = matches!(decision, Decision::Put { expiry_ms: 1.., .. });
                decision
            };
            self.pool().set_impatient(self.quota.policy().evicts());
            let mut rounds = 0;
            let change = loop {
                match self.index.change(cx, key, likely, &mut decide).await {
                    Ok(change) => break change,
                    // Nothing was changed. Ends after some rounds, or when nothing can go.
                    Err(error) => match missing_block(&error) {
                        Some(bytes) if self.quota.policy().evicts() && rounds < EVICTION_ROUNDS_MAX => {
                            rounds += 1;
                            if !Box::pin(self.evict_blocks_for(bytes)).await? {
                                if rounds > DIG_ROUNDS_MAX {
                                    return Err(error.into());
                                }
                                self.pool().dig();
                            }
                        }
                        _ => return Err(error.into()),
                    },
                }
            };
            self.note_change(key, change, expires);
            Ok(change)
        })
    }

    /// A key was changed, and its item may expire.
    #[inline]
    pub(crate) fn note_change(&self, key: &[u8], change: Change, expires: bool) {
        match change {
            Change::Inserted | Change::Updated => self.note_use(key),
            Change::Deleted => self.forget_use(key),
            Change::Kept => {}
        }
        if expires {
            // After the item was linked, so that a sweeper that clears the mark later finds it.
            self.expiry_mark.set();
        }
    }

    async fn take_over_from_the_dead(self, tick_ns: u64) {
        let mut cx = OpContext::new(self.endpoint.clone());
        while !self.pool().has_ended() {
            self.endpoint.sleep(tick_ns).await;
            if self.pool().needs_recovery() {
                let walk = async |cx: &mut OpContext, visit: &mut dyn FnMut(_)| {
                    self.index.walk(cx, visit).await.map_err(IndexError::into_pool)
                };
                if let Err(error) = self.pool().recover(&mut cx, walk).await {
                    let client = self.pool().owner().client;
                    tracing::warn!(
                        "client {client} could not take over what a dead client held, trying again: {error}"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
