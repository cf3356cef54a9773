//! What becomes of the chunks and blocks of a client that has died, and for whom the search waits, over the simulated fabric.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_fabric::{OpContext, RemoteAddr, VerbKind};
use farside_pool::client::Liveness;
use farside_pool::layout::{ChunkState, DEATHS_AT, EPOCH_AT};
use farside_pool::size_class::SizeClass;
use farside_pool::{Pool, PoolError, Purpose, Recovered};

use crate::empty::{Empty, OPTIONS};

const CHUNK_BYTES: u64 = 4096;
const BLOCK_BYTES: u64 = 64;
const BLOCKS: u64 = CHUNK_BYTES / BLOCK_BYTES;

/// The answer of a search, once there is one.
type Answer = Rc<RefCell<Option<Result<Recovered, PoolError>>>>;

/// Clients of a pool, the last of which is about to die.
struct Mortal {
    empty: Empty,
    living: Vec<Pool>,
    dying: Pool,
}

impl Mortal {
    fn new(living: usize) -> Self {
        let empty = Empty::new(1);
        let living = (0..living).map(|_| empty.join(OPTIONS)).collect();
        let dying = empty.join(OPTIONS);
        empty.pass(20 * OPTIONS.tick_ns);
        Self { empty, living, dying }
    }

    /// Has the client that dies allocate all blocks of so many chunks more; returns the first of each.
    fn fill(&self, chunks: u64) -> Vec<RemoteAddr> {
        let mut first = Vec::new();
        for _ in 0..chunks {
            let restock = self.dying.restock(BLOCK_BYTES, 1, Purpose::Insert);
            self.empty.sim.block_on(restock).expect("there is memory");
            let blocks = core::iter::from_fn(|| self.dying.allocate(BLOCK_BYTES));
            let blocks: Vec<RemoteAddr> = blocks.collect();
            assert_eq!(blocks.len() as u64, BLOCKS);
            first.push(blocks[0]);
        }
        first
    }

    /// Lets it die, and the others notice.
    fn die(&self) {
        self.empty.sim.crash_client(self.dying.endpoint().id());
        self.empty.pass(2 * OPTIONS.lease_ns);
        assert_eq!(self.empty.word(DEATHS_AT), 1);
        assert_eq!(self.entry(), Liveness::Dead);
        assert!(self.living.iter().all(Pool::needs_recovery));
    }

    /// What the entry of the client that died says.
    fn entry(&self) -> Liveness {
        self.empty.entry(self.dying.owner().client).liveness
    }

    /// Lets a client search, beside whatever else happens; `linked` is what the index leads to.
    fn search(&self, client: usize, linked: &[RemoteAddr]) -> Answer {
        let answer = Answer::default();
        let (pool, answered) = (self.living[client].clone(), Rc::clone(&answer));
        let linked = linked.to_vec();
        self.empty.sim.spawn(async move {
            let mut cx = OpContext::new(pool.endpoint().clone());
            let walk = async |_: &mut OpContext, found: &mut dyn FnMut(RemoteAddr)| {
                linked.iter().for_each(|&block| found(block));
                Ok(())
            };
            let found = pool.recover(&mut cx, walk).await;
            *answered.borrow_mut() = Some(found);
        });
        answer
    }

    /// What the only other client finds.
    fn found(&self, linked: &[RemoteAddr]) -> Recovered {
        let answer = self.search(0, linked);
        self.empty.pass(OPTIONS.lease_ns);
        let found = answer.take().expect("nobody is waited for");
        assert!(!self.living[0].needs_recovery());
        found.expect("the node is there")
    }

    /// How a chunk of blocks looks that a client owns.
    fn owned_by(&self, pool: Option<&Pool>) -> ChunkState {
        ChunkState::Blocks {
            owner: pool.map(Pool::owner),
            class: SizeClass::for_bytes(BLOCK_BYTES, CHUNK_BYTES),
        }
    }
}

