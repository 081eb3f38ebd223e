//! Files and directories; every error names the path.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// What a file says.
pub(crate) fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

pub(crate) fn write(file: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    fs::write(file, contents).with_context(|| format!("cannot write {}", file.display()))
}

/// Makes a directory and those that it is in, unless they are there.
pub(crate) fn make(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))
}

/// Removes a directory with all that is in it, if it is there.
pub(crate) fn remove(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("cannot empty {}", directory.display()))?;
    }
    Ok(())
}
