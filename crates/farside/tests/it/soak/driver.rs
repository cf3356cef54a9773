//! The driver of a run: starts the processes, does things to them, and waits until all is well again.
//!
//! On the path: a test hands it a plan; it ends with the verdict.
//!
//!  1. Make the memory, and open the store once, so that the workers find it.
//!  2. Start the workers. Until the time is over and each kind of fault has come: fire one, wait a little. Each kind that was
//!     asked for comes once before any comes twice. Faults overlap: what has been stopped or killed comes back later.
//!  3. No more faults. Every worker must complete operations while all others do the same, and then end well.
//!  4. Read everything; the verdict.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use farside_fabric::host::HostClock;
use farside_fabric::shm::{Segment, SegmentOptions};
use farside_kv::stack;
use farside_kv::{PoolSpec, Store};
use farside_sync::Scheme;

use super::cluster::{Cluster, Repair};
use super::dice::Dice;
use super::folder::Folder;
use super::log::History;
use super::plan::{Fabric, Fault, Plan};
use super::process::{MemoryNode, Worker};
use super::verdict;
use super::worker::{COMBINED, OPENS_AGAIN, Order, POOL, config};

const MIB: u64 = 1 << 20;
/// Memory of a node. A stopped client can let the others use up the smaller.
const MEMORIES: [u64; 2] = [24 * MIB, 256 * MIB];
/// Of a member of a mirrored node, which is copied whenever one comes back.
const MIRRORED_MEMORIES: [u64; 2] = [24 * MIB, 64 * MIB];
/// How long anything may take that must happen at last. So long that a slow machine is no failure.
const PATIENCE_NS: u64 = 60 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;
/// How often the driver looks around.
const STEP_NS: u64 = 5 * MS_NS;
/// How soon another fault is tried when there is nobody whom one could hit.
const RETRY_NS: u64 = 20 * MS_NS;
/// How long a storm may take longer than it was to, so that each kind of fault comes; and for each fault that was asked for.
const STORM_NS_MAX: u64 = 600 * SECOND_NS;
const KILL_NS_MAX: u64 = 10 * SECOND_NS;

/// What is to be undone, to whom. Whoever was killed meanwhile is let alone.
#[derive(Debug)]
enum Undo {
    Resume { slot: usize, incarnation: u64 },
    Replace { slot: usize },
    ResumeNode { node: usize, life: u64 },
    RestartNode { node: usize },
    Repair(Repair),
}

/// Where a worker's memory is.
struct Way {
    pool: String,
    /// The pool is used through the driver's gateway.
    is_through_gateway: bool,
    is_mapped: bool,
}

struct Run<'p> {
    plan: &'p Plan,
    dice: Dice,
    start_ns: u64,
    /// When the storm began and ended.
    storm_ns: (u64, u64),
    nodes: Vec<MemoryNode>,
    cluster: Option<Cluster>,
    gateway: Option<SocketAddr>,
    /// One for each worker.
    ways: Vec<Way>,
    /// `None` between a death and its replacement.
    workers: Vec<Option<Worker>>,
    undo: Vec<(u64, Undo)>,
    fired: BTreeMap<Fault, u64>,
    /// How many workers were stopped or killed in the middle of an operation.
    caught: u64,
    logs: Vec<PathBuf>,
    // Last, so that it goes when the processes are gone.
    folder: Folder,
}

