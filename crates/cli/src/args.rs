//! The command line.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use flashlock_native::settings::nearest;

use crate::screen::{self, When};
use crate::usage::{ENVIRONMENT, LAST, WIDTH};
use crate::{calibrate, compare, doctor, generate, locks, run, simulate, topology};

const EXAMPLES: &str = "\
Where to begin:
  flashlock doctor                  check whether flashlock works on this system
  flashlock doctor PROGRAM          show what it can replace in a program
  flashlock run --stats -- PROGRAM  show what its own locks do
  flashlock compare -- PROGRAM      find the best lock for the program
  flashlock compare                 find the best lock on this machine
  flashlock run -- PROGRAM          run the program with the default lock
  flashlock locks                   list the locks
  flashlock simulate                compare locks on a simulated machine
";
const DOCUMENTS: &str = "\
Documentation: README.md and docs/ in the source tree, or share/doc/flashlock
below the prefix of an installation.
";
const STATUS: &str = "\
Exit status: 0 success; 1 failure, or a problem was found; 2 wrong usage.
'flashlock run' ends as the program ended. 'flashlock compare' has further
statuses; see its help.";
const HINT: &str = "'flashlock --help' shows where to begin. 'flashlock help VERB' describes a verb.";

/// Faster pthread locks for unmodified programs
///
/// flashlock replaces the pthread locks of a dynamically linked program when the program starts. It needs no root, no
/// source code and no relinking. It helps programs whose locks do not scale: with more threads than CPUs, with one lock
/// that many threads want, or on a machine with several NUMA nodes.
#[derive(Parser)]
#[command(name = "flashlock", version, max_term_width = WIDTH)]
#[command(after_help = HINT, after_long_help = format!("{EXAMPLES}\n{ENVIRONMENT}\n{DOCUMENTS}\n{STATUS}"))]
#[command(disable_help_subcommand = true, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,

    /// When to use colours: auto (the default), always or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    #[arg(hide_default_value = true, display_order = LAST)]
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
        let parsed = command.try_get_matches_from(words.iter()).and_then(|matches| Self::from_arg_matches(&matches));
        parsed.map_err(|mut error| {
            if error.use_stderr() {
                suggest_visible_verbs(&mut error);
                suggest_verb_of_option(&mut error, &words);
                suggest_values(&mut error);
                let text = error.render().ansi().to_string();
                screen::tell(&text.replacen("error:", "flashlock:", 1));
                return ExitCode::from(2);
            }
            match screen::emit(&error.render().ansi().to_string()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => {
                    screen::report(&failure);
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

/// Suggests a verb for an unknown one: the nearest one that is not hidden. If none is near, the word may be a program.
fn suggest_visible_verbs(error: &mut clap::Error) {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let unknown = unknown.clone();
    let command = Cli::command();
    let visible = command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(clap::Command::get_name);
    match nearest(&unknown, visible) {
        None => {
            error.remove(ContextKind::SuggestedSubcommand);
            tip(error, format!("to run a program with other locks: flashlock run -- {unknown}"));
        }
        Some(verb) => {
            let suggested = ContextValue::Strings(vec![verb.to_owned()]);
            error.insert(ContextKind::SuggestedSubcommand, suggested);
        }
    }
}

/// Names the verb of an option that stands where the verb belongs.
fn suggest_verb_of_option(error: &mut clap::Error, words: &[OsString]) {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return };
    let Some(name) = option.strip_prefix("--").map(str::to_owned) else { return };
    if !words.get(1).and_then(|word| word.to_str()).is_some_and(|word| word.starts_with(option.as_str())) {
        return;
    }
    let command = Cli::command();
    let has_it = |verb: &&clap::Command| verb.get_arguments().any(|argument| argument.get_long() == Some(&name));
    if let Some(verb) = command.get_subcommands().filter(|verb| !verb.is_hide_set()).find(has_it) {
        tip(error, format!("it is an option of a verb: flashlock {} --{name}", verb.get_name()));
    }
}

/// Gives the user a hint.
fn tip(error: &mut clap::Error, text: String) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![text.into()]));
}

