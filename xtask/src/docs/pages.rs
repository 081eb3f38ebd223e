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
    let (heading, body) = header(&code, source).with_context(|| format!("{path} does not begin with a heading"))?;
    let lacking = lacking(&body);
    if !lacking.is_empty() {
        bail!("{path}: its page lacks {}", lacking.join(", "));
    }
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

/// What a page must have in its text, and in its headings, if it is to say all that there is to say of a lock: the idea in a picture, …
const IN_TEXT: [&str; 7] =
    ["**Problem.**", "**Idea.**", "**Source.**", "```text\n", "**Departures.**", "**Use it** ", "**Rather not** "];
const IN_HEADINGS: [&str; 3] = ["state", "invariants", "orderings"];

/// What a page lacks of that.
fn lacking(body: &str) -> Vec<&'static str> {
    let headings: Vec<String> = body.lines().filter(|line| line.starts_with("## ")).map(str::to_lowercase).collect();
    let text = IN_TEXT.into_iter().filter(|wanted| !body.contains(wanted));
    let missing = |wanted: &&str| !headings.iter().any(|heading| heading.contains(wanted));
    text.chain(IN_HEADINGS.into_iter().filter(missing)).map(str::trim_end).collect()
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
fn header(code: &str, source: &str) -> Option<(String, String)> {
    let lines = code.lines().map_while(|line| line.strip_prefix("//!"));
    let mut lines = lines.map(|line| with_links(line.strip_prefix(' ').unwrap_or(line), source));
    let heading = lines.next()?.strip_prefix("# ")?.to_owned();
    let heading = heading.split_once(": ").map_or(heading.clone(), |(_, rest)| rest.to_owned());
    let body: Vec<String> = lines.collect();
    Some((heading, body.join("\n").trim().to_owned()))
}

/// A line whose links lead into the code's documentation: those to modules lead to their files instead, the others nowhere. Links to a web page stay.
fn with_links(line: &str, source: &str) -> String {
    let (mut plain, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once("[`") {
        let Some((label, behind)) = after.split_once("`]") else { break };
        plain += before;
        let target = behind.strip_prefix('(').and_then(|target| target.split_once(')'));
        if target.is_some_and(|(target, _)| target.contains("://")) {
            let _ = write!(plain, "[`{label}`]");
            rest = behind;
            continue;
        }
        match target.and_then(|(target, _)| module_file(target, source)) {
            Some(file) => _ = write!(plain, "[`{label}`](../../crates/locks/src/{file})"),
            None => _ = write!(plain, "`{label}`"),
        }
        rest = target.map_or(behind, |(_, after)| after);
    }
    plain + rest
}

/// The file of a module, if the link in that source file leads to one.
fn module_file(target: &str, source: &str) -> Option<String> {
    let mut path: Vec<&str> = source.trim_end_matches(".rs").trim_end_matches("/mod").split('/').collect();
    for part in target.split("::") {
        match part {
            "crate" => path.clear(),
            "super" => _ = path.pop(),
            part => path.push(part),
        }
    }
    let module = path.join("/");
    let is_file = |file: &String| workspace::path("crates/locks/src").join(file).is_file();
    [format!("{module}.rs"), format!("{module}/mod.rs")].into_iter().find(is_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_becomes_a_page() {
        let code =
            "//! # TAS: polite\n//!\n//! **Idea.** See [`m`](super::m) and [`HELD`].\n//! ## State\n\nuse x;\n//! no";
        let (heading, body) = header(code, "spin/tas.rs").expect("a heading");
        assert_eq!((heading.as_str(), body.as_str()), ("polite", "**Idea.** See `m` and `HELD`.\n## State"));
        assert!(header("use x;", "spin/tas.rs").is_none());
    }

    #[test]
    fn links_to_modules_lead_to_their_files() {
        let file = |target, source| module_file(target, source);
        let aside = Some("queue/aside.rs".to_owned());
        assert_eq!(file("crate::queue::aside", "numa/cna.rs"), aside);
        assert_eq!(file("super::aside", "queue/mcs.rs"), aside);
        assert_eq!(file("super::cohort", "numa/hmcs.rs").as_deref(), Some("numa/cohort/mod.rs"));
        assert_eq!(file("crate::wait::left::SWEEP_AT", "numa/cna.rs"), None);
        let line = "as [`aside`](crate::queue::aside) and [`X`](crate::wait::left::X)";
        let linked = "as [`aside`](../../crates/locks/src/queue/aside.rs) and `X`";
        assert_eq!(with_links(line, "numa/cna.rs"), linked);
    }

    #[test]
    fn what_a_page_lacks_is_named() {
        let whole = "**Problem.** **Idea.** **Source.** **Departures.** **Use it** x **Rather not** y\n```text\n```\n## State: 4 bytes\n## Invariants and orderings\n";
        assert_eq!(lacking(whole), Vec::<&str>::new());
        assert_eq!(lacking(&whole.replace("```", "")), ["```text"]);
        assert_eq!(lacking(&whole.replace("Invariants and", "Other")), ["invariants"]);
        assert_eq!(lacking("# State"), [&IN_TEXT.map(str::trim_end)[..], &IN_HEADINGS].concat());
    }

    /// The pages as they are; that they are those of all locks is what `cargo xtask docs --check` says.
    #[test]
    fn no_page_lacks_anything() {
        let pages = fs::read_dir(workspace::path(DIRECTORY)).expect("pages");
        let pages: Vec<PathBuf> = pages.map(|page| page.expect("a page").path()).collect();
        assert!(pages.len() >= 28, "{pages:?}");
        for page in pages {
            let text = fs::read_to_string(&page).expect("text");
            assert_eq!(lacking(&text), Vec::<&str>::new(), "{}", page.display());
        }
    }

    #[test]
    fn brackets_that_are_no_links_stay() {
        for line in ["next ─> [A] ──> [B]", "a[`b", "[x](https://example.org)"] {
            assert_eq!(with_links(line, "x.rs"), line);
        }
        assert_eq!(with_links("see [`x`](https://a.org) now", "x.rs"), "see [`x`](https://a.org) now");
    }
}
