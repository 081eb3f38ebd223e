//! Whether the inside of the lock crate is as `docs/architecture.md` draws it.
//!
//! The picture is the block that begins with [`FENCE`]. A line shows a folder of the crate, `NAME/`, and some of what
//! is in it; a blank line goes a floor down. A folder may use those on its own floor and below. Here the imports of all
//! sources are compared with that: none may run upwards, and no two folders may import each other, directly or in a
//! circle. Test modules are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};

use super::modules::SOURCES;
use crate::workspace;

/// The page with the picture.
const PAGE: &str = "docs/architecture.md";
/// The line with which the picture begins.
const FENCE: &str = "```floors";

/// Files below [`SOURCES`], and what is in them.
type Sources = BTreeMap<String, String>;

/// What is wrong with the crate, or with the picture.
pub(super) fn faults() -> Result<Vec<String>> {
    let page = fs::read_to_string(workspace::path(PAGE)).context(PAGE)?;
    let mut sources = Sources::new();
    for name in workspace::files()?.iter().filter(|name| name.ends_with(".rs")) {
        let Some(file) = name.strip_prefix(SOURCES).and_then(|file| file.strip_prefix('/')) else { continue };
        // What was deleted, and is not committed, is listed as well.
        let Ok(text) = fs::read_to_string(workspace::path(name)) else { continue };
        sources.insert(file.to_owned(), text);
    }
    faults_in(&page, &sources)
}

fn faults_in(page: &str, sources: &Sources) -> Result<Vec<String>> {
    let picture = Picture::of(page).with_context(|| format!("{PAGE} has no block that begins with {FENCE}"))?;
    let mut faults = picture.faults(sources);
    let macros = exported(sources);
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, text) in sources.iter().filter(|(file, _)| file.contains('/') && !is_test(file, sources)) {
        let here = folder(&parts(file), sources);
        for path in imports(&parts(file), &code(text)) {
            // An exported macro is named as if it stood at the root.
            let path = macros.get(&path[0]).map_or(path, |home| parts(home));
            let (Some(from), Some(to)) = (picture.floor(&here), picture.floor(&path[0])) else { continue };
            if to > from {
                faults.push(format!("{SOURCES}/{file} imports {}, which stands above it", path.join("::")));
            }
            let there = folder(&path, sources);
            if to <= from && there != here {
                used.entry(here.clone()).or_default().insert(there);
            }
        }
    }
    faults.extend(circle(&used).map(|circle| format!("folders that import each other: {}", circle.join(" -> "))));
    Ok(faults)
}

/// What the page shows.
struct Picture {
    /// The folders of each floor, the lowest first, each with what is named in it.
    floors: Vec<Vec<(String, Vec<String>)>>,
}

impl Picture {
    fn of(page: &str) -> Option<Self> {
        let lines = page.lines().skip_while(|line| line.trim() != FENCE).skip(1).take_while(|line| *line != "```");
        let mut floors = vec![Vec::new()];
        for line in lines {
            match line.split_once('/') {
                None => floors.insert(0, Vec::new()),
                // What follows after two blanks or more is a remark.
                Some((name, rest)) => {
                    let named = rest.trim().split("  ").next().unwrap_or_default();
                    let named = named.split(" · ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
                    floors[0].push((name.to_owned(), named));
                }
            }
        }
        floors.iter().any(|floor| !floor.is_empty()).then_some(Self { floors })
    }

    /// On which floor a folder is, or the folder that it is in.
    fn floor(&self, folder: &str) -> Option<usize> {
        let name = folder.split('/').next()?;
        self.floors.iter().position(|floor| floor.iter().any(|(drawn, _)| drawn == name))
    }

    /// What is drawn and does not exist, and the folders that are not drawn.
    fn faults(&self, sources: &Sources) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, named) in self.floors.iter().flatten() {
            let exists = |path: &str| {
                sources.keys().any(|file| file == &format!("{path}.rs") || file.starts_with(&format!("{path}/")))
            };
            let paths = named.iter().map(|inside| format!("{name}/{inside}")).chain([name.clone()]);
            faults
                .extend(paths.filter(|path| !exists(path)).map(|path| format!("{PAGE} draws {path}: no such module")));
        }
        let folders: BTreeSet<&str> = sources.keys().filter_map(|file| Some(file.split_once('/')?.0)).collect();
        let missing = folders.into_iter().filter(|folder| self.floor(folder).is_none());
        faults.extend(missing.map(|folder| format!("{PAGE} does not draw {SOURCES}/{folder}")));
        faults
    }
}

/// The path of a file's module.
fn parts(file: &str) -> Vec<String> {
    let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
    module.split('/').map(str::to_owned).collect()
}

/// The folder that a path leads into: one of the crate's, or one within that.
fn folder(path: &[String], sources: &Sources) -> String {
    let inner = path.get(1).map(|inner| format!("{}/{inner}", path[0]));
    let exists = |folder: &String| sources.keys().any(|file| file.starts_with(&format!("{folder}/")));
    inner.filter(exists).unwrap_or_else(|| path[0].clone())
}

/// The macros that the crate exports, and the files where they are.
fn exported(sources: &Sources) -> BTreeMap<String, &str> {
    let mut macros = BTreeMap::new();
    for (file, text) in sources {
        for behind in text.split("#[macro_export]\nmacro_rules! ").skip(1) {
            let name = behind.split(|c: char| !is_name(c)).next().unwrap_or_default();
            macros.insert(name.to_owned(), file.as_str());
        }
    }
    macros
}

