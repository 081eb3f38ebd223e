//! Files that a verb writes at its end.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::screen;

/// A file that could be written when the verb started, so that a wrong path is found before a long run. Until the end,
/// no file is left there, so that an interrupted run leaves nothing behind.
pub(crate) struct Writable<'a>(&'a Path);

impl<'a> Writable<'a> {
    /// The error names the file.
    pub(crate) fn new(file: &'a Path) -> Result<Self, Failure> {
        let is_new = fs::symlink_metadata(file).is_err();
        let open = fs::OpenOptions::new().create(true).append(true).open(file);
        open.map_err(|error| cannot_write(file, &error))?;
        if is_new {
            // If it cannot be removed, it stays empty: nothing is lost.
            let _ = fs::remove_file(file);
        }
        Ok(Self(file))
    }

    /// Writes the file.
    pub(crate) fn write(self, contents: &str) -> Result<(), Failure> {
        fs::write(self.0, contents).map_err(|error| cannot_write(self.0, &error))
    }
}

/// Parses the path of a picture on a command line.
pub(crate) fn picture(text: &str) -> Result<PathBuf, String> {
    ends_in("svg", text, "pictures are SVG: name a file that ends in .svg (other programs can convert it)")
}

/// Parses the path of a file to write. Another extension shows that the path is of something else, such as a machine's
/// description.
pub(crate) fn ends_in(extension: &str, text: &str, otherwise: &str) -> Result<PathBuf, String> {
    let file = PathBuf::from(text);
    let fits = file.extension().is_some_and(|own| own.eq_ignore_ascii_case(extension));
    fits.then_some(file).ok_or_else(|| otherwise.to_owned())
}

/// The failure, with the file and the reason.
pub(crate) fn cannot_write(file: &Path, error: &std::io::Error) -> Failure {
    let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
    let missing = directory.filter(|directory| error.kind() == ErrorKind::NotFound && !directory.exists());
    let reason = match missing {
        Some(directory) => format!("the directory '{}' does not exist", directory.display()),
        None => screen::reason(error),
    };
    Failure::new(format_args!("cannot write '{}': {reason}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_named() {
        let said = |file| Writable::new(Path::new(file)).err().map(|failure| failure.to_string());
        let told = "cannot write '/nonexistent/x.svg': the directory '/nonexistent' does not exist";
        assert_eq!(said("/nonexistent/x.svg").as_deref(), Some(told));
        assert_eq!(said("/").as_deref(), Some("cannot write '/': Is a directory"));
    }
}
