//! The driver of a run: starts the processes, kills them, and looks at what they leave behind.
//!
//!  1. Make the segment, start the agent and the workers.
//!  2. Whenever enough acquisitions have been done, kill a worker and start another; sometimes two at once, sometimes
//!     the agent.
//!  3. When all acquisitions are done let the workers end, which they must do well.
//!  4. Take every lock, and compare the counters.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farside_fabric::host::{HostClock, entropy};
use farside_fabric::shm::{self, Segment, SegmentOptions};
use farside_fabric::{Deadline, OpContext, RemoteAddr};
use farside_lock::{LockKind, Locker, Mode};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::memory::{self, CLIENTS, LOCKS, WORKERS_MAX};
use super::worker::{ORDER, READY, Role};
use crate::on_this_thread;

/// How long nothing may happen that must happen at last. So long that a slow machine is no failure.
const PATIENCE_NS: u64 = 60_000_000_000;
/// How often the driver looks around.
const STEP: Duration = Duration::from_micros(500);

/// What happens in a run.
pub(crate) struct Plan {
    pub(crate) kind: LockKind,
    /// How many locks are acquired at least.
    pub(crate) acquisitions: u64,
    /// About how often somebody is killed meanwhile.
    pub(crate) kills: u64,
    pub(crate) workers: u64,
    pub(crate) seed: u64,
    /// Whether workers ask for a lock before they use it.
    pub(crate) is_asking: bool,
}

impl Plan {
    /// What the environment asks for; a short run if it says nothing.
    pub(crate) fn from_env(kind: LockKind) -> Self {
        let acquisitions = variable("ACQUISITIONS").unwrap_or(20_000);
        let workers = variable("WORKERS").unwrap_or(4);
        assert!(
            (1..=WORKERS_MAX).contains(&workers),
            "FARSIDE_LOCK_SOAK_WORKERS: 1 to {WORKERS_MAX}"
        );
        Self {
            kind,
            acquisitions,
            kills: variable("KILLS").unwrap_or(8),
            workers,
            seed: variable("SEED").unwrap_or_else(|| u64::from(u32::from_le_bytes(entropy()))),
            is_asking: true,
        }
    }
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let name = format!("FARSIDE_LOCK_SOAK_{name}");
    let text = std::env::var(&name).ok()?;
    let value = text.parse().ok();
    Some(value.unwrap_or_else(|| panic!("{name}: `{text}` cannot be read")))
}

/// A process of the run; killed when dropped.
struct Process {
    child: Child,
    complaints: PathBuf,
}

