//! Every lock by its name, and the enum that stands for whichever was chosen.
//!
//! On the path: names are resolved once; an operation then dispatches with one match, so that locks
//! do not multiply the code of whatever uses them.

use farside_fabric::{Capabilities, Endpoint, OpContext, RemoteAddr};

use crate::cas::CasLock;
use crate::cas_rw::CasRwLock;
use crate::declock::DecLock;
use crate::declock::header::Header;
use crate::declock::local::Policy;
use crate::drtm::Drtm;
use crate::dslr::word::Tickets;
use crate::dslr::{Dslr, Waits};
use crate::mcs::McsLock;
use crate::rma_rw::{Marks, RmaRw};
use crate::rpc::RpcLock;
use crate::shiftlock::ShiftLock;
use crate::{Grant, Lock, LockError, LockOptions, Mode, Site};

/// Which lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// [`CasLock`] that retries at once.
    Cas,
    /// [`CasLock`] with back-off.
    CasBackoff,
    /// [`CasRwLock`].
    CasRw,
    /// [`McsLock`].
    Mcs,
    /// [`Dslr`] that waits in this way between two polls.
    Dslr(Waits),
    /// [`Drtm`].
    Drtm,
    /// [`RmaRw`] that marks the lock in this way.
    RmaRw(Marks),
    /// [`RpcLock`].
    Rpc,
    /// [`DecLock`] with this policy.
    DecLock(Policy),
    /// [`ShiftLock`].
    ShiftLock,
    /// [`ShiftLock`] without shared mode.
    ShiftLockMutex,
    /// [`ShiftLock`] that polls at a steady pace.
    ShiftLockPolling,
}

/// Which grants of a lock have leases, and are lost when these expire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leases {
    /// None: a grant is valid until it is released, or its client is dead.
    None,
    /// Those of readers; their end is a time on a clock that clients share.
    Readers,
    /// All; the holder and the waiting clients each measure the lease on their own clock.
    All,
}

impl LockKind {
    /// Every lock with its name on the command line and one line about it.
    pub const ALL: [(Self, &'static str, &'static str); 10] = [
        (
            Self::Cas,
            "cas",
            "compare-and-swap on one word, tried again at once (ShiftLock, section 2.2)",
        ),
        (
            Self::CasBackoff,
            "cas-backoff",
            "the same with truncated exponential back-off (SMART)",
        ),
        (
            Self::Mcs,
            "mcs",
            "a queue in which each client hands over to the next (ShiftLock, algorithm 1)",
        ),
        (
            Self::Dslr(Waits::Turns),
            "dslr",
            "reader-writer tickets in one word, taken by fetch-and-add (SIGMOD 2018)",
        ),
        (
            Self::Dslr(Waits::Backoff),
            "dslr-plus",
            "the same with truncated exponential back-off (DecLock, section 2.3)",
        ),
        (
            Self::Drtm,
            "drtm",
            "compare-and-swap with leases for readers; clocks within 50 us (SOSP 2015)",
        ),
        (
            Self::RmaRw(Marks::Compared),
            "rma-rw",
            "a queue of writers and a counter of readers, with thresholds (HPDC 2016)",
        ),
        (
            Self::Rpc,
            "rpc",
            "a server that grants locks by messages (ShiftLock, section 4.1)",
        ),
        (
            Self::DecLock(Policy::TimestampTaskFair),
            "declock",
            "a queue in far memory, local locks, order by timestamps: TS-TF (DecLock)",
        ),
        (
            Self::ShiftLock,
            "shiftlock",
            "readers and writers, hand-over, leases (ShiftLock)",
        ),
    ];

