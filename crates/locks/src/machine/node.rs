//! # Queue nodes
//!
//! What a thread waits with: one cache line for each waiting thread.
//!
//! A thread needs a node while it waits. In some locks (`mutex/shuffle/shfl`, `mutex/queue/qspin`, cohorts) it needs
//! the node until it has acquired the lock. In others (`mutex/queue/clh`, and
//! [`queue::culling`](crate::parts::queue::culling) with `mcs`, `cna` and `mcscr`) it needs the node until it releases
//! what it has waited for. So the number of nodes is bounded by the number of threads plus the number of locks held,
//! plus the nodes that timed-out waiters left behind in a queue and that no thread has reached yet.
//!
//! Nodes live in a **type-stable pool**: their memory is never unmapped and never becomes anything else. So a thread
//! that acts on a stale handle reads a valid node. Every algorithm says which invariant keeps such a thread from
//! *changing* a node that is not its own. State that belongs to a lock and not to a waiter is never kept in nodes: it
//! has [blocks](crate::parts::side) of its own.
//!
//! ## Stores through a stale handle
//!
//! Some threads write into the node of a waiter that may have left since they read its handle: the node may be free, or
//! serve in any other queue. So five words of a node are **hints, whatever the node is used for**:
//! [`since`](Node::since), [`passes`](Node::passes), [`check_at`](Node::check_at), [`granted_at`](Node::granted_at) and
//! [`queued_at`](Node::queued_at). Any value in them, at any moment, may cost time or a place in a queue, and nothing
//! else. They are accessed Relaxed (except that `parts/shuffle/front` exchanges `check_at` with AcqRel, in its waiters'
//! nodes), no handle is kept in them, and a thread may base only a preference on them.
//! (`native/tests/hints.rs` writes any values into them while each lock is in use.) These are all stores of the kind:
//!
//! | store | by | reaches | why it is harmless |
//! |---|---|---|---|
//! | `passes` | a releaser of a ShflLock that passes the head over (`mutex/shuffle/release`: `pass_over`) | any node | a hint |
//! | `passes` | a reader that passes the head of a readers-writer lock (`rw/shfl/turn`: `admit_out_of_turn`) | any node | a hint |
//! | `check_at` | a thread that wakes a head, or a head that falls asleep, for the waiters behind it (`parts/shuffle/front`: `note_awake`, `note_down`, `note_asleep`) | any node | a hint |
//! | `check_at` | a releaser that has woken the head of a readers-writer lock before (`rw/shfl`: `is_rarer`) | any node | a hint |
//! | `granted_at` | a releaser that hands the lock to the head (`mutex/shuffle/release`) | the head's: it cannot leave before it is notified | a hint, besides |
//! | `granted_at` | a thread that has woken the head (`parts/shuffle/rouse`: `note_woken`) | any node | a hint |
//! | `state`: CALLED -> NOTIFIED | a thread that has called a waiter on a semaphore (`sem/call`: `mark_notified`) | a node of a semaphore's waiter: CALLED has no other use | both mean: called. NOTIFIED keeps other threads from waking it once more |
//! | `state`: CLAIMED, its generation -> PARKED | a broadcaster (`parts/adoption`: `park_first`) | that waiter in that wait: the [`generation`](Node::generation) says so, and lasts from one use to the next | – |
//! | futex wake-ups, tokens of the slot's semaphore | a thread that wakes a waiter after notifying it ([`Waiting::unpark`](crate::machine::Waiting::unpark)) | any sleeper | every sleeper looks again |
//!
//! A store that is not in this table goes to a node that cannot have left: each algorithm's invariants say why.
//!
//! ## Life of a node
//!
//! ```text
//!                    +--------- wake-ahead ---------+
//!                    v                              |
//!   (taken) --> WAITING ----- budget spent -----> PARKED
//!                  |  \                            /  |
//!        promoted  |   +------- timed out --------+   |  promoted + futex wake
//!                  v               v                  v
//!                HEAD          ABANDONED            HEAD <-----> NAPPING (head asleep on the lock word)
//!                  |               |
//!          (given back)   (given back by the thread that reaches it)
//!
//!   HEAD, NAPPING --did not run when it could, removed by a holder--> EVICTED --> (queues anew)
//!   WAITING --does not run when its turn comes--> LEAVING, PARTING --removed--> EVICTED --> (queues anew)
//!
//!   condition variables:  QUEUED --signal, broadcast--> CLAIMED --> SIGNALED, or PARKED in the mutex's queue;
//!                         the first of those that are moved is CLAIMED there --> HEAD (see `parts/adoption`)
//!                         QUEUED --time-out, cancellation--> LEAVING
//!   closure locks:        WAITING, PARKED --run--> SERVED; WAITING, PARKED --to run other requests--> HEAD
//!   semaphores:           WAITS --post--> CALLED --woken--> NOTIFIED; any --leaves--> LEAVING | ABANDONED (`sem/call`)
//! ```

