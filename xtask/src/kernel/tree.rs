//! The kernel's source with the series applied, as `kernel/fetch.sh` leaves it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::child::Program;
use crate::edit::Edit;
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
        fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
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
        let directory = workspace::path("kernel/patches");
        let mut patches = Vec::new();
        for entry in fs::read_dir(&directory).with_context(|| format!("{}", directory.display()))? {
            patches.push(entry?.path());
        }
        patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
        patches.sort();
        if patches.is_empty() {
            bail!("no patches in {}", directory.display());
        }
        Ok(patches)
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
