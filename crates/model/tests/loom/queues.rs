//! CLH, where a thread leaves the queue as another joins; and MCS-TP, whose releaser passes over a waiter that has not
//! run for too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::queue::{Clh, McsTp};
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark};
use flashlock_model::Setup;
use flashlock_model::erased::erased;
use flashlock_model::loom::Depth::Preemptions;
use flashlock_model::loom::thread;
use flashlock_model::loom::{Loomed, explore, find};

use crate::common::{ALL, AnyMutex, Lock, all_done, joins, sections, world};
use crate::compact_mutants::HboByStore;
use crate::evict_mutants::{EVICTS_SLEEPERS, GOES_EARLY, MutantTp};

const SETUP: Setup = Setup { polls: 1, ..Setup::new(6) };
/// Each waiter that said that it runs said so long ago.
pub(crate) const STALE: Setup = Setup { micros_step: 100, ..SETUP };

/// The lock is held. A thread whose deadline has passed joins and leaves; another joins: in front of it, behind it, or
/// in its place. The joiner gets the lock when it is released, not before. No thread looks at the data: if the joiner
/// is let in too soon, the cause is what the other one left behind.
pub(crate) fn leaves_as_another_joins<L: Lock>() {
    leaves_as_another_joins_of(erased::<Loomed, L>);
}

fn leaves_as_another_joins_of(new: fn() -> AnyMutex) {
    let mutex = Arc::new(new());
    mutex.lock();
    // Not the model's: in the order of its steps, whatever they order.
    let held = Arc::new(AtomicBool::new(true));
    let leaving = {
        let mutex = mutex.clone();
        thread::spawn(move || assert!(!mutex.lock_until(world().deadline(0)), "it is held"))
    };
    let joiner = {
        let (mutex, held) = (mutex.clone(), held.clone());
        thread::spawn(move || {
            mutex.lock();
            assert!(!held.load(SeqCst), "two hold the lock");
            mutex.unlock();
        })
    };
    leaving.join().expect("no panic");
    held.store(false, SeqCst);
    mutex.unlock();
    all_done(&mutex, [joiner]);
}

/// The same while the holder releases; all look at the data.
fn leaves_as_the_lock_is_released<L: Lock>() {
    leaves_as_the_lock_is_released_of(erased::<Loomed, L>);
}

fn leaves_as_the_lock_is_released_of(new: fn() -> AnyMutex) {
    let mutex = Arc::new(new());
    mutex.lock();
    let leaving = {
        let mutex = mutex.clone();
        thread::spawn(move || _ = mutex.section_until(world().deadline(0)))
    };
    let joiner = joins(&mutex, 0);
    mutex.visit();
    mutex.unlock();
    all_done(&mutex, [leaving, joiner]);
    mutex.section(); // The next thread gives the abandoned node back.
}

#[test]
fn leaving_the_queue_of_clh() {
    let shows = [Event::TimedOut];
    explore("clh, time-out, joiner, spin", ALL, SETUP, leaves_as_another_joins::<Clh<Spin>>).shows(&shows);
    explore("clh, time-out, joiner, stp", Preemptions(4), SETUP, leaves_as_another_joins::<Clh<SpinThenPark>>)
        .shows(&shows);
    explore("clh, time-out, joiner, park", ALL, SETUP, leaves_as_another_joins::<Clh<Park>>).shows(&shows);
    let bound = Preemptions(3);
    explore("clh, time-out, release, stp", bound, SETUP, leaves_as_the_lock_is_released::<Clh<SpinThenPark>>)
        .shows(&shows);
    explore("clh, time-out, release, park", bound, SETUP, leaves_as_the_lock_is_released::<Clh<Park>>).shows(&shows);
}

/// The lock is held, so many threads join, and it is released: a waiter that polls is passed over, and queues anew.
pub(crate) fn passed_over<L: Lock>(joiners: usize) {
    passed_over_of(erased::<Loomed, L>, joiners);
}

fn passed_over_of(new: fn() -> AnyMutex, joiners: usize) {
    let mutex = Arc::new(new());
    mutex.lock();
    let joiners: Vec<_> = (0..joiners).map(|_| joins(&mutex, 0)).collect();
    mutex.visit();
    mutex.unlock();
    all_done(&mutex, joiners);
}

#[test]
fn passing_over_who_does_not_run() {
    let shows = [Event::Evict];
    explore("mcs-tp spin, stale", ALL, STALE, || passed_over::<McsTp<Spin>>(1)).shows(&shows);
    explore("mcs-tp stp, stale", ALL, STALE, || passed_over::<McsTp<SpinThenPark>>(1)).shows(&shows);
    explore("mcs-tp spin, two stale", Preemptions(1), STALE, || passed_over::<McsTp<Spin>>(2)).shows(&shows);
    // A waiter that soon sleeps can be passed over only before it does: with two of them, these bounds do not reach
    // that.
    explore("mcs-tp stp, two stale", Preemptions(1), STALE, || passed_over::<McsTp<SpinThenPark>>(2));
    explore("mcs-tp park, two stale", Preemptions(2), STALE, || passed_over::<McsTp<Park>>(2));
}

#[test]
fn seeded_bugs_are_found() {
    find("mcs-tp: passes over who may fall asleep", ALL, SETUP, || passed_over::<MutantTp<EVICTS_SLEEPERS>>(1));
    find("mcs-tp: goes before he is out of the queue", Preemptions(2), STALE, || {
        passed_over::<MutantTp<GOES_EARLY>>(2);
    });
    find("hbo: acquires by a store", Preemptions(3), SETUP, sections::<HboByStore>(&[1, 1]));
}
