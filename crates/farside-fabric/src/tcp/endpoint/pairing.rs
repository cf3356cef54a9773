//! Queue pairs to the nodes that are reached by RDMA: made when a node is joined, put on trial, and made anew after they broke.
//!
//! On the path: nowhere; verbs go by them afterwards.

use std::rc::Rc;

use zerocopy::IntoBytes;

use super::super::connect::ConnectError;
use super::super::connection::Connection;
use super::super::frame;
use super::{Endpoint, Way};
use crate::addr::{NodeId, RemoteAddr};
use crate::backend::Backend;
use crate::buffer::Buffer;
use crate::error::FabricError;
use crate::rdma::{self, ADDRESS_BYTES, Address, Native, NativeAtomics, Scratch, Trial, Verdict};
use crate::verb::{Slice, Verb};

impl Endpoint {
    /// Connects the queue pairs to all nodes that are reached by RDMA, and finds out what the card can do there.
    pub(in crate::tcp) async fn pair_up_all(&self) -> Result<(), ConnectError> {
        for node in self.shared.nodes.iter() {
            let Way::Remote {
                address, connection, ..
            } = &node.way
            else {
                continue;
            };
            let Some(nic) = connection.nic() else { continue };
            self.pair_up(connection, nic, address).await?;
            let native = nic.native();
            let NativeAtomics {
                masked_swap,
                masked_add,
                wide,
            } = native.atomics();
            tracing::info!(
                node = address,
                masked_compare_swap = if masked_swap { "native" } else { "emulated" },
                masked_fetch_add = if masked_add { "native" } else { "emulated" },
                wide_atomics = if wide { "native" } else { "missing" },
                "verbs go by RDMA"
            );
            let capabilities = &self.shared.capabilities;
            capabilities.set(capabilities.get().and(native.capabilities()));
        }
        Ok(())
    }

    /// Connects the queue pair to a node that is reached by RDMA, if there is none.
    pub(super) async fn pair_up(
        &self,
        connection: &Connection,
        nic: &Rc<rdma::Link>,
        address: &str,
    ) -> Result<(), ConnectError> {
        let _turn = nic.pairing().await;
        let mut trial = Trial::default();
        while !nic.is_open() {
            let (node, takes_entries) = self.exchange_queue_pairs(connection, nic, address).await?;
            let scratch = OnTrial {
                endpoint: self,
                connection,
                nic,
            };
            let before = trial;
            match trial.run(&scratch, takes_entries).await {
                Ok(Verdict::Unusable) => {
                    nic.close(FabricError::NodeGone {
                        node: connection.node(),
                    });
                    return Err(ConnectError::Atomics {
                        address: address.to_owned(),
                    });
                }
                Ok(Verdict::Works(native)) => {
                    nic.suppose(native);
                    if !nic.go_to_work(&node) {
                        return Err(self.while_joining(
                            address,
                            FabricError::NodeGone {
                                node: connection.node(),
                            },
                        ));
                    }
                }
                Err(error) => {
                    nic.close(error);
                    if trial == before || connection.failure().is_some() {
                        return Err(self.while_joining(address, error));
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes a queue pair and puts it on trial. Returns where the node's end is, and whether it takes entries.
    async fn exchange_queue_pairs(
        &self,
        connection: &Connection,
        nic: &Rc<rdma::Link>,
        address: &str,
    ) -> Result<(Address, bool), ConnectError> {
        let half_open = nic.prepare(self.random())?;
        let own = half_open.address();
        let mut buffer = Buffer::unregistered(ADDRESS_BYTES);
        // The answer is put where the bytes of a READ would be.
        let answer = Verb::Read {
            source: RemoteAddr::new(connection.node(), 0),
            target: Slice::first(ADDRESS_BYTES as u32),
        };
        let encode = |output: &mut Vec<u8>, request| frame::put_queue_pair(output, request, own.as_bytes());
        let deadline = self.deadline();
        let asked = self.ask_for(connection, deadline, [&answer], &mut buffer, encode).await;
        asked.map_err(|error| self.while_joining(address, error))?;
        let no_queue_pair = || ConnectError::NoQueuePair {
            address: address.to_owned(),
        };
        let node = Address::decode(&buffer[..ADDRESS_BYTES]).ok_or_else(no_queue_pair)?;
        // May have broken meanwhile.
        if let Some(failure) = connection.failure() {
            return Err(self.while_joining(address, failure));
        }
        let takes_entries = nic.open(half_open, &node)?;
        Ok((node, takes_entries))
    }
}

/// The word that a node lends a client whose queue pair is on trial.
struct OnTrial<'a> {
    endpoint: &'a Endpoint,
    connection: &'a Connection,
    nic: &'a rdma::Link,
}

impl Scratch for OnTrial<'_> {
    // What a link on trial posts goes to that word, whatever the node.
    const ADDR: RemoteAddr = RemoteAddr::new(NodeId::new(0), 0);

    fn suppose(&self, native: Native) {
        self.nic.suppose(native);
    }

    async fn execute(&self, verb: Verb) -> Result<u128, FabricError> {
        let node = self.connection.node();
        if !self.nic.is_on_trial() {
            return Err(FabricError::NodeGone { node });
        }
        let deadline = self.endpoint.deadline();
        let mut buffer = Buffer::default();
        self.endpoint
            .execute_remote(self.connection, &verb, &mut buffer, deadline)
            .await
    }
}
