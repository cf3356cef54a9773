//! Formatting a pool, opening one, and its roots.
//!
//! A pool is formatted by the first client that comes to blank nodes: it claims a word of node 0 by
//! compare-and-swap, and the others wait until the magic of node 0 is there, which is written last. If
//! that takes too long they cut the claimant off, and one of them takes its place. The second one goes
//! on with the pool's number that the first one chose, so what is formatted already is formatted again.

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, EndpointId, Fence, LocalFuture, NodeId, OpContext, RemoteAddr};

use crate::error::PoolError;
use crate::grow::reach;
use crate::layout::{
    CREATOR_AT, ChunkState, GEOMETRY_WORDS, Geometry, MAGIC, POOL_ID_AT, ROOT_COUNT, ROOTS_AT, SUPERBLOCK_BYTES,
};
use crate::members::{Member, NodeState, read_members, read_version};

/// Bytes of the smallest and the largest chunk that is chosen by default.
const CHUNK_BYTES_RANGE: (u64, u64) = (64 << 10, 1 << 20);
/// How many chunks a node is divided into, if that gives a size within the range.
const CHUNK_COUNT_AIM: u64 = 4096;
/// How often a client looks whether another one has finished formatting.
const FORMAT_POLL_NS: u64 = 1_000_000;

/// How to format a pool.
#[derive(Clone, Copy, Debug)]
pub struct FormatOptions {
    /// How many clients there is room for.
    pub clients_max: u16,
    /// Bytes of a chunk, a power of two; chosen by the size of the memory if `None`.
    pub chunk_bytes: Option<u64>,
    /// How long another client may take to format before it is cut off and another one goes on.
    pub patience_ns: u64,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            clients_max: 1024,
            chunk_bytes: None,
            patience_ns: 2_000_000_000,
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
pub fn open_or_format<'f>(
    cx: &'f mut OpContext,
    options: FormatOptions,
) -> LocalFuture<'f, Result<Vec<Geometry>, PoolError>> {
    Box::pin(async move {
        // Before anything is read there.
        for index in 0..node_count(cx) {
            let node = NodeId::new(index);
            if !cx.endpoint().is_attached(node) {
                continue;
            }
            let bytes = cx.endpoint().node_bytes(node)?;
            if bytes < SUPERBLOCK_BYTES {
                let chunk_bytes = options.chunk_bytes.unwrap_or(CHUNK_BYTES_RANGE.0);
                Geometry::divide(1, node, 1, bytes, chunk_bytes, options.clients_max.into())
                    .map_err(|bytes_min| PoolError::TooSmall { node, bytes, bytes_min })?;
            }
        }
        let magic = RemoteAddr::new(NodeId::new(0), 0);
        let mut waiting = Waiting::default();
        // Ends: whoever claims formats, and each claimant is given a limited time.
        while cx.read_word(magic).await? == 0 {
            if claim(cx, &mut waiting, options.patience_ns).await? {
                format(cx, options).await?;
            }
        }
        open(cx).await
    })
}

/// Whom a client waits for, and since when.
#[derive(Default)]
struct Waiting {
    creator: u64,
    since_ns: u64,
}

/// Tries to become the one that formats; waits a little if somebody else is.
async fn claim(cx: &mut OpContext, waiting: &mut Waiting, patience_ns: u64) -> Result<bool, PoolError> {
    let endpoint = cx.endpoint().clone();
    let word = RemoteAddr::new(NodeId::new(0), CREATOR_AT);
    let mine = endpoint.id().0;
    let creator = cx.compare_swap(word, 0, mine).await?;
    if creator == 0 || creator == mine {
        return Ok(true);
    }
    if creator != waiting.creator {
        (waiting.creator, waiting.since_ns) = (creator, endpoint.now_ns());
    }
    if endpoint.now_ns() - waiting.since_ns >= patience_ns {
        // Nothing of it may arrive any more once somebody else writes.
        if endpoint.fence(EndpointId(creator), cx.deadline()).await? == Fence::CutOff {
            return Ok(cx.compare_swap(word, creator, mine).await? == creator);
        }
    }
    endpoint.sleep(FORMAT_POLL_NS).await;
    Ok(false)
}

/// Formats all nodes, node 0 last: whoever sees its magic sees a complete pool.
async fn format(cx: &mut OpContext, options: FormatOptions) -> Result<(), PoolError> {
    let node_count = node_count(cx);
    let number = RemoteAddr::new(NodeId::new(0), POOL_ID_AT);
    // A claimant before us may have got as far as this, and further.
    let chosen = cx.endpoint().random() | 1;
    let before = cx.compare_swap(number, 0, chosen).await?;
    let pool_id = if before == 0 { chosen } else { before };
    for turn in (0..node_count).rev() {
        let is_hasty = is_planted("pool: node 0 formatted first");
        let node = if is_hasty { node_count - 1 - turn } else { turn };
        format_node(cx, pool_id, NodeId::new(node), node_count, options).await?;
    }
    Ok(())
}

