//! `docs/results/regret.md`, its picture and its JSON, from a file of runs.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use flashlock_report::chart::heat::{self, Field, Heat, Panel, Row};
use flashlock_report::provenance::Provenance;
use flashlock_report::wrap::wrapped;
use serde::Serialize;
use serde_json::Value;

use super::cells::{self, Cell, Extent, OUTSIDE, SECTIONS, THREADS};
use super::contestants::Contestant;
use super::report;
use super::runs::Mode;
use super::store::Store;
use super::summary::Summary;
use crate::results::origin;
use crate::workspace;

const SCHEMA: &str = "flashlock.regret";
const VERSION: u32 = 1;

/// Why the lock loses in a cell: lines `- CELL: reason`, written by people.
const REASONS: &str = include_str!("reasons.md");

/// What is known of one mode, and of the cells held out or the others.
#[derive(Serialize)]
struct Part {
    held_out: bool,
    #[serde(flatten)]
    summary: Summary,
}

/// Writes all three files.
pub(crate) fn write(store: &Store, contestants: &[Contestant], of: &str, cpus: impl Fn(Mode) -> u32) -> Result<()> {
    let (runs, names) = (store.of(contestants), Contestant::names(contestants));
    let mut parts = Vec::new();
    for (mode, held_out) in
        [Mode::Plain, Mode::Hog, Mode::OneCpu].into_iter().flat_map(|mode| [(mode, false), (mode, true)])
    {
        let mut cells = cells::chosen(Extent::All, held_out, None)?;
        cells.retain(|cell| runs.iter().any(|run| run.mode == mode && !run.beside && run.cell == cell.name()));
        let summary = Summary::of(mode, &runs, &cells, &names, cpus(mode));
        if !summary.judged.is_empty() {
            parts.push(Part { held_out, summary });
        }
    }
    if parts.is_empty() {
        bail!("the file has no runs of these contestants as they are built now");
    }
    // Where the file lies on this machine is nobody's business.
    let name = |word: String| {
        Path::new(&word)
            .file_name()
            .filter(|_| word.starts_with('/'))
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or(word)
    };
    let command = std::env::args().skip(1).filter(|word| word != "--page").map(name);
    let command: Vec<String> = ["cargo", "xtask"].map(str::to_owned).into_iter().chain(command).collect();
    let provenance = Provenance { schema: SCHEMA.to_owned(), version: VERSION, ..origin::now(command)? };
    let title = format!("No regret: {of} and what programs could embed instead");
    write_file("regret.svg", &heat::draw(&picture(&parts, of, &title, store.machine()))?)?;
    write_file("regret.md", &markdown(&parts, contestants, of, &title, store.machine(), &provenance))?;
    write_file("regret.json", &json(&parts, &provenance)?)
}

fn write_file(name: &str, text: &str) -> Result<()> {
    workspace::write(&workspace::path("docs/results").join(name), text)
}

/// One line for each cell.
fn json(parts: &[Part], provenance: &Provenance) -> Result<String> {
    let head = serde_json::to_string_pretty(provenance)?;
    let mut text = format!("{},\n  \"parts\": [", head.strip_suffix("\n}").context("not an object")?);
    for (place, part) in parts.iter().enumerate() {
        let cells = part.summary.judged.iter().map(|judged| Ok(brief(serde_json::to_value(judged)?).to_string()));
        let cells = cells.collect::<Result<Vec<_>>>()?;
        let without = Part { held_out: part.held_out, summary: Summary { judged: Vec::new(), ..part.summary.clone() } };
        let head =
            serde_json::to_string(&without)?.replace("\"cells\":[]", &format!("\"cells\":[\n{}\n]", cells.join(",\n")));
        let _ = write!(text, "{}\n{head}", if place > 0 { "," } else { "" });
    }
    Ok(text + "\n]}\n")
}

/// A cell, and of each lock in it what cannot be computed from the rest.
fn brief(mut cell: Value) -> Value {
    const KEPT: [&str; 5] = ["lock", "ops_per_ms", "share", "cpu_ns_per_op", "longest_wait_ms"];
    for figure in cell["figures"].as_array_mut().into_iter().flatten() {
        if let Some(fields) = figure.as_object_mut() {
            fields.retain(|name, _| KEPT.contains(&name.as_str()));
        }
    }
    rounded(cell)
}

/// Its numbers with four significant digits: none of them is known better.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            number.as_f64().and_then(|number| format!("{number:.3e}").parse::<f64>().ok()).into()
        }
        Value::Array(list) => list.into_iter().map(rounded).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, rounded(value))).collect(),
        other => other,
    }
}

