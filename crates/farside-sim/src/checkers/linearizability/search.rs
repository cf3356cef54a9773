//! The search for one key's linearization: depth first, with a memory of the configurations that are dead ends.
//!
//! On the path: tests only; `check` calls it per key, `violation` calls it again and again with less and less.
//!
//! A *configuration* is the set of answered operations that are placed, the value, and how many operations without an
//! answer are used up of each group. A *move* places one answered operation, and before it the shortest chain of
//! operations without an answer that makes it fit. The stack is explicit: a history may have any length.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::problem::{Change, Effect, Group, Need, Problem, Value};

/// What came out.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// The operations in an order, as indices into what the problem was made of; those that never took effect are
    /// not in it.
    Linearizable(Vec<usize>),
    Violation,
    /// The steps were used up.
    Undecided,
}

/// What came out, and what it cost.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) outcome: Outcome,
    pub(super) steps: u64,
}

/// Searches for a linearization in at most `steps_max` steps.
pub(super) fn search(problem: &Problem, steps_max: u64) -> Report {
    let mut search = Search::new(problem, steps_max);
    let outcome = search.run();
    Report {
        outcome,
        steps: search.steps,
    }
}

/// Which answered operations are placed.
struct Placed {
    bits: Vec<u64>,
    /// The first that is not placed.
    first: usize,
    count: usize,
}

impl Placed {
    fn contains(&self, index: usize) -> bool {
        self.bits[index / 64] >> (index % 64) & 1 == 1
    }

    fn insert(&mut self, index: usize) {
        self.bits[index / 64] |= 1 << (index % 64);
        self.count += 1;
        if index == self.first {
            self.first = self.next_absent(index + 1);
        }
    }

    fn remove(&mut self, index: usize) {
        self.bits[index / 64] &= !(1 << (index % 64));
        self.count -= 1;
        self.first = self.first.min(index);
    }

    /// The first index from `from` on that is not placed; it may lie beyond the last operation.
    fn next_absent(&self, from: usize) -> usize {
        let mut word = from / 64;
        let mut below = (1_u64 << (from % 64)) - 1;
        while word < self.bits.len() {
            let absent = !(self.bits[word] | below);
            if absent != 0 {
                return 64 * word + absent.trailing_zeros() as usize;
            }
            below = 0;
            word += 1;
        }
        64 * self.bits.len()
    }

    /// The set without the words that are full below `first` and empty above the last placed one.
    fn window(&self) -> (usize, u64, Box<[u64]>) {
        let low = self.first / 64;
        let Some(&head) = self.bits.get(low) else {
            return (low, 0, Box::default());
        };
        let mut missing = self.count - 64 * low - head.count_ones() as usize;
        let mut end = low + 1;
        while missing > 0 {
            missing -= self.bits[end].count_ones() as usize;
            end += 1;
        }
        (low, head, self.bits[low + 1..end].into())
    }
}

/// What is remembered of a configuration, but for the operations without an answer.
#[derive(PartialEq, Eq, Hash)]
struct Configuration {
    low: usize,
    head: u64,
    rest: Box<[u64]>,
    value: Value,
}

/// How many members of each group are used up: pairs of group and count, sorted, no count is 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Used(Vec<(usize, usize)>);

impl Used {
    fn of(&self, group: usize) -> usize {
        self.0
            .binary_search_by_key(&group, |&(group, _)| group)
            .map_or(0, |at| self.0[at].1)
    }

    fn take(&mut self, group: usize) {
        match self.0.binary_search_by_key(&group, |&(group, _)| group) {
            Ok(at) => self.0[at].1 += 1,
            Err(at) => self.0.insert(at, (group, 1)),
        }
    }

    fn give_back(&mut self, group: usize) {
        let at = self
            .0
            .binary_search_by_key(&group, |&(group, _)| group)
            .expect("what is given back was taken");
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.remove(at);
        }
    }

    /// Whether no group is used more than in `other`.
    fn is_within(&self, other: &Self) -> bool {
        self.0.len() <= other.0.len() && self.0.iter().all(|&(group, count)| count <= other.of(group))
    }
}

/// Places `chain`, a range of `Search::chains`, then `index`.
#[derive(Clone, Copy)]
struct Move {
    index: usize,
    chain: (usize, usize),
    after: Value,
}

/// A configuration on the way, and the moves that lead on from it.
struct Frame {
    /// Where its moves begin, those not tried yet end at the end of `Search::moves`.
    moves: usize,
    chains: usize,
    value: Value,
    /// The move under way; `None` before the first.
    current: Option<Move>,
}

