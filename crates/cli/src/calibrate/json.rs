//! What was measured, for programs.

use flashlock_report::machine::Machine;
use flashlock_report::provenance::Provenance;
use serde::Serialize;

use super::DEFAULTS;
use super::sheet::Sheet;
use crate::evidence::Evidence;
use crate::failure::Failure;

/// The kind of result; docs/cli/json.md says what its fields mean.
const SCHEMA: &str = "flashlock.calibration";
/// The version of its schema.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Output<'a> {
    #[serde(flatten)]
    provenance: Provenance,
    quick: bool,
    #[serde(flatten)]
    sheet: &'a Sheet,
    taken_from: &'static str,
    evidence: &'a Evidence,
    description: &'a str,
}

/// All of it; `description` is what the file says.
pub(super) fn json(
    machine: &Machine,
    quick: bool,
    sheet: &Sheet,
    evidence: &Evidence,
    description: &str,
) -> Result<String, Failure> {
    let command = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let provenance = Provenance::now(SCHEMA, VERSION, command, machine.clone());
    let output = Output { provenance, quick, sheet, taken_from: DEFAULTS, evidence, description };
    serde_json::to_string_pretty(&output).map(|text| text + "\n").map_err(Failure::new)
}
