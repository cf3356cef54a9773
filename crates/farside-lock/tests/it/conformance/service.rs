//! The lock service that all locks of the suite find in place, whether they need it or not.

use std::thread::JoinHandle;

use farside_fabric::sim::Sim;
use farside_fabric::{Endpoint, NodeId, RemoteAddr};
use farside_lock::service::Agent;
use farside_lock::{LockKind, LockOptions, Site};
use tokio::sync::oneshot;

use crate::on_this_thread;

const BLOCK: RemoteAddr = RemoteAddr::new(NodeId::new(0), 1024);
const ROSTER: RemoteAddr = RemoteAddr::new(NodeId::new(0), 4096);

/// What the suite is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    pub(crate) kind: LockKind,
    pub(crate) declock_capacity: u64,
}

impl Subject {
    pub(crate) fn options(self) -> LockOptions {
        LockOptions {
            declock_capacity: self.declock_capacity,
            ..LockOptions::default()
        }
    }

    /// A compute node that knows where the service is, and the roster.
    pub(crate) fn site(self) -> Site {
        site_with(self.options())
    }
}

/// A compute node with these settings that knows where the service is, and the roster.
pub(crate) fn site_with(options: LockOptions) -> Site {
    Site::new(LockOptions {
        service: Some(BLOCK),
        roster: Some(ROSTER),
        ..options
    })
}

/// Starts an agent on a compute node of its own.
pub(crate) fn start(sim: &Sim) -> Endpoint {
    let endpoint = sim.endpoint(sim.add_compute_node());
    let agent = sim.block_on(Agent::start(endpoint.clone(), &site_with(LockOptions::default())));
    let agent = agent.expect("the node is there");
    endpoint.spawn(async move {
        let end = agent.serve().await;
        panic!("the agent has ended: {end}");
    });
    endpoint
}

/// An agent in a thread of its own; it ends when dropped.
pub(crate) struct AgentThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AgentThread {
    /// Returns when the agent is there, with an endpoint that it makes for itself.
    pub(crate) fn start(endpoint: impl AsyncFnOnce() -> Endpoint + Send + 'static) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            on_this_thread(async {
                let agent = Agent::start(endpoint().await, &site_with(LockOptions::default()))
                    .await
                    .expect("the segment is there");
                ready.send(()).expect("somebody waits");
                tokio::select! {
                    end = agent.serve() => panic!("the agent has ended: {end}"),
                    _ = stopped => {}
                }
            });
        });
        is_ready.recv().expect("the agent starts");
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for AgentThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|ended| ended.is_ok()) || std::thread::panicking());
    }
}
