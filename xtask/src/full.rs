//! `cargo xtask full`: everything that is exhaustive. `.ci/run` has no time for it: of what it leaves out it runs
//! samples.
//!
//! Programs find `FLASHLOCK_FULL=1` in their environment: with it the model tests have wider bounds, and the
//! conformance program tries more pairs of instructions. `docs/promises.md` says which it still leaves out, and why.

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::child;
use crate::steps::{Steps, Tally};
use crate::{apps, conformance, glibc, mallocs, miri, options, packages, speed, test, torture};

/// What can be run alone.
struct Part {
    name: &'static str,
    about: &'static str,
    /// What it may take on two quiet CPUs, in minutes.
    minutes: u32,
    run: fn() -> Result<Tally>,
}

const PARTS: [Part; 11] = [
    Part { name: "models", about: "the model tests, without the bounds of .ci/run", minutes: 60, run: test::models },
    Part {
        name: "simulator",
        about: "the simulated torture with every lock on every machine, and the claims with every plan for every lock",
        minutes: 10,
        run: test::simulated,
    },
    Part {
        name: "conformance",
        about: "every check under every lock, at length, including the known exceptions of locks and of glibc; an hour \
                for each lock are pairs of stopped threads",
        minutes: 1800,
        run: || conformance::run(&conformance::Options::exhaustive()),
    },
    Part {
        name: "torture",
        about: "every scenario under every lock with 1, 2, 8 and 64 threads, for a second each",
        minutes: 75,
        run: || torture::run(&torture::Options::exhaustive()),
    },
    Part {
        name: "options",
        about: "all checks of `cargo xtask options` under all its choices",
        minutes: 10,
        run: || options::run(options::Extent::Full),
    },
    Part {
        name: "mallocs",
        about: "other allocators, under all principal locks",
        minutes: 5,
        run: || mallocs::run(&mallocs::Options::default()),
    },
    Part { name: "miri", about: "every lock under Miri, with 16 seeds", minutes: 20, run: miri::run },
    Part {
        name: "glibc",
        about: "four other versions of glibc, both suites, under flash, tas, futex, mcs and shfl",
        minutes: 30,
        run: || glibc::run(&glibc::Options::under(&["flash", "tas", "futex", "mcs", "shfl"])),
    },
    Part {
        name: "apps",
        about: "all real programs (cargo xtask setup --apps), with 2, 8 and 32 threads, under the default lock, cna \
                and mcscr",
        minutes: 15,
        run: || apps::run(&apps::Options::all()),
    },
    Part {
        name: "speed",
        about: "the simulator makes two million steps in a second of CPU time, in all workloads on all machines",
        minutes: 5,
        run: || speed::run(&speed::Options::with_floor(2.0)).map(|()| Tally::PASSED),
    },
    Part {
        name: "packages",
        about: "all ways of installing; two builds for distribution must have the same bytes",
        minutes: 15,
        run: || packages::trial::run(&packages::trial::Options::WHOLE),
    },
];

/// The parts and their budgets, for the help.
fn budget() -> String {
    let line = |part: &Part| format!("  {:<12} {:>3} min  {}\n", part.name, part.minutes, part.about);
    let parts: String = PARTS.iter().map(line).collect();
    format!(
        "The parts, and the time that each may take on two quiet CPUs ({} in all):\n{parts}",
        hours(&PARTS.iter().collect::<Vec<_>>())
    )
}

/// What some parts may take together.
fn hours(parts: &[&Part]) -> String {
    let minutes: u32 = parts.iter().map(|part| part.minutes).sum();
    if minutes < 60 { format!("{minutes} min") } else { format!("{} h {} min", minutes / 60, minutes % 60) }
}

#[derive(Args)]
#[command(after_help = budget())]
pub(crate) struct Options {
    /// Run only these parts
    #[arg(value_name = "PART", value_parser = PossibleValuesParser::new(PARTS.iter().map(|part| part.name)))]
    only: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<Tally> {
    let is_meant = |part: &&Part| options.only.is_empty() || options.only.iter().any(|name| name == part.name);
    let parts: Vec<&Part> = PARTS.iter().filter(is_meant).collect();
    println!("{} parts, up to {} on two quiet CPUs", parts.len(), hours(&parts));
    child::be_exhaustive();
    let mut steps = Steps::default();
    for part in parts {
        println!("{}: {} (up to {} min)", part.name, part.about, part.minutes);
        steps.run(part.name, part.run);
    }
    Ok(steps.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_states_the_budget() {
        let help = budget();
        assert!(PARTS.iter().all(|part| help.contains(part.name)), "{help}");
        assert_eq!(hours(&[&PARTS[0], &PARTS[1]]), "1 h 10 min");
        assert_eq!(hours(&[&PARTS[5]]), "5 min");
    }
}
