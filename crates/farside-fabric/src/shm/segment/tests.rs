//! Which files become segments, which are refused and with which words, and who may hold one.

use super::*;
use crate::shm::header::{BOOT_AT, HEADER_BYTES, LAYOUT_VERSION};
use tempfile::TempDir;

const OPTIONS: SegmentOptions = SegmentOptions {
    memory_bytes: 100_000,
    endpoints_max: 8,
};

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Changes eight bytes of a file.
fn patch(path: &Path, offset: u64, value: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("the file is ours");
    file.write_all_at(&value.to_le_bytes(), offset)
        .expect("the file is ours");
}

/// The error's text, which must be one line that names the file.
fn line(path: &Path, error: &SegmentError) -> String {
    let text = error.to_string();
    assert!(text.contains(path.to_str().expect("a plain path")), "{text}");
    assert!(!text.contains('\n'), "{text}");
    text
}

#[test]
fn what_was_written_is_there_when_opened_again() {
    let folder = folder();
    let path = folder.path().join("a.segment");
    let segment = Segment::create(&path, OPTIONS).expect("a new file");
    segment.region().write(99_990, b"last bytes");
    let id = segment.segment_id();
    drop(segment);
    let segment = Segment::open(&path).expect("made before");
    assert_eq!((segment.memory_bytes(), segment.endpoints_max()), (100_000, 8));
    assert_eq!((segment.segment_id(), segment.path()), (id, path.as_path()));
    assert_eq!(segment.region().bytes(), 100_000);
    let mut bytes = [0; 10];
    segment.region().read(99_990, &mut bytes);
    assert_eq!(&bytes, b"last bytes");
    // Two mappings of one file are the same memory.
    let other = Segment::open_or_create(&path, SegmentOptions::with_memory(5)).expect("made before");
    assert_eq!(other.memory_bytes(), 100_000, "the options of an existing segment stay");
    other.region().word(0).store(7, Ordering::SeqCst);
    assert_eq!(segment.region().word(0).load(Ordering::SeqCst), 7);
}

#[test]
fn the_memory_begins_where_huge_pages_do() {
    let folder = folder();
    for endpoints_max in [1, 8, 1024, 65536] {
        let path = folder.path().join(endpoints_max.to_string());
        let options = SegmentOptions {
            memory_bytes: 1,
            endpoints_max,
        };
        let segment = Segment::create(&path, options).expect("a new file");
        assert!(segment.shared.geometry.memory_offset.is_multiple_of(2 << 20));
        let last = segment.shared.table.entry(endpoints_max - 1);
        assert_eq!(last.id(), None);
    }
}

#[test]
fn existing_data_is_never_overwritten() {
    let folder = folder();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, b"shopping list").expect("the folder is ours");
    let error = Segment::create(&path, OPTIONS).expect_err("it holds data");
    assert!(
        matches!(error, SegmentError::AlreadyExists { bytes: 13, .. }),
        "{error}"
    );
    line(&path, &error);
    let error = Segment::open_or_create(&path, OPTIONS).expect_err("it holds data");
    assert!(matches!(error, SegmentError::Foreign { .. }), "{error}");
    line(&path, &error);
    assert_eq!(std::fs::read(&path).expect("still there"), b"shopping list");
    // An empty file is as good as none.
    let empty = folder.path().join("empty");
    std::fs::write(&empty, b"").expect("the folder is ours");
    let error = Segment::open(&empty).expect_err("nothing in it");
    assert!(matches!(error, SegmentError::Empty { .. }), "{error}");
    line(&empty, &error);
    Segment::create(&empty, OPTIONS).expect("an empty file");
    let error = Segment::create(&empty, OPTIONS).expect_err("a segment now");
    assert!(matches!(error, SegmentError::AlreadyExists { .. }), "{error}");
}

/// A folder whose files outlive the machine; `None` where there is none.
fn lasting() -> Option<TempDir> {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
    let stat = rustix::fs::statfs(folder.path()).expect("a file system");
    (stat.f_type as u64 != 0x0102_1994).then_some(folder)
}

