//! The async interface to named locks: one client of the memory, on the thread that opened it.

use core::time::Duration;

use farside_fabric::host::HostClock;
use farside_fabric::{Deadline, Endpoint};
use farside_kv as kv;
use farside_kv::locks::{Guard, Holder, Mode};
use farside_kv::stack;

use super::error::Error;
use super::operations::boxed;
use super::options::{Located, Options};
use super::runtime::require_local_set;

/// Locks with names, in memory that may hold a store as well: all that open the same memory exclude each other.
///
/// A lock is held exclusively, by one client, or shared, by any number of readers. Callers queue up in the same way
/// whether they use the same `Locks` or another one, and sleep while they wait. There is nothing to set up: a name that
/// was never used is a free lock.
///
/// ```
/// use farside::{Locks, Options};
///
/// farside::run(async {
///     let locks = Locks::open(Options::anonymous(64 << 20)).await?;
///     let guard = locks.exclusive("accounts/17").await?;
///     // What is changed outside refuses whoever comes with a smaller token.
///     let token = guard.token();
///     assert!(locks.try_shared("accounts/17").await?.is_none());
///     guard.release().await?;
///     assert!(locks.exclusive("accounts/17").await?.token() > token);
///     locks.close().await
/// })??;
/// # Ok::<(), farside::Error>(())
/// ```
///
/// # When somebody dies
/// A lock whose holder has died becomes available after one second, over a connection after up to four
/// ([`Options::lock_lease`]). A live holder keeps its lock for as long as it needs: a task of this client answers for it. Over a connection, this requires that
/// the thread does not stall for longer than the lease; [`LockGuard::is_held`] says whether it did. Over mapped memory
/// a stopped process keeps its locks until it continues or ends.
///
/// # Giving up
/// Futures can be dropped at any point. Memory for names is limited; a name that is not in use makes room for others.
#[derive(Clone, Debug)]
pub struct Locks {
    inner: kv::Locks,
}

/// A lock that is held until this is released or dropped. A dropped guard is released by a task; [`LockGuard::release`]
/// waits until the lock is released.
#[derive(Debug)]
#[must_use = "a guard that is dropped gives its lock back"]
pub struct LockGuard {
    inner: Guard,
}

/// The locks of the memory that an endpoint reaches; new memory is made ready first.
pub(crate) async fn open(endpoint: Endpoint, located: &Located) -> Result<kv::Locks, Error> {
    match kv::Locks::open(endpoint.clone(), located.locks.clone()).await {
        Err(kv::LocksError::NoTable) => {
            let store = boxed(kv::Store::open(endpoint.clone(), located.config)).await?;
            boxed(store.close()).await?;
            Ok(kv::Locks::open(endpoint, located.locks.clone()).await?)
        }
        opened => Ok(opened?),
    }
}

/// The end of a wait that begins now, on the clock of both fabrics.
pub(crate) fn deadline_after(patience: Duration) -> Deadline {
    let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
    Deadline(HostClock.now_ns().saturating_add(patience_ns))
}

impl Locks {
    /// Opens the memory, and formats it if it is new.
    ///
    /// # Errors
    /// [`Error::NoLocalSet`] outside a tokio runtime with a `LocalSet`; if the memory cannot be reached, was not made
    /// by Farside, or has no room for locks: new memory needs 16 MiB.
    pub async fn open(options: Options) -> Result<Self, Error> {
        require_local_set()?;
        let located = options.locate()?;
        let endpoint = stack::connect(located.nodes.clone(), located.secret.clone()).await?;
        let inner = open(endpoint, &located).await?;
        Ok(Self { inner })
    }

    /// Waits until nobody else holds the lock.
    ///
    /// # Errors
    /// [`Error::Lock`] if the name is empty or longer than 128 bytes, if there is no room for it, or if the
    /// memory cannot be reached; likewise for all operations below.
    pub async fn exclusive(&self, name: impl AsRef<[u8]>) -> Result<LockGuard, Error> {
        self.acquire(name.as_ref(), Mode::Exclusive).await
    }

    /// Waits until nobody holds the lock exclusively.
    pub async fn shared(&self, name: impl AsRef<[u8]>) -> Result<LockGuard, Error> {
        self.acquire(name.as_ref(), Mode::Shared).await
    }

    /// Acquires the lock exclusively if that needs no waiting; `None` otherwise.
    pub async fn try_exclusive(&self, name: impl AsRef<[u8]>) -> Result<Option<LockGuard>, Error> {
        self.try_acquire(name.as_ref(), Mode::Exclusive).await
    }

    /// Acquires the lock shared if that needs no waiting; `None` otherwise.
    pub async fn try_shared(&self, name: impl AsRef<[u8]>) -> Result<Option<LockGuard>, Error> {
        self.try_acquire(name.as_ref(), Mode::Shared).await
    }

    /// Waits for at most `patience` until nobody else holds the lock; `None` if somebody still does.
    pub async fn exclusive_within(
        &self,
        name: impl AsRef<[u8]>,
        patience: Duration,
    ) -> Result<Option<LockGuard>, Error> {
        self.acquire_within(name.as_ref(), Mode::Exclusive, patience).await
    }

    /// Waits for at most `patience` until nobody holds the lock exclusively; `None` if somebody still does.
    pub async fn shared_within(&self, name: impl AsRef<[u8]>, patience: Duration) -> Result<Option<LockGuard>, Error> {
        self.acquire_within(name.as_ref(), Mode::Shared, patience).await
    }

    /// Who holds the lock, and since when; this may be outdated on return. Of several readers, the last to acquire it.
    pub async fn holder(&self, name: impl AsRef<[u8]>) -> Result<Option<Holder>, Error> {
        Ok(boxed(self.inner.holder(name.as_ref())).await?)
    }

    /// Whether this client was cut off from the memory: its locks are lost, and the memory has to be opened anew.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.inner.has_ended()
    }

    /// Waits until the locks of dropped guards are released, and leaves the memory. Without this, other clients notice
    /// only when this one does not answer.
    ///
    /// # Errors
    /// If the memory cannot be reached.
    pub async fn close(self) -> Result<(), Error> {
        Ok(boxed(self.inner.close()).await?)
    }

    async fn acquire(&self, name: &[u8], mode: Mode) -> Result<LockGuard, Error> {
        let inner = boxed(self.inner.acquire(name, mode)).await?;
        Ok(LockGuard { inner })
    }

    async fn try_acquire(&self, name: &[u8], mode: Mode) -> Result<Option<LockGuard>, Error> {
        let taken = boxed(self.inner.try_acquire(name, mode)).await?;
        Ok(taken.map(|inner| LockGuard { inner }))
    }

    async fn acquire_within(&self, name: &[u8], mode: Mode, patience: Duration) -> Result<Option<LockGuard>, Error> {
        let deadline = deadline_after(patience);
        let taken = boxed(self.inner.acquire_until(name, mode, deadline)).await?;
        Ok(taken.map(|inner| LockGuard { inner }))
    }
}

impl LockGuard {
    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.inner.name()
    }

    /// How it is held.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.inner.mode()
    }

    /// The fencing token: larger than that of every earlier grant of this lock, to any client. Send it along with what
    /// you do under the lock, and refuse requests with a smaller token than the largest one seen: a holder that was
    /// away for too long can then do no harm.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.inner.token()
    }

    /// Whether the lock has been held without interruption since it was granted; takes no round trip. Once this is
    /// false, another client may hold the lock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// [`Error::Lock`] if the lock may have been lost before, or the memory cannot be reached.
    pub async fn release(self) -> Result<(), Error> {
        Ok(boxed(self.inner.release()).await?)
    }
}
