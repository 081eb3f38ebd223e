//! # loom: every schedule and every allowed value of a small model
//!
//! Use it for small models, and for memory orderings that are too weak, which shuttle cannot find.

// loom's `UnsafeCell` is not `Sync`, and need not be: loom's threads are coroutines of one.
#![allow(clippy::arc_with_non_send_sync)]

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::LocalKey;

use ::loom::cell::UnsafeCell;
use ::loom::thread::{Thread, ThreadId};

use flashlock_locks::parts::raw::RawLock;
use flashlock_workloads::Workload;

use crate::Loom;
use crate::checker::{Checker, Data};
use crate::erased::{Mutex, erased};
use crate::harness::{Found, Totals, message};
use crate::is_full;
use crate::tag::Tag;
use crate::word::raw_word;
use crate::world::{Setup, World};

/// loom's threads.
pub mod thread {
    pub use ::loom::thread::{JoinHandle, current, park, yield_now};

    /// Starts a thread of the model. Its body is boxed: so loom's own code is compiled once for all bodies. Tests have
    /// hundreds of them.
    #[track_caller]
    pub fn spawn<T: 'static>(body: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
        let body: Box<dyn FnOnce() -> T> = Box::new(body);
        ::loom::thread::spawn(body)
    }
}

/// The checker loom.
pub struct Loomed;

raw_word!(Atomic, ::loom::sync::atomic::AtomicU32);

std::thread_local! {
    static WORLD: RefCell<Option<Rc<World<Loomed>>>> = const { RefCell::new(None) };
}

impl Checker for Loomed {
    const EXCHANGES: bool = true;
    const NODES_ARE_READY: bool = true;

    type Atomic = Atomic;
    type Id = ThreadId;
    type Thread = Thread;
    type Data = Cell;

    fn slot() -> &'static LocalKey<RefCell<Option<Rc<World<Self>>>>> {
        &WORLD
    }
    fn id() -> ThreadId {
        thread::current().id()
    }
    fn thread() -> Thread {
        thread::current()
    }
    fn fence() {
        ::loom::sync::atomic::fence(Ordering::SeqCst);
    }
    fn yield_now() {
        thread::yield_now();
    }
    fn block() {
        thread::park();
    }
    fn unblock(thread: &Thread) {
        thread.unpark();
    }
    fn chance(_one_in: u32) -> bool {
        false
    }
    fn random() -> u32 {
        0
    }
}

/// A cell in which loom detects every access that the lock does not order.
pub struct Cell(UnsafeCell<u32>);

impl Data for Cell {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn visit(&self) -> u32 {
        self.0.with_mut(|count| {
            // SAFETY: only one thread of a model runs at a time, and loom ends the execution if another access is not
            // ordered.
            unsafe {
                *count += 1;
                *count - 1
            }
        })
    }

    fn look(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|count| unsafe { *count })
    }
}

/// The seed of the clients of workloads.
const SEED: u64 = 1;

/// How many of a model's schedules to explore.
#[derive(Clone, Copy, Debug)]
pub enum Depth {
    /// All schedules.
    Exhaustive,
    /// Schedules with at most this many preemptions.
    Preemptions(usize),
}

impl Depth {
    /// At most this many preemptions with `FLASHLOCK_FULL=1` (`cargo xtask full`). Otherwise at most two, which costs a
    /// fifth.
    pub fn in_full(preemptions: usize) -> Self {
        Self::Preemptions(preemptions.min(2)).or_in_full(Self::Preemptions(preemptions))
    }

    /// Another depth with `FLASHLOCK_FULL=1`, for explorations that would be most of an ordinary run.
    pub fn or_in_full(self, full: Self) -> Self {
        if is_full() { full } else { self }
    }
}

fn run(depth: Depth, setup: Setup, executions: &Arc<AtomicUsize>, body: Arc<dyn Fn() + Send + Sync>) -> Totals {
    let mut builder = ::loom::model::Builder::new();
    builder.max_branches = 10_000;
    if let Depth::Preemptions(bound) = depth {
        builder.preemption_bound = Some(bound);
    }
    let events: Arc<Vec<AtomicU64>> = Arc::new(Totals::counters());
    let (counters, executions) = (events.clone(), executions.clone());
    builder.check(move || {
        executions.fetch_add(1, Ordering::Relaxed);
        let world = World::<Loomed>::set_up(setup);
        body();
        world.check_end();
        Totals::add(&counters, &world);
        World::<Loomed>::take_down(false);
    });
    Totals::new(&events)
}

impl Depth {
    /// Adds a preemption if `FLASHLOCK_FULL` is set, for a run that may take hours.
    fn of_this_run(self) -> Self {
        match self {
            Self::Preemptions(bound) if is_full() => Self::Preemptions(bound + 1),
            _ => self,
        }
    }
}

/// Runs `body` under every schedule; it must succeed in all. Returns how many there were, and what happened in them.
pub fn explore(name: &str, depth: Depth, setup: Setup, body: impl Fn() + Send + Sync + 'static) -> Totals {
    explore_boxed(name, depth, setup, Arc::new(body))
}

