//! The figure by which locks are compared.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use flashlock_report::results::{Better, Metric};
use regex::Regex;

use super::contestant::Contestant;
use super::process::Finished;
use super::worker;
use crate::failure::Failure;

/// Names of metrics in result files.
pub(super) mod name {
    pub(crate) const SECONDS: &str = "seconds";
    pub(crate) const METRIC: &str = "metric";
    pub(crate) const OPERATIONS: &str = "ops_per_us";
    pub(crate) const FAIRNESS: &str = "fairness";
    pub(crate) const CPU: &str = "cpu_seconds";
    pub(crate) const VOLUNTARY: &str = "voluntary_switches";
    pub(crate) const INVOLUNTARY: &str = "involuntary_switches";
    pub(crate) const MEMORY: &str = "peak_rss_kib";
}

/// The source of the figure.
pub(super) enum Merit {
    /// The program's run time.
    RunTime,
    /// A number in the program's output.
    Printed { pattern: Regex, better: Better },
    /// The operations that the map's worker reports.
    Map,
}

/// What to do about a printed figure of 0.
pub(super) const ZERO: &str = "0 cannot be compared as a ratio; print more digits";
/// What to do if no operation of the map ended in time.
pub(super) const NO_OPERATION: &str =
    "0 cannot be compared as a ratio; the lock has collapsed, or the runs need a longer --time";

/// Why a successful run has no figure.
pub(super) enum NoFigure {
    /// The output has no match of the pattern.
    NotFound,
    /// Something else, in words.
    Bad(String),
}

impl Merit {
    /// A number that a program prints.
    pub(super) fn printed(pattern: &str, lower_is_better: bool) -> Result<Self, Failure> {
        let pattern = Regex::new(pattern).map_err(|error| {
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Failure::usage(format_args!("--metric '{pattern}' is not a regular expression: {reason}"))
        })?;
        Ok(Self::Printed { pattern, better: if lower_is_better { Better::Less } else { Better::More } })
    }

    /// All metrics of a run; the compared metric is the first.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let metric = |name: &str, title: &str, better| Metric { name: name.into(), title: title.into(), better };
        let less = |name: &str, title: &str| metric(name, title, Better::Less);
        let mut metrics = match self {
            Self::RunTime => vec![less(name::SECONDS, "Run time, s")],
            Self::Printed { pattern, better } => {
                vec![metric(name::METRIC, &format!("{pattern}"), *better), less(name::SECONDS, "Run time, s")]
            }
            Self::Map => vec![
                metric(name::OPERATIONS, "Operations per µs", Better::More),
                less(name::FAIRNESS, "Share of the operations that the busier half of the threads made (0.5 is fair)"),
            ],
        };
        metrics.extend([
            less(name::CPU, "CPU time, s"),
            less(name::VOLUNTARY, "Voluntary context switches"),
            less(name::INVOLUNTARY, "Involuntary context switches"),
            less(name::MEMORY, "Peak memory of the largest process, KiB"),
        ]);
        metrics
    }

    /// The figures of a successful run that was meant to use this contestant.
    pub(super) fn figures(&self, run: &Finished, meant: &Contestant) -> Result<BTreeMap<String, f64>, NoFigure> {
        let took = &run.resources;
        let mut figures = BTreeMap::from([
            (name::CPU, (took.user + took.system).as_secs_f64()),
            (name::VOLUNTARY, took.voluntary_switches as f64),
            (name::INVOLUNTARY, took.involuntary_switches as f64),
        ]);
        if let Some(memory) = run.peak_rss_kib {
            figures.insert(name::MEMORY, memory as f64);
        }
        match self {
            Self::RunTime => {
                figures.insert(name::SECONDS, took.elapsed.as_secs_f64());
            }
            Self::Printed { pattern, .. } => {
                figures.insert(name::SECONDS, took.elapsed.as_secs_f64());
                figures.insert(name::METRIC, printed(pattern, run)?);
            }
            Self::Map => {
                let sample = worker::Sample::read(&run.stdout, meant).map_err(NoFigure::Bad)?;
                figures.insert(name::OPERATIONS, sample.ops_per_us());
                figures.insert(name::FAIRNESS, sample.fairness);
            }
        }
        Ok(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Whether these figures cannot be compared, because the compared one is 0.
    pub(super) fn is_zero(&self, figures: &BTreeMap<String, f64>) -> bool {
        let name = match self {
            Self::RunTime => return false,
            Self::Printed { .. } => name::METRIC,
            Self::Map => name::OPERATIONS,
        };
        figures.get(name).is_some_and(|figure| *figure == 0.0)
    }

    /// Whether it is the program's run time: then its start counts as well.
    pub(super) fn is_run_time(&self) -> bool {
        matches!(self, Self::RunTime)
    }

    /// Words for a ratio: what a lock did so many times, and what that is compared with: `ran`, `as fast as with`.
    pub(super) fn did(&self) -> [&'static str; 2] {
        match self {
            Self::RunTime => ["ran", "as fast as with"],
            Self::Printed { .. } => ["was", "as good as with"],
            Self::Map => ["completed", "as many operations as with"],
        }
    }
}

/// The number in the last match.
fn printed(pattern: &Regex, run: &Finished) -> Result<f64, NoFigure> {
    let last = |text: &'_ str| {
        let found = pattern.captures_iter(text).last()?;
        found.get(1).or_else(|| found.get(0)).map(|number| number.as_str().to_owned())
    };
    let found = last(&run.stdout).or_else(|| last(&run.stderr)).ok_or(NoFigure::NotFound)?;
    match number(found.trim()) {
        // 0 is a figure, but in no ratio. Without its sign, because -0 would be shown.
        Some(number) if number.is_finite() && number >= 0.0 => Ok(number.abs()),
        Some(_) => Err(NoFigure::Bad(format!("the metric is '{found}', but only positive numbers can be compared"))),
        None => Err(NoFigure::Bad(format!(
            "the metric is '{found}', which is not a number (the decimal point is '.'; ',' and '_' may group three \
             digits)"
        ))),
    }
}

