//! # A semaphore with a list of its waiters
//!
//! **Problem.** Give a permit from anywhere, also from a signal handler that has interrupted this very code; take one,
//! in an order that is chosen; let the object be destroyed as soon as the last wait has returned; and never let a
//! permit lie beside a sleeper because some thread was stopped in the middle. **Idea.** Permits are counted in one
//! word, and whoever finds one takes it, in whatever order threads run. A waiter announces itself in the same word: in
//! one step it sees that there is no permit and makes every later post look for it. A post first makes its permit seen,
//! and then calls a waiter. The list of sleepers only says whom. It has no lock to wait for: a post that finds somebody
//! at the list looks at the queue nodes themselves, all of them if need be, for a node says for which semaphore its
//! thread waits. **Source.** POSIX.1-2017, `sem_*`; the list and its order, Dice, *Malthusian Locks*, EuroSys 2017,
//! §6.11 ([`Order`](crate::order::Order)); that permits go to whoever takes them first is as in glibc's semaphore, and
//! keeps a semaphore that is used as a mutex from passing from sleeper to sleeper. That a waiter announces itself
//! before it looks for the last time, as in Franke, Russell and Kirkwood, *Fuss, Futexes and Furwocks*, OLS 2002.
//!
//! ## State
//! | `word` | meaning |
//! |---|---|
//! | n < 2^31 | n permits, and nobody has announced itself: as in glibc |
//! | [`QUEUED`], n | there may be waiters that have; n < 2^29 permits |
//! | [`QUEUED`], [`BUSY`], n | the same, and somebody is at the list |
//! | [`QUEUED`], [`NEWS`], n | the same (BUSY or not), and some may be called who are not in the list |
//!
//! ```text
//!   head ─> [NOTIFIED] <─> [CALLED] <─> [ABANDONED] <─> [WAITS] <─> [WAITS] <─ tail     strays: [WAITS]  [CALLED]
//!           on its way  being woken  left behind     asleep      asleep                     asleep   being woken
//! ```
//! The states of a node are in [`call`](super::call). A **stray** is a waiter that found somebody at the list, and
//! sleeps without being in it. Whoever is next at the list puts strays into it.
//!
//! ## Invariants
//! 1. Only who has set [`BUSY`] touches the list and LISTED in a node's state, until he clears it. Nobody waits for
//!    that for longer than a spin budget.
//! 2. A waiter sleeps only after it has announced itself: its state is WAITS, with a new generation, and then, in a
//!    change of `word` (if only to the value that it had), there was no permit, and QUEUED was set. If its node was not
//!    in the list then, or somebody was at the list, NEWS is set in that step as well; unless the waiter is about to
//!    put itself into the list, and so sets BUSY.
//! 3. Whoever is at the list clears NEWS before it looks for waiters that are not in the list, and does not go while it
//!    is set. QUEUED is cleared only together with BUSY, by who has found the list empty since NEWS was cleared.
//! 4. A waiter becomes CALLED only by a post (or by who passes a call on) whose permit can be seen already. It becomes
//!    NOTIFIED when it has been woken after that, or has noticed. A state that is not WAITS changes back only by announcing
//!    itself anew, with another generation.
//! 5. A node is in the list iff its state says LISTED. The node of a waiter that goes is its own if it is not LISTED.
//!    If it is, the waiter takes it out, or leaves it there, ABANDONED, for whoever is at the list to give back.
//! 6. A post touches the semaphore last in the step that makes its permit seen; afterwards only nodes. Until then it is
//!    under way, and nobody may destroy what it is posted to. A wait touches it only until it returns.
//! 7. In a forked child a list of before is nobody's ([`settle`](crate::settle)): it is dropped, with what stopped
//!    threads were at, but not the permits.
//!
//! ## No permit lies beside a sleeper
//! **Theorem.** However many threads are stopped, each at any instruction of a post or a wait: when all others have
//! come to rest, and somebody sleeps who is not stopped, there are no more permits than posts that are stopped, and
//! waiters that were called and then stopped. (Those permits are in glibc's semaphore, too.) So n posts let n of n or
//! more waiters go on that run.
//!
//! **Proof.** Let t be the last moment at which there was no permit: somebody sleeps, so there was one, by 2. Take a
//! post that came to its end and whose permit was seen after t. It ended in one of three ways. (a) It has called a
//! waiter that then ran: it slept and was woken, or has noticed the call. That waiter looked for a permit after it had
//! noticed, so after t, and has taken one; or it left before it noticed, and then looks once more
//! ([`Semaphore::served`], `give_up`) and takes one or calls another; or it was stopped since. (b) It was at the list,
//! and nobody there was WAITS; or QUEUED was not set, because somebody had found the list empty. NEWS was not set when
//! its permit came, so by 2 and 3 everybody who had announced itself was in the list, CALLED or NOTIFIED, and all who were
//! CALLED have been woken (`help`). Each of them looks for a permit, after t, before it sleeps again: if by then it
//! could have announced itself anew without seeing this permit, NEWS would have been set, for somebody was at the list.
//! (c) It has looked at all nodes, called whoever was WAITS, and woken whoever was CALLED. Whoever announces itself
//! later sees the permit: both are changes of `word`. So everybody looks for a permit, after t, before it sleeps. In
//! (b) and (c) nobody sleeps in the end who had announced itself before, nor after, as there were permits. So all posts
//! ended in (a), each with a waiter of its own (a generation is called once), and each of these has taken a permit
//! since t, or was stopped. ∎
//!
//! Stopped threads cost time, though: as long as somebody is stopped at the list, each post looks at the nodes of all
//! threads, waiters are not called in the order that was chosen, and who is stopped when it is called costs its post a
//! spin budget.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | CAS of `word` that adds a permit | Release | the CAS that takes it | what was done before the post is seen after the wait. All changes are read-modify-writes, so it does not matter which permit |
//! | CAS of `word` that takes one | Acquire | that | |
//! | CAS of `word` that announces | AcqRel | the CAS that adds a permit, where QUEUED is set, AcqRel | one of the two comes first: the post sees the state WAITS, or the waiter the permit (2, 4) |
//! | CAS that sets [`BUSY`], or clears [`NEWS`] | Acquire | the CAS that clears [`BUSY`], or sets NEWS, Release | the list is as it was left; strays are seen |
//! | `state` to WAITS | Release | loads and CASes of it, Acquire | who takes it for a waiter of this semaphore has seen what else is in the node |
//! | `state` to CALLED | AcqRel | loads and CASes of the waiter, Acquire | the waiter that notices sees the permit it was called for (4) |
//! | `state` to NOTIFIED, LEAVING, ABANDONED, or LISTED or not | AcqRel | loads of it, and failed CASes, Acquire | who gives the node back or uses it again is behind who used it before; and they hand on that the waiter was called |
//! | all else | Relaxed | – | protected by [`BUSY`], or a hint |

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::event::Event;
use crate::list::List;
use crate::machine::{Handle, Machine, Word};
use crate::node::state;
use crate::sem::call::{LISTED, call_one, help, is_at, is_listed, kind};
use crate::settle::try_settle;

