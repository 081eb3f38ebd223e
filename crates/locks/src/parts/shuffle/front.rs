//! # The front of a ShflLock's queue
//!
//! This is the queue of all ShflLocks: joining, becoming head, and leaving from the front. The queue is MCS's, but it
//! does not hand over the lock: it hands over the right to contend for it. Only the first waiter, the **head**, polls
//! the lock word. `head` in the lock names it. So a releaser sees that a thread waits, and for how long.
//!
//! ```text
//!   word ── 1 ─── held by a thread that is in no queue
//!   head ──> [A]  HEAD: polls the word; shuffles
//!             └─next─> [B]  WAITING ──next─> [C]  PARKED ──next─> [D]  PARKED <── tail
//! ```
//!
//! ## `head`: a handle and four flags
//! | bits | set by | cleared by | meaning |
//! |---|---|---|---|
//! | [`GRANTED`] | the releaser, instead of freeing the word | the head, which then holds the lock; or a waiter that finds the grant stale | the lock is reserved for the head |
//! | [`ASKED`] | the head, once its wait is overdue | the head, as it leaves | the next release hands the lock over |
//! | [`PROMISED`] (both) | the releaser, before it grants | the releaser | the lock is about to be granted: the head must not fall asleep |
//! | [`ARRIVAL`] | a newcomer | the same newcomer | a thread that has not queued polls the word |
//! | [`ROUSE`] | a holder that won out of turn | the same holder's release | the release wakes a sleeper behind the head |
//!
//! The last two say nothing about the head ([`BESIDE`]): they may be set beside any value.
//!
//! ## Invariants
//! 1. At most one node is HEAD, or NAPPING (asleep on the lock's word, or about to be). Only that node's thread names
//!    the next head, or the holder while there is no head. The first head is the thread that found the queue empty.
//! 2. `head` is 0 before `tail` can become 0, and before an unlinked successor can adopt the front. So the next thread
//!    at the front writes `head` without competition.
//! 3. A node is given back by its own thread, if that thread leaves from the front. Once the node is ABANDONED, it is
//!    given back by the thread that steps over it at the front, or by a shuffler that takes it out of the middle. And
//!    it is given back by the successor that found [`LEFT`] in its `next`. It is never given back while `tail` or a
//!    live `next` names it.
//! 4. `next` of a node in the queue is written once by its successor (0 -> successor), and by the shuffler. The
//!    shuffler changes only links of nodes that already have a successor, at or behind itself.
//! 5. A holder that evicts a head first claims it, by (head = it) -> (head = 0). A head that leaves by time-out must
//!    win the same change. Meanwhile the head cannot win the word, because the evictor holds it. It becomes EVICTED
//!    when it is out of the queue.
//! 6. No thread waits for a successor to link itself: the thread that leaves exchanges `LEFT` into `next` and goes. So
//!    a thread that is stopped between joining and linking stops only the threads that queued behind it. A thread that
//!    queued there does not fall asleep for good before it has seen its predecessor asleep ([`ShflQueue::is_linked`]).
//! 7. If a sleeper becomes head and the holder's release is to wake it, it is moved to the lock's word without being
//!    woken. So any code that frees the word wakes it, ours or not.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `tail.swap` in `join` | AcqRel | itself; the CAS in `step` | publishes the node; sees the predecessor prepared, and `head` = 0 (invariant 2) |
//! | `next.swap` in `join`, `step` | AcqRel | each other | one of the two sees the other; the successor's node is seen prepared |
//! | `state` CAS -> HEAD | AcqRel | `state` loads, Acquire | the new head sees `since` and `head` |
//! | `check_at` swap in `note_down`, `fetch_or` in `was_noted` | AcqRel | each other | a waiter gives up as it is noted: one of the two threads sees the other |
//! | `head` updates | AcqRel | each other | a chain of read-modify-writes, so that a grant's Release reaches the taker through flips of [`BESIDE`] |

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::machine::node::{LEFT, Node, ROLE, is_asleep, state};
use crate::machine::{Handle, Machine, Word};
use crate::parts::queue::link::handle_in;
use crate::parts::shuffle::batch;
use crate::parts::wait::hand_off;
use crate::parts::wait::left::{self, LeftBehind};

/// The lock is reserved for the head.
pub const GRANTED: u32 = 1;
/// The head's wait is overdue.
pub const ASKED: u32 = 2;
/// The lock is about to be [`GRANTED`].
pub const PROMISED: u32 = GRANTED | ASKED;
/// A newcomer polls the word.
pub const ARRIVAL: u32 = 4;
/// The release wakes a sleeper.
pub const ROUSE: u32 = 8;
/// The flags that say nothing about the head.
pub const BESIDE: u32 = ARRIVAL | ROUSE;
const SHIFT: u32 = 4;

