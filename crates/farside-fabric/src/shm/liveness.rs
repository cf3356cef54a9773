//! Whether the owner of an entry is there, wherever it runs on this machine: locks that the kernel takes back when a process ends.
//!
//! On the path: joining and leaving; and when somebody asks after the owner of an entry whose process number says nothing here,
//! since it counts in another namespace (another container).
//!
//! Each entry of the table has a byte, far behind the end of the file, and its owner has the lock of that byte (an open file
//! description lock, fcntl(2)). The kernel drops it when the last descriptor of that opening is closed, at the latest when the
//! process ends; and who has opened the file elsewhere can ask for it. Where a file system has no such locks nothing is known
//! of other containers.
//!
//! Locks belong to an opening of the file, which all threads of a process share: among them [`Locks::joining`] keeps order. After a
//! fork the child shares it as well, so it neither takes locks nor judges by them. A program that closes descriptors that are not
//! its own (`closefrom`) gives them all back, and may be taken for dead.

use core::ffi::c_int;
use core::hash::Hasher;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::hash::MixHasher;

/// Where the byte of the first entry is: behind the longest file.
const FIRST_AT: libc::off_t = 1 << 62;

/// The locks of a table's entries.
#[derive(Debug)]
pub(super) struct Locks {
    file: Arc<File>,
    /// Tells files apart as the kernel does that keeps their locks: one file that is seen through two file systems has two.
    file_mark: u64,
    opened_by: u32,
    joining: Mutex<()>,
}

/// How an attempt to take a lock ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// It is ours.
    Ours,
    /// Another process has it.
    Others,
    /// There are no locks here.
    Unsupported,
}

impl Locks {
    pub(super) fn new(file: Arc<File>) -> Self {
        let mark = |metadata: std::fs::Metadata| {
            let mut hasher = MixHasher::default();
            hasher.write_u64(metadata.dev());
            hasher.write_u64(metadata.ino());
            hasher.finish()
        };
        Self {
            file_mark: file.metadata().map_or(0, mark),
            opened_by: std::process::id(),
            file,
            joining: Mutex::new(()),
        }
    }

    /// What an owner with this identity writes down if it has the lock of its entry.
    pub(super) fn mark_of(&self, id: u64) -> u64 {
        id ^ self.file_mark
    }

    /// While somebody has this, no other thread takes an entry or gives one back.
    pub(super) fn joining(&self) -> MutexGuard<'_, ()> {
        // There is nothing in it that could be left half done.
        self.joining.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries to take the lock of an entry.
    pub(super) fn try_lock(&self, index: u64) -> Taken {
        match self.control(libc::F_OFD_SETLK, libc::F_WRLCK, index) {
            Ok(_) => Taken::Ours,
            Err(Errno::AGAIN | Errno::ACCESS) => Taken::Others,
            Err(_) => Taken::Unsupported,
        }
    }

    /// Gives the lock of an entry back.
    pub(super) fn unlock(&self, index: u64) {
        // It fails only where there are no locks.
        let _ = self.control(libc::F_OFD_SETLK, libc::F_UNLCK, index);
    }

    /// Whether nobody has the lock of an entry, but perhaps this opening of the file; `None` if that cannot be learned.
    pub(super) fn is_free(&self, index: u64) -> Option<bool> {
        let found = self.control(libc::F_OFD_GETLK, libc::F_WRLCK, index);
        found.ok().map(|kind| kind == libc::F_UNLCK)
    }

    /// Returns the kind of lock that the kernel has written down.
    fn control(&self, command: c_int, kind: c_int, index: u64) -> Result<c_int, Errno> {
        if std::process::id() != self.opened_by {
            return Err(Errno::NOTSUP);
        }
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
            return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::NOTSUP));
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
        assert_eq!((own.is_free(7), other.is_free(7)), (Some(true), Some(true)));
        assert_eq!([7, 8].map(|index| own.try_lock(index)), [Taken::Ours; 2]);
        assert_eq!(own.is_free(7), Some(true), "it is our own");
        assert_eq!((other.is_free(7), other.try_lock(7)), (Some(false), Taken::Others));
        assert_eq!(other.is_free(9), Some(true));
        own.unlock(7);
        assert_eq!((other.is_free(7), other.is_free(8)), (Some(true), Some(false)));
        assert_eq!(own.mark_of(3), other.mark_of(3));
        drop(own);
        // A process that another test starts has the descriptor as well until it begins.
        while other.is_free(8) != Some(true) {
            std::thread::yield_now();
        }
        assert_eq!(other.try_lock(8), Taken::Ours);
    }

    #[test]
    fn one_file_is_not_taken_for_another() {
        let files = [(); 2].map(|()| tempfile::tempfile().expect("a file"));
        let [one, other] = files.map(|file| Locks::new(Arc::new(file)));
        assert_ne!(one.mark_of(3), other.mark_of(3));
    }

    /// As in a child of the process that has opened the file.
    #[test]
    fn whoever_has_not_opened_the_file_judges_nothing() {
        let locks = Locks::new(Arc::new(tempfile::tempfile().expect("a file")));
        let forked = Locks {
            opened_by: locks.opened_by + 1,
            ..locks
        };
        assert_eq!((forked.try_lock(7), forked.is_free(7)), (Taken::Unsupported, None));
    }
}
