//! Starts the processes of all contenders, tells them in turn what to do, and takes medians.

use std::path::Path;

use farside_fabric::shm::robust::RobustMutex;
use farside_fabric::shm::{self, Segment};
use farside_lock::service::Agent;
use farside_lock::{LockKind, Mode};
use tokio::sync::oneshot;

use super::LockPeersOptions;
use super::board::{Board, MEMBERS_MAX, site};
use super::contender::{PARKING_LOT, PTHREAD_ROBUST};
use super::measure::Task;
use super::report::{HandOver, Row, Share, to_table};
use super::worker::MUTEX_FILE;
use crate::error::BenchError;
use crate::latency::median;
use crate::progress::Progress;
use crate::stage::machine::on_this_thread;
use crate::worker_process::{Folder, WorkerProcess};

/// How long the other waits before a hand-over: so short that it still looks, so long that it sleeps.
const SHORT_WAIT_NS: u64 = 1_000;
const LONG_WAIT_NS: u64 = 300_000;
const SHORT_TURNS: u64 = 2_000;
const LONG_TURNS: u64 = 500;
/// How many processes share a lock.
const PARTIES: [u64; 2] = [2, MEMBERS_MAX];

/// The agent of a lock service, in a thread of this process.
struct AgentThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<Result<(), BenchError>>>,
}

impl AgentThread {
    fn start(segment: Segment) -> Self {
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            on_this_thread(async move {
                let endpoint = shm::Fabric::new(vec![segment]).endpoint()?;
                let agent = Agent::start(endpoint, &site()).await?;
                tokio::select! {
                    ended = agent.serve() => Err(ended.into()),
                    _ = stopped => Ok(()),
                }
            })?
        });
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for AgentThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        // What it has to say a client has met before.
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// One of the locks, and its processes.
struct Contender {
    name: &'static str,
    kind: Option<LockKind>,
    workers: Vec<WorkerProcess>,
    board: Board,
    // Behind the workers: it goes when they have ended.
    _agent: Option<AgentThread>,
    _folder: Folder,
}

impl Contender {
    fn start(name: &'static str, kind: Option<LockKind>, parent: &Path) -> Result<Self, BenchError> {
        let folder = Folder::make(parent, name)?;
        let board = Board::create(folder.path())?;
        if name == PTHREAD_ROBUST {
            let made = RobustMutex::create(&folder.path().join(MUTEX_FILE));
            made.map_err(BenchError::system("make a robust mutex"))?;
        }
        let agent = kind
            .is_some_and(LockKind::asks_service)
            .then(|| AgentThread::start(board.segment().clone()));
        let processes = if name == PARKING_LOT { 1 } else { MEMBERS_MAX };
        let workers = (0..processes).map(|member| {
            let mut arguments: Vec<std::ffi::OsString> = vec!["lock-worker".into(), name.into()];
            arguments.extend([folder.path().into(), member.to_string().into()]);
            WorkerProcess::start(arguments)
        });
        Ok(Self {
            name,
            kind,
            workers: workers.collect::<Result<_, _>>()?,
            board,
            _agent: agent,
            _folder: folder,
        })
    }

    /// Has it do a task once: what each member answers, one after the other.
    fn run(&mut self, task: Task) -> Result<Vec<f64>, BenchError> {
        self.board.clear();
        let count = self.workers.len().min(task.members() as usize);
        for worker in &mut self.workers[..count] {
            worker.tell(&task.to_line())?;
        }
        let mut numbers = Vec::new();
        for worker in &mut self.workers[..count] {
            numbers.extend(worker.answer()?);
        }
        Ok(numbers)
    }

    fn has_readers(&self) -> bool {
        match self.kind {
            Some(kind) => kind.is_shared(),
            None => self.name == PARKING_LOT,
        }
    }

