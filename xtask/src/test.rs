//! `cargo xtask test`: everything that a fresh machine can run, in order; a failing step does not stop the next.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::child::Program;
use crate::conformance;
use crate::delegated;
use crate::locks::{self, Chosen};
use crate::options;
use crate::regret;
use crate::steps::{Steps, Tally};
use crate::torture;
use crate::workspace::{self, TOGETHER};

#[derive(Args)]
pub(crate) struct Options {
    /// Run conformance and torture only under the default lock, and torture for a shorter time
    #[arg(long)]
    quick: bool,
    /// Leave out the model tests, which `cargo xtask models` runs
    #[arg(long)]
    no_models: bool,
    /// Run only the steps whose names contain this (may be repeated)
    #[arg(long, value_name = "TEXT")]
    step: Vec<String>,
}

/// What is checked of the locks that are not principal ([`locks::tiers`]): under each, all checks of the areas that
/// found faults in just these locks, …
const OF_EACH: [&str; 3] = ["mapped.*", "exit.memory_*", "owner.*"];
/// … and a part of the checks of mutexes, condition variables and forks, and of `alone.*`, which forks often.
///
/// Not `signals.*`, which takes 1.5 s or more for the 18 checks that a lock is not excepted from. Nor `slow_motion.*`,
/// which takes ten times as long. Nor the areas that are mostly about what is the same under all locks (`malloc.*`,
/// `sandbox.*`, `threads.*`, the others of `exit.*`, and more). `cargo xtask full conformance` runs everything.
const IN_BRIEF: [&str; 4] = ["mutex_*", "cond_*", "fork.*", "alone.*"];
/// Under one lock, one of so many of these checks runs; under the next lock, the next ones: there are 16 locks, made of
/// the same parts.
const IN_BRIEF_SHARE: usize = 5;
/// They have the torture with more threads than CPUs.
const IN_BRIEF_THREADS: u32 = 8;

/// A lock that hands over strictly. Under it and the default lock, 100,000 threads come and go. It takes four seconds
/// each, and ten times as long beside other programs.
const STRICT: &str = "mcs";

/// The package of the model tests.
const MODELS: &str = "flashlock-model";

/// A lock, a policy and a workload outside the workspace.
const OWN: &str = "examples/own-lock";
/// It has fewer lines of code than this, as `docs/adding.md` says.
const OWN_LINES: usize = 150;

/// The name of the step that waits for the model tests.
const BESIDE: &str = "model tests, which ran beside";

const MINUTE: Duration = Duration::from_secs(60);

pub(crate) fn run(options: &Options) -> Result<Tally> {
    let mut steps = Steps::only(&options.step);
    // The tests of the command run target/release; `cargo test` does not build the preload library.
    steps.run("release build", || workspace::build().map(|()| Tally::PASSED));
    steps.run("unit tests", unit_tests);
    steps.run("unit tests of locks, unoptimised", || {
        cargo_test(Command::new(cargo()), &["--package", "flashlock-locks", "--lib"])
    });
    steps.run("examples in the documentation", || {
        cargo_test(Command::new(cargo()), &[&TOGETHER[..], &["--doc"]].concat())
    });
    steps.run("example: a lock of your own", own_lock);
    steps.run("unit tests of xtask", || cargo_test(Command::new(cargo()), &["--release", "--package", "xtask"]));
    // The model checkers need a CPU and no clock; what follows sleeps much, and measures time. So they have what that
    // leaves over.
    let beside = (!options.no_models && steps.include(BESIDE)).then(|| thread::spawn(|| model_tests(idle_cargo())));
    let [principal, further] = if options.quick { [vec![locks::default_name()?], Vec::new()] } else { locks::tiers()? };
    let threads: &[u32] = if options.quick { &[2, 8] } else { &[2, 64] };
    let all = || Chosen::of(principal.clone());
    steps.run("conformance", || conformance::run(&conformance::Options::brief(all())));
    steps.run("conformance, counted", conformance::counted);
    steps.run("torture", || torture::run(&torture::Options::brief(all(), threads)));
    let default = locks::default_name()?;
    let two = principal.iter().filter(|lock| **lock == default || *lock == STRICT).cloned().collect();
    steps.run("short-lived threads", || torture::run_locks(&torture::Options::short_lived(Chosen::of(two))));
    if !further.is_empty() {
        let [each, brief] = [&OF_EACH[..], &IN_BRIEF].map(|globs| globs.iter().map(|&glob| glob.to_owned()).collect());
        let further = || Chosen::of(further.clone());
        steps.run("further locks: conformance of each", || {
            conformance::run(&conformance::Options::share(further(), each, 1))
        });
        steps.run("further locks: conformance", || {
            conformance::run(&conformance::Options::share(further(), brief, IN_BRIEF_SHARE))
        });
        steps.run("further locks: torture", || {
            torture::run_locks(&torture::Options::some(further(), Vec::new(), IN_BRIEF_THREADS))
        });
    }
    steps.run("options", || options::run(options::Extent::Brief));
    steps.run("delegated locks from C and C++", delegated::run);
    steps.run("regret", regret::smoke);
    if let Some(beside) = beside {
        steps.run(BESIDE, || match beside.join() {
            Ok(tally) => tally,
            Err(_) => bail!("cannot run them"),
        });
    }
    if options.quick {
        println!("--quick: of the steps above, conformance and torture ran under glibc and the default lock only");
    }
    if options.no_models {
        println!("--no-models: the model tests are left to `cargo xtask models`");
    }
    Ok(steps.finish())
}

