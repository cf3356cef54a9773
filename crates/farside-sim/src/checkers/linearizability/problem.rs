//! The operations of one key in the form that the search wants: what each needs, what it does, what comes before it.
//!
//! On the path: tests only; made by `check` from a key's part of the history, read by `search`.
//!
//! Invariants: `answered` is sorted by start; the members of a group are sorted by start, no two start together, so
//! a member that may come next implies the same of all members before it.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Answer, Call, Operation};

/// The value of the key; `None` while it is absent.
pub(super) type Value = Option<u64>;

/// What the value must be for an answer to be right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Need {
    Anything,
    Absent,
    Present,
    Exactly(u64),
    /// An `Add` that answered what it added.
    AbsentOrZero,
    /// The answer belongs to another call.
    Impossible,
}

impl Need {
    pub(super) fn accepts(self, value: Value) -> bool {
        match self {
            Self::Anything => true,
            Self::Absent => value.is_none(),
            Self::Present => value.is_some(),
            Self::Exactly(needed) => value == Some(needed),
            Self::AbsentOrZero => matches!(value, None | Some(0)),
            Self::Impossible => false,
        }
    }
}

/// What an answered operation does to the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    Keep,
    Set(u64),
    Remove,
}

impl Effect {
    pub(super) fn apply(self, value: Value) -> Value {
        match self {
            Self::Keep => value,
            Self::Set(new) => Some(new),
            Self::Remove => None,
        }
    }
}

/// An operation with an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) need: Need,
    pub(super) effect: Effect,
    /// The operation of the same client whose answer came at the instant of the start; an index of `answered`.
    pub(super) before: Option<usize>,
    /// Whether this operation stands in somebody's `before`.
    pub(super) is_before_another: bool,
    /// Which counter of needed values this operation's need is in.
    pub(super) needs: Option<usize>,
    /// Which counter of needed values this operation's result is in.
    pub(super) produces: Option<usize>,
    /// Index into the operations that the problem was made of.
    pub(super) source: usize,
}

/// A call whose effect depends on the value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Change {
    Put(u64),
    Insert(u64),
    Update(u64),
    Delete,
    Add(u64),
}

/// An operation without an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) start_ns: u64,
    /// As [`Answered::before`].
    pub(super) before: Option<usize>,
    /// As [`Answered::source`].
    pub(super) source: usize,
}

/// Operations without an answer that asked the same.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) change: Change,
    pub(super) produces: Option<usize>,
    pub(super) members: Vec<Open>,
}

/// One key's operations.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) initial: Value,
    pub(super) answered: Vec<Answered>,
    pub(super) groups: Vec<Group>,
    /// The counters of needed values; the absence of a value has the first.
    counters: BTreeMap<Value, usize>,
}

impl Problem {
    /// Panics if an operation ends before it starts.
    pub(super) fn new(operations: &[Operation], initial: Value) -> Self {
        let mut by_time: Vec<usize> = (0..operations.len()).collect();
        by_time.sort_by_key(|&source| (operations[source].start_ns, source));
        let demands: Vec<_> = operations.iter().map(demand).collect();
        let has_open_sums = operations
            .iter()
            .any(|operation| operation.end.is_none() && is_add(operation.call));
        let names = Names::new(demands.iter().flatten(), has_open_sums);

        let mut answered: Vec<Answered> = Vec::new();
        let mut groups: BTreeMap<(Change, usize), Vec<Open>> = BTreeMap::new();
        // For each client: its latest operation with an answer.
        let mut latest_of: BTreeMap<u32, usize> = BTreeMap::new();
        let mut twins: BTreeMap<(Change, u64), usize> = BTreeMap::new();
        for source in by_time {
            let Operation {
                client,
                call,
                start_ns,
                end,
                ..
            } = operations[source];
            let before = latest_of
                .get(&client)
                .copied()
                .filter(|&latest| answered[latest].end_ns == start_ns);
            if let Some(earlier) = before {
                answered[earlier].is_before_another = true;
            }
            match (end, demands[source]) {
                (Some((end_ns, _)), Some((need, effect))) => {
                    assert!(
                        start_ns <= end_ns,
                        "an operation ends before it starts: {:?}",
                        operations[source]
                    );
                    let effect = match effect {
                        Effect::Set(value) => Effect::Set(names.name(value)),
                        Effect::Keep | Effect::Remove => effect,
                    };
                    latest_of.insert(client, answered.len());
                    answered.push(Answered {
                        start_ns,
                        end_ns,
                        need,
                        effect,
                        before,
                        is_before_another: false,
                        needs: names.needs(need),
                        produces: names.produces(effect),
                        source,
                    });
                }
                _ => {
                    if let Some(change) = change(call, &names) {
                        // Two that start together may wait for different operations of their clients: they are not
                        // interchangeable, and go to different groups.
                        let twin = twins.entry((change, start_ns)).or_default();
                        groups.entry((change, *twin)).or_default().push(Open {
                            start_ns,
                            before,
                            source,
                        });
                        *twin += 1;
                    }
                }
            }
        }
        let groups = groups
            .into_iter()
            .map(|((change, _), members)| Group {
                change,
                produces: names.produces_change(change),
                members,
            })
            .collect();
        Self {
            initial: initial.map(|value| names.name(value)),
            answered,
            groups,
            counters: names.counters,
        }
    }

