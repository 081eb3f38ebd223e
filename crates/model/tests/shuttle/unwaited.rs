//! A try and a release wait for no other thread, wherever that one stands: under each lock of the catalogue.
//!
//! So a thread under a real-time policy may release a lock that a thread which it outranks is just joining.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::machine::node::state;
use flashlock_locks::machine::{Deadline, Machine, Pause, Word as _};
use flashlock_locks::mutex::queue::clh::ClhQueue;
use flashlock_locks::mutex::queue::{Clh, Mcs};
use flashlock_locks::parts::queue::culling::{CullingQueue, HELD};
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::wait::Park;
use flashlock_locks::rw::shfl::ShflRwState;
use flashlock_locks::rw::{FutexRw, RawRwLock, Reader, Refusal, ShflRw, Writer};
use flashlock_locks::{for_each_lock, for_each_rw_lock};
use flashlock_model::Setup;
use flashlock_model::arena::take_node;
use flashlock_model::erased::erased;
use flashlock_model::shuttle::thread;
use flashlock_model::shuttle::{By, Draws, Shuttled, find};

use crate::common::{AnyMutex, FLOWING, Lock, STILL, any, both, world};
use crate::modelled::unless_alike;
use crate::rw::{Lock as RwLock, Rw, made};

/// How often a thread lets others run before it takes the one that it watches to be stuck.
const LONG_ENOUGH: u32 = 10_000;
/// Accesses within which each acquisition has queued, or was let in.
const ACCESSES: u32 = 40;
const TRIES: u32 = 3;
const SHORT: Draws = Draws { usual: 600, full: 20_000 };

/// Lets others run until `is_done`; whether it came to that.
fn awaits(is_done: impl Fn() -> bool) -> bool {
    (0..LONG_ENOUGH).any(|_| {
        let done = is_done();
        thread::yield_now();
        done
    })
}

/// A thread tries while others acquire, release, and give up. The thread that has the lock then keeps it until the
/// tries are over.
fn a_try_returns<L: Lock>() {
    a_try_returns_of(erased::<Shuttled, L>);
}

fn a_try_returns_of(new: fn() -> AnyMutex) {
    let mutex = Arc::new(new());
    let tried = Arc::new(AtomicU32::new(0));
    let holder = {
        let (mutex, tried) = (mutex.clone(), tried.clone());
        thread::spawn(move || {
            (0..any(4)).for_each(|_| mutex.section());
            mutex.lock();
            assert!(awaits(|| tried.load(Relaxed) == 1), "a try waits for the holder");
            mutex.unlock();
        })
    };
    let hasty = {
        let mutex = mutex.clone();
        thread::spawn(move || (0..any(3)).for_each(|_| _ = mutex.section_within(1 + any(2))))
    };
    for _ in 0..TRIES {
        if mutex.try_lock() {
            mutex.visit();
            mutex.unlock();
        }
    }
    tried.store(1, Relaxed);
    [holder, hasty].into_iter().for_each(|thread| thread.join().expect("no panic"));
    mutex.free();
}

/// A thread is stopped at any access of its acquisition, another comes, too, and the holder releases.
fn a_release_returns<L: Lock>() {
    a_release_returns_of(erased::<Shuttled, L>);
}

fn a_release_returns_of(new: fn() -> AnyMutex) {
    let mutex = Arc::new(new());
    let released = Arc::new(AtomicU32::new(0));
    mutex.lock();
    let joiners = [true, false].map(|is_stopped| {
        let mutex = mutex.clone();
        thread::spawn(move || {
            if is_stopped {
                world().stop_after(1 + any(ACCESSES));
            }
            mutex.lock();
            world().stop_after(0);
            mutex.visit();
            mutex.unlock();
        })
    });
    let holder = {
        let (mutex, released) = (mutex.clone(), released.clone());
        (0..any(20)).for_each(|_| thread::yield_now());
        thread::spawn(move || {
            mutex.unlock();
            released.store(1, Relaxed);
        })
    };
    assert!(awaits(|| released.load(Relaxed) == 1), "a release waits for a thread that is stopped");
    world().thaw();
    joiners.into_iter().chain([holder]).for_each(|thread| thread.join().expect("no panic"));
    mutex.section();
    mutex.free();
}

/// Acquires it for reading or for writing, as chance will have it.
fn acquire_any<L: Rw>(lock: &RwLock<L>, until: Option<Deadline>) -> bool {
    match any(2) {
        0 => lock.read([Reader::Newcomer, Reader::Behind][any(2) as usize], until),
        _ => lock.write([Writer::Fair, Writer::Preferred][any(2) as usize], until),
    }
}

