//! Checks that a file is consistent: the names in points exist, and no figure is impossible.

use std::collections::BTreeSet;

use super::{Point, Results, Simulated};
use crate::statistics::{Ratio, Spread, Verdict};

impl Results {
    /// The error says what is wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.name.is_empty() || !self.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
            return Err(format!("name is '{}': files are called by it, so it is a word", self.name));
        }
        if self.locks.is_empty() {
            return Err("'locks' is empty: it must begin with the baseline".into());
        }
        if let Some(rival) = self.rivals.iter().find(|rival| !self.locks.iter().skip(1).any(|lock| lock == *rival)) {
            return Err(format!("'rivals' has '{rival}', which 'locks' does not list after the baseline"));
        }
        for group in &self.groups {
            if self.metric(&group.merit).is_none() {
                return Err(format!(
                    "group '{}' compares '{}', which 'metrics' does not list",
                    group.title, group.merit
                ));
            }
        }
        if let Some(Simulated { seeds, placements, .. }) = self.method.simulated
            && seeds.checked_mul(placements) != Some(self.method.rounds)
        {
            return Err(format!(
                "method has {} rounds, which are not {seeds} seeds with {placements} placements each",
                self.method.rounds
            ));
        }
        let mut seen = BTreeSet::new();
        for (number, point) in self.points.iter().enumerate() {
            if !seen.insert((&point.group, &point.cell, &point.lock)) {
                return Err(format!(
                    "points[{number}] is a second one of lock '{}' in cell '{}' of group '{}'",
                    point.lock, point.cell, point.group
                ));
            }
            check_numbers(point).map_err(|what| format!("points[{number}].{what}"))?;
            self.check_rounds(point).map_err(|what| format!("points[{number}] {what}"))?;
            let wrong = |field: &str, value: &str, list: &str| {
                Err(format!("points[{number}].{field} is '{value}', which '{list}' does not list"))
            };
            let Some(group) = self.groups.iter().find(|group| group.title == point.group) else {
                return wrong("group", &point.group, "groups");
            };
            if !group.cells.contains(&point.cell) {
                return wrong("cell", &point.cell, "groups[].cells");
            }
            if !self.locks.contains(&point.lock) {
                return wrong("lock", &point.lock, "locks");
            }
            let names = point.figures.keys().chain(point.runs.iter().flat_map(|run| run.values.keys()));
            for name in names {
                if self.metric(name).is_none() {
                    return wrong("figures or runs", name, "metrics");
                }
            }
        }
        for (title, verdict) in &self.verdicts {
            if self.groups.iter().all(|group| group.title != *title) {
                return Err(format!("verdicts has '{title}', which 'groups' does not list"));
            }
            self.check_verdict(verdict).map_err(|what| format!("verdicts['{title}'].{what}"))?;
        }
        Ok(())
    }

    /// Checks that each round occurs at most once, and that its number is below the method's number of rounds.
    fn check_rounds(&self, point: &Point) -> Result<(), String> {
        let rounds = point.runs.iter().map(|run| run.round).chain(point.failures.iter().map(|failed| failed.round));
        let rounds = rounds.chain(point.unfinished.iter().map(|run| run.round));
        let mut seen = BTreeSet::new();
        for round in rounds {
            if round >= self.method.rounds {
                return Err(format!("has round {round}, but method has {} rounds, from 0", self.method.rounds));
            }
            if !seen.insert(round) {
                return Err(format!("has round {round} twice"));
            }
        }
        Ok(())
    }

    fn check_verdict(&self, verdict: &Verdict) -> Result<(), String> {
        let standings = verdict.standings.iter().map(|standing| ("standings[].lock", &standing.lock));
        let chosen = verdict.best.iter().map(|lock| ("best", lock));
        let names = standings.chain(chosen).chain(verdict.equals.iter().map(|lock| ("equals", lock)));
        let names = names.chain(verdict.survivors.iter().map(|lock| ("survivors", lock)));
        for (field, lock) in names {
            if !self.locks.iter().skip(1).any(|other| other == lock) {
                return Err(format!("{field} is '{lock}', which 'locks' does not list after the baseline"));
            }
        }
        for standing in &verdict.standings {
            check_ratio(&standing.advantage)
                .map_err(|what| format!("standings['{}'].advantage{what}", standing.lock))?;
            check_probability(standing.p).map_err(|what| format!("standings['{}']{what}", standing.lock))?;
        }
        Ok(())
    }
}

/// Checks that no figure is negative or infinite, and that ordered values are in order.
fn check_numbers(point: &Point) -> Result<(), String> {
    for run in &point.runs {
        if let Some((name, value)) = run.values.iter().find(|(_, value)| !is_figure(**value)) {
            return Err(format!("runs has {value} for '{name}': figures are finite and not negative"));
        }
    }
    let mut seconds = point.unfinished.iter().flat_map(|run| [Some(run.seconds), run.longest]).flatten();
    if let Some(value) = seconds.find(|value| !is_figure(*value)) {
        return Err(format!("unfinished has {value}: times are finite and not negative"));
    }
    for (name, Spread { median, min, max }) in &point.figures {
        if ![median, min, max].into_iter().all(|value| is_figure(*value)) || min > median || median > max {
            return Err(format!(
                "figures has {min}, {median}, {max} as the least, median and greatest '{name}': they must be finite, \
                 not negative, and in this order"
            ));
        }
    }
    point.ratio.iter().try_for_each(check_ratio).map_err(|what| format!("ratio{what}"))
}

fn check_ratio(ratio: &Ratio) -> Result<(), String> {
    let Ratio { mean, low, high, .. } = *ratio;
    if !(mean.is_finite() && mean > 0.0) {
        return Err(format!(".mean is {mean}: a ratio is positive"));
    }
    let in_order = match (low, high) {
        (None, None) => true,
        // The ends of a very wide interval may exceed the range of numbers, and the mean may be an end of a very narrow
        // one.
        (Some(low), Some(high)) => low >= 0.0 && high.is_finite() && low <= mean * ROUNDED && mean <= high * ROUNDED,
        _ => false,
    };
    if !in_order {
        return Err(format!(
            ": low, mean and high are {low:?}, {mean}, {high:?}: they must be in this order, and finite"
        ));
    }
    check_probability(ratio.p)
}

fn check_probability(p: Option<f64>) -> Result<(), String> {
    match p {
        Some(p) if !(0.0..=1.0).contains(&p) => Err(format!(".p is {p}: a probability is from 0 to 1")),
        _ => Ok(()),
    }
}

/// The tolerance for lost digits.
const ROUNDED: f64 = 1.0 + 1e-9;

fn is_figure(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}
