//! `cargo xtask packages`: whether all ways of installing work, leave nothing behind, and do what the documents say.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::build::{self, Built, ENV_FROM};
use super::documented::{self, Commands};
use super::fresh::{self, Fresh};
use super::layout::{LIBRARIES, name};
use super::release::{ENV_EPOCH, Release};
use super::{OUT, deb, scratch, shells, tarball};
use crate::child::output;
use crate::child::{AGAINST_HANGS, Finished, Program};
use crate::files;
use crate::steps::{Steps, Tally};
use crate::system;
use crate::workspace;

/// The releases of Debian whose users get the package.
const RELEASES: [&str; 2] = ["bookworm", "trixie"];
/// The newest glibc that the command, the preload library and that of delegated locks may need, as the documents say.
const GLIBC: [&str; 3] = ["2.35", "2.31", "2.35"];
/// The most bytes that the command and the library, stripped, may have together, and that each archive may have.
const MOST_BYTES: u64 = 9_000_000;
/// What users read first: the tasks that they name must exist.
const DOCUMENTS: [&str; 4] = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"];
/// How to use the server of the examples.
const KV_SERVER: &str = "examples/kv-server/README.md";
/// Where the examples are built. `examples/README.md` says so, too.
const EXAMPLES_BUILT: &str = "target/examples";

#[derive(Args)]
pub(crate) struct Options {
    /// Strip what `cargo build --release` made, instead of building twice for distribution
    #[arg(long)]
    quick: bool,
}

impl Options {
    /// Everything.
    pub(crate) const WHOLE: Self = Self { quick: false };
}

pub(crate) fn run(options: &Options) -> Result<Tally> {
    if !system::is_root() {
        bail!("this task makes fresh roots and runs programs in them, which only root can");
    }
    if options.quick {
        build::take_release();
    }
    let mut steps = Steps::default();
    steps.run("archives", || archives(options.quick));
    steps.run("lintian", || package().and_then(|package| lintian(&package)));
    steps.run("examples", examples);
    steps.run("below a prefix", below_a_prefix);
    for release in RELEASES {
        steps.run(&format!("fresh root: {release}"), || in_fresh_root(release));
    }
    steps.run("README.md", readme);
    steps.run("tasks in documents", || documented::tasks_exist(&DOCUMENTS));
    if options.quick {
        println!("--quick: what was packed is the release build, stripped, and was built once");
    }
    Ok(steps.finish())
}

/// Counts what holds, and says what does not.
#[derive(Default)]
struct Checks(Tally);

impl Checks {
    fn check(&mut self, what: &str, outcome: Result<()>) {
        match outcome {
            Ok(()) => self.0 += Tally::PASSED,
            Err(error) => {
                self.0 += Tally::FAILED;
                println!("not ok {what}: {error:#}");
            }
        }
    }
}

/// An error with all that a program printed, unless it succeeded and printed this.
fn says(done: &Finished, expected: &str) -> Result<()> {
    if !done.ok() || !done.stdout.contains(expected) {
        bail!("it must succeed and print '{expected}'\n{}", done.transcript());
    }
    Ok(())
}

fn package() -> Result<PathBuf> {
    let file = workspace::path(OUT).join(deb::name(&Release::current()?.version));
    workspace::require(file, "the step `archives` makes it")
}

fn archive() -> Result<PathBuf> {
    let [file, _] = tarball::names(&Release::current()?.version);
    workspace::require(workspace::path(OUT).join(file), "the step `archives` makes it")
}

