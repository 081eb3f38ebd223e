//! One run of an application: the words that choose its lock, its directory, and what its output says.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use super::LIMIT;
use super::counts::{self, Counters};
use super::stage::Stage;
use crate::child::{AGAINST_HANGS, Finished, Program};
use crate::locks::Lock;

/// The library that counts calls, as `Stage` has compiled it.
const COUNTER: &str = "count";

/// The words put in front of a program's command line, which choose the lock.
pub(crate) struct Wrapper {
    /// What it is called in tables: a lock's name, or glibc.
    pub(crate) name: String,
    words: Vec<OsString>,
    /// Where the calls of the lock functions are counted, in the reference.
    pub(crate) counts_file: Option<PathBuf>,
    /// What the catalogue says of the lock; none for glibc's.
    pub(crate) lock: Option<Lock>,
}

impl Wrapper {
    /// glibc's locks, with their calls counted in a file of that name.
    pub(crate) fn reference(stage: &Stage, file: &str) -> Result<Self> {
        let file = stage.shared_file(file, &[0; counts::FILE_SIZE])?;
        let words = ["env".into(), pair("COUNT_FILE", &file), pair("LD_PRELOAD", &stage.path(COUNTER))];
        Ok(Self { name: "glibc".to_owned(), words: words.into(), counts_file: Some(file), lock: None })
    }

    /// By the `flashlock` command.
    pub(crate) fn command(command: &Path, lock: Lock) -> Self {
        let words = [command.into(), "run".into(), "--lock".into(), (&lock.name).into(), "--".into()];
        Self { name: lock.name.clone(), words: words.into(), counts_file: None, lock: Some(lock) }
    }

    /// By the environment alone.
    pub(crate) fn preload(library: &Path, lock: Lock) -> Self {
        let words = ["env".into(), pair("LD_PRELOAD", library), pair("FLASHLOCK", Path::new(&lock.name))];
        Self { name: lock.name.clone(), words: words.into(), counts_file: None, lock: Some(lock) }
    }

    /// Makes sure that a program started so is under the lock: without it, every application would run under glibc and
    /// pass.
    pub(crate) fn assert_works(&self) -> Result<()> {
        let (library, setting) = match &self.counts_file {
            Some(_) => ("/count", "COUNT_FILE=".to_owned()),
            None => ("/libflashlock_preload.so", format!("FLASHLOCK={}", self.name)),
        };
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).args(["sh", "-c", "cat /proc/$$/maps; env"]);
        let output = Program::new(command, AGAINST_HANGS).run()?.successful()?;
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

/// What the run under glibc has shown, by name: the others must show the same.
pub(crate) type Shown = RefCell<HashMap<String, String>>;

/// One run.
pub(crate) struct Run<'a> {
    pub(crate) threads: u32,
    /// An empty directory for it alone.
    pub(crate) directory: PathBuf,
    /// What counts under a lock, if this is a run that is counted.
    pub(crate) counters: Option<Counters>,
    stage: &'a Stage,
    wrapper: &'a Wrapper,
    shown: &'a Shown,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        app: &str,
        threads: u32,
        stage: &'a Stage,
        wrapper: &'a Wrapper,
        counted: bool,
        shown: &'a Shown,
    ) -> Result<Self> {
        if let Some(file) = &wrapper.counts_file {
            std::fs::write(file, [0; counts::FILE_SIZE])?;
        }
        let counters = if counted { Some(Counters::new()?) } else { None };
        Ok(Self { threads, directory: stage.empty(&format!("run-{app}"))?, counters, stage, wrapper, shown })
    }

    /// What the run under glibc and this one must have in common: a checksum of a result, for instance.
    pub(crate) fn same(&self, what: &str, value: &str) -> Result<()> {
        if self.wrapper.counts_file.is_some() {
            self.shown.borrow_mut().insert(what.to_owned(), value.to_owned());
            return Ok(());
        }
        match self.shown.borrow().get(what) {
            Some(shown) if shown == value => Ok(()),
            shown => bail!("{what} is {value:?}; under glibc it was {shown:?}"),
        }
    }

    /// The words that put a program under the lock, for programs that start programs.
    pub(crate) fn words(&self) -> &[OsString] {
        &self.wrapper.words
    }

    /// A program of `tests/apps`.
    pub(crate) fn compiled(&self, name: &str) -> OsString {
        self.stage.path(name).into()
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

    /// The SHA-256 checksum of a file in its directory.
    pub(crate) fn checksum(&self, file: &str) -> Result<String> {
        let done = self.plain(["sha256sum", file])?;
        let word = done.stdout.split_whitespace().next();
        word.map(str::to_owned).with_context(|| format!("sha256sum says nothing of {file}"))
    }

    /// The bytes of a file in its directory.
    pub(crate) fn size(&self, file: &str) -> Result<u64> {
        let metadata = self.directory.join(file).metadata();
        Ok(metadata.with_context(|| format!("it has not made {file}"))?.len())
    }

    fn start(&self, words: &[OsString]) -> Result<Finished> {
        let Some((program, arguments)) = words.split_first() else { bail!("an empty command") };
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.directory);
        command.envs(self.counters.as_ref().map(Counters::variable));
        let done = Program::new(command, LIMIT).run()?;
        if !done.ok() {
            bail!("{}", done.transcript());
        }
        Ok(done)
    }
}

impl Drop for Run<'_> {
    /// What it has made is large and of no further use. If that fails, the stage is removed later, and says why not.
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapper(counts_file: Option<PathBuf>) -> Wrapper {
        Wrapper { name: "x".to_owned(), words: vec!["env".into()], counts_file, lock: None }
    }

    #[test]
    fn what_differs_from_the_reference_is_an_error() {
        let (stage, shown) = (Stage::empty_for_tests(), Shown::default());
        let (reference, lock) = (wrapper(Some(stage.path("counts"))), wrapper(None));
        let run = |wrapper| Run::new("same", 2, &stage, wrapper, false, &shown).expect("a directory can be made");
        assert!(run(&lock).same("sum", "1").is_err(), "there is nothing to compare with yet");
        run(&reference).same("sum", "1").expect("kept");
        run(&lock).same("sum", "1").expect("the same");
        assert!(run(&lock).same("sum", "2").expect_err("refused").to_string().contains("under glibc it was"));
    }

    #[test]
    fn a_run_leaves_nothing_behind() {
        let (stage, shown, lock) = (Stage::empty_for_tests(), Shown::default(), wrapper(None));
        let run = Run::new("leaves", 2, &stage, &lock, true, &shown).expect("a directory can be made");
        let done = run.wrapped(["sh", "-c", "echo $FLASHLOCK_STATS_FD > file; echo a=1"]).expect("it runs");
        assert_eq!(Facts::of(&done, "a").expect("a line").number("a").expect("a number"), 1);
        let directory = run.directory.clone();
        assert!(run.size("file").expect("it is there") > 1, "the counters' descriptor has a number");
        drop(run);
        assert!(!directory.exists());
        drop(stage);
        assert!(!directory.parent().expect("the stage").exists());
    }
}
