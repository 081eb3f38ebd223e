//! The command, the preload library, and the libraries of delegated locks, stripped.
//!
//! They are built with the profile `dist`, which is `release` without debug information. The locks, and what else of
//! flashlock runs inside programs, are optimised as in the tests; the command's other parts for size (`Cargo.toml`).
//! What rustc writes of paths into it is the same wherever the tree, cargo and the toolchain are.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::embedded::{self, Embedded};
use super::scratch;
use crate::child::output;
use crate::workspace;

/// `release`: take what `cargo build --release` has made, and strip that. For checks, which have no time for a second
/// build.
pub(super) const ENV_FROM: &str = "FLASHLOCK_DIST";

/// As if that were set.
static FROM_RELEASE: AtomicBool = AtomicBool::new(false);

/// From now on the release build is taken.
pub(super) fn take_release() {
    FROM_RELEASE.store(true, Ordering::Relaxed);
}

/// What is to be taken, as the value of [`ENV_FROM`] for programs.
pub(super) fn from() -> String {
    if FROM_RELEASE.load(Ordering::Relaxed) {
        return "release".to_owned();
    }
    env::var(ENV_FROM).ok().filter(|from| !from.is_empty()).unwrap_or_else(|| "dist".to_owned())
}

/// Whether only tests will see what is packed: then it is compressed quickly.
pub(super) fn is_for_tests() -> bool {
    from() == "release"
}

const LIBRARY: &str = "libflashlock_preload.so";
/// Against hangs.
const LIMIT: Duration = Duration::from_secs(3600);

/// What was built.
pub(super) struct Built {
    pub(super) command: PathBuf,
    pub(super) library: PathBuf,
    pub(super) embedded: Embedded,
}

impl Built {
    /// Builds all, or takes what is there already.
    pub(super) fn get() -> Result<Self> {
        match from().as_str() {
            "dist" => dist(),
            "release" => stripped_release(),
            other => bail!("{ENV_FROM}={other} must be dist or release, or unset"),
        }
    }

    /// The newest glibc of which each needs a symbol, such as `2.35`: the command's, the preload library's, that of
    /// delegated locks.
    pub(super) fn needs_glibc(&self) -> Result<[String; 3]> {
        Ok([newest_glibc(&self.command)?, newest_glibc(&self.library)?, newest_glibc(&self.embedded.shared)?])
    }
}

fn dist() -> Result<Built> {
    let packages = ["--package", "flashlock-cli", "--package", "flashlock-preload", "--package", embedded::PACKAGE];
    let arguments = [&["build", "--locked", "--profile", "dist"][..], &packages].concat();
    workspace::cargo_with(&arguments, &[("CARGO_ENCODED_RUSTFLAGS", flags()?.join("\u{1f}"))], LIMIT)?;
    let at = workspace::path("target/dist");
    Ok(Built { command: at.join("flashlock"), library: at.join(LIBRARY), embedded: Embedded::of(&at)? })
}

/// The user's flags, and what keeps the paths of this machine out of panic messages.
fn flags() -> Result<Vec<String>> {
    let words =
        |text: String, separator: fn(char) -> bool| text.split(separator).map(str::to_owned).collect::<Vec<_>>();
    let encoded = env::var("CARGO_ENCODED_RUSTFLAGS").map(|text| words(text, |c| c == '\u{1f}'));
    let plain = || env::var("RUSTFLAGS").map(|text| words(text, char::is_whitespace));
    let mut flags = encoded.or_else(|_| plain()).unwrap_or_default();
    flags.retain(|flag| !flag.is_empty());
    let mut remap = |from: &Path, to: &str| flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    remap(&workspace::root(), "flashlock");
    for registry in registries()? {
        remap(&registry, "crates");
    }
    let (sysroot, version) = (output("rustc", &["--print", "sysroot"])?, output("rustc", &["-vV"])?);
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown");
    remap(&Path::new(sysroot.trim()).join("lib/rustlib/src/rust"), &format!("/rustc/{commit}"));
    Ok(flags)
}

/// Where cargo has unpacked the crates: a directory for each registry.
fn registries() -> Result<Vec<PathBuf>> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let sources = home.context("neither CARGO_HOME nor HOME is set")?.join("registry/src");
    // Before the first build there may be none.
    workspace::cargo(&["fetch", "--locked"], LIMIT)?;
    let Ok(entries) = sources.read_dir() else { return Ok(Vec::new()) };
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn stripped_release() -> Result<Built> {
    let (command, library, to) = (workspace::command()?, workspace::preload()?, scratch("stripped")?);
    let strip = |from: &Path, name: &str| {
        let to = to.join(name);
        output("strip", &[Path::new("--strip-all"), Path::new("-o"), &to, from]).map(|_| to)
    };
    Ok(Built {
        command: strip(&command, "flashlock")?,
        library: strip(&library, LIBRARY)?,
        embedded: Embedded::of(&workspace::path("target/release"))?,
    })
}

fn newest_glibc(file: &Path) -> Result<String> {
    let symbols = output("objdump", &[Path::new("--dynamic-syms"), file])?;
    newest(&symbols).with_context(|| format!("{} needs no symbol of glibc", file.display()))
}

/// The newest version among the words `GLIBC_2.35` of a text.
fn newest(symbols: &str) -> Option<String> {
    let number = |version: &str| version.split('.').map(|part| part.parse::<u32>().ok()).collect::<Option<Vec<_>>>();
    let versions = symbols.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'));
    let versions = versions.filter_map(|word| word.strip_prefix("GLIBC_")).filter(|version| number(version).is_some());
    versions.max_by_key(|version| number(version)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let symbols =
            "0 DF *UND* 0 (GLIBC_2.4) a\n0 DF *UND* 0 (GLIBC_2.35) b\n0 DF *UND* 0 (GLIBC_2.2.5) c\n GLIBC_PRIVATE";
        assert_eq!(newest(symbols).as_deref(), Some("2.35"));
        assert_eq!(newest("none"), None);
    }
}
