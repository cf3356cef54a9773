//! How a pool stands: what node 0 alone knows, for whoever looks after the pool.
//!
//! On the path: nowhere; an operator asks. Unlike [`open`](crate::open()), it needs no node but the first, so it also works
//! while others cannot be reached. Nothing is locked or changed.

use farside_fabric::{LocalFuture, NodeId, OpContext, RemoteAddr};

use crate::client::ClientEntry;
use crate::error::PoolError;
use crate::grow::{lagging, read_superblock};
use crate::layout::{Geometry, LAYOUT_VERSION, MAGIC, SNAPSHOT_AT};
use crate::members::{Member, read_members, read_version};
use crate::pool::read_clients;
use crate::snapshot::{Phase, SnapshotWord};

/// What node 0 knows.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Which pool it is.
    pub pool_id: u64,
    /// The nodes, those included that were removed.
    pub members: Vec<Member>,
    /// The clients in the table, by their numbers.
    pub clients: Vec<(u16, ClientEntry)>,
    /// How many clients there can be at once.
    pub clients_max: u64,
    /// The live clients that have not taken the present nodes into account.
    pub lagging: Vec<u16>,
    /// How far a snapshot has come, and the number of the client that takes it and its life; `None` if nobody takes one.
    pub snapshot: Option<(Phase, u16, u16)>,
}

/// Looks at the first node of `cx`; `None` if it holds no pool of this version.
///
/// # Errors
/// [`PoolError::Foreign`] if its superblock contradicts itself, [`PoolError::Damaged`], or what the fabric reports.
pub fn standing<'f>(cx: &'f mut OpContext) -> LocalFuture<'f, Result<Option<Standing>, PoolError>> {
    Box::pin(async move {
        let node = NodeId::new(0);
        let words = read_superblock(cx, node).await?;
        if words[0] != MAGIC || words[1] != LAYOUT_VERSION {
            return Ok(None);
        }
        let bytes = cx.endpoint().node_bytes(node)?;
        let foreign = |reason| PoolError::Foreign { node, reason };
        let geometry = Geometry::from_words(&words, node, bytes).map_err(foreign)?;
        let members = read_members(cx, geometry.node_count).await?;
        let version = read_version(cx).await?;
        let clients = read_clients(cx, geometry.clients_max).await?;
        let word = SnapshotWord(cx.read_word(RemoteAddr::new(node, SNAPSHOT_AT)).await?);
        Ok(Some(Standing {
            pool_id: geometry.pool_id,
            lagging: lagging(&clients, version),
            members,
            clients,
            clients_max: geometry.clients_max,
            snapshot: word.taken_by(),
        }))
    })
}
