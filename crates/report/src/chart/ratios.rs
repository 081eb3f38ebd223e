//! One row for each lock: its ratio to the baseline, with the interval as a bar and both as numbers.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::look::{FAINT_GRID, GRID, INK, Look, text};
use super::{Area, MARGIN, Undrawable, WIDTH};
use crate::results::{Group, Metric, Point, Results};
use crate::statistics::Ratio;
use crate::units::three_digits;

const ROW_HEIGHT: u32 = 34;
/// Caption, axis and its description.
const FRAME_HEIGHT: u32 = 132;
const NAMES_WIDTH: u32 = 240;
const NUMBERS_WIDTH: u32 = 170;

/// One group.
pub(super) struct Panel<'a> {
    title: String,
    baseline: &'a str,
    metric: &'a Metric,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    ratio: Ratio,
    look: Look,
}

impl<'a> Panel<'a> {
    /// `None` if there is no ratio.
    pub(super) fn of(results: &'a Results, group: &'a Group) -> Option<Self> {
        let metric = results.metric(&group.merit)?;
        let row = |point: &Point| {
            let name = match group.cells.len() {
                1 => point.lock.clone(),
                _ => format!("{}, {}", point.lock, point.cell),
            };
            let place = results.locks.iter().position(|lock| *lock == point.lock)?;
            Some(Row { name, ratio: point.ratio?, look: Look::of(place) })
        };
        let cells = group.cells.iter().flat_map(|cell| results.locks.iter().map(move |lock| (cell, lock)));
        let points = cells.filter_map(|(cell, lock)| results.point(&group.title, cell, lock));
        let rows: Vec<Row> = points.filter_map(row).collect();
        let title = match group.cells.as_slice() {
            [only] if !group.axis.is_empty() => format!("{}, {only} {}", group.title, group.axis),
            _ => group.title.clone(),
        };
        (!rows.is_empty()).then_some(Self { title, baseline: results.baseline(), metric, rows })
    }

    pub(super) fn height(&self) -> u32 {
        FRAME_HEIGHT + ROW_HEIGHT * self.rows.len() as u32
    }

    pub(super) fn draw(&self, area: &Area<'_>) -> Result<(), Undrawable> {
        let ends = |row: &Row| [Some(row.ratio.mean), row.ratio.low, row.ratio.high];
        let values = self.rows.iter().flat_map(ends).flatten().chain([1.0]);
        let Some(xs) = Axis::ratio(&values.collect::<Vec<_>>()) else {
            return Err(Undrawable(format!("{} is empty", self.title)));
        };
        let rows = self.rows.len() as f64;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, text(18, FontStyle::Bold))
            .margin(MARGIN)
            .margin_left(NAMES_WIDTH)
            .margin_right(NUMBERS_WIDTH)
            .x_label_area_size(48)
            .build_cartesian_2d(xs, 0.0..rows)?;
        let better = self.metric.better.words();
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .bold_line_style(GRID)
            .light_line_style(FAINT_GRID)
            .axis_style(INK)
            .x_desc(format!("{}: ratio to {}, with its 95 % interval ({better})", self.metric.title, self.baseline))
            .axis_desc_style(text(15, FontStyle::Normal))
            .label_style(text(14, FontStyle::Normal))
            .draw()?;
        chart.draw_series([PathElement::new(vec![(0.0, 0.0), (0.0, rows)], INK.stroke_width(2))])?;
        let origin = area.get_base_pixel();
        for (place, row) in self.rows.iter().enumerate() {
            let y = rows - place as f64 - 0.5;
            let colour = row.look.colour;
            if let (Some(low), Some(high)) = (row.ratio.low, row.ratio.high) {
                let bar = vec![(low.log10(), y), (high.log10(), y)];
                chart.draw_series([PathElement::new(bar, colour.mix(0.45).stroke_width(7))])?;
            }
            let dot = (row.ratio.mean.log10(), y);
            chart.draw_series([Circle::new(dot, 6, colour.filled())])?;
            let height = chart.backend_coord(&dot).1 - origin.1;
            let right = row.look.name().pos(Pos::new(HPos::Right, VPos::Center));
            area.draw(&Text::new(row.name.clone(), (NAMES_WIDTH as i32 - 12, height), right))?;
            let left = text(14, FontStyle::Normal).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(numbers(&row.ratio), ((WIDTH - NUMBERS_WIDTH) as i32 + 12, height), left))?;
        }
        Ok(())
    }
}

/// `1.05 (0.98–1.10)`.
fn numbers(ratio: &Ratio) -> String {
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => {
            format!("{} ({}–{})", three_digits(ratio.mean), three_digits(low), three_digits(high))
        }
        _ => three_digits(ratio.mean),
    }
}