const _: () = assert!((Handle::LIMIT - 1).leading_zeros() >= SHIFT);

/// The queue of a ShflLock: 8 bytes; with the word, 12.
#[repr(C)]
pub struct ShflQueue<M: Machine> {
    /// The head and the flags.
    pub head: M::Word,
    /// The last waiter.
    pub tail: M::Word,
}

crate::zeroed!(ShflQueue<M> { head, tail });

/// What [`ShflQueue::step`] found behind a node.
enum After {
    Waiter(Handle),
    Nobody,
    /// A thread has joined but not linked itself. That thread becomes head and owns the node.
    Linking,
}

/// The waiter that a value of `head` names.
#[inline]
pub(crate) fn named(head: u32) -> Option<Handle> {
    Handle::from_word(named_word(head))
}

/// The same, as a word.
#[inline]
pub const fn named_word(head: u32) -> u32 {
    head >> SHIFT
}

/// The value of `head` that names `waiter`, without flags.
#[inline]
pub fn naming(waiter: Handle) -> u32 {
    waiter.word() << SHIFT
}

impl<M: Machine> ShflQueue<M> {
    /// Counts the nodes of waiters that left out of turn.
    pub fn left(&self) -> LeftBehind<M> {
        left::of(&self.tail)
    }

    /// The [role](Node::role) of a waiter that is about to join, with the queue's mark.
    pub fn marked(&self, role: u32) -> u32 {
        role & ROLE | self.mark()
    }

    /// The queue's mark, in the [role](Node::role) of its waiters.
    pub(crate) fn mark(&self) -> u32 {
        Self::mark_of(self)
    }

    /// The same, of a queue that may be gone. Made of its address: one queue in 32,768 has the same.
    pub(crate) fn mark_of(queue: *const Self) -> u32 {
        ((queue as usize >> 2) as u32).wrapping_mul(0x9e37_79b1) & !ROLE
    }

    /// Whether this may still be the queue in which the thread with this node waits, as far as that thread can tell:
    /// nobody has woken it, so the lock may be gone, and its memory may have become something else. Asks the kernel
    /// first, and then only reads. There is a tail as long as somebody waits; there is no head for a moment, when one
    /// leaves. Both have joined this queue. In a forked child, another thread may have discarded the queue.
    pub(crate) fn may_be_there(&self, waiter: &Node<M>) -> bool {
        // Acquire: what a waiter wrote before it joined.
        M::is_there(&self.tail)
            && (!waiter.is_alive()
                || self.has_joined(self.tail.load(Acquire)) && {
                    let head = named_word(self.head.load(Acquire));
                    head == 0 || self.has_joined(head)
                })
    }

    /// Whether the word, which may be anything, names a node that has joined this queue.
    fn has_joined(&self, word: u32) -> bool {
        let is_ours =
            |handle: Handle| handle.word() == word && handle.node::<M>().role.load(Relaxed) & !ROLE == self.mark();
        // SAFETY: nothing is written.
        unsafe { M::any_node(is_ours) }
    }

    /// What [`head`](Self::head) says about the head: all flags except [`BESIDE`].
    pub fn front(&self) -> u32 {
        self.head.load(Relaxed) & !BESIDE
    }

    /// Writes the head and its flags, and leaves [`BESIDE`] as it is.
    pub fn set_head(&self, value: u32) {
        let mut seen = self.head.load(Relaxed);
        while let Err(now) = self.head.compare_exchange(seen, value | (seen & BESIDE), AcqRel, Relaxed) {
            seen = now;
        }
    }

