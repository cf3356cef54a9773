//! Where a store is put together: which fabric, which nodes.
//!
//! This is the one file that chooses a backend: the nodes that a user names say which.

use core::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use farside_fabric::rdma::{Device, DeviceOptions, RdmaError};
use farside_fabric::shm::{self, Segment, SegmentError};
use farside_fabric::tcp::{self, ConnectError, ConnectOptions, NodeLocation, Secret};
use farside_fabric::{AttachError, Endpoint, LocalFuture, NodeId, OpContext, host};
use farside_pool::removed_nodes;

/// How long an operation over TCP may take before it fails, by default.
pub const TCP_TIMEOUT_NS: u64 = 10_000_000_000;

/// The memory nodes of a pool, as a user names them: `shm:PATH`, `tcp:HOST:PORT` and `rdma:HOST:PORT`, separated by
/// commas, in the order of their numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolSpec {
    nodes: Vec<NodeSpec>,
    device: DeviceOptions,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum NodeSpec {
    Shm(PathBuf),
    Tcp(String),
    Rdma(String),
}

/// The nodes could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// The text is not a list of nodes.
    #[error(
        "`{text}` names no memory node: write shm:PATH, tcp:HOST:PORT or rdma:HOST:PORT, several separated by commas"
    )]
    Spec {
        /// The part that is wrong.
        text: String,
    },
    /// A segment cannot be used.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A node cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A segment cannot be mapped beside others.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// There is no RDMA device to reach a node with.
    #[error(transparent)]
    Rdma(#[from] RdmaError),
    /// The system refused a runtime.
    #[error("no event loop: {0}")]
    Runtime(std::io::Error),
}

impl FromStr for PoolSpec {
    type Err = StackError;

    fn from_str(text: &str) -> Result<Self, StackError> {
        let nodes = text.split(',').map(|node| {
            let wrong = || StackError::Spec { text: node.to_owned() };
            match node.trim().split_once(':').ok_or_else(wrong)? {
                ("shm", path) if !path.is_empty() => Ok(NodeSpec::Shm(path.into())),
                ("tcp", place) if place.split('+').all(is_host_and_port) => Ok(NodeSpec::Tcp(place.to_owned())),
                ("rdma", place) if is_host_and_port(place) => Ok(NodeSpec::Rdma(place.to_owned())),
                _ => Err(wrong()),
            }
        });
        Ok(Self {
            nodes: nodes.collect::<Result<_, _>>()?,
            device: DeviceOptions::default(),
        })
    }
}

impl fmt::Display for PoolSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.nodes.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match node {
                NodeSpec::Shm(path) => write!(f, "{comma}shm:{}", path.display())?,
                NodeSpec::Tcp(place) => write!(f, "{comma}tcp:{place}")?,
                NodeSpec::Rdma(place) => write!(f, "{comma}rdma:{place}")?,
            }
        }
        Ok(())
    }
}

fn is_host_and_port(place: &str) -> bool {
    place
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

impl PoolSpec {
    /// Reaches the `rdma:` nodes through this device.
    #[must_use]
    pub fn with_device(mut self, device: DeviceOptions) -> Self {
        self.device = device;
        self
    }

    /// Whether one of the nodes is reached by RDMA.
    #[must_use]
    pub fn has_rdma(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node, NodeSpec::Rdma(_)))
    }

    /// Opens the segments, and the device if there are `rdma:` nodes, and records the addresses.
    ///
    /// # Errors
    /// [`StackError::Segment`] with the file that cannot be used; [`StackError::Rdma`].
    pub fn locate(&self) -> Result<Vec<NodeLocation>, StackError> {
        let device = self.has_rdma().then(|| Device::open(&self.device));
        let device = device.transpose()?;
        let nodes = self.nodes.iter().enumerate().map(|(number, node)| match node {
            NodeSpec::Shm(path) => match Segment::open(path) {
                Ok(segment) => Ok(NodeLocation::Mapped(segment)),
                // It may have been removed from the pool, which node 0 knows.
                Err(error) if number > 0 => Ok(NodeLocation::Unusable(error.to_string())),
                Err(error) => Err(error.into()),
            },
            NodeSpec::Tcp(place) => Ok(NodeLocation::Remote(place.clone())),
            NodeSpec::Rdma(place) => {
                let device = device.clone().expect("opened, since there is such a node");
                Ok(NodeLocation::Rdma(place.clone(), device))
            }
        });
        nodes.collect()
    }
}

/// The default timeout of an operation on this endpoint, in nanoseconds: mapped memory needs none.
#[must_use]
pub fn timeout_ns(endpoint: &Endpoint) -> Option<u64> {
    (!endpoint.is_mapped()).then_some(TCP_TIMEOUT_NS)
}

/// Connects to the nodes and runs a task on this thread until it is done.
///
/// # Errors
/// If a node cannot be reached.
pub fn run<T>(
    nodes: Vec<NodeLocation>,
    secret: Option<Secret>,
    task: impl AsyncFnOnce(Endpoint) -> T,
) -> Result<T, StackError> {
    let segments = mapped(&nodes);
    let run = host::on_this_thread(async { Ok(task(connect(nodes, secret).await?).await) });
    let run = run.map_err(StackError::Runtime)?;
    shut_down(&segments);
    run
}

