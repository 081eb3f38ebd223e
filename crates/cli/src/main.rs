//! # The `flashlock` command
//!
//! | module | holds |
//! |---|---|
//! | [`args`] | the command line: verbs and what all of them share |
//! | [`run`], [`compare`], [`simulate`], [`locks`], [`topology`], [`calibrate`], [`doctor`], [`generate`] | the verbs |
//! | [`lock_choice`], [`preload`] | which lock, and the library that brings it into a program |
//! | [`launch`] | starting a program, forwarding signals, ending as it ended |
//! | [`elf`], [`search`], [`inspect`] | what a program file is, where files are found, what flashlock can do for it |
//! | [`evidence`] | what the default lock decides by, on this machine |
//! | [`symbols`] | what the addresses of a program that has ended mean |
//! | [`suggest`] | what a user may have meant |
//! | [`pthread`] | the C library's locks, called as a C program calls them |
//! | [`screen`], [`output`], [`failure`] | output, files and errors |
//!
//! Exit status: 0 all is well, 1 something failed or was found wrong, 2 wrong usage; `run` ends as the program ended,
//! with 125 if flashlock itself failed, 126 if the program could not be executed and 127 if it was not found;
//! [`compare`] has statuses of its own for programs that fail.

mod args;
mod calibrate;
mod compare;
mod cpu;
mod doctor;
mod elf;
mod embedded;
mod evidence;
mod failure;
mod generate;
mod inspect;
mod json;
mod launch;
mod lock_choice;
mod locks;
mod output;
mod preload;
mod pthread;
mod run;
mod screen;
mod search;
mod simulate;
mod suggest;
mod symbols;
mod topology;

use std::process::ExitCode;

use args::{Cli, Verb};
use failure::Failure;

fn main() -> ExitCode {
    let cli: &'static Cli = match Cli::read() {
        // Once: threads that a verb leaves behind may look at it until the process ends.
        Ok(cli) => Box::leak(Box::new(cli)),
        Err(code) => return code,
    };
    match perform(cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.report();
            ExitCode::from(failure.code())
        }
    }
}

/// Runs a verb; its exit status.
fn perform(cli: &'static Cli) -> Result<u8, Failure> {
    match &cli.verb {
        Verb::Run(args) => run::run(args),
        Verb::Compare(args) => compare::run(args),
        Verb::Simulate(args) => simulate::run(args),
        Verb::Locks(args) => locks::run(args),
        Verb::Topology(args) => topology::run(args),
        Verb::Calibrate(args) => calibrate::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Generate(args) => generate::run(args),
        Verb::MapWorker(args) => compare::worker::run(args),
        Verb::SelfTest => doctor::self_test::child(),
    }
}
