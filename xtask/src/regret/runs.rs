//! The runs: in each round, every cell under every contestant, in random order.
//!
//! A run is *disturbed* if other programs used more than a share of the CPUs meanwhile. It is repeated, and the least
//! disturbed one counts.
//!
//! After the rounds each of our locks has one *long* run in each cell, half as long again as the longest wait that is
//! allowed there: shorter ones could not show that somebody waits for longer. Only its waits count.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use flashlock_report::statistics::Random;
use serde::{Deserialize, Serialize};

use super::cells::Cell;
use super::contestants::Contestant;
use crate::child::Program;
use crate::workspace;

/// The share of the CPUs that other programs may use during a run.
const OTHERS: f64 = 0.15;
/// How often a disturbed run is repeated at least.
const REPEATS: u32 = 2;
/// What is waited then.
const PAUSE: Duration = Duration::from_millis(300);

/// Time before the window of a run opens, in ms.
pub(super) const WARM_MS: u64 = 10;

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

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) mode: Mode,
    pub(crate) cell: String,
    pub(crate) lock: String,
    pub(crate) build: String,
    pub(crate) round: u32,
    /// Whether it is one of those that look for long waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) long: bool,
    /// Whether its cell was not chosen, and only serves the physical bound of others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) beside: bool,
    /// How long it was to measure.
    pub(crate) ms: u64,
    /// Seconds since 1970.
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

impl Run {
    /// How it failed; empty if it did not.
    pub(crate) fn failure(&self) -> &str {
        match &self.outcome {
            Outcome::Failed { failed } => failed,
            Outcome::Measured(_) => "",
        }
    }
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
    pub(crate) others_ms: f64,
}

impl Figures {
    /// The share of so many CPUs that other programs used.
    fn others(&self, cpus: u32) -> f64 {
        self.others_ms / (self.wall_ms * f64::from(cpus))
    }

    pub(crate) fn is_disturbed(&self, cpus: u32) -> bool {
        self.others(cpus) > OTHERS
    }
}

/// What is to be done.
pub(crate) struct Plan<'a> {
    pub(crate) mode: Mode,
    pub(crate) cells: &'a [Cell],
    /// Cells that are needed beside, for the physical bound.
    pub(crate) beside: &'a [Cell],
    pub(crate) contestants: &'a [Contestant],
    pub(crate) rounds: u32,
    /// How long all runs measure, if not as long as their cells want. Then there are no long runs.
    pub(crate) window_ms: Option<u64>,
    /// How many CPUs there are.
    pub(crate) cpus: u32,
    /// How long a disturbed run is repeated.
    pub(crate) patience: Duration,
    /// Whether disturbed runs of the file count as missing.
    pub(crate) again: bool,
}

/// One that is to be done.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) round: u32,
    pub(super) long: bool,
    pub(super) beside: bool,
    pub(super) cell: Cell,
    pub(super) contestant: &'a Contestant,
}

impl<'a> Plan<'a> {
    /// Everything, in order.
    pub(super) fn jobs(&self) -> Vec<Job<'a>> {
        let mut jobs = Vec::new();
        let all: BTreeSet<Cell> = self.cells.iter().chain(self.beside).copied().collect();
        for round in 0..self.rounds {
            jobs.extend(self.round(round, false, &all, |_| true));
        }
        if self.window_ms.is_none() {
            let cells = self.cells.iter().copied().collect();
            jobs.extend(self.round(0, true, &cells, |contestant| contestant.ours));
        }
        jobs
    }

    fn round(&self, round: u32, long: bool, cells: &BTreeSet<Cell>, is_meant: fn(&Contestant) -> bool) -> Vec<Job<'a>> {
        let mut random = Random::new(u64::from(round) + 1);
        let mut cells: Vec<Cell> = cells.iter().copied().collect();
        random.shuffle(&mut cells);
        let of_cell = |cell| {
            let contestants = self.contestants.iter().filter(|contestant| is_meant(contestant));
            let beside = !self.cells.contains(&cell);
            let job = |contestant| Job { round, long, beside, cell, contestant };
            let mut jobs: Vec<Job<'a>> = contestants.map(job).collect();
            random.shuffle(&mut jobs);
            jobs
        };
        cells.into_iter().flat_map(of_cell).collect()
    }

    pub(super) fn window(&self, job: Job<'_>) -> u64 {
        let own = if job.long { (job.cell.allowed_wait_ms() * 1.5) as u64 } else { job.cell.window_ms() };
        self.window_ms.unwrap_or(own)
    }
}

pub(super) fn run(plan: &Plan<'_>, job: Job<'_>, per_us: f64) -> Result<Run> {
    let Job { round, long, beside, cell, contestant } = job;
    let outcome = match measure_in_peace(plan, job, per_us) {
        Ok(figures) => Outcome::Measured(figures),
        Err(error) => Outcome::Failed { failed: format!("{error:#}") },
    };
    Ok(Run {
        mode: plan.mode,
        cell: cell.name(),
        lock: contestant.name.clone(),
        build: contestant.build.clone(),
        round,
        long,
        beside,
        ms: plan.window(job),
        at: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
        outcome,
    })
}

/// Measures again while other programs disturb. The least disturbed one counts.
fn measure_in_peace(plan: &Plan<'_>, job: Job<'_>, per_us: f64) -> Result<Figures> {
    let started = Instant::now();
    let mut best = measure(plan, job, per_us)?;
    let mut repeats = 0;
    while best.is_disturbed(plan.cpus) && !job.long && (repeats < REPEATS || started.elapsed() < plan.patience) {
        std::thread::sleep(PAUSE);
        let again = measure(plan, job, per_us)?;
        if again.others(plan.cpus) < best.others(plan.cpus) {
            best = again;
        }
        repeats += 1;
    }
    Ok(best)
}

fn measure(plan: &Plan<'_>, job: Job<'_>, per_us: f64) -> Result<Figures> {
    let Job { cell, contestant, .. } = job;
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
    let window = plan.window(job);
    command.args(["--section", cell.section().argument, "--outside", &cell.outside_ns().to_string()]);
    command.args(["--threads", &cell.threads.to_string(), "--ms", &window.to_string()]);
    command.args(["--warm", &WARM_MS.to_string(), "--per-us", &per_us.to_string()]);
    contestant.under.apply(&mut command, &[]);
    let done = Program::new(command, Duration::from_millis(window * 2) + Duration::from_secs(60)).run()?;
    if !done.ok() {
        bail!("{}; {}", done.ending(), done.stderr.lines().last().unwrap_or("it says nothing"));
    }
    // A library warns of a lock that it does not know, and goes on with its default.
    if let Some(warning) = done.stderr.lines().next() {
        bail!("{warning}");
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::regret) const FIGURES: Figures = Figures {
        ops: 1,
        wall_ms: 100.0,
        cpu_ms: 1.0,
        longest_wait_us: 1.0,
        switches: 0,
        min_ops: 0,
        max_ops: 1,
        others_ms: 0.0,
    };

    #[test]
    fn a_run_is_disturbed_by_what_others_use() {
        assert!(!Figures { others_ms: 29.0, ..FIGURES }.is_disturbed(2));
        assert!(Figures { others_ms: 31.0, ..FIGURES }.is_disturbed(2));
    }
}
