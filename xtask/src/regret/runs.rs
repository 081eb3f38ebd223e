//! The runs: in each round, every cell under every contestant, in random order.
//!
//! A run is *disturbed* if other programs used more than a share of the CPUs meanwhile. It is repeated, and the least
//! disturbed one counts.
//!
//! After the rounds each of our locks has one *long* run in each cell, half as long again as the longest wait that is
//! allowed there: shorter ones could not show that a thread waits for longer. Only its waits count.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use flashlock_report::regret::cells::Cell;
use flashlock_report::regret::{Figures, Mode, Outcome, Run};
use flashlock_report::statistics::Random;

use super::contestants::Contestant;
use crate::child::Program;
use crate::workspace;

/// How often a disturbed run is repeated at least.
const REPEATS: u32 = 2;
/// What is waited then.
const PAUSE: Duration = Duration::from_millis(300);

/// Time before the window of a run opens, in ms.
pub(super) const WARM_MS: u64 = 10;

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
