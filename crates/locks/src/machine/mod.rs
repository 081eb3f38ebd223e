//! # The machine: what a lock asks of a computer
//!
//! The algorithms in this crate are written once, against the traits of this module. They run in three places: natively
//! (`flashlock-native`), under the model checkers loom and shuttle (`flashlock-model`), and on a simulated computer.
//! Nothing here allocates. An algorithm compiles to the same instructions as one written by hand against `AtomicU32`.
//!
//! | a lock asks for | trait | functions |
//! |---|---|---|
//! | queue [nodes](node), words beside locks, words of threads | [`Memory`] | 6 |
//! | polling, sleeping and waking | [`Waiting`] | 7 |
//! | clocks and deadlines | [`Time`] | 3 |
//! | where the thread runs | [`Topology`] | 2 |
//! | chance, and the settings | [`Machine`] | 2 |
//!
//! These 20 functions are what a lock needs, besides the operations of the machine's atomic [words](Word), which are
//! those of `AtomicU32`. Some locks need more, and all of them report events:
//!
//! | | trait | functions |
//! |---|---|---|
//! | room for locks that need more than a word and a queue | [`Blocks`] | 3 |
//! | reports of [events](event), for statistics | [`Listen`] | 5 |
//! | what one kind of lock, or one policy, asks for | [`Special`] | 11 |
//!
//! A machine must define 18 functions; the others have a default. [`polling`] has rules for those that really poll.
//!
//! All shared state is made of 32-bit words. A [`Handle`], not a pointer, names a queue node: an index into a
//! type-stable pool, see [`Node`](node::Node). So a lock's whole state is four to twenty bytes, beside the
//! [blocks](block) of some. A stale handle names, at worst, a node that another thread uses now, never freed memory.

#[cfg(test)]
pub(crate) mod bench;
pub mod block;
mod clock;
pub(crate) mod copied;
pub mod event;
mod listen;
mod names;
pub mod node;
pub mod options;
pub mod order;
mod place;
pub mod polling;
mod special;
mod tuned;
mod waiting;
mod word;

pub use block::Blocks;
pub use clock::{Clock, Deadline, Time, TimedOut};
pub use listen::Listen;
pub use names::{Beside, FIRST_EPOCH, Handle, Kept};
pub use node::Memory;
pub use options::Tunables;
pub use place::{Division, READER_PARTS, Topology, reader_part_of};
pub use special::{Look, Manner, REAL_TIME, SLEEP_COST, Special};
pub use tuned::{Options, Tuned};
pub use waiting::{Patience, Pause, Unparked, Waiting};
pub use word::{ConstWord, HIGH_BYTE, Word};

/// A computer as the locks see it. All functions, also those of the other traits, act for the calling thread.
///
/// # Safety
/// Exclusion rests on the machine, and so does the memory of those who rely on it ([`Raw`](crate::parts::raw::Raw),
/// [`Delegate`](crate::closure::Delegate)):
/// 1. A [`Word`]'s operations are atomic, and order memory as their [`Ordering`](core::sync::atomic::Ordering) says.
/// 2. A node or block that was taken is given to no other taker until it is given back.
/// 3. [`Waiting::spin_until`] returns `Some` only of a value that its condition has accepted; so does
///    [`Special::poll_until`].
pub unsafe trait Machine: Waiting + Topology + Blocks + Listen + Special {
    /// A pseudo-random number.
    fn random() -> u32;

    /// The options of the lock: those that the user chose for the process, or its own if it is on [`Tuned`]; the
    /// defaults, unless the machine has others.
    fn tunables() -> &'static Tunables {
        &Tunables::DEFAULT
    }
}
