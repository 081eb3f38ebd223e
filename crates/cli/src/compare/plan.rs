//! What is run, with which locks, and how often.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flashlock_measure::map;
use flashlock_report::machine::Machine;
use flashlock_report::provenance::Provenance;
use flashlock_report::results::{Group, Method, Point, Results, SCHEMA, VERSION};

use super::Args;
use super::contestant::{Contestant, Rivals, chosen_closures, chosen_locks, chosen_rivals};
use super::merit::Merit;
use super::schedule::Until;
use super::worker;
use crate::failure::Failure;
use crate::json;
use crate::launch::Program;
use crate::lock_choice::{RwUnder, imagined_topology};
use crate::preload;

/// The placeholder in a command for the number of threads.
const PLACEHOLDER: &str = "{threads}";
/// The heading if there is only one cell.
const NO_AXIS: &str = "all";
/// The map's default panels: work between two operations, in ns.
const PANELS: [u32; 2] = [0, 2000];

/// A group with a table and a panel of its own.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    /// Rounds of work between two operations of the map.
    external: u32,
}

/// A panel, and a number of threads if the command takes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) panel: usize,
    pub(super) threads: Option<u32>,
}

/// The whole plan.
pub(super) struct Plan {
    /// The contestants, with glibc's mutex first: locks for unmodified programs, then closure locks.
    pub(super) contestants: Vec<Contestant>,
    /// The rivals, which only run with the map.
    pub(super) rivals: Rivals,
    pub(super) panels: Vec<Panel>,
    /// Panel by panel.
    pub(super) cells: Vec<Cell>,
    pub(super) merit: Merit,
    /// The readers-writer lock that goes with each of flashlock's mutexes.
    pub(super) rw: RwUnder,
    pub(super) until: Until,
    /// The time limit of a run, if the user set one.
    pub(super) timeout: Option<Duration>,
    pub(super) seed: u64,
    /// Whether the map is run because the user named no program.
    pub(super) is_map: bool,
    /// Whether the program keeps its own locks, so that only those of programs that it starts can be replaced.
    pub(super) keeps_its_locks: bool,
    /// Whether this is not `compare`, which has options.
    pub(super) is_demonstration: bool,
    command: Vec<OsString>,
    library: PathBuf,
    imagined: Option<[u32; 3]>,
}

impl Plan {
    /// The plan for a command line.
    pub(super) fn new(args: &Args) -> Result<Self, Failure> {
        let is_map = args.command.is_empty();
        let locks = chosen_locks(&args.locks, is_map)?;
        let rivals = if is_map { chosen_rivals(&args.rivals)? } else { Rivals::default() };
        let imagined = imagined_topology()?;
        let merit = match &args.metric {
            _ if is_map => Merit::Map,
            Some(pattern) => Merit::printed(pattern, args.lower_is_better)?,
            None => Merit::RunTime,
        };
        let rw = RwUnder::chosen(args.rw.as_deref())?;
        let threads = numbers_of_threads(args)?;
        let library = preload::find()?;
        let panels = if is_map { panels_of_map(&args.external) } else { vec![panel_of(&args.command)] };
        let in_panel = |panel| threads.iter().map(move |&threads| Cell { panel, threads });
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Ok(Self {
            contestants: std::iter::once(Contestant::Glibc)
                .chain(locks.into_iter().map(Contestant::Lock))
                .chain(chosen_closures(&args.closures)?)
                .collect(),
            rivals,
            cells: (0..panels.len()).flat_map(in_panel).collect(),
            panels,
            merit,
            rw,
            until: args.runs.map_or(Until::Settled(args.time.map(Duration::from_secs_f64)), Until::Rounds),
            timeout: args.timeout.map(Duration::from_secs_f64),
            seed: args.seed.unwrap_or(clock),
            is_map,
            keeps_its_locks: false,
            is_demonstration: false,
            command: args.command.clone(),
            library,
            imagined,
        })
    }

