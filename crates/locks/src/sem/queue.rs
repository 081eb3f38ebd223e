//! # A semaphore with a list of its waiters
//!
//! **Problem.** Give a permit from anywhere, also from a signal handler that has interrupted this very code; take one, in an
//! order that is chosen; and let the object be destroyed as soon as the last wait has returned. **Idea.** Permits are counted
//! in one word, and whoever finds one takes it, in whatever order threads run. Sleepers are in a list; a post calls the first
//! of them, who then takes a permit, or is passed over and goes to the front of the list again. The list has no lock to wait
//! for: who finds somebody at it leaves word in the permits' word, and whoever is at it does the rest before he goes.
//! **Source.** POSIX.1-2017, `sem_*`; the list and its order, Dice, *Malthusian Locks*, EuroSys 2017, §6.11 ([`Order`](crate::order::Order)); that
//! permits go to whoever takes them first is as in glibc's semaphore, and keeps a semaphore that is used as a mutex from
//! passing from sleeper to sleeper.
//!
//! ## State
//! | `word` | meaning |
//! |---|---|
//! | n < 2^31 | n permits, nobody queued: as in glibc |
//! | [`QUEUED`], n | there is a list, perhaps an empty one, or of waiters that have left; n < 2^28 permits, for those who have been called and have not come yet |
//! | [`QUEUED`], [`BUSY`], n | the same, and somebody is at the list |
//! | [`QUEUED`], [`BUSY`], [`OWED`], n | the same, and permits came meanwhile, for which nobody has been called |
//!
//! ```text
//!   head ─> [QUEUED] <─> [ABANDONED] <─> [QUEUED] <─ tail        a post calls the first that is QUEUED;
//!           asleep       left behind      asleep                 newcomers join at the tail, or at the head
//! ```
//!
//! ## A waiter's node
//! ```text
//!   QUEUED ──called by whoever is at the list──> CALLED ──woken──> TOLD       CALLED, TOLD ──passed over──> QUEUED, at the front
//!   QUEUED ──gives up, and gets at the list──> LEAVING (takes itself out)      or does not get there ──> ABANDONED
//! ```
//!
//! ## Invariants
//! 1. Only who has set [`BUSY`] touches the list, until he clears it. A permit that comes while it is set sets [`OWED`], and
//!    [`BUSY`] is not cleared while that is set. So who posts never waits, neither for others nor for himself, interrupted.
//! 2. There are no more permits than waiters that have been called and have neither taken one nor found none, or else nobody is
//!    in the list. Who makes more permits calls a waiter for each; who is called and neither takes nor finds none
//!    ([`Semaphore::cancel`]) calls another.
//! 3. A waiter joins the list only while there are no permits: [`BUSY`] is set for that in the same step in which their absence
//!    is seen, and who adds one from then on sets [`OWED`].
//! 4. A post touches the semaphore last in the step that makes its permit seen; afterwards only nodes. Until then it is under
//!    way, and nobody may destroy what it is posted to. A wait is at it only before it has its permit, or while somebody else's
//!    post or wait is under way.
//! 5. A node is in the list iff it is QUEUED, LEAVING or ABANDONED. Only whoever is at the list takes one out; if it is
//!    ABANDONED he gives it back.
//! 6. In a forked child a list of before is nobody's ([`settle`](crate::settle)): it is dropped, with what stopped threads were at, but not
//!    the permits.
//!
//! Who is at the list may be stopped there (in a signal handler, or by the scheduler), and so may be who was called, and who
//! has called somebody and is about to wake him. None of that may hold up whom others' permits are for. So who gives a permit,
//! and cannot get at the list, wakes the first sleeper that seems to be in it ([`Semaphore::nudge`]); that one takes the permit
//! uncalled, and, if he cannot get at the list, leaves his node behind. And who gets at the list first looks whether the last
//! one that was called has been woken (`called`); [`QUEUED`] stays set until somebody has looked.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | CAS of `word` that adds a permit | Release | the CAS that takes it | what was done before the post is seen after the wait. All changes are read-modify-writes, so it does not matter which permit |
//! | CAS of `word` that takes one | Acquire | that | |
//! | CAS that sets [`BUSY`] | Acquire | the CAS that clears [`BUSY`], Release | the list is as it was left |
//! | `state` to CALLED, LEAVING, ABANDONED | Release | loads of it, and failed CASes, Acquire | who gives the node back or uses it again is behind who used it before |
//! | all else | Relaxed | – | protected by [`BUSY`], or a hint |

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::event::Event;
use crate::list::List;
use crate::machine::{Handle, Machine, Patience, Word};
use crate::node::state;
use crate::queue::link::handle_in;
use crate::settle::try_settle;

