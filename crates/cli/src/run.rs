//! `flashlock run`: runs a program with other locks.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use flashlock_native::settings;
use flashlock_native::stats::{self, Block};
use flashlock_report::machine::Machine;
use flashlock_report::provenance::Provenance;
use flashlock_report::run_stats::{self, Outcome, RunStats};

use crate::failure::Failure;
use crate::launch::{self, Ended, OWN_FAILURE, Program};
use crate::lock_choice::{LockNames, Locks, Under, imagined_topology};
use crate::symbols::Symbols;
use crate::usage::{ENVIRONMENT, LAST};
use crate::{compare, inspect, output, preload, screen, usage};

const EXAMPLES: &str = "\
Examples:
  flashlock run -- ./server --port 80             the default lock
  flashlock run --lock mcs:wait=park -- ./server  another lock, with an option
  flashlock run --stats -- ./server               glibc's locks, counted
  flashlock run --stats --lock flash -- ./server  flash, counted
  flashlock run --stats=json --stats-file s.json -- ./server
  flashlock locks                                 list the locks
  flashlock locks NAME                            the options of one
";
const DETAILS: &str = "\
What is replaced: pthread and C11 mutexes, condition variables, readers-writer
locks, spinlocks and unnamed semaphores, of the program and its libraries.
Robust, process-shared, priority-inheriting and priority-protected ones stay.

--stats counts under glibc's locks, which the program uses today. If fewer than
0.05 threads waited for a lock on average, no lock will help much. But glibc
hides waits for a mutex at the end of a condition wait: --lock flash shows them.
Counting makes a program that does little else than lock several times slower.

Without --stats, flashlock becomes the program (exec). With --stats, it forwards
signals to the program, and ends as the program ends, by a signal if need be.
";
const STATUS: &str = "\
Exit status: the program's; 2 wrong usage; 125 flashlock itself failed; 126 the
program cannot be executed; 127 it was not found. A demonstration: as 'compare'.";

/// Run a program with its pthread locks replaced
///
/// Runs a dynamically linked program. One of flashlock's locks replaces its pthread mutexes and condition variables.
/// The program is not changed. Programs that it starts get the same lock.
#[derive(clap::Args)]
#[command(after_help = after_help(), after_long_help = format!("{EXAMPLES}\n{DETAILS}\n{ENVIRONMENT}\n{STATUS}"))]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// The lock and its options; `glibc` keeps the program's own. By default FLASHLOCK. If that is not set: flash, or
    /// glibc with --stats if no readers-writer lock is named either
    #[arg(long, value_name = "NAME[:OPTION=VALUE,…]", value_parser = LockNames::MUTEXES, hide_possible_values = true)]
    lock: Option<String>,

    /// The same for readers-writer locks. By default FLASHLOCK_RW. If that is not set: cst-rw, or glibc if the mutexes
    /// are glibc's. Its options, except wait=, also apply to mutexes
    #[arg(long, value_name = "NAME[:OPTION=VALUE,…]", value_parser = LockNames::RW_LOCKS, hide_possible_values = true)]
    rw: Option<String>,

    /// Count what the locks do, and report it at the end: text goes to standard error, JSON to standard output
    #[arg(long, value_name = "text|json", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    #[arg(requires = "command", hide_possible_values = true)]
    stats: Option<Format>,

    /// Write the report to this file
    #[arg(long, value_name = "FILE", requires = "command")]
    stats_file: Option<PathBuf>,

    /// The program and its arguments; without it, a demonstration of a few seconds runs: a map under this lock and
    /// under glibc's
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    #[arg(value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,

    /// Print help
    #[arg(short, long, action = clap::ArgAction::HelpShort, display_order = LAST + 1)]
    help: Option<bool>,
}

/// The end of what `--help` shows: two screens of 24 lines hold it. The man page and the reference have the rest.
fn after_help() -> String {
    format!(
        "{EXAMPLES}\nWhat is replaced, what --stats counts, variables: man flashlock-run, or\n{}\n\n{STATUS}",
        usage::page("cli/reference/flashlock-run.md")
    )
}

