//! Detects where a lock collapsed: it does the same work an order of magnitude slower than another lock.
//!
//! If a lock has collapsed, a ratio to it says nothing about the other lock: 30 or 700 only says how deep the collapse
//! was. So such a ratio is never shown as a number, and does not count in the mean over several cells.

use super::{Better, Group, Results};
use crate::statistics::Ratio;
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
        let cells = ["1", "8"];
        let point = |name: &str, cell: usize, speed: f64| Point {
            group: "G".into(),
            cell: cells[cell].into(),
            lock: name.into(),
            runs: (0..4)
                .map(|round| Run { round, values: [("speed".into(), speed + f64::from(round) / 1e6)].into() })
                .collect(),
            ..Point::default()
        };
        let mut results = Results {
            metrics: vec![Metric { name: "speed".into(), title: "Speed".into(), better: Better::More }],
            groups: vec![Group {
                title: "G".into(),
                axis: "threads".into(),
                cells: cells.map(str::to_owned).to_vec(),
                merit: "speed".into(),
            }],
            locks: vec!["glibc".into(), "x".into()],
            points: (0..2).flat_map(|cell| [point("glibc", cell, glibc[cell]), point("x", cell, lock[cell])]).collect(),
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
}
