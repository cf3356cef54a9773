//! Work on the structure that outlives the operation that has noticed it: so neither a deadline nor a cancelled operation
//! leaves a split half done.
//!
//! On the path: beside it. Each task is known by its name, and runs once at a time.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_fabric::{LocalFuture, OpContext, RemoteAddr};

use super::Tree;
use super::layout::Key;
use crate::error::IndexError;

/// What a task is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Name {
    /// Splits a leaf.
    Split(RemoteAddr),
    /// Merges two nodes, one of which this is.
    Merge(RemoteAddr),
    /// Puts a node into its parent.
    Complete(RemoteAddr),
    /// Takes the leaf of a key out of its parent, if it is gone.
    Clean(Key),
    /// Settles a node and gives its lock back, which has this word.
    Settle(u64),
    /// Gives up a claim, whose word this is.
    Unclaim(RemoteAddr, u64),
    /// Makes a layer for the keys that share a part.
    Layer(Key),
}

/// A task that is running.
#[derive(Default, Debug)]
pub(crate) struct Task {
    has_ended: Cell<bool>,
    /// Why it could not be done.
    error: RefCell<Option<IndexError>>,
}

impl Tree {
    /// Starts a task, unless one of that name is running.
    pub(crate) fn start<F>(&self, name: Name, work: impl FnOnce(Self) -> F) -> Rc<Task>
    where
        F: Future<Output = Result<(), IndexError>> + 'static,
    {
        if let Some(task) = self.shared.tasks.borrow().get(&name) {
            return Rc::clone(task);
        }
        self.spawn(name, Box::pin(work(self.clone())))
    }

    fn spawn(&self, name: Name, work: LocalFuture<'static, Result<(), IndexError>>) -> Rc<Task> {
        let task = Rc::new(Task::default());
        self.shared.tasks.borrow_mut().insert(name, Rc::clone(&task));
        let (tree, state) = (self.clone(), Rc::clone(&task));
        self.pool().endpoint().spawn(async move {
            if let Err(error) = work.await {
                tracing::debug!("{name:?}: {error}");
                *state.error.borrow_mut() = Some(error);
            }
            tree.shared.tasks.borrow_mut().remove(&name);
            state.has_ended.set(true);
        });
        task
    }

    /// Ends with the task, or with the caller's deadline, which its next verb reports.
    pub(crate) async fn wait_for(&self, cx: &OpContext, task: &Task) -> Result<(), IndexError> {
        const TURN_NS: u64 = 2_000;
        while !task.has_ended.get() && cx.endpoint().now_ns() < cx.deadline().0 {
            cx.endpoint().sleep(TURN_NS).await;
        }
        self.pool().check_reachable()?;
        task.error.borrow().clone().map_or(Ok(()), Err)
    }

    /// Whether this client works on the structure, or has still to give something back.
    #[must_use]
    pub fn is_restructuring(&self) -> bool {
        !self.shared.tasks.borrow().is_empty() || self.is_in_turn()
    }
}
