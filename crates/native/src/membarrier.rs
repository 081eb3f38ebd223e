//! # A barrier of which one side is free
//!
//! `membarrier(PRIVATE_EXPEDITED)` (Linux 4.14) returns after every running thread of the process has passed a full
//! barrier. So of two threads that each write and then look at what the other one writes, one can do without a fence,
//! if the other one makes the call in between. Who calls it seldom, as who is about to sleep, lets those be fast who
//! pass often.
//!
//! A process must register before it may make the call. Until it has ([`prepare`]), and where the kernel or a sandbox
//! refuses, both sides are fences.
//!
//! **A sandbox that refuses later.** A thread may then have passed the free side a moment ago, with its store not yet
//! seen. [`heavy`] makes both sides fences and sleeps for a while: a processor does not keep a store to itself for
//! nearly as long.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
    compiler_fence, fence,
};

use crate::sys;

/// Commands that the `libc` crate does not have for all targets.
const PRIVATE_EXPEDITED: usize = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;

/// Much longer than a store takes (µs).
const SETTLE: u32 = 1_000;

/// Whether the process has registered; changes from 0 to 1, and back if the call is refused.
static REGISTERED: AtomicU32 = AtomicU32::new(0);

fn call(command: usize) -> bool {
    // SAFETY: no memory is accessed.
    unsafe { sys::syscall(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) == 0 }
}

/// Registers the process. Whether it may make the call. A forked child has registered if its parent had.
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

/// The side that is free.
#[inline(always)]
pub fn light() {
    // Relaxed: while it says no, both sides are fences; it says yes only after the kernel has.
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

/// The other side.
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

    /// Two threads that each store and look: one of them sees the other one's store. (Without the call, on x86-64, it
    /// fails within some thousand rounds.)
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
