//! # The machine: what a lock asks of a computer
//!
//! The algorithms in this crate are written once, against the traits in this file, and run in three places:
//! natively (`flashlock-native`), under the model checkers loom and shuttle (`flashlock-model`), and on a simulated
//! computer. Nothing here allocates, and an algorithm compiles to the same instructions as one written by hand against
//! `AtomicU32`.
//!
//! All shared state is made of 32-bit words. A queue node is named by a [`Handle`] (an index into a type-stable pool,
//! see [`Node`]), not by a pointer, so that a lock's whole state is four to twelve bytes, and so that a stale handle
//! can at worst name a node that now serves somebody else, never freed memory.

use core::num::NonZeroU32;
use core::sync::atomic::Ordering;

pub use crate::catalogue::Tunables;
use crate::event::Event;
use crate::node::Node;
use crate::side::{Block, Name};
use crate::wait::left::LeftBehind;

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
    /// [`Word::compare_exchange`] of a word that other processes may use at the same time, unknown to the machine.
    fn compare_exchange_between_processes(
        &self,
        current: u32,
        new: u32,
        ok: Ordering,
        err: Ordering,
    ) -> Result<u32, u32> {
        self.compare_exchange(current, new, ok, err)
    }
    /// [`Word::swap`] by a lock's holder, who frees it: writes `free`. Others may at most have marked the word as one
    /// that they sleep on. Whether it held such a mark, which is any value above `held`.
    fn hand_back(&self, free: u32, held: u32, order: Ordering) -> bool {
        self.swap(free, order) > held
    }
}

/// Words that can be made in a `static` (all but loom's).
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
    /// For the machine's spin budget (about one context-switch round trip, measured), and less where another task is
    /// seen to want this CPU.
    Budget,
    /// The same, on a word that the holder uses, too: each poll costs him. Waits before the first poll as long as
    /// lately paid.
    Contend,
    /// Until the deadline has passed.
    Until(Deadline),
}

/// What a look at a word says, in [`Machine::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The poll ends.
    End {
        /// As below.
        came: bool,
    },
    /// It goes on after so many [steps](Machine::pause).
    Again {
        /// The steps.
        pause: u32,
        /// Whether the line came from another CPU for this look: the word, or something beside it, has changed since
        /// the one before.
        came: bool,
    },
}

/// [`Machine::sleep_cost`] (µs) where nothing has been measured.
pub const SLEEP_COST: u32 = 34;

/// Why [`Machine::park`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unparked {
    /// Woken, or the word had changed already, or for no reason at all. The caller looks at the word again.
    Woken,
    /// The deadline has passed.
    TimedOut,
    /// The word is not there: its memory is gone. Who had slept there before is never told.
    Gone,
}

/// A word that each thread keeps between its lock operations; 0 at first. A hint: a signal handler that uses locks may
/// change it at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// CNA: hand-overs until the thread gives the lock to another NUMA node.
    HandOvers,
    /// CNA: the NUMA node that the thread was on when it asked, plus one; 0: it never did.
    Node,
    /// CNA: how many contended acquisitions may still rely on that.
    NodeUses,
    /// `flat-combining`: the record that the thread used last, of whichever lock.
    Record,
    /// `flash`: the lock whose sections the thread times.
    Timed,
    /// `flash`: when the section that it times began ([steps](Machine::steps)).
    TimedSince,
    /// `flash`: what a section of that lock takes after it was another CPU's (steps); 0 while not known.
    MoveCost,
    /// `flash`: how many looks are left until it watches how soon that lock is taken again.
    Watch,
    /// `flash`: how many there were between the last two.
    WatchEvery,
}

impl Local {
    /// How many words there are.
    pub const COUNT: usize = 9;
}

/// How much earlier than now (µs) a time is that says of a waiter that it does not run.
pub const LONG_AGO: u32 = 1 << 30;

/// The [`Machine::epoch`] of a process that was not forked off another one in which somebody had asked for it.
pub const FIRST_EPOCH: u32 = 1;

/// Into how many parts a machine's CPUs are divided by [`Machine::reader_part`], unless there are more NUMA nodes: a
/// writer looks at each of them.
pub const READER_PARTS: u32 = 8;

