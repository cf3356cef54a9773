//! Formatting a pool, opening one, and its roots.
//!
//! A pool is formatted by the first client that comes to blank nodes. The first word of each node
//! says whether it is blank, being formatted, or ready; it is set by compare-and-swap, so of several
//! clients one formats and the others wait.

use farside_fabric::{Batch, Endpoint, NodeId, OpContext, RemoteAddr};

use crate::error::PoolError;
use crate::layout::{ChunkState, GEOMETRY_WORDS, Geometry, MAGIC, MAGIC_FORMATTING, ROOT_COUNT, ROOTS_AT};

/// Bytes of the smallest and the largest chunk that is chosen by default.
const CHUNK_BYTES_RANGE: (u64, u64) = (128 << 10, 1 << 20);
/// How many chunks a node is divided into, if that gives a size within the range.
const CHUNK_COUNT_AIM: u64 = 4096;
/// How often a client looks whether another one has finished formatting, and how long it waits.
const FORMAT_POLL_NS: u64 = 10_000_000;
const FORMAT_POLLS_MAX: u32 = 500;

/// How to format a pool.
#[derive(Clone, Copy, Debug)]
pub struct FormatOptions {
    /// How many clients there is room for.
    pub clients_max: u16,
    /// Bytes of a chunk, a power of two; chosen by the size of the memory if `None`.
    pub chunk_bytes: Option<u64>,
    /// Whether a half-finished format of a creator that died may be done again. Only for a caller
    /// that knows that nobody else formats: it holds the segment.
    pub take_over: bool,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            clients_max: 1024,
            chunk_bytes: None,
            take_over: false,
        }
    }
}

/// One of an index's fixed regions: an address and how many bytes it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root {
    /// The first byte.
    pub addr: RemoteAddr,
    /// The length.
    pub bytes: u64,
}

/// Formats the nodes of `cx` if they are blank, and returns what each is divided into.
///
/// # Errors
/// If a node is too small, foreign, or formatted for another pool, or the fabric fails.
pub async fn open_or_format<E: Endpoint>(
    cx: &mut OpContext<E>,
    options: FormatOptions,
) -> Result<Vec<Geometry>, PoolError> {
    let node_count = node_count(cx);
    for _ in 0..FORMAT_POLLS_MAX {
        let first = RemoteAddr::new(NodeId::new(0), 0);
        let magic = cx.read_word(first).await?;
        let may_format = magic == 0 || (magic == MAGIC_FORMATTING && options.take_over);
        if may_format && cx.compare_swap(first, magic, MAGIC_FORMATTING).await? == magic {
            let pool_id = cx.endpoint().random();
            // Node 0 last: whoever sees its magic sees a complete pool.
            for node in (0..node_count).rev() {
                format_node(cx, pool_id, NodeId::new(node), node_count, options).await?;
            }
            return open(cx).await;
        }
        if magic != 0 && magic != MAGIC_FORMATTING {
            return open(cx).await;
        }
        // Another client formats it.
        cx.endpoint().clone().sleep(FORMAT_POLL_NS).await;
    }
    Err(PoolError::Foreign {
        node: NodeId::new(0),
        reason: "its creator died while formatting it; nothing is stored there yet: remove it and start again"
            .to_owned(),
    })
}

fn node_count<E: Endpoint>(cx: &OpContext<E>) -> u16 {
    u16::try_from(cx.endpoint().node_count()).expect("nodes are numbered with 12 bits")
}

async fn format_node<E: Endpoint>(
    cx: &mut OpContext<E>,
    pool_id: u64,
    node: NodeId,
    node_count: u16,
    options: FormatOptions,
) -> Result<(), PoolError> {
    let bytes = cx.endpoint().node_bytes(node)?;
    if node.index() > 0 {
        let magic = cx.read_word(RemoteAddr::new(node, 0)).await?;
        if magic == MAGIC {
            let reason = "it already belongs to another pool".to_owned();
            return Err(PoolError::Foreign { node, reason });
        }
    }
    let (low, high) = CHUNK_BYTES_RANGE;
    let chunk_bytes = match options.chunk_bytes {
        Some(bytes) => bytes,
        None => {
            // All nodes use the chunk size of node 0, so that a class means the same everywhere.
            let first = cx.endpoint().node_bytes(NodeId::new(0))?;
            (first / CHUNK_COUNT_AIM).next_power_of_two().clamp(low, high)
        }
    };
    let geometry = Geometry::divide(
        pool_id,
        node,
        node_count,
        bytes,
        chunk_bytes,
        options.clients_max.into(),
    )
    .map_err(|bytes_min| PoolError::TooSmall { node, bytes, bytes_min })?;
    let words = geometry.to_words();
    let mut batch = Batch::new();
    for (index, &word) in words.iter().enumerate().skip(1) {
        batch.write_word(RemoteAddr::new(node, index as u64 * 8), word);
    }
    // The magic last: verbs to one node take effect in order.
    batch.write_word(RemoteAddr::new(node, 0), words[0]);
    cx.post(&mut batch).await?;
    Ok(())
}

