//! The CAS lock: a test-and-set lock on one word (ShiftLock, section 2.2), with or without back-off.
//!
//! The word is 0 while the lock is free, and names its holder otherwise ([`CasWord`]).
//!
//! Acquire:
//!  1. compare-and-swap 0 for the own word. It returned 0: the lock is ours.
//!  2. Otherwise somebody holds it: `cas` tries again at once, `cas-backoff` waits first
//!     ([`Backoff`]).
//!
//! Release: WRITE 0, or compare-and-swap 0 for the own word ([`LockOptions::cas_swaps_back`]). The queue pair keeps the order,
//! so whatever the holder wrote to that node before is there when the lock is seen free.
//!
//! There is no shared mode: readers exclude each other. There is no order: any waiting client may be
//! next.
//!
//! Cost without contention: one atomic and one WRITE.

use farside_fabric::mutant::is_planted;
use farside_fabric::{Buffer, Deadline, FabricError, OpContext, RemoteAddr, Verb};

use crate::atomics::{swap_now, withdraw};
use crate::backoff::{Backoff, give_way};
use crate::grant::Held;
use crate::inbox::Seat;
use crate::phases::{Phase, Stopwatch};
use crate::word::{Attempt, CasWord, Holder};
use crate::{Grant, Lock, LockError, LockOptions, Mode};

/// A client's side of the CAS lock.
#[derive(Debug)]
pub struct CasLock {
    /// Nobody writes to it; its number is the client's.
    _seat: Seat,
    mine: CasWord,
    backoff: Option<Backoff>,
    /// Whether it is released by a compare-and-swap.
    swaps_back: bool,
    stopwatch: Stopwatch,
}

impl CasLock {
    /// `cas`: tries again at once.
    #[must_use]
    pub fn new(seat: Seat) -> Self {
        let holder = Holder {
            endpoint: seat.place().endpoint.0,
            client: seat.number(),
        };
        Self {
            _seat: seat,
            mine: CasWord::held_by(holder),
            backoff: None,
            swaps_back: false,
            stopwatch: Stopwatch::default(),
        }
    }

    /// The same, released as [`LockOptions::cas_swaps_back`] says.
    pub(crate) fn swapping_back(self, swaps_back: bool) -> Self {
        Self { swaps_back, ..self }
    }

    pub(crate) fn timed_by(self, stopwatch: Stopwatch) -> Self {
        Self { stopwatch, ..self }
    }

    /// `cas-backoff`: waits before it tries again.
    #[must_use]
    pub fn with_backoff(seat: Seat) -> Self {
        Self {
            backoff: Some(Backoff::default()),
            ..Self::new(seat)
        }
    }
}

/// In plain calls, over mapped memory: see [`Locker::acquire_now`](crate::Locker::acquire_now).
impl CasLock {
    pub(crate) fn acquire_now(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Option<Grant> {
        if self.stopwatch.is_running() || !swap_now(cx, entry, CasWord::FREE.0, self.mine.0) {
            return None;
        }
        if let Some(backoff) = &self.backoff {
            backoff.note(false);
        }
        Some(Grant::new(entry, mode, Held::Plain))
    }

    pub(crate) fn release_now(&self, cx: &mut OpContext, grant: &Grant) -> bool {
        !self.stopwatch.is_running() && swap_now(cx, grant.entry(), self.mine.0, CasWord::FREE.0)
    }
}

impl Lock for CasLock {
    fn entry_bytes(_: &LockOptions) -> u64 {
        8
    }

