//! The advice if no lock is better, and glibc's mutex did not collapse: keep it, and what is left open.

use flashlock_report::results::{Group, Results};
use flashlock_report::statistics::{Direction, Standing, Verdict};
use flashlock_report::units::three_digits;

use super::{has_ended, is_map, percent};

/// The advice if no lock is better, and glibc's mutex did not collapse.
pub(super) fn keep(verdict: &Verdict, judged: &[&Standing], results: &Results, group: &Group) -> String {
    let named = |direction: Direction, is_meant: &dyn Fn(&str) -> bool| {
        let of = judged.iter().filter(|standing| standing.direction == direction && is_meant(&standing.lock));
        of.map(|standing| format!("{} ({})", standing.lock, three_digits(standing.advantage.mean))).collect::<Vec<_>>()
    };
    let has_failed = |lock: &str| has_ended(results, group, lock, false);
    let failed = named(Direction::Better, &has_failed);
    let slow = named(Direction::Better, &|lock| !has_failed(lock) && has_ended(results, group, lock, true));
    let is_sound = |lock: &str| results.failures(&group.title, lock).0 == 0;
    let may_hang = |lock: &str| results.hang(&group.title, lock).is_some();
    let hanging = named(Direction::Better, &|lock| is_sound(lock) && may_hang(lock));
    let zero = named(Direction::Better, &|lock| is_sound(lock) && !may_hang(lock));
    let worse = named(Direction::Worse, &|_| true);
    if !failed.is_empty() || !slow.is_empty() || !hanging.is_empty() || !zero.is_empty() {
        let but = |how: &str, locks: &[String]| match locks {
            [] => String::new(),
            _ => format!(" These locks are better, but the program {how} under them: {}.", locks.join(", ")),
        };
        let failures = but("failed", &failed) + &but("timed out", &slow);
        let nothing = if is_map(group) { "sometimes completed no operation in time" } else { "sometimes printed 0" };
        let others = but("may hang", &hanging) + &but(nothing, &zero);
        return format!("keep glibc's mutex.{failures}{others}");
    }
    // A lock whose figures are all 0 is not judged, and may be the best.
    let has_zeros = results.locks.iter().any(|lock| results.zeros(group, lock).0 > 0);
    let none = if has_zeros { "no lock that can be compared" } else { "no lock" };
    if worse.is_empty() {
        let seem = seemingly(judged);
        let sure = match seem.as_str() {
            "" => format!("{none} differs from it beyond the noise"),
            _ => "no difference is certain".to_owned(),
        };
        return format!("keep glibc's mutex: {sure}.{seem} {}", left_open(judged));
    }
    let sure = verdict.standings.iter().filter(|standing| standing.direction == Direction::Worse);
    let least = sure.filter_map(|standing| standing.p).fold(0.0, f64::max);
    format!(
        "keep glibc's mutex: {none} is better beyond the noise. These are worse, by the factor in brackets: {} \
         (confidence {}).",
        worse.join(", "),
        percent(least)
    )
}

/// The locks whose own interval excludes glibc's figure, though that may be by chance, with so many locks and so few
/// rounds.
fn seemingly(judged: &[&Standing]) -> String {
    let seems = |standing: &&&Standing| {
        standing.advantage.interval_of(1).is_some_and(|(low, high)| !(low..=high).contains(&1.0))
    };
    let named: Vec<String> = judged
        .iter()
        .filter(seems)
        .map(|standing| format!("{} ({})", standing.lock, three_digits(standing.advantage.mean)))
        .collect();
    match named.len() {
        0 => String::new(),
        _ => format!(" These seem to differ, by the factor in brackets: {}. More rounds would tell.", named.join(", ")),
    }
}

/// The differences that are still possible after "no difference".
fn left_open(judged: &[&Standing]) -> String {
    let intervals: Option<Vec<(f64, f64)>> =
        judged.iter().map(|standing| standing.advantage.interval_of(judged.len())).collect();
    let Some(intervals) = intervals else {
        return "With some lock, every round gave the same figure, so its noise is unknown. The figure may be too \
                coarse to show a difference."
            .into();
    };
    let low = intervals.iter().map(|ends| ends.0).fold(1.0, f64::min);
    let high = intervals.iter().map(|ends| ends.1).fold(1.0, f64::max);
    let all = if judged.len() > 1 { " that hold for all locks at once" } else { "" };
    format!(
        "The 95 % intervals{all} reach from {} to {} times as good as glibc's: differences within them are \
         possible.",
        three_digits(low),
        three_digits(high)
    )
}
