//! Errors of the store as exceptions of Python, which `python/farside/errors.py` defines.

use farside::Error;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The exception for an error.
pub(crate) fn exception(error: &Error) -> PyErr {
    let class = if error.is_out_of_memory() {
        "OutOfMemoryError"
    } else if error.is_cut_off() {
        "CutOffError"
    } else if error.is_timed_out() {
        "TimeoutError"
    } else if error.is_invalid() {
        return PyValueError::new_err(error.to_string());
    } else if error.is_unreachable() {
        "UnreachableError"
    } else if error.is_lost() {
        "LockLostError"
    } else {
        "Error"
    };
    of_class(class, error.to_string())
}

/// An exception of this package.
pub(crate) fn of_class(class: &str, text: String) -> PyErr {
    Python::attach(|py| {
        let made = py
            .import("farside.errors")
            .and_then(|errors| errors.getattr(class)?.call1((text,)));
        match made {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        }
    })
}
