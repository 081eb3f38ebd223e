//! What is wrong with a result file.

use std::fmt;
use std::path::{Path, PathBuf};

/// Names the file and what is wrong with it.
#[derive(Debug)]
pub struct Error {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

impl Error {
    /// Something wrong with a file.
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
