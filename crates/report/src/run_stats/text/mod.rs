//! The counters of a run as text.

use flashlock_locks::catalogue::DEFAULT;
use flashlock_locks::machine::event::Event;

use super::{RunStats, Unnamed, Why};
use crate::{table, units, words};

mod histogram;
mod kinds;
mod objects;

use histogram::histogram;
use kinds::{Kind, kinds, percentiles};
use objects::objects;

/// The width of the names of the header's fields.
const NAMES: usize = 9;
/// If fewer threads wait for locks, on average, another lock gains nothing: even without any wait, the program would be
/// faster only by this share of a thread's work.
const FEW_WAIT: f64 = 0.05;

/// The whole text, for a screen of this width. If no process has reported, it says only that.
pub fn render(stats: &RunStats, width: u16) -> String {
    if stats.processes == 0 {
        return table::paragraph(
            "flashlock: no process reported, so nothing was counted. flashlock was not loaded into the program, or the \
             program closed its descriptors before it used a lock. To find out, run: flashlock doctor PROGRAM",
            width,
        );
    }
    let kinds = kinds(stats);
    let sections = [
        header(stats, width),
        summary(stats, &kinds, width),
        objects(stats, width),
        left_to_glibc(stats, width),
        histogram(&kinds, width),
        events(stats, width),
    ];
    sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n")
}

fn header(stats: &RunStats, width: u16) -> String {
    let about = &stats.provenance;
    let when = about.date.replace('T', " ").replace('Z', " UTC");
    let fields = [
        ("command", command(&about.command)),
        ("counted", counted_under(stats)),
        ("ended", stats.outcome.to_string()),
        ("took", stats.resources.to_string()),
        ("machine", about.machine.to_string()),
        ("made by", format!("flashlock {}, {when}", about.flashlock)),
    ];
    let lines: String = fields.iter().map(|(name, text)| table::field(name, text, NAMES, width)).collect();
    format!("flashlock run: what the locks did\n{lines}")
}

/// The locks of the run, and how they were chosen.
fn counted_under(stats: &RunStats) -> String {
    let lock = &stats.lock;
    let wait = if lock.wait.is_empty() { String::new() } else { format!(", wait={}", lock.wait) };
    let by_default = |kind: Unnamed| if lock.unnamed == Some(kind) { " (by default)" } else { "" };
    let rw = match &lock.rw {
        same if same.is_empty() || *same == lock.name => String::new(),
        rw => format!("; readers-writer locks under {rw}{}", by_default(Unnamed::RwLocks)),
    };
    let why = match lock.why {
        Why::Today => ": the locks that your program uses today (--lock NAME counts under another lock)",
        Why::Argument => ", from the command line",
        Why::Environment => ", from the environment",
        Why::Unknown => "",
    };
    format!("under {}{wait}{}{rw}{why}", lock.name, by_default(Unnamed::Mutexes))
}

