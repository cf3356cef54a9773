//! Which nodes a pool has: the table in the superblock of node 0.
//!
//! On the path: nowhere. A client reads it when its version has changed, which it learns by the tick that reads the count of
//! deaths anyway.
//!
//! ```text
//! MEMBERS_VERSION_AT  how often the table was changed; 0 in a pool that has the nodes it was made with
//! ADMINISTRATOR_AT    who gives a new node its number: client + 1 in bits 16..32, its life in 0..16; 0 for nobody
//! NODE_STATES_AT      four bits for each number: a [`NodeState`]
//! NODE_PLACES_AT      records: a header (the number + 1 in bits 0..16, bytes in 16..32), and the bytes of the place in whole
//!                     words. A header of 0 ends them.
//! ```
//!
//! A node that the pool was made with has no record: whoever uses the pool names it. The others are found here.
//!
//! # Order
//! A record is written before its header, the header before the state, the state before the version. So whoever sees a
//! version sees the states that belong to it or later ones, and of each state the place. A command that dies in between
//! has changed a state and announced nothing; it is announced when the command is repeated, or with the next change.
//!
//! Invariant: a number is given to one place only, and never again after that node was removed.

use farside_fabric::{NodeId, OpContext, RemoteAddr, Slice};

use crate::error::PoolError;
use crate::layout::{
    MEMBERS_VERSION_AT, NODE_PLACES_AT, NODE_PLACES_BYTES, NODE_STATES_AT, NODE_STATES_BYTES, NODES_MAX,
};

/// Bytes of the longest place.
pub const PLACE_BYTES_MAX: usize = 250;
/// Bits of a state.
const STATE_BITS: u64 = 4;
/// States in a word.
const STATES_PER_WORD: u64 = 64 / STATE_BITS;

/// What part a node has in its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeState {
    /// There is no such node, unless the pool was made with it: then it is active.
    Unset,
    /// It is known, and clients connect to it; nobody takes memory of it yet.
    Joining,
    /// In use.
    Active,
    /// Nobody takes memory of it any more, and what it holds is moved elsewhere.
    Draining,
    /// It holds nothing, and nobody is connected to it.
    Removed,
}

impl NodeState {
    fn from_bits(bits: u64) -> Option<Self> {
        [Self::Unset, Self::Joining, Self::Active, Self::Draining, Self::Removed]
            .into_iter()
            .find(|&state| state as u64 == bits)
    }

    /// Its name, for people and scripts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unset => "absent",
            Self::Joining => "joining",
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Removed => "removed",
        }
    }

    /// Whether clients are connected to such a node.
    #[must_use]
    pub fn is_there(self) -> bool {
        matches!(self, Self::Joining | Self::Active | Self::Draining)
    }
}

/// A number of a node, and what is known about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// The number.
    pub node: NodeId,
    /// Its part in the pool.
    pub state: NodeState,
    /// Where it is, if it came later: see [`Endpoint::attach`](farside_fabric::Endpoint::attach).
    pub place: Option<String>,
}

/// The version of the table.
///
/// # Errors
/// What the fabric reports.
pub(crate) async fn read_version(cx: &mut OpContext) -> Result<u64, PoolError> {
    Ok(cx.read_word(at(MEMBERS_VERSION_AT)).await?)
}

/// Every number that was given so far, of a pool that was made with `founders` nodes.
///
/// # Errors
/// [`PoolError::Damaged`] if the table says what nobody writes; what the fabric reports.
pub(crate) async fn read_members(cx: &mut OpContext, founders: u16) -> Result<Vec<Member>, PoolError> {
    let states = read_words(cx, NODE_STATES_AT, NODE_STATES_BYTES).await?;
    // After the states: a place is there before its state is.
    let places = read_words(cx, NODE_PLACES_AT, NODE_PLACES_BYTES).await?;
    let damaged = |reason: String| PoolError::Damaged {
        node: NodeId::new(0),
        reason,
    };
    let records = records(&places).map_err(damaged)?;
    let mut members = Vec::new();
    for number in 0..NODES_MAX {
        let bits = state_bits(&states, number);
        let state = NodeState::from_bits(bits)
            .ok_or_else(|| damaged(format!("the table of nodes has state {bits} for node {number}")))?;
        let state = match state {
            NodeState::Unset if number < founders => NodeState::Active,
            state => state,
        };
        let record = records.iter().find(|record| record.number == number);
        members.push(Member {
            node: NodeId::new(number),
            state,
            place: record.map(|record| record.place.clone()),
        });
    }
    let given = members
        .iter()
        .rposition(|member| member.state != NodeState::Unset || member.place.is_some());
    members.truncate(given.map_or(0, |last| last + 1));
    Ok(members)
}

