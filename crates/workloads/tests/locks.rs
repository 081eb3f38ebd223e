//! The workloads on the host, with threads. The generic code compiles for every lock of the catalogue, and detects a
//! lock that does not exclude.

use flashlock_erased::native::{MUTEXES, Mutex};
use flashlock_locks::mutex::queue::Mcs;
use flashlock_locks::parts::wait::SpinThenPark;
use flashlock_native::machine::Native;
use flashlock_workloads::catalogue::{Runner, Setup, Values, WORKLOADS};
use flashlock_workloads::key_value::Mix;
use flashlock_workloads::lock::Exclusive;
use flashlock_workloads::lock_torture::{Habits, Seldom};
use flashlock_workloads::rand_array::Reads;
use flashlock_workloads::sections::{LEVELDB_READRANDOM, LOCK2, OPEN1};
use flashlock_workloads::wait::Waiting;
use flashlock_workloads::{Here, KeyValue, Lock, LockTorture, RandArray, Raw, Sections, Workload, run};

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

/// Runs a workload of the catalogue on this computer: so many operations of each thread.
struct Threads {
    setup: Setup,
    each: u64,
}

impl Runner for Threads {
    type Machine = Native;
    type Lock = Exclusive<Fifo>;
    type Backend = Here;
    type Outcome = Result<(), &'static str>;

    fn setup(&self) -> &Setup {
        &self.setup
    }

    fn lock(&mut self, _name: &'static str) -> Exclusive<Fifo> {
        Exclusive(Raw::new())
    }

    fn run<W: Workload + 'static>(self, workload: W) -> Self::Outcome {
        run(workload, self.setup.threads, self.each)
    }
}

#[test]
fn every_workload_of_the_catalogue_runs_with_threads_here() {
    for info in WORKLOADS {
        let threads = info.traits.fewest_threads.max(3);
        let setup = Setup { threads, seed: 11, waiting: Waiting::Sleeping, ghz: 2.0, values: Values::new(info) };
        // Enough for threads to meet, and short where operations are long.
        let each = if info.traits.arrays.lines > 0 { 20 } else { 200 };
        assert_eq!(info.id.start(Threads { setup, each }), Ok(()), "{}", info.name);
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

/// Any lock of the catalogue.
struct Any(Mutex);

// SAFETY: as for `Raw`.
unsafe impl Lock for Any {
    fn acquire(&self) {
        self.0.lock();
    }

    fn release(&self) {
        // SAFETY: `Lock::release` is called by the holder.
        unsafe { self.0.unlock() };
    }
}

#[test]
fn every_lock_keeps_the_map_in_order() {
    for entry in MUTEXES {
        let shared: KeyValue<_> = KeyValue::new(Any((entry.new)()), Mix { external: 20, ..Mix::PAPER }, 11);
        assert_eq!(run(shared, 2, 4000), Ok(()), "{}", entry.name);
    }
}
