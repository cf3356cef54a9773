//! Where things are in a node's memory, and the words that more than one client changes.
//!
//! ```text
//! 0                superblock: geometry, then shared words, then roots      4 KiB
//! CLIENTS_AT       client table: clients_max entries of 64 B                (used on node 0)
//! chunk_table_at   one word per chunk: who owns it, and for what
//! free_maps_at     one bit per 32 B of every chunk: blocks given back by other clients
//! chunks_at        the chunks, from a multiple of their size on
//! ```
//!
//! All words are little-endian, as is every processor that Farside runs on.

use farside_fabric::{NodeId, RemoteAddr};

use crate::size_class::{SizeClass, UNIT_BYTES};

/// The first word of a formatted node: "FARSIDE1" read as a little-endian word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"FARSIDE1");
/// Changes whenever anything in this file changes its meaning, or in a block that the slots of an index point to.
pub const LAYOUT_VERSION: u64 = 8;

/// Bytes of the superblock.
pub const SUPERBLOCK_BYTES: u64 = 4096;
/// The smallest chunk.
pub const CHUNK_BYTES_MIN: u64 = 4096;
/// How few chunks a node has at least.
const CHUNK_COUNT_MIN: u64 = 8;
/// Where the client table starts.
pub const CLIENTS_AT: u64 = SUPERBLOCK_BYTES;
/// Bytes of a client entry.
pub const CLIENT_BYTES: u64 = 64;
/// How many roots there are.
pub const ROOT_COUNT: u8 = 8;

/// The pool's number within the geometry, chosen before the rest is written.
pub const POOL_ID_AT: u64 = 16;
/// Shared word: the global epoch (node 0).
pub const EPOCH_AT: u64 = 512;
/// Shared word: how many clients have been declared dead so far (node 0).
pub const DEATHS_AT: u64 = 576;
/// Shared word: how often the table of nodes was changed (node 0), beside the count of deaths, as both are read together.
pub const MEMBERS_VERSION_AT: u64 = DEATHS_AT + 8;
/// Shared word: one more than the largest client index ever used (node 0).
pub const CLIENTS_HIGH_AT: u64 = 640;
/// Shared word: the endpoint that formats the pool, or did (node 0).
pub const CREATOR_AT: u64 = 704;
/// Shared word: the client that gives a new node its number (node 0).
pub const ADMINISTRATOR_AT: u64 = 768;
/// Shared word: whether a snapshot is taken, and by whom (node 0), beside the count of deaths, too; see [`snapshot`](crate::snapshot).
pub const SNAPSHOT_AT: u64 = DEATHS_AT + 16;
/// Shared word: the page that was linked last of the journals of a snapshot (node 0).
pub const JOURNALS_AT: u64 = 832;
/// The roots: an address and a length each.
pub const ROOTS_AT: u64 = 1024;
/// The table of nodes (node 0): a state of four bits for each. See [`members`](crate::members).
pub const NODE_STATES_AT: u64 = ROOTS_AT + ROOT_COUNT as u64 * 16;
/// Bytes of the states of all nodes.
pub const NODE_STATES_BYTES: u64 = NODES_MAX as u64 / 2;
/// The table of nodes: where those are that came later, one record after the other up to the end of the superblock.
pub const NODE_PLACES_AT: u64 = NODE_STATES_AT + NODE_STATES_BYTES;
/// Bytes of these records.
pub const NODE_PLACES_BYTES: u64 = SUPERBLOCK_BYTES - NODE_PLACES_AT;
/// How many numbers nodes can have.
pub const NODES_MAX: u16 = 512;

/// The fixed part of a superblock: what the node's memory is divided into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// A random number that all nodes of a pool share.
    pub pool_id: u64,
    /// Which node of the pool this is.
    pub node: NodeId,
    /// How many nodes the pool had when it was made; for one that came later, with it.
    pub node_count: u16,
    /// Bytes of memory of the node that the pool uses.
    pub node_bytes: u64,
    /// Bytes of a chunk: a power of two.
    pub chunk_bytes: u64,
    /// How many chunks the node has.
    pub chunk_count: u64,
    /// Where the chunks start: a multiple of `chunk_bytes`.
    pub chunks_at: u64,
    /// How many clients the pool has room for.
    pub clients_max: u64,
}

/// How many words of a superblock the geometry takes, checksum included.
pub const GEOMETRY_WORDS: usize = 12;

