//! Condition variables: no wake-up lost, no signal swallowed, destroyed as soon as no thread is blocked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::cond::Outcome;
use flashlock_locks::for_each_lock;
use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::node::state;
use flashlock_locks::machine::order::Order;
use flashlock_locks::machine::{Tunables, Word as _};
use flashlock_locks::mutex::flash::Flash;
use flashlock_locks::mutex::shuffle::Shfl;
use flashlock_locks::mutex::spin::Futex;
use flashlock_locks::parts::wait::SpinThenPark;
use flashlock_model::erased::erased;
use flashlock_model::harness::Waited;
use flashlock_model::shuttle::thread::{self, JoinHandle};
use flashlock_model::shuttle::{By, Shuttled, explore, find};
use flashlock_model::{Setup, Shuttle};

use crate::common::{AnyMutex, Cond, FLOWING, Lock, STILL, any, both, share, world};
use crate::modelled::each;

/// A mutex, a condition variable, and numbers that the mutex protects.
struct Shared {
    mutex: AnyMutex,
    cond: Cond,
    /// Items that were made and not taken, or how many wait.
    items: AtomicU32,
    flag: AtomicU32,
}

/// Makes the mutex of a model.
type New = fn() -> AnyMutex;

impl Shared {
    fn new(new: New) -> Arc<Self> {
        let (items, flag) = (AtomicU32::new(0), AtomicU32::new(0));
        Arc::new(Self { mutex: new(), cond: Cond::new(), items, flag })
    }

    fn add(&self, number: &AtomicU32, by: i32) -> u32 {
        let new = number.load(Relaxed).wrapping_add_signed(by);
        number.store(new, Relaxed);
        self.mutex.visit();
        new
    }
}

fn spawn(shared: &Arc<Shared>, body: impl Fn(&Shared) + Send + 'static) -> JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || body(&shared))
}

/// Two producers, two consumers; a signal for each item, or a broadcast, in or after the section; some waits are timed.
pub(crate) fn producers_and_consumers<L: Lock>(timed: bool, moves: bool) {
    producers_and_consumers_of(erased::<Shuttled, L>, timed, moves);
}

fn producers_and_consumers_of(new: New, timed: bool, moves: bool) {
    const EACH: u32 = 2;
    let shared = Shared::new(new);
    let consume = move |shared: &Shared| {
        for _ in 0..EACH {
            shared.mutex.lock();
            while shared.items.load(Relaxed) == 0 {
                let until = (timed && any(2) == 0).then(|| world().deadline(1 + any(3)));
                shared.cond.wait(&shared.mutex, until);
            }
            shared.add(&shared.items, -1);
            shared.mutex.unlock();
        }
    };
    let produce = move |shared: &Shared| {
        for _ in 0..EACH {
            let (inside, all) = (any(2) == 0, any(4) == 0);
            let wake = || if all { shared.cond.broadcast(&shared.mutex, moves) } else { shared.cond.signal() };
            shared.mutex.lock();
            shared.add(&shared.items, 1);
            if inside {
                wake();
            }
            shared.mutex.unlock();
            if !inside {
                wake();
            }
        }
    };
    let threads = [spawn(&shared, consume), spawn(&shared, consume), spawn(&shared, produce)];
    produce(&shared);
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(shared.items.load(Relaxed), 0);
    assert!(shared.cond.destroy(), "nobody waits");
    assert!(!shared.mutex.is_locked());
    shared.mutex.free();
}

/// Three wait for a flag, which is set once; all must come back.
pub(crate) fn one_broadcast<L: Lock>(timed: bool, moves: bool) {
    one_broadcast_of(erased::<Shuttled, L>, timed, moves);
}

fn one_broadcast_of(new: New, timed: bool, moves: bool) {
    let shared = Shared::new(new);
    let wait = move |shared: &Shared| {
        shared.mutex.lock();
        while shared.flag.load(Relaxed) == 0 {
            let until = (timed && any(2) == 0).then(|| world().deadline(1 + any(3)));
            shared.cond.wait(&shared.mutex, until);
        }
        shared.mutex.visit();
        shared.mutex.unlock();
    };
    let threads = [spawn(&shared, wait), spawn(&shared, wait), spawn(&shared, wait)];
    let inside = any(2) == 0;
    shared.mutex.lock();
    shared.add(&shared.flag, 1);
    if inside {
        shared.cond.broadcast(&shared.mutex, moves);
    }
    shared.mutex.unlock();
    if !inside {
        shared.cond.broadcast(&shared.mutex, moves);
    }
    for thread in threads {
        thread.join().expect("no panic");
    }
    shared.mutex.free();
}

/// One waiter may time out or be cancelled, one waits for good; a signal that the first does not take reaches the
/// second.
fn no_signal_swallowed<L: Lock>(cancelled: bool) {
    no_signal_swallowed_of(erased::<Shuttled, L>, cancelled);
}

