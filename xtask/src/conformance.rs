//! `cargo xtask conformance`: what a pthread mutex and condition variable must do, under glibc and under every lock.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;

use crate::child::{Finished, Program};
use crate::locks::{self, Chosen, Exception, Under};
use crate::steps::Tally;
use crate::suite::{self, Suite, Without};
use crate::torture;
use crate::verdicts::{self, Verdicts};
use crate::workspace;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    chosen: Chosen,
    /// Under every interposable lock (what happens without --lock, too)
    #[arg(long, conflicts_with = "lists")]
    all: bool,
    /// Checks that repeat themselves for three seconds do so for one, but under glibc and the default locks
    #[arg(long)]
    brief: bool,
    #[arg(skip)]
    without: Without,
    /// Only checks whose name (area.title) matches
    #[arg(value_name = "GLOB")]
    globs: Vec<String>,
}

impl Options {
    /// The checks that match, under these locks; no glob stands for all checks.
    pub(crate) fn under(chosen: Chosen, globs: Vec<String>) -> Self {
        Self { chosen, all: false, brief: false, without: Without::default(), globs }
    }

    /// The same, as `--brief` says, but none that the lock may fail.
    pub(crate) fn brief(chosen: Chosen, globs: Vec<String>) -> Self {
        let without = Without { excepted: true, ..Without::default() };
        Self { brief: true, without, ..Self::under(chosen, globs) }
    }
}

pub(crate) fn run(options: &Options) -> Result<Tally> {
    let locks = options.chosen.locks()?;
    let mut suite = Conformance::build(&options.globs, Vec::new())?;
    suite.chosen = options.chosen.clone();
    suite.without = options.without;
    if options.brief {
        let defaults = locks::interposable()?.into_iter().filter(|lock| lock.default);
        suite.be_brief(defaults.map(|lock| lock.name).collect());
    }
    if let Some(lock) = locks.first() {
        Under::lock(&lock.name)?.assert_bound(&suite.program)?;
    }
    suite::run(&suite, &locks)
}

/// The conformance program, built, and which of its checks are meant.
pub(crate) struct Conformance {
    program: PathBuf,
    checks: Vec<String>,
    /// Whether these are all checks.
    is_whole: bool,
    /// Libraries preloaded after ours.
    others: Vec<PathBuf>,
    /// Whose machine the locks imagine.
    chosen: Chosen,
    /// Those under which checks take their time; `None`: all.
    thorough: Option<Vec<String>>,
    without: Without,
}

impl Conformance {
    /// Seconds that a check may take: in general, and when it is known to hang.
    const LIMITS: (u64, u64) = (20, 3);
    /// Checks at a time: in general, of those that [sleep](Self::SLEEP) more than they compute, and of those that are known to hang and do nothing else.
    const JOBS: (u64, u64, u64) = (4, 8, 16);
    /// Where most checks wait for a time to come or for each other.
    const SLEEP: [&str; 3] = ["mutex_", "cond_", "fork."];

    pub(crate) fn build(globs: &[String], others: Vec<PathBuf>) -> Result<Self> {
        Self::of(workspace::build_tests("conformance", "target/conformance")?.join("conformance"), globs, others)
    }

    /// The same with a program that has been built already.
    pub(crate) fn of(program: PathBuf, globs: &[String], others: Vec<PathBuf>) -> Result<Self> {
        let (checks, is_whole, chosen) = (Vec::new(), globs.is_empty(), Chosen::default());
        let (thorough, without) = (None, Without::default());
        let mut suite = Self { program, checks, is_whole, others, chosen, thorough, without };
        let listed = suite.start(&Under::Glibc, &["--list".to_owned()], globs, Duration::from_secs(20))?;
        suite.checks = listed.successful()?.lines().map(str::to_owned).collect();
        if suite.checks.is_empty() {
            bail!("`conformance --list` names no check");
        }
        Ok(suite)
    }

    /// From now on, checks that repeat themselves take their time under glibc and these locks only.
    pub(crate) fn be_brief(&mut self, but_under: Vec<String>) {
        self.thorough = Some(but_under);
    }

    fn is_brief(&self, under: &Under) -> bool {
        match (&self.thorough, under) {
            (Some(thorough), Under::Lock { name, .. }) => !thorough.contains(name),
            _ => false,
        }
    }

    fn start(&self, under: &Under, options: &[String], checks: &[String], limit: Duration) -> Result<Finished> {
        let mut command = Command::new(&self.program);
        command.args(options).args(checks);
        if self.is_brief(under) {
            command.env("CONFORMANCE_SECONDS", "1");
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

    fn without(&self) -> Without {
        self.without
    }

    fn run(&self, under: &Under, checks: &[String], excepted: bool) -> Result<Verdicts> {
        let sleep = checks.iter().all(|check| Self::SLEEP.iter().any(|area| check.starts_with(area)));
        let (seconds, jobs) = match (excepted, sleep) {
            (true, _) => (Self::LIMITS.1, Self::JOBS.2),
            (false, true) => (Self::LIMITS.0, Self::JOBS.1),
            (false, false) => (Self::LIMITS.0, Self::JOBS.0),
        };
        let options = [("--timeout", seconds), ("--jobs", jobs)];
        let options: Vec<String> =
            options.iter().flat_map(|(name, value)| [(*name).to_owned(), value.to_string()]).collect();
        // The program ends each check in time by itself; this is for the case that it does not.
        let limit = Duration::from_secs(60 + seconds * checks.len() as u64);
        verdicts::read(&self.start(under, &options, checks, limit)?, checks)
    }
}