#[test]
fn a_chunk_of_which_nothing_is_linked_becomes_free() {
    let mortal = Mortal::new(1);
    mortal.fill(1);
    mortal.die();
    assert_eq!(mortal.empty.chunk(0), mortal.owned_by(Some(&mortal.dying)));
    let found = Recovered {
        chunks: 1,
        blocks: BLOCKS,
    };
    assert_eq!(mortal.found(&[]), found);
    assert_eq!(mortal.empty.chunk(0), ChunkState::Free);
    assert_eq!(mortal.entry(), Liveness::Free);
}

#[test]
fn what_is_linked_stays_and_of_many_chunks_two_are_kept() {
    let mortal = Mortal::new(1);
    let linked = mortal.fill(4);
    mortal.die();
    let found = Recovered {
        chunks: 4,
        blocks: 4 * (BLOCKS - 1),
    };
    assert_eq!(mortal.found(&linked), found);
    let living = &mortal.living[0];
    for chunk in [0, 1] {
        assert_eq!(mortal.empty.chunk(chunk), mortal.owned_by(Some(living)));
    }
    for chunk in [2, 3] {
        assert_eq!(mortal.empty.chunk(chunk), mortal.owned_by(None));
        let map = mortal.empty.geometry[0].free_map(chunk).offset();
        let every_second = u64::MAX / 3;
        let words = [0, 8].map(|at| mortal.empty.word(map + at));
        assert_eq!(words, [every_second - 1, every_second], "the first block is linked");
    }
    // The client goes on with what it has found.
    let blocks: Vec<RemoteAddr> = core::iter::from_fn(|| living.allocate(BLOCK_BYTES)).collect();
    assert_eq!(blocks.len() as u64, 2 * (BLOCKS - 1));
    assert!(linked.iter().all(|block| !blocks.contains(block)));
}

#[test]
fn a_run_is_as_long_as_its_tails_say() {
    let mortal = Mortal::new(1);
    let bytes = 3 * CHUNK_BYTES;
    let restock = mortal.dying.restock(bytes, 1, Purpose::Insert);
    mortal.empty.sim.block_on(restock).expect("there is memory");
    let run = mortal.dying.allocate(bytes).expect("there is one");
    let geometry = mortal.empty.geometry[0];
    assert_eq!(run, geometry.chunk(0));
    let owner = Some(mortal.dying.owner());
    // As if others had died while they freed a run, which has lost a tail or is to become shorter.
    let set = |chunk, state: ChunkState| mortal.empty.set(geometry.chunk_word(chunk).offset(), state.to_word());
    set(2, ChunkState::Free);
    set(6, ChunkState::RunTail { owner, back: 2 });
    set(10, ChunkState::Run { owner, count: 2 });
    set(11, ChunkState::RunTail { owner, back: 1 });
    set(12, ChunkState::RunTail { owner, back: 2 });
    mortal.die();
    let linked = [run, geometry.chunk(10)];
    assert_eq!(mortal.found(&linked), Recovered { chunks: 2, blocks: 0 });
    let owner = Some(mortal.living[0].owner());
    assert_eq!(mortal.empty.chunk(0), ChunkState::Run { owner, count: 2 });
    assert_eq!(mortal.empty.chunk(1), ChunkState::RunTail { owner, back: 1 });
    assert_eq!(mortal.empty.chunk(6), ChunkState::Free);
    assert_eq!(mortal.empty.chunk(10), ChunkState::Run { owner, count: 2 });
    assert_eq!(mortal.empty.chunk(11), ChunkState::RunTail { owner, back: 1 });
    assert_eq!(mortal.empty.chunk(12), ChunkState::Free);
}

#[test]
fn a_search_waits_for_the_operations_of_its_client() {
    let mortal = Mortal::new(1);
    mortal.fill(1);
    mortal.die();
    let pin = mortal.living[0].pin();
    let answer = mortal.search(0, &[]);
    mortal.empty.pass(3 * OPTIONS.lease_ns);
    assert_eq!(*answer.borrow(), None);
    assert_eq!(mortal.empty.entry(0).parked, 0, "it may still use blocks of others");
    assert_eq!(mortal.empty.chunk(0), mortal.owned_by(Some(&mortal.dying)));
    drop(pin);
    mortal.empty.pass(OPTIONS.lease_ns);
    let found = Recovered {
        chunks: 1,
        blocks: BLOCKS,
    };
    assert_eq!(*answer.borrow(), Some(Ok(found)));
    assert_eq!((mortal.empty.entry(0).parked, mortal.empty.entry(0).audited), (1, 1));
}

