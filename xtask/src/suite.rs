//! A suite of checks run under glibc and then under lock after lock: what is tolerated, the table, the count.
//!
//! A failing check is tolerated only if the catalogue lists it among the lock's exceptions. What is skipped under a lock but
//! not under glibc has failed: a lock has no say in what is checked.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use comfy_table::Table;

use crate::locks::{Exception, Lock, Under};
use crate::steps::{Tally, watched};
use crate::table;
use crate::verdicts::{Verdict, Verdicts};

/// What a suite has to know how to do.
pub(crate) trait Suite {
    /// The names of the checks.
    fn checks(&self) -> &[String];
    /// What the names of its checks begin with in the catalogue's exceptions.
    fn prefix(&self) -> &str;
    /// Whether an exception is about this suite as a whole, so that it must be about one of its checks.
    fn is_about(&self, exception: &Exception) -> bool;
    /// What is left out where time is short.
    fn without(&self) -> Without {
        Without::default()
    }
    /// Runs some checks. `excepted`: they are expected to hang or fail, so they get less time.
    fn run(&self, under: &Under, checks: &[String], excepted: bool) -> Result<Verdicts>;
}

/// What a suite does not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Without {
    /// The measure: for checks that glibc has passed already.
    pub(crate) glibc: bool,
    /// What a lock may fail: it mostly takes the time after which it counts as hanging. It is counted as skipped.
    pub(crate) excepted: bool,
}

/// One row of the table.
pub(crate) struct Row {
    /// `glibc`, or the lock's name.
    pub(crate) name: String,
    pub(crate) tally: Tally,
    /// How many excepted checks failed.
    excepted: usize,
    elapsed: Duration,
}

/// The rows so far, and which checks did not run under glibc.
struct Judge {
    rows: Vec<Row>,
    skipped_by_glibc: HashSet<String>,
}

/// Runs the suite under glibc and under the locks. Prints failures as they come, then the table.
pub(crate) fn run(suite: &dyn Suite, locks: &[Lock]) -> Result<Tally> {
    let mut sum = Tally::default();
    for row in rows(suite, locks)? {
        sum += row.tally;
    }
    Ok(sum)
}

/// The same, with the count of each row.
pub(crate) fn rows(suite: &dyn Suite, locks: &[Lock]) -> Result<Vec<Row>> {
    let mut judge = Judge { rows: Vec::new(), skipped_by_glibc: HashSet::new() };
    if !suite.without().glibc {
        judge.row("glibc", || suite.run(&Under::Glibc, suite.checks(), false), None)?;
    }
    for lock in locks {
        let under = Under::lock(&lock.name)?;
        judge.lock(suite, lock, &under)?;
    }
    println!("{}", table(&judge.rows));
    Ok(judge.rows)
}

/// The checks that say something of a lock: those that it must pass, and those that it may fail.
fn meant<'a>(suite: &'a dyn Suite, lock: &Lock) -> (Vec<&'a String>, Vec<&'a String>) {
    let says_something = |check: &&String| lock.is_tried_by(&format!("{}{check}", suite.prefix()));
    suite.checks().iter().filter(says_something).partition(|check| exception(suite, lock, check).is_none())
}

/// Why a lock may fail a check of the suite, if it may.
fn exception<'a>(suite: &dyn Suite, lock: &'a Lock, check: &str) -> Option<&'a Exception> {
    lock.exception(&format!("{}{check}", suite.prefix()))
}

/// Runs these checks. None at all is not for the suite to run: a program that is given no name runs everything.
fn run_some(suite: &dyn Suite, under: &Under, names: &[&String], excepted: bool) -> Result<Verdicts> {
    if names.is_empty() {
        return Ok(Verdicts::new());
    }
    let names: Vec<String> = names.iter().map(|name| (*name).clone()).collect();
    suite.run(under, &names, excepted)
}

