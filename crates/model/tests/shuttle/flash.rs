//! `flash`: beside glibc's code on the same word, released by it, in a forked child, behind a head that does not run;
//! and its seeded bugs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::machine::{Memory as _, Time as _, Word as _};
use flashlock_locks::mutex::flash::Flash;
use flashlock_locks::mutex::flash::state::CALL;
use flashlock_locks::mutex::flash::state::{
    EPOCH, EPOCH_AT, GRANT, HANDOFF, HEAD, SLEEPER, SLEEPS, TIMED as IS_TIMED, count,
};
use flashlock_locks::mutex::flash::turn;
use flashlock_locks::mutex::spin::Futex;
use flashlock_locks::parts::raw::RawLock;
use flashlock_model::meddle::{Access, Instead, Meddler};
use flashlock_model::shuttle::thread;
use flashlock_model::shuttle::{By, find};
use flashlock_model::{Field, Op, Setup, Shuttle};

use crate::common::{FLOWING, Load, Mutex, OVERDUE, SCHEDULES, STILL, any, both, rounds, world};
use crate::cond::producers_and_consumers;
use crate::flash_mutants::*;

const LOAD: Load = Load { threads: 4, rounds: 3, nodes: 1, timed: false, hold: 6 };
const TIMED: Load = Load { timed: true, ..LOAD };

/// What `state` holds of waiters of this process, beside hints.
fn waiters(mutex: &Mutex<Flash>) -> u32 {
    mutex.queue.state.peek() & !(IS_TIMED | EPOCH)
}

/// No thread waits, and the lock's state says so.
fn check_idle(mutex: &Mutex<Flash>) {
    assert_eq!((mutex.is_locked(), waiters(mutex)), (false, 0), "held, or waited for");
}

/// That many threads, this one among them, do the work.
fn perform(threads: u32, mutex: &Arc<Mutex<Flash>>, work: impl Fn(&Mutex<Flash>) + Copy + Send + 'static) {
    let others: Vec<_> = (1..threads)
        .map(|_| {
            let mutex = mutex.clone();
            thread::spawn(move || work(&mutex))
        })
        .collect();
    work(mutex);
    for other in others {
        other.join().expect("no panic");
    }
}

/// A section, with glibc's code, which may release what ours has acquired.
fn section_of_glibc(mutex: &Mutex<Flash>, releases_ours: bool, hold: u32) {
    let as_glibc = |act: unsafe fn(&flashlock_model::word::Word<_>, &())| {
        world().set_mark(GLIBC);
        // SAFETY: the word follows glibc's protocol.
        unsafe { act(&mutex.word, &()) };
        world().set_mark(0);
    };
    if releases_ours {
        mutex.lock();
    } else {
        as_glibc(<Futex as RawLock<Shuttle>>::lock);
    }
    mutex.visit();
    (0..hold).for_each(|_| thread::yield_now());
    as_glibc(<Futex as RawLock<Shuttle>>::unlock);
}

/// Some sections are locked and released by glibc's code; some are only released by it.
fn beside_glibc(load: Load, releases_ours: bool) -> impl Fn() + Send + Sync + Clone + 'static {
    move || {
        let mutex = Arc::new(Mutex::<Flash>::new());
        let work = move |mutex: &Mutex<Flash>| {
            for _ in 0..load.rounds {
                match any(if load.timed { 4 } else { 3 }) {
                    0 => section_of_glibc(mutex, false, load.hold),
                    1 if releases_ours => section_of_glibc(mutex, true, load.hold),
                    3 if !mutex.lock_until(world().deadline(1 + any(3))) => {}
                    how => {
                        if how != 3 {
                            mutex.lock();
                        }
                        mutex.visit();
                        (0..load.hold).for_each(|_| thread::yield_now());
                        mutex.unlock();
                    }
                }
            }
        };
        perform(load.threads, &mutex, work);
        assert!(!mutex.is_locked());
        if !releases_ours {
            check_idle(&mutex);
        }
    }
}

#[test]
fn shares_the_word_with_glibc() {
    both("flash beside glibc, still", SCHEDULES, STILL, beside_glibc(LOAD, false));
    both("flash beside glibc, overdue", SCHEDULES, OVERDUE, beside_glibc(LOAD, false));
    both("flash beside glibc, flowing", SCHEDULES, FLOWING, beside_glibc(TIMED, false));
    both("flash released by glibc, flowing", SCHEDULES, FLOWING, beside_glibc(TIMED, true));
}

/// Two threads wait. Glibc's code releases what each has acquired, and calls nobody. So the second, if it sleeps, must
/// find out by itself.
fn released_by_glibc() {
    const LONG_ENOUGH: u32 = 12_000;
    let mutex = Arc::new(Mutex::<Flash>::new());
    let finished = Arc::new(AtomicU32::new(0));
    mutex.lock();
    let waiters = [(); 2].map(|()| {
        let (mutex, finished) = (mutex.clone(), finished.clone());
        thread::spawn(move || {
            section_of_glibc(&mutex, true, 0);
            finished.fetch_add(1, Relaxed);
        })
    });
    (0..any(60)).for_each(|_| thread::yield_now());
    mutex.unlock();
    for step in 0.. {
        if finished.load(Relaxed) == 2 {
            break;
        }
        assert!(step < LONG_ENOUGH, "nobody takes the place that glibc's release has left");
        thread::yield_now();
    }
    waiters.into_iter().for_each(|waiter| waiter.join().expect("no panic"));
    assert!(!mutex.is_locked());
}

