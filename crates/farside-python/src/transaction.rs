//! Transactions: keys that are read and changed as if nobody else were there.
//!
//! On the path: what has been read and will be changed is kept in a table of the thread, since it belongs to it; the object of Python
//! knows its number there. So an object that another thread gets hold of, or drops, does no harm.

use core::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside::blocking::{Begun, Interactive, SharedStore};
use farside::{Error, SetOptions, after};
use pyo3::exceptions::{PyKeyError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::bytes::Bytes;
use crate::error::{exception, of_class};
use crate::store::{duration, set_options};

static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static BEGUN: RefCell<HashMap<u64, Begun>> = RefCell::default();
}

/// A transaction of a thread, which reads and changes keys: everything it has read is still so when its changes are made, all of
/// them at one instant, or none is made.
#[pyclass(frozen, module = "farside")]
pub(crate) struct Transaction {
    store: Arc<SharedStore>,
    number: u64,
}

impl Transaction {
    pub(crate) fn begin(py: Python<'_>, store: Arc<SharedStore>) -> PyResult<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let begun = py.detach(|| {
            let begun = store.with(|session| session.begin())?;
            BEGUN.with_borrow_mut(|all| all.insert(number, begun));
            Ok(())
        });
        begun.map_err(|error| exception(&error))?;
        Ok(Self { store, number })
    }

    /// Does something with what was begun, without the interpreter's lock; `None` if it has ended, or is another thread's.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&SharedStore, &mut Begun) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let result = py.detach(|| {
            let mut begun = BEGUN.with_borrow_mut(|all| all.remove(&self.number))?;
            let result = body(&self.store, &mut begun);
            BEGUN.with_borrow_mut(|all| all.insert(self.number, begun));
            Some(result)
        });
        match result {
            Some(result) => result.map_err(|error| exception(&error)),
            None => Err(PyRuntimeError::new_err(
                "the transaction has ended, or was begun by another thread, whose it is",
            )),
        }
    }

    fn change<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut Interactive<'_>) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        self.with(py, |store, begun| {
            store.with(|session| body(&mut session.within(begun)))
        })
    }

    fn conclude(&self, py: Python<'_>, is_wanted: bool) -> PyResult<bool> {
        self.with(py, |store, begun| {
            store.with(|session| session.conclude(begun, is_wanted))
        })
    }

    fn end(&self) {
        // At the end of the thread it may be gone with everything in it.
        let _ = BEGUN.try_with(|all| all.borrow_mut().remove(&self.number));
    }

    fn read<'py>(&self, py: Python<'py>, key: &Bound<'_, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = Bytes::of(key)?;
        let key = key.as_ref();
        let value = self.change(py, |within| Ok(within.get(key)?.map(<[u8]>::to_vec)))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }
}

#[pymethods]
impl Transaction {
    /// The value of a key as this transaction has left it.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.read(py, key)?.map(Bound::into_any).or(default))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        self.read(py, key)?
            .ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = Bytes::of(key)?;
        let key = key.as_ref();
        self.change(py, |within| Ok(within.get(key)?.is_some()))
    }

    /// Stores a value, to be made so when the transaction ends.
    #[pyo3(signature = (key, value, *, ttl = None, if_absent = false, if_present = false))]
    fn set(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        if_absent: bool,
        if_present: bool,
    ) -> PyResult<bool> {
        let (key, value) = (Bytes::of(key)?, Bytes::of(value)?);
        let (key, value) = (key.as_ref(), value.as_ref());
        let options = set_options(ttl, if_absent, if_present)?;
        self.change(py, |within| Ok(within.set(key, value, options)?.is_stored))
    }

    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (Bytes::of(key)?, Bytes::of(value)?);
        let (key, value) = (key.as_ref(), value.as_ref());
        self.change(py, |within| within.set(key, value, SetOptions::default()).map(drop))
    }

    /// Removes a key; returns whether it was there.
    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = Bytes::of(key)?;
        let key = key.as_ref();
        self.change(py, |within| within.delete(key))
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.delete(py, key)? {
            true => Ok(()),
            false => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    /// Changes when a key expires; returns whether it is there.
    fn expire(&self, py: Python<'_>, key: &Bound<'_, PyAny>, ttl: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = Bytes::of(key)?;
        let key = key.as_ref();
        let expiry = after(duration(ttl)?);
        self.change(py, |within| within.expire(key, expiry))
    }

    /// Makes the changes; returns whether what was read was still so. If not, nothing was changed, and the transaction has read nothing.
    fn commit(&self, py: Python<'_>) -> PyResult<bool> {
        let is_done = self.conclude(py, true)?;
        if is_done {
            self.end();
        }
        Ok(is_done)
    }

    /// Ends it; nothing is changed.
    fn rollback(&self) {
        self.end();
    }

    /// Whether what was read was so at one instant; gives up the changes.
    fn is_consistent(&self, py: Python<'_>) -> PyResult<bool> {
        self.conclude(py, false)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        class: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if !class.is_none() {
            self.end();
            return Ok(());
        }
        let committed = self.commit(py);
        self.end();
        match committed? {
            true => Ok(()),
            false => Err(of_class(
                "ConflictError",
                "another client has changed what the transaction had read; nothing was changed: try again".to_owned(),
            )),
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.end();
    }
}
