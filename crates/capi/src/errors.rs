//! Errors become numbers, and words for callers that ask.

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
            // The limit of servers was reached.
            _ => libc::ENFILE,
        };
        Self::new(error.raw_os_error().unwrap_or_else(by_kind), error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The value of `errno`, which is restored on drop.
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

/// Calls `act`. Returns what the C function returns: 0, or an error number. The error's words are kept.
pub(crate) fn code(act: impl FnOnce() -> Answer) -> c_int {
    let _kept = Errno::keep();
    match act() {
        Ok(()) => 0,
        Err(Failure { code, text }) => {
            // If the thread is ending, nothing can ask for the words any more.
            let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
            code
        }
    }
}

/// The words of the last error.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn flashlock_rcl_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
