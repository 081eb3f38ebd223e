//! The advice at the end: what to do, and how certain that is.

mod collapsed;
mod kept;

use flashlock_locks::catalogue::DEFAULT;
use flashlock_report::results::{COLLAPSE, Group, Results};
use flashlock_report::statistics::verdict::LEAST_ROUNDS;
use flashlock_report::statistics::{Direction, Standing, Verdict};
use flashlock_report::table::paragraph;
use flashlock_report::units::three_digits;

use self::collapsed::{collapses, rescue, torn};
use self::kept::keep;
use super::merit::{Merit, NO_OPERATION, ZERO, name};
use super::plan::Plan;
use crate::screen::{HEADING, styled};

/// A smaller advantage than this is called little.
const LITTLE: f64 = 1.05;

/// The start of the advice if the program keeps its own locks.
const OF_OTHERS: &str = "the program itself ran with the same locks each time; for the programs that it starts: ";

/// The advice for each group, and its limitations.
pub(super) fn render(results: &Results, plan: &Plan, width: u16) -> String {
    let mut text = String::new();
    for group in &results.groups {
        let Some(verdict) = results.verdicts.get(&group.title) else { continue };
        let whose = if plan.keeps_its_locks { OF_OTHERS } else { "" };
        let advice = format!("{whose}{}", advice(verdict, results, group, plan.merit.did()));
        let name = if results.groups.len() > 1 { group.title.as_str() } else { "Advice" };
        // The style takes no columns, so it is added after wrapping.
        let paragraph = paragraph(&format!("{name}: {advice}"), width);
        text += &paragraph.replacen(&format!("{name}:"), &styled(HEADING, &format!("{name}:")), 1);
    }
    let caveats = caveats(results, plan);
    if caveats.is_empty() { text } else { format!("{text}\n{}", paragraph(&caveats, width)) }
}

/// `did`: the words from [`Merit::did`](super::merit::Merit::did).
fn advice(verdict: &Verdict, results: &Results, group: &Group, did: [&str; 2]) -> String {
    let judged: Vec<&Standing> = verdict.standings.iter().filter(|standing| standing.p.is_some()).collect();
    if judged.is_empty() {
        let complete = verdict.standings.iter().map(|standing| standing.advantage.rounds).max().unwrap_or(0);
        return format!(
            "none. {} {} too few to tell a difference from noise; at least {LEAST_ROUNDS} are needed.{}",
            flashlock_report::units::counted(u64::from(complete), "complete round"),
            if complete == 1 { "is" } else { "are" },
            warning(results, group),
        );
    }
    let warning = warning(results, group);
    let best = verdict.best.as_deref().and_then(|lock| verdict.standing(lock));
    let rival = best.filter(|best| is_rival(results, &best.lock));
    let ours: Vec<&Standing> = judged.iter().copied().filter(|standing| !is_rival(results, &standing.lock)).collect();
    let good = ours.iter().filter(|standing| standing.direction == Direction::Better && standing.may_be_chosen());
    let good = good.max_by(|a, b| a.advantage.mean.total_cmp(&b.advantage.mean));
    let theirs = rival.map_or_else(String::new, |rival| {
        format!(
            "{} was best: it {}. But a program must be written for it. For an unchanged program: ",
            rival.lock,
            how_much(rival, results, did)
        )
    });
    if ours.is_empty() {
        return theirs + "there is no advice, because no lock for unchanged programs has a verdict." + &warning;
    }
    let Some(best) = good else {
        return theirs
            + &match (results.dropped_cells(group).as_slice(), verdict.survivors.as_slice()) {
                ([], _) => keep(verdict, &ours, results, group),
                (_, []) => torn(&ours, results, group),
                (_, survivors) => rescue(survivors, &ours, results, group),
            }
            + &warning;
    };
    let mut text = format!(
        "{theirs}use {}. It {} ({}; confidence {}).",
        best.lock,
        how_much(best, results, did),
        best.advantage.interval().map_or_else(|| "no spread".to_owned(), |ends| format!("95 % interval {ends}")),
        confidence(best)
    );
    if best.advantage.mean >= COLLAPSE {
        text = format!(
            "{theirs}use {}: with it, the program runs at a usual speed, while glibc's mutex collapsed.",
            best.lock
        );
        text += &results.collapse_note(group).map_or_else(String::new, |note| format!(" {note}"));
    }
    text += &range(results, group, &best.lock);
    let equals = verdict.equals.iter().filter(|lock| **lock != best.lock).map(String::as_str).collect::<Vec<_>>();
    if rival.is_none() && !equals.is_empty() {
        text += &format!(" Not measurably different: {}", equals.join(", "));
        text += if equals.contains(&DEFAULT.info().name) { " (the default lock)." } else { "." };
    } else if rival.is_some() && verdict.equals.contains(&best.lock) {
        text += " It does not measurably differ from the best.";
    }
    if best.advantage.mean < LITTLE {
        text += " This is a small gain, and may not be worth the change.";
    }
    text + &warning
}