fn no_signal_swallowed_of(new: New, cancelled: bool) {
    let shared = Shared::new(new);
    let steady = spawn(&shared, |shared| {
        shared.mutex.lock();
        shared.add(&shared.items, 1);
        assert_eq!(shared.cond.wait(&shared.mutex, None), Waited::Woken);
        shared.add(&shared.flag, 1);
        shared.mutex.unlock();
    });
    let fickle = spawn(&shared, move |shared| {
        shared.mutex.lock();
        shared.add(&shared.items, 1);
        let waited = if cancelled {
            shared.cond.wait_cancelled(&shared.mutex)
        } else {
            shared.cond.wait(&shared.mutex, Some(world().deadline(1)))
        };
        shared.mutex.unlock();
        // A waiter that is cancelled passes the signal on. A waiter that took it sends another.
        if !cancelled && waited == Waited::Woken {
            shared.cond.signal();
        }
    });
    loop {
        shared.mutex.lock();
        let both_wait = shared.items.load(Relaxed) == 2;
        shared.mutex.unlock();
        if both_wait {
            break;
        }
        thread::yield_now();
    }
    shared.cond.signal();
    fickle.join().expect("no panic");
    steady.join().expect("no panic");
    assert_eq!(shared.flag.load(Relaxed), 1);
    assert!(shared.cond.destroy());
    shared.mutex.free();
}

/// The condition variable is destroyed, and freed, as soon as a broadcast that reached all waiters has returned; some
/// of them may be about to give up just then.
fn destroyed_at_once<L: Lock>(moves: bool, timed: bool) {
    destroyed_at_once_of(erased::<Shuttled, L>, moves, timed);
}

fn destroyed_at_once_of(new: New, moves: bool, timed: bool) {
    let shared = Shared::new(new);
    let gone = Arc::new(AtomicU32::new(0));
    let wait = |gone: Arc<AtomicU32>| {
        move |shared: &Shared| {
            shared.mutex.lock();
            shared.add(&shared.items, 1);
            let mut gave_up = false;
            while shared.flag.load(Relaxed) == 0 && !gave_up {
                let until = timed.then(|| world().deadline(1 + any(3)));
                gave_up = shared.cond.wait(&shared.mutex, until) == Waited::GaveUp;
            }
            shared.add(&shared.items, -1);
            gone.fetch_add(1, Relaxed);
            shared.mutex.unlock();
        }
    };
    let threads = [spawn(&shared, wait(gone.clone())), spawn(&shared, wait(gone.clone()))];
    loop {
        shared.mutex.lock();
        let (all_wait, too_late) = (shared.items.load(Relaxed) == 2, gone.load(Relaxed) > 0);
        if all_wait {
            shared.add(&shared.flag, 1);
            shared.cond.broadcast(&shared.mutex, moves);
            assert!(shared.cond.destroy(), "all have been woken");
        }
        shared.mutex.unlock();
        if all_wait || too_late {
            break;
        }
        thread::yield_now();
    }
    for thread in threads {
        thread.join().expect("no panic");
    }
    shared.mutex.free();
}

/// A child, forked while another thread of the parent was anywhere in a call: the condition variable works.
fn forked<L: Lock>(moves: bool) {
    forked_of(erased::<Shuttled, L>, moves);
}

fn forked_of(new: New, moves: bool) {
    let shared = Shared::new(new);
    let [me, _] = [(); 2].map(|()| shared.cond.enqueue(shared.mutex.address()));
    let act = any(5);
    world().fork_within(1 + any(40), || match act {
        0 => {
            shared.cond.enqueue(shared.mutex.address());
        }
        1 => shared.cond.signal(),
        2 => shared.cond.broadcast(&shared.mutex, false),
        3 => assert!(shared.cond.queue.withdraw(me)),
        _ => assert!(!shared.cond.destroy(), "two wait"),
    });
    let wait = |shared: &Shared| {
        shared.mutex.lock();
        while shared.flag.load(Relaxed) == 0 {
            shared.cond.wait(&shared.mutex, None);
        }
        shared.mutex.visit();
        shared.mutex.unlock();
    };
    let threads = [spawn(&shared, wait), spawn(&shared, wait)];
    let wakes = spawn(&shared, move |shared| {
        shared.mutex.lock();
        shared.add(&shared.flag, 1);
        shared.mutex.unlock();
        shared.cond.broadcast(&shared.mutex, moves);
    });
    shared.cond.signal();
    for thread in threads.into_iter().chain([wakes]) {
        thread.join().expect("no panic");
    }
    assert!(shared.cond.destroy(), "nobody waits");
}

#[test]
fn usable_in_a_forked_child() {
    for moves in [false, true] {
        both("futex forked", 5_000, Setup { nodes: 16, ..STILL }, move || forked::<Futex>(moves));
        both("flash forked", 5_000, Setup { nodes: 16, ..STILL }, move || forked::<Flash>(moves));
        both("shfl forked", 5_000, Setup { nodes: 16, ..STILL }, move || forked::<Shfl<SpinThenPark>>(moves));
    }
}

/// Waiters that give up leave nodes, and some locks need blocks, too.
const TIMED: Setup = Setup { nodes: 24, ..FLOWING };

