//! A pool that shrinks while it is used: a node that is emptied and removed.
//!
//! On the path: nowhere.
//!
//!  1. The node becomes *draining*, which is announced as in [`grow`](crate::grow). Whoever learns it takes no block of the
//!     node any more: it sends home every free one that it has, and gives up its chunks there. Then it says that it knows.
//!  2. When all have said so, what is linked there only becomes less. A *mover* (of the store above) has the index put
//!     every block of it elsewhere, as updates do; the old one is retired as ever.
//!  3. Chunks there whose blocks have all come home become free; nobody owns them, so whoever drains does that.
//!  4. When every chunk is free nothing links the node, and no operation holds an address of it: each block has been through its
//!     grace period. The node becomes *removed*, its superblock blank, and clients leave it.
//!
//! A block that an operation had allocated before its client knew, and links after that, is found by the next round of the
//! mover; until then its chunk is not free. A client that dies leaves chunks there that the search for lost blocks takes
//! over; who has found one there gives it up again.
//!
//! Any step may be the last of whoever drains; the same command goes on from there, and adding the node again undoes it.

use farside_fabric::mutant::is_planted;
use farside_fabric::{LocalFuture, NodeId, OpContext, RemoteAddr};

use crate::error::PoolError;
use crate::layout::ChunkState;
use crate::members::{NodeState, announce, change_state, read_members};
use crate::pool::Pool;
use crate::refill::read_chunk_table;

/// How far a node is drained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draining {
    /// Bytes of its chunks that hold something.
    pub bytes_used: u64,
    /// Bytes of free chunks on the nodes that blocks are moved to.
    pub bytes_elsewhere: u64,
}

impl Pool {
    /// Gives up the chunks of nodes from which no blocks are taken; returns whether none is left.
    pub(crate) async fn clear_closed(&self, cx: &mut OpContext) -> Result<bool, PoolError> {
        if is_planted("drain: a node left with its chunks owned") {
            return Ok(true);
        }
        let is_searching = || self.shared.recovering.get() || self.needs_recovery();
        if is_searching() {
            return Ok(self.shared.heap.borrow().chunks_of_closed().next().is_none());
        }
        // A search that begins meanwhile waits: a chunk that is on its way from one owner to none would be searched by nobody.
        let _clearing = self.shared.clearing.lock().await;
        let chunks: Vec<_> = self.shared.heap.borrow().chunks_of_closed().collect();
        for id in chunks {
            self.check_alive()?;
            cx.set_deadline(self.shared.endpoint.deadline_in(self.shared.options.lease_ns));
            // If nobody knows which blocks have come home, they are found when this client leaves.
            self.disown(cx, id).await.inspect_err(|_| self.doubt())?;
        }
        Ok(true)
    }

