//! Readers-writer locks: every thread gets in as often as it asks, writers alone, and none waits for ever.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::for_each_rw_lock;
use flashlock_locks::machine::Tunables;
use flashlock_locks::machine::event::Event;
use flashlock_locks::parts::wait::{Park, SpinThenPark, WaitPolicy};
use flashlock_locks::rw::cst::CstRwState;
use flashlock_locks::rw::{CstRw, FutexRw, RawRwLock, Reader, ShflRw, Writer};
use flashlock_model::shuttle::thread;
use flashlock_model::shuttle::{By, Shuttled, explore, find};
use flashlock_model::tag::Tag;
use flashlock_model::{Fault, Field, Setup, Shuttle, harness};

use crate::common::{FLOWING, HASTY, OVERDUE, SCHEDULES, STILL, any, both, can, world};
use crate::modelled::{each, unless_alike};
use crate::rw_mutants::*;

/// A readers-writer lock under shuttle.
pub(crate) type Lock<L> = harness::RwLock<Shuttled, L>;

/// A readers-writer lock that can be modelled.
pub(crate) trait Rw: RawRwLock<Shuttle, State: Tag + Send + Sync> {}
impl<L: RawRwLock<Shuttle, State: Tag + Send + Sync>> Rw for L {}

/// A new lock. `cst-rw` has a side block from the beginning.
pub(crate) fn made<L: Rw>() -> Arc<Lock<L>> {
    let lock = Arc::new(Lock::<L>::new());
    if let Some(state) = (&lock.state as &dyn Any).downcast_ref::<CstRwState<Shuttle>>() {
        // SAFETY: it is a new lock's.
        unsafe { state.count_distributed::<Park>(None) };
    }
    lock
}

/// One acquisition: which is up to chance. How many writes it made.
pub(crate) fn acquisition<L: Rw>(lock: &Lock<L>, timed: bool) -> u32 {
    let until = (timed && any(2) == 0).then(|| world().deadline(1 + any(3)));
    let how = [Reader::Newcomer, Reader::Behind][any(2) as usize];
    let (writes, held) = match any(8) {
        0 => (true, lock.try_write()),
        1 => (false, lock.try_read(how)),
        2..=4 => (true, lock.write([Writer::Fair, Writer::Preferred][any(2) as usize], until)),
        _ => (false, lock.read(how, until)),
    };
    if !held {
        return 0;
    }
    if writes {
        lock.visit();
    } else {
        lock.look();
        if any(4) == 0 {
            // It holds the lock: it may come in once more, past any waiter.
            assert!(lock.read(Reader::Again, None));
            lock.look();
            lock.unlock();
        }
    }
    if any(4) == 0 {
        world().set_numa(any(2)); // Its thread has moved.
    }
    lock.unlock();
    u32::from(writes)
}

/// So many threads on two NUMA nodes do so many acquisitions each; no write is lost, and at the end the lock is free.
pub(crate) fn rounds<L: Rw>(threads: u32, rounds: u32, timed: bool) -> impl Fn() + Send + Sync + Clone + 'static {
    move || {
        let lock = made::<L>();
        let work = move |lock: &Lock<L>, me: u32| {
            world().set_numa(me % 2);
            (0..rounds).map(|_| acquisition(lock, timed)).sum::<u32>()
        };
        let others: Vec<_> = (1..threads)
            .map(|me| {
                let lock = lock.clone();
                thread::spawn(move || work(&lock, me))
            })
            .collect();
        let mut written = work(&lock, 0);
        for other in others {
            written += other.join().expect("no panic");
        }
        assert!(!lock.is_held(), "left held");
        assert!(lock.try_write(), "left held, or barred");
        assert_eq!(lock.visit(), written);
        lock.unlock();
        lock.free();
    }
}

/// A writer holds the lock, readers come; all of them must get in, while the writer's successor waits.
fn group<L: Rw>() {
    let lock = made::<L>();
    lock.write(Writer::Fair, None);
    let inside = Arc::new(AtomicU32::new(0));
    let readers: Vec<_> = (0..3)
        .map(|me| {
            let (lock, inside) = (lock.clone(), inside.clone());
            thread::spawn(move || {
                world().set_numa(me % 2);
                assert!(lock.read(Reader::Newcomer, None));
                inside.fetch_add(1, Relaxed);
                // Not before all are inside at the same time: a reader that is left out stops all of them.
                while inside.load(Relaxed) < 3 {
                    thread::yield_now();
                }
                lock.look();
                lock.unlock();
            })
        })
        .collect();
    lock.visit();
    lock.unlock();
    for reader in readers {
        reader.join().expect("no panic");
    }
    assert!(lock.try_write());
    lock.unlock();
    lock.free();
}

