//! # Reading the environment without libc
//!
//! The settings are read with this module, in the first lock call of a process, perhaps inside malloc. So it allocates
//! nothing, and does not use libc's `getenv`, which a program may interpose. It reads the strings where they are. A
//! value is copied byte by byte, because another thread may be emptying it meanwhile ([`Value::forget`]). Memory that
//! may change is accessed only through raw pointers and atomics, never through a Rust reference.

use core::ffi::c_char;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The longest accepted value, in bytes.
pub(crate) const LONGEST: usize = 255;

/// More arguments than the kernel passes to any program.
const MOST_ARGUMENTS: usize = 1 << 26;

/// The value of an environment variable.
pub(crate) struct Value {
    /// Its first byte in the environment; the value ends with a NUL.
    place: *mut u8,
    copy: [u8; LONGEST],
    /// Its length, or [`Value::TOO_LONG`] if it is longer than `copy`.
    length: usize,
}

/// The value is not UTF-8, or longer than [`LONGEST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

impl Value {
    const TOO_LONG: usize = usize::MAX;

    /// The value at `place`.
    ///
    /// # Safety
    /// There are bytes at `place`, up to a NUL. They live as long as the process, and only [`Value::forget`] changes
    /// them.
    unsafe fn at(place: *mut u8) -> Self {
        let mut value = Self { place, copy: [0; LONGEST], length: 0 };
        loop {
            // SAFETY: callers guarantee it; no earlier byte was the NUL. Relaxed: a byte means nothing beyond
            // itself.
            let byte = unsafe { AtomicU8::from_ptr(place.add(value.length)).load(Relaxed) };
            if byte == 0 {
                return value;
            }
            let Some(room) = value.copy.get_mut(value.length) else {
                value.length = Self::TOO_LONG;
                return value;
            };
            *room = byte;
            value.length += 1;
        }
    }

    /// The value as text.
    pub(crate) fn text(&self) -> Result<&str, Unreadable> {
        let bytes = self.copy.get(..self.length).ok_or(Unreadable)?;
        core::str::from_utf8(bytes).map_err(|_| Unreadable)
    }

    /// Empties the value in the environment, so that the processes that inherit it do not report it again. Does so only
    /// for a string from the kernel: a string that the program gave to `putenv` may be a constant.
    pub(crate) fn forget(self) {
        if is_initial(self.place) {
            // SAFETY: as in `at`; the byte is the value's first, or its NUL, and is in the initial stack, which is
            // writable.
            unsafe { AtomicU8::from_ptr(self.place).store(0, Relaxed) };
        }
    }
}

/// Whether a string is one of those that the kernel put on the initial stack: above the auxiliary vector's random
/// bytes, and below the program's file name.
fn is_initial(place: *mut u8) -> bool {
    // SAFETY: getauxval reads the process's own vector; it returns 0 for a missing entry.
    let (above, below) = unsafe { (libc::getauxval(libc::AT_RANDOM), libc::getauxval(libc::AT_EXECFN)) };
    (above..below).contains(&(place as libc::c_ulong))
}

/// The value of an environment variable; `None` if it is not set.
pub(crate) fn value(name: &str) -> Option<Value> {
    unsafe extern "C" {
        static environ: *const *mut c_char;
    }
    // SAFETY: `environ` is null or a null-terminated array of C strings, which nothing changes before `main`. By the
    // time a thread calls `setenv`, everything is resolved. The kernel's array is another one of that kind.
    unsafe { find(if environ.is_null() { from_the_kernel() } else { environ }, name) }
}

/// The environment as the kernel has laid it down, behind the arguments. libc does not know it before its own
/// constructor has run, and the `.preinit_array` of a program runs earlier. Null if it is not found.
fn from_the_kernel() -> *const *mut c_char {
    // SAFETY: looks a variable of the dynamic linker's up: where the initial stack ends, which is where the number of
    // arguments is. After it come the arguments, a null, and the environment.
    unsafe {
        let end = libc::dlsym(libc::RTLD_DEFAULT, c"__libc_stack_end".as_ptr()).cast::<*const usize>();
        let Some(&stack) = end.as_ref() else { return core::ptr::null() };
        let Some(&arguments) = stack.as_ref().filter(|&&number| number < MOST_ARGUMENTS) else {
            return core::ptr::null();
        };
        let behind = stack.add(1 + arguments);
        if *behind == 0 { behind.add(1).cast() } else { core::ptr::null() }
    }
}

