//! Whether the checks that `docs/promises.md` names exist, and those that the catalogue names in its exceptions.
//!
//! A check stands in backticks in the second or fourth column of a table: `conformance NAME`, `torture NAME`, both with
//! `*` for anything, `FILE.rs::NAME` or `FILE.rs` below `crates/`, or `cargo xtask NAME`. Anything else there is prose.

use std::process::Command;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::child::{AGAINST_HANGS, Program};
use crate::locks::{Exception, Lock};
use crate::{Cli, torture, workspace};

const PAGE: &str = "docs/promises.md";

/// What exists.
pub(super) struct Known {
    pub(super) conformance: Vec<String>,
    pub(super) torture: Vec<String>,
    pub(super) tasks: Vec<String>,
    /// What a file below `crates/` says, if there is one.
    pub(super) source: fn(&str) -> Option<String>,
}

/// What is wrong with the page and with the exceptions, in words.
pub(super) fn broken(known: &Known, locks: &[Lock]) -> Result<Vec<String>> {
    let page = std::fs::read_to_string(workspace::path(PAGE)).context(PAGE)?;
    let mut broken = known.broken_in(&page);
    for lock in locks {
        let stale = lock.exceptions.iter().filter(|exception| !known.covers(exception));
        broken.extend(
            stale.map(|exception| format!("{}: the exception `{}` is about no check", lock.name, exception.check)),
        );
    }
    Ok(broken)
}

/// The checks that a test program lists: the first word of each line.
fn listed(name: &str, out: &str) -> Result<Vec<String>> {
    let mut command = Command::new(workspace::build_tests(name, out)?.join(name));
    command.arg("--list").env("CONFORMANCE_FIFO", "1");
    let text = Program::new(command, AGAINST_HANGS).run()?.successful()?;
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

impl Known {
    pub(super) fn read() -> Result<Self> {
        Ok(Self {
            conformance: listed("conformance", "target/conformance")?,
            torture: listed("torture", "target/torture")?,
            tasks: Cli::command().get_subcommands().map(|task| task.get_name().to_owned()).collect(),
            source: |file| std::fs::read_to_string(workspace::path("crates").join(file)).ok(),
        })
    }

    fn broken_in(&self, page: &str) -> Vec<String> {
        let mut broken = Vec::new();
        for (at, line) in page.lines().enumerate() {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [promise, checks, _, seeds] = cells[..] else { continue };
            if promise == "promise" || promise.starts_with("---") {
                continue;
            }
            let mut fault = |what: String| broken.push(format!("{PAGE}:{}: {what}", at + 1));
            if quoted(checks).next().is_none() {
                fault(format!("no check for: {promise}"));
            }
            for name in quoted(checks).filter(|name| !self.is_a_check(name)) {
                fault(format!("there is no check `{name}`"));
            }
            // What is no check by its form is prose here.
            for name in quoted(seeds).filter(|name| is_name_of_a_check(name) && !self.is_a_check(name)) {
                fault(format!("there is no check `{name}`"));
            }
        }
        broken
    }

    fn is_a_check(&self, name: &str) -> bool {
        if let Some(pattern) = name.strip_prefix("conformance ") {
            matches(pattern, &self.conformance)
        } else if let Some(pattern) = name.strip_prefix("torture ") {
            matches(pattern, &self.torture)
        } else if let Some(task) = name.strip_prefix("cargo xtask ") {
            self.tasks.iter().any(|known| known == task)
        } else if let Some((file, function)) = name.split_once("::") {
            (self.source)(file).is_some_and(|text| has_function(&text, function))
        } else {
            // The directories of tests, and files of them.
            name.ends_with(".rs") && (self.source)(name).is_some()
                || name.starts_with("tests/") && workspace::path(name).exists()
        }
    }

    fn covers(&self, exception: &Exception) -> bool {
        match exception.check.strip_prefix(torture::PREFIX) {
            Some(pattern) => matches(pattern, &self.torture),
            // The applications' names are theirs.
            None => exception.check.starts_with("apps.") || matches(&exception.check, &self.conformance),
        }
    }
}

fn matches(pattern: &str, names: &[String]) -> bool {
    let exception = Exception { check: pattern.to_owned(), reason: String::new() };
    names.iter().any(|name| exception.covers(name))
}

fn is_name_of_a_check(text: &str) -> bool {
    text.contains(".rs") || ["conformance ", "torture ", "cargo xtask "].iter().any(|word| text.starts_with(word))
}

/// What stands in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether a source defines a function of that name; a macro may give it arguments, or none.
fn has_function(source: &str, name: &str) -> bool {
    source.match_indices("fn ").any(|(at, word)| {
        let rest = &source[at + word.len()..];
        rest.strip_prefix(name).is_some_and(|rest| rest.starts_with(['(', '<']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        Known {
            conformance: vec!["fork.popen".to_owned()],
            torture: vec!["counter".to_owned()],
            tasks: vec!["apps".to_owned()],
            source: |file| (file == "a/tests/b.rs").then(|| "#[test]\nfn works() {}\n".to_owned()),
        }
    }

    #[test]
    fn checks_that_exist_are_found() {
        let page = "| promise | checks | where | seed |\n|---|---|---|---|\n\
            | a | `conformance fork.*`, `torture counter` | CI | a `word` |\n\
            | b | `a/tests/b.rs::works` | CI | `cargo xtask apps` |\n";
        assert_eq!(known().broken_in(page), Vec::<String>::new());
    }

    #[test]
    fn checks_that_do_not_exist_are_named_with_their_line() {
        for name in [
            "conformance fork.x",
            "torture none",
            "cargo xtask none",
            "a/tests/b.rs::fails",
            "a/tests/c.rs::works",
            "word",
        ] {
            let broken = known().broken_in(&format!("| a | `{name}` | CI | – |"));
            assert_eq!(broken, [format!("{PAGE}:1: there is no check `{name}`")]);
        }
        assert_eq!(known().broken_in("| a | `torture counter` | CI | `torture none` |").len(), 1);
    }

    #[test]
    fn a_promise_without_a_check_is_named() {
        assert_eq!(known().broken_in("| a | none | CI | – |"), [format!("{PAGE}:1: no check for: a")]);
    }

    #[test]
    fn exceptions_are_about_checks() {
        let covers = |check: &str| known().covers(&Exception { check: check.to_owned(), reason: String::new() });
        assert!(covers("fork.*") && covers("torture.counter") && covers("apps.xz"));
        assert!(!covers("fork.none") && !covers("torture.fork.popen"));
    }
}