/// `ran 1.31 times as fast as with glibc's mutex`.
fn how_much(standing: &Standing, results: &Results, [did, as_what]: [&str; 2]) -> String {
    let baseline = results.baseline();
    match standing.advantage.mean {
        mean if mean >= COLLAPSE => format!("worked while {baseline}'s mutex collapsed"),
        mean => format!("{did} {} times {as_what} {baseline}'s mutex", three_digits(mean)),
    }
}

fn is_rival(results: &Results, lock: &str) -> bool {
    results.rivals.iter().any(|rival| rival == lock)
}

/// Whether the program failed under a lock (`timed_out`: did not end in time).
fn has_ended(results: &Results, group: &Group, lock: &str, timed_out: bool) -> bool {
    let mut here = results.points.iter().filter(|point| point.lock == lock && point.group == group.title);
    here.any(|point| point.failures.iter().any(|failed| failed.timed_out == timed_out))
}

/// A warning about locks with which the program fails, does not end in time, may hang, or has a metric of 0.
fn warning(results: &Results, group: &Group) -> String {
    let ended = |timed_out: bool| {
        let locks = results.locks.iter().skip(1).map(String::as_str);
        locks.filter(|lock| has_ended(results, group, lock, timed_out)).collect::<Vec<_>>()
    };
    let (failed, slow) = (ended(false), ended(true));
    let mut text = String::new();
    if !failed.is_empty() {
        text += &format!(" Do not use {}: the program failed under {}.", failed.join(" or "), it(&failed));
    }
    if !slow.is_empty() {
        text += &format!(" Do not use {}: the program timed out under {}.", slow.join(" or "), it(&slow));
    }
    for lock in results.locks.iter().skip(1) {
        let Some(run) = results.hang(&group.title, lock) else { continue };
        text += &format!(
            " The program may hang under {lock}: a run had not ended after {} s, and the longest other run under it \
             took {} s.",
            three_digits(run.seconds),
            three_digits(run.longest.unwrap_or_default())
        );
    }
    for lock in &results.locks {
        let (zeros, runs) = results.zeros(group, lock);
        if zeros > 0 {
            let runs = flashlock_report::units::counted(runs as u64, "run");
            text += &match is_map(group) {
                true => format!(" Under {lock}, no operation ended in time in {zeros} of {runs}: {NO_OPERATION}."),
                false => format!(" Under {lock}, the metric was 0 in {zeros} of {runs}: {ZERO}."),
            };
        }
    }
    text
}

/// Whether the map's operations are compared.
fn is_map(group: &Group) -> bool {
    group.merit == name::OPERATIONS
}

fn it(locks: &[&str]) -> &'static str {
    if locks.len() == 1 { "it" } else { "them" }
}

fn confidence(standing: &Standing) -> String {
    percent(standing.p.unwrap_or(1.0))
}

