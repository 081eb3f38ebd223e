//! `cargo xtask glibc`: the suites on other versions of glibc, and on unknown versions.
//!
//! The preload library is the one of `target/release`, whatever it was built on; the test programs are built for each
//! version.

mod archive;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use flashlock_report::table;

use crate::child::{AGAINST_HANGS, Finished, Program};
use crate::conformance::Conformance;
use crate::locks::{self, Chosen, Lock, Under};
use crate::steps::{Steps, Tally};
use crate::suite::{self, Row};
use crate::torture::{self, Torture};
use crate::workspace;
use archive::{Release, Root};

const RELEASES: [Release; 4] = [
    Release { name: "bullseye", suites: &["bullseye"], glibc: Some("2.31") },
    Release { name: "trixie", suites: &["trixie"], glibc: Some("2.41") },
    Release { name: "sid", suites: &["sid"], glibc: None },
    // Where a new glibc stands first; if there is none, what sid has.
    Release { name: "experimental", suites: &["sid", "experimental"], glibc: None },
];

/// Versions to pretend: before and after all known ones, and those around the change of layout, one of which is wrong
/// here.
const PRETENDED: [&str; 4] = ["2.30", "2.40", "2.41", "2.99"];

/// The checks that are made on a glibc that pretends to be another: everything about mutexes and condition variables.
const GLOBS: [&str; 2] = ["mutex_*", "cond_*"];

#[derive(Args)]
pub(crate) struct Options {
    /// Use these locks (may be repeated, or a list with commas); by default every interposable lock
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    lock: Vec<String>,
    /// Use only these releases of Debian (may be repeated, or a list with commas)
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = RELEASES.map(|release| release.name))]
    release: Vec<String>,
    /// Use only the default lock (and glibc for what it skips), and only versions that Debian has released; run no
    /// torture
    #[arg(long)]
    quick: bool,
}

impl Options {
    /// Everything under these locks.
    pub(crate) fn under(locks: &[&str]) -> Self {
        let lock = locks.iter().map(|&lock| lock.to_owned()).collect();
        Self { lock, release: Vec::new(), quick: false }
    }
}

/// What was found on one version.
struct Found {
    version: String,
    suite: &'static str,
    rows: Vec<Row>,
}

pub(crate) fn run(options: &Options) -> Result<Tally> {
    let names = if options.quick { vec![locks::default_name()?] } else { options.lock.clone() };
    let locks = locks::select(&names)?;
    let mut steps = Steps::default();
    let mut found = Vec::new();
    for release in &RELEASES {
        let named = options.release.iter().any(|name| name == release.name);
        let is_meant = if options.release.is_empty() { !options.quick || release.glibc.is_some() } else { named };
        if is_meant {
            steps.run(release.name, || on_release(release, &locks, options.quick, &mut found));
        }
    }
    steps.run("versions that are not what they say", || on_this_machine(&locks, &mut found));
    println!("passed/failed; a dash: not meant\n{}", overview(&locks, &found));
    if options.quick {
        println!("--quick: under the default lock only, on released versions, without torture");
    }
    Ok(steps.finish())
}

fn on_release(release: &Release, locks: &[Lock], quick: bool, found: &mut Vec<Found>) -> Result<Tally> {
    let root = Root::fetch(release)?;
    println!("glibc {} of {}", root.package, release.name);
    let probe =
        Probe { directory: root.build_tests("glibc")?, version: root.glibc().to_owned(), inside: Some(root.path()) };
    let mut tally = probe.checks(locks)?;
    let mut note = |suite, rows: Vec<Row>| {
        rows.iter().for_each(|row| tally += row.tally);
        found.push(Found { version: format!("{} {}", root.package, release.name), suite, rows });
    };
    let mut conformance = Conformance::of(root.build_tests("conformance")?.join("conformance"), &[], Vec::new())?;
    if quick {
        conformance = conformance.without_glibc();
    }
    note("conformance", suite::rows(&conformance, locks)?);
    if !quick {
        let options = torture::Options::under(Chosen::default(), &[2, 8]);
        let torture = Torture::of(root.build_tests("torture")?.join("torture"), &options)?;
        note("torture", suite::rows(&torture, locks)?);
    }
    Ok(tally)
}

/// The machine's own glibc, as it is and with a version that is not its own.
fn on_this_machine(locks: &[Lock], found: &mut Vec<Found>) -> Result<Tally> {
    let directory = workspace::build_tests("glibc", "target/glibc/this")?;
    let mut probe = Probe { directory, version: String::new(), inside: None };
    probe.version = probe.run(&Under::Glibc, None)?.glibc;
    println!("glibc {} of this machine", probe.version);
    let mut tally = probe.checks(locks)?;
    let unknown = "2.99";
    let suite = Conformance::build(&GLOBS.map(str::to_owned), vec![probe.pretend(unknown)])?.without_glibc();
    let rows = suite::rows(&suite, locks)?;
    rows.iter().for_each(|row| tally += row.tally);
    found.push(Found { version: format!("{} as {unknown}", probe.version), suite: "mutex_* cond_*", rows });
    Ok(tally)
}