/// The most permits there can be.
pub const MOST: u32 = i32::MAX as u32;
/// Bit of `word`: there is a list.
const QUEUED: u32 = 1 << 31;
/// Bit of `word`: somebody is at the list.
pub(super) const BUSY: u32 = 1 << 30;
/// Bit of `word`: permits came while somebody was at the list.
const OWED: u32 = 1 << 29;
const PERMITS: u32 = (1 << 28) - 1;
/// How many nodes are looked at for somebody to nudge.
const NUDGE_REACH: u32 = 32;
/// How often, and for how long (µs), a post waits for somebody who makes a forked child's list ready: he may be the thread that
/// it interrupted.
const SETTLE_TRIES: u32 = 100;
const SETTLE_PAUSE: u32 = 50;

const _: () = assert!(QUEUED & MOST == 0 && (QUEUED | BUSY | OWED) & PERMITS == 0);

#[inline(always)]
pub(super) const fn has_list(word: u32) -> bool {
    word & QUEUED != 0
}

#[inline(always)]
pub(super) const fn is_busy(word: u32) -> bool {
    word & (QUEUED | BUSY) == QUEUED | BUSY
}

/// How many permits there are.
#[inline(always)]
pub(super) const fn permits(word: u32) -> u32 {
    if has_list(word) { word & PERMITS } else { word }
}

/// The list; all-zero is empty.
#[repr(C)]
pub struct SemQueue<M: Machine> {
    head: M::Word,
    tail: M::Word,
    /// [`settle`](crate::settle::settle)'s.
    pub(super) epoch: M::Word,
    /// Who was called last; 0 if nobody was.
    called: M::Word,
}

impl<M: Machine> SemQueue<M> {
    /// Nobody waits.
    pub fn new() -> Self {
        let zero = || M::Word::new(0);
        Self { head: zero(), tail: zero(), epoch: zero(), called: zero() }
    }
}

impl<M: Machine> Default for SemQueue<M> {
    fn default() -> Self {
        Self::new()
    }
}

/// There are [`MOST`] permits already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

/// A semaphore: its two pieces, which lie where the caller has them.
pub struct Semaphore<'a, M: Machine> {
    /// Permits and flags.
    pub word: &'a M::Word,
    /// The list.
    pub queue: &'a SemQueue<M>,
}

impl<M: Machine> Clone for Semaphore<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Semaphore<'_, M> {}

