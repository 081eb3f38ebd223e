//! The origin of a result: the fields at the start of every result file.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::{Error, date};

/// Which flashlock made a result, from which command, when and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The kind of file.
    pub schema: String,
    /// The version of its schema.
    pub version: u32,
    /// The version of flashlock that made it.
    pub flashlock: String,
    /// The time, in UTC (RFC 3339).
    pub date: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The machine.
    pub machine: Machine,
}

impl Provenance {
    /// The provenance of a result that is made here and now.
    pub fn now(schema: &str, version: u32, command: Vec<String>, machine: Machine) -> Self {
        Self {
            schema: schema.to_owned(),
            version,
            flashlock: env!("CARGO_PKG_VERSION").to_owned(),
            date: date::now(),
            command,
            machine,
        }
    }
}

/// Reads a result file of this schema, up to this version.
pub fn read<T: DeserializeOwned>(file: &Path, schema: &str, version: u32) -> Result<T, Error> {
    #[derive(Deserialize)]
    struct Kind {
        schema: String,
        version: u32,
    }
    let text = fs::read_to_string(file).map_err(|error| Error::new(file, error))?;
    let kind: Kind = serde_json::from_str(&text)
        .map_err(|error| Error::new(file, format!("not a result file of flashlock: {error}")))?;
    if kind.schema != schema {
        return Err(Error::new(file, format!("is a '{}' file, not a '{schema}' file", kind.schema)));
    }
    if kind.version > version {
        let what = format!(
            "is version {} of '{schema}'; this flashlock reads up to {version}: use a newer flashlock",
            kind.version
        );
        return Err(Error::new(file, what));
    }
    serde_json::from_str(&text).map_err(|error| Error::new(file, format!("does not follow '{schema}': {error}")))
}