#[test]
fn a_machine_that_stopped_while_a_file_was_in_use_is_named() {
    let Some(folder) = lasting() else { return };
    let path = folder.path().join("segment");
    let other_start = |path: &Path| patch(path, BOOT_AT, 4711);
    let segment = Segment::create(&path, OPTIONS).expect("a new file");
    let fabric = crate::shm::Fabric::new(vec![segment.clone()]);
    let endpoint = fabric.endpoint().expect("room");
    assert!(!segment.shut_down().expect("it is in use"));
    drop(endpoint);
    // All processes end, the machine does not: nothing is lost.
    drop((fabric, segment));
    Segment::open(&path).expect("the same start of the machine");
    other_start(&path);
    let error = Segment::open(&path).expect_err("the machine has stopped");
    assert!(matches!(error, SegmentError::Crashed { .. }), "{error}");
    assert!(error.to_string().contains("farside import"), "{error}");
}

#[test]
fn a_file_that_was_left_in_order_outlives_the_machine() {
    let Some(folder) = lasting() else { return };
    let path = folder.path().join("segment");
    let segment = Segment::create(&path, OPTIONS).expect("a new file");
    drop(segment.hold().expect("nobody else has it"));
    assert!(segment.shut_down().expect("written back"));
    let mut word = [0; 8];
    let file = File::open(&path).expect("a file");
    FileExt::read_exact_at(&file, &mut word, BOOT_AT).expect("a header");
    assert_eq!(word, [0; 8]);
    // In use again: that is on the disk before anything else.
    drop(segment.hold().expect("nobody else has it"));
    FileExt::read_exact_at(&file, &mut word, BOOT_AT).expect("a header");
    assert_ne!(word, [0; 8]);
}

#[test]
fn each_wrong_header_field_is_named() {
    let folder = folder();
    let cases = [
        (0, 1, "not a farside segment"),
        (8, LAYOUT_VERSION + 1, "has segment layout 2"),
        (16, 1, "total_bytes is 1"),
        (24, 4096, "memory_offset is 4096"),
        (32, 0, "memory_bytes is 0"),
        (32, u64::MAX, "memory_bytes is 18446744073709551615"),
        (40, 0, "endpoints_max is 0"),
        (40, 1 << 40, "endpoints_max is 1099511627776"),
        (STATE_AT, 9, "state is 9"),
    ];
    for (index, (offset, value, expected)) in cases.into_iter().enumerate() {
        let path = folder.path().join(index.to_string());
        drop(Segment::create(&path, OPTIONS).expect("a new file"));
        patch(&path, offset, value);
        let before = std::fs::read(&path).expect("still there");
        let error = Segment::open(&path).expect_err("one field is wrong");
        let text = line(&path, &error);
        assert!(text.contains(expected), "{text}");
        Segment::open_or_create(&path, OPTIONS).expect_err("one field is wrong");
        assert!(
            std::fs::read(&path).expect("still there") == before,
            "a refused file is not changed"
        );
    }
}

#[test]
fn a_file_of_another_length_is_refused() {
    let folder = folder();
    let path = folder.path().join("a.segment");
    let segment = Segment::create(&path, OPTIONS).expect("a new file");
    let whole = segment.shared.geometry.total_bytes;
    drop(segment);
    let file = OpenOptions::new().write(true).open(&path).expect("the file is ours");
    for bytes in [whole - 1, whole - 4096, HEADER_BYTES, 100, whole + 4096] {
        file.set_len(bytes).expect("the file is ours");
        let error = Segment::open(&path).expect_err("not as long as it says");
        assert!(matches!(error, SegmentError::Length { .. }), "{error}");
        assert!(line(&path, &error).contains(&bytes.to_string()));
    }
    file.set_len(20).expect("the file is ours");
    let error = Segment::open(&path).expect_err("too short for a header");
    assert!(matches!(error, SegmentError::Foreign { .. }), "{error}");
}