    /// Locks of [`LockKind::ALL`] with another setting, with their names and one line about each.
    pub const VARIANTS: [(Self, &'static str, &'static str); 10] = [
        (
            Self::CasRw,
            "cas-rw",
            "cas with a count of readers beside the writer (DecLock, section 6.1)",
        ),
        (
            Self::Dslr(Waits::Nothing),
            "dslr-polling",
            "dslr that looks again at once",
        ),
        (
            Self::DecLock(Policy::Cql),
            "declock-cql",
            "declock without local locks (section 4)",
        ),
        (
            Self::DecLock(Policy::TimestampPhaseFair),
            "declock-ts-pf",
            "declock with readers and writers in turn: TS-PF (section 5)",
        ),
        (
            Self::DecLock(Policy::RemotePrefer),
            "declock-remote-prefer",
            "declock that leaves its node as soon as others wait",
        ),
        (
            Self::DecLock(Policy::LocalPrefer),
            "declock-local-prefer",
            "declock that stays on its node while somebody waits there",
        ),
        (
            Self::DecLock(Policy::LocalBound),
            "declock-local-bound",
            "the same, a limited number of times in a row",
        ),
        (
            Self::ShiftLockMutex,
            "shiftlock-mutex",
            "shiftlock without readers, as CIDER uses it (CIDER, section 4.1)",
        ),
        (
            Self::ShiftLockPolling,
            "shiftlock-polling",
            "shiftlock that looks at a steady pace, as DecLock measured it (DecLock, section 6.2)",
        ),
        (
            Self::RmaRw(Marks::Added),
            "rma-rw-polling",
            "rma-rw whose writers look before they mark it and after, as ShiftLock measured it",
        ),
    ];

