//! Semaphores: makers and takers, in every order, timed and not; posts from handlers; waits and posts that freeze.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed},
};
use std::sync::{Arc, Mutex};

use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::node::state;
use flashlock_locks::machine::order::Order;
use flashlock_locks::machine::{Handle, Tunables, Waiting as _, Word as _};
use flashlock_locks::sem::call::kind;
use flashlock_locks::sem::{Ended, Entry, Semaphore, Slept};
use flashlock_model::shuttle::thread;
use flashlock_model::shuttle::{By, Draws, Shuttled, find};
use flashlock_model::{Fault, Setup, Shuttle, harness};

use crate::common::{FLOWING, SCHEDULES, STILL, any, both, world};
use crate::sem_mutants::{adds_and_looks, calls_nobody, keeps_the_permit, leaves_it_to_the_list};

type Sem = harness::Sem<Shuttled>;
pub(crate) type Post = fn(&Semaphore<'_, Shuttle>);

const LIFO: Tunables = Tunables { sem_order: Order::LIFO, ..Tunables::DEFAULT };
const MIXED: Tunables = Tunables { sem_order: Order::lifo(2), ..Tunables::DEFAULT };
const CROWDED: Setup = Setup { crowded: true, nodes: 16, ..STILL };

/// One wait: plain, timed, interrupted or cancelled. Whether it took a permit.
fn wait(sem: &Sem, mixed: bool) -> bool {
    match if mixed { any(4) } else { 0 } {
        0 => sem.wait(None),
        1 => sem.wait(Some(world().deadline(1 + any(3)))),
        kind => match sem.begin() {
            Entry::Over(how) => how == Ended::Acquired,
            Entry::Queued(me) if kind == 2 => {
                sem.semaphore().cancel(me);
                false
            }
            Entry::Queued(me) => sem.semaphore().wait_with(me, None, |_, _| Slept::Interrupted) == Ended::Acquired,
        },
    }
}

fn post(semaphore: &Semaphore<'_, Shuttle>) {
    semaphore.post().expect("room");
}

/// Three take two permits each, however long it takes; two post what they take.
pub(crate) fn makers_and_takers(mixed: bool, post: Post) -> impl Fn() + Send + Sync + Clone + 'static {
    move || {
        let sem = Arc::new(Sem::new(0));
        let take = move |sem: &Sem| {
            for _ in 0..2 {
                while !wait(sem, mixed) {}
            }
        };
        let make = move |sem: &Sem| {
            for _ in 0..3 {
                (0..any(20)).for_each(|_| thread::yield_now()); // Otherwise no thread would get as far as to sleep.
                post(&sem.semaphore());
            }
        };
        let spawn = |body: Box<dyn Fn(&Sem) + Send>| {
            let sem = sem.clone();
            thread::spawn(move || body(&sem))
        };
        let mut threads: Vec<_> = (0..3).map(|_| spawn(Box::new(take))).collect();
        threads.push(spawn(Box::new(make)));
        make(&sem);
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(sem.value(), 0);
        sem.destroy();
    }
}

/// A semaphore with one permit, as a mutex.
pub(crate) fn as_mutex() {
    let sem = Arc::new(Sem::new(1));
    let work = |sem: &Sem| {
        for _ in 0..3 {
            assert!(sem.wait(None));
            sem.visit();
            sem.post();
        }
    };
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let sem = sem.clone();
            thread::spawn(move || work(&sem))
        })
        .collect();
    work(&sem);
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert!(sem.wait(None));
    assert_eq!(sem.visit(), 12);
}

/// One thread freezes where it next waits or polls; what others post must reach the others that wait.
fn one_freezes() {
    let sem = Arc::new(Sem::new(0));
    let done = Arc::new(AtomicU32::new(0));
    let at = 1 + any(4);
    let frozen = {
        let sem = sem.clone();
        thread::spawn(move || {
            world().freeze_at(at);
            assert!(sem.wait(None));
        })
    };
    let others: Vec<_> = (0..2)
        .map(|_| {
            let (sem, done) = (sem.clone(), done.clone());
            thread::spawn(move || {
                assert!(sem.wait(None));
                done.fetch_add(1, Relaxed);
            })
        })
        .collect();
    // The frozen one may have been called: three permits are enough for two that are not.
    (0..3).for_each(|_| sem.post());
    while done.load(Relaxed) < 2 && world().events(Event::SemAcquire) < 3 {
        thread::yield_now();
    }
    world().thaw();
    for thread in others.into_iter().chain([frozen]) {
        thread.join().expect("no panic");
    }
    assert_eq!(sem.value(), 0);
}

/// The waiter destroys the semaphore at once.
fn destroyed_by_the_waiter() {
    let sem = Arc::new(Sem::new(0));
    let poster = {
        let sem = sem.clone();
        thread::spawn(move || sem.post())
    };
    assert!(sem.wait(None));
    sem.destroy();
    poster.join().expect("no panic");
}

