//! The licences of the crates that are linked into the command and the library: they want their texts to go with each
//! copy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::files;
use crate::workspace;

const FILE: &str = "THIRD-PARTY-LICENSES";
/// What is shipped.
const ROOTS: [&str; 3] = ["flashlock-cli", "flashlock-preload", super::embedded::PACKAGE];
const LIMIT: Duration = Duration::from_secs(600);
const HEAD: &str =
    "The flashlock command and its preload library contain code of the Rust standard library (MIT OR Apache-2.0,
copyright The Rust Project Contributors) and of the crates below, under these licences. A text that several
crates have in common is given once.
";

/// A crate.
struct Crate {
    /// Its name and version.
    title: String,
    licence: String,
    texts: Vec<String>,
}

/// Writes the file, and says where it is.
pub(super) fn write_into(directory: &Path) -> Result<PathBuf> {
    let arguments = ["metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"];
    let metadata = workspace::cargo(&arguments, LIMIT)?;
    let metadata: Value = serde_json::from_str(&metadata).context("cannot read `cargo metadata`")?;
    let file = directory.join(FILE);
    files::write(&file, page(&linked(&metadata)?)?)?;
    Ok(file)
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// The packages that [`ROOTS`] are linked with, directly and indirectly; neither ours, nor what runs in the compiler.
fn linked(metadata: &Value) -> Result<Vec<Crate>> {
    let packages: BTreeMap<&str, &Value> =
        list(metadata, "packages").iter().map(|package| (text(package, "id"), package)).collect();
    let nodes: BTreeMap<&str, &Value> =
        list(&metadata["resolve"], "nodes").iter().map(|node| (text(node, "id"), node)).collect();
    let is_in_compiler = |package: &Value| {
        list(package, "targets").iter().any(|target| list(target, "kind").contains(&Value::from("proc-macro")))
    };
    let is_normal = |edge: &&Value| list(edge, "dep_kinds").iter().any(|kind| kind["kind"].is_null());
    let mut todo: Vec<&str> =
        packages.iter().filter(|(_, package)| ROOTS.contains(&text(package, "name"))).map(|(&id, _)| id).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = todo.pop() {
        let package = *packages.get(id).with_context(|| format!("`cargo metadata` knows no package {id}"))?;
        if is_in_compiler(package) || !seen.insert(id) {
            continue;
        }
        let node = *nodes.get(id).with_context(|| format!("`cargo metadata` does not resolve {id}"))?;
        todo.extend(list(node, "deps").iter().filter(is_normal).map(|edge| text(edge, "pkg")));
    }
    let foreign = seen.into_iter().map(|id| packages[id]).filter(|package| !package["source"].is_null());
    foreign.map(described).collect()
}

fn described(package: &Value) -> Result<Crate> {
    let directory = Path::new(text(package, "manifest_path")).parent().context("a manifest outside any directory")?;
    let title = format!("{} {}", text(package, "name"), text(package, "version"));
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in directory.read_dir().with_context(|| format!("{title}: {}", directory.display()))? {
        let path = entry?.path();
        let name = super::layout::name(&path).to_uppercase();
        let is_licence =
            ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"].iter().any(|word| name.starts_with(word));
        if is_licence && path.is_file() {
            files.push(path);
        }
    }
    files.sort_unstable();
    let texts = files.iter().map(|file| files::read(file)).collect::<Result<Vec<_>>>()?;
    let licence = text(package, "license").to_owned();
    if licence.is_empty() && texts.is_empty() {
        bail!("{title} states no licence: it cannot be shipped");
    }
    Ok(Crate { title, licence, texts })
}

/// The crates in order; each text where it comes first.
fn page(crates: &[Crate]) -> Result<String> {
    let mut page = HEAD.to_owned();
    let mut given: BTreeMap<&str, &str> = BTreeMap::new();
    for one in crates {
        let line = "-".repeat(80);
        write!(page, "\n{line}\n{}: {}\n{line}\n", one.title, one.licence)?;
        for text in &one.texts {
            match given.get(text.trim()) {
                Some(other) => writeln!(page, "\n(a text that stands at {other})")?,
                None => write!(page, "\n{}\n", text.trim())?,
            }
            given.entry(text.trim()).or_insert(&one.title);
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(title: &str, texts: &[&str]) -> Crate {
        Crate { title: title.into(), licence: "MIT".into(), texts: texts.iter().map(|&text| text.into()).collect() }
    }

    #[test]
    fn a_text_is_given_once() {
        let page = page(&[crate_of("a 1", &["one\n"]), crate_of("b 2", &["one", "two"])]).expect("a page");
        assert_eq!(page.matches("\none\n").count(), 1);
        assert!(page.contains("b 2: MIT") && page.contains("(a text that stands at a 1)") && page.contains("\ntwo\n"));
    }
}
