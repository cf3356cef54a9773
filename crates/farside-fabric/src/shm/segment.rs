//! A segment: a file that several processes map, one memory node's memory.
//!
//! On the path: opened when a fabric is made; afterwards only its [`Region`] and its state word are
//! touched.
//!
//! Creating takes the file's lock, writes everything but the magic, and the magic last. Opening
//! never changes a file: what is not a whole segment of this layout is refused with the reason.
//!
//! Room: a mapped file whose file system runs full kills the process that touches it (SIGBUS). So a
//! segment is made only where it fits. On a disk the blocks are reserved (`fallocate`). In memory
//! (tmpfs) that would populate every page, so there the free room is only compared: the file stays
//! sparse, and whoever fills the same tmpfs afterwards can still take the room away. Cutting a
//! mapped file short has the same effect and cannot be prevented.
//!
//! A file on a disk, or in persistent memory, outlives the machine, but no verb waits for it. So it says in which start of the
//! machine it is in use: the kernel draws a number at each start. Whoever leaves last writes everything back, and then that it
//! was left in order ([`Segment::shut_down`]). A file that was not, and is found after another start, is refused.

use core::sync::atomic::Ordering;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, FlockOperation, MemfdFlags};
use rustix::io::Errno;
use zerocopy::{FromZeros, IntoBytes};

use super::error::SegmentError;
use super::header::{BOOT_AT, Geometry, HEADER_BYTES, HOLDER_AT, Header, MAGIC, MAGIC_AT};
use super::header::{STATE_AT, STATE_CLOSED, STATE_MIRROR, STATE_NIC, STATE_OPEN};
use super::liveness::Locks;
use super::process::ProcessIdentity;
use super::table::Table;
use super::waiter::Waiter;
use crate::host::entropy;
use crate::region::{Region, advise_huge_pages};

/// How many endpoints a segment has room for unless told otherwise.
pub const ENDPOINTS_DEFAULT: u64 = 1024;

/// How often to ask for the role of the memory node while the lock's owner gives no number.
const HOLD_ATTEMPTS_MAX: u32 = 200;

/// What a new segment should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentOptions {
    /// Bytes of remote-addressable memory: 1 to 2^48.
    pub memory_bytes: u64,
    /// How many endpoints may be connected at once: 1 to 65536. Each costs 4.25 KiB of the file.
    pub endpoints_max: u64,
}

impl SegmentOptions {
    /// That much memory, and room for [`ENDPOINTS_DEFAULT`] endpoints.
    #[must_use]
    pub const fn with_memory(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            endpoints_max: ENDPOINTS_DEFAULT,
        }
    }
}

/// A mapped segment. Cheap to clone; clones are the same mapping, which ends with the last of them.
#[derive(Clone, Debug)]
pub struct Segment {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    path: PathBuf,
    file: Arc<File>,
    segment_id: u128,
    geometry: Geometry,
    control: Region,
    region: Region,
    pub(super) table: Table,
    waiter: OnceLock<Option<Waiter>>,
    is_held: AtomicBool,
    /// This start of the machine, if the file outlives it.
    boot: Option<u64>,
}

impl Shared {
    /// What wakes the tasks of this process that wait for a message; `None` if it cannot be had.
    pub(super) fn waiter(&self) -> Option<&Waiter> {
        self.waiter.get_or_init(|| Waiter::start(&self.table)).as_ref()
    }
}

impl Segment {
    /// Makes a new segment. The file must not exist, or be empty.
    ///
    /// # Errors
    /// [`SegmentError::AlreadyExists`] if the file has contents, [`SegmentError::NoRoom`] if the
    /// file system has not the room, and what the options or the operating system forbid.
    pub fn create(path: impl AsRef<Path>, options: SegmentOptions) -> Result<Self, SegmentError> {
        let path = path.as_ref();
        let geometry = Geometry::new(options.memory_bytes, options.endpoints_max)?;
        require_room(path, geometry.total_bytes)?;
        let file = open_file(
            path,
            OpenOptions::new().read(true).write(true).create(true).truncate(false),
        )?;
        let source = Source { path, file };
        source.require_empty()?;
        // Several creators may have found it empty; one gets the lock, the others then find a segment.
        while !source.try_lock(FlockOperation::NonBlockingLockExclusive)? {
            source.require_empty()?;
            pause();
        }
        source.require_empty()?;
        let made = source.reserve(geometry).and_then(|()| source.fill(geometry));
        if made.is_err() {
            // Empty again, as it was; the error says why.
            let _ = source.file.set_len(0);
        }
        source.unlock()?;
        made?;
        source.map()
    }