#[test]
fn nothing_is_taken_over_before_everybody_has_parked() {
    let mortal = Mortal::new(2);
    mortal.fill(1);
    mortal.die();
    let first = mortal.search(0, &[]);
    mortal.empty.pass(3 * OPTIONS.lease_ns);
    assert_eq!(*first.borrow(), None);
    assert_eq!([0, 1].map(|client| mortal.empty.entry(client).parked), [1, 0]);
    assert_eq!(mortal.empty.chunk(0), mortal.owned_by(Some(&mortal.dying)));
    let second = mortal.search(1, &[]);
    mortal.empty.pass(OPTIONS.lease_ns);
    let found = [first, second].map(|answer| answer.take().expect("both search").expect("the node is there"));
    assert_eq!(found.map(|found| found.chunks).iter().sum::<u64>(), 1);
    assert_eq!(found.map(|found| found.blocks).iter().sum::<u64>(), BLOCKS);
    assert_eq!(mortal.empty.chunk(0), ChunkState::Free);
    assert_eq!(mortal.entry(), Liveness::Free);
}

#[test]
fn a_search_that_waits_for_others_looks_once_a_tick() {
    let mortal = Mortal::new(2);
    mortal.fill(1);
    mortal.die();
    let answer = mortal.search(0, &[]);
    mortal.empty.pass(OPTIONS.lease_ns);
    let reads = |client: usize| {
        let verbs = mortal.living[client].endpoint().counters().snapshot().verbs;
        verbs.of(VerbKind::Read)
    };
    let before = [reads(0), reads(1)];
    let ticks = 100;
    mortal.empty.pass(ticks * OPTIONS.tick_ns);
    assert_eq!(*answer.borrow(), None);
    let [searching, other] = [reads(0) - before[0], reads(1) - before[1]];
    assert!(searching > other, "nobody tells it");
    // For each look a round of housekeeping more, and a READ of how many clients there are and one of their entries.
    assert!(searching <= 2 * other + 2 * ticks, "{searching} beside {other}");
}

#[test]
fn who_has_searched_leaves_at_once_and_who_has_ended_does_not_search() {
    let mortal = Mortal::new(1);
    mortal.fill(1);
    mortal.die();
    mortal.found(&[]);
    let left = mortal.empty.leave(&mortal.living[0]);
    mortal.empty.pass(10 * OPTIONS.tick_ns);
    assert_eq!(*left.borrow(), Some(Ok(())));
    assert_eq!(mortal.empty.entry(0).liveness, Liveness::Free);

    let mortal = Mortal::new(1);
    mortal.die();
    mortal.living[0].abandon();
    let answer = mortal.search(0, &[]);
    mortal.empty.pass(OPTIONS.lease_ns);
    assert_eq!(*answer.borrow(), Some(Ok(Recovered::default())));
    assert!(mortal.living[0].needs_recovery());
    assert_eq!(mortal.empty.entry(0).parked, 0);
}

