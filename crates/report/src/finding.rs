//! States the finding of a result in a sentence: what the reader of its picture should see first.
//!
//! The sentence names the locks that win, how much faster than the baseline they are, how the default lock does if it
//! is not among them, who loses, and what collapsed. It names the winners whether or not they are locks of flashlock.

use flashlock_locks::catalogue::DEFAULT;
use flashlock_locks::catalogue::rw::RW_DEFAULT;

use crate::results::{Better, COLLAPSE, Group, Metric, Results};
use crate::statistics::{Direction, Ratio, Standing};
use crate::units::three_digits;
use crate::words;

/// The tolerance without statistics. Locks within this factor of the best one are named with it, and a lock within this
/// factor of the baseline is not called faster.
const CLOSE: f64 = 1.03;
/// A smaller gain or loss is below 5 %, also as it is shown. The sentence names no lock for it.
const GAIN: f64 = 1.045;
/// The maximum number of groups of which each is told apart. Of more, the sentence counts.
const GROUPS: usize = 3;
/// The maximum number of names in a list. Of more, only the first are listed.
const NAMES: usize = 4;

/// The finding of the whole result.
pub fn headline(results: &Results) -> String {
    match results.groups.as_slice() {
        [group] => of(results, group),
        groups if groups.len() > GROUPS => subject(results).and_then(|lock| tally(results, groups, lock)),
        groups => subject(results).and_then(|lock| of_subject(results, groups, lock)),
    }
    .unwrap_or_else(|| results.title.clone())
}

/// The finding of one group. `None` if nothing can be compared there.
pub fn of(results: &Results, group: &Group) -> Option<String> {
    let words = Words::of(results.metric(&group.merit)?);
    let mut ranking: Vec<(&str, f64)> =
        others(results).filter_map(|lock| Some((lock, overall(results, group, lock)?))).collect();
    ranking.sort_by(|a, b| b.1.total_cmp(&a.1));
    if ranking.is_empty() {
        return None;
    }
    let (leaders, collapsed) = (leaders(results, group, &ranking), results.collapsed_locks(group));
    let is_close = leaders.first().is_some_and(|(_, advantage)| *advantage < GAIN);
    let mut parts = vec![match leaders.as_slice() {
        [] => nobody(results, group, &words, collapsed.is_empty()),
        [(best, advantage), ..] if *advantage >= COLLAPSE => fallen(results, group, best)?,
        _ if is_close => within(&ranking, results.baseline(), &words) + on_average(group),
        leaders => leading(leaders, results.baseline(), &words) + on_average(group),
    }];
    let loses = |(lock, advantage): &&(&str, f64)| {
        *advantage <= GAIN.recip() && !collapsed.contains(lock) && !is_same(results, group, lock)
    };
    let losers: Vec<(&str, f64)> = ranking.iter().filter(loses).copied().collect();
    let is_told = |own: &str| leaders.iter().chain(&losers).any(|(told, _)| *told == own);
    if let Some(own) = subject(results).filter(|own| !is_close && !is_told(own) && !is_same(results, group, own))
        && let Some(advantage) = overall(results, group, own)
    {
        parts.push(format!("{own}: {}{}", three_digits(advantage), exception(results, group, own, advantage)));
    }
    parts.extend(losing(&losers));
    parts.extend(overtaken(results, group, &leaders, &words));
    let fell: Vec<&String> = group.cells.iter().filter(|cell| results.has_baseline_collapsed(group, cell)).collect();
    if !fell.is_empty() && fell.len() < group.cells.len() {
        let cells = listed(&fell.iter().map(|cell| cell.as_str()).collect::<Vec<_>>());
        parts.push(format!("{} collapsed with {}", results.baseline(), group.spoken(&cells)));
    }
    if !collapsed.is_empty() {
        parts.push(format!("{} collapsed", listed(&collapsed)));
    }
    Some(parts.join("; "))
}

/// Says that it is an average, which hides where a lock is better and where it is not.
fn on_average(group: &Group) -> &'static str {
    if group.cells.len() > 1 { " on average" } else { "" }
}

