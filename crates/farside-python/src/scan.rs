//! Walks over the keys of a store, or of a range.

use std::sync::{Arc, Mutex, PoisonError};

use farside::KeyValue;
use farside::blocking::{SharedStore, Walk};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::exception;

/// What a walk gives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Keys,
    Values,
    Items,
}

/// Keys, values or items of a store, some read at a time.
#[pyclass(frozen, module = "farside")]
pub(crate) struct Scan {
    store: Arc<SharedStore>,
    wanted: Wanted,
    place: Mutex<Place>,
}

struct Place {
    walk: Walk,
    page: std::vec::IntoIter<KeyValue>,
}

impl Scan {
    pub(crate) fn new(store: Arc<SharedStore>, walk: Walk, wanted: Wanted) -> Self {
        let page = Vec::new().into_iter();
        Self {
            store,
            wanted,
            place: Mutex::new(Place { walk, page }),
        }
    }

    fn next(&self) -> Result<Option<KeyValue>, farside::Error> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(item) = place.page.next() {
                return Ok(Some(item));
            }
            if place.walk.is_over() {
                return Ok(None);
            }
            let walk = &mut place.walk;
            let page = match self.wanted {
                Wanted::Keys => {
                    let keys = self.store.with(|session| session.next_keys(walk))?;
                    keys.into_iter().map(|key| (key, Vec::new())).collect()
                }
                Wanted::Values | Wanted::Items => self.store.with(|session| session.next_items(walk))?,
            };
            place.page = page.into_iter();
        }
    }
}

#[pymethods]
impl Scan {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some((key, value)) = py.detach(|| self.next()).map_err(|error| exception(&error))? else {
            return Ok(None);
        };
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        Ok(Some(match self.wanted {
            Wanted::Keys => bytes(&key).into_any(),
            Wanted::Values => bytes(&value).into_any(),
            Wanted::Items => (bytes(&key), bytes(&value)).into_pyobject(py)?.into_any(),
        }))
    }
}