/// The confidence, for this probability of being wrong.
fn percent(p: f64) -> String {
    if p < 0.001 { "over 99.9 %".to_owned() } else { format!("{:.1} %", (1.0 - p) * 100.0) }
}

/// The least and the greatest advantage over the numbers of threads with which glibc's mutex did not collapse, and what
/// it did with the others.
fn range(results: &Results, group: &Group, lock: &str) -> String {
    let cells = results.telling_cells(group);
    let has_fallen = cells.iter().all(|cell| results.has_baseline_collapsed(group, cell));
    let advantages = cells.iter().filter_map(|cell| Some((results.advantage(group, cell, lock)?.mean, *cell)));
    let mut all: Vec<(f64, &str)> = advantages.collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let range = match all.as_slice() {
        _ if has_fallen => return String::new(),
        [(low, at_low), .., (high, at_high)] => format!(
            " It ranged from {} times with {at_low} to {} times with {at_high} {}.",
            three_digits(*low),
            three_digits(*high),
            group.axis
        ),
        _ => String::new(),
    };
    if results.dropped_cells(group).is_empty() { range } else { range + " " + &collapses(results, group, Some(lock)) }
}

/// Run times that differ by less are called equal.
const EQUAL: f64 = 1.03;

/// Whether all run times are equal, as those of a program are that runs for a fixed time.
fn are_equal(results: &Results) -> bool {
    let mut all = results.verdicts.values().flat_map(|verdict| &verdict.standings).peekable();
    all.peek().is_some() && all.all(|one| (1.0 / EQUAL..EQUAL).contains(&one.advantage.mean))
}

