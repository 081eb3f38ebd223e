//! # A condition variable as a queue of nodes
//!
//! Waiters queue, each with a node, and a signal wakes the first of them. It stands behind `pthread_cond_*`.
//!
//! **Problem.** Wake exactly one waiter per signal, in order. Lose no signal to a waiter that gives up. After a
//! broadcast, do not let all waiters contend for the mutex at once. Let the object be destroyed as soon as no thread is
//! blocked on it. **Idea.** Waiters queue in nodes of the pool, and each sleeps on its own word. A signal takes the
//! first waiter off the queue. A broadcast takes all waiters off, and hands them to the mutex's lock as a [`Chain`];
//! they go on sleeping there (*wait morphing*). **Source.** POSIX.1-2017, `pthread_cond_*`. The destruction protocol is
//! that of glibc's condition variable: a count of references, and the destroyer waits for it. The order in which
//! signals call the waiters can be chosen ([`Order`](crate::machine::order::Order)): first in, first out (the default),
//! or mostly last in, first out (Dice, *Malthusian Locks*, §6.10 and 6.11). A broadcast takes the queue as it is.
//!
//! ## A signal by the holder of the mutex
//! A waiter that is woken while the mutex is held wakes up in vain: it must sleep again until the mutex is released,
//! and on a busy machine it takes the CPU from the holder meanwhile. So if the thread that signals holds the waiter's
//! mutex, it takes the waiter off the queue, and *defers* the wake-up to its release of the mutex ([`Defer`]). The
//! waiter could not have returned before that release, so a program cannot tell, with one exception. A thread may
//! destroy the condition variable before the release, because no thread is blocked on it any more. It must not wait for
//! the waiter, which waits for the mutex, which that thread may hold itself. So it takes the deferred waiter back
//! ([`Defer::recall`]), and wakes it. A broadcast to [few](crate::parts::raw::RawLock::FEW) waiters defers all of them
//! together. The first is deferred as by a signal, and the others are linked behind it. A mutex has room for one
//! waiter, or for those of one broadcast, and so has a condition variable.
//! **Source.** Other implementations move the waiter to the mutex's queue in this case (`absl::Mutex`, nsync,
//! `parking_lot`). Here the mutex may be any lock, and may have no queue.
//!
//! ## State: 24 bytes
//! | word | meaning |
//! |---|---|
//! | `lock` | an internal [`Futex`], held for a few instructions; taken only in a process whose epoch is in `epoch` |
//! | `head`, `tail` | the queue, linked both ways; protected by `lock` |
//! | `refs` | waiters that may still touch this object, and [`DESTROYING`] |
//! | `epoch` | the machine's epoch when the queue was last used: see [`settle`] |
//! | `deferred` | the waiter whose wake-up is deferred, or the first of them; protected by `lock` |
//!
//! ## Invariants
//! 1. A node is in the queue iff it is QUEUED or LEAVING. That changes under `lock`, except QUEUED -> LEAVING. A
//!    CLAIMED node belongs to the claimer until it stores SIGNALED or PARKED; or, in a lock's queue, until it hands the
//!    node on to the thread that makes it HEAD.
//! 2. Each waiter holds one reference from `enqueue` until it has finished with this object. A broadcast gives the
//!    references of its waiters back, and those waiters never look here again. The exception is a waiter in `deferred`.
//! 3. A signal counts only on a node that it has changed from QUEUED to CLAIMED. A waiter gives up only by QUEUED ->
//!    LEAVING. One of the two wins, so no signal is lost to a waiter that times out or is cancelled. A waiter that is
//!    cancelled *after* it was signalled passes the signal on, which its reference makes safe.
//! 4. After `lock` is released, a signaller touches only nodes and futex addresses. So does a waiter after its
//!    reference is given back. So the object may be destroyed, and freed, once `destroy` returns.
//! 5. In a forked child, the work of the other threads may have stopped at any point: `lock` may be held, a node half
//!    linked, a reference given to no thread. The first use there resets all of that before any thread follows a link
//!    or takes `lock`. A wait that goes on in the child (its thread forked in a signal handler) is no longer in the
//!    queue; its node's epoch shows that.
//! 6. A node in `deferred` is CLAIMED or SIGNALED, and its waiter still has its reference and does not have its mutex:
//!    it clears `deferred` before it gives the reference back, and acquires the mutex after that. So a thread that
//!    finds or leaves a node there may access the mutex while it has `lock`. Either the release of the mutex takes the
//!    waiter, or the destroyer does; the mutex decides which.
//!
//! ## Orderings
//! `lock` protects everything, except:
//! - `state`: CLAIMED -> SIGNALED, Release / Acquire, although what the signaller hands over goes through the mutex;
//! - `refs`: AcqRel, so that the destroyer sees the last waiter done;
//! - the look at `head` in `signal`: Relaxed, because a waiter that must be seen has queued under the mutex that the
//!   signaller has held since;
//! - the look at `deferred` in `claimed`: Relaxed. A waiter that must see its own handle there has read SIGNALED, which
//!   was stored after it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::cond::deferral::{AtOnce, Defer};
use crate::machine::event::Event;
use crate::machine::node::{Node, state};
use crate::machine::{Deadline, Handle, Machine, Patience, Unparked, Word};
use crate::mutex::spin::Futex;
use crate::parts::adoption::{Chain, claimed, signal, signal_all, until_notified};
use crate::parts::counted::about;
use crate::parts::list::List;
use crate::parts::policy::{Admission, Chosen};
use crate::parts::settle::settle;

