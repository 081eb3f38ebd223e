//! Interpreters: CPython's queues, conditions, barriers and pools; Perl's shared variables.

use std::ffi::OsString;

use anyhow::Result;

use super::counts::Needs;
use super::run::{Facts, Run};
use super::stage::source_path;
use super::{App, Quick};

pub(crate) const PYTHON: App = App {
    name: "python",
    packages: &["python3"],
    quick: Quick::Always,
    sources: &[],
    // Threads wait on a condition variable for the interpreter's own lock: how often, depends on when they happen to
    // run.
    needs: &[Needs::MutexLock(10_000), Needs::CondWait(10), Needs::SemWait(10_000)],
    run: |run| script(run, "/usr/bin/python3", "queues.py", 20_000, &["queue", "condition", "barrier", "pool"]),
};

pub(crate) const PERL: App = App {
    name: "perl",
    packages: &["perl"],
    quick: Quick::Always,
    sources: &[],
    needs: &[Needs::MutexLock(50_000), Needs::CondWait(1000)],
    run: |run| script(run, "/usr/bin/perl", "shared.pl", 8_000, &["queue", "turns"]),
};

/// Runs a script that moves the numbers from 0 to `items` - 1 through its threads in several parts: all must arrive
/// once.
fn script(run: &Run, interpreter: &str, name: &str, items: i64, parts: &[&str]) -> Result<()> {
    let arguments = [run.threads.to_string(), items.to_string()].map(OsString::from);
    let command = [interpreter.into(), source_path(name).into()].into_iter().chain(arguments);
    let done = run.wrapped::<OsString>(command)?;
    for part in parts {
        let facts = Facts::of(&done, &format!("part={part} "))?;
        facts.expect("items", items)?;
        facts.expect("sum", items * (items - 1) / 2)?;
    }
    Ok(())
}
