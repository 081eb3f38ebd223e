//! Before the rounds: a trial with glibc, and the schedule that follows from it.

use std::time::{Duration, Instant};

use flashlock_measure::noise;
use flashlock_report::statistics::verdict::LEAST_ROUNDS;
use flashlock_report::units;

use super::{Session, Step, Stop, style, with_threads};
use crate::compare::contestant::Contestant;
use crate::compare::merit::{NoFigure, ZERO};
use crate::compare::plan::Cell;
use crate::compare::process::{Ending, Finished, Outcome};
use crate::compare::schedule::{self, Schedule, TooShort, Trial, Until, seconds_enough, spoken};
use crate::compare::{FAILS_ANYWAY, NO_ANSWER, NO_METRIC};
use crate::failure::Failure;

/// The default time limit of a trial.
const TRIAL_LIMIT: Duration = Duration::from_secs(600);
/// A shorter run mainly measures the program's start: loading it and flashlock's library takes at least a millisecond.
const START_UP: Duration = Duration::from_millis(50);
/// A run that ends sooner is repeated, because the first run may have read files from a disk. The fastest run counts.
const QUICK: Duration = Duration::from_millis(500);
const QUICK_TRIALS: u32 = 3;
/// The map's time is divided into so many rounds.
const ROUNDS_OF_MAP: u32 = 5;
/// The minimum and the maximum measuring time of a run of the map, in ms.
const LEAST_MILLIS: u64 = 20;
const MOST_MILLIS: u64 = 250;

