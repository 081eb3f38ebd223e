//! # The epoch: telling a forked child from its parent
//!
//! A queue node that a forked child inherits may belong to a thread which does not exist there. Each node carries the
//! epoch in which it was queued. The current epoch lives in a page of the [`registry`] that the kernel wipes in a
//! forked child (`MADV_WIPEONFORK`, Linux 4.14), however the fork was made; who finds it zero fills it in. Where the
//! kernel cannot do that, a child of `fork` does it itself ([`registry::prepare`]); in one of a raw system call the
//! epoch is the parent's, and waiters that it inherits may hang it.
//!
//! An epoch is a number that no ancestor has had: one more than the last that was given out in any of them, for that
//! memory is inherited. So it counts those of the ancestors that have asked for theirs. (A process id would not do: it
//! comes again, and the first process of each container has the same.)

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
    // Given out before it is used, so that a child forked by another thread in between counts on from it: Release, and
    // its partner is the fork, which copies `last_epoch` no older than nodes with the epoch.
    //
    // Of several threads that come at once, the first to claim a number prevails; no other is given out. A thread that
    // sees `last_epoch` advanced (Acquire) sees the claim that was made before (Release), and takes that.
    //
    // A signal handler that forks in here lets the child go on with the parent's number, but the kernel has wiped the
    // claim: hence the look at it after the last store. Who forks is this thread itself, so the compiler alone has to
    // keep the two in order.
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

    /// Whether the check holds in a forked child.
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

    /// What the kernel does to a child, again and again in one process, whose id stays the same.
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

    /// Numbers that nobody uses would make a lock believe in more ancestors than there are.
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