/// Both archives: small, for the glibc that the documents name, and the same bytes if they are made again elsewhere.
fn archives(quick: bool) -> Result<Tally> {
    let mut checks = Checks::default();
    let made = [tarball::make(&workspace::path(OUT))?, deb::make(&workspace::path(OUT))?];
    for archive in &made {
        checks.check(&name(archive), is_small(archive.metadata()?.len()));
    }
    if !quick {
        let (tree, out) = (copy_of_tree(&scratch("another-place")?)?, scratch("again")?);
        for (task, archive) in ["dist", "deb"].into_iter().zip(&made) {
            make_again(&tree, task, &out)?;
            let again = fs::read(out.join(name(archive)))?;
            checks.check(&format!("{} from another place", name(archive)), is_same(archive, &again));
        }
    }
    let built = Built::get()?;
    let (command, library) = (built.command.metadata()?.len(), built.library.metadata()?.len());
    println!("the command {command} bytes, the library {library}");
    // What is made of the release build only stands for what users get.
    if build::from() == "dist" {
        checks.check("the command and the library are small", is_small(command + library));
        checks.check("no path of this machine is inside", no_paths_inside(&built));
    }
    checks.check("the glibc that is needed", glibc(&built.needs_glibc()?));
    Ok(checks.0)
}

fn is_same(archive: &Path, bytes: &[u8]) -> Result<()> {
    match fs::read(archive)? == bytes {
        true => Ok(()),
        false => bail!("{} was made twice, and the bytes differ", archive.display()),
    }
}

fn is_small(bytes: u64) -> Result<()> {
    match bytes < MOST_BYTES {
        true => Ok(()),
        false => bail!("{bytes} bytes, and not less than {MOST_BYTES}"),
    }
}

fn glibc(needed: &[String; 3]) -> Result<()> {
    for (needed, most) in needed.iter().zip(GLIBC) {
        let number = |version: &str| version.split('.').filter_map(|part| part.parse().ok()).collect::<Vec<u32>>();
        if number(needed) > number(most) {
            bail!("glibc {needed} is needed, and the documents say {most}");
        }
    }
    for document in ["README.md", "docs/limits.md"] {
        if !files::read(&workspace::path(document))?.contains(&format!("glibc {}", GLIBC[0])) {
            bail!("{document} does not say that glibc {} is needed", GLIBC[0]);
        }
    }
    Ok(())
}

/// Of the distribution build; the release build has them, for debuggers.
fn no_paths_inside(built: &Built) -> Result<()> {
    let home = std::env::var("HOME").context("HOME is not set")?;
    for file in [&built.command, &built.library, &built.embedded.shared, &built.embedded.archive] {
        let bytes = fs::read(file)?;
        for path in [home.as_str(), &workspace::root().display().to_string()] {
            let path = format!("{}/", path.trim_end_matches('/'));
            if bytes.windows(path.len()).any(|window| window == path.as_bytes()) {
                bail!("{} contains the path {path}", file.display());
            }
        }
    }
    Ok(())
}

/// The files of this tree that git knows or would know, in another directory.
fn copy_of_tree(to: &Path) -> Result<PathBuf> {
    let script = "git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C \"$0\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(to).current_dir(workspace::root());
    Program::new(command, AGAINST_HANGS).run()?.successful()?;
    Ok(to.to_owned())
}

/// Builds and packs that tree.
fn make_again(tree: &Path, task: &str, out: &Path) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([task, "--out"]).arg(out).env("CARGO_MANIFEST_DIR", tree.join("xtask"));
    command.env(ENV_FROM, build::from()).current_dir(tree);
    // The copy has no commits.
    command.env(ENV_EPOCH, Release::current()?.epoch.to_string());
    Program::new(command, Duration::from_secs(3600)).run()?.successful().map(|_| ())
}

/// No errors. Warnings are printed.
fn lintian(package: &Path) -> Result<Tally> {
    let mut command = Command::new("lintian");
    command.args(["--fail-on", "error", "--allow-root", "--tag-display-limit", "0"]).arg(package);
    let done = Program::new(command, AGAINST_HANGS).run().context("cargo xtask setup")?;
    print!("{}", done.stdout);
    if !done.ok() {
        bail!("{}", done.transcript());
    }
    Ok(Tally::PASSED)
}

