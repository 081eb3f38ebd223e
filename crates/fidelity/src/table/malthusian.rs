//! Malthusian Locks (Dice, EuroSys 2017): sections 1, 3 and 6.1, figures 3 and 4.

use super::{C_PTL_TKT, MCS, MCS_STP, MCSCR, MCSCR_STP, MCSCRN, USUAL};
use crate::figure::Figure;
use crate::point::{Effort, Point, Setting};
use crate::row::{Goal, Group, Paper, Row};

const ARRAY: Setting = Setting::new("sparc-t5", "randarray").millis(20.0).effort(Effort::Light).medians();
/// Long enough that the circulating set is the one that stays: MCSCR-STP's is found in a few ms.
const SETTLED: Setting = ARRAY.millis(100.0);
/// MCSCR-S's is found in up to 120 ms with 32 threads; with 64 not even in this time. And MCS-STP's waiters sleep at
/// first, until the arrays are in the caches.
const LATE: Setting = ARRAY.millis(250.0);
const TWO_NODES: Setting = Setting::new("2x18x2", "randarray").millis(100.0).effort(Effort::Light).medians();
const TWO_NODES_MAP: Setting = Setting::new("2x18x2", "kvmap").medians();
/// More threads than CPUs: ten time slices.
const CROWDED: Setting = ARRAY.millis(100.0);
const FULL: Setting = ARRAY.millis(40.0);

/// The columns of figure 4: as long as 50,000 acquisitions take with each of the latencies, or until the circulating
/// set has long been what it stays.
const COLUMNS: [(&str, Point); 4] = [
    ("MCS-S", ARRAY.millis(120.0).under(MCS, 32)),
    ("MCS-STP", ARRAY.millis(400.0).under(MCS_STP, 32)),
    ("MCSCR-S", ARRAY.millis(1000.0).under(MCSCR, 32)),
    ("MCSCR-STP", ARRAY.millis(1000.0).under(MCSCR_STP, 32)),
];

pub(crate) fn groups() -> Vec<Group> {
    vec![figure_3(), figure_4(), examples()]
}

/// A lock of figure 3: what the paper calls it, and how it is run.
#[derive(Clone, Copy)]
struct Curve {
    name: &'static str,
    setting: Setting,
    lock: &'static str,
}

/// What a row is called, and what it shows.
type Named = (String, Figure);

impl Curve {
    const fn new(name: &'static str, setting: Setting, lock: &'static str) -> Self {
        Self { name, setting, lock }
    }

    fn with(self, threads: u32) -> Point {
        self.setting.under(self.lock, threads)
    }

    fn beside(self, other: Self, threads: u32) -> Named {
        let name = format!("{} / {}, {threads} threads", self.name, other.name);
        (name, Figure::speed_up(self.with(threads), other.with(threads)))
    }

    fn from(self, fewer: u32, more: u32) -> Named {
        let name = format!("{}, {more} threads / {fewer} threads", self.name);
        (name, Figure::speed_up(self.with(more), self.with(fewer)))
    }

    /// From a thread on each hardware thread to two.
    fn beyond_the_machine(self) -> Named {
        let (name, _) = self.from(128, 256);
        (name, Figure::speed_up(CROWDED.under(self.lock, 256), FULL.under(self.lock, 128)))
    }
}