/// What a thread does that is stopped at any access. How many permits it took, and gave.
fn deed(sem: &Sem, which: u32) -> (u32, u32) {
    let taken = match which {
        0 => sem.wait(None),
        1 => sem.wait(Some(world().deadline(0))),
        2 => {
            sem.post();
            return (0, 1);
        }
        ends => match sem.begin() {
            Entry::Over(how) => how == Ended::Acquired,
            Entry::Queued(me) if ends == 3 => {
                sem.semaphore().cancel(me);
                false
            }
            Entry::Queued(me) => sem.semaphore().wait_with(me, None, |_, _| Slept::Interrupted) == Ended::Acquired,
        },
    };
    (u32::from(taken), 0)
}

/// Some threads wait, and two do anything, and are stopped anywhere, or not. What is posted then reaches a thread that
/// runs: if any thread sleeps in the end, no more permits are left than before, except one for each thread that was
/// stopped since.
fn stopped_anywhere<const WAITERS: usize, const POSTS: usize>(post: Post) {
    const FITFUL: usize = 2;
    let (sem, ended) = (Arc::new(Sem::new(0)), Arc::new(AtomicU32::new(0)));
    let balance = Arc::new(Mutex::new((0, 0)));
    let start = |which: Option<u32>| {
        let (sem, ended, balance) = (sem.clone(), ended.clone(), balance.clone());
        thread::spawn(move || {
            if which.is_some() {
                world().stop_after(1 + any(70));
            }
            let (taken, given) = deed(&sem, which.unwrap_or(0));
            world().stop_after(0);
            let mut balance = balance.lock().expect("no panic");
            *balance = (balance.0 + taken, balance.1 + given);
            ended.fetch_add(1, Relaxed);
        })
    };
    let mut threads: Vec<_> = (0..any(WAITERS as u32 + 1)).map(|_| start(None)).collect();
    threads.extend((0..FITFUL).map(|_| start(Some(any(5)))));
    threads.extend((threads.len()..WAITERS + FITFUL).map(|_| start(None)));
    let at_rest = || {
        let at_rest = || world().sleepers() + world().stopped() + ended.load(Relaxed) as usize == WAITERS + FITFUL;
        while !at_rest() {
            thread::yield_now();
        }
        (sem.value() as usize, world().stopped(), world().sleepers())
    };
    let (before, stopped, asleep) = at_rest();
    assert!(asleep == 0 || before <= stopped, "{asleep} sleep beside {before} permits");
    (0..POSTS).for_each(|_| post(&sem.semaphore()));
    let (after, stopped_now, asleep) = at_rest();
    // A thread that sleeps may be stopped when it is woken.
    let since = stopped_now.saturating_sub(stopped);
    assert!(asleep == 0 || after <= before + since, "{asleep} sleep beside {after} permits, {before} of before");
    world().thaw();
    (0..WAITERS + FITFUL).for_each(|_| sem.post());
    for thread in threads {
        thread.join().expect("no panic");
    }
    let (taken, given) = *balance.lock().expect("no panic");
    assert_eq!(sem.value() + taken, given + (POSTS + WAITERS + FITFUL) as u32);
    sem.destroy();
}

#[test]
fn threads_stopped_anywhere_hold_nobody_up() {
    for (name, tunables) in [("fifo", &Tunables::DEFAULT), ("lifo", &LIFO)] {
        let setup = Setup { tunables, ..CROWDED };
        both(&format!("sem, two stopped, {name}"), Draws { usual: 3_000, full: 300_000 }, setup, || {
            stopped_anywhere::<3, 3>(post);
        });
        both(&format!("sem, two stopped, few posts, {name}"), Draws { usual: 1_500, full: 100_000 }, setup, || {
            stopped_anywhere::<4, 2>(post);
        });
    }
    let many = Setup { nodes: 32, ..CROWDED };
    both("sem, two stopped, many", Draws { usual: 200, full: 20_000 }, many, || stopped_anywhere::<12, 12>(post));
}

#[test]
fn posts_that_somebody_stopped_makes_useless_are_found() {
    let blind = Setup { fault: Some(Fault::ShortSight), ..CROWDED };
    find("a post finds whoever is in the list", By::Random, 3_000, blind, || stopped_anywhere::<3, 3>(post));
    // As it was until November 2026, with 32 instead of eight.
    let blind = Setup { nodes: 32, ..blind };
    find("a post finds the first eight of the list", By::Random, 3_000, blind, || stopped_anywhere::<12, 12>(post));
    find("a post leaves it to the list, stopped", By::Random, 3_000, CROWDED, || {
        stopped_anywhere::<3, 3>(leaves_it_to_the_list);
    });
}

