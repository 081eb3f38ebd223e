//! # A semaphore with a list of its waiters
//!
//! It counts permits in one word, and keeps its sleeping waiters in a list. It stands behind `sem_*`: any thread may
//! post, and so may a signal handler.
//!
//! **Problem.** Give a permit from anywhere, also from a signal handler that has interrupted this very code. Take a
//! permit, in an order that can be chosen. Let the object be destroyed as soon as the last wait has returned. Never
//! leave a permit beside a sleeping waiter because some thread was stopped in the middle. **Idea.** Permits are counted
//! in one word, and any thread that finds one takes it, in whatever order threads run. A waiter announces itself in the
//! same word: in one step it sees that there is no permit, and makes every later post look for a waiter. A post first
//! makes its permit visible, and then calls a waiter. The list of sleepers only says which one. There is no lock to
//! wait for: a post that finds another thread at the list looks at the queue nodes themselves, all of them if need be.
//! A node says for which semaphore its thread waits. **Source.** POSIX.1-2017, `sem_*`. The list and its order: Dice,
//! *Malthusian Locks*, EuroSys 2017, §6.11 ([`Order`](crate::machine::order::Order)). Permits go to the thread that
//! takes them first, as in glibc's semaphore. That keeps a semaphore that is used as a mutex from passing from sleeper
//! to sleeper. A waiter announces itself before it looks for the last time, as in Franke, Russell and Kirkwood, *Fuss,
//! Futexes and Furwocks*, OLS 2002.
//!
//! ## State
//! | `word` | meaning |
//! |---|---|
//! | n < 2^31 | n permits, and no waiter has announced itself: as in glibc |
//! | [`QUEUED`], n | waiters may have announced themselves; n < 2^29 permits |
//! | [`QUEUED`], [`BUSY`], n | the same, and a thread is *at the list*: it alone touches the list |
//! | [`QUEUED`], [`NEWS`], n | the same (BUSY or not), and there may be waiters to call that are not in the list |
//!
//! ```text
//!   head ─> [NOTIFIED] <─> [CALLED] <─> [ABANDONED] <─> [WAITS] <─> [WAITS] <─ tail     strays: [WAITS]  [CALLED]
//!           on its way  being woken  left behind     asleep      asleep                     asleep   being woken
//! ```
//! The states of a node are in [`call`](super::call). A **stray** is a waiter that found another thread at the list,
//! and sleeps without being in it. The next thread at the list puts strays into it.
//!
//! ## Invariants
//! 1. Only the thread that has set [`BUSY`] touches the list, and LISTED in a node's state, until it clears BUSY. No
//!    thread waits for BUSY to be cleared for longer than a spin budget.
//! 2. A waiter sleeps only after it has announced itself. For that, it sets its state to WAITS, with a new generation.
//!    Then it changes `word` (if only to the value that it had), in a step in which there was no permit and QUEUED was
//!    set. If its node was not in the list then, or another thread was at the list, that step also sets NEWS; unless
//!    the waiter is about to put itself into the list, and so sets BUSY.
//! 3. The thread at the list clears NEWS before it looks for waiters that are not in the list, and does not leave while
//!    NEWS is set. QUEUED is cleared only together with BUSY, by a thread that has found the list empty since NEWS was
//!    cleared.
//! 4. A waiter becomes CALLED only by a post (or by a thread that passes a call on) whose permit is already visible. It
//!    becomes NOTIFIED when it has been woken after that, or has noticed. A state that is not WAITS changes back only
//!    when the waiter announces itself anew, with another generation.
//! 5. A node is in the list iff its state says LISTED. The node of a waiter that leaves is its own if it is not LISTED.
//!    If it is, the waiter takes it out, or leaves it there, ABANDONED, for the thread at the list to give back.
//! 6. A post touches the semaphore for the last time in the step that makes its permit visible; afterwards it touches
//!    only nodes. Until then the post is under way, and nobody may destroy its semaphore. A wait touches the semaphore
//!    only until it returns.
//! 7. In a forked child a list from before the fork belongs to nobody ([`settle`](crate::parts::settle)). It is
//!    dropped, with everything that stopped threads were doing, but not the permits.
//!
//! ## No permit is left beside a sleeping waiter
//! **Theorem.** Let any number of threads be stopped, each at any instruction of a post or a wait. When all others have
//! come to rest, and a waiter that is not stopped sleeps, there are at most as many permits as there are posts that are
//! stopped, plus waiters that were called and then stopped. (Those permits are left in glibc's semaphore, too.) So n
//! posts let n waiters go on, if n or more of the waiters run.
//!
//! **Proof.** Let t be the last moment at which there was no permit. There was such a moment, by 2, because a waiter
//! sleeps. Take a post that came to its end and whose permit became visible after t. It ended in one of three ways.
//!
//! (a) It has called a waiter that then ran: the waiter slept and was woken, or has noticed the call. That waiter
//! looked for a permit after it had noticed, so after t, and has taken one. Or it left before it noticed: then it looks
//! once more ([`Semaphore::served`], `give_up`), and takes a permit or calls another waiter. Or it was stopped since.
//!
//! (b) It was at the list, and the state of no node there was WAITS; or QUEUED was not set, because a thread had found
//! the list empty. NEWS was not set when its permit came. So by 2 and 3 every waiter that had announced itself was in
//! the list, CALLED or NOTIFIED, and all that were CALLED have been woken (`help`). Each of them looks for a permit,
//! after t, before it sleeps again. If by then it could have announced itself anew without seeing this permit, NEWS
//! would have been set, because a thread was at the list.
//!
//! (c) It has looked at all nodes, called any waiter whose state was WAITS, and woken any that was CALLED. A waiter
//! that announces itself later sees the permit, because both are changes of `word`. So every waiter looks for a permit,
//! after t, before it sleeps.
//!
//! After (b) and (c), in the end no waiter that had announced itself before sleeps; nor does one that did so after,
//! because there were permits. So all posts ended in (a), each with a waiter of its own (a generation is called once).
//! Each of these waiters has taken a permit since t, or was stopped. ∎
//!
//! Stopped threads cost time, though. While a thread is stopped at the list, each post looks at the nodes of all
//! threads, and waiters are not called in the order that was chosen. A waiter that is stopped when it is called costs
//! its post a spin budget.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | CAS of `word` that adds a permit | Release | the CAS that takes it | what was done before the post is seen after the wait. All changes are read-modify-writes, so it does not matter which permit |
//! | CAS of `word` that takes one | Acquire | that | |
//! | CAS of `word` that announces | AcqRel | the CAS that adds a permit, where QUEUED is set, AcqRel | one of the two comes first: the post sees the state WAITS, or the waiter the permit (2, 4) |
//! | CAS that sets [`BUSY`], or clears [`NEWS`] | Acquire | the CAS that clears [`BUSY`], or sets NEWS, Release | the list is as it was left; strays are seen |
//! | `state` to WAITS | Release | loads and CASes of it, Acquire | a thread that takes it for a waiter of this semaphore has seen what else is in the node |
//! | `state` to CALLED | AcqRel | loads and CASes of the waiter, Acquire | the waiter that notices sees the permit it was called for (4) |
//! | `state` to NOTIFIED, LEAVING, ABANDONED, or LISTED or not | AcqRel | loads of it, and failed CASes, Acquire | a thread that gives the node back or uses it again comes after those that used it before; and they hand on that the waiter was called |
//! | all else | Relaxed | – | protected by [`BUSY`], or a hint |

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::machine::copied::copied;
use crate::machine::event::Event;
use crate::machine::{Machine, Pause, Word};
use crate::parts::counted::about;
use crate::parts::settle::try_settle;
use crate::sem::call::call_one;

