//! `cargo xtask races`: every lock, and every admission policy, under ThreadSanitizer.
//!
//! The sanitizer follows atomic operations by the orderings that they are written with, so that it finds on x86 what
//! only another processor would show. It sees nothing of code that was not built for it, so the standard library is
//! built, too: that, and the sanitizer itself, this compiler has for its developers only (`RUSTC_BOOTSTRAP`).

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::child::{Finished, Program};
use crate::steps::{Steps, Tally, watched};
use crate::test::count;
use crate::workspace;

const LIMIT: Duration = Duration::from_secs(1200);
/// The test that it must fail.
const CONTROL: &str = "unordered_sections";
/// What the sanitizer says of a race.
const REPORT: &str = "WARNING: ThreadSanitizer: data race";
/// An imagined machine, so that NUMA paths run.
const TOPOLOGY: &str = "2x2x1";

pub(crate) fn run() -> Result<Tally> {
    let mut steps = Steps::default();
    let triple = have_sources()?;
    steps.run("every lock and policy", || {
        let done = watched("cargo test", || races(&triple, &["--skip", CONTROL]))?;
        let mut tally = count(&done.stdout)?;
        if !done.ok() || done.stderr.contains(REPORT) {
            tally.failed = tally.failed.max(1);
            println!("{}", done.transcript());
        }
        Ok(tally)
    });
    steps.run("a lock that orders nothing is found out", || {
        let done = watched("cargo test", || races(&triple, &[CONTROL]))?;
        if done.ok() || !done.stderr.contains(REPORT) {
            bail!("the sanitizer said nothing of it:\n{}", done.transcript());
        }
        Ok(Tally::PASSED)
    });
    Ok(steps.finish())
}

/// The tests of `crates/native/tests/races.rs`, `closures.rs` and `policies.rs`, built for the sanitizer.
fn races(triple: &str, arguments: &[&str]) -> Result<Finished> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["test", "--release", "-Zbuild-std", "--target", triple, "--target-dir", "target/races"])
        // Without what prints backtraces: that would be a third of the library's compile time.
        .arg("-Zbuild-std-features=panic-unwind")
        .args([
            "--package",
            "flashlock-native",
            "--test",
            "races",
            "--test",
            "closures",
            "--test",
            "policies",
            "--",
            "--nocapture",
        ])
        .args(arguments)
        .env("RUSTC_BOOTSTRAP", "1")
        // Sooner built, and the sanitizer sees the same orderings.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("RUSTFLAGS", "-Zsanitizer=thread --cfg flashlock_races")
        .env("TSAN_OPTIONS", "halt_on_error=1")
        .env("FLASHLOCK_TOPOLOGY", TOPOLOGY)
        .current_dir(workspace::root());
    Program::new(command, LIMIT).run()
}

/// Sees to the sources of the standard library. The target's name.
fn have_sources() -> Result<String> {
    let rustc = |arguments: &[&str]| {
        let mut command = Command::new("rustc");
        command.args(arguments).current_dir(workspace::root());
        Program::new(command, LIMIT).run()?.successful()
    };
    let about = rustc(&["-vV"])?;
    let triple = about.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    let sources = PathBuf::from(rustc(&["--print", "sysroot"])?.trim()).join("lib/rustlib/src/rust/library/std");
    if !sources.exists() {
        println!("installing the sources of the standard library");
        let mut command = Command::new("rustup");
        command.args(["component", "add", "rust-src"]).current_dir(workspace::root());
        let added =
            Program::new(command, LIMIT).run().context("rust-src is missing, and there is no rustup to add it")?;
        added.successful()?;
    }
    Ok(triple.to_owned())
}
