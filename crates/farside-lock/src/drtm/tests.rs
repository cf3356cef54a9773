//! One client of DrTM's lock, and words that others have left there.

use super::*;
use crate::backoff::{Pace, WINDOW_ATTEMPTS};
use crate::testing::{LEASE_NS, LOCK, Machine, Stage};

const OTHER: DrtmWord = DrtmWord::written_by(Holder {
    endpoint: 77,
    client: 1,
});

/// A client whose leases last as long as [`LEASE_NS`].
fn lock(machine: &Machine) -> Drtm {
    assert_eq!(LEASE_NS, LEASE_NS_MAX);
    let inbox = machine.site.inbox(machine.endpoint.id());
    Drtm::new(inbox.take_seat(LOCK).expect("a seat"), LEASE_NS)
}

fn acquire(stage: &Stage, lock: &Drtm, cx: &mut OpContext, mode: Mode) -> u64 {
    let grant = stage
        .sim
        .block_on(lock.acquire(cx, LOCK, mode))
        .expect("the node is there");
    assert_eq!((grant.entry(), grant.mode()), (LOCK, mode));
    grant.until_ns()
}

/// A reader stops before the end of its lease; a writer has no end.
#[test]
fn a_reader_stops_before_its_lease_ends() {
    let stage = Stage::new();
    let machine = stage.machine();
    let lock = lock(&machine);
    let mut cx = machine.cx();
    stage.run_for(LEASE_NS);
    let posted_ns = stage.sim.now_ns();
    let until_ns = acquire(&stage, &lock, &mut cx, Mode::Shared);
    assert_eq!(until_ns, posted_ns + LEASE_NS - CLOCK_ERROR_NS);
    assert_eq!(stage.word(LOCK), posted_ns + LEASE_NS);
    stage.run_for(3 * LEASE_NS);
    assert_eq!(acquire(&stage, &lock, &mut cx, Mode::Exclusive), u64::MAX);
    // The lease was over, and is not what a writer expects at first.
    assert_eq!((stage.word(LOCK), cx.retries()), (lock.mine.0, 1));
    assert_eq!(acquire(&stage, &lock, &mut cx, Mode::Exclusive), u64::MAX, "it is ours");
}

/// A lease is joined while a tenth of it is left, by the clock of who looks; one that is nearly over is waited out.
#[test]
fn a_lease_is_joined_while_a_tenth_is_left() {
    for (more_ns, is_joined) in [(10_000, true), (1_000, false)] {
        let stage = Stage::new();
        let machine = stage.machine();
        let lock = lock(&machine);
        let mut cx = machine.cx();
        stage.run_for(LEASE_NS);
        let end_ns = stage.sim.now_ns() + CLOCK_ERROR_NS + LEASE_NS / JOIN_SHARE + more_ns;
        stage.set_word(LOCK, DrtmWord::leased_until(end_ns).0);
        let until_ns = acquire(&stage, &lock, &mut cx, Mode::Shared);
        assert_eq!(until_ns == end_ns - CLOCK_ERROR_NS, is_joined);
        assert_eq!(stage.word(LOCK) == end_ns, is_joined);
        assert_eq!(cx.retries() == 0, is_joined);
    }
}

/// However long the back-off has become, a lease is waited for as long as it lasts.
#[test]
fn nobody_waits_longer_than_the_lease_lasts() {
    let stage = Stage::new();
    let machine = stage.machine();
    let lock = lock(&machine);
    (0..10 * WINDOW_ATTEMPTS).for_each(|_| lock.backoff.note(true));
    let mut cx = machine.cx();
    stage.run_for(LEASE_NS);
    for mode in [Mode::Exclusive, Mode::Shared] {
        // Nearly over for a reader, who waits it out as well.
        let left_ns = CLOCK_ERROR_NS + LEASE_NS / JOIN_SHARE - 1_000;
        let end_ns = stage.sim.now_ns() + left_ns;
        stage.set_word(LOCK, DrtmWord::leased_until(end_ns).0);
        acquire(&stage, &lock, &mut cx, mode);
        let late_ns = stage.sim.now_ns() - (end_ns + CLOCK_ERROR_NS);
        assert!(late_ns < 10_000, "{late_ns} ns late");
    }
}

/// Attempts that fail make the back-off longer, those that succeed shorter.
#[test]
fn the_back_off_learns_from_each_attempt() {
    let stage = Stage::new();
    let machine = stage.machine();
    let lock = lock(&machine);
    let limit = || lock.backoff.wait_ns(&machine.endpoint, 100) / Pace::SMART.wait_min_ns;
    let mut cx = machine.cx();
    stage.set_word(LOCK, OTHER.0);
    cx.set_deadline(machine.endpoint.deadline_in(100_000));
    let refused = stage.sim.block_on(lock.acquire(&mut cx, LOCK, Mode::Exclusive));
    assert_eq!(refused, Err(LockError::Timeout { entry: LOCK }));
    cx.set_deadline(Deadline::NEVER);
    let failures = u32::try_from(cx.retries()).expect("few");
    assert!(
        (17..WINDOW_ATTEMPTS).contains(&failures),
        "more than half of a window: {failures}"
    );
    assert_eq!(limit(), 1);
    for window in [2, 1] {
        let attempts = if window == 2 {
            WINDOW_ATTEMPTS - failures
        } else {
            WINDOW_ATTEMPTS
        };
        for attempt in 0..attempts {
            assert_eq!(limit(), 3 - window, "after {attempt}");
            stage.set_word(LOCK, 0);
            acquire(&stage, &lock, &mut cx, Mode::Exclusive);
        }
        assert_eq!(limit(), window);
    }
    assert_eq!(cx.retries(), failures.into());
}

/// A lock that is held is asked for until the deadline, which no wait passes.
#[test]
fn a_deadline_ends_the_wait_exactly() {
    let stage = Stage::new();
    let machine = stage.machine();
    let lock = lock(&machine);
    (0..10 * WINDOW_ATTEMPTS).for_each(|_| lock.backoff.note(true));
    let mut cx = machine.cx();
    stage.set_word(LOCK, OTHER.0);
    let deadline = machine.endpoint.deadline_in(LEASE_NS);
    cx.set_deadline(deadline);
    let refused = stage.sim.block_on(lock.acquire(&mut cx, LOCK, Mode::Shared));
    assert_eq!(refused, Err(LockError::Timeout { entry: LOCK }));
    assert!(stage.sim.now_ns() < deadline.0 + 5_000, "{}", stage.sim.now_ns());
}

#[test]
fn only_a_reader_in_time_has_not_lost_its_lease() {
    let stage = Stage::new();
    let machine = stage.machine();
    let lock = lock(&machine);
    let mut cx = machine.cx();
    for is_late in [false, true] {
        let grant = stage.take(&lock, &mut cx, Mode::Shared);
        let until_ns = grant.until_ns();
        stage.sim.run_until(until_ns - u64::from(!is_late));
        let start = machine.costs();
        let released = stage.sim.block_on(lock.release(&mut cx, grant));
        assert_eq!(released.is_err(), is_late);
        assert_eq!(machine.cost_since(&start), [0; 4]);
        stage.run_for(2 * LEASE_NS);
    }
}
