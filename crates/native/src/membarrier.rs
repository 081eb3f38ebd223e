//! # An asymmetric barrier: one side is free
//!
//! Two threads each write, then look at what the other writes. Each needs a full barrier in between. With
//! `membarrier(PRIVATE_EXPEDITED)` (Linux 4.14), one of them needs none if the other makes that call: it returns after
//! every running thread of the process has passed a full barrier. Use it when one side is rare and may be slow, like a
//! thread that is about to sleep, and the other is frequent and must be fast.
//!
//! A process must register before it may make the call. Until it has ([`prepare`]), and if the kernel or a sandbox
//! refuses, both sides are fences.
//!
//! **A sandbox that refuses later.** A thread may have passed the free side a moment ago, with its store not yet
//! visible. [`heavy`] then makes both sides fences and sleeps for a while: a processor does not hold back a store for
//! nearly that long.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
    compiler_fence, fence,
};

use crate::sys;

/// Commands that the `libc` crate does not have for all targets.
const PRIVATE_EXPEDITED: usize = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;

/// Much longer than a store takes to become visible (µs).
const SETTLE: u32 = 1_000;

/// 1 if the process has registered. Changes from 0 to 1, and back if the call is refused.
static REGISTERED: AtomicU32 = AtomicU32::new(0);

fn call(command: usize) -> bool {
    // SAFETY: no memory is accessed.
    unsafe { sys::syscall(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) == 0 }
}

/// Registers the process. Returns whether it may make the call. A forked child is registered if its parent was.
pub fn prepare() -> bool {
    let may = REGISTERED.load(Relaxed) != 0 || call(REGISTER_PRIVATE_EXPEDITED) && call(PRIVATE_EXPEDITED);
    if may {
        REGISTERED.store(1, Relaxed);
    }
    may
}

/// Whether [`light`] is free.
pub fn is_there() -> bool {
    REGISTERED.load(Relaxed) != 0
}

/// The free side.
#[inline(always)]
pub fn light() {
    // Relaxed: while it is 0, both sides are fences; it is set only after the kernel has agreed.
    if is_there() {
        compiler_fence(SeqCst);
    } else {
        full();
    }
}

#[cold]
fn full() {
    fence(SeqCst);
}

/// The expensive side.
pub fn heavy() {
    fence(SeqCst);
    if is_there() && !call(PRIVATE_EXPEDITED) {
        REGISTERED.store(0, SeqCst);
        sys::nap(SETTLE);
        fence(SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads each store, then look: at least one sees the other's store. (Without the call, this fails on x86-64
    /// within some thousand rounds.)
    #[test]
    fn one_side_sees_the_other() {
        use std::sync::Barrier;
        const ROUNDS: u32 = 20_000;
        prepare();
        let (a, b, seen) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let gate = Barrier::new(2);
        let play = |mine: &AtomicU32, other: &AtomicU32, side: fn()| {
            for round in 1..=ROUNDS {
                gate.wait();
                mine.store(round, Relaxed);
                side();
                let saw = other.load(Relaxed) == round;
                seen.fetch_add(u32::from(saw), Relaxed);
                gate.wait();
                assert!(seen.load(Relaxed) >= 1, "round {round}: neither saw the other");
                gate.wait();
                seen.store(0, Relaxed);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| play(&a, &b, light));
            play(&b, &a, heavy);
        });
    }
}
