//! Packages out of Debian's archive, without touching those of this machine.
//!
//! apt fetches and verifies, with sources, lists and cache of its own. Root is not needed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::child::Program;
use crate::files;
use crate::workspace;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Against a network that hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// apt with a directory of its own.
pub(crate) struct Apt {
    directory: PathBuf,
    configuration: PathBuf,
}

impl Apt {
    /// Where its lists and its cache are.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// For these suites; the last is preferred. What apt fetches stays in `directory`.
    pub(crate) fn new(directory: &Path, suites: &[&str]) -> Result<Self> {
        workspace::require(KEYRING.into(), "it comes with the package debian-archive-keyring")?;
        for name in ["lists/partial", "archives/partial"] {
            let path = directory.join(name);
            files::make(&path)?;
        }
        let preferred = suites.last().context("a release without a suite")?;
        let archive = archive()?;
        let sources = format!(
            "Types: deb\nURIs: {archive}\nSuites: {}\nComponents: main\nArchitectures: amd64\nTargets: Packages\n\
             Signed-By: {KEYRING}\n",
            suites.join(" ")
        );
        let here = directory.display();
        let configuration = format!(
            "Dir::Etc::sourcelist \"{here}/debian.sources\";\n\
             Dir::Etc::sourceparts \"/dev/null\";\n\
             Dir::Etc::preferencesparts \"/dev/null\";\n\
             Dir::State::lists \"{here}/lists\";\n\
             Dir::State::status \"{here}/status\";\n\
             Dir::Cache \"{here}\";\n\
             APT::Sandbox::User \"root\";\n\
             APT::Default-Release \"{preferred}\";\n\
             APT::Update::Error-Mode \"any\";\n\
             #clear APT::Update::Post-Invoke;\n\
             #clear APT::Update::Post-Invoke-Success;\n"
        );
        fs::write(directory.join("debian.sources"), sources)?;
        fs::write(directory.join("status"), "")?;
        let file = directory.join("apt.conf");
        fs::write(&file, configuration)?;
        Ok(Self { directory: directory.to_owned(), configuration: file })
    }

    /// What `apt-get` prints, run in a directory, which is where it puts what it downloads.
    pub(crate) fn run(&self, arguments: &[&str], within: &Path) -> Result<String> {
        let mut command = Command::new("apt-get");
        command.arg("--quiet").arg("-c").arg(&self.configuration).args(arguments).current_dir(within);
        Program::new(command, LIMIT).run()?.successful()
    }
}

/// Unpacks all packages of a directory into `root`, without running anything of theirs.
///
/// Newer packages have everything under `/usr` and count on links to it, which belong to another package.
pub(crate) fn unpack(packages: &Path, root: &Path) -> Result<()> {
    files::make(root)?;
    let mut files = fs::read_dir(packages)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort_unstable();
    for package in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "deb")) {
        let mut command = Command::new("dpkg-deb");
        command.arg("--extract").arg(package).arg(root);
        Program::new(command, LIMIT).run()?.successful()?;
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        let target = Path::new("usr").join(name);
        if !root.join(name).exists() && root.join(&target).exists() {
            symlink(target, root.join(name))?;
        }
    }
    Ok(())
}

/// Debian's archive, where this machine's apt looks for it.
fn archive() -> Result<String> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(SITE)", "Created-By: Packages"]);
    let sites = Program::new(command, LIMIT).run()?.successful()?;
    let site = sites.lines().find(|site| site.trim_end_matches('/').ends_with("/debian"));
    site.map(str::to_owned).with_context(|| format!("none of apt's sources is Debian's archive:\n{sites}"))
}