/// The most permits there can be.
pub const MOST: u32 = i32::MAX as u32;
/// Bit of `word`: waiters may have announced themselves.
pub(super) const QUEUED: u32 = 1 << 31;
/// Bit of `word`: somebody is at the list.
pub(super) const BUSY: u32 = 1 << 30;
/// Bit of `word`: somebody may be called who is not in the list, or announced itself again while somebody was at it.
pub(super) const NEWS: u32 = 1 << 29;
const PERMITS: u32 = NEWS - 1;
/// How often, and for how long (µs), a post waits for somebody who makes a forked child's list ready: he may be the
/// thread that it interrupted.
const SETTLE_TRIES: u32 = 100;
const SETTLE_PAUSE: u32 = 50;

const _: () = assert!(QUEUED & MOST == 0 && (QUEUED | BUSY | NEWS) & PERMITS == 0);

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
}

impl<M: Machine> SemQueue<M> {
    /// Nobody waits.
    pub fn new() -> Self {
        let zero = || M::Word::new(0);
        Self { head: zero(), tail: zero(), epoch: zero() }
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

    /// Adds a permit, and calls a waiter, if there is one. Never waits; may be called in a signal handler that has
    /// interrupted any of these functions.
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
        let (mut tries, mut settled) = (0, true);
        while has_list(self.word.load(Relaxed)) {
            settled = try_settle::<M>(&self.queue.epoch, || self.drop_list());
            if settled || tries == SETTLE_TRIES {
                break;
            }
            M::relax(SETTLE_PAUSE);
            tries += 1;
        }
        loop {
            let seen = self.word.load(Relaxed);
            // One is left to who is at the list.
            if permits(seen) >= if has_list(seen) { PERMITS - 1 } else { MOST } {
                return Err(Overflow);
            }
            if !has_list(seen) {
                // n -> n + 1
                if self.word.compare_exchange(seen, seen + 1, Release, Relaxed).is_ok() {
                    break;
                }
            } else if is_busy(seen) || !settled {
                let (semaphore, first) = (self.address(), self.queue.head.load(Relaxed));
                // (list, busy, n) -> (list, busy, n + 1)
                if self.word.compare_exchange(seen, seen + 1, AcqRel, Relaxed).is_ok() {
                    call_one::<M>(semaphore, first, false);
                    break;
                }
            } else if self.word.compare_exchange(seen, seen | BUSY, Acquire, Relaxed).is_ok() {
                let semaphore = self.address();
                if let Some((first, alone)) = self.leave(1) {
                    call_one::<M>(semaphore, first.word(), alone);
                }
                break;
            }
        }
        M::trace(Event::SemPost);
        Ok(())
    }

