//! # The machine that the locks see
//!
//! The simulated computer's implementation of [`Machine`]. [`memory`](crate::memory) serves each access to a word and
//! determines its time. The access takes effect when it is served, and others reach the line only after that.
//!
//! For what an access to a word takes, see [`access`](crate::access).

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering, Ordering::Relaxed};

use flashlock_locks::machine::block::{Block, Name};
use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::node::Node;
use flashlock_locks::machine::{
    Beside, Blocks, ConstWord, Deadline, Division, HIGH_BYTE, Handle, Kept, Listen, Look, Machine, Manner, Memory,
    Patience, Pause, Special, Time, Topology, Tunables, Unparked, Waiting,
};

use crate::access::{access, spend};
use crate::arena::{Arena, BLOCKS, FREE_NODES, NODES};
use crate::kernel::Kernel;
use crate::memory::Access;
use crate::simulation::{suspend, with};
use crate::spin;
use crate::thread::{State, Use};
use crate::{Ps, ps};

/// The simulated computer.
pub struct Sim;

/// A word of simulated memory. It is atomic only for the host's sake: one host thread runs all threads of a simulation.
#[derive(Debug)]
#[repr(transparent)]
pub struct Word(AtomicU32);

impl Word {
    pub(crate) fn address(&self) -> *const u32 {
        self.0.as_ptr()
    }

    /// Its value, at no cost: for observers outside the simulation.
    pub fn peek(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Makes it 0, at no cost.
    pub(crate) fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    fn update(&self, change: impl FnOnce(u32) -> u32) -> u32 {
        access(self.address(), Access::Rmw, || {
            let old = self.peek();
            self.0.store(change(old), Relaxed);
            old
        })
    }
}

impl ConstWord for Word {
    const ZERO: Self = Self(AtomicU32::new(0));
}

impl flashlock_locks::machine::Word for Word {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    fn load(&self, _: Ordering) -> u32 {
        access(self.address(), Access::Load, || self.0.load(Relaxed))
    }

    fn store(&self, value: u32, order: Ordering) {
        // A sequentially consistent store is an exchange.
        let kind = if order == Ordering::SeqCst { Access::Rmw } else { Access::Store };
        access(self.address(), kind, || self.0.store(value, Relaxed));
    }

    fn swap(&self, value: u32, _: Ordering) -> u32 {
        self.update(|_| value)
    }

    fn compare_exchange(&self, current: u32, new: u32, _: Ordering, _: Ordering) -> Result<u32, u32> {
        let seen = self.update(|value| if value == current { new } else { value });
        if seen == current { Ok(seen) } else { Err(seen) }
    }

    fn fetch_add(&self, value: u32, _: Ordering) -> u32 {
        self.update(|old| old.wrapping_add(value))
    }

    fn fetch_or(&self, value: u32, _: Ordering) -> u32 {
        self.update(|old| old | value)
    }

    fn fetch_and(&self, value: u32, _: Ordering) -> u32 {
        self.update(|old| old & value)
    }

    fn clear_high_byte(&self, _: Ordering) {
        access(self.address(), Access::Store, || self.0.store(self.0.load(Relaxed) & !HIGH_BYTE, Relaxed));
    }
}

/// The acting thread spends time in a system call.
fn system(time: impl FnOnce(&Kernel) -> Ps) {
    let time = with(|kernel| time(kernel));
    spend(time, Use::System);
}

impl Memory for Sim {
    type Word = Word;

    fn node(handle: Handle) -> &'static Node<Self> {
        with(|kernel| kernel.arena.node(handle))
    }

    unsafe fn take_node() -> Handle {
        with(|kernel| {
            if let Some(handle) = kernel.me().nodes.pop() {
                return handle;
            }
            assert!(kernel.nodes_made < FREE_NODES, "simulated threads wait with {NODES} nodes or more");
            kernel.nodes_made += 1;
            // SAFETY: no thread has it; the callers' promise.
            unsafe { Arena::handle(kernel.nodes_made - 1) }
        })
    }

    fn give_node(handle: Handle) {
        with(|kernel| kernel.me().nodes.push(handle));
    }

    fn kept<R>(which: Kept, act: impl FnOnce(&Cell<u32>) -> R) -> R {
        with(|kernel| match which {
            Kept::RecentStall => act(&kernel.recent_stall),
            _ => act(&kernel.me().kept[which as usize]),
        })
    }

