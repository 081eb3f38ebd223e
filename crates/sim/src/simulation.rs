//! # Running a simulation
//!
//! A [`Simulation`] is a computer, the objects placed in its memory, and its threads. It belongs to the host thread
//! that made it. Several host threads can have one each.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use flashlock_locks::machine::Tunables;

use crate::Ps;
use crate::access::{access_line, read_all};
use crate::arena::Arena;
use crate::description::Description;
use crate::kernel::{Kernel, Next};
use crate::memory::{Access, Traffic};
use crate::placement::{Place, mix, order};
use crate::power::Draw;
use crate::stuck::{self, Name};
pub use crate::stuck::{Stuck, Why};
use crate::thread::{State, Use};

/// The size of a coroutine's stack.
const STACK_BYTES: usize = 64 << 10;

thread_local! {
    static KERNEL: RefCell<Option<Box<Kernel>>> = const { RefCell::new(None) };
    /// How the acting thread returns to [`Simulation::run`].
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(std::ptr::null()) };
    /// A block of memory that no simulation is using.
    static SPARE: RefCell<Option<Arena>> = const { RefCell::new(None) };
}

/// The settings of a run. Within an experiment, runs differ in the seeds only.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The seed of all random numbers that locks draw.
    pub seed: u64,
    /// The seed of the random part of the threads' placement.
    pub placement: u64,
    /// How threads are placed on CPUs.
    pub place: Place,
    /// The values that the user tuned.
    pub tunables: &'static Tunables,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, placement: 1, place: Place::Spread, tunables: &Tunables::DEFAULT }
    }
}

/// A simulated computer with a program.
pub struct Simulation {
    coroutines: Vec<Coroutine<(), (), ()>>,
    order: Vec<u32>,
    names: Vec<Name>,
    seed: u64,
}

/// The results of a run. All except the first two are of the part to be [measured](Simulation::measure).
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Virtual time of the whole run, in ns.
    pub ns: f64,
    /// Steps of the simulation, in the whole run.
    pub events: u64,
    /// Thread time in ns, by [`Use`].
    pub times: [f64; Use::ALL.len()],
    /// Cache lines carried.
    pub traffic: Traffic,
    /// The events that the locks traced, in the order of `Event::ALL`.
    pub counts: Vec<u64>,
    /// How often threads gave up their CPU.
    pub voluntary_switches: u64,
    /// How often threads lost their CPU.
    pub involuntary_switches: u64,
    /// The energy that the machine consumed above idle, in joules: an estimate.
    pub joules: f64,
}

impl Simulation {
    /// A computer in its initial state.
    ///
    /// # Panics
    ///
    /// If the host thread already has a simulation.
    pub fn new(machine: &Description, options: Options) -> Self {
        let mut arena = SPARE.take().unwrap_or_else(Arena::new);
        if arena.is_in_use() {
            arena = Arena::new();
        }
        arena.clear();
        let kernel = Kernel::new(machine, arena, options.tunables);
        let order = order(&kernel.shape, options.placement, options.place);
        KERNEL.with_borrow_mut(|slot| {
            assert!(slot.is_none(), "a host thread simulates one computer at a time");
            *slot = Some(Box::new(kernel));
        });
        Self { coroutines: Vec::new(), order, names: Vec::new(), seed: options.seed }
    }

    /// Puts a value into simulated memory, at the start of a line. The report of a run that hangs calls its words
    /// `name`.
    pub fn place<T>(&mut self, name: &str, value: T) -> Placed<T> {
        let placed = with(|kernel| Placed { at: kernel.arena.reserve::<T>(), _block: kernel.arena.block() });
        // SAFETY: aligned room for a `T`, which nothing else uses (`arena`, invariant 3).
        unsafe { placed.at.write(value) };
        self.names.push((placed.at.as_ptr().expose_provenance(), size_of::<T>(), name.to_owned()));
        placed
    }

    /// Restricts the reported results to this part of the run, in ns of virtual time. The default is the whole run.
    /// This does not change what happens.
    pub fn measure(&mut self, part: Range<u64>) {
        with(|kernel| kernel.measure(1000 * part.start..1000 * part.end));
    }

    /// Reserves the last CPU in the order of placement. Threads made from now on do not start on it, except by
    /// [`spawn_on`](Simulation::spawn_on).
    ///
    /// # Panics
    ///
    /// If only one CPU is left.
    pub fn reserve_cpu(&mut self) -> u32 {
        assert!(self.order.len() > 1, "no CPU can be set apart where only one is left");
        self.order.pop().expect("there are several")
    }

    /// Makes a thread on the next CPU in the order of placement. It starts with [`Simulation::run`].
    pub fn spawn(&mut self, program: impl FnOnce() + 'static) {
        let cpu = self.order[self.coroutines.len() % self.order.len()];
        self.spawn_on(cpu, program);
    }

