//! Whether the links of the documents lead somewhere: to a file that is there, and to a heading in it.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use anyhow::Result;

use super::{Files, read_directory};
use crate::workspace;

/// All documents, where some are to be as in `wanted`: in [`workspace::root`], and in `docs`, `examples` and `kernel`
/// and below.
pub(super) fn documents(wanted: &Files) -> Result<Files> {
    let mut files = Files::new();
    let mut directories = vec![workspace::root()];
    while let Some(directory) = directories.pop() {
        files.extend(read_directory(&directory)?.into_iter().filter(|(path, _)| is_document(path)));
        if directory == workspace::root() {
            directories.extend(["docs", "examples", "kernel"].map(workspace::path));
        } else {
            let below = std::fs::read_dir(&directory)?.collect::<Result<Vec<_>, _>>()?;
            directories.extend(below.into_iter().map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
    }
    files.extend(wanted.iter().map(|(path, bytes)| (path.clone(), bytes.clone())));
    Ok(files)
}

fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// What is wrong with the links of these documents, a line for each.
pub(super) fn broken(documents: &Files) -> Vec<String> {
    let texts: BTreeMap<&PathBuf, String> =
        documents.iter().map(|(path, bytes)| (path, String::from_utf8_lossy(bytes).into_owned())).collect();
    let mut broken = Vec::new();
    for (path, text) in &texts {
        let prose = prose(text);
        for target in targets(&prose) {
            if !leads_somewhere(target, path, &texts) {
                broken.push(format!("{}: the link to {target} leads nowhere", workspace::shown(path)));
            }
        }
        for rest in prose.split("[`").skip(1) {
            let Some((label, behind)) = rest.split_once("`]") else { continue };
            if !label.contains(['\n', '`']) && !behind.starts_with('(') {
                broken.push(format!("{}: [`{label}`] is left of a link in the code", workspace::shown(path)));
            }
        }
    }
    broken
}

/// A document without its pictures, in which brackets are no links.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect::<Vec<_>>().join("\n")
}

/// Where the links of a text lead.
pub(super) fn targets(prose: &str) -> impl Iterator<Item = &str> {
    let behind = prose.split("](").skip(1);
    behind.filter_map(|behind| behind.split_once(')')).map(|(target, _)| target)
}

fn leads_somewhere(target: &str, from: &Path, texts: &BTreeMap<&PathBuf, String>) -> bool {
    if target.contains("://") {
        return true;
    }
    let (file, heading) = target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    let path = if file.is_empty() { from.to_owned() } else { joined(from, file) };
    match (texts.get(&path), heading) {
        (Some(text), Some(heading)) => anchors(text).any(|anchor| anchor == heading),
        (None, Some(_)) => false,
        (Some(_), None) => true,
        // A page that the program no longer makes is about to go.
        (None, None) => path.exists() && !is_document(&path),
    }
}

/// The file that a link leads to, without `..`.
pub(super) fn joined(from: &Path, file: &str) -> PathBuf {
    let mut path = from.parent().unwrap_or(from).to_owned();
    for component in Path::new(file).components() {
        match component {
            Component::ParentDir => _ = path.pop(),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// The headings of a document, as links name them.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings.map(|heading| {
        let kept = heading.chars().filter(|&c| c.is_alphanumeric() || "-_ ".contains(c));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let path = |name: &&str| workspace::path("docs/locks").join(name);
        broken(&pages.iter().map(|(name, text)| (path(name), text.as_bytes().to_vec())).collect())
    }

    #[test]
    fn links_to_what_is_there_are_not_broken() {
        let a = "# A\n[b](parts/b.md) [`c`](https://x.org/c.md#d) [d](#what-is-it) [e](parts/b.md#the-b_s-head)\n\
                 ## What is it?\n";
        let pages = [
            ("a.md", a),
            ("parts/b.md", "## The `b_s` head\n[a](../a.md) [x](../../../Cargo.toml) [y](../../../xtask)"),
        ];
        assert_eq!(found(&pages), Vec::<String>::new());
    }

    #[test]
    fn links_to_nothing_are_named() {
        for text in
            ["[a](super::shfl)", "[a](b.md)", "[a](#b)", "[`a`](../../no/file.rs)", "[a](a.md#b)", "see [`a`] there"]
        {
            let found = found(&[("a.md", text)]);
            assert!(found.len() == 1 && found[0].starts_with("docs/locks/a.md: "), "{text}: {found:?}");
        }
        assert_eq!(found(&[("a.md", "```text\n[`a`] [a](b.md)\n```\n")]), Vec::<String>::new());
    }
}
