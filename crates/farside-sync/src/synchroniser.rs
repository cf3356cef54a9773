//! A scheme as the clients of one compute node use it.
//!
//! On the path: an index has found a data pointer and wants another one in its place. A change that depends on what it
//! replaces is *published*: one compare-and-swap, in every scheme. One that does not *enters* first, before anything is
//! written, and gets a turn, or is told that another client has acted for it; with a turn it writes its item and *overwrites*.

use core::cell::{Cell, RefCell};

use farside_fabric::{Endpoint, FabricError, OpContext, RemoteAddr};
use farside_lock::cider::{Client, Outcome};
use farside_lock::{LockError, LockOptions, Site};
use farside_pool::Pin;

use crate::contention::Contention;
use crate::pessimistic::Lockers;
use crate::turn::Turn;
use crate::{CreditOptions, Parts, Pointer, Publish, Scheme, SyncOptions, cider, farside, optimistic, pessimistic};

/// A data pointer, and what belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// Where the pointer is.
    pub slot: RemoteAddr,
    /// Its lock entry; [`RemoteAddr::NULL`] if the index has none.
    pub lock: RemoteAddr,
    /// What contention for it is remembered by: the same wherever its entry moves.
    pub name: u64,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// Another item of the key.
    Update,
    /// The key goes.
    Delete,
}

/// What came of entering.
#[derive(Debug)]
pub enum Entered {
    /// It is this client's turn.
    Turn(Turn),
    /// Another client has replaced the pointer, after this one had asked: as if this one had been just before.
    Combined,
    /// The slot belongs to somebody else by now.
    Lost {
        /// What it holds.
        current: Pointer,
    },
}

/// How often writes of a compute node went which way.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Combined {
    /// Writes that took a lock, or queued up.
    pub pessimistic: u64,
    /// Those of them that met others there: who waited, or was waited for.
    pub contended: u64,
    /// Writes that went the optimistic way, and were retried as often as makes a key hot.
    pub missed: u64,
    /// Writes for which another client has acted.
    pub combined: u64,
    /// Writes that acted for others.
    pub batches: u64,
    /// How many went together in those batches, all told.
    pub members: u64,
}

impl Combined {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, |one, other| one + other)
    }

    /// What was added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.with(earlier, |one, other| one - other)
    }

    fn with(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            pessimistic: each(self.pessimistic, other.pessimistic),
            contended: each(self.contended, other.contended),
            missed: each(self.missed, other.missed),
            combined: each(self.combined, other.combined),
            batches: each(self.batches, other.batches),
            members: each(self.members, other.members),
        }
    }
}

/// A scheme as the clients of one compute node use it.
#[derive(Debug)]
pub struct Synchroniser {
    scheme: Scheme,
    site: Site,
    lockers: Lockers,
    contention: RefCell<Contention>,
    credits: CreditOptions,
    counts: Cell<Combined>,
}

impl Synchroniser {
    /// A compute node that has learned nothing yet. `endpoint` is one of the fabric that its clients are of.
    ///
    /// # Errors
    /// [`LockError::Unsupported`] if the fabric lacks what the scheme cannot do without.
    pub fn new(endpoint: &Endpoint, options: SyncOptions) -> Result<Self, LockError> {
        let site = Site::new(LockOptions {
            lease_ns: options.lease_ns,
            recovers_alone: true,
            ..LockOptions::default()
        });
        let lockers = Lockers::default();
        match options.scheme {
            Scheme::Optimistic | Scheme::Farside => {}
            Scheme::Lock(kind) => lockers.check(endpoint, kind, &site)?,
            Scheme::Cider(_) => Client::check(endpoint)?,
        }
        Ok(Self {
            scheme: options.scheme,
            site,
            lockers,
            contention: RefCell::new(Contention::new(options.credits)),
            credits: options.credits,
            counts: Cell::default(),
        })
    }

    /// Which scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// How often writes went which way.
    #[must_use]
    pub fn combined(&self) -> Combined {
        self.counts.get()
    }

    /// Bytes of what is remembered about contention.
    #[must_use]
    pub fn credit_bytes(&self) -> usize {
        self.contention.borrow().bytes()
    }

    /// Whether an update of this name would better write its item while it still looks for its slot: it will not wait.
    #[must_use]
    pub fn writes_early(&self, name: u64) -> bool {
        match self.scheme {
            Scheme::Optimistic | Scheme::Farside => true,
            Scheme::Lock(_) => false,
            Scheme::Cider(parts) => parts.switches && !self.contention.borrow().has_credit(name),
        }
    }

    /// The turn of an update that has written its item already.
    #[must_use]
    pub fn early(&self) -> Turn {
        match self.scheme {
            Scheme::Cider(_) => Turn::noted(),
            _ => Turn::free(),
        }
    }

