//! Simulations, run.

use std::fs;

use assert_cmd::Command;
use flashlock_report::results::Results;
use flashlock_sim::Description;

use super::{flashlock, scratch};

/// The verb, with these arguments.
pub(crate) fn simulate(args: &[&str]) -> Command {
    let mut command = flashlock();
    command.arg("simulate").args(args);
    command
}

/// What goes to standard output; nothing else is said where no screen is.
pub(crate) fn output(args: &[&str]) -> String {
    let output = simulate(args).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.is_empty(), "{args:?}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

/// A simulation as JSON, read by the reader.
pub(crate) fn read(name: &str, args: &[&str]) -> Results {
    let file = scratch(name);
    fs::write(&file, output(&[&["--json"], args].concat())).unwrap();
    Results::read(&file).unwrap_or_else(|error| panic!("{error}"))
}

/// The shipped machine with something replaced, as a file.
pub(crate) fn machine(name: &str, from: &str, to: &str) -> String {
    let text = Description::shipped("2x18x2").unwrap();
    assert!(text.contains(from), "{from}");
    let file = scratch(name);
    fs::write(&file, text.replacen(from, to, 1)).unwrap();
    file.to_str().unwrap().to_owned()
}