/// A reader holds the lock and waits for another reader, and a writer waits, too.
fn chained<L: Rw>() {
    let lock = made::<L>();
    assert!(lock.read(Reader::Newcomer, None));
    let came = Arc::new(AtomicU32::new(0));
    let writer = {
        let lock = lock.clone();
        thread::spawn(move || {
            assert!(lock.write(Writer::Fair, None));
            lock.visit();
            lock.unlock();
        })
    };
    let reader = {
        let (lock, came) = (lock.clone(), came.clone());
        thread::spawn(move || {
            (0..any(200)).for_each(|_| thread::yield_now()); // so that the writer comes first, mostly
            assert!(lock.read(Reader::Newcomer, None));
            came.store(1, Relaxed);
            lock.unlock();
        })
    };
    while came.load(Relaxed) == 0 {
        thread::yield_now();
    }
    lock.look();
    lock.unlock();
    writer.join().expect("no panic");
    reader.join().expect("no panic");
    lock.free();
}

/// Each thread does one section; the last one, once alone, frees the lock.
fn last_frees<L: Rw>() {
    const THREADS: u32 = 3;
    let lock = made::<L>();
    let heirs = Arc::new(AtomicU32::new(THREADS));
    let work = move |lock: &Lock<L>, heirs: &AtomicU32, me: u32| {
        world().set_numa(me % 2);
        let writes = any(2) == 0;
        if writes {
            lock.write(Writer::Fair, None);
        } else {
            lock.read(Reader::Newcomer, None);
        }
        let last = heirs.fetch_sub(1, Relaxed) == 1;
        lock.unlock();
        if last {
            lock.write(Writer::Fair, None);
            lock.unlock();
            lock.free();
        }
    };
    let others: Vec<_> = (1..THREADS)
        .map(|me| {
            let (lock, heirs) = (lock.clone(), heirs.clone());
            thread::spawn(move || work(&lock, &heirs, me))
        })
        .collect();
    work(&lock, &heirs, 0);
    for other in others {
        other.join().expect("no panic");
    }
}

/// A writer among readers that never leave the lock empty: it gets in, in the end.
fn flooded<L: Rw>() {
    let lock = made::<L>();
    let over = Arc::new(AtomicU32::new(0));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (lock, over) = (lock.clone(), over.clone());
            thread::spawn(move || {
                while over.load(Relaxed) == 0 {
                    assert!(lock.read(Reader::Newcomer, None));
                    lock.look();
                    thread::yield_now();
                    lock.unlock();
                }
            })
        })
        .collect();
    assert!(lock.write(Writer::Fair, None));
    lock.visit();
    over.store(1, Relaxed);
    lock.unlock();
    for reader in readers {
        reader.join().expect("no panic");
    }
    lock.free();
}

macro_rules! checked {
    ($lock:literal, $wait:ident, $type:ty) => {
        const NAME: &str = concat!($lock, ":wait=", stringify!($wait));

        /// Four threads, three acquisitions each.
        fn rounds_of_four(what: &str, setup: Setup, timed: bool) {
            both(&format!("{NAME} {what}"), SCHEDULES, setup, rounds::<$type>(4, 3, timed));
        }

        #[test]
        fn time_stands_still() {
            rounds_of_four("still", STILL, false);
        }

        #[test]
        fn all_waits_are_overdue() {
            rounds_of_four("overdue", OVERDUE, false);
        }

        #[test]
        fn time_flows() {
            rounds_of_four("flowing", FLOWING, true);
        }

        #[test]
        fn few_cpus() {
            let [still, flowing] = [STILL, FLOWING].map(|setup| Setup { crowded: true, ..setup });
            rounds_of_four("crowded, still", still, false);
            rounds_of_four("crowded, flowing", flowing, true);
            both(&format!("{NAME} crowded, freed"), 5000, still, last_frees::<$type>);
        }

        #[test]
        fn many_shuffle() {
            let nodes = Setup { nodes: 12, ..OVERDUE };
            both(&format!("{NAME} shuffling"), 5000, nodes, rounds::<$type>(6, 2, false));
        }

        #[test]
        fn a_group_of_readers_is_let_in() {
            explore(&format!("{NAME} group"), By::Random, 4000, STILL, group::<$type>);
        }

        #[test]
        fn readers_may_wait_for_readers() {
            explore(&format!("{NAME} chain"), By::Random, 4000, FLOWING, chained::<$type>);
        }

        #[test]
        fn the_last_frees_it() {
            both(&format!("{NAME} freed"), 5000, STILL, last_frees::<$type>);
            both(&format!("{NAME} freed, flowing"), SCHEDULES, FLOWING, last_frees::<$type>);
        }
    };
}

