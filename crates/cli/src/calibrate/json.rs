//! The measurements as JSON.

use flashlock_report::machine::Machine;
use serde::Serialize;

use super::DEFAULTS;
use super::sheet::Sheet;
use crate::evidence::Evidence;
use crate::failure::Failure;
use crate::json;

/// The kind of result; docs/cli/json.md describes its fields.
const SCHEMA: &str = "flashlock.calibration";
/// The version of its schema.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Output<'a> {
    quick: bool,
    #[serde(flatten)]
    sheet: &'a Sheet,
    taken_from: &'static str,
    evidence: &'a Evidence,
    description: &'a str,
}

/// The whole result; `description` is the file's contents.
pub(super) fn json(
    machine: &Machine,
    quick: bool,
    sheet: &Sheet,
    evidence: &Evidence,
    description: &str,
) -> Result<String, Failure> {
    let output = Output { quick, sheet, taken_from: DEFAULTS, evidence, description };
    json::result(SCHEMA, VERSION, machine.clone(), &output)
}
