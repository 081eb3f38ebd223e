//! # What this computer is asked for beforehand
//!
//! What is known of millions of lines does not fit into this computer's own caches. Where it is known early which of it comes next, it is
//! fetched while something else is simulated. That changes no result, only how long it takes to come.

/// A value will be read or written soon.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint. It accesses nothing, whatever the address is.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
