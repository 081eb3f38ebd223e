//! # The governor: it measures, and says where locks are to be
//!
//! A governor has adaptive locks, and the servers that it opens for them. Once a [`PERIOD`] it reads their counters and
//! asks the [policy](super::policy). It moves no lock itself: it says where the lock is to be, and the lock's next
//! holder moves it. So a governor never waits for a lock, and knows no addresses: a lock may be dropped, or moved in
//! memory, at any time.
//!
//! A server stays open when its locks have left: a server without requests sleeps, and uses no CPU. When no adaptive
//! lock is used, the governor sleeps as well.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use flashlock_locks::machine::Memory as _;
use flashlock_native::sys;

use super::meter::{Bell, Meter, Reading};
use super::policy::{Lock, Move, Policy, Seen, Server as Counted, Why};
use super::thresholds::Thresholds;
use crate::Machine;
use crate::fifo;
use crate::host::Host;
use crate::named;
use crate::process::PerProcess;
use crate::server::{Options, Server};
use crate::start::start;
use crate::statistics::Statistics;

/// How long a window is.
pub const PERIOD: Duration = Duration::from_millis(100);
/// After so many windows without sections the governor sleeps.
const QUIET: u32 = 20;
/// The number of decisions that are kept.
const KEPT: usize = 256;

/// The variable that names a file to which decisions are added, a line each; `-` is the standard error.
pub const ENV_TRACE: &str = "FLASHLOCK_RCL_TRACE";

/// A decision, and what it was made from.
#[derive(Clone, Debug)]
pub struct Decision {
    /// When it was made: seconds since the governor began.
    pub at: f64,
    /// The lock's name; its number if it has none.
    pub lock: String,
    /// The number of the server that the lock was on; `None`: ordinary.
    pub from: Option<u32>,
    /// Where the lock is to be.
    pub to: Option<u32>,
    /// Why.
    pub why: Why,
    /// What was measured of the lock.
    pub measured: Lock,
}

impl std::fmt::Display for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = |server: Option<u32>| server.map_or("ordinary".to_owned(), |number| format!("server {number}"));
        let Self { at, lock, measured, .. } = self;
        let (from, to, why) = (place(self.from), place(self.to), self.why.text());
        write!(f, "{at:.1} s: lock {lock}: {from} -> {to}: {why}; {} sections", measured.sections)?;
        if let Some(share) = measured.share {
            write!(f, ", {:.0} % of its threads' time", share * 100.0)?;
        }
        for (what, ns) in [("warm", measured.warm), ("cold", measured.cold)] {
            if let Some(ns) = ns {
                write!(f, ", {ns:.0} ns {what}")?;
            }
        }
        Ok(())
    }
}

/// What is known of an adaptive lock.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its name; its number if it has none.
    pub lock: String,
    /// The number of the server where the lock is to be; `None`: ordinary.
    pub server: Option<u32>,
    /// Whether the lock is pinned there.
    pub pinned: bool,
    /// Sections until now, less a few.
    pub sections: u64,
    /// How often the lock has moved.
    pub moves: u64,
    /// What was measured in the last window.
    pub last: Lock,
}

struct Entry {
    meter: Weak<Meter>,
    sections: u64,
    last: Lock,
}

struct State {
    policy: Policy,
    locks: Vec<Entry>,
    /// By place.
    servers: Vec<Server>,
    counted: Vec<Statistics>,
    window: Instant,
    cpu_time: Duration,
    decisions: VecDeque<Decision>,
}

/// Measures, and decides.
pub struct Governor {
    /// A forked child has none of the locks and servers.
    state: PerProcess<Mutex<State>>,
    bell: Arc<Bell>,
    next: AtomicU32,
    began: Instant,
    /// The epoch of the process that made it.
    epoch: u32,
    trace: Trace,
}

fn name_of(meter: &Meter) -> String {
    meter.name.clone().unwrap_or_else(|| format!("#{}", meter.id))
}

