//! # Readers-writer locks
//!
//! Any number of readers, or one writer. Like a [`RawLock`](crate::parts::raw::RawLock), such a lock is a type without
//! values: its state is made of words, passed by reference, and all-zero is a free lock.
//!
//! | file | lock |
//! |---|---|
//! | [`shfl`] | `shfl-rw`: one counter, and one queue for readers and writers, which waiters reorder |
//! | [`cst`] | `cst-rw`: distributed counters, one for each NUMA node or part of it, in a side block that is made when readers meet |
//! | [`futex`] | `futex-rw`: one counter, on which all waiters sleep; the simplest one |
//!
//! ## Which thread goes first
//! If readers never wait for a waiting writer, writers starve. If readers always wait for one, a deadlock is possible:
//! thread A holds a read lock and waits for B, B wants a read lock, and a writer is queued between them. So a reader
//! says what it is ([`Reader`]). A reader that holds a read lock already passes waiting writers. Any other reader waits
//! behind them, but not for ever: if only a waiting writer keeps it out, it is admitted after the bound. A writer that
//! has been passed in this way makes the next reader wait twice as long. So the writer does not starve, either. Readers
//! wait for writers without a bound only if the program has asked for that (glibc's `PREFER_WRITER_NONRECURSIVE`).

use crate::machine::{Deadline, Machine};

pub mod cst;
pub mod futex;
pub mod shfl;

pub use cst::CstRw;
pub use futex::FutexRw;
pub use shfl::ShflRw;

/// How a reader treats waiting writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It holds a read lock on this lock, as far as is known. It passes them.
    Again,
    /// It waits behind them, for as long as the bound.
    Newcomer,
    /// It waits behind them for as long as it takes.
    Behind,
}

/// How a writer treats new readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// It lets them in as long as that costs it little time.
    Fair,
    /// It keeps them out from the moment it is head.
    Preferred,
}

/// Why a lock was not acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Others hold it, or go first.
    Busy,
    /// The deadline has passed.
    TimedOut,
    /// As many readers hold it as can be counted.
    Overflow,
}

/// A readers-writer lock.
pub trait RawRwLock<M: Machine>: 'static {
    /// Its state; all-zero is free.
    type State: 'static;

    /// The number of readers that can hold it at once, at least.
    const MOST_READERS: u32;

    /// A free lock.
    fn new_state() -> Self::State;

    /// Acquires for reading if no thread holds the lock for writing, or is about to. This is the fast path, to be tried
    /// before [`read`](Self::read).
    fn enter(state: &Self::State) -> bool;

    /// Acquires for reading. A reader that need not wait for writers acquires a lock that no writer holds even after
    /// the deadline.
    fn read(state: &Self::State, how: Reader, until: Option<Deadline>) -> Result<(), Refusal>;

    /// Acquires for reading if that is possible at once. A [`Reader::Newcomer`] passes writers that wait.
    fn try_read(state: &Self::State, how: Reader) -> Result<(), Refusal>;

    /// Acquires for writing. A free lock is acquired even after the deadline.
    fn write(state: &Self::State, how: Writer, until: Option<Deadline>) -> Result<(), Refusal>;

    /// Acquires for writing if that is possible at once.
    fn try_write(state: &Self::State) -> bool;

    /// Releases what is held: the write lock if there is one, else a read lock; nothing if the lock is free. After the
    /// store that lets another thread in, nothing of the lock is accessed.
    fn unlock(state: &Self::State);

    /// Whether a thread holds the lock for writing, or did a moment ago.
    fn is_written(state: &Self::State) -> bool;

    /// Whether a thread holds the lock, or did a moment ago.
    fn is_held(state: &Self::State) -> bool;

    /// Gives back what the lock owns beside its state. No thread uses the lock any more.
    fn destroy(_state: &Self::State) {}
}
