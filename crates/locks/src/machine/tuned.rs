//! # Options of one lock
//!
//! A lock reads its options from its machine, which has one set of them for all locks: what the user chose for the
//! process. A program that embeds locks can give a lock options of its own: a lock on [`Tuned<M, O>`](Tuned) is a lock
//! on `M` that reads `O`. So two locks of one kind may differ in one program:
//!
//! ```
//! use flashlock_locks::machine::{Options, Tunables};
//!
//! /// A waiter is handed the lock after 100 us.
//! struct Prompt;
//!
//! // SAFETY: it is a constant.
//! unsafe impl Options for Prompt {
//!     fn tunables() -> &'static Tunables {
//!         &Tunables { bound_us: 100, ..Tunables::DEFAULT }
//!     }
//! }
//! ```
//!
//! Nodes and blocks are those of `M`, so tuned locks and others share one pool.
//!
//! A native program calls `flashlock_native::place::prepare` before it uses policies. Until then, all threads are on
//! NUMA node 0, and the policies `llc` and `levels` see one cache.

use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use crate::machine::block::{Block, Name};
use crate::machine::event::Event;
use crate::machine::node::Node;
use crate::machine::{
    Beside, Blocks, Deadline, Division, Handle, Kept, Listen, Look, Machine, Manner, Memory, Patience, Pause, Special,
    Time, Topology, Tunables, Unparked, Waiting,
};

/// The options of a lock.
///
/// # Safety
/// [`Options::tunables`] always returns the same values: two functions of a lock may each rely on an option.
pub unsafe trait Options: 'static {
    /// Their values. The functions of a lock may ask at any time.
    fn tunables() -> &'static Tunables;
}

/// The machine `M`, with other options.
pub struct Tuned<M, O>(PhantomData<fn() -> (M, O)>);

/// The same node, as a node of the other machine.
fn node_of<M: Memory, N: Memory<Word = M::Word>>(node: &Node<M>) -> &Node<N> {
    // SAFETY: a node is `repr(C)` and consists of words; which machine they belong to is only in its type.
    unsafe { &*core::ptr::from_ref(node).cast() }
}

#[warn(clippy::missing_trait_methods)] // A default that `M` replaces would be used instead.
impl<M: Machine, O: Options> Memory for Tuned<M, O> {
    type Word = M::Word;

    #[inline]
    fn node(handle: Handle) -> &'static Node<Self> {
        node_of(M::node(handle))
    }

    #[inline]
    unsafe fn take_node() -> Handle {
        // SAFETY: the callers' promise; the nodes are `M`'s.
        unsafe { M::take_node() }
    }

    #[inline]
    fn give_node(handle: Handle) {
        M::give_node(handle);
    }

    #[inline]
    fn epoch() -> u32 {
        M::epoch()
    }

    fn beside(which: Beside, lock: *const Self::Word) -> &'static Self::Word {
        M::beside(which, lock)
    }

    #[inline]
    fn kept<R>(which: Kept, act: impl FnOnce(&Cell<u32>) -> R) -> R {
        M::kept(which, act)
    }
}

#[warn(clippy::missing_trait_methods)]
impl<M: Machine, O: Options> Blocks for Tuned<M, O> {
    #[inline]
    fn block(name: Name) -> &'static Block<Self> {
        // SAFETY: as in `node_of`.
        unsafe { &*core::ptr::from_ref(M::block(name)).cast() }
    }

    unsafe fn take_block() -> Name {
        // SAFETY: as for `take_node`.
        unsafe { M::take_block() }
    }

    fn give_block(name: Name) {
        M::give_block(name);
    }
}

#[warn(clippy::missing_trait_methods)]
impl<M: Machine, O: Options> Time for Tuned<M, O> {
    #[inline]
    fn micros() -> u32 {
        M::micros()
    }

    fn expired(deadline: &Deadline) -> bool {
        M::expired(deadline)
    }

    fn sooner(micros: u32, other: Option<Deadline>) -> Deadline {
        M::sooner(micros, other)
    }
}

#[warn(clippy::missing_trait_methods)]
impl<M: Machine, O: Options> Waiting for Tuned<M, O> {
    #[inline]
    fn spin_until(
        word: &Self::Word,
        order: Ordering,
        patience: Patience,
        done: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        M::spin_until(word, order, patience, done)
    }

    #[inline]
    fn pause(how: Pause) {
        M::pause(how);
    }

    fn crowded() -> bool {
        M::crowded()
    }

    fn park(word: &Self::Word, expected: u32, until: Option<Deadline>) -> Unparked {
        M::park(word, expected, until)
    }

    fn wake(address: *const Self::Word, count: u32) -> u32 {
        M::wake(address, count)
    }

    fn unpark(node: &Node<Self>) -> u32 {
        M::unpark(node_of(node))
    }

    fn requeue(node: &Node<Self>, address: *const Self::Word) {
        M::requeue(node_of(node), address);
    }
}

#[warn(clippy::missing_trait_methods)]
impl<M: Machine, O: Options> Topology for Tuned<M, O> {
    #[inline]
    fn numa_node() -> u32 {
        M::numa_node()
    }

    #[inline]
    fn part(of: Division) -> u32 {
        M::part(of)
    }
}

#[warn(clippy::missing_trait_methods)]
impl<M: Machine, O: Options> Listen for Tuned<M, O> {
    #[inline(always)]
    fn counted_on(waiter: &Node<Self>) -> Option<u32> {
        M::counted_on(node_of(waiter))
    }

    #[inline(always)]
    fn about(lock: usize) -> usize {
        M::about(lock)
    }

    #[inline(always)]
    fn trace(event: Event) {
        M::trace(event);
    }

    #[inline(always)]
    fn stamp() -> u64 {
        M::stamp()
    }

    #[inline(always)]
    fn waited(stamp: u64) {
        M::waited(stamp);
    }
}

#[warn(clippy::missing_trait_methods)]
impl<M: Machine, O: Options> Special for Tuned<M, O> {
    unsafe fn any_node(look: impl FnMut(Handle) -> bool) -> bool {
        // SAFETY: as for `take_node`.
        unsafe { M::any_node(look) }
    }

    fn is_there(word: &Self::Word) -> bool {
        M::is_there(word)
    }

    #[inline]
    fn poll_until(
        word: &Self::Word,
        order: Ordering,
        patience: Patience,
        how: Manner<'_>,
        done: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        M::poll_until(word, order, patience, how, done)
    }

    #[inline]
    fn poll(word: &Self::Word, beside: &Self::Word, micros: u32, look: impl FnMut(u32, u32) -> Look) -> bool {
        M::poll(word, beside, micros, look)
    }

    #[inline]
    fn steps() -> u32 {
        M::steps()
    }

    fn sleep_cost() -> u32 {
        M::sleep_cost()
    }

    fn transfer_cost(times: u32) -> u32 {
        M::transfer_cost(times)
    }

    #[inline]
    fn light_fence() {
        M::light_fence();
    }

    fn heavy_fence() {
        M::heavy_fence();
    }

    fn priority() -> i32 {
        M::priority()
    }

    fn distance(a: u32, b: u32) -> u32 {
        M::distance(a, b)
    }
}

// SAFETY: it is the machine `M`.
#[warn(clippy::missing_trait_methods)]
unsafe impl<M: Machine, O: Options> Machine for Tuned<M, O> {
    #[inline]
    fn random() -> u32 {
        M::random()
    }

    #[inline]
    fn tunables() -> &'static Tunables {
        O::tunables()
    }
}
