//! # The world: one execution's machine
//!
//! Settings, threads, time and events. Time is a count of *ticks*; a deadline names the tick at which it has passed,
//! and [`Machine::sooner`](flashlock_locks::machine::Machine::sooner) means the next one, however long it was to be:
//! what matters to an algorithm is whether a wait ends before something else happens. Under loom a thread of the model
//! ticks; under shuttle time also flows by itself, by chance.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use flashlock_locks::event::Event;
use flashlock_locks::machine::{Clock, Deadline, FIRST_EPOCH, Local, Tunables, Word as _};

use crate::arena::Arena;
use crate::checker::Checker;
use crate::kernel::Kernel;
use crate::meddle::{Access, Instead, Meddler};
use crate::word::{Field, Op, Weaken, Word};

/// A machine that is broken, for tests of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Wake-ups of words of this kind are lost.
    NoWake(Field),
    /// `park` does not look at the word before it sleeps.
    ParkBlindly,
    /// `any_node` shows none: who is in no list, or too far from its front, is not found.
    ShortSight,
    /// An algorithm's own patience ends sleeps, but who polls never sees its end.
    EndlessPolls,
    /// `light_fence` does nothing.
    NoLightFence,
    /// `heavy_fence` does nothing.
    NoHeavyFence,
}

/// How an execution's machine behaves.
#[derive(Clone, Copy)]
pub struct Setup {
    /// How many nodes there are.
    pub nodes: u32,
    /// Whether nodes are used again.
    pub recycles: bool,
    /// The spin budget, in polls.
    pub polls: u32,
    /// How many ticks an algorithm's own patience ([`Machine::sooner`](flashlock_locks::machine::Machine::sooner))
    /// lasts. With 0 it never ends: only the test's deadlines pass, and a wake-up that is lost is lost for good.
    pub patience: u32,
    /// A nap ends when somebody has changed a word since it began, and not before: what only the end of a nap would set
    /// right is never set right. Where it is not set, naps end at once.
    pub still: bool,
    /// shuttle: time passes once in so many looks at it (0: only by [`World::tick`]).
    pub flow: u32,
    /// shuttle: a sleep ends for no reason once in so many times (0: never).
    pub spurious: u32,
    /// By how many µs the clock of `Machine::micros` advances each time it is read.
    pub micros_step: u32,
    /// [`Machine::epoch`](flashlock_locks::machine::Machine::epoch). With the first one nobody looks whether a node's
    /// thread is alive.
    pub epoch: u32,
    /// What the user tuned.
    pub tunables: &'static Tunables,
    /// What `Machine::random` says; without it, the checker.
    pub random: Option<u32>,
    /// Whether there are more tasks than CPUs.
    pub crowded: bool,
    /// Ordering bugs.
    pub weaken: &'static [Weaken],
    /// Other bugs.
    pub fault: Option<Fault>,
    /// Bugs in single accesses.
    pub meddle: Option<Meddler>,
}

impl Setup {
    /// Two polls, no patience, no time but ticks, and a bound that is never reached.
    pub const fn new(nodes: u32) -> Self {
        Self {
            nodes,
            recycles: false,
            polls: 2,
            patience: 0,
            still: false,
            flow: 0,
            spurious: 0,
            micros_step: 0,
            epoch: FIRST_EPOCH,
            tunables: &Tunables::DEFAULT,
            random: None,
            crowded: false,
            weaken: &[],
            fault: None,
            meddle: None,
        }
    }

    /// The same in a process whose parent had used locks: there whoever reaches a node looks whether its thread is
    /// alive, so that more is accessed than in a first process, and nothing less.
    #[must_use]
    pub const fn in_a_child(self) -> Self {
        Self { epoch: FIRST_EPOCH + 1, ..self }
    }
}

/// What the machine knows of a thread.
#[derive(Clone, Copy, Default)]
struct PerThread {
    numa: u32,
    near: [u32; 2],
    urgent: bool,
    /// Freezes when this many more waits have begun (0: never).
    freeze_in: u32,
    /// Stops when it has accessed so many more words (0: never).
    stops_in: u32,
    /// What lock algorithms keep.
    local: [u32; Local::COUNT],
    /// What a [`Meddler`] remembers.
    mark: u32,
}

