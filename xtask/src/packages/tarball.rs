//! `cargo xtask dist`: one archive, to be unpacked anywhere.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use super::build::{Built, is_for_tests};
use super::layout;
use super::release::Release;
use super::{OUT, make_directory, permit, scratch};
use crate::child::output;
use crate::workspace;

#[derive(Args)]
pub(crate) struct Options {
    /// The directory for the archive
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let archive = make(&options.out)?;
    println!("{}: {:.1} MB", workspace::shown(&archive), archive.metadata()?.len() as f64 / 1e6);
    Ok(())
}

/// The name of an archive, and of the directory in it.
pub(super) fn names(version: &str) -> [String; 2] {
    [format!("flashlock-{version}-x86_64-linux-gnu.tar.gz"), format!("flashlock-{version}")]
}

/// Makes the archive in a directory: the same bytes whenever and by whomever the same files are packed.
pub(super) fn make(out: &Path) -> Result<PathBuf> {
    let (release, files, stage) = (Release::current()?, layout::files(&Built::get()?)?, scratch("tarball")?);
    let [archive, inside] = names(&release.version);
    permit(&stage, 0o755)?;
    layout::place(&files, &stage.join(&inside))?;
    make_directory(out)?;
    let level = if is_for_tests() { "--fast" } else { "--best" };
    let tar = std::path::absolute(out.join(archive.trim_end_matches(".gz")))?;
    let date = format!("--mtime=@{}", release.epoch);
    let same = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=ustar", &date];
    let [stage, tar_text] = [&stage, &tar].map(|path| path.display().to_string());
    output("tar", &[&["--create", "--directory", &stage, "--file", &tar_text][..], &same, &[&inside]].concat())?;
    output("gzip", &[level, "--no-name", "--force", &tar_text])?;
    Ok(tar.with_extension("tar.gz"))
}
