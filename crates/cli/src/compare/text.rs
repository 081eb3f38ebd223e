//! A comparison as text: tables, failures, noise, and the advice.

use flashlock_report::results::{Better, COLLAPSE, Group, Noise, Results};
use flashlock_report::statistics::Ratio;
use flashlock_report::table::{self, Row, paragraph};
use flashlock_report::units;

use super::advice;
use super::merit::name;
use super::plan::Plan;
use crate::lock_choice::RwUnder;
use crate::screen::{BAD, HEADING, WARNING, styled};

/// The start of a warning.
const LOUD: &str = "Noisy:";
/// The text for a missing figure.
const NONE: &str = "–";

/// The whole text.
pub(super) fn render(results: &Results, notes: &[String], plan: &Plan, width: u16) -> String {
    let mut out = heading(results, plan, width);
    for group in &results.groups {
        if results.groups.len() > 1 {
            out.push_str(&format!("{}\n", styled(HEADING, &group.title)));
        }
        if group.cells.len() > 1 {
            out.push_str(&by_threads(results, group, &group.merit, width));
        }
        out.push_str(&summary(results, group, plan, width));
        out.push_str(&failures(results, group, width));
    }
    out.push_str(&legend(results, plan, width));
    out.push_str(&noise(results, width));
    if !plan.is_map {
        out.push_str(&(paragraph(&also_replaced(plan), width) + "\n"));
    }
    notes.iter().for_each(|note| out.push_str(&(paragraph(note, width) + "\n")));
    out.push_str(&advice::render(results, plan, width));
    out
}

fn heading(results: &Results, plan: &Plan, width: u16) -> String {
    let Results { method, provenance, .. } = results;
    let rounds = units::counted(u64::from(method.rounds), "round");
    let each = method.seconds.map_or_else(String::new, |seconds| format!(" of {} ms each", (seconds * 1000.0).round()));
    let stopped = if method.interrupted { "; interrupted, so the last round is incomplete" } else { "" };
    let how = format!("{rounds}{each}, random order (seed {}){stopped}. {}", method.seed, provenance.machine);
    let about = if plan.is_map { paragraph(&results.about, width) } else { String::new() };
    let what = if plan.is_map { results.title.clone() } else { plan.title() };
    format!("{}\n{about}{}\n", styled(HEADING, &what), paragraph(&how, width))
}

/// A table of one metric, with a row for each lock and a column for each number of threads.
fn by_threads(results: &Results, group: &Group, metric: &str, width: u16) -> String {
    let Some(metric) = results.metric(metric) else { return String::new() };
    let row = |lock: &String| {
        let cell = |cell: &String| {
            let figure = results.figure(&group.title, cell, lock, &metric.name);
            figure.map_or_else(|| NONE.to_owned(), |spread| short(spread.median))
        };
        (lock.clone(), group.cells.iter().map(cell).collect())
    };
    let rows: Vec<Row> = results.locks.iter().map(row).collect();
    let title = paragraph(&format!("{}; {}:", metric.title, metric.better.words()), width);
    title + &table::folded(&group.axis, &group.cells, &rows, width)
}

/// Three digits, with digits after the point only if there are fewer than three before it.
fn short(number: f64) -> String {
    if number == 0.0 { "0".to_owned() } else { units::three_digits(number) }
}

/// The table of each lock's figures over all numbers of threads.
fn summary(results: &Results, group: &Group, plan: &Plan, width: u16) -> String {
    let Some(merit) = results.metric(&group.merit) else { return String::new() };
    // One number of threads has one figure. For several, the table above has all figures.
    let columns = [
        ("lock", true),
        ("ratio", true),
        ("95 % interval", true),
        (short_title(&merit.name), group.cells.len() == 1),
        ("fairness", plan.is_map),
        ("CPU time", true),
        ("switches", true),
        ("memory", !plan.is_map),
    ];
    let kept = |cells: [String; 8]| cells.into_iter().zip(columns).filter(|(_, (_, keep))| *keep).map(|(cell, _)| cell);
    let mut table = table::new(columns.into_iter().filter(|(_, keep)| *keep).map(|(title, _)| title), width);
    table::numbers(&mut table, 1..columns.len());
    table::keep_whole(&mut table, 0);
    table::keep_whole(&mut table, 2);
    for lock in &results.locks {
        table.add_row(kept(summary_row(results, group, lock)));
    }
    let note = results.collapse_note(group).map_or_else(String::new, |note| paragraph(&note, width) + "\n");
    format!("{}\n{note}", table::text(&table))
}

