//! `cargo xtask apps`: real programs whose output can be checked, under glibc's locks and under ours.
//!
//! An application is first run under glibc. If that fails the application is broken and says nothing about our locks. In that
//! run the calls of the lock functions are counted (`tests/apps/count.c`): an application that does not make them through the
//! dynamic linker, or not often, would pass under every lock and test none.

mod berkeley;
mod counts;
mod kyoto;
mod memcached;
mod rocksdb;
mod run;
mod scripts;
mod sqlite;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::locks;
use crate::setup;
use crate::steps::{Tally, watched};
use crate::table;
use crate::workspace;
use counts::{Counts, Needs};
use run::{Programs, Run, Wrapper};

/// A program with a way of telling whether it worked.
struct App {
    name: &'static str,
    /// The Debian packages it needs.
    packages: &'static [&'static str],
    /// What it must call at least in one run.
    needs: &'static [Needs],
    /// Runs it and checks what it printed.
    run: fn(&Run) -> Result<()>,
}

const APPS: [&App; 7] = [
    &kyoto::KCCACHETEST,
    &rocksdb::DB_BENCH,
    &memcached::MEMCACHED,
    &scripts::PYTHON,
    &scripts::PERL,
    &sqlite::SQLITE,
    &berkeley::BERKELEY_DB,
];

/// How long one run may take. Under glibc they take about two seconds; a lock that hands over in strict order may take far longer.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Args)]
pub(crate) struct Options {
    /// Under these locks (may be repeated, or a list with commas)
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "shfl,mcs,futex")]
    lock: Vec<String>,
    /// With so many threads, one run for each number
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2,8,32")]
    threads: Vec<u32>,
    /// Only these applications (may be repeated, or a list with commas)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Only under glibc: shows whether the applications work, and what they call
    #[arg(long, conflicts_with = "lock")]
    reference: bool,
    /// Preload this library directly, instead of starting programs by `flashlock run`
    #[arg(long, value_name = "PATH")]
    preload: Option<PathBuf>,
}

impl Options {
    fn threads(&self) -> Result<&[u32]> {
        if self.threads.is_empty() || self.threads.iter().any(|&threads| threads < 2) {
            bail!("--threads wants numbers, all at least 2: an application with one thread tests no lock");
        }
        Ok(&self.threads)
    }

    fn apps(&self) -> Result<Vec<&'static App>> {
        if self.only.is_empty() {
            return Ok(APPS.to_vec());
        }
        let find = |name: &String| {
            let known = || APPS.map(|app| app.name).join(", ");
            let found = APPS.into_iter().find(|app| app.name == *name);
            found.with_context(|| format!("no application is called {name}; there are {}", known()))
        };
        self.only.iter().map(find).collect()
    }

    /// The ways in which an application is started, the reference first.
    fn wrappers(&self, programs: &Programs) -> Result<Vec<Wrapper>> {
        let mut wrappers = vec![Wrapper::reference(programs)];
        if self.reference {
            return Ok(wrappers);
        }
        match &self.preload {
            Some(library) => {
                let library = workspace::require(library.clone(), "--preload names no file")?.canonicalize()?;
                wrappers.extend(self.lock.iter().map(|name| Wrapper::preload(&library, name)));
            }
            None => {
                let command = workspace::command()?;
                wrappers.extend(locks::select(&self.lock)?.iter().map(|lock| Wrapper::command(&command, &lock.name)));
            }
        }
        for wrapper in &wrappers {
            wrapper.assert_works()?;
        }
        Ok(wrappers)
    }
}

/// The packages of all applications.
pub(crate) fn packages() -> Vec<&'static str> {
    let mut packages: Vec<&str> = APPS.iter().flat_map(|app| app.packages).copied().collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

pub(crate) fn run(options: &Options) -> Result<Tally> {
    let (apps, threads) = (options.apps()?, options.threads()?);
    let missing: Vec<&str> =
        apps.iter().flat_map(|app| app.packages).copied().filter(|package| !setup::is_installed(package)).collect();
    if !missing.is_empty() {
        bail!("these packages are missing: {} (cargo xtask setup --apps)", missing.join(" "));
    }
    let programs = Programs::build(&apps)?;
    let wrappers = options.wrappers(&programs)?;

    let mut tally = Tally::default();
    let mut results =
        table::new(["application", "threads"].into_iter().chain(wrappers.iter().map(|wrapper| wrapper.name.as_str())));
    let mut calls = table::new(["application", "threads"].into_iter().chain(counts::NAMES));
    for app in apps {
        for &threads in threads {
            let row = run_row(app, threads, &programs, &wrappers, &mut tally);
            results.add_row([app.name.to_owned(), threads.to_string()].into_iter().chain(row.cells));
            calls.add_row([app.name.to_owned(), threads.to_string()].into_iter().chain(row.counts.cells()));
        }
    }
    println!("calls counted in the run under glibc, before `/`, and how many of these had to wait:\n{calls}");
    println!("seconds:\n{results}");
    Ok(tally)
}

/// One application with one number of threads.
struct Row {
    cells: Vec<String>,
    counts: Counts,
}

fn run_row(app: &App, threads: u32, programs: &Programs, wrappers: &[Wrapper], tally: &mut Tally) -> Row {
    let mut row = Row { cells: Vec::new(), counts: Counts::default() };
    for wrapper in wrappers {
        let name = format!("{} with {threads} threads under {}", app.name, wrapper.name);
        let started = Instant::now();
        let mut result =
            watched(&name, || Run::new(app.name, threads, programs, wrapper).and_then(|run| (app.run)(&run)));
        let elapsed = started.elapsed();
        let is_reference = wrapper.counts_file.is_some();
        if let Some(file) = &wrapper.counts_file {
            result = result.and_then(|()| {
                row.counts = Counts::read(file)?;
                row.counts.suffice(app.needs)
            });
        }
        match result {
            Ok(()) => {
                *tally += Tally::PASSED;
                row.cells.push(format!("{:.1}", elapsed.as_secs_f64()));
            }
            Err(error) => {
                *tally += Tally::FAILED;
                row.cells.push("FAILED".to_owned());
                println!("not ok {name} ({:.1} s): {error:#}\n", elapsed.as_secs_f64());
                if is_reference {
                    println!("{} does not work under glibc: no lock is tried\n", app.name);
                    break;
                }
            }
        }
    }
    row.cells.resize(wrappers.len(), "-".to_owned());
    row
}
