//! What a pool's memory is used for, and who is in it: a look for people, cheap enough to repeat.
//!
//! On the path: nowhere; monitors ask. It reads the chunk table (one word per chunk), the client
//! table and three shared words. Chunks are counted, not the blocks in them: which blocks of a chunk
//! are free is known to its owner alone. Nothing is locked, so the numbers are of one moment only
//! as far as the pool stands still.

use std::collections::BTreeMap;

use farside_fabric::addr::NODE_COUNT_MAX;
use farside_fabric::{LocalFuture, NodeId, OpContext, RemoteAddr};

use crate::client::Liveness;
use crate::error::PoolError;
use crate::held::held;
use crate::layout::{ChunkState, DEATHS_AT, EPOCH_AT, GEOMETRY_WORDS, Geometry};
use crate::pool::read_clients;
use crate::refill::read_chunk_table;
use crate::size_class::SizeClass;

/// What the memory of one or several nodes is used for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Bytes of the nodes' memory that the pool uses.
    pub bytes: u64,
    /// Bytes of superblocks and tables, and of what is left over before the first chunk.
    pub bytes_tables: u64,
    /// Bytes of chunks that nobody uses.
    pub bytes_free: u64,
    /// Bytes of chunks with fixed memory of an index.
    pub bytes_root: u64,
    /// Bytes of chunks that hold blocks larger than half a chunk.
    pub bytes_run: u64,
    /// Bytes of chunks that are cut into blocks, by the bytes of a block.
    pub bytes_by_block: BTreeMap<u64, u64>,
    /// What node 0 knows, if it is among the nodes.
    pub members: Option<Members>,
}

/// Who is in the pool, and how far its epochs have come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Members {
    /// The global epoch.
    pub epoch: u64,
    /// How many clients have been declared dead so far.
    pub deaths: u64,
    /// Clients that hold a lease.
    pub clients_live: u64,
    /// Clients that were cut off, and whose blocks have not all been found.
    pub clients_dead: u64,
    /// How many clients there can be at once.
    pub clients_max: u64,
    /// Bytes of blocks in use; see [`held`](crate::held()).
    pub bytes_held: u64,
}

/// Looks at every node of a pool.
///
/// # Errors
/// [`PoolError::Damaged`] if a table cannot be read, or what the fabric reports.
pub fn usage<'f>(cx: &'f mut OpContext, geometry: &'f [Geometry]) -> LocalFuture<'f, Result<Usage, PoolError>> {
    Box::pin(async move {
        let mut usage = Usage::default();
        for geometry in geometry {
            usage.add(&usage_of_node(cx, geometry).await?);
        }
        Ok(usage)
    })
}

/// Looks at one node of a pool.
///
/// # Errors
/// As [`usage`].
pub fn usage_of_node<'f>(cx: &'f mut OpContext, geometry: &'f Geometry) -> LocalFuture<'f, Result<Usage, PoolError>> {
    Box::pin(async move {
        let mut usage = Usage::default();
        usage.add_node(geometry, &read_chunk_table(cx, geometry).await?);
        if geometry.node == NodeId::new(0) {
            usage.members = Some(members(cx, geometry.clients_max).await?);
        }
        Ok(usage)
    })
}

/// Looks at one node, whichever of its pool it is, through an endpoint that reaches nothing else;
/// `None` if it is not formatted yet.
///
/// # Errors
/// [`PoolError::Foreign`] if it holds something else; otherwise as [`usage`].
pub fn node_usage<'f>(cx: &'f mut OpContext) -> LocalFuture<'f, Result<Option<Usage>, PoolError>> {
    Box::pin(async move {
        let here = NodeId::new(0);
        let mut words = [0; GEOMETRY_WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            *word = cx.read_word(RemoteAddr::new(here, at as u64 * 8)).await?;
        }
        if words[0] == 0 {
            return Ok(None);
        }
        let foreign = |reason| PoolError::Foreign { node: here, reason };
        let number = u16::try_from(words[3]).ok().filter(|&number| number < NODE_COUNT_MAX);
        let number = number.ok_or_else(|| foreign(format!("it would be node {} of its pool", words[3])))?;
        let bytes = cx.endpoint().node_bytes(here)?;
        let geometry = Geometry::from_words(&words, NodeId::new(number), bytes).map_err(foreign)?;
        // The endpoint knows it as its only node.
        let geometry = Geometry { node: here, ..geometry };
        let mut usage = Usage::default();
        usage.add_node(&geometry, &read_chunk_table(cx, &geometry).await?);
        if number == 0 {
            usage.members = Some(members(cx, geometry.clients_max).await?);
        }
        Ok(Some(usage))
    })
}

