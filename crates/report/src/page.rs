//! Results as a Markdown page.

use std::fmt::Write as _;

use crate::finding;
use crate::results::{Better, COLLAPSE, Group, Method, Noise, Results};
use crate::statistics::verdict::LEAST_ROUNDS;
use crate::statistics::{Direction, Ratio, Verdict};
use crate::table::markdown_of_numbers;
use crate::units::three_digits;
use crate::wrap::wrapped;

/// The page; with the picture beside it if there is one.
pub fn markdown(results: &Results, picture: bool) -> String {
    let mut text = format!("# {}\n\n{}\n\n", results.title, results.about);
    if picture {
        let _ = writeln!(text, "![{}]({}.svg)\n", finding::headline(results), results.name);
    }
    text += &header(results);
    for group in &results.groups {
        text += &group_section(results, group);
    }
    wrapped(&(text + &failures(results)))
}

fn header(results: &Results) -> String {
    let (provenance, method) = (&results.provenance, &results.method);
    let mut rows = vec![
        ("machine", provenance.machine.to_string()),
        ("version", provenance.flashlock.clone()),
        ("date", provenance.date.clone()),
        ("command", format!("`{}`", provenance.command.join(" "))),
        ("repetitions", repetitions(method)),
        (
            "figures",
            "medians of the rounds; ratios: geometric mean of the quotients within a round, and its 95 % interval"
                .into(),
        ),
    ];
    if let Some(Noise { loops, spread, .. }) = results.noise {
        rows.push(("noise", format!("a loop of constant work, run {loops} times, varied by {:.0} %", spread * 100.0)));
    }
    let mut text = "| | |\n|---|---|\n".to_owned();
    for (name, value) in rows {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    text
}

fn repetitions(method: &Method) -> String {
    let length = method.seconds.map_or_else(String::new, |seconds| format!(" of {seconds} s each"));
    match &method.simulated {
        None => format!("{} rounds{length}, random order (seed {})", method.rounds, method.seed),
        Some(it) => {
            format!(
                "{} rounds{length}, virtual time: {} seeds, {} placements of the threads",
                method.rounds, it.seeds, it.placements
            )
        }
    }
}

/// The ratios of a group, then all its figures.
fn group_section(results: &Results, group: &Group) -> String {
    let Some(merit) = results.metric(&group.merit) else { return String::new() };
    let mut text = format!("\n## {}\n\n", group.title);
    // Run times are shown as speeds, so that all ratios of the page have the same direction.
    let (is_speed, baseline) = (merit.name == "seconds" && merit.better == Better::Less, results.baseline());
    let _ = match is_speed {
        true => writeln!(text, "Speed: {baseline}'s run time divided by the lock's; {}.\n", Better::More.words()),
        false => writeln!(text, "Ratio to {baseline} of: {}; {}.\n", merit.title, merit.better.words()),
    };
    let beyond = if is_speed { format!(">{COLLAPSE}") } else { results.beyond_words(group) };
    if let Some(verdict) = results.verdicts.get(&group.title) {
        let _ = writeln!(text, "{}\n", verdict_line(verdict, baseline, !results.dropped_cells(group).is_empty()));
    }
    let ratio = |lock: &str, cell: &str| {
        let ratio = match is_speed {
            true => results.advantage(group, cell, lock)?,
            false => results.point(&group.title, cell, lock)?.ratio?,
        };
        Some(results.beyond(group, cell, lock).map_or_else(|| with_interval(&ratio), |_| beyond.clone()))
    };
    text += &table(group, &results.locks[1..], &ratio);
    if let Some(note) = results.collapse_note(group) {
        let _ = writeln!(text, "\n{}", note.replacen(&results.beyond_words(group), &beyond, 1));
    }
    let others = results.metrics.iter().filter(|metric| metric.name != merit.name);
    for metric in std::iter::once(merit).chain(others) {
        let figure =
            |lock: &str, cell: &str| Some(three_digits(results.figure(&group.title, cell, lock, &metric.name)?.median));
        if group.cells.iter().any(|cell| results.locks.iter().any(|lock| figure(lock, cell).is_some())) {
            let _ = writeln!(text, "\n{}; {}.\n", metric.title, metric.better.words());
            text += &table(group, &results.locks, &figure);
        }
    }
    text
}

/// What differs from the baseline, over all cells together, except those in which the baseline collapsed.
fn verdict_line(verdict: &Verdict, baseline: &str, has_collapsed: bool) -> String {
    let named = |direction: Direction| {
        let of = verdict.standings.iter().filter(|standing| standing.direction == direction);
        let times = |advantage: &Ratio| match advantage.mean {
            mean if mean >= COLLAPSE => format!("{baseline} collapsed"),
            _ => with_interval(advantage) + " times",
        };
        let shown = of.map(|standing| format!("`{}` ({})", standing.lock, times(&standing.advantage)));
        shown.collect::<Vec<_>>().join(", ")
    };
    if verdict.standings.iter().all(|standing| standing.p.is_none()) {
        return format!("Too few rounds to tell a difference from noise: {LEAST_ROUNDS} are needed.");
    }
    let (better, worse) = (named(Direction::Better), named(Direction::Worse));
    match (better.is_empty(), worse.is_empty()) {
        (true, true) if has_collapsed => {
            format!("Where {baseline} did not collapse, no lock differs from it beyond the noise.")
        }
        (true, true) => format!("No lock differs from {baseline} beyond the noise."),
        (false, true) => format!("Better than {baseline} beyond the noise: {better}."),
        (true, false) => format!("Worse than {baseline} beyond the noise: {worse}; better: none."),
        (false, false) => format!("Better than {baseline} beyond the noise: {better}; worse: {worse}."),
    }
}

/// One row for each lock, one column for each cell of the group; a dash where there is no figure.
fn table(group: &Group, locks: &[String], cell: &dyn Fn(&str, &str) -> Option<String>) -> String {
    let columns: Vec<&String> = std::iter::once(&group.axis).chain(&group.cells).collect();
    let row = |lock: &String| {
        let cells = group.cells.iter().map(|heading| cell(lock, heading).unwrap_or_else(|| "–".to_owned()));
        std::iter::once(format!("`{lock}`")).chain(cells).collect()
    };
    markdown_of_numbers(&columns, locks.iter().map(row))
}

/// `1.05 (0.98–1.10)`.
fn with_interval(ratio: &Ratio) -> String {
    let mean = three_digits(ratio.mean);
    match ratio.interval() {
        Some(interval) => format!("{mean} ({interval})"),
        None => mean,
    }
}

fn failures(results: &Results) -> String {
    let mut text = String::new();
    for point in &results.points {
        for failed in &point.failures {
            if text.is_empty() {
                text += "\n## Failed runs\n\n";
            }
            let (lock, group, cell, round) = (&point.lock, &point.group, &point.cell, failed.round + 1);
            let _ = writeln!(text, "- {lock}, {group}, {cell}, round {round}: {}", failed.how);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::results::{Failed, Metric, Point, Run};

    use super::*;

    /// Three rounds of two locks in one cell; in the second the machine is half as fast.
    fn results() -> Results {
        let point = |lock: &str, speeds: &[f64]| Point {
            group: "G".into(),
            cell: "8".into(),
            lock: lock.into(),
            runs: (0..)
                .zip(speeds)
                .map(|(round, speed)| Run { round, values: [("speed".into(), *speed)].into() })
                .collect(),
            ..Point::default()
        };
        let failed = Failed { how: "killed by signal 11".into(), ..Failed::default() };
        let broken = Point { failures: vec![failed], ..point("broken", &[]) };
        let mut results = Results {
            title: "T".into(),
            metrics: vec![Metric { name: "speed".into(), title: "Speed, m/s".into(), better: Better::More }],
            groups: vec![Group {
                title: "G".into(),
                axis: "threads".into(),
                cells: vec!["8".into()],
                merit: "speed".into(),
            }],
            locks: ["glibc", "mcs", "broken"].map(str::to_owned).to_vec(),
            points: vec![point("glibc", &[100.0, 50.0, 80.0]), point("mcs", &[150.0, 75.0, 121.0]), broken],
            ..Results::default()
        };
        results.derive();
        results
    }

    #[test]
    fn markdown_shows_ratios_figures_and_failures() {
        let markdown = markdown(&results(), false);
        for line in [
            "| `mcs` | 1.50 (1.49–1.52) |",
            "| `mcs` | 121 |",
            "| `broken` | – |",
            "- broken, G, 8, round 1: killed by signal 11",
        ] {
            assert!(markdown.lines().any(|other| other == line), "no line `{line}` in\n{markdown}");
        }
    }

    #[test]
    fn run_times_are_shown_as_speeds() {
        let mut timed = results();
        timed.metrics = vec![Metric { name: "seconds".into(), title: "Run time, s".into(), better: Better::Less }];
        timed.groups[0].merit = "seconds".into();
        for run in timed.points.iter_mut().flat_map(|point| &mut point.runs) {
            run.values = [("seconds".to_owned(), 1.0 / run.values["speed"])].into();
        }
        timed.derive();
        let page = markdown(&timed, false);
        assert!(page.contains("Speed: glibc's run time divided by the lock's; more is better."), "{page}");
        assert!(
            page.contains("| `mcs` | 1.50 (1.49–1.52) |") && page.contains("Run time, s; less is better."),
            "{page}"
        );
        timed.points[1].runs.iter_mut().for_each(|run| run.values.values_mut().for_each(|value| *value /= 459.0));
        timed.derive();
        let page = markdown(&timed, false);
        assert!(page.contains("| `mcs` | >10 |") && page.contains(">10 is no gain"), "{page}");
    }

    #[test]
    fn a_baseline_that_collapsed_makes_no_gain_of_the_others() {
        let mut fell = results();
        for run in fell.points.iter_mut().filter(|point| point.lock == "mcs").flat_map(|point| &mut point.runs) {
            run.values.values_mut().for_each(|value| *value *= 459.0);
        }
        fell.derive();
        fell.judge();
        let markdown = markdown(&fell, true);
        assert!(markdown.contains("| `mcs` | >10 |") && !markdown.contains("689"), "{markdown}");
        assert!(markdown.contains(">10 is no gain: glibc collapsed (8 threads: 80.0, mcs 55,"), "{markdown}");
        assert!(markdown.contains("`mcs` (glibc collapsed)"), "{markdown}");
        assert!(markdown.contains("![glibc collapsed: 80"), "the picture is described by what it shows: {markdown}");
    }
}