/// A place that was written down.
struct Record {
    number: u16,
    place: String,
}

fn records(words: &[u64]) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    let mut at = 0;
    while at < words.len() && words[at] != 0 {
        let (number, bytes) = (words[at] as u16, (words[at] >> 16) as usize);
        let end = at + 1 + bytes.div_ceil(8);
        let body = words.get(at + 1..end).filter(|_| number > 0 && number <= NODES_MAX);
        let body = body.ok_or_else(|| format!("record {} of the table of nodes is {:#x}", records.len(), words[at]))?;
        let mut place: Vec<u8> = body.iter().flat_map(|word| word.to_le_bytes()).collect();
        place.truncate(bytes);
        records.push(Record {
            number: number - 1,
            place: String::from_utf8_lossy(&place).into_owned(),
        });
        at = end;
    }
    Ok(records)
}

/// Writes the place of a number behind the other records, unless it is there; the caller is the administrator.
///
/// # Errors
/// [`PoolError::Membership`] if the table has no room; what the fabric reports.
pub(crate) async fn write_place(cx: &mut OpContext, node: NodeId, place: &str) -> Result<(), PoolError> {
    let words = read_words(cx, NODE_PLACES_AT, NODE_PLACES_BYTES).await?;
    let mut end = 0;
    while end < words.len() && words[end] != 0 {
        end += 1 + ((words[end] >> 16) as usize).div_ceil(8);
    }
    let bytes = place.len().next_multiple_of(8);
    if end + 1 + bytes / 8 > words.len() {
        let reason = "the pool's table of nodes is full: it has room for some eighty places in a pool's life";
        return Err(PoolError::Membership {
            node,
            reason: reason.to_owned(),
        });
    }
    cx.reserve(bytes);
    let body = &mut cx.buffer_mut()[..bytes];
    body.fill(0);
    body[..place.len()].copy_from_slice(place.as_bytes());
    let header = (node.index() as u64 + 1) | (place.len() as u64) << 16;
    let record = NODE_PLACES_AT + end as u64 * 8;
    cx.write(Slice::first(bytes as u32), at(record + 8)).await?;
    // The header last: it says that the rest is there.
    cx.write_word(at(record), header).await?;
    Ok(())
}

/// Changes the state of a node; returns the one that it had, which stays if it was none of `from`.
///
/// # Errors
/// What the fabric reports.
pub(crate) async fn change_state(
    cx: &mut OpContext,
    node: NodeId,
    from: &[NodeState],
    to: NodeState,
) -> Result<NodeState, PoolError> {
    let number = node.index() as u64;
    let word = at(NODE_STATES_AT + number / STATES_PER_WORD * 8);
    let shift = number % STATES_PER_WORD * STATE_BITS;
    let mut seen = cx.read_word(word).await?;
    // Ends: losing means that the state of a node with the same word was changed, which is rare.
    loop {
        let bits = seen >> shift & ((1 << STATE_BITS) - 1);
        let before = NodeState::from_bits(bits).ok_or_else(|| PoolError::Damaged {
            node: NodeId::new(0),
            reason: format!("the table of nodes has state {bits} for {node}"),
        })?;
        if !from.contains(&before) {
            return Ok(before);
        }
        let changed = seen ^ (bits ^ to as u64) << shift;
        let found = cx.compare_swap(word, seen, changed).await?;
        if found == seen {
            return Ok(before);
        }
        seen = found;
    }
}

/// Tells everybody that the table was changed.
///
/// # Errors
/// What the fabric reports.
pub(crate) async fn announce(cx: &mut OpContext) -> Result<(), PoolError> {
    let version = cx.fetch_add(at(MEMBERS_VERSION_AT), 1).await? + 1;
    // Clients say what they know by the lowest bits, and know nothing when they come.
    if version as u16 == 0 {
        cx.fetch_add(at(MEMBERS_VERSION_AT), 1).await?;
    }
    Ok(())
}

