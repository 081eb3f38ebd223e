//! Polling and sleeping.

use core::sync::atomic::Ordering;

use crate::machine::clock::{Deadline, Time};
use crate::machine::node::{Memory, Node};

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

/// A pause between polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// This many polite steps of the CPU, a few to some forty ns each. Other threads of the core run meanwhile.
    Steps(u32),
    /// Another thread runs on this CPU, if one wants to; otherwise the pause ends at once. No more is promised: a
    /// real-time thread, for example, lets only threads of its own priority run.
    Offer,
    /// A nap: a sleep of up to this many microseconds, which nothing ends early.
    Nap(u32),
}

/// Why [`Waiting::park`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unparked {
    /// Woken, or for no reason at all. The caller looks at the word again.
    Woken,
    /// A signal handler has run. The caller was not woken, and looks at the word again.
    Interrupted,
    /// The word had changed already. The caller did not sleep.
    Changed,
    /// The deadline has passed.
    TimedOut,
    /// The word does not exist: its memory has been freed. A thread that went to sleep there before is never notified.
    Gone,
}

impl Unparked {
    /// Whether another thread has ended the sleep, as far as one can tell, or there was none.
    pub fn is_by_others(self) -> bool {
        matches!(self, Self::Woken | Self::Changed)
    }

    /// Whether it returned for another reason than that the time was up or the word is gone.
    pub fn is_other(self) -> bool {
        !matches!(self, Self::TimedOut | Self::Gone)
    }
}

/// How a thread waits on a machine, and how others wake it.
pub trait Waiting: Memory + Time {
    /// Polls `word` until `done` accepts its value, and returns that; `None` when the patience is spent. `done` may do
    /// useful work between polls, and may acquire something. Algorithms poll only by this function. So a simulator can
    /// skip the time, and a model checker can switch threads.
    fn spin_until(word: &Self::Word, order: Ordering, patience: Patience, done: impl FnMut(u32) -> bool)
    -> Option<u32>;

    /// Polls nothing for a while, and lets others run.
    fn pause(how: Pause);

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
}
