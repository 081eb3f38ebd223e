//! # The machine: what a lock asks of a computer
//!
//! The algorithms in this crate are written once, against the traits in this file. They run in three places: natively
//! (`flashlock-native`), under the model checkers loom and shuttle (`flashlock-model`), and on a simulated computer.
//! Nothing here allocates. An algorithm compiles to the same instructions as one written by hand against `AtomicU32`.
//!
//! All shared state is made of 32-bit words. A [`Handle`], not a pointer, names a queue node: an index into a
//! type-stable pool, see [`Node`]. So a lock's whole state is four to twelve bytes. A stale handle names, at worst, a
//! node that another thread uses now, never freed memory.

#[cfg(test)]
pub(crate) mod bench;
pub mod block;
pub mod event;
pub mod node;
pub mod options;
pub mod order;
pub mod polling;

use core::num::NonZeroU32;
use core::sync::atomic::Ordering;

use block::{Block, Name};
use event::Event;
use node::Node;
pub use options::Tunables;

/// A 32-bit atomic word. The operations are those of `AtomicU32`, with its orderings.
pub trait Word: Sized + 'static {
    /// A word holding `value`.
    fn new(value: u32) -> Self;
    /// Reads the word.
    fn load(&self, order: Ordering) -> u32;
    /// Writes the word.
    fn store(&self, value: u32, order: Ordering);
    /// Writes the word and returns what it held.
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// `current -> new`; the error is what the word holds instead. Never fails spuriously.
    fn compare_exchange(&self, current: u32, new: u32, ok: Ordering, err: Ordering) -> Result<u32, u32>;
    /// Adds (wrapping) and returns what the word held.
    fn fetch_add(&self, value: u32, order: Ordering) -> u32;
    /// Ors and returns what the word held.
    fn fetch_or(&self, value: u32, order: Ordering) -> u32;
    /// Ands and returns what the word held.
    fn fetch_and(&self, value: u32, order: Ordering) -> u32;
    /// [`Word::compare_exchange`] of a word that other processes may use at the same time, without the machine knowing.
    fn compare_exchange_between_processes(
        &self,
        current: u32,
        new: u32,
        ok: Ordering,
        err: Ordering,
    ) -> Result<u32, u32> {
        self.compare_exchange(current, new, ok, err)
    }
    /// [`Word::swap`] by a lock's holder, which frees the lock: writes `free`. Other threads may at most have marked
    /// the word because they sleep on it. Returns whether it held such a mark, which is any value above `held`.
    fn hand_back(&self, free: u32, held: u32, order: Ordering) -> bool {
        self.swap(free, order) > held
    }
}

/// Words that can be made in a `static` (all except loom's).
pub trait ConstWord: Word {
    /// A word holding zero.
    const ZERO: Self;
}

/// Names a queue node. Zero is "no node"; one is [`Handle::RESERVED`], which algorithms use as a sentinel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(NonZeroU32);

impl Handle {
    /// Never names a node: a word may hold it as a sentinel beside "none" (0).
    pub const RESERVED: u32 = 1;
    /// Handles are below this, so that an algorithm may keep up to four flag bits beside one.
    pub const LIMIT: u32 = 1 << 28;

    /// The handle in a word, or `None` for zero and for the sentinel.
    #[inline]
    pub const fn from_word(word: u32) -> Option<Self> {
        match NonZeroU32::new(word) {
            Some(raw) if word != Self::RESERVED => Some(Self(raw)),
            _ => None,
        }
    }

    /// The word that names this node.
    #[inline]
    pub const fn word(self) -> u32 {
        self.0.get()
    }

    /// The node itself.
    #[inline]
    pub fn node<M: Machine>(self) -> &'static Node<M> {
        M::node(self)
    }
}

/// Which clock a [`Deadline`] is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The wall clock, which may be set.
    Realtime,
    /// Time since boot, which never jumps.
    Monotonic,
}

/// An absolute point in time, as POSIX's `abstime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The clock it is read on.
    pub clock: Clock,
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nsec: u32,
}

/// How long [`Machine::spin_until`] may poll.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    /// Until the condition holds.
    Forever,
    /// For the machine's spin budget (about one context-switch round trip, measured). Less if another task is seen to
    /// want this CPU.
    Budget,
    /// The same, on a word that the holder uses, too: each poll costs the holder time. Waits before the first poll as
    /// long as has paid lately.
    Contend,
    /// Until the deadline has passed.
    Until(Deadline),
}