/// `, but 0.884 with 64 threads`: where a lock loses most, if it does not lose on average.
fn exception(results: &Results, group: &Group, lock: &str, advantage: f64) -> String {
    let loss = |cell: &String| {
        let here = results.advantage(group, cell, lock)?;
        let is_certain = here.mean < GAIN.recip() && here.high.is_none_or(|high| high < 1.0);
        is_certain.then(|| (cell.clone(), here.mean))
    };
    let losses = group.cells.iter().filter_map(loss);
    match losses.min_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| advantage > GAIN.recip()) {
        Some((cell, mean)) => format!(", but {} with {}", three_digits(mean), group.spoken(&cell)),
        None => String::new(),
    }
}

/// If the best gain is small: how many locks are near the baseline.
fn within(ranking: &[(&str, f64)], baseline: &str, words: &Words) -> String {
    let near = ranking.iter().filter(|(_, advantage)| (GAIN.recip()..GAIN).contains(advantage)).count();
    match () {
        () if near == ranking.len() && near > 1 => format!("All locks are within 5 % of {baseline}"),
        () if 2 * near > ranking.len() && near > 1 => format!("Most locks are within 5 % of {baseline}"),
        () => format!("No lock is 5 % {} than {baseline}", words.better),
    }
}

/// The locks that lose: each with its figure if they are few.
fn losing(losers: &[(&str, f64)]) -> Option<String> {
    /// The maximum number of locks with figures.
    const FIGURES: usize = 2;
    let figure = |(lock, advantage): &(&str, f64)| format!("{lock}: {}", three_digits(*advantage));
    match losers.len() {
        0 => None,
        1..=FIGURES => Some(losers.iter().map(figure).collect::<Vec<_>>().join(", ")),
        _ => Some(format!("{} lose", listed(&losers.iter().map(|(lock, _)| *lock).collect::<Vec<_>>()))),
    }
}

/// The lock that is better than the leaders with the most threads. That may be chance: its advantage over each of them
/// has an interval without 1, if it has one.
fn overtaken(results: &Results, group: &Group, leaders: &[(&str, f64)], words: &Words) -> Option<String> {
    /// By at least this factor.
    const CLEARLY: f64 = 1.1;
    let cell = group.cells.last().filter(|_| group.cells.len() > 1 && !leaders.is_empty())?;
    let better = |lock: &str| {
        let median = results.figure(&group.title, cell, lock, &group.merit)?.median;
        Some(if words.less { median.recip() } else { median })
    };
    let led = leaders.iter().filter_map(|(lock, _)| better(lock)).fold(0.0, f64::max);
    let all = results.locks.iter().filter_map(|lock| Some((lock, better(lock)?)));
    let (lock, most) = all.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let is_certain = |(leader, _): &(&str, f64)| {
        let pairs = results.paired(group, cell, lock, leader);
        let ratio =
            Ratio::of_pairs(pairs.into_iter().map(|(one, other)| if words.less { (other, one) } else { (one, other) }));
        ratio.is_none_or(|ratio| ratio.low.is_none_or(|low| low > 1.0))
    };
    let is_better = most >= led * CLEARLY && leaders.iter().all(is_certain);
    is_better.then(|| format!("{lock} is {} with {}", words.better, group.spoken(cell)))
}

/// The finding of several groups: how one lock does in each, in a sentence.
fn of_subject(results: &Results, groups: &[Group], lock: &str) -> Option<String> {
    let baseline = results.baseline();
    if groups.iter().all(|group| is_same(results, group, lock)) {
        return Some(format!("{lock} does not differ from {baseline} beyond the noise"));
    }
    let averaged = if groups.iter().any(|group| group.cells.len() > 1) { " on average" } else { "" };
    let (mut told, mut fell, mut said) = (Vec::new(), Vec::new(), None);
    for group in groups {
        let as_what = Words::of(results.metric(&group.merit)?).as_what;
        let (advantage, title) = (overall(results, group, lock)?, lowered(&group.title));
        if !is_same(results, group, lock) && advantage >= COLLAPSE {
            fell.push(format!("{baseline} collapsed ({title})"));
            continue;
        }
        // The baseline is named once, and so is what the factors are about.
        let of = if told.is_empty() { format!(" {baseline}{averaged}") } else { String::new() };
        told.push(if is_same(results, group, lock) {
            let from = if told.is_empty() { " from" } else { "" };
            format!("no different{from}{of} ({title})")
        } else {
            let about = match said.replace(as_what) {
                Some(before) if before == as_what => String::new(),
                _ if told.is_empty() => format!(" {as_what}"),
                _ => format!(" {}", as_what.trim_end_matches(" as")),
            };
            let but = exception(results, group, lock, advantage);
            format!("{} times{about}{of}{but} ({title})", three_digits(advantage))
        });
    }
    // A part with an exception has a comma itself.
    let between = if told.iter().any(|part| part.contains(", but ")) { "; " } else { ", " };
    let is = if told.is_empty() { None } else { Some(format!("{lock} is {}", told.join(between))) };
    Some(is.into_iter().chain(fell).collect::<Vec<_>>().join("; "))
}

