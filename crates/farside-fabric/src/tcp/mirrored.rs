//! A client of a mirrored node: what it takes to go on with another member of the node's group.
//!
//! On the path: requests are kept until they are answered. When the connection breaks, or is silent for longer than a lease, the
//! members are asked one after the other until one is primary; it is told what the client has read, and sent again what was not
//! answered. It answers what its predecessor executed, and executes the rest.

use core::cell::RefCell;
use core::time::Duration;
use std::collections::VecDeque;

use tokio::net::TcpStream;

use super::connect::{ConnectError, ConnectOptions, Remote, Returning, greet};
use crate::addr::NodeId;
use crate::error::FabricError;
use crate::message::EndpointId;
use crate::mirror::View;

/// How long a client looks for a primary, at least.
const PATIENCE_NS_MIN: u64 = 30_000_000_000;
/// How long one member may take to answer a hello.
const GREETING: Duration = Duration::from_millis(500);

/// Who may be primary, and who the client is.
pub(super) struct Mirrored {
    addresses: RefCell<Vec<String>>,
    options: ConnectOptions,
    id: EndpointId,
    /// The life of the group in which the client is known.
    group: u64,
    pub(super) lease_ns: u64,
    node_bytes: u64,
}

impl Mirrored {
    /// What a client needs that was let in; `None` if the node is not mirrored.
    pub(super) fn new(remote: &Remote, options: &ConnectOptions, id: EndpointId) -> Option<Self> {
        let view = remote.view.as_ref()?;
        let mirrored = Self {
            addresses: RefCell::new(vec![remote.address.clone()]),
            options: options.clone(),
            id,
            group: remote.welcome.run.get(),
            lease_ns: remote.welcome.lease_ns.get(),
            node_bytes: remote.welcome.node_bytes.get(),
        };
        mirrored.learn(view);
        Some(mirrored)
    }

    /// Where the members are that were ever named, those of the newest view first.
    pub(super) fn addresses(&self) -> Vec<String> {
        self.addresses.borrow().clone()
    }

    /// How long to look for a primary: many times as long as the group needs to find one.
    pub(super) fn patience_ns(&self) -> u64 {
        PATIENCE_NS_MIN.max(20 * self.lease_ns)
    }

    /// How long to wait before all are asked again.
    pub(super) fn pause_ns(&self) -> u64 {
        (self.lease_ns / 50).clamp(1_000_000, 50_000_000)
    }

    /// Another view: its members are asked first, the primary before the others.
    pub(super) fn learn(&self, view: &View) {
        let mut addresses = self.addresses.borrow_mut();
        let known = core::mem::take(&mut *addresses);
        addresses.extend(view.peers().map(|peer| peer.address.clone()));
        for address in known {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }

    pub(super) fn returning(&self, answered: u32, messages: u64, ungranted: u64) -> Returning {
        Returning {
            id: Some(self.id),
            run: self.group,
            answered,
            messages,
            ungranted: ungranted as u16,
        }
    }

    /// Asks each member once. `None` if none is primary.
    pub(super) async fn ask_all(&self, node: NodeId, returning: Returning) -> Result<Option<TcpStream>, FabricError> {
        let options = self.options.clone().with_timeout(GREETING.min(self.options.timeout));
        let addresses = self.addresses.borrow().clone();
        for address in addresses {
            match greet(&address, &options, returning).await {
                Ok(remote) => {
                    if remote.welcome.node_bytes.get() != self.node_bytes {
                        continue;
                    }
                    if let Some(view) = &remote.view {
                        self.learn(view);
                    }
                    return Ok(Some(remote.stream));
                }
                Err(ConnectError::NotPrimary { view, .. }) => {
                    if let Some(view) = view {
                        self.learn(&view);
                    }
                }
                Err(ConnectError::Fenced { .. }) => return Err(FabricError::Fenced { node }),
                Err(ConnectError::Restarted { .. }) => return Err(FabricError::NodeGone { node }),
                Err(error) => tracing::debug!("{error}"),
            }
        }
        Ok(None)
    }
}

/// Requests that may have to be sent again, as they were sent.
#[derive(Default)]
pub(super) struct Unanswered {
    bytes: VecDeque<u8>,
    lengths: VecDeque<u32>,
}

impl Unanswered {
    /// Keeps whole frames.
    pub(super) fn keep(&mut self, frames: &[u8]) {
        self.bytes.extend(frames);
        let mut rest = frames;
        while let Some(length) = rest.first_chunk::<4>() {
            let length = u32::from_le_bytes(*length);
            self.lengths.push_back(length);
            rest = &rest[length as usize..];
        }
    }

    /// The oldest is answered.
    pub(super) fn answered(&mut self) {
        if let Some(length) = self.lengths.pop_front() {
            self.bytes.drain(..length as usize);
        }
    }

    /// Appends all of them.
    pub(super) fn put(&self, output: &mut Vec<u8>) {
        let (front, back) = self.bytes.as_slices();
        output.extend_from_slice(front);
        output.extend_from_slice(back);
    }
}
