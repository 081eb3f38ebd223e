//! Results as an SVG picture: one panel for each group.
//!
//! | module | holds |
//! |---|---|
//! | `lines` | a group whose cells are numbers: one line for each lock, both axes logarithmic, names at the lines' ends |
//! | `ratios` | any other group: one row for each lock, its ratio to the baseline with its interval |
//! | [`heat`] | shares of 1 as a table of coloured fields: a picture of its own |
//! | `axis` | axes with ticks chosen by us |
//! | `look` | colours and fonts, for a white ground, so that the picture is the same on a dark page |

mod axis;
pub mod heat;
mod lines;
mod look;
mod ratios;

use std::fmt;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::results::{Group, Noise, Results, Simulated};
use crate::units;
use look::text;

/// Part of the picture.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// In pixels, as all sizes here.
const WIDTH: u32 = 1000;
const HEAD_HEIGHT: u32 = 104;
const MARGIN: i32 = 20;

/// Why no picture can be made.
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

/// What a group becomes.
enum Panel<'a> {
    Lines(lines::Panel<'a>),
    Ratios(ratios::Panel<'a>),
}

impl<'a> Panel<'a> {
    /// `None` if there is nothing to show.
    fn of(results: &'a Results, group: &'a Group) -> Option<Self> {
        lines::Panel::of(results, group)
            .map(Self::Lines)
            .or_else(|| ratios::Panel::of(results, group).map(Self::Ratios))
    }

    fn height(&self) -> u32 {
        match self {
            Self::Lines(_) => lines::HEIGHT,
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

/// The picture, as the text of an SVG file.
pub fn draw(results: &Results) -> Result<String, Undrawable> {
    let panels: Vec<Panel<'_>> = results.groups.iter().filter_map(|group| Panel::of(results, group)).collect();
    if panels.is_empty() {
        return Err(Undrawable("there are no figures that could be shown".into()));
    }
    let mut svg = String::new();
    let height = HEAD_HEIGHT + panels.iter().map(Panel::height).sum::<u32>();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&look::GROUND)?;
        let (head, mut rest) = root.split_vertically(HEAD_HEIGHT);
        let bars = panels.iter().any(|panel| matches!(panel, Panel::Lines(_)));
        draw_head(&head, results, bars)?;
        for panel in &panels {
            let (area, below) = rest.split_vertically(panel.height());
            panel.draw(&area)?;
            rest = below;
        }
        root.present()?;
    }
    Ok(svg + "\n")
}

fn draw_head(head: &Area<'_>, results: &Results, bars: bool) -> Result<(), Undrawable> {
    let provenance = &results.provenance;
    head.draw(&Text::new(results.title.clone(), (MARGIN, 18), text(26, FontStyle::Bold)))?;
    let day = provenance.date.split('T').next().unwrap_or_default();
    let origin = format!("{} · flashlock {} · {day}", provenance.machine, provenance.flashlock);
    head.draw(&Text::new(origin, (MARGIN, 54), text(13, FontStyle::Normal)))?;
    let noise = results.noise.filter(|noise| noise.spread >= Noise::LOUD);
    let noise = noise.map_or_else(String::new, |noise| format!(" · noisy machine ({:.0} %)", noise.spread * 100.0));
    let method = match &results.method.simulated {
        Some(simulated) => how_simulated(simulated, bars),
        None => {
            let rounds = units::counted(u64::from(results.method.rounds), "round");
            let bars = if bars { " · points: medians, bars: from the least to the greatest" } else { "" };
            format!("{rounds} in random order{bars}{noise}")
        }
    };
    head.draw(&Text::new(method, (MARGIN, 76), text(13, FontStyle::Normal)))?;
    let what = results.method.simulated.as_ref().map_or_else(String::new, what_simulated);
    if !what.is_empty() {
        head.draw(&Text::new(what, (MARGIN, 98), text(13, FontStyle::Normal)))?;
    }
    Ok(())
}

/// Of what was done there, what the title does not say.
fn what_simulated(simulated: &Simulated) -> String {
    let reads = simulated.lookups.map(|percent| format!("{percent} % reads"));
    let outside = simulated.external.filter(|ns| *ns > 0).map(|ns| format!("{ns} ns outside"));
    let place = simulated.place.as_ref().map(|place| format!("threads {place}"));
    let parts: Vec<String> = [reads, outside, place].into_iter().flatten().collect();
    parts.join(" · ")
}

/// Nobody shall take it for a measurement.
fn how_simulated(simulated: &Simulated, bands: bool) -> String {
    let seeds = units::counted(u64::from(simulated.seeds), "seed");
    let placements = units::counted(u64::from(simulated.placements), "placement");
    let latencies = match simulated.latencies {
        1.0 => String::new(),
        factor => format!(" · latencies × {factor}"),
    };
    let bands = match (bands, simulated.seeds * simulated.placements) {
        (true, 2..) => " · points: medians, bands: from the least to the greatest over both",
        _ => "",
    };
    format!("SIMULATED, not measured{latencies} · {seeds} × {placements} of threads{bands}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Better, Metric, Point, Run};

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
        for cells in [&["8"][..], &["warm", "cold"]] {
            let rows = draw(&results(cells)).unwrap();
            assert!(rows.contains("shfl") && rows.contains("<circle"), "{rows}");
        }
    }

    #[test]
    fn a_simulation_says_so() {
        let mut results = results(&["1", "2", "4"]);
        let measured = draw(&results).unwrap();
        assert!(measured.contains("in random order") && !measured.contains("<polygon"), "{measured}");
        results.method.simulated = Some(Simulated { latencies: 0.75, seeds: 3, placements: 1, ..Simulated::default() });
        let simulated = draw(&results).unwrap();
        let told = "SIMULATED, not measured · latencies × 0.75 · 3 seeds × 1 placement of threads";
        assert!(simulated.contains(told) && !simulated.contains("in random order"), "{simulated}");
        assert!(simulated.contains("<polygon"), "a band for each lock: {simulated}");
        let (place, of) = (Some("packed".to_owned()), results.method.simulated.unwrap_or_default());
        results.method.simulated = Some(Simulated { place, lookups: Some(0), external: Some(700), ..of });
        let told = "0 % reads · 700 ns outside · threads packed";
        assert!(draw(&results).unwrap().contains(told), "which experiment it was");
    }

    #[test]
    fn without_figures_there_is_no_picture() {
        let mut empty = results(&["1", "2"]);
        empty.points.clear();
        assert!(draw(&empty).unwrap_err().to_string().contains("no figures"));
    }
}
