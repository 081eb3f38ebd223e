//! A machine for unit tests: words are the atomics of the standard library, and threads are its threads. Waiters poll,
//! and yield between polls; so it has no system calls, and runs under Miri. The NUMA nodes stand in a row.

extern crate std;

use core::sync::atomic::{AtomicU32, Ordering};
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;
use std::vec::Vec;

use crate::machine::block::{Block, Name};
use crate::machine::event::Event;
use crate::machine::node::Node;
use crate::machine::{
    Beside, Blocks, Deadline, Handle, Kept, Listen, Machine, Memory, Patience, Pause, Special, Time, Topology,
    Tunables, Unparked, Waiting, Word,
};
use crate::parts::policy::chosen::NAMES;

/// Sets the chosen policy of the calling thread's locks.
pub(crate) fn choose(policy: u32) {
    TUNABLES.set(&CHOICES[policy as usize]);
}

/// The options with each policy.
static CHOICES: [Tunables; NAMES.len()] = {
    let mut all = [Tunables::DEFAULT; NAMES.len()];
    let mut policy = 0;
    while policy < all.len() {
        all[policy].policy = policy as u32;
        policy += 1;
    }
    all
};

/// Sets how much the thread is preferred.
pub(crate) fn prefer(priority: i32) {
    PRIORITY.set(priority);
}

/// The events that the calling thread reports in `act`, each with the address of the lock that it is about. (Only
/// `catalogue/sound` uses it.)
#[cfg(debug_assertions)]
pub(crate) fn heard(act: impl FnOnce()) -> Vec<(usize, Event)> {
    HEARD.set(Some(Vec::new()));
    act();
    HEARD.take().unwrap_or_default()
}

/// From now on the calling thread's clock stands at this time (µs).
pub(crate) fn stop_clock(micros: u32) {
    CLOCK.set(Some(micros));
}

std::thread_local! {
    static CLOCK: Cell<Option<u32>> = const { Cell::new(None) };
    static TUNABLES: Cell<&'static Tunables> = const { Cell::new(&Tunables::DEFAULT) };
    static PRIORITY: Cell<i32> = const { Cell::new(0) };
    static KEPT: [Cell<u32>; Kept::OF_THREAD] = const { [const { Cell::new(0) }; Kept::OF_THREAD] };
    static RANDOM: Cell<u32> = const { Cell::new(1) };
    static ABOUT: Cell<usize> = const { Cell::new(0) };
    static HEARD: RefCell<Option<Vec<(usize, Event)>>> = const { RefCell::new(None) };
}

/// How often a waiter polls that could sleep.
const POLLS: u32 = 4;

/// The machine.
pub(crate) struct Bench;

/// Its word.
pub(crate) struct Plain(AtomicU32);

impl Word for Plain {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }
    fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
    }
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, order)
    }
    fn compare_exchange(&self, current: u32, new: u32, ok: Ordering, err: Ordering) -> Result<u32, u32> {
        self.0.compare_exchange(current, new, ok, err)
    }
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_add(value, order)
    }
    fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_or(value, order)
    }
    fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_and(value, order)
    }
}

/// Pieces by their numbers, and the numbers of the free ones.
struct Pool<T: 'static>(Mutex<(Vec<&'static T>, Vec<u32>)>);

impl<T> Pool<T> {
    const fn new() -> Self {
        Self(Mutex::new((Vec::new(), Vec::new())))
    }

    fn books(&self) -> MutexGuard<'_, (Vec<&'static T>, Vec<u32>)> {
        self.0.lock().expect("no panic in here")
    }

    fn take(&self, make: impl FnOnce() -> T) -> u32 {
        let (all, free) = &mut *self.books();
        free.pop().unwrap_or_else(|| {
            all.push(Box::leak(Box::new(make())));
            all.len() as u32 - 1
        })
    }

    fn give(&self, number: u32) {
        let (_, free) = &mut *self.books();
        assert!(!free.contains(&number), "given back twice");
        free.push(number);
    }

    fn at(&self, number: u32) -> &'static T {
        self.books().0[number as usize]
    }
}

static NODES: Pool<Node<Bench>> = Pool::new();
static BLOCKS: Pool<Block<Bench>> = Pool::new();
static BESIDE: [Plain; 3] = [const { Plain(AtomicU32::new(0)) }; 3];

/// A node's handle is its number and this.
const NODES_FROM: u32 = Handle::RESERVED + 1;

fn handle(number: u32) -> Handle {
    Handle::from_word(number + NODES_FROM).expect("neither 0 nor 1")
}

