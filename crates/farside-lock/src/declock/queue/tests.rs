//! Releases against a model that knows who is where: every waiter is granted the lock exactly when its
//! turn comes, whatever has been written of the queue so far.

use proptest::prelude::*;

use super::super::header::{Header, Index};
use super::*;

const CAPACITY: u64 = 8;

fn waiter(mode: Mode, number: u64) -> Waiter {
    Waiter {
        mode,
        time: Timestamp(number as u16),
        member: Member(number as u16 | 1 << 10),
        seat: (number % 4000) as u16,
    }
}

/// Somebody in the queue.
#[derive(Clone, Copy, Debug)]
struct Person {
    place: Index,
    waiter: Waiter,
    is_inside: bool,
    has_written: bool,
}

/// A lock as its clients drive it, one step at a time.
struct Model {
    header: Header,
    entries: [Entry; CAPACITY as usize],
    people: Vec<Person>,
    /// Releases whose reading of the queue is not finished.
    releases: Vec<Left>,
    asked: u64,
    /// Whether an entry was lost, so that the lock has to be reset.
    is_lost: bool,
}

impl Model {
    fn new(head: u64) -> Self {
        Self {
            header: Header::FREE.with_head(head),
            entries: [Entry::default(); CAPACITY as usize],
            people: Vec::new(),
            releases: Vec::new(),
            asked: 0,
            is_lost: false,
        }
    }

    fn ask(&mut self, mode: Mode) {
        if self.header.size() == CAPACITY {
            return;
        }
        self.asked += 1;
        let is_inside = self.header.admits(mode);
        self.people.push(Person {
            place: self.header.back(),
            waiter: waiter(mode, self.asked),
            is_inside,
            has_written: is_inside,
        });
        self.header = self.header.after_joining(mode);
    }

    fn write(&mut self, which: usize) {
        let waiting: Vec<usize> = (0..self.people.len())
            .filter(|&at| !self.people[at].has_written)
            .collect();
        if let Some(&at) = waiting.get(which % waiting.len().max(1)) {
            let Person { place, waiter, .. } = self.people[at];
            // Two who wait have the same entry: the head was moved on by readers who came later.
            let clashes = |other: &Person| {
                !other.is_inside && other.place != place && other.place.slot(CAPACITY) == place.slot(CAPACITY)
            };
            self.is_lost |= self.people.iter().any(clashes);
            self.entries[place.slot(CAPACITY) as usize] = Entry::of(waiter, place, CAPACITY);
            self.people[at].has_written = true;
        }
    }

    fn leave(&mut self, which: usize) {
        let inside: Vec<usize> = (0..self.people.len()).filter(|&at| self.people[at].is_inside).collect();
        let Some(&at) = inside.get(which % inside.len().max(1)) else {
            return;
        };
        let mode = self.people.remove(at).waiter.mode;
        self.releases.push(Left {
            mode,
            next: Index(self.header.head()).plus(1),
            behind: self.header.size() - 1,
            writers_behind: self.header.writers() - u64::from(mode == Mode::Exclusive),
        });
        self.header = self.header.after_leaving(mode);
    }

    /// A release reads the queue. Returns false if it is not the last time.
    fn read(&mut self, which: usize) -> bool {
        if self.releases.is_empty() {
            return true;
        }
        let at = which % self.releases.len();
        match self.releases[at].next(CAPACITY, |slot| self.entries[slot as usize]) {
            Next::Unwritten => return false,
            Next::Nobody => {}
            Next::Overwritten => {
                assert!(self.asked >= CAPACITY, "it takes as many as there are entries");
                self.is_lost = true;
            }
            Next::Grant(granted) => {
                assert!(!granted.is_empty());
                for (place, waiter) in granted {
                    let person = self.people.iter_mut().find(|person| person.waiter == waiter);
                    let person = person.expect("who is granted the lock is in the queue");
                    assert!(person.place == place && !person.is_inside, "it waits, there");
                    person.is_inside = true;
                }
            }
        }
        self.releases.swap_remove(at);
        true
    }

