//! Whether shells complete the command, and man shows its pages, from below a prefix.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::layout::{MAN, ZSH};
use crate::child::{AGAINST_HANGS, Program};
use crate::steps::Tally;

/// The beginning of a verb, and the verb.
const BEGUN: &str = "comp";
const WHOLE: &str = "compare";

/// A shell, how to ask it what follows `flashlock comp`, and what must be in the answer.
const SHELLS: [(&str, &[&str], &str, &str); 3] = [
    (
        "bash",
        &["--norc", "-c"],
        "source $SHARE/bash-completion/completions/flashlock && COMP_WORDS=(flashlock $BEGUN) COMP_CWORD=1 && \
         _flashlock flashlock $BEGUN flashlock && echo ${COMPREPLY[@]}",
        WHOLE,
    ),
    // It completes only at a terminal: here it takes the function for this command, and can read it.
    (
        "zsh",
        &["-f", "-c"],
        "fpath=($SITE $fpath) && autoload -Uz compinit && compinit -u -D && autoload +X ${_comps[flashlock]} && \
         [[ ${functions[_flashlock]} == *$WHOLE* ]] && echo $WHOLE",
        WHOLE,
    ),
    ("fish", &["-c"], "complete --do-complete \"flashlock $BEGUN\"", WHOLE),
];

/// A check for each shell, and for each man page.
pub(super) fn checks(prefix: &Path, home: &Path) -> Result<Tally> {
    let mut tally = Tally::default();
    for (shell, arguments, script, expected) in SHELLS {
        let mut command = Command::new(shell);
        command.args(arguments).arg(script);
        let said = run(command, prefix, home).and_then(|done| match done.ok() && done.stdout.contains(expected) {
            true => Ok(()),
            false => bail!("'{expected}' is not among its completions\n{}", done.transcript()),
        });
        note(&mut tally, shell, said);
    }
    for page in prefix.join(MAN).read_dir()? {
        let page = page?.path();
        let name = page.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut command = Command::new("man");
        // By its name, and with whatever groff has to complain about.
        command.args(["--warnings", "1", &name]);
        let said = run(command, prefix, home).and_then(|done| {
            let title = format!("{name}(1)");
            match done.ok() && done.stderr.is_empty() && done.stdout.contains(&title) {
                true => Ok(()),
                false => bail!("no page {title}, or a faulty one\n{}", done.transcript()),
            }
        });
        note(&mut tally, &name, said);
    }
    Ok(tally)
}

fn run(mut command: Command, prefix: &Path, home: &Path) -> Result<crate::child::Finished> {
    let share = prefix.join("share");
    command.env("SHARE", &share).env("SITE", prefix.join(ZSH)).env("BEGUN", BEGUN).env("WHOLE", WHOLE);
    command.env("MANPATH", share.join("man")).env("XDG_DATA_DIRS", &share).env("HOME", home);
    // fish completes only what is there.
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env("PATH", std::env::join_paths([prefix.join("bin")].into_iter().chain(std::env::split_paths(&path)))?);
    command.env("LC_ALL", "C.UTF-8").env("MANWIDTH", "100").env("GROFF_NO_SGR", "1");
    Program::new(command, AGAINST_HANGS).run()
}

fn note(tally: &mut Tally, name: &str, said: Result<()>) {
    match said {
        Ok(()) => *tally += Tally::PASSED,
        Err(error) => {
            *tally += Tally::FAILED;
            println!("not ok {name}: {error:#}");
        }
    }
}
