//! The workloads by name, and their list as text and as JSON.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use flashlock_report::table::{self, paragraph};
use flashlock_workloads::catalogue::{Parameter, WORKLOADS, WorkloadId, WorkloadInfo};
use serde::Serialize;

use crate::failure::Failure;
use crate::json;

/// Parses a name. An unknown one is answered with all that are known.
pub(super) fn parser() -> impl TypedValueParser<Value = WorkloadId> {
    let known = WORKLOADS.iter().map(|work| PossibleValue::new(work.name).help(work.summary));
    PossibleValuesParser::new(known).try_map(|name| WorkloadId::from_name(&name).ok_or("there is no such workload"))
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    summary: &'static str,
    does: &'static str,
    paper: &'static str,
    section: &'static str,
    millis: f64,
    fewest_threads: u32,
    waits_inside: bool,
    kernel: bool,
    readers: bool,
    parameters: Vec<Setting>,
}

#[derive(Serialize)]
struct Setting {
    name: &'static str,
    unit: &'static str,
    least: u32,
    most: u32,
    default: u32,
    meaning: &'static str,
    paper: &'static str,
    section: &'static str,
}

impl From<&'static Parameter> for Setting {
    fn from(parameter: &'static Parameter) -> Self {
        let Parameter { name, unit, least, most, default, meaning, paper, section, said: _ } = *parameter;
        Self { name, unit, least, most, default, meaning, paper, section }
    }
}

impl From<&'static WorkloadInfo> for Row {
    fn from(work: &'static WorkloadInfo) -> Self {
        Self {
            name: work.name,
            summary: work.summary,
            does: work.does,
            paper: work.paper,
            section: work.section,
            millis: work.millis,
            fewest_threads: work.traits.fewest_threads,
            waits_inside: work.traits.waits_inside,
            kernel: work.traits.in_kernel,
            readers: work.traits.has_readers,
            parameters: work.parameters.iter().map(Setting::from).collect(),
        }
    }
}

/// The list as text.
pub(super) fn text(width: u16) -> String {
    let mut table = table::new(["workload", "ms", "what it is", "parameters"], width);
    table::numbers(&mut table, 1..=1);
    table::keep_whole(&mut table, 0);
    for work in WORKLOADS {
        let unit = |one: &Parameter| if one.unit == one.name { String::new() } else { format!(" {}", one.unit) };
        let each = |one: &Parameter| format!("--{} {}{}", one.name, one.default, unit(one));
        let parameters = work.parameters.iter().map(each).collect::<Vec<_>>().join(", ");
        table.add_row([work.name.to_owned(), work.millis.to_string(), work.summary.to_owned(), parameters]);
    }
    let more = "Parameters are shown with their defaults; flashlock simulate --help describes them. ms: how much \
                virtual time a run measures, unless --millis says otherwise.";
    format!("{}\n{}", table::text(&table), paragraph(more, width))
}

/// The list as a JSON array of objects.
pub(super) fn json() -> Result<String, Failure> {
    json::text(&WORKLOADS.iter().map(Row::from).collect::<Vec<Row>>())
}
