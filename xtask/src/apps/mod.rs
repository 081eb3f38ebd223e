//! `cargo xtask apps`: real programs whose output can be checked, under glibc's locks and under ours.
//!
//! An application is first run under glibc. If that fails the application is broken and says nothing about our locks.
//! In that run the calls of the lock functions are counted (`tests/apps/count.c`): an application that does not make
//! them through the dynamic linker, or not often, would pass under every lock and test none. The first run under each
//! lock is counted by the library itself: there the lock must have been ours. The other runs are as users have them,
//! without statistics.

mod archives;
mod berkeley;
mod counts;
mod documents;
mod drivers;
mod ffmpeg;
mod fio;
mod git;
mod kyoto;
mod memcached;
mod plan;
mod rocksdb;
mod row;
mod run;
mod runtimes;
mod scripts;
mod servers;
mod sqlite;
mod stage;
mod stress;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use flashlock_report::table;

use crate::setup;
use crate::steps::Tally;
use counts::Needs;
use plan::Plan;
use row::Row;
use run::Run;
use stage::Source;
pub(crate) use stage::{Stage, script};

/// A program with a way of telling whether it worked.
struct App {
    name: &'static str,
    /// The Debian packages it needs.
    packages: &'static [&'static str],
    /// How `--quick` runs it.
    quick: Quick,
    /// Its own programs in `tests/apps`.
    sources: &'static [Source],
    /// What it must call at least in one run.
    needs: &'static [Needs],
    /// Runs it and checks what it printed.
    run: fn(&Run) -> Result<()>,
}

/// How `--quick` runs an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quick {
    /// Not at all.
    Never,
    /// Its packages are small, and a run takes about two seconds: under the default lock with every number of threads,
    /// under others with one.
    Once,
    /// The same, and also under `mcs` and `futex`.
    Always,
}

/// How many applications there are.
pub(crate) const NUMBER: usize = APPS.len();

const APPS: [&App; 22] = [
    &kyoto::KCCACHETEST,
    &rocksdb::DB_BENCH,
    &memcached::MEMCACHED,
    &scripts::PYTHON,
    &scripts::PERL,
    &sqlite::SQLITE,
    &berkeley::BERKELEY_DB,
    &archives::ZSTD,
    &archives::XZ,
    &git::GIT,
    &fio::FIO,
    &stress::STRESS_NG,
    &drivers::LEVELDB,
    &drivers::KYOTO_CABINET,
    &servers::MARIADB,
    &servers::POSTGRESQL,
    &servers::NGINX,
    &runtimes::NODE,
    &runtimes::JAVA,
    &ffmpeg::FFMPEG,
    &documents::CHROMIUM,
    &documents::LIBREOFFICE,
];

/// How long one command of an application may take. Under glibc most take about two seconds; a lock that hands over in
/// strict order, or a busy machine, may take far longer.
const LIMIT: Duration = Duration::from_secs(900);

/// The numbers of threads: one for each CPU of a small machine, more than CPUs, far more.
const THREADS: [u32; 3] = [2, 8, 32];

#[derive(Args)]
pub(crate) struct Options {
    /// Use these locks (may be repeated, or a list with commas) [default: flash,cna,mcscr]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    lock: Vec<String>,
    /// Numbers of threads; one run for each number
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = THREADS)]
    threads: Vec<u32>,
    /// Run only these applications (may be repeated, or a list with commas)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Run only the quick applications. Under locks other than the default, use only the middle number of threads.
    /// Without --lock, half of the applications also run under mcs and futex
    #[arg(long, conflicts_with = "only")]
    quick: bool,
    /// The number of applications at a time [default: 1, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    jobs: Option<u8>,
    /// Use only glibc, to show whether the applications work, and what they call
    #[arg(long, conflicts_with = "lock")]
    reference: bool,
    /// Preload this library directly, instead of using `flashlock run`
    #[arg(long, value_name = "PATH")]
    preload: Option<PathBuf>,
}

impl Options {
    /// Every application, as without any option.
    pub(crate) fn all() -> Self {
        let (lock, only, threads) = (Vec::new(), Vec::new(), THREADS.to_vec());
        Self { lock, threads, only, quick: false, jobs: None, reference: false, preload: None }
    }

    fn jobs(&self) -> usize {
        self.jobs.map_or(if self.quick { 3 } else { 1 }, usize::from)
    }

    fn threads(&self) -> Result<&[u32]> {
        if self.threads.is_empty() || self.threads.iter().any(|&threads| threads < 2) {
            bail!("--threads wants numbers, all at least 2: an application with one thread tests no lock");
        }
        Ok(&self.threads)
    }

