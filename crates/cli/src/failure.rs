//! Failures: what failed, where, and what to do about it. [`screen`](crate::screen::report) reports them to the user.

use std::fmt;

/// Why the command fails, and its exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    code: u8,
}

impl Failure {
    /// A failure of flashlock.
    pub(crate) fn new(what: impl fmt::Display) -> Self {
        Self { what: what.to_string(), code: 1 }
    }

    /// A mistake of the user.
    pub(crate) fn usage(what: impl fmt::Display) -> Self {
        Self::new(what).with_code(2)
    }

    /// The output has no reader any more. The command ends quietly, with the status that a shell reports for a program
    /// that a broken pipe ended.
    pub(crate) fn nobody_reads() -> Self {
        Self { what: String::new(), code: 128 + libc::SIGPIPE as u8 }
    }

    /// The same with another exit status.
    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// The exit status.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}
