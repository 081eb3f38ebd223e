//! # The order in which waiters are called: first come, or mostly last
//!
//! [`Order`] decides where a new waiter enters a list: at the front or at the end. Use an order other than FIFO when
//! several threads do the same work, and fewer would suffice.
//!
//! **Problem.** First-come-first-served makes all of these threads circulate: each call goes to the thread whose data
//! have been out of the caches for longest. **Idea.** Call the waiter that came last, so that a few circulate and the
//! others stay asleep. But put one waiter in N at the end of the list instead, so that every waiter is called in the
//! long run. **Source.** Dice, *Malthusian Locks*, EuroSys 2017, §6.10 (1 in 1,000), §6.11 (other probabilities, and
//! semaphores).
//!
//! A waiter that is put at the end makes room at the front for the waiter that has been there for longest. So if one
//! waiter in N is put at the end, each of n threads that circulate and sleep is called within about n × N waits.

use crate::machine::Machine;

/// Where a new waiter is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// One waiter in so many is put at the end; 0: none is.
    appends: u32,
}

impl Order {
    /// All at the end: first come, first called.
    pub const FIFO: Self = Self { appends: 1 };
    /// All at the front: last come, first called. The waiter at the end may stay there for ever.
    pub const LIFO: Self = Self { appends: 0 };
    /// What `lifo` means: one waiter in a thousand at the end.
    pub const MOSTLY_LIFO: Self = Self::lifo(1000);
    /// The largest N of `lifo:1/N`.
    pub const MOST: u32 = 1_000_000_000;
    /// What users may write.
    pub const SYNTAX: &'static str = "fifo, lifo (the same as lifo:1/1000), lifo:1/N (N up to 1000000000) or lifo:0";

    /// One waiter in `n` at the end, the others at the front. 1 is [`Order::FIFO`].
    pub const fn lifo(n: u32) -> Self {
        Self { appends: n }
    }

    /// One waiter in how many is put at the end; 0: none is.
    pub const fn appends(self) -> u32 {
        self.appends
    }

    /// What a user wrote.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "fifo" => Some(Self::FIFO),
            "lifo" => Some(Self::MOSTLY_LIFO),
            "lifo:0" => Some(Self::LIFO),
            _ => {
                let n = text.strip_prefix("lifo:1/")?.parse().ok()?;
                (1..=Self::MOST).contains(&n).then_some(Self::lifo(n))
            }
        }
    }

    /// Whether the calling thread, which is about to wait, is put at the front.
    #[inline]
    pub fn prepends<M: Machine>(self) -> bool {
        match self.appends {
            0 => true,
            1 => false,
            n => !M::random().is_multiple_of(n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_write() {
        assert_eq!(Order::parse("fifo"), Some(Order::FIFO));
        assert_eq!(Order::parse("lifo"), Some(Order::lifo(1000)));
        assert_eq!(Order::parse("lifo:1/7"), Some(Order::lifo(7)));
        assert_eq!(Order::parse("lifo:1/1"), Some(Order::FIFO));
        assert_eq!(Order::parse("lifo:0"), Some(Order::LIFO));
        for wrong in ["", "FIFO", "lifo:", "lifo:1", "lifo:1/0", "lifo:2/3", "lifo:1/1000000001", "fifo:1/2"] {
            assert_eq!(Order::parse(wrong), None, "{wrong}");
        }
    }
}