    /// One round of all tests.
    fn round(&mut self, duration_ns: u64, values: &mut Values) -> Result<(), BenchError> {
        let exclusive = self.run(Task::Uncontended(Mode::Exclusive))?;
        values.exclusive_ns.push(exclusive[0]);
        if self.has_readers() {
            values.shared_ns.push(self.run(Task::Uncontended(Mode::Shared))?[0]);
        }
        for (index, (wait_ns, turns)) in [(SHORT_WAIT_NS, SHORT_TURNS), (LONG_WAIT_NS, LONG_TURNS)]
            .into_iter()
            .enumerate()
        {
            let numbers = self.run(Task::HandOver { wait_ns, turns })?;
            // Both saw as many, give or take one.
            values.hand_over_p50[index].push((numbers[0] + numbers[3]) / 2.0);
            values.hand_over_p99[index].push((numbers[1] + numbers[4]) / 2.0);
        }
        for (index, members) in PARTIES.into_iter().enumerate() {
            let numbers = self.run(Task::Share { members, duration_ns })?;
            let counts: Vec<f64> = numbers.iter().step_by(2).copied().collect();
            let waits = numbers.iter().skip(1).step_by(2);
            let total: f64 = counts.iter().sum();
            let least = counts.iter().copied().fold(f64::INFINITY, f64::min);
            values.acquires_s[index].push(total * 1e9 / duration_ns as f64);
            values.least_share[index].push(least * members as f64 / total);
            values.longest_wait_ms[index].push(waits.copied().fold(0.0, f64::max) / 1e6);
        }
        Ok(())
    }
}

/// What the rounds brought.
#[derive(Default)]
struct Values {
    exclusive_ns: Vec<f64>,
    shared_ns: Vec<f64>,
    hand_over_p50: [Vec<f64>; 2],
    hand_over_p99: [Vec<f64>; 2],
    acquires_s: [Vec<f64>; 2],
    least_share: [Vec<f64>; 2],
    longest_wait_ms: [Vec<f64>; 2],
}

impl Values {
    fn into_row(self, name: &'static str, rounds: u64) -> Row {
        let Self {
            hand_over_p50: [short_p50, long_p50],
            hand_over_p99: [short_p99, long_p99],
            ..
        } = self;
        let hand_over = |p50, p99| HandOver {
            p50: median(p50) / 1e3,
            p99: median(p99) / 1e3,
        };
        let shares = PARTIES.into_iter().zip(self.acquires_s).zip(self.least_share);
        let shares = shares.zip(self.longest_wait_ms);
        Row {
            kind: "lock-peers",
            lock: name,
            rounds,
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            exclusive_ns: median(self.exclusive_ns),
            shared_ns: (!self.shared_ns.is_empty()).then(|| median(self.shared_ns)),
            hand_over_short_us: hand_over(short_p50, short_p99),
            hand_over_long_us: hand_over(long_p50, long_p99),
            shares: shares
                .map(|(((members, acquires_s), least_share), longest_wait_ms)| Share {
                    members,
                    acquires_s: median(acquires_s),
                    least_share: median(least_share),
                    longest_wait_ms: median(longest_wait_ms),
                })
                .collect(),
        }
    }
}

/// Measures, and returns what to print.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &LockPeersOptions, progress: &Progress) -> Result<String, BenchError> {
    if options.rounds == 0 {
        return Err(BenchError::argument("--rounds is at least 1"));
    }
    let folder = Folder::make(&options.folder, "locks")?;
    let ours = options.locks.iter().map(|&kind| (kind.name(), Some(kind)));
    let names: Vec<_> = [(PARKING_LOT, None), (PTHREAD_ROBUST, None)]
        .into_iter()
        .chain(ours)
        .collect();
    let mut contenders = Vec::new();
    for &(name, kind) in &names {
        contenders.push((Contender::start(name, kind, folder.path())?, Values::default()));
    }
    // One more round than counts: in the first one everybody gets to know everybody.
    for round in 0..=options.rounds {
        for (step, (contender, values)) in (0..).zip(&mut contenders) {
            progress.label(format!("round {round} of {}: {}", options.rounds, contender.name));
            progress.set((round * names.len() as u64 + step) * 100 / ((options.rounds + 1) * names.len() as u64));
            contender.round(options.duration_ns, values)?;
            if round == 0 {
                *values = Values::default();
            }
        }
    }
    let rows: Vec<Row> = contenders
        .into_iter()
        .map(|(contender, values)| values.into_row(contender.name, options.rounds))
        .collect();
    Ok(if options.is_json {
        let lines: Vec<String> = rows.iter().map(Row::to_json).collect();
        lines.join("\n")
    } else {
        to_table(&rows)
    })
}
