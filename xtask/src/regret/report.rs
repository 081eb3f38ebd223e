//! The summary as text.

use std::fmt::Write as _;

use flashlock_report::units::three_digits;

use super::runs::Mode;
use super::summary::{Figure, Judged, Standing, Summary};
use crate::table;

/// How many of the worst cells are listed.
const WORST: usize = 10;

/// All of it; the worst cells are those of one lock.
pub(crate) fn text(summary: &Summary, of: &str, held_out: bool) -> String {
    let mode = match summary.mode {
        Mode::Plain => "",
        Mode::Hog => ", a process computes beside",
        Mode::OneCpu => ", on one CPU",
    };
    let held = if held_out { "held out" } else { "not held out" };
    let mut text = format!("{} cells ({held}){mode}\n\n{}", summary.judged.len(), standings(summary));
    if let Some(standing) = summary.standings.iter().find(|standing| standing.lock == of) {
        let _ = write!(text, "\nGoals, for {of}:\n{}", goals(standing, summary.mode));
    }
    let _ = write!(text, "\nThe cells in which {of} is furthest from the best:\n\n{}", worst_cells(summary, of));
    if summary.disturbed > 0 {
        let _ = writeln!(text, "\nother programs disturbed {} of {} runs", summary.disturbed, summary.runs);
    }
    for failure in &summary.failures {
        let _ = writeln!(text, "failed: {failure}");
    }
    text
}

fn standings(summary: &Summary) -> String {
    let mut table = table::new([
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
    ]);
    let mut ordered: Vec<&Standing> = summary.standings.iter().collect();
    ordered.sort_by(|a, b| b.share.total_cmp(&a.share));
    for standing in ordered {
        table.add_row([
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
        ]);
    }
    format!("{table}\n")
}

/// The goals of one mode: what is wanted, what is there.
fn goals(standing: &Standing, mode: Mode) -> String {
    let mut rows: Vec<(String, bool)> = Vec::new();
    let mut goal = |what: &str, is: f64, wanted: f64, met: bool| {
        rows.push((format!("{what}: {is:.3}, wanted {wanted}"), met));
    };
    let mean = match mode {
        Mode::Plain => 0.98,
        Mode::Hog => 0.95,
        Mode::OneCpu => 0.97,
    };
    goal("share of the best, at least", standing.share, mean, standing.share >= mean);
    if mode == Mode::Plain {
        let near = standing.near as f64 / standing.cells as f64;
        goal("cells with at least .95, share", near, 0.95, near >= 0.95);
        goal("worst cell, at least", standing.worst, 0.85, standing.worst >= 0.85);
        if let Some(bound) = standing.of_bound {
            goal("share of the physical bound, at least", bound, 0.95, bound >= 0.95);
        }
        goal("CPU time per operation, at most", standing.cpu_ratio, 1.15, standing.cpu_ratio <= 1.15);
    }
    goal("longest wait, of what is allowed, at most", standing.wait_to_allowed, 1.0, standing.wait_to_allowed <= 1.0);
    let line = |(what, met): (String, bool)| format!("  {} {what}\n", if met { "met   " } else { "MISSED" });
    rows.into_iter().map(line).collect()
}

fn worst_cells(summary: &Summary, of: &str) -> String {
    let own = |judged: &'_ Judged| judged.figures.iter().find(|figure| figure.lock == of).cloned();
    let mut cells: Vec<(&Judged, Figure)> =
        summary.judged.iter().filter_map(|judged| Some((judged, own(judged)?))).collect();
    cells.sort_by(|a, b| a.1.share.total_cmp(&b.1.share));
    let mut table = table::new([
        "cell",
        "of the best",
        "95 %",
        "ops/ms",
        "winner",
        "its ops/ms",
        "of the bound",
        "CPU/op",
        "wait, ms",
        "least/most",
    ]);
    for (judged, figure) in cells.iter().take(WORST) {
        let Some(winner) = judged.figures.first() else { continue };
        table.add_row([
            judged.cell.name(),
            share(figure.share),
            interval(figure.interval),
            three_digits(figure.ops_per_ms),
            winner.lock.clone(),
            three_digits(winner.ops_per_ms),
            figure.of_bound.map_or_else(|| "–".into(), share),
            format!("{:.2}", figure.cpu_ratio),
            format!("{:.0}", figure.longest_wait_ms),
            format!("{:.2}", figure.least_to_most),
        ]);
    }
    format!("{table}\n")
}

fn share(share: f64) -> String {
    format!("{share:.3}")
}

fn interval(interval: Option<(f64, f64)>) -> String {
    let end = |end: f64| if end < 10.0 { format!("{end:.3}") } else { "∞".to_owned() };
    interval.map_or_else(|| "–".into(), |(low, high)| format!("{}–{}", end(low), end(high)))
}
