//! Remote core locking (Lozi and others, USENIX ATC 2012): section 4, figures 7, 8, 10 and 13.

use super::{MCS, USUAL};
use crate::figure::Figure;
use crate::point::{Point, Setting};
use crate::row::{Goal, Group, Paper, Row};

const MACHINE: &str = "opteron-6172";
/// All cores but the one that serves, or idles.
const CLIENTS: u32 = 47;
/// Threads of figure 13.
const CROWD: u32 = 100;

const CAS: &str = "cas";
/// Compare and swap, then sleep.
const POSIX: &str = "futex";
const COMBINING: &str = "flat-combining:wait=spin";
const RCL: &str = "rcl:wait=spin";
const RCL_UMWAIT: &str = "rcl:wait=umwait";

/// Delays in cycles, as options; with five lines, too.
const HIGH: Setting = Setting::new(MACHINE, "rcl-lines").with(&["--delay", "100"]).millis(10.0);
const HIGH_5: Setting = Setting::new(MACHINE, "rcl-lines").with(&["--delay", "100", "--lines", "5"]).millis(10.0);
const LOW: Setting = Setting::new(MACHINE, "rcl-lines").with(&["--delay", "2000000"]).millis(40.0);
const LOW_5: Setting = Setting::new(MACHINE, "rcl-lines").with(&["--delay", "2000000", "--lines", "5"]).millis(40.0);
const SECTION: &str = "section_ns";
const FETCHED: &str = "lines_fetched";
const ATOMICS: &str = "atomics";

pub(crate) fn groups() -> Vec<Group> {
    vec![times(), misses(), crossings(), cores(), servers()]
}

/// A lock, and its cycles in table 7(c), at high contention and at low.
const CYCLES: [(&str, &str, f64, f64); 5] = [
    ("Spinlock", CAS, 672_889.0, 1288.0),
    ("POSIX", POSIX, 73_024.0, 1826.0),
    ("MCS", MCS, 63_553.0, 1457.0),
    ("Flat combining", COMBINING, 50_447.0, 15_060.0),
    ("RCL", RCL, 16_682.0, 1494.0),
];

fn times() -> Group {
    let [spin, posix, mcs, combining, rcl] = CYCLES;
    let high = |of: (&str, &'static str, f64, f64), to: (&str, &'static str, f64, f64), goal| {
        let ((name, lock, cycles, _), (other, under, others, _)) = (of, to);
        let paper = Paper::number(cycles / others).and(format!("{cycles} / {others} cycles"));
        let figure = Figure::ratio(SECTION, HIGH.under(lock, CLIENTS), HIGH.under(under, CLIENTS));
        Row::test(format!("{name} / {other}, high contention"), paper, goal, figure)
    };
    let low = |of: (&str, &'static str, f64, f64), goal: Option<Goal>| {
        let ((name, lock, _, cycles), (other, under, _, others)) = (of, rcl);
        let paper = Paper::number(cycles / others).and(format!("{cycles} / {others} cycles"));
        let figure = Figure::ratio(SECTION, LOW.under(lock, CLIENTS), LOW.under(under, CLIENTS));
        let goal = goal.unwrap_or_else(|| Goal::within(cycles / others, USUAL));
        Row::test(format!("{name} / {other}, low contention"), paper, goal, figure)
    };
    let umwait = |what: &str, setting: Setting| {
        let figure = Figure::ratio(SECTION, setting.under(RCL_UMWAIT, CLIENTS), setting.under(RCL, CLIENTS));
        Row::test(what, Paper::words("\"less than 30 %\" longer"), Goal::below(1.3), figure)
    };
    Group {
        title: "Remote core locking",
        about: "Remote Core Locking, section 4.1 and figure 7(c): time of a critical section with one shared line, \
                from request to completion. Machine `opteron-6172`, workload `rcl-lines`: 47 clients; the 48th core \
                serves, or idles. Delays of 100 cycles (high contention) and of 2,000,000 (low). `cas` is the paper's \
                spinlock, `futex` stands for POSIX; all others poll.",
        rows: vec![
            high(spin, posix, Goal::above(1.0)),
            high(posix, mcs, Goal::above(1.0)),
            high(mcs, combining, Goal::above(1.0)),
            high(combining, rcl, Goal::above(3.0)),
            high(spin, rcl, Goal::above(3.0)),
            high(posix, rcl, Goal::above(3.0)),
            high(mcs, rcl, Goal::above(3.0)),
            low(spin, None),
            low(posix, None),
            // RCL takes 1.1 times as long at most.
            low(mcs, Some(Goal::above_one_over(1.1))),
            low(combining, Some(Goal::above(5.0))),
            umwait("RCL by `umwait` / RCL, high contention", HIGH),
            umwait("RCL by `umwait` / RCL, low contention", LOW),
        ],
    }
}

