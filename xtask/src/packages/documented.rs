//! Whether what the documents tell users to type works as they say it: the commands are run, line by line, in order.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;

use super::build::{self, ENV_FROM};
use super::fresh::Fresh;
use crate::child::{AGAINST_HANGS, Finished, Program};
use crate::files;
use crate::steps::Tally;
use crate::{Cli, workspace};

/// A line that only root can run begins so. It is run in a fresh root.
const AS_ROOT: &str = "sudo ";
/// Printed behind each line that succeeded.
const DONE: &str = "-- that was line";

/// The lines of a document's shell examples. A heading: those of its section only.
pub(super) struct Commands {
    document: &'static str,
    lines: Vec<String>,
}

impl Commands {
    pub(super) fn of(document: &'static str, heading: Option<&str>) -> Result<Self> {
        let text = files::read(&workspace::path(document))?;
        let section = match heading {
            None => text.as_str(),
            Some(heading) => {
                section(&text, heading).with_context(|| format!("{document} has no section '{heading}'"))?
            }
        };
        let lines = lines(section);
        if lines.is_empty() {
            bail!("{document} shows no command there");
        }
        Ok(Self { document, lines })
    }

    /// Those that root has to run, or the others.
    fn of_root(&self, root: bool) -> Vec<&str> {
        self.lines.iter().map(String::as_str).filter(|line| line.starts_with(AS_ROOT) == root).collect()
    }

    /// Runs all that need not be root, in the tree, by a user whose home this is, and who has these directories in
    /// front of PATH. That user lives elsewhere than we do, and keeps new files private.
    pub(super) fn run_here(&self, home: &Path, path: &[PathBuf]) -> Result<Tally> {
        let lines = self.of_root(false);
        let mut command = Command::new("bash");
        command.args(["--norc", "-c", &format!("umask 077\n{}", script(&lines))]).current_dir(workspace::root());
        let known = env::var_os("PATH").unwrap_or_default();
        command.env("PATH", env::join_paths(path.iter().cloned().chain(env::split_paths(&known)))?);
        // cargo is the one that runs this, whatever the home.
        let old_home = PathBuf::from(env::var_os("HOME").context("HOME is not set")?);
        for (variable, default) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            command.env(variable, env::var_os(variable).unwrap_or_else(|| old_home.join(default).into()));
        }
        command
            .env("TZ", "Asia/Tokyo")
            .env("HOME", home)
            .env(ENV_FROM, build::from())
            .env_remove("XDG_DATA_HOME")
            .env_remove("MANPATH");
        self.judge(&lines, &Program::new(command, AGAINST_HANGS).run()?)
    }

    /// Runs all that need root, in a fresh root, which has these files of the tree.
    pub(super) fn run_as_root(&self, root: &Fresh, files: &[PathBuf]) -> Result<Tally> {
        for file in files {
            root.take(file, &workspace::shown(file))?;
        }
        let lines = self.of_root(true);
        self.judge(&lines, &root.run(&["sh", "-c", &script(&lines)])?)
    }

    /// A check for each line; those behind one that failed were not run, and have failed too.
    fn judge(&self, lines: &[&str], done: &Finished) -> Result<Tally> {
        let passed = done.stdout.lines().filter(|line| line.starts_with(DONE)).count().min(lines.len());
        let failed = lines.len() - passed;
        if failed > 0 {
            println!("not ok {}: `{}`\n{}", self.document, lines[passed], done.transcript());
        }
        Ok(Tally { passed, failed, skipped: 0 })
    }
}

fn script(lines: &[&str]) -> String {
    let numbered = lines.iter().enumerate().map(|(at, line)| format!("{line}\necho '{DONE}' {}\n", at + 1));
    // What a line started in the background must not outlive a line that failed.
    format!("trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\nset -e\n{}", numbered.collect::<String>())
}

