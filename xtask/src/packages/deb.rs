//! `cargo xtask deb`: a Debian package of the same files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use super::build::{Built, is_for_tests};
use super::layout::{self, DOCUMENTS, File, MAN, ZSH};
use super::release::Release;
use super::{OUT, make_directory, permit, scratch};
use crate::child::output;
use crate::child::{AGAINST_HANGS, Program};
use crate::files;
use crate::workspace;

/// Where zsh looks for what packages bring.
const ZSH_DEBIAN: &str = "share/zsh/vendor-completions";
/// Debian's own number behind the version.
const REVISION: u32 = 1;

#[derive(Args)]
pub(crate) struct Options {
    /// The directory for the package
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let package = make(&options.out)?;
    println!("{}: {:.1} MB", workspace::shown(&package), package.metadata()?.len() as f64 / 1e6);
    Ok(())
}

/// The package's file name.
pub(super) fn name(version: &str) -> String {
    format!("flashlock_{version}-{REVISION}_amd64.deb")
}

/// Makes the package in a directory: the same bytes from the same files.
pub(super) fn make(out: &Path) -> Result<PathBuf> {
    let release = Release::current()?;
    let stage = scratch("deb")?;
    permit(&stage, 0o755)?;
    let files: Vec<File> = layout::files(&Built::get()?)?.into_iter().filter_map(for_debian).collect();
    layout::place(&files, &stage)?;
    let documents = stage.join("usr").join(DOCUMENTS);
    for (file, text) in [("copyright", copyright()?), ("changelog.Debian", changelog(&release)?)] {
        files::write(&documents.join(file), text)?;
        permit(&documents.join(file), 0o644)?;
    }
    compress(&stage, &documents)?;
    let depends = depends(&stage)?;
    let control = stage.join("DEBIAN");
    make_directory(&control)?;
    files::write(&control.join("control"), control_file(&release, installed_size(&stage)?, &depends))?;
    files::write(&control.join("md5sums"), sums(&stage)?)?;
    files::write(&control.join("shlibs"), "libflashlock_rcl 0 flashlock\n")?;
    files::write(&control.join("triggers"), "activate-noawait ldconfig\n")?;
    for file in ["control", "md5sums", "shlibs", "triggers"] {
        permit(&control.join(file), 0o644)?;
    }
    make_directory(out)?;
    let package = std::path::absolute(out.join(name(&release.version)))?;
    let mut command = Command::new("dpkg-deb");
    let level = if is_for_tests() { "-z1" } else { "-z6" };
    // With several threads the blocks of xz depend on how many there are.
    command.args(["--root-owner-group", "-Zxz", level, "--threads-max=1", "--build"]).arg(&stage).arg(&package);
    command.env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    Program::new(command, AGAINST_HANGS).run()?.successful().context("cannot build the package (dpkg missing?)")?;
    Ok(package)
}

/// Where a file belongs in Debian. The licences stand in `copyright`.
fn for_debian(mut file: File) -> Option<File> {
    if file.to.starts_with(&format!("{DOCUMENTS}/LICENSE-")) {
        return None;
    }
    file.to = format!("usr/{}", file.to.replace(ZSH, ZSH_DEBIAN).replace("CHANGELOG.md", "changelog"));
    Some(file)
}

/// Man pages and long documents are compressed in packages.
fn compress(stage: &Path, documents: &Path) -> Result<()> {
    let mut files: Vec<PathBuf> =
        ["changelog", "changelog.Debian", "THIRD-PARTY-LICENSES"].map(|name| documents.join(name)).into();
    for entry in stage.join("usr").join(MAN).read_dir()? {
        files.push(entry?.path());
    }
    let arguments = [PathBuf::from("--best"), PathBuf::from("--no-name")];
    output("gzip", &[&arguments[..], &files].concat()).map(|_| ())
}

/// What it needs, by the symbols that it uses.
fn depends(stage: &Path) -> Result<String> {
    // The tool wants to be where sources are.
    let sources = scratch("shlibdeps")?;
    make_directory(&sources.join("debian"))?;
    files::write(&sources.join("debian/control"), "Source: flashlock\n\nPackage: flashlock\nArchitecture: any\n")?;
    let mut command = Command::new("dpkg-shlibdeps");
    command.arg("-O").arg(stage.join("usr/bin/flashlock"));
    command.arg(stage.join("usr").join(layout::LIBRARIES).join("libflashlock_preload.so"));
    command.arg(stage.join("usr/lib/libflashlock_rcl.so.0")).current_dir(&sources);
    let said = Program::new(command, AGAINST_HANGS).run().and_then(|done| done.successful());
    let said = said.context("cannot tell what the package depends on (cargo xtask setup: dpkg-dev)")?;
    let depends = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    depends.map(str::to_owned).with_context(|| format!("dpkg-shlibdeps named no dependency:\n{said}"))
}

