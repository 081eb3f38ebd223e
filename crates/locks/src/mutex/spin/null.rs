//! # null: no lock at all
//!
//! `null` does nothing, and excludes no thread. **Use it** to measure the cost of the benchmark itself, and subtract
//! it: `flashlock simulate --locks null,mcs --threads 1`. **Rather not** for anything else.
//!
//! **Problem.** A benchmark measures a lock together with the benchmark: its loops, its sections, its bookkeeping.
//! **Idea.** A lock that does nothing shows what the rest takes. **Source.** None: lock benchmarks have always had it.
//!
//! ```text
//!     lock ───> section ───> unlock        of which the first and the last are empty
//! ```
//!
//! **Departures.** None: there is nothing to depart from.
//!
//! ## State, invariants, orderings
//! None: neither word nor queue is accessed, no thread is kept out, and nothing is ordered.
//!
//! **Cannot:** exclude any thread. No program can be run under it, and only simulations with a single thread can. The
//! tests that every lock must pass leave it out.

use crate::machine::{Deadline, Machine, TimedOut};
use crate::parts::raw::RawLock;

/// Not a lock.
pub struct Null;

// SAFETY: it has no nodes.
unsafe impl<M: Machine> RawLock<M> for Null {
    const EXCLUDES: bool = false;

    type Queue = ();

    #[inline]
    unsafe fn try_acquire(_: &M::Word, (): &()) -> bool {
        true
    }

    #[inline]
    unsafe fn acquire(_: &M::Word, (): &(), _: Option<&Deadline>) -> Result<(), TimedOut> {
        Ok(())
    }

    #[inline]
    unsafe fn release(_: &M::Word, (): &()) {}

    unsafe fn is_locked(_: &M::Word, (): &()) -> bool {
        false
    }
}
