//! Which locks differ from the baseline, and which one to choose.
//!
//! Each lock is one comparison, and among many comparisons one looks good by chance. So the probabilities are corrected
//! by Holm's method. If all locks are equal for a program, at most 5 % of verdicts wrongly say that any lock differs,
//! however many locks took part. "No lock differs" is a valid answer.

use serde::{Deserialize, Serialize};

use super::ratio::{CONFIDENCE, Ratio};

/// With fewer rounds than this, no lock is said to differ.
pub const LEAST_ROUNDS: u32 = 3;

/// Before so many rounds, narrow intervals are no reason to stop. A few rounds may agree by chance, and stopping then
/// finds false differences (`nothing_is_made_of_noise` below measures how many).
pub const SETTLED_ROUNDS: u32 = 8;

/// The measurements of one lock against the baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// The lock.
    pub lock: String,
    /// For each round: its number, and the logarithm of how many times better than the baseline the lock was.
    pub logarithms: Vec<(u32, f64)>,
    /// The uncertainty of each logarithm because the figures are coarse, from [`ratio::grain`](super::ratio::grain).
    pub grain: f64,
    /// Whether the program failed with it, so that it cannot be chosen.
    pub failed: bool,
    /// Whether it cannot be chosen for another reason, which the logarithms do not show.
    pub barred: bool,
}

/// How a lock compares with the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Better than the baseline.
    Better,
    /// Worse.
    Worse,
    /// No difference beyond the noise.
    NoDifference,
}

/// The verdict on one lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// The lock.
    pub lock: String,
    /// How many times better than the baseline it was, over all measurements. Above 1 is better.
    pub advantage: Ratio,
    /// The probability of this if there is no difference, corrected for the number of locks; `null` with too few
    /// rounds.
    pub p: Option<f64>,
    /// The conclusion.
    pub direction: Direction,
    /// Whether the program failed with it.
    pub failed: bool,
    /// Whether it is never the best for another reason: it collapsed where the baseline collapsed, too, the program may
    /// hang under it, or some of its figures are 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub barred: bool,
}

/// The verdict on all locks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Each lock that has figures, in the given order.
    pub standings: Vec<Standing>,
    /// The lock to choose, if one is better than the baseline and never failed.
    pub best: Option<String>,
    /// Other locks that are better than the baseline and cannot be distinguished from the best.
    pub equals: Vec<String>,
    /// If no lock is better (or only a rival is), but the baseline collapsed in some cells: the locks that are better
    /// there and not worse in the others, beginning with the best there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub survivors: Vec<String>,
}

impl Verdict {
    /// Computes the verdict.
    pub fn of(samples: &[Samples]) -> Self {
        let mut standings: Vec<Standing> = samples.iter().filter_map(Standing::of).collect();
        holm(&mut standings);
        let good = |standing: &&Standing| standing.direction == Direction::Better && standing.may_be_chosen();
        let best = standings.iter().filter(good).max_by(|a, b| a.advantage.mean.total_cmp(&b.advantage.mean));
        let best = best.map(|standing| standing.lock.clone());
        let find = |lock: &str| samples.iter().find(|samples| samples.lock == lock);
        let equals = match best.as_deref().and_then(find) {
            Some(best) => {
                let others = standings.iter().filter(good).filter(|standing| standing.lock != best.lock);
                let same = |standing: &&Standing| find(&standing.lock).is_some_and(|other| !best.differs_from(other));
                others.filter(same).map(|standing| standing.lock.clone()).collect()
            }
            None => Vec::new(),
        };
        Self { standings, best, equals, survivors: Vec::new() }
    }

    /// Whether more rounds would add little about these locks, which are still being measured. Then every interval is
    /// within this factor of its mean, or there is no interval because all rounds agree. With no locks, it is false.
    pub fn is_settled<'a>(&self, locks: impl IntoIterator<Item = &'a str>, reach: f64) -> bool {
        let clear = |ratio: &Ratio| ratio.reach() < reach || ratio.low.is_none();
        let settled = |ratio: &Ratio| ratio.rounds >= SETTLED_ROUNDS && clear(ratio);
        let mut locks = locks.into_iter().peekable();
        locks.peek().is_some()
            && locks.all(|lock| self.standing(lock).is_some_and(|standing| settled(&standing.advantage)))
    }

    /// The verdict on a lock.
    pub fn standing(&self, lock: &str) -> Option<&Standing> {
        self.standings.iter().find(|standing| standing.lock == lock)
    }
}

