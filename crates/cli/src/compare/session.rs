//! All runs: a trial under glibc, then rounds in random order until the result is clear, the time is out, or the user has seen
//! enough.

use std::time::{Duration, Instant};

use flashlock_report::results::{Failed, Noise, Results, Run};
use flashlock_report::statistics::Random;
use flashlock_report::statistics::verdict::LEAST_ROUNDS;
use indicatif::{ProgressBar, ProgressStyle};

use super::merit::NoFigure;
use super::noise;
use super::plan::{Plan, Until};
use super::process::{Ending, Finished, Outcome, Watch};
use super::{FAILS_ANYWAY, NO_METRIC};
use crate::failure::Failure;

/// Intervals this narrow are narrow enough: 2 % to either side.
const REACH: f64 = 1.02;
/// A lock under which the program failed so often with some number of threads is not tried again with it.
const ENOUGH_FAILURES: usize = 2;
/// How long a trial may take if the user does not say.
const TRIAL_LIMIT: Duration = Duration::from_secs(600);
/// A lock that takes so many times as long as glibc is taken to hang …
const HANGS: u32 = 20;
/// … but not before this.
const LEAST_LIMIT: Duration = Duration::from_secs(10);

/// How often the screen shows that a run goes on.
const TICK: Duration = Duration::from_millis(250);

/// A comparison under way.
pub(super) struct Session<'a> {
    plan: &'a Plan,
    watch: Watch,
    results: Results,
    random: Random,
    /// How long a run may take, for each cell.
    limits: Vec<Duration>,
    /// Times of the loop of constant work, in ns.
    loops: Vec<f64>,
    /// By cell and lock: whether it is not tried any more.
    given_up: Vec<bool>,
    progress: ProgressBar,
    start: Instant,
}

/// The user does not want to wait any longer.
struct Interrupted;

impl<'a> Session<'a> {
    /// Ready to begin.
    pub(super) fn new(plan: &'a Plan) -> Result<Self, Failure> {
        let results = plan.results();
        Ok(Self {
            plan,
            watch: Watch::begin(),
            random: Random::new(plan.seed),
            limits: Vec::new(),
            loops: Vec::new(),
            given_up: vec![false; results.points.len()],
            results,
            progress: progress_bar(plan)?,
            start: Instant::now(),
        })
    }

    /// Runs everything. The error is one that leaves nothing to show.
    pub(super) fn run(mut self) -> Result<Results, Failure> {
        let ended = self.measure();
        self.progress.finish_and_clear();
        self.results.method.interrupted = ended?.is_err();
        self.results.noise = Noise::of(&self.loops);
        self.results.derive();
        self.results.judge();
        Ok(self.results)
    }

    fn measure(&mut self) -> Result<Result<(), Interrupted>, Failure> {
        if self.try_all()?.is_err() {
            return Ok(Err(Interrupted));
        }
        self.start = Instant::now();
        for round in 0.. {
            if self.round(round)?.is_err() {
                return Ok(Err(Interrupted));
            }
            if self.is_over(round + 1) {
                break;
            }
        }
        Ok(Ok(()))
    }

    /// One run under glibc for each number of threads: what does not work there says nothing about our locks.
    fn try_all(&mut self) -> Result<Result<(), Interrupted>, Failure> {
        for &cell in &self.plan.cells {
            self.progress.set_message(format!("a trial under glibc{}", with_threads(cell)));
            let limit = self.plan.timeout.unwrap_or(TRIAL_LIMIT);
            let mut command = self.plan.process(cell, 0)?;
            let run = match self.watch.run(&mut command, limit).map_err(|error| self.plan.cannot_run(&error))? {
                Outcome::Finished(run) => run,
                Outcome::Interrupted => return Ok(Err(Interrupted)),
            };
            self.check_trial(cell, &run)?;
            let limit = (run.resources.elapsed * HANGS).max(LEAST_LIMIT);
            self.limits.push(self.plan.timeout.unwrap_or(limit));
        }
        Ok(Ok(()))
    }

    /// Complains of a program that does not do under glibc what is wanted.
    fn check_trial(&self, cell: Option<u32>, run: &Finished) -> Result<(), Failure> {
        let threads = with_threads(cell);
        let printed = match run.last_words() {
            words if words.is_empty() => "It printed nothing.".to_owned(),
            words => format!("The end of what it printed:\n{words}"),
        };
        if run.ending != Ending::Success {
            let how = run.ending.words();
            return Err(Failure::new(format_args!(
                "'{}' fails under glibc itself{threads} ({how}), so no lock can be judged by it. Correct the command first. {printed}",
                self.plan.title()
            ))
            .with_code(FAILS_ANYWAY));
        }
        match self.plan.merit.figures(run, false) {
            Ok(_) => Ok(()),
            Err(NoFigure::NotFound) => Err(Failure::new(format_args!(
                "--metric matches nothing in what '{}' printed under glibc{threads}. {printed}",
                self.plan.title()
            ))
            .with_code(NO_METRIC)),
            Err(NoFigure::Bad(what)) => {
                Err(Failure::new(format_args!("under glibc{threads}: {what}. {printed}")).with_code(NO_METRIC))
            }
        }
    }

