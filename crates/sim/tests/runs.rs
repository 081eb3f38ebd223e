//! The locks on simulated machines: they exclude, they end, and the same seed gives the same run.

mod common;

use std::cell::Cell;
use std::rc::Rc;

use common::{ROUNDS, at_rest, has_its_turn, taken_away};

use flashlock_busted::Busted;
use flashlock_erased::Mutex;
use flashlock_erased::sim::{self, MUTEXES};
use flashlock_locks::machine::{Machine, Time as _};
use flashlock_locks::mutex::queue::Mcs;
use flashlock_locks::mutex::spin::Tas;
use flashlock_locks::parts::wait::Umwait;
use flashlock_sim::{Description, Options, Outcome, Region, Sim, Simulation, compute, nap};

/// Data that only mutual exclusion protects.
#[derive(Default)]
struct Inside {
    somebody: Cell<bool>,
    count: Cell<u64>,
    broken: Cell<bool>,
}

impl Inside {
    /// One section. If another thread is inside, or the count changes before the end, the lock is broken.
    fn enter(&self, data: &Region, work: impl FnOnce()) {
        self.broken.set(self.broken.get() | self.somebody.replace(true));
        let count = self.count.get();
        data.write(0);
        work();
        data.read(1);
        self.broken.set(self.broken.get() | (self.count.get() != count));
        self.count.set(count + 1);
        self.somebody.set(false);
    }
}

/// Places a lock.
type New = fn(&mut Simulation) -> sim::Mutex;

#[derive(Clone, Copy)]
struct Torture {
    threads: u32,
    rounds: u32,
    seed: u64,
    /// Short slices cause preemptions.
    slice_us: f64,
}

/// The outcome of a torture.
#[derive(Debug, PartialEq)]
struct Seen {
    outcome: Outcome,
    /// Acquisitions, time-outs, and counted sections.
    acquired: u64,
    gave_up: u64,
    counted: u64,
    broken: bool,
}

impl Torture {
    fn run(self, new: New, machine: &Description) -> Seen {
        let mut machine = machine.clone();
        machine.scheduler.slice_us = self.slice_us;
        machine.cache.llc.kib = machine.cache.llc.ways * 64; // Small caches are made quickly.
        let options = Options { seed: self.seed, placement: self.seed, ..Options::default() };
        let mut simulation = Simulation::new(&machine, options);
        let lock = new(&mut simulation);
        let (inside, data) = (Rc::new(Inside::default()), Rc::new(Region::new(4)));
        let (acquired, gave_up) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        for _ in 0..self.threads {
            let (lock, inside, data) = (Rc::clone(&lock), Rc::clone(&inside), Rc::clone(&data));
            let (acquired, gave_up) = (Rc::clone(&acquired), Rc::clone(&gave_up));
            simulation.spawn(move || {
                for _ in 0..self.rounds {
                    if acquire(&*lock) {
                        acquired.set(acquired.get() + 1);
                        inside.enter(&data, section);
                        // SAFETY: this thread holds it.
                        unsafe { lock.unlock() };
                    } else {
                        gave_up.set(gave_up.get() + 1);
                    }
                    compute(f64::from(Sim::random() % 1_000));
                }
            });
        }
        let outcome = simulation.run().unwrap_or_else(|stuck| panic!("{stuck}"));
        let (counted, broken) = (inside.count.get(), inside.broken.get());
        Seen { outcome, acquired: acquired.get(), gave_up: gave_up.get(), counted, broken }
    }
}

/// Mostly a plain acquisition; sometimes a short timed one, or only an attempt.
fn acquire(lock: &dyn Mutex) -> bool {
    match Sim::random() % 8 {
        0 => lock.try_lock(),
        1 | 2 => {
            let until = Sim::sooner(Sim::random() % 100, None);
            lock.lock_until(until).is_ok()
        }
        _ => {
            lock.lock();
            true
        }
    }
}

/// Mostly short; sometimes long enough for waiters to fall asleep; sometimes the holder itself sleeps.
fn section() {
    match Sim::random() % 64 {
        0 => nap(1_000.0),
        1 => compute(30_000.0),
        _ => compute(f64::from(Sim::random() % 300)),
    }
}

/// Every lock with every way of waiting.
fn for_all(mut act: impl FnMut(&str, New)) {
    for entry in MUTEXES {
        act(entry.name, entry.new);
    }
}

/// Fewer in builds without optimisation.
const fn rounds(rounds: u32) -> u32 {
    if cfg!(debug_assertions) { rounds.div_ceil(16) } else { rounds }
}

fn excludes(lock: &str, new: New, machine: &Description, torture: Torture) {
    let seen = torture.run(new, machine);
    let what = format!("{lock} on {} with {} threads: {seen:?}", machine.name, torture.threads);
    assert!(!seen.broken, "two were inside at once: {what}");
    assert_eq!(seen.counted, seen.acquired, "{what}");
    assert_eq!(seen.acquired + seen.gave_up, u64::from(torture.threads * torture.rounds), "{what}");
}