    /// How many counters of needed values there are.
    pub(super) fn counter_count(&self) -> usize {
        self.counters.len()
    }

    /// The counter of a value, if an answer needs exactly this value.
    pub(super) fn counter_of(&self, value: Value) -> Option<usize> {
        self.counters.get(&value).copied()
    }
}

fn is_add(call: Call) -> bool {
    matches!(call, Call::Add(_))
}

/// What an answer demands; `None` without an answer.
fn demand(operation: &Operation) -> Option<(Need, Effect)> {
    let (_, answer) = operation.end?;
    Some(match (operation.call, answer) {
        (Call::Get, Answer::Value(Some(value))) => (Need::Exactly(value), Effect::Keep),
        (Call::Take, Answer::Value(Some(value))) => (Need::Exactly(value), Effect::Remove),
        (Call::Get | Call::Take, Answer::Value(None)) => (Need::Absent, Effect::Keep),
        (Call::Put(value), Answer::Done) => (Need::Anything, Effect::Set(value)),
        (Call::Insert(value), Answer::Happened(true)) => (Need::Absent, Effect::Set(value)),
        (Call::Insert(_), Answer::Happened(false)) => (Need::Present, Effect::Keep),
        (Call::Update(value), Answer::Happened(true)) => (Need::Present, Effect::Set(value)),
        (Call::Update(_) | Call::Delete, Answer::Happened(false)) => (Need::Absent, Effect::Keep),
        (Call::Delete, Answer::Happened(true)) => (Need::Present, Effect::Remove),
        (Call::Add(delta), Answer::Sum(sum)) if delta == sum => (Need::AbsentOrZero, Effect::Set(sum)),
        (Call::Add(delta), Answer::Sum(sum)) => (Need::Exactly(sum.wrapping_sub(delta)), Effect::Set(sum)),
        (
            Call::Get | Call::Put(_) | Call::Insert(_) | Call::Update(_) | Call::Delete | Call::Take | Call::Add(_),
            _,
        ) => (Need::Impossible, Effect::Keep),
    })
}

/// What a call without an answer may do; `None` for one that only reads.
fn change(call: Call, names: &Names) -> Option<Change> {
    match call {
        Call::Get => None,
        Call::Put(value) => Some(Change::Put(names.name(value))),
        Call::Insert(value) => Some(Change::Insert(names.name(value))),
        Call::Update(value) => Some(Change::Update(names.name(value))),
        Call::Delete | Call::Take => Some(Change::Delete),
        Call::Add(delta) => Some(Change::Add(delta)),
    }
}

/// Which values are told apart.
struct Names {
    counters: BTreeMap<Value, usize>,
    /// Stands for all values that no answer needs; `None` if each value must be known.
    other: Option<u64>,
}

impl Names {
    fn new<'a>(demands: impl Iterator<Item = &'a (Need, Effect)>, has_open_sums: bool) -> Self {
        let mut needed: BTreeSet<u64> = BTreeSet::new();
        for (need, _) in demands {
            match need {
                Need::Exactly(value) => {
                    needed.insert(*value);
                }
                Need::AbsentOrZero => {
                    needed.insert(0);
                }
                Need::Anything | Need::Absent | Need::Present | Need::Impossible => {}
            }
        }
        let other = (0..=u64::MAX)
            .find(|value| !needed.contains(value))
            .filter(|_| !has_open_sums);
        let values = std::iter::once(None).chain(needed.into_iter().map(Some));
        Self {
            counters: values.enumerate().map(|(counter, value)| (value, counter)).collect(),
            other,
        }
    }

    fn name(&self, value: u64) -> u64 {
        match self.other {
            Some(other) if !self.counters.contains_key(&Some(value)) => other,
            _ => value,
        }
    }

    fn counter_of(&self, value: Value) -> Option<usize> {
        self.counters.get(&value).copied()
    }

    fn needs(&self, need: Need) -> Option<usize> {
        match need {
            Need::Exactly(value) => self.counter_of(Some(value)),
            Need::Absent => self.counter_of(None),
            Need::Anything | Need::Present | Need::AbsentOrZero | Need::Impossible => None,
        }
    }

    fn produces(&self, effect: Effect) -> Option<usize> {
        match effect {
            Effect::Keep => None,
            Effect::Set(value) => self.counter_of(Some(value)),
            Effect::Remove => self.counter_of(None),
        }
    }

    fn produces_change(&self, change: Change) -> Option<usize> {
        match change {
            Change::Put(value) | Change::Insert(value) | Change::Update(value) => self.counter_of(Some(value)),
            Change::Delete => self.counter_of(None),
            // What it produces depends on what it adds to; the search counts these apart.
            Change::Add(_) => None,
        }
    }
}
