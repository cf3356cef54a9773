//! Noticing who uses bytes that were being written while they were read.

use super::*;

/// A reader and a writer that are executed at overlapping times (or, if not, one after the other); the
/// reader's context then.
fn read_meets_write(seed: u64, read: (u64, u32), write: (u64, u32), overlap: bool) -> (Small, OpContext) {
    let small = Small::new(seeded(seed));
    let (mut reader, mut writer) = (small.op(), small.op());
    let target = small.at(write.0);
    writer.endpoint().clone().spawn(async move {
        let pause = if overlap { 50 } else { 10_000 };
        writer.endpoint().sleep(pause).await;
        writer
            .write(Slice::first(write.1), target)
            .await
            .expect("the node is there");
    });
    let slice = Slice::new(16, read.1);
    small
        .sim
        .block_on(reader.read(small.at(read.0), slice))
        .expect("the node is there");
    small.sim.run_until_idle();
    (small, reader)
}

fn panics(run: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
}

#[test]
fn bytes_that_were_written_meanwhile_are_torn() {
    for_seeds(|seed| {
        // Within one line, over several, and where only one of them is long.
        for (read, write) in [
            ((0, 64), (0, 64)),
            ((0, 512), (64, 300)),
            ((100, 16), (0, 512)),
            ((0, 512), (96, 9)),
        ] {
            let (_, mut op) = read_meets_write(seed, read, write, true);
            assert!(panics(|| op.assert_settled()), "{read:?} {write:?}");
            let low = 16 + write.0.saturating_sub(read.0) as u32;
            assert!(panics(|| op.rely_on(Slice::new(low, 1))), "{read:?} {write:?}");
            op.validated();
            op.assert_settled();

            let (_, mut op) = read_meets_write(seed, read, write, false);
            op.assert_settled();
            op.rely_on(Slice::new(16, read.1));
        }
    });
}

#[test]
fn only_the_common_bytes_are_torn_and_words_never_are() {
    let (_, mut op) = read_meets_write(1, (0, 512), (128, 64), true);
    op.rely_on(Slice::new(16, 128));
    op.assert_settled();
    let (_, mut op) = read_meets_write(1, (0, 512), (128, 64), true);
    op.rely_on(Slice::new(16 + 192, 320));
    let (_, mut op) = read_meets_write(1, (0, 512), (128, 64), true);
    assert!(panics(|| op.rely_on(Slice::new(16, 129))));
    // A word, and part of one.
    read_meets_write(1, (128, 8), (0, 512), true).1.assert_settled();
    read_meets_write(1, (130, 5), (0, 512), true).1.assert_settled();
    read_meets_write(1, (0, 512), (128, 8), true).1.assert_settled();
    // Two words.
    let (_, op) = read_meets_write(1, (132, 8), (0, 512), true);
    assert!(panics(|| op.assert_settled()));
    // Nothing in common.
    read_meets_write(1, (0, 64), (64, 512), true).1.assert_settled();
    let (_, mut op) = read_meets_write(1, (0, 512), (128, 64), true);
    op.rely_on_words();
    op.assert_settled();
}

#[test]
fn reading_anew_and_failing_clear_the_marks() {
    let (small, mut op) = read_meets_write(1, (0, 512), (128, 64), true);
    small.sim.block_on(op.read(small.at(0), Slice::new(16, 512))).unwrap();
    op.assert_settled();

    let (small, mut op) = read_meets_write(1, (0, 512), (128, 64), true);
    let mut batch = Batch::new();
    batch.read(small.at(0), Slice::new(16 + 128, 32));
    batch.read_word(small.at(8));
    small.sim.block_on(op.post(&mut batch)).unwrap();
    op.rely_on_within(Slice::new(16 + 128, 32), Slice::new(16 + 128, 32));
    op.reserve(100_000);
    assert!(
        panics(|| op.rely_on(Slice::new(16 + 160, 1))),
        "the other half still is"
    );

    small.sim.crash_node(small.node);
    assert!(small.sim.block_on(op.read(small.at(0), Slice::first(8))).is_err());
    op.assert_settled();
}

#[test]
fn of_things_read_side_by_side_each_is_relied_on_by_itself() {
    let small = Small::new(seeded(1));
    let (mut reader, mut writer) = (small.op(), small.op());
    let (first, second) = (small.at(0), small.at(4096));
    writer.endpoint().clone().spawn(async move {
        writer.endpoint().sleep(50).await;
        let mut batch = Batch::new();
        batch.write(Slice::first(32), first.plus(64));
        batch.write(Slice::first(32), second);
        writer.post(&mut batch).await.expect("the node is there");
    });
    let (one, two) = (Slice::new(0, 128), Slice::new(1024, 128));
    let mut batch = Batch::new();
    batch.read(first, one);
    batch.read(second, two);
    small.sim.block_on(reader.post(&mut batch)).unwrap();
    reader.rely_on_within(one, Slice::first(64));
    assert!(panics(|| reader.assert_settled()), "nothing was said of the second");
    assert!(panics(|| reader.rely_on_within(two, Slice::new(1024 + 16, 8))));
}

/// A reader that relies on a block which a writer rewrites is caught; one that looks at a version
/// before and after, and says so, is not.
#[test]
fn a_reader_without_validation_is_caught_by_some_seed() {
    let run = |seed: u64, validates: bool| {
        let small = Small::new(SimOptions {
            jitter_ns: 2_000,
            ..seeded(seed)
        });
        let (mut reader, mut writer) = (small.op(), small.op());
        let (version, data) = (small.at(0), small.at(4096));
        writer.endpoint().clone().spawn(async move {
            for round in 1..=20_u64 {
                writer.buffer_mut()[..256].fill(round as u8);
                let mut batch = Batch::new();
                batch.write_word(version, 2 * round - 1);
                batch.write(Slice::first(256), data);
                batch.write_word(version, 2 * round);
                writer.post(&mut batch).await.expect("the node is there");
            }
        });
        small.sim.block_on(async {
            for _ in 0..30 {
                let before = reader.read_word(version).await.unwrap();
                reader.read(data, Slice::first(256)).await.unwrap();
                let after = reader.read_word(version).await.unwrap();
                if !validates {
                    reader.rely_on(Slice::first(256));
                } else {
                    if before == after && before % 2 == 0 {
                        reader.rely_on(Slice::first(256));
                        let bytes = &reader.buffer()[..256];
                        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                    }
                    reader.validated();
                }
                reader.assert_settled();
            }
        });
    };
    for_seeds(|seed| run(seed, true));
    assert!((1..=20).any(|seed| panics(|| run(seed, false))));
}
