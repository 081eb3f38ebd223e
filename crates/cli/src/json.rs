//! Output for programs: JSON.

use flashlock_report::machine::Machine;
use flashlock_report::provenance::Provenance;
use serde::Serialize;

use crate::failure::Failure;

/// A value as JSON with line breaks.
pub(crate) fn text(value: &(impl Serialize + ?Sized)) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(Failure::new)
}

/// A result of this command on this machine: the common fields, then its own.
pub(crate) fn result(schema: &str, version: u32, machine: Machine, found: &impl Serialize) -> Result<String, Failure> {
    #[derive(Serialize)]
    struct Output<'a, T> {
        #[serde(flatten)]
        provenance: Provenance,
        #[serde(flatten)]
        found: &'a T,
    }
    text(&Output { provenance: Provenance::now(schema, version, command(), machine), found })
}

/// The words of the command line.
pub(crate) fn command() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}
