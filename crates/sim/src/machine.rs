//! # The machine that the locks see
//!
//! [`Machine`] on the simulated computer. Each access to a word is served by [`memory`](crate::memory) and takes the time that it
//! takes there; it takes effect when it is served, and others reach the line only after that.
//!
//! **Store buffer.** A store takes effect, for others, when its line has come and all earlier stores have; the thread does not
//! wait for that, unless its buffer is full. A read-modify-write waits until the buffer is empty. This is x86's order, which
//! is stricter than what the algorithms ask for. **Overlap.** A core that waits for a load already executes what comes next, as far as its
//! reorder buffer reaches: a store to the line that was just loaded asked for it that much earlier.

use std::sync::atomic::{AtomicU32, Ordering, Ordering::Relaxed};

use flashlock_locks::event::Event;
use flashlock_locks::machine::{ConstWord, Deadline, Handle, Local, Machine, Patience, Tunables, Unparked};
use flashlock_locks::node::Node;

use crate::arena::{Arena, NODES};
use crate::kernel::Kernel;
use crate::memory::{Access, Source};
use crate::simulation::{suspend, with};
use crate::spin;
use crate::thread::{State, Use};
use crate::{Ps, ps};

/// The simulated computer.
pub struct Sim;

/// A word of simulated memory. It is atomic for the host's sake alone: one host thread has all threads of a simulation.
#[derive(Debug)]
#[repr(transparent)]
pub struct Word(AtomicU32);

impl Word {
    pub(crate) fn address(&self) -> *const u32 {
        self.0.as_ptr()
    }

    /// What it holds, at no cost: for those who look from outside.
    pub fn peek(&self) -> u32 {
        self.0.load(Relaxed)
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
}

/// The acting thread does something to the word at this address: `act` is what. Outside of simulated memory, and outside of
/// simulated threads, it takes no time.
fn access<T>(address: *const u32, kind: Access, act: impl FnOnce() -> T) -> T {
    match with(|kernel| kernel.current.and_then(|_| kernel.arena.line(address))) {
        Some(line) => access_line(line, kind, 1.0, act),
        None => act(),
    }
}

/// The same for a line. Of the time that a load takes, others like it pass so many times as much at once.
pub(crate) fn access_line<T>(line: u32, kind: Access, overlap: f64, act: impl FnOnce() -> T) -> T {
    if kind == Access::Rmw {
        drain();
    }
    let (hit, must_wait) = with(|kernel| {
        let core = kernel.my_core();
        let Some(cost) = kernel.memory.hit(core, line, kind) else { return (false, false) };
        if kind == Access::Store {
            kernel.buffer(line, kernel.now);
        }
        (true, kernel.advance(shared(cost, overlap), Use::Compute))
    });
    // What a hit does, it does at once: the time it takes passes afterwards, and nobody has acted since.
    if hit {
        let result = act();
        finish(line, kind, must_wait);
        return result;
    }
    match kind {
        Access::Store => store_elsewhere(line, act),
        Access::Load | Access::Rmw => fetch(line, kind, overlap, act),
    }
}

/// A time of which a part passes together with others like it.
fn shared(time: Ps, overlap: f64) -> Ps {
    if overlap == 1.0 { time } else { (time as f64 / overlap) as Ps }
}

/// Tells those who poll the line, and lets others act if they must.
fn finish(line: u32, kind: Access, must_wait: bool) {
    if kind != Access::Load {
        with(|kernel| kernel.changed(line));
    }
    if must_wait {
        suspend();
    }
}

/// A store whose line is not ours yet goes into the store buffer.
fn store_elsewhere<T>(line: u32, act: impl FnOnce() -> T) -> T {
    let must_wait = with(|kernel| {
        let (now, core) = (kernel.now, kernel.my_core());
        let travel = kernel.memory.travel(&kernel.shape, core, line, Access::Store);
        let served = kernel.memory.serve(&kernel.shape, now + travel, core, line, Access::Store);
        let window = ps(kernel.machine.latency_ns.reorder);
        let (missed, since) = kernel.me().last_miss;
        let ahead = if missed == line { (now - since).min(window) } else { 0 };
        kernel.buffer(line, served.done.saturating_sub(ahead).max(now));
        kernel.advance(ps(kernel.machine.latency_ns.store), Use::Compute)
    });
    let result = act();
    finish(line, Access::Store, must_wait);
    let full = with(|kernel| kernel.buffer_full());
    if let Some(until) = full {
        wait_until(until);
    }
    result
}

/// A load or a read-modify-write of a line that must be fetched.
fn fetch<T>(line: u32, kind: Access, overlap: f64, act: impl FnOnce() -> T) -> T {
    let issued = with(|kernel| {
        let core = kernel.my_core();
        let travel = kernel.memory.travel(&kernel.shape, core, line, kind);
        (kernel.now, kernel.advance(shared(travel, overlap), Use::Local))
    });
    if issued.1 {
        suspend();
    }
    let must_wait = with(|kernel| {
        let (now, core) = (kernel.now, kernel.my_core());
        // The other hardware thread of the core may have brought it.
        if let Some(cost) = kernel.memory.hit(core, line, kind) {
            return kernel.advance(shared(cost, overlap), Use::Compute);
        }
        let served = kernel.memory.serve(&kernel.shape, now, core, line, kind);
        let usage = match served.source {
            Source::Local => Use::Local,
            Source::Remote => Use::Remote,
            Source::Memory => Use::Memory,
        };
        kernel.me().last_miss = (line, issued.0);
        let must_wait = kernel.advance(shared(served.done - now, overlap), usage);
        // Of that time, it waited so long for others.
        let times = &mut kernel.me().times;
        let queued = shared(served.queued, overlap);
        times[usage as usize] -= queued;
        times[Use::Queueing as usize] += queued;
        must_wait
    });
    let result = act();
    finish(line, kind, must_wait);
    result
}

/// The acting thread waits until its stores are seen by all.
fn drain() {
    if let Some(&last) = with(|kernel| kernel.me().stores.back().copied()).as_ref() {
        wait_until(last);
        with(|kernel| kernel.me().stores.clear());
    }
}

fn wait_until(time: Ps) {
    let must_wait = with(|kernel| time > kernel.now && kernel.advance(time - kernel.now, Use::Queueing));
    if must_wait {
        suspend();
    }
}

impl Kernel {
    /// A store of the acting thread is seen by others at `at`, and not before its earlier stores.
    fn buffer(&mut self, line: u32, at: Ps) {
        let now = self.now;
        let stores = &mut self.me().stores;
        while stores.front().is_some_and(|&seen| seen <= now) {
            stores.pop_front();
        }
        let seen = at.max(stores.back().copied().unwrap_or(0));
        if seen > now {
            stores.push_back(seen);
            self.memory.hold(line, seen);
        }
    }

