//! # flat-combining: a list of requests; the thread that holds the lock runs all of them
//!
//! Each thread publishes its request in a record. The lock holder runs the requests that it finds in all records.
//!
//! **Use it** when sections are short, and the same threads want the lock all the time. **Rather not** when the lock is
//! mostly free, because its holder looks at the records of all threads that have used it lately (ATC 2012, section 5.1
//! and figure 7); or when requests must be served in order.
//!
//! **Problem.** Under a lock that is handed from thread to thread, the protected data travel with it, and each hand-off
//! accesses cache lines that many threads want. **Idea.** Each thread publishes its request in a record of its own, and
//! looks at the lock only now and then. One of the threads acquires the lock and runs the requests that it finds in all
//! records, on data that stay in its cache. **Source.** Hendler, Incze, Shavit & Tzafrir, *Flat Combining and the
//! Synchronization-Parallelism Tradeoff*, SPAA 2010, sections 2 and 3. It serves as a lock for any section, and does
//! not combine several requests into one, as in Lozi et al., *Remote Core Locking*, ATC 2012, figure 6.
//!
//! **Departures.**
//! 1. A thread that finds the lock free runs its request without publishing it.
//! 2. A record belongs to the lock, not to a thread, so threads may come and go. A thread takes the record that it used
//!    last, if that one belongs to this lock and is idle. Otherwise it takes any idle record of the lock, or makes a
//!    new one. So there are as many records as threads have waited at once.
//! 3. Records that have not been used for long leave the list that the holder looks through, as in the paper. They stay
//!    in another list, of all records.
//! 4. A waiter may sleep after its spin budget. Before it sleeps, it marks the lock, and a marked lock is not released.
//!    So no waiter sleeps while no thread combines.
//!
//! ## State, and the records
//! ```text
//! | lock   | meaning                              |           active ──> [A] ──next─> [B] ──next─> [C] ──> 0
//! |--------|--------------------------------------|                     WAITING      SERVED       IDLE for long
//! | FREE   | no thread combines                   |
//! | HELD   | a thread combines                    |           records ─> [D] ──also─> [C] ──also─> [B] ──also─> [A]
//! | MARKED | HELD, and a waiter sleeps, or will,  |                     INACTIVE: in this list only
//! |        | which the combiner may not have seen |           first: [A]; each record names it
//! ```
//!
//! ## A record
//! ```text
//!   IDLE, INACTIVE ── a thread takes it ──> TAKEN ── published ──> WAITING ─ falls asleep ─> PARKED
//!   WAITING, PARKED ── its request was run ─────────> SERVED ─ its thread leaves ─> IDLE
//!   WAITING, PARKED ── the lock is handed off ──────> HEAD ── combines ──> WAITING
//!   IDLE ── not used for long, by the combiner ─────> INACTIVE: no longer in the list `active`
//! ```
//!
//! ## Invariants
//! 1. The combiner is the thread that has changed `lock` from FREE, or found HEAD in its record. Only it runs requests,
//!    and changes links below `active`.
//! 2. A record is made once, and belongs to the lock until the lock is destroyed. During that time only, its `prev`
//!    names the lock's first record, marked. So a thread may find out by reading whether any node is such a record.
//! 3. Only the thread that has made a record TAKEN writes its request, until it makes the record IDLE.
//! 4. A record is in the list `active`, unless it is INACTIVE, or TAKEN by a thread that found it INACTIVE or has just
//!    made it.
//! 5. The lock is not FREE while a thread whose request was not run sleeps. A thread that is about to sleep sets MARKED
//!    after it has published. The combiner goes through the records after it has removed the mark.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `lock` FREE -> HELD | Acquire | the release, Release | sees all sections so far, and links that combiners changed |
//! | `lock` swap MARKED | AcqRel | the same; the swap that removes the mark, Acquire | as above; the record, and its link |
//! | `active`, `records`: CAS, load | Release, Acquire | each other | the record, and its link |
//! | `state` -> WAITING | Release | the combiner's load, Acquire | the request, and what it refers to |
//! | `state` -> SERVED, HEAD | Release | the loads of `wait`, Acquire | the answer; the lock |
//! | `first`: CAS, load | Release, Acquire | each other | that the records of its former lock were disowned |
//! | `state` IDLE, INACTIVE -> TAKEN | Acquire | the stores of these, Release | no thread still reads the last request |
//!
//! No checker can distinguish the orderings of `records` from Relaxed. [The models](../models.md#what-neither-can-tell)
//! say why they stay.
//!
//! **Cannot:** do what no [closure lock](super) can. Nor does it serve requests in order: a request that each combiner
//! just misses waits until its own thread combines. Destroying the lock gives the records back; a lock that is leaked
//! keeps them.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::{RawClosure, Request, answer, publish, serve};
use crate::machine::copied::copied;
use crate::machine::node::{Node, state};
use crate::machine::{Handle, Kept, Machine, Patience, Word};
use crate::parts::counted::{contended_patient, park};
use crate::parts::wait::{SpinThenPark, WaitPolicy};

