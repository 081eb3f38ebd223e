//! `cargo xtask fidelity`: what the papers measured beside what `flashlock simulate` says, as `docs/fidelity.md`.
//!
//! | module | holds |
//! |---|---|
//! | [`table`] | every row: the paper's figure, the goal, what is simulated |
//! | [`row`] | what a row is, and how it is judged |
//! | [`figure`] | a number made of some points, with its band |
//! | [`point`] | a lock with so many threads in a workload on a machine; its command lines |
//! | [`runs`] | running them, and going on where the task was interrupted |
//! | [`report`] | the result, as JSON |
//! | [`page`] | the page, from the result and `reasons.md` |
//! | [`quick`] | what is checked before a change is accepted |

mod figure;
mod page;
mod point;
mod quick;
mod report;
mod row;
mod runs;
mod table;

use anyhow::Result;
use clap::Args;
use flashlock_report::provenance::Provenance;

use crate::results::origin;
use crate::steps::Tally;
use page::Count;
use report::Report;
use row::Row;
use runs::Runs;

/// The line that makes the page again.
const COMMAND: &str = "cargo xtask fidelity";

#[derive(Args)]
pub(crate) struct Options {
    /// Check some signs, and whether the page is up to date; write nothing
    #[arg(long, conflicts_with = "render")]
    quick: bool,
    /// Run everything again; without it, what this very simulator has run already is taken
    #[arg(long, conflicts_with = "render")]
    fresh: bool,
    /// Run nothing: make the page of the JSON again
    #[arg(long)]
    render: bool,
}

/// The full task writes a report and checks nothing; the quick one counts checks.
pub(crate) fn run(options: &Options) -> Result<Option<Tally>> {
    if options.quick {
        return quick::check(options.fresh).map(Some);
    }
    let report = if options.render { Report::read()? } else { simulated(options.fresh)? };
    report::write(&report, &page::render(&report))?;
    let count = Count::of(&report.groups);
    println!("{} goals met, {} missed, {} failed, {} rows open", count.met, count.missed, count.failed, count.open);
    Ok(None)
}

fn simulated(fresh: bool) -> Result<Report> {
    let groups = table::groups();
    let rows = groups.iter().flat_map(|group| &group.rows);
    let points: Vec<_> = rows.flat_map(Row::figures).flat_map(|figure| figure.points.iter().copied()).collect();
    let runs = Runs::make(&points, fresh)?;
    let made = origin::now(COMMAND.split(' ').map(str::to_owned).collect())?;
    let made = Provenance { schema: report::SCHEMA.to_owned(), version: report::VERSION, ..made };
    Report::new(made, &groups, &runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own_and_all_are_there() {
        let mut names: Vec<_> =
            report::outline(&table::groups()).into_iter().map(|row| (row.title, row.what)).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        let of = |title: &str| names.iter().filter(|(group, _)| group == title).count();
        assert_eq!(of("Kernel patch: lock2"), 10);
    }
}
