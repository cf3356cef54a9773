//! Tasks, and the loop that runs them and the events in turn.
//!
//! On the path: a completed operation wakes its task; the loop polls every woken task, in the order
//! of waking, before it lets the next event happen. One thread; a poll takes no simulated time.
//!
//! A task is polled while the world is not borrowed, so that it can post. A [`Waker`] is needed by
//! the language, but the usual way of waking is a task's index in an operation's slot; wakers are
//! touched only by code that brings its own in between.

use core::cell::{RefCell, RefMut};
use core::future::Future;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Waker};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;

use super::operation::NONE;
use super::world::World;
use crate::mutant;

/// A task while it is not being polled.
pub(super) struct Body {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
}

enum Slot {
    Vacant,
    /// Its body is on the stack of the loop.
    Running,
    /// The future of a `block_on`, which is on the caller's stack.
    Root,
    Idle(Body),
}

struct Task {
    slot: Slot,
    /// The client that it belongs to, or `NONE`.
    client: u32,
    /// Whether it is to be polled: it is in `ready`, or in `held`.
    is_queued: bool,
    /// Its client crashed while it was being polled.
    is_doomed: bool,
    /// Its client is paused.
    is_paused: bool,
}

/// All tasks, and those that are to be polled.
#[derive(Default)]
pub(super) struct Tasks {
    slots: Vec<Task>,
    free: Vec<u32>,
    ready: VecDeque<u32>,
    /// Tasks of paused clients that were to be polled, in order.
    held: Vec<u32>,
    /// Tasks of crashed clients, to be dropped once the world is not borrowed.
    pub(super) doomed: Vec<Body>,
    /// The task being polled, and the data pointer of its waker; 0 while nothing is polled.
    current: u32,
    current_waker: usize,
    woken: Arc<Woken>,
}

/// Tasks woken through a [`Waker`], which may be called from anywhere.
#[derive(Default)]
struct Woken {
    is_some: AtomicBool,
    tasks: Mutex<Vec<u32>>,
}

struct TaskWaker {
    task: u32,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        // Poisoning: a panic between push and unlock cannot leave the list broken.
        let mut tasks = self.woken.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.push(self.task);
        self.woken.is_some.store(true, Ordering::Release);
    }
}

impl Tasks {
    fn insert(&mut self, slot: Slot, client: u32) -> u32 {
        let task = Task {
            slot,
            client,
            is_queued: false,
            is_doomed: false,
            is_paused: false,
        };
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        if index as usize == self.slots.len() {
            self.slots.push(task);
        } else {
            self.slots[index as usize] = task;
        }
        index
    }

    /// Starts a task of a client.
    pub(super) fn spawn(&mut self, future: Pin<Box<dyn Future<Output = ()>>>, client: u32, is_paused: bool) {
        let index = self.insert(Slot::Running, client);
        let waker = self.waker(index);
        let task = &mut self.slots[index as usize];
        task.slot = Slot::Idle(Body { future, waker });
        task.is_paused = is_paused;
        self.wake(index);
    }

    fn waker(&self, task: u32) -> Waker {
        let woken = Arc::clone(&self.woken);
        Waker::from(Arc::new(TaskWaker { task, woken }))
    }

    /// Queues a task to be polled. A task that has ended meanwhile is left alone by the loop; if its
    /// slot has a new owner, that one is polled once too often.
    #[inline]
    pub(super) fn wake(&mut self, task: u32) {
        let slot = &mut self.slots[task as usize];
        if !slot.is_queued {
            slot.is_queued = true;
            self.ready.push_back(task);
        }
    }

    /// The index of the task that is being polled, if `waker` is its own.
    #[inline]
    pub(super) fn current_if(&self, waker: &Waker) -> Option<u32> {
        let is_own = self.current_waker != 0 && waker.data() as usize == self.current_waker;
        is_own.then_some(self.current)
    }

    /// From now on no task of the client is polled.
    pub(super) fn pause(&mut self, client: u32) {
        for task in self.slots.iter_mut().filter(|task| task.client == client) {
            task.is_paused = true;
        }
    }