/// The largest number of permits.
pub const MOST: u32 = i32::MAX as u32;
/// Bit of `word`: waiters may have announced themselves.
pub(super) const QUEUED: u32 = 1 << 31;
/// Bit of `word`: a thread is at the list.
pub(super) const BUSY: u32 = 1 << 30;
/// Bit of `word`: there may be a waiter to call that is not in the list, or that announced itself again while a thread
/// was at the list.
pub(super) const NEWS: u32 = 1 << 29;
const PERMITS: u32 = NEWS - 1;
/// How often, and for how long (µs), a post waits for a thread that prepares a forked child's list. The post may have
/// interrupted that thread.
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
    pub(super) head: M::Word,
    pub(super) tail: M::Word,
    /// [`settle`](crate::parts::settle::settle)'s.
    pub(super) epoch: M::Word,
}

impl<M: Machine> SemQueue<M> {
    /// A list without waiters.
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

/// A semaphore: references to its two parts, which the caller places.
pub struct Semaphore<'a, M: Machine> {
    /// Permits and flags.
    pub(super) word: &'a M::Word,
    /// The list.
    pub(super) queue: &'a SemQueue<M>,
}

copied!(Semaphore<'_, M>);

impl<'a, M: Machine> Semaphore<'a, M> {
    /// The semaphore of these parts. `word` is its permits at first, at most [`MOST`].
    ///
    /// # Safety
    /// The two belong together. Since they were made, only functions of `Semaphore` have changed them.
    #[inline(always)]
    pub const unsafe fn new(word: &'a M::Word, queue: &'a SemQueue<M>) -> Self {
        Self { word, queue }
    }

    /// Its permits and flags, for tests.
    ///
    /// # Safety
    /// As for [`new`](Semaphore::new): the caller does not change it.
    pub const unsafe fn word(self) -> &'a M::Word {
        self.word
    }
}

