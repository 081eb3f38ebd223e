//! # The lock's word
//!
//! One word says whether the lock is ordinary or a server's, and whether it is held.
//!
//! ```text
//! | bits 2–31 | bits 0–1 | meaning                                                                    |
//! |-----------|----------|----------------------------------------------------------------------------|
//! | 0         | FREE     | ordinary, free: all-zero                                                   |
//! | 0         | HELD     | ordinary, held, no waiter sleeps                                           |
//! | 0         | WAITED   | ordinary, held, and a waiter sleeps on the word, or did                    |
//! | S         | FREE     | server S's, free: only its thread with the turn may take it                |
//! | S         | HELD     | server S's, held, by one of its threads or by the client it was granted to |
//! ```
//! An ordinary lock is taken by an exchange that expects (0, FREE). So the exchange fails for a thread that has not
//! noticed that the lock became a server's. That is why the server's number and the state are one word.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::machine::event::Event;
use crate::machine::{Machine, Patience, Word};
use crate::parts::counted::park;
use crate::parts::wait::WaitPolicy;

pub(super) const FREE: u32 = 0;
pub(super) const HELD: u32 = 1;
pub(super) const WAITED: u32 = 2;
const STATE: u32 = 3;

/// A server's number is less than this.
pub const SERVERS: u32 = 1 << 30;

/// The number of the server that the lock with this word belongs to; 0 for an ordinary lock.
#[inline(always)]
pub const fn server_of(word: u32) -> u32 {
    word >> 2
}

/// Whether a lock with this word is held.
#[inline(always)]
pub const fn is_held(word: u32) -> bool {
    word & STATE != FREE
}

pub(super) const fn of(server: u32, state: u32) -> u32 {
    server << 2 | state
}

/// A lock that may be a server's: 8 bytes, all-zero is ordinary and free.
#[repr(C)]
pub struct Lock<M: Machine> {
    /// See the [module](self).
    pub word: M::Word,
    /// The server that the lock belongs to. Only the holder reads and writes it. (The holder could read the word. But
    /// if a thread reads a word before it writes it, loom does not try all that other threads may see there.)
    pub(super) owner: M::Word,
}

impl<M: Machine> Lock<M> {
    /// An ordinary lock, free.
    pub fn new() -> Self {
        Self { word: M::Word::new(FREE), owner: M::Word::new(0) }
    }

    /// A lock of that server, free.
    pub fn of(server: u32) -> Self {
        Self { word: M::Word::new(of(server, FREE)), owner: M::Word::new(server) }
    }

    /// The number of the server that it belongs to, 0 if it is ordinary. It may change at any time.
    pub fn server(&self) -> u32 {
        server_of(self.word.load(Relaxed))
    }

    /// (S, FREE) -> (S, HELD), by S's thread with the turn. Returns whether it was free. A load and a store: no other
    /// thread takes it (invariant 1).
    #[inline(always)]
    pub(super) fn take(&self, seen: u32) -> bool {
        let free = !is_held(seen);
        if free {
            self.word.store(seen | HELD, Relaxed); // The next thread with the turn sees it by `at`, or did it itself.
        }
        free
    }

    /// (0, FREE) -> (0, `as_state`): HELD or WAITED. It fails if the lock is held, or not ordinary.
    fn try_hold(&self, as_state: u32) -> Result<u32, u32> {
        self.word.compare_exchange(of(0, FREE), of(0, as_state), Acquire, Relaxed)
    }

    /// (0, ·) -> (0, held by the caller). False if the lock has become a server's.
    pub(super) fn hold<W: WaitPolicy>(&self, blocks: impl FnOnce()) -> bool {
        match self.try_hold(HELD) {
            Ok(_) => return true,
            Err(seen) if server_of(seen) != 0 => return false,
            Err(_) => M::trace(Event::Contended),
        }
        let mut held = false;
        let mut done = |seen| {
            held = seen == of(0, FREE) && self.try_hold(HELD).is_ok();
            held || server_of(seen) != 0
        };
        if W::SPINS && M::spin_until(&self.word, Relaxed, W::patience(None, Patience::Contend), &mut done).is_some() {
            return held;
        }
        blocks();
        loop {
            let seen = match self.try_hold(WAITED) {
                Ok(_) => return true,
                Err(seen) if server_of(seen) != 0 => return false,
                Err(seen) => seen,
            };
            let waited = of(0, WAITED);
            if seen == waited || self.word.compare_exchange(seen, waited, Relaxed, Relaxed).is_ok() {
                park::<M>(&self.word, waited, None);
            }
        }
    }
}

impl<M: Machine> Default for Lock<M> {
    fn default() -> Self {
        Self::new()
    }
}
