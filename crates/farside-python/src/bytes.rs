//! Keys and values as Python has them: bytes, text, or whatever lends its memory (bytearray, memoryview, arrays of numpy).
//!
//! On the path: the arguments of a call become slices here, without a copy. This is the one file of the crate with unsafe code.

use core::slice;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

/// A key or a value.
pub(crate) enum Bytes<'a> {
    /// Of an object that does not change.
    Fixed(&'a [u8]),
    /// Lent.
    Lent(PyUntypedBuffer),
}

impl<'a> Bytes<'a> {
    /// What an object holds.
    ///
    /// # Errors
    /// `TypeError` if it holds no bytes, `BufferError` if they are not in one piece.
    #[inline]
    pub(crate) fn of(object: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        Self::of_borrowed(object.as_borrowed())
    }

    /// The same, of an item of a tuple.
    // Always: a copy of what it returns would have to wait for the parts of it that are still on their way to memory.
    #[inline(always)]
    fn of_borrowed(object: Borrowed<'a, '_, PyAny>) -> PyResult<Self> {
        // What has this type itself is told by a look; for what derives from it the interpreter is asked.
        if object.is_exact_instance_of::<PyString>() {
            return text(object).map(Self::Fixed);
        }
        if let Ok(bytes) = object.extract::<&[u8]>() {
            return Ok(Self::Fixed(bytes));
        }
        match object.is_instance_of::<PyString>() {
            true => text(object).map(Self::Fixed),
            false => lent(&object).map(Self::Lent),
        }
    }

    /// What each object of a tuple holds.
    ///
    /// # Errors
    /// Likewise.
    pub(crate) fn of_each(objects: &'a Bound<'_, PyTuple>) -> PyResult<Vec<Self>> {
        let mut all = Vec::with_capacity(objects.len());
        for object in objects.iter_borrowed() {
            match object.is_exact_instance_of::<PyString>() {
                true => all.push(Self::Fixed(text(object)?)),
                false => Self::push(&mut all, object)?,
            }
        }
        Ok(all)
    }

    // Apart, so that where a text is pushed what comes of it stays in registers; see `of_borrowed`.
    #[inline(never)]
    fn push(all: &mut Vec<Self>, object: Borrowed<'a, '_, PyAny>) -> PyResult<()> {
        all.push(Self::of_borrowed(object)?);
        Ok(())
    }
}

/// The UTF-8 of a text.
///
/// # Errors
/// `UnicodeEncodeError` if it is no text that has one, `TypeError` if it is none.
#[inline(always)]
fn text<'a>(object: Borrowed<'a, '_, PyAny>) -> PyResult<&'a [u8]> {
    let mut length = 0;
    // SAFETY: the interpreter's lock is held; any object may be asked.
    let start = unsafe { pyo3::ffi::PyUnicode_AsUTF8AndSize(object.as_ptr(), &raw mut length) };
    if start.is_null() {
        return Err(PyErr::fetch(object.py()));
    }
    // SAFETY: the text keeps its UTF-8, which does not change, as long as it lives, and so long it is borrowed.
    Ok(unsafe { slice::from_raw_parts(start.cast(), length as usize) })
}

fn lent(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let Ok(buffer) = PyUntypedBuffer::get(object) else {
        let found = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "keys and values are bytes, str, or objects that lend their memory (bytearray, memoryview, numpy.ndarray), not {found}"
        )));
    };
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err(
            "the memory is not in one piece: make a copy that is, such as numpy.ascontiguousarray(array)",
        ));
    }
    Ok(buffer)
}

impl AsRef<[u8]> for Bytes<'_> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Lent(buffer) if buffer.len_bytes() == 0 => &[],
            // SAFETY: the object keeps `len_bytes` bytes at `buf_ptr` where they are until the buffer is given back, which the
            // borrow of `self` forbids, and they are in one piece, as `lent` has seen. Another thread of the program may write to
            // them while the interpreter's lock is given back, as with every function that does so (`socket.send`): that program
            // stores bytes of which some are old and some new.
            Self::Lent(buffer) => unsafe { slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) },
        }
    }
}

/// Memory of the caller, to be written.
pub(crate) struct Target {
    buffer: PyUntypedBuffer,
}

impl Target {
    /// The memory of an object.
    ///
    /// # Errors
    /// `TypeError` if it lends none, `BufferError` if that cannot be written or is not in one piece.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = lent(object)?;
        if buffer.readonly() {
            return Err(PyBufferError::new_err(
                "the memory cannot be written: use a bytearray or a numpy.ndarray",
            ));
        }
        Ok(Self { buffer })
    }

    /// How many bytes fit.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len_bytes()
    }

    /// Its bytes.
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        if self.len() == 0 {
            return &mut [];
        }
        // SAFETY: as for `Bytes`; and the object has said that it may be written to.
        unsafe { slice::from_raw_parts_mut(self.buffer.buf_ptr().cast(), self.buffer.len_bytes()) }
    }
}
