//! What a guest's console says.

use std::collections::BTreeMap;

/// What the kernel prints when something is wrong.
const COMPLAINTS: [&str; 12] = [
    "BUG:",
    "WARNING:",
    "Oops",
    "Kernel panic",
    "general protection",
    "unable to handle",
    "rcu: INFO:",
    "stall",
    "lockup",
    "hung",
    "blocked for more than",
    "NOT EXCLUDED",
];

/// A guest's output, read.
#[derive(Debug)]
pub(crate) struct Console {
    pub(crate) name: String,
    pub(crate) text: String,
    runs: BTreeMap<String, Run>,
    /// Whether the plan came to its end.
    pub(crate) is_done: bool,
}

/// What was printed between `rig: begin NAME` and `rig: end NAME`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Run {
    pub(crate) text: String,
    events: BTreeMap<String, u64>,
    /// Whether its end was reached.
    pub(crate) is_done: bool,
}

/// What locktorture counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Writes {
    pub(crate) total: u64,
    pub(crate) most: u64,
    pub(crate) least: u64,
    pub(crate) failed: bool,
}

impl Console {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let text = text.replace('\r', "");
        let mut runs: BTreeMap<String, Run> = BTreeMap::new();
        let mut current = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("rig: begin ") {
                current = Some(name.to_owned());
                runs.insert(name.to_owned(), Run::default());
            }
            let Some(run) = current.as_ref().and_then(|name| runs.get_mut(name)) else { continue };
            run.text += line;
            run.text += "\n";
            if let Some(event) = line.strip_prefix("rig: event ") {
                if let Some((name, value)) = event.split_once(' ')
                    && let Ok(value) = value.parse()
                {
                    run.events.insert(name.to_owned(), value);
                }
            } else if line.starts_with("rig: end ") {
                run.is_done = true;
                current = None;
            }
        }
        let is_done = text.lines().any(|line| line == "rig: done");
        Self { name: name.to_owned(), text, runs, is_done }
    }

    /// A run that there is no trace of has done nothing.
    pub(crate) fn run(&self, name: &str) -> Run {
        self.runs.get(name).cloned().unwrap_or_default()
    }

    /// Lines that say that something is wrong, except those with one of these texts.
    pub(crate) fn complaints(&self, expected: &[&str]) -> Vec<&str> {
        let is_bad = |line: &&str| {
            COMPLAINTS.iter().any(|word| line.contains(word))
                && !expected.iter().any(|text| line.contains(text))
                // What the guest was asked to do, and the kernel's own command line.
                && !line.contains("ommand line:")
        };
        self.text.lines().filter(is_bad).collect()
    }

    pub(crate) fn says(&self, text: &str) -> bool {
        self.text.contains(text)
    }

    /// The last lines, for messages.
    pub(crate) fn end(&self) -> String {
        let lines: Vec<&str> = self.text.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }
}

impl Run {
    pub(crate) fn event(&self, name: &str) -> u64 {
        self.events.get(name).copied().unwrap_or(0)
    }

    /// Hand-offs from one waiter to the next.
    pub(crate) fn handoffs(&self) -> u64 {
        self.event("lock_handoff_local") + self.event("lock_handoff_remote")
    }

    /// Hand-offs that stayed on a node, in percent of all.
    #[expect(clippy::cast_precision_loss, reason = "counts of millions")]
    pub(crate) fn share(&self) -> f64 {
        100.0 * self.event("lock_handoff_local") as f64 / self.handoffs().max(1) as f64
    }

    /// The last statistics of locktorture.
    pub(crate) fn writes(&self) -> Option<Writes> {
        let line = self.text.lines().rfind(|line| line.contains("Writes:"))?;
        let number = |label: &str| {
            let rest = line.split_once(label)?.1.trim_start();
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        let most = number("Max/Min:")?;
        let (_, pair) = line.split_once("Max/Min:")?;
        let least = pair.split_once('/')?.1.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
        Some(Writes { total: number("Total:")?, most, least, failed: number("Fail:")? != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "booting\r
rig: begin spin\r
Writes:  Total: 1200  Max/Min: 200/100   Fail: 0 \r
rig: event lock_handoff_local 30\r
rig: event lock_handoff_remote 10\r
rig: end spin\r
rig: begin two\r
Writes:  Total: 7  Max/Min: 5/0 ??? Fail: 1 !!!\r
WARNING: CPU: 1 PID: 9 at kernel/locking/locktorture.c:1\r
";

    #[test]
    fn a_log_is_read() {
        let console = Console::new("x", LOG);
        let run = console.run("spin");
        assert!(run.is_done && !console.is_done);
        assert_eq!((run.handoffs(), run.share()), (40, 75.0));
        assert_eq!(run.writes(), Some(Writes { total: 1200, most: 200, least: 100, failed: false }));
        let two = console.run("two");
        assert!(!two.is_done);
        assert_eq!(two.writes(), Some(Writes { total: 7, most: 5, least: 0, failed: true }));
        assert_eq!(console.run("three"), Run::default());
    }

    #[test]
    fn complaints_are_found_unless_expected() {
        let console = Console::new("x", LOG);
        assert_eq!(console.complaints(&[]).len(), 1);
        assert!(console.complaints(&["locktorture.c"]).is_empty());
    }
}