/// How statistics are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// What is prepared before a counted program starts.
struct Counting {
    block: &'static Block,
    /// The program inherits it.
    _descriptor: OwnedFd,
    format: Format,
    file: Option<(PathBuf, File)>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let locks = Locks::find(args.lock.as_deref(), args.rw.as_deref(), args.counts())?;
    let imagined = imagined_topology()?;
    if args.command.is_empty() {
        return match &locks.mutex {
            Under::Ours(lock) => compare::demonstrate(lock),
            Under::Glibc => Err(Failure::usage(
                "the demonstration compares a lock with glibc's: name another lock with --lock, or name a program",
            )),
        };
    }
    let library = preload::find().map_err(|failure| failure.with_code(OWN_FAILURE))?;
    let program = Program::new(&args.command)?;
    let inspected = inspect::program(program.name())?;
    inspected.warn();
    set_environment(Some(&library).filter(|_| !inspected.inspection.is_musl), &locks);
    let Some(counting) = Counting::prepare(args)? else {
        return Err(program.cannot_run(&program.exec()));
    };
    let ended = launch::supervise(&program)?;
    let command = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let provenance = Provenance::now(run_stats::SCHEMA, run_stats::VERSION, command, Machine::here(imagined));
    let objects = Symbols::new(counting.block.modules()).name(&counting.block.objects());
    let totals = counting.block.totals();
    let stats = RunStats::new(provenance, locks.described(), outcome(&ended), resources(&ended), &totals, objects);
    if let Err(failure) = counting.report(&stats) {
        // The program's exit status is what matters to the caller.
        screen::report(&failure);
    }
    Ok(ended.imitate())
}

/// Configures the dynamic linker and the library, if the library is to be loaded.
fn set_environment(library: Option<&PathBuf>, locks: &Locks) {
    let before = std::env::var_os(preload::LD_PRELOAD);
    let value = match library {
        Some(library) => preload::prepend(library, before.as_deref()),
        None => preload::without_ours(before.as_deref()),
    };
    let (asan, options) = preload::asan_options();
    // SAFETY: this process has one thread.
    unsafe {
        std::env::set_var(preload::LD_PRELOAD, value);
        std::env::set_var(asan, options);
        std::env::set_var(settings::ENV, locks.mutex.text());
        std::env::set_var(settings::ENV_RW, locks.rw.text());
    }
}

impl Args {
    /// Whether the program is counted.
    fn counts(&self) -> bool {
        self.stats.is_some() || self.stats_file.is_some()
    }
}

impl Counting {
    /// Makes the shared counters and the report's file, so that errors appear before the program runs.
    fn prepare(args: &Args) -> Result<Option<Self>, Failure> {
        let format = match (args.stats, &args.stats_file) {
            (Some(format), _) => format,
            (None, Some(_)) => Format::Text,
            (None, None) => return Ok(None),
        };
        let own = |what: String| Failure::new(what).with_code(OWN_FAILURE);
        let file = match &args.stats_file {
            Some(path) => {
                let refused = |error| output::cannot_write(path, &error).with_code(OWN_FAILURE);
                let file = File::create(path).map_err(refused)?;
                Some((path.clone(), file))
            }
            None => None,
        };
        let (descriptor, block) = Block::create().map_err(|error| {
            own(format!("cannot create shared counters: {}; run without --stats", screen::reason(&error)))
        })?;
        let descriptor = out_of_the_way(descriptor);
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var(stats::ENV, descriptor.as_raw_fd().to_string()) };
        Ok(Some(Self { block, _descriptor: descriptor, format, file }))
    }

    fn report(&self, stats: &RunStats) -> Result<(), Failure> {
        let text = match (self.format, &self.file) {
            (Format::Json, _) => stats.json(),
            (Format::Text, Some(_)) => run_stats::render(stats, flashlock_report::table::WIDTH),
            (Format::Text, None) => format!("\n{}", run_stats::render(stats, screen::width(libc::STDERR_FILENO))),
        };
        if self.format == Format::Json && stats.processes == 0 {
            // Otherwise its zeros would look like a result.
            screen::tell(&run_stats::render(stats, screen::width(libc::STDERR_FILENO)));
        }
        match (&self.file, self.format) {
            (Some((path, file)), _) => {
                (&*file).write_all(text.as_bytes()).map_err(|error| output::cannot_write(path, &error))
            }
            (None, Format::Json) => screen::emit(&text),
            (None, Format::Text) => {
                screen::tell(&text);
                Ok(())
            }
        }
    }
}

/// Moves the descriptor to a number that programs hardly use themselves. A shell script's `exec 3>file` would take a
/// low number.
fn out_of_the_way(descriptor: OwnedFd) -> OwnedFd {
    const HIGH: libc::c_int = 700;
    // SAFETY: duplicates a descriptor that this process owns; it is inherited like the first.
    let high = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD, HIGH) };
    if high < 0 {
        return descriptor;
    }
    // SAFETY: it was made just now.
    unsafe { OwnedFd::from_raw_fd(high) }
}

fn outcome(ended: &Ended) -> Outcome {
    match ended.how() {
        Ok(status) => Outcome::Exited { status },
        Err(signal) => Outcome::Signalled { signal, name: launch::signal_name(signal) },
    }
}

fn resources(ended: &Ended) -> run_stats::Resources {
    let ns = |time: Duration| time.as_nanos() as u64;
    let took = &ended.resources;
    run_stats::Resources {
        elapsed_ns: ns(took.elapsed),
        user_ns: ns(took.user),
        system_ns: ns(took.system),
        voluntary_switches: took.voluntary_switches,
        involuntary_switches: took.involuntary_switches,
    }
}
