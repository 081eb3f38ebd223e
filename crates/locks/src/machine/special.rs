//! What one kind of lock, or one policy, asks of a machine.
//!
//! | function | for |
//! |---|---|
//! | [`any_node`](Special::any_node) | [semaphores](crate::sem) |
//! | [`poll_until`](Special::poll_until) | `wait=umwait`, `evict=1`, `incremental=2`, servers of `rcl` |
//! | [`poll`](Special::poll), [`steps`](Special::steps) | [`flash`](crate::mutex::flash) |
//! | [`sleep_cost`](Special::sleep_cost), [`transfer_cost`](Special::transfer_cost) | `flash` |
//! | [`is_there`](Special::is_there) | sleepers that get up by themselves: `flash`, ShflLocks |
//! | [`light_fence`](Special::light_fence), [`heavy_fence`](Special::heavy_fence) | [`rcl`](crate::closure::rcl) |
//! | [`priority`](Special::priority) | the policy [`priority`](crate::parts::policy::priority), [`qspin-cna`](crate::mutex::numa::qspin_cna) |
//! | [`distance`](Special::distance) | the policy [`levels`](crate::parts::policy::levels) |

use core::sync::atomic::Ordering::{self, Relaxed, SeqCst};
use core::sync::atomic::fence;

use crate::machine::names::Handle;
use crate::machine::waiting::{Patience, Waiting};
use crate::machine::word::Word as _;

/// How [`Special::poll_until`] polls.
#[derive(Clone, Copy)]
pub enum Manner<'a> {
    /// Between polls the CPU rests until the word's line changes, if it can do that. It rests for at most
    /// [`REST`](crate::machine::polling::REST) at a time, so that `done` is asked now and then.
    Rests,
    /// `done` loads other words, too. After a look that did nothing else, a simulator can wait until one of these words
    /// changes.
    Scans,
    /// `done` publishes that the waiter runs: it is asked at least once in [`REST`](crate::machine::polling::REST)
    /// while the waiter runs. This function publishes that it does not: it is called before the waiter offers its CPU
    /// to others.
    Publishes(&'a dyn Fn()),
}

/// The result of a look at a word, in [`Special::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The poll ends.
    End {
        /// As in [`Look::Again`].
        came: bool,
    },
    /// The poll goes on after this many [steps](crate::machine::Pause::Steps).
    Again {
        /// How many steps.
        pause: u32,
        /// Whether the line came from another CPU for this look: the word, or the word beside it, has changed since the
        /// last look.
        came: bool,
    },
}

/// [`Special::sleep_cost`] (µs) if nothing has been measured.
pub const SLEEP_COST: u32 = 34;

/// The [`Special::priority`] from which a thread has a real-time scheduling policy.
pub const REAL_TIME: i32 = 100;

/// What one kind of lock, or one policy, asks of a machine: [which](self).
pub trait Special: Waiting {
    /// Shows nodes to `look` until it returns true; returns whether it did. The nodes include all that were taken
    /// before anything that the caller has seen. Many are in no queue, or in a queue that does not concern the caller.
    ///
    /// # Safety
    /// That of [`Handle::new`], for each of them.
    unsafe fn any_node(look: impl FnMut(Handle) -> bool) -> bool;

    /// Whether a word of a lock that may have been freed is still in memory that can be read.
    fn is_there(_word: &Self::Word) -> bool {
        true
    }

    /// [`spin_until`](Waiting::spin_until), in this manner.
    fn poll_until(
        word: &Self::Word,
        order: Ordering,
        patience: Patience,
        _how: Manner<'_>,
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
        let ends = |seen| matches!(look(seen, beside.load(Relaxed)), Look::End { .. });
        Self::spin_until(word, Relaxed, Patience::Budget, ends).is_some()
    }

    /// A clock in [steps](crate::machine::Pause::Steps), to measure a few µs. It overflows.
    fn steps() -> u32 {
        Self::micros().wrapping_mul(32)
    }

    /// What a sleep costs (µs): the call that wakes, and the time until the woken thread runs.
    fn sleep_cost() -> u32 {
        SLEEP_COST
    }

    /// What it costs at present to get a line that another CPU has written, this many times, in
    /// [steps](crate::machine::Pause::Steps).
    fn transfer_cost(times: u32) -> u32 {
        times
    }

    /// The light half of a barrier in two halves. One thread of the process stores, passes the light half, and looks.
    /// Another stores, passes the [heavy half](Special::heavy_fence), and looks. Then at least one of them sees what
    /// the other has stored. If the system has no such barrier, both halves are full fences.
    fn light_fence() {
        fence(SeqCst);
    }

    /// The other half: all other threads of the process pass a full barrier before it returns. As a rule this is a
    /// system call.
    fn heavy_fence() {
        fence(SeqCst);
    }

    /// How much the calling thread is preferred to others: 0 is ordinary, more is preferred, [`REAL_TIME`] and more has
    /// a real-time scheduling policy. Asked before it waits.
    fn priority() -> i32 {
        0
    }

    /// How far one NUMA node is from another. A larger value is farther; the value from a node to itself is the
    /// smallest.
    fn distance(a: u32, b: u32) -> u32 {
        u32::from(a != b)
    }
}
