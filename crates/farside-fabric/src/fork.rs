//! Whether this process is a copy of the one that opened something: a fork takes the memory along, and none of the threads.
//!
//! On the path: whoever hands out handles that a thread stands behind asks it before each use, so the answer is one load.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counted in each child, by its first instructions.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// How often this process, and those that it descends from without a new program in between, were forked since the first call. A
/// handle that was made at another count is a copy of another process's.
#[must_use]
pub fn forks() -> u32 {
    static WATCHED: OnceLock<()> = OnceLock::new();
    WATCHED.get_or_init(watch);
    // The child has one thread, which has counted itself.
    FORKS.load(Ordering::Relaxed)
}

fn watch() {
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler stays as long as the program, and does nothing but add to an atomic, which is allowed between a fork and
    // whatever comes next.
    let status = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    assert_eq!(status, 0, "there is memory for one more handler");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_knows_that_it_is_one() {
        let before = forks();
        // SAFETY: the child only loads an atomic, and leaves without running anything of the program it was copied from.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = i32::from(FORKS.load(Ordering::Relaxed) != before + 1);
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(code) };
        }
        assert!(child > 0, "{}", std::io::Error::last_os_error());
        let mut status = -1;
        // SAFETY: `status` is a place for the one word that the call writes.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0));
        assert_eq!(forks(), before, "the parent is no child");
    }
}
