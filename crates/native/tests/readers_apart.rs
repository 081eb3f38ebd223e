//! `cst-rw` with distributed readers from the first acquisition on.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use flashlock_locks::machine::{Clock, Deadline, Time as _, Tunables};
use flashlock_locks::parts::wait::SpinThenPark;
use flashlock_locks::rw::{CstRw, Raw, RawRwLock, Reader, Refusal, Writer};
use flashlock_native::{Native, NoStats};

type M = Native<NoStats>;
type L = CstRw<SpinThenPark>;
type Lock = Raw<M, L>;

/// A lock and the data that it protects.
struct Guarded {
    lock: Lock,
    cells: UnsafeCell<[u64; 4]>,
}

// SAFETY: only threads that hold the lock access the cells.
unsafe impl Sync for Guarded {}

fn state_of(lock: &Lock) -> &<L as RawRwLock<M>>::State {
    // SAFETY: it is only looked at, and passed to functions of the lock.
    unsafe { lock.state() }
}

/// Readers use distributed counters from now on.
fn begin(lock: &Lock) {
    // SAFETY: it is this lock's state.
    unsafe { state_of(lock).count_distributed::<SpinThenPark>(None) };
}

impl Guarded {
    /// In a box, because a lock that is moved no longer uses its side block.
    fn new() -> Box<Self> {
        let this = Box::new(Self { lock: Lock::new(), cells: UnsafeCell::new([0; 4]) });
        assert_eq!(state_of(&this.lock).side.0.load(Relaxed), 0);
        begin(&this.lock);
        assert_ne!(state_of(&this.lock).side.0.load(Relaxed), 0, "no side block");
        this
    }

    fn write(&self) {
        // SAFETY: callers hold the lock for writing.
        unsafe { (*self.cells.get()).iter_mut().for_each(|cell| *cell += 1) };
    }

    fn look(&self) -> u64 {
        // SAFETY: callers hold the lock for reading.
        let cells = unsafe { *self.cells.get() };
        assert!(cells.iter().all(|cell| *cell == cells[0]), "a reader beside a writer: {cells:?}");
        cells[0]
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: no thread uses the lock any more, and its own end finds nothing left to give back.
        unsafe { L::destroy(state_of(&self.lock)) };
        assert_eq!(state_of(&self.lock).side.0.load(Relaxed), 0, "the side block is not given back");
    }
}

/// Ends a section of the calling thread.
fn release(lock: &Lock) {
    // SAFETY: its callers hold the lock.
    unsafe { lock.unlock() }
}

fn read(lock: &Lock, until: Option<Deadline>) -> Result<(), Refusal> {
    lock.read(Reader::Newcomer, until)
}

/// Acquires in every way, with more threads than CPUs, and with so many writers that readers return to a common count
/// several times.
#[test]
fn writers_are_alone() {
    const THREADS: u64 = 6;
    const ROUNDS: u64 = 6_000;
    let guarded = Guarded::new();
    let work = |me: u64| {
        let mut written = 0;
        for round in 0..ROUNDS {
            let soon = Some(M::sooner(20, None));
            let writes = match (me + round) % 12 {
                0 => guarded.lock.write(Writer::Fair, None).is_ok(),
                1 => guarded.lock.write(Writer::Preferred, soon).is_ok(),
                2 | 3 => guarded.lock.try_write(),
                how => {
                    let held = match how {
                        4 => guarded.lock.try_read(Reader::Newcomer),
                        5 => read(&guarded.lock, soon),
                        _ => read(&guarded.lock, None),
                    };
                    if held.is_ok() {
                        guarded.look();
                        release(&guarded.lock);
                    }
                    continue;
                }
            };
            if writes {
                guarded.write();
                written += 1;
                release(&guarded.lock);
            }
        }
        written
    };
    let written: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|me| scope.spawn(move || work(me))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert!(!guarded.lock.is_held());
    assert!(written > ROUNDS / 12 * THREADS);
    assert_eq!(guarded.look(), written);
}

