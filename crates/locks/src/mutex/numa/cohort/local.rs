//! # The local locks of cohort locks
//!
//! A local lock stands in a part of the side block. This table shows which words of the part it uses:
//!
//! | part's word | MCS | ticket |
//! |---|---|---|
//! | `tail` | `tail` | `next` |
//! | `next` | `next` | `serving` |
//! | `passes` | the cohort's | the cohort's |
//!
//! A further local lock is that of [`cst`](crate::mutex::numa::cst).

use core::marker::PhantomData;

use super::level::LocalLock;
use crate::machine::block::Block;
use crate::machine::event::Event;
use crate::machine::{Deadline, Machine, TimedOut};
use crate::mutex::spin::ticket::Numbers;
use crate::parts::counted::Contention;
use crate::parts::queue::k42::Words;
use crate::parts::wait::{SpinThenPark, WaitPolicy};

/// MCS in a part; waiters wait by policy `W`.
pub struct LocalMcs<W: WaitPolicy = SpinThenPark>(PhantomData<W>);

pub(crate) fn words<M: Machine>(part: &Block<M>) -> Words<'_, M> {
    Words { tail: &part.tail, next: &part.next }
}

// SAFETY: those words, and the invariants of `k42`.
unsafe impl<W: WaitPolicy> LocalLock for LocalMcs<W> {
    const CAN_LEAVE: bool = true;

    #[inline]
    fn lock<M: Machine>(part: &Block<M>, until: Option<Deadline>, waiting: &mut Contention<M>) -> Result<(), TimedOut> {
        if words(part).try_lock() {
            return Ok(());
        }
        waiting.begin();
        words(part).wait::<W>(until)
    }

    fn has_waiters<M: Machine>(part: &Block<M>) -> bool {
        words(part).has_waiters()
    }

    fn pass<M: Machine>(part: &Block<M>) -> bool {
        words(part).pass()
    }

    fn unlock<M: Machine>(part: &Block<M>) {
        words(part).unlock();
    }

    fn reset<M: Machine>(part: &Block<M>, held: bool) {
        words(part).reset(held);
    }
}

/// A ticket lock in a part.
pub struct LocalTicket;

fn numbers<M: Machine>(part: &Block<M>) -> Numbers<'_, M> {
    Numbers { next: &part.tail, serving: &part.next }
}

// SAFETY: those words; it has no nodes.
unsafe impl LocalLock for LocalTicket {
    const CAN_LEAVE: bool = false;

    #[inline]
    fn lock<M: Machine>(part: &Block<M>, _: Option<Deadline>, waiting: &mut Contention<M>) -> Result<(), TimedOut> {
        let (mine, served) = numbers(part).draw();
        if !served {
            waiting.begin();
            numbers(part).await_turn(mine);
        }
        Ok(())
    }

    fn has_waiters<M: Machine>(part: &Block<M>) -> bool {
        numbers(part).has_waiters()
    }

    /// A thread that has drawn a number waits for it, so the hand-off always succeeds.
    fn pass<M: Machine>(part: &Block<M>) -> bool {
        M::trace(Event::HandoffSame);
        numbers(part).call();
        true
    }

    fn unlock<M: Machine>(part: &Block<M>) {
        if numbers(part).is_held() {
            numbers(part).call();
        }
    }

    fn reset<M: Machine>(part: &Block<M>, held: bool) {
        numbers(part).reset(held);
    }
}
