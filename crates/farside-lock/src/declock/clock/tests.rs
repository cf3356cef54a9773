//! Clocks of several machines.

use std::rc::Rc;

use farside_fabric::shm::{self, Segment};

use super::*;
use crate::atomics::both;
use crate::testing::{LOCK, Stage};

/// Machines whose clocks are far apart agree afterwards, but for the time of a READ.
#[test]
fn nodes_that_wait_for_each_other_have_one_clock() {
    let stage = Stage::new();
    let machines: Vec<_> = (0..3).map(|_| Rc::new(stage.machine())).collect();
    let mut done = Vec::new();
    for (index, machine) in machines.iter().enumerate() {
        stage.sim.set_clock(machine.compute_node, 1_000_000 * index as i64, 0);
        let task = Rc::clone(machine);
        done.push(machine.spawn(async move {
            task.endpoint.sleep(50_000 * index as u64).await;
            synchronise(&mut task.cx(), &task.site, LOCK, 3).await
        }));
        stage.run_for(10_000);
    }
    assert!(done.iter().all(|done| done.take().is_none()), "the last has not come");
    stage.run_for(200_000);
    for done in done {
        assert_eq!(done.take(), Some(Ok(())));
    }
    assert_eq!(stage.word(LOCK), 0);
    let shown: Vec<u64> = machines
        .iter()
        .map(|machine| now_ns(&machine.endpoint, &machine.site))
        .collect();
    let (first, last) = (shown.iter().min().expect("three"), shown.iter().max().expect("three"));
    assert!(last - first < 5_000, "{shown:?}");
    assert!(*last < 200_000, "{shown:?}");
}

/// While it waits a node looks as fast as its READs come back, and its other tasks run.
#[test]
fn who_waits_for_the_last_looks_without_a_pause() {
    let stage = Stage::new();
    let machine = Rc::new(stage.machine());
    let start = machine.costs();
    let task = Rc::clone(&machine);
    let done = machine.spawn(async move { synchronise(&mut task.cx(), &task.site, LOCK, 2).await });
    stage.run_for(100_000);
    assert!(done.take().is_none());
    assert_eq!(stage.word(LOCK), 1);
    let [reads, writes, atomics, _] = machine.cost_since(&start);
    assert_eq!((writes, atomics), (0, 1));
    assert!((20..100).contains(&reads), "{reads} READs in 100 us");
}

#[test]
fn a_clock_that_follows_the_date_shows_it() {
    let stage = Stage::new();
    let machine = stage.machine();
    stage.run_for(7_000_000);
    let date_ns = machine.endpoint.unix_ms() * 1_000_000;
    follow_date(&machine.endpoint, &machine.site);
    assert_eq!(now_ns(&machine.endpoint, &machine.site), date_ns);
    stage.run_for(123_456);
    assert_eq!(now_ns(&machine.endpoint, &machine.site), date_ns + 123_456);
}

/// Over mapped memory a READ is there at once: who waits lets the others of its thread run all the same.
#[test]
fn nodes_of_one_thread_let_each_other_run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let segment = Segment::anonymous(4096).expect("memory");
    let work = async {
        let join = async || {
            let fabric = shm::Fabric::new(vec![segment.clone()]);
            let mut cx = OpContext::new(fabric.endpoint().expect("an endpoint"));
            synchronise(&mut cx, &Site::default(), LOCK, 2).await
        };
        assert_eq!(both(join(), join()).await, (Ok(()), Ok(())));
    };
    runtime.expect("a runtime").block_on(work);
}
