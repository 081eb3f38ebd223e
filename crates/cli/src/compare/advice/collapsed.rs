//! The advice if glibc's mutex collapsed with some numbers of threads, and not with others.
//!
//! The verdict is about the others only. There the locks may all be equal, which is no reason to keep a mutex that
//! collapses.

use flashlock_report::results::{Group, Results};
use flashlock_report::statistics::{Direction, Standing};
use flashlock_report::units::three_digits;
use flashlock_report::words::listed;

/// The advice if no lock is better where glibc's mutex works, but some are where it collapses, and cost nothing.
pub(super) fn rescue(survivors: &[String], judged: &[&Standing], results: &Results, group: &Group) -> String {
    let Some((best, others)) = survivors.split_first() else { return String::new() };
    let mut text = format!("use {best}. {}", collapses(results, group, Some(best)));
    let elsewhere = judged.iter().find(|standing| standing.lock == *best);
    text += &elsewhere.map_or_else(String::new, |standing| {
        format!(
            " With {}, no difference is certain{}.",
            spoken(group, &results.telling_cells(group)),
            match standing.advantage.interval() {
                Some(ends) =>
                    format!(" ({} times as good; 95 % interval {ends})", three_digits(standing.advantage.mean)),
                None => String::new(),
            }
        )
    });
    if !others.is_empty() {
        let figures = |lock: &String| format!("{lock} ({})", figures(results, group, lock).join(", "));
        text += &format!(" Also better there: {}.", others.iter().map(figures).collect::<Vec<_>>().join(", "));
    }
    text
}

/// The advice if no lock is good everywhere, and glibc's mutex is not, either.
pub(super) fn torn(judged: &[&Standing], results: &Results, group: &Group) -> String {
    let worse: Vec<String> = judged
        .iter()
        .filter(|standing| standing.direction == Direction::Worse && standing.may_be_chosen())
        .map(|standing| {
            let there = figures(results, group, &standing.lock).join(", ");
            format!("{} ({there}; elsewhere {} times as good)", standing.lock, three_digits(standing.advantage.mean))
        })
        .collect();
    let collapses = collapses(results, group, None);
    match worse.as_slice() {
        [] => format!("none. {collapses} No lock that may be used is surely better there, and not worse elsewhere."),
        worse => format!(
            "it depends on the number of threads. {collapses} These locks do not, but are worse than glibc's mutex \
             elsewhere: {}.",
            worse.join(", ")
        ),
    }
}

/// `With 64 threads, glibc's mutex collapses (0.0200; with flash 13.8).`
pub(super) fn collapses(results: &Results, group: &Group, lock: Option<&str>) -> String {
    let own = figures(results, group, results.baseline()).join(", ");
    let with =
        lock.map_or_else(String::new, |lock| format!("; with {lock} {}", figures(results, group, lock).join(", ")));
    let cells = spoken(group, &results.dropped_cells(group));
    format!("With {cells}, {}'s mutex collapses ({own}{with}).", results.baseline())
}

/// The lock's figures in the cells in which glibc's mutex collapsed.
fn figures(results: &Results, group: &Group, lock: &str) -> Vec<String> {
    let figure = |cell: &&str| Some(results.figure(&group.title, cell, lock, &group.merit)?.median);
    let figures = results.dropped_cells(group).iter().map(figure).collect::<Vec<_>>();
    figures.into_iter().map(|figure| figure.map_or_else(|| "–".to_owned(), three_digits)).collect()
}

/// `8 and 64 threads`.
fn spoken(group: &Group, cells: &[&str]) -> String {
    group.spoken(&listed(cells))
}

#[cfg(test)]
mod tests {
    use flashlock_report::results::{Better, Failed, Metric, Point, Run};

    use super::*;

    fn said(results: &Results) -> String {
        super::super::advice(&results.verdicts["g"], results, &results.groups[0], ["ran", "as fast as with"])
    }

    /// Figures with 1, 8 and 64 threads; higher values are better. The rounds differ by a little noise.
    fn with_threads(locks: &[(&str, [f64; 3])]) -> Results {
        let cells = ["1", "8", "64"];
        let run = |lock: &str, speed: f64, round: u32| {
            let noise = f64::from((round + 1) * u32::from(lock.as_bytes()[0]) % 5) / 1e4;
            Run { round, values: [("speed".into(), speed * (1.0 + noise))].into() }
        };
        let point = |lock: &str, cell: &str, speed: f64| Point {
            group: "g".into(),
            cell: cell.into(),
            lock: lock.into(),
            runs: (0..4).map(|round| run(lock, speed, round)).collect(),
            ..Point::default()
        };
        let points = |(lock, speeds): &(&str, [f64; 3])| -> Vec<Point> {
            cells.iter().zip(speeds).map(|(cell, speed)| point(lock, cell, *speed)).collect()
        };
        let mut results = Results {
            metrics: vec![Metric { name: "speed".into(), title: "Speed".into(), better: Better::More }],
            groups: vec![Group {
                title: "g".into(),
                axis: "threads".into(),
                cells: cells.map(str::to_owned).to_vec(),
                merit: "speed".into(),
            }],
            locks: locks.iter().map(|(lock, _)| (*lock).to_owned()).collect(),
            points: locks.iter().flat_map(points).collect(),
            ..Results::default()
        };
        results.method.rounds = 4;
        results.derive();
        results.judge();
        results
    }

    const COLLAPSES: (&str, [f64; 3]) = ("glibc", [10.0, 10.0, 0.02]);

    #[test]
    fn where_glibc_collapsed_nobody_is_told_to_keep_it() {
        let text = said(&with_threads(&[COLLAPSES, ("flash", [10.0, 10.0, 13.8]), ("mcs", [10.0, 10.0, 12.0])]));
        let told = "use flash. With 64 threads, glibc's mutex collapses (0.0200; with flash 13.8). With 1 and 8 \
                    threads, no difference is certain";
        assert!(text.starts_with(told) && text.ends_with("Also better there: mcs (12.0)."), "{text}");
        assert!(!text.contains("keep glibc") && !text.contains("no lock differs"), "{text}");
    }

    #[test]
    fn a_lock_that_is_worse_where_glibc_works_is_not_the_answer_to_its_collapse() {
        let worse = [COLLAPSES, ("flash", [8.0, 8.0, 13.8]), ("mcs", [10.0, 10.0, 0.01])];
        let text = said(&with_threads(&worse));
        let told = "it depends on the number of threads. With 64 threads, glibc's mutex collapses (0.0200). These";
        assert!(text.starts_with(told), "{text}");
        assert!(text.contains("elsewhere: flash (13.8; elsewhere 0.800 times as good)."), "{text}");
        let mut failed = with_threads(&[COLLAPSES, ("flash", [10.0, 10.0, 13.8])]);
        failed.points[3].failures.push(Failed { round: 4, ..Failed::default() });
        failed.judge();
        let text = said(&failed);
        assert!(text.starts_with("none. With 64 threads, glibc's mutex collapses (0.0200)."), "{text}");
        assert!(text.ends_with("Do not use flash: the program failed under it."), "{text}");
    }

    #[test]
    fn a_lock_that_collapses_with_glibc_is_not_recommended() {
        let text = said(&with_threads(&[COLLAPSES, ("x", [13.0, 13.0, 0.01]), ("y", [11.0, 11.0, 13.8])]));
        assert!(text.starts_with("use y. It ran 1.10 times"), "{text}");
        assert!(text.contains("With 64 threads, glibc's mutex collapses (0.0200; with y 13.8)."), "{text}");
    }
}
