//! `cargo xtask miri`: every lock under Miri.
//!
//! Miri runs the unit tests of `flashlock-locks` on a machine of plain atomics (`locks/src/machine/bench.rs`), checks
//! each access against Rust's rules of memory, and lets loads return old values wherever their orderings allow that.
//! Only nightly Rust has it; this task adds it by rustup if it is missing.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::child::{self, Finished, Program};
use crate::steps::{Steps, Tally, watched};
use crate::test::count;
use crate::workspace;

const LIMIT: Duration = Duration::from_secs(1800);
/// The test that Miri must fail.
const CONTROL: &str = "unordered_sections";
/// What Miri says of a race.
const REPORT: &str = "Data race detected";

pub(crate) fn run() -> Result<Tally> {
    let mut steps = Steps::default();
    have_miri()?;
    // Each seed is another schedule, and another choice of old values.
    let seeds: u32 = if child::is_exhaustive() { 16 } else { 1 };
    for seed in 0..seeds {
        steps.run(&format!("every lock, seed {seed}"), || {
            let done = watched("cargo miri test", || test(seed, &[]))?;
            if !done.ok() {
                bail!("{}", done.transcript());
            }
            count(&done.stdout)
        });
    }
    steps.run("a lock that orders nothing is found out", || {
        let done = watched("cargo miri test", || test(0, &["--ignored", CONTROL]))?;
        if done.ok() || !(done.stderr.contains(REPORT) || done.stdout.contains(REPORT)) {
            bail!("Miri said nothing of it:\n{}", done.transcript());
        }
        Ok(Tally::PASSED)
    });
    Ok(steps.finish())
}

fn test(seed: u32, arguments: &[&str]) -> Result<Finished> {
    let mut command = Command::new("cargo");
    command
        .args(["+nightly", "miri", "test", "--target-dir", "target/miri", "--package", "flashlock-locks", "--lib"])
        .args(["--", "--test-threads=1"])
        .args(arguments)
        // Nodes keep the addresses of requests in two words, so provenance is exposed.
        .env("MIRIFLAGS", format!("-Zmiri-permissive-provenance -Zmiri-seed={seed}"))
        .current_dir(workspace::root());
    Program::new(command, LIMIT).run()
}

fn have_miri() -> Result<()> {
    let rustup = |arguments: &[&str]| {
        let mut command = Command::new("rustup");
        command.args(arguments).current_dir(workspace::root());
        Program::new(command, LIMIT).run().context("Miri is added by rustup, and there is none")
    };
    if rustup(&["run", "nightly", "cargo", "miri", "--version"])?.ok() {
        return Ok(());
    }
    println!("installing nightly Rust with Miri");
    rustup(&["toolchain", "install", "nightly", "--profile", "minimal", "-c", "miri", "-c", "rust-src"])?
        .successful()?;
    Ok(())
}
