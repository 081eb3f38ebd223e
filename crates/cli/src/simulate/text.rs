//! A simulation's result for people.

use flashlock_report::results::{Group, Results};
use flashlock_report::{table, units};
use flashlock_sim::{Description, Use};

use crate::screen::{BAD, HEADING, paragraph, styled};

/// No figure.
const NONE: &str = "–";
/// What is shown, a row for each lock.
const SHOWN: [&str; 4] = ["ops_per_us", "fairness", "node_moves", "switches_per_1000"];

/// Everything.
pub(super) fn render(results: &Results, machine: &Description, explain: bool, width: u16) -> String {
    let mut out = format!("{}\n{}\n", styled(HEADING, &results.title), paragraph(&results.about, width));
    for group in &results.groups {
        for metric in SHOWN {
            out.push_str(&by_threads(results, group, metric, width));
        }
        out.push_str(&ratios(results, group, width));
        if explain {
            let each = group.cells.iter().map(|cell| explained(results, group, cell, width));
            out.extend(each);
        }
        out.push_str(&failures(results));
    }
    let rounds = units::counted(u64::from(results.method.rounds), "run");
    let how = format!(
        "Medians of {rounds} each, with other seeds and placements (from {}). A simulation of {}: see docs/fidelity.md for how far to trust it.",
        results.method.seed, machine.name
    );
    out + &paragraph(&how, width)
}

/// One metric: a row for each lock, a column for each number of threads.
fn by_threads(results: &Results, group: &Group, metric: &str, width: u16) -> String {
    let Some(metric) = results.metric(metric) else { return String::new() };
    let mut table = table::new(columns(group), width);
    table::numbers(&mut table, 1..=group.cells.len());
    for lock in &results.locks {
        let figure = |cell: &String| results.figure(&group.title, cell, lock, &metric.name);
        let cell =
            |cell: &String| figure(cell).map_or_else(|| NONE.to_owned(), |spread| units::three_digits(spread.median));
        table.add_row(std::iter::once(lock.clone()).chain(group.cells.iter().map(cell)));
    }
    format!(
        "{}\n{}\n",
        paragraph(&format!("{}; {}.", metric.title, metric.better.words()), width).trim_end(),
        table::text(&table)
    )
}

fn columns(group: &Group) -> impl Iterator<Item = &str> {
    std::iter::once(group.axis.as_str()).chain(group.cells.iter().map(String::as_str))
}

/// Throughput by the first lock's, from the least to the greatest over seeds and placements.
fn ratios(results: &Results, group: &Group, width: u16) -> String {
    if results.locks.len() < 2 {
        return String::new();
    }
    let mut table = table::new(columns(group), width);
    table::numbers(&mut table, 1..=group.cells.len());
    for lock in results.locks.iter().skip(1) {
        let ratio = |cell: &String| {
            let ratio = results.point(&group.title, cell, lock).and_then(|point| point.ratio.as_ref());
            ratio.map_or_else(|| NONE.to_owned(), |ratio| units::three_digits(ratio.mean))
        };
        table.add_row(std::iter::once(lock.clone()).chain(group.cells.iter().map(ratio)));
    }
    let title = format!("Operations per microsecond divided by those of {}.", results.baseline());
    format!("{}\n{}\n", paragraph(&title, width).trim_end(), table::text(&table))
}

/// Where the time of an operation goes.
fn explained(results: &Results, group: &Group, cell: &str, width: u16) -> String {
    let mut table = table::new(std::iter::once("lock").chain(Use::ALL.iter().map(|usage| usage.name())), width);
    table::numbers(&mut table, 1..=Use::ALL.len());
    for lock in &results.locks {
        let time = |usage: &Use| {
            let spread = results.figure(&group.title, cell, lock, &format!("{}_ns", usage.name()));
            spread.map_or_else(|| NONE.to_owned(), |spread| units::nanoseconds(spread.median.round() as u64))
        };
        table.add_row(std::iter::once(lock.clone()).chain(Use::ALL.iter().map(time)));
    }
    let title = format!("{cell} {}: where the time of an operation goes, that of all threads together.", group.axis);
    format!("{}\n{}\n", paragraph(&title, width).trim_end(), table::text(&table))
}

fn failures(results: &Results) -> String {
    let failed = results.points.iter().flat_map(|point| point.failures.iter().map(move |failure| (point, failure)));
    let line = |(point, failure): (&flashlock_report::results::Point, &flashlock_report::results::Failed)| {
        let (lock, cell) = (&point.lock, &point.cell);
        format!("{} {lock}, {cell} threads, run {}: {}\n", styled(BAD, "Failed:"), failure.round + 1, failure.how)
    };
    failed.map(line).collect()
}

/// The known machines.
pub(super) fn machines(width: u16) -> String {
    let mut table = table::new(["machine", "CPUs", "NUMA nodes", "what it is"], width);
    table::numbers(&mut table, 1..=2);
    table::keep_whole(&mut table, 0);
    for name in Description::names() {
        let machine = Description::find(name).expect("the machines that are part of the command are sound");
        table.add_row([name.to_owned(), machine.cpus().to_string(), machine.nodes().to_string(), machine.title]);
    }
    table::text(&table) + "\n"
}
