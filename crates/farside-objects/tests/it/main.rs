//! Objects on the simulated fabric: what a set leaves and a get finds.

#![forbid(unsafe_code)]

use std::process::{Command, Stdio};
use std::sync::Arc;

use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{OpContext, VerbKind};
use farside_lock::dslr::Waits;
use farside_lock::{LockKind, LockOptions, Locker, Site};
use farside_objects::{ObjectError, Objects, Places};

/// Bytes of an object in a page.
const PAYLOAD_BYTES: u32 = 4080;

/// Two clients of one object on their own machines: the first one sets it, the second one gets it.
struct Pair {
    sim: Sim,
    clients: [(Objects, OpContext); 2],
}

impl Pair {
    fn new(capacity: u32, kind: Option<LockKind>) -> Self {
        let options = LockOptions {
            recovers_alone: true,
            ..LockOptions::default()
        };
        let lock_bytes = kind.map_or(0, |kind| kind.entry_bytes(&options));
        let places = Arc::new(Places::new(lock_bytes, [capacity].into_iter()));
        let sim = Sim::new(SimOptions::default());
        let _ = sim.add_memory_node(places.memory_bytes());
        let clients = core::array::from_fn(|_| {
            let endpoint = sim.endpoint(sim.add_compute_node());
            let locker = kind.map(|kind| Locker::new(kind, &endpoint, &Site::new(options)).expect("it suits"));
            (Objects::new(Arc::clone(&places), locker), OpContext::new(endpoint))
        });
        Self { sim, clients }
    }

    fn set(&mut self, value: &[u8]) -> Result<(), ObjectError> {
        let (objects, cx) = &mut self.clients[0];
        self.sim.block_on(objects.set(cx, 0, value))
    }

    fn get(&mut self) -> Result<Option<Vec<u8>>, ObjectError> {
        let (objects, cx) = &mut self.clients[1];
        let mut value = b"of before".to_vec();
        let is_set = self.sim.block_on(objects.get(cx, 0, &mut value))?;
        Ok(is_set.then_some(value))
    }

    /// Gets it, and thinks that it has so many bytes: stamp, value, and how many READs it took.
    fn get_likely(&mut self, likely_bytes: u32) -> (Option<u64>, Vec<u8>, u64) {
        let (objects, cx) = &mut self.clients[1];
        let reads = |cx: &OpContext| cx.endpoint().counters().snapshot().verbs.of(VerbKind::Read);
        let before = reads(cx);
        let mut value = Vec::new();
        let mut look = |_: u64, page: &[u8]| value.extend_from_slice(page);
        let got = self.sim.block_on(objects.get_with(cx, 0, likely_bytes, &mut look));
        let got = got.expect("a get");
        assert_eq!(value.len(), got.bytes as usize);
        (got.stamp, value, reads(cx) - before)
    }
}

fn value(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|byte| (byte * 7 % 251) as u8).collect()
}

#[test]
fn an_object_is_as_long_as_it_was_set() {
    let mut pair = Pair::new(20_000, None);
    assert_eq!(pair.get_likely(100), (Some(0), vec![0; 100], 1), "nobody has set it");
    let mut last = 0;
    for bytes in [9213, 0, 20_000, 4080, 5] {
        pair.set(&value(bytes)).expect("a set");
        // All of it; less, and the page that goes on once more; more than there is.
        let pages = |bytes: u32| u64::from(bytes.div_ceil(PAYLOAD_BYTES).max(1));
        for (likely, reads) in [
            (bytes, pages(bytes)),
            (20_000, 5),
            (3, 1 + if bytes > 3 { pages(bytes) } else { 0 }),
            (u32::MAX, 5),
        ] {
            let (stamp, got, took) = pair.get_likely(likely);
            assert_ne!(stamp, Some(last), "{bytes}: a set has a new stamp");
            let expected = (value(bytes), reads);
            assert_eq!((got, took), expected, "{bytes} bytes, {likely} were likely");
        }
        last = pair.get_likely(bytes).0.expect("it is whole");
    }
}

