//! The system's own lock between processes: a robust, process-shared mutex of the C library in a file that all map.
//!
//! On the path: nowhere. It is what measurements compare Farside's locks with (feature `peers`).
//!
//! Invariants:
//! - the file is made whole before its name is given to anybody, and is not written but by the C library;
//! - a mapping stays for as long as its process: the C library keeps the address of a mutex that is locked.

use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use memmap2::{MmapOptions, MmapRaw};

const FILE_BYTES: usize = 4096;
const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= FILE_BYTES);

/// A mutex in a file. Whoever dies with it does not stop the others.
#[derive(Debug)]
pub struct RobustMutex {
    map: ManuallyDrop<MmapRaw>,
}

/// That the mutex is locked; dropping it unlocks. It belongs to its thread.
#[derive(Debug)]
pub struct RobustGuard<'a> {
    mutex: &'a RobustMutex,
    was_abandoned: bool,
    not_send: PhantomData<*const ()>,
}

/// A function of the C library that says what is wrong by its result.
fn check(status: libc::c_int) -> io::Result<()> {
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(status))
    }
}

impl RobustMutex {
    /// Makes the file, which must not exist.
    ///
    /// # Errors
    /// What the system reports.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        file.set_len(FILE_BYTES as u64)?;
        let mutex = Self::map(&file)?;
        mutex.initialise()?;
        Ok(mutex)
    }

    /// Opens a file that [`RobustMutex::create`] has made.
    ///
    /// # Errors
    /// What the system reports; [`io::ErrorKind::InvalidData`] if the file has another length.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if file.metadata()?.len() != FILE_BYTES as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(&file)
    }

    fn map(file: &File) -> io::Result<Self> {
        let map = MmapOptions::new().len(FILE_BYTES).map_raw(file)?;
        Ok(Self {
            map: ManuallyDrop::new(map),
        })
    }

    fn initialise(&self) -> io::Result<()> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised by the first call, used only if that succeeds, and destroyed
        // once; the mutex lies in a mapping that is large enough, aligned to a page, zeroed, and known to nobody else.
        unsafe {
            check(libc::pthread_mutexattr_init(attributes.as_mut_ptr()))?;
            let attributes_at = attributes.as_mut_ptr();
            let made = check(libc::pthread_mutexattr_setpshared(
                attributes_at,
                libc::PTHREAD_PROCESS_SHARED,
            ))
            .and_then(|()| {
                check(libc::pthread_mutexattr_setrobust(
                    attributes_at,
                    libc::PTHREAD_MUTEX_ROBUST,
                ))
            })
            .and_then(|()| check(libc::pthread_mutex_init(self.raw(), attributes_at)));
            libc::pthread_mutexattr_destroy(attributes_at);
            made
        }
    }

    /// Aligned: a mapping begins at a page.
    fn raw(&self) -> *mut libc::pthread_mutex_t {
        self.map.as_mut_ptr().cast()
    }

    /// Locks it; a thread that has locked it already waits for ever.
    ///
    /// # Errors
    /// What the C library reports.
    #[inline]
    pub fn lock(&self) -> io::Result<RobustGuard<'_>> {
        // SAFETY: the mutex was initialised before anybody could open its file, and stays mapped.
        let status = unsafe { libc::pthread_mutex_lock(self.raw()) };
        let was_abandoned = status == libc::EOWNERDEAD;
        if !was_abandoned {
            check(status)?;
        }
        let guard = RobustGuard {
            mutex: self,
            was_abandoned,
            not_send: PhantomData,
        };
        if was_abandoned {
            // SAFETY: as above, and this thread has it locked.
            check(unsafe { libc::pthread_mutex_consistent(self.raw()) })?;
        }
        Ok(guard)
    }
}

impl RobustGuard<'_> {
    /// Whether whoever had it before has died with it.
    #[must_use]
    pub fn was_abandoned(&self) -> bool {
        self.was_abandoned
    }
}

impl Drop for RobustGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the mutex is initialised and mapped, and the guard of this thread says that it is locked by it.
        let status = unsafe { libc::pthread_mutex_unlock(self.mutex.raw()) };
        debug_assert_eq!(status, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_two_mappings_exclude_each_other() {
        const ROUNDS: u64 = 10_000;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mutex");
        let first = RobustMutex::create(&path).expect("a mutex");
        let count = std::sync::atomic::AtomicU64::new(0);
        let add = |mutex: &RobustMutex| {
            use std::sync::atomic::Ordering::Relaxed;
            for _ in 0..ROUNDS {
                let guard = mutex.lock().expect("it is whole");
                count.store(count.load(Relaxed) + 1, Relaxed);
                drop(guard);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| add(&first));
            scope.spawn(|| add(&RobustMutex::open(&path).expect("it is there")));
        });
        assert_eq!(count.into_inner(), 2 * ROUNDS);
    }

    #[test]
    fn who_dies_with_it_does_not_stop_the_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let mutex = RobustMutex::create(&folder.path().join("mutex")).expect("a mutex");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Its thread ends without unlocking it.
                let guard = mutex.lock().expect("it is whole");
                let _ = ManuallyDrop::new(guard);
            });
        });
        assert!(mutex.lock().expect("it is whole").was_abandoned());
        assert!(!mutex.lock().expect("it is whole").was_abandoned());
    }

    #[test]
    fn another_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, b"short").expect("a file");
        let refused = RobustMutex::open(&path).expect_err("it is no mutex");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }
}
