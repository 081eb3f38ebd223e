//! `flashlock locks`: the catalogue.

use flashlock_locks::catalogue::rw::{RW_DEFAULT, RW_LOCKS, RwId, RwInfo};
use flashlock_locks::catalogue::{
    DEFAULT, Exception, Facts, LOCKS, LockId, LockInfo, ORDERS, OptionInfo, STANDALONE, StandaloneId, StandaloneInfo,
};
use flashlock_native::settings;
use flashlock_report::table;
use serde::Serialize;

use crate::failure::Failure;
use crate::json;
use crate::lock_choice::{LockNames, explained, explained_order, known, known_rw, known_standalone};
use crate::screen::{self, HEADING, styled};
use crate::suggest::did_you_mean;
use crate::usage;

const EXAMPLES: &str = "\
Examples:
  flashlock locks          list all locks
  flashlock locks shfl     describe a lock, with its options
  flashlock locks shfl-rw  describe a readers-writer lock
  flashlock locks --json | jq -r '.[] | select(.numa_aware) | .name'";

/// List the locks, or describe one
///
/// Lists the locks for `flashlock run --lock` and `--rw`: their size, their cost and what they are. Then it lists the
/// locks that `run` cannot use, and why. With NAME, it describes one lock: its fairness, its options, its limits, and
/// where it comes from.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The lock to describe; without it, all locks are listed
    #[arg(value_parser = LockNames::ANY, hide_possible_values = true)]
    name: Option<String>,

    /// Print JSON: an array of all locks, or an object for one
    #[arg(long)]
    json: bool,
}

/// All ways of waiting.
const ANY_WAIT: &[&str] = &["stp", "spin", "park", "umwait"];

/// A lock of any of the lists.
#[derive(Clone, Copy)]
enum Lock {
    Mutex(&'static LockInfo),
    Rw(&'static RwInfo),
    Standalone(&'static StandaloneInfo),
}

impl Lock {
    fn all() -> impl Iterator<Item = Self> {
        LOCKS
            .iter()
            .map(Self::Mutex)
            .chain(RW_LOCKS.iter().map(Self::Rw))
            .chain(STANDALONE.iter().map(Self::Standalone))
    }

    fn from_name(name: &str) -> Option<Self> {
        let mutex = LockId::from_name(name).map(|id| Self::Mutex(id.info()));
        let rw = || RwId::from_name(name).map(|id| Self::Rw(id.info()));
        mutex.or_else(rw).or_else(|| StandaloneId::from_name(name).map(|id| Self::Standalone(id.info())))
    }

    fn facts(self) -> &'static Facts {
        match self {
            Self::Mutex(lock) => &lock.facts,
            Self::Rw(lock) => &lock.facts,
            Self::Standalone(lock) => &lock.facts,
        }
    }

    fn is_default(self) -> bool {
        match self {
            Self::Mutex(lock) => lock.id == DEFAULT,
            Self::Rw(lock) => lock.id == RW_DEFAULT,
            Self::Standalone(_) => false,
        }
    }

    /// The number of atomic read-modify-writes, for the list.
    fn atomics(self) -> String {
        match self {
            Self::Mutex(lock) => format!("{}+{}", lock.atomics_lock, lock.atomics_unlock),
            Self::Rw(lock) => lock.atomics_read.max(lock.atomics_write).to_string(),
            Self::Standalone(lock) => lock.atomics.to_string(),
        }
    }

    /// The same as a sentence.
    fn atomics_explained(self) -> String {
        match self {
            Self::Mutex(lock) => {
                format!("{} to acquire, {} to release (uncontended)", lock.atomics_lock, lock.atomics_unlock)
            }
            Self::Rw(lock) => format!(
                "{} to acquire and release for reading, {} for writing (uncontended)",
                lock.atomics_read, lock.atomics_write
            ),
            Self::Standalone(lock) => format!("{} for a critical section (uncontended)", lock.atomics),
        }
    }

    /// A command that uses the lock, or another way to use it.
    fn trial(self) -> String {
        let name = self.facts().name;
        match self {
            Self::Mutex(_) => format!("flashlock run --lock {name} --stats -- PROGRAM"),
            Self::Rw(_) => format!("flashlock run --rw {name} --stats -- PROGRAM"),
            Self::Standalone(StandaloneInfo { id: StandaloneId::Null, .. }) => {
                format!("flashlock simulate --locks {name},mcs --threads 1")
            }
            Self::Standalone(_) => format!("flashlock simulate --locks mcs,{name}"),
        }
    }
}

/// A lock in the output of `--json`.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    kind: &'static str,
    title: &'static str,
    paper: &'static str,
    source: &'static str,
    bytes: u32,
    bytes_per_waiter: u32,
    #[serde(flatten)]
    own: Own,
    numa_aware: bool,
    fair: &'static str,
    waits: &'static [&'static str],
    options: Vec<OptionRow>,
    default: bool,
    interposable: bool,
    exceptions: Vec<ExceptionRow>,
}

