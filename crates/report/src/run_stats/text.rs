//! The counters of a run as text for people.

use flashlock_locks::event::Event;

use super::{Bucket, RunStats, Waits};
use crate::{table, units};

/// How wide the names of the header's fields are.
const NAMES: usize = 9;
/// How long the longest bar of the histogram is.
const BAR: usize = 30;

/// All of it, for a screen of that width.
pub fn render(stats: &RunStats, width: u16) -> String {
    let sections = [
        header(stats, width),
        summary(stats, width),
        left_to_glibc(stats, width),
        events(stats, width),
        waits(&stats.waits, width),
    ];
    sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n")
}

fn header(stats: &RunStats, width: u16) -> String {
    let about = &stats.provenance;
    let lock = format!("{}, wait={}", stats.lock.name, stats.lock.wait);
    let when = about.date.replace('T', " ").replace('Z', " UTC");
    let fields = [
        ("command", command(&about.command)),
        ("lock", lock),
        ("ended", stats.outcome.to_string()),
        ("took", stats.resources.to_string()),
        ("machine", about.machine.to_string()),
        ("made by", format!("flashlock {}, {when}", about.flashlock)),
    ];
    let lines: String = fields.iter().map(|(name, text)| table::field(name, text, NAMES, width)).collect();
    format!("flashlock run: what the locks did\n{lines}")
}

/// The words as one would type them in a shell.
fn command(words: &[String]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-".contains(c);
    let quote = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// What the counters say, in sentences.
fn summary(stats: &RunStats, width: u16) -> String {
    let mut out = String::new();
    let mut say = |text: &str| out.push_str(&table::field("-", text, 1, width));
    let acquisitions = stats.events.of(Event::Acquire.name());
    if stats.processes == 0 {
        say("No process reported: flashlock was not loaded into the program, or the program closed its descriptors \
             before it used a lock. Ask: flashlock doctor PROGRAM");
        return out;
    }
    if stats.processes > 1 {
        say(&format!("{} processes counted together.", stats.processes));
    }
    let of = |event: Event| stats.events.of(event.name());
    let rw = of(Event::RwRead) + of(Event::RwWrite);
    match stats.derived.contention {
        None if rw > 0 => {}
        None => say("No pthread mutex was acquired through flashlock. Ask: flashlock doctor PROGRAM"),
        Some(share) => say(&format!(
            "{} of {} found the mutex held.",
            units::percent(share),
            units::counted(acquisitions, "acquisition")
        )),
    }
    if rw > 0 {
        say(&format!(
            "{} of {} of readers-writer locks had to wait; {} were for reading.",
            units::percent(of(Event::RwContended) as f64 / rw as f64),
            units::counted(rw, "acquisition"),
            units::percent(of(Event::RwRead) as f64 / rw as f64)
        ));
    }
    if let Some(share) = stats.derived.handoff_locality {
        let nodes = stats.provenance.machine.numa_nodes;
        let trivial = nodes == Some(1) && stats.provenance.machine.imagined.is_none();
        let why = if trivial { ": this machine has one" } else { "" };
        say(&format!("{} of the queue hand-offs stayed on the same NUMA node{why}.", units::percent(share)));
    }
    out
}

/// What was left to glibc: how many objects, how many operations on them, and why.
fn left_to_glibc(stats: &RunStats, width: u16) -> String {
    let mut table = table::new(["left to glibc:", "objects", "operations", "because"], width);
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

/// What such objects are called.
fn kind_left(event: Event) -> &'static str {
    match event {
        Event::GlibcRobust => "robust",
        Event::GlibcPi => "priority-inheriting",
        Event::GlibcPp => "priority-protected",
        Event::GlibcShared => "process-shared",
        _ => "unknown",
    }
}

/// Why such objects are glibc's.
fn why_left(event: Event) -> &'static str {
    match event {
        Event::GlibcRobust => {
            "a robust mutex must be released by the kernel when its owner dies, which is glibc's pact"
        }
        Event::GlibcPi => "a priority-inheriting mutex is locked by the kernel",
        Event::GlibcPp => "a priority-protected mutex changes its owner's priority, and glibc keeps the account",
        Event::GlibcShared => "a process-shared object must look the same in all its processes",
        _ => "the object is of a kind that flashlock does not know, or this glibc lays it out differently",
    }
}

fn events(stats: &RunStats, width: u16) -> String {
    let mut table = table::new(["event", "count", "what it counts"], width);
    table::numbers(&mut table, [1]);
    let describe =
        |name: &str| Event::ALL.iter().find(|event| event.name() == name).map_or("", |event| event.describe());
    for (name, count) in stats.events.0.iter().filter(|(_, count)| *count > 0) {
        table.add_row([name, units::count(*count).as_str(), describe(name)]);
    }
    let silent: Vec<&str> =
        stats.events.0.iter().filter(|(_, count)| *count == 0).map(|(name, _)| name.as_str()).collect();
    let mut out = if table.is_empty() { String::new() } else { table::text(&table) };
    if !silent.is_empty() {
        out.push_str(&table::field("none:", &silent.join(", "), 5, width));
    }
    out
}

