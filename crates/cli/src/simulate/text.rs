//! A simulation's result as text.

use flashlock_report::results::{Group, Point, Results, Simulated};
use flashlock_report::table::{self, Row, paragraph};
use flashlock_report::units;
use flashlock_sim::Use;

use crate::screen::{BAD, HEADING, styled};
use crate::usage;

/// The text for a missing figure.
const NONE: &str = "–";
/// The metrics that are shown, with a row for each lock.
const SHOWN: [&str; 4] = ["ops_per_us", "fairness", "node_moves", "switches_per_1000"];
/// The maximum number of threads that are shown of a run that hangs.
const HANGING: usize = 5;

/// The whole text.
pub(super) fn render(results: &Results, explain: bool, width: u16) -> String {
    let mut out = format!("{}\n{}\n", styled(HEADING, &results.title), paragraph(&results.about, width));
    if results.method.interrupted {
        let done: usize = results.points.iter().map(|point| point.runs.len() + point.failures.len()).sum();
        let all = results.points.len() * results.method.rounds as usize;
        let what =
            format!("Interrupted: {} of {} runs were done.", units::count(done as u64), units::count(all as u64));
        out.push_str(&format!("{}\n", styled(BAD, &paragraph(&what, width))));
    }
    for group in &results.groups {
        for metric in SHOWN {
            out.push_str(&by_threads(results, group, metric, width));
        }
        out.push_str(&ratios(results, group, width));
        if explain {
            let each = group.cells.iter().map(|cell| explained(results, group, cell, width));
            out.extend(each);
        }
        out.push_str(&failures(results, width));
        out.push_str(&paragraph(&how(results, group), width));
    }
    out
}

/// A table of one metric, with a row for each lock and a column for each number of threads.
fn by_threads(results: &Results, group: &Group, metric: &str, width: u16) -> String {
    let Some(metric) = results.metric(metric) else { return String::new() };
    let row = |lock: &String| {
        let figure = |cell: &String| results.figure(&group.title, cell, lock, &metric.name);
        let cells = group.cells.iter().map(|cell| shown(figure(cell).map(|spread| spread.median)));
        (lock.clone(), cells.collect())
    };
    let rows: Vec<Row> = results.locks.iter().map(row).collect();
    let title = format!("{}; {}.", metric.title, metric.better.words());
    titled(&title, &group.axis, &group.cells, &rows, width)
}

/// A table of the throughput, divided by the first lock's.
fn ratios(results: &Results, group: &Group, width: u16) -> String {
    if results.locks.len() < 2 {
        return String::new();
    }
    let row = |lock: &String| {
        let ratio = |cell: &String| results.point(&group.title, cell, lock)?.ratio.as_ref().map(|ratio| ratio.mean);
        let cell = |cell: &String| results.beyond(group, cell, lock).unwrap_or_else(|| shown(ratio(cell)));
        (lock.clone(), group.cells.iter().map(cell).collect())
    };
    let rows: Vec<Row> = results.locks.iter().skip(1).map(row).collect();
    let title = format!("Operations per microsecond divided by those of {}.", results.baseline());
    let note = results.collapse_note(group).map_or_else(String::new, |note| paragraph(&note, width) + "\n");
    titled(&title, &group.axis, &group.cells, &rows, width) + &note
}

/// A table of where the time of an operation goes, with a column for each lock.
fn explained(results: &Results, group: &Group, cell: &str, width: u16) -> String {
    let time = |usage: &Use, lock: &String| {
        let spread = results.figure(&group.title, cell, lock, &format!("{}_ns", usage.name()))?;
        Some(spread.median)
    };
    let row = |usage: &Use| {
        let cells = results.locks.iter().map(|lock| whole(time(usage, lock)));
        (usage.name().to_owned(), cells.collect())
    };
    let together = |lock: &String| Use::ALL.iter().map(|usage| time(usage, lock)).sum::<Option<f64>>();
    let sums = results.locks.iter().map(|lock| whole(together(lock))).collect();
    let rows: Vec<Row> = Use::ALL.iter().map(row).chain([("together".to_owned(), sums)]).collect();
    let threads = counted_threads(cell);
    let title = format!("{threads}: where the time of an operation goes, in ns of all threads together.");
    titled(&title, "", &results.locks, &rows, width) + &misses(results, group, cell, width)
}

