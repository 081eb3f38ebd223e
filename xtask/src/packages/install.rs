//! `cargo xtask install` and `cargo xtask uninstall`.
//!
//! What was installed, and which directories had to be made for it, stands in a file below the prefix, and that is
//! removed: no more, and also if this tree has another list by then.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::build::Built;
use super::layout::{self, File, LIBRARIES, ZSH};
use super::{embedded, make_directory, scratch};

use crate::files;

const MANIFEST: &str = "lib/flashlock/manifest";
const MANIFEST_HEAD: &str = "# Written by `cargo xtask install`, for `cargo xtask uninstall`.\n";

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Remove what is installed there
    #[arg(long)]
    uninstall: bool,
}

/// Where.
#[derive(Args)]
pub(crate) struct Place {
    /// The directory that gets bin, lib and share
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    prefix: PathBuf,
    /// For packagers: treat DIR as the root of the file system
    #[arg(long, value_name = "DIR")]
    destdir: Option<PathBuf>,
}

impl Place {
    /// The prefix as users will know it, and where it is now.
    fn get(&self) -> Result<(PathBuf, PathBuf)> {
        let prefix = std::path::absolute(&self.prefix).context("the prefix is no path")?;
        let text = prefix.to_str().with_context(|| format!("{} is not UTF-8", prefix.display()))?;
        if text.contains([' ', '\t', '\n', ':']) {
            bail!(
                "cannot install below {text}: the dynamic linker cannot preload a library whose path has blanks or \
                 colons; choose another --prefix"
            );
        }
        let now = match &self.destdir {
            Some(root) => root.join(prefix.strip_prefix("/").unwrap_or(&prefix)),
            None => prefix.clone(),
        };
        Ok((prefix, std::path::absolute(now)?))
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.uninstall {
        return uninstall(&options.place);
    }
    let (prefix, now) = options.place.get()?;
    let files = layout::files(&Built::get()?)?;
    install(&files, &now).with_context(|| {
        format!("cannot install below {}: choose a --prefix of your own, such as ~/.local, or be root", now.display())
    })?;
    println!("{} files are installed below {}", files.len(), now.display());
    if options.place.destdir.is_none() {
        advise(&prefix);
    }
    Ok(())
}

pub(crate) fn uninstall(place: &Place) -> Result<()> {
    let (_, now) = place.get()?;
    let removed = remove(&now)?;
    println!("{removed} files were removed from {}", now.display());
    Ok(())
}

/// What the user's shell has to know, if it does not yet.
fn advise(prefix: &Path) {
    let bin = prefix.join("bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|directory| directory == bin) {
        println!("your PATH does not have it yet: export PATH=\"{}:$PATH\"", bin.display());
    }
    if ![Path::new("/usr"), Path::new("/usr/local")].contains(&prefix) {
        println!("zsh finds its completions after: fpath+=({}), before compinit", prefix.join(ZSH).display());
        println!("C and C++ programs with delegated locks are linked with:\n{}", embedded::command(prefix));
    }
}

/// What a manifest says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Manifest {
    files: BTreeSet<String>,
    /// Directories that were made for them.
    directories: BTreeSet<String>,
}

impl Manifest {
    /// `None`: there is none.
    fn below(prefix: &Path) -> Result<Option<Self>> {
        let file = prefix.join(MANIFEST);
        if !file.exists() {
            return Ok(None);
        }
        Self::parse(&files::read(&file)?).with_context(|| format!("{} cannot be used", file.display())).map(Some)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut manifest = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (kind, path) = line.split_once(' ').with_context(|| format!("cannot read the line '{line}'"))?;
            let is_inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
            if !is_inside || path.is_empty() {
                bail!("{path} is not below the prefix");
            }
            match kind {
                "file" => manifest.files.insert(path.to_owned()),
                "directory" => manifest.directories.insert(path.to_owned()),
                _ => bail!("cannot read the line '{line}'"),
            };
        }
        Ok(manifest)
    }

    fn text(&self) -> Result<String> {
        let mut text = MANIFEST_HEAD.to_owned();
        for directory in &self.directories {
            writeln!(text, "directory {directory}")?;
        }
        for file in &self.files {
            writeln!(text, "file {file}")?;
        }
        Ok(text)
    }
}

