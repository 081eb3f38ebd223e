//! Hints decide nothing: every lock excludes, and makes progress, while another thread scribbles on the
//! [hints](flashlock_locks::machine::node) of all queue nodes.
//!
//! In a program, such stores come through stale handles, rarely and at unlucky moments. Here one thread makes them all
//! the time, with any values, to every node, whatever its use. So the test finds a word that is a hint in one use of a
//! node and state in another. Nothing depends on the threads' speed: they count what they did.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};

use flashlock_erased::native::{MUTEXES, RW_LOCKS};
use flashlock_erased::{Mutex, RwLock};
use flashlock_locks::closure::{Delegate, RawClosure};
use flashlock_locks::cond::{AtOnce, CondQueue, Morph, Outcome};
use flashlock_locks::machine::{Handle, Machine, Memory as _, Time as _, Word};
use flashlock_locks::parts::adoption::{Chain, pass_baton};
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::zeroed::Zeroed;
use flashlock_locks::rw::{Reader, Writer};
use flashlock_locks::sem::{Ended, SemQueue, Semaphore};
use flashlock_locks::{for_each_lock, for_each_standalone_lock};
use flashlock_native::{Native, NoStats, Word32, groups, numa, parts, pool};

type Here = Native<NoStats>;

const THREADS: u64 = 4;
const ROUNDS: u64 = 1_000;
/// What each thread hands on by a condition variable.
const TOKENS: u64 = 300;

/// Runs `work` while another thread changes the hints of all nodes.
fn scribbled(work: &dyn Fn()) {
    let (done, scribbles) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                let scribble = |handle: Handle| {
                    let node = handle.node::<Here>();
                    for hint in [&node.since, &node.passes, &node.check_at, &node.granted_at, &node.queued_at] {
                        // Small values too: the interesting ones are near 0, or are handles.
                        hint.store(Here::random() >> (Here::random() % 32), Relaxed);
                    }
                    false
                };
                // SAFETY: only hints are written.
                unsafe { pool::any(scribble) };
                scribbles.fetch_add(1, Relaxed);
                std::thread::yield_now();
            }
        });
        while scribbles.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        work();
        done.store(true, Relaxed);
    });
}

/// A count that loses increments if two threads are in at once. (Atomic, so that a broken lock is not undefined
/// behaviour.)
#[derive(Default)]
struct Count(AtomicU64);

impl Count {
    fn add(&self) {
        let seen = self.0.load(Relaxed);
        std::hint::black_box(seen);
        (0..20).for_each(|_| std::hint::spin_loop());
        self.0.store(seen + 1, Relaxed);
    }
}

/// Each thread tries [`ROUNDS`] times, and adds to the count if `section` admits it. Returns how many were admitted and
/// how many were counted.
fn rounds(section: &(dyn Fn(u64, &Count) -> bool + Sync)) -> (u64, u64) {
    rounds_of(ROUNDS, section)
}

/// [`rounds`], so many.
fn rounds_of(times: u64, section: &(dyn Fn(u64, &Count) -> bool + Sync)) -> (u64, u64) {
    let (count, came) = (Count::default(), AtomicU64::new(0));
    scribbled(&|| {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (count, came) = (&count, &came);
                scope.spawn(move || {
                    let mine = (0..times).filter(|round| section(thread + round, count)).count();
                    came.fetch_add(mine as u64, Relaxed);
                });
            }
        });
    });
    (came.load(Relaxed), count.0.load(Relaxed))
}

fn mutex(name: &str, lock: &(dyn Mutex + Sync)) {
    let (came, counted) = rounds(&|round, count| {
        let held = match round % 3 {
            0 => lock.lock_until(Here::sooner(500, None)).is_ok(),
            _ => {
                lock.lock();
                true
            }
        };
        if held {
            count.add();
            // SAFETY: this thread holds it.
            unsafe { lock.unlock() };
        }
        held
    });
    assert_eq!(came, counted, "{name}");
}

fn rw_lock(name: &str, lock: &(dyn RwLock + Sync)) {
    let (came, counted) = rounds(&|round, count| {
        let reads = round % 4 != 0;
        if reads {
            assert!(lock.read(Reader::Newcomer, None).is_ok(), "{name}: readers wait");
            let seen = count.0.load(Relaxed);
            std::thread::yield_now();
            assert_eq!(seen, count.0.load(Relaxed), "{name}: a writer beside a reader");
        } else {
            assert!(lock.write(Writer::Fair, None).is_ok(), "{name}: writers wait");
            count.add();
        }
        // SAFETY: this thread holds it.
        unsafe { lock.unlock() };
        !reads
    });
    assert_eq!(came, counted, "{name}");
}

fn closure<L: RawClosure<Here, State: Send + Sync>>(name: &str) {
    let lock = Arc::new(Delegate::<Here, L, u64>::new(0));
    let (came, counted) = rounds(&|_, count| {
        lock.with(|all| {
            *all += 1;
            count.add();
        });
        true
    });
    assert_eq!((came, counted), (*Arc::into_inner(lock).unwrap().get_mut(), came), "{name}");
}

/// Imagines several parts of the machine, so that there are side blocks and hand-offs between them.
fn imagine() {
    numa::prepare(Some(2));
    groups::prepare(Some([2, 2, 2]));
    parts::prepare();
}

#[test]
fn every_mutex() {
    imagine();
    for entry in MUTEXES {
        mutex(entry.name, &*(entry.new)());
    }
}

