//! A pool that grows while it is used: nodes that come, as clients see it and as whoever adds them does.
//!
//! On the path: nowhere. A tick that sees another version of the table of nodes ([`members`]) has a task take
//! it into account, so that a node that does not answer costs no lease.
//!
//! # How a node comes
//!  1. Whoever adds it connects to it, and looks whether its memory is blank.
//!  2. It becomes the *administrator*, gives the node its number, and writes its place and the state *joining*.
//!  3. It formats the node's memory, and announces a new version.
//!  4. Every client that is live connects to the node, and says that it knows the version ([`ClientEntry::members`]).
//!  5. When all have said so the node becomes *active*, and that is announced, too. From now on whoever learns it takes memory
//!     of the node.
//!
//! [`ClientEntry::members`]: crate::client::ClientEntry::members
//!
//! # Why nobody meets an address that it cannot reach
//! A block of the node is linked after step 5, hence after everybody who was live has connected. Who joins later reads the
//! version when its entry is live, and connects to what it finds before its first operation; so either it finds the node, or it was live
//! before step 5 and was waited for. Who cannot connect to a node that is in use does not join.
//!
//! # Who dies where
//! Any step may be the last of whoever adds the node: the pool works with the nodes that it has, and the same command goes on
//! where this one has stopped. The administrator is known by its entry in the client table, and replaced when it is gone.

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, LocalFuture, NodeId, OpContext, RemoteAddr, Slice};

use crate::client::ClientEntry;
use crate::error::PoolError;
use crate::layout::{ADMINISTRATOR_AT, ChunkState, GEOMETRY_WORDS, Geometry, LAYOUT_VERSION, MAGIC, NODES_MAX, Owner};
use crate::members::{self, Member, NodeState, PLACE_BYTES_MAX, announce, change_state, read_members, read_version};
use crate::pool::{Pool, read_clients};
use crate::refill::read_chunk_table;
use crate::superblock::open_node;

/// How long a task waits before it tries to reach a node again.
const RETRY_NS: u64 = 100_000_000;

/// What a command that adds a node has come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GrowStep {
    /// The node has this number.
    Numbered(NodeId),
    /// Its memory is formatted.
    Formatted,
    /// These clients have not connected to it yet.
    Waiting(Vec<u16>),
    /// Everybody has, and takes memory of it.
    Active,
}

impl Pool {
    /// The nodes of the pool, those included that were removed, by their numbers.
    ///
    /// # Errors
    /// [`PoolError::Damaged`], or what the fabric reports.
    pub fn members<'f>(&'f self, cx: &'f mut OpContext) -> LocalFuture<'f, Result<Vec<Member>, PoolError>> {
        members_of(cx, &self.shared.geometry[0])
    }

    /// How many nodes the pool was made with.
    pub(crate) fn founders(&self) -> u16 {
        self.shared.geometry[0].node_count
    }

    /// Takes the table of nodes into account before the first operation. `version` was read when the entry was live.
    pub(crate) async fn catch_up_at_start(&self, cx: &mut OpContext, version: u64) -> Result<(), PoolError> {
        if version == 0 {
            return Ok(());
        }
        let members = read_members(cx, self.founders()).await?;
        if self.take_in_all(cx, &members).await?.is_none() {
            self.shared.members.set(version);
        }
        Ok(())
    }

    /// A tick has seen this version: has a task take it into account, and give up what is owned of nodes that are drained.
    pub(crate) fn note_members(&self, version: u64) {
        let is_known = version == self.shared.members.get();
        if is_known && self.shared.heap.borrow().chunks_of_closed().next().is_none() {
            return;
        }
        if self.shared.is_catching_up.replace(true) {
            return;
        }
        let pool = self.clone();
        self.shared.endpoint.spawn(async move {
            if let Err(error) = pool.catch_up().await {
                let client = pool.shared.owner.client;
                tracing::warn!(
                    "client {client} cannot take the pool's other nodes into account, trying again: {error}"
                );
                pool.shared.endpoint.sleep(RETRY_NS).await;
            }
            pool.shared.is_catching_up.set(false);
        });
    }

