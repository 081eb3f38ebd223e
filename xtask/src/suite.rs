//! A suite of checks run under glibc and then under lock after lock: what is tolerated, the table, the count.
//!
//! A failing check is tolerated only if the catalogue lists it among the lock's exceptions. What is skipped under a
//! lock but not under glibc has failed: a lock has no say in what is checked.
//!
//! Excepted checks run as well, all of them or one for each exception ([`Excepted`]), and so do those that are skipped
//! under glibc because its own locks cannot pass them. Which of them passed is reported: perhaps an exception is no
//! longer needed. That alone is no failure, since what may fail may also pass. Where everything ran, an exception none
//! of whose checks failed under any lock is one.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use anyhow::Result;
use comfy_table::Table;
use flashlock_report::table;

use crate::locks::{Exception, Lock, Under};
use crate::steps::{Stopwatch, Taken, Tally, watched};
use crate::verdicts::{Verdict, Verdicts};

/// What a suite has to know how to do.
pub(crate) trait Suite {
    /// The names of the checks.
    fn checks(&self) -> &[String];
    /// What the names of its checks begin with in the catalogue's exceptions.
    fn prefix(&self) -> &str;
    /// Whether an exception is about this suite as a whole, so that it must be about one of its checks.
    fn is_about(&self, exception: &Exception) -> bool;
    /// How much of it runs.
    fn extent(&self) -> Extent;
    /// Whether this is every check under every lock, so that an exception that none of them needs is a mistake.
    fn is_exhaustive(&self) -> bool {
        false
    }
    /// Runs some checks. `excepted`: they are expected to hang or fail, so they get less time.
    fn run(&self, under: &Under, checks: &[String], excepted: bool) -> Result<Verdicts>;
}

/// How much of a suite runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) measure: Measure,
    pub(crate) excepted: Excepted,
    /// Under each lock one check of so many, under the next lock the next ones, so that all of them run under some; 1:
    /// all.
    pub(crate) share: usize,
}

/// When checks run under glibc, which is the measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// All of them, in a row of its own.
    Row,
    /// Those that a lock skips, to see whether glibc does: another run has shown that glibc passes the others.
    WhereSkipped,
}

/// Which of the checks run that a lock may fail. Most of them take the time after which they count as hanging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excepted {
    /// All.
    All,
    /// One for each exception of a lock: which one follows from the names of both, so that locks with the same
    /// exception try different checks. The others count as skipped.
    Sample,
    /// None; they count as skipped.
    Nothing,
}

impl Extent {
    /// Everything, and first under glibc.
    pub(crate) const WHOLE: Self = Self { measure: Measure::Row, excepted: Excepted::All, share: 1 };
}

/// One row of the table.
pub(crate) struct Row {
    /// `glibc`, or the lock's name.
    pub(crate) name: String,
    pub(crate) tally: Tally,
    /// How many excepted checks failed.
    excepted: usize,
    taken: Taken,
}

/// The rows so far, and which checks did not run under glibc.
#[derive(Default)]
struct Judge {
    rows: Vec<Row>,
    skipped_by_glibc: HashSet<String>,
    exceptions: BTreeMap<(String, String), Outcomes>,
    /// What passed under glibc although its locks are said to be unable to, and why they are.
    glibc_passed: Vec<(String, String)>,
}

/// What became of the checks of one exception, under all locks that have it.
#[derive(Default)]
struct Outcomes {
    failed: usize,
    /// Each check that passed, and under which locks.
    passed: BTreeMap<String, BTreeSet<String>>,
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
    let mut judge = Judge::default();
    if suite.extent().measure == Measure::Row {
        judge.glibc(suite)?;
    }
    for (number, lock) in locks.iter().enumerate() {
        let under = Under::lock(&lock.name)?;
        judge.lock(suite, (lock, number), &under)?;
    }
    println!("{}", table(&judge.rows));
    judge.report_exceptions();
    if suite.is_exhaustive() {
        judge.count_needless();
    }
    Ok(judge.rows)
}