/// Puts the files below the prefix, and removes those of an earlier version that this one does not have.
fn install(files: &[File], prefix: &Path) -> Result<()> {
    let old = Manifest::below(prefix)?.unwrap_or_default();
    let mut new = Manifest { files: files.iter().map(|file| file.to.clone()).collect(), directories: old.directories };
    let mut made = make_directory(&prefix.join(LIBRARIES))?;
    made.extend(layout::place(files, prefix)?);
    // The prefix itself, and what is above it, stays.
    let made = made.iter().filter_map(|directory| directory.strip_prefix(prefix).ok()).filter_map(Path::to_str);
    new.directories.extend(made.filter(|directory| !directory.is_empty()).map(str::to_owned));
    for file in old.files.difference(&new.files) {
        remove_file(&prefix.join(file))?;
    }
    let text = scratch("manifest")?.join("manifest");
    files::write(&text, new.text()?)?;
    layout::place(&[File::into(LIBRARIES, text)], prefix)?;
    Ok(())
}

/// Removes what was installed below the prefix; how many files there were.
fn remove(prefix: &Path) -> Result<usize> {
    let manifest = Manifest::below(prefix)?.with_context(|| {
        format!(
            "cannot uninstall: {} does not exist, so `cargo xtask install` has installed nothing below {}",
            prefix.join(MANIFEST).display(),
            prefix.display()
        )
    })?;
    let mut removed = 0;
    for file in &manifest.files {
        removed += usize::from(remove_file(&prefix.join(file))?);
    }
    remove_file(&prefix.join(MANIFEST))?;
    // The inner ones first.
    for directory in manifest.directories.iter().rev() {
        match fs::remove_dir(prefix.join(directory)) {
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => {
                return Err(error).with_context(|| format!("cannot remove {}", prefix.join(directory).display()));
            }
            _ => {}
        }
    }
    Ok(removed)
}

/// Whether it was there.
fn remove_file(file: &Path) -> Result<bool> {
    match fs::remove_file(file) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot remove {}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything(below: &Path) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut todo = vec![below.to_owned()];
        while let Some(directory) = todo.pop() {
            for entry in directory.read_dir().expect("a directory").map(|entry| entry.expect("readable").path()) {
                found.insert(entry.strip_prefix(below).expect("below").display().to_string());
                if entry.is_dir() {
                    todo.push(entry);
                }
            }
        }
        found
    }

    #[test]
    fn what_is_removed_is_what_was_installed() {
        let directory = scratch("test-install").expect("a directory");
        let (source, prefix) = (directory.join("source"), directory.join("prefix"));
        files::write(&source, "x").expect("written");
        fs::create_dir_all(prefix.join("share/man")).expect("made");
        fs::create_dir_all(prefix.join("share/empty")).expect("made");
        let before = everything(&prefix);
        let file = |to: &str| File::new(&source, to);
        install(&[file("bin/flashlock"), file("share/man/man1/x.1"), file("share/old/x")], &prefix).expect("installed");
        assert!(prefix.join("share/old/x").exists());
        // Another version, and a foreign file in a directory that was made.
        install(&[file("bin/flashlock"), file("share/man/man1/x.1"), file("share/new/x")], &prefix).expect("installed");
        assert!(!prefix.join("share/old/x").exists() && prefix.join("share/new/x").exists());
        files::write(&prefix.join("share/man/man1/other.1"), "x").expect("written");
        assert_eq!(remove(&prefix).expect("removed"), 3);
        let mut expected = before;
        expected.extend(["share/man/man1", "share/man/man1/other.1"].map(str::to_owned));
        assert_eq!(everything(&prefix), expected);
        assert!(remove(&prefix).unwrap_err().to_string().contains("has installed nothing"));
    }

    #[test]
    fn a_manifest_names_nothing_outside() {
        for line in ["file ../x", "file /etc/passwd", "file a/../../x", "file ", "link x", "x"] {
            assert!(Manifest::parse(line).is_err(), "{line}");
        }
        let manifest = Manifest::parse("# x\nfile a/b\ndirectory a\n").expect("valid");
        assert_eq!(Manifest::parse(&manifest.text().expect("text")).expect("valid"), manifest);
    }

    #[test]
    fn a_prefix_that_cannot_be_preloaded_from_is_refused() {
        let place = |prefix: &str| Place { prefix: prefix.into(), destdir: Some("/a b".into()) }.get();
        assert!(place("/opt/a b").unwrap_err().to_string().contains("choose another --prefix"));
        assert_eq!(place("/opt").expect("valid"), ("/opt".into(), "/a b/opt".into()));
    }
}
