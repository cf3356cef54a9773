//! Block lists by themselves, and at random.

use super::*;
use farside_fabric::NodeId;
use proptest::prelude::*;

const ME: Owner = Owner { client: 0, life: 0 };

fn heap() -> Heap {
    let geometry = Geometry::divide(1, NodeId::new(0), 1, 1 << 20, 4096, 8).expect("large enough");
    Heap::new(vec![geometry])
}

#[test]
fn retired_blocks_wait_three_epochs() {
    let mut heap = heap();
    let class = heap.class_for(100);
    let id = ChunkId { node: 0, index: 2 };
    heap.adopt(id, ME, class, 1, BlockMap::full(32));
    let block = heap.take(class).expect("the chunk has blocks");
    let others: Vec<_> = core::iter::from_fn(|| heap.take(class)).collect();
    assert_eq!(others.len(), 31);
    heap.retire(7, block, Some(class));
    for epoch in 7..10 {
        assert_eq!(heap.reclaim(epoch, |_, _| ()), 7);
        assert_eq!(heap.take(class), None, "epoch {epoch}");
    }
    assert_eq!(heap.reclaim(10, |_, _| ()), 10);
    assert_eq!(heap.take(class), Some(block));
}

#[test]
fn foreign_blocks_are_reused_unless_homing() {
    let mut heap = heap();
    let class = heap.class_for(64);
    let foreign = RemoteAddr::new(NodeId::new(0), heap.geometry[0].chunk(5).offset() + 128);
    heap.retire(0, foreign, Some(class));
    heap.reclaim(3, |_, _| ());
    assert_eq!(heap.take(class), Some(foreign));
    heap.retire(3, foreign, Some(class));
    heap.reclaim(6, |_, _| ());
    heap.set_homing(true);
    assert_eq!(heap.take(class), None);
    assert_eq!(heap.take_outbox(), [foreign]);
}

/// Retires a block, and lets its grace period pass.
fn reuse(heap: &mut Heap, block: RemoteAddr, bytes: u64) {
    let class = heap.class_for(bytes);
    heap.retire(0, block, Some(class));
    heap.reclaim(3, |_, _| ());
}

#[test]
fn the_next_block_is_the_one_that_is_taken_next() {
    let mut heap = heap();
    let class = heap.class_for(1024);
    assert_eq!(heap.next(class), None);
    heap.adopt(ChunkId { node: 0, index: 2 }, ME, class, 1, BlockMap::full(4));
    assert_eq!(heap.next(class), None, "what is at home is not ready");
    let first = heap.geometry[0].chunk(2);
    assert_eq!(heap.take(class), Some(first));
    for block in 1..4 {
        let next = heap.next(class);
        assert_eq!(next, Some(first.plus(block * 1024)));
        assert_eq!(heap.take(class), next);
    }
    assert_eq!(heap.next(class), None);
    assert_eq!(heap.next(SizeClass::RUN), None);
}

#[test]
fn sixty_four_blocks_leave_home_at_once() {
    let mut heap = heap();
    let class = heap.class_for(32);
    let ids = [2, 3].map(|index| ChunkId { node: 0, index });
    for id in ids {
        heap.adopt(id, ME, class, 1, BlockMap::full(128));
    }
    for taken in 1..=256 {
        assert!(heap.take(class).is_some());
        let home = ids.map(|id| u64::from(heap.chunks()[&id].home.count()));
        assert_eq!(home.iter().sum::<u64>(), 256_u64 - u64::next_multiple_of(taken, 64));
    }
    assert_eq!(heap.take(class), None);
}

