//! Draining a memory node of a pool: the mover.
//!
//! On the path: nowhere; `farside pool drain` runs it beside the clients of the pool. What the pool does for that is said at
//! [`farside_pool::drain`]; this is the walk over the index that moves what nobody updates.

use farside_fabric::mutant::is_planted;
use farside_fabric::{FabricError, LocalFuture, NodeId, OpContext};
use farside_index::{Evacuated, IndexError};
use farside_pool::{Draining, PoolError};

use crate::error::KvError;
use crate::store::Store;

/// How long to wait before the node is looked at again, when nothing is left to move: what was moved waits for its grace period.
const PAUSE_NS: u64 = 5_000_000;
/// How often it is looked at before the index is walked again.
const LOOKS: u32 = 20;
/// How often a step is tried again whose node did not answer in time.
const RETRIES_MAX: u32 = 20;
/// After how many parts of the index the progress is told.
const PARTS_BETWEEN: u64 = 64;

/// What a command that drains a node has come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DrainStep {
    /// These clients do not know yet that they take no memory of it.
    Waiting(Vec<u16>),
    /// So much was moved, and so much is left.
    Moving(Drained, Draining),
}

/// What was moved.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Drained {
    /// Items that were stored anew elsewhere.
    pub items: u64,
    /// Parts of the index itself.
    pub parts: u64,
}

impl Drained {
    fn add(&mut self, step: Evacuated) {
        self.items += step.items;
        self.parts += step.parts;
    }
}

impl Store {
    /// Moves everything off a node, and removes it from the pool, while clients work. May be repeated after it has ended
    /// anywhere. `patience_ns` is for how long other clients may take to learn what they have to know.
    ///
    /// # Errors
    /// [`PoolError::Membership`] if the node, or the index, cannot be drained; [`PoolError::OutOfMemory`] if the other nodes have
    /// no room; [`PoolError::Lagging`]; what the fabric reports.
    pub fn drain<'f>(
        &'f self,
        node: NodeId,
        patience_ns: u64,
        step: &'f mut dyn FnMut(DrainStep),
    ) -> LocalFuture<'f, Result<Drained, KvError>> {
        Box::pin(async move {
            if !self.index.can_evacuate() {
                let reason = format!(
                    "it cannot be drained: the index {} keeps its inner nodes where they are; only race moves them",
                    self.index.kind().name()
                );
                return Err(PoolError::Membership { node, reason }.into());
            }
            let mut cx = OpContext::new(self.endpoint.clone());
            let mut moved = Drained::default();
            let waits = &mut |clients: &[u16]| step(DrainStep::Waiting(clients.to_vec()));
            if !self.pool().begin_drain(&mut cx, node, patience_ns, waits).await? {
                return Ok(moved);
            }
            // Ends: nobody takes memory of the node any more, and each round moves what it finds there.
            loop {
                let before = moved;
                self.evacuate(&mut cx, node, &mut moved, step).await?;
                let looks = if moved == before { LOOKS } else { 1 };
                for _ in 0..looks {
                    let draining = self.pool().drained(&mut cx, node).await?;
                    step(DrainStep::Moving(moved, draining));
                    let is_empty = draining.bytes_used == 0 || is_planted("drain: a node removed that holds something");
                    let waits = &mut |clients: &[u16]| step(DrainStep::Waiting(clients.to_vec()));
                    if is_empty && self.pool().remove_drained(&mut cx, node, patience_ns, waits).await? {
                        return Ok(moved);
                    }
                    self.pool().tick().await?;
                    self.endpoint.sleep(PAUSE_NS).await;
                }
            }
        })
    }

    /// One walk over the index.
    async fn evacuate(
        &self,
        cx: &mut OpContext,
        node: NodeId,
        moved: &mut Drained,
        step: &mut dyn FnMut(DrainStep),
    ) -> Result<(), KvError> {
        let (mut cursor, mut retries, mut parts) = (Some(0), 0, 0_u64);
        while let Some(at) = cursor {
            if let Some(timeout_ns) = self.timeout_ns {
                cx.set_deadline(self.endpoint.deadline_in(timeout_ns));
            }
            match self.index.evacuate(cx, at, node).await {
                Ok(evacuated) => {
                    moved.add(evacuated);
                    (cursor, retries) = (evacuated.next, 0);
                }
                Err(error) if is_late(&error) && retries < RETRIES_MAX => retries += 1,
                Err(error) => return Err(error.into()),
            }
            parts += 1;
            if parts.is_multiple_of(PARTS_BETWEEN) {
                step(DrainStep::Moving(*moved, self.pool().drained(cx, node).await?));
            }
            // Over mapped memory nothing waits, so this would keep the thread's other tasks from running.
            self.endpoint.sleep(0).await;
        }
        Ok(())
    }
}

fn is_late(error: &IndexError) -> bool {
    matches!(
        error,
        IndexError::Pool(PoolError::Fabric(FabricError::DeadlineExceeded { .. }))
    )
}