impl Judge {
    /// Runs and judges the row of a lock.
    fn lock(&mut self, suite: &dyn Suite, lock: &Lock, under: &Under) -> Result<()> {
        let (expected, mut excepted) = meant(suite, lock);
        let left_out = if suite.without().excepted { std::mem::take(&mut excepted).len() } else { 0 };
        let run = || {
            let mut verdicts = run_some(suite, under, &expected, false)?;
            verdicts.extend(run_some(suite, under, &excepted, true)?);
            Ok(verdicts)
        };
        self.row(&lock.name, run, Some((suite, lock)))?;
        if let Some(row) = self.rows.last_mut() {
            row.tally.skipped += left_out;
        }
        self.find_stale_exceptions(suite, lock);
        Ok(())
    }

    /// Runs and judges one row. `lock`: whose exceptions apply; none under glibc, which then is the measure.
    fn row(
        &mut self,
        name: &str,
        run: impl FnOnce() -> Result<Verdicts>,
        lock: Option<(&dyn Suite, &Lock)>,
    ) -> Result<()> {
        let started = Instant::now();
        let verdicts = watched(name, run)?;
        let (mut tally, mut excepted) = (Tally::default(), 0);
        let mut needless: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
        for (check, verdict) in verdicts {
            // A check's name may carry how it was run, as in `counter@8`; exceptions do not know that.
            let plain = check.split('@').next().unwrap_or(&check);
            let exception = lock.and_then(|(suite, lock)| exception(suite, lock, plain));
            match (verdict, exception) {
                (Verdict::Passed, None) => tally.passed += 1,
                (Verdict::Passed, Some(exception)) => {
                    tally.passed += 1;
                    needless.entry((&exception.check, &exception.reason)).or_default().push(check);
                }
                (Verdict::Failed(_), Some(_)) => excepted += 1,
                (Verdict::Failed(reason), None) => {
                    tally.failed += 1;
                    println!("not ok {name}: {check}: {reason}");
                }
                (Verdict::Skipped(reason), _) if lock.is_none() || self.skipped_by_glibc.contains(&check) => {
                    tally.skipped += 1;
                    if lock.is_none() {
                        println!("skip {check}: {reason}");
                        self.skipped_by_glibc.insert(check);
                    }
                }
                (Verdict::Skipped(reason), _) => {
                    tally.failed += 1;
                    println!("not ok {name}: {check}: skipped, though not under glibc: {reason}");
                }
            }
        }
        for ((exception, reason), checks) in needless {
            println!("note: {name}: passes, though excepted by `{exception}` ({reason}): {}", checks.join(", "));
        }
        self.rows.push(Row { name: name.to_owned(), tally, excepted, elapsed: started.elapsed() });
        Ok(())
    }
}

