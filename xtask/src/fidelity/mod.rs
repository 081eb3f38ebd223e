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
//! | [`reasons`] | `reasons.md`: why rows miss |
//! | [`page`] | the page, from the result and the reasons |
//! | [`quick`] | what is checked before a change is accepted |

mod figure;
mod page;
mod point;
mod quick;
mod reasons;
mod report;
mod row;
mod runs;
mod table;

use anyhow::{Result, bail};
use clap::Args;
use flashlock_report::provenance::Provenance;

use crate::results::origin;
use crate::steps::Tally;
use page::Count;
use report::Report;
use row::{Group, Row};
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
    /// Run nothing: make the page again of what the JSON has, in the words that the table, the machines' files and
    /// reasons.md have now
    #[arg(long)]
    render: bool,
    /// Run only the rows whose names contain this, and those that the file does not have as the table has them; the
    /// others stay as they are, and the page says which were made when (may be repeated)
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["quick", "render"])]
    rows: Vec<String>,
}

/// The full task writes a report and checks nothing; the quick one counts checks.
pub(crate) fn run(options: &Options) -> Result<Option<Tally>> {
    if options.quick {
        return quick::check(options.fresh).map(Some);
    }
    let report = match options.rows.as_slice() {
        _ if options.render => Report::read()?.told_anew(&table::groups(), report::facts)?,
        [] => simulated(&table::groups(), options.fresh)?,
        texts => made_later(texts, options.fresh)?,
    };
    report::write(&report, &page::render(&report))?;
    let count = Count::of(&report.groups);
    println!("{} goals met, {} missed, {} failed, {} rows open", count.met, count.missed, count.failed, count.open);
    Ok(None)
}

/// The report as it is, but for the rows whose names contain one of these, and those that it does not have.
fn made_later(texts: &[String], fresh: bool) -> Result<Report> {
    let report = Report::read()?.told_anew(&table::groups(), report::facts)?;
    let all = report::outline(&table::groups());
    if let Some(text) = texts.iter().find(|text| !all.iter().any(|row| row.what.contains(text.as_str()))) {
        bail!("no row has \"{text}\" in its name: docs/fidelity.md has all names");
    }
    let is_named = |row: &Row| texts.iter().any(|text| row.what.contains(text.as_str()));
    let there = report.outline();
    let mut groups = table::groups();
    for group in &mut groups {
        let is_there = |row: &Row| {
            let is_it = |other: &&report::Outline| other.title == group.title && other.what == row.what;
            there.iter().find(is_it) == all.iter().find(is_it)
        };
        group.rows =
            std::mem::take(&mut group.rows).into_iter().filter(|row| is_named(row) || !is_there(row)).collect();
    }
    report.with(&simulated(&groups, fresh)?, &table::groups())
}

fn simulated(groups: &[Group], fresh: bool) -> Result<Report> {
    let rows = groups.iter().flat_map(|group| &group.rows);
    let points: Vec<_> = rows.flat_map(Row::figures).flat_map(|figure| figure.points.iter().copied()).collect();
    let runs = Runs::make(&points, fresh)?;
    let made = origin::now(COMMAND.split(' ').map(str::to_owned).collect())?;
    let made = Provenance { schema: report::SCHEMA.to_owned(), version: report::VERSION, ..made };
    Report::new(made, groups, &runs)
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
        assert_eq!(of("Kernel patch: lock2"), 10 + 1, "ten lines, and the peak");
    }
}