struct Search<'a> {
    problem: &'a Problem,
    lookup: Lookup,
    placed: Placed,
    value: Value,
    used: Used,
    /// Per needed value: answered operations that need it and are not placed.
    needs: Vec<usize>,
    /// Per needed value: operations that would write it and are not placed.
    producers: Vec<usize>,
    /// `Add`s without an answer that are not used up; they might write anything.
    sums: usize,
    order: Vec<usize>,
    visited: HashMap<Configuration, Vec<Used>>,
    frames: Vec<Frame>,
    moves: Vec<Move>,
    chains: Vec<usize>,
    steps: u64,
    steps_max: u64,
}

/// Groups by what they are good for.
#[derive(Default)]
struct Lookup {
    /// By the value that they store, sorted.
    setters: Vec<(u64, usize)>,
    /// Those after which the key is there, if it was absent.
    makers: Vec<usize>,
    removers: Vec<usize>,
    adders: Vec<usize>,
}

impl Lookup {
    fn new(groups: &[Group]) -> Self {
        let mut lookup = Self::default();
        for (group, Group { change, .. }) in groups.iter().enumerate() {
            match *change {
                Change::Put(value) | Change::Insert(value) => {
                    lookup.setters.push((value, group));
                    lookup.makers.push(group);
                }
                Change::Update(value) => lookup.setters.push((value, group)),
                Change::Delete => lookup.removers.push(group),
                Change::Add(_) => {
                    lookup.makers.push(group);
                    lookup.adders.push(group);
                }
            }
        }
        lookup.setters.sort_unstable();
        lookup
    }

