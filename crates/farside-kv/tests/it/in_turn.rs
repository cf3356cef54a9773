//! Sessions of a pipeline over mapped memory: each runs while the others wait for memory, in the middle of their operations.

use core::cell::{Cell, RefCell};

use farside_fabric::shm::{self, Segment};
use farside_fabric::{Pipeline, interleave};
use farside_kv::{IndexKind, RaceOptions, Store, StoreConfig};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample;

use crate::model::run;

const SESSIONS: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Get(u8),
    Put(u8),
    Delete(u8),
}

fn operations() -> impl Strategy<Value = Operation> {
    // Few keys, so that they meet.
    prop_oneof![
        3 => (0..6_u8).prop_map(Operation::Get),
        2 => (0..6_u8).prop_map(Operation::Put),
        1 => (0..6_u8).prop_map(Operation::Delete),
    ]
}

/// What an operation wrote, or read: the number of the PUT whose value is there.
#[derive(Clone, Copy, Debug)]
struct Done {
    key: u8,
    value: Option<u64>,
    begin: u64,
    end: u64,
}

/// What was done, in an order that everybody agrees on: all sessions are on one thread.
#[derive(Default)]
struct History {
    clock: Cell<u64>,
    writes: RefCell<Vec<Done>>,
    reads: RefCell<Vec<Done>>,
}

impl History {
    fn tick(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    /// Each GET saw a write that had begun when it ended, and that no other write had replaced for good when it began.
    fn check(&self) {
        let writes = self.writes.borrow();
        for read in self.reads.borrow().iter() {
            let of_key = || writes.iter().filter(|write| write.key == read.key);
            let is_over = |end: u64| of_key().any(|other| end < other.begin && other.end < read.begin);
            let is_seen = |write: &Done| write.value == read.value && write.begin < read.end && !is_over(write.end);
            let was_never_there = read.value.is_none() && !is_over(0);
            assert!(was_never_there || of_key().any(is_seen), "{read:?} after {writes:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn sessions_of_a_pipeline_see_what_is_there(
        index in sample::select(vec![IndexKind::PointerArray, IndexKind::Race, IndexKind::Chime]),
        padding in sample::select(vec![0_usize, 40, 500]),
        plans in vec(vec(operations(), 0..120), SESSIONS),
    ) {
        run(async {
            let segment = Segment::anonymous(64 << 20).expect("memory");
            let endpoint = shm::Fabric::new(vec![segment]).endpoint().expect("an endpoint");
            // Items move to the overflow buckets, and the table is split.
            let race = RaceOptions { items: 0, subtable_bytes: 768, bucket_slots: 1 };
            let config = StoreConfig { index: Some(index), race, ..StoreConfig::default() };
            let store = Store::open(endpoint, config).await.expect("a store");
            let (pipeline, history) = (Pipeline::default(), History::default());
            let runs = plans.iter().map(|plan| {
                let mut session = store.pipelined_session(&pipeline);
                let history = &history;
                async move {
                    for operation in plan {
                        let begin = history.tick();
                        match *operation {
                            Operation::Get(key) => {
                                let found = session.get(&[key]).await.expect("get");
                                let value = found.map(|value| u64::from_le_bytes(value[..8].try_into().expect("a number")));
                                let done = Done { key, value, begin, end: history.tick() };
                                history.reads.borrow_mut().push(done);
                            }
                            Operation::Put(key) => {
                                let value = [&begin.to_le_bytes()[..], &vec![key; padding]].concat();
                                session.put(&[key], &value).await.expect("put");
                                let done = Done { key, value: Some(begin), begin, end: history.tick() };
                                history.writes.borrow_mut().push(done);
                            }
                            Operation::Delete(key) => {
                                session.delete(&[key]).await.expect("delete");
                                let done = Done { key, value: None, begin, end: history.tick() };
                                history.writes.borrow_mut().push(done);
                            }
                        }
                    }
                }
            });
            interleave(&pipeline, runs.collect()).await;
            history.check();
            store.close().await.expect("close");
        });
    }
}