/// The nanoseconds of a deadline that is the end of an algorithm's own patience.
const OWN: u32 = 1;

/// What a thread that vanishes at a fork unwinds with.
struct Vanished;

/// One execution's machine.
pub struct World<C: Checker> {
    /// How it behaves.
    pub setup: Setup,
    /// Its nodes.
    pub arena: Arena<C>,
    pub(crate) kernel: Kernel<C>,
    /// The time, in ticks; the same twice: for the checker, and for us.
    now_seen: C::Atomic,
    pub(crate) now: Cell<u32>,
    micros: Cell<u32>,
    epoch: Cell<u32>,
    /// The running thread vanishes when it has accessed so many more words (0: never).
    vanishes_in: Cell<u32>,
    pub(crate) random: Cell<Option<u32>>,
    threads: RefCell<Vec<(C::Id, PerThread)>>,
    /// Frozen and stopped threads stay so until this holds.
    thawed: Cell<bool>,
    /// Whether any thread is to stop somewhere, and how many are stopped.
    stops: Cell<bool>,
    stopped: Cell<usize>,
    events: RefCell<Vec<u32>>,
    /// Read-modify-writes.
    atomics: Cell<u32>,
    trace: Option<RefCell<Vec<String>>>,
}

std::thread_local! {
    /// `FLASHLOCK_MODEL_TRACE` is set: what a failing execution did is printed.
    static TRACES: bool = std::env::var_os("FLASHLOCK_MODEL_TRACE").is_some();
}

impl<C: Checker> World<C> {
    /// Sets up the world of the running execution.
    pub fn set_up(setup: Setup) -> Rc<Self> {
        // No world yet: words made here must not look for one.
        C::slot().with(|slot| slot.borrow_mut().take());
        let world = Rc::new(Self {
            arena: Arena::new(setup.nodes, setup.recycles),
            kernel: Kernel::new(),
            now_seen: C::Atomic::new(0),
            now: Cell::new(0),
            micros: Cell::new(1),
            epoch: Cell::new(setup.epoch),
            vanishes_in: Cell::new(0),
            random: Cell::new(setup.random),
            threads: RefCell::new(Vec::new()),
            thawed: Cell::new(false),
            stops: Cell::new(false),
            stopped: Cell::new(0),
            events: RefCell::new(vec![0; Event::ALL.len()]),
            atomics: Cell::new(0),
            trace: TRACES.with(|&on| on.then(RefCell::default)),
            setup,
        });
        C::slot().with(|slot| *slot.borrow_mut() = Some(world.clone()));
        world
    }

    /// Takes it down again; after a failure, with its trace.
    pub fn take_down(failed: bool) {
        let world = C::slot().with(|slot| slot.borrow_mut().take());
        if let Some(world) = world.filter(|_| failed) {
            world.print_trace();
        }
    }

    /// The world of the running execution.
    pub fn get() -> Rc<Self> {
        C::slot().with(|slot| slot.borrow().clone()).expect("a world was set up")
    }

    /// The same, for a look that is no scheduling point.
    pub fn current<R>(look: impl FnOnce(&Self) -> R) -> R {
        C::slot().with(|slot| look(slot.borrow().as_ref().expect("a world was set up")))
    }

    /// What must hold at the end of an execution: every node was given back, once, and nobody sleeps.
    pub fn check_end(&self) {
        assert_eq!(self.arena.in_use(), 0, "nodes that nobody gave back");
        assert_eq!(self.kernel.sleepers(), 0, "threads asleep");
    }

    fn with_thread<R>(&self, change: impl FnOnce(&mut PerThread) -> R) -> R {
        let me = C::id();
        let mut threads = self.threads.borrow_mut();
        if let Some((_, mine)) = threads.iter_mut().find(|(id, _)| *id == me) {
            return change(mine);
        }
        threads.push((me, PerThread::default()));
        let (_, mine) = threads.last_mut().expect("pushed just now");
        change(mine)
    }

