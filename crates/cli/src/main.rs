//! # The `flashlock` command
//!
//! | module | holds |
//! |---|---|
//! | [`args`], [`usage`] | the command line: all verbs, and what several of them share |
//! | [`run`], [`compare`], [`simulate`], [`locks`], [`topology`], [`calibrate`], [`doctor`], [`generate`] | the verbs |
//! | [`lock_choice`], [`preload`] | the choice of locks, and the library that loads them into a program |
//! | [`launch`] | starting a program, forwarding signals, ending as the program ended |
//! | [`elf`], [`search`], [`inspect`] | program files: what they are, where they are, what flashlock can do for them |
//! | [`evidence`] | the figures by which the default lock decides on this machine |
//! | [`symbols`] | the meaning of addresses in a program that has ended |
//! | [`suggest`] | suggestions for mistyped names |
//! | [`pthread`] | the C library's locks, called as a C program calls them |
//! | [`screen`], [`output`], [`failure`] | output, files and errors |
//!
//! Exit status: 0 success; 1 a failure, or a problem was found; 2 wrong usage. `run` ends as the program ended, or with
//! 125 if flashlock itself failed, 126 if the program could not be executed, and 127 if it was not found. [`compare`]
//! has its own statuses for programs that fail.

mod args;
mod calibrate;
mod compare;
mod doctor;
mod elf;
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
mod run;
mod screen;
mod search;
mod simulate;
mod suggest;
mod symbols;
mod topology;
mod usage;

use std::process::ExitCode;

use args::{Cli, Verb};
use clap::CommandFactory as _;
use failure::Failure;

fn main() -> ExitCode {
    let cli: &'static Cli = match Cli::read() {
        // Leaked, once: threads that a verb leaves behind may read it until the process ends.
        Ok(cli) => Box::leak(Box::new(cli)),
        Err(code) => return code,
    };
    match perform(cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            screen::report(&failure);
            ExitCode::from(failure.code())
        }
    }
}

/// Runs a verb. Returns its exit status.
fn perform(cli: &'static Cli) -> Result<u8, Failure> {
    match &cli.verb {
        Verb::Run(args) => run::run(args),
        Verb::Compare(args) => compare::run(args),
        Verb::Simulate(args) => simulate::run(args),
        Verb::Locks(args) => locks::run(args),
        Verb::Topology(args) => topology::run(args),
        Verb::Calibrate(args) => calibrate::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Generate(args) => generate::run(args, &Cli::command()),
        Verb::MapWorker(args) => compare::worker::run(args),
        Verb::SelfTest => doctor::self_test::child(),
    }
}
