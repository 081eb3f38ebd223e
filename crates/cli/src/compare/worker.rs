//! One run of the key-value map: a process of its own, so that its pthread mutex is whatever the dynamic linker gives it, as in
//! any program.

use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use flashlock_workloads::history::fairness_factor;
use flashlock_workloads::key_value::Mix;
use flashlock_workloads::{KeyValue, Lock, Workload};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::pthread::{self, Mutex};
use crate::{preload, screen};

/// The hidden verb's name.
const VERB: &str = "map-worker";
/// Threads are many and do little.
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
}

/// What one run found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    /// The file that `pthread_mutex_lock` comes from.
    provider: String,
    /// Of all threads.
    operations: u64,
    elapsed_ns: u64,
    pub(super) fairness: f64,
    /// What the map's check found wrong.
    wrong: Option<String>,
}

impl Sample {
    /// From what a run printed, once it is seen that the mutex was the one that was meant, and that it excluded.
    pub(super) fn read(text: &str, ours: bool) -> Result<Self, String> {
        let sample: Self = serde_json::from_str(text).map_err(|error| format!("it printed no result: {error}"))?;
        if preload::is_ours(std::ffi::OsStr::new(&sample.provider)) != ours {
            return Err(format!(
                "it ran with the locks of {}, which was not intended; ask: flashlock doctor",
                sample.provider
            ));
        }
        match &sample.wrong {
            Some(what) => Err(format!("the lock failed to exclude ({what}); please report this")),
            None => Ok(sample),
        }
    }

    /// Operations per microsecond.
    pub(super) fn ops_per_us(&self) -> f64 {
        self.operations as f64 * 1e3 / self.elapsed_ns.max(1) as f64
    }
}

// SAFETY: a pthread mutex excludes, whoever's it is; whether one does is what the check finds out.
unsafe impl Lock for Mutex {
    fn acquire(&self) {
        self.lock();
    }

    fn release(&self) {
        self.unlock();
    }
}

/// The command of one run.
pub(super) fn command(threads: u32, millis: u64, external: u32, seed: u64) -> Result<Command, Failure> {
    let me = std::env::current_exe()
        .map_err(|error| Failure::new(format_args!("cannot find this command: {}", screen::reason(&error))))?;
    let mut command = Command::new(me);
    command.arg(VERB).args([u64::from(threads), millis, u64::from(external), seed].map(|number| number.to_string()));
    Ok(command)
}

/// Runs the hidden verb.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let mix = Mix { external: args.external, ..Mix::PAPER };
    let mut shared: KeyValue<Mutex> = KeyValue::new(Mutex::new(), mix, args.seed);
    let (stop, start) = (AtomicBool::new(false), Barrier::new(args.threads as usize + 1));
    let (mut done, elapsed) = thread::scope(|scope| {
        let (shared, stop, barrier) = (&shared, &stop, &start);
        let work = |number: u32| {
            move || {
                let mut client = shared.client(args.seed, number);
                barrier.wait();
                let mut operations = 0_u64;
                // One at least, also of a thread that had no CPU before the time was over.
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
            // The threads that did start wait for the others for ever.
            std::process::exit(1);
        }
        barrier.wait();
        let begin = Instant::now();
        thread::sleep(Duration::from_millis(args.millis));
        stop.store(true, Relaxed);
        let elapsed = begin.elapsed();
        let done: Vec<u64> = threads.into_iter().flatten().filter_map(|thread| thread.join().ok()).collect();
        (done, elapsed)
    });
    let operations = done.iter().sum();
    let sample = Sample {
        provider: pthread::provider("pthread_mutex_lock").unwrap_or_default(),
        operations,
        elapsed_ns: elapsed.as_nanos() as u64,
        fairness: fairness_factor(&mut done).unwrap_or(0.5),
        wrong: shared.check(operations).err().map(str::to_owned),
    };
    screen::emit(&serde_json::to_string(&sample).map_err(Failure::new)?)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(provider: &str, wrong: Option<&str>) -> String {
        let wrong = wrong.map(str::to_owned);
        let sample =
            Sample { provider: provider.into(), operations: 5000, elapsed_ns: 1_000_000, fairness: 0.5, wrong };
        serde_json::to_string(&sample).unwrap()
    }

    #[test]
    fn only_what_was_meant_to_run_counts() {
        let (glibc, ours) = (sample("/lib/libc.so.6", None), sample("/x/libflashlock_preload.so", None));
        assert_eq!(Sample::read(&glibc, false).unwrap().ops_per_us(), 5.0);
        assert!(Sample::read(&ours, true).is_ok());
        assert!(Sample::read(&glibc, true).unwrap_err().contains("not intended"));
        assert!(
            Sample::read(&sample("/lib/libc.so.6", Some("lost")), false).unwrap_err().contains("failed to exclude")
        );
        assert!(Sample::read("", false).unwrap_err().contains("no result"));
    }
}
