//! Accounting finds what is wrong with a pool, and says where.

use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{OpContext, RemoteAddr};
use farside_pool::client::{self, Liveness};
use farside_pool::layout::{CLIENTS_HIGH_AT, ChunkState, Owner};
use farside_pool::size_class::SizeClass;
use farside_pool::{Account, BulkLoader, FormatOptions, Geometry, Pool, PoolOptions, account, open_or_format};

const BLOCK_BYTES: u64 = 64;
const BLOCKS: u64 = 5;
/// The first chunk of a run of three.
const RUN: u64 = 8;
const RUN_CHUNKS: u16 = 3;

/// A pool with some blocks and a run, all linked, and nobody in it.
struct Quiet {
    sim: Sim,
    cx: OpContext,
    geometry: Vec<Geometry>,
    linked: Vec<RemoteAddr>,
}

impl Quiet {
    fn new() -> Self {
        let sim = Sim::new(SimOptions::default());
        let node = sim.add_memory_node(8 << 20);
        let mut cx = OpContext::new(sim.endpoint(sim.add_compute_node()));
        let geometry = sim
            .block_on(open_or_format(&mut cx, FormatOptions::default()))
            .expect("there is memory");
        let region = sim.region(node);
        let mut loader = BulkLoader::new(geometry[0], &region, BLOCK_BYTES);
        let mut linked: Vec<RemoteAddr> = (0..BLOCKS).map(|_| loader.block(&[7; 64]).expect("room")).collect();
        loader.finish();
        linked.push(geometry[0].chunk(RUN));
        let mut quiet = Self {
            sim,
            cx,
            geometry,
            linked,
        };
        let first = ChunkState::Run {
            owner: None,
            count: RUN_CHUNKS,
        };
        quiet.set_chunk(RUN, first);
        for back in 1..RUN_CHUNKS {
            quiet.set_chunk(RUN + u64::from(back), ChunkState::RunTail { owner: None, back });
        }
        quiet
    }

    fn set(&mut self, at: RemoteAddr, word: u64) {
        let written = self.sim.block_on(self.cx.write_word(at, word));
        written.expect("the node is there");
    }

    fn set_chunk(&mut self, index: u64, state: ChunkState) {
        self.set(self.geometry[0].chunk_word(index), state.to_word());
    }

    fn account(&mut self) -> Account {
        let account = account(&mut self.cx, &self.geometry, &self.linked);
        self.sim.block_on(account).expect("the tables can be read")
    }

    /// The chunk of the blocks.
    fn chunk(&self) -> u64 {
        self.geometry[0].locate(self.linked[0]).expect("a block").0
    }

    /// Breaks something, and expects this fault alone.
    fn finds(fault: &str, damage: impl FnOnce(&mut Self)) {
        let mut quiet = Self::new();
        damage(&mut quiet);
        let found = quiet.account().faults;
        assert!(
            found.len() == 1 && found[0].contains(fault),
            "`{fault}` was to be found, not {found:?}"
        );
    }
}

#[test]
fn whatever_is_linked_or_free_is_counted() {
    let mut quiet = Quiet::new();
    let chunk_bytes = quiet.geometry[0].chunk_bytes;
    let per_chunk = quiet.geometry[0].blocks_per_chunk(SizeClass::for_bytes(BLOCK_BYTES, chunk_bytes));
    let used = 1 + u64::from(RUN_CHUNKS);
    assert_eq!(
        quiet.account(),
        Account {
            chunks_free: quiet.geometry[0].chunk_count - used,
            chunks_used: used,
            blocks_reachable: BLOCKS + 1,
            blocks_free: per_chunk - BLOCKS,
            bytes_reachable: BLOCKS * BLOCK_BYTES + u64::from(RUN_CHUNKS) * chunk_bytes,
            ..Account::default()
        }
    );
}

#[test]
fn a_block_that_is_linked_twice_or_where_none_can_be_is_a_fault() {
    Quiet::finds("is linked by the index a second time", |quiet| {
        quiet.linked.push(quiet.linked[2]);
    });
    Quiet::finds("where no block can be", |quiet| {
        quiet.linked.push(quiet.linked[2].plus(8));
    });
    Quiet::finds("where no block can be", |quiet| {
        quiet.linked.push(RemoteAddr::new(quiet.geometry[0].node, 0));
    });
    Quiet::finds("no block starts there", |quiet| {
        quiet.linked.push(quiet.linked[2].plus(BLOCK_BYTES / 2));
    });
    Quiet::finds("which holds none", |quiet| {
        quiet.linked.push(quiet.geometry[0].chunk(20));
    });
    Quiet::finds("no block starts there", |quiet| {
        let chunk_bytes = quiet.geometry[0].chunk_bytes;
        quiet.linked.push(quiet.linked[BLOCKS as usize].plus(chunk_bytes / 2));
    });
}