    fn apps(&self) -> Result<Vec<&'static App>> {
        if self.only.is_empty() {
            return Ok(APPS.into_iter().filter(|app| app.quick != Quick::Never || !self.quick).collect());
        }
        let find = |name: &String| {
            let known = || APPS.map(|app| app.name).join(", ");
            let found = APPS.into_iter().find(|app| app.name == *name);
            found.with_context(|| format!("no application is called {name}; there are {}", known()))
        };
        self.only.iter().map(find).collect()
    }
}

/// The packages of the quick applications, or of all.
pub(crate) fn packages(quick: bool) -> Vec<&'static str> {
    let apps = APPS.iter().filter(|app| app.quick != Quick::Never || !quick);
    let mut packages: Vec<&str> = apps.flat_map(|app| app.packages).copied().collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Compiles the programs of these applications, whose packages must be there.
pub(crate) fn make_ready(names: &[&str], stage: &Stage) -> Result<()> {
    let chosen = || APPS.into_iter().filter(|app| names.contains(&app.name));
    setup::require(chosen().flat_map(|app| app.packages.iter().copied()), "cargo xtask setup --apps")?;
    chosen().flat_map(|app| app.sources).try_for_each(|source| stage.compile(source))
}

pub(crate) fn run(options: &Options) -> Result<Tally> {
    let (apps, threads) = (options.apps()?, options.threads()?);
    let stage = Stage::new()?;
    let plans = Plan::several(options, &stage, threads, options.jobs())?;
    let headings =
        |more: &[&str]| table::of_numbers(["application", "threads"].into_iter().chain(more.iter().copied()));
    let mut results = headings(&plans[0].wrappers.iter().map(|wrapper| wrapper.name.as_str()).collect::<Vec<_>>());
    let mut calls = headings(&counts::NAMES);
    let mut ours = headings(&[&["lock"], counts::OURS.as_slice()].concat());
    let mut tally = Tally::default();
    for (app, rows) in apps.iter().zip(all_rows(&apps, threads, &plans, &stage)) {
        let Some(rows) = rows else {
            tally += Tally::FAILED;
            continue;
        };
        for (threads, row) in threads.iter().zip(rows) {
            let name = || [app.name.to_owned(), threads.to_string()].into_iter();
            results.add_row(name().chain(row.cells));
            calls.add_row(name().chain(row.counts.cells()));
            for (lock, totals) in row.totals {
                ours.add_row(name().chain([lock]).chain(counts::ours(&totals)));
            }
            tally += row.tally;
        }
    }
    println!("calls counted in the run under glibc, before `/`, and how many of these had to wait:\n{calls}");
    println!("counted by flashlock, in the first run under each lock:\n{ours}");
    println!("seconds:\n{results}");
    Ok(tally)
}

/// The rows of each application, one for each number of threads; `None` if it cannot be run at all. As many
/// applications at a time as there are plans: most of what they do is waiting, for disks, for each other and for a time
/// to be over.
fn all_rows(apps: &[&App], threads: &[u32], plans: &[Plan], stage: &Stage) -> Vec<Option<Vec<Row>>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(apps.iter().map(|_| None).collect::<Vec<_>>());
    thread::scope(|scope| {
        for plan in plans {
            scope.spawn(|| {
                // Relaxed: the numbers must differ, and order nothing.
                while let Some((at, app)) = Some(next.fetch_add(1, Relaxed)).and_then(|at| Some((at, apps.get(at)?))) {
                    let rows = app_rows(app, threads, plan, stage);
                    if let Ok(mut done) = done.lock() {
                        done[at] = rows;
                    }
                }
            });
        }
    });
    done.into_inner().unwrap_or_default()
}

fn app_rows(app: &App, threads: &[u32], plan: &Plan, stage: &Stage) -> Option<Vec<Row>> {
    if let Err(error) = prepare(app, stage) {
        println!("not ok {}: {error:#}\n", app.name);
        return None;
    }
    let mut counted = Vec::new();
    let row = |&threads: &u32| {
        let row = Row::run(app, threads, plan, stage, &mut counted);
        // Half an hour without a word is long.
        eprintln!("{} with {threads} threads: {}", app.name, row.tally);
        row
    };
    Some(threads.iter().map(row).collect())
}

/// Makes sure that an application can be run at all.
fn prepare(app: &App, stage: &Stage) -> Result<()> {
    let missing: Vec<&str> = app.packages.iter().copied().filter(|package| !setup::is_installed(package)).collect();
    if !missing.is_empty() {
        bail!("cannot be run without: apt-get install {} (or cargo xtask setup --apps)", missing.join(" "));
    }
    app.sources.iter().try_for_each(|source| stage.compile(source))
}
