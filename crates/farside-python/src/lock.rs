//! Named locks.

use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use farside::blocking::{LockGuard, SharedStore};
use farside::{Error, Holder, Mode};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{exception, of_class};
use crate::store::duration;

/// How long a wait takes no notice of signals, such as that of Ctrl-C.
const SLICE: Duration = Duration::from_millis(50);

/// A lock with a name: whoever uses the same memory and name takes turns. It is no one's until it is acquired, and may be used again.
#[pyclass(frozen, weakref, module = "farside")]
pub(crate) struct Lock {
    store: Arc<SharedStore>,
    name: Vec<u8>,
    is_shared: bool,
    timeout: Option<Duration>,
    guard: Mutex<Option<LockGuard>>,
}

impl Lock {
    pub(crate) fn new(store: Arc<SharedStore>, name: Vec<u8>, is_shared: bool, timeout: Option<Duration>) -> Self {
        Self {
            store,
            name,
            is_shared,
            timeout,
            guard: Mutex::default(),
        }
    }

    fn guard(&self) -> std::sync::MutexGuard<'_, Option<LockGuard>> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, patience: Duration) -> Result<Option<LockGuard>, Error> {
        let locks = self.store.locks()?;
        match (self.is_shared, patience.is_zero()) {
            (false, true) => locks.try_exclusive(&self.name),
            (true, true) => locks.try_shared(&self.name),
            (false, false) => locks.exclusive_within(&self.name, patience),
            (true, false) => locks.shared_within(&self.name, patience),
        }
    }

    /// Waits in slices, between which the interpreter sees signals.
    fn wait(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<bool> {
        let mut left = timeout;
        loop {
            let patience = left.map_or(SLICE, |left| left.min(SLICE));
            let taken = py.detach(|| self.take(patience)).map_err(|error| exception(&error))?;
            if taken.is_some() {
                let mut guard = self.guard();
                if guard.is_some() {
                    // Another thread was quicker, and keeps it; `taken` is given back.
                    return Err(is_held());
                }
                *guard = taken;
                return Ok(true);
            }
            if let Some(left) = &mut left {
                *left -= patience;
                if left.is_zero() {
                    return Ok(false);
                }
            }
            py.check_signals()?;
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}

fn is_held() -> PyErr {
    PyRuntimeError::new_err("this object holds the lock already: make another one for another holder")
}

#[pymethods]
impl Lock {
    /// Waits for the lock, as long as `timeout` says, which is that of the lock if it is left out; returns whether it was acquired.
    #[pyo3(signature = (blocking = true, timeout = None))]
    fn acquire(&self, py: Python<'_>, blocking: bool, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        if self.guard().is_some() {
            return Err(is_held());
        }
        let timeout = match (blocking, timeout) {
            (false, _) => Some(Duration::ZERO),
            (true, Some(timeout)) => Some(duration(timeout)?),
            (true, None) => self.timeout,
        };
        self.wait(py, timeout)
    }

    /// Gives the lock back.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let Some(guard) = self.guard().take() else {
            return Err(PyRuntimeError::new_err("the lock is not held by this object"));
        };
        let released = py.detach(|| guard.release());
        released.map_err(|error| exception(&error))
    }

    /// The fencing token of the grant: larger than that of every grant before. None if the lock is not held by this object.
    #[getter]
    fn token(&self) -> Option<u64> {
        self.guard().as_ref().map(LockGuard::token)
    }

    /// Whether the lock is held, and was all the time since it was acquired.
    #[getter]
    fn is_held(&self, py: Python<'_>) -> bool {
        py.detach(|| self.guard().as_ref().is_some_and(LockGuard::is_held))
    }

    /// The name of the lock.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.name)
    }

    /// Whether others may hold it at the same time.
    #[getter]
    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let lock = slf.get();
        match lock.acquire(slf.py(), true, None)? {
            true => Ok(slf.clone()),
            false => Err(of_class(
                "TimeoutError",
                format!(
                    "the lock `{}` was not to be had within {:?}",
                    lock.text(),
                    lock.timeout.unwrap_or_default()
                ),
            )),
        }
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.release(py)
    }

    fn __repr__(&self) -> String {
        let state = if self.guard().is_some() { "held" } else { "not held" };
        format!("<farside.Lock {:?}, {state}>", self.text())
    }
}

/// Who holds a lock, as far as somebody who looks can tell.
#[pyclass(frozen, get_all, module = "farside")]
pub(crate) struct LockHolder {
    /// Who was granted it last.
    owner: String,
    /// When, in seconds since the Unix epoch.
    since: f64,
    /// Whether others may hold it at the same time.
    is_shared: bool,
    /// How many clients hold it or wait for it.
    in_queue: u64,
}

impl From<Holder> for LockHolder {
    fn from(holder: Holder) -> Self {
        Self {
            owner: holder.owner,
            since: holder.since_ms as f64 / 1e3,
            is_shared: holder.mode == Mode::Shared,
            in_queue: holder.in_queue,
        }
    }
}

#[pymethods]
impl LockHolder {
    fn __repr__(&self) -> String {
        format!(
            "LockHolder(owner={:?}, since={}, in_queue={})",
            self.owner, self.since, self.in_queue
        )
    }
}