const FREE: u32 = 0;
const HELD: u32 = 1;
const MARKED: u32 = 2;

// Further states of a record. (None is one of a queue node's.)
/// Owned by no thread, and in the list `active`.
const IDLE: u32 = 16;
/// Owned by no thread, and not in the list `active`.
const INACTIVE: u32 = 17;
/// A thread is about to publish.
const TAKEN: u32 = 18;

/// Bit of a record's `prev`. No other user of a queue node keeps more than a handle there, so the bit marks a record
/// that is in use.
const OWNED: u32 = 1 << 31;
const _: () = assert!(OWNED >= Handle::LIMIT);

/// How often a combiner goes through the records, at most, before another thread combines.
const PASSES: u32 = 8;
/// Once in this many passes, records that were not used for as many passes leave the list.
const CLEANING: u32 = 128;

/// The flat-combining lock; waiters wait by policy `W`, a combiner makes up to `P` passes, and each `C`th cleans up.
pub struct FlatCombining<W: WaitPolicy = SpinThenPark, const P: u32 = PASSES, const C: u32 = CLEANING>(PhantomData<W>);

/// Its state: 20 bytes.
#[repr(C)]
pub struct FlatState<M: Machine> {
    /// FREE, HELD or MARKED.
    pub lock: M::Word,
    /// The record that was published last, or 0.
    pub active: M::Word,
    /// The record that was made last, or 0.
    pub records: M::Word,
    /// The record that was made first, or 0.
    pub first: M::Word,
    /// How many passes there were, wrapping. Only the combiner accesses it.
    pub passes: M::Word,
}

crate::zeroed!(FlatState<M> { lock, active, records, first, passes });

/// A record: the words of a queue node, as they are used here.
struct Record<M: Machine> {
    handle: Handle,
    node: &'static Node<M>,
}

copied!(Record<M>);

impl<M: Machine> Record<M> {
    /// The record of that handle. The node may be something else, unless it is a record of a lock that still exists.
    fn of(handle: Handle) -> Self {
        Self { handle, node: handle.node() }
    }

    /// The record's state.
    fn state(self) -> &'static M::Word {
        &self.node.state
    }

    /// The next record in the list `active`.
    fn next(self) -> &'static M::Word {
        &self.node.next
    }

    /// The next record in the list of all records. (A record's NUMA node is not needed.)
    fn next_record(self) -> &'static M::Word {
        &self.node.numa
    }

    /// The first record of its lock, with [`OWNED`].
    fn owner(self) -> &'static M::Word {
        &self.node.prev
    }

    /// The pass in which it was used last. A [hint](crate::machine::node): with a wrong value it leaves the list too
    /// early or too late.
    fn used(self) -> &'static M::Word {
        &self.node.since
    }

    /// IDLE | INACTIVE -> TAKEN. Returns whether it was in the list; `None` if another thread has it.
    fn take(self) -> Option<bool> {
        let taken = |from| self.state().compare_exchange(from, TAKEN, Acquire, Relaxed).is_ok();
        match self.state().load(Relaxed) {
            IDLE => taken(IDLE).then_some(true),
            INACTIVE => taken(INACTIVE).then_some(false),
            _ => None,
        }
    }
}

/// The records of the list that begins at `head` and goes on by `link`.
fn list<M: Machine>(head: &M::Word, link: fn(Record<M>) -> &'static M::Word) -> impl Iterator<Item = Record<M>> {
    let record = |word: u32| Handle::from_word(word).map(Record::of);
    // Relaxed: a link was written before the record that led here was published.
    core::iter::successors(record(head.load(Acquire)), move |here| record(link(*here).load(Relaxed)))
}