    async fn catch_up(&self) -> Result<(), PoolError> {
        self.check_alive()?;
        let mut cx = OpContext::new(self.shared.endpoint.clone());
        cx.set_deadline(self.shared.endpoint.deadline_in(self.shared.options.lease_ns));
        let version = read_version(&mut cx).await?;
        let members = read_members(&mut cx, self.founders()).await?;
        let is_early = is_planted("grow: a node known before it is reached");
        if is_early {
            self.shared.members.set(version);
        }
        let missing = self.take_in_all(&mut cx, &members).await?;
        // Whoever takes memory right now may not have seen that a node is closed.
        drop(self.shared.refill.lock().await);
        if self.clear_closed(&mut cx).await? && missing.is_none() {
            self.shared.members.set(version);
        }
        missing.map_or(Ok(()), Err)
    }

    /// Connects to the nodes that have come, leaves those that are gone, and takes memory of those that are active. Returns why a
    /// node cannot be reached that is joining: nothing is there yet, so this client can do without.
    async fn take_in_all(&self, cx: &mut OpContext, members: &[Member]) -> Result<Option<PoolError>, PoolError> {
        let mut missing = None;
        for member in members.iter().skip(1) {
            if !member.state.is_there() {
                self.leave_out(member.node);
                continue;
            }
            match self.take_in(cx, member).await {
                Err(error) if member.state == NodeState::Joining => {
                    missing = Some(error);
                    continue;
                }
                taken => taken?,
            }
            let is_open = member.state == NodeState::Active;
            self.shared.heap.borrow_mut().set_open(member.node.index(), is_open);
        }
        let heap = self.shared.heap.borrow();
        let open = self
            .shared
            .geometry
            .iter()
            .filter(|geometry| heap.is_open(geometry.node.index()));
        self.shared.chunk_bytes.set(open.map(Geometry::chunks_bytes).sum());
        Ok(missing)
    }

    async fn take_in(&self, cx: &mut OpContext, member: &Member) -> Result<(), PoolError> {
        let node = member.node;
        let known = self.shared.geometry.get(node.index());
        if known.is_some_and(|known| !known.is_absent()) {
            return Ok(());
        }
        reach(cx, member).await?;
        let geometry = open_node(cx, node, Some(&self.shared.geometry[0])).await?;
        let mut heap = self.shared.heap.borrow_mut();
        heap.set_geometry(geometry);
        heap.set_open(node.index(), false);
        drop(heap);
        self.set_geometry(geometry);
        Ok(())
    }

    fn set_geometry(&self, geometry: Geometry) {
        self.shared.geometry.change(|all| {
            while all.len() <= geometry.node.index() {
                let node = NodeId::new(all.len() as u16);
                all.push(all[0].absent(node));
            }
            all[geometry.node.index()] = geometry;
        });
    }

    fn leave_out(&self, node: NodeId) {
        let known = self.shared.geometry.get(node.index());
        if known.is_some_and(|known| !known.is_absent()) {
            let absent = self.shared.geometry[0].absent(node);
            self.shared.heap.borrow_mut().set_geometry(absent);
            self.set_geometry(absent);
        }
        if self.shared.endpoint.is_attached(node) {
            self.shared.endpoint.detach(node);
        }
    }

    /// The clients that have not taken the present version of the table into account.
    ///
    /// # Errors
    /// What the fabric reports.
    pub fn lagging<'f>(&'f self, cx: &'f mut OpContext) -> LocalFuture<'f, Result<Vec<u16>, PoolError>> {
        lagging_clients(cx, &self.shared.geometry[0])
    }

    /// Waits until every live client has taken the present version of the table into account.
    pub(crate) async fn await_all(
        &self,
        cx: &mut OpContext,
        patience_ns: u64,
        waits: &mut dyn FnMut(&[u16]),
    ) -> Result<(), PoolError> {
        let until = self.shared.endpoint.deadline_in(patience_ns);
        loop {
            self.check_alive()?;
            let clients = self.lagging(cx).await?;
            if clients.is_empty() {
                return Ok(());
            }
            waits(&clients);
            if self.shared.endpoint.now_ns() >= until.0 {
                return Err(PoolError::Lagging { clients });
            }
            self.tick().await?;
            self.shared.endpoint.sleep(self.shared.options.tick_ns).await;
        }
    }

