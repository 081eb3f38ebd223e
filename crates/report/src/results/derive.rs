//! Derives figures, ratios and verdicts from the runs.

use std::collections::BTreeMap;

use super::{Group, Point, Results};
use crate::statistics::{Ratio, Samples, Spread, Verdict, ratio};

impl Results {
    /// Recomputes the figures and ratios of all points from their runs.
    pub fn derive(&mut self) {
        let figures: Vec<BTreeMap<String, Spread>> = self.points.iter().map(|point| self.figures_of(point)).collect();
        let ratios: Vec<Option<Ratio>> = self.points.iter().map(|point| self.ratio_of(point)).collect();
        for ((point, figures), ratio) in self.points.iter_mut().zip(figures).zip(ratios) {
            point.figures = figures;
            point.ratio = ratio;
        }
    }

    /// Judges every group, each over all its cells.
    pub fn judge(&mut self) {
        let verdict = |group: &Group| {
            let mut verdict = Verdict::of(&self.samples(group));
            let is_rival = |lock: &String| self.rivals.contains(lock);
            if verdict.best.as_ref().is_none_or(is_rival) {
                verdict.survivors = self.survivors(group, &verdict);
            }
            (group.title.clone(), verdict)
        };
        self.verdicts = self.groups.iter().map(verdict).collect();
    }

    fn figures_of(&self, point: &Point) -> BTreeMap<String, Spread> {
        let figure = |name: &str| {
            let values: Vec<f64> = point.runs.iter().filter_map(|run| run.values.get(name).copied()).collect();
            Some((name.to_owned(), Spread::of(&values)?))
        };
        self.metrics.iter().filter_map(|metric| figure(&metric.name)).collect()
    }

    fn ratio_of(&self, point: &Point) -> Option<Ratio> {
        if point.lock == self.baseline() {
            return None;
        }
        let logarithms: Vec<f64> = self.logarithms(point).into_values().collect();
        Ratio::of_coarse(&logarithms, self.grain(point))
    }

    /// The grain of the lock's and the baseline's merits in this cell.
    fn grain(&self, point: &Point) -> f64 {
        let Some(group) = self.groups.iter().find(|group| group.title == point.group) else { return 0.0 };
        let base = self.point(&point.group, &point.cell, self.baseline());
        let runs = point.runs.iter().chain(base.iter().flat_map(|base| &base.runs));
        ratio::grain(runs.filter_map(|run| run.values.get(&group.merit).copied()))
    }

    /// The merits of two locks in a cell, for each round in which both succeeded.
    pub(crate) fn paired(&self, group: &Group, cell: &str, one: &str, other: &str) -> Vec<(f64, f64)> {
        let merits = |lock: &str| -> BTreeMap<u32, f64> {
            let runs = self.point(&group.title, cell, lock).into_iter().flat_map(|point| &point.runs);
            runs.filter_map(|run| Some((run.round, *run.values.get(&group.merit)?))).collect()
        };
        let others = merits(other);
        merits(one).into_iter().filter_map(|(round, merit)| Some((merit, *others.get(&round)?))).collect()
    }

    /// For each round in which both succeeded: the logarithm of the lock's merit divided by the baseline's.
    fn logarithms(&self, point: &Point) -> BTreeMap<u32, f64> {
        let Some(group) = self.groups.iter().find(|group| group.title == point.group) else { return BTreeMap::new() };
        let Some(base) = self.point(&point.group, &point.cell, self.baseline()) else { return BTreeMap::new() };
        let merits = |point: &Point| -> BTreeMap<u32, f64> {
            point.runs.iter().filter_map(|run| Some((run.round, *run.values.get(&group.merit)?))).collect()
        };
        let base = merits(base);
        let quotient = |(round, value): (u32, f64)| Some((round, ratio::logarithm(value, *base.get(&round)?)?));
        merits(point).into_iter().filter_map(quotient).collect()
    }

    /// How much better each lock was than the baseline in each round: the mean of the logarithms over the group's
    /// [telling](Self::telling_cells) cells. Rounds that lack a cell are left out, because the cells differ.
    fn samples(&self, group: &Group) -> Vec<Samples> {
        let (sign, cells) = (self.sign(group), self.telling_cells(group));
        let of = |lock: &String| {
            let points = cells.iter().filter_map(|cell| self.point(&group.title, cell, lock));
            let mut sums: BTreeMap<u32, (usize, f64)> = BTreeMap::new();
            for (round, value) in points.flat_map(|point| self.logarithms(point)) {
                let sum = sums.entry(round).or_default();
                *sum = (sum.0 + 1, sum.1 + sign * value);
            }
            let complete = sums.into_iter().filter(|(_, (count, _))| *count == cells.len());
            let logarithms = complete.map(|(round, (_, sum))| (round, sum / cells.len() as f64)).collect();
            // Each round is the mean over the cells. So is its uncertainty, whose parts are independent.
            let points = cells.iter().filter_map(|cell| self.point(&group.title, cell, lock));
            let grain = points.map(|point| self.grain(point).powi(2)).sum::<f64>().sqrt() / cells.len().max(1) as f64;
            let failed = self.failures(&group.title, lock).0 > 0;
            let has_zeros = self.zeros(group, lock).0 > 0;
            let barred = has_zeros || self.has_fallen_too(group, lock) || self.hang(&group.title, lock).is_some();
            Samples { lock: lock.clone(), logarithms, grain, failed, barred }
        };
        self.locks.iter().skip(1).map(of).collect()
    }
}
