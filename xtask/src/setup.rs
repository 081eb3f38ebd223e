//! `cargo xtask setup`: the Debian packages that the other tasks need.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::apps;
use crate::child::Program;
use crate::system;

/// What conformance, torture, mallocs, delegated, instructions, glibc and packages need.
const BASE: [&str; 19] = [
    "clang",
    "gcc",
    "g++",
    "libc6-dev",
    "valgrind",
    "libjemalloc2",
    "libmemcached-tools",
    "libtcmalloc-minimal4",
    "debian-archive-keyring",
    "binutils",
    "dpkg-dev",
    "fish",
    "git",
    "lintian",
    "man-db",
    "netcat-openbsd",
    "pkgconf",
    "util-linux",
    "zsh",
];

#[derive(Args)]
pub(crate) struct Options {
    /// Also install the programs that `cargo xtask apps` runs, or only those of `cargo xtask apps --quick`
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "wide")]
    apps: Option<Apps>,
}

/// How many of the applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Apps {
    /// All: about 200 packages, 1 GB
    Wide,
    /// Those that `--quick` runs
    Quick,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut wanted = BASE.to_vec();
    if let Some(apps) = options.apps {
        wanted.extend(apps::packages(apps == Apps::Quick));
        wanted.sort_unstable();
        wanted.dedup();
    }
    install(wanted)
}

/// Installs those of these Debian packages that are missing.
pub(crate) fn install(wanted: Vec<&str>) -> Result<()> {
    let missing: Vec<&str> = wanted.into_iter().filter(|package| !is_installed(package)).collect();
    if missing.is_empty() {
        println!("all packages are installed");
        return Ok(());
    }
    let list = missing.join(" ");
    if !system::is_root() {
        bail!("these packages are missing, and only root can install them: {list}");
    }
    if Command::new("apt-get").arg("--version").output().is_err() {
        bail!("these packages (by their Debian names) are missing, and there is no apt-get to install them: {list}");
    }
    println!("installing: {list}");
    apt_get(&["update"])?;
    apt_get(&[&["install", "-y", "--no-install-recommends"], missing.as_slice()].concat())?;
    match missing.into_iter().find(|package| !is_installed(package)) {
        Some(package) => bail!("apt-get succeeded, but {package} is still not installed"),
        None => Ok(()),
    }
}

/// Waits while another program, as those that run daily on a fresh machine, holds apt's locks.
fn apt_get(arguments: &[&str]) -> Result<()> {
    const TRIES: u32 = 60;
    for again in (0..TRIES).rev() {
        let mut command = Command::new("apt-get");
        command.args(["-o", "DPkg::Lock::Timeout=600"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        let done = Program::new(command, Duration::from_secs(3600)).run()?;
        if again == 0 || !done.stderr.contains("Could not get lock") {
            done.successful()?;
            break;
        }
        println!("apt's lists are locked by another program");
        thread::sleep(Duration::from_secs(10));
    }
    Ok(())
}

/// An error that names those of the packages that are not there, and how to get them.
pub(crate) fn require<'a>(packages: impl IntoIterator<Item = &'a str>, how: &str) -> Result<()> {
    let missing: Vec<&str> = packages.into_iter().filter(|package| !is_installed(package)).collect();
    if !missing.is_empty() {
        bail!("these packages are missing: {} ({how})", missing.join(" "));
    }
    Ok(())
}

/// An error that names those of these programs that cannot be called.
pub(crate) fn require_programs<'a>(programs: impl IntoIterator<Item = &'a &'a str>) -> Result<()> {
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let missing: Vec<&str> = programs.into_iter().copied().filter(|program| !is_there(program)).collect();
    if !missing.is_empty() {
        bail!("these programs are missing: {} (cargo xtask setup)", missing.join(" "));
    }
    Ok(())
}

/// Whether dpkg knows the package as installed.
pub(crate) fn is_installed(package: &str) -> bool {
    let query = Command::new("dpkg-query").args(["--show", "--showformat=${Status}", package]).output();
    query.is_ok_and(|answer| answer.status.success() && answer.stdout == b"install ok installed")
}
