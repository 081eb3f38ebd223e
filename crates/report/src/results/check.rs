//! Whether a file means what it says: what points name is there, and no figure is impossible.

use super::Results;

impl Results {
    /// What is wrong, if something is.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.locks.is_empty() {
            return Err("'locks' is empty: it must begin with the baseline".into());
        }
        for group in &self.groups {
            if self.metric(&group.merit).is_none() {
                return Err(format!(
                    "group '{}' compares '{}', which 'metrics' does not list",
                    group.title, group.merit
                ));
            }
        }
        for (number, point) in self.points.iter().enumerate() {
            let wrong = |field: &str, value: &str, list: &str| {
                Err(format!("points[{number}].{field} is '{value}', which '{list}' does not list"))
            };
            let Some(group) = self.groups.iter().find(|group| group.title == point.group) else {
                return wrong("group", &point.group, "groups");
            };
            if !group.cells.contains(&point.cell) {
                return wrong("cell", &point.cell, "groups[].cells");
            }
            if !self.locks.contains(&point.lock) {
                return wrong("lock", &point.lock, "locks");
            }
            let names = point.figures.keys().chain(point.runs.iter().flat_map(|run| run.values.keys()));
            for name in names {
                if self.metric(name).is_none() {
                    return wrong("figures or runs", name, "metrics");
                }
            }
        }
        Ok(())
    }
}
