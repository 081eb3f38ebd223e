//! A thread that freezes while it waits, as one whose signal handler sleeps, delays others but does not stop them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::machine::node::state;
use flashlock_locks::machine::{Handle, Machine, Memory as _, Tunables, Word as _};
use flashlock_locks::mutex::shuffle::Shfl;
use flashlock_locks::parts::policy::SameNumaNode;
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::shuffle::ShflQueue;
use flashlock_locks::parts::shuffle::batch::{is_shuffled, start_at_head};
use flashlock_locks::parts::shuffle::front::{ROUSE, naming, start_clock};
use flashlock_locks::parts::shuffle::shuffler::walk;
use flashlock_locks::parts::wait::{Park, SpinThenPark};
use flashlock_locks::{for_each_lock, for_each_rw_lock};
use flashlock_model::arena::{handle_in, take_node};
use flashlock_model::erased::erased;
use flashlock_model::shuttle::thread;
use flashlock_model::shuttle::{By, Draws, Shuttled, find};
use flashlock_model::{Fault, Setup, Shuttle};

use crate::common::{AnyMutex, Cond, FLOWING, Mutex, SCHEDULES, STILL, any, both, can, world};
use crate::modelled::unless_alike;
use crate::mutants::{MutantShfl, ShflBug};
use crate::rw::{self, Rw};

/// Time passes fast enough for grants to become stale, and for heads to be evicted.
const FAST: Setup = Setup { micros_step: 4000, ..FLOWING };

/// How to make the mutex of a model.
type New = fn() -> AnyMutex;

