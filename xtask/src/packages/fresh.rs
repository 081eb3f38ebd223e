//! Fresh roots: a minimal Debian of some release, with nothing of ours and nothing of this machine.
//!
//! apt fetches dpkg, apt, the usual programs and what they need out of Debian's archive; they are unpacked under
//! `target/packages/roots`, none of their scripts is run, and dpkg is told that they are installed. Programs run there
//! by chroot, in namespaces of their own, without a network. So this needs root, apt and a way to the archive.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{OUT, make_directory, permit, scratch};
use crate::apt::{self, Apt};
use crate::child::output;
use crate::child::{AGAINST_HANGS, Finished, Program};
use crate::files;
use crate::workspace;

const PACKAGES: [&str; 7] = ["apt", "coreutils", "dash", "diffutils", "dpkg", "libc-bin", "libgcc-s1"];
const DIRECTORIES: [&str; 12] = [
    "dev",
    "etc/apt",
    "opt",
    "proc",
    "root",
    "srv",
    "sys",
    "tmp",
    "usr/local/bin",
    "var/lib/apt/lists/partial",
    "var/lib/dpkg/info",
    "var/lib/dpkg/updates",
];
/// Where dpkg and apt write for themselves, or where what is mounted belongs to the kernel.
const THEIR_OWN: [&str; 8] = ["dev", "proc", "sys", "tmp", "var/cache", "var/lib/apt", "var/lib/dpkg", "var/log"];

/// `sudo` of a system where everybody is root.
const SUDO: &str = "#!/bin/sh\nexec \"$@\"\n";

/// What runs in the root: the mounts are gone with the last process.
const ENTER: &str = "mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && \
                     mount --rbind /sys \"$0/sys\" && exec chroot \"$0\" \"$@\"";

/// A root for one trial.
pub(super) struct Fresh {
    directory: PathBuf,
}

impl Fresh {
    /// A new one with this release of Debian.
    pub(super) fn of(release: &str) -> Result<Self> {
        let original = original(release).with_context(|| {
            format!("cannot make a root with {release} (root, apt and a way to Debian's archive are needed)")
        })?;
        let directory = scratch(&format!("root-{release}"))?;
        let [from, to] = [original.join("."), directory.clone()].map(|path| path.display().to_string());
        output("cp", &["--archive", "--reflink=auto", &from, &to])?;
        Ok(Self { directory })
    }

    /// A path inside it.
    pub(super) fn path(&self, inside: &str) -> PathBuf {
        self.directory.join(inside.trim_start_matches('/'))
    }

    /// Copies a file into it.
    pub(super) fn take(&self, file: &Path, to: &str) -> Result<()> {
        let to = self.path(to);
        make_directory(to.parent().unwrap_or(&self.directory))?;
        fs::copy(file, &to).with_context(|| format!("cannot copy {} to {}", file.display(), to.display()))?;
        Ok(())
    }

    /// What a program of it does.
    pub(super) fn run(&self, words: &[&str]) -> Result<Finished> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--net", "sh", "-c", ENTER]);
        command.arg(&self.directory).args(words).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.envs([("HOME", "/root"), ("LC_ALL", "C.UTF-8"), ("DEBIAN_FRONTEND", "noninteractive")]);
        Program::new(command, AGAINST_HANGS).run()
    }

    /// All that it holds, except what dpkg and apt write for themselves: type, permissions and size, or a link's
    /// target.
    pub(super) fn contents(&self) -> Result<BTreeMap<String, String>> {
        let mut contents = BTreeMap::new();
        let mut todo = vec![self.directory.clone()];
        while let Some(directory) = todo.pop() {
            for entry in fs::read_dir(&directory)? {
                let path = entry?.path();
                let inside = path.strip_prefix(&self.directory)?.display().to_string();
                if THEIR_OWN.contains(&inside.as_str()) {
                    continue;
                }
                let facts = path.symlink_metadata()?;
                let about = match path.read_link() {
                    Ok(target) => format!("-> {}", target.display()),
                    Err(_) if facts.is_dir() => format!("{:o}", facts.mode()),
                    Err(_) => format!("{:o}, {} bytes", facts.mode(), facts.len()),
                };
                if facts.is_dir() {
                    todo.push(path);
                }
                contents.insert(inside, about);
            }
        }
        Ok(contents)
    }
}

/// What is in one and not, or otherwise, in the other.
pub(super) fn differences(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let mut differ: Vec<String> = Vec::new();
    for (path, about) in after {
        match before.get(path) {
            None => differ.push(format!("{path} is left")),
            Some(old) if old != about => differ.push(format!("{path} has changed: {old}, {about}")),
            Some(_) => {}
        }
    }
    differ.extend(before.keys().filter(|path| !after.contains_key(*path)).map(|path| format!("{path} is gone")));
    differ
}

/// The root that the others are copies of, unpacked again if Debian has newer packages.
fn original(release: &str) -> Result<PathBuf> {
    let directory = workspace::path(OUT).join("roots").join(release);
    let (root, stamp) = (directory.join("root"), directory.join("unpacked"));
    let apt = Apt::new(&directory.join("apt"), &[release])?;
    apt.run(&["update"], &directory)?;
    let install = [&["install", "--yes", "--no-install-recommends"], &PACKAGES[..]].concat();
    let wanted = apt.run(&[&["--print-uris"], &install[..]].concat(), &directory)?;
    if root.exists() && stamp.exists() && files::read(&stamp)? == wanted {
        return Ok(root);
    }
    for old in [&root, &apt.directory().join("archives")] {
        if old.exists() {
            fs::remove_dir_all(old)?;
        }
    }
    make_directory(&apt.directory().join("archives/partial"))?;
    apt.run(&[&["--download-only"], &install[..]].concat(), &directory)?;
    apt::unpack(&apt.directory().join("archives"), &root)?;
    furnish(&root, &apt.directory().join("archives"))?;
    files::write(&stamp, wanted)?;
    Ok(root)
}

/// What is no package's, and dpkg's list of the packages.
fn furnish(root: &Path, packages: &Path) -> Result<()> {
    for directory in DIRECTORIES {
        make_directory(&root.join(directory))?;
    }
    permit(&root.join("tmp"), 0o1777)?;
    files::write(&root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    files::write(&root.join("etc/group"), "root:x:0:\n")?;
    let sudo = root.join("usr/local/bin/sudo");
    files::write(&sudo, SUDO)?;
    permit(&sudo, 0o755)?;
    let mut status = String::new();
    for entry in fs::read_dir(packages)? {
        let package = entry?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            let fields = output("dpkg-deb", &[Path::new("--field"), &package])?;
            status += &format!("Status: install ok installed\n{fields}\n");
        }
    }
    files::write(&root.join("var/lib/dpkg/status"), status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_left_is_named() {
        let root = |files: &[(&str, &str)]| files.iter().map(|&(path, about)| (path.into(), about.into())).collect();
        let before: BTreeMap<String, String> = root(&[("etc", "d"), ("etc/a", "1"), ("etc/b", "1")]);
        assert_eq!(differences(&before, &before), [] as [String; 0]);
        let after = root(&[("etc", "d"), ("etc/b", "2"), ("etc/c", "1")]);
        assert_eq!(differences(&before, &after), ["etc/b has changed: 1, 2", "etc/c is left", "etc/a is gone"]);
    }
}