macro_rules! conds {
    ($lock:literal, $wait:ident, $type:ty) => {
        const NAME: &str = concat!($lock, ":wait=", stringify!($wait));

        #[test]
        fn queue_of_items() {
            let (name, schedules) = (format!("{NAME} producers and consumers"), share($lock, stringify!($wait), 4000));
            for moves in [false, true] {
                both(&name, schedules, STILL, move || producers_and_consumers::<$type>(false, moves));
                both(&name, schedules, TIMED, move || producers_and_consumers::<$type>(true, moves));
            }
        }

        #[test]
        fn broadcast() {
            let (name, schedules) = (format!("{NAME} broadcast"), share($lock, stringify!($wait), 4000));
            for moves in [false, true] {
                let shown = both(&name, schedules, STILL, move || one_broadcast::<$type>(false, moves));
                shown[0].shows(&[Event::CondBroadcast]);
                both(&name, schedules, TIMED, move || one_broadcast::<$type>(true, moves));
            }
        }

        #[test]
        fn signal_is_not_swallowed() {
            let (name, schedules) = (format!("{NAME} signal"), share($lock, stringify!($wait), 5000));
            both(&name, schedules, Setup { flow: 20, ..STILL }, || no_signal_swallowed::<$type>(false));
            both(&name, schedules, STILL, || no_signal_swallowed::<$type>(true));
        }

        #[test]
        fn destroy() {
            let (name, schedules) = (format!("{NAME} destroy"), share($lock, stringify!($wait), 5000));
            for moves in [false, true] {
                both(&name, schedules, STILL, move || destroyed_at_once::<$type>(moves, false));
                explore(&name, By::Random, schedules, TIMED, move || destroyed_at_once::<$type>(moves, true));
            }
        }
    };
}

macro_rules! mutexes {
    ($($rows:tt)*) => { each! { of: conds, crate::modelled::all: $($rows)* } };
}
for_each_lock!(mutexes);

const LIFO: Tunables = Tunables { cond_order: Order::LIFO, ..Tunables::DEFAULT };
const MIXED: Tunables = Tunables { cond_order: Order::lifo(2), ..Tunables::DEFAULT };

#[test]
fn in_any_order() {
    for tunables in [&LIFO, &MIXED] {
        for moves in [false, true] {
            let still = Setup { tunables, ..STILL };
            both("lifo, producers and consumers", 3000, still, move || {
                producers_and_consumers::<Futex>(false, moves);
            });
            both("lifo, timed", 3000, Setup { tunables, nodes: 8, ..FLOWING }, move || {
                producers_and_consumers::<Futex>(true, moves);
            });
            both("lifo, broadcast", 2000, still, move || one_broadcast::<Futex>(false, moves));
        }
    }
}

/// Three threads wait: which is signalled first, second and third.
#[test]
fn who_is_signalled_first() {
    let put_at_the_end = Order::lifo(5);
    for (order, random, expected) in [
        (Order::FIFO, 0, [0, 1, 2]),
        (Order::LIFO, 0, [2, 1, 0]),
        (put_at_the_end, 5, [0, 1, 2]),
        (put_at_the_end, 4, [2, 1, 0]),
    ] {
        let tunables: &'static Tunables = Box::leak(Box::new(Tunables { cond_order: order, ..Tunables::DEFAULT }));
        explore("order", By::Random, 10, Setup { tunables, random: Some(random), ..STILL }, move || {
            let cond = Cond::new();
            let queued = [(); 3].map(|()| cond.enqueue(0));
            let mut signalled = Vec::new();
            for _ in 0..3 {
                cond.signal();
                let notified = |&at: &usize| {
                    !signalled.contains(&at) && queued[at].node::<Shuttle>().state.peek() == state::SIGNALED
                };
                signalled.push((0..3).find(notified).expect("a signal tells somebody"));
            }
            assert_eq!(signalled, expected);
            for me in queued {
                assert_eq!(cond.queue.wait(me, None), Outcome::Signaled(None));
            }
            assert!(cond.destroy());
        });
    }
}

/// Two threads wait, the last in front. The first gives up while a signal comes for the one in front. `forgets`: the
/// node of the first does not name the one that was put in front of it.
fn the_front_stays(forgets: bool) {
    let cond = Arc::new(Cond::new());
    let [first, last] = [(); 2].map(|()| cond.enqueue(0));
    if forgets {
        first.node::<Shuttle>().prev.store(0, Relaxed);
    }
    let leaves = {
        let cond = cond.clone();
        thread::spawn(move || assert!(cond.queue.withdraw(first)))
    };
    cond.signal();
    assert_eq!(cond.queue.wait(last, None), Outcome::Signaled(None));
    leaves.join().expect("no panic");
    assert!(cond.destroy());
}

#[test]
fn who_is_put_in_front_is_linked() {
    let setup = Setup { tunables: &LIFO, ..STILL };
    both("lifo, one leaves", 1000, setup, || the_front_stays(false));
    find("put in front, not linked back", By::Random, 2000, setup, || the_front_stays(true));
}
