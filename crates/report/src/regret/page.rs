//! `docs/results/regret.md`, its picture and its JSON, from a file of runs.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};

use super::cells::{Cell, Grid, OUTSIDE, SECTIONS, THREADS};
use super::summary::{Judged, Summary};
use super::{Mode, Run, sheets};
use crate::chart::Undrawable;
use crate::chart::heat::{self, Field, Heat, Panel, Row};
use crate::provenance::Provenance;
use crate::wrap::wrapped;

/// The kind of file, and its version.
pub const SCHEMA: &str = "flashlock.regret";
/// Raised by a field that is renamed, removed or means something else.
pub const VERSION: u32 = 1;

/// All grids and modes, in the order of the page.
const SETTINGS: [(Grid, Mode); 6] = [
    (Grid::Mutexes, Mode::Plain),
    (Grid::Mutexes, Mode::Hog),
    (Grid::Mutexes, Mode::OneCpu),
    (Grid::Conditions, Mode::Plain),
    (Grid::Conditions, Mode::Hog),
    (Grid::Conditions, Mode::OneCpu),
];

/// Why the lock loses in a cell: lines `- CELL: reason`, written by people.
const REASONS: &str = include_str!("reasons.md");

/// What is known of one mode, and of the cells held out or the others.
#[derive(Serialize)]
pub struct Part {
    held_out: bool,
    #[serde(flatten)]
    summary: Summary,
}

impl Part {
    /// All parts of which there are runs. `cpus`: how many CPUs there are in a mode.
    pub fn all(runs: &[Run], locks: &[&str], cpus: impl Fn(Mode) -> u32) -> Vec<Self> {
        let part = |(grid, mode, held_out): (Grid, Mode, bool)| {
            let mut cells = grid.all(held_out);
            cells.retain(|cell| runs.iter().any(|run| run.mode == mode && !run.beside && run.cell == cell.name()));
            Self { held_out, summary: Summary::of(grid, mode, runs, &cells, locks, cpus(mode)) }
        };
        let each = SETTINGS.into_iter().flat_map(|(grid, mode)| [(grid, mode, false), (grid, mode, true)]);
        each.map(part).filter(|part| !part.summary.judged.is_empty()).collect()
    }
}

/// What the three files are made of.
pub struct Page<'a> {
    /// The figures.
    pub parts: Vec<Part>,
    /// The lock that is judged.
    pub of: &'a str,
    /// Those that are not ours, with their versions.
    pub others: Vec<(&'a str, &'a str)>,
    /// Where the runs were made.
    pub machine: &'a str,
    /// When the page is made, and by what.
    pub provenance: Provenance,
}

impl Page<'_> {
    fn title(&self) -> String {
        format!("No regret: {} and what programs could embed instead", self.of)
    }

    /// What the picture shows, in a sentence: the geometric mean and the minimum over all its cells.
    fn finding(&self) -> String {
        let judged = self.parts.iter().flat_map(|part| &part.summary.judged);
        let shares: Vec<f64> = judged.filter_map(|judged| Some(judged.figure(self.of)?.share)).collect();
        if shares.is_empty() {
            return self.title();
        }
        let mean = (shares.iter().map(|share| share.ln()).sum::<f64>() / shares.len() as f64).exp();
        let worst = shares.iter().copied().fold(1.0, f64::min);
        format!("{} reaches {mean:.2} of the best lock on average, {worst:.2} at worst", self.of)
    }

    /// Where the runs were made; when the page is made, and by what.
    fn origin(&self) -> String {
        let Provenance { flashlock, date, .. } = &self.provenance;
        format!("{} · flashlock {flashlock} · {}", self.machine, date.split('T').next().unwrap_or_default())
    }

    /// `regret.svg`.
    pub fn picture(&self) -> Result<String, Undrawable> {
        heat::draw(&picture(&self.parts, self.of, &self.finding(), &self.origin()))
    }

    /// `regret.md`.
    pub fn markdown(&self) -> String {
        markdown(self)
    }

    /// `regret.json`, with one line for each cell.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        let head = serde_json::to_string_pretty(&self.provenance)?;
        let mut text = format!("{},\n  \"parts\": [", head.strip_suffix("\n}").unwrap_or(&head));
        for (place, part) in self.parts.iter().enumerate() {
            let cells = part.summary.judged.iter().map(|judged| serde_json::to_string(&Brief::of(judged)));
            let cells = cells.collect::<Result<Vec<_>, _>>()?.join(",\n");
            let summary = Summary { judged: Vec::new(), ..part.summary.clone() };
            let head = serde_json::to_string(&Part { held_out: part.held_out, summary })?;
            let head = head.replace("\"cells\":[]", &format!("\"cells\":[\n{cells}\n]"));
            let _ = write!(text, "{}\n{head}", if place > 0 { "," } else { "" });
        }
        Ok(text + "\n]}\n")
    }
}