/// What follows a heading, up to the next one of its rank or a higher one. In blocks of code, `#` begins no heading.
fn section<'a>(text: &'a str, heading: &str) -> Option<&'a str> {
    let rank = |line: &str| line.bytes().take_while(|&byte| byte == b'#').count();
    let (mut is_code, mut start, mut at) = (false, None, 0);
    for line in text.split_inclusive('\n') {
        is_code ^= line.starts_with("```");
        let is_heading = !is_code && line.starts_with('#');
        match start {
            None if is_heading && line.trim_end() == heading => start = Some(at + line.len()),
            Some(start) if is_heading && rank(line) <= rank(heading) => return Some(&text[start..at]),
            _ => {}
        }
        at += line.len();
    }
    start.map(|start| &text[start..])
}

/// The lines of the blocks that are marked `sh`. One that ends with a backslash goes on in the next.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let (mut is_shell, mut goes_on) = (false, false);
    for line in text.lines() {
        if line.starts_with("```") {
            is_shell = line == "```sh" && !is_shell;
        } else if is_shell && !line.trim().is_empty() && !line.trim_start().starts_with('#') {
            match lines.last_mut() {
                Some(last) if goes_on => *last += &format!("\n{line}"),
                _ => lines.push(line.to_owned()),
            }
            goes_on = line.ends_with('\\');
        }
    }
    lines
}

/// A check for each task that a document names: does it exist?
pub(super) fn tasks_exist(documents: &[&str]) -> Result<Tally> {
    let known: BTreeSet<String> = Cli::command().get_subcommands().map(|task| task.get_name().to_owned()).collect();
    let mut tally = Tally::default();
    for document in documents {
        for task in tasks(&files::read(&workspace::path(document))?) {
            if known.contains(&task) {
                tally += Tally::PASSED;
            } else {
                tally += Tally::FAILED;
                println!("not ok {document}: there is no task `cargo xtask {task}`");
            }
        }
    }
    Ok(tally)
}

fn tasks(text: &str) -> BTreeSet<String> {
    let names = text
        .split("cargo xtask ")
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_ascii_lowercase() && c != '-').next().unwrap_or_default().to_owned());
    // `cargo xtask --help` names none.
    names.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# T\n\n## Use\n\n```sh\nno\n```\n\n## Install\n\n```sh\na --x   # why\nb \\\n  c\n\n\
                        # alone\n```\n\
                        ```text\nno\n```\n### More\n\n```sh\nsudo d\n```\n\n## Next\n\n```sh\nno\n```\n";

    #[test]
    fn the_commands_of_a_section_are_found() {
        let found = lines(section(TEXT, "## Install").expect("a section"));
        assert_eq!(found, ["a --x   # why", "b \\\n  c", "sudo d"]);
        assert_eq!(lines(section(TEXT, "### More").expect("a section")), ["sudo d"]);
        assert!(section(TEXT, "## None").is_none());
    }

    #[test]
    fn a_line_that_fails_fails_those_behind_it() {
        let commands = Commands { document: "x", lines: ["true", "false", "true"].map(str::to_owned).into() };
        let home = workspace::scratch("test-documented").expect("a directory");
        let tally = commands.run_here(&home, &[]).expect("bash");
        assert_eq!(tally, Tally { passed: 1, failed: 2, skipped: 0 });
    }

    #[test]
    fn what_runs_in_the_background_can_be_ended_and_is_ended() {
        let home = workspace::scratch("test-background").expect("a directory");
        let run = |lines: &[&str]| {
            let lines = lines.iter().map(|line| (*line).to_owned()).collect();
            Commands { document: "x", lines }.run_here(&home, &[]).expect("bash")
        };
        // Otherwise the pipe would stay open for an hour.
        assert_eq!(run(&["sleep 3600 &", "kill %1"]), Tally { passed: 2, failed: 0, skipped: 0 });
        assert_eq!(run(&["sleep 3600 &", "false"]), Tally { passed: 1, failed: 1, skipped: 0 });
    }

    #[test]
    fn tasks_are_found() {
        let found =
            tasks("`cargo xtask deb` and cargo xtask packages --quick, cargo xtask install.\n`cargo xtask --help`\n");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["deb", "install", "packages"]);
    }
}
