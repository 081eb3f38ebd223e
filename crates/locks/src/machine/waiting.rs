//! Polling and sleeping.

use core::sync::atomic::Ordering;

use crate::machine::clock::{Deadline, Time};
use crate::machine::memory::Memory;
use crate::machine::node::Node;
use crate::machine::word::Word as _;

/// How long [`Waiting::spin_until`] may poll.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    /// Until the condition holds.
    Forever,
    /// For the machine's spin budget (about one context-switch round trip, measured). Less if another task is seen to
    /// want this CPU.
    Budget,
    /// The same, on a word that the holder uses, too: each poll costs the holder time. Before the first poll, it waits
    /// for as long as has lately paid off.
    Contend,
    /// Until the deadline has passed.
    Until(Deadline),
}

/// The result of a look at a word, in [`Waiting::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The poll ends.
    End {
        /// As in [`Look::Again`].
        came: bool,
    },
    /// The poll goes on after this many [steps](Waiting::pause).
    Again {
        /// How many steps.
        pause: u32,
        /// Whether the line came from another CPU for this look: the word, or the word beside it, has changed since the
        /// last look.
        came: bool,
    },
}

/// Why [`Waiting::park`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unparked {
    /// Woken, interrupted by a signal, or for no reason at all. The caller looks at the word again.
    Woken,
    /// The word had changed already. The caller did not sleep.
    Changed,
    /// The deadline has passed.
    TimedOut,
    /// The word does not exist: its memory has been freed. A thread that went to sleep there before is never notified.
    Gone,
}

/// A waiter that publishes a time this long (µs) ago does not run.
pub const LONG_AGO: u32 = 1 << 30;

/// [`Waiting::sleep_cost`] (µs) if nothing has been measured.
pub const SLEEP_COST: u32 = 34;

/// How a thread waits on a machine, and how others wake it.
pub trait Waiting: Memory + Time {
    /// Polls `word` until `done` accepts its value, and returns that; `None` when the patience is spent. `done` may do
    /// useful work between polls, and may acquire something. Algorithms poll only by this function. So a simulator can
    /// skip the time, and a model checker can switch threads.
    fn spin_until(word: &Self::Word, order: Ordering, patience: Patience, done: impl FnMut(u32) -> bool)
    -> Option<u32>;

    /// [`spin_until`](Waiting::spin_until) for a waiter that publishes that it runs. Whenever it has looked, it writes
    /// the time ([`micros`](crate::machine::Time::micros)) into `since`, at least once in
    /// [`REST`](crate::machine::polling::REST) while it runs. Before it offers its CPU to others it writes a time [long
    /// ago](LONG_AGO). Relaxed: a hint.
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

    /// [`spin_until`](Waiting::spin_until), but between polls the CPU rests until the word's line changes, if it can do
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

    /// [`spin_until`](Waiting::spin_until), for a `done` that loads many other words, and does nothing else as long as
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
    /// [`spin_until`](Waiting::spin_until). A machine that measures what a look costs does so here.
    fn poll(word: &Self::Word, beside: &Self::Word, micros: u32, mut look: impl FnMut(u32, u32) -> Look) -> bool {
        let _ = micros;
        let ends = |seen| matches!(look(seen, beside.load(Ordering::Relaxed)), Look::End { .. });
        Self::spin_until(word, Ordering::Relaxed, Patience::Budget, ends).is_some()
    }

    /// Polls nothing for this many polite steps of the CPU (a few to some forty ns each), while others run.
    fn pause(steps: u32) {
        for _ in 0..steps {
            core::hint::spin_loop();
        }
    }

    /// Lets other threads run: a short, polite break of up to `micros` microseconds.
    fn relax(micros: u32);

    /// Lets another thread run on this CPU, if one wants to; otherwise returns at once. It promises no more: a
    /// real-time thread, for example, lets only threads of its own priority run.
    fn offer() {
        Self::relax(0);
    }

    /// Whether more tasks want CPUs than there are, as far as the machine has seen lately. A hint: it decides only
    /// which waiters spin, and which are woken early.
    fn crowded() -> bool {
        false
    }

    /// Sleeps while `word` holds `expected`, until a [`Waiting::wake`] of the word or the deadline.
    fn park(word: &Self::Word, expected: u32, until: Option<Deadline>) -> Unparked;

    /// Wakes up to `count` sleepers of the word at `address`; returns how many slept there. The word itself is not
    /// accessed. If it has been freed, the call does nothing, or wakes a thread spuriously.
    fn wake(address: *const Self::Word, count: u32) -> u32;

    /// Wakes the thread that waits with this node, and returns 0 if it did not sleep. A machine whose threads may
    /// also sleep elsewhere (at a cancellation point) wakes them there.
    fn unpark(node: &Node<Self>) -> u32 {
        Self::wake(&node.state, 1)
    }

    /// [`Waiting::unpark`], but a sleeping thread goes on sleeping: on the word at `address`, until a [`Waiting::wake`]
    /// of that word. The word is not accessed. A waiter that is not asleep sees the new state.
    fn requeue(node: &Node<Self>, address: *const Self::Word);

    /// What a sleep costs (µs): the call that wakes, and the time until the woken thread runs.
    fn sleep_cost() -> u32 {
        SLEEP_COST
    }

    /// What it costs at present to get a line that another CPU has written, this many times, in
    /// [steps](Waiting::pause).
    fn transfer_cost(times: u32) -> u32 {
        times
    }

    /// How long (µs) locks stood still lately because they were handed to a thread that did not run. One value for all
    /// locks; a hint.
    fn recent_stall() -> u32 {
        0
    }

    /// Sets it.
    fn set_recent_stall(_micros: u32) {}
}
