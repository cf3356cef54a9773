//! The file of a Unix socket: made for one user, taken over from the dead, removed at the end.
//!
//! That nobody listens there and that the file is removed are two steps. Between them a server that starts at the same
//! moment could take the path, and its file would be removed. So both are done under a [`Turn`], which is a lock on a file
//! beside the socket.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, flock};
use rustix::process::umask;

use farside_cli::Failure;

/// A socket file that is ours. Dropping it after the listener removes the file, unless a successor listens there.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl SocketFile {
    /// Listens there. Only the same user (and the administrator) can connect.
    pub(crate) fn bind(path: &Path) -> Result<(UnixListener, Self), Failure> {
        let _turn = Turn::take(path).map_err(|error| wrong(path, &error))?;
        let bound = match bind_private(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                require_stale(path)?;
                // If it cannot be removed, the next line says so.
                let _ = fs::remove_file(path);
                bind_private(path)
            }
            bound => bound,
        };
        let listener = bound.map_err(|error| wrong(path, &error))?;
        Ok((listener, Self(path.to_owned())))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let Ok(_turn) = Turn::take(&self.0) else { return };
        // Not by its inode number, which a successor's file may have got.
        if require_stale(&self.0).is_ok() {
            // If it cannot be removed, the next server takes it over.
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// The right to replace or remove the file of a socket, for a moment: a locked file named like it, with `.lock` behind. It
/// goes with the turn; whoever dies leaves it unlocked.
struct Turn {
    lock: PathBuf,
    _file: File,
}

impl Turn {
    /// Waits for the turns of others, which are short.
    fn take(path: &Path) -> io::Result<Self> {
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        // Ends: it goes on only after another one has had its turn.
        loop {
            // Nobody else can open it, and keep us waiting.
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&lock)?;
            flock(&file, FlockOperation::LockExclusive)?;
            let ours = file.metadata()?;
            // Whoever had it before has removed it; then a third one may have made another.
            let there = fs::symlink_metadata(&lock);
            if there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
                return Ok(Self { lock, _file: file });
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // While it is locked. A file that cannot be removed is no harm.
        let _ = fs::remove_file(&self.lock);
    }
}

/// The mode is there from the first instant: with a change afterwards, somebody could slip in before.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let before = umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let bound = UnixListener::bind(path);
    umask(before);
    bound
}

/// Refuses to replace anything but a socket that nobody listens to.
fn require_stale(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    if !fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket()) {
        return Err(Failure::usage(format!(
            "{shown} exists and is no socket: choose another path with --unix"
        )));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(Failure::usage(format!(
            "{shown} is in use by another process: stop it, or choose another path with --unix"
        ))),
        Err(error) => Err(Failure::usage(format!(
            "{shown} belongs to somebody else ({error}): choose another path with --unix"
        ))),
    }
}

fn wrong(path: &Path, error: &io::Error) -> Failure {
    let shown = path.display();
    Failure::usage(match error.kind() {
        ErrorKind::NotFound => format!("{shown}: there is no such folder: make it, or choose another path with --unix"),
        ErrorKind::PermissionDenied => {
            format!("{shown}: this folder belongs to somebody else: choose another with --unix")
        }
        ErrorKind::InvalidInput => {
            format!("{shown} is too long for a socket, 107 bytes at most: choose another path with --unix")
        }
        ErrorKind::AddrInUse => {
            format!("{shown} is in use by another process: stop it, or choose another path with --unix")
        }
        _ => format!("cannot listen on {shown}: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn a_socket_is_private_and_vanishes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let (listener, file) = SocketFile::bind(&path).expect("a new path");
        let mode = fs::metadata(&path).expect("it is there").mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o}");
        UnixStream::connect(&path).expect("somebody listens");
        drop((listener, file));
        assert!(!path.exists());
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0);
    }

    /// Two servers that found the same dead socket both took its path: the second one removed the file of the first, which
    /// listened on where nobody could connect.
    #[test]
    fn of_those_who_start_together_one_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        for _ in 0..3000 {
            drop(UnixListener::bind(&path).expect("a new path"));
            let start = Barrier::new(3);
            let bound: Vec<_> = std::thread::scope(|scope| {
                let bind = || {
                    start.wait();
                    SocketFile::bind(&path).ok()
                };
                let servers: Vec<_> = (0..3).map(|_| scope.spawn(bind)).collect();
                let bound = servers.into_iter().map(|server| server.join().expect("no panic"));
                bound.flatten().collect()
            });
            assert_eq!(bound.len(), 1, "so many believe that they listen");
            UnixStream::connect(&path).expect("the one who listens is there");
        }
    }

    #[test]
    fn the_dead_are_replaced_and_the_living_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        drop(UnixListener::bind(&path).expect("a new path"));
        assert!(path.exists(), "it died without removing it");
        let (listener, file) = SocketFile::bind(&path).expect("nobody listens");
        SocketFile::bind(&path).expect_err("somebody listens");
        UnixStream::connect(&path).expect("the first still listens");
        drop(listener);
        let (_successor, _successor_file) = SocketFile::bind(&path).expect("nobody listens");
        drop(file);
        UnixStream::connect(&path).expect("it was not the first one's to remove");
    }

    #[test]
    fn other_files_are_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "precious").expect("a folder of ours");
        SocketFile::bind(&path).expect_err("it is no socket");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "precious");
        SocketFile::bind(&folder.path().join("no/socket")).expect_err("no folder");
        SocketFile::bind(&folder.path().join("x".repeat(200))).expect_err("too long");
    }
}