    /// Has nobody take memory of a node any more, and waits until every live client knows: up to `patience_ns`, while `waits`
    /// is told who does not. Returns false if the node is removed now, since it was, or nothing was ever taken of it.
    ///
    /// # Errors
    /// [`PoolError::Membership`] if it cannot be drained; [`PoolError::Lagging`]; what the fabric reports.
    pub fn begin_drain<'f>(
        &'f self,
        cx: &'f mut OpContext,
        node: NodeId,
        patience_ns: u64,
        waits: &'f mut dyn FnMut(&[u16]),
    ) -> LocalFuture<'f, Result<bool, PoolError>> {
        Box::pin(async move {
            let refuse = |reason: &str| PoolError::Membership {
                node,
                reason: reason.to_owned(),
            };
            let members = read_members(cx, self.founders()).await?;
            match members
                .get(node.index())
                .map_or(NodeState::Unset, |member| member.state)
            {
                _ if node.index() == 0 => {
                    return Err(refuse(
                        "it cannot be drained, since the tables of the pool and of its index are there; drain another node",
                    ));
                }
                NodeState::Unset => return Err(refuse("the pool has no such node; `farside pool status` lists them")),
                NodeState::Removed => {
                    self.finish_removal(cx, node, patience_ns, waits).await?;
                    return Ok(false);
                }
                NodeState::Joining => {
                    // Nobody takes memory of it before it is active, which one of the two swaps keeps from happening.
                    let before = change_state(cx, node, &[NodeState::Joining], NodeState::Removed).await?;
                    if before != NodeState::Joining {
                        return Err(refuse("it has just come; repeat the command"));
                    }
                    self.finish_removal(cx, node, patience_ns, waits).await?;
                    return Ok(false);
                }
                NodeState::Active | NodeState::Draining => {}
            }
            let geometry = self.shared.geometry.get(node.index()).copied();
            let geometry = geometry.filter(|geometry| !geometry.is_absent());
            let geometry =
                geometry.ok_or_else(|| refuse("this client has not connected to it yet; repeat the command"))?;
            let table = read_chunk_table(cx, &geometry).await?;
            if table.iter().any(|state| matches!(state, ChunkState::Root { .. })) {
                return Err(refuse(
                    "it cannot be drained: the index has fixed memory there, a share on each node that the pool was made with",
                ));
            }
            // A founder has no state of its own before this.
            let from = [NodeState::Unset, NodeState::Active, NodeState::Draining];
            change_state(cx, node, &from, NodeState::Draining).await?;
            announce(cx).await?;
            self.await_all(cx, patience_ns, waits).await?;
            Ok(true)
        })
    }

    /// Frees the chunks of a node that is drained whose blocks have all come home, and says how far that is.
    ///
    /// # Errors
    /// [`PoolError::Membership`] if it is not drained any more; what the fabric reports.
    pub fn drained<'f>(&'f self, cx: &'f mut OpContext, node: NodeId) -> LocalFuture<'f, Result<Draining, PoolError>> {
        Box::pin(async move {
            let members = read_members(cx, self.founders()).await?;
            if members
                .get(node.index())
                .is_none_or(|member| member.state != NodeState::Draining)
            {
                let reason = "it is not being drained any more: somebody has added it again".to_owned();
                return Err(PoolError::Membership { node, reason });
            }
            let geometry = self.shared.geometry[node.index()];
            let is_homing = self.shared.heap.borrow().is_homing() || self.needs_recovery();
            if !is_homing && !self.shared.recovering.get() {
                self.free_unowned_of(cx, &geometry).await?;
            }
            let mut draining = Draining {
                bytes_used: 0,
                bytes_elsewhere: 0,
            };
            for geometry in self.shared.geometry.iter().copied() {
                let table = read_chunk_table(cx, &geometry).await?;
                let free = table.iter().filter(|&&state| state == ChunkState::Free).count() as u64;
                if geometry.node == node {
                    draining.bytes_used = (geometry.chunk_count - free) * geometry.chunk_bytes;
                } else if self.shared.heap.borrow().is_open(geometry.node.index()) {
                    draining.bytes_elsewhere += free * geometry.chunk_bytes;
                }
            }
            Ok(draining)
        })
    }

    /// Removes a node that is drained, if every chunk of it is free and every client knows that it takes none; returns whether.
    ///
    /// # Errors
    /// [`PoolError::Lagging`] if clients have not left it in time: it is removed then. What the fabric reports.
    pub fn remove_drained<'f>(
        &'f self,
        cx: &'f mut OpContext,
        node: NodeId,
        patience_ns: u64,
        waits: &'f mut dyn FnMut(&[u16]),
    ) -> LocalFuture<'f, Result<bool, PoolError>> {
        Box::pin(async move {
            // In this order: who has come since knows from its first operation on.
            if !self.lagging(cx).await?.is_empty() {
                return Ok(false);
            }
            let geometry = self.shared.geometry[node.index()];
            let table = read_chunk_table(cx, &geometry).await?;
            let is_empty = table.iter().all(|&state| state == ChunkState::Free);
            if !is_empty && !is_planted("drain: a node removed that holds something") {
                return Ok(false);
            }
            if change_state(cx, node, &[NodeState::Draining], NodeState::Removed).await? != NodeState::Draining {
                return Ok(false);
            }
            self.finish_removal(cx, node, patience_ns, waits).await?;
            Ok(true)
        })
    }

    /// Makes the superblock of a removed node blank, and has everybody leave it.
    async fn finish_removal(
        &self,
        cx: &mut OpContext,
        node: NodeId,
        patience_ns: u64,
        waits: &mut dyn FnMut(&[u16]),
    ) -> Result<(), PoolError> {
        if self.shared.endpoint.is_attached(node) {
            // So that its memory can be added again.
            cx.write_word(RemoteAddr::new(node, 0), 0).await?;
        }
        announce(cx).await?;
        self.await_all(cx, patience_ns, waits).await
    }
}
