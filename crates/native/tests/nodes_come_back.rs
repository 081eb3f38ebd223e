//! A try of a held lock returns at once and costs no node; a destroyed lock gives back everything that it had. Checked
//! for each mutex and each readers-writer lock of the catalogue, and for semaphores. (For nodes left by waiters that
//! give up during a release, see `model/tests/shuttle/unwaited.rs`.)

use std::sync::mpsc;
use std::time::Duration;

use flashlock_erased::native::{self, MUTEXES, Mutex, RW_LOCKS, RwLock};
use flashlock_locks::machine::{Clock, Deadline, Memory as _, Tunables, Word as _};
use flashlock_locks::mutex::numa::CTktTkt;
use flashlock_locks::mutex::queue::Mcs;
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::wait::Park;
use flashlock_locks::rw::{Reader, Writer};
use flashlock_locks::sem::{Ended, SemQueue, Semaphore};
use flashlock_native::{Native, NoStats, Word32, pool};

type Here = Native<NoStats>;

/// More than a pool's first chunk has, so that a loss in each try is noticed.
const TRIES: u32 = 10_000;
const LIVES: u32 = 100_000;
/// What threads and lines keep may differ by this much from one use of a lock to the next.
const SLACK: u32 = 16;
/// Time limit, in case of a hang.
const LIMIT: Duration = Duration::from_secs(120);
const PAST: Deadline = Deadline { clock: Clock::Monotonic, sec: 0, nsec: 0 };

/// Ends a section of the calling thread.
fn release(lock: &Mutex) {
    // SAFETY: its callers hold the lock.
    unsafe { lock.unlock() }
}

/// By how many nodes and blocks the pools grow during `work`.
fn grown(work: impl FnOnce()) -> u32 {
    let pieces = || pool::size() + pool::blocks();
    let before = pieces();
    work();
    pieces() - before
}

/// Tries a held lock for which other threads wait, or have waited. Returns what went wrong.
fn trying(new: fn() -> Mutex, limit: Duration) -> Result<(), String> {
    let lock: &Mutex = Box::leak(Box::new(new()));
    lock.lock();
    let waiter = std::thread::spawn(|| {
        lock.lock();
        release(lock);
    });
    for _ in 0..3 {
        if lock.lock_until(PAST).is_ok() {
            return Err("two hold it".into());
        }
    }
    let (say, hear) = mpsc::channel();
    std::thread::spawn(move || {
        let mut taken = 0;
        let more = grown(|| taken = (0..TRIES).filter(|_| lock.try_lock()).map(|_| release(lock)).count());
        let _ = say.send((taken, more));
    });
    let said = hear.recv_timeout(limit);
    release(lock);
    waiter.join().expect("no panic");
    match said {
        Err(_) => Err("a try of a held lock does not return".into()),
        Ok((0, more)) if more <= SLACK => Ok(()),
        Ok((0, more)) => Err(format!("{TRIES} tries cost {more} nodes")),
        Ok((taken, _)) => Err(format!("{taken} tries of a held lock take it")),
    }
}

/// Creates a lock, uses it and destroys it: uncontended, with a try, or after a thread has given up.
fn live(new: fn() -> Mutex, number: u32) {
    let lock = new();
    lock.lock();
    match number % 64 {
        0 => _ = lock.lock_until(PAST),
        1 => _ = lock.try_lock(),
        _ => {}
    }
    release(&lock);
    if number.is_multiple_of(2) {
        assert!(lock.try_lock());
        release(&lock);
    }
}

/// Checks that destroyed locks give everything back.
fn destroying(new: fn() -> Mutex) -> Result<(), String> {
    all_back(|number| live(new, number))
}

fn all_back(live: impl Fn(u32)) -> Result<(), String> {
    (0..64).for_each(&live);
    let more = grown(|| (0..LIVES).for_each(live));
    if more <= SLACK { Ok(()) } else { Err(format!("{LIVES} locks have lost {more} nodes or blocks")) }
}

