//! Every instruction at which a sender or the receiver may be killed, and several of them at once.

use super::*;
use crate::region::Region;
use proptest::prelude::*;

const ALICE: EndpointId = EndpointId(1 << 16 | 7);
const BOB: EndpointId = EndpointId(2 << 16 | 9);
const NEWCOMER: EndpointId = EndpointId(3 << 16 | 9);

fn memory() -> Region {
    Region::anonymous(MAILBOX_BYTES.next_multiple_of(4096)).expect("two pages of memory")
}

fn message(number: u64) -> Message {
    Message::try_from(&number.to_le_bytes()[..]).expect("short")
}

fn number(taken: &Taken) -> Option<u64> {
    match taken {
        Taken::Message(received) => Some(u64::from_le_bytes(received.message[..].try_into().expect("a number"))),
        _ => None,
    }
}

const fn nobody(_: u64) -> bool {
    false
}

#[test]
fn the_ring_goes_round_and_refuses_when_full() {
    let memory = memory();
    let mailbox = Mailbox::new(&memory, 0);
    for round in 0..5 {
        for index in 0..SLOT_COUNT {
            mailbox
                .send(ALICE, BOB, &message(round * 100 + index))
                .expect("there is room");
        }
        assert_eq!(mailbox.send(ALICE, BOB, &message(0)), Err(Full));
        for index in 0..SLOT_COUNT {
            assert!(mailbox.has_mail());
            assert_eq!(number(&mailbox.take(BOB, nobody)), Some(round * 100 + index));
        }
        assert_eq!(mailbox.take(BOB, nobody), Taken::Empty);
        assert!(!mailbox.has_mail());
    }
}

#[test]
fn a_sender_killed_before_it_committed_is_skipped() {
    let memory = memory();
    let mailbox = Mailbox::new(&memory, 0);
    for round in 0..100 {
        mailbox.claim(ALICE).expect("there is room");
        mailbox.send(BOB, BOB, &message(round)).expect("there is room");
        assert_eq!(mailbox.take(BOB, nobody), Taken::Unfinished, "she may still finish");
        assert_eq!(number(&mailbox.take(BOB, |sender| sender == tag(ALICE))), Some(round));
    }
}

#[test]
fn a_sender_killed_before_it_moved_the_tail_is_helped() {
    let memory = memory();
    let mailbox = Mailbox::new(&memory, 0);
    for round in 0..100 {
        mailbox.claim(ALICE).expect("there is room");
        // As if she had died one instruction earlier.
        mailbox.word(TAIL_AT).fetch_sub(1, Ordering::SeqCst);
        if round % 2 == 0 {
            // The receiver may even skip the slot before the tail has moved on.
            assert_eq!(mailbox.take(BOB, |_| true), Taken::Empty);
        }
        mailbox.send(BOB, BOB, &message(round)).expect("there is room");
        assert_eq!(number(&mailbox.take(BOB, |sender| sender == tag(ALICE))), Some(round));
    }
}

#[test]
fn a_receiver_killed_before_it_moved_the_head_is_helped() {
    let memory = memory();
    let mailbox = Mailbox::new(&memory, 0);
    for round in 0..100 {
        mailbox.send(ALICE, BOB, &message(1)).expect("there is room");
        assert_eq!(number(&mailbox.take(BOB, nobody)), Some(1));
        mailbox.word(HEAD_AT).fetch_sub(1, Ordering::SeqCst);
        mailbox.send(ALICE, NEWCOMER, &message(round)).expect("there is room");
        assert_eq!(number(&mailbox.take(NEWCOMER, nobody)), Some(round));
    }
}

#[test]
fn a_late_message_does_not_reach_the_next_owner() {
    let memory = memory();
    let mailbox = Mailbox::new(&memory, 0);
    for index in 0..SLOT_COUNT - 1 {
        mailbox.send(ALICE, BOB, &message(index)).expect("there is room");
    }
    mailbox.send(ALICE, NEWCOMER, &message(5)).expect("there is room");
    assert_eq!(number(&mailbox.take(NEWCOMER, nobody)), Some(5));
    assert_eq!(mailbox.take(NEWCOMER, nobody), Taken::Empty);
}

#[test]
fn a_sender_taken_for_dead_sends_nothing() {
    let memory = memory();
    let mailbox = Mailbox::new(&memory, 0);
    let (slot, claimed) = mailbox.claim(ALICE).expect("there is room");
    assert_eq!(mailbox.take(BOB, |_| true), Taken::Empty);
    let full = slot_word(turn_of(claimed), 0, FULL);
    let committed = mailbox
        .word(slot)
        .compare_exchange(claimed, full, Ordering::SeqCst, Ordering::Relaxed);
    assert!(committed.is_err());
    assert_eq!(mailbox.take(BOB, |_| true), Taken::Empty);
}

#[test]
fn senders_in_threads_each_keep_their_order() {
    const SENDERS: u64 = 4;
    const EACH: u64 = 20_000;
    let memory = memory();
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let memory = &memory;
            scope.spawn(move || {
                for number in 0..EACH {
                    while Mailbox::new(memory, 0)
                        .send(EndpointId(sender + 1), BOB, &message(number))
                        .is_err()
                    {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut next = [0; SENDERS as usize];
        while next.iter().sum::<u64>() < SENDERS * EACH {
            let taken = Mailbox::new(&memory, 0).take(BOB, nobody);
            match &taken {
                Taken::Message(received) => {
                    let expected = &mut next[received.from.0 as usize - 1];
                    assert_eq!(number(&taken), Some(*expected));
                    *expected += 1;
                }
                _ => std::thread::yield_now(),
            }
        }
    });
    assert_eq!(Mailbox::new(&memory, 0).take(BOB, nobody), Taken::Empty);
}

proptest! {
    /// Whatever stands in a segment, sending and taking end and touch only the mailbox.
    #[test]
    fn garbage_neither_hangs_nor_panics(head: u64, tail: u64, words in proptest::collection::vec(any::<u64>(), 32)) {
        let memory = memory();
        memory.word(HEAD_AT).store(head, Ordering::SeqCst);
        memory.word(TAIL_AT).store(tail, Ordering::SeqCst);
        for (index, word) in words.iter().enumerate() {
            let slot = SLOTS_AT + index as u64 * SLOT_BYTES;
            memory.word(slot).store(*word, Ordering::SeqCst);
            memory.word(slot + LENGTH_AT).store(word >> 30, Ordering::SeqCst);
            memory.word(slot + TO_AT).store(BOB.0, Ordering::SeqCst);
        }
        let mailbox = Mailbox::new(&memory, 0);
        for _ in 0..10 {
            let _ = mailbox.send(ALICE, BOB, &message(1));
            let _ = mailbox.take(BOB, |tag| tag % 2 == 0);
            let _ = mailbox.has_mail();
        }
    }
}
