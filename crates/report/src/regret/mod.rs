//! Which lock would have been better: runs of one benchmark (`tests/regret`) over many locks.
//!
//! Over a grid of sections, work outside and numbers of threads it says of each lock how near it comes to the best one,
//! and to what is physically possible.
//!
//! | module | holds |
//! |---|---|
//! | [`cells`] | the grid, and which cells are held out |
//! | [`interval`] | a lock's mean share of the best, and how certain it is |
//! | [`summary`] | what follows from the runs |
//! | [`sheets`] | a summary as text, and its tables |
//! | [`page`] | the page, its picture and its JSON |

pub mod cells;
mod interval;
pub mod page;
mod sheets;
mod summary;

use serde::{Deserialize, Serialize};

pub use sheets::text;
pub use summary::Summary;

/// The share of the CPUs that other programs may use during a run.
const OTHERS: f64 = 0.15;

/// What else goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing.
    Plain,
    /// Another process competes for the CPUs.
    Hog,
    /// There is one CPU only.
    OneCpu,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What else went on.
    pub mode: Mode,
    /// The cell's name.
    pub cell: String,
    /// The lock's name.
    pub lock: String,
    /// A checksum of the program and the library.
    pub build: String,
    /// The round, from 0.
    pub round: u32,
    /// Whether it is one of those that look for long waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub long: bool,
    /// Whether its cell was not chosen, and only serves the physical bound of others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside: bool,
    /// How long it was to measure.
    pub ms: u64,
    /// Seconds since 1970.
    pub at: u64,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Run {
    /// How it failed; empty if it did not.
    pub fn failure(&self) -> &str {
        match &self.outcome {
            Outcome::Failed { failed } => failed,
            Outcome::Measured(_) => "",
        }
    }
}

/// What became of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Outcome {
    /// It ended well.
    Measured(Figures),
    /// It did not.
    Failed {
        /// How it failed.
        failed: String,
    },
}

/// What the program prints; `tests/regret/regret.cc` describes the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the program describes them")]
pub struct Figures {
    pub ops: u64,
    pub wall_ms: f64,
    pub cpu_ms: f64,
    pub longest_wait_us: f64,
    pub switches: u64,
    pub min_ops: u64,
    pub max_ops: u64,
    pub others_ms: f64,
}

impl Figures {
    /// The share of so many CPUs that other programs used.
    pub fn others(&self, cpus: u32) -> f64 {
        self.others_ms / (self.wall_ms * f64::from(cpus))
    }

    /// Whether that is too much.
    pub fn is_disturbed(&self, cpus: u32) -> bool {
        self.others(cpus) > OTHERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_disturbed_by_what_others_use() {
        let of = |others_ms| Figures { wall_ms: 100.0, others_ms, ..Figures::default() };
        assert!(!of(29.0).is_disturbed(2) && of(31.0).is_disturbed(2));
    }
}
