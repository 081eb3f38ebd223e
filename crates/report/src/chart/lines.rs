//! A bench as an SVG chart: one panel for each group, one line for each lock, both axes logarithmic, names at the lines' ends.

use anyhow::{Result, anyhow, bail};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::benches::{Bench, Group};
use super::machine::Machine;
use super::measure::Measured;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: u32 = 1000;
const PANEL_HEIGHT: u32 = 560;
const HEAD_HEIGHT: u32 = 84;
/// Room for the names, right of the lines.
const NAMES_WIDTH: u32 = 150;
/// The least distance of two names, in pixels.
const NAME_HEIGHT: i32 = 17;
const FONT: &str = "Helvetica, Arial, sans-serif";
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const GRID: RGBColor = RGBColor(0xd8, 0xd8, 0xd8);
const FAINT_GRID: RGBColor = RGBColor(0xf0, 0xf0, 0xf0);

/// Colours that most people can tell apart (after Paul Tol). With more locks than colours they come round again, dashed.
const COLOURS: [RGBColor; 9] = [
    RGBColor(0xee, 0x66, 0x77),
    RGBColor(0x22, 0x88, 0x33),
    RGBColor(0xcc, 0x88, 0x22),
    RGBColor(0x33, 0xaa, 0xcc),
    RGBColor(0xaa, 0x33, 0x77),
    RGBColor(0x33, 0x22, 0x88),
    RGBColor(0x99, 0x99, 0x33),
    RGBColor(0x88, 0x22, 0x55),
    RGBColor(0x77, 0x77, 0x77),
];

/// One lock's line in one panel, in the logarithms of both figures.
struct Line<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
    look: Look,
}

#[derive(Clone, Copy)]
struct Look {
    colour: RGBColor,
    width: u32,
    dashed: bool,
}

impl Look {
    /// Of the lock at this place: glibc and the default lock come first, and are what a reader looks for.
    fn of(place: usize) -> Self {
        match place {
            0 => Self { colour: BLACK, width: 3, dashed: false },
            1 => Self { colour: RGBColor(0x11, 0x55, 0xcc), width: 3, dashed: false },
            _ => {
                let other = place - 2;
                Self { colour: COLOURS[other % COLOURS.len()], width: 2, dashed: other >= COLOURS.len() }
            }
        }
    }
}

/// The chart of a bench whose cells' headings are numbers.
pub(crate) fn draw(bench: &Bench, measured: &Measured, machine: &Machine) -> Result<String> {
    let mut svg = String::new();
    let height = HEAD_HEIGHT + PANEL_HEIGHT * u32::try_from(bench.groups.len())?;
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, panels) = root.split_vertically(HEAD_HEIGHT);
        draw_head(&head, bench, machine)?;
        for (g, panel) in panels.split_evenly((bench.groups.len(), 1)).iter().enumerate() {
            draw_panel(panel, bench, g, &lines(bench, measured, g)?)?;
        }
        root.present()?;
    }
    Ok(svg + "\n")
}

fn lines<'a>(bench: &Bench, measured: &'a Measured, g: usize) -> Result<Vec<Line<'a>>> {
    let xs = headings(&bench.groups[g])?;
    let line = |(place, name): (usize, &'a String)| {
        let y = |c: usize| measured.figure(name, (g, c), &bench.metric).map(|spread| spread.median);
        let points = xs.iter().enumerate().filter_map(|(c, x)| Some((*x, y(c).filter(|y| *y > 0.0)?.log10())));
        Line { name, points: points.collect(), look: Look::of(place) }
    };
    // The first are drawn last, so that they lie on top.
    Ok(measured.locks.iter().enumerate().map(line).filter(|line| !line.points.is_empty()).rev().collect())
}

/// The cells' headings as powers of two.
fn headings(group: &Group) -> Result<Vec<f64>> {
    let number = |heading: &str| heading.parse::<f64>().map(f64::log2);
    group
        .cells
        .iter()
        .map(|cell| number(&cell.heading).map_err(|_| anyhow!("`{}` is not a number", cell.heading)))
        .collect()
}

