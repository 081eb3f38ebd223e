//! **The list of what is installed, and where.** A new kind of file (a header, a library to link with) is a line of
//! [`files()`].

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::build::Built;
use super::{generated, licences, make_directory, permit};
use crate::child::{AGAINST_HANGS, Program};
use crate::files;
use crate::workspace;

/// Where the library is. The command looks for it there, relative to its own place (`cli/src/preload.rs`).
pub(super) const LIBRARIES: &str = "lib/flashlock";
/// The documents.
pub(super) const DOCUMENTS: &str = "share/doc/flashlock";
/// The man pages.
pub(super) const MAN: &str = "share/man/man1";
/// Where zsh looks. (Debian's packages: `vendor-completions`.)
pub(super) const ZSH: &str = "share/zsh/site-functions";

const BASH: &str = "share/bash-completion/completions";
const FISH: &str = "share/fish/vendor_completions.d";

/// Small programs for the first steps. That in Rust is to be read: it is built inside the tree only.
const EXAMPLES: [&str; 3] = ["examples/counter.c", "examples/queue.cpp", "examples/embed/src/main.rs"];
/// What the root of the tree and the examples say, and the licences.
const TEXTS: [&str; 8] = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "examples/README.md",
    "examples/kv-server/README.md",
];
/// The pages that the command, the man pages and `CHANGELOG.md` refer to, with all pages that they link to. Links into
/// the source lead nowhere.
const PAGES: &str = "docs";

/// A file of an installation.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// Where it is now.
    pub(super) from: PathBuf,
    /// Where it is to be, below the prefix.
    pub(super) to: String,
    pub(super) mode: u32,
    /// A symbolic link; `from` is what it says.
    pub(super) is_link: bool,
}

impl File {
    pub(super) fn new(from: impl Into<PathBuf>, to: impl Into<String>) -> Self {
        Self { from: from.into(), to: to.into(), mode: 0o644, is_link: false }
    }

    /// A symbolic link that says this.
    pub(super) fn link(says: impl Into<PathBuf>, to: impl Into<String>) -> Self {
        Self { is_link: true, ..Self::new(says, to) }
    }

    fn executable(mut self) -> Self {
        self.mode = 0o755;
        self
    }

    /// Below a directory, with its own name.
    pub(super) fn into(directory: &str, from: impl Into<PathBuf>) -> Self {
        let from = from.into();
        let to = format!("{directory}/{}", name(&from));
        Self::new(from, to)
    }
}

/// A path's last part.
pub(super) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Everything that is installed.
pub(super) fn files(built: &Built) -> Result<Vec<File>> {
    let mut files = vec![
        File::into("bin", &built.command).executable(),
        File::into(LIBRARIES, &built.library),
        File::into(DOCUMENTS, licences::write_into(&generated("licences")?)?),
    ];
    files.extend(made_by(built, "man")?.into_iter().map(|page| File::into(MAN, page)));
    for completions in made_by(built, "completions")? {
        let (directory, called) = match name(&completions).as_str() {
            "_flashlock" => (ZSH, "_flashlock"),
            "flashlock.fish" => (FISH, "flashlock.fish"),
            // bash-completion looks for a file with the command's name.
            _ => (BASH, "flashlock"),
        };
        files.push(File::new(completions, format!("{directory}/{called}")));
    }
    files.extend(built.embedded.files()?);
    let documents = TEXTS.into_iter().chain(EXAMPLES).map(str::to_owned).chain(pages(PAGES)?);
    files.extend(documents.map(|document| File::new(workspace::path(&document), format!("{DOCUMENTS}/{document}"))));
    files.sort_by(|one, other| one.to.cmp(&other.to));
    Ok(files)
}