/// The limitations of this comparison.
fn caveats(results: &Results, plan: &Plan) -> String {
    let mut text = String::new();
    if matches!(plan.merit, Merit::RunTime) && are_equal(results) {
        text += "All run times are about equal. If the program runs for a fixed time, they say nothing about its \
                 locks: compare a number that it prints, with --metric.";
    }
    if plan.is_map {
        text += " This is a synthetic benchmark. Test your own program: flashlock compare -- PROGRAM.";
    }
    if results.provenance.machine.numa_nodes == Some(1) {
        text += " This machine has one NUMA node, so NUMA effects are not visible.";
    }
    if cfg!(debug_assertions) {
        text += " This flashlock was built without optimisation; build it with --release.";
    }
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use flashlock_report::results::{Better, Failed, Metric, Point, Run, Unfinished};

    use super::*;

    /// glibc takes 1 s; each lock takes the given times, round by round.
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
        let rounds = locks.iter().map(|lock| lock.1.len()).max().unwrap_or(0);
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
        advice(&results.verdicts["g"], results, &results.groups[0], ["ran", "as fast as with"])
    }

    /// With so many locks, each difference may be chance; but to say that there is none would contradict the figures.
    #[test]
    fn what_seems_to_differ_is_named() {
        let times: &[f64] = &[3.0, 8.0, 5.0];
        let text = said(&results(&[("mcs", times), ("cna", times), ("cst", times), ("tas", &[1.0, 1.02, 0.99])]));
        assert!(text.starts_with("keep glibc's mutex: no difference is certain."), "{text}");
        assert!(
            text.contains("These seem to differ, by the factor in brackets: mcs (0.203), cna (0.203), cst"),
            "{text}"
        );
        let text = said(&results(&[("mcs", &[1.01, 1.02, 0.99])]));
        assert!(text.contains("no lock differs from it beyond the noise"), "{text}");
    }

    #[test]
    fn equal_run_times_are_suspicious() {
        assert!(are_equal(&results(&[("mcs", &[1.01, 1.0, 1.0]), ("tas", &[0.99, 1.0, 1.0])])));
        assert!(!are_equal(&results(&[("mcs", &[1.01, 1.0, 1.0]), ("tas", &[0.9, 0.8, 0.9])])));
    }

    #[test]
    fn a_better_lock_is_recommended_with_its_equals() {
        let text = said(&results(&[
            ("shfl", &[0.51, 0.5, 0.49, 0.5]),
            ("tas", &[0.5, 0.49, 0.51, 0.51]),
            ("mcs", &[2.0, 2.1, 1.9, 2.0]),
        ]));
        assert!(text.starts_with("use shfl. It ran 2.00 times as fast as with glibc's mutex (95 % interval"), "{text}");
        assert!(text.contains("over 99.9 %") && text.contains("Not measurably different: tas."), "{text}");
    }

    #[test]
    fn no_difference_is_an_answer() {
        let text = said(&results(&[("shfl", &[1.01, 0.98, 1.0, 1.02])]));
        assert!(
            text.contains("no lock differs from it beyond the noise. The 95 % intervals reach from 0.969"),
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
        let failed = Failed { round: 4, how: "x".into(), ..Failed::default() };
        little.points[2].failures.push(failed);
        little.judge();
        let text = said(&little);
        assert!(text.starts_with("use shfl.") && text.contains("This is a small gain"), "{text}");
        assert!(text.contains("Do not use tas: the program failed under it."), "{text}");
    }

    #[test]
    fn a_time_out_is_no_failure() {
        let mut slow = results(&[("shfl", &[0.5, 0.51, 0.49, 0.5]), ("mcs", &[0.5, 0.5, 0.51, 0.5])]);
        let timed_out =
            Failed { round: 4, how: "timed out after 15 s, killed".into(), timed_out: true, ..Failed::default() };
        slow.points[2].failures.push(timed_out);
        slow.judge();
        let text = said(&slow);
        assert!(text.contains("Do not use mcs: the program timed out under it.") && !text.contains("failed"), "{text}");
    }

    #[test]
    fn a_better_lock_that_may_not_be_used_is_named_with_the_reason() {
        let mut slow = results(&[("shfl", &[0.5, 0.51, 0.49, 0.5]), ("mcs", &[0.4, 0.41, 0.39, 0.4])]);
        slow.points[1].failures.push(Failed { round: 4, timed_out: true, ..Failed::default() });
        slow.points[2].failures.push(Failed { round: 4, ..Failed::default() });
        slow.judge();
        let text = said(&slow);
        assert!(text.contains("but the program timed out under them: shfl (2.00)."), "{text}");
        assert!(text.contains("but the program failed under them: mcs (2.50)."), "{text}");
    }

    #[test]
    fn nothing_is_said_of_locks_without_a_verdict() {
        for times in [&[0.5, 0.51, 0.49, 0.5], &[1.01, 0.98, 1.0, 1.02]] {
            let mut alone = results(&[("tbb", times)]);
            alone.rivals = vec!["tbb".into()];
            let text = said(&alone);
            assert!(
                text.contains("there is no advice, because no lock for unchanged programs has a verdict"),
                "{text}"
            );
            assert!(!text.contains("no lock differs") && !text.contains("1.00 to 1.00"), "{text}");
        }
    }

    #[test]
    fn a_rival_that_wins_is_named_and_advice_is_of_what_can_be_had() {
        let locks: [(&str, &[f64]); 3] =
            [("flash", &[0.5, 0.51, 0.49, 0.5]), ("tbb", &[0.25, 0.251, 0.249, 0.25]), ("mcs", &[2.0, 2.1, 1.9, 2.0])];
        let mut won = results(&locks);
        won.rivals = vec!["tbb".into()];
        let text = said(&won);
        assert!(
            text.starts_with("tbb was best: it ran 4.00 times as fast as with glibc's mutex. But a program"),
            "{text}"
        );
        assert!(text.contains("unchanged program: use flash. It ran 2.00 times"), "{text}");
        let mut alone = results(&locks[1..]);
        alone.rivals = vec!["tbb".into()];
        let text = said(&alone);
        assert!(text.contains("unchanged program: keep glibc's mutex: no lock is better"), "{text}");
        assert!(!text.contains("tbb (4.00)"), "{text}");
    }

    #[test]
    fn a_collapsed_baseline_makes_no_gain() {
        let text = said(&results(&[("shfl", &[0.001_45, 0.001_46, 0.001_44, 0.001_45])]));
        assert!(text.starts_with("use shfl: with it, the program runs at a usual speed"), "{text}");
        assert!(text.contains("glibc collapsed (1.00, shfl 0.00145)") && !text.contains("69"), "{text}");
    }

    /// Perhaps it works, and perhaps it hangs now and then: that the time was up does not tell.
    #[test]
    fn a_lock_under_which_the_program_may_hang_is_named_and_not_recommended() {
        let mut late = results(&[("mcs", &[0.4, 0.41, 0.39, 0.4]), ("tas", &[0.5, 0.49, 0.51, 0.5])]);
        late.points[1].unfinished = vec![Unfinished { round: 4, seconds: 8.8, longest: Some(0.41) }];
        late.judge();
        let text = said(&late);
        assert!(text.starts_with("use tas.") && !text.contains("different: mcs"), "{text}");
        let told = "The program may hang under mcs: a run had not ended after 8.80 s, and the longest other run under \
                    it took 0.410 s.";
        assert!(text.ends_with(told) && !text.contains("Do not use"), "{text}");
        late.points[2].unfinished = late.points[1].unfinished.clone();
        late.judge();
        let text = said(&late);
        assert!(text.contains("but the program may hang under them: mcs (2.50), tas (2.00)."), "{text}");
        // It only takes as long as before.
        late.points[1].unfinished[0].seconds = 0.6;
        late.judge();
        let text = said(&late);
        assert!(text.starts_with("use mcs.") && !text.contains("hang under mcs"), "{text}");
    }

    #[test]
    fn a_metric_of_0_is_no_failure_and_cannot_be_compared() {
        let text = said(&results(&[("mcs", &[0.0; 2]), ("tas", &[1.01, 0.98, 1.0, 1.02])]));
        let told = "Under mcs, the metric was 0 in 2 of 2 runs: 0 cannot be compared as a ratio; print more digits.";
        assert!(text.ends_with(told) && !text.contains("Do not use"), "{text}");
        assert!(text.starts_with("keep glibc's mutex: no lock that can be compared differs from it"), "{text}");
        let some = said(&results(&[("mcs", &[0.4, 0.41, 0.39, 0.4, 0.0]), ("tas", &[0.5, 0.49, 0.51, 0.5, 0.5])]));
        assert!(some.starts_with("use tas.") && some.contains("the metric was 0 in 1 of 5 runs"), "{some}");
        let only = said(&results(&[("mcs", &[0.4, 0.41, 0.39, 0.4, 0.0])]));
        assert!(only.contains("but the program sometimes printed 0 under them: mcs (2.50)."), "{only}");
    }

    #[test]
    fn a_lock_under_which_no_operation_of_the_map_ended_in_time_is_named() {
        let mut map = results(&[("mcs", &[0.0; 2]), ("tas", &[1.01, 0.98, 1.0, 1.02])]);
        for run in map.points.iter_mut().flat_map(|point| &mut point.runs) {
            run.values = [(name::OPERATIONS.to_owned(), run.values["seconds"])].into();
        }
        map.metrics = vec![Metric { name: name::OPERATIONS.into(), title: String::new(), better: Better::More }];
        map.groups[0].merit = name::OPERATIONS.into();
        map.derive();
        map.judge();
        let text = said(&map);
        let told = "Under mcs, no operation ended in time in 2 of 2 runs: 0 cannot be compared as a ratio; the lock \
                    has collapsed, or the runs need a longer --time.";
        assert!(text.ends_with(told) && text.starts_with("keep glibc's mutex: no lock that can be compared"), "{text}");
    }
}
