//! How two clients find a queue pair for the messages of one to the other, and when it may be used.
//!
//! On the path: once per pair of clients, over their connections to node 0. Until then messages are relayed by the node.
//! The sender of the messages owns the pair; for messages the other way there is another one.
//!  1. Behind some messages that were relayed, the sender *asks*: here is my end. The node hands that on behind all messages
//!     that it had taken for the peer. Who is written to now and then costs no pair.
//!  2. The peer makes its end and *answers*. By then it has all that was relayed before the question.
//!  3. If the sender has had nothing relayed since it asked, everything that it ever had relayed has arrived: the pair is
//!     open, and nothing is relayed any more. Else it asks again, in another round.
//!
//! A sender waits a little for an answer. If the peer stands still there is none; then messages go on being relayed, which
//! makes the round void. So no message waits for a peer, and none overtakes another.
//!
//! A pair that breaks is forgotten. Its sender tells the peer first (*leave*), which takes out what has come; the next
//! message is relayed, behind that. When a client's connection to the node ends, the node tells all who have been introduced
//! to it (*gone*), and they forget their pairs with it.

use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::exchange::Address;

/// What clients tell each other about a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum IntroductionKind {
    /// Make an end for mine.
    Ask = 1,
    /// This is it; or no address, if there is none.
    Answer = 2,
    /// My end is gone.
    Leave = 3,
    /// From the node: the client's connection has ended.
    Gone = 4,
}

/// The body of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Introduction {
    /// An [`IntroductionKind`].
    kind: u8,
    reserved: [u8; 3],
    /// Which question it is, and in an answer which it was.
    round: U32,
    /// Where the end is; all zero if there is none.
    address: Address,
}

impl Introduction {
    pub(crate) fn new(kind: IntroductionKind, round: u32, address: Option<Address>) -> Self {
        Self {
            kind: kind as u8,
            reserved: [0; 3],
            round: U32::new(round),
            address: address.unwrap_or_else(zerocopy::FromZeros::new_zeroed),
        }
    }

    /// One in the body of a frame, if it is one.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let decoded = Self::read_from_bytes(body).ok()?;
        ((IntroductionKind::Ask as u8)..=IntroductionKind::Gone as u8)
            .contains(&decoded.kind)
            .then_some(decoded)
    }

    pub(crate) fn kind(&self) -> IntroductionKind {
        match self.kind {
            1 => IntroductionKind::Ask,
            2 => IntroductionKind::Answer,
            3 => IntroductionKind::Leave,
            _ => IntroductionKind::Gone,
        }
    }

    pub(super) fn round(&self) -> u32 {
        self.round.get()
    }

    /// The address, if it is one that a queue pair can have.
    pub(super) fn address(&self) -> Option<Address> {
        Address::decode(self.address.as_bytes())
    }
}

/// The sender's side of its way to one peer, with its end `P` of a pair.
pub(super) enum Outgoing<P> {
    Asking(Asking<P>),
    Open(P),
    /// There is no pair: so many messages more are relayed before one is asked for.
    Relayed {
        left: u32,
    },
}

/// Between question and answer.
pub(super) struct Asking<P> {
    pub(super) end: P,
    round: u32,
    asked_at_ns: u64,
    /// Whether a message was relayed since.
    has_relayed: bool,
}

/// Which way a message may go now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Relay,
    /// By the pair.
    Pair,
    /// The answer may come soon; whoever does not wait for it may have the message relayed.
    Unclear,
}

impl<P> Outgoing<P> {
    pub(super) fn ask(end: P, round: u32, now_ns: u64) -> Self {
        Self::Asking(Asking {
            end,
            round,
            asked_at_ns: now_ns,
            has_relayed: false,
        })
    }

    pub(super) fn way(&self) -> Way {
        match self {
            Self::Open(_) => Way::Pair,
            Self::Asking(asking) if !asking.has_relayed => Way::Unclear,
            _ => Way::Relay,
        }
    }

    /// A message is handed to the connection to be relayed.
    pub(super) fn relayed(&mut self) {
        match self {
            Self::Asking(asking) => asking.has_relayed = true,
            Self::Open(_) => unreachable!("nothing is relayed beside an open pair"),
            Self::Relayed { left } => *left = left.saturating_sub(1),
        }
    }

    /// The question that an answer to `round` answers, unless it is an old one.
    pub(super) fn asked(&mut self, round: u32) -> Option<&mut Asking<P>> {
        match self {
            Self::Asking(asking) if asking.round == round => Some(asking),
            _ => None,
        }
    }