impl Memory for Bench {
    type Word = Plain;

    fn node(handle: Handle) -> &'static Node<Self> {
        NODES.at(handle.word() - NODES_FROM)
    }

    unsafe fn take_node() -> Handle {
        // SAFETY: it joins the pool.
        handle(NODES.take(|| unsafe { Node::new() }))
    }

    fn give_node(handle: Handle) {
        NODES.give(handle.word() - NODES_FROM);
    }

    /// It forgets the value that is not a thread's.
    fn kept<R>(which: Kept, act: impl FnOnce(&Cell<u32>) -> R) -> R {
        KEPT.with(|kept| act(kept.get(which as usize).unwrap_or(&Cell::new(0))))
    }

    fn beside(which: Beside, _: *const Plain) -> &'static Plain {
        &BESIDE[which as usize]
    }
}

impl Blocks for Bench {
    fn block(name: Name) -> &'static Block<Self> {
        BLOCKS.at(name.word() - 1)
    }

    unsafe fn take_block() -> Name {
        // SAFETY: it joins the pool.
        Name::from_word(BLOCKS.take(|| unsafe { Block::new() }) + 1).expect("it is not 0")
    }

    fn give_block(name: Name) {
        BLOCKS.give(name.word() - 1);
    }
}

impl Time for Bench {
    fn micros() -> u32 {
        if let Some(stopped) = CLOCK.get() {
            return stopped;
        }
        static BEGUN: Mutex<Option<Instant>> = Mutex::new(None);
        let begun = *BEGUN.lock().expect("no panic in here").get_or_insert_with(Instant::now);
        begun.elapsed().as_micros() as u32
    }

    fn expired(deadline: &Deadline) -> bool {
        Self::micros() >= deadline.nsec
    }

    /// The clock of a deadline is [`micros`](Time::micros), in the place of its nanoseconds.
    fn sooner(micros: u32, other: Option<Deadline>) -> Deadline {
        let nsec = Self::micros().saturating_add(micros);
        let nsec = other.map_or(nsec, |other| other.nsec.min(nsec));
        Deadline { clock: crate::machine::Clock::Monotonic, sec: 0, nsec }
    }
}

impl Waiting for Bench {
    fn wake(_: *const Plain, _: u32) -> u32 {
        1 // Whoever waits there polls, as if woken again and again.
    }

    fn spin_until(word: &Plain, order: Ordering, patience: Patience, mut done: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut polls = 0;
        loop {
            let seen = word.load(order);
            if done(seen) {
                return Some(seen);
            }
            polls += 1;
            let spent = match patience {
                Patience::Forever => false,
                Patience::Budget | Patience::Contend => polls > POLLS,
                Patience::Until(deadline) => Self::expired(&deadline),
            };
            if spent {
                return None;
            }
            std::thread::yield_now();
        }
    }

    fn pause(_: Pause) {
        std::thread::yield_now();
    }

    /// Returns for no reason at all, which a machine may.
    fn park(word: &Plain, expected: u32, until: Option<Deadline>) -> Unparked {
        if word.load(Ordering::Relaxed) != expected {
            return Unparked::Changed;
        }
        if until.is_some_and(|deadline| Self::expired(&deadline)) {
            return Unparked::TimedOut;
        }
        std::thread::yield_now();
        Unparked::Woken
    }

    fn requeue(_: &Node<Self>, _: *const Plain) {}
}

impl Topology for Bench {}

impl Listen for Bench {
    fn about(lock: usize) -> usize {
        ABOUT.replace(lock)
    }

    fn trace(event: Event) {
        HEARD.with_borrow_mut(|heard| heard.as_mut().map(|heard| heard.push((ABOUT.get(), event))));
    }
}

impl Special for Bench {
    unsafe fn any_node(look: impl FnMut(Handle) -> bool) -> bool {
        let nodes = NODES.books().0.len() as u32;
        (0..nodes).map(handle).any(look)
    }

    fn priority() -> i32 {
        PRIORITY.get()
    }

    fn distance(a: u32, b: u32) -> u32 {
        a.abs_diff(b)
    }
}

// SAFETY: std's atomics (1); a number is in the list of free ones, or was handed out (2); the loop of `spin_until` (3).
unsafe impl Machine for Bench {
    fn tunables() -> &'static Tunables {
        TUNABLES.get()
    }

    /// Xorshift.
    fn random() -> u32 {
        let mut seed = RANDOM.get();
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        RANDOM.set(seed);
        seed
    }
}
