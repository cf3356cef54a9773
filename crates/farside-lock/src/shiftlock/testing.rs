//! What the tests of readers and writers share.

use std::rc::Rc;

use super::Attempt;
use super::word::Counts;
use crate::testing::{LOCK, Machine, Stage};

/// What a client of a machine acquires the lock with.
pub(super) fn attempt(machine: &Machine) -> Attempt {
    Attempt {
        endpoint: machine.endpoint.clone(),
        entry: LOCK,
        inbox: machine.site.inbox(machine.endpoint.id()),
        options: *machine.site.options(),
        is_mutex: false,
        is_steady: false,
        retries: Rc::default(),
        stopwatch: machine.site.stopwatch(),
    }
}

/// The counts of the lock.
pub(super) fn counts(stage: &Stage) -> Counts {
    Counts(stage.word(LOCK.plus(8)))
}
