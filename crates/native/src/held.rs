//! # The read locks that a thread holds
//!
//! A readers-writer lock counts its readers, but does not know them. A reader that already holds the lock must overtake
//! the writers that wait for it to release. So each thread remembers the addresses of the last [`ROOM`] read locks that
//! it acquired and has not released.
//!
//! This is a hint. A thread that holds more read locks than there is room for forgets the oldest. If another thread
//! releases its lock, the address stays here for nothing. Code that relies on the hint must be correct without it, if
//! slower. A signal handler that uses readers-writer locks may run between any two instructions here. At worst an
//! address is forgotten, or kept.

use core::cell::Cell;

use crate::local::zeroed_per_thread;

/// How many addresses are remembered.
pub const ROOM: usize = 8;

struct Held {
    addresses: [Cell<usize>; ROOM],
    /// How many were noted, minus those that were released in reverse order.
    depth: Cell<u32>,
}

zeroed_per_thread! {
    static HELD: Held = "flashlock_native_held";
}

/// Notes that the calling thread has acquired the lock at this address for reading.
#[inline]
pub fn note(address: usize) {
    HELD.with(|held| {
        let depth = held.depth.get();
        held.addresses[depth as usize % ROOM].set(address);
        held.depth.set(depth.wrapping_add(1));
    });
}

/// Notes that the calling thread has released the lock at this address.
#[inline]
pub fn forget(address: usize) {
    HELD.with(|held| {
        let last = held.depth.get().wrapping_sub(1);
        let slot = &held.addresses[last as usize % ROOM];
        if slot.get() == address {
            slot.set(0);
            held.depth.set(last);
        } else {
            forget_older(held, address);
        }
    });
}

/// For locks that are not released in reverse order. The slot stays empty until its turn comes again.
#[cold]
fn forget_older(held: &Held, address: usize) {
    if let Some(slot) = held.addresses.iter().find(|slot| slot.get() == address) {
        slot.set(0);
    }
}

/// Whether the calling thread remembers that it holds the lock at this address for reading.
pub fn holds(address: usize) -> bool {
    HELD.with(|held| held.addresses.iter().any(|slot| slot.get() == address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_remembered_in_any_order() {
        for address in [8, 16, 8, 24] {
            note(address);
        }
        forget(8);
        assert!(holds(8) && holds(16) && holds(24));
        for address in [16, 24, 8] {
            assert!(holds(address));
            forget(address);
            assert!(!holds(address));
        }
        forget(8);
        assert!(!std::thread::spawn(|| holds(8)).join().unwrap());
    }

    #[test]
    fn the_eldest_is_forgotten_first() {
        let addresses: Vec<usize> = (1..=ROOM + 1).map(|i| i * 8).collect();
        addresses.iter().for_each(|&address| note(address));
        assert!(!holds(addresses[0]) && addresses[1..].iter().all(|&address| holds(address)));
        addresses.iter().for_each(|&address| forget(address));
        assert!(!addresses.iter().any(|&address| holds(address)));
    }
}