/// The checks that say something of a lock, or its share of them: those that it must pass, and those that it may fail.
fn meant<'a>(suite: &'a dyn Suite, (lock, number): (&Lock, usize)) -> (Vec<&'a String>, Vec<&'a String>) {
    let says_something = |check: &&String| lock.is_tried_by(&format!("{}{check}", suite.prefix()));
    let checks = suite.checks().iter().filter(says_something);
    let share = suite.extent().share;
    checks.skip(number % share).step_by(share).partition(|check| exception(suite, lock, check).is_none())
}

/// Why a lock may fail a check of the suite, if it may.
fn exception<'a>(suite: &dyn Suite, lock: &'a Lock, check: &str) -> Option<&'a Exception> {
    lock.exception(&format!("{}{check}", suite.prefix()))
}

/// Which of the checks that a lock may fail are run.
fn tried<'a>(suite: &dyn Suite, lock: &Lock, excepted: Vec<&'a String>) -> Vec<&'a String> {
    match suite.extent().excepted {
        Excepted::All => excepted,
        Excepted::Nothing => Vec::new(),
        Excepted::Sample => {
            let mut by_exception: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
            for check in excepted {
                if let Some(exception) = exception(suite, lock, check) {
                    by_exception.entry(&exception.check).or_default().push(check);
                }
            }
            let one =
                |(exception, checks): (&str, Vec<&'a String>)| checks[drawn(&lock.name, exception) % checks.len()];
            by_exception.into_iter().map(one).collect()
        }
    }
}

/// A number that two names stand for (FNV-1a).
pub(crate) fn drawn(name: &str, other: &str) -> usize {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = name.bytes().chain([0]).chain(other.bytes()).fold(0xcbf2_9ce4_8422_2325, hash);
    (hash >> 33) as usize
}

/// Runs these checks. None at all is not for the suite to run: a program that is given no name runs everything.
fn run_some(suite: &dyn Suite, under: &Under, names: &[&String], excepted: bool) -> Result<Verdicts> {
    if names.is_empty() {
        return Ok(Verdicts::new());
    }
    let names: Vec<String> = names.iter().map(|name| (*name).clone()).collect();
    suite.run(under, &names, excepted)
}

/// The check that a verdict is about: how it was run follows its name, as in `counter@8`. Exceptions do not know that.
fn plain(check: &str) -> &str {
    check.split('@').next().unwrap_or(check)
}

impl Judge {
    /// Runs and judges the row of glibc. What is skipped there because its locks cannot pass it is then tried, too.
    fn glibc(&mut self, suite: &dyn Suite) -> Result<()> {
        let watch = Stopwatch::start();
        let (mut tally, mut excepted) = (Tally::default(), 0);
        let mut skipped = Vec::new();
        for (check, verdict) in watched("glibc", || suite.run(&Under::Glibc, suite.checks(), false))? {
            match verdict {
                Verdict::Passed => tally.passed += 1,
                Verdict::Failed(reason) => {
                    tally.failed += 1;
                    println!("not ok glibc: {check}: {reason}");
                }
                Verdict::Skipped(reason) => {
                    tally.skipped += 1;
                    println!("skip {check}: {reason}");
                    self.skipped_by_glibc.insert(check.clone());
                    skipped.push((check, reason));
                }
            }
        }
        match suite.extent().excepted {
            Excepted::All => {}
            Excepted::Sample => skipped.retain(|(check, _)| drawn("glibc", check).is_multiple_of(4)),
            Excepted::Nothing => skipped.clear(),
        }
        let names: Vec<String> = skipped.iter().map(|(check, _)| plain(check).to_owned()).collect();
        let names: Vec<&String> = names.iter().collect();
        for (check, verdict) in watched("glibc", || run_some(suite, &Under::Glibc, &names, true))? {
            let Some((_, reason)) = skipped.iter().find(|(name, _)| *name == check) else { continue };
            match verdict {
                Verdict::Passed => self.glibc_passed.push((check, reason.clone())),
                Verdict::Failed(_) => excepted += 1,
                Verdict::Skipped(_) => continue,
            }
            tally.skipped -= 1;
        }
        tally.passed += self.glibc_passed.len();
        self.rows.push(Row { name: "glibc".to_owned(), tally, excepted, taken: watch.read() });
        Ok(())
    }

