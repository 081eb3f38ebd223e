use super::*;
use crate::machine::Machine;
use crate::provenance::Provenance;
use crate::run_stats::text::histogram::coarse;
use crate::run_stats::{Lock, Object, Outcome, Resources, SCHEMA, VERSION, Waits};
use flashlock_native::settings::Choice;
use flashlock_native::stats::{BUCKETS, Block, Totals, Use, bucket};

fn sample(fill: impl FnOnce(&mut Totals)) -> RunStats {
    of_objects(Lock::from(&Choice::DEFAULT), Vec::new(), fill)
}

fn of_objects(lock: Lock, objects: Vec<Object>, fill: impl FnOnce(&mut Totals)) -> RunStats {
    let mut totals = Block::create().unwrap().1.totals();
    totals.processes = 1;
    fill(&mut totals);
    let command = vec!["server".into(), "--port=80".into()];
    let provenance = Provenance::now(SCHEMA, VERSION, command, Machine::here(None));
    let resources = Resources { elapsed_ns: 1_000_000_000, ..Resources::default() };
    RunStats::new(provenance, lock, Outcome::Exited { status: 3 }, resources, &totals, objects)
}

fn today() -> Lock {
    Lock { why: Why::Today, rw: "glibc".into(), ..Lock::glibc() }
}

fn busy() -> RunStats {
    let object = |kind: &str, waited_ns| Object {
        kind: Some(kind.into()),
        address: Some("0x7fff12345678".into()),
        acquisitions: 5,
        waited_ns,
        ..Object::default()
    };
    let objects = ["mutex", "rwlock", "semaphore", "spinlock"].map(|kind| object(kind, 1_000_000));
    of_objects(today(), objects.into(), |totals| {
        totals.events = std::array::from_fn(|index| 10_u64.pow(index as u32 % 12));
        for waits in &mut totals.waits {
            waits[bucket(300)] = 1000;
            waits[bucket(2_000_000)] = 3;
        }
    })
}

/// The words of a text, regardless of line breaks.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_event_that_happened_is_named_and_no_other_and_lines_fit() {
    for width in [80, 120] {
        let (busy, idle) = (render(&busy(), width), render(&sample(|_| ()), width));
        for event in Event::ALL {
            assert!(busy.contains(event.name()), "{}: {busy}", event.name());
            assert!(!idle.contains(event.name()), "{}: {idle}", event.name());
        }
        for text in [busy, idle] {
            let long = text.lines().filter(|line| line.chars().count() > usize::from(width));
            assert_eq!(long.collect::<Vec<_>>(), Vec::<&str>::new());
        }
    }
}

#[test]
fn the_headline_names_what_carries_the_traffic() {
    let stats = sample(|totals| {
        totals.events[Event::SemAcquire as usize] = 800_968;
        totals.events[Event::Acquire as usize] = 5_625;
    });
    let text = words(&render(&stats, 80));
    assert!(text.contains("Semaphores have most of the operations: 800,968 of 806,593 (99.3%)."), "{text}");
    assert!(text.contains("- Semaphores: 800,968 permits taken"), "{text}");
    let tie = words(&render(
        &sample(|totals| {
            totals.events[Event::RwRead as usize] = 120;
            totals.events[Event::Acquire as usize] = 120;
        }),
        80,
    ));
    let both = "- Mutexes and readers-writer locks have the most operations: 120 each of 240 (50.0%).";
    assert!(tie.contains(both), "{tie}");
    let one = words(&render(&sample(|totals| totals.events[Event::Acquire as usize] = 3), 80));
    assert!(!one.contains("most of") && one.contains("- Mutexes: 3 acquisitions, 0% contended."), "{one}");
}

#[test]
fn waits_of_all_kinds_have_percentiles() {
    let text = words(&render(&busy(), 120));
    for what in
        ["a mutex", "a readers-writer lock, to read", "a readers-writer lock, to write", "a permit of", "a spinlock"]
    {
        let told = text.split(&format!("Waits for {what}")).nth(1).unwrap_or_else(|| panic!("{what}: {text}"));
        assert!(told.contains("1,003, 50% under 320 ns, 90% under 320 ns, 99% under"), "{what}: {told}");
    }
}

#[test]
fn it_says_under_which_locks_was_counted_and_why() {
    let counted = |lock: Lock| {
        let text = words(&render(&of_objects(lock, Vec::new(), |totals| totals.events[0] = 1), 120));
        text.split("counted ").nth(1).unwrap().split(" ended ").next().unwrap().to_owned()
    };
    assert!(counted(today()).starts_with("under glibc: the locks that your program uses today"));
    let mcs =
        Lock { name: "mcs".into(), wait: "park".into(), rw: "shfl-rw".into(), why: Why::Argument, ..Lock::default() };
    let expected = "under mcs, wait=park; readers-writer locks under shfl-rw, from the command line";
    assert_eq!(counted(mcs.clone()), expected);
    let unnamed = |unnamed| counted(Lock { unnamed: Some(unnamed), ..mcs.clone() });
    let expected = "under mcs, wait=park (by default); readers-writer locks under shfl-rw, from the command line";
    assert_eq!(unnamed(Unnamed::Mutexes), expected);
    assert!(unnamed(Unnamed::RwLocks).ends_with("under shfl-rw (by default), from the command line"));
    assert!(counted(Lock { why: Why::Environment, ..mcs }).ends_with("from the environment"));
}