    /// One for all locks.
    fn beside(which: Beside, _lock: *const Word) -> &'static Word {
        with(|kernel| match which {
            Beside::LeftBehind => kernel.arena.left(),
            Beside::Drain => kernel.arena.drain_word(),
            Beside::Distributed => kernel.arena.distributed(),
        })
    }
}

impl Blocks for Sim {
    fn block(name: Name) -> &'static Block<Self> {
        with(|kernel| kernel.arena.side(name))
    }

    unsafe fn take_block() -> Name {
        with(|kernel| {
            if let Some(name) = kernel.blocks.pop() {
                return name;
            }
            assert!(kernel.blocks_made < BLOCKS, "simulated locks have {BLOCKS} side blocks and parts");
            kernel.blocks_made += 1;
            // SAFETY: no lock has it; the callers' promise.
            unsafe { Name::new(kernel.blocks_made) }.expect("it is not 0")
        })
    }

    fn give_block(name: Name) {
        with(|kernel| kernel.blocks.push(name));
    }
}

impl Time for Sim {
    fn expired(deadline: &Deadline) -> bool {
        with(|kernel| kernel.expired(deadline))
    }

    fn sooner(micros: u32, other: Option<Deadline>) -> Deadline {
        with(|kernel| {
            let ns = kernel.now / 1000 + u64::from(micros) * 1000;
            let clock = flashlock_locks::machine::Clock::Monotonic;
            let (sec, nsec) = ((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as u32);
            let mine = Deadline { clock, sec, nsec };
            other.filter(|other| kernel.deadline(other) < kernel.deadline(&mine)).unwrap_or(mine)
        })
    }

    fn micros() -> u32 {
        with(|kernel| (kernel.now / 1_000_000) as u32)
    }
}

impl Waiting for Sim {
    fn spin_until(word: &Word, order: Ordering, patience: Patience, done: impl FnMut(u32) -> bool) -> Option<u32> {
        spin::spin_until(word, order, patience, done)
    }

    fn pause(how: Pause) {
        match how {
            Pause::Steps(steps) => {
                let time = with(|kernel| ps(kernel.machine.latency_ns.pause) * Ps::from(steps));
                spend(time, Use::Polling);
            }
            Pause::Offer => {
                if with(Kernel::offer) {
                    suspend();
                }
            }
            Pause::Nap(micros) => {
                with(|kernel| {
                    let until = kernel.now + Ps::from(micros) * 1_000_000 + kernel.os.slack;
                    kernel.sleep(0, Some(until));
                });
                suspend();
            }
        }
    }

    fn park(word: &Word, expected: u32, until: Option<Deadline>) -> Unparked {
        system(|kernel| kernel.os.syscall);
        if flashlock_locks::machine::Word::load(word, Ordering::SeqCst) != expected {
            return Unparked::Changed;
        }
        // No other thread has acted since the load: a load ends when its time has passed.
        let slept = with(|kernel| {
            if word.peek() != expected {
                return false;
            }
            let until = until.map(|deadline| kernel.deadline(&deadline) + kernel.os.slack);
            kernel.sleep(word.address() as usize, until);
            true
        });
        if !slept {
            return Unparked::Changed;
        }
        suspend();
        with(|kernel| {
            if kernel.me().timed_out {
                return Unparked::TimedOut;
            }
            let (woken_at, usual) = kernel.woke;
            kernel.woke.1 = usual - usual / 8 + (kernel.now - woken_at) / 8;
            Unparked::Woken
        })
    }

    fn wake(address: *const Word, count: u32) -> u32 {
        system(|kernel| kernel.os.syscall);
        let (mut woken, began) = (0, with(|kernel| kernel.now));
        while woken < count {
            let found = with(|kernel| {
                // A thread that this call has woken and that sleeps again is not woken twice.
                let first = *kernel.sleepers.get(&(address as usize))?.front()?;
                if matches!(kernel.threads[first as usize].state, State::Asleep { since, .. } if since > began) {
                    return None;
                }
                let tid = kernel.first_sleeper(address as usize)?;
                kernel.woke.0 = kernel.now;
                kernel.wake(tid);
                Some(())
            });
            if found.is_none() {
                break;
            }
            woken += 1;
            system(|kernel| kernel.os.wake);
        }
        woken
    }

