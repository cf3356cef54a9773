//! Farside for Python: the embedded store as an extension module, `farside._farside`.
//!
//! On the path: a call of Python comes in here and goes on to the session of its thread ([`farside::blocking::SharedStore`]). What
//! Python can say better itself (asyncio, errors, dictionary manners of a whole) is in `python/farside`.
//!
//! # The interpreter's lock
//! A call over mapped memory that takes less than giving the lock back and taking it again keeps it: GET, SET and DELETE of one key
//! with a short value. Everything else gives it back. Nobody who has it waits for somebody who needs it: no function of Python is
//! called in the middle of an operation.

mod bytes;
mod error;
mod lock;
mod scan;
mod store;
mod transaction;

use pyo3::prelude::*;

/// The module.
#[pymodule]
mod _farside {
    #[pymodule_export]
    use crate::lock::{Lock, LockHolder};
    #[pymodule_export]
    use crate::scan::Scan;
    #[pymodule_export]
    use crate::store::Store;
    #[pymodule_export]
    use crate::transaction::Transaction;

    #[pymodule_export]
    const KEY_BYTES_MAX: usize = farside::KEY_BYTES_MAX;
    #[pymodule_export]
    const VALUE_BYTES_MAX: usize = farside::VALUE_BYTES_MAX;
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