/// Builds and runs the examples as their README says, with the command of this tree.
fn examples() -> Result<Tally> {
    let commands = Commands::of("examples/README.md", None)?;
    let built = Built::get()?;
    let directory = built.command.parent().context("the command lies nowhere")?;
    let mut tally = commands.run_here(&scratch("home")?, &[directory.to_owned()])?;
    tally += kv_server()?;
    Ok(tally)
}

/// Starts the server of the examples, and talks to it, as its README says.
fn kv_server() -> Result<Tally> {
    const CLIENT: &str = "nc";
    if Command::new(CLIENT).arg("-h").output().is_err() {
        println!("skipped {KV_SERVER}: there is no {CLIENT} (cargo xtask setup)");
        return Ok(Tally { skipped: 1, ..Tally::default() });
    }
    Commands::of(KV_SERVER, Some("## First steps"))?.run_here(&scratch("home")?, &[])
}

/// `install` puts everything below a prefix, where the command finds its library, shells their completions and man its
/// pages; it also works from where it was moved to.
fn below_a_prefix() -> Result<Tally> {
    let mut checks = Checks::default();
    let (at, home) = (scratch("prefix")?, scratch("home")?);
    let (prefix, moved) = (at.join("first"), at.join("moved"));
    task(&["install".as_ref(), "--prefix".as_ref(), prefix.as_os_str()])?.successful()?;
    checks.check("it finds its library", finds_its_library(&prefix));
    checks.0 += shells::checks(&prefix, &home)?;
    fs::rename(&prefix, &moved)?;
    checks.check("it finds its library where it was moved to", finds_its_library(&moved));
    checks.check(
        "uninstall leaves nothing",
        (|| {
            task(&["uninstall".as_ref(), "--prefix".as_ref(), moved.as_os_str()])?.successful()?;
            let left = moved.read_dir()?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
            if left.is_empty() { Ok(()) } else { bail!("left: {left:?}") }
        })(),
    );
    let again = task(&["uninstall".as_ref(), "--prefix".as_ref(), moved.as_os_str()])?;
    let refuses = again.status.and_then(|status| status.code()) == Some(1) && again.stderr.contains("cannot uninstall");
    checks.check("uninstall twice is an error", if refuses { Ok(()) } else { bail!("{}", again.transcript()) });
    Ok(checks.0)
}

/// `cargo xtask …`, as a program.
fn task(words: &[&OsStr]) -> Result<Finished> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words).env(ENV_FROM, build::from()).current_dir(workspace::root());
    Program::new(command, Duration::from_secs(3600)).run()
}

/// The library of an installation is the one that is below its prefix, and runs a program.
fn finds_its_library(prefix: &Path) -> Result<()> {
    let library = prefix.join(LIBRARIES).join("libflashlock_preload.so");
    let mut command = Command::new(prefix.join("bin/flashlock"));
    command.args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    says(&Program::new(command, AGAINST_HANGS).run()?, &library.canonicalize()?.display().to_string())
}

