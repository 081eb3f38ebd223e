//! What users install: `cargo xtask install`, `uninstall`, `dist` and `deb`, and `cargo xtask packages`, which tries
//! all of them.
//!
//! | module | holds |
//! |---|---|
//! | [`build`] | the command and the library, stripped |
//! | [`embedded`] | what programs link with that have delegated locks |
//! | [`layout`] | **the list of what is installed, and where** |
//! | [`release`] | version and date, from `CHANGELOG.md` |
//! | [`licences`] | the licences of the crates that are linked into both |
//! | [`install`] | the list below a prefix, and away from there again |
//! | [`tarball`], [`deb`] | the list as an archive and as a Debian package |
//! | [`trial`], [`fresh`], [`shells`], [`documented`] | the checks: in fresh roots, in shells, and of what the documents say |
//!
//! What is made lies in `target/packages`.

mod build;
pub(crate) mod deb;
mod documented;
pub(crate) mod embedded;
mod fresh;
pub(crate) mod install;
pub(crate) mod layout;
mod licences;
mod release;
mod shells;
pub(crate) mod tarball;
pub(crate) mod trial;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::files;
use crate::workspace;

/// Where everything is made.
const OUT: &str = "target/packages";

/// An empty directory for generated files. Not the one for what is on the way: these are looked at later.
fn generated(kind: &str) -> Result<PathBuf> {
    let directory = workspace::path(OUT).join("generated").join(kind);
    files::remove(&directory)?;
    make_directory(&directory)?;
    Ok(directory)
}

/// An empty directory for what is on the way.
fn scratch(name: &str) -> Result<PathBuf> {
    workspace::scratch(&format!("packages/{name}"))
}

/// Makes a directory with these permissions, whatever the umask is. Directories that exist keep theirs.
fn make_directory(path: &Path) -> Result<Vec<PathBuf>> {
    let missing: Vec<&Path> =
        path.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    let made: Vec<PathBuf> = missing.into_iter().rev().map(Path::to_owned).collect();
    for directory in &made {
        std::fs::create_dir(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        permit(directory, 0o755)?;
    }
    Ok(made)
}

fn permit(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the permissions of {}", path.display()))
}
