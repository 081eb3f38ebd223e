//! A page for each lock: what the catalogue knows of it, and what its source file begins with.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Files, Row, name, text};
use crate::workspace;

/// The directory of the pages.
pub(super) const DIRECTORY: &str = "docs/locks";

/// What each page begins with.
const MADE: &str = "<!-- Made by `cargo xtask docs` from the lock's source; do not edit. -->";

/// What the catalogue says, in this order: field, heading.
const FACTS: [(&str, &str); 13] = [
    ("title", "what it is"),
    ("paper", "from"),
    ("fair", "fair"),
    ("bytes", "bytes of state"),
    ("bytes_per_waiter", "bytes for each waiting thread"),
    ("atomics_lock", "atomic operations to acquire, if it is free"),
    ("atomics_unlock", "atomic operations to release, if nobody waits"),
    ("atomics_read", "atomic operations to acquire and release it for reading"),
    ("atomics_write", "the same for writing"),
    ("atomics", "atomic operations of a section, if nobody else wants one"),
    ("apart", "no program can be run under it"),
    ("waits", "`wait=`, the first is the default"),
    ("options", "other options"),
];

/// The page of each lock.
pub(super) fn pages(rows: &[Row]) -> Result<Files> {
    rows.iter().map(page).collect()
}

fn page(row: &Row) -> Result<(PathBuf, Vec<u8>)> {
    let Some(Value::String(source)) = row.get("source") else { bail!("{} names no source", name(row)) };
    let path = format!("crates/locks/src/{source}");
    let code = fs::read_to_string(workspace::path(&path)).with_context(|| path.clone())?;
    let (heading, body) = header(&code).with_context(|| format!("{path} does not begin with a heading"))?;
    let mut page = format!("{MADE}\n\n# {}: {heading}\n\n| | |\n|---|---|\n", name(row));
    for (field, what) in FACTS {
        let value = text(row.get(field));
        if !value.is_empty() {
            let _ = writeln!(page, "| {what} | {value} |");
        }
    }
    let _ = write!(page, "\n{body}\n\n{}[Source](../../{path}) · [all locks](../locks.md)\n", cannot(row));
    Ok((workspace::path(DIRECTORY).join(format!("{}.md", text(row.get("name")))), page.into_bytes()))
}

/// What the project's own tests except, and why.
fn cannot(row: &Row) -> String {
    let Some(Value::Array(exceptions)) = row.get("exceptions") else { return String::new() };
    if row.get("interposable") == Some(&Value::Bool(false)) {
        return "The project's suites of programs cannot be run under it.\n\n".to_owned();
    }
    if exceptions.is_empty() {
        return "No check of the project's test suites is excepted.\n\n".to_owned();
    }
    let mut list = "## Excepted from the project's test suites\n\n| check | why |\n|---|---|\n".to_owned();
    for exception in exceptions {
        let _ = writeln!(list, "| `{}` | {} |", text(exception.get("check")), text(exception.get("reason")));
    }
    list + "\n"
}

/// A module's documentation as Markdown: its heading, without the lock's name, and the rest.
fn header(code: &str) -> Option<(String, String)> {
    let lines = code.lines().map_while(|line| line.strip_prefix("//!"));
    let mut lines = lines.map(|line| without_links(line.strip_prefix(' ').unwrap_or(line)));
    let heading = lines.next()?.strip_prefix("# ")?.to_owned();
    let heading = heading.split_once(": ").map_or(heading.clone(), |(_, rest)| rest.to_owned());
    let body: Vec<String> = lines.collect();
    Some((heading, body.join("\n").trim().to_owned()))
}

/// A line whose links lead into the code's documentation, without them. Links to a web page stay.
fn without_links(line: &str) -> String {
    let (mut plain, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once("[`") {
        let Some((label, behind)) = after.split_once("`]") else { break };
        plain += before;
        let target = behind.strip_prefix('(').and_then(|target| target.split_once(')'));
        if target.is_some_and(|(target, _)| target.contains("://")) {
            let _ = write!(plain, "[`{label}`]");
            rest = behind;
        } else {
            let _ = write!(plain, "`{label}`");
            rest = target.map_or(behind, |(_, after)| after);
        }
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_becomes_a_page() {
        let code = "//! # TAS: polite\n//!\n//! **Idea.** See [`mcs`](super::mcs) and [`HELD`].\n//! ## State\n\nuse x;\n//! no";
        let (heading, body) = header(code).expect("a heading");
        assert_eq!((heading.as_str(), body.as_str()), ("polite", "**Idea.** See `mcs` and `HELD`.\n## State"));
        assert!(header("use x;").is_none());
    }

    #[test]
    fn brackets_that_are_no_links_stay() {
        for line in ["next ─> [A] ──> [B]", "a[`b", "[x](https://example.org)"] {
            assert_eq!(without_links(line), line);
        }
        assert_eq!(without_links("see [`x`](https://a.org) now"), "see [`x`](https://a.org) now");
    }
}