    /// Notes what the calling thread has done.
    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            self.with_thread(|_| ());
            let thread = self.threads.borrow().iter().position(|(id, _)| *id == C::id());
            trace.borrow_mut().push(format!("T{} {}", thread.unwrap_or_default(), what()));
        }
    }

    /// A name for a word: what it is for, and in which node.
    pub(crate) fn name_of(&self, word: &Word<C>) -> String {
        match self.arena.holding(word) {
            Some((handle, offset)) => format!("node {:#x}+{offset}", handle.word()),
            None => format!("word of kind {}", word.field()),
        }
    }

    /// Prints what the execution did, where that is wanted.
    pub(crate) fn print_trace(&self) {
        if let Some(trace) = &self.trace {
            trace.borrow().iter().for_each(|line| println!("{line}"));
        }
    }

    /// What is done instead of an access of the calling thread.
    pub(crate) fn meddle(&self, field: u8, op: Op, old: u32, new: u32) -> Instead {
        let Some(meddler) = self.setup.meddle else { return Instead::AsTold };
        self.with_thread(|mine| meddler(&mut Access { field, op, old, new, mark: &mut mine.mark }))
    }

    /// Tells a [`Meddler`] something of the calling thread.
    pub fn set_mark(&self, mark: u32) {
        self.with_thread(|mine| mine.mark = mark);
    }

    /// Says on which NUMA node the calling thread runs.
    pub fn set_numa(&self, node: u32) {
        self.with_thread(|mine| mine.numa = node);
    }

    /// Says in which group of CPUs of its NUMA node the calling thread runs, and in which group of that.
    pub fn set_near(&self, groups: [u32; 2]) {
        self.with_thread(|mine| mine.near = groups);
    }

    pub(crate) fn near(&self, depth: u32) -> u32 {
        self.with_thread(|mine| mine.near[depth as usize])
    }

    /// What `Machine::random` says from now on.
    pub fn set_random(&self, random: Option<u32>) {
        self.random.set(random);
    }

    /// The world goes on as a child that was forked just now: threads of before do not exist in it.
    pub fn fork(&self) {
        self.epoch.set(self.epoch.get() + 1);
    }

    /// The world goes on as a child that was forked when another thread of the parent, which here is the calling one,
    /// had done the first `steps` accesses of `act`. The nodes taken by then are nobody's. Whether that thread had come
    /// to the end. Nobody else runs meanwhile.
    pub fn fork_within(&self, steps: u32, act: impl FnOnce()) -> bool {
        self.vanishes_in.set(steps);
        let ended = match catch_unwind(AssertUnwindSafe(act)) {
            Ok(()) => true,
            Err(panic) if panic.is::<Vanished>() => false,
            Err(panic) => resume_unwind(panic),
        };
        self.vanishes_in.set(0);
        self.arena.forget();
        self.fork();
        ended
    }

    /// The calling thread has accessed a word.
    pub(crate) fn step(&self) {
        match self.vanishes_in.get() {
            0 => {}
            1 => resume_unwind(Box::new(Vanished)),
            more => self.vanishes_in.set(more - 1),
        }
    }

    /// The calling thread is one that should wait as little as may be.
    pub fn set_urgent(&self) {
        self.with_thread(|mine| mine.urgent = true);
    }

    pub(crate) fn urgent(&self) -> bool {
        self.with_thread(|mine| mine.urgent)
    }

    /// On which NUMA node the calling thread runs.
    pub fn numa(&self) -> u32 {
        self.with_thread(|mine| mine.numa)
    }

    pub(crate) fn local(&self, which: Local) -> u32 {
        self.with_thread(|mine| mine.local[which as usize])
    }

    pub(crate) fn set_local(&self, which: Local, value: u32) {
        self.with_thread(|mine| mine.local[which as usize] = value);
    }

    /// The calling thread freezes when it begins its `waits`-th wait from now, as one whose signal handler sleeps.
    pub fn freeze_at(&self, waits: u32) {
        self.with_thread(|mine| mine.freeze_in = waits);
    }

    /// The calling thread stops when it has accessed so many more words, as one that a signal handler holds up there.
    pub fn stop_after(&self, accesses: u32) {
        self.stops.set(true);
        self.with_thread(|mine| mine.stops_in = accesses);
    }

    /// How many threads are stopped.
    pub fn stopped(&self) -> usize {
        self.stopped.get()
    }

    /// Whether the calling thread stops, which has just accessed a word.
    pub(crate) fn stops_here(&self) -> bool {
        self.stops.get()
            && self.with_thread(|mine| {
                let counting = mine.stops_in > 0;
                mine.stops_in = mine.stops_in.saturating_sub(1);
                counting && mine.stops_in == 0
            })
    }

    pub(crate) fn stop(&self) {
        self.stopped.set(self.stopped.get() + 1);
        while !self.thawed.get() {
            C::yield_now();
        }
        self.stopped.set(self.stopped.get() - 1);
    }

    /// Lets frozen and stopped threads go on, and no more freeze.
    pub fn thaw(&self) {
        self.thawed.set(true);
    }

    /// Called where a wait begins or polls.
    pub(crate) fn maybe_freeze(&self) {
        let freezes = self.with_thread(|mine| {
            let counting = mine.freeze_in > 0;
            mine.freeze_in = mine.freeze_in.saturating_sub(1);
            counting && mine.freeze_in == 0
        });
        while freezes && !self.thawed.get() {
            C::yield_now();
        }
    }

    /// How many threads sleep.
    pub fn sleepers(&self) -> usize {
        self.kernel.sleepers()
    }

    /// The deadline that passes with the first tick.
    pub fn first_tick(&self) -> Deadline {
        Deadline { clock: Clock::Monotonic, sec: 1, nsec: 0 }
    }

    /// The deadline so many ticks from now.
    pub fn deadline(&self, ticks: u32) -> Deadline {
        Deadline { clock: Clock::Monotonic, sec: i64::from(self.now.get() + ticks), nsec: 0 }
    }

    /// The end of a patience that begins now, or `other`.
    pub(crate) fn sooner(&self, other: Option<Deadline>) -> Deadline {
        let never = Deadline { clock: Clock::Monotonic, sec: i64::MAX, nsec: OWN };
        let own = match self.setup.patience {
            0 => never,
            ticks => Deadline { nsec: OWN, ..self.deadline(ticks) },
        };
        other.filter(|deadline| deadline.sec < own.sec).unwrap_or(own)
    }

    /// One tick passes: sleeps that end with it end.
    pub fn tick(&self) {
        self.kernel.enter();
        self.now_seen.fetch_add(1, Relaxed);
        self.now.set(self.now.get() + 1);
        self.kernel.expire(self.now.get());
    }

    /// Time flows, where it does.
    pub(crate) fn flow(&self) {
        if C::chance(self.setup.flow) {
            self.tick();
        }
    }

    /// Whether the deadline has passed. The load is for the checker; a clock is never stale.
    pub(crate) fn expired(&self, deadline: &Deadline) -> bool {
        self.flow();
        let endless = deadline.nsec == OWN && self.setup.fault == Some(Fault::EndlessPolls);
        if deadline.sec == i64::MAX || endless {
            return false;
        }
        self.now_seen.load(Relaxed);
        i64::from(self.now.get()) >= deadline.sec
    }

    pub(crate) fn micros(&self) -> u32 {
        self.pass(self.setup.micros_step);
        self.micros.get()
    }

    /// So many µs pass, on the clock of `Machine::micros`.
    pub(crate) fn pass(&self, micros: u32) {
        self.micros.set(self.micros.get().wrapping_add(micros));
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.get()
    }

    pub(crate) fn count(&self, event: Event) {
        self.events.borrow_mut()[event as usize] += 1;
    }

    pub(crate) fn count_atomic(&self, is_atomic: bool) {
        self.atomics.set(self.atomics.get() + u32::from(is_atomic));
    }

    /// How many read-modify-writes of words there were in this execution.
    pub fn atomics(&self) -> u32 {
        self.atomics.get()
    }

    /// How often something happened in this execution.
    pub fn events(&self, event: Event) -> u32 {
        self.events.borrow()[event as usize]
    }
}