/// Whether the module of a file is compiled for tests only.
fn is_test(file: &str, sources: &Sources) -> bool {
    let Some((folder, name)) = file.trim_end_matches(".rs").rsplit_once('/') else { return false };
    let Some(parent) = sources.get(&format!("{folder}/mod.rs")) else { return false };
    let marked = |line: &str| line.trim_start_matches("pub(crate) ") == format!("mod {name};");
    parent.split("#[cfg(test)]\n").skip(1).any(|behind| behind.lines().next().is_some_and(marked))
}

/// A text without its comments and its test module.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The paths that the code of a module uses, as seen from the crate's root.
fn imports(module: &[String], code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (root, from) in [("crate::", &[][..]), ("super::", &module[..module.len() - 1])] {
        for (at, _) in code.match_indices(root) {
            let is_part = code[..at].ends_with(|c| is_name(c) || c == ':');
            if !is_part {
                tree(&code[at + root.len()..], from.to_vec(), &mut found);
            }
        }
    }
    found.retain(|path| !path.is_empty());
    found
}

/// The paths of a tree such as `a::{b, c::{d, e}}`; what is behind it.
fn tree<'a>(mut text: &'a str, mut path: Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    loop {
        text = text.trim_start();
        if let Some(mut inner) = text.strip_prefix('{') {
            loop {
                inner = tree(inner, path.clone(), found).trim_start();
                match inner.strip_prefix(',') {
                    Some(rest) => inner = rest,
                    None => return inner.strip_prefix('}').unwrap_or(inner),
                }
            }
        }
        let length = text.find(|c| !is_name(c)).unwrap_or(text.len());
        let (name, rest) = text.split_at(length);
        if name == "super" {
            path.pop();
        } else if !name.is_empty() {
            path.push(name.to_owned());
        }
        match rest.strip_prefix("::") {
            Some(rest) if !name.is_empty() => text = rest,
            _ => {
                found.push(path);
                return rest;
            }
        }
    }
}

/// Folders that import each other in a circle: the first one that is found, which ends where it began.
fn circle(used: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk(
        here: &str,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
        used: &BTreeMap<String, BTreeSet<String>>,
    ) -> bool {
        let began = way.iter().position(|folder| folder == here);
        way.push(here.to_owned());
        if let Some(began) = began {
            way.drain(..began);
            return true;
        }
        if done.insert(here.to_owned()) && used.get(here).into_iter().flatten().any(|next| walk(next, way, done, used))
        {
            return true;
        }
        way.pop();
        false
    }
    let mut done = BTreeSet::new();
    used.keys().find_map(|folder| {
        let mut way = Vec::new();
        walk(folder, &mut way, &mut done, used).then_some(way)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURE: &str = "x\n```floors\nlist/   \n\nlock/   spin · queue     one page\nrw/\n\npart/   wait\n```\n";

    fn sources(more: &[(&str, &str)]) -> Sources {
        let plain = [
            ("list/mod.rs", "#[macro_export]\nmacro_rules! each {}\nuse crate::lock::{spin::Tas, queue};"),
            ("lock/spin/mod.rs", "//! as [`x`](crate::list)\nuse crate::part::wait;\n"),
            ("lock/queue.rs", "use crate::part::wait::{self, Spin};"),
            ("rw/mod.rs", "use crate::lock::queue;"),
            ("part/wait.rs", "use super::x;\n#[cfg(test)]\nmod tests {\n    use crate::list;\n}"),
        ];
        plain.iter().chain(more).map(|(file, text)| (String::from(*file), String::from(*text))).collect()
    }

    fn found(more: &[(&str, &str)]) -> Vec<String> {
        faults_in(PICTURE, &sources(more)).expect("a picture")
    }

    #[test]
    fn the_crate_is_as_it_is_drawn() {
        assert_eq!(faults().expect("readable"), [""; 0]);
    }

    #[test]
    fn imports_run_down_or_along_a_floor() {
        assert_eq!(found(&[]), [""; 0]);
    }

    #[test]
    fn an_import_that_runs_upwards_is_named() {
        for import in [
            "use crate::lock::queue;",
            "use crate::{part::wait, lock::queue};",
            "fn f() { super::super::lock::queue::x() }",
        ] {
            let found = found(&[("part/list.rs", import)]);
            let expected = format!("{SOURCES}/part/list.rs imports lock::queue");
            assert!(found.len() == 1 && found[0].starts_with(&expected), "{import}: {found:?}");
        }
        let found = found(&[("part/list.rs", "crate::each!(x);")]);
        assert_eq!(found, [format!("{SOURCES}/part/list.rs imports list, which stands above it")]);
    }

    #[test]
    fn a_circle_is_named() {
        let circular = [("lock/a/x.rs", "use crate::lock::b::Y;"), ("lock/b/y.rs", "use crate::rw::Z;")];
        assert_eq!(found(&circular), [""; 0]);
        let closing = [&circular[..], &[("rw/z.rs", "use crate::lock::a::x;")]].concat();
        assert_eq!(found(&closing), ["folders that import each other: lock/a -> lock/b -> rw -> lock/a"]);
    }

    #[test]
    fn modules_for_tests_may_use_anything() {
        let bench = ("part/bench.rs", "use crate::list::x;");
        assert_eq!(found(&[bench]).len(), 1);
        assert_eq!(found(&[bench, ("part/mod.rs", "#[cfg(test)]\npub(crate) mod bench;\nmod wait;")]), [""; 0]);
    }

    #[test]
    fn the_picture_shows_what_there_is() {
        assert_eq!(found(&[("cond/mod.rs", "")]), [format!("{PAGE} does not draw {SOURCES}/cond")]);
        let mut sources = sources(&[]);
        sources.remove("lock/queue.rs");
        let found = faults_in(PICTURE, &sources).expect("a picture");
        assert_eq!(found, [format!("{PAGE} draws lock/queue: no such module")]);
        assert!(faults_in("no picture", &sources).is_err());
    }
}
