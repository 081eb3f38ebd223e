//! Starts a program so that it cannot notice the difference from a direct start: the same signal mask, the same ignored
//! signals, and the shell's exit statuses if it cannot be started.

pub(crate) mod signals;
mod supervise;

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub(crate) use signals::name as signal_name;
pub(crate) use supervise::{Ended, Resources, supervise};

use crate::failure::Failure;
use crate::screen;

/// The exit status of a tool that runs programs and fails itself.
pub(crate) const OWN_FAILURE: u8 = 125;
/// The exit status for a program that exists but cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The exit status for a program that does not exist.
pub(crate) const NOT_FOUND: u8 = 127;

/// Whether SIGPIPE was ignored when this process started. Rust's runtime ignores it before `main`.
static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = {
    extern "C" fn at_start() {
        SIGPIPE_WAS_IGNORED.store(signals::is_ignored(libc::SIGPIPE), Relaxed);
    }
    at_start
};

/// A program and its arguments, ready for the kernel.
pub(crate) struct Program {
    words: Vec<CString>,
}

impl Program {
    /// A program from its words, of which there is at least one.
    pub(crate) fn new(words: &[OsString]) -> Result<Self, Failure> {
        let convert = |word: &OsString| {
            CString::new(word.as_bytes())
                .map_err(|_| Failure::usage(format_args!("argument '{}' contains a zero byte", word.to_string_lossy())))
        };
        Ok(Self { words: words.iter().map(convert).collect::<Result<_, _>>()? })
    }

    /// The program's name as the user wrote it.
    pub(crate) fn name(&self) -> &OsStr {
        OsStr::from_bytes(self.words[0].as_bytes())
    }

    /// Becomes the program. Returns only if that fails.
    pub(crate) fn exec(&self) -> io::Error {
        let pointers: Vec<_> = self.words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect();
        if !SIGPIPE_WAS_IGNORED.load(Relaxed) {
            signals::set_default(libc::SIGPIPE);
        }
        // SAFETY: the words are C strings and the array ends in a null pointer.
        unsafe { libc::execvp(pointers[0], pointers.as_ptr()) };
        io::Error::last_os_error()
    }

    /// Why the program cannot be run, with the exit status that shells use.
    pub(crate) fn cannot_run(&self, error: &io::Error) -> Failure {
        let name = self.name();
        let reason = screen::reason(error);
        if error.raw_os_error() != Some(libc::ENOENT) {
            return Failure::new(format_args!("cannot run '{}': {reason}", name.display())).with_code(NOT_EXECUTABLE);
        }
        // If a script or program exists but its interpreter does not, the kernel reports "not found", too.
        let there = name.as_bytes().contains(&b'/') && Path::new(name).exists();
        let hint = if there { " (the file exists, but its interpreter does not)" } else { "" };
        Failure::new(format_args!("cannot run '{}': {reason}{hint}", name.display())).with_code(NOT_FOUND)
    }
}
