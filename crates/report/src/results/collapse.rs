//! Detects where a lock collapsed: it does the same work an order of magnitude slower than another lock.
//!
//! If a lock has collapsed, a ratio to it says nothing about the other lock: 30 or 700 only says how deep the collapse
//! was. So such a ratio is never shown as a number, and does not count in the mean over several cells.

use super::{Better, Group, Results};
use crate::statistics::verdict::LEAST_ROUNDS;
use crate::statistics::{Direction, Ratio, Standing, Verdict};
use crate::units::three_digits;

/// If two locks differ by at least this factor, the slower one has collapsed.
pub const COLLAPSE: f64 = 10.0;

impl Results {
    /// How many times better than the baseline a lock was in a cell. Above 1 is better, whatever the metric.
    pub fn advantage(&self, group: &Group, cell: &str, lock: &str) -> Option<Ratio> {
        let ratio = self.point(&group.title, cell, lock)?.ratio?;
        Some(if self.sign(group) < 0.0 { ratio.inverse() } else { ratio })
    }

    /// 1 if higher values of the group's merit are better, else -1.
    pub(super) fn sign(&self, group: &Group) -> f64 {
        match self.metric(&group.merit).map(|metric| metric.better) {
            Some(Better::Less) => -1.0,
            _ => 1.0,
        }
    }

    /// Whether the baseline collapsed in a cell: some lock was at least [`COLLAPSE`] times better.
    pub fn has_baseline_collapsed(&self, group: &Group, cell: &str) -> bool {
        let others = self.locks.iter().skip(1).filter_map(|lock| self.advantage(group, cell, lock));
        others.into_iter().any(|advantage| advantage.mean >= COLLAPSE)
    }