/// The maintainer of the package: from Debian's usual variables, or an address that does not exist.
fn maintainer() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let name = variable("DEBFULLNAME").unwrap_or_else(|| "The flashlock contributors".to_owned());
    let mail = variable("DEBEMAIL").unwrap_or_else(|| "flashlock@localhost.invalid".to_owned());
    format!("{name} <{mail}>")
}

fn control_file(release: &Release, size: u64, depends: &str) -> String {
    format!(
        "Package: flashlock\nVersion: {}-{REVISION}\nSection: utils\nPriority: optional\nArchitecture: amd64\n\
         Maintainer: {}\nInstalled-Size: {size}\nDepends: {depends}\nHomepage: {}\n\
         Description: replace the pthread locks of a program without changing it\n \
         flashlock runs dynamically linked programs with other mutexes, condition\n \
         variables, readers-writer locks, spinlocks and semaphores than glibc's: for\n \
         programs whose locks stop scaling, because threads outnumber CPUs or the\n \
         machine has several NUMA nodes.\n .\n \
         It shows how contended a program's locks are, compares a program under\n \
         several locks, and simulates them on larger machines.\n .\n \
         For C and C++ it has a library of locks whose critical sections a server\n thread can run.\n",
        release.version,
        maintainer(),
        env!("CARGO_PKG_REPOSITORY"),
    )
}

fn changelog(release: &Release) -> Result<String> {
    // What Debian calls a version that is still being made.
    let (suite, what) = if release.is_released { ("unstable", "Release") } else { ("UNRELEASED", "Not released yet:") };
    Ok(format!(
        "flashlock ({version}-{REVISION}) {suite}; urgency=medium\n\n  \
         * {what} {version}: see /usr/{DOCUMENTS}/changelog.gz.\n\n -- {}  {}\n",
        maintainer(),
        release.rfc_2822()?,
        version = release.version,
    ))
}

fn copyright() -> Result<String> {
    let mit = files::read(&workspace::path("LICENSE-MIT"))?;
    let (_, mit) = mit.split_once("Copyright (c) ").context("LICENSE-MIT has no line `Copyright (c) …`")?;
    let (holder, terms) = mit.split_once('\n').context("LICENSE-MIT ends with its first line")?;
    let mut text = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: flashlock\nSource: {}\n\
         Comment: The licences of the crates that are linked into the command and the library\n \
         stand in /usr/{DOCUMENTS}/THIRD-PARTY-LICENSES.gz.\n\n\
         Files: *\nCopyright: {holder}\nLicense: MIT or Apache-2.0\n\nLicense: MIT\n",
        env!("CARGO_PKG_REPOSITORY")
    );
    for line in terms.trim().lines() {
        writeln!(text, " {}", if line.trim().is_empty() { "." } else { line })?;
    }
    text += "\nLicense: Apache-2.0\n On Debian systems the text of this licence is in\n \
             /usr/share/common-licenses/Apache-2.0.\n";
    Ok(text)
}

/// In KiB, each file rounded up.
fn installed_size(stage: &Path) -> Result<u64> {
    Ok(files_below(stage)?.iter().map(|(_, bytes)| bytes.div_ceil(1024)).sum())
}

fn sums(stage: &Path) -> Result<String> {
    let mut arguments = vec!["--".to_owned()];
    arguments.extend(files_below(stage)?.into_iter().map(|(path, _)| path).filter(|path| !path.starts_with("DEBIAN/")));
    let mut command = Command::new("md5sum");
    command.args(arguments).current_dir(stage);
    Program::new(command, AGAINST_HANGS).run()?.successful()
}

/// Paths and sizes of all files, in order.
fn files_below(stage: &Path) -> Result<Vec<(String, u64)>> {
    let mut files = Vec::new();
    let mut todo = vec![stage.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in directory.read_dir()? {
            let path = entry?.path();
            if path.is_dir() {
                todo.push(path);
            } else if !path.is_symlink() {
                files.push((path.strip_prefix(stage)?.display().to_string(), path.metadata()?.len()));
            }
        }
    }
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_where_debian_wants_them() {
        let to = |to: &str| for_debian(File::new("x", to)).map(|file| file.to);
        assert_eq!(to("bin/flashlock").as_deref(), Some("usr/bin/flashlock"));
        assert_eq!(to("share/zsh/site-functions/_x").as_deref(), Some("usr/share/zsh/vendor-completions/_x"));
        assert_eq!(to("share/doc/flashlock/CHANGELOG.md").as_deref(), Some("usr/share/doc/flashlock/changelog"));
        assert_eq!(to("share/doc/flashlock/LICENSE-MIT"), None);
    }

    #[test]
    fn the_copyright_has_the_whole_licence() {
        let text = copyright().expect("a text");
        assert!(
            text.contains("License: MIT\n Permission is hereby granted") && text.contains("OTHER DEALINGS"),
            "{text}"
        );
    }
}