impl Usage {
    /// Adds what the memory of other nodes is used for.
    pub fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.bytes_tables += other.bytes_tables;
        self.bytes_free += other.bytes_free;
        self.bytes_root += other.bytes_root;
        self.bytes_run += other.bytes_run;
        for (&block_bytes, &bytes) in &other.bytes_by_block {
            *self.bytes_by_block.entry(block_bytes).or_default() += bytes;
        }
        self.members = self.members.or(other.members);
    }

    fn add_node(&mut self, geometry: &Geometry, table: &[ChunkState]) {
        self.bytes += geometry.node_bytes;
        // Chunks begin and end at multiples of their size; what is left at the end holds nothing.
        self.bytes_tables += geometry.node_bytes - geometry.chunk_count * geometry.chunk_bytes;
        for state in table {
            let bytes = match *state {
                ChunkState::Free => &mut self.bytes_free,
                ChunkState::Root { .. } => &mut self.bytes_root,
                ChunkState::Run { .. } | ChunkState::RunTail { .. } => &mut self.bytes_run,
                ChunkState::Blocks { class, .. } => {
                    // A class that does not exist is damage, which is for the structure checker to name.
                    let is_class = usize::from(class.0) < SizeClass::count(geometry.chunk_bytes);
                    let block_bytes = if is_class { class.bytes() } else { 0 };
                    self.bytes_by_block.entry(block_bytes).or_default()
                }
            };
            *bytes += geometry.chunk_bytes;
        }
    }
}

async fn members(cx: &mut OpContext, clients_max: u64) -> Result<Members, PoolError> {
    let node = NodeId::new(0);
    let clients = read_clients(cx, clients_max).await?;
    let count = |is_counted: fn(Liveness) -> bool| {
        let counted = clients.iter().filter(|(_, entry)| is_counted(entry.liveness));
        counted.count() as u64
    };
    Ok(Members {
        epoch: cx.read_word(RemoteAddr::new(node, EPOCH_AT)).await?,
        deaths: cx.read_word(RemoteAddr::new(node, DEATHS_AT)).await?,
        clients_live: count(|liveness| liveness == Liveness::Live),
        clients_dead: count(Liveness::is_cut_off),
        clients_max,
        bytes_held: held(cx, clients_max).await?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Owner;

    #[test]
    fn every_byte_of_a_node_is_counted_once() {
        let geometry = Geometry::divide(1, NodeId::new(0), 1, (1 << 20) + 4096, 1 << 16, 4).expect("large enough");
        let owner = Some(Owner { client: 0, life: 1 });
        let mut table = vec![ChunkState::Free; geometry.chunk_count as usize];
        table[0] = ChunkState::Root { number: 0 };
        table[1] = ChunkState::Blocks {
            owner,
            class: SizeClass(0),
        };
        table[2] = ChunkState::Blocks {
            owner: None,
            class: SizeClass(1),
        };
        table[3] = ChunkState::Blocks {
            owner: None,
            class: SizeClass(1),
        };
        table[4] = ChunkState::Run { owner, count: 2 };
        table[5] = ChunkState::RunTail { owner, back: 1 };
        let mut usage = Usage::default();
        usage.add_node(&geometry, &table);
        let blocks: u64 = usage.bytes_by_block.values().sum();
        assert_eq!(usage.bytes_by_block, BTreeMap::from([(32, 1 << 16), (64, 2 << 16)]));
        assert_eq!((usage.bytes_root, usage.bytes_run), (1 << 16, 2 << 16));
        assert_eq!(
            usage.bytes_tables + usage.bytes_free + usage.bytes_root + usage.bytes_run + blocks,
            (1 << 20) + 4096
        );
    }
}
