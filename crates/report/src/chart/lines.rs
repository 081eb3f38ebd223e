//! A panel with one line for each lock over the number of threads. The lock's name and last figure are at the end of
//! its line. A bar through a point reaches from the least to the greatest of its runs. The points of a cell are side by
//! side, so that no bar hides another one.

use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::look::{FAINT_GRID, FAINT_INK, GRID, GROUND, INK, Look, Stroke, text};
use super::{Area, Caption, MARGIN, Undrawable, WIDTH};
use crate::results::{Better, Group, Metric, Results};
use crate::statistics::Spread;
use crate::units::three_digits;

/// The height without the caption.
const HEIGHT: u32 = 340;
/// Room for the numbers left of the axis, and for the names right of the lines.
const NUMBERS_WIDTH: u32 = 84;
const NAMES_WIDTH: u32 = 230;
/// The minimum distance between two names.
const NAME_HEIGHT: i32 = 16;
/// The distance between two points of a cell in pixels, if there is enough room.
const STEP: f64 = 2.5;

/// One group.
pub(super) struct Panel<'a> {
    group: &'a Group,
    metric: &'a Metric,
    caption: Caption,
    /// The cells' headings.
    xs: Vec<f64>,
    /// In the order of drawing. The first locks are drawn last, so that they are on top.
    lines: Vec<Line<'a>>,
}

/// One lock's line.
struct Line<'a> {
    name: &'a str,
    points: Vec<(f64, Spread)>,
    look: Look,
}

/// Where a point and the ends of its bar are in the picture.
struct Place {
    x: i32,
    y: i32,
    top: i32,
    bottom: i32,
}

impl<'a> Panel<'a> {
    /// `None` if the group's cells are not at least two numbers, or if nothing was measured.
    pub(super) fn of(results: &'a Results, group: &'a Group, looks: &[Look], verdict: String) -> Option<Self> {
        let number = |cell: &String| cell.parse::<f64>().ok().filter(|number| *number > 0.0);
        let xs = group.cells.iter().map(number).collect::<Option<Vec<f64>>>().filter(|xs| xs.len() > 1)?;
        let metric = results.metric(&group.merit)?;
        let line = |(name, look): (&'a String, &Look)| {
            let spread =
                |cell| results.figure(&group.title, cell, name, &metric.name).filter(|spread| spread.min > 0.0);
            let cells = group.cells.iter().zip(&xs);
            let points = cells.filter_map(|(cell, x)| Some((*x, spread(cell)?))).collect();
            Line { name, points, look: *look }
        };
        let lines: Vec<Line<'a>> =
            results.locks.iter().zip(looks).map(line).filter(|line| !line.points.is_empty()).rev().collect();
        let what = format!("{} · {}, {}", group.title, metric.title, metric.better.words());
        (!lines.is_empty()).then_some(Self { group, metric, caption: Caption { verdict, what }, xs, lines })
    }

    pub(super) fn height(&self) -> u32 {
        self.caption.height() + HEIGHT
    }

    /// Whether a bar is cut at the top.
    pub(super) fn is_cut(&self) -> bool {
        let highest = self.figures_axis().map_or(f64::INFINITY, |axis| Ranged::range(&axis).end);
        self.lines.iter().flat_map(|line| &line.points).any(|(_, spread)| spread.max > highest)
    }