/// A cell, and of each lock in it what cannot be computed from the rest.
#[derive(Serialize)]
struct Brief<'a> {
    cell: String,
    #[serde(serialize_with = "rounded")]
    bound_ops_per_ms: Option<f64>,
    #[serde(serialize_with = "rounded")]
    allowed_wait_ms: f64,
    figures: Vec<BriefFigure<'a>>,
}

#[derive(Serialize)]
struct BriefFigure<'a> {
    lock: &'a str,
    #[serde(serialize_with = "rounded")]
    ops_per_ms: f64,
    #[serde(serialize_with = "rounded")]
    share: f64,
    #[serde(serialize_with = "rounded")]
    cpu_ns_per_op: f64,
    #[serde(serialize_with = "rounded")]
    longest_wait_ms: f64,
}

impl<'a> Brief<'a> {
    fn of(judged: &'a Judged) -> Self {
        let figures = judged.figures.iter().map(|figure| BriefFigure {
            lock: &figure.lock,
            ops_per_ms: figure.ops_per_ms,
            share: figure.share,
            cpu_ns_per_op: figure.cpu_ns_per_op,
            longest_wait_ms: figure.longest_wait_ms,
        });
        Self {
            cell: judged.cell.name(),
            bound_ops_per_ms: judged.bound_ops_per_ms,
            allowed_wait_ms: judged.allowed_wait_ms,
            figures: figures.collect(),
        }
    }
}

/// With four significant digits: no number is known better.
fn rounded<S: Serializer>(number: &(impl Into<Option<f64>> + Copy), serializer: S) -> Result<S::Ok, S::Error> {
    let number: Option<f64> = (*number).into();
    number.and_then(|number| format!("{number:.3e}").parse::<f64>().ok()).serialize(serializer)
}

