//! # The word `turn` of a `flash` lock
//!
//! The upper half is how often the lock was acquired, and may overflow. The lower half is when a head last got the
//! lock, or when the release last looked for one. Written by the holder, by plain stores, and by a thread that becomes
//! the head when there was none.

use core::sync::atomic::Ordering::Relaxed;

use crate::machine::{Machine, Word};

/// One acquisition.
const ONE: u32 = 1 << 16;
/// One unit of the time (µs).
const UNIT: u32 = 16;

/// One more acquisition.
#[inline(always)]
pub fn next(turn: u32) -> u32 {
    turn.wrapping_add(ONE)
}

/// Counts one acquisition, by the thread that has just made it. Relaxed: a hint, and the holder's own.
#[inline(always)]
pub(super) fn count<M: Machine>(turn: &M::Word) {
    turn.store(next(turn.load(Relaxed)), Relaxed);
}

/// Whether the number of acquisitions is a multiple of `n`, which is a power of two.
#[inline(always)]
pub fn is_multiple(turn: u32, n: u32) -> bool {
    turn & ((n - 1) * ONE) == 0
}

/// How many acquisitions there were between two looks.
#[inline(always)]
pub fn between(before: u32, after: u32) -> u32 {
    (after / ONE).wrapping_sub(before / ONE) & 0xFFFF
}

/// The same number, with another time.
pub fn at(turn: u32, micros: u32) -> u32 {
    turn & !(ONE - 1) | (micros / UNIT) & (ONE - 1)
}

/// How far (units) another thread's clock may be ahead: 4 ms.
const AHEAD: u32 = 256;

/// How long ago (µs) that time is, if it is less than a second ([`OLDEST`]). 0 if it is a little in the future.
pub fn age(turn: u32, micros: u32) -> u32 {
    let age = (micros / UNIT).wrapping_sub(turn) % ONE;
    if age < ONE - AHEAD { age * UNIT } else { 0 }
}

/// The highest age (µs) that can be told. Later the same ages come again: one that grows is below a limit for that
/// limit and 4 ms of each 1.05 s.
pub const OLDEST: u32 = (ONE - AHEAD - 1) * UNIT;
