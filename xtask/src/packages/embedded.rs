//! What programs link with to have delegated locks: `libflashlock_rcl.so`, `libflashlock_rcl.a`, headers, and the file
//! from which pkg-config knows all of them.
//!
//! The static library is made one object, in which only what the header declares is global. So a program can link with
//! another library that was made of Rust, and the library is small.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::layout::{File, name};
use super::{generated, scratch};
use crate::child::output;
use crate::files;
use crate::workspace;

/// What all exported names begin with.
const PREFIX: &str = "flashlock_rcl_";
/// The shared library's name for the dynamic linker (`crates/capi/build.rs`).
const SONAME: &str = "libflashlock_rcl.so.0";
const SHARED: &str = "libflashlock_rcl.so";
const STATIC: &str = "libflashlock_rcl.a";
/// What the static library needs, as `rustc --print native-static-libs` says.
const BESIDE_STATIC: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// Its package.
pub(crate) const PACKAGE: &str = "flashlock-capi";
/// Where its headers are.
const HEADERS: &str = "crates/capi/include";

/// The libraries, stripped.
pub(crate) struct Embedded {
    pub(super) shared: PathBuf,
    pub(super) archive: PathBuf,
}

impl Embedded {
    /// Those of a directory where cargo builds.
    pub(crate) fn of(built: &Path) -> Result<Self> {
        let out = scratch("embedded")?;
        let (shared, archive) = (out.join(SHARED), out.join(STATIC));
        let [from, old] = [SHARED, STATIC].map(|name| workspace::require(built.join(name), workspace::BUILD_FIRST));
        output("strip", &[Path::new("--strip-all"), Path::new("-o"), &shared, &from?])?;
        one_object(&old?, &archive, &exported(&shared)?)?;
        let built = Self { shared, archive };
        built.check()?;
        Ok(built)
    }

    /// Both have what the header declares, and nothing else.
    fn check(&self) -> Result<()> {
        let declared = declared(&files::read(&workspace::path(HEADERS).join("flashlock_rcl.h"))?);
        for (file, has) in [(&self.shared, exported(&self.shared)?), (&self.archive, global(&self.archive)?)] {
            if has != declared {
                let differ: Vec<&String> = has.symmetric_difference(&declared).collect();
                bail!("{} and flashlock_rcl.h differ in {differ:?}", name(file));
            }
        }
        Ok(())
    }

    /// Where all of it is installed.
    pub(crate) fn files(&self) -> Result<Vec<File>> {
        let mut files = vec![
            File::new(&self.shared, format!("lib/{SONAME}")),
            File::link(SONAME, format!("lib/{SHARED}")),
            File::into("lib", &self.archive),
        ];
        for header in ["flashlock_rcl.h", "flashlock_rcl.hpp"] {
            files.push(File::into("include", workspace::path(HEADERS).join(header)));
        }
        let description = generated("pkgconfig")?.join("flashlock_rcl.pc");
        files::write(&description, pkgconfig())?;
        files.push(File::into("lib/pkgconfig", description));
        Ok(files)
    }
}

/// The commands that compile and link a program with the shared library below a prefix in which neither pkg-config nor
/// the dynamic linker looks.
pub(crate) fn command(prefix: &Path) -> String {
    let (described, rpath) = (descriptions(prefix), rpath(prefix));
    let described = described.display();
    format!("export PKG_CONFIG_PATH={described}\ncc program.c $(pkg-config --cflags --libs flashlock_rcl) {rpath}")
}

/// The directory in which pkg-config must look.
pub(crate) fn descriptions(prefix: &Path) -> PathBuf {
    prefix.join("lib/pkgconfig")
}

/// The option with which a program finds the shared library when it starts.
pub(crate) fn rpath(prefix: &Path) -> String {
    format!("-Wl,-rpath,{}", prefix.join("lib").display())
}

/// The prefix is where the file is found, so that an installation can be moved.
fn pkgconfig() -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\
         static_library=${{libdir}}/{STATIC}\n\n\
         Name: flashlock_rcl\nDescription: Locks whose critical sections a server thread can run\nURL: {}\n\
         Version: {}\nCflags: -I${{includedir}}\nLibs: -L${{libdir}} -lflashlock_rcl\nLibs.private: {BESIDE_STATIC}\n",
        env!("CARGO_PKG_REPOSITORY"),
        env!("CARGO_PKG_VERSION"),
    )
}

/// All objects of an archive as one, without what those names do not need, and with no other global names.
fn one_object(from: &Path, to: &Path, names: &BTreeSet<String>) -> Result<()> {
    let directory = scratch("one-object")?;
    let [linked, object] = ["linked.o", "flashlock_rcl.o"].map(|file| directory.join(file).display().to_string());
    let [from, to] = [from, to].map(|path| path.display().to_string());
    let mut link = vec!["-r".to_owned(), "--gc-sections".to_owned(), "-o".to_owned(), linked.clone()];
    link.extend(names.iter().map(|name| format!("--undefined={name}")));
    link.push(from);
    output("ld", &link)?;
    let mut strip: Vec<String> =
        ["--strip-debug", "--strip-unneeded", "--remove-section=.llvm*"].map(str::to_owned).into();
    strip.extend(names.iter().map(|name| format!("--keep-global-symbol={name}")));
    output("objcopy", &[&strip[..], &[linked, object.clone()]].concat())?;
    // D: the same bytes whenever it is made.
    output("ar", &["rcsD".to_owned(), to, object]).map(|_| ())
}

/// The names that a shared library exports.
fn exported(library: &Path) -> Result<BTreeSet<String>> {
    let listed =
        output("nm", &[Path::new("--dynamic"), Path::new("--defined-only"), Path::new("--format=posix"), library])?;
    Ok(names(&listed))
}

/// The global names of an archive.
fn global(library: &Path) -> Result<BTreeSet<String>> {
    let options = ["--extern-only", "--defined-only", "--format=posix"].map(Path::new);
    Ok(names(&output("nm", &[&options[..], &[library]].concat())?))
}

/// The first words of lines that have three or more.
fn names(listed: &str) -> BTreeSet<String> {
    let words = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.filter(|words| words.len() >= 3).map(|words| words[0].to_owned()).collect()
}

/// The functions that a header declares: names before a parenthesis, outside of comments.
fn declared(header: &str) -> BTreeSet<String> {
    let mut declared = BTreeSet::new();
    for (at, part) in header.split("/*").enumerate() {
        let code = if at == 0 { part } else { part.split_once("*/").map_or("", |(_, code)| code) };
        for (before, _) in code.match_indices('(').map(|(end, _)| code.split_at(end)) {
            let start = before.rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).map_or(0, |start| start + 1);
            let name = &before[start..];
            if name.starts_with(PREFIX) && !name.ends_with("_t") {
                declared.insert(name.to_owned());
            }
        }
    }
    declared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_headers_functions_are_found() {
        let header = "/* flashlock_rcl_not(); */ typedef void *flashlock_rcl_section_t(void *);\n\
                      int flashlock_rcl_a(int);\nconst char *flashlock_rcl_b(void); /* flashlock_rcl_c() */\n\
                      int other(void);";
        assert_eq!(declared(header), ["flashlock_rcl_a", "flashlock_rcl_b"].map(str::to_owned).into());
    }

    /// `cargo xtask delegated` links with the same directory and option.
    #[test]
    fn the_guide_has_the_commands_that_link() {
        let guide = files::read(&workspace::path("docs/delegation.md")).unwrap();
        let command = command(Path::new("$HOME/.local"));
        assert!(guide.contains(&command), "docs/delegation.md lacks: {command}");
    }
}
