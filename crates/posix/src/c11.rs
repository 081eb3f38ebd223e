//! # C11 threads: `mtx_*` and `cnd_*`
//!
//! glibc's C11 objects are pthread objects under other names (same size, same kinds). Its C11 functions call glibc's
//! internal functions, so they are interposed separately. Only the return values differ.

use core::ffi::c_int;

use libc::{EBUSY, ENOMEM, ETIMEDOUT};

const THRD_SUCCESS: c_int = 0;
const THRD_BUSY: c_int = 1;
const THRD_ERROR: c_int = 2;
const THRD_NOMEM: c_int = 3;
const THRD_TIMEDOUT: c_int = 4;

/// The `thrd_*` value for an error number.
pub fn answer(error: c_int) -> c_int {
    match error {
        0 => THRD_SUCCESS,
        EBUSY => THRD_BUSY,
        ENOMEM => THRD_NOMEM,
        ETIMEDOUT => THRD_TIMEDOUT,
        _ => THRD_ERROR,
    }
}
