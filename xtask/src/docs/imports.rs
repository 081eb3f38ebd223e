//! What the modules of a crate import, as far as it can be read off their sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::Result;

use crate::workspace;

/// Files below a folder, and what is in them.
pub(super) type Sources = BTreeMap<String, String>;

/// The Rust files below this folder.
pub(super) fn sources_below(folder: &str) -> Result<Sources> {
    let mut sources = Sources::new();
    for name in workspace::files()?.iter().filter(|name| name.ends_with(".rs")) {
        let Some(file) = name.strip_prefix(folder).and_then(|file| file.strip_prefix('/')) else { continue };
        // What was deleted, and is not committed, is listed as well.
        let Ok(text) = fs::read_to_string(workspace::path(name)) else { continue };
        sources.insert(file.to_owned(), text);
    }
    Ok(sources)
}

/// The path of a file's module.
pub(super) fn parts(file: &str) -> Vec<String> {
    let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
    module.split('/').map(str::to_owned).collect()
}

/// Whether the module of a file is compiled for tests only.
pub(super) fn is_test(file: &str, sources: &Sources) -> bool {
    let Some((folder, name)) = file.trim_end_matches(".rs").rsplit_once('/') else { return false };
    let Some(parent) = [format!("{folder}/mod.rs"), format!("{folder}.rs")].iter().find_map(|file| sources.get(file))
    else {
        return false;
    };
    let marked = |line: &str| line.trim_start_matches("pub(crate) ") == format!("mod {name};");
    parent.split("#[cfg(test)]\n").skip(1).any(|behind| behind.lines().next().is_some_and(marked))
}

/// A text without its comments and its test module.
pub(super) fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

pub(super) fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The paths that the code of a module uses, as seen from the crate's root.
pub(super) fn imports(module: &[String], code: &str) -> Vec<Vec<String>> {
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

/// The names that a module passes on from modules inside it (`pub use`), and where they come from: paths, as seen from
/// the crate's root.
pub(super) fn passed_on(module: &[String], code: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let mut found = Vec::new();
    for line in code.split('\n').filter(|line| line.starts_with("pub")) {
        let Some((_, names)) = line.split_once(" use ") else { continue };
        let at = names.as_ptr().addr() - code.as_ptr().addr();
        if !["crate::", "super::"].iter().any(|root| names.starts_with(root)) {
            tree(&code[at..], module.to_vec(), &mut found);
        }
    }
    let name = |path: &Vec<String>| [module, path.last().map_or(&[][..], std::slice::from_ref)].concat();
    found.into_iter().map(|path| (name(&path), path)).collect()
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

/// Modules that import each other in a circle: the first one that is found, which ends where it began.
pub(super) fn circle(used: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk(
        here: &str,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
        used: &BTreeMap<String, BTreeSet<String>>,
    ) -> bool {
        let began = way.iter().position(|module| module == here);
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
    used.keys().find_map(|module| {
        let mut way = Vec::new();
        walk(module, &mut way, &mut done, used).then_some(way)
    })
}