#[test]
fn every_readers_writer_lock() {
    imagine();
    for entry in RW_LOCKS {
        rw_lock(entry.name, &*(entry.new)());
    }
}

macro_rules! only_closures {
    (closure, $name:expr, $type:ty) => {
        closure::<$type>($name)
    };
    // `null`, which excludes no thread.
    ($other:ident, $name:expr, $type:ty) => {};
}

macro_rules! apart {
    ($(($variant:ident, $name:literal, $interface:ident, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        #[test]
        fn every_standalone_lock() {
            imagine();
            $($(only_closures!($interface, concat!($name, ":wait=", stringify!($wait)), $type);)+)*
        }
    };
}
for_each_standalone_lock!(apart);

#[test]
fn semaphores() {
    let (word, queue) = (Word32::new(1), SemQueue::<Here>::new());
    // SAFETY: the two are used by it only.
    let semaphore = unsafe { Semaphore::new(&word, &queue) };
    let (came, counted) = rounds(&|_, count| {
        if !semaphore.try_wait() {
            assert!(matches!(semaphore.wait(None), Ended::Acquired), "a wait without an end");
        }
        count.add();
        semaphore.post().is_ok()
    });
    assert_eq!(came, counted);
}

/// A mutex, and a condition variable for what it protects.
struct Monitor<L: RawLock<Here>> {
    word: Word32,
    queue: L::Queue,
    changed: CondQueue<Here>,
}

// SAFETY: the chain goes to the lock.
unsafe impl<L: RawLock<Here>> Morph for Monitor<L> {
    fn few(&self) -> u32 {
        0 // So that two or more are moved to the mutex, by every lock that can do that.
    }

    fn adopt(&self, _mutex: u64, chain: Chain) {
        // SAFETY: the mutex exists, and is only used as this lock.
        unsafe { L::adopt(&self.word, &self.queue, chain) }
    }
}

impl<L: RawLock<Here>> Monitor<L> {
    fn lock(&self) {
        // SAFETY: the state was free at first, and is used by `L` only.
        unsafe { L::lock(&self.word, &self.queue) }
    }

    /// Ends a section of the calling thread.
    fn unlock(&self) {
        // SAFETY: the same, and its callers hold it.
        unsafe { L::unlock(&self.word, &self.queue) }
    }

    /// Waits for a change, in a section of the calling thread.
    fn wait(&self) {
        // SAFETY: the handle goes to `wait`, and then to what its outcome asks for.
        let me = unsafe { self.changed.enqueue(core::ptr::from_ref(self) as u64) };
        self.unlock();
        match self.changed.wait(me, None) {
            Outcome::Signaled(baton) => {
                // SAFETY: as in `lock`.
                unsafe { L::lock_woken(&self.word, &self.queue) };
                pass_baton::<Here>(baton);
            }
            // SAFETY: as in `lock`; the node is this thread's, and the lock has adopted it.
            Outcome::Moved(me) => unsafe { L::lock_adopted(&self.word, &self.queue, me) },
            Outcome::TimedOut => unreachable!("a wait without a deadline"),
        }
    }
}

/// Threads hand on tokens, by signals and by broadcasts. Each token is taken once, and nobody sleeps beside one.
fn condition_variable<L: RawLock<Here, Queue: Sync>>(name: &str) {
    let monitor = Monitor::<L> { word: Word32::new(0), queue: Zeroed::zeroed(), changed: CondQueue::new() };
    let (tokens, sections) = (AtomicU64::new(0), Count::default());
    scribbled(&|| {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for round in 0..TOKENS {
                        monitor.lock();
                        sections.add();
                        tokens.fetch_add(1, Relaxed);
                        match round % 3 {
                            0 => monitor.changed.broadcast(&monitor, &AtOnce),
                            _ => monitor.changed.signal(&AtOnce),
                        }
                        monitor.unlock();
                    }
                });
                scope.spawn(|| {
                    for _ in 0..TOKENS {
                        monitor.lock();
                        while tokens.load(Relaxed) == 0 {
                            monitor.wait();
                        }
                        sections.add();
                        tokens.fetch_sub(1, Relaxed);
                        monitor.unlock();
                    }
                });
            }
        });
    });
    let (left, counted) = (tokens.into_inner(), sections.0.into_inner());
    assert_eq!((left, counted), (0, 2 * THREADS * TOKENS), "{name}");
}

macro_rules! all {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        #[test]
        fn condition_variables_with_every_mutex() {
            imagine();
            $($(condition_variable::<$type>(concat!($name, ":wait=", stringify!($wait)));)+)*
        }
    };
}
for_each_lock!(all);

/// What side blocks used to be: a lock whose state is in a word of a queue node that is a hint elsewhere. It loses its
/// state while it is held. And a lock without state, which excludes nobody, is found out.
#[test]
fn state_in_a_hint_is_found() {
    // SAFETY: it is in no queue, and given back once.
    let handle = unsafe { Here::take_node() };
    scribbled(&|| {
        let word = &handle.node::<Here>().passes;
        word.store(1, Relaxed);
        while word.load(Relaxed) == 1 {
            std::thread::yield_now();
        }
    });
    Here::give_node(handle);

    let all_are_in = Barrier::new(THREADS as usize);
    let (came, counted) = rounds_of(1, &|_, count| {
        let seen = count.0.load(Relaxed);
        all_are_in.wait();
        count.0.store(seen + 1, Relaxed);
        true
    });
    assert_ne!(came, counted);
}
