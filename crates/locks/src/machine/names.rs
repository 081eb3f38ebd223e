//! Names of what a machine keeps: queue nodes, and words that belong to locks and threads. For the things themselves,
//! see [`Memory`](crate::machine::Memory).

use core::num::NonZeroU32;

/// Names a queue node. Zero is "no node"; one is [`Handle::RESERVED`], which algorithms use as a sentinel.
///
/// **A handle is a permission.** With it, safe functions write to the node, link it and give it back, although all
/// locks share the nodes. So safe code outside this crate cannot make one: only [`Handle::new`],
/// [`Memory::take_node`](crate::machine::Memory::take_node) and
/// [`Special::any_node`](crate::machine::Special::any_node) do, whose callers promise to
/// [keep the invariants](Handle::new). Nor is it given one: the traits whose functions are passed handles or nodes are
/// unsafe to implement. Inside this crate any function may make one (`from_word`): the pages' invariants say which
/// words name a node, and who may do what with it.
///
/// ```compile_fail,E0624
/// let of_another_lock = flashlock_locks::machine::Handle::from_word(17);
/// ```
///
/// ```compile_fail,E0133
/// let of_another_lock = flashlock_locks::machine::Handle::new(17);
/// ```
///
/// ```compile_fail,E0133
/// use flashlock_locks::machine::{Machine, Word, node::state};
/// use std::sync::atomic::Ordering::Release;
///
/// fn all_requests_were_run<M: Machine>() {
///     M::any_node(|waiter| {
///         waiter.node::<M>().state.store(state::SERVED, Release);
///         false
///     });
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(NonZeroU32);

impl Handle {
    /// Never names a node: a word may hold it as a sentinel beside "none" (0).
    pub const RESERVED: u32 = 1;
    /// Handles are below this, so that an algorithm may keep up to four flag bits beside one.
    pub const LIMIT: u32 = 1 << 28;

    /// The handle in a word, or `None` for zero and for the sentinel. For machines, and for tests that play a thread of
    /// a lock.
    ///
    /// # Safety
    /// The word names a node. It is done with the handle only what the numbered invariants on the page of the node's
    /// user allow: of the lock, part, condition variable or semaphore that it serves at that moment. (A machine does
    /// with it what [`Memory`](crate::machine::Memory) says.)
    #[inline]
    pub const unsafe fn new(word: u32) -> Option<Self> {
        Self::from_word(word)
    }

    /// The handle in a word, or `None` for zero and for the sentinel.
    #[inline]
    pub(crate) const fn from_word(word: u32) -> Option<Self> {
        match NonZeroU32::new(word) {
            Some(raw) if word != Self::RESERVED => Some(Self(raw)),
            _ => None,
        }
    }

    /// The word that names this node.
    #[inline]
    pub const fn word(self) -> u32 {
        self.0.get()
    }
}

/// What a word beside a lock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// How many nodes were [left behind](crate::parts::wait::left) in the lock's queue.
    LeftBehind,
    /// A writer sleeps on it while it waits for readers to leave the lock. Readers that leave change it. It is not in
    /// the lock's memory, so a thread that has left the lock may access it.
    Drain,
    /// `cst-rw`: how many locks may use distributed counters, or do. One word for all locks.
    Distributed,
}

/// A value that is kept between lock operations; 0 at first. Each thread has its own, except of [`Kept::RecentStall`].
/// A hint: a signal handler that uses locks may change it at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// CNA: hand-offs until the thread gives the lock to another NUMA node.
    HandOffs,
    /// CNA: the NUMA node that the thread was on when it asked, plus one; 0: it has not asked.
    Node,
    /// CNA: how many contended acquisitions may still rely on that answer.
    NodeUses,
    /// `flat-combining`: the record that the thread used last, of any lock.
    Record,
    /// `flash`: the lock whose sections the thread times.
    Timed,
    /// `flash`: when the section began that the thread times ([steps](crate::machine::Special::steps)).
    TimedSince,
    /// `flash`: how long a section of that lock takes after the lock was on another CPU (steps); 0 while this is not
    /// known.
    MoveCost,
    /// `flash`: how many looks are left until the thread watches how soon that lock is taken again.
    Watch,
    /// `flash`: how many looks there were between the last two times that it watched.
    WatchEvery,
    /// `shfl`: how long (µs) locks stood still lately because they were handed to a thread that did not run. One value
    /// for all locks and threads. A machine may forget it.
    RecentStall,
}

impl Kept {
    /// How many of them each thread has. Their numbers are below this.
    pub const OF_THREAD: usize = Self::RecentStall as usize;
}

/// The [epoch](crate::machine::Memory::epoch) of a process that was not forked, or was forked off a process in which no
/// thread had asked for its epoch.
pub const FIRST_EPOCH: u32 = 1;
