//! Whether the owner of an entry is there, wherever it runs on this machine: locks that the kernel takes back when a process ends.
//!
//! On the path: joining and leaving; and when somebody asks after the owner of an entry whose process number says nothing here,
//! since it counts in another namespace (another container).
//!
//! Each entry of the table has a byte, far behind the end of the file, and its owner has the lock of that byte (an open file
//! description lock, fcntl(2)). The kernel drops it when the last descriptor of that opening is closed, at the latest when the
//! process ends; and who has opened the file elsewhere can ask for it. Where a file system has no such locks nothing is known,
//! as before.
//!
//! Locks belong to an opening of the file, which all threads of a process share: among them [`Locks::joining`] keeps order. A
//! process that forks shares it with its child, and counts as there until both have ended; for those of its own namespace its
//! number decides.

use core::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where the byte of the first entry is: behind the longest file.
const FIRST_AT: libc::off_t = 1 << 62;

/// The locks of a table's entries.
#[derive(Debug)]
pub(super) struct Locks {
    file: Arc<File>,
    joining: Mutex<()>,
}

impl Locks {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self {
            file,
            joining: Mutex::new(()),
        }
    }

    /// While somebody has this, no other thread takes an entry or gives one back.
    pub(super) fn joining(&self) -> MutexGuard<'_, ()> {
        // There is nothing in it that could be left half done.
        self.joining.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock of an entry; returns whether it was to be had.
    pub(super) fn try_lock(&self, index: u64) -> bool {
        self.control(libc::F_OFD_SETLK, libc::F_WRLCK, index).is_ok()
    }

    /// Gives the lock of an entry back.
    pub(super) fn unlock(&self, index: u64) {
        // It fails only where there are no locks.
        let _ = self.control(libc::F_OFD_SETLK, libc::F_UNLCK, index);
    }

    /// Whether nobody has the lock of an entry, but perhaps this opening of the file; false if that cannot be learned.
    pub(super) fn is_free(&self, index: u64) -> bool {
        let found = self.control(libc::F_OFD_GETLK, libc::F_WRLCK, index);
        found.is_ok_and(|kind| kind == libc::F_UNLCK)
    }

    /// Returns the kind of lock that the kernel has written down.
    fn control(&self, command: c_int, kind: c_int, index: u64) -> io::Result<c_int> {
        let mut lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: FIRST_AT + index as libc::off_t,
            l_len: 1,
            // The kernel wants 0 for locks of an opening.
            l_pid: 0,
        };
        // SAFETY: the descriptor is open as long as `file` is, and the three commands read and write the one `flock` that is
        // passed, which outlives the call.
        let status = unsafe { libc::fcntl(self.file.as_raw_fd(), command, &raw mut lock) };
        if status == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(lock.l_type.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_seen_by_another_opening_until_it_is_given_back() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || {
            let opened = File::options().read(true).write(true).open(file.path());
            Locks::new(Arc::new(opened.expect("it is there")))
        };
        let (own, other) = (open(), open());
        assert!(own.is_free(7) && other.is_free(7));
        assert!(own.try_lock(7) && own.try_lock(8));
        assert!(own.is_free(7), "it is our own");
        assert!(!other.is_free(7) && !other.try_lock(7) && other.is_free(9));
        own.unlock(7);
        assert!(other.is_free(7) && !other.is_free(8));
        drop(own);
        assert!(other.is_free(8) && other.try_lock(8));
    }
}
