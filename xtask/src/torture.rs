//! `cargo xtask torture`: do the locks exclude, when threads are many, slow, frozen? And does the torture notice if
//! not?

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use clap::Args;
use flashlock_native::settings;

use crate::child::{AGAINST_HANGS, Finished, Program};
use crate::locks::{Chosen, Exception, Lock, Under};
use crate::steps::Tally;
use crate::suite::{self, Excepted, Extent, Measure, Suite};
use crate::verdicts::{self, Verdict, Verdicts};
use crate::workspace;

/// The numbers of threads: none to exclude, one for each CPU of a small machine, more than CPUs, far more.
const THREADS: [u32; 4] = [1, 2, 8, 64];

/// How long a scenario lasts, in seconds, unless a longer time is asked for.
const SHORT: f64 = 0.2;

/// What a scenario's name begins with in the catalogue's exceptions.
pub(crate) const PREFIX: &str = "torture.";

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    chosen: Chosen,
    /// Numbers of threads of a scenario; one run for each number
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = THREADS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,
    /// How long each scenario lasts [default: 0.2, with --full 5]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Run for longer, and let `short-threads` create at least 100,000 threads
    #[arg(long)]
    full: bool,
    /// The seed of random choices; by default another one each time
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    #[arg(skip = Extent::WHOLE)]
    extent: Extent,
    #[arg(skip)]
    exhaustive: bool,
    /// Run only these scenarios
    #[arg(value_name = "SCENARIO")]
    only: Vec<String>,
}

impl Options {
    /// All scenarios under these locks, one run for each number of threads; an empty list stands for every lock.
    pub(crate) fn under(chosen: Chosen, threads: &[u32]) -> Self {
        let (threads, extent) = (threads.to_vec(), Extent::WHOLE);
        Self { chosen, threads, seconds: None, full: false, seed: None, extent, exhaustive: false, only: Vec::new() }
    }

    /// Everything under every lock, with every number of threads, for a second each.
    pub(crate) fn exhaustive() -> Self {
        Self { seconds: Some(1.0), exhaustive: true, ..Self::under(Chosen::default(), &THREADS) }
    }

    /// All scenarios under these locks, but none that the lock may fail, for half as long.
    pub(crate) fn brief(chosen: Chosen, threads: &[u32]) -> Self {
        let extent = Extent { excepted: Excepted::Nothing, ..Extent::WHOLE };
        Self { extent, seconds: Some(SHORT / 2.0), ..Self::under(chosen, threads) }
    }

    /// The same, of these scenarios, each with that many threads, without a row for glibc.
    pub(crate) fn some(chosen: Chosen, only: Vec<String>, threads: u32) -> Self {
        let brief = Self::brief(chosen, &[threads]);
        let extent = Extent { measure: Measure::WhereSkipped, ..brief.extent };
        Self { only, extent, ..brief }
    }

    /// 100,000 short-lived threads under these locks.
    pub(crate) fn short_lived(chosen: Chosen) -> Self {
        let only = vec!["short-threads".to_owned()];
        Self { full: true, seconds: Some(SHORT), ..Self::some(chosen, only, 8) }
    }
}

pub(crate) fn run(options: &Options) -> Result<Tally> {
    let suite = Torture::build(options)?;
    let mut tally = suite.under_locks(&options.chosen.locks()?)?;
    tally += busted(&suite)?;
    Ok(tally)
}

/// The same without the lock that must be caught: for a step beside one that catches it.
pub(crate) fn run_locks(options: &Options) -> Result<Tally> {
    Torture::build(options)?.under_locks(&options.chosen.locks()?)
}

/// The torture program, built, and how it is to be run.
#[derive(Clone)]
pub(crate) struct Torture {
    program: PathBuf,
    scenarios: Vec<String>,
    /// Whether these are all scenarios.
    is_whole: bool,
    threads: Vec<u32>,
    seconds: f64,
    full: bool,
    seed: u64,
    /// The machine that the locks assume.
    chosen: Chosen,
    extent: Extent,
    exhaustive: bool,
}

impl Torture {
    /// Seconds beyond its time after which a scenario is ended here. The program has a watchdog of its own, which says
    /// more: it comes first, except for a scenario that is known to hang.
    const MARGIN: f64 = 180.0;
    const SHORT_MARGIN: f64 = 3.0;
    /// What making 100,000 threads may take: the program's own watchdog is as patient.
    const FULL_MARGIN: f64 = 600.0;

    fn build(options: &Options) -> Result<Self> {
        Self::of(workspace::build_tests("torture", "target/torture")?.join("torture"), options)
    }

