//! Answers that come in pieces, in several frames, from several nodes, too late or not at all.

use core::pin::pin;
use std::sync::Arc;
use std::task::Wake;

use super::*;
use crate::addr::RemoteAddr;
use crate::verb::Slice;

const HERE: NodeId = NodeId::new(0);
const THERE: NodeId = NodeId::new(1);
const GONE: FabricError = FabricError::NodeGone { node: THERE };

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

fn read(node: NodeId, at: u32, bytes: u32) -> Verb {
    Verb::Read {
        source: RemoteAddr::new(node, 64),
        target: Slice::new(at, bytes),
    }
}

fn word(node: NodeId) -> Verb {
    Verb::ReadWord {
        source: RemoteAddr::new(node, 64),
    }
}

/// An operation on 64 bytes of 0xaa.
fn begin(operations: &RefCell<Operations>, verbs: &[Verb], answers: u32) -> SlotIndex {
    let mut buffer = Buffer::unregistered(64);
    buffer.fill(0xaa);
    let mut operations = operations.borrow_mut();
    let index = operations.begin(verbs.iter(), buffer.take());
    operations.expect_answers(index, answers);
    index
}

fn answer(operations: &RefCell<Operations>, index: SlotIndex, node: NodeId, body: &[u8]) -> Result<bool, &'static str> {
    let mut operations = operations.borrow_mut();
    let waker = operations.answer(index, node, Status::Done, body);
    waker.map(|waker| waker.is_some())
}

/// Polls once, so that there is somebody to wake; whether it is over.
fn poll(pending: &mut Pending<'_>) -> bool {
    let waker = Waker::from(Arc::new(Nobody));
    pin!(pending).poll(&mut Context::from_waker(&waker)).is_ready()
}

/// The outcome, with the results and the bytes.
fn finish(pending: Pending<'_>) -> (Result<Vec<u128>, FabricError>, Vec<u8>) {
    let mut buffer = Buffer::default();
    let late = FabricError::DeadlineExceeded { node: HERE };
    let outcome = pending.finish(&mut buffer, late, |parts, _| {
        parts.iter().map(Part::result).collect::<Vec<_>>()
    });
    (outcome, buffer.to_vec())
}

#[test]
fn an_operation_is_over_with_its_last_answer() {
    let operations = RefCell::default();
    let index = begin(&operations, &[word(HERE), word(THERE)], 2);
    let mut pending = Pending::new(&operations, index);
    assert!(!poll(&mut pending));
    assert_eq!(answer(&operations, index, THERE, &7_u64.to_le_bytes()), Ok(false));
    assert!(!poll(&mut pending));
    assert_eq!(pending.laggard(), Some(HERE));
    assert_eq!(answer(&operations, index, HERE, &5_u64.to_le_bytes()), Ok(true));
    assert!(poll(&mut pending));
    assert_eq!(pending.laggard(), None);
    assert_eq!(finish(pending).0, Ok(vec![5, 7]), "each node's answer is its own");
}

#[test]
fn the_bytes_of_a_read_come_in_pieces() {
    let operations = RefCell::default();
    let verbs = [word(HERE), read(HERE, 8, 20), read(THERE, 40, 4), word(HERE)];
    let index = begin(&operations, &verbs, 4);
    let pending = Pending::new(&operations, index);
    let first = [&3_u64.to_le_bytes()[..], &[1; 5]].concat();
    answer(&operations, index, HERE, &first).expect("a good answer");
    answer(&operations, index, THERE, &[4; 4]).expect("a good answer");
    answer(&operations, index, HERE, &[2; 6]).expect("a good answer");
    let last = [&[3; 9][..], &9_u64.to_le_bytes()].concat();
    answer(&operations, index, HERE, &last).expect("a good answer");
    let (results, bytes) = finish(pending);
    assert_eq!(results, Ok(vec![3, 0, 0, 9]));
    let expected = [
        &[0xaa; 8][..],
        &[1; 5],
        &[2; 6],
        &[3; 9],
        &[0xaa; 12],
        &[4; 4],
        &[0xaa; 20],
    ];
    assert_eq!(bytes, expected.concat());
}

