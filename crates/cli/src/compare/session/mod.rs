//! All runs: a trial with glibc, then rounds in random order until the result is clear, the time is over, or the user
//! interrupts.
//!
//! This file has the rounds; [`trial`] comes before them.

mod trial;

use std::time::{Duration, Instant};

use flashlock_measure::noise;
use flashlock_report::results::{Failed, Noise, Results, Run, Unfinished};
use flashlock_report::statistics::Random;
use flashlock_report::statistics::verdict::LEAST_ROUNDS;
use flashlock_report::units;
use indicatif::{ProgressBar, ProgressStyle};

use super::contestant::Contestant;
use super::merit::NoFigure;
use super::plan::{Cell, Plan};
use super::process::{Ending, Outcome, Watch};
use super::rivals::{self, Workshop};
use super::schedule::{self, Limit, Until, spoken};
use crate::failure::Failure;
use crate::screen;

/// A lock that takes so many times as long as glibc's is slow.
const SLOW: f64 = 1.05;
/// Intervals are narrow enough at 2 % to either side.
const REACH: f64 = 1.02;
/// If the program failed so often with a lock and a number of threads, that combination is not tried again; nor if the
/// metric was 0 so often.
const ENOUGH_FAILURES: usize = 2;
/// How long a run of the map measures in the trial, in ms.
const TRIAL_MILLIS: u64 = 20;
/// How often the screen is updated during a run.
const TICK: Duration = Duration::from_millis(250);

/// The outcome of a comparison.
pub(super) struct Measured {
    pub(super) results: Results,
    /// Further notes for the reader.
    pub(super) notes: Vec<String>,
}

/// A comparison in progress.
pub(super) struct Session<'a> {
    plan: &'a Plan,
    watch: Watch,
    contestants: Vec<Contestant>,
    cells: Vec<Cell>,
    /// Its libraries are used until the end.
    workshop: Option<Workshop>,
    /// How long each run of the map measures.
    millis: u64,
    /// The time of a run with glibc, for each cell.
    under_glibc: Vec<Duration>,
    /// The overhead between two runs.
    beside: Duration,
    results: Results,
    notes: Vec<String>,
    random: Random,
    /// Times of the loop of constant work, in ns.
    loops: Vec<f64>,
    /// By cell and contestant: whether it is no longer tried, how long its last run took, and how long the longest one
    /// that succeeded.
    given_up: Vec<bool>,
    took: Vec<Duration>,
    longest: Vec<Option<Duration>>,
    /// In how many of its runs the metric was 0.
    zeros: Vec<usize>,
    progress: ProgressBar,
    start: Instant,
    rounds_start: Instant,
    deadline: Option<Instant>,
}

/// Why the comparison ends early.
enum Stop {
    /// The user interrupted it.
    Interrupted,
    TimeIsUp,
    /// It failed, and there is nothing to show.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

type Step = Result<(), Stop>;

impl<'a> Session<'a> {
    /// A session that is ready to begin.
    pub(super) fn new(plan: &'a Plan) -> Result<Self, Failure> {
        let now = Instant::now();
        let mut session = Self {
            plan,
            watch: Watch::begin(),
            contestants: plan.contestants.clone(),
            cells: plan.cells.clone(),
            workshop: None,
            millis: TRIAL_MILLIS,
            under_glibc: Vec::new(),
            beside: Duration::ZERO,
            results: Results::default(),
            notes: Vec::new(),
            random: Random::new(plan.seed),
            loops: Vec::new(),
            given_up: Vec::new(),
            took: Vec::new(),
            longest: Vec::new(),
            zeros: Vec::new(),
            progress: ProgressBar::no_length().with_style(style("{spinner} {msg}")?),
            start: now,
            rounds_start: now,
            deadline: None,
        };
        session.prepare_results();
        // A long run must not look like a hang.
        session.progress.enable_steady_tick(TICK);
        Ok(session)
    }

    /// Runs everything. An error means that there is nothing to show.
    pub(super) fn run(mut self) -> Result<Measured, Failure> {
        let ended = self.measure();
        self.progress.finish_and_clear();
        // No process needs the libraries any more.
        self.workshop = None;
        match ended {
            Err(Stop::Failed(failure)) => return Err(failure),
            Err(Stop::Interrupted) => self.results.method.interrupted = true,
            Ok(()) | Err(Stop::TimeIsUp) => {}
        }
        self.results.noise = Noise::of(&self.loops);
        self.results.derive();
        self.results.judge();
        Ok(Measured { results: self.results, notes: self.notes })
    }

