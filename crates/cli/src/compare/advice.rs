//! The plain sentence at the end: what to do, and how sure that is.

use flashlock_locks::catalogue::DEFAULT;
use flashlock_report::results::{Better, Group, Results};
use flashlock_report::statistics::verdict::LEAST_ROUNDS;
use flashlock_report::statistics::{Direction, Standing, Verdict};
use flashlock_report::table::paragraph;
use flashlock_report::units::three_digits;

use super::plan::Plan;
use super::text::interval;
use crate::screen::{HEADING, styled};

/// Less than this many times better is said to be little.
const LITTLE: f64 = 1.05;

/// The advice, and what limits it.
pub(super) fn render(results: &Results, group: &Group, plan: &Plan, width: u16) -> String {
    let Some(verdict) = results.verdicts.get(&group.title) else { return String::new() };
    let advice = advice(verdict, results, group, plan.merit.times_better());
    let caveats = caveats(results, plan);
    // The style takes no columns; the word does.
    let text = paragraph(&format!("Advice: {advice}"), width);
    let text = text.replacen("Advice:", &styled(HEADING, "Advice:"), 1);
    if caveats.is_empty() { text } else { format!("{text}\n{}", paragraph(&caveats, width)) }
}

/// `as fast`, `as good`: what a lock is so many times.
fn advice(verdict: &Verdict, results: &Results, group: &Group, as_what: &str) -> String {
    let judged: Vec<&Standing> = verdict.standings.iter().filter(|standing| standing.p.is_some()).collect();
    if judged.is_empty() {
        let complete = verdict.standings.iter().map(|standing| standing.advantage.rounds).max().unwrap_or(0);
        return format!(
            "none. {} {} too few to tell a difference from noise: {LEAST_ROUNDS} are needed, more are better.",
            flashlock_report::units::counted(u64::from(complete), "complete round"),
            if complete == 1 { "is" } else { "are" },
        );
    }
    let failed: Vec<&str> = results
        .locks
        .iter()
        .skip(1)
        .filter(|lock| results.failures(&group.title, lock).0 > 0)
        .map(String::as_str)
        .collect();
    let warning = if failed.is_empty() {
        String::new()
    } else {
        format!(" Not {}: the program failed under it.", failed.join(", nor "))
    };
    let Some(best) = verdict.best.as_deref().and_then(|lock| verdict.standing(lock)) else {
        return keep(verdict, &judged) + &warning;
    };
    let advantage = best.advantage;
    let mut text = format!(
        "use {}. It was {} times {as_what} as glibc's mutex ({}; confidence that there is a difference: {}).",
        best.lock,
        three_digits(advantage.mean),
        interval(advantage).map_or_else(|| "without any spread".to_owned(), |ends| format!("95 % interval {ends}")),
        confidence(best)
    );
    text += &range(results, group, &best.lock);
    if !verdict.equals.is_empty() {
        text += &format!(" Just as good, as far as this can tell: {}", verdict.equals.join(", "));
        text +=
            if verdict.equals.iter().any(|lock| lock == DEFAULT.info().name) { " (the default lock)." } else { "." };
    }
    if advantage.mean < LITTLE {
        text += " That is little, and may not be worth the change.";
    }
    text + &warning
}

/// No lock is better.
fn keep(verdict: &Verdict, judged: &[&Standing]) -> String {
    let named = |direction: Direction| {
        let of = judged.iter().filter(|standing| standing.direction == direction);
        of.map(|standing| format!("{} ({})", standing.lock, three_digits(standing.advantage.mean))).collect::<Vec<_>>()
    };
    let better = named(Direction::Better);
    let worse = named(Direction::Worse);
    if !better.is_empty() {
        return format!(
            "keep glibc's mutex. The program works with no lock that is better than it: {}.",
            better.join(", ")
        );
    }
    if worse.is_empty() {
        return format!("keep glibc's mutex: no lock differs from glibc beyond the noise. {}", left_open(judged));
    }
    let sure = verdict.standings.iter().filter(|standing| standing.direction == Direction::Worse);
    let least = sure.filter_map(|standing| standing.p).fold(0.0, f64::max);
    format!(
        "keep glibc's mutex: no lock is better beyond the noise. Worse, by the times in brackets: {} (confidence {}).",
        worse.join(", "),
        percent(least)
    )
}

/// What "no difference" leaves possible.
fn left_open(judged: &[&Standing]) -> String {
    let intervals: Option<Vec<(f64, f64)>> =
        judged.iter().map(|standing| standing.advantage.interval_of(judged.len())).collect();
    let Some(intervals) = intervals else {
        return "Of some lock every round gave the same figure, so nothing is known of its noise: the figure may be too coarse \
                to show a difference."
            .into();
    };
    let low = intervals.iter().map(|ends| ends.0).fold(1.0, f64::min);
    let high = intervals.iter().map(|ends| ends.1).fold(1.0, f64::max);
    let all = if judged.len() > 1 { " that hold for all locks at once" } else { "" };
    format!(
        "The 95 % intervals{all} reach from {} to {} times as good as glibc's: what lies between them is not ruled out.",
        three_digits(low),
        three_digits(high)
    )
}

fn confidence(standing: &Standing) -> String {
    percent(standing.p.unwrap_or(1.0))
}

/// How sure one is with this probability of being wrong.
fn percent(p: f64) -> String {
    if p < 0.001 { "over 99.9 %".to_owned() } else { format!("{:.1} %", (1.0 - p) * 100.0) }
}

