//! A client's opening of a store: the pool it joined and the index it uses.
//!
//! A store belongs to one thread. Its sessions share the membership of the pool, its lists of free
//! blocks and its endpoint.

use farside_fabric::{Endpoint, OpContext, Pipeline};
use farside_index::{Addressing, Found, PointerArray};
use farside_pool::{Pool, PoolError, open_or_format};

use crate::config::StoreConfig;
use crate::error::KvError;
use crate::expiry;
use crate::session::Session;

/// An open store.
#[derive(Clone, Debug)]
pub struct Store<E> {
    pub(crate) index: PointerArray<E>,
    pub(crate) endpoint: E,
    pub(crate) timeout_ns: Option<u64>,
}

impl<E: Endpoint> Store<E> {
    /// Opens the store on the nodes that `endpoint` reaches; makes it if they are blank. Starts the
    /// tasks that renew the lease and take over what dead clients held.
    ///
    /// # Errors
    /// If a node is too small, foreign or damaged, or the fabric fails.
    pub async fn open(endpoint: E, config: StoreConfig) -> Result<Self, KvError> {
        let mut cx = OpContext::new(endpoint.clone());
        let geometry = open_or_format(&mut cx, config.format).await?;
        let bytes = geometry.iter().map(|geometry| geometry.node_bytes).sum();
        let pool = Pool::join(&mut cx, geometry, config.pool).await?;
        let slots = config.slots_for(bytes);
        let created = PointerArray::create(&mut cx, pool.clone(), config.scheme, Addressing::Hashed, slots).await;
        // A membership that nobody uses would renew its lease for ever.
        let index = created.inspect_err(|_| pool.abandon())?;
        let store = Self {
            index,
            endpoint: endpoint.clone(),
            timeout_ns: config.timeout_ns,
        };
        let keeper = store.clone();
        endpoint.spawn(async move { keeper.take_over_from_the_dead(config.pool.tick_ns).await });
        Ok(store)
    }

    /// A session; it has one operation in flight at a time.
    #[must_use]
    pub fn session(&self) -> Session<E> {
        Session::new(self.clone(), OpContext::new(self.endpoint.clone()))
    }

    /// A session whose reads let the other sessions of `pipeline` run while memory is fetched.
    #[must_use]
    pub fn pipelined_session(&self, pipeline: &Pipeline) -> Session<E> {
        Session::new(
            self.clone(),
            OpContext::pipelined(self.endpoint.clone(), pipeline.clone()),
        )
    }

    /// The pool that the store allocates from.
    #[must_use]
    pub fn pool(&self) -> &Pool<E> {
        self.index.pool()
    }

    /// The endpoint underneath, with its clock and counters.
    #[must_use]
    pub fn endpoint(&self) -> &E {
        &self.endpoint
    }

    /// Leaves the pool; what other sessions of this store do afterwards fails.
    ///
    /// # Errors
    /// What the fabric reports; the other clients clean up then.
    pub async fn close(self) -> Result<(), KvError> {
        Ok(self.index.pool().clone().leave().await?)
    }

    /// Gives the store up without leaving the pool, after an error that says
    /// [`is_cut_off`](KvError::is_cut_off): the housekeeping ends, and the others take over what this
    /// client held when its lease has run out. (Merely dropping a store does not end its housekeeping,
    /// which needs the endpoint's runtime.)
    pub fn abandon(self) {
        self.index.pool().abandon();
    }

    /// Waits until nothing of a dead client is left to take over, as far as this client knows.
    ///
    /// # Errors
    /// What the fabric reports.
    pub async fn settle(&self) -> Result<(), KvError> {
        while self.pool().needs_recovery() {
            self.pool().tick().await?;
            self.endpoint.sleep(1_000_000).await;
        }
        Ok(())
    }

    /// An item that has expired is not there.
    #[inline]
    pub(crate) fn unless_expired(&self, found: Option<Found>) -> Option<Found> {
        found.filter(|found| expiry::is_there(found.expiry_ms, || self.endpoint.unix_ms()))
    }

    async fn take_over_from_the_dead(self, tick_ns: u64) {
        let mut cx = OpContext::new(self.endpoint.clone());
        while !self.pool().has_ended() {
            self.endpoint.sleep(tick_ns).await;
            if self.pool().needs_recovery() {
                let walk = async |cx: &mut OpContext<E>, visit: &mut dyn FnMut(_)| {
                    self.index.walk(cx, visit).await.map_err(PoolError::from)
                };
                if let Err(error) = self.pool().recover(&mut cx, walk).await {
                    tracing::warn!("could not take over what a dead client held, trying again: {error}");
                }
            }
        }
    }
}