    /// The cells of a group that show how much better a lock is: those in which the baseline did not collapse, or all
    /// cells if it collapsed everywhere.
    pub fn telling_cells<'a>(&self, group: &'a Group) -> Vec<&'a str> {
        let stands = |cell: &&&String| !self.has_baseline_collapsed(group, cell);
        let standing: Vec<&str> = group.cells.iter().filter(|cell| stands(&cell)).map(String::as_str).collect();
        if standing.is_empty() { group.cells.iter().map(String::as_str).collect() } else { standing }
    }

    /// The other cells: those in which the baseline collapsed, if it did not collapse everywhere.
    pub fn dropped_cells<'a>(&self, group: &'a Group) -> Vec<&'a str> {
        let telling = self.telling_cells(group);
        group.cells.iter().map(String::as_str).filter(|cell| !telling.contains(cell)).collect()
    }

    /// Whether a lock collapsed in a dropped cell, too, or has no figures there. Its advantage does not show this.
    ///
    /// It is compared with the best lock that the program can have instead, which may be the baseline.
    pub(super) fn has_fallen_too(&self, group: &Group, lock: &str) -> bool {
        let can_be_had = |lock: &&String| !self.rivals.contains(lock) && self.failures(&group.title, lock).0 == 0;
        let has_fallen = |cell: &&str| {
            let locks = self.locks.iter().skip(1).filter(can_be_had);
            let best = locks.filter_map(|lock| Some(self.advantage(group, cell, lock)?.mean)).fold(1.0, f64::max);
            self.advantage(group, cell, lock).is_none_or(|own| own.mean * COLLAPSE <= best)
        };
        self.dropped_cells(group).iter().any(has_fallen)
    }

    /// The locks for an unmodified program that are surely better than the baseline in all dropped cells, and not worse
    /// in the others. The first is the best in the dropped cells.
    pub(super) fn survivors(&self, group: &Group, verdict: &Verdict) -> Vec<String> {
        let cells = self.dropped_cells(group);
        if cells.is_empty() {
            return Vec::new();
        }
        let is_better = |advantage: &Ratio| {
            advantage.rounds >= LEAST_ROUNDS && advantage.mean > 1.0 && advantage.low.is_none_or(|low| low > 1.0)
        };
        let gain = |lock: &str| -> Option<f64> {
            let better = |cell: &&str| self.advantage(group, cell, lock).filter(is_better);
            cells.iter().map(|cell| Some(better(cell)?.mean.ln())).sum()
        };
        let can_be_had = |standing: &&Standing| {
            let is_known_not_worse = standing.p.is_some() && standing.direction != Direction::Worse;
            is_known_not_worse && standing.may_be_chosen() && !self.rivals.contains(&standing.lock)
        };
        let standings = verdict.standings.iter().filter(can_be_had);
        let mut all: Vec<(f64, &String)> = standings.filter_map(|s| Some((gain(&s.lock)?, &s.lock))).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        all.into_iter().map(|(_, lock)| lock.clone()).collect()
    }

    /// The text instead of a lock's ratio if the baseline collapsed and this lock did not: `>10`, or `<0.1` if lower
    /// values are better. `None` if the ratio is meaningful.
    pub fn beyond(&self, group: &Group, cell: &str, lock: &str) -> Option<String> {
        let advantage = self.advantage(group, cell, lock)?;
        (advantage.mean >= COLLAPSE).then(|| self.beyond_words(group))
    }

    /// The same text, whatever the lock.
    pub fn beyond_words(&self, group: &Group) -> String {
        if self.sign(group) < 0.0 { format!("<{}", COLLAPSE.recip()) } else { format!(">{COLLAPSE}") }
    }

    /// A note on where the baseline collapsed: its figures, and the best figures for comparison.
    pub fn collapse_note(&self, group: &Group) -> Option<String> {
        let in_cell = |cell: &String| {
            let figure = |lock: &str| Some(self.figure(&group.title, cell, lock, &group.merit)?.median);
            let others = self.locks.iter().skip(1).filter_map(|lock| Some((lock, figure(lock)?)));
            let (lock, best) = others.max_by(|a, b| (self.sign(group) * a.1).total_cmp(&(self.sign(group) * b.1)))?;
            let with = if group.axis.is_empty() { String::new() } else { format!("{cell} {}: ", group.axis) };
            let [own, best] = [figure(self.baseline())?, best].map(three_digits);
            Some(format!("{with}{own}, {lock} {best}"))
        };
        let fell = group.cells.iter().filter(|cell| self.has_baseline_collapsed(group, cell));
        let told: Vec<String> = fell.filter_map(in_cell).collect();
        let (beyond, baseline) = (self.beyond_words(group), self.baseline());
        (!told.is_empty()).then(|| format!("{beyond} is no gain: {baseline} collapsed ({}).", told.join("; ")))
    }

    /// The locks, except the baseline, that collapsed in some cell.
    pub fn collapsed_locks(&self, group: &Group) -> Vec<&str> {
        let low = |lock: &&String| {
            let mut cells = group.cells.iter().filter_map(|cell| self.advantage(group, cell, lock));
            cells.any(|advantage| advantage.mean <= COLLAPSE.recip())
        };
        self.locks.iter().skip(1).filter(low).map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Metric, Point, Run};

    /// Speeds of glibc and of one lock with 1 and with 8 threads.
    fn results(glibc: [f64; 2], lock: [f64; 2]) -> Results {
        of_locks(&[("glibc", &glibc), ("x", &lock)])
    }

    /// Speeds of locks with 1, 8 and 64 threads, or with the first ones of these.
    fn of_locks(locks: &[(&str, &[f64])]) -> Results {
        let cells = &["1", "8", "64"][..locks[0].1.len()];
        let point = |name: &str, cell: &str, speed: f64| Point {
            group: "G".into(),
            cell: cell.into(),
            lock: name.into(),
            runs: (0..4)
                .map(|round| Run { round, values: [("speed".into(), speed + f64::from(round) / 1e6)].into() })
                .collect(),
            ..Point::default()
        };
        let points = |(name, speeds): &(&str, &[f64])| -> Vec<Point> {
            cells.iter().zip(*speeds).map(|(cell, speed)| point(name, cell, *speed)).collect()
        };
        let mut results = Results {
            metrics: vec![Metric { name: "speed".into(), title: "Speed".into(), better: Better::More }],
            groups: vec![Group {
                title: "G".into(),
                axis: "threads".into(),
                cells: cells.iter().map(|cell| (*cell).to_owned()).collect(),
                merit: "speed".into(),
            }],
            locks: locks.iter().map(|(name, _)| (*name).to_owned()).collect(),
            points: locks.iter().flat_map(points).collect(),
            ..Results::default()
        };
        results.derive();
        results.judge();
        results
    }

    fn advantage(results: &Results) -> f64 {
        results.verdicts["G"].standings[0].advantage.mean
    }

    #[test]
    fn a_cell_in_which_the_baseline_collapsed_is_no_gain() {
        let fell = results([10.0, 0.02], [20.0, 13.78]);
        assert!((advantage(&fell) - 2.0).abs() < 0.001, "{}", advantage(&fell));
        assert_eq!(fell.telling_cells(&fell.groups[0]), ["1"]);
        let stood = results([10.0, 10.0], [20.0, 80.0]);
        assert!((advantage(&stood) - 4.0).abs() < 0.001, "{}", advantage(&stood));
    }

    #[test]
    fn the_figures_are_told_and_not_their_quotient() {
        let fell = results([10.0, 0.02], [20.0, 13.78]);
        let group = &fell.groups[0];
        assert_eq!((fell.beyond(group, "8", "x").as_deref(), fell.beyond(group, "1", "x")), (Some(">10"), None));
        let note = fell.collapse_note(group).unwrap_or_default();
        assert_eq!(note, ">10 is no gain: glibc collapsed (8 threads: 0.0200, x 13.8).");
        let shown = |lock: [f64; 2]| {
            let mut times = results([10.0, 50.0], lock);
            times.metrics[0].better = Better::Less;
            times.beyond(&times.groups[0], "8", "x")
        };
        assert_eq!((shown([10.0, 1.0]).as_deref(), shown([10.0, 600.0])), (Some("<0.1"), None));
        assert_eq!(results([10.0, 10.0], [20.0, 80.0]).collapse_note(group), None);
    }

    #[test]
    fn where_the_baseline_collapsed_everywhere_there_is_still_a_verdict() {
        let fell = results([0.1, 0.02], [20.0, 13.78]);
        assert_eq!((fell.verdicts["G"].best.as_deref(), fell.telling_cells(&fell.groups[0]).len()), (Some("x"), 2));
        assert!(advantage(&fell) > COLLAPSE);
    }

    #[test]
    fn locks_that_collapsed_are_named() {
        let fell = results([10.0, 10.0], [10.0, 0.9]);
        assert_eq!(fell.collapsed_locks(&fell.groups[0]), ["x"]);
        assert!(results([10.0, 10.0], [10.0, 1.1]).collapsed_locks(&fell.groups[0]).is_empty());
    }

    fn survivors(locks: &[(&str, &[f64])]) -> Vec<String> {
        of_locks(locks).verdicts["G"].survivors.clone()
    }

    /// The cells that are left show no difference, and where the baseline collapsed there is one.
    #[test]
    fn locks_that_stand_where_the_baseline_collapsed_are_chosen_if_none_is_better_elsewhere() {
        let glibc: (&str, &[f64]) = ("glibc", &[10.0, 0.02]);
        assert_eq!(survivors(&[glibc, ("y", &[10.0, 12.0]), ("x", &[10.0, 13.8])]), ["x", "y"]);
        assert!(survivors(&[glibc, ("x", &[8.0, 13.8])]).is_empty(), "it is worse elsewhere");
        assert_eq!(survivors(&[glibc, ("x", &[10.0, 13.8]), ("y", &[10.0, 1.0])]), ["x"], "y collapsed, too");
        assert!(survivors(&[("glibc", &[10.0, 10.0]), ("x", &[10.0, 10.0])]).is_empty(), "nothing collapsed");
        let mut rival = of_locks(&[glibc, ("x", &[10.0, 13.8])]);
        rival.rivals = vec!["x".into()];
        rival.judge();
        assert!(rival.verdicts["G"].survivors.is_empty(), "a program must be written for it");
        let mut rival =
            of_locks(&[("glibc", &[10.0, 10.0, 0.02]), ("x", &[10.0, 10.0, 13.8]), ("tbb", &[13.0, 13.0, 14.0])]);
        rival.rivals = vec!["tbb".into()];
        rival.judge();
        let verdict = &rival.verdicts["G"];
        assert_eq!((verdict.best.as_deref(), verdict.survivors.as_slice()), (Some("tbb"), &["x".to_owned()][..]));
    }

    #[test]
    fn a_lock_that_collapsed_where_the_baseline_did_is_not_chosen() {
        let glibc: (&str, &[f64]) = ("glibc", &[10.0, 10.0, 0.02]);
        let locks: [(&str, &[f64]); 3] = [glibc, ("x", &[13.0, 13.0, 0.01]), ("y", &[11.0, 11.0, 13.8])];
        let fell = of_locks(&locks);
        let verdict = &fell.verdicts["G"];
        assert_eq!((verdict.best.as_deref(), verdict.standings[0].barred), (Some("y"), true));
        assert!(!verdict.standings[1].barred);
        // What a program cannot have is no measure of what it can have.
        let locks: [(&str, &[f64]); 3] = [glibc, ("x", &[13.0, 13.0, 1.3]), ("tbb", &[11.0, 11.0, 13.8])];
        let mut rival = of_locks(&locks);
        rival.rivals = vec!["tbb".into()];
        rival.judge();
        assert_eq!(rival.verdicts["G"].best.as_deref(), Some("x"));
        // Nothing is known about it with 64 threads.
        let mut unknown = of_locks(&locks);
        unknown.points[5].runs.clear();
        unknown.derive();
        unknown.judge();
        assert_eq!(unknown.verdicts["G"].best.as_deref(), Some("tbb"));
    }
}