impl Session<'_> {
    /// One run with glibc for each number of threads: a failure there says nothing about flashlock's locks.
    pub(super) fn try_all(&mut self) -> Step {
        for cell in self.cells.clone() {
            self.progress.set_message(format!("a trial under glibc{}", with_threads(cell)));
            let mut fastest = self.try_one(cell)?;
            if fastest < QUICK && self.plan.merit.is_run_time() {
                for _ in 1..QUICK_TRIALS {
                    fastest = fastest.min(self.try_one(cell)?);
                }
            }
            self.under_glibc.push(fastest);
        }
        Ok(())
    }

    fn try_one(&mut self, cell: Cell) -> Result<Duration, Stop> {
        let left = match self.plan.until {
            Until::Settled(Some(time)) => Some(time.saturating_sub(self.start.elapsed())),
            _ => None,
        };
        let limit = self.plan.timeout.unwrap_or(TRIAL_LIMIT);
        let is_cut = left.is_some_and(|left| left < limit);
        let mut command = self.plan.process(cell, &Contestant::Glibc, self.millis)?;
        let run = self.watch.run(&mut command, left.map_or(limit, |left| left.min(limit)));
        let run = match run.map_err(|error| self.plan.cannot_run(cell, &error))? {
            Outcome::Finished(run) => run,
            Outcome::Interrupted => return Err(Stop::Interrupted),
        };
        if is_cut && matches!(run.ending, Ending::TimedOut(_)) {
            return Err(Failure::new(format_args!(
                "'{}' did not end under glibc{} before the time was up, so nothing was compared. Give it less work or \
                 a longer --time.",
                self.plan.title(),
                with_threads(cell)
            ))
            .with_code(NO_ANSWER)
            .into());
        }
        self.check_trial(cell, &run)?;
        Ok(run.resources.elapsed)
    }

    /// Reports a program that does not work as required with glibc.
    fn check_trial(&self, cell: Cell, run: &Finished) -> Result<(), Failure> {
        let (title, threads) = (self.plan.title(), with_threads(cell));
        let printed = match run.last_words() {
            words if words.is_empty() => "It printed nothing.".to_owned(),
            words => format!("The end of what it printed:\n{words}"),
        };
        let broken = |what: String| Err(Failure::new(what).with_code(FAILS_ANYWAY));
        match run.ending {
            Ending::Success => {}
            Ending::TimedOut(_) => {
                return broken(format!(
                    "'{title}' {}{threads} under glibc itself, so locks cannot be compared. Give it less work or more \
                     time (--timeout). {printed}",
                    run.ending.words()
                ));
            }
            _ => {
                return broken(format!(
                    "'{title}' fails under glibc itself{threads} ({}), so locks cannot be compared. Correct the \
                     command first. {printed}",
                    run.ending.words()
                ));
            }
        }
        match self.plan.merit.figures(run, &Contestant::Glibc) {
            // The map's trial is short; its runs are longer.
            Ok(figures) if self.plan.merit.is_zero(&figures) && !self.plan.is_map => {
                Err(Failure::new(format_args!("under glibc{threads}, the metric is 0: {ZERO}. {printed}"))
                    .with_code(NO_ANSWER))
            }
            Ok(_) => Ok(()),
            Err(NoFigure::NotFound) => Err(Failure::new(format_args!(
                "--metric matches nothing in the output of '{title}' under glibc{threads}. {printed}"
            ))
            .with_code(NO_METRIC)),
            Err(NoFigure::Bad(what)) => {
                Err(Failure::new(format_args!("under glibc{threads}: {what}. {printed}")).with_code(NO_METRIC))
            }
        }
    }

    /// Leaves out runs that end within milliseconds: they have only started, so they are not ranked.
    pub(super) fn leave_out_what_only_starts(&mut self) -> Result<(), Failure> {
        if !self.plan.merit.is_run_time() {
            return Ok(());
        }
        let (short, long): (Vec<_>, Vec<_>) =
            self.cells.iter().copied().zip(self.under_glibc.iter().copied()).partition(|(_, took)| *took < START_UP);
        let Some(&(cell, took)) = short.first() else { return Ok(()) };
        let title = self.plan.title();
        let took = spoken(took);
        let what = "such a short run is mostly start-up, and says nothing about locks";
        let instead = "Give it more work (a second is enough), or compare a number that it prints (--metric).";
        if long.is_empty() {
            return Err(Failure::new(format_args!(
                "'{title}' ends after {took} under glibc{}: {what}. Nothing was ranked. {instead}",
                with_threads(cell)
            ))
            .with_code(NO_ANSWER));
        }
        let threads: Vec<String> = short.iter().map(|(cell, _)| cell.heading()).collect();
        self.notes.push(format!(
            "Not ranked: {} threads. The program ends after {took} there, and {what}. {instead}",
            threads.join(", ")
        ));
        (self.cells, self.under_glibc) = long.into_iter().unzip();
        Ok(())
    }

    /// Decides what fits into the time, and announces how long it takes.
    pub(super) fn make_schedule(&mut self) -> Result<(), Failure> {
        let before = Instant::now();
        self.loops.extend(noise::time_of_loop());
        self.beside = before.elapsed();
        if self.plan.is_map {
            self.set_length_of_map();
        }
        let trial = Trial {
            cells: self.under_glibc.iter().map(|took| *took + self.beside).collect(),
            spent: self.start.elapsed(),
            contestants: self.contestants.len(),
        };
        let fits = trial.schedule(self.plan.until).map_err(|short| self.too_short(short))?;
        let left_out: Vec<String> =
            self.contestants.drain(fits.kept..).map(|contestant| contestant.name().to_owned()).collect();
        self.deadline = fits.is_limit.then(|| self.start + fits.total);
        if !left_out.is_empty() {
            let what = format!(
                "{LEAST_ROUNDS} rounds of all locks would take about {}, so these were left out: {}",
                spoken(trial.least(trial.contestants)),
                left_out.join(", ")
            );
            self.announce(&what);
            self.notes.push(format!("{}.", capitalised(&what)));
        }
        if !self.plan.is_map || matches!(self.plan.until, Until::Rounds(_)) {
            self.announce(&self.promise(&fits));
        }
        self.prepare_results();
        let style = match self.plan.until {
            Until::Rounds(_) => style("{spinner} {bar:24} {pos}/{len} runs  {msg}")?,
            Until::Settled(_) => style("{spinner} {bar:24} {pos}/{len} s  {msg}")?,
        };
        self.progress.set_style(style);
        self.progress.set_length(match self.plan.until {
            Until::Rounds(rounds) => u64::from(rounds) * self.results.points.len() as u64,
            Until::Settled(_) => fits.total.as_secs(),
        });
        Ok(())
    }

    /// Lets the map measure for as long as the time allows.
    fn set_length_of_map(&mut self) {
        let budget = match self.plan.until {
            Until::Settled(Some(time)) => time,
            _ => schedule::TIME,
        };
        let trial = Duration::from_millis(self.millis);
        let overheads: Vec<Duration> = self.under_glibc.iter().map(|took| took.saturating_sub(trial)).collect();
        let overhead = overheads.iter().sum::<Duration>() / overheads.len().max(1) as u32;
        let runs = ROUNDS_OF_MAP * (self.cells.len() * self.contestants.len()) as u32;
        let share = budget.saturating_sub(self.start.elapsed()).mul_f64(0.85) / runs;
        let millis = share.saturating_sub(overhead + self.beside).as_millis() as u64;
        self.millis = millis.clamp(LEAST_MILLIS, MOST_MILLIS);
        let long = Duration::from_millis(self.millis);
        self.under_glibc = overheads.into_iter().map(|overhead| overhead + long).collect();
    }

    fn too_short(&self, TooShort { two, all }: TooShort) -> Failure {
        let each = self.under_glibc.iter().sum::<Duration>();
        Failure::new(format_args!(
            "the time is too short to compare anything: a run takes {} under glibc, and {LEAST_ROUNDS} rounds are \
             needed. Use --time {} for one lock, --time {} for all locks; or give the program less work.",
            spoken(each),
            seconds_enough(two),
            seconds_enough(all)
        ))
        .with_code(NO_ANSWER)
    }

    /// A sentence that says how long it takes.
    fn promise(&self, fits: &Schedule) -> String {
        let locks = units::counted(self.contestants.len() as u64 - 1, "lock");
        let run = spoken(self.under_glibc.iter().sum::<Duration>() / self.under_glibc.len().max(1) as u32);
        let cells = match self.cells.len() {
            1 => String::new(),
            cells => format!(" with each of {cells} numbers of threads"),
        };
        let what = format!("glibc and {locks}{cells}, {run} for a run under glibc");
        match self.plan.until {
            Until::Rounds(rounds) => format!(
                "this takes about {}, or longer if a lock is slower than glibc: {} of {what}",
                spoken(fits.total),
                units::counted(rounds.into(), "round")
            ),
            Until::Settled(_) => format!("this takes {} at most (--time): {what}", spoken(fits.total)),
        }
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