fn markdown(
    parts: &[Part],
    contestants: &[Contestant],
    of: &str,
    title: &str,
    machine: &str,
    provenance: &Provenance,
) -> String {
    let mut text = format!(
        "# {title}\n\n\
         Threads take one lock again and again. The cells differ in what threads do in it and outside it, and in how \
         many they are. [The benchmark](../../tests/regret) says what is measured, and what the columns \
         mean.\n\n![{title}](regret.svg)\n\n\
         | | |\n|---|---|\n| machine | {machine} |\n| version | {} |\n| date | {} |\n| command | `{}` |\n",
        provenance.flashlock,
        provenance.date,
        provenance.command.join(" ")
    );
    for contestant in contestants.iter().filter(|contestant| !contestant.ours) {
        let _ = writeln!(text, "| {} | {} |", contestant.name, contestant.version);
    }
    for Part { held_out, summary } in parts {
        let _ = write!(text, "\n## {}\n\n{} cells.", report::heading(summary.mode, *held_out), summary.judged.len());
        if let Some(disturbed) = report::disturbed(summary) {
            let _ = write!(text, " {disturbed}");
        }
        let _ = write!(text, "\n\n{}", report::standings(summary).markdown());
        if let Some(standing) = summary.standing(of) {
            let _ = write!(text, "\nGoals, for `{of}`:\n\n{}\n", report::goals(standing, summary.mode).join("\n"));
        }
        let _ = write!(text, "\nThe cells in which `{of}` is furthest from the best:\n\n");
        text += &report::worst_cells(summary, of).markdown();
        text += &reasons(&report::worst_names(summary, of));
        for failure in &summary.failures {
            let _ = write!(text, "\n- failed: {failure}");
        }
    }
    for Part { held_out, summary } in parts {
        let _ = write!(text, "\n## All cells: {}\n\n", lower(report::heading(summary.mode, *held_out)));
        text += &report::all_cells(summary, of).markdown();
    }
    wrapped(&text)
}

/// Those of these cells for which somebody has written one.
fn reasons(cells: &[String]) -> String {
    let is_meant = |line: &&str| cells.iter().any(|cell| line.starts_with(&format!("- {cell}: ")));
    let lines: Vec<&str> = REASONS.lines().filter(is_meant).collect();
    if lines.is_empty() { String::new() } else { format!("\nWhy:\n\n{}\n", lines.join("\n")) }
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// A panel for each mode; the cells that were held out are marked.
fn picture(parts: &[Part], of: &str, title: &str, machine: &str) -> Heat {
    let panel = |mode: Mode| {
        let mut rows = Vec::new();
        for section in &SECTIONS {
            for (name, ns) in OUTSIDE {
                let field = |threads: u32| {
                    let is_it = |cell: Cell| {
                        cell.section().name == section.name && cell.outside_ns() == ns && cell.threads == threads
                    };
                    parts.iter().filter(|part| part.summary.mode == mode).find_map(|part| {
                        let judged = part.summary.judged.iter().find(|judged| is_it(judged.cell))?;
                        Some(field(judged.figure(of)?.share, &judged.figures.first()?.lock, part.held_out))
                    })
                };
                let fields: Vec<Option<Field>> = THREADS.into_iter().map(field).collect();
                if fields.iter().any(Option::is_some) {
                    rows.push(Row { group: section.name.to_owned(), name: format!("{name} µs"), fields });
                }
            }
        }
        Panel {
            title: report::heading(mode, false).to_owned(),
            axis: "section, µs outside, threads →".to_owned(),
            columns: THREADS.map(|threads| threads.to_string()).to_vec(),
            rows,
        }
    };
    let panels = [Mode::Plain, Mode::Hog, Mode::OneCpu].map(panel);
    Heat {
        title: title.to_owned(),
        notes: vec![
            machine.to_owned(),
            format!("Operations of {of}, as a share of those of the best lock in the cell; below .95 with its name"),
            "p_l: parking_lot".to_owned(),
            "° held out until the design was done · empty: not measured".to_owned(),
        ],
        panels: panels.into_iter().filter(|panel| !panel.rows.is_empty()).collect(),
    }
}

fn field(share: f64, winner: &str, held_out: bool) -> Field {
    Field { share, winner: winner.replace("parking_lot-", "p_l "), marked: held_out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_is_json() {
        let summary = Summary::of(Mode::Plain, &[], &[], &[], 2);
        let parts = [false, true].map(|held_out| Part { held_out, summary: summary.clone() });
        let text = json(&parts, &Provenance::default()).expect("written");
        let read: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&read["parts"][1]["held_out"], &read["machine"]["cpus"]), (&true.into(), &0.into()));
    }

    #[test]
    fn numbers_are_rounded() {
        let value: Value = serde_json::from_str(r#"{"a":[0.123456,7],"b":"x","c":123456.7}"#).expect("JSON");
        assert_eq!(rounded(value).to_string(), r#"{"a":[0.1235,7],"b":"x","c":123500.0}"#);
    }

    #[test]
    fn every_reason_is_of_a_cell() {
        for line in REASONS.lines().filter(|line| line.starts_with("- ")) {
            let (cell, reason) = line[2..].split_once(": ").expect("- CELL: reason");
            assert!(cells::named(cell).is_some() && !reason.is_empty(), "{line}");
        }
        assert_eq!(reasons(&["no cell".to_owned()]), "");
    }
}
