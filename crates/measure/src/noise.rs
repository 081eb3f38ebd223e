//! A loop of constant work, which measures the machine's noise. It runs between the measurements, when nothing else of
//! flashlock is running. So its time changes only with the machine: other users of the CPUs, clock rates, a hypervisor.
//!
//! It runs on every usable CPU at once, with a thread bound to each. The system would give a single thread whichever
//! CPU is free, and it would not notice other users of the other CPUs. The slowest thread counts, because a program
//! with many threads waits for it, too.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use flashlock_report::statistics::Random;

use crate::cpu;

/// A few milliseconds: short compared with a run, long compared with reading the clock.
const ROUNDS: u32 = 1_500_000;
/// The loop needs next to no stack.
const STACK_BYTES: usize = 64 << 10;

/// Runs the loop once on every CPU. Returns the time of the slowest, in ns. `None` if a CPU is not available, so that
/// only equal conditions are compared.
pub fn time_of_loop() -> Option<f64> {
    let cpus = cpu::usable()?;
    thread::scope(|scope| {
        let spawn = |&cpu: &u32| {
            let work = move || cpu::bind(cpu).then(time_here);
            thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work).ok()
        };
        let threads: Vec<_> = cpus.iter().map(spawn).collect();
        let mut times = threads.into_iter().map(|thread| thread?.join().ok()?);
        times.try_fold(0.0, |slowest: f64, time| Some(slowest.max(time?)))
    })
}

fn time_here() -> f64 {
    let mut random = Random::new(1);
    let start = Instant::now();
    for _ in 0..ROUNDS {
        black_box(random.bits());
    }
    start.elapsed().as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_runs_on_every_cpu_and_leaves_this_thread_free() {
        let before = cpu::usable();
        assert!(time_of_loop().is_some_and(|time| time > 0.0));
        assert!(before == cpu::usable() && before.is_some_and(|cpus| !cpus.is_empty()));
    }
}
