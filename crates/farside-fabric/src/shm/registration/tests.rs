//! What is left of a process that was killed: half a message, a place in the table.

use std::process::{Child, Command, Stdio};

use super::*;
use crate::shm::SegmentOptions;
use crate::shm::liveness::{Locks, Taken as Locked};

/// A process that does nothing until it is killed.
fn idler() -> Child {
    let cat = Command::new("cat").stdin(Stdio::piped()).spawn();
    cat.expect("cat is installed")
}

fn kill(mut child: Child) {
    child.kill().expect("the child is ours");
    child.wait().expect("the child is ours");
}

#[test]
fn half_a_message_of_a_killed_process_is_skipped() {
    let segment = Segment::anonymous(4096).expect("a page of memory");
    let receiver = Registration::claim(&segment, Kind::Mapped, None).expect("there is room");
    let sender = Registration::claim(&segment, Kind::Mapped, None).expect("there is room");
    let child = idler();
    let table = &segment.shared.table;
    let theirs = table.claim(&ProcessIdentity::of_child(&child), Kind::Mapped, None);
    let theirs = theirs.expect("there is room");
    receiver.entry().mailbox().claim(theirs.id).expect("there is room");
    let hello = Message::try_from(&b"hello"[..]).expect("short");
    sender.send(receiver.id(), &hello).expect("there is room");
    assert_eq!(receiver.take(), Taken::Unfinished, "its sender may still finish it");
    kill(child);
    let expected = Received {
        from: sender.id(),
        message: hello,
    };
    assert_eq!(receiver.take(), Taken::Message(expected));
    assert_eq!(receiver.take(), Taken::Empty);
}

#[test]
fn the_place_of_a_killed_process_is_given_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = SegmentOptions {
        memory_bytes: 4096,
        endpoints_max: 1,
    };
    let segment = Segment::create(folder.path().join("a"), options).expect("a new file");
    let child = idler();
    let table = &segment.shared.table;
    let theirs = table.claim(&ProcessIdentity::of_child(&child), Kind::Mapped, None);
    let theirs = theirs.expect("there is room");
    let full = Registration::claim(&segment, Kind::Mapped, None);
    assert!(matches!(full, Err(SegmentError::TableFull { .. })));
    assert!(!table.entry(0).owner_is_gone());
    kill(child);
    assert!(table.entry(0).owner_is_gone());
    let ours = Registration::claim(&segment, Kind::Mapped, None).expect("its owner is gone");
    assert_ne!(ours.id(), theirs.id);
    // What is late for the former owner reaches nobody.
    let hello = Message::try_from(&b"hello"[..]).expect("short");
    let unknown = FabricError::PeerUnknown { peer: theirs.id };
    assert_eq!(ours.send(theirs.id, &hello), Err(unknown));
}

/// A process of another container has a number that says nothing here; the lock of its entry does.
#[test]
fn the_place_of_a_process_in_another_namespace_is_given_on_when_its_lock_is_left() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a");
    let options = SegmentOptions {
        memory_bytes: 4096,
        endpoints_max: 1,
    };
    let segment = Segment::create(&path, options).expect("a new file");
    let own = ProcessIdentity::own().expect("/proc is mounted");
    let apart = ProcessIdentity {
        pid: own.pid + 1,
        namespace: !own.namespace,
        ..own
    };
    // Another opening of the file, as in another process.
    let theirs = Segment::open(&path).expect("a segment");
    let claim = theirs.shared.table.claim(&apart, Kind::Mapped, None);
    claim.expect("there is room");
    let entry = segment.shared.table.entry(0);
    assert!(!entry.owner_is_gone());
    assert!(!entry.is_plainly_gone(&own));
    assert!(Registration::claim(&segment, Kind::Mapped, None).is_err());
    // As the kernel does when a process ends; a process that another test starts has the descriptor as well until it begins.
    drop(theirs);
    let await_end = |entry: &Entry<'_>| {
        while !entry.owner_is_gone() {
            std::thread::yield_now();
        }
    };
    await_end(&entry);
    assert!(
        entry.is_plainly_gone(&own),
        "who writes to it need not wait for an answer"
    );
    let ours = Registration::claim(&segment, Kind::Mapped, None).expect("its owner is gone");
    // Whoever gives the place back gives its lock back: the next has it, and is missed when it is gone.
    drop(ours);
    for leaves in [true, false] {
        let theirs = Segment::open(&path).expect("a segment");
        let claim = theirs.shared.table.claim(&apart, Kind::Mapped, None);
        let claim = claim.expect("there is room");
        assert!(!entry.owner_is_gone());
        if leaves {
            theirs.shared.table.release(claim);
            assert!(!entry.owner_is_gone(), "nobody has it");
        } else {
            drop(theirs);
            await_end(&entry);
        }
    }
    // A container may be shown another boot: a restart of the machine would have left the lock.
    let elsewhere = ProcessIdentity {
        boot: !own.boot,
        ..apart
    };
    let theirs = Segment::open(&path).expect("a segment");
    let claim = theirs.shared.table.claim(&elsewhere, Kind::Mapped, None);
    claim.expect("the last owner is gone");
    assert!(!entry.owner_is_gone());
    drop(theirs);
    await_end(&entry);
}

/// A place whose lock another process has is left alone: it is claiming it, or giving it back.
#[test]
fn nobody_claims_a_place_without_its_lock() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a");
    let options = SegmentOptions {
        memory_bytes: 4096,
        endpoints_max: 2,
    };
    let segment = Segment::create(&path, options).expect("a new file");
    let file = std::fs::File::options().read(true).write(true).open(&path);
    let others = Locks::new(std::sync::Arc::new(file.expect("it is there")));
    assert_eq!(others.try_lock(0), Locked::Ours);
    let own = ProcessIdentity::own().expect("/proc is mounted");
    let claim = segment.shared.table.claim(&own, Kind::Mapped, None).expect("room");
    assert_eq!(claim.index, 1);
    assert_eq!(segment.shared.table.claim(&own, Kind::Mapped, None), None);
    others.unlock(0);
    let claim = segment.shared.table.claim(&own, Kind::Mapped, None).expect("room");
    assert_eq!(claim.index, 0);
}
