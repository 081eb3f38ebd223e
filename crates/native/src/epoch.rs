//! # The epoch: telling a forked child from its parent
//!
//! A queue node that a forked child inherits may belong to a thread that does not exist in the child. So each node
//! carries the epoch in which it was queued, and a lock compares it with the current epoch. The current epoch is in a
//! page of the [`registry`] that the kernel wipes in a forked child (`MADV_WIPEONFORK`, Linux 4.14), however the fork
//! was made. A thread that finds it zero sets it. If the kernel cannot wipe, a child of `fork` does it itself
//! ([`registry::prepare`]). A child of a raw system call then keeps the parent's epoch, and waiters that it inherits
//! may hang it.
//!
//! An epoch is a number that no ancestor has had: one more than the last that was given out in any of them, because
//! that memory is inherited. So it counts the ancestors that asked for their epoch. (A process id would not do: it can
//! be reused, and the first process of each container has the same one.)

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::compiler_fence;

use flashlock_locks::machine::FIRST_EPOCH;

use crate::registry;

/// The current process's epoch, never 0; [`FIRST_EPOCH`] is the first that is given out.
#[inline]
pub fn current() -> u32 {
    match registry::get().wiped.epoch.load(Relaxed) {
        0 => refresh(),
        epoch => epoch,
    }
}

#[cold]
fn refresh() -> u32 {
    let registry = registry::get();
    // The number is given out (`last_epoch`) before it is used (`epoch`). So a child that another thread forks in
    // between counts on from it. The Release pairs with the fork: the child's copy of `last_epoch` is no older than any
    // node with that epoch.
    //
    // If several threads come here at once, the first to claim a number wins, and no other number is given out. A
    // thread that sees `last_epoch` advanced (Acquire) also sees the claim that was made before (Release), and uses
    // that.
    //
    // A signal handler may fork in here. Its child continues with the parent's number, but the kernel has wiped the
    // claim. So the claim is checked after the last store. The forking thread is this thread itself, so only the
    // compiler must keep the two in order.
    loop {
        let last = registry.last_epoch.load(Acquire);
        let next = last.wrapping_add(1).max(FIRST_EPOCH);
        let next =
            registry.wiped.claim.compare_exchange(0, next, Relaxed, Relaxed).map_or_else(|claimed| claimed, |_| next);
        let _ = registry.last_epoch.compare_exchange(last, next, Release, Relaxed);
        registry.wiped.epoch.store(next, Release);
        compiler_fence(SeqCst);
        if registry.wiped.claim.load(Relaxed) == next {
            return next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the check in a forked child; returns whether it holds there.
    fn in_a_child(check: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls only async-signal-safe functions.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = if check() { 0 } else { 1 };
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        status == 0
    }

    /// Repeats what the kernel does to a child, in one process, whose id stays the same.
    #[test]
    fn no_epoch_comes_again_in_a_line_of_descent() {
        assert!(in_a_child(|| {
            let mut seen = [0; 100];
            for epoch in &mut seen {
                *epoch = current();
                registry::get().wiped.epoch.store(0, Relaxed);
                registry::get().wiped.claim.store(0, Relaxed);
            }
            seen.iter().enumerate().all(|(at, epoch)| *epoch != 0 && !seen[..at].contains(epoch))
        }));
    }

    /// Unused numbers would make a lock assume more ancestors than there are.
    #[test]
    fn threads_that_come_at_once_agree_on_the_next() {
        use std::sync::Barrier;
        assert!(in_a_child(|| {
            let registry = registry::get();
            let (together, apart) = (Barrier::new(3), Barrier::new(3));
            let wrong = || {
                let round = |_: &i32| {
                    let last = registry.last_epoch.load(Relaxed);
                    registry.wiped.epoch.store(0, Relaxed);
                    registry.wiped.claim.store(0, Relaxed);
                    together.wait();
                    let right = current() == last + 1;
                    apart.wait();
                    !right || registry.last_epoch.load(Relaxed) != last + 1
                };
                (0..1_000).filter(round).count()
            };
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3).map(|_| scope.spawn(wrong)).collect();
                threads.into_iter().all(|thread| thread.join().is_ok_and(|wrong| wrong == 0))
            })
        }));
    }

    #[test]
    fn a_forked_child_has_an_epoch_of_its_own() {
        let mine = current();
        assert_eq!(mine, current());
        assert!(in_a_child(|| current() != mine));
    }
}
