//! Every lock around data that is not atomic, on several threads, acquired in all ways.
//!
//! Built normally, this test finds locks that do not exclude. Its main purpose is `cargo xtask races`, which builds it
//! with ThreadSanitizer. The sanitizer knows which accesses the locks' atomic operations order, by the orderings that
//! are *written*, whatever the processor adds to them. It reports all other accesses as races.

use std::cell::UnsafeCell;
use std::sync::Once;

use flashlock_erased::native::{self, MUTEXES, RW_LOCKS};
use flashlock_locks::machine::{Clock, Deadline, Time as _};
use flashlock_locks::mutex::malthusian::Mcscr;
use flashlock_locks::parts::queue::service::TimePublished;
use flashlock_locks::parts::wait::{Spin, SpinThenPark};
use flashlock_locks::rw::{Reader, Writer};
use flashlock_native::{Native, NoStats, groups, numa, parts, settings};

type Here = Native<NoStats>;

const THREADS: u32 = 4;
const ROUNDS: u32 = 1_500;
const PAST: Deadline = Deadline { clock: Clock::Monotonic, sec: 0, nsec: 0 };

/// The data that locks protect: equal numbers, each on its own cache line.
#[repr(align(64))]
struct Line(UnsafeCell<u64>);

struct Data([Line; 2]);

// SAFETY: only threads that hold the lock access it, which is what is tested.
unsafe impl Sync for Data {}

impl Data {
    fn new() -> Self {
        Self([const { Line(UnsafeCell::new(0)) }; 2])
    }

    /// Reads both numbers. The caller holds the lock.
    fn read(&self) -> [u64; 2] {
        // SAFETY: as for `Sync`: no thread writes meanwhile.
        [0, 1].map(|line: usize| unsafe { *self.0[line].0.get() })
    }

    /// Adds one to both numbers. The caller holds the lock for writing.
    fn write(&self) {
        for Line(number) in &self.0 {
            // SAFETY: as for `Sync`: no thread reads or writes meanwhile.
            unsafe { *number.get() += 1 };
        }
    }
}

/// Sets up the machine that `FLASHLOCK_TOPOLOGY` describes, if it is set. (Normally the preload does that.)
fn imagine() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shape = std::env::var(settings::ENV_TOPOLOGY).ok().and_then(|text| settings::parse_topology(&text));
        let Some(shape) = shape else { return };
        numa::prepare(Some(shape[0]));
        groups::prepare(Some(shape));
        parts::prepare();
        println!("imagined: {shape:?}");
    });
}

/// Runs `round(thread, round)` on several threads. In the end the data must equal the number of writes.
fn rounds(data: &Data, round: &(dyn Fn(u32, u32) -> u64 + Sync)) {
    imagine();
    let written: u64 = std::thread::scope(|scope| {
        let work = |thread| move || (0..ROUNDS).map(|number| round(thread, number)).sum::<u64>();
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(data.read(), [written; 2]);
}

fn mutex(lock: &native::Mutex) {
    let data = Data::new();
    rounds(&data, &|thread, round| {
        let held = match (thread + round) % 4 {
            0 => lock.try_lock(),
            1 => lock.lock_until(Here::sooner(200, None)).is_ok(),
            2 => lock.lock_until(PAST).is_ok(),
            _ => {
                lock.lock();
                true
            }
        };
        if held {
            data.write();
            // SAFETY: this thread holds it.
            unsafe { lock.unlock() };
        }
        u64::from(held)
    });
}

fn rw_lock(lock: &native::RwLock) {
    let data = Data::new();
    rounds(&data, &|thread, round| {
        let until = (round % 3 == 1).then(|| Here::sooner(200, None));
        if (thread + round).is_multiple_of(4) {
            let held = lock.write(Writer::Fair, until).is_ok();
            if held {
                data.write();
                // SAFETY: this thread holds it.
                unsafe { lock.unlock() };
            }
            return u64::from(held);
        }
        if lock.read(Reader::Newcomer, until).is_ok() {
            let [one, other] = data.read();
            assert_eq!(one, other);
            // SAFETY: this thread holds it.
            unsafe { lock.unlock() };
        }
        0
    });
}

/// A lock that orders nothing: the sanitizer must report it. So it is built only for the sanitizer.
#[cfg(flashlock_races)]
mod control {
    use std::sync::atomic::Ordering::Relaxed;

    use flashlock_erased::native;
    use flashlock_locks::machine::{Deadline, TimedOut, Word as _};
    use flashlock_locks::parts::raw::RawLock;
    use flashlock_native::Word32;

    use super::{Here, mutex};

    /// Excludes, but lacks memory ordering.
    struct Unordered;

    // SAFETY: it has no nodes.
    unsafe impl RawLock<Here> for Unordered {
        type Queue = ();

        unsafe fn try_acquire(word: &Word32, (): &()) -> bool {
            word.compare_exchange(0, 1, Relaxed, Relaxed).is_ok()
        }

        unsafe fn acquire(word: &Word32, queue: &(), _: Option<&Deadline>) -> Result<(), TimedOut> {
            // SAFETY: the callers' promise.
            while !unsafe { Self::try_acquire(word, queue) } {
                std::thread::yield_now();
            }
            Ok(())
        }

        unsafe fn release(word: &Word32, (): &()) {
            word.store(0, Relaxed);
        }

        unsafe fn is_locked(word: &Word32, (): &()) -> bool {
            word.load(Relaxed) != 0
        }
    }

    #[test]
    fn unordered_sections() {
        mutex(&native::mutex::<Unordered>());
    }
}

#[test]
fn mutexes() {
    for entry in MUTEXES {
        println!("{}", entry.name);
        mutex(&(entry.new)());
    }
}

/// `mcscr:evict=1`: the option applies to the whole process, and is off here.
#[test]
fn mcscr_that_evicts() {
    mutex(&native::mutex::<Mcscr<Spin, TimePublished>>());
    mutex(&native::mutex::<Mcscr<SpinThenPark, TimePublished>>());
}

#[test]
fn rw_locks() {
    for entry in RW_LOCKS {
        println!("{}", entry.name);
        rw_lock(&(entry.new)());
    }
}
