//! The tasks of this repository, run as `cargo xtask TASK`. One module for each task; what they share is in `child`,
//! `steps`, `locks`, `verdicts`, `suite` and `workspace`.
//!
//! Exit status: 0 all is well, 1 a check failed or something is missing, 2 wrong usage, 130 interrupted.

#![deny(unsafe_code)]

mod apps;
mod apt;
mod atomics;
mod bound;
mod child;
mod conformance;
mod delegated;
mod docs;
mod edit;
mod faults;
mod fidelity;
mod files;
mod full;
mod glibc;
mod idle;
mod instructions;
mod kernel;
mod locks;
mod mallocs;
mod miri;
mod options;
mod packages;
mod races;
mod regret;
mod results;
mod setup;
mod speed;
mod steps;
mod suite;
mod system;
mod test;
mod torture;
mod verdicts;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use steps::Tally;

/// The tasks of this repository
#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install the Debian packages that the other tasks need
    Setup(setup::Options),
    /// Run all tests that a fresh machine can run
    Test(test::Options),
    /// Run all exhaustive tests, which takes hours
    Full(full::Options),
    /// Run only the model tests: every lock under loom and shuttle
    Models,
    /// Run the pthread conformance suite under glibc and under every lock
    Conformance(conformance::Options),
    /// Run parts of the conformance suite under `flashlock run --stats`, and check that each kind of event is counted
    Counted,
    /// Test delegated locks in C and C++, with every supported standard, with gcc and clang
    Delegated,
    /// Run the torture program under glibc and under every lock, and under a broken lock, which must fail
    Torture(torture::Options),
    /// Run parts of both suites under locks with options, on an imagined machine, and check that the options take
    /// effect
    Options,
    /// Run the conformance suite together with other allocators
    Mallocs(mallocs::Options),
    /// Run conformance and torture on other versions of glibc, from Debian's archive
    Glibc(glibc::Options),
    /// Count how many critical sections of other threads a thread waits for, under the locks that promise a bound
    Bound(bound::Options),
    /// Measure what blocked threads cost under glibc and under every lock: CPU time and context switches
    Idle(idle::Options),
    /// Run every lock and every admission policy under ThreadSanitizer
    Races,
    /// Run every lock under Miri, which knows all of Rust's rules of memory
    Miri,
    /// Run real programs under glibc and under some locks, and check their output
    Apps(apps::Options),
    /// Check by instruction counts that unused statistics cost nothing, and a lock and unlock no more than glibc's
    Instructions(instructions::Options),
    /// Check that uncontended acquisitions and releases execute as many atomic instructions as the catalogue says
    Atomics(atomics::Options),
    /// Make result files: benchmarks under glibc and under every lock
    Results(results::Options),
    /// Measure our locks and those that programs embed, over a grid of sections and threads, and show which was better
    Regret(regret::Options),
    /// Compare the simulator with what papers measured, and write docs/fidelity.md
    Fidelity(fidelity::Options),
    /// Test the Linux kernel with CNA in its spinlock: apply the patch series of kernel/, compile it, and torture it in
    /// a guest
    Kernel(kernel::Options),
    /// Measure the speed of the simulator: steps in a second of CPU time, by workload and machine
    Speed(speed::Options),
    /// Make the generated documents, or check that they are up to date
    Docs(docs::Options),
    /// Install the command, the preload library, man pages and completions below a prefix
    Install(packages::install::Options),
    /// Remove what `install` installed below a prefix
    Uninstall(packages::install::Place),
    /// Make an archive that can be unpacked anywhere
    Dist(packages::tarball::Options),
    /// Make a Debian package
    Deb(packages::deb::Options),
    /// Try all ways of installing in fresh roots, and check what the README says about them
    Packages(packages::trial::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match child::end_programs_on_interrupt().and_then(|()| perform(&cli.task)) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(tally)) => {
            println!("{tally}");
            if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a task. One that counts checks hands back how many passed and failed; the others fail by an error.
fn perform(task: &Task) -> Result<Option<Tally>> {
    match task {
        Task::Setup(options) => setup::run(options).map(|()| None),
        Task::Test(options) => test::run(options).map(Some),
        Task::Full(options) => full::run(options).map(Some),
        Task::Models => test::models().map(Some),
        Task::Conformance(options) => conformance::run(options).map(Some),
        Task::Counted => conformance::counted().map(Some),
        Task::Delegated => delegated::run().map(Some),
        Task::Torture(options) => torture::run(options).map(Some),
        Task::Options => options::run(options::Extent::Full).map(Some),
        Task::Mallocs(options) => mallocs::run(options).map(Some),
        Task::Glibc(options) => glibc::run(options).map(Some),
        Task::Bound(options) => bound::run(options).map(Some),
        Task::Idle(options) => idle::run(options).map(Some),
        Task::Races => races::run().map(Some),
        Task::Miri => miri::run().map(Some),
        Task::Apps(options) => apps::run(options).map(Some),
        Task::Instructions(options) => instructions::run(options).map(Some),
        Task::Atomics(options) => atomics::run(options).map(Some),
        Task::Results(options) => results::run(options).map(|()| None),
        Task::Regret(options) => regret::run(options).map(|()| None),
        Task::Fidelity(options) => fidelity::run(options),
        Task::Kernel(options) => kernel::run(options).map(Some),
        Task::Speed(options) => speed::run(options).map(|()| None),
        Task::Docs(options) => docs::run(options).map(|()| None),
        Task::Install(options) => packages::install::run(options).map(|()| None),
        Task::Uninstall(place) => packages::install::uninstall(place).map(|()| None),
        Task::Dist(options) => packages::tarball::run(options).map(|()| None),
        Task::Deb(options) => packages::deb::run(options).map(|()| None),
        Task::Packages(options) => packages::trial::run(options).map(Some),
    }
}