    /// Runs and judges the row of a lock.
    fn lock(&mut self, suite: &dyn Suite, (lock, number): (&Lock, usize), under: &Under) -> Result<()> {
        let watch = Stopwatch::start();
        let (expected, excepted) = meant(suite, (lock, number));
        let all = excepted.len();
        let excepted = tried(suite, lock, excepted);
        let left_out = all - excepted.len();
        let verdicts = watched(&lock.name, || -> Result<Verdicts> {
            let mut verdicts = run_some(suite, under, &expected, false)?;
            verdicts.extend(run_some(suite, under, &excepted, true)?);
            Ok(verdicts)
        })?;
        if suite.extent().measure == Measure::WhereSkipped {
            self.ask_glibc(suite, &verdicts)?;
        }
        let (mut tally, excepted) = self.judge(suite, lock, verdicts);
        tally.skipped += left_out;
        tally.failed += stale_exceptions(suite, lock);
        self.rows.push(Row { name: lock.name.clone(), tally, excepted, taken: watch.read() });
        Ok(())
    }

    /// Which of the checks that were skipped under a lock glibc skips, too.
    fn ask_glibc(&mut self, suite: &dyn Suite, verdicts: &Verdicts) -> Result<()> {
        let is_news = |check: &&String| !self.skipped_by_glibc.contains(*check);
        let skipped = verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Skipped(_)));
        let plain: BTreeSet<String> =
            skipped.map(|(check, _)| check).filter(is_news).map(|check| plain(check).to_owned()).collect();
        for (check, verdict) in run_some(suite, &Under::Glibc, &plain.iter().collect::<Vec<_>>(), false)? {
            if matches!(verdict, Verdict::Skipped(_)) {
                self.skipped_by_glibc.insert(check);
            }
        }
        Ok(())
    }

    /// What these verdicts are worth, and how many excepted checks failed.
    fn judge(&mut self, suite: &dyn Suite, lock: &Lock, verdicts: Verdicts) -> (Tally, usize) {
        let (name, mut tally, mut excepted) = (&lock.name, Tally::default(), 0);
        for (check, verdict) in verdicts {
            match (verdict, exception(suite, lock, plain(&check))) {
                (Verdict::Passed, None) => tally.passed += 1,
                (Verdict::Passed, Some(exception)) => {
                    tally.passed += 1;
                    self.outcomes(&exception.check, &exception.reason).passed(&check, name);
                }
                (Verdict::Failed(_), Some(exception)) => {
                    excepted += 1;
                    self.outcomes(&exception.check, &exception.reason).failed += 1;
                }
                (Verdict::Failed(reason), None) => {
                    tally.failed += 1;
                    println!("not ok {name}: {check}: {reason}");
                }
                (Verdict::Skipped(_), _) if self.skipped_by_glibc.contains(&check) => tally.skipped += 1,
                (Verdict::Skipped(reason), _) => {
                    tally.failed += 1;
                    println!("not ok {name}: {check}: skipped, though not under glibc: {reason}");
                }
            }
        }
        (tally, excepted)
    }

    fn outcomes(&mut self, exception: &str, reason: &str) -> &mut Outcomes {
        self.exceptions.entry((exception.to_owned(), reason.to_owned())).or_default()
    }

    /// Says which excepted checks passed, and under which locks.
    fn report_exceptions(&self) {
        for ((exception, reason), outcomes) in &self.exceptions {
            for (check, locks) in &outcomes.passed {
                let locks: Vec<&str> = locks.iter().map(String::as_str).collect();
                println!("excepted but passed: {check} ({exception}: {reason}): {}", locks.join(", "));
            }
        }
        for (check, reason) in &self.glibc_passed {
            println!("excepted but passed: {check} ({reason}): glibc");
        }
    }

    /// An exception all of whose checks passed, under all locks that have it, has failed.
    fn count_needless(&mut self) {
        for ((exception, reason), outcomes) in &self.exceptions {
            if outcomes.failed > 0 {
                continue;
            }
            println!("not ok exceptions: no check of `{exception}` ({reason}) fails under any lock: remove it");
            if let Some(row) = self.rows.last_mut() {
                row.tally += Tally::FAILED;
            }
        }
    }
}