fn markdown(page: &Page<'_>) -> String {
    let Page { parts, of, others, machine, provenance } = page;
    let (title, finding) = (page.title(), page.finding());
    let mut text = format!(
        "# {title}\n\n\
         Threads take one lock again and again. The cells differ in what threads do in it and outside it, and in how \
         many they are. [The benchmark](../../tests/regret) says what is measured, and what the columns \
         mean.\n\n![{finding}](regret.svg)\n\n\
         | | |\n|---|---|\n| machine | {machine} |\n| version | {} |\n| date | {} |\n| command | `{}` |\n",
        provenance.flashlock,
        provenance.date,
        provenance.command.join(" ")
    );
    for (name, version) in others {
        let _ = writeln!(text, "| {name} | {version} |");
    }
    for Part { held_out, summary } in parts {
        let _ = write!(
            text,
            "\n## {}\n\n{} cells.",
            sheets::heading(summary.grid, summary.mode, *held_out),
            summary.judged.len()
        );
        if let Some(disturbed) = sheets::disturbed(summary) {
            let _ = write!(text, " {disturbed}");
        }
        let _ = write!(text, "\n\n{}", sheets::standings(summary).markdown());
        if let Some(standing) = summary.standing(of) {
            let _ = write!(text, "\nGoals, for `{of}`:\n\n{}\n", sheets::goals(standing, summary.mode).join("\n"));
        }
        let _ = write!(text, "\nThe cells in which `{of}` is furthest from the best:\n\n");
        text += &sheets::worst_cells(summary, of).markdown();
        text += &reasons(&sheets::worst_names(summary, of));
        for failure in &summary.failures {
            let _ = write!(text, "\n- failed: {failure}");
        }
    }
    for Part { held_out, summary } in parts {
        let _ = write!(text, "\n## All cells: {}\n\n", lower(&sheets::heading(summary.grid, summary.mode, *held_out)));
        text += &sheets::all_cells(summary, of).markdown();
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
fn picture(parts: &[Part], of: &str, title: &str, origin: &str) -> Heat {
    let panel = |(grid, mode): (Grid, Mode)| {
        let mut rows = Vec::new();
        for section in &SECTIONS {
            for (name, ns) in OUTSIDE {
                let field = |threads: u32| {
                    let is_it = |cell: Cell| {
                        cell.section().name == section.name && cell.outside_ns() == ns && cell.threads == threads
                    };
                    let is_here = |part: &&Part| (part.summary.grid, part.summary.mode) == (grid, mode);
                    parts.iter().filter(is_here).find_map(|part| {
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
            title: sheets::heading(grid, mode, false),
            axis: "section, µs outside, threads →".to_owned(),
            columns: THREADS.map(|threads| threads.to_string()).to_vec(),
            rows,
        }
    };
    let panels = SETTINGS.map(panel);
    let fields = panels.iter().flat_map(|panel| &panel.rows).flat_map(|row| &row.fields).flatten();
    let is_short = |field: &Field| field.names_winner() && field.winner.starts_with(SHORT);
    let explained = fields.into_iter().any(is_short).then(|| format!("{SHORT}: parking_lot"));
    let notes = [
        Some(origin.to_owned()),
        Some(format!("Operations of {of}, as a share of those of the best lock in the cell; below .95 with its name")),
        explained,
        Some("° held out until the design was done · empty: not measured".to_owned()),
    ];
    Heat {
        title: title.to_owned(),
        notes: notes.into_iter().flatten().collect(),
        panels: panels.into_iter().filter(|panel| !panel.rows.is_empty()).collect(),
    }
}

/// `parking_lot`, in fields.
const SHORT: &str = "p_l";

fn field(share: f64, winner: &str, held_out: bool) -> Field {
    Field { share, winner: winner.replace("parking_lot-", &format!("{SHORT} ")), marked: held_out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regret::cells;
    use crate::regret::summary::Figure;

    #[test]
    fn the_json_is_json() {
        let part = |held_out| Part { held_out, summary: Summary::of(Grid::Mutexes, Mode::Plain, &[], &[], &[], 2) };
        let parts = [part(false), part(true)].into();
        let page = Page { parts, of: "a", others: Vec::new(), machine: "", provenance: Provenance::default() };
        let read: serde_json::Value = serde_json::from_str(&page.json().expect("written")).expect("JSON");
        assert_eq!((&read["parts"][1]["held_out"], &read["machine"]["cpus"]), (&true.into(), &0.into()));
    }

    #[test]
    fn the_picture_says_how_near_the_best_it_comes() {
        let judged = |share| Judged {
            cell: cells::named("1 line, 0 µs outside, 2 threads").expect("a cell"),
            bound_ops_per_ms: None,
            allowed_wait_ms: 0.5,
            figures: vec![Figure { lock: "a".into(), share, ..Figure::default() }],
        };
        let part = |mode, shares: &[f64]| {
            let mut summary = Summary::of(Grid::Mutexes, mode, &[], &[], &[], 2);
            summary.judged = shares.iter().map(|share| judged(*share)).collect();
            Part { held_out: false, summary }
        };
        let page = |parts| Page { parts, of: "a", others: Vec::new(), machine: "", provenance: Provenance::default() };
        let parts = vec![part(Mode::Plain, &[1.0, 1.0]), part(Mode::Hog, &[1.0, 0.8])];
        assert_eq!(page(parts).finding(), "a reaches 0.95 of the best lock on average, 0.80 at worst");
        assert_eq!(page(Vec::new()).finding(), page(Vec::new()).title());
    }

    #[test]
    fn a_name_is_explained_only_where_it_stands() {
        let figure = |lock: &str, share| Figure { lock: lock.into(), share, ..Figure::default() };
        let notes = |winner: &str, share| {
            let judged = Judged {
                cell: cells::named("1 line, 0 µs outside, 2 threads").expect("a cell"),
                bound_ops_per_ms: None,
                allowed_wait_ms: 0.5,
                figures: vec![figure(winner, 1.0), figure("a", share)],
            };
            let summary = Summary::of(Grid::Mutexes, Mode::Plain, &[], &[], &[], 2);
            let part = Part { held_out: false, summary: Summary { judged: vec![judged], ..summary } };
            picture(&[part], "a", "", "").notes.join("\n")
        };
        assert!(notes("parking_lot-0.13", 0.9).contains("p_l: parking_lot"));
        assert!(!notes("parking_lot-0.13", 0.96).contains("p_l") && !notes("tbb", 0.9).contains("p_l"));
    }

    #[test]
    fn a_cell_is_one_line_of_rounded_numbers() {
        let cell = cells::named("1 line, 0 µs outside, 2 threads").expect("a cell");
        let figure = Figure {
            lock: "x".into(),
            ops_per_ms: 123_456.7,
            share: 0.123_456,
            cpu_ns_per_op: 7.0,
            longest_wait_ms: f64::NAN,
            ..Figure::default()
        };
        let judged = Judged { cell, bound_ops_per_ms: None, allowed_wait_ms: 0.5, figures: vec![figure] };
        let expected = r#"{"cell":"1 line, 0 µs outside, 2 threads","bound_ops_per_ms":null,"allowed_wait_ms":0.5,"#
            .to_owned()
            + r#""figures":[{"lock":"x","ops_per_ms":123500.0,"share":0.1235,"cpu_ns_per_op":7.0,"#
            + r#""longest_wait_ms":null}]}"#;
        assert_eq!(serde_json::to_string(&Brief::of(&judged)).expect("JSON"), expected);
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
