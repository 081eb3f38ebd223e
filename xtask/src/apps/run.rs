//! One run of an application: the words that choose its lock, its directory, and what its output says.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{App, LIMIT, counts};
use crate::child::{Finished, Program};
use crate::workspace;

/// The compiled programs of `tests/apps`.
pub(crate) struct Programs {
    directory: PathBuf,
}

impl Programs {
    /// Compiles the counting library and the programs of the applications that have one.
    pub(crate) fn build(apps: &[&App]) -> Result<Self> {
        let directory = workspace::scratch("apps")?;
        let programs = Self { directory };
        programs.compile("count.c", "count.so", &["-shared", "-fPIC"])?;
        for app in apps {
            match app.name {
                "sqlite" => programs.compile("sqlite.c", "sqlite", &["-lsqlite3"])?,
                "berkeley-db" => programs.compile("bdb.c", "bdb", &["-ldb"])?,
                _ => {}
            }
        }
        Ok(programs)
    }

    fn compile(&self, source: &str, output: &str, options: &[&str]) -> Result<()> {
        let source = workspace::require(source_path(source), "it is part of the repository: check it out")?;
        let mut command = Command::new("gcc");
        command.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
        command.arg(self.directory.join(output)).arg(source).args(options);
        let done = Program::new(command, Duration::from_secs(60)).run().context("gcc is missing: cargo xtask setup")?;
        done.successful().map(drop)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// A file of `tests/apps`.
pub(crate) fn source_path(name: &str) -> PathBuf {
    workspace::path("tests/apps").join(name)
}

/// The words put in front of a program's command line, which choose the lock.
pub(crate) struct Wrapper {
    /// What it is called in tables: a lock's name, or glibc.
    pub(crate) name: String,
    words: Vec<OsString>,
    /// Where the calls of the lock functions are counted, in the reference.
    pub(crate) counts_file: Option<PathBuf>,
}

impl Wrapper {
    /// glibc's locks, with their calls counted.
    pub(crate) fn reference(programs: &Programs) -> Self {
        let file = programs.path("counts");
        let words = ["env".into(), pair("COUNT_FILE", &file), pair("LD_PRELOAD", &programs.path("count.so"))];
        Self { name: "glibc".to_owned(), words: words.into(), counts_file: Some(file) }
    }

    /// By the `flashlock` command.
    pub(crate) fn command(command: &Path, lock: &str) -> Self {
        let words = [command.into(), "run".into(), "--lock".into(), lock.into(), "--".into()];
        Self { name: lock.to_owned(), words: words.into(), counts_file: None }
    }

    /// By the environment alone.
    pub(crate) fn preload(library: &Path, lock: &str) -> Self {
        let words = ["env".into(), pair("LD_PRELOAD", library), pair("FLASHLOCK", Path::new(lock))];
        Self { name: lock.to_owned(), words: words.into(), counts_file: None }
    }

    /// Makes sure that a program started so is under the lock: without it, every application would run under glibc and pass.
    pub(crate) fn assert_works(&self) -> Result<()> {
        let (library, setting) = match &self.counts_file {
            Some(_) => ("/count.so", "COUNT_FILE=".to_owned()),
            None => ("/libflashlock_preload.so", format!("FLASHLOCK={}", self.name)),
        };
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).args(["sh", "-c", "cat /proc/$$/maps; env"]);
        let output = Program::new(command, Duration::from_secs(20)).run()?.successful()?;
        let is_setting = |line: &str| line == setting || line.starts_with(&format!("{setting}:"));
        let has_setting =
            output.lines().any(|line| is_setting(line) || self.counts_file.is_some() && line.starts_with(&setting));
        if !output.lines().any(|line| line.ends_with(library)) || !has_setting {
            bail!("a program started under {} does not get {library} and {setting}", self.name);
        }
        Ok(())
    }
}

/// `NAME=VALUE` for `env`.
fn pair(name: &str, value: &Path) -> OsString {
    let mut pair = OsString::from(name);
    pair.push("=");
    pair.push(value);
    pair
}

/// One run.
pub(crate) struct Run<'a> {
    pub(crate) threads: u32,
    /// An empty directory for it alone.
    pub(crate) directory: PathBuf,
    programs: &'a Programs,
    wrapper: &'a Wrapper,
}

impl<'a> Run<'a> {
    pub(crate) fn new(app: &str, threads: u32, programs: &'a Programs, wrapper: &'a Wrapper) -> Result<Self> {
        if let Some(file) = &wrapper.counts_file {
            std::fs::write(file, [0; counts::FILE_SIZE])?;
        }
        Ok(Self { threads, directory: workspace::scratch(&format!("apps-{app}"))?, programs, wrapper })
    }

    /// The words that put a program under the lock, for programs that start programs.
    pub(crate) fn words(&self) -> &[OsString] {
        &self.wrapper.words
    }

    /// A program of `tests/apps`.
    pub(crate) fn compiled(&self, name: &str) -> OsString {
        self.programs.path(name).into()
    }

    /// Runs a command under the lock; it must end well.
    pub(crate) fn wrapped<S: Into<OsString>>(&self, command: impl IntoIterator<Item = S>) -> Result<Finished> {
        let words = self.words().iter().cloned().chain(command.into_iter().map(Into::into));
        self.start(&words.collect::<Vec<_>>())
    }

    /// Runs a command under glibc; it must end well.
    pub(crate) fn plain<S: Into<OsString>>(&self, command: impl IntoIterator<Item = S>) -> Result<Finished> {
        self.start(&command.into_iter().map(Into::into).collect::<Vec<_>>())
    }

    fn start(&self, words: &[OsString]) -> Result<Finished> {
        let Some((program, arguments)) = words.split_first() else { bail!("an empty command") };
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.directory);
        let done = Program::new(command, LIMIT).run()?;
        if !done.ok() {
            bail!("{}", done.transcript());
        }
        Ok(done)
    }
}

/// The numbers of one `key=value key=value …` line.
pub(crate) struct Facts(HashMap<String, String>);

impl Facts {
    /// The facts of the first line that begins with `start`.
    pub(crate) fn of(done: &Finished, start: &str) -> Result<Self> {
        let line = done.stdout.lines().find(|line| line.starts_with(start));
        let line = line.with_context(|| format!("no line begins with `{start}`:\n{}", done.transcript()))?;
        let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
        Ok(Self(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()))
    }

    pub(crate) fn number(&self, key: &str) -> Result<i64> {
        let value = self.0.get(key).with_context(|| format!("`{key}` is missing"))?;
        i64::from_str(value).with_context(|| format!("`{key}` is `{value}`, not a number"))
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The fact must be this number.
    pub(crate) fn expect(&self, key: &str, wanted: i64) -> Result<()> {
        let got = self.number(key)?;
        if got != wanted {
            bail!("{key} is {got}, not {wanted}; all facts: {:?}", self.0);
        }
        Ok(())
    }

    /// The fact must be at least this number.
    pub(crate) fn at_least(&self, key: &str, wanted: i64) -> Result<()> {
        let got = self.number(key)?;
        if got < wanted {
            bail!("{key} is {got}, less than {wanted}; all facts: {:?}", self.0);
        }
        Ok(())
    }
}
