//! Files that a verb writes at its end.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::screen;

/// A file that could be written when the verb began: a wrong path is found before a long run. Nothing is left there
/// meanwhile, so that a run that is interrupted leaves nothing behind.
pub(crate) struct Writable<'a>(&'a Path);

impl<'a> Writable<'a> {
    /// The error names the file.
    pub(crate) fn new(file: &'a Path) -> Result<Self, Failure> {
        let is_new = fs::symlink_metadata(file).is_err();
        let open = fs::OpenOptions::new().create(true).append(true).open(file);
        open.map_err(|error| cannot_write(file, &error))?;
        if is_new {
            // If it cannot be removed it is empty: nothing is lost.
            let _ = fs::remove_file(file);
        }
        Ok(Self(file))
    }

    /// Gives it its contents.
    pub(crate) fn write(self, contents: &str) -> Result<(), Failure> {
        fs::write(self.0, contents).map_err(|error| cannot_write(self.0, &error))
    }
}

/// The file of a picture, as a command line names it.
pub(crate) fn picture(text: &str) -> Result<PathBuf, String> {
    ends_in("svg", text, "a picture is SVG: name a file that ends in .svg (other programs make other formats of it)")
}

/// A file to write; others show by their names that they are something else, such as a machine's description.
pub(crate) fn ends_in(extension: &str, text: &str, otherwise: &str) -> Result<PathBuf, String> {
    let file = PathBuf::from(text);
    let fits = file.extension().is_some_and(|own| own.eq_ignore_ascii_case(extension));
    fits.then_some(file).ok_or_else(|| otherwise.to_owned())
}

/// Says which file, and why.
pub(crate) fn cannot_write(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format_args!("cannot write {}: {}", file.display(), screen::reason(error)))
}
