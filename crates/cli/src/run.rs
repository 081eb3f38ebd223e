//! `flashlock run`: a program under a lock.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use flashlock_locks::catalogue::{LOCKS, OPTIONS};
use flashlock_native::settings;
use flashlock_native::stats::{self, Block};
use flashlock_report::machine::Machine;
use flashlock_report::provenance::Provenance;
use flashlock_report::run_stats::{self, Outcome, RunStats};

use crate::failure::Failure;
use crate::launch::{self, Ended, OWN_FAILURE, Program};
use crate::lock_choice::{LockChoice, LockNames, find_rw, imagined_topology};
use crate::{compare, inspect, preload, screen};

const EXAMPLES: &str = "\
Examples:
  flashlock run -- ./server --port 80            with the default lock
  flashlock run --lock mcs:wait=park -- ./server
  flashlock run --rw cst-rw -- ./server          with another readers-writer lock
  flashlock run --stats -- ./server              then show what its locks did
  flashlock run --stats=json --stats-file s.json -- ./server
  flashlock run --lock futex                     no program: a demonstration";

const NOTES: &str = "\
Without --stats, flashlock becomes the program: its signals, exit status and
process id are the program's. With --stats, it waits for the program, passes
signals on to it, and then ends as the program ended, by the same signal if it
was one. What was counted is reported however the program ended, also after a
crash or SIGKILL. Objects that only glibc can serve are counted when they are
initialised; those that a process outside the run has initialised are not.

Replaced are the pthread and C11 mutexes and condition variables of the program
and of its libraries; its readers-writer locks, by a lock of their own (--rw);
its spinlocks and unnamed private semaphores, the same way under every lock. What
only glibc can serve (robust, process-shared, priority-inheriting or -protected)
stays glibc's.

Exit status: the program's; 125 flashlock itself failed, 126 the program cannot
be executed, 127 it was not found, 2 wrong usage.";

/// What stands under the options in `--help`.
fn help() -> String {
    let mut text = format!("{EXAMPLES}\n\nLock options (--lock NAME:option=value,option=value):\n");
    let mut say = |name: &str, what: &str, locks: &str| {
        let _ = writeln!(text, "  {name:<9} {what} ({locks})");
    };
    say("wait", "spin, stp (spin, then park) or park", "every lock, as far as it can");
    for option in OPTIONS {
        let takers = LOCKS.iter().filter(|lock| lock.options.contains(&option.id));
        let takers: Vec<&str> = takers.map(|lock| lock.name).collect();
        let (what, default) = match option.word(option.default) {
            Some(default) => {
                (format!("{} {}: {}", option.unit, option.meaning, option.words.join(", ")), default.to_owned())
            }
            None => (format!("{} {}", option.unit, option.meaning), option.default.to_string()),
        };
        say(option.name, &what, &format!("{}; {default}", takers.join(", ")));
    }
    format!("{text}\n{NOTES}")
}

/// Run a program with its pthread locks replaced
///
/// Runs a dynamically linked program with its pthread mutexes and condition variables replaced by a lock of the
/// catalogue (see `flashlock locks`). The program needs no change, and programs that it starts are covered too.
///
/// Without a program, a demonstration is run instead: what `flashlock compare` does with this lock and many threads, for a
/// few seconds.
#[derive(clap::Args)]
#[command(after_long_help = help())]
pub(crate) struct Args {
    /// The lock and its options; by default what FLASHLOCK says, else the default lock
    #[arg(long, value_name = "NAME[:OPTION=VALUE,…]", value_parser = LockNames::MUTEXES, hide_possible_values = true)]
    lock: Option<String>,

    /// The readers-writer lock; by default what FLASHLOCK_RW says, else the default one. Its options, but for wait=, hold for
    /// mutexes, too
    #[arg(long, value_name = "NAME[:OPTION=VALUE,…]", value_parser = LockNames::RW_LOCKS, hide_possible_values = true)]
    rw: Option<String>,

    /// Count what the locks do, and report it at the end: as text to standard error, or as JSON to standard output
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    #[arg(requires = "command")]
    stats: Option<Format>,

    /// Write the report to a file instead
    #[arg(long, value_name = "FILE", requires = "command")]
    stats_file: Option<PathBuf>,

    /// The program and its arguments; none for a demonstration
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    #[arg(value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// How statistics are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// What is prepared before a program that is counted starts.
struct Counting {
    block: &'static Block,
    /// Inherited by the program.
    _descriptor: OwnedFd,
    format: Format,
    file: Option<(PathBuf, File)>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let lock = LockChoice::find(args.lock.as_deref())?;
    let rw = find_rw(args.rw.as_deref())?;
    let imagined = imagined_topology()?;
    if args.command.is_empty() {
        return compare::demonstrate(&lock);
    }
    let library = preload::find().map_err(|failure| failure.with_code(OWN_FAILURE))?;
    let program = Program::new(&args.command)?;
    inspect::program(program.name())?.warn();
    set_environment(&library, &lock, rw.as_deref());
    let Some(counting) = Counting::prepare(args)? else {
        return Err(program.cannot_run(&program.exec()));
    };
    let ended = launch::supervise(&program)?;
    let command = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let provenance = Provenance::now(run_stats::SCHEMA, run_stats::VERSION, command, Machine::here(imagined));
    let stats = RunStats::new(provenance, &lock.choice, outcome(&ended), resources(&ended), &counting.block.totals());
    if let Err(failure) = counting.report(&stats) {
        // The program's end is what matters to whoever started it.
        failure.report();
    }
    Ok(ended.imitate())
}

/// Tells the dynamic linker and the library what to do.
fn set_environment(library: &Path, lock: &LockChoice, rw: Option<&str>) {
    let value = preload::prepend(library, std::env::var_os(preload::LD_PRELOAD).as_deref());
    // SAFETY: this process has one thread.
    unsafe {
        std::env::set_var(preload::LD_PRELOAD, value);
        std::env::set_var(settings::ENV, &lock.text);
        if let Some(rw) = rw {
            std::env::set_var(settings::ENV_RW, rw);
        }
    }
}

impl Counting {
    /// Makes the shared counters, and the file, so that what cannot be written is known before the program runs.
    fn prepare(args: &Args) -> Result<Option<Self>, Failure> {
        let format = match (args.stats, &args.stats_file) {
            (Some(format), _) => format,
            (None, Some(_)) => Format::Text,
            (None, None) => return Ok(None),
        };
        let own = |what: String| Failure::new(what).with_code(OWN_FAILURE);
        let file = match &args.stats_file {
            Some(path) => {
                let file = File::create(path)
                    .map_err(|error| own(format!("cannot write {}: {}", path.display(), screen::reason(&error))))?;
                Some((path.clone(), file))
            }
            None => None,
        };
        let (descriptor, block) = Block::create().map_err(|error| {
            own(format!("cannot make shared counters: {}; run without --stats", screen::reason(&error)))
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
        match (&self.file, self.format) {
            (Some((path, file)), _) => (&*file).write_all(text.as_bytes()).map_err(|error| {
                Failure::new(format_args!("cannot write {}: {}", path.display(), screen::reason(&error)))
            }),
            (None, Format::Json) => screen::emit(&text),
            (None, Format::Text) => {
                screen::tell(&text);
                Ok(())
            }
        }
    }
}

/// The descriptor under a number that programs hardly use themselves: a shell script's `exec 3>file` would take a low one.
fn out_of_the_way(descriptor: OwnedFd) -> OwnedFd {
    const HIGH: libc::c_int = 700;
    // SAFETY: duplicates a descriptor of ours, to be inherited as the first was.
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