    /// The tasks of the client go on; those that were woken meanwhile are polled, in that order.
    pub(super) fn resume(&mut self, client: u32) {
        for task in self.slots.iter_mut().filter(|task| task.client == client) {
            task.is_paused = false;
        }
        let (slots, ready) = (&self.slots, &mut self.ready);
        self.held.retain(|&task| {
            let is_paused = slots[task as usize].is_paused;
            if !is_paused {
                ready.push_back(task);
            }
            is_paused
        });
    }

    #[inline]
    fn has_ready(&self) -> bool {
        !self.ready.is_empty() || self.woken.is_some.load(Ordering::Acquire)
    }

    #[inline]
    fn next_ready(&mut self) -> Option<u32> {
        if self.woken.is_some.load(Ordering::Acquire) {
            self.collect_woken();
        }
        self.ready.pop_front()
    }

    #[cold]
    fn collect_woken(&mut self) {
        let woken = Arc::clone(&self.woken);
        let mut tasks = woken.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        woken.is_some.store(false, Ordering::Release);
        for task in tasks.drain(..) {
            self.wake(task);
        }
    }

    fn remove(&mut self, index: u32) {
        self.slots[index as usize].slot = Slot::Vacant;
        self.free.push(index);
    }

    /// Takes every task of a client out, to be dropped later.
    pub(super) fn doom(&mut self, client: u32) {
        let slots = &self.slots;
        self.held.retain(|&task| slots[task as usize].client != client);
        for index in 0..self.slots.len() as u32 {
            let task = &mut self.slots[index as usize];
            if task.client != client {
                continue;
            }
            task.is_paused = false;
            match core::mem::replace(&mut task.slot, Slot::Vacant) {
                Slot::Idle(body) => {
                    self.doomed.push(body);
                    self.free.push(index);
                }
                Slot::Running => {
                    task.slot = Slot::Running;
                    task.is_doomed = true;
                }
                other => task.slot = other,
            }
        }
    }

    /// Takes every task out, to be dropped by the caller.
    pub(super) fn take_all(&mut self) -> Vec<Body> {
        let mut bodies = core::mem::take(&mut self.doomed);
        for task in &mut self.slots {
            if let Slot::Idle(body) = core::mem::replace(&mut task.slot, Slot::Vacant) {
                bodies.push(body);
            }
        }
        bodies
    }
}

/// The world behind a cell: shared by the simulation's handle and all endpoints.
pub(super) struct Shared {
    world: RefCell<World>,
}

/// Why the loop stopped.
enum Stop {
    /// The future of a `block_on` is to be polled.
    Root,
    /// Nothing is due until the limit.
    Quiet,
}

impl Shared {
    pub(super) fn new(world: World) -> Self {
        Self {
            world: RefCell::new(world),
        }
    }