    /// Every cell under everything that is still tried, in random order.
    fn round(&mut self, round: u32) -> Result<Result<(), Interrupted>, Failure> {
        let mut order: Vec<usize> = (0..self.results.points.len()).filter(|&point| !self.given_up[point]).collect();
        self.random.shuffle(&mut order);
        self.results.method.rounds = round + 1;
        for point in order {
            self.loops.extend(noise::time_of_loop());
            if self.watch.interrupted() || self.run_once(round, point)?.is_err() {
                return Ok(Err(Interrupted));
            }
            if matches!(self.plan.until, Until::Rounds(_)) {
                self.progress.inc(1);
            } else {
                let seconds = self.start.elapsed().as_secs();
                // The last round may go beyond the time, and the first ones do where the time is short.
                self.progress.set_length(seconds.max(self.progress.length().unwrap_or(0)));
                self.progress.set_position(seconds);
            }
        }
        Ok(Ok(()))
    }

    fn run_once(&mut self, round: u32, point: usize) -> Result<Result<(), Interrupted>, Failure> {
        let locks = self.results.locks.len();
        let (cell, lock) = (point / locks, point % locks);
        let threads = self.plan.cells[cell];
        let name = &self.results.points[point].lock;
        self.progress.set_message(format!("round {}, {name}{}", round + 1, with_threads(threads)));
        let mut command = self.plan.process(threads, lock)?;
        let outcome = self.watch.run(&mut command, self.limits[cell]);
        let run = match outcome.map_err(|error| self.plan.cannot_run(&error))? {
            Outcome::Finished(run) => run,
            Outcome::Interrupted => return Ok(Err(Interrupted)),
        };
        let figures = match run.ending {
            Ending::Success => self.plan.merit.figures(&run, lock > 0).map_err(|none| match none {
                NoFigure::NotFound => "exit status 0, but its output does not match --metric".to_owned(),
                NoFigure::Bad(what) => what,
            }),
            failed => Err(failed.words()),
        };
        let point_of = &mut self.results.points[point];
        match figures {
            Ok(values) => point_of.runs.push(Run { round, values }),
            Err(how) => {
                let timed_out = matches!(run.ending, Ending::TimedOut(_));
                point_of.failures.push(Failed { round, how, timed_out, output: run.last_words() });
                // glibc stays: without it there is nothing to compare with.
                self.given_up[point] = lock > 0 && (timed_out || point_of.failures.len() >= ENOUGH_FAILURES);
            }
        }
        Ok(Ok(()))
    }

    /// Whether so many rounds are enough.
    fn is_over(&mut self, rounds: u32) -> bool {
        let time = match self.plan.until {
            Until::Rounds(wanted) => return rounds >= wanted,
            Until::Settled(time) => time,
        };
        let spent = self.start.elapsed();
        if rounds >= LEAST_ROUNDS && spent + spent / rounds / 2 >= time {
            return true;
        }
        self.results.derive();
        self.results.judge();
        let tried = self.tried();
        // Of a lock that failed in some cell there are no complete rounds any more: nothing is left to wait for.
        tried.is_empty()
            || self.results.verdicts.values().all(|verdict| verdict.is_settled(tried.iter().copied(), REACH))
    }

    /// The locks that are still tried in every cell.
    fn tried(&self) -> Vec<&str> {
        let names = self.results.locks.iter().enumerate().skip(1);
        let locks = self.results.locks.len();
        names
            .filter(|(lock, _)| self.given_up.iter().skip(*lock).step_by(locks).all(|given_up| !given_up))
            .map(|(_, name)| name.as_str())
            .collect()
    }
}

/// `, 8 threads`.
fn with_threads(cell: Option<u32>) -> String {
    cell.map_or_else(String::new, |threads| {
        format!(" with {}", flashlock_report::units::counted(u64::from(threads), "thread"))
    })
}

/// On a terminal; counts runs, or seconds where nobody knows how many runs there will be.
fn progress_bar(plan: &Plan) -> Result<ProgressBar, Failure> {
    let (length, template) = match plan.until {
        Until::Rounds(rounds) => {
            let runs = plan.cells.len() * (plan.locks.len() + 1);
            (u64::from(rounds) * runs as u64, "{spinner} {bar:24} {pos}/{len} runs  {msg}")
        }
        Until::Settled(time) => (time.as_secs(), "{spinner} {bar:24} {pos}/{len} s  {msg}"),
    };
    let style = ProgressStyle::with_template(template).map_err(Failure::new)?;
    let bar = ProgressBar::new(length).with_style(style);
    // A long run must not look like a hang.
    bar.enable_steady_tick(TICK);
    Ok(bar)
}
