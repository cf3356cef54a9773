//! Named locks for threads: handles, and a thread of the process that does the work.
//!
//! On the path: a call sends a command to that thread and waits for the answer. The thread is the client of the memory:
//! it queues up, answers for the holders while they are busy, and releases the locks of dropped guards. So a holder may
//! compute or sleep for as long as it likes. A call takes a few microseconds longer than in the async interface.

use core::cell::RefCell;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use farside_fabric::fork::forks;
use farside_fabric::{Endpoint, host};
use farside_kv::locks::{Guard, Holder, Mode};
use farside_kv::stack;
use farside_kv::{self as kv, LocksError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::embed::error::Error;
use crate::embed::locks::{deadline_after, open};
use crate::embed::operations::boxed;
use crate::embed::options::{Located, Options};

/// Locks with names, for any thread. Clones share one client. See [`farside::Locks`](crate::Locks) for the guarantees.
///
/// ```
/// use farside::{Options, blocking::Locks};
///
/// let locks = Locks::open(Options::anonymous(64 << 20))?;
/// let guard = locks.exclusive("accounts/17")?;
/// assert!(locks.try_exclusive("accounts/17")?.is_none());
/// assert!(guard.is_held());
/// drop(guard);
/// let readers = (locks.shared("accounts/17")?, locks.shared("accounts/17")?);
/// assert!(readers.0.token() < readers.1.token());
/// # Ok::<(), farside::Error>(())
/// ```
///
/// After the memory was unreachable for too long, the held locks are lost, and the next call opens the memory anew.
#[derive(Clone, Debug)]
pub struct Locks {
    worker: Arc<Worker>,
}

/// A lock that is held until this is released or dropped. It may be sent to another thread.
#[derive(Debug)]
#[must_use = "a guard that is dropped gives its lock back"]
pub struct LockGuard {
    worker: Arc<Worker>,
    hold: Hold,
    name: Box<[u8]>,
    mode: Mode,
}

/// A lock that the thread holds for somebody.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Hold {
    /// Names the guard, together with the lock.
    token: u64,
    number: u64,
}

/// How long somebody waits for a lock.
#[derive(Clone, Copy, Debug)]
enum Patience {
    Unlimited,
    Within(Duration),
    None,
}

type Reply<T> = mpsc::Sender<Result<T, Error>>;

/// What the thread is asked for.
enum Command {
    Open {
        reply: Reply<()>,
    },
    Take {
        name: Box<[u8]>,
        mode: Mode,
        patience: Patience,
        reply: Reply<Option<Hold>>,
    },
    Release {
        hold: Hold,
        name: Box<[u8]>,
        reply: Reply<()>,
    },
    /// A guard was dropped.
    Drop {
        hold: Hold,
    },
    IsHeld {
        hold: Hold,
        reply: Reply<bool>,
    },
    Holder {
        name: Box<[u8]>,
        reply: Reply<Option<Holder>>,
    },
}

/// The thread, as the handles see it. It ends with the last of them, when everything is given back.
#[derive(Debug)]
struct Worker {
    /// Threads are not there in a child.
    forks: u32,
    /// `None` at the end.
    commands: Option<UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
}

impl Locks {
    /// Opens the memory, and formats it if it is new. Starts the thread that does the work.
    ///
    /// # Errors
    /// If the memory cannot be reached, was not made by Farside, or has no room for locks: new memory needs 16 MiB.
    pub fn open(options: Options) -> Result<Self, Error> {
        let located = options.locate()?;
        let (commands, received) = unbounded_channel();
        let thread = std::thread::Builder::new().name("farside-locks".to_owned());
        let thread = thread.spawn(move || work(&located, received)).map_err(Error::Start)?;
        let worker = Worker {
            forks: forks(),
            commands: Some(commands),
            thread: Some(thread),
        };
        worker.ask(|reply| Command::Open { reply })?;
        Ok(Self {
            worker: Arc::new(worker),
        })
    }

    /// Waits until nobody else holds the lock.
    ///
    /// # Errors
    /// [`Error::Lock`] if the name is empty or longer than 128 bytes, if there is no room for it, or if the
    /// memory cannot be reached; likewise for all operations below.
    pub fn exclusive(&self, name: impl AsRef<[u8]>) -> Result<LockGuard, Error> {
        let taken = self.take(name.as_ref(), Mode::Exclusive, Patience::Unlimited)?;
        Ok(taken.expect("who waits for ever gets it"))
    }

