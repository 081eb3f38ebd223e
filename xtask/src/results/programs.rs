//! What `flashlock compare` says of several programs, in one file: `programs`, `leveldb` and `kyoto`.
//!
//! The programs and their settings are the scripts in `tests/apps/compare` and the drivers in `tests/apps`, so that
//! anybody can compare them alone.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use flashlock_report::results::{Noise, Results};

use super::origin;
use crate::child::Program;
use crate::workspace;

/// How long one comparison may take: a strict lock is slow, and each run may take long without hanging.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

/// One results file.
pub(crate) struct Study {
    /// The argument of `cargo xtask results`, and the file's name.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: String,
    /// Numbers of threads: few, and fixed.
    pub(crate) threads: &'static str,
    /// How long each run measures, if that is chosen and not the program's affair.
    pub(crate) seconds: Option<f64>,
    pub(crate) subjects: Vec<Subject>,
}

/// A program to choose a lock for.
pub(crate) struct Subject {
    pub(crate) title: &'static str,
    /// Its command line, in which `{threads}` stands for their number.
    pub(crate) command: Vec<OsString>,
    /// The number that it prints, if its run time is not what counts: what it is called in the file, what it is, where
    /// it stands.
    pub(crate) metric: Option<[&'static str; 3]>,
}

/// A script of `tests/apps/compare`.
pub(crate) fn script(name: &str) -> Result<OsString> {
    Ok(workspace::require(workspace::path("tests/apps/compare").join(name), "check it out")?.into())
}

/// Compares all programs of a study under these locks, each so many times.
pub(crate) fn measure(study: &Study, locks: &[String], runs: u32, command: Vec<String>) -> Result<Results> {
    let flashlock = workspace::command()?;
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut all = Results {
        provenance: origin::now(command)?,
        name: study.name.to_owned(),
        title: study.title.to_owned(),
        about: study.about.clone(),
        ..Results::default()
    };
    for subject in &study.subjects {
        eprintln!("{}", subject.title);
        let compared = compare(
            &flashlock,
            study,
            subject,
            &["--locks", &locks.join(","), "--runs", &runs.to_string(), "--seed", &seed.to_string()],
        )?;
        join(&mut all, compared);
    }
    all.method.seconds = study.seconds;
    Ok(all)
}

/// What `flashlock compare` says of one program.
fn compare(flashlock: &Path, study: &Study, subject: &Subject, how: &[&str]) -> Result<Results> {
    let mut command = Command::new(flashlock);
    command.args(["compare", "--json", "--threads", study.threads]).args(how);
    if let Some([_, _, pattern]) = subject.metric {
        command.args(["--metric", pattern]);
    }
    command.arg("--").args(&subject.command);
    let done = Program::new(command, LIMIT).run()?;
    // 3: no lock differed measurably from another, or it works under none; the figures are a result.
    if !matches!(done.status.and_then(|status| status.code()), Some(0 | 3)) {
        bail!("{}", done.transcript());
    }
    Ok(renamed(origin::results_in(&done.stdout)?, subject))
}

/// The same under the program's own names instead of the command's.
fn renamed(mut results: Results, subject: &Subject) -> Results {
    /// What `flashlock compare` calls the number that `--metric` finds.
    const FOUND: &str = "metric";
    let verdicts = std::mem::take(&mut results.verdicts);
    results.verdicts = verdicts.into_values().map(|verdict| (subject.title.to_owned(), verdict)).collect();
    let [name, title, _] = subject.metric.unwrap_or([FOUND, "", ""]);
    for group in &mut results.groups {
        group.title = subject.title.to_owned();
        if group.merit == FOUND {
            group.merit = name.to_owned();
        }
    }
    for metric in results.metrics.iter_mut().filter(|metric| metric.name == FOUND) {
        (metric.name, metric.title) = (name.to_owned(), title.to_owned());
    }
    for point in &mut results.points {
        point.group = subject.title.to_owned();
        for run in &mut point.runs {
            if let Some(value) = run.values.remove(FOUND) {
                run.values.insert(name.to_owned(), value);
            }
        }
    }
    results.derive();
    results
}

/// Adds a program's results to those of the others.
fn join(all: &mut Results, one: Results) {
    for metric in one.metrics {
        if all.metric(&metric.name).is_none() {
            all.metrics.push(metric);
        }
    }
    all.locks = one.locks;
    all.method = one.method;
    // A reader wants to know how noisy it was at worst.
    let louder = |a: &Noise, b: &Noise| a.spread.total_cmp(&b.spread);
    all.noise = [all.noise, one.noise].into_iter().flatten().max_by(louder);
    all.groups.extend(one.groups);
    all.points.extend(one.points);
    all.verdicts.extend(one.verdicts);
}

#[cfg(test)]
mod tests {
    use flashlock_report::results::{Better, Group, Metric, Point, Run};

    use super::*;

    fn compared(metric: &str, better: Better) -> Results {
        let run = Run { round: 0, values: [(metric.to_owned(), 2.0)].into() };
        let mut results = Results {
            metrics: vec![Metric { name: metric.into(), title: "x".into(), better }],
            groups: vec![Group {
                title: "sh".into(),
                axis: "threads".into(),
                cells: vec!["2".into()],
                merit: metric.into(),
            }],
            locks: vec!["glibc".into()],
            points: vec![Point {
                group: "sh".into(),
                cell: "2".into(),
                lock: "glibc".into(),
                runs: vec![run],
                ..Point::default()
            }],
            ..Results::default()
        };
        results.judge();
        results
    }

    fn subject(title: &'static str, metric: Option<[&'static str; 3]>) -> Subject {
        Subject { title, command: Vec::new(), metric }
    }

    #[test]
    fn programs_keep_their_own_figures_side_by_side() {
        let mut all = Results::default();
        let reads = Some(["reads_per_second", "Reads per second", "([0-9]+)"]);
        join(&mut all, renamed(compared("seconds", Better::Less), &subject("one", None)));
        join(&mut all, renamed(compared("metric", Better::More), &subject("other", reads)));
        let merits: Vec<&str> = all.groups.iter().map(|group| group.merit.as_str()).collect();
        assert_eq!(merits, ["seconds", "reads_per_second"]);
        assert_eq!(all.figure("other", "2", "glibc", "reads_per_second").map(|spread| spread.median), Some(2.0));
        assert_eq!((all.metrics.len(), all.points.len(), all.verdicts.len()), (2, 2, 2));
    }
}
