//! A panel with one row for each lock: its figure divided by the baseline's, with the interval as a bar and both as
//! numbers. A ratio of more than an order of magnitude is not shown: such a row is at the edge, and names the lock that
//! collapsed.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::look::{FAINT_GRID, FAINT_INK, GRID, INK, Look, text};
use super::{Area, Caption, MARGIN, Undrawable, WIDTH};
use crate::results::{COLLAPSE, Group, Metric, Point, Results};
use crate::statistics::Ratio;
use crate::units::three_digits;

const ROW_HEIGHT: u32 = 30;
/// The axis and its description.
const FRAME_HEIGHT: u32 = 72;
const NAMES_WIDTH: u32 = 240;
const NUMBERS_WIDTH: u32 = 210;

/// One group.
pub(super) struct Panel<'a> {
    group: &'a Group,
    caption: Caption,
    baseline: &'a str,
    metric: &'a Metric,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    ratio: Ratio,
    look: Look,
    /// The lock that collapsed here, if one of the two did.
    collapsed: Option<String>,
}

impl<'a> Panel<'a> {
    /// `None` if there is no ratio.
    pub(super) fn of(results: &'a Results, group: &'a Group, looks: &[Look], verdict: String) -> Option<Self> {
        let metric = results.metric(&group.merit)?;
        let row = |(point, look): (&Point, &Look)| {
            let name = match group.cells.len() {
                1 => point.lock.clone(),
                _ => format!("{}, {}", point.lock, point.cell),
            };
            let (ratio, advantage) = (point.ratio?, results.advantage(group, &point.cell, &point.lock)?.mean);
            let collapsed = match () {
                () if advantage >= COLLAPSE => Some(results.baseline().to_owned()),
                () if advantage <= COLLAPSE.recip() => Some(point.lock.clone()),
                () => None,
            };
            Some(Row { name, ratio, look: *look, collapsed })
        };
        let cells = group
            .cells
            .iter()
            .flat_map(|cell| results.locks.iter().zip(looks).map(move |(lock, look)| (cell, lock, look)));
        let points = cells.filter_map(|(cell, lock, look)| Some((results.point(&group.title, cell, lock)?, look)));
        let rows: Vec<Row> = points.filter_map(row).collect();
        let title = match group.cells.as_slice() {
            [only] if !group.axis.is_empty() => format!("{}, {only} {}", group.title, group.axis),
            _ => group.title.clone(),
        };
        let what = format!("{title} · {}, {}", metric.title, metric.better.words());
        (!rows.is_empty()).then_some(Self {
            group,
            caption: Caption { verdict, what },
            baseline: results.baseline(),
            metric,
            rows,
        })
    }

    pub(super) fn height(&self) -> u32 {
        self.caption.height() + FRAME_HEIGHT + ROW_HEIGHT * self.rows.len() as u32
    }

    pub(super) fn draw(&self, area: &Area<'_>) -> Result<(), Undrawable> {
        self.caption.draw(area)?;
        let ratios = self.rows.iter().filter(|row| row.collapsed.is_none()).map(|row| row.ratio);
        let ends = |ratio: Ratio| ratio.ends().map_or([ratio.mean; 2], <[f64; 2]>::from);
        let values = ratios.flat_map(ends).chain([1.0]);
        let Some(xs) = Axis::ratio(&values.collect::<Vec<_>>()) else {
            return Err(Undrawable(format!("{} is empty", self.group.title)));
        };
        let edges = plotters::coord::ranged1d::Ranged::range(&xs);
        let rows = self.rows.len() as f64;
        let mut chart = ChartBuilder::on(area)
            .margin(MARGIN)
            .margin_top(self.caption.height())
            .margin_bottom(8)
            .margin_left(NAMES_WIDTH)
            .margin_right(NUMBERS_WIDTH)
            .x_label_area_size(44)
            .build_cartesian_2d(xs, 0.0..rows)?;
        let better = self.metric.better.words();
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .bold_line_style(GRID)
            .light_line_style(FAINT_GRID)
            .axis_style(FAINT_INK)
            .x_desc(format!("a multiple of {}'s, with its 95 % interval ({better})", self.baseline))
            .axis_desc_style(text(15, FontStyle::Normal).color(&FAINT_INK))
            .label_style(text(14, FontStyle::Normal))
            .draw()?;
        chart.draw_series([PathElement::new(vec![(1.0, 0.0), (1.0, rows)], INK.stroke_width(2))])?;
        let origin = area.get_base_pixel();
        for (place, row) in self.rows.iter().enumerate() {
            let y = rows - place as f64 - 0.5;
            let colour = row.look.colour;
            let middle = row.ratio.mean.clamp(edges.start, edges.end);
            let (x, height) = chart.backend_coord(&(middle, y));
            let (x, height) = (x - origin.0, height - origin.1);
            if row.collapsed.is_some() {
                let out = if row.ratio.mean > 1.0 { 9 } else { -9 };
                let arrow = vec![(x, height - 5), (x + out, height), (x, height + 5)];
                area.draw(&Polygon::new(arrow, colour.filled()))?;
            } else {
                if let Some((low, high)) = row.ratio.ends() {
                    chart
                        .draw_series([PathElement::new(vec![(low, y), (high, y)], colour.mix(0.45).stroke_width(6))])?;
                }
                area.draw(&Circle::new((x, height), 5, colour.filled()))?;
            }
            let right = row.look.name().pos(Pos::new(HPos::Right, VPos::Center));
            area.draw(&Text::new(row.name.clone(), (NAMES_WIDTH as i32 - 16, height), right))?;
            let left = text(14, FontStyle::Normal).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(row.numbers(), ((WIDTH - NUMBERS_WIDTH) as i32 + 16, height), left))?;
        }
        Ok(())
    }
}

impl Row {
    /// `1.05 (0.98–1.10)`.
    fn numbers(&self) -> String {
        let mean = three_digits(self.ratio.mean);
        match (&self.collapsed, self.ratio.interval()) {
            (Some(lock), _) => format!("{lock} collapsed"),
            (None, Some(interval)) => format!("{mean} ({interval})"),
            (None, None) => mean,
        }
    }
}
