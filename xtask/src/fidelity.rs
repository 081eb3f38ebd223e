//! `cargo xtask fidelity`: what the papers measured beside what `flashlock simulate` says, as `docs/fidelity.md`.
//!
//! The crate `flashlock-fidelity` holds the rows, and makes the page. This runs the simulator for it, two at a time,
//! and keeps what was run: an interrupted task goes on where it was. A run is kept under the simulator's own bytes and
//! its command line in `target/fidelity`: a changed simulator runs anew.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use flashlock_fidelity::{Arguments, Check, Report, Simulator, check};
use flashlock_report::provenance::Provenance;
use flashlock_report::results::Results;
use indicatif::{ProgressBar, ProgressStyle};

use crate::child::{AGAINST_HANGS, Program};
use crate::files;
use crate::results::origin;
use crate::steps::{Tally, at_once};
use crate::workspace;

/// The line that makes the page again.
const COMMAND: &str = "cargo xtask fidelity";

/// The simulator itself uses all CPUs; a second one keeps them busy while the longest run of the first goes on alone.
const AT_ONCE: usize = 2;
/// The longest points take a minute or two on a quiet machine.
const LIMIT: Duration = Duration::from_secs(1800);

#[derive(Args)]
pub(crate) struct Options {
    /// Check some signs, and whether the page is up to date; write nothing
    #[arg(long, conflicts_with = "render")]
    quick: bool,
    /// Run everything again; without it, what this very simulator has run already is taken
    #[arg(long, conflicts_with = "render")]
    fresh: bool,
    /// Run nothing: make the page again of what the JSON has, in the words that the table, the machines' files and
    /// reasons.md have now
    #[arg(long)]
    render: bool,
    /// Run only the rows whose names contain this, and rows whose definition changed since the file was written; the
    /// others stay as they are, and the page says which were made when (may be repeated)
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["quick", "render"])]
    rows: Vec<String>,
}

/// The full task writes a report and checks nothing; the quick one counts checks.
pub(crate) fn run(options: &Options) -> Result<Option<Tally>> {
    let simulator = Here { fresh: options.fresh };
    let [json, page] = ["docs/results/fidelity.json", "docs/fidelity.md"].map(workspace::path);
    let read = || Report::read(&workspace::require(json.clone(), "make it: cargo xtask fidelity")?);
    if options.quick {
        let checks = check(&simulator, &read(), fs::read_to_string(&page))?;
        return Ok(Some(checks.iter().fold(Tally::default(), |mut tally, check| {
            tally += print(check);
            tally
        })));
    }
    let report = match options.rows.as_slice() {
        _ if options.render => read()?.in_todays_words(&simulator)?,
        [] => Report::simulated(&simulator)?,
        texts => read()?.made_later(texts, &simulator)?,
    };
    for (path, text) in [(json, report.json()?), (page, report.page())] {
        workspace::write(&path, &text)?;
    }
    println!("{}", report.count());
    Ok(None)
}

/// One line for each check, as the test programs print it.
fn print(check: &Check) -> Tally {
    let name = &check.name;
    match &check.outcome {
        Ok(what) => {
            println!("ok {name}: {what}");
            Tally::PASSED
        }
        Err(why) => {
            println!("not ok {name}: {why}");
            Tally::FAILED
        }
    }
}

/// The simulator that was built here.
struct Here {
    /// Whether everything is run again.
    fresh: bool,
}

impl Simulator for Here {
    fn simulate(&self, commands: Vec<Arguments>) -> Result<BTreeMap<Arguments, Results>> {
        let simulator = workspace::command()?;
        let kept = workspace::path("target/fidelity").join(hash_of(&fs::read(&simulator)?));
        if self.fresh {
            files::remove(&kept)?;
        }
        files::make(&kept)?;
        let (done, missing) = commands.into_iter().partition::<Vec<_>, _>(|command| file_of(&kept, command).exists());
        let bar = progress(done.len(), missing.len())?;
        run_all(&simulator, &kept, &missing, &bar)?;
        bar.finish_and_clear();
        let read = |command: Arguments| Ok((command.clone(), Results::read(&file_of(&kept, &command))?));
        done.into_iter().chain(missing).map(read).collect()
    }

    fn machine(&self, name: &str) -> Result<String> {
        let mut command = Command::new(workspace::command()?);
        command.args(["simulate", "--machine", name, "--show-machine"]);
        Program::new(command, AGAINST_HANGS).run()?.successful()
    }

    fn provenance(&self) -> Result<Provenance> {
        origin::now(COMMAND.split(' ').map(str::to_owned).collect())
    }
}

fn hash_of(what: &(impl Hash + ?Sized)) -> String {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn file_of(kept: &Path, command: &Arguments) -> PathBuf {
    kept.join(format!("{}.json", hash_of(command)))
}

fn progress(done: usize, missing: usize) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("fidelity {bar:40} {pos}/{len} simulations, {eta} left  {msg}")?;
    let bar = ProgressBar::new((done + missing) as u64).with_style(style).with_position(done as u64);
    bar.reset_eta();
    Ok(bar)
}

/// Runs them; the first that goes wrong stops the rest.
fn run_all(simulator: &Path, kept: &Path, commands: &[Arguments], bar: &ProgressBar) -> Result<()> {
    at_once(commands, AT_ONCE, |command| {
        bar.set_message(command.join(" "));
        run_one(simulator, &file_of(kept, command), command)?;
        bar.inc(1);
        Ok(())
    })?;
    Ok(())
}

/// One command, into a file that exists only if it is complete.
fn run_one(simulator: &Path, file: &Path, arguments: &Arguments) -> Result<()> {
    let mut command = Command::new(simulator);
    command.arg("simulate").args(arguments).arg("--json");
    let done = Program::new(command, LIMIT).run()?;
    // A simulated run that failed is a result; anything else that goes wrong prints none.
    if !done.stdout.starts_with('{') {
        bail!("{}", done.transcript());
    }
    let unfinished = file.with_extension("part");
    files::write(&unfinished, &done.stdout)?;
    fs::rename(&unfinished, file).with_context(|| format!("cannot rename {}", workspace::shown(&unfinished)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_prints_no_result_stops_the_task_and_leaves_no_file() {
        let kept = workspace::scratch("fidelity-runs").expect("made");
        let commands: Vec<Arguments> = ["a", "b", "c"].map(|word| vec![word.to_owned()]).to_vec();
        let bar = ProgressBar::hidden();
        let error = run_all(Path::new("/bin/echo"), &kept, &commands, &bar).expect_err("echo is no simulator");
        assert!(error.to_string().contains("simulate "), "{error}");
        assert_eq!(fs::read_dir(&kept).expect("there").count(), 0);
        assert_eq!(bar.position(), 0);
    }

    #[test]
    fn every_command_has_a_file_of_its_own() {
        let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Arguments>();
        let kept = Path::new("kept");
        assert_ne!(file_of(kept, &command(&["a", "b"])), file_of(kept, &command(&["a b"])));
        assert_eq!(file_of(kept, &command(&["a", "b"])), file_of(kept, &command(&["a", "b"])));
    }
}