#[test]
fn permits_are_kept() {
    for (name, tunables) in [("fifo", &Tunables::DEFAULT), ("lifo", &LIFO), ("mixed", &MIXED)] {
        let setup = Setup { tunables, ..CROWDED };
        let shown = both(name, 2_500, setup, makers_and_takers(false, post));
        shown[0].shows(&[Event::SemQueued, Event::SemWake]);
        both(name, 2_500, Setup { crowded: false, ..setup }, makers_and_takers(false, post));
        let flowing = Setup { nodes: 64, tunables, ..FLOWING };
        both(name, 2_500, flowing, makers_and_takers(true, post));
    }
}

#[test]
fn a_mutex_of_one_permit() {
    both("sem as a mutex", SCHEDULES, CROWDED, as_mutex);
}

#[test]
fn frozen_threads_hold_nobody_up() {
    both("sem, one freezes", SCHEDULES, CROWDED, one_freezes);
}

#[test]
fn the_waiter_may_destroy_it() {
    both("sem, destroyed", SCHEDULES, CROWDED, destroyed_by_the_waiter);
}

#[test]
fn bugs_are_found() {
    find("a post leaves it to the list", By::Random, 5_000, CROWDED, makers_and_takers(false, leaves_it_to_the_list));
    find("a post calls nobody", By::Random, 5_000, CROWDED, makers_and_takers(false, calls_nobody));
    find("a post looks back", By::Random, 5_000, CROWDED, || {
        let sem = Arc::new(Sem::new(0));
        let poster = {
            let sem = sem.clone();
            thread::spawn(move || adds_and_looks(&sem.semaphore()))
        };
        assert!(sem.wait(None));
        sem.destroy();
        poster.join().expect("no panic");
    });
    find("a cancelled wait keeps the permit", By::Random, 5_000, CROWDED, || cancelled_asleep(keeps_the_permit));
}

/// A thread sleeps until it is called or the first tick comes, and is cancelled then; the permit reaches another that
/// waits.
fn cancelled_asleep(cancel: fn(&Semaphore<'_, Shuttle>, Handle)) {
    let sem = Arc::new(Sem::new(0));
    let until = world().first_tick();
    let spawn = |body: Box<dyn FnOnce(&Sem) + Send>| {
        let sem = sem.clone();
        thread::spawn(move || body(&sem))
    };
    let fickle = spawn(Box::new(move |sem| match sem.begin() {
        Entry::Queued(me) => {
            let state = &me.node::<Shuttle>().state;
            let seen = state.load(Acquire);
            if kind(seen) == state::WAITS {
                Shuttle::park(state, seen, Some(until));
            }
            cancel(&sem.semaphore(), me);
        }
        Entry::Over(_) => sem.post(),
    }));
    let steady = spawn(Box::new(|sem| assert!(sem.wait(None))));
    while world().events(Event::SemQueued) < 2 {
        thread::yield_now();
    }
    (0..any(20)).for_each(|_| thread::yield_now());
    sem.post();
    world().tick();
    fickle.join().expect("no panic");
    steady.join().expect("no panic");
    assert_eq!(sem.value(), 0);
    sem.destroy();
}

#[test]
fn who_is_cancelled_swallows_nothing() {
    both("sem, cancelled asleep", SCHEDULES, CROWDED, || cancelled_asleep(|sem, me| sem.cancel(me)));
}

/// The order: the waiter that queued last is called first, except for those that are put at the end.
#[test]
fn who_is_called_first() {
    // `appends`, and in which order three that queue one after the other are called.
    for (order, random, expected) in [
        (Order::FIFO, 0, [0, 1, 2]),
        (Order::LIFO, 0, [2, 1, 0]),
        (Order::lifo(5), 5, [0, 1, 2]),
        (Order::lifo(5), 4, [2, 1, 0]),
    ] {
        let tunables: &'static Tunables = Box::leak(Box::new(Tunables { sem_order: order, ..Tunables::DEFAULT }));
        let setup = Setup { tunables, random: Some(random), ..CROWDED };
        flashlock_model::shuttle::explore("sem, order", By::Random, 10, setup, move || {
            let (sem, called) = (Arc::new(Sem::new(0)), Arc::new(Mutex::new(Vec::new())));
            let wait = |sem: Arc<Sem>, called: Arc<Mutex<Vec<u32>>>, me| {
                assert!(sem.wait(None));
                called.lock().expect("no panic").push(me);
            };
            let mut waiters = Vec::new();
            for me in 0..3 {
                let (sem, called) = (sem.clone(), called.clone());
                waiters.push(thread::spawn(move || wait(sem, called, me)));
                while world().sleepers() <= me as usize {
                    thread::yield_now();
                }
            }
            for waiter in 1..=3 {
                sem.post();
                while called.lock().expect("no panic").len() < waiter {
                    thread::yield_now();
                }
            }
            assert_eq!(*called.lock().expect("no panic"), expected);
            waiters.into_iter().for_each(|waiter| waiter.join().expect("no panic"));
            sem.destroy();
        });
    }
}
