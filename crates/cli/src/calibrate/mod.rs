//! `flashlock calibrate`: measures the machine that it runs on, and describes it for the simulation.
//!
//! | module | holds |
//! |---|---|
//! | [`shape`] | nodes, cores and caches, from `/sys` |
//! | [`lines`], [`own`], [`pairs`] | cache lines, what one CPU measures with them, and what two |
//! | [`kernel`] | calls, wake-ups, switches, sleeps |
//! | [`measure`] | all of it, in order, into a description |
//! | [`plausible`] | what cannot be true of a machine |
//! | [`sheet`] | what was measured, how, and what was not |
//! | [`cpu`] | threads that stay where they are put |
//!
//! Figures are medians: on a machine that others use, too, means say more about the others.

mod cpu;
mod kernel;
mod lines;
mod measure;
mod own;
mod pairs;
mod plausible;
mod shape;
mod sheet;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flashlock_native::topology::Topology;
use flashlock_report::date;
use flashlock_report::machine::Machine;
use flashlock_report::table;
use flashlock_sim::Description;

use crate::failure::Failure;
use crate::screen;
use measure::Session;

const EXAMPLES: &str = "\
Examples:
  flashlock calibrate -o here.toml         measure, and keep the description
  flashlock calibrate --quick > here.toml  roughly, in a few seconds
      without -o the description is printed

Let nothing else run meanwhile. Needs no root; a CPU that this process may not
use is not measured. The file says when it was measured, and which numbers are
another machine's because they could not be. What cannot be true is measured
again, and if it stays so, a warning says what. It is text: what you know
better, write into it.

Exit status: 0 measured, 1 the file exists or cannot be written, 2 wrong usage.";

/// Whose numbers stand for what is not measured.
const DEFAULTS: &str = "2x26x2";

/// How often the screen shows that it goes on.
const TICK: Duration = Duration::from_millis(250);

/// Measure this machine, for the simulation
///
/// Describes this machine as the simulation needs it: its shape and caches, what loads, stores, atomic operations and lines that
/// travel between CPUs take, what the system takes to wake, switch and sleep. Takes half a minute, and some minutes with hundreds
/// of CPUs: lines are carried between each pair of them.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Write the description into this file, and print what was measured and how
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    force: bool,

    /// Fewer repetitions, a sample of the pairs of CPUs: rougher, and done in a few seconds
    #[arg(long)]
    quick: bool,
}

/// How much is done for a figure.
#[derive(Clone, Copy, Debug)]
struct Effort {
    quick: bool,
}

impl Effort {
    /// Of what one CPU measures.
    fn repetitions(self) -> usize {
        if self.quick { 5 } else { 15 }
    }

    /// In each of these.
    fn steps(self) -> usize {
        if self.quick { 1 << 15 } else { 1 << 18 }
    }

    /// In which two threads take turns.
    fn rounds(self) -> u32 {
        if self.quick { 20 } else { 200 }
    }

    /// At most so many pairs of CPUs of each distance.
    fn pairs(self) -> usize {
        if self.quick { 2 } else { usize::MAX }
    }

    /// Rounds for each of so many pairs of CPUs: fewer where pairs are very many, so that it takes minutes and not hours.
    fn rounds_of(self, pairs: usize) -> u32 {
        /// A median of fewer says little.
        const FEWEST: u32 = 5;
        /// With so many pairs each can have all rounds.
        const MANY: usize = 1000;
        let share = self.rounds() as usize * MANY / pairs.max(1);
        u32::try_from(share).unwrap_or(u32::MAX).clamp(FEWEST, self.rounds())
    }

    /// How long time slices are watched.
    fn slices(self) -> Duration {
        Duration::from_millis(if self.quick { 100 } else { 500 })
    }

    /// So many bytes to measure the memory behind a last level of so many; `None` if that would be too much to ask for.
    fn memory(self, llc: usize) -> Option<usize> {
        let most = if self.quick { 256 << 20 } else { 4 << 30 };
        let bytes = (4 * llc).min(most).min(measure::free_memory()? / 4);
        (bytes >= 2 * llc).then_some(bytes)
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    if let Some(file) = &args.output {
        check(file, args.force)?;
    }
    let machine = Topology::read();
    let mut session = Session::new(Effort { quick: args.quick }, &machine)?;
    session.run();
    let Session { mut found, mut sheet, .. } = session;
    let described = Machine::from(&machine);
    for doubt in plausible::doubts(&found) {
        screen::complain(Some("warning"), &format!("implausible: {doubt}; let nothing else run, and measure again"));
        sheet.remarks.push(format!("implausible: {doubt}"));
    }
    found.name = name(args.output.as_deref());
    found.title = described.to_string();
    let how = if args.quick { "calibrate --quick" } else { "calibrate" };
    let (version, date) = (env!("CARGO_PKG_VERSION"), date::now());
    let source = format!("Measured by flashlock {version} ({how}) on {date}. {}", sheet.source(DEFAULTS));
    found.source = table::paragraph(&source, 120);
    let text = found.text();
    // A description that cannot be read back must not be kept.
    Description::parse(&text)
        .map_err(|error| Failure::new(format_args!("this machine cannot be simulated: {error}")))?;
    match &args.output {
        Some(file) => {
            write(file, args.force, &text)?;
            screen::emit(&sheet.text(&found.title, DEFAULTS, screen::width(libc::STDOUT_FILENO)))?;
        }
        None => {
            screen::tell(&sheet.text(&found.title, DEFAULTS, screen::width(libc::STDERR_FILENO)));
            screen::emit(&text)?;
        }
    }
    Ok(0)
}

/// The file's name as a word; else what it is.
fn name(file: Option<&Path>) -> String {
    let stem = file.and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
    let word: String = stem.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join("-");
    if word.is_empty() { "here".to_owned() } else { word }
}

/// Finds out before the work whether the file can be written, and leaves things as they are.
fn check(file: &Path, force: bool) -> Result<(), Failure> {
    let existed = file.exists();
    open(file, force, false).map_err(|error| refused(file, &error))?;
    if !existed {
        // What cannot be removed is empty, and written later.
        let _ = fs::remove_file(file);
    }
    Ok(())
}

fn write(file: &Path, force: bool, text: &str) -> Result<(), Failure> {
    let write = || open(file, force, true)?.write_all(text.as_bytes());
    write().map_err(|error| refused(file, &error))
}

fn open(file: &Path, force: bool, truncate: bool) -> io::Result<File> {
    OpenOptions::new().write(true).create(force).create_new(!force).truncate(truncate).open(file)
}

fn refused(file: &Path, error: &io::Error) -> Failure {
    let file = file.display();
    match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::new(format_args!("'{file}' exists; --force replaces it")),
        _ => Failure::new(format_args!("cannot write '{file}': {}", screen::reason(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_give_names() {
        assert_eq!(name(Some(Path::new("/tmp/my machine.toml"))), "my-machine");
        assert_eq!((name(None), name(Some(Path::new("..")))), ("here".into(), "here".into()));
    }

    #[test]
    fn very_many_pairs_share_the_rounds() {
        let all = Effort { quick: false };
        assert_eq!([0, 1, 1000, 2000, 1_000_000].map(|pairs| all.rounds_of(pairs)), [200, 200, 200, 100, 5]);
        assert_eq!(Effort { quick: true }.rounds_of(2), 20);
    }

    #[test]
    fn memory_is_measured_only_if_there_is_enough() {
        let quick = Effort { quick: true };
        assert_eq!(quick.memory(480 << 20), None);
        assert!(quick.memory(1 << 20).is_none_or(|bytes| bytes >= 2 << 20));
    }
}
