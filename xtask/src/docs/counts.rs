//! How many locks, checks and programs there are: the numbers in documents that people write.

use anyhow::{Context, Result};

use super::promises::Known;
use crate::locks::{Kind, Lock};
use crate::{apps, torture, workspace};

/// What documents should say and do not, with the numbers of today. If `writes`, numbers of other days are replaced
/// first.
pub(super) fn stale(known: &Known, locks: &[Lock], writes: bool) -> Result<Vec<String>> {
    let mut stale = Vec::new();
    for (page, phrases) in phrases(known, locks) {
        let path = workspace::path(page);
        let mut text = std::fs::read_to_string(&path).context(page)?;
        if writes {
            let new = phrases.iter().fold(text.clone(), |text, phrase| with_numbers(&text, phrase));
            if new != text {
                println!("numbers in {page}");
                workspace::write(&path, &new)?;
                text = new;
            }
        }
        stale.extend(missing(&text, &phrases).map(|phrase| format!("{page} does not say: {phrase}")));
    }
    Ok(stale)
}

/// Documents, and the phrases with numbers in them that follow from what exists.
fn phrases(known: &Known, locks: &[Lock]) -> [(&'static str, Vec<String>); 3] {
    let (conformance, torture) = (known.conformance.len(), known.torture.len());
    let count = |is_meant: fn(&Lock) -> bool| locks.iter().filter(|lock| is_meant(lock)).count();
    let mutexes = count(|lock| lock.kind == Kind::Mutex);
    let principal = count(|lock| lock.kind == Kind::Mutex && lock.principal);
    let excepted = || locks.iter().filter(|lock| lock.strict).map(|lock| excepted(lock, known));
    let (least, most) = (excepted().min().unwrap_or(0), excepted().max().unwrap_or(0));
    let readme = vec![
        format!("[{mutexes} mutexes](docs/locks.md)"),
        format!("[more than {} checks in C](tests/conformance)", conformance.saturating_sub(1) / 100 * 100),
        format!("[{torture} scenarios](tests/torture)"),
        format!("[{}](tests/apps), among them", apps::NUMBER),
        format!("{least} to {most} of the {} for locks that always hand over to one", conformance + torture),
    ];
    let strict = count(|lock| lock.strict);
    [
        ("README.md", readme),
        ("docs/limits.md", vec![format!("| {strict} locks [hand over strictly]")]),
        ("docs/promises.md", vec![format!("the other {} mutexes", mutexes - principal)]),
    ]
}

/// How many checks a lock may fail.
fn excepted(lock: &Lock, known: &Known) -> usize {
    let scenarios = known.torture.iter().map(|name| format!("{}{name}", torture::PREFIX));
    known.conformance.iter().cloned().chain(scenarios).filter(|check| lock.exception(check).is_some()).count()
}

/// A text in which the phrase has these numbers, wherever it had others. (Lines are not wrapped anew.)
fn with_numbers(text: &str, phrase: &str) -> String {
    let (mut new, mut rest) = (String::new(), text);
    while !rest.is_empty() {
        let (part, length) = match renumbered(rest, phrase) {
            Some((part, length)) => (part, length),
            None => {
                let length = rest.chars().next().map_or(0, char::len_utf8);
                (rest[..length].to_owned(), length)
            }
        };
        new += &part;
        rest = &rest[length..];
    }
    new
}

/// What should stand at the beginning of a text that begins with the phrase, perhaps with other numbers and other
/// spaces; and how much of the text that replaces.
fn renumbered(text: &str, phrase: &str) -> Option<(String, usize)> {
    let run = |text: &str, is_part: fn(char) -> bool| text.find(|c| !is_part(c)).unwrap_or(text.len());
    let (mut new, mut rest, mut left) = (String::new(), text, phrase);
    while let Some(first) = left.chars().next() {
        let (mine, its) = if first.is_ascii_digit() {
            (run(left, |c| c.is_ascii_digit()), run(rest, |c| c.is_ascii_digit()))
        } else if first == ' ' {
            (1, run(rest, char::is_whitespace))
        } else {
            let length = first.len_utf8();
            (length, if rest.starts_with(first) { length } else { 0 })
        };
        if its == 0 {
            return None;
        }
        new += if first.is_ascii_digit() { &left[..mine] } else { &rest[..its] };
        (left, rest) = (&left[mine..], &rest[its..]);
    }
    Some((new, text.len() - rest.len()))
}

/// Which of these phrases a text lacks, wherever its lines end.
fn missing<'a>(text: &str, phrases: &'a [String]) -> impl Iterator<Item = &'a String> {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    phrases.iter().filter(move |phrase| !flat.contains(*phrase))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::Exception;

    #[test]
    fn the_numbers_are_those_of_what_exists() {
        let lock = |kind, strict: bool, checks: &[&str]| Lock {
            name: "x".to_owned(),
            kind,
            default: false,
            principal: kind == Kind::Mutex && !strict,
            strict,
            exceptions: checks.iter().map(|&check| Exception { check: check.into(), reason: String::new() }).collect(),
        };
        let (some, two) = (lock(Kind::Mutex, true, &["a.*"]), lock(Kind::Mutex, true, &["a.1", "torture.*"]));
        let locks = [some, two, lock(Kind::Mutex, false, &["*"]), lock(Kind::Rw, false, &[])];
        let conformance = (0..201).map(|number| format!("{}.{number}", if number < 9 { 'a' } else { 'b' })).collect();
        let known = Known { conformance, torture: vec!["t".into()], tasks: Vec::new(), source: |_| None };
        let [(_, readme), (_, limits), (_, promises)] = phrases(&known, &locks);
        assert_eq!(readme[0], "[3 mutexes](docs/locks.md)");
        assert_eq!(readme[1], "[more than 200 checks in C](tests/conformance)");
        assert_eq!(readme[2], "[1 scenarios](tests/torture)");
        assert!(readme[4].starts_with("2 to 9 of the 202 for"), "{}", readme[4]);
        assert_eq!(limits, ["| 2 locks [hand over strictly]"]);
        assert_eq!(promises, ["the other 2 mutexes"]);
    }

    #[test]
    fn a_phrase_may_cross_the_end_of_a_line() {
        let phrases = ["23 mutexes of".to_owned()];
        assert_eq!(missing("There are 23\nmutexes of", &phrases).count(), 0);
        assert_eq!(missing("There are 22 mutexes of", &phrases).collect::<Vec<_>>(), [&phrases[0]]);
    }

    #[test]
    fn numbers_of_other_days_are_replaced() {
        let new = with_numbers("9 locks. There are 9\nmutexes of 1234 locks – all", "9 mutexes of 99 locks");
        assert_eq!(new, "9 locks. There are 9\nmutexes of 99 locks – all");
        let new = with_numbers("[22 mutexes](docs/locks.md), 22", "[23 mutexes](docs/locks.md)");
        assert_eq!(new, "[23 mutexes](docs/locks.md), 22");
    }
}