fn state_bits(words: &[u64], number: u16) -> u64 {
    let number = u64::from(number);
    words[(number / STATES_PER_WORD) as usize] >> (number % STATES_PER_WORD * STATE_BITS) & ((1 << STATE_BITS) - 1)
}

fn at(offset: u64) -> RemoteAddr {
    RemoteAddr::new(NodeId::new(0), offset)
}

async fn read_words(cx: &mut OpContext, offset: u64, bytes: u64) -> Result<Vec<u64>, PoolError> {
    let read = cx.read(at(offset), Slice::first(bytes as u32)).await?;
    let (words, _) = read.as_chunks::<8>();
    let words = words.iter().map(|&word| u64::from_le_bytes(word)).collect();
    // What was announced was written before, and a header comes after what it describes.
    cx.rely_on_words();
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_fabric::sim::{Sim, SimOptions};

    fn context() -> (Sim, OpContext) {
        let sim = Sim::new(SimOptions::default());
        let _ = sim.add_memory_node(1 << 16);
        let endpoint = sim.endpoint(sim.add_compute_node());
        (sim, OpContext::new(endpoint))
    }

    #[test]
    fn a_table_that_nobody_has_changed_has_the_founders() {
        let (sim, mut cx) = context();
        let members = sim.block_on(read_members(&mut cx, 3)).expect("a table");
        let found: Vec<_> = members
            .iter()
            .map(|member| (member.node.index(), member.state))
            .collect();
        assert_eq!(found, [0, 1, 2].map(|node| (node, NodeState::Active)));
    }

    #[test]
    fn states_and_places_are_what_was_written() {
        let (sim, mut cx) = context();
        let (second, fifth) = (NodeId::new(2), NodeId::new(5));
        let long = "x".repeat(PLACE_BYTES_MAX);
        sim.block_on(async {
            write_place(&mut cx, second, "tcp:a:1").await?;
            write_place(&mut cx, fifth, &long).await?;
            let from = [NodeState::Unset];
            assert_eq!(
                change_state(&mut cx, second, &from, NodeState::Joining).await?,
                NodeState::Unset
            );
            // Not from what it is now.
            assert_eq!(
                change_state(&mut cx, second, &from, NodeState::Removed).await?,
                NodeState::Joining
            );
            let from = [NodeState::Joining, NodeState::Draining];
            assert_eq!(
                change_state(&mut cx, second, &from, NodeState::Active).await?,
                NodeState::Joining
            );
            let members = read_members(&mut cx, 1).await?;
            let found = members.iter().map(|member| (member.state, member.place.as_deref()));
            let expected = [
                (NodeState::Active, None),
                (NodeState::Unset, None),
                (NodeState::Active, Some("tcp:a:1")),
                (NodeState::Unset, None),
                (NodeState::Unset, None),
                (NodeState::Unset, Some(&*long)),
            ];
            assert_eq!(found.collect::<Vec<_>>(), expected);
            Ok::<_, PoolError>(())
        })
        .expect("no fault");
    }

    #[test]
    fn a_full_table_refuses_another_place() {
        let (sim, mut cx) = context();
        let written = sim.block_on(async {
            for number in 1..NODES_MAX {
                if let Err(error) = write_place(&mut cx, NodeId::new(number), "tcp:192.168.100.100:7380").await {
                    return (number, error.to_string());
                }
            }
            panic!("it is never full");
        });
        assert_eq!(written.0, 85);
        assert!(
            written.1.starts_with("node 85: ") && written.1.contains("full"),
            "{}",
            written.1
        );
    }

    #[test]
    fn a_version_never_looks_like_that_of_who_knows_nothing() {
        let (sim, mut cx) = context();
        sim.block_on(async {
            cx.write_word(at(MEMBERS_VERSION_AT), 0xffff).await?;
            announce(&mut cx).await?;
            assert_eq!(read_version(&mut cx).await?, 0x1_0001);
            Ok::<_, PoolError>(())
        })
        .expect("no fault");
    }
}
