//! One run of the key-value map. It is a process of its own, so that the dynamic linker chooses its pthread mutex, as
//! in any program. It can also use a rival's mutex or a closure lock, which may need a library.

use std::cell::UnsafeCell;
use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use flashlock_locks::catalogue::StandaloneId;
use flashlock_locks::closure::{CcSynch, FlatCombining};
use flashlock_locks::parts::wait::SpinThenPark;
use flashlock_rivals::functions::{Call, Init};
use flashlock_rivals::mutex::Guard;
use flashlock_rivals::{Code, Functions, Rival, SHIM_INIT, SHIM_LOCK, SHIM_UNLOCK};
use flashlock_workloads::history::fairness_factor;
use flashlock_workloads::key_value::Mix;
use flashlock_workloads::random::XorShift;
use flashlock_workloads::{Backend, Here, KeyValue, Lock, Workload};
use serde::{Deserialize, Serialize};

use super::contestant::{Contestant, RCL_ADAPTIVE, RCL_ORDINARY, closures};
use crate::embedded::{Combined, Served};
use crate::failure::Failure;
use crate::pthread::{self, Mutex};
use crate::{preload, screen};

/// The hidden verb's name.
const VERB: &str = "map-worker";
/// There are many threads, which need little stack.
const STACK_BYTES: usize = 64 << 10;

/// One run of the key-value map, for `flashlock compare`
#[derive(clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// Threads
    threads: u32,
    /// How long
    millis: u64,
    /// Rounds of work between two operations
    #[arg(default_value_t = 0)]
    external: u32,
    /// Which keys there are, and which are asked for
    #[arg(default_value_t = 1)]
    seed: u64,
    /// The rival whose mutex is used
    #[arg(long)]
    rival: Option<String>,
    /// The closure lock that is used
    #[arg(long, conflicts_with = "rival")]
    closure: Option<String>,
    /// Its library, if it has one
    #[arg(long, requires = "rival")]
    library: Option<PathBuf>,
}

/// The result of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    /// The file that provides `pthread_mutex_lock`, or the rival's name.
    provider: String,
    /// The total of all threads.
    operations: u64,
    elapsed_ns: u64,
    pub(super) fairness: f64,
    /// The problem that the map's check found.
    wrong: Option<String>,
}

impl Sample {
    /// Parses a run's output. Checks that the mutex was the intended one, and that it excluded.
    pub(super) fn read(text: &str, meant: &Contestant) -> Result<Self, String> {
        let sample: Self = serde_json::from_str(text).map_err(|error| format!("it printed no result: {error}"))?;
        let is_ours = preload::is_ours(std::ffi::OsStr::new(&sample.provider));
        let is_closure = closures().any(|name| name == sample.provider);
        let is_rival = is_closure || Rival::named(&sample.provider).is_some();
        let is_meant = match meant {
            Contestant::Glibc => !is_ours && !is_rival,
            Contestant::Lock(_) => is_ours,
            Contestant::Rival(rival, _) => sample.provider == rival.name,
            Contestant::Closure(name) => sample.provider == *name,
        };
        if !is_meant {
            return Err(format!(
                "it ran with the locks of {} instead of the intended ones; run: flashlock doctor",
                sample.provider
            ));
        }
        match &sample.wrong {
            Some(what) => Err(format!("the lock did not exclude ({what}); please report this")),
            None => Ok(sample),
        }
    }

    /// Operations per microsecond.
    pub(super) fn ops_per_us(&self) -> f64 {
        self.operations as f64 * 1e3 / self.elapsed_ns.max(1) as f64
    }
}

// SAFETY: any pthread mutex must exclude; the check finds out whether this one does.
unsafe impl Lock for Mutex {
    fn acquire(&self) {
        self.lock();
    }

    fn release(&self) {
        self.unlock();
    }
}

/// A rival's mutex.
struct Theirs {
    mutex: flashlock_rivals::Mutex,
    /// The guard that the holder keeps between `acquire` and `release`.
    guard: UnsafeCell<Guard>,
}

// SAFETY: only the holder of the mutex uses `guard`.
unsafe impl Sync for Theirs {}

// SAFETY: any mutex must exclude; the check finds out whether this one does.
unsafe impl Lock for Theirs {
    fn acquire(&self) {
        let mut guard = Guard::default();
        self.mutex.lock(&mut guard);
        // SAFETY: this thread is the holder.
        unsafe { *self.guard.get() = guard };
    }

    fn release(&self) {
        // SAFETY: this thread is the holder, and acquired the mutex with this guard.
        unsafe {
            let mut guard = std::mem::take(&mut *self.guard.get());
            self.mutex.unlock(&mut guard);
        }
    }

    fn section(&self, inside: impl FnOnce() + Send) {
        self.mutex.with(inside);
    }
}

