//! The sheet: which figures were measured and how, and which were not.

use flashlock_report::{table, units};
use serde::Serialize;

use crate::screen::{HEADING, styled};

/// A figure, and how it was measured.
#[derive(Clone, Debug, Serialize)]
struct Row {
    what: String,
    value: f64,
    unit: &'static str,
    /// Value and unit as text.
    #[serde(skip)]
    text: String,
    how: &'static str,
    /// The description's value, if it differs.
    raised_to: Option<f64>,
}

/// All figures.
#[derive(Debug, Default, Serialize)]
pub(super) struct Sheet {
    #[serde(rename = "figures")]
    rows: Vec<Row>,
    /// Figures that keep the value of another machine.
    #[serde(rename = "not_measured")]
    missing: Vec<String>,
    /// Other remarks.
    remarks: Vec<String>,
}

impl Sheet {
    /// Records a measurement and puts it into the description. Without a measurement, the description's value stays.
    pub(super) fn put(
        &mut self,
        name: impl Into<String>,
        value: Option<f64>,
        unit: &'static str,
        how: &'static str,
        into: &mut f64,
    ) {
        let name = name.into();
        match value.filter(|value| value.is_finite() && *value >= 0.0) {
            Some(value) => {
                *into = rounded(value);
                self.show(name, value, unit, how);
            }
            None => self.missing.push(name),
        }
    }

    /// Records a measurement between two CPUs at this distance, if there is one, and puts it into the description's
    /// list.
    pub(super) fn note(
        &mut self,
        name: String,
        ns: Option<f64>,
        how: &'static str,
        distance: u32,
        into: &mut Vec<(u32, f64)>,
    ) {
        if let Some(ns) = ns.filter(|ns| ns.is_finite()) {
            into.push((distance, rounded(ns)));
            self.show(name, ns, "ns", how);
        }
    }

    /// Records a measurement that is not part of a description.
    pub(super) fn show(&mut self, what: impl Into<String>, value: f64, unit: &'static str, how: &'static str) {
        self.tell(what, value, unit, format!("{} {unit}", units::three_digits(value)), how);
    }

    /// The same for a measurement with its own text.
    pub(super) fn tell(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        text: String,
        how: &'static str,
    ) {
        self.rows.push(Row { what: what.into(), value, unit, text, how, raised_to: None });
    }

    /// Records a remark.
    pub(super) fn remark(&mut self, remark: impl Into<String>) {
        self.remarks.push(remark.into());
    }

    /// Whether this figure was measured.
    pub(super) fn has(&self, what: &str) -> bool {
        self.rows.iter().any(|row| row.what == what)
    }

    /// Records that the description has a greater value than the measured one, and why.
    pub(super) fn raise(&mut self, what: &str, to: f64, why: &str) {
        let Some(row) = self.rows.iter_mut().find(|row| row.what == what) else { return };
        let (measured, shown) = (&row.text, format!("{} {}", units::three_digits(to), row.unit));
        self.remarks.push(format!("{what}: measured {measured}, raised to {shown}, because {why}"));
        row.raised_to = Some(to);
    }

    /// Records that a figure was not measured.
    pub(super) fn miss(&mut self, name: impl Into<String>) {
        self.missing.push(name.into());
    }

    /// For the description: the parts that do not come from this machine.
    pub(super) fn source(&self, defaults: &str) -> String {
        let mut text = format!("Not measured, but taken from {defaults}: {}.", self.missing.join(", "));
        for remark in &self.remarks {
            text.push_str(&format!(" Note: {remark}."));
        }
        text
    }

    /// The sheet as text.
    pub(super) fn text(&self, title: &str, defaults: &str, width: u16) -> String {
        let mut table = table::new(["what", "value", "how it was measured"], width);
        table::numbers(&mut table, [1]);
        table::keep_whole(&mut table, 1);
        for row in &self.rows {
            let raised = row.raised_to.map(|to| format!("; raised to {} {}", units::three_digits(to), row.unit));
            table.add_row([row.what.clone(), row.text.clone(), format!("{}{}", row.how, raised.unwrap_or_default())]);
        }
        let mut text = format!("{}\n\n{}\n", styled(HEADING, title), table::text(&table));
        let missing = format!("not measured, taken from {defaults}: {}", self.missing.join(", "));
        for line in std::iter::once(&missing).chain(&self.remarks) {
            text.push_str(&table::field("-", line, 1, width));
        }
        text
    }
}

/// Three digits: more would suggest a precision that is not there.
pub(super) fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_cpus_measured_is_listed_with_their_distance() {
        let (mut sheet, mut list) = (Sheet::default(), Vec::new());
        for (distance, ns) in [(0, Some(51.234)), (1, None), (2, Some(f64::NAN)), (3, Some(180.0))] {
            sheet.note(format!("hand-off, distance {distance}"), ns, "a word", distance, &mut list);
        }
        assert_eq!(list, [(0, 51.2), (3, 180.0)]);
        let text = sheet.text("This machine", "2x2", 60);
        assert!(text.contains("distance 3") && !text.contains("distance 1"), "{text}");
    }

    #[test]
    fn what_was_not_measured_keeps_its_value_and_is_named() {
        let mut sheet = Sheet::default();
        let (mut load, mut pause, mut walk) = (1.0, 4.0, 5.0);
        sheet.put("first level", Some(1.6666), "ns", "a walk", &mut load);
        sheet.put("pause", None, "ns", "a loop", &mut pause);
        sheet.put("page walk", Some(f64::NAN), "ns", "a walk", &mut walk);
        assert_eq!((load, pause, walk), (1.67, 4.0, 5.0));
        assert_eq!(sheet.source("2x2"), "Not measured, but taken from 2x2: pause, page walk.");
        sheet.remark("odd");
        assert!(sheet.source("2x2").ends_with(" Note: odd."));
        let text = sheet.text("This machine", "2x2", 60);
        assert!(text.contains("1.67 ns") && text.contains("pause, page walk"), "{text}");
        assert!(sheet.has("first level") && !sheet.has("pause"));
    }

    #[test]
    fn what_was_raised_is_marked_and_what_was_measured_is_kept() {
        let mut sheet = Sheet::default();
        sheet.show("second level", 1.5, "ns", "a walk");
        sheet.raise("second level", 1.67, "it takes no less than the first");
        sheet.raise("what was not measured", 9.0, "nothing");
        let remark = "second level: measured 1.50 ns, raised to 1.67 ns, because it takes no less than the first";
        assert_eq!(sheet.remarks, [remark]);
        let text = sheet.text("This machine", "2x2", 120);
        assert!(text.contains("1.50 ns   a walk; raised to 1.67 ns") && text.contains(remark), "{text}");
        assert!(sheet.source("2x2").contains(remark));
    }
}
