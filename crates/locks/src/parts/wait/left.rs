//! # Nodes that were left behind
//!
//! The count of abandoned nodes in a queue, and the place where newcomers wait while there are too many. Any queue
//! whose waiters leave by time-out uses it.
//!
//! **Problem.** A waiter that gives up leaves at once, and its node stays in the queue for the thread that reaches it.
//! Behind a holder that does not release, no thread does. A program that tries again and again, each time with a
//! deadline, would add a node each time. **Idea.** The nodes left behind in one queue are counted. When there are
//! [`MAX`] of them, newcomers do not queue. They sleep outside until some nodes have been removed. Meanwhile they also
//! look for the lock themselves, less and less often, in case no thread removes any (the waiter at the head of the
//! queue may be frozen). So a queue holds at most `MAX` - 1 nodes in addition to one for each thread: each
//! thread that was in the queue, or about to join it, when there were that many, may leave one more behind.
//!
//! The count is not in the lock, because every lock would pay for its bytes. It is in a table of the machine, by the
//! lock's address ([`of`]). It is written when a waiter gives up, and read by each thread that queues. Two locks may
//! share a count. Then newcomers to one lock stay out of its queue, though not of the lock, while very many waiters
//! have given up on the other. An empty queue contributes nothing to the count: each node is subtracted when it is
//! removed, and the thread that frees a lock has removed all of them. So memory that was a lock may become another
//! lock.

use core::sync::atomic::Ordering::Relaxed;

use crate::machine::copied::copied;
use crate::machine::{Beside, Deadline, Machine, TimedOut, Word};
use crate::parts::counted::park;

/// How many abandoned nodes a queue may hold before newcomers stay outside.
pub const MAX: i32 = 64;
/// At each multiple of this many abandoned nodes, a holder sweeps those that its releases may not reach for long. When
/// newcomers are kept out, it always does.
pub const SWEEP_AT: i32 = 16;
/// The first break between two looks for the lock from outside, in µs. Each break is twice as long as the one before,
/// without a limit.
const BREAK: u32 = 1_000;

/// How many abandoned nodes a queue holds, by the word that counts them: 0 is none. Threads that are kept out sleep on
/// it. All accesses are Relaxed: it is a count, and orders nothing.
pub struct LeftBehind<M: Machine>(pub &'static M::Word);

copied!(LeftBehind<M>);

/// The count for the queue that ends at this word of a lock. Only the word's address is used.
#[inline]
pub fn of<M: Machine>(lock: &M::Word) -> LeftBehind<M> {
    LeftBehind(M::beside(Beside::LeftBehind, lock))
}

impl<M: Machine> LeftBehind<M> {
    /// A waiter is about to leave its node behind. Called before it does, so that the count is never too low.
    pub fn add(self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// A node was removed, or its waiter did not leave after all. Lets in the threads that were kept out, if there is
    /// room now.
    pub fn remove(self) {
        if self.0.fetch_add(u32::MAX, Relaxed) == MAX as u32 {
            M::wake(&raw const *self.0, u32::MAX);
        }
    }

    /// Keeps a newcomer out of a queue that is full of abandoned nodes; meanwhile it tries to `take` the lock, of which
    /// `word` is a part. `None` when there is room in the queue.
    #[inline]
    pub fn keep_out(
        self,
        word: &M::Word,
        until: Option<Deadline>,
        take: impl FnMut() -> bool,
    ) -> Option<Result<(), TimedOut>> {
        if self.is_full() { self.wait_outside(word, until, take) } else { None }
    }

    /// A forked child forgets the queue, whose threads do not exist there, and all nodes in it.
    pub fn clear(self) {
        self.0.store(0, Relaxed);
    }

    /// How many there are. Signed: a forked child that has forgotten too many may remove more than it has counted.
    #[inline]
    pub fn count(self) -> i32 {
        self.0.load(Relaxed) as i32
    }

    /// Whether a holder should look for abandoned nodes now ([`SWEEP_AT`]).
    #[inline]
    pub fn wants_sweep(self) -> bool {
        let left = self.count();
        left >= SWEEP_AT && (left % SWEEP_AT == 0 || left >= MAX)
    }

    fn is_full(self) -> bool {
        is_full(self.0.load(Relaxed))
    }

    #[cold]
    fn wait_outside(
        self,
        word: &M::Word,
        until: Option<Deadline>,
        mut take: impl FnMut() -> bool,
    ) -> Option<Result<(), TimedOut>> {
        let mut pause = BREAK;
        loop {
            let seen = self.0.load(Relaxed);
            if !is_full(seen) {
                return None;
            }
            // It may have got up by itself: the lock may be gone.
            if M::is_there(word) && take() {
                return Some(Ok(()));
            }
            if until.is_some_and(|deadline| M::expired(&deadline)) {
                return Some(Err(TimedOut));
            }
            park::<M>(self.0, seen, Some(M::sooner(pause, until)));
            pause = pause.saturating_mul(2);
        }
    }
}

/// Whether this many abandoned nodes keep newcomers out. Signed: as [`LeftBehind::count`].
fn is_full(count: u32) -> bool {
    count as i32 >= MAX
}