fn frozen(new: New) {
    let mutex = Arc::new(new());
    let (rounds, others) = (2, 3);
    let victim = {
        let mutex = mutex.clone();
        thread::spawn(move || {
            world().freeze_at(1 + any(8));
            (0..rounds).for_each(|_| mutex.section());
        })
    };
    let threads: Vec<_> = (0..others)
        .map(|me| {
            let mutex = mutex.clone();
            thread::spawn(move || {
                world().set_numa(me % 2);
                (0..rounds).for_each(|_| mutex.section());
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    world().thaw();
    victim.join().expect("no panic");
    mutex.lock();
    assert_eq!(mutex.visit(), rounds * (others + 1));
    mutex.unlock();
}

/// A thread freezes on its way to the mutex while a broadcast wakes others, or moves them to the queue that it stands
/// in.
fn frozen_before_woken(new: New, moves: bool) {
    frozen_before_woken_within(new, moves, u32::MAX);
}

/// The same, in so many steps of this thread.
fn frozen_before_woken_within(new: New, moves: bool, steps: u32) {
    let (mutex, cond) = (Arc::new(new()), Arc::new(Cond::new()));
    let (flag, finished) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let waiters = [(); 2].map(|()| {
        let (mutex, cond, flag, finished) = (mutex.clone(), cond.clone(), flag.clone(), finished.clone());
        thread::spawn(move || {
            mutex.lock();
            while flag.load(Relaxed) == 0 {
                cond.wait(&mutex, None);
            }
            mutex.visit();
            mutex.unlock();
            finished.fetch_add(1, Relaxed);
        })
    });
    let victim = {
        let mutex = mutex.clone();
        thread::spawn(move || {
            world().freeze_at(1 + any(8));
            mutex.section();
        })
    };
    mutex.lock();
    flag.store(1, Relaxed);
    cond.broadcast(&mutex, moves);
    mutex.unlock();
    for step in 0..steps {
        if steps == u32::MAX || finished.load(Relaxed) == 2 {
            break;
        }
        assert!(step + 1 < steps, "nobody wakes a waiter behind a frozen head");
        thread::yield_now();
    }
    for waiter in waiters {
        waiter.join().expect("no panic");
    }
    world().thaw();
    victim.join().expect("no panic");
    assert!(!mutex.is_locked());
}

/// Each lock with each way of waiting.
#[allow(clippy::vec_init_then_push)] // Rows may be left out.
fn locks() -> Vec<(&'static str, &'static str, New)> {
    let mut locks: Vec<(&str, &str, New)> = Vec::new();
    macro_rules! all {
        ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
            $($(unless_alike! { $wait, locks.push(($name, stringify!($wait), erased::<Shuttled, $type>)); })+)*
        };
    }
    for_each_lock!(all);
    locks
}

/// The model of each lock, unless its row has an exception for this check.
fn each_that_can(check: &str, model: impl Fn(&str, New)) {
    for (lock, wait, new) in locks().into_iter().filter(|(lock, _, _)| can(lock, check)) {
        model(&format!("{lock}:wait={wait} frozen"), new);
    }
}

#[test]
fn others_go_on() {
    each_that_can("torture.freeze-waiter", |name, new| _ = both(name, SCHEDULES, FAST, move || frozen(new)));
}

#[test]
fn woken_waiters_go_on() {
    each_that_can("signals.frozen_*", |name, new| {
        both(&format!("{name}, woken"), SCHEDULES, FAST, move || frozen_before_woken(new, false));
    });
}

#[test]
fn moved_waiters_go_on() {
    each_that_can("signals.frozen_*", |name, new| {
        both(&format!("{name}, moved"), SCHEDULES, FAST, move || frozen_before_woken(new, true));
    });
}

/// One of the threads stops at some access, as one that lost its CPU, and goes on some time later. Others may have
/// acquired the lock out of turn meanwhile, and evicted it.
fn stopped_for_a_while<L: Rw>(timed: bool) -> impl Fn() + Send + Sync + Clone + 'static {
    move || {
        let lock = rw::made::<L>();
        let threads: Vec<_> = (0..4)
            .map(|me| {
                let lock = lock.clone();
                thread::spawn(move || {
                    world().set_numa(me % 2);
                    if me == 0 {
                        world().stop_after(1 + any(100));
                    }
                    (0..2).map(|_| rw::acquisition(&lock, timed)).sum::<u32>()
                })
            })
            .collect();
        (0..any(400)).for_each(|_| thread::yield_now());
        world().thaw();
        let written = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<u32>();
        assert!(lock.try_write(), "left held, or barred");
        assert_eq!(lock.visit(), written);
        lock.unlock();
        lock.free();
    }
}

/// A lost wake-up was once found after more than a thousand schedules.
const SEARCH: Draws = Draws { usual: 2_000, full: 12_000 };

macro_rules! rw_locks {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        /// Each readers-writer lock with each way of waiting.
        #[test]
        fn nobody_is_lost_behind_an_evicted_thread() {
            $($(unless_alike! { $wait, {
                let name = concat!($name, ":wait=", stringify!($wait), " stopped for a while");
                both(name, SEARCH, FAST, stopped_for_a_while::<$type>(false));
                both(&format!("{name}, timed"), SEARCH, FAST, stopped_for_a_while::<$type>(true));
            } })+)*
        }
    };
}
for_each_rw_lock!(rw_locks);

/// There are CPUs enough for shuffled waiters to keep spinning; their patience is much longer than one spin.
const ROOMY: Setup =
    Setup { patience: 60, micros_step: 4000, tunables: &Tunables { wake_ahead: 4, ..Tunables::DEFAULT }, ..STILL };
/// How many ticks they have to get past the head: several patiences.
const LONG_ENOUGH: u32 = 2000;

/// Two shuffled waiters behind a head that does not run, and behind them the node of a waiter that gave up: no thread
/// sleeps whose patience would help them.
fn shuffled_behind_a_frozen_head() {
    let mutex = Arc::new(Mutex::<Shfl<SpinThenPark>>::new());
    mutex.lock();
    let [head, gone] = [state::HEAD, state::ABANDONED].map(|initial| {
        let node = take_node::<Shuttle>();
        node.node::<Shuttle>().prepare(initial);
        node.node::<Shuttle>().role.store(mutex.queue.marked(0), Relaxed);
        node
    });
    assert!(mutex.queue.join(head, head));
    start_clock(head.node::<Shuttle>());
    mutex.queue.set_head(naming(head));

    let finished = Arc::new(AtomicU32::new(0));
    let waiters = [(); 2].map(|()| {
        let (mutex, finished) = (mutex.clone(), finished.clone());
        thread::spawn(move || {
            mutex.section();
            finished.fetch_add(1, Relaxed);
        })
    });
    let next = |handle: Handle| handle_in(handle.node::<Shuttle>().next.load(Relaxed));
    let [first, second] = loop {
        if let Some(first) = next(head)
            && let Some(second) = next(first)
        {
            break [first, second];
        }
        thread::yield_now();
    };
    mutex.queue.left().add();
    assert!(!mutex.queue.join(gone, gone));
    start_at_head(head.node::<Shuttle>());
    walk::<Shuttle, SameNumaNode>(head, &mutex.queue, || false);
    assert!(is_shuffled(first.node::<Shuttle>()) && is_shuffled(second.node::<Shuttle>()));

    mutex.unlock();
    for tick in 0.. {
        if finished.load(Relaxed) == 2 {
            break;
        }
        assert!(tick < LONG_ENOUGH, "shuffled waiters spin for ever");
        world().tick();
        thread::yield_now();
    }
    for waiter in waiters {
        waiter.join().expect("no panic");
    }
    // The head comes to, and notices.
    assert_eq!(head.node::<Shuttle>().state.load(Relaxed), state::EVICTED);
    Shuttle::give_node(head);
}

#[test]
fn shuffled_waiters_lose_their_patience() {
    both("shfl_stp frozen, shuffled", 2000, ROOMY, shuffled_behind_a_frozen_head);
    let endless = Setup { fault: Some(Fault::EndlessPolls), ..ROOMY };
    find("shuffled waiters never lose patience", By::Random, 100, endless, shuffled_behind_a_frozen_head);
}

/// A thread that has won out of turn wakes no waiter behind the head that it passed over.
struct RousesNobody;
impl ShflBug for RousesNobody {
    fn unlock<M: Machine>(word: &M::Word, queue: &ShflQueue<M>) {
        queue.head.fetch_and(!ROUSE, Relaxed);
        // SAFETY: the callers' promise.
        unsafe { <Shfl<Park> as RawLock<M>>::release(word, queue) };
    }
}

/// Patience comes to an end, but no head has been head for so long that it is evicted, or handed the lock.
const FRESH: Setup = Setup { micros_step: 0, tunables: &Tunables::DEFAULT, ..FLOWING };

/// Waiters that were moved sleep without a patience, except the last: a thread that wins past the frozen head gives its
/// patience to another waiter.
#[test]
fn patience_is_handed_on() {
    const STEPS: u32 = 4000;
    let sound = || frozen_before_woken_within(erased::<Shuttled, Shfl<Park>>, true, STEPS);
    both("shfl_park frozen, roused", SCHEDULES, FRESH, sound);
    let mutant = || frozen_before_woken_within(erased::<Shuttled, MutantShfl<RousesNobody>>, true, STEPS);
    find("rouses nobody", By::Random, 20_000, FRESH, mutant);
}