    fn measure(&mut self) -> Step {
        if self.plan.is_map
            && let Until::Settled(time) = self.plan.until
        {
            let option = if self.plan.is_demonstration { "" } else { " (--time)" };
            self.announce(&format!("this takes about {}{option}", spoken(time.unwrap_or(schedule::TIME))));
        }
        self.find_rivals()?;
        self.try_all()?;
        self.leave_out_what_only_starts()?;
        self.make_schedule()?;
        self.rounds_start = Instant::now();
        for round in 0.. {
            self.round(round)?;
            self.give_up_what_takes_too_long(round + 1);
            if self.is_over(round + 1) {
                break;
            }
        }
        Ok(())
    }

    fn find_rivals(&mut self) -> Step {
        self.progress.set_message("preparing other locks");
        let made = rivals::make(&self.plan.rivals, &self.watch)?.ok_or(Stop::Interrupted)?;
        self.contestants.extend(made.contestants);
        self.workshop = made.workshop;
        Ok(())
    }

    fn announce(&self, what: &str) {
        self.progress.suspend(|| screen::tell(&format!("flashlock: {what}\n")));
    }

    fn prepare_results(&mut self) {
        self.results = self.plan.results(&self.contestants, &self.cells, self.millis);
        self.given_up = vec![false; self.results.points.len()];
        self.took = vec![Duration::ZERO; self.results.points.len()];
        self.longest = vec![None; self.results.points.len()];
        self.zeros = vec![0; self.results.points.len()];
    }

    /// Runs all remaining combinations of cell and contestant once, in random order.
    fn round(&mut self, round: u32) -> Step {
        let mut order: Vec<usize> = (0..self.results.points.len()).filter(|&point| !self.given_up[point]).collect();
        self.random.shuffle(&mut order);
        self.results.method.rounds = round + 1;
        for point in order {
            self.loops.extend(noise::time_of_loop());
            if self.watch.interrupted() {
                return Err(Stop::Interrupted);
            }
            self.run_once(round, point)?;
            match self.plan.until {
                Until::Rounds(_) => self.progress.inc(1),
                Until::Settled(_) => self.progress.set_position(self.start.elapsed().as_secs()),
            }
        }
        Ok(())
    }

    fn run_once(&mut self, round: u32, point: usize) -> Step {
        let (cell, contestant) = (point / self.contestants.len(), point % self.contestants.len());
        let contestant = &self.contestants[contestant];
        let threads = with_threads(self.cells[cell]);
        self.progress.set_message(format!("round {}, {}{threads}", round + 1, contestant.name()));
        let mut command = self.plan.process(self.cells[cell], contestant, self.millis)?;
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let limit = self.limit(round, cell, left);
        let is_cut = left.is_some_and(|left| left < limit.time);
        let outcome = self.watch.run(&mut command, left.map_or(limit.time, |left| left.min(limit.time)));
        let run = match outcome.map_err(|error| self.plan.cannot_run(self.cells[cell], &error))? {
            Outcome::Finished(run) => run,
            Outcome::Interrupted => return Err(Stop::Interrupted),
        };
        let timed_out = matches!(run.ending, Ending::TimedOut(_));
        // The program may work. There is only no time to wait for this run.
        let is_short = limit.is_short && !self.results.points[point].runs.is_empty();
        if let Ending::TimedOut(after) = run.ending
            && (is_cut || is_short)
        {
            let longest = self.longest[point].map(|longest| longest.as_secs_f64());
            self.results.points[point].unfinished.push(Unfinished { round, seconds: after.as_secs_f64(), longest });
        }
        if timed_out && is_cut {
            return Err(Stop::TimeIsUp);
        }
        let is_glibc = matches!(contestant, Contestant::Glibc);
        self.took[point] = run.resources.elapsed;
        if timed_out && is_short {
            if !is_glibc {
                self.given_up[point] = true;
                self.notes.push(format!(
                    "Given up in round {}, to keep to the time: {}{threads} (a run took more than {}).",
                    round + 1,
                    contestant.name(),
                    spoken(limit.time)
                ));
            }
            return Ok(());
        }
        let figures = match run.ending {
            Ending::Success => self.plan.merit.figures(&run, contestant).map_err(|none| match none {
                NoFigure::NotFound => "exit status 0, but its output does not match --metric".to_owned(),
                NoFigure::Bad(what) => what,
            }),
            failed => Err(failed.words()),
        };
        let point_of = &mut self.results.points[point];
        match figures {
            Ok(values) => {
                self.zeros[point] += usize::from(self.plan.merit.is_zero(&values));
                self.given_up[point] = !is_glibc && self.zeros[point] >= ENOUGH_FAILURES;
                point_of.runs.push(Run { round, values });
                self.longest[point] = self.longest[point].max(Some(run.resources.elapsed));
            }
            Err(how) => {
                point_of.failures.push(Failed { round, how, timed_out, output: run.last_words() });
                // glibc is never given up, because the others are compared with it.
                self.given_up[point] = !is_glibc && (timed_out || point_of.failures.len() >= ENOUGH_FAILURES);
            }
        }
        Ok(())
    }