/// Bit of `refs`: the destroyer waits for the others to leave.
const DESTROYING: u32 = 1 << 31;
/// Value of a node's `prev` once a broadcast has taken the node off, and given its reference back (invariant 2). It is
/// 0 if a signal has taken the node off, and the node's own handle if it is the first waiter of a deferred broadcast.
const BY_BROADCAST: u32 = Handle::RESERVED;

/// The condition variable's state; all-zero is valid.
#[repr(C)]
pub struct CondQueue<M: Machine> {
    lock: M::Word,
    head: M::Word,
    tail: M::Word,
    refs: M::Word,
    epoch: M::Word,
    deferred: M::Word,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Signalled: acquire the mutex, then call [`pass_baton`](crate::parts::adoption::pass_baton) with what this holds.
    Signaled(Option<Handle>),
    /// Moved to the mutex's lock by a broadcast: finish with
    /// [`RawLock::lock_adopted`](crate::parts::raw::RawLock::lock_adopted).
    Moved(Handle),
    /// The deadline has passed, and no signal was consumed.
    TimedOut,
}

/// What a broadcast does with the waiters of a mutex, which is named by its address.
///
/// # Safety
/// `adopt` does no more with the chain than it says, or [lets it go](Chain::hand_over_hand).
pub unsafe trait Morph {
    /// At most so many waiters are deferred together, [as the lock wants](crate::parts::raw::RawLock::FEW).
    fn few(&self) -> u32;

    /// [`RawLock::adopt`](crate::parts::raw::RawLock::adopt) of the mutex's lock.
    fn adopt(&self, mutex: u64, chain: Chain);
}

/// A thread still waits: the object cannot be destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

fn mutex_of<M: Machine>(node: &Node<M>) -> u64 {
    u64::from(node.mutex[0].load(Relaxed)) | u64::from(node.mutex[1].load(Relaxed)) << 32
}

impl<M: Machine> CondQueue<M> {
    /// A condition variable without waiters.
    pub fn new() -> Self {
        let zero = || M::Word::new(0);
        Self { lock: zero(), head: zero(), tail: zero(), refs: zero(), epoch: zero(), deferred: zero() }
    }