    pub(super) fn draw(&self, area: &Area<'_>) -> Result<(), Undrawable> {
        self.caption.draw(area)?;
        let (Some(xs), Some(ys)) = (Axis::with_ticks(&self.xs), self.figures_axis()) else {
            return Err(Undrawable(format!("{} is empty", self.group.title)));
        };
        let highest = Ranged::range(&ys).end;
        let mut chart = ChartBuilder::on(area)
            .margin(MARGIN)
            .margin_top(self.caption.height())
            .margin_right(NAMES_WIDTH)
            .margin_bottom(8)
            .x_label_area_size(44)
            .y_label_area_size(NUMBERS_WIDTH)
            .build_cartesian_2d(xs, ys)?;
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(FAINT_GRID)
            .axis_style(FAINT_INK)
            .x_desc(&self.group.axis)
            .axis_desc_style(text(15, FontStyle::Normal).color(&FAINT_INK))
            .label_style(text(14, FontStyle::Normal))
            .draw()?;
        let origin = area.get_base_pixel();
        let here = |x: f64, y: f64| {
            let (x, y) = chart.backend_coord(&(x, y));
            (x - origin.0, y - origin.1)
        };
        let ceiling = here(self.xs[0], highest).1;
        let step = self.step(here(self.xs[0], 1.0).0, here(self.xs[self.xs.len() - 1], 1.0).0);
        let middle = (self.lines.len() - 1) as f64 / 2.0;
        let mut ends = Vec::new();
        for (number, line) in self.lines.iter().enumerate() {
            // The order of drawing is the reverse of the locks'.
            let aside = ((middle - number as f64) * step).round() as i32;
            let place = |(x, spread): &(f64, Spread)| {
                let [(x, y), (_, top), (_, bottom)] =
                    [spread.median, spread.max, spread.min].map(|figure| here(*x, figure));
                Place { x: x + aside, y, top: top.max(ceiling), bottom }
            };
            let places: Vec<Place> = line.points.iter().map(place).collect();
            line.draw(area, &places)?;
            ends.extend(places.last().map(|place| (place.x, place.y)));
        }
        draw_names(area, &self.lines, &ends, self.height() as i32 - 40)
    }

    /// A linear axis if the best figures of all cells are of one order of magnitude. Otherwise a logarithmic axis; also
    /// if lower values are better and one figure is an order of magnitude above another.
    fn figures_axis(&self) -> Option<Axis> {
        /// The maximum ratio of the cells' best figures on a linear axis.
        const ORDERS: f64 = 20.0;
        /// The maximum ratio of all figures on a linear axis, if lower values are better.
        const TOWERS: f64 = 10.0;
        /// A bar is cut at so many times the greatest median, so that one run in a noisy moment does not flatten all
        /// lines.
        const OUTLIER: f64 = 1.4;
        let medians = || self.lines.iter().flat_map(|line| &line.points);
        let ends = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)))
        };
        let (low, high) =
            match self.metric.better {
                Better::More => ends(&mut self.xs.iter().map(|x| {
                    medians().filter(|(own, _)| own == x).map(|(_, spread)| spread.median).fold(0.0, f64::max)
                })),
                Better::Less => ends(&mut medians().map(|(_, spread)| spread.median)),
            };
        let limit = if self.metric.better == Better::More { ORDERS } else { TOWERS };
        if high <= limit * low {
            let [median, most] = [|spread: &Spread| spread.median, |spread: &Spread| spread.max]
                .map(|figure| medians().map(|(_, spread)| figure(spread)).fold(0.0, f64::max));
            return Axis::linear(most.min(median * OUTLIER));
        }
        Axis::decimal(medians().flat_map(|(_, spread)| [spread.min, spread.max]))
    }

    /// The distance between the points of a cell, which is less if cells are close together.
    fn step(&self, left: i32, right: i32) -> f64 {
        let cell = f64::from(right - left) / (self.xs[self.xs.len() - 1] / self.xs[0]).log2().max(1.0);
        STEP.min(cell * 0.6 / self.lines.len() as f64)
    }
}

