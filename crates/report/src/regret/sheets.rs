//! The summary as text, and its tables for the page.

use std::fmt::Write as _;

use super::Mode;
use super::cells::Grid;
use super::summary::{Figure, Judged, Standing, Summary};
use crate::table;
use crate::units::three_digits;

/// How many of the worst cells are listed.
const WORST: usize = 10;

/// A table, for a terminal or for a page.
pub(super) struct Sheet {
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Sheet {
    fn text(&self) -> String {
        let mut table = table::of_numbers(self.columns.iter().copied());
        for row in &self.rows {
            table.add_row(row);
        }
        format!("{table}\n")
    }

    pub(super) fn markdown(&self) -> String {
        table::markdown_of_numbers(&self.columns, self.rows.iter().cloned())
    }
}

/// What it is about and what else went on, as a heading.
pub(super) fn heading(grid: Grid, mode: Mode, held_out: bool) -> String {
    let mode = match mode {
        Mode::Plain => "Nothing else runs",
        Mode::Hog => "Another process competes",
        Mode::OneCpu => "On one CPU",
    };
    let grid = if grid == Grid::Conditions { ", condition variables" } else { "" };
    let held_out = if held_out { ", cells held out" } else { "" };
    format!("{mode}{grid}{held_out}")
}

/// All of it; the worst cells are those of one lock.
pub fn text(summary: &Summary, of: &str, held_out: bool) -> String {
    let mut text = format!("{}: {} cells\n\n", heading(summary.grid, summary.mode, held_out), summary.judged.len());
    text += &standings(summary).text();
    if let Some(standing) = summary.standing(of) {
        let _ = write!(text, "\nGoals, for {of}:\n{}", goals(standing, summary.mode).join("\n"));
    }
    let _ =
        write!(text, "\n\nThe cells in which {of} is furthest from the best:\n\n{}", worst_cells(summary, of).text());
    if let Some(disturbed) = disturbed(summary) {
        let _ = writeln!(text, "\n{disturbed}");
    }
    for failure in &summary.failures {
        let _ = writeln!(text, "failed: {failure}");
    }
    text
}

pub(super) fn disturbed(summary: &Summary) -> Option<String> {
    let Summary { disturbed, runs, .. } = summary;
    (*disturbed > 0).then(|| format!("Other programs disturbed {disturbed} of {runs} runs."))
}

pub(super) fn standings(summary: &Summary) -> Sheet {
    let mut ordered: Vec<&Standing> = summary.standings.iter().collect();
    ordered.sort_by(|a, b| b.share.total_cmp(&a.share));
    let row = |standing: &Standing| {
        vec![
            standing.lock.clone(),
            share(standing.share),
            interval(standing.interval),
            format!("{}/{}", standing.near, standing.cells),
            share(standing.worst),
            standing.of_bound.map_or_else(|| "–".into(), share),
            format!("{:.2}", standing.cpu_ratio),
            format!("{:.0}", standing.longest_wait_ms),
            format!("{:.2}", standing.wait_to_allowed),
            standing.too_long.to_string(),
            standing.failed.to_string(),
        ]
    };
    Sheet {
        columns: vec![
            "lock",
            "of the best",
            "95 %",
            "≥ .95",
            "worst",
            "of the bound",
            "CPU/op",
            "wait, ms",
            "of allowed",
            "too long",
            "failed",
        ],
        rows: ordered.into_iter().map(row).collect(),
    }
}

/// The goals of one mode: what is wanted, what is there.
pub(super) fn goals(standing: &Standing, mode: Mode) -> Vec<String> {
    let mut lines = Vec::new();
    let mut goal = |what: &str, is: f64, wanted: f64, met: bool| {
        let met = if met { "met" } else { "MISSED" };
        lines.push(format!("- {met}: {what} {wanted}: {is:.3}"));
    };
    let mean = match mode {
        Mode::Plain => 0.98,
        Mode::Hog => 0.95,
        Mode::OneCpu => 0.97,
    };
    goal("of the best in the geometric mean, at least", standing.share, mean, standing.share >= mean);
    if mode == Mode::Plain {
        let near = standing.near as f64 / standing.cells as f64;
        goal("share of the cells with .95 or more, at least", near, 0.95, near >= 0.95);
        goal("worst cell, at least", standing.worst, 0.85, standing.worst >= 0.85);
        if let Some(bound) = standing.of_bound {
            goal("of the physical bound in the geometric mean, at least", bound, 0.95, bound >= 0.95);
        }
        goal("CPU time per operation, at most", standing.cpu_ratio, 1.15, standing.cpu_ratio <= 1.15);
    }
    let wait = standing.wait_to_allowed;
    goal("longest wait, of what is allowed, at most", wait, 1.0, wait <= 1.0);
    lines
}

/// The cells of a lock, from its worst to its best.
fn from_the_worst<'a>(summary: &'a Summary, of: &str) -> Vec<(&'a Judged, &'a Figure)> {
    let mut cells: Vec<(&Judged, &Figure)> =
        summary.judged.iter().filter_map(|judged| Some((judged, judged.figure(of)?))).collect();
    cells.sort_by(|a, b| a.1.share.total_cmp(&b.1.share));
    cells
}

pub(super) fn worst_cells(summary: &Summary, of: &str) -> Sheet {
    let mut cells = from_the_worst(summary, of);
    cells.truncate(WORST);
    cells_sheet(&cells)
}

pub(super) fn worst_names(summary: &Summary, of: &str) -> Vec<String> {
    from_the_worst(summary, of).iter().take(WORST).map(|(judged, _)| judged.cell.name()).collect()
}

/// All cells of a lock, in the grid's order.
pub(super) fn all_cells(summary: &Summary, of: &str) -> Sheet {
    let mut cells = from_the_worst(summary, of);
    cells.sort_by_key(|(judged, _)| judged.cell);
    cells_sheet(&cells)
}

fn cells_sheet(cells: &[(&Judged, &Figure)]) -> Sheet {
    let row = |(judged, figure): &(&Judged, &Figure)| {
        let winner = judged.figures.first();
        vec![
            judged.cell.name(),
            share(figure.share),
            interval(figure.interval),
            three_digits(figure.ops_per_ms),
            winner.map_or_else(String::new, |winner| winner.lock.clone()),
            winner.map_or_else(String::new, |winner| three_digits(winner.ops_per_ms)),
            judged.bound_ops_per_ms.map_or_else(|| "–".into(), three_digits),
            figure.of_bound.map_or_else(|| "–".into(), share),
            format!("{:.2}", figure.cpu_ratio),
            format!("{:.0}", figure.longest_wait_ms),
            format!("{:.0}", judged.allowed_wait_ms),
            format!("{:.2}", figure.least_to_most),
        ]
    };
    Sheet {
        columns: vec![
            "cell",
            "of the best",
            "95 %",
            "ops/ms",
            "winner",
            "its ops/ms",
            "bound",
            "of the bound",
            "CPU/op",
            "wait, ms",
            "allowed",
            "least/most",
        ],
        rows: cells.iter().map(row).collect(),
    }
}

fn share(share: f64) -> String {
    format!("{share:.3}")
}

fn interval(interval: Option<(f64, f64)>) -> String {
    let end = |end: f64| if end < 10.0 { format!("{end:.3}") } else { "∞".to_owned() };
    interval.map_or_else(|| "–".into(), |(low, high)| format!("{}–{}", end(low), end(high)))
}
