//! Opening a segment for good, and serving it.
//!
//! Start: 1. open the segment, or make it. 2. Take the hold; whoever comes second is told who has it.
//! 3. Only if this node is the whole pool: format it, so that all clients find it ready. A node of
//! several is formatted by the first client, which is the only one that knows them all.
//!
//! The segment is not closed at the end: clients that map it go on, and the next node takes it over.
//!
//! With a device, the memory is left to it before the first client is let in, and the node touches it no more: the
//! processor's atomics and the device's are not atomic with each other.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use farside_fabric::rdma::{Device, Export};
use farside_fabric::shm::{Fabric, Hold, Segment, SegmentOptions};
use farside_fabric::tcp::{MirrorOptions, Secret, Server, ServerHandle, ServerOptions, require_secret_unless_loopback};
use farside_fabric::{OpContext, host};
use farside_pool::{FormatOptions, open_or_format};

use crate::error::NodeError;

/// Where the node's memory is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Memory {
    /// In a file, which outlives the process; made if it is not there.
    File(PathBuf),
    /// Nowhere else; it ends with the process.
    Anonymous,
}

/// What a node should be.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Where its memory is.
    pub memory: Memory,
    /// How many bytes it has; if `None`, what the file has, or `bytes_default` for a new one.
    pub bytes: Option<u64>,
    /// How many bytes new memory has if nobody said.
    pub bytes_default: u64,
    /// What remote clients have to know.
    pub secret: Option<Secret>,
    /// The device through which clients reach the memory; then nobody maps it, and no verbs are executed here.
    pub device: Option<Arc<Device>>,
}

/// A segment and the role of serving it.
#[derive(Debug)]
pub struct Node {
    hold: Hold,
    server_options: ServerOptions,
    device: Option<Arc<Device>>,
    is_new: bool,
}

impl Node {
    /// Opens or makes the segment and takes the hold.
    ///
    /// # Errors
    /// If the file is no segment, has another size, is held by another process, or there is no room.
    pub fn open(options: NodeOptions) -> Result<Self, NodeError> {
        let bytes = options.bytes.unwrap_or(options.bytes_default);
        let (segment, is_new) = match &options.memory {
            Memory::Anonymous => (Segment::anonymous(bytes)?, true),
            Memory::File(path) => {
                let is_new = std::fs::metadata(path).map_or(true, |metadata| metadata.len() == 0);
                let segment = Segment::open_or_create(path, SegmentOptions::with_memory(bytes))?;
                (segment, is_new)
            }
        };
        if let Some(wanted) = options.bytes
            && wanted != segment.memory_bytes()
        {
            return Err(NodeError::Size {
                path: segment.path().to_path_buf(),
                found: segment.memory_bytes(),
                wanted,
            });
        }
        let server_options = options
            .secret
            .map_or_else(ServerOptions::default, ServerOptions::with_secret);
        Ok(Self {
            hold: segment.hold()?,
            server_options,
            device: options.device,
            is_new,
        })
    }

    /// The segment.
    #[must_use]
    pub fn segment(&self) -> &Segment {
        self.hold.segment()
    }

    /// Gives up the role, and leaves a segment in order that outlives the machine: everything is on the disk then, unless somebody
    /// else still uses it, who does the same. To be called when this process has no endpoint any more. Returns whether it was left
    /// in order.
    ///
    /// # Errors
    /// If the file could not be written back.
    pub fn shut_down(self) -> Result<bool, NodeError> {
        let segment = self.segment().clone();
        drop(self.hold);
        Ok(segment.shut_down()?)
    }

    /// Whether the segment was made by this node.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Formats the memory as a pool of this one node, if it is blank or its last format was not
    /// finished; checks it otherwise.
    ///
    /// # Errors
    /// If the memory is too small, or holds something else.
    pub fn format(&self) -> Result<(), NodeError> {
        let fabric = Fabric::new(vec![self.segment().clone()]);
        // The hold says that no other node formats this segment at the same time.
        let options = FormatOptions {
            patience_ns: 0,
            ..FormatOptions::default()
        };
        host::on_this_thread(async {
            let mut cx = OpContext::new(fabric.endpoint()?);
            let path = self.segment().path().to_path_buf();
            match open_or_format(&mut cx, options).await {
                Ok(_) => Ok(()),
                Err(source) => Err(NodeError::Pool { path, source }),
            }
        })?
    }