/// The pages below a directory of the tree, and their pictures.
fn pages(directory: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in workspace::path(directory).read_dir().with_context(|| format!("cannot read {directory}"))? {
        let entry = entry?;
        let path = format!("{directory}/{}", entry.file_name().to_string_lossy());
        match entry.file_type()?.is_dir() {
            true => found.extend(pages(&path)?),
            false if path.ends_with(".md") || path.ends_with(".svg") => found.push(path),
            false => {}
        }
    }
    Ok(found)
}

/// What `flashlock generate KIND` writes.
fn made_by(built: &Built, kind: &str) -> Result<Vec<PathBuf>> {
    let directory = generated(kind)?;
    let mut command = Command::new(&built.command);
    command.args(["generate", kind]).arg(&directory);
    Program::new(command, AGAINST_HANGS).run()?.successful()?;
    let mut files = directory.read_dir()?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort_unstable();
    Ok(files)
}

/// Copies the files below a directory; the directories that had to be made, the outer ones first.
///
/// Each is written beside its place and then moved there, for a library in use must not be written to: programs have it
/// mapped.
pub(crate) fn place(files: &[File], below: &Path) -> Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    for file in files {
        let to = below.join(&file.to);
        let directory = to.parent().unwrap_or(below);
        made.extend(make_directory(directory)?);
        let beside = directory.join(format!(".{}.new", name(&to)));
        let copy = || -> Result<()> {
            if file.is_link {
                // One may have been left over.
                let _ = std::fs::remove_file(&beside);
                symlink(&file.from, &beside).with_context(|| format!("cannot write {}", beside.display()))?;
                return std::fs::rename(&beside, &to).with_context(|| format!("cannot write {}", to.display()));
            }
            files::write(
                &beside,
                std::fs::read(&file.from).with_context(|| format!("cannot read {}", file.from.display()))?,
            )?;
            permit(&beside, file.mode)?;
            std::fs::rename(&beside, &to).with_context(|| format!("cannot write {}", to.display()))
        };
        if let Err(error) = copy() {
            // It may not even exist.
            let _ = std::fs::remove_file(&beside);
            return Err(error);
        }
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Links below these lead into the source.
    const SOURCE: [&str; 3] = ["crates/", "tests/", "kernel/"];

    #[test]
    fn what_documents_refer_to_is_installed() {
        let pages = pages(PAGES).expect("pages");
        for page in ["docs/fidelity.md", "docs/simulate.md", "docs/limits.md", "docs/delegation.md"] {
            assert!(pages.iter().any(|found| found == page), "{page}");
        }
        for text in ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"] {
            let contents = files::read(&workspace::path(text)).expect("read");
            let links = contents.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
            for link in links.filter(|link| link.ends_with(".md") && !SOURCE.iter().any(|it| link.starts_with(it))) {
                let is_there = pages.iter().map(String::as_str).chain(TEXTS).any(|page| page == link);
                assert!(is_there || link.contains("://"), "{text}: {link}");
            }
        }
    }

    #[test]
    fn a_file_in_use_keeps_its_contents() {
        let directory = super::super::scratch("test-place").expect("a directory");
        let source = directory.join("source");
        let list = [File::new(&source, "lib/x").executable(), File::link("x", "lib/y")];
        files::write(&source, "old").expect("written");
        assert_eq!(place(&list, &directory).expect("placed"), [directory.join("lib")]);
        let mut in_use = std::fs::File::open(directory.join("lib/x")).expect("there");
        files::write(&source, "new").expect("written");
        assert_eq!(place(&list, &directory).expect("placed"), [] as [PathBuf; 0]);
        let mut seen = String::new();
        in_use.read_to_string(&mut seen).expect("read");
        assert_eq!((seen.as_str(), files::read(&directory.join("lib/x")).expect("read").as_str()), ("old", "new"));
        let mode = directory.join("lib/x").metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o755);
        assert_eq!(directory.join("lib").read_dir().expect("there").count(), 2);
        assert_eq!(directory.join("lib/y").read_link().expect("a link"), Path::new("x"));
    }
}