    /// Waits until nobody holds the lock exclusively.
    pub fn shared(&self, name: impl AsRef<[u8]>) -> Result<LockGuard, Error> {
        let taken = self.take(name.as_ref(), Mode::Shared, Patience::Unlimited)?;
        Ok(taken.expect("who waits for ever gets it"))
    }

    /// Acquires the lock exclusively if that needs no waiting; `None` otherwise.
    pub fn try_exclusive(&self, name: impl AsRef<[u8]>) -> Result<Option<LockGuard>, Error> {
        self.take(name.as_ref(), Mode::Exclusive, Patience::None)
    }

    /// Acquires the lock shared if that needs no waiting; `None` otherwise.
    pub fn try_shared(&self, name: impl AsRef<[u8]>) -> Result<Option<LockGuard>, Error> {
        self.take(name.as_ref(), Mode::Shared, Patience::None)
    }

    /// Waits for at most `patience` until nobody else holds the lock; `None` if somebody still does.
    pub fn exclusive_within(&self, name: impl AsRef<[u8]>, patience: Duration) -> Result<Option<LockGuard>, Error> {
        self.take(name.as_ref(), Mode::Exclusive, Patience::Within(patience))
    }

    /// Waits for at most `patience` until nobody holds the lock exclusively; `None` if somebody still does.
    pub fn shared_within(&self, name: impl AsRef<[u8]>, patience: Duration) -> Result<Option<LockGuard>, Error> {
        self.take(name.as_ref(), Mode::Shared, Patience::Within(patience))
    }

    /// Who holds the lock, and since when; this may be outdated on return. Of several readers, the last to acquire it.
    pub fn holder(&self, name: impl AsRef<[u8]>) -> Result<Option<Holder>, Error> {
        let name = name.as_ref().into();
        self.worker.ask(|reply| Command::Holder { name, reply })
    }

    fn take(&self, name: &[u8], mode: Mode, patience: Patience) -> Result<Option<LockGuard>, Error> {
        let taken = self.worker.ask(|reply| Command::Take {
            name: name.into(),
            mode,
            patience,
            reply,
        })?;
        Ok(taken.map(|hold| LockGuard {
            worker: Arc::clone(&self.worker),
            hold,
            name: name.into(),
            mode,
        }))
    }
}

impl LockGuard {
    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// How it is held.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The fencing token; see [`farside::LockGuard::token`](crate::LockGuard::token).
    #[must_use]
    pub fn token(&self) -> u64 {
        self.hold.token
    }

    /// Whether the lock has been held without interruption since it was granted. Once this is false, another client may
    /// hold the lock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let hold = self.hold;
        self.worker
            .ask(|reply| Command::IsHeld { hold, reply })
            .unwrap_or(false)
    }

    /// Releases the lock, and waits until that is done; dropping the guard does not wait.
    ///
    /// # Errors
    /// [`Error::Lock`] if the lock may have been lost before, or the memory cannot be reached.
    pub fn release(self) -> Result<(), Error> {
        let (hold, name) = (self.hold, self.name.clone());
        self.worker.ask(|reply| Command::Release { hold, name, reply })
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        // One that was released is unknown by then.
        self.worker.tell(Command::Drop { hold: self.hold });
    }
}

impl Worker {
    fn tell(&self, command: Command) {
        let commands = self.commands.as_ref().expect("handles keep it open");
        // Fails if the thread has panicked, which `ask` reports.
        let _ = commands.send(command);
    }

    fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Error> {
        if self.forks != forks() {
            return Err(Error::Forked);
        }
        let (reply, answered) = mpsc::channel();
        self.tell(command(reply));
        answered.recv().expect("the thread of the locks answers everything")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.commands = None;
        let thread = ManuallyDrop::new(self.thread.take());
        if self.forks != forks() {
            return;
        }
        if let Some(thread) = ManuallyDrop::into_inner(thread)
            && thread.join().is_err()
        {
            tracing::error!("the thread of the locks has panicked");
        }
    }
}

