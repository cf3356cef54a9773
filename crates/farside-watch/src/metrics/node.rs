//! The metrics of a memory node: what its memory is used for; and whether it serves.

use std::cell::RefCell;
use std::io;
use std::os::unix::net::UnixStream;

use farside_fabric::host::HostClock;
use farside_fabric::shm::{self, Segment};
use farside_fabric::tcp::Secret;
use farside_fabric::{Deadline, LocalFuture, OpContext};
use farside_gateway::metrics::{self, Family};
use farside_gateway::{MirrorReport, NodeReport, Place, PoolReport, Report, mirrors};
use farside_kv::Usage;
use farside_pool::node_usage;
use tokio::sync::{mpsc, oneshot};

use super::Source;

/// A look is good for so long.
const FRESH_NS: u64 = 1_000_000_000;
/// How long to wait for an answer of the thread that serves.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Asks the thread that serves a node whether it still does.
#[derive(Clone)]
pub struct Pulse(mpsc::UnboundedSender<oneshot::Sender<()>>);

impl Pulse {
    /// The asking end, and what the thread that serves has to run beside.
    pub fn new() -> (Self, impl Future<Output = ()>) {
        let (sender, mut questions) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
        let answer = async move {
            while let Some(question) = questions.recv().await {
                // Whoever asked may have gone away.
                let _ = question.send(());
            }
        };
        (Self(sender), answer)
    }

    async fn is_felt(&self) -> Result<(), &'static str> {
        let (question, answer) = oneshot::channel();
        // If nobody is there to hear it, the answer is that it was dropped.
        let _ = self.0.send(question);
        let deadline = Deadline(HostClock.now_ns().saturating_add(PATIENCE_NS));
        match HostClock.until(deadline, answer).await {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err("the memory node is stopping"),
            None => Err("the thread that serves the memory has not answered for a second"),
        }
    }
}

/// A segment that is served.
pub struct NodeSource {
    segment: Segment,
    pulse: Pulse,
    started_ns: u64,
    latest: RefCell<Option<(u64, Usage)>>,
    group: Option<GroupSource>,
}

/// The group of a mirrored node.
struct GroupSource {
    /// Where the node's members reach it.
    address: String,
    secret: Option<Secret>,
    latest: RefCell<Option<(u64, MirrorReport)>>,
}

impl GroupSource {
    async fn report(&self) -> MirrorReport {
        let now_ns = HostClock.now_ns();
        let latest = self.latest.borrow().clone();
        if let Some((asked_ns, report)) = latest
            && now_ns - asked_ns < FRESH_NS
        {
            return report;
        }
        let asked = mirrors::ask([self.address.clone()].into_iter(), self.secret.as_ref(), 1).await;
        let report = asked.unwrap_or_else(|| MirrorReport::silent(std::slice::from_ref(&self.address)));
        *self.latest.borrow_mut() = Some((now_ns, report.clone()));
        report
    }
}

impl NodeSource {
    /// What a node has to tell of this segment, as long as the thread that serves it has a pulse.
    pub fn new(segment: Segment, pulse: Pulse) -> Self {
        Self {
            segment,
            pulse,
            started_ns: HostClock.now_ns(),
            latest: RefCell::default(),
            group: None,
        }
    }

    /// Of a mirrored node that its members reach at this address.
    #[must_use]
    pub fn mirrored(mut self, address: String, secret: Option<Secret>) -> Self {
        self.group = Some(GroupSource {
            address,
            secret,
            latest: RefCell::default(),
        });
        self
    }

    async fn mirror(&self) -> Option<MirrorReport> {
        match &self.group {
            Some(group) => Some(group.report().await),
            None => None,
        }
    }

    async fn usage(&self) -> Option<Usage> {
        let now_ns = HostClock.now_ns();
        let latest = self.latest.borrow().clone();
        if let Some((taken_ns, usage)) = latest
            && now_ns - taken_ns < FRESH_NS
        {
            return Some(usage);
        }
        // An endpoint for each look: while nobody asks, the table of endpoints has room for a client.
        let endpoint = shm::Fabric::new(vec![self.segment.clone()]).endpoint();
        let endpoint = endpoint.inspect_err(|error| tracing::debug!("cannot look at the memory: {error}"));
        let usage = node_usage(&mut OpContext::new(endpoint.ok()?)).await;
        let usage = usage.inspect_err(|error| tracing::debug!("cannot look at the memory: {error}"));
        let usage = usage.ok()??;
        *self.latest.borrow_mut() = Some((now_ns, usage.clone()));
        Some(usage)
    }
}

impl Source for NodeSource {
    fn families(&self) -> LocalFuture<'_, Vec<Family>> {
        Box::pin(async {
            let uptime_s = HostClock.now_ns().saturating_sub(self.started_ns) as f64 / 1e9;
            let mut families = vec![metrics::build(), metrics::uptime(uptime_s)];
            match self.mirror().await {
                None => {
                    let usage = self.usage().await;
                    families.extend(metrics::pool(usage.as_ref().map(PoolReport::from).as_ref()));
                }
                // Nobody looks at its memory past the node, this thread neither; its gateways tell what it is used for.
                Some(mirror) => families.extend(metrics::mirrored([("self".to_owned(), &mirror)].into_iter())),
            }
            families
        })
    }

    fn readiness(&self) -> LocalFuture<'_, Result<(), String>> {
        Box::pin(async { self.pulse.is_felt().await.map_err(str::to_owned) })
    }

    fn report(&self) -> LocalFuture<'_, Report> {
        Box::pin(async {
            let mirror = self.mirror().await;
            let usage = match mirror {
                None => self.usage().await,
                Some(_) => None,
            };
            let pool = usage.as_ref().map(PoolReport::from);
            let now_ns = HostClock.now_ns();
            Report {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                process_id: std::process::id(),
                clock_ns: now_ns,
                uptime_ms: now_ns.saturating_sub(self.started_ns) / 1_000_000,
                nodes: vec![NodeReport {
                    place: Place {
                        transport: "shm".to_owned(),
                        name: self.segment.path().display().to_string(),
                    },
                    usage: pool.clone(),
                    mirror,
                }],
                pool,
                ..Report::default()
            }
        })
    }

    fn connect(&self) -> Option<io::Result<UnixStream>> {
        None
    }

    fn serves_clients(&self) -> bool {
        false
    }
}
