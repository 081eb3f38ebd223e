//! The runs: in each round, every cell under every contestant, in random order; and the file in which they are kept.
//!
//! Each run is appended to the file as it ends. The same command, given the same file, does what is missing. Runs of
//! another build of a contestant stay in the file and do not count.
//!
//! A run is *disturbed* if other programs used more than a share of the CPUs meanwhile. It is repeated, and the least
//! disturbed one counts.
//!
//! After the rounds each of our locks has one *long* run in each cell, half as long again as the longest wait that is
//! allowed there: shorter ones could not show that somebody waits for longer. Only its waits count.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
/// The share of the CPUs that other programs may use during a run.
const OTHERS: f64 = 0.15;
/// How often a disturbed run is repeated at least.
const REPEATS: u32 = 2;
/// What is waited then.
const PAUSE: Duration = Duration::from_millis(300);

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
struct Job<'a> {
    round: u32,
    long: bool,
    beside: bool,
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

impl<'a> Plan<'a> {
    /// Everything, in order.
    fn jobs(&self) -> Vec<Job<'a>> {
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

    fn window(&self, job: Job<'_>) -> u64 {
        let own = if job.long { (job.cell.allowed_wait_ms() * 1.5) as u64 } else { job.cell.window_ms() };
        self.window_ms.unwrap_or(own)
    }
}

fn run(plan: &Plan<'_>, job: Job<'_>, per_us: f64) -> Result<Run> {
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
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::locks::Under;
    use crate::regret::cells;

    fn contestant(name: &str, build: &str, ours: bool) -> Contestant {
        let (program, under) = (PathBuf::from("/bin/false"), Under::Glibc);
        Contestant { name: name.into(), program, under, ours, version: String::new(), build: build.into() }
    }

    fn plan<'a>(cells: &'a [Cell], contestants: &'a [Contestant]) -> Plan<'a> {
        let (mode, patience) = (Mode::Plain, Duration::ZERO);
        Plan { mode, cells, beside: &[], contestants, rounds: 2, window_ms: None, cpus: 2, patience, again: false }
    }

    const FIGURES: Figures = Figures {
        ops: 1,
        wall_ms: 100.0,
        cpu_ms: 1.0,
        longest_wait_us: 1.0,
        switches: 0,
        min_ops: 0,
        max_ops: 1,
        others_ms: 0.0,
    };

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
        let cells = cells::chosen(cells::Extent::Quick, false, None).expect("cells");
        let contestants = [contestant("glibc", "1", false), contestant("x", "1", true)];
        let plan = plan(&cells, &contestants);
        let all = jobs(&store(&file), &plan);
        // Two rounds of both, and a long run of ours.
        assert_eq!(all.len(), cells.len() * (2 * 2 + 1));
        assert_eq!(all, jobs(&store(&file), &plan), "the order is the same each time");
        let mut first = store(&file);
        for job in first.missing(&plan).iter().take(7) {
            first.add(run_of(job, Outcome::Measured(FIGURES))).expect("written");
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
        second.add(run_of(&next, Outcome::Measured(FIGURES))).expect("written");
        assert_eq!(jobs(&store(&file), &plan), all[8..]);
    }

    #[test]
    fn a_cell_that_only_served_others_is_run_again_when_it_is_chosen() {
        let directory = crate::workspace::scratch("regret-beside").expect("a directory");
        let mut store = store(&directory.join("runs.jsonl"));
        let cells = [cells::named("1 µs, 2 µs outside, 8 threads").expect("a cell")];
        let alone = cells[0].alone();
        let contestants = [contestant("glibc", "1", false), contestant("x", "1", false)];
        let with = |chosen, beside| Plan { beside, ..plan(chosen, &contestants) };
        for job in store.missing(&with(&cells, &alone)) {
            store.add(run_of(&job, Outcome::Measured(FIGURES))).expect("written");
        }
        assert_eq!(store.runs.iter().filter(|run| run.beside).count(), 2 * 2 * 2);
        let again = store.missing(&with(&alone, &[]));
        assert_eq!(again.len(), 2 * 2 * 2);
        for job in again {
            store.add(run_of(&job, Outcome::Measured(FIGURES))).expect("written");
        }
        assert!(store.missing(&with(&cells, &alone)).is_empty() && store.missing(&with(&alone, &[])).is_empty());
    }

    #[test]
    fn runs_of_another_build_do_not_count() {
        let directory = crate::workspace::scratch("regret-builds").expect("a directory");
        let mut store = store(&directory.join("runs.jsonl"));
        let cells = cells::chosen(cells::Extent::Quick, false, None).expect("cells");
        let old = [contestant("glibc", "1", false), contestant("x", "1", true)];
        for job in store.missing(&plan(&cells, &old)) {
            store.add(run_of(&job, Outcome::Measured(FIGURES))).expect("written");
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
            store.add(run_of(job, Outcome::Measured(Figures { others_ms, ..FIGURES }))).expect("written");
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

    #[test]
    fn a_run_is_disturbed_by_what_others_use() {
        assert!(!Figures { others_ms: 29.0, ..FIGURES }.is_disturbed(2));
        assert!(Figures { others_ms: 31.0, ..FIGURES }.is_disturbed(2));
    }
}