/// What the thread does: opens the memory when somebody asks for something, and again after it was cut off.
fn work(located: &Located, mut commands: UnboundedReceiver<Command>) {
    let mut first = None;
    while let Some(command) = first.take().or_else(|| commands.blocking_recv()) {
        first = Some(command);
        let round = Round {
            located,
            commands: &mut commands,
            first: &mut first,
        };
        let ended = stack::run(located.nodes.clone(), located.secret.clone(), async |endpoint| {
            round.run(endpoint).await
        });
        if let Err(error) = ended.map_err(Error::from).and_then(|ended| ended)
            && let Some(command) = first.take()
        {
            command.refuse(error);
        }
    }
}

/// From opening the memory to being cut off from it, or to the end.
struct Round<'w> {
    located: &'w Located,
    commands: &'w mut UnboundedReceiver<Command>,
    /// What the memory is opened for; and what came when it was found out of reach.
    first: &'w mut Option<Command>,
}

impl Round<'_> {
    /// Serves until that is over.
    async fn run(self, endpoint: Endpoint) -> Result<(), Error> {
        let locks = boxed(open(endpoint, self.located)).await?;
        let desk = Rc::new(Desk {
            locks,
            held: RefCell::default(),
        });
        if let Some(first) = self.first.take() {
            desk.begin(first);
        }
        while let Some(command) = self.commands.recv().await {
            if desk.locks.has_ended() {
                *self.first = Some(command);
                return Ok(());
            }
            desk.begin(command);
        }
        desk.held.borrow_mut().clear();
        Ok(desk.locks.clone().close().await?)
    }
}

/// The locks that the thread holds for others.
struct Desk {
    locks: kv::Locks,
    held: RefCell<HashMap<Hold, Guard>>,
}

impl Desk {
    /// Does at once what takes no time, and starts a task for what does.
    fn begin(self: &Rc<Self>, command: Command) {
        // Whoever asked may have gone; then the answer is for nobody.
        match command {
            Command::Open { reply } => drop(reply.send(Ok(()))),
            Command::Drop { hold } => drop(self.held.borrow_mut().remove(&hold)),
            Command::IsHeld { hold, reply } => {
                let is_held = self.held.borrow().get(&hold).is_some_and(Guard::is_held);
                drop(reply.send(Ok(is_held)));
            }
            Command::Take {
                name,
                mode,
                patience,
                reply,
            } => {
                let desk = Rc::clone(self);
                host::spawn_local(Box::pin(async move {
                    let taken = desk.take(&name, mode, patience).await;
                    drop(reply.send(taken.map_err(Error::from)));
                }));
            }
            Command::Release { hold, name, reply } => {
                let guard = self.held.borrow_mut().remove(&hold);
                host::spawn_local(Box::pin(async move {
                    let released = match guard {
                        Some(guard) => guard.release().await,
                        None => Err(LocksError::lost(&name)),
                    };
                    drop(reply.send(released.map_err(Error::from)));
                }));
            }
            Command::Holder { name, reply } => {
                let desk = Rc::clone(self);
                host::spawn_local(Box::pin(async move {
                    let holder = desk.locks.holder(&name).await;
                    drop(reply.send(holder.map_err(Error::from)));
                }));
            }
        }
    }

    async fn take(&self, name: &[u8], mode: Mode, patience: Patience) -> Result<Option<Hold>, LocksError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let taken = match patience {
            Patience::Unlimited => self.locks.acquire(name, mode).await.map(Some),
            Patience::Within(time) => self.locks.acquire_until(name, mode, deadline_after(time)).await,
            Patience::None => self.locks.try_acquire(name, mode).await,
        };
        Ok(taken?.map(|guard| {
            let hold = Hold {
                token: guard.token(),
                number: NUMBER.fetch_add(1, Ordering::Relaxed),
            };
            self.held.borrow_mut().insert(hold, guard);
            hold
        }))
    }
}

impl Command {
    fn refuse(self, error: Error) {
        match self {
            Self::Open { reply } | Self::Release { reply, .. } => drop(reply.send(Err(error))),
            Self::Take { reply, .. } => drop(reply.send(Err(error))),
            Self::IsHeld { reply, .. } => drop(reply.send(Err(error))),
            Self::Holder { reply, .. } => drop(reply.send(Err(error))),
            Self::Drop { .. } => {}
        }
    }
}
