//! Random numbers: Marsaglia's xorshift with 64 bits of state, one generator per thread.

/// A generator of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct XorShift(u64);

impl XorShift {
    /// About how long drawing a number takes, in ns: for backends where only reported computing takes time.
    pub const DRAW_NS: u32 = 2;

    /// The generator of one of several clients. The streams of neighbouring clients are unrelated.
    pub fn new(seed: u64, client: u32) -> Self {
        // Two steps of a mixer (Steele and others' SplitMix64): the state must not be zero, nor simply related to the
        // seed.
        let mut state = seed ^ (u64::from(client) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for _ in 0..2 {
            state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            state ^= state >> 27;
        }
        Self(state | 1)
    }

    /// The next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`. Each is equally likely, except for less than `limit` parts in 2³² (one in a million
    /// below 4096).
    #[inline]
    pub fn below(&mut self, limit: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(limit)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_evenly() {
        let mut random = XorShift::new(1, 0);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_same_for_the_same_seed_and_different_for_each_client() {
        let first = |seed, client| XorShift::new(seed, client).bits();
        assert_eq!(first(5, 3), first(5, 3));
        assert_ne!(first(5, 3), first(5, 4));
        assert_ne!(first(5, 3), first(6, 3));
    }
}