impl Geometry {
    /// Divides a node's memory, or returns how many bytes would be needed at least.
    ///
    /// # Errors
    /// The smallest size that holds eight chunks.
    pub fn divide(
        pool_id: u64,
        node: NodeId,
        node_count: u16,
        node_bytes: u64,
        chunk_bytes: u64,
        clients_max: u64,
    ) -> Result<Self, u64> {
        assert!(
            chunk_bytes.is_power_of_two() && chunk_bytes >= CHUNK_BYTES_MIN,
            "chunks are powers of two"
        );
        let mut geometry = Self {
            pool_id,
            node,
            node_count,
            node_bytes,
            chunk_bytes,
            chunk_count: node_bytes / chunk_bytes,
            chunks_at: 0,
            clients_max,
        };
        // The tables shrink with the number of chunks: at most a few turns.
        while geometry.chunk_count > 0 {
            geometry.chunks_at = geometry.tables_end().next_multiple_of(chunk_bytes);
            let chunks_end = geometry.chunks_at + geometry.chunk_count * chunk_bytes;
            if chunks_end <= node_bytes {
                break;
            }
            geometry.chunk_count -= (chunks_end - node_bytes)
                .div_ceil(chunk_bytes)
                .min(geometry.chunk_count);
        }
        if geometry.chunk_count < CHUNK_COUNT_MIN {
            // The last turn may have taken away one too many, as the tables have shrunk as well.
            geometry.chunk_count = CHUNK_COUNT_MIN;
            geometry.chunks_at = geometry.tables_end().next_multiple_of(chunk_bytes);
            let bytes_min = geometry.chunks_at + CHUNK_COUNT_MIN * chunk_bytes;
            if bytes_min > node_bytes {
                return Err(bytes_min);
            }
        }
        Ok(geometry)
    }

    /// A number that no node has, or no more: without memory, so that nothing is looked for there.
    #[must_use]
    pub fn absent(&self, node: NodeId) -> Self {
        Self {
            node,
            node_bytes: 0,
            chunk_count: 0,
            chunks_at: 0,
            ..*self
        }
    }