#[test]
fn a_place_that_glibcs_release_has_left_is_taken() {
    let setup = Setup { micros_step: 500, patience: 1, flow: 20, ..STILL };
    both("flash, its place left by glibc", SCHEDULES, setup, released_by_glibc);
    finds("no sleeper takes a place that was left", strands_the_place, setup, released_by_glibc);
}

/// A child whose parent's lock had been granted to a head that the child does not have: two threads use it.
fn granted_in_the_parent() {
    let mutex = Arc::new(Mutex::<Flash>::new());
    mutex.lock();
    mutex.queue.state.store((Shuttle::epoch() << EPOCH_AT) | HEAD | GRANT | (2 * SLEEPER), Relaxed);
    world().fork();
    let threads = [(); 2].map(|()| {
        let mutex = mutex.clone();
        thread::spawn(move || {
            if any(2) == 0 {
                mutex.section();
            } else if mutex.try_lock() {
                mutex.unlock();
            }
        })
    });
    mutex.section();
    for thread in threads {
        thread.join().expect("no panic");
    }
    check_idle(&mutex);
}

#[test]
fn a_forked_child_is_granted_nothing() {
    both("flash forked", SCHEDULES, STILL, granted_in_the_parent);
}

/// A head that polled does not run, and the lock is free. A sleeper gets up by itself, and finds that, although others
/// have changed meanwhile for how long the lock stays.
fn behind_a_frozen_head_as_others_watch() {
    let (mutex, done) = (Arc::new(Mutex::<Flash>::new()), Arc::new(AtomicU32::new(0)));
    mutex.lock();
    mutex.queue.state.store((Shuttle::epoch() << EPOCH_AT) | HEAD, Relaxed);
    let sleeper = {
        let (mutex, done) = (mutex.clone(), done.clone());
        thread::spawn(move || {
            mutex.section();
            done.store(1, Relaxed);
        })
    };
    let sleeps = || {
        while world().sleepers() == 0 && done.load(Relaxed) == 0 {
            thread::yield_now();
        }
        done.load(Relaxed) == 0
    };
    sleeps();
    mutex.unlock();
    for stay in 1..=3 {
        if sleeps() {
            mutex.queue.calls.store(stay, Relaxed);
            world().tick();
        }
    }
    assert!(!sleeps(), "it sleeps on");
    sleeper.join().expect("no panic");
}

#[test]
fn a_sleeper_gets_up_whatever_others_measure() {
    let setup = Setup { patience: 1, ..STILL };
    both("flash behind a frozen head, watched", SCHEDULES, setup, behind_a_frozen_head_as_others_watch);
    let setup = Setup { meddle: Some(believes_in_a_grant), ..setup };
    find("flash: believes in a grant", By::Random, 100, setup, behind_a_frozen_head_as_others_watch);
}

/// A sleeper that gets up by itself believes that the lock has been granted to the head.
fn believes_in_a_grant(access: &mut Access<'_>) -> Instead {
    const SLEPT: u32 = 1;
    if access.is(Field::LockNext, Op::Park) {
        *access.mark = SLEPT;
    } else if access.is(Field::LockTail, Op::Load) && *access.mark == SLEPT {
        return Instead::With(access.new | GRANT);
    }
    Instead::AsTold
}

/// A release that does not look whether a thread sleeps on the word.
const CARELESS: u32 = 1;

/// The head sleeps. Another head, which does not run any more, has asked for the lock, and has taken back the mark that
/// a head sleeps.
fn asked_for_by_another_head() {
    let mutex = Arc::new(Mutex::<Flash>::new());
    mutex.lock();
    let head = {
        let mutex = mutex.clone();
        thread::spawn(move || mutex.section())
    };
    while world().sleepers() == 0 {
        thread::yield_now();
    }
    mutex.queue.state.fetch_and(!SLEEPS, Relaxed);
    mutex.queue.state.fetch_or(HANDOFF, Relaxed);
    world().set_mark(CARELESS);
    mutex.unlock();
    head.join().expect("no panic");
}

#[test]
fn a_grant_wakes_a_head_whose_sleep_another_took_back() {
    both("flash asked for by another head", SCHEDULES, STILL, asked_for_by_another_head);
    finds("granted without a look at the word", grants_without_a_look, STILL, asked_for_by_another_head);
}

fn grants_without_a_look(access: &mut Access<'_>) -> Instead {
    if *access.mark == CARELESS && access.is(Field::LockWord, Op::Load) { Instead::With(1) } else { Instead::AsTold }
}

/// Much less than the sound lock is tried with.
const TRIES: usize = 50_000;

