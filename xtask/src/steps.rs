//! Counting checks, and named steps with their elapsed time.

use std::io::IsTerminal;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::ProgressBar;

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

/// A list of steps, run one after the other; a failing one does not stop the next.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(String, Tally, Duration)>,
}

impl Steps {
    /// Runs one step and says how it went. An error counts as one failed check, and so does a step without any check.
    pub(crate) fn run(&mut self, name: &str, step: impl FnOnce() -> Result<Tally>) {
        println!("== {name}");
        let started = Instant::now();
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
        let elapsed = started.elapsed();
        println!("== {name}: {tally} ({:.1} s)\n", elapsed.as_secs_f64());
        self.done.push((name.to_owned(), tally, elapsed));
    }

    /// Prints the summary and returns the sum.
    pub(crate) fn finish(self) -> Tally {
        let width = self.done.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
        let mut sum = Tally::default();
        println!("== summary");
        for (name, tally, elapsed) in self.done {
            let mark = if tally.failed == 0 { "ok    " } else { "FAILED" };
            println!("{mark} {name:width$} {:>7.1} s  {tally}", elapsed.as_secs_f64());
            sum += tally;
        }
        sum
    }
}

/// Runs `work` with a spinner and its name, if somebody is watching.
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
