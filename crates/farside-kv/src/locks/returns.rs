//! Locks that are given back without anybody waiting for it.
//!
//! On the path: a guard that is dropped leaves its grant here, and a task of the client releases it. Dropping needs no
//! event loop: where there is none any more the client is gone as well, and others take the lock back.

use core::cell::{Cell, RefCell};

use farside_lock::Grant;
use tokio::sync::Notify;

/// See the module.
#[derive(Default, Debug)]
pub(super) struct Returns {
    grants: RefCell<Vec<Grant>>,
    /// How many were left and are not released yet.
    open: Cell<u64>,
    is_closed: Cell<bool>,
    news: Notify,
}

impl Returns {
    /// Leaves a grant to be released.
    pub(super) fn leave(&self, grant: Grant) {
        self.grants.borrow_mut().push(grant);
        self.open.set(self.open.get() + 1);
        self.news.notify_one();
    }

    /// One of them is released.
    pub(super) fn settle(&self) {
        self.open.set(self.open.get() - 1);
    }

    /// Whether all that was left is released.
    pub(super) fn is_settled(&self) -> bool {
        self.open.get() == 0
    }

    /// Nothing more will be left.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        self.news.notify_one();
    }

    /// Waits for what is to be released; `None` when nothing is left, and nothing more will be.
    pub(super) async fn next(&self) -> Option<Grant> {
        loop {
            let next = self.grants.borrow_mut().pop();
            if next.is_some() || self.is_closed.get() {
                return next;
            }
            self.news.notified().await;
        }
    }
}
