//! The same between processes: the test runs itself again, several times at once, over one file.

use std::process::Command;
use std::sync::atomic::Ordering;

use farside_fabric::shm::{self, Segment, SegmentOptions};
use farside_lock::LockKind;

use super::exclusion::{COUNT, count_together};
use super::service::{AgentThread, Subject};
use crate::on_this_thread;

const CHILDREN: u64 = 3;
const CLIENTS: u16 = 2;
const ROUNDS: u64 = 200;
/// Tells a child what to do: the lock, the capacity of its queue, and the segment.
const ROLE: &str = "FARSIDE_LOCK_CONFORMANCE";

pub(crate) fn parent(subject: Subject) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let segment = Segment::create(&path, SegmentOptions::with_memory(1 << 20)).expect("a segment");
    let mapped = segment.clone();
    let _agent = AgentThread::start(async move || shm::Fabric::new(vec![mapped]).endpoint().expect("an endpoint"));
    let program = std::env::current_exe().expect("this test is a program");
    let start = |_| {
        Command::new(&program)
            .args(["--exact", "conformance::processes::child", "--nocapture"])
            .env(
                ROLE,
                format!(
                    "{} {} {}",
                    subject.kind.name(),
                    subject.declock_capacity,
                    path.display()
                ),
            )
            .spawn()
            .expect("a child")
    };
    let children: Vec<_> = (0..CHILDREN).map(start).collect();
    for mut child in children {
        assert!(child.wait().expect("a status").success());
    }
    let count = segment.region().word(COUNT.offset()).load(Ordering::SeqCst);
    assert_eq!(count, CHILDREN * u64::from(CLIENTS) * ROUNDS);
}

/// What a child runs. In the parent's run of the suite there is nothing to do.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut words = role.splitn(3, ' ');
    let mut word = || words.next().expect("a name, a number and a path");
    let (name, capacity, path) = (word(), word(), word());
    let subject = Subject {
        kind: LockKind::by_name(name).expect("a lock"),
        declock_capacity: capacity.parse().expect("a number"),
    };
    let segment = Segment::open(path).expect("the parent's segment");
    on_this_thread(async {
        let endpoint = shm::Fabric::new(vec![segment]).endpoint().expect("an endpoint");
        count_together(endpoint, subject, CLIENTS, ROUNDS).await;
    });
}
