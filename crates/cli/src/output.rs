//! Files that a verb writes at its end.

use std::fs;
use std::path::Path;

use crate::failure::Failure;
use crate::screen;

/// A file that can be written, while nothing is in it: a wrong path is found before a long run.
pub(crate) struct Reserved<'a> {
    file: &'a Path,
    /// Whether it was not there before.
    is_new: bool,
}

impl<'a> Reserved<'a> {
    /// The error names the file.
    pub(crate) fn new(file: &'a Path) -> Result<Self, Failure> {
        let is_new = !file.exists();
        let open = fs::OpenOptions::new().create(true).append(true).open(file);
        open.map_err(|error| cannot_write(file, &error))?;
        Ok(Self { file, is_new })
    }

    /// Gives it its contents.
    pub(crate) fn write(self, contents: &str) -> Result<(), Failure> {
        fs::write(self.file, contents).map_err(|error| cannot_write(self.file, &error))
    }
}

impl Drop for Reserved<'_> {
    /// An empty file is nothing.
    fn drop(&mut self) {
        if self.is_new && fs::metadata(self.file).is_ok_and(|file| file.is_file() && file.len() == 0) {
            // If it cannot be removed it is empty: nothing is lost.
            let _ = fs::remove_file(self.file);
        }
    }
}

/// Says which file, and why.
pub(crate) fn cannot_write(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format_args!("cannot write {}: {}", file.display(), screen::reason(error)))
}
