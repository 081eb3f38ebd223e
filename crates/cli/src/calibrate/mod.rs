//! `flashlock calibrate`: measures this machine, and describes it for the simulation.
//!
//! | module | holds |
//! |---|---|
//! | [`shape`] | nodes, cores and caches, from `/sys` |
//! | [`costs`](flashlock_measure::costs) | the measurements of one CPU, of two CPUs, and of the kernel |
//! | [`measure`] | all measurements in order, into a description |
//! | [`distances`], [`system`] | the parts that depend on distance and on the operating system |
//! | [`delegation`] | from which contention on a server pays |
//! | [`plausible`], [`order`] | impossible figures; putting figures in order |
//! | [`sheet`], [`json`] | what was measured, how, and what was not: as text and as JSON |
//!
//! Figures are medians: on a shared machine, means mainly reflect the other users.

mod delegation;
mod distances;
mod json;
mod measure;
mod order;
mod plausible;
mod shape;
mod sheet;
mod system;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flashlock_measure::costs::effort::Effort;
use flashlock_native::topology::Topology;
use flashlock_report::date;
use flashlock_report::machine::Machine;
use flashlock_report::table;
use flashlock_sim::Description;

use crate::evidence::Evidence;
use crate::failure::Failure;
use crate::{output, screen};
use measure::Session;
use sheet::Sheet;

const EXAMPLES: &str = "\
Examples:
  flashlock calibrate -o here.toml         measure, and write the description
  flashlock calibrate --quick > here.toml  measure roughly, in a few seconds
  flashlock calibrate --json | jq '.figures[] | {what, value, unit}'
      the measured figures as JSON
  flashlock calibrate --evidence           the costs that guide the default lock
  flashlock calibrate --delegation > rcl.toml
      when a server pays; use the file with FLASHLOCK_RCL_CONFIG

Run nothing else meanwhile. Root is not needed. CPUs that this process may not
use are not measured. The description says when it was measured. It names the
figures that could not be measured here and come from another machine instead.
Implausible figures are measured again; if they stay implausible, a warning
names them. If a farther CPU seems a little nearer than a near one, its figure
is raised, and the description says so. The description is text: edit any value
that you know more precisely.

Exit status: 0 measured; 1 the file exists or cannot be written, or the machine
cannot be simulated as measured; 2 wrong usage.";

/// The machine whose values replace those that are not measured.
const DEFAULTS: &str = "2x26x2";

/// How often the screen is updated to show progress.
const TICK: Duration = Duration::from_millis(250);

/// Measure this machine, to simulate it
///
/// Writes a machine description for `flashlock simulate`: topology and caches; the cost of loads, stores, atomic
/// operations and transfers between CPUs; the cost of wake-ups, context switches and sleeps. This takes half a minute,
/// or some minutes with hundreds of CPUs, because each pair of CPUs is measured.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Write the description into this file, and print the figures and how they were measured
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    force: bool,

    /// Measure roughly, in a few seconds: fewer repetitions, and a sample of the pairs of CPUs
    #[arg(long)]
    quick: bool,

    /// Print the figures as JSON, including the description
    #[arg(long)]
    json: bool,

    /// Measure only the costs by which the default lock decides, and show them. This takes a moment
    #[arg(long, conflicts_with_all = ["output", "quick"])]
    evidence: bool,

    /// Measure only when it pays to run critical sections on a server (`rcl`), and print the table `[adaptive]` of its
    /// configuration file. This takes 20 seconds
    #[arg(long, conflicts_with_all = ["output", "evidence"])]
    delegation: bool,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    if args.evidence {
        let evidence = Evidence::measure();
        let text = if args.json { evidence.json()? } else { evidence.text(screen::width(libc::STDOUT_FILENO)) };
        return screen::emit(&text).map(|()| 0);
    }
    if args.delegation {
        return delegated(args);
    }
    if let Some(file) = &args.output {
        check(file, args.force)?;
    }
    let machine = Topology::read();
    let mut session = Session::new(Effort { quick: args.quick }, &machine)?;
    session.run();
    let Session { mut found, mut sheet, .. } = session;
    for doubt in plausible::doubts(&found, |what| sheet.has(what)) {
        screen::complain(Some("warning"), &format!("implausible: {doubt}; stop other programs, and measure again"));
        sheet.remark(format!("implausible: {doubt}"));
    }
    order::settle(&mut found, &Description::find(DEFAULTS).map_err(Failure::new)?, &mut sheet);
    found.name = name(args.output.as_deref());
    let machine = Machine::from(&machine);
    found.title = machine.to_string();
    let how = if args.quick { "calibrate --quick" } else { "calibrate" };
    let (version, date) = (env!("CARGO_PKG_VERSION"), date::now());
    let source = format!("Measured by flashlock {version} ({how}) on {date}. {}", sheet.source(DEFAULTS));
    found.source = table::paragraph(&source, 120);
    deliver(args, &machine, &found, &sheet).map(|()| 0)
}