fn draw_head(head: &Area<'_>, bench: &Bench, machine: &Machine) -> Result<()> {
    let style = |size: i32, weight: FontStyle| (FONT, size, weight).into_font().color(&INK);
    head.draw(&Text::new(bench.title, (20, 18), style(26, FontStyle::Bold)))?;
    let about = format!(
        "{}, {} CPUs · {} · {} · {}; {}",
        machine.model, machine.cpus, machine.glibc, machine.date, bench.metric.title, bench.metric.better
    );
    head.draw(&Text::new(about, (20, 54), style(14, FontStyle::Normal)))?;
    Ok(())
}

fn draw_panel(panel: &Area<'_>, bench: &Bench, g: usize, lines: &[Line]) -> Result<()> {
    let group = &bench.groups[g];
    let values = lines.iter().flat_map(|line| line.points.iter().map(|(_, y)| *y));
    let (Some(xs), Some(ys)) = (Axis::with_ticks(2.0, &headings(group)?, 0.08), Axis::decimal(values)) else {
        bail!("{}: there is nothing to draw", group.title);
    };
    let title_style = (FONT, 18, FontStyle::Bold).into_font().color(&INK);
    let mut chart = ChartBuilder::on(panel)
        .caption(&group.title, title_style)
        .margin(14)
        .margin_right(NAMES_WIDTH)
        .x_label_area_size(48)
        .y_label_area_size(84)
        .build_cartesian_2d(xs, ys)?;
    let label_style = (FONT, 14).into_font().color(&INK);
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(FAINT_GRID)
        .axis_style(INK)
        .x_desc(group.axis)
        .y_desc(bench.metric.title)
        .axis_desc_style((FONT, 15).into_font().color(&INK))
        .label_style(label_style)
        .draw()?;
    for line in lines {
        let style = line.look.colour.stroke_width(line.look.width);
        if line.look.dashed {
            chart.draw_series(DashedLineSeries::new(line.points.iter().copied(), 7, 4, style))?;
        } else {
            chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
        }
        let radius = line.look.width + 1;
        chart.draw_series(line.points.iter().map(|point| Circle::new(*point, radius, line.look.colour.filled())))?;
    }
    let ends: Vec<(i32, i32)> =
        lines.iter().map(|line| chart.backend_coord(&line.points[line.points.len() - 1])).collect();
    draw_names(panel, lines, &ends)
}

/// Writes the names where the lines end, moved apart so that all can be read, each tied to its line's end.
fn draw_names(panel: &Area<'_>, lines: &[Line], ends: &[(i32, i32)]) -> Result<()> {
    let origin = panel.get_base_pixel();
    let (_, height) = panel.dim_in_pixel();
    let wanted: Vec<i32> = ends.iter().map(|(_, y)| *y).collect();
    let bottom = origin.1 + i32::try_from(height)? - 60;
    let left = origin.0 + i32::try_from(WIDTH - NAMES_WIDTH)? + 12;
    for ((line, end), y) in lines.iter().zip(ends).zip(moved_apart(&wanted, NAME_HEIGHT, bottom)) {
        let here = |(x, y): (i32, i32)| (x - origin.0, y - origin.1);
        let path = vec![here((end.0 + 5, end.1)), here((left - 4, y))];
        panel.draw(&PathElement::new(path, line.look.colour.mix(0.5)))?;
        let weight = if line.look.width > 2 { FontStyle::Bold } else { FontStyle::Normal };
        let style = (FONT, 14, weight).into_font().color(&line.look.colour).pos(Pos::new(HPos::Left, VPos::Center));
        panel.draw(&Text::new(line.name.to_owned(), here((left, y)), style))?;
    }
    Ok(())
}

/// Positions at least `distance` apart, in the same order, near the wanted ones and not beyond `bottom` if that can be.
fn moved_apart(wanted: &[i32], distance: i32, bottom: i32) -> Vec<i32> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&i| wanted[i]);
    let mut placed = wanted.to_vec();
    // Downwards until nothing overlaps, then upwards from the bottom.
    let mut least = i32::MIN;
    for &i in &order {
        placed[i] = placed[i].max(least);
        least = placed[i] + distance;
    }
    let mut most = bottom;
    for &i in order.iter().rev() {
        placed[i] = placed[i].min(most);
        most = placed[i] - distance;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_moved_apart_and_keep_their_order() {
        assert_eq!(moved_apart(&[100, 10, 101, 99], 10, 500), [109, 10, 119, 99]);
        assert_eq!(moved_apart(&[100, 10, 101, 99], 10, 105), [95, 10, 105, 85]);
        assert!(moved_apart(&[], 10, 105).is_empty());
    }
}