/// The result of a look at a word, in [`Machine::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The poll ends.
    End {
        /// As in [`Look::Again`].
        came: bool,
    },
    /// The poll goes on after this many [steps](Machine::pause).
    Again {
        /// How many steps.
        pause: u32,
        /// Whether the line came from another CPU for this look: the word, or the word beside it, has changed since the
        /// last look.
        came: bool,
    },
}

/// [`Machine::sleep_cost`] (µs) if nothing has been measured.
pub const SLEEP_COST: u32 = 34;

/// Why [`Machine::park`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unparked {
    /// Woken, or the word had changed already, or no reason at all. The caller looks at the word again.
    Woken,
    /// The deadline has passed.
    TimedOut,
    /// The word does not exist: its memory has been freed. A thread that went to sleep there before is never notified.
    Gone,
}

/// A word that each thread keeps between its lock operations; 0 at first. A hint: a signal handler that uses locks may
/// change it at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// CNA: hand-offs until the thread gives the lock to another NUMA node.
    HandOvers,
    /// CNA: the NUMA node that the thread was on when it asked, plus one; 0: it has not asked.
    Node,
    /// CNA: how many contended acquisitions may still rely on that answer.
    NodeUses,
    /// `flat-combining`: the record that the thread used last, of any lock.
    Record,
    /// `flash`: the lock whose sections the thread times.
    Timed,
    /// `flash`: when the section began that the thread times ([steps](Machine::steps)).
    TimedSince,
    /// `flash`: how long a section of that lock takes after the lock was on another CPU (steps); 0 while this is not
    /// known.
    MoveCost,
    /// `flash`: how many looks are left until the thread watches how soon that lock is taken again.
    Watch,
    /// `flash`: how many looks there were between the last two such times.
    WatchEvery,
}

impl Local {
    /// How many words there are.
    pub const COUNT: usize = 9;
}

/// What a word beside a lock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// How many nodes were [left behind](crate::parts::wait::left) in the lock's queue.
    LeftBehind,
    /// On it a writer sleeps while it waits for readers to leave the lock. Readers that leave change it. It is not in
    /// the lock's memory, so a thread that has left the lock may access it.
    Drain,
}

/// A waiter that publishes a time this long (µs) ago does not run.
pub const LONG_AGO: u32 = 1 << 30;

/// The [`Machine::epoch`] of a process that was not forked, or was forked off a process in which no thread had asked
/// for its epoch.
pub const FIRST_EPOCH: u32 = 1;

/// How many parts [`Machine::reader_part`] divides a machine's CPUs into, unless there are more NUMA nodes. A writer
/// looks at each of them.
pub const READER_PARTS: u32 = 8;

/// The part for the CPUs of group `group` (of `groups`) of the NUMA node `node` (of `nodes`).
pub const fn reader_part_of((node, nodes): (u32, u32), (group, groups): (u32, u32)) -> u32 {
    let each = if nodes < READER_PARTS { READER_PARTS / nodes } else { 1 };
    node * each + if groups > each { group * each / groups } else { group }
}

