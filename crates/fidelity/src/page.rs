//! `docs/fidelity.md`, made of the report and of `reasons.md`, in which people say why something misses.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use flashlock_report::units::three_digits;
use flashlock_report::wrap::wrapped;

use crate::reasons;
use crate::report::{Entry, Later, Report, Shown};
use crate::row::{Paper, Verdict};

/// How many rows of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    met: usize,
    /// Those of them that no run missed.
    throughout: usize,
    missed: usize,
    failed: usize,
    open: usize,
    inputs: usize,
    reproduced: usize,
}

impl Count {
    pub(crate) fn of<'a>(groups: impl IntoIterator<Item = &'a Shown>) -> Self {
        let mut count = Self::default();
        for row in groups.into_iter().flat_map(|group| &group.rows) {
            let met = row.verdict == Verdict::Met;
            let throughout = met && row.ours.is_some_and(|ours| row.goal.holds_all(&ours));
            if row.input {
                count.inputs += 1;
                count.reproduced += usize::from(met);
                continue;
            }
            count.throughout += usize::from(throughout);
            *match row.verdict {
                Verdict::Met => &mut count.met,
                Verdict::Missed { .. } => &mut count.missed,
                Verdict::Failed { .. } => &mut count.failed,
                Verdict::Open { .. } => &mut count.open,
            } += 1;
        }
        count
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { met, missed, failed, open, .. } = self;
        write!(f, "{met} goals met, {missed} missed, {failed} failed, {open} rows open")
    }
}

/// The whole page.
pub(crate) fn render(report: &Report) -> String {
    let mut page = head(report);
    page += &made_later(report);
    page.push('\n');
    page += &summary(report);
    page += &machines(report);
    for group in &report.groups {
        let _ = write!(page, "\n## {}\n\n{}\n\n{}", group.title, group.about, table(group));
        if let Some(reason) = reasons::of(reasons::WRITTEN, &group.title) {
            let _ = write!(page, "\n{reason}\n");
        }
    }
    wrapped(&(page + FORMAT))
}

/// What the JSON is.
const FORMAT: &str = "
## The JSON