#[test]
fn answers_of_another_length_are_refused() {
    let cases: [(&[Verb], &[usize]); 6] = [
        (&[word(HERE)], &[7]),
        (&[word(HERE)], &[9]),
        (&[word(HERE)], &[0]),
        (&[read(HERE, 0, 8), word(HERE)], &[8]),
        (&[word(HERE), read(HERE, 0, 8)], &[8, 7]),
        (&[read(HERE, 0, 8)], &[8, 1]),
    ];
    for (verbs, lengths) in cases {
        let operations = RefCell::default();
        let index = begin(&operations, verbs, lengths.len() as u32);
        let _pending = Pending::new(&operations, index);
        let (last, before) = lengths.split_last().expect("there is one");
        for &length in before {
            assert_eq!(answer(&operations, index, HERE, &vec![0; length]), Ok(false));
        }
        let refused = answer(&operations, index, HERE, &vec![0; *last]);
        assert!(refused.is_err(), "{verbs:?}: {lengths:?}");
        // What the connection does then.
        operations.borrow_mut().expect_answers(index, 1);
        operations.borrow_mut().fail(index, GONE);
    }
}

#[test]
fn an_operation_that_has_failed_waits_for_nobody() {
    let operations = RefCell::default();
    let index = begin(&operations, &[read(THERE, 0, 8), word(HERE), word(HERE)], 3);
    let mut pending = Pending::new(&operations, index);
    assert!(!poll(&mut pending));
    assert!(operations.borrow_mut().fail(index, GONE).is_some(), "somebody waits");
    assert!(poll(&mut pending));
    let other = FabricError::Fenced { node: HERE };
    operations.borrow_mut().fail(index, other);
    let (outcome, bytes) = finish(pending);
    assert_eq!(outcome, Err(GONE), "the first reason is the reason");
    assert_eq!(bytes, [0xaa; 64], "the memory is back");
    // The last answer frees the slot, and not before.
    assert_ne!(begin(&operations, &[], 0), index);
    assert_eq!(answer(&operations, index, HERE, &[0; 16]), Ok(false), "nobody waits");
    assert_eq!(begin(&operations, &[], 0), index);
}

#[test]
fn a_part_that_is_missing_after_a_failure_is_no_other_one() {
    let operations = RefCell::default();
    let index = begin(&operations, &[word(THERE), word(HERE)], 2);
    let pending = Pending::new(&operations, index);
    operations.borrow_mut().fail(index, GONE);
    assert_eq!(answer(&operations, index, HERE, &[0; 8]).map(drop), Ok(()));
    assert_eq!(finish(pending).0, Err(GONE));
}

#[test]
fn a_slot_remembers_nothing_of_the_operation_before() {
    let operations = RefCell::default();
    let index = begin(&operations, &[word(THERE)], 1);
    let pending = Pending::new(&operations, index);
    operations.borrow_mut().fail(index, GONE);
    assert_eq!(finish(pending).0, Err(GONE));
    assert_eq!(begin(&operations, &[word(HERE)], 1), index);
    let pending = Pending::new(&operations, index);
    let status = operations
        .borrow_mut()
        .answer(index, HERE, Status::MailboxFull, &[1, 0, 0, 0, 0, 0, 0, 0])
        .map(drop);
    assert_eq!(status, Ok(()));
    let statuses = |pending: Pending<'_>| {
        let late = FabricError::DeadlineExceeded { node: HERE };
        pending.finish(&mut Buffer::default(), late, |parts, status| (parts.len(), status))
    };
    assert_eq!(statuses(pending), Ok((1, Status::MailboxFull)));
    // Nobody has answered, and nobody was asked.
    assert_eq!(begin(&operations, &[], 0), index);
    assert_eq!(statuses(Pending::new(&operations, index)), Ok((0, Status::Done)));
}

