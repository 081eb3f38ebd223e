//! # shuttle: very many random schedules of a larger model
//!
//! Use it for models that are too large for loom. It is sequentially consistent: it finds errors in a protocol, but
//! never an ordering that is too weak.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::LocalKey;

use ::shuttle::rand::RngCore;
use ::shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use ::shuttle::sync::atomic::AtomicU32;
use ::shuttle::thread::{Thread, ThreadId};
use ::shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use crate::checker::{Checker, Data};
use crate::harness::{Found, Totals, message};
use crate::is_full;
use crate::word::raw_word;
use crate::world::{Setup, World};

/// shuttle's threads.
pub mod thread {
    pub use ::shuttle::thread::{JoinHandle, current, park, yield_now};

    /// Starts a thread of the model. Its body is boxed: so shuttle's own code is compiled once for all bodies. Tests
    /// have hundreds of them.
    #[track_caller]
    pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let body: Box<dyn FnOnce() -> T + Send> = Box::new(body);
        ::shuttle::thread::spawn(body)
    }
}

/// The checker shuttle.
pub struct Shuttled;

raw_word!(Atomic, AtomicU32);

std::thread_local! {
    static WORLD: RefCell<Option<Rc<World<Shuttled>>>> = const { RefCell::new(None) };
}

impl Checker for Shuttled {
    const EXCHANGES: bool = false;
    const NODES_ARE_READY: bool = false;

    type Atomic = Atomic;
    type Id = ThreadId;
    type Thread = Thread;
    type Data = Counter;

    fn slot() -> &'static LocalKey<RefCell<Option<Rc<World<Self>>>>> {
        &WORLD
    }
    fn id() -> ThreadId {
        thread::current().id()
    }
    fn thread() -> Thread {
        thread::current()
    }
    /// Does nothing: all accesses have one order.
    fn fence() {}
    fn yield_now() {
        thread::yield_now();
    }
    fn block() {
        thread::park();
    }
    fn unblock(thread: &Thread) {
        thread.unpark();
    }
    fn chance(one_in: u32) -> bool {
        one_in > 0 && Self::random().is_multiple_of(one_in)
    }
    fn random() -> u32 {
        ::shuttle::rand::thread_rng().next_u32()
    }
}

/// A counter whose increment is not atomic, and a flag that says whether a thread is incrementing it.
pub struct Counter {
    count: AtomicU32,
    inside: AtomicBool,
}

impl Data for Counter {
    fn new() -> Self {
        Self { count: AtomicU32::new(0), inside: AtomicBool::new(false) }
    }

    fn visit(&self) -> u32 {
        assert!(!self.inside.swap(true, Ordering::Relaxed), "two threads in one critical section");
        let seen = self.count.load(Ordering::Relaxed);
        self.count.store(seen + 1, Ordering::Relaxed);
        assert!(self.inside.swap(false, Ordering::Relaxed));
        seen
    }

    fn look(&self) -> u32 {
        let seen = self.count.load(Ordering::Relaxed);
        assert!(!self.inside.load(Ordering::Relaxed), "a reader beside a writer");
        assert_eq!(seen, self.count.load(Ordering::Relaxed), "a writer beside a reader");
        seen
    }
}

/// How schedules are chosen.
#[derive(Clone, Copy, Debug)]
pub enum By {
    /// Any thread may run next, at random.
    Random,
    /// Random priorities, changed at one point fewer than this number: finds bugs that need a few badly placed
    /// preemptions.
    Pct(usize),
}

/// How many schedules are drawn of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Draws {
    /// In each run.
    pub usual: usize,
    /// With `FLASHLOCK_FULL=1` (`cargo xtask full`), for a run that may take hours.
    pub full: usize,
}

/// So many in full, of which each run draws the first tenth. They are the same in every run, so that more of them
/// find something only after a change.
impl From<usize> for Draws {
    fn from(full: usize) -> Self {
        Self { usual: full.div_ceil(10), full }
    }
}

impl Draws {
    fn of_this_run(self) -> usize {
        if is_full() { self.full } else { self.usual }
    }
}

/// The seed of all schedules: a test that fails once fails again.
const SEED: u64 = 0x000f_1a54_10c4;

fn scheduler(by: By, schedules: usize) -> Box<dyn Scheduler + Send> {
    match by {
        By::Random => Box::new(RandomScheduler::new_from_seed(SEED, schedules)),
        By::Pct(depth) => Box::new(PctScheduler::new_from_seed(SEED, depth, schedules)),
    }
}

fn run(by: By, schedules: usize, setup: Setup, done: &Arc<AtomicUsize>, body: Arc<dyn Fn() + Send + Sync>) -> Totals {
    let mut config = Config::new();
    config.stack_size = 1 << 16;
    config.silence_warnings = true;
    // The seed is constant, so the schedule need not be kept.
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(100_000);
    let events: Arc<Vec<AtomicU64>> = Arc::new(Totals::counters());
    let (counters, done) = (events.clone(), done.clone());
    Runner::new(scheduler(by, schedules), config).run(move || {
        done.fetch_add(1, Ordering::Relaxed);
        let world = World::<Shuttled>::set_up(setup);
        body();
        world.check_end();
        Totals::add(&counters, &world);
        World::<Shuttled>::take_down(false);
    });
    Totals::new(&events)
}

/// Runs `body` under this many schedules; it must succeed in all of them.
pub fn explore(
    name: &str,
    by: By,
    schedules: impl Into<Draws>,
    setup: Setup,
    body: impl Fn() + Send + Sync + 'static,
) -> Totals {
    explore_boxed(name, by, schedules.into().of_this_run(), setup, Arc::new(body))
}

/// [`explore`], compiled once for all bodies.
fn explore_boxed(name: &str, by: By, schedules: usize, setup: Setup, body: Arc<dyn Fn() + Send + Sync>) -> Totals {
    let done = Arc::new(AtomicUsize::new(0));
    let start = std::time::Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| run(by, schedules, setup, &done, body)));
    let mut totals = result.unwrap_or_else(|panic| {
        World::<Shuttled>::take_down(true);
        resume_unwind(panic)
    });
    totals.executions = done.load(Ordering::Relaxed);
    println!("shuttle {name}: {} schedules, {by:?}, {:.1?}", totals.executions, start.elapsed());
    totals
}

/// Runs `body`, which has a bug, under at most this many schedules, until the bug is found. Panics if it is not.
pub fn find(name: &str, by: By, schedules: usize, setup: Setup, body: impl Fn() + Send + Sync + 'static) -> Found {
    find_boxed(name, by, schedules, setup, Arc::new(body))
}

/// [`find`], compiled once for all bodies.
fn find_boxed(name: &str, by: By, schedules: usize, setup: Setup, body: Arc<dyn Fn() + Send + Sync>) -> Found {
    let done = Arc::new(AtomicUsize::new(0));
    let result = catch_unwind(AssertUnwindSafe(|| run(by, schedules, setup, &done, body)));
    let done = done.load(Ordering::Relaxed);
    match result {
        Ok(_) => panic!("{name}: shuttle finds nothing in {done} schedules"),
        Err(panic) => Found::report(name, "shuttle", done, message(&*panic)),
    }
}
