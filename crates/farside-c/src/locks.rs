//! Named locks, in the memory of a store.

use core::ffi::c_char;
use core::mem::MaybeUninit;
use core::time::Duration;

use farside::blocking::{LockGuard, Locks};
use farside::{Mode, Options};

use crate::border::{In, given};
use crate::fault::{Fault, Status, answer};
use crate::options::{FARSIDE_FOREVER, StoreOptions};
use crate::store::OpenStore;
use crate::threads::Era;

/// Named locks. Any thread may use them, many at a time.
pub struct NamedLocks {
    locks: Locks,
    era: Era,
}

/// A lock that is held. Any thread may use it, and release it.
pub struct HeldLock {
    guard: LockGuard,
    era: Era,
}

/// Who holds a lock; it may have changed meanwhile.
#[repr(C)]
pub struct LockHolder {
    /// Who was granted it last, as its options have said, with a NUL behind it.
    pub owner: [c_char; 128],
    /// When, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// How many clients hold it or wait for it. Those of one farside_locks count as one.
    pub in_queue: u64,
    /// Whether it is held by readers.
    pub is_shared: bool,
}

/// Opens the named locks in some memory; makes it ready if it is new. Starts a thread, which answers for the locks that are
/// held.
#[unsafe(no_mangle)]
pub extern "C" fn farside_locks_open(
    options: Option<&StoreOptions>,
    locks: Option<&mut MaybeUninit<*mut NamedLocks>>,
) -> Status {
    answer(|| {
        let (options, locks) = (given(options, "options")?, given(locks, "locks")?);
        locks.write(open(options.read()?)?);
        Ok(())
    })
}

/// Opens the named locks in the memory of a store, with its options. The store may be closed before them.
#[unsafe(no_mangle)]
pub extern "C" fn farside_locks_of(
    store: Option<&OpenStore>,
    locks: Option<&mut MaybeUninit<*mut NamedLocks>>,
) -> Status {
    answer(|| {
        let (store, locks) = (given(store, "store")?, given(locks, "locks")?);
        store.opened.era.check()?;
        locks.write(open(store.opened.options.clone())?);
        Ok(())
    })
}

fn open(options: Options) -> Result<*mut NamedLocks, Fault> {
    let era = Era::now();
    let locks = Locks::open(options)?;
    Ok(Box::into_raw(Box::new(NamedLocks { locks, era })))
}

/// Closes named locks. Those that are held stay so until they are released. NULL is fine.
#[unsafe(no_mangle)]
pub extern "C" fn farside_locks_close(locks: Option<Box<NamedLocks>>) -> Status {
    answer(|| match locks {
        Some(locks) => locks.era.drop_in(locks),
        None => Ok(()),
    })
}

/// Acquires a lock that nobody else holds. Its name has 1 to 128 bytes. Waits for `timeout_ms` milliseconds at most, not at
/// all if that is 0, and for as long as it takes if it is FARSIDE_FOREVER; FARSIDE_TIMEOUT if somebody still holds it.
#[unsafe(no_mangle)]
pub extern "C" fn farside_lock_exclusive(
    locks: Option<&NamedLocks>,
    name: In,
    name_length: usize,
    timeout_ms: u64,
    lock: Option<&mut MaybeUninit<*mut HeldLock>>,
) -> Status {
    answer(|| {
        acquire(
            locks,
            name.bytes(name_length, "name")?,
            Mode::Exclusive,
            timeout_ms,
            lock,
        )
    })
}

/// The same for a reader: others may hold the lock in this way at the same time.
#[unsafe(no_mangle)]
pub extern "C" fn farside_lock_shared(
    locks: Option<&NamedLocks>,
    name: In,
    name_length: usize,
    timeout_ms: u64,
    lock: Option<&mut MaybeUninit<*mut HeldLock>>,
) -> Status {
    answer(|| acquire(locks, name.bytes(name_length, "name")?, Mode::Shared, timeout_ms, lock))
}

