//! What a module of the lock crate begins with, and where the links in it lead: rustdoc's lead to other modules, and to
//! items in them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Where modules are.
pub(super) const SOURCES: &str = "crates/locks/src";

/// A module: its file below [`SOURCES`], its code, the heading of its documentation and the rest of that.
pub(super) struct Module {
    pub(super) source: String,
    code: String,
    pub(super) heading: String,
    pub(super) body: String,
}

impl Module {
    /// Reads it.
    pub(super) fn read(source: &str) -> Result<Self> {
        Self::of(source, code(source)?).with_context(|| format!("{SOURCES}/{source} does not begin with a heading"))
    }

    fn of(source: &str, code: String) -> Option<Self> {
        let lines = code.lines().map_while(|line| line.strip_prefix("//!"));
        let mut lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
        let heading = lines.next()?.strip_prefix("# ")?.to_owned();
        let body = lines.collect::<Vec<_>>().join("\n").trim().to_owned();
        Some(Self { source: source.to_owned(), heading, body, code })
    }

    /// The rest of its documentation, with links that lead to pages: `page` says which one is a module's, if it is not
    /// this one's; or where a document is, `../NAME.md` as seen from a lock's page.
    pub(super) fn linked(&self, mut page: impl FnMut(&str) -> Option<String>) -> Result<String> {
        let (body, named) = without_definitions(&self.body);
        let mut linked = String::new();
        for (number, part) in body.split("```").enumerate() {
            if number % 2 == 1 {
                let _ = write!(linked, "```{part}```");
            } else {
                linked += &self.with_links(part, &named, &mut page)?;
            }
        }
        Ok(linked)
    }

    /// A text without pictures, with its links led to pages.
    fn with_links(
        &self,
        text: &str,
        named: &BTreeMap<String, String>,
        page: &mut impl FnMut(&str) -> Option<String>,
    ) -> Result<String> {
        let (mut linked, mut rest) = (String::new(), text);
        while let Some(at) = rest.find('[') {
            linked += &rest[..at];
            let Some(link) = Link::at(&rest[at..], named) else {
                linked.push('[');
                rest = &rest[at + 1..];
                continue;
            };
            let file = match link.target {
                Some(document) if document.starts_with("../") => Some(document.to_owned()),
                Some(target) => self.file(target)?,
                None => self.near(link.label.trim_matches('`')),
            };
            let label = link.label.replacen("mod@", "", 1);
            match file.and_then(|file| page(&file)) {
                Some(page) => _ = write!(linked, "[{label}]({page})"),
                None => linked += &label,
            }
            rest = &rest[at + link.length..];
        }
        Ok(linked + rest)
    }

    /// The names of the modules above it, and its own.
    fn path(&self) -> Vec<&str> {
        self.source.trim_end_matches(".rs").trim_end_matches("/mod").split('/').collect()
    }

    /// The file of the module that a path leads to, or in which the item is that it leads to; none if that is this one.
    fn file(&self, target: &str) -> Result<Option<String>> {
        let mut path = self.path();
        for part in target.split("::") {
            match part {
                "crate" => path.clear(),
                "Self" => {}
                "super" => _ = path.pop(),
                part => path.push(part),
            }
        }
        let mut item = None;
        while !path.is_empty() {
            if let Some(file) = file(&path) {
                let is_itself = file == self.source;
                let code = if is_itself { self.code.clone() } else { code(&file)? };
                if item.is_some_and(|item| !names(&code, item)) {
                    break;
                }
                return Ok((!is_itself).then_some(file));
            }
            item = path.pop();
        }
        bail!("{SOURCES}/{}: the link to `{target}` leads to no module, and to nothing in one", self.source)
    }

    /// The file of a module that is named without a path: one within this one, one beside it whose items it uses, or
    /// one that it imports. Else it is an item.
    fn near(&self, name: &str) -> Option<String> {
        let name = name.trim_start_matches("mod@");
        let path = self.path();
        let beside = || file(&[&path[..path.len() - 1], &[name]].concat());
        let beside = || beside().filter(|_| names(&self.code, &format!("{name}::")));
        file(&[&path[..], &[name]].concat())
            .or_else(beside)
            .or_else(|| self.imported(name))
            .filter(|file| *file != self.source)
    }

    /// The file of a module of the crate that is imported by this name, or that has the imported item of its own name.
    fn imported(&self, name: &str) -> Option<String> {
        let imports = self.code.split(';').filter_map(|statement| statement.rsplit_once("use crate::"));
        imports.into_iter().find_map(|(_, import)| {
            let (path, items) = import.split_once('{').or_else(|| import.rsplit_once("::")).unwrap_or(("", import));
            items.split([',', '}']).any(|item| item.trim() == name).then_some(())?;
            let path: Vec<&str> = path.split("::").filter(|part| !part.is_empty()).collect();
            let module = [&path[..], &[name]].concat();
            file(&module).or_else(|| if path.last() == Some(&name) { file(&path) } else { None })
        })
    }
}

/// Whether code has such a name in it, comments apart.
fn names(code: &str, item: &str) -> bool {
    code.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(item.trim_end_matches('!')))
}

fn code(source: &str) -> Result<String> {
    let path = format!("{SOURCES}/{source}");
    fs::read_to_string(workspace::path(&path)).context(path)
}

/// The file of the module of that path.
fn file(path: &[&str]) -> Option<String> {
    let module = path.join("/");
    let is_file = |file: &String| workspace::path(SOURCES).join(file).is_file();
    [format!("{module}.rs"), format!("{module}/mod.rs")].into_iter().find(is_file)
}

