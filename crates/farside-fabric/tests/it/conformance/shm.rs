//! The suite on shared memory, and what only several threads can show.

use std::future::ready;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use farside_fabric::shm::{Fabric, Segment};
use farside_fabric::{Endpoint, LocalFuture};
use farside_fabric::{MaskedAdd, NodeId, OpContext, Slice};

use super::fixture::{Body, Fixture, NODE_BYTES, Nodes, at};

pub(crate) struct Shm;

struct ShmCluster {
    fabric: Fabric,
}

/// Runs a future to its end on this thread, with everything an endpoint needs.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    farside_fabric::host::on_this_thread(future).expect("an event loop")
}

impl Fixture for Shm {
    fn run(nodes: u16, node_bytes: u64, body: Body) {
        let segments = (0..nodes).map(|_| Segment::anonymous(node_bytes).expect("a little memory"));
        let fabric = Fabric::new(segments.collect());
        block_on(body(Rc::new(ShmCluster { fabric })));
    }
}

impl Nodes for ShmCluster {
    fn endpoint(&self) -> LocalFuture<'_, Endpoint> {
        Box::pin(ready(self.fabric.endpoint().expect("the table has room")))
    }

    fn stop_node(&self, node: NodeId) {
        self.fabric.segments()[node.index()].close();
    }
}

/// Runs `body` in several threads, each with its own endpoint and runtime.
fn in_threads(body: impl AsyncFn(OpContext, u64) + Sync) -> OpContext {
    let fabric = Fabric::new(vec![Segment::anonymous(NODE_BYTES).expect("a little memory")]);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (fabric, body) = (&fabric, &body);
            scope.spawn(move || {
                block_on(body(
                    OpContext::new(fabric.endpoint().expect("the table has room")),
                    number,
                ));
            });
        }
    });
    OpContext::new(fabric.endpoint().expect("the table has room"))
}

#[test]
fn atomics_of_threads_all_count() {
    const ROUNDS: u64 = 20_000;
    let mut op = in_threads(async |mut op, number| {
        for _ in 0..ROUNDS {
            op.fetch_add(at(0), 1).await.expect("a good address");
            let field = MaskedAdd {
                add: 3 << (16 * number),
                boundary: 0x8000_8000_8000_8000,
            };
            op.masked_fetch_add(at(8), field).await.expect("a good address");
            op.wide_fetch_add(at(16), MaskedAdd::whole(u128::from(u64::MAX)))
                .await
                .expect("a good address");
            let seen = op.read_word(at(32)).await.expect("a good address");
            if op.compare_swap(at(32), seen, seen + 1).await == Ok(seen) {
                op.fetch_add(at(40), 1).await.expect("a good address");
            }
        }
    });
    block_on(async {
        assert_eq!(op.read_word(at(0)).await, Ok(4 * ROUNDS));
        let field = ROUNDS * 3 % (1 << 16);
        assert_eq!(
            op.read_word(at(8)).await,
            Ok(field << 48 | field << 32 | field << 16 | field)
        );
        let wide = op.read(at(16), Slice::first(16)).await.expect("a good address");
        let wide = u128::from_le_bytes(wide.try_into().expect("16 bytes"));
        assert_eq!(wide, u128::from(4 * ROUNDS) * u128::from(u64::MAX));
        assert_eq!(
            op.read_word(at(32)).await,
            op.read_word(at(40)).await,
            "each success changed the word once"
        );
    });
}

#[test]
fn words_do_not_tear_and_flags_follow_data_between_threads() {
    const ROUNDS: u64 = 30_000;
    in_threads(async |mut op, number| {
        for round in 1..=ROUNDS {
            if number == 0 {
                let word = round << 32 | round;
                for bytes in op.buffer_mut()[..64].chunks_exact_mut(8) {
                    bytes.copy_from_slice(&word.to_le_bytes());
                }
                op.write(Slice::first(64), at(1024)).await.expect("a good address");
                op.write_word(at(2048), round).await.expect("a good address");
            } else {
                let flag = op.read_word(at(2048)).await.expect("a good address");
                let data = op.read(at(1019), Slice::first(72)).await.expect("a good address");
                for bytes in data[5..69].chunks_exact(8) {
                    let word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
                    assert_eq!(word >> 32, word & 0xffff_ffff, "torn");
                    assert!(word >> 32 >= flag, "the flag was ahead of the data");
                }
            }
        }
    });
}

/// Lets two threads go at the same moment: one that sleeps in a barrier would come too late to meet
/// the other.
#[derive(Default)]
struct StartingLine(AtomicU64);

impl StartingLine {
    /// Waits for the `count`-th arrival of any thread.
    fn wait(&self, count: u64) {
        self.0.fetch_add(1, SeqCst);
        let mut spins = 0_u32;
        while self.0.load(SeqCst) < count {
            spins += 1;
            if spins.is_multiple_of(1000) {
                // The other may need this core.
                std::thread::yield_now();
            }
        }
    }
}

/// A store is not overtaken by a later load of the same client: of two that write their own word and
/// then read the other's, one sees the other (Dekker). Without the order this fails in an optimised build;
/// in others the code between the two accesses hides it.
#[test]
fn a_write_is_not_overtaken_by_a_later_read() {
    const ROUNDS: u64 = 50_000;
    let fabric = Fabric::new(vec![Segment::anonymous(NODE_BYTES).expect("a little memory")]);
    let line = StartingLine::default();
    let seen = [const { AtomicU64::new(0) }; 2];
    std::thread::scope(|scope| {
        for own in 0..2_usize {
            let (fabric, line, seen) = (&fabric, &line, &seen);
            scope.spawn(move || {
                let mut op = OpContext::new(fabric.endpoint().expect("the table has room"));
                block_on(async move {
                    for round in 1..=ROUNDS {
                        let (mine, others) = (at(64 * own as u64), at(64 * (1 - own as u64)));
                        op.buffer_mut()[..8].copy_from_slice(&round.to_le_bytes());
                        line.wait(round * 6 - 4);
                        // Who arrives last goes first; a different delay each time lets them meet.
                        for _ in 0..round % 97 * (own as u64 ^ (round / 97 % 2)) {
                            std::hint::black_box(round);
                        }
                        if round % 2 == 0 {
                            op.write(Slice::first(8), mine).await.expect("a good address");
                        } else {
                            op.write_word(mine, round).await.expect("a good address");
                        }
                        let other = op.read_word(others).await.expect("a good address");
                        seen[own].store(other, SeqCst);
                        line.wait(round * 6 - 2);
                        let saw = seen.each_ref().map(|seen| seen.load(SeqCst));
                        assert!(
                            saw.contains(&round),
                            "round {round}: neither saw the other, but {saw:?}"
                        );
                        line.wait(round * 6);
                    }
                });
            });
        }
    });
}
