//! The catalogue as `flashlock locks --json` gives it, and what a lock needs to be put under a program.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use flashlock_locks::catalogue::LOCKS;
use flashlock_locks::catalogue::rw::{RW_LOCKS, RwId};
use flashlock_locks::machine::Tunables;
use flashlock_native::settings::{self, Choice, RwChoice};
use flashlock_native::umwait;
use flashlock_report::words::fits;
use serde::Deserialize;
use serde_json::Value;

use crate::child::{AGAINST_HANGS, Program, is_exhaustive};
use crate::workspace;

/// One row of the catalogue; its further fields do not matter here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Lock {
    /// Its name; with options, if some were chosen: what `FLASHLOCK` takes.
    pub(crate) name: String,
    /// What it is a lock for.
    #[serde(default)]
    pub(crate) kind: Kind,
    pub(crate) default: bool,
    /// Whether it is one of those that are compared when no lock is named.
    #[serde(default)]
    pub(crate) principal: bool,
    /// Whether a release hands the lock to one particular waiter, even if that one does not run.
    #[serde(default)]
    pub(crate) strict: bool,
    /// What it cannot do, by the names of the checks that show it.
    pub(crate) exceptions: Vec<Exception>,
}

/// What a lock is for.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Mutexes, and the condition variables that go with them.
    #[default]
    Mutex,
    /// Readers-writer locks.
    Rw,
}

/// Checks that a lock may fail: a name, in which `*` stands for anything.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Exception {
    pub(crate) check: String,
    pub(crate) reason: String,
}

/// The names of the locks under which `cargo xtask test` runs every check, and the test with other allocators: the
/// catalogue's principal ones, readers-writer locks among them; and those of the further ones. These are made of the
/// same parts, and are tested in brief there, so that it ends in time; `cargo xtask conformance` and
/// `cargo xtask torture` run everything under all.
pub(crate) fn tiers() -> Result<[Vec<String>; 2]> {
    let (principal, further): (Vec<Lock>, Vec<Lock>) =
        interposable()?.into_iter().partition(|lock| lock.kind == Kind::Rw || lock.principal);
    if principal.is_empty() || further.is_empty() {
        bail!("`flashlock locks --json` knows no principal locks, or no others");
    }
    Ok([principal, further].map(|locks| locks.into_iter().map(|lock| lock.name).collect()))
}

impl Lock {
    /// Whether a check, with the prefix of its suite, can say of this lock what it does not say of the default one.
    /// Mutexes and readers-writer locks are chosen apart; spinlocks and semaphores are the same under all. So are
    /// objects that glibc serves, except that each lock has its own instance of the code that finds that out: in full,
    /// they are tried under all.
    pub(crate) fn is_tried_by(&self, check: &str) -> bool {
        let check = check.trim_start_matches("torture.").trim_start_matches("slow_motion.");
        let is_about = |what: &str| check.starts_with(what);
        match self.kind {
            Kind::Rw => is_about("rw"),
            Kind::Mutex if self.default => true,
            Kind::Mutex if !is_exhaustive() && ["passthrough.", "attributes."].into_iter().any(is_about) => false,
            Kind::Mutex => !["rw", "sem", "spin"].into_iter().any(is_about),
        }
    }

    /// Why this lock may fail the check, if it may.
    pub(crate) fn exception(&self, check: &str) -> Option<&Exception> {
        self.exceptions.iter().find(|exception| exception.covers(check))
    }
}

impl Exception {
    pub(crate) fn covers(&self, check: &str) -> bool {
        fits(&self.check, '*', check)
    }
}

/// The catalogue as JSON.
pub(crate) fn catalogue() -> Result<String> {
    let mut command = Command::new(workspace::command()?);
    command.args(["locks", "--json"]);
    Program::new(command, AGAINST_HANGS).run()?.successful()
}

/// All locks that can be put under a program.
pub(crate) fn interposable() -> Result<Vec<Lock>> {
    parse(&catalogue()?).context("`flashlock locks --json` is not what was expected")
}