    async fn acquire(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Result<Grant, LockError> {
        self.stopwatch.begin(mode);
        let mut start_ns = self.stopwatch.start(cx.endpoint());
        // Ends when the lock is free at our turn, at the latest at the deadline.
        let mut retry = 0_u32;
        loop {
            let swap = cx.compare_swap(entry, CasWord::FREE.0, self.mine.0).await;
            let found = match swap {
                Err(FabricError::DeadlineExceeded { .. }) => {
                    if !is_planted("cas: a swap that outlives its acquire") {
                        withdraw(cx.endpoint(), entry, self.mine.0);
                    }
                    return Err(LockError::Timeout { entry });
                }
                other => other?,
            };
            let phase = if retry == 0 { Phase::Enter } else { Phase::Retry };
            start_ns = self.stopwatch.stop(cx.endpoint(), mode, phase, start_ns);
            let attempt = CasWord(found).attempt(self.mine);
            if let Some(backoff) = &self.backoff {
                backoff.note(attempt == Attempt::Held);
            }
            if attempt != Attempt::Held || (retry > 8 && is_planted("cas: a grant to an impatient client")) {
                return Ok(Grant::new(entry, mode, Held::Plain));
            }
            cx.count_retry();
            let deadline = cx.deadline();
            if deadline != Deadline::NEVER && cx.endpoint().now_ns() >= deadline.0 {
                return Err(LockError::Timeout { entry });
            }
            match &self.backoff {
                Some(backoff) => backoff.wait(cx.endpoint(), retry).await,
                None => give_way().await,
            }
            retry = retry.saturating_add(1);
        }
    }

    async fn release(&self, cx: &mut OpContext, grant: Grant) -> Result<(), LockError> {
        let entry = grant.entry();
        if is_planted("cas: a release that arrives late") {
            let endpoint = cx.endpoint().clone();
            cx.endpoint().spawn(async move {
                endpoint.sleep(5_000).await;
                let _ = OpContext::new(endpoint).write_word(entry, CasWord::FREE.0).await;
            });
            return Ok(());
        }
        let (mode, start_ns) = (grant.mode(), self.stopwatch.start(cx.endpoint()));
        let (target, free) = (entry, CasWord::FREE.0);
        let verb = if self.swaps_back {
            let (compare, swap) = (self.mine.0, free);
            Verb::CompareSwap { target, compare, swap }
        } else {
            Verb::WriteWord { target, value: free }
        };
        let deadline = cx.deadline();
        cx.endpoint().execute(verb, &mut Buffer::default(), deadline).await?;
        self.stopwatch.stop(cx.endpoint(), mode, Phase::Leave, start_ns);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use farside_fabric::shm::{Fabric, Segment};

    use super::*;
    use crate::backoff::{Pace, WINDOW_ATTEMPTS};
    use crate::testing::{LOCK, Machine, Stage};

    const SMART: Pace = Pace::SMART;

    fn lock(machine: &Machine) -> CasLock {
        let inbox = machine.site.inbox(machine.endpoint.id());
        CasLock::with_backoff(inbox.take_seat(LOCK).expect("a seat"))
    }

    /// `t_max` in multiples of `t0`: jitter is less than one of them.
    fn limit(lock: &CasLock, machine: &Machine) -> u64 {
        let backoff = lock.backoff.as_ref().expect("it has one");
        backoff.wait_ns(&machine.endpoint, 100) / SMART.wait_min_ns
    }

    /// Whoever finds the lock held learns to wait for longer; whoever finds it free, for less.
    #[test]
    fn the_back_off_learns_from_each_attempt() {
        let stage = Stage::new();
        let machine = stage.machine();
        let lock = lock(&machine);
        let mut cx = machine.cx();
        stage.set_word(
            LOCK,
            CasWord::held_by(Holder {
                endpoint: 77,
                client: 1,
            })
            .0,
        );
        let attempts = u64::from(3 * WINDOW_ATTEMPTS);
        // The lock is given back when two windows have passed, and part of a third.
        let held = (machine.endpoint.clone(), cx.retry_meter());
        machine.endpoint.spawn(async move {
            let (endpoint, retries) = held;
            while retries.get() < attempts - 1 {
                endpoint.sleep(500).await;
            }
            let _ = OpContext::new(endpoint).write_word(LOCK, CasWord::FREE.0).await;
        });
        assert_eq!(limit(&lock, &machine), 1);
        let grant = stage.take(&lock, &mut cx, Mode::Exclusive);
        assert_eq!(cx.retries(), attempts - 1);
        assert_eq!(limit(&lock, &machine), 8);
        stage.give_back(&lock, &mut cx, grant);
        for window in [4, 2, 1, 1] {
            for _ in 0..WINDOW_ATTEMPTS {
                let grant = stage.take(&lock, &mut cx, Mode::Exclusive);
                stage.give_back(&lock, &mut cx, grant);
            }
            assert_eq!(limit(&lock, &machine), window);
        }
        assert_eq!(cx.retries(), attempts - 1, "nobody is in the way");
    }

    /// By a WRITE, or by a swap for the own word, which is an atomic more.
    #[test]
    fn a_release_is_one_verb() {
        for (swaps_back, cost) in [(false, [0, 1, 1, 0]), (true, [0, 0, 2, 0])] {
            let stage = Stage::new();
            let machine = stage.machine();
            let lock = lock(&machine).swapping_back(swaps_back);
            let (start, mut cx) = (machine.costs(), machine.cx());
            let grant = stage.take(&lock, &mut cx, Mode::Exclusive);
            assert_eq!(stage.word(LOCK), lock.mine.0);
            stage.give_back(&lock, &mut cx, grant);
            assert_eq!((machine.cost_since(&start), stage.word(LOCK)), (cost, CasWord::FREE.0));
        }
    }

    /// Also where the lock is found free in a plain call.
    #[test]
    fn the_back_off_learns_from_plain_calls() {
        let stage = Stage::new();
        let machine = stage.machine();
        let mut lock = lock(&machine);
        let backoff = lock.backoff.take().expect("it has one");
        (0..WINDOW_ATTEMPTS).for_each(|_| backoff.note(true));
        lock.backoff = Some(backoff);
        assert_eq!(limit(&lock, &machine), 2);
        let segment = Segment::anonymous(4096).expect("some memory");
        let mut cx = OpContext::new(Fabric::new(vec![segment]).endpoint().expect("a new client"));
        for _ in 0..WINDOW_ATTEMPTS {
            let grant = lock.acquire_now(&mut cx, LOCK, Mode::Exclusive).expect("it is free");
            assert!(lock.release_now(&mut cx, &grant));
        }
        assert_eq!(limit(&lock, &machine), 1);
    }
}
