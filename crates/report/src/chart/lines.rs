//! One line for each lock, both axes logarithmic, names at the lines' ends. A bar through a point reaches from the least to the
//! greatest of its runs; where these were simulated, a band along the line does.

use plotters::prelude::*;

use super::axis::Axis;
use super::look::{FAINT_GRID, GRID, INK, Look, text};
use super::{Area, MARGIN, Undrawable, WIDTH};
use crate::results::{Group, Metric, Results};
use crate::statistics::Spread;

pub(super) const HEIGHT: u32 = 560;
/// Room for the names, right of the lines.
const NAMES_WIDTH: u32 = 170;
/// The least distance of two names.
const NAME_HEIGHT: i32 = 17;

/// One group.
pub(super) struct Panel<'a> {
    group: &'a Group,
    metric: &'a Metric,
    /// The cells' headings as powers of two.
    xs: Vec<f64>,
    lines: Vec<Line<'a>>,
    bands: bool,
}

/// One lock's line, in the logarithms of both figures.
struct Line<'a> {
    name: &'a str,
    points: Vec<(f64, Spread)>,
    look: Look,
}

impl<'a> Panel<'a> {
    /// `None` if the group's cells are not at least two numbers, or if nothing was measured.
    pub(super) fn of(results: &'a Results, group: &'a Group) -> Option<Self> {
        let number = |cell: &String| cell.parse::<f64>().ok().filter(|number| *number > 0.0).map(f64::log2);
        let xs = group.cells.iter().map(number).collect::<Option<Vec<f64>>>().filter(|xs| xs.len() > 1)?;
        let metric = results.metric(&group.merit)?;
        let line = |(place, name): (usize, &'a String)| {
            let spread = |cell: &String| {
                results.figure(&group.title, cell, name, &metric.name).filter(|spread| spread.min > 0.0)
            };
            let logarithm = |spread: Spread| Spread {
                median: spread.median.log10(),
                min: spread.min.log10(),
                max: spread.max.log10(),
            };
            let cells = group.cells.iter().zip(&xs);
            let points = cells.filter_map(|(cell, x)| Some((*x, logarithm(spread(cell)?)))).collect();
            Line { name, points, look: Look::of(place) }
        };
        // The first are drawn last, so that they lie on top.
        let lines: Vec<Line<'a>> =
            results.locks.iter().enumerate().map(line).filter(|line| !line.points.is_empty()).rev().collect();
        (!lines.is_empty()).then_some(Self { group, metric, xs, lines, bands: results.method.simulated.is_some() })
    }

    pub(super) fn draw(&self, area: &Area<'_>) -> Result<(), Undrawable> {
        let values = self.lines.iter().flat_map(|line| line.points.iter().flat_map(|(_, y)| [y.min, y.max]));
        let axes = (Axis::with_ticks(2.0, &self.xs, 0.12), Axis::decimal(values));
        let (Some(xs), Some(ys)) = axes else { return Err(Undrawable(format!("{} is empty", self.group.title))) };
        let mut chart = ChartBuilder::on(area)
            .caption(&self.group.title, text(18, FontStyle::Bold))
            .margin(MARGIN)
            .margin_right(NAMES_WIDTH)
            .x_label_area_size(48)
            .y_label_area_size(84)
            .build_cartesian_2d(xs, ys)?;
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(FAINT_GRID)
            .axis_style(INK)
            .x_desc(&self.group.axis)
            .y_desc(format!("{} ({})", self.metric.title, self.metric.better.words()))
            .axis_desc_style(text(15, FontStyle::Normal))
            .label_style(text(14, FontStyle::Normal))
            .draw()?;
        for line in &self.lines {
            let (colour, style) = (line.look.colour, line.look.colour.stroke_width(line.look.width));
            let bar = |(x, y): &(f64, Spread)| {
                PathElement::new(vec![(*x, y.min), (*x, y.max)], colour.mix(0.4).stroke_width(4))
            };
            if self.bands {
                let back = line.points.iter().rev().map(|(x, y)| (*x, y.min));
                let band = line.points.iter().map(|(x, y)| (*x, y.max)).chain(back).collect::<Vec<_>>();
                chart.draw_series([Polygon::new(band, colour.mix(0.2))])?;
            } else {
                chart.draw_series(line.points.iter().map(bar))?;
            }
            let medians = || line.points.iter().map(|(x, y)| (*x, y.median));
            if line.look.dashed {
                chart.draw_series(DashedLineSeries::new(medians(), 7, 4, style))?;
            } else {
                chart.draw_series(LineSeries::new(medians(), style))?;
            }
            chart.draw_series(medians().map(|point| Circle::new(point, line.look.width + 1, colour.filled())))?;
        }
        let end = |line: &Line<'_>| line.points.last().map(|(x, y)| chart.backend_coord(&(*x, y.median)));
        let ends: Vec<(i32, i32)> = self.lines.iter().filter_map(end).collect();
        draw_names(area, &self.lines, &ends)
    }
}

/// Writes the names where the lines end, moved apart so that all can be read, each tied to its line's end.
fn draw_names(area: &Area<'_>, lines: &[Line<'_>], ends: &[(i32, i32)]) -> Result<(), Undrawable> {
    let origin = area.get_base_pixel();
    let wanted: Vec<i32> = ends.iter().map(|(_, y)| *y).collect();
    let bottom = origin.1 + HEIGHT as i32 - 60;
    let left = origin.0 + (WIDTH - NAMES_WIDTH) as i32 + 12;
    for ((line, end), y) in lines.iter().zip(ends).zip(moved_apart(&wanted, NAME_HEIGHT, bottom)) {
        let here = |(x, y): (i32, i32)| (x - origin.0, y - origin.1);
        let path = vec![here((end.0 + 5, end.1)), here((left - 4, y))];
        area.draw(&PathElement::new(path, line.look.colour.mix(0.5)))?;
        area.draw(&Text::new(line.name.to_owned(), here((left, y)), line.look.name()))?;
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
