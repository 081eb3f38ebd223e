//! `flashlock run` without a program: one hot mutex under glibc and under the chosen lock, on this machine.
//!
//! Each measurement is a process of its own ([`worker`]), so that the one runs with nothing preloaded. The two sides alternate,
//! and what is compared are neighbours: what disturbs the machine for a while disturbs both.

mod text;
pub(crate) mod worker;

use std::process::Command;

use flashlock_native::{settings, stats};
use flashlock_report::machine::Machine;
use flashlock_report::provenance::Provenance;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;
use crate::lock_choice::{LockChoice, imagined_topology};
use crate::{preload, screen};
use worker::Sample;

/// The name of the result's schema.
const SCHEMA: &str = "flashlock.demo";
/// The version of the result's schema.
const VERSION: u32 = 1;
/// How many pairs are measured.
const PAIRS: usize = 3;
/// Pairs must differ by this much, all of them, before a difference is spoken of.
const NOISE: f64 = 0.05;

/// Options of the demonstration.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Threads that want the mutex; by default four times the usable CPUs, at least 8
    #[arg(long, value_name = "N", conflicts_with = "command", value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,

    /// Seconds of measuring in all
    #[arg(long, value_name = "S", conflicts_with = "command", default_value_t = 6.0, value_parser = seconds)]
    seconds: f64,

    /// Print the result as JSON
    #[arg(long, conflicts_with = "command")]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be a number of seconds from 0.1 to 3600".into()),
    }
}

/// What was measured, and what it comes to.
#[derive(Serialize)]
struct Demo {
    #[serde(flatten)]
    provenance: Provenance,
    threads: u32,
    sides: [Side; 2],
    /// Of each pair, the lock's operations for one of glibc's.
    ratios: Vec<f64>,
    verdict: Verdict,
}

/// All measurements under one lock, and their medians.
#[derive(Serialize)]
struct Side {
    lock: String,
    ops_per_ms: f64,
    longest_wait_ns: u64,
    context_switches: u64,
    cpu_ns: u64,
    samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    More,
    Less,
    NoDifference,
}

/// Measures, and shows.
pub(crate) fn run(options: &Options, lock: &LockChoice) -> Result<u8, Failure> {
    let library = preload::find()?;
    let threads = options.threads.unwrap_or_else(|| (4 * flashlock_native::sys::usable_cpus()).max(8));
    let millis = ((options.seconds * 1000.0) / (2 * PAIRS) as f64).ceil() as u64;
    let measure = |glibc: bool| {
        let mut command = worker::command(threads, millis)?;
        let existing = std::env::var_os(preload::LD_PRELOAD);
        let value = preload::without_ours(existing.as_deref());
        command.env_remove(stats::ENV);
        if glibc {
            command.env_remove(settings::ENV).env(preload::LD_PRELOAD, value);
        } else {
            command.env(settings::ENV, &lock.text).env(preload::LD_PRELOAD, preload::prepend(&library, Some(&value)));
        }
        one(&mut command, glibc)
    };
    let progress = progress_bar();
    let (mut glibc, mut ours) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        // The order alternates, so that a drift favours neither.
        for turn in 0..2 {
            let is_glibc = (pair + turn) % 2 == 0;
            progress.set_message(if is_glibc { "glibc's mutex".to_owned() } else { lock.text.clone() });
            let sample = measure(is_glibc).inspect_err(|_| progress.finish_and_clear())?;
            if is_glibc { &mut glibc } else { &mut ours }.push(sample);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let ratios: Vec<f64> =
        ours.iter().zip(&glibc).map(|(ours, glibc)| ours.ops_per_ms() / glibc.ops_per_ms()).collect();
    let command = ["flashlock", "run"].map(str::to_owned).to_vec();
    let demo = Demo {
        provenance: Provenance::now(SCHEMA, VERSION, command, Machine::here(imagined_topology()?)),
        threads,
        verdict: Verdict::of(&ratios),
        ratios,
        sides: [Side::new("glibc", glibc), Side::new(&lock.text, ours)],
    };
    if options.json {
        let json = serde_json::to_string_pretty(&demo).map_err(Failure::new)?;
        screen::emit(&format!("{json}\n"))?;
    } else {
        screen::emit(&text::render(&demo, screen::width(libc::STDOUT_FILENO)))?;
    }
    Ok(0)
}

/// One measurement, checked: that it ran under what it should have run under, and that the lock excluded.
fn one(command: &mut Command, glibc: bool) -> Result<Sample, Failure> {
    let sample = worker::measure(command)?;
    let ours = preload::is_ours(std::ffi::OsStr::new(&sample.provider));
    if ours == glibc {
        return Err(Failure::new(format_args!(
            "the demonstration ran with the locks of {}, which was not intended; ask: flashlock doctor",
            sample.provider
        )));
    }
    if sample.operations != sample.counted {
        return Err(Failure::new(format_args!(
            "{} operations under {} left a counter at {}: the lock failed to exclude; please report this",
            sample.operations, sample.provider, sample.counted
        )));
    }
    Ok(sample)
}

fn progress_bar() -> ProgressBar {
    let progress = ProgressBar::new(2 * PAIRS as u64);
    if let Ok(style) = ProgressStyle::with_template("measuring {bar:24} {pos}/{len}  {msg}") {
        progress.set_style(style);
    }
    progress.set_position(0);
    progress
}

impl Side {
    fn new(lock: &str, samples: Vec<Sample>) -> Self {
        let median_of = |value: fn(&Sample) -> f64| median(samples.iter().map(value).collect());
        Self {
            lock: lock.to_owned(),
            ops_per_ms: median_of(Sample::ops_per_ms),
            longest_wait_ns: median_of(|sample| sample.longest_wait_ns as f64) as u64,
            context_switches: median_of(|sample| (sample.voluntary_switches + sample.involuntary_switches) as f64)
                as u64,
            cpu_ns: median_of(|sample| (sample.user_ns + sample.system_ns) as f64) as u64,
            samples,
        }
    }
}

impl Verdict {
    /// A difference is one that every pair shows.
    fn of(ratios: &[f64]) -> Self {
        if ratios.iter().all(|&ratio| ratio > 1.0 + NOISE) {
            Self::More
        } else if ratios.iter().all(|&ratio| ratio < 1.0 - NOISE) {
            Self::Less
        } else {
            Self::NoDifference
        }
    }
}

/// The median; of an even number, the upper one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_one_that_every_pair_shows() {
        assert_eq!(Verdict::of(&[1.2, 1.06, 2.0]), Verdict::More);
        assert_eq!(Verdict::of(&[0.5, 0.9, 0.94]), Verdict::Less);
        assert_eq!(Verdict::of(&[1.2, 0.99, 1.3]), Verdict::NoDifference);
        assert_eq!(Verdict::of(&[1.04, 1.2, 1.3]), Verdict::NoDifference);
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![]), 0.0);
    }

    #[test]
    fn seconds_are_bounded() {
        assert!(seconds("2.5").is_ok() && seconds("0").is_err() && seconds("NaN").is_err() && seconds("x").is_err());
    }
}
