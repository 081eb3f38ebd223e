//! # A list of waiters, linked both ways
//!
//! The list of the condition variable and of the semaphore. Only a thread with exclusive access touches it, so all
//! accesses are Relaxed.
//!
//! ```text
//!   head ─> node <─next/prev─> node <─> node <─ tail          head and tail are 0 if there is none
//! ```

use core::sync::atomic::Ordering::Relaxed;

use crate::machine::node::Node;
use crate::machine::{Handle, Machine, Word};

/// The list's ends.
#[derive(Clone, Copy)]
pub(crate) struct List<'a, M: Machine> {
    pub(crate) head: &'a M::Word,
    pub(crate) tail: &'a M::Word,
}

impl<M: Machine> List<'_, M> {
    /// Puts a node at the end, or at the front.
    pub(crate) fn link(self, me: Handle, front: bool) {
        let (node, end) = (me.node::<M>(), if front { self.head } else { self.tail });
        let beside = end.load(Relaxed);
        let (prev, next) = if front { (0, beside) } else { (beside, 0) };
        node.prev.store(prev, Relaxed);
        node.next.store(next, Relaxed);
        match Handle::from_word(beside) {
            Some(beside) if front => beside.node::<M>().prev.store(me.word(), Relaxed),
            Some(beside) => beside.node::<M>().next.store(me.word(), Relaxed),
            None if front => self.tail.store(me.word(), Relaxed),
            None => self.head.store(me.word(), Relaxed),
        }
        end.store(me.word(), Relaxed);
    }

    /// Takes a node out.
    pub(crate) fn unlink(self, node: &Node<M>) {
        let (prev, next) = (node.prev.load(Relaxed), node.next.load(Relaxed));
        match Handle::from_word(prev) {
            Some(prev) => prev.node::<M>().next.store(next, Relaxed),
            None => self.head.store(next, Relaxed),
        }
        match Handle::from_word(next) {
            Some(next) => next.node::<M>().prev.store(prev, Relaxed),
            None => self.tail.store(prev, Relaxed),
        }
    }
}
