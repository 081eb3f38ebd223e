//! # Nodes that were left behind
//!
//! A waiter that gives up goes at once and leaves its node in the queue, for whoever reaches it. Behind a holder that
//! does not release, nobody does: a program that tries again and again, each time with a deadline, would add a node
//! each time. So the nodes left behind in one queue are counted, and when there are [`MAX`], newcomers do not queue:
//! they sleep outside until some were removed, and look for the lock themselves ever more seldom, in case nobody
//! removes any (who is first in the queue may be frozen). A queue so holds at most `MAX` nodes beside one for each
//! thread that waits.
//!
//! The count has no place in the lock, whose bytes are paid for by everybody: it stands in a table of the machine's, by
//! the lock's address ([`of`]). It is written when somebody gives up, and read by whoever queues. Two locks may share a
//! count: then newcomers to the one stay out of its queue, though not of the lock, while very many have given up on the
//! other. A queue that is empty has none of the count: each node is subtracted when it is removed, and who frees a lock
//! has removed all. So memory that was a lock may become another one.

use core::sync::atomic::Ordering::Relaxed;

use crate::event::Event;
use crate::machine::{Deadline, Machine, TimedOut, Word};

/// How many abandoned nodes a queue may hold before newcomers stay outside.
pub const MAX: i32 = 64;
/// At each multiple of so many abandoned nodes a holder goes through those that his releases may not reach for long;
/// always, when newcomers are kept out.
pub const SWEEP_AT: i32 = 16;
/// The first break between two looks for the lock from outside, in µs; the next is twice as long, and so on without
/// end.
const BREAK: u32 = 1_000;

/// How many abandoned nodes a queue holds; all-zero is none. Who is kept out sleeps on it. Only machines make them. All
/// accesses are Relaxed: it is a count, and orders nothing.
#[repr(transparent)]
pub struct LeftBehind<M: Machine>(pub M::Word);

/// The count for the queue that ends at this word of a lock, which is its address and nothing more.
#[inline]
pub fn of<M: Machine>(lock: &M::Word) -> &'static LeftBehind<M> {
    M::left_behind(lock)
}

impl<M: Machine> LeftBehind<M> {
    /// None.
    pub fn new() -> Self {
        Self(M::Word::new(0))
    }

    /// A waiter is about to leave its node behind; said before it does, so that the count is never too low.
    pub fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// A node was removed, or its waiter did not leave after all. Lets those in who were kept out, if there is room
    /// now.
    pub fn remove(&self) {
        if self.0.fetch_add(u32::MAX, Relaxed) == MAX as u32 {
            M::wake(&raw const self.0, u32::MAX);
        }
    }

    /// Keeps a newcomer out of a queue that is full of abandoned nodes, who meanwhile tries to `take` the lock. `None`
    /// when there is room in the queue.
    #[inline]
    pub fn keep_out(&self, until: Option<Deadline>, take: impl FnMut() -> bool) -> Option<Result<(), TimedOut>> {
        if self.is_full() { self.wait_outside(until, take) } else { None }
    }

    /// A forked child forgets the queue, whose threads do not exist there, and all nodes in it.
    pub fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// How many there are. Signed: a forked child that has forgotten too many may remove more than it knows of.
    #[inline]
    pub fn count(&self) -> i32 {
        self.0.load(Relaxed) as i32
    }

    /// Whether a holder should look for abandoned nodes now ([`SWEEP_AT`]).
    #[inline]
    pub fn wants_sweep(&self) -> bool {
        let left = self.count();
        left >= SWEEP_AT && (left % SWEEP_AT == 0 || left >= MAX)
    }

    fn is_full(&self) -> bool {
        is_full(self.0.load(Relaxed))
    }

    #[cold]
    fn wait_outside(&self, until: Option<Deadline>, mut take: impl FnMut() -> bool) -> Option<Result<(), TimedOut>> {
        let mut pause = BREAK;
        loop {
            let seen = self.0.load(Relaxed);
            if !is_full(seen) {
                return None;
            }
            if take() {
                return Some(Ok(()));
            }
            if until.is_some_and(|deadline| M::expired(&deadline)) {
                return Some(Err(TimedOut));
            }
            M::trace(Event::Park);
            M::park(&self.0, seen, Some(M::sooner(pause, until)));
            pause = pause.saturating_mul(2);
        }
    }
}

/// Whether that many abandoned nodes keep newcomers out. Signed: as [`LeftBehind::count`].
fn is_full(count: u32) -> bool {
    count as i32 >= MAX
}

impl<M: Machine> Default for LeftBehind<M> {
    fn default() -> Self {
        Self::new()
    }
}