    /// How its waiters' nodes name it.
    pub(super) fn address(self) -> u64 {
        core::ptr::from_ref(self.word) as u64
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

    /// (list, busy, n) -> (list, n + own), or n + own if nobody is in it any more. The first who is to be called, and
    /// whether nobody else is in the list; if there is none to be called, and `own` is not 0, whoever was called has
    /// been woken. From the last step on nothing of the semaphore is touched (invariant 6).
    pub(super) fn leave(self, own: u32) -> Option<(Handle, bool)> {
        loop {
            let seen = self.word.load(Relaxed);
            if seen & NEWS != 0 {
                // Invariant 3.
                if self.word.compare_exchange(seen, seen & !NEWS, Acquire, Relaxed).is_ok() {
                    self.adopt_all();
                }
                continue;
            }
            let first = self.first();
            if own > 0 && first.is_none() {
                self.each(|handle| help::<M>(handle, self.address()));
            }
            let head = self.queue.head.load(Relaxed);
            let first = first.map(|first| (first, head == first.word() && head == self.queue.tail.load(Relaxed)));
            let list = if head == 0 { 0 } else { QUEUED };
            if self.word.compare_exchange(seen, list | (permits(seen) + own), AcqRel, Relaxed).is_ok() {
                return first;
            }
        }
    }

    /// The list. For whoever is at it.
    pub(super) fn list(&self) -> List<'_, M> {
        List { head: &self.queue.head, tail: &self.queue.tail }
    }

    /// Shows all nodes of the list. At the list.
    fn each(self, mut show: impl FnMut(Handle)) {
        let mut here = Handle::from_word(self.queue.head.load(Relaxed));
        while let Some(handle) = here {
            show(handle);
            here = Handle::from_word(handle.node::<M>().next.load(Relaxed));
        }
    }

    /// The first who is to be called. Whoever is before him and was told, or has gone, is taken out. At the list.
    fn first(self) -> Option<Handle> {
        let mut here = Handle::from_word(self.queue.head.load(Relaxed));
        while let Some(handle) = here {
            let node = handle.node::<M>();
            match kind(node.state.load(Acquire)) {
                state::WAITS => return Some(handle),
                state::CALLED => here = Handle::from_word(node.next.load(Relaxed)),
                _ => {
                    let next = Handle::from_word(node.next.load(Relaxed));
                    here = if self.take_out(handle, true) { next } else { Some(handle) };
                }
            }
        }
        None
    }

    /// Takes those out at the end who were told, or have gone. At the list.
    pub(super) fn sweep(self) {
        while let Some(last) = Handle::from_word(self.queue.tail.load(Relaxed))
            && matches!(kind(last.node::<M>().state.load(Acquire)), state::NOTIFIED | state::ABANDONED)
            && self.take_out(last, false)
        {}
    }

    /// Takes a node out whose waiter was told (it is the waiter's then), or has gone (it is given back). If that has
    /// announced itself again meanwhile, it stays, at that end. At the list.
    fn take_out(self, handle: Handle, front: bool) -> bool {
        let node = handle.node::<M>();
        self.list().unlink(node);
        let mut seen = node.state.load(Acquire);
        loop {
            match kind(seen) {
                state::ABANDONED => {
                    M::give_node(handle);
                    return true;
                }
                state::NOTIFIED => match node.state.compare_exchange(seen, seen & !LISTED, AcqRel, Acquire) {
                    Ok(_) => return true,
                    Err(now) => seen = now,
                },
                _ => {
                    self.list().link(handle, front);
                    return false;
                }
            }
        }
    }