    /// Maps an existing segment. The file is never changed.
    ///
    /// # Errors
    /// Says what the file is instead of a segment of this layout.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SegmentError> {
        let path = path.as_ref();
        let file = open_file(path, OpenOptions::new().read(true).write(true))?;
        let source = Source { path, file };
        source.await_creator()?;
        source.map()
    }

    /// Opens the segment, or makes it if the file is absent or empty. Of several processes that do
    /// so at once, one makes it and all open it; the options of an existing segment stay.
    ///
    /// # Errors
    /// See [`Segment::open`] and [`Segment::create`].
    pub fn open_or_create(path: impl AsRef<Path>, options: SegmentOptions) -> Result<Self, SegmentError> {
        let path = path.as_ref();
        let is_filled = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0);
        if is_filled {
            return Self::open(path);
        }
        match Self::create(path, options) {
            // Lost to a concurrent creator.
            Err(SegmentError::AlreadyExists { .. }) => Self::open(path),
            other => other,
        }
    }

    /// A segment without a file, which ends with this process. Its memory is private to the process,
    /// since only such memory gets huge pages without a word from the administrator; a file on tmpfs
    /// gets them where it is mounted with `huge=advise` or more.
    ///
    /// # Errors
    /// If the system has not that much memory to give.
    pub fn anonymous(memory_bytes: u64) -> Result<Self, SegmentError> {
        let path = Path::new("(anonymous memory)");
        let geometry = Geometry::new(memory_bytes, ENDPOINTS_DEFAULT)?;
        let io = |source: Errno| SegmentError::Io {
            path: path.to_path_buf(),
            action: "make anonymous memory",
            source: source.into(),
        };
        let file = rustix::fs::memfd_create("farside", MemfdFlags::CLOEXEC).map_err(io)?;
        let source = Source {
            path,
            file: File::from(file),
        };
        source
            .file
            .set_len(geometry.total_bytes)
            .map_err(|error| source.io("extend", error))?;
        source.fill(geometry)?;
        let mut segment = source.map()?;
        let memory = Region::anonymous(memory_bytes).map_err(|source| SegmentError::Io {
            path: path.to_path_buf(),
            action: "map",
            source,
        })?;
        let shared = Arc::get_mut(&mut segment.shared).expect("nobody else has seen the segment yet");
        shared.region = memory;
        Ok(segment)
    }

    /// The remote-addressable memory: offset 0 of the node is its first byte.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.shared.region
    }

    /// The file; "(anonymous memory)" if there is none.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Bytes of remote-addressable memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.shared.geometry.memory_bytes
    }

    /// How many endpoints may be connected at once.
    #[must_use]
    pub fn endpoints_max(&self) -> u64 {
        self.shared.geometry.endpoints_max
    }

    /// A random number that this segment was given when it was made.
    #[must_use]
    pub fn segment_id(&self) -> u128 {
        self.shared.segment_id
    }

    /// Marks the node as gone, for every process: its verbs fail with
    /// [`FabricError::NodeGone`](crate::FabricError::NodeGone) until somebody [`Segment::hold`]s the
    /// segment again. The data stays.
    pub fn close(&self) {
        self.control().word(STATE_AT).store(STATE_CLOSED, Ordering::SeqCst);
    }

    /// Whether the node was marked as gone.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        is_closed(self.control())
    }

    /// Leaves the memory to network cards, whose atomics are not atomic with the processor's: until the guard is
    /// dropped, nobody joins the segment as a client that maps it, and verbs of those who have joined before fail
    /// with [`FabricError::NodeGone`](crate::FabricError::NodeGone).
    ///
    /// # Errors
    /// [`SegmentError::UsedByNic`] if that is so already; [`SegmentError::Closed`] if the node was marked as gone.
    pub fn use_by_nic(&self) -> Result<NicUse, SegmentError> {
        let state = self.control().word(STATE_AT);
        match state.compare_exchange(STATE_OPEN, STATE_NIC, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Ok(NicUse { segment: self.clone() }),
            Err(STATE_NIC) => Err(self.used_by_nic()),
            Err(_) => Err(SegmentError::Closed {
                path: self.path().to_path_buf(),
            }),
        }
    }

    /// Leaves the memory to the node that mirrors it, past which nobody may write: until the guard is dropped, nobody
    /// joins the segment as a client that maps it, and verbs of those who have joined before fail with
    /// [`FabricError::NodeGone`](crate::FabricError::NodeGone).
    ///
    /// # Errors
    /// [`SegmentError::Mirrored`] if that is so already; [`SegmentError::Closed`] if the node was marked as gone or has left its memory to
    /// network cards.
    pub fn use_by_mirror(&self) -> Result<MirrorUse, SegmentError> {
        let state = self.control().word(STATE_AT);
        match state.compare_exchange(STATE_OPEN, STATE_MIRROR, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Ok(MirrorUse { segment: self.clone() }),
            Err(STATE_MIRROR) => Err(self.left_to(STATE_MIRROR)),
            Err(_) => Err(SegmentError::Closed {
                path: self.path().to_path_buf(),
            }),
        }
    }

    /// What it means for whoever would map the segment that its state is this.
    fn left_to(&self, state: u64) -> SegmentError {
        if state == STATE_NIC {
            return self.used_by_nic();
        }
        SegmentError::Mirrored {
            path: self.path().to_path_buf(),
            pid: self.control().word(HOLDER_AT).load(Ordering::SeqCst) as u32,
        }
    }

    fn used_by_nic(&self) -> SegmentError {
        SegmentError::UsedByNic {
            path: self.path().to_path_buf(),
            pid: self.control().word(HOLDER_AT).load(Ordering::SeqCst) as u32,
        }
    }

    /// Refuses a segment whose memory network cards work on, or that a node mirrors. A node that was killed has left it to nobody: if the role of
    /// serving it is free, the segment is open again.
    ///
    /// # Errors
    /// [`SegmentError::UsedByNic`], [`SegmentError::Mirrored`].
    pub(crate) fn require_mappable(&self) -> Result<(), SegmentError> {
        self.mark_in_use()?;
        let state = self.control().word(STATE_AT);
        let left = state.load(Ordering::SeqCst);
        if left != STATE_NIC && left != STATE_MIRROR {
            return Ok(());
        }
        // Not by a second lock of the descriptor that may have the first.
        let is_own = self.shared.is_held.load(Ordering::SeqCst);
        let is_free = !is_own
            && rustix::fs::flock(&self.shared.file, FlockOperation::NonBlockingLockShared).is_ok()
            && self.control().word(HOLDER_AT).load(Ordering::SeqCst) != 0;
        if !is_own {
            // Fails if there was no lock.
            let _ = rustix::fs::flock(&self.shared.file, FlockOperation::Unlock);
        }
        if !is_free {
            return Err(self.left_to(left));
        }
        // Lost to another client that has found the same, or to a new node: either way it says what is so.
        let _ = state.compare_exchange(left, STATE_OPEN, Ordering::SeqCst, Ordering::SeqCst);
        Ok(())
    }

    /// Takes the role of the memory node that serves this segment, and marks it as open. The role
    /// ends with the guard or with the process.
    ///
    /// # Errors
    /// [`SegmentError::Held`] if somebody has the role.
    pub fn hold(&self) -> Result<Hold, SegmentError> {
        self.mark_in_use()?;
        let held = || SegmentError::Held {
            path: self.path().to_path_buf(),
            pid: self.control().word(HOLDER_AT).load(Ordering::SeqCst) as u32,
        };
        if self.shared.is_held.swap(true, Ordering::SeqCst) {
            return Err(held());
        }
        for attempt in 1.. {
            let error = match rustix::fs::flock(&self.shared.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) => held(),
                Err(error) => SegmentError::Io {
                    path: self.path().to_path_buf(),
                    action: "lock",
                    source: error.into(),
                },
            };
            // Who creates or opens a segment may have the lock for a moment, and says no number.
            let is_passing = matches!(error, SegmentError::Held { pid: 0, .. });
            if !is_passing || attempt == HOLD_ATTEMPTS_MAX {
                self.shared.is_held.store(false, Ordering::SeqCst);
                return Err(error);
            }
            pause();
        }
        self.control()
            .word(HOLDER_AT)
            .store(std::process::id().into(), Ordering::SeqCst);
        self.control().word(STATE_AT).store(STATE_OPEN, Ordering::SeqCst);
        Ok(Hold { segment: self.clone() })
    }

    /// Says that the file is in use, before anything in it is changed.
    pub(super) fn mark_in_use(&self) -> Result<(), SegmentError> {
        let Some(boot) = self.shared.boot else { return Ok(()) };
        if self.control().word(BOOT_AT).swap(boot, Ordering::SeqCst) != boot {
            // On the disk, so that it is found there after a loss of power.
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), SegmentError> {
        self.shared.file.sync_all().map_err(|source| SegmentError::Io {
            path: self.path().to_path_buf(),
            action: "write back",
            source,
        })
    }

    /// Writes everything back to a file that outlives the machine, and says that it was left in order, unless somebody else is
    /// connected: whoever leaves last does so. Returns whether it was left in order. To be called when this process has no
    /// endpoint any more.
    ///
    /// # Errors
    /// [`SegmentError::Io`] if the file could not be written: then it counts as in use.
    pub fn shut_down(&self) -> Result<bool, SegmentError> {
        if self.shared.boot.is_none() {
            return Ok(true);
        }
        if self.shared.table.is_in_use() {
            return Ok(false);
        }
        self.sync()?;
        self.control().word(BOOT_AT).store(0, Ordering::SeqCst);
        // Whoever connects says so in the table first, and then marks the file: either is seen here.
        if self.shared.table.is_in_use() {
            self.mark_in_use()?;
            return Ok(false);
        }
        self.sync()?;
        Ok(true)
    }

    /// Header and endpoint table.
    #[inline]
    pub(super) fn control(&self) -> &Region {
        &self.shared.control
    }
}