/// Fields that only locks of its kind have.
#[derive(Serialize)]
#[serde(untagged)]
enum Own {
    Mutex { atomics_lock: u32, atomics_unlock: u32, strict: bool, principal: bool },
    Rw { atomics_read: u32, atomics_write: u32 },
    Standalone { atomics: u32, why_standalone: &'static str },
}

/// An option of a lock, except `wait=`.
#[derive(Serialize)]
struct OptionRow {
    name: &'static str,
    least: u32,
    most: u32,
    default: u32,
    /// The users' words for the values, if they are not numbers.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    words: &'static [&'static str],
    unit: &'static str,
    meaning: &'static str,
}

impl From<&OptionInfo> for OptionRow {
    fn from(option: &OptionInfo) -> Self {
        Self {
            name: option.name,
            least: option.least,
            most: option.most,
            default: option.default,
            words: option.words,
            unit: option.unit,
            meaning: option.meaning,
        }
    }
}

/// A check that a lock cannot pass.
#[derive(Serialize)]
struct ExceptionRow {
    check: &'static str,
    reason: &'static str,
}

impl From<&Exception> for ExceptionRow {
    fn from(exception: &Exception) -> Self {
        Self { check: exception.check, reason: exception.reason }
    }
}

impl From<Lock> for Row {
    fn from(lock: Lock) -> Self {
        let facts = lock.facts();
        let (kind, own) = match lock {
            Lock::Mutex(lock) => {
                let LockInfo { atomics_lock, atomics_unlock, strict, id, .. } = *lock;
                ("mutex", Own::Mutex { atomics_lock, atomics_unlock, strict, principal: id.is_principal() })
            }
            Lock::Rw(&RwInfo { atomics_read, atomics_write, .. }) => ("rw", Own::Rw { atomics_read, atomics_write }),
            Lock::Standalone(&StandaloneInfo { id, interface, atomics, why_standalone, .. }) => {
                (if id == StandaloneId::Null { "none" } else { interface }, Own::Standalone { atomics, why_standalone })
            }
        };
        Self {
            name: facts.name,
            kind,
            title: facts.title,
            paper: facts.paper,
            source: facts.source,
            bytes: facts.bytes,
            bytes_per_waiter: facts.bytes_per_waiter,
            own,
            numa_aware: facts.numa_aware,
            fair: facts.fair,
            waits: facts.waits,
            options: facts.options.iter().map(|option| OptionRow::from(option.info())).collect(),
            default: lock.is_default(),
            interposable: !matches!(lock, Lock::Standalone(_)),
            exceptions: facts.exceptions().map(ExceptionRow::from).collect(),
        }
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let width = screen::width(libc::STDOUT_FILENO);
    let text = match args.name.as_deref() {
        Some(name) => {
            let lock = Lock::from_name(name).ok_or_else(|| {
                let known_locks = || format!("known locks: {} {} {}", known(), known_rw(), known_standalone());
                let all = Lock::all().map(|lock| lock.facts().name);
                if name == settings::GLIBC {
                    return Failure::usage(
                        "glibc is none of flashlock's locks: it stands for the C library's own, which programs have \
                         without flashlock. 'run --lock glibc' keeps them, and 'compare' compares with them",
                    );
                }
                let what = did_you_mean(name, all).unwrap_or_else(known_locks);
                Failure::usage(format_args!("unknown lock '{name}'; {what}"))
            })?;
            if args.json { json::text(&Row::from(lock))? } else { describe(lock, width) }
        }
        None if args.json => json::text(&Lock::all().map(Row::from).collect::<Vec<_>>())?,
        None => list(width),
    };
    screen::emit(&text)?;
    Ok(0)
}

fn list(width: u16) -> String {
    let mutexes = list_of("lock", LOCKS.iter().map(Lock::Mutex), width);
    let rw_locks = list_of("readers-writer", RW_LOCKS.iter().map(Lock::Rw), width);
    let standalone = list_of("not for run", STANDALONE.iter().map(Lock::Standalone), width);
    let label = STANDALONE.iter().map(|lock| lock.name.len()).max().unwrap_or(0);
    let reasons: String =
        STANDALONE.iter().map(|lock| table::field(lock.name, lock.why_standalone, label, width)).collect();
    let legend = "* the default. bytes: the size of a lock. atomics: read-modify-writes to acquire + release it \
                  without contention (in the second and third table: the sum). wait=: how waiters wait: stp \
                  (spin-then-park), spin, park or umwait. To describe one lock with its options: flashlock locks NAME";
    format!("{mutexes}\n{rw_locks}\n{standalone}\n{reasons}\n{}", table::paragraph(legend, width))
}

fn list_of(what: &str, locks: impl Iterator<Item = Lock>, width: u16) -> String {
    let mut table = table::new([what, "bytes", "atomics", "NUMA", "wait=", "what it is"], width);
    table::numbers(&mut table, [1, 2]);
    for lock in locks {
        let facts = lock.facts();
        let mark = if lock.is_default() { " *" } else { "" };
        table.add_row([
            format!("{}{mark}", facts.name),
            facts.bytes.to_string(),
            lock.atomics(),
            yes(facts.numa_aware).to_owned(),
            if facts.waits == ANY_WAIT { "any".to_owned() } else { facts.waits.join(" ") },
            facts.title.to_owned(),
        ]);
    }
    table::text(&table)
}

fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

fn describe(lock: Lock, width: u16) -> String {
    let facts = lock.facts();
    let mut fields = vec![("from".to_owned(), facts.paper.to_owned()), ("fair".to_owned(), facts.fair.to_owned())];
    let mut say = |name: &str, text: String| fields.push((name.to_owned(), text));
    if let Lock::Mutex(lock) = lock {
        let strict = match lock.strict {
            true => "yes: a waiter that does not run (such as one stopped in a signal handler) stops the queue",
            false => "no: a running thread may go first while the next waiter does not run",
        };
        say("strict", strict.to_owned());
    }
    say("NUMA-aware", yes(facts.numa_aware).to_owned());
    say("state", format!("{} bytes in the lock, {} for each waiting thread", facts.bytes, facts.bytes_per_waiter));
    say("atomics", lock.atomics_explained());
    say("try it", lock.trial());
    say("wait=", format!("{} (the first is the default)", facts.waits.join(", ")));
    for option in facts.options.iter().map(|option| option.info()) {
        let has_it = |mutex: &LockInfo| mutex.options.contains(&option.id);
        let is_shared = matches!(lock, Lock::Rw(_)) && LOCKS.iter().any(has_it);
        let shared = if is_shared { "; applies to mutexes, too" } else { "" };
        say(&format!("{}=", option.name), format!("{}{shared}", explained(option)));
    }
    if let Lock::Mutex(_) = lock {
        for order in ORDERS {
            say(&format!("{}=", order.name), explained_order(order));
        }
    }
    let exceptions: Vec<&Exception> = facts.exceptions().collect();
    for alike in exceptions.chunk_by(|a, b| a.reason == b.reason) {
        let checks: Vec<&str> = alike.iter().map(|exception| exception.check).collect();
        say("limit", format!("{} (checks: {})", alike[0].reason, checks.join(", ")));
    }
    if let Lock::Standalone(lock) = lock {
        say("limit", format!("flashlock run cannot use it: {}", lock.why_standalone));
    } else if exceptions.is_empty() {
        let own = "none that only this lock has: it passes all checks that glibc's lock passes";
        say("limit", format!("{own}. All locks have those of {}", usage::page("limits.md")));
    }
    let mark = if lock.is_default() { " (default)" } else { "" };
    let label = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut out = format!("{}: {}{mark}\n", styled(HEADING, facts.name), facts.title);
    for (name, text) in &fields {
        out.push_str(&table::field(name, text, label, width));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashlock_locks::catalogue::OPTIONS;

    #[test]
    fn every_lock_is_listed_and_described() {
        let table = list(80);
        for lock in Lock::all() {
            let facts = lock.facts();
            assert!(table.contains(facts.name), "{table}");
            let text = anstream::adapter::strip_str(&describe(lock, 80)).to_string();
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            for option in OPTIONS {
                let named = text.contains(&format!("{}=", option.name));
                assert_eq!(named, facts.options.contains(&option.id), "{}: {text}", option.name);
            }
        }
        assert_eq!(table.matches(" *").count(), 2, "{table}");
    }
}
