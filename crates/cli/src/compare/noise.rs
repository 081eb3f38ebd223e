//! A loop of constant work. Between the runs, when nothing else of ours is running, its time can only change with the machine:
//! other users of the CPUs, clock rates, a hypervisor.

use std::hint::black_box;
use std::time::Instant;

use flashlock_report::statistics::Random;

/// A few milliseconds: short beside a run, long beside what reading the clock takes.
const ROUNDS: u32 = 1_500_000;

/// Runs the loop once; how long it took, in ns.
pub(super) fn time_of_loop() -> f64 {
    let mut random = Random::new(1);
    let start = Instant::now();
    for _ in 0..ROUNDS {
        black_box(random.bits());
    }
    start.elapsed().as_nanos() as f64
}