    /// Makes a thread on this CPU.
    pub fn spawn_on(&mut self, cpu: u32, program: impl FnOnce() + 'static) {
        let number = self.coroutines.len();
        let random = mix(self.seed ^ mix(number as u64 + 1));
        with(|kernel| kernel.spawn(cpu, random));
        let stack = DefaultStack::new(STACK_BYTES).expect("memory for a coroutine's stack");
        self.coroutines.push(Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(yielder);
            program();
        }));
    }

    /// Runs until all threads have returned.
    ///
    /// # Errors
    ///
    /// [`Stuck`] if some threads can never return, or if no thread has made progress for 10 s of virtual time.
    pub fn run(&mut self) -> Result<Outcome, Stuck> {
        let mut yielders = vec![std::ptr::null(); self.coroutines.len()];
        loop {
            match with(Kernel::next) {
                Next::Run(tid) => {
                    YIELDER.set(yielders[tid as usize]);
                    let result = self.coroutines[tid as usize].resume(());
                    yielders[tid as usize] = YIELDER.get();
                    if let CoroutineResult::Return(()) = result {
                        with(|kernel| kernel.leave(State::Done));
                    }
                    with(|kernel| kernel.current = None);
                }
                Next::Over => return Ok(with(outcome)),
                Next::Stuck(why) => return Err(with(|kernel| stuck::report(kernel, why, &self.names))),
            }
        }
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        self.coroutines.clear();
        let kernel = KERNEL.take();
        if let Some(kernel) = kernel {
            SPARE.set(Some(kernel.arena));
        }
    }
}

fn outcome(kernel: &mut Kernel) -> Outcome {
    let ns = |time: Ps| time as f64 / 1e3;
    let times = kernel.measured.times.map(ns);
    let (counts, power) = (kernel.measured_counts(), &kernel.machine.power);
    let traffic = counts.traffic;
    let drawn = |draw: Draw| ns(kernel.measured.drawn[draw as usize]);
    let wait_w = kernel.machine.umwait.map_or(0.0, |wait| wait.wait_w);
    let watt_ns = drawn(Draw::Busy) * power.busy_w + drawn(Draw::Poll) * power.poll_w + drawn(Draw::Rest) * wait_w;
    let nj = traffic.local as f64 * power.local_nj + (traffic.remote + traffic.memory) as f64 * power.remote_nj;
    Outcome {
        ns: ns(kernel.now),
        events: kernel.happened,
        times,
        traffic,
        counts: counts.traced,
        voluntary_switches: counts.voluntary,
        involuntary_switches: counts.involuntary,
        joules: (watt_ns + nj) / 1e9,
    }
}

/// Applies `act` to the host thread's simulated computer.
#[inline]
pub(crate) fn with<T>(act: impl FnOnce(&mut Kernel) -> T) -> T {
    KERNEL.with_borrow_mut(|kernel| act(kernel.as_mut().expect("a simulation exists on this host thread")))
}

/// Whether a simulated thread is acting, that is, whether this is not the set-up of a simulation.
fn is_acting() -> bool {
    with(|kernel| kernel.current.is_some())
}

/// Lets other threads act until the acting thread's event comes.
pub(crate) fn suspend() {
    let yielder = YIELDER.get();
    // SAFETY: set by the running coroutine, whose frame contains it: `run` sets it each time it resumes a coroutine.
    unsafe { &*yielder }.suspend(());
}

/// A value in simulated memory.
#[derive(Debug)]
pub struct Placed<T> {
    at: NonNull<T>,
    /// Keeps the block from being used by another simulation.
    _block: Rc<()>,
}

impl<T> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: written when it was placed, dropped only with `self`, and its block is kept.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Placed<T> {
    /// The value, which nothing else shares.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: as above; `&mut self` excludes all other users.
        unsafe { self.at.as_mut() }
    }
}

impl<T> Drop for Placed<T> {
    fn drop(&mut self) {
        // SAFETY: dropped once, and not used afterwards.
        unsafe { self.at.drop_in_place() };
    }
}

/// Lines of simulated memory that hold no data: a program can only touch them.
#[derive(Debug)]
pub struct Region {
    first: u32,
    lines: u32,
}

impl Region {
    /// A region of `lines` lines.
    pub fn new(lines: u32) -> Self {
        let first = with(|kernel| kernel.memory.extend(lines));
        Self { first, lines }
    }

    /// Loads from a line and waits for the result, because the next step depends on it.
    pub fn read(&self, line: u32) {
        self.load([line], 1.0);
    }

    /// Loads from lines, one after the other. No later step depends on their contents, so several such loads are under
    /// way at the same time. The iterator is consumed at once.
    pub fn read_ahead(&self, lines: impl IntoIterator<Item = u32>) {
        let overlap = with(|kernel| kernel.machine.latency_ns.overlap);
        self.load(lines, overlap);
    }

    /// Stores to a line.
    pub fn write(&self, line: u32) {
        debug_assert!(line < self.lines);
        with(|kernel| kernel.progresses(0));
        if is_acting() {
            access_line(self.first + line, Access::Store, || ());
        }
    }

    /// A hint that the acting thread accesses this line next: the host prefetches the line's record. The simulation
    /// does not change.
    pub fn expect(&self, line: u32) {
        debug_assert!(line < self.lines);
        with(|kernel| {
            if kernel.current.is_some() {
                let core = kernel.my_core();
                kernel.memory.expect(&kernel.shape, core, self.first + line);
            }
        });
    }

    fn load(&self, lines: impl IntoIterator<Item = u32>, overlap: f64) {
        let lines = lines.into_iter().map(|line| {
            debug_assert!(line < self.lines);
            self.first + line
        });
        if is_acting() {
            read_all(lines, overlap);
        }
    }
}