/// Whether the segment with this header was marked as gone.
#[inline]
pub(super) fn is_closed(control: &Region) -> bool {
    // Relaxed: who closes the segment makes no promise about verbs already under way.
    control.word(STATE_AT).load(Ordering::Relaxed) != STATE_OPEN
}

/// The time during which network cards work on a segment's memory.
#[derive(Debug)]
pub struct NicUse {
    segment: Segment,
}

impl Drop for NicUse {
    fn drop(&mut self) {
        let state = self.segment.control().word(STATE_AT);
        // Whoever has closed it meanwhile means it.
        let _ = state.compare_exchange(STATE_NIC, STATE_OPEN, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// The time during which a segment's memory is mirrored.
#[derive(Debug)]
pub struct MirrorUse {
    segment: Segment,
}

impl Drop for MirrorUse {
    fn drop(&mut self) {
        let state = self.segment.control().word(STATE_AT);
        // Whoever has closed it meanwhile means it.
        let _ = state.compare_exchange(STATE_MIRROR, STATE_OPEN, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// The role of the memory node that serves a segment; given up when dropped.
#[derive(Debug)]
pub struct Hold {
    segment: Segment,
}

impl Hold {
    /// The segment.
    #[must_use]
    pub fn segment(&self) -> &Segment {
        &self.segment
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.segment.control().word(HOLDER_AT).store(0, Ordering::SeqCst);
        // Unlocking what we locked cannot fail; and if, then closing the file does it.
        let _ = rustix::fs::flock(&self.segment.shared.file, FlockOperation::Unlock);
        self.segment.shared.is_held.store(false, Ordering::SeqCst);
    }
}

/// A file on its way to be mapped.
struct Source<'a> {
    path: &'a Path,
    file: File,
}

fn open_file(path: &Path, options: &OpenOptions) -> Result<File, SegmentError> {
    // Opening a pipe would wait for its other end.
    if let Ok(metadata) = std::fs::metadata(path) {
        require_regular(path, &metadata)?;
    }
    let path_buf = || path.to_path_buf();
    let file = options.open(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => SegmentError::Missing { path: path_buf() },
        io::ErrorKind::PermissionDenied => SegmentError::PermissionDenied { path: path_buf() },
        _ => SegmentError::Io {
            path: path_buf(),
            action: "open",
            source,
        },
    })?;
    let metadata = file.metadata().map_err(|source| SegmentError::Io {
        path: path_buf(),
        action: "examine",
        source,
    })?;
    require_regular(path, &metadata)?;
    Ok(file)
}

fn require_regular(path: &Path, metadata: &std::fs::Metadata) -> Result<(), SegmentError> {
    let kind = metadata.file_type();
    let kind = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(SegmentError::NotAFile {
        path: path.to_path_buf(),
        kind,
    })
}

fn no_room(path: &Path, needed: u64, available: u64) -> SegmentError {
    SegmentError::NoRoom {
        path: path.to_path_buf(),
        needed,
        available,
    }
}

/// Compares the segment with the free room of the file system it will be in.
fn require_room(path: &Path, needed: u64) -> Result<(), SegmentError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let Ok(stat) = rustix::fs::statvfs(folder.unwrap_or(Path::new("."))) else {
        // Opening the file will say what is wrong with the path.
        return Ok(());
    };
    let available = stat.f_bavail.saturating_mul(stat.f_frsize);
    // A file system that keeps no count of its blocks (hugetlbfs without a limit) says 0 of 0.
    if stat.f_blocks > 0 && needed > available {
        return Err(no_room(path, needed, available));
    }
    Ok(())
}

/// While another process has a lock that it keeps for milliseconds.
#[expect(
    clippy::disallowed_methods,
    reason = "opening a file is not part of any simulated run"
)]
pub(super) fn pause() {
    std::thread::sleep(core::time::Duration::from_millis(1));
}

impl Source<'_> {
    fn io(&self, action: &'static str, source: impl Into<io::Error>) -> SegmentError {
        SegmentError::Io {
            path: self.path.to_path_buf(),
            action,
            source: source.into(),
        }
    }