/// # Safety
/// `entries` is null or a null-terminated array of C strings, whose values satisfy [`Value::at`].
unsafe fn find(mut entries: *const *mut c_char, name: &str) -> Option<Value> {
    // SAFETY: callers guarantee it; nothing after the null is read.
    unsafe {
        while !entries.is_null() && !(*entries).is_null() {
            if let Some(place) = value_in(*entries, name) {
                return Some(Value::at(place));
            }
            entries = entries.add(1);
        }
    }
    None
}

/// The address of the value in `NAME=value`, if the entry has that name. Reads nothing after the `=`.
///
/// # Safety
/// `entry` is a C string.
unsafe fn value_in(entry: *mut c_char, name: &str) -> Option<*mut u8> {
    let mut here = entry.cast::<u8>();
    for &wanted in name.as_bytes().iter().chain(b"=") {
        // SAFETY: callers guarantee it; all earlier bytes matched, so none was the NUL.
        unsafe {
            if *here != wanted {
                return None;
            }
            here = here.add(1);
        }
    }
    Some(here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    /// Entries like those that the kernel passes: writable, and never freed.
    fn entries(texts: &[&[u8]]) -> Vec<*mut c_char> {
        let entry = |text: &&[u8]| CString::new(*text).unwrap().into_raw();
        texts.iter().map(entry).chain([core::ptr::null_mut()]).collect()
    }

    fn found(entries: &[*mut c_char], name: &str) -> Option<Value> {
        // SAFETY: made by `entries`.
        unsafe { find(entries.as_ptr(), name) }
    }

    #[test]
    fn the_variable_of_that_very_name_is_found() {
        let list =
            entries(&[b"FLASH=1", b"FLASHLOCK_TOPOLOGY=2x2x1", b"FLASHLOCK=mcs", b"FLASHLOCK=late", b"FLASHLOCK"]);
        assert_eq!(found(&list, "FLASHLOCK").unwrap().text(), Ok("mcs"));
        assert_eq!(found(&list, "FLASHLOCK_TOPOLOGY").unwrap().text(), Ok("2x2x1"));
        assert!(found(&list, "FLASHLOCK_STATS_FD").is_none());
        // SAFETY: null means no array.
        assert!(unsafe { find(core::ptr::null(), "FLASHLOCK") }.is_none());
    }

    #[test]
    fn the_kernels_environment_is_that_of_libc() {
        let name = "CARGO_PKG_NAME";
        // SAFETY: the environment that the kernel has laid down.
        let found = unsafe { find(from_the_kernel(), name) };
        assert_eq!(found.expect("cargo sets it").text(), Ok(env!("CARGO_PKG_NAME")));
    }

    #[test]
    fn what_is_no_text_of_ours_is_unreadable() {
        let longest = [b"A=".to_vec(), vec![b'x'; LONGEST]].concat();
        let longer = [b"B=".to_vec(), vec![b'x'; LONGEST + 1]].concat();
        let list = entries(&[&longest, &longer, b"C=mcs\xff", b"D="]);
        assert_eq!(found(&list, "A").unwrap().text().map(str::len), Ok(LONGEST));
        assert_eq!(found(&list, "B").unwrap().text(), Err(Unreadable));
        assert_eq!(found(&list, "C").unwrap().text(), Err(Unreadable));
        assert_eq!(found(&list, "D").unwrap().text(), Ok(""));
    }

    #[test]
    fn only_what_the_kernel_has_laid_down_is_forgotten() {
        let list = entries(&[b"A=1", b"FLASHLOCK=mcz"]);
        found(&list, "FLASHLOCK").unwrap().forget();
        assert_eq!(found(&list, "FLASHLOCK").unwrap().text(), Ok("mcz"));
        // cargo sets this variable for tests; nothing else here reads it.
        let name = "CARGO_PKG_DESCRIPTION";
        assert_ne!(value(name).unwrap().text(), Ok(""));
        value(name).unwrap().forget();
        assert_eq!(value(name).unwrap().text(), Ok(""));
    }
}
