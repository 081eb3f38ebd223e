//! What is to be run, under what, and how often.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flashlock_locks::catalogue::{DEFAULT, PRINCIPAL};
use flashlock_native::settings::split_list;
use flashlock_report::machine::Machine;
use flashlock_report::provenance::Provenance;
use flashlock_report::results::{Group, Method, Point, Results, SCHEMA, VERSION};
use flashlock_report::units;

use super::Args;
use super::merit::Merit;
use super::worker;
use crate::failure::Failure;
use crate::launch::Program;
use crate::lock_choice::{LockChoice, imagined_topology};
use crate::preload;

/// What glibc's own mutex is called.
pub(super) const GLIBC: &str = "glibc";
/// What a number of threads replaces in a command.
const PLACEHOLDER: &str = "{threads}";
/// How long a comparison takes if nobody says otherwise.
const TIME: f64 = 60.0;
/// The heading where there is only one cell.
const NO_AXIS: &str = "all";
/// Into so many rounds the map's time is divided.
const ROUNDS_OF_MAP: f64 = 8.0;
/// A run of the map need not be longer than this, in seconds.
const LONGEST: f64 = 0.25;
/// What a process of the map takes beside its measurement, in seconds.
const START: f64 = 0.015;

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Until {
    /// After so many rounds.
    Rounds(u32),
    /// When the result is clear, or when no round is left in this time.
    Settled(Duration),
}

/// All that is to be done.
pub(super) struct Plan {
    /// The locks that glibc's mutex is compared with.
    pub(super) locks: Vec<LockChoice>,
    /// Numbers of threads; `None` where the command does not want to know.
    pub(super) cells: Vec<Option<u32>>,
    pub(super) merit: Merit,
    pub(super) until: Until,
    /// How long a run may take, if the user said so.
    pub(super) timeout: Option<Duration>,
    pub(super) seed: u64,
    /// Whether nothing was found out about the user's program, because there is none.
    pub(super) is_map: bool,
    command: Vec<OsString>,
    /// How long the map runs each time.
    millis: u64,
    external: u32,
    library: PathBuf,
    imagined: Option<[u32; 3]>,
}

impl Plan {
    /// From the command line.
    pub(super) fn new(args: &Args) -> Result<Self, Failure> {
        let locks = chosen_locks(&args.locks)?;
        let imagined = imagined_topology()?;
        let is_map = args.command.is_empty();
        let merit = match &args.metric {
            _ if is_map => Merit::Map,
            Some(pattern) => Merit::printed(pattern, args.lower_is_better)?,
            None => Merit::RunTime,
        };
        let cells = cells(args)?;
        let library = preload::find()?;
        let time = args.time.unwrap_or(TIME);
        let runs = cells.len() * (locks.len() + 1);
        let share = (time / (ROUNDS_OF_MAP * runs as f64) - START).clamp(0.02, LONGEST);
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Ok(Self {
            locks,
            cells,
            merit,
            until: args.runs.map_or(Until::Settled(Duration::from_secs_f64(time)), Until::Rounds),
            timeout: args.timeout.map(Duration::from_secs_f64),
            seed: args.seed.unwrap_or(clock),
            is_map,
            command: args.command.clone(),
            millis: (share * 1000.0) as u64,
            external: args.external,
            library,
            imagined,
        })
    }

    /// The command of one run. `lock` counts from 0, which is glibc.
    pub(super) fn process(&self, cell: Option<u32>, lock: usize) -> Result<Command, Failure> {
        let mut command = if self.is_map {
            worker::command(cell.unwrap_or(1), self.millis, self.external, self.seed)?
        } else {
            let words: Vec<OsString> = self.command.iter().map(|word| filled(word, cell)).collect();
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        };
        let lock = lock.checked_sub(1).map(|lock| (self.library.as_path(), self.locks[lock].text.as_str()));
        preload::put_under(&mut command, lock);
        Ok(command)
    }

    /// Why the program cannot be started.
    pub(super) fn cannot_run(&self, error: &std::io::Error) -> Failure {
        match Program::new(&self.command) {
            Ok(program) if !self.is_map => program.cannot_run(error),
            _ => Failure::new(format_args!("cannot start a process: {}", crate::screen::reason(error))),
        }
    }

    /// The heading of a cell.
    pub(super) fn heading(cell: Option<u32>) -> String {
        cell.map_or_else(|| NO_AXIS.to_owned(), |threads| threads.to_string())
    }

