//! Random numbers for the order of runs.

/// A small generator of random numbers (xorshift64*).
pub struct Random(u64);

impl Random {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring orders, and the state must not be zero.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// 48 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Brings a list into random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.bits() as usize % (last + 1);
            list.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffled_list_is_the_same_in_another_order() {
        let mut list: Vec<u32> = (0..50).collect();
        Random::new(7).shuffle(&mut list);
        assert_ne!(list, (0..50).collect::<Vec<_>>());
        list.sort_unstable();
        assert_eq!(list, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn neighbouring_seeds_give_different_orders() {
        let order = |seed| {
            let mut list: Vec<u32> = (0..8).collect();
            Random::new(seed).shuffle(&mut list);
            list
        };
        let orders: std::collections::BTreeSet<_> = (0..20).map(order).collect();
        assert!(orders.len() > 15, "{orders:?}");
        assert_eq!(order(3), order(3));
    }
}