`docs/results/fidelity.json` has the schema `flashlock.fidelity`, version 2:
[the common fields](cli/stats.md#common-fields), the `machines` of the table above, and `groups` of `rows`.

| field of a row | meaning |
|---|---|
| `what`, `paper` | what is compared; the paper's `value`, its standard `deviation`, and what it says in `words` |
| `input` | whether parameters were set with it |
| `goal` | from `low` to `high`; `null`: no bound; in `words` |
| `ours` | `value`, `low` and `high` as said above; whether the value is the `mean` or the `median`: `typical`; `null`: nothing was simulated |
| `besides` | the same `value` of what is shown with it, by name |
| `verdict` | `is`: `met`; `missed`, `by` so much (negative: too low), and whether the band `reached` the goal; `open`, and `why`; `failed`, and `how` |
| `commands` | what was run, without other latencies |
| `later` | only where a row was made after the others: its `date`, and the version of `flashlock` |
";

fn head(report: &Report) -> String {
    let made = &report.provenance;
    format!(
        "<!-- Made by `cargo xtask fidelity`; do not edit. What is said of misses: crates/fidelity/src/reasons.md \
         -->\n\n\
         # How far to trust the simulation\n\n\
         {}\n\
         ## How it was compared\n\n\
         The tables compare figures that papers measured on real machines with those of `flashlock simulate`. No row \
         is left out because it misses. These have no workload here, and are left out: sections 6.2 to 6.6 and 6.8 to \
         6.10 of Malthusian Locks; applications of Remote Core Locking, except for figures 10 and 13; memory figures \
         on ShflLocks' slides; other NUMA-aware locks in CNA's test of updates without lookups. (Remote Core Locking \
         measures Raytrace and Radiosity of SPLASH-2, Linear Regression, String Match and Matrix Multiply of Phoenix \
         2, Memcached, and transactions of Berkeley DB. It gives the share of time in their sections and the misses of \
         one, but neither the length of sections nor what is done between them, from which a workload could be made. \
         It measures no programs in which it finds no hot lock.) The gain of shuffle reduction in the kernel's lock \
         has [a page of its own](results/scans.md).\n\n\
         Made on {} by `{}`, flashlock {}. [The same as JSON](results/fidelity.json): every figure, and the command \
         that makes it.\n\n\
         **Parameters** of machines are of three kinds; [each machine's text](#where-the-parameters-come-from) says \
         which is which.\n\n\
         - *Published*: sizes of caches, and latencies of loads. For `2x18x2` they are those of a smaller processor of \
         its family. For the others they are published in part, or are those of similar processors.\n\
         - *Set with three facts of a paper*, only on `2x18x2` and `4x18x2`, because no other paper gives them: the \
         time of a line between two caches (published for the family of the first); the speed of one thread, which \
         sets `step_ns`; and MCS at two threads, which sets `upgrade` on the first and the latencies between sockets \
         on the second.\n\
         - *Assumed*: all others. Among them are the scheduler, how hardware threads share a core, how many loads \
         overlap, `step_ns` of all other machines, and on `sparc-t5` nearly every latency.\n\n\
         **Workloads** have parameters, too. The work outside and the sections of the patch's loops are set with the \
         facts under [what was put in](#what-was-put-in), and with the 320 ns (`TRAVEL`) that a section's lines take \
         on the simulated machine. The number of lines in those sections is guessed. The map's 0.7 µs of external work \
         is set with the curve of MCS. No parameter is set with a row that counts as a test.\n\n\
         **Ours** is computed as the source does it: for CNA's paper and patch, the mean over seeds and placements, \
         and the quotient of two means; for the others, the median. The number of runs varies; the JSON has the \
         command of each row.\n\n\
         - Usual: two seeds with two placements each; three placements up to 16 threads; one placement with one \
         thread.\n\
         - Where threads may be anywhere: ten placements up to four threads, four up to 36. Fairness: three seeds.\n\
         - Malthusian Locks: two seeds with one placement, so the median is the mean; three placements for its section \
         1, two for its lock on the map.\n\
         - ShflLocks: six seeds with one placement for the map, two with two for the readers-writer locks.\n\n\
         **In brackets** are the least and the greatest of all single runs. They include runs with 0.75 and 1.25 times \
         the latencies `llc`, `transfer`, `clean`, `upgrade` and `dram`, all at once. The core's own latencies (`l1`, \
         `l2`, `rmw`, `store`, `pause`), `step_ns`, bandwidths and the scheduler stay. Most brackets come from two to \
         four runs and one more with each factor. (CNA's map, the patch's loops with 2 to 16 threads, and ShflLocks' \
         map have two more with each; where threads may be anywhere, six up to four threads, two up to 36.) So they \
         are no confidence intervals. The bracket of a quotient pairs runs of the same seed and placement, where both \
         sides have as many runs; otherwise it pairs them in order, and the side with fewer runs begins again.\n\n\
         **Placements**, as far as the papers describe them:\n\n\
         - CNA did not tie threads to CPUs. Linux puts a new thread on the least busy CPU, so threads start in turn on \
         all sockets here. The paper says the same of its runs (section 7.1.1: with two threads the lock is \
         \"contended with threads running on different sockets\").\n\
         - will-it-scale ties its threads to the cores of one socket, then of the next (`--place packed`).\n\
         - The kernel's lock torture does not say where its threads run. The kernel starts them near the thread that \
         wakes them, and spreads them later, so their cores are drawn (`--place anywhere`).\n\
         - Malthusian Locks ran on Solaris, on one socket (our `sparc-t5`): threads start in turn on all cores.\n\
         - ShflLocks' slides do not say: packed, so that the first 24 threads are those of one socket.\n\n\
         **Verdicts**: *met* if our figure is within the goal. *missed by* is the distance to the nearer end of the \
         goal. *(band reaches it)*, and for a goal that is met *(band leaves it)*: the verdict depends on latencies \
         that are not known better than this. *Open*: the lock or the workload does not exist here yet, or the command \
         cannot combine them.\n\n",
        opening(report),
        made.date,
        made.command.join(" "),
        made.flashlock,
    )
}

/// Ten lines that answer: can I trust it?
fn opening(report: &Report) -> String {
    let all = Count::of(&report.groups);
    let factors = Factors::of(report);
    format!(
        "**Can I trust it?** Mostly for which lock is ahead, and where a trend turns; less for how large a difference \
         is.\n\
         Its figures are not measurements.\n\n\
         - Papers measured these machines. Of {} of their figures, none of which was used to fit the model, it meets \
         {} and misses {}.\n\
         - Where the paper gives a number, half of ours differ by at most {} %. {} of {} differ by more than a factor \
         of two.\n\
         - The tables with the largest share of misses: {}.\n\
         - Each machine was fitted with at most three facts. They are [listed](#what-was-put-in), and do not count as \
         tests.\n\
         - We had no NUMA hardware to compare it with, only the figures in papers.\n\
         - Each table below shows what is missed, by how much, and why, where we know the reason.\n\
         - Before you rely on a difference, run it with `--seeds 5 --placements 5`, and `--latencies 0.75` and \
         `1.25`.\n\
         - If you have the machine, use `flashlock compare` there.\n",
        all.met + all.missed + all.failed,
        all.met,
        all.missed + all.failed,
        factors.median_percent(),
        factors.beyond(2.0),
        factors.0.len(),
        worst(report),
    )
}

/// How far ours are from the papers' numbers, as factors of 1 and above, least first. What was put in is left out.
struct Factors(Vec<f64>);

impl Factors {
    fn of(report: &Report) -> Self {
        let rows = report.groups.iter().flat_map(|group| &group.rows).filter(|row| !row.input);
        let pairs = rows.filter_map(|row| Some((row.ours?.value, row.paper.value?)));
        let factor = |(ours, paper): (f64, f64)| (ours / paper).max(paper / ours);
        let mut factors: Vec<f64> = pairs.filter(|&(ours, paper)| ours > 0.0 && paper > 0.0).map(factor).collect();
        factors.sort_by(f64::total_cmp);
        Self(factors)
    }

    fn median_percent(&self) -> String {
        self.0.get(self.0.len() / 2).map_or("–".to_owned(), |factor| format!("{:.0}", (factor - 1.0) * 100.0))
    }

    fn beyond(&self, factor: f64) -> usize {
        self.0.iter().filter(|&&other| other > factor).count()
    }
}

/// The two tables with the largest share of rows that miss.
fn worst(report: &Report) -> String {
    let share = |count: &Count| (count.missed + count.failed) as f64 / (count.met + count.missed + count.failed) as f64;
    let mut groups: Vec<(&str, Count)> = report
        .groups
        .iter()
        .map(|group| (group.title.as_str(), Count::of([group])))
        .filter(|(_, count)| count.missed + count.failed > 0)
        .collect();
    groups.sort_by(|(_, a), (_, b)| share(b).total_cmp(&share(a)));
    let named = |(title, count): &(&str, Count)| {
        let missed = count.missed + count.failed;
        format!("[{title}](#{}) ({missed} of {})", anchor(title), missed + count.met)
    };
    groups.iter().take(2).map(named).collect::<Vec<_>>().join(", ")
}

/// Which rows are of other code than the rest: how many of each table.
fn made_later(report: &Report) -> String {
    let mut rows: BTreeMap<(&str, &str), Vec<(&str, usize)>> = BTreeMap::new();
    for group in &report.groups {
        for row in &group.rows {
            let Some(Later { flashlock, date }) = &row.later else { continue };
            let groups = rows.entry((date, flashlock)).or_default();
            match groups.last_mut() {
                Some((title, count)) if *title == group.title => *count += 1,
                _ => groups.push((&group.title, 1)),
            }
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut text = "**Rows made later** than the others (the JSON says which):\n\n".to_owned();
    for ((date, flashlock), groups) in rows {
        let groups: Vec<String> = groups.iter().map(|(title, count)| format!("{title}, {count}")).collect();
        let _ = writeln!(text, "- on {date} by flashlock {flashlock}: {}.", groups.join("; "));
    }
    text
}

fn summary(report: &Report) -> String {
    let all = Count::of(&report.groups);
    let mut text = format!(
        "**{} goals are met** ({} of them by each single run), **{} are missed**{}; {} rows are open. Of {} figures \
         that were put in, {} meet their goals.\n\n\
         | | met | missed | open |\n|---|--:|--:|--:|\n",
        all.met,
        all.throughout,
        all.missed,
        if all.failed > 0 { format!(", {} failed", all.failed) } else { String::new() },
        all.open,
        all.inputs,
        all.reproduced,
    );
    for group in &report.groups {
        let count = Count::of([group]);
        if count.met + count.missed + count.failed + count.open > 0 {
            let (anchor, missed) = (anchor(&group.title), count.missed + count.failed);
            let _ = writeln!(text, "| [{}](#{anchor}) | {} | {missed} | {} |", group.title, count.met, count.open);
        }
    }
    text
}

/// What a heading is linked by.
fn anchor(title: &str) -> String {
    let kept = title
        .to_lowercase()
        .chars()
        .filter(|letter| letter.is_alphanumeric() || " -".contains(*letter))
        .collect::<String>();
    kept.replace(' ', "-")
}

fn machines(report: &Report) -> String {
    let mut text = "\n## Where the parameters come from\n\n\
                    In ns; lists go by distance: within a NUMA node, to the next, and so on.\n\n\
                    | machine | a line that another core has written | last level | memory | atomic operation | a step \
                    in a tree |\n\
                    |---|---|---|---|--:|--:|\n"
        .to_owned();
    let list = |numbers: &[f64]| numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
    for machine in &report.machines {
        let l = &machine.latency_ns;
        let (transfer, llc, dram) = (list(&l.transfer), list(&l.llc), list(&l.dram));
        let _ = writeln!(
            text,
            "| `{}` | {transfer} | {llc} | {dram} | {} | {} |",
            machine.name, l.rmw, machine.clock.step_ns
        );
    }
    for machine in &report.machines {
        let _ = write!(text, "\n**`{}`**, {}. {}\n", machine.name, machine.title, machine.source.trim());
    }
    text
}

fn table(group: &Shown) -> String {
    let mut text = "| | paper | goal | ours | verdict |\n|---|---|---|---|---|\n".to_owned();
    for row in &group.rows {
        let (what, goal) = (&row.what, &row.goal.words);
        let _ = writeln!(text, "| {what} | {} | {goal} | {} | {} |", paper(&row.paper), ours(row), verdict(row));
    }
    text
}

/// `1.17 ± 0.06 (5.97 / 5.12 ops/µs)`.
fn paper(paper: &Paper) -> String {
    let Some(value) = paper.value else { return paper.words.clone() };
    let mut text = three_digits(value);
    if let Some(deviation) = paper.deviation {
        let _ = write!(text, " ± {deviation:.2}");
    }
    match paper.words.as_str() {
        "" => text,
        // A unit belongs to the number.
        "ops/µs" => text + " ops/µs",
        words => format!("{text} ({words})"),
    }
}

/// `1.07 (1.02–1.13); CNA 1.62, stock 1.51`.
fn ours(row: &Entry) -> String {
    let Some(ours) = row.ours else { return "–".to_owned() };
    let mut text = three_digits(ours.value);
    if ours.low < ours.high {
        let _ = write!(text, " ({}–{})", three_digits(ours.low), three_digits(ours.high));
    }
    let besides: Vec<String> =
        row.besides.iter().map(|(name, value)| format!("{name} {}", three_digits(*value))).collect();
    if !besides.is_empty() {
        let _ = write!(text, "; {}", besides.join(", "));
    }
    text
}

fn verdict(row: &Entry) -> String {
    match &row.verdict {
        Verdict::Met if row.input => "put in: met".to_owned(),
        Verdict::Missed { .. } if row.input => "put in: missed".to_owned(),
        Verdict::Met => {
            let leaves = row.ours.is_some_and(|ours| !row.goal.holds_all(&ours));
            if leaves { "met (band leaves it)".to_owned() } else { "met".to_owned() }
        }
        Verdict::Missed { by, reached } => {
            let direction = if *by < 0.0 { "too low" } else { "too high" };
            let band = if *reached { " (band reaches it)" } else { "" };
            format!("**missed** by {}, {direction}{band}", three_digits(by.abs()))
        }
        Verdict::Open { why } => format!("open: {why}"),
        Verdict::Failed { how } => format!("**failed**: {how}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Ours;
    use crate::point::Typical;
    use crate::report::Report;
    use crate::row::{Goal, Group, Row};
    use flashlock_report::provenance::Provenance;

    fn entry(verdict: Verdict) -> Entry {
        Entry {
            what: "A / B".into(),
            input: false,
            paper: Paper { value: Some(1.167), deviation: Some(0.0584), words: "5.97 / 5.12".into() },
            goal: Goal::near(1.0, 0.5),
            ours: Some(Ours { value: 1.0, typical: Typical::Mean, low: 0.5, high: 2.0 }),
            besides: [("B".to_owned(), 3.0)].into(),
            verdict,
            commands: Vec::new(),
            later: None,
        }
    }

    #[test]
    fn a_row() {
        let group = Shown {
            title: "G".into(),
            about: String::new(),
            rows: vec![entry(Verdict::Missed { by: -0.25, reached: true })],
        };
        let expected = "| A / B | 1.17 ± 0.06 (5.97 / 5.12) | ± 0.5 | 1.00 (0.500–2.00); B 3.00 | **missed** by 0.250, \
                        too low (band reaches it) |";
        assert_eq!(table(&group).lines().last(), Some(expected));
    }

    #[test]
    fn nothing_is_counted_twice_or_left_out() {
        let missed = Verdict::Missed { by: 1.0, reached: false };
        let input = Entry { input: true, ..entry(Verdict::Met) };
        let open = entry(Verdict::Open { why: "no lock".into() });
        let rows = vec![entry(Verdict::Met), entry(missed), input, open];
        let group = Shown { title: "Kernel patch: a, b".into(), about: String::new(), rows };
        let count = Count { met: 1, throughout: 0, missed: 1, failed: 0, open: 1, inputs: 1, reproduced: 1 };
        assert_eq!(Count::of([&group]), count);
        assert_eq!(anchor(&group.title), "kernel-patch-a-b");
        let report = Report { provenance: Default::default(), machines: Vec::new(), groups: vec![group] };
        let json = report.json();
        // Without machines the list of groups is not the only empty one: what is written is read all the same.
        assert_eq!(serde_json::from_str::<Report>(&json.expect("written")).expect("read"), report);
        let page = render(&report).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            page.contains("**1 goals are met** (0 of them by each single run), **1 are missed**; 1 rows are open.")
        );
        assert!(page.contains("| 1.00 (0.500–2.00); B 3.00 | met (band leaves it) |"));
        // What was put in counts for nothing here either.
        assert!(
            page.contains("Of 2 of their figures, none of which was used to fit the model, it meets 1 and misses 1.")
        );
        assert!(page.contains("half of ours differ by at most 17 %. 0 of 3 differ by more than a factor of two."));
        assert!(page.contains(
            "The tables with the largest share of misses: [Kernel patch: a, b](#kernel-patch-a-b) (1 of 2)."
        ));
    }

    #[test]
    fn each_row_that_misses_wants_a_reason_of_its_own() {
        let named = |what: &str, verdict| Entry { what: what.into(), ..entry(verdict) };
        let missed = || Verdict::Missed { by: 1.0, reached: true };
        let failed = Verdict::Failed { how: "hung".into() };
        let input = Entry { input: true, ..named("put in", missed()) };
        let rows = vec![
            named("A, 2 threads", missed()),
            named("B", missed()),
            named("C", failed),
            named("D", Verdict::Met),
            input,
        ];
        let group = |title: &str| Shown { title: title.into(), about: String::new(), rows: rows.clone() };
        let report =
            Report { provenance: Default::default(), machines: Vec::new(), groups: vec![group("G"), group("H")] };
        let missing = |text: &str| -> Vec<String> {
            reasons::missing(&report, text).into_iter().map(|(title, what)| format!("{title}: {what}")).collect()
        };
        let all = "\n## G\n\n- **A, … threads; C**: because.\n- **put in**: because.\n- **B**: because.\n";
        let h = ["H: A, 2 threads", "H: B", "H: C", "H: put in"];
        assert_eq!(missing(all), h);
        // What is said of another table, or without naming the row, is none.
        assert_eq!(missing(&all.replace("**B**", "B and **B**")), [&["G: B"], &h[..]].concat());
        assert_eq!(missing("").len(), 8);
    }

    #[test]
    fn rows_that_are_made_later_take_the_place_of_the_old_ones_and_say_so() {
        let of = |version: &str, rows: Vec<Entry>| Report {
            provenance: Provenance { flashlock: version.into(), date: "today".into(), ..Provenance::default() },
            machines: Vec::new(),
            groups: vec![Shown { title: "G".into(), about: String::new(), rows }],
        };
        let table = |rows: &[&str]| {
            let rows = rows.iter().map(|what| Row::open(*what, Paper::default(), "why")).collect();
            [Group { title: "G", about: "", rows }]
        };
        let other = Entry { what: "C".into(), ..entry(Verdict::Met) };
        let old = of("1", vec![entry(Verdict::Missed { by: 1.0, reached: false }), other.clone()]);
        let made = of("2", vec![entry(Verdict::Met)]);
        let new = old.clone().with(&made, &table(&["A / B", "C"])).expect("both are there");
        assert_eq!((&new.groups[0].rows[0].verdict, &new.groups[0].rows[1]), (&Verdict::Met, &other));
        assert!(render(&new).contains("flashlock 1."), "the rest is of the first run");
        assert!(render(&new).contains("- on today by flashlock 2: G, 1.\n"));
        assert!(!render(&old).contains("made later"));
        // Rows that are new stand where the table has them, and those that it has no more are gone.
        let made = of("2", vec![Entry { what: "D".into(), ..other }]);
        let new = old.clone().with(&made, &table(&["D", "C"])).expect("both are there");
        assert_eq!(new.groups[0].rows.iter().map(|row| row.what.as_str()).collect::<Vec<_>>(), ["D", "C"]);
        assert!(old.with(&made, &table(&["D", "E"])).is_err());
    }
}
