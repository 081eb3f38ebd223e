//! # The local locks of cohort locks
//!
//! | part's word | MCS | ticket |
//! |---|---|---|
//! | `since` | `tail` | `next` |
//! | `granted_at` | `next` | `serving` |
//! | `passes` | the cohort's | the cohort's |
//!
//! Further ones: [`cst`](crate::numa::cst).

use core::marker::PhantomData;

use super::level::{LocalLock, Waiting};
use crate::event::Event;
use crate::machine::{Deadline, Machine, TimedOut};
use crate::node::Node;
use crate::queue::k42::Words;
use crate::spin::ticket::Numbers;
use crate::wait::{SpinThenPark, WaitPolicy};

/// MCS in a part; waiters wait by policy `W`.
pub struct LocalMcs<W: WaitPolicy = SpinThenPark>(PhantomData<W>);

pub(crate) fn words<M: Machine>(part: &Node<M>) -> Words<'_, M> {
    Words { tail: &part.since, next: &part.granted_at }
}

impl<W: WaitPolicy> LocalLock for LocalMcs<W> {
    const CAN_LEAVE: bool = true;

    #[inline]
    fn lock<M: Machine>(part: &Node<M>, until: Option<Deadline>, waiting: &mut Waiting<M>) -> Result<(), TimedOut> {
        if words(part).try_lock() {
            return Ok(());
        }
        waiting.begin();
        words(part).wait::<W>(until)
    }

    fn has_waiters<M: Machine>(part: &Node<M>) -> bool {
        words(part).has_waiters()
    }

    fn pass<M: Machine>(part: &Node<M>) -> bool {
        words(part).pass()
    }

    fn unlock<M: Machine>(part: &Node<M>) {
        words(part).unlock();
    }

    fn reset<M: Machine>(part: &Node<M>, held: bool) {
        words(part).reset(held);
    }
}

/// A ticket lock in a part.
pub struct LocalTicket;

fn numbers<M: Machine>(part: &Node<M>) -> Numbers<'_, M> {
    Numbers { next: &part.since, serving: &part.granted_at }
}

impl LocalLock for LocalTicket {
    const CAN_LEAVE: bool = false;

    #[inline]
    fn lock<M: Machine>(part: &Node<M>, _: Option<Deadline>, waiting: &mut Waiting<M>) -> Result<(), TimedOut> {
        let (mine, served) = numbers(part).draw();
        if !served {
            waiting.begin();
            numbers(part).await_turn(mine);
        }
        Ok(())
    }

    fn has_waiters<M: Machine>(part: &Node<M>) -> bool {
        numbers(part).has_waiters()
    }

    /// Who has drawn a number waits for it.
    fn pass<M: Machine>(part: &Node<M>) -> bool {
        M::trace(Event::HandoffSame);
        numbers(part).call();
        true
    }

    fn unlock<M: Machine>(part: &Node<M>) {
        if numbers(part).is_held() {
            numbers(part).call();
        }
    }

    fn reset<M: Machine>(part: &Node<M>, held: bool) {
        numbers(part).reset(held);
    }
}