/// A table of lines from memory, and why they were not in the last-level cache. Empty if all lines were there.
fn misses(results: &Results, group: &Group, cell: &str, width: u16) -> String {
    let missed = |metric: &str, lock: &String| results.figure(&group.title, cell, lock, metric).map(|all| all.median);
    if results.locks.iter().all(|lock| missed("llc_misses", lock).is_none_or(|lines| lines == 0.0)) {
        return String::new();
    }
    let row = |(name, metric): (&str, &str)| {
        (name.to_owned(), results.locks.iter().map(|lock| shown(missed(metric, lock))).collect())
    };
    let rows = [
        ("all", "llc_misses"),
        ("displaced by the same core", "llc_misses_by_itself"),
        ("displaced by other cores", "llc_misses_by_others"),
    ]
    .map(row);
    let title = format!("{}: lines from memory per operation.", counted_threads(cell));
    titled(&title, "", &results.locks, &rows, width)
}

/// Three digits, but never more than four after the point: smaller figures are only said to be small.
fn shown(figure: Option<f64>) -> String {
    match figure {
        None => NONE.to_owned(),
        Some(little) if 0.0 < little && little < 0.001 => "<0.001".to_owned(),
        Some(figure) if 0.0 < figure && figure < 0.1 => format!("{figure:.4}"),
        Some(figure) => units::three_digits(figure),
    }
}

/// Without digits after the point.
fn whole(figure: Option<f64>) -> String {
    figure.map_or_else(|| NONE.to_owned(), |figure| units::count(figure.round() as u64))
}

/// A table under its title, or nothing if no run succeeded.
fn titled(title: &str, corner: &str, columns: &[String], rows: &[Row], width: u16) -> String {
    if rows.iter().all(|(_, cells)| cells.iter().all(|cell| cell == NONE)) {
        return String::new();
    }
    paragraph(title, width) + &table::folded(corner, columns, rows, width)
}

/// The failed runs: the first one of each point.
fn failures(results: &Results, width: u16) -> String {
    let line = |point: &Point| {
        let first = point.failures.first()?;
        let (lock, threads) = (&point.lock, counted_threads(&point.cell));
        let (failed, all) = (point.failures.len(), point.failures.len() + point.runs.len());
        let how = &first.how;
        let what = paragraph(&format!("Failed: {lock}, {threads}, {failed} of {all} runs: {how}"), width);
        let mut text = what.replacen("Failed:", &styled(BAD, "Failed:"), 1);
        first.output.lines().take(HANGING).for_each(|line| text.extend([line, "\n"]));
        if first.output.lines().count() > HANGING {
            text.push_str("  … --json has all of them\n");
        }
        Some(text)
    };
    let text: String = results.points.iter().filter_map(line).collect();
    if text.is_empty() { text } else { text + "\n" }
}

fn counted_threads(cell: &str) -> String {
    units::counted(cell.parse().unwrap_or_default(), "thread")
}

/// The numbers of runs, seeds and placements, and how far to trust them.
fn how(results: &Results, group: &Group) -> String {
    let Some(simulated) = &results.method.simulated else { return String::new() };
    let trust = format!("{} says how far to trust a simulation.", usage::page("fidelity.md"));
    if results.method.rounds == 1 {
        return format!("One run each, with seed {}. {trust}", results.method.seed);
    }
    let apart = |point: &Point| {
        let spread = point.figures.get(&group.merit).filter(|spread| spread.median > 0.0)?;
        Some(((spread.max - spread.min) / spread.median, point.lock.clone(), point.cell.clone()))
    };
    let widest = results.points.iter().filter_map(apart).max_by(|a, b| a.0.total_cmp(&b.0));
    let widest = widest.map_or_else(String::new, |(apart, lock, threads)| {
        let threads = counted_threads(&threads);
        format!(" Throughput differs most between the runs of {lock} with {threads}: by {}.", units::percent(apart))
    });
    format!("Medians of {}.{widest} {trust}", runs(results, simulated))
}

