//! The contestants: what programs embed instead, our locks, other builds of ours, and C files.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use flashlock_report::machine::glibc;
use flashlock_rivals::{RIVALS, Rival};

use crate::locks::{self, Chosen, Under};
use crate::workspace;

/// What all the others are, whatever they are compared with.
const GLIBC: &str = "glibc";
/// The header of `tests/regret` for a pthread mutex.
const PTHREAD: &str = "pthread";

/// The lock that is judged when no lock is named, as soon as there is one of that name.
const JUDGED: &str = "flash";

/// The Debian packages of the rivals.
pub(crate) fn packages() -> Vec<&'static str> {
    RIVALS.iter().filter_map(|rival| Some(rival.cpp()?.package)).collect()
}

/// One of those that are compared.
#[derive(Clone, Debug)]
pub(crate) struct Contestant {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) under: Under,
    /// Whether it is one of ours, or stands for one: it is judged.
    pub(crate) ours: bool,
    /// Whether it has condition variables.
    pub(crate) conditions: bool,
    /// Which version of it.
    pub(crate) version: String,
    /// A checksum of what runs: runs of another build are other runs.
    pub(crate) build: String,
}

/// Which ones, as the command line says.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Compared {
    /// Our locks, with or without options (a list with commas), or `all`; by default `flash` if it exists, else the
    /// default lock
    #[arg(long, value_name = "NAME[:OPTION=VALUE,…]")]
    pub(crate) locks: Vec<String>,
    /// Other locks (a list with commas), or `none`; by default all that can be compiled
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) rivals: Vec<String>,
    /// Another build of the preload library, and its value of `FLASHLOCK` (may be repeated)
    #[arg(long, value_name = "NAME=PATH[:FLASHLOCK]", value_parser = Library::parse)]
    pub(crate) lib: Vec<Library>,
    /// A C file that exports `peer_lock` and `peer_unlock`, each for a `pthread_mutex_t *`, and flags for the compiler
    /// (may be repeated)
    #[arg(long, value_name = "[NAME=]FILE.c[:FLAGS]", value_parser = Peer::parse)]
    pub(crate) rival_c: Vec<Peer>,
}

impl Compared {
    pub(crate) fn glibc_and_default() -> Self {
        Self { rivals: vec![GLIBC.to_owned()], ..Self::default() }
    }
}

/// Another build of the preload library.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Library {
    name: String,
    path: PathBuf,
    /// What `FLASHLOCK` says; the library's default if nothing.
    lock: Option<String>,
}

impl Library {
    pub(crate) fn new(name: &str, path: PathBuf, lock: &str) -> Self {
        Self { name: name.to_owned(), path, lock: Some(lock.to_owned()) }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once('=').ok_or("wants NAME=PATH, or NAME=PATH:LOCK")?;
        let (path, lock) = rest.split_once(':').map_or((rest, None), |(path, lock)| (path, Some(lock.to_owned())));
        if name.is_empty() || path.is_empty() {
            return Err("wants NAME=PATH, or NAME=PATH:LOCK".into());
        }
        Ok(Self { name: name.to_owned(), path: path.into(), lock })
    }
}

/// A C file that is a lock.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Peer {
    name: String,
    file: PathBuf,
    flags: String,
}

impl Peer {
    fn parse(text: &str) -> Result<Self, String> {
        let (file, flags) = text.split_once(':').unwrap_or((text, ""));
        let (name, file) = file.split_once('=').unwrap_or(("", file));
        let stem = Path::new(file).file_stem().ok_or("wants FILE.c or NAME=FILE.c")?.to_string_lossy();
        let name = if name.is_empty() { stem.into_owned() } else { name.to_owned() };
        Ok(Self { name, file: file.into(), flags: flags.to_owned() })
    }
}

