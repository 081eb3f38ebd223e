//! `cargo xtask conformance`: what a pthread mutex and condition variable must do, under glibc and under every lock.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use flashlock_locks::machine::event::Event;
use flashlock_native::settings;
use flashlock_report::run_stats::RunStats;

use crate::child::{AGAINST_HANGS, Finished, Program};
use crate::faults;
use crate::locks::{self, Chosen, Exception, Under};
use crate::steps::{Tally, watched};
use crate::suite::{self, Excepted, Extent, Measure, Suite};
use crate::torture;
use crate::verdicts::{self, Verdict, Verdicts};
use crate::workspace;

/// For how long (s) a check repeats itself in a brief run.
pub(crate) const BRIEF: &str = "0.25";

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    chosen: Chosen,
    /// Use every interposable lock (the default without --lock)
    #[arg(long, conflicts_with = "lists")]
    all: bool,
    /// Repeat checks for a quarter of a second instead of one and a half (in slow_motion twice as long)
    #[arg(long)]
    brief: bool,
    #[arg(skip = Extent::WHOLE)]
    extent: Extent,
    #[arg(skip)]
    exhaustive: bool,
    /// Run only checks whose name (area.title) matches
    #[arg(value_name = "GLOB")]
    globs: Vec<String>,
}

impl Options {
    /// Every check under every lock, at length.
    pub(crate) fn exhaustive() -> Self {
        let (chosen, extent) = (Chosen::default(), Extent::WHOLE);
        Self { chosen, all: true, brief: false, extent, exhaustive: true, globs: Vec::new() }
    }

    /// Every check under these locks, as `--brief` says, but of what a lock may fail one check for each exception.
    pub(crate) fn brief(chosen: Chosen) -> Self {
        let extent = Extent { excepted: Excepted::Sample, ..Extent::WHOLE };
        Self { chosen, all: false, brief: true, extent, exhaustive: false, globs: Vec::new() }
    }

    /// Each lock runs a 1/`share` sample of the matching checks that it must pass. For a step beside one that shows
    /// that glibc passes them all.
    pub(crate) fn share(chosen: Chosen, globs: Vec<String>, share: usize) -> Self {
        let extent = Extent { measure: Measure::WhereSkipped, excepted: Excepted::Nothing, share };
        Self { extent, globs, ..Self::brief(chosen) }
    }
}

pub(crate) fn run(options: &Options) -> Result<Tally> {
    let locks = options.chosen.locks()?;
    let mut suite = Conformance::build(&options.globs, Vec::new())?;
    suite.chosen = options.chosen.clone();
    (suite.extent, suite.brief, suite.exhaustive) = (options.extent, options.brief, options.exhaustive);
    if let Some(lock) = locks.first() {
        Under::lock(&lock.name)?.assert_bound(&suite.program)?;
    }
    let mut tally = suite::run(&suite, &locks)?;
    if suite.is_whole {
        tally += faults::run(&suite.program)?;
    }
    Ok(tally)
}

/// What is checked while it is counted. Not what takes long or is about other things than the locks' own semantics.
const COUNTED: [&str; 12] = [
    "mutex_*",
    "cond_*",
    "c11.*",
    "errno_kept.*",
    "rwlock*",
    "sem*",
    "spin*",
    "passthrough*",
    "fork.*",
    "exit.*",
    "malloc.*",
    "sandbox.*",
];

/// Checks of what is counted by `flashlock run --stats`: glibc's own locks, and the default lock, still do what they
/// must; and are counted.
pub(crate) fn counted() -> Result<Tally> {
    let suite = Conformance::build(&COUNTED.map(str::to_owned), Vec::new())?;
    let mut tally = Tally::default();
    for lock in [settings::GLIBC.to_owned(), locks::default_name()?] {
        let file = workspace::scratch("counted")?.join(format!("{lock}.json"));
        let mut command = Command::new(workspace::command()?);
        command.args(["run", "--lock", &lock, "--stats=json", "--stats-file"]).arg(&file).arg("--").arg(&suite.program);
        command.args(["--timeout", "600", "--jobs", "8"]).args(&suite.checks).env("CONFORMANCE_SECONDS", BRIEF);
        let limit = Duration::from_secs(60 + Conformance::LIMIT * suite.checks.len() as u64);
        let done = watched(&lock, || Program::new(command, limit).run())?;
        for (check, verdict) in verdicts::read(&done, &suite.checks)? {
            tally += match verdict {
                Verdict::Passed => Tally::PASSED,
                Verdict::Skipped(_) => Tally { skipped: 1, ..Tally::default() },
                Verdict::Failed(reason) => {
                    println!("not ok {lock}, counted: {check}: {reason}");
                    Tally::FAILED
                }
            };
        }
        let stats = RunStats::read(&file)?;
        for event in [
            Event::Acquire,
            Event::Contended,
            Event::CondWait,
            Event::RwRead,
            Event::RwWrite,
            Event::SemAcquire,
            Event::SpinAcquire,
        ] {
            if stats.events.of(event.name()) == 0 {
                println!("not ok {lock}, counted: no {}", event.name());
                tally += Tally::FAILED;
            }
        }
    }
    Ok(tally)
}

