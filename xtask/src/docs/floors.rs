//! Whether the inside of the lock crate is as `docs/architecture.md` draws it.
//!
//! The picture is the block that begins with [`FENCE`]. A line shows a folder of the crate, `NAME/`, and some of what
//! is in it; a blank line goes a floor down. A folder may use those on its own floor and below. Here the imports of all
//! sources are compared with that: none may run upwards, and no two folders may import each other, directly or in a
//! circle. Test modules are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};

use super::imports::{Sources, circle, code, imports, is_name, is_test, parts, sources_below};
use super::modules::SOURCES;
use crate::workspace;

/// The page with the picture.
const PAGE: &str = "docs/architecture.md";
/// The line with which the picture begins.
const FENCE: &str = "```floors";

/// What is wrong with the crate, or with the picture.
pub(super) fn faults() -> Result<Vec<String>> {
    let page = fs::read_to_string(workspace::path(PAGE)).context(PAGE)?;
    faults_in(&page, &sources_below(SOURCES)?)
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