#[test]
fn blocks_at_home_and_ready_ones_are_there() {
    let mut heap = heap();
    let [small, large] = [1024, 2048].map(|bytes| heap.class_for(bytes));
    assert!(heap.has(small, 1024, 0));
    assert!(!heap.has(small, 1024, 1));
    for (index, class, blocks) in [(2, small, 4), (3, small, 4), (4, large, 2)] {
        heap.adopt(ChunkId { node: 0, index }, ME, class, 1, BlockMap::full(blocks));
    }
    for taken in 0..3 {
        assert!(heap.has(small, 1024, 8 - taken), "{taken} were taken");
        assert!(!heap.has(small, 1024, 9 - taken), "{taken} were taken");
        assert!(heap.take(small).is_some());
    }
    assert!(heap.has(large, 2048, 2));
    assert!(!heap.has(large, 2048, 3));
}

#[test]
fn the_shortest_run_that_is_long_enough_is_taken() {
    let mut heap = heap();
    let run = SizeClass::RUN;
    for (index, chunks) in [(2, 3), (5, 2), (7, 4)] {
        heap.adopt(ChunkId { node: 0, index }, ME, run, chunks, BlockMap::full(1));
    }
    assert!(heap.has(run, 2 * 4096, 3) && !heap.has(run, 2 * 4096, 4));
    assert!(heap.has(run, 2 * 4096 + 1, 2) && !heap.has(run, 2 * 4096 + 1, 3));
    assert!(heap.has(run, 4 * 4096, 1) && !heap.has(run, 4 * 4096 + 1, 1));
    assert_eq!(heap.take_run(4 * 4096 + 1), None);
    let first = heap.geometry[0].chunk(5);
    assert_eq!(heap.take_run(2 * 4096), Some(first));
    assert_eq!(heap.take_run(2 * 4096), Some(heap.geometry[0].chunk(2)));
    assert_eq!(heap.take_run(2 * 4096), Some(heap.geometry[0].chunk(7)));
    assert_eq!(heap.take_run(1), None);
    heap.release(first, run);
    assert_eq!(heap.take_run(1), Some(first));
}

/// Frees `count` foreign blocks one after the other; returns how many of them were sent home.
fn sent_home(heap: &mut Heap, bytes: u64, count: u64) -> usize {
    let (class, first) = (heap.class_for(bytes), heap.geometry[0].chunk(2));
    (0..count).for_each(|block| heap.release(first.plus(block * bytes), class));
    heap.take_outbox().len()
}

#[test]
fn the_older_half_of_too_many_ready_blocks_goes_home() {
    let (mut few, mut many) = (heap(), heap());
    assert_eq!(sent_home(&mut few, 32, 16), 0);
    assert_eq!(sent_home(&mut many, 32, 17), 8);
    let class = many.class_for(32);
    let left: Vec<_> = core::iter::from_fn(|| many.take(class)).collect();
    let first = many.geometry[0].chunk(2);
    let younger: Vec<_> = (8..17).rev().map(|block| first.plus(block * 32)).collect();
    assert_eq!(left, younger);
}

#[test]
fn few_large_blocks_are_kept_ready() {
    let large = || {
        let geometry = Geometry::divide(1, NodeId::new(0), 1, 16 << 20, 1 << 20, 8).expect("large enough");
        Heap::new(vec![geometry])
    };
    assert_eq!(sent_home(&mut large(), 512 << 10, 8), 0);
    assert_eq!(sent_home(&mut large(), 512 << 10, 9), 4);
    assert_eq!(sent_home(&mut large(), 128 << 10, 8), 0);
    assert_eq!(sent_home(&mut large(), 128 << 10, 9), 4);
    assert_eq!(sent_home(&mut large(), 64 << 10, 16), 0);
    assert_eq!(sent_home(&mut large(), 64 << 10, 17), 8);
}

#[test]
fn twice_as_many_blocks_are_kept_ready_as_end_their_limbo_together() {
    let mut heap = heap();
    let class = heap.class_for(32);
    let first = heap.geometry[0].chunk(2);
    for block in 0..24 {
        heap.retire(0, first.plus(block * 32), Some(class));
    }
    heap.reclaim(3, |_, _| ());
    // Before the first of them nobody knew how many there would be: 17 are too many, as are 17 again.
    assert_eq!(heap.take_outbox().len(), 8);
    assert_eq!(heap.ready[usize::from(class.0)].len(), 16);
    for block in 24..56 {
        heap.release(first.plus(block * 32), class);
    }
    assert_eq!(heap.take_outbox().len(), 0, "there is room for 48");
    // One alone: room for an eighth less.
    reuse(&mut heap, first.plus(56 * 32), 32);
    assert_eq!(heap.take_outbox().len(), 24);
    assert_eq!(heap.burst[usize::from(class.0)], (21, 0));
}