/// The conformance program, built, and which of its checks are meant.
pub(crate) struct Conformance {
    program: PathBuf,
    checks: Vec<String>,
    /// Whether these are all checks.
    is_whole: bool,
    /// Libraries preloaded after ours.
    others: Vec<PathBuf>,
    /// The machine that the locks assume.
    chosen: Chosen,
    /// Whether checks that repeat themselves do so for as long as [`BRIEF`] says.
    brief: bool,
    extent: Extent,
    exhaustive: bool,
}

impl Conformance {
    /// Seconds that a check may take. Against hangs: on a quiet machine the longest takes three or so. Once some have
    /// hung the program has less patience with the others.
    const LIMIT: u64 = 600;
    /// The same where each pair of instructions has its turn.
    const LIMIT_IN_FULL: u64 = 12 * 3600;
    /// The same for one that is known to hang, and nothing is wrong if it does: when all of them run, and when some do.
    const LIMITS_OF_EXCEPTED: (u64, u64) = (20, 3);
    /// Checks at a time: in general, and of those that are known to hang and do nothing else.
    const JOBS: (u64, u64) = (8, 16);

    pub(crate) fn build(globs: &[String], others: Vec<PathBuf>) -> Result<Self> {
        Self::of(workspace::build_tests("conformance", "target/conformance")?.join("conformance"), globs, others)
    }

    /// The same with a program that has been built already.
    pub(crate) fn of(program: PathBuf, globs: &[String], others: Vec<PathBuf>) -> Result<Self> {
        let (checks, is_whole, chosen) = (Vec::new(), globs.is_empty(), Chosen::default());
        let (brief, extent, exhaustive) = (false, Extent::WHOLE, false);
        let mut suite = Self { program, checks, is_whole, others, chosen, brief, extent, exhaustive };
        let listed = suite.start(&Under::Glibc, &[&["--list".to_owned()], globs].concat(), false, AGAINST_HANGS)?;
        suite.checks = listed.successful()?.lines().map(str::to_owned).collect();
        if suite.checks.is_empty() {
            bail!("`conformance --list` names no check");
        }
        Ok(suite)
    }

    /// The same in brief and without a row for glibc, for locks that another run has compared with it.
    pub(crate) fn without_glibc(self) -> Self {
        let extent = Extent { measure: Measure::WhereSkipped, ..self.extent };
        Self { brief: true, extent, ..self }
    }

    /// The same with fewer of the checks that a lock may fail.
    pub(crate) fn trying(self, excepted: Excepted) -> Self {
        Self { extent: Extent { excepted, ..self.extent }, ..self }
    }

    fn start(&self, under: &Under, words: &[String], excepted: bool, limit: Duration) -> Result<Finished> {
        let mut command = Command::new(&self.program);
        command.args(words);
        if excepted {
            command.env("CONFORMANCE_EXCEPTED", "1");
        }
        if self.brief {
            command.env("CONFORMANCE_SECONDS", BRIEF);
        }
        under.apply(&mut command, &self.others);
        self.chosen.imagine(&mut command);
        Program::new(command, limit).run()
    }
}

impl Suite for Conformance {
    fn checks(&self) -> &[String] {
        &self.checks
    }

    fn prefix(&self) -> &'static str {
        ""
    }

    fn is_about(&self, exception: &Exception) -> bool {
        self.is_whole && !exception.check.starts_with(torture::PREFIX)
    }

    fn extent(&self) -> Extent {
        self.extent
    }

    fn is_exhaustive(&self) -> bool {
        self.exhaustive
    }

    fn run(&self, under: &Under, checks: &[String], excepted: bool) -> Result<Verdicts> {
        let (seconds, jobs) = match (excepted, self.extent.excepted) {
            (false, _) if self.exhaustive => (Self::LIMIT_IN_FULL, Self::JOBS.0),
            (false, _) => (Self::LIMIT, Self::JOBS.0),
            (true, Excepted::All) => (Self::LIMITS_OF_EXCEPTED.0, Self::JOBS.1),
            (true, _) => (Self::LIMITS_OF_EXCEPTED.1, Self::JOBS.1),
        };
        let options = [("--timeout", seconds), ("--jobs", jobs)];
        let options: Vec<String> =
            options.iter().flat_map(|(name, value)| [(*name).to_owned(), value.to_string()]).collect();
        // The program ends each check in time by itself; this is for the case that it does not.
        let limit = Duration::from_secs(60 + seconds * checks.len() as u64);
        verdicts::read(&self.start(under, &[&options, checks].concat(), excepted, limit)?, checks)
    }
}