/// All of them, compiled. Says which rivals are left out.
pub(crate) fn prepare(options: &Compared) -> Result<Vec<Contestant>> {
    let mut all = rivals(&options.rivals)?;
    let plain = build(PTHREAD, PTHREAD, &[])?.context("pthread needs nothing")?;
    for name in ours(&options.locks)? {
        all.push(Contestant::new(name.clone(), plain.clone(), Under::lock(&name)?, true)?);
    }
    for library in &options.lib {
        let path = library.path.canonicalize().with_context(|| format!("--lib {}", library.path.display()))?;
        let under = Under::of(library.lock.as_deref().unwrap_or(""), path);
        all.push(Contestant::new(library.name.clone(), plain.clone(), under, true)?);
    }
    for peer in &options.rival_c {
        let file = peer.file.canonicalize().with_context(|| format!("--rival-c {}", peer.file.display()))?;
        let environment = [("PEER", file.display().to_string()), ("PEER_FLAGS", peer.flags.clone())];
        // A directory for each text and its flags: what was compiled of it stays right.
        let sum = checksum(checksum(START, &read(&file)?), peer.flags.as_bytes());
        let program = build("c", &format!("c-{}-{sum:016x}", peer.name), &environment)?;
        let program = program.context("a C file needs nothing")?;
        let peer = Contestant::new(peer.name.clone(), program, Under::Glibc, true)?;
        all.push(Contestant { conditions: false, ..peer });
    }
    // A library that the dynamic linker ignores would be compared as glibc.
    for contestant in &all {
        contestant.under.assert_bound(&contestant.program)?;
    }
    let mut names: Vec<&str> = all.iter().map(|contestant| contestant.name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("two contestants are called {}", twice[0]);
    }
    if all.len() < 2 {
        bail!("there is nothing to compare: {} alone", names.join(""));
    }
    Ok(all)
}

/// A lock that does not exclude: it must be detected.
pub(crate) fn broken() -> Result<Vec<Contestant>> {
    let environment = [("PEER", workspace::path("tests/regret/no-lock.c").display().to_string())];
    let program = build("c", "no-lock", &environment)?.context("a C file needs nothing")?;
    Ok(vec![Contestant::new("no-lock".to_owned(), program, Under::Glibc, false)?])
}

impl Contestant {
    pub(crate) fn names(contestants: &[Self]) -> Vec<&str> {
        contestants.iter().map(|contestant| contestant.name.as_str()).collect()
    }

    fn new(name: String, program: PathBuf, under: Under, ours: bool) -> Result<Self> {
        let mut sum = checksum(START, &read(&program)?);
        if let Under::Lock { name, preload, .. } = &under {
            sum = checksum(checksum(sum, &read(preload)?), name.as_bytes());
        }
        let version = if ours { String::new() } else { version(&name) };
        let conditions = Rival::named(&name).is_none_or(Rival::has_condition_variables);
        Ok(Self { name, program, under, ours, conditions, version, build: format!("{sum:016x}") })
    }
}

/// Which version of a rival is installed. It is for readers of a page: a version that cannot be determined is unknown.
fn version(name: &str) -> String {
    let output = |program: &str, arguments: &[&str]| {
        let done = Command::new(program).args(arguments).output().ok().filter(|done| done.status.success())?;
        Some(String::from_utf8_lossy(&done.stdout).trim().to_owned())
    };
    let package = Rival::named(name).and_then(|rival| Some(rival.cpp()?.package));
    let found = match (name, package) {
        (_, Some(package)) => output("dpkg-query", &["--show", package]).map(|line| line.replace('\t', " ")),
        ("std", _) => output("rustc", &["--version"]),
        (GLIBC, _) => glibc().map(|version| format!("glibc {version}")),
        _ => name.strip_prefix("parking_lot-").and_then(parking_lot),
    };
    found.unwrap_or_else(|| "unknown version".to_owned())
}

/// The version of `parking_lot` that the lock file has, of those that begin so.
fn parking_lot(begins: &str) -> Option<String> {
    let text = std::fs::read_to_string(workspace::path("Cargo.lock")).ok()?;
    let mut versions = text.lines().skip_while(|line| *line != "name = \"parking_lot\"");
    let is_it = |line: &str| line.strip_prefix("version = \"").is_some_and(|version| version.starts_with(begins));
    let line = versions.find(|line| is_it(line))?;
    Some(format!("parking_lot {}", line.trim_start_matches("version = ").trim_matches('"')))
}

fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read {}", workspace::shown(file)))
}

