//! # The interface of a model checker
//!
//! [`Checker`] is what loom and shuttle have in common; the rest of this crate is written against it. Both run all
//! threads of a model on one OS thread, as coroutines. They switch only inside their own atomics, `yield_now` and
//! blocking calls. So everything else here is atomic, and the state of an execution can be in an ordinary thread-local
//! of that OS thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::thread::LocalKey;

use flashlock_locks::machine::Word;

use crate::world::World;

/// A model checker.
pub trait Checker: Sized + 'static {
    /// Whether some words are written only by exchanges, because the checker needs it (see
    /// [`word`](crate::word::Word)).
    const EXCHANGES: bool;
    /// Whether a queue node must exist before threads begin, because an access to a word that is not ordered after its
    /// creation would be a failure. Otherwise each is created when it is first used: few are, in most executions.
    const NODES_ARE_READY: bool;
    /// Its `AtomicU32`.
    type Atomic: Word;
    /// Identifies a thread of the model.
    type Id: Copy + Eq + Send + 'static;
    /// A handle with which to unblock a thread.
    type Thread: Clone + 'static;
    /// The data that a critical section accesses: a second thread in it must be a failure.
    type Data: Data;

    /// The place of the running execution's world.
    fn slot() -> &'static LocalKey<RefCell<Option<Rc<World<Self>>>>>;
    /// The calling thread's id.
    fn id() -> Self::Id;
    /// The calling thread's handle.
    fn thread() -> Self::Thread;
    /// A full fence.
    fn fence();
    /// Lets other threads run.
    fn yield_now();
    /// Blocks until unblocked; may return for no reason.
    fn block();
    /// Unblocks a thread. There is no scheduling point before the thread is unblocked.
    fn unblock(thread: &Self::Thread);
    /// Returns true once in `one_in` times, by the checker's choice; never for 0. (A checker that explores exhaustively
    /// never returns true.)
    fn chance(one_in: u32) -> bool;
    /// A number that the checker chooses, or a constant.
    fn random() -> u32;
}

/// Data that a lock protects.
pub trait Data: 'static {
    /// Data that no critical section has accessed yet.
    fn new() -> Self;
    /// Accesses the data as a critical section. Panics if another critical section is not ordered before or after this
    /// one. Returns how many there were before.
    fn visit(&self) -> u32;
    /// Accesses the data as a reader. Panics if a critical section is not ordered before or after this one. Returns how
    /// many there were before.
    fn look(&self) -> u32;
}
