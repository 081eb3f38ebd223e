//! A directory for one call of `cargo xtask apps`, that every user may read: servers refuse to run as root, and the
//! users that they run as may not see the checkout. It is removed at the end.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::child::{self, AGAINST_HANGS, Program};
use crate::files;
use crate::workspace;

/// A program of `tests/apps` that has to be compiled; it is called as its source is, without the suffix.
pub(crate) struct Source {
    pub(crate) file: &'static str,
    /// What the compiler takes behind the file.
    pub(crate) options: &'static [&'static str],
}

/// The directory, with the compiled programs of `tests/apps` in it.
pub(crate) struct Stage {
    directory: PathBuf,
}

impl Stage {
    /// An empty one.
    fn bare(suffix: &str) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("flashlock-apps-{}{suffix}", std::process::id()));
        fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        child::remove_on_interrupt(&directory);
        let stage = Self { directory };
        open_to_all(&stage.directory, 0o755)?;
        Ok(stage)
    }

    /// An empty one for a test; several tests run at once.
    #[cfg(test)]
    pub(crate) fn empty_for_tests() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the numbers must differ, and order nothing.
        Self::bare(&format!("-{}", NEXT.fetch_add(1, Relaxed))).expect("a directory can be made")
    }

    /// An empty one, except for the library that counts calls.
    pub(crate) fn new() -> Result<Self> {
        let stage = Self::bare("")?;
        stage.compile(&Source { file: "count.c", options: &["-shared", "-fPIC", "-ldl"] })?;
        Ok(stage)
    }

    /// Compiles an application's own program.
    pub(crate) fn compile(&self, source: &Source) -> Result<()> {
        let file = source_path(source.file);
        let suffix = file.extension().and_then(|suffix| suffix.to_str());
        let file = workspace::require(file.clone(), "it is part of the repository: check it out")?;
        let mut command = match suffix {
            Some("java") => Command::new("javac"),
            Some("cc") => Command::new("g++"),
            _ => Command::new("gcc"),
        };
        if suffix == Some("java") {
            command.arg("-d").arg(&self.directory);
        } else {
            let standard = if suffix == Some("cc") { "-std=c++17" } else { "-std=gnu17" };
            command.args([standard, "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
            command.arg(self.path(file.file_stem().unwrap_or_default()));
        }
        command.arg(file).args(source.options);
        let done = Program::new(command, AGAINST_HANGS).run().context("the compiler: cargo xtask setup")?;
        done.successful().map(drop)
    }

    /// Where a file or a compiled program is.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.join(name)
    }

    /// A copy of a file, to be executed or loaded by anybody.
    pub(crate) fn adopt(&self, file: &Path) -> Result<PathBuf> {
        let Some(name) = file.file_name() else { bail!("{} has no name", file.display()) };
        let copy = self.path(name);
        fs::copy(file, &copy).with_context(|| format!("cannot copy {} to {}", file.display(), copy.display()))?;
        open_to_all(&copy, 0o755)?;
        Ok(copy)
    }

    /// A file that anybody may write to.
    pub(crate) fn shared_file(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let file = self.path(name);
        files::write(&file, bytes)?;
        open_to_all(&file, 0o666)?;
        Ok(file)
    }

    /// An empty directory.
    pub(crate) fn empty(&self, name: &str) -> Result<PathBuf> {
        let directory = self.path(name);
        files::remove(&directory)?;
        files::make(&directory)?;
        open_to_all(&directory, 0o755)?;
        Ok(directory)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!("xtask: cannot remove {}: {error}", self.directory.display());
        }
    }
}

/// Gives a file its mode whatever the umask says.
fn open_to_all(file: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(file, Permissions::from_mode(mode))
        .with_context(|| format!("cannot change the mode of {}", file.display()))
}

/// A file of `tests/apps`.
pub(crate) fn source_path(name: &str) -> PathBuf {
    workspace::path("tests/apps").join(name)
}

/// The same as an argument.
pub(crate) fn script(name: &str) -> OsString {
    source_path(name).into()
}