#[test]
fn ready_blocks_of_a_chunk_that_is_given_up_come_home() {
    let nodes = [0, 1].map(|node| Geometry::divide(1, NodeId::new(node), 2, 1 << 20, 4096, 8));
    let mut heap = Heap::new(nodes.map(|node| node.expect("large enough")).into());
    let class = heap.class_for(1024);
    let ids = [(0, 2), (0, 3), (1, 2)].map(|(node, index)| ChunkId { node, index });
    let blocks = ids.map(|id| heap.geometry[usize::from(id.node)].chunk(u64::from(id.index)));
    for (id, block) in ids.into_iter().zip(blocks) {
        heap.adopt(id, ME, class, 1, BlockMap::new(4));
        heap.release(block, class);
        heap.release(block.plus(2 * 1024), class);
    }
    assert_eq!(heap.disown_unused(ids[0]).map(|chunk| chunk.blocks), None);
    let chunk = heap.disown(ids[0]).expect("it was owned");
    assert_eq!(chunk.home.iter().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(heap.chunks().keys().copied().collect::<Vec<_>>(), ids[1..]);
    let left: BTreeSet<_> = core::iter::from_fn(|| heap.take(class)).collect();
    let others = blocks[1..].iter().flat_map(|&block| [block, block.plus(2 * 1024)]);
    assert_eq!(left, others.collect());
}

#[test]
fn a_chunk_in_use_is_not_given_up_as_unused() {
    let mut heap = heap();
    let class = heap.class_for(1024);
    let id = ChunkId { node: 0, index: 2 };
    heap.adopt(id, ME, class, 1, BlockMap::full(4));
    let block = heap.take(class).expect("the chunk has blocks");
    assert!(heap.disown_unused(id).is_none());
    heap.set_homing(true);
    assert!(heap.disown_unused(id).is_none(), "one block is in use");
    heap.release(block, class);
    assert!(heap.disown_unused(id).is_some_and(|chunk| chunk.is_unused()));
    assert!(heap.disown_unused(id).is_none());
    assert_eq!(heap.take(class), None, "what was given up is not handed out");
}

fn suspects_of(heap: &Heap) -> Vec<RemoteAddr> {
    let mut suspects = Vec::new();
    heap.visit_suspects(&mut |block| suspects.push(block));
    suspects
}

#[test]
fn suspects_that_stay_away_are_found() {
    use core::cell::RefCell;
    let mut heap = heap();
    let class = heap.class_for(1024);
    let mut home = BlockMap::new(4);
    home.insert(3);
    heap.adopt(ChunkId { node: 0, index: 2 }, ME, class, 1, home);
    heap.adopt(ChunkId { node: 0, index: 5 }, ME, SizeClass::RUN, 2, BlockMap::new(1));
    heap.suspect_all();
    assert!(heap.is_homing());
    let [blocks, run] = [2, 5].map(|chunk| heap.geometry[0].chunk(chunk));
    let suspects = [0, 1, 2].map(|block| blocks.plus(block * 1024));
    assert_eq!(suspects_of(&heap), [&suspects[..], &[run]].concat());
    heap.acquit(suspects[1]);
    heap.release(suspects[0], class);
    assert_eq!(suspects_of(&heap), [suspects[2], run]);
    let forgotten = RefCell::new(Vec::new());
    let forget = |block, bytes| forgotten.borrow_mut().push((block, bytes));
    assert_eq!(heap.recover_suspects(forget), 2);
    assert_eq!(forgotten.into_inner(), [(suspects[2], 1024), (run, 2 * 4096)]);
    assert_eq!(suspects_of(&heap), []);
    heap.set_homing(false);
    assert_eq!(heap.take_run(2 * 4096), Some(run));
    let free = core::iter::from_fn(|| heap.take(class));
    assert_eq!(
        free.collect::<Vec<_>>(),
        [suspects[0], suspects[2], blocks.plus(3 * 1024)]
    );
}

#[test]
fn a_free_map_that_names_what_is_no_block_brings_none_home() {
    let mut heap = heap();
    let class = heap.class_for(96);
    let id = ChunkId { node: 0, index: 2 };
    heap.adopt(id, ME, class, 1, BlockMap::new(42));
    // The last two of 128 units are too few for a block.
    heap.collect(id, [126].into_iter());
    assert_eq!(heap.chunks()[&id].home.count(), 0);
    heap.collect(id, [0, 123].into_iter());
    assert_eq!(heap.chunks()[&id].home.iter().collect::<Vec<_>>(), [0, 41]);
}

#[test]
fn blocks_on_their_way_home_are_sorted() {
    let mut heap = heap();
    let class = heap.class_for(64);
    heap.set_homing(true);
    let first = heap.geometry[0].chunk(2);
    let blocks = [3, 1, 2, 0].map(|block| first.plus(block * 64));
    blocks.into_iter().for_each(|block| heap.release(block, class));
    let sorted = [0, 1, 2, 3].map(|block| first.plus(block * 64));
    assert_eq!(heap.take_outbox(), sorted);
    heap.return_to_outbox(&blocks);
    assert_eq!(heap.take_outbox(), sorted);
    assert_eq!(heap.take_outbox(), []);
}

#[test]
fn limbo_knows_of_which_classes_its_blocks_are() {
    let mut heap = heap();
    let classes = [64, 128, 256].map(|bytes| heap.class_for(bytes));
    let first = heap.geometry[0].chunk(2);
    assert_eq!(classes.map(|class| heap.limbo_has(class)), [false; 3]);
    heap.retire(0, first, Some(classes[0]));
    heap.retire(0, first.plus(128), Some(classes[1]));
    heap.retire(0, first.plus(256), None);
    assert_eq!(heap.limbo_count(), 3);
    assert_eq!(classes.map(|class| heap.limbo_has(class)), [true, true, false]);
    assert_eq!(heap.listed().count(), 3);
    heap.reclaim(3, |_, _| ());
    assert_eq!(classes.map(|class| heap.limbo_has(class)), [false; 3]);
    assert_eq!(heap.take_outbox(), [first.plus(256)], "its class is not known");
}

#[test]
fn maps_count_their_blocks() {
    let mut map = BlockMap::full(100);
    assert_eq!((map.count(), map.iter().count()), (100, 100));
    (0..50).for_each(|block| assert!(map.remove(block)));
    assert_eq!((map.count(), map.iter().next()), (50, Some(50)));
}

proptest! {
    #[test]
    fn blocks_are_handed_out_once(sizes in proptest::collection::vec(1_u64..2048, 1..200)) {
        let mut heap = heap();
        let mut seen = BTreeMap::new();
        let mut next = 0;
        for bytes in sizes {
            let class = heap.class_for(bytes);
            let block = heap.take(class).unwrap_or_else(|| {
                let blocks = heap.geometry[0].blocks_per_chunk(class);
                heap.adopt(ChunkId { node: 0, index: next }, ME, class, 1, BlockMap::full(blocks));
                next += 1;
                heap.take(class).expect("a fresh chunk has blocks")
            });
            seen.insert(block.offset(), class.bytes());
            prop_assert!(class.bytes() >= bytes);
            let ends: Vec<u64> = seen.iter().map(|(at, bytes)| at + bytes).collect();
            prop_assert!(seen.keys().skip(1).zip(ends).all(|(&next, end)| next >= end));
        }
    }
}