impl Line<'_> {
    fn draw(&self, area: &Area<'_>, places: &[Place]) -> Result<(), Undrawable> {
        /// A shorter bar is hidden by its point.
        const SHORT: i32 = 6;
        let Look { colour, stroke, .. } = self.look;
        for Place { x, top, bottom, .. } in places.iter().filter(|place| place.bottom - place.top > SHORT) {
            area.draw(&Rectangle::new([(x - 1, *top), (x + 1, *bottom)], colour.mix(0.45).filled()))?;
        }
        let line = places.iter().map(|place| (place.x, place.y)).collect::<Vec<_>>();
        area.draw(&PathElement::new(line.clone(), colour.stroke_width(self.look.width())))?;
        let radius = self.look.width() as i32 + 1;
        for (x, y) in line {
            let square = [(x - radius, y - radius), (x + radius, y + radius)];
            let triangle = vec![(x, y - radius - 1), (x - radius - 1, y + radius), (x + radius + 1, y + radius)];
            match stroke {
                Stroke::Solid => area.draw(&Circle::new((x, y), radius, colour.filled()))?,
                Stroke::Dashed => {
                    area.draw(&Circle::new((x, y), radius, GROUND.filled()))?;
                    area.draw(&Circle::new((x, y), radius, colour.stroke_width(1)))?;
                }
                Stroke::Dotted => {
                    area.draw(&Rectangle::new(square, GROUND.filled()))?;
                    area.draw(&Rectangle::new(square, colour.stroke_width(1)))?;
                }
                Stroke::Mixed => area.draw(&Polygon::new(triangle, colour.filled()))?,
            }
        }
        Ok(())
    }
}

/// Writes the names at the ends of the lines. The names are moved apart so that all can be read, and each is connected
/// to its line's end.
fn draw_names(area: &Area<'_>, lines: &[Line<'_>], ends: &[(i32, i32)], bottom: i32) -> Result<(), Undrawable> {
    /// The approximate width of a digit.
    const DIGIT_WIDTH: usize = 8;
    let left = (WIDTH - NAMES_WIDTH) as i32 + 20;
    let figure =
        |line: &Line<'_>| line.points.last().map(|(_, spread)| three_digits(spread.median)).unwrap_or_default();
    let wanted: Vec<(i32, f64)> = (ends.iter().zip(lines))
        .map(|((_, y), line)| (*y, line.points.last().map_or(0.0, |(_, spread)| spread.median)))
        .collect();
    let room = lines.iter().map(|line| figure(line).len()).max().unwrap_or(0) * DIGIT_WIDTH;
    let right = left + room as i32;
    // Level up to the last of the ends, so that no two connections cross.
    let knee = ends.iter().map(|(x, _)| x + 8).max().unwrap_or(left);
    for ((line, end), y) in lines.iter().zip(ends).zip(spread(&wanted, NAME_HEIGHT, bottom)) {
        let path = vec![(end.0 + 5, end.1), (knee, end.1), (left - 4, y)];
        area.draw(&PathElement::new(path, line.look.colour.mix(0.5)))?;
        let style = text(13, FontStyle::Normal).color(&INK).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(figure(line), (right, y), style))?;
        area.draw(&Text::new(line.name.to_owned(), (right + 10, y), line.look.name()))?;
    }
    Ok(())
}

/// Positions at least `distance` apart, near the wanted ones, and not beyond `bottom` if that is possible. They keep
/// their order; at equal positions, the greater figure comes first.
fn spread(wanted: &[(i32, f64)], distance: i32, bottom: i32) -> Vec<i32> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].0.cmp(&wanted[b].0).then(wanted[b].1.total_cmp(&wanted[a].1)));
    let mut placed: Vec<i32> = wanted.iter().map(|(place, _)| *place).collect();
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
        let moved = |places: &[i32], bottom| {
            let wanted: Vec<(i32, f64)> = places.iter().map(|place| (*place, 1.0)).collect();
            spread(&wanted, 10, bottom)
        };
        assert_eq!(moved(&[100, 10, 101, 99], 500), [109, 10, 119, 99]);
        assert_eq!(moved(&[100, 10, 101, 99], 105), [95, 10, 105, 85]);
        assert!(moved(&[], 105).is_empty());
        assert_eq!(spread(&[(100, 0.01), (100, 0.03), (100, 0.02)], 10, 500), [120, 100, 110]);
    }
}
