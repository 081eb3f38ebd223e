//! # A waiter of the ShflLock that wakes up before its turn
//!
//! What it may do about the lock: take the word, revoke a stale grant, and evict a head that does not run. See
//! [`shfl`](super::shfl), departures 2 and 5. The wait itself is in [`turn`](crate::parts::shuffle::turn).

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::machine::node::state;
use crate::machine::{Handle, Machine, Word};
use crate::mutex::shuffle::state::{FREE, Lock, SLEEPERS, awake_for, is_idle, record_stall, try_take};
use crate::parts::shuffle::ShflQueue;
use crate::parts::shuffle::front::{BESIDE, GRANTED, PROMISED, ROUSE, named};
use crate::parts::shuffle::rouse::note_woken;
use crate::parts::shuffle::turn::{LOOK, Waiter};

/// A grant that has not been taken for this long (µs), or for two bounds if that is more, may be revoked.
const STALE_GRANT: u32 = 10_000;

impl<M: Machine> Lock<'_, M> {
    /// One newcomer polls the word before it queues. Returns whether it won the lock.
    pub(super) fn arrive(&self) -> bool {
        self.queue.arrive(self.word, |seen| seen == FREE && try_take::<M>(self.word))
    }

    /// Whether the head sleeps on the word, so that a release wakes it or learns from the kernel that it does not
    /// sleep; and whether the waiter that joined behind `behind` is linked. Relaxed: this is true now, or was true a
    /// moment ago.
    pub(super) fn is_wake_up_assured(&self, behind: Option<Handle>) -> bool {
        let head = self.queue.front();
        let asleep =
            |head: Handle| head.node::<M>().is_alive() && head.node::<M>().state.load(Relaxed) == state::NAPPING;
        head & GRANTED == 0
            && named(head).is_some_and(asleep)
            && self.word.load(Relaxed) == SLEEPERS
            && behind.is_none_or(ShflQueue::<M>::is_linked)
    }

    /// (head = waiter, GRANTED) -> (head = waiter), if the grant is stale: then this thread has the lock. Returns the
    /// waiter if it has.
    pub(super) fn revoke_stale_grant(&self) -> Option<Handle> {
        let head = self.queue.head.load(Acquire) & !BESIDE;
        let taker = named(head).filter(|_| head & PROMISED == GRANTED)?;
        let age = M::micros().wrapping_sub(taker.node::<M>().granted_at.load(Relaxed));
        let stale = M::tunables().bound_us.saturating_mul(2).max(STALE_GRANT);
        let taken = age > stale && self.queue.change_head(head, head & !GRANTED);
        if taken {
            record_stall::<M>(age);
        }
        taken.then_some(taker)
    }

    /// The holder, which has won the lock out of turn, evicts the head if the head does not run. The head does not run
    /// if it has let a grant become stale (`revoked`: the waiter whose grant that was, which may have left since);
    /// otherwise the clock decides, and for a head that should be asleep also the kernel. It may be that no other
    /// waiter looks for the lock by itself. So the holder's release wakes another sleeper.
    pub(super) fn evict_idle_head(&self, revoked: Option<Handle>) {
        let Some(waiter) = named(self.queue.front()).filter(|waiter| waiter.node::<M>().is_alive()) else { return };
        let node = waiter.node::<M>();
        let idle = match node.state.load(Relaxed) {
            _ if revoked == Some(waiter) => true,
            state::NAPPING if M::wake(self.word, u32::MAX) == 0 => awake_for(node) > LOOK,
            state::NAPPING => {
                note_woken(node); // This thread's release is not to take it for one that does not run.
                false
            }
            _ => is_idle(node),
        };
        if idle {
            self.evict(waiter);
        }
        // Relaxed: for this thread's own release.
        self.queue.head.fetch_or(ROUSE, Relaxed);
    }
}

/// What a mutex's waiter may do.
pub(super) struct Sleeper<'a, 'b, M: Machine> {
    pub(super) lock: &'a Lock<'b, M>,
    /// The waiter whose grant it has revoked, to have the lock.
    pub(super) revoked: Option<Handle>,
}

impl<M: Machine> Waiter for Sleeper<'_, '_, M> {
    fn look_after(&self, last: Option<u32>) -> u32 {
        last.map_or(LOOK, |last| last.saturating_mul(2))
    }

    fn take(&mut self, _: bool) -> bool {
        if try_take::<M>(self.lock.word) {
            return true;
        }
        self.revoked = self.lock.revoke_stale_grant();
        self.revoked.is_some()
    }

    fn has_taken(&self) {
        self.lock.evict_idle_head(self.revoked);
    }

    /// Not a waiter that a broadcast moved here: it goes on looking at the lock.
    fn trusts(&self, behind: Option<Handle>) -> bool {
        behind.is_some() && self.lock.is_wake_up_assured(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Memory as _;
    use crate::machine::bench::{Bench, Plain, stop_clock};
    use crate::parts::shuffle::front::{ShflQueue, naming, start_clock};
    use crate::parts::zeroed::Zeroed;

    /// The head lets a grant become stale, and leaves as soon as it is revoked. Its successor has done nothing.
    #[test]
    fn the_successor_of_a_revoked_head_stays() {
        let (word, queue) = (Plain::new(1), ShflQueue::<Bench>::zeroed());
        stop_clock(0);
        let [first, second] = [state::HEAD, state::WAITING].map(|initial| {
            // SAFETY: they are in this queue only.
            let me = unsafe { Bench::take_node() };
            me.node::<Bench>().prepare(initial);
            me
        });
        let (first_node, second_node) = (first.node::<Bench>(), second.node::<Bench>());
        assert!(queue.join(first, first));
        start_clock(first_node);
        assert!(!queue.join(second, second));
        queue.set_head(naming(first) | GRANTED);
        first_node.granted_at.store(0, Relaxed);

        stop_clock(100_000);
        let lock = Lock { word: &word, queue: &queue };
        let revoked = lock.revoke_stale_grant();
        assert_eq!(revoked, Some(first));
        assert!(queue.pass(first, None).is_none());
        assert_eq!(second_node.state.load(Relaxed), state::HEAD);
        lock.evict_idle_head(revoked);
        assert_eq!(second_node.state.load(Relaxed), state::HEAD, "it was evicted for the grant of another");
        assert!(queue.pass(second, None).is_none());
    }
}