impl Judge {
    /// An exception that is about no check is a mistake, and may hide another: it counts as a failed check.
    fn find_stale_exceptions(&mut self, suite: &dyn Suite, lock: &Lock) {
        for exception in lock.exceptions.iter().filter(|exception| suite.is_about(exception)) {
            let covers = |check: &String| exception.covers(&format!("{}{check}", suite.prefix()));
            if !suite.checks().iter().any(covers) {
                println!("not ok {}: the exception `{}` is about no check", lock.name, exception.check);
                if let Some(row) = self.rows.last_mut() {
                    row.tally += Tally::FAILED;
                }
            }
        }
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = table::new(["lock", "passed", "failed", "excepted", "skipped", "seconds"]);
    for row in rows {
        let Tally { passed, failed, skipped } = row.tally;
        let numbers = [passed, failed, row.excepted, skipped].map(|number| number.to_string());
        let seconds = format!("{:.1}", row.elapsed.as_secs_f64());
        table.add_row(std::iter::once(row.name.clone()).chain(numbers).chain([seconds]));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::Kind;

    struct Named(Vec<String>, Without);

    impl Suite for Named {
        fn checks(&self) -> &[String] {
            &self.0
        }
        fn prefix(&self) -> &'static str {
            "suite."
        }
        fn is_about(&self, exception: &Exception) -> bool {
            exception.check.starts_with("suite.")
        }
        fn without(&self) -> Without {
            self.1
        }
        /// Like the programs: no name stands for all.
        fn run(&self, _: &Under, names: &[String], _: bool) -> Result<Verdicts> {
            let names = if names.is_empty() { &self.0 } else { names };
            Ok(names.iter().map(|name| (name.clone(), Verdict::Passed)).collect())
        }
    }

    fn mcs(exceptions: &[&str]) -> Lock {
        let exception = |check: &&str| Exception { check: (*check).to_owned(), reason: "barging".into() };
        let exceptions = exceptions.iter().map(exception).collect();
        Lock { name: "mcs".into(), kind: Kind::Mutex, default: false, principal: true, exceptions }
    }

    fn judge(verdicts: &[(&str, Verdict)], lock: bool, skipped: &[&str]) -> (Tally, usize) {
        let mcs = mcs(&["suite.allowed"]);
        let verdicts = verdicts.iter().map(|(name, verdict)| ((*name).to_owned(), verdict.clone())).collect();
        let skipped_by_glibc = skipped.iter().map(|name| (*name).to_owned()).collect();
        let mut judge = Judge { rows: Vec::new(), skipped_by_glibc };
        let suite: &dyn Suite = &Named(Vec::new(), Without::default());
        judge.row("row", || Ok(verdicts), lock.then_some((suite, &mcs))).expect("no error");
        (judge.rows[0].tally, judge.rows[0].excepted)
    }

    #[test]
    fn an_exception_about_no_check_fails() {
        let mut judge = Judge { rows: Vec::new(), skipped_by_glibc: HashSet::new() };
        judge.row("mcs", || Ok(Vec::new()), None).expect("no error");
        let lock = mcs(&["suite.known", "suite.kn*", "suite.unknown", "elsewhere.unknown"]);
        judge.find_stale_exceptions(&Named(vec!["known".to_owned()], Without::default()), &lock);
        assert_eq!(judge.rows[0].tally, Tally::FAILED);
    }

    #[test]
    fn no_check_is_not_every_check() {
        let suite = Named(vec!["a".to_owned(), "b".to_owned()], Without::default());
        let of = |names: &[&String]| run_some(&suite, &Under::Glibc, names, false).expect("no error").len();
        assert_eq!((of(&[]), of(&[&suite.0[1]])), (0, 1));
    }

    #[test]
    fn what_a_lock_may_fail_is_run_or_counted_as_skipped() {
        let tally = |excepted| {
            let suite = Named(vec!["allowed".to_owned(), "other".to_owned()], Without { excepted, glibc: false });
            let mut judge = Judge { rows: Vec::new(), skipped_by_glibc: HashSet::new() };
            judge.lock(&suite, &mcs(&["suite.allowed"]), &Under::Glibc).expect("no error");
            judge.rows[0].tally
        };
        assert_eq!(tally(false), Tally { passed: 2, ..Tally::default() });
        assert_eq!(tally(true), Tally { passed: 1, skipped: 1, failed: 0 });
    }

    #[test]
    fn only_exceptions_of_the_lock_are_tolerated() {
        let failed = Verdict::Failed("x".into());
        let got = judge(&[("allowed@8", failed.clone()), ("other", failed.clone())], true, &[]);
        assert_eq!(got, (Tally::FAILED, 1));
        let under_glibc = judge(&[("allowed@8", failed)], false, &[]);
        assert_eq!(under_glibc, (Tally::FAILED, 0));
    }

    #[test]
    fn an_exception_that_passes_counts_as_passed() {
        assert_eq!(judge(&[("allowed", Verdict::Passed)], true, &[]), (Tally::PASSED, 0));
    }

    #[test]
    fn a_lock_may_skip_only_what_glibc_skips() {
        let skipped = Verdict::Skipped("no".into());
        assert_eq!(judge(&[("a", skipped.clone())], true, &[]).0, Tally::FAILED);
        assert_eq!(judge(&[("a@64", skipped.clone())], true, &["a@8"]).0, Tally::FAILED);
        assert_eq!(judge(&[("a", skipped)], true, &["a"]).0, Tally { skipped: 1, ..Tally::default() });
    }
}
