//! `flashlock locks`: the catalogue.

use flashlock_locks::catalogue::{DEFAULT, Exception, LOCKS, LockId, LockInfo, ORDERS, OptionInfo};
use flashlock_locks::rw::catalogue::{RW_DEFAULT, RW_LOCKS, RwId, RwInfo};
use flashlock_report::table;
use serde::Serialize;

use crate::failure::Failure;
use crate::lock_choice::{AnyLockParser, explained, explained_order, known, known_rw};
use crate::screen::{self, HEADING, styled};

const EXAMPLES: &str = "\
Examples:
  flashlock locks
  flashlock locks shfl
  flashlock locks shfl-rw
  flashlock locks --json | jq -r '.[] | select(.numa_aware) | .name'";

/// List the locks, or describe one
///
/// The locks that `flashlock run` takes, as `--lock` and as `--rw`, with their cost, their fairness, and where they come from.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The lock to describe; all are listed without it
    #[arg(value_parser = AnyLockParser, hide_possible_values = true)]
    name: Option<String>,

    /// Print JSON: an array of all locks, or an object for one
    #[arg(long)]
    json: bool,
}

/// A lock as `--json` shows it.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    kind: &'static str,
    title: &'static str,
    paper: &'static str,
    source: &'static str,
    bytes: u32,
    bytes_per_waiter: u32,
    atomics_lock: u32,
    atomics_unlock: u32,
    numa_aware: bool,
    fair: &'static str,
    strict: bool,
    waits: &'static [&'static str],
    options: Vec<OptionRow>,
    default: bool,
    principal: bool,
    interposable: bool,
    exceptions: Vec<ExceptionRow>,
}

/// An option that a lock takes, beside `wait=`.
#[derive(Serialize)]
struct OptionRow {
    name: &'static str,
    least: u32,
    most: u32,
    default: u32,
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
            unit: option.unit,
            meaning: option.meaning,
        }
    }
}

/// What a lock cannot do.
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

impl From<&LockInfo> for Row {
    fn from(lock: &LockInfo) -> Self {
        Self {
            name: lock.name,
            kind: "mutex",
            title: lock.title,
            paper: lock.paper,
            source: lock.source,
            bytes: lock.bytes,
            bytes_per_waiter: lock.bytes_per_waiter,
            atomics_lock: lock.atomics_lock,
            atomics_unlock: lock.atomics_unlock,
            numa_aware: lock.numa_aware,
            fair: lock.fair,
            strict: lock.strict,
            waits: lock.waits,
            options: lock.options.iter().map(|option| OptionRow::from(option.info())).collect(),
            default: lock.id == DEFAULT,
            principal: lock.id.is_principal(),
            interposable: true,
            exceptions: lock.exceptions.iter().map(ExceptionRow::from).collect(),
        }
    }
}

/// A readers-writer lock as `--json` shows it.
#[derive(Serialize)]
struct RwRow {
    name: &'static str,
    kind: &'static str,
    title: &'static str,
    paper: &'static str,
    source: &'static str,
    bytes: u32,
    bytes_per_waiter: u32,
    atomics_read: u32,
    atomics_write: u32,
    numa_aware: bool,
    fair: &'static str,
    waits: &'static [&'static str],
    options: Vec<OptionRow>,
    default: bool,
    interposable: bool,
    exceptions: Vec<ExceptionRow>,
}

impl From<&RwInfo> for RwRow {
    fn from(lock: &RwInfo) -> Self {
        Self {
            name: lock.name,
            kind: "rw",
            title: lock.title,
            paper: lock.paper,
            source: lock.source,
            bytes: lock.bytes,
            bytes_per_waiter: lock.bytes_per_waiter,
            atomics_read: lock.atomics_read,
            atomics_write: lock.atomics_write,
            numa_aware: lock.numa_aware,
            fair: lock.fair,
            waits: lock.waits,
            options: lock.options.iter().map(|option| OptionRow::from(option.info())).collect(),
            default: lock.id == RW_DEFAULT,
            interposable: true,
            exceptions: lock.exceptions.iter().map(ExceptionRow::from).collect(),
        }
    }
}

/// A row of either kind.
#[derive(Serialize)]
#[serde(untagged)]
enum AnyRow {
    Mutex(Row),
    Rw(RwRow),
}

fn all() -> Vec<AnyRow> {
    let mutexes = LOCKS.iter().map(|lock| AnyRow::Mutex(Row::from(lock)));
    mutexes.chain(RW_LOCKS.iter().map(|lock| AnyRow::Rw(RwRow::from(lock)))).collect()
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let width = screen::width(libc::STDOUT_FILENO);
    let text = match &args.name {
        Some(name) if let Some(id) = RwId::from_name(name) => {
            if args.json {
                json(&RwRow::from(id.info()))?
            } else {
                describe_rw(id.info(), width)
            }
        }
        Some(name) => {
            let id = LockId::from_name(name).ok_or_else(|| {
                Failure::usage(format_args!(
                    "unknown lock '{name}'; known are: {} {} (flashlock locks lists them)",
                    known(),
                    known_rw()
                ))
            })?;
            if args.json { json(&Row::from(id.info()))? } else { describe(id.info(), width) }
        }
        None if args.json => json(&all())?,
        None => list(width),
    };
    screen::emit(&text)?;
    Ok(0)
}

fn json(value: &impl Serialize) -> Result<String, Failure> {
    let mut text = serde_json::to_string_pretty(value).map_err(Failure::new)?;
    text.push('\n');
    Ok(text)
}