fn waits(waits: &Waits, width: u16) -> String {
    if waits.count == 0 {
        return String::new();
    }
    let open = waits.buckets.last().is_some_and(|bucket| bucket.below_ns.is_none());
    let points = [
        ("50% under", waits.p50_ns),
        ("90% under", waits.p90_ns),
        ("99% under", waits.p99_ns),
        ("99.9% under", waits.p999_ns),
        (if open { "the longest over" } else { "all under" }, waits.max_ns),
    ];
    let points = points.iter().filter_map(|(share, ns)| Some(format!("{share} {}", units::nanoseconds((*ns)?))));
    let text = format!("{}: {}", units::counted(waits.count, "wait"), points.collect::<Vec<_>>().join(", "));
    let mut out = table::field("-", &text, 1, width);
    let mut table = table::new(["waited for a mutex", "times", ""], width);
    table::numbers(&mut table, [0, 1]);
    let rows = coarse(&waits.buckets);
    let most = rows.iter().map(|row| row.count).max().unwrap_or(1);
    for row in rows {
        let below = row.below_ns.map_or_else(|| "longer".to_owned(), units::nanoseconds);
        table.add_row([
            format!("{} - {below}", units::nanoseconds(row.from_ns)),
            units::count(row.count),
            "█".repeat((u128::from(row.count) * BAR as u128).div_ceil(u128::from(most)) as usize),
        ]);
    }
    out.push('\n');
    out.push_str(&table::text(&table));
    out
}

/// Buckets of two powers of two, without gaps, so that the histogram fits on a screen.
fn coarse(buckets: &[Bucket]) -> Vec<Bucket> {
    let floor = |ns: u64| if ns < 4 { 0 } else { 1u64 << (ns.ilog2() & !1) };
    let mut rows: Vec<Bucket> = Vec::new();
    for bucket in buckets {
        let from_ns = floor(bucket.from_ns);
        while let Some(last) = rows.last().filter(|last| last.from_ns < from_ns) {
            let next = floor(last.from_ns).max(1) * 4;
            rows.push(Bucket { from_ns: next, below_ns: Some(next * 4), count: 0 });
        }
        if rows.is_empty() {
            rows.push(Bucket { from_ns, below_ns: Some(from_ns.max(1) * 4), count: 0 });
        }
        if let Some(last) = rows.last_mut() {
            last.count += bucket.count;
            if bucket.below_ns.is_none() {
                last.below_ns = None;
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::provenance::Provenance;
    use crate::run_stats::{Outcome, Resources, SCHEMA, VERSION};
    use flashlock_native::settings::Choice;
    use flashlock_native::stats::{BUCKETS, Block, Totals, bucket};

    fn sample(fill: impl FnOnce(&mut Totals)) -> RunStats {
        let mut totals = Block::create().unwrap().1.totals();
        totals.processes = 1;
        fill(&mut totals);
        let command = vec!["server".into(), "--port=80".into()];
        let provenance = Provenance::now(SCHEMA, VERSION, command, Machine::here(None));
        RunStats::new(provenance, &Choice::DEFAULT, Outcome::Exited { status: 3 }, Resources::default(), &totals)
    }

    fn busy() -> RunStats {
        sample(|totals| {
            totals.events = std::array::from_fn(|index| 10_u64.pow(index as u32 % 12));
            totals.waits[bucket(300)] = 1000;
            totals.waits[bucket(2_000_000)] = 3;
        })
    }

    #[test]
    fn every_event_is_named_and_lines_fit() {
        for width in [80, 120] {
            for stats in [busy(), sample(|_| ())] {
                let text = render(&stats, width);
                for event in Event::ALL {
                    assert!(text.contains(event.name()), "{}: {text}", event.name());
                }
                let words = text.lines().filter(|line| line.chars().count() > usize::from(width));
                assert_eq!(words.collect::<Vec<_>>(), Vec::<&str>::new());
            }
        }
    }

    #[test]
    fn what_was_left_to_glibc_is_explained() {
        let text = render(&busy(), 120);
        assert!(text.contains("left to glibc:") && text.contains("a robust mutex must"), "{text}");
        let nothing = render(&sample(|_| ()), 80);
        assert!(!nothing.contains("left to glibc:"), "{nothing}");
    }

    #[test]
    fn objects_and_operations_are_told_apart() {
        let stats = sample(|totals| {
            totals.events[Event::PiObject as usize] = 3;
            totals.events[Event::GlibcPi as usize] = 70;
            totals.events[Event::SharedObject as usize] = 2;
        });
        assert_eq!((stats.derived.objects_left_to_glibc, stats.derived.left_to_glibc), (5, 70));
        let text = render(&stats, 120);
        let row = |name: &str| -> Vec<&str> {
            let line = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
            line.split_whitespace().take(3).collect()
        };
        assert_eq!(row("priority-inheriting"), ["priority-inheriting", "3", "70"], "{text}");
        assert_eq!(row("process-shared"), ["process-shared", "2", "0"], "{text}");
        assert!(row("robust").is_empty(), "{text}");
    }

    #[test]
    fn a_program_that_was_not_reached_is_told_from_one_without_locks() {
        assert!(render(&sample(|totals| totals.processes = 0), 80).contains("No process reported"));
        assert!(render(&sample(|_| ()), 80).contains("No pthread mutex was acquired"));
    }

    #[test]
    fn commands_are_quoted_as_a_shell_needs_them() {
        let words = ["sh", "-c", "it's 5", ""].map(str::to_owned);
        assert_eq!(command(&words), r"sh -c 'it'\''s 5' ''");
    }

    #[test]
    fn the_histogram_has_no_gaps() {
        let stats = busy();
        let rows = coarse(&stats.waits.buckets);
        assert!(rows.windows(2).all(|pair| pair[0].below_ns == Some(pair[1].from_ns)), "{rows:?}");
        assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 1003);
        let mut counts = [0; BUCKETS];
        counts[0] = 5;
        counts[BUCKETS - 1] = 1;
        let rows = coarse(&Waits::from_buckets(&counts).buckets);
        assert!(rows.windows(2).all(|pair| pair[0].below_ns == Some(pair[1].from_ns)), "{rows:?}");
        assert_eq!((rows[0].count, rows.last().unwrap().count, rows.last().unwrap().below_ns), (5, 1, None));
    }
}
