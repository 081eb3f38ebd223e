//! # Releasing a lock, and giving it to a server
//!
//! What the holder of a lock does at the end of its section: it releases the lock where that belongs, or gives it to
//! another server first. Also how a lock comes back from a server that was closed.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::roster::Roster;
use super::word::{FREE, HELD, Lock, WAITED, of};
use crate::machine::{Machine, Word};
use crate::parts::counted::wake;

impl<M: Machine> Lock<M> {
    /// Held by the caller -> free. `mine`: the server in which the caller has the turn, or 0.
    #[inline(always)]
    pub(super) fn release<R: Roster<M>>(&self, mine: u32, roster: &R) {
        let server = self.owner.load(Relaxed);
        if server == mine && mine != 0 {
            return self.word.store(of(mine, FREE), Release);
        }
        self.release_posted(server, roster);
    }

    /// The same, if the caller does not have the turn of the lock's server. The server may sleep, and now there may be
    /// something for it to do.
    #[cold]
    fn release_posted<R: Roster<M>>(&self, server: u32, roster: &R) {
        let address = &raw const self.word;
        if server == 0 {
            if self.word.swap(of(0, FREE), Release) == of(0, WAITED) {
                wake::<M>(address, 1);
            }
            return;
        }
        self.word.store(of(server, FREE), Release);
        Self::changed(address, server, roster);
    }

    /// The word at this address, of a lock that was held and that server's, has changed: the server can act, or, if it
    /// is closed, the threads that [reclaim](Lock::reclaim) the lock. The lock may no longer exist: only its address
    /// is used.
    fn changed<R: Roster<M>>(address: *const M::Word, server: u32, roster: &R) {
        M::light_fence();
        let server = roster.server(server);
        if server.is_closed() {
            M::wake(address, u32::MAX);
        } else {
            server.ring();
        }
    }

    /// (held by the caller, of any server) -> (held by the caller, of this server). Release: a client that posts there
    /// has seen what makes the server one.
    pub(super) fn give_to<R: Roster<M>>(&self, server: u32, roster: &R) {
        let before = self.owner.load(Relaxed);
        self.owner.store(server, Relaxed);
        match before {
            before if before == server => {}
            0 => {
                self.word.swap(of(server, HELD), AcqRel);
                // All sleepers must now ask the server, including those that a release has left asleep. A release wakes
                // only one waiter, and relies on it to mark the word again, which that waiter no longer does.
                M::wake(&raw const self.word, u32::MAX);
            }
            before => {
                self.word.store(of(server, HELD), Release);
                Self::changed(&raw const self.word, before, roster); // Requests can be answered now: moved.
            }
        }
    }

    /// (S, FREE) -> (0, HELD by the caller) -> (0, FREE), where S is closed, and so no longer takes the lock. Waits
    /// until the lock is free.
    pub(super) fn reclaim<R: Roster<M>>(&self, server: u32, roster: &R) {
        loop {
            match self.word.compare_exchange(of(server, FREE), of(0, HELD), Acquire, Relaxed) {
                Ok(_) => {
                    self.owner.store(0, Relaxed);
                    return self.release(0, roster);
                }
                Err(seen) if seen == of(server, HELD) => {
                    M::heavy_fence();
                    M::park(&self.word, seen, None);
                }
                _ => return,
            }
        }
    }
}