    /// The time limit of a run in this cell.
    fn limit(&self, round: u32, cell: usize, left: Option<Duration>) -> Limit {
        let spare = left.map(|left| {
            let needed = self.under_glibc.iter().sum::<Duration>() * self.contestants.len() as u32;
            left.saturating_sub(needed * LEAST_ROUNDS.saturating_sub(round))
        });
        let wanted = self.plan.timeout.map(|time| Limit { time, is_short: false });
        wanted.unwrap_or_else(|| Limit::of(self.under_glibc[cell], spare))
    }

    /// If a verdict needs more rounds than fit into the remaining time, gives up the slowest locks, so that the others
    /// get a verdict.
    fn give_up_what_takes_too_long(&mut self, rounds: u32) {
        let (Some(deadline), rounds_left @ 1..) = (self.deadline, LEAST_ROUNDS.saturating_sub(rounds)) else { return };
        let left = deadline.saturating_duration_since(Instant::now());
        let all = self.contestants.len();
        let mut slow = Vec::new();
        loop {
            let time_of = |contestant: usize| {
                let points = (contestant..self.took.len()).step_by(all).filter(|&point| !self.given_up[point]);
                points.map(|point| self.took[point] + self.beside).sum::<Duration>()
            };
            let needed = (0..all).map(time_of).sum::<Duration>() * rounds_left;
            let mut tried = (1..all).filter(|&lock| time_of(lock) > Duration::ZERO);
            let slowest = tried.clone().max_by_key(|&lock| time_of(lock));
            let Some(slowest) = slowest.filter(|_| needed > left && tried.nth(1).is_some()) else { break };
            let share = time_of(slowest).as_secs_f64() / time_of(0).as_secs_f64().max(1e-9);
            let name = self.contestants[slowest].name();
            slow.push(if share < SLOW { name.to_owned() } else { format!("{name} ({share:.1} times glibc's time)") });
            (slowest..self.given_up.len()).step_by(all).for_each(|point| self.given_up[point] = true);
        }
        if !slow.is_empty() {
            let round = units::counted(rounds.into(), "round");
            self.notes.push(format!("Given up after {round}, to keep to the time: {}.", slow.join(", ")));
        }
    }

    /// Whether so many rounds are enough.
    fn is_over(&mut self, rounds: u32) -> bool {
        if let Until::Rounds(wanted) = self.plan.until {
            return rounds >= wanted;
        }
        let round = self.rounds_start.elapsed() / rounds;
        if rounds >= LEAST_ROUNDS && self.deadline.is_some_and(|deadline| Instant::now() + round > deadline) {
            return true;
        }
        self.results.derive();
        self.results.judge();
        let tried = self.tried();
        // A lock that failed in some cell gets no more complete rounds, so it need not be awaited.
        tried.is_empty()
            || self.results.verdicts.values().all(|verdict| verdict.is_settled(tried.iter().copied(), REACH))
    }

    /// The locks that are still tried in every cell.
    fn tried(&self) -> Vec<&str> {
        let names = self.contestants.iter().enumerate().skip(1);
        let all = self.contestants.len();
        names
            .filter(|(number, _)| self.given_up.iter().skip(*number).step_by(all).all(|given_up| !given_up))
            .map(|(_, contestant)| contestant.name())
            .collect()
    }
}

/// ` with 8 threads`.
fn with_threads(cell: Cell) -> String {
    cell.threads.map_or_else(String::new, |threads| format!(" with {}", units::counted(u64::from(threads), "thread")))
}

/// The style of the progress line on a terminal.
fn style(template: &str) -> Result<ProgressStyle, Failure> {
    ProgressStyle::with_template(template).map_err(Failure::new)
}