    fn bytes(&self) -> Result<u64, SegmentError> {
        let metadata = self.file.metadata().map_err(|error| self.io("examine", error))?;
        Ok(metadata.size())
    }

    fn require_empty(&self) -> Result<(), SegmentError> {
        match self.bytes()? {
            0 => Ok(()),
            bytes => Err(SegmentError::AlreadyExists {
                path: self.path.to_path_buf(),
                bytes,
            }),
        }
    }

    /// Whether the lock was to be had.
    fn try_lock(&self, operation: FlockOperation) -> Result<bool, SegmentError> {
        match rustix::fs::flock(self.file.as_fd(), operation) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(self.io("lock", error)),
        }
    }

    fn unlock(&self) -> Result<(), SegmentError> {
        rustix::fs::flock(self.file.as_fd(), FlockOperation::Unlock).map_err(|error| self.io("unlock", error))
    }

    /// Makes the file as long as the segment; on a disk, with all its blocks.
    fn reserve(&self, geometry: Geometry) -> Result<(), SegmentError> {
        let needed = geometry.total_bytes;
        self.file.set_len(needed).map_err(|error| self.io("extend", error))?;
        if self.is_in_memory()? {
            return Ok(());
        }
        let reserve = || rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, needed);
        match rustix::io::retry_on_intr(reserve) {
            // A file system that cannot reserve: the comparison before has to do.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(Errno::NOSPC) => Err(no_room(self.path, needed, 0)),
            Err(error) => Err(self.io("reserve", error)),
        }
    }

    fn is_in_memory(&self) -> Result<bool, SegmentError> {
        const TMPFS_MAGIC: u64 = 0x0102_1994;
        const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
        let stat = rustix::fs::fstatfs(&self.file).map_err(|error| self.io("examine", error))?;
        Ok([TMPFS_MAGIC, HUGETLBFS_MAGIC].contains(&(stat.f_type as u64)))
    }

    /// Writes the header, the magic last. The endpoint table is right as it is: all zero.
    fn fill(&self, geometry: Geometry) -> Result<(), SegmentError> {
        let header = Header::new(geometry, u128::from_le_bytes(entropy()));
        let control = Region::new(self.map_bytes(HEADER_BYTES)?, 0, HEADER_BYTES);
        let skip = size_of_val(&header.magic);
        control.write(MAGIC_AT + skip as u64, &header.as_bytes()[skip..]);
        control.word(STATE_AT).store(STATE_OPEN, Ordering::SeqCst);
        control.word(MAGIC_AT).store(MAGIC, Ordering::SeqCst);
        Ok(())
    }

    /// A file that is not empty and has no magic is foreign, unless its creator is still at work,
    /// which then has the lock.
    fn await_creator(&self) -> Result<(), SegmentError> {
        while self.header()?.magic != MAGIC {
            if self.try_lock(FlockOperation::NonBlockingLockShared)? {
                return self.unlock();
            }
            pause();
        }
        Ok(())
    }

    fn header(&self) -> Result<Header, SegmentError> {
        let mut header = Header::new_zeroed();
        match self.file.read_exact_at(header.as_mut_bytes(), 0) {
            Ok(()) => Ok(header),
            // Too short to tell: it has no magic if it has none in the bytes that are there.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Header::new_zeroed()),
            Err(error) => Err(self.io("read", error)),
        }
    }

    /// Checks the file and maps it.
    fn map(self) -> Result<Segment, SegmentError> {
        let bytes = self.bytes()?;
        if bytes == 0 {
            return Err(SegmentError::Empty {
                path: self.path.to_path_buf(),
            });
        }
        let header = self.header()?;
        let geometry = header.check(self.path, bytes)?;
        let mapping = self.map_bytes(geometry.total_bytes)?;
        advise_huge_pages(&mapping);
        let control = Region::new(mapping.clone(), 0, geometry.memory_offset);
        let state = control.word(STATE_AT).load(Ordering::SeqCst);
        if ![STATE_OPEN, STATE_CLOSED, STATE_NIC, STATE_MIRROR].contains(&state) {
            return Err(SegmentError::Damaged {
                path: self.path.to_path_buf(),
                field: "state",
                value: state,
            });
        }
        let boot = match self.is_in_memory()? {
            true => None,
            // Where the kernel tells none, nobody knows.
            false => ProcessIdentity::own().ok().map(|own| own.boot | 1),
        };
        let used_since = control.word(BOOT_AT).load(Ordering::SeqCst);
        let file = Arc::new(self.file);
        let table = Table::new(control.clone(), geometry.endpoints_max).with_locks(Locks::new(Arc::clone(&file)));
        // Some containers are shown a start of their own: what somebody uses has not crashed.
        if boot.is_some_and(|boot| used_since != 0 && used_since != boot) && !table.is_in_use() {
            return Err(SegmentError::Crashed {
                path: self.path.to_path_buf(),
            });
        }
        let shared = Shared {
            path: self.path.to_path_buf(),
            file,
            segment_id: header.segment_id.get(),
            geometry,
            region: Region::new(mapping, geometry.memory_offset, geometry.memory_bytes),
            table,
            control,
            waiter: OnceLock::new(),
            is_held: AtomicBool::new(false),
            boot,
        };
        Ok(Segment {
            shared: Arc::new(shared),
        })
    }

    fn map_bytes(&self, bytes: u64) -> Result<Arc<MmapRaw>, SegmentError> {
        let mapping = MmapOptions::new().len(bytes as usize).map_raw(&self.file);
        mapping.map(Arc::new).map_err(|error| self.io("map", error))
    }
}

#[cfg(test)]
mod tests;