/// The interposable locks of a catalogue, once its default lock is seen to be one of them and to have no exceptions.
fn parse(json: &str) -> Result<Vec<Lock>> {
    // Others may be of a kind that is none of these.
    let mut rows: Vec<Value> = serde_json::from_str(json)?;
    rows.retain(|row| row.get("interposable") == Some(&Value::Bool(true)));
    let locks: Vec<Lock> = serde_json::from_value(Value::Array(rows))?;
    for kind in [Kind::Mutex, Kind::Rw] {
        let defaults: Vec<&Lock> = locks.iter().filter(|lock| lock.default && lock.kind == kind).collect();
        let [default] = defaults[..] else {
            if kind == Kind::Rw && defaults.is_empty() && locks.iter().all(|lock| lock.kind == Kind::Mutex) {
                continue;
            }
            bail!("there must be one interposable default lock of each kind, there are {} of {kind:?}", defaults.len());
        };
        if let Some(exception) = default.exceptions.first() {
            bail!("the default lock, {}, may have no exceptions; it has {}", default.name, exception.check);
        }
    }
    Ok(locks)
}

/// The locks of that name, in the order given; all interposable mutex locks for an empty list.
pub(crate) fn select(names: &[String]) -> Result<Vec<Lock>> {
    select_of(Kind::Mutex, names)
}

/// The same; for an empty list, all interposable ones of that kind.
pub(crate) fn select_of(kind: Kind, names: &[String]) -> Result<Vec<Lock>> {
    let mut locks = interposable()?;
    if names.is_empty() {
        locks.retain(|lock| lock.kind == kind);
        return Ok(locks);
    }
    names.iter().map(|name| find(&locks, name)).collect()
}

fn find(locks: &[Lock], name: &str) -> Result<Lock> {
    let known = || locks.iter().map(|lock| lock.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = locks.iter().find(|lock| lock.name == name).cloned();
    found.with_context(|| format!("no interposable lock is called {name}; there are {}", known()))
}

/// A lock with its options, out of a catalogue. The options change how a lock does what it does, not what it can do:
/// the exceptions of its row hold.
fn configured(locks: &[Lock], text: &str) -> Result<Lock> {
    let lock = find(locks, text.split(':').next().unwrap_or(text))?;
    let parsed = match lock.kind {
        Kind::Mutex => settings::parse(text, Tunables::DEFAULT).and_then(<Choice>::here).map(drop),
        Kind::Rw => settings::parse(text, Tunables::DEFAULT).and_then(RwChoice::here).map(drop),
    };
    if let Err(error) = parsed {
        bail!("--lock '{text}': {error} (flashlock locks describes them)");
    }
    Ok(Lock { name: text.to_owned(), ..lock })
}

/// What a task that runs locks with each of their waits says if this CPU lacks one of them.
pub(crate) fn note_missing_wait() {
    if !umwait::is_there() {
        println!("not run: wait={}, for which this CPU lacks the instruction (WAITPKG)", settings::UMWAIT);
    }
}

/// A lock of the catalogue that this task was built with, with each of those of its waits that this CPU has. (The
/// library would refuse another, and use its default lock.)
pub(crate) fn with_waits(name: &str, is_meant: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let facts = LOCKS.iter().map(|info| &info.facts).chain(RW_LOCKS.iter().map(|info| &info.facts));
    let info = facts
        .into_iter()
        .find(|facts| facts.name == name)
        .with_context(|| format!("{name} is not in the catalogue that this task was built with"))?;
    let is_here = |wait: &str| wait != settings::UMWAIT || umwait::is_there();
    let waits = info.waits.iter().filter(|wait| is_meant(wait) && is_here(wait));
    Ok(waits.map(|wait| format!("{name}:wait={wait}")).collect())
}

/// Which locks, as they are to behave, and on which machine.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Chosen {
    /// Use these locks, with or without options (may be repeated, or a list with commas); by default every interposable
    /// lock
    #[arg(long = "lock", value_name = "NAME[:OPTION=VALUE,…]")]
    lists: Vec<String>,
    /// Let the locks assume this machine (`FLASHLOCK_TOPOLOGY`), so that NUMA paths run on a machine with one node
    #[arg(long, value_name = "NODESxCORESxSMT", value_parser = topology)]
    topology: Option<String>,
}