    /// Until when the acting thread's store buffer is full.
    fn buffer_full(&mut self) -> Option<Ps> {
        let most = self.machine.bandwidth.store_buffer as usize;
        let stores = &mut self.me().stores;
        if stores.len() > most { stores.pop_front() } else { None }
    }

    pub(crate) fn deadline(&self, deadline: &Deadline) -> Ps {
        let ns = i128::from(deadline.sec) * 1_000_000_000 + i128::from(deadline.nsec);
        Ps::try_from(ns.max(0) * 1000).unwrap_or(Ps::MAX / 2)
    }

    pub(crate) fn expired(&self, deadline: &Deadline) -> bool {
        self.now >= self.deadline(deadline)
    }
}

/// The acting thread is busy for so long.
pub(crate) fn spend(time: Ps, usage: Use) {
    if with(|kernel| kernel.advance(time, usage)) {
        suspend();
    }
}

/// The acting thread's time, in a system call.
fn system(time: impl FnOnce(&Kernel) -> Ps) {
    let time = with(|kernel| time(kernel));
    spend(time, Use::Scheduling);
}

impl Machine for Sim {
    type Word = Word;

    fn node(handle: Handle) -> &'static Node<Self> {
        with(|kernel| kernel.arena.node(handle))
    }

    fn take_node() -> Handle {
        with(|kernel| {
            if let Some(handle) = kernel.me().nodes.pop() {
                return handle;
            }
            assert!(kernel.nodes_made < NODES, "simulated threads wait with more than {NODES} nodes");
            kernel.nodes_made += 1;
            Arena::handle(kernel.nodes_made - 1)
        })
    }

    fn give_node(handle: Handle) {
        with(|kernel| kernel.me().nodes.push(handle));
    }

    fn spin_until(word: &Word, order: Ordering, patience: Patience, done: impl FnMut(u32) -> bool) -> Option<u32> {
        spin::spin_until(word, order, patience, done)
    }

    fn relax(micros: u32) {
        with(|kernel| {
            let until = kernel.now + Ps::from(micros) * 1_000_000 + kernel.os.slack;
            kernel.sleep(0, Some(until));
        });
        suspend();
    }

    fn pause(steps: u32) {
        let time = with(|kernel| ps(kernel.machine.latency_ns.pause) * Ps::from(steps));
        spend(time, Use::Polling);
    }

    fn park(word: &Word, expected: u32, until: Option<Deadline>) -> Unparked {
        system(|kernel| kernel.os.syscall);
        if flashlock_locks::machine::Word::load(word, Ordering::SeqCst) != expected {
            return Unparked::Woken;
        }
        // Nobody has acted since the word was looked at: a load ends with its time.
        let slept = with(|kernel| {
            if word.peek() != expected {
                return false;
            }
            let until = until.map(|deadline| kernel.deadline(&deadline));
            kernel.sleep(word.address() as usize, until);
            true
        });
        if !slept {
            return Unparked::Woken;
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
        let mut woken = 0;
        while woken < count {
            let found = with(|kernel| {
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

    fn numa_node() -> u32 {
        with(|kernel| {
            let core = kernel.my_core();
            kernel.shape.node(core)
        })
    }

    fn epoch() -> u32 {
        1
    }

    fn micros() -> u32 {
        with(|kernel| (kernel.now / 1_000_000) as u32)
    }

    fn random() -> u32 {
        with(|kernel| {
            let state = &mut kernel.me().random;
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            (*state >> 32) as u32
        })
    }

    fn local(which: Local) -> u32 {
        with(|kernel| kernel.me().locals[which as usize])
    }

    fn set_local(which: Local, value: u32) {
        with(|kernel| kernel.me().locals[which as usize] = value);
    }

    fn tunables() -> &'static Tunables {
        with(|kernel| kernel.tunables)
    }

    fn crowded() -> bool {
        with(spin::crowded)
    }

    fn trace(event: Event) {
        with(|kernel| kernel.counts[event as usize] += 1);
    }
}
