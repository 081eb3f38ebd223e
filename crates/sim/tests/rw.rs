//! The readers-writer locks on simulated machines: they exclude, they end, and the same seed gives the same run.

mod common;

use std::cell::Cell;
use std::rc::Rc;

use common::{at_rest, has_its_turn, taken_away};

use flashlock_busted::BustedRw;
use flashlock_erased::RwLock;
use flashlock_erased::sim::{self, RW_LOCKS};
use flashlock_locks::machine::{Machine, Time as _};
use flashlock_locks::rw::{Reader, Writer};
use flashlock_sim::{Description, Options, Outcome, Region, Sim, Simulation, compute, nap};

/// Data that only mutual exclusion protects.
#[derive(Default)]
struct Inside {
    readers: Cell<u32>,
    writers: Cell<u32>,
    writes: Cell<u64>,
    /// The highest number of concurrent readers.
    most: Cell<u32>,
    broken: Cell<bool>,
}

impl Inside {
    fn look(&self, data: &Region) {
        self.readers.set(self.readers.get() + 1);
        self.most.set(self.most.get().max(self.readers.get()));
        let seen = self.writes.get();
        data.read(0);
        section();
        self.broken.set(self.broken.get() | (self.writers.get() != 0) | (self.writes.get() != seen));
        self.readers.set(self.readers.get() - 1);
    }

    fn write(&self, data: &Region) {
        self.broken.set(self.broken.get() | (self.writers.get() + self.readers.get() != 0));
        self.writers.set(self.writers.get() + 1);
        data.write(0);
        section();
        self.broken.set(self.broken.get() | (self.writers.get() != 1) | (self.readers.get() != 0));
        self.writes.set(self.writes.get() + 1);
        self.writers.set(self.writers.get() - 1);
    }
}

/// Mostly short; sometimes long enough for waiters to fall asleep; sometimes the holder itself sleeps.
fn section() {
    match Sim::random() % 64 {
        0 => nap(1_000.0),
        1..8 => compute(20_000.0),
        _ => compute(f64::from(Sim::random() % 500)),
    }
}

/// Places a lock.
type New = fn(&mut Simulation) -> sim::RwLock;

#[derive(Clone, Copy)]
struct Torture {
    threads: u32,
    rounds: u32,
    seed: u64,
}

/// The outcome of a torture.
#[derive(Debug, PartialEq)]
struct Seen {
    outcome: Outcome,
    reads: u64,
    writes: u64,
    counted: u64,
    most: u32,
    broken: bool,
}

/// One read or write acquisition, which may time out, and its section. Returns (reads, writes).
fn round(lock: &dyn RwLock, inside: &Inside, data: &Region) -> (u64, u64) {
    let timed = Sim::random().is_multiple_of(4);
    let until = timed.then(|| Sim::sooner(Sim::random() % 100, None));
    let writes = Sim::random().is_multiple_of(4);
    let held = match (writes, Sim::random() % 8) {
        (true, 0) => lock.try_write(),
        (true, _) => lock.write(Writer::Fair, until).is_ok(),
        (false, 0) => lock.try_read(Reader::Newcomer).is_ok(),
        (false, _) => lock.read(Reader::Newcomer, until).is_ok(),
    };
    if held && writes {
        inside.write(data);
    } else if held {
        inside.look(data);
    }
    if held {
        // SAFETY: this thread holds it.
        unsafe { lock.unlock() };
    }
    compute(f64::from(Sim::random() % 1_000));
    (u64::from(held && !writes), u64::from(held && writes))
}

impl Torture {
    fn run(self, new: New, machine: &Description) -> Seen {
        let mut machine = machine.clone();
        machine.scheduler.slice_us = 100.0;
        machine.cache.llc.kib = machine.cache.llc.ways * 64; // Small caches are made quickly.
        let options = Options { seed: self.seed, placement: self.seed, ..Options::default() };
        let mut simulation = Simulation::new(&machine, options);
        let lock = new(&mut simulation);
        let (inside, data) = (Rc::new(Inside::default()), Rc::new(Region::new(4)));
        let done = Rc::new(Cell::new((0, 0)));
        for _ in 0..self.threads {
            let (lock, inside, data, done) = (Rc::clone(&lock), Rc::clone(&inside), Rc::clone(&data), Rc::clone(&done));
            simulation.spawn(move || {
                for _ in 0..self.rounds {
                    let (reads, writes) = round(&*lock, &inside, &data);
                    done.set((done.get().0 + reads, done.get().1 + writes));
                }
            });
        }
        let outcome = simulation.run().unwrap_or_else(|stuck| panic!("{stuck}"));
        let (reads, writes) = done.get();
        let (counted, most, broken) = (inside.writes.get(), inside.most.get(), inside.broken.get());
        Seen { outcome, reads, writes, counted, most, broken }
    }
}