fn list(width: u16) -> String {
    let mut table = table::new(["lock", "bytes", "atomics", "NUMA", "wait=", "what it is"], width);
    table::numbers(&mut table, [1, 2]);
    for lock in LOCKS {
        let mark = if lock.id == DEFAULT { " *" } else { "" };
        table.add_row([
            format!("{}{mark}", lock.name),
            lock.bytes.to_string(),
            format!("{}+{}", lock.atomics_lock, lock.atomics_unlock),
            if lock.numa_aware { "yes" } else { "no" }.to_owned(),
            lock.waits.join(" "),
            lock.title.to_owned(),
        ]);
    }
    let legend = "* the default. bytes: of state in the lock. atomics: read-modify-writes to acquire + release it, uncontended; \
                  of a readers-writer lock, both together. More on one: flashlock locks NAME";
    format!("{}\n{}\n{}", table::text(&table), rw_table(width), screen::paragraph(legend, width))
}

/// The readers-writer locks.
fn rw_table(width: u16) -> String {
    let mut table = table::new(["readers-writer", "bytes", "atomics", "NUMA", "wait=", "what it is"], width);
    table::numbers(&mut table, [1, 2]);
    for lock in RW_LOCKS {
        let mark = if lock.id == RW_DEFAULT { " *" } else { "" };
        table.add_row([
            format!("{}{mark}", lock.name),
            lock.bytes.to_string(),
            lock.atomics_read.max(lock.atomics_write).to_string(),
            if lock.numa_aware { "yes" } else { "no" }.to_owned(),
            lock.waits.join(" "),
            lock.title.to_owned(),
        ]);
    }
    table::text(&table)
}

fn describe_rw(lock: &RwInfo, width: u16) -> String {
    let fields = [
        ("from", lock.paper.to_owned()),
        ("fair", lock.fair.to_owned()),
        ("NUMA-aware", if lock.numa_aware { "yes" } else { "no" }.to_owned()),
        ("state", format!("{} bytes in the lock, {} for each waiting thread", lock.bytes, lock.bytes_per_waiter)),
        (
            "atomics",
            format!(
                "{} to acquire for reading and release, {} for writing, uncontended",
                lock.atomics_read, lock.atomics_write
            ),
        ),
        ("try it", format!("flashlock run --rw {} --stats -- PROGRAM", lock.name)),
        ("wait=", format!("{} (the first is the default)", lock.waits.join(", "))),
    ];
    let mark = if lock.id == RW_DEFAULT { ", the default" } else { "" };
    let mut out = format!("{}: {}{mark}\n", styled(HEADING, lock.name), lock.title);
    for (name, text) in fields {
        out.push_str(&table::field(name, &text, 10, width));
    }
    for option in lock.options.iter().map(|option| option.info()) {
        let text = format!("{}; holds for mutexes, too", explained(option));
        out.push_str(&table::field(&format!("{}=", option.name), &text, 10, width));
    }
    if lock.exceptions.is_empty() {
        let text = "nothing that glibc's readers-writer lock can do is known to fail";
        out.push_str(&table::field("cannot", text, 10, width));
    }
    for exception in lock.exceptions {
        out.push_str(&table::field("cannot", &format!("{}: {}", exception.check, exception.reason), 10, width));
    }
    out
}

fn describe(lock: &LockInfo, width: u16) -> String {
    let label = lock.options.iter().map(|option| option.info().name.len() + 1).max().unwrap_or(0).max(10);
    let yes = |value: bool| if value { "yes" } else { "no" };
    let strict = match lock.strict {
        true => "yes: a waiter that is not running, such as one stopped in a signal handler, stops the queue",
        false => "no: a running thread may go first while the next waiter is not running",
    };
    let fields = [
        ("from", lock.paper.to_owned()),
        ("fair", lock.fair.to_owned()),
        ("strict", strict.to_owned()),
        ("NUMA-aware", yes(lock.numa_aware).to_owned()),
        ("state", format!("{} bytes in the lock, {} for each waiting thread", lock.bytes, lock.bytes_per_waiter)),
        ("atomics", format!("{} to acquire, {} to release, uncontended", lock.atomics_lock, lock.atomics_unlock)),
        ("try it", format!("flashlock run --lock {} --stats -- PROGRAM", lock.name)),
        ("wait=", format!("{} (the first is the default)", lock.waits.join(", "))),
    ];
    let mark = if lock.id == DEFAULT { ", the default" } else { "" };
    let mut out = format!("{}: {}{mark}\n", styled(HEADING, lock.name), lock.title);
    for (name, text) in fields {
        out.push_str(&table::field(name, &text, label, width));
    }
    for option in lock.options.iter().map(|option| option.info()) {
        out.push_str(&table::field(&format!("{}=", option.name), &explained(option), label, width));
    }
    for order in ORDERS {
        out.push_str(&table::field(&format!("{}=", order.name), &explained_order(order), label, width));
    }
    match lock.exceptions {
        [] => out.push_str(&table::field("cannot", "nothing that glibc's mutex can do is known to fail", label, width)),
        exceptions => {
            for exception in exceptions {
                out.push_str(&table::field(
                    "cannot",
                    &format!("{}: {}", exception.check, exception.reason),
                    label,
                    width,
                ));
            }
        }
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
        for lock in LOCKS {
            assert!(table.contains(lock.name), "{table}");
            let text = anstream::adapter::strip_str(&describe(lock, 80)).to_string();
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            for option in OPTIONS {
                let named = text.contains(&format!("{}=", option.name));
                assert_eq!(named, lock.options.contains(&option.id), "{}: {text}", option.name);
            }
        }
        for lock in RW_LOCKS {
            assert!(table.contains(lock.name), "{table}");
            let text = anstream::adapter::strip_str(&describe_rw(lock, 80)).to_string();
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
        assert_eq!(table.matches(" *").count(), 2, "{table}");
    }
}