impl Process {
    fn start(folder: &Path, role: &Role, number: u64) -> Self {
        let complaints = folder.join(format!("{number}.stderr"));
        let file = std::fs::File::create(&complaints).expect("the folder is there");
        let child = Command::new(std::env::current_exe().expect("this test is a program"))
            .args(["soak::work_as_a_child", "--exact", "--nocapture", "--test-threads", "1"])
            .env(ORDER, format!("{}\n{}", segment_in(folder).display(), role.to_text()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn();
        Self {
            child: child.expect("this test is a program"),
            complaints,
        }
    }

    fn kill(&mut self) {
        self.expect_running();
        self.child.kill().expect("it has not been waited for");
        self.child.wait().expect("it is ours");
    }

    /// Panics if it has ended.
    fn expect_running(&mut self) {
        if let Some(status) = self.child.try_wait().expect("it is ours") {
            panic!("a worker has ended with {status}:\n{}", self.said());
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.complaints).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn segment_in(folder: &Path) -> PathBuf {
    folder.join("segment")
}

struct Run<'a> {
    plan: &'a Plan,
    folder: &'a Path,
    segment: Segment,
    random: Xoshiro256PlusPlus,
    workers: Vec<Process>,
    agent: Option<Process>,
    /// How many processes were started.
    started: u64,
    killed_workers: u64,
    killed_agents: u64,
}

/// Follows a plan to the end.
///
/// # Panics
/// If anything is not as it should be.
pub(crate) fn run(plan: &Plan) {
    println!(
        "{}: {} acquisitions, {} kills, seed {}",
        plan.kind.name(),
        plan.acquisitions,
        plan.kills,
        plan.seed
    );
    let folder = tempfile::tempdir().expect("a folder");
    let options = SegmentOptions::with_memory(memory::BYTES);
    let mut run = Run {
        plan,
        folder: folder.path(),
        segment: Segment::create(segment_in(folder.path()), options).expect("a segment"),
        random: Xoshiro256PlusPlus::seed_from_u64(plan.seed),
        workers: Vec::new(),
        agent: None,
        started: 0,
        killed_workers: 0,
        killed_agents: 0,
    };
    run.start_agent();
    for number in 0..plan.workers {
        let worker = run.start_worker(number);
        run.workers.push(worker);
    }
    run.disturb();
    run.finish();
    run.check();
    println!(
        "{}: {} acquired; {} workers and {} agents were killed",
        plan.kind.name(),
        run.acquired(),
        run.killed_workers,
        run.killed_agents
    );
}

impl Run<'_> {
    fn start(&mut self, role: &Role) -> Process {
        self.started += 1;
        Process::start(self.folder, role, self.started)
    }

    fn start_worker(&mut self, number: u64) -> Process {
        self.start(&Role::Worker {
            kind: self.plan.kind,
            is_asking: self.plan.is_asking,
            number,
        })
    }

    fn start_agent(&mut self) {
        let mut agent = self.start(&Role::Agent);
        let mut lines = BufReader::new(agent.child.stdout.take().expect("it was asked for")).lines();
        let is_ready = lines.any(|line| line.is_ok_and(|line| line.ends_with(READY)));
        assert!(is_ready, "no agent: {}", agent.said());
        self.agent = Some(agent);
    }

    fn word(&self, at: RemoteAddr) -> u64 {
        self.segment.region().word(at.offset()).load(Ordering::SeqCst)
    }

    fn clients(&self) -> core::ops::Range<u64> {
        0..self.plan.workers * CLIENTS
    }

    fn acquired(&self) -> u64 {
        self.clients().map(|client| self.word(memory::acquired(client))).sum()
    }

    fn below(&mut self, sides: u64) -> u64 {
        self.random.next_u64() % sides
    }

    /// Waits until so many locks were acquired.
    fn await_acquired(&mut self, wanted: u64) {
        let mut last = (0, HostClock.now_ns());
        loop {
            let acquired = self.acquired();
            if acquired >= wanted {
                return;
            }
            self.workers.iter_mut().for_each(Process::expect_running);
            self.agent.iter_mut().for_each(Process::expect_running);
            let now_ns = HostClock.now_ns();
            if acquired != last.0 {
                last = (acquired, now_ns);
            }
            assert!(
                now_ns - last.1 < PATIENCE_NS,
                "seed {}: nobody gets on after {acquired} acquisitions and {} deaths",
                self.plan.seed,
                self.killed_workers
            );
            #[expect(clippy::disallowed_methods, reason = "real processes take real time")]
            std::thread::sleep(STEP);
        }
    }

    fn disturb(&mut self) {
        let each = self.plan.acquisitions / (self.plan.kills + 1);
        let mut wanted = 0;
        for _ in 0..self.plan.kills {
            wanted += 1 + self.below(2 * each);
            self.await_acquired(wanted.min(self.plan.acquisitions));
            // Most often one worker; also two at once, or the agent while others may need it.
            match self.below(8) {
                0 => self.kill_workers(2),
                1 => {
                    self.kill_workers(1);
                    self.agent.take().expect("there is one").kill();
                    self.killed_agents += 1;
                    self.start_agent();
                }
                _ => self.kill_workers(1),
            }
        }
        self.await_acquired(self.plan.acquisitions);
    }

    fn kill_workers(&mut self, count: u64) {
        let first = self.below(self.plan.workers);
        let numbers = (0..count.min(self.plan.workers)).map(|step| (first + step) % self.plan.workers);
        let numbers: Vec<u64> = numbers.collect();
        for &number in &numbers {
            self.workers[number as usize].kill();
            self.killed_workers += 1;
        }
        for number in numbers {
            self.workers[number as usize] = self.start_worker(number);
        }
    }

    /// Lets the workers end.
    fn finish(&mut self) {
        let stop = self.segment.region().word(memory::stop().offset());
        stop.store(1, Ordering::SeqCst);
        let start_ns = HostClock.now_ns();
        for worker in &mut self.workers {
            let status = loop {
                if let Some(status) = worker.child.try_wait().expect("it is ours") {
                    break status;
                }
                let waited_ns = HostClock.now_ns() - start_ns;
                assert!(waited_ns < PATIENCE_NS, "seed {}: a worker hangs", self.plan.seed);
                #[expect(clippy::disallowed_methods, reason = "real processes take real time")]
                std::thread::sleep(STEP);
            };
            assert!(status.success(), "a worker ended with {status}:\n{}", worker.said());
        }
    }

    /// Every lock is free, and no count is lost.
    fn check(&self) {
        on_this_thread(async {
            let endpoint = shm::Fabric::new(vec![self.segment.clone()]).endpoint();
            let endpoint = endpoint.expect("an endpoint");
            let locker = Locker::new(self.plan.kind, &endpoint, &memory::site()).expect("it has all atomics");
            let mut cx = OpContext::new(endpoint);
            for lock in 0..LOCKS {
                for mode in [Mode::Exclusive, Mode::Shared] {
                    cx.set_deadline(Deadline(HostClock.now_ns() + PATIENCE_NS));
                    let grant = locker.acquire(&mut cx, memory::entry(lock), mode).await;
                    let grant = grant.unwrap_or_else(|error| panic!("seed {}: {error}", self.plan.seed));
                    cx.set_deadline(Deadline::NEVER);
                    locker.release(&mut cx, grant).await.expect("it has just come");
                }
            }
        });
        for lock in 0..LOCKS {
            let counted: u64 = (self.clients())
                .map(|client| self.word(memory::counted(client, lock)))
                .sum();
            let count = self.word(memory::count(lock));
            // Each client of whoever was killed may have counted and not said so.
            let open = CLIENTS * self.killed_workers;
            assert!(
                (counted..=counted + open).contains(&count),
                "seed {}, lock {lock}: {count} instead of {counted}, after {} deaths",
                self.plan.seed,
                self.killed_workers
            );
        }
    }
}
