//! `cargo xtask delegated`: delegated locks from C and C++ (`tests/delegated`), built against an installation of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::child::{AGAINST_HANGS, Program};
use crate::packages::embedded::{self, Embedded};
use crate::packages::layout;
use crate::setup;
use crate::steps::{Tally, watched};
use crate::verdicts::{self, Verdict};
use crate::workspace;

/// The compilers: of C, of C++.
const COMPILERS: [[&str; 2]; 2] = [["gcc", "g++"], ["clang", "clang++"]];
/// What a program may say of itself.
const STANDARDS: [&str; 4] = ["c11", "c17", "c2x", "gnu11"];
const CXX_STANDARDS: [&str; 2] = ["c++17", "c++20"];
/// How a program is linked with it.
const LINKED: [Linked; 2] = [Linked::Shared, Linked::Static];

const PEDANTIC: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2"];
/// What the C++ header bears besides.
const STRICT: [&str; 4] = ["-Wshadow", "-Wconversion", "-Wsign-conversion", "-fno-exceptions"];

/// The runner of the conformance suite, and the checks.
const CHECKS: [&str; 6] = [
    "conformance/main.c",
    "conformance/report.c",
    "conformance/support.c",
    "delegated/sections.c",
    "delegated/waits.c",
    "delegated/places.c",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linked {
    Shared,
    Static,
}

/// An installation, and what pkg-config says of it.
struct Installed {
    at: PathBuf,
    out: PathBuf,
}

impl Installed {
    fn new() -> Result<Self> {
        workspace::build()?;
        let (out, libraries) = (workspace::scratch("delegated")?, Embedded::of(&workspace::path("target/release"))?);
        let at = out.join("prefix");
        layout::place(&libraries.files()?, &at)?;
        Ok(Self { at, out })
    }

    /// What `pkg-config` answers, word by word.
    fn ask(&self, words: &[&str]) -> Result<Vec<String>> {
        let mut command = Command::new("pkg-config");
        command.args(words).arg("flashlock_rcl").env("PKG_CONFIG_PATH", embedded::descriptions(&self.at));
        let said = Program::new(command, AGAINST_HANGS).run().context("pkg-config is missing: cargo xtask setup")?;
        Ok(said.successful()?.split_whitespace().map(str::to_owned).collect())
    }

    /// Compiles these files of `tests/` to a program.
    fn compile(&self, compiler: &str, flags: &[&str], files: &[&str], linked: Linked) -> Result<PathBuf> {
        let program = self.out.join("program");
        let mut command = Command::new(compiler);
        command.args(flags).args(["-pthread", "-I"]).arg(workspace::path("tests/conformance"));
        command.args(self.ask(&["--cflags"])?).arg("-o").arg(&program);
        command.args(files.iter().map(|file| workspace::path("tests").join(file)));
        match linked {
            Linked::Shared => {
                command.args(self.ask(&["--libs"])?).arg(embedded::rpath(&self.at));
            }
            Linked::Static => {
                command.args(self.ask(&["--variable=static_library"])?);
                let all = self.ask(&["--libs", "--static"])?;
                let is_ours = |word: &String| word == "-lflashlock_rcl" || word.starts_with("-L");
                command.args(all.into_iter().filter(|word| !is_ours(word)));
            }
        }
        command.arg("-ldl");
        Program::new(command, AGAINST_HANGS).run()?.successful()?;
        Ok(program)
    }
}

pub(crate) fn run() -> Result<Tally> {
    setup::require_programs(COMPILERS.as_flattened())?;
    let installed = Installed::new()?;
    let mut tally = Tally::default();
    for [c, cxx] in COMPILERS {
        for (compiler, standards, file, more) in [
            (c, &STANDARDS[..], "delegated/header.c", &[][..]),
            (cxx, &CXX_STANDARDS, "delegated/header.c", &["-x", "c++"]),
            (cxx, &CXX_STANDARDS, "delegated/header.cpp", &STRICT),
        ] {
            for standard in standards {
                let said = format!("-std={standard}");
                let flags = [&[said.as_str()][..], &PEDANTIC, more].concat();
                let outcome = header(&installed, compiler, &flags, file);
                tally += judge(&format!("{compiler} {standard} {file}"), outcome);
            }
        }
        for linked in LINKED {
            let flags = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2", "-g"];
            let program = installed.compile(c, &flags, &CHECKS, linked)?;
            tally += checks(&format!("{c}, {linked:?}"), &program, &["--timeout", "600", "--jobs", "4"])?;
            let flags = [&["-std=c++17", "-g"][..], &PEDANTIC].concat();
            let program = installed.compile(cxx, &flags, &["delegated/cxx.cpp"], linked)?;
            tally += checks(&format!("{cxx}, {linked:?}"), &program, &[])?;
        }
    }
    Ok(tally)
}

/// It compiles without a warning, and what it declares is there.
fn header(installed: &Installed, compiler: &str, flags: &[&str], file: &str) -> Result<()> {
    let program = installed.compile(compiler, flags, &[file], Linked::Shared)?;
    Program::new(Command::new(program), AGAINST_HANGS).run()?.successful().map(|_| ())
}

fn judge(what: &str, outcome: Result<()>) -> Tally {
    match outcome {
        Ok(()) => Tally::PASSED,
        Err(error) => {
            println!("not ok {what}: {error:#}");
            Tally::FAILED
        }
    }
}

/// A program's own verdicts.
fn checks(what: &str, program: &Path, options: &[&str]) -> Result<Tally> {
    let done = watched(what, || {
        let mut command = Command::new(program);
        command.args(options);
        Program::new(command, Duration::from_secs(3600)).run()
    })?;
    let asked: Vec<String> = done.stdout.lines().filter_map(verdicts::name).map(str::to_owned).collect();
    if asked.is_empty() {
        bail!("{what}: no check ran\n{}", done.transcript());
    }
    let mut tally = Tally::default();
    for (check, verdict) in verdicts::read(&done, &asked)? {
        tally += match verdict {
            Verdict::Passed => Tally::PASSED,
            Verdict::Skipped(_) => Tally { skipped: 1, ..Tally::default() },
            Verdict::Failed(reason) => judge(&format!("{what}: {check}"), Err(anyhow::anyhow!(reason))),
        };
    }
    Ok(tally)
}