/// The part of the CPUs of group `group` of the `groups` of the NUMA node `node`, of `nodes`.
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

    /// Gives a node back; no queue may name it any more. The giver need not be the taker: a node that its thread left
    /// behind in a queue is given back by whoever removes it.
    fn give_node(handle: Handle);

    /// The block that a name names. Blocks are never unmapped.
    fn block(name: Name) -> &'static Block<Self>;

    /// A block for a lock to keep state in that has no room elsewhere. Safe to call from a signal handler, as
    /// [`take_node`](Machine::take_node).
    fn take_block() -> Name;

    /// Gives a block back, which nobody uses any more, nor names.
    fn give_block(name: Name);

    /// Shows nodes until `look` says so; whether it did. Among them are all that were taken before anything that the
    /// caller has seen; many are in no queue, or in one that is none of the caller's business.
    fn any_node(look: impl FnMut(Handle) -> bool) -> bool;

    /// Polls `word` until `done` says so of its value, which is returned; `None` when the patience is spent. `done` may
    /// do useful work between polls and may acquire something. This is the only way in which algorithms wait actively,
    /// so that a simulator can skip the time and a model checker can switch threads.
    fn spin_until(word: &Self::Word, order: Ordering, patience: Patience, done: impl FnMut(u32) -> bool)
    -> Option<u32>;

    /// [`spin_until`](Machine::spin_until) of a waiter that others are to see running: whenever it has looked it writes
    /// the time ([`micros`](Machine::micros)) into `since`, at least once in [`REST`](crate::wait::polling::REST) while
    /// it runs; and a time [long ago](LONG_AGO) before it offers its CPU to others. Relaxed: a hint.
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
    /// that; not for more than [`REST`](crate::wait::polling::REST) at a time, so that `done` is asked now and then.
    fn rest_until(
        word: &Self::Word,
        order: Ordering,
        patience: Patience,
        done: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        Self::spin_until(word, order, patience, done)
    }

    /// [`spin_until`](Machine::spin_until), where `done` loads many other words, and does nothing else as long as it
    /// says no. So a simulator can wait until one of these changes.
    fn scan_until(
        word: &Self::Word,
        order: Ordering,
        patience: Patience,
        done: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        Self::spin_until(word, order, patience, done)
    }

    /// Polls `word`, and `beside`, which lies on the same line, for `micros` microseconds at most, with the pauses that
    /// `look` asks for. Whether `look` ended it. Relaxed.
    ///
    /// For a lock that decides itself how often it looks at a word that its holder uses, too; all others wait by
    /// [`spin_until`](Machine::spin_until). A machine that measures what a look costs does so here.
    fn poll(word: &Self::Word, beside: &Self::Word, micros: u32, mut look: impl FnMut(u32, u32) -> Look) -> bool {
        let _ = micros;
        let ends = |seen| matches!(look(seen, beside.load(Ordering::Relaxed)), Look::End { .. });
        Self::spin_until(word, Ordering::Relaxed, Patience::Budget, ends).is_some()
    }

    /// The light half of a barrier in two halves. Of two threads of the process of which one stores, passes the light
    /// half and looks, and the other one stores, passes the [heavy half](Machine::heavy_fence) and looks, one at least
    /// sees what the other one has stored. Where the system has no such barrier, both halves are full fences.
    fn light_fence();

    /// The other half: all other threads of the process pass a full barrier before it returns, by a system call as a
    /// rule.
    fn heavy_fence();

    /// Lets another thread run on this CPU, if one wants to; otherwise returns at once. No more is promised: a
    /// real-time thread, for one, makes way for its equals only.
    fn offer() {
        Self::relax(0);
    }

    /// What it costs to sleep (µs): the call that wakes, and the time until the thread that it wakes runs.
    fn sleep_cost() -> u32 {
        SLEEP_COST
    }

    /// What it costs now to get a line that another CPU has written, so many times, in [steps](Machine::pause).
    fn transfer_cost(times: u32) -> u32 {
        times
    }

    /// Whether there is memory where a word was, in a lock of which nobody says that it is still there.
    fn is_there(_word: &Self::Word) -> bool {
        true
    }

    /// Lets other threads run: a short, polite break of up to `micros` microseconds.
    fn relax(micros: u32);

    /// Polls nothing for so many polite steps of the CPU (a few to some forty ns each), while others run.
    fn pause(steps: u32);

    /// A clock in such steps, for what takes a few µs. It overflows.
    fn steps() -> u32 {
        Self::micros().wrapping_mul(32)
    }

    /// Sleeps while `word` holds `expected`, until a [`Machine::wake`] of the word or the deadline.
    fn park(word: &Self::Word, expected: u32, until: Option<Deadline>) -> Unparked;

    /// Wakes up to `count` sleepers of the word at `address`; how many slept there. The word itself is not accessed: it
    /// may have been freed, then the call does nothing or wakes somebody spuriously.
    fn wake(address: *const Self::Word, count: u32) -> u32;

    /// Wakes the thread that waits with this node, and says whether it slept. A machine whose threads may also sleep
    /// elsewhere (at a cancellation point) wakes them there.
    fn unpark(node: &Node<Self>) -> u32 {
        Self::wake(&node.state, 1)
    }

    /// [`Machine::unpark`], but the thread, if it sleeps, goes on sleeping: on the word at `address`, until a
    /// [`Machine::wake`] of that. The word is not accessed. Who does not sleep finds the state changed.
    fn requeue(node: &Node<Self>, address: *const Self::Word);

    /// Whether the deadline has passed.
    fn expired(deadline: &Deadline) -> bool;

    /// The deadline so many microseconds from now, or `other` if that comes first.
    fn sooner(micros: u32, other: Option<Deadline>) -> Deadline;

    /// The NUMA node that the thread runs on.
    fn numa_node() -> u32;

    /// The last-level cache that the thread's CPU uses, by any number that no other one has. For a policy that wants to
    /// know; as a rule there is one for each NUMA node.
    fn llc() -> u32 {
        Self::numa_node()
    }

    /// How far one NUMA node is from another: the more, the farther; the least from a node to itself.
    fn distance(a: u32, b: u32) -> u32 {
        u32::from(a != b)
    }

    /// Which of the groups of CPUs the thread runs in. At depth 0 they are those of its NUMA node: CPUs that share a
    /// last-level cache, if a NUMA node has several, else a core's. At depth 1 those of that group: a core's, if the
    /// first are not. From 0, and 0 where the machine tells of none.
    fn near_group(_depth: u32) -> u32 {
        0
    }

    /// Among which CPUs the thread runs, for locks that count readers apart: a number below [`READER_PARTS`], or that
    /// of the NUMA node if there are more of these. Those of a part are of one NUMA node, and near each other. Cheap:
    /// it is asked at each acquisition for reading, and release.
    fn reader_part() -> u32 {
        Self::numa_node()
    }

    /// Changes in a forked child: a node with another epoch belongs to a thread that does not exist here. In most
    /// processes it is [`FIRST_EPOCH`].
    fn epoch() -> u32;

    /// Microseconds of a clock that never jumps, wrapping.
    fn micros() -> u32;

    /// A pseudo-random number.
    fn random() -> u32;

    /// What the calling thread keeps there.
    fn local(which: Local) -> u32;

    /// Keeps it.
    fn set_local(which: Local, value: u32);

    /// What the user tuned.
    fn tunables() -> &'static Tunables;

    /// How many nodes were left behind in the queue of the lock with this word: a count in a table of the machine's,
    /// which locks may share that are far apart. Nothing is read at the address.
    fn left_behind(lock: *const Self::Word) -> &'static LeftBehind<Self>;

    /// The word on which a writer sleeps that waits for the readers of a lock to go, and which they change when they
    /// have gone: one of a table of the machine's, by an address that stands for the lock. Locks may share one. It is
    /// no lock's memory: who has left a lock may access it.
    fn drain_word(lock: *const Self::Word) -> &'static Self::Word;

    /// Whether one more readers-writer lock may count its readers apart, which takes memory that a program does not
    /// give back if it frees the lock without destroying it. If so, [`end_distributed`](Machine::end_distributed) is to be called
    /// when it does so no longer.
    fn admit_distributed() -> bool {
        true
    }

    /// A lock that was admitted counts its readers apart no longer, or never did.
    fn end_distributed() {}

    /// Whether the calling thread is one that should wait as little as may be, whatever others gain by its waiting: for
    /// most machines, never.
    fn urgent() -> bool {
        false
    }

    /// How much the calling thread is preferred to others: 0 is the ordinary, more is preferred. Asked before it waits.
    fn priority() -> i32 {
        i32::from(Self::urgent())
    }

    /// For how long (µs) locks stood still lately, because they were handed to somebody who did not run. One value for
    /// all; a hint.
    fn recent_stall() -> u32 {
        0
    }

    /// Keeps it.
    fn set_recent_stall(_micros: u32) {}

    /// Whether more tasks want CPUs than there are, as far as the machine has seen lately. A hint: nothing depends on
    /// it but who spins and who is woken early.
    fn crowded() -> bool;

    /// On which NUMA node a waiter stands, for [`trace`](Machine::trace) alone; `None` where nobody listens. The look
    /// costs a cache line that its owner polls, which nothing but statistics needs.
    #[inline(always)]
    fn counted_on(waiter: &Node<Self>) -> Option<u32> {
        Some(waiter.numa.load(Ordering::Relaxed))
    }

    /// Tells the machine what happened, for statistics. Compiles to nothing where nobody listens.
    #[inline(always)]
    fn trace(_event: Event) {}

    /// A time stamp for measuring a wait in nanoseconds; 0 where nobody listens.
    #[inline(always)]
    fn stamp() -> u64 {
        0
    }

    /// Tells the machine that a mutex was acquired after waiting since `stamp`.
    #[inline(always)]
    fn waited(_stamp: u64) {}
}

/// A deadline that passed, given back by timed acquisitions: the lock is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;
