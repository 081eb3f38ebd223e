//! Threads that keep their CPU, as kernel threads do while they hold a spin lock, with more threads than CPUs.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use common::{Log, simulation, tiny};
use flashlock_locks::machine::{Patience, Time as _, Waiting as _, Word as _};
use flashlock_locks::mutex::queue::Mcs;
use flashlock_locks::parts::raw::Raw;
use flashlock_locks::parts::wait::Spin;
use flashlock_sim::{
    Outcome, Sim, Word, compute, disable_preemption, enable_preemption, nap, now, thread_cpu, thread_number,
};

const US: u64 = 1_000;

#[test]
fn the_end_of_a_slice_waits_until_preemption_is_enabled() {
    for keeps in [true, false] {
        let (mut simulation, log) = (simulation(&tiny(1, 1)), Log::new());
        let (first, second) = (log.clone(), log.clone());
        simulation.spawn(move || {
            if keeps {
                disable_preemption();
            }
            compute(250e3);
            first.write(now());
            if keeps {
                enable_preemption();
            }
            first.write(now());
        });
        simulation.spawn(move || second.write(now()));
        let outcome = simulation.run().unwrap();
        let times = log.take();
        if keeps {
            // A switch and 250 us. The second thread runs after another switch, and what it leaves comes after a third.
            assert_eq!(times, [251 * US, 252 * US, 253 * US]);
            assert_eq!(outcome.involuntary_switches, 1);
        } else {
            // After the first thread's slice of 100 us, the second one runs, and returns at once.
            assert_eq!(times, [101 * US, 253 * US, 253 * US]);
        }
    }
}

#[test]
fn who_keeps_its_cpu_does_not_offer_it_but_may_sleep() {
    let (mut simulation, log) = (simulation(&tiny(1, 1)), Log::new());
    let word = Rc::new(simulation.place("word", Word::new(0)));
    let (theirs, other, same) = (log.clone(), log.clone(), Rc::clone(&word));
    simulation.spawn(move || {
        disable_preemption();
        // A thread that polls for so long would otherwise yield its CPU.
        let until = Sim::sooner(5_000, None);
        assert_eq!(Sim::spin_until(&**word, Relaxed, Patience::Until(until), |seen| seen == 1), None);
        theirs.write("polled");
        nap(50e3);
        theirs.write("slept");
        enable_preemption();
    });
    simulation.spawn(move || {
        other.write("other");
        same.store(1, Relaxed);
    });
    let seen = simulation.run().unwrap();
    assert_eq!(log.take(), ["polled", "other", "slept"]);
    assert_eq!((seen.involuntary_switches, seen.voluntary_switches), (0, 1));
}

#[test]
fn those_who_wait_for_a_kept_cpu_go_to_an_idle_one() {
    let mut simulation = simulation(&tiny(2, 1));
    let log = Log::new();
    for number in 0..3 {
        let log = log.clone();
        simulation.spawn(move || {
            if number == 0 {
                disable_preemption();
                let before = now();
                compute(1e6);
                assert_eq!(now() - before, 1_000 * US, "it is not interrupted");
                enable_preemption();
            } else {
                compute(150e3);
                log.write(thread_cpu());
            }
        });
    }
    simulation.run().unwrap();
    let cpus = log.take();
    assert_eq!((cpus.len(), cpus[0]), (2, cpus[1]), "the other one serves both");
}

/// Twelve threads on four CPUs compete for a lock. Returns how often a thread began to acquire it on a CPU whose
/// previous thread held it or waited for it, and the outcome of the run.
fn contended(keeps: bool) -> (u32, Outcome) {
    let mut simulation = simulation(&tiny(4, 1));
    let lock = Rc::new(simulation.place("lock", Raw::<Sim, Mcs<Spin>>::new()));
    let lost = Rc::new(Cell::new(0));
    // By CPU: the thread that holds the lock or waits for it.
    let inside: Rc<[Cell<Option<u32>>; 4]> = Rc::default();
    for _ in 0..12 {
        let (lock, lost, inside) = (Rc::clone(&lock), Rc::clone(&lost), Rc::clone(&inside));
        simulation.spawn(move || {
            for _ in 0..200 {
                if keeps {
                    disable_preemption();
                }
                let here = &inside[thread_cpu() as usize];
                let begins = |other: Option<u32>| lost.set(lost.get() + u32::from(other.is_some()));
                begins(here.replace(Some(thread_number())));
                lock.lock();
                compute(2e3);
                // SAFETY: this thread holds it.
                unsafe { lock.unlock() };
                here.set(None);
                if keeps {
                    enable_preemption();
                }
                compute(1e3);
            }
        });
    }
    let outcome = simulation.run().unwrap();
    (lost.get(), outcome)
}

#[test]
fn nobody_loses_its_cpu_with_a_spin_lock_or_before_it() {
    let (lost, kept) = contended(true);
    assert_eq!(lost, 0);
    assert!(kept.involuntary_switches > 20, "but outside they take turns: {kept:?}");
    let (lost, free) = contended(false);
    assert!(lost > 0, "without that, some do");
    assert!(kept.ns * 2.0 < free.ns, "and the others wait for them: {} and {}", kept.ns, free.ns);
}