#[test]
fn only_regular_files_are_taken() {
    let folder = folder();
    let missing = folder.path().join("missing");
    let error = Segment::open(&missing).expect_err("nothing there");
    assert!(matches!(error, SegmentError::Missing { .. }), "{error}");
    line(&missing, &error);
    assert!(!missing.exists());
    let nowhere = folder.path().join("no/such/folder");
    let error = Segment::create(&nowhere, OPTIONS).expect_err("no such folder");
    line(&nowhere, &error);

    let pipe = folder.path().join("pipe");
    let made = rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0);
    made.expect("a pipe in our folder");
    for (path, kind) in [
        (folder.path(), "a directory"),
        (&pipe, "a pipe"),
        (Path::new("/dev/null"), "a device"),
    ] {
        for result in [
            Segment::open(path),
            Segment::create(path, OPTIONS),
            Segment::open_or_create(path, OPTIONS),
        ] {
            let error = result.expect_err("not a regular file");
            assert!(line(path, &error).contains(kind), "{error}");
        }
    }
}

#[test]
fn permission_is_asked_for() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let path = folder.path().join("a.segment");
    drop(Segment::create(&path, OPTIONS).expect("a new file"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).expect("the file is ours");
    match Segment::open(&path) {
        Err(error) => {
            assert!(matches!(error, SegmentError::PermissionDenied { .. }), "{error}");
            line(&path, &error);
        }
        Ok(_) => assert!(
            rustix::process::geteuid().is_root(),
            "only root may write what is read-only"
        ),
    }
}

#[test]
fn impossible_options_are_refused_before_a_file_is_made() {
    let folder = folder();
    let path = folder.path().join("a.segment");
    for (memory_bytes, endpoints_max) in [(0, 8), ((1 << 48) + 1, 8), (4096, 0), (4096, 65537)] {
        let options = SegmentOptions {
            memory_bytes,
            endpoints_max,
        };
        let error = Segment::create(&path, options).expect_err("impossible");
        assert!(matches!(error, SegmentError::Options { .. }), "{error}");
        assert!(!path.exists());
    }
    let error = Segment::create(&path, SegmentOptions::with_memory(1 << 47)).expect_err("128 TiB");
    assert!(matches!(error, SegmentError::NoRoom { .. }), "{error}");
    line(&path, &error);
    assert!(!path.exists(), "no file is left where there was none");
}

#[test]
fn a_creator_that_died_half_way_leaves_a_file_that_is_refused() {
    let folder = folder();
    let path = folder.path().join("a.segment");
    let file = File::create(&path).expect("the folder is ours");
    let geometry = Geometry::new(OPTIONS.memory_bytes, OPTIONS.endpoints_max).expect("good options");
    file.set_len(geometry.total_bytes).expect("the file is ours");
    let whole = Header::new(geometry, 5);
    file.write_all_at(&whole.as_bytes()[8..], 8).expect("the file is ours");
    for result in [Segment::open(&path), Segment::open_or_create(&path, OPTIONS)] {
        let error = result.expect_err("it has no magic");
        assert!(matches!(error, SegmentError::Foreign { .. }), "{error}");
    }
}

#[test]
fn a_creator_at_work_is_waited_for() {
    let folder = folder();
    let path = folder.path().join("a.segment");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .expect("the folder is ours");
    let source = Source { path: &path, file };
    let geometry = Geometry::new(OPTIONS.memory_bytes, OPTIONS.endpoints_max).expect("good options");
    assert!(
        source
            .try_lock(FlockOperation::NonBlockingLockExclusive)
            .expect("the file is ours")
    );
    source.file.set_len(geometry.total_bytes).expect("the file is ours");
    std::thread::scope(|scope| {
        let opener = scope.spawn(|| Segment::open(&path).map(drop));
        pause();
        source.fill(geometry).expect("the file is ours");
        source.unlock().expect("we locked it");
        opener
            .join()
            .expect("no panic")
            .expect("complete by the time the lock was free");
    });
}

