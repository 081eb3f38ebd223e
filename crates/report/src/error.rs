//! The error in a result file.

use std::fmt;
use std::path::{Path, PathBuf};

/// An error, with the name of the file.
#[derive(Debug)]
pub struct Error {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

impl Error {
    /// An error in this file.
    pub fn new(file: &Path, what: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), what: what.to_string() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.what)
    }
}

impl std::error::Error for Error {}
