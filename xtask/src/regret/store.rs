//! The file in which runs are kept.
//!
//! Each run is appended as it ends. The same command, given the same file, does what is missing. Runs of another build
//! of a contestant stay in the file and do not count.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use flashlock_report::machine::Machine;
use flashlock_report::regret::{Outcome, Run};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use super::contestants::Contestant;
use super::runs::{Job, Plan, WARM_MS, run};
use crate::child::{AGAINST_HANGS, Program};
use crate::files;

/// What a file begins with; raised when a field changes its meaning or goes.
const FORMAT: &str = "flashlock-regret/1";
/// The first line of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Head {
    format: String,
    machine: String,
    /// Iterations of the work loop in a µs: all runs of a file do the same work.
    per_us: f64,
}

/// All runs of a file, and where new ones go.
pub(crate) struct Store {
    head: Head,
    runs: Vec<Run>,
    file: Option<File>,
}

impl Store {
    /// The runs of the file, if there is one; they are lost at the end if there is none.
    pub(crate) fn open(file: Option<&Path>, calibrator: &Path) -> Result<Self> {
        let Some(path) = file else {
            return Ok(Self { head: Head::here(calibrator)?, runs: Vec::new(), file: None });
        };
        let text = if path.exists() { files::read(path)? } else { String::new() };
        let (head, runs, whole) = match read(&text).with_context(|| path.display().to_string())? {
            Some(found) => found,
            None => (Head::here(calibrator)?, Vec::new(), 0),
        };
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        // A line that was being written when the task ended is no run.
        file.set_len(whole as u64)?;
        if whole == 0 {
            writeln!(file, "{}", serde_json::to_string(&head)?)?;
        }
        Ok(Self { head, runs, file: Some(file) })
    }

    /// The runs of these contestants, as they are built now.
    pub(crate) fn of(&self, contestants: &[Contestant]) -> Vec<Run> {
        let is_one = |run: &&Run| contestants.iter().any(|one| one.name == run.lock && one.build == run.build);
        self.runs.iter().filter(is_one).cloned().collect()
    }

    /// Where they were made.
    pub(crate) fn machine(&self) -> &str {
        &self.head.machine
    }

    fn add(&mut self, run: Run) -> Result<()> {
        if let Some(file) = &mut self.file {
            writeln!(file, "{}", serde_json::to_string(&run)?)?;
        }
        self.runs.push(run);
        Ok(())
    }

    /// Does what is missing of the plan.
    pub(crate) fn complete(&mut self, plan: &Plan<'_>) -> Result<()> {
        let missing = self.missing(plan);
        let takes = |job: Job<'_>| plan.window(job) + 2 * WARM_MS;
        let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} s, {eta} left")?;
        let progress = ProgressBar::new(missing.iter().map(|job| takes(*job)).sum::<u64>() / 1000).with_style(style);
        let mut done = 0;
        for job in missing {
            progress.set_message(if job.long { "long waits".into() } else { format!("round {}", job.round + 1) });
            let run = run(plan, job, self.head.per_us)?;
            self.add(run)?;
            done += takes(job);
            progress.set_position(done / 1000);
        }
        progress.finish_and_clear();
        Ok(())
    }

    /// The jobs of a plan that no run of this build has done, in the order in which they are to be done. The order of a
    /// round is random, and the same each time.
    fn missing<'a>(&self, plan: &Plan<'a>) -> Vec<Job<'a>> {
        let measured = self.runs.iter().filter(|run| match &run.outcome {
            Outcome::Measured(figures) => !(plan.again && figures.is_disturbed(plan.cpus)),
            Outcome::Failed { .. } => false,
        });
        let key = |run: &'_ Run, beside| {
            let (cell, lock, build) = (run.cell.clone(), run.lock.clone(), run.build.clone());
            (run.mode, run.long, beside, run.round, run.ms, cell, lock, build)
        };
        // A run of a chosen cell serves as one beside, too; not the other way round.
        let done: BTreeSet<_> = measured.flat_map(|run| [key(run, run.beside), key(run, true)]).collect();
        let mut jobs = plan.jobs();
        jobs.retain(|job| {
            let Job { round, long, beside, cell, contestant } = *job;
            let (lock, build) = (contestant.name.clone(), contestant.build.clone());
            !done.contains(&(plan.mode, long, beside, round, plan.window(*job), cell.name(), lock, build))
        });
        jobs
    }
}

