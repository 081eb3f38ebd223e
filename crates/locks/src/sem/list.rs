//! What the thread at a semaphore's list does there. The numbered invariants are those of [`queue`](super::queue).

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::machine::node::state;
use crate::machine::{Handle, Machine, Word};
use crate::parts::list::List;
use crate::sem::call::{LISTED, help, is_at, is_listed, kind};
use crate::sem::queue::{BUSY, NEWS, QUEUED, Semaphore, has_list, is_busy, permits};

impl<M: Machine> Semaphore<'_, M> {
    /// (list, n) -> (list, busy, n). It fails if another thread is at the list, or there is no list.
    pub(super) fn try_enter(self) -> bool {
        let mut seen = self.word.load(Relaxed);
        while has_list(seen) && !is_busy(seen) {
            match self.word.compare_exchange(seen, seen | BUSY, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// (list, busy, n) -> (list, n + own), or n + own if the list is empty. Returns the first waiter that can be
    /// called, and whether it is alone in the list. If there is none, and `own` is not 0, all waiters that were called
    /// have been woken. From the last step on nothing of the semaphore is touched (invariant 6).
    pub(super) fn leave(self, own: u32) -> Option<(Handle, bool)> {
        loop {
            let seen = self.word.load(Relaxed);
            if seen & NEWS != 0 {
                // Invariant 3.
                if self.word.compare_exchange(seen, seen & !NEWS, Acquire, Relaxed).is_ok() {
                    self.adopt_all();
                }
                continue;
            }
            let first = self.first();
            if own > 0 && first.is_none() {
                self.each(|handle| help::<M>(handle, self.address()));
            }
            let head = self.queue.head.load(Relaxed);
            let first = first.map(|first| (first, head == first.word() && head == self.queue.tail.load(Relaxed)));
            let list = if head == 0 { 0 } else { QUEUED };
            if self.word.compare_exchange(seen, list | (permits(seen) + own), AcqRel, Relaxed).is_ok() {
                return first;
            }
        }
    }

    /// The list. Only for the thread at it.
    pub(super) fn list(&self) -> List<'_, M> {
        List { head: &self.queue.head, tail: &self.queue.tail }
    }

    /// Passes all nodes of the list to `show`. Only at the list.
    fn each(self, mut show: impl FnMut(Handle)) {
        let mut here = Handle::from_word(self.queue.head.load(Relaxed));
        while let Some(handle) = here {
            show(handle);
            here = Handle::from_word(handle.node::<M>().next.load(Relaxed));
        }
    }

    /// The first waiter that can be called. Nodes before it are taken out if their waiters were notified, or have left.
    /// Only at the list.
    fn first(self) -> Option<Handle> {
        let mut here = Handle::from_word(self.queue.head.load(Relaxed));
        while let Some(handle) = here {
            let node = handle.node::<M>();
            match kind(node.state.load(Acquire)) {
                state::WAITS => return Some(handle),
                state::CALLED => here = Handle::from_word(node.next.load(Relaxed)),
                _ => {
                    let next = Handle::from_word(node.next.load(Relaxed));
                    here = if self.take_out(handle, true) { next } else { Some(handle) };
                }
            }
        }
        None
    }

    /// Takes nodes out, from the end, whose waiters were notified, or have left. Only at the list.
    pub(super) fn sweep(self) {
        while let Some(last) = Handle::from_word(self.queue.tail.load(Relaxed))
            && matches!(kind(last.node::<M>().state.load(Acquire)), state::NOTIFIED | state::ABANDONED)
            && self.take_out(last, false)
        {}
    }

    /// Takes out a node whose waiter was notified (then the node is the waiter's), or has left (then the node is given
    /// back). If the waiter has announced itself again meanwhile, the node stays, at that end. Only at the list.
    fn take_out(self, handle: Handle, front: bool) -> bool {
        let node = handle.node::<M>();
        self.list().unlink(node);
        let mut seen = node.state.load(Acquire);
        loop {
            match kind(seen) {
                state::ABANDONED => {
                    M::give_node(handle);
                    return true;
                }
                state::NOTIFIED => match node.state.compare_exchange(seen, seen & !LISTED, AcqRel, Acquire) {
                    Ok(_) => return true,
                    Err(now) => seen = now,
                },
                _ => {
                    self.list().link(handle, front);
                    return false;
                }
            }
        }
    }

    /// Puts a waiter into the list if its state is WAITS or CALLED, and it is not there yet. Only at the list.
    pub(super) fn adopt(self, handle: Handle) {
        let node = handle.node::<M>();
        let mut seen = node.state.load(Acquire);
        while matches!(kind(seen), state::WAITS | state::CALLED) && !is_listed(seen) && is_at(node, self.address()) {
            match node.state.compare_exchange(seen, seen | LISTED, AcqRel, Acquire) {
                Ok(_) => return self.list().link(handle, node.batch.load(Relaxed) != 0),
                Err(now) => seen = now,
            }
        }
    }

    /// Puts all strays into the list. Only at the list.
    fn adopt_all(self) {
        let adopt = |handle| {
            self.adopt(handle);
            false
        };
        // SAFETY: only a node that waits at this semaphore changes (invariants 1 and 5).
        unsafe { M::any_node(adopt) };
    }

    /// Drops the list of another process (invariant 7). Only [`settle`](crate::parts::settle) calls this.
    pub(super) fn drop_list(self) {
        self.queue.head.store(0, Relaxed);
        self.queue.tail.store(0, Relaxed);
        let mut seen = self.word.load(Relaxed);
        while has_list(seen) {
            match self.word.compare_exchange(seen, permits(seen), Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}
