//! A page for each lock: what the catalogue knows of it, and what its source file begins with. And one for each module
//! that these pages refer to, directly or not, so that none of them leads into the code for what there is to know.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use flashlock_report::wrap::wrapped;
use serde_json::Value;

use super::modules::{Module, SOURCES};
use super::{Files, Row, links, name, text};
use crate::workspace;

/// The directory of the pages, and within it that of the modules' that are no locks.
pub(super) const DIRECTORY: &str = "docs/locks";
pub(super) const PARTS: &str = "docs/locks/parts";

/// What each page begins with.
const MADE: &str = "<!-- Made by `cargo xtask docs` from the source; do not edit. -->";

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
    ("atomics", "atomic operations of a section without contention"),
    ("why_standalone", "not for unmodified programs"),
    ("waits", "`wait=`, the first is the default"),
    ("options", "other options"),
];

/// The page of each lock, and of each module that one of the pages refers to.
pub(super) fn pages(rows: &[Row]) -> Result<Files> {
    let mut book = Book::of(rows)?;
    let mut files = Files::new();
    for row in rows {
        let module = Module::read(source(row)?)?;
        let page = lock(row, &module, &mut book)?;
        files.insert(workspace::path(DIRECTORY).join(format!("{}.md", text(row.get("name")))), page.into_bytes());
    }
    // Each may refer to further ones, and so may those, or again to it: a page is written when all that refer to it are
    // known.
    let mut written = BTreeMap::new();
    while let Some(source) = book.unwritten(&written) {
        let module = Module::read(&source)?;
        let body = book.linked(&module, &part_name(&source))?;
        written.insert(source, (module.heading, body));
    }
    for (source, (heading, body)) in written {
        let page = part(&source, &heading, &body, &book);
        files.insert(workspace::path(PARTS).join(part_name(&source)), page.into_bytes());
    }
    Ok(files)
}

fn source(row: &Row) -> Result<&str> {
    match row.get("source") {
        Some(Value::String(source)) => Ok(source),
        _ => bail!("{} names no source", name(row)),
    }
}

/// Which page is which module's, and what refers to it.
struct Book {
    /// The locks whose source a module is.
    locks: BTreeMap<String, Vec<String>>,
    /// Modules, and the locks' pages that refer to them.
    referred: BTreeMap<String, BTreeSet<String>>,
}

impl Book {
    fn of(rows: &[Row]) -> Result<Self> {
        let mut locks: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in rows {
            locks.entry(source(row)?.to_owned()).or_default().push(text(row.get("name")));
        }
        Ok(Self { locks, referred: BTreeMap::new() })
    }

    /// A module that some page refers to, that is no lock, and that is not written yet.
    fn unwritten<T>(&self, written: &BTreeMap<String, T>) -> Option<String> {
        let is_new = |source: &&String| !self.locks.contains_key(*source) && !written.contains_key(*source);
        self.referred.keys().find(is_new).cloned()
    }

    /// What a module says, with links to pages, for the page of that name: a lock's, or else a part's.
    fn linked(&mut self, module: &Module, on: &str) -> Result<String> {
        let is_part = !self.locks.contains_key(&module.source);
        let Self { locks, referred } = self;
        module.linked(|file| {
            if file.starts_with("../") {
                return Some(if is_part { format!("../{file}") } else { file.to_owned() });
            }
            referred.entry(file.to_owned()).or_default().insert(on.to_owned());
            Some(match (locks.get(file), is_part) {
                // Locks that share a source share what it says, and their pages differ in a table.
                (Some(names), false) => format!("{}.md", names[0]),
                (Some(names), true) => format!("../{}.md", names[0]),
                (None, false) => format!("parts/{}", part_name(file)),
                (None, true) => part_name(file),
            })
        })
    }
}

/// What the page of a module is called.
fn part_name(source: &str) -> String {
    format!("{}.md", source.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "-"))
}

/// The page of a lock.
fn lock(row: &Row, module: &Module, book: &mut Book) -> Result<String> {
    let heading = module.heading.split_once(": ").map_or(module.heading.as_str(), |(_, rest)| rest);
    let body = book.linked(module, &text(row.get("name")))?;
    let lacking = lacking(&body);
    if !lacking.is_empty() {
        bail!("{SOURCES}/{}: its page lacks {}", module.source, lacking.join(", "));
    }
    let mut page = format!("{MADE}\n\n# {}: {heading}\n\n| | |\n|---|---|\n", name(row));
    for (field, what) in FACTS {
        let value = text(row.get(field));
        if !value.is_empty() {
            let _ = writeln!(page, "| {what} | {value} |");
        }
    }
    let source = format!("[Source](../../{SOURCES}/{})", module.source);
    let _ = write!(page, "\n{body}\n\n{}{source} · [all locks](../locks.md)\n", cannot(row));
    Ok(wrapped(&page))
}