    /// The question has been answered, and the end is connected. Returns whether the pair is open now; else there is
    /// another question, `next_round`, to be asked.
    pub(super) fn answered(&mut self, next_round: u32, now_ns: u64) -> bool {
        let Self::Asking(asking) = core::mem::replace(self, Self::Relayed { left: 0 }) else {
            unreachable!("there was a question");
        };
        let is_open = !asking.has_relayed;
        *self = if is_open {
            Self::Open(asking.end)
        } else {
            Self::Asking(Asking {
                round: next_round,
                asked_at_ns: now_ns,
                has_relayed: false,
                ..asking
            })
        };
        is_open
    }

    /// Whether it is time to ask for a pair with a new end.
    pub(super) fn may_begin(&self) -> bool {
        matches!(self, Self::Relayed { left: 0 })
    }

    /// Asks once more, if there was no answer for `patience_ns`. Returns what is to be asked.
    pub(super) fn ask_again(&mut self, next_round: u32, now_ns: u64, patience_ns: u64) -> Option<&P> {
        let Self::Asking(asking) = self else { return None };
        if now_ns < asking.asked_at_ns.saturating_add(patience_ns) {
            return None;
        }
        (asking.round, asking.asked_at_ns, asking.has_relayed) = (next_round, now_ns, false);
        Some(&asking.end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use proptest::prelude::*;

    /// What may happen next between a sender, the node and a peer.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// The sender sends; if the way is unclear it does not wait.
        Send,
        /// The same, and it waits.
        SendPatiently,
        /// The node pushes a message, or a question if there is no message.
        Push,
        /// The peer takes in what was pushed first.
        TakePushed,
        /// The peer's device takes a message of the pair in.
        Arrive,
        /// The peer looks at what has arrived.
        Collect,
        /// An answer comes to the sender.
        Answer,
        /// The sender has waited for an answer for long.
        AskAgain,
        /// The sender's end breaks.
        Break,
        /// It cannot be connected, when an answer comes.
        Refuse,
    }

    enum Pushed {
        Message(u32),
        Ask(u32, u32),
        Leave,
    }

    /// A sender, a node and a peer. Ends have numbers, which are never used again.
    #[derive(Default)]
    struct Model {
        outgoing: Option<Outgoing<u32>>,
        next: u32,
        ends: u32,
        round: u32,
        mailbox: VecDeque<u32>,
        asks: VecDeque<(u32, u32)>,
        leaves: u32,
        pushed: VecDeque<Pushed>,
        answers: VecDeque<u32>,
        /// On the wire, each with its end.
        wire: VecDeque<(u32, u32)>,
        /// The end that the peer listens to.
        incoming: Option<u32>,
        arrived: VecDeque<u32>,
        inbox: Vec<u32>,
        lost: usize,
    }

    impl Model {
        fn collect(&mut self) {
            self.inbox.extend(self.arrived.drain(..));
        }

        fn listen_to(&mut self, end: Option<u32>) {
            self.collect();
            self.incoming = end;
        }

        fn step(&mut self, event: Event) {
            match event {
                Event::Send | Event::SendPatiently => {
                    let way = self.outgoing.as_ref().map_or(Way::Relay, Outgoing::way);
                    match (way, &mut self.outgoing, event) {
                        (Way::Pair, Some(Outgoing::Open(end)), _) => self.wire.push_back((*end, self.next)),
                        (Way::Unclear, _, Event::SendPatiently) => return,
                        (_, outgoing, _) => {
                            self.mailbox.push_back(self.next);
                            let outgoing = outgoing.get_or_insert(Outgoing::Relayed { left: 1 });
                            outgoing.relayed();
                            if outgoing.may_begin() {
                                (self.ends, self.round) = (self.ends + 1, self.round + 1);
                                *outgoing = Outgoing::ask(self.ends, self.round, 0);
                                self.asks.push_back((self.ends, self.round));
                            }
                        }
                    }
                    self.next += 1;
                }
                Event::Push => {
                    for _ in 0..core::mem::take(&mut self.leaves) {
                        self.pushed.push_back(Pushed::Leave);
                    }
                    if let Some(message) = self.mailbox.pop_front() {
                        self.pushed.push_back(Pushed::Message(message));
                    } else if let Some((end, round)) = self.asks.pop_front() {
                        self.pushed.push_back(Pushed::Ask(end, round));
                    }
                }
                Event::TakePushed => match self.pushed.pop_front() {
                    Some(Pushed::Message(message)) => {
                        self.collect();
                        self.inbox.push(message);
                    }
                    Some(Pushed::Ask(end, round)) => {
                        if self.incoming != Some(end) {
                            self.listen_to(Some(end));
                        }
                        self.answers.push_back(round);
                    }
                    Some(Pushed::Leave) => self.listen_to(None),
                    None => {}
                },
                Event::Arrive => {
                    if let Some((end, message)) = self.wire.pop_front() {
                        if self.incoming == Some(end) {
                            self.arrived.push_back(message);
                        } else {
                            self.lost += 1;
                        }
                    }
                }
                Event::Collect => self.collect(),
                Event::Answer => {
                    if let Some(round) = self.answers.pop_front()
                        && let Some(outgoing) = &mut self.outgoing
                        && let Some(end) = outgoing.asked(round).map(|asking| asking.end)
                    {
                        self.round += 1;
                        if !outgoing.answered(self.round, 0) {
                            self.asks.push_back((end, self.round));
                        }
                    }
                }
                Event::Refuse => {
                    if let Some(round) = self.answers.pop_front()
                        && let Some(outgoing) = &mut self.outgoing
                        && outgoing.asked(round).is_some()
                    {
                        *outgoing = Outgoing::Relayed { left: 2 };
                    }
                }
                Event::AskAgain => {
                    self.round += 1;
                    if let Some(outgoing) = &mut self.outgoing
                        && let Some(end) = outgoing.ask_again(self.round, 0, 0)
                    {
                        self.asks.push_back((*end, self.round));
                    }
                }
                Event::Break => {
                    if matches!(self.outgoing, Some(Outgoing::Open(_))) {
                        self.outgoing = None;
                        self.leaves += 1;
                    }
                }
            }
        }
    }

    fn event(with_breaks: bool) -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => Just(Event::Send),
            4 => Just(Event::SendPatiently),
            4 => Just(Event::Push),
            4 => Just(Event::TakePushed),
            4 => Just(Event::Arrive),
            2 => Just(Event::Collect),
            4 => Just(Event::Answer),
            1 => Just(Event::AskAgain),
            1 => Just(Event::Refuse),
            1 => Just(if with_breaks { Event::Break } else { Event::Collect }),
        ]
    }

    fn run(events: &[Event]) -> Model {
        let mut model = Model::default();
        events.iter().for_each(|event| model.step(*event));
        for _ in 0..=events.len() {
            for event in [Event::Push, Event::TakePushed, Event::Arrive, Event::Collect] {
                model.step(event);
            }
        }
        model
    }

    proptest! {
        #[test]
        fn nothing_is_lost_doubled_or_overtaken(events in proptest::collection::vec(event(false), 0..200)) {
            let model = run(&events);
            prop_assert_eq!(model.inbox, (0..model.next).collect::<Vec<_>>());
            prop_assert_eq!(model.lost, 0);
        }

        #[test]
        fn a_pair_that_breaks_loses_only_what_is_on_its_wire(events in proptest::collection::vec(event(true), 0..200)) {
            let model = run(&events);
            prop_assert!(model.inbox.is_sorted_by(|one, next| one < next), "{:?}", model.inbox);
            prop_assert_eq!(model.inbox.len() + model.lost, model.next as usize);
        }

        #[test]
        fn an_introduction_survives_the_wire(round: u32, body in proptest::collection::vec(any::<u8>(), 0..80)) {
            let leave = Introduction::new(IntroductionKind::Leave, round, None);
            prop_assert_eq!(Introduction::decode(leave.as_bytes()), Some(leave));
            prop_assert_eq!((leave.kind(), leave.round(), leave.address()), (IntroductionKind::Leave, round, None));
            if let Some(introduction) = Introduction::decode(&body) {
                prop_assert_eq!(introduction.as_bytes(), &body[..]);
            }
        }
    }

    #[test]
    fn a_pair_is_used_as_soon_as_a_question_is_answered_behind_everything() {
        use Event::{Answer, Push, Send, TakePushed};
        let quiet = run(&[Send, Push, TakePushed, Push, TakePushed, Answer]);
        assert!(matches!(quiet.outgoing, Some(Outgoing::Open(1))));
        let busy = [Send, Push, TakePushed, Push, Send, TakePushed, Answer];
        let mut busy = run(&busy);
        assert_eq!(
            busy.outgoing.as_ref().map(Outgoing::way),
            Some(Way::Unclear),
            "asked again"
        );
        busy.step(Answer);
        assert!(matches!(busy.outgoing, Some(Outgoing::Open(1))), "with the same end");
    }
}