/// Measures from which contention on a server pays.
fn delegated(args: &Args) -> Result<u8, Failure> {
    let machine = Machine::here(None);
    let found = delegation::Found::measure(Effort { quick: args.quick })?;
    if args.json {
        return screen::emit(&found.json(&machine, args.quick)?).map(|()| 0);
    }
    let how = if args.quick { "calibrate --delegation --quick" } else { "calibrate --delegation" };
    screen::tell(&found.text(&machine.to_string(), screen::width(libc::STDERR_FILENO)));
    screen::emit(&found.toml(&machine, how)?).map(|()| 0)
}

/// Shows the measurements first and then writes them: if writing fails, repeating them would take minutes.
fn deliver(args: &Args, machine: &Machine, found: &Description, sheet: &Sheet) -> Result<(), Failure> {
    let text = found.text();
    let evidence = Evidence::measure();
    let shown = |screen| match args.json {
        true => json::json(machine, args.quick, sheet, &evidence, &text),
        false => {
            let width = screen::width(screen);
            Ok(format!("{}\n{}", sheet.text(&found.title, DEFAULTS, width), evidence.text(width)))
        }
    };
    let kept = match &args.output {
        Some(file) => {
            let told = shown(libc::STDOUT_FILENO).and_then(|sheet| screen::emit(&sheet));
            let written = write(file, args.force, &text);
            if written.is_err() && !args.json {
                screen::emit(&format!("\n{text}"))?;
            }
            written.and(told)
        }
        // The description is in it.
        None if args.json => shown(libc::STDOUT_FILENO).and_then(|sheet| screen::emit(&sheet)),
        None => {
            screen::tell(&shown(libc::STDERR_FILENO)?);
            screen::emit(&text)
        }
    };
    let sound = Description::parse(&text).map(drop).map_err(|error| {
        Failure::new(format_args!(
            "this machine cannot be simulated as it was measured: {error}. The description was written; correct it \
             there"
        ))
    });
    kept.and(sound)
}

/// The file's name as one word, or a substitute.
fn name(file: Option<&Path>) -> String {
    let stem = file.and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
    let plain = stem.unwrap_or_default().replace(|c: char| c.is_control(), " ");
    let word = plain.split_whitespace().collect::<Vec<_>>().join("-");
    if word.is_empty() { "here".to_owned() } else { word }
}

/// Checks before the measurement whether the file can be written, and leaves everything as it was.
fn check(file: &Path, force: bool) -> Result<(), Failure> {
    let existed = file.exists();
    open(file, force, false).map_err(|error| refused(file, &error))?;
    if !existed {
        // If it cannot be removed, it is empty, and is written later.
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
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::new(format_args!("'{}' exists; use --force to replace it", file.display()))
        }
        _ => output::cannot_write(file, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minutes of measuring are not lost because of one impossible figure.
    #[test]
    fn what_cannot_be_simulated_is_written_all_the_same() {
        let file = std::env::temp_dir().join(format!("flashlock-calibrate-{}.toml", std::process::id()));
        let machine = Machine::default();
        let mut found = Description::find(DEFAULTS).unwrap();
        found.scheduler.slice_us = 0.25;
        let args = Args {
            output: Some(file.clone()),
            force: true,
            quick: true,
            json: false,
            evidence: false,
            delegation: false,
        };
        let failure = deliver(&args, &machine, &found, &Sheet::default()).unwrap_err().to_string();
        let text = fs::read_to_string(&file).unwrap();
        fs::remove_file(&file).unwrap();
        assert!(failure.contains("scheduler.slice_us = 0.25: slices are from 1 to"), "{failure}");
        assert_eq!(text, found.text());
        found.scheduler.slice_us = 1.0;
        assert!(deliver(&args, &machine, &found, &Sheet::default()).is_ok());
        fs::remove_file(&file).unwrap();
        let nowhere = Args { output: Some("/proc/nowhere".into()), ..args };
        assert!(
            deliver(&nowhere, &machine, &found, &Sheet::default()).unwrap_err().to_string().contains("/proc/nowhere")
        );
    }

    #[test]
    fn files_give_names() {
        assert_eq!(name(Some(Path::new("/tmp/my machine.toml"))), "my-machine");
        assert_eq!((name(None), name(Some(Path::new("..")))), ("here".into(), "here".into()));
    }
}