    /// Takes `lock`. Returns the epoch whose waiters are in the queue.
    fn enter(&self) -> u32 {
        let epoch = settle::<M>(&self.epoch, || {
            for word in [&self.lock, &self.head, &self.tail, &self.refs, &self.deferred] {
                word.store(0, Relaxed); // Invariant 5.
            }
        });
        // The critical sections are a few instructions: poll a little before sleeping.
        let free = |seen| seen == 0 && self.lock.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        if M::spin_until(&self.lock, Relaxed, Patience::Budget, free).is_none() {
            Futex::lock_uncounted::<M>(&self.lock);
        }
        epoch
    }

    fn leave(&self) {
        Futex::unlock_uncounted::<M>(&self.lock);
    }

    /// Queues the calling thread, which holds the mutex at address `mutex`. (0: a mutex that is none of our locks, or
    /// that the thread goes on holding.) The caller then releases the mutex and calls [`CondQueue::wait`].
    ///
    /// # Safety
    /// The calling thread passes the handle to [`wait`](CondQueue::wait), [`wait_with`](CondQueue::wait_with) or
    /// [`cancel`](CondQueue::cancel) of this queue, once, or before that to [`withdraw`](CondQueue::withdraw), which
    /// ends the wait if it returns true. It does with the [`Outcome`] as that says, and nothing else with the handle.
    pub unsafe fn enqueue(&self, mutex: u64) -> Handle {
        about::<M, _, _>(self, || M::trace(Event::CondWait));
        // SAFETY: its life in the queue is that of invariants 1 and 3; the callers keep the rest of it.
        let me = unsafe { M::take_node() };
        let node = me.node::<M>();
        node.prepare(state::QUEUED);
        node.role.store(Chosen::role::<M>(), Relaxed); // For the mutex's queue, if it is moved there.
        node.generation.store(node.generation.load(Relaxed).wrapping_add(1), Relaxed);
        node.mutex[0].store(mutex as u32, Relaxed);
        node.mutex[1].store((mutex >> 32) as u32, Relaxed);
        node.epoch.store(self.enter(), Relaxed); // A fork may have come since `prepare`.
        self.list().link(me, M::tunables().cond_order.prepends::<M>());
        self.refs.fetch_add(1, Relaxed);
        self.leave();
        me
    }

