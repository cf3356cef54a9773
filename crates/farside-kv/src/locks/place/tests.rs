//! Which place a name is given.

use super::super::head::NOTE_BYTES;
use super::super::table::NOTE_AT;
use super::super::tests::world;
use super::super::{Locks, LocksOptions};
use super::*;
use farside_fabric::Deadline;

/// Writes that a place was used then.
async fn write_note(cx: &mut OpContext, place: Place, since_ms: u64) {
    let note = Slice::first(NOTE_BYTES as u32);
    Note::encode(since_ms, Mode::Shared, "somebody", &mut cx.buffer_mut()[note.range()]);
    let written = cx.write(note, place.head.plus(NOTE_AT)).await;
    written.expect("the node is there");
}

#[test]
fn places_without_a_name_come_first_then_those_used_least_recently() {
    let (sim, locks) = world();
    let shared = &locks.shared;
    let bucket = shared.table.bucket(b"name");
    let place = |index| bucket.place(index);
    let idle = || {
        let mut cx = locks.context();
        let idle = sim.block_on(async { shared.idle_places(&mut cx, bucket).await });
        let idle = idle.expect("the node is there").into_iter();
        idle.map(|found| {
            (0..PLACES)
                .find(|&index| place(index) == found)
                .expect("a place of the bucket")
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(idle(), [0, 1, 2, 3, 4, 5, 6, 7]);
    let mut cx = locks.context();
    sim.block_on(async {
        for (index, since_ms) in [(0, Some(9)), (2, None), (3, Some(5)), (7, Some(2))] {
            write_name(&mut cx, place(index), &[index as u8])
                .await
                .expect("the node is there");
            if let Some(since_ms) = since_ms {
                write_note(&mut cx, place(index), since_ms).await;
            }
        }
        // What was used before its name went is no matter.
        write_note(&mut cx, place(5), 1_000).await;
    });
    assert_eq!(idle(), [1, 4, 5, 6, 2, 7, 3, 0]);
    let held = sim.block_on(async { shared.take_if_free(&mut cx, place(4)).await });
    let held = held.expect("the node is there").expect("it is free");
    assert_eq!(idle(), [1, 5, 6, 2, 7, 3, 0], "somebody holds it");
    sim.block_on(async { shared.locker.release(&mut cx, held).await })
        .expect("it is held");
    assert_eq!(idle(), [1, 4, 5, 6, 2, 7, 3, 0]);
}

#[test]
fn a_place_that_another_client_takes_first_is_left_to_it() {
    let (sim, locks) = world();
    let other = sim.block_on(Locks::open(
        sim.endpoint(sim.add_compute_node()),
        LocksOptions::default(),
    ));
    let other = other.expect("there is a table");
    let place = locks.shared.table.bucket(b"name").place(0);
    let take = |locks: &Locks, cx: &mut OpContext| {
        let taken = sim.block_on(async { locks.shared.take_if_free(cx, place).await });
        assert_eq!(cx.deadline(), Deadline::NEVER);
        taken.expect("the node is there")
    };
    let (mut theirs, mut ours) = (other.context(), locks.context());
    let held = take(&other, &mut theirs).expect("it is free");
    let begun_ns = sim.now_ns();
    assert!(take(&locks, &mut ours).is_none());
    assert!(
        sim.now_ns() - begun_ns < locks.shared.site.options().lease_ns,
        "it does not wait for long"
    );
    let released = sim.block_on(async { other.shared.locker.release(&mut theirs, held).await });
    released.expect("it is held");
    assert!(take(&locks, &mut ours).is_some());
}
