//! A loop of constant work. Between the runs, when nothing else of ours is running, its time can only change with the machine:
//! other users of the CPUs, clock rates, a hypervisor.
//!
//! It runs on every usable CPU at once, a thread bound to each, for a single thread would be given whichever CPU is free and see
//! nothing of who uses the others. The slowest counts: a program with many threads waits for it, too.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::thread;
use std::time::Instant;

use flashlock_report::statistics::Random;

/// A few milliseconds: short beside a run, long beside what reading the clock takes.
const ROUNDS: u32 = 1_500_000;
/// The loop needs next to no stack.
const STACK_BYTES: usize = 64 << 10;

/// Runs the loop once on every CPU; how long the slowest took, in ns. `None` if a CPU cannot be had, so that times of
/// different things are never compared.
pub(super) fn time_of_loop() -> Option<f64> {
    let cpus = usable_cpus()?;
    thread::scope(|scope| {
        let spawn = |&cpu: &usize| {
            let work = move || bind_to(cpu).then(time_here);
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

/// The CPUs that this process may use.
fn usable_cpus() -> Option<Vec<usize>> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the set is writable and as large as is said, and all-zero is a valid one.
    let set = unsafe {
        let failed = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) != 0;
        (!failed).then_some(set.assume_init())?
    };
    // SAFETY: every number is below the set's size.
    Some((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// Whether the calling thread runs on this CPU alone from now on.
fn bind_to(cpu: usize) -> bool {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: all-zero is a valid set, the number came from one of this size, and the call only reads it.
    unsafe {
        let set = set.assume_init_mut();
        libc::CPU_SET(cpu, set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_runs_on_every_cpu_and_leaves_this_thread_free() {
        let before = usable_cpus();
        assert!(time_of_loop().is_some_and(|time| time > 0.0));
        assert!(before == usable_cpus() && before.is_some_and(|cpus| !cpus.is_empty()));
    }

    #[test]
    fn a_bound_thread_stays_where_it_is() {
        let last = usable_cpus().unwrap().pop().unwrap();
        let bound = thread::spawn(move || (bind_to(last), usable_cpus())).join().unwrap();
        assert_eq!(bound, (true, Some(vec![last])));
    }
}