#[test]
fn one_of_many_creators_creates() {
    let folder = folder();
    for round in 0..20 {
        let path = folder.path().join(round.to_string());
        let barrier = std::sync::Barrier::new(6);
        let ids: Vec<_> = std::thread::scope(|scope| {
            let open = || {
                barrier.wait();
                Segment::open_or_create(&path, OPTIONS).map(|segment| segment.segment_id())
            };
            let threads: Vec<_> = (0..6).map(|_| scope.spawn(open)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        let first = *ids[0].as_ref().expect("made or opened");
        for id in ids {
            assert_eq!(id.expect("made or opened"), first, "all have the same segment");
        }
    }
}

#[test]
fn one_holder_at_a_time() {
    let folder = folder();
    let path = folder.path().join("a.segment");
    let segment = Segment::create(&path, OPTIONS).expect("a new file");
    let again = Segment::open(&path).expect("made before");
    let hold = segment.hold().expect("nobody has it");
    for other in [&segment, &again] {
        let error = other.hold().expect_err("somebody has it");
        assert!(matches!(error, SegmentError::Held { .. }), "{error}");
        assert!(line(&path, &error).contains(&std::process::id().to_string()));
    }
    // Opening and using it needs no role.
    drop(Segment::open(&path).expect("made before"));
    drop(hold);
    let hold = again.hold().expect("given back");
    assert_eq!(hold.segment().path(), path);
}

#[test]
fn a_closed_segment_is_closed_for_all_until_held() {
    let folder = folder();
    let path = folder.path().join("a.segment");
    let segment = Segment::create(&path, OPTIONS).expect("a new file");
    let other = Segment::open(&path).expect("made before");
    assert!(!other.is_closed());
    segment.close();
    assert!(other.is_closed());
    drop(segment);
    assert!(Segment::open(&path).expect("made before").is_closed());
    let _hold = other.hold().expect("nobody has it");
    assert!(!Segment::open(&path).expect("made before").is_closed());
}

/// A file's clients, each over a mapping of its own.
fn client(path: &Path) -> Result<crate::Endpoint, SegmentError> {
    crate::shm::Fabric::new(vec![Segment::open(path)?]).endpoint()
}

#[test]
fn memory_that_network_cards_work_on_is_mapped_by_nobody() {
    let folder = folder();
    let path = folder.path().join("a.segment");
    let segment = Segment::create(&path, OPTIONS).expect("a new file");
    let hold = segment.hold().expect("nobody has it");
    let before = client(&path).expect("room");
    let view = |endpoint: &crate::Endpoint| {
        let addr = crate::RemoteAddr::NULL;
        let seen = endpoint.view(addr, 8).is_some();
        assert_eq!(endpoint.lines(addr, 64).is_some(), seen);
        seen
    };
    assert!(view(&before));
    let nic_use = segment.use_by_nic().expect("once");
    for refused in [
        client(&path).err(),
        crate::shm::Fabric::new(vec![segment.clone()]).endpoint().err(),
        segment.use_by_nic().err(),
    ] {
        let refused = refused.expect("the memory is another's");
        let own = std::process::id();
        assert!(
            matches!(refused, SegmentError::UsedByNic { pid, .. } if pid == own),
            "{refused}"
        );
        assert!(line(&path, &refused).contains("rdma:HOST:PORT"));
    }
    assert!(!view(&before), "who has joined before sees a node that is gone");
    drop(nic_use);
    assert!(view(&before));
    client(&path).expect("free again");
    segment.close();
    let closed = segment.use_by_nic().expect_err("closed");
    assert!(matches!(closed, SegmentError::Closed { .. }), "{closed}");
    drop(hold);
}

#[test]
fn a_segment_that_a_killed_node_left_to_network_cards_is_free() {
    let folder = folder();
    let path = folder.path().join("a.segment");
    let segment = Segment::create(&path, OPTIONS).expect("a new file");
    // What is left of one that was killed: the marks, and no lock.
    segment.control().word(STATE_AT).store(STATE_NIC, Ordering::SeqCst);
    segment.control().word(HOLDER_AT).store(1, Ordering::SeqCst);
    client(&path).expect("nobody serves it");
    assert!(!segment.is_closed());
}