/// An operation that has pinned the epoch of the suspicion may have allocated a suspect that it has not linked yet.
#[test]
fn the_index_is_not_walked_beside_operations_that_were_running_before() {
    let mut pinned = 0;
    for delay_ns in (0..OPTIONS.tick_ns).step_by(500) {
        let mortal = Mortal::new(2);
        mortal.fill(1);
        mortal.die();
        let is_walked = Rc::new(Cell::new(false));
        let (pool, walked) = (mortal.living[0].clone(), Rc::clone(&is_walked));
        mortal.empty.sim.spawn(async move {
            let mut cx = OpContext::new(pool.endpoint().clone());
            let walk = async |_: &mut OpContext, _: &mut dyn FnMut(RemoteAddr)| {
                walked.set(true);
                Ok(())
            };
            pool.recover(&mut cx, walk).await.expect("the node is there");
        });
        mortal.empty.pass(4 * OPTIONS.tick_ns + delay_ns);
        let other = mortal.search(1, &[]);
        // Ends: everybody parks.
        while mortal.empty.chunk(0) == mortal.owned_by(Some(&mortal.dying)) {
            mortal.empty.pass(100);
        }
        let epoch = mortal.empty.word(EPOCH_AT);
        let Some(pool) = mortal.living.iter().find(|pool| pool.epoch() == epoch) else {
            continue;
        };
        let pin = pool.pin();
        pinned += 1;
        mortal.empty.pass(OPTIONS.lease_ns);
        assert!(!is_walked.get(), "{delay_ns} ns");
        drop(pin);
        mortal.empty.pass(OPTIONS.lease_ns);
        assert!(is_walked.get());
        assert!(matches!(*other.borrow(), Some(Ok(_))));
    }
    assert!(pinned > 0);
}

#[test]
fn what_the_living_have_retired_is_not_taken_for_lost() {
    let mortal = Mortal::new(2);
    let linked = mortal.fill(1);
    mortal.die();
    // The block is unlinked by a client whose operation goes on, and is therefore still read.
    let pin = mortal.living[1].pin();
    mortal.living[1].retire(linked[0], Some(BLOCK_BYTES));
    drop(pin);
    let answers = [0, 1].map(|client| mortal.search(client, &[]));
    mortal.empty.pass(OPTIONS.lease_ns);
    let found = answers.map(|answer| answer.take().expect("both search").expect("the node is there"));
    // It came home by itself.
    assert_eq!(found.map(|found| found.blocks).iter().sum::<u64>(), BLOCKS - 1);
    assert_eq!(mortal.empty.chunk(0), ChunkState::Free);
}

/// An operation that was running when the walk ended may have unlinked a block before, and retire it when its client has come
/// one epoch further. Then it has the largest tag for which the search has to wait.
#[test]
fn what_was_unlinked_before_the_walk_ended_and_is_retired_an_epoch_later_is_not_taken_for_lost() {
    let mortal = Mortal::new(2);
    let linked = mortal.fill(1);
    mortal.die();
    let running = Rc::new(RefCell::new(None));
    let first = Answer::default();
    let [searching, other] = [0, 1].map(|client| mortal.living[client].clone());
    let (is_running, answered) = (Rc::clone(&running), Rc::clone(&first));
    mortal.empty.sim.spawn(async move {
        let mut cx = OpContext::new(searching.endpoint().clone());
        let walk = async |cx: &mut OpContext, _: &mut dyn FnMut(RemoteAddr)| {
            let epoch_at = RemoteAddr::new(searching.geometry()[0].node, EPOCH_AT);
            // Ends: the other one takes the epoch over at its next tick.
            while cx.read_word(epoch_at).await? != other.epoch() {
                cx.endpoint().sleep(OPTIONS.tick_ns / 10).await;
            }
            *is_running.borrow_mut() = Some((other.pin(), other.epoch()));
            Ok(())
        };
        let found = searching.recover(&mut cx, walk).await;
        *answered.borrow_mut() = Some(found);
    });
    let second = mortal.search(1, &[]);
    let other = &mortal.living[1];
    let is_later = || {
        running
            .borrow()
            .as_ref()
            .is_some_and(|&(_, epoch)| other.epoch() > epoch)
    };
    while !is_later() {
        mortal.empty.pass(OPTIONS.tick_ns / 10);
    }
    other.retire(linked[0], Some(BLOCK_BYTES));
    running.take();
    mortal.empty.pass(OPTIONS.lease_ns);
    let found = [first, second].map(|answer| answer.take().expect("both search").expect("the node is there"));
    assert_eq!(found.map(|found| found.blocks).iter().sum::<u64>(), BLOCKS - 1);
    assert_eq!(mortal.empty.chunk(0), ChunkState::Free);
}
