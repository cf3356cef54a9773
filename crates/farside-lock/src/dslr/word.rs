//! The word of DSLR: tickets taken and tickets given back, of each mode.
//!
//! A ticket remembers how many of each mode were taken before it. It is an exclusive ticket's turn when
//! that many were given back, and a shared ticket's when all exclusive ones before it were.

use farside_fabric::mutant::is_planted;

use crate::Mode;

/// How many tickets of a mode are taken before the word is started anew. Half of what a counter holds:
/// the rest is room for those who draw a ticket before they see that there are none.
pub const TICKETS_MAX: u64 = 1 << 15;

crate::bit_fields! {
    /// The lock word; all zeros are a free lock.
    pub struct Tickets {
        /// Exclusive tickets that were given back (`nX` in the paper).
        exclusive_served, with_exclusive_served: 0..16;
        /// Shared tickets that were given back (`nS`).
        shared_served, with_shared_served: 16..32;
        /// Exclusive tickets that were taken (`maxX`).
        exclusive_taken, with_exclusive_taken: 32..48;
        /// Shared tickets that were taken (`maxS`).
        shared_taken, with_shared_taken: 48..64;
    }
}

/// A place in the order of those who want the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// Which counter it was taken from.
    pub mode: Mode,
    /// Exclusive tickets that were taken before it.
    pub exclusive_ahead: u64,
    /// Shared tickets that were taken before it.
    pub shared_ahead: u64,
}

/// Whose turn it is, seen from one ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Ours.
    Now,
    /// Somebody's before us.
    Later {
        /// How many tickets have to be given back before, at most.
        ahead: u64,
    },
    /// The ticket was voided.
    Passed,
}

impl Tickets {
    /// A free lock, of which no ticket was taken.
    pub const FREE: Self = Self(0);

    /// A free lock that has a few tickets of each mode left.
    pub(crate) const fn worn() -> Self {
        const USED: u64 = TICKETS_MAX - 5;
        Self::FREE
            .with_exclusive_served(USED)
            .with_shared_served(USED)
            .with_exclusive_taken(USED)
            .with_shared_taken(USED)
    }

    /// What a fetch-and-add adds to take a ticket.
    #[inline]
    #[must_use]
    pub const fn taking(mode: Mode) -> u64 {
        match mode {
            Mode::Exclusive => Self::FREE.with_exclusive_taken(1).0,
            Mode::Shared => Self::FREE.with_shared_taken(1).0,
        }
    }

    /// What a fetch-and-add adds to give a ticket back.
    #[inline]
    #[must_use]
    pub const fn serving(mode: Mode) -> u64 {
        match mode {
            Mode::Exclusive => Self::FREE.with_exclusive_served(1).0,
            Mode::Shared => Self::FREE.with_shared_served(1).0,
        }
    }

    /// The word after somebody has taken a ticket.
    #[inline]
    #[must_use]
    pub const fn after_taking(self, mode: Mode) -> Self {
        Self(self.0.wrapping_add(Self::taking(mode)))
    }

    /// The word before somebody took the last ticket of this mode.
    #[must_use]
    pub const fn before_taking(self, mode: Mode) -> Self {
        Self(self.0.wrapping_sub(Self::taking(mode)))
    }

    /// The word after somebody has given a ticket back.
    #[must_use]
    pub const fn after_serving(self, mode: Mode) -> Self {
        Self(self.0.wrapping_add(Self::serving(mode)))
    }

    /// The ticket of whoever found this word when it took one; `None` if there are no more.
    #[inline]
    #[must_use]
    pub const fn ticket(self, mode: Mode) -> Option<Ticket> {
        if self.is_full() {
            return None;
        }
        Some(Ticket {
            mode,
            exclusive_ahead: self.exclusive_taken(),
            shared_ahead: self.shared_taken(),
        })
    }