    /// Adds the memory at `place` to the pool, or goes on with that where a command before this one has stopped. A node that is
    /// being drained is in use again. Returns its number when every live client has connected to it and takes memory of it;
    /// `patience_ns` is for how long they are waited for, twice. `identity` is what [`identity`] says of the memory through an
    /// endpoint that reaches nothing else, if anybody has asked: a client that connects to a node twice loses the first
    /// connection.
    ///
    /// Meanwhile this client has to search for what dead clients held, as everybody does ([`Pool::recover`]).
    ///
    /// # Errors
    /// [`PoolError::Membership`] if the memory is in use; [`PoolError::Unreachable`]; [`PoolError::Lagging`] names clients that
    /// cannot connect: then the node stays *joining*, which does no harm.
    pub fn add_node<'f>(
        &'f self,
        cx: &'f mut OpContext,
        place: &'f str,
        identity: Option<(u64, u16)>,
        patience_ns: u64,
        step: &'f mut dyn FnMut(GrowStep),
    ) -> LocalFuture<'f, Result<NodeId, PoolError>> {
        Box::pin(async move {
            let (node, state) = self.number(cx, place, identity).await?;
            step(GrowStep::Numbered(node));
            if state == NodeState::Joining {
                self.format_node(cx, node, place).await?;
                step(GrowStep::Formatted);
                announce(cx).await?;
                if !is_planted("grow: a node used before everybody knows it") {
                    let waits = &mut |clients: &[u16]| step(GrowStep::Waiting(clients.to_vec()));
                    self.await_all(cx, patience_ns, waits).await?;
                }
            }
            let from = [NodeState::Joining, NodeState::Draining];
            let before = change_state(cx, node, &from, NodeState::Active).await?;
            if before == NodeState::Removed {
                let reason = "it was removed from the pool meanwhile; repeat the command to add it anew".to_owned();
                return Err(PoolError::Membership { node, reason });
            }
            // Also what a command before this one may not have come to.
            announce(cx).await?;
            let waits = &mut |clients: &[u16]| step(GrowStep::Waiting(clients.to_vec()));
            self.await_all(cx, patience_ns, waits).await?;
            step(GrowStep::Active);
            Ok(node)
        })
    }

    /// The number and state of a place: those that it has, or a new number, which is joining then.
    async fn number(
        &self,
        cx: &mut OpContext,
        place: &str,
        identity: Option<(u64, u16)>,
    ) -> Result<(NodeId, NodeState), PoolError> {
        self.administer(cx).await?;
        let numbered = self.number_alone(cx, place, identity).await;
        let mine = administrator(self.shared.owner);
        cx.compare_swap(RemoteAddr::new(NodeId::new(0), ADMINISTRATOR_AT), mine, 0)
            .await?;
        numbered
    }

    /// Becomes the administrator.
    async fn administer(&self, cx: &mut OpContext) -> Result<(), PoolError> {
        let at = RemoteAddr::new(NodeId::new(0), ADMINISTRATOR_AT);
        let mine = administrator(self.shared.owner);
        let mut expected = 0;
        // Ends: the administrator is done soon, or gone.
        loop {
            let seen = cx.compare_swap(at, expected, mine).await?;
            if seen == expected || seen == mine {
                return Ok(());
            }
            let owner = Owner {
                client: ((seen >> 16) as u16).wrapping_sub(1),
                life: seen as u16,
            };
            expected = if seen != 0 && self.is_gone(cx, owner).await? {
                seen
            } else {
                0
            };
            self.tick().await?;
            self.shared.endpoint.sleep(self.shared.options.tick_ns).await;
        }
    }

    async fn number_alone(
        &self,
        cx: &mut OpContext,
        place: &str,
        identity: Option<(u64, u16)>,
    ) -> Result<(NodeId, NodeState), PoolError> {
        let members = read_members(cx, self.founders()).await?;
        let next = NodeId::new(members.len() as u16);
        let refuse = |reason: String| PoolError::Membership { node: next, reason };
        if place.len() > PLACE_BYTES_MAX || place.is_empty() {
            return Err(refuse(format!(
                "its place has to be named in 1 to {PLACE_BYTES_MAX} bytes"
            )));
        }
        let is_it = |member: &&Member| member.place.as_deref() == Some(place) && member.state != NodeState::Removed;
        let known = members.iter().find(is_it);
        if let Some(known) = known.filter(|known| known.state != NodeState::Unset) {
            self.take_in_again(cx, known).await?;
            return Ok((known.node, known.state));
        }
        let node = known.map_or(next, |known| known.node);
        if node.index() >= usize::from(NODES_MAX) {
            return Err(refuse(format!("a pool has at most {NODES_MAX} nodes in its life")));
        }
        let pool_id = self.shared.geometry[0].pool_id;
        if let Some((_, number)) = identity.filter(|&(found, _)| found == pool_id)
            && let Some(there) = occupied(node, &members, number.into())?
        {
            return Ok((there, NodeState::Draining));
        }
        self.shared.endpoint.attach(node, place).await?;
        let looked = self.look_at_newcomer(cx, node, &members).await;
        if !matches!(looked, Ok(None)) {
            self.shared.endpoint.detach(node);
        }
        if let Some(there) = looked? {
            return Ok((there, NodeState::Draining));
        }
        if known.is_none() {
            members::write_place(cx, node, place).await?;
        }
        change_state(cx, node, &[NodeState::Unset], NodeState::Joining).await?;
        Ok((node, NodeState::Joining))
    }

    /// Connects to a node that is in the table, to go on with it.
    async fn take_in_again(&self, cx: &mut OpContext, known: &Member) -> Result<(), PoolError> {
        reach(cx, known).await
    }

    /// Looks whether the memory of a node that should come is nobody's. Returns its number if it is one that is being drained.
    async fn look_at_newcomer(
        &self,
        cx: &mut OpContext,
        node: NodeId,
        members: &[Member],
    ) -> Result<Option<NodeId>, PoolError> {
        let refuse = |reason: String| PoolError::Membership { node, reason };
        let words = read_superblock(cx, node).await?;
        if words[0] == 0 {
            return Ok(None);
        }
        let first = &self.shared.geometry[0];
        if words[0] != MAGIC || words[2] != first.pool_id {
            return Err(refuse(
                "its memory holds something else already: add the memory of a node that was never used".to_owned(),
            ));
        }
        occupied(node, members, words[3] as usize)
    }

    /// Divides the memory of a node that is joining. To be done twice does no harm: nobody takes memory of it yet.
    async fn format_node(&self, cx: &mut OpContext, node: NodeId, place: &str) -> Result<(), PoolError> {
        self.shared.endpoint.attach(node, place).await?;
        let first = self.shared.geometry[0];
        let bytes = cx.endpoint().node_bytes(node)?;
        let geometry = Geometry::divide(
            first.pool_id,
            node,
            node.index() as u16 + 1,
            bytes,
            first.chunk_bytes,
            first.clients_max,
        );
        let geometry = geometry.map_err(|bytes_min| PoolError::TooSmall { node, bytes, bytes_min })?;
        if read_superblock(cx, node).await? == geometry.to_words() {
            return Ok(());
        }
        // What was drained holds nothing; the maps of blocks that are free are empty where a chunk is.
        let table = read_chunk_table(cx, &geometry).await?;
        if table.iter().any(|&state| state != ChunkState::Free) {
            let reason = "its memory is not blank: add the memory of a node that was never used".to_owned();
            return Err(PoolError::Membership { node, reason });
        }
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
}

