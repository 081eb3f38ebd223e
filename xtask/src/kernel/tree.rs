//! The kernel's source with the series applied, as `kernel/fetch.sh` leaves it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::child::Program;
use crate::edit::Edit;
use crate::files;
use crate::workspace;

/// Fetching and unpacking take a minute on a quiet machine.
const LIMIT: Duration = Duration::from_secs(3600);

pub(crate) struct Tree {
    /// The source.
    pub(crate) path: PathBuf,
    /// What it was made from, as a checksum.
    pub(crate) stamp: String,
}

impl Tree {
    pub(crate) fn fetch(cache: &Path) -> Result<Self> {
        files::make(cache)?;
        let cache = cache.canonicalize()?;
        let mut command = Command::new("sh");
        command.arg(workspace::path("kernel/fetch.sh")).arg(&cache);
        print!("{}", Program::new(command, LIMIT).run()?.successful()?);
        let stamp = fs::read_to_string(cache.join("stamp")).context("fetch.sh left no stamp")?;
        let tree = Self { path: cache.join("linux"), stamp: stamp.trim().to_owned() };
        // An interrupted run may have left it edited, or at another patch.
        tree.git(&["checkout", "--force", "--quiet", "series"])?;
        Ok(tree)
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("git");
        command.arg("-C").arg(&self.path).args(arguments);
        Program::new(command, LIMIT).run()?.successful()
    }

    /// The patches, in order.
    pub(crate) fn patches() -> Result<Vec<PathBuf>> {
        files("kernel/patches", &["patch"])
    }

    /// Does something while these edits are made, and takes them back.
    pub(crate) fn edited<T>(&self, edits: &[Edit], action: impl FnOnce() -> Result<T>) -> Result<T> {
        let made = edits.iter().try_for_each(|edit| edit.apply(&self.path).map(drop));
        let result = made.and_then(|()| action());
        for edit in edits {
            self.git(&["checkout", "--force", "--quiet", "HEAD", "--", edit.file])?;
        }
        result
    }
}

/// The files of a directory of ours with one of these extensions, in order of their names. At least one.
pub(crate) fn files(directory: &str, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let directory = workspace::path(directory);
    let mut files = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| format!("{}", directory.display()))? {
        files.push(entry?.path());
    }
    files.retain(|path| path.extension().is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted)));
    files.sort();
    if files.is_empty() {
        bail!("no files with {extensions:?} in {}", directory.display());
    }
    Ok(files)
}