/// A link of rustdoc's. One to a web page is none.
struct Link<'a> {
    label: &'a str,
    /// The path, if the label is not all there is.
    target: Option<&'a str>,
    length: usize,
}

impl<'a> Link<'a> {
    /// The one with which a text begins: `[label](path)`, or `` [`path`] ``, or a label whose path is in the list.
    fn at(text: &'a str, named: &'a BTreeMap<String, String>) -> Option<Self> {
        let (label, behind) = text.strip_prefix('[')?.split_once(']')?;
        if label.contains('[') || label.contains("\n\n") {
            return None;
        }
        if let Some((target, _)) = behind.strip_prefix('(').and_then(|behind| behind.split_once(')')) {
            let length = label.len() + target.len() + "[]()".len();
            return (!target.contains("://")).then_some(Self { label, target: Some(target), length });
        }
        let length = label.len() + "[]".len();
        if let Some(target) = named.get(label) {
            return Some(Self { label, target: Some(target), length });
        }
        let is_code = label.len() > 2 && label.starts_with('`') && label.ends_with('`');
        is_code.then_some(Self { label, target: None, length })
    }
}

/// A text without its lines `[label]: path`, and those.
fn without_definitions(text: &str) -> (String, BTreeMap<String, String>) {
    let mut named = BTreeMap::new();
    let mut lines = Vec::new();
    for line in text.lines() {
        match line.strip_prefix('[').and_then(|line| line.split_once("]: ")) {
            Some((label, target)) => _ = named.insert(label.to_owned(), target.to_owned()),
            None => lines.push(line),
        }
    }
    (lines.join("\n").trim_end().to_owned(), named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(source: &str, body: &str) -> Module {
        let code = format!(
            "//! # {source}\n{}\nuse crate::parts::settle::{{a, settle}};\nuse crate::parts::shuffle::shuffler;\n\
             fn HELD() {{ line::x(wait::y) }}",
            body.replace('\n', "\n//! ").replacen("", "//! ", 1)
        );
        Module::of(source, code).expect("a heading")
    }

    /// Its text, where the page of a module is its file in brackets.
    fn linked(source: &str, body: &str) -> Result<String> {
        module(source, body).linked(|file| Some(format!("<{file}>")))
    }

    #[test]
    fn a_module_begins_with_a_heading() {
        let code = "//! # TAS: polite\n//!\n//! **Idea.** x\n//! ## State\n\nuse x;\n//! no";
        let module = Module::of("mutex/spin/tas.rs", code.to_owned()).expect("a heading");
        assert_eq!((module.heading.as_str(), module.body.as_str()), ("TAS: polite", "**Idea.** x\n## State"));
        assert!(Module::of("mutex/spin/tas.rs", "use x;".to_owned()).is_none());
    }

    #[test]
    fn links_to_modules_and_their_items_lead_to_their_pages() {
        for (source, body, expected) in [
            (
                "mutex/numa/cna.rs",
                "as [`aside`](crate::parts::queue::culling), so",
                "as [`aside`](<parts/queue/culling.rs>), so",
            ),
            ("mutex/malthusian/mcscrn.rs", "[MCSCR](super::mcscr) is", "[MCSCR](<mutex/malthusian/mcscr.rs>) is"),
            ("mutex/numa/hmcs.rs", "a [cohort\nlock](super::cohort)", "a [cohort\nlock](<mutex/numa/cohort/mod.rs>)"),
            ("mutex/numa/cna.rs", "[`X`](crate::parts::wait::left::MAX)", "[`X`](<parts/wait/left.rs>)"),
            (
                "mutex/queue/qspin/mod.rs",
                "in [`mod@line`], [`wait`]",
                "in [`line`](<mutex/queue/qspin/line.rs>), [`wait`](<mutex/queue/qspin/wait.rs>)",
            ),
            ("mutex/numa/cohort/mod.rs", "those of [`settle`]", "those of [`settle`](<parts/settle.rs>)"),
            (
                "parts/policy/mod.rs",
                "the [shuffler] is\n\n[shuffler]: crate::parts::shuffle::shuffler",
                "the [shuffler](<parts/shuffle/shuffler.rs>) is",
            ),
            (
                "mutex/shuffle/spin.rs",
                "reordered: [`shuffler`]",
                "reordered: [`shuffler`](<parts/shuffle/shuffler.rs>)",
            ),
            ("mutex/queue/mcs.rs", "[`front`], [`HELD`], [`H`](Self::HELD)", "`front`, `HELD`, `H`"),
            ("mutex/queue/mcs.rs", "[models](../models.md#why)", "[models](<../models.md#why>)"),
        ] {
            assert_eq!(linked(source, body).expect(body), expected);
        }
    }

    #[test]
    fn a_link_that_leads_nowhere_is_an_error() {
        for target in ["super::no_such_lock", "crate::parts::wait::left::NO_SUCH_ITEM", "nowhere.md"] {
            let error = linked("mutex/queue/mcs.rs", &format!("[x]({target})")).expect_err(target);
            assert!(error.to_string().contains(target), "{error}");
        }
    }

    #[test]
    fn brackets_that_are_no_links_stay() {
        for body in ["next ─> [A] ──> [B]", "a[`b", "[x](https://example.org)", "see [`x`](https://a.org) now"] {
            assert_eq!(linked("mutex/queue/mcs.rs", body).expect(body), body);
        }
        let picture = "a\n```text\n [`b`](super::c)\n```\nd";
        assert_eq!(linked("mutex/queue/mcs.rs", picture).expect(picture), picture);
    }
}
