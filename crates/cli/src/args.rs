//! The command line.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::screen::{self, When};
use crate::{calibrate, compare, doctor, generate, locks, run, simulate, topology};

const EXAMPLES: &str = "\
Where to begin:
  flashlock doctor                    can flashlock work here?
  flashlock doctor PROGRAM            what can it do for this program?
  flashlock compare                   which lock is best on this machine, in a minute
  flashlock compare -- PROGRAM        which lock is best for this program
  flashlock run --stats -- PROGRAM    run it unchanged, then show what its locks did
  flashlock simulate                  compare locks on a simulated machine of 2 sockets
  flashlock locks                     which locks there are
";
/// The environment variables for the help of several verbs.
pub(crate) const ENVIRONMENT: &str = "\
Environment:
  FLASHLOCK               the lock, where --lock is not given
  FLASHLOCK_RW            the readers-writer lock, where --rw is not given
  FLASHLOCK_TOPOLOGY      NODESxCORESxSMT: the locks assume such a machine (for tests)
  FLASHLOCK_PRELOAD_PATH  where libflashlock_preload.so is, if not installed
  FLASHLOCK_STATS_FD      set by run --stats for the program; do not set it
  LD_PRELOAD              kept, after flashlock's library
  NO_COLOR                no colours, unless --color=always
  COLUMNS                 width of output that does not go to a terminal
";
const STATUS: &str = "\
Exit status: 0 success, 1 a failure, or a problem was found, 2 wrong usage.
`flashlock run` ends as the program ended. `flashlock compare` has more statuses:
see its help.";
const HINT: &str = "'flashlock --help' shows where to begin; 'flashlock VERB --help' describes a verb.";

/// Faster pthread locks for unmodified programs
///
/// flashlock replaces the pthread locks of a dynamically linked program when the program starts: no root, no source, no
/// relinking. It is for programs whose locks stop scaling: with more threads than CPUs, with one lock that many threads
/// want, or on machines with several NUMA nodes.
#[derive(Parser)]
#[command(name = "flashlock", version, max_term_width = 100)]
#[command(after_help = HINT, after_long_help = format!("{EXAMPLES}\n{ENVIRONMENT}\n{STATUS}"))]
#[command(disable_help_subcommand = true, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,

    /// When to use colours: auto, always or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub(crate) color: When,
}

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Verb {
    Run(run::Args),
    Compare(compare::Args),
    Simulate(simulate::Args),
    Locks(locks::Args),
    Topology(topology::Args),
    Calibrate(calibrate::Args),
    Doctor(doctor::Args),
    Generate(generate::Args),
    MapWorker(compare::worker::Args),
    /// The child of `doctor` that tries the locks
    #[command(hide = true)]
    SelfTest,
}

impl Cli {
    /// Reads the command line. The error is the exit status after an error message or help.
    pub(crate) fn read() -> Result<Self, ExitCode> {
        let words = help_as_an_option(std::env::args_os().collect());
        let when = wanted_color(&words);
        when.apply();
        let command = Self::command().color(when.for_help());
        let parsed = command.try_get_matches_from(words).and_then(|matches| Self::from_arg_matches(&matches));
        parsed.map_err(|mut error| {
            if error.use_stderr() {
                suggest_visible_verbs(&mut error);
                let text = error.render().ansi().to_string();
                screen::tell(&text.replacen("error:", "flashlock:", 1));
                return ExitCode::from(2);
            }
            match screen::emit(&error.render().ansi().to_string()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => {
                    failure.report();
                    ExitCode::from(failure.code())
                }
            }
        })
    }
}

/// Treats `help` as `--help`, and `help VERB` as `VERB --help`.
fn help_as_an_option(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.truncate(2);
        words.push("--help".into());
    }
    words
}

/// Removes hidden verbs from the verbs that an error message suggests.
fn suggest_visible_verbs(error: &mut clap::Error) {
    let Some(ContextValue::Strings(suggested)) = error.get(ContextKind::SuggestedSubcommand) else { return };
    let command = Cli::command();
    let is_hidden = |name: &str| command.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
    let visible: Vec<String> = suggested.iter().filter(|name| !is_hidden(name)).cloned().collect();
    match visible.is_empty() {
        true => error.remove(ContextKind::SuggestedSubcommand),
        false => error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(visible)),
    };
}

/// The value of `--color`. It is found before the rest is parsed, because help and error messages must obey it, too.
fn wanted_color(words: &[OsString]) -> When {
    let mut words = words.iter().skip(1).map_while(|word| word.to_str().filter(|word| *word != "--"));
    let mut when = When::default();
    while let Some(word) = words.next() {
        let value = match word.strip_prefix("--color") {
            Some("") => words.next(),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        if let Some(wanted) = value.and_then(|value| clap::ValueEnum::from_str(value, false).ok()) {
            when = wanted;
        }
    }
    when
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preload;
    use flashlock_native::{settings, stats};

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_is_a_verb_as_well() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(help_as_an_option(words("flashlock help")), words("flashlock --help"));
        assert_eq!(help_as_an_option(words("flashlock help run")), words("flashlock run --help"));
        assert_eq!(help_as_an_option(words("flashlock run help")), words("flashlock run help"));
    }

    #[test]
    fn every_variable_is_listed() {
        for name in [
            settings::ENV,
            settings::ENV_RW,
            settings::ENV_TOPOLOGY,
            stats::ENV,
            preload::ENV_PATH,
            preload::LD_PRELOAD,
        ] {
            assert!(ENVIRONMENT.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name}");
        }
    }

    /// A screen shows about 50 lines.
    #[test]
    fn the_help_of_run_fits_two_screens_and_has_no_empty_list() {
        let mut command = Cli::command();
        let run = command.find_subcommand_mut("run").unwrap();
        let help = run.render_long_help().to_string();
        assert!(help.lines().count() <= 100, "{} lines:\n{help}", help.lines().count());
        assert!(!help.contains("(;") && !help.contains("()") && !help.contains(": ;"), "{help}");
        assert!(help.contains(ENVIRONMENT) && help.contains("flashlock locks NAME"), "{help}");
    }

    #[test]
    fn colours_are_found_before_the_rest_is_parsed() {
        let find = |line: &str| wanted_color(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(find("flashlock --color=never --help"), When::Never);
        assert_eq!(find("flashlock locks --color always"), When::Always);
        assert_eq!(find("flashlock run -- prog --color=never"), When::Auto);
    }
}