impl Chosen {
    /// These locks on this machine; an empty list stands for every lock.
    pub(crate) fn of(lists: Vec<String>) -> Self {
        Self { lists, topology: None }
    }

    /// The same on an imagined machine.
    pub(crate) fn on(self, topology: &str) -> Self {
        Self { topology: Some(topology.to_owned()), ..self }
    }

    /// The locks, in the order given.
    pub(crate) fn locks(&self) -> Result<Vec<Lock>> {
        let locks = interposable()?;
        if self.lists.is_empty() {
            return Ok(locks);
        }
        let texts = self.lists.iter().flat_map(|list| settings::split_list(list));
        texts.map(|text| configured(&locks, &text)).collect()
    }

    /// Whether that is every lock.
    pub(crate) fn is_everything(&self) -> bool {
        self.lists.is_empty()
    }

    /// Lets the locks of a program imagine the machine, if one was chosen.
    pub(crate) fn imagine(&self, command: &mut Command) {
        if let Some(topology) = &self.topology {
            command.env(settings::ENV_TOPOLOGY, topology);
        }
    }
}

/// A text that `FLASHLOCK_TOPOLOGY` takes. The library would only warn of another one, and go on without it.
fn topology(text: &str) -> Result<String> {
    settings::parse_topology(text)
        .map(|_| text.to_owned())
        .context("is not NODESxCORESxSMT: three numbers from 1 to 4096, such as 2x4x1")
}

/// The name of the default lock.
pub(crate) fn default_name() -> Result<String> {
    let locks = interposable()?;
    Ok(locks.into_iter().find(|lock| lock.default).context("no default lock")?.name)
}

/// Whether this names a readers-writer lock, with or without options.
pub(crate) fn is_rw(text: &str) -> bool {
    RwId::from_name(text.split(':').next().unwrap_or(text)).is_some()
}

/// What a program runs under: glibc's locks, or ours by a preload library.
#[derive(Clone, Debug)]
pub(crate) enum Under {
    Glibc,
    Lock { name: String, variable: &'static str, preload: PathBuf },
}

impl Under {
    pub(crate) fn lock(name: &str) -> Result<Self> {
        Ok(Self::of(name, workspace::preload()?))
    }

    /// The lock of that name, in this library.
    pub(crate) fn of(name: &str, preload: PathBuf) -> Self {
        let variable = if is_rw(name) { settings::ENV_RW } else { settings::ENV };
        Self::Lock { name: name.to_owned(), variable, preload }
    }

    /// Sets a command's environment; `others` are preloaded after ours.
    pub(crate) fn apply(&self, command: &mut Command, others: &[PathBuf]) {
        let mut libraries: Vec<&Path> = others.iter().map(PathBuf::as_path).collect();
        if let Self::Lock { name, variable, preload } = self {
            libraries.insert(0, preload);
            command.env(variable, name);
        }
        if !libraries.is_empty() {
            let list: Vec<String> = libraries.iter().map(|library| library.display().to_string()).collect();
            command.env("LD_PRELOAD", list.join(":"));
        }
    }

