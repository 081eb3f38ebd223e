//! What a waiter does while a section lasts much longer than it should.

use std::rc::Rc;

use flashlock_locks::for_each_lock;
use flashlock_locks::machine::Word as _;
use flashlock_locks::raw::RawLock;
use flashlock_sim::{Description, Options, Sim, Simulation, Word, compute};

/// How often the second of two threads sleeps while the first one holds the lock for 100 ms, each with a CPU of its own.
fn sleeps<L: RawLock<Sim>>() -> u64 {
    let machine = Description::find("2x18x2").unwrap();
    let mut simulation = Simulation::new(&machine, Options::default());
    let lock = Rc::new(simulation.place("lock", (Word::new(0), L::new_queue())));
    let same = Rc::clone(&lock);
    simulation.spawn(move || {
        L::lock(&lock.0, &lock.1);
        compute(100e6);
        L::unlock(&lock.0, &lock.1);
    });
    simulation.spawn(move || {
        compute(10e3);
        L::lock(&same.0, &same.1);
        L::unlock(&same.0, &same.1);
    });
    simulation.run().unwrap_or_else(|stuck| panic!("{stuck}")).voluntary_switches
}

/// It may outrank the holder and have its CPU, which then runs only while the waiter sleeps: to offer the CPU is not enough.
#[test]
fn nobody_polls_through_a_long_wait_unless_told_to() {
    macro_rules! all {
        ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
            $($(
                let (lock, told) = (concat!($name, ":wait=", stringify!($wait)), stringify!($wait) == "spin");
                assert_eq!(sleeps::<$type>() == 0, told, "{lock}");
            )+)*
        };
    }
    for_each_lock!(all);
}
