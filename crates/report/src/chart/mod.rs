//! Draws results as an SVG picture: the finding as a sentence, then one panel for each group.
//!
//! | module | holds |
//! |---|---|
//! | `lines` | a group whose cells are numbers: one line for each lock, with names and figures at the lines' ends |
//! | `ratios` | any other group: one row for each lock, with its ratio to the baseline and the interval |
//! | [`heat`] | shares of 1 as a table of coloured fields: a separate kind of picture |
//! | `axis` | linear and logarithmic axes |
//! | `look` | colours and fonts |
//! | `sheet` | the style sheet: dark backgrounds, patterns of lines |

mod axis;
pub mod heat;
mod lines;
mod look;
mod ratios;
mod sheet;

use std::fmt;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::finding;
use crate::results::{Group, Noise, Results, Simulated};
use crate::{table, units};
use look::{FAINT_INK, Look, text};

/// A part of the picture.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// In pixels, like all sizes here.
const WIDTH: u32 = 1000;
const MARGIN: i32 = 20;
/// The height of a line of the headline, and the number of letters in it.
const HEADLINE_HEIGHT: u32 = 25;
const HEADLINE_LETTERS: u16 = 86;
/// The height of a line of a panel's finding, and the number of letters in it.
const VERDICT_HEIGHT: u32 = 22;
const VERDICT_LETTERS: u16 = 98;
/// Below the headline: what was measured.
const TITLE_HEIGHT: u32 = 40;
/// Where, when and how it was measured.
const FOOT_HEIGHT: u32 = 54;

/// The reason why no picture can be made.
#[derive(Debug)]
pub struct Undrawable(String);

impl fmt::Display for Undrawable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot draw the picture: {}", self.0)
    }
}

impl std::error::Error for Undrawable {}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for Undrawable {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self(error.to_string())
    }
}

/// The panel of a group.
enum Panel<'a> {
    Lines(lines::Panel<'a>),
    Ratios(ratios::Panel<'a>),
}

impl<'a> Panel<'a> {
    /// `None` if there is nothing to show.
    fn of(results: &'a Results, group: &'a Group, looks: &[Look]) -> Option<Self> {
        // If there is only one group, the headline states its finding.
        let alone = results.groups.len() == 1;
        let verdict = if alone { None } else { finding::of(results, group) }.unwrap_or_default();
        lines::Panel::of(results, group, looks, verdict.clone())
            .map(Self::Lines)
            .or_else(|| ratios::Panel::of(results, group, looks, verdict).map(Self::Ratios))
    }

    fn height(&self) -> u32 {
        match self {
            Self::Lines(panel) => panel.height(),
            Self::Ratios(panel) => panel.height(),
        }
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Undrawable> {
        match self {
            Self::Lines(panel) => panel.draw(area),
            Self::Ratios(panel) => panel.draw(area),
        }
    }
}

/// The picture, as the text of an SVG file for light and dark backgrounds.
pub fn draw(results: &Results) -> Result<String, Undrawable> {
    let looks = Look::of_all(&results.locks);
    let panels: Vec<Panel<'_>> = results.groups.iter().filter_map(|group| Panel::of(results, group, &looks)).collect();
    if panels.is_empty() {
        return Err(Undrawable("there are no figures that could be shown".into()));
    }
    let sentence = finding::headline(results);
    let headline = table::paragraph(&sentence, HEADLINE_LETTERS);
    let head_height = MARGIN as u32 + HEADLINE_HEIGHT * headline.lines().count() as u32 + TITLE_HEIGHT;
    let height = head_height + panels.iter().map(Panel::height).sum::<u32>() + FOOT_HEIGHT;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&look::GROUND)?;
        let (head, mut rest) = root.split_vertically(head_height);
        draw_head(&head, results, &headline)?;
        for panel in &panels {
            let (area, below) = rest.split_vertically(panel.height());
            panel.draw(&area)?;
            rest = below;
        }
        draw_foot(&rest, results, &panels)?;
        root.present()?;
    }
    Ok(sheet::dressed(&svg, &sentence, &looks))
}

/// Draws the finding, and what was measured.
fn draw_head(head: &Area<'_>, results: &Results, headline: &str) -> Result<(), Undrawable> {
    let mut y = MARGIN;
    for line in headline.lines() {
        head.draw(&Text::new(line.to_owned(), (MARGIN, y), text(20, FontStyle::Bold)))?;
        y += HEADLINE_HEIGHT as i32;
    }
    let mut parts = vec![results.title.clone()];
    // If there is no finding, the headline is the title.
    parts.retain(|title| *title != headline.trim_end());
    if let Some(simulated) = &results.method.simulated {
        // So that nobody takes it for a measurement. Once is enough.
        parts.iter_mut().for_each(|title| title.truncate(title.trim_end_matches(", simulated").len()));
        parts.insert(0, "SIMULATED, not measured".to_owned());
        parts.extend(what_simulated(simulated));
    }
    head.draw(&Text::new(parts.join(" · "), (MARGIN, y + 4), text(15, FontStyle::Normal).color(&FAINT_INK)))?;
    Ok(())
}