    /// Makes sure that the dynamic linker gives a program's `pthread_mutex_lock` to the preload library. Without this,
    /// a library that it ignores would pass every test: glibc does.
    pub(crate) fn assert_bound(&self, program: &Path) -> Result<()> {
        let Self::Lock { preload, .. } = self else { return Ok(()) };
        let mut command = Command::new(program);
        command.arg("--list").env("LD_DEBUG", "bindings").env("LD_BIND_NOW", "1");
        self.apply(&mut command, &[]);
        let done = Program::new(command, AGAINST_HANGS).run()?;
        let wanted = format!("to {}", preload.display());
        let bound = |line: &str| line.contains("symbol `pthread_mutex_lock'") && line.contains(&wanted);
        if !done.stderr.lines().any(bound) {
            let program = workspace::shown(program);
            bail!("the dynamic linker does not bind {program}'s pthread_mutex_lock to {}", preload.display());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = r#"{"name":"tas","interposable":true,"default":false,"bytes":4,
        "exceptions":[{"check":"order.fifo","reason":"barging"}]}"#;

    #[test]
    fn reads_rows_with_more_fields() {
        let json = format!(r#"[{ROW},{{"name":"d","interposable":true,"default":true,"exceptions":[]}}]"#);
        let locks = parse(&json).expect("valid");
        assert_eq!(locks[0].exception("order.fifo").map(|exception| exception.reason.as_str()), Some("barging"));
        assert!(locks[0].exception("order.lifo").is_none());
    }

    #[test]
    fn a_default_lock_with_exceptions_is_refused() {
        let json = r#"[{"name":"d","interposable":true,"default":true,"exceptions":[{"check":"c","reason":"r"}]}]"#;
        assert!(parse(json).expect_err("refused").to_string().contains("may have no exceptions"));
    }

    #[test]
    fn a_catalogue_without_an_interposable_default_is_refused() {
        assert!(parse(&format!("[{ROW}]")).is_err());
        assert!(parse(r#"[{"name":"d","interposable":false,"default":true,"exceptions":[]}]"#).is_err());
    }

    /// What a real catalogue says of these locks, as far as it matters.
    fn some() -> Vec<Lock> {
        let row = |name: &str| Lock {
            name: name.into(),
            kind: Kind::Mutex,
            default: false,
            principal: true,
            strict: true,
            exceptions: Vec::new(),
        };
        let exception = Exception { check: "order.fifo".into(), reason: "two queues".into() };
        vec![Lock { exceptions: vec![exception], ..row("cna") }, row("mcscr")]
    }

    #[test]
    fn options_keep_the_exceptions_of_their_lock() {
        for text in ["cna", "cna:threshold=8,reduction=2,refresh=3", "cna:wait=park"] {
            let lock = configured(&some(), text).expect(text);
            assert_eq!((lock.name.as_str(), lock.exception("order.fifo").is_some()), (text, true));
        }
    }

    #[test]
    fn wrong_options_are_refused_with_what_is_right() {
        let say = |text| configured(&some(), text).expect_err(text).to_string();
        assert!(say("cna:threshold=0").contains("must be 1 to 1000000000 (hand-offs), not '0'"));
        assert!(say("mcscr:threshold=8").contains("lock mcscr has no option 'threshold'; its options: wait eldest"));
        assert!(say("mcscr:wait=soon").contains("has no wait='soon'"));
        assert!(say("mcs:wait=park").contains("no interposable lock is called mcs; there are cna, mcscr"));
        assert!(say("").contains("there are cna, mcscr"));
    }

    #[test]
    fn a_machine_is_imagined_only_if_it_makes_sense() {
        assert!(topology("2x4x1").is_ok());
        assert!(topology("2x4").expect_err("refused").to_string().contains("2x4x1"));
        let mut command = Command::new("true");
        Chosen::default().imagine(&mut command);
        assert_eq!(command.get_envs().count(), 0);
        Chosen::default().on("2x4x1").imagine(&mut command);
        let environment: Vec<_> = command.get_envs().collect();
        assert_eq!(environment, [("FLASHLOCK_TOPOLOGY".as_ref(), Some("2x4x1".as_ref()))]);
    }

    #[test]
    fn ours_comes_before_other_preloads() {
        let under = Under::of("mcs", "/a.so".into());
        let mut command = Command::new("true");
        under.apply(&mut command, &["libm.so".into()]);
        let environment: Vec<_> = command.get_envs().collect();
        assert!(environment.contains(&("LD_PRELOAD".as_ref(), Some("/a.so:libm.so".as_ref()))));
        assert!(environment.contains(&("FLASHLOCK".as_ref(), Some("mcs".as_ref()))));
    }
}
