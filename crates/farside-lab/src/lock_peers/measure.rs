//! What one member does in each test.

use core::sync::atomic::Ordering;

use farside_fabric::host::HostClock;
use farside_lock::Mode;
use farside_lock::backoff::give_way;

use super::board::{Board, Word};
use super::contender::Contender;
use crate::error::BenchError;
use crate::latency::median;

/// How often a lock that nobody else wants is acquired.
const CYCLES: u64 = 100_000;
/// After how many acquires of its own a member lets other tasks of its thread run.
const CYCLES_PER_TURN: u64 = 64;

/// What a member is asked to do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Task {
    /// Nanoseconds per acquire and release.
    Uncontended(Mode),
    /// Median and 99th percentile of a hand-over, in nanoseconds, and how many there were.
    HandOver {
        /// How long the other waits at least.
        wait_ns: u64,
        /// How often each has the lock.
        turns: u64,
    },
    /// How often this member had the lock, and its longest wait in nanoseconds.
    Share {
        /// How many take part.
        members: u64,
        /// How long.
        duration_ns: u64,
    },
}

impl Task {
    /// How many take part.
    pub(super) fn members(self) -> u64 {
        match self {
            Self::Uncontended(_) => 1,
            Self::HandOver { .. } => 2,
            Self::Share { members, .. } => members,
        }
    }

    pub(super) fn to_line(self) -> String {
        match self {
            Self::Uncontended(Mode::Exclusive) => "exclusive".to_owned(),
            Self::Uncontended(Mode::Shared) => "shared".to_owned(),
            Self::HandOver { wait_ns, turns } => format!("hand-over {wait_ns} {turns}"),
            Self::Share { members, duration_ns } => format!("share {members} {duration_ns}"),
        }
    }

    pub(super) fn of_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let name = words.next()?;
        let mut number = || words.next()?.parse().ok();
        Some(match name {
            "exclusive" => Self::Uncontended(Mode::Exclusive),
            "shared" => Self::Uncontended(Mode::Shared),
            "hand-over" => Self::HandOver {
                wait_ns: number()?,
                turns: number()?,
            },
            "share" => Self::Share {
                members: number()?,
                duration_ns: number()?,
            },
            _ => return None,
        })
    }

    /// Does it, as this member.
    pub(super) async fn run(
        self,
        lock: &mut impl Contender,
        board: &Board,
        member: u64,
    ) -> Result<Vec<f64>, BenchError> {
        match self {
            Self::Uncontended(mode) => uncontended(lock, mode).await,
            Self::HandOver { wait_ns, turns } => hand_over(lock, board, member, wait_ns, turns).await,
            Self::Share { members, duration_ns } => {
                board.word(Word::Ready).fetch_add(1, Ordering::SeqCst);
                board.await_at_least(Word::Ready, members).await;
                share(lock, duration_ns).await
            }
        }
    }
}

async fn uncontended(lock: &mut impl Contender, mode: Mode) -> Result<Vec<f64>, BenchError> {
    let start_ns = HostClock.now_ns();
    for _ in 0..CYCLES {
        lock.lock(mode).await?;
        lock.unlock().await?;
    }
    let passed_ns = HostClock.now_ns() - start_ns;
    Ok(vec![passed_ns as f64 / CYCLES as f64])
}

/// The lock goes to and fro. Nobody releases it before the other has asked, nor asks again before the other
/// has it: what is measured is the hand-over, and no lock can skip one.
async fn hand_over(
    lock: &mut impl Contender,
    board: &Board,
    member: u64,
    wait_ns: u64,
    turns: u64,
) -> Result<Vec<f64>, BenchError> {
    let other = 1 - member;
    let released = board.word(Word::ReleasedNs);
    let mut latencies = Vec::new();
    if member == 1 {
        // The first turn is the other's.
        board.await_at_least(Word::Granted, 1).await;
    }
    for turn in 1..=turns {
        board.word(Word::Asked(member)).store(turn, Ordering::SeqCst);
        lock.lock(Mode::Exclusive).await?;
        let now_ns = HostClock.now_ns();
        if (member, turn) != (0, 1) {
            latencies.push(now_ns.saturating_sub(released.load(Ordering::SeqCst)) as f64);
        }
        let granted = board.word(Word::Granted).fetch_add(1, Ordering::SeqCst) + 1;
        let is_last = granted == 2 * turns;
        if !is_last {
            board.await_at_least(Word::Asked(other), turn + member).await;
            let since_ns = HostClock.now_ns();
            while HostClock.now_ns() < since_ns + wait_ns {
                core::hint::spin_loop();
            }
        }
        released.store(HostClock.now_ns(), Ordering::SeqCst);
        lock.unlock().await?;
        if !is_last {
            board.await_at_least(Word::Granted, granted + 1).await;
        }
    }
    latencies.sort_unstable_by(f64::total_cmp);
    let p99 = latencies[latencies.len() * 99 / 100];
    let count = latencies.len() as f64;
    Ok(vec![median(latencies), p99, count])
}

async fn share(lock: &mut impl Contender, duration_ns: u64) -> Result<Vec<f64>, BenchError> {
    let mut now_ns = HostClock.now_ns();
    let end_ns = now_ns + duration_ns;
    let (mut count, mut longest_ns) = (0_u64, 0);
    while now_ns < end_ns {
        lock.lock(Mode::Exclusive).await?;
        let granted_ns = HostClock.now_ns();
        longest_ns = longest_ns.max(granted_ns - now_ns);
        count += 1;
        lock.unlock().await?;
        if count.is_multiple_of(CYCLES_PER_TURN) {
            give_way().await;
        }
        now_ns = HostClock.now_ns();
    }
    Ok(vec![count as f64, longest_ns as f64])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_survives_the_way_to_a_worker() {
        for task in [
            Task::Uncontended(Mode::Shared),
            Task::Uncontended(Mode::Exclusive),
            Task::HandOver { wait_ns: 7, turns: 9 },
            Task::Share {
                members: 4,
                duration_ns: 10,
            },
        ] {
            assert_eq!(Task::of_line(&task.to_line()), Some(task));
        }
        assert_eq!(Task::of_line("share 4"), None);
    }
}
