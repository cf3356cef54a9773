//! Names of locks, and what all of them do in plain calls.

use farside_fabric::Seat;
use farside_fabric::shm::{Fabric, Segment};

use super::*;
use crate::declock::local::Policy;
use crate::testing::{LOCK, ROSTER, Stage};

#[test]
fn every_lock_is_found_by_its_name() {
    for (kind, name) in LockKind::named() {
        assert_eq!(LockKind::by_name(name), Some(kind));
        assert_eq!(kind.name(), name);
    }
    assert_eq!(LockKind::by_name("spin"), None);
}

/// A client over mapped memory, on a machine of its own.
struct Client {
    seat: Seat,
    locker: Locker,
    cx: OpContext,
}

impl Client {
    fn new(kind: LockKind, segment: &Segment, site: fn(LockOptions) -> Site) -> Self {
        let seat = Seat::new();
        let endpoint = Fabric::new(vec![segment.clone()]).endpoint();
        let endpoint = endpoint.expect("a new client").seated(&seat);
        let site = site(LockOptions {
            roster: Some(ROSTER),
            ..LockOptions::default()
        });
        let locker = Locker::new(kind, &endpoint, &site).expect("mapped memory has every atomic");
        let cx = OpContext::new(endpoint);
        Self { seat, locker, cx }
    }

    /// Both of a free lock, the ordinary way.
    fn use_once(&mut self, mode: Mode) {
        let Self { seat, locker, cx } = self;
        let work = async {
            let grant = locker.acquire(cx, LOCK, mode).await.expect("it is free");
            locker.release(cx, grant).await.expect("it is held");
        };
        seat.block_on(seat.drive(work));
    }

    fn acquire_now(&mut self, mode: Mode) -> Option<Grant> {
        self.locker.acquire_now(&mut self.cx, LOCK, mode)
    }

    fn release_now(&mut self, grant: &Grant) -> bool {
        self.locker.release_now(&mut self.cx, grant)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.seat.clear();
    }
}

/// Those that need no other process to serve them.
fn kinds() -> impl Iterator<Item = (LockKind, &'static str)> {
    LockKind::named().filter(|(kind, _)| *kind != LockKind::Rpc)
}

fn is_plain(kind: LockKind, mode: Mode) -> bool {
    match kind {
        LockKind::Cas | LockKind::CasBackoff | LockKind::Mcs | LockKind::DecLock(_) | LockKind::ShiftLockMutex => true,
        LockKind::ShiftLock | LockKind::ShiftLockPolling => mode == Mode::Exclusive,
        _ => false,
    }
}

#[test]
fn a_free_lock_is_taken_and_given_back_in_plain_calls() {
    for (kind, name) in kinds() {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let segment = Segment::anonymous(1 << 20).expect("some memory");
            let [mut one, mut two] = [(); 2].map(|()| Client::new(kind, &segment, Site::new));
            if let LockKind::DecLock(_) = kind {
                assert!(one.acquire_now(mode).is_none(), "{name}: it has not joined the roster");
                one.use_once(mode);
                two.use_once(mode);
            }
            let grant = one.acquire_now(mode);
            assert_eq!(grant.is_some(), is_plain(kind, mode), "{name}, {mode:?}");
            let Some(grant) = grant else { continue };
            assert_eq!((grant.entry(), grant.mode()), (LOCK, mode), "{name}");
            assert!(two.acquire_now(Mode::Exclusive).is_none(), "{name}: it is held");
            assert!(one.release_now(&grant), "{name}: nobody waits");
            let grant = two.acquire_now(Mode::Exclusive).expect(name);
            assert!(two.release_now(&grant), "{name}");
        }
    }
}

/// Whoever is timed goes the way whose steps have names.
#[test]
fn plain_calls_are_not_timed() {
    for kind in [LockKind::Cas, LockKind::ShiftLock] {
        let segment = Segment::anonymous(1 << 20).expect("some memory");
        let [mut plain, mut timed] = [Site::new, Site::timed].map(|site| Client::new(kind, &segment, site));
        assert!(timed.acquire_now(Mode::Exclusive).is_none(), "{kind:?}");
        let Client { seat, locker, cx } = &mut timed;
        let grant = seat
            .block_on(locker.acquire(cx, LOCK, Mode::Exclusive))
            .expect("it is free");
        assert!(!timed.release_now(&grant), "{kind:?}");
        let Client { seat, locker, cx } = &mut timed;
        seat.block_on(locker.release(cx, grant)).expect("it is held");
        assert!(plain.acquire_now(Mode::Exclusive).is_some(), "{kind:?}");
    }
}

#[test]
fn over_a_network_nothing_is_done_in_a_plain_call() {
    for (kind, name) in kinds() {
        let stage = Stage::new();
        let machine = stage.machine();
        let locker = Locker::new(kind, &machine.endpoint, &machine.site).expect(name);
        let mut cx = machine.cx();
        for _ in 0..2 {
            assert!(locker.acquire_now(&mut cx, LOCK, Mode::Exclusive).is_none(), "{name}");
            let grant = stage.sim.block_on(locker.acquire(&mut cx, LOCK, Mode::Exclusive));
            let grant = grant.expect(name);
            assert!(!locker.release_now(&mut cx, &grant), "{name}");
            stage.sim.block_on(locker.release(&mut cx, grant)).expect(name);
        }
    }
}

/// Nobody joins or leaves a queue while it is being reset.
#[test]
fn plain_calls_keep_away_from_a_lock_that_is_being_reset() {
    let segment = Segment::anonymous(1 << 20).expect("some memory");
    let mut client = Client::new(LockKind::DecLock(Policy::TimestampTaskFair), &segment, Site::new);
    client.use_once(Mode::Exclusive);
    let mark = |client: &mut Client, by: u64| {
        let Client { seat, cx, .. } = client;
        seat.block_on(cx.fetch_add(LOCK, by)).expect("mapped memory");
    };
    mark(&mut client, 1);
    assert!(client.acquire_now(Mode::Exclusive).is_none());
    mark(&mut client, 0_u64.wrapping_sub(1));
    let grant = client.acquire_now(Mode::Exclusive).expect("it is free");
    mark(&mut client, 1);
    assert!(!client.release_now(&grant));
    mark(&mut client, 0_u64.wrapping_sub(1));
    assert!(client.release_now(&grant));
}

#[test]
fn a_plain_release_forgets_a_lock_that_nobody_uses() {
    let segment = Segment::anonymous(1 << 20).expect("some memory");
    let mut client = Client::new(LockKind::DecLock(Policy::TimestampTaskFair), &segment, Site::new);
    client.use_once(Mode::Exclusive);
    let Locker::DecLock(lock) = &client.locker else {
        unreachable!("it was chosen")
    };
    let mut known = 0;
    for number in 0..100 {
        let entry = RemoteAddr::new(LOCK.node(), (64 << 10) + number * 256);
        let cx = &mut client.cx;
        let grant = lock.acquire_now(cx, entry, Mode::Exclusive).expect("it is free");
        assert!(lock.release_now(cx, &grant));
        known += u64::from(lock.knows(entry));
    }
    assert!((32..100).contains(&known), "{known}");
}
