//! # The machine: what a lock asks of a computer
//!
//! The algorithms in this crate are written once, against the traits of this module. They run in three places: natively
//! (`flashlock-native`), under the model checkers loom and shuttle (`flashlock-model`), and on a simulated computer.
//! Nothing here allocates. An algorithm compiles to the same instructions as one written by hand against `AtomicU32`.
//!
//! | a lock asks for | trait |
//! |---|---|
//! | atomic words | [`Word`] |
//! | queue [nodes](node), [blocks](block), words beside locks, words of threads | [`Memory`] |
//! | polling, sleeping and waking | [`Waiting`] |
//! | clocks and deadlines | [`Time`] |
//! | where the thread runs | [`Topology`] |
//! | reporting [events](event) | [`Listen`] |
//! | all of these, settings and the rest | [`Machine`] |
//!
//! A machine must define 19 functions; the others have a default. [`polling`] has rules for those that really poll.
//!
//! All shared state is made of 32-bit words. A [`Handle`], not a pointer, names a queue node: an index into a
//! type-stable pool, see [`Node`](node::Node). So a lock's whole state is four to twenty bytes, beside the
//! [blocks](block) of some. A stale handle names, at worst, a node that another thread uses now, never freed memory.

#[cfg(test)]
pub(crate) mod bench;
pub mod block;
mod clock;
pub mod event;
mod listen;
mod memory;
pub mod node;
pub mod options;
pub mod order;
mod place;
pub mod polling;
mod tuned;
mod waiting;
mod word;

pub use clock::{Clock, Deadline, Time, TimedOut};
pub use listen::Listen;
pub use memory::{Beside, FIRST_EPOCH, Handle, Local, Memory};
pub use options::Tunables;
pub use place::{READER_PARTS, Topology, reader_part_of};
pub use tuned::{Options, Tuned};
pub use waiting::{LONG_AGO, Look, Patience, SLEEP_COST, Unparked, Waiting};
pub use word::{ConstWord, Word};

use core::sync::atomic::{Ordering::SeqCst, fence};

/// A computer as the locks see it. All functions, also those of the other traits, act for the calling thread.
///
/// # Safety
/// Exclusion rests on the machine, and so does the memory of those who rely on it ([`Raw`](crate::parts::raw::Raw),
/// [`Delegate`](crate::closure::Delegate)):
/// 1. A [`Word`]'s operations are atomic, and order memory as their [`Ordering`](core::sync::atomic::Ordering) says.
/// 2. A node or block that was taken is given to no other taker until it is given back.
/// 3. [`Waiting::spin_until`] returns `Some` only of a value that its condition has accepted.
pub unsafe trait Machine: Waiting + Topology + Listen {
    /// A pseudo-random number.
    fn random() -> u32;

    /// The options of the lock: those that the user chose for the process, or its own if it is on [`Tuned`]; the
    /// defaults, unless the machine has others.
    fn tunables() -> &'static Tunables {
        &Tunables::DEFAULT
    }

    /// The light half of a barrier in two halves. One thread of the process stores, passes the light half, and looks.
    /// Another stores, passes the [heavy half](Machine::heavy_fence), and looks. Then at least one of them sees what
    /// the other has stored. If the system has no such barrier, both halves are full fences.
    fn light_fence() {
        fence(SeqCst);
    }

    /// The other half: all other threads of the process pass a full barrier before it returns. As a rule this is a
    /// system call.
    fn heavy_fence() {
        fence(SeqCst);
    }

    /// Whether the calling thread should wait as little as possible, whatever other threads gain by its waiting. On
    /// most machines, never.
    fn urgent() -> bool {
        false
    }

    /// How much the calling thread is preferred to others: 0 is ordinary, more is preferred. Asked before it waits.
    fn priority() -> i32 {
        i32::from(Self::urgent())
    }
}