    /// The server for remote clients of this node, to be run with a listener of the caller, and
    /// something to stop it with.
    ///
    /// # Errors
    /// [`NodeError::SecretRequired`] if the listener can be reached from other machines and there is
    /// no secret; [`NodeError::Export`] if the device does not take the memory.
    pub fn server(&self, listener: &TcpListener) -> Result<(Server, ServerHandle), NodeError> {
        self.server_of(listener, None)
    }

    /// The same, of a member of a mirrored group. Its segment must not be mapped by anybody.
    ///
    /// # Errors
    /// As [`Node::server`].
    pub fn mirrored_server(
        &self,
        listener: &TcpListener,
        options: MirrorOptions,
    ) -> Result<(Server, ServerHandle), NodeError> {
        self.server_of(listener, Some(options))
    }

    fn server_of(
        &self,
        listener: &TcpListener,
        mirror: Option<MirrorOptions>,
    ) -> Result<(Server, ServerHandle), NodeError> {
        require_secret_unless_loopback(listener.local_addr()?, &self.server_options)?;
        let mut server = Server::new(self.segment().clone(), self.server_options.clone());
        if let Some(device) = &self.device {
            server = server.with_rdma(Export::new(self.segment(), device)?);
        }
        if let Some(mirror) = mirror {
            server = server.with_mirror(mirror);
        }
        let handle = server.handle();
        Ok((server, handle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_fabric::shm::SegmentError;

    const MEMORY_BYTES: u64 = 16 << 20;

    fn options(path: &std::path::Path, bytes: Option<u64>) -> NodeOptions {
        NodeOptions {
            memory: Memory::File(path.to_path_buf()),
            bytes,
            bytes_default: MEMORY_BYTES,
            secret: None,
            device: None,
        }
    }

    #[test]
    fn second_node_is_told_who_has_the_segment() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("segment");
        let first = Node::open(options(&path, None)).expect("nobody else has it");
        assert!(first.is_new());
        let error = Node::open(options(&path, None)).expect_err("it is held");
        assert!(matches!(error, NodeError::Segment(SegmentError::Held { pid, .. }) if pid == std::process::id()));
        drop(first);
        assert!(!Node::open(options(&path, None)).expect("given up").is_new());
    }

    #[test]
    fn existing_size_wins_and_another_one_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("segment");
        drop(Node::open(options(&path, None)).expect("made"));
        let other = NodeOptions {
            bytes_default: 2 * MEMORY_BYTES,
            ..options(&path, None)
        };
        assert_eq!(
            Node::open(other).expect("opened").segment().memory_bytes(),
            MEMORY_BYTES
        );
        let error = Node::open(options(&path, Some(2 * MEMORY_BYTES))).expect_err("another size");
        assert!(
            matches!(
                error,
                NodeError::Size {
                    found: MEMORY_BYTES,
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn formatting_twice_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("segment");
        let node = Node::open(options(&path, None)).expect("made");
        node.format().expect("blank");
        node.format().expect("formatted already");
    }

    #[test]
    fn memory_that_is_too_small_is_an_error() {
        let node = Node::open(NodeOptions {
            memory: Memory::Anonymous,
            bytes: Some(4096),
            bytes_default: 0,
            secret: None,
            device: None,
        });
        let error = node.expect("4 KiB is a segment").format().expect_err("but no pool");
        assert!(error.to_string().contains("at least"), "{error}");
    }

    #[test]
    fn strangers_need_a_secret() {
        let listener = TcpListener::bind("0.0.0.0:0").expect("a free port");
        let options = NodeOptions {
            memory: Memory::Anonymous,
            bytes: None,
            bytes_default: MEMORY_BYTES,
            secret: None,
            device: None,
        };
        let node = Node::open(options.clone()).expect("anonymous");
        assert!(matches!(node.server(&listener), Err(NodeError::SecretRequired(_))));
        let secret = Secret::new(b"sixteen bytes !!").expect("long enough");
        let node = Node::open(NodeOptions {
            secret: Some(secret),
            ..options
        })
        .expect("anonymous");
        node.server(&listener).expect("there is a secret");
    }
}