/// The runs of each lock with each number of threads. After an interruption, those that were done.
fn runs(results: &Results, simulated: &Simulated) -> String {
    let seed = results.method.seed;
    let all = units::counted(results.method.rounds.into(), "run");
    let placements = units::counted(simulated.placements.into(), "placement");
    if !results.method.interrupted {
        let seeds = units::counted(simulated.seeds.into(), "seed");
        return format!("{all}: {seeds} from {seed}, each with {placements} of the threads");
    }
    let rounds = results.points.iter().flat_map(|point| &point.runs).map(|run| run.round);
    let seeds = match rounds.max().unwrap_or_default() / simulated.placements.max(1) {
        0 => format!("seed {seed}"),
        more => format!("seeds {seed} to {}", seed.wrapping_add(more.into())),
    };
    let most = if simulated.placements > 1 { "up to " } else { "" };
    format!("{} of {all}: {seeds}, with {most}{placements} of the threads each", results.runs_done())
}

#[cfg(test)]
mod tests {
    use flashlock_report::results::{Better, Method, Metric, Run};

    use super::*;

    #[test]
    fn a_first_lock_that_collapsed_makes_no_gain_of_the_others() {
        let point = |lock: &str, speed: f64| Point {
            group: "kvmap".into(),
            cell: "108".into(),
            lock: lock.into(),
            runs: vec![Run { round: 0, values: [("ops_per_us".to_owned(), speed)].into() }],
            ..Point::default()
        };
        let mut results = Results {
            metrics: vec![Metric { name: "ops_per_us".into(), title: "Speed".into(), better: Better::More }],
            groups: vec![Group {
                title: "kvmap".into(),
                axis: "threads".into(),
                cells: vec!["108".into()],
                merit: "ops_per_us".into(),
            }],
            locks: ["mcs", "flash", "cna"].map(str::to_owned).to_vec(),
            points: vec![point("mcs", 0.01), point("flash", 6.89), point("cna", 0.012)],
            ..Results::default()
        };
        results.derive();
        let text = ratios(&results, &results.groups[0], 80);
        assert!(text.contains(">10") && text.contains("1.20") && !text.contains("689"), "{text}");
        assert!(text.contains(">10 is no gain: mcs collapsed (108 threads: 0.0100, flash 6.89)."), "{text}");
    }

    #[test]
    fn an_interrupted_simulation_says_which_runs_were_done() {
        let of = |placements, done: &[usize], interrupted| {
            let run = |round| Run { round: round as u32, values: [].into() };
            let point = |done: &usize| Point { runs: (0..*done).map(run).collect(), ..Point::default() };
            let simulated = Simulated { seeds: 1000, placements, ..Simulated::default() };
            let method = Method { rounds: 1000 * placements, seed: 1, interrupted, ..Method::default() };
            runs(&Results { method, points: done.iter().map(point).collect(), ..Results::default() }, &simulated)
        };
        assert_eq!(of(1, &[1000], false), "1,000 runs: 1,000 seeds from 1, each with 1 placement of the threads");
        let told = "98 to 101 of 1,000 runs: seeds 1 to 101, with 1 placement of the threads each";
        assert_eq!(of(1, &[98, 101, 99], true), told);
        let told = "4 of 5,000 runs: seed 1, with up to 5 placements of the threads each";
        assert_eq!(of(5, &[4, 0], true), told);
    }

    #[test]
    fn figures_are_short() {
        let figures = [None, Some(0.0), Some(0.00001), Some(0.0456789), Some(1.0), Some(12_345.6)];
        assert_eq!(figures.map(shown), ["–", "0", "<0.001", "0.0457", "1.00", "12,346"]);
    }
}