    /// Whether there is no such node.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.node_bytes == 0
    }

    /// Of all nodes those that the pool was made with: fixed memory of an index is there, and never on those that came later.
    #[must_use]
    pub fn founders(all: &[Self]) -> &[Self] {
        let count = all.first().map_or(0, |first| usize::from(first.node_count));
        &all[..count.min(all.len())]
    }

    /// Bytes of all chunks.
    #[must_use]
    pub fn chunks_bytes(&self) -> u64 {
        self.chunk_count * self.chunk_bytes
    }

    /// Where the chunk table starts.
    #[must_use]
    pub fn chunk_table_at(&self) -> u64 {
        CLIENTS_AT + self.clients_max * CLIENT_BYTES
    }

    /// Where the free maps start.
    #[must_use]
    pub fn free_maps_at(&self) -> u64 {
        self.chunk_table_at() + self.chunk_count * 8
    }

    /// Bytes of one chunk's free map.
    #[must_use]
    pub fn free_map_bytes(&self) -> u64 {
        self.chunk_bytes / UNIT_BYTES / 8
    }

    fn tables_end(&self) -> u64 {
        self.free_maps_at() + self.chunk_count * self.free_map_bytes()
    }

    /// The word of the chunk table for chunk `index`.
    #[must_use]
    pub fn chunk_word(&self, index: u64) -> RemoteAddr {
        RemoteAddr::new(self.node, self.chunk_table_at() + index * 8)
    }

    /// The first word of the free map of chunk `index`.
    #[must_use]
    pub fn free_map(&self, index: u64) -> RemoteAddr {
        RemoteAddr::new(self.node, self.free_maps_at() + index * self.free_map_bytes())
    }

    /// The first byte of chunk `index`.
    #[must_use]
    pub fn chunk(&self, index: u64) -> RemoteAddr {
        RemoteAddr::new(self.node, self.chunks_at + index * self.chunk_bytes)
    }

    /// Which chunk holds `addr`, and the 32-byte unit within it; `None` outside the chunks.
    #[must_use]
    pub fn locate(&self, addr: RemoteAddr) -> Option<(u64, u64)> {
        let offset = addr.offset().checked_sub(self.chunks_at)?;
        let index = offset / self.chunk_bytes;
        (index < self.chunk_count).then_some((index, offset % self.chunk_bytes / UNIT_BYTES))
    }

    /// How many blocks of `class` a chunk holds.
    #[must_use]
    pub fn blocks_per_chunk(&self, class: SizeClass) -> u64 {
        if class == SizeClass::RUN {
            1
        } else {
            self.chunk_bytes / class.bytes()
        }
    }

    /// The superblock's words, checksum last.
    #[must_use]
    pub fn to_words(&self) -> [u64; GEOMETRY_WORDS] {
        let mut words = [
            MAGIC,
            LAYOUT_VERSION,
            self.pool_id,
            self.node.index() as u64,
            u64::from(self.node_count),
            self.node_bytes,
            self.chunk_bytes,
            self.chunk_count,
            self.chunks_at,
            self.clients_max,
            0,
            0,
        ];
        words[GEOMETRY_WORDS - 1] = checksum(&words[..GEOMETRY_WORDS - 1]);
        words
    }

    /// Reads a superblock of `node`, or says what is wrong with it.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn from_words(words: &[u64; GEOMETRY_WORDS], node: NodeId, node_bytes: u64) -> Result<Self, String> {
        if words[0] != MAGIC {
            return Err(format!("its first word is {:#018x} instead of {MAGIC:#018x}", words[0]));
        }
        if words[1] != LAYOUT_VERSION {
            return Err(format!(
                "its layout version is {}, this program reads {LAYOUT_VERSION}: copy the data with a release that reads it",
                words[1]
            ));
        }
        if words[GEOMETRY_WORDS - 1] != checksum(&words[..GEOMETRY_WORDS - 1]) {
            return Err("the checksum of its superblock is wrong".to_owned());
        }
        let geometry = Self {
            pool_id: words[2],
            node,
            node_count: words[4] as u16,
            node_bytes: words[5],
            chunk_bytes: words[6],
            chunk_count: words[7],
            chunks_at: words[8],
            clients_max: words[9],
        };
        if words[3] != node.index() as u64 {
            return Err(format!("it is node {} of its pool, but is named as {node}", words[3]));
        }
        if geometry.node_bytes > node_bytes {
            return Err(format!(
                "it was formatted with {} bytes and now has {node_bytes}",
                geometry.node_bytes
            ));
        }
        let contradiction = || "its geometry contradicts itself".to_owned();
        // What `divide` takes for granted: it is given these by a user or by us, never by far memory.
        let is_chunk_size = geometry.chunk_bytes.is_power_of_two() && geometry.chunk_bytes >= CHUNK_BYTES_MIN;
        if !is_chunk_size || geometry.chunk_bytes > node_bytes || geometry.clients_max > u64::from(u16::MAX) {
            return Err(contradiction());
        }
        let again = Self::divide(
            geometry.pool_id,
            node,
            geometry.node_count,
            geometry.node_bytes,
            geometry.chunk_bytes,
            geometry.clients_max,
        );
        if again != Ok(geometry) {
            return Err(contradiction());
        }
        Ok(geometry)
    }
}

/// FNV-1a over the words: catches a torn or overwritten superblock, not an attacker.
fn checksum(words: &[u64]) -> u64 {
    words
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// Who owns a chunk: an entry of the client table, in one of its lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner {
    /// Index in the client table.
    pub client: u16,
    /// How often the entry had been used before, so that an owner of an earlier life is not taken
    /// for the present one.
    pub life: u16,
}

/// What a chunk is used for: the word in the chunk table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkState {
    /// Nobody uses it.
    Free,
    /// Blocks of one class. Only the owner cuts blocks from it; without one, whoever needs the class
    /// may take it over, and its free map tells exactly which blocks are free.
    Blocks {
        /// The client that allocates from it.
        owner: Option<Owner>,
        /// The class of its blocks.
        class: SizeClass,
    },
    /// The first chunk of a run: one block of `count` chunks.
    Run {
        /// The client that took it.
        owner: Option<Owner>,
        /// How many chunks it has.
        count: u16,
    },
    /// A further chunk of a run; `back` chunks before it is the first.
    RunTail {
        /// The client that took it.
        owner: Option<Owner>,
        /// How far back the run starts.
        back: u16,
    },
    /// Part of an index's fixed memory (a root): never given back.
    Root {
        /// Which root.
        number: u8,
    },
}

const TAG_BLOCKS: u64 = 1;
const TAG_RUN: u64 = 2;
const TAG_RUN_TAIL: u64 = 3;
const TAG_ROOT: u64 = 4;