/// What a checksum starts with.
const START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a.
fn checksum(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn rivals(names: &[String]) -> Result<Vec<Contestant>> {
    if names == ["none"] {
        return Ok(Vec::new());
    }
    for name in names.iter().filter(|name| *name != GLIBC) {
        if Rival::named(name).is_none() {
            let known: Vec<&str> = RIVALS.iter().map(|rival| rival.name).collect();
            bail!("no rival is called {name}; there are {GLIBC}, {}", known.join(", "));
        }
    }
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|other| other == name);
    let mut found = Vec::new();
    if is_wanted(GLIBC) {
        let program = build(PTHREAD, PTHREAD, &[])?.context("pthread needs nothing")?;
        found.push(Contestant::new(GLIBC.to_owned(), program, Under::Glibc, false)?);
    }
    for rival in RIVALS.iter().filter(|rival| is_wanted(rival.name)) {
        let mut environment = vec![(
            "HEADER",
            workspace::path(&format!("crates/rivals/headers/rival-{}.h", rival.name)).display().to_string(),
        )];
        match rival.cpp() {
            Some(cpp) => environment.extend([("INCLUDE", cpp.include.to_owned()), ("LIBRARY", cpp.library.to_owned())]),
            None => environment.push(("RUST", workspace::path("target/regret/rust").display().to_string())),
        }
        match build(rival.name, rival.name, &environment)? {
            Some(program) => {
                found.push(Contestant::new(rival.name.to_owned(), program, Under::Glibc, false)?);
            }
            None => eprintln!(
                "left out: {} (missing: apt-get install {}, or this command with --install)",
                rival.name,
                rival.cpp().map_or("its header", |cpp| cpp.package)
            ),
        }
    }
    Ok(found)
}

fn ours(names: &[String]) -> Result<Vec<String>> {
    if names.is_empty() {
        let has_judged = locks::interposable()?.iter().any(|lock| lock.name == JUDGED);
        return Ok(vec![if has_judged { JUDGED.to_owned() } else { locks::default_name()? }]);
    }
    if names == ["none"] {
        return Ok(Vec::new());
    }
    let chosen = if names == ["all"] { locks::select(&[])? } else { Chosen::of(names.to_vec()).locks()? };
    Ok(chosen.into_iter().map(|lock| lock.name).collect())
}

/// Compiles the benchmark over a rival, unless that is done. `None`: its headers are not installed.
fn build(rival: &str, directory: &str, environment: &[(&str, String)]) -> Result<Option<PathBuf>> {
    /// What `build.sh` ends with then.
    const NO_HEADER: i32 = 77;
    let out = workspace::path("target/regret").join(directory);
    let mut environment = environment.to_vec();
    environment.push(("RIVAL", rival.to_owned()));
    let built = workspace::build_tests_unless("regret", &out, &environment, &["crates/rivals"], Some(NO_HEADER))?;
    Ok(built.map(|out| out.join("regret")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_c_files_are_read() {
        let library = Library::parse("old=/a/b.so:shfl:wait=park").expect("well-formed");
        assert_eq!((library.name.as_str(), library.lock.as_deref()), ("old", Some("shfl:wait=park")));
        assert_eq!(Library::parse("old=b.so").expect("well-formed").lock, None);
        assert!(Library::parse("b.so").is_err() && Library::parse("=b.so").is_err());
        let peer = Peer::parse("x=a/b.c:-DY_US=300 -DZ").expect("well-formed");
        assert_eq!((peer.name.as_str(), peer.flags.as_str()), ("x", "-DY_US=300 -DZ"));
        assert_eq!(Peer::parse("a/b.c").expect("well-formed").name, "b");
        assert_eq!(Peer::parse("a/b.c:-DY=1").expect("well-formed").name, "b");
    }

    #[test]
    fn both_versions_of_parking_lot_are_locked() {
        for begins in ["0.12", "0.13"] {
            assert!(parking_lot(begins).is_some_and(|version| version.starts_with(&format!("parking_lot {begins}."))));
        }
        assert_eq!(parking_lot("7"), None);
    }

    #[test]
    fn an_unknown_rival_is_refused() {
        assert!(rivals(&["tbbb".to_owned()]).expect_err("refused").to_string().contains("there are glibc, std"));
        assert!(rivals(&["none".to_owned()]).expect("none").is_empty());
    }
}