use core::cell::Cell;
use core::sync::atomic::Ordering;

use crate::machine::{Beside, FIRST_EPOCH, Handle, Kept, Topology, Word};

/// What a machine keeps. All memory that it gives out is type-stable: it is never unmapped, and never becomes anything
/// else. So is that of [`Blocks`](crate::machine::Blocks).
pub trait Memory: Sized + 'static {
    /// The machine's atomic word.
    type Word: Word;

    /// The node that a handle names. Nodes are never unmapped.
    fn node(handle: Handle) -> &'static Node<Self>;

    /// A node for the calling thread to wait with. Safe to call from a signal handler that interrupted any function of
    /// this trait.
    ///
    /// # Safety
    /// That of [`Handle::new`]. The node is in no queue yet.
    unsafe fn take_node() -> Handle;

    /// Gives a node back. No queue may name it any more. It need not be given back by the thread that took it: the
    /// thread that removes a left-behind node from a queue gives it back.
    fn give_node(handle: Handle);

    /// A number that changes in a forked child: a node with another epoch belongs to a thread that does not exist here.
    /// In most processes it is [`FIRST_EPOCH`].
    fn epoch() -> u32 {
        FIRST_EPOCH
    }

    /// A word that belongs to the lock at this address, and for which the lock has no room. It is in a table of the
    /// machine, and never unmapped. Two locks may share one, if they are far apart. Nothing is read at the address.
    fn beside(which: Beside, lock: *const Self::Word) -> &'static Self::Word;

    /// Passes one of the values that are kept to `act`, which only reads or writes it.
    fn kept<R>(which: Kept, act: impl FnOnce(&Cell<u32>) -> R) -> R;
}

impl Handle {
    /// The node itself.
    #[inline]
    pub fn node<M: Memory>(self) -> &'static Node<M> {
        M::node(self)
    }
}

impl Kept {
    /// The value.
    #[inline]
    pub fn get<M: Memory>(self) -> u32 {
        M::kept(self, Cell::get)
    }

    /// Sets it.
    #[inline]
    pub fn set<M: Memory>(self, value: u32) {
        M::kept(self, |kept| kept.set(value));
    }
}