/// The command, quoted as for a shell.
fn command(words: &[String]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-".contains(c);
    let quote = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// A summary of the counters in sentences.
fn summary(stats: &RunStats, kinds: &[Kind<'_>], width: u16) -> String {
    let mut out = String::new();
    let mut say = |text: &str| out.push_str(&table::field("-", text, 1, width));
    if stats.processes > 1 {
        say(&format!("{} processes counted together.", stats.processes));
    }
    if kinds.is_empty() {
        say(
            "The program used no pthread mutex, readers-writer lock, spinlock, condition variable or semaphore. To see \
             what it could use, run: flashlock doctor PROGRAM",
        );
        return out;
    }
    let average = (stats.resources.elapsed_ns > 0).then(|| waiting(stats));
    // Where threads wait much, that is the finding: the shares of contended acquisitions hide it.
    let is_finding = stats.derived.waiting_threads >= FEW_WAIT;
    average.iter().filter(|_| is_finding).for_each(|average| say(average));
    if let [_, _, ..] = kinds {
        say(&most_used(kinds));
    }
    for kind in kinds {
        say(&format!("{}: {}.", kind.name, kind.text));
        for (what, waits) in kind.waits.iter().filter(|(_, waits)| waits.count > 0) {
            say(&format!("Waits for {what}: {}.", percentiles(waits)));
        }
    }
    average.iter().filter(|_| !is_finding).for_each(|average| say(average));
    if let Some(share) = stats.derived.handoff_locality {
        let nodes = stats.provenance.machine.numa_nodes;
        let trivial = nodes == Some(1) && stats.provenance.machine.imagined.is_none();
        let why = if trivial { " (this machine has only one)" } else { "" };
        say(&format!("{} of the queue hand-offs stayed on the same NUMA node{why}.", units::percent(share)));
    }
    out
}

/// The kinds with the most operations: several if they have equally many.
fn most_used(kinds: &[Kind<'_>]) -> String {
    let all: u64 = kinds.iter().map(|kind| kind.operations).sum();
    let most = kinds.iter().map(|kind| kind.operations).max().unwrap_or(0);
    let share = most as f64 / all as f64;
    let carry = if share > 0.5 { "have most of the operations" } else { "have the most operations" };
    let first: Vec<&str> = kinds.iter().filter(|kind| kind.operations == most).map(|kind| kind.name).collect();
    let each = if first.len() > 1 { " each" } else { "" };
    let (most, all, share) = (units::count(most), units::count(all), units::percent(share));
    format!("{} {carry}: {most}{each} of {all} ({share}).", sentence(&first))
}

/// Names at the beginning of a sentence: only the first begins with a capital letter.
fn sentence(names: &[&str]) -> String {
    let lowered = |(place, name): (usize, &&str)| if place == 0 { (*name).to_owned() } else { name.to_lowercase() };
    words::listed(&names.iter().enumerate().map(lowered).collect::<Vec<_>>())
}

/// How many threads waited for locks, and the conclusion.
fn waiting(stats: &RunStats) -> String {
    let threads = stats.derived.waiting_threads;
    let (unfinished, unseen) = (stats.derived.unfinished_waits, unseen(stats));
    let unfinished = match unfinished {
        0 => None,
        1 => Some("1 wait that had not ended when the program did".to_owned()),
        _ => Some(format!("{} waits that had not ended when the program did", units::count(unfinished))),
    };
    let missing: Vec<&str> = [&unfinished, &unseen].into_iter().flatten().map(String::as_str).collect();
    let without = if missing.is_empty() { "" } else { ", without " };
    let missing = missing.join(" and without ");
    let average = format!("On average {} threads waited for a lock{without}{missing}", units::three_digits(threads));
    let few = threads < FEW_WAIT && unfinished.is_none();
    match (stats.lock.is_glibc(), unseen) {
        (false, _) => format!("{average}."),
        (true, None) if few => format!("{average}, so no other lock will help much."),
        (true, Some(_)) if few => {
            let lock = DEFAULT.info().name;
            format!("{average}. To count those too, run: flashlock run --stats --lock {lock} -- CMD")
        }
        (true, _) => format!("{average}. To see whether another lock helps, run: flashlock compare -- CMD"),
    }
}

/// The waits for a mutex that the locks of this run did not show, if there may be any: those that end a wait on a
/// condition variable. glibc takes the mutex again inside its own function. A lock that adopts the waiters of a
/// broadcast hands itself over to them.
fn unseen(stats: &RunStats) -> Option<String> {
    let of = |event: Event| stats.events.of(event.name());
    let (waits, moved) = (of(Event::CondWait), of(Event::CondMoved));
    if stats.lock.is_glibc() {
        let after = units::counted(waits, "wait");
        let again = "those for taking a mutex again at the end of";
        return (waits > 0).then(|| format!("{again} {after} on condition variables, which glibc does not show"));
    }
    let whose = units::counted(moved, "thread");
    (moved > 0).then(|| format!("those of {whose} that a broadcast moved from a condition variable to the mutex"))
}

/// The table of objects left to glibc: how many, how many operations on them, and why.
fn left_to_glibc(stats: &RunStats, width: u16) -> String {
    let title = if stats.lock.is_glibc() { "not replaceable:" } else { "left to glibc:" };
    let mut table = table::new([title, "objects", "operations", "because"], width);
    table::numbers(&mut table, [1, 2]);
    for &event in super::collect::LEFT_TO_GLIBC {
        let operations = stats.events.of(event.name());
        let objects = event.objects().map(|objects| stats.events.of(objects.name()));
        if operations > 0 || objects.is_some_and(|objects| objects > 0) {
            let objects = objects.map_or_else(|| "?".to_owned(), units::count);
            table.add_row([kind_left(event), objects.as_str(), units::count(operations).as_str(), why_left(event)]);
        }
    }
    if table.is_empty() { String::new() } else { table::text(&table) }
}

/// The name of such objects.
fn kind_left(event: Event) -> &'static str {
    match event {
        Event::GlibcRobust => "robust",
        Event::GlibcPi => "priority-inheriting",
        Event::GlibcPp => "priority-protected",
        Event::GlibcShared => "process-shared",
        _ => "unknown",
    }
}

/// Why glibc must serve such objects.
fn why_left(event: Event) -> &'static str {
    match event {
        Event::GlibcRobust => {
            "when the holder of a robust mutex dies, the kernel releases the mutex by glibc's protocol"
        }
        Event::GlibcPi => "a priority-inheriting mutex is locked by the kernel",
        Event::GlibcPp => "a priority-protected mutex changes its holder's priority, and glibc keeps track of that",
        Event::GlibcShared => "a process-shared object must have the same layout in all its processes",
        _ => "flashlock does not know this kind of object, or this glibc's layout of it",
    }
}

/// The table of events that happened.
fn events(stats: &RunStats, width: u16) -> String {
    let mut table = table::new(["event", "count", "what it counts"], width);
    table::numbers(&mut table, [1]);
    let describe =
        |name: &str| Event::ALL.iter().find(|event| event.name() == name).map_or("", |event| event.describe());
    for (name, count) in stats.events.0.iter().filter(|(_, count)| *count > 0) {
        table.add_row([name, units::count(*count).as_str(), describe(name)]);
    }
    if table.is_empty() { String::new() } else { table::text(&table) }
}

#[cfg(test)]
mod tests;