/// Creates a readers-writer lock, uses it and destroys it: one thread reads so often that the lock may take to
/// distributed counters, tries in vain, or gives up.
fn live_rw(new: fn() -> RwLock, number: u32) {
    // SAFETY: this thread holds it.
    let release = |lock: &RwLock| unsafe { lock.unlock() };
    let lock = new();
    if number.is_multiple_of(256) {
        assert!(lock.read(Reader::Newcomer, None).is_ok());
        for _ in 0..2 * Tunables::DEFAULT.meetings {
            assert!(lock.read(Reader::Newcomer, None).is_ok());
            release(&lock);
        }
        release(&lock);
    }
    assert!(lock.write(Writer::Fair, None).is_ok());
    match number % 64 {
        0 => assert!(lock.write(Writer::Fair, Some(PAST)).is_err()),
        1 => assert!(lock.read(Reader::Newcomer, Some(PAST)).is_err()),
        2 => assert!(!lock.try_write()),
        3 => assert!(lock.try_read(Reader::Newcomer).is_err()),
        _ => {}
    }
    release(&lock);
    assert!(lock.try_read(Reader::Newcomer).is_ok());
    release(&lock);
}

/// The same for a semaphore.
fn live_semaphore(number: u32) {
    let (word, queue) = (Word32::new(0), SemQueue::<Here>::new());
    // SAFETY: the two are used by it only.
    let semaphore = unsafe { Semaphore::new(&word, &queue) };
    if number.is_multiple_of(64) {
        assert!(matches!(semaphore.wait(Some(PAST)), Ended::TimedOut));
    }
    assert!(!semaphore.try_wait() && semaphore.post().is_ok() && semaphore.try_wait());
}

/// One lock after the other, because they count what is in the pools.
#[test]
fn every_lock_gives_all_back() {
    for entry in MUTEXES {
        let outcome = trying(entry.new, LIMIT).and_then(|()| destroying(entry.new));
        assert_eq!(outcome, Ok(()), "{}", entry.name);
    }
    for entry in RW_LOCKS {
        assert_eq!(all_back(|number| live_rw(entry.new, number)), Ok(()), "{}", entry.name);
    }
    assert_eq!(all_back(live_semaphore), Ok(()), "semaphores");
    bugs_are_found();
}

/// `L` with one bug.
struct Mutant<L, const B: u8>(L);
/// A try waits.
const TRY_WAITS: u8 = 0;
/// A try that does not get the lock loses a node.
const TRY_LOSES: u8 = 1;
/// Destroying the lock gives nothing back.
const DESTROYS_NOTHING: u8 = 2;

// SAFETY: that of `L`: nodes that are lost serve no lock.
unsafe impl<L: RawLock<Here>, const B: u8> RawLock<Here> for Mutant<L, B> {
    type Queue = L::Queue;

    flashlock_locks::same_as!(Here, L: acquire release is_locked);

    unsafe fn try_acquire(word: &Word32, queue: &L::Queue) -> bool {
        if B == TRY_WAITS {
            // SAFETY: the callers' promise.
            unsafe { L::lock(word, queue) };
            return true;
        }
        // SAFETY: the callers' promise.
        let taken = unsafe { L::try_acquire(word, queue) };
        if B == TRY_LOSES && !taken {
            // SAFETY: nothing is done with it.
            let _ = unsafe { Here::take_node() };
        }
        taken
    }

    unsafe fn destroy(word: &Word32, queue: &L::Queue) {
        if B != DESTROYS_NOTHING {
            // SAFETY: the callers' promise.
            unsafe { L::destroy(word, queue) };
        }
    }
}

fn bugs_are_found() {
    // Such a try returns when the lock is released, which is always after the limit.
    let waits = trying(native::mutex::<Mutant<Mcs<Park>, TRY_WAITS>>, Duration::from_millis(300));
    assert_eq!(waits, Err("a try of a held lock does not return".into()));
    let loses = trying(native::mutex::<Mutant<Mcs<Park>, TRY_LOSES>>, LIMIT);
    assert!(loses.is_err_and(|how| how.contains("tries cost")));
    let keeps = destroying(native::mutex::<Mutant<CTktTkt, DESTROYS_NOTHING>>);
    assert!(keeps.is_err_and(|how| how.contains("have lost")));
}