#[test]
fn late_answers_are_thrown_away() {
    let operations = RefCell::default();
    let index = begin(&operations, &[read(HERE, 0, 8)], 2);
    drop(Pending::new(&operations, index));
    assert_eq!(answer(&operations, index, HERE, &[1; 4]), Ok(false));
    let other = begin(&operations, &[read(HERE, 0, 8)], 1);
    assert_ne!(other, index, "one answer is still to come");
    assert_eq!(answer(&operations, index, HERE, &[1; 4]), Ok(false));
    // From now on the slot is somebody else's.
    assert_eq!(begin(&operations, &[read(HERE, 8, 8)], 1), index);
    let mut pending = Pending::new(&operations, index);
    assert!(!poll(&mut pending));
    assert_eq!(
        answer(&operations, index, HERE, &[2; 8]),
        Ok(true),
        "somebody waits again"
    );
    let (_, bytes) = finish(pending);
    assert_eq!(bytes[..24], [[0xaa; 8], [2; 8], [0xaa; 8]].concat());
}

#[test]
fn who_leaves_too_early_says_that_it_was_late() {
    let operations = RefCell::default();
    let index = begin(&operations, &[word(HERE)], 1);
    let (outcome, bytes) = finish(Pending::new(&operations, index));
    assert_eq!(outcome, Err(FabricError::DeadlineExceeded { node: HERE }));
    assert_eq!(bytes, [0xaa; 64]);
    assert_eq!(answer(&operations, index, HERE, &[0; 8]), Ok(false));
    assert_eq!(begin(&operations, &[], 0), index, "the last answer frees the slot");
}

/// A card writes to the memory as long as it has not said that it is done.
#[test]
fn memory_on_which_a_card_works_stays() {
    let operations = RefCell::<Operations>::default();
    let pinned = |index| operations.borrow_mut().pinned_memory(index).start;
    let index = begin(&operations, &[word(HERE), read(HERE, 8, 8)], 0);
    operations.borrow_mut().expect_pinned_answer(index);
    let memory = pinned(index);
    let (outcome, bytes) = finish(Pending::new(&operations, index));
    assert_eq!(outcome, Err(FabricError::DeadlineExceeded { node: HERE }));
    assert_eq!(bytes, [0xaa; 64], "a copy");
    assert_eq!(pinned(index), memory);
    assert!(operations.borrow_mut().complete(index).is_none(), "nobody waits");
    assert_ne!(pinned(index), memory, "the card is done");
    // The next operation is not pinned, and leaves with what it brought.
    let mut buffer = Buffer::unregistered(64);
    let own = buffer.as_ptr() as u64;
    assert_eq!(operations.borrow_mut().begin([].iter(), buffer.take()), index);
    operations.borrow_mut().expect_answers(index, 1);
    let late = FabricError::DeadlineExceeded { node: HERE };
    let left = Pending::new(&operations, index).finish(&mut buffer, late, |_, _| ());
    assert_eq!(left, Err(late));
    assert_eq!(buffer.as_ptr() as u64, own);
}

#[test]
fn what_a_card_has_done_is_taken_back_as_it_is() {
    let operations = RefCell::<Operations>::default();
    let mut buffer = Buffer::unregistered(64);
    let own = buffer.as_ptr() as u64;
    let verbs = [word(HERE), read(HERE, 8, 8)];
    let index = operations.borrow_mut().begin(verbs.iter(), buffer.take());
    operations.borrow_mut().expect_pinned_answer(index);
    operations.borrow_mut().expect_pinned_answer(index);
    let mut pending = Pending::new(&operations, index);
    assert!(!poll(&mut pending));
    operations.borrow_mut().complete_part(index, 0, 5);
    assert!(
        operations.borrow_mut().complete(index).is_none(),
        "one more is expected"
    );
    assert_eq!(pending.laggard(), Some(HERE));
    operations.borrow_mut().complete_part(index, 1, 6);
    operations.borrow_mut().complete_part(index, 2, 7);
    assert_eq!(pending.laggard(), None);
    assert!(operations.borrow_mut().complete(index).is_some());
    assert!(poll(&mut pending));
    let late = FabricError::DeadlineExceeded { node: HERE };
    let results = pending.finish(&mut buffer, late, |parts, _| {
        parts.iter().map(Part::result).collect::<Vec<_>>()
    });
    assert_eq!(results, Ok(vec![5, 0]), "only words are results");
    assert_eq!(buffer.as_ptr() as u64, own, "the memory itself");
}
