//! Reading memory that was reclaimed.

use super::*;

fn panics(run: impl FnOnce()) -> Option<String> {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    result.err().map(|payload| match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(_) => "no text".to_owned(),
    })
}

#[test]
fn a_read_that_starts_in_forgotten_memory_is_noticed() {
    for bytes in [8, 40, 500] {
        let small = Small::new(seeded(7));
        let mut op = small.op();
        op.endpoint().forget(small.at(4096), 256);
        let text = panics(|| {
            let read = op.read(small.at(4096 + 64), Slice::first(bytes));
            small.sim.block_on(read).map(|bytes| bytes.len()).unwrap();
        });
        let text = text.expect("use after free");
        assert!(text.contains("endpoint 1") && text.contains("seed 7"), "{text}");
        assert!(text.contains(&small.at(4096 + 64).to_string()), "{text}");
    }
    let small = Small::new(seeded(7));
    let mut op = small.op();
    op.endpoint().forget(small.at(4096), 64);
    assert!(
        panics(|| assert!(small.sim.block_on(op.read_word(small.at(4096 + 56))).is_ok()))
            .is_some_and(|text| text.contains("reclaimed"))
    );
}

#[test]
fn a_read_may_run_into_forgotten_memory() {
    let small = Small::new(seeded(1));
    let mut op = small.op();
    op.buffer_mut()[..64].fill(1);
    small.sim.block_on(op.write(Slice::first(64), small.at(64))).unwrap();
    op.endpoint().forget(small.at(128), 200);
    let bytes = small.sim.block_on(op.read(small.at(64), Slice::first(256))).unwrap();
    assert_eq!(bytes[..64], [1; 64]);
    assert_eq!(bytes[64..], [0xdd; 192], "three whole lines of the 200 bytes");
    // The fourth line was not forgotten as a whole, and is as it was.
    assert_eq!(small.sim.block_on(op.read_word(small.at(128 + 192))), Ok(0));
}

/// Who says that a READ may be of something else by now may read it, but not use it.
#[test]
fn what_was_speculated_on_must_not_be_used() {
    let read = |is_used: bool| {
        let small = Small::new(seeded(1));
        let mut op = small.op();
        small.sim.block_on(op.write_word(small.at(0), 7)).unwrap();
        op.endpoint().forget(small.at(4096), 64);
        panics(|| {
            let mut batch = Batch::new();
            let word = batch.read_word(small.at(0));
            batch.speculate(small.at(4096), Slice::first(40));
            small.sim.block_on(op.post(&mut batch)).unwrap();
            assert_eq!(batch.result(word), 7);
            op.rely_on(Slice::new(0, if is_used { 8 } else { 0 }));
            op.assert_settled();
            // Whoever fills it again has to say so again.
            batch.clear();
            assert!(!batch.is_speculative(1));
        })
    };
    assert_eq!(read(false), None);
    assert!(read(true).is_some());
}

#[test]
fn what_is_written_is_known_again() {
    let small = Small::new(seeded(1));
    let (mut op, mut other) = (small.op(), small.op());
    op.endpoint().forget(small.at(0), 1024);
    small.sim.block_on(other.write_word(small.at(8), 1)).unwrap();
    small.sim.block_on(other.compare_swap(small.at(64), 0, 1)).unwrap();
    small
        .sim
        .block_on(other.write(Slice::first(100), small.at(128)))
        .unwrap();
    small.sim.block_on(other.write(Slice::first(4), small.at(300))).unwrap();
    for line in 0..5 {
        small
            .sim
            .block_on(op.read(small.at(line * 64), Slice::first(64)))
            .unwrap();
    }
    assert!(
        panics(|| assert!(small.sim.block_on(op.read_word(small.at(320))).is_ok()))
            .is_some_and(|text| text.contains("reclaimed"))
    );
}

#[test]
fn a_read_that_nobody_waits_for_finds_what_it_finds() {
    let small = Small::new(seeded(1));
    let (mut late, mut crashed, other) = (small.op(), small.op(), small.endpoint());
    small.sim.partition(small.compute_node, small.node);
    late.set_deadline(Deadline(2_000));
    let addr = small.at(0);
    let id = crashed.endpoint().id();
    crashed.endpoint().clone().spawn(async move {
        let _ = crashed.read(addr, Slice::first(256)).await;
    });
    assert!(small.sim.block_on(late.read(addr, Slice::first(256))).is_err());
    other.forget(addr, 256);
    small.sim.crash_client(id);
    small.sim.heal(small.compute_node, small.node);
    small.sim.run_until_idle();
    assert_eq!(small.sim.operations_in_flight(), 0);
}