/// The nodes of a pool, those included that were removed, by their numbers. `first` is node 0.
///
/// # Errors
/// [`PoolError::Damaged`], or what the fabric reports.
pub fn members_of<'f>(cx: &'f mut OpContext, first: &'f Geometry) -> LocalFuture<'f, Result<Vec<Member>, PoolError>> {
    Box::pin(async move { read_members(cx, first.node_count).await })
}

/// The live clients of a pool that have not taken its present nodes into account. `first` is node 0.
///
/// # Errors
/// What the fabric reports.
pub fn lagging_clients<'f>(cx: &'f mut OpContext, first: &'f Geometry) -> LocalFuture<'f, Result<Vec<u16>, PoolError>> {
    Box::pin(async move {
        let version = read_version(cx).await?;
        let clients = read_clients(cx, first.clients_max).await?;
        Ok(lagging(&clients, version))
    })
}

/// The live ones among these that have not taken this version of the nodes into account.
pub(crate) fn lagging(clients: &[(u16, ClientEntry)], version: u64) -> Vec<u16> {
    let lags = clients
        .iter()
        .filter(|(_, entry)| entry.is_live() && entry.members != version as u16);
    lags.map(|&(client, _)| client).collect()
}

/// The nodes that were removed from the pool whose node 0 is the first of `cx`; none if it holds no pool.
///
/// # Errors
/// What the fabric reports, or a table that says what nobody writes.
pub fn removed_nodes<'f>(cx: &'f mut OpContext) -> LocalFuture<'f, Result<Vec<NodeId>, PoolError>> {
    Box::pin(async move {
        let words = read_superblock(cx, NodeId::new(0)).await?;
        if words[0] != MAGIC || words[1] != LAYOUT_VERSION {
            return Ok(Vec::new());
        }
        let mut members = read_members(cx, words[4] as u16).await?;
        members.retain(|member| member.state == NodeState::Removed);
        Ok(members.iter().map(|member| member.node).collect())
    })
}