impl Theirs {
    fn new(rival: &Rival, library: Option<&Path>) -> Result<Self, Failure> {
        let functions = match (rival.code, library) {
            (Code::Rust(functions), _) => functions,
            (Code::Cpp(_), Some(library)) => load(library)?,
            (Code::Cpp(_), None) => return Err(Failure::usage(format_args!("{} needs a --library", rival.name))),
        };
        // SAFETY: the functions belong to one rival, whose shim asserts that its types fit.
        let mutex = unsafe { flashlock_rivals::Mutex::new(functions) };
        Ok(Self { mutex, guard: UnsafeCell::default() })
    }
}

/// Loads the functions of a shim.
fn load(library: &Path) -> Result<Functions, Failure> {
    let cannot = |what: &str| Failure::new(format_args!("cannot load {}: {what}", library.display()));
    let name = CString::new(library.as_os_str().as_bytes()).map_err(Failure::new)?;
    // SAFETY: the name is a C string; the library is a shim, and its constructors are those of the rival's library.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return Err(cannot("the dynamic linker refuses it"));
    }
    let find = |symbol: &str| -> Result<*mut c_void, Failure> {
        let name = CString::new(symbol).map_err(Failure::new)?;
        // SAFETY: the library is loaded, and the name is a C string.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        if found.is_null() { Err(cannot(&format!("it has no function {symbol}"))) } else { Ok(found) }
    };
    let [init, lock, unlock] = [find(SHIM_INIT)?, find(SHIM_LOCK)?, find(SHIM_UNLOCK)?];
    // SAFETY: the shim's functions of these names have these types.
    unsafe {
        Ok(Functions {
            init: std::mem::transmute::<*mut c_void, Init>(init),
            lock: std::mem::transmute::<*mut c_void, Call>(lock),
            unlock: std::mem::transmute::<*mut c_void, Call>(unlock),
        })
    }
}

/// The command of one run.
pub(super) fn command(
    threads: u32,
    millis: u64,
    external: u32,
    seed: u64,
    contestant: &Contestant,
) -> Result<Command, Failure> {
    let me = std::env::current_exe()
        .map_err(|error| Failure::new(format_args!("cannot find this command: {}", screen::reason(&error))))?;
    let mut command = Command::new(me);
    command.arg(VERB).args([u64::from(threads), millis, u64::from(external), seed].map(|number| number.to_string()));
    if let Contestant::Rival(rival, library) = contestant {
        command.args(["--rival", rival.name]);
        command.args(library.iter().flat_map(|file| [std::ffi::OsStr::new("--library"), file.as_os_str()]));
    }
    if let Contestant::Closure(name) = contestant {
        command.args(["--closure", name]);
    }
    Ok(command)
}

/// How many rounds of work take so many ns on the host.
pub(super) fn rounds_of_work(ns: u32) -> u32 {
    /// Long compared with reading the clock, short compared with a time slice.
    const ROUNDS: u32 = 20_000;
    const TRIES: u32 = 50;
    if ns == 0 {
        return 0;
    }
    let mut random = XorShift::new(1, 0);
    let mut time = || {
        let start = Instant::now();
        Here::work(&mut random, ROUNDS);
        start.elapsed()
    };
    // The fastest of many tries was not interrupted.
    let fastest = (0..TRIES).map(|_| time()).min().unwrap_or_default().as_nanos().max(1);
    ((u128::from(ns) * u128::from(ROUNDS) + fastest / 2) / fastest).clamp(1, u32::MAX.into()) as u32
}

/// Runs the hidden verb.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let sample = match &args.rival {
        None if args.closure.is_some() => measure_closure(args)?,
        None => measure(args, Mutex::new(), pthread::provider("pthread_mutex_lock").unwrap_or_default()),
        Some(name) => {
            let rival = Rival::named(name).ok_or_else(|| Failure::usage(format_args!("no rival is called {name}")))?;
            measure(args, Theirs::new(rival, args.library.as_deref())?, name.clone())
        }
    };
    screen::emit(&serde_json::to_string(&sample).map_err(Failure::new)?)?;
    Ok(0)
}

/// Measures with a closure lock, whose clients wait in its usual way.
fn measure_closure(args: &Args) -> Result<Sample, Failure> {
    let name = args.closure.as_deref().unwrap_or_default();
    Ok(match StandaloneId::from_name(name) {
        None if name == RCL_ORDINARY => measure(args, Served::ordinary(), name.to_owned()),
        None if name == RCL_ADAPTIVE => measure(args, Served::adaptive()?, name.to_owned()),
        Some(StandaloneId::FlatCombining) => {
            measure(args, Combined::<FlatCombining<SpinThenPark>>::new(), name.to_owned())
        }
        Some(StandaloneId::CcSynch) => measure(args, Combined::<CcSynch<SpinThenPark>>::new(), name.to_owned()),
        Some(StandaloneId::Rcl) => measure(args, Served::new()?, name.to_owned()),
        _ => return Err(Failure::usage(format_args!("no closure lock is called {name}"))),
    })
}