/// Values of [`Node::state`].
pub mod state {
    /// Defines the states and their list. A thread may meet a node that serves elsewhere by now, so a value means one
    /// thing. ([`LEAVING`] means three: a node in this state is changed only by its own thread, and by the thread that
    /// takes it out of a queue.)
    macro_rules! states {
        ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
            $($(#[$doc])* pub const $name: u32 = $value;)*

            /// All of them.
            #[cfg(test)]
            pub(crate) const ALL: &[u32] = &[$($name),*];

            const _: () = {
                let mut seen = 0_u64;
                $(
                    assert!($name < 1 << HANDED && seen & 1 << $name == 0, "two states of one value");
                    seen |= 1 << $name;
                )*
                assert!(seen != 0);
            };
        };
    }

    states! {
        /// In a queue, awake.
        WAITING = 0,
        /// In a queue, asleep on `state` or about to be.
        PARKED = 1,
        /// Its turn: in an MCS queue it has the lock; in a ShflLock queue it alone contends for the word. The rest of
        /// the word may be what comes with the lock ([`HANDED`]).
        HEAD = 2,
        /// [`HEAD`], asleep on the lock word.
        NAPPING = 3,
        /// Its thread has given up; the thread that reaches the node gives it back.
        ABANDONED = 4,
        /// It was the head, or was to have the lock, but did not run, so a holder has taken it out of the queue. Its
        /// thread queues anew.
        EVICTED = 9,
        /// On a condition variable.
        QUEUED = 5,
        /// Taken off a condition variable, not notified yet: its thread can neither leave nor go on. In a queue: asleep
        /// until it is the head. The rest of the word is the node's [`generation`](super::Node::generation).
        CLAIMED = 8,
        /// [`CLAIMED`], and its thread sleeps on the state, after it was woken too early.
        AWAITED = 10,
        /// Taken off a condition variable by a signal: its thread may try for the mutex.
        SIGNALED = 6,
        /// At a semaphore, asleep or about to be. What the rest of the word says in this state and the next two:
        /// [`sem::call`](crate::sem::call).
        WAITS = 14,
        /// At a semaphore, called: its thread may try for a permit.
        CALLED = 11,
        /// [`CALLED`], and it has been woken, or has noticed.
        NOTIFIED = 12,
        /// The request of a [closure lock](crate::closure) was run.
        SERVED = 13,
        /// Still linked in a condition variable, but its thread is about to unlink it; no signal may count on it. In a
        /// lock's queue: about to be [`EVICTED`] by the releaser, which uses the node until then.
        LEAVING = 7,
        /// In a lock's queue: [`LEAVING`], and its thread sleeps until it is [`EVICTED`].
        PARTING = 15,
    }

    /// The bit at which the handle that comes with [`HEAD`] begins.
    pub const HANDED: u32 = 4;
    /// The bit at which the generation that comes with [`CLAIMED`] and [`AWAITED`] begins.
    pub const GENERATION: u32 = 8;
}

/// Value of [`Node::next`] if the node's owner has left the queue before its successor had linked itself. The waiter
/// that finds it there owns the node and the front of the queue.
pub const LEFT: u32 = Handle::RESERVED;

/// The bits of [`Node::role`] that hold a role.
pub const ROLE: u32 = 0x1_ffff;

/// Whether a waiter in a lock's queue sleeps, or is about to: the thread that makes it the head must wake it.
#[inline]
pub fn is_asleep(seen: u32) -> bool {
    seen == state::PARKED || is_claimed(seen)
}

/// Whether it is the waiter's turn, whatever the rest of the word says.
#[inline]
pub fn is_head(seen: u32) -> bool {
    seen & ((1 << state::HANDED) - 1) == state::HEAD
}

/// Whether a waiter was taken off a condition variable, and is not notified yet.
#[inline]
pub fn is_claimed(seen: u32) -> bool {
    matches!(seen & ((1 << state::GENERATION) - 1), state::CLAIMED | state::AWAITED)
}

/// A queue node: 64 bytes, one cache line.
#[repr(C, align(64))]
pub struct Node<M: Memory> {
    /// One of [`state`]; the word that its thread polls and parks on.
    pub state: M::Word,
    /// The successor's handle, 0, or [`LEFT`].
    pub next: M::Word,
    /// The neighbour on the other side, where a list has two directions: on condition variables, at semaphores, and for
    /// passive waiters of `mcscr`, where it names the next newer one. In `clh`: the node on which the successor of a
    /// waiter that gave up waits. In `qspin-cna`, and in [`culling`](crate::parts::queue::culling) beside a note: the
    /// last of the secondary queue. In `flat-combining`: the first record of its lock.
    pub prev: M::Word,
    /// The NUMA node its thread ran on when it queued. In `flat-combining`: the next record.
    pub numa: M::Word,
    /// [`Memory::epoch`] when it queued.
    pub epoch: M::Word,
    /// Shuffling: its place in its group (0: in none), whether it is the shuffler ([`SHUFFLER`]), and whether it is
    /// walking ([`WALKING`]).
    pub batch: M::Word,
    /// A hint, in [`Time::micros`](crate::machine::Time::micros). When it became the head; or, where releases pass over
    /// waiters that do not run: when its thread last published that it runs.
    pub since: M::Word,
    /// A hint. How many releases have passed this head over.
    pub passes: M::Word,
    /// A hint. Each lock says what it means there.
    pub check_at: M::Word,
    /// A hint. When it was handed the lock, or last woken as the head,
    /// [`Time::micros`](crate::machine::Time::micros).
    pub granted_at: M::Word,
    /// On a condition variable: the address of the mutex, low and high half. At a semaphore: its address. In a closure
    /// lock: that of the request.
    pub mutex: [M::Word; 2],
    /// The pool's own link.
    pub pool_next: M::Word,
    /// [`ROLE`]: what the [admission policy](crate::parts::policy) of a ShflLock must know of the node's thread; in a
    /// readers-writer lock, what the thread wants. The other bits say in which lock's queue the node is
    /// (`parts/shuffle/front`: `mark`).
    pub role: M::Word,
    /// On a condition variable, or at a semaphore: how often it was queued on one, wrapping. Written by its thread
    /// before it queues.
    pub generation: M::Word,
    /// A hint. In a ShflLock's queue: since when, [`Time::micros`](crate::machine::Time::micros).
    pub queued_at: M::Word,
}

const _: () = assert!(core::mem::size_of::<u32>() * 16 <= 64);
const _: () = assert!((Handle::LIMIT - 1).leading_zeros() >= state::HANDED && state::HANDED <= state::GENERATION);

/// Bit of [`Node::batch`]: this waiter is the shuffler.
pub const SHUFFLER: u32 = 1 << 31;
/// Bit of [`Node::batch`]: about to be evicted, never to be the shuffler again.
pub const RETIRED: u32 = 1 << 29;
/// Bit of [`Node::batch`]: its thread has a [real-time](crate::machine::REAL_TIME) policy; never to be culled.
pub const URGENT: u32 = 1 << 28;
/// Bit of [`Node::batch`]: its thread publishes when it ran ([`Node::since`]), and knows what to do when it is evicted.
pub const PUBLISHES: u32 = 1 << 27;
/// Bit of [`Node::batch`]: the shuffler is walking the queue; no thread may take it out.
pub const WALKING: u32 = 1 << 30;

impl<M: Memory> Node<M> {
    /// A node that is in no queue.
    ///
    /// # Safety
    /// The node becomes part of its machine's pool: a machine may find its own words beside a node.
    pub unsafe fn new() -> Self {
        let zero = || M::Word::new(0);
        Self {
            state: zero(),
            next: zero(),
            prev: zero(),
            numa: zero(),
            epoch: zero(),
            batch: zero(),
            since: zero(),
            passes: zero(),
            check_at: zero(),
            granted_at: zero(),
            mutex: [zero(), zero()],
            pool_next: zero(),
            role: zero(),
            generation: zero(),
            queued_at: zero(),
        }
    }

