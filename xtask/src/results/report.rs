//! The results as Markdown and as JSON.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::{Map, json};

use super::benches::{Bench, Group, Metric};
use super::machine::Machine;
use super::measure::Measured;
use super::statistics::{Spread, three_digits};

/// Bumped when a field of the JSON changes its meaning or goes.
const FORMAT: &str = "flashlock-results/1";

pub(crate) fn markdown(bench: &Bench, measured: &Measured, machine: &Machine, command: &str) -> String {
    let mut text = format!("# {}\n\n{}\n\n", bench.title, bench.about);
    if bench.charted {
        let _ = writeln!(text, "![{}]({}.svg)\n", bench.title, bench.name);
    }
    text += &header(measured, machine, command);
    for (g, group) in bench.groups.iter().enumerate() {
        let _ = writeln!(text, "\n## {}\n", group.title);
        let _ = writeln!(text, "Ratio to glibc of: {}; {}.\n", bench.metric.title, bench.metric.better);
        let ratio = |lock: &str, c: usize| measured.ratio(lock, (g, c), &bench.metric).map(with_spread);
        text += &table(group, &measured.locks[1..], &ratio);
        for metric in std::iter::once(&bench.metric).chain(bench.further) {
            let figure = |lock: &str, c: usize| Some(three_digits(measured.figure(lock, (g, c), metric)?.median));
            let _ = writeln!(text, "\n{}; {}.\n", metric.title, metric.better);
            text += &table(group, &measured.locks, &figure);
        }
    }
    if !measured.failures.is_empty() {
        text += "\n## Failed runs\n\n";
        for failure in &measured.failures {
            let _ = writeln!(text, "- {}", failure);
        }
    }
    text
}

fn header(measured: &Measured, machine: &Machine, command: &str) -> String {
    let rows = [
        ("machine", format!("{}, {} CPUs, {} NUMA node(s)", machine.model, machine.cpus, machine.numa_nodes)),
        ("system", format!("{}, {}", machine.kernel, machine.glibc)),
        ("version", machine.flashlock.clone()),
        ("date", machine.date.clone()),
        ("command", format!("`{command}`")),
        (
            "repetitions",
            format!("{} rounds of {} s each, random order (seed {})", measured.rounds, measured.seconds, measured.seed),
        ),
        (
            "figures",
            "medians of the rounds; ratios: median (least–greatest) of the quotients within a round".to_owned(),
        ),
    ];
    let mut text = "| | |\n|---|---|\n".to_owned();
    for (name, value) in rows {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    text
}

/// One row for each lock, one column for each cell of the group; a dash where there is no figure.
fn table(group: &Group, locks: &[String], cell: &dyn Fn(&str, usize) -> Option<String>) -> String {
    let headings: Vec<&str> = group.cells.iter().map(|cell| cell.heading.as_str()).collect();
    let mut text = format!("| {} | {} |\n|---|{}\n", group.axis, headings.join(" | "), "--:|".repeat(headings.len()));
    for lock in locks {
        let cells = (0..headings.len()).map(|c| cell(lock, c).unwrap_or_else(|| "–".to_owned()));
        let _ = writeln!(text, "| `{lock}` | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    text
}

/// `1.05 (0.98–1.10)`.
fn with_spread(spread: Spread) -> String {
    let [median, min, max] = [spread.median, spread.min, spread.max].map(three_digits);
    format!("{median} ({min}–{max})")
}

/// The same with every run, one line for each lock in each cell.
pub(crate) fn json(bench: &Bench, measured: &Measured, machine: &Machine, command: &str) -> Result<String> {
    let mut rows = Vec::new();
    for (g, group) in bench.groups.iter().enumerate() {
        for (c, cell) in group.cells.iter().enumerate() {
            for lock in &measured.locks {
                let metrics = || std::iter::once(&bench.metric).chain(bench.further);
                let figure = |metric: &Metric| (metric.field.to_owned(), json!(measured.figure(lock, (g, c), metric)));
                let runs = |metric: &Metric| (metric.field.to_owned(), json!(measured.runs(lock, (g, c), metric)));
                rows.push(serde_json::to_string(&json!({
                    "group": group.title, "cell": cell.heading, "lock": lock,
                    "ratio_to_glibc": measured.ratio(lock, (g, c), &bench.metric),
                    "figures": metrics().map(figure).collect::<Map<_, _>>(),
                    "runs": metrics().map(runs).collect::<Map<_, _>>(),
                }))?);
            }
        }
    }
    let head = serde_json::to_string_pretty(&json!({
        "format": FORMAT, "bench": bench.name, "machine": machine, "command": command,
        "rounds": measured.rounds, "seconds": measured.seconds, "seed": measured.seed,
        "metric": { "field": bench.metric.field, "title": bench.metric.title, "better": bench.metric.better },
        "failures": measured.failures,
    }))?;
    let head = head.trim_end_matches('}').trim_end();
    Ok(format!("{head},\n  \"results\": [\n    {}\n  ]\n}}\n", rows.join(",\n    ")))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::results::benches::Cell;
    use crate::results::measure::tests::{SPEED, measured};

    fn files() -> (String, String) {
        let cells = vec![Cell { heading: "8".into(), arguments: Vec::new() }];
        let groups = vec![Group { title: "G".into(), axis: "threads", cells }];
        let bench = Bench {
            name: "n",
            title: "T",
            about: "A.",
            program: "p",
            groups,
            metric: SPEED,
            further: &[],
            charted: true,
        };
        let unknown = || "x".to_owned();
        let machine = Machine {
            model: unknown(),
            cpus: unknown(),
            numa_nodes: unknown(),
            kernel: unknown(),
            glibc: unknown(),
            flashlock: unknown(),
            date: unknown(),
        };
        let measured = measured();
        (markdown(&bench, &measured, &machine, "cmd"), json(&bench, &measured, &machine, "cmd").expect("serialises"))
    }

    #[test]
    fn markdown_shows_ratios_figures_and_failures() {
        let (markdown, _) = files();
        for line in [
            "| `mcs` | 1.50 (1.50–1.50) |",
            "| `mcs` | 112 |",
            "| `broken` | – |",
            "- broken, round 1: killed by signal 11",
        ] {
            assert!(markdown.lines().any(|other| other == line), "no line `{line}` in\n{markdown}");
        }
    }

    #[test]
    fn json_keeps_every_run() {
        let (_, json) = files();
        let value: Value = serde_json::from_str(&json).expect("valid");
        let mcs = value["results"].as_array().expect("list").iter().find(|row| row["lock"] == "mcs").expect("mcs");
        assert_eq!(mcs["ratio_to_glibc"]["median"], 1.5);
        assert_eq!(mcs["runs"]["speed"], json!([150.0, 75.0]));
        assert_eq!(value["failures"].as_array().map(Vec::len), Some(1));
    }
}
