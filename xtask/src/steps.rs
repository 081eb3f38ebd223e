//! Counting checks, and named steps with their elapsed time.

use std::io::IsTerminal;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;

use crate::child::cpu_of_children;

/// How many checks passed, failed and did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Tally {
    pub(crate) const PASSED: Self = Self { passed: 1, failed: 0, skipped: 0 };
    pub(crate) const FAILED: Self = Self { passed: 0, failed: 1, skipped: 0 };
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The closing line of every tool here: `N passed, M failed[, K skipped]`.
impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// How long something took, by the clock and in CPU time of the programs that it ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    elapsed: Duration,
    cpu: f64,
}

/// Measures one.
pub(crate) struct Stopwatch {
    started: Instant,
    cpu: f64,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), cpu: Self::cpu() }
    }

    pub(crate) fn read(&self) -> Taken {
        Taken { elapsed: self.started.elapsed(), cpu: Self::cpu() - self.cpu }
    }

    /// What cannot be read is nothing: it is for the reader of a table only.
    fn cpu() -> f64 {
        cpu_of_children().map_or(0.0, |cpu| cpu.total())
    }
}

impl Taken {
    /// Seconds by the clock, and of CPU time.
    pub(crate) fn seconds(self) -> [String; 2] {
        [self.elapsed.as_secs_f64(), self.cpu].map(|seconds| format!("{seconds:.1}"))
    }
}

/// A list of steps, run one after the other; a failing one does not stop the next.
#[derive(Default)]
pub(crate) struct Steps {
    /// If any: what the name of a step must contain for it to run.
    only: Vec<String>,
    done: Vec<(String, Tally, Taken)>,
}

impl Steps {
    /// Only those steps run whose names contain one of these texts; all if there is none.
    pub(crate) fn only(texts: &[String]) -> Self {
        Self { only: texts.to_vec(), done: Vec::new() }
    }

    /// Whether a step of that name runs.
    pub(crate) fn include(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| name.contains(text.as_str()))
    }

    /// Runs one step, if it is meant, and says how it went. An error counts as one failed check, and so does a step
    /// without any check.
    pub(crate) fn run(&mut self, name: &str, step: impl FnOnce() -> Result<Tally>) {
        if !self.include(name) {
            return;
        }
        println!("== {name}");
        let watch = Stopwatch::start();
        let tally = match step() {
            Ok(tally) if tally.passed + tally.failed == 0 => {
                println!("no check ran");
                Tally { failed: 1, ..tally }
            }
            Ok(tally) => tally,
            Err(error) => {
                println!("{error:#}");
                Tally::FAILED
            }
        };
        let taken = watch.read();
        let [seconds, cpu] = taken.seconds();
        println!("== {name}: {tally} ({seconds} s, {cpu} s of CPU time)\n");
        self.done.push((name.to_owned(), tally, taken));
    }

    /// Prints the summary and returns the sum.
    pub(crate) fn finish(self) -> Tally {
        let width = self.done.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
        let mut sum = Tally::default();
        println!("== summary");
        for (name, tally, taken) in self.done {
            let [seconds, cpu] = taken.seconds();
            let mark = if tally.failed == 0 { "ok    " } else { "FAILED" };
            println!("{mark} {name:width$} {seconds:>7} s  CPU {cpu:>7} s  {tally}");
            sum += tally;
        }
        sum
    }
}

/// Does all jobs, so many at a time; the results, in the order of the jobs. The first that fails stops the rest.
pub(crate) fn at_once<J: Sync, T: Send>(
    jobs: &[J],
    most: usize,
    work: impl Fn(&J) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<T>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let (next, results) = (&next, &results);
    let runs = || -> Result<()> {
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(job) = jobs.get(at) else { return Ok(()) };
            let result = work(job).inspect_err(|_| next.store(jobs.len(), Relaxed))?;
            results.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(result);
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..most).map(|_| scope.spawn(runs)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("a thread of this task panicked"),
        })
    })?;
    let results = std::mem::take(&mut *results.lock().unwrap_or_else(PoisonError::into_inner));
    results.into_iter().collect::<Option<Vec<_>>>().context("a job was not done")
}

/// Runs `work` with a spinner and its name, if stderr is a terminal.
pub(crate) fn watched<T>(what: &str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let spinner = ProgressBar::new_spinner().with_message(what.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(120));
    let result = work();
    spinner.finish_and_clear();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_checks_nothing_fails() {
        let mut steps = Steps::default();
        steps.run("nothing", || Ok(Tally { skipped: 4, ..Tally::default() }));
        assert_eq!(steps.finish(), Tally { passed: 0, failed: 1, skipped: 4 });
    }

    #[test]
    fn only_the_steps_that_are_meant_run() {
        let mut steps = Steps::only(&["b".to_owned()]);
        steps.run("a", || Ok(Tally::FAILED));
        steps.run("abc", || Ok(Tally::PASSED));
        assert_eq!(steps.finish(), Tally::PASSED);
    }

    #[test]
    fn the_first_job_that_fails_stops_the_rest() {
        /// Whether the thread of the job that failed has ended.
        static GONE: AtomicUsize = AtomicUsize::new(0);
        struct Gone;
        impl Drop for Gone {
            fn drop(&mut self) {
                GONE.store(1, Relaxed);
            }
        }
        thread_local!(static AT_ITS_END: Gone = const { Gone });
        let begun = AtomicUsize::new(0);
        let work = |job: &usize| {
            begun.fetch_add(1, Relaxed);
            if *job == 0 {
                AT_ITS_END.with(|_| bail!("broken"))
            } else {
                while GONE.load(Relaxed) == 0 {
                    thread::yield_now();
                }
                Ok(*job)
            }
        };
        assert!(at_once(&[0, 1, 2, 3], 2, work).is_err());
        assert!(begun.load(Relaxed) <= 2, "one beside it");
        assert_eq!(at_once(&[1, 2, 3], 2, work).expect("none is broken"), [1, 2, 3]);
    }

    #[test]
    fn an_error_is_a_failed_check_and_the_rest_runs() {
        let mut steps = Steps::default();
        steps.run("broken", || anyhow::bail!("broken"));
        steps.run("fine", || Ok(Tally { passed: 3, ..Tally::default() }));
        assert_eq!(steps.finish(), Tally { passed: 3, failed: 1, skipped: 0 });
    }

    #[test]
    fn the_closing_line_is_plain() {
        assert_eq!(Tally { passed: 2, failed: 1, skipped: 0 }.to_string(), "2 passed, 1 failed");
        assert_eq!(Tally { passed: 2, failed: 1, skipped: 5 }.to_string(), "2 passed, 1 failed, 5 skipped");
    }
}
