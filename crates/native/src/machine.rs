//! The [`Machine`] that lock algorithms use on this computer: it maps each operation to a module of this crate.

use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering, Ordering::Relaxed};

use flashlock_locks::machine::block::{Block, Name};
use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::node::Node;
use flashlock_locks::machine::{
    Beside, Blocks, ConstWord, Deadline, Division, Handle, Kept, Listen, Look, Machine, Manner, Memory, Patience,
    Pause, Special, Time, Topology, Tunables, Unparked, Waiting, Word,
};

use crate::alone::{self, is_alone};
use crate::{
    clock, epoch, evidence, futex, groups, left, membarrier, near, numa, parts, pool, settings, spin, stats, sys,
    thread,
};

/// An `AtomicU32`, whose read-modify-writes are [without the `lock` prefix in a process with one thread](alone).
#[repr(transparent)]
pub struct Word32(pub AtomicU32);

impl ConstWord for Word32 {
    const ZERO: Self = Self(AtomicU32::new(0));
}

impl Word for Word32 {
    #[inline(always)]
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }
    #[inline(always)]
    fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
    }
    #[inline(always)]
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        if is_alone() { alone::fetch_update(&self.0, |_| value) } else { self.0.swap(value, order) }
    }
    #[inline(always)]
    fn compare_exchange(&self, current: u32, new: u32, ok: Ordering, err: Ordering) -> Result<u32, u32> {
        if is_alone() {
            alone::compare_exchange(&self.0, current, new)
        } else {
            self.0.compare_exchange(current, new, ok, err)
        }
    }
    #[inline(always)]
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        if is_alone() { alone::fetch_add(&self.0, value) } else { self.0.fetch_add(value, order) }
    }
    #[inline(always)]
    fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
        if is_alone() { alone::fetch_update(&self.0, |seen| seen | value) } else { self.0.fetch_or(value, order) }
    }
    #[inline(always)]
    fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
        if is_alone() { alone::fetch_update(&self.0, |seen| seen & value) } else { self.0.fetch_and(value, order) }
    }
    #[inline(always)]
    fn compare_exchange_between_processes(
        &self,
        current: u32,
        new: u32,
        ok: Ordering,
        err: Ordering,
    ) -> Result<u32, u32> {
        self.0.compare_exchange(current, new, ok, err)
    }
    #[inline(always)]
    fn hand_back(&self, free: u32, held: u32, order: Ordering) -> bool {
        if is_alone() { alone::hand_back(&self.0, free, held) } else { self.0.swap(free, order) > held }
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn clear_high_byte(&self, _: Ordering) {
        // A store of one byte. In Rust, atomic accesses of different sizes must not race, so the compiler is told only
        // that the word changes. On x86 each store is a Release.
        // SAFETY: the word is writable. An x86 CPU writes one byte at once and leaves the others as they are.
        unsafe {
            core::arch::asm!("mov byte ptr [{word} + 3], 0", word = in(reg) self.0.as_ptr(),
                options(nostack, preserves_flags));
        }
    }
}

/// A receiver of a lock's events.
pub trait Sink: 'static {
    /// Whether it does anything with them.
    const LISTENS: bool = true;
    /// Called before a thread's events are about the lock at this address. Returns what they were about: see
    /// [`Listen::about`].
    #[inline(always)]
    fn about(_lock: usize) -> usize {
        0
    }
    /// Called when an event happens.
    fn event(event: Event);
    /// A time stamp for [`Sink::waited`].
    fn stamp() -> u64;
    /// Called when a mutex was acquired after a wait that began at the stamp.
    fn waited(stamp: u64);
}

/// Receives nothing: compiles to nothing.
pub struct NoStats;

impl Sink for NoStats {
    const LISTENS: bool = false;

    #[inline(always)]
    fn event(_: Event) {}
    #[inline(always)]
    fn stamp() -> u64 {
        0
    }
    #[inline(always)]
    fn waited(_: u64) {}
}

/// Counts events in [`stats`].
pub struct Counting;

impl Sink for Counting {
    fn about(lock: usize) -> usize {
        stats::about(lock)
    }
    fn event(event: Event) {
        stats::count(event);
    }
    fn stamp() -> u64 {
        clock::now()
    }
    fn waited(stamp: u64) {
        stats::count_wait(clock::now().saturating_sub(stamp));
    }
}

/// [`Kept::RecentStall`]
static RECENT_STALL: AtomicU32 = AtomicU32::new(0);

/// Passes the value to `act`, and stores it if `act` has changed it.
fn act_on<R>(word: &AtomicU32, act: impl FnOnce(&Cell<u32>) -> R) -> R {
    let before = word.load(Relaxed);
    let value = Cell::new(before);
    let result = act(&value);
    if value.get() != before {
        word.store(value.get(), Relaxed);
    }
    result
}

/// This computer.
pub struct Native<S: Sink = NoStats>(PhantomData<S>);

impl<S: Sink> Memory for Native<S> {
    type Word = Word32;

