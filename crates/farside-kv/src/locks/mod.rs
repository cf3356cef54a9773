//! Named locks for applications: processes and machines that use the same name exclude each other.
//!
//! On the path: an application asks [`Locks`] for a lock and gets a [`Guard`]. Underneath is DecLock with its local
//! locks: there is no server, clients that wait sleep, and a lock whose holder has died becomes available after a few
//! leases. This module adds:
//!
//! - **Names** (`table.rs`): a lock in far memory for each name, made when it is first used, and reassigned to another
//!   name when it is not in use and room is short.
//! - **Fencing tokens**: each grant of a name has a larger token than all earlier ones. A holder that acts on something
//!   outside the far memory sends the token along, and the receiver refuses tokens smaller than the largest it has
//!   seen.
//! - **Keep-alive** (`lifeline.rs`): a live client keeps its locks as long as it likes. A guard knows when this is no
//!   longer certain.
//! - **Who holds it** ([`Locks::holder`]): a note beside each lock, for people.
//! - **Giving up**: futures can be dropped and waits can end early at any point. An abandoned wait stays in its queue,
//!   since others have queued up behind it: the next wait of this client for the same lock and mode takes its place, or
//!   the lock is released as soon as it is granted (`waits.rs`).
//!
//! Cost of an acquire without contention: one atomic for the lock; then, in one doorbell, one atomic for the token, one
//! READ that checks the name, and one WRITE of the note. Of a release: one atomic and one READ, together. The first use
//! of a name reads its bucket before that. Over mapped memory these are plain calls; only a name that is not yet known,
//! or not free, takes a task that waits and a future that its caller can drop.

mod error;
mod guard;
mod head;
mod lifeline;
mod place;
mod returns;
mod survey;
pub(crate) mod table;
mod waits;

use core::cell::RefCell;
use core::time::Duration;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::SystemTime;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, Deadline, Endpoint, FabricError, LocalFuture, OpContext, Slice, at_once};
use farside_lock::declock::header::Header;
use farside_lock::declock::{clock, leave, vouch};
use farside_lock::{Grant, LockError, LockKind, LockOptions, Locker, Site};

pub use error::LocksError;
pub use farside_lock::Mode;
pub use guard::Guard;
pub use survey::HeldLock;
pub use table::{LOCK_NAME_BYTES_MAX, OWNER_BYTES_MAX};

use error::readable;
use head::{NOTE_BYTES, Note};
use lifeline::Lifeline;
use returns::Returns;
use table::{HEAD_BYTES, NOTE_AT, Place, QUEUE_CAPACITY, Table};
use waits::Waits;

/// How many names a client remembers the places of.
const KNOWN_MAX: usize = 64 << 10;
/// A try waits for so long at most if somebody else was quicker after it has looked.
const TRY_NS: u64 = 2_000_000;

/// How often a client that closes looks whether all locks are given back.
const CLOSE_POLL_NS: u64 = 20_000;

/// How a client of named locks behaves.
#[derive(Clone, Debug)]
pub struct LocksOptions {
    /// The owner that [`Locks::holder`] shows to people; by default the process and its machine.
    pub owner: String,
    /// After how many nanoseconds without activity a client may be asked whether it is alive; it loses its locks if it
    /// does not answer for two more such periods. All clients of the memory must use the same.
    pub lease_ns: u64,
}

impl Default for LocksOptions {
    fn default() -> Self {
        let system = rustix::system::uname();
        let machine = system.nodename().to_string_lossy();
        Self {
            owner: format!("process {} on {machine}", std::process::id()),
            lease_ns: 1_000_000_000,
        }
    }
}

/// Who holds a lock, as far as can be told without holding it; this may be outdated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The owner that was granted it last.
    pub owner: String,
    /// When, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// How.
    pub mode: Mode,
    /// How many clients hold it or wait for it. Users of the same [`Locks`] count as one.
    pub in_queue: u64,
}

impl Holder {
    /// When it was granted.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.since_ms)
    }
}

/// A client of the named locks in a pool. Clones share one client. It belongs to one thread, which must not block: a
/// holder that blocks it for longer than the lease loses its locks.
#[derive(Debug)]
pub struct Locks {
    shared: Rc<Shared>,
}

impl Clone for Locks {
    fn clone(&self) -> Self {
        Self {
            shared: Rc::clone(&self.shared),
        }
    }
}

#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    site: Site,
    locker: Locker,
    table: Table,
    owner: String,
    lifeline: Lifeline,
    lease_ns: u64,
    waits: Waits<Guard>,
    returns: Rc<Returns>,
    /// Where names were found, which may not be true any more.
    known: RefCell<HashMap<Rc<[u8]>, Place>>,
    /// Contexts that nobody uses; each has a buffer.
    contexts: RefCell<Vec<OpContext>>,
}

