//! What clients of a timed site spend their time on: all of it, phase by phase.

use std::rc::Rc;

use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{Endpoint, NodeId, OpContext, RemoteAddr};
use farside_lock::phases::Phase;
use farside_lock::{LockKind, LockOptions, Locker, Mode, Site};

const LOCK: RemoteAddr = RemoteAddr::new(NodeId::new(0), 64);
const PHASES: [Phase; Phase::COUNT] = [
    Phase::Enter,
    Phase::Retry,
    Phase::Introduce,
    Phase::AwaitWriter,
    Phase::AwaitReaders,
    Phase::AwaitTurn,
    Phase::Leave,
    Phase::Pass,
];

/// One client, and what its site has noted.
struct Client {
    endpoint: Endpoint,
    site: Site,
    locker: Locker,
}

impl Client {
    fn new(sim: &Sim, name: &str) -> Rc<Self> {
        let endpoint = sim.endpoint(sim.add_compute_node());
        let site = Site::timed(LockOptions::default());
        let kind = LockKind::by_name(name).expect("a registered lock");
        let locker = Locker::new(kind, &endpoint, &site).expect("it has all atomics");
        Rc::new(Self { endpoint, site, locker })
    }

    /// Takes the lock, and gives it back after some time. What was spent on either is all that was noted.
    async fn section(&self, mode: Mode, inside_ns: u64) {
        let mut cx = OpContext::new(self.endpoint.clone());
        let (start_ns, before) = (self.endpoint.now_ns(), self.sum(mode));
        let grant = self
            .locker
            .acquire(&mut cx, LOCK, mode)
            .await
            .expect("the node is there");
        let (held_ns, held) = (self.endpoint.now_ns(), self.sum(mode));
        assert_eq!(held - before, held_ns - start_ns, "the acquire");
        self.endpoint.sleep(inside_ns).await;
        let start_ns = self.endpoint.now_ns();
        self.locker.release(&mut cx, grant).await.expect("the node is there");
        assert_eq!(self.sum(mode) - held, self.endpoint.now_ns() - start_ns, "the release");
    }

    fn spent_ns(&self, mode: Mode, phase: Phase) -> u64 {
        self.site.phases().expect("it is timed").spent_ns(mode, phase)
    }

    fn sum(&self, mode: Mode) -> u64 {
        PHASES.iter().map(|&phase| self.spent_ns(mode, phase)).sum()
    }

    /// The phases that took any time.
    fn noted(&self, mode: Mode) -> Vec<Phase> {
        PHASES
            .into_iter()
            .filter(|&phase| self.spent_ns(mode, phase) > 0)
            .collect()
    }
}

/// The phases of one client, and of another that comes while the first holds the lock.
fn two_sections(name: &str, modes: [Mode; 2]) -> [Vec<Phase>; 2] {
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(4096);
    let clients = [Client::new(&sim, name), Client::new(&sim, name)];
    for (index, client) in clients.iter().enumerate() {
        let (client, mode) = (Rc::clone(client), modes[index]);
        client.endpoint.clone().spawn(async move {
            client.endpoint.sleep(10_000 * index as u64).await;
            client.section(mode, 50_000).await;
        });
    }
    sim.run_until_idle();
    [0, 1].map(|index| {
        let (client, mode) = (&clients[index], modes[index]);
        let phases = client.site.phases().expect("it is timed");
        assert_eq!(phases.acquires(mode), 1, "{name}");
        client.noted(mode)
    })
}

#[test]
fn locks_that_retry_enter_once_and_try_again() {
    for name in ["cas", "cas-backoff", "dslr", "dslr-plus", "dslr-polling"] {
        let [first, second] = two_sections(name, [Mode::Exclusive; 2]);
        assert_eq!(first, [Phase::Enter, Phase::Leave], "{name}");
        assert_eq!(second, [Phase::Enter, Phase::Retry, Phase::Leave], "{name}");
    }
}

#[test]
fn a_shiftlock_has_phases_of_its_own() {
    use Mode::{Exclusive, Shared};
    use Phase::{AwaitReaders, AwaitTurn, AwaitWriter, Enter, Introduce, Leave, Pass};
    let [first, second] = two_sections("shiftlock", [Exclusive, Exclusive]);
    // The count travels beside the letter.
    assert_eq!(first, [Enter, Pass]);
    assert_eq!(second, [Enter, Introduce, AwaitWriter, Leave]);
    let [first, second] = two_sections("shiftlock", [Shared, Exclusive]);
    assert_eq!(first, [Enter, Leave]);
    assert_eq!(second, [Enter, AwaitReaders, Leave]);
    let [first, second] = two_sections("shiftlock", [Exclusive, Shared]);
    assert_eq!(first, [Enter, Leave]);
    assert_eq!(second, [Enter, AwaitTurn, Leave]);
}
