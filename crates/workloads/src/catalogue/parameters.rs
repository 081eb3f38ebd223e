//! What users can set of a workload.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Display, Formatter};

use super::WorkloadInfo;

/// A number that users can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, as users write it. Parameters of one name have one unit and one range, whatever the workload.
    pub name: &'static str,
    /// What it counts, or the unit of what it measures: one word.
    pub unit: &'static str,
    /// The smallest value.
    pub least: u32,
    /// The largest value.
    pub most: u32,
    /// The value that it has if the user sets none.
    pub default: u32,
    /// What it is.
    pub meaning: &'static str,
    /// The paper's value.
    pub paper: &'static str,
    /// Where the paper says so.
    pub section: &'static str,
    /// The words after the value in a result. `None`: a result shows only the command that was run.
    pub said: Option<&'static str>,
}

/// The value of each parameter of a workload.
#[derive(Clone, Debug)]
pub struct Values {
    of: &'static WorkloadInfo,
    /// What the user has set, in the order of the workload's parameters.
    set: Vec<Option<u32>>,
}

impl Values {
    /// The defaults.
    pub fn new(of: &'static WorkloadInfo) -> Self {
        Self { of, set: of.parameters.iter().map(|_| None).collect() }
    }

    /// Sets a value.
    pub fn set(&mut self, name: &str, value: u32) -> Result<(), Wrong> {
        let parameters = self.of.parameters.iter();
        let Some((parameter, set)) = parameters.zip(&mut self.set).find(|(parameter, _)| parameter.name == name) else {
            return Err(Wrong::Unknown { name: name.to_string(), of: self.of });
        };
        if !(parameter.least..=parameter.most).contains(&value) {
            return Err(Wrong::OutOfRange { parameter, value });
        }
        *set = Some(value);
        Ok(())
    }

    /// A parameter's value.
    ///
    /// # Panics
    ///
    /// Panics if the workload has no such parameter: its page asks for one that its row does not list.
    pub fn get(&self, name: &str) -> u32 {
        let found = self.all().find(|(parameter, _)| parameter.name == name);
        found.unwrap_or_else(|| panic!("the row of {} lists no parameter '{name}'", self.of.name)).1
    }

    /// All parameters with their values.
    pub fn all(&self) -> impl Iterator<Item = (&'static Parameter, u32)> {
        self.of.parameters.iter().zip(&self.set).map(|(parameter, set)| (parameter, set.unwrap_or(parameter.default)))
    }

    /// The values in words, if the user has set any: each parameter up to the last one that the user has set, because
    /// the value of a later one means little without the earlier ones.
    pub fn said(&self) -> Vec<String> {
        let until = self.set.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let say = |(parameter, value): (&Parameter, u32)| parameter.said.map(|words| format!("{value}{words}"));
        self.all().take(until).filter_map(say).collect()
    }
}

/// Why a value was not set.
#[derive(Clone, Debug)]
pub enum Wrong {
    /// The workload has no such parameter.
    Unknown {
        /// What the user wrote.
        name: String,
        /// The workload.
        of: &'static WorkloadInfo,
    },
    /// The value is too small or too large.
    OutOfRange {
        /// The parameter.
        parameter: &'static Parameter,
        /// What the user wrote.
        value: u32,
    },
}

impl Display for Wrong {
    fn fmt(&self, text: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, of } if of.parameters.is_empty() => {
                write!(text, "{} has no parameter '{name}'; it has no parameters", of.name)
            }
            Self::Unknown { name, of } => {
                let known: Vec<&str> = of.parameters.iter().map(|parameter| parameter.name).collect();
                write!(text, "{} has no parameter '{name}'; it has: {}", of.name, known.join(", "))
            }
            Self::OutOfRange { parameter: Parameter { name, unit, least, most, .. }, value } => {
                write!(text, "{name} must be {least} to {most} ({unit}), not {value}")
            }
        }
    }
}

impl core::error::Error for Wrong {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::WorkloadId;

    #[test]
    fn values_are_set_and_kept_in_range() {
        let mut values = Values::new(WorkloadId::Kvmap.info());
        assert_eq!((values.get("lookups"), values.get("external")), (80, 0));
        assert!(values.set("lookups", 100).is_ok() && values.get("lookups") == 100);
        let wrong = values.set("lookups", 101).unwrap_err().to_string();
        assert_eq!((wrong.as_str(), values.get("lookups")), ("lookups must be 0 to 100 (percent), not 101", 100));
        let wrong = values.set("lines", 1).unwrap_err().to_string();
        assert_eq!(wrong, "kvmap has no parameter 'lines'; it has: lookups, external");
        let wrong = Values::new(WorkloadId::Lock2.info()).set("lines", 1).unwrap_err().to_string();
        assert_eq!(wrong, "lock2 has no parameter 'lines'; it has no parameters");
    }

    #[test]
    fn what_the_user_has_set_is_said_with_what_comes_before_it() {
        let said = |chosen: &[(&str, u32)]| {
            let mut values = Values::new(WorkloadId::Kvmap.info());
            chosen.iter().for_each(|(name, value)| values.set(name, *value).unwrap());
            values.said().join(", ")
        };
        assert_eq!(said(&[]), "");
        assert_eq!(said(&[("lookups", 3)]), "3% lookups");
        assert_eq!(said(&[("external", 5)]), "80% lookups, 5 ns of work outside");
    }
}