/// Each release finds that the sleeper that was called has not run for long.
fn called_sleepers_do_not_run(load: Load) -> impl Fn() + Send + Sync + Clone + 'static {
    move || {
        let mutex = Arc::new(Mutex::<Flash>::new());
        let work = move |mutex: &Mutex<Flash>| {
            for _ in 0..load.rounds {
                if !load.timed || any(3) != 0 {
                    mutex.lock();
                } else if !mutex.lock_until(world().deadline(1 + any(3))) {
                    continue;
                }
                mutex.visit();
                (0..load.hold).for_each(|_| thread::yield_now());
                mutex.queue.turn.store(turn::at(0, Shuttle::micros().wrapping_sub(10_000)), Relaxed);
                mutex.unlock();
            }
        };
        perform(load.threads, &mutex, work);
        check_idle(&mutex);
    }
}

#[test]
fn another_sleeper_is_called() {
    both("flash calls again", SCHEDULES, STILL, called_sleepers_do_not_run(LOAD));
    both("flash calls again, flowing", SCHEDULES, FLOWING, called_sleepers_do_not_run(TIMED));
    finds("an extra head is counted", extra_head_is_counted, STILL, called_sleepers_do_not_run(LOAD));
}

/// A thread with a deadline is stopped anywhere on its way to sleep. Others are called meanwhile, more often than any
/// short time allows, and the deadline passes. The thread is not counted afterwards.
fn stopped_on_the_way_to_sleep() {
    const CALLS: u32 = 3_000;
    let mutex = Arc::new(Mutex::<Flash>::new());
    mutex.lock();
    mutex.queue.state.store(HEAD | Shuttle::epoch() << EPOCH_AT & EPOCH, Relaxed);
    let deadline = world().deadline(2);
    let sleeper = {
        let mutex = mutex.clone();
        thread::spawn(move || {
            world().stop_after(1 + any(60));
            assert!(!mutex.lock_until(deadline), "the lock is held");
            world().stop_after(0);
        })
    };
    (0..any(60)).for_each(|_| thread::yield_now());
    (0..CALLS).for_each(|_| _ = Shuttle::micros()); // So time passes.
    mutex.queue.calls.fetch_add(CALLS * CALL, Relaxed);
    (0..3).for_each(|_| world().tick());
    world().thaw();
    sleeper.join().expect("no panic");
    assert_eq!(count(mutex.queue.state.peek()), 0, "a thread that has left is counted");
}

#[test]
fn a_thread_that_leaves_is_not_counted() {
    let setup = Setup { micros_step: 2, ..STILL };
    both("flash, stopped on the way to sleep", SCHEDULES, setup, stopped_on_the_way_to_sleep);
}

/// The production code, with one access changed.
fn finds(name: &str, meddle: Meddler, setup: Setup, body: impl Fn() + Send + Sync + 'static) {
    find(&format!("flash: {name}"), By::Random, TRIES, Setup { meddle: Some(meddle), ..setup }, body);
}

/// Time stands still, except for the deadlines of waiters.
const DEADLINES: Setup = Setup { flow: 40, ..STILL };
/// The same, and all waits are overdue.
const GRANTING: Setup = Setup { flow: 40, ..OVERDUE };

/// A head that has taken a wake-up owes it to the other threads that sleep on the word.
#[test]
fn bugs_beside_glibc() {
    finds("who has taken a wake-up acquires with 1", forgets_the_word, STILL, beside_glibc(LOAD, false));
    let meddle = Some(leaves_no_notice as Meddler);
    let (setup, body) = (Setup { meddle, ..DEADLINES }, beside_glibc(TIMED, false));
    find("flash: who has taken a wake-up leaves no 2", By::Pct(4), TRIES, setup, body);
    finds("a grant wakes one", grant_wakes_one, OVERDUE, beside_glibc(LOAD, false));
}

#[test]
fn bugs_of_the_grant() {
    both("the mutants' skeleton, overdue", TRIES / 10, OVERDUE, rounds::<MutantFlash<SOUND>>(LOAD));
    finds("a head sleeps though it was granted", sleeps_granted, OVERDUE, rounds::<Flash>(LOAD));
    finds("granted to who sleeps again", grants_a_sleeper, OVERDUE, rounds::<Flash>(LOAD));
    finds("granted to who has left", grants_blindly, GRANTING, rounds::<Flash>(TIMED));
}

#[test]
fn bugs_of_the_place() {
    both("the mutants' skeleton", TRIES / 10, STILL, rounds::<MutantFlash<SOUND>>(LOAD));
    finds("a head stores", head_stores, STILL, rounds::<Flash>(LOAD));
    finds("a head goes blindly", head_goes_blindly, STILL, rounds::<Flash>(LOAD));
    finds("counted without a head", counts_blindly, STILL, rounds::<Flash>(LOAD));
    finds("ignores a call", leaving_ignores_the_call, DEADLINES, rounds::<Flash>(TIMED));
    finds("the last leaves the place", last_sleeper_leaves_the_place, DEADLINES, rounds::<Flash>(TIMED));
    finds("gives up the place", resigns_the_place, DEADLINES, rounds::<Flash>(TIMED));
    let moved = || producers_and_consumers::<MutantFlash<SOUND>>(false, true);
    finds("moved, and not woken", adopts_without_a_look, STILL, moved);
}
