//! The embedded store for C: `libfarside_c` and `include/farside.h`, which `cargo xtask header` writes.
//!
//! On the path: a call of a C program comes in here, its pointers become slices and references (`border.rs`, where all unsafe
//! blocks are), the session of the calling thread is looked up (`threads.rs`), and `farside::blocking` carries it out.
//!
//! Invariants:
//! - No panic crosses the border: every function with a status runs inside of `fault::answer`.
//! - Handles can be shared between threads, but where the header says otherwise; sessions, which cannot, stay in the thread.
//! - Whatever was made before a fork is refused in the child, and never dropped there: the threads behind it are gone, and its
//!   clients are those of the parent.

// In the order of the header.
pub mod fault;

pub mod options;

pub mod store;

pub mod value;

pub mod many;

pub mod iterator;

pub mod transaction;

pub mod locks;

pub mod threads;

pub mod border;

/// What the header promises of handles.
const _: () = {
    const fn any_thread<T: Send + Sync>() {}
    const fn one_thread_at_a_time<T: Send>() {}
    any_thread::<store::OpenStore>();
    any_thread::<locks::NamedLocks>();
    any_thread::<locks::HeldLock>();
    // It asks which thread it is.
    any_thread::<transaction::ThreadTransaction>();
    one_thread_at_a_time::<iterator::ItemIterator>();
};