impl Samples {
    /// Whether two locks differ, pair by pair. It is not corrected, because here the mistake to avoid is to call two
    /// different locks equal.
    fn differs_from(&self, other: &Self) -> bool {
        let partner = |round: u32| other.logarithms.iter().find(|(number, _)| *number == round);
        let differences = self.logarithms.iter().filter_map(|(round, own)| Some(own - partner(*round)?.1));
        let ratio = Ratio::of_coarse(&differences.collect::<Vec<_>>(), self.grain.max(other.grain));
        ratio.and_then(|ratio| ratio.p).is_some_and(|p| p < 1.0 - CONFIDENCE)
    }
}

impl Standing {
    fn of(samples: &Samples) -> Option<Self> {
        let values: Vec<f64> = samples.logarithms.iter().map(|(_, value)| *value).collect();
        let advantage = Ratio::of_coarse(&values, samples.grain)?;
        let p = advantage.p.filter(|_| advantage.rounds >= LEAST_ROUNDS);
        let Samples { lock, failed, barred, .. } = samples.clone();
        Some(Self { lock, advantage, p, direction: Direction::NoDifference, failed, barred })
    }

    /// Whether nothing speaks against the lock except, perhaps, its figures.
    pub fn may_be_chosen(&self) -> bool {
        !self.failed && !self.barred
    }
}