    /// The command of one run. The map runs for `millis` ms.
    pub(super) fn process(&self, cell: Cell, contestant: &Contestant, millis: u64) -> Result<Command, Failure> {
        let mut command = if self.is_map {
            let external = self.panels[cell.panel].external;
            worker::command(cell.threads.unwrap_or(1), millis, external, self.seed, contestant)?
        } else {
            let words = self.words(cell);
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        };
        let lock = match contestant {
            Contestant::Lock(lock) => Some((self.library.as_path(), [lock.text.as_str(), self.rw.text()])),
            Contestant::Glibc | Contestant::Rival(..) | Contestant::Closure(_) => None,
        };
        preload::put_under(&mut command, lock);
        Ok(command)
    }

    /// The words of the command in a cell, with the number of threads filled in.
    fn words(&self, cell: Cell) -> Vec<OsString> {
        self.command.iter().map(|word| filled(word, cell.threads)).collect()
    }

    /// The names of the programs that are run: several if the name contains the number of threads, none for the map.
    pub(super) fn programs(&self) -> Vec<OsString> {
        let mut names: Vec<_> = self.cells.iter().filter_map(|&cell| self.words(cell).into_iter().next()).collect();
        names.dedup();
        names
    }

    /// The failure if the program cannot be started.
    pub(super) fn cannot_run(&self, cell: Cell, error: &std::io::Error) -> Failure {
        match Program::new(&self.words(cell)) {
            Ok(program) if !self.is_map => program.cannot_run(error),
            _ => Failure::new(format_args!("cannot start a process: {}", crate::screen::reason(error))),
        }
    }

    /// The title of what is run.
    pub(super) fn title(&self) -> String {
        if self.is_map { "the map".to_owned() } else { self.panels[0].title.clone() }
    }

