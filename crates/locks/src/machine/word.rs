//! Atomic words.

use core::sync::atomic::Ordering;

/// A 32-bit atomic word. The operations are those of `AtomicU32`, with its orderings.
pub trait Word: Sized + 'static {
    /// A word holding `value`.
    fn new(value: u32) -> Self;
    /// Reads the word.
    fn load(&self, order: Ordering) -> u32;
    /// Writes the word.
    fn store(&self, value: u32, order: Ordering);
    /// Writes the word and returns what it held.
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// `current -> new`; the error is what the word holds instead. Never fails spuriously.
    fn compare_exchange(&self, current: u32, new: u32, ok: Ordering, err: Ordering) -> Result<u32, u32>;
    /// Adds (wrapping) and returns what the word held.
    fn fetch_add(&self, value: u32, order: Ordering) -> u32;
    /// Ors and returns what the word held.
    fn fetch_or(&self, value: u32, order: Ordering) -> u32;
    /// Ands and returns what the word held.
    fn fetch_and(&self, value: u32, order: Ordering) -> u32;
    /// [`Word::compare_exchange`] of a word that other processes may use at the same time, without the machine knowing.
    fn compare_exchange_between_processes(
        &self,
        current: u32,
        new: u32,
        ok: Ordering,
        err: Ordering,
    ) -> Result<u32, u32> {
        self.compare_exchange(current, new, ok, err)
    }
    /// [`Word::swap`] by a lock's holder, which frees the lock: writes `free`. Other threads may at most have marked
    /// the word because they sleep on it. Returns whether it held such a mark, which is any value above `held`.
    fn hand_back(&self, free: u32, held: u32, order: Ordering) -> bool {
        self.swap(free, order) > held
    }
    /// Sets the eight bits of [`HIGH_BYTE`] to zero, whatever happens to the others at the same time. It costs as much
    /// as a store, and synchronises like one; `order` is Relaxed or Release.
    fn clear_high_byte(&self, order: Ordering) {
        self.fetch_and(!HIGH_BYTE, order);
    }
}

/// What [`Word::clear_high_byte`] clears.
pub const HIGH_BYTE: u32 = 0xff00_0000;

/// Words that can be made in a `static` (all except loom's).
pub trait ConstWord: Word {
    /// A word holding zero.
    const ZERO: Self;
}