#[test]
fn a_block_that_is_lost_or_free_as_well_is_a_fault() {
    Quiet::finds("1 blocks are lost", |quiet| {
        quiet.linked.remove(2);
    });
    Quiet::finds("1 blocks are lost", |quiet| {
        quiet.linked.pop();
    });
    Quiet::finds("block 0 is marked free and used or free already", |quiet| {
        let (chunk, unit) = quiet.geometry[0].locate(quiet.linked[0]).expect("a block");
        let at = quiet.geometry[0].free_map(chunk).plus(unit / 64 * 8);
        let word = quiet.sim.block_on(quiet.cx.read_word(at)).expect("the node is there");
        quiet.set(at, word | 1 << (unit % 64));
    });
}

#[test]
fn a_chunk_that_is_not_what_its_word_says_is_a_fault() {
    Quiet::finds("starts a run of 3 chunks, but number 2 is", |quiet| {
        quiet.set_chunk(RUN + 2, ChunkState::Free);
    });
    let owner = Some(Owner { client: 5, life: 1 });
    Quiet::finds("its owner is not in the client table", |quiet| {
        let class = SizeClass::for_bytes(BLOCK_BYTES, quiet.geometry[0].chunk_bytes);
        quiet.set_chunk(quiet.chunk(), ChunkState::Blocks { owner, class });
    });
    let mut quiet = Quiet::new();
    let class = SizeClass(SizeClass::count(quiet.geometry[0].chunk_bytes) as u8);
    quiet.set_chunk(quiet.chunk(), ChunkState::Blocks { owner: None, class });
    let found = quiet.account().faults;
    assert!(found[0].contains("which does not exist"), "{found:?}");
    assert!(found[1].contains("the index links 5 blocks"), "{found:?}");
    assert_eq!(found.len(), 2);
}

#[test]
fn blocks_of_a_client_that_lives_are_held() {
    let mut quiet = Quiet::new();
    let join = Pool::join(&mut quiet.cx, quiet.geometry.clone(), PoolOptions::default());
    let pool = quiet.sim.block_on(join).expect("there is room");
    let class = SizeClass::for_bytes(BLOCK_BYTES, quiet.geometry[0].chunk_bytes);
    let owner = Some(pool.owner());
    quiet.set_chunk(quiet.chunk(), ChunkState::Blocks { owner, class });
    quiet.linked.remove(1);
    let found = quiet.account();
    assert_eq!((found.clients_live, found.clients_dead, found.blocks_held), (1, 0, 1));
    assert_eq!(found.faults, Vec::<String>::new());
}

#[test]
fn blocks_of_clients_that_were_cut_off_are_to_be_recovered() {
    let mut quiet = Quiet::new();
    let high = RemoteAddr::new(quiet.geometry[0].node, CLIENTS_HIGH_AT);
    quiet.set(high, 4);
    let states = [Liveness::Dead, Liveness::Live, Liveness::Dying, Liveness::Dead];
    for (index, liveness) in (0..).zip(states) {
        let (entry, state) = client::owner_state(Owner { client: index, life: 1 }, liveness);
        quiet.set(entry, state);
        quiet.set(entry.plus(8), 100 + u64::from(index));
    }
    let class = SizeClass::for_bytes(BLOCK_BYTES, quiet.geometry[0].chunk_bytes);
    quiet.linked.remove(1);
    for (client, held, unrecovered) in [(0, 0, 1), (1, 1, 0), (2, 0, 1)] {
        let owner = Some(Owner { client, life: 1 });
        quiet.set_chunk(quiet.chunk(), ChunkState::Blocks { owner, class });
        let found = quiet.account();
        assert_eq!((found.clients_live, found.clients_dead), (1, 3));
        assert_eq!((found.blocks_held, found.blocks_unrecovered), (held, unrecovered));
        assert_eq!(found.faults, Vec::<String>::new());
    }
}

#[test]
fn a_hundred_faults_are_told() {
    let mut quiet = Quiet::new();
    let wrong = quiet.linked[0].plus(8);
    quiet.linked.extend((0..150).map(|_| wrong));
    assert_eq!(quiet.account().faults.len(), 100);
}