/// How unsuccessful runs ended: a failure is worse than a time-out.
fn ended(results: &Results, group: &Group, lock: &str) -> Option<&'static str> {
    let here = results.points.iter().filter(|point| point.lock == lock && point.group == group.title);
    let mut failures = here.flat_map(|point| &point.failures).peekable();
    failures.peek()?;
    Some(if failures.all(|failed| failed.timed_out) { "timed out" } else { "failed" })
}

/// An explanation of the columns.
fn legend(results: &Results, plan: &Plan, width: u16) -> String {
    let Some(merit) = results.metrics.first() else { return String::new() };
    let what = match merit.name.as_str() {
        name::SECONDS => "run time",
        name::OPERATIONS => "operations per µs",
        _ => "the metric",
    };
    let (over, median) = match results.groups.first() {
        Some(Group { axis, cells, .. }) if cells.len() > 1 => (
            format!(", averaged over all numbers of {axis}"),
            format!("the median over the runs, then over all numbers of {axis}, if the lock has figures for all"),
        ),
        _ => (String::new(), "the median over all runs".to_owned()),
    };
    let fairness = match plan.is_map {
        true => "fairness: the busier half of the threads' share of all operations (0.5 is fair, 1 is unfair). ",
        false => "",
    };
    let memory = match plan.is_map {
        true => "",
        false => ", peak memory of the largest process (\"small\": less than this command's own)",
    };
    let legend = format!(
        "ratio: {what} divided by {}'s{over}; {}. {fairness}CPU time, context switches (voluntary + \
         involuntary){memory}: {median}.",
        results.baseline(),
        merit.better.words()
    );
    paragraph(&legend, width) + "\n"
}

/// What else is replaced, besides mutexes and condition variables.
fn also_replaced(plan: &Plan) -> String {
    let rest = match plan.rw {
        RwUnder::Glibc => "semaphores and spinlocks are flashlock's, too, and readers-writer locks glibc's".to_owned(),
        RwUnder::Ours(..) => {
            let rw = plan.rw.text();
            format!("semaphores and spinlocks are flashlock's, too, and readers-writer locks are {rw} (see --rw)")
        }
    };
    let whose = match plan.keeps_its_locks {
        true => "The program keeps its own locks; only those of programs that it starts are replaced. For these, under",
        false => "Under",
    };
    format!("{whose} each lock but glibc's, {rest}. So a ratio may be due to these.")
}

fn summary_row(results: &Results, group: &Group, lock: &str) -> [String; 8] {
    let figure = |metric: &str| results.figure_over_cells(group, lock, metric).map(|spread| spread.median);
    let shown = |metric: &str, show: fn(f64) -> String| figure(metric).map_or_else(|| NONE.to_owned(), show);
    let seconds: fn(f64) -> String = |seconds| units::nanoseconds((seconds * 1e9) as u64);
    let ending = ended(results, group, lock).filter(|_| lock != results.baseline());
    let (ratio, ends) = match overall(results, group, lock) {
        None => (ending.unwrap_or(NONE).to_owned(), String::new()),
        Some(_) if is_no_gain(results, group, lock) => (results.beyond_words(group), String::new()),
        Some(ratio) => (units::three_digits(ratio.mean), ratio.interval().unwrap_or_default()),
    };
    let measured = figure(&group.merit).is_some();
    [
        lock.to_owned(),
        ratio,
        ends,
        shown(&group.merit, if group.merit == name::SECONDS { seconds } else { units::three_digits }),
        shown(name::FAIRNESS, |share| format!("{share:.2}")),
        shown(name::CPU, seconds),
        match measured {
            true => format!("{}+{}", shown(name::VOLUNTARY, whole), shown(name::INVOLUNTARY, whole)),
            false => NONE.to_owned(),
        },
        match figure(name::MEMORY) {
            Some(kib) => units::bytes((kib as u64).div_ceil(1024) << 20),
            // The program is smaller than this command, from which the kernel starts to count.
            None => if measured { "small" } else { NONE }.to_owned(),
        },
    ]
}