/// The page of another module.
fn part(source: &str, heading: &str, body: &str, book: &Book) -> String {
    let locks: Vec<&str> =
        book.referred[source].iter().map(String::as_str).filter(|name| !name.ends_with(".md")).collect();
    let mut page = format!("{MADE}\n\n# {heading}\n\n");
    if !locks.is_empty() {
        let links: Vec<String> = locks.iter().map(|name| format!("[`{name}`](../{name}.md)")).collect();
        let _ = write!(page, "Referred to by {}.\n\n", links.join(", "));
    }
    let _ = write!(page, "{body}\n\n[Source](../../../{SOURCES}/{source}) · [all locks](../../locks.md)\n");
    wrapped(&page)
}

/// What a page must have in its text, and in its headings, if it is to say all that there is to say of a lock: the idea
/// in a picture, …
const IN_TEXT: [&str; 7] =
    ["**Problem.**", "**Idea.**", "**Source.**", "```text\n", "**Departures.**", "**Use it** ", "**Rather not** "];
const IN_HEADINGS: [&str; 3] = ["state", "invariants", "orderings"];

/// What a page lacks of that.
fn lacking(body: &str) -> Vec<&'static str> {
    let headings: Vec<String> = body.lines().filter(|line| line.starts_with("## ")).map(str::to_lowercase).collect();
    // A line may end within a label.
    let flat = body.replace('\n', " ").replace("```text ", "```text\n");
    let text = IN_TEXT.into_iter().filter(move |wanted| !flat.contains(wanted));
    let missing = |wanted: &&str| !headings.iter().any(|heading| heading.contains(wanted));
    text.chain(IN_HEADINGS.into_iter().filter(missing)).map(str::trim_end).collect()
}

/// Which of a lock's pages do not show, themselves or by the pages that their sections lead to, what [`IN_HEADINGS`]
/// asks for.
pub(super) fn unshown(pages: &Files) -> Vec<String> {
    let mut unshown = Vec::new();
    for path in pages.keys().filter(|path| path.parent() == Some(&workspace::path(DIRECTORY))) {
        let missing = IN_HEADINGS.into_iter().filter(|wanted| !shows(path, wanted, pages, &mut BTreeSet::new()));
        unshown.extend(missing.map(|wanted| format!("{}: shows no {wanted}", workspace::shown(path))));
    }
    unshown
}

/// Whether the sections of a page with such a heading, or those of a page that they lead to, hold a list, a table or a
/// picture, or say that there is nothing.
fn shows(path: &Path, wanted: &str, pages: &Files, seen: &mut BTreeSet<PathBuf>) -> bool {
    let Some(page) = pages.get(path).filter(|_| seen.insert(path.to_owned())) else { return false };
    let page = String::from_utf8_lossy(page);
    let has_heading = |section: &&str| section.lines().next().is_some_and(|line| line.to_lowercase().contains(wanted));
    page.split("\n## ").skip(1).filter(has_heading).any(|section| {
        let is_it = |line: &str| ["| ", "1. ", "```", "None"].into_iter().any(|start| line.starts_with(start));
        section.lines().skip(1).any(is_it)
            || links::targets(section).any(|target| shows(&links::joined(path, target), wanted, pages, seen))
    })
}

/// What the project's own tests except, and why.
fn cannot(row: &Row) -> String {
    let Some(Value::Array(exceptions)) = row.get("exceptions") else { return String::new() };
    if row.get("interposable") == Some(&Value::Bool(false)) {
        return "The project's test programs cannot be run under it.\n\n".to_owned();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_lacks_is_named() {
        let whole = "**Problem.** **Idea.** **Source.** **Departures.** **Use it** x **Rather not** y\n```text\n```\n\
                     ## State: 4 bytes\n## Invariants and orderings\n";
        assert_eq!(lacking(whole), Vec::<&str>::new());
        assert_eq!(lacking(&whole.replace("```", "")), ["```text"]);
        assert_eq!(lacking(&whole.replace("Invariants and", "Other")), ["invariants"]);
        assert_eq!(lacking("# State"), [&IN_TEXT.map(str::trim_end)[..], &IN_HEADINGS].concat());
    }

    #[test]
    fn what_is_shown_nowhere_is_named() {
        let pages = |part: &str| -> Files {
            let lock = "# x\n\n## State\n| a |\n\n## Invariants, orderings\nThose of [y](parts/y.md).\n";
            let part = format!("# y\n\n## Invariants\n1. One.\n{part}");
            let path = |name| workspace::path(DIRECTORY).join(name);
            [(path("x.md"), lock.into()), (path("parts/y.md"), part.into_bytes())].into()
        };
        assert_eq!(unshown(&pages("\n## Orderings\n| a |\n")), Vec::<String>::new());
        assert_eq!(unshown(&pages("\n## Orderings\nSee [x](../x.md).\n")), ["docs/locks/x.md: shows no orderings"]);
        assert_eq!(unshown(&pages("")), ["docs/locks/x.md: shows no orderings"]);
    }
}