    /// (head = from) -> (head = to), whatever [`BESIDE`] is. Returns whether it was `from`.
    pub fn change_head(&self, from: u32, to: u32) -> bool {
        let mut seen = self.head.load(Relaxed);
        loop {
            if seen & !BESIDE != from {
                return false;
            }
            match self.head.compare_exchange(seen, to | (seen & BESIDE), AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Puts the chain `first … last` behind the tail. Returns whether `first` is now first in the queue, and so its
    /// head.
    pub fn join(&self, first: Handle, last: Handle) -> bool {
        self.join_behind(first, last).is_none()
    }

    /// The same, but returns the predecessor of `first`; `None` if `first` is first in the queue.
    pub fn join_behind(&self, first: Handle, last: Handle) -> Option<Handle> {
        let previous = Handle::from_word(self.tail.swap(last.word(), AcqRel))?;
        let node = previous.node::<M>();
        if !node.is_alive() {
            // A forked child: the queue up to here belongs to threads that do not exist.
            return None;
        }
        if node.next.swap(first.word(), AcqRel) == LEFT {
            // Invariant 3: it left before `first` was linked. Its node and its place belong to this thread.
            M::give_node(previous);
            return None;
        }
        Some(previous)
    }

    /// Takes `leaving`, which is at the front, out of the queue, and returns its successor.
    fn step(&self, leaving: Handle) -> Option<Handle> {
        let node = leaving.node::<M>();
        if node.next.load(Acquire) == 0 {
            self.set_head(0); // Invariant 2.
        }
        match self.after(leaving, node) {
            After::Waiter(next) => {
                M::give_node(leaving);
                Some(next)
            }
            After::Nobody => {
                M::give_node(leaving);
                None
            }
            After::Linking => None,
        }
    }

    fn after(&self, leaving: Handle, node: &Node<M>) -> After {
        if let Some(next) = Handle::from_word(node.next.load(Acquire)) {
            return After::Waiter(next);
        }
        if self.tail.compare_exchange(leaving.word(), 0, AcqRel, Relaxed).is_ok() {
            return After::Nobody;
        }
        match Handle::from_word(node.next.swap(LEFT, AcqRel)) {
            Some(next) => After::Waiter(next),
            None => After::Linking,
        }
    }

    /// (head = it, perhaps ASKED) -> (head = 0). Returns whether it was. If it was not, a grant came first, or another
    /// thread took the waiter out of the queue.
    pub fn unname(&self, waiter: Handle) -> bool {
        self.change_head(naming(waiter), 0) || self.change_head(naming(waiter) | ASKED, 0)
    }

    /// Makes `candidate` the head, or the first waiter behind it that has not given up. Returns the new head if it
    /// sleeps. Without `onto`, its state is HEAD then, and the caller wakes it. With `onto`, it sleeps on that word
    /// from now on, as NAPPING; the caller, which holds the lock, makes its release wake it there.
    pub fn install(&self, candidate: Handle, onto: Option<&M::Word>) -> Option<Handle> {
        self.make_head(candidate, onto, true)
    }

    /// [`ShflQueue::install`]; `notes`: waiters sleep, so the next one may have to know that the head is awake.
    fn make_head(&self, mut candidate: Handle, onto: Option<&M::Word>, notes: bool) -> Option<Handle> {
        loop {
            let node = candidate.node::<M>();
            let seen = node.state.load(Acquire);
            if seen == state::ABANDONED {
                self.left().remove();
                self.set_head(0); // Before the node is given back: `head` must never name a node that is not ours.
                candidate = self.step(candidate)?;
                continue;
            }
            let bed = onto.filter(|_| is_asleep(seen));
            start_clock(node);
            self.set_head(naming(candidate));
            let notified = if bed.is_some() { state::NAPPING } else { state::HEAD };
            if node.state.compare_exchange(seen, notified, AcqRel, Relaxed).is_ok() {
                match bed {
                    Some(word) => M::requeue(node, word), // Invariant 7. If awake, it sees its new state.
                    None if notes => note_awake::<M>(candidate),
                    None => {}
                }
                return is_asleep(seen).then_some(candidate);
            }
        }
    }

    /// Takes the head `leaving` out of the queue and [installs](Self::install) the next one.
    pub fn pass(&self, leaving: Handle, onto: Option<&M::Word>) -> Option<Handle> {
        self.pass_on(leaving, onto, true)
    }

    /// The same for a queue in which no waiter sleeps.
    pub fn pass_awake(&self, leaving: Handle) {
        let asleep = self.pass_on(leaving, None, false);
        debug_assert!(asleep.is_none(), "nobody sleeps here");
    }

    fn pass_on(&self, leaving: Handle, onto: Option<&M::Word>, notes: bool) -> Option<Handle> {
        let from = leaving.node::<M>().numa.load(Relaxed);
        let next = self.step(leaving)?;
        hand_off(|| from, next.node::<M>()).count::<M>();
        self.make_head(next, onto, notes)
    }

    /// Takes a head that does not run out of the queue, [installs](Self::install) the next one, and returns that if it
    /// sleeps. In a lock whose head may win while it is being evicted, a head clears `head` before it leaves, as its
    /// evictor does. The queue stays as it is if the head has left, or if its successor has not linked itself yet.
    pub fn evict(&self, idle: Handle, onto: Option<&M::Word>) -> Option<Handle> {
        let node = idle.node::<M>();
        let notified = matches!(node.state.load(Acquire), state::HEAD | state::NAPPING);
        // Do not evict a head that is rewriting links at this moment: it does run.
        if !notified || !batch::retire(node) || !self.unname(idle) {
            return None; // Invariant 5.
        }
        let notified = match Handle::from_word(node.next.load(Acquire)) {
            Some(next) => self.install(next, onto),
            None if self.tail.compare_exchange(idle.word(), 0, AcqRel, Relaxed).is_ok() => None,
            None => {
                self.set_head(naming(idle));
                return None;
            }
        };
        // If it was alone in the queue, it may have concluded that the lock was freed, and left (`stays_gone`).
        // Acquire: nobody uses its node any more.
        if node.state.swap(state::EVICTED, AcqRel) == state::ABANDONED {
            M::give_node(idle);
        }
        notified
    }

    /// Whether `previous`, behind which a waiter joined, has linked itself, so that the waiter can be reached from the
    /// front as far as that depends on `previous`. It has if it has fallen asleep, or left (invariant 6). A hint: it
    /// may have left the queue, and its node may serve elsewhere.
    pub fn is_linked(previous: Handle) -> bool {
        let seen = previous.node::<M>().state.load(Relaxed);
        is_asleep(seen) || matches!(seen, state::NAPPING | state::ABANDONED)
    }

    /// In a forked child, where `head` names a thread that does not exist: forgets the queue, unless live waiters have
    /// already started a new one behind it. (Then they have named their own head.)
    #[cold]
    pub fn discard_dead_queue(&self, dead_head: u32) {
        let _ = self.head.compare_exchange(dead_head, 0, AcqRel, Relaxed);
        let tail = self.tail.load(Acquire);
        if Handle::from_word(tail).is_some_and(|last| !last.node::<M>().is_alive()) {
            self.left().clear();
            let _ = self.tail.compare_exchange(tail, 0, AcqRel, Relaxed);
        }
    }
}

/// The head's wait begins. Relaxed: with a stale value the hand-off is early, or one release late.
pub fn start_clock<M: Machine>(node: &Node<M>) {
    node.since.store(M::micros(), Relaxed);
    node.passes.store(0, Relaxed);
}

/// The head is awake, or is being woken. If the waiter behind it sleeps, that waiter should look for the lock itself if
/// this lasts. Harmless if the waiter has left: this word is only ever a hint.
///
/// The waiter behind it may be about to give up. Either this sees that it has, and also notes it for the one behind
/// that, or it sees the note ([`was_noted`]).
pub fn note_awake<M: Machine>(head: Handle) {
    note::<M>(head, note_down);
}

/// This waiter should look for the lock itself. AcqRel pairs with `was_noted`: whichever of the two exchanges is second
/// sees what came before the first.
pub fn note_down<M: Machine>(waiter: &Node<M>) {
    waiter.check_at.swap(AWAKE, AcqRel);
}

/// The head sleeps, or is about to: a release will wake it.
pub fn note_asleep<M: Machine>(head: Handle) {
    note::<M>(head, |waiter| waiter.check_at.store(0, Relaxed));
}

/// Writes into the node of the first waiter behind the head that has not given up, and into those before it.
fn note<M: Machine>(head: Handle, write: impl Fn(&Node<M>)) {
    let mut here = head;
    for _ in 0..REACH {
        let Some(next) = handle_in(here.node::<M>().next.load(Acquire)) else { return };
        let node = next.node::<M>();
        write(node);
        if node.state.load(Relaxed) != state::ABANDONED {
            return;
        }
        here = next;
    }
}

/// Whether a waiter that has given up had the note that the head is awake: then another one must look for the lock. If
/// the node is reused, its note stays unchanged. AcqRel: see [`note_awake`].
pub fn was_noted<M: Machine>(left: &Node<M>) -> bool {
    left.check_at.fetch_or(0, AcqRel) != 0
}

/// Whether the waiter has the note that the head is awake. Clears it: it is set again if the head stays awake. Relaxed:
/// a hint.
pub fn is_noted<M: Machine>(waiter: &Node<M>) -> bool {
    let noted = waiter.check_at.load(Relaxed) != 0;
    if noted {
        waiter.check_at.store(0, Relaxed);
    }
    noted
}

/// Value of `check_at`.
const AWAKE: u32 = 1;

/// How many nodes behind the head a thread looks at for a waiter. There are not many more nodes in a queue whose
/// waiters have given up ([`left::MAX`]).
pub const REACH: usize = 64;

/// How long the head has been head, in µs.
pub fn waited<M: Machine>(node: &Node<M>) -> u32 {
    M::micros().wrapping_sub(node.since.load(Relaxed))
}