    /// Groups that store `value`.
    fn setters_of(&self, value: u64) -> impl Iterator<Item = usize> {
        let from = self.setters.partition_point(|&(other, _)| other < value);
        self.setters[from..]
            .iter()
            .take_while(move |&&(other, _)| other == value)
            .map(|&(_, group)| group)
    }
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, steps_max: u64) -> Self {
        let mut needs = vec![0; problem.counter_count()];
        let mut producers = needs.clone();
        for operation in &problem.answered {
            if let Some(counter) = operation.needs {
                needs[counter] += 1;
            }
            if let Some(counter) = operation.produces {
                producers[counter] += 1;
            }
        }
        let mut sums = 0;
        for group in &problem.groups {
            match (group.change, group.produces) {
                (Change::Add(_), _) => sums += group.members.len(),
                (_, Some(counter)) => producers[counter] += group.members.len(),
                (_, None) => {}
            }
        }
        Self {
            problem,
            lookup: Lookup::new(&problem.groups),
            placed: Placed {
                bits: vec![0; problem.answered.len().div_ceil(64)],
                first: 0,
                count: 0,
            },
            value: problem.initial,
            used: Used::default(),
            needs,
            producers,
            sums,
            order: Vec::new(),
            visited: HashMap::new(),
            frames: Vec::new(),
            moves: Vec::new(),
            chains: Vec::new(),
            steps: 0,
            steps_max,
        }
    }

    fn run(&mut self) -> Outcome {
        let is_hopeless = (0..self.needs.len()).any(|counter| self.is_lost(Some(counter)));
        if is_hopeless {
            return Outcome::Violation;
        }
        loop {
            if self.placed.count == self.problem.answered.len() {
                return Outcome::Linearizable(std::mem::take(&mut self.order));
            }
            self.steps += 1;
            self.frames.push(Frame {
                moves: self.moves.len(),
                chains: self.chains.len(),
                value: self.value,
                current: None,
            });
            self.find_moves();
            if self.steps > self.steps_max {
                // Perhaps not all moves were found: nothing may be concluded from there being none.
                return Outcome::Undecided;
            }
            if !self.advance() {
                return Outcome::Violation;
            }
        }
    }

    /// Goes to the next configuration that is not known as a dead end; false if there is none.
    fn advance(&mut self) -> bool {
        while let Some(frame) = self.frames.last_mut() {
            let undone = frame.current.take();
            let (value, moves, chains) = (frame.value, frame.moves, frame.chains);
            if let Some(undone) = undone {
                self.undo(undone, value);
            }
            if self.moves.len() == moves {
                self.chains.truncate(chains);
                self.frames.pop();
                continue;
            }
            let next = self
                .moves
                .pop()
                .expect("there are more moves than at the frame's beginning");
            self.frames
                .last_mut()
                .expect("the frame is the one looked at above")
                .current = Some(next);
            if self.apply(next) {
                return true;
            }
        }
        false
    }

    /// Takes a move; false if a value that is still needed got lost by it.
    fn apply(&mut self, step: Move) -> bool {
        let before = self.value;
        for at in step.chain.0..step.chain.1 {
            let group = self.chains[at];
            self.order
                .push(self.problem.groups[group].members[self.used.of(group)].source);
            self.used.take(group);
            match (self.problem.groups[group].change, self.problem.groups[group].produces) {
                (Change::Add(_), _) => self.sums -= 1,
                (_, Some(counter)) => self.producers[counter] -= 1,
                (_, None) => {}
            }
        }
        let operation = &self.problem.answered[step.index];
        self.order.push(operation.source);
        self.placed.insert(step.index);
        if let Some(counter) = operation.needs {
            self.needs[counter] -= 1;
        }
        if let Some(counter) = operation.produces {
            self.producers[counter] -= 1;
        }
        self.value = step.after;
        let is_chain_lost =
            (step.chain.0..step.chain.1).any(|at| self.is_lost(self.problem.groups[self.chains[at]].produces));
        !is_chain_lost && !self.is_lost(self.problem.counter_of(before))
    }

    fn undo(&mut self, step: Move, before: Value) {
        let operation = &self.problem.answered[step.index];
        self.value = before;
        if let Some(counter) = operation.produces {
            self.producers[counter] += 1;
        }
        if let Some(counter) = operation.needs {
            self.needs[counter] += 1;
        }
        self.placed.remove(step.index);
        for at in step.chain.0..step.chain.1 {
            let group = self.chains[at];
            self.used.give_back(group);
            match (self.problem.groups[group].change, self.problem.groups[group].produces) {
                (Change::Add(_), _) => self.sums += 1,
                (_, Some(counter)) => self.producers[counter] += 1,
                (_, None) => {}
            }
        }
        self.order
            .truncate(self.order.len() - 1 - (step.chain.1 - step.chain.0));
    }

    /// Whether a value that an answer needs is neither there nor ever written again.
    fn is_lost(&self, counter: Option<usize>) -> bool {
        counter.is_some_and(|counter| {
            self.needs[counter] > 0
                && self.producers[counter] == 0
                && self.sums == 0
                && self.problem.counter_of(self.value) != Some(counter)
        })
    }

    /// Pushes the moves from the present configuration, the most promising last; none if it is a known dead end.
    fn find_moves(&mut self) {
        let mut candidates: Vec<usize> = Vec::new();
        // Nothing that starts later than this may come next.
        let mut start_max = u64::MAX;
        let mut index = self.placed.first;
        while let Some(operation) = self.problem.answered.get(index)
            && operation.start_ns <= start_max
        {
            if operation.before.is_none_or(|before| self.placed.contains(before)) {
                // A put of the value that is there is no such: later it may be needed to bring the value back.
                if operation.effect == Effect::Keep && operation.need.accepts(self.value) {
                    self.moves.push(Move {
                        index,
                        chain: (0, 0),
                        after: self.value,
                    });
                    return;
                }
                candidates.push(index);
            }
            start_max = start_max.min(operation.end_ns);
            index = self.placed.next_absent(index + 1);
        }
        if !self.remember() {
            return;
        }
        self.drop_equals(&mut candidates);
        // What must come first is tried first, and what needs nobody else's help before that: the last is popped first.
        candidates.sort_by_key(|&index| std::cmp::Reverse((self.problem.answered[index].end_ns, index)));
        let (fitting, others): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .partition(|&index| self.problem.answered[index].need.accepts(self.value));
        for index in others {
            self.find_chains(index, start_max);
        }
        for index in fitting {
            let after = self.problem.answered[index].effect.apply(self.value);
            self.moves.push(Move {
                index,
                chain: (0, 0),
                after,
            });
        }
    }

    /// Of operations that need and do the same, one whose successors include those of the other can come first.
    fn drop_equals(&self, candidates: &mut Vec<usize>) {
        let all = candidates.clone();
        candidates.retain(|&index| {
            let operation = &self.problem.answered[index];
            !all.iter().any(|&other| {
                let rival = &self.problem.answered[other];
                let is_equal = (rival.need, rival.effect) == (operation.need, operation.effect);
                let is_tie = rival.end_ns == operation.end_ns
                    && !operation.is_before_another
                    && (rival.is_before_another || other < index);
                is_equal && other != index && (rival.end_ns < operation.end_ns || is_tie)
            })
        });
    }

    /// Remembers the present configuration; false if it was visited before, or one that had more to choose from.
    fn remember(&mut self) -> bool {
        let (low, head, rest) = self.placed.window();
        match self.visited.entry(Configuration {
            low,
            head,
            rest,
            value: self.value,
        }) {
            Entry::Vacant(entry) => {
                // With nothing to use up the entry alone says it, and an empty vector takes no memory.
                let has_groups = !self.problem.groups.is_empty();
                entry.insert(if has_groups {
                    vec![self.used.clone()]
                } else {
                    Vec::new()
                });
                true
            }
            Entry::Occupied(mut entry) => {
                let visits = entry.get_mut();
                self.steps += visits.len() as u64 / 16;
                if visits.is_empty() || visits.iter().any(|visit| visit.is_within(&self.used)) {
                    return false;
                }
                visits.retain(|visit| !self.used.is_within(visit));
                visits.push(self.used.clone());
                true
            }
        }
    }

    /// How many more members of a group may come next.
    fn available(&self, group: usize, start_max: u64) -> usize {
        let members = &self.problem.groups[group].members;
        let mut count = members.partition_point(|member| member.start_ns <= start_max);
        // Only a member that starts right at `start_max` can wait for an operation that is not placed.
        if count > 0
            && let Some(before) = members[count - 1].before
            && !self.placed.contains(before)
        {
            count -= 1;
        }
        count.saturating_sub(self.used.of(group))
    }

    fn is_available(&self, group: usize, start_max: u64) -> bool {
        self.available(group, start_max) > 0
    }

    /// Pushes the moves that make an operation fit which does not.
    ///
    /// Only shortest chains are of use: the rest of a longer one could come later, or not at all. So the last `Put`
    /// or `Delete` of a chain is its first operation, an `Insert` finds the key absent, an `Update` finds it there,
    /// and is first or follows what made it there.
    fn find_chains(&mut self, index: usize, start_max: u64) {
        match self.problem.answered[index].need {
            Need::Absent => self.push_removals(index, start_max),
            Need::Present => self.push_makers(index, start_max),
            Need::Exactly(target) => self.push_ways_to(index, target, start_max),
            Need::AbsentOrZero => {
                self.push_removals(index, start_max);
                self.push_ways_to(index, 0, start_max);
            }
            Need::Anything | Need::Impossible => {}
        }
    }

    fn push_move(&mut self, index: usize, chain: &[usize], value: Value) {
        let from = self.chains.len();
        self.chains.extend_from_slice(chain);
        let after = self.problem.answered[index].effect.apply(value);
        self.moves.push(Move {
            index,
            chain: (from, self.chains.len()),
            after,
        });
    }

    /// Pushes what makes a key that is absent, each with the value that it makes.
    fn push_makers(&mut self, index: usize, start_max: u64) {
        let mut makers: Vec<(usize, Change, u64)> = Vec::new();
        for &maker in &self.lookup.makers {
            if self.is_available(maker, start_max) {
                let change = self.problem.groups[maker].change;
                match change {
                    Change::Put(value) | Change::Insert(value) | Change::Add(value) => {
                        makers.push((maker, change, value));
                    }
                    Change::Update(_) | Change::Delete => unreachable!("these make no key"),
                }
            }
        }
        // If the value does not matter, one that no answer needs is best: any other can stand in for it later.
        if self.lookup.adders.is_empty() && self.problem.answered[index].effect != Effect::Keep {
            let is_idle = |&&(_, _, value): &&(usize, Change, u64)| self.problem.counter_of(Some(value)).is_none();
            let is_insert = |&(_, change, _): &&(usize, Change, u64)| matches!(change, Change::Insert(_));
            let idle: Vec<_> = makers.iter().filter(is_idle).copied().collect();
            if let Some(&best) = idle.iter().find(is_insert).or(idle.first()) {
                makers = vec![best];
            }
        }
        for &(maker, change, value) in &makers {
            // A put can stand in for an insert later, an insert not for a put.
            let is_second_choice =
                matches!(change, Change::Put(_)) && makers.iter().any(|&(_, other, _)| other == Change::Insert(value));
            if !is_second_choice {
                self.push_move(index, &[maker], Some(value));
            }
        }
    }

    /// Whether another group that is of less use for later does what a `Put` would do now.
    fn is_second_choice(&self, put: u64, start_max: u64) -> bool {
        self.lookup.setters_of(put).any(|rival| {
            let does_same = match self.problem.groups[rival].change {
                Change::Insert(_) => self.value.is_none(),
                Change::Update(_) => self.value.is_some(),
                Change::Put(_) | Change::Delete | Change::Add(_) => false,
            };
            does_same && self.is_available(rival, start_max)
        })
    }

    fn push_removals(&mut self, index: usize, start_max: u64) {
        for remover in self.lookup.removers.clone() {
            if self.is_available(remover, start_max) {
                self.push_move(index, &[remover], None);
            }
        }
    }

    /// Pushes the chains that lead to the value `target`, which is not there.
    fn push_ways_to(&mut self, index: usize, target: u64, start_max: u64) {
        let adders: Vec<usize> = self
            .lookup
            .adders
            .iter()
            .copied()
            .filter(|&adder| self.is_available(adder, start_max))
            .collect();
        let setters: Vec<usize> = if adders.is_empty() {
            self.lookup.setters_of(target).collect()
        } else {
            // Any value may be one summand.
            self.lookup.setters.iter().map(|&(_, group)| group).collect()
        };
        let remover = self
            .lookup
            .removers
            .iter()
            .copied()
            .find(|&remover| self.is_available(remover, start_max));
        // Where the sums begin: what to place before them, and the value then.
        let mut starts: Vec<(Vec<usize>, Value)> = vec![(Vec::new(), self.value)];
        if self.value.is_some() {
            starts.extend(
                self.lookup
                    .removers
                    .iter()
                    .copied()
                    .filter(|&remover| self.is_available(remover, start_max))
                    .map(|remover| (vec![remover], None)),
            );
        }
        for setter in setters {
            if !self.is_available(setter, start_max) {
                continue;
            }
            match (self.problem.groups[setter].change, self.value) {
                (Change::Put(value), _) if self.is_second_choice(value, start_max) => {}
                (Change::Put(value), _) | (Change::Insert(value), None) | (Change::Update(value), Some(_)) => {
                    starts.push((vec![setter], Some(value)));
                }
                (Change::Insert(value), Some(_)) => {
                    starts.extend(remover.map(|remover| (vec![remover, setter], Some(value))));
                }
                (Change::Update(value), None) => {
                    for &maker in &self.lookup.makers {
                        if self.is_available(maker, start_max) {
                            starts.push((vec![maker, setter], Some(value)));
                        }
                    }
                }
                (Change::Delete | Change::Add(_), _) => unreachable!("these are no setters"),
            }
        }
        for (chain, value) in starts {
            if value == Some(target) {
                self.push_move(index, &chain, value);
            } else {
                self.push_sums(index, target, start_max, &chain, value, &adders);
            }
        }
    }

    /// Pushes `chain`, which leads to `base`, with each combination of `adders` that leads from there to `target`.
    fn push_sums(&mut self, index: usize, target: u64, start_max: u64, chain: &[usize], base: Value, adders: &[usize]) {
        let rooms: Vec<usize> = adders
            .iter()
            .map(|&adder| {
                let taken = chain.iter().filter(|&&group| group == adder).count();
                self.available(adder, start_max) - taken
            })
            .collect();
        let deltas: Vec<u64> = adders
            .iter()
            .map(|&adder| match self.problem.groups[adder].change {
                Change::Add(delta) => delta,
                _ => unreachable!("an adder adds"),
            })
            .collect();
        // An odometer over the counts of the adders; its sum is kept along.
        let mut counts = vec![0; adders.len()];
        let mut sum = base.unwrap_or(0);
        while let Some(digit) = (0..counts.len()).find(|&digit| counts[digit] < rooms[digit]) {
            for lower in 0..digit {
                sum = sum.wrapping_sub(deltas[lower].wrapping_mul(counts[lower] as u64));
                counts[lower] = 0;
            }
            counts[digit] += 1;
            sum = sum.wrapping_add(deltas[digit]);
            self.steps += 1;
            if self.steps > self.steps_max {
                return;
            }
            if sum == target {
                let mut whole = chain.to_vec();
                for (&adder, &count) in adders.iter().zip(&counts) {
                    whole.extend(std::iter::repeat_n(adder, count));
                }
                self.push_move(index, &whole, Some(target));
            }
        }
    }
}
