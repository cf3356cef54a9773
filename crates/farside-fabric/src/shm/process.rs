//! Which process an endpoint belongs to, so that another one can tell whether it is gone.
//!
//! On the path: written when an endpoint joins; read when it is fenced, when a table entry is
//! wanted, and when a mailbox slot stays half-written.
//!
//! A process number is used again after a while, and a file outlives a restart of the machine.
//! Three more facts decide whether the process is the one that was meant: the tick at which it
//! started, the boot of the machine, and the namespace its number counts in. "Gone" is said only
//! when it is certain: about a process of another namespace its number says nothing ([`liveness`](super::liveness) does).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use procfs::process::Process;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// How many bits a process number has (the kernel's `PID_MAX_LIMIT` is 2^22).
pub(super) const PID_BITS: u32 = 22;
/// How many bits of the start tick are kept: 348 years of uptime.
pub(super) const START_BITS: u32 = 40;

/// One run of one program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProcessIdentity {
    pub(super) pid: u32,
    /// Clock ticks from boot to the start of the process.
    pub(super) start: u64,
    /// Which boot of the machine.
    pub(super) boot: u64,
    /// The process number namespace.
    pub(super) namespace: u64,
}

static OWN: OnceLock<ProcessIdentity> = OnceLock::new();

impl ProcessIdentity {
    /// This process. Looked up once, and each time in a process that was forked off afterwards.
    pub(super) fn own() -> io::Result<Self> {
        if let Some(own) = OWN.get()
            && own.pid == std::process::id()
        {
            return Ok(*own);
        }
        let own = Self {
            pid: std::process::id(),
            start: stat(std::process::id()).map_err(io::Error::other)?.starttime & ((1 << START_BITS) - 1),
            boot: boot()?,
            namespace: fs::metadata("/proc/self/ns/pid")?.ino(),
        };
        // In the copy of another process it stays that one's.
        let _ = OWN.set(own);
        Ok(own)
    }

    /// Another process of this machine that is there now; for tests.
    #[cfg(test)]
    pub(super) fn of_child(child: &std::process::Child) -> Self {
        let own = Self::own().expect("/proc is mounted");
        let start = stat(child.id()).expect("the child is there").starttime;
        Self {
            pid: child.id(),
            start,
            ..own
        }
    }

    /// Whether the number of the process is one of this process's namespace. Some containers are shown a boot of their own.
    pub(super) fn has_number_of_namespace(&self, own: &Self) -> bool {
        self.boot == own.boot && self.namespace == own.namespace
    }

    /// Whether the process is certain never to touch memory again.
    pub(super) fn is_gone(&self) -> bool {
        let Ok(own) = Self::own() else {
            return false;
        };
        if self.boot != own.boot {
            return true;
        }
        if self.namespace != own.namespace || *self == own {
            return false;
        }
        if !exists(self.pid) {
            return true;
        }
        match stat(self.pid) {
            // All threads of a zombie have left their memory; a dead first thread alone says nothing.
            Ok(stat) => {
                let start = stat.starttime & ((1 << START_BITS) - 1);
                start != self.start || (matches!(stat.state, 'Z' | 'X') && stat.num_threads <= 1)
            }
            // It ended between the two questions, or /proc hides it from us.
            Err(_) => !exists(self.pid),
        }
    }

    /// A cheaper question: whether the number is in use at all. Also true of a process that was
    /// given the number of one that ended.
    pub(super) fn number_is_free(&self) -> bool {
        match Self::own() {
            Ok(own) if self.boot != own.boot => true,
            Ok(own) if self.namespace == own.namespace && self.pid != own.pid => !exists(self.pid),
            _ => false,
        }
    }
}

fn stat(pid: u32) -> procfs::ProcResult<procfs::process::Stat> {
    Process::new(pid as i32)?.stat()
}

fn exists(pid: u32) -> bool {
    Pid::from_raw(pid as i32).is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// The kernel's random identity of this boot, folded to a word.
fn boot() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let id = u128::from_str_radix(&digits, 16).map_err(io::Error::other)?;
    Ok((id >> 64) as u64 ^ id as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_there_until_it_ends() {
        let own = ProcessIdentity::own().expect("/proc is mounted");
        assert!(!own.is_gone());
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("cat is installed");
        let identity = ProcessIdentity::of_child(&child);
        let start = identity.start;
        assert!(!identity.is_gone());
        // A recycled number is another process; one of another boot is gone; of another namespace, unknown.
        assert!(
            ProcessIdentity {
                start: start + 1,
                ..identity
            }
            .is_gone()
        );
        assert!(
            ProcessIdentity {
                boot: !own.boot,
                ..identity
            }
            .is_gone()
        );
        assert!(
            !ProcessIdentity {
                namespace: !own.namespace,
                start: 0,
                ..identity
            }
            .is_gone()
        );
        child.kill().expect("the child is ours");
        // Not yet waited for: the number is still taken, by a zombie.
        while !identity.is_gone() {
            std::thread::yield_now();
        }
        assert!(!identity.number_is_free());
        child.wait().expect("the child is ours");
        assert!(identity.is_gone());
        assert!(identity.number_is_free());
    }
}
