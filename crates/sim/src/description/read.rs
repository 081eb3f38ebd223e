//! Reads a [`Description`] from the text of a file. Errors name the line.

use serde::Deserialize;
use toml::de::{DeTable, DeValue, Error};
use toml::{Deserializer, Spanned};

use super::Description;

/// Reads and checks a description. The error names the line (if it is known), the field and its value, and says what it
/// must be.
pub(super) fn read(text: &str) -> Result<Description, String> {
    let table = DeTable::parse(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    pairs(table.get_ref(), "")
        .map_err(|(field, at)| format!("line {}: {field}: a list of lists has two numbers in each", line(text, at)))?;
    let described = Description::deserialize(Deserializer::from(table.clone()));
    let described = described.map_err(|error| unfit(text, &error))?;
    described.check().map_err(|wrong| match key(table.get_ref(), &wrong.field) {
        Some(at) => format!("line {}: {wrong}", line(text, at)),
        None => wrong.to_string(),
    })?;
    Ok(described)
}

/// Pairs are read as lists of two, and the parser ignores further numbers in them; this check rejects those. Only
/// `topology.distances` has longer rows.
fn pairs(table: &DeTable<'_>, within: &str) -> Result<(), (String, usize)> {
    for (name, value) in table {
        let field = format!("{within}{}", name.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => pairs(inner, &format!("{field}."))?,
            DeValue::Array(list) if field != "topology.distances" => {
                let long = |item: &&Spanned<DeValue<'_>>| item.get_ref().as_array().is_some_and(|pair| pair.len() > 2);
                if let Some(item) = list.iter().find(long) {
                    return Err((field, item.span().start));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The message for a field that is unknown, missing or of another type. A missing field has no line.
fn unfit(text: &str, error: &Error) -> String {
    // The error was not given its input, so its last line names the table.
    let shown = error.to_string();
    let place = shown.lines().last().and_then(|last| last.strip_prefix("in `")?.strip_suffix('`'));
    let message = error.message();
    match (place, error.span()) {
        (None, Some(at)) if !message.starts_with("missing") => format!("line {}: {message}", line(text, at.start)),
        (None, _) => message.to_owned(),
        (Some(place), Some(at)) => format!("line {}: {place}: {message}", line(text, at.start)),
        (Some(place), None) => format!("{place}: {message}"),
    }
}

/// Where the field's key is, or else the innermost table around it.
fn key(table: &DeTable<'_>, field: &str) -> Option<usize> {
    let (first, rest) = field.split_once('.').map_or((field, None), |(first, rest)| (first, Some(rest)));
    let (name, value) = table.iter().find(|(name, _)| name.get_ref() == first)?;
    let inner = rest.and_then(|rest| key(value.get_ref().as_table()?, rest));
    Some(inner.unwrap_or(name.span().start))
}

/// The number of the line, from 1, that contains the byte at `at`.
fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}
