//! # CC-Synch: a queue of requests; the first request's thread runs those of the others
//!
//! Threads queue their requests. The thread at the head of the queue runs its own request and a number of those behind
//! it.
//!
//! **Use it** when everything that is done under the lock is short, and many threads want it all the time. **Rather
//! not** when most requests find the lock free (each takes a node), or must be answered soon: the thread that combines
//! works for others before it goes on.
//!
//! **Problem.** Under a queue lock the protected data travel with the lock, from each waiter to the next. So does the
//! cache line of the hand-off. **Idea.** Let the data stay where they are. Threads queue what they want done, and the
//! thread at the head does it for a number of those behind it. Each of these finds its own request done when its wait
//! ends. Then the next thread takes over. **Source.** Fatourou & Kallimanis, *Revisiting the Combining Synchronization
//! Technique*, PPoPP 2012, algorithm 1.
//!
//! **Departures.** (1) "Free" is 0, not a node that nobody waits on. So all-zero is a free lock, and a free lock has no
//! node. A thread that finds the lock free runs its request without publishing it. (2) The nodes belong to the pool, as
//! all queue nodes do; a thread keeps none. (3) A node carries the address of the request, and the answer is written at
//! that address. (4) A waiter may sleep after its spin budget.
//!
//! ## State, and the queue
//! ```text
//! | tail | meaning                                   |     tail ───────────────────────────────────────┐
//! |------|-------------------------------------------|                                                 v
//! | 0    | free                                      |     (combiner, has run A) ─> [B] ──next─> [C] ──> [ ]
//! | node | a thread combines, or is about to; the    |                              WAITING      PARKED  WAITING
//! |      | node carries no request yet               |                              B's request  C's     none yet
//! ```
//! A thread that joins leaves an empty node at the tail, and writes its request into the node that it finds there. So
//! `tail` names a node before that node carries a request.
//!
//! ## A node
//! ```text
//!   WAITING | PARKED ── its request was run ──> SERVED: its thread gives it back
//!   WAITING | PARKED ── it is its turn ───────> HEAD: its thread runs its own request and combines
//!                                                   (the request may not have been written yet)
//!   WAITING ── the last of the queue, empty ──> given back by the combiner, with tail -> 0
//! ```
//!
//! ## Invariants
//! 1. There is at most one combiner: the thread that found `tail` 0, or HEAD in its node. Only it runs requests.
//! 2. The combiner knows the first node that was not served. From there `next` leads to the tail, except where a thread
//!    that has joined has not yet written `next`.
//! 3. A node's request and `next` are written by the one thread that found the node in `tail`, request first. The
//!    combiner runs the request after it has seen `next`.
//! 4. Once a node is SERVED or HEAD, the combiner does not touch it: it only wakes the node's address. The node's
//!    thread gives it back.
//! 5. After HEAD is stored, or `tail` set to 0, the former combiner does not touch the lock.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `tail` swap | AcqRel | itself; `tail` CAS -> 0 | publishes the empty node; sees the last section if the lock was free |
//! | `tail` CAS node -> 0 | Release | `tail` swap of the next thread | hands on all sections |
//! | `next` store / load | Release / Acquire | each other | the request must be seen, and what it refers to |
//! | `state` -> SERVED, HEAD | Release | the load in `wait::notified`, Acquire | the answer; all sections so far |
//!
//! **Cannot:** do what no [closure lock](super) can. The order is first come, first served. While the combiner does not
//! run, no request is run.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::{RawClosure, Request, answer, publish, serve};
use crate::machine::node::state;
use crate::machine::{Handle, Machine, Word};
use crate::parts::counted::contended_patient;
use crate::parts::wait::{self, SpinThenPark, WaitPolicy};

/// How many requests a combiner runs, its own included, before another thread takes over (`h` in the paper).
const BOUND: u32 = 64;

/// The CC-Synch lock; waiters wait by policy `W`, and a combiner runs up to `H` requests, at least 1.
pub struct CcSynch<W: WaitPolicy = SpinThenPark, const H: u32 = BOUND>(PhantomData<W>);

/// Its state: 4 bytes.
#[repr(C)]
pub struct CcSynchState<M: Machine> {
    /// The node that the next request goes into, or 0.
    pub tail: M::Word,
}

crate::zeroed!(CcSynchState<M> { tail });

impl<W: WaitPolicy, const H: u32> CcSynch<W, H> {
    /// (`me` published) -> answered. True if another thread ran the request. If false, the caller runs it, and
    /// combines.
    #[cold]
    fn wait<M: Machine>(me: Handle) -> bool {
        let is_notified = |seen| matches!(seen, state::SERVED | state::HEAD);
        // Without a deadline it cannot time out.
        contended_patient::<M, _>(|| wait::notified::<M, W>(me.node(), None, is_notified)) == Ok(state::SERVED)
    }

    /// (combiner, one request run) -> free, or another thread combines. `here`: the first node that was not served.
    fn combine<M: Machine>(lock: &CcSynchState<M>, mut here: Handle) {
        let mut served = 1;
        while let Some(next) = Handle::from_word(here.node::<M>().next.load(Acquire)) {
            let node = here.node::<M>();
            if served >= H {
                return answer::<M, W>(node, state::HEAD);
            }
            // SAFETY: published, as `next` says, and not run yet (invariants 2 and 3). This thread is the combiner
            // (invariant 1).
            unsafe { serve::<M>(node) };
            answer::<M, W>(node, state::SERVED);
            (here, served) = (next, served + 1);
        }
        if lock.tail.compare_exchange(here.word(), 0, Release, Relaxed).is_ok() {
            return M::give_node(here);
        }
        // Another thread has found this node in `tail`, and is about to write its request into it.
        answer::<M, W>(here.node(), state::HEAD);
    }
}

// SAFETY: (1) is invariant 1; (2) is what `wait` waits for; (3) is `H`.
unsafe impl<M: Machine, W: WaitPolicy, const H: u32> RawClosure<M> for CcSynch<W, H> {
    type State = CcSynchState<M>;

    /// 0 -> an empty node -> 0; or joins the queue.
    unsafe fn serve(lock: &CcSynchState<M>, request: *mut Request) {
        // SAFETY: its life in the queue is that of invariants 2 to 4.
        let empty = unsafe { M::take_node() };
        empty.node::<M>().prepare(state::WAITING);
        if let Some(me) = Handle::from_word(lock.tail.swap(empty.word(), AcqRel)) {
            let node = me.node::<M>();
            // SAFETY: this thread found the node in `tail` (invariant 3); `run` was called with the request.
            unsafe { publish(node, request) };
            node.next.store(empty.word(), Release);
            let served = Self::wait::<M>(me);
            M::give_node(me);
            if served {
                return;
            }
        }
        // SAFETY: the callers' promise; no other thread runs it, and this thread is the combiner (invariant 1).
        unsafe { Request::act(request) };
        Self::combine(lock, empty);
    }
}
