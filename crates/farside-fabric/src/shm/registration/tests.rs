//! What is left of a process that was killed: half a message, a place in the table.

use std::process::{Child, Command, Stdio};

use super::*;
use crate::shm::SegmentOptions;

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
    assert!(Registration::claim(&segment, Kind::Mapped, None).is_err());
    // As the kernel does when a process ends.
    drop(theirs);
    assert!(entry.owner_is_gone());
    let ours = Registration::claim(&segment, Kind::Mapped, None).expect("its owner is gone");
    // Whose place is given back is not gone, whatever becomes of the lock, and its lock is free for the next.
    drop(ours);
    assert!(!entry.owner_is_gone());
    let theirs = Segment::open(&path).expect("a segment");
    let claim = theirs
        .shared
        .table
        .claim(&apart, Kind::Mapped, None)
        .expect("there is room");
    assert!(!entry.owner_is_gone());
    theirs.shared.table.release(claim);
    assert!(!entry.owner_is_gone());
    Registration::claim(&segment, Kind::Mapped, None).expect("there is room");
}
