//! Who goes, and who returns with whom.

use super::*;
use farside_fabric::Endpoint;
use farside_fabric::sim::{Sim, SimOptions};

/// How long an operation is under way.
const WORK_NS: u64 = 1_000;

/// What the operations on one combiner did: `+` and its number when it goes, `-` when it has ended, `=` and the result
/// that it returned with.
#[derive(Default)]
struct Log {
    combiner: Combiner<u32>,
    lines: RefCell<Vec<String>>,
}

impl Log {
    fn note(&self, line: String) {
        self.lines.borrow_mut().push(line);
    }

    async fn operate(&self, endpoint: Endpoint, key: &[u8], number: u32, succeeds: bool) {
        let cx = OpContext::new(endpoint.clone());
        match self.combiner.ask(&cx, key).await {
            Asked::Go(turn) => {
                self.note(format!("+{number}"));
                endpoint.sleep(WORK_NS).await;
                self.note(format!("-{number}"));
                if succeeds {
                    turn.end(number);
                }
            }
            Asked::Done(result) => self.note(format!("{number}={result}")),
            Asked::Late => self.note(format!("{number} is late")),
        }
    }
}

/// Starts operations at their times on the keys that are named, and returns what happened.
fn run(operations: &[(u64, &'static [u8], bool)]) -> (Vec<String>, Counts) {
    let sim = Sim::new(SimOptions::default());
    let compute_node = sim.add_compute_node();
    let log = Rc::new(Log::default());
    for (number, &(at_ns, key, succeeds)) in (0..).zip(operations) {
        let (endpoint, log) = (sim.endpoint(compute_node), Rc::clone(&log));
        endpoint.clone().spawn(async move {
            endpoint.sleep(at_ns).await;
            log.operate(endpoint, key, number, succeeds).await;
        });
    }
    sim.run_until_idle();
    assert!(log.combiner.is_idle());
    let counts = log.combiner.counts();
    assert_eq!(counts.asked, operations.len() as u64);
    (log.lines.take(), counts)
}

/// Five operations on one key that begin so long after each other, each of an endpoint of its own.
fn one_after_another(apart_ns: u64) -> (Sim, Rc<Log>, Vec<Endpoint>) {
    let sim = Sim::new(SimOptions::default());
    let compute_node = sim.add_compute_node();
    let log = Rc::new(Log::default());
    let endpoints: Vec<_> = (0..5).map(|_| sim.endpoint(compute_node)).collect();
    for (number, endpoint) in (0..).zip(&endpoints) {
        let (client, log) = (endpoint.clone(), Rc::clone(&log));
        endpoint.spawn(async move {
            client.sleep(u64::from(number) * apart_ns).await;
            log.operate(client, b"k", number, true).await;
        });
    }
    (sim, log, endpoints)
}

#[test]
fn the_last_who_waits_goes_for_the_others() {
    let (lines, counts) = run(&[
        (0, b"k", true),
        (1, b"k", true),
        (2, b"k", true),
        (3, b"k", true),
        // After the window of the second turn was closed.
        (1_500, b"k", true),
    ]);
    assert_eq!(lines, ["+0", "-0", "+3", "-3", "1=3", "2=3", "+4", "-4"]);
    assert_eq!((counts.combined, counts.batches), (2, 1));
}

#[test]
fn keys_are_kept_apart() {
    let (lines, counts) = run(&[(0, b"k", true), (1, b"kk", true), (2, b"", true)]);
    assert_eq!(lines, ["+0", "+1", "+2", "-0", "-1", "-2"]);
    assert_eq!((counts.combined, counts.batches), (0, 0));
}

#[test]
fn nobody_returns_with_one_that_failed() {
    let (lines, counts) = run(&[
        (0, b"k", true),
        (1, b"k", true),
        (2, b"k", true),
        (3, b"k", false),
        (1_500, b"k", true),
    ]);
    assert_eq!(lines, ["+0", "-0", "+3", "-3", "+4", "-4", "1=4", "2=4"]);
    assert_eq!((counts.combined, counts.batches), (2, 1));
}

#[test]
fn whoever_is_cancelled_is_in_nobodys_way() {
    let (sim, log, endpoints) = one_after_another(1);
    sim.run_until(100);
    // The one under way, and two that wait: the one that would be next among them.
    for dead in [0, 4, 2] {
        sim.crash_client(endpoints[dead].id());
        sim.run_until(sim.now_ns() + 100);
    }
    sim.run_until_idle();
    assert_eq!(*log.lines.borrow(), ["+0", "+4", "+3", "-3", "1=3"]);
    assert!(log.combiner.is_idle());
}

/// One that waited when the one under way was told to go, and another that came later.
#[test]
fn whoever_is_cancelled_returns_with_nobody() {
    let (sim, log, endpoints) = one_after_another(400);
    // 0 has ended; 2 goes for 1; 3 and 4 wait.
    sim.run_until(1_700);
    assert!(!log.combiner.is_idle());
    sim.crash_client(endpoints[1].id());
    sim.crash_client(endpoints[3].id());
    sim.run_until_idle();
    assert_eq!(*log.lines.borrow(), ["+0", "-0", "+2", "-2", "+4", "-4"]);
    let counts = log.combiner.counts();
    assert_eq!((counts.asked, counts.combined, counts.batches), (5, 0, 0));
    assert!(log.combiner.is_idle());
}

#[test]
fn an_operation_knows_whether_others_return_with_it() {
    let sim = Sim::new(SimOptions::default());
    let endpoint = sim.endpoint(sim.add_compute_node());
    let combiner = Rc::new(Combiner::<u32>::default());
    let shared = Rc::new(RefCell::new(Vec::new()));
    for number in 0..3 {
        let (endpoint, combiner, shared) = (endpoint.clone(), Rc::clone(&combiner), Rc::clone(&shared));
        endpoint.clone().spawn(async move {
            if let Asked::Go(turn) = combiner.ask(&OpContext::new(endpoint.clone()), b"k").await {
                endpoint.sleep(WORK_NS).await;
                shared.borrow_mut().push(turn.is_shared());
                turn.end(number);
            }
        });
    }
    sim.run_until_idle();
    assert_eq!(*shared.borrow(), [false, true]);
}

#[test]
fn counts_add_up() {
    let each = |factor: u64| Counts {
        asked: factor,
        combined: 2 * factor,
        batches: 3 * factor,
    };
    assert_eq!(each(2).plus(each(3)), each(5));
    assert_eq!(each(5).since(each(2)), each(3));
}

#[test]
fn a_deadline_ends_the_waiting() {
    let sim = Sim::new(SimOptions::default());
    let endpoint = sim.endpoint(sim.add_compute_node());
    sim.block_on(async move {
        let combiner = Combiner::<u32>::default();
        let mut cx = OpContext::new(endpoint.clone());
        let Asked::Go(turn) = combiner.ask(&cx, b"k").await else {
            panic!("nobody is under way")
        };
        cx.set_deadline(endpoint.deadline_in(WORK_NS));
        assert!(matches!(combiner.ask(&cx, b"k").await, Asked::Late));
        assert!(!turn.is_shared());
        turn.end(0);
        assert!(combiner.is_idle());
    });
}
