//! The schedule: how long the comparison takes, which locks fit into the time, and how long a run may take.

use std::time::Duration;

use flashlock_report::statistics::verdict::LEAST_ROUNDS;
use flashlock_report::units;

/// The default time of a comparison, if it suffices.
pub(super) const TIME: Duration = Duration::from_secs(60);
/// Other locks may be slower than glibc's. A run is assumed to take so many times as long as with glibc.
const SLOWER: f64 = 1.15;
/// A lock that takes so many times as long as glibc is considered to hang …
const HANGS: u32 = 20;
/// … but not before this time.
const LEAST_LIMIT: Duration = Duration::from_secs(10);
/// If time is short, a run gets at least so many times its time with glibc …
const PATIENCE: u32 = 3;
/// … and this time, because on a busy machine a short run may take many times as long …
const LEAST_SHORT: Duration = Duration::from_secs(1);
/// … and more only as a share of the time that the required rounds leave.
const SHARE: u32 = 4;

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Until {
    /// After so many rounds.
    Rounds(u32),
    /// When the result is clear, or when the user's time limit is over, if there is one.
    Settled(Option<Duration>),
}

/// The result of the trial.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    /// The time of a run with glibc in each cell, including the overhead between two runs.
    pub(super) cells: Vec<Duration>,
    /// The total time so far, from the start.
    pub(super) spent: Duration,
    /// The number of contestants, including glibc's mutex.
    pub(super) contestants: usize,
}

/// The resulting schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Schedule {
    /// The number of contestants that fit.
    pub(super) kept: usize,
    /// The total time, from the start.
    pub(super) total: Duration,
    /// Whether the comparison always ends at that time.
    pub(super) is_limit: bool,
}

/// There is not enough time for two contestants: the times that two and that all need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TooShort {
    pub(super) two: Duration,
    pub(super) all: Duration,
}

impl Trial {
    /// The time of so many rounds of so many contestants, from the start.
    fn rounds(&self, rounds: u32, contestants: usize) -> Duration {
        let round = self.cells.iter().sum::<Duration>().mul_f64(contestants as f64 * SLOWER);
        self.spent + round * rounds
    }

    /// The least time for a verdict on so many contestants, from the start.
    pub(super) fn least(&self, contestants: usize) -> Duration {
        self.rounds(LEAST_ROUNDS, contestants)
    }

    /// What fits into the time.
    pub(super) fn schedule(&self, until: Until) -> Result<Schedule, TooShort> {
        let all = self.contestants;
        let budget = match until {
            Until::Rounds(rounds) => {
                return Ok(Schedule { kept: all, total: self.rounds(rounds, all), is_limit: false });
            }
            Until::Settled(None) => {
                return Ok(Schedule { kept: all, total: TIME.max(self.least(all)), is_limit: true });
            }
            Until::Settled(Some(budget)) => budget,
        };
        match (2..=all).rev().find(|&kept| self.least(kept) <= budget) {
            Some(kept) => Ok(Schedule { kept, total: budget, is_limit: true }),
            None => Err(TooShort { two: self.least(2), all: self.least(all) }),
        }
    }
}

/// The time limit of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limit {
    pub(super) time: Duration,
    /// Whether time is so short that a program may be ended that does not hang.
    pub(super) is_short: bool,
}

impl Limit {
    /// The limit if the run takes `under_glibc` with glibc. `spare` is the time that the required rounds leave; `None`
    /// if time does not matter.
    pub(super) fn of(under_glibc: Duration, spare: Option<Duration>) -> Self {
        let hangs = (under_glibc * HANGS).max(LEAST_LIMIT);
        let short = spare.map(|spare| (spare / SHARE).max(under_glibc * PATIENCE).max(LEAST_SHORT));
        match short.filter(|short| *short < hangs) {
            Some(time) => Self { time, is_short: true },
            None => Self { time: hangs, is_short: false },
        }
    }
}

/// A time in words: `15 s`, `2.5 s`, `4 min`.
pub(super) fn spoken(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds >= 119.5 => format!("{:.0} min", seconds / 60.0),
        seconds if seconds >= 9.95 => format!("{seconds:.0} s"),
        seconds if seconds >= 0.0995 => format!("{seconds:.1} s").replace(".0 s", " s"),
        seconds => units::nanoseconds((seconds * 1e9) as u64),
    }
}

/// The time in seconds, rounded up: for advice.
pub(super) fn seconds_enough(time: Duration) -> u64 {
    time.as_secs_f64().ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(seconds: f64, contestants: usize) -> Trial {
        let cells = vec![Duration::from_secs_f64(seconds)];
        Trial { cells, spent: Duration::from_secs_f64(seconds), contestants }
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_the_time_is_kept() {
        let fifteen = Until::Settled(Some(Duration::from_secs(15)));
        let of = |seconds| trial(seconds, 8).schedule(fifteen);
        assert_eq!(of(0.3).unwrap(), Schedule { kept: 8, total: Duration::from_secs(15), is_limit: true });
        // A second for the trial, and 3 rounds of 4 runs of 1.15 s each.
        assert_eq!(of(1.0).unwrap(), Schedule { kept: 4, total: Duration::from_secs(15), is_limit: true });
        let short = of(3.0).unwrap_err();
        assert!(short.two > Duration::from_secs(15) && short.all > short.two * 2, "{short:?}");
    }

    #[test]
    fn if_nobody_sets_a_time_it_is_as_long_as_a_verdict_needs() {
        let open = Until::Settled(None);
        assert_eq!(trial(0.3, 8).schedule(open).unwrap().total, TIME);
        let long = trial(10.0, 8).schedule(open).unwrap();
        assert!(long.kept == 8 && (280..300).contains(&long.total.as_secs()), "{long:?}");
        let rounds = trial(1.0, 8).schedule(Until::Rounds(2)).unwrap();
        assert!(rounds.kept == 8 && !rounds.is_limit && (19..20).contains(&rounds.total.as_secs()), "{rounds:?}");
    }

    #[test]
    fn a_run_may_take_what_the_time_allows() {
        let s = Duration::from_secs;
        let of = |under_glibc, spare| {
            let limit = Limit::of(under_glibc, spare);
            (limit.time, limit.is_short)
        };
        assert_eq!((of(s(1), None), of(Duration::from_millis(60), None)), ((s(20), false), (s(10), false)));
        assert_eq!(
            (of(s(1), Some(s(40))), of(s(1), Some(s(4))), of(s(1), Some(s(400)))),
            ((s(10), true), (s(3), true), (s(20), false))
        );
        assert_eq!(of(Duration::from_millis(27), Some(Duration::ZERO)), (s(1), true));
    }

    #[test]
    fn times_are_spoken() {
        let said = [0.0012, 0.06, 0.3, 1.0, 2.46, 9.97, 15.0, 119.0, 240.0].map(|s| spoken(Duration::from_secs_f64(s)));
        assert_eq!(said, ["1.20 ms", "60.0 ms", "0.3 s", "1 s", "2.5 s", "10 s", "15 s", "119 s", "4 min"]);
        assert_eq!(seconds_enough(Duration::from_millis(24_001)), 25);
    }
}