fn figure_3() -> Group {
    let mcs_s = Curve::new("MCS-S", ARRAY, MCS);
    let mcs_stp = Curve::new("MCS-STP", LATE, MCS_STP);
    let mcscr_s = Curve::new("MCSCR-S", LATE, MCSCR);
    let mcscr_stp = Curve::new("MCSCR-STP", SETTLED, MCSCR_STP);
    let loiter = Curve::new("LOITER", SETTLED, "loiter:wait=stp");
    let lifo_cr = Curve::new("LIFO-CR", SETTLED, "lifo-cr:wait=stp");
    let [mcscrn, mcscrn_map] = [TWO_NODES, TWO_NODES_MAP].map(|setting| Curve::new("MCSCRN-S", setting, MCSCRN));
    let [ptl, ptl_map] = [TWO_NODES, TWO_NODES_MAP].map(|setting| Curve::new("C-PTL-TKT", setting, C_PTL_TKT));
    let first = || [1, 2, 3, 4, 5, 6, 7, 8, 12, 16].map(|threads| mcs_s.with(threads)).to_vec();
    let row = |(what, figure): Named, words: &str, goal| Row::test(what, Paper::words(words), goal, figure);
    let (collapses, parts) = ("\"evidence of collapse\" at 6 threads", "they part at about 8 threads");
    let as_well = |(what, figure): Named, where_: &str| {
        row((format!("{what}, {where_}"), figure), "\"as well as or better\"", Goal::above(0.95))
    };
    Group {
        title: "Random access array, figure 3",
        about: "Malthusian Locks, section 6.1. Machine `sparc-t5`, of which nothing was set with a figure of the \
                paper's but the time of a wake-up; workload `randarray`. `mcs:wait=spin` stands for MCS-S, \
                `mcs:wait=stp` for MCS-STP, `mcscr:wait=spin` for MCSCR-S, `mcscr:wait=stp` for MCSCR-STP. Runs last \
                20 ms of virtual time, those of locks that restrict concurrency 100 ms, MCSCR-S's and, with few \
                threads, MCS-STP's 250; the paper's lasted 10 s. Section 9.1 does not tell its workload; `c-ptl-tkt` \
                is its CPTLTKTD.",
        rows: vec![
            Row::test(
                "Threads at the peak, MCS-S",
                Paper::number(5.0),
                Goal::from(4.0, 6.0),
                Figure::best_threads(first()),
            ),
            row(
                ("The peak / 1 thread, MCS-S".to_owned(), Figure::best_gain(first())),
                "slightly more than 3",
                Goal::above(3.0),
            ),
            row(mcs_s.from(5, 6), collapses, Goal::below(1.0)),
            row(mcs_stp.from(5, 6), collapses, Goal::below(1.0)),
            row(mcs_s.from(5, 16), "collapses", Goal::below(1.0)),
            row(mcscr_stp.beside(mcs_s, 6), parts, Goal::near(1.0, 0.1)),
            row(mcscr_stp.beside(mcs_s, 10), parts, Goal::above(1.0)),
            row(mcscr_stp.beside(mcs_stp, 10), parts, Goal::above(1.0)),
            row(mcscr_stp.beside(mcs_s, 16), "they have parted", Goal::above(1.0)),
            row(Curve { setting: ARRAY, ..mcs_stp }.beside(mcs_s, 64), "\"performs poorly\"", Goal::below(1.0)),
            row(mcscr_stp.from(5, 64), "avoids collapse", Goal::above(0.9)),
            row(mcscr_s.beside(mcscr_stp, 10), "\"departs\" at 16 threads", Goal::near(1.0, 0.1)),
            row(mcscr_s.beside(mcscr_stp, 16), "\"departs\" at 16 threads", Goal::below(1.0)),
            row(mcscr_s.beside(mcscr_stp, 64), "has faded", Goal::below(1.0)),
            row(mcs_s.beyond_the_machine(), "\"abrupt cliff\"", Goal::below(0.5)),
            row(mcscr_s.beyond_the_machine(), "\"abrupt cliff\"", Goal::below(0.5)),
            row(mcscr_stp.beyond_the_machine(), "\"maintains performance\"", Goal::above(0.9)),
            Row::test(
                "MCS-S / MCS-STP, 256 threads",
                Paper::number(1.0 / 120.0).and("MCS-STP 120 times better"),
                Goal::below(0.1),
                Figure::speed_up(CROWDED.under(MCS, 256), CROWDED.under(MCS_STP, 256)),
            ),
            row(loiter.beside(mcscr_stp, 32), "\"competitive with MCSCR\"", Goal::within(1.0, USUAL)),
            row(lifo_cr.beside(mcscr_stp, 32), "\"competitive with MCSCR\"", Goal::within(1.0, USUAL)),
            as_well(mcscrn.beside(ptl, 32), "two NUMA nodes (section 9.1)"),
            as_well(mcscrn_map.beside(ptl_map, 70), "key-value map, two NUMA nodes (section 9.1)"),
            Row::open(
                "MCSCR-STP / null, more than 48 threads",
                Paper::words("more than 1"),
                "this workload only reads, and would bear it, but its count of sections, by which the command checks \
                 that a lock excludes, would not: the command runs `null` with one thread only",
            ),
        ],
    }
}

/// What figure 4 has of each lock: a name, a metric, the four numbers, and the goal.
type Line = (&'static str, &'static str, [f64; 4], fn(f64) -> Goal);

