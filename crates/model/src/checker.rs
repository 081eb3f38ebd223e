//! # What a model checker offers
//!
//! loom and shuttle both run all threads of a model on one OS thread, as coroutines, and switch only inside their own
//! atomics, `yield_now` and blocking calls. Everything here that is not one of those is therefore atomic, and state
//! that belongs to an execution can stand in an ordinary thread-local of that OS thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::thread::LocalKey;

use flashlock_locks::machine::Word;

use crate::world::World;

/// A model checker.
pub trait Checker: Sized + 'static {
    /// Whether a node's state is written by exchanges only, for the checker's sake (see [`word`](crate::word::Word)).
    const EXCHANGES: bool;
    /// Its `AtomicU32`.
    type Atomic: Word;
    /// Names a thread of the model.
    type Id: Copy + Eq + 'static;
    /// A handle by which a blocked thread is unblocked.
    type Thread: Clone + 'static;
    /// What a critical section touches: a second thread in it must be a failure.
    type Data: Data;

    /// Where the running execution's world stands.
    fn slot() -> &'static LocalKey<RefCell<Option<Rc<World<Self>>>>>;
    /// The calling thread.
    fn id() -> Self::Id;
    /// The calling thread.
    fn thread() -> Self::Thread;
    /// A full fence.
    fn fence();
    /// Lets others run.
    fn yield_now();
    /// Blocks until unblocked; may return for no reason.
    fn block();
    /// Unblocks a thread. Not a scheduling point before the thread is unblocked.
    fn unblock(thread: &Self::Thread);
    /// True once in `one_in` times, by the checker's choice; never for 0. (A checker that explores exhaustively says
    /// never.)
    fn chance(one_in: u32) -> bool;
    /// A number of the checker's choice, or a constant.
    fn random() -> u32;
}

/// Data that a lock protects.
pub trait Data: 'static {
    /// Unused data.
    fn new() -> Self;
    /// What a critical section does with it: fails if another one is not ordered before it, or after. How many there
    /// were before.
    fn visit(&self) -> u32;
    /// What a reader does with it: fails if a critical section is not ordered before it, or after. How many there were
    /// before.
    fn look(&self) -> u32;
}