/// The segments among the nodes.
#[must_use]
pub fn mapped(nodes: &[NodeLocation]) -> Vec<Segment> {
    let segments = nodes.iter().map(|node| match node {
        NodeLocation::Mapped(segment) => Some(segment.clone()),
        _ => None,
    });
    segments.flatten().collect()
}

/// Leaves segments in order that outlive the machine, unless somebody else uses them; see [`Segment::shut_down`].
pub fn shut_down(segments: &[Segment]) {
    for segment in segments {
        if let Err(error) = segment.shut_down() {
            // It counts as in use: a loss of power will be noticed.
            tracing::warn!("{error}");
        }
    }
}

/// Connects to the nodes: over mapped memory alone if all of them are mapped, over TCP otherwise,
/// which needs a tokio `LocalSet`. A node that was removed from the pool may be named, and is left out.
///
/// # Errors
/// If a node cannot be reached.
pub fn connect(nodes: Vec<NodeLocation>, secret: Option<Secret>) -> LocalFuture<'static, Result<Endpoint, StackError>> {
    Box::pin(async move {
        let failure = match connect_all(nodes.clone(), secret.clone()).await {
            Err(failure) if nodes.len() > 1 => failure,
            connected => return connected,
        };
        match without_removed(nodes, secret.clone()).await {
            Some(nodes) => connect_all(nodes, secret).await,
            None => Err(failure),
        }
    })
}

/// The same nodes without those that were removed from the pool, if that can be found out, and there are any.
async fn without_removed(mut nodes: Vec<NodeLocation>, secret: Option<Secret>) -> Option<Vec<NodeLocation>> {
    let first = nodes[..1].to_vec();
    let mut cx = OpContext::new(connect_all(first, secret).await.ok()?);
    let removed = removed_nodes(&mut cx).await.ok()?;
    let mut is_named = false;
    for node in removed {
        if let Some(named) = nodes.get_mut(node.index()).filter(|_| node.index() > 0) {
            *named = NodeLocation::Absent;
            is_named = true;
        }
    }
    is_named.then_some(nodes)
}

fn connect_all(nodes: Vec<NodeLocation>, secret: Option<Secret>) -> LocalFuture<'static, Result<Endpoint, StackError>> {
    Box::pin(async move {
        // A removed node has no memory; the others are reached as if it came first.
        let is_mapped = |node: &NodeLocation| matches!(node, NodeLocation::Mapped(_) | NodeLocation::Absent);
        let has_gap = nodes.iter().any(|node| matches!(node, NodeLocation::Absent));
        if has_gap && nodes.iter().all(is_mapped) {
            return connect_mapped(&nodes).await;
        }
        let mapped = nodes.iter().map(|node| match node {
            NodeLocation::Mapped(segment) => Some(segment.clone()),
            NodeLocation::Remote(_) | NodeLocation::Rdma(..) | NodeLocation::Absent | NodeLocation::Unusable(_) => None,
        });
        if let Some(segments) = mapped.collect() {
            return Ok(shm::Fabric::new(segments).endpoint()?);
        }
        let mut options = ConnectOptions::default();
        if let Some(secret) = secret {
            options = options.with_secret(secret);
        }
        Ok(tcp::connect(nodes, options).await?)
    })
}

/// Over mapped memory alone, with nodes missing.
async fn connect_mapped(nodes: &[NodeLocation]) -> Result<Endpoint, StackError> {
    let mut endpoint = None;
    for (number, node) in (0..).zip(nodes) {
        let NodeLocation::Mapped(segment) = node else { continue };
        match &endpoint {
            None => endpoint = Some(shm::Fabric::new(vec![segment.clone()]).endpoint()?),
            Some(endpoint) => {
                let place = format!("shm:{}", segment.path().display());
                endpoint.attach(NodeId::new(number), &place).await?;
            }
        }
    }
    Ok(endpoint.expect("node 0 is never removed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_lists_of_nodes() {
        let spec: PoolSpec = "shm:/tmp/a,tcp:localhost:7380,rdma:n:1".parse().expect("three nodes");
        assert_eq!(spec.to_string(), "shm:/tmp/a,tcp:localhost:7380,rdma:n:1");
        assert!(spec.has_rdma());
        let without: PoolSpec = "shm:/tmp/rdma:1,tcp:rdma:7380".parse().expect("two nodes");
        assert!(!without.has_rdma());
        assert_eq!(
            spec.nodes,
            [
                NodeSpec::Shm("/tmp/a".into()),
                NodeSpec::Tcp("localhost:7380".to_owned()),
                NodeSpec::Rdma("n:1".to_owned())
            ]
        );
    }

    #[test]
    fn what_is_no_node_is_named() {
        for text in [
            "",
            "shm:",
            "/tmp/a",
            "tcp:host",
            "tcp:host:99999",
            "tcp::1",
            "shm:/a,,shm:/b",
            "rdma:x",
        ] {
            let error = text.parse::<PoolSpec>().expect_err(text);
            assert!(matches!(error, StackError::Spec { .. }), "{text}: {error}");
        }
    }
}
