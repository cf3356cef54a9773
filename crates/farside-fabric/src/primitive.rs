//! Atomics, locks and threads: those of the machine, or with `--cfg loom` those of the model checker.
//!
//! On the path: everything that several threads or processes share in mapped memory is made of
//! these. `cargo xtask loom` runs the protocols on them under every order that the memory model
//! allows.
//!
//! What differs in the model:
//! - loom gives a sequentially consistent access no more than acquire and release, and says so; only
//!   its fences are sequentially consistent. So each such access has a fence before it, and one that
//!   stores has a fence behind it too: on x86-64 it is a full barrier, and regions rely on that where
//!   a word is written and another one then loaded with acquire (posting order);
//! - a load of one byte is a load of its word, a store of one byte a read-modify-write of it.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::thread;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(loom)]
pub(crate) use loom::thread;

#[cfg(loom)]
pub use self::modelled::AtomicU64;
#[cfg(loom)]
pub(crate) use self::modelled::{AtomicBool, Byte, Futex};

#[cfg(loom)]
mod modelled {
    use core::fmt;

    use loom::sync::atomic::{Ordering, fence};
    use loom::sync::{Condvar, Mutex};

    fn fence_if_total(order: Ordering) {
        if order == Ordering::SeqCst {
            fence(Ordering::SeqCst);
        }
    }

    /// A word of modelled memory.
    pub struct AtomicU64(loom::sync::atomic::AtomicU64);

    impl fmt::Debug for AtomicU64 {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            // Looking would be a step of the model.
            f.write_str("AtomicU64")
        }
    }

    #[expect(missing_docs, reason = "the methods of the standard library's type")]
    impl AtomicU64 {
        #[must_use]
        pub fn new(value: u64) -> Self {
            Self(loom::sync::atomic::AtomicU64::new(value))
        }

        #[must_use]
        pub fn load(&self, order: Ordering) -> u64 {
            fence_if_total(order);
            self.0.load(order)
        }

        pub fn store(&self, value: u64, order: Ordering) {
            fence_if_total(order);
            self.0.store(value, order);
            fence_if_total(order);
        }

        pub fn swap(&self, value: u64, order: Ordering) -> u64 {
            fence_if_total(order);
            let old = self.0.swap(value, order);
            fence_if_total(order);
            old
        }

        pub fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            fence_if_total(order);
            let old = self.0.fetch_add(value, order);
            fence_if_total(order);
            old
        }

        pub fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
            fence_if_total(order);
            let old = self.0.fetch_or(value, order);
            fence_if_total(order);
            old
        }

        /// # Errors
        /// The value that is there, if it is not `current`.
        pub fn compare_exchange(
            &self,
            current: u64,
            new: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            fence_if_total(success);
            let old = self.0.compare_exchange(current, new, success, failure);
            fence_if_total(success);
            old
        }

        /// # Errors
        /// The value that is there, if `update` refuses it.
        pub fn fetch_update(
            &self,
            set: Ordering,
            fetch: Ordering,
            mut update: impl FnMut(u64) -> Option<u64>,
        ) -> Result<u64, u64> {
            let mut seen = self.load(fetch);
            while let Some(new) = update(seen) {
                match self.compare_exchange(seen, new, set, fetch) {
                    Ok(seen) => return Ok(seen),
                    Err(other) => seen = other,
                }
            }
            Err(seen)
        }
    }

    /// One byte of a word.
    pub(crate) struct Byte<'a> {
        pub(crate) word: &'a AtomicU64,
        pub(crate) shift: u32,
    }

    impl Byte<'_> {
        pub(crate) fn load(&self, order: Ordering) -> u8 {
            (self.word.load(order) >> self.shift) as u8
        }

        pub(crate) fn store(&self, byte: u8, order: Ordering) {
            let (mask, bits) = (0xff << self.shift, u64::from(byte) << self.shift);
            let stored = self
                .word
                .fetch_update(order, Ordering::Relaxed, |word| Some(word & !mask | bits));
            stored.expect("the update refuses nothing");
        }
    }

    /// A flag.
    pub(crate) struct AtomicBool(AtomicU64);

    impl fmt::Debug for AtomicBool {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("AtomicBool")
        }
    }

    impl AtomicBool {
        pub(crate) fn new(value: bool) -> Self {
            Self(AtomicU64::new(value.into()))
        }

        pub(crate) fn load(&self, order: Ordering) -> bool {
            self.0.load(order) != 0
        }

        pub(crate) fn store(&self, value: bool, order: Ordering) {
            self.0.store(value.into(), order);
        }
    }

    /// What the kernel does for a futex: it compares and goes to sleep under a lock that waking takes
    /// too. There is one queue for all words; whoever wakes wakes everybody.
    pub(crate) struct Futex {
        lock: Mutex<()>,
        queue: Condvar,
    }

    loom::lazy_static! {
        static ref KERNEL: Futex = Futex {
            lock: Mutex::new(()),
            queue: Condvar::new(),
        };
    }

    impl Futex {
        /// Sleeps until woken, if the lower half of the word is `seen`. There is no time in the model: who
        /// is not woken sleeps for ever, and loom reports it.
        pub(crate) fn wait(word: &AtomicU64, seen: u32) {
            let guard = KERNEL.lock.lock().expect("no thread panics with the lock");
            if word.load(Ordering::SeqCst) as u32 == seen {
                drop(KERNEL.queue.wait(guard).expect("no thread panics with the lock"));
            }
        }

        pub(crate) fn wake_all() {
            let guard = KERNEL.lock.lock().expect("no thread panics with the lock");
            KERNEL.queue.notify_all();
            drop(guard);
        }
    }
}