const LINES: [Line; 6] = [
    ("Throughput, ops/µs", "ops_per_us", [0.7, 0.1, 1.3, 1.6], |paper| Goal::within(paper, USUAL)),
    ("Average LWSS", "lwss", [32.0, 32.0, 5.3, 5.1], |paper| Goal::near(paper, 0.5)),
    ("MTTR", "mttr", [31.0, 31.0, 3.0, 3.0], |paper| Goal::near(paper, 0.5)),
    ("Gini coefficient", "gini", [0.001, 0.001, 0.076, 0.078], |paper| Goal::near(paper, 0.02)),
    ("RSTDDEV", "rstddev", [0.0, 0.0, 0.152, 0.155], |paper| Goal::near(paper, 0.04)),
    ("CPUs used", "cpus_used", [32.0, 16.8, 32.0, 5.2], |paper| Goal::within(paper, USUAL)),
];

fn figure_4() -> Group {
    let [s, stp, cr_s, cr_stp] = COLUMNS.map(|(_, point)| point);
    let mut rows = Vec::new();
    for (line, metric, numbers, goal) in LINES {
        for ((lock, point), paper) in COLUMNS.into_iter().zip(numbers) {
            rows.push(Row::test(
                format!("{line}: {lock}"),
                Paper::number(paper),
                goal(paper),
                Figure::value(metric, point),
            ));
        }
    }
    rows.push(Row::test(
        "Throughput: MCSCR-STP / MCS-S",
        Paper::number(1.6 / 0.7),
        Goal::within(1.6 / 0.7, USUAL),
        Figure::speed_up(cr_stp, s),
    ));
    let switches = |lock: &str, paper: Paper, goal, point| {
        let what = format!("Voluntary switches per 1,000 acquisitions: {lock}");
        Row::test(what, paper, goal, Figure::value("switches_per_1000", point))
    };
    rows.push(switches("MCS-S", Paper::number(0.0), Goal::below(0.1), s));
    rows.push(switches("MCS-STP", Paper::number(798.0).and("798 K in 1 M"), Goal::within(798.0, USUAL), stp));
    rows.push(switches("MCSCR-S", Paper::number(0.0).and("11 in 13 M"), Goal::below(0.1), cr_s));
    rows.push(switches("MCSCR-STP", Paper::number(0.375).and("6 K in 16 M"), Goal::below(1.0), cr_stp));
    let fewer: fn(f64) -> Goal = |_| Goal::below(0.05);
    let near: fn(f64) -> Goal = |paper| Goal::within(paper, USUAL);
    for (lock, point, misses, millions, goal) in [
        ("MCS-STP", stp, 10.0, 1.0, near),
        ("MCSCR-S", cr_s, 0.152, 13.0, fewer),
        ("MCSCR-STP", cr_stp, 0.172, 16.0, fewer),
    ] {
        let ratio = (misses / millions) / (11.0 / 7.0);
        rows.push(Row::test(
            format!("Misses of the last level per operation: {lock} / MCS-S"),
            Paper::number(ratio).and(format!("{misses} M in {millions} M, 11 M in 7 M")),
            goal(ratio),
            Figure::ratio("llc_misses", point, s),
        ));
    }
    for (lock, point, watts) in [("MCS-STP", stp, 79.0), ("MCSCR-S", cr_s, 91.0), ("MCSCR-STP", cr_stp, 63.0)] {
        rows.push(Row::test(
            format!("Power above idle, an estimate: {lock} / MCS-S"),
            Paper::number(watts / 113.0).and(format!("{watts} W / 113 W")),
            Goal::within(watts / 113.0, USUAL),
            Figure::ratio("watts", point, s),
        ));
    }
    Group {
        title: "Random access array at 32 threads, figure 4",
        about: "Malthusian Locks, section 6.1; machine, workload and locks as above. The paper's runs took 10 s, ours \
                as much virtual time as 50,000 acquisitions take with each of the latencies, and more: 120 ms for \
                MCS-S, 400 for MCS-STP, and 1 s for MCSCR; before that, a quarter as much is not counted.",
        rows,
    }
}

fn examples() -> Group {
    let example = |what: &str, paper, setting: Setting, threads| {
        let figure = Figure::value("lwss", setting.under(MCSCR_STP, threads));
        Row::test(what, Paper::number(paper), Goal::near(paper, 0.5), figure)
    };
    Group {
        title: "Worked examples of concurrency restriction",
        about: "Malthusian Locks, sections 1 and 3: how many threads should circulate (average LWSS of \
                `mcscr:wait=stp`). Machine `sparc-t5`; workload `one-in-six` has sections of 1 µs and 5 µs between \
                them, `randarray` four times as much work outside as inside, and arrays of 1 MiB.",
        rows: vec![
            example("Section 1: of 10 threads", 6.0, Setting::new("sparc-t5", "one-in-six").millis(40.0).medians(), 10),
            example("Section 3: of 16 threads", 5.0, ARRAY.millis(100.0), 16),
        ],
    }
}
