//! The workloads on the host, with threads. The generic code compiles for every lock of the catalogue, and detects a
//! lock that does not exclude.

use flashlock_locks::queue::Mcs;
use flashlock_locks::raw::RawLock;
use flashlock_locks::wait::SpinThenPark;
use flashlock_native::machine::Native;
use flashlock_workloads::key_value::Mix;
use flashlock_workloads::lock_torture::{Habits, Seldom};
use flashlock_workloads::rand_array::Reads;
use flashlock_workloads::sections::{LEVELDB_READRANDOM, LOCK2, OPEN1};
use flashlock_workloads::{KeyValue, Lock, LockTorture, RandArray, Raw, Sections, run};

type Fifo = Raw<Native, Mcs<SpinThenPark>>;

#[test]
fn random_reads_exclude_each_other() {
    let shared: RandArray<Fifo> = RandArray::new(Raw::new(), Reads::PAPER);
    assert_eq!(run(shared, 3, 1000), Ok(()));
}

#[test]
fn writers_exclude_each_other() {
    // Often enough to happen in a short test, and short.
    let habits = Habits {
        long: Seldom { once_in: 200, ns: 20_000 },
        nap: Seldom { once_in: 500, ns: 1000 },
        ..Habits::LOCKSTAT
    };
    let shared: LockTorture<Fifo> = LockTorture::new(Raw::new(), habits, 3);
    assert_eq!(run(shared, 3, 3000), Ok(()));
}

#[test]
fn sections_exclude_each_other() {
    for steps in [&OPEN1[..], &LOCK2[..], &LEVELDB_READRANDOM[..]] {
        let shared: Sections<Fifo> = Sections::new(Raw::new(), Raw::new(), steps);
        assert_eq!(run(shared, 3, 1000), Ok(()));
    }
}

/// A lock that lets all threads in.
struct Open;

// SAFETY: it breaks the promise, which the test must detect; the workload below has only atomic data.
unsafe impl Lock for Open {
    fn acquire(&self) {}
    fn release(&self) {}
}

#[test]
fn a_lock_that_does_not_exclude_is_seen() {
    let shared: RandArray<Open> = RandArray::new(Open, Reads { inside: 10_000, ..Reads::PAPER });
    assert!(run(shared, 4, 200).is_err());
}

fn works<L: RawLock<Native>>(name: &str)
where
    Raw<Native, L>: Lock,
{
    let shared: KeyValue<_> = KeyValue::new(Raw::<Native, L>::new(), Mix { external: 20, ..Mix::PAPER }, 11);
    assert_eq!(run(shared, 2, 4000), Ok(()), "{name}");
}

macro_rules! every_lock_works {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        #[test]
        fn every_lock_keeps_the_map_in_order() {
            $($(works::<$type>(concat!($name, " ", stringify!($wait)));)+)*
        }
    };
}
flashlock_locks::for_each_lock!(every_lock_works);