/// A title inside a sentence: without the capital letter of its first word, unless that is a name as `SQLite` or the
/// only word.
fn lowered(title: &str) -> String {
    let first = title.split(' ').next().unwrap_or_default();
    let is_word = first.len() < title.len() && first.chars().skip(1).all(|letter| letter.is_lowercase());
    match title.chars().next().filter(|letter| is_word && letter.is_uppercase()) {
        Some(letter) => format!("{}{}", letter.to_lowercase(), &title[letter.len_utf8()..]),
        None => title.to_owned(),
    }
}

/// The finding of many groups: in how many of them one lock is better, and in how many worse.
fn tally(results: &Results, groups: &[Group], lock: &str) -> Option<String> {
    let all = groups.len();
    let (mut better, mut worse, mut is_speed) = (0, 0, true);
    for group in groups {
        let advantage = overall(results, group, lock)?;
        is_speed &= Words::of(results.metric(&group.merit)?).better == "faster";
        match () {
            () if is_same(results, group, lock) => {}
            () if standing(results, group, lock).is_none() && (CLOSE.recip()..CLOSE).contains(&advantage) => {}
            () if advantage > 1.0 => better += 1,
            () => worse += 1,
        }
    }
    let [good, bad] = if is_speed { ["faster", "slower"] } else { ["better", "worse"] };
    let counts = [(better, good), (worse, bad), (all - better - worse, "no different")];
    let mut told: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, how)| format!("{how} in {count}")).collect();
    let first = told.first_mut()?;
    *first = format!("{first} of {all} cases");
    Some(format!("{lock} is {}", words::listed(&told)))
}

/// Whether statistics could not tell the lock from the baseline.
fn is_same(results: &Results, group: &Group, lock: &str) -> bool {
    standing(results, group, lock).is_some_and(|standing| standing.direction == Direction::NoDifference)
}

/// How many times better than the baseline a lock was, over all telling cells.
fn overall(results: &Results, group: &Group, lock: &str) -> Option<f64> {
    if let Some(standing) = standing(results, group, lock) {
        return Some(standing.advantage.mean);
    }
    let cells = results.telling_cells(group);
    let logarithm = |cell: &&str| Some(results.advantage(group, cell, lock)?.mean.ln());
    let logarithms: Option<Vec<f64>> = cells.iter().map(logarithm).collect();
    let logarithms = logarithms.filter(|all| !all.is_empty())?;
    Some((logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp())
}

fn standing<'a>(results: &'a Results, group: &Group, lock: &str) -> Option<&'a Standing> {
    results.verdicts.get(&group.title)?.standing(lock).filter(|standing| standing.p.is_some())
}

/// The best locks: the verdict's choice and its equals. Without a verdict, those that are close to the best one.
/// If the baseline collapsed everywhere, its figure and the best one say more than their ratio.
fn leaders<'a>(results: &Results, group: &Group, ranking: &[(&'a str, f64)]) -> Vec<(&'a str, f64)> {
    let verdict = results.verdicts.get(&group.title).filter(|verdict| verdict.standings.iter().any(|s| s.p.is_some()));
    let sound = |lock: &str| results.failures(&group.title, lock).0 == 0;
    let best = ranking.iter().find(|(lock, _)| sound(lock)).map_or(1.0, |(_, advantage)| *advantage);
    let leads = |(lock, advantage): &&(&str, f64)| match verdict {
        Some(verdict) => verdict.best.iter().chain(&verdict.equals).any(|leader| leader == lock),
        None => best > CLOSE && advantage * CLOSE >= best && sound(lock),
    };
    ranking.iter().filter(leads).copied().collect()
}