/// All three ways of installing, on a Debian that has nothing else.
fn in_fresh_root(release: &str) -> Result<Tally> {
    let mut checks = Checks::default();
    let root = Fresh::of(release)?;
    root.take(&workspace::path(EXAMPLES_BUILT).join("counter"), "/opt/counter")?;
    root.take(&package()?, "/opt/flashlock.deb")?;
    let before = root.contents()?;
    checks.check(
        "the package is installed",
        root.run(&["apt-get", "install", "--yes", "/opt/flashlock.deb"])?.successful().map(|_| ()),
    );
    works(&mut checks, &root, "the package", "/usr", "flashlock");
    checks.check("all locks work", root.run(&["flashlock", "doctor"]).and_then(|done| says(&done, "No problem found")));
    checks.check(
        "the package is removed",
        root.run(&["apt-get", "remove", "--yes", "flashlock"])?.successful().map(|_| ()),
    );
    let status = root.run(&["dpkg", "--status", "flashlock"])?;
    checks.check("dpkg has forgotten it", if status.ok() { bail!("{}", status.transcript()) } else { Ok(()) });
    is_as_before(&mut checks, &root, "the package", &before)?;

    let into = |directory: &str| root.path(directory).display().to_string();
    output(
        "tar",
        &["--extract", "--no-same-owner", "--file", &archive()?.display().to_string(), "--directory", &into("opt")],
    )?;
    let [_, inside] = tarball::names(&Release::current()?.version);
    works(&mut checks, &root, "the archive", &format!("/opt/{inside}"), &format!("/opt/{inside}/bin/flashlock"));
    // Moved, and called through a link.
    fs::rename(root.path("opt").join(&inside), root.path("srv/elsewhere"))?;
    let link = root.path("usr/local/bin/flashlock");
    std::os::unix::fs::symlink("../../../srv/elsewhere/bin/flashlock", &link)?;
    works(&mut checks, &root, "the archive, moved", "/srv/elsewhere", "flashlock");
    fs::remove_file(link)?;
    fs::remove_dir_all(root.path("srv/elsewhere"))?;

    let place = ["--prefix", "/usr/local", "--destdir", &into("")].map(str::to_owned);
    let words = |verb: &str| std::iter::once(verb.to_owned()).chain(place.clone()).collect::<Vec<_>>();
    let staged = |verb: &str| {
        let words = words(verb);
        task(&words.iter().map(AsRef::as_ref).collect::<Vec<_>>())?.successful().map(|_| ())
    };
    checks.check("it is staged", staged("install"));
    works(&mut checks, &root, "what was staged", "/usr/local", "flashlock");
    checks.check("it is uninstalled", staged("uninstall"));
    is_as_before(&mut checks, &root, "what was staged", &before)?;
    Ok(checks.0)
}

/// The command runs, and runs a program under the library below this prefix.
fn works(checks: &mut Checks, root: &Fresh, what: &str, prefix: &str, command: &str) {
    let library = format!("{prefix}/{LIBRARIES}/libflashlock_preload.so");
    let asked: [(&str, &[&str], &str); 3] = [
        ("is of this version", &[command, "--version"], env!("CARGO_PKG_VERSION")),
        ("finds its library", &[command, "run", "--", "sh", "-c", "echo $LD_PRELOAD"], &library),
        (
            "runs a program, and counts its locks",
            &[command, "run", "--stats", "--", "/opt/counter", "2", "50"],
            " 0 missing",
        ),
    ];
    for (promise, words, expected) in asked {
        checks.check(&format!("{what} {promise}"), root.run(words).and_then(|done| says(&done, expected)));
    }
}

fn is_as_before(checks: &mut Checks, root: &Fresh, what: &str, before: &BTreeMap<String, String>) -> Result<()> {
    let differences = fresh::differences(before, &root.contents()?);
    let outcome = if differences.is_empty() { Ok(()) } else { Err(anyhow::anyhow!(differences.join("\n"))) };
    checks.check(&format!("{what} leaves nothing behind"), outcome);
    Ok(())
}

/// The section *Install* of the README, as typed: by a user in this tree, and by root in a fresh root. It makes both
/// archives; these are the same bytes as those that are there.
fn readme() -> Result<Tally> {
    let mut checks = Checks::default();
    let commands = Commands::of("README.md", Some("## Install"))?;
    let (home, archives) = (scratch("home")?, [archive()?, package()?]);
    let before = archives.iter().map(fs::read).collect::<Result<Vec<_>, _>>()?;
    for archive in &archives {
        fs::remove_file(archive)?;
    }
    checks.0 += commands.run_here(&home, &[])?;
    for (archive, before) in archives.iter().zip(&before) {
        checks.check(&name(archive), is_same(archive, before));
    }
    let left = fs::read_dir(home.join(".local"))?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    checks.check("nothing is left in the home", if left.is_empty() { Ok(()) } else { bail!("{left:?}") });
    checks.0 += commands.run_as_root(&Fresh::of(RELEASES[0])?, &[package()?])?;
    Ok(checks.0)
}
