//! Filling a new pool with many blocks at once, straight in a node's memory.
//!
//! On the path: nowhere. Whoever has the memory of a node in its own process (a benchmark, a restore)
//! can lay out millions of items without a verb for each, in a way that clients cannot tell from
//! items that others have written: whole chunks that nobody owns, every block of which is in use.
//! Blocks that are left over in the last chunk are marked free in its free map.
//!
//! The caller links the blocks, and does both while no client works on the node.

use core::sync::atomic::Ordering;

use farside_fabric::RemoteAddr;
use farside_fabric::region::Region;

use crate::error::PoolError;
use crate::heap::block_to_unit;
use crate::layout::{ChunkState, Geometry};
use crate::size_class::SizeClass;

/// Writes blocks of one size into free chunks of a node.
#[derive(Debug)]
pub struct BulkLoader<'a> {
    geometry: Geometry,
    region: &'a Region,
    class: SizeClass,
    /// The chunk being filled.
    chunk: u64,
    /// Its next block, counted from 0; `blocks` once it is full, or while there is none.
    next: u64,
    blocks: u64,
}

impl<'a> BulkLoader<'a> {
    /// A loader of blocks of `bytes` bytes into the memory of the node that `geometry` describes.
    ///
    /// # Panics
    /// If such blocks are larger than half a chunk.
    #[must_use]
    pub fn new(geometry: Geometry, region: &'a Region, bytes: u64) -> Self {
        let class = SizeClass::for_bytes(bytes, geometry.chunk_bytes);
        assert!(class != SizeClass::RUN, "runs are not loaded in bulk");
        let blocks = geometry.blocks_per_chunk(class);
        Self {
            geometry,
            region,
            class,
            chunk: 0,
            next: blocks,
            blocks,
        }
    }

    /// Writes `bytes` to a block of its own, and returns where it is.
    ///
    /// # Errors
    /// [`PoolError::OutOfMemory`] if the node has no free chunk left.
    ///
    /// # Panics
    /// If `bytes` does not fit into a block.
    #[inline]
    pub fn block(&mut self, bytes: &[u8]) -> Result<RemoteAddr, PoolError> {
        let block_bytes = self.class.bytes();
        assert!(
            bytes.len() as u64 <= block_bytes,
            "a block is as large as was asked for"
        );
        if self.next == self.blocks {
            self.take_chunk(block_bytes)?;
        }
        let addr = self.geometry.chunk(self.chunk).plus(self.next * block_bytes);
        self.region.write(addr.offset(), bytes);
        self.next += 1;
        Ok(addr)
    }

    /// Goes on with the next free chunk.
    fn take_chunk(&mut self, bytes: u64) -> Result<(), PoolError> {
        let state = ChunkState::Blocks {
            owner: None,
            class: self.class,
        };
        for index in self.chunk..self.geometry.chunk_count {
            let word = self.region.word(self.geometry.chunk_word(index).offset());
            let taken = word.compare_exchange(0, state.to_word(), Ordering::SeqCst, Ordering::SeqCst);
            if taken.is_ok() {
                (self.chunk, self.next) = (index, 0);
                return Ok(());
            }
        }
        Err(PoolError::OutOfMemory { bytes })
    }

    /// Marks what is left of the last chunk as free.
    pub fn finish(self) {
        let map = self.geometry.free_map(self.chunk).offset();
        for block in self.next..self.blocks {
            let unit = block_to_unit(self.class, block);
            let word = self.region.word(map + unit / 64 * 8);
            word.fetch_or(1 << (unit % 64), Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::account;
    use crate::superblock::{FormatOptions, open_or_format};
    use farside_fabric::OpContext;
    use farside_fabric::sim::{Sim, SimOptions};

    /// Loads blocks, and has every block of the pool accounted for.
    fn load(block_bytes: u64, count: u64) {
        let sim = Sim::new(SimOptions::default());
        let node = sim.add_memory_node(8 << 20);
        let mut cx = OpContext::new(sim.endpoint(sim.add_compute_node()));
        let region = sim.region(node);
        let geometry = sim
            .block_on(open_or_format(&mut cx, FormatOptions::default()))
            .expect("a pool");
        let mut loader = BulkLoader::new(geometry[0], &region, block_bytes);
        let blocks: Vec<RemoteAddr> = (0..count)
            .map(|number| loader.block(&number.to_le_bytes()).expect("room"))
            .collect();
        loader.finish();
        for (number, block) in (0..).zip(&blocks) {
            assert_eq!(region.word(block.offset()).load(Ordering::SeqCst), number);
        }
        let account = sim.block_on(account(&mut cx, &geometry, &blocks)).expect("an account");
        assert_eq!(account.faults, Vec::<String>::new());
        assert_eq!(account.blocks_reachable, count);
        let per_chunk = geometry[0].blocks_per_chunk(SizeClass::for_bytes(block_bytes, geometry[0].chunk_bytes));
        assert_eq!(account.blocks_free, count.next_multiple_of(per_chunk) - count);
    }

    #[test]
    fn every_block_is_accounted_for() {
        for (block_bytes, count) in [(32, 5000), (64, 4096), (100, 3001), (700, 1), (64, 0)] {
            load(block_bytes, count);
        }
    }

    #[test]
    fn a_full_node_is_an_error() {
        let region = Region::anonymous(2 << 20).expect("memory");
        let geometry =
            Geometry::divide(1, farside_fabric::NodeId::new(0), 1, 2 << 20, 128 << 10, 8).expect("large enough");
        let mut loader = BulkLoader::new(geometry, &region, 64);
        let room = geometry.chunk_count * geometry.blocks_per_chunk(SizeClass::for_bytes(64, 128 << 10));
        for _ in 0..room {
            loader.block(&[7; 64]).expect("room");
        }
        assert_eq!(loader.block(&[7; 64]), Err(PoolError::OutOfMemory { bytes: 64 }));
    }
}
