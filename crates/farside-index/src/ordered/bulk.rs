//! Laying out many items with short keys at once, and learning where they are.
//!
//! On the path: nowhere. See [`Tree::lay_out`](crate::Tree::lay_out), which this gives data pointers.

use farside_fabric::OpContext;
use farside_fabric::region::Region;
use farside_pool::BulkLoader;
use farside_sync::{Pointer, SizeHint};

use super::part::{PART_BYTES, Part};
use super::{Layer, Ordered};
use crate::error::IndexError;
use crate::item::Item;
use crate::tree::Known;

/// The layer of keys that are one part.
const FIRST: Layer = 0;

impl Ordered {
    /// Puts keys of eight bytes, ascending, into an empty index that nobody else uses, on the one node of its pool, whose memory
    /// `region` is; all of them with the same value. `unit` draws numbers from 0 to 1.
    ///
    /// # Errors
    /// If there is not enough memory.
    ///
    /// # Panics
    /// If the index is not empty, keys are not ascending, or the value takes more than half a chunk.
    pub fn lay_out(
        &self,
        region: &Region,
        keys: &mut dyn Iterator<Item = [u8; PART_BYTES]>,
        value: &[u8],
        unit: &mut dyn FnMut() -> f64,
    ) -> Result<(), IndexError> {
        let bytes = Item::of(&[0; PART_BYTES], value, 0).bytes();
        let mut block = vec![0; bytes as usize];
        let mut loader = BulkLoader::new(self.pool().geometry()[0], region, bytes);
        let (mut is_used, mut failed) = (false, None);
        let mut entries = keys.map_while(|key| {
            Item::of(&key, value, 0).encode(&mut block);
            let stored = loader.block(&block).map_err(|error| failed = Some(error)).ok()?;
            is_used = true;
            let pointer = Pointer::new(stored, SizeHint::for_item(bytes), 0);
            Some((Part::of(FIRST, &key, 0).0, pointer.to_word()))
        });
        self.tree.lay_out(region, &mut entries, unit)?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        if is_used {
            loader.finish();
        }
        Ok(())
    }

    /// See [`Tree::known`](crate::Tree::known).
    #[must_use]
    pub fn known(&self) -> Known {
        self.tree.known()
    }

    /// See [`Tree::remember_known`](crate::Tree::remember_known).
    pub fn remember_known(&self, known: &Known) {
        self.tree.remember_known(known);
    }

    /// Reads every internal node, so that this client remembers them.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn remember_all(&self, cx: &mut OpContext) -> Result<(), IndexError> {
        self.tree.remember_all(cx).await
    }
}

#[cfg(test)]
mod tests {
    use farside_value::format::Tag;

    use super::super::{LeafOptions, walk};
    use super::*;
    use crate::operation::{Decision, Wanted};
    use crate::testing::Alone;
    use crate::tree::{Budget, TreeKind};
    use farside_sync::Scheme;
    use std::borrow::Cow;

    /// An index of so many keys is sound, holds them, and goes on.
    fn lay_out(kind: TreeKind, count: u64) {
        let mut alone = Alone::new(32 << 20);
        let (cx, sim, node) = (&mut alone.cx, &alone.sim, alone.node);
        let blocks = sim.block_on(async {
            let made = Ordered::create(
                cx,
                alone.pool.clone(),
                Scheme::Optimistic.into(),
                (kind, LeafOptions::PUBLISHED),
                Budget::default(),
            );
            let index = made.await.expect("an index");
            let mut keys = (0..count).map(|number| (number * 10).to_be_bytes());
            let laid = index.lay_out(&sim.region(node), &mut keys, b"first", &mut || 0.5);
            laid.expect("room");
            index.remember_all(cx).await.expect("nodes");
            for number in 0..count.min(200) {
                let key = (number * 10 + 5).to_be_bytes();
                let mut second = |_: Option<Item<'_>>| Decision::Put {
                    value: Cow::Borrowed(b"second"),
                    expiry_ms: 0,
                    tag: Tag::String,
                    regardless: false,
                };
                let put = index.change(cx, &key, None, &mut second);
                put.await.expect("a put");
            }
            let (mut seen, mut from) = (Vec::new(), Some(Vec::new()));
            while let Some(key) = from {
                let visit = &mut |item: Item<'_>| seen.push((item.key.to_vec(), item.value.len()));
                from = index
                    .range(cx, &key, 100, (Wanted::Items, visit))
                    .await
                    .expect("a range");
            }
            let first = (0..count).map(|number| (number * 10, 5));
            let second = (0..count.min(200)).map(|number| (number * 10 + 5, 6));
            let mut expected: Vec<_> = first.chain(second).collect();
            expected.sort_unstable();
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(key, bytes): (u64, usize)| (key.to_be_bytes().to_vec(), bytes))
                .collect();
            assert_eq!(seen, expected);
            let mut blocks = Vec::new();
            walk(cx, &mut |block| blocks.push(block)).await.expect("a walk");
            blocks
        });
        alone.end(&blocks);
    }

    #[test]
    fn indexes_that_were_laid_out_are_indexes() {
        for (kind, ..) in TreeKind::ALL {
            for count in [0, 1, 3000] {
                lay_out(kind, count);
            }
        }
    }
}