/// The least and the greatest advantage over the numbers of threads.
fn range(results: &Results, group: &Group, lock: &str) -> String {
    let sign = match results.metric(&group.merit).map(|metric| metric.better) {
        Some(Better::Less) => -1,
        _ => 1,
    };
    let ratio = |cell: &str| results.point(&group.title, cell, lock)?.ratio;
    let advantages = group.cells.iter().filter_map(|cell| Some((ratio(cell)?.mean.powi(sign), cell)));
    let mut all: Vec<(f64, &String)> = advantages.collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    match all.as_slice() {
        [(low, at_low), .., (high, at_high)] => format!(
            " From {} times with {at_low} to {} times with {at_high} {}.",
            three_digits(*low),
            three_digits(*high),
            group.axis
        ),
        _ => String::new(),
    }
}

/// What this comparison cannot say.
fn caveats(results: &Results, plan: &Plan) -> String {
    let mut text = String::new();
    if plan.is_map {
        text += "This is one mutex with hardly any work outside, and nobody's program: ask yours, with flashlock compare -- PROGRAM.";
    }
    if results.provenance.machine.numa_nodes == Some(1) {
        text += " This machine has one NUMA node: nothing is seen of what a lock does for several.";
    }
    if cfg!(debug_assertions) {
        text += " This flashlock was built without optimisation: build it with --release.";
    }
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use flashlock_report::results::{Metric, Point, Run};

    use super::*;

    /// glibc takes 1 s; each lock takes what is said, round by round.
    fn results(locks: &[(&str, &[f64])]) -> Results {
        let point = |lock: &str, seconds: &[f64]| Point {
            group: "g".into(),
            cell: "all".into(),
            lock: lock.into(),
            runs: (0..)
                .zip(seconds)
                .map(|(round, value)| Run { round, values: [("seconds".into(), *value)].into() })
                .collect(),
            ..Point::default()
        };
        let rounds = locks[0].1.len();
        let mut results = Results {
            metrics: vec![Metric { name: "seconds".into(), title: "Run time, s".into(), better: Better::Less }],
            groups: vec![Group {
                title: "g".into(),
                axis: String::new(),
                cells: vec!["all".into()],
                merit: "seconds".into(),
            }],
            locks: std::iter::once("glibc").chain(locks.iter().map(|lock| lock.0)).map(str::to_owned).collect(),
            points: std::iter::once(point("glibc", &vec![1.0; rounds]))
                .chain(locks.iter().map(|lock| point(lock.0, lock.1)))
                .collect(),
            ..Results::default()
        };
        results.method.rounds = rounds as u32;
        results.derive();
        results.judge();
        results
    }

    fn said(results: &Results) -> String {
        advice(&results.verdicts["g"], results, &results.groups[0], "as fast")
    }

    #[test]
    fn a_better_lock_is_recommended_with_its_equals() {
        let text = said(&results(&[
            ("shfl", &[0.51, 0.5, 0.49, 0.5]),
            ("tas", &[0.5, 0.49, 0.51, 0.51]),
            ("mcs", &[2.0, 2.1, 1.9, 2.0]),
        ]));
        assert!(text.starts_with("use shfl. It was 2.00 times as fast as glibc's mutex (95 % interval"), "{text}");
        assert!(text.contains("over 99.9 %") && text.contains("Just as good, as far as this can tell: tas."), "{text}");
    }

    #[test]
    fn no_difference_is_an_answer() {
        let text = said(&results(&[("shfl", &[1.01, 0.98, 1.0, 1.02])]));
        assert!(
            text.contains("no lock differs from glibc beyond the noise. The 95 % intervals reach from 0.969"),
            "{text}"
        );
        let of_two = said(&results(&[("shfl", &[1.01, 0.98, 1.0, 1.02]), ("mcs", &[1.01, 0.98, 1.0, 1.02])]));
        assert!(of_two.contains("hold for all locks at once reach from 0.9"), "{of_two}");
    }

    #[test]
    fn a_figure_that_never_changes_is_no_proof() {
        let text = said(&results(&[("shfl", &[1.0; 8])]));
        assert!(text.contains("too coarse to show a difference") && !text.contains(" 0 %"), "{text}");
    }

    #[test]
    fn a_worse_lock_is_named() {
        let text = said(&results(&[("mcs", &[2.0, 2.1, 1.9, 2.0]), ("shfl", &[1.01, 0.98, 1.0, 1.02])]));
        assert!(text.contains("no lock is better beyond the noise") && text.contains("mcs (0.500)"), "{text}");
    }

    #[test]
    fn too_little_gives_no_advice() {
        assert!(said(&results(&[("mcs", &[2.0, 2.1])])).contains("2 complete rounds are too few"));
        let mut one = results(&[("mcs", &[2.0])]);
        // A second round was begun.
        one.method.rounds = 2;
        assert!(said(&one).contains("1 complete round is too few"), "{}", said(&one));
    }

    #[test]
    fn little_is_called_little_and_failures_are_not_hidden() {
        let mut little = results(&[("shfl", &[0.98, 0.981, 0.979, 0.98]), ("tas", &[0.5, 0.5, 0.51, 0.5])]);
        let failed = flashlock_report::results::Failed { round: 4, how: "x".into(), ..Default::default() };
        little.points[2].failures.push(failed);
        little.judge();
        let text = said(&little);
        assert!(text.starts_with("use shfl.") && text.contains("That is little"), "{text}");
        assert!(text.contains("Not tas: the program failed under it."), "{text}");
    }
}
