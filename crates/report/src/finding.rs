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
mod tests;