/// Follows a plan to the end; returns the history, which was found in order.
///
/// # Panics
/// If anything is not as it should be. The folder is kept then.
pub(crate) fn run(plan: &Plan) -> History {
    println!("seed {}: {}", plan.seed, plan.command());
    let folder = Folder::create(plan);
    let mut dice = Dice::new(plan.seed);
    let memories = match plan.fabric {
        Fabric::Mirrored => MIRRORED_MEMORIES,
        Fabric::Shm | Fabric::Tcp => MEMORIES,
    };
    let memory = memories[dice.roll(2) as usize];
    let mut nodes = Vec::new();
    let mut cluster = None;
    let ways: Vec<Way> = match plan.fabric {
        Fabric::Shm => {
            let path = folder.file("segment");
            Segment::create(&path, SegmentOptions::with_memory(memory)).expect("there is room");
            let pool = format!("shm:{}", path.display());
            (0..plan.workers).map(|_| Way::mapped(pool.clone())).collect()
        }
        Fabric::Mirrored => {
            let mut started = Cluster::start(&folder, &format!("{}MiB", memory / MIB), &mut dice);
            wait_until("all members are in their groups", || {
                started.expect_running();
                started.is_whole()
            });
            let cluster = cluster.insert(started);
            (0..plan.workers)
                .map(|slot| way_to_cluster(cluster, slot, plan.workers))
                .collect()
        }
        Fabric::Tcp => {
            for index in 0..1 + dice.roll(2) {
                let path = folder.file(&format!("node-{index}.segment"));
                nodes.push(MemoryNode::start(path, &format!("{}MiB", memory / MIB)));
            }
            ways_to(&nodes, plan.workers, &mut dice)
        }
    };
    match &cluster {
        None => println!("{} nodes of {} MiB", nodes.len().max(1), memory / MIB),
        Some(cluster) => {
            let members: Vec<usize> = cluster.groups.iter().map(|group| group.members.len()).collect();
            println!("groups of {members:?} members of {} MiB", memory / MIB);
        }
    }
    for (slot, way) in ways.iter().enumerate() {
        println!("worker {slot}: {}", way.pool);
    }
    let mut run = Run {
        plan,
        dice,
        start_ns: HostClock.now_ns(),
        storm_ns: (0, 0),
        nodes,
        cluster,
        gateway: None,
        workers: Vec::new(),
        ways,
        undo: Vec::new(),
        fired: BTreeMap::new(),
        caught: 0,
        logs: Vec::new(),
        folder,
    };
    run.open_once();
    if let Some(cluster) = &mut run.cluster {
        run.gateway = Some(cluster.start_gateway(&run.folder, plan.scheme.name()));
    }
    for slot in 0..plan.workers {
        let worker = run.start_worker(slot);
        run.workers.push(Some(worker));
    }
    run.storm();
    run.calm();
    run.end_workers();
    run.judge()
}

/// Most workers connect; if there are enough, one maps all segments, and one maps the first of two.
fn ways_to(nodes: &[MemoryNode], workers: usize, dice: &mut Dice) -> Vec<Way> {
    let mapped = |node: &MemoryNode| format!("shm:{}", node.segment.display());
    let remote = |node: &MemoryNode| format!("tcp:{}", node.address);
    let all = |way: &dyn Fn(&MemoryNode) -> String| nodes.iter().map(way).collect::<Vec<_>>().join(",");
    let has_mapped = workers > 2 && dice.roll(4) != 0;
    let has_mixed = workers > 3 && nodes.len() > 1 && dice.roll(2) == 0;
    (0..workers)
        .map(|slot| match slot {
            0 if has_mapped => Way::mapped(all(&mapped)),
            1 if has_mixed => Way::remote(format!("{},{}", mapped(&nodes[0]), remote(&nodes[1]))),
            _ => Way::remote(all(&remote)),
        })
        .collect()
}

/// The first worker uses a gateway; others ask etcd where the members are, or are told. The last one is told.
fn way_to_cluster(cluster: &Cluster, slot: usize, workers: usize) -> Way {
    match slot {
        _ if slot + 1 == workers => Way::remote(cluster.list()),
        0 => Way {
            is_through_gateway: true,
            ..Way::remote(cluster.name())
        },
        _ if slot % 2 == 1 => Way::remote(cluster.name()),
        _ => Way::remote(cluster.list()),
    }
}

impl Way {
    fn mapped(pool: String) -> Self {
        Self {
            is_mapped: true,
            ..Self::remote(pool)
        }
    }

    fn remote(pool: String) -> Self {
        Self {
            pool,
            is_through_gateway: false,
            is_mapped: false,
        }
    }
}