impl<M: Machine> Semaphore<'_, M> {
    /// How many permits there are.
    pub fn value(self) -> u32 {
        permits(self.word.load(Relaxed))
    }

    /// n + 1 -> n. Returns whether there was a permit.
    #[inline(always)]
    pub fn try_wait(self) -> bool {
        about::<M, _, _>(self.word, || {
            let seen = self.word.load(Relaxed);
            let none_queued = (1..=MOST).contains(&seen);
            let taken =
                none_queued && self.word.compare_exchange(seen, seen - 1, Acquire, Relaxed).is_ok() || self.take();
            if taken {
                M::trace(Event::SemAcquire);
            }
            taken
        })
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

    /// Adds a permit, and calls a waiter if there is one. It never waits for another thread without a bound. It may be
    /// called in a signal handler that has interrupted any of these functions.
    #[inline(always)]
    pub fn post(self) -> Result<(), Overflow> {
        about::<M, _, _>(self.word, || {
            let seen = self.word.load(Relaxed);
            // No waiter is queued, and there is room.
            if seen < MOST && self.word.compare_exchange(seen, seen + 1, Release, Relaxed).is_ok() {
                M::trace(Event::SemPost);
                return Ok(());
            }
            self.post_slow()
        })
    }

    #[cold]
    fn post_slow(self) -> Result<(), Overflow> {
        let (mut tries, mut settled) = (0, true);
        while has_list(self.word.load(Relaxed)) {
            settled = try_settle::<M>(&self.queue.epoch, || self.drop_list());
            if settled || tries == SETTLE_TRIES {
                break;
            }
            M::pause(Pause::Nap(SETTLE_PAUSE));
            tries += 1;
        }
        loop {
            let seen = self.word.load(Relaxed);
            // One permit is left for the thread at the list to add.
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

    /// The address by which its waiters' nodes name it.
    pub(super) fn address(self) -> u64 {
        core::ptr::from_ref(self.word) as u64
    }

    /// Calls a waiter if there is a permit: the calling thread was called, and takes none.
    pub(super) fn pass_on(self) {
        if permits(self.word.load(Relaxed)) > 0 {
            call_one::<M>(self.address(), 0, false);
        }
    }

    /// The semaphore is not used any more: gives back the nodes that waiters have left behind.
    pub fn destroy(self) {
        if has_list(self.word.load(Relaxed)) && self.queue.epoch.load(Acquire) == M::epoch() && self.try_enter() {
            self.leave(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::bench::Bench;
    use crate::machine::node::state;
    use crate::machine::{Handle, Memory as _};
    use crate::parts::queue::link::Link;
    use crate::sem::call::{LISTED, prepare};

    /// Nodes that wait, in a lock's queue (then their state is PARKED) or for the semaphore, each linked to the next.
    fn linked<const N: usize>(semaphore: &Semaphore<'_, Bench>, states: [u32; N]) -> [Handle; N] {
        let nodes = states.map(|state| {
            // SAFETY: no other thread is there, and no node is given back.
            let handle = unsafe { Bench::take_node() };
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

    /// The first waiter of the list has left since the head was read, and waits for a lock.
    #[test]
    fn a_post_bears_with_nodes_that_serve_elsewhere_by_now() {
        let (word, queue) = (Word::new(QUEUED | BUSY), SemQueue::<Bench>::new());
        let semaphore = Semaphore { word: &word, queue: &queue };
        let [gone, _, asleep] = linked(&semaphore, [state::PARKED, state::PARKED, state::WAITS | LISTED]);
        asleep.node::<Bench>().next.store(gone.word(), Relaxed);
        queue.head.store(gone.word(), Relaxed);
        assert_eq!(semaphore.post(), Ok(()));
        assert_eq!((word.load(Relaxed), state_of(asleep)), (QUEUED | BUSY | 1, state::NOTIFIED | LISTED));
        // No waiter can be woken: the post does not go round for ever.
        assert_eq!((semaphore.post(), semaphore.value()), (Ok(()), 2));
    }

    /// A node that has waited here keeps the semaphore's address. In whatever state it serves elsewhere, no thread
    /// takes it for a waiter.
    #[test]
    fn nodes_that_have_waited_here_are_left_alone() {
        let (word, queue) = (Word::new(QUEUED), SemQueue::<Bench>::new());
        let semaphore = Semaphore { word: &word, queue: &queue };
        let ours = [state::WAITS, state::CALLED];
        for other in state::ALL.iter().copied().filter(|state| !ours.contains(state)) {
            let handle = linked(&semaphore, [other])[0];
            queue.head.store(0, Relaxed);
            queue.tail.store(0, Relaxed);
            semaphore.adopt(handle);
            assert_eq!((state_of(handle), queue.head.load(Relaxed)), (other, 0));
            call_one::<Bench>(semaphore.address(), handle.word(), true);
            call_one::<Bench>(semaphore.address(), handle.word(), false);
            assert_eq!(state_of(handle), other);
        }
    }

    /// A thread was stopped at the list, and the list does not lead to the waiters.
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
        // Waiters that were called are woken when no other waiter is left.
        assert!(called.iter().all(|&handle| state_of(handle) == state::CALLED));
        assert_eq!(semaphore.post(), Ok(()));
        assert!(called.iter().all(|&handle| state_of(handle) == state::NOTIFIED));
        assert!(elsewhere.iter().all(|&handle| state_of(handle) == state::WAITS));
    }
}
