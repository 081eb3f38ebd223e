//! One measurement of the demonstration, in a process of its own: threads that want one pthread mutex, a few shared cache lines
//! behind it, little to do outside.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::launch::Resources;
use crate::pthread::{self, Mutex};
use crate::screen;

/// Shared cache lines that a critical section writes.
const LINES: usize = 4;
/// Rounds of doing nothing between two critical sections, about a nanosecond each.
const OUTSIDE: u32 = 50;

/// One measurement, for `flashlock run`
#[derive(clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// Threads
    threads: u32,
    /// How long
    millis: u64,
}

/// What one measurement found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    /// The file that `pthread_mutex_lock` comes from.
    pub(super) provider: String,
    /// Critical sections of all threads.
    pub(super) operations: u64,
    /// What they counted without any protection but the mutex's.
    pub(super) counted: u64,
    /// Of the thread that had the fewest, and of the one that had the most.
    least_most: [u64; 2],
    elapsed_ns: u64,
    pub(super) longest_wait_ns: u64,
    pub(super) user_ns: u64,
    pub(super) system_ns: u64,
    pub(super) voluntary_switches: u64,
    pub(super) involuntary_switches: u64,
}

impl Sample {
    pub(super) fn ops_per_ms(&self) -> f64 {
        self.operations as f64 * 1e6 / self.elapsed_ns.max(1) as f64
    }
}

/// The command that measures.
pub(super) fn command(threads: u32, millis: u64) -> Result<Command, Failure> {
    let me = std::env::current_exe()
        .map_err(|error| Failure::new(format_args!("cannot find this command: {}", screen::reason(&error))))?;
    let mut command = Command::new(me);
    command.args(["demo-worker", &threads.to_string(), &millis.to_string()]);
    Ok(command)
}

/// Runs it.
pub(super) fn measure(command: &mut Command) -> Result<Sample, Failure> {
    let failed = |what: &dyn std::fmt::Display| Failure::new(format_args!("a measurement failed: {what}"));
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(&error))
}

#[repr(align(64))]
struct Line(UnsafeCell<u64>);

struct Shared {
    mutex: Mutex,
    lines: [Line; LINES],
    stop: AtomicBool,
    start: Barrier,
}

// SAFETY: the lines are touched by the mutex's holder only, which is what is being tried.
unsafe impl Sync for Shared {}

/// Runs the hidden verb.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let provider = pthread::provider("pthread_mutex_lock").unwrap_or_default();
    let lines = std::array::from_fn(|_| Line(UnsafeCell::new(0)));
    let start = Barrier::new(args.threads as usize + 1);
    let shared = Shared { mutex: Mutex::new(), lines, stop: AtomicBool::new(false), start };
    let before = usage(Duration::ZERO);
    let (done, elapsed) = thread::scope(|scope| {
        let start = || thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, || work(&shared));
        let threads: Vec<_> = (0..args.threads).map(|_| start()).collect();
        if let Some(error) = threads.iter().find_map(|thread| thread.as_ref().err()) {
            screen::complain(None, &format!("cannot start {} threads: {}", args.threads, screen::reason(error)));
            // The threads that did start wait for the others for ever.
            std::process::exit(1);
        }
        shared.start.wait();
        let begin = Instant::now();
        thread::sleep(Duration::from_millis(args.millis));
        shared.stop.store(true, Relaxed);
        let elapsed = begin.elapsed();
        let done: Vec<_> = threads.into_iter().flatten().filter_map(|thread| thread.join().ok()).collect();
        (done, elapsed)
    });
    let after = usage(elapsed);
    let counts = || done.iter().map(|done| done.operations);
    // SAFETY: all threads have ended.
    let counted = unsafe { *shared.lines[LINES - 1].0.get() };
    let ns = |time: Duration| time.as_nanos() as u64;
    let sample = Sample {
        provider,
        operations: counts().sum(),
        counted,
        least_most: [counts().min().unwrap_or(0), counts().max().unwrap_or(0)],
        elapsed_ns: ns(elapsed),
        longest_wait_ns: done.iter().map(|done| done.longest_wait_ns).max().unwrap_or(0),
        user_ns: ns(after.user - before.user),
        system_ns: ns(after.system - before.system),
        voluntary_switches: after.voluntary_switches - before.voluntary_switches,
        involuntary_switches: after.involuntary_switches - before.involuntary_switches,
    };
    screen::emit(&serde_json::to_string(&sample).map_err(Failure::new)?)?;
    Ok(0)
}

/// What one thread did.
struct Done {
    operations: u64,
    longest_wait_ns: u64,
}

fn work(shared: &Shared) -> Done {
    let mut done = Done { operations: 0, longest_wait_ns: 0 };
    shared.start.wait();
    while !shared.stop.load(Relaxed) {
        let begin = Instant::now();
        if !shared.mutex.lock() {
            break;
        }
        let waited = begin.elapsed();
        for line in &shared.lines {
            // SAFETY: this thread holds the mutex.
            unsafe { line.0.get().write_volatile(line.0.get().read_volatile() + 1) };
        }
        shared.mutex.unlock();
        done.operations += 1;
        done.longest_wait_ns = done.longest_wait_ns.max(waited.as_nanos() as u64);
        for round in 0..OUTSIDE {
            black_box(round);
        }
    }
    done
}

fn usage(elapsed: Duration) -> Resources {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: writes the structure, for which all-zero is valid as well.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    Resources::new(elapsed, &usage)
}
