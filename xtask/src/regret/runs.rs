//! The runs: in each round, every cell under every contestant, in random order; and the file in which they are kept.
//!
//! Each run is appended to the file as it ends. The same command, given the same file, does what is missing. Runs of another build
//! of a contestant stay in the file and do not count.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use flashlock_report::machine::Machine;
use flashlock_report::statistics::Random;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use super::cells::Cell;
use super::contestants::Contestant;
use crate::child::{AGAINST_HANGS, Program};
use crate::workspace;

/// What a file begins with; raised when a field changes its meaning or goes.
const FORMAT: &str = "flashlock-regret/1";
/// Time before the window of a run opens, in ms.
const WARM_MS: u64 = 10;

/// What else goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Nothing.
    Plain,
    /// A process computes beside.
    Hog,
    /// There is one CPU only.
    OneCpu,
}

/// The first line of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Head {
    format: String,
    machine: String,
    /// Iterations of the work loop in a µs: all runs of a file do the same work.
    per_us: f64,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) mode: Mode,
    pub(crate) cell: String,
    pub(crate) lock: String,
    pub(crate) build: String,
    pub(crate) round: u32,
    /// Seconds since 1970.
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Outcome {
    Measured(Figures),
    Failed { failed: String },
}

/// What the program prints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) ops: u64,
    pub(crate) wall_ms: f64,
    pub(crate) cpu_ms: f64,
    pub(crate) longest_wait_us: f64,
    pub(crate) switches: u64,
    pub(crate) min_ops: u64,
    pub(crate) max_ops: u64,
}

/// What is to be done.
pub(crate) struct Plan<'a> {
    pub(crate) mode: Mode,
    pub(crate) cells: &'a [Cell],
    pub(crate) contestants: &'a [Contestant],
    pub(crate) rounds: u32,
    /// How long all runs measure, if not as long as their cells want.
    pub(crate) window_ms: Option<u64>,
}

/// One that is to be done.
#[derive(Clone, Copy)]
struct Job<'a> {
    round: u32,
    cell: Cell,
    contestant: &'a Contestant,
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
        let text = if path.exists() {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?
        } else {
            String::new()
        };
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
        let left = missing.iter().map(|job| plan.window(job.cell) + 2 * WARM_MS).sum::<u64>();
        let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} s, {eta} left")?;
        let progress = ProgressBar::new(left / 1000).with_style(style);
        let mut done = 0;
        for job in missing {
            progress.set_message(format!("round {}", job.round + 1));
            let run = run(plan, job, self.head.per_us)?;
            self.add(run)?;
            done += plan.window(job.cell) + 2 * WARM_MS;
            progress.set_position(done / 1000);
        }
        progress.finish_and_clear();
        Ok(())
    }

    /// The jobs of a plan that no run of this build has done, in the order in which they are to be done. The order of a round is random,
    /// and the same each time.
    fn missing<'a>(&self, plan: &Plan<'a>) -> Vec<Job<'a>> {
        let key = |run: &Run| (run.mode, run.round, run.cell.clone(), run.lock.clone(), run.build.clone());
        let measured = self.runs.iter().filter(|run| matches!(run.outcome, Outcome::Measured(_)));
        let done: BTreeSet<_> = measured.map(key).collect();
        let mut missing = Vec::new();
        for round in 0..plan.rounds {
            let mut random = Random::new(u64::from(round) + 1);
            let mut cells = plan.cells.to_vec();
            random.shuffle(&mut cells);
            for cell in cells {
                let mut jobs: Vec<Job<'a>> =
                    plan.contestants.iter().map(|contestant| Job { round, cell, contestant }).collect();
                random.shuffle(&mut jobs);
                jobs.retain(|Job { contestant, .. }| {
                    let (lock, build) = (contestant.name.clone(), contestant.build.clone());
                    !done.contains(&(plan.mode, round, cell.name(), lock, build))
                });
                missing.extend(jobs);
            }
        }
        missing
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

/// A file's head and runs, and how many bytes they take; what follows is an unfinished line. `None` if there is not even a head.
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

impl Plan<'_> {
    fn window(&self, cell: Cell) -> u64 {
        self.window_ms.unwrap_or_else(|| cell.window_ms())
    }
}

fn run(plan: &Plan<'_>, job: Job<'_>, per_us: f64) -> Result<Run> {
    let Job { round, cell, contestant } = job;
    let outcome = match measure(plan, cell, contestant, per_us) {
        Ok(figures) => Outcome::Measured(figures),
        Err(error) => Outcome::Failed { failed: format!("{error:#}") },
    };
    Ok(Run {
        mode: plan.mode,
        cell: cell.name(),
        lock: contestant.name.clone(),
        build: contestant.build.clone(),
        round,
        at: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
        outcome,
    })
}

fn measure(plan: &Plan<'_>, cell: Cell, contestant: &Contestant, per_us: f64) -> Result<Figures> {
    let mut command = if plan.mode == Mode::OneCpu {
        // Before it starts: a library may count the CPUs as it is loaded.
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &last_cpu()?.to_string()]).arg(&contestant.program);
        command
    } else {
        Command::new(&contestant.program)
    };
    if plan.mode == Mode::Hog {
        command.arg("--hog");
    }
    let window = plan.window(cell);
    command.args(["--section", cell.section().argument, "--outside", &cell.outside_ns().to_string()]);
    command.args(["--threads", &cell.threads.to_string(), "--ms", &window.to_string()]);
    command.args(["--warm", &WARM_MS.to_string(), "--per-us", &per_us.to_string()]);
    contestant.under.apply(&mut command, &[]);
    let done = Program::new(command, Duration::from_millis(window * 2) + Duration::from_secs(60)).run()?;
    if !done.ok() {
        bail!("{}; {}", done.ending(), done.stderr.lines().last().unwrap_or("it says nothing"));
    }
    serde_json::from_str(done.stdout.trim()).with_context(|| format!("not the program's JSON: {}", done.stdout.trim()))
}

/// The last CPU that this process may use.
fn last_cpu() -> Result<u32> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    let last = list.trim().rsplit([',', '-']).next().and_then(|number| number.parse().ok());
    last.with_context(|| format!("no CPU in {}", workspace::shown(Path::new("/proc/self/status"))))
}
