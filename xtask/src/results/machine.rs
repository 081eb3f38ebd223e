//! Which machine, which software, which day: what every results file begins with.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::child::Program;
use crate::workspace;

#[derive(Serialize)]
pub(crate) struct Machine {
    pub(crate) model: String,
    pub(crate) cpus: String,
    pub(crate) numa_nodes: String,
    pub(crate) kernel: String,
    pub(crate) glibc: String,
    pub(crate) flashlock: String,
    /// UTC, year-month-day.
    pub(crate) date: String,
}

impl Machine {
    pub(crate) fn this() -> Result<Self> {
        let lscpu = output("lscpu", &[])?;
        let fact = |name: &str| {
            let value = lscpu.lines().find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name));
            value.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
        };
        let version = output(&workspace::command()?.display().to_string(), &["--version"])?;
        Ok(Self {
            model: fact("Model name"),
            cpus: fact("CPU(s)"),
            numa_nodes: fact("NUMA node(s)"),
            kernel: output("uname", &["-sr"])?,
            glibc: output("getconf", &["GNU_LIBC_VERSION"])?,
            flashlock: format!("{version}{}", commit()),
            date: output("date", &["-u", "+%Y-%m-%d"])?,
        })
    }
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
