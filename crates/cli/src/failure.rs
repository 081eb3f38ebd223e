//! What a user is told when something fails: what, where, and what to do about it.

use std::fmt;

use crate::screen;

/// Why the command fails, and with which exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    code: u8,
}

impl Failure {
    /// Something that flashlock could not do.
    pub(crate) fn new(what: impl fmt::Display) -> Self {
        Self { what: what.to_string(), code: 1 }
    }

    /// Something that the user should have written otherwise.
    pub(crate) fn usage(what: impl fmt::Display) -> Self {
        Self::new(what).with_code(2)
    }

    /// Nobody reads our output any more: ends quietly, with the status that a shell gives to a program that a broken
    /// pipe ended.
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

    /// Tells the user.
    pub(crate) fn report(&self) {
        if !self.what.is_empty() {
            screen::complain(None, &self.what);
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}
