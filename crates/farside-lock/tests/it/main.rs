//! What the crate promises: the suite for every lock, and processes that die; one program, so that it is linked once.

#![forbid(unsafe_code)]

mod conformance;
mod declock;
mod phases;
mod soak;

/// Runs a body with tasks and timers on this thread.
fn on_this_thread<T>(body: impl Future<Output = T>) -> T {
    farside_fabric::host::on_this_thread(body).expect("an event loop")
}
