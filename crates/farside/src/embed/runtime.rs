//! The event loop that the async interface needs.

use farside_fabric::host;

use super::error::Error;

/// Runs an async program that uses the store, on this thread, in a tokio current-thread runtime with a `LocalSet`.
/// Programs that have both already do not need it.
///
/// # Errors
/// [`Error::Start`] if the system refuses an event loop.
///
/// # Panics
/// Inside another runtime.
///
/// ```
/// use farside::{Options, Store};
///
/// let length = farside::run(async {
///     let store = Store::open(Options::anonymous(64 << 20)).await?;
///     let mut session = store.session();
///     session.put(b"key", b"value").await?;
///     let length = session.get(b"key").await?.map_or(0, <[u8]>::len);
///     store.close().await?;
///     Ok::<_, farside::Error>(length)
/// })??;
/// assert_eq!(length, 5);
/// # Ok::<(), farside::Error>(())
/// ```
pub fn run<T>(program: impl Future<Output = T>) -> Result<T, Error> {
    host::on_this_thread(program).map_err(Error::Start)
}

/// Fails where tasks cannot be started. tokio has no question for that, so one is started.
pub(crate) fn require_local_set() -> Result<(), Error> {
    if tokio::runtime::Handle::try_current().is_err() {
        return Err(Error::NoLocalSet);
    }
    std::panic::catch_unwind(|| host::spawn_local(Box::pin(core::future::ready(())))).map_err(|_| Error::NoLocalSet)
}
