//! # Running something
//!
//! A [`Simulation`] is a computer, what was placed in its memory, and threads. It belongs to the host thread that made
//! it; several host threads can have one each.

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

/// Of a coroutine's stack.
const STACK_BYTES: usize = 64 << 10;

thread_local! {
    static KERNEL: RefCell<Option<Box<Kernel>>> = const { RefCell::new(None) };
    /// The acting thread's way back to [`Simulation::run`].
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(std::ptr::null()) };
    /// Memory that no simulation uses now.
    static SPARE: RefCell<Option<Arena>> = const { RefCell::new(None) };
}

/// What is the same in all runs of an experiment but for a seed.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Of what the locks draw.
    pub seed: u64,
    /// Of where threads begin: what is drawn of that, is drawn with it.
    pub placement: u64,
    /// How they are placed.
    pub place: Place,
    /// What the user tuned.
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

/// What a run took: all but the first two, of the part that was to be [measured](Simulation::measure).
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Virtual time of the whole run, in ns.
    pub ns: f64,
    /// Steps of the simulation, in the whole run.
    pub events: u64,
    /// Thread time in ns, by its [`Use`].
    pub times: [f64; Use::ALL.len()],
    /// Lines that were carried.
    pub traffic: Traffic,
    /// What the locks traced, in the order of `Event::ALL`.
    pub counts: Vec<u64>,
    /// Times that threads gave their CPU up.
    pub voluntary_switches: u64,
    /// Times that they lost it.
    pub involuntary_switches: u64,
    /// What the machine consumed above idle, in joules: an estimate.
    pub joules: f64,
}

impl Simulation {
    /// A computer in which nothing happens yet.
    ///
    /// # Panics
    ///
    /// If the host thread already has one.
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

    /// Puts a value into simulated memory, from the beginning of a line. What its words are called when a run hangs.
    pub fn place<T>(&mut self, name: &str, value: T) -> Placed<T> {
        let placed = with(|kernel| Placed { at: kernel.arena.reserve::<T>(), _block: kernel.arena.block() });
        // SAFETY: room for a `T`, aligned, that nobody else has (`arena`, invariant 3).
        unsafe { placed.at.write(value) };
        self.names.push((placed.at.as_ptr().expose_provenance(), size_of::<T>(), name.to_owned()));
        placed
    }

    /// What is reported of the run is to be of this part of it, in ns of virtual time; of all of it otherwise. What
    /// happens is the same.
    pub fn measure(&mut self, part: Range<u64>) {
        with(|kernel| kernel.measure(1000 * part.start..1000 * part.end));
    }

    /// A CPU on which none of the threads begins that are made from now on, unless they are [told
    /// to](Simulation::spawn_on): the one that would come last.
    ///
    /// # Panics
    ///
    /// If only one is left.
    pub fn reserve_cpu(&mut self) -> u32 {
        assert!(self.order.len() > 1, "no CPU can be set apart where only one is left");
        self.order.pop().expect("there are several")
    }

    /// One more thread, on the next CPU. It begins with [`Simulation::run`].
    pub fn spawn(&mut self, program: impl FnOnce() + 'static) {
        let cpu = self.order[self.coroutines.len() % self.order.len()];
        self.spawn_on(cpu, program);
    }

    /// The same on this CPU.
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
    /// [`Stuck`] if that never happens, or nothing was done for 10 s of virtual time.
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

/// Does something with the host thread's computer.
#[inline]
pub(crate) fn with<T>(act: impl FnOnce(&mut Kernel) -> T) -> T {
    KERNEL.with_borrow_mut(|kernel| act(kernel.as_mut().expect("a simulation exists on this host thread")))
}

/// Whether a simulated thread is.
fn is_acting() -> bool {
    with(|kernel| kernel.current.is_some())
}

/// Lets others act until the acting thread's event has come.
pub(crate) fn suspend() {
    let yielder = YIELDER.get();
    // SAFETY: set by the coroutine that is running, whose frame it lives in: `run` sets it each time it resumes one.
    unsafe { &*yielder }.suspend(());
}

/// Something in simulated memory.
#[derive(Debug)]
pub struct Placed<T> {
    at: NonNull<T>,
    /// The block is not used for another simulation while this exists.
    _block: Rc<()>,
}

impl<T> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: written when it was placed, dropped with `self` only, and its block is kept.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Placed<T> {
    /// The value, if nobody shares it.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: as above; `&mut self` says that nobody else has it.
        unsafe { self.at.as_mut() }
    }
}

impl<T> Drop for Placed<T> {
    fn drop(&mut self) {
        // SAFETY: once, and nobody uses it afterwards.
        unsafe { self.at.drop_in_place() };
    }
}

/// Lines of simulated memory that are only touched: they hold nothing.
#[derive(Debug)]
pub struct Region {
    first: u32,
    lines: u32,
}

impl Region {
    /// So many lines.
    pub fn new(lines: u32) -> Self {
        let first = with(|kernel| kernel.memory.extend(lines));
        Self { first, lines }
    }

    /// Loads from a line, and waits for it, as what comes next depends on it.
    pub fn read(&self, line: u32) {
        self.load([line], 1.0);
    }

    /// Loads from lines, one after the other; what comes next does not depend on them, so that other such loads are
    /// under way at the same time. Which lines is asked for at once.
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

    /// The acting thread accesses this line next. Nothing happens but on the computer that simulates, which fetches
    /// what is known of it.
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