impl<M: Machine> Semaphore<'_, M> {
    /// How many permits there are.
    pub fn value(self) -> u32 {
        permits(self.word.load(Relaxed))
    }

    /// n + 1 -> n. Whether there was a permit.
    #[inline(always)]
    pub fn try_wait(self) -> bool {
        let seen = self.word.load(Relaxed);
        let none_queued = (1..=MOST).contains(&seen);
        let taken = none_queued && self.word.compare_exchange(seen, seen - 1, Acquire, Relaxed).is_ok() || self.take();
        if taken {
            M::trace(Event::SemAcquire);
        }
        taken
    }

    #[cold]
    pub(super) fn take(self) -> bool {
        let mut seen = self.word.load(Relaxed);
        while permits(seen) > 0 {
            match self.word.compare_exchange(seen, seen - 1, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Adds a permit, and calls a waiter, if there is one. Never waits; may be called in a signal handler that has interrupted
    /// any of these functions.
    #[inline(always)]
    pub fn post(self) -> Result<(), Overflow> {
        let seen = self.word.load(Relaxed);
        // Nobody is queued, and there is room.
        if seen < MOST && self.word.compare_exchange(seen, seen + 1, Release, Relaxed).is_ok() {
            M::trace(Event::SemPost);
            return Ok(());
        }
        self.post_slow()
    }

    #[cold]
    fn post_slow(self) -> Result<(), Overflow> {
        let mut tries = 0;
        while has_list(self.word.load(Relaxed))
            && !try_settle::<M>(&self.queue.epoch, || self.drop_list())
            && tries < SETTLE_TRIES
        {
            M::relax(SETTLE_PAUSE);
            tries += 1;
        }
        loop {
            let seen = self.word.load(Relaxed);
            if permits(seen) >= if has_list(seen) { PERMITS } else { MOST } {
                return Err(Overflow);
            }
            if !has_list(seen) {
                // n -> n + 1
                if self.word.compare_exchange(seen, seen + 1, Release, Relaxed).is_ok() {
                    break;
                }
            } else if is_busy(seen) || tries == SETTLE_TRIES {
                let (called, first) = (self.queue.called.load(Relaxed), self.queue.head.load(Relaxed));
                // (list, busy, n) -> (list, busy, owed, n + 1)
                if self.word.compare_exchange(seen, (seen + 1) | OWED, Release, Relaxed).is_ok() {
                    Self::nudge(called, first);
                    break;
                }
            } else if self.word.compare_exchange(seen, seen | BUSY, Acquire, Relaxed).is_ok() {
                self.leave(1);
                break;
            }
        }
        M::trace(Event::SemPost);
        Ok(())
    }

    /// Wakes a sleeper that seems to have been called last, or else the first in the list whose head was `first`, uncalled. A
    /// look without being at the list: whoever else that is wakes for nothing, and a node that serves in a lock's queue by now has
    /// a [link](crate::queue::link) to who follows it there.
    fn nudge(called: u32, first: u32) {
        let wakes = |handle: Handle, whom: &[u32]| {
            let node = handle.node::<M>();
            whom.contains(&node.state.load(Relaxed)) && M::unpark(node) > 0
        };
        // QUEUED: whoever is calling him was stopped in the middle of it.
        if Handle::from_word(called).is_some_and(|called| wakes(called, &[state::QUEUED, state::CALLED])) {
            return;
        }
        let mut here = Handle::from_word(first);
        for _ in 0..NUDGE_REACH {
            match here {
                Some(handle) if !wakes(handle, &[state::QUEUED]) => {
                    here = handle_in(handle.node::<M>().next.load(Relaxed));
                }
                _ => return,
            }
        }
    }

    /// (list, n) -> (list, busy, n). Fails if somebody is at the list, or there is none.
    pub(super) fn try_enter(self) -> bool {
        let mut seen = self.word.load(Relaxed);
        while has_list(seen) && !is_busy(seen) {
            match self.word.compare_exchange(seen, seen | BUSY, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// (list, busy, n) -> (list, n + own), or n + own if nobody is in it any more. Calls a waiter for each of its `own` permits
    /// (0 or 1), and for what is owed first. From the last step on nothing of the semaphore is touched (invariant 4).
    pub(super) fn leave(self, own: u32) {
        self.wake_called();
        let (mut called, mut seen) = (None, self.word.load(Relaxed));
        let rest = loop {
            if seen & OWED != 0 {
                // Not known how many came; not more than there are now.
                if self.word.compare_exchange(seen, seen & !OWED, Relaxed, Relaxed).is_ok() {
                    self.call(permits(seen));
                }
                seen = self.word.load(Relaxed);
                continue;
            }
            if own > 0 && called.is_none() {
                called = self.pop();
            }
            let rest = self.queue.head.load(Relaxed);
            let list = if rest == 0 && called.is_none() { 0 } else { QUEUED };
            match self.word.compare_exchange(seen, list | (permits(seen) + own), Release, Relaxed) {
                Ok(_) => break rest,
                Err(now) => seen = now,
            }
        };
        if let Some(called) = called
            && Self::tell(called) == 0
        {
            Self::nudge(0, rest);
        }
    }

    /// Calls `count` waiters, and besides as many as do not sleep: they are on their way, or stopped. At the list.
    fn call(self, count: u32) {
        let mut woken = 0;
        while woken < count {
            let Some(called) = self.pop() else { return };
            woken += Self::tell(called);
        }
    }

    /// CALLED -> TOLD; whether it slept.
    fn tell(called: Handle) -> u32 {
        let node = called.node::<M>();
        let woken = M::unpark(node);
        // Relaxed: a hint. The node may have been used again, even been called again, since; then nobody looks after its thread
        // but who called it.
        let _ = node.state.compare_exchange(state::CALLED, state::TOLD, Relaxed, Relaxed);
        woken
    }

    /// Wakes who was called last, unless that has been done. At the list.
    fn wake_called(self) {
        if let Some(called) = Handle::from_word(self.queue.called.load(Relaxed)) {
            if called.node::<M>().state.load(Relaxed) == state::CALLED {
                Self::tell(called);
            }
            self.queue.called.store(0, Relaxed);
        }
    }

    /// Takes the first waiter that has not left out of the list, QUEUED -> CALLED. He finds that out himself, or is then to be
    /// woken. At the list.
    fn pop(self) -> Option<Handle> {
        while let Some(first) = Handle::from_word(self.queue.head.load(Relaxed)) {
            let node = first.node::<M>();
            self.queue.called.store(first.word(), Relaxed);
            self.list().unlink(node);
            if node.state.compare_exchange(state::QUEUED, state::CALLED, Release, Acquire).is_ok() {
                M::trace(Event::SemWake);
                return Some(first);
            }
            M::give_node(first); // Invariant 5.
        }
        self.queue.called.store(0, Relaxed);
        None
    }

    /// The list. For whoever is at it.
    pub(super) fn list(&self) -> List<'_, M> {
        List { head: &self.queue.head, tail: &self.queue.tail }
    }

    /// Gives back the nodes at both ends that their waiters have left behind. At the list.
    pub(super) fn sweep(self) {
        for end in [&self.queue.head, &self.queue.tail] {
            while let Some(handle) = Handle::from_word(end.load(Relaxed)) {
                // Acquire: pairs with the Release of whoever left it.
                if handle.node::<M>().state.load(Acquire) != state::ABANDONED {
                    break;
                }
                self.list().unlink(handle.node::<M>());
                M::give_node(handle);
            }
        }
    }

    /// Throws away the list of another process (invariant 6). Only [`settle`](crate::settle) calls this.
    pub(super) fn drop_list(self) {
        for word in [&self.queue.head, &self.queue.tail, &self.queue.called] {
            word.store(0, Relaxed);
        }
        let mut seen = self.word.load(Relaxed);
        while has_list(seen) {
            match self.word.compare_exchange(seen, permits(seen), Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Calls waiters for the permits that there are, if there are both: somebody who was called does not come.
    pub(super) fn call_another(self) {
        let mut seen = self.word.load(Relaxed);
        while has_list(seen) && permits(seen) > 0 {
            match self.word.compare_exchange(seen, seen | BUSY | OWED, Acquire, Relaxed) {
                Ok(before) if is_busy(before) => return,
                Ok(_) => return self.leave(0),
                Err(now) => seen = now,
            }
        }
    }

    /// Nobody uses the semaphore any more: gives back what waiters have left behind.
    pub fn destroy(self) {
        // Whoever is at the list is about to leave it, unless a fork has left him there.
        let free = |word| !is_busy(word);
        if has_list(self.word.load(Relaxed))
            && self.queue.epoch.load(Acquire) == M::epoch()
            && M::spin_until(self.word, Relaxed, Patience::Budget, free).is_some()
            && self.try_enter()
        {
            self.sweep();
            self.leave(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::bench::Bench;
    use crate::queue::link::Link;

    /// The list's first has left since its head was read, and waits for a lock.
    #[test]
    fn a_post_bears_with_nodes_that_serve_elsewhere_by_now() {
        let [gone, behind, asleep] = [state::PARKED, state::PARKED, state::QUEUED].map(|state| {
            let handle = Bench::take_node();
            handle.node::<Bench>().prepare(state);
            handle
        });
        gone.node::<Bench>().next.store(Link::new(behind, 3).word(), Relaxed);
        behind.node::<Bench>().next.store(Link::new(asleep, 0).word(), Relaxed);
        asleep.node::<Bench>().next.store(gone.word(), Relaxed);
        let (word, queue) = (Word::new(QUEUED | BUSY), SemQueue::<Bench>::new());
        queue.head.store(gone.word(), Relaxed);
        let semaphore = Semaphore { word: &word, queue: &queue };
        assert_eq!(semaphore.post(), Ok(()));
        assert_eq!(word.load(Relaxed), QUEUED | BUSY | OWED | 1);
        // Nobody at all who could be woken: it does not go round for ever.
        asleep.node::<Bench>().state.store(state::PARKED, Relaxed);
        assert_eq!((semaphore.post(), semaphore.value()), (Ok(()), 2));
    }
}
