//! # The world: one execution's machine
//!
//! A model's execution runs on a world: its settings, threads, time and events. Time is a count of *ticks*. A deadline
//! names the tick at which it has passed. [`Time::sooner`](flashlock_locks::machine::Time::sooner) means the next
//! tick, whatever the given duration: an algorithm only depends on whether a wait ends before something else happens.
//! Under loom, a thread of the model ticks. Under shuttle, time also flows by itself, at random.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::{Clock, Deadline, FIRST_EPOCH, Kept, REAL_TIME, Tunables, Word as _};

use crate::arena::Arena;
use crate::checker::Checker;
use crate::kernel::Kernel;
use crate::meddle::{Access, Instead, Meddler};
use crate::word::{Field, Op, Weaken, Word};

/// What a model says that uses the machine outside an execution.
pub(crate) const NO_WORLD: &str = "no world was set up";

/// A fault of the machine, for tests of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Wake-ups of words of this kind are lost.
    NoWake(Field),
    /// `park` does not check the word before it sleeps.
    ParkBlindly,
    /// `any_node` shows no nodes: a waiter that is in no list, or too far from its front, is not found.
    ShortSight,
    /// An algorithm's own patience ends sleeps, but a polling thread never sees it end.
    EndlessPolls,
    /// `light_fence` does nothing.
    NoLightFence,
    /// `heavy_fence` does nothing.
    NoHeavyFence,
}

/// How the machine of an execution behaves.
#[derive(Clone, Copy)]
pub struct Setup {
    /// The number of nodes.
    pub nodes: u32,
    /// Whether nodes are reused.
    pub recycles: bool,
    /// The spin budget, in polls.
    pub polls: u32,
    /// How many ticks an algorithm's own patience ([`Time::sooner`](flashlock_locks::machine::Time::sooner))
    /// lasts. With 0 it never ends: only the test's deadlines pass, and a lost wake-up is lost for good.
    pub patience: u32,
    /// If set, a nap ends when a word has changed since it began, and not before. So an error that only the end of a
    /// nap would repair is never repaired. If not set, naps end at once.
    pub still: bool,
    /// Whether a pause lets other threads run. A lock needs it that polls without
    /// [`Machine::spin_until`](flashlock_locks::machine::Waiting::spin_until).
    pub pauses: bool,
    /// shuttle: time advances at one look in this many (0: only by [`World::tick`]).
    pub flow: u32,
    /// shuttle: one sleep in this many ends for no reason (0: never).
    pub spurious: u32,
    /// By how many µs the clock of `Time::micros` advances at each reading.
    pub micros_step: u32,
    /// [`Memory::epoch`](flashlock_locks::machine::Memory::epoch). With the first epoch, locks do not check whether a
    /// node's thread is alive.
    pub epoch: u32,
    /// The user's tunables.
    pub tunables: &'static Tunables,
    /// The value of `Machine::random`; without it, the checker chooses.
    pub random: Option<u32>,
    /// Whether there are more tasks than CPUs.
    pub crowded: bool,
    /// Ordering bugs to apply.
    pub weaken: &'static [Weaken],
    /// Other bugs.
    pub fault: Option<Fault>,
    /// Bugs in single accesses.
    pub meddle: Option<Meddler>,
}