/// Clients of mirrored nodes go on with the next primary: no node is ever gone for them. Whom nobody has stopped is not cut off either.
fn expect_nobody_lost_the_store(plan: &Plan, history: &History) {
    let are_workers_hit = plan.faults.iter().any(|fault| fault.is_of_workers());
    let lost = (history.remarks.keys())
        .find(|remark| remark.starts_with(OPENS_AGAIN) && (!are_workers_hit || remark.ends_with("is gone")));
    assert_eq!(lost, None, "a client of mirrored nodes lost the store");
}

fn pause() {
    #[expect(clippy::disallowed_methods, reason = "real processes take real time")]
    std::thread::sleep(Duration::from_nanos(STEP_NS));
}

/// Looks again and again until it is so.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end_ns = HostClock.now_ns() + PATIENCE_NS;
    while !is_so() {
        assert!(
            HostClock.now_ns() < end_ns,
            "waited for a minute, and still not: {what}"
        );
        pause();
    }
}

impl Run<'_> {
    /// The pool as the last worker sees it: over TCP, if anybody does.
    fn pool(&self) -> &str {
        &self.ways.last().expect("there are workers").pool
    }

    fn open_once(&self) {
        let spec: PoolSpec = self.pool().parse().expect("it is a list of nodes");
        let made_of = (self.plan.index, self.plan.scheme);
        let opened = stack::run(spec.locate().expect("they are there"), None, async |endpoint| {
            Store::open(endpoint, config(made_of)).await?.close().await
        });
        opened
            .expect("nothing has happened yet")
            .expect("nothing has happened yet");
    }

    fn start_worker(&mut self, slot: usize) -> Worker {
        let incarnation = self.logs.len() as u64 + 1;
        let log = self.folder.file(&format!("worker-{slot}-{incarnation}.log"));
        self.logs.push(log.clone());
        let way = &self.ways[slot];
        Worker::start(Order {
            pool: way.pool.clone(),
            gateway: self.gateway.filter(|_| way.is_through_gateway),
            is_mapped: way.is_mapped,
            log,
            seed: self.dice.word(),
            incarnation,
            start_ns: self.start_ns,
            made_of: (self.plan.index.name().to_owned(), self.plan.scheme.name().to_owned()),
            lies: self.plan.lies,
        })
    }

    /// Faults, until the time is over.
    fn storm(&mut self) {
        let end_ns = HostClock.now_ns() + self.plan.seconds * SECOND_NS;
        self.storm_ns.0 = HostClock.now_ns();
        let mut deck = self.plan.faults.clone();
        self.dice.shuffle(&mut deck);
        let mut next_ns = HostClock.now_ns() + self.dice.between(300, 700) * MS_NS;
        let late_ns = end_ns + STORM_NS_MAX + self.plan.kills * KILL_NS_MAX;
        while HostClock.now_ns() < end_ns || (self.lacks_faults(&deck) && HostClock.now_ns() < late_ns) {
            self.undo_until(HostClock.now_ns());
            self.expect_running();
            if HostClock.now_ns() >= next_ns && !self.plan.faults.is_empty() {
                let any = self.dice.roll(self.plan.faults.len() as u64) as usize;
                let fault = deck.pop().unwrap_or(self.plan.faults[any]);
                next_ns = HostClock.now_ns();
                if self.fire(fault) {
                    *self.fired.entry(fault).or_default() += 1;
                    next_ns += self.dice.between(100, 900) * MS_NS;
                } else {
                    // Nobody is there whom it could hit; it keeps a turn, unless it has had one.
                    if !self.fired.contains_key(&fault) {
                        deck.insert(0, fault);
                    }
                    next_ns += RETRY_NS;
                }
            }
            pause();
        }
        self.undo_until(u64::MAX);
        self.storm_ns.1 = HostClock.now_ns();
        for &fault in &self.plan.faults {
            let count = self.fired.get(&fault).copied().unwrap_or(0);
            println!("{fault:?}: {count} times");
            assert!(
                count > 0,
                "{fault:?} was asked for and never came: the run is too short"
            );
        }
        assert!(!self.lacks_faults(&[]), "not as many faults came as were asked for");
        println!("{} workers were hit in the middle of an operation", self.caught);
    }

    /// Whether a kind of fault has not come yet, or not as many as were asked for.
    fn lacks_faults(&self, deck: &[Fault]) -> bool {
        if self.plan.faults.is_empty() {
            return false;
        }
        let is_of_workers = self.plan.faults.iter().all(|fault| fault.is_of_workers());
        let counted = (self.fired.iter()).filter(|(fault, _)| is_of_workers || !fault.is_of_workers());
        !deck.is_empty() || counted.map(|(_, count)| count).sum::<u64>() < self.plan.kills
    }

    fn one_of(&mut self, candidates: Vec<usize>) -> Option<usize> {
        (!candidates.is_empty()).then(|| candidates[self.dice.roll(candidates.len() as u64) as usize])
    }

    fn one_worker(&mut self, suits: impl Fn(&Worker) -> bool) -> Option<usize> {
        let suits = |slot: &usize| self.workers[*slot].as_ref().is_some_and(&suits);
        self.one_of((0..self.workers.len()).filter(suits).collect())
    }

    fn one_node(&mut self, suits: impl Fn(&MemoryNode) -> bool) -> Option<usize> {
        let suits = |node: &usize| self.nodes[*node].is_up() && suits(&self.nodes[*node]);
        self.one_of((0..self.nodes.len()).filter(suits).collect())
    }

    /// Returns whether there was anybody to hit.
    fn fire(&mut self, fault: Fault) -> bool {
        let undo = match fault {
            Fault::Kill => self.one_worker(|_| true).map(|slot| {
                let mut worker = self.workers[slot].take().expect("it was chosen among those there");
                self.caught += u64::from(worker.is_stopped() || worker.stop());
                worker.kill();
                (self.dice.between(0, 400), Undo::Replace { slot })
            }),
            Fault::Stop => self.one_worker(|worker| !worker.is_stopped()).map(|slot| {
                let worker = self.workers[slot].as_mut().expect("it was chosen among those there");
                self.caught += u64::from(worker.stop());
                let incarnation = worker.incarnation();
                let lease_ms = POOL.lease_ns / MS_NS;
                let stop_ms = self.dice.between(2 * lease_ms, 4 * lease_ms);
                (stop_ms, Undo::Resume { slot, incarnation })
            }),
            Fault::NodeKill => self.one_node(|_| true).map(|node| {
                self.nodes[node].kill();
                (self.dice.between(0, 600), Undo::RestartNode { node })
            }),
            Fault::NodeStop => self.one_node(|node| !node.is_stopped()).map(|node| {
                self.nodes[node].stop();
                let life = self.nodes[node].life;
                (self.dice.between(100, 1800), Undo::ResumeNode { node, life })
            }),
            _ => (self.cluster.as_mut())
                .and_then(|cluster| cluster.fire(fault, &mut self.dice))
                .map(|(after_ms, repair)| (after_ms, Undo::Repair(repair))),
        };
        let Some((after_ms, undo)) = undo else { return false };
        self.note(&format!("{fault:?}, to be undone after {after_ms} ms: {undo:?}"));
        self.undo.push((HostClock.now_ns() + after_ms * MS_NS, undo));
        true
    }

    /// Writes down what is done, for whoever looks into a failed run: the logs have the same clock.
    fn note(&self, line: &str) {
        let path = self.folder.file("faults.log");
        let file = std::fs::File::options().create(true).append(true).open(path);
        writeln!(file.expect("the folder is there"), "{} {line}", HostClock.now_ns()).expect("there is room");
    }

    /// Brings back whatever is due.
    fn undo_until(&mut self, now_ns: u64) {
        let (due, later) = std::mem::take(&mut self.undo)
            .into_iter()
            .partition(|&(due_ns, _)| due_ns <= now_ns);
        self.undo = later;
        for (_, undo) in due {
            self.note(&format!("{undo:?}"));
            match undo {
                Undo::Replace { slot } => self.workers[slot] = Some(self.start_worker(slot)),
                Undo::Resume { slot, incarnation } => {
                    if let Some(worker) = &mut self.workers[slot]
                        && worker.incarnation() == incarnation
                    {
                        worker.resume();
                    }
                }
                Undo::RestartNode { node } => self.nodes[node].restart(),
                Undo::ResumeNode { node, life } => {
                    let node = &mut self.nodes[node];
                    if node.is_up() && node.life == life {
                        node.resume();
                    }
                }
                Undo::Repair(repair) => {
                    let cluster = self.cluster.as_mut();
                    cluster.expect("it was damaged").repair(&repair);
                }
            }
        }
    }

    /// Nobody ends but by our hand.
    fn expect_running(&mut self) {
        self.workers.iter_mut().flatten().for_each(Worker::expect_running);
        self.nodes.iter_mut().for_each(MemoryNode::expect_running);
        if let Some(cluster) = &mut self.cluster {
            cluster.expect_running();
        }
    }

    /// Every group has all its members again.
    fn wait_for_groups(&mut self) {
        let Some(cluster) = &mut self.cluster else { return };
        let end_ns = HostClock.now_ns() + PATIENCE_NS;
        while !cluster.is_whole() || !cluster.is_whole_for_a_user() {
            let is_late = HostClock.now_ns() > end_ns;
            assert!(
                !is_late,
                "waited for a minute, and a group is not whole: {}",
                cluster.text()
            );
            cluster.expect_running();
            pause();
        }
    }

    /// Nothing happens any more: everybody must get on.
    fn calm(&mut self) {
        let before: Vec<u64> = self.workers.iter_mut().flatten().map(Worker::answered).collect();
        assert_eq!(before.len(), self.plan.workers, "all have come back");
        let start_ns = HostClock.now_ns();
        wait_until("every worker makes progress once there are no more faults", || {
            self.expect_running();
            let mut now = self.workers.iter_mut().flatten().map(Worker::answered).zip(&before);
            now.all(|(now, before)| now - before >= self.plan.last_operations)
        });
        let passed_ms = (HostClock.now_ns() - start_ns) / MS_NS;
        let now: Vec<u64> = self.workers.iter_mut().flatten().map(Worker::answered).collect();
        let answered: Vec<u64> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
        self.wait_for_groups();
        println!("calm: all made progress within {passed_ms} ms (operations answered: {answered:?})");
    }

    /// The gateway is the last one to leave: a worker may wait for it.
    fn end_workers(&mut self) {
        for worker in self.workers.iter_mut().flatten() {
            worker.ask_to_end();
            wait_until("a worker ends when it is told to", || worker.has_ended_well());
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.end_gateway();
        }
    }

    fn judge(self) -> History {
        let mut logs = self.logs.clone();
        logs.push(self.folder.file("last.log"));
        let scheme = self.plan.scheme;
        let keys = verdict::read_everything(
            self.pool(),
            (self.plan.index, scheme),
            self.start_ns,
            logs.last().expect("it was pushed"),
        );
        let name = self.cluster.as_ref().map(Cluster::name);
        let by_network = verdict::fsck(name.as_deref().unwrap_or(self.pool()));
        let mut reports = vec![by_network];
        if let Some(cluster) = self.cluster {
            // What is left in the files.
            let pools = cluster.terminate();
            reports.extend(pools.iter().map(|pool| verdict::fsck(pool)));
        }
        if !self.nodes.is_empty() {
            let paths: Vec<String> = (self.nodes.iter())
                .map(|node| format!("shm:{}", node.segment.display()))
                .collect();
            self.nodes.into_iter().for_each(MemoryNode::terminate);
            // What is left in the files.
            reports.push(verdict::fsck(&paths.join(",")));
        }
        let history = verdict::judge(&logs, &reports, keys, &self.folder);
        if self.plan.fabric == Fabric::Mirrored {
            expect_nobody_lost_the_store(self.plan, &history);
        }
        let (silence_ns, since_ns) = history.longest_silence(self.storm_ns);
        println!(
            "the longest time without an answer in the storm: {} ms, from {since_ns} on",
            silence_ns / MS_NS
        );
        // With credits hardly anybody queues up, as two cores let few meet.
        let is_combining = matches!(scheme, Scheme::Cider(parts) if parts.combines && !parts.switches);
        assert!(
            !is_combining || history.remarks.contains_key(COMBINED),
            "no write was combined with another, and that is what the run is for"
        );
        history
    }
}