    /// The queue; under `lock`.
    fn list(&self) -> List<'_, M> {
        List { head: &self.head, tail: &self.tail }
    }

    /// Takes the first QUEUED node at or behind `from` out of the queue, QUEUED -> CLAIMED; under `lock`.
    fn claim(&self, from: u32) -> Option<Handle> {
        let mut here = from;
        while let Some(handle) = Handle::from_word(here) {
            let node = handle.node::<M>();
            // It fails for a node that is LEAVING: that one unlinks itself as soon as it gets `lock`.
            if node.state.compare_exchange(state::QUEUED, claimed(node), Relaxed, Relaxed).is_ok() {
                self.list().unlink(node);
                return Some(handle);
            }
            here = node.next.load(Relaxed);
        }
        None
    }

    /// Gives references back; the object is not touched afterwards (invariant 4).
    fn release_refs(&self, count: u32) {
        let refs: *const M::Word = &raw const self.refs;
        if self.refs.fetch_add(count.wrapping_neg(), AcqRel) == DESTROYING | count {
            M::wake(refs, u32::MAX);
        }
    }

    /// Sleeps until signalled, moved, or the deadline has passed.
    pub fn wait(&self, me: Handle, until: Option<Deadline>) -> Outcome {
        self.wait_with(me, |word, expected| M::park(word, expected, until))
    }

    /// [`CondQueue::wait`] with another way to [`Waiting::park`](crate::machine::Waiting::park), which may end the wait
    /// by not returning. The clean-up then calls [`CondQueue::cancel`].
    pub fn wait_with(&self, me: Handle, mut park: impl FnMut(&M::Word, u32) -> Unparked) -> Outcome {
        let node = me.node::<M>();
        while node.state.load(Acquire) == state::QUEUED {
            if park(&node.state, state::QUEUED) == Unparked::TimedOut && self.withdraw(me) {
                return Outcome::TimedOut;
            }
        }
        self.claimed(me)
    }

    /// Waits until a claimed node is signalled or moved. Returns which.
    fn claimed(&self, me: Handle) -> Outcome {
        let node = me.node::<M>();
        if until_notified(node) != state::SIGNALED {
            return Outcome::Moved(me);
        }
        let is_alive = node.is_alive();
        let baton = if node.prev.load(Relaxed) == BY_BROADCAST {
            Handle::from_word(node.next.load(Relaxed)).filter(|_| is_alive)
        } else {
            if is_alive {
                if self.deferred.load(Relaxed) == me.word() {
                    self.enter();
                    self.deferred.store(0, Relaxed); // Invariant 6.
                    self.leave();
                }
                self.release_refs(1);
            }
            None
        };
        M::give_node(me);
        Outcome::Signaled(baton)
    }

    /// QUEUED -> LEAVING -> out of the queue. Returns whether that was still possible: then no signal was consumed, and
    /// the wait is over.
    pub fn withdraw(&self, me: Handle) -> bool {
        let node = me.node::<M>();
        if node.state.compare_exchange(state::QUEUED, state::LEAVING, Relaxed, Relaxed).is_err() {
            return false;
        }
        let queued = self.enter() == node.epoch.load(Relaxed);
        if queued {
            self.list().unlink(node);
        }
        self.leave();
        if queued {
            self.release_refs(1);
        }
        M::give_node(me);
        true
    }

    /// Ends the wait of a thread that is being cancelled. If it was signalled, the signal goes to the next waiter.
    pub fn cancel(&self, me: Handle) -> Outcome {
        if self.withdraw(me) {
            return Outcome::TimedOut;
        }
        let node = me.node::<M>();
        if until_notified(node) == state::SIGNALED && node.prev.load(Relaxed) == 0 {
            self.signal(&AtOnce); // This waiter's reference keeps the object alive (invariant 3).
        }
        self.claimed(me)
    }

    /// Wakes the first waiter, if there is one: at once, or when the calling thread releases the waiter's mutex.
    pub fn signal(&self, mutex: &impl Defer) {
        if self.head.load(Relaxed) == 0 {
            return;
        }
        self.enter();
        let first = self.claim(self.head.load(Relaxed));
        let deferred = first.is_some_and(|first| {
            first.node::<M>().prev.store(0, Relaxed);
            first.node::<M>().next.store(0, Relaxed); // No other is deferred with it.
            self.defer(first, mutex)
        });
        self.leave();
        if let Some(first) = first {
            about::<M, _, _>(self, || {
                M::trace(Event::CondSignal);
                if !deferred {
                    signal::<M>(first);
                }
            });
        }
    }

    /// Defers the wake-up of a CLAIMED waiter, and of those linked behind it, to the release of its mutex, if the
    /// calling thread holds that; under `lock`. Returns whether it did.
    fn defer(&self, waiter: Handle, mutex: &impl Defer) -> bool {
        if self.deferred.load(Relaxed) != 0 {
            return false;
        }
        self.deferred.store(waiter.word(), Relaxed); // Before: another thread may release the mutex at any moment.
        let deferred = mutex.defer(mutex_of(waiter.node::<M>()), waiter);
        if !deferred {
            self.deferred.store(0, Relaxed);
        }
        deferred
    }

    /// Takes the deferred waiter back, unless its mutex is just being released; under `lock`.
    fn recall(&self, mutex: &impl Defer) -> Option<Handle> {
        let waiter = Handle::from_word(self.deferred.load(Relaxed))?;
        // Invariant 6: its mutex exists.
        mutex.recall(mutex_of(waiter.node::<M>()), waiter).then_some(waiter)
    }

    /// Wakes all waiters. If they are many, only one at a time contends for their mutex. If they are few, and the
    /// calling thread holds the mutex, its release wakes them.
    pub fn broadcast(&self, morph: &impl Morph, mutex: &impl Defer) {
        if self.head.load(Relaxed) == 0 {
            return;
        }
        self.enter();
        let (mut first, mut last, mut count, mut is_one_mutex) = (None::<Handle>, None::<Handle>, 0, true);
        while let Some(waiter) = self.claim(self.head.load(Relaxed)) {
            let node = waiter.node::<M>();
            is_one_mutex &= first.is_none_or(|first| mutex_of(first.node::<M>()) == mutex_of(node));
            node.prev.store(BY_BROADCAST, Relaxed);
            node.next.store(0, Relaxed);
            match last {
                Some(last) => last.node::<M>().next.store(waiter.word(), Relaxed),
                None => first = Some(waiter),
            }
            last = Some(waiter);
            count += 1;
        }
        // Under `lock`, and the first keeps its reference: another thread may release the mutex at any moment, and the
        // first waiter, which must get `lock` before the mutex, may then free the mutex (invariant 6).
        let deferred = first.filter(|_| is_one_mutex && count <= morph.few()).is_some_and(|first| {
            first.node::<M>().prev.store(first.word(), Relaxed);
            let deferred = self.defer(first, mutex);
            if !deferred {
                first.node::<M>().prev.store(BY_BROADCAST, Relaxed);
            }
            deferred
        });
        self.leave();
        if let Some(first) = first {
            about::<M, _, _>(self, || {
                M::trace(Event::CondBroadcast);
                // These references keep the object alive up to here. From here on, this thread does not need it.
                let done = count - u32::from(deferred);
                if done != 0 {
                    self.release_refs(done);
                }
                if !deferred {
                    release_chain::<M>(first, morph);
                }
            });
        }
    }

    /// Waits until no thread will touch the object again. If threads are blocked on it, it fails without waiting.
    pub fn destroy(&self, mutex: &impl Defer) -> Result<(), Busy> {
        self.enter();
        let mut here = self.head.load(Relaxed);
        let mut blocked = false;
        while let Some(handle) = Handle::from_word(here) {
            blocked |= handle.node::<M>().state.load(Relaxed) == state::QUEUED;
            here = handle.node::<M>().next.load(Relaxed);
        }
        if blocked {
            self.leave();
            return Err(Busy);
        }
        let mut refs = self.refs.fetch_or(DESTROYING, AcqRel) | DESTROYING;
        let recalled = self.recall(mutex);
        self.leave();
        if let Some(waiter) = recalled {
            signal_all::<M>(waiter);
        }
        while refs != DESTROYING {
            M::park(&self.refs, refs, None);
            refs = self.refs.load(Acquire);
        }
        self.refs.store(0, Relaxed);
        Ok(())
    }
}

impl<M: Machine> Default for CondQueue<M> {
    fn default() -> Self {
        Self::new()
    }
}

/// Hands the waiters to the locks of their mutexes. Waiters whose mutex is none of our locks all go at once, as with
/// glibc. (All have one mutex, unless the program does what POSIX leaves undefined.)
fn release_chain<M: Machine>(first: Handle, morph: &impl Morph) {
    let mut rest = Some(first);
    while let Some(first) = rest {
        let mutex = mutex_of(first.node::<M>());
        let mut last = first;
        loop {
            rest = Handle::from_word(last.node::<M>().next.load(Relaxed));
            match rest {
                Some(next) if mutex_of(next.node::<M>()) == mutex => last = next,
                _ => break,
            }
        }
        last.node::<M>().next.store(0, Relaxed);
        let chain = Chain::new(first, last);
        if first == last || mutex == 0 {
            chain.scatter::<M>();
        } else {
            morph.adopt(mutex, chain);
        }
    }
}