    /// Makes the node ready to be queued by a thread on that NUMA node. Relaxed throughout: only the caller knows it,
    /// and the Release half of the read-modify-write that links it into a queue publishes it.
    pub fn prepare_on(&self, numa: u32, initial: u32) {
        self.state.store(initial, Ordering::Relaxed);
        self.next.store(0, Ordering::Relaxed);
        self.numa.store(numa, Ordering::Relaxed);
        self.epoch.store(M::epoch(), Ordering::Relaxed);
        self.batch.store(0, Ordering::Relaxed);
    }

    /// Whether its thread exists in this process. Relaxed: written before the node was published, and a fork orders
    /// everything before it.
    ///
    /// In a process of the first epoch all nodes are of that process, and this does not touch the node's line. Its
    /// callers are usually about to write to the line, and a read would fetch it once more.
    #[inline]
    pub fn is_alive(&self) -> bool {
        let epoch = M::epoch();
        epoch == FIRST_EPOCH || self.epoch.load(Ordering::Relaxed) == epoch
    }
}

impl<M: Memory + Topology> Node<M> {
    /// [`prepare_on`](Self::prepare_on) the NUMA node that the calling thread runs on.
    pub fn prepare(&self, initial: u32) {
        self.prepare_on(M::numa_node(), initial);
    }
}
