//! What a function answers: a status, and a text for whoever wants to know more.

use core::cell::RefCell;
use core::ffi::{CStr, c_char};
use std::borrow::Cow;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use farside::{Error, LocksError};

/// What a function answers. Of all but FARSIDE_OK, farside_last_error() knows more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum Status {
    /// It is done.
    Ok = 0,
    /// There is no such key, no further item, no holder of the lock.
    NotFound = 1,
    /// What it depends on is not so: the key is there already, is not there, or has another value. Nothing was changed.
    NotStored = 2,
    /// The value is longer than the buffer. Its length was stored, but not its bytes.
    BufferTooSmall = 3,
    /// Others were quicker than the transaction. Nothing was changed: try it again, from its first read on.
    Conflict = 4,
    /// Time was up. An operation on a key may have taken effect; a transaction has not, and a lock was not acquired.
    Timeout = 5,
    /// Memory is full. Nothing was changed; reads go on, and deleting or overwriting keys helps.
    OutOfMemory = 6,
    /// This client was cut off from the memory: a node went away, or the process stood still for longer than its lease. The
    /// operation may have taken effect. The next one opens the memory again.
    CutOff = 7,
    /// The lock was not held to the end: this client was away for longer than its lease.
    Lost = 8,
    /// The memory could not be opened where the options say.
    Unreachable = 9,
    /// An argument makes no sense. Nothing was changed.
    InvalidArgument = 10,
    /// The handle was made before fork(), and this is the child. Open the store again.
    Forked = 11,
    /// Anything else: the memory is damaged, has no room for another client, or the library has an error of its own.
    Internal = 12,
}

/// A status that is not OK, and its text.
#[derive(Debug)]
pub(crate) struct Fault {
    status: Status,
    text: Cow<'static, CStr>,
}

impl Fault {
    pub(crate) const fn new(status: Status, text: &'static CStr) -> Self {
        Self {
            status,
            text: Cow::Borrowed(text),
        }
    }

    pub(crate) const NO_KEY: Self = Self::new(Status::NotFound, c"there is no such key");

    pub(crate) fn told(status: Status, text: String) -> Self {
        // A line, and C ends it with the first NUL.
        let text = text.replace(['\0', '\n', '\r'], " ");
        Self {
            status,
            text: Cow::Owned(CString::new(text).unwrap_or_default()),
        }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::told(Status::InvalidArgument, text.into())
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Lock(LocksError::Lost { .. }) => Status::Lost,
            Error::Lock(LocksError::TableFull { .. }) => Status::OutOfMemory,
            error if error.is_out_of_memory() => Status::OutOfMemory,
            error if error.is_cut_off() => Status::CutOff,
            error if error.is_timed_out() => Status::Timeout,
            error if error.is_invalid() => Status::InvalidArgument,
            error if error.is_unreachable() => Status::Unreachable,
            _ => Status::Internal,
        };
        Self::told(status, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"")) };
}

/// Carries a function out: whatever goes wrong is its status, a panic included, and its text is the thread's last error.
pub(crate) fn answer(function: impl FnOnce() -> Result<(), Fault>) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(function)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
        let said = said.unwrap_or_else(|| "it does not say why".to_owned());
        Err(Fault::told(
            Status::Internal,
            format!("the library has panicked: {said}"),
        ))
    });
    let Err(Fault { status, text }) = outcome else {
        return Status::Ok;
    };
    // A thread that ends has none any more.
    let _ = LAST.try_with(|last| last.replace(text));
    status
}

/// One line about the last call of this thread that did not answer FARSIDE_OK; empty if there was none. It stays until the
/// thread's next call of this library.
#[unsafe(no_mangle)]
pub extern "C" fn farside_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"this thread is ending".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        LAST.with(|last| last.borrow().to_str().expect("UTF-8").to_owned())
    }

    #[test]
    fn a_panic_is_a_status() {
        assert_eq!(answer(|| panic!("two\nlines {}", 1)), Status::Internal);
        assert_eq!(last(), "the library has panicked: two lines 1");
        assert_eq!(answer(|| Ok(())), Status::Ok);
        assert_eq!(answer(|| Err(Fault::NO_KEY)), Status::NotFound);
        assert_eq!(last(), "there is no such key");
    }

    #[test]
    fn errors_of_the_store_have_their_status() {
        let wrong = farside::Options::pool("nowhere").expect_err("no fabric");
        let fault = Fault::from(wrong);
        assert_eq!(fault.status, Status::InvalidArgument);
        assert!(fault.text.to_string_lossy().contains("shm:PATH"));
        let lost = Error::Lock(LocksError::lost(b"name"));
        assert_eq!(Fault::from(lost).status, Status::Lost);
    }
}
