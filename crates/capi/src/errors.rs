//! Errors become numbers, and words for who asks.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::io;

/// Why a function fails.
pub(crate) struct Failure {
    code: c_int,
    text: String,
}

pub(crate) type Answer = Result<(), Failure>;

impl Failure {
    pub(crate) fn new(code: c_int, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let by_kind = || match error.kind() {
            io::ErrorKind::InvalidInput => libc::EINVAL,
            io::ErrorKind::OutOfMemory => libc::ENOMEM,
            io::ErrorKind::WouldBlock => libc::EAGAIN,
            // More servers than there may be.
            _ => libc::ENFILE,
        };
        Self::new(error.raw_os_error().unwrap_or_else(by_kind), error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// `errno`, which is put back.
struct Errno(c_int);

impl Errno {
    fn keep() -> Self {
        // SAFETY: the calling thread's.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// What a C function returns: 0, or the number of what went wrong, of which the words are kept.
pub(crate) fn code(act: impl FnOnce() -> Answer) -> c_int {
    let _kept = Errno::keep();
    match act() {
        Ok(()) => 0,
        Err(Failure { code, text }) => {
            // A thread that ends has nobody left to ask.
            let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
            code
        }
    }
}

/// The words.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn flashlock_rcl_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