/// Whether the lock is only better because glibc's mutex collapsed.
pub(super) fn is_no_gain(results: &Results, group: &Group, lock: &str) -> bool {
    let standing = results.verdicts.get(&group.title).and_then(|verdict| verdict.standing(lock));
    standing.is_some_and(|standing| standing.advantage.mean >= COLLAPSE)
}

/// A short heading for the compared metric.
fn short_title(metric: &str) -> &'static str {
    match metric {
        name::SECONDS => "run time",
        name::OPERATIONS => "ops/µs",
        _ => "metric",
    }
}

fn whole(number: f64) -> String {
    units::count(number.round() as u64)
}

/// A lock's figure divided by glibc's, over all cells.
pub(super) fn overall(results: &Results, group: &Group, lock: &str) -> Option<Ratio> {
    let advantage = results.verdicts.get(&group.title)?.standing(lock)?.advantage;
    match results.metric(&group.merit)?.better {
        Better::More => Some(advantage),
        Better::Less => Some(advantage.inverse()),
    }
}

fn failures(results: &Results, group: &Group, width: u16) -> String {
    let mut out = String::new();
    for point in results.points.iter().filter(|point| point.group == group.title) {
        let Some(first) = point.failures.first() else { continue };
        let with = if group.axis.is_empty() { String::new() } else { format!(" with {}", group.spoken(&point.cell)) };
        let (bad, all) = (point.failures.len(), point.failures.len() + point.runs.len());
        let of_all = format!("{bad} of {}", units::counted(all as u64, "run"));
        let (word, style) = if first.timed_out { ("timed out", WARNING) } else { ("failed", BAD) };
        let how = if first.timed_out { time_out(&first.how, results, group, &point.cell) } else { first.how.clone() };
        let what = format!("{word} under {}{with}, {of_all}: {how}", point.lock);
        out.push_str(&paragraph(&what, width).replacen(word, &styled(style, word), 1));
        for line in first.output.lines() {
            out.push_str(&format!("    {line}\n"));
        }
    }
    if out.is_empty() { out } else { out + "\n" }
}

/// `after 15 s, killed; under glibc a run takes 1.02 s`.
fn time_out(how: &str, results: &Results, group: &Group, cell: &str) -> String {
    let how = how.trim_start_matches("timed out ");
    match results.figure(&group.title, cell, results.baseline(), name::SECONDS) {
        Some(seconds) => {
            format!("{how}; under glibc, a run takes {}", units::nanoseconds((seconds.median * 1e9) as u64))
        }
        None => how.to_owned(),
    }
}

fn noise(results: &Results, width: u16) -> String {
    let Some(noise) = results.noise else { return String::new() };
    let spread = format!("{:.0} %", noise.spread * 100.0);
    let text = format!(
        "a loop of constant work, repeated between the runs, varied by {spread} (the middle 80 % of its times)."
    );
    if noise.spread < Noise::LOUD {
        return paragraph(&format!("Noise: {text}"), width) + "\n";
    }
    let loud = " Other programs use this machine, or its clock rate changes. So intervals are wide, and small \
                differences cannot be seen. Measure again when the machine is quiet.";
    let told = paragraph(&format!("{LOUD} {text}{loud}"), width);
    told.replacen(LOUD, &styled(WARNING, LOUD), 1) + "\n"
}
