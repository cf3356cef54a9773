//! A store: opening and closing it, and operations on one key.

use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use core::time::Duration;
use std::sync::Arc;

use farside::{Condition, Expiry, Lifetime, SetOptions, after};

use crate::border::{In, Out, allocated, given};
use crate::fault::{Fault, Status, answer};
use crate::options::{FARSIDE_FOREVER, StoreOptions};
use crate::threads::Opened;

/// For farside_set_with(): store only if the key is not there.
pub const FARSIDE_IF_ABSENT: u32 = 1;
/// For farside_set_with(): store only if the key is there.
pub const FARSIDE_IF_PRESENT: u32 = 2;
/// For farside_set_with(): the key keeps its time to live.
pub const FARSIDE_KEEP_TTL: u32 = 4;

/// An open store. Any thread may use it, many at a time.
pub struct OpenStore {
    pub(crate) opened: Arc<Opened>,
}

/// The version of the library, as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn farside_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Opens a store; makes it if the memory is new. Starts a thread, which stands in for threads that do something else than use
/// it.
#[unsafe(no_mangle)]
pub extern "C" fn farside_open(
    options: Option<&StoreOptions>,
    store: Option<&mut MaybeUninit<*mut OpenStore>>,
) -> Status {
    answer(|| {
        let (options, store) = (given(options, "options")?, given(store, "store")?);
        let opened = Opened::open(options.read()?)?;
        store.write(Box::into_raw(Box::new(OpenStore { opened })));
        Ok(())
    })
}

/// Closes a store; its memory stays, unless it was that of this process alone. NULL is fine. No thread may use the store
/// meanwhile or later. What other threads hold of it they give up when they end, or call this library again.
#[unsafe(no_mangle)]
pub extern "C" fn farside_close(store: Option<Box<OpenStore>>) -> Status {
    answer(|| {
        let Some(store) = store else { return Ok(()) };
        let era = store.opened.era;
        era.drop_in(store)
    })
}