/// A computer as the locks see it. All functions act for the calling thread.
pub trait Machine: Sized + 'static {
    /// The machine's atomic word.
    type Word: Word;

    /// The node that a handle names. Nodes are never unmapped.
    fn node(handle: Handle) -> &'static Node<Self>;

    /// A node for the calling thread to wait with. Safe to call from a signal handler that interrupted any function of
    /// this trait.
    fn take_node() -> Handle;

    /// Gives a node back. No queue may name it any more. The giver may be another thread than the taker: a node that
    /// its thread left behind in a queue is given back by the thread that removes it.
    fn give_node(handle: Handle);

    /// The block that a name names. Blocks are never unmapped.
    fn block(name: Name) -> &'static Block<Self>;

    /// A block for state for which a lock has no room. Safe to call from a signal handler, as
    /// [`take_node`](Machine::take_node).
    fn take_block() -> Name;

    /// Gives a block back. No thread uses or names it any more.
    fn give_block(name: Name);

    /// Shows nodes to `look` until it returns true; returns whether it did. The nodes include all that were taken
    /// before anything that the caller has seen. Many are in no queue, or in a queue that does not concern the caller.
    fn any_node(look: impl FnMut(Handle) -> bool) -> bool;

    /// Polls `word` until `done` accepts its value, and returns that; `None` when the patience is spent. `done` may do
    /// useful work between polls, and may acquire something. Algorithms wait actively only by this function. So a
    /// simulator can skip the time, and a model checker can switch threads.
    fn spin_until(word: &Self::Word, order: Ordering, patience: Patience, done: impl FnMut(u32) -> bool)
    -> Option<u32>;

    /// [`spin_until`](Machine::spin_until) for a waiter that publishes that it runs. Whenever it has looked, it writes
    /// the time ([`micros`](Machine::micros)) into `since`, at least once in [`REST`](crate::machine::polling::REST)
    /// while it runs. Before it offers its CPU to others it writes a time [long ago](LONG_AGO). Relaxed: a hint.
    fn spin_published(
        word: &Self::Word,
        since: &Self::Word,
        order: Ordering,
        patience: Patience,
        mut done: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        Self::spin_until(word, order, patience, |seen| {
            let done = done(seen);
            if !done {
                since.store(Self::micros(), Ordering::Relaxed);
            }
            done
        })
    }

    /// [`spin_until`](Machine::spin_until), but between polls the CPU rests until the word's line changes, if it can do
    /// that. It rests for at most [`REST`](crate::machine::polling::REST) at a time, so that `done` is asked now and
    /// then.
    fn rest_until(
        word: &Self::Word,
        order: Ordering,
        patience: Patience,
        done: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        Self::spin_until(word, order, patience, done)
    }

    /// [`spin_until`](Machine::spin_until), for a `done` that loads many other words, and does nothing else as long as
    /// it returns false. So a simulator can wait until one of these words changes.
    fn scan_until(
        word: &Self::Word,
        order: Ordering,
        patience: Patience,
        done: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        Self::spin_until(word, order, patience, done)
    }

    /// Polls `word`, and `beside`, which lies on the same line, for at most `micros` microseconds, with the pauses that
    /// `look` asks for. Returns whether `look` ended it. Relaxed.
    ///
    /// For a lock that decides itself how often it looks at a word that its holder uses, too. All other locks wait by
    /// [`spin_until`](Machine::spin_until). A machine that measures what a look costs does so here.
    fn poll(word: &Self::Word, beside: &Self::Word, micros: u32, mut look: impl FnMut(u32, u32) -> Look) -> bool {
        let _ = micros;
        let ends = |seen| matches!(look(seen, beside.load(Ordering::Relaxed)), Look::End { .. });
        Self::spin_until(word, Ordering::Relaxed, Patience::Budget, ends).is_some()
    }

    /// The light half of a barrier in two halves. One thread of the process stores, passes the light half, and looks.
    /// Another stores, passes the [heavy half](Machine::heavy_fence), and looks. Then at least one of them sees what
    /// the other has stored. If the system has no such barrier, both halves are full fences.
    fn light_fence();

    /// The other half: all other threads of the process pass a full barrier before it returns. As a rule this is a
    /// system call.
    fn heavy_fence();

    /// Lets another thread run on this CPU, if one wants to; otherwise returns at once. It promises no more: a
    /// real-time thread, for example, lets only threads of its own priority run.
    fn offer() {
        Self::relax(0);
    }

    /// What a sleep costs (µs): the call that wakes, and the time until the woken thread runs.
    fn sleep_cost() -> u32 {
        SLEEP_COST
    }

    /// What it costs at present to get a line that another CPU has written, this many times, in
    /// [steps](Machine::pause).
    fn transfer_cost(times: u32) -> u32 {
        times
    }

    /// Whether there still is memory at a word of a lock that may have been freed.
    fn is_there(_word: &Self::Word) -> bool {
        true
    }

    /// Lets other threads run: a short, polite break of up to `micros` microseconds.
    fn relax(micros: u32);

    /// Polls nothing for this many polite steps of the CPU (a few to some forty ns each), while others run.
    fn pause(steps: u32);

    /// A clock in such steps, to measure a few µs. It overflows.
    fn steps() -> u32 {
        Self::micros().wrapping_mul(32)
    }

    /// Sleeps while `word` holds `expected`, until a [`Machine::wake`] of the word or the deadline.
    fn park(word: &Self::Word, expected: u32, until: Option<Deadline>) -> Unparked;

    /// Wakes up to `count` sleepers of the word at `address`; returns how many slept there. The word itself is not
    /// accessed. If it has been freed, the call does nothing, or wakes a thread spuriously.
    fn wake(address: *const Self::Word, count: u32) -> u32;

    /// Wakes the thread that waits with this node, and returns 0 if it did not sleep. A machine whose threads may
    /// also sleep elsewhere (at a cancellation point) wakes them there.
    fn unpark(node: &Node<Self>) -> u32 {
        Self::wake(&node.state, 1)
    }

    /// [`Machine::unpark`], but a sleeping thread goes on sleeping: on the word at `address`, until a [`Machine::wake`]
    /// of that word. The word is not accessed. A waiter that is not asleep sees the new state.
    fn requeue(node: &Node<Self>, address: *const Self::Word);

    /// Whether the deadline has passed.
    fn expired(deadline: &Deadline) -> bool;

    /// The deadline this many microseconds from now, or `other` if that is earlier.
    fn sooner(micros: u32, other: Option<Deadline>) -> Deadline;

    /// The NUMA node that the thread runs on.
    fn numa_node() -> u32;

    /// The last-level cache that the thread's CPU uses, by a number that no other cache has. For policies that need to
    /// know. As a rule there is one for each NUMA node.
    fn llc() -> u32 {
        Self::numa_node()
    }

    /// How far one NUMA node is from another. A larger value is farther; the value from a node to itself is the
    /// smallest.
    fn distance(a: u32, b: u32) -> u32 {
        u32::from(a != b)
    }

    /// The group of CPUs in which the thread runs. At depth 0 a NUMA node is divided into groups of CPUs that share a
    /// last-level cache, if it has several, else into cores. At depth 1 such a group is divided into cores, if its
    /// groups are not cores already. Numbers begin at 0; 0 if the machine knows of no groups.
    fn near_group(_depth: u32) -> u32 {
        0
    }

    /// The part of the machine in which the thread runs, for locks with distributed readers: a number below
    /// [`READER_PARTS`], or the NUMA node's number if there are more nodes than that. The CPUs of a part are on one
    /// NUMA node, and near each other. Cheap: each acquisition for reading and each release asks.
    fn reader_part() -> u32 {
        Self::numa_node()
    }

    /// A number that changes in a forked child: a node with another epoch belongs to a thread that does not exist here.
    /// In most processes it is [`FIRST_EPOCH`].
    fn epoch() -> u32;

    /// Microseconds of a clock that never jumps, wrapping.
    fn micros() -> u32;

    /// A pseudo-random number.
    fn random() -> u32;

    /// The value of one of the calling thread's local words.
    fn local(which: Local) -> u32;

    /// Sets it.
    fn set_local(which: Local, value: u32);

    /// The user's settings.
    fn tunables() -> &'static Tunables;

    /// A word that belongs to the lock at this address, and for which the lock has no room. It is in a table of the
    /// machine, and never unmapped. Two locks may share one, if they are far apart. Nothing is read at the address.
    fn beside(which: Beside, lock: *const Self::Word) -> &'static Self::Word;

    /// Whether one more readers-writer lock may use distributed counters. They take memory that a program does not give
    /// back if it frees the lock without destroying it. If true, the lock must call
    /// [`end_distributed`](Machine::end_distributed) when it no longer uses them.
    fn admit_distributed() -> bool {
        true
    }

    /// A lock that was admitted no longer uses distributed counters, or never did.
    fn end_distributed() {}

    /// Whether the calling thread should wait as little as possible, whatever other threads gain by its waiting. On
    /// most machines, never.
    fn urgent() -> bool {
        false
    }

    /// How much the calling thread is preferred to others: 0 is ordinary, more is preferred. Asked before it waits.
    fn priority() -> i32 {
        i32::from(Self::urgent())
    }

    /// How long (µs) locks stood still lately because they were handed to a thread that did not run. One value for all
    /// locks; a hint.
    fn recent_stall() -> u32 {
        0
    }

    /// Sets it.
    fn set_recent_stall(_micros: u32) {}

    /// Whether more tasks want CPUs than there are, as far as the machine has seen lately. A hint: it decides only
    /// which waiters spin, and which are woken early.
    fn crowded() -> bool;

    /// The NUMA node of a waiter, only for [`trace`](Machine::trace); `None` if no one listens. The look costs a cache
    /// line that the waiter polls, and only statistics need it.
    #[inline(always)]
    fn counted_on(waiter: &Node<Self>) -> Option<u32> {
        Some(waiter.numa.load(Ordering::Relaxed))
    }

    /// Reports what happened, for statistics. Compiles to nothing if no one listens.
    #[inline(always)]
    fn trace(_event: Event) {}

    /// A time stamp for measuring a wait in nanoseconds; 0 if no one listens.
    #[inline(always)]
    fn stamp() -> u64 {
        0
    }

    /// Reports that a mutex was acquired after waiting since `stamp`.
    #[inline(always)]
    fn waited(_stamp: u64) {}
}

/// Returned by timed acquisitions whose deadline has passed: the lock is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;
