//! Every lock of the catalogue lets one thread at a time to data that is not atomic, on a machine of plain atomics.
//!
//! Natively this shows little. Under Miri (`cargo xtask miri`) it shows that nothing here breaks Rust's rules of
//! memory: Miri checks each access, sees a data race wherever a lock does not order two sections, and lets loads return
//! old values where the orderings allow that.
//!
//! And each event that a lock reports is about that lock.

extern crate std;

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;
use std::panic::resume_unwind;
use std::thread;
use std::vec::Vec;

use crate::closure::{Delegate, RawClosure};
use crate::machine::bench::{Bench, Plain, heard};
use crate::machine::event::Event;
use crate::machine::{Deadline, Listen as _, Patience, Time as _, TimedOut, Waiting as _, Word as _};
use crate::mutex::spin::Tas;
use crate::parts::raw::{Raw, RawLock};
use crate::rw::{self, RawRwLock, Reader, Writer};
use crate::{for_each_lock, for_each_rw_lock, for_each_standalone_lock};

const THREADS: u32 = 3;
const ROUNDS: u32 = if cfg!(miri) { 8 } else { 1_000 };
const NAMED: usize = if cfg!(miri) { 6 } else { 200 };

/// What a lock protects.
struct Data(UnsafeCell<u32>);

// SAFETY: accessed by holders of a lock only, which is what is tested.
unsafe impl Sync for Data {}

impl Data {
    fn add(&self) {
        // SAFETY: callers hold the lock.
        unsafe { *self.0.get() += 1 };
    }

    fn get(&self) -> u32 {
        // SAFETY: callers hold the lock, for reading at least.
        unsafe { *self.0.get() }
    }
}

/// Each of the threads runs `round` for each of its rounds; returns how often that was true.
fn rounds(round: impl Fn(u32) -> bool + Sync) -> u32 {
    let work = |thread| (0..ROUNDS).filter(|number| round(thread + number)).count() as u32;
    thread::scope(|scope| {
        let threads: [_; THREADS as usize] = core::array::from_fn(|thread| scope.spawn(move || work(thread as u32)));
        threads.map(|thread| thread.join().expect("no panic")).iter().sum()
    })
}

fn mutex<L: RawLock<Bench, Queue: Sync>>(name: &str) {
    let (lock, data) = (Raw::<Bench, L>::new(), Data(UnsafeCell::new(0)));
    let held = rounds(|number| {
        let held = match number % 4 {
            0 => lock.try_lock(),
            1 => lock.lock_until(Bench::sooner(100, None)).is_ok(),
            _ => {
                lock.lock();
                true
            }
        };
        if held {
            data.add();
            // SAFETY: this thread holds it.
            unsafe { lock.unlock() };
        }
        held
    });
    lock.lock();
    assert_eq!(data.get(), held, "{name}");
    // SAFETY: this thread holds it.
    unsafe { lock.unlock() };
}

fn rw_lock<L: RawRwLock<Bench, State: Sync>>(name: &str) {
    let (lock, data) = (rw::Raw::<Bench, L>::new(), Data(UnsafeCell::new(0)));
    let wrote = rounds(|number| {
        let until = number.is_multiple_of(3).then(|| Bench::sooner(100, None));
        let writes = number.is_multiple_of(2);
        let held = if writes { lock.write(Writer::Fair, until) } else { lock.read(Reader::Newcomer, until) }.is_ok();
        if held {
            if writes {
                data.add();
            } else {
                _ = data.get();
            }
            // SAFETY: this thread holds it.
            unsafe { lock.unlock() };
        }
        held && writes
    });
    assert!(lock.read(Reader::Newcomer, None).is_ok());
    assert_eq!(data.get(), wrote, "{name}");
    // SAFETY: this thread holds it.
    unsafe { lock.unlock() };
}

fn closure<L: RawClosure<Bench, State: Sync>>(name: &str) {
    let all = Delegate::<Bench, L, u32>::new(0);
    let came = rounds(|_| {
        all.with(|all| *all += 1);
        true
    });
    assert_eq!(all.with(|all| *all), came, "{name}");
}