/// [`a_try_returns_of`], of readers and writers.
fn a_try_of_readers_and_writers_returns<L: Rw>() {
    let lock = made::<L>();
    let tried = Arc::new(AtomicU32::new(0));
    let holder = {
        let (lock, tried) = (lock.clone(), tried.clone());
        thread::spawn(move || {
            assert!(acquire_any(&lock, None));
            assert!(awaits(|| tried.load(Relaxed) == 1), "a try waits for the holder");
            lock.unlock();
        })
    };
    let hasty = {
        let lock = lock.clone();
        thread::spawn(move || {
            for _ in 0..any(3) {
                if acquire_any(&lock, Some(world().deadline(1 + any(2)))) {
                    lock.unlock();
                }
            }
        })
    };
    for _ in 0..TRIES {
        if if any(2) == 0 { lock.try_write() } else { lock.try_read(Reader::Newcomer) } {
            lock.unlock();
        }
    }
    tried.store(1, Relaxed);
    [holder, hasty].into_iter().for_each(|thread| thread.join().expect("no panic"));
    lock.free();
}

/// [`a_release_returns_of`], of a reader or a writer.
fn a_release_of_readers_and_writers_returns<L: Rw>() {
    let lock = made::<L>();
    let released = Arc::new(AtomicU32::new(0));
    assert!(acquire_any(&lock, None));
    let joiners = [true, false].map(|is_stopped| {
        let lock = lock.clone();
        thread::spawn(move || {
            if is_stopped {
                world().stop_after(1 + any(ACCESSES));
            }
            assert!(acquire_any(&lock, None));
            world().stop_after(0);
            lock.unlock();
        })
    });
    let holder = {
        let (lock, released) = (lock.clone(), released.clone());
        (0..any(20)).for_each(|_| thread::yield_now());
        thread::spawn(move || {
            lock.unlock();
            released.store(1, Relaxed);
        })
    };
    assert!(awaits(|| released.load(Relaxed) == 1), "a release waits for a thread that is stopped");
    world().thaw();
    joiners.into_iter().chain([holder]).for_each(|thread| thread.join().expect("no panic"));
    assert!(lock.try_write(), "left held");
    lock.unlock();
    lock.free();
}

/// Waiters that give up leave nodes.
const ROOMY: Setup = Setup { nodes: 32, ..STILL };

