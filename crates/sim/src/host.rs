//! # What the host can do
//!
//! Host instructions that speed up a simulation. **Prefetching.** The records of millions of lines do not fit into the
//! host's own caches. If the simulation knows early which record it needs next, the host fetches it while it simulates
//! something else. This changes no result, only how long it takes to compute. **Comparing four numbers at once.** A
//! cache has many sets, and looking up a line in a set is the most frequent operation of all.

/// Hints that a value will be read or written soon.
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

/// Which of four numbers equal this one, as bits; the first number is the lowest bit.
#[inline(always)]
pub(crate) fn equal(numbers: &[u32; 4], number: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_castsi128_ps, _mm_cmpeq_epi32, _mm_movemask_ps, _mm_set1_epi32, _mm_setr_epi32};
        let [a, b, c, d] = numbers.map(u32::cast_signed);
        // SAFETY: these only compute, and need SSE2, which every x86-64 CPU has.
        unsafe {
            let equal = _mm_cmpeq_epi32(_mm_setr_epi32(a, b, c, d), _mm_set1_epi32(number.cast_signed()));
            _mm_movemask_ps(_mm_castsi128_ps(equal)).cast_unsigned()
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    numbers.iter().rev().fold(0, |bits, &other| bits << 1 | u32::from(other == number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_the_lowest() {
        assert_eq!(equal(&[7, u32::MAX, 0, 7], 7), 0b1001);
        assert_eq!(equal(&[7, u32::MAX, 0, 7], u32::MAX), 0b10);
        assert_eq!(equal(&[7, u32::MAX, 0, 7], 1 << 31), 0);
    }
}