fn measure<L: Lock + Send>(args: &Args, lock: L, provider: String) -> Sample {
    let mix = Mix { external: args.external, ..Mix::PAPER };
    let mut shared: KeyValue<L> = KeyValue::new(lock, mix, args.seed);
    let (stop, start) = (AtomicBool::new(false), Barrier::new(args.threads as usize + 1));
    let come = AtomicU32::new(0);
    let (mut done, elapsed) = thread::scope(|scope| {
        let (shared, stop, barrier, come) = (&shared, &stop, &start, &come);
        let work = |number: u32| {
            move || {
                let mut client = shared.client(args.seed, number);
                come.fetch_add(1, Relaxed);
                barrier.wait();
                let mut operations = 0_u64;
                // At least one operation, even in a thread that got no CPU before the time was over.
                loop {
                    shared.operate(&mut client);
                    operations += 1;
                    if stop.load(Relaxed) {
                        break operations;
                    }
                }
            }
        };
        let spawn = |number| thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work(number));
        let threads: Vec<_> = (0..args.threads).map(spawn).collect();
        if let Some(error) = threads.iter().find_map(|thread| thread.as_ref().err()) {
            screen::complain(None, &format!("cannot start {} threads: {}", args.threads, screen::reason(error)));
            // The threads that did start would wait for the others for ever.
            std::process::exit(1);
        }
        // The clock starts when all threads have arrived, and before any of them continues: neither their creation nor
        // a late wake-up of this thread counts.
        while come.load(Relaxed) < args.threads {
            thread::sleep(Duration::from_micros(100));
        }
        let begin = Instant::now();
        barrier.wait();
        thread::sleep(Duration::from_millis(args.millis));
        stop.store(true, Relaxed);
        let elapsed = begin.elapsed();
        let done: Vec<u64> = threads.into_iter().flatten().filter_map(|thread| thread.join().ok()).collect();
        (done, elapsed)
    });
    let operations = done.iter().sum();
    Sample {
        provider,
        operations,
        elapsed_ns: elapsed.as_nanos() as u64,
        fairness: fairness_factor(&mut done).unwrap_or(0.5),
        wrong: shared.check(operations).err().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use flashlock_rivals::RIVALS;

    use super::*;
    use crate::lock_choice::LockChoice;

    fn sample(provider: &str, wrong: Option<&str>) -> String {
        let wrong = wrong.map(str::to_owned);
        let sample =
            Sample { provider: provider.into(), operations: 5000, elapsed_ns: 1_000_000, fairness: 0.5, wrong };
        serde_json::to_string(&sample).unwrap()
    }

    #[test]
    fn only_what_was_meant_to_run_counts() {
        let (glibc, ours) = (sample("/lib/libc.so.6", None), sample("/x/libflashlock_preload.so", None));
        let lock = Contestant::Lock(LockChoice::parse("flash", "").unwrap());
        let rival = Contestant::Rival(&RIVALS[0], None);
        let closure = Contestant::Closure(StandaloneId::Rcl.info().name);
        let rcl = sample("rcl", None);
        assert!(Sample::read(&rcl, &closure).is_ok() && Sample::read(&rcl, &Contestant::Glibc).is_err());
        assert!(Sample::read(&glibc, &closure).unwrap_err().contains("instead of the intended"));
        assert_eq!(Sample::read(&glibc, &Contestant::Glibc).unwrap().ops_per_us(), 5.0);
        assert!(Sample::read(&ours, &lock).is_ok() && Sample::read(&sample(RIVALS[0].name, None), &rival).is_ok());
        for (text, meant) in [(&glibc, &lock), (&ours, &Contestant::Glibc), (&glibc, &rival), (&ours, &rival)] {
            assert!(Sample::read(text, meant).unwrap_err().contains("instead of the intended"));
        }
        assert!(Sample::read(&sample(RIVALS[1].name, None), &rival).unwrap_err().contains("instead of the intended"));
        let lost = Sample::read(&sample("/lib/libc.so.6", Some("lost")), &Contestant::Glibc).unwrap_err();
        assert!(lost.contains("did not exclude"));
        assert!(Sample::read("", &Contestant::Glibc).unwrap_err().contains("no result"));
    }

    #[test]
    fn work_is_as_long_as_it_is_said_to_be() {
        assert_eq!(rounds_of_work(0), 0);
        let (short, long) = (rounds_of_work(1000), rounds_of_work(100_000));
        assert!(short > 0 && long > short, "{short} {long}");
    }
}