/// Runs a body under the locks of these rows, with each way of waiting.
macro_rules! each_of {
    ($what:literal, $setup:ident, $body:ident:
     $(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        $($(unless_alike! { $wait,
            both(concat!($name, ":wait=", stringify!($wait), ", ", $what), SHORT, $setup, $body::<$type>);
        })+)*
    };
}

#[test]
fn a_try_waits_for_nobody() {
    macro_rules! all {
        ($($rows:tt)*) => { each_of! { "a try", FLOWING, a_try_returns: $($rows)* } };
    }
    for_each_lock!(all);
}

#[test]
fn a_release_waits_for_nobody() {
    macro_rules! all {
        ($($rows:tt)*) => { each_of! { "a release", ROOMY, a_release_returns: $($rows)* } };
    }
    for_each_lock!(all);
}

#[test]
fn a_try_of_a_reader_or_writer_waits_for_nobody() {
    macro_rules! all {
        ($($rows:tt)*) => { each_of! { "a try", FLOWING, a_try_of_readers_and_writers_returns: $($rows)* } };
    }
    for_each_rw_lock!(all);
}

#[test]
fn a_release_of_a_reader_or_writer_waits_for_nobody() {
    macro_rules! all {
        ($($rows:tt)*) => { each_of! { "a release", ROOMY, a_release_of_readers_and_writers_returns: $($rows)* } };
    }
    for_each_rw_lock!(all);
}

/// `Mcs` with one bug.
struct Mutant<const B: u8>;
/// A try looks whether the lock is free, and joins then like any other thread.
const TRIES_BY_A_LOOK: u8 = 0;
/// A release waits until a thread that has joined has linked itself.
const AWAITS_LINKS: u8 = 1;
/// A try leaves the node that it has taken behind.
const LOSES_A_NODE: u8 = 2;

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<M: Machine, const B: u8> RawLock<M> for Mutant<B> {
    type Queue = CullingQueue<M>;

    flashlock_locks::same_as!(M, Mcs<Park>: acquire is_locked);

    unsafe fn try_acquire(word: &M::Word, queue: &Self::Queue) -> bool {
        match B {
            // SAFETY: the callers' promise.
            TRIES_BY_A_LOOK if unsafe { <Mcs<Park> as RawLock<M>>::is_locked(word, queue) } => return false,
            // SAFETY: the callers' promise.
            TRIES_BY_A_LOOK => unsafe { <Mcs<Park> as RawLock<M>>::lock(word, queue) },
            _ => {
                // SAFETY: the callers' promise.
                let taken = unsafe { <Mcs<Park> as RawLock<M>>::try_acquire(word, queue) };
                if B == LOSES_A_NODE && !taken {
                    take_node::<M>().node::<M>().prepare(state::WAITING);
                }
                return taken;
            }
        }
        true
    }

    unsafe fn release(word: &M::Word, queue: &Self::Queue) {
        // SAFETY: callers hold the lock; the node is only looked at.
        let kept = unsafe { queue.holder() }.node;
        let link = kept.map_or(&queue.front, |node| &node.node::<M>().next);
        let alone = kept.map_or(HELD, |node| node.word());
        while B == AWAITS_LINKS && queue.tail.load(Relaxed) != alone && link.load(Relaxed) == 0 {
            M::pause(Pause::Nap(1));
        }
        // SAFETY: the callers' promise.
        unsafe { <Mcs<Park> as RawLock<M>>::release(word, queue) };
    }
}

/// `Clh` that gives nothing back when it is destroyed.
struct KeepsNodes;

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<M: Machine> RawLock<M> for KeepsNodes {
    type Queue = ClhQueue<M>;

    flashlock_locks::same_as!(M, Clh<Park>: try_acquire acquire release is_locked);
}

/// `FutexRw` that tries by acquiring.
struct WaitsInATry;

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<M: Machine> RawRwLock<M> for WaitsInATry {
    type State = <FutexRw as RawRwLock<M>>::State;

    flashlock_locks::same_rw_as!(
        M, FutexRw: MOST_READERS acquire_fast acquire_read try_acquire_read acquire_write release is_written is_held
    );

    unsafe fn try_acquire_write(state: &Self::State) -> bool {
        // SAFETY: the callers' promise.
        unsafe { <FutexRw as RawRwLock<M>>::acquire_write(state, Writer::Fair, None).is_ok() }
    }
}

/// `FutexRw` that tries to read by acquiring.
struct WaitsInATryToRead;

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<M: Machine> RawRwLock<M> for WaitsInATryToRead {
    type State = <FutexRw as RawRwLock<M>>::State;

    flashlock_locks::same_rw_as!(
        M, FutexRw: MOST_READERS acquire_fast acquire_read acquire_write try_acquire_write release is_written is_held
    );

    unsafe fn try_acquire_read(state: &Self::State, how: Reader) -> Result<(), Refusal> {
        // SAFETY: the callers' promise.
        unsafe { <FutexRw as RawRwLock<M>>::acquire_read(state, how, None) }
    }
}

/// `ShflRw` whose release waits until a thread that has joined is the head.
struct AwaitsAHead;

type Sound = ShflRw<Park>;

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<M: Machine> RawRwLock<M> for AwaitsAHead {
    type State = ShflRwState<M>;

    flashlock_locks::same_rw_as!(
        M, Sound: MOST_READERS acquire_fast acquire_read try_acquire_read acquire_write try_acquire_write is_written
            is_held
    );

    unsafe fn release(state: &ShflRwState<M>) {
        while state.queue.tail.load(Relaxed) != 0 && state.queue.front() == 0 {
            M::pause(Pause::Nap(1));
        }
        // SAFETY: the callers' promise.
        unsafe { Sound::release(state) };
    }
}

#[test]
fn bugs_are_found() {
    let by = By::Random;
    find(
        "futex-rw: a try to read waits",
        by,
        5_000,
        FLOWING,
        a_try_of_readers_and_writers_returns::<WaitsInATryToRead>,
    );
    find("shfl-rw: a release awaits a head", by, 5_000, ROOMY, a_release_of_readers_and_writers_returns::<AwaitsAHead>);
    find("futex-rw: a try waits", by, 5_000, FLOWING, a_try_of_readers_and_writers_returns::<WaitsInATry>);
    find("mcs: a try looks, and then waits", by, 5_000, FLOWING, a_try_returns::<Mutant<TRIES_BY_A_LOOK>>);
    find("mcs: a try loses a node", by, 5_000, FLOWING, a_try_returns::<Mutant<LOSES_A_NODE>>);
    find("clh: its end gives nothing back", by, 5_000, FLOWING, a_try_returns::<KeepsNodes>);
    find("mcs: a release awaits links", by, 5_000, ROOMY, a_release_returns::<Mutant<AWAITS_LINKS>>);
}