    /// Other names.
    const ALIASES: [(&'static str, Self); 1] = [("declock-ts-tf", Self::DecLock(Policy::TimestampTaskFair))];

    /// Every lock and every variant with its name.
    pub fn named() -> impl Iterator<Item = (Self, &'static str)> {
        let all = Self::ALL.iter().chain(&Self::VARIANTS);
        all.map(|&(kind, name, _)| (kind, name))
    }

    /// The lock with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let aliases = Self::ALIASES.iter().map(|&(name, kind)| (kind, name));
        Self::named()
            .chain(aliases)
            .find(|(_, known)| *known == name)
            .map(|(kind, _)| kind)
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        let mut named = Self::named();
        let found = named.find(|(kind, _)| *kind == self);
        found.map(|(_, name)| name).expect("all are listed")
    }

    /// Bytes of an entry in far memory, with these settings.
    #[must_use]
    pub fn entry_bytes(self, options: &LockOptions) -> u64 {
        match self {
            Self::Cas | Self::CasBackoff => CasLock::entry_bytes(options),
            Self::CasRw => CasRwLock::entry_bytes(options),
            Self::Mcs => McsLock::entry_bytes(options),
            Self::Dslr(_) => Dslr::entry_bytes(options),
            Self::Drtm => Drtm::entry_bytes(options),
            Self::RmaRw(_) => RmaRw::entry_bytes(options),
            Self::Rpc => RpcLock::entry_bytes(options),
            Self::DecLock(_) => DecLock::entry_bytes(options),
            Self::ShiftLock | Self::ShiftLockMutex | Self::ShiftLockPolling => ShiftLock::entry_bytes(options),
        }
    }

    /// The first word of a free entry that has been used for so long that its counters are about to overflow; without
    /// counters, the word of an entry that was never used.
    #[must_use]
    pub fn worn_word(self, options: &LockOptions) -> u64 {
        match self {
            Self::Dslr(_) => Tickets::worn().0,
            Self::DecLock(_) => Header::worn(options.declock_capacity).0,
            _ => 0,
        }
    }

    /// Whether it is granted in order even while its counters overflow: a client that draws an invalid ticket of DSLR
    /// has to draw another one, and clients that wait while a DecLock is reset queue up anew.
    #[must_use]
    pub fn is_ordered_when_worn(self) -> bool {
        self.is_ordered() && !matches!(self, Self::Dslr(_) | Self::DecLock(_))
    }

    /// Whether readers share the lock.
    #[must_use]
    pub fn is_shared(self) -> bool {
        match self {
            Self::Cas | Self::CasBackoff | Self::Mcs | Self::ShiftLockMutex => false,
            Self::CasRw | Self::Dslr(_) | Self::Drtm | Self::RmaRw(_) => true,
            Self::Rpc | Self::DecLock(_) | Self::ShiftLock | Self::ShiftLockPolling => true,
        }
    }

    /// Which of its grants have leases: see [`Grant::until_ns`].
    #[must_use]
    pub fn leases(self) -> Leases {
        match self {
            Self::Drtm => Leases::Readers,
            Self::Dslr(_) | Self::ShiftLock | Self::ShiftLockMutex | Self::ShiftLockPolling => Leases::All,
            _ => Leases::None,
        }
    }

    /// Whether the lock becomes available again when its holder dies or loses its connection, given a [lock
    /// service](crate::service).
    #[must_use]
    pub fn survives_crashes(self) -> bool {
        match self {
            Self::ShiftLock | Self::ShiftLockMutex | Self::ShiftLockPolling => true,
            Self::Cas | Self::CasBackoff | Self::CasRw | Self::Mcs => false,
            Self::Drtm | Self::RmaRw(_) | Self::Rpc => false,
            Self::Dslr(_) | Self::DecLock(_) => true,
        }
    }

    /// Whether clients that want the lock exclusively are granted it in the order in which they asked.
    #[must_use]
    pub fn is_ordered(self) -> bool {
        match self {
            Self::Cas | Self::CasBackoff | Self::CasRw => false,
            Self::Drtm | Self::Rpc => false,
            Self::RmaRw(_) => true,
            // Local locks let clients of a node pass those of others by what timestamps cannot tell.
            Self::DecLock(policy) => policy == Policy::Cql,
            Self::Mcs | Self::Dslr(_) => true,
            Self::ShiftLock | Self::ShiftLockMutex | Self::ShiftLockPolling => true,
        }
    }

    /// Whether clients that want the lock in shared mode are part of the same order.
    #[must_use]
    pub fn orders_readers(self) -> bool {
        self.is_ordered() && !matches!(self, Self::ShiftLock | Self::ShiftLockPolling | Self::RmaRw(_))
    }

    /// Whether the lock asks a [lock service](crate::service): `rpc` always, others when somebody has died.
    #[must_use]
    pub fn asks_service(self) -> bool {
        self == Self::Rpc || self.is_shiftlock()
    }

    fn is_shiftlock(self) -> bool {
        matches!(self, Self::ShiftLock | Self::ShiftLockMutex | Self::ShiftLockPolling)
    }

    /// Whether a fabric has the atomics that the lock needs.
    fn check(self, has: Capabilities) -> Result<(), LockError> {
        if self.is_shiftlock() && !(has.wide_atomics && has.masked_atomics) {
            return Err(LockError::Unsupported {
                lock: self.name(),
                needs: "masked atomics of 16 bytes",
            });
        }
        Ok(())
    }
}

/// One client's side of whichever lock was chosen.
#[derive(Debug)]
pub enum Locker {
    /// `cas` or `cas-backoff`.
    Cas(CasLock),
    /// `cas-rw`.
    CasRw(CasRwLock),
    /// `dslr` or `dslr-plus`.
    Dslr(Dslr),
    /// `drtm`.
    Drtm(Drtm),
    /// `mcs`.
    Mcs(McsLock),
    /// `rma-rw`.
    RmaRw(RmaRw),
    /// `rpc`.
    Rpc(RpcLock),
    /// `declock` with whichever policy.
    DecLock(DecLock),
    /// `shiftlock` and its variants.
    ShiftLock(ShiftLock),
}

impl Locker {
    /// A client's side of a lock of this kind, at the site of its endpoint.
    ///
    /// # Errors
    /// [`LockError::Unsupported`], [`LockError::NoService`], [`LockError::NoRoster`], [`LockError::Capacity`],
    /// [`LockError::NoSeat`].
    pub fn new(kind: LockKind, endpoint: &Endpoint, site: &Site) -> Result<Self, LockError> {
        kind.check(endpoint.capabilities())?;
        let inbox = site.inbox(endpoint.id());
        Ok(match kind {
            LockKind::Cas | LockKind::CasBackoff => {
                let seat = inbox.take_seat(RemoteAddr::NULL)?;
                let lock = match kind {
                    LockKind::Cas => CasLock::new(seat),
                    _ => CasLock::with_backoff(seat),
                };
                let lock = lock.swapping_back(site.options().cas_swaps_back);
                Self::Cas(lock.timed_by(site.stopwatch()))
            }
            LockKind::CasRw => Self::CasRw(CasRwLock::new(inbox.take_seat(RemoteAddr::NULL)?)),
            LockKind::Mcs => Self::Mcs(McsLock::new(inbox)),
            LockKind::RmaRw(marks) => Self::RmaRw(RmaRw::new(inbox, marks)),
            LockKind::Dslr(waits) => {
                let options = site.options();
                let lock = Dslr::new(waits, options.lease_ns).with_turns_of(options.dslr_turn_ns);
                Self::Dslr(lock.timed_by(site.stopwatch()))
            }
            LockKind::Drtm => Self::Drtm(Drtm::new(inbox.take_seat(RemoteAddr::NULL)?, site.options().lease_ns)),
            LockKind::Rpc => Self::Rpc(RpcLock::new(inbox, site)?),
            LockKind::DecLock(policy) => Self::DecLock(DecLock::new(site.declock().clone(), inbox, policy)?),
            LockKind::ShiftLock => Self::ShiftLock(ShiftLock::new(inbox, site)),
            LockKind::ShiftLockMutex => Self::ShiftLock(ShiftLock::mutex(inbox, site)),
            LockKind::ShiftLockPolling => Self::ShiftLock(ShiftLock::polling(inbox, site)),
        })
    }