/// Every lock that has its turn in this round.
fn for_some(round: usize, mut act: impl FnMut(&str, New)) {
    for (_, entry) in MUTEXES.iter().enumerate().filter(|(number, _)| has_its_turn(*number, round)) {
        act(entry.name, entry.new);
    }
}

fn torture_with(threads: impl Fn(u32) -> u32, all_rounds: u32, slice_us: f64) {
    for (round, machine) in Description::names().enumerate() {
        let machine = Description::find(machine).unwrap();
        let threads = threads(machine.cpus());
        let rounds = rounds(all_rounds.div_ceil(threads));
        for_some(round, |lock, new| excludes(lock, new, &machine, Torture { threads, rounds, seed: 3, slice_us }));
    }
}

#[test]
fn there_are_machines_enough_for_every_lock_to_have_its_turn() {
    assert!(Description::names().count() >= ROUNDS);
}

#[test]
fn all_locks_exclude_and_end_with_few_threads() {
    for threads in [1, 2, 7] {
        torture_with(|_| threads, 1_400, 3_000.0);
    }
}

#[test]
fn all_locks_exclude_and_end_on_full_machines() {
    torture_with(|cpus| cpus, 2_500, 3_000.0);
}

#[test]
fn all_locks_exclude_and_end_with_more_threads_than_cpus() {
    torture_with(|cpus| cpus + cpus / 4, 2_500, 50.0);
}

#[test]
fn all_locks_exclude_and_end_where_threads_wait_for_cpus_all_the_time() {
    let mut machine = Description::find("2x18x2").unwrap();
    machine.topology.cores_per_node = 2;
    for seed in 0..2 * ROUNDS as u64 {
        let torture = Torture { threads: 24, rounds: rounds(120), seed, slice_us: 20.0 };
        for_some(seed as usize, |lock, new| excludes(lock, new, &machine, torture));
    }
}

#[test]
fn all_locks_exclude_and_end_where_a_hypervisor_takes_cpus_away_and_where_waiters_rest() {
    for machine in [taken_away(), at_rest()] {
        for (round, threads) in [2, 7, 16, 20].into_iter().enumerate() {
            let torture = Torture { threads, rounds: rounds(700_u32.div_ceil(threads)), seed: 4, slice_us: 50.0 };
            for_some(round, |lock, new| excludes(lock, new, &machine, torture));
        }
    }
}

#[test]
fn a_hypervisor_and_rest_make_other_runs() {
    // Otherwise, the torture above would only cover plain machines.
    let mut plain = taken_away();
    plain.hypervisor = None;
    let run = |machine: &Description| {
        Torture { threads: 7, rounds: 30, seed: 4, slice_us: 50.0 }.run(sim::mutex::<Mcs<Umwait>>, machine)
    };
    let [taken_away, at_rest, plain] = [taken_away(), at_rest(), plain].map(|machine| run(&machine).outcome);
    assert!(taken_away.ns > plain.ns, "{} {}", taken_away.ns, plain.ns);
    assert!(at_rest.joules * plain.ns < plain.joules * at_rest.ns, "who rests consumes less: {at_rest:?} {plain:?}");
}

#[test]
fn some_give_up() {
    // Otherwise, the tortures above would say little about timed acquisitions.
    let machine = Description::find("2x18x2").unwrap();
    for_all(|lock, new| {
        let seen = Torture { threads: 40, rounds: 10, seed: 1, slice_us: 50.0 }.run(new, &machine);
        assert!(seen.gave_up > 20 && seen.acquired > 200, "{lock}: {seen:?}");
    });
}

#[test]
fn a_lock_that_does_not_exclude_is_caught() {
    let mut machine = Description::find("2x18x2").unwrap();
    machine.topology.cores_per_node = 4;
    // One acquisition in 10,000 is let in wrongly.
    let caught = (0..40).any(|seed| {
        Torture { threads: 16, rounds: 200, seed, slice_us: 50.0 }.run(sim::mutex::<Busted>, &machine).broken
    });
    assert!(caught);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for machine in ["2x18x2", "opteron-6172"] {
        let machine = Description::find(machine).unwrap();
        for_all(|lock, new| {
            let torture = Torture { threads: machine.cpus() + 9, rounds: rounds(16), seed: 5, slice_us: 50.0 };
            let [first, second] = [(); 2].map(|()| format!("{:?}", torture.run(new, &machine)));
            assert_eq!(first, second, "{lock} on {}", machine.name);
        });
    }
}

#[test]
fn another_seed_gives_another_run() {
    let machine = Description::find("2x18x2").unwrap();
    let run =
        |seed| Torture { threads: 9, rounds: 30, seed, slice_us: 3_000.0 }.run(sim::mutex::<Tas>, &machine).outcome;
    assert_ne!(run(5), run(6));
}
