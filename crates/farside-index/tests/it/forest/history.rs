//! What clients asked and were answered, and whether some order explains it.
//!
//! What it verifies: the operations on each key can be put into an order that explains every answer, each between its start
//! and its end; those without an answer may have happened later, or never. What it does not verify: anything across keys.

use std::collections::{BTreeMap, HashSet};

use farside_index::operation::Change;

/// What was asked of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Put(u64),
    Insert(u64),
    Update(u64),
    Delete,
    Search,
}

/// What was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Changed(Change),
    Read(Option<u64>),
    Is(bool),
}

/// One operation; without an answer it may have happened or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) call: Call,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) answer: Option<Answer>,
}

/// All operations by key.
#[derive(Default, Debug)]
pub(crate) struct History {
    pub(crate) events: BTreeMap<u64, Vec<Event>>,
}

/// What an operation does to a value, and what it answers.
fn apply(call: Call, value: Option<u64>) -> (Option<u64>, Answer) {
    match (call, value) {
        (Call::Put(new), None) => (Some(new), Answer::Changed(Change::Inserted)),
        (Call::Put(new), Some(_)) => (Some(new), Answer::Changed(Change::Updated)),
        (Call::Insert(new), None) => (Some(new), Answer::Is(true)),
        (Call::Update(new), Some(_)) => (Some(new), Answer::Is(true)),
        (Call::Insert(_) | Call::Update(_), _) => (value, Answer::Is(false)),
        (Call::Delete, _) => (None, Answer::Is(value.is_some())),
        (Call::Search, _) => (value, Answer::Read(value)),
    }
}

impl History {
    pub(crate) fn push(&mut self, key: u64, event: Event) {
        self.events.entry(key).or_default().push(event);
    }

    /// The first key whose operations no order explains.
    pub(crate) fn unexplained(&self, last: &BTreeMap<u64, u64>) -> Option<(u64, Vec<Event>)> {
        let keys = self.events.iter().find(|(key, events)| {
            let mut events = (*events).clone();
            // The state at the end is what a SEARCH finds then.
            events.push(Event {
                call: Call::Search,
                start: u64::MAX - 1,
                end: u64::MAX - 1,
                answer: Some(Answer::Read(last.get(key).copied())),
            });
            !is_explained(&events)
        });
        keys.map(|(&key, events)| (key, events.clone()))
    }
}

fn is_explained(events: &[Event]) -> bool {
    assert!(events.len() < 128, "few operations on each key");
    let answered = events.iter().enumerate().filter(|(_, event)| event.answer.is_some());
    let all: u128 = answered.fold(0, |mask, (index, _)| mask | 1 << index);
    let mut seen = HashSet::new();
    let mut left = vec![(0_u128, None)];
    while let Some((done, value)) = left.pop() {
        if done & all == all {
            return true;
        }
        if !seen.insert((done, value)) {
            continue;
        }
        let open = || events.iter().enumerate().filter(|(index, _)| done >> index & 1 == 0);
        let answered = open().filter(|(_, event)| event.answer.is_some());
        let first_end = answered.map(|(_, event)| event.end).min().unwrap_or(u64::MAX);
        for (index, event) in open().filter(|(_, event)| event.start <= first_end) {
            let (next, answer) = apply(event.call, value);
            if event.answer.is_none_or(|given| given == answer) {
                left.push((done | 1 << index, next));
            }
        }
    }
    false
}

#[test]
fn answers_that_no_order_explains_are_noticed() {
    let event = |call, start, end, answer| Event {
        call,
        start,
        end,
        answer: Some(answer),
    };
    let put = event(Call::Put(1), 0, 10, Answer::Changed(Change::Inserted));
    let stale = event(Call::Search, 20, 30, Answer::Read(None));
    let early = event(Call::Search, 5, 30, Answer::Read(None));
    assert!(!is_explained(&[put, stale]));
    assert!(is_explained(&[put, early]));
    let lost = Event {
        answer: None,
        end: u64::MAX,
        ..put
    };
    assert!(is_explained(&[lost, stale]));
    let mut history = History::default();
    history.push(7, put);
    assert!(history.unexplained(&BTreeMap::new()).is_some());
    assert!(history.unexplained(&BTreeMap::from([(7, 1)])).is_none());
}