    /// What is run, in words.
    pub(super) fn title(&self) -> String {
        if self.is_map {
            return match self.external {
                0 => "80 % lookups, 20 % updates, no work outside".into(),
                rounds => {
                    format!("80 % lookups, 20 % updates, {} of work outside", units::counted(rounds.into(), "round"))
                }
            };
        }
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    /// The result, before anything is measured.
    pub(super) fn results(&self) -> Results {
        let command = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let metrics = self.merit.metrics();
        let merit = metrics.first().map(|metric| metric.name.clone()).unwrap_or_default();
        let cells: Vec<String> = self.cells.iter().copied().map(Self::heading).collect();
        let axis = if self.cells.iter().all(Option::is_none) { "" } else { "threads" }.to_owned();
        let names: Vec<String> =
            std::iter::once(GLIBC).chain(self.locks.iter().map(|lock| lock.text.as_str())).map(str::to_owned).collect();
        let title = self.title();
        let point = |cell: &String, lock: &String| Point {
            group: title.clone(),
            cell: cell.clone(),
            lock: lock.clone(),
            ..Point::default()
        };
        Results {
            provenance: Provenance::now(SCHEMA, VERSION, command, Machine::here(self.imagined)),
            name: "compare".into(),
            title: if self.is_map { "Key-value map behind one mutex" } else { "One program under several locks" }
                .into(),
            about: self.about(),
            metrics,
            points: cells.iter().flat_map(|cell| names.iter().map(|lock| point(cell, lock))).collect(),
            groups: vec![Group { title: title.clone(), axis, cells, merit }],
            locks: names.clone(),
            method: Method {
                rounds: 0,
                seconds: self.is_map.then_some(self.millis as f64 / 1000.0),
                seed: self.seed,
                ..Method::default()
            },
            ..Results::default()
        }
    }

    fn about(&self) -> String {
        if !self.is_map {
            return format!("The command `{}` under glibc's mutex and under flashlock's locks.", self.title());
        }
        let outside = match self.external {
            0 => "nothing".to_owned(),
            rounds => units::counted(u64::from(rounds), "round") + " of a random number generator",
        };
        format!(
            "An AVL tree of up to 1,024 keys, half of them present, behind one pthread mutex: 80 % lookups, 10 % inserts, \
             10 % removes; {outside} between two operations (CNA, EuroSys 2019, section 7.1.1)."
        )
    }
}

/// The locks that were asked for, each once; all of the catalogue, the default first, if none was.
fn chosen_locks(lists: &[String]) -> Result<Vec<LockChoice>, Failure> {
    let mut names: Vec<String> = lists.iter().flat_map(|list| split_list(list)).filter(|name| name != GLIBC).collect();
    if lists.is_empty() {
        names = PRINCIPAL.iter().map(|lock| lock.info().name.to_owned()).collect();
        names.sort_by_key(|name| name != DEFAULT.info().name);
    }
    let mut locks: Vec<LockChoice> = Vec::new();
    for name in &names {
        let lock = LockChoice::parse(name, "--locks")?;
        if locks.iter().all(|other| other.text != lock.text) {
            locks.push(lock);
        }
    }
    if locks.is_empty() {
        return Err(Failure::usage(
            "--locks names only glibc, which is what the locks are compared with; name another one",
        ));
    }
    Ok(locks)
}

/// The numbers of threads, in ascending order.
fn cells(args: &Args) -> Result<Vec<Option<u32>>, Failure> {
    let wants = args.command.iter().any(|word| contains(word, PLACEHOLDER));
    let is_map = args.command.is_empty();
    if !is_map && !wants {
        if !args.threads.is_empty() {
            return Err(Failure::usage(format_args!(
                "--threads has nowhere to go: write {PLACEHOLDER} in CMD where the number of threads belongs"
            )));
        }
        return Ok(vec![None]);
    }
    let cpus = flashlock_native::sys::usable_cpus().clamp(1, 128) as u32;
    let mut threads = match args.threads.as_slice() {
        [] if is_map => {
            std::iter::successors(Some(1), |threads| Some(threads * 2)).take_while(|n| *n <= 32 * cpus).collect()
        }
        [] => vec![1, cpus, 4 * cpus],
        given => given.to_vec(),
    };
    threads.sort_unstable();
    threads.dedup();
    Ok(threads.into_iter().map(Some).collect())
}

fn contains(word: &OsStr, part: &str) -> bool {
    word.as_bytes().windows(part.len()).any(|window| window == part.as_bytes())
}

/// A word of the command with the number of threads in it.
fn filled(word: &OsStr, cell: Option<u32>) -> OsString {
    let Some(threads) = cell.filter(|_| contains(word, PLACEHOLDER)) else { return word.to_owned() };
    let mut filled = Vec::new();
    let mut rest = word.as_bytes();
    while let Some(at) = rest.windows(PLACEHOLDER.len()).position(|window| window == PLACEHOLDER.as_bytes()) {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(threads.to_string().as_bytes());
        rest = &rest[at + PLACEHOLDER.len()..];
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_threads_is_filled_in_everywhere() {
        assert_eq!(filled("-t{threads},{threads}x".as_ref(), Some(8)), "-t8,8x");
        assert_eq!(filled("{threads".as_ref(), Some(8)), "{threads");
        assert_eq!(filled("plain".as_ref(), None), "plain");
    }

    #[test]
    fn without_a_list_the_principal_locks_are_compared_the_default_first() {
        let locks = chosen_locks(&[]).unwrap();
        assert_eq!((locks.len(), locks[0].text.as_str()), (PRINCIPAL.len(), DEFAULT.info().name));
    }

    #[test]
    fn a_list_keeps_its_order_and_glibc_is_always_there() {
        let texts = |list: &str| {
            chosen_locks(&[list.to_owned()]).map(|locks| locks.into_iter().map(|lock| lock.text).collect::<Vec<_>>())
        };
        assert_eq!(texts("tas,glibc,shfl:bound=5,ahead=0,tas").unwrap(), ["tas", "shfl:bound=5,ahead=0"]);
        assert!(texts("glibc").unwrap_err().to_string().contains("name another"));
        assert!(texts("tas,mcz").unwrap_err().to_string().contains("unknown lock 'mcz'; known are"));
    }

    #[test]
    fn numbers_of_threads() {
        let args = |threads: &[u32], command: &[&str]| Args {
            threads: threads.to_vec(),
            command: command.iter().map(OsString::from).collect(),
            ..Args::default()
        };
        assert_eq!(cells(&args(&[4, 1, 4], &[])).unwrap(), [Some(1), Some(4)]);
        assert_eq!(cells(&args(&[], &["x"])).unwrap(), [None]);
        assert_eq!(cells(&args(&[], &["x{threads}"])).unwrap()[0], Some(1));
        assert!(cells(&args(&[2], &["x"])).unwrap_err().to_string().contains("{threads}"));
        let map = cells(&args(&[], &[])).unwrap();
        assert!(map.len() >= 6 && map.windows(2).all(|pair| pair[1] == pair[0].map(|threads| threads * 2)));
    }
}