impl Locks {
    /// A client of the locks in a pool that exists already. An endpoint is one client.
    ///
    /// # Errors
    /// [`LocksError::NoTable`], or an error of the fabric.
    pub fn open(endpoint: Endpoint, options: LocksOptions) -> LocalFuture<'static, Result<Self, LocksError>> {
        Box::pin(async move {
            let mut cx = OpContext::new(endpoint.clone());
            let table = Table::find(&mut cx).await?.ok_or(LocksError::NoTable)?;
            let site = Site::new(LockOptions {
                lease_ns: options.lease_ns,
                roster: Some(table.roster()),
                declock_capacity: QUEUE_CAPACITY,
                declock_notice_ns: lifeline::notice_ns(options.lease_ns),
                ..LockOptions::default()
            });
            let is_mapped = endpoint.view(table.roster(), 8).is_some();
            if !is_mapped {
                clock::follow_date(&endpoint, &site);
            }
            let kind = LockKind::by_name("declock").expect("it is registered");
            let locker = Locker::new(kind, &endpoint, &site).expect("it needs a roster, and plain atomics");
            let locks = Self {
                shared: Rc::new(Shared {
                    lifeline: Lifeline::new(options.lease_ns, is_mapped, endpoint.now_ns()),
                    endpoint: endpoint.clone(),
                    lease_ns: options.lease_ns,
                    site,
                    locker,
                    table,
                    owner: options.owner,
                    waits: Waits::default(),
                    returns: Rc::default(),
                    known: RefCell::default(),
                    contexts: RefCell::new(vec![cx]),
                }),
            };
            endpoint.spawn(keep_alive(Rc::downgrade(&locks.shared), endpoint.clone()));
            let releaser = Locker::new(kind, &endpoint, &locks.shared.site).expect("like the one before");
            endpoint.spawn(give_back(Rc::clone(&locks.shared.returns), releaser, endpoint.clone()));
            Ok(locks)
        })
    }

    /// Acquires the lock with this name.
    ///
    /// # Errors
    /// [`LocksError::Name`], [`LocksError::TableFull`], or an error of the fabric.
    pub async fn acquire(&self, name: &[u8], mode: Mode) -> Result<Guard, LocksError> {
        let taken = self.acquire_until(name, mode, Deadline::NEVER).await?;
        Ok(taken.expect("who waits for ever gets it"))
    }

    /// Acquires the lock with this name; `None` if the deadline, on the endpoint's clock, passes first.
    ///
    /// # Errors
    /// See [`Locks::acquire`].
    pub fn acquire_until<'f>(
        &'f self,
        name: &'f [u8],
        mode: Mode,
        deadline: Deadline,
    ) -> LocalFuture<'f, Result<Option<Guard>, LocksError>> {
        Box::pin(async move {
            check_name(name)?;
            match self.take_now(name, mode) {
                Some(guard) => Ok(Some(guard)),
                None => self.wait_for(name.into(), mode, deadline).await,
            }
        })
    }

    /// Takes a lock that is free, by a name whose place is known, over mapped memory, in a plain call. `None` if that
    /// cannot be done; the ordinary way says why.
    fn take_now(&self, name: &[u8], mode: Mode) -> Option<Guard> {
        let shared = &self.shared;
        let (name, place) = {
            let known = shared.known.borrow();
            let (name, place) = known.get_key_value(name)?;
            (Rc::clone(name), *place)
        };
        let mut cx = self.context();
        let grant = shared.locker.acquire_now(&mut cx, place.lock, mode);
        let moved_in = grant.map(|grant| (at_once(shared.move_in(&mut cx, place, &name, mode)), grant));
        shared.give_back_context(cx);
        match moved_in? {
            (Some(Ok(Some(token))), grant) => {
                let guard = Guard::new(self.clone(), name, grant, token);
                guard.is_held().then_some(guard)
            }
            (moved_in, grant) => {
                if let Some(Ok(None)) = moved_in {
                    shared.known.borrow_mut().remove(&name);
                }
                shared.returns.leave(grant);
                None
            }
        }
    }

    /// Queues up for a lock, as a wait that goes on when the caller gives up.
    fn wait_for(
        &self,
        name: Rc<[u8]>,
        mode: Mode,
        deadline: Deadline,
    ) -> LocalFuture<'_, Result<Option<Guard>, LocksError>> {
        Box::pin(async move {
            let (ticket, is_new) = self.shared.waits.join(&name, mode);
            if is_new {
                let (locks, ticket) = (self.clone(), ticket.share());
                self.shared.endpoint.spawn(async move {
                    let taken = locks.take(name, mode).await;
                    // A guard that nobody wants gives its lock back when it is dropped.
                    drop(locks.shared.waits.settle(&ticket, taken));
                });
            }
            let patience = async {
                match deadline {
                    Deadline::NEVER => core::future::pending().await,
                    Deadline(at_ns) => {
                        let left_ns = at_ns.saturating_sub(self.shared.endpoint.now_ns());
                        self.shared.endpoint.sleep(left_ns).await;
                    }
                }
            };
            ticket.come(patience).await.transpose()
        })
    }

    /// Acquires the lock with this name if that needs no waiting; `None` if it is held, or another client was faster.
    /// If it has been held for longer than the lease, this client queues up for it, to find out whether the holder is
    /// dead, and releases it at once if nobody wants it when it is granted.
    ///
    /// # Errors
    /// See [`Locks::acquire`].
    pub fn try_acquire<'f>(&'f self, name: &'f [u8], mode: Mode) -> LocalFuture<'f, Result<Option<Guard>, LocksError>> {
        Box::pin(async move {
            if let Some((header, note)) = self.look(name).await?
                && !header.admits(mode)
            {
                let since_ms = note.map_or(0, |note| note.since_ms);
                let held_ms = self.shared.endpoint.unix_ms().saturating_sub(since_ms);
                if held_ms.saturating_mul(1_000_000) <= self.shared.lease_ns {
                    return Ok(None);
                }
                // Only who waits finds out that a holder is dead: where everybody but tries, nobody would. The wait goes on when this
                // has returned; a later try comes for the lock.
                return self.wait_for(name.into(), mode, Deadline(0)).await;
            }
            let patience = self.shared.endpoint.deadline_in(TRY_NS);
            self.acquire_until(name, mode, patience).await
        })
    }

    /// Who holds the lock with this name; `None` if nobody does.
    ///
    /// # Errors
    /// See [`Locks::acquire`].
    pub fn holder<'f>(&'f self, name: &'f [u8]) -> LocalFuture<'f, Result<Option<Holder>, LocksError>> {
        Box::pin(async move {
            let Some((header, note)) = self.look(name).await? else {
                return Ok(None);
            };
            Ok(note.filter(|_| header.size() > 0).map(|note| Holder {
                owner: note.owner,
                since_ms: note.since_ms,
                mode: note.mode,
                in_queue: header.size(),
            }))
        })
    }

    /// How many locks the memory has room for if their names are spread evenly.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.shared.table.places()
    }

    /// Whether the client was cut off from the memory, or is about to be: its locks are lost, and it has to be opened
    /// anew.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.shared.lifeline.has_ended()
    }

    /// Waits until the locks of dropped guards are released, and leaves, so that this client is not asked any more.
    /// Without this, others take longer to find out that it is gone.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub fn close(self) -> LocalFuture<'static, Result<(), LocksError>> {
        Box::pin(async move {
            // Ends: a release waits for nobody, or fails.
            while !self.shared.returns.is_settled() {
                self.shared.endpoint.sleep(CLOSE_POLL_NS).await;
            }
            let left = leave(&self.shared.endpoint, &self.shared.site).await;
            left.map(drop).map_err(|source| self.shared.failed(b"", source))
        })
    }

    /// Finds the place of a name and takes its lock, as often as the place turns out to be another name's.
    async fn take(&self, name: Rc<[u8]>, mode: Mode) -> Result<Guard, LocksError> {
        let mut cx = self.context();
        let failed = |source| self.shared.failed(&name, source);
        // Ends: a place changes hands only when nobody waits for it.
        loop {
            if self.has_ended() {
                return Err(LocksError::Ended { name: readable(&name) });
            }
            let place = self.shared.place_of(&mut cx, &name).await?;
            let locker = &self.shared.locker;
            let grant = locker.acquire(&mut cx, place.lock, mode).await.map_err(failed)?;
            match self.shared.move_in(&mut cx, place, &name, mode).await {
                Ok(Some(token)) => {
                    let guard = Guard::new(self.clone(), Rc::clone(&name), grant, token);
                    if guard.is_held() {
                        self.shared.give_back_context(cx);
                        return Ok(guard);
                    }
                    // The client stood still on the way. If it was warned meanwhile it ends; if not, it asks anew.
                    self.release(guard.into_grant()).await.map_err(failed)?;
                    self.shared.prove().await.map_err(|error| failed(error.into()))?;
                }
                Ok(None) => {
                    self.shared.known.borrow_mut().remove(&name);
                    locker.release(&mut cx, grant).await.map_err(failed)?;
                }
                Err(error) => {
                    // If that fails as well we are cut off, and others take the lock back.
                    let _ = locker.release(&mut cx, grant).await;
                    return Err(failed(error.into()));
                }
            }
        }
    }

    /// Gives a lock back for which nobody waits, over mapped memory; returns whether that was done.
    fn release_now(&self, grant: &Grant) -> bool {
        let mut cx = self.context();
        let is_released = self.shared.locker.release_now(&mut cx, grant);
        self.shared.give_back_context(cx);
        is_released
    }

    /// Gives a lock back, whoever waits for it.
    fn release(&self, grant: Grant) -> LocalFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            let mut cx = self.context();
            let released = self.shared.locker.release(&mut cx, grant).await;
            self.shared.give_back_context(cx);
            released
        })
    }

    /// The header of a lock and the note above it; `None` if nobody has ever used the name, or not for long.
    async fn look(&self, name: &[u8]) -> Result<Option<(Header, Option<Note>)>, LocksError> {
        check_name(name)?;
        let mut cx = self.context();
        let failed = |error: FabricError| self.shared.failed(name, error.into());
        let Some((place, note)) = self.shared.find(&mut cx, name).await.map_err(failed)? else {
            return Ok(None);
        };
        let header = Header(cx.read_word(place.lock).await.map_err(failed)?);
        self.shared.give_back_context(cx);
        Ok(Some((header, note)))
    }

    fn context(&self) -> OpContext {
        let kept = self.shared.contexts.borrow_mut().pop();
        kept.unwrap_or_else(|| OpContext::new(self.shared.endpoint.clone()))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.returns.close();
    }
}