fn misses() -> Group {
    let more = |name: &str, lock, contention: &str, (one, five): (Setting, Setting), paper: f64, goal| {
        let figure = Figure::difference(FETCHED, five.under(lock, CLIENTS), one.under(lock, CLIENTS));
        let what = format!("{name}, {contention} contention: misses with five lines, less those with one");
        Row::test(what, Paper::number(paper), goal, figure)
    };
    let usual = |paper: f64| Goal::within(paper, USUAL);
    let (high, low) = ((HIGH, HIGH_5), (LOW, LOW_5));
    let atomics = |name: &str, lock, setting: Setting, words: &str, paper: Option<f64>, goal| {
        let figure = Figure::value(ATOMICS, setting.under(lock, CLIENTS));
        let paper = Paper { value: paper, ..Paper::words(words) };
        let contention = if setting == HIGH { "high" } else { "low" };
        Row::test(format!("{name}, {contention} contention: CAS of a section"), paper, goal, figure)
    };
    Group {
        title: "Remote core locking: misses and CAS",
        about: "Remote Core Locking, figure 7(c): by how many misses of the L2 cache a section has more with five \
                shared lines than with one, and its compare-and-swap operations. Ours: lines that any core fetched \
                because it had no copy, and all atomic operations (exchanges and additions, too), of all threads, \
                those that wait included.",
        rows: vec![
            more("Spinlock", CAS, "high", high, 53.0, usual(53.0)),
            more("POSIX", POSIX, "high", high, 3.8, usual(3.8)),
            more("MCS", MCS, "high", high, 4.0, usual(4.0)),
            more("Flat combining", COMBINING, "high", high, 0.3, Goal::near(0.3, 0.3)),
            more("RCL", RCL, "high", high, 0.0, Goal::near(0.0, 0.1)),
            more("Spinlock", CAS, "low", low, 5.2, usual(5.2)),
            more("POSIX", POSIX, "low", low, 4.0, usual(4.0)),
            more("MCS", MCS, "low", low, 4.8, usual(4.8)),
            more("Flat combining", COMBINING, "low", low, 2.4, usual(2.4)),
            more("RCL", RCL, "low", low, 0.0, Goal::near(0.0, 0.1)),
            atomics("Spinlock", CAS, HIGH, "N", None, Goal::above(2.0)),
            atomics("POSIX", POSIX, HIGH, "", Some(1.0), usual(1.0)),
            atomics("MCS", MCS, HIGH, "", Some(1.0), usual(1.0)),
            atomics("Flat combining", COMBINING, HIGH, "ε", None, Goal::below(0.5)),
            atomics("RCL", RCL, HIGH, "", Some(0.0), Goal::below(0.01)),
            atomics("RCL", RCL, LOW, "", Some(0.0), Goal::below(0.01)),
        ],
    }
}

fn crossings() -> Group {
    const DELAYS: [Setting; 12] = {
        const fn delay(options: &'static [&'static str]) -> Setting {
            Setting::new(MACHINE, "rcl-lines").with(options).millis(20.0)
        }
        [
            HIGH,
            delay(&["--delay", "1000"]),
            delay(&["--delay", "5000"]),
            delay(&["--delay", "10000"]),
            delay(&["--delay", "20000"]),
            delay(&["--delay", "30000"]),
            delay(&["--delay", "50000"]),
            delay(&["--delay", "70000"]),
            delay(&["--delay", "100000"]),
            delay(&["--delay", "200000"]),
            delay(&["--delay", "500000"]),
            LOW,
        ]
    };
    let row = |name: &str, lock, paper: f64, distance: f64| {
        let points: Vec<_> = DELAYS.iter().map(|at| [POSIX, lock, RCL].map(|lock| at.under(lock, CLIENTS))).collect();
        let what = format!("{name}: % of the time in sections");
        let goal = Goal::near(paper, distance);
        Row::test(what, Paper::number(paper), goal, Figure::crossing(&points, 1.1))
    };
    Group {
        title: "Remote core locking: from when it pays",
        about: "Remote Core Locking, section 4.1 and figure 8 (whose picture is lost; the figures are in the text): \
                the share of their time that threads spend in sections, or waiting for them, *under POSIX*, where the \
                time of a section \"begins to be significantly higher\" under that lock than under RCL; here: by a \
                tenth. Machine `opteron-6172`, workload `rcl-lines` with one line, 47 clients; delays of 100 to \
                2,000,000 cycles, between which it is interpolated.",
        rows: vec![row("POSIX", POSIX, 20.0, 10.0), row("MCS", MCS, 70.0, 15.0)],
    }
}

