//! `flashlock generate`: man pages, shell completions and the reference, from the command line's own definition.

mod man;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap_complete::Shell;
use flashlock_locks::machine::event::Event;

use crate::failure::Failure;
use crate::screen;
use crate::usage::WIDTH;

/// Write man pages, shell completions or the reference into a directory
#[derive(clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// What to write
    what: What,
    /// The directory; it is made if it does not exist
    #[arg(value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// flashlock.1 and one page for each verb
    Man,
    /// For bash, zsh and fish
    Completions,
    /// A page for each verb, and one for the events
    Markdown,
}

/// Runs the verb. `whole` is the command line's definition.
pub(crate) fn run(args: &Args, whole: &clap::Command) -> Result<u8, Failure> {
    let directory = &args.directory;
    let write = || {
        fs::create_dir_all(directory)?;
        match args.what {
            What::Man => man::write(visible(whole), directory),
            What::Completions => completions(whole, directory),
            What::Markdown => markdown(whole, directory),
        }
    };
    write().map_err(|error: io::Error| {
        Failure::new(format_args!("cannot write into '{}': {}", directory.display(), screen::reason(&error)))
    })?;
    Ok(0)
}

/// The command without hidden parts, which some generators would show.
fn visible(whole: &clap::Command) -> clap::Command {
    let verbs: Vec<_> = whole.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned().collect();
    let mut command = clap::Command::new("flashlock")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .max_term_width(WIDTH);
    if let Some(about) = whole.get_about() {
        command = command.about(about.clone());
    }
    if let Some(about) = whole.get_long_about() {
        command = command.long_about(about.clone());
    }
    if let Some(help) = whole.get_after_long_help() {
        command = command.after_long_help(help.clone());
    }
    command.args(whole.get_arguments().cloned().collect::<Vec<_>>()).subcommands(verbs)
}

fn completions(whole: &clap::Command, directory: &Path) -> io::Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut visible(whole), "flashlock", directory)?;
    }
    Ok(())
}

const MADE: &str = "<!-- Made by `flashlock generate markdown`; do not edit. -->\n\n";

/// The reference: the output of `--help`, page by page, and the list of events.
fn markdown(whole: &clap::Command, directory: &Path) -> io::Result<()> {
    fs::write(directory.join("events.md"), events())?;
    let mut command = visible(whole).term_width(WIDTH);
    command.build();
    let verbs: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let mut links: String = verbs.iter().map(|verb| format!("- [flashlock {verb}](flashlock-{verb}.md)\n")).collect();
    links.push_str("- [events that are counted](events.md)\n");
    let page = |title: &str, command: &mut clap::Command| {
        let help = command.render_long_help().to_string();
        let help: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        format!("{MADE}# {title}\n\n```text\n{help}```\n")
    };
    let front = page("flashlock", &mut command);
    fs::write(directory.join("flashlock.md"), format!("{front}\n{links}"))?;
    for verb in command.get_subcommands_mut() {
        let name = verb.get_name().to_owned();
        fs::write(directory.join(format!("flashlock-{name}.md")), page(&format!("flashlock {name}"), verb))?;
    }
    Ok(())
}

/// The event list.
fn events() -> String {
    let rows = Event::ALL.iter().map(|event| format!("| `{}` | {} |\n", event.name(), event.describe()));
    let rows: String = rows.collect();
    format!("{MADE}# Events that are counted\n\n| name in JSON | what it counts |\n|---|---|\n{rows}")
}