/// (list) -> (record, list), where `link` is the record's link.
fn push<M: Machine>(head: &M::Word, record: Record<M>, link: &M::Word) {
    let mut seen = head.load(Relaxed);
    loop {
        link.store(seen, Relaxed);
        match head.compare_exchange(seen, record.handle.word(), Release, Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

impl<M: Machine> FlatState<M> {
    /// FREE -> HELD
    #[inline]
    fn try_hold(&self) -> bool {
        self.lock.load(Relaxed) == FREE && self.lock.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// HELD -> FREE; or MARKED -> HELD, and a thread whose request was not run may still sleep (invariant 5).
    #[inline]
    fn try_release(&self) -> bool {
        let released = self.lock.compare_exchange(HELD, FREE, Release, Relaxed).is_ok();
        if !released {
            self.lock.swap(HELD, Acquire);
        }
        released
    }

    /// A record for the calling thread, TAKEN, and whether it is in the list.
    fn take_record(&self) -> (Record<M>, bool) {
        // Before `owner`, and Acquire: pairs with `new_record`. That record may have been the first of another lock,
        // which was destroyed: then all records of that lock were disowned before.
        let first = self.first.load(Acquire);
        let last = Handle::from_word(Kept::Record.get::<M>()).map(Record::<M>::of).filter(|last| {
            // Invariant 2. Relaxed: this thread has used the record, so it sees that the record was made; see `first`.
            let owner = last.owner().load(Relaxed);
            owner & OWNED != 0 && owner & !OWNED == first
        });
        let any = last.into_iter().chain(list::<M>(&self.records, Record::next_record));
        let mut taken = any.filter_map(|record| Some((record, record.take()?)));
        let (record, listed) = taken.next().unwrap_or_else(|| (self.new_record(), false));
        Kept::Record.set::<M>(record.handle.word());
        (record, listed)
    }

    /// A new record, TAKEN.
    #[cold]
    fn new_record(&self) -> Record<M> {
        // SAFETY: the node is the lock's until `destroy` (invariants 2 to 4).
        let record = Record::<M>::of(unsafe { M::take_node() });
        record.node.prepare(TAKEN);
        let word = record.handle.word();
        let first = self.first.compare_exchange(0, word, Release, Relaxed).err().unwrap_or(word);
        record.owner().store(first | OWNED, Relaxed);
        push::<M>(&self.records, record, record.next_record());
        record
    }
}

impl<W: WaitPolicy, const P: u32, const C: u32> FlatCombining<W, P, C> {
    /// (free, or held) -> the request was run.
    ///
    /// # Safety
    /// That of [`RawClosure::run`].
    #[cold]
    unsafe fn ask<M: Machine>(lock: &FlatState<M>, request: *mut Request) {
        let (record, combines) = contended_patient::<M, _>(|| {
            let (record, listed) = lock.take_record();
            // SAFETY: this thread has made the record TAKEN (invariant 3); the callers' promise.
            unsafe { publish(record.node, request) };
            record.state().store(state::WAITING, Release);
            if !listed {
                push::<M>(&lock.active, record, record.next());
            }
            (record, Self::wait(lock, record))
        });
        if combines {
            Self::combine(lock);
        }
        record.state().store(IDLE, Release);
    }

    /// WAITING -> SERVED (`false`); or the caller holds the lock (`true`), and its request may still be WAITING.
    fn wait<M: Machine>(lock: &FlatState<M>, record: Record<M>) -> bool {
        let state = record.state();
        if W::SPINS {
            let mut held = false;
            M::spin_until(state, Acquire, W::patience(None, Patience::Budget), |seen| {
                held = seen == state::WAITING && lock.try_hold();
                held || seen != state::WAITING
            });
            if held {
                return true;
            }
        }
        loop {
            match state.load(Acquire) {
                state::WAITING => {
                    // WAITING -> PARKED. If it fails, the answer has just come.
                    let _ = state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed);
                }
                state::SERVED => return false,
                notified => {
                    // PARKED: invariant 5. HEAD: this thread holds the lock.
                    if notified == state::HEAD || lock.lock.swap(MARKED, AcqRel) == FREE {
                        // This keeps other threads from waking this one. If it fails, this thread was served meanwhile.
                        let _ = state.compare_exchange(notified, state::WAITING, Relaxed, Relaxed);
                        return true;
                    }
                    park::<M>(state, state::PARKED, None);
                }
            }
        }
    }

    /// HELD -> FREE, or another thread combines.
    fn combine<M: Machine>(lock: &FlatState<M>) {
        let mut passes = 0;
        loop {
            passes += 1;
            let served = Self::pass(lock);
            if served > 0 && passes < P {
                continue;
            }
            if lock.try_release() || passes >= P && Self::hand_over(lock) {
                return;
            }
        }
    }

    /// Runs the requests of all waiters. Returns how many there were.
    fn pass<M: Machine>(lock: &FlatState<M>) -> u32 {
        let now = lock.passes.load(Relaxed).wrapping_add(1);
        lock.passes.store(now, Relaxed);
        let is_old = |record: Record<M>| now.is_multiple_of(C) && now.wrapping_sub(record.used().load(Relaxed)) >= C;
        let mut served = 0;
        let mut before: Option<Record<M>> = None;
        for record in list::<M>(&lock.active, Record::next) {
            if is_waiting(record.state().load(Acquire)) {
                record.used().store(now, Relaxed);
                // SAFETY: published, and not run yet, as its state says; that was read with Acquire (invariant 3). This
                // thread is the combiner (invariant 1).
                unsafe { serve(record.node) };
                answer::<M, W>(record.node, state::SERVED);
                served += 1;
            } else if is_old(record) && before.is_some_and(|before| retire(before, record)) {
                continue;
            }
            before = Some(record);
        }
        served
    }

    /// (HELD, a waiter) -> the waiter holds the lock. Returns whether there was a waiter.
    fn hand_over<M: Machine>(lock: &FlatState<M>) -> bool {
        let waiter = list::<M>(&lock.active, Record::next).find(|record| is_waiting(record.state().load(Relaxed)));
        waiter.inspect(|waiter| answer::<M, W>(waiter.node, state::HEAD)).is_some()
    }
}

/// Whether a record's request was published and has not been run.
fn is_waiting(state: u32) -> bool {
    matches!(state, state::WAITING | state::PARKED)
}

/// (before, record, next), IDLE -> (before, next), INACTIVE. Returns whether it was idle. The first record of the list
/// cannot be retired: newcomers change `active`.
fn retire<M: Machine>(before: Record<M>, record: Record<M>) -> bool {
    before.next().store(record.next().load(Relaxed), Relaxed);
    let retired = record.state().compare_exchange(IDLE, INACTIVE, Release, Relaxed).is_ok();
    if !retired {
        // Another thread has taken it, and relies on its being in the list (invariant 4). Its own link is unchanged.
        before.next().store(record.handle.word(), Relaxed);
    }
    retired
}

// SAFETY: (1) is invariant 1; (2): a thread goes on when its request is SERVED, or when it has combined; (3): `P`
// passes, each over as many records as there are.
unsafe impl<M: Machine, W: WaitPolicy, const P: u32, const C: u32> RawClosure<M> for FlatCombining<W, P, C> {
    type State = FlatState<M>;

    /// FREE -> HELD -> FREE; or publishes the request.
    unsafe fn serve(lock: &FlatState<M>, request: *mut Request) {
        if !lock.try_hold() {
            // SAFETY: the callers' promise.
            return unsafe { Self::ask(lock, request) };
        }
        // SAFETY: the callers' promise; no other thread runs it, and this thread is the combiner (invariant 1).
        unsafe { Request::act(request) };
        Self::combine(lock);
    }

    unsafe fn destroy(lock: &FlatState<M>) {
        // Invariant 2. The pool publishes it: before any of them is another lock's first record, all are disowned.
        list::<M>(&lock.records, Record::next_record).for_each(|record| record.owner().store(0, Relaxed));
        list::<M>(&lock.records, Record::next_record).for_each(|record| M::give_node(record.handle));
        [&lock.active, &lock.records, &lock.first].iter().for_each(|word| word.store(0, Relaxed));
    }
}
