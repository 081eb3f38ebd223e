//! `flashlock doctor`: what flashlock can and cannot do here and for a program, and why.

mod program;
pub(crate) mod self_test;
mod system;

use std::ffi::OsString;

use anstyle::Style;
use flashlock_report::{table, units};
use serde::Serialize;

use crate::evidence::{self, Evidence};
use crate::failure::Failure;
use crate::inspect::{self, Finding, Level};
use crate::json;
use crate::preload;
use crate::screen::{self, BAD, GOOD, HEADING, WARNING, styled};

/// The subject of findings about memory that processes share.
const SHARED_MEMORY: &str = "shared memory";

const EXAMPLES: &str = "\
Examples:
  flashlock doctor            check this system, and try every lock once
  flashlock doctor postgres   look at a program first, then at the system
  flashlock doctor --json ./server

The doctor reads the program's file and never runs it. So it does not see
libraries that the program loads later (dlopen).

Exit status: 0 no problem; 1 a problem was found; 2 wrong usage; 126 the program
cannot be executed; 127 it was not found.";

/// Check whether flashlock works here, and for a program
///
/// Tells whether the locks of a program can be replaced, and which kinds of locks it has. Then it checks the system and
/// the environment, tries every lock in a child process, and measures the costs by which the default lock decides.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The program to look at: a name in PATH, or a path
    #[arg(value_name = "PROGRAM", value_hint = clap::ValueHint::CommandName)]
    program: Option<OsString>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The findings about one subject.
#[derive(Serialize)]
struct Section {
    title: String,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct Output<'a> {
    flashlock: &'static str,
    /// The worst level of all findings.
    verdict: Level,
    sections: &'a [Section],
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    // A program that cannot be run is a failure, as for `flashlock run`.
    let program = args.program.as_deref().map(inspect::program).transpose()?;
    let library = preload::find();
    let mut sections = Vec::new();
    if let Some(program) = program {
        let title = program.path.display().to_string();
        sections.push(Section { title, findings: program::examine(program, library.as_deref().ok()) });
        // Testing the locks takes time, so show the rest first.
        if !args.json {
            screen::emit(&shown(&sections, screen::width(libc::STDOUT_FILENO)))?;
        }
    }
    let told = sections.len();
    sections.push(Section { title: "System".into(), findings: system::examine(library.as_deref().ok()) });
    match &library {
        Ok(library) => {
            sections.push(Section { title: "Locks".into(), findings: self_test::all(library) });
        }
        Err(failure) => {
            let advice = "flashlock cannot replace any lock without it";
            sections[told].findings.push(Finding::problem("preload", failure.to_string(), advice));
        }
    }
    sections.push(Section { title: evidence::TITLE.into(), findings: Evidence::measure().findings() });
    let verdict = worst(&sections);
    let text = if args.json {
        let output = Output { flashlock: env!("CARGO_PKG_VERSION"), verdict, sections: &sections };
        json::text(&output)?
    } else {
        shown(&sections[told..], screen::width(libc::STDOUT_FILENO)) + &conclusion(&sections)
    };
    screen::emit(&text)?;
    Ok(u8::from(verdict == Level::Problem))
}

fn worst(sections: &[Section]) -> Level {
    sections.iter().flat_map(|section| &section.findings).map(|finding| finding.level).max().unwrap_or(Level::Ok)
}

/// The sections, each followed by an empty line.
fn shown(sections: &[Section], width: u16) -> String {
    let all = || sections.iter().flat_map(|section| &section.findings);
    let names = all().map(|finding| finding.subject.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for section in sections {
        out.push_str(&format!("{}\n", styled(HEADING, &section.title)));
        for finding in &section.findings {
            out.push_str(&line(finding, names, width));
        }
        out.push('\n');
    }
    out
}

/// The last line.
fn conclusion(sections: &[Section]) -> String {
    let all = || sections.iter().flat_map(|section| &section.findings);
    let count = |level: Level| all().filter(|finding| finding.level == level).count();
    let text = match (count(Level::Problem), count(Level::Warn)) {
        (0, 0) => styled(GOOD, "No problem found."),
        (0, warnings) => styled(WARNING, &format!("No problem, {}.", units::counted(warnings as u64, "warning"))),
        (problems, _) => styled(BAD, &format!("{} found.", units::counted(problems as u64, "problem"))),
    };
    text + "\n"
}

/// `  ok       subject  text`, with the advice under it.
fn line(finding: &Finding, names: usize, width: u16) -> String {
    const LEVELS: usize = 7;
    let (word, style): (&str, Style) = match finding.level {
        Level::Ok => ("ok", GOOD),
        Level::Warn => ("warn", WARNING),
        Level::Problem => ("problem", BAD),
    };
    let name = format!("{word:LEVELS$}  {:names$}", finding.subject);
    let plain = table::field(&name, &finding.text, name.chars().count(), width);
    let mut out = plain.replacen(word, &styled(style, word), 1);
    if let Some(advice) = &finding.advice {
        let indent = " ".repeat(LEVELS + 2 + names);
        out.push_str(&table::field(&indent, &format!("-> {advice}"), indent.len(), width));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_fit_the_screen_and_say_what_to_do() {
        let long = "many words ".repeat(20);
        let findings =
            vec![Finding::ok("kernel", "fine"), Finding::problem("privileges", long.trim(), "do this instead")];
        let sections = [Section { title: "System".into(), findings }];
        let text = shown(&sections, 80) + &conclusion(&sections);
        let text = anstream::adapter::strip_str(&text).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("-> do this instead") && text.ends_with("1 problem found.\n"), "{text}");
        assert_eq!(worst(&sections), Level::Problem);
    }
}