/// Opens a formatted pool: reads and checks the superblock of every node.
///
/// # Errors
/// Names the node that holds no pool, another pool, or a damaged superblock.
pub async fn open<E: Endpoint>(cx: &mut OpContext<E>) -> Result<Vec<Geometry>, PoolError> {
    let mut all: Vec<Geometry> = Vec::new();
    let node_count = node_count(cx);
    for index in 0..node_count {
        let node = NodeId::new(index);
        let foreign = |reason| PoolError::Foreign { node, reason };
        let bytes = cx.endpoint().node_bytes(node)?;
        let mut words = [0; GEOMETRY_WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            *word = cx.read_word(RemoteAddr::new(node, at as u64 * 8)).await?;
        }
        if words[0] == 0 {
            return Err(foreign("it is blank".to_owned()));
        }
        let geometry = Geometry::from_words(&words, node, bytes).map_err(foreign)?;
        if geometry.node_count != node_count {
            let reason = format!("its pool has {} nodes, {node_count} are named", geometry.node_count);
            return Err(foreign(reason));
        }
        if let Some(first) = all.first()
            && (first.pool_id, first.chunk_bytes) != (geometry.pool_id, geometry.chunk_bytes)
        {
            return Err(foreign("it belongs to another pool than node 0".to_owned()));
        }
        all.push(geometry);
    }
    Ok(all)
}

fn root_addr(node: NodeId, root: u8) -> RemoteAddr {
    assert!(root < ROOT_COUNT, "roots are numbered from 0 to {}", ROOT_COUNT - 1);
    RemoteAddr::new(node, ROOTS_AT + u64::from(root) * 16)
}

/// Reads a root of a node; `None` if it was never made.
///
/// # Errors
/// If the fabric fails.
pub async fn root<E: Endpoint>(cx: &mut OpContext<E>, node: NodeId, root: u8) -> Result<Option<Root>, PoolError> {
    let at = root_addr(node, root);
    let bytes = cx.read_word(at.plus(8)).await?;
    let word = cx.read_word(at).await?;
    let damaged = |reason: &str| PoolError::Damaged {
        node,
        reason: format!("root {root} {reason}"),
    };
    if word == 0 {
        return Ok(None);
    }
    let addr = RemoteAddr::from_bits(word).ok_or_else(|| damaged("holds no address"))?;
    Ok(Some(Root { addr, bytes }))
}

/// Makes a root of at least `bytes` zeroed bytes out of whole chunks of the node, or returns the one
/// that is there. Two clients that make the same root at once get the same one.
///
/// # Errors
/// [`PoolError::OutOfMemory`] if the node has not that many contiguous chunks.
pub async fn make_root<E: Endpoint>(
    cx: &mut OpContext<E>,
    geometry: &Geometry,
    number: u8,
    bytes: u64,
) -> Result<Root, PoolError> {
    let node = geometry.node;
    if let Some(root) = root(cx, node, number).await? {
        return Ok(root);
    }
    // Roots are made while the pool is new: the first chunks are still free. Chunks of a creator
    // that died or lost the race before it set the root are found by their state and reused.
    let count = bytes.div_ceil(geometry.chunk_bytes);
    let word = ChunkState::Root { number }.to_word();
    let first = first_free_run(cx, geometry, count, word)
        .await?
        .ok_or(PoolError::OutOfMemory { bytes })?;
    for index in first..first + count {
        let before = cx.compare_swap(geometry.chunk_word(index), 0, word).await?;
        if before != 0 && before != word {
            return Err(PoolError::OutOfMemory { bytes });
        }
    }
    let at = root_addr(node, number);
    let addr = geometry.chunk(first);
    cx.compare_swap(at.plus(8), 0, count * geometry.chunk_bytes).await?;
    cx.compare_swap(at, 0, addr.to_bits()).await?;
    Ok(root(cx, node, number).await?.expect("it has just been set"))
}

/// The first `count` chunks in a row that are free or carry the word `meant`.
async fn first_free_run<E: Endpoint>(
    cx: &mut OpContext<E>,
    geometry: &Geometry,
    count: u64,
    meant: u64,
) -> Result<Option<u64>, PoolError> {
    let mut first = 0;
    for index in 0..geometry.chunk_count {
        let word = cx.read_word(geometry.chunk_word(index)).await?;
        if word != 0 && word != meant {
            first = index + 1;
        } else if index + 1 - first == count {
            return Ok(Some(first));
        }
    }
    Ok(None)
}