/// Parses a number, whose digits may be in groups of three. Other commas may be decimal points, and dropping one would
/// change the number.
fn number(text: &str) -> Option<f64> {
    static GROUPED: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^[+-]?[0-9]{1,3}((,[0-9]{3})+|(_[0-9]{3})+|('[0-9]{3})+)(\.[0-9]+)?$").ok());
    if GROUPED.as_ref().is_some_and(|grouped| grouped.is_match(text)) {
        return text.replace([',', '_', '\''], "").parse().ok();
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, stdout: &str, stderr: &str) -> Result<f64, String> {
        let run = Finished { stdout: stdout.into(), stderr: stderr.into(), ..Finished::default() };
        printed(&Regex::new(pattern).unwrap(), &run).map_err(|none| match none {
            NoFigure::NotFound => "not found".into(),
            NoFigure::Bad(what) => what,
        })
    }

    #[test]
    fn the_last_match_counts_and_its_first_group() {
        assert_eq!(found(r"ops: ([\d.]+)", "ops: 1.5 ops: 2.5\n", "ops: 9"), Ok(2.5));
        assert_eq!(found(r"\d+", "none", "in 17 s"), Ok(17.0));
        assert_eq!(found(r"= (.*)", "= 1,234,567\n", ""), Ok(1_234_567.0));
    }

    #[test]
    fn only_groups_of_three_digits_are_joined() {
        for (text, value) in [("1_234.5", 1234.5), ("12'345", 12345.0), ("0.25", 0.25), ("1e3", 1000.0)] {
            assert_eq!(number(text), Some(value), "{text}");
        }
        for text in ["9,5", "1,23", "1234,567", "1,234_567", "1,2345", ",123", "1,234,", "0.1,000"] {
            assert_eq!(number(text), None, "{text}");
        }
        assert!(found("= (.*)", "= 9,5", "").unwrap_err().contains("'9,5', which is not a number (the decimal point"));
    }

    #[test]
    fn what_is_no_figure_is_said() {
        assert_eq!(found("x", "", ""), Err("not found".into()));
        assert!(found("n=(.*)", "n=many", "").unwrap_err().contains("'many', which is not a number"));
        assert!(found("n=(.*)", "n=-1", "").unwrap_err().contains("only positive numbers"));
        assert_eq!(found("n=(.*)", "n=0.00", ""), Ok(0.0));
        assert!(
            Merit::printed("(", false).is_err_and(|failure| failure.to_string().contains("not a regular expression"))
        );
    }
}