/// [`explore`], compiled once for all bodies.
fn explore_boxed(name: &str, depth: Depth, setup: Setup, body: Arc<dyn Fn() + Send + Sync>) -> Totals {
    let (depth, executions) = (depth.of_this_run(), Arc::new(AtomicUsize::new(0)));
    let start = std::time::Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| run(depth, setup, &executions, body)));
    let mut totals = result.unwrap_or_else(|panic| {
        World::<Loomed>::take_down(true);
        resume_unwind(panic)
    });
    totals.executions = executions.load(Ordering::Relaxed);
    println!("loom {name}: {} executions, {depth:?}, {:.1?}", totals.executions, start.elapsed());
    totals
}

/// Runs `body`, which has a bug, until the bug is found. Panics if it is not.
pub fn find(name: &str, depth: Depth, setup: Setup, body: impl Fn() + Send + Sync + 'static) -> Found {
    find_boxed(name, depth, setup, Arc::new(body))
}

/// [`find`], compiled once for all bodies.
fn find_boxed(name: &str, depth: Depth, setup: Setup, body: Arc<dyn Fn() + Send + Sync>) -> Found {
    let executions = Arc::new(AtomicUsize::new(0));
    let result = catch_unwind(AssertUnwindSafe(|| run(depth, setup, &executions, body)));
    let executions = executions.load(Ordering::Relaxed);
    match result {
        Ok(_) => panic!("{name}: loom finds nothing in {executions} executions"),
        Err(panic) => Found::report(name, "loom", executions, message(&*panic)),
    }
}

/// A model of lock `L`. One thread for each entry, the last one being the model's main thread, does so many critical
/// sections; none is lost.
pub fn sections<L: RawLock<Loom, Queue: Tag + Send + Sync>>(
    rounds: &'static [u32],
) -> impl Fn() + Send + Sync + 'static {
    sections_of(erased::<Loomed, L>, rounds)
}

fn sections_of(new: fn() -> Mutex<Loomed>, rounds: &'static [u32]) -> impl Fn() + Send + Sync + 'static {
    move || {
        let mutex = Arc::new(new());
        let (mine, others) = rounds.split_last().expect("a thread");
        let work = |mutex: &Mutex<Loomed>, rounds: u32| (0..rounds).for_each(|_| mutex.section());
        let threads: Vec<_> = others
            .iter()
            .map(|&rounds| {
                let mutex = mutex.clone();
                thread::spawn(move || work(&mutex, rounds))
            })
            .collect();
        work(&mutex, *mine);
        for thread in threads {
            thread.join().expect("no panic");
        }
        mutex.lock();
        assert_eq!(mutex.visit(), rounds.iter().sum::<u32>());
        mutex.unlock();
        assert!(!mutex.is_locked());
        mutex.free();
    }
}

/// A model of lock `L`. Each of `threads` threads, the last one being the model's main thread, does one critical
/// section. The last section's thread frees the lock, as a program may: from then on, any access to the lock is a
/// failure.
pub fn last_frees<L: RawLock<Loom, Queue: Tag + Send + Sync>>(threads: u32) -> impl Fn() + Send + Sync + 'static {
    last_frees_of(erased::<Loomed, L>, threads)
}

fn last_frees_of(new: fn() -> Mutex<Loomed>, threads: u32) -> impl Fn() + Send + Sync + 'static {
    move || {
        let mutex = Arc::new(new());
        let work = move |mutex: &Mutex<Loomed>| {
            mutex.lock();
            let last = mutex.visit() + 1 == threads;
            mutex.unlock();
            if last {
                mutex.free();
            }
        };
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let mutex = mutex.clone();
                thread::spawn(move || work(&mutex))
            })
            .collect();
        work(&mutex);
        for thread in others {
            thread.join().expect("no panic");
        }
    }
}

/// A model of a workload, which `new` makes, on the backend [`Loom`] with its lock on that machine. Each of `threads`
/// clients, the last one being the model's main thread, performs `each` operations. Then the workload checks its state.
pub fn operations<W: Workload + 'static>(new: fn() -> W, threads: u32, each: u64) -> impl Fn() + Send + Sync + 'static {
    move || {
        let work = move |shared: &W, number| {
            let mut client = shared.client(SEED, number);
            (0..each).for_each(|_| shared.operate(&mut client));
            shared.retire(client);
        };
        let mut shared = Arc::new(new());
        let others: Vec<_> = (1..threads)
            .map(|number| {
                let shared = shared.clone();
                thread::spawn(move || work(&shared, number))
            })
            .collect();
        work(&shared, 0);
        for thread in others {
            thread.join().expect("no panic");
        }
        let shared = Arc::get_mut(&mut shared).expect("all threads have returned, and dropped their references");
        assert_eq!(shared.check(u64::from(threads) * each), Ok(()));
    }
}
