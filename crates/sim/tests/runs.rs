//! The locks on simulated machines: they exclude, they end, and the same seed gives the same run.

use std::cell::Cell;
use std::rc::Rc;

use flashlock_locks::catalogue::{LOCKS, LockId};
use flashlock_locks::for_each_lock;
use flashlock_locks::machine::Word as _;
use flashlock_locks::raw::RawLock;
use flashlock_sim::{Description, Options, Outcome, Region, Sim, Simulation, Word, compute, now};

struct Lock<L: RawLock<Sim>> {
    word: Word,
    queue: L::Queue,
}

/// Counts that only exclusion protects: a thread that finds somebody inside has found a broken lock.
#[derive(Default)]
struct Inside {
    somebody: Cell<bool>,
    count: Cell<u64>,
    broken: Cell<bool>,
}

fn contend<L: RawLock<Sim>>(machine: &str, threads: u32, rounds: u32, seed: u64) -> (Outcome, u64) {
    let machine = Description::find(machine).unwrap();
    let mut simulation = Simulation::new(&machine, Options { seed, placement: seed, ..Options::default() });
    let lock = Rc::new(simulation.place("lock", Lock::<L> { word: Word::new(0), queue: L::new_queue() }));
    let (inside, data) = (Rc::new(Inside::default()), Rc::new(Region::new(4)));
    for _ in 0..threads {
        let (lock, inside, data) = (Rc::clone(&lock), Rc::clone(&inside), Rc::clone(&data));
        simulation.spawn(move || {
            for _ in 0..rounds {
                L::lock(&lock.word, &lock.queue);
                inside.broken.set(inside.broken.get() | inside.somebody.replace(true));
                data.write(0);
                compute(50.0);
                data.read(1);
                inside.count.set(inside.count.get() + 1);
                inside.somebody.set(false);
                L::unlock(&lock.word, &lock.queue);
                compute(100.0);
            }
        });
    }
    let outcome = simulation.run().unwrap_or_else(|stuck| panic!("{stuck}"));
    assert!(!inside.broken.get(), "two threads were inside at once");
    (outcome, inside.count.get())
}

/// Every lock with every way of waiting.
fn for_all(mut act: impl FnMut(&str, fn(&str, u32, u32, u64) -> (Outcome, u64))) {
    macro_rules! all {
        ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
            $($(act(concat!($name, ":wait=", stringify!($wait)), contend::<$type>);)+)*
        };
    }
    for_each_lock!(all);
}

#[test]
fn all_locks_exclude_and_end_on_all_machines() {
    for machine in Description::names() {
        for_all(|lock, contend| {
            for threads in [1, 2, 7, 24] {
                let (_, count) = contend(machine, threads, 40, 3);
                assert_eq!(count, u64::from(threads) * 40, "{lock} on {machine} with {threads} threads");
            }
        });
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for_all(|lock, contend| {
        let (first, second) = (contend("2x18x2", 9, 30, 5), contend("2x18x2", 9, 30, 5));
        assert_eq!(first, second, "{lock}");
    });
    assert_ne!(
        contend::<flashlock_locks::spin::Tas>("2x18x2", 9, 30, 5).0,
        contend::<flashlock_locks::spin::Tas>("2x18x2", 9, 30, 6).0
    );
}

#[test]
fn more_threads_than_cpus_come_to_an_end() {
    for_all(|lock, contend| {
        let (_, count) = contend("2x18x2", 100, 5, 1);
        assert_eq!(count, 500, "{lock}");
    });
}

#[test]
fn a_deadlock_says_who_waits_for_what() {
    type Shfl = <Chosen as HasType>::Type;
    let machine = Description::find("2x18x2").unwrap();
    let mut simulation = Simulation::new(&machine, Options::default());
    let lock = Rc::new(simulation.place("the lock", Lock::<Shfl> { word: Word::new(0), queue: Shfl::new_queue() }));
    for _ in 0..2 {
        let lock = Rc::clone(&lock);
        simulation.spawn(move || Shfl::lock(&lock.word, &lock.queue));
    }
    let stuck = simulation.run().unwrap_err().to_string();
    assert!(stuck.contains("the simulated program hangs"), "{stuck}");
    assert!(stuck.contains("thread ") && stuck.contains("the lock"), "{stuck}");
    assert_eq!(stuck.lines().count(), 2, "one thread waits: {stuck}");
}

trait HasType {
    type Type: RawLock<Sim>;
}
struct Chosen;
impl HasType for Chosen {
    type Type = flashlock_locks::shuffle::Shfl<flashlock_locks::wait::SpinThenPark>;
}

#[test]
fn time_passes_as_the_description_says() {
    let machine = Description::find("2x18x2").unwrap();
    let mut simulation = Simulation::new(&machine, Options::default());
    let seen = Rc::new(Cell::new(0));
    let clock = Rc::clone(&seen);
    simulation.spawn(move || {
        let before = now();
        compute(10_000.0);
        clock.set(now() - before);
    });
    simulation.run().unwrap();
    assert_eq!(seen.get(), 10_000);
    assert_eq!(LOCKS[0].id, LockId::Tas);
}