impl ChunkState {
    /// The word: tag in bits 0..4, class in 4..12, count in 12..28, life in 28..44, client + 1 in
    /// 44..60.
    #[must_use]
    pub fn to_word(self) -> u64 {
        let pack = |tag, class: u8, count: u16, owner: Option<Owner>| {
            let owner = owner.map_or(0, |owner| (u64::from(owner.client) + 1) << 16 | u64::from(owner.life));
            tag | u64::from(class) << 4 | u64::from(count) << 12 | owner << 28
        };
        match self {
            Self::Free => 0,
            Self::Blocks { owner, class } => pack(TAG_BLOCKS, class.0, 0, owner),
            Self::Run { owner, count } => pack(TAG_RUN, 0, count, owner),
            Self::RunTail { owner, back } => pack(TAG_RUN_TAIL, 0, back, owner),
            Self::Root { number } => pack(TAG_ROOT, number, 0, None),
        }
    }

    /// Reads a word of the chunk table; `None` if no state looks like that.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Self> {
        // Most chunks of most pools are free.
        if word == 0 {
            return Some(Self::Free);
        }
        let count = (word >> 12) as u16;
        let owner = match (word >> 44) as u16 {
            0 => None,
            client => Some(Owner {
                client: client - 1,
                life: (word >> 28) as u16,
            }),
        };
        let state = match word & 0xf {
            0 => Self::Free,
            TAG_BLOCKS => Self::Blocks {
                owner,
                class: SizeClass((word >> 4) as u8),
            },
            TAG_RUN => Self::Run { owner, count },
            TAG_RUN_TAIL => Self::RunTail { owner, back: count },
            TAG_ROOT => Self::Root {
                number: (word >> 4) as u8,
            },
            _ => return None,
        };
        (state.to_word() == word).then_some(state)
    }

    /// The client that owns the chunk, if any.
    #[must_use]
    pub fn owner(self) -> Option<Owner> {
        match self {
            Self::Blocks { owner, .. } | Self::Run { owner, .. } | Self::RunTail { owner, .. } => owner,
            Self::Free | Self::Root { .. } => None,
        }
    }

    /// The same use under another owner.
    #[must_use]
    pub fn with_owner(self, new: Option<Owner>) -> Self {
        match self {
            Self::Blocks { class, .. } => Self::Blocks { owner: new, class },
            Self::Run { count, .. } => Self::Run { owner: new, count },
            Self::RunTail { back, .. } => Self::RunTail { owner: new, back },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn owners() -> impl Strategy<Value = Option<Owner>> {
        proptest::option::of((0_u16..u16::MAX, any::<u16>()).prop_map(|(client, life)| Owner { client, life }))
    }

    /// With room for as many clients as make the tables of eight chunks end shortly before the end of a page.
    fn divide(bytes: u64) -> Result<Geometry, u64> {
        Geometry::divide(7, NodeId::new(0), 1, bytes, 4096, 60 + 64 * 4)
    }

    #[test]
    fn founders_are_those_nodes_that_the_pool_was_made_with() {
        let node = |index| Geometry::divide(7, NodeId::new(index), 2, 1 << 24, 1 << 16, 100).expect("large enough");
        let all = [node(0), node(1), node(2)];
        assert_eq!(Geometry::founders(&all), &all[..2]);
        // Not all of them are known yet.
        assert_eq!(Geometry::founders(&all[..1]), &all[..1]);
        assert_eq!(Geometry::founders(&[]), &[]);
    }

    #[test]
    fn tables_follow_each_other_and_chunks_follow_them() {
        let geometry = Geometry::divide(7, NodeId::new(2), 3, 1 << 24, 1 << 16, 100).expect("large enough");
        assert_eq!(geometry.chunk_table_at(), 4096 + 6400);
        assert_eq!(geometry.chunk_count, 254);
        assert_eq!(geometry.free_map_bytes(), 256);
        assert_eq!(geometry.free_maps_at(), 4096 + 6400 + 254 * 8);
        assert_eq!(geometry.tables_end(), 4096 + 6400 + 254 * 8 + 254 * 256);
        assert_eq!(geometry.chunks_at, 2 << 16);
        let at = |offset| RemoteAddr::new(NodeId::new(2), offset);
        assert_eq!(geometry.chunk_word(3), at(4096 + 6400 + 24));
        assert_eq!(geometry.free_map(3), at(4096 + 6400 + 254 * 8 + 3 * 256));
        assert_eq!(geometry.chunk(3), at(5 << 16));
        assert_eq!(geometry.locate(at((2 << 16) - 1)), None);
        assert_eq!(geometry.locate(at(2 << 16)), Some((0, 0)));
        assert_eq!(geometry.locate(at((1 << 24) - 1)), Some((253, 2047)));
        assert_eq!(geometry.locate(at(1 << 24)), None);
    }

    /// The tables of as many chunks as fit without tables end on the next page. So the chunks that stood beyond the end were
    /// one more than had to go, and a node of as many bytes as are needed at least was refused.
    #[test]
    fn a_node_of_the_fewest_bytes_has_eight_chunks() {
        let bytes_min = (6 + 8) * 4096;
        let geometry = divide(bytes_min).expect("large enough");
        assert_eq!(geometry.tables_end(), 6 * 4096 - 64);
        assert_eq!((geometry.chunk_count, geometry.chunks_at), (8, 6 * 4096));
        assert_eq!(
            Geometry::from_words(&geometry.to_words(), geometry.node, bytes_min),
            Ok(geometry)
        );
        for bytes in [0, 4096, 8 * 4096, bytes_min - 1] {
            assert_eq!(divide(bytes), Err(bytes_min), "{bytes} bytes");
        }
    }

    #[test]
    fn a_superblock_that_contradicts_itself_is_refused() {
        let node = NodeId::new(0);
        let geometry = Geometry::divide(1, node, 1, 1 << 20, 4096, 8).expect("large enough");
        let read = |change: &dyn Fn(&mut Geometry)| {
            let mut changed = geometry;
            change(&mut changed);
            Geometry::from_words(&changed.to_words(), node, 1 << 20)
        };
        assert_eq!(read(&|_| ()), Ok(geometry));
        let contradiction = Err("its geometry contradicts itself".to_owned());
        for chunk_bytes in [0, 1, 2048, 4097, 1 << 20, 1 << 21, 1 << 63] {
            assert_eq!(read(&|changed| changed.chunk_bytes = chunk_bytes), contradiction);
        }
        assert_eq!(read(&|changed| changed.clients_max = 1 << 16), contradiction);
        assert_eq!(read(&|changed| changed.clients_max = u64::MAX), contradiction);
        assert_eq!(read(&|changed| changed.chunk_count -= 1), contradiction);
        assert_eq!(read(&|changed| changed.chunks_at += 4096), contradiction);
        let smaller = Geometry::from_words(&geometry.to_words(), node, (1 << 20) - 1);
        let reason = "it was formatted with 1048576 bytes and now has 1048575";
        assert_eq!(smaller, Err(reason.to_owned()));
    }

    proptest! {
        #[test]
        fn chunk_states_survive_packing(owner in owners(), class: u8, count: u16) {
            for state in [
                ChunkState::Free,
                ChunkState::Root { number: class },
                ChunkState::Blocks { owner, class: SizeClass(class) },
                ChunkState::Run { owner, count },
                ChunkState::RunTail { owner, back: count },
            ] {
                prop_assert_eq!(ChunkState::from_word(state.to_word()), Some(state));
            }
        }

        #[test]
        fn any_word_is_a_state_or_refused(word: u64) {
            if let Some(state) = ChunkState::from_word(word) {
                prop_assert_eq!(state.to_word(), word);
            }
        }

        #[test]
        fn geometry_fits_and_survives_packing(bytes in 0_u64..1 << 34, chunk_log in 12_u32..20, clients in 1_u64..2000) {
            let node = NodeId::new(3);
            match Geometry::divide(7, node, 4, bytes, 1 << chunk_log, clients) {
                Ok(geometry) => {
                    prop_assert!(geometry.chunks_at >= geometry.tables_end());
                    prop_assert!(geometry.chunks_at + geometry.chunk_count * geometry.chunk_bytes <= bytes);
                    prop_assert_eq!(Geometry::from_words(&geometry.to_words(), node, bytes), Ok(geometry));
                    let last = geometry.chunk(geometry.chunk_count - 1);
                    prop_assert_eq!(geometry.locate(last.plus(64)), Some((geometry.chunk_count - 1, 2)));
                }
                Err(bytes_min) => {
                    prop_assert!(bytes_min > bytes);
                    prop_assert!(Geometry::divide(7, node, 4, bytes_min, 1 << chunk_log, clients).is_ok());
                }
            }
        }

        #[test]
        fn damaged_superblocks_are_refused(word in 0..GEOMETRY_WORDS, flip in 0..64_u32) {
            let node = NodeId::new(0);
            let geometry = Geometry::divide(1, node, 1, 1 << 26, 1 << 17, 64).expect("64 MiB is enough");
            let mut words = geometry.to_words();
            words[word] ^= 1 << flip;
            prop_assert!(Geometry::from_words(&words, node, 1 << 26).is_err());
        }
    }
}