    fn requeue(node: &Node<Self>, address: *const Word) {
        system(|kernel| kernel.os.syscall);
        with(|kernel| {
            let Some(tid) = kernel.first_sleeper(node.state.address() as usize) else { return };
            let thread = &mut kernel.threads[tid as usize];
            let State::Asleep { since, .. } = thread.state else { unreachable!("it was among the sleepers") };
            thread.state = State::Asleep { since, address: address as usize };
            kernel.sleepers.entry(address as usize).or_default().push_back(tid);
        });
    }

    fn crowded() -> bool {
        with(spin::crowded)
    }
}

impl Topology for Sim {
    fn numa_node() -> u32 {
        with(|kernel| {
            let core = kernel.my_core();
            kernel.shape.shown_node(core)
        })
    }

    /// A node's cores share its last-level cache.
    fn part(of: Division) -> u32 {
        with(|kernel| {
            let core = kernel.my_core();
            match of {
                Division::Llc => kernel.shape.node(core),
                Division::Groups { depth: 0 } => kernel.shape.core_in_node(core),
                Division::Groups { .. } => 0,
                Division::Readers => kernel.shape.reader_part(core),
            }
        })
    }
}

impl Listen for Sim {
    /// The counts are the simulator's own: counters that a real machine does not have cost nothing here.
    fn counted_on(waiter: &Node<Self>) -> Option<u32> {
        Some(waiter.numa.peek())
    }

    fn trace(event: Event) {
        with(|kernel| kernel.traced[event as usize] += 1);
    }
}

impl Special for Sim {
    unsafe fn any_node(look: impl FnMut(Handle) -> bool) -> bool {
        let made = with(|kernel| kernel.nodes_made);
        // SAFETY: the callers' promise.
        (0..made).map(|index| unsafe { Arena::handle(index) }).any(look)
    }

    fn poll_until(
        word: &Word,
        order: Ordering,
        patience: Patience,
        how: Manner<'_>,
        done: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        spin::poll_until(word, order, patience, how, done)
    }

    fn poll(word: &Word, beside: &Word, micros: u32, look: impl FnMut(u32, u32) -> Look) -> bool {
        spin::poll_at_own_pace(word, beside, micros, look)
    }

    fn steps() -> u32 {
        with(|kernel| (kernel.now / ps(kernel.machine.latency_ns.pause)) as u32)
    }

    fn sleep_cost() -> u32 {
        with(|kernel| (kernel.woke.1 / 1_000_000) as u32 + (kernel.os.wake / 1_000_000) as u32)
    }

    /// Between two cores of a NUMA node.
    fn transfer_cost(times: u32) -> u32 {
        with(|kernel| {
            let latency = &kernel.machine.latency_ns;
            (f64::from(times) * latency.transfer[0] / latency.pause) as u32
        })
    }

    /// Free: simulated accesses take effect in one order.
    fn light_fence() {}

    fn heavy_fence() {
        system(|kernel| kernel.os.syscall);
    }

    fn priority() -> i32 {
        with(|kernel| kernel.me().priority)
    }

    fn distance(a: u32, b: u32) -> u32 {
        with(|kernel| kernel.shape.shown_distance(a, b) as u32)
    }
}

// SAFETY: one host thread runs all simulated threads, and an operation is not interrupted (1). Pieces are numbered
// once and kept in lists of free ones (2). The scheduler gives a poller the accepted value (3).
unsafe impl Machine for Sim {
    fn random() -> u32 {
        with(|kernel| {
            let state = &mut kernel.me().random;
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            (*state >> 32) as u32
        })
    }

    fn tunables() -> &'static Tunables {
        with(|kernel| kernel.tunables)
    }
}

impl Kernel {
    pub(crate) fn deadline(&self, deadline: &Deadline) -> Ps {
        let ns = i128::from(deadline.sec) * 1_000_000_000 + i128::from(deadline.nsec);
        Ps::try_from(ns.max(0) * 1000).unwrap_or(Ps::MAX / 2)
    }

    pub(crate) fn expired(&self, deadline: &Deadline) -> bool {
        self.now >= self.deadline(deadline)
    }
}
