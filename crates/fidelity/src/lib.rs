//! # The simulator beside what the papers measured
//!
//! Each row is a figure of a paper, the goal for the simulation, and what to simulate for it. A [`Report`] holds what
//! came out; `docs/fidelity.md` shows it. This crate runs no program: a [`Simulator`] does (`cargo xtask fidelity`).
//!
//! | module | holds |
//! |---|---|
//! | [`table`] | every row: the paper's figure, the goal, what is simulated |
//! | [`row`] | what a row is, and how it is judged |
//! | [`figure`] | a number made of some points, with its band |
//! | [`point`] | a lock with so many threads in a workload on a machine; its command lines |
//! | [`runs`] | the results of these command lines |
//! | [`report`] | the result, as JSON |
//! | [`reasons`] | `reasons.md`: why rows miss |
//! | [`page`] | the page, from the result and the reasons |
//! | [`checks`] | what is checked before a change is accepted |

#![forbid(unsafe_code)]

mod checks;
mod figure;
mod page;
mod point;
mod reasons;
mod report;
mod row;
mod runs;
mod table;

pub use checks::{Check, check};
pub use page::Count;
pub use point::Arguments;
pub use report::Report;

use std::collections::BTreeMap;

use anyhow::Result;
use flashlock_report::provenance::Provenance;
use flashlock_report::results::Results;

/// The `flashlock` command, as far as rows need it.
pub trait Simulator {
    /// The result of each of these command lines, which are what follows `flashlock simulate`.
    fn simulate(&self, commands: Vec<Arguments>) -> Result<BTreeMap<Arguments, Results>>;

    /// The description of a machine, as TOML.
    fn machine(&self, name: &str) -> Result<String>;

    /// The origin of what this simulator makes now.
    fn provenance(&self) -> Result<Provenance>;
}
