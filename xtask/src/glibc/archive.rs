//! Versions of glibc out of Debian's archive, unpacked under `target/glibc`, and how to build a program that runs on
//! one.
//!
//! A program that is built with [`Root::environment`] has that glibc's dynamic linker as its interpreter and finds its
//! libraries by its run path, so it is started like any other: no chroot, and `/proc/self/exe` is the program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::apt::{self, Apt, LIMIT};
use crate::child::Program;
use crate::files;
use crate::workspace;

/// A release of Debian with its glibc.
pub(crate) struct Release {
    pub(crate) name: &'static str,
    /// The archive's suites to look in; the last is preferred.
    pub(crate) suites: &'static [&'static str],
    /// The glibc that it must have, unless it moves.
    pub(crate) glibc: Option<&'static str>,
}

const PACKAGES: [&str; 5] = ["libc6", "libgcc-s1", "libstdc++6", "libc6-dev", "linux-libc-dev"];
const LIBRARIES: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];
const LOADER: &str = "lib64/ld-linux-x86-64.so.2";

/// An unpacked glibc.
pub(crate) struct Root {
    /// Where it is: `root` is inside, and what is built for it.
    directory: PathBuf,
    /// The version of the package, `2.41-12`.
    pub(crate) package: String,
}

impl Root {
    /// Fetches and unpacks a release's packages, unless the same ones are there.
    pub(crate) fn fetch(release: &Release) -> Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            bail!("this task knows x86-64 only");
        }
        let directory = workspace::path("target/glibc").join(release.name);
        let apt = Apt::new(&directory.join("apt"), release.suites)?;
        let why =
            || format!("cannot fetch {} (a way to Debian's archive, and the package apt, are needed)", release.name);
        apt.run(&["update"], &directory).with_context(why)?;
        let wanted = apt.run(&[&["--print-uris", "download"], &PACKAGES[..]].concat(), &directory).with_context(why)?;
        let package = package_version(&wanted)?;
        let root = Self { directory, package };
        if let Some(expected) = release.glibc
            && root.glibc() != expected
        {
            bail!("{} was expected to have glibc {expected}; it has {}", release.name, root.package);
        }
        let stamp = root.directory.join("unpacked");
        if !fs::read_to_string(&stamp).is_ok_and(|there| there == wanted) {
            root.unpack(&apt).with_context(why)?;
            files::write(&stamp, wanted)?;
        }
        Ok(root)
    }

    /// The version of glibc, `2.41`.
    pub(crate) fn glibc(&self) -> &str {
        self.package.split('-').next().unwrap_or_default()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("root")
    }

    fn unpack(&self, apt: &Apt) -> Result<()> {
        let (root, packages) = (self.path(), self.directory.join("packages"));
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            // What was built for another package goes, too.
            if path.is_dir() && path != apt.directory() {
                fs::remove_dir_all(&path)?;
            } else if path.is_file() {
                fs::remove_file(&path)?;
            }
        }
        fs::create_dir_all(&packages)?;
        apt.run(&[&["download"], &PACKAGES[..]].concat(), &packages)?;
        apt::unpack(&packages, &root)?;
        for directory in LIBRARIES.iter().chain(&["lib64"]) {
            keep_links_inside(&root, &root.join(directory))?;
        }
        // The name by which the linker looks for it; Debian has that in a compiler's package.
        symlink("libstdc++.so.6", root.join(LIBRARIES[1]).join("libstdc++.so"))?;
        workspace::require(root.join(LOADER), "the package libc6 has changed: see xtask/src/glibc/archive.rs")?;
        Ok(())
    }

    /// Builds `tests/NAME` for this glibc.
    pub(crate) fn build_tests(&self, name: &str) -> Result<PathBuf> {
        workspace::build_tests_with(name, &self.directory.join(name), &self.environment()?)
    }

    /// With these variables, a `build.sh` makes programs that run on this glibc. Its headers are not the compiler's
    /// own, so warnings about them are none of ours.
    fn environment(&self) -> Result<[(&'static str, String); 2]> {
        let root = self.path();
        let shown = root.display();
        let libraries = LIBRARIES.map(|directory| root.join(directory).display().to_string());
        // The last -O and -g count. These programs are run once, so it counts how soon they are built.
        let mut flags = format!("-O1 -g0 -Wno-error --sysroot={shown} -B{} ", libraries[1]);
        for directory in &libraries {
            flags += &format!("-L{directory} -Wl,-rpath,{directory} ");
        }
        // An old-style run path, which libraries that are loaded later follow as well.
        flags += &format!("-Wl,--disable-new-dtags -Wl,--dynamic-linker={shown}/{LOADER}");
        Ok([("CFLAGS", flags), ("CPLUS_INCLUDE_PATH", cxx_headers()?.join(":"))])
    }
}

/// The version of `libc6` in a list of `'URI' FILE SIZE HASH`.
fn package_version(uris: &str) -> Result<String> {
    let file = uris.split_whitespace().find_map(|word| word.strip_prefix("libc6_"));
    let version = file.and_then(|rest| rest.split('_').next());
    version.map(str::to_owned).with_context(|| format!("no libc6 in what apt-get would download:\n{uris}"))
}

/// Makes the absolute links of a directory point into the root that it belongs to.
fn keep_links_inside(root: &Path, directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let link = entry?.path();
        let Ok(target) = link.read_link() else { continue };
        if let Ok(inner) = target.strip_prefix("/")
            && !target.starts_with(root)
        {
            fs::remove_file(&link)?;
            symlink(root.join(inner), &link)?;
        }
    }
    Ok(())
}

/// Where the compiler has the headers of C++'s library: with another root it would look for them there.
fn cxx_headers() -> Result<Vec<String>> {
    let mut command = Command::new("c++");
    command.args(["-xc++", "-E", "-v", "/dev/null"]);
    let done = Program::new(command, LIMIT).run()?;
    let found: Vec<String> =
        done.stderr.lines().filter_map(|line| line.strip_prefix(" /")).map(|path| format!("/{path}")).collect();
    let found: Vec<String> = found.into_iter().filter(|path| path.contains("c++") && !path.contains(' ')).collect();
    if found.is_empty() {
        bail!("c++ names no directory with C++ headers (cargo xtask setup)\n{}", done.transcript());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_in_the_name_of_the_package() {
        let uris = "'http://a/libc6-dev_2.31-13+deb11u11_amd64.deb' libc6-dev_2.31-13+deb11u11_amd64.deb 1 SHA256:0\n\
                    'http://a/libc6_2.31-13+deb11u11_amd64.deb' libc6_2.31-13+deb11u11_amd64.deb 1 SHA256:0\n";
        let package = package_version(uris).expect("there is one");
        assert_eq!(package, "2.31-13+deb11u11");
        assert_eq!(Root { directory: PathBuf::new(), package }.glibc(), "2.31");
        assert!(package_version("nothing").is_err());
    }
}
