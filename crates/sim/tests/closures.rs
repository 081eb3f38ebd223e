//! Closure locks on simulated machines. Every request runs once and alone. The purpose of these locks shows, too: the
//! data stay in one core's cache.

mod common;

use std::cell::Cell;
use std::rc::Rc;

use common::{at_rest, taken_away};
use flashlock_locks::closure::{RawClosure, Request};
use flashlock_locks::for_each_standalone_lock;
use flashlock_locks::machine::Machine;
use flashlock_locks::parts::zeroed::Zeroed as _;
use flashlock_sim::{Description, Options, Region, Sim, Simulation, compute, nap, thread_number};

/// What the requests of a run access.
struct Inside {
    data: Region,
    somebody: Cell<bool>,
    count: Cell<u64>,
    /// Requests that a thread ran for another one.
    for_others: Cell<u64>,
}

#[repr(C)]
struct Section {
    request: Request,
    inside: *const Inside,
    thread: u32,
    done: Cell<bool>,
}

/// One section. If another thread is inside, or the count changes before the end, the lock is broken.
///
/// # Safety
/// The request is a section's.
unsafe fn section(request: *mut Request) {
    // SAFETY: the callers' promise; both outlive the run.
    let (section, inside) = unsafe { (&*request.cast::<Section>(), &*(*request.cast::<Section>()).inside) };
    assert!(!inside.somebody.replace(true), "two were inside at once");
    assert!(!section.done.replace(true), "run twice");
    let count = inside.count.get();
    inside.data.write(0);
    match Sim::random() % 64 {
        0 => nap(1_000.0),
        1 => compute(30_000.0),
        _ => compute(f64::from(Sim::random() % 300)),
    }
    inside.data.read(1);
    assert_eq!(inside.count.replace(count + 1), count, "two were inside at once");
    inside.for_others.set(inside.for_others.get() + u64::from(section.thread != thread_number()));
    assert!(inside.somebody.replace(false));
}

/// How many requests other threads ran.
fn torture<L: RawClosure<Sim>>(machine: &Description, threads: u32, rounds: u32) -> u64 {
    let mut machine = machine.clone();
    machine.cache.llc.kib = machine.cache.llc.ways * 64; // Small caches are made quickly.
    let mut simulation = Simulation::new(&machine, Options::default());
    let lock = Rc::new(simulation.place("lock", L::State::zeroed()));
    let (somebody, count, for_others) = Default::default();
    let inside = Rc::new(Inside { data: Region::new(4), somebody, count, for_others });
    for thread in 0..threads {
        let (lock, inside) = (Rc::clone(&lock), Rc::clone(&inside));
        simulation.spawn(move || {
            for _ in 0..rounds {
                let request = Request::new(section);
                let mut section = Section { request, inside: Rc::as_ptr(&inside), thread, done: Cell::new(false) };
                // SAFETY: the request stays here until this returns, and is not touched before; the lock outlives the
                // run.
                unsafe { L::run(&lock, (&raw mut section).cast()) };
                assert!(section.done.get(), "not run");
                compute(f64::from(Sim::random() % 1_000));
            }
        });
    }
    simulation.run().unwrap_or_else(|stuck| panic!("{stuck}"));
    assert_eq!(inside.count.get(), u64::from(threads * rounds));
    inside.for_others.get()
}

/// Every closure lock, with every way of waiting.
fn for_all(mut act: impl FnMut(&str, fn(&Description, u32, u32) -> u64)) {
    macro_rules! act {
        (closure, $name:expr, $type:ty) => {
            act($name, torture::<$type>)
        };
        (mutex, $name:expr, $type:ty) => {};
        (served, $name:expr, $type:ty) => {};
    }
    macro_rules! all {
        ($(($variant:ident, $name:literal, $interface:ident, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
            $($(act!($interface, concat!($name, ":wait=", stringify!($wait)), $type);)+)*
        };
    }
    for_each_standalone_lock!(all);
}

#[test]
fn closure_locks_run_every_request_once_and_alone() {
    for name in Description::names() {
        let machine = Description::find(name).unwrap();
        for threads in [1, 2, 7, machine.cpus(), machine.cpus() + machine.cpus() / 4] {
            let rounds = 1_400_u32.div_ceil(threads);
            for_all(|lock, run| {
                let for_others = run(&machine, threads, rounds);
                assert_eq!(for_others > 0, threads > 1, "{lock} on {name} with {threads} threads");
            });
        }
    }
}

#[test]
fn closure_locks_go_on_where_cpus_are_taken_away() {
    for machine in [taken_away(), at_rest()] {
        for_all(|_, run| _ = run(&machine, 24, 60));
    }
}