/// Corrects the probabilities for their number, and draws the conclusions. The smallest is multiplied by their number,
/// the next by one less, and so on; none becomes smaller than the one before it.
fn holm(standings: &mut [Standing]) {
    let mut order: Vec<usize> = (0..standings.len()).filter(|&i| standings[i].p.is_some()).collect();
    order.sort_by(|&a, &b| standings[a].p.unwrap_or(1.0).total_cmp(&standings[b].p.unwrap_or(1.0)));
    let mut before = 0.0_f64;
    for (place, &i) in order.iter().enumerate() {
        let corrected = (standings[i].p.unwrap_or(1.0) * (order.len() - place) as f64).clamp(before, 1.0);
        before = corrected;
        standings[i].p = Some(corrected);
        standings[i].direction = match standings[i].advantage.mean {
            _ if corrected >= 1.0 - CONFIDENCE => Direction::NoDifference,
            mean if mean > 1.0 => Direction::Better,
            _ => Direction::Worse,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::Random;
    use super::super::ratio::grain;
    use super::*;

    fn samples(lock: &str, values: &[f64]) -> Samples {
        let logarithms = values.iter().enumerate().map(|(round, value)| (round as u32, *value)).collect();
        Samples { lock: lock.to_owned(), logarithms, grain: 0.0, failed: false, barred: false }
    }

    #[test]
    fn clear_differences_are_seen_and_the_best_is_chosen() {
        let verdict = Verdict::of(&[
            samples("slow", &[-0.5, -0.52, -0.48, -0.5]),
            samples("same", &[0.01, -0.02, 0.015, -0.01]),
            samples("good", &[0.70, 0.68, 0.72, 0.69]),
            samples("alike", &[0.68, 0.71, 0.69, 0.70]),
            samples("fair", &[0.30, 0.31, 0.29, 0.30]),
        ]);
        let directions: Vec<_> = verdict.standings.iter().map(|standing| standing.direction).collect();
        use Direction::{Better, NoDifference, Worse};
        assert_eq!(directions, [Worse, NoDifference, Better, Better, Better]);
        assert_eq!((verdict.best.as_deref(), verdict.equals.as_slice()), (Some("good"), &["alike".to_owned()][..]));
    }

    #[test]
    fn a_lock_under_which_the_program_failed_is_never_chosen() {
        let fast = Samples { failed: true, ..samples("fast", &[0.9, 0.91, 0.9]) };
        let verdict = Verdict::of(&[fast, samples("good", &[0.50, 0.51, 0.49])]);
        assert_eq!(verdict.best.as_deref(), Some("good"));
        assert_eq!(verdict.standing("fast").map(|standing| standing.failed), Some(true));
        let fast = Samples { barred: true, ..samples("fast", &[0.9, 0.91, 0.9]) };
        let verdict = Verdict::of(&[fast, samples("good", &[0.90, 0.91, 0.89])]);
        assert_eq!((verdict.best.as_deref(), verdict.equals.len()), (Some("good"), 0));
    }

    #[test]
    fn two_rounds_say_nothing() {
        let verdict = Verdict::of(&[samples("fast", &[0.9, 0.9])]);
        assert_eq!((verdict.best, verdict.standings[0].p), (None, None));
        assert_eq!(Verdict::of(&[samples("none", &[])]), Verdict::default());
    }

    #[test]
    fn probabilities_are_corrected_after_holm() {
        let mut standings: Vec<Standing> =
            ["a", "b", "c"].iter().filter_map(|lock| Standing::of(&samples(lock, &[0.1, 0.2, 0.3]))).collect();
        for (standing, p) in standings.iter_mut().zip([0.04, 0.01, 0.03]) {
            standing.p = Some(p);
        }
        holm(&mut standings);
        let corrected: Vec<f64> = standings.iter().filter_map(|standing| standing.p).collect();
        assert!(corrected.iter().zip([0.06, 0.03, 0.06]).all(|(a, b)| (a - b).abs() < 1e-12), "{corrected:?}");
    }

    /// The number of comparisons in a simulation.
    const PROGRAMS: usize = 4000;
    /// 5 % of them, plus two standard errors of such a count (13.8).
    const ACCEPTED: usize = 200 + 27;

    /// A figure with noise: a few per cent, and sometimes much more, as on a shared machine.
    fn noisy(random: &mut Random) -> f64 {
        let uniform = |random: &mut Random| random.bits() as f64 / (1_u64 << 48) as f64;
        let normal = (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0;
        let disturbed = if uniform(random) < 0.1 { 0.3 * uniform(random) } else { 0.0 };
        0.04 * normal - disturbed
    }

    /// How many of [`PROGRAMS`] programs, for which `locks` locks equal the baseline, get a claim of a difference. It
    /// measures like `flashlock compare`: until the intervals are within `reach`, or for 20 rounds.
    fn false_alarms(locks: usize, reach: f64, gain: f64) -> usize {
        let mut random = Random::new(42);
        let program = |random: &mut Random| {
            let mut all: Vec<Samples> = (0..locks).map(|lock| samples(&lock.to_string(), &[])).collect();
            for round in 0..20 {
                let base = noisy(random);
                for one in &mut all {
                    one.logarithms.push((round, gain + noisy(random) - base));
                }
                if Verdict::of(&all).is_settled(all.iter().map(|one| one.lock.as_str()), reach) {
                    break;
                }
            }
            Verdict::of(&all).standings.iter().any(|standing| standing.direction != Direction::NoDifference)
        };
        (0..PROGRAMS).filter(|_| program(&mut random)).count()
    }

    #[test]
    fn nothing_is_made_of_noise() {
        for (locks, reach) in [(1, 1.0), (4, 1.0), (8, 1.0), (1, 1.05), (4, 1.05), (8, 1.05), (1, 1.1), (4, 1.1)] {
            let alarms = false_alarms(locks, reach, 0.0);
            assert!(alarms <= ACCEPTED, "{alarms} of {PROGRAMS} with {locks} locks, intervals of {reach}");
        }
    }

    /// How many of [`PROGRAMS`] programs get a claim of a difference after so many rounds. With any lock, each prints
    /// one of `levels` neighbouring numbers at random.
    fn coarse_alarms(locks: usize, rounds: u32, levels: u64) -> usize {
        let mut random = Random::new(7);
        let program = |random: &mut Random| {
            let mut figures = || (0..rounds).map(|_| (10 + random.bits() % levels) as f64).collect::<Vec<f64>>();
            let base = figures();
            let one = |lock: usize| {
                let own = figures();
                let values: Vec<f64> = own.iter().zip(&base).map(|(own, base)| (own / base).ln()).collect();
                Samples { grain: grain(own.into_iter().chain(base.clone())), ..samples(&lock.to_string(), &values) }
            };
            let all: Vec<Samples> = (0..locks).map(one).collect();
            Verdict::of(&all).standings.iter().any(|standing| standing.direction != Direction::NoDifference)
        };
        (0..PROGRAMS).filter(|_| program(&mut random)).count()
    }

    #[test]
    fn nothing_is_made_of_coarse_figures() {
        for (rounds, levels) in [3, 4, 5, 8].into_iter().flat_map(|rounds| [2, 3, 4, 10].map(|levels| (rounds, levels)))
        {
            for locks in [1, 7] {
                let alarms = coarse_alarms(locks, rounds, levels);
                assert!(
                    alarms <= ACCEPTED,
                    "{alarms} of {PROGRAMS} with {locks} locks, {rounds} rounds, {levels} numbers"
                );
            }
        }
    }

    #[test]
    fn only_locks_that_are_tried_settle() {
        let verdict = Verdict::of(&[samples("steady", &[0.3; 8]), samples("short", &[0.1, 0.2])]);
        assert!(verdict.is_settled(["steady"], 1.02));
        assert!(!verdict.is_settled(["steady", "short"], 1.02) && !verdict.is_settled(["steady", "absent"], 1.02));
        assert!(!verdict.is_settled([], 1.02) && !Verdict::default().is_settled(["steady"], 1.02));
    }

    #[test]
    fn a_gain_is_not_overlooked() {
        let seen = false_alarms(4, 1.02, 0.2);
        assert!(seen * 100 >= PROGRAMS * 99, "{seen} of {PROGRAMS}");
    }
}