    fn check(&self) {
        let inside: Vec<_> = self.people.iter().filter(|person| person.is_inside).collect();
        let writers = inside
            .iter()
            .filter(|person| person.waiter.mode == Mode::Exclusive)
            .count();
        assert!(writers == 0 || inside.len() == 1, "{inside:?}");
    }

    /// Everybody writes, every release reads on; then the lock has holders if anybody wants it, and
    /// all readers ahead of the first writer are among them.
    fn settle(&mut self) {
        while self.people.iter().any(|person| !person.has_written) {
            self.write(0);
        }
        while !self.is_lost && !self.releases.is_empty() {
            assert!(self.read(0), "everybody has written");
            self.check();
        }
        if self.is_lost {
            return;
        }
        let first_writer = self
            .people
            .iter()
            .position(|person| person.waiter.mode == Mode::Exclusive);
        for (at, person) in self.people.iter().enumerate() {
            let is_due = at == 0 || first_writer.is_none_or(|writer| at < writer);
            assert_eq!(person.is_inside, is_due, "{at} of {:?}", self.people);
        }
    }
}

/// Heads of queues far from version -1, which is what resets are for.
fn heads() -> impl Strategy<Value = u64> {
    let rounds = u64::from(VERSION_NEVER);
    (0..rounds - 50, 0..1_u64 << 7, 0..CAPACITY)
        .prop_map(move |(version, turn, at)| ((turn * (rounds + 1) + version) * CAPACITY + at) % (1 << 26))
}

proptest! {
    #[test]
    fn everybody_is_granted_the_lock_in_turn(
        head in heads(),
        steps in prop::collection::vec((0_u8..8, any::<usize>()), 1..150),
    ) {
        let mut model = Model::new(head);
        for (step, which) in steps {
            match step {
                0 | 1 => model.ask(Mode::Shared),
                2 => model.ask(Mode::Exclusive),
                3 | 4 => model.write(which),
                5 => model.leave(which),
                6 => drop(model.read(which)),
                _ => model.settle(),
            }
            if model.is_lost {
                break;
            }
            model.check();
        }
        model.settle();
        while !model.is_lost && !model.people.is_empty() {
            model.leave(0);
            model.settle();
        }
        prop_assert!(model.is_lost || (model.header.size(), model.header.writers()) == (0, 0));
    }

    #[test]
    fn an_entry_is_valid_at_its_place_only(place in heads(), rounds in 0_u64..1 << 15, number in 0_u64..1 << 15) {
        let place = Index(place);
        let who = waiter(Mode::Exclusive, number);
        let entry = Entry::of(who, place, CAPACITY);
        prop_assert_eq!(entry.seen_from(place, CAPACITY), Seen::Valid(who));
        prop_assert_eq!(Entry::default().seen_from(place, CAPACITY), Seen::Obsolete);
        let later = place.plus(CAPACITY * rounds);
        let seen = entry.seen_from(later, CAPACITY);
        prop_assert_eq!(seen == Seen::Obsolete, rounds > 0);
        let before = place.plus((1 << 26) - CAPACITY * rounds);
        prop_assert_eq!(entry.seen_from(before, CAPACITY) == Seen::Newer, rounds > 0);
    }
}

#[test]
fn the_time_of_who_is_next_is_told_and_not_the_earliest() {
    let next = Index(7);
    let mut entries = [Entry::default(); CAPACITY as usize];
    for (at, time) in [(0, 300), (1, 400), (3, 100)] {
        let place = next.plus(at);
        entries[place.slot(CAPACITY) as usize] = Entry::of(waiter(Mode::Shared, time), place, CAPACITY);
    }
    let left = |behind| Left {
        mode: Mode::Exclusive,
        next,
        behind,
        writers_behind: 0,
    };
    let time = |behind, skip| left(behind).time_of_next(skip, CAPACITY, |slot| entries[slot as usize]);
    assert_eq!(time(4, 0), Some(Timestamp(300)));
    assert_eq!(time(4, 1), Some(Timestamp(400)));
    assert_eq!(time(4, 2), None, "it has not written");
    assert_eq!(time(4, 3), Some(Timestamp(100)));
    assert_eq!(time(3, 3), None, "it is not behind");
    assert_eq!(time(0, 0), None);
}