fn administrator(owner: Owner) -> u64 {
    (u64::from(owner.client) + 1) << 16 | u64::from(owner.life)
}

/// What memory is that says it is node `number` of this pool, and should become `node`: `None` if that one is not there any
/// more, its number if it is being drained.
fn occupied(node: NodeId, members: &[Member], number: usize) -> Result<Option<NodeId>, PoolError> {
    match members.get(number).filter(|member| member.state.is_there()) {
        None => Ok(None),
        Some(there) if there.state == NodeState::Draining => Ok(Some(there.node)),
        Some(there) => {
            let place = there.place.as_deref().unwrap_or("a place that is named with --pool");
            let reason = format!("it is {} of this pool already, at {place}", there.node);
            Err(PoolError::Membership { node, reason })
        }
    }
}

/// Of which pool the first node of `cx` is part, and which number it has there; `None` if it holds no pool.
///
/// # Errors
/// What the fabric reports.
pub fn identity<'f>(cx: &'f mut OpContext) -> LocalFuture<'f, Result<Option<(u64, u16)>, PoolError>> {
    Box::pin(async move {
        let words = read_superblock(cx, NodeId::new(0)).await?;
        let is_pool = words[0] == MAGIC && words[1] == LAYOUT_VERSION;
        Ok(is_pool.then_some((words[2], words[3] as u16)))
    })
}

/// Connects to a node of the table.
pub(crate) async fn reach(cx: &mut OpContext, member: &Member) -> Result<(), PoolError> {
    let endpoint = cx.endpoint().clone();
    if endpoint.is_attached(member.node) {
        return Ok(());
    }
    let Some(place) = &member.place else {
        let reason = "the pool was made with it: name it with --pool, in the order of the numbers".to_owned();
        let node = member.node;
        return Err(PoolError::Membership { node, reason });
    };
    Ok(endpoint.attach(member.node, place).await?)
}

pub(crate) async fn read_superblock(cx: &mut OpContext, node: NodeId) -> Result<[u64; GEOMETRY_WORDS], PoolError> {
    let bytes = cx
        .read(RemoteAddr::new(node, 0), Slice::first(GEOMETRY_WORDS as u32 * 8))
        .await?;
    let mut words = [0; GEOMETRY_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    // A checksum says whether they belong together.
    cx.rely_on_words();
    Ok(words)
}
