//! The key-value map of `flashlock compare`: threads that look up and change keys under one lock, for some time.

use std::cell::UnsafeCell;
use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::RwLock;
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

use crate::embedded::{Combined, Served};
use crate::pthread::Mutex;

/// `rcl` without a server, as [`Run::under_closure_lock`] calls it.
pub const RCL_ORDINARY: &str = "rcl-ordinary";
/// `rcl` on a server when that pays.
pub const RCL_ADAPTIVE: &str = "rcl-adaptive";

/// There are many threads, which need little stack.
const STACK_BYTES: usize = 64 << 10;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// How many threads use the map.
    pub threads: u32,
    /// For how long, in ms.
    pub millis: u64,
    /// Rounds of work between two operations of a thread ([`rounds_of_work`]).
    pub external: u32,
    /// Which keys there are, and which are asked for.
    pub seed: u64,
}

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The operations of all threads that ended within `elapsed_ns`. It may be 0, under a lock that has collapsed.
    pub operations: u64,
    /// How long they were counted, in ns.
    pub elapsed_ns: u64,
    /// The share of these operations that fell to the busier half of the threads; 0.5 if there are none.
    pub fairness: f64,
    /// The problem that the map's check found.
    pub wrong: Option<&'static str>,
}

/// The operations of one thread.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// All of them, which the map's check needs.
    all: u64,
    /// Those that ended before the clock stopped. Under a lock that has collapsed, the last operation of each thread
    /// may end long after that, and all the last operations may outnumber the others.
    counted: u64,
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
    fn new(rival: &Rival, library: Option<&Path>) -> Result<Self, String> {
        let functions = match (rival.code, library) {
            (Code::Rust(functions), _) => functions,
            (Code::Cpp(_), Some(library)) => load(library)?,
            (Code::Cpp(_), None) => return Err(format!("{} needs a library", rival.name)),
        };
        // SAFETY: the functions belong to one rival, whose shim asserts that its types fit.
        let mutex = unsafe { flashlock_rivals::Mutex::new(functions) };
        Ok(Self { mutex, guard: UnsafeCell::default() })
    }
}

