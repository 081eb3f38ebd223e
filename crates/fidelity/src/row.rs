//! Rows: what a paper measured, how near the simulation is to come, and what of the simulation is compared with it.

use serde::{Deserialize, Serialize};

use crate::figure::{Figure, Ours};

/// Rows that stand in one table.
pub(crate) struct Group {
    pub(crate) title: &'static str,
    /// Machine, workload, and which of our locks stands for which of the paper's.
    pub(crate) about: &'static str,
    pub(crate) rows: Vec<Row>,
}

/// A figure of a paper.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) paper: Paper,
    pub(crate) goal: Goal,
    pub(crate) role: Role,
    /// `None` for an open row.
    pub(crate) figure: Option<Figure>,
    /// What is shown with it, but not judged.
    pub(crate) besides: Vec<(&'static str, Figure)>,
}

/// What is done with a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Role {
    /// Parameters were set with it: it proves nothing.
    Input,
    /// Nothing was set with it.
    Test,
    /// It cannot be simulated yet, for this reason.
    Open(&'static str),
}

/// What the paper says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Paper {
    /// `null` where it says so in words only.
    pub(crate) value: Option<f64>,
    /// Standard deviation, where it is given.
    pub(crate) deviation: Option<f64>,
    /// In words.
    pub(crate) words: String,
}

impl Paper {
    pub(crate) fn number(value: f64) -> Self {
        Self { value: Some(value), ..Self::default() }
    }

    pub(crate) fn words(words: &str) -> Self {
        Self { words: words.to_owned(), ..Self::default() }
    }

    pub(crate) fn and(self, words: impl Into<String>) -> Self {
        Self { words: words.into(), ..self }
    }
}

/// How near is near enough.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Goal {
    /// `null`: no bound.
    low: Option<f64>,
    high: Option<f64>,
    pub(crate) words: String,
}

impl Goal {
    /// Within this share of the value.
    pub(crate) fn within(value: f64, share: f64) -> Self {
        Self::between(value * (1.0 - share), value * (1.0 + share), &format!("± {:.0} %", share * 100.0))
    }

    /// Within so much of the value.
    pub(crate) fn near(value: f64, distance: f64) -> Self {
        Self::between(value - distance, value + distance, &format!("± {distance}"))
    }

    pub(crate) fn between(low: f64, high: f64, words: &str) -> Self {
        Self { low: Some(low), high: Some(high), words: words.to_owned() }
    }

    pub(crate) fn from(low: f64, high: f64) -> Self {
        Self::between(low, high, &format!("{low} to {high}"))
    }

    pub(crate) fn above(low: f64) -> Self {
        Self { low: Some(low), high: None, words: format!("> {low}") }
    }

    /// At least one over so much.
    pub(crate) fn above_one_over(factor: f64) -> Self {
        Self { words: format!("> 1 / {factor}"), ..Self::above(1.0 / factor) }
    }

    pub(crate) fn below(high: f64) -> Self {
        Self { low: None, high: Some(high), words: format!("< {high}") }
    }

    /// How far a number is below (negative) or above; 0 if it is near enough.
    fn distance(&self, number: f64) -> f64 {
        match (self.low, self.high) {
            (Some(low), _) if number < low => number - low,
            (_, Some(high)) if number > high => number - high,
            _ => 0.0,
        }
    }

    /// Whether no run missed it.
    pub(crate) fn holds_all(&self, ours: &Ours) -> bool {
        self.distance(ours.low) == 0.0 && self.distance(ours.high) == 0.0
    }

    /// What is to be said of a figure.
    pub(crate) fn judge(&self, ours: &Ours) -> Verdict {
        match self.distance(ours.value) {
            0.0 => Verdict::Met,
            by => {
                // The band has both its ends beyond the same bound, or it reaches the goal.
                let (low, high) = (self.distance(ours.low), self.distance(ours.high));
                Verdict::Missed { by, reached: low * high <= 0.0 }
            }
        }
    }
}

/// What became of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Our figure is as near as it was to be.
    Met,
    /// It is not.
    Missed {
        /// From the nearer end of what would have done; negative: too low.
        by: f64,
        /// Whether the band reaches the goal.
        reached: bool,
    },
    /// It cannot be simulated yet.
    Open { why: String },
    /// A run failed, or has no such figure.
    Failed { how: String },
}

impl Row {
    pub(crate) fn test(what: impl Into<String>, paper: Paper, goal: Goal, figure: Figure) -> Self {
        Self { what: what.into(), paper, goal, role: Role::Test, figure: Some(figure), besides: Vec::new() }
    }

    pub(crate) fn input(what: impl Into<String>, paper: Paper, goal: Goal, figure: Figure) -> Self {
        Self::test(what, paper, goal, figure).put_in()
    }

    /// The same, if something was set with it.
    pub(crate) fn put_in(self) -> Self {
        Self { role: Role::Input, ..self }
    }

    pub(crate) fn open(what: impl Into<String>, paper: Paper, why: &'static str) -> Self {
        let goal = Goal { low: None, high: None, words: String::new() };
        Self { what: what.into(), paper, goal, role: Role::Open(why), figure: None, besides: Vec::new() }
    }

    pub(crate) fn beside(mut self, name: &'static str, figure: Figure) -> Self {
        self.besides.push((name, figure));
        self
    }

    /// All figures of it.
    pub(crate) fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.figure.iter().chain(self.besides.iter().map(|(_, figure)| figure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Typical;

    fn ours(low: f64, value: f64, high: f64) -> Ours {
        Ours { value, typical: Typical::Mean, low, high }
    }

    #[test]
    fn the_typical_run_is_judged() {
        let goal = Goal::near(1.5, 0.25);
        assert_eq!(goal.judge(&ours(1.0, 1.75, 2.0)), Verdict::Met);
        assert_eq!(goal.judge(&ours(1.6, 2.0, 2.5)), Verdict::Missed { by: 0.25, reached: true });
        assert_eq!(goal.judge(&ours(1.8, 2.0, 2.5)), Verdict::Missed { by: 0.25, reached: false });
        assert_eq!(goal.judge(&ours(0.5, 1.0, 1.1)), Verdict::Missed { by: -0.25, reached: false });
        assert!(goal.holds_all(&ours(1.25, 1.5, 1.75)));
        assert!(!goal.holds_all(&ours(1.0, 1.5, 1.75)) && !goal.holds_all(&ours(1.25, 1.5, 2.0)));
        // A band around the goal reaches it.
        assert_eq!(goal.judge(&ours(1.0, 2.0, 2.5)), Verdict::Missed { by: 0.25, reached: true });
    }

    #[test]
    fn goals_without_an_end() {
        assert_eq!(Goal::above(3.0).judge(&ours(1.0, 300.0, 900.0)), Verdict::Met);
        assert_eq!(Goal::below(0.5).judge(&ours(0.0, 0.75, 1.0)), Verdict::Missed { by: 0.25, reached: true });
        assert_eq!(Goal::within(2.0, 0.1).words, "± 10 %");
    }
}