    #[inline(always)]
    fn node(handle: Handle) -> &'static Node<Self> {
        pool::node(handle)
    }

    unsafe fn take_node() -> Handle {
        // SAFETY: the callers' promise.
        unsafe { thread::take_node() }
    }

    fn give_node(handle: Handle) {
        thread::give_node(handle);
    }

    #[inline]
    fn epoch() -> u32 {
        epoch::current()
    }

    fn kept<R>(which: Kept, act: impl FnOnce(&Cell<u32>) -> R) -> R {
        match which {
            Kept::RecentStall => act_on(&RECENT_STALL, act),
            _ => thread::kept(which, act),
        }
    }

    #[inline]
    fn beside(which: Beside, lock: *const Word32) -> &'static Word32 {
        match which {
            Beside::LeftBehind => left::count(lock),
            Beside::Drain => left::drain_word(lock),
            Beside::Distributed => left::distributed(),
        }
    }
}

impl<S: Sink> Blocks for Native<S> {
    #[inline]
    fn block(name: Name) -> &'static Block<Self> {
        pool::block(name)
    }

    unsafe fn take_block() -> Name {
        // SAFETY: the callers' promise.
        unsafe { pool::take_block() }
    }

    fn give_block(name: Name) {
        pool::give_block(name);
    }
}

impl<S: Sink> Time for Native<S> {
    fn expired(deadline: &Deadline) -> bool {
        clock::expired(deadline)
    }

    fn sooner(micros: u32, other: Option<Deadline>) -> Deadline {
        clock::sooner(micros, other)
    }

    fn micros() -> u32 {
        clock::micros()
    }
}

impl<S: Sink> Waiting for Native<S> {
    #[inline]
    fn spin_until(word: &Word32, order: Ordering, patience: Patience, done: impl FnMut(u32) -> bool) -> Option<u32> {
        spin::spin_until(&word.0, order, patience, done)
    }

    #[inline]
    fn pause(how: Pause) {
        match how {
            Pause::Steps(steps) => (0..steps).for_each(|_| core::hint::spin_loop()),
            Pause::Offer => sys::yield_now(),
            Pause::Nap(micros) => sys::nap(micros),
        }
    }

    fn park(word: &Word32, expected: u32, until: Option<Deadline>) -> Unparked {
        let unparked = futex::park(&word.0, expected, until);
        if unparked == Unparked::Woken {
            spin::note_woken();
        }
        unparked
    }

    fn wake(address: *const Word32, count: u32) -> u32 {
        spin::note_wake();
        futex::wake(address.cast(), count)
    }

    fn unpark(node: &Node<Self>) -> u32 {
        spin::note_wake();
        pool::unpark(node)
    }

    fn requeue(node: &Node<Self>, address: *const Word32) {
        pool::requeue(node, address.cast());
    }

    fn crowded() -> bool {
        spin::crowded()
    }
}

impl<S: Sink> Topology for Native<S> {
    #[inline]
    fn numa_node() -> u32 {
        numa::node()
    }

    #[inline]
    fn part(of: Division) -> u32 {
        match of {
            Division::Llc => near::llc(),
            Division::Groups { depth } => groups::group(depth),
            Division::Readers => parts::part(),
        }
    }
}

impl<S: Sink> Listen for Native<S> {
    #[inline(always)]
    fn counted_on(waiter: &Node<Self>) -> Option<u32> {
        S::LISTENS.then(|| waiter.numa.load(Relaxed))
    }

    #[inline(always)]
    fn about(lock: usize) -> usize {
        S::about(lock)
    }

    #[inline(always)]
    fn trace(event: Event) {
        S::event(event);
    }

    #[inline(always)]
    fn stamp() -> u64 {
        S::stamp()
    }

    #[inline(always)]
    fn waited(stamp: u64) {
        S::waited(stamp);
    }
}

impl<S: Sink> Special for Native<S> {
    unsafe fn any_node(look: impl FnMut(Handle) -> bool) -> bool {
        // SAFETY: the callers' promise.
        unsafe { pool::any(look) }
    }

    fn is_there(word: &Word32) -> bool {
        futex::is_there(&word.0)
    }

    #[inline]
    fn poll_until(
        word: &Word32,
        order: Ordering,
        patience: Patience,
        how: Manner<'_>,
        done: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        spin::poll_until(&word.0, order, patience, how, done)
    }

    fn poll(word: &Word32, beside: &Word32, micros: u32, look: impl FnMut(u32, u32) -> Look) -> bool {
        evidence::poll(&word.0, &beside.0, micros, look)
    }

    fn steps() -> u32 {
        evidence::steps()
    }

    fn sleep_cost() -> u32 {
        evidence::sleep_cost()
    }

    fn transfer_cost(times: u32) -> u32 {
        evidence::transfer_cost(times)
    }

    #[inline(always)]
    fn light_fence() {
        membarrier::light();
    }

    fn heavy_fence() {
        membarrier::heavy();
    }

    fn priority() -> i32 {
        thread::priority()
    }

    fn distance(a: u32, b: u32) -> u32 {
        near::distance(a, b)
    }
}

// SAFETY: hardware atomics, or in a process with one thread, operations that no other thread can interrupt (`alone`)
// (1); `pool`, invariant 2 (2); the loop in `spin` (3).
unsafe impl<S: Sink> Machine for Native<S> {
    fn random() -> u32 {
        thread::random()
    }

    fn tunables() -> &'static Tunables {
        settings::tunables()
    }
}