fn check_name(name: &[u8]) -> Result<(), LocksError> {
    let bytes = name.len();
    if (1..=LOCK_NAME_BYTES_MAX).contains(&bytes) {
        Ok(())
    } else {
        Err(LocksError::Name { bytes })
    }
}

/// Proves again and again that the client lives, until it ends.
async fn keep_alive(shared: Weak<Shared>, endpoint: Endpoint) {
    // Each look keeps the client for as long as it takes, and no longer.
    while let Some(shared) = shared.upgrade() {
        let proved = shared.prove().await;
        if proved.is_err() || shared.lifeline.has_ended() {
            return;
        }
        let pause_ns = shared.site.options().lease_ns / 4;
        drop(shared);
        endpoint.sleep(pause_ns).await;
    }
}

/// Releases what guards that were dropped leave behind.
async fn give_back(returns: Rc<Returns>, locker: Locker, endpoint: Endpoint) {
    let mut cx = OpContext::new(endpoint);
    while let Some(grant) = returns.next().await {
        // If it fails we are cut off, and others take the lock back.
        let _ = locker.release(&mut cx, grant).await;
        returns.settle();
    }
}

impl Shared {
    /// Proves that nobody is about to cut the client off, or finds that somebody is.
    async fn prove(&self) -> Result<(), FabricError> {
        let asked_ns = self.endpoint.now_ns();
        let deadline = self.endpoint.deadline_in(self.site.options().lease_ns);
        match vouch(&self.endpoint, &self.site, deadline).await {
            Ok(true) => self.lifeline.note(asked_ns),
            Ok(false) if is_planted("locks: a warning that is not looked at") => self.lifeline.note(asked_ns),
            Ok(false) => self.lifeline.end(),
            // Nothing is known.
            Err(FabricError::DeadlineExceeded { .. }) => {}
            Err(error) => {
                self.lifeline.end();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Under the lock of a place: writes who has it, and draws a token; `None` if the place is another name's.
    async fn move_in(
        &self,
        cx: &mut OpContext,
        place: Place,
        name: &[u8],
        mode: Mode,
    ) -> Result<Option<u64>, FabricError> {
        let note_at = HEAD_BYTES as usize;
        let note = Slice::new(note_at as u32, NOTE_BYTES as u32);
        Note::encode(
            self.endpoint.unix_ms(),
            mode,
            &self.owner,
            &mut cx.buffer_mut()[note_at..],
        );
        let mut batch = Batch::new();
        let token = batch.fetch_add(place.bucket.tokens(), 1);
        let head = Slice::first(HEAD_BYTES as u32);
        batch.read(place.head, head);
        batch.write(note, place.head.plus(NOTE_AT));
        cx.post(&mut batch).await?;
        // Names change under this lock alone. The note beside it may be torn, if readers are let in together.
        cx.validated();
        let is_ours = head::name_of(&cx.buffer()[head.range()]) == Some(name)
            || is_planted("locks: a name that is not looked at under its lock");
        Ok(is_ours.then(|| batch.result(token) + 1))
    }

    /// What a failure means for the caller; and for the client, if it was cut off.
    fn failed(&self, name: &[u8], source: LockError) -> LocksError {
        let error = LocksError::Lock {
            name: readable(name),
            source,
        };
        if error.is_cut_off() {
            self.lifeline.end();
        }
        error
    }

    fn give_back_context(&self, cx: OpContext) {
        self.contexts.borrow_mut().push(cx);
    }

    fn remember(&self, name: &Rc<[u8]>, place: Place) {
        let mut known = self.known.borrow_mut();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(Rc::clone(name), place);
    }
}

#[cfg(test)]
mod tests;