fn cores() -> Group {
    const LINES: Setting = Setting::new(MACHINE, "rcl-lines").with(&["--lines", "30", "--delay", "38000"]).millis(20.0);
    let on = |cores: u32| [LINES.under(POSIX, cores), LINES.under(RCL, cores - 1)];
    let ratio = |cores: u32| {
        let [posix, rcl] = on(cores);
        Figure::speed_up(rcl, posix)
    };
    let behind = |cores: u32| {
        let what = format!("RCL / POSIX, {cores} cores");
        Row::test(what, Paper::words("\"worse … when fewer than four cores are used\""), Goal::below(1.0), ratio(cores))
    };
    Group {
        title: "Remote core locking: few cores, figure 10",
        about: "Remote Core Locking, section 4.2 and figure 10: Memcached, whose sections access 30 shared lines. \
                Machine `opteron-6172`, workload `rcl-lines` with 30 lines. On so many cores POSIX (`futex`) has as \
                many threads, RCL one less and a server. Of the program only lines and share of time are rebuilt: the \
                delay is 38,000 cycles, so that with four threads as much time is spent in sections under POSIX as \
                figure 3 says.",
        rows: vec![
            Row::input(
                "POSIX, 4 threads: share of the time in sections",
                Paper::number(0.287),
                Goal::within(0.287, USUAL),
                Figure::value("in_sections", LINES.under(POSIX, 4)),
            ),
            behind(2),
            behind(3),
            Row::test(
                "Cores from which RCL is ahead of POSIX",
                Paper::number(5.0),
                Goal::near(5.0, 2.0),
                Figure::ahead_from(&(2..=12).map(on).collect::<Vec<_>>()),
            ),
        ],
    }
}

fn servers() -> Group {
    const ONE: Setting = Setting::new(MACHINE, "rcl-locks").with(&["--servers", "1"]);
    const TWO: Setting = Setting::new(MACHINE, "rcl-locks").with(&["--servers", "2"]);
    let rate = |metric, point: Point| Figure::value(metric, point);
    let (one, two) = (ONE.under(RCL, CROWD), TWO.under(RCL, CROWD));
    Group {
        title: "Remote core locking: false serialization, figure 13",
        about: "Remote Core Locking, section 4.2 and figure 13: Berkeley DB with 100 clients, whose 11 locks are \
                served by one server, or by two, the two busiest apart. Machine `opteron-6172`, workload `rcl-locks`. \
                Of the program only the locks are rebuilt: a section takes 1 µs, which is assumed, besides its line, \
                and the delay between sections is set so that one server's use rate is the paper's. Of two servers \
                the greater rate.",
        rows: vec![
            Row::input("One server: use rate", Paper::number(0.81), Goal::within(0.81, 0.05), rate("use_rate", one)),
            Row::test(
                "One server: false serialization",
                Paper::number(0.91),
                Goal::above(0.8),
                rate("false_serialization", one),
            ),
            Row::test("Two servers: use rate", Paper::number(0.05), Goal::below(0.1), rate("use_rate", two)),
            Row::test(
                "Two servers: false serialization",
                Paper::words("< 0.01"),
                Goal::below(0.02),
                rate("false_serialization", two),
            ),
            Row::test(
                "Throughput: two servers / one",
                Paper::number(28.7 / 18.9).and("28.7 / 18.9 transactions a second"),
                Goal::above(1.3),
                Figure::speed_up(two, one),
            ),
        ],
    }
}