    /// The world. It is never borrowed while foreign code runs.
    #[inline]
    pub(super) fn world(&self) -> RefMut<'_, World> {
        self.world.borrow_mut()
    }

    /// Runs tasks and events until `limit`, or until the future of a `block_on` is woken.
    fn run(&self, limit: u64) -> Stop {
        let mut world = self.world();
        loop {
            while let Some(index) = world.tasks.next_ready() {
                let task = &mut world.tasks.slots[index as usize];
                if task.is_paused {
                    world.tasks.held.push(index);
                    continue;
                }
                task.is_queued = false;
                match core::mem::replace(&mut task.slot, Slot::Running) {
                    Slot::Idle(body) => world = self.poll(world, index, body),
                    Slot::Root => {
                        world.tasks.slots[index as usize].slot = Slot::Root;
                        return Stop::Root;
                    }
                    // Woken after its end.
                    Slot::Vacant => world.tasks.slots[index as usize].slot = Slot::Vacant,
                    Slot::Running => unreachable!("one task is polled at a time"),
                }
            }
            // Most events wake nobody: handle them in a row.
            while !world.tasks.has_ready() {
                let mut until = limit;
                if world.stepping.is_some() && world.has_choices() {
                    if world.next_step <= world.now {
                        world = self.step(world);
                        world.next_step = world.now + world.options.step_ns;
                        continue;
                    }
                    until = limit.min(world.next_step);
                }
                let Some((time, event)) = world.queue.pop(until) else {
                    if until < limit {
                        world.queue.advance(until);
                        world.now = until;
                        continue;
                    }
                    return Stop::Quiet;
                };
                world.now = time;
                world.react(event);
                if !world.tasks.doomed.is_empty() {
                    world = self.drop_doomed(world);
                }
            }
        }
    }

    /// Polls a task once.
    #[inline]
    fn poll<'a>(&'a self, mut world: RefMut<'a, World>, index: u32, mut body: Body) -> RefMut<'a, World> {
        world.tasks.current = index;
        world.tasks.current_waker = body.waker.data() as usize;
        drop(world);
        let poll = body.future.as_mut().poll(&mut Context::from_waker(&body.waker));
        if poll.is_pending() {
            let mut world = self.world();
            world.tasks.current_waker = 0;
            let task = &mut world.tasks.slots[index as usize];
            if !task.is_doomed {
                let client = task.client;
                task.slot = Slot::Idle(body);
                if mutant::is_met() {
                    world.strike(client);
                }
                if world.tasks.doomed.is_empty() {
                    return world;
                }
                return self.drop_doomed(world);
            }
            drop(world);
        }
        // It has ended, or its client has: dropping it runs foreign code, so outside the world.
        drop(body);
        let mut world = self.world();
        world.tasks.current_waker = 0;
        world.tasks.remove(index);
        world
    }

    /// Lets the chooser pick the next step, and executes it. The chooser is foreign code: it may
    /// look at the simulation, and inject faults.
    #[cold]
    fn step<'a>(&'a self, mut world: RefMut<'a, World>) -> RefMut<'a, World> {
        let (mut chooser, candidates, steps) = world.choices();
        drop(world);
        let choice = chooser(&candidates);
        let mut world = self.world();
        let count = candidates.len();
        assert!(choice < count, "the chooser picked {choice} of {count} candidates");
        let unwanted = world.give_back(chooser);
        if unwanted.is_some() {
            drop(world);
            drop(unwanted);
            world = self.world();
        }
        world.execute_step(steps[choice]);
        if world.tasks.doomed.is_empty() {
            return world;
        }
        self.drop_doomed(world)
    }

    #[cold]
    fn drop_doomed<'a>(&'a self, mut world: RefMut<'a, World>) -> RefMut<'a, World> {
        let doomed = core::mem::take(&mut world.tasks.doomed);
        drop(world);
        drop(doomed);
        self.world()
    }

    /// Runs until nothing is due at `limit` or before; the clock is at `limit` then, unless that is
    /// the end of time.
    pub(super) fn run_until(&self, limit: u64) {
        self.assert_not_inside();
        while let Stop::Root = self.run(limit) {}
        let mut world = self.world();
        if limit != u64::MAX && limit > world.now {
            world.queue.advance(limit);
            world.now = limit;
        }
    }

    /// Runs until `future` is ready, or nothing is left that could wake it.
    pub(super) fn block_on<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut output = None;
        self.run_until_ready(pin!(async { output = Some(future.await) }));
        output
    }

    /// The loop of it is compiled once, whatever it runs.
    fn run_until_ready(&self, mut future: Pin<&mut dyn Future<Output = ()>>) {
        self.assert_not_inside();
        let (root, waker) = {
            let mut world = self.world();
            let root = world.tasks.insert(Slot::Root, NONE);
            world.tasks.wake(root);
            (root, world.tasks.waker(root))
        };
        while !matches!(self.run(u64::MAX), Stop::Quiet) {
            {
                let mut world = self.world();
                world.tasks.current = root;
                world.tasks.current_waker = waker.data() as usize;
            }
            let poll = future.as_mut().poll(&mut Context::from_waker(&waker));
            self.world().tasks.current_waker = 0;
            if poll.is_ready() {
                break;
            }
        }
        self.world().tasks.remove(root);
    }

    /// # Panics
    /// If a task tries to run the simulation that runs it.
    fn assert_not_inside(&self) {
        let inside = self.world().tasks.current_waker != 0;
        assert!(!inside, "a task awaits, it does not run the simulation it is part of");
    }
}
