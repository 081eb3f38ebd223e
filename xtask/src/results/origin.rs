//! What a results file that is made from a checkout says of its origin: the version with its commit.

use anyhow::Result;
use flashlock_report::machine::Machine;
use flashlock_report::provenance::Provenance;
use flashlock_report::results::{Results, SCHEMA, VERSION};

use crate::child::output;
use crate::files;
use crate::workspace;

/// Made here and now by this command.
pub(crate) fn now(command: Vec<String>) -> Result<Provenance> {
    let version = output(workspace::command()?, &["--version"])?;
    let number = version.strip_prefix("flashlock ").unwrap_or(&version).trim();
    let made = Provenance::now(SCHEMA, VERSION, command, Machine::here(None));
    Ok(Provenance { flashlock: format!("{number}{}", commit()), ..made })
}

/// The results that a program printed as JSON.
pub(crate) fn results_in(text: &str) -> Result<Results> {
    let file = workspace::scratch("results")?.join("printed.json");
    files::write(&file, text)?;
    Ok(Results::read(&file)?)
}

/// The commit, when there is one: ` (1234abc)`, with a plus sign if files have changed since.
fn commit() -> String {
    let root = workspace::root().display().to_string();
    let git = |arguments: &[&str]| output("git", &[&["-C", &root], arguments].concat()).ok();
    let Some(hash) = git(&["rev-parse", "--short", "HEAD"]) else { return String::new() };
    let hash = hash.trim();
    // What the results themselves change does not count.
    let changed = git(&["status", "--porcelain", "--", ":!docs/results"]).is_none_or(|list| !list.is_empty());
    format!(" ({hash}{})", if changed { "+" } else { "" })
}