    /// Acquires a free lock, over mapped memory, in a plain call, without a future that waits or may have to outlive
    /// its caller. `None` if that is not possible, and nothing was changed; [`acquire`](Self::acquire) then waits or
    /// reports why.
    // One copy, for all who await the rest.
    #[inline(never)]
    #[must_use]
    pub fn acquire_now(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Option<Grant> {
        if !cx.endpoint().is_mapped() {
            return None;
        }
        match self {
            Self::Cas(lock) => lock.acquire_now(cx, entry, mode),
            Self::Mcs(lock) => lock.acquire_now(cx, entry, mode),
            Self::DecLock(lock) => lock.acquire_now(cx, entry, mode),
            Self::ShiftLock(lock) => lock.acquire_now(cx, entry, mode),
            _ => None,
        }
    }

    /// Releases a lock for which nobody waits, in the same way; returns whether that was done.
    #[inline(never)]
    #[must_use]
    pub fn release_now(&self, cx: &mut OpContext, grant: &Grant) -> bool {
        cx.endpoint().is_mapped()
            && match self {
                Self::Cas(lock) => lock.release_now(cx, grant),
                Self::Mcs(lock) => lock.release_now(cx, grant),
                Self::DecLock(lock) => lock.release_now(cx, grant),
                Self::ShiftLock(lock) => lock.release_now(cx, grant),
                _ => false,
            }
    }

    /// See [`Lock::acquire`].
    ///
    /// # Errors
    /// Likewise.
    #[inline]
    pub async fn acquire(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Result<Grant, LockError> {
        if let Some(grant) = self.acquire_now(cx, entry, mode) {
            return Ok(grant);
        }
        match self {
            Self::CasRw(lock) => lock.acquire(cx, entry, mode).await,
            Self::Cas(lock) => lock.acquire(cx, entry, mode).await,
            Self::Mcs(lock) => lock.acquire(cx, entry, mode).await,
            Self::RmaRw(lock) => lock.acquire(cx, entry, mode).await,
            Self::Dslr(lock) => lock.acquire(cx, entry, mode).await,
            Self::Drtm(lock) => lock.acquire(cx, entry, mode).await,
            Self::Rpc(lock) => lock.acquire(cx, entry, mode).await,
            Self::DecLock(lock) => lock.acquire(cx, entry, mode).await,
            Self::ShiftLock(lock) => lock.acquire(cx, entry, mode).await,
        }
    }

    /// See [`Lock::release`].
    ///
    /// # Errors
    /// Likewise.
    #[inline]
    pub async fn release(&self, cx: &mut OpContext, grant: Grant) -> Result<(), LockError> {
        if self.release_now(cx, &grant) {
            return Ok(());
        }
        match self {
            Self::CasRw(lock) => lock.release(cx, grant).await,
            Self::Cas(lock) => lock.release(cx, grant).await,
            Self::Mcs(lock) => lock.release(cx, grant).await,
            Self::RmaRw(lock) => lock.release(cx, grant).await,
            Self::Dslr(lock) => lock.release(cx, grant).await,
            Self::Drtm(lock) => lock.release(cx, grant).await,
            Self::Rpc(lock) => lock.release(cx, grant).await,
            Self::DecLock(lock) => lock.release(cx, grant).await,
            Self::ShiftLock(lock) => lock.release(cx, grant).await,
        }
    }
}

#[cfg(test)]
mod tests;