impl Outcomes {
    fn passed(&mut self, check: &str, lock: &str) {
        self.passed.entry(check.to_owned()).or_default().insert(lock.to_owned());
    }
}

/// How many exceptions of a lock are about no check: each is a mistake, and may hide another, so it counts as a failed
/// check.
fn stale_exceptions(suite: &dyn Suite, lock: &Lock) -> usize {
    let mut stale = 0;
    for exception in lock.exceptions.iter().filter(|exception| suite.is_about(exception)) {
        let covers = |check: &String| exception.covers(&format!("{}{check}", suite.prefix()));
        if !suite.checks().iter().any(covers) {
            println!("not ok {}: the exception `{}` is about no check", lock.name, exception.check);
            stale += 1;
        }
    }
    stale
}

fn table(rows: &[Row]) -> Table {
    let mut table = table::of_numbers(["lock", "passed", "failed", "excepted", "skipped", "seconds", "CPU"]);
    for row in rows {
        let Tally { passed, failed, skipped } = row.tally;
        let numbers = [passed, failed, row.excepted, skipped].map(|number| number.to_string());
        table.add_row(std::iter::once(row.name.clone()).chain(numbers).chain(row.taken.seconds()));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::Kind;

    /// A suite with these checks, all of which get this verdict.
    struct Named {
        checks: Vec<String>,
        extent: Extent,
        verdict: Verdict,
    }

    impl Named {
        fn new(checks: &[&str], excepted: Excepted) -> Self {
            let checks = checks.iter().map(|&check| check.to_owned()).collect();
            Self { checks, extent: Extent { excepted, ..Extent::WHOLE }, verdict: Verdict::Passed }
        }
    }

    impl Suite for Named {
        fn checks(&self) -> &[String] {
            &self.checks
        }
        fn prefix(&self) -> &'static str {
            "suite."
        }
        fn is_about(&self, exception: &Exception) -> bool {
            exception.check.starts_with("suite.")
        }
        fn extent(&self) -> Extent {
            self.extent
        }
        /// Like the programs: no name stands for all. glibc skips what is not tried as an exception.
        fn run(&self, under: &Under, names: &[String], excepted: bool) -> Result<Verdicts> {
            let names = if names.is_empty() { &self.checks } else { names };
            let skips = matches!(under, Under::Glibc) && !excepted;
            let verdict = |name: &String| match name.as_str() {
                "skipped" if skips => Verdict::Skipped("cannot".into()),
                _ => self.verdict.clone(),
            };
            Ok(names.iter().map(|name| (name.clone(), verdict(name))).collect())
        }
    }

    fn mcs(exceptions: &[&str]) -> Lock {
        let exception = |check: &&str| Exception { check: (*check).to_owned(), reason: "barging".into() };
        let exceptions = exceptions.iter().map(exception).collect();
        Lock { name: "mcs".into(), kind: Kind::Mutex, default: false, principal: true, strict: true, exceptions }
    }

    fn judge(verdicts: &[(&str, Verdict)], skipped: &[&str]) -> (Tally, usize) {
        let verdicts = verdicts.iter().map(|(name, verdict)| ((*name).to_owned(), verdict.clone())).collect();
        let skipped_by_glibc = skipped.iter().map(|name| (*name).to_owned()).collect();
        let mut judge = Judge { skipped_by_glibc, ..Judge::default() };
        judge.judge(&Named::new(&[], Excepted::All), &mcs(&["suite.allowed"]), verdicts)
    }

    #[test]
    fn an_exception_about_no_check_fails() {
        let lock = mcs(&["suite.known", "suite.kn*", "suite.unknown", "elsewhere.unknown"]);
        assert_eq!(stale_exceptions(&Named::new(&["known"], Excepted::All), &lock), 1);
    }

    #[test]
    fn no_check_is_not_every_check() {
        let suite = Named::new(&["a", "b"], Excepted::All);
        let of = |names: &[&String]| run_some(&suite, &Under::Glibc, names, false).expect("no error").len();
        assert_eq!((of(&[]), of(&[&suite.checks[1]])), (0, 1));
    }

    #[test]
    fn what_a_lock_may_fail_is_run_or_counted_as_skipped() {
        let tally = |excepted| {
            let mut judge = Judge::default();
            let suite = Named::new(&["allowed.a", "allowed.b", "allowed.c", "other"], excepted);
            judge.lock(&suite, (&mcs(&["suite.allowed.*"]), 0), &Under::Glibc).expect("no error");
            judge.rows[0].tally
        };
        assert_eq!(tally(Excepted::All), Tally { passed: 4, ..Tally::default() });
        assert_eq!(tally(Excepted::Sample), Tally { passed: 2, skipped: 2, failed: 0 });
        assert_eq!(tally(Excepted::Nothing), Tally { passed: 1, skipped: 3, failed: 0 });
    }

    #[test]
    fn with_a_share_for_each_every_check_runs_under_some_lock() {
        let mut suite = Named::new(&["a", "b", "c", "d", "e"], Excepted::All);
        suite.extent.share = 3;
        let lock = mcs(&[]);
        let of = |number| meant(&suite, (&lock, number)).0.into_iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!([of(0), of(1), of(2), of(3)], [vec!["a", "d"], vec!["b", "e"], vec!["c"], vec!["a", "d"]]);
    }

    #[test]
    fn locks_with_one_exception_try_different_checks() {
        let drawn: HashSet<usize> = ["mcs", "cna", "mcscr", "ticket"].map(|lock| drawn(lock, "a.*") % 8).into();
        assert!(drawn.len() > 1, "{drawn:?}");
    }

    #[test]
    fn what_glibc_cannot_do_is_tried_too() {
        let row = |verdict, excepted| {
            let mut judge = Judge::default();
            judge.glibc(&Named { verdict, ..Named::new(&["other", "skipped"], excepted) }).expect("no error");
            (judge.rows[0].tally, judge.rows[0].excepted, judge.glibc_passed.len())
        };
        let skipped = Tally { passed: 1, failed: 0, skipped: 1 };
        assert_eq!(row(Verdict::Passed, Excepted::Nothing), (skipped, 0, 0));
        assert_eq!(row(Verdict::Passed, Excepted::All), (Tally { passed: 2, ..Tally::default() }, 0, 1));
        assert_eq!(row(Verdict::Failed("x".into()), Excepted::All), (Tally::FAILED, 1, 0));
    }

    #[test]
    fn glibc_is_asked_only_of_what_a_lock_skips() {
        let skipped = |check: &str| (check.to_owned(), Verdict::Skipped("no".into()));
        let mut judge = Judge::default();
        let suite = Named::new(&["other", "skipped"], Excepted::All);
        judge.ask_glibc(&suite, &vec![skipped("other"), skipped("skipped")]).expect("no error");
        assert_eq!(judge.skipped_by_glibc, HashSet::from(["skipped".to_owned()]));
    }

    #[test]
    fn only_exceptions_of_the_lock_are_tolerated() {
        let failed = Verdict::Failed("x".into());
        assert_eq!(judge(&[("allowed@8", failed.clone()), ("other", failed)], &[]), (Tally::FAILED, 1));
    }

    #[test]
    fn an_exception_that_passes_counts_as_passed() {
        assert_eq!(judge(&[("allowed", Verdict::Passed)], &[]), (Tally::PASSED, 0));
    }

    #[test]
    fn an_exception_that_nothing_needs_fails_where_everything_ran() {
        let failed = |verdict| {
            let mut judge = Judge::default();
            let suite = Named { verdict, ..Named::new(&["allowed"], Excepted::All) };
            judge.lock(&suite, (&mcs(&["suite.allowed"]), 0), &Under::Glibc).expect("no error");
            judge.count_needless();
            judge.rows[0].tally.failed
        };
        assert_eq!((failed(Verdict::Passed), failed(Verdict::Failed("x".into()))), (1, 0));
    }

    #[test]
    fn a_lock_may_skip_only_what_glibc_skips() {
        let skipped = Verdict::Skipped("no".into());
        assert_eq!(judge(&[("a", skipped.clone())], &[]).0, Tally::FAILED);
        assert_eq!(judge(&[("a@64", skipped.clone())], &["a@8"]).0, Tally::FAILED);
        assert_eq!(judge(&[("a", skipped)], &["a"]).0, Tally { skipped: 1, ..Tally::default() });
    }
}