/// Loads the functions of a shim.
fn load(library: &Path) -> Result<Functions, String> {
    let cannot = |what: &str| format!("cannot load {}: {what}", library.display());
    let name = CString::new(library.as_os_str().as_bytes()).map_err(|error| cannot(&error.to_string()))?;
    // SAFETY: the name is a C string; the library is a shim, and its constructors are those of the rival's library.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return Err(cannot("the dynamic linker refuses it"));
    }
    let find = |symbol: &str| -> Result<*mut c_void, String> {
        let name = CString::new(symbol).map_err(|error| cannot(&error.to_string()))?;
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

/// How many rounds of work take so many ns on the host.
pub fn rounds_of_work(ns: u32) -> u32 {
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

impl Run {
    /// Runs it under a pthread mutex, whose functions the dynamic linker has chosen.
    ///
    /// # Errors
    ///
    /// Why threads cannot be started.
    pub fn under_pthread_mutex(&self) -> Result<Sample, String> {
        self.measure(Mutex::new())
    }

    /// Runs it under a rival's mutex. One in C++ is in a library.
    ///
    /// # Errors
    ///
    /// Why the library cannot be loaded, or threads cannot be started.
    pub fn under_rival(&self, rival: &Rival, library: Option<&Path>) -> Result<Sample, String> {
        self.measure(Theirs::new(rival, library)?)
    }

    /// Runs it under the closure lock of this name, whose clients wait in its usual way.
    ///
    /// # Errors
    ///
    /// There is no such lock, or why it cannot be made or threads cannot be started.
    pub fn under_closure_lock(&self, name: &str) -> Result<Sample, String> {
        match StandaloneId::from_name(name) {
            None if name == RCL_ORDINARY => self.measure(Served::ordinary()),
            None if name == RCL_ADAPTIVE => self.measure(Served::adaptive()?),
            Some(StandaloneId::FlatCombining) => self.measure(Combined::<FlatCombining<SpinThenPark>>::new()),
            Some(StandaloneId::CcSynch) => self.measure(Combined::<CcSynch<SpinThenPark>>::new()),
            Some(StandaloneId::Rcl) => self.measure(Served::new()?),
            _ => Err(format!("no closure lock is called {name}")),
        }
    }

    fn measure<L: Lock + Send>(&self, lock: L) -> Result<Sample, String> {
        let mix = Mix { external: self.external, ..Mix::PAPER };
        let mut shared: KeyValue<L> = KeyValue::new(lock, mix, self.seed);
        let (done, elapsed) = self.operate(&shared)?;
        let mut counted: Vec<u64> = done.iter().map(|done| done.counted).collect();
        Ok(Sample {
            operations: counted.iter().sum(),
            elapsed_ns: elapsed.as_nanos() as u64,
            fairness: fairness_factor(&mut counted).unwrap_or(0.5),
            wrong: shared.check(done.iter().map(|done| done.all).sum()).err(),
        })
    }

    /// The operations of each thread, and how long they were counted.
    fn operate<L: Lock + Send>(&self, shared: &KeyValue<L>) -> Result<(Vec<Done>, Duration), String> {
        let (stop, come, gate) = (AtomicBool::new(false), AtomicU32::new(0), RwLock::new(()));
        let work = |number: u32| {
            let mut client = shared.client(self.seed, number);
            come.fetch_add(1, Relaxed);
            // It opens for all at once. (It is poisoned by nobody.)
            drop(gate.read());
            let mut done = Done::default();
            // At least one operation, even in a thread that got no CPU before the time was over.
            loop {
                shared.operate(&mut client);
                done.all += 1;
                // The flag orders nothing else. A thread that sees it late by some ns counts one operation too many at
                // most, and that one took no longer.
                if stop.load(Relaxed) {
                    break done;
                }
                done.counted += 1;
            }
        };
        let work = &work;
        thread::scope(|scope| {
            let closed = gate.write();
            let spawn =
                |number| thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, move || work(number));
            let threads = (0..self.threads).map(spawn).collect::<Result<Vec<_>, _>>().map_err(|error| {
                stop.store(true, Relaxed);
                format!("cannot start {} threads: {error}", self.threads)
            })?;
            // The clock starts when all threads have arrived, and before any of them continues: neither their creation
            // nor a late wake-up of this thread counts.
            while come.load(Relaxed) < self.threads {
                thread::sleep(Duration::from_micros(100));
            }
            let begin = Instant::now();
            drop(closed);
            thread::sleep(Duration::from_millis(self.millis));
            stop.store(true, Relaxed);
            let elapsed = begin.elapsed();
            Ok((threads.into_iter().filter_map(|thread| thread.join().ok()).collect(), elapsed))
        })
    }
}

#[cfg(test)]
mod tests {
    use flashlock_rivals::RIVALS;

    use super::*;

    const BRIEF: Run = Run { threads: 3, millis: 1, external: 0, seed: 1 };

    #[test]
    fn work_is_as_long_as_it_is_said_to_be() {
        assert_eq!(rounds_of_work(0), 0);
        let (short, long) = (rounds_of_work(1000), rounds_of_work(100_000));
        assert!(short > 0 && long > short, "{short} {long}");
    }

    #[test]
    fn threads_operate_and_the_map_is_checked() {
        let rust = RIVALS.iter().find(|rival| matches!(rival.code, Code::Rust(_))).expect("a rival in Rust");
        for sample in [BRIEF.under_pthread_mutex(), BRIEF.under_rival(rust, None), BRIEF.under_closure_lock("rcl")] {
            let sample = sample.expect("it runs");
            assert!((0.5..=1.0).contains(&sample.fairness) && sample.wrong.is_none(), "{sample:?}");
        }
        let long = Run { millis: 50, ..BRIEF }.under_pthread_mutex().expect("it runs");
        assert!(long.operations >= 3 && long.elapsed_ns >= 50_000_000, "{long:?}");
    }

    /// A lock that is held for longer than the run lasts.
    struct Slow(std::sync::Mutex<()>);

    // SAFETY: no thread calls these.
    unsafe impl Lock for Slow {
        fn acquire(&self) {
            unreachable!("the map runs sections");
        }

        fn release(&self) {
            unreachable!("the map runs sections");
        }

        fn section(&self, inside: impl FnOnce() + Send) {
            let _held = self.0.lock().expect("nobody panics");
            thread::sleep(Duration::from_millis(100));
            inside();
        }
    }

    #[test]
    fn operations_that_end_after_the_clock_do_not_count() {
        let sample = BRIEF.measure(Slow(std::sync::Mutex::default())).expect("it runs");
        // Each thread does one operation, which the map's check counts.
        assert_eq!((sample.operations, sample.fairness, sample.wrong), (0, 0.5, None));
    }

    #[test]
    fn what_cannot_be_run_is_named() {
        let cpp = RIVALS.iter().find(|rival| matches!(rival.code, Code::Cpp(_))).expect("a rival in C++");
        assert!(BRIEF.under_rival(cpp, None).unwrap_err().contains(cpp.name));
        assert!(BRIEF.under_rival(cpp, Some(Path::new("/no/such.so"))).unwrap_err().contains("/no/such.so"));
        assert!(BRIEF.under_closure_lock("nothing").unwrap_err().contains("nothing"));
    }
}