fn acquire(
    locks: Option<&NamedLocks>,
    name: &[u8],
    mode: Mode,
    timeout_ms: u64,
    place: Option<&mut MaybeUninit<*mut HeldLock>>,
) -> Result<(), Fault> {
    let (NamedLocks { locks, era }, place) = (given(locks, "locks")?, given(place, "lock")?);
    era.check()?;
    let patience = Duration::from_millis(timeout_ms);
    let taken = match (mode, timeout_ms) {
        (Mode::Exclusive, 0) => locks.try_exclusive(name),
        (Mode::Shared, 0) => locks.try_shared(name),
        (Mode::Exclusive, FARSIDE_FOREVER) => locks.exclusive(name).map(Some),
        (Mode::Shared, FARSIDE_FOREVER) => locks.shared(name).map(Some),
        (Mode::Exclusive, _) => locks.exclusive_within(name, patience),
        (Mode::Shared, _) => locks.shared_within(name, patience),
    };
    let Some(guard) = taken? else {
        return Err(Fault::new(Status::Timeout, c"somebody else holds the lock"));
    };
    place.write(Box::into_raw(Box::new(HeldLock { guard, era: *era })));
    Ok(())
}

/// The fencing token of a lock: larger than that of every grant before. Send it along with what is done under the lock, and
/// have smaller ones refused there.
#[unsafe(no_mangle)]
pub extern "C" fn farside_lock_token(lock: Option<&HeldLock>, token: Option<&mut MaybeUninit<u64>>) -> Status {
    answer(|| {
        let (lock, token) = (given(lock, "lock")?, given(token, "token")?);
        token.write(lock.guard.token());
        Ok(())
    })
}

/// FARSIDE_OK if the lock is held, and was all the time; FARSIDE_LOST if somebody else may have it.
#[unsafe(no_mangle)]
pub extern "C" fn farside_lock_is_held(lock: Option<&HeldLock>) -> Status {
    answer(|| {
        let lock = given(lock, "lock")?;
        lock.era.check()?;
        match lock.guard.is_held() {
            true => Ok(()),
            false => Err(farside::Error::from(farside::LocksError::lost(lock.guard.name())).into()),
        }
    })
}

/// Gives a lock back, and frees the handle whatever it answers: FARSIDE_LOST if the lock may not have been held to the end.
/// NULL is fine.
#[unsafe(no_mangle)]
pub extern "C" fn farside_lock_release(lock: Option<Box<HeldLock>>) -> Status {
    answer(|| {
        let Some(lock) = lock else { return Ok(()) };
        let era = lock.era;
        if era.check().is_err() {
            return era.drop_in(lock);
        }
        Ok(lock.guard.release()?)
    })
}

/// Who holds a lock; FARSIDE_NOT_FOUND if nobody does. Of several readers, the last that came.
#[unsafe(no_mangle)]
pub extern "C" fn farside_lock_holder(
    locks: Option<&NamedLocks>,
    name: In,
    name_length: usize,
    holder: Option<&mut MaybeUninit<LockHolder>>,
) -> Status {
    answer(|| {
        let (name, place) = (name.bytes(name_length, "name")?, given(holder, "holder")?);
        let NamedLocks { locks, era } = given(locks, "locks")?;
        era.check()?;
        let Some(holder) = locks.holder(name)? else {
            return Err(Fault::new(Status::NotFound, c"nobody holds the lock"));
        };
        let mut owner = [0; 128];
        // The last one stays NUL.
        for (to, byte) in owner[..127].iter_mut().zip(holder.owner.bytes()) {
            *to = c_char::from_ne_bytes([byte]);
        }
        place.write(LockHolder {
            owner,
            since_ms: holder.since_ms,
            in_queue: holder.in_queue,
            is_shared: holder.mode == Mode::Shared,
        });
        Ok(())
    })
}
