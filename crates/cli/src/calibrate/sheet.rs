//! What was found, how, and what was not.

use flashlock_report::{table, units};

use crate::screen::{HEADING, styled};

/// A figure and how it was come by.
#[derive(Clone, Debug)]
struct Row {
    what: String,
    value: String,
    how: &'static str,
}

/// All that was found.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    rows: Vec<Row>,
    /// What keeps the value of another machine.
    missing: Vec<String>,
    /// What else one should know.
    pub(super) remarks: Vec<String>,
}

impl Sheet {
    /// Takes note of a measurement, and into the description with it; without one, what stands there stays.
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

    /// Takes note of what two CPUs measured that are so far apart, and into the description's list with it, if it was measured.
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

    /// Takes note of a measurement that is not part of a description.
    pub(super) fn show(&mut self, what: impl Into<String>, value: f64, unit: &'static str, how: &'static str) {
        self.tell(what, format!("{} {unit}", units::three_digits(value)), how);
    }

    /// Takes note of something in words.
    pub(super) fn tell(&mut self, what: impl Into<String>, value: String, how: &'static str) {
        self.rows.push(Row { what: what.into(), value, how });
    }

    /// Takes note of something that was not measured.
    pub(super) fn miss(&mut self, name: impl Into<String>) {
        self.missing.push(name.into());
    }

    /// For the description: what is not of this machine.
    pub(super) fn source(&self, defaults: &str) -> String {
        let mut text = format!("Not measured, but taken from {defaults}: {}.", self.missing.join(", "));
        for remark in &self.remarks {
            text.push_str(&format!(" Note: {remark}."));
        }
        text
    }

    /// For people.
    pub(super) fn text(&self, title: &str, defaults: &str, width: u16) -> String {
        let mut table = table::new(["what", "value", "how it was measured"], width);
        table::numbers(&mut table, [1]);
        table::keep_whole(&mut table, 1);
        for row in &self.rows {
            table.add_row([row.what.as_str(), row.value.as_str(), row.how]);
        }
        let mut text = format!("{}\n\n{}\n", styled(HEADING, title), table::text(&table));
        let missing = format!("not measured, taken from {defaults}: {}", self.missing.join(", "));
        for line in std::iter::once(&missing).chain(&self.remarks) {
            text.push_str(&table::field("-", line, 1, width));
        }
        text
    }
}

/// Three digits: more would only look like knowledge.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_cpus_measured_is_listed_with_their_distance() {
        let (mut sheet, mut list) = (Sheet::default(), Vec::new());
        for (distance, ns) in [(0, Some(51.234)), (1, None), (2, Some(f64::NAN)), (3, Some(180.0))] {
            sheet.note(format!("hand-over, distance {distance}"), ns, "a word", distance, &mut list);
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
        sheet.remarks.push("odd".into());
        assert!(sheet.source("2x2").ends_with(" Note: odd."));
        let text = sheet.text("This machine", "2x2", 60);
        assert!(text.contains("1.67 ns") && text.contains("pause, page walk"), "{text}");
    }
}