/// Copies the value of a key to `buffer`, if it has at most `capacity` bytes. `length` becomes its length, also if it is longer
/// (FARSIDE_BUFFER_TOO_SMALL).
#[unsafe(no_mangle)]
pub extern "C" fn farside_get(
    store: Option<&OpenStore>,
    key: In,
    key_length: usize,
    mut buffer: Out,
    capacity: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> Status {
    answer(|| {
        let (key, length) = (key.bytes(key_length, "key")?, given(length, "length")?);
        let found = given(store, "store")?.opened.with(|session| {
            Ok(session
                .get(key)?
                .map(|value| answer_with(value, &mut buffer, capacity, length)))
        });
        found?.ok_or(Fault::NO_KEY)?
    })
}

/// Says how long the value is, and copies it if it fits.
pub(crate) fn answer_with(
    value: &[u8],
    buffer: &mut Out,
    capacity: usize,
    length: &mut MaybeUninit<usize>,
) -> Result<(), Fault> {
    length.write(value.len());
    buffer.fill(capacity, value)
}

/// The value of a key, in memory that farside_free() gives back.
#[unsafe(no_mangle)]
pub extern "C" fn farside_get_alloc(
    store: Option<&OpenStore>,
    key: In,
    key_length: usize,
    value: Option<&mut MaybeUninit<*mut c_void>>,
    length: Option<&mut MaybeUninit<usize>>,
) -> Status {
    answer(|| {
        let key = key.bytes(key_length, "key")?;
        let (value, length) = (given(value, "value")?, given(length, "length")?);
        let found = given(store, "store")?
            .opened
            .with(|session| Ok(session.get(key)?.map(|found| (allocated(found), found.len()))));
        let (memory, bytes) = found?.ok_or(Fault::NO_KEY)?;
        value.write(memory?);
        length.write(bytes);
        Ok(())
    })
}

/// Gives memory back that a function of this library has allocated. NULL is fine.
#[unsafe(no_mangle)]
pub extern "C" fn farside_free(memory: Out) {
    memory.free();
}

/// Stores a value for good, whatever was there.
#[unsafe(no_mangle)]
pub extern "C" fn farside_set(
    store: Option<&OpenStore>,
    key: In,
    key_length: usize,
    value: In,
    value_length: usize,
) -> Status {
    answer(|| {
        let (key, value) = (key.bytes(key_length, "key")?, value.bytes(value_length, "value")?);
        given(store, "store")?.opened.with(|session| session.put(key, value))
    })
}

/// Stores a value that is gone after `ttl_ms` milliseconds, or FARSIDE_FOREVER. `flags` is 0, or FARSIDE_IF_ABSENT or
/// FARSIDE_IF_PRESENT, which answer FARSIDE_NOT_STORED if it is not so, and with FARSIDE_KEEP_TTL `ttl_ms` does not count.
#[unsafe(no_mangle)]
pub extern "C" fn farside_set_with(
    store: Option<&OpenStore>,
    key: In,
    key_length: usize,
    value: In,
    value_length: usize,
    flags: u32,
    ttl_ms: u64,
) -> Status {
    answer(|| {
        let (key, value) = (key.bytes(key_length, "key")?, value.bytes(value_length, "value")?);
        let condition = match flags & !FARSIDE_KEEP_TTL {
            0 => Condition::Always,
            FARSIDE_IF_ABSENT => Condition::IfAbsent,
            FARSIDE_IF_PRESENT => Condition::IfPresent,
            _ => {
                let text = "`flags` is FARSIDE_IF_ABSENT or FARSIDE_IF_PRESENT, and FARSIDE_KEEP_TTL, or 0";
                return Err(Fault::invalid(text));
            }
        };
        let options = SetOptions {
            condition,
            expiry: match flags & FARSIDE_KEEP_TTL {
                0 => expiry(ttl_ms)?,
                _ => Expiry::Keep,
            },
            ..SetOptions::default()
        };
        let outcome = given(store, "store")?
            .opened
            .with(|session| session.set(key, value, options));
        match outcome?.is_stored {
            true => Ok(()),
            false => Err(Fault::new(
                Status::NotStored,
                c"the condition does not hold: nothing was stored",
            )),
        }
    })
}

fn expiry(ttl_ms: u64) -> Result<Expiry, Fault> {
    match ttl_ms {
        0 => Err(Fault::invalid(
            "a time to live of 0 ms: say FARSIDE_FOREVER, or delete the key",
        )),
        FARSIDE_FOREVER => Ok(Expiry::Never),
        ttl_ms => Ok(after(Duration::from_millis(ttl_ms))),
    }
}

/// FARSIDE_OK if a key was there.
pub(crate) fn found(is_there: bool) -> Result<(), Fault> {
    if is_there { Ok(()) } else { Err(Fault::NO_KEY) }
}

/// Removes a key.
#[unsafe(no_mangle)]
pub extern "C" fn farside_delete(store: Option<&OpenStore>, key: In, key_length: usize) -> Status {
    answer(|| {
        let key = key.bytes(key_length, "key")?;
        found(given(store, "store")?.opened.with(|session| session.delete(key))?)
    })
}

/// FARSIDE_OK if a key is there.
#[unsafe(no_mangle)]
pub extern "C" fn farside_exists(store: Option<&OpenStore>, key: In, key_length: usize) -> Status {
    answer(|| {
        let key = key.bytes(key_length, "key")?;
        found(
            given(store, "store")?
                .opened
                .with(|session| Ok(session.get(key)?.is_some()))?,
        )
    })
}

/// Removes a key; the value it had is in memory that farside_free() gives back.
#[unsafe(no_mangle)]
pub extern "C" fn farside_take(
    store: Option<&OpenStore>,
    key: In,
    key_length: usize,
    value: Option<&mut MaybeUninit<*mut c_void>>,
    length: Option<&mut MaybeUninit<usize>>,
) -> Status {
    answer(|| {
        let key = key.bytes(key_length, "key")?;
        let (value, length) = (given(value, "value")?, given(length, "length")?);
        let taken = given(store, "store")?.opened.with(|session| session.take(key))?;
        let taken = taken.ok_or(Fault::NO_KEY)?;
        value.write(allocated(&taken)?);
        length.write(taken.len());
        Ok(())
    })
}

/// Changes how long a key stays: `ttl_ms` milliseconds from now, or FARSIDE_FOREVER.
#[unsafe(no_mangle)]
pub extern "C" fn farside_expire(store: Option<&OpenStore>, key: In, key_length: usize, ttl_ms: u64) -> Status {
    answer(|| {
        let (key, expiry) = (key.bytes(key_length, "key")?, expiry(ttl_ms)?);
        found(
            given(store, "store")?
                .opened
                .with(|session| session.expire(key, expiry))?,
        )
    })
}

/// How many milliseconds a key still stays, or FARSIDE_FOREVER.
#[unsafe(no_mangle)]
pub extern "C" fn farside_ttl(
    store: Option<&OpenStore>,
    key: In,
    key_length: usize,
    ttl_ms: Option<&mut MaybeUninit<u64>>,
) -> Status {
    answer(|| {
        let (key, ttl_ms) = (key.bytes(key_length, "key")?, given(ttl_ms, "ttl_ms")?);
        match given(store, "store")?.opened.with(|session| session.lifetime(key))? {
            Lifetime::Absent => return Err(Fault::NO_KEY),
            Lifetime::Unlimited => ttl_ms.write(FARSIDE_FOREVER),
            Lifetime::Left(left) => ttl_ms.write(u64::try_from(left.as_millis()).unwrap_or(FARSIDE_FOREVER)),
        };
        Ok(())
    })
}

/// How many keys there are, expired ones that nobody has touched since included. Reads the whole index.
#[unsafe(no_mangle)]
pub extern "C" fn farside_count(store: Option<&OpenStore>, count: Option<&mut MaybeUninit<u64>>) -> Status {
    answer(|| {
        let count = given(count, "count")?;
        count.write(given(store, "store")?.opened.with(|session| session.count())?);
        Ok(())
    })
}

/// Removes every key.
#[unsafe(no_mangle)]
pub extern "C" fn farside_clear(store: Option<&OpenStore>) -> Status {
    answer(|| given(store, "store")?.opened.with(|session| session.clear()).map(drop))
}

/// `held`: bytes that keys and values take, which `memory_max` limits. `used`: bytes in use or reserved by clients, tables
/// included. Either may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn farside_memory(
    store: Option<&OpenStore>,
    held: Option<&mut MaybeUninit<u64>>,
    used: Option<&mut MaybeUninit<u64>>,
) -> Status {
    answer(|| {
        let opened = &given(store, "store")?.opened;
        if let Some(held) = held {
            held.write(opened.with(|session| session.memory_held())?);
        }
        if let Some(used) = used {
            used.write(opened.with(|session| session.memory_used())?);
        }
        Ok(())
    })
}
