//! Settling a node: ending what a client has begun under its lock and cannot end any more.
//!
//! On the path: nowhere, until a holder dies, fails or gives up. Then whoever has taken the lock over, or a task of the one who
//! gave up, reads the node and does what its intent says; without one it repairs what single changes may have left.
//! To be done twice, or half and then again, does no harm: all follows from entries and intent.

use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_pool::Pin;

use super::Tree;
use super::close::Left;
use super::layout::{INTENT_AT, LOCK_AT, SPLIT_KEY_AT};
use super::leaf::{self, Fences, word};
use super::lock::{Held, Kind};
use super::task::Name;
use super::words::{Intent, LockWord, Sibling};
use crate::error::IndexError;

impl Tree {
    /// Settles a node whose lock this client may still have, and gives it back. If that cannot be done this client has lost its
    /// way to the node: it ends its membership, as nobody else could take the lock over as long as it lived.
    pub(super) fn settle_own(&self, node: RemoteAddr, kind: Kind, mine: LockWord, pin: Pin) {
        self.start(Name::Settle(mine.0), |tree| async move {
            let mut cx = OpContext::new(tree.pool().endpoint().clone());
            let settled = tree.settle_once(&mut cx, node, kind, mine, &pin).await;
            if let Err(error) = &settled {
                tracing::debug!("cannot settle the node at {node}: {error}");
                tree.pool().abandon();
            }
            settled
        });
    }

    async fn settle_once(
        &self,
        cx: &mut OpContext,
        node: RemoteAddr,
        kind: Kind,
        mine: LockWord,
        pin: &Pin,
    ) -> Result<(), IndexError> {
        // Whatever was posted before has taken effect by now. Ends: whoever settles the leaf that a merge is to leave settles
        // this one, too.
        loop {
            if cx.read_word(node.plus(LOCK_AT)).await? != mine.0 {
                return Ok(());
            }
            if !self.settle_left(cx, node, kind, mine, pin).await? {
                break;
            }
        }
        let mut held = Held::again(self, node, kind, mine);
        let settled = match self.settle(cx, &mut held).await {
            Ok(()) => cx.write_word(held.at(), held.free.0).await.map_err(IndexError::from),
            Err(error) => Err(error),
        };
        held.end();
        settled
    }