    /// The same with a program that has been built already.
    pub(crate) fn of(program: PathBuf, options: &Options) -> Result<Self> {
        let mut list = Command::new(&program);
        list.arg("--list");
        let listed = Program::new(list, AGAINST_HANGS).run()?.successful()?;
        // Each line is a name and what it is about.
        let mut scenarios: Vec<String> =
            listed.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
        if let Some(unknown) = options.only.iter().find(|name| !scenarios.contains(name)) {
            bail!("no scenario is called {unknown}; there are {}", scenarios.join(", "));
        }
        let is_whole = options.only.is_empty();
        scenarios.retain(|name| is_whole || options.only.contains(name));
        if scenarios.is_empty() || options.threads.is_empty() {
            bail!("nothing to run: {} scenarios, {} numbers of threads", scenarios.len(), options.threads.len());
        }
        let seconds = options.seconds.unwrap_or(if options.full { 5.0 } else { SHORT });
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let (threads, seed, chosen) = (options.threads.clone(), options.seed.unwrap_or(now), options.chosen.clone());
        let (full, extent, exhaustive) = (options.full, options.extent, options.exhaustive);
        Ok(Self { program, scenarios, is_whole, threads, seconds, full, seed, chosen, extent, exhaustive })
    }

    fn under_locks(&self, locks: &[Lock]) -> Result<Tally> {
        if let Some(lock) = locks.first() {
            Under::lock(&lock.name)?.assert_bound(&self.program)?;
        }
        println!("seed {}", self.seed);
        suite::run(self, locks)
    }

    fn start(&self, under: &Under, scenarios: &[String], threads: u32, margin: f64) -> Result<Finished> {
        let mut command = Command::new(&self.program);
        command.args(scenarios).args(["--threads", &threads.to_string()]);
        command.args(["--seconds", &self.seconds.to_string(), "--seed", &self.seed.to_string()]);
        if self.full {
            command.arg("--full");
        }
        under.apply(&mut command, &[]);
        self.chosen.imagine(&mut command);
        let each = self.seconds * 4.0 + margin + if self.full { Self::FULL_MARGIN } else { 0.0 };
        Program::new(command, Duration::from_secs_f64(each * scenarios.len() as f64)).run()
    }
}

impl Suite for Torture {
    fn checks(&self) -> &[String] {
        &self.scenarios
    }

    fn prefix(&self) -> &'static str {
        PREFIX
    }

    fn is_about(&self, exception: &Exception) -> bool {
        self.is_whole && exception.check.starts_with(PREFIX)
    }

    fn extent(&self) -> Extent {
        self.extent
    }

    fn is_exhaustive(&self) -> bool {
        self.exhaustive
    }

    fn run(&self, under: &Under, checks: &[String], excepted: bool) -> Result<Verdicts> {
        // What is known to hang runs alone, so that it takes nothing else with it.
        let (size, margin) = if excepted { (1, Self::SHORT_MARGIN) } else { (checks.len().max(1), Self::MARGIN) };
        let mut all = Verdicts::new();
        for &threads in &self.threads {
            for group in checks.chunks(size) {
                let verdicts = verdicts::read(&self.start(under, group, threads, margin)?, group)?;
                all.extend(verdicts.into_iter().filter_map(|(name, verdict)| {
                    // A scenario that hangs has no closing line; that it has no verdict says enough.
                    let is_echo = excepted && !group.contains(&name);
                    (!is_echo).then(|| (format!("{name}@{threads}"), verdict))
                }));
            }
        }
        Ok(all)
    }
}

/// How much time there is to detect a lock that does not exclude, in seconds: it lets a second thread in once in a
/// while only, and the machine may be busy. A scenario ends with the first failure, here mostly within one.
const TO_BE_CAUGHT: f64 = 60.0;

/// A lock that does not exclude must be detected: if the torture lets it pass, the torture is broken.
fn busted(suite: &Torture) -> Result<Tally> {
    let suite = &Torture { seconds: suite.seconds.max(TO_BE_CAUGHT), ..suite.clone() };
    let preload = build_busted()?;
    let mut tally = Tally::default();
    for (variable, scenario) in [(settings::ENV, "counter"), (settings::ENV_RW, "rw")] {
        let under = Under::Lock { name: "busted".to_owned(), variable, preload: preload.clone() };
        tally += is_caught(suite, &under, scenario)?;
    }
    Ok(tally)
}

fn is_caught(suite: &Torture, under: &Under, scenario: &str) -> Result<Tally> {
    under.assert_bound(&suite.program)?;
    let counter = [scenario.to_owned()];
    let done = suite.start(under, &counter, 8, Torture::MARGIN)?;
    let caught = done.stdout.lines().any(|line| line.starts_with(&format!("not ok {scenario}")));
    let verdict = verdicts::read(&done, &counter)?.into_iter().next();
    match verdict {
        Some((_, Verdict::Failed(reason))) if caught => {
            println!("ok busted: {scenario} finds out a lock that does not exclude: {reason}");
            Ok(Tally::PASSED)
        }
        _ => {
            println!("not ok busted: {scenario} does not find out a lock that does not exclude\n{}", done.transcript());
            Ok(Tally::FAILED)
        }
    }
}

fn build_busted() -> Result<PathBuf> {
    // Not optimised: it runs for seconds, and takes ten times as long to compile else.
    let arguments = ["build", "-p", "flashlock-preload", "--features", "busted", "--target-dir", "target/busted"];
    workspace::cargo(&arguments, Duration::from_secs(900))?;
    let library = workspace::path("target/busted/debug/libflashlock_preload.so");
    workspace::require(library, "its build succeeded, so its name has changed: see crates/preload/Cargo.toml")
}