fn several_seeds(name: &str, new: New, machine: &Description, threads: u32) {
    for seed in 1..4 {
        let torture = Torture { threads, rounds: 60, seed };
        let seen = torture.run(new, machine);
        assert!(!seen.broken && seen.counted == seen.writes, "{name}, seed {seed}: {seen:?}");
        assert!(seen.writes > 0 && seen.most > 1, "{name}: no writers, or no two readers at once: {seen:?}");
        if seed == 1 {
            assert_eq!(seen, torture.run(new, machine), "{name}: another run of the same seed");
        }
    }
}

/// Every lock with every way of waiting.
fn for_all(mut act: impl FnMut(&str, New)) {
    for entry in RW_LOCKS {
        act(entry.name, entry.new);
    }
}

/// The rounds of each thread, of so many rounds in all; fewer in builds without optimisation.
const fn rounds(all: u32, threads: u32) -> u32 {
    all.div_ceil(if cfg!(debug_assertions) { 8 * threads } else { threads })
}

fn excludes(lock: &str, new: New, machine: &Description, torture: Torture) {
    let seen = torture.run(new, machine);
    let what = format!("{lock} on {} with {} threads: {seen:?}", machine.name, torture.threads);
    assert!(!seen.broken && seen.counted == seen.writes, "{what}");
    assert!(seen.reads > 0 && seen.writes > 0, "no readers, or no writers: {what}");
}

fn on_all_machines(threads: impl Fn(u32) -> u32) {
    for (round, machine) in Description::names().enumerate() {
        let machine = Description::find(machine).expect("a machine of ours");
        let threads = threads(machine.cpus());
        let torture = Torture { threads, rounds: rounds(2_000, threads), seed: 3 };
        for (_, entry) in RW_LOCKS.iter().enumerate().filter(|(number, _)| has_its_turn(*number, round)) {
            excludes(entry.name, entry.new, &machine, torture);
        }
    }
}

#[test]
fn every_lock_excludes_with_few_threads() {
    on_all_machines(|_| 7);
}

#[test]
fn every_lock_excludes_on_full_machines() {
    on_all_machines(|cpus| cpus);
}

#[test]
fn every_lock_excludes_with_more_threads_than_cpus() {
    on_all_machines(|cpus| cpus + cpus / 4);
}

#[test]
fn every_lock_excludes_where_a_hypervisor_takes_cpus_away_and_where_waiters_rest() {
    for machine in [taken_away(), at_rest()] {
        for threads in [7, 16, 20] {
            let torture = Torture { threads, rounds: rounds(2_000, threads), seed: 5 };
            for_all(|lock, new| excludes(lock, new, &machine, torture));
        }
    }
}

#[test]
fn every_seed_excludes_and_gives_the_same_run_again() {
    for (machine, threads) in [("2x18x2", 16), ("2x18x2", 100), ("8x24", 40)] {
        let machine = Description::find(machine).expect("a machine of ours");
        for_all(|lock, new| {
            // If waiters poll for ever, surplus threads take turns by the slice: the test above covers that once, which
            // is enough.
            if !lock.ends_with(":wait=spin") || threads <= machine.cpus() {
                several_seeds(lock, new, &machine, threads);
            }
        });
    }
}

#[test]
fn a_broken_lock_is_caught() {
    let machine = Description::find("2x18x2").expect("a machine of ours");
    let caught =
        (1..20).any(|seed| Torture { threads: 16, rounds: 400, seed }.run(sim::rw_lock::<BustedRw>, &machine).broken);
    assert!(caught, "a lock that admits one too many in 10,000 is not noticed");
}

/// A writer gets in among readers that never leave the lock empty.
#[test]
fn writers_do_not_starve() {
    use flashlock_locks::parts::wait::SpinThenPark;
    use flashlock_locks::rw::ShflRw;
    let machine = Description::find("2x18x2").expect("a machine of ours");
    let mut simulation = Simulation::new(&machine, Options::default());
    let lock = sim::rw_lock::<ShflRw<SpinThenPark>>(&mut simulation);
    let over = Rc::new(Cell::new(false));
    for _ in 0..8 {
        let (lock, over) = (Rc::clone(&lock), Rc::clone(&over));
        simulation.spawn(move || {
            while !over.get() {
                assert!(lock.read(Reader::Newcomer, None).is_ok());
                compute(50_000.0);
                // SAFETY: this thread holds it.
                unsafe { lock.unlock() };
            }
        });
    }
    {
        let (lock, over) = (Rc::clone(&lock), Rc::clone(&over));
        simulation.spawn(move || {
            compute(10_000.0);
            for _ in 0..5 {
                assert!(lock.write(Writer::Fair, None).is_ok());
                compute(1_000.0);
                // SAFETY: this thread holds it.
                unsafe { lock.unlock() };
            }
            over.set(true);
        });
    }
    simulation.run().unwrap_or_else(|stuck| panic!("{stuck}"));
}
