//! # Whose turn it is
//!
//! A server has a pool of servicing threads, its *workers*. One of them has the turn. When that one is stuck in a
//! section, the manager elects another one: a free worker, or else a new one that it asks the runtime for. A worker
//! that leaves its section without the turn becomes free, and sleeps.
//!
//! ## The word
//! ```text
//! | bits  | meaning                                                                                   |
//! |-------|-------------------------------------------------------------------------------------------|
//! | 0–11  | the worker with the turn: its number plus one; 0: none, the first that comes takes it;    |
//! |       | 4095: the manager stands in (`stand_in`)                                                  |
//! | 12    | REVOKING: the manager is about to see whether that worker is in a section                 |
//! | 13    | CLOSED: no worker will have the turn any more                                             |
//! | 16–27 | the last of the free workers, plus one; the others follow by their `next`                 |
//! ```
//! ```text
//!   (W)      ── manager ──> (W, REVOKING) ── W is between sections ──> (W)
//!                                         ── W is inside, F is free ─> (F)     F is woken
//!                                         ── W is inside, none is free ─> (0)  a thread is to be made
//!   (0)      ── a worker comes ──> (that worker)
//!   (0)      ── no thread can be made ──> (manager) ── it has granted ─> (0), or (F) if F has come meanwhile
//!                                                   ── it has closed the server ─> CLOSED
//!   (W)      ── another worker comes ──> (W), and that one is on the list
//! ```
//!
//! ## Invariants
//! 1. Only the manager takes workers off the list, and there is one manager. So a worker on the list stays there until
//!    the manager takes it, and its `next` stays as it is. Others may come before it. If the manager's exchange
//!    succeeds, the worker that it has seen first still is. (When the server is closed, all are woken.)
//! 2. While no worker has the turn, the list is empty.
//! 3. `at` is odd while the worker is inside a section. Then the worker changes no lock of the server, except the lock
//!    that it holds.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::names::EACH;
use super::server::{Server, mark};
use super::worker::{HOLDER, MANAGER};
use crate::machine::{Machine, Patience, Word};
use crate::parts::naps::nap_longer;

/// How long (µs) a client first naps while a server is being closed.
const BREAK: u32 = 10;

const REVOKING: u32 = 1 << 12;
const CLOSED: u32 = 1 << 13;
const FREE: u32 = 16;

const fn holder(turn: u32) -> Option<u32> {
    (turn & HOLDER).checked_sub(1)
}

const fn first_free(turn: u32) -> Option<u32> {
    (turn >> FREE).checked_sub(1)
}

/// The word with that worker and no mark, and the same list.
const fn given(turn: u32, to: Option<u32>) -> u32 {
    let to = match to {
        Some(worker) => worker + 1,
        None => 0,
    };
    turn & !(HOLDER | REVOKING) | to
}

/// What the manager remembers from one look to the next.
#[derive(Debug, Default)]
pub struct Watch {
    /// The worker that had the turn, where it was (`at`), and when that was seen first.
    seen: Option<((u32, u32), u64)>,
}

impl Watch {
    /// Whether that worker has been there for as long as the time-out. Both times are in the same unit.
    fn is_stuck(&mut self, worker: (u32, u32), now: u64, timeout: u64) -> bool {
        match self.seen {
            Some((seen, since)) if seen == worker => now.saturating_sub(since) >= timeout,
            _ => {
                self.seen = Some((worker, now));
                false
            }
        }
    }
}

/// What the manager found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The worker with the turn makes progress, or has nothing to do.
    Fine,
    /// It was stuck in a section. This worker has the turn now.
    Elected(u32),
    /// It is stuck, and no other worker is free. The first worker that comes takes the turn. A thread should be made;
    /// if none can be, the manager [stands in](Server::stand_in).
    Wanted,
}

fn is_inside(at: u32) -> bool {
    at % 2 == 1
}