/// The model tests.
pub(crate) fn models() -> Result<Tally> {
    model_tests(Command::new(cargo()))
}

fn model_tests(cargo: Command) -> Result<Tally> {
    let chosen = chosen(|package, _| package == MODELS)?;
    cargo_test(cargo, &chosen.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A `cargo` with the CPU time that no other process wants. (`nice` would not do: on some kernels a thread that is
/// woken, as those of other tests are all the time, would wait for the end of a time slice.)
fn idle_cargo() -> Command {
    let mut idle = Command::new("chrt");
    idle.args(["--idle", "0"]).arg(cargo());
    idle
}

/// The torture of the simulated locks, and the catalogue's claims about them.
pub(crate) fn simulated() -> Result<Tally> {
    let tests = ["runs", "rw", "claims"].into_iter().flat_map(|test| ["--test", test]);
    let arguments: Vec<&str> = ["--release", "--package", "flashlock-sim"].into_iter().chain(tests).collect();
    cargo_test(Command::new(cargo()), &arguments)
}

/// [`OWN`], with the versions of the workspace, so that nothing is downloaded. Unoptimised: with optimisation, most of
/// its dependencies would be built anew, because the workspace asks other features of them.
fn own_lock() -> Result<Tally> {
    let lines = lines_of_code(&workspace::path(OWN).join("src"))?;
    if lines >= OWN_LINES {
        bail!("{OWN} has {lines} lines of code: make it less than {OWN_LINES}");
    }
    let [ours, its] = ["", OWN].map(|directory| workspace::path(directory).join("Cargo.lock"));
    std::fs::copy(&ours, &its).with_context(|| format!("cannot write {}", its.display()))?;
    cargo_test(Command::new(cargo()), &["--manifest-path", &format!("{OWN}/Cargo.toml"), "--target-dir", "target"])
}

/// How many lines the sources in this directory have, without blank lines and comments.
fn lines_of_code(directory: &Path) -> Result<usize> {
    let mut lines = 0;
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let text = std::fs::read_to_string(entry?.path())?;
        lines += text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    }
    Ok(lines)
}

/// All tests but those of the models, of `xtask` and of the documentation.
fn unit_tests() -> Result<Tally> {
    let mut chosen = chosen(|package, _| package != MODELS)?;
    // `erased` has no unit tests, and takes long to compile.
    chosen.extend(["--lib", "--bins", "--exclude", "flashlock-erased"].map(str::to_owned));
    cargo_test(Command::new(cargo()), &chosen.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The test programs for which `is_meant` returns true, given package and name, as arguments for `cargo test`.
fn chosen(is_meant: impl Fn(&str, &str) -> bool) -> Result<Vec<String>> {
    let metadata = workspace::cargo(&["metadata", "--no-deps", "--format-version", "1"], MINUTE)?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).context("cannot read `cargo metadata`")?;
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let mut chosen: Vec<String> = TOGETHER.iter().chain(&["--no-fail-fast"]).map(|word| (*word).to_owned()).collect();
    for package in list(&metadata["packages"]) {
        let of = package["name"].as_str().context("a package without a name in `cargo metadata`")?;
        for target in list(&package["targets"]).iter().filter(|target| of != "xtask" && target["kind"][0] == "test") {
            let name = target["name"].as_str().context("a test without a name in `cargo metadata`")?;
            if is_meant(of, name) {
                chosen.extend(["--test".to_owned(), name.to_owned()]);
            }
        }
    }
    Ok(chosen)
}

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs this `cargo` with `test`, and adds up the tests of all its programs.
fn cargo_test(mut command: Command, arguments: &[&str]) -> Result<Tally> {
    command.arg("test").args(arguments).current_dir(workspace::root());
    // Against tests that hang: the models, which run beside all others, may take forty minutes; in full, hours.
    let done = Program::new(command, 24 * 60 * MINUTE).run()?;
    let mut tally = count(&done.stdout)?;
    if !done.ok() {
        // A test program that does not compile or crashes says nothing that could be counted.
        tally.failed = tally.failed.max(1);
        println!("{}", done.transcript());
    }
    Ok(tally)
}

/// Adds up the lines `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
pub(crate) fn count(output: &str) -> Result<Tally> {
    let mut tally = Tally::default();
    for line in output.lines().filter(|line| line.starts_with("test result: ")) {
        let number = |word: &str| -> Result<usize> {
            let words: Vec<&str> = line.split([' ', ';']).filter(|word| !word.is_empty()).collect();
            let at = words.iter().position(|other| *other == word).filter(|at| *at > 0);
            at.and_then(|at| words[at - 1].parse().ok())
                .with_context(|| format!("no number before `{word}` in: {line}"))
        };
        tally += Tally { passed: number("passed")?, failed: number("failed")?, skipped: number("ignored")? };
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_all_programs() {
        let output = "running 3 tests\n\
             test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.20s\n\
             test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s\n";
        assert_eq!(count(output).expect("two results"), Tally { passed: 5, failed: 4, skipped: 1 });
    }

    #[test]
    fn a_result_that_cannot_be_read_is_an_error() {
        assert!(count("test result: fine\n").is_err());
    }
}