fn leading(leaders: &[(&str, f64)], baseline: &str, words: &Words) -> String {
    let names = listed(&leaders.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let times = match leaders {
        [(_, only)] => three_digits(*only),
        [(_, first), (_, second)] => format!("{} and {}", three_digits(*first), three_digits(*second)),
        [(_, first), .., (_, last)] => format!("{} to {}", three_digits(*last), three_digits(*first)),
        [] => String::new(),
    };
    let verb = if leaders.len() == 1 { "is" } else { "are" };
    format!("{names} {verb} {}: {times} times {} {baseline}", words.best, words.as_what)
}

fn nobody(results: &Results, group: &Group, words: &Words, all_stand: bool) -> String {
    let mut judged = others(results).filter(|lock| standing(results, group, lock).is_some()).peekable();
    // With one number of threads, a lock may well be faster, or slower.
    let over = if group.cells.len() > 1 { " on average" } else { "" };
    if all_stand && judged.peek().is_some() && judged.all(|lock| is_same(results, group, lock)) {
        return format!("No lock differs from {} beyond the noise{over}", results.baseline());
    }
    format!("No lock is {} than {}{over}", words.better, results.baseline())
}

/// If the baseline collapsed everywhere, its figure and the best one say more than their quotient.
fn fallen(results: &Results, group: &Group, best: &str) -> Option<String> {
    let figure = |lock: &str| Some(three_digits(results.figure_over_cells(group, lock, &group.merit)?.median));
    let baseline = results.baseline();
    Some(format!("{baseline} collapsed: {}, {best} {}", figure(baseline)?, figure(best)?))
}

/// The lock that readers ask about: the default lock, else the first one.
fn subject(results: &Results) -> Option<&str> {
    let own = [DEFAULT.info().name, RW_DEFAULT.info().name];
    others(results).find(|lock| own.contains(lock)).or_else(|| others(results).next())
}

fn others(results: &Results) -> impl Iterator<Item = &str> {
    results.locks.iter().skip(1).map(String::as_str)
}

/// As [`words::listed`], but no more than [`NAMES`]: `a, b, c and 2 more`.
fn listed(names: &[&str]) -> String {
    let (shown, more) = (names.len().min(NAMES), names.len().saturating_sub(NAMES));
    let mut parts: Vec<String> = names[..shown].iter().map(|name| (*name).to_owned()).collect();
    if more > 0 {
        parts.push(format!("{more} more"));
    }
    words::listed(&parts)
}

/// Words for a lock with more or less of a figure.
struct Words {
    less: bool,
    best: &'static str,
    better: &'static str,
    as_what: &'static str,
}

impl Words {
    fn of(metric: &Metric) -> Self {
        let Metric { name, title, better } = metric;
        let is_time = *better == Better::Less && (name == "seconds" || name.ends_with("_ns"));
        let is_rate = *better == Better::More && (name.contains("_per_") || title.contains(" per "));
        let less = *better == Better::Less;
        match is_time || is_rate {
            true => Self { less, best: "fastest", better: "faster", as_what: "as fast as" },
            false => Self { less, best: "best", better: "better", as_what: "as good as" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Point, Run};

    /// A result with the speeds of each lock with 1, 8 and 64 threads. If judged, it has four rounds with little or
    /// much noise.
    fn results(speeds: &[(&str, [f64; 3])], is_judged: bool) -> Results {
        let cells = ["1", "8", "64"];
        let point = |lock: &str, cell: usize, speed: f64| Point {
            group: "G".into(),
            cell: cells[cell].into(),
            lock: lock.into(),
            runs: (0..4)
                .map(|round| Run {
                    round,
                    values: [("ops_per_us".into(), speed * (1.0 + f64::from(round * round % 5) / 1e3))].into(),
                })
                .collect(),
            ..Point::default()
        };
        let mut results = Results {
            title: "Title".into(),
            metrics: vec![Metric {
                name: "ops_per_us".into(),
                title: "Operations per µs".into(),
                better: Better::More,
            }],
            groups: vec![Group {
                title: "G".into(),
                axis: "threads".into(),
                cells: cells.map(str::to_owned).to_vec(),
                merit: "ops_per_us".into(),
            }],
            locks: speeds.iter().map(|(lock, _)| (*lock).to_owned()).collect(),
            points: (0..3).flat_map(|cell| speeds.iter().map(move |(l, of)| point(l, cell, of[cell]))).collect(),
            ..Results::default()
        };
        results.derive();
        if is_judged {
            results.judge();
        }
        results
    }

    #[test]
    fn whoever_wins_is_named() {
        let ours = [("glibc", [10.0; 3]), ("flash", [10.0, 20.0, 30.0]), ("tbb", [10.0, 15.0, 20.0])];
        assert_eq!(headline(&results(&ours, false)), "flash is fastest: 1.82 times as fast as glibc on average");
        let theirs = [("glibc", [10.0; 3]), ("flash", [10.0, 12.0, 12.0]), ("tbb", [10.0, 15.0, 20.0])];
        let told = "tbb is fastest: 1.44 times as fast as glibc on average; flash: 1.13";
        assert_eq!([false, true].map(|is_judged| headline(&results(&theirs, is_judged))), [told, told]);
        let nobody = [("glibc", [10.0; 3]), ("flash", [9.0; 3])];
        assert_eq!(headline(&results(&nobody, false)), "No lock is faster than glibc on average; flash: 0.900");
    }

    #[test]
    fn a_gain_below_five_percent_is_none() {
        let mut close = vec![("glibc", [10.0; 3]), ("flash", [10.1; 3]), ("tas", [10.4; 3]), ("tbb", [10.2; 3])];
        assert_eq!(headline(&results(&close, true)), "All locks are within 5 % of glibc on average");
        close.push(("mcs", [5.0; 3]));
        assert_eq!(headline(&results(&close, true)), "Most locks are within 5 % of glibc on average; mcs: 0.500");
        close.extend([("cna", [4.0; 3]), ("clh", [3.0; 3])]);
        assert_eq!(
            headline(&results(&close, true)),
            "No lock is 5 % faster than glibc on average; mcs, cna and clh lose"
        );
    }

    #[test]
    fn losses_are_told_beside_gains() {
        let some = [("glibc", [10.0; 3]), ("flash", [20.0; 3]), ("shfl", [9.0; 3]), ("mcs", [8.0; 3])];
        assert_eq!(
            headline(&results(&some, true)),
            "flash is fastest: 2.00 times as fast as glibc on average; shfl: 0.900, mcs: 0.800"
        );
        let nobody = [("glibc", [10.0; 3]), ("flash", [10.0; 3]), ("shfl", [7.3; 3])];
        assert_eq!(headline(&results(&nobody, true)), "No lock is faster than glibc on average; shfl: 0.730");
        let crossing = [("glibc", [10.0; 3]), ("flash", [20.0, 14.0, 8.6]), ("tbb", [20.0; 3])];
        assert_eq!(
            headline(&results(&crossing, true)),
            "tbb is fastest: 2.00 times as fast as glibc on average; flash: 1.34, but 0.860 with 64 threads"
        );
    }

    #[test]
    fn an_average_does_not_hide_who_is_better_with_many_threads() {
        let crossing = [("glibc", [10.0; 3]), ("flash", [20.0, 30.0, 12.0]), ("shfl", [10.0, 10.0, 20.0])];
        let told = headline(&results(&crossing, false));
        assert!(told.ends_with("on average; shfl is faster with 64 threads"), "{told}");
    }

    #[test]
    fn a_lock_that_may_be_better_by_chance_is_not_named() {
        let speeds = [("glibc", [10.0; 3]), ("flash", [20.0, 30.0, 8.3])];
        let mut noisy = results(&speeds, true);
        assert!(headline(&noisy).ends_with("on average; glibc is faster with 64 threads"), "{}", headline(&noisy));
        let last = noisy.points.iter_mut().find(|point| point.cell == "64" && point.lock == "flash").unwrap();
        for (run, speed) in last.runs.iter_mut().zip([8.3, 6.0, 8.2, 11.0]) {
            run.values.insert("ops_per_us".into(), speed);
        }
        noisy.derive();
        noisy.judge();
        assert!(headline(&noisy).ends_with("on average"), "{}", headline(&noisy));
    }

    #[test]
    fn what_collapsed_is_no_gain() {
        let baseline = [("glibc", [10.0, 0.02, 0.01]), ("flash", [20.0, 13.8, 6.9])];
        let told = headline(&results(&baseline, true));
        assert_eq!(
            told,
            "flash is fastest: 2.00 times as fast as glibc on average; glibc collapsed with 8 and 64 threads"
        );
        let everywhere = [("glibc", [0.01, 0.02, 0.01]), ("flash", [20.0, 13.78, 6.9])];
        assert_eq!(headline(&results(&everywhere, true)), "glibc collapsed: 0.0100, flash 13.8");
        let others = [("glibc", [10.0; 3]), ("mcs", [10.0, 0.1, 0.1]), ("cna", [10.0, 0.1, 0.1])];
        assert_eq!(
            headline(&results(&others, false)),
            "No lock is faster than glibc on average; mcs: 0.0464; mcs and cna collapsed"
        );
    }

    #[test]
    fn noise_is_no_difference() {
        let mut noisy = results(&[("glibc", [10.0; 3]), ("flash", [10.0; 3])], false);
        for (place, point) in noisy.points.iter_mut().enumerate() {
            for run in &mut point.runs {
                let wild = f64::from(run.round * 7 % 4) - f64::from(run.round * 5 % 3);
                run.values.insert("ops_per_us".into(), 10.0 + if place % 2 == 0 { wild } else { -wild });
            }
        }
        noisy.derive();
        noisy.judge();
        assert_eq!(headline(&noisy), "No lock differs from glibc beyond the noise on average");
    }

    #[test]
    fn of_several_groups_it_is_what_the_default_lock_does() {
        let mut both = results(&[("glibc", [10.0; 3]), ("flash", [20.0; 3]), ("tbb", [30.0; 3])], false);
        let mut second = both.groups[0].clone();
        second.title = "H".into();
        let points: Vec<Point> = both.points.iter().map(|point| Point { group: "H".into(), ..point.clone() }).collect();
        both.points.extend(points);
        both.groups.push(second);
        assert_eq!(headline(&both), "flash is 2.00 times as fast as glibc on average (G), 2.00 times (H)");
        let groups = ["I", "J", "K"].map(|title| Group { title: title.into(), ..both.groups[0].clone() });
        for (group, speed) in groups.into_iter().zip([5.0, 20.1, 20.0]) {
            let rest = both.points.iter().filter(|point| point.group == "G").cloned().map(|mut point| {
                let is_own = point.lock == "flash";
                for run in &mut point.runs {
                    run.values.values_mut().filter(|_| is_own).for_each(|value| *value *= speed / 40.0);
                }
                Point { group: group.title.clone(), ..point }
            });
            let rest: Vec<Point> = rest.collect();
            both.points.extend(rest);
            both.groups.push(group);
        }
        both.derive();
        assert_eq!(headline(&both), "flash is faster in 2 of 5 cases, slower in 1 and no different in 2");
        both.points.clear();
        assert_eq!(headline(&both), "Title");
    }

    /// Several results of one group each, as one result.
    fn together(all: &[(&str, Results)]) -> Results {
        let mut both = all[0].1.clone();
        (both.groups, both.points) = (Vec::new(), Vec::new());
        for (title, one) in all {
            both.groups.push(Group { title: (*title).to_owned(), ..one.groups[0].clone() });
            let points = one.points.iter().map(|point| Point { group: (*title).to_owned(), ..point.clone() });
            both.points.extend(points);
        }
        both.derive();
        both.judge();
        both
    }

    #[test]
    fn several_groups_make_a_sentence() {
        let of = |flash| results(&[("glibc", [10.0; 3]), ("flash", flash)], true);
        let (good, mixed) = (of([20.0; 3]), of([20.0, 14.0, 8.6]));
        let same = of([10.0; 3]);
        let fallen = results(&[("glibc", [0.01; 3]), ("flash", [20.0; 3])], true);
        let told = |all: &[(&str, &Results)]| {
            headline(&together(&all.iter().map(|(title, one)| (*title, (*one).clone())).collect::<Vec<_>>()))
        };
        assert_eq!(
            told(&[("No work outside", &good), ("2 µs outside", &same)]),
            "flash is 2.00 times as fast as glibc on average (no work outside), no different (2 µs outside)"
        );
        assert_eq!(
            told(&[("SQLite here", &same), ("Redis", &good)]),
            "flash is no different from glibc on average (SQLite here), 2.00 times as fast (Redis)"
        );
        assert_eq!(
            told(&[("A lot", &mixed), ("B", &good), ("C", &fallen)]),
            "flash is 1.34 times as fast as glibc on average, but 0.860 with 64 threads (a lot); 2.00 times (B); \
             glibc collapsed (C)"
        );
        assert_eq!(told(&[("A", &fallen), ("B", &fallen)]), "glibc collapsed (A); glibc collapsed (B)");
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(listed(&["a"]), "a");
        assert_eq!(listed(&["a", "b", "c", "d"]), "a, b, c and d");
        assert_eq!(listed(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
    }
}