    /// The result of these contestants in these cells before anything is measured.
    pub(super) fn results(&self, contestants: &[Contestant], cells: &[Cell], millis: u64) -> Results {
        let metrics = self.merit.metrics();
        let merit = metrics.first().map(|metric| metric.name.clone()).unwrap_or_default();
        let axis = if cells.iter().all(|cell| cell.threads.is_none()) { "" } else { "threads" };
        let names: Vec<String> = contestants.iter().map(|contestant| contestant.name().to_owned()).collect();
        let is_embedded = |of: &&Contestant| matches!(of, Contestant::Rival(..) | Contestant::Closure(_));
        let rivals = contestants.iter().filter(is_embedded);
        let group = |(number, panel): (usize, &Panel)| Group {
            title: panel.title.clone(),
            axis: axis.to_owned(),
            cells: cells.iter().filter(|cell| cell.panel == number).map(Cell::heading).collect(),
            merit: merit.clone(),
        };
        let points = |cell: &Cell| {
            let (group, cell) = (self.panels[cell.panel].title.clone(), cell.heading());
            let point = move |lock: &String| Point {
                group: group.clone(),
                cell: cell.clone(),
                lock: lock.clone(),
                ..Point::default()
            };
            names.iter().map(point).collect::<Vec<_>>()
        };
        Results {
            provenance: Provenance::now(SCHEMA, VERSION, json::command(), Machine::here(self.imagined)),
            name: "compare".into(),
            title: if self.is_map { "Key-value map behind one mutex" } else { "One program under several locks" }
                .into(),
            about: self.about(),
            metrics,
            groups: self.panels.iter().enumerate().map(group).collect(),
            points: cells.iter().flat_map(points).collect(),
            rivals: rivals.map(|rival| rival.name().to_owned()).collect(),
            locks: names.clone(),
            method: Method {
                seconds: self.is_map.then_some(millis as f64 / 1000.0),
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
        "An AVL tree of up to 1,024 keys, half of them present, behind one mutex: 80 % lookups, 10 % inserts, 10 % \
         removes (CNA, EuroSys 2019, section 7.1.1). Without work between two operations, the lock is all that counts; \
         with work outside the lock, it is nearer to what programs do."
            .to_owned()
    }
}

impl Cell {
    /// The cell's heading.
    pub(super) fn heading(&self) -> String {
        self.threads.map_or_else(|| NO_AXIS.to_owned(), |threads| threads.to_string())
    }
}

/// The map's panels, one for each amount of work outside, in ns.
fn panels_of_map(external: &[u32]) -> Vec<Panel> {
    let mut outside = if external.is_empty() { PANELS.to_vec() } else { external.to_vec() };
    outside.sort_unstable();
    outside.dedup();
    let title = |ns: u32| match ns {
        0 => "No work outside the lock".to_owned(),
        ns => format!("{} of work outside the lock", in_round_units(ns)),
    };
    outside.into_iter().map(|ns| Panel { title: title(ns), external: map::rounds_of_work(ns) }).collect()
}

/// `250 ns`, `2 µs`, `2.5 µs`.
fn in_round_units(ns: u32) -> String {
    if ns < 1000 { format!("{ns} ns") } else { format!("{} µs", f64::from(ns) / 1000.0) }
}

/// The panel of a command.
fn panel_of(command: &[OsString]) -> Panel {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    Panel { title: words.join(" "), external: 0 }
}

/// The numbers of threads, in ascending order; a single `None` if the command does not take one.
fn numbers_of_threads(args: &Args) -> Result<Vec<Option<u32>>, Failure> {
    let wants = args.command.iter().any(|word| contains(word, PLACEHOLDER));
    let is_map = args.command.is_empty();
    if !is_map && !wants {
        if !args.threads.is_empty() {
            return Err(Failure::usage(format_args!(
                "--threads has no effect: write {PLACEHOLDER} in CMD where the number of threads belongs"
            )));
        }
        return Ok(vec![None]);
    }
    let cpus = flashlock_native::sys::usable_cpus().clamp(1, 128) as u32;
    let mut threads = match args.threads.as_slice() {
        [] if is_map => vec![1, cpus / 4, cpus / 2, cpus, 2 * cpus, 4 * cpus, 16 * cpus],
        [] => vec![1, cpus, 4 * cpus],
        given => given.to_vec(),
    };
    threads.retain(|threads| *threads > 0);
    threads.sort_unstable();
    threads.dedup();
    Ok(threads.into_iter().map(Some).collect())
}

fn contains(word: &OsStr, part: &str) -> bool {
    word.as_bytes().windows(part.len()).any(|window| window == part.as_bytes())
}

/// A word of the command, with the number of threads filled in.
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
    fn numbers_of_threads_ascend() {
        let args = |threads: &[u32], command: &[&str]| Args {
            threads: threads.to_vec(),
            command: command.iter().map(OsString::from).collect(),
            ..Args::default()
        };
        let of = |threads: &[u32], command: &[&str]| numbers_of_threads(&args(threads, command));
        assert_eq!(of(&[4, 1, 4], &[]).unwrap(), [Some(1), Some(4)]);
        assert_eq!(of(&[], &["x"]).unwrap(), [None]);
        assert_eq!(of(&[], &["x{threads}"]).unwrap()[0], Some(1));
        assert!(of(&[2], &["x"]).unwrap_err().to_string().contains("{threads}"));
        let map = of(&[], &[]).unwrap();
        assert!((4..=7).contains(&map.len()) && map.windows(2).all(|pair| pair[0] < pair[1]), "{map:?}");
        assert_eq!(map[0], Some(1));
    }

    #[test]
    fn the_map_has_a_panel_without_work_outside_and_one_with() {
        let titles = |outside: &[u32]| panels_of_map(outside).into_iter().map(|panel| panel.title).collect::<Vec<_>>();
        assert_eq!(titles(&[]), ["No work outside the lock", "2 µs of work outside the lock"]);
        assert_eq!(titles(&[2500, 250, 250]), ["250 ns of work outside the lock", "2.5 µs of work outside the lock"]);
        let panels = panels_of_map(&[]);
        assert!(panels[0].external == 0 && panels[1].external > 0);
    }
}
