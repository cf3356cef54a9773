//! Whether a session's thread is here: the words that it shares with the keeper.
//!
//! ```text
//! AWAY  --operation starts--> HERE   --it ends--> AWAY
//! AWAY  --the keeper takes--> TAKEN  --operation starts--> HERE
//! ```
//!
//! The keeper acts for a session only between [`Presence::stand_in`] and the drop of what that returns.
//! It says so first and looks at the state then; a thread that comes back changes the state first and
//! looks whether the keeper acts then. Both in one total order, so one of them sees the other.
//!
//! Invariant: while the state is HERE and `is_stood_in` was seen false, the keeper does not touch the client.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use farside_pool::layout::Owner;

const AWAY: u8 = 0;
const HERE: u8 = 1;
const TAKEN: u8 = 2;

/// One session as its thread and the keeper see it. A cache line of its own, since the thread writes it
/// with every operation.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Presence {
    state: AtomicU8,
    /// The keeper came by and has not been noticed yet.
    is_marked: AtomicBool,
    is_stood_in: AtomicBool,
    /// The keeper has declared the client dead.
    is_given_up: AtomicBool,
    /// Who the client is in the pool: index and life.
    owner: AtomicU32,
}

/// What a thread finds when an operation starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// Nothing has happened since the last operation.
    Quiet,
    /// A tick is due.
    Marked,
    /// The keeper stood in meanwhile.
    WasTaken,
    /// The client is dead.
    GivenUp,
}

impl Presence {
    /// Of a session whose thread is here.
    pub(super) fn new(owner: Owner) -> Self {
        Self {
            state: AtomicU8::new(HERE),
            is_marked: AtomicBool::new(false),
            is_stood_in: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            owner: AtomicU32::new(u32::from(owner.client) << 16 | u32::from(owner.life)),
        }
    }

    pub(super) fn owner(&self) -> Owner {
        let word = self.owner.load(Ordering::Relaxed);
        Owner {
            client: (word >> 16) as u16,
            life: word as u16,
        }
    }

    /// The thread is here.
    #[inline]
    pub(super) fn arrive(&self) -> Arrival {
        let before = self.state.swap(HERE, Ordering::SeqCst);
        if before == AWAY && !self.is_marked.load(Ordering::Relaxed) {
            return Arrival::Quiet;
        }
        self.arrive_slowly(before)
    }

    #[cold]
    fn arrive_slowly(&self, before: u8) -> Arrival {
        self.is_marked.store(false, Ordering::Relaxed);
        // The keeper ends what it is at, which has a deadline.
        while self.is_stood_in.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        if self.is_given_up.load(Ordering::SeqCst) {
            Arrival::GivenUp
        } else if before == TAKEN {
            Arrival::WasTaken
        } else {
            // HERE: the operation before has panicked.
            Arrival::Marked
        }
    }

    /// The thread goes away. Release: whoever takes the session sees all that was done here.
    #[inline]
    pub(super) fn leave(&self) {
        self.state.store(AWAY, Ordering::Release);
    }

    /// The keeper comes by. Returns its right to act for the client, if the thread has not been here since
    /// the keeper came by before.
    pub(super) fn stand_in(&self) -> Option<StandIn<'_>> {
        if !self.is_marked.swap(true, Ordering::Relaxed) {
            return None;
        }
        let taken = self
            .state
            .compare_exchange(AWAY, TAKEN, Ordering::SeqCst, Ordering::SeqCst);
        if !matches!(taken, Ok(_) | Err(TAKEN)) || self.is_given_up.load(Ordering::SeqCst) {
            return None;
        }
        self.is_stood_in.store(true, Ordering::SeqCst);
        let stand_in = StandIn(self);
        (self.state.load(Ordering::SeqCst) == TAKEN).then_some(stand_in)
    }
}

/// The right to act for a client whose thread is away.
#[derive(Debug)]
pub(super) struct StandIn<'p>(&'p Presence);

impl StandIn<'_> {
    /// From now on the client is never used again.
    pub(super) fn give_up(&self) {
        self.0.is_given_up.store(true, Ordering::SeqCst);
    }
}

impl Drop for StandIn<'_> {
    fn drop(&mut self) {
        self.0.is_stood_in.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { client: 7, life: 9 };

    #[test]
    fn who_works_is_marked_and_not_taken() {
        let presence = Presence::new(OWNER);
        assert_eq!(presence.owner(), OWNER);
        presence.leave();
        for _ in 0..3 {
            assert!(presence.stand_in().is_none());
            assert_eq!(presence.arrive(), Arrival::Marked);
            assert!(presence.stand_in().is_none(), "the thread is here");
            assert!(presence.stand_in().is_none(), "the thread is still here");
            presence.leave();
            assert_eq!(presence.arrive(), Arrival::Marked);
            presence.leave();
            assert_eq!(presence.arrive(), Arrival::Quiet);
            presence.leave();
        }
    }

    #[test]
    fn who_is_away_for_a_tick_is_taken_until_it_comes_back() {
        let presence = Presence::new(OWNER);
        presence.leave();
        assert!(presence.stand_in().is_none());
        assert!(presence.stand_in().is_some());
        assert!(presence.stand_in().is_some());
        assert_eq!(presence.arrive(), Arrival::WasTaken);
        presence.leave();
        presence.stand_in();
        presence.stand_in().expect("away for a tick").give_up();
        assert!(presence.stand_in().is_none());
        assert_eq!(presence.arrive(), Arrival::GivenUp);
    }

    #[test]
    fn thread_and_keeper_never_act_at_once() {
        let presence = Presence::new(OWNER);
        let inside = AtomicU32::new(0);
        let enter = || assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "both are inside");
        let exit = || assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
        presence.leave();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20_000_u32 {
                    presence.arrive();
                    enter();
                    exit();
                    presence.leave();
                    if round.is_multiple_of(16) {
                        std::thread::yield_now();
                    }
                }
            });
            for _ in 0..20_000 {
                if let Some(_stand_in) = presence.stand_in() {
                    enter();
                    exit();
                }
            }
        });
    }
}