impl Setup {
    /// Two polls, no patience, no time except ticks, and a bound that is never reached.
    pub const fn new(nodes: u32) -> Self {
        Self {
            nodes,
            recycles: false,
            polls: 2,
            patience: 0,
            still: false,
            pauses: false,
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

    /// The same setup in a process whose parent used locks. There, a thread that reaches a node checks whether the
    /// node's thread is alive. So more is accessed than in a first process, and nothing less.
    #[must_use]
    pub const fn in_a_child(self) -> Self {
        Self { epoch: FIRST_EPOCH + 1, ..self }
    }
}

/// The machine's data on a thread.
#[derive(Clone, Copy, Default)]
struct PerThread {
    numa: u32,
    near: [u32; 2],
    urgent: bool,
    /// The thread freezes when this many more waits have begun (0: never).
    freeze_in: u32,
    /// The thread stops when it has accessed this many more words (0: never).
    stops_in: u32,
    /// Values that lock algorithms keep.
    kept: [u32; Kept::OF_THREAD],
    /// A value that a [`Meddler`] keeps.
    mark: u32,
}

/// The nanoseconds of a deadline that stands for the end of an algorithm's own patience.
const OWN: u32 = 1;

/// The panic payload of a thread that vanishes at a fork.
struct Vanished;

/// One execution's machine.
pub struct World<C: Checker> {
    /// How it behaves.
    pub setup: Setup,
    /// Its nodes.
    pub arena: Arena<C>,
    pub(crate) kernel: Kernel<C>,
    /// The time in ticks, kept twice: for the checker, and for us.
    now_seen: C::Atomic,
    pub(crate) now: Cell<u32>,
    micros: Cell<u32>,
    epoch: Cell<u32>,
    /// The running thread vanishes when it has accessed this many more words (0: never).
    vanishes_in: Cell<u32>,
    pub(crate) random: Cell<Option<u32>>,
    threads: RefCell<Vec<(C::Id, PerThread)>>,
    /// Frozen and stopped threads stay so until this is set.
    thawed: Cell<bool>,
    /// Whether any thread is to stop somewhere, and how many have stopped.
    stops: Cell<bool>,
    stopped: Cell<usize>,
    events: RefCell<Vec<u32>>,
    /// The number of read-modify-writes.
    atomics: Cell<u32>,
    /// How often threads have offered their CPUs.
    offers: Cell<u32>,
    trace: Option<RefCell<Vec<String>>>,
}

std::thread_local! {
    /// Whether `FLASHLOCK_MODEL_TRACE` is set: a failing execution then prints what it did.
    static TRACES: bool = std::env::var_os("FLASHLOCK_MODEL_TRACE").is_some();
}

impl<C: Checker> World<C> {
    /// Sets up the world of the running execution.
    pub fn set_up(setup: Setup) -> Rc<Self> {
        // No world yet: words created here must not look for one.
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
            offers: Cell::new(0),
            trace: TRACES.with(|&on| on.then(RefCell::default)),
            setup,
        });
        C::slot().with(|slot| *slot.borrow_mut() = Some(world.clone()));
        world
    }

    /// Takes the world down; after a failure, prints its trace.
    pub fn take_down(failed: bool) {
        let world = C::slot().with(|slot| slot.borrow_mut().take());
        if let Some(world) = world.filter(|_| failed) {
            world.print_trace();
        }
    }

    /// The world of the running execution.
    pub fn get() -> Rc<Self> {
        C::slot().with(|slot| slot.borrow().clone()).expect(NO_WORLD)
    }

    /// Passes the current world to `look`, without a scheduling point.
    pub fn current<R>(look: impl FnOnce(&Self) -> R) -> R {
        C::slot().with(|slot| look(slot.borrow().as_ref().expect(NO_WORLD)))
    }

    /// Checks what must hold at the end of an execution: every node was given back once, and no thread sleeps.
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