/// Suggests a value for an unknown one of a list: the nearest one.
fn suggest_values(error: &mut clap::Error) {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidValue) else { return };
    let Some(ContextValue::Strings(known)) = error.get(ContextKind::ValidValue) else { return };
    match nearest(unknown, known.iter().map(String::as_str)).map(str::to_owned) {
        None => error.remove(ContextKind::SuggestedValue),
        Some(value) => error.insert(ContextKind::SuggestedValue, ContextValue::String(value)),
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
    use flashlock_locks::catalogue::DEFAULT;
    use flashlock_locks::catalogue::rw::RW_DEFAULT;

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

    /// A screen may have only 24 lines.
    #[test]
    fn what_run_shows_as_help_fits_two_screens_and_names_every_option() {
        let help = Cli::command().try_get_matches_from(["flashlock", "run", "--help"]).unwrap_err().to_string();
        assert!(help.lines().count() <= 48, "{} lines:\n{help}", help.lines().count());
        let mut command = Cli::command();
        command.build();
        for option in command.find_subcommand("run").unwrap().get_arguments().filter_map(clap::Arg::get_long) {
            assert!(help.contains(&format!("--{option}")), "{option}: {help}");
        }
        assert!(help.contains("Examples:") && help.contains("Exit status:"), "{help}");
        assert!(help.contains("man flashlock-run, or\ndocs/cli/reference/flashlock-run.md\n"), "{help}");
    }

    #[test]
    fn the_reference_of_run_is_no_longer_than_a_page_and_has_no_empty_list() {
        let mut command = Cli::command().term_width(WIDTH);
        command.build();
        let run = command.find_subcommand_mut("run").unwrap();
        let help = run.render_long_help().to_string();
        assert!(help.lines().count() <= 80, "{} lines:\n{help}", help.lines().count());
        assert!(!help.contains("(;") && !help.contains("()") && !help.contains(": ;"), "{help}");
        assert!(help.contains(ENVIRONMENT) && help.contains("flashlock locks NAME"), "{help}");
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for default in [DEFAULT.info().name, RW_DEFAULT.info().name] {
            assert!(words.contains(&format!("If that is not set: {default}, or glibc")), "{default}: {help}");
        }
    }

    #[test]
    fn help_fits_the_screen() {
        let mut command = Cli::command();
        command.build();
        let check = |command: &mut clap::Command| {
            for help in [command.render_help(), command.render_long_help()] {
                let help = help.to_string();
                let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > WIDTH).collect();
                assert!(long.is_empty(), "{}: {long:#?}", command.get_name());
            }
            // Longer lines would be wrapped, which breaks their columns.
            let end = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let long: Vec<&str> = end.lines().filter(|line| line.chars().count() > WIDTH).collect();
            assert!(long.is_empty(), "{}: {long:#?}", command.get_name());
        };
        check(&mut command);
        command.get_subcommands_mut().filter(|verb| !verb.is_hide_set()).for_each(check);
    }

    #[test]
    fn a_mistyped_verb_is_guessed_at() {
        for (typed, meant) in [("rnu", Some("run")), ("comprae", Some("compare")), ("self-tset", None)] {
            let mut error = Cli::command().try_get_matches_from(["flashlock", typed]).unwrap_err();
            suggest_visible_verbs(&mut error);
            let text = error.render().to_string();
            assert_eq!(text.contains("similar subcommand"), meant.is_some(), "{text}");
            assert!(meant.is_none_or(|meant| text.contains(&format!("'{meant}'"))), "{text}");
            assert!(!text.contains("\n\n\n"), "{text}");
        }
    }

    #[test]
    fn a_program_or_an_option_in_place_of_a_verb_is_understood() {
        for (line, tip) in [
            ("flashlock ./prog", Some("flashlock run -- ./prog")),
            ("flashlock true", Some("flashlock run -- true")),
            ("flashlock --lock shfl", Some("flashlock run --lock")),
            ("flashlock --rivals=none", Some("flashlock compare --rivals")),
            ("flashlock --nope", None),
            ("flashlock run --locks shfl", None),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let mut error = Cli::command().try_get_matches_from(&words).err().unwrap();
            suggest_visible_verbs(&mut error);
            suggest_verb_of_option(&mut error, &words);
            let text = error.render().to_string();
            match tip {
                Some(tip) => assert!(text.contains("tip: ") && text.contains(&format!(": {tip}\n")), "{text}"),
                None => assert!(!text.contains("tip: it is an option"), "{text}"),
            }
            assert!(!text.contains("\n\n\n"), "{text}");
        }
    }

    #[test]
    fn a_mistyped_value_is_guessed_at_only_if_it_is_near() {
        for (typed, meant) in [("kvmpa", Some("kvmap")), ("Locktorure", Some("locktorture")), ("nope", None)] {
            let mut error = Cli::command().try_get_matches_from(["flashlock", "simulate", typed]).unwrap_err();
            suggest_values(&mut error);
            let text = error.render().to_string();
            assert_eq!(text.contains("similar value"), meant.is_some(), "{text}");
            assert!(meant.is_none_or(|meant| text.contains(&format!("exists: '{meant}'"))), "{text}");
        }
    }

    #[test]
    fn colours_are_found_before_the_rest_is_parsed() {
        let find = |line: &str| wanted_color(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(find("flashlock --color=never --help"), When::Never);
        assert_eq!(find("flashlock locks --color always"), When::Always);
        assert_eq!(find("flashlock run -- prog --color=never"), When::Auto);
    }
}
