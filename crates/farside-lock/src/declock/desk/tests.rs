//! Questions by letter, and what the desk of another machine answers.

use super::*;
use crate::declock::testing::client;
use crate::inbox::Arrived;
use crate::letter::{ANY_STAMP, Letter};
use crate::testing::{LOCK, Machine, Stage};

struct Asker<'s> {
    stage: &'s Stage,
    machine: Machine,
    seat: Seat,
}

impl Asker<'_> {
    /// All that is answered to one question.
    fn ask(&self, kind: LetterKind, lock: u64, of: &Client) -> Vec<Arrived> {
        let member = of.node.member(of.endpoint.id()).expect("it is in the roster");
        let desk = self.stage.sim.block_on(of.desk_of(member)).expect("the node is there");
        let desk = desk.expect("it is in the roster");
        let letter = Letter {
            kind,
            seat: desk.seat,
            reply: self.seat.number(),
            stamp: ANY_STAMP,
            entry: RemoteAddr::NULL,
            words: [lock, self.seat.stamp().into(), 0],
        };
        let inbox = self.seat.inbox();
        let sent = inbox.send(&self.machine.endpoint, desk.endpoint, letter);
        self.stage.sim.block_on(sent).expect("it is there");
        self.answers()
    }

    fn answers(&self) -> Vec<Arrived> {
        self.stage.run_for(50_000);
        let next = || self.seat.take(&self.machine.endpoint).expect("the fabric is there");
        core::iter::from_fn(next).collect()
    }
}

#[test]
fn a_desk_answers_what_is_so() {
    let stage = Stage::new();
    let machine = stage.machine();
    let client = client(&machine);
    stage.sim.block_on(client.enlist()).expect("there is room");
    let asking = stage.machine();
    let seat = asking.site.inbox(asking.endpoint.id()).take_seat(LOCK).expect("a seat");
    let asker = Asker {
        stage: &stage,
        machine: asking,
        seat,
    };
    let id = machine.endpoint.id();
    let kinds = |answers: Vec<Arrived>| {
        let of_it = |arrived: &Arrived| {
            assert_eq!((arrived.letter.words, arrived.letter.entry), ([id.0, 0, 0], LOCK));
            arrived.letter.kind
        };
        answers.iter().map(of_it).collect::<Vec<_>>()
    };
    use LetterKind::{AskReset, Busy, Done, Granted, Reset};
    let ask = |kind| kinds(asker.ask(kind, LOCK.to_bits(), &client));

    // Of a lock that it knows nothing of.
    assert_eq!(ask(Reset), [Done]);
    assert_eq!(ask(AskReset), [Done]);
    assert!(client.node.known(LOCK).is_none());
    // Of one that it knows, and does not use.
    let local = client.node.local(LOCK);
    assert_eq!(ask(Reset), [Done]);
    assert_eq!(ask(AskReset), [Done]);
    // Of one that it resets itself.
    local.is_resetting.set(true);
    assert_eq!(ask(AskReset), [Busy]);
    assert_eq!(ask(Reset), [Done]);
    local.is_resetting.set(false);
    // Of one that it uses.
    local.begin();
    assert_eq!(ask(Reset), [Busy]);
    assert_eq!(ask(Reset), [Busy], "asked again");
    assert_eq!(ask(AskReset), [Done]);
    let told = local.end();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].desk, told[0].place), (id, asker.seat.place()));
    // Letters that are no question, and no address.
    assert_eq!(ask(Granted), []);
    assert!(asker.ask(Reset, u64::MAX, &client).is_empty());
    assert_eq!(ask(Reset), [Done], "it still answers");
}
