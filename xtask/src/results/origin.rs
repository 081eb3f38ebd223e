//! What a results file that is made from a checkout says of its origin: the version with its commit.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use flashlock_report::machine::Machine;
use flashlock_report::provenance::Provenance;
use flashlock_report::results::{SCHEMA, VERSION};

use crate::child::Program;
use crate::workspace;

/// Made here and now by this command.
pub(crate) fn now(command: Vec<String>) -> Result<Provenance> {
    let version = output(&workspace::command()?.display().to_string(), &["--version"])?;
    let number = version.strip_prefix("flashlock ").unwrap_or(&version);
    let made = Provenance::now(SCHEMA, VERSION, command, Machine::here(None));
    Ok(Provenance { flashlock: format!("{number}{}", commit()), ..made })
}

/// The commit, when there is one: ` (1234abc)`, with a plus sign if files have changed since.
fn commit() -> String {
    let root = workspace::root().display().to_string();
    let git = |arguments: &[&str]| output("git", &[&["-C", &root], arguments].concat()).ok();
    let Some(hash) = git(&["rev-parse", "--short", "HEAD"]) else { return String::new() };
    // What the results themselves change does not count.
    let changed = git(&["status", "--porcelain", "--", ":!docs/results"]).is_none_or(|list| !list.is_empty());
    format!(" ({hash}{})", if changed { "+" } else { "" })
}

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C");
    let done = Program::new(command, Duration::from_secs(10)).run()?;
    Ok(done.successful().with_context(|| format!("{program} fails"))?.trim().to_owned())
}