fn node_count(cx: &OpContext) -> u16 {
    u16::try_from(cx.endpoint().node_count()).expect("nodes are numbered with 12 bits")
}

async fn format_node(
    cx: &mut OpContext,
    pool_id: u64,
    node: NodeId,
    node_count: u16,
    options: FormatOptions,
) -> Result<(), PoolError> {
    let bytes = cx.endpoint().node_bytes(node)?;
    if node.index() > 0 {
        let magic = cx.read_word(RemoteAddr::new(node, 0)).await?;
        let owner = cx.read_word(RemoteAddr::new(node, POOL_ID_AT)).await?;
        if magic == MAGIC && owner != pool_id {
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

/// Opens a formatted pool: reads and checks the superblock of every node. Connects to nodes that have come since the pool was made,
/// and leaves those that were removed; of these the result says that they are [absent](Geometry::is_absent).
///
/// # Errors
/// Names the node that holds no pool, another pool, or a damaged superblock.
pub fn open<'f>(cx: &'f mut OpContext) -> LocalFuture<'f, Result<Vec<Geometry>, PoolError>> {
    Box::pin(async move {
        let named = node_count(cx);
        let first = open_node(cx, NodeId::new(0), None).await?;
        let members = match read_version(cx).await? {
            // It has the nodes that it was made with.
            0 => None,
            _ => Some(read_members(cx, first.node_count).await?),
        };
        let count = members
            .as_ref()
            .map_or(first.node_count, |members| members.len() as u16);
        if count < named || (members.is_none() && count != named) {
            return Err(PoolError::Foreign {
                node: NodeId::new(0),
                reason: format!("its pool has {count} nodes, {named} are named"),
            });
        }
        let mut all = vec![first];
        for index in 1..count {
            let node = NodeId::new(index);
            let opened = match members.as_ref().map(|members| &members[usize::from(index)]) {
                None => open_node(cx, node, Some(&first)).await?,
                Some(member) if member.state.is_there() => match open_member(cx, &first, member).await {
                    // It holds nothing yet: whoever joins connects to it when it can be reached.
                    Err(_) if member.state == NodeState::Joining => first.absent(node),
                    opened => opened?,
                },
                Some(_) => {
                    if cx.endpoint().is_attached(node) {
                        cx.endpoint().detach(node);
                    }
                    first.absent(node)
                }
            };
            all.push(opened);
        }
        Ok(all)
    })
}

async fn open_member(cx: &mut OpContext, first: &Geometry, member: &Member) -> Result<Geometry, PoolError> {
    reach(cx, member).await?;
    open_node(cx, member.node, Some(first)).await
}

/// Reads and checks the superblock of a node; `first` is that of node 0.
pub(crate) async fn open_node(
    cx: &mut OpContext,
    node: NodeId,
    first: Option<&Geometry>,
) -> Result<Geometry, PoolError> {
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
    if let Some(first) = first
        && (first.pool_id, first.chunk_bytes) != (geometry.pool_id, geometry.chunk_bytes)
    {
        return Err(foreign("it belongs to another pool than node 0".to_owned()));
    }
    Ok(geometry)
}

fn root_addr(node: NodeId, root: u8) -> RemoteAddr {
    assert!(root < ROOT_COUNT, "roots are numbered from 0 to {}", ROOT_COUNT - 1);
    RemoteAddr::new(node, ROOTS_AT + u64::from(root) * 16)
}

/// Reads a root of a node; `None` if it was never made.
///
/// # Errors
/// If the fabric fails.
pub fn root<'f>(cx: &'f mut OpContext, node: NodeId, root: u8) -> LocalFuture<'f, Result<Option<Root>, PoolError>> {
    Box::pin(async move {
        let at = root_addr(node, root);
        // Whoever makes it writes the length first.
        let word = cx.read_word(at).await?;
        let bytes = cx.read_word(at.plus(8)).await?;
        let damaged = |reason: &str| PoolError::Damaged {
            node,
            reason: format!("root {root} {reason}"),
        };
        if word == 0 {
            return Ok(None);
        }
        let addr = RemoteAddr::from_bits(word).ok_or_else(|| damaged("holds no address"))?;
        Ok(Some(Root { addr, bytes }))
    })
}

/// Makes a root of at least `bytes` zeroed bytes out of whole chunks of the node, or returns the one
/// that is there. Two clients that make the same root at once get the same one.
///
/// # Errors
/// [`PoolError::OutOfMemory`] if the node has not that many contiguous chunks.
pub fn make_root<'f>(
    cx: &'f mut OpContext,
    geometry: &'f Geometry,
    number: u8,
    bytes: u64,
) -> LocalFuture<'f, Result<Root, PoolError>> {
    Box::pin(async move {
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
    })
}

/// The first `count` chunks in a row that are free or carry the word `meant`.
async fn first_free_run(
    cx: &mut OpContext,
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