macro_rules! each {
    (as $test:ident: $(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        $($($test::<$type>(concat!($name, ":wait=", stringify!($wait)));)+)*
    };
}

macro_rules! each_closure {
    (as $test:ident:
        $(($variant:ident, $name:literal, $interface:ident, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?
    ) => {
        $($(each_closure!(@ $interface $test, concat!($name, ":wait=", stringify!($wait)), $type);)+)*
    };
    (@ closure $test:ident, $name:expr, $type:ty) => { $test::<$type>($name) };
    (@ $interface:ident $test:ident, $name:expr, $type:ty) => {};
}

#[test]
fn mutexes() {
    macro_rules! all {
        ($($rows:tt)*) => { each!(as mutex: $($rows)*) };
    }
    for_each_lock!(all);
}

#[test]
fn readers_writer_locks() {
    macro_rules! all {
        ($($rows:tt)*) => { each!(as rw_lock: $($rows)*) };
    }
    for_each_rw_lock!(all);
}

#[test]
fn closure_locks() {
    macro_rules! all {
        ($($rows:tt)*) => { each_closure!(as closure: $($rows)*) };
    }
    for_each_standalone_lock!(all);
}

/// Three threads use two locks of a kind. All that they report is about one of these, and each acquisition about the
/// right one. `acquires` acquires and releases the one of this number, without reporting anything else about the other.
fn named(name: &str, acquired: &[Event], acquires: impl Fn(usize) + Sync) {
    let address = |lock| {
        let heard = heard(|| acquires(lock));
        heard.iter().find(|(_, event)| acquired.contains(event)).map_or(0, |(address, _)| *address)
    };
    let locks = [address(0), address(1)];
    assert!(locks[0] != locks[1] && !locks.contains(&0), "{name}: {locks:x?}");
    let work = |thread: usize| {
        let turns = || (0..NAMED).map(move |turn| (thread + turn) % 3 / 2);
        let heard = heard(|| turns().for_each(&acquires));
        for (lock, address) in locks.iter().enumerate() {
            let count = heard.iter().filter(|(about, event)| about == address && acquired.contains(event)).count();
            assert_eq!(count, turns().filter(|turn| *turn == lock).count(), "{name}");
        }
        let strays: Vec<_> = heard.iter().filter(|(about, _)| !locks.contains(about)).collect();
        assert!(strays.is_empty(), "{name}: {strays:x?} beside {locks:x?}");
    };
    thread::scope(|scope| {
        let threads: [_; 3] = core::array::from_fn(|thread| scope.spawn(move || work(thread)));
        for thread in threads {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

fn named_mutex<L: RawLock<Bench, Queue: Sync>>(name: &str) {
    let locks = [Raw::<Bench, L>::new(), Raw::new()];
    named(name, &[L::ACQUIRED], |lock| {
        locks[lock].lock();
        thread::yield_now();
        // SAFETY: this thread holds it.
        unsafe { locks[lock].unlock() };
    });
}

fn named_rw_lock<L: RawRwLock<Bench, State: Sync>>(name: &str) {
    let locks = [rw::Raw::<Bench, L>::new(), rw::Raw::new()];
    for writes in [false, true] {
        named(name, &[if writes { Event::RwWrite } else { Event::RwRead }], |lock| {
            let lock = &locks[lock];
            let held = if writes { lock.write(Writer::Fair, None) } else { lock.read(Reader::Newcomer, None) };
            assert!(held.is_ok(), "{name}");
            thread::yield_now();
            // SAFETY: this thread holds it.
            unsafe { lock.unlock() };
        });
    }
}

fn named_closure<L: RawClosure<Bench, State: Sync>>(name: &str) {
    let locks = [Delegate::<Bench, L, u32>::new(0), Delegate::new(0)];
    named(name, &[Event::Acquire], |lock| locks[lock].with(|all| *all += 1));
}

#[test]
fn events_name_their_lock() {
    macro_rules! mutexes {
        ($($rows:tt)*) => { each!(as named_mutex: $($rows)*) };
    }
    for_each_lock!(mutexes);
    macro_rules! rw_locks {
        ($($rows:tt)*) => { each!(as named_rw_lock: $($rows)*) };
    }
    for_each_rw_lock!(rw_locks);
    macro_rules! closures {
        ($($rows:tt)*) => { each_closure!(as named_closure: $($rows)*) };
    }
    for_each_standalone_lock!(closures);
}

#[test]
#[should_panic(expected = "an event about no lock")]
fn an_event_about_no_lock_is_found() {
    let locks = [Raw::<Bench, Tas>::new(), Raw::new()];
    named("an event about no lock", &[Event::Acquire], |lock| {
        locks[lock].lock();
        // SAFETY: this thread holds it.
        unsafe { locks[lock].unlock() };
        Bench::trace(Event::Wake);
    });
}

/// Excludes, but orders nothing: what Miri must report. (A test by itself, since Miri ends there.)
struct Unordered;

// SAFETY: it has no nodes.
unsafe impl RawLock<Bench> for Unordered {
    type Queue = ();

    unsafe fn try_acquire(word: &Plain, (): &()) -> bool {
        word.compare_exchange(0, 1, Relaxed, Relaxed).is_ok()
    }

    unsafe fn acquire(word: &Plain, (): &(), _: Option<&Deadline>) -> Result<(), TimedOut> {
        Bench::spin_until(word, Relaxed, Patience::Forever, |_| word.compare_exchange(0, 1, Relaxed, Relaxed).is_ok());
        Ok(())
    }

    unsafe fn release(word: &Plain, (): &()) {
        word.store(0, Relaxed);
    }

    unsafe fn is_locked(word: &Plain, (): &()) -> bool {
        word.load(Relaxed) != 0
    }
}

#[test]
#[ignore = "a data race, for Miri to report: cargo xtask miri"]
fn unordered_sections() {
    mutex::<Unordered>("unordered");
}
