//! The border to C: pointers, and what they become. All unsafe blocks of the crate are here.
//!
//! A type of this file stands for a pointer that a C program has passed. The header shows it as that pointer
//! (`xtask/src/header.rs` names it), and says what has to stand there. Safe code cannot make one of a pointer of its own, so
//! what the program promises is all that these blocks rest on. Handles and places for results need no type of their own:
//! `Option<&T>`, `Option<Box<T>>` and `Option<&mut MaybeUninit<T>>` are pointers that may be NULL.

use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;

use crate::fault::{Fault, Status};

/// Bytes to read: `const void *`.
#[repr(transparent)]
pub struct In(*const c_void);

impl In {
    /// The bytes. An empty piece may be NULL.
    pub(crate) fn bytes(&self, length: usize, name: &str) -> Result<&[u8], Fault> {
        check(self.0.is_null(), length, isize::MAX as usize, name)?;
        if length == 0 {
            return Ok(&[]);
        }
        // SAFETY: the program promises that `length` bytes stand there, and that nobody changes them during the call; `self`
        // is an argument of the call, or stands in one. The length was checked.
        Ok(unsafe { core::slice::from_raw_parts(self.0.cast(), length) })
    }

    /// Whether there is nothing, not even an empty piece.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

/// A text that ends with NUL, or NULL: `const char *`.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    pub(crate) const NONE: Self = Self(core::ptr::null());

    /// The text, if there is one.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Fault> {
        if self.0.is_null() {
            return Ok(None);
        }
        // SAFETY: the program promises a NUL behind the text, and that nobody changes it during the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        let text = text
            .to_str()
            .map_err(|_| Fault::invalid(format!("`{name}` is not UTF-8")));
        text.map(Some)
    }
}

/// Memory to write to: `void *`.
#[repr(transparent)]
pub struct Out(*mut c_void);

impl Out {
    /// Copies the bytes there, if there is room for them.
    pub(crate) fn fill(&mut self, capacity: usize, bytes: &[u8]) -> Result<(), Fault> {
        if bytes.len() > capacity {
            let text = c"the value does not fit in the buffer: its length says how much room it needs";
            return Err(Fault::new(Status::BufferTooSmall, text));
        }
        check(self.0.is_null(), bytes.len(), isize::MAX as usize, "buffer")?;
        if !bytes.is_empty() {
            // SAFETY: the program promises `capacity` bytes that are its own, and there are not more than that; nobody else
            // uses them during the call.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast(), bytes.len()) };
        }
        Ok(())
    }

    /// Gives back what [`allocated`] has made.
    pub(crate) fn free(self) {
        // SAFETY: the program promises that it comes from there, or is NULL, and that it does not use it any more.
        unsafe { libc::free(self.0) };
    }
}

/// A piece of bytes.
#[repr(C)]
pub struct Slice {
    /// Where it begins. NULL if there is nothing, not even an empty piece.
    pub data: In,
    /// How many bytes.
    pub length: usize,
}

impl Slice {
    const NONE: Self = Self {
        data: In(core::ptr::null()),
        length: 0,
    };

    /// For the program to read, as long as `bytes` stays where it is.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            data: In(bytes.as_ptr().cast()),
            length: bytes.len(),
        }
    }

    /// The same, `offset` bytes behind `start`, or nothing.
    pub(crate) fn behind(start: *const c_void, place: Option<core::ops::Range<usize>>) -> Self {
        place.map_or(Self::NONE, |place| Self {
            data: In(start.cast::<u8>().wrapping_add(place.start).cast()),
            length: place.len(),
        })
    }
}

/// Many pieces of bytes: `const struct farside_slice *`.
#[repr(transparent)]
pub struct Slices(*const Slice);

impl Slices {
    /// The pieces, as slices.
    pub(crate) fn pieces(&self, count: usize, name: &str) -> Result<Vec<&[u8]>, Fault> {
        check(self.0.is_null(), count, isize::MAX as usize / size_of::<Slice>(), name)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: the program promises `count` of them, and that nobody changes them during the call. The count was checked.
        let slices: &[Slice] = unsafe { core::slice::from_raw_parts(self.0, count) };
        slices
            .iter()
            .map(|slice| slice.data.bytes(slice.length, name))
            .collect()
    }
}

/// Room for as many pieces: `struct farside_slice *`.
#[repr(transparent)]
pub struct OutSlices(*mut MaybeUninit<Slice>);

impl OutSlices {
    /// Writes them.
    pub(crate) fn fill(&mut self, slices: impl ExactSizeIterator<Item = Slice>) -> Result<(), Fault> {
        let count = slices.len();
        check(
            self.0.is_null(),
            count,
            isize::MAX as usize / size_of::<Slice>(),
            "values",
        )?;
        for (index, slice) in slices.enumerate().take(count) {
            // SAFETY: the program promises room for `count`, which nobody else uses during the call.
            unsafe { self.0.add(index).write(MaybeUninit::new(slice)) };
        }
        Ok(())
    }
}

fn check(is_null: bool, count: usize, count_max: usize, name: &str) -> Result<(), Fault> {
    if is_null && count > 0 {
        return Err(Fault::invalid(format!(
            "`{name}` is NULL, but {count} is said to be there"
        )));
    }
    if count > count_max {
        return Err(Fault::invalid(format!("`{name}`: {count} is more than there can be")));
    }
    Ok(())
}

/// A copy of the bytes in memory of the C library, which [`Out::free`] gives back.
pub(crate) fn allocated(bytes: &[u8]) -> Result<*mut c_void, Fault> {
    // SAFETY: any size will do; one byte at least, so that NULL means that there is no memory.
    let memory = unsafe { libc::malloc(bytes.len().max(1)) };
    if memory.is_null() {
        let text = c"malloc() has no memory left for a value";
        return Err(Fault::new(Status::OutOfMemory, text));
    }
    Out(memory).fill(bytes.len(), bytes)?;
    Ok(memory)
}

/// What the caller has to pass: a handle, or a place for a result.
pub(crate) fn given<T>(argument: Option<T>, name: &str) -> Result<T, Fault> {
    argument.ok_or_else(|| Fault::invalid(format!("`{name}` is NULL")))
}