    /// Records what the calling thread has done.
    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            self.with_thread(|_| ());
            let thread = self.threads.borrow().iter().position(|(id, _)| *id == C::id());
            trace.borrow_mut().push(format!("T{} {}", thread.unwrap_or_default(), what()));
        }
    }

    /// A name for a word: its purpose, or its node and offset.
    pub(crate) fn name_of(&self, word: &Word<C>) -> String {
        match self.arena.holding(word) {
            Some((handle, offset)) => format!("node {:#x}+{offset}", handle.word()),
            None => format!("word of kind {}", word.field()),
        }
    }

    /// Prints what the execution did, if tracing is on.
    pub(crate) fn print_trace(&self) {
        if let Some(trace) = &self.trace {
            trace.borrow().iter().for_each(|line| println!("{line}"));
        }
    }

    /// What is done instead of an access by the calling thread.
    pub(crate) fn meddle(&self, field: u8, op: Op, old: u32, new: u32) -> Instead {
        let Some(meddler) = self.setup.meddle else { return Instead::AsTold };
        self.with_thread(|mine| meddler(&mut Access { field, op, old, new, mark: &mut mine.mark }))
    }

    /// Sets the value that a [`Meddler`] keeps for the calling thread.
    pub fn set_mark(&self, mark: u32) {
        self.with_thread(|mine| mine.mark = mark);
    }

    /// Sets the NUMA node of the calling thread.
    pub fn set_numa(&self, node: u32) {
        self.with_thread(|mine| mine.numa = node);
    }

    /// Sets the calling thread's group of CPUs within its NUMA node, and its group within that.
    pub fn set_near(&self, groups: [u32; 2]) {
        self.with_thread(|mine| mine.near = groups);
    }

    pub(crate) fn near(&self, depth: u32) -> u32 {
        self.with_thread(|mine| mine.near[depth as usize])
    }

    /// Sets what `Machine::random` returns from now on.
    pub fn set_random(&self, random: Option<u32>) {
        self.random.set(random);
    }

    /// Continues the world as a child that was just forked: earlier threads do not exist in it.
    pub fn fork(&self) {
        self.epoch.set(self.epoch.get() + 1);
    }

    /// Continues the world as a child that was forked when another thread of the parent had done the first `steps`
    /// accesses of `act`. Here the calling thread plays that other thread. The nodes that it had taken by then have no
    /// owner. Returns whether `act` had finished. No other thread runs meanwhile.
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

    /// Notes that the calling thread has accessed a word.
    pub(crate) fn step(&self) {
        match self.vanishes_in.get() {
            0 => {}
            1 => resume_unwind(Box::new(Vanished)),
            more => self.vanishes_in.set(more - 1),
        }
    }

    /// Gives the calling thread a real-time scheduling policy.
    pub fn set_urgent(&self) {
        self.with_thread(|mine| mine.urgent = true);
    }

    pub(crate) fn priority(&self) -> i32 {
        self.with_thread(|mine| if mine.urgent { REAL_TIME } else { 0 })
    }

    /// The NUMA node of the calling thread.
    pub fn numa(&self) -> u32 {
        self.with_thread(|mine| mine.numa)
    }

    pub(crate) fn kept<R>(&self, which: Kept, act: impl FnOnce(&Cell<u32>) -> R) -> R {
        self.with_thread(|mine| act(Cell::from_mut(&mut mine.kept[which as usize])))
    }

    /// Freezes the calling thread when it begins its `waits`-th wait from now, like a thread whose signal handler
    /// sleeps.
    pub fn freeze_at(&self, waits: u32) {
        self.with_thread(|mine| mine.freeze_in = waits);
    }

    /// Stops the calling thread after this many more accesses, like a thread that is held up by a signal handler there.
    pub fn stop_after(&self, accesses: u32) {
        self.stops.set(true);
        self.with_thread(|mine| mine.stops_in = accesses);
    }

    /// How many threads are stopped.
    pub fn stopped(&self) -> usize {
        self.stopped.get()
    }

    /// Whether the calling thread, which has just accessed a word, stops here.
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

    /// Lets frozen and stopped threads continue; none freeze or stop any more.
    pub fn thaw(&self) {
        self.thawed.set(true);
    }

    /// Called when a wait begins or polls.
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

    /// The deadline `ticks` ticks from now.
    pub fn deadline(&self, ticks: u32) -> Deadline {
        Deadline { clock: Clock::Monotonic, sec: i64::from(self.now.get() + ticks), nsec: 0 }
    }

    /// The end of a patience that begins now, or `other` if that is sooner.
    pub(crate) fn sooner(&self, other: Option<Deadline>) -> Deadline {
        let never = Deadline { clock: Clock::Monotonic, sec: i64::MAX, nsec: OWN };
        let own = match self.setup.patience {
            0 => never,
            ticks => Deadline { nsec: OWN, ..self.deadline(ticks) },
        };
        other.filter(|deadline| deadline.sec < own.sec).unwrap_or(own)
    }

    /// Advances time by one tick; sleeps with that deadline end.
    pub fn tick(&self) {
        self.kernel.enter();
        self.now_seen.fetch_add(1, Relaxed);
        self.now.set(self.now.get() + 1);
        self.kernel.expire(self.now.get());
    }

    /// Lets time flow, if it does so by itself.
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

    /// Advances the clock of `Time::micros` by this many µs.
    pub fn pass(&self, micros: u32) {
        self.micros.set(self.micros.get().wrapping_add(micros));
    }

    /// A thread offers its CPU, for this many µs.
    pub(crate) fn offer(&self, micros: u32) {
        self.offers.set(self.offers.get() + 1);
        self.pass(micros);
    }

    /// How often threads have offered their CPUs in this execution.
    pub fn offers(&self) -> u32 {
        self.offers.get()
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

    /// The number of read-modify-writes of words in this execution.
    pub fn atomics(&self) -> u32 {
        self.atomics.get()
    }

    /// How often an event happened in this execution.
    pub fn events(&self, event: Event) -> u32 {
        self.events.borrow()[event as usize]
    }
}