    /// Puts a waiter into the list, unless it is there, or on its way. At the list.
    pub(super) fn adopt(self, handle: Handle) {
        let node = handle.node::<M>();
        let mut seen = node.state.load(Acquire);
        while matches!(kind(seen), state::WAITS | state::CALLED) && !is_listed(seen) && is_at(node, self.address()) {
            match node.state.compare_exchange(seen, seen | LISTED, AcqRel, Acquire) {
                Ok(_) => return self.list().link(handle, node.batch.load(Relaxed) != 0),
                Err(now) => seen = now,
            }
        }
    }

    /// Puts all strays into the list. At the list.
    fn adopt_all(self) {
        M::any_node(|handle| {
            self.adopt(handle);
            false
        });
    }

    /// Throws away the list of another process (invariant 7). Only [`settle`](crate::settle) calls this.
    pub(super) fn drop_list(self) {
        self.queue.head.store(0, Relaxed);
        self.queue.tail.store(0, Relaxed);
        let mut seen = self.word.load(Relaxed);
        while has_list(seen) {
            match self.word.compare_exchange(seen, permits(seen), Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Calls a waiter if there is a permit: the calling thread was called, and does not take one.
    pub(super) fn pass_on(self) {
        if permits(self.word.load(Relaxed)) > 0 {
            call_one::<M>(self.address(), 0, false);
        }
    }

    /// Nobody uses the semaphore any more: gives back what waiters have left behind.
    pub fn destroy(self) {
        if has_list(self.word.load(Relaxed)) && self.queue.epoch.load(Acquire) == M::epoch() && self.try_enter() {
            self.leave(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::bench::Bench;
    use crate::queue::link::Link;
    use crate::sem::call::prepare;

    /// Nodes that wait, in a lock's queue (then their state is PARKED) or for the semaphore, each linked to the next.
    fn linked<const N: usize>(semaphore: &Semaphore<'_, Bench>, states: [u32; N]) -> [Handle; N] {
        let nodes = states.map(|state| {
            let handle = Bench::take_node();
            prepare(handle.node::<Bench>(), semaphore.address(), false);
            handle.node::<Bench>().state.store(state, Relaxed);
            handle
        });
        for pair in nodes.windows(2) {
            pair[0].node::<Bench>().next.store(Link::new(pair[1], 3).word(), Relaxed);
        }
        nodes
    }

    fn state_of(handle: Handle) -> u32 {
        handle.node::<Bench>().state.load(Relaxed)
    }

    /// The list's first has left since its head was read, and waits for a lock.
    #[test]
    fn a_post_bears_with_nodes_that_serve_elsewhere_by_now() {
        let (word, queue) = (Word::new(QUEUED | BUSY), SemQueue::<Bench>::new());
        let semaphore = Semaphore { word: &word, queue: &queue };
        let [gone, _, asleep] = linked(&semaphore, [state::PARKED, state::PARKED, state::WAITS | LISTED]);
        asleep.node::<Bench>().next.store(gone.word(), Relaxed);
        queue.head.store(gone.word(), Relaxed);
        assert_eq!(semaphore.post(), Ok(()));
        assert_eq!((word.load(Relaxed), state_of(asleep)), (QUEUED | BUSY | 1, state::NOTIFIED | LISTED));
        // Nobody at all who could be woken: it does not go round for ever.
        assert_eq!((semaphore.post(), semaphore.value()), (Ok(()), 2));
    }

    /// Somebody was stopped at the list, and the way to whom it is about leads nowhere.
    #[test]
    fn a_post_finds_whoever_waits_without_the_list() {
        let (word, queue) = (Word::new(QUEUED | BUSY), SemQueue::<Bench>::new());
        let (other_word, other_queue) = (Word::new(0), SemQueue::<Bench>::new());
        let semaphore = Semaphore { word: &word, queue: &queue };
        let other = Semaphore { word: &other_word, queue: &other_queue };
        let elsewhere = linked(&other, [state::WAITS; 40]);
        let called = linked(&semaphore, [state::CALLED; 40]);
        let here = linked(&semaphore, [state::WAITS; 40]);
        for posted in 1..=40 {
            assert_eq!(semaphore.post(), Ok(()));
            let notified = here.iter().filter(|&&handle| state_of(handle) == state::NOTIFIED).count();
            assert_eq!((notified, semaphore.value()), (posted, posted as u32));
        }
        // Whoever was called is woken when nobody else is left.
        assert!(called.iter().all(|&handle| state_of(handle) == state::CALLED));
        assert_eq!(semaphore.post(), Ok(()));
        assert!(called.iter().all(|&handle| state_of(handle) == state::NOTIFIED));
        assert!(elsewhere.iter().all(|&handle| state_of(handle) == state::WAITS));
    }
}
