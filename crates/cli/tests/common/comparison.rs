//! What tests of `flashlock compare` share.

use flashlock_report::results::Results;

use super::{flashlock, scratch};

/// Two locks that every catalogue has.
pub(crate) const LOCKS: &str = "shfl,mcs";
/// The exit status if there is an answer, and if a busy machine did not get that far in the time given.
pub(crate) const ANSWER_OR_NONE: &[i32] = &[0, 3];

/// The command.
pub(crate) fn compare(args: &[&str]) -> assert_cmd::Command {
    let mut command = flashlock();
    command.arg("compare").args(args);
    command
}

/// A comparison as JSON, read by the reader.
pub(crate) fn read(name: &str, args: &[&str]) -> (i32, Results) {
    let output = compare(&["--json"]).args(args).output().unwrap();
    let file = scratch(name);
    std::fs::write(&file, &output.stdout).unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), Results::read(&file).unwrap_or_else(|error| panic!("{error}\n{complaint}")))
}
