//! The runs as comma-separated values, for spreadsheets: one line for each run.

use super::{Point, Results};
use crate::units::three_digits;

impl Results {
    /// A heading line, then `group,<axis>,lock,round,<metrics>…,failure` for each run, in the order of the points.
    pub fn csv(&self) -> String {
        let axis = self.groups.first().map_or("cell", |group| group.axis.as_str());
        let names = self.metrics.iter().map(|metric| metric.name.as_str());
        let heading = ["group", if axis.is_empty() { "cell" } else { axis }, "lock", "round"].into_iter();
        let mut text = line(heading.chain(names).chain(["failure"]).map(str::to_owned));
        for point in &self.points {
            for run in &point.runs {
                let value = |name: &str| run.values.get(name).map(f64::to_string).unwrap_or_default();
                let values = self.metrics.iter().map(|metric| value(&metric.name));
                text += &line(place(point, run.round).into_iter().chain(values).chain([String::new()]));
            }
            for failed in &point.failures {
                let values = self.metrics.iter().map(|_| String::new());
                text += &line(place(point, failed.round).into_iter().chain(values).chain([failed.how.clone()]));
            }
            for run in &point.unfinished {
                let values = self.metrics.iter().map(|_| String::new());
                let how = format!("not ended after {} s, when the time was up", three_digits(run.seconds));
                text += &line(place(point, run.round).into_iter().chain(values).chain([how]));
            }
        }
        text
    }
}

fn place(point: &Point, round: u32) -> [String; 4] {
    [point.group.clone(), point.cell.clone(), point.lock.clone(), round.to_string()]
}

/// A line by RFC 4180, but with the line end of this system.
fn line(fields: impl Iterator<Item = String>) -> String {
    let quoted = |field: String| match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field,
    };
    fields.map(quoted).collect::<Vec<_>>().join(",") + "\n"
}