macro_rules! rw_locks {
    ($($rows:tt)*) => { each! { of: checked, crate::modelled::all: $($rows)* } };
}
for_each_rw_lock!(rw_locks);

macro_rules! flood {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        /// Unless it prefers readers, by its row.
        #[test]
        fn writers_do_not_starve() {
            $($(unless_alike! { $wait,
                if can($name, "rwlock_order.kind_0_writer*") {
                    let name = concat!($name, ":wait=", stringify!($wait), " flooded");
                    explore(name, By::Random, 2_000, FLOWING, flooded::<$type>);
                }
            })+)*
        }
    };
}
for_each_rw_lock!(flood);

/// Readers soon count apart, and soon together again.
const RESTLESS: Tunables = Tunables { meetings: 1, writers: 2, ..Tunables::DEFAULT };
const RESTLESS_HASTY: Tunables = Tunables { meetings: 1, writers: 2, ..HASTY };

#[test]
fn readers_count_apart_and_together() {
    fn all<W: WaitPolicy>(name: &str) {
        let still = Setup { tunables: &RESTLESS, ..STILL };
        let [random, _] = both(&format!("{name} still"), 5000, still, rounds::<CstRw<W>>(4, 3, false));
        random.shows(&[Event::RwDistributed, Event::RwTogether]);
        let flowing = Setup { tunables: &RESTLESS_HASTY, ..FLOWING };
        let [random, _] = both(&format!("{name} flowing"), 5000, flowing, rounds::<CstRw<W>>(4, 3, true));
        random.shows(&[Event::RwDistributed, Event::RwTogether, Event::RwPassed, Event::RwTimedOut]);
        both(&format!("{name} freed"), 5000, still, last_frees::<CstRw<W>>);
    }
    all::<SpinThenPark>("restless cst-rw");
    all::<Park>("restless cst-rw, park");
}

/// The models show what they are there for.
#[test]
fn bars_and_passes_happen() {
    let totals = explore("shfl-rw chain", By::Random, 4000, FLOWING, chained::<ShflRw<Park>>);
    totals.shows(&[Event::RwPassed, Event::RwBarred]);
    let totals = explore("shfl-rw timed", By::Random, 4000, FLOWING, rounds::<ShflRw<SpinThenPark>>(4, 3, true));
    totals.shows(&[Event::RwTimedOut, Event::RwBarred, Event::RwContended]);
}

/// Much less than the sound locks are tried with.
const FEW: usize = 5000;

fn broken<B: RwBug>(name: &str) {
    find(name, By::Random, FEW, STILL, rounds::<MutantRw<B>>(4, 3, false));
}

#[test]
fn seeded_bugs_are_found() {
    both("the mutants' skeleton", FEW / 2, STILL, rounds::<MutantRw<NoBug>>(4, 3, false));
    broken::<IgnoresWriter>("a reader ignores the writer");
    broken::<LeavesSilently>("a refused reader wakes nobody");
    broken::<ForgetsReaders>("a writer ignores readers");
    broken::<WakesNobody>("release wakes nobody");
    find("release looks back", By::Random, FEW, STILL, last_frees::<MutantRw<LooksBack>>);
    find("readers count together too soon", By::Random, FEW, STILL, rounds::<TogetherTooSoon>(4, 3, false));
    let lost = Setup { fault: Some(Fault::NoWake(Field::RwCount)), ..STILL };
    find("wakes of the counter are lost", By::Random, FEW, lost, rounds::<ShflRw<Park>>(4, 3, false));
    let lost = Setup { crowded: true, ..lost };
    find("wakes of newcomers are lost", By::Random, FEW, lost, rounds::<ShflRw<Park>>(4, 3, false));
    let lost = Setup { fault: Some(Fault::NoWake(Field::Drain)), ..STILL };
    find("wakes of who waits for readers are lost", By::Random, FEW, lost, rounds::<CstRw<Park>>(4, 3, false));
    let blind = Setup { fault: Some(Fault::ParkBlindly), ..STILL };
    find("futex-rw sleeps without a look", By::Random, FEW, blind, rounds::<FutexRw>(4, 3, false));
}
