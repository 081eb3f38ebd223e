//! What a machine keeps: queue nodes, blocks, and words that belong to locks and threads.

use core::num::NonZeroU32;

use crate::machine::block::{Block, Name};
use crate::machine::node::Node;
use crate::machine::word::Word;

/// Names a queue node. Zero is "no node"; one is [`Handle::RESERVED`], which algorithms use as a sentinel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(NonZeroU32);

impl Handle {
    /// Never names a node: a word may hold it as a sentinel beside "none" (0).
    pub const RESERVED: u32 = 1;
    /// Handles are below this, so that an algorithm may keep up to four flag bits beside one.
    pub const LIMIT: u32 = 1 << 28;

    /// The handle in a word, or `None` for zero and for the sentinel.
    #[inline]
    pub const fn from_word(word: u32) -> Option<Self> {
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

    /// The node itself.
    #[inline]
    pub fn node<M: Memory>(self) -> &'static Node<M> {
        M::node(self)
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
}

/// A word that each thread keeps between its lock operations; 0 at first. A hint: a signal handler that uses locks may
/// change it at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// CNA: hand-offs until the thread gives the lock to another NUMA node.
    HandOvers,
    /// CNA: the NUMA node that the thread was on when it asked, plus one; 0: it has not asked.
    Node,
    /// CNA: how many contended acquisitions may still rely on that answer.
    NodeUses,
    /// `flat-combining`: the record that the thread used last, of any lock.
    Record,
    /// `flash`: the lock whose sections the thread times.
    Timed,
    /// `flash`: when the section began that the thread times ([steps](crate::machine::Time::steps)).
    TimedSince,
    /// `flash`: how long a section of that lock takes after the lock was on another CPU (steps); 0 while this is not
    /// known.
    MoveCost,
    /// `flash`: how many looks are left until the thread watches how soon that lock is taken again.
    Watch,
    /// `flash`: how many looks there were between the last two times that it watched.
    WatchEvery,
}

impl Local {
    /// How many words there are.
    pub const COUNT: usize = 9;
}

/// The [`Memory::epoch`] of a process that was not forked, or was forked off a process in which no thread had asked
/// for its epoch.
pub const FIRST_EPOCH: u32 = 1;

/// What a machine keeps. All memory that it gives out is type-stable: it is never unmapped, and never becomes anything
/// else.
pub trait Memory: Sized + 'static {
    /// The machine's atomic word.
    type Word: Word;

    /// The node that a handle names. Nodes are never unmapped.
    fn node(handle: Handle) -> &'static Node<Self>;

    /// A node for the calling thread to wait with. Safe to call from a signal handler that interrupted any function of
    /// this trait.
    fn take_node() -> Handle;

    /// Gives a node back. No queue may name it any more. It need not be given back by the thread that took it: the
    /// thread that removes a left-behind node from a queue gives it back.
    fn give_node(handle: Handle);

    /// Shows nodes to `look` until it returns true; returns whether it did. The nodes include all that were taken
    /// before anything that the caller has seen. Many are in no queue, or in a queue that does not concern the caller.
    fn any_node(look: impl FnMut(Handle) -> bool) -> bool;

    /// A number that changes in a forked child: a node with another epoch belongs to a thread that does not exist here.
    /// In most processes it is [`FIRST_EPOCH`].
    fn epoch() -> u32 {
        FIRST_EPOCH
    }

    /// The block that a name names. Blocks are never unmapped.
    fn block(name: Name) -> &'static Block<Self>;

    /// A block for state for which a lock has no room. Safe to call from a signal handler, as
    /// [`take_node`](Memory::take_node).
    fn take_block() -> Name;

    /// Gives a block back. No thread uses or names it any more.
    fn give_block(name: Name);

    /// Whether a word of a lock that may have been freed is still in memory that can be read.
    fn is_there(_word: &Self::Word) -> bool {
        true
    }

    /// A word that belongs to the lock at this address, and for which the lock has no room. It is in a table of the
    /// machine, and never unmapped. Two locks may share one, if they are far apart. Nothing is read at the address.
    fn beside(which: Beside, lock: *const Self::Word) -> &'static Self::Word;

    /// The value of one of the calling thread's local words.
    fn local(which: Local) -> u32;

    /// Sets it.
    fn set_local(which: Local, value: u32);

    /// Whether one more readers-writer lock may use distributed counters. They take memory that a program does not give
    /// back if it frees the lock without destroying it. If true, the lock must call
    /// [`end_distributed`](Memory::end_distributed) when it no longer uses them.
    fn admit_distributed() -> bool {
        true
    }

    /// A lock that was admitted no longer uses distributed counters, or never did.
    fn end_distributed() {}
}