/// The CPU time of the process, without that of these threads.
fn cpu_time(without: &[u32]) -> Duration {
    let read = |clock| {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` is writable. A clock of a thread that has ended is refused.
        let is_read = unsafe { libc::clock_gettime(clock, &raw mut now) } == 0;
        if is_read { Duration::new(now.tv_sec as u64, now.tv_nsec as u32) } else { Duration::ZERO }
    };
    // `CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED`
    let of = |thread: &u32| read((!(*thread as libc::clockid_t)) << 3 | 4 | 2);
    let theirs: Duration = without.iter().map(of).sum();
    read(libc::CLOCK_PROCESS_CPUTIME_ID).saturating_sub(theirs)
}

impl Governor {
    /// A governor with these thresholds. It looks only when its methods are called.
    pub fn new(thresholds: Thresholds) -> Arc<Self> {
        Self::with(thresholds, Trace::Nowhere)
    }

    fn with(thresholds: Thresholds, trace: Trace) -> Arc<Self> {
        let state = PerProcess::new();
        state.get_or(|| Mutex::new(State::new(thresholds)));
        Arc::new(Self {
            state,
            bell: Arc::default(),
            next: AtomicU32::new(1),
            began: Instant::now(),
            epoch: Machine::epoch(),
            trace,
        })
    }

    /// The process's governor, with the thresholds of the [configuration](crate::config), and a thread that looks. It
    /// adds its decisions to the file that [`ENV_TRACE`] names. (A forked child makes its own.)
    ///
    /// # Errors
    /// What is wrong with the configuration; the system's error if it refuses the thread.
    pub fn of_process() -> io::Result<&'static Arc<Self>> {
        static GOVERNOR: PerProcess<OnceLock<Arc<Governor>>> = PerProcess::new();
        static MAKING: PerProcess<Mutex<()>> = PerProcess::new();
        let governor_of_process = GOVERNOR.get();
        if let Some(made) = governor_of_process.get() {
            return Ok(made);
        }
        let _one = MAKING.get().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = governor_of_process.get() {
            return Ok(made);
        }
        // What fails now may succeed when the next lock is made.
        let governor = Self::with(named::thresholds()?, Trace::of_env()?);
        let looks = governor.clone();
        start("rcl-governor".to_owned(), move || looks.live())?;
        Ok(governor_of_process.get_or_init(|| governor))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.state.get_or(|| Mutex::new(State::new(Thresholds::NEVER)));
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new lock's meter. `None` if the governor is that of a process from which this one was forked: its thread is
    /// not here, and the lock is ordinary.
    pub(crate) fn meter(&self, name: Option<&str>) -> Option<Arc<Meter>> {
        if Machine::epoch() != self.epoch {
            return None;
        }
        let id = self.next.fetch_add(1, Relaxed);
        let meter = Arc::new(Meter::new(id, name.map(str::to_owned), self.bell.clone()));
        let last = Lock { id, ..Lock::default() };
        self.state().locks.push(Entry { meter: Arc::downgrade(&meter), sections: 0, last });
        Some(meter)
    }

    /// Reads all counters. Returns what happened since they were read last.
    pub fn measure(&self) -> Seen {
        let mut state = self.state();
        let state = &mut *state;
        let now = Instant::now();
        let seconds = now.duration_since(std::mem::replace(&mut state.window, now)).as_secs_f64();
        let places: BTreeMap<u32, u32> = (0..).zip(&state.servers).map(|(place, of)| (of.number(), place)).collect();
        let mut locks = Vec::new();
        state.locks.retain_mut(|entry| {
            let Some(meter) = entry.meter.upgrade() else { return false };
            let Reading { sections, share, warm, cold } = meter.take();
            let at = places.get(&meter.wanted()).copied();
            let pinned = meter.is_pinned();
            let more = sections - std::mem::replace(&mut entry.sections, sections);
            entry.last = Lock { id: meter.id, at, pinned, sections: more, share, warm, cold };
            locks.push(entry.last);
            true
        });
        let servers = state.servers.iter().zip(&mut state.counted).map(|(server, before)| {
            let now = server.statistics();
            let before = std::mem::replace(before, now);
            Counted {
                scans: now.scans - before.scans,
                busy: now.busy_scans - before.busy_scans,
                mixed: now.mixed_scans - before.mixed_scans,
                sections: now.sections - before.sections,
                clients: now.clients_at_busy_scans - before.clients_at_busy_scans,
            }
        });
        let servers = servers.collect();
        let threads: Vec<_> = state.servers.iter().flat_map(|server| Host::of(server.number()).threads()).collect();
        let used = cpu_time(&threads);
        let busy = used.saturating_sub(std::mem::replace(&mut state.cpu_time, used)).as_secs_f64() / seconds;
        let cpus = thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
        Seen { seconds, locks, servers, cpus, busy }
    }

    /// Decides by what was measured, and says where locks are to be. Returns the decisions.
    pub fn step(&self, seen: &Seen) -> Vec<Decision> {
        let mut guard = self.state();
        let state = &mut *guard;
        let moves = state.policy.decide(seen);
        let mut decisions = Vec::new();
        for Move { lock, from, to, why } in moves {
            let Some(meter) = state.locks.iter().find_map(|entry| entry.meter.upgrade().filter(|of| of.id == lock))
            else {
                continue;
            };
            let to = match to.map(|place| state.server(place)).transpose() {
                Ok(to) => to,
                Err(error) => {
                    let text = format!("flashlock: no server can be opened ({error}): locks stay ordinary");
                    sys::warn_line(&[text.as_bytes()]);
                    state.policy = Policy::new(Thresholds::NEVER);
                    continue;
                }
            };
            if meter.want(to.unwrap_or(0)) {
                let from = from.and_then(|place| state.servers.get(place as usize)).map(Server::number);
                let measured = seen.locks.iter().find(|of| of.id == lock).copied().unwrap_or_default();
                let at = self.began.elapsed().as_secs_f64();
                decisions.push(Decision { at, lock: name_of(&meter), from, to, why, measured });
            }
        }
        state.decisions.extend(decisions.iter().cloned());
        let surplus = state.decisions.len().saturating_sub(KEPT);
        state.decisions.drain(..surplus);
        drop(guard); // To write may take long.
        decisions.iter().for_each(|decision| self.trace.add(decision));
        decisions
    }

    /// A report on each adaptive lock.
    pub fn reports(&self) -> Vec<Report> {
        let state = self.state();
        let known = state.locks.iter().filter_map(|entry| entry.meter.upgrade().map(|meter| (meter, entry.last)));
        let report = |(meter, last): (Arc<Meter>, Lock)| Report {
            lock: name_of(&meter),
            server: Some(meter.wanted()).filter(|&number| number != 0),
            pinned: meter.is_pinned(),
            sections: meter.sections(),
            moves: meter.moves(),
            last,
        };
        known.map(report).collect()
    }

    /// The last decisions, the oldest first.
    pub fn decisions(&self) -> Vec<Decision> {
        self.state().decisions.iter().cloned().collect()
    }

    /// The thresholds by which it decides.
    pub fn thresholds(&self) -> Thresholds {
        *self.state().policy.thresholds()
    }

    /// The number and the statistics of each server that it has opened.
    pub fn servers(&self) -> Vec<(u32, Statistics)> {
        self.state().servers.iter().map(|server| (server.number(), server.statistics())).collect()
    }

    /// The governor's thread.
    fn live(&self) {
        fifo::like_main_thread();
        let mut quiet = 0;
        loop {
            thread::sleep(PERIOD);
            let seen = self.measure();
            let is_idle = |seen: &Seen| seen.locks.iter().all(|lock| lock.sections == 0);
            quiet = if is_idle(&seen) { quiet + 1 } else { 0 };
            self.step(&seen);
            if quiet >= QUIET {
                self.bell.sleep(|| is_idle(&self.measure()));
                quiet = 0;
                // The time that was slept is no window.
                self.measure();
            }
        }
    }
}

impl State {
    fn new(thresholds: Thresholds) -> Self {
        Self {
            policy: Policy::new(thresholds),
            locks: Vec::new(),
            servers: Vec::new(),
            counted: Vec::new(),
            window: Instant::now(),
            cpu_time: cpu_time(&[]),
            decisions: VecDeque::new(),
        }
    }

    /// The number of the server at that place. The server is opened if it is not open yet.
    fn server(&mut self, place: u32) -> io::Result<u32> {
        while self.servers.len() <= place as usize {
            let server = Server::open(Options::default())?;
            self.counted.push(server.statistics());
            self.servers.push(server);
        }
        Ok(self.servers[place as usize].number())
    }
}

/// Where decisions are written.
enum Trace {
    Nowhere,
    Error,
    File(File),
}

impl Trace {
    fn of_env() -> io::Result<Self> {
        match std::env::var_os(ENV_TRACE).filter(|value| !value.is_empty()) {
            None => Ok(Self::Nowhere),
            Some(path) if path == "-" => Ok(Self::Error),
            Some(path) => match OpenOptions::new().append(true).create(true).open(&path) {
                Ok(file) => Ok(Self::File(file)),
                Err(error) => {
                    let text = format!("{ENV_TRACE}={}: {error}", path.to_string_lossy());
                    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
                }
            },
        }
    }

    fn add(&self, decision: &Decision) {
        match self {
            Self::Nowhere => {}
            Self::Error => sys::warn_line(&[format!("flashlock: {decision}").as_bytes()]),
            // A decision that cannot be written is lost: the program goes on.
            Self::File(file) => drop((&*file).write_all(format!("{decision}\n").as_bytes())),
        }
    }
}
