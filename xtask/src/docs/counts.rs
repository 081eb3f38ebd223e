//! Whether documents that people write state how many locks, checks and programs there are.

use anyhow::{Context, Result};

use super::promises::Known;
use crate::locks::{Kind, Lock};
use crate::{apps, torture, workspace};

/// What documents should say and do not, with the numbers of today.
pub(super) fn stale(known: &Known, locks: &[Lock]) -> Result<Vec<String>> {
    let mut stale = Vec::new();
    for (page, phrases) in phrases(known, locks) {
        let text = std::fs::read_to_string(workspace::path(page)).context(page)?;
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
}
