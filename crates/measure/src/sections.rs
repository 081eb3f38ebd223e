//! How many sections threads run under a lock.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use flashlock_workloads::shared_lines::{Job, SharedLines};
use flashlock_workloads::{Here, Lock, Workload};

/// The sections per second of so many threads, measured for `long`, with so many ns between two sections of a thread.
/// Also returns the lines that they have worked on.
pub fn rate<L: Lock + Send>(lock: L, threads: usize, delay: u32, long: Duration) -> (f64, SharedLines<L, Here>) {
    let mut lock = Some(lock);
    let make = || lock.take().expect("one lock is made");
    let lines: SharedLines<L, Here> = SharedLines::new(make, Job::LINES.with_delay(delay));
    let (stop, start) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let work = |number: usize| {
        let mut client = lines.client(1, number as u32);
        start.wait();
        let mut done = 0_u64;
        while !stop.load(Relaxed) {
            lines.operate(&mut client);
            done += 1;
        }
        done
    };
    let work = &work;
    let rate = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
        start.wait();
        let begun = Instant::now();
        thread::sleep(long);
        stop.store(true, Relaxed);
        let done: u64 = workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum();
        done as f64 / begun.elapsed().as_secs_f64()
    });
    (rate, lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::Served;

    #[test]
    fn sections_are_counted() {
        let (rate, mut lines) = rate(Served::new().unwrap(), 2, 0, Duration::from_millis(5));
        assert!(rate > 0.0);
        assert!(lines.check(0).is_err(), "sections were done");
    }
}