/// A reader too many is refused before the sum can overflow; nothing is lost.
#[test]
fn too_many_readers_are_told() {
    let guarded = Guarded::new();
    let most = <L as RawRwLock<M>>::MOST_READERS;
    let far = Some(M::sooner(60_000_000, None));
    let mut held = 0_u32;
    let refusal = loop {
        match read(&guarded.lock, far) {
            Ok(()) => held += 1,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal, Refusal::Overflow);
    assert!(held >= most, "{held} of {most}");
    assert_eq!(guarded.lock.try_read(Reader::Newcomer), Err(Refusal::Overflow));
    assert!(!guarded.lock.try_write(), "a writer beside {held} readers");
    (0..held).for_each(|_| release(&guarded.lock));
    assert!(guarded.lock.try_write());
    release(&guarded.lock);
}

/// Readers that enter by one counter and leave by another fill the first one, although few are in at any time.
#[test]
fn readers_may_drift_from_counter_to_counter() {
    let guarded = Guarded::new();
    let half = <L as RawRwLock<M>>::MOST_READERS / 2;
    // SAFETY: a set of CPUs may be all-zero, and the kernel only reads it.
    let run_on = |cpu: usize| unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    for round in 0..5 {
        run_on(0);
        (0..half).for_each(|at| assert!(read(&guarded.lock, None).is_ok(), "round {round}, {at}"));
        run_on(1); // With only one CPU, this shows nothing.
        (0..half).for_each(|_| release(&guarded.lock));
        assert!(guarded.lock.try_write(), "round {round}: left held");
        release(&guarded.lock);
    }
}

/// Writers alone end the distribution; the side block stays for the next time.
#[test]
fn writers_end_it() {
    let guarded = Guarded::new();
    let side = state_of(&guarded.lock).side.0.load(Relaxed);
    let apart = state_of(&guarded.lock).heat.0.load(Relaxed);
    for _ in 0..Tunables::DEFAULT.writers {
        assert_eq!(state_of(&guarded.lock).heat.0.load(Relaxed), apart);
        assert!(guarded.lock.write(Writer::Fair, None).is_ok());
        release(&guarded.lock);
    }
    assert_eq!(state_of(&guarded.lock).heat.0.load(Relaxed), 0);
    assert!(read(&guarded.lock, None).is_ok());
    assert!(!guarded.lock.try_write());
    release(&guarded.lock);
    begin(&guarded.lock);
    assert_eq!(
        (state_of(&guarded.lock).heat.0.load(Relaxed), state_of(&guarded.lock).side.0.load(Relaxed)),
        (apart, side)
    );
}

/// A failed trylock obstructs no reader.
#[test]
fn readers_are_not_kept_out_by_who_tries_to_write() {
    let guarded = Guarded::new();
    assert!(read(&guarded.lock, None).is_ok());
    thread::scope(|scope| {
        let tries = scope.spawn(|| (0..100_000).filter(|_| guarded.lock.try_write()).count());
        for _ in 0..100_000 {
            assert_eq!(guarded.lock.try_read(Reader::Newcomer), Ok(()));
            release(&guarded.lock);
        }
        assert_eq!(tries.join().expect("no panic"), 0);
    });
    release(&guarded.lock);
}

/// If the deadline passes while a reader is inside, the writer reports it, and the lock is unchanged.
#[test]
fn a_writer_gives_up() {
    let guarded = Guarded::new();
    assert!(read(&guarded.lock, None).is_ok());
    let soon = Some(Deadline { clock: Clock::Monotonic, sec: 0, nsec: 0 });
    assert_eq!(guarded.lock.write(Writer::Fair, soon), Err(Refusal::TimedOut));
    assert_eq!(guarded.lock.try_read(Reader::Newcomer), Ok(()));
    release(&guarded.lock);
    release(&guarded.lock);
    assert!(guarded.lock.try_write());
    release(&guarded.lock);
}
