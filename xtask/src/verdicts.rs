//! What a test program printed: `ok NAME …`, `not ok NAME: reason`, `skip NAME: reason`, and its closing line.

use std::collections::HashMap;

use anyhow::{Result, bail};

use crate::child::Finished;
use crate::steps::Tally;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

/// The exit status of a program that was called wrongly.
const WRONG_USAGE: i32 = 2;

/// The verdict on each check that was asked for, in that order.
pub(crate) type Verdicts = Vec<(String, Verdict)>;

/// Reads a program's verdicts on the checks that it was asked to make. Each must have one: a check that the program did
/// not speak of has failed. So has the whole if its closing line or exit status contradicts the verdicts; this is
/// reported as a failed check of the name `closing line`. That it did not understand its command line is an error.
pub(crate) fn read(done: &Finished, asked: &[String]) -> Result<Verdicts> {
    if done.status.and_then(|status| status.code()) == Some(WRONG_USAGE) {
        bail!("{}", done.transcript());
    }
    let mut said: HashMap<&str, Verdict> = done.stdout.lines().filter_map(line).collect();
    let mut counted = Tally::default();
    for verdict in said.values() {
        match verdict {
            Verdict::Passed => counted.passed += 1,
            Verdict::Failed(_) => counted.failed += 1,
            Verdict::Skipped(_) => counted.skipped += 1,
        }
    }
    // The reason why there is no verdict is reported once.
    let mut silence = format!("no verdict: {} {}", done.ending(), last_words(done));
    let mut silent = || Verdict::Failed(std::mem::replace(&mut silence, "no verdict either".to_owned()));
    let mut verdicts: Verdicts =
        asked.iter().map(|name| (name.clone(), said.remove(name.as_str()).unwrap_or_else(&mut silent))).collect();
    let expected_status = if counted.failed == 0 { 0 } else { 1 };
    if !done.stdout.lines().last().is_some_and(|last| is_closing_line(last, counted))
        || done.status.and_then(|status| status.code()) != Some(expected_status)
    {
        let reason =
            format!("expected `{counted}` and exit status {expected_status}; {} {}", done.ending(), last_words(done));
        verdicts.push(("closing line".to_owned(), Verdict::Failed(reason)));
    }
    Ok(verdicts)
}

/// Whether a line says these numbers. What was skipped need not be said.
fn is_closing_line(line: &str, counted: Tally) -> bool {
    line == counted.to_string() || line == (Tally { skipped: 0, ..counted }).to_string()
}

/// The name of the check that a line gives a verdict on, if it does.
pub(crate) fn name(text: &str) -> Option<&str> {
    line(text).map(|(name, _)| name)
}

/// One line's verdict, if it is one.
fn line(text: &str) -> Option<(&str, Verdict)> {
    let name_and_rest = |rest| {
        let end = str::find(rest, [':', ' ']).unwrap_or(rest.len());
        (&rest[..end], rest[end..].trim_start_matches([':', ' ']).to_owned())
    };
    if let Some(rest) = text.strip_prefix("ok ") {
        Some((name_and_rest(rest).0, Verdict::Passed))
    } else if let Some(rest) = text.strip_prefix("not ok ") {
        let (name, reason) = name_and_rest(rest);
        Some((name, Verdict::Failed(reason)))
    } else if let Some(rest) = text.strip_prefix("skip ") {
        let (name, reason) = name_and_rest(rest);
        Some((name, Verdict::Skipped(reason)))
    } else {
        None
    }
}

/// The last lines of standard error, for a message.
fn last_words(done: &Finished) -> String {
    let lines: Vec<&str> = done.stderr.lines().collect();
    let last = lines[lines.len().saturating_sub(3)..].join(" | ");
    if last.is_empty() { last } else { format!("({last})") }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::child::{AGAINST_HANGS, Program};

    fn verdicts(script: &str, asked: &[&str]) -> Verdicts {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let done = Program::new(command, AGAINST_HANGS).run().expect("sh starts");
        read(&done, &asked.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).expect("called rightly")
    }

    #[test]
    fn reads_all_three() {
        let script = "echo 'ok a.b'; echo 'ok c threads=8'; echo 'not ok d: 3: x'; echo 'skip e: no'; echo '2 passed, \
                      1 failed, 1 skipped'; exit 1";
        let expected = [
            ("a.b", Verdict::Passed),
            ("c", Verdict::Passed),
            ("d", Verdict::Failed("3: x".into())),
            ("e", Verdict::Skipped("no".into())),
        ];
        let expected: Verdicts = expected.into_iter().map(|(name, verdict)| (name.to_owned(), verdict)).collect();
        assert_eq!(verdicts(script, &["a.b", "c", "d", "e"]), expected);
    }

    #[test]
    fn silence_is_failure() {
        let got = verdicts("echo 'ok a'; echo '1 passed, 0 failed'", &["a", "b"]);
        assert!(matches!(&got[1], (name, Verdict::Failed(reason)) if name == "b" && reason.contains("no verdict")));
    }

    #[test]
    fn wrong_usage_is_an_error() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo usage >&2; exit 2"]);
        let done = Program::new(command, AGAINST_HANGS).run().expect("sh starts");
        assert!(read(&done, &["a".to_owned()]).is_err());
    }

    #[test]
    fn a_closing_line_that_does_not_fit_is_failure() {
        for script in
            ["echo 'ok a'", "echo 'ok a'; echo '2 passed, 0 failed'", "echo 'ok a'; echo '1 passed, 0 failed'; exit 1"]
        {
            let got = verdicts(script, &["a"]);
            assert!(matches!(&got[1], (name, Verdict::Failed(_)) if name == "closing line"), "{script}");
        }
    }
}