    /// Whether all tickets of a mode were taken.
    #[inline]
    #[must_use]
    pub const fn is_full(self) -> bool {
        self.exclusive_taken() >= TICKETS_MAX || self.shared_taken() >= TICKETS_MAX
    }

    /// Whether all tickets were given back.
    #[must_use]
    pub const fn is_idle(self) -> bool {
        self.served() == self.0 >> 32
    }

    /// The counters of tickets given back: what changes as long as holders release.
    #[must_use]
    pub const fn served(self) -> u64 {
        self.0 & crate::word::low_bits(32)
    }

    /// A free lock, all of whose tickets are newer than those of this word.
    #[must_use]
    pub fn voided(self) -> Self {
        if is_planted("dslr: a void that keeps a ticket") {
            return Self(self.0 >> 32 | self.0 >> 32 << 32);
        }
        // One exclusive ticket more: a shared ticket is passed over only by an exclusive one.
        let next = self.exclusive_taken() + 1;
        if self.is_full() || next >= TICKETS_MAX {
            return Self::FREE;
        }
        Self::FREE
            .with_exclusive_taken(next)
            .with_exclusive_served(next)
            .with_shared_taken(self.shared_taken())
            .with_shared_served(self.shared_taken())
    }
}

impl Ticket {
    /// Whose turn it is by a word that was read after the ticket was taken.
    #[inline]
    #[must_use]
    pub fn turn(self, word: Tickets) -> Turn {
        let (exclusive_taken, shared_taken) = match self.mode {
            Mode::Exclusive => (self.exclusive_ahead + 1, self.shared_ahead),
            Mode::Shared => (self.exclusive_ahead, self.shared_ahead + 1),
        };
        // A word that has not even seen us take the ticket was started anew since.
        let is_anew = word.exclusive_taken() < exclusive_taken || word.shared_taken() < shared_taken;
        let Some(exclusive) = self.exclusive_ahead.checked_sub(word.exclusive_served()) else {
            return Turn::Passed;
        };
        let shared = match (self.mode, self.shared_ahead.checked_sub(word.shared_served())) {
            // Readers behind us may have released before readers ahead of us.
            (Mode::Shared, _) if exclusive == 0 => 0,
            (_, Some(shared)) => shared,
            (Mode::Shared, None) => 0,
            (Mode::Exclusive, None) => return Turn::Passed,
        };
        match exclusive + shared {
            _ if is_anew => Turn::Passed,
            0 => Turn::Now,
            _ if is_planted("dslr: readers that do not wait for a writer") && self.mode == Mode::Shared => Turn::Now,
            ahead => Turn::Later { ahead },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn modes() -> impl Strategy<Value = Mode> {
        prop_oneof![Just(Mode::Shared), Just(Mode::Exclusive)]
    }

    /// Words of locks in use: what was given back had been taken.
    fn words() -> impl Strategy<Value = Tickets> {
        (0..TICKETS_MAX, 0..TICKETS_MAX).prop_flat_map(|(exclusive, shared)| {
            (0..=exclusive, 0..=shared).prop_map(move |(exclusive_served, shared_served)| {
                Tickets::FREE
                    .with_exclusive_taken(exclusive)
                    .with_shared_taken(shared)
                    .with_exclusive_served(exclusive_served)
                    .with_shared_served(shared_served)
            })
        })
    }

    /// A word one of whose counters is full, or would be, starts anew.
    #[test]
    fn a_void_of_a_full_word_starts_anew() {
        let voided = |exclusive, shared| {
            let word = Tickets::FREE.with_exclusive_taken(exclusive).with_shared_taken(shared);
            let voided = word.voided();
            (voided != Tickets::FREE).then(|| (voided.exclusive_taken(), voided.shared_taken()))
        };
        assert_eq!(voided(0, 0), Some((1, 0)));
        assert_eq!(
            voided(TICKETS_MAX - 2, TICKETS_MAX - 1),
            Some((TICKETS_MAX - 1, TICKETS_MAX - 1))
        );
        assert_eq!(voided(TICKETS_MAX - 1, 0), None);
        assert_eq!(voided(TICKETS_MAX, 0), None);
        assert_eq!(voided(0, TICKETS_MAX), None);
        assert_eq!(voided(7, TICKETS_MAX + 3), None);
    }

    proptest! {
        #[test]
        fn a_ticket_changes_one_counter(word in words(), mode in modes()) {
            let after = word.after_taking(mode);
            prop_assert_eq!(after.served(), word.served());
            let taken = |word: Tickets| (word.exclusive_taken(), word.shared_taken());
            let expected = match mode {
                Mode::Exclusive => (word.exclusive_taken() + 1, word.shared_taken()),
                Mode::Shared => (word.exclusive_taken(), word.shared_taken() + 1),
            };
            prop_assert_eq!(taken(after), expected);
            prop_assert_eq!(after.before_taking(mode), word);
        }

        #[test]
        fn the_full_word_does_not_spill(extra in 0_u64..1 << 15, mode in modes()) {
            // As many clients as there is room for draw tickets that are none.
            let full = Tickets::FREE.with_exclusive_taken(TICKETS_MAX).with_shared_taken(TICKETS_MAX);
            let after = Tickets(full.0.wrapping_add(Tickets::taking(mode) * extra));
            prop_assert!(after.is_full() && after.ticket(mode).is_none());
            prop_assert_eq!(after.served(), 0);
        }

        /// The definition in words: clients take tickets and give them back; who is inside is who was
        /// granted and has not given back, and never is a writer inside with anybody else.
        #[test]
        fn turns_exclude(steps in prop::collection::vec((modes(), 0_usize..6), 1..200)) {
            let mut word = Tickets::FREE;
            let mut queue: Vec<Ticket> = Vec::new();
            for (mode, leave) in steps {
                queue.push(word.ticket(mode).expect("few tickets are taken"));
                word = word.after_taking(mode);
                let inside = |word| queue.iter().filter(|ticket| ticket.turn(word) == Turn::Now).copied().collect::<Vec<_>>();
                let now = inside(word);
                let writers = now.iter().filter(|ticket| ticket.mode == Mode::Exclusive).count();
                prop_assert!(!now.is_empty(), "somebody has the lock");
                prop_assert!(writers == 0 || now.len() == 1, "{now:?} at once");
                prop_assert_eq!(now[0], queue[0], "the first is inside");
                if leave < now.len() {
                    word = word.after_serving(now[leave].mode);
                    queue.retain(|ticket| *ticket != now[leave]);
                }
            }
            prop_assert_eq!(word.is_idle(), queue.is_empty());
        }

        #[test]
        fn no_ticket_outlives_a_void(word in words(), mode in modes(), later in 0_u64..20, served in 0_u64..20) {
            let ticket = word.ticket(mode).expect("the word is not full");
            let mut now = word.after_taking(mode).voided();
            prop_assert!(now.is_idle() && !now.is_full());
            prop_assert_eq!(ticket.turn(now), Turn::Passed);
            for index in 0..later {
                now = now.after_taking(if index % 3 == 0 { Mode::Exclusive } else { Mode::Shared });
            }
            for index in 0..served.min(later) {
                now = now.after_serving(if index % 3 == 0 { Mode::Exclusive } else { Mode::Shared });
            }
            // Started anew, the word may in time look like one that the ticket knows; leases are far
            // shorter than that takes.
            prop_assume!(word.exclusive_taken() + 2 < TICKETS_MAX);
            prop_assert_eq!(ticket.turn(now), Turn::Passed);
        }

        #[test]
        fn a_new_ticket_of_a_voided_lock_is_granted(word in words(), mode in modes()) {
            let free = word.voided();
            let ticket = free.ticket(mode).expect("the word is not full");
            prop_assert_eq!(ticket.turn(free.after_taking(mode)), Turn::Now);
        }
    }
}