    /// If a node whose lock has this word is to be absorbed by its left neighbour, settles that one; returns whether it did.
    pub(super) async fn settle_left(
        &self,
        cx: &mut OpContext,
        node: RemoteAddr,
        kind: Kind,
        seen: LockWord,
        pin: &Pin,
    ) -> Result<bool, IndexError> {
        let mut batch = Batch::new();
        let intent = batch.read_word(node.plus(INTENT_AT));
        // After the intent: as long as the lock is held the other one is there.
        let lock = batch.read_word(node.plus(LOCK_AT));
        cx.post(&mut batch).await?;
        match Intent::from_word(batch.result(intent)) {
            Some(Intent::AbsorbedBy { left }) if batch.result(lock) == seen.0 => {
                let held = Box::pin(self.lock(cx, left, kind, pin)).await?;
                self.unlock(cx, held).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Whether a node is torn and stays that way: nobody has its lock, and it is the same twice. The first look may have met a
    /// write, and the lock may have been free between two of them.
    pub(super) async fn stays_torn(
        &self,
        cx: &mut OpContext,
        node: RemoteAddr,
        (at, bytes): (u64, u64),
        is_whole: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, IndexError> {
        let (image, mut before) = (Slice::first(bytes as u32), None::<Vec<u8>>);
        for _ in 0..2 {
            cx.reserve(image.range().end);
            let mut batch = Batch::new();
            batch.read(node.plus(at), image);
            // After the node: whoever has written it meanwhile has the lock still, or it is not the same.
            let lock = batch.read_word(node.plus(LOCK_AT));
            cx.post(&mut batch).await?;
            let bytes = cx.buffer()[image.range()].to_vec();
            let is_at_rest = LockWord(batch.result(lock)).owner().is_none();
            let is_torn = is_at_rest && !is_whole(&bytes) && before.is_none_or(|before| before == bytes);
            cx.validated();
            if !is_torn {
                return Ok(false);
            }
            before = Some(bytes);
        }
        Ok(true)
    }

    /// Brings a node that this client has locked into order, and finds out what its lock word has to say.
    pub(super) async fn settle(&self, cx: &mut OpContext, held: &mut Held) -> Result<(), IndexError> {
        let settled = &self.shared.statistics.settled;
        settled.set(settled.get() + 1);
        match held.kind {
            Kind::Inner => Box::pin(self.settle_inner(cx, held.node)).await,
            Kind::Leaf => Box::pin(self.settle_leaf(cx, held)).await,
        }
    }

    /// READs a whole leaf whose lock is held.
    pub(super) async fn read_locked_leaf(&self, cx: &mut OpContext, node: RemoteAddr) -> Result<(), IndexError> {
        let bytes = self.shape().leaf_bytes() as u32;
        cx.reserve(bytes as usize);
        cx.read(node, Slice::first(bytes)).await?;
        if self.shape().has_claims() {
            // Entries are looked at again before they are relied on.
            cx.validated();
        } else {
            // Only the holder of the lock writes the rest; the lock word is not used.
            cx.rely_on(Slice::new(8, bytes - 8));
        }
        Ok(())
    }

    /// WRITEs a leaf from the fences on, and then that nothing more is intended; the lock stays.
    pub(super) fn write_node(&self, batch: &mut Batch, node: RemoteAddr) {
        let shape = self.shape();
        batch.write(shape.body(0), node.plus(shape.low_at()));
        batch.write_word(node.plus(INTENT_AT), 0);
    }

    /// Freezes a leaf whose lock is held and which is in the buffer, whatever has happened to it. A key that is there twice is
    /// the one that is not frozen: once both are, nobody could tell. Where entries are claimed one by one the leaf is closed already.
    pub(super) async fn freeze_left(&self, cx: &mut OpContext, node: RemoteAddr) -> Result<(), IndexError> {
        let shape = self.shape();
        if !shape.has_pointers() || shape.has_claims() {
            return Ok(());
        }
        let dropped = shape.drop_left(cx.buffer_mut());
        for dropped in dropped.chunks(BATCH_VERBS_MAX) {
            let mut batch = Batch::new();
            for &entry in dropped {
                let meta = shape.meta(cx.buffer(), entry);
                batch.write_word(node.plus(shape.entry_at(entry)), meta.0);
            }
            cx.post(&mut batch).await?;
        }
        self.freeze_all(cx, node, 0).await
    }

    async fn settle_leaf(&self, cx: &mut OpContext, held: &mut Held) -> Result<(), IndexError> {
        let (shape, node) = (self.shape(), held.node);
        self.read_locked_leaf(cx, node).await?;
        if shape.has_claims() {
            self.close(cx, node, 0, Left::NodeWrite).await?;
        }
        let damaged = IndexError::NodeDamaged { at: node };
        let intent = leaf::intent(cx.buffer()).ok_or_else(|| damaged.clone())?;
        let image = cx.buffer();
        let fences = shape.fences_at(image);
        let now = Sibling(word(image, shape.replica_at(0)));
        let (fences, sibling) = match intent {
            Intent::None => (fences, now),
            Intent::Split { right, version } => {
                let high = shape.key_at(image, SPLIT_KEY_AT).checked_sub(1).ok_or(damaged)?;
                (Fences { high, ..fences }, leaf::sibling(right, version))
            }
            Intent::Absorb { right } => return self.settle_merge(cx, held, right).await,
            // Whoever wants its lock settles the other one first, and then the intent is no more.
            Intent::AbsorbedBy { .. } | Intent::Copy | Intent::Below { .. } | Intent::GiveWay => return Err(damaged),
        };
        if sibling.is_gone() {
            held.free = LockWord(0);
            return Ok(());
        }
        self.freeze_left(cx, node).await?;
        shape.mend(cx.buffer_mut(), fences, sibling);
        held.free = shape.vacancy(cx.buffer());
        let mut batch = Batch::new();
        self.write_node(&mut batch, node);
        Ok(cx.post(&mut batch).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Budget, Shape, TreeOptions};
    use super::*;
    use crate::testing::Alone;

    /// Nobody waits for ever for a leaf that nobody writes: who reads it is told which one it is.
    #[test]
    fn a_leaf_that_stays_torn_is_damaged() {
        let Alone { sim, mut cx, pool, .. } = Alone::new(1 << 20);
        sim.block_on(async move {
            let budget = Budget {
                cache_bytes: 1 << 16,
                hotspot_bytes: 0,
            };
            let shape = Shape::hopscotch(8, 4);
            let tree = Tree::create(&mut cx, pool.clone(), TreeOptions { shape, budget }).await;
            let tree = tree.expect("a tree");
            tree.put(&mut cx, 7_u64, 70).await.expect("room");
            let found = tree.seek(&mut cx, 7, &tree.pin()).await.expect("no fault");
            let (leaf, at, _) = found.expect("it is there");
            cx.write_word(at, 71).await.expect("no fault");
            let damaged = Err(IndexError::NodeDamaged { at: leaf });
            assert_eq!(tree.search(&mut cx, 7_u64).await, damaged);
            assert_eq!(
                tree.scan(&mut cx, 0_u64, 1, &mut |_, _| ()).await,
                damaged.map(|_: Option<u64>| None)
            );
        });
    }
}
