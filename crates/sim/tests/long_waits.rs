//! How waiters behave while a section lasts much longer than it should.

mod common;

use std::cell::Cell;
use std::rc::Rc;

use flashlock_erased::sim::{self, MUTEXES};
use flashlock_locks::catalogue::LOCKS;
use flashlock_locks::machine::Tunables;
use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::malthusian::{Mcscr, Mcscrn};
use flashlock_locks::mutex::queue::{Mcs, McsTp};
use flashlock_locks::mutex::shuffle::Shfl;
use flashlock_locks::mutex::spin::Futex;
use flashlock_locks::parts::wait::Spin;
use flashlock_sim::{Description, Options, Simulation, compute, now};

/// Places a lock.
type New = fn(&mut Simulation) -> sim::Mutex;

/// How often the second of two threads sleeps while the first one holds the lock for 100 ms. Each has a CPU of its own.
fn sleeps(new: New) -> u64 {
    let machine = Description::find("2x18x2").unwrap();
    let mut simulation = Simulation::new(&machine, Options::default());
    let lock = new(&mut simulation);
    let same = Rc::clone(&lock);
    simulation.spawn(move || {
        lock.lock();
        compute(100e6);
        // SAFETY: this thread holds it.
        unsafe { lock.unlock() };
    });
    simulation.spawn(move || {
        compute(10e3);
        same.lock();
        // SAFETY: this thread holds it.
        unsafe { same.unlock() };
    });
    simulation.run().unwrap_or_else(|stuck| panic!("{stuck}")).voluntary_switches
}

/// A polling waiter might outrank the holder and occupy its CPU. Then the holder runs only while the waiter sleeps:
/// yielding the CPU is not enough.
#[test]
fn nobody_polls_through_a_long_wait_unless_told_to() {
    for entry in MUTEXES {
        // Locks without another way of waiting nap during a long wait.
        let info = LOCKS.iter().find(|info| info.name == entry.lock).expect("a row");
        let told = entry.wait == "spin" && info.waits.len() > 1;
        assert_eq!(sleeps(entry.new) == 0, told, "{}", entry.name);
    }
}

/// How many sections four threads complete in two seconds on two CPUs, while four others compute there, in slices of 3
/// ms. The successor is seldom running.
fn sections_beside_others(new: New) -> u64 {
    const END: u64 = 2_000_000_000;
    let mut machine = common::tiny(1, 2);
    machine.scheduler.slice_us = 3000.0;
    let mut simulation = Simulation::new(&machine, Options::default());
    let lock = new(&mut simulation);
    let sections = Rc::new(Cell::new(0));
    for _ in 0..4 {
        simulation.spawn(|| compute(END as f64));
        let (lock, sections) = (Rc::clone(&lock), Rc::clone(&sections));
        simulation.spawn(move || {
            while now() < END {
                lock.lock();
                compute(500.0);
                sections.set(sections.get() + 1);
                // SAFETY: this thread holds it.
                unsafe { lock.unlock() };
                compute(500.0);
            }
        });
    }
    simulation.run().unwrap_or_else(|stuck| panic!("{stuck}"));
    sections.get()
}

/// A lock that is handed to a thread that does not run is idle until that thread runs. If `shfl` did not learn how long
/// that takes, it would complete less than half as many sections as a lock without hand-offs.
#[test]
fn a_lock_is_not_handed_over_more_often_than_it_is_worth() {
    let (shfl, futex) = (sections_beside_others(sim::mutex::<Shfl>), sections_beside_others(sim::mutex::<Futex>));
    assert!(shfl * 4 > futex * 3, "{shfl}, and {futex} of a lock that is free for all");
}

/// The outcome for a lock whose waiters poll for ever.
#[derive(Debug)]
struct Crowd {
    sections: u64,
    /// Hand-offs after which the lock was idle for 100 µs or more.
    still: u64,
    evictions: u64,
    /// The sections of the thread that had the lock least often.
    least: u64,
}

/// Eight threads on four CPUs compete for the lock for a tenth of a second, in slices of 3 ms.
fn crowd(new: New, tunables: &'static Tunables) -> Crowd {
    const END: u64 = 100_000_000;
    const STILL: u64 = 100_000;
    let mut machine = common::tiny(4, 1);
    machine.scheduler.slice_us = 3000.0;
    let mut simulation = Simulation::new(&machine, Options { tunables, ..Options::default() });
    let lock = new(&mut simulation);
    let (released, still) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let had: Rc<[Cell<u64>; 8]> = Rc::default();
    for thread in 0..had.len() {
        let (lock, had) = (Rc::clone(&lock), Rc::clone(&had));
        let (released, still) = (Rc::clone(&released), Rc::clone(&still));
        simulation.spawn(move || {
            while now() < END {
                let asked = now();
                lock.lock();
                let stood_still = released.get() > asked && now() - released.get() > STILL;
                still.set(still.get() + u64::from(stood_still));
                compute(500.0);
                had[thread].set(had[thread].get() + 1);
                released.set(now());
                // SAFETY: this thread holds it.
                unsafe { lock.unlock() };
                compute(500.0);
            }
        });
    }
    let outcome = simulation.run().unwrap_or_else(|stuck| panic!("{stuck}"));
    Crowd {
        sections: had.iter().map(Cell::get).sum(),
        still: still.get(),
        evictions: outcome.counts[Event::Evict as usize],
        least: had.iter().map(Cell::get).min().unwrap_or(0),
    }
}

/// With `evict=1`, and with `mcs-tp`, a preempted waiter is passed over, and the running waiters get the lock. The
/// compared numbers differ about tenfold.
#[test]
fn waiters_that_lost_their_cpu_are_passed_over() {
    static EVICT: Tunables = Tunables { evict: 1, ..Tunables::DEFAULT };
    let pairs = [
        (
            "mcs",
            crowd(sim::mutex::<Mcs<Spin>>, &Tunables::DEFAULT),
            crowd(sim::mutex::<McsTp<Spin>>, &Tunables::DEFAULT),
        ),
        ("mcscr", crowd(sim::mutex::<Mcscr<Spin>>, &Tunables::DEFAULT), crowd(sim::mutex::<Mcscr<Spin>>, &EVICT)),
        ("mcscrn", crowd(sim::mutex::<Mcscrn<Spin>>, &Tunables::DEFAULT), crowd(sim::mutex::<Mcscrn<Spin>>, &EVICT)),
    ];
    for (lock, off, on) in pairs {
        println!("{lock}: {off:?}, with evictions {on:?}");
        assert!(on.sections > 3 * off.sections && 2 * on.still < off.still, "{lock}: {off:?}, {on:?}");
        assert!(on.evictions > 0 && off.evictions == 0 && on.least > off.least, "{lock}: {off:?}, {on:?}");
    }
}
