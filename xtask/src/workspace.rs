//! Where things are, and what to do when they are not there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use crate::child::{AGAINST_HANGS, Program};
use crate::files;

/// How to make what `cargo build --release` makes.
pub(crate) const BUILD_FIRST: &str = "build first: cargo build --release";

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let manifest = PathBuf::from(manifest);
    manifest.parent().map_or_else(|| manifest.clone(), Path::to_path_buf)
}

/// A path inside the workspace.
pub(crate) fn path(relative: &str) -> PathBuf {
    root().join(relative)
}

/// A file that must exist; `hint` says how to get it.
pub(crate) fn require(file: PathBuf, hint: &str) -> Result<PathBuf> {
    if !file.exists() {
        bail!("{} does not exist\n  {hint}", shown(&file));
    }
    Ok(file)
}

/// The `flashlock` command.
pub(crate) fn command() -> Result<PathBuf> {
    require(path("target/release/flashlock"), BUILD_FIRST)
}

/// The same, if it was built of the sources that are here now.
pub(crate) fn current_command() -> Result<PathBuf> {
    let command = command()?;
    // What cargo writes beside it: `COMMAND: SOURCE SOURCE …`.
    let listed = command.with_extension("d");
    let list = files::read(&listed)?;
    if let Some(source) = newer_source(&list, changed(&command)?) {
        bail!("{} is older than {}\n  {BUILD_FIRST}", shown(&command), shown(&source));
    }
    Ok(command)
}

/// A source of such a list that was changed after that time, or is gone.
fn newer_source(list: &str, built: SystemTime) -> Option<PathBuf> {
    let (_, sources) = list.split_once(": ")?;
    sources.split_whitespace().map(PathBuf::from).find(|source| changed(source).map_or(true, |when| when > built))
}

fn changed(file: &Path) -> Result<SystemTime> {
    let when = file.metadata().and_then(|metadata| metadata.modified());
    when.with_context(|| format!("cannot tell when {} was changed", file.display()))
}

/// The preload library.
pub(crate) fn preload() -> Result<PathBuf> {
    require(path("target/release/libflashlock_preload.so"), BUILD_FIRST)
}

/// A path as a reader of the output wants it: relative to the root if it is inside.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Writes a file, and says so.
pub(crate) fn write(file: &Path, text: &str) -> Result<()> {
    files::write(file, text)?;
    println!("wrote {}", shown(file));
    Ok(())
}

/// The names of the files of this tree that git knows or would know; those that were deleted, and are not committed,
/// included.
pub(crate) fn files() -> Result<Vec<String>> {
    let mut list = Command::new("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root());
    let list = Program::new(list, AGAINST_HANGS).run()?.successful()?;
    Ok(list.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// What is built and tested as one: cargo compiles a library anew for each choice of packages that asks other features
/// of it, and puts it in the place of the one before, which a program may be about to load.
pub(crate) const TOGETHER: [&str; 4] = ["--release", "--workspace", "--exclude", "xtask"];

/// All targets of [`TOGETHER`], always: without the tests, cargo would ask other features of some libraries.
const TARGETS: [&str; 4] = ["--lib", "--bins", "--tests", "--examples"];

/// Builds [`TOGETHER`], if it is not current.
pub(crate) fn build() -> Result<()> {
    cargo(&[&["build"], &TOGETHER[..], &TARGETS].concat(), Duration::from_secs(1800)).map(|_| ())
}

/// Runs cargo in the workspace and shows its output if it fails.
pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: &[S], limit: Duration) -> Result<String> {
    cargo_with(arguments, &[], limit)
}

/// The same with variables in the environment.
pub(crate) fn cargo_with<S: AsRef<OsStr>>(
    arguments: &[S],
    environment: &[(&str, String)],
    limit: Duration,
) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).envs(environment.iter().cloned()).current_dir(root());
    Program::new(command, limit).run()?.successful()
}

/// Runs a `build.sh OUTDIR` of `tests/`, unless nothing has changed since, and returns the output directory.
pub(crate) fn build_tests(name: &str, out: &str) -> Result<PathBuf> {
    build_tests_with(name, &path(out), &[])
}

/// The same with variables in the environment. They are not compared: a directory stands for one set of them.
pub(crate) fn build_tests_with(name: &str, out: &Path, environment: &[(&str, String)]) -> Result<PathBuf> {
    build_tests_unless(name, out, environment, &[], None)?.with_context(|| format!("tests/{name} cannot be built"))
}

/// The same of what is made from these directories, too. `None`: `build.sh` ended with the status `lacking`, which
/// means that something it needs is not installed.
pub(crate) fn build_tests_unless(
    name: &str,
    out: &Path,
    environment: &[(&str, String)],
    beside: &[&str],
    lacking: Option<i32>,
) -> Result<Option<PathBuf>> {
    let sources = path(&format!("tests/{name}"));
    let script = require(sources.join("build.sh"), "it is part of the repository: check it out")?;
    let stamp = out.join("built");
    let mut is_current = is_newer(&stamp, &sources)?;
    for directory in beside {
        is_current &= is_newer(&stamp, &path(directory))?;
    }
    if is_current {
        return Ok(Some(out.to_owned()));
    }
    let mut command = Command::new("sh");
    command.arg(&script).arg(out).envs(environment.iter().cloned()).current_dir(root());
    let done = Program::new(command, AGAINST_HANGS).run()?;
    if lacking.is_some() && done.status.and_then(|status| status.code()) == lacking {
        return Ok(None);
    }
    done.successful().with_context(|| format!("cannot build tests/{name} (gcc missing? cargo xtask setup)"))?;
    files::write(&stamp, "")?;
    Ok(Some(out.to_owned()))
}

/// Whether a file exists and is newer than every file of a directory and of those in it, and than these directories
/// themselves.
fn is_newer(stamp: &Path, directory: &Path) -> Result<bool> {
    let Ok(found) = stamp.metadata() else { return Ok(false) };
    let made = found.modified()?;
    if directory.metadata()?.modified()? >= made {
        return Ok(false);
    }
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let is_older = if path.is_dir() { is_newer(stamp, &path)? } else { path.metadata()?.modified()? < made };
        if !is_older {
            return Ok(false);
        }
    }
    Ok(true)
}

/// An empty directory for one run, under `target/`.
pub(crate) fn scratch(name: &str) -> Result<PathBuf> {
    let directory = path("target/xtask").join(name);
    files::remove(&directory)?;
    files::make(&directory)?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_is_newer_or_gone_is_found() {
        let source = path("xtask/src/workspace.rs");
        let list = format!("/somewhere/command: {} /gone.rs\n", source.display());
        let when = changed(&source).expect("it is here");
        assert_eq!(newer_source(&list, when), Some("/gone.rs".into()));
        assert_eq!(newer_source(&list, when - Duration::from_secs(1)), Some(source.clone()));
        assert_eq!(newer_source(list.trim_end_matches(" /gone.rs\n"), when), None);
    }
}