/// The program that says what it runs on, built for one version.
struct Probe {
    directory: PathBuf,
    /// The version that it must say.
    version: String,
    /// Where all libraries must come from, ours excepted; `None`: this machine.
    inside: Option<PathBuf>,
}

/// What the probe said.
struct Answer {
    glibc: String,
    locks: String,
    loaded: Vec<String>,
    stderr: String,
}

impl Probe {
    fn pretend(&self, version: &str) -> PathBuf {
        self.directory.join(format!("pretend_{version}.so"))
    }

    fn run(&self, under: &Under, pretended: Option<&str>) -> Result<Answer> {
        let mut command = Command::new(self.directory.join("probe"));
        let others: Vec<PathBuf> = pretended.iter().map(|version| self.pretend(version)).collect();
        under.apply(&mut command, &others);
        answer(&Program::new(command, AGAINST_HANGS).run()?)
    }

    /// Whether the programs run on the version and the locks that are meant; without this, all else might pass for
    /// nothing. And whether a version that is unknown, or that has another layout than it should, is left to glibc,
    /// with one line about it.
    fn checks(&self, locks: &[Lock]) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut check = |name: String, outcome: Result<()>| {
            tally += if outcome.is_ok() { Tally::PASSED } else { Tally::FAILED };
            if let Err(error) = outcome {
                println!("not ok {name}: {error:#}");
            }
        };
        check("under glibc".to_owned(), self.expect(&Under::Glibc, None, "glibc", ""));
        for lock in locks {
            let under = Under::lock(&lock.name)?;
            check(format!("under {}", lock.name), self.expect(&under, None, "flashlock", ""));
            for version in PRETENDED {
                let outcome = if same_layout(&self.version, version) {
                    self.expect(&under, Some(version), "flashlock", "")
                } else {
                    let line = format!("flashlock: unknown glibc version {version}; the program keeps glibc's locks\n");
                    self.expect(&under, Some(version), "glibc", &line)
                };
                check(format!("under {}, pretending {version}", lock.name), outcome);
            }
        }
        println!("probe: {tally}");
        Ok(tally)
    }

    fn expect(&self, under: &Under, pretended: Option<&str>, locks: &str, stderr: &str) -> Result<()> {
        let answer = self.run(under, pretended)?;
        if answer.glibc != self.version {
            bail!("it runs on glibc {}, not on {}", answer.glibc, self.version);
        }
        if let Some(root) = &self.inside {
            let ours = workspace::preload()?;
            let is_stranger = |path: &&String| {
                let path = Path::new(path.as_str());
                !path.starts_with(root) && !path.starts_with(&self.directory) && path != ours
            };
            if let Some(stranger) = answer.loaded.iter().find(is_stranger) {
                bail!("it has loaded {stranger}");
            }
        }
        if answer.stderr != stderr {
            bail!("standard error was {:?}, not {stderr:?}", answer.stderr);
        }
        if answer.locks != locks {
            bail!("the locks were those of {}, not of {locks}", answer.locks);
        }
        Ok(())
    }
}

fn answer(done: &Finished) -> Result<Answer> {
    if !done.ok() {
        bail!("{}", done.transcript());
    }
    let values = |word: &str| -> Vec<String> {
        let prefix = format!("{word} ");
        done.stdout.lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
    };
    let one = |word: &str| values(word).pop().with_context(|| format!("no line `{word} …`\n{}", done.transcript()));
    Ok(Answer { glibc: one("glibc")?, locks: one("locks")?, loaded: values("loaded"), stderr: done.stderr.clone() })
}

/// Whether a glibc may pass for another version: both are known, and condition variables have not changed between them
/// (2.41). Said here once more, so that the table of the library is held against something.
fn same_layout(real: &str, pretended: &str) -> bool {
    let minor = |version: &str| version.strip_prefix("2.").and_then(|minor| minor.parse::<u32>().ok());
    let (Some(real), Some(pretended)) = (minor(real), minor(pretended)) else { return false };
    (31..99).contains(&pretended) && (real >= 41) == (pretended >= 41)
}

/// Version and suite by lock.
fn overview(locks: &[Lock], found: &[Found]) -> String {
    let columns: Vec<&str> = std::iter::once("glibc").chain(locks.iter().map(|lock| lock.name.as_str())).collect();
    let mut table = table::of_numbers(["version", "suite"].into_iter().chain(columns.iter().copied()));
    for Found { version, suite, rows } in found {
        let cell = |column: &&str| {
            let row = rows.iter().find(|row| row.name == **column);
            row.map_or("-".to_owned(), |row| format!("{}/{}", row.tally.passed, row.tally.failed))
        };
        table.add_row([version.clone(), (*suite).to_owned()].into_iter().chain(columns.iter().map(cell)));
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_changed_with_2_41() {
        assert!(same_layout("2.36", "2.40") && same_layout("2.44", "2.41"));
        assert!(!same_layout("2.36", "2.41") && !same_layout("2.41", "2.40"));
        assert!(!same_layout("2.36", "2.30") && !same_layout("2.44", "2.99"));
    }
}