/// The conditions of the simulation that the title does not mention.
fn what_simulated(simulated: &Simulated) -> Vec<String> {
    let latencies = Some(simulated.latencies).filter(|factor| *factor != 1.0).map(|x| format!("latencies × {x}"));
    let parameter = |(name, value): &(String, u32)| match (name.as_str(), value) {
        ("external", 0) => None,
        ("external", ns) => Some(format!("{ns} ns outside")),
        ("lookups", percent) => Some(format!("{percent} % reads")),
        (name, value) => Some(format!("{name} {value}")),
    };
    let parameters = simulated.parameters.0.iter().filter_map(parameter);
    let place = simulated.place.as_ref().map(|place| format!("threads {place}"));
    latencies.into_iter().chain(parameters).chain(place).collect()
}

/// The text above a panel: its finding, unless the headline states it, and what the panel shows.
struct Caption {
    verdict: String,
    what: String,
}

impl Caption {
    fn height(&self) -> u32 {
        if self.verdict.is_empty() { 30 } else { 38 + VERDICT_HEIGHT * self.lines().lines().count() as u32 }
    }

    /// The finding in lines.
    fn lines(&self) -> String {
        table::paragraph(&self.verdict, VERDICT_LETTERS)
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Undrawable> {
        for (number, line) in self.lines().trim_end().lines().enumerate() {
            let y = 8 + number as i32 * VERDICT_HEIGHT as i32;
            area.draw(&Text::new(line.to_owned(), (MARGIN, y), text(17, FontStyle::Bold)))?;
        }
        let style = text(15, FontStyle::Normal).color(&FAINT_INK);
        area.draw(&Text::new(shortened(&self.what), (MARGIN, self.height() as i32 - 28), style))?;
        Ok(())
    }
}

/// Shortens a text to one line: the beginning of a long command, and what is shown of it.
fn shortened(text: &str) -> String {
    const LETTERS: usize = 120;
    let all = text.chars().count();
    let Some((title, shown)) = text.rsplit_once(" · ").filter(|_| all > LETTERS) else { return text.to_owned() };
    let room = LETTERS.saturating_sub(shown.chars().count());
    format!("{}… · {shown}", title.chars().take(room).collect::<String>())
}

/// Draws where, when and how it was measured.
fn draw_foot(foot: &Area<'_>, results: &Results, panels: &[Panel<'_>]) -> Result<(), Undrawable> {
    let provenance = &results.provenance;
    let day = provenance.date.split('T').next().unwrap_or_default();
    let origin = format!("{} · flashlock {} · {day}", provenance.machine, provenance.flashlock);
    let noise = results.noise.filter(|noise| noise.spread >= Noise::LOUD);
    let noise = noise.map_or_else(String::new, |noise| format!(" · noisy machine ({:.0} %)", noise.spread * 100.0));
    let (rounds, of) = match &results.method.simulated {
        Some(simulated) => {
            let seeds = units::counted(u64::from(simulated.seeds), "seed");
            let placements = units::counted(u64::from(simulated.placements), "placement");
            (results.method.rounds, format!("{seeds} × {placements} of threads"))
        }
        None => (
            results.method.rounds,
            format!("{} in random order", units::counted(results.method.rounds.into(), "round")),
        ),
    };
    let lines = || {
        panels.iter().filter_map(|panel| match panel {
            Panel::Lines(panel) => Some(panel),
            Panel::Ratios(_) => None,
        })
    };
    let has_bars = rounds > 1 && lines().next().is_some();
    let bars = if has_bars { " · points: medians, bars: from the least to the greatest" } else { "" };
    let stopped = match results.method.interrupted {
        true => format!(" · interrupted: {} of {rounds} runs", results.runs_done()),
        false => String::new(),
    };
    let cut = if has_bars && lines().any(lines::Panel::is_cut) { ", cut at the top of a panel" } else { "" };
    for (line, words) in [origin, format!("{of}{stopped}{bars}{cut}{noise}")].into_iter().enumerate() {
        let place = (MARGIN, 6 + 20 * line as i32);
        foot.draw(&Text::new(words, place, text(13, FontStyle::Normal).color(&FAINT_INK)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Better, Method, Metric, Parameters, Point, Run};

    fn results(cells: &[&str]) -> Results {
        let cells: Vec<String> = cells.iter().map(|cell| (*cell).to_owned()).collect();
        let locks = ["glibc", "shfl", "broken"].map(str::to_owned).to_vec();
        let mut results = Results {
            title: "One & only".into(),
            metrics: vec![Metric { name: "speed".into(), title: "Speed, m/s".into(), better: Better::More }],
            groups: vec![Group {
                title: "G".into(),
                axis: "threads".into(),
                cells: cells.clone(),
                merit: "speed".into(),
            }],
            locks: locks.clone(),
            method: Method { rounds: 3, ..Method::default() },
            ..Results::default()
        };
        for (place, lock) in locks.iter().take(2).enumerate() {
            for cell in &cells {
                let run = |round: u32| Run {
                    round,
                    values: [("speed".to_owned(), 10.0 * (place + 1) as f64 + f64::from(round))].into(),
                };
                let (group, cell, lock) = ("G".into(), cell.clone(), lock.clone());
                results.points.push(Point { group, cell, lock, runs: (0..3).map(run).collect(), ..Point::default() });
            }
        }
        results.derive();
        results
    }

    #[test]
    fn numbers_become_lines_and_anything_else_rows() {
        let lines = draw(&results(&["1", "2", "4"])).unwrap();
        assert!(lines.contains("<polyline") && lines.contains("shfl") && lines.contains("Speed, m/s"), "{lines}");
        assert!(lines.contains("One &amp; only") && !lines.contains("broken"), "{lines}");
        assert!(lines.contains("from the least to the greatest") && !lines.contains("cut at the top"), "{lines}");
        for cells in [&["8"][..], &["warm", "cold"]] {
            let rows = draw(&results(cells)).unwrap();
            assert!(rows.contains("shfl") && rows.contains("<circle"), "{rows}");
        }
    }

    #[test]
    fn the_finding_comes_first_and_is_the_title() {
        let svg = draw(&results(&["1", "2", "4"])).unwrap();
        let finding = "shfl is best: 1.91 times as good as glibc on average";
        assert!(svg.contains(&format!("<title>{finding}</title>")), "{svg}");
        let texts: Vec<&str> = svg.split("<text").skip(1).collect();
        assert!(texts[0].contains(finding) && texts[1].contains("One &amp; only"), "{svg}");
    }

    #[test]
    fn every_colour_has_a_dark_shade() {
        for cells in [&["1", "2", "4"][..], &["8"]] {
            let mut results = results(cells);
            results.locks[1] = "tbb".into();
            results.points.iter_mut().filter(|point| point.lock == "shfl").for_each(|point| point.lock = "tbb".into());
            results.derive();
            let svg = draw(&results).unwrap();
            let (sheet, body) = svg.split_once("</style>").unwrap();
            assert!(sheet.contains("prefers-color-scheme:dark") && body.contains("tbb"), "{svg}");
            for attribute in ["fill=\"#", "stroke=\"#"] {
                for hex in body.split(attribute).skip(1).map(|rest| &rest[..6]) {
                    assert!(sheet.contains(&format!("[{attribute}{hex}\"]{{")), "{hex} stays on a dark ground: {svg}");
                }
            }
        }
    }

    #[test]
    fn bars_of_a_cell_stand_side_by_side() {
        let svg = draw(&results(&["1", "2", "4"])).unwrap();
        let bars = svg.lines().filter(|line| line.starts_with("<rect") && line.contains("width=\"2\""));
        let mut places: Vec<&str> =
            bars.map(|bar| bar.split("x=\"").nth(1).unwrap().split('"').next().unwrap()).collect();
        let all = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!((all, places.len()), (6, 6), "two locks, three cells: {svg}");
    }

    #[test]
    fn one_run_in_a_noisy_moment_does_not_flatten_the_lines() {
        let mut results = results(&["1", "2", "4"]);
        results.points[0].runs[2].values.insert("speed".into(), 5000.0);
        results.derive();
        assert_eq!(labels(&results).last().map(String::as_str), Some("25"), "{:?}", labels(&results));
        let svg = draw(&results).unwrap();
        assert!(svg.contains("cut at the top of a panel"), "{svg}");
        let tops =
            svg.split("<rect").skip(2).filter_map(|bar| bar.split(" y=\"").nth(1)?.split('"').next()?.parse().ok());
        assert!(tops.clone().count() > 3 && tops.min() >= Some(0), "a bar leaves the picture: {svg}");
    }

    /// The labels of the vertical axis.
    fn labels(results: &Results) -> Vec<String> {
        let svg = draw(results).unwrap();
        let texts = svg.split("<text").skip(1).filter(|text| text.contains("text-anchor=\"end\" font-family"));
        let labels = texts.filter(|text| text.contains("x=\"94\""));
        labels.filter_map(|text| Some(text.split('>').nth(1)?.split('<').next()?.trim().to_owned())).collect()
    }

    #[test]
    fn a_factor_has_a_linear_axis_and_orders_a_logarithmic_one() {
        let mut results = results(&["1", "2", "4"]);
        assert_eq!(labels(&results).iter().map(String::as_str).min(), Some("0"), "{:?}", labels(&results));
        // A lock that collapses does not change the axis: the best figures are of one order of magnitude.
        let slow = |point: &mut Point, by: f64| {
            point.runs.iter_mut().for_each(|run| run.values.values_mut().for_each(|value| *value /= by));
        };
        slow(&mut results.points[0], 1000.0);
        results.derive();
        assert!(labels(&results).contains(&"0".to_owned()), "{:?}", labels(&results));
        // All locks are slow in one cell.
        results.points.iter_mut().filter(|point| point.cell == "4").for_each(|point| slow(point, 1000.0));
        results.derive();
        assert!(!labels(&results).contains(&"0".to_owned()), "{:?}", labels(&results));
    }

    #[test]
    fn what_collapsed_is_said_instead_of_a_ratio() {
        let mut results = results(&["8"]);
        for run in results.points.iter_mut().filter(|point| point.lock == "glibc").flat_map(|point| &mut point.runs) {
            run.values.insert("speed".into(), 0.03);
        }
        results.derive();
        let svg = draw(&results).unwrap();
        assert!(svg.contains("glibc collapsed") && !svg.contains("689") && !svg.contains("700"), "{svg}");
    }

    #[test]
    fn a_simulation_says_so() {
        let mut results = results(&["1", "2", "4"]);
        let measured = draw(&results).unwrap();
        assert!(measured.contains("3 rounds in random order") && !measured.contains("SIMULATED"), "{measured}");
        results.title += ", simulated";
        results.method.simulated = Some(Simulated { latencies: 0.75, seeds: 3, placements: 1, ..Simulated::default() });
        let simulated = draw(&results).unwrap();
        assert!(simulated.contains("SIMULATED, not measured · One &amp; only · latencies × 0.75"), "{simulated}");
        assert!(simulated.contains("3 seeds × 1 placement of threads") && !simulated.contains("in random order"));
        let method = Method { rounds: 1000, interrupted: true, ..results.method.clone() };
        let stopped = draw(&Results { method, ..results.clone() }).unwrap();
        assert!(stopped.contains("interrupted: 3 of 1000 runs"), "{stopped}");
        let (place, of) = (Some("packed".to_owned()), results.method.simulated.unwrap_or_default());
        let parameters = Parameters(
            [("lookups", 0), ("external", 700), ("keys", 5)].map(|(name, value)| (name.to_owned(), value)).to_vec(),
        );
        results.method.simulated = Some(Simulated { place, parameters, ..of });
        let told = "0 % reads · 700 ns outside · keys 5 · threads packed";
        assert!(draw(&results).unwrap().contains(told), "which experiment it was");
    }

    #[test]
    fn a_long_finding_has_several_lines() {
        let caption = |words: usize| Caption { verdict: "seven letters ".repeat(words), what: String::new() };
        assert_eq!([0, 1, 7, 8, 15].map(|words| caption(words).height()), [30, 60, 60, 82, 104]);
    }

    #[test]
    fn a_long_command_keeps_its_beginning() {
        assert_eq!(shortened("short · Run time, s"), "short · Run time, s");
        let long = shortened(&format!("begin {} · Run time, s", "x".repeat(500)));
        assert!(long.starts_with("begin xxx") && long.ends_with("xxx… · Run time, s"), "{long}");
        assert!(long.chars().count() < 130, "{long}");
    }

    /// As in the tables.
    #[test]
    fn an_interval_that_says_nothing_is_not_drawn() {
        let mut results = results(&["8"]);
        let has_bar = |svg: &str| svg.contains("stroke-width=\"6\"");
        assert!(has_bar(&draw(&results).unwrap()));
        let point = results.points.iter_mut().find(|point| point.lock == "shfl").unwrap();
        for (run, speed) in point.runs.iter_mut().zip([0.01, 10_000.0, 10.0]) {
            run.values.insert("speed".into(), speed);
        }
        results.derive();
        let svg = draw(&results).unwrap();
        assert!(svg.contains("(not known)") && !has_bar(&svg), "{svg}");
    }

    #[test]
    fn without_figures_there_is_no_picture() {
        let mut empty = results(&["1", "2"]);
        empty.points.clear();
        assert!(draw(&empty).unwrap_err().to_string().contains("no figures"));
    }
}