#[test]
fn a_value_comes_back_under_a_lock() {
    for kind in [LockKind::ShiftLock, LockKind::Dslr(Waits::Turns)] {
        let mut pair = Pair::new(20_000, Some(kind));
        assert_eq!(pair.get(), Ok(None), "nobody has set it");
        for bytes in [9213, 0, 20_000, 4080, 5] {
            pair.set(&value(bytes)).expect("a set");
            assert_eq!(pair.get(), Ok(Some(value(bytes))));
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_changed() {
    let mut pair = Pair::new(100, Some(LockKind::ShiftLock));
    pair.set(b"small").expect("a set");
    let refused = pair.set(&[7; 101]).expect_err("one byte too many");
    let text = "object 0 has room for 100 bytes, not for 101";
    assert_eq!(refused.to_string(), text);
    assert_eq!(pair.get(), Ok(Some(b"small".to_vec())));
}

/// A client that ends between the pages of a set, under its lock: the next one is told, until somebody sets the object again.
#[test]
fn an_object_whose_client_has_died_is_torn_until_it_is_set() {
    let mut torn = 0;
    for after_ns in (1_000..40_000).step_by(500) {
        let mut pair = Pair::new(200_000, None);
        pair.set(&value(200_000)).expect("a set");
        let (objects, cx) = &mut pair.clients[0];
        let endpoint = cx.endpoint().clone();
        pair.sim.block_on(async {
            let new = vec![9; 200_000];
            let mut set = core::pin::pin!(objects.set(cx, 0, &new));
            let mut sleep = core::pin::pin!(endpoint.sleep(after_ns));
            core::future::poll_fn(|task| match (set.as_mut().poll(task), sleep.as_mut().poll(task)) {
                (core::task::Poll::Pending, core::task::Poll::Pending) => core::task::Poll::Pending,
                _ => core::task::Poll::Ready(()),
            })
            .await;
        });
        match pair.get() {
            Ok(found) => {
                let found = found.expect("it was set before");
                assert!(found == value(200_000) || found == [9; 200_000], "after {after_ns} ns");
            }
            Err(error) => {
                assert_eq!(error, ObjectError::Torn { object: 0 });
                torn += 1;
            }
        }
        pair.set(b"whole").expect("a set");
        assert_eq!(pair.get(), Ok(Some(b"whole".to_vec())));
    }
    assert!(torn > 0, "none was left in the middle");
}

/// A client that dies within the WRITE of a page leaves its start, with the stamp of the new set, before the rest of the old one;
/// which page of how many does not matter.
#[test]
fn an_object_with_half_a_page_of_another_set_is_torn() {
    for (bytes, page_at) in [(100, 0_u64), (9_000, 4096), (9_000, 8192)] {
        let mut pair = Pair::new(bytes, None);
        // No locks, so the object stands behind the first line.
        let object = farside_fabric::RemoteAddr::new(farside_fabric::NodeId::new(0), 64);
        let (new, old) = (vec![9; bytes as usize], value(bytes));
        pair.set(&old).expect("a set");
        let (_, cx) = &mut pair.clients[0];
        let rest = (object.plus(page_at + 64), farside_fabric::Slice::first(32));
        let before = pair
            .sim
            .block_on(async { cx.read(rest.0, rest.1).await.expect("a READ").to_vec() });
        pair.set(&new).expect("a set");
        assert_eq!(pair.get(), Ok(Some(new)));
        let (_, cx) = &mut pair.clients[0];
        cx.buffer_mut()[..32].copy_from_slice(&before);
        pair.sim.block_on(cx.write(rest.1, rest.0)).expect("a WRITE");
        assert_eq!(
            pair.get(),
            Err(ObjectError::Torn { object: 0 }),
            "{bytes} bytes, from {page_at} on"
        );
        pair.set(b"whole").expect("a set");
        assert_eq!(pair.get(), Ok(Some(b"whole".to_vec())));
    }
}

/// The example: processes share objects, one of them is killed, and nobody finds an object that is of several sets without
/// being told.
#[test]
fn processes_share_objects_when_one_of_them_is_killed() {
    let mut folder = std::env::current_exe().expect("it runs");
    folder.pop();
    folder.pop();
    let program = folder.join("examples").join("object_store");
    let shared = tempfile::tempdir().expect("a folder");
    let start = |requests: &str| {
        let mut command = Command::new(&program);
        command.arg("--segment").arg(shared.path().join("objects"));
        command.args(["--requests", requests]).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().expect("cargo built it")
    };
    let mut endless = start("1000000000000");
    let ended = [start("2000"), start("2000")].map(|process| process.wait_with_output().expect("it ends"));
    endless.kill().expect("it runs");
    endless.wait().expect("it was killed");
    let after = start("2000").wait_with_output().expect("it ends");
    for output in ended.iter().chain([&after]) {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(" sets; ") && text.contains("torn ones"), "{text}");
    }
    std::fs::write(shared.path().join("other"), "nothing").expect("writable");
    let mut command = Command::new(&program);
    let wrong = command.arg("--segment").arg(shared.path().join("other")).output();
    let wrong = wrong.expect("it ends");
    assert!(!wrong.status.success());
    let line = String::from_utf8_lossy(&wrong.stderr);
    assert!(
        line.starts_with("object_store: ") && line.lines().count() == 1,
        "{line}"
    );
}
