//! Why a segment cannot be made, opened or joined: one line each, with the path and what would be
//! right.

use std::io;
use std::path::PathBuf;

/// A segment cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// There is no such file.
    #[error("{path} does not exist; create the segment first", path = path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file may not be read and written.
    #[error("{path} must be readable and writable for this user", path = path.display())]
    PermissionDenied {
        /// The file.
        path: PathBuf,
    },
    /// A directory, pipe, socket or device.
    #[error("{path} is {kind}, but a segment is a regular file (device memory is used through a file on its file system)", path = path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The file to create holds data already. It was not changed.
    #[error("{path} already holds {bytes} bytes; choose another path or remove the file", path = path.display())]
    AlreadyExists {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// The file is empty.
    #[error("{path} is empty; create the segment first", path = path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file does not begin like a segment: another program's, or its creator died half-way.
    #[error("{path} is not a farside segment, or was never completed; choose another path or remove the file", path = path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The segment was made by a release with another layout.
    #[error("{path} has segment layout {found}, but this release reads layout {expected}; use the release that made it", path = path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The layout of the file.
        found: u64,
        /// The layout of this release.
        expected: u64,
    },
    /// The file's length is not what its header says.
    #[error("{path} has {found} bytes, but its header says {expected}; restore the whole file or remove it", path = path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// The file's length in bytes.
        found: u64,
        /// The length that the header records.
        expected: u64,
    },
    /// A field of the header holds what no segment has.
    #[error("{path} is damaged: its header says {field} is {value}; restore the file or remove it", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The field's name.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
    /// The options ask for a segment that cannot be.
    #[error("{field} must be between {min} and {max}, not {value}")]
    Options {
        /// The option's name.
        field: &'static str,
        /// What was asked for.
        value: u64,
        /// The least possible value.
        min: u64,
        /// The largest possible value.
        max: u64,
    },
    /// The file system has not enough room for the whole segment.
    #[error("{path} needs {needed} bytes, but its file system has {available}; make room or ask for less memory", path = path.display())]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// How many bytes the segment has.
        needed: u64,
        /// How many bytes are free.
        available: u64,
    },
    /// The machine has stopped while the segment was in use.
    #[error(
        "{path} was in use when the machine stopped: what is in it is of different times; restore a backup into a new segment \
         (farside import --from BACKUP --pool shm:NEW), or delete it", path = path.display()
    )]
    Crashed {
        /// The file.
        path: PathBuf,
    },
    /// Another process is the memory node that serves the segment.
    #[error("{path} is already served by process {pid}; stop it, or use another segment", path = path.display())]
    Held {
        /// The file.
        path: PathBuf,
        /// The process that serves it; 0 if it has not yet said so.
        pid: u32,
    },
    /// The node mirrors the memory, and nobody writes past it.
    #[error(
        "{} is mirrored by process {pid}: connect to that node instead, with --pool tcp:HOST:PORT",
        path.display()
    )]
    Mirrored {
        /// The segment.
        path: PathBuf,
        /// The node's process.
        pid: u32,
    },
    /// Network cards work on the memory, whose atomics are not atomic with the processor's.
    #[error("{path} is served over RDMA by process {pid}: name the node rdma:HOST:PORT, or stop it first", path = path.display())]
    UsedByNic {
        /// The file.
        path: PathBuf,
        /// The process that serves it; 0 if it has not said so.
        pid: u32,
    },
    /// The node was marked as gone.
    #[error("{path} is closed; a memory node that serves it opens it again", path = path.display())]
    Closed {
        /// The file.
        path: PathBuf,
    },
    /// Every entry of the endpoint table belongs to a process that is still running.
    #[error("{path} has {endpoints_max} endpoints, all in use; close some, or create the segment with more", path = path.display())]
    TableFull {
        /// The file.
        path: PathBuf,
        /// How many endpoints the segment has room for.
        endpoints_max: u64,
    },
    /// The endpoint was cut off before it had joined.
    #[error("{path} has cut endpoint {id} off; connect again as a new endpoint", path = path.display())]
    CutOff {
        /// The file.
        path: PathBuf,
        /// The endpoint.
        id: u64,
    },
    /// A fabric without a segment.
    #[error("a fabric needs at least one segment and at most 4096, not {count}")]
    NodeCount {
        /// How many segments were given.
        count: usize,
    },
    /// The operating system refused.
    #[error("{path}: failed to {action}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
}
