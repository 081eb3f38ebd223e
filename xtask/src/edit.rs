//! A copy of sources, with a piece of text replaced: a mutant, or a build that lacks something.

use std::path::Path;

use anyhow::{Result, bail};

use crate::files;

/// What is replaced. A piece that is not there exactly once is an error, so no list of these outlives the code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edit {
    pub(crate) file: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

impl Edit {
    /// The text of its file with the piece replaced.
    pub(crate) fn of(&self, text: &str) -> Result<String> {
        let times = text.matches(self.from).count();
        if times != 1 {
            bail!("{}: this is there {times} times, not once:\n{}", self.file, self.from);
        }
        Ok(text.replace(self.from, self.to))
    }

    /// Edits the file below `directory`; what it was before.
    pub(crate) fn apply(&self, directory: &Path) -> Result<String> {
        let path = directory.join(self.file);
        let before = files::read(&path)?;
        files::write(&path, self.of(&before)?)?;
        Ok(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_replaced_if_it_is_there_once() {
        let edit = Edit { file: "x", from: "a", to: "b" };
        assert_eq!(edit.of("cad").expect("once"), "cbd");
        assert!(edit.of("aa").is_err() && edit.of("c").is_err());
    }
}
