//! Nodes that come to a pool, and to its clients, while these work.
//!
//! On the path: nowhere, until a pool grows. The client says hello as it did at first, with the identity that it has, and asks
//! node 0 whether it still belongs to the pool before it uses the node.

use core::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use super::super::connect::{ConnectError, Returning, greet_any};
use super::super::connection::Connection;
use super::super::mirrored::Mirrored;
use super::{Endpoint, Node, Way};
use crate::addr::NodeId;
use crate::error::AttachError;
use crate::host;
use crate::shm::{Segment, SegmentError};

impl Endpoint {
    /// The body of [`Backend::attach`](crate::Backend::attach).
    pub(super) async fn attach_now(&self, node: NodeId, places: &str) -> Result<(), AttachError> {
        if self.node(node).is_ok() {
            return Ok(());
        }
        let mut failure = AttachError::new(node, places, "write shm:PATH or tcp:HOST:PORT");
        for place in places.split(',') {
            let reached = match place.trim().split_once(':') {
                Some(("shm", path)) => self.map_node(path.as_ref()),
                Some(("tcp", address)) => self.connect_node(node, address).await,
                Some(("rdma", _)) => {
                    Err("a node that is reached by RDMA has to be there when a client starts".to_owned())
                }
                _ => continue,
            };
            match reached {
                Ok(reached) => return self.keep(node, place, reached).await,
                Err(reason) => failure = AttachError::new(node, place, reason),
            }
        }
        Err(failure)
    }

    /// A node whose segment this process maps from now on.
    fn map_node(&self, path: &Path) -> Result<Node, String> {
        let join = || {
            let segment = Segment::open(path)?;
            segment.require_mappable()?;
            let connected = segment.claim_connected(Some(self.shared.id))?;
            let bytes = segment.region().bytes();
            let way = Way::Mapped { segment, connected };
            Ok::<_, SegmentError>(Node { bytes, way })
        };
        join().map_err(|error| error.to_string())
    }

    /// A node that has let this client in.
    async fn connect_node(&self, node: NodeId, address: &str) -> Result<Node, String> {
        let shared = &self.shared;
        let returning = Returning {
            id: Some(shared.id),
            ..Returning::default()
        };
        let greeted = greet_any(address, &shared.options, returning).await;
        let remote = greeted.map_err(|error| error.to_string())?;
        if remote.welcome.is_rdma() {
            let address = address.to_owned();
            return Err(ConnectError::RdmaOnly { address }.to_string());
        }
        let promised = shared.capabilities.get();
        if promised.and(remote.welcome.unpack()) != promised {
            return Err("the node lacks atomics that the others have: run the same release on all".to_owned());
        }
        let connection = Rc::new(Connection::new(node, shared.operations.clone(), shared.inbox.clone()));
        if let Some(mirrored) = Mirrored::new(&remote, &shared.options, shared.id) {
            connection.follow(mirrored);
        }
        host::spawn_local(Box::pin(connection.clone().drive(remote.stream)));
        Ok(Node {
            bytes: remote.welcome.node_bytes.get(),
            way: Way::Remote {
                address: address.to_owned(),
                connection,
                run: Cell::new(remote.welcome.run.get()),
            },
        })
    }

    /// Makes a node one of those that are reached, if this client still belongs to the pool: whoever cuts it off begins at node
    /// 0, and may not have known the new one.
    async fn keep(&self, node: NodeId, place: &str, reached: Node) -> Result<(), AttachError> {
        if let Err(error) = self.confirm().await {
            reached.close();
            return Err(AttachError::new(node, place, error));
        }
        self.shared.nodes.change(|nodes| {
            nodes.resize(nodes.len().max(node.index() + 1), Node::absent());
            nodes[node.index()] = Rc::new(reached);
        });
        Ok(())
    }
}