    /// Asks for leave to replace `old`, or whatever else the slot holds for the same key by then. The pin is the operation's,
    /// from before it read where the lock entry is.
    ///
    /// # Errors
    /// What the fabric reports; nothing was changed.
    #[inline]
    pub async fn enter(
        &self,
        cx: &mut OpContext,
        target: Target,
        old: Pointer,
        intent: Intent,
        pin: &Pin,
    ) -> Result<Entered, FabricError> {
        match self.scheme {
            Scheme::Optimistic | Scheme::Farside => Ok(Entered::Turn(Turn::free())),
            Scheme::Lock(kind) => {
                self.count(|counts| counts.pessimistic += 1);
                Box::pin(pessimistic::enter(
                    cx,
                    &self.lockers,
                    (kind, &self.site),
                    target.lock,
                    pin,
                ))
                .await
            }
            Scheme::Cider(_) => Box::pin(cider::enter(self, cx, target, old, intent, pin)).await,
        }
    }

    /// Replaces `old` by `new`, or whatever else the slot holds for the same key by then, if the scheme can; and gives the
    /// turn back.
    ///
    /// # Errors
    /// What the fabric reports; the pointer may then have been replaced.
    #[inline]
    pub async fn overwrite(
        &self,
        cx: &mut OpContext,
        turn: Turn,
        target: Target,
        old: Pointer,
        new: Pointer,
    ) -> Result<Publish, FabricError> {
        match self.scheme {
            Scheme::Optimistic => optimistic::publish(cx, target.slot, old, new).await,
            Scheme::Farside => farside::overwrite(cx, &self.contention, target, old, new).await,
            Scheme::Lock(_) | Scheme::Cider(_) => Box::pin(self.overwrite_in_turn(cx, turn, target, old, new)).await,
        }
    }

    async fn overwrite_in_turn(
        &self,
        cx: &mut OpContext,
        turn: Turn,
        target: Target,
        old: Pointer,
        new: Pointer,
    ) -> Result<Publish, FabricError> {
        let before = cx.retries();
        let seen = turn.seen.filter(|seen| seen.has_identity_of(old)).unwrap_or(old);
        // On an error the turn is dropped, and nobody is told that anything was done.
        let published = optimistic::overwrite_by_turns(cx, target.slot, seen, new).await?;
        if turn.is_noted && self.parts().switches {
            let retries = (cx.retries() - before) as u32;
            self.contention.borrow_mut().note_optimistic(target.name, retries);
            self.count(|counts| counts.missed += u64::from(retries >= self.credits.hotness));
        }
        let outcome = if published.is_replaced() {
            Outcome::Replaced
        } else {
            Outcome::Lost
        };
        let Some(ended) = turn.end(cx, outcome).await else {
            return Ok(published);
        };
        self.count(|counts| counts.contended += u64::from(ended.has_company || ended.batch > 1));
        if let Scheme::Cider(parts) = self.scheme {
            if ended.batch > 1 {
                self.count(|counts| {
                    counts.batches += 1;
                    counts.members += ended.batch;
                });
            }
            let went_together = if parts.combines {
                ended.batch > 1
            } else {
                ended.has_company
            };
            cider::note(self, target, went_together);
        }
        Ok(published)
    }

    /// Replaces `old` by `new` in `slot`, and nothing but `old`.
    ///
    /// # Errors
    /// What the fabric reports; the pointer may then have been replaced.
    #[inline]
    pub async fn publish(
        &self,
        cx: &mut OpContext,
        slot: RemoteAddr,
        old: Pointer,
        new: Pointer,
    ) -> Result<Publish, FabricError> {
        optimistic::publish(cx, slot, old, new).await
    }

    /// Whether an update of this name is one swap that nobody waits for, by [`Synchroniser::swap_now`]: `regardless` of what it
    /// replaces, or of nothing else.
    #[inline]
    #[must_use]
    pub fn swaps_at_once(&self, name: u64, regardless: bool) -> bool {
        match self.scheme {
            Scheme::Optimistic => true,
            Scheme::Farside => !regardless || !self.contention.borrow().has_credit(name),
            Scheme::Lock(_) | Scheme::Cider(_) => !regardless,
        }
    }

    /// Replaces `old` by `new` in a plain call, over mapped memory, where that [is one swap](Synchroniser::swaps_at_once);
    /// returns whether it did. `None` where memory is not mapped, and nothing was done.
    ///
    /// # Errors
    /// What the fabric reports; the pointer may then have been replaced.
    #[inline]
    pub fn swap_now(
        &self,
        cx: &mut OpContext,
        target: Target,
        (old, new): (Pointer, Pointer),
        regardless: bool,
    ) -> Option<Result<bool, FabricError>> {
        let seen = match cx.compare_swap_now(target.slot, old.to_word(), new.to_word())? {
            Ok(seen) => Pointer::from_word(seen),
            Err(error) => return Some(Err(error)),
        };
        if seen == old {
            return Some(Ok(true));
        }
        cx.count_retry();
        if regardless && self.scheme == Scheme::Farside && seen.has_identity_of(old) {
            self.contention.borrow_mut().note_lost(target.name);
        }
        Some(Ok(false))
    }

    pub(crate) fn parts(&self) -> Parts {
        match self.scheme {
            Scheme::Cider(parts) => parts,
            _ => Parts {
                combines: false,
                switches: false,
            },
        }
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    pub(crate) fn contention(&self) -> &RefCell<Contention> {
        &self.contention
    }

    pub(crate) fn count(&self, add: impl FnOnce(&mut Combined)) {
        let mut counts = self.counts.get();
        add(&mut counts);
        self.counts.set(counts);
    }
}