#[test]
fn what_cannot_be_gained_is_said_of_glibcs_locks_only() {
    let waited = |lock, ns| {
        words(&render(
            &of_objects(lock, Vec::new(), |totals| {
                totals.events[Event::Acquire as usize] = 9;
                totals.waited_ns[Use::Write as usize] = ns;
                // Waiting for work does not count.
                totals.waited_ns[Use::Semaphore as usize] = 5_000_000_000;
            }),
            120,
        ))
    };
    assert!(
        waited(today(), 20_000_000)
            .contains("On average 0.0200 threads waited for a lock, so no other lock will help much.")
    );
    let much = waited(today(), 2_340_000_000);
    assert!(
        much.contains(
            "On average 2.34 threads waited for a lock. To see whether another lock helps, run: flashlock compare"
        ),
        "{much}"
    );
    assert!(waited(Lock::from(&Choice::DEFAULT), 20_000_000).contains("0.0200 threads waited for a lock. "));
    let [much, little] = [much, waited(today(), 20_000_000)].map(|text| {
        let [average, mutexes] = ["On average", "- Mutexes:"].map(|what| text.find(what).unwrap());
        average < mutexes
    });
    assert_eq!((much, little), (true, false), "the average comes first if it is the finding");
    let unfinished = words(&render(
        &of_objects(today(), Vec::new(), |totals| {
            totals.events[Event::Contended as usize] = 2;
            totals.events[Event::TimedOut as usize] = 1;
            totals.waiting[Use::Mutex as usize] = 1;
        }),
        120,
    ));
    assert!(unfinished.contains("Mutexes: 0 acquisitions, 1 attempt timed out, 100% contended."), "{unfinished}");
    assert!(unfinished.contains("without 1 wait that had not ended when the program did. To see"), "{unfinished}");
}

#[test]
fn waits_that_the_locks_do_not_show_are_named_and_nothing_is_concluded() {
    let said = |lock, waits, event: Event, count| {
        let text = words(&render(
            &of_objects(lock, Vec::new(), |totals| {
                totals.events[Event::Acquire as usize] = 9;
                totals.events[Event::CondWait as usize] = 336;
                totals.events[event as usize] = count;
                totals.waiting[Use::Mutex as usize] = waits;
            }),
            120,
        ));
        let (_, said) = text.split_once("On average 0 threads waited for a lock").unwrap();
        said.to_owned()
    };
    let hidden = "without those for taking a mutex again at the end of 336 waits on condition variables, which glibc \
                  does not show. To";
    let glibc = said(today(), 0, Event::CondWait, 336);
    assert!(glibc.starts_with(&format!(", {hidden} count those too, run: flashlock run --stats --lock ")), "{glibc}");
    let both = said(today(), 1, Event::CondWait, 336);
    assert!(both.starts_with(", without 1 wait that had not ended when the program did and without those"), "{both}");
    assert!(both.contains("To see whether another lock helps"), "{both}");
    let ours = || Lock::from(&Choice::DEFAULT);
    let moved = said(ours(), 0, Event::CondMoved, 3);
    let expected = ", without those of 3 threads that a broadcast moved from a condition variable to the mutex. ";
    assert!(moved.starts_with(expected), "{moved}");
    assert!(said(ours(), 0, Event::CondMoved, 0).starts_with(". "));
}

#[test]
fn locks_that_were_waited_for_come_first_and_semaphores_apart() {
    let object = |kind: &str, symbol: &str, waited_ns| Object {
        kind: Some(kind.into()),
        symbol: Some(symbol.into()),
        module: Some("/bin/server".into()),
        acquisitions: 10,
        contended: 5,
        waited_ns,
        ..Object::default()
    };
    let list = |count: u64| (0..count).map(|n| object("mutex", &format!("m{n}"), 1_000_000 - n)).collect::<Vec<_>>();
    let mut objects = vec![object("semaphore", "work", 9_000_000)];
    objects.extend(list(12));
    let text = render(&of_objects(today(), objects, |totals| totals.events[0] = 1), 100);
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    assert!(at("lock (by total wait)") < at("m0 in server") && at("m0 in server") < at("m1 in server"));
    assert!(at("m9 in server") < at("and 2 more") && at("and 2 more") < at("work in server"), "{text}");
    assert!(!text.contains("m10 in server") && text.contains("50.0%") && text.contains("1.00 ms"), "{text}");
    let idle: Vec<Object> = list(5).into_iter().map(|object| Object { waited_ns: 0, ..object }).collect();
    let text = render(&of_objects(today(), idle, |totals| totals.events[0] = 1), 100);
    assert!(text.contains("lock (by acquisitions)") && text.contains("m2 in") && !text.contains("m3 in"), "{text}");
}

#[test]
fn what_was_left_to_glibc_is_explained() {
    let left = |totals: &mut Totals| totals.events[Event::GlibcRobust as usize] = 3;
    let text = render(&sample(left), 120);
    assert!(text.contains("left to glibc:") && text.contains("of a robust mutex dies"), "{text}");
    let text = render(&of_objects(today(), Vec::new(), left), 120);
    assert!(text.contains("not replaceable:") && text.contains("of a robust mutex dies"), "{text}");
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
    let text = render(&sample(|totals| totals.processes = 0), 80);
    assert!(words(&text).starts_with("flashlock: no process reported") && text.lines().count() <= 3, "{text}");
    assert!(render(&sample(|_| ()), 80).contains("used no pthread mutex"));
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