impl Head {
    fn here(calibrator: &Path) -> Result<Self> {
        let mut command = Command::new(calibrator);
        command.arg("--calibrate");
        let printed = Program::new(command, AGAINST_HANGS).run()?.successful()?;
        let per_us = printed.trim().parse().context("the calibration is not a number")?;
        Ok(Self { format: FORMAT.to_owned(), machine: Machine::here(None).to_string(), per_us })
    }
}

/// A file's head and runs, and how many bytes they take; what follows is an unfinished line. `None` if there is not
/// even a head.
fn read(text: &str) -> Result<Option<(Head, Vec<Run>, usize)>> {
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let mut lines = text[..whole].lines();
    let Some(first) = lines.next() else { return Ok(None) };
    let head: Head = serde_json::from_str(first).context("line 1 is not that of a file of runs")?;
    if head.format != FORMAT {
        bail!("its format is {}, not {FORMAT}", head.format);
    }
    let runs = lines
        .zip(2..)
        .map(|(line, number)| serde_json::from_str(line).with_context(|| format!("line {number} is not a run")));
    Ok(Some((head, runs.collect::<Result<_>>()?, whole)))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use flashlock_report::regret::cells::{self, Cell, Grid};
    use flashlock_report::regret::{Figures, Mode};

    use super::*;
    use crate::locks::Under;

    fn figures() -> Figures {
        Figures { ops: 1, wall_ms: 100.0, ..Figures::default() }
    }

    fn contestant(name: &str, build: &str, ours: bool) -> Contestant {
        let (program, under) = (PathBuf::from("/bin/false"), Under::Glibc);
        let (version, build) = (String::new(), build.into());
        Contestant { name: name.into(), program, under, ours, conditions: true, version, build }
    }

    fn plan<'a>(cells: &'a [Cell], contestants: &'a [Contestant]) -> Plan<'a> {
        let (mode, patience) = (Mode::Plain, Duration::ZERO);
        Plan { mode, cells, beside: &[], contestants, rounds: 2, window_ms: None, cpus: 2, patience, again: false }
    }

    fn run_of(job: &Job<'_>, outcome: Outcome) -> Run {
        let Contestant { name, build, .. } = job.contestant;
        let (lock, build) = (name.clone(), build.clone());
        let (mode, cell) = (Mode::Plain, job.cell.name());
        let Job { round, long, beside, .. } = *job;
        let ms = if long { (job.cell.allowed_wait_ms() * 1.5) as u64 } else { job.cell.window_ms() };
        Run { mode, cell, lock, build, round, long, beside, ms, at: 0, outcome }
    }

    fn store(file: &Path) -> Store {
        let mut store = Store {
            head: Head { format: FORMAT.into(), machine: "m".into(), per_us: 1.0 },
            runs: Vec::new(),
            file: None,
        };
        if !file.exists() {
            std::fs::write(file, format!("{}\n", serde_json::to_string(&store.head).expect("JSON"))).expect("written");
        }
        store = Store::open(Some(file), Path::new("/bin/false")).expect("a file with a head");
        store
    }

    fn jobs<'a>(store: &Store, plan: &Plan<'a>) -> Vec<(u32, bool, String, &'a str)> {
        let name = |job: &Job<'a>| (job.round, job.long, job.cell.name(), job.contestant.name.as_str());
        store.missing(plan).iter().map(name).collect()
    }

    #[test]
    fn a_plan_that_was_interrupted_goes_on_where_it_was() {
        let directory = crate::workspace::scratch("regret-resume").expect("a directory");
        let file = directory.join("runs.jsonl");
        let cells = Grid::Mutexes.chosen(9, false, None).expect("cells");
        let contestants = [contestant("glibc", "1", false), contestant("x", "1", true)];
        let plan = plan(&cells, &contestants);
        let all = jobs(&store(&file), &plan);
        // Two rounds of both, and a long run of ours.
        assert_eq!(all.len(), cells.len() * (2 * 2 + 1));
        assert_eq!(all, jobs(&store(&file), &plan), "the order is the same each time");
        let mut first = store(&file);
        for job in first.missing(&plan).iter().take(7) {
            first.add(run_of(job, Outcome::Measured(figures()))).expect("written");
        }
        let failed = Outcome::Failed { failed: "exit status 1".into() };
        let next = first.missing(&plan)[0];
        first.add(run_of(&next, failed)).expect("written");
        // The task ends while it writes a line.
        let mut half = OpenOptions::new().append(true).open(&file).expect("there");
        write!(half, "{{\"mode\":\"plain\",\"ce").expect("written");
        drop(half);
        let mut second = store(&file);
        assert_eq!((second.runs.len(), jobs(&second, &plan)), (8, all[7..].to_vec()));
        let next = second.missing(&plan)[0];
        second.add(run_of(&next, Outcome::Measured(figures()))).expect("written");
        assert_eq!(jobs(&store(&file), &plan), all[8..]);
    }

    #[test]
    fn a_cell_that_only_served_others_is_run_again_when_it_is_chosen() {
        let directory = crate::workspace::scratch("regret-beside").expect("a directory");
        let mut store = store(&directory.join("runs.jsonl"));
        let cells = [cells::named("1 µs, 2 µs outside, 8 threads").expect("a cell")];
        let alone = cells[0].alone().expect("only the mutex");
        let contestants = [contestant("glibc", "1", false), contestant("x", "1", false)];
        let with = |chosen, beside| Plan { beside, ..plan(chosen, &contestants) };
        for job in store.missing(&with(&cells, &alone)) {
            store.add(run_of(&job, Outcome::Measured(figures()))).expect("written");
        }
        assert_eq!(store.runs.iter().filter(|run| run.beside).count(), 2 * 2 * 2);
        let again = store.missing(&with(&alone, &[]));
        assert_eq!(again.len(), 2 * 2 * 2);
        for job in again {
            store.add(run_of(&job, Outcome::Measured(figures()))).expect("written");
        }
        assert!(store.missing(&with(&cells, &alone)).is_empty() && store.missing(&with(&alone, &[])).is_empty());
    }

    #[test]
    fn runs_of_another_build_do_not_count() {
        let directory = crate::workspace::scratch("regret-builds").expect("a directory");
        let mut store = store(&directory.join("runs.jsonl"));
        let cells = Grid::Mutexes.chosen(9, false, None).expect("cells");
        let old = [contestant("glibc", "1", false), contestant("x", "1", true)];
        for job in store.missing(&plan(&cells, &old)) {
            store.add(run_of(&job, Outcome::Measured(figures()))).expect("written");
        }
        assert!(store.missing(&plan(&cells, &old)).is_empty());
        let new = [contestant("glibc", "1", false), contestant("x", "2", true)];
        assert!(jobs(&store, &plan(&cells, &new)).iter().all(|(.., name)| *name == "x"));
        assert_eq!(
            (store.missing(&plan(&cells, &new)).len(), store.of(&new).len()),
            (cells.len() * 3, cells.len() * 2)
        );
    }

    #[test]
    fn runs_of_another_length_and_disturbed_ones_can_be_missing() {
        let directory = crate::workspace::scratch("regret-again").expect("a directory");
        let mut store = store(&directory.join("runs.jsonl"));
        let cells = [cells::named("1 µs, 2 µs outside, 8 threads").expect("a cell")];
        let contestants = [contestant("glibc", "1", false), contestant("x", "1", false)];
        let usual = plan(&cells, &contestants);
        for (place, job) in store.missing(&usual).iter().enumerate() {
            let others_ms = if place == 0 { 50.0 } else { 0.0 };
            store.add(run_of(job, Outcome::Measured(Figures { others_ms, ..figures() }))).expect("written");
        }
        let missing = |plan: &Plan<'_>| store.missing(plan).len();
        assert_eq!(missing(&usual), 0);
        assert_eq!(missing(&Plan { again: true, ..plan(&cells, &contestants) }), 1);
        assert_eq!(missing(&Plan { window_ms: Some(20), ..plan(&cells, &contestants) }), 4);
    }

    #[test]
    fn other_files_are_refused() {
        assert!(read("").expect("an empty file").is_none());
        assert!(
            read("{\"format\":\"x/1\",\"machine\":\"\",\"per_us\":1}\n")
                .expect_err("refused")
                .to_string()
                .contains("x/1")
        );
        let line = format!("{{\"format\":\"{FORMAT}\",\"machine\":\"\",\"per_us\":1}}\n");
        assert!(read(&(line + "7\n")).expect_err("refused").to_string().contains("line 2"));
    }
}