impl<M: Machine> Server<'_, M> {
    /// The worker that has the turn; it may change at any time. `None`, too, if the manager has it.
    pub fn serving(&self) -> Option<u32> {
        holder(self.head.turn.load(Acquire)).filter(|&worker| worker != MANAGER)
    }

    /// Whether this worker has the turn.
    #[inline(always)]
    pub(super) fn has_turn(&self, me: u32) -> bool {
        self.head.turn.load(Acquire) & (HOLDER | REVOKING) == me + 1
    }

    /// Waits while the manager decides whether this worker keeps the turn. Returns whether it does.
    pub(super) fn keeps_turn(&self, me: u32) -> bool {
        let decided = |turn| turn & (HOLDER | REVOKING) != (me + 1) | REVOKING;
        let turn = M::spin_until(&self.head.turn, Acquire, Patience::Forever, decided);
        turn.is_some_and(|turn| turn & HOLDER == me + 1)
    }

    /// A worker that is outside of sections waits for the turn. False: the server is closed, and the thread may end.
    pub fn await_turn(&self, me: u32) -> bool {
        let (turn, worker) = (&self.head.turn, &self.workers[me as usize]);
        loop {
            let seen = turn.load(Acquire);
            if seen & CLOSED != 0 {
                return false;
            }
            if holder(seen) == Some(me) {
                if self.keeps_turn(me) {
                    return true;
                }
                continue;
            }
            if holder(seen).is_none() {
                if turn.compare_exchange(seen, given(seen, Some(me)), AcqRel, Relaxed).is_ok() {
                    return true;
                }
                continue;
            }
            let bed = worker.bed.load(Relaxed); // Changes only while this worker is on the list.
            worker.next.store(seen >> FREE, Relaxed);
            let listed = seen & ((1 << FREE) - 1) | (me + 1) << FREE;
            if turn.compare_exchange(seen, listed, AcqRel, Relaxed).is_ok() {
                while worker.bed.load(Acquire) == bed {
                    M::park(&worker.bed, bed, None);
                }
            }
        }
    }

    /// A worker announces that it waits inside a section for something of this library, or that it no longer does. A
    /// hint: it makes the next election come sooner.
    pub(super) fn set_blocked(&self, me: u32, blocked: bool) {
        self.workers[me as usize].blocked.store(u32::from(blocked), Relaxed);
    }

    /// Wakes a worker that was taken off the list.
    fn rouse(&self, worker: u32) {
        let bed = &self.workers[worker as usize].bed;
        bed.fetch_add(1, Release);
        M::wake(&raw const *bed, 1);
    }

    /// The manager's look, at that time. If the worker with the turn has been seen in one section for as long as the
    /// time-out, or announces that it is blocked in one, it loses the turn. One thread at a time may call this.
    pub fn look(&self, watch: &mut Watch, now: u64, timeout: u64) -> Look {
        let seen = self.head.turn.load(Acquire);
        if seen & CLOSED != 0 {
            return Look::Fine;
        }
        let Some(at_turn) = holder(seen) else { return Look::Wanted };
        let worker = &self.workers[at_turn as usize];
        let at = worker.at.load(Acquire);
        let long = watch.is_stuck((at_turn, at), now, timeout);
        let stuck = is_inside(at) && (long || worker.blocked.load(Relaxed) != 0);
        if stuck { self.revoke(at_turn) } else { Look::Fine }
    }

    /// The worker that was seen to have the turn loses it, if it is inside a section: (W) -> (W), (F) or (0). The
    /// page's invariants 2 and 3. One thread at a time may call this, [`look`](Server::look) or `stand_in`.
    pub fn revoke(&self, at_turn: u32) -> Look {
        let turn = &self.head.turn;
        if turn.fetch_or(REVOKING, AcqRel) & CLOSED != 0 {
            return Look::Fine;
        }
        M::heavy_fence();
        let worker = &self.workers[at_turn as usize];
        let inside = is_inside(worker.at.load(Acquire));
        if inside {
            let slot = worker.slot.load(Relaxed); // Written before `at`.
            self.head.first.store(slot + 1, Relaxed); // Published by `turn`.
            self.busy[(slot / EACH) as usize].fetch_or(mark(slot), Relaxed); // Published by `turn`.
        }
        if inside {
            return self.pass_on();
        }
        loop {
            let seen = turn.load(Acquire);
            if turn.compare_exchange(seen, given(seen, Some(at_turn)), AcqRel, Relaxed).is_ok() {
                return Look::Fine;
            }
        }
    }

    /// Passes the turn on: (·) -> (F), or (0) if no worker is free. By the manager.
    fn pass_on(&self) -> Look {
        let turn = &self.head.turn;
        loop {
            let seen = turn.load(Acquire);
            let free = first_free(seen);
            let new = match free {
                Some(first) => {
                    let next = self.workers[first as usize].next.load(Relaxed);
                    given(seen, free) & ((1 << FREE) - 1) | next << FREE
                }
                None => given(seen, None),
            };
            if turn.compare_exchange(seen, new, AcqRel, Relaxed).is_ok() {
                return match free {
                    Some(first) => {
                        self.rouse(first);
                        Look::Elected(first)
                    }
                    None => Look::Wanted,
                };
            }
        }
    }

    /// All workers are in sections, and no thread can be made. A section may end only after it has been granted a lock,
    /// which needs no worker: the manager takes the turn, and [grants](Server::grant). It closes the server, if it is
    /// to be closed. (0) -> (manager) -> (0), (F) or closed. The manager calls this at each look at which a worker is
    /// wanted and none can be made. One thread at a time may call this, [`look`](Server::look) or `revoke`.
    pub fn stand_in(&self) -> Look {
        let turn = &self.head.turn;
        let seen = turn.load(Relaxed); // The exchange checks it.
        let is_free = seen & CLOSED == 0 && holder(seen).is_none();
        // AcqRel, as each exchange of `turn`: this thread sees what earlier holders of the turn did; the next
        // holder sees the grants.
        if !is_free || turn.compare_exchange(seen, given(seen, Some(MANAGER)), AcqRel, Relaxed).is_err() {
            return Look::Fine; // A worker has come.
        }
        if self.is_closing() {
            self.shut();
            return Look::Fine;
        }
        self.grant();
        self.pass_on()
    }

    /// Waits until no worker has the turn any more, where the one that had it has begun to close the server.
    pub(super) fn await_closing(&self) {
        let closed = |turn| turn & CLOSED != 0;
        let mut nap = BREAK;
        while M::spin_until(&self.head.turn, Acquire, Patience::Budget, closed).is_none() {
            nap_longer::<M>(&mut nap, None);
        }
    }

    /// (me) -> closed. All free workers are woken, and end.
    pub(super) fn close_turn(&self) {
        let mut free = first_free(self.head.turn.fetch_or(CLOSED, AcqRel));
        while let Some(worker) = free {
            free = self.workers[worker as usize].next.load(Relaxed).checked_sub(1);
            self.rouse(worker);
        }
    }
}

/// Makes one of these threads the first of its priority in a FIFO queue of the scheduler, by having all others step
/// back.
///
/// `step_back` lowers a thread's priority, and may raise it again: then the thread is last. (Algorithm 3 does that to
/// the elected thread, and so makes it the last of all.)
pub fn elect_by_priority(workers: impl Iterator<Item = u32>, elected: u32, step_back: impl FnMut(u32)) {
    workers.filter(|worker| *worker != elected).for_each(step_back);
}
